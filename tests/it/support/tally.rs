//! An observer that counts each event, and compares its counts with those of the client.

use redisson_lock::observer::{Acquired, CallEnd, Ended, NotAcquired, Observer, Renewed, Waiting, Way};
use redisson_lock::{Client, ClientBuilder, LossReason, Stats};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The counts of one client's events, and the calls and holds that have not ended. A failed assertion of a method poisons the mutex, so
/// that the test fails at its next [`assert_agrees`](Self::assert_agrees).
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    acquired: HashMap<Way, u64>,
    ended: HashMap<CallEnd, u64>,
    released: u64,
    lost: HashMap<LossReason, u64>,
    unended: u64,
    renewed: u64,
    reconnects: u64,
    fallbacks: u64,
    waiting: HashSet<u64>,
    begun: HashSet<u64>,
    held: HashSet<u64>,
}

impl Tally {
    /// Observes the client that `builder` connects.
    pub fn of(builder: ClientBuilder) -> (ClientBuilder, Arc<Self>) {
        let tally = Arc::new(Self::default());
        (builder.observer(tally.clone()), tally)
    }

    /// Asserts that the observer has seen what the client has counted, or sees it soon.
    pub async fn assert_agrees(&self, client: &Client) {
        let agrees = async {
            while !self.differences(&client.stats()).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(10), agrees).await;
        let differences = self.differences(&client.stats());
        assert!(differences.is_empty(), "{differences:?}: {self:?}, {:?}", client.stats());
    }

    /// The events whose observed number differs from the counted one, with both.
    fn differences(&self, stats: &Stats) -> Vec<(&'static str, u64, u64)> {
        let counts = self.0.lock().unwrap();
        let way = |way| counts.acquired.get(&way).copied().unwrap_or(0);
        let end = |end| counts.ended.get(&end).copied().unwrap_or(0);
        let lost = |reason| counts.lost.get(&reason).copied().unwrap_or(0);
        let all = [
            ("acquired directly", way(Way::Directly), stats.acquired_directly),
            ("acquired after a wait", way(Way::AfterWait), stats.acquired_after_wait),
            ("handed over", way(Way::HandedOver), stats.handed_over),
            ("re-entered", way(Way::ReEntered), stats.re_entered),
            ("busy", end(CallEnd::Busy), stats.busy),
            ("timed out", end(CallEnd::TimedOut), stats.timed_out),
            ("cancelled", end(CallEnd::Cancelled), stats.cancelled),
            ("failed", end(CallEnd::Failed), stats.failed),
            ("released", counts.released, stats.released),
            ("taken", lost(LossReason::Taken), stats.lost.taken),
            ("gone", lost(LossReason::Gone), stats.lost.gone),
            ("data lost", lost(LossReason::DataLost), stats.lost.data_lost),
            ("expired", lost(LossReason::Expired), stats.lost.expired),
            ("unreachable", lost(LossReason::Unreachable), stats.lost.unreachable),
            ("unended", counts.unended, stats.unended),
            ("renewed", counts.renewed, stats.renewals.done),
            ("reconnected", counts.reconnects, stats.reconnects),
            ("fallbacks", counts.fallbacks, stats.requests.fallbacks),
            ("held", counts.held.len() as u64, stats.held),
            ("waiting", counts.waiting.len() as u64, stats.waiting),
        ];
        all.into_iter().filter(|(_, observed, counted)| observed != counted).collect()
    }

    fn end_hold(&self, hold: &Ended<'_>) -> std::sync::MutexGuard<'_, Counts> {
        let mut counts = self.0.lock().unwrap();
        assert!(counts.held.remove(&hold.hold), "a hold ended that had not begun, or ended before: {hold:?}");
        counts
    }
}

impl Observer for Tally {
    fn on_waiting(&self, call: &Waiting<'_>) {
        assert!(self.0.lock().unwrap().waiting.insert(call.call), "reported twice: {call:?}");
    }

    fn on_acquired(&self, acquired: &Acquired<'_>) {
        let mut counts = self.0.lock().unwrap();
        assert_eq!(counts.waiting.remove(&acquired.call), acquired.waited, "{acquired:?}");
        if let Some(hold) = acquired.hold {
            *counts.acquired.entry(acquired.way).or_default() += 1;
            assert_eq!(counts.held.insert(hold), acquired.way != Way::ReEntered, "{acquired:?}");
            counts.begun.insert(hold);
        }
    }

    fn on_not_acquired(&self, call: &NotAcquired<'_>) {
        let mut counts = self.0.lock().unwrap();
        assert_eq!(counts.waiting.remove(&call.call), call.waited, "{call:?}");
        *counts.ended.entry(call.end).or_default() += 1;
    }

    fn on_renewed(&self, renewed: &Renewed<'_>) {
        let mut counts = self.0.lock().unwrap();
        // The hold may have been released in the meantime.
        assert!(counts.begun.contains(&renewed.hold), "{renewed:?}");
        assert!(renewed.left <= renewed.previous && !renewed.lease.is_zero(), "{renewed:?}");
        counts.renewed += 1;
    }

    fn on_released(&self, hold: &Ended<'_>) {
        self.end_hold(hold).released += 1;
    }

    fn on_lost(&self, hold: &Ended<'_>, reason: LossReason) {
        *self.end_hold(hold).lost.entry(reason).or_default() += 1;
    }

    fn on_unended(&self, hold: &Ended<'_>) {
        self.end_hold(hold).unended += 1;
    }

    fn on_reconnected(&self, _node: &str) {
        self.0.lock().unwrap().reconnects += 1;
    }

    fn on_script_fallback(&self, _key: &str) {
        self.0.lock().unwrap().fallbacks += 1;
    }
}
