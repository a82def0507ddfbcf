//! Observers of a client: user code that is called when a call waits, a hold begins or ends, and a connection returns.
//!
//! Invariants: an observer is called while no lock of this library is locked, and a panic of it ends in `Observers::tell`. Without an
//! observer, an event costs one comparison.

use crate::error::LossReason;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tracing::error;

/// An observer of a client's calls and holds. Each method does nothing by default.
///
/// The client calls an observer directly, on the thread or task where the event occurs, and while no lock of this library is locked. So an
/// observer may call the client, but it must be quick: the holder and the next waiter may wait for its return. It must not block. A panic
/// of an observer is logged as an error of [`tracing`] and changes nothing else.
///
/// Order of events, for each call: [`on_waiting`](Self::on_waiting) once if it waits, then either [`on_acquired`](Self::on_acquired) or
/// [`on_not_acquired`](Self::on_not_acquired). For each hold: `on_acquired` for the first level, again for further levels, then one of
/// [`on_released`](Self::on_released), [`on_lost`](Self::on_lost) and [`on_unended`](Self::on_unended). Within a client, a hold of an
/// exclusive lock is released before the next one begins. A loss and a renewal come from other tasks, so a call may overtake their events:
/// the next hold may begin before `on_lost`, and `on_renewed` may come after `on_released`. Events of different keys have no order.
///
/// The counts agree with [`Client::stats`](crate::Client::stats). A guard that is dropped while its client closes may count as unended
/// without an event. [`MultiLock`](crate::MultiLock) and [`RedLock`](crate::RedLock) report each of their members.
///
/// ```no_run
/// use redisson_lock::observer::{Ended, Observer};
/// use std::sync::Arc;
///
/// struct SlowHolds;
///
/// impl Observer for SlowHolds {
///     fn on_released(&self, hold: &Ended<'_>) {
///         if hold.held.as_secs() > 1 {
///             println!("{} was held for {:?} by {}", hold.name, hold.held, hold.owner);
///         }
///     }
/// }
///
/// # async fn f() -> redisson_lock::Result<()> {
/// let client = redisson_lock::Client::builder().observer(Arc::new(SlowHolds)).connect("redis://localhost").await?;
/// # Ok(())
/// # }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// A call waits in its client: the lock is busy, or other calls of the client are at the key. For some kinds each call does, such as fair
    /// locks. Then [`Acquired::way`] says whether it had to wait for others.
    fn on_waiting(&self, call: &Waiting<'_>) {
        let _ = call;
    }

    /// A call acquired a lock, permits, or a further level of a hold, or passed a latch.
    fn on_acquired(&self, acquired: &Acquired<'_>) {
        let _ = acquired;
    }

    /// A call ended without the lock.
    fn on_not_acquired(&self, call: &NotAcquired<'_>) {
        let _ = call;
    }

    /// The server confirmed a renewal of the watchdog.
    fn on_renewed(&self, renewed: &Renewed<'_>) {
        let _ = renewed;
    }

    /// A hold was released. The request may still be on its way.
    fn on_released(&self, hold: &Ended<'_>) {
        let _ = hold;
    }

    /// A hold was lost. The client notices the end of a lease when the lease is due for renewal, or at a call that needs the hold.
    fn on_lost(&self, hold: &Ended<'_>, reason: LossReason) {
        let _ = (hold, reason);
    }

    /// The client no longer follows a hold: its permit was given up with `forget`, or its guard was dropped after the client was closed.
    fn on_unended(&self, hold: &Ended<'_>) {
        let _ = hold;
    }

    /// The connection to `node` was opened again after one was lost. See [`Stats::reconnects`](crate::Stats::reconnects).
    fn on_reconnected(&self, node: &str) {
        let _ = node;
    }

    /// A plain command for `key` did nothing, so that a script follows. See [`Requests::fallbacks`](crate::Requests::fallbacks).
    fn on_script_fallback(&self, key: &str) {
        let _ = key;
    }
}

/// A call that waits.
///
/// ```
/// fn show(call: &redisson_lock::observer::Waiting<'_>) {
///     println!("{} waits for {}", call.owner, call.name);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Waiting<'a> {
    /// A number that is unique in the process. The end of the call has the same number.
    pub call: u64,
    /// The name of the lock in Redis: as the name mapper returned it, if there is one.
    pub name: &'a str,
    /// The kind of the lock, as in errors: `"reentrant lock"`, `"fair lock"`, `"read lock"`, `"semaphore"` and so on.
    pub kind: &'static str,
    /// The owner id `uuid:id` that the call uses at present. The record may name another one: see [`Acquired::owner`].
    pub owner: &'a str,
}

/// A level that a call acquired, or a latch that it passed.
///
/// ```
/// fn show(acquired: &redisson_lock::observer::Acquired<'_>) {
///     println!("{} acquired {} after {:?}", acquired.owner, acquired.name, acquired.took);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Acquired<'a> {
    /// The number of the call: see [`Waiting::call`].
    pub call: u64,
    /// The number of the hold, which is unique in the process among the holds at one time. `None` for a latch, which is passed and not held.
    pub hold: Option<u64>,
    /// The name of the lock in Redis.
    pub name: &'a str,
    /// The kind of the lock: see [`Waiting::kind`].
    pub kind: &'static str,
    /// The owner id in the record. For a kind whose record names no owner, a text that identifies the hold: a token or the ids of permits.
    pub owner: &'a str,
    /// How the call came to the level.
    pub way: Way,
    /// Whether [`Observer::on_waiting`] was called.
    pub waited: bool,
    /// The duration of the call.
    pub took: Duration,
    /// The fencing token, for a kind that has one.
    pub token: Option<u64>,
}

/// A call that ended without the lock.
///
/// ```
/// fn show(call: &redisson_lock::observer::NotAcquired<'_>) {
///     println!("{} did not get {}: {}", call.owner, call.name, call.end);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NotAcquired<'a> {
    /// The number of the call: see [`Waiting::call`].
    pub call: u64,
    /// The name of the lock in Redis.
    pub name: &'a str,
    /// The kind of the lock: see [`Waiting::kind`].
    pub kind: &'static str,
    /// The owner id: see [`Waiting::owner`].
    pub owner: &'a str,
    /// How the call ended.
    pub end: CallEnd,
    /// Whether [`Observer::on_waiting`] was called.
    pub waited: bool,
    /// The duration of the call.
    pub took: Duration,
}

/// A renewal that the server confirmed.
///
/// ```
/// fn show(renewed: &redisson_lock::observer::Renewed<'_>) {
///     println!("{} was renewed when {:?} of {:?} were left", renewed.name, renewed.left, renewed.previous);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Renewed<'a> {
    /// The number of the hold: see [`Acquired::hold`].
    pub hold: u64,
    /// The name of the lock in Redis.
    pub name: &'a str,
    /// The kind of the lock: see [`Waiting::kind`].
    pub kind: &'static str,
    /// The owner id in the record: see [`Acquired::owner`].
    pub owner: &'a str,
    /// The lease that the renewal set.
    pub lease: Duration,
    /// The lease before. The two differ if a hold began with a lease of its own.
    pub previous: Duration,
    /// How much of `previous` was left when the reply arrived. Two thirds are usual, because a renewal is due after a third.
    pub left: Duration,
}

/// A hold that ended.
///
/// ```
/// fn show(hold: &redisson_lock::observer::Ended<'_>) {
///     println!("{} was held for {:?}", hold.name, hold.held);
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Ended<'a> {
    /// The number of the hold: see [`Acquired::hold`].
    pub hold: u64,
    /// The name of the lock in Redis.
    pub name: &'a str,
    /// The kind of the lock: see [`Waiting::kind`].
    pub kind: &'static str,
    /// The owner id in the record: see [`Acquired::owner`].
    pub owner: &'a str,
    /// The time from the first level to the end. For a lost hold, until the client noticed the loss.
    pub held: Duration,
}

/// How a call came to a level.
///
/// ```
/// use redisson_lock::observer::Way;
/// assert_eq!(Way::HandedOver.to_string(), "handed over");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// By its first request, while no other call of the client was at the key.
    Directly,
    /// After a wait.
    AfterWait,
    /// From the previous holder within the client.
    HandedOver,
    /// As a further level of a hold of its owner.
    ReEntered,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Directly => "directly",
            Self::AfterWait => "after a wait",
            Self::HandedOver => "handed over",
            Self::ReEntered => "re-entered",
        })
    }
}

/// How a call ended without the lock.
///
/// ```
/// use redisson_lock::observer::CallEnd;
/// assert_eq!(CallEnd::TimedOut.to_string(), "timed out");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallEnd {
    /// A single attempt found the lock busy.
    Busy,
    /// The time limit ended while the lock was busy.
    TimedOut,
    /// Its future was dropped.
    Cancelled,
    /// It returned an error.
    Failed,
}

impl CallEnd {
    /// Its name in metrics and traces.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for CallEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Busy => "busy",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        })
    }
}

/// The observers of a client.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<dyn Observer>>);

impl Observers {
    pub(crate) fn add(&mut self, observer: Arc<dyn Observer>) {
        self.0.push(observer);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of a new call: 0 without an observer.
    pub(crate) fn next_call(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.is_empty() { 0 } else { NEXT.fetch_add(1, Relaxed) }
    }

    /// Calls `event` with each observer. No mutex may be locked.
    pub(crate) fn tell(&self, event: impl Fn(&dyn Observer)) {
        for observer in &self.0 {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| event(&**observer))) {
                // The value of the panic is the observer's, too, and may panic when it is dropped.
                std::mem::forget(panic);
                error!("an observer panicked: correct its method, because it missed an event");
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}
