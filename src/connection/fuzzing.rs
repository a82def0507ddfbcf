//! Access for the fuzz targets in `fuzz/`: every decoder of server input, URL parsing, and a subscriber over any stream.

use super::link::decode;
use super::server::{self, Server};
use super::{
    Access, Address, ErrorClass, Messages, Redirect, Subscriber, cluster, discovery, replicas, server_text,
};
use crate::error::Error;
use crate::holder::ClientInfo;
use crate::protocol::script::{self, Acquired, Released, Renewal, Reply, Undecodable};
use redis::{ProtocolVersion, RedisConnectionInfo, Value};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// Parses `bytes` by the redis crate, and checks the result as [`reply`] does.
pub fn reply_bytes(bytes: &[u8]) {
    if let Ok(value) = redis::parse_redis_value(bytes) {
        reply(value);
    }
}

/// Decodes `value` as the reply to every request, and checks that the result agrees with the reply.
pub fn reply(value: Value) {
    let reply = &decode(value);
    let ttl = match reply {
        Reply::List(items) => match items.as_slice() {
            [Reply::Text(_), Reply::Int(ms), ..] => u64::try_from(*ms).ok().map(Duration::from_millis),
            _ => None,
        },
        _ => None,
    };
    match script::acquired(reply) {
        Ok(Acquired::Taken(n)) => assert_eq!(*reply, Reply::Int(n.cast_signed())),
        Ok(Acquired::Busy(left) | Acquired::Stale(left) | Acquired::Own(left)) => {
            assert!(left == ttl || matches!(reply, Reply::List(items) if !matches!(items[1], Reply::Int(_))));
        }
        Err(Undecodable) => {}
    }
    if let Some(holder) = script::blocking_owner_id(reply) {
        assert!(matches!(reply, Reply::List(items) if items[2] == Reply::Text(holder.into())));
    }
    let _ = script::recounted(reply);
    if let Ok(Released::Freed(n)) = script::released(reply) {
        assert_eq!(*reply, Reply::Int(n.cast_signed()));
    }
    let _ = script::handed_off(reply);
    for (renewal, batch) in Renewal::ALL.into_iter().flat_map(|renewal| (0..4).map(move |n| (renewal, n))) {
        let renewed = script::renewed(renewal, reply, batch);
        assert!(renewed == Err(Undecodable) || renewed.is_ok_and(|all| all.len() == batch));
    }
    let _ = script::yes(reply);
    let _ = script::lives(reply);
    let _ = script::counted(reply);
    let _ = script::number(reply);
    let _ = script::held_by(reply);
    let _ = script::held_by_token(reply);
    let _ = script::holds_values(reply);
    let _ = script::inspected_values(reply);
    let _ = script::inspected(reply);
    let _ = script::permits_seen(reply);
    let _ = script::described(reply);
    let _ = script::scanned(reply);
    let _ = script::info(reply);
    let _ = script::settings(reply);
    let _ = script::time(reply);
    if let Ok(Some(client)) = script::described_client(reply) {
        assert!(client.to_string().chars().all(|sign| !sign.is_control()));
        assert_eq!(ClientInfo::parse(client.value().as_bytes()), Some(client));
    }
    if let Ok(Some(shares)) = script::shared_by(reply) {
        let writers = shares.holders.iter().map(|holder| holder.owner().ends_with(":write"));
        assert!(writers.is_sorted_by(|before, after| before >= after), "writers come first");
    }
    if let Ok(refused) = script::refused(reply) {
        assert!(matches!(reply, Reply::List(items) if refused.len() == items.len() / 2));
    }
}

/// The ranges in a reply to `CLUSTER SLOTS`, if a client would accept them. Each has its first and last slot, and its master's
/// host and port.
pub fn cluster_slots(answer: Value) -> Option<Vec<(u16, u16, String, u16)>> {
    let ranges = cluster::parse_slots(answer).filter(|ranges| cluster::bounded(ranges).is_ok())?;
    Some(ranges.into_iter().map(|range| (range.first, range.last, range.host, range.port)).collect())
}

/// The master's host and port in a reply to `SENTINEL MASTER`.
pub fn sentinel_master(answer: Value) -> Option<(String, u16)> {
    discovery::parse_master(answer).map(|master| (master.host, master.port))
}

/// The master that a majority of `of` sentinels named.
pub fn vote(said: &[(String, u16)], of: usize) -> Option<(String, u16)> {
    let said: Vec<_> =
        said.iter().map(|(host, port)| discovery::MasterInfo { host: host.clone(), port: *port }).collect();
    discovery::most(&said, of).map(|master| (master.host, master.port))
}

/// The number of replicas in a reply to `ROLE`, if the server is a master.
pub fn role(answer: &Value) -> Option<usize> {
    replicas::replica_count(answer)
}

/// The facts that a client reads from `INFO`.
#[allow(missing_docs)]
#[derive(Debug)]
pub struct Info {
    pub run_id: Option<String>,
    pub master: Option<String>,
    pub uptime: Duration,
    pub logs_absolute_expiry: bool,
}

/// Parses a reply to `INFO`.
///
/// # Errors
/// If the server is too old.
pub fn info(text: &str) -> Result<Info, Error> {
    let Server { run_id, master, uptime, logs_absolute_expiry } = server::parse_server(text, "node")?;
    Ok(Info { run_id, master, uptime, logs_absolute_expiry })
}

/// How a client classifies an error from a server.
#[allow(missing_docs)]
#[derive(Debug, PartialEq, Eq)]
pub enum Meant {
    NoScript,
    Elsewhere { slot: u16, host: String, port: u16, ask: bool },
    NotNow { code: String, message: String },
    Refused { code: String, message: String },
    Unknown { reason: String },
}

/// Parses `bytes` as an error by the redis crate. Returns its classification, and the public error for a failed connect.
pub fn error(bytes: &[u8]) -> Option<(Meant, Error)> {
    let error = super::into_server_error(redis::parse_redis_value(bytes)).err()?;
    let meant = match super::classify(&error) {
        ErrorClass::NoScript => Meant::NoScript,
        ErrorClass::Elsewhere(Redirect { slot, host, port, ask }) => {
            Meant::Elsewhere { slot, host, port, ask }
        }
        ErrorClass::NotNow { code, message } => Meant::NotNow { code, message },
        ErrorClass::Refused { code, message } => Meant::Refused { code, message },
        ErrorClass::Unknown { reason } => Meant::Unknown { reason },
    };
    Some((meant, super::connect_error(&error, "node")))
}

/// A server's text as it appears in errors and logs.
pub fn shown(text: &str) -> String {
    server_text::sanitized(text)
}

/// A host that a server named, if it is valid.
pub fn host(text: &str) -> Option<String> {
    server_text::host(text)
}

/// Parses `url`, and parses it with two different passwords. The output must not depend on the password.
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

/// A subscriber over `stream`; `None` if the handshake fails.
pub(crate) async fn subscriber(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Option<(Subscriber, Messages)> {
    let settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let connection = redis::aio::PubSub::new(&settings, stream).await.ok()?;
    Some(Subscriber::split(connection, "node", Duration::from_secs(3)))
}
