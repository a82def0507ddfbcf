//! The program `redisson-lock` of `cli/` beside Java threads: each excludes the other, and the program names and ends Java's holds.
//! Also the program at a cluster, at sentinels, and at a server with a wrong clock. `cli/tests` has the tests at one server.

use crate::support::cluster::Cluster;
use crate::support::group::Group;
use crate::support::java::JavaThread;
use crate::support::kind::{Kind, each, with_versions};
use crate::support::{Java, Server, eventually, setting, since, subscribers, versions};
use std::collections::{BTreeSet, HashMap};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
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
    command_line_at(&server.url(), words)
}

fn command_line_at(url: &str, words: &[&str]) -> Command {
    let mut command = Command::new(setting("REDISSON_LOCK_CLI"));
    command.args(words).env("REDISSON_LOCK_URL", url).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end. Returns the exit code and the output.
async fn done(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    done_at(&server.url(), words).await
}

async fn done_at(url: &str, words: &[&str]) -> (Option<i32>, String) {
    let output =
        timeout(SOON, command_line_at(url, words).output()).await.expect("the program ends").unwrap();
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

/// A program that runs, and the lines of its output.
struct Running {
    child: tokio::process::Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        Self { lines: BufReader::new(child.stdout.take().unwrap()).lines(), child }
    }

    async fn line(&mut self) -> String {
        let line = timeout(SOON, self.lines.next_line()).await.expect("it writes a line").unwrap();
        line.expect("it still runs")
    }

    /// Closes its input, and returns its exit code.
    async fn end(mut self) -> Option<i32> {
        drop(self.child.stdin.take());
        timeout(SOON, self.child.wait()).await.expect("it ends").unwrap().code()
    }
}

/// The first owner in a line of JSON.
fn owner(line: &str) -> Option<String> {
    Some(line.split_once(r#""owner":""#)?.1.split_once('"')?.0.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_master_of_a_cluster_is_listed_watched_and_examined() {
    let cluster = Cluster::start(3, 0);
    let url = cluster.url();
    let name = |master: usize| {
        (0..).map(|at| format!("orders:{at}")).find(|name| cluster.master_of(name) == master).unwrap()
    };
    let names: Vec<String> = (0..3).map(name).collect();
    let mut holders = Vec::new();
    for name in &names {
        let mut holder = Running::start(command_line_at(&url, &["hold", name]));
        let owner = owner(&holder.line().await).unwrap();
        holders.push((holder, owner));
    }

    let (code, list) = done_at(&url, &["list", "orders:*", "--json"]).await;
    assert_eq!((code, list.lines().count()), (Some(0), 3), "{list}");
    for (name, (_, owner)) in names.iter().zip(&holders) {
        let (code, one) = done_at(&url, &["inspect", name, "--json"]).await;
        assert_eq!(code, Some(0), "{one}");
        assert!(
            one.contains(owner) && list.lines().any(|line| line.contains(name) && line.contains(owner)),
            "{list}"
        );
    }

    let (code, report) = done_at(&url, &["doctor"]).await;
    assert_eq!(code, Some(0), "{report}");
    for master in &cluster.masters {
        assert!(report.lines().any(|line| line == master.address()), "{report}");
    }

    let watch = ["watch", "orders:*", "--interval", "0.05", "--json"];
    let mut watching = Running::start(command_line_at(&url, &watch));
    let mut seen = BTreeSet::new();
    while seen.len() < 3 {
        let line = watching.line().await;
        assert!(line.contains(r#""event":"held""#), "{line}");
        seen.extend(names.iter().filter(|name| line.contains(&format!(r#""name":"{name}""#))));
    }

    // `script` gives it a terminal, which has no size.
    let program = setting("REDISSON_LOCK_CLI");
    let line = format!("TERM=xterm exec {program} top 'orders:*' --interval 0.05");
    let mut top = Command::new("script");
    top.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
        .env("REDISSON_LOCK_URL", &url);
    let mut top = top.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let (mut shown, mut output) = (String::new(), top.stdout.take().unwrap());
    while !names.iter().all(|name| shown.contains(name.as_str())) {
        let mut bytes = [0; 4096];
        let read = timeout(SOON, output.read(&mut bytes)).await.expect("it draws").unwrap();
        assert_ne!(read, 0, "{shown}");
        shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    top.stdin.as_mut().unwrap().write_all(b"q").await.unwrap();
    assert_eq!(timeout(SOON, top.wait()).await.expect("q ends it").unwrap().code(), Some(0));

    for (holder, _) in holders {
        assert_eq!(holder.end().await, Some(0));
    }
    while !seen.is_empty() {
        let line = watching.line().await;
        assert!(line.contains(r#""event":"released""#), "{line}");
        seen.retain(|name| !line.contains(&format!(r#""name":"{name}""#)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_and_inspect_follow_the_sentinels_to_the_next_master() {
    let mut group = Group::start(1);
    let url = group.url();
    let mut running =
        Running::start(command_line_at(&url, &["run", "n", "--", "sh", "-c", "echo ran; exec cat"]));
    assert_eq!(running.line().await, "ran");
    let inspected = || async { done_at(&url, &["inspect", "n", "--json"]).await };
    let (code, before) = inspected().await;
    assert_eq!(code, Some(0), "{before}");
    assert!(owner(&before).is_some(), "{before}");
    let (code, busy) = done_at(&url, &["run", "n", "-n", "--", "true"]).await;
    assert_eq!(code, Some(75), "{busy}");
    group.master.kill();
    group.wait_for_promotion().await;
    // The sentinel names the next master a moment after it has made it one.
    let mut sentinel = group.sentinels[0].cli();
    eventually(|| {
        let mut question = redis::cmd("SENTINEL");
        let named: HashMap<String, String> =
            question.arg("MASTER").arg("orders").query(&mut sentinel).unwrap();
        named["port"] == group.replica.port().to_string()
    })
    .await;
    let (code, after) = inspected().await;
    assert_eq!((code, owner(&after)), (Some(0), owner(&before)), "{after}");
    let (_, report) = done_at(&url, &["doctor"]).await;
    assert!(report.starts_with(&group.replica.address()), "{report}");
    assert_eq!(running.end().await, Some(0));
    let (_, released) = inspected().await;
    assert!(owner(&released).is_none(), "{released}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_a_wrong_clock() {
    let file = std::env::temp_dir().join(format!("redisson-lock-doctor-{}", std::process::id()));
    let set = |offset: &str| std::fs::write(&file, offset).unwrap();
    set("+0s");
    let server = Server::with_clock(file.to_str().unwrap());
    for (offset, code, text) in [
        ("+0s", 0, "ok      clock "),
        ("+60s", 1, " ms ahead of this host"),
        ("-60s", 1, " ms behind this host"),
    ] {
        set(offset);
        let (found, report) = done(&server, &["doctor"]).await;
        let clock = report.lines().find(|line| line.contains(" clock ")).unwrap();
        assert!(clock.contains(text) && found == Some(code), "{offset}: {report}");
        assert_eq!(
            clock.contains("danger") && clock.contains("synchronise the clocks"),
            code == 1,
            "{report}"
        );
    }
    std::fs::remove_file(file).unwrap();
}
