//! A Rust task and a Java thread on one key, for every version of Redisson that is tested.

use crate::support::worker::Worker;
use crate::support::{
    Java, Server, Stopwatch, WOKEN, WakeUps, clock::monotonic_ns, eventually, since, subscribers, versions,
};
use redisson_lock::{Client, Error, HoldState};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const ROUNDS: usize = 50;

#[tokio::test(flavor = "multi_thread")]
async fn rust_is_woken_by_javas_release() {
    let mut running = tokio::task::JoinSet::new();
    for version in versions() {
        running.spawn(async move {
            let server = Server::start();
            let java = Java::get(&version).client(&server, 0).await.thread("t");
            let client = Client::connect(server.url()).await.unwrap();
            let mut took = WakeUps::new();
            for _ in 0..ROUNDS {
                java.lock("plain", "n").await.unwrap();
                let lock = client.lock("n");
                let waiting = tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    let entered = monotonic_ns();
                    guard.unlock().await.unwrap();
                    entered
                });
                eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
                // The client has probed the holder after 10, 30, 70 and 150 ms; its next probe comes much later.
                tokio::time::sleep(Duration::from_millis(170)).await;
                let unlocked = java.unlock("plain", "n").await;
                took.add(unlocked.started_ns, waiting.await.unwrap());
                unlocked.unwrap();
            }
            took.assert_below(WOKEN, &format!("{version}: Java's unlock to Rust's lock"));
        });
    }
    running.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn java_is_woken_by_rusts_release() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        let mut took = WakeUps::new();
        for _ in 0..ROUNDS {
            let guard = client.lock("n").lock().await.unwrap();
            let waiting = java.lock("plain", "n");
            eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
            let unlocking = monotonic_ns();
            guard.unlock().await.unwrap();
            let entered = waiting.await;
            took.add(unlocking, entered.done_ns);
            entered.unwrap();
            java.unlock("plain", "n").await.unwrap();
        }
        took.assert_below(WOKEN, &format!("{version}: Rust's unlock to Java's lock"));
    }
}

/// One attempt at first, one after the subscription, and one after the release message.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_of_five_seconds_sends_few_scripts() {
    let mut running = tokio::task::JoinSet::new();
    for version in versions() {
        running.spawn(async move {
            let server = Server::start();
            let java = Java::get(&version).client(&server, 0).await.thread("t");
            let client = Client::connect(server.url()).await.unwrap();
            // The first use of a script takes two calls, on either side.
            java.lock("plain", "n").await.unwrap();
            java.unlock("plain", "n").await.unwrap();
            client.lock("n").lock().await.unwrap().unlock().await.unwrap();
            // With a fixed lease Java's hold needs no renewals, which would be counted, too.
            java.lock_for("plain", "n", Duration::from_secs(60)).await.unwrap();
            server.commandstats_reset();
            let lock = client.lock("n");
            let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
            tokio::time::sleep(Duration::from_secs(5)).await;
            java.unlock("plain", "n").await.unwrap();
            let guard = waiting.await.unwrap();
            let scripts = server.scripts() - 1;
            println!("{version}: {scripts} scripts");
            assert!(scripts <= 4, "{version}: {scripts} scripts in addition to Java's unlock");
            guard.unlock().await.unwrap();
        });
    }
    running.join_all().await;
}

#[tokio::test]
async fn hold_counts_agree() {
    for version in versions() {
        let server = Server::start();
        let java_client = Java::get(&version).client(&server, 0).await;
        let (java, other) = (java_client.thread("t"), java_client.thread("u"));
        let client = Client::connect(server.url()).await.unwrap();
        let lock = client.lock("n");

        for _ in 0..3 {
            java.lock("plain", "n").await.unwrap();
        }
        let owner = java.owner().await;
        let holder = lock.holder().await.unwrap().unwrap();
        assert_eq!((holder.owner(), holder.count()), (owner.as_str(), 3), "{version}");
        assert_eq!(holder.client_id(), java_client.uuid());
        assert_eq!(record(&server, "n"), [(owner, "3".to_owned())]);
        assert_eq!(lock.hold_count().await.unwrap(), 0);
        assert!(lock.is_locked().await.unwrap() && !lock.is_held().await.unwrap());
        assert!(lock.try_lock().await.unwrap().is_none());
        for _ in 0..3 {
            java.unlock("plain", "n").await.unwrap();
        }
        assert!(!lock.is_locked().await.unwrap() && lock.holder().await.unwrap().is_none());

        let guards = [lock.lock().await.unwrap(), lock.lock().await.unwrap(), lock.lock().await.unwrap()];
        let owner = guards[0].owner().to_owned();
        assert_eq!(record(&server, "n"), [(owner, "3".to_owned())], "{version}");
        assert_eq!((lock.hold_count().await.unwrap(), lock.is_held().await.unwrap()), (3, true));
        for (left, guard) in guards.into_iter().enumerate().map(|(n, guard)| (3 - n, guard)) {
            assert_eq!(lock.hold_count().await.unwrap(), left as u64);
            assert!(java.is_locked("plain", "n").await.unwrap(), "{version}");
            assert!(!java.try_lock("plain", "n").await.unwrap(), "{version}");
            let ttl = other.remain_ttl("plain", "n").await.unwrap();
            assert!(ttl.is_none_or(|ttl| (28_000..=30_000).contains(&ttl)), "{version}: {ttl:?}");
            guard.unlock().await.unwrap();
        }
        assert!(!java.is_locked("plain", "n").await.unwrap());
        assert!(java.try_lock("plain", "n").await.unwrap(), "{version}");
        java.unlock("plain", "n").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn javas_force_unlock_is_reported_to_the_holder() {
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let lease = Duration::from_secs(3);
        let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();

        let watch = Stopwatch::start();
        let guard = client.lock("n").lock().await.unwrap();
        java.force_unlock("plain", "n").await.unwrap();
        // The next renewal comes a third of the lease after the last, which was sent a lease before the deadline. Java may
        // have been so slow that there was a renewal before its call took effect.
        let next = guard.deadline() - lease + lease / 3;
        let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await;
        let (state, late) = (lost.expect("the loss is reported"), watch.since(next));
        assert!(matches!(state, HoldState::Lost(_)), "{version}: {state:?}");
        // A renewal after one that overlooks the loss comes a sixth of the lease later at the earliest.
        assert!(late < lease * 3 / 20, "{version}: reported {late:?} after the renewal was due");
        assert!(matches!(guard.unlock().await, Err(Error::NotHeld { holder: None, .. })), "{version}");

        // A hold with a fixed lease learns of the loss at its unlock, and the error names the current holder.
        let guard = client.lock("n").with_lease(Duration::from_secs(20)).lock().await.unwrap();
        java.force_unlock("plain", "n").await.unwrap();
        java.lock("plain", "n").await.unwrap();
        assert_eq!(guard.state(), HoldState::Held);
        match guard.unlock().await {
            Err(Error::Lost { holder: Some(holder), .. }) => assert_eq!(holder.owner(), java.owner().await),
            other => panic!("{version}: {other:?}"),
        }
        assert!(
            java.is_held("plain", "n").await.unwrap(),
            "{version}: the unlock of a lost hold freed Java's hold"
        );
        java.unlock("plain", "n").await.unwrap();
    }
}

#[tokio::test]
async fn rusts_force_unlock_frees_javas_hold() {
    for version in versions() {
        let server = Server::start();
        let java_client = Java::get(&version).client(&server, 0).await;
        let (java, other) = (java_client.thread("t"), java_client.thread("u"));
        let client = Client::connect(server.url()).await.unwrap();

        // The outcome of Java's unlock after another Java thread has forced the lock free.
        java.lock("plain", "n").await.unwrap();
        other.force_unlock("plain", "n").await.unwrap();
        let among_java = java.unlock("plain", "n").await.result.err().map(|e| e.class);
        // The outcome is the same after a force-unlock by the library.
        java.lock("plain", "n").await.unwrap();
        assert!(client.lock("n").force_unlock().await.unwrap(), "{version}");
        assert!(!client.lock("n").is_locked().await.unwrap());
        let after_ours = java.unlock("plain", "n").await.result.err().map(|e| e.class);
        assert_eq!(after_ours, among_java, "{version}");
        println!("{version}: an unlock after a force-unlock: {after_ours:?}");
        assert_eq!(after_ours.is_some(), since(&version, 3, 11), "{version}");
        assert!(!client.lock("n").force_unlock().await.unwrap());

        // The force-unlock wakes a waiting Java thread.
        let guard = client.lock("n").lock().await.unwrap();
        let waiting = java.lock("plain", "n");
        eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
        assert!(client.lock("n").force_unlock().await.unwrap());
        waiting.await.unwrap();
        java.unlock("plain", "n").await.unwrap();
        assert!(guard.unlock().await.unwrap_err().is_lost());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_keeps_a_hold_and_a_dead_process_frees_it() {
    let mut running = tokio::task::JoinSet::new();
    for version in versions() {
        running.spawn(async move {
            let lease = Duration::from_secs(3);
            let server = Server::start();
            let java = Java::get(&version).client(&server, 0).await.thread("t");
            let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
            let guard = client.lock("n").lock().await.unwrap();
            let mut cli = server.cli();
            let watch = Stopwatch::start();
            let waiting = java.try_lock_within("plain", "n", Duration::from_secs(20));
            while watch.real() < Duration::from_secs(20) {
                let ttl: u64 = redis::cmd("PTTL").arg("n").query(&mut cli).unwrap();
                let now = Instant::now();
                // A stall since the last renewal delayed the next one.
                let stalls = lease - watch.between(now - lease, now);
                let left = Duration::from_millis(ttl) + stalls;
                assert!(
                    left > lease / 2,
                    "{version}: {ttl} ms left after {watch:?}, with stalls of {stalls:?}"
                );
                assert_eq!(guard.state(), HoldState::Held);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(!waiting.await.unwrap(), "{version}: Java acquired a held lock");
            guard.unlock().await.unwrap();

            // The Rust process dies, and Java acquires the lock within the lease.
            let mut worker = Worker::start(&["hold", &server.url(), "n", "3000"]);
            assert!(worker.line().await.starts_with("held "));
            let waiting = java.lock("plain", "n");
            eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
            let killed = Stopwatch::start();
            worker.kill().await;
            waiting.await.unwrap();
            let took = killed.elapsed();
            assert!(took < lease + Duration::from_millis(500), "{version}: {took:?}");
            java.unlock("plain", "n").await.unwrap();
        });
    }
    running.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_jvm_frees_its_lock() {
    for version in versions() {
        let server = Server::start();
        let java = Java::spawn(&version);
        // The oldest versions have no setting for the watchdog, so they lock with a fixed lease.
        if !since(&version, 3, 10) {
            let thread = java.client(&server, 0).await.thread("t");
            thread.lock_for("plain", "n", Duration::from_secs(3)).await.unwrap();
        } else {
            java.client(&server, 3000).await.thread("t").lock("plain", "n").await.unwrap();
        }
        let client = Client::connect(server.url()).await.unwrap();
        let lock = client.lock("n");
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        eventually(|| subscribers(&server, "redisson_lock__channel:{n}") == 1).await;
        let killed = Stopwatch::start();
        java.kill();
        let guard = waiting.await.unwrap();
        let took = killed.elapsed();
        assert!(took < Duration::from_millis(3500), "{version}: {took:?}");
        guard.unlock().await.unwrap();
    }
}

/// One lock and unlock as the server sees it, without the differences between two holders.
#[derive(Debug, PartialEq)]
struct Trace {
    record: Vec<(String, String)>,
    encoding: String,
    ttl_is_lease: bool,
    /// The write commands, as (command, key or channel, rest), in MONITOR's spelling.
    written: BTreeSet<Vec<String>>,
    messages: Vec<(Vec<u8>, Vec<u8>)>,
}

#[tokio::test(flavor = "multi_thread")]
async fn names_records_channels_and_messages_equal_javas_byte_for_byte() {
    const NAMES: [&str; 10] = [
        "a",
        "a{b}c",
        "{x}",
        "a{",
        "}{",
        "two words",
        "\"quoted\" 'name'",
        "schloß 鎖 🔒",
        "line\nbreak",
        "redisson_lock__channel:{n}",
    ];
    for version in versions() {
        let server = Server::start();
        let java = Java::get(&version).client(&server, 0).await.thread("t");
        let client = Client::connect(server.url()).await.unwrap();
        for name in NAMES {
            let owner = java.owner().await;
            let recorder = TraceRecorder::start(&server);
            java.lock("plain", name).await.unwrap();
            let (record, encoding, ttl) = recorder.snapshot(name);
            java.unlock("plain", name).await.unwrap();
            let javas = recorder.finish(&owner, record, encoding, ttl);

            let recorder = TraceRecorder::start(&server);
            let guard = client.lock(name).lock().await.unwrap();
            let owner = guard.owner().to_owned();
            let (record, encoding, ttl) = recorder.snapshot(name);
            guard.unlock().await.unwrap();
            let ours = recorder.finish(&owner, record, encoding, ttl);

            assert_eq!(ours, javas, "{version}, {name:?}");
            assert_eq!(ours.record, [("OWNER".to_owned(), "1".to_owned())]);
            assert!(ours.ttl_is_lease && ours.messages.len() == 1, "{version}: {ours:?}");
        }
    }
}

/// Records the output of MONITOR and the messages of every channel.
struct TraceRecorder {
    cli: std::cell::RefCell<redis::Connection>,
    monitor: std::io::BufReader<std::net::TcpStream>,
    messages: redis::Connection,
}

impl TraceRecorder {
    fn start(server: &Server) -> Self {
        use std::io::{BufRead, Write};
        let mut monitor = std::net::TcpStream::connect(server.address()).unwrap();
        monitor.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        monitor.write_all(b"MONITOR\r\n").unwrap();
        let mut monitor = std::io::BufReader::new(monitor);
        let mut ok = String::new();
        monitor.read_line(&mut ok).unwrap();
        assert_eq!(ok, "+OK\r\n");
        // Sent by hand, because dropping `as_pubsub` would end the subscription.
        let mut messages = server.cli();
        messages.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        messages.send_packed_command(&redis::cmd("PSUBSCRIBE").arg("*").get_packed_command()).unwrap();
        messages.recv_response().unwrap();
        Self { cli: server.cli().into(), monitor, messages }
    }

    fn snapshot(&self, name: &str) -> (Vec<(String, String)>, String, i64) {
        let cli = &mut *self.cli.borrow_mut();
        let record = redis::cmd("HGETALL").arg(name).query(cli).unwrap();
        let encoding = redis::cmd("OBJECT").arg("ENCODING").arg(name).query(cli).unwrap();
        let ttl = redis::cmd("PTTL").arg(name).query(cli).unwrap();
        (record, encoding, ttl)
    }

    fn finish(mut self, owner: &str, record: Vec<(String, String)>, encoding: String, ttl: i64) -> Trace {
        use std::io::BufRead;
        const END: &str = "end of the trace";
        redis::cmd("ECHO").arg(END).exec(self.cli.get_mut()).unwrap();
        redis::cmd("PUBLISH").arg(END).arg("").exec(self.cli.get_mut()).unwrap();
        let mut written = BTreeSet::new();
        loop {
            let mut line = String::new();
            self.monitor.read_line(&mut line).unwrap();
            if line.contains(END) {
                break;
            }
            let Some((_, command)) = line.trim_end().split_once("] ") else { continue };
            let words: Vec<String> = words(command).iter().map(|word| word.replace(owner, "OWNER")).collect();
            // Several commands can write a hash, and a script may delete a record by its key or by its only field.
            // The unlock latch is Redisson's own mechanism for its retries.
            let verb = match words[0].to_lowercase().as_str() {
                "restore" => {
                    written.insert(["hincrby", &words[1], "OWNER", "1"].map(str::to_owned).to_vec());
                    written.insert(["pexpire", &words[1], &words[2]].map(str::to_owned).to_vec());
                    continue;
                }
                "hdel" => {
                    written.insert(["del", &words[1]].map(str::to_owned).to_vec());
                    continue;
                }
                "hset" => "hincrby".to_owned(),
                verb @ ("hincrby" | "pexpire" | "del" | "publish") => verb.to_owned(),
                _ => continue,
            };
            // Redisson decrements to zero before it deletes.
            let to_zero = verb == "hincrby" && words[3] == "-1";
            if !words[1].contains("redisson_unlock_latch") && !to_zero {
                written.insert([std::slice::from_ref(&verb), &words[1..]].concat());
            }
        }
        let mut messages = Vec::new();
        loop {
            let redis::Value::Array(items) = self.messages.recv_response().unwrap() else {
                panic!("no message")
            };
            let [_, _, redis::Value::BulkString(channel), redis::Value::BulkString(payload)] =
                items.as_slice()
            else {
                panic!("{items:?}")
            };
            if channel == END.as_bytes() {
                break;
            }
            messages.push((channel.clone(), payload.clone()));
        }
        let record =
            record.into_iter().map(|(field, value)| (field.replace(owner, "OWNER"), value)).collect();
        Trace { record, encoding, ttl_is_lease: (29_000..=30_000).contains(&ttl), written, messages }
    }
}

/// The words of a MONITOR line, still escaped. Only quotes are unescaped, because Valkey 8.1 does not escape them.
fn words(line: &str) -> Vec<String> {
    let inside = line.strip_prefix('"').and_then(|line| line.strip_suffix('"')).expect("words in quotes");
    inside.split("\" \"").map(|word| word.replace("\\\"", "\"")).collect()
}

fn record(server: &Server, name: &str) -> Vec<(String, String)> {
    redis::cmd("HGETALL").arg(name).query(&mut server.cli()).unwrap()
}
