//! The in-memory server of `tests/shuttle` compared with a real one and the real scripts: random sequences of the
//! requests of a plain lock and of a semaphore go to both, byte for byte the same. After each step their replies and
//! their records must be equal. Otherwise the schedules would test the client against a server that does not exist.

#[path = "../shuttle/data.rs"]
#[allow(dead_code)]
mod data;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use redis::{Cmd, Connection, Value};
use tokio::sync::mpsc;

use crate::fast_path::restore_payload;
use crate::support::Server;
use crate::support::random::{USUAL_CASES, sequences};
use crate::support::record::{Content, Window, run_and_look};
use crate::support::scripts::{
    ACQUIRE, COUNT_SUBSCRIPTIONS, MOVE, RECOUNT, RELEASE, RENEW, SEMAPHORE_ACQUIRE, SEMAPHORE_RELEASE,
};
use data::{Data, Number, Queued, Record, next_command};

const KEYS: [&str; 2] = ["n", "m"];
/// A semaphore, and the marks of two clients.
const PERMITS: &str = "s";
const MARKS: [&str; 2] = ["{s}:redisson-lock:1", "{s}:redisson-lock:2"];
/// The numbers of requests are below this.
const NUMBERS: u64 = 12;
const CHANNELS: [&str; 2] = ["redisson_lock__channel:{n}", "redisson_lock__channel:{m}"];
/// The number of subscribers of the first channel. The other one has none.
const LISTENERS: usize = 2;
const OWNERS: [&str; 3] = [
    "11111111-1111-4111-8111-111111111111:thread-1",
    "11111111-1111-4111-8111-111111111111:thread-2",
    "22222222-2222-4222-8222-222222222222:owner-x",
];
/// A record with this lease has ended by the next step. The others are far longer than a sequence takes.
const SHORT: u64 = 1;
const LEASES: [u64; 3] = [SHORT, 30_000, 90_000];

/// The scripts that the in-memory server knows, and the replies of each that must occur: a reply that never occurs was
/// not compared.
const SCRIPTS: [(&str, &str, &[&str]); 8] = [
    ("lock_acquire", ACQUIRE, &["1", "again 1", "BUSY", "STALE"]),
    ("lock_recount", RECOUNT, &["1", "again 1", "GONE", "OTHER", "MISMATCH"]),
    ("lock_release", RELEASE, &["0", "2", "GONE", "OTHER"]),
    ("lock_hand_off", MOVE, &["0", "2", "again 2", "GONE", "OTHER", "MISMATCH"]),
    ("lock_renew", RENEW, &["1", "a list"]),
    ("count_subscriptions", COUNT_SUBSCRIPTIONS, &["0", "2"]),
    ("semaphore_acquire", SEMAPHORE_ACQUIRE, &["1", "BUSY", "STALE"]),
    ("semaphore_release", SEMAPHORE_RELEASE, &["0", "2"]),
];

#[derive(Clone, Debug)]
enum Request {
    Acquire {
        key: usize,
        owner: usize,
        lease: u64,
    },
    Recount {
        key: usize,
        owner: usize,
        from: Option<u64>,
        up: bool,
        lease: u64,
    },
    Release {
        key: usize,
        owner: usize,
        silent: bool,
    },
    Move {
        key: usize,
        from: usize,
        to: usize,
        lease: u64,
    },
    Renew(Vec<(usize, usize, u64)>),
    CountSubscriptions {
        key: usize,
    },
    /// The commands of the fast path.
    Restore {
        key: usize,
        owner: usize,
        lease: u64,
        spoilt: bool,
    },
    Delete {
        key: usize,
        owner: usize,
    },
    Look {
        key: usize,
    },
    TakePermits {
        client: usize,
        number: u64,
        permits: u64,
        /// For how long the mark is kept, in ms.
        kept: u64,
    },
    GivePermits {
        client: usize,
        number: u64,
        permits: u64,
        kept: u64,
        /// The number of the acquire that it undoes, or 0.
        taken_by: u64,
    },
    CountPermits,
}

#[derive(Clone, Debug)]
struct Step {
    request: Request,
    /// An earlier send of the request went unanswered.
    again: bool,
    by_source: bool,
}

#[test]
fn the_in_memory_server_replies_like_a_real_one() {
    let server = Server::start();
    let bench = RefCell::new(Pair::new(&server));
    let cases = sequences(step(), |steps| bench.borrow_mut().run(steps));
    let reached = bench.into_inner().reached;
    let missing: Vec<_> = SCRIPTS
        .iter()
        .flat_map(|(name, _, answers)| answers.iter().map(move |answer| format!("{name} {answer}")))
        .filter(|outcome| !reached.contains(outcome))
        .collect();
    assert!(cases < USUAL_CASES || missing.is_empty(), "never reached: {missing:?} among {reached:?}");
}

fn step() -> impl Strategy<Value = Step> {
    (request(), prop::bool::weighted(0.3), prop::bool::weighted(0.3))
        .prop_map(|(request, again, by_source)| Step { request, again, by_source })
}

fn request() -> impl Strategy<Value = Request> {
    let key = || prop_oneof![3 => Just(0_usize), 1 => Just(1)];
    let owner = || prop_oneof![4 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let lease = || prop_oneof![1 => Just(LEASES[0]), 3 => Just(LEASES[1]), 3 => Just(LEASES[2])];
    let lease_or_none = || select(vec![0, LEASES[1], LEASES[2]]);
    let from = prop_oneof![2 => Just(None), 1 => (1..=3_u64).prop_map(Some)];
    prop_oneof![
        6 => (key(), owner(), lease()).prop_map(|(key, owner, lease)| Request::Acquire { key, owner, lease }),
        6 => (key(), owner(), from, any::<bool>(), lease_or_none())
            .prop_map(|(key, owner, from, up, lease)| Request::Recount { key, owner, from, up, lease }),
        3 => (key(), owner(), prop::bool::weighted(0.2))
            .prop_map(|(key, owner, silent)| Request::Release { key, owner, silent }),
        5 => (key(), owner(), owner(), lease()).prop_map(|(key, from, to, lease)| Request::Move { key, from, to, lease }),
        3 => prop::collection::vec((key(), owner(), lease_or_none()), 1..=3).prop_map(Request::Renew),
        2 => (key(), owner(), lease(), prop::bool::weighted(0.2))
            .prop_map(|(key, owner, lease, spoilt)| Request::Restore { key, owner, lease, spoilt }),
        2 => (key(), owner()).prop_map(|(key, owner)| Request::Delete { key, owner }),
        1 => key().prop_map(|key| Request::CountSubscriptions { key }),
        1 => key().prop_map(|key| Request::Look { key }),
        12 => permits(),
    ]
}

/// A request for a semaphore.
fn permits() -> impl Strategy<Value = Request> {
    let taken_by = prop_oneof![2 => Just(0), 3 => 1..NUMBERS];
    (0..3, 0..MARKS.len(), 1..NUMBERS, 1..=3_u64, select(&LEASES[..]), taken_by).prop_map(
        |(which, client, number, permits, kept, taken_by)| match which {
            0 => Request::TakePermits { client, number, permits, kept },
            1 => Request::GivePermits { client, number, permits, kept, taken_by },
            _ => Request::CountPermits,
        },
    )
}

/// The real server, and the one in memory.
struct Pair {
    real: Connection,
    _listeners: Vec<Connection>,
    /// Goes by the real server's clock.
    memory: Data,
    /// The longest time that a query of the real server took: their clocks differ by at most that.
    slack: i64,
    reached: BTreeSet<String>,
}

impl Pair {
    fn new(server: &Server) -> Self {
        let mut real = server.cli();
        // An expired record stays until a command touches it, and the script must be the first one to do so.
        redis::cmd("DEBUG").arg("SET-ACTIVE-EXPIRE").arg(0).exec(&mut real).unwrap();
        let listen = |_| {
            let mut listener = server.cli();
            redis::cmd("SUBSCRIBE").arg(CHANNELS[0]).exec(&mut listener).unwrap();
            listener
        };
        let listeners = (0..LISTENERS).map(listen).collect();
        Self { real, _listeners: listeners, memory: Data::new(named), slack: 0, reached: BTreeSet::new() }
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        let anew = ["FLUSHALL", "SCRIPT FLUSH"].map(|command| {
            let mut words = command.split(' ');
            let mut cmd = redis::cmd(words.next().unwrap());
            cmd.arg(words.collect::<Vec<_>>());
            cmd
        });
        run_and_look(&mut self.real, &anew, &[]);
        self.memory = Data::new(named);
        let mut heard = Vec::new();
        for _ in 0..LISTENERS {
            let (messages, receiver) = mpsc::unbounded_channel();
            let id = self.memory.add(messages);
            self.memory.listeners.get_mut(&id).unwrap().channels.insert(CHANNELS[0].to_owned());
            heard.push(receiver);
        }
        self.slack = 0;
        for (number, step) in steps.iter().enumerate() {
            self.step(step)
                .map_err(|why| format!("{why}\nat step {} of {}: {step:?}", number + 1, steps.len()))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let (commands, name) = self.commands(step);
        // Do not look at the records before this: that would delete an expired one.
        let (real, asked, _) = run_and_look(&mut self.real, &commands, &[]);
        self.slack = self.slack.max(asked.to - asked.from);
        let mut queued = Queued::None;
        let now = time(asked.from);
        let memory: Vec<_> =
            commands.iter().map(|command| self.memory.answer(words(command), &mut queued, now)).collect();
        for (real, memory) in real.iter().zip(&memory) {
            let memory = redis::parse_redis_value(memory.as_bytes())
                .map_err(|error| format!("{memory:?}: {error}"))?;
            if !self.equal(real, &memory) {
                return Err(format!("the real server replied {real:?}, the one in memory {memory:?}"));
            }
            if let Some(name) = name {
                self.reached.insert(outcome(name, step.again, real));
            }
        }
        if let Request::Acquire { lease: SHORT, .. }
        | Request::Move { lease: SHORT, .. }
        | Request::Restore { lease: SHORT, .. }
        | Request::TakePermits { kept: SHORT, .. }
        | Request::GivePermits { kept: SHORT, .. } = step.request
        {
            while run_and_look(&mut self.real, &[], &[]).1.from <= asked.to + 1 {}
            return Ok(());
        }
        self.look()
    }

    /// Whether the records are equal.
    fn look(&mut self) -> Result<(), String> {
        let keys = [KEYS[0], KEYS[1], PERMITS, MARKS[0], MARKS[1]];
        let (_, Window { from, .. }, seen) = run_and_look(&mut self.real, &[], &keys);
        self.slack = seen.iter().map(|seen| seen.asked.to - from).fold(self.slack, i64::max);
        for (key, seen) in keys.into_iter().zip(seen) {
            let (content, ttl) = self.in_memory(key, time(from));
            if content != seen.content || (ttl - seen.ttl).abs() > self.tolerance() {
                return Err(format!("{key} is {seen:?}, and {content:?} for {ttl} ms on the one in memory"));
            }
        }
        Ok(())
    }

    /// The content and the time to live of a key on the server in memory.
    fn in_memory(&self, key: &str, now: Duration) -> (Content, i64) {
        let left = |expires: Duration| i64::try_from((expires - now).as_millis()).unwrap();
        let lives = |expires: &Option<Duration>| expires.is_none_or(|expires| expires > now);
        let record = self.memory.records.get(key).filter(|record| record.expires > now);
        let number = self.memory.numbers.get(key).filter(|number| lives(&number.expires));
        match (record, number) {
            (Some(Record { counts, expires }), _) => {
                let counts = counts.iter().map(|(owner, count)| (owner.clone(), count.to_string()));
                (Content::Hash(counts.collect()), left(*expires))
            }
            (None, Some(Number { value, expires })) => {
                (Content::Text(value.to_string()), expires.map_or(-1, left))
            }
            (None, None) => (Content::Nothing, -2),
        }
    }

    /// A time to live is set in one query, and read in another.
    fn tolerance(&self) -> i64 {
        2 * self.slack + 2
    }

    fn equal(&self, real: &Value, memory: &Value) -> bool {
        match (real, memory) {
            (Value::ServerError(real), Value::ServerError(memory)) => real.code() == memory.code(),
            (Value::Array(real), Value::Array(memory)) => match (&real[..], &memory[..]) {
                ([word, Value::Int(real), real_rest @ ..], [same, Value::Int(memory), memory_rest @ ..])
                    if ["BUSY", "STALE"].iter().any(|busy| is(word, busy)) =>
                {
                    word == same && real_rest == memory_rest && (real - memory).abs() <= self.tolerance()
                }
                _ => {
                    real.len() == memory.len()
                        && real.iter().zip(memory).all(|(real, memory)| self.equal(real, memory))
                }
            },
            _ => real == memory,
        }
    }

    /// The request as a client sends it, and the name of its script.
    fn commands(&self, step: &Step) -> (Vec<Cmd>, Option<&'static str>) {
        let flag = u8::from(step.again);
        let script = |name: &'static str, keys: &[&str]| {
            let source = SCRIPTS.iter().find(|(known, ..)| *known == name).unwrap().1;
            let mut command = redis::cmd(if step.by_source { "EVAL" } else { "EVALSHA" });
            match step.by_source {
                true => command.arg(source),
                false => command.arg(digest(source)),
            };
            command.arg(keys.len()).arg(keys);
            command
        };
        let (name, command) = match &step.request {
            &Request::Acquire { key, owner, lease } => {
                let mut command = script("lock_acquire", &[KEYS[key]]);
                command.arg(OWNERS[owner]).arg(lease).arg(flag);
                ("lock_acquire", command)
            }
            &Request::Recount { key, owner, from, up, lease } => {
                let known = || self.memory.records.get(KEYS[key])?.counts.get(OWNERS[owner]).copied();
                let from = from.or_else(known).unwrap_or(1);
                let to = if up { from + 1 } else { (from - 1).max(1) };
                let mut command = script("lock_recount", &[KEYS[key]]);
                command.arg(OWNERS[owner]).arg(from).arg(to).arg(lease).arg(flag);
                ("lock_recount", command)
            }
            &Request::Release { key, owner, silent } => {
                let mut command = script("lock_release", &[KEYS[key]]);
                command.arg(OWNERS[owner]).arg(if silent { "" } else { CHANNELS[key] });
                ("lock_release", command)
            }
            &Request::Move { key, from, to, lease } => {
                let mut command = script("lock_hand_off", &[KEYS[key]]);
                command.arg(OWNERS[from]).arg(OWNERS[to]).arg(lease).arg(CHANNELS[key]).arg(flag);
                ("lock_hand_off", command)
            }
            Request::Renew(batch) => {
                let keys: Vec<_> = batch.iter().map(|&(key, ..)| KEYS[key]).collect();
                let mut command = script("lock_renew", &keys);
                batch.iter().for_each(|&(_, owner, lease)| _ = command.arg(OWNERS[owner]).arg(lease));
                ("lock_renew", command)
            }
            &Request::CountSubscriptions { key } => {
                let mut command = script("count_subscriptions", &[]);
                command.arg(CHANNELS[key]);
                ("count_subscriptions", command)
            }
            &Request::Restore { key, owner, lease, spoilt } => {
                let mut payload = restore_payload::held_once(None, OWNERS[owner]);
                if spoilt {
                    payload.iter_mut().rev().take(8).for_each(|byte| *byte = !*byte);
                }
                return (vec![redis::cmd("RESTORE").arg(KEYS[key]).arg(lease).arg(payload).to_owned()], None);
            }
            &Request::Delete { key, owner } => {
                let delete = redis::cmd("HDEL").arg(KEYS[key]).arg(OWNERS[owner]).to_owned();
                let publish = redis::cmd("PUBLISH").arg(CHANNELS[key]).arg("0").to_owned();
                return (vec![redis::cmd("MULTI"), delete, publish, redis::cmd("EXEC")], None);
            }
            &Request::Look { key } => {
                let look = redis::cmd("HSCAN").arg(KEYS[key]).arg("0").arg("COUNT").arg("10").to_owned();
                return (vec![look], None);
            }
            Request::TakePermits { .. } | Request::GivePermits { .. } => Self::permits(&step.request, script),
            Request::CountPermits => return (vec![redis::cmd("GET").arg(PERMITS).to_owned()], None),
        };
        (vec![command], Some(name))
    }

    /// A request that takes or returns permits. `script` makes the call of a script with these keys.
    fn permits(request: &Request, script: impl Fn(&'static str, &[&str]) -> Cmd) -> (&'static str, Cmd) {
        match *request {
            Request::GivePermits { client, number, permits, kept, taken_by } => {
                let mut command = script("semaphore_release", &[PERMITS, MARKS[client]]);
                command.arg(number).arg(permits).arg(kept).arg(CHANNELS[0]).arg(taken_by);
                ("semaphore_release", command)
            }
            Request::TakePermits { client, number, permits, kept } => {
                let mut command = script("semaphore_acquire", &[PERMITS, MARKS[client]]);
                command.arg(number).arg(permits).arg(kept);
                ("semaphore_acquire", command)
            }
            _ => unreachable!("a request for permits"),
        }
    }
}

/// The words of a command, as the server in memory reads them.
fn words(command: &Cmd) -> Vec<String> {
    next_command(&mut command.get_packed_command()).expect("a whole command")
}

fn time(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).expect("a time of day"))
}

/// The name of the script with this digest or source.
fn named(text: &str) -> Option<&'static str> {
    SCRIPTS.iter().find(|(_, source, _)| *source == text || digest(source) == text).map(|(name, ..)| *name)
}

fn digest(source: &str) -> String {
    sha1_smol::Sha1::from(source).digest().to_string()
}

fn is(value: &Value, word: &str) -> bool {
    matches!(value, Value::BulkString(text) if text == word.as_bytes())
}

/// The name of a script and its reply, as in [`SCRIPTS`].
fn outcome(name: &str, again: bool, answer: &Value) -> String {
    match answer {
        Value::Int(n) if again => format!("{name} again {n}"),
        Value::Int(n) => format!("{name} {n}"),
        Value::Array(items) => match items.first() {
            Some(Value::BulkString(word)) => format!("{name} {}", String::from_utf8_lossy(word)),
            _ => format!("{name} a list"),
        },
        other => format!("{name} {other:?}"),
    }
}
