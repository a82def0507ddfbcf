//! [`Metrics`]: an observer that records metrics of the crate `metrics`.

use crate::error::LossReason;
use crate::observer::{Acquired, CallEnd, Ended, NotAcquired, Observer, Renewed, Waiting, Way};
use dashmap::DashMap;
use metrics::{
    Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const ACQUIRE: &str = "redisson_lock_acquire_seconds";
const HOLD: &str = "redisson_lock_hold_seconds";
const HELD: &str = "redisson_lock_held";
const WAITING: &str = "redisson_lock_waiting";
const LOST: &str = "redisson_lock_lost_total";
const SLACK: &str = "redisson_lock_renewal_slack_ratio";
const HAND_OFFS: &str = "redisson_lock_hand_offs_total";
const RECONNECTS: &str = "redisson_lock_reconnects_total";
const FALLBACKS: &str = "redisson_lock_script_fallbacks_total";

/// An observer that records metrics with the crate `metrics`, for any recorder of that crate (feature `metrics`).
///
/// | metric | type | labels | meaning |
/// | --- | --- | --- | --- |
/// | `redisson_lock_acquire_seconds` | histogram | `kind`, `outcome`, `contended` | duration of a call. `outcome` is `acquired`, `busy`, `timed_out`, `cancelled` or `failed`. `contended` is `true` if the call waited for another owner, or left while it waited |
/// | `redisson_lock_hold_seconds` | histogram | `kind`, `end` | duration of a hold. `end` is `released`, `lost` or `unended` |
/// | `redisson_lock_held` | gauge | `kind` | holds at present |
/// | `redisson_lock_waiting` | gauge | `kind` | calls that wait at present |
/// | `redisson_lock_lost_total` | counter | `reason` | lost holds. `reason` is `taken`, `gone`, `data_lost`, `expired` or `unreachable` |
/// | `redisson_lock_renewal_slack_ratio` | histogram | | part of the lease before that was left when a renewal was confirmed. About 0.66 is normal; 0 is a loss |
/// | `redisson_lock_hand_offs_total` | counter | | holds that passed from the previous holder within the client |
/// | `redisson_lock_reconnects_total` | counter | | connections that were opened again |
/// | `redisson_lock_script_fallbacks_total` | counter | | plain commands that did nothing, so that a script followed |
///
/// `kind` is the kind of the lock, such as `reentrant lock`. The name of a lock is never a label, because a service may have millions of
/// them. [`metrics_group`](Self::metrics_group) adds a label for groups of names.
///
/// The metrics go to the recorder of the process, so install it before a client uses this observer. Set no idle timeout in it, because the
/// observer keeps the recorder's handles, and a recorder that forgets a metric loses the later events of it. Choose buckets for the histograms in the
/// recorder: from 0.1 ms to a minute for the first two, from 0 to 1 for the third.
///
/// ```no_run
/// # async fn f() -> redisson_lock::Result<()> {
/// use redisson_lock::Metrics;
/// use std::sync::Arc;
///
/// // "orders:42" belongs to the group "orders".
/// let metrics = Metrics::new().metrics_group(|name| name.split(':').next().unwrap_or_default().to_owned());
/// let client = redisson_lock::Client::builder().observer(Arc::new(metrics)).connect("redis://localhost").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "metrics are recorded once a client has this observer"]
pub struct Metrics {
    group: Option<Group>,
    frequent: DashMap<Series, Arc<Frequent>>,
}

/// The kind of a lock, and its group.
type Series = (&'static str, Option<Cow<'static, str>>);

/// The metrics that each hold moves, for one kind and group. A look-up in the recorder costs more than the event.
struct Frequent {
    held: Gauge,
    waiting: Gauge,
    /// By the outcome, and by whether the call was contended.
    acquire: [[OnceLock<Histogram>; 2]; OUTCOMES.len()],
    /// By the end.
    hold: [OnceLock<Histogram>; ENDS.len()],
}

const OUTCOMES: [&str; 5] = ["acquired", "busy", "timed_out", "cancelled", "failed"];
const ENDS: [&str; 3] = ["released", "lost", "unended"];

/// Maps the name of a lock to its group.
type Group = Box<dyn Fn(&str) -> Cow<'static, str> + Send + Sync>;

impl Metrics {
    /// Returns an observer without groups. It describes its metrics to the present recorder.
    pub fn new() -> Self {
        describe_histogram!(ACQUIRE, Unit::Seconds, "Duration of a call that acquires a lock");
        describe_histogram!(HOLD, Unit::Seconds, "Duration of a hold");
        describe_gauge!(HELD, "Holds at present");
        describe_gauge!(WAITING, "Calls that wait at present");
        describe_counter!(LOST, "Holds that were lost");
        describe_histogram!(SLACK, "Part of the lease that was left when a renewal was confirmed");
        describe_counter!(HAND_OFFS, "Holds that passed from the previous holder within the client");
        describe_counter!(RECONNECTS, "Connections that were opened again");
        describe_counter!(FALLBACKS, "Plain commands that did nothing, so that a script followed");
        Self::default()
    }

    /// Adds the label `group` to all metrics that concern one lock. `group` maps the name of the lock in Redis to its group.
    ///
    /// Return few different groups: each is a time series of its own. Return the same group for a name each time, because the end of a hold
    /// moves the gauge of the group that it then has. `group` is called for each event, so it must be quick.
    pub fn metrics_group<G: Into<Cow<'static, str>>>(
        mut self,
        group: impl Fn(&str) -> G + Send + Sync + 'static,
    ) -> Self {
        self.group = Some(Box::new(move |name| group(name).into()));
        self
    }

    fn group(&self, name: &str) -> Option<Cow<'static, str>> {
        self.group.as_ref().map(|group| group(name))
    }

    fn frequent(&self, name: &str, kind: &'static str) -> Arc<Frequent> {
        let series = (kind, self.group(name));
        if let Some(known) = self.frequent.get(&series) {
            return known.clone();
        }
        // A counter of losses exists before the first loss, so that a monitoring system sees the first one as an increase.
        for reason in LossReason::ALL {
            counter!(LOST, labels([("reason", reason.label())], series.1.clone())).increment(0);
        }
        let labels = labels([("kind", kind)], series.1.clone());
        let (held, waiting) = (gauge!(HELD, labels.clone()), gauge!(WAITING, labels));
        let new = Frequent { held, waiting, acquire: Default::default(), hold: Default::default() };
        self.frequent.entry(series).or_insert(Arc::new(new)).clone()
    }

    /// Records the end of a call, and returns the metrics of its kind and group.
    fn called(
        &self,
        (name, kind): (&str, &'static str),
        outcome: &'static str,
        contended: bool,
        waited: bool,
        took: Duration,
    ) -> Arc<Frequent> {
        let frequent = self.frequent(name, kind);
        let at = OUTCOMES.iter().position(|known| *known == outcome).unwrap_or_default();
        let new = || {
            let contended = if contended { "true" } else { "false" };
            let fixed = [("kind", kind), ("outcome", outcome), ("contended", contended)];
            histogram!(ACQUIRE, labels(fixed, self.group(name)))
        };
        frequent.acquire[at][usize::from(contended)].get_or_init(new).record(took);
        if waited {
            frequent.waiting.decrement(1.0);
        }
        frequent
    }

    fn ended(&self, hold: &Ended<'_>, end: &'static str) {
        let Ended { name, kind, held, .. } = *hold;
        let frequent = self.frequent(name, kind);
        let at = ENDS.iter().position(|known| *known == end).unwrap_or_default();
        let new = || histogram!(HOLD, labels([("kind", kind), ("end", end)], self.group(name)));
        frequent.hold[at].get_or_init(new).record(held);
        frequent.held.decrement(1.0);
    }
}

/// The labels of a series.
fn labels<const N: usize>(
    fixed: [(&'static str, &'static str); N],
    group: Option<Cow<'static, str>>,
) -> Vec<Label> {
    let fixed = fixed.into_iter().map(|(key, value)| Label::from_static_parts(key, value));
    fixed.chain(group.map(|group| Label::new("group", group))).collect()
}

impl Observer for Metrics {
    fn on_waiting(&self, call: &Waiting<'_>) {
        self.frequent(call.name, call.kind).waiting.increment(1.0);
    }

    fn on_acquired(&self, acquired: &Acquired<'_>) {
        let Acquired { name, kind, way, waited, took, hold, .. } = *acquired;
        let contended = matches!(way, Way::AfterWait | Way::HandedOver);
        let frequent = self.called((name, kind), "acquired", contended, waited, took);
        if way == Way::HandedOver {
            counter!(HAND_OFFS, labels([], self.group(name))).increment(1);
        }
        if hold.is_some() && way != Way::ReEntered {
            frequent.held.increment(1.0);
        }
    }

    fn on_not_acquired(&self, call: &NotAcquired<'_>) {
        let NotAcquired { name, kind, end, waited, took, .. } = *call;
        let busy = matches!(end, CallEnd::Busy | CallEnd::TimedOut);
        self.called((name, kind), end.label(), busy || waited, waited, took);
    }

    fn on_renewed(&self, renewed: &Renewed<'_>) {
        let Renewed { name, previous, left, .. } = *renewed;
        if !previous.is_zero() {
            histogram!(SLACK, labels([], self.group(name)))
                .record(left.as_secs_f64() / previous.as_secs_f64());
        }
    }

    fn on_released(&self, hold: &Ended<'_>) {
        self.ended(hold, "released");
    }

    fn on_lost(&self, hold: &Ended<'_>, reason: LossReason) {
        counter!(LOST, labels([("reason", reason.label())], self.group(hold.name))).increment(1);
        self.ended(hold, "lost");
    }

    fn on_unended(&self, hold: &Ended<'_>) {
        self.ended(hold, "unended");
    }

    fn on_reconnected(&self, _node: &str) {
        counter!(RECONNECTS).increment(1);
    }

    fn on_script_fallback(&self, key: &str) {
        counter!(FALLBACKS, labels([], self.group(key))).increment(1);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("has_groups", &self.group.is_some()).finish()
    }
}
