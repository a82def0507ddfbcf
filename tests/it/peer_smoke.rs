//! The Java peer and the servers work. Every other test builds on that.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::support::java::{JavaError, Pending};
use crate::support::{Java, Server, clock, since, versions};

/// Base64 pads this name, and the shell, the protocol and Redis could each damage it.
const NAME: &str = "ordérs {a} \"b\"";

#[tokio::test]
async fn a_java_lock_matches_its_record() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version);
        let client = java.client(&server, 0).await;
        let thread = client.thread("t1");

        thread.lock("plain", NAME).await.unwrap();
        thread.lock("plain", NAME).await.unwrap();
        assert_eq!(thread.hold_count("plain", NAME).await.unwrap(), 2, "{version}");
        let record: HashMap<String, String> =
            redis::cmd("HGETALL").arg(NAME).query(&mut server.cli()).unwrap();
        let expected = HashMap::from([(thread.owner().await, "2".to_owned())]);
        assert_eq!(record, expected, "{version}");
        let ttl = thread.remain_ttl("plain", NAME).await.unwrap();
        assert!(ttl.is_none_or(|ttl| (29_000..=30_000).contains(&ttl)), "{version}: {ttl:?}");

        let other = client.thread("t2");
        assert!(other.is_locked("plain", NAME).await.unwrap(), "{version}");
        assert!(!other.is_held("plain", NAME).await.unwrap(), "{version}");
        assert!(!other.try_lock("plain", NAME).await.unwrap(), "{version}");
        let error = other.unlock("plain", NAME).await.unwrap_err();
        assert_eq!(error.class, "IllegalMonitorStateException", "{version}: {error}");

        thread.unlock("plain", NAME).await.unwrap();
        thread.unlock("plain", NAME).await.unwrap();
        assert!(!thread.is_locked("plain", NAME).await.unwrap(), "{version}");
        assert!(server.scripts() > 0, "{version}");
        server.commandstats_reset();
        assert_eq!(server.scripts(), 0, "{version}");
    }
}

#[tokio::test]
async fn a_release_wakes_a_waiter_and_times_are_comparable() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version);
        let client = java.client(&server, 0).await;
        let (first, second) = (client.thread("t1"), client.thread("t2"));

        let before = clock::monotonic_ns();
        first.lock("plain", "n").await.unwrap();
        let mut waiting = second.lock_for("plain", "n", Duration::from_secs(5));
        let started = waiting.started().await;
        let unlocked = first.unlock("plain", "n").await;
        let entered = waiting.await;
        assert_eq!(entered.started_ns, started, "{version}");
        assert!(before < started && unlocked.started_ns < entered.done_ns, "{version}");
        assert!(entered.done_ns < clock::monotonic_ns(), "{version}");
        entered.unwrap();
        second.force_unlock("plain", "n").await.unwrap();
    }
}

#[tokio::test]
async fn loops_exclude_each_other() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version);
        let (one, two) = (java.client(&server, 0).await, java.client(&server, 0).await);
        let loops = [one.thread("a"), one.thread("b"), two.thread("a")]
            .map(|thread| thread.loop_("plain", "n", 20, "counter", Duration::from_micros(200)));
        let mut holds = Vec::new();
        for running in loops {
            holds.extend(running.await.unwrap());
        }
        holds.sort_unstable();
        assert_eq!(holds.len(), 60, "{version}");
        assert!(holds.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{version}: {holds:?}");
        let counter: u32 = redis::cmd("GET").arg("counter").query(&mut server.cli()).unwrap();
        assert_eq!(counter, 60, "{version}");
        one.shutdown().await;
    }
}

#[tokio::test]
async fn readers_writers_and_permits_respect_their_limits() {
    const HOLD: Duration = Duration::from_micros(200);
    for version in versions() {
        let server = Server::start();
        redis::cmd("SET").arg("sem").arg(2).exec(&mut server.cli()).unwrap();
        redis::cmd("SET").arg("permits").arg(2).exec(&mut server.cli()).unwrap();
        let java = Java::get(&version);
        // Redisson itself may lose a wake-up, which costs it a lease. 3.3.2 has no setting for the lease.
        let lease = if since(&version, 3, 10) { 2000 } else { 0 };
        let (one, two) = (java.client(&server, lease).await, java.client(&server, lease).await);
        let start = |kind: &str, name: &str, thread: &str| {
            let (thread, counter) = (format!("{name}-{thread}"), format!("{name} counter"));
            [&one, &two].map(|client| client.thread(&thread).loop_(kind, name, 10, &counter, HOLD))
        };
        let (readers, writers) = (start("read", "rw", "r"), start("write", "rw", "w"));
        let permits = ["a", "b"].map(|thread| start("permitsemaphore", "permits", thread));
        let counted = ["a", "b"].map(|thread| start("semaphore", "sem", thread));

        let (readers, writers) = (all(readers).await, all(writers).await);
        assert_eq!((readers.len(), writers.len()), (20, 20), "{version}");
        assert!(most_at_once(&writers) == 1, "{version}");
        for (start, end) in readers {
            assert!(writers.iter().all(|writer| writer.1 <= start || end <= writer.0), "{version}");
        }
        let counter: u32 = redis::cmd("GET").arg("rw counter").query(&mut server.cli()).unwrap();
        assert_eq!(counter, 20, "{version}");
        for semaphore in [permits, counted] {
            let [one, two] = semaphore;
            let holds = all(one.into_iter().chain(two)).await;
            assert_eq!(holds.len(), 40, "{version}");
            assert!(most_at_once(&holds) <= 2, "{version}");
        }
    }
}

async fn all(loops: impl IntoIterator<Item = Pending<Vec<(u64, u64)>>>) -> Vec<(u64, u64)> {
    let mut holds = Vec::new();
    for running in loops {
        holds.extend(running.await.unwrap());
    }
    holds
}

/// The largest number of these holds at any one time.
fn most_at_once(holds: &[(u64, u64)]) -> usize {
    let at = |time: u64| holds.iter().filter(|hold| hold.0 <= time && time < hold.1).count();
    holds.iter().map(|hold| at(hold.0)).max().unwrap_or_default()
}

#[tokio::test]
async fn a_kind_that_a_version_lacks_is_an_error() {
    let kinds = [
        ("fair", (0, 0)),
        ("read", (0, 0)),
        ("write", (0, 0)),
        ("spin", (3, 15)),
        ("fenced", (3, 19)),
        ("nonreentrant", (4, 4)),
        ("nonreentrantfair", (4, 4)),
    ];
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version);
        let thread = java.client(&server, 0).await.thread("t1");
        for (kind, (major, minor)) in kinds {
            match thread.lock(kind, kind).await.result {
                Ok(()) => thread.unlock(kind, kind).await.unwrap(),
                Err(error) => {
                    assert_eq!(error.class, "UnsupportedOperationException", "{version}: {error}");
                    assert!(!since(&version, major, minor), "{version} has a {kind} lock");
                }
            }
        }
        let error = thread.call("lock nonsense bg==").await.unwrap_err();
        assert_eq!(error.message, "no such kind: nonsense", "{version}");
    }
}

#[tokio::test]
async fn a_killed_jvm_fails_its_pending_requests() {
    let server = Server::start();
    let version = versions().pop().expect("there is a version to test");
    let java = Java::spawn(&version);
    let client = java.client(&server, 0).await;
    client.thread("t1").lock("plain", "n").await.unwrap();
    let mut waiting = client.thread("t2").lock("plain", "n");
    waiting.started().await;
    java.kill();
    assert_eq!(waiting.await.unwrap_err().class, JavaError::DIED);
    assert_eq!(client.thread("t1").unlock("plain", "n").await.unwrap_err().class, JavaError::DIED);
    // The hold outlives the JVM.
    assert!(redis::cmd("EXISTS").arg("n").query::<bool>(&mut server.cli()).unwrap());
}

#[test]
fn a_server_can_be_stopped_continued_killed_and_restarted_empty() {
    let mut server = Server::with_args(&["--maxmemory", "64mb"]);
    let mut connection = server.cli();
    redis::cmd("SET").arg("k").arg("v").exec(&mut connection).unwrap();

    server.stop_signal();
    connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    redis::cmd("PING").exec(&mut connection).unwrap_err();
    server.cont();
    assert!(redis::cmd("EXISTS").arg("k").query::<bool>(&mut server.cli()).unwrap());

    let pid = server.pid();
    server.stop_signal();
    server.kill();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    server.restart();
    assert_ne!(server.pid(), pid);
    assert!(!redis::cmd("EXISTS").arg("k").query::<bool>(&mut server.cli()).unwrap());
    redis::cmd("DEBUG").arg("SLEEP").arg(0).exec(&mut server.cli()).unwrap();
}

/// Clients of a killed server connect again and again, and must not reach the server of another test.
#[test]
fn the_port_of_a_killed_server_stays_reserved() {
    let mut server = Server::start();
    let bind = |port| {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap().bind(&address.into())
    };
    server.kill();
    assert_eq!(bind(server.port()).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(TcpStream::connect(server.address()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    server.restart();
    redis::cmd("PING").exec(&mut server.cli()).unwrap();
}
