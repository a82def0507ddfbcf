//! The work of a client's tasks, and the lines that they log.
//!
//! - `hold <process> <task> <owner> <key> <how> <lease> <asked> <start> <state> <read> <written> <end> <left> <state>
//!   <deadline> <lost> <delayed> <outcome> <done> <token> <share> <held>`. Times are in ns of the boot-time clock. `lease`
//!   is the fixed lease in ms, 0 with a watchdog. `left` is the time to the deadline when the last state was read, 1 without
//!   a deadline. `deadline` is the last deadline read while the hold was live. `lost` is when the loss was reported, 0 if
//!   never. `delayed` is for how long the machine delayed the process before that. `token` is the fencing token, 0 without
//!   one. `share` is the share of the key's capacity (see `keys.rs`). `held` is the last time that the state was read as
//!   held, 0 if never; Java does not write it. A hold of several keys has a line for each.
//! - `call <process> <task> <what> <start> <end> <limit in ms> <outcome> <delayed>`: a call with a time limit that took
//!   longer than 20 ms or failed. `delayed` is for how long the machine delayed it (see `call_delay.rs`).

mod kinds;

use crate::client::RESPONSE;
use crate::grant::{Grant, Status};
use crate::keys;
use crate::ledger::{Ledger, error_word, measured, now};
use crate::random::Random;
use kinds::Key;
pub use kinds::{force_unlock, wanted};
use redisson_lock::{Client, Error, HoldStatus, Lock};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Shorter calls are not logged.
const MOMENT: Duration = Duration::from_millis(20);
/// Longer holds are observed while they last.
const WATCHED: Duration = Duration::from_millis(100);
/// How often the deadline of an observed hold is read.
const POLL: Duration = Duration::from_millis(20);
/// The pause after an error, so that a refusing server is not flooded.
const REST: Duration = Duration::from_millis(20);

/// The number of `fresh` keys.
const FRESH: u64 = 64;
/// One of so many fresh keys is held for longer than a lease.
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

/// The log line of a hold, while it is being collected.
#[derive(Clone)]
struct HoldEntry {
    key: Key,
    how: &'static str,
    /// Zero with a watchdog.
    lease: Duration,
    asked: u64,
    owner: String,
    token: u64,
    start: u64,
    first: String,
    /// The cell values of each part of the key.
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

impl HoldEntry {
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

    /// `at` was read before the state, so a hold that is held now was held then.
    fn observe(&mut self, at: u64, state: &str) {
        if state == "Held" {
            self.held = at;
        }
    }
}

impl Work {
    /// Uses a key that no other client wants, so that only this client affects it.
    pub async fn own(mut self) {
        let key = Key::new("reentrant", format!("own:{}", self.index), 2 + self.index);
        while !self.stopping.load(Ordering::Relaxed) {
            let stay = Duration::from_micros(self.random.between(0, 2000));
            match self.random.between(0, 3) {
                0 => self.try_lock(&key, stay).await,
                1 => self.lock_with_lease(&key, stay).await,
                _ => self.lock_and_hold(&key, stay).await,
            }
            self.rest(5, 15).await;
        }
    }

    /// Uses keys that nobody else wants, one after another, so that no hold blocks the next. They show whether the servers
    /// can be reached. Some are held for longer than a lease, so that there are always recent holds.
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
                holding.spawn(async move { work.try_lock(&key, stay).await });
            } else {
                self.try_lock(&key, Duration::ZERO).await;
            }
            number += 1;
            self.rest(5, 15).await;
        }
        while holding.join_next().await.is_some() {}
    }

    /// Uses keys that all clients want in the same time slot. One client waits for the key, and the others soon give up. A
    /// client that gave up does not return to the key within a lease. So whatever its unanswered request leaves behind
    /// blocks the waiting client, and no later request of its own clears it.
    pub async fn passing(mut self) {
        let mut under_way = JoinSet::new();
        let slot_ns = keys::PASSING_MS * 1_000_000;
        let mut slot = now() / slot_ns;
        while !self.stopping.load(Ordering::Relaxed) {
            // Skips the slots that were missed while the process did not run.
            slot = (slot + 1).max(now() / slot_ns);
            tokio::time::sleep(Duration::from_nanos((slot * slot_ns).saturating_sub(now()))).await;
            let number = slot % keys::PASSING;
            let key = Key::new("reentrant", format!("passing:{number}"), keys::passing_cell(number));
            let waits = (slot + self.index).is_multiple_of(keys::CLIENTS);
            let mut work = self.fork();
            under_way.spawn(async move {
                if waits {
                    // Arrives after the clients that give up.
                    work.rest(10, 30).await;
                    return work.lock_and_hold(&key, Duration::ZERO).await;
                }
                work.rest(0, 20).await;
                match work.random.between(0, 2) {
                    0 => work.try_lock(&key, Duration::ZERO).await,
                    1 => work.try_lock_for(&key, Duration::ZERO).await,
                    _ => work.cancel_lock(&key, Duration::ZERO).await,
                }
            });
            while under_way.try_join_next().is_some() {}
        }
        while under_way.join_next().await.is_some() {}
    }

    /// Holds two keys at once and one of each other kind, for longer than a lease, so that one renewal covers them. Most
    /// have a rival: another client that always wants them, and gets in as soon as a renewal fails.
    pub async fn long(mut self, kinds: Vec<&'static str>) {
        let (index, rivals) = (self.index, keys::of_rivals(self.index));
        while !self.stopping.load(Ordering::Relaxed) {
            // Some holds must outlive a lease after a fault.
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
                            work.lock_and_hold(&key, stay).await;
                        });
                        holding.spawn(async move {
                            let key = Key::new("reentrant", format!("pair:{index}"), 32 + index);
                            pair.lock_and_hold(&key, stay).await;
                        });
                    }
                    "multi" => {
                        let parts = [rivals, rivals + 8]
                            .map(|at| (format!("multi:long{at}"), keys::long_cell("multi", at)));
                        holding.spawn(async move { work.lock_several(parts, stay).await });
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
                        holding.spawn(async move { work.lock_and_hold(&key, stay).await });
                    }
                }
            }
            while holding.join_next().await.is_some() {}
            self.rest(1, 50).await;
        }
    }

    /// Uses a key that two clients always want and hold for longer than a round trip, so that a late request of one client
    /// meets the other's hold.
    pub async fn duel(mut self) {
        let rivals = keys::of_rivals(self.index);
        let key = Key::new("reentrant", format!("duel:{rivals}"), 48 + rivals);
        while !self.stopping.load(Ordering::Relaxed) {
            let stay = Duration::from_millis(self.random.between(10, 50));
            self.lock_and_hold(&key, stay).await;
        }
    }

    /// Uses the keys that all clients want, in every way.
    pub async fn hot(mut self) {
        while !self.stopping.load(Ordering::Relaxed) {
            let cell = u64::from(self.random.between(0, 9) >= 8);
            let key = Key::new("reentrant", format!("hot:{cell}"), cell);
            let stay = match self.random.between(0, 99) {
                0 => Duration::from_millis(self.random.between(10, 120)),
                1..10 => Duration::from_millis(self.random.between(2, 10)),
                _ => Duration::from_micros(self.random.between(0, 1500)),
            };
            self.acquire_randomly(&key, stay).await;
            self.rest(4, 20).await;
        }
    }

    async fn acquire_randomly(&mut self, key: &Key, stay: Duration) {
        match self.random.between(0, 19) {
            0..8 => self.lock_and_hold(key, stay).await,
            8..10 => self.try_lock(key, stay).await,
            10..13 => self.try_lock_for(key, stay).await,
            13..15 => self.lock_with_lease(key, stay).await,
            15..17 => self.reenter(key, stay).await,
            17..19 => self.cancel_lock(key, stay).await,
            _ => self.run(key, stay).await,
        }
    }

    async fn lock_and_hold(&self, key: &Key, stay: Duration) {
        let entry = HoldEntry::new(key, "lock", Duration::ZERO);
        match self.lock(key).lock().await {
            Ok(guard) => self.hold(guard, entry, stay).await,
            Err(error) => self.failed("lock", entry.asked, &error).await,
        }
    }

    async fn try_lock(&self, key: &Key, stay: Duration) {
        let entry = HoldEntry::new(key, "try_lock", Duration::ZERO);
        if let Some(guard) = self.call("try_lock", RESPONSE, self.lock(key).try_lock()).await.flatten() {
            self.hold(guard, entry, stay).await;
        }
    }

    async fn try_lock_for(&mut self, key: &Key, stay: Duration) {
        let most = if self.random.between(0, 9) == 0 { 3000 } else { 120 };
        let wait = Duration::from_millis(self.random.between(1, most));
        let entry = HoldEntry::new(key, "try_lock_for", Duration::ZERO);
        let asked = self.lock(key);
        if let Some(guard) = self.call("try_lock_for", wait, asked.try_lock_for(wait)).await.flatten() {
            self.hold(guard, entry, stay).await;
        }
    }

    /// Sometimes the lease is shorter than the hold.
    async fn lock_with_lease(&mut self, key: &Key, stay: Duration) {
        let (lease, stay) = match self.random.between(0, 9) {
            0 => (Duration::from_millis(30), Duration::from_millis(50)),
            _ => (Duration::from_millis(self.random.between(200, self.lease.as_millis() as u64)), stay),
        };
        let entry = HoldEntry::new(key, "lease", lease);
        match self.lock(key).with_lease(lease).lock().await {
            Ok(guard) => self.hold(guard, entry, stay).await,
            Err(error) => self.failed("lock", entry.asked, &error).await,
        }
    }

    async fn reenter(&self, key: &Key, stay: Duration) {
        let entry = HoldEntry::new(key, "reentry", Duration::ZERO);
        let lock = self.lock(key);
        match lock.lock().await {
            Ok(guard) => {
                if ["nonreentrant", "value"].contains(&key.kind) {
                    // If it were granted, the log would show two overlapping holds.
                    let inner = HoldEntry::new(key, "refused reentry", Duration::ZERO);
                    match lock.try_lock().await {
                        Ok(Some(again)) => self.hold(again, inner, Duration::ZERO).await,
                        Ok(None) | Err(Error::WouldDeadlock { .. }) => {}
                        Err(error) => self.failed("reenter", inner.asked, &error).await,
                    }
                } else if let Some(inner) = self.call("reenter", RESPONSE, lock.try_lock()).await.flatten() {
                    self.call("unlock", RESPONSE, inner.unlock()).await;
                }
                self.hold(guard, entry, stay).await;
            }
            Err(error) => self.failed("lock", entry.asked, &error).await,
        }
    }

    /// Cancels the acquire, unless it returns first.
    async fn cancel_lock(&mut self, key: &Key, stay: Duration) {
        let patience = Duration::from_micros(self.random.between(0, 8000));
        let entry = HoldEntry::new(key, "cancel", Duration::ZERO);
        match tokio::time::timeout(patience, self.lock(key).lock()).await {
            Ok(Ok(guard)) => self.hold(guard, entry, stay).await,
            Ok(Err(error)) => self.failed("lock", entry.asked, &error).await,
            Err(_) => {}
        }
    }

    async fn run(&self, key: &Key, stay: Duration) {
        // The body's entry so far, in case the body is cut off.
        let log_entry = Arc::new(Mutex::new(HoldEntry::new(key, "run", Duration::ZERO)));
        let asked = log_entry.lock().expect("not poisoned").asked;
        let (work, shared) = (self, &log_entry);
        let body = |status: HoldStatus| async move {
            let mut entry = shared.lock().expect("not poisoned").clone();
            work.begin(&status, &mut entry);
            *shared.lock().expect("not poisoned") = entry.clone();
            work.stay(&status, &mut entry, stay).await;
            work.finish(&status, &mut entry);
            *shared.lock().expect("not poisoned") = entry;
        };
        let outcome = self.lock(key).run(body).await;
        let mut entry = log_entry.lock().expect("not poisoned").clone();
        if entry.start == 0 {
            if let Err(error) = outcome {
                self.failed("run", asked, &error).await;
            }
            return;
        }
        if entry.end == 0 {
            (entry.end, entry.last, entry.written) = (now(), "Lost-Run".into(), entry.read.clone());
        }
        self.log_hold(&entry, &outcome);
    }

    async fn hold(&self, grant: impl Grant, mut entry: HoldEntry, stay: Duration) {
        self.begin(&grant.status(), &mut entry);
        self.stay(&grant.status(), &mut entry, stay).await;
        self.finish(&grant.status(), &mut entry);
        self.release(grant, entry).await;
    }

    async fn release(&self, grant: impl Grant, entry: HoldEntry) {
        let began = now();
        let (outcome, delayed) = measured(grant.release()).await;
        self.timed("unlock", began, delayed, RESPONSE, &outcome);
        self.log_hold(&entry, &outcome);
    }

    fn begin(&self, status: &impl Status, entry: &mut HoldEntry) {
        entry.start = now();
        entry.first = status.state();
        entry.observe(entry.start, &entry.first.clone());
        (entry.owner, entry.token) = (status.owner(), status.token());
        entry.read = self.read(&entry.key);
    }

    fn read(&self, key: &Key) -> Vec<u64> {
        key.parts.iter().map(|(_, cell)| if key.guards() { self.ledger.read(*cell) } else { 0 }).collect()
    }

    async fn stay(&self, status: &impl Status, entry: &mut HoldEntry, stay: Duration) {
        if stay < WATCHED {
            if !stay.is_zero() {
                tokio::time::sleep(stay).await;
            }
            return;
        }
        let until = Instant::now() + stay;
        let lost = status.lost();
        tokio::pin!(lost);
        while Instant::now() < until {
            let deadline = status.deadline().map_or(0, on_our_clock);
            let (at, state) = (now(), status.state());
            entry.observe(at, &state);
            if ["Held", "Suspect"].contains(&state.as_str()) {
                entry.deadline = deadline;
            }
            let (outcome, delayed) = measured(tokio::time::timeout(POLL, &mut lost)).await;
            if outcome.is_ok() {
                (entry.lost, entry.delayed) = (now(), delayed);
                return;
            }
        }
    }

    fn finish(&self, status: &impl Status, entry: &mut HoldEntry) {
        entry.written = if entry.key.reads_again() { self.read(&entry.key) } else { entry.read.clone() };
        if entry.lost == 0 && entry.key.guards() && !entry.key.reads_again() {
            entry.written = entry.key.parts.iter().map(|(_, cell)| self.ledger.write(*cell)).collect();
        }
        entry.end = now();
        // Reads the deadline first: a state that is read later must account for a deadline that has passed.
        let left = status.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        entry.last = status.state();
        entry.observe(entry.end, &entry.last.clone());
        entry.left = left.map_or(1, |left| left.as_nanos() as u64);
    }

    fn log_hold(&self, entry: &HoldEntry, outcome: &Result<(), Error>) {
        let outcome = outcome.as_ref().map_or_else(error_word, |()| "Ok".to_owned());
        self.ledger.holds.fetch_add(1, Ordering::Relaxed);
        if [&entry.last, &outcome].iter().any(|state| state.starts_with("Lost")) || outcome == "NotHeld" {
            self.ledger.lost.fetch_add(1, Ordering::Relaxed);
        }
        let HoldEntry {
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
        } = entry;
        let (how, lease, share, done) = (how.replace(' ', "-"), entry.lease.as_millis(), key.share, now());
        let (process, task) = (&self.ledger.name, self.task);
        for (((name, _), read), written) in key.parts.iter().zip(&entry.read).zip(&entry.written) {
            self.ledger.log(&format!(
                "hold {process} {task} {owner} {name} {how} {lease} {asked} {start} {first} {read} {written} {end} {left} \
                 {last} {deadline} {lost} {delayed} {outcome} {done} {token} {share} {held}"
            ));
        }
    }

    /// Awaits a call that must return within `limit`.
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

    /// A copy for another task.
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

/// Converts a deadline to the log's clock.
fn on_our_clock(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    now() + left.as_nanos() as u64
}
