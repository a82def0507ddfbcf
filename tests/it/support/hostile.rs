//! Servers that lie, forge or leak. Each speaks just enough of the Redis protocol to be believed, replies as the test
//! says, and records every request.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Ends, with all its connections, when dropped.
pub struct HostileServer {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

type Answer = Box<dyn Fn(&[String]) -> String + Send + Sync>;

struct Shared {
    /// Makes the reply to a request, as it goes over the wire.
    answer: Answer,
    delay: Duration,
    heard: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

impl HostileServer {
    /// Replies to each request with `answer`, which gets its words, the first in upper case.
    pub async fn start(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        Self::after(Duration::ZERO, answer).await
    }

    /// The same, with each reply late by `delay`.
    pub async fn after(
        delay: Duration,
        answer: impl Fn(&[String]) -> String + Send + Sync + 'static,
    ) -> Self {
        super::canary::watch();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("no port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            delay,
            heard: Mutex::default(),
            connections: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        let accepted = shared.clone();
        tasks.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                accepted.connections.fetch_add(1, Ordering::SeqCst);
                let shared = accepted.clone();
                serving.spawn(async move { _ = serve(stream, &shared).await });
            }
        });
        Self { port, shared, _tasks: tasks }
    }

    /// A sentinel that names `host` and `port` as the master of any name.
    pub async fn sentinel(host: &str, port: u16, epoch: u64) -> Self {
        let answer = master(host, port, epoch);
        Self::start(move |words| sentinel(words, &answer)).await
    }

    /// The same, with each reply late by `delay`.
    pub async fn slow_sentinel(delay: Duration, host: &str, port: u16) -> Self {
        let answer = master(host, port, 1);
        Self::after(delay, move |words| sentinel(words, &answer)).await
    }

    /// A sentinel that asks for a password again and again.
    pub async fn asking_for_passwords() -> Self {
        Self::start(|words| match words[0].as_str() {
            "AUTH" => "+OK\r\n".into(),
            _ => "-NOAUTH Authentication required.\r\n".into(),
        })
        .await
    }

    /// A node of a cluster that replies to `CLUSTER SLOTS` with `slots`, a function of its own port.
    pub async fn cluster(slots: impl Fn(u16) -> String + Send + Sync + 'static) -> Self {
        Self::start_knowing_its_port(move |port, words| match words[0].as_str() {
            "CLUSTER" => slots(port),
            _ => node(words),
        })
        .await
    }

    /// Replies to each request with `answer`, which gets the server's own port and the words of the request.
    pub async fn start_knowing_its_port(
        answer: impl Fn(u16, &[String]) -> String + Send + Sync + 'static,
    ) -> Self {
        let own = Arc::new(AtomicUsize::new(0));
        let port = own.clone();
        let hostile = Self::start(move |words| answer(port.load(Ordering::SeqCst) as u16, words)).await;
        own.store(hostile.port.into(), Ordering::SeqCst);
        hostile
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The requests that it got, with a space between their words.
    pub fn heard(&self) -> Vec<String> {
        self.shared.heard.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

/// A sentinel's reply about the master.
fn master(host: &str, port: u16, epoch: u64) -> String {
    let (port, epoch) = (port.to_string(), epoch.to_string());
    array(&["ip", host, "port", &port, "config-epoch", &epoch].map(bulk))
}

fn sentinel(words: &[String], master: &str) -> String {
    match words[0].as_str() {
        "SENTINEL" => master.to_owned(),
        _ => "+OK\r\n".into(),
    }
}

/// The replies of a master that runs no scripts, but lets a client believe that it does. It does not know `HELLO`, and
/// repeats its arguments in the error, as Redis does.
pub fn node(words: &[String]) -> String {
    match words[0].as_str() {
        "PING" => "+PONG\r\n".into(),
        "AUTH" | "SELECT" | "CLIENT" => "+OK\r\n".into(),
        "INFO" => bulk("redis_version:7.2.0\r\nrun_id:hostile\r\nrole:master\r\n"),
        // The user may do everything, and messages can be sharded.
        "EVAL" | "EVALSHA" | "PUBSUB" => array(&[]),
        _ => unknown(words),
    }
}

/// The reply to a command that the server does not know.
pub fn unknown(words: &[String]) -> String {
    let args: String = words[1..].iter().map(|word| format!("'{word}' ")).collect();
    format!("-ERR unknown command '{}', with args beginning with: {args}\r\n", words[0])
}

/// A range of slots and its master, as in `CLUSTER SLOTS`.
pub fn range(first: u16, last: u16, host: &str, port: u16) -> String {
    let master = array(&[bulk(host), format!(":{port}\r\n"), bulk("id")]);
    array(&[format!(":{first}\r\n"), format!(":{last}\r\n"), master])
}

pub fn array(items: &[String]) -> String {
    format!("*{}\r\n{}", items.len(), items.concat())
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        while let Some((mut words, used)) = request(&buffer) {
            buffer.drain(..used);
            if let Some(command) = words.first_mut() {
                command.make_ascii_uppercase();
                shared.heard.lock().unwrap().push(words.join(" "));
                tokio::time::sleep(shared.delay).await;
                stream.write_all((shared.answer)(&words).as_bytes()).await?;
            }
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// The first request in `buffer` and its length, if it is complete.
fn request(buffer: &[u8]) -> Option<(Vec<String>, usize)> {
    let line = |from: usize| {
        let length = buffer.get(from..)?.windows(2).position(|end| end == b"\r\n")?;
        Some((String::from_utf8_lossy(&buffer[from..from + length]).into_owned(), from + length + 2))
    };
    let (head, mut at) = line(0)?;
    let Some(count) = head.strip_prefix('*') else {
        return Some((head.split_whitespace().map(str::to_owned).collect(), at));
    };
    let mut words = Vec::new();
    for _ in 0..count.parse().ok()? {
        let (head, from) = line(at)?;
        let end = from + head.strip_prefix('$')?.parse::<usize>().ok()?;
        words.push(String::from_utf8_lossy(buffer.get(from..end)?).into_owned());
        at = end + 2;
    }
    (at <= buffer.len()).then_some((words, at))
}
