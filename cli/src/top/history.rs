//! The locks as the readings showed them, and since when they are in their state. No I/O.

use redisson_lock::Description;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// When a state was first seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since {
    at: Instant,
    /// No reading came shortly before, so the state may be older.
    may_be_older: bool,
}

impl Since {
    /// How long the state has been seen at `now`, with a `+` if it may be older.
    pub fn text(self, now: Instant) -> String {
        let more = if self.may_be_older { "+" } else { "" };
        format!("{}{more}", brief(self.age(now)))
    }

    /// How long the state has been seen at `now`.
    pub fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

/// A lock, semaphore or latch over time.
#[derive(Debug)]
pub struct Entry {
    /// The last reading.
    pub lock: Description,
    holders: HashMap<String, Since>,
    queue: HashMap<String, Since>,
    /// Since when somebody, not always the same, waits.
    waiting: Option<Since>,
}

impl Entry {
    /// Since when the present holder is seen, of several the first.
    pub fn held(&self) -> Option<Since> {
        self.holders.values().min().copied()
    }

    /// Since when this owner is seen as a holder.
    pub fn holder(&self, owner: &str) -> Option<Since> {
        self.holders.get(owner).copied()
    }

    /// Since when the longest wait is seen. Only the queue of a fair lock tells the waiters apart.
    pub fn waiting(&self) -> Option<Since> {
        self.queue.values().min().copied().or(self.waiting)
    }

    /// Since when this owner is seen in the queue of a fair lock.
    pub fn queued(&self, owner: &str) -> Option<Since> {
        self.queue.get(owner).copied()
    }

    /// The entry after a reading.
    fn next(before: Option<&Self>, lock: Description, new: Since) -> Self {
        // Another token is another hold.
        let same_hold = before.filter(|before| before.lock.token == lock.token);
        let holders = lock.holders.iter().map(|holder| {
            let since = same_hold.and_then(|before| before.holder(holder.owner()));
            (holder.owner().to_owned(), since.unwrap_or(new))
        });
        let queue = lock.queue.iter().map(|owner| {
            let since = before.and_then(|before| before.queued(owner));
            (owner.clone(), since.unwrap_or(new))
        });
        let (holders, queue) = (holders.collect(), queue.collect());
        let is_waited_for = lock.waiters.is_some_and(|waiters| waiters > 0);
        let waiting = is_waited_for.then(|| before.and_then(|before| before.waiting).unwrap_or(new));
        Self { lock, holders, queue, waiting }
    }
}

/// All that was seen.
#[derive(Debug, Default)]
pub struct History {
    entries: BTreeMap<String, Entry>,
    /// When the last reading was.
    read: Option<Instant>,
    /// The reading before was long ago, or there was none.
    is_continuous: bool,
}

impl History {
    /// Takes the locks of a reading, in place of those of the reading before.
    pub fn update(&mut self, found: Vec<Description>, now: Instant) {
        let new = Since { at: now, may_be_older: !self.is_continuous };
        let before = std::mem::take(&mut self.entries);
        self.entries = found
            .into_iter()
            .map(|lock| (lock.name.clone(), Entry::next(before.get(&lock.name), lock, new)))
            .collect();
        (self.read, self.is_continuous) = (Some(now), true);
    }

    /// Notes that no reading comes for a while.
    pub fn interrupt(&mut self) {
        self.is_continuous = false;
    }

    /// When the last reading was.
    pub fn read(&self) -> Option<Instant> {
        self.read
    }

    /// The locks, in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The lock of this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

/// A time in two units at most: "7s", "4m05s", "3h20m", "2d04h".
pub fn brief(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_brief() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (65, "1m05s"),
            (3600, "1h00m"),
            (90_000, "1d01h"),
            (8_640_000, "100d00h"),
        ] {
            assert_eq!(brief(Duration::from_secs(seconds)), text);
        }
    }
}
