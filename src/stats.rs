//! The counters of a client, and [`Stats`], the snapshot of them that users see. The observers of the client are beside the counters,
//! because the same events reach both.
//!
//! A counter is one atomic addition, so they count always. They are independent: a snapshot that is taken during a change may
//! have one of two counters that change together.

use crate::error::LossReason;
use crate::observer::{CallEnd, Observers, Way};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A snapshot of a client's counters, from [`Client::stats`](crate::Client::stats).
///
/// All numbers begin at 0 when the client is made, and count all handles of the client. A client of the blocking API counts the same.
/// A [`MultiLock`](crate::MultiLock) and a [`RedLock`](crate::RedLock) count each of their members. The wait for a
/// [`CountDownLatch`](crate::CountDownLatch) counts as a call, but acquires no hold.
///
/// Each hold begins once and ends once: [`begun`](Self::begun) is the sum of [`released`](Self::released), [`lost`](Self::lost),
/// [`unended`](Self::unended) and [`held`](Self::held), as long as nothing begins or ends meanwhile.
///
/// ```no_run
/// # fn f(client: redisson_lock::Client) {
/// let stats = client.stats();
/// println!("{} held, {} lost, longest lag of the watchdog {:?}", stats.held, stats.lost.total(), stats.watchdog_lag);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The holds at present. A hold with several levels is one hold.
    pub held: u64,
    /// The calls that wait at present, behind other calls of this client or for another client.
    pub waiting: u64,
    /// The holds that calls acquired with their first request, while no other call of the client was at the key.
    pub acquired_directly: u64,
    /// The holds that calls acquired after they had waited.
    pub acquired_after_wait: u64,
    /// The holds that calls got from the previous holder within this client.
    pub handed_over: u64,
    /// The further levels of a hold that its owner acquired.
    pub re_entered: u64,
    /// The single attempts that found the lock busy.
    pub busy: u64,
    /// The calls whose time limit ended while the lock was busy.
    pub timed_out: u64,
    /// The calls whose future was dropped before they had an outcome.
    pub cancelled: u64,
    /// The calls that ended with an error, unless their arguments were invalid.
    pub failed: u64,
    /// The holds that their owner released. The server may have refused the release, or the record may have been gone: then the release
    /// returned [`Error::Lost`](crate::Error::Lost).
    pub released: u64,
    /// The holds that were lost, by reason.
    pub lost: Losses,
    /// The holds whose end the client did not see: a permit that was given up with `forget`, or a guard that was dropped after its client
    /// was closed.
    pub unended: u64,
    /// The renewals of the watchdog.
    pub renewals: Renewals,
    /// The attempts after a message of another client.
    pub wake_ups: WakeUps,
    /// The connections that were opened again after one was lost. The first connection to a server does not count, such as that to the
    /// new master of a cluster. Neither do connections for messages.
    pub reconnects: u64,
    /// The requests to acquire, renew, release and inspect.
    pub requests: Requests,
    /// The longest time by which the watchdog was behind its schedule: a busy runtime, or a suspended process.
    pub watchdog_lag: Duration,
}

impl Stats {
    /// The holds that have begun.
    pub fn begun(&self) -> u64 {
        self.acquired_directly + self.acquired_after_wait + self.handed_over
    }
}

/// The lost holds of [`Stats`], by [`LossReason`].
///
/// ```no_run
/// # fn f(client: redisson_lock::Client) {
/// let lost = client.stats().lost;
/// println!("{} holds lost, {} of them to other owners", lost.total(), lost.taken);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// [`LossReason::Taken`]
    pub taken: u64,
    /// [`LossReason::Gone`]
    pub gone: u64,
    /// [`LossReason::DataLost`]
    pub data_lost: u64,
    /// [`LossReason::Expired`], including the end of a fixed lease that its owner did not release in time.
    pub expired: u64,
    /// [`LossReason::Unreachable`]
    pub unreachable: u64,
}

impl Losses {
    /// The lost holds of all reasons.
    pub fn total(&self) -> u64 {
        self.taken + self.gone + self.data_lost + self.expired + self.unreachable
    }
}

/// The renewals of [`Stats`]: one for each hold that a request renews.
///
/// ```no_run
/// # fn f(client: redisson_lock::Client) {
/// let renewals = client.stats().renewals;
/// println!("{} of {} renewals were late", renewals.late, renewals.done);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Renewals {
    /// Renewals that the server confirmed.
    pub done: u64,
    /// Those of them that were confirmed when less than a third of the lease before was left. A renewal is due when two thirds are left.
    pub late: u64,
    /// Renewals that the server refused or did not answer. The hold is then in doubt, and the watchdog tries again.
    pub failed: u64,
}

/// The attempts of [`Stats`] that follow a message of another client.
///
/// ```no_run
/// # fn f(client: redisson_lock::Client) {
/// let wake_ups = client.stats().wake_ups;
/// println!("{} of {} wake-ups were in vain", wake_ups.empty, wake_ups.useful + wake_ups.empty);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WakeUps {
    /// Attempts that acquired the lock.
    pub useful: u64,
    /// Attempts that found the lock busy again.
    pub empty: u64,
}

/// The requests of [`Stats`]. A repeated request counts each time.
///
/// ```no_run
/// # fn f(client: redisson_lock::Client) {
/// let requests = client.stats().requests;
/// println!("{} requests without a reply", requests.in_flight);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Requests {
    /// Requests as plain commands in place of a script, which cost the server less.
    pub shortcuts: u64,
    /// Shortcuts that did nothing, so that the script followed.
    pub fallbacks: u64,
    /// Requests as scripts.
    pub scripts: u64,
    /// Other commands, such as the question who holds a busy lock.
    pub commands: u64,
    /// Requests without a reply at present.
    pub in_flight: u64,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        // The benchmark measures what counting costs.
        if !cfg!(uncounted) {
            self.0.fetch_add(number, Relaxed);
        }
    }

    pub(crate) fn count(&self) {
        self.add(1);
    }

    /// The number. A difference of two counters is never negative if the smaller one is read first.
    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How many of something there are at present.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    begun: Counter,
    ended: Counter,
}

impl Gauge {
    /// Counts one more until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.begun.count();
        Entered(&self.ended)
    }

    fn get(&self) -> u64 {
        let ended = self.ended.get();
        self.begun.get().saturating_sub(ended)
    }
}

/// One of those that a gauge counts.
pub(crate) struct Entered<'a>(&'a Counter);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.count();
    }
}

/// How a hold ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Released,
    Lost(LossReason),
    Unseen,
}

impl End {
    /// Its name in traces.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Lost(_) => "lost",
            Self::Unseen => "unended",
        }
    }
}

/// The counters of one client, and its observers.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub observers: Observers,
    pub waiting: Gauge,
    acquired: [Counter; 4],
    busy: Counter,
    timed_out: Counter,
    cancelled: Counter,
    failed: Counter,
    ended: [Counter; 7],
    pub renewed: Counter,
    pub renewed_late: Counter,
    pub not_renewed: Counter,
    pub useful_wake_ups: Counter,
    pub empty_wake_ups: Counter,
    pub reconnects: Counter,
    pub shortcuts: Counter,
    pub fallbacks: Counter,
    pub scripts: Counter,
    pub commands: Counter,
    pub in_flight: Gauge,
    watchdog_lag: AtomicU64,
}

impl Counters {
    pub(crate) fn new(observers: Observers) -> Arc<Self> {
        Arc::new(Self { observers, ..Self::default() })
    }

    /// Counts a level.
    pub(crate) fn acquired(&self, way: Way) {
        self.of_way(way).count();
    }

    fn of_way(&self, way: Way) -> &Counter {
        let [directly, after_wait, handed_over, re_entered] = &self.acquired;
        match way {
            Way::Directly => directly,
            Way::AfterWait => after_wait,
            Way::HandedOver => handed_over,
            Way::ReEntered => re_entered,
        }
    }

    /// Counts a call that ended without a level.
    pub(crate) fn not_acquired(&self, end: CallEnd) {
        match end {
            CallEnd::Busy => &self.busy,
            CallEnd::TimedOut => &self.timed_out,
            CallEnd::Cancelled => &self.cancelled,
            CallEnd::Failed => &self.failed,
        }
        .count();
    }

    /// Counts the end of a hold.
    pub(crate) fn ended(&self, end: End) {
        self.of_end(end).count();
    }

    fn of_end(&self, end: End) -> &Counter {
        let [released, unseen, taken, gone, data_lost, expired, unreachable] = &self.ended;
        match end {
            End::Released => released,
            End::Unseen => unseen,
            End::Lost(LossReason::Taken) => taken,
            End::Lost(LossReason::Gone) => gone,
            End::Lost(LossReason::DataLost) => data_lost,
            End::Lost(LossReason::Expired) => expired,
            End::Lost(LossReason::Unreachable) => unreachable,
        }
    }

    /// Notes that the watchdog was `lag` behind its schedule.
    pub(crate) fn lagged(&self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.watchdog_lag.fetch_max(micros, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        // Ends are read before beginnings, so that no end is seen without its beginning.
        let ended = |end| self.of_end(end).get();
        let lost = |reason| ended(End::Lost(reason));
        let mut stats = Stats {
            released: ended(End::Released),
            unended: ended(End::Unseen),
            lost: Losses {
                taken: lost(LossReason::Taken),
                gone: lost(LossReason::Gone),
                data_lost: lost(LossReason::DataLost),
                expired: lost(LossReason::Expired),
                unreachable: lost(LossReason::Unreachable),
            },
            waiting: self.waiting.get(),
            acquired_directly: self.of_way(Way::Directly).get(),
            acquired_after_wait: self.of_way(Way::AfterWait).get(),
            handed_over: self.of_way(Way::HandedOver).get(),
            re_entered: self.of_way(Way::ReEntered).get(),
            busy: self.busy.get(),
            timed_out: self.timed_out.get(),
            cancelled: self.cancelled.get(),
            failed: self.failed.get(),
            renewals: Renewals {
                late: self.renewed_late.get(),
                done: self.renewed.get(),
                failed: self.not_renewed.get(),
            },
            wake_ups: WakeUps { useful: self.useful_wake_ups.get(), empty: self.empty_wake_ups.get() },
            reconnects: self.reconnects.get(),
            requests: Requests {
                in_flight: self.in_flight.get(),
                fallbacks: self.fallbacks.get(),
                shortcuts: self.shortcuts.get(),
                scripts: self.scripts.get(),
                commands: self.commands.get(),
            },
            watchdog_lag: Duration::from_micros(self.watchdog_lag.load(Relaxed)),
            held: 0,
        };
        let ends = stats.released + stats.lost.total() + stats.unended;
        stats.held = stats.begun().saturating_sub(ends);
        stats
    }
}
