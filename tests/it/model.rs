//! The scripts against a model of their contract: random sequences of requests by three owners in two clients, on a
//! real server. Requests expect right and wrong counts, and arrive once, again, or long after. Between requests,
//! records expire, vanish, and get other holders and types. After each step, the reply, the published messages and each
//! record with its expiry must match the model.

mod contract;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use redis::{Cmd, Connection, Value};

use crate::support::Server;
use crate::support::random::{USUAL_CASES, sequences};
use crate::support::record::{Content, End, Seen, Window, run_and_look};
use crate::support::scripts::{ACQUIRE, FORCE_UNLOCK, MOVE, RECOUNT, RELEASE, RENEW};
use contract::{
    CHANNELS, Found, KEYS, Model, OWNERS, Outcome, Record, Reply, Request, SUBSCRIPTIONS, cells, counts,
};

const JAVA: &str = "33333333-3333-4333-8333-333333333333:57";
/// Both are far longer than a sequence takes: a record expires only when a step says so.
const LEASES: [i64; 2] = [30_000, 90_000];
const LITTLE: i64 = 10_000;

#[derive(Clone, Debug)]
enum Step {
    /// A new request. `repeated` marks it as the repeat of a send that was lost without effect.
    Send { request: Request, repeated: bool },
    /// The request that was sent `back` requests before, once more: as the same first send, or marked as a repeat.
    Again { back: usize, repeated: bool },
    /// Time passes, and little of the lease is left.
    Age(usize),
    /// Time passes until the lease is over.
    Expire(usize),
    /// Another program deletes the key.
    Delete(usize),
    /// A Java client writes its hold.
    Java { key: usize, count: u64, lease: Option<i64> },
    /// Another program overwrites the key with a value of another type.
    Spoil(usize),
}

#[test]
fn the_scripts_match_their_contract_in_any_order() {
    let server = Server::start();
    let bench = RefCell::new(Bench::new(&server));
    let cases = sequences(step(), |steps| bench.borrow_mut().run(steps));
    let reached = bench.into_inner().reached;
    let possible = cells();
    assert!(reached.is_subset(&possible), "the model reached impossible cells: {reached:?}");
    let missing: Vec<_> = possible.difference(&reached).collect();
    // A run of few sequences does not reach all cells.
    assert!(cases < USUAL_CASES || missing.is_empty(), "never reached: {missing:?}");
}

fn key() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0_usize), 1 => Just(1)]
}

fn step() -> impl Strategy<Value = Step> {
    let send = (request(), prop::bool::weighted(0.2))
        .prop_map(|(request, repeated)| Step::Send { request, repeated });
    let again = (0..12_usize, any::<bool>()).prop_map(|(back, repeated)| Step::Again { back, repeated });
    let java = (key(), 1..=3_u64, select(vec![Some(LITTLE), Some(LEASES[1]), None]));
    prop_oneof![
        24 => send,
        9 => again,
        2 => key().prop_map(Step::Age),
        2 => key().prop_map(Step::Expire),
        1 => key().prop_map(Step::Delete),
        1 => java.prop_map(|(key, count, lease)| Step::Java { key, count, lease }),
        1 => key().prop_map(Step::Spoil),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let owner = || prop_oneof![4 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let lease = || select(LEASES.to_vec());
    let lease_or_none = || select(vec![LEASES[0], LEASES[1], 0]);
    let from = prop_oneof![2 => Just(None), 1 => (1..=4_i64).prop_map(Some)];
    let by = prop_oneof![4 => Just(1), 3 => Just(-1), 1 => Just(2), 1 => Just(-2)];
    prop_oneof![
        6 => (key(), owner(), lease()).prop_map(|(key, owner, lease)| Request::Acquire { key, owner, lease }),
        6 => (key(), owner(), from, by, lease_or_none())
            .prop_map(|(key, owner, from, by, lease)| Request::Recount { key, owner, from, by, lease }),
        3 => (key(), owner()).prop_map(|(key, owner)| Request::Release { key, owner }),
        4 => (key(), 0..=1_usize, lease()).prop_map(|(key, from, lease)| Request::Move { key, from, lease }),
        3 => proptest::collection::vec((key(), owner(), lease_or_none()), 1..=4).prop_map(Request::Renew),
        1 => key().prop_map(|key| Request::ForceUnlock { key }),
    ]
}

/// Builds the command that the script's header describes. Requests without a flag look the same when they are repeated.
fn command(request: &Request, repeated: bool) -> Cmd {
    let flag = u8::from(repeated);
    let mut command = redis::cmd("EVAL");
    match request {
        &Request::Acquire { key, owner, lease } => {
            command.arg(ACQUIRE).arg(1).arg(KEYS[key]).arg(OWNERS[owner]).arg(lease).arg(flag)
        }
        &Request::Recount { key, owner, from, by, lease } => {
            let (from, to) = counts(from, by);
            let command = command.arg(RECOUNT).arg(1).arg(KEYS[key]).arg(OWNERS[owner]);
            command.arg(from).arg(to).arg(lease).arg(flag)
        }
        &Request::Release { key, owner } => {
            command.arg(RELEASE).arg(1).arg(KEYS[key]).arg(OWNERS[owner]).arg(CHANNELS[key])
        }
        &Request::Move { key, from, lease } => {
            let (from, to) = (OWNERS[from], OWNERS[1 - from]);
            let command = command.arg(MOVE).arg(1).arg(KEYS[key]).arg(from).arg(to);
            command.arg(lease).arg(CHANNELS[key]).arg(flag)
        }
        Request::Renew(batch) => {
            command.arg(RENEW).arg(batch.len());
            command.arg(batch.iter().map(|&(key, ..)| KEYS[key]).collect::<Vec<_>>());
            let pairs = batch.iter().map(|&(_, owner, lease)| (OWNERS[owner], lease));
            command.arg(pairs.collect::<Vec<_>>())
        }
        &Request::ForceUnlock { key } => command.arg(FORCE_UNLOCK).arg(1).arg(KEYS[key]).arg(CHANNELS[key]),
    };
    command
}

/// The server, and connections that observe it.
struct Bench {
    commands: Connection,
    listener: Connection,
    /// These only count as subscribers.
    _subscribers: Vec<Connection>,
    /// Each request with the state that it found and its reply, over all sequences.
    reached: BTreeSet<String>,
}

impl Bench {
    fn new(server: &Server) -> Self {
        let mut commands = server.cli();
        // An expired record stays until a command touches it, and the script must be the first one to do so.
        redis::cmd("DEBUG").arg("SET-ACTIVE-EXPIRE").arg(0).exec(&mut commands).unwrap();
        let subscribe = |command: &str, channel: &str| {
            let mut connection = server.cli();
            connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            redis::cmd(command).arg(channel).exec(&mut connection).unwrap();
            connection
        };
        let subscribers = (0..2)
            .flat_map(|key| (0..SUBSCRIPTIONS[key]).map(move |_| subscribe("SUBSCRIBE", CHANNELS[key])));
        Self {
            commands,
            _subscribers: subscribers.collect(),
            listener: subscribe("PSUBSCRIBE", "*"),
            reached: BTreeSet::new(),
        }
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), String> {
        run_and_look(&mut self.commands, &[redis::cmd("FLUSHALL")], &[]);
        let mut model = Model::new();
        let mut sent = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            self.step(step, &mut model, &mut sent)
                .map_err(|why| format!("{why}\nat step {} of {}: {step:?}", number + 1, steps.len()))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, model: &mut Model, sent: &mut Vec<Request>) -> Result<(), String> {
        let by_hand = |words: &[&str]| redis::cmd(words[0]).arg(&words[1..]).to_owned();
        match *step {
            Step::Send { ref request, repeated } => {
                let mut request = request.clone();
                if let Request::Recount { key, owner, ref mut from, .. } = request
                    && let (None, Found::Mine(count)) = (*from, model.records[key].find(owner))
                {
                    *from = Some(count);
                }
                sent.push(request.clone());
                self.send(&request, repeated, model)
            }
            Step::Again { back, repeated } => match sent.iter().rev().nth(back % sent.len().max(1)) {
                Some(request) => self.send(request, repeated, model),
                None => Ok(()),
            },
            Step::Age(key) => {
                let asked = self.change(&[by_hand(&["PEXPIRE", KEYS[key], &LITTLE.to_string()])]);
                model.records[key].lives(LITTLE, false, asked);
                self.compare(model)
            }
            Step::Expire(key) => {
                let asked = self.change(&[by_hand(&["PEXPIRE", KEYS[key], "1"])]);
                // A look would delete the record, and the next step must find it there with its time over.
                while self.change(&[]).from <= asked.to + 1 {}
                model.records[key] = Record::NOTHING;
                Ok(())
            }
            Step::Delete(key) => {
                self.change(&[by_hand(&["DEL", KEYS[key]])]);
                model.records[key] = Record::NOTHING;
                self.compare(model)
            }
            Step::Java { key, count, lease } => {
                let written = by_hand(&["HSET", KEYS[key], JAVA, &count.to_string()]);
                let lives = match lease {
                    Some(lease) => by_hand(&["PEXPIRE", KEYS[key], &lease.to_string()]),
                    None => by_hand(&["PERSIST", KEYS[key]]),
                };
                let asked = self.change(&[written, lives]);
                let record = &mut model.records[key];
                record.set(JAVA, count.cast_signed());
                record.end = lease.map_or(End::Never, |lease| End::after(lease, asked));
                self.compare(model)
            }
            Step::Spoil(key) => {
                self.change(&[by_hand(&["SET", KEYS[key], "precious"])]);
                model.records[key] = Record { content: Content::Text("precious".into()), end: End::Never };
                self.compare(model)
            }
        }
    }

    /// Writes by hand, and returns when.
    fn change(&mut self, commands: &[Cmd]) -> Window {
        run_and_look(&mut self.commands, commands, &[]).1
    }

    fn send(&mut self, request: &Request, repeated: bool, model: &mut Model) -> Result<(), String> {
        let over = redis::cmd("PUBLISH").arg("over").arg("").to_owned();
        let commands = [command(request, repeated), over];
        let (replies, asked, seen) = run_and_look(&mut self.commands, &commands, &KEYS);
        let published = self.published();
        let outcomes = model.answer(request, repeated, asked);
        for (reached, reply) in &outcomes {
            let again = if repeated && request.is_flagged() { "again " } else { "" };
            self.reached.insert(format!("{again}{} {reached} {}", request.name(), reply.word()));
        }
        fits(request, &outcomes, &replies[0], asked)?;
        let expected = std::mem::take(&mut model.published);
        if published != expected {
            return Err(format!("published {published:?} instead of {expected:?}"));
        }
        look(model, &seen)
    }

    fn compare(&mut self, model: &mut Model) -> Result<(), String> {
        look(model, &run_and_look(&mut self.commands, &[], &KEYS).2)
    }

    /// The messages up to the mark, with their channels.
    fn published(&mut self) -> Vec<(String, String)> {
        let mut published = Vec::new();
        loop {
            let push = self.listener.recv_response().expect("the mark comes");
            let (_, _, channel, message): (String, String, String, String) =
                redis::from_redis_value(push).expect("a message of a pattern");
            if channel == "over" {
                return published;
            }
            published.push((channel, message));
        }
    }
}

/// Whether the server's reply is the one that the model expects.
fn fits(request: &Request, outcomes: &[Outcome], reply: &Value, asked: Window) -> Result<(), String> {
    let text = |word: &str| Value::BulkString(word.as_bytes().to_vec());
    let fitting = match (request, outcomes) {
        (Request::Renew(_), all) => {
            let numbers = all.iter().map(|(_, reply)| match reply {
                Reply::Number(number) => Value::Int(*number),
                other => unreachable!("a renewal replies with numbers, not {other:?}"),
            });
            let numbers: Vec<_> = numbers.collect();
            match i64::try_from(numbers.len()) {
                Ok(all) if numbers.iter().all(|number| *number == Value::Int(1)) => *reply == Value::Int(all),
                _ => *reply == Value::Array(numbers),
            }
        }
        (_, &[(_, expected)]) => match expected {
            Reply::Number(number) | Reply::Done(_, number) => *reply == Value::Int(number),
            Reply::Word(word) => *reply == Value::Array(vec![text(word)]),
            Reply::Count(word, number) => *reply == Value::Array(vec![text(word), Value::Int(number)]),
            // Before Redis 7, the code of an error inside a script was part of the text of an ERR.
            Reply::WrongType => {
                matches!(reply, Value::ServerError(error) if format!("{error:?}").contains("WRONGTYPE"))
            }
            Reply::Left(word, mut end) => match reply {
                Value::Array(items) => match (word, &items[..]) {
                    // The reply names the holder, too.
                    ("BUSY", [status, Value::Int(ttl), Value::BulkString(_)])
                    | ("STALE", [status, Value::Int(ttl)]) => {
                        *status == text(word) && end.agrees(*ttl, asked)
                    }
                    _ => false,
                },
                _ => false,
            },
        },
        (_, other) => unreachable!("expected one reply, not {other:?}"),
    };
    let expected: Vec<_> = outcomes.iter().map(|(_, reply)| reply).collect();
    if fitting { Ok(()) } else { Err(format!("replied {reply:?} instead of {expected:?}")) }
}

/// Whether the keys match the model.
fn look(model: &mut Model, seen: &[Seen]) -> Result<(), String> {
    for ((record, seen), key) in model.records.iter_mut().zip(seen).zip(KEYS) {
        let lives = match record.content {
            Content::Nothing => seen.ttl == -2,
            _ => record.end.agrees(seen.ttl, seen.asked),
        };
        if record.content != seen.content || !lives {
            return Err(format!("{key} is {seen:?} instead of {record:?}"));
        }
    }
    Ok(())
}
