//! The program `redisson-lock` of `cli/` beside Java threads: each excludes the other, and the program names and ends Java's holds.
//! `cli/tests` has the tests without Java.

use crate::support::java::JavaThread;
use crate::support::kind::{Kind, each, with_versions};
use crate::support::{Java, Server, eventually, setting, since, subscribers, versions};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// A bound for what must happen.
const SOON: Duration = Duration::from_secs(20);
/// The kinds of the program that Java has.
const KINDS: [(Kind, &str); 6] = [
    (Kind::Reentrant, "lock"),
    (Kind::Fair, "fair"),
    (Kind::Fenced, "fenced"),
    (Kind::Spin, "spin"),
    (Kind::Read, "read"),
    (Kind::Write, "write"),
];

fn command_line(server: &Server, words: &[&str]) -> Command {
    let mut command = Command::new(setting("REDISSON_LOCK_CLI"));
    command.args(words).env("REDISSON_LOCK_URL", server.url()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end. Returns the exit code and the output.
async fn done(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let output =
        timeout(SOON, command_line(server, words).output()).await.expect("the program ends").unwrap();
    let Output { status, stdout, stderr } = output;
    (status.code(), String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap())
}

async fn java(server: &Server, version: &str) -> JavaThread {
    Java::get(version).client(server, 0).await.thread("t")
}

fn cases() -> Vec<(&'static str, (Kind, &'static str))> {
    with_versions(KINDS, |(kind, _)| kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn run_excludes_a_java_thread_and_is_excluded_by_it() {
    each(cases(), |(version, (kind, name))| async move {
        let server = Server::start();
        let thread = java(&server, version).await;
        // Readers do not exclude each other.
        let javas = if kind == Kind::Read { Kind::Write.java() } else { kind.java() };
        thread.lock(javas, "n").await.unwrap();
        let (code, text) = done(&server, &["run", "n", "-n", "--kind", name, "--", "true"]).await;
        let owner = thread.owner().await;
        let (client, id) = owner.split_once(':').unwrap();
        assert_eq!(code, Some(75), "{text}");
        assert!(text.contains(&format!("held by client {client}, ")) && text.contains(id), "{text}");
        let words = ["run", "n", "-v", "-w", "20", "--kind", name, "--", "echo", "ran"];
        let mut waiting = command_line(&server, &words).spawn().unwrap();
        let mut errors = BufReader::new(waiting.stderr.take().unwrap()).lines();
        let line = errors.next_line().await.unwrap().unwrap();
        assert!(line.contains("waiting for `n`, held by client"), "{line}");
        thread.unlock(javas, "n").await.unwrap();
        let output = timeout(SOON, waiting.wait_with_output()).await.expect("it is woken").unwrap();
        assert_eq!(
            (output.status.code(), &*output.stdout),
            (Some(0), b"ran\n".as_slice()),
            "{version} {kind}"
        );

        let words = ["run", "n", "--kind", name, "--", "sh", "-c", "echo held; cat"];
        let mut holding = command_line(&server, &words).spawn().unwrap();
        let mut lines = BufReader::new(holding.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("held"));
        assert!(!thread.try_lock(javas, "n").await.unwrap(), "{version} {kind}");
        let javas_turn = thread.try_lock_within(javas, "n", SOON);
        drop(holding.stdin.take());
        assert_eq!(timeout(SOON, holding.wait()).await.expect("cat ends").unwrap().code(), Some(0));
        assert!(javas_turn.await.unwrap(), "{version} {kind}");
        thread.unlock(javas, "n").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_and_list_name_a_java_holder_of_each_kind() {
    // 3.3.2 has only the plain lock.
    let versions = versions().into_iter().filter(|version| since(version, 3, 10));
    each(versions.map(|version| &*version.leak()), |version: &'static str| async move {
        let server = Server::start();
        let client = Java::get(version).client(&server, 0).await;
        let thread = client.thread("t");
        let owner = thread.owner().await;
        let mut held = Vec::new();
        for (kind, shown) in KINDS.into_iter().filter(|(kind, _)| kind.is_in(version)) {
            thread.lock(kind.java(), shown).await.unwrap();
            let (count, shown_kind) = match kind {
                Kind::Spin | Kind::Fair => (1, "lock"),
                Kind::Fenced => (1, "fenced"),
                _ => {
                    thread.lock(kind.java(), shown).await.unwrap();
                    (2, shown)
                }
            };
            let owner = if kind == Kind::Write { format!("{owner}:write") } else { owner.clone() };
            held.push((shown, shown_kind, owner, count));
        }
        if since(version, 3, 38) {
            thread.group("values", "group", &["x", "y"]).await.unwrap();
            thread.lock("group", "values").await.unwrap();
            held.push(("group", "group", owner.clone(), 1));
        }
        let permits = thread.permits("permits");
        assert!(permits.try_set_permits(2).await.unwrap());
        permits.acquire().await.unwrap();
        assert!(thread.semaphore("semaphore").try_set_permits(3).await.unwrap());
        assert!(thread.latch("latch").try_set_count(1).await.unwrap());
        let _waiting = client.thread("waiter").latch("latch").await_();
        eventually(|| subscribers(&server, "redisson_countdownlatch__channel__{latch}") == 1).await;
        // Only a queue shows that a lock is fair.
        let _queued = client.thread("queued").lock("fair", "fair");
        client.thread("queued").asleep().await;
        held.iter_mut().filter(|(name, ..)| *name == "fair").for_each(|held| held.1 = "fair");

        let (code, list) = done(&server, &["list", "--all", "--json"]).await;
        assert_eq!(code, Some(0), "{list}");
        let line = |name: &str| {
            let of = format!(r#""name":"{name}""#);
            list.lines().find(|line| line.contains(&of)).unwrap_or_else(|| panic!("no {name}: {list}"))
        };
        for (name, kind, owner, count) in &held {
            let (_, one) = done(&server, &["inspect", name, "--json"]).await;
            let (_, text) = done(&server, &["inspect", name]).await;
            let (id, _) = owner.split_once(':').unwrap();
            let holder = format!(r#""holders":[{{"client":"{id}","count":{count},"owner":"{owner}"}}]"#);
            for seen in [line(name), &one] {
                let kind = format!(r#""kind":"{kind}""#);
                assert!(seen.contains(&kind) && seen.contains(&holder), "{version}: {kind} {holder}: {seen}");
            }
            assert!(text.contains(&format!("holder   {owner}, ")), "{version}: {text}");
        }
        assert!(line("fair").contains(&format!(r#""queue":["{}:"#, client.uuid())), "{}", line("fair"));
        for (name, kind, numbers) in [
            ("permits", "expirable-semaphore", r#""count":1,"#),
            ("semaphore", "integer", r#""count":3,"#),
            ("latch", "latch", r#""count":1,"#),
        ] {
            let seen = line(name);
            assert!(
                seen.contains(&format!(r#""kind":"{kind}""#)) && seen.contains(numbers),
                "{version}: {seen}"
            );
        }
        assert!(line("permits").contains(r#""taken":1"#), "{}", line("permits"));
        let expected = held.len() + 3;
        assert_eq!(list.lines().filter(|line| line.starts_with('{')).count(), expected, "{version}: {list}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_unlock_wakes_the_waiters_of_java() {
    // Nothing wakes the waiters of a spin lock.
    let cases = cases().into_iter().filter(|(_, (kind, _))| *kind != Kind::Spin);
    each(cases, |(version, (kind, name))| async move {
        let server = Server::start();
        let client = Java::get(version).client(&server, 0).await;
        let (holder, waiter) = (client.thread("holder"), client.thread("waiter"));
        holder.lock(kind.java(), "n").await.unwrap();
        let waits_for = if kind == Kind::Read { Kind::Write } else { kind };
        let waiting = waiter.lock(waits_for.java(), "n");
        waiter.asleep().await;
        // The record of a fenced lock shows its kind only by its token.
        let (code, text) = done(&server, &["force-unlock", "n", "--yes"]).await;
        let owner = holder.owner().await;
        let (uuid, id) = owner.split_once(':').unwrap();
        assert_eq!(code, Some(0), "{version} {name}: {text}");
        let expected = format!("released `n`, held by client {uuid}, ");
        assert!(text.starts_with(&expected) && text.contains(id), "{version} {name}: {text}");
        // The lease of the holder would end after 30 s.
        timeout(SOON, waiting)
            .await
            .unwrap_or_else(|_| panic!("{version} {name}: the waiter sleeps on"))
            .unwrap();
        waiter.unlock(waits_for.java(), "n").await.unwrap();
    })
    .await;
}
