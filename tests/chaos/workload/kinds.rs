//! The tasks' work with locks of other kinds than the reentrant one, and with permits.

use super::{HoldEntry, Work};
use crate::client::RESPONSE;
use crate::grant::Grant;
use crate::keys::{self, GENERATION_CELL, JAVA_GENERATION_CELL, PERMITS, READER, VALUES, WRITER};
use redisson_lock::{BackOff, Client, Error, Lock, MultiLock};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A key, with the parts that are judged separately and their cells.
#[derive(Clone)]
pub struct Key {
    /// One of `keys::KINDS`, or a side of the read/write lock.
    pub kind: &'static str,
    pub record: String,
    pub parts: Vec<(String, u64)>,
    pub share: u64,
}

impl Key {
    pub fn new(kind: &'static str, record: String, cell: u64) -> Self {
        let share = if kind == "write" { WRITER } else { READER };
        Self { kind, parts: vec![(record.clone(), cell)], record, share }
    }

    /// The key of a kind that all clients want.
    pub fn hot(kind: &'static str) -> Self {
        let of = family(kind);
        Self::new(kind, format!("{of}:hot"), keys::cell(of, 0))
    }

    /// A key that is held for long.
    pub fn long(kind: &'static str, number: u64) -> Self {
        let of = family(kind);
        Self::new(kind, format!("{of}:long{number}"), keys::long_cell(of, number))
    }

    pub fn permits(semaphore: String, share: u32) -> Self {
        Self { share: share.into(), ..Self::new("permits", semaphore, 0) }
    }

    /// A semaphore admits several holders, so it guards no cell.
    pub fn guards(&self) -> bool {
        self.kind != "permits"
    }

    /// A reader reads the cells again at the end of its hold instead of writing.
    pub fn reads_again(&self) -> bool {
        self.kind == "read"
    }
}

fn family(kind: &'static str) -> &'static str {
    if ["read", "write"].contains(&kind) { "readwrite" } else { kind }
}

impl Work {
    /// Uses the key of a kind that all clients want.
    pub async fn kind(mut self, kind: &'static str) {
        while !self.stopping.load(Ordering::Relaxed) {
            let stay = match self.random.between(0, 99) {
                0 => Duration::from_millis(self.random.between(10, 120)),
                1..20 => Duration::from_millis(self.random.between(5, 30)),
                _ => Duration::from_micros(self.random.between(0, 5000)),
            };
            match (kind, self.random.between(0, 9)) {
                ("semaphore", _) => self.permits(stay).await,
                ("expirable", _) => self.permits_with_lease(stay).await,
                ("readwrite", 0) => self.downgrade(stay).await,
                ("readwrite", 1..7) => self.acquire_randomly(&Key::hot("read"), stay).await,
                ("readwrite", _) => self.acquire_randomly(&Key::hot("write"), stay).await,
                ("multi", 0..7) => {
                    let parts = [0, 1].map(|at| (format!("multi:{at}"), keys::cell("multi", at)));
                    self.lock_several(parts, stay).await;
                }
                ("multi", at) => {
                    let at = at % 2;
                    let key = Key::new("reentrant", format!("multi:{at}"), keys::cell("multi", at));
                    self.acquire_randomly(&key, stay).await;
                }
                ("group", _) => {
                    let key = self.some_values();
                    self.acquire_randomly(&key, stay).await;
                }
                _ => self.acquire_randomly(&Key::hot(kind), stay).await,
            }
            self.rest(50, 150).await;
        }
    }

    /// Downgrades from writer to reader.
    async fn downgrade(&self, stay: Duration) {
        let (writing, reading) = (Key::hot("write"), Key::hot("read"));
        let mut entry = HoldEntry::new(&writing, "downgrade", Duration::ZERO);
        let writer = match self.lock(&writing).lock().await {
            Ok(writer) => writer,
            Err(error) => return self.failed("lock", entry.asked, &error).await,
        };
        self.begin(&writer.status(), &mut entry);
        self.stay(&writer.status(), &mut entry, stay).await;
        self.finish(&writer.status(), &mut entry);
        let after = HoldEntry::new(&reading, "downgraded", Duration::ZERO);
        let reader = self.call("downgrade", RESPONSE, self.lock(&reading).try_lock()).await.flatten();
        self.release(writer, entry).await;
        if let Some(reader) = reader {
            self.hold(reader, after, stay).await;
        }
    }

    /// Acquires two locks as one multi lock.
    pub async fn lock_several(&mut self, parts: [(String, u64); 2], stay: Duration) {
        let locks = parts.clone().map(|(name, _)| self.client.lock(name));
        let key = Key { parts: parts.into(), ..Key::new("multi", String::new(), 0) };
        let lock = MultiLock::new(locks).expect("there are two");
        let (way, wait) = (self.random.between(0, 9), Duration::from_millis(self.random.between(1, 500)));
        let entry = HoldEntry::new(&key, "multi", Duration::ZERO);
        let guard = match way {
            0..2 => self.call("try_several_for", wait, lock.try_lock_for(wait)).await.flatten(),
            2 => match tokio::time::timeout(wait / 50, lock.lock()).await {
                Ok(outcome) => self.unlimited("lock", entry.asked, outcome).await,
                Err(_) => None,
            },
            _ => {
                let outcome = lock.lock().await;
                self.unlimited("lock", entry.asked, outcome).await
            }
        };
        if let Some(guard) = guard {
            self.hold(guard, entry, stay).await;
        }
    }

    /// Acquires permits of the current generation. No wait is unlimited, because the generation may end.
    async fn permits(&mut self, stay: Duration) {
        let generations = [(GENERATION_CELL, "semaphore"), (JAVA_GENERATION_CELL, "javasemaphore")]
            .map(|(cell, name)| (self.ledger.read(cell), name));
        let (generation, name) = generations[self.random.between(0, 1) as usize];
        if generation == 0 {
            return;
        }
        let permits = if self.random.between(0, 4) == 0 { 2 } else { 1 };
        let key = Key::permits(format!("{name}:{generation}"), permits);
        let semaphore = self.client.semaphore(&key.record);
        let entry = HoldEntry::new(&key, "permits", Duration::ZERO);
        let (once, unlimited) = (semaphore.try_acquire_many(permits), semaphore.acquire_many(permits));
        self.permit(entry, stay, once, unlimited, |wait| semaphore.try_acquire_many_for(permits, wait)).await;
    }

    async fn permits_with_lease(&mut self, stay: Duration) {
        let generation = self.ledger.read(GENERATION_CELL);
        let permits = if self.random.between(0, 4) == 0 { 2 } else { 1 };
        let key = Key::permits(format!("expirable:{generation}"), permits);
        let semaphore = self.client.expirable_semaphore(&key.record);
        let (lease, stay) = match self.random.between(0, 19) {
            0 => (Duration::from_millis(30), Duration::from_millis(50)),
            1..4 => (Duration::from_millis(self.random.between(200, self.lease.as_millis() as u64)), stay),
            _ => (Duration::ZERO, stay),
        };
        let semaphore = if lease.is_zero() { semaphore } else { semaphore.with_lease(lease) };
        let entry = HoldEntry::new(&key, "leased permits", lease);
        let within = |wait| semaphore.try_acquire_many_for(permits, wait);
        self.permit(entry, stay, within(Duration::ZERO), semaphore.acquire_many(permits), within).await;
    }

    /// Acquires a permit in one of the possible ways.
    async fn permit<P: Grant, W: Future<Output = Result<Option<P>, Error>>>(
        &mut self,
        entry: HoldEntry,
        stay: Duration,
        once: impl Future<Output = Result<Option<P>, Error>>,
        unlimited: impl Future<Output = Result<P, Error>>,
        within: impl FnOnce(Duration) -> W,
    ) {
        let (way, wait) = (self.random.between(0, 9), Duration::from_millis(self.random.between(1, 300)));
        let permit = match way {
            0 => self.call("try_acquire", RESPONSE, once).await.flatten(),
            1..3 => match tokio::time::timeout(wait / 50, unlimited).await {
                Ok(outcome) => self.unlimited("acquire", entry.asked, outcome).await,
                Err(_) => None,
            },
            _ => self.call("try_acquire_many_for", wait, within(wait)).await.flatten(),
        };
        if let Some(permit) = permit {
            self.hold(permit, entry, stay).await;
        }
    }

    /// Acquires all permits of a semaphore that this client and its rival share. Creates the semaphore again if it was lost.
    pub async fn long_permit(&mut self, stay: Duration) {
        let key = Key::permits(format!("expirable:long{}", keys::of_rivals(self.index)), PERMITS);
        let semaphore = self.client.expirable_semaphore(&key.record);
        self.call("try_set_permits", RESPONSE, semaphore.try_set_permits(PERMITS)).await;
        let entry = HoldEntry::new(&key, "long permits", Duration::ZERO);
        // The permits of a killed process expire. The rival may hold the permits for longer than the limit; then this call
        // times out.
        let wait = self.lease;
        let permit =
            self.call("try_acquire_many_for", wait, semaphore.try_acquire_many_for(PERMITS, wait)).await;
        if let Some(permit) = permit.flatten() {
            self.hold(permit, entry, stay).await;
        }
    }

    /// One, two or three values of the group.
    fn some_values(&mut self) -> Key {
        let chosen = self.random.between(1, (1 << VALUES.len()) - 1);
        let key = Key::hot("group");
        let parts = (0..).zip(VALUES).filter(|(at, _)| chosen & (1 << at) != 0);
        let parts = parts.map(|(at, value)| (format!("{}/{value}", key.record), keys::cell("group", at)));
        Key { parts: parts.collect(), ..key }
    }
}

/// The lock of a kind. For a group, each part names its value after a `/`, as Redisson's `StringCodec` encodes it.
pub fn lock<'a>(client: &Client, kind: &str, record: &str, parts: impl Iterator<Item = &'a str>) -> Lock {
    match kind {
        "fair" => client.fair_lock(record),
        "fenced" => client.fenced_lock(record),
        "read" => client.read_write_lock(record).read().clone(),
        "write" => client.read_write_lock(record).write().clone(),
        "spin" => client.spin_lock(record, BackOff::new()),
        "nonreentrant" => client.non_reentrant_lock(record),
        "value" => client.value_lock(record),
        "group" => client.group_lock(record, parts.filter_map(|part| part.split('/').nth(1))),
        _ => client.lock(record),
    }
}

/// Force-unlocks a lock of any kind.
pub async fn force_unlock(client: &Client, record: &str) -> Result<bool, Error> {
    let kind = record.split(':').next().unwrap_or_default();
    if kind != "readwrite" {
        return lock(client, kind, record, std::iter::once("group/a")).force_unlock().await;
    }
    let sides = client.read_write_lock(record);
    Ok(sides.write().force_unlock().await? || sides.read().force_unlock().await?)
}

/// The hot locks whose leftovers a process may abandon: each has a lease, or a queue entry that expires.
pub fn wanted(client: &Client, kinds: &[&'static str]) -> Vec<Lock> {
    let hot = [0, 1].map(|hot| client.lock(format!("hot:{hot}")));
    let some = ["fair", "fenced", "readwrite", "nonreentrant", "value", "group"];
    let kinds = some.into_iter().filter(|kind| kinds.contains(kind));
    let kinds = kinds.map(|kind| if kind == "readwrite" { "write" } else { kind });
    let others = kinds.map(|kind| lock(client, kind, &Key::hot(kind).record, std::iter::once("group/a")));
    hot.into_iter().chain(others).collect()
}
