//! What the fuzz targets (see `fuzz/`) need of this folder: replies and URLs made of anything, and a subscriber over any
//! stream.

use super::link::decode;
use super::{Access, Address, Messages, Subscriber, server};
use crate::error::Error;
use crate::script::{self, Renewal, Undecodable};
use redis::{ProtocolVersion, RedisConnectionInfo, Value};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// What the redis crate reads in `bytes`, decoded.
pub fn reply_bytes(bytes: &[u8]) {
    if let Ok(value) = redis::parse_redis_value(bytes) {
        reply(value);
    }
}

/// `value` as the reply of every request.
pub fn reply(value: Value) {
    if let Value::BulkString(text) = &value {
        let _ = server::read(&String::from_utf8_lossy(text), "node");
    }
    let reply = &decode(value);
    let _ = script::acquired(reply);
    let _ = script::recounted(reply);
    let _ = script::released(reply);
    let _ = script::handed_over(reply);
    for (renewal, batch) in Renewal::ALL.into_iter().flat_map(|renewal| (0..4).map(move |n| (renewal, n))) {
        let renewed = script::renewed(renewal, reply, batch);
        assert!(renewed == Err(Undecodable) || renewed.is_ok_and(|all| all.len() == batch));
    }
    let _ = script::yes(reply);
    let _ = script::lives(reply);
    let _ = script::counted(reply);
    let _ = script::held_by(reply);
    let _ = script::refused(reply);
}

/// `url`, and the same with a password: what is shown of it is the same whatever the password is.
pub fn url(url: &str) {
    let _ = Address::parse(url, Access::default());
    if let Some((scheme, rest)) = url.split_once("://") {
        let shown = |password: &str| match Address::parse(
            &format!("{scheme}://user:{password}@{rest}"),
            Access::default(),
        ) {
            Ok(address) => format!("{address:?} {}", address.node()),
            Err(error @ Error::Misuse { .. }) => format!("{error} {error:?}"),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(shown("canary"), shown("wombat"));
    }
}

/// `None` if `stream` did not let a connection begin.
pub(crate) async fn subscriber(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Option<(Subscriber, Messages)> {
    let settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let connection = redis::aio::PubSub::new(&settings, stream).await.ok()?;
    Some(Subscriber::split(connection, "node", Duration::from_secs(3)))
}
