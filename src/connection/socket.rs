//! Opens sockets. No other file does.

use crate::config::options::Options;
use redis::ConnectionAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream to the server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(super) async fn open(address: &ConnectionAddr, options: &Options) -> std::io::Result<Box<dyn Stream>> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            refuse_self(&stream)?;
            stream.set_nodelay(true)?;
            let socket = socket2::SockRef::from(&stream);
            let probe = Duration::from_secs(5);
            socket
                .set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(probe * 3).with_interval(probe))?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(options.response_timeout * 3))?;
            #[cfg(not(target_os = "linux"))]
            let _ = options;
            Ok(Box::new(stream))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(tokio::net::UnixStream::connect(path).await?)),
        other => Err(std::io::Error::other(format!(
            "cannot connect to {other}: use a TCP address or a unix socket"
        ))),
    }
}

/// Fails if both ends of `stream` are the same socket. TCP connects a socket to itself if its own ephemeral port is the requested one and
/// nobody listens there. Such a connection echoes every request, and takes the port from a server that starts.
fn refuse_self(stream: &TcpStream) -> std::io::Result<()> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(std::io::ErrorKind::ConnectionRefused.into()),
        false => Ok(()),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use tokio::net::TcpSocket;

    #[tokio::test]
    async fn a_connection_to_itself_is_refused() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        let stream = socket.connect(address).await.unwrap();
        let error = refuse_self(&stream).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
