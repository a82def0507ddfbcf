//! The operator's view: log output, and the smallest set of permissions.

use crate::support::worker::Worker;
use crate::support::{Server, WarningLog, eventually, subscribers};
use redisson_lock::{Client, HoldState, LossReason};
use std::time::Duration;

const CHANNEL: &str = "redisson_lock__channel:{n}";

/// The commands that docs/deployment.md names.
const GRANTED: &str = "+eval +evalsha +exists +hexists +hset +hget +hscan +hdel +pexpire +pttl +del +publish \
                       +subscribe +unsubscribe +pubsub|numsub +ping +select";

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_permissions_are_sufficient_and_necessary() {
    let server = Server::start();
    let documented = include_str!("../../docs/deployment.md").replace(['\n', '`'], " ");
    let words: Vec<&str> = documented.split_whitespace().collect();
    for command in GRANTED.split_whitespace() {
        assert!(words.contains(&command), "docs/deployment.md does not name {command}");
    }
    use_all(&server, GRANTED).await.unwrap();
    for spared in GRANTED.split_whitespace() {
        // Without HDEL there is no hand-off, and without NUMSUB a shorter one. Without UNSUBSCRIBE or PING,
        // subscriptions are made anew again and again.
        if !["+hdel", "+pubsub|numsub", "+unsubscribe", "+ping"].contains(&spared) {
            let fewer = GRANTED.replace(spared, "");
            assert!(use_all(&server, &fewer).await.is_err(), "{spared} is not needed");
        }
    }
}

/// A setting that would break locks later is reported when a client connects.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_break_locks_are_reported_at_connect() {
    let server = Server::start();
    let run = |command: &str| {
        let words: Vec<&str> = command.split_whitespace().collect();
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.cli()).unwrap();
    };
    let user = |rules: &str| run(&format!("ACL SETUSER app reset on >canary-in-a-coal-mine {rules}"));
    let connect = async || {
        let url = format!("redis://app:canary-in-a-coal-mine@{}/", server.address());
        let mut worker = Worker::start(&["connect", &url]);
        let mut lines = vec![worker.line().await];
        while lines.last().is_some_and(|line| line.contains("WARN")) {
            lines.push(worker.line().await);
        }
        (lines.pop().unwrap(), lines)
    };

    user("+@all ~* &*");
    assert_eq!(connect().await, ("connected".into(), vec![]));
    // The user may not use the key that is tried. That says nothing about the keys that it may use.
    user("+@all ~mine &*");
    assert_eq!(connect().await, ("connected".into(), vec![]));

    user("+@all -pexpire -publish ~mine &*");
    let (outcome, warnings) = connect().await;
    assert_eq!((outcome.as_str(), warnings.len()), ("connected", 1), "{warnings:?}");
    assert!(warnings[0].contains("pexpire publish"), "{warnings:?}");
    user("+@all ~* resetchannels");
    let (outcome, warnings) = connect().await;
    assert_eq!((outcome.as_str(), warnings.len()), ("connected", 1), "{warnings:?}");
    assert!(warnings[0].contains("publish"), "{warnings:?}");
    for command in ["eval", "evalsha"] {
        user(&format!("+@all -{command} ~* &*"));
        run("SCRIPT FLUSH");
        let (outcome, _) = connect().await;
        assert!(outcome.contains("NOPERM") && outcome.contains(command), "{outcome}");
    }

    user("+@all ~* &*");
    server.configure("maxmemory-policy", "allkeys-lru");
    let (outcome, warnings) = connect().await;
    assert_eq!((outcome.as_str(), warnings.len()), ("connected", 1), "{warnings:?}");
    assert!(warnings[0].contains("allkeys-lru"), "{warnings:?}");
    server.configure("maxmemory-policy", "noeviction");
    let master = Server::start();
    run(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    let (outcome, warnings) = connect().await;
    assert!(outcome.contains("READONLY") && warnings.is_empty(), "{outcome} {warnings:?}");
}

/// Makes every call that a user of the lock makes, as a user with these permissions.
async fn use_all(server: &Server, granted: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut cli = server.cli();
    let mut user = redis::cmd("ACL");
    user.arg("SETUSER")
        .arg("app")
        .arg("reset")
        .arg("resetchannels")
        .arg("on")
        .arg(">canary-in-a-coal-mine")
        .arg("~n")
        .arg(format!("&{CHANNEL}"));
    for rule in granted.split_whitespace() {
        user.arg(rule);
    }
    user.exec(&mut cli)?;
    redis::cmd("DEL").arg("n").exec(&mut cli)?;
    let url = format!("redis://app:canary-in-a-coal-mine@{}/0", server.address());
    // Database 1 needs SELECT.
    let elsewhere = Client::connect(url.replace("/0", "/1")).await?;
    elsewhere.close().await;
    let lease = Duration::from_millis(1500);
    let client = Client::builder()
        .watchdog_timeout(lease)
        .response_timeout(Duration::from_millis(500))
        .connect(&url)
        .await?;
    let lock = client.lock("n");
    let guard = lock.lock().await?;
    let again = lock.lock().await?;
    lock.is_locked().await?;
    lock.hold_count().await?;
    lock.remaining_lease().await?;
    lock.holder().await?;
    // A renewal moves the deadline.
    let deadline = guard.deadline();
    tokio::time::timeout(lease, async {
        while guard.deadline() <= deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await?;
    again.unlock().await?;
    // Two waiters behind another client: a message, then a hand-off.
    let other = Client::connect(&url).await?;
    guard.unlock().await?;
    let guard = other.lock("n").lock().await?;
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let lock = client.lock("n");
            tokio::spawn(async move {
                match lock.try_lock_for(Duration::from_secs(2)).await? {
                    Some(guard) => guard.unlock().await.map(|()| true),
                    None => Ok(false),
                }
            })
        })
        .collect();
    let subscribed =
        tokio::time::timeout(Duration::from_secs(1), eventually(|| subscribers(server, CHANNEL) == 1));
    subscribed.await?;
    guard.unlock().await?;
    for waiter in waiters {
        if !waiter.await?? {
            return Err("a waiter did not get the lock".into());
        }
    }
    let guard = lock.lock().await?;
    lock.force_unlock().await?;
    drop(guard);
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn a_thousand_lost_holds_are_one_warning() {
    const LEASE: Duration = Duration::from_millis(1500);
    let server = Server::start();
    let log = WarningLog::start();
    let client = Client::builder().watchdog_timeout(LEASE).connect(server.url()).await.unwrap();
    let fixed = client.lock("fixed").with_lease(LEASE).lock().await.unwrap();
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(client.lock(format!("n{number}")).lock().await.unwrap());
    }
    // The runtime has one thread, so nothing is renewed.
    std::thread::sleep(LEASE);
    for guard in &guards {
        assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Expired));
    }
    assert_eq!(fixed.lost().await, HoldState::Lost(LossReason::Expired));
    eventually(|| !log.lines("holds lost").is_empty()).await;
    client.close().await;
    let lines = log.lines(" lost");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let expected = "holds lost holds=1000 reason=the lease expired without a renewal lock=\"n";
    assert!(lines[0].contains(expected), "{lines:?}");
}

#[tokio::test]
async fn a_restart_is_logged_as_a_changed_run_id() {
    let mut server = Server::start();
    let log = WarningLog::start();
    let client = Client::connect(server.url()).await.unwrap();
    server.restart();
    client.lock("n").lock().await.unwrap().unlock().await.unwrap();
    eventually(|| !log.lines("the server's run id changed: it restarted").is_empty()).await;
}

/// Runs in a process of its own, because a tracing subscriber is global.
#[tokio::test]
async fn traces_report_events_without_secrets() {
    let server = Server::with_args(&["--requirepass", "canary-in-a-coal-mine"]);
    let url = format!("redis://:canary-in-a-coal-mine@{}", server.address());
    let mut cli = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    let mut worker = Worker::start(&["trace", &url, "line\nbreak"]);
    let mut text = String::new();
    let owner = worker.until("renewed once as ", &mut text).await;
    redis::cmd("CLIENT")
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes")
        .exec(&mut cli)
        .unwrap();
    redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").exec(&mut cli).unwrap();
    worker.until("reconnected", &mut text).await;
    worker.go().await;
    worker.until("locked again", &mut text).await;
    redis::cmd("DEL").arg("line\nbreak").exec(&mut cli).unwrap();
    worker.until("lost and over", &mut text).await;
    for expected in [
        "acquire{lock=\"line\\nbreak\"",
        "attempts=1",
        "waited=",
        "release{lock=\"line\\nbreak\"",
        "renew{holds=1}",
        "connection lost",
        "subscriptions lost",
        "hold lost",
        owner.as_str(),
    ] {
        assert!(text.contains(expected), "no {expected:?} in\n{text}");
    }
    assert!(!text.contains("canary-in-a-coal-mine"), "a password was logged:\n{text}");
    assert!(!text.contains("line\nbreak"), "a name was logged unescaped");
}
