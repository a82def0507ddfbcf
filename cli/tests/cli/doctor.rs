//! `doctor`: each finding has a server of its own.

use crate::support::{Done, Server, eventually};

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
        ("clock", "ok", "this host"),
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

/// The program, as a user with these rules.
fn as_user(server: &Server, rules: &[&str], words: &[&str]) -> Done {
    let user = ["ACL", "SETUSER", "app", "reset", "on", ">canary-in-a-coal-mine", "~*", "&*", "+@all"];
    let _: () = server.raw(&[user.as_slice(), rules].concat());
    let url = format!("{}?user=app&pass=canary-in-a-coal-mine", server.url());
    let done = Done::of(server.cli(words).env("REDISSON_LOCK_URL", url).output().unwrap());
    assert!(!(done.out.clone() + &done.err).contains("canary"), "{done:?}");
    done
}

#[test]
fn a_command_that_the_user_lacks_is_named_with_the_kinds_that_need_it() {
    let server = Server::start();
    let rules = ["-zadd", "-hset", "-wait", "-config", "-info"];
    let done = as_user(&server, &rules, &["doctor"]);
    done.assert_code(1);
    let out = &done.out;
    let lacking = |kind: &str| {
        out.lines().find(|line| line.contains(&format!("{kind}: cannot be used"))).map(str::to_owned)
    };
    assert!(lacking("fair").unwrap().contains("may not run hset, zadd: grant it"), "{out}");
    assert!(lacking("fenced").unwrap().contains("may not run hset: grant it"), "{out}");
    assert!(lacking("expirable-semaphore").unwrap().contains("may not run zadd: grant it"), "{out}");
    assert!(lacking("value").is_none() && lacking("latch").is_none(), "{out}");
    assert_eq!(finding(out, "eviction").1, "unknown, because the user may not run INFO");

    let done = as_user(&server, &["-subscribe"], &["doctor"]);
    done.assert_code(1);
    let expected = "every kind but spin: nobody can wait, because the user may not run subscribe: grant it";
    assert_eq!(finding(&done.out, "commands"), ("danger".to_owned(), expected.to_owned()));

    let done = as_user(&server, &["-scan", "-type"], &["doctor"]);
    done.assert_code(0);
    let expected = "list, inspect, watch and top cannot be used, because the user may not run scan, type";
    assert!(done.out.contains(&format!("note    commands     {expected}\n")), "{done:?}");
}

#[test]
fn a_user_of_some_names_gets_a_note() {
    let server = Server::start();
    for rules in [["resetkeys", "~orders:*"], ["resetchannels", "&orders:*"]] {
        let done = as_user(&server, &rules, &["doctor"]);
        done.assert_code(0);
        assert!(
            done.out.contains("note    commands     the user may not use every key and channel"),
            "{done:?}"
        );
        assert!(done.out.contains("Nothing endangers locks."), "{done:?}");
    }
    // Without PUBLISH, only SUBSCRIBE shows that the user may not use the channel.
    let done = as_user(&server, &["resetchannels", "&orders:*", "-publish"], &["doctor"]);
    done.assert_code(1);
    assert!(done.out.contains("(to subscribe to "), "{done:?}");
}

#[test]
fn replicas_are_of_no_use_without_the_commands_for_them() {
    // Otherwise it waits for more replicas.
    let server = Server::with(&["--repl-diskless-sync-delay", "0"]);
    let port = server.listen().to_string();
    let _replica = Server::with(&["--replicaof", "127.0.0.1", &port]);
    eventually(|| server.raw::<String>(&["INFO", "replication"]).contains("state=online"));
    let replicas = |rules: &[&str]| {
        let done = as_user(&server, rules, &["doctor"]);
        let (level, text) = finding(&done.out, "replicas");
        done.assert_code(i32::from(level == "danger"));
        (level, text)
    };
    assert_eq!(replicas(&[]).0, "ok");
    for (rule, names) in
        [(["-role"].as_slice(), "ROLE:"), (&["-wait"], "WAIT:"), (&["-role", "-wait"], "ROLE and WAIT:")]
    {
        let (level, text) = replicas(rule);
        assert!(
            level == "danger" && text.contains(&format!("1, but the user may not run {names}")),
            "{text}"
        );
    }
}

#[test]
fn the_permission_that_a_command_lacks_is_named() {
    let server = Server::start();
    let _: u32 = server.raw(&["HSET", "n", "7c9e6679-7425-40de-944b-e07fc1f90ae7:85", "1"]);
    let lock = ["inspect", "n"].as_slice();
    let all = ["list"].as_slice();
    let one = "grant ~n ~redisson_lock_queue:{n} ~redisson_lock_token:{n} ~{n}:*";
    for (rules, words, parts) in [
        (["-scan"].as_slice(), all, ["may not run scan", "grant +scan"]),
        (&["-type", "-hscan"], all, ["may not run hscan, type", "grant +hscan +type"]),
        (&["-scan", "-hscan"], lock, ["may not run hscan,", "grant +hscan"]),
        (&["-hscan"], &["inspect", "n", "--kind", "lock"], ["may not run hscan,", "grant +hscan"]),
        (&["-type"], &["force-unlock", "n", "--yes"], ["may not run type,", "grant +type"]),
        (&["-type"], &["watch", "*"], ["may not run type,", "grant +type"]),
        (&["-type"], &["watch", "n"], ["may not run type,", "grant +type"]),
        (&["resetkeys", "~orders:*"], lock, ["may not read every key of `n`", one]),
        (&["resetkeys", "~n"], lock, ["may not read every key of `n`", one]),
        (
            &["resetkeys", "~orders:*"],
            all,
            ["may not read every key of `*`", "grant ~* or, for the name N of each lock, ~N "],
        ),
        (&["-evalsha"], lock, ["NOPERM", "'evalsha'"]),
        (&["-evalsha"], &["doctor"], ["NOPERM", "'evalsha'"]),
    ] {
        let done = as_user(&server, rules, words);
        done.assert_code(71);
        assert!(
            parts.iter().all(|part| done.err.contains(part)) && done.out.is_empty(),
            "{rules:?}: {done:?}"
        );
    }
    // Optional permissions: the waiters are unknown then.
    let done = as_user(&server, &["-get", "-llen", "-lrange", "-pubsub", "-time", "-zcard"], lock);
    done.assert_code(0);
    assert!(done.out.contains("waiters  -"), "{done:?}");
}
