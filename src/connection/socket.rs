//! Opens sockets. No other file does.

use crate::config::options::Options;
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use redis::ConnectionAddr;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

/// A byte stream to the server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Opens a socket. The caller ends it at `until`.
pub(super) async fn open(
    address: &ConnectionAddr,
    until: Moment,
    options: &Options,
) -> io::Result<Box<dyn Stream>> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            let addresses: Vec<_> = lookup_host((host.as_str(), *port)).await?.collect();
            let stream = connect_to_one(&addresses, until).await?;
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
        other => {
            Err(io::Error::other(format!("cannot connect to {other}: use a TCP address or a unix socket")))
        }
    }
}

/// Connects to the first of the `addresses` of a host that answers. Each address gets its share of the time until `until`, because a
/// network may drop what is sent to one of them. The caller limits the last one.
async fn connect_to_one(addresses: &[SocketAddr], until: Moment) -> io::Result<TcpStream> {
    let Some((last, others)) = addresses.split_last() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the host has no address"));
    };
    for (at, address) in others.iter().enumerate() {
        let share = until.remaining() / (addresses.len() - at) as u32;
        if let Ok(Ok(stream)) = time::timeout(share, TcpStream::connect(address)).await {
            return Ok(stream);
        }
    }
    TcpStream::connect(last).await
}

/// Fails if both ends of `stream` are the same socket. TCP connects a socket to itself if its own ephemeral port is the requested one and
/// nobody listens there. Such a connection echoes every request, and takes the port from a server that starts.
fn refuse_self(stream: &TcpStream) -> io::Result<()> {
    match stream.local_addr()? == stream.peer_addr()? {
        true => Err(io::ErrorKind::ConnectionRefused.into()),
        false => Ok(()),
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn a_connection_to_itself_is_refused() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        let stream = socket.connect(address).await.unwrap();
        let error = refuse_self(&stream).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_hide_the_next_one() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let full = socket.listen(1).unwrap();
        let silent = full.local_addr().unwrap();
        // Once its queue is full, the system drops what comes.
        let mut queued = Vec::new();
        while let Ok(connected) = time::timeout(Duration::from_millis(300), TcpStream::connect(silent)).await
        {
            queued.push(connected.unwrap());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap();
        let (addresses, limit) = ([silent, there], Duration::from_secs(2));
        let connecting = connect_to_one(&addresses, Moment::now() + limit);
        let stream = time::timeout(limit, connecting).await.expect("a share of the time").unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
    }
}
