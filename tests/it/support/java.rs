//! A real Redisson in a JVM, which is driven over its stdin and stdout (`tests/redisson` describes how).
//!
//! A request is sent when it is made, not when it is awaited: `thread.lock("plain", name)` starts the call on the Java
//! thread, and returns a future of its end.

pub mod objects;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Server;
use super::clock::monotonic_ns;

/// One JVM with one version of Redisson in it, and any number of clients.
pub struct Java {
    process: Mutex<Child>,
    /// `None` once it was killed.
    requests: Mutex<Option<ChildStdin>>,
    waiting: Arc<Waiting>,
    last_id: AtomicU64,
}

/// The callers that wait for a reply, by the id of the request.
type Waiting = Mutex<HashMap<u64, Waiter>>;

struct Waiter {
    /// Taken when the start is reported.
    started: Option<oneshot::Sender<u64>>,
    started_ns: u64,
    done: oneshot::Sender<Reply>,
}

impl Java {
    /// The JVM of this version that all tests share. It ends with this process.
    pub fn get(version: &str) -> Arc<Self> {
        static SHARED: OnceLock<Mutex<HashMap<String, Arc<Java>>>> = OnceLock::new();
        let mut shared = SHARED.get_or_init(Mutex::default).lock().unwrap();
        Arc::clone(shared.entry(version.to_owned()).or_insert_with(|| Self::spawn(version)))
    }

    /// A JVM of the caller's own, which it may kill. It ends at the latest with its last client.
    pub fn spawn(version: &str) -> Arc<Self> {
        let arguments = Path::new(&super::setting("REDISSON_LOCK_PEERS")).join(version).join("java.args");
        assert!(
            arguments.exists(),
            "the peer is not built on Redisson {version}: run `cargo xtask test --redisson {version}`"
        );
        let mut process = Command::new("java")
            .arg(format!("@{}", arguments.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("java cannot be run");
        let requests = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("it is piped"));
        let waiting = Arc::new(Waiting::default());
        thread::spawn({
            let waiting = Arc::clone(&waiting);
            move || {
                for line in answers.lines().map_while(Result::ok) {
                    deliver(&line, &mut waiting.lock().unwrap());
                }
                // Drop the senders, so that no caller waits for a dead process.
                waiting.lock().unwrap().clear();
            }
        });
        Arc::new(Self {
            process: Mutex::new(process),
            requests: Mutex::new(requests),
            waiting,
            last_id: AtomicU64::new(0),
        })
    }

    /// A new Redisson client, connected to `server`. A `watchdog_ms` of 0 leaves the default of 30 s.
    pub async fn client(self: &Arc<Self>, server: &Server, watchdog_ms: u64) -> JavaClient {
        self.client_at(&server.address(), watchdog_ms).await
    }

    /// The same with settings of Redisson, such as `fairLockWaitTimeout=500`. Those of a single server are among them.
    /// `codec` is a class of Redisson.
    pub async fn client_with(
        self: &Arc<Self>,
        server: &Server,
        watchdog_ms: u64,
        settings: &[&str],
    ) -> Result<JavaClient, JavaError> {
        self.connect(&server.address(), watchdog_ms, settings).await
    }

    /// A new Redisson client, connected to `host:port`, `sentinel/master/host:port,host:port..`, or
    /// `cluster/host:port,host:port..`; `replicated/` and `masterslave/` likewise.
    pub async fn client_at(self: &Arc<Self>, address: &str, watchdog_ms: u64) -> JavaClient {
        self.connect(address, watchdog_ms, &[]).await.unwrap_or_else(|error| panic!("Java threw {error}"))
    }

    /// The same with settings of Redisson.
    pub async fn client_in(self: &Arc<Self>, address: &str, settings: &[&str]) -> JavaClient {
        self.connect(address, 0, settings).await.unwrap_or_else(|error| panic!("Java threw {error}"))
    }

    /// The methods of one of Redisson's interfaces, including inherited ones: `RLock.lock(long,TimeUnit)`.
    pub async fn methods(&self, interface: &str) -> Vec<String> {
        let methods = self.send("none", "main", &format!("methods {interface}")).await.unwrap();
        methods.split(' ').map(str::to_owned).collect()
    }

    async fn connect(
        self: &Arc<Self>,
        address: &str,
        watchdog_ms: u64,
        settings: &[&str],
    ) -> Result<JavaClient, JavaError> {
        let name = format!("client{}", self.last_id.fetch_add(1, Ordering::Relaxed));
        let connection = Arc::new(Connection { java: Arc::clone(self), name });
        let words = [&[address, &watchdog_ms.to_string()], settings].concat().join(" ");
        let uuid = connection.send("main", &format!("connect {words}")).await.result?.into();
        Ok(JavaClient { connection, uuid })
    }

    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().id()
    }

    /// `SIGKILL`. Requests without a reply end with an error of the class [`JavaError::DIED`].
    pub fn kill(&self) {
        self.requests.lock().unwrap().take();
        let mut process = self.process.lock().unwrap();
        process.kill().expect("it is our child");
        process.wait().expect("it is our child");
    }

    fn send(&self, client: &str, thread: &str, command: &str) -> Pending {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let (started, at) = oneshot::channel();
        let (done, reply) = oneshot::channel();
        // Locked across the write, so that requests reach a thread in the order of the calls.
        let mut requests = self.requests.lock().unwrap();
        self.waiting.lock().unwrap().insert(id, Waiter { started: Some(started), started_ns: 0, done });
        let line = format!("{id} {client} {thread} {command}\n");
        let sent = requests.as_mut().is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok());
        if !sent {
            self.waiting.lock().unwrap().remove(&id);
        }
        Pending { at, reply, read: |value| value }
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        self.kill();
    }
}

fn deliver(line: &str, waiting: &mut HashMap<u64, Waiter>) {
    let mut words = line.splitn(4, ' ');
    let mut next = || words.next().unwrap_or_default();
    let (id, outcome, nanoseconds, rest) = (next(), next(), next(), next());
    // An event, which has `*` for its id, is not a reply.
    let (Ok(id), Ok(nanoseconds)) = (id.parse(), nanoseconds.parse()) else {
        return;
    };
    if outcome == "at" {
        if let Some(waiter) = waiting.get_mut(&id) {
            waiter.started_ns = nanoseconds;
            waiter.started.take().map(|started| started.send(nanoseconds));
        }
        return;
    }
    let Some(waiter) = waiting.remove(&id) else {
        return;
    };
    let result = if outcome == "ok" {
        Ok(rest.to_owned())
    } else {
        let (class, message) = rest.split_once(' ').unwrap_or((rest, ""));
        Err(JavaError { class: class.to_owned(), message: message.to_owned() })
    };
    // The caller may have given up.
    let _ = waiter.done.send(Reply { started_ns: waiter.started_ns, done_ns: nanoseconds, result });
}

/// A Redisson client. It is shut down in the background when it and all its threads are dropped.
pub struct JavaClient {
    connection: Arc<Connection>,
    uuid: Arc<str>,
}

impl JavaClient {
    /// The first half of the owner id of every hold of this client.
    pub fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The Java thread of this name. The same name gives the same thread.
    pub fn thread(&self, name: &str) -> JavaThread {
        JavaThread {
            connection: Arc::clone(&self.connection),
            uuid: Arc::clone(&self.uuid),
            name: name.to_owned(),
        }
    }

    /// The client's configuration file, as Redisson writes it.
    pub async fn configuration(&self) -> String {
        let text = self.connection.send("main", "configuration").await.result.unwrap();
        String::from_utf8(STANDARD.decode(text).unwrap()).unwrap()
    }

    /// Shuts the client down, whatever its threads do, and returns once that is done.
    pub async fn shutdown(self) {
        self.connection.shutdown().await.unwrap();
    }
}

struct Connection {
    java: Arc<Java>,
    /// The name of the client in the peer.
    name: String,
}

impl Connection {
    fn send(&self, thread: &str, command: &str) -> Pending {
        self.java.send(&self.name, thread, command)
    }

    fn shutdown(&self) -> Pending {
        // On a separate thread, because the others may wait for a lock.
        self.send("shutdown", "shutdown")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A second shutdown does nothing.
        drop(self.shutdown());
    }
}

/// One thread of a Redisson client, which is one owner of locks.
///
/// `kind` is a lock's kind in the peer: `plain`, `spin`, `fair`, `read`, `write`, `fenced`, `nonreentrant` or
/// `nonreentrantfair`. For the kinds `multi`, `red` and `group`, the name is the one given to
/// [`combine`](Self::combine) or [`group`](Self::group).
#[derive(Clone)]
pub struct JavaThread {
    connection: Arc<Connection>,
    uuid: Arc<str>,
    name: String,
}

impl JavaThread {
    /// Sends a command of the peer. Names in it must be encoded by [`name64`].
    pub fn start(&self, command: &str) -> Pending {
        self.connection.send(&self.name, command)
    }

    pub async fn call(&self, command: &str) -> Reply {
        self.start(command).await
    }

    pub fn lock(&self, kind: &str, name: &str) -> Pending<()> {
        self.on("lock", kind, name, &[]).reading(|_| ())
    }

    pub fn lock_for(&self, kind: &str, name: &str, lease: Duration) -> Pending<()> {
        self.on("lock", kind, name, &[lease.as_millis()]).reading(|_| ())
    }

    /// A single attempt.
    pub fn try_lock(&self, kind: &str, name: &str) -> Pending<bool> {
        self.on("tryLock", kind, name, &[]).reading(read)
    }

    pub fn try_lock_within(&self, kind: &str, name: &str, wait: Duration) -> Pending<bool> {
        self.on("tryLock", kind, name, &[wait.as_millis()]).reading(read)
    }

    pub fn try_lock_within_for(
        &self,
        kind: &str,
        name: &str,
        wait: Duration,
        lease: Duration,
    ) -> Pending<bool> {
        self.on("tryLock", kind, name, &[wait.as_millis(), lease.as_millis()]).reading(read)
    }

    pub fn unlock(&self, kind: &str, name: &str) -> Pending<()> {
        self.on("unlock", kind, name, &[]).reading(|_| ())
    }

    /// Whether there was a hold to end. `None` from 3.3.2, which does not report it.
    pub fn force_unlock(&self, kind: &str, name: &str) -> Pending<Option<bool>> {
        self.on("forceUnlock", kind, name, &[]).reading(read_unless_dash)
    }

    pub fn is_locked(&self, kind: &str, name: &str) -> Pending<bool> {
        self.on("isLocked", kind, name, &[]).reading(read)
    }

    /// Whether this very thread holds the lock.
    pub fn is_held(&self, kind: &str, name: &str) -> Pending<bool> {
        self.on("isHeld", kind, name, &[]).reading(read)
    }

    pub fn hold_count(&self, kind: &str, name: &str) -> Pending<u32> {
        self.on("holdCount", kind, name, &[]).reading(read)
    }

    /// In ms: -1 without expiry, -2 without a record. `None` where Redisson cannot report it.
    pub fn remain_ttl(&self, kind: &str, name: &str) -> Pending<Option<i64>> {
        self.on("remainTtl", kind, name, &[]).reading(read_unless_dash)
    }

    /// Returns once this thread waits for the message of a release. Some of Redisson's messages wake only such threads. A
    /// spin lock waits for none.
    pub async fn asleep(&self) {
        let watch = format!("watch-{}", self.name);
        self.connection.send(&watch, &format!("asleep {}", self.name)).await.unwrap();
    }

    /// The owner id of this thread's holds, which is also their field in the record.
    pub async fn owner(&self) -> String {
        format!("{}:{}", self.uuid, self.call("owner").await.unwrap())
    }

    /// Repeats `iterations` times: lock, read the string `counter`, stay for `hold`, write it back plus 1, unlock. The
    /// kinds `read`, `semaphore` and `permitsemaphore` have shared holds: they write nothing, and throw if `counter`
    /// changed. Returns when each hold began and ended. A real hold is never shorter than reported.
    pub fn loop_(
        &self,
        kind: &str,
        name: &str,
        iterations: u32,
        counter: &str,
        hold: Duration,
    ) -> Pending<Vec<(u64, u64)>> {
        self.looping(kind, name, iterations, counter, hold).reading(|holds| {
            let hold = |text: &str| {
                let mut words = text.split(':');
                Some((read(words.next()?), read(words.next()?)))
            };
            holds.split(',').filter_map(hold).collect()
        })
    }

    fn looping(&self, kind: &str, name: &str, iterations: u32, counter: &str, hold: Duration) -> Pending {
        let (name, counter) = (name64(name), name64(counter));
        self.start(&format!("loop {kind} {name} {iterations} {counter} {}", hold.as_micros()))
    }

    fn on(&self, command: &str, kind: &str, name: &str, times: &[u128]) -> Pending {
        let mut text = format!("{command} {kind} {}", name64(name));
        for time in times {
            text += &format!(" {time}");
        }
        self.start(&text)
    }
}

/// The reply to a request that is already sent. Dropping it does not cancel the request.
pub struct Pending<T = String> {
    at: oneshot::Receiver<u64>,
    reply: oneshot::Receiver<Reply>,
    read: fn(String) -> T,
}

impl Pending {
    fn reading<T>(self, read: fn(String) -> T) -> Pending<T> {
        Pending { at: self.at, reply: self.reply, read }
    }
}

impl<T> Pending<T> {
    /// Returns when the Java thread begins, with the time that it reports. Call it once at most.
    pub async fn started(&mut self) -> u64 {
        (&mut self.at).await.expect("the Java peer died")
    }
}

impl<T> Future for Pending<T> {
    type Output = Reply<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply<T>> {
        let reply = ready!(Pin::new(&mut self.reply).poll(context)).unwrap_or_else(|_| Reply {
            started_ns: 0,
            done_ns: monotonic_ns(),
            result: Err(JavaError { class: JavaError::DIED.to_owned(), message: String::new() }),
        });
        Poll::Ready(Reply {
            started_ns: reply.started_ns,
            done_ns: reply.done_ns,
            result: reply.result.map(self.read),
        })
    }
}

/// The times are those of [`monotonic_ns`], taken by Java.
#[derive(Debug)]
pub struct Reply<T = String> {
    pub started_ns: u64,
    pub done_ns: u64,
    pub result: Result<T, JavaError>,
}

impl<T> Reply<T> {
    #[track_caller]
    pub fn unwrap(self) -> T {
        self.result.unwrap_or_else(|error| panic!("Java threw {error}"))
    }

    /// The exception, where Java must throw one.
    #[track_caller]
    pub fn unwrap_err(self) -> JavaError {
        self.result.err().expect("Java should have thrown")
    }
}

#[derive(Debug)]
pub struct JavaError {
    /// Without its package.
    pub class: String,
    pub message: String,
}

impl JavaError {
    /// Stands for the end of the JVM itself. No Java exception has this class.
    pub const DIED: &str = "(died)";
}

impl fmt::Display for JavaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.class, self.message)
    }
}

impl Error for JavaError {}

/// Base64 of the name, so that it may contain anything.
pub fn name64(name: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for bytes in name.as_bytes().chunks(3) {
        let group = (0..3).fold(0, |group, i| group << 8 | usize::from(*bytes.get(i).unwrap_or(&0)));
        for digit in 0..4 {
            let known = digit <= bytes.len();
            text.push(if known { char::from(DIGITS[group >> (18 - 6 * digit) & 63]) } else { '=' });
        }
    }
    text
}

fn read<T: std::str::FromStr>(text: impl AsRef<str>) -> T {
    let text = text.as_ref();
    text.parse().unwrap_or_else(|_| panic!("the Java peer replied {text:?}"))
}

fn read_unless_dash<T: std::str::FromStr>(text: String) -> Option<T> {
    (text != "-").then(|| read(text))
}
