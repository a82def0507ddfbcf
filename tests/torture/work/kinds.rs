//! What tasks do with locks of other kinds than the reentrant one, and with permits.

use super::{Tale, Work};
use crate::client::RESPONSE;
use crate::hand::Hand;
use crate::keys::{self, ERA, JAVA_ERA, PERMITS, READER, VALUES, WRITER};
use redisson_lock::{BackOff, Client, Error, Lock, MultiLock};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A lock, and what is judged by itself of it, each with its cell.
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

    /// That of a kind which everybody wants.
    pub fn hot(kind: &'static str) -> Self {
        let of = family(kind);
        Self::new(kind, format!("{of}:hot"), keys::cell(of, 0))
    }

    /// One that is held for long.
    pub fn long(kind: &'static str, number: u64) -> Self {
        let of = family(kind);
        Self::new(kind, format!("{of}:long{number}"), keys::long_cell(of, number))
    }

    pub fn permits(semaphore: String, share: u32) -> Self {
        Self { share: share.into(), ..Self::new("permits", semaphore, 0) }
    }

    /// Permits are for so many at a time, and protect nothing.
    pub fn guards(&self) -> bool {
        self.kind != "permits"
    }

    /// At the end of a hold, too, instead of writing.
    pub fn reads_again(&self) -> bool {
        self.kind == "read"
    }
}

fn family(kind: &'static str) -> &'static str {
    if ["read", "write"].contains(&kind) { "readwrite" } else { kind }
}

impl Work {
    /// The key of a kind that everybody wants.
    pub async fn kind(mut self, kind: &'static str) {
        while !self.stopping.load(Ordering::Relaxed) {
            let stay = match self.random.between(0, 99) {
                0 => Duration::from_millis(self.random.between(10, 120)),
                1..20 => Duration::from_millis(self.random.between(5, 30)),
                _ => Duration::from_micros(self.random.between(0, 5000)),
            };
            match (kind, self.random.between(0, 9)) {
                ("semaphore", _) => self.permits(stay).await,
                ("expirable", _) => self.leased_permits(stay).await,
                ("readwrite", 0) => self.downgraded(stay).await,
                ("readwrite", 1..7) => self.in_some_way(&Key::hot("read"), stay).await,
                ("readwrite", _) => self.in_some_way(&Key::hot("write"), stay).await,
                ("multi", 0..7) => {
                    let parts = [0, 1].map(|at| (format!("multi:{at}"), keys::cell("multi", at)));
                    self.several(parts, stay).await;
                }
                ("multi", at) => {
                    let at = at % 2;
                    let key = Key::new("reentrant", format!("multi:{at}"), keys::cell("multi", at));
                    self.in_some_way(&key, stay).await;
                }
                ("group", _) => {
                    let key = self.some_values();
                    self.in_some_way(&key, stay).await;
                }
                _ => self.in_some_way(&Key::hot(kind), stay).await,
            }
            self.rest(50, 150).await;
        }
    }

    /// A writer that goes on as a reader.
    async fn downgraded(&self, stay: Duration) {
        let (writing, reading) = (Key::hot("write"), Key::hot("read"));
        let mut tale = Tale::new(&writing, "downgrade", Duration::ZERO);
        let writer = match self.lock(&writing).lock().await {
            Ok(writer) => writer,
            Err(error) => return self.failed("lock", tale.asked, &error).await,
        };
        self.begin(writer.look(), &mut tale);
        self.stay(writer.look(), &mut tale, stay).await;
        self.finish(writer.look(), &mut tale);
        let after = Tale::new(&reading, "downgraded", Duration::ZERO);
        let reader = self.call("downgrade", RESPONSE, self.lock(&reading).try_lock()).await.flatten();
        self.give_back(writer, tale).await;
        if let Some(reader) = reader {
            self.hold(reader, after, stay).await;
        }
    }

    /// Two locks as one.
    pub async fn several(&mut self, parts: [(String, u64); 2], stay: Duration) {
        let locks = parts.clone().map(|(name, _)| self.client.lock(name));
        let key = Key { parts: parts.into(), ..Key::new("multi", String::new(), 0) };
        let lock = MultiLock::new(locks).expect("there are two");
        let (way, wait) = (self.random.between(0, 9), Duration::from_millis(self.random.between(1, 500)));
        let tale = Tale::new(&key, "multi", Duration::ZERO);
        let guard = match way {
            0..2 => self.call("try_several_for", wait, lock.try_lock_for(wait)).await.flatten(),
            2 => match tokio::time::timeout(wait / 50, lock.lock()).await {
                Ok(outcome) => self.unlimited("lock", tale.asked, outcome).await,
                Err(_) => None,
            },
            _ => {
                let outcome = lock.lock().await;
                self.unlimited("lock", tale.asked, outcome).await
            }
        };
        if let Some(guard) = guard {
            self.hold(guard, tale, stay).await;
        }
    }

    /// Of the present era; none is waited for without an end, because the era may be over.
    async fn permits(&mut self, stay: Duration) {
        let eras = [(ERA, "semaphore"), (JAVA_ERA, "javasemaphore")]
            .map(|(cell, name)| (self.ledger.read(cell), name));
        let (era, name) = eras[self.random.between(0, 1) as usize];
        if era == 0 {
            return;
        }
        let permits = if self.random.between(0, 4) == 0 { 2 } else { 1 };
        let key = Key::permits(format!("{name}:{era}"), permits);
        let semaphore = self.client.semaphore(&key.record);
        let tale = Tale::new(&key, "permits", Duration::ZERO);
        let (once, unlimited) = (semaphore.try_acquire_many(permits), semaphore.acquire_many(permits));
        self.permit(tale, stay, once, unlimited, |wait| semaphore.try_acquire_for(permits, wait)).await;
    }

    async fn leased_permits(&mut self, stay: Duration) {
        let era = self.ledger.read(ERA);
        let permits = if self.random.between(0, 4) == 0 { 2 } else { 1 };
        let key = Key::permits(format!("expirable:{era}"), permits);
        let semaphore = self.client.expirable_semaphore(&key.record);
        let (lease, stay) = match self.random.between(0, 19) {
            0 => (Duration::from_millis(30), Duration::from_millis(50)),
            1..4 => (Duration::from_millis(self.random.between(200, self.lease.as_millis() as u64)), stay),
            _ => (Duration::ZERO, stay),
        };
        let semaphore = if lease.is_zero() { semaphore } else { semaphore.with_lease(lease) };
        let tale = Tale::new(&key, "leased permits", lease);
        let within = |wait| semaphore.try_acquire_for(permits, wait);
        self.permit(tale, stay, within(Duration::ZERO), semaphore.acquire_many(permits), within).await;
    }

    /// A permit in one of the ways to ask for it.
    async fn permit<P: Hand, W: Future<Output = Result<Option<P>, Error>>>(
        &mut self,
        tale: Tale,
        stay: Duration,
        once: impl Future<Output = Result<Option<P>, Error>>,
        unlimited: impl Future<Output = Result<P, Error>>,
        within: impl FnOnce(Duration) -> W,
    ) {
        let (way, wait) = (self.random.between(0, 9), Duration::from_millis(self.random.between(1, 300)));
        let permit = match way {
            0 => self.call("try_acquire", RESPONSE, once).await.flatten(),
            1..3 => match tokio::time::timeout(wait / 50, unlimited).await {
                Ok(outcome) => self.unlimited("acquire", tale.asked, outcome).await,
                Err(_) => None,
            },
            _ => self.call("try_acquire_for", wait, within(wait)).await.flatten(),
        };
        if let Some(permit) = permit {
            self.hold(permit, tale, stay).await;
        }
    }

    /// All permits of a semaphore that this client and its rival make for themselves, again where it was lost.
    pub async fn long_permit(&mut self, stay: Duration) {
        let key = Key::permits(format!("expirable:long{}", keys::of_rivals(self.index)), PERMITS);
        let semaphore = self.client.expirable_semaphore(&key.record);
        self.call("try_set_permits", RESPONSE, semaphore.try_set_permits(PERMITS)).await;
        let tale = Tale::new(&key, "long permits", Duration::ZERO);
        // The permits of a killed process end with their lease. Those of the rival may last longer, and then this is in vain.
        let wait = self.lease;
        let permit = self.call("try_acquire_for", wait, semaphore.try_acquire_for(PERMITS, wait)).await;
        if let Some(permit) = permit.flatten() {
            self.hold(permit, tale, stay).await;
        }
    }

    /// One, two or three of the group's.
    fn some_values(&mut self) -> Key {
        let chosen = self.random.between(1, (1 << VALUES.len()) - 1);
        let key = Key::hot("group");
        let parts = (0..).zip(VALUES).filter(|(at, _)| chosen & (1 << at) != 0);
        let parts = parts.map(|(at, value)| (format!("{}/{value}", key.record), keys::cell("group", at)));
        Key { parts: parts.collect(), ..key }
    }
}

/// The lock of a kind; of a group the values are named by what is behind a `/`, as Redisson's `StringCodec` has them.
pub fn lock<'a>(client: &Client, kind: &str, record: &str, parts: impl Iterator<Item = &'a str>) -> Lock {
    match kind {
        "fair" => client.fair_lock(record),
        "fenced" => client.fenced_lock(record),
        "read" => client.read_write_lock(record).read().clone(),
        "write" => client.read_write_lock(record).write().clone(),
        "spin" => client.spin_lock(record, BackOff::default()),
        "nonreentrant" => client.non_reentrant_lock(record),
        "value" => client.value_lock(record),
        "group" => client.group_lock(record, parts.filter_map(|part| part.split('/').nth(1))),
        _ => client.lock(record),
    }
}

/// Frees a lock, whoever holds it.
pub async fn force_unlock(client: &Client, record: &str) -> Result<bool, Error> {
    let kind = record.split(':').next().unwrap_or_default();
    if kind != "readwrite" {
        return lock(client, kind, record, std::iter::once("group/a")).force_unlock().await;
    }
    let sides = client.read_write_lock(record);
    Ok(sides.write().force_unlock().await? || sides.read().force_unlock().await?)
}

/// Wants what everybody wants of each kind that a process may leave behind: its lease, or its place in line, ends.
pub fn wanted(client: &Client, kinds: &[&'static str]) -> Vec<Lock> {
    let hot = [0, 1].map(|hot| client.lock(format!("hot:{hot}")));
    let some = ["fair", "fenced", "readwrite", "nonreentrant", "value", "group"];
    let kinds = some.into_iter().filter(|kind| kinds.contains(kind));
    let kinds = kinds.map(|kind| if kind == "readwrite" { "write" } else { kind });
    let others = kinds.map(|kind| lock(client, kind, &Key::hot(kind).record, std::iter::once("group/a")));
    hot.into_iter().chain(others).collect()
}
