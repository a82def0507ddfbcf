//! Replaces `src/connection/socket.rs`: opens streams to the server of these tests.

use crate::config::options::Options;
use crate::runtime::clock::Moment;
use crate::shuttled::{explore, server};
use redis::ConnectionAddr;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to the server.
#[allow(dead_code)]
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(super) async fn open(
    _address: &ConnectionAddr,
    _until: Moment,
    _options: &Options,
) -> std::io::Result<Box<dyn Stream>> {
    Ok(Box::new(match explore::is_running() {
        true => explore::connect(),
        false => server::connect().await?,
    }))
}
