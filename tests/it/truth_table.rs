//! The truth table of the requests, cell by cell, on a real server: the reply and the writes of each script, for each
//! state of the record that it can find.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{Connection, Value};
use redisson_lock::{Client, Error, HoldState, Phase};

use crate::support::Server;
use crate::support::scripts::{ACQUIRE, FORCE_UNLOCK, MOVE, RECOUNT, RELEASE, RENEW};

/// c is the hold count that a request expects, and r says whether an earlier send of it went unanswered. A cell has the
/// writes before its colon and the reply after it. `-` stands for no write at all, and an empty cell is impossible. n
/// is the count that was found instead.
///
/// `PEXPIRE` sets the expiry to the lease, `max` only if that is later. Where the record has no expiry, both set it.
const TABLE: &str = "
request             | r | absent                | other owner     | mine = c-1       | mine = c             | mine = c+1            | mine, else
acquire, c = 0      | 0 | set 1, PEXPIRE: Taken | - Busy(PTTL)    |                  |                      | - Stale(PTTL)         | - Stale(PTTL)
acquire, c = 0      | 1 | set 1, PEXPIRE: Taken | - Busy(PTTL)    |                  |                      | set 1, max: Taken     | - Stale(PTTL)
re-entry, c = 1     | 0 | - Gone                | - Other         | - Mismatch(n)    | set c+1, max: Ok     | - Mismatch(n)         | - Mismatch(n)
re-entry, c = 1     | 1 | - Gone                | - Other         | - Mismatch(n)    | set c+1, max: Ok     | set c+1, max: Ok      | - Mismatch(n)
re-entry, c = 4     | 0 | - Gone                | - Other         | - Mismatch(n)    | set c+1, max: Ok     | - Mismatch(n)         | - Mismatch(n)
re-entry, c = 4     | 1 | - Gone                | - Other         | - Mismatch(n)    | set c+1, max: Ok     | set c+1, max: Ok      | - Mismatch(n)
partial, c = 2      | 0 | - Gone                | - Other         | - Mismatch(n)    | set c-1, max: Ok     | - Mismatch(n)         | - Mismatch(n)
partial, c = 2      | 1 | - Gone                | - Other         | set c-1, max: Ok | set c-1, max: Ok     | - Mismatch(n)         | - Mismatch(n)
partial, c = 5      | 0 | - Gone                | - Other         | - Mismatch(n)    | set c-1, max: Ok     | - Mismatch(n)         | - Mismatch(n)
partial, c = 5      | 1 | - Gone                | - Other         | set c-1, max: Ok | set c-1, max: Ok     | - Mismatch(n)         | - Mismatch(n)
last release, c = 1 | - | - Gone                | - Other         |                  | DEL, publish: Freed  | DEL, publish: Freed   | DEL, publish: Freed
renew, c = 2        | - | - 0                   | - -3            | max: 1           | max: 1               | max: 1                | max: 1
move, c = 1         | 0 | - Gone                | - Other         |                  | move, PEXPIRE: Moved | - Mismatch            | - Mismatch
move, c = 1         | 1 | - Gone                | - Other         |                  | move, PEXPIRE: Moved | - Mismatch            | - Mismatch
force-unlock, c = 1 | - | - 0                   | DEL, publish: 1 |                  | DEL, publish: 1      | DEL, publish: 1       | DEL, publish: 1
";

/// A repeated move may find that the record is the next owner's already.
const MOVE_TABLE: &str = "
request     | r | next = 1               | next = 2
move, c = 1 | 0 | - Other                | - Other
move, c = 1 | 1 | next 1, max: Moved     | - Other
";

const KEY: &str = "orders";
const CHANNEL: &str = "redisson_lock__channel:{orders}";
const MINE: &str = "11111111-1111-4111-8111-111111111111:1";
const NEXT: &str = "11111111-1111-4111-8111-111111111111:2";
const OTHER: &str = "22222222-2222-4222-8222-222222222222:1";
const LEASE: i64 = 30_000;
/// The time left to the record before the request: less than the lease, more, and no end at all.
const LIVES: [i64; 3] = [10_000, 90_000, -1];

#[test]
fn the_scripts_match_each_cell_of_the_table() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    let mut tried = 0;
    for table in [TABLE, MOVE_TABLE] {
        for cell in cells(table) {
            for state in states(&cell.column, cell.c) {
                for life in LIVES {
                    bench.check(&cell, &state, life);
                    tried += 1;
                }
            }
        }
    }
    // A table that was parsed as empty would pass, too.
    assert_eq!(tried, 438);
}

#[test]
fn a_record_of_another_type_is_a_typed_error_and_is_kept() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    for make in [["SET", KEY, "precious"], ["RPUSH", KEY, "precious"], ["SADD", KEY, "precious"]] {
        for life in LIVES {
            for (request, c) in [
                ("acquire", 0),
                ("re-entry", 1),
                ("partial", 2),
                ("last release", 1),
                ("move", 1),
                ("force-unlock", 1),
                ("renew", 1),
            ] {
                for r in ["0", "1"] {
                    let what = format!("{request}, r = {r}, on the result of {make:?}, life {life}");
                    bench.run(&["DEL", KEY]);
                    bench.run(&make);
                    bench.expire(life);
                    let before = bench.look();
                    let reply = call(request, c, r).query::<Value>(&mut bench.commands);
                    if request == "renew" {
                        assert_eq!(reply.unwrap(), Value::Array(vec![Value::Int(-1)]), "{what}");
                    } else {
                        // Before Redis 7, the code of an error inside a script was part of the text of an ERR.
                        let error = reply.expect_err(&what).to_string();
                        assert!(error.contains("WRONGTYPE"), "{what}: {error}");
                    }
                    let after = bench.look();
                    assert_eq!(after.dump, before.dump, "{what}");
                    assert_kept(&before, &after, &what);
                    assert_eq!(bench.published(), [""; 0], "{what}");
                }
            }
        }
    }
}

/// A lease of 0 asks a renewal and a partial release to leave the expiry alone.
#[test]
fn a_lease_of_zero_leaves_the_expiry_alone() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    for life in LIVES {
        for request in ["renew", "partial"] {
            let what = format!("{request} with lease 0, life {life}");
            bench.make(&BTreeMap::from([(MINE.into(), "2".into())]), life);
            let before = bench.look();
            let mut command = redis::cmd("EVAL");
            match request {
                "renew" => command.arg(RENEW).arg(1).arg(KEY).arg(MINE).arg(0),
                _ => command.arg(RECOUNT).arg(1).arg(KEY).arg(MINE).arg(2).arg(1).arg(0).arg("0"),
            };
            command.exec(&mut bench.commands).unwrap();
            let after = bench.look();
            let count = if request == "renew" { "2" } else { "1" };
            assert_eq!(after.record, BTreeMap::from([(MINE.into(), count.into())]), "{what}");
            assert_kept(&before, &after, &what);
        }
    }
}

/// This makes a repeat after a lost reply safe: it gets the reply of the first send, and changes nothing.
#[test]
fn a_repeat_gets_the_reply_of_the_first_send_and_changes_nothing() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    for (request, c, before) in
        [("acquire", 0, None), ("re-entry", 1, Some("1")), ("partial", 2, Some("2")), ("move", 1, Some("1"))]
    {
        let record = before.map(|count| (MINE.to_owned(), count.to_owned())).into_iter().collect();
        bench.make(&record, LEASE);
        let first: Value = call(request, c, "0").query(&mut bench.commands).unwrap();
        let once = bench.look();
        for _ in 0..3 {
            let again: Value = call(request, c, "1").query(&mut bench.commands).unwrap();
            assert_eq!(again, first, "{request}");
            assert_eq!(bench.look().record, once.record, "{request}");
        }
        assert_eq!(bench.published(), [""; 0], "{request}");
    }

    bench.make(&BTreeMap::from([(MINE.into(), "1".into())]), LEASE);
    let mut replies = Vec::new();
    for _ in 0..3 {
        replies.push(call("last release", 1, "0").query::<Value>(&mut bench.commands));
    }
    assert_eq!(replies[0], Ok(Value::Int(1)));
    assert_eq!(bench.published(), ["0"], "one message for each release, however often it is sent");
}

/// A renewal or a further level may have made the hold longer before a repeat arrives. For every kind, the repeat
/// confirms the write of the first send and shortens no lease.
#[test]
fn a_late_repeat_shortens_no_lease_of_any_kind() {
    let server = Server::start();
    let mut cli = server.cli();
    // For each script: its keys, and its arguments before the flag of a repeat.
    let lease = LEASE.to_string();
    let cases: [(&str, &[&str], Vec<&str>); 8] = [
        ("lock_acquire", &["k"], vec![MINE, &lease]),
        ("fenced_acquire", &["k", "token"], vec![MINE, &lease, "0"]),
        ("fair_acquire", &["k", "queue", "timeouts"], vec![MINE, &lease, "5000", "0"]),
        ("write_acquire", &["k"], vec![MINE, &lease, OTHER, "0"]),
        ("read_acquire", &["k", "string"], vec![MINE, &lease, OTHER]),
        ("value_acquire", &["k"], vec![MINE, &lease]),
        ("lock_hand_off", &["k"], vec![MINE, NEXT, &lease, CHANNEL]),
        ("fenced_hand_off", &["k", "token"], vec![MINE, NEXT, &lease, "0", CHANNEL]),
    ];
    for (script, keys, args) in cases {
        redis::cmd("FLUSHALL").exec(&mut cli).unwrap();
        if script.ends_with("move") {
            redis::cmd("HSET").arg("k").arg(MINE).arg(1).exec(&mut cli).unwrap();
        }
        let path = format!("{}/lua/{script}.lua", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(path).unwrap();
        let mut send = |repeated: &str| -> Value {
            let mut command = redis::cmd("EVAL");
            command.arg(&source).arg(keys.len()).arg(keys).arg(&args).arg(repeated);
            command.query(&mut cli).unwrap()
        };
        let first = send("0");
        for key in keys {
            redis::cmd("PEXPIRE").arg(key).arg(3 * LEASE).exec(&mut server.cli()).unwrap();
        }
        let again = send("1");
        if script != "read_acquire" {
            assert_eq!(again, first, "{script}");
        }
        for key in keys {
            let left: i64 = redis::cmd("PTTL").arg(key).query(&mut server.cli()).unwrap();
            assert!(left > 2 * LEASE || left == -2, "{script}: {left} ms of {key} are left");
        }
    }
}

#[test]
fn one_bad_key_in_a_batch_does_not_stop_the_renewal_of_the_others() {
    let server = Server::start();
    let mut commands = server.cli();
    for (key, owner) in [("a", MINE), ("c", OTHER), ("e", NEXT)] {
        redis::cmd("HSET").arg(key).arg(owner).arg(1).exec(&mut commands).unwrap();
        redis::cmd("PEXPIRE").arg(key).arg(10_000).exec(&mut commands).unwrap();
    }
    redis::cmd("SET").arg("b").arg("precious").exec(&mut commands).unwrap();
    let mut renew = redis::cmd("EVAL");
    renew.arg(RENEW).arg(5).arg(&["a", "b", "c", "d", "e"]);
    for owner in [MINE, MINE, MINE, MINE, NEXT] {
        renew.arg(owner).arg(LEASE);
    }
    assert_eq!(renew.query::<Vec<i64>>(&mut commands).unwrap(), [1, -1, -3, 0, 1]);
    let mut left = |key: &str| redis::cmd("PTTL").arg(key).query::<i64>(&mut commands).unwrap();
    assert!(left("a") > 10_000 && left("e") > 10_000);
    assert_eq!(left("b"), -1);
    assert!((0..=10_000).contains(&left("c")), "another owner's record was renewed");
    assert_eq!(left("d"), -2);
    assert_eq!(redis::cmd("GET").arg("b").query::<String>(&mut commands).unwrap(), "precious");
}

#[test]
fn a_server_out_of_memory_still_releases_and_renews() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    let held = BTreeMap::from([(MINE.to_owned(), "2".to_owned())]);
    let none = BTreeMap::new();
    for (request, c, record, outcome) in [
        ("acquire", 0, &none, "OOM"),
        ("re-entry", 2, &held, "OOM"),
        ("partial", 2, &held, "OOM"),
        ("renew", 2, &held, "max"),
        ("last release", 1, &held, "freed"),
        ("force-unlock", 1, &held, "freed"),
    ] {
        bench.make(record, 10_000);
        server.configure("maxmemory", "1");
        let before = bench.look();
        let reply = call(request, c, "0").query::<Value>(&mut bench.commands);
        let after = bench.look();
        let published = bench.published();
        server.configure("maxmemory", "0");
        match outcome {
            "OOM" => {
                let error = reply.expect_err(request).to_string();
                assert!(error.contains("OOM"), "{request}: {error}");
                assert_eq!(after.dump, before.dump, "{request}");
                assert_kept(&before, &after, request);
                assert_eq!(published, [""; 0], "{request}");
            }
            "max" => {
                assert_eq!(reply.unwrap(), Value::Int(1), "{request}");
                assert!(after.ttl > 10_000, "{request}: {}", after.ttl);
            }
            _ => {
                reply.expect(request);
                assert!(after.record.is_empty(), "{request}");
                assert_eq!(published, ["0"], "{request}");
            }
        }
    }
    // A hand-off needs room for the other owner's field.
    let held_once = BTreeMap::from([(MINE.to_owned(), "1".to_owned())]);
    bench.make(&held_once, 10_000);
    server.configure("maxmemory", "1");
    assert!(call("move", 1, "0").exec(&mut bench.commands).unwrap_err().to_string().contains("OOM"));
    assert_eq!(bench.look().record, held_once);
}

/// The same through a client: a refused partial release lowers only the count of this client, and the last release
/// works as usual.
#[tokio::test]
async fn a_nested_hold_is_released_on_a_server_out_of_memory() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock(KEY);
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let mut cli = server.cli();
    server.configure("maxmemory", "1");

    let error = client.lock("another").try_lock().await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
    let error = lock.try_lock().await.unwrap_err();
    assert_eq!(error.code(), Some("OOM"), "{error:?}");
    assert!(matches!(error, Error::Refused { phase: Phase::Acquire, .. }), "{error:?}");
    inner.unlock().await.unwrap();
    assert_eq!(outer.state(), HoldState::Held);
    let count: u32 = redis::cmd("HGET").arg(KEY).arg(outer.owner()).query(&mut cli).unwrap();
    assert_eq!(count, 2, "the record was changed after all");
    outer.unlock().await.unwrap();
    assert!(!redis::cmd("EXISTS").arg(KEY).query::<bool>(&mut cli).unwrap());
}

/// A release that may not publish must not free the record, because no waiter would hear of it.
#[test]
fn a_release_that_may_not_publish_writes_nothing() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    bench.run(&["ACL", "SETUSER", "mute", "on", "nopass", "allkeys", "allcommands", "resetchannels"]);
    for request in ["last release", "force-unlock"] {
        bench.make(&BTreeMap::from([(MINE.into(), "1".into())]), LEASE);
        let before = bench.look();
        let mut mute = server.cli();
        redis::cmd("AUTH").arg("mute").arg("any").exec(&mut mute).unwrap();
        call(request, 1, "0").query::<Value>(&mut mute).expect_err(request);
        let after = bench.look();
        assert_eq!(after.dump, before.dump, "{request}");
        assert_kept(&before, &after, request);
    }
}

/// The script of a row, with the arguments that its header describes.
fn call(request: &str, c: i64, r: &str) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    match request {
        "acquire" => command.arg(ACQUIRE).arg(1).arg(KEY).arg(MINE).arg(LEASE).arg(r),
        "re-entry" => command.arg(RECOUNT).arg(1).arg(KEY).arg(MINE).arg(c).arg(c + 1).arg(LEASE).arg(r),
        "partial" => command.arg(RECOUNT).arg(1).arg(KEY).arg(MINE).arg(c).arg(c - 1).arg(LEASE).arg(r),
        "last release" => command.arg(RELEASE).arg(1).arg(KEY).arg(MINE).arg(CHANNEL),
        "move" => command.arg(MOVE).arg(1).arg(KEY).arg(MINE).arg(NEXT).arg(LEASE).arg(CHANNEL).arg(r),
        "renew" => command.arg(RENEW).arg(1).arg(KEY).arg(MINE).arg(LEASE),
        "force-unlock" => command.arg(FORCE_UNLOCK).arg(1).arg(KEY).arg(CHANNEL),
        other => panic!("no such request: {other}"),
    };
    command
}

/// One cell of a table.
#[derive(Debug)]
struct Cell {
    request: String,
    c: i64,
    r: String,
    column: String,
    /// Empty for `-`.
    writes: Vec<String>,
    reply: String,
}

fn cells(table: &str) -> Vec<Cell> {
    let split = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut lines = table.trim().lines().map(split);
    let columns = lines.next().unwrap();
    let mut cells = Vec::new();
    for line in lines {
        assert_eq!(line.len(), columns.len(), "{line:?}");
        let (request, c) = line[0].split_once(", c = ").unwrap();
        for (column, cell) in columns.iter().zip(&line).skip(2).filter(|(_, cell)| !cell.is_empty()) {
            let (writes, reply) = match cell.strip_prefix("- ") {
                Some(reply) => (Vec::new(), reply),
                None => {
                    let (writes, reply) = cell.split_once(": ").unwrap();
                    (writes.split(", ").map(str::to_owned).collect(), reply)
                }
            };
            cells.push(Cell {
                request: request.to_owned(),
                c: c.parse().unwrap(),
                r: line[1].clone(),
                column: column.clone(),
                writes,
                reply: reply.to_owned(),
            });
        }
    }
    cells
}

type Record = BTreeMap<String, String>;

/// The records that a column stands for.
fn states(column: &str, c: i64) -> Vec<Record> {
    let of = |owner: &str, count: &str| Record::from([(owner.to_owned(), count.to_owned())]);
    let mine = |count: i64| of(MINE, &count.to_string());
    match column {
        "absent" => vec![Record::new()],
        // A read/write lock of that name belongs to another owner, and so does an owner id that starts like ours.
        "other owner" => vec![
            of(OTHER, "1"),
            Record::from([
                ("mode".to_owned(), "write".to_owned()),
                (format!("{MINE}:write"), "1".to_owned()),
            ]),
            of(&format!("{MINE}~1"), "1"),
        ],
        "mine = c-1" => vec![mine(c - 1)],
        "mine = c" => vec![mine(c)],
        "mine = c+1" => vec![mine(c + 1)],
        "mine, else" => vec![mine(c + 2), mine(c + 1_000_000), of(MINE, "not a number")],
        "next = 1" => vec![of(NEXT, "1")],
        "next = 2" => vec![of(NEXT, "2")],
        other => panic!("no such column: {other}"),
    }
}

/// A server with one key, and a subscriber to its channel.
struct Bench {
    commands: Connection,
    subscriber: Connection,
}

/// A snapshot of the key.
struct Seen {
    at: Instant,
    dump: Value,
    record: Record,
    /// As PTTL reports it.
    ttl: i64,
}

impl Bench {
    fn new(server: &Server) -> Self {
        let mut subscriber = server.cli();
        subscriber.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        redis::cmd("SUBSCRIBE").arg(CHANNEL).exec(&mut subscriber).unwrap();
        Self { commands: server.cli(), subscriber }
    }

    fn run(&mut self, words: &[&str]) {
        redis::cmd(words[0]).arg(&words[1..]).exec(&mut self.commands).unwrap();
    }

    fn make(&mut self, record: &Record, life: i64) {
        self.run(&["DEL", KEY]);
        for (owner, count) in record {
            self.run(&["HSET", KEY, owner, count]);
        }
        self.expire(life);
    }

    fn expire(&mut self, life: i64) {
        if life >= 0 {
            self.run(&["PEXPIRE", KEY, &life.to_string()]);
        }
    }

    fn look(&mut self) -> Seen {
        let at = Instant::now();
        let kind: String = redis::cmd("TYPE").arg(KEY).query(&mut self.commands).unwrap();
        let record = match kind.as_str() {
            "hash" => redis::cmd("HGETALL").arg(KEY).query(&mut self.commands).unwrap(),
            _ => Record::new(),
        };
        Seen {
            at,
            dump: redis::cmd("DUMP").arg(KEY).query(&mut self.commands).unwrap(),
            record,
            ttl: redis::cmd("PTTL").arg(KEY).query(&mut self.commands).unwrap(),
        }
    }

    /// The messages on the channel since the last call. A message of our own marks the end, because a channel delivers
    /// in order.
    fn published(&mut self) -> Vec<String> {
        self.run(&["PUBLISH", CHANNEL, "that was all"]);
        let mut published = Vec::new();
        loop {
            let push = self.subscriber.recv_response().expect("a message arrives");
            let (kind, _, message): (String, String, String) = redis::from_redis_value(push).unwrap();
            assert_eq!(kind, "message");
            if message == "that was all" {
                return published;
            }
            published.push(message);
        }
    }

    fn check(&mut self, cell: &Cell, state: &Record, life: i64) {
        let what = format!("{cell:?} on {state:?}, life {life}");
        self.make(state, life);
        let before = self.look();
        let reply: Value = call(&cell.request, cell.c, &cell.r).query(&mut self.commands).expect(&what);
        let after = self.look();
        let published = self.published();

        check_reply(&cell.reply, reply, &before, &after, &what);
        if cell.writes.is_empty() {
            assert_eq!(after.dump, before.dump, "{what}");
        }
        let mut record = state.clone();
        let (mut lives, mut messages) = (None, vec![]);
        for write in &cell.writes {
            match write.as_str() {
                "set 1" => drop(record.insert(MINE.into(), "1".into())),
                "set c+1" => drop(record.insert(MINE.into(), (cell.c + 1).to_string())),
                "set c-1" => drop(record.insert(MINE.into(), (cell.c - 1).to_string())),
                "move" => {
                    record.remove(MINE);
                    record.insert(NEXT.into(), "1".into());
                }
                "next 1" => assert_eq!(record, Record::from([(NEXT.into(), "1".into())])),
                "PEXPIRE" => lives = Some(LEASE),
                // A record without an expiry gets one, because it would never end.
                "max" => lives = (before.ttl < LEASE).then_some(LEASE),
                "DEL" => record.clear(),
                "publish" => messages.push("0"),
                other => panic!("no such write: {other}"),
            }
        }
        assert_eq!(after.record, record, "{what}");
        assert_eq!(published, messages, "{what}");
        match lives {
            _ if record.is_empty() => assert_eq!(after.ttl, -2, "{what}"),
            None => assert_kept(&before, &after, &what),
            Some(lease) => {
                let elapsed = elapsed_ms(&before);
                assert!((lease - elapsed..=lease).contains(&after.ttl), "{what}: {}", after.ttl);
            }
        }
    }
}

/// Asserts that the expiry was neither extended nor shortened nor removed.
fn assert_kept(before: &Seen, after: &Seen, what: &str) {
    if before.ttl < 0 {
        assert_eq!(after.ttl, before.ttl, "{what}");
    } else {
        let elapsed = elapsed_ms(before);
        assert!((before.ttl - elapsed..=before.ttl).contains(&after.ttl), "{what}: {}", after.ttl);
    }
}

/// The time since a look, rounded up, and one more for the server's own rounding.
fn elapsed_ms(since: &Seen) -> i64 {
    i64::try_from(since.at.elapsed().as_millis()).unwrap() + 2
}

fn check_reply(expected: &str, reply: Value, before: &Seen, after: &Seen, what: &str) {
    if let Ok(number) = expected.parse::<i64>() {
        let number = Value::Int(number);
        // A renewal replies for each key of its batch, or, where all are held, with their number.
        assert!(reply == number || reply == Value::Array(vec![number]), "{what}: {reply:?}");
        return;
    }
    let (word, argument) = expected.split_once('(').unwrap_or((expected, ""));
    let (status, number): (String, Option<i64>) = match reply {
        // Success. Where the reply is the number of subscribers, ours is the only one.
        Value::Int(1) => return assert!(["Taken", "Ok", "Freed", "Moved"].contains(&word), "{what}"),
        Value::Array(mut items) => {
            if word == "Busy" {
                // The reply names the holder.
                let holder: String = redis::from_redis_value(items.pop().unwrap()).unwrap();
                assert!(before.record.contains_key(&holder), "{what}: {holder}");
            }
            assert!(items.len() <= 2, "{what}: {items:?}");
            let number = (items.len() == 2).then(|| items.pop().unwrap());
            let status = redis::from_redis_value(items.pop().unwrap()).unwrap();
            (status, number.map(|number| redis::from_redis_value(number).unwrap()))
        }
        other => panic!("{what}: {other:?}"),
    };
    assert_eq!(status, word.to_uppercase(), "{what}");
    match word {
        // A count that is not a number is not reported.
        "Mismatch" if argument == "n)" => {
            assert_eq!(number, before.record[MINE].parse().ok(), "{what}");
        }
        "Busy" | "Stale" => {
            let reported = number.unwrap_or_else(|| panic!("{what}: no time to live"));
            // The server's clock at the reply is between those at the two looks.
            assert!((after.ttl..=before.ttl).contains(&reported), "{what}: {reported}");
        }
        _ => assert_eq!(number, None, "{what}"),
    }
}
