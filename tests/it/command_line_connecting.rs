//! How the program `redisson-lock` of `cli/` connects: TLS, credentials, Redisson's configuration file, sentinels and clusters.

use crate::support::authority::Authority;
use crate::support::cluster::Cluster;
use crate::support::group::Group;
use crate::support::{CANARY, Server, eventually, setting};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// A bound for what must happen.
const SOON: Duration = Duration::from_secs(20);

/// Files that are removed with this.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}", uuid::Uuid::new_v4()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The program with these words and variables.
fn command_with(words: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(setting("REDISSON_LOCK_CLI"));
    command.args(words).env_remove("REDISSON_LOCK_URL").envs(variables.iter().copied()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end. Returns the exit code, the output and the errors.
async fn done(words: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let output =
        timeout(SOON, command_with(words, variables).output()).await.expect("the program ends").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn the_options_for_tls_are_those_of_redis_cli() {
    let (authority, folder) = (Authority::new("one"), Folder::new());
    let cacert = folder.file("ca.crt", &authority.pem);
    let client = authority.sign(&["client"], |_| {});
    let (cert, key) = (folder.file("client.crt", &client.chain), folder.file("client.key", &client.key));
    let run = async |url: &str, options: &[&str]| {
        let words = [["run", "n", "--url", url].as_slice(), options, &["--", "true"]].concat();
        let (code, _, errors) = done(&words, &[]).await;
        (code.unwrap(), errors)
    };

    let (_server, url) = authority.serve(&authority.sign(&["127.0.0.1"], |_| {}), true);
    let identity = ["--cert", &cert, "--key", &key];
    let known = [["--cacert", &*cacert].as_slice(), &identity].concat();
    assert_eq!(run(&url, &known).await.0, 0);
    // The error names the options.
    for (options, remedy) in
        [(identity.as_slice(), "--cacert"), (&["--cacert", &cacert], "--cert with --key")]
    {
        let (code, error) = run(&url, options).await;
        assert!(code == 71 && error.contains(remedy), "{code}: {error}");
    }

    let (_server, url) = authority.serve(&authority.sign(&["redis.example.org"], |_| {}), false);
    let (code, error) = run(&url, &["--cacert", &cacert]).await;
    assert!(code == 71 && error.contains("--sni"), "{code}: {error}");
    assert_eq!(run(&url, &["--cacert", &cacert, "--sni", "redis.example.org"]).await.0, 0);
    assert_eq!(run(&url, &[]).await.0, 71);
    assert_eq!(run(&url, &["--insecure"]).await.0, 0);

    // An option without effect would leave the traffic unprotected.
    let plain = url.replace("rediss://", "redis://");
    for (url, options, remedy) in [
        (&plain, ["--cacert", &*cacert].as_slice(), "rediss://"),
        (&plain, &["--insecure"], "rediss://"),
        (&url, &["--cacert", "/no/such/file"], "/no/such/file"),
        (&url, &["--cert", &cert], "--key"),
        (&url, &["--key", &key], "--cert"),
        (&url, &["--insecure", "--cacert", &cacert], "--insecure"),
    ] {
        let (code, error) = run(url, options).await;
        assert!(code == 64 && error.contains(remedy), "{options:?}: {code}: {error}");
    }
}

/// `run`, `hold`, `inspect`, `force-unlock`, `semaphore` and `latch`.
async fn each_command_works(words: &[&str], variables: &[(&str, &str)]) {
    let with = |own: &[&'static str]| -> Vec<String> {
        let at = own.iter().position(|word| *word == "--").unwrap_or(own.len());
        [&own[..at], words, &own[at..]].concat().into_iter().map(str::to_owned).collect()
    };
    let check = async |own: &[&'static str], code: i32, part: &str| {
        let words = with(own);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (found, output, errors) = done(&words, variables).await;
        assert_eq!(found, Some(code), "{words:?}: {output}{errors}");
        assert!(output.contains(part) || errors.contains(part), "{words:?}: {part}: {output}{errors}");
    };
    check(&["run", "n", "--", "echo", "ran"], 0, "ran").await;
    let words_of_hold = with(&["hold", "n"]);
    let words_of_hold: Vec<&str> = words_of_hold.iter().map(String::as_str).collect();
    let mut holding = command_with(&words_of_hold, variables).spawn().unwrap();
    let mut lines = BufReader::new(holding.stdout.take().unwrap()).lines();
    let held = timeout(SOON, lines.next_line()).await.expect("a line in time").unwrap().unwrap_or_default();
    assert!(held.contains(r#""event":"held""#), "{words_of_hold:?}: {held}");
    check(&["inspect", "n", "--json"], 0, r#""held":true"#).await;
    check(&["run", "n", "-n", "--", "true"], 75, "held by client").await;
    drop(holding.stdin.take());
    assert_eq!(timeout(SOON, holding.wait()).await.expect("its input has ended").unwrap().code(), Some(0));
    check(&["inspect", "n", "--json"], 0, r#""held":false"#).await;
    check(&["force-unlock", "n", "--yes"], 0, "`n` was free").await;
    check(&["semaphore", "create", "s", "2"], 0, "").await;
    check(&["semaphore", "acquire", "s", "--lease", "60"], 0, "").await;
    check(&["semaphore", "count", "s", "--json"], 0, r#""free":1"#).await;
    check(&["latch", "create", "l", "1"], 0, "").await;
    check(&["latch", "count-down", "l"], 0, "").await;
    check(&["latch", "wait", "l"], 0, "").await;
}

#[tokio::test]
async fn each_command_works_on_a_sentinel_group_by_url_and_by_redissons_file() {
    let (group, folder) = (Group::start(1), Folder::new());
    each_command_works(&[], &[("REDISSON_LOCK_URL", &group.url())]).await;
    redis::cmd("FLUSHALL").exec(&mut group.master.cli()).unwrap();
    let address = group.sentinels[0].address();
    let text = format!(
        "sentinelServersConfig: {{masterName: orders, sentinelAddresses: ['redis://{address}'], \
         checkSentinelsList: false}}"
    );
    each_command_works(&["--config", &folder.file("redisson.yaml", &text)], &[]).await;
}

#[tokio::test]
async fn each_command_works_on_a_cluster_by_url_and_by_redissons_file() {
    let (cluster, folder) = (Cluster::start(3, 0), Folder::new());
    each_command_works(&["--url", &cluster.url()], &[]).await;
    for master in &cluster.masters {
        redis::cmd("FLUSHALL").exec(&mut master.cli()).unwrap();
    }
    let nodes: Vec<_> = cluster.masters.iter().map(|node| format!("redis://{}", node.address())).collect();
    let text = format!("clusterServersConfig:\n  nodeAddresses: {nodes:?}\n");
    each_command_works(&["--config", &folder.file("redisson.yaml", &text)], &[]).await;
}

/// The process, and all that descend from it.
fn family(pid: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let all = fs::read_dir("/proc").unwrap();
    let all: Vec<u32> = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect();
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(all.iter().filter(|&&pid| parent(pid) == Some(member)));
        next += 1;
    }
    family
}

#[tokio::test]
async fn a_password_is_never_in_the_process_list_or_the_output() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let folder = Folder::new();
    let (url, secret) = (server.url(), format!("redis://:{CANARY}@{}", server.address()));
    let mut admin = redis::Client::open(&*secret).unwrap().get_connection().unwrap();
    let rule = format!(">{CANARY}");
    redis::cmd("ACL").arg(&["SETUSER", "app", "on", &rule, "~*", "&*", "+@all"]).exec(&mut admin).unwrap();
    let file = folder.file("password", &format!("{CANARY}\n"));
    let config = format!("singleServerConfig: {{address: '{url}', password: {CANARY}}}");
    let config = folder.file("redisson.yaml", &config);
    let no_password = folder.file("other.yaml", &format!("singleServerConfig: {{address: '{url}'}}"));
    let of_url = ("REDISSON_LOCK_URL", url.as_str());
    let of_password = ("REDISSON_LOCK_PASSWORD", CANARY);
    for (options, variables) in [
        ([].as_slice(), [("REDISSON_LOCK_URL", &*secret)].as_slice()),
        (&[], &[of_url, of_password]),
        (&["--user", "app"], &[of_url, of_password]),
        (&["--url", &url, "--password-file", &file], &[]),
        (&["--url", &url, "--user", "app", "--password-file", &file], &[]),
        (&["--config", &config], &[]),
        (&["--config", &no_password], &[of_password]),
        (&["--config", &no_password, "--user", "app", "--password-file", &file], &[]),
    ] {
        let words = [["run", "n", "-v"].as_slice(), options, &["-c", "echo held; cat"]].concat();
        let mut running = command_with(&words, variables).spawn().unwrap();
        let mut output = BufReader::new(running.stdout.take().unwrap());
        let mut line = String::new();
        timeout(SOON, output.read_line(&mut line)).await.expect("it runs in time").unwrap();
        assert_eq!(line, "held\n", "{options:?}");
        let waiting_words = [["run", "n", "-v"].as_slice(), options, &["--", "true"]].concat();
        let mut waiting = command_with(&waiting_words, variables).spawn().unwrap();
        let mut errors = BufReader::new(waiting.stderr.take().unwrap());
        timeout(SOON, errors.read_line(&mut line)).await.expect("it reports the wait").unwrap();
        let family = [running.id().unwrap(), waiting.id().unwrap()].map(family).concat();
        // Each run, the guard, and the shell.
        assert!(family.len() >= 4, "{family:?}");
        for pid in family {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            assert!(!String::from_utf8_lossy(&words).contains(CANARY), "{options:?}");
        }
        drop(running.stdin.take());
        for (child, mut output) in [(waiting, errors.into_inner())] {
            let ended = timeout(SOON, child.wait_with_output()).await.expect("it gets the lock").unwrap();
            assert_eq!(ended.status.code(), Some(0));
            let mut rest = Vec::new();
            output.read_to_end(&mut rest).await.unwrap();
            line += &(String::from_utf8(ended.stdout).unwrap() + &String::from_utf8(rest).unwrap());
        }
        let ended = timeout(SOON, running.wait_with_output()).await.expect("its input has ended").unwrap();
        line += &String::from_utf8(ended.stderr).unwrap();
        assert!(line.contains("waiting for") && !line.contains(CANARY), "{line}");
    }
}

#[tokio::test]
async fn no_error_shows_a_password() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let (folder, at) = (Folder::new(), server.address());
    let url = server.url();
    let wrong = format!("{CANARY}-but-wrong");
    let (file, empty) = (folder.file("password", &wrong), folder.file("empty", &format!("\n{CANARY}")));
    let config = format!("singleServerConfig: {{address: '{url}', password: {wrong}}}");
    let config = folder.file("redisson.yaml", &config);
    let broken =
        folder.file("broken.yaml", &format!("singleServerConfig: {{address: '{url}', password: [{wrong}]}}"));
    let in_url = format!("redis://:{CANARY}@{at}");
    let in_bad_url = format!("redis://:{CANARY}@{at}/x");
    let of_url = |url| ("REDISSON_LOCK_URL", url);
    let of_password = ("REDISSON_LOCK_PASSWORD", &*wrong);
    for (code, options, variables) in [
        (71, ["--url", &url].as_slice(), [].as_slice()),
        (71, &["--url", &url], [of_password].as_slice()),
        (71, &["--url", &url, "--user", "app"], &[of_password]),
        (71, &["--url", &url, "--password-file", &file], &[]),
        (71, &["--config", &config], &[]),
        (64, &["--config", &broken], &[]),
        (64, &["--url", &url, "--password-file", &empty], &[]),
        (64, &["--url", &url, "--password-file", "/no/such/file"], &[]),
        (64, &["--url", &url, "--user", "app"], &[]),
        (64, &["--url", &url], &[("REDISSON_LOCK_PASSWORD", "")]),
        (64, &["--url", &in_url], &[]),
        (64, &[], &[of_url(&*in_bad_url)]),
        // Of two credentials, neither is taken.
        (64, &[], &[of_url(&*in_url), of_password]),
        (64, &["--password-file", &file], &[of_url(&*in_url)]),
    ] {
        let words = [["run", "n", "-v"].as_slice(), options, &["--", "true"]].concat();
        let (found, output, errors) = done(&words, variables).await;
        assert_eq!(found, Some(code), "{options:?}: {output}{errors}");
        assert!(!errors.is_empty() && !(output + &errors).contains(CANARY), "{options:?}: {errors}");
    }
}

#[tokio::test]
async fn the_password_of_the_file_may_change() {
    let server = Server::with_args(&["--requirepass", CANARY]);
    let folder = Folder::new();
    let file = folder.file("password", CANARY);
    let url = server.url();
    let words = ["run", "n", "--url", &url, "--password-file", &file, "--lease", "3", "-c", "echo held; cat"];
    let mut running = command_with(&words, &[]).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(timeout(SOON, lines.next_line()).await.expect("in time").unwrap().as_deref(), Some("held"));
    let secret = format!("redis://:{CANARY}@{}", server.address());
    let mut admin = redis::Client::open(secret).unwrap().get_connection().unwrap();
    folder.file("password", &format!("{CANARY}-2"));
    redis::cmd("CONFIG").arg(&["SET", "requirepass", &format!("{CANARY}-2")]).exec(&mut admin).unwrap();
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"]).exec(&mut admin).unwrap();
    let left = |admin: &mut redis::Connection| redis::cmd("PTTL").arg("n").query::<i64>(admin).unwrap();
    let mut last = left(&mut admin);
    // A renewal needs a new connection.
    eventually(|| {
        let now = left(&mut admin);
        std::mem::replace(&mut last, now) < now
    })
    .await;
    drop(running.stdin.take());
    let ended = timeout(SOON, running.wait_with_output()).await.expect("its input has ended").unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}
