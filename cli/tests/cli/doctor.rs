//! `doctor`: each finding has a server of its own.

use crate::support::Server;

/// The level and the text of a finding.
fn finding(out: &str, subject: &str) -> (String, String) {
    let line = out.lines().find(|line| line.split_whitespace().nth(1) == Some(subject));
    let line = line.unwrap_or_else(|| panic!("no line about {subject}:\n{out}"));
    let (level, text) = line.trim().split_once(char::is_whitespace).unwrap();
    (level.to_owned(), text.trim().strip_prefix(subject).unwrap().trim().to_owned())
}

#[test]
fn a_server_for_locks_is_healthy() {
    let server = Server::durable();
    let keys: Vec<String> = server.raw(&["KEYS", "*"]);
    let done = server.output(&["doctor"]);
    done.assert_code(0);
    for (subject, level, words) in [
        ("version", "ok", "Redis "),
        ("commands", "ok", "every kind"),
        ("eviction", "ok", "noeviction"),
        ("persistence", "ok", "every write is on disk"),
        ("replicas", "ok", "none"),
        ("clock", "ok", "of this host"),
    ] {
        let (found, text) = finding(&done.out, subject);
        assert!(found == level && text.contains(words), "{subject}: {done:?}");
    }
    assert!(done.out.ends_with("Nothing endangers locks.\n"), "{done:?}");
    assert_eq!(server.raw::<Vec<String>>(&["KEYS", "*"]), keys, "the probe leaves nothing behind");
    let json = server.output(&["doctor", "--json"]).out;
    for part in
        [r#""eviction_policy":"noeviction""#, r#""replicas":0"#, r#""refused":{}"#, r#""restricted":null"#]
    {
        assert!(json.contains(part), "{part}: {json}");
    }
}

#[test]
fn eviction_and_too_few_replicas_endanger_locks() {
    let server = Server::start();
    let level = |subject: &str, words: &str| {
        let done = server.output(&["doctor"]);
        let (level, text) = finding(&done.out, subject);
        assert!(text.contains(words), "{done:?}");
        done.assert_code(i32::from(level == "danger"));
        level
    };
    assert_eq!(level("persistence", "a restart loses the locks"), "note");
    let _: () = server.raw(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    assert_eq!(level("eviction", "no limit"), "note");
    let _: () = server.raw(&["CONFIG", "SET", "maxmemory", "100mb"]);
    assert_eq!(level("eviction", "set noeviction"), "danger");
    let _: () = server.raw(&["CONFIG", "SET", "maxmemory", "0"]);
    let _: () = server.raw(&["CONFIG", "SET", "appendonly", "yes"]);
    assert_eq!(level("persistence", "everysec"), "note");
    let _: () = server.raw(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    let done = server.output(&["doctor"]);
    done.assert_code(1);
    assert!(done.out.contains("0 of the 2 that min-replicas-to-write needs"), "{done:?}");
}

#[test]
fn a_command_that_the_user_lacks_is_named_with_the_kinds_that_need_it() {
    let server = Server::start();
    let rules = ["~*", "&*", "+@all", "-zadd", "-hset", "-wait", "-config", "-info"];
    let user = ["ACL", "SETUSER", "app", "on", ">canary-in-a-coal-mine"];
    let _: () = server.raw(&[user.as_slice(), &rules].concat());
    let socket = server.url().replace("redis+unix://", "");
    let mut command = server.cli(&["doctor"]);
    let output = command
        .env("REDISSON_LOCK_URL", format!("redis+unix://{socket}?user=app&pass=canary-in-a-coal-mine"))
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    let lacking = |kind: &str| {
        out.lines().find(|line| line.contains(&format!("{kind}: cannot be used"))).map(str::to_owned)
    };
    assert!(lacking("fair").unwrap().contains("may not run hset, zadd: grant it"), "{out}");
    assert!(lacking("fenced").unwrap().contains("may not run hset: grant it"), "{out}");
    assert!(lacking("expirable-semaphore").unwrap().contains("may not run zadd: grant it"), "{out}");
    assert!(lacking("value").is_none() && lacking("latch").is_none(), "{out}");
    assert_eq!(finding(&out, "eviction").1, "unknown, because the user may not run INFO");
    assert!(!out.contains("canary"));

    let _: () = server.raw(&["ACL", "SETUSER", "app", "+@all", "resetkeys", "~orders:*"]);
    let output = command.output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("the user may not use every key and channel"), "{out}");
    assert!(out.contains("Nothing endangers locks."), "{out}");
}
