//! The public API against a model of the holds: random sequences of calls by four owners in two clients on two keys of
//! a real server. Between calls, records are deleted, force-unlocked, and held by a Java client. After each step, the
//! outcome, the record with its expiry, the state of each guard and the answers to an owner's queries must match the
//! model.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use redis::Connection;
use redisson_lock::{Client, Error, HoldState, Holder, LockGuard, LossReason, Owner};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::support::random::{USUAL_CASES, sequences};
use crate::support::record::{Content, End, Seen, Window, run_and_look};
use crate::support::{Server, eventually};

const KEYS: [&str; 2] = ["orders", "stock"];
const OWNERS: [&str; 2] = ["east", "west"];
const JAVA: &str = "33333333-3333-4333-8333-333333333333:57";
/// In ms: the lease of the watchdog and of Java. Nothing is due before a third of it, which is long after a sequence.
const LEASE: i64 = 30_000;
/// In ms: one that is shorter and one that is longer than [`LEASE`].
const FIXED: [i64; 2] = [20_000, 60_000];
/// Upper bound for an effect that should come at once.
const SOON: Duration = Duration::from_secs(5);

/// Every outcome of a step.
const OUTCOMES: [&str; 19] = [
    "first",
    // The client believed that another of its owners held the lock.
    "first, after a lost one",
    "again",
    "again, but gone",
    "again, but taken",
    "busy",
    "unlock one of many",
    "unlock the last",
    "unlock, but gone",
    "unlock, but taken",
    "unlock, but not held",
    "drop one of many",
    "drop the last",
    "drop, but gone",
    "drop, but taken",
    "drop, but not held",
    "force",
    "force nothing",
    "by hand",
];

/// Clients, owners and keys are numbers.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Acquires, with a fixed lease or the watchdog's.
    Lock {
        caller: Caller,
        key: usize,
        fixed: Option<i64>,
    },
    /// Unlocks the guard of that number, modulo the number of guards.
    Unlock(usize),
    Drop(usize),
    ForceUnlock {
        client: usize,
        key: usize,
    },
    Delete(usize),
    /// A Java client takes the lock if it is free.
    Java {
        key: usize,
        count: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Caller {
    client: usize,
    owner: usize,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Done,
    Granted,
    Busy,
    Was(bool),
    /// With the holder that has the lock instead, and its count.
    Lost(LossReason, Option<(String, u64)>),
    NotHeld(Option<(String, u64)>),
    Other(String),
}

#[test]
fn the_api_matches_the_record_in_any_order() {
    let server = Server::start();
    let runtime = Runtime::new().unwrap();
    let reached = RefCell::new(BTreeSet::new());
    let cases = sequences(step(), |steps| runtime.block_on(run(&server, steps, &mut reached.borrow_mut())));
    let missing: Vec<_> = OUTCOMES.iter().filter(|outcome| !reached.borrow().contains(*outcome)).collect();
    // A run of few sequences misses some.
    assert!(cases < USUAL_CASES || missing.is_empty(), "never reached: {missing:?}");
    assert!(reached.borrow().iter().all(|outcome| OUTCOMES.contains(outcome)), "{reached:?}");
}

fn step() -> impl Strategy<Value = Step> {
    let key = || prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    let caller = (prop_oneof![2 => Just(0_usize), 1 => Just(1)], 0..OWNERS.len());
    let caller = caller.prop_map(|(client, owner)| Caller { client, owner });
    let fixed = select(vec![None, Some(FIXED[0]), Some(FIXED[1])]);
    prop_oneof![
        12 => (caller, key(), fixed).prop_map(|(caller, key, fixed)| Step::Lock { caller, key, fixed }),
        5 => (0..8_usize).prop_map(Step::Unlock),
        4 => (0..8_usize).prop_map(Step::Drop),
        1 => (0..2_usize, key()).prop_map(|(client, key)| Step::ForceUnlock { client, key }),
        1 => key().prop_map(Step::Delete),
        1 => (key(), 1..=3_u64).prop_map(|(key, count)| Step::Java { key, count }),
    ]
}

/// A hold that was granted.
#[derive(Clone, Debug)]
struct Hold {
    caller: Caller,
    key: usize,
    text: String,
    state: HoldState,
    /// The earliest and the latest possible deadline.
    deadline: (Instant, Instant),
}

/// One level of a hold, whose guard was not given back yet.
#[derive(Clone, Copy, Debug)]
struct Level {
    hold: usize,
    /// The earliest and the latest possible end of a fixed lease. `None` if the watchdog renews.
    fixed: Option<(Instant, Instant)>,
}

/// The holder of a record.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RecordHolder {
    Nobody,
    Hold(usize),
    Java(u64),
}

#[derive(Clone, Debug)]
struct Model {
    records: [(RecordHolder, End); 2],
    holds: Vec<Hold>,
    levels: Vec<Level>,
}

/// When a step ran, by the server's clock and by ours.
#[derive(Clone, Copy)]
struct When {
    asked: Window,
    began: Instant,
    ended: Instant,
}

impl When {
    /// The earliest and the latest possible end of a lease that the step requested.
    fn after(&self, lease: i64) -> (Instant, Instant) {
        (self.began + ms(lease), self.ended + ms(lease))
    }
}

impl Model {
    /// The hold that the client believes to be live.
    fn believed(&self, client: usize, key: usize) -> Option<usize> {
        self.holds
            .iter()
            .position(|hold| hold.caller.client == client && hold.key == key && hold.state.is_live())
    }

    /// The number of levels of a hold.
    fn count(&self, hold: usize) -> u64 {
        self.levels.iter().filter(|level| level.hold == hold).count() as u64
    }

    /// The holder of a record and its count, as every query must report them.
    fn holder(&self, key: usize) -> Option<(String, u64)> {
        match self.records[key].0 {
            RecordHolder::Nobody => None,
            RecordHolder::Hold(hold) => Some((self.holds[hold].text.clone(), self.count(hold))),
            RecordHolder::Java(count) => Some((JAVA.to_owned(), count)),
        }
    }

    /// Whether `lock` would return without waiting.
    fn is_open_to(&self, caller: Caller, key: usize) -> bool {
        match self.believed(caller.client, key) {
            Some(hold) => self.holds[hold].caller == caller,
            None => self.records[key].0 == RecordHolder::Nobody,
        }
    }

    /// Applies a step that ran at `when`, in which a new hold got the owner id `text`. Returns the step's name in
    /// [`OUTCOMES`] and its outcome.
    fn apply(&mut self, step: Step, when: When, text: &str) -> (&'static str, Outcome) {
        match step {
            Step::Lock { caller, key, fixed } => match self.believed(caller.client, key) {
                Some(hold) if self.holds[hold].caller == caller => self.lock_again(hold, fixed, when),
                other => self.lock_first(caller, key, fixed, when, text, other),
            },
            Step::Unlock(at) => self.give_back(at, when),
            Step::Drop(at) => {
                let (label, _) = self.give_back(at, when);
                let dropped =
                    OUTCOMES.iter().find(|o| o.strip_prefix("drop") == label.strip_prefix("unlock"));
                (dropped.unwrap(), Outcome::Done)
            }
            Step::ForceUnlock { key, .. } => {
                match std::mem::replace(&mut self.records[key].0, RecordHolder::Nobody) {
                    RecordHolder::Nobody => ("force nothing", Outcome::Was(false)),
                    _ => ("force", Outcome::Was(true)),
                }
            }
            Step::Delete(key) => {
                self.records[key].0 = RecordHolder::Nobody;
                ("by hand", Outcome::Done)
            }
            Step::Java { key, count } => {
                if self.records[key].0 == RecordHolder::Nobody {
                    self.records[key] = (RecordHolder::Java(count), End::after(LEASE, when.asked));
                }
                ("by hand", Outcome::Done)
            }
        }
    }

    fn lock_first(
        &mut self,
        caller: Caller,
        key: usize,
        fixed: Option<i64>,
        when: When,
        text: &str,
        lost: Option<usize>,
    ) -> (&'static str, Outcome) {
        if self.records[key].0 != RecordHolder::Nobody {
            return ("busy", Outcome::Busy);
        }
        let lease = fixed.unwrap_or(LEASE);
        if let Some(lost) = lost {
            self.lose(lost, LossReason::Gone);
        }
        let hold = self.holds.len();
        self.records[key] = (RecordHolder::Hold(hold), End::after(lease, when.asked));
        let deadline = when.after(lease);
        self.holds.push(Hold { caller, key, text: text.to_owned(), state: HoldState::Held, deadline });
        self.levels.push(Level { hold, fixed: fixed.map(|lease| when.after(lease)) });
        (if lost.is_some() { "first, after a lost one" } else { "first" }, Outcome::Granted)
    }

    fn lock_again(&mut self, hold: usize, fixed: Option<i64>, when: When) -> (&'static str, Outcome) {
        match self.records[self.holds[hold].key].0 {
            RecordHolder::Hold(has) if has == hold => {
                self.levels.push(Level { hold, fixed: fixed.map(|lease| when.after(lease)) });
                self.renew(hold, fixed.unwrap_or(LEASE), when);
                ("again", Outcome::Granted)
            }
            RecordHolder::Nobody => {
                self.lose(hold, LossReason::Gone);
                ("again, but gone", Outcome::Lost(LossReason::Gone, None))
            }
            _ => {
                self.lose(hold, LossReason::Taken);
                ("again, but taken", Outcome::Lost(LossReason::Taken, None))
            }
        }
    }

    fn give_back(&mut self, at: usize, when: When) -> (&'static str, Outcome) {
        let Level { hold, .. } = self.levels.remove(at);
        let key = self.holds[hold].key;
        if !self.holds[hold].state.is_live() {
            return ("unlock, but not held", Outcome::NotHeld(self.holder(key)));
        }
        let others: Vec<_> = self.levels.iter().filter(|level| level.hold == hold).copied().collect();
        let (label, reason) = match self.records[key].0 {
            RecordHolder::Hold(has) if has == hold && !others.is_empty() => {
                let fixed: Option<Vec<_>> = others.iter().map(|level| level.fixed).collect();
                match fixed {
                    None => self.renew(hold, LEASE, when),
                    // The hold lasts as long as the longest of its fixed leases.
                    Some(ends) => self.end_by(hold, &ends),
                }
                return ("unlock one of many", Outcome::Done);
            }
            RecordHolder::Hold(has) if has == hold => {
                self.records[key].0 = RecordHolder::Nobody;
                self.holds[hold].state = HoldState::Released;
                return ("unlock the last", Outcome::Done);
            }
            RecordHolder::Nobody => ("unlock, but gone", LossReason::Gone),
            _ => ("unlock, but taken", LossReason::Taken),
        };
        self.lose(hold, reason);
        (label, Outcome::Lost(reason, self.holder(key)))
    }

    /// A confirmed request never shortens a lease.
    fn renew(&mut self, hold: usize, lease: i64, when: When) {
        let hold = &mut self.holds[hold];
        let end = &mut self.records[hold.key].1;
        *end = end.renewed(lease, when.asked);
        let (earliest, latest) = hold.deadline;
        let renewed = when.after(lease);
        hold.deadline = (earliest.max(renewed.0), latest.max(renewed.1));
    }

    /// Ends a hold at the latest of these times, unless it ends before. Each is a range.
    fn end_by(&mut self, hold: usize, ends: &[(Instant, Instant)]) {
        let (earliest, latest) = self.holds[hold].deadline;
        let last = |end: fn(&(Instant, Instant)) -> Instant| ends.iter().map(end).max().unwrap();
        self.holds[hold].deadline = (earliest.min(last(|end| end.0)), latest.min(last(|end| end.1)));
    }

    fn lose(&mut self, hold: usize, reason: LossReason) {
        self.holds[hold].state = HoldState::Lost(reason);
    }

    /// Whether the records match the model.
    fn check_records(&mut self, seen: &[Seen]) -> Result<(), String> {
        for (key, seen) in seen.iter().enumerate() {
            let (content, lives) = match self.holder(key) {
                None => (Content::Nothing, seen.ttl == -2),
                Some((text, count)) => {
                    let fields = BTreeMap::from([(text, count.to_string())]);
                    (Content::Hash(fields), self.records[key].1.agrees(seen.ttl, seen.asked))
                }
            };
            if content != seen.content || !lives {
                let end = self.records[key].1;
                return Err(format!("{} is {seen:?} instead of {content:?} until {end:?}", KEYS[key]));
            }
        }
        Ok(())
    }

    /// Whether the state and the deadline of each guard match the model.
    fn check_guards(&self, guards: &[LockGuard]) -> Result<(), String> {
        for (level, guard) in self.levels.iter().zip(guards) {
            let hold = &self.holds[level.hold];
            if guard.state() != hold.state || guard.owner() != hold.text {
                return Err(format!("{guard:?} is not {hold:?}"));
            }
            // The guard converts its deadline between two clocks. Allow for the time between the two readings.
            let asked = Instant::now();
            let reported = guard.deadline();
            let (earliest, latest) = hold.deadline;
            if hold.state.is_live() && !(reported <= latest && reported + asked.elapsed() >= earliest) {
                let [reported, earliest, latest] = [reported, earliest, latest].map(|at| at - asked);
                return Err(format!("{guard:?} ends in {reported:?}, not in {earliest:?} to {latest:?}"));
            }
        }
        Ok(())
    }
}

fn ms(lease: i64) -> Duration {
    Duration::from_millis(lease.unsigned_abs())
}

async fn run(server: &Server, steps: &[Step], reached: &mut BTreeSet<&'static str>) -> Result<(), String> {
    let mut bench = Bench::new(server).await;
    for (number, &step) in steps.iter().enumerate() {
        let caller = Caller { client: number % 2, owner: number / 2 % 2 };
        let done = async {
            reached.extend(bench.step(step).await?);
            bench.check_queries(caller, usize::from(number % 5 == 4)).await
        };
        done.await.map_err(|why| format!("{why}\nat step {} of {}: {step:?}", number + 1, steps.len()))?;
    }
    // Nothing may be left of the guards that remain.
    while !bench.guards.is_empty() {
        reached.extend(bench.step(Step::Drop(0)).await.map_err(|why| format!("{why}\nat the end"))?);
    }
    Ok(())
}

/// The clients and the model of one sequence.
struct Bench {
    server: Connection,
    clients: [Client; 2],
    owners: [Owner; 2],
    guards: Vec<LockGuard>,
    model: Model,
    /// For each client: the owner ids that began a hold, and those of them that must not begin another.
    texts: [BTreeSet<String>; 2],
    retired: [BTreeSet<String>; 2],
}

impl Bench {
    async fn new(server: &Server) -> Self {
        let mut cli = server.cli();
        redis::cmd("FLUSHALL").exec(&mut cli).unwrap();
        let client = || async { Client::connect(server.url()).await.unwrap() };
        Self {
            server: cli,
            clients: [client().await, client().await],
            owners: OWNERS.map(|owner| Owner::new(owner).unwrap()),
            guards: Vec::new(),
            model: Model {
                records: [(RecordHolder::Nobody, End::Never); 2],
                holds: Vec::new(),
                levels: Vec::new(),
            },
            texts: Default::default(),
            retired: Default::default(),
        }
    }

    /// Runs one step, and returns its name in [`OUTCOMES`]. A step that needs a guard does nothing where there is none.
    async fn step(&mut self, step: Step) -> Result<Option<&'static str>, String> {
        let step = match step {
            Step::Unlock(_) | Step::Drop(_) if self.guards.is_empty() => return Ok(None),
            Step::Unlock(at) => Step::Unlock(at % self.guards.len()),
            Step::Drop(at) => Step::Drop(at % self.guards.len()),
            other => other,
        };
        let (before, began) = (self.clock(), Instant::now());
        let outcome = self.call(step).await;
        // A drop takes effect in the background. All other steps must match at the first look.
        let patience = if matches!(step, Step::Drop(_)) { SOON } else { Duration::ZERO };
        let mut settled = Err(String::new());
        let settle = eventually(|| {
            let mut model = self.model.clone();
            let (_, _, seen) = run_and_look(&mut self.server, &[], &KEYS);
            let asked = Window { from: before.from, to: seen[0].asked.from };
            let when = When { asked, began, ended: Instant::now() };
            let text = self.guards.last().map_or("", |guard| guard.owner());
            let (label, expected) = model.apply(step, when, text);
            settled = if outcome != expected {
                Err(format!("{outcome:?} instead of {expected:?}"))
            } else {
                model
                    .check_records(&seen)
                    .and_then(|()| model.check_guards(&self.guards))
                    .map(|()| (label, model))
            };
            settled.is_ok()
        });
        let _ = timeout(patience, settle).await;
        let (label, model) = settled?;
        let before_it = std::mem::replace(&mut self.model, model).holds;
        if label.starts_with("first") {
            self.check_owner_id()?;
        }
        // A reported loss retires all owner ids of the client. A drop reports nothing.
        let found = before_it.iter().zip(&self.model.holds).find(|(was, hold)| was.state != hold.state);
        if let Some((_, Hold { caller, state: HoldState::Lost(_), .. })) = found
            && !matches!(step, Step::Drop(_))
        {
            self.retired[caller.client] = self.texts[caller.client].clone();
        }
        Ok(Some(label))
    }

    async fn call(&mut self, step: Step) -> Outcome {
        match step {
            Step::Lock { caller, key, fixed } => {
                let mut lock =
                    self.clients[caller.client].lock(KEYS[key]).with_owner(&self.owners[caller.owner]);
                if let Some(lease) = fixed {
                    lock = lock.with_lease(ms(lease));
                }
                let locked = if self.model.is_open_to(caller, key) {
                    match timeout(SOON, lock.lock()).await {
                        Ok(locked) => locked.map(Some),
                        Err(_) => return Outcome::Other("waits".into()),
                    }
                } else {
                    lock.try_lock().await
                };
                match locked {
                    Ok(Some(guard)) => {
                        self.guards.push(guard);
                        Outcome::Granted
                    }
                    Ok(None) => Outcome::Busy,
                    Err(error) => match failed(error) {
                        // A failed acquire does not query the holder.
                        Outcome::Lost(reason, _) => Outcome::Lost(reason, None),
                        other => other,
                    },
                }
            }
            Step::Unlock(at) => match self.guards.remove(at).unlock().await {
                Ok(()) => Outcome::Done,
                Err(error) => failed(error),
            },
            Step::Drop(at) => {
                drop(self.guards.remove(at));
                Outcome::Done
            }
            Step::ForceUnlock { client, key } => {
                self.clients[client].lock(KEYS[key]).force_unlock().await.map_or_else(failed, Outcome::Was)
            }
            Step::Delete(key) => {
                redis::cmd("DEL").arg(KEYS[key]).exec(&mut self.server).unwrap();
                Outcome::Done
            }
            Step::Java { key, count } => {
                if self.model.records[key].0 == RecordHolder::Nobody {
                    let mut write = redis::pipe();
                    write.cmd("HSET").arg(KEYS[key]).arg(JAVA).arg(count);
                    write.cmd("PEXPIRE").arg(KEYS[key]).arg(LEASE).exec(&mut self.server).unwrap();
                }
                Outcome::Done
            }
        }
    }

    /// Whether the newest hold's owner id belongs to its owner, and is not retired.
    fn check_owner_id(&mut self) -> Result<(), String> {
        let hold = self.model.holds.last().unwrap();
        let client = hold.caller.client;
        let text = format!("{}:owner-{}", self.clients[client].id(), OWNERS[hold.caller.owner]);
        let generation = hold
            .text
            .strip_prefix(&text)
            .map(|generation| generation.is_empty() || generation.starts_with('~'));
        if generation != Some(true) || self.retired[client].contains(&hold.text) {
            return Err(format!("{hold:?} should have a fresh owner id that begins with {text}"));
        }
        self.texts[client].insert(hold.text.clone());
        Ok(())
    }

    /// Whether the answers to a caller's queries match the model.
    async fn check_queries(&mut self, caller: Caller, key: usize) -> Result<(), String> {
        let lock = self.clients[caller.client].lock(KEYS[key]).with_owner(&self.owners[caller.owner]);
        let holder = self.model.holder(key);
        let count = match self.model.records[key].0 {
            RecordHolder::Hold(hold) if self.model.holds[hold].caller == caller => self.model.count(hold),
            _ => 0,
        };
        let from = self.clock().from;
        let reported = tokio::join!(
            async { lock.holder().await.map(|holder| holder.map(named)) },
            lock.hold_count(),
            lock.is_held(),
            lock.is_locked(),
            lock.remaining_lease(),
        );
        let asked = Window { from, to: self.clock().to };
        let fits = match &reported {
            (Ok(named), Ok(times), Ok(held), Ok(locked), Ok(left)) => {
                let lives = left.map(|left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
                *named == holder
                    && (*times, *held, *locked) == (count, count > 0, holder.is_some())
                    && lives.is_some() == holder.is_some()
                    && lives.is_none_or(|lives| self.model.records[key].1.agrees(lives, asked))
            }
            _ => false,
        };
        if fits {
            return Ok(());
        }
        Err(format!("{caller:?} got {reported:?} for {} instead of {holder:?}, own count {count}", KEYS[key]))
    }

    fn clock(&mut self) -> Window {
        run_and_look(&mut self.server, &[], &[]).1
    }
}

fn failed(error: Error) -> Outcome {
    match error {
        Error::Lost { reason, holder, .. } => Outcome::Lost(reason, holder.map(named)),
        Error::NotHeld { holder, .. } => Outcome::NotHeld(holder.map(named)),
        other => Outcome::Other(format!("{other:?}")),
    }
}

fn named(holder: Holder) -> (String, u64) {
    (holder.owner().to_owned(), holder.count())
}
