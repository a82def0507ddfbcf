//! The way around Lua: a first acquire by RESTORE and a last release by MULTI. What it leaves in Redis is what the
//! scripts leave, and where it is not permitted the scripts do all of it.

#[path = "../../src/protocol/restore_payload.rs"]
pub mod restore_payload;

use crate::support::product::{Behind, GARNET, Imitation, KVROCKS, Product, Restored, Rule};
use crate::support::{CANARY, Server, eventually};
use proptest::test_runner::TestRunner;
use redisson_lock::Client;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

/// For any owner, what RESTORE makes is what HSET makes, to the byte.
#[test]
fn a_restored_record_is_what_a_written_one_is() {
    let server = Server::unrestricted();
    let cli = RefCell::new(server.cli());
    let check = |owner: &str| {
        let mut cli = cli.borrow_mut();
        let cli = &mut *cli;
        redis::cmd("FLUSHALL").exec(cli).unwrap();
        let payload = restore_payload::held_once(owner);
        redis::cmd("RESTORE").arg("restored").arg(30_000).arg(payload).exec(cli).unwrap();
        redis::cmd("HSET").arg("written").arg(owner).arg("1").exec(cli).unwrap();
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
    // Every length, those at which the form of a length changes among them.
    for length in (1..=300).chain([0x3fff, 0x4000, 70_000]) {
        check(&"x".repeat(length));
    }
    let owners = "[^\0]{1,300}";
    TestRunner::default()
        .run(&owners, |owner| {
            check(&owner);
            Ok(())
        })
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_nobody_contends_for_runs_no_script() {
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

/// Each in its own way is not permitted: what is held and told is the same, by scripts.
#[tokio::test(flavor = "multi_thread")]
async fn without_permission_the_scripts_do_it() {
    for refused in ["-restore", "-multi", "-exec", "-hdel", "-restore -multi"] {
        let server = Server::unrestricted();
        let user = format!("ACL SETUSER app on >canary-in-a-coal-mine ~* &* +@all {refused}");
        let words: Vec<&str> = user.split(' ').collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.cli()).unwrap();
        let client =
            Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
        let mut messages = Messages::of(&server);
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
        // What was refused once is not asked for again.
        let again = if refused.contains("restore") { server.calls("restore") } else { server.calls("multi") };
        assert_eq!(again, 0, "{refused}");
    }
}

/// A permission that is taken away in the middle, when it was there at connect: a transaction that is not one.
#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_withdrawn_costs_no_hold() {
    for refused in ["-multi", "-exec", "-restore", "-hdel", "-multi -hdel"] {
        let server = Server::unrestricted();
        let acl = |rules: &str| {
            let words: Vec<&str> = rules.split(' ').collect();
            redis::cmd("ACL").arg("SETUSER").arg("app").arg(&words).exec(&mut server.cli()).unwrap();
        };
        acl("on >canary-in-a-coal-mine ~* &* +@all");
        let client =
            Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
        let lock = client.lock("n");
        lock.lock().await.unwrap().unlock().await.unwrap();
        let held = lock.lock().await.unwrap();
        acl(refused);
        let mut messages = Messages::of(&server);
        held.unlock().await.unwrap();
        assert_eq!(record(&server), HashMap::new(), "{refused}");
        assert_eq!(messages.next(), "0", "{refused}");
        lock.lock().await.unwrap().unlock().await.unwrap();
        assert_eq!(messages.next(), "0", "{refused}");
    }
}

/// A lock whose lease ends while the server is down is free once that is back with its data, for each way to take one. A
/// Redis before 7.0 writes down how long a `RESTORE` makes a record live, and not until when.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_ends_while_the_server_is_down_has_ended_when_it_is_back() {
    tokio::join!(ends_while_down("REDISSON_LOCK_REDIS_6_2"), ends_while_down("REDISSON_LOCK_SERVER"));
}

async fn ends_while_down(server: &str) {
    let lease = Duration::from_secs(1);
    let mut server = Server::with_log_of(server);
    let client = Client::connect(server.url()).await.unwrap();
    let _first = client.lock("n").with_lease(lease).lock().await.unwrap();
    let _second = client.value_lock("v").with_lease(lease).lock().await.unwrap();
    // The server counted both leases from before this.
    let ended = tokio::time::Instant::now() + lease;
    // A record without an end shows that the data are read at all.
    redis::cmd("SET").arg("kept").arg(1).exec(&mut server.cli()).unwrap();
    let version = server.version();
    server.kill();
    tokio::time::sleep_until(ended).await;
    server.start_again();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut server.cli()).unwrap();
    assert_eq!(keys, ["kept"], "Redis {version}");
}

/// A client that may not ask for the server's version uses scripts only.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_servers_version_nothing_is_restored() {
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

async fn imitated(rules: &'static [Rule]) -> Imitation {
    Imitation::start(Product { name: "one rule", behind: Behind::OneServer, rules }).await
}

async fn lock_and_unlock(client: &Client, times: usize) {
    for _ in 0..times {
        client.lock("n").lock().await.unwrap().unlock().await.unwrap();
    }
}

/// Whatever of it the server does not bear: the connection is made anew without it, and so is each later one.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_dies_of_the_probe_is_made_anew_without_it() {
    let server = imitated(&[Rule::Restore(|_| Restored::Crashed)]).await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    // Each connection begins with a look at the server.
    assert_eq!((server.asked("info"), server.asked("restore")), (2, 1));
    lock_and_unlock(&client, 2).await;
    server.cut();
    eventually(|| server.asked("info") == 3).await;
    lock_and_unlock(&client, 2).await;
    assert_eq!((server.asked("info"), server.asked("restore")), (3, 1));
}

/// The first byte of the payload is read before its length there.
#[tokio::test(flavor = "multi_thread")]
async fn the_probe_has_a_payload_and_finds_out_what_can_be_restored() {
    let server = Imitation::start(GARNET).await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    lock_and_unlock(&client, 3).await;
    assert_eq!((server.asked("info"), server.asked("restore")), (1, 1), "a round trip for nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_is_not_tried_at_each_acquire() {
    let server = imitated(&[Rule::Restore(|_| Restored::Refused("-NOTIMPLEMENTED come back later"))]).await;
    let client = Client::connect(server.url("redis")).await.unwrap();
    lock_and_unlock(&client, 5).await;
    let tried = server.asked("restore");
    assert!(tried <= 2, "tried {tried} times");
}

/// In the words of any server.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_key_leaves_the_way_around_lua_open() {
    for server in [imitated(&[]).await, Imitation::start(KVROCKS).await] {
        let client = Client::connect(server.url("redis")).await.unwrap();
        let other = Client::connect(server.url("redis")).await.unwrap();
        let guard = other.lock("n").lock().await.unwrap();
        let before = server.asked("restore");
        let wait = Duration::from_millis(30);
        assert!(client.lock("n").try_lock_for(wait).await.unwrap().is_none());
        assert_eq!(server.asked("restore"), before + 1, "{}", server.product.name);
        guard.unlock().await.unwrap();
        let before = server.asked("restore");
        lock_and_unlock(&client, 3).await;
        assert_eq!(server.asked("restore"), before + 3, "{}", server.product.name);
    }
}

fn record(server: &Server) -> HashMap<String, u64> {
    redis::cmd("HGETALL").arg("n").query(&mut server.cli()).unwrap()
}

/// What is published on the lock's channel.
struct Messages(redis::Connection);

impl Messages {
    /// By hand, because `as_pubsub` would end the subscription when it is dropped.
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
