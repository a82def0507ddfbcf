//! What a task of a client does, again and again, and what it tells of it.
//!
//! - `hold <process> <task> <owner> <key> <how> <lease> <asked> <start> <state> <read> <written> <end> <left> <state>
//!   <deadline> <lost> <delayed> <outcome> <done> <token> <share> <held>`: times in ns of the boot-time clock. `lease` is the fixed one
//!   in ms, 0 with a watchdog; `left` what the deadline had left when the last state was read, 1 where there is none;
//!   `deadline` the last one that was seen while the hold was live, and `lost` when it was told to be lost, 0 if it was
//!   not; `delayed` what the machine kept from the last look before; `token` the fencing token, 0 if there
//!   is none; `share` how much of the key's capacity it takes (see `keys.rs`); `held` the last time at which its state was
//!   read as held, 0 if never. A hold of several things has a line for each. Java writes no `held`.
//! - `call <process> <task> <what> <start> <end> <limit in ms> <outcome> <delayed>`: a call that must end on time, if it took longer
//!   than a moment or failed. `delayed` is what the machine kept from it (see `path.rs`).

mod kinds;

use crate::client::RESPONSE;
use crate::hand::{Hand, Look};
use crate::keys;
use crate::ledger::{Ledger, error_word, measured, now};
use crate::random::Random;
use kinds::Key;
pub use kinds::{force_unlock, wanted};
use redisson_lock::{Client, Error, Holding, Lock};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Calls that end sooner than this are not worth a line.
const MOMENT: Duration = Duration::from_millis(20);
/// Holds longer than this are watched while they last.
const WATCHED: Duration = Duration::from_millis(100);
/// How often a watched hold's deadline is read.
const LOOK: Duration = Duration::from_millis(20);
/// Rest after an error, so that a server that refuses is not asked without end.
const REST: Duration = Duration::from_millis(20);

/// Keys of which one follows the other.
const FRESH: u64 = 64;
/// One of so many is held on to.
const KEPT: u64 = 16;

pub struct Work {
    pub client: Client,
    pub ledger: Arc<Ledger>,
    pub index: u64,
    pub task: u64,
    pub lease: Duration,
    pub stopping: Arc<AtomicBool>,
    pub random: Random,
}

/// A hold in the making.
#[derive(Clone)]
struct Tale {
    key: Key,
    how: &'static str,
    /// Zero with a watchdog.
    lease: Duration,
    asked: u64,
    owner: String,
    token: u64,
    start: u64,
    first: String,
    /// Of each part.
    read: Vec<u64>,
    written: Vec<u64>,
    end: u64,
    left: u64,
    last: String,
    deadline: u64,
    lost: u64,
    delayed: u64,
    held: u64,
}

impl Tale {
    fn new(key: &Key, how: &'static str, lease: Duration) -> Self {
        Self {
            key: key.clone(),
            how,
            lease,
            asked: now(),
            owner: "-".into(),
            token: 0,
            start: 0,
            first: "-".into(),
            read: Vec::new(),
            written: Vec::new(),
            end: 0,
            left: 0,
            last: "-".into(),
            deadline: 0,
            lost: 0,
            delayed: 0,
            held: 0,
        }
    }

    /// `at` was read before the state: a hold that is held later was held then, too.
    fn see(&mut self, at: u64, state: &str) {
        if state == "Held" {
            self.held = at;
        }
    }
}

impl Work {
    /// A key that nobody else wants: what happens there is this client's doing alone.
    pub async fn own(mut self) {
        let key = Key::new("reentrant", format!("own:{}", self.index), 2 + self.index);
        while !self.stopping.load(Ordering::Relaxed) {
            let stay = Duration::from_micros(self.random.between(0, 2000));
            match self.random.between(0, 3) {
                0 => self.tried(&key, stay).await,
                1 => self.leased(&key, stay).await,
                _ => self.plain(&key, stay).await,
            }
            self.rest(5, 15).await;
        }
    }

    /// Keys that nobody wants besides, one after the other, so that none is in the way of the next: they tell whether their
    /// servers can be had. Some are held for longer than a lease, so that at all times some have just been taken.
    pub async fn fresh(mut self) {
        let mut number = 0;
        let mut holding = JoinSet::new();
        while !self.stopping.load(Ordering::Relaxed) {
            let index = self.index;
            let key =
                Key::new("reentrant", format!("fresh:{index}:{}", number % FRESH), keys::fresh_cell(index));
            if number % KEPT == 0 {
                let (work, stay) = (self.fork(), self.lease * 7 / 4);
                let key = Key { record: format!("kept:{index}:{}", number % (FRESH * KEPT)), ..key };
                let key = Key { parts: vec![(key.record.clone(), keys::fresh_cell(index))], ..key };
                holding.spawn(async move { work.tried(&key, stay).await });
            } else {
                self.tried(&key, Duration::ZERO).await;
            }
            number += 1;
            self.rest(5, 15).await;
        }
        while holding.join_next().await.is_some() {}
    }

    /// Keys that all clients want at one time, each in a slot of its own: one client waits for it, and the others give up soon. A
    /// client that gave up does not come back to a key within a lease, so what it leaves there without an answer is in the way of
    /// the one that waits, and no later request of its own clears it.
    pub async fn passing(mut self) {
        let mut under_way = JoinSet::new();
        let slot_ns = keys::PASSING_MS * 1_000_000;
        let mut slot = now() / slot_ns;
        while !self.stopping.load(Ordering::Relaxed) {
            // What was missed while the process did not run is left out.
            slot = (slot + 1).max(now() / slot_ns);
            tokio::time::sleep(Duration::from_nanos((slot * slot_ns).saturating_sub(now()))).await;
            let number = slot % keys::PASSING;
            let key = Key::new("reentrant", format!("passing:{number}"), keys::passing_cell(number));
            let waits = (slot + self.index).is_multiple_of(keys::CLIENTS);
            let mut work = self.fork();
            under_way.spawn(async move {
                if waits {
                    // Behind those who give up.
                    work.rest(10, 30).await;
                    return work.plain(&key, Duration::ZERO).await;
                }
                work.rest(0, 20).await;
                match work.random.between(0, 2) {
                    0 => work.tried(&key, Duration::ZERO).await,
                    1 => work.waited(&key, Duration::ZERO).await,
                    _ => work.cancelled(&key, Duration::ZERO).await,
                }
            });
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Two keys at once and one of each other kind, for longer than a lease: they live by one renewal. All but one have a rival,
    /// another client that wants them at all times and gets in as soon as a renewal fails.
    pub async fn long(mut self, kinds: Vec<&'static str>) {
        let (index, rivals) = (self.index, keys::of_rivals(self.index));
        while !self.stopping.load(Ordering::Relaxed) {
            // Some are to outlive a lease after a fault.
            let most = self.lease.as_millis() as u64 * 7 / 4;
            let stay = Duration::from_millis(self.random.between(500, most));
            let mut holding = JoinSet::new();
            for kind in &kinds {
                let mut work = self.fork();
                match *kind {
                    "reentrant" => {
                        let pair = self.fork();
                        holding.spawn(async move {
                            let key = Key::new("reentrant", format!("long:{rivals}"), 16 + rivals);
                            work.plain(&key, stay).await;
                        });
                        holding.spawn(async move {
                            let key = Key::new("reentrant", format!("pair:{index}"), 32 + index);
                            pair.plain(&key, stay).await;
                        });
                    }
                    "multi" => {
                        let parts = [rivals, rivals + 8]
                            .map(|at| (format!("multi:long{at}"), keys::long_cell("multi", at)));
                        holding.spawn(async move { work.several(parts, stay).await });
                    }
                    "expirable" => drop(holding.spawn(async move { work.long_permit(stay).await })),
                    // It has no lease.
                    "semaphore" => {}
                    _ => {
                        let side = if self.random.between(0, 1) == 0 { "read" } else { "write" };
                        let kind = if *kind == "readwrite" { side } else { kind };
                        let mut key = Key::long(kind, rivals);
                        if kind == "group" {
                            key.parts[0].0 += "/a";
                        }
                        holding.spawn(async move { work.plain(&key, stay).await });
                    }
                }
            }
            while holding.join_next().await.is_some() {}
            self.rest(1, 50).await;
        }
    }

    /// A key that two clients want at all times, and hold for longer than a round trip: what the network still delivers of
    /// one client meets the next hold.
    pub async fn duel(mut self) {
        let rivals = keys::of_rivals(self.index);
        let key = Key::new("reentrant", format!("duel:{rivals}"), 48 + rivals);
        while !self.stopping.load(Ordering::Relaxed) {
            let stay = Duration::from_millis(self.random.between(10, 50));
            self.plain(&key, stay).await;
        }
    }

    /// The keys that everybody wants, in every way there is.
    pub async fn hot(mut self) {
        while !self.stopping.load(Ordering::Relaxed) {
            let cell = u64::from(self.random.between(0, 9) >= 8);
            let key = Key::new("reentrant", format!("hot:{cell}"), cell);
            let stay = match self.random.between(0, 99) {
                0 => Duration::from_millis(self.random.between(10, 120)),
                1..10 => Duration::from_millis(self.random.between(2, 10)),
                _ => Duration::from_micros(self.random.between(0, 1500)),
            };
            self.in_some_way(&key, stay).await;
            self.rest(4, 20).await;
        }
    }

    async fn in_some_way(&mut self, key: &Key, stay: Duration) {
        match self.random.between(0, 19) {
            0..8 => self.plain(key, stay).await,
            8..10 => self.tried(key, stay).await,
            10..13 => self.waited(key, stay).await,
            13..15 => self.leased(key, stay).await,
            15..17 => self.reentered(key, stay).await,
            17..19 => self.cancelled(key, stay).await,
            _ => self.in_run(key, stay).await,
        }
    }

    async fn plain(&self, key: &Key, stay: Duration) {
        let tale = Tale::new(key, "lock", Duration::ZERO);
        match self.lock(key).lock().await {
            Ok(guard) => self.hold(guard, tale, stay).await,
            Err(error) => self.failed("lock", tale.asked, &error).await,
        }
    }

    async fn tried(&self, key: &Key, stay: Duration) {
        let tale = Tale::new(key, "try_lock", Duration::ZERO);
        if let Some(guard) = self.call("try_lock", RESPONSE, self.lock(key).try_lock()).await.flatten() {
            self.hold(guard, tale, stay).await;
        }
    }

    async fn waited(&mut self, key: &Key, stay: Duration) {
        let most = if self.random.between(0, 9) == 0 { 3000 } else { 120 };
        let wait = Duration::from_millis(self.random.between(1, most));
        let tale = Tale::new(key, "try_lock_for", Duration::ZERO);
        let asked = self.lock(key);
        if let Some(guard) = self.call("try_lock_for", wait, asked.try_lock_for(wait)).await.flatten() {
            self.hold(guard, tale, stay).await;
        }
    }

    /// Now and then the lease is shorter than the stay.
    async fn leased(&mut self, key: &Key, stay: Duration) {
        let (lease, stay) = match self.random.between(0, 9) {
            0 => (Duration::from_millis(30), Duration::from_millis(50)),
            _ => (Duration::from_millis(self.random.between(200, self.lease.as_millis() as u64)), stay),
        };
        let tale = Tale::new(key, "lease", lease);
        match self.lock(key).with_lease(lease).lock().await {
            Ok(guard) => self.hold(guard, tale, stay).await,
            Err(error) => self.failed("lock", tale.asked, &error).await,
        }
    }

    async fn reentered(&self, key: &Key, stay: Duration) {
        let tale = Tale::new(key, "reentry", Duration::ZERO);
        let lock = self.lock(key);
        match lock.lock().await {
            Ok(guard) => {
                if ["nonreentrant", "value"].contains(&key.kind) {
                    // Were it let in, it would be told as a hold beside the one that it is in.
                    let inner = Tale::new(key, "reentry in vain", Duration::ZERO);
                    match lock.try_lock().await {
                        Ok(Some(again)) => self.hold(again, inner, Duration::ZERO).await,
                        Ok(None) | Err(Error::WouldDeadlock { .. }) => {}
                        Err(error) => self.failed("reenter", inner.asked, &error).await,
                    }
                } else if let Some(inner) = self.call("reenter", RESPONSE, lock.try_lock()).await.flatten() {
                    self.call("unlock", RESPONSE, inner.unlock()).await;
                }
                self.hold(guard, tale, stay).await;
            }
            Err(error) => self.failed("lock", tale.asked, &error).await,
        }
    }

    /// Leaves the queue, unless it was quicker.
    async fn cancelled(&mut self, key: &Key, stay: Duration) {
        let patience = Duration::from_micros(self.random.between(0, 8000));
        let tale = Tale::new(key, "cancel", Duration::ZERO);
        match tokio::time::timeout(patience, self.lock(key).lock()).await {
            Ok(Ok(guard)) => self.hold(guard, tale, stay).await,
            Ok(Err(error)) => self.failed("lock", tale.asked, &error).await,
            Err(_) => {}
        }
    }

    async fn in_run(&self, key: &Key, stay: Duration) {
        // What the body has told when it is cut off.
        let told = Arc::new(Mutex::new(Tale::new(key, "run", Duration::ZERO)));
        let asked = told.lock().expect("whole").asked;
        let (work, telling) = (self, &told);
        let body = |holding: Holding| async move {
            let mut tale = telling.lock().expect("whole").clone();
            work.begin(&holding, &mut tale);
            *telling.lock().expect("whole") = tale.clone();
            work.stay(&holding, &mut tale, stay).await;
            work.finish(&holding, &mut tale);
            *telling.lock().expect("whole") = tale;
        };
        let outcome = self.lock(key).run(body).await;
        let mut tale = told.lock().expect("whole").clone();
        if tale.start == 0 {
            if let Err(error) = outcome {
                self.failed("run", asked, &error).await;
            }
            return;
        }
        if tale.end == 0 {
            (tale.end, tale.last, tale.written) = (now(), "Lost-Run".into(), tale.read.clone());
        }
        self.tell(&tale, &outcome);
    }

    async fn hold(&self, hand: impl Hand, mut tale: Tale, stay: Duration) {
        self.begin(hand.look(), &mut tale);
        self.stay(hand.look(), &mut tale, stay).await;
        self.finish(hand.look(), &mut tale);
        self.give_back(hand, tale).await;
    }

    async fn give_back(&self, hand: impl Hand, tale: Tale) {
        let began = now();
        let (outcome, delayed) = measured(hand.give_back()).await;
        self.timed("unlock", began, delayed, RESPONSE, &outcome);
        self.tell(&tale, &outcome);
    }

    fn begin(&self, holding: &impl Look, tale: &mut Tale) {
        tale.start = now();
        tale.first = holding.state();
        tale.see(tale.start, &tale.first.clone());
        (tale.owner, tale.token) = (holding.owner(), holding.token());
        tale.read = self.read(&tale.key);
    }

    fn read(&self, key: &Key) -> Vec<u64> {
        key.parts.iter().map(|(_, cell)| if key.guards() { self.ledger.read(*cell) } else { 0 }).collect()
    }

    async fn stay(&self, holding: &impl Look, tale: &mut Tale, stay: Duration) {
        if stay < WATCHED {
            if !stay.is_zero() {
                tokio::time::sleep(stay).await;
            }
            return;
        }
        let until = Instant::now() + stay;
        let lost = holding.lost();
        tokio::pin!(lost);
        while Instant::now() < until {
            let deadline = holding.deadline().map_or(0, on_our_clock);
            let (at, state) = (now(), holding.state());
            tale.see(at, &state);
            if ["Held", "Suspect"].contains(&state.as_str()) {
                tale.deadline = deadline;
            }
            let (outcome, delayed) = measured(tokio::time::timeout(LOOK, &mut lost)).await;
            if outcome.is_ok() {
                (tale.lost, tale.delayed) = (now(), delayed);
                return;
            }
        }
    }

    fn finish(&self, holding: &impl Look, tale: &mut Tale) {
        tale.written = if tale.key.reads_again() { self.read(&tale.key) } else { tale.read.clone() };
        if tale.lost == 0 && tale.key.guards() && !tale.key.reads_again() {
            tale.written = tale.key.parts.iter().map(|(_, cell)| self.ledger.write(*cell)).collect();
        }
        tale.end = now();
        // In this order: a deadline that has passed must be seen in a state that is read later.
        let left = holding.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        tale.last = holding.state();
        tale.see(tale.end, &tale.last.clone());
        tale.left = left.map_or(1, |left| left.as_nanos() as u64);
    }

    fn tell(&self, tale: &Tale, outcome: &Result<(), Error>) {
        let outcome = outcome.as_ref().map_or_else(error_word, |()| "Ok".to_owned());
        self.ledger.holds.fetch_add(1, Ordering::Relaxed);
        if tale.last.starts_with("Lost") || ["Lost", "NotHeld"].contains(&outcome.as_str()) {
            self.ledger.lost.fetch_add(1, Ordering::Relaxed);
        }
        let Tale {
            key,
            how,
            asked,
            owner,
            token,
            start,
            first,
            end,
            left,
            last,
            deadline,
            lost,
            delayed,
            held,
            ..
        } = tale;
        let (how, lease, share, done) = (how.replace(' ', "-"), tale.lease.as_millis(), key.share, now());
        let (process, task) = (&self.ledger.name, self.task);
        for (((name, _), read), written) in key.parts.iter().zip(&tale.read).zip(&tale.written) {
            self.ledger.log(&format!(
                "hold {process} {task} {owner} {name} {how} {lease} {asked} {start} {first} {read} {written} {end} {left} \
                 {last} {deadline} {lost} {delayed} {outcome} {done} {token} {share} {held}"
            ));
        }
    }

    /// Awaits a call that must end within `limit`.
    async fn call<T>(
        &self,
        what: &str,
        limit: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let began = now();
        let (outcome, delayed) = measured(call).await;
        self.timed(what, began, delayed, limit, &outcome);
        if outcome.is_err() {
            tokio::time::sleep(REST).await;
        }
        outcome.ok()
    }

    fn timed<T>(&self, what: &str, began: u64, delayed: u64, limit: Duration, outcome: &Result<T, Error>) {
        let ended = now();
        if outcome.is_ok() && Duration::from_nanos(ended - began) < MOMENT {
            return;
        }
        let outcome = outcome.as_ref().map_or_else(error_word, |_| "Ok".to_owned());
        let (process, task, limit) = (&self.ledger.name, self.task, limit.as_millis());
        self.ledger.log(&format!("call {process} {task} {what} {began} {ended} {limit} {outcome} {delayed}"));
    }

    async fn unlimited<T>(&self, what: &str, began: u64, outcome: Result<T, Error>) -> Option<T> {
        if let Err(error) = &outcome {
            self.failed(what, began, error).await;
        }
        outcome.ok()
    }

    async fn failed(&self, what: &str, began: u64, error: &Error) {
        let (process, task) = (&self.ledger.name, self.task);
        self.ledger.log(&format!("call {process} {task} {what} {began} {} 0 {} 0", now(), error_word(error)));
        tokio::time::sleep(REST).await;
    }

    async fn rest(&mut self, least: u64, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.between(least, most))).await;
    }

    fn lock(&self, key: &Key) -> Lock {
        kinds::lock(&self.client, key.kind, &key.record, key.parts.iter().map(|(name, _)| name.as_str()))
    }

    /// The same for a task of its own.
    fn fork(&mut self) -> Self {
        Self {
            client: self.client.clone(),
            ledger: self.ledger.clone(),
            stopping: self.stopping.clone(),
            random: Random::new(self.random.next()),
            ..*self
        }
    }
}

/// Of the log.
fn on_our_clock(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    now() + left.as_nanos() as u64
}
