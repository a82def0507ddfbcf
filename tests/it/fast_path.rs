//! The fast path: a first acquire by RESTORE and a last release by MULTI, without a script. It leaves the same data in
//! Redis as the scripts, and where it is not permitted the scripts do all of the work.

#[path = "../../src/protocol/restore_payload.rs"]
pub mod restore_payload;

use crate::support::kind::is_idle;
use crate::support::product::{Behind, GARNET, KVROCKS, Product, ProductServer, Restored, Rule};
use crate::support::proxy::Proxy;
use crate::support::{CANARY, Server, eventually};
use proptest::test_runner::TestRunner;
use redisson_lock::Client;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// For any owner id, RESTORE makes the same record as HSET, to the byte.
#[test]
fn a_restored_record_equals_a_written_one() {
    let server = Server::unrestricted();
    let cli = RefCell::new(server.cli());
    let check = |mode: Option<&str>, owner: &str| {
        let mut cli = cli.borrow_mut();
        let cli = &mut *cli;
        redis::cmd("FLUSHALL").exec(cli).unwrap();
        let payload = restore_payload::held_once(mode, owner);
        redis::cmd("RESTORE").arg("restored").arg(30_000).arg(payload).exec(cli).unwrap();
        let mode_field = mode.map(|mode| vec!["mode", mode]);
        redis::cmd("HSET").arg("written").arg(mode_field).arg(owner).arg("1").exec(cli).unwrap();
        let mut both = |command: &[&str]| {
            ["restored", "written"].map(|key| {
                let mut request = redis::cmd(command[0]);
                command[1..].iter().for_each(|word| _ = request.arg(word));
                request.arg(key).query::<redis::Value>(cli).unwrap()
            })
        };
        for command in [["DUMP"].as_slice(), &["OBJECT", "ENCODING"], &["HGETALL"], &["TYPE"]] {
            let [restored, written] = both(command);
            assert_eq!(restored, written, "{command:?} of {} bytes", owner.len());
        }
        let left: u64 = redis::cmd("PTTL").arg("restored").query(cli).unwrap();
        assert!((29_000..=30_000).contains(&left), "{left}");
        let count: u64 = redis::cmd("HINCRBY").arg("restored").arg(owner).arg(1).query(cli).unwrap();
        assert_eq!(count, 2);
    };
    // Every length up to 300, and the lengths at which the encoding of a length changes.
    for length in (1..=300).chain([0x3fff, 0x4000, 70_000]) {
        [None, Some("write")].into_iter().for_each(|mode| check(mode, &"x".repeat(length)));
    }
    let owners = "[^\0]{1,300}";
    TestRunner::default()
        .run(&owners, |owner| {
            [None, Some("write")].into_iter().for_each(|mode| check(mode, &owner));
            Ok(())
        })
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncontended_hold_runs_no_script() {
    let server = Server::unrestricted();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("n");
    server.commandstats_reset();
    for _ in 0..3 {
        let guard = lock.lock().await.unwrap();
        assert_eq!(record(&server), HashMap::from([(guard.owner().to_owned(), 1)]));
        guard.unlock().await.unwrap();
        assert_eq!(record(&server), HashMap::new());
    }
    let calls = ["restore", "multi", "hdel", "publish", "exec"].map(|command| server.calls(command));
    assert_eq!((server.scripts(), calls), (0, [3; 5]));
}

/// The release of a writer needs a script, because the writer may also read.
#[tokio::test(flavor = "multi_thread")]
async fn an_uncontended_acquire_of_a_writer_runs_no_script() {
    let server = Server::unrestricted();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.read_write_lock("n").write().clone();
    server.commandstats_reset();
    let guard = lock.lock().await.unwrap();
    assert_eq!((server.scripts(), server.calls("restore")), (0, 1));
    let fields: HashMap<String, String> = redis::cmd("HGETALL").arg("n").query(&mut server.cli()).unwrap();
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(fields, HashMap::from([field("mode", "write"), field(guard.owner(), "1")]));
    guard.unlock().await.unwrap();
    assert_eq!(record(&server), HashMap::new());
}

/// Each user lacks another permission. The scripts must leave the same records and publish the same messages.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_replace_commands_without_permission() {
    for refused in ["-restore", "-multi", "-exec", "-hdel", "-restore -multi"] {
        let server = Server::unrestricted();
        set_user(&server, &format!("on >canary-in-a-coal-mine ~* &* +@all {refused}"));
        let client =
            Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
        let mut messages = ChannelMessages::of(&server);
        let lock = client.lock("n");
        for round in 0..3 {
            if round == 1 {
                server.commandstats_reset();
            }
            let guard = lock.lock().await.unwrap();
            assert_eq!(record(&server), HashMap::from([(guard.owner().to_owned(), 1)]), "{refused}");
            guard.unlock().await.unwrap();
            assert_eq!(record(&server), HashMap::new(), "{refused}");
            assert_eq!(messages.next(), "0", "{refused}");
        }
        // A command that was refused once is not tried again.
        let again = if refused.contains("restore") { server.calls("restore") } else { server.calls("multi") };
        assert_eq!(again, 0, "{refused}");
    }
}

/// The permission was there at connect, and is withdrawn while the lock is held. A transaction may lack its beginning
/// or its end then.
#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_permission_costs_no_hold() {
    for refused in ["-multi", "-exec", "-restore", "-hdel", "-multi -hdel"] {
        let server = Server::unrestricted();
        set_user(&server, "on >canary-in-a-coal-mine ~* &* +@all");
        let client =
            Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
        let lock = client.lock("n");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let held = lock.lock().await.unwrap();
        set_user(&server, refused);
        let mut messages = ChannelMessages::of(&server);
        held.unlock().await.unwrap();
        assert_eq!(record(&server), HashMap::new(), "{refused}");
        assert_eq!(messages.next(), "0", "{refused}");
        lock.lock().await.unwrap().unlock().await.unwrap();
        assert_eq!(messages.next(), "0", "{refused}");
    }
}

/// The server checks permissions at `EXEC`, too. If one is withdrawn within the transaction, the server runs the other command.
#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_withdrawn_within_a_release_costs_no_hold() {
    for withdrawn in ["-publish", "-hdel"] {
        let server = Server::unrestricted();
        set_user(&server, "on >canary-in-a-coal-mine ~* &* +@all");
        let proxy = Proxy::start(server.port()).await;
        let url = format!("redis://app:canary-in-a-coal-mine@127.0.0.1:{}", proxy.port());
        let client = Client::connect(url).await.unwrap();
        let lock = client.lock("n");
        let held = lock.lock().await.unwrap();
        proxy.shut_gate_after(0, |words| words[0].eq_ignore_ascii_case(b"exec"));
        let released = tokio::spawn(held.unlock());
        proxy.stopped().await;
        set_user(&server, withdrawn);
        proxy.open_gate();
        released.await.unwrap().unwrap();
        assert_eq!(record(&server), HashMap::new(), "{withdrawn}");
        assert_eq!(client.stats().lost.total(), 0, "{withdrawn}");
    }
}

/// A lease that ends while the server is down must have ended when the server is back with its data, for each way to
/// acquire a lock. Before 7.0, Redis logs the remaining time of a record that RESTORE makes, and not the time of its
/// end.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_while_the_server_is_down() {
    tokio::join!(ends_while_down("REDISSON_LOCK_REDIS_6_2"), ends_while_down("REDISSON_LOCK_SERVER"));
}

async fn ends_while_down(server: &str) {
    let lease = Duration::from_secs(1);
    let mut server = Server::with_log_of(server);
    let client = Client::connect(server.url()).await.unwrap();
    let _first = client.lock("n").with_lease(lease).lock().await.unwrap();
    let _second = client.value_lock("v").with_lease(lease).lock().await.unwrap();
    let _third = client.read_write_lock("w").write().with_lease(lease).lock().await.unwrap();
    // The server counts these leases from before this.
    let ended = tokio::time::Instant::now() + lease;
    // A record without an end shows that the data is read at all.
    redis::cmd("SET").arg("kept").arg(1).exec(&mut server.cli()).unwrap();
    let version = server.version();
    server.kill();
    tokio::time::sleep_until(ended).await;
    server.start_again();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.cli()).unwrap();
    assert_eq!(keys, ["kept"], "Redis {version}");
}

/// A client that may not query the server's version does not use RESTORE.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_unknown_version_gets_no_restore() {
    let server = Server::unrestricted();
    redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", &format!(">{CANARY}"), "~*", "&*", "+@all", "-info"])
        .exec(&mut server.cli())
        .unwrap();
    let client = Client::connect(format!("redis://app:{CANARY}@{}", server.address())).await.unwrap();
    server.commandstats_reset();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!((server.calls("restore"), server.calls("multi")), (0, 1));
}

async fn imitated(rules: &'static [Rule]) -> ProductServer {
    ProductServer::start(Product { name: "one rule", behind: Behind::OneServer, rules }).await
}

async fn lock_and_unlock(client: &Client, times: usize) {
    for _ in 0..times {
        client.lock("n").lock().await.unwrap().unlock().await.unwrap();
    }
}

/// If the probe breaks two connections in a row, the client reconnects without it, then and each later time.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_probe_breaks_is_reopened_without_it() {
    let server = imitated(&[Rule::Restore(|_| Restored::Crashed)]).await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    // Each connection begins with an INFO.
    assert_eq!((server.asked("info"), server.asked("restore")), (3, 2));
    lock_and_unlock(&client, 2).await;
    server.cut();
    eventually(|| server.asked("info") == 4).await;
    lock_and_unlock(&client, 2).await;
    assert_eq!((server.asked("info"), server.asked("restore")), (4, 2));
}

/// A connection may end during the probe for another reason.
#[tokio::test(flavor = "multi_thread")]
async fn one_connection_that_ends_in_the_probe_does_not_disable_the_fast_path() {
    static PROBED: AtomicBool = AtomicBool::new(false);
    let server = imitated(&[Rule::Restore(|_| match PROBED.swap(true, Ordering::SeqCst) {
        true => Restored::AsRedis,
        false => Restored::Crashed,
    })])
    .await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    assert_eq!((server.asked("info"), server.asked("restore")), (2, 2));
    lock_and_unlock(&client, 2).await;
    assert_eq!(server.asked("restore"), 4);
}

/// This server reads the first byte of a payload before it looks at the length.
#[tokio::test(flavor = "multi_thread")]
async fn the_probe_finds_out_which_types_can_be_restored() {
    let server = ProductServer::start(GARNET).await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    lock_and_unlock(&client, 3).await;
    assert_eq!((server.asked("info"), server.asked("restore")), (1, 1), "more requests than the probe");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permanently_refused_restore_is_not_retried() {
    let server = imitated(&[Rule::Restore(|_| Restored::Refused("-NOTIMPLEMENTED come back later"))]).await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    lock_and_unlock(&client, 5).await;
    let tried = server.asked("restore");
    assert!(tried <= 2, "tried {tried} times");
}

/// The error for a busy key differs between servers.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_key_does_not_disable_the_fast_path() {
    for server in [imitated(&[]).await, ProductServer::start(KVROCKS).await] {
        let client = Client::connect(server.url("redis")).await.unwrap();
        let other = Client::connect(server.url("redis")).await.unwrap();
        let guard = other.lock("n").lock().await.unwrap();
        let (restores, subscriptions) = (server.asked("restore"), server.asked("subscribe"));
        let lock = client.lock("n");
        let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
        eventually(|| server.asked("subscribe") > subscriptions).await;
        assert_eq!(server.asked("restore"), restores + 1, "{}", server.product.name);
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        guard.unlock().await.unwrap();
        // Until the task of the wait that has ended is gone, it takes the lock for busy, and sends the script.
        eventually(|| is_idle(&client)).await;
        let before = server.asked("restore");
        lock_and_unlock(&client, 3).await;
        assert_eq!(server.asked("restore"), before + 3, "{}", server.product.name);
    }
}

/// Changes the user `app` by these rules.
fn set_user(server: &Server, rules: &str) {
    let rules: Vec<&str> = rules.split(' ').collect();
    redis::cmd("ACL").arg("SETUSER").arg("app").arg(&rules).exec(&mut server.cli()).unwrap();
}

fn record(server: &Server) -> HashMap<String, u64> {
    redis::cmd("HGETALL").arg("n").query(&mut server.cli()).unwrap()
}

/// The messages on the lock's channel.
struct ChannelMessages(redis::Connection);

impl ChannelMessages {
    /// Subscribes by hand, because `as_pubsub` would end the subscription when it is dropped.
    fn of(server: &Server) -> Self {
        let mut connection = server.cli();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut subscribe = redis::cmd("SUBSCRIBE");
        subscribe.arg("redisson_lock__channel:{n}");
        connection.send_packed_command(&subscribe.get_packed_command()).unwrap();
        connection.recv_response().unwrap();
        Self(connection)
    }

    fn next(&mut self) -> String {
        let (_, _, text): (String, String, String) =
            redis::from_redis_value(self.0.recv_response().unwrap()).unwrap();
        text
    }
}
