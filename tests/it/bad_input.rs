//! Input that is wrong from the start: names, times, URLs, passwords, servers, records of another type, a foreign executor.
//!
//! Each case returns a typed error in time, without a panic and without a secret in its message.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use redisson_lock::{Client, ClientBuilder, Error, HoldState, LossReason, Owner, Phase, Replication};

use crate::support::kind::keys;
use crate::support::worker::Worker;
use crate::support::{CANARY, Server, Stopwatch, assert_no_canary, eventually};

#[tokio::test]
async fn a_bad_argument_is_misuse_and_nothing_is_sent() {
    let server = Server::start();
    // The mapper builds the long name, so that only one copy of it exists.
    let client = Client::builder()
        .name_mapper(|name| match name {
            "too long" => "x".repeat(512 * 1024 * 1024 + 1),
            "mapped to nothing" => String::new(),
            name => name.to_owned(),
        })
        .connect(server.url())
        .await
        .unwrap();
    server.commandstats_reset();

    for name in ["", "too long", "mapped to nothing"] {
        let lock = client.lock(name);
        assert_misuse(lock.lock().await);
        assert_misuse(lock.try_lock().await);
        assert_misuse(lock.try_lock_for(Duration::from_secs(1)).await);
        assert_misuse(lock.run(async |_| ()).await);
        assert_misuse(lock.is_locked().await);
        assert_misuse(lock.is_held().await);
        assert_misuse(lock.hold_count().await);
        assert_misuse(lock.remaining_lease().await);
        assert_misuse(lock.holder().await);
        assert_misuse(lock.force_unlock().await);
    }

    let lock = client.lock("orders");
    for lease in bad_leases() {
        let lock = lock.with_lease(lease);
        assert_misuse(lock.lock().await);
        assert_misuse(lock.try_lock().await);
        assert_misuse(lock.try_lock_for(Duration::from_secs(1)).await);
    }
    for wait in [Duration::from_millis(u64::MAX), Duration::MAX] {
        assert_misuse(lock.try_lock_for(wait).await);
    }
    for owner in ["", "a:b", "a~b"] {
        assert_misuse(Owner::new(owner));
    }

    // Idle clients and this test itself send these commands.
    let idle = ["config|resetstat", "config", "info", "ping", "client|setinfo", "client"];
    let idle = BTreeSet::from(idle.map(str::to_owned));
    let called: BTreeSet<_> = received_commands(&server).difference(&idle).cloned().collect();
    assert_eq!(called, BTreeSet::new());
}

#[tokio::test]
async fn a_bad_setting_or_url_is_misuse_and_opens_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("redis://{address}");
    let (zero, day) = (Duration::ZERO, Duration::from_secs(25 * 3600));
    for lease in bad_leases() {
        assert_misuse(Client::builder().watchdog_timeout(lease).connect(&url).await);
    }
    for bad in [
        Client::builder().response_timeout(zero),
        Client::builder().response_timeout(day),
        Client::builder().connect_timeout(zero),
        Client::builder().connect_timeout(day),
        Client::builder().reconnect_backoff(zero, Duration::from_secs(1)),
        Client::builder().reconnect_backoff(Duration::from_secs(2), Duration::from_secs(1)),
        Client::builder().fencing_token_retention(Duration::from_secs(1)),
        Client::builder().fencing_token_retention(Duration::MAX),
        Client::builder().fair_lock_wait_timeout(Duration::from_micros(999)),
        // `WAIT` with a timeout of 0 ms would wait without a limit.
        Client::builder().replication(Replication::any().within(Duration::from_micros(999))),
    ] {
        assert_misuse(bad.connect(&url).await);
    }
    for bad in [
        String::new(),
        format!("{address}"),
        "redis://".to_owned(),
        format!("redis://:{CANARY}@"),
        format!("redis://:{CANARY}@{address}/not-a-number"),
        format!("redis://user:{CANARY}@127.0.0.1:99999"),
        format!("http://user:{CANARY}@{address}"),
        // Must not fall back to a plain connection.
        format!("rediss://user:{CANARY}@{address}#insecure"),
        format!("redis-sentinel://user:12#{CANARY}@{address}/0#orders"),
    ] {
        assert_misuse(Client::connect(&bad).await);
    }

    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a client connected");
}

/// The limits themselves are valid.
#[tokio::test]
async fn the_longest_lease_and_the_longest_wait_work() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("orders").with_lease(Duration::from_millis(i64::MAX as u64 / 2));
    let (a, b) = (Owner::unique(), Owner::unique());
    let guard = lock.with_owner(&a).lock().await.unwrap();
    let again = lock.with_owner(&a).lock().await.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    let left = lock.remaining_lease().await.unwrap().unwrap();
    assert!(left > Duration::from_secs(1 << 50), "{left:?}");

    let other = lock.with_owner(&b).with_lease(Duration::from_millis(1 << 40));
    let longest = Duration::from_millis(i64::MAX as u64);
    let mut waiting = pin!(other.try_lock_for(longest));
    // Queued behind a hold of the same client.
    assert!(poll_once(waiting.as_mut()).is_pending());
    again.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    waiting.await.unwrap().expect("the lock was free").unlock().await.unwrap();
}

#[tokio::test]
async fn a_name_in_use_for_another_type_is_refused_and_its_value_stays() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let mut cli = server.cli();
    redis::cmd("SET").arg("orders").arg("precious").exec(&mut cli).unwrap();
    let lock = client.lock("orders");

    assert_wrong_type(lock.lock().await, Phase::Acquire);
    assert_wrong_type(lock.try_lock().await, Phase::Acquire);
    assert_wrong_type(lock.try_lock_for(Duration::from_secs(60)).await, Phase::Acquire);
    assert_wrong_type(lock.run(async |_| ()).await, Phase::Acquire);
    assert_wrong_type(lock.holder().await, Phase::Inspect);
    assert_wrong_type(lock.hold_count().await, Phase::Inspect);
    assert_wrong_type(lock.is_held().await, Phase::Inspect);
    assert_wrong_type(lock.force_unlock().await, Phase::ForceUnlock);

    let value: String = redis::cmd("GET").arg("orders").query(&mut cli).unwrap();
    assert_eq!(value, "precious");
    assert_eq!(redis::cmd("PTTL").arg("orders").query::<i64>(&mut cli).unwrap(), -1);
}

/// The client keeps separate state for a reader, for an owner of a group lock and for every other name. A zero byte in a name
/// must not make two of them collide.
#[tokio::test]
async fn a_name_with_a_zero_byte_shares_nothing_with_a_reader_or_a_group() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let owner = Owner::new("x").unwrap();
    let pairs = [
        (client.read_write_lock("r").read().clone(), client.lock("r\0reader:owner-x")),
        (client.group_lock("g", ["value"]), client.lock("g\0group:owner-x")),
    ];
    for (part, plain) in &pairs {
        for [first, second] in [[part, plain], [plain, part]] {
            let first = first.with_owner(&owner).lock().await.unwrap();
            let held = keys(&server);
            let second = second.with_owner(&owner).lock().await.unwrap();
            assert!(keys(&server).len() > held.len(), "{second:?} is not in Redis, only {held:?}");
            assert_eq!(first.owner(), second.owner());
            second.unlock().await.unwrap();
            assert_eq!(keys(&server), held);
            first.unlock().await.unwrap();
        }
    }
    eventually(|| keys(&server).is_empty()).await;
}

#[tokio::test]
async fn release_and_watchdog_report_a_record_of_another_type() {
    let server = Server::start();
    let client =
        Client::builder().watchdog_timeout(Duration::from_secs(1)).connect(server.url()).await.unwrap();
    let mut cli = server.cli();
    let released = client.lock("a").with_lease(Duration::from_secs(60)).lock().await.unwrap();
    let watched = client.lock("b").lock().await.unwrap();
    for key in ["a", "b"] {
        redis::cmd("SET").arg(key).arg("precious").exec(&mut cli).unwrap();
    }
    assert_wrong_type(released.unlock().await, Phase::Release);
    assert_eq!(watched.lost().await, HoldState::Lost(LossReason::Taken));
    drop(watched);
    client.close().await;
    for key in ["a", "b"] {
        assert_eq!(redis::cmd("GET").arg(key).query::<String>(&mut cli).unwrap(), "precious");
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    let server = Server::with_args(&["--requirepass", "canary-in-a-coal-mine-the-right-one"]);
    let at = server.address();
    for (url, code) in [
        (format!("redis://:{CANARY}@{at}"), "WRONGPASS"),
        (format!("redis://default:{CANARY}@{at}"), "WRONGPASS"),
        (format!("redis://{CANARY}-user:{CANARY}@{at}"), "WRONGPASS"),
        // No password, although the server requires one.
        (format!("redis://{at}"), "NOAUTH"),
    ] {
        let error = Client::connect(&url).await.expect_err(code);
        assert!(matches!(&error, Error::Refused { phase: Phase::Connect, .. }), "{error:?}");
        assert_eq!(error.code(), Some(code), "{error:?}");
        assert_no_canary(&error);
        assert!(error.to_string().contains(&at), "{error}");
    }
}

/// With a database in the URL, the server refuses another command first.
#[tokio::test]
async fn a_missing_password_keeps_its_code_with_a_database_in_the_url() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let error = Client::connect(format!("{}/3", server.url())).await.unwrap_err();
    assert_eq!(error.code(), Some("NOAUTH"), "{error:?}");
}

#[tokio::test]
async fn debug_output_never_shows_the_password() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let builder = Client::builder();
    let client = builder.clone().connect(format!("redis://:{CANARY}@{}", server.address())).await.unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let shown = format!("{builder:?} {client:?} {lock:?} {guard:?} {:?}", guard.status());
    assert!(!shown.contains(CANARY), "{shown}");
    guard.unlock().await.unwrap();
}

/// The server refuses the client when it reconnects. The error gives that reason, not only that the server is unreachable.
#[tokio::test]
async fn every_call_reports_a_changed_password() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let url = format!("redis://:{CANARY}@{}", server.address());
    let builder = Client::builder().response_timeout(Duration::from_millis(500));
    let lock = builder.connect(&url).await.unwrap().lock("orders");
    let mut admin = redis::Client::open(url).unwrap().get_connection().unwrap();
    redis::cmd("CONFIG")
        .arg(&["SET", "requirepass", "canary-in-a-coal-mine-another"])
        .exec(&mut admin)
        .unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut admin).unwrap();
    for error in [
        lock.is_locked().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
    ] {
        assert_no_canary(&error);
        assert!(error.to_string().contains("WRONGPASS"), "{error:?}");
    }
}

#[tokio::test]
async fn an_absent_server_is_reported_within_the_connect_timeout() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let limit = Duration::from_secs(2);
    for url in [format!("redis://127.0.0.1:{port}"), "redis+unix:///nowhere/at/all.sock".to_owned()] {
        let (error, took) = connect(Client::builder().connect_timeout(limit), &url).await;
        assert!(matches!(&error, Error::Unavailable { phase: Phase::Connect, .. }), "{error:?}");
        assert!(took.elapsed() < limit, "{took:?}");
    }
}

#[tokio::test]
async fn a_silent_server_is_reported_within_the_connect_timeout() {
    // The backlog accepts connections, but no reply ever comes.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let limit = Duration::from_millis(500);
    let at = listener.local_addr().unwrap();
    // With the last two URLs the handshake itself gets no answer.
    for url in [format!("redis://{at}"), format!("redis://{at}/1"), format!("redis://:{CANARY}@{at}")] {
        let (error, took) = connect(Client::builder().connect_timeout(limit), &url).await;
        assert!(
            matches!(&error, Error::TimedOut { phase: Phase::Connect, waited, .. } if *waited >= limit),
            "{error:?}"
        );
        assert_no_canary(&error);
        assert!(took.is_within(limit..limit * 2), "{url}: {took:?}");
    }
}

/// The connect timeout covers the whole connection attempt, not each of its steps.
#[tokio::test]
async fn the_connect_timeout_covers_all_steps_of_connecting() {
    let limit = Duration::from_secs(1);
    let slow = Stub::start(move |words| match words[0].as_str() {
        "SELECT" => {
            thread::sleep(limit * 4 / 5);
            Some("+OK\r\n".to_owned())
        }
        _ => None,
    });
    let (error, took) = connect(Client::builder().connect_timeout(limit), &format!("{}/1", slow.url())).await;
    assert!(matches!(&error, Error::TimedOut { phase: Phase::Connect, .. }), "{error:?}");
    assert!(took.elapsed() < limit * 3 / 2, "{took:?} for a limit of {limit:?}");
}

#[tokio::test]
async fn the_connect_timeout_covers_the_check_for_replicas() {
    let limit = Duration::from_secs(1);
    // The stub ends a connection that probes for fast paths, so the client selects the database three times.
    let slow = Stub::start(move |words| match words[0].as_str() {
        "SELECT" => {
            thread::sleep(limit / 4);
            Some("+OK\r\n".to_owned())
        }
        "INFO" => Some("$21\r\nredis_version:7.0.0\r\n\r\n".to_owned()),
        "ROLE" | "WAIT" => None,
        _ => Some("+OK\r\n".to_owned()),
    });
    let builder = Client::builder().replication(Replication::at_least(1)).connect_timeout(limit);
    let started = Stopwatch::start();
    let connected = builder.connect(&format!("{}/1", slow.url())).await;
    assert!(started.is_within(limit..limit * 5 / 4), "{started:?}: {connected:?}");
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_the_required_version() {
    for version in ["2.8.24", "3.2.13", "4.0.14"] {
        let error = Client::connect(Stub::of_version(version).url()).await.unwrap_err();
        assert!(matches!(&error, Error::Refused { phase: Phase::Connect, .. }), "{error:?}");
        assert_eq!(error.code(), Some("VERSION"), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("5.0") && text.contains(version), "{text}");
    }
    for version in ["5.0.0", "10.0.0", "7.2.4", "unstable"] {
        Client::connect(Stub::of_version(version).url()).await.expect(version);
    }
}

#[tokio::test]
async fn unlocking_a_lost_hold_names_the_current_holder() {
    let server = Server::start();
    let ours = Client::connect(server.url()).await.unwrap();
    let theirs = Client::connect(server.url()).await.unwrap();
    let (our_lock, their_lock) = (ours.lock("orders"), theirs.lock("orders"));

    let guard = our_lock.lock().await.unwrap();
    assert!(their_lock.force_unlock().await.unwrap());
    let holder = their_lock.lock().await.unwrap();
    match guard.unlock().await.unwrap_err() {
        error @ Error::Lost { reason: LossReason::Taken, .. } => {
            assert_names_holder(&error, holder.owner(), &theirs.id().to_string())
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(holder.state(), HoldState::Held);
    holder.unlock().await.unwrap();

    // No client has acquired the lock since.
    let guard = our_lock.lock().await.unwrap();
    assert!(their_lock.force_unlock().await.unwrap());
    let error = guard.unlock().await.unwrap_err();
    assert!(matches!(&error, Error::Lost { reason: LossReason::Gone, holder: None, .. }), "{error:?}");

    // The client knows of the loss before the unlock.
    let guard = our_lock.with_lease(Duration::from_millis(20)).lock().await.unwrap();
    assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Expired));
    let holder = their_lock.lock().await.unwrap();
    match guard.unlock().await.unwrap_err() {
        error @ Error::NotHeld { .. } => {
            assert_names_holder(&error, holder.owner(), &theirs.id().to_string())
        }
        error => panic!("{error:?}"),
    }
    assert_eq!(holder.state(), HoldState::Held);
    let count: u32 = redis::cmd("HGET").arg("orders").arg(holder.owner()).query(&mut server.cli()).unwrap();
    assert_eq!(count, 1);
}

/// On another executor two tasks may share a thread, so a thread does not identify an owner.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_outside_tokio_is_misuse_that_points_at_with_owner() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    server.commandstats_reset();
    let calls = move || {
        let lock = client.lock("orders");
        for lock in [lock.clone(), lock.with_owner(&Owner::unique())] {
            for message in [
                assert_misuse(block_on(lock.lock())),
                assert_misuse(block_on(lock.try_lock())),
                assert_misuse(block_on(lock.try_lock_for(Duration::from_secs(1)))),
                assert_misuse(block_on(lock.run(async |_| ()))),
                assert_misuse(block_on(lock.is_held())),
                assert_misuse(block_on(lock.hold_count())),
            ] {
                assert!(message.contains("with_owner"), "{message}");
            }
        }
    };
    thread::spawn(calls).join().unwrap();
    assert_eq!(server.scripts(), 0);
}

/// Calls without an owner still need tokio's clock. Outside tokio they may return an error, but they do not panic.
#[tokio::test(flavor = "multi_thread")]
async fn calls_without_an_owner_do_not_panic_outside_tokio() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let url = server.url();
    let calls = move || {
        let no_panic = |method: &'static str, call: &mut dyn FnMut() -> Option<Error>| match catch_unwind(
            AssertUnwindSafe(call),
        ) {
            Ok(None | Some(Error::Misuse { .. })) => None,
            Ok(Some(error)) => Some(format!("{method}: {error:?}")),
            Err(_) => Some(format!("{method} panics")),
        };
        let mut guard = Some(guard);
        [
            no_panic("is_locked", &mut || block_on(lock.is_locked()).err()),
            no_panic("remaining_lease", &mut || block_on(lock.remaining_lease()).err()),
            no_panic("holder", &mut || block_on(lock.holder()).err()),
            no_panic("unlock", &mut || block_on(guard.take()?.unlock()).err()),
            no_panic("force_unlock", &mut || block_on(lock.force_unlock()).err()),
            no_panic("close", &mut || {
                block_on(client.close());
                None
            }),
            no_panic("connect", &mut || block_on(Client::connect(&url)).err()),
        ]
    };
    let failures: Vec<_> = thread::spawn(calls).join().unwrap().into_iter().flatten().collect();
    assert_eq!(failures, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_executor_works_with_an_owner_and_an_entered_runtime() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    let calls = move || {
        let _entered = runtime.enter();
        let (a, b) = (Owner::new("a").unwrap(), Owner::new("b").unwrap());
        let (a, b) = (client.lock("orders").with_owner(&a), client.lock("orders").with_owner(&b));
        block_on(async {
            let guard = a.lock().await.unwrap();
            assert!(guard.owner().ends_with(":owner-a"), "{}", guard.owner());
            let again = a.try_lock().await.unwrap().expect("re-entered");
            assert_eq!((a.hold_count().await.unwrap(), b.hold_count().await.unwrap()), (2, 0));
            assert!(b.try_lock().await.unwrap().is_none());
            let mut waiting = pin!(b.try_lock_for(Duration::from_secs(60)));
            assert!(poll_once(waiting.as_mut()).is_pending());
            again.unlock().await.unwrap();
            guard.unlock().await.unwrap();
            let guard = waiting.await.unwrap().expect("the lock was released");
            assert!(guard.owner().ends_with(":owner-b"), "{}", guard.owner());
            guard.unlock().await.unwrap();
        });
    };
    thread::spawn(calls).join().unwrap();
    assert!(!redis::cmd("EXISTS").arg("orders").query::<bool>(&mut server.cli()).unwrap());
}

/// A zero lease, leases too short for Redis to represent, and leases too long.
fn bad_leases() -> [Duration; 5] {
    [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(999),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ]
}

/// The message of the `Error::Misuse` that a call must have returned.
fn assert_misuse<T>(outcome: Result<T, Error>) -> String {
    match outcome {
        Ok(_) => panic!("the call was accepted"),
        Err(error @ Error::Misuse { .. }) => {
            assert_no_canary(&error);
            error.to_string()
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn assert_wrong_type<T: Debug>(outcome: Result<T, Error>, expected: Phase) {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"), "{error:?}");
    assert!(matches!(&error, Error::Refused { phase, .. } if *phase == expected), "{error:?}");
}

fn assert_names_holder(error: &Error, owner: &str, client: &str) {
    let (Error::Lost { name, holder, .. } | Error::NotHeld { name, holder, .. }) = error else {
        unreachable!()
    };
    let holder = holder.as_ref().expect("the error names the holder");
    assert_eq!((name.as_str(), holder.owner(), holder.count()), ("orders", owner, 1));
    assert_eq!(holder.client_id(), client);
    assert!(error.is_lost() && error.to_string().contains(owner), "{error}");
}

async fn connect(builder: ClientBuilder, url: &str) -> (Error, Stopwatch) {
    let started = Stopwatch::start();
    (builder.connect(url).await.unwrap_err(), started)
}

/// The commands that the server has received since its counters were reset.
fn received_commands(server: &Server) -> BTreeSet<String> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.cli()).unwrap();
    let name = |line: &str| Some(line.strip_prefix("cmdstat_")?.split(':').next()?.to_owned());
    stats.lines().filter_map(name).collect()
}

/// A minimal server for replies that no real server sends.
struct Stub {
    address: String,
}

impl Stub {
    /// `answer` returns the reply to each request; `None` leaves the request unanswered.
    fn start(answer: impl Fn(&[String]) -> Option<String> + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        // These threads only wait for connections and requests. They hold no resources and end with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, answer) = (stream.unwrap(), answer.clone());
                thread::spawn(move || serve(stream, answer));
            }
        });
        Self { address }
    }

    fn of_version(version: &str) -> Self {
        let info = format!("# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\n");
        Self::start(move |words| match words[0].as_str() {
            "INFO" => Some(format!("${}\r\n{info}\r\n", info.len())),
            "EVALSHA" => Some("*0\r\n".to_owned()),
            _ => Some("+OK\r\n".to_owned()),
        })
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

/// Returns when the client disconnects.
fn serve(mut stream: TcpStream, answer: impl Fn(&[String]) -> Option<String>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let number = |reader: &mut BufReader<TcpStream>| -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse().ok()
    };
    loop {
        let mut words = Vec::new();
        for _ in 0..number(&mut reader)? {
            let mut word = vec![0; number(&mut reader)? + 2];
            reader.read_exact(&mut word).ok()?;
            words.push(String::from_utf8(word).ok()?.trim_end().to_owned());
        }
        if let Some(reply) = answer(&words) {
            stream.write_all(reply.as_bytes()).ok()?;
        }
    }
}

#[tokio::test]
async fn a_forked_child_is_refused_and_frees_nothing() {
    let server = Server::start();
    let mut worker = Worker::start(&["fork", &server.url(), "n"]);
    for call in ["try_lock", "is_locked", "unlock"] {
        let line = worker.line().await;
        assert!(line.starts_with("Some(Misuse") && line.contains("fork"), "{call}: {line}");
    }
    // The child has exited, and the parent still holds the lock.
    let held: u64 = redis::cmd("HLEN").arg("n").query(&mut server.cli()).unwrap();
    assert_eq!(held, 1);
}

/// A minimal executor other than tokio.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
