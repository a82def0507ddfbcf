//! Every setting with its default and its unit.

use crate::config::credentials::Source;
use crate::config::tls::Tls;
use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Bounds of the local hand-off.
///
/// When a hold ends and another task of the same client waits, the record passes from owner to owner without being
/// freed. These bounds keep that fair to other clients: past one of them a real release with its message is made, and
/// this client leaves the lock to others for `pause`, and anew after each message, until as many were heard as others
/// were told of the release, or nobody came. (`try_lock`, which does not wait, does not wait for that either.)
///
/// ```
/// let mut bounds = redisson_lock::HandOff::default();
/// bounds.max_in_row = 0; // off
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandOff {
    /// Hand-offs in a row while another client subscribes to the lock's channel; also bounded by this client's
    /// waiters divided by the other subscribers. Default 16; 0 turns hand-off off.
    pub max_in_row: u32,
    /// Time in a row while another client subscribes. Default 20 ms.
    pub max_time: Duration,
    /// Time in a row in any case, for clients that poll instead of subscribing. Default 200 ms.
    pub max_time_alone: Duration,
    /// How long this client stays away after a release that others were told of. Default 3 ms.
    pub pause: Duration,
    /// The same where other clients were seen to come and go without messages (Redisson's spin lock), which look
    /// at the lock only every so often. Default 10 ms.
    pub pause_for_pollers: Duration,
    /// Whether who unlocks gives the lock to the next waiter of its client on the spot, without waiting for Redis: the
    /// record follows within a round trip, and many holds share one. Default false: the next guard is returned when
    /// Redis has confirmed that the record names its owner.
    ///
    /// What that trades for holds of less than a microsecond in the place of a round trip each:
    /// - The record always names an owner of this client, so no other client and no Java thread can hold the lock; but for
    ///   that round trip it names an earlier one, which [`Lock::holder`](crate::Lock::holder) shows.
    /// - `unlock` returns before Redis knows, and a hold that ends within the round trip is never confirmed by itself: if
    ///   somebody freed or took the record meanwhile (a force-unlock, lost data), that hold is not told. The one that is
    ///   current when it is found out is told that it is lost. No guard says `Held` beyond the lease as last confirmed.
    ///
    /// Only between guards that both ask for it; the bounds above hold for it, too.
    pub pipelined: bool,
}

impl Default for HandOff {
    fn default() -> Self {
        Self {
            max_in_row: 16,
            max_time: Duration::from_millis(20),
            max_time_alone: Duration::from_millis(200),
            pause: Duration::from_millis(3),
            pause_for_pollers: Duration::from_millis(10),
            pipelined: false,
        }
    }
}

/// When a waiter that is told of no release looks again at a busy lock: after `first`, and then each time after
/// `factor` times as long, up to `longest`. Redisson's `LockOptions.BackOff`.
///
/// ```
/// let mut constant = redisson_lock::BackOff::default();
/// constant.first = std::time::Duration::from_millis(20);
/// constant.factor = 1;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackOff {
    /// Default 1 ms.
    pub first: Duration,
    /// Default 128 ms.
    pub longest: Duration,
    /// Default 2; 1 for equal steps.
    pub factor: u32,
}

impl Default for BackOff {
    fn default() -> Self {
        Self::between(Duration::from_millis(1), Duration::from_millis(128))
    }
}

impl BackOff {
    pub(crate) const fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, factor: 2 }
    }

    /// The step after one of that length.
    pub(crate) fn after(&self, step: Duration) -> Duration {
        step.saturating_mul(self.factor).min(self.longest.max(self.first))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.first < Duration::from_millis(1) || self.factor == 0 {
            return Err(Error::misuse(
                "a back-off must begin with at least 1 ms, and its factor be at least 1",
            ));
        }
        Ok(())
    }
}

/// How many replicas must have an acquire before it counts: else a failover to one that lacks it loses the hold, and somebody
/// else may get the lock meanwhile. Redisson's `checkLockSyncedSlaves`.
///
/// An acquire that too few replicas acknowledge within the time is undone, and fails with
/// [`Error::NotReplicated`](crate::Error::NotReplicated). What is waited for comes on top of the acquire's round trip: one or
/// two more; those of one time share them. A release does not wait: it has taken effect, whatever replicas have of it. The
/// local [`HandOff`] is off with it, so that each hold is checked.
///
/// Where a replica is promoted that was not among those who acknowledged, a hold may still be lost; its holder is told.
///
/// ```
/// use redisson_lock::Replication;
/// let two = Replication::at_least(2).within(std::time::Duration::from_millis(300));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replication {
    /// None: one, if there are any.
    pub(crate) at_least: Option<u32>,
    pub(crate) within: Duration,
}

impl Replication {
    /// One replica, if the master has any: one that is connected, or was so within the last watchdog's lease when this client
    /// asked (it may be taking the master's place).
    pub const fn any() -> Self {
        Self { at_least: None, within: Duration::from_secs(1) }
    }

    /// So many replicas, whether they are connected or not; 0 turns the check off.
    pub const fn at_least(replicas: u32) -> Self {
        Self { at_least: Some(replicas), within: Duration::from_secs(1) }
    }

    /// How long they have for that. Default 1 s, as Redisson's `slavesSyncTimeout`.
    pub const fn within(self, limit: Duration) -> Self {
        Self { within: limit, ..self }
    }

    pub(crate) fn is_off(self) -> bool {
        self.at_least == Some(0)
    }
}

/// How long a hold lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The client's lease, renewed while the holder lives.
    Watchdog,
    /// As long as said, never renewed.
    Fixed(Duration),
    /// Until it is given back.
    Endless,
}

/// The lease of what has none.
pub(crate) const ENDLESS: Duration = Duration::MAX;

impl Lease {
    /// A fixed lease must be whole milliseconds that Redis can count.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Watchdog | Self::Endless => Ok(()),
            Self::Fixed(lease) => check_lease(lease),
        }
    }
}

/// The settings of a client.
#[derive(Clone)]
pub(crate) struct Options {
    pub id: Uuid,
    pub lease: Duration,
    pub response_timeout: Duration,
    pub connect_timeout: Duration,
    pub reconnect_min: Duration,
    pub reconnect_max: Duration,
    pub hand_off: HandOff,
    /// By default off.
    pub replication: Option<Replication>,
    pub fair_wait_timeout: Duration,
    pub token_retention: Option<Duration>,
    pub name_mapper: Option<NameMapper>,
    pub tls: Option<Tls>,
    /// In the place of those that stand beside the address.
    pub credentials: Option<Source>,
    pub sentinel_credentials: Option<Source>,
    /// A sentinel that asks for credentials gets the master's.
    pub share_credentials: bool,
    /// Each message is for the nodes of its slot alone. In a cluster only; what nobody said is asked there.
    pub sharded: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            id: Uuid::new_v4(),
            lease: Duration::from_secs(30),
            response_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(5),
            reconnect_min: Duration::from_millis(10),
            reconnect_max: Duration::from_millis(500),
            hand_off: HandOff::default(),
            replication: None,
            fair_wait_timeout: Duration::from_secs(300),
            token_retention: None,
            name_mapper: None,
            tls: None,
            credentials: None,
            sentinel_credentials: None,
            share_credentials: false,
            sharded: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        check_lease(self.lease)?;
        for (what, time) in [
            ("response timeout", self.response_timeout),
            ("connect timeout", self.connect_timeout),
            ("reconnect back-off", self.reconnect_min),
            ("fair lock's wait timeout", self.fair_wait_timeout),
            ("time for replicas", self.replication().within),
        ] {
            if time.is_zero() || time > Duration::from_secs(24 * 3600) {
                return Err(Error::misuse(format!("the {what} must be above 0 and at most a day")));
            }
        }
        if self.token_retention.is_some_and(|kept| kept < self.lease) {
            return Err(Error::misuse("fencing tokens must be kept for at least a lease"));
        }
        if !self.replication().is_off() && self.hand_off.pipelined {
            return Err(Error::misuse(
                "a pipelined hand-off is ahead of the record, so no replica can be asked for it",
            ));
        }
        if self.reconnect_max < self.reconnect_min {
            return Err(Error::misuse("the longest reconnect back-off is below the shortest"));
        }
        Ok(())
    }

    pub(crate) fn replication(&self) -> Replication {
        self.replication.unwrap_or(Replication::at_least(0))
    }

    /// The key of the lock of that name.
    pub(crate) fn map(&self, name: &str) -> String {
        self.name_mapper.as_ref().map_or_else(|| name.to_owned(), |map| (map.0)(name))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("id", &self.id)
            .field("lease", &self.lease)
            .field("response_timeout", &self.response_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("reconnect", &(self.reconnect_min..=self.reconnect_max))
            .field("hand_off", &self.hand_off)
            .field("replication", &self.replication)
            .field("fair_wait_timeout", &self.fair_wait_timeout)
            .field("token_retention", &self.token_retention)
            .field("name_mapper", &self.name_mapper.is_some())
            .field("tls", &self.tls)
            .field("credentials", &self.credentials)
            .field("sentinel_credentials", &self.sentinel_credentials)
            .field("share_credentials", &self.share_credentials)
            .field("sharded", &self.sharded)
            .finish()
    }
}

/// From a lock's name to its key.
#[derive(Clone)]
pub(crate) struct NameMapper(pub Arc<dyn Fn(&str) -> String + Send + Sync>);

/// Longest lease that Redis takes: it adds the lease to its own clock, in milliseconds, as a signed 64-bit number.
const MAX_LEASE_MS: u128 = i64::MAX as u128 / 2;

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    match lease.as_millis() {
        0 => Err(Error::misuse("a lease must be at least 1 ms")),
        1..=MAX_LEASE_MS => Ok(()),
        ms => Err(Error::misuse(format!(
            "a lease of {ms} ms is over the {MAX_LEASE_MS} ms that Redis can count"
        ))),
    }
}

/// A wait that the clock can count.
pub(crate) fn check_wait(wait: Duration) -> Result<()> {
    match i64::try_from(wait.as_millis()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::misuse("a wait time must fit into 2^63 ms; use `lock` to wait without a limit")),
    }
}

/// Milliseconds of a checked lease.
pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}

/// The part of a lease that Redis counts: whole milliseconds. A deadline that counted more would be later than the server's.
pub(crate) fn whole_millis(lease: Duration) -> Duration {
    Duration::from_millis(millis(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_waits_have_limits() {
        for bad in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(u64::MAX), Duration::MAX]
        {
            assert!(matches!(Lease::Fixed(bad).check(), Err(Error::Misuse { .. })), "{bad:?}");
        }
        for good in [Duration::from_millis(1), Duration::from_secs(1 << 40)] {
            assert!(Lease::Fixed(good).check().is_ok());
        }
        assert!(check_wait(Duration::MAX).is_err());
        assert!(check_wait(Duration::from_secs(1 << 40)).is_ok());
    }
}
