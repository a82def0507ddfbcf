//! The options of a client, with their defaults, units and limits.

use crate::config::credentials::Source;
use crate::config::tls::Tls;
use crate::error::{Error, Result};
use crate::holder;
use crate::observer::Observers;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The bounds of the local hand-off.
///
/// When a hold ends and another task of the same client waits, the lock passes from owner to owner without being released. These bounds
/// keep the hand-off fair to other clients. They also apply to the permits of a [`Semaphore`](crate::Semaphore), which pass to the next
/// waiter that wants as many. When a bound is reached, the client releases the lock with a message and opens a yield window:
/// it does not try to acquire the lock for [`pause`](Self::pause). Each message of another client restarts this pause. The window ends when
/// every client that received the release has had a turn, or when the pause passes without a message. `try_lock` does not wait for its end.
///
/// ```
/// use redisson_lock::HandOff;
/// let off = HandOff::new().max_in_row(0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings have no effect until a client is built with them"]
pub struct HandOff {
    pub(crate) max_in_row: u32,
    pub(crate) max_time: Duration,
    pub(crate) max_time_alone: Duration,
    pub(crate) pause: Duration,
    pub(crate) pause_for_pollers: Duration,
    pub(crate) pipelined: bool,
}

impl HandOff {
    /// Returns the default bounds.
    pub const fn new() -> Self {
        Self {
            max_in_row: 8,
            max_time: Duration::from_millis(20),
            max_time_alone: Duration::from_millis(200),
            pause: Duration::from_millis(3),
            pause_for_pollers: Duration::from_millis(10),
            pipelined: false,
        }
    }

    /// Sets the maximum length of a series of hand-offs while another client subscribes to the lock's channel or is known to poll.
    /// Default 8; 0 turns the hand-off off.
    ///
    /// The series is also limited to the number of this client's waiters divided by the number of other subscribers, rounded up.
    pub const fn max_in_row(self, max_in_row: u32) -> Self {
        Self { max_in_row, ..self }
    }

    /// Sets the maximum duration of a series of hand-offs while another client subscribes or is known to poll, and of each series of a
    /// lock whose waiters poll ([`Client::spin_lock`](crate::Client::spin_lock)). Default 20 ms.
    pub const fn max_time(self, max_time: Duration) -> Self {
        Self { max_time, ..self }
    }

    /// Sets the maximum duration of a series even if no other client subscribes, because some clients poll instead. Default 200 ms.
    pub const fn max_time_alone(self, max_time_alone: Duration) -> Self {
        Self { max_time_alone, ..self }
    }

    /// Sets how long this client yields after a release whose message reached other clients. Default 3 ms.
    pub const fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Sets how long this client yields if it has noticed clients that release the lock without a message. Default 10 ms.
    ///
    /// Such clients, for example Redisson's spin locks, look at the lock only at intervals.
    pub const fn pause_for_pollers(self, pause_for_pollers: Duration) -> Self {
        Self { pause_for_pollers, ..self }
    }

    /// Sets whether the lock is handed to the next local waiter before Redis confirms. Default `false`.
    ///
    /// By default, the next guard is returned when Redis has confirmed that the record names its owner. With the pipelined hand-off,
    /// the record follows within a round trip, and many holds share one round trip.
    ///
    /// Trade-offs:
    /// - The record always names an owner of this client, so no other client and no Java thread can hold the lock. For up to a round
    ///   trip it names an earlier owner, which [`Lock::holder`](crate::Lock::holder) shows.
    /// - `unlock` returns before Redis confirms, and a hold shorter than one round trip is never confirmed individually. If the
    ///   record is taken or deleted meanwhile (by a force-unlock or a loss of data), that hold does not notice. The hold that is
    ///   current when the client finds out is reported as lost. No guard reports `Held` beyond the last confirmed lease.
    /// - A hold begins with the rest of the last confirmed lease, which is at least half of its own. If less is left, the release waits
    ///   for Redis.
    /// - A re-entry waits until the record names the holder. It fails if the server refuses to update the record, for example because it is
    ///   out of memory.
    ///
    /// The pipelined hand-off is used only if both the released hold and the waiter were acquired with this setting. The bounds above apply
    /// to it, too.
    pub const fn pipelined(self, pipelined: bool) -> Self {
        Self { pipelined, ..self }
    }
}

impl Default for HandOff {
    fn default() -> Self {
        Self::new()
    }
}

/// The pauses between two attempts of a waiter that no message wakes. Mirrors Redisson's `LockOptions.BackOff`.
///
/// The waiter retries after `first`. Each further pause is `factor` times as long, up to `longest`.
///
/// ```
/// use redisson_lock::BackOff;
/// let constant = BackOff::new().first(std::time::Duration::from_millis(20)).factor(1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings have no effect until a client is built with them"]
pub struct BackOff {
    pub(crate) first: Duration,
    longest: Duration,
    factor: u32,
}

impl Default for BackOff {
    fn default() -> Self {
        Self::new()
    }
}

impl BackOff {
    /// Returns the default pauses.
    pub const fn new() -> Self {
        Self::between(Duration::from_millis(1), Duration::from_millis(128))
    }

    /// Sets the first pause, at least 1 ms. Default 1 ms.
    pub const fn first(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// Sets the longest pause. Default 128 ms.
    pub const fn longest(self, longest: Duration) -> Self {
        Self { longest, ..self }
    }

    /// Sets the factor from one pause to the next; 1 keeps them equal. Default 2.
    pub const fn factor(self, factor: u32) -> Self {
        Self { factor, ..self }
    }

    pub(crate) const fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, factor: 2 }
    }

    /// Returns the pause after a pause of length `step`.
    pub(crate) fn after(&self, step: Duration) -> Duration {
        step.saturating_mul(self.factor).min(self.longest.max(self.first))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.first < Duration::from_millis(1) || self.factor == 0 {
            return Err(Error::misuse(
                "a back-off must begin with at least 1 ms and have a factor of at least 1",
            ));
        }
        Ok(())
    }
}

/// The number of replicas that must confirm an acquire before it succeeds. Mirrors Redisson's `checkLockSyncedSlaves`.
///
/// Without this check, a failover to a replica that lacks the record loses the hold, and another owner may acquire the lock.
///
/// If too few replicas confirm an acquire in time, the acquire is undone and fails with
/// [`Error::NotReplicated`]. The check adds one or two round trips to the acquire; acquires that wait
/// at the same time share them. A release does not wait for replicas, because it has already taken effect. The check turns off the
/// local [`HandOff`], so that each hold is checked.
///
/// If the promoted replica did not confirm the acquire, the hold may still be lost. The holder learns of the loss.
///
/// ```
/// use redisson_lock::Replication;
/// let two = Replication::at_least(2).within(std::time::Duration::from_millis(300));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "settings have no effect until a client is built with them"]
pub struct Replication {
    /// `None` means one replica if the master has any.
    pub(crate) at_least: Option<u32>,
    pub(crate) within: Duration,
}

impl Replication {
    /// Requires one replica, if the master has any.
    ///
    /// The master has a replica if one is connected, or if this client saw one connected within the last watchdog timeout. Such a replica
    /// may be about to replace the master.
    pub const fn any() -> Self {
        Self { at_least: None, within: Duration::from_secs(1) }
    }

    /// Requires the confirmation of `replicas` replicas. The acquire fails if fewer are connected. 0 turns the check off.
    pub const fn at_least(replicas: u32) -> Self {
        Self { at_least: Some(replicas), within: Duration::from_secs(1) }
    }

    /// Sets how long the replicas have to confirm. Default 1 s, like Redisson's `slavesSyncTimeout`.
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
    /// The client's lease, renewed while the holder lives, for at most this long.
    WatchdogFor(Duration),
    /// The client's lease or this long, whichever is longer, renewed while the holder lives. The record is kept for at least this long.
    AtLeast(Duration),
    /// This long, never renewed.
    Fixed(Duration),
    /// Until it is released.
    Endless,
}

/// Stands for the lease of a hold that has none.
pub(crate) const ENDLESS: Duration = Duration::MAX;

impl Lease {
    /// Checks that Redis can count a fixed lease in whole milliseconds.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::Watchdog | Self::Endless => Ok(()),
            Self::WatchdogFor(lease) | Self::AtLeast(lease) | Self::Fixed(lease) => check_lease(lease),
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
    /// `None` until `ClientBuilder::connect_with` chooses the default.
    pub replication: Option<Replication>,
    pub fair_wait_timeout: Duration,
    pub token_retention: Option<Duration>,
    pub name_mapper: Option<NameMapper>,
    /// The name under which the client registers itself.
    pub application: Option<Arc<str>>,
    pub tls: Option<Tls>,
    /// Replaces the credentials in the URL.
    pub credentials: Option<Source>,
    pub sentinel_credentials: Option<Source>,
    /// Send the master's credentials to sentinels that require some.
    pub share_credentials: bool,
    /// Publish each message only to the nodes of its slot. Used in a cluster only; `None` means that the cluster decides.
    pub sharded: Option<bool>,
    pub observers: Observers,
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
            application: None,
            tls: None,
            credentials: None,
            sentinel_credentials: None,
            share_credentials: false,
            sharded: None,
            observers: Observers::default(),
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
            ("fair lock wait timeout", self.fair_wait_timeout),
            ("replication timeout", self.replication().within),
        ] {
            // Redis counts whole milliseconds, and takes 0 for no limit.
            if time < Duration::from_millis(1) || time > Duration::from_secs(24 * 3600) {
                return Err(Error::misuse(format!("the {what} must be at least 1 ms and at most a day")));
            }
        }
        if self.token_retention.is_some_and(|kept| kept < self.lease) {
            return Err(Error::misuse(
                "fencing tokens must be kept for at least the watchdog timeout: raise `fencing_token_retention`",
            ));
        }
        if self.token_retention.is_some_and(|kept| kept.as_millis() > MAX_LEASE_MS) {
            return Err(Error::misuse(format!(
                "fencing tokens can be kept for at most {MAX_LEASE_MS} ms: to keep them forever, leave out \
                 `fencing_token_retention`"
            )));
        }
        if !self.replication().is_off() && self.hand_off.pipelined {
            return Err(Error::misuse(
                "a pipelined hand-off is ahead of the record, so replicas cannot confirm it: turn off `pipelined` or \
                 `replication`",
            ));
        }
        if self.application.as_deref().is_some_and(|name| !holder::is_word(name)) {
            return Err(Error::misuse(
                "the name of an application must have 1 to 256 bytes and no control character: correct `register_as`",
            ));
        }
        if self.reconnect_max < self.reconnect_min {
            return Err(Error::misuse(
                "the longest reconnect back-off is shorter than the first one: swap them",
            ));
        }
        Ok(())
    }

    pub(crate) fn replication(&self) -> Replication {
        self.replication.unwrap_or(Replication::at_least(0))
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
            .field("application", &self.application)
            .field("tls", &self.tls)
            .field("credentials", &self.credentials)
            .field("sentinel_credentials", &self.sentinel_credentials)
            .field("share_credentials", &self.share_credentials)
            .field("sharded", &self.sharded)
            .field("observers", &self.observers)
            .finish()
    }
}

/// Maps a lock's name to its key.
#[derive(Clone)]
pub(crate) struct NameMapper(pub Arc<dyn Fn(&str) -> String + Send + Sync>);

/// The longest lease or expiry that Redis accepts: it adds the time to its clock in a signed 64-bit number of milliseconds.
const MAX_LEASE_MS: u128 = i64::MAX as u128 / 2;

pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    match lease.as_millis() {
        0 => Err(Error::misuse("a lease must be at least 1 ms")),
        1..=MAX_LEASE_MS => Ok(()),
        ms => Err(Error::misuse(format!(
            "a lease of {ms} ms exceeds the maximum of {MAX_LEASE_MS} ms: use a shorter lease"
        ))),
    }
}

/// Checks that the clock can count the wait.
pub(crate) fn check_wait(wait: Duration) -> Result<()> {
    match i64::try_from(wait.as_millis()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::misuse(
            "a wait is at most 2^63 ms: to wait without a limit, use the method without a time limit",
        )),
    }
}

/// Returns the milliseconds of a checked lease.
pub(crate) fn millis(lease: Duration) -> u64 {
    u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the lease in whole milliseconds, as Redis counts it. Otherwise the deadline would be later than the server's.
pub(crate) fn whole_millis(lease: Duration) -> Duration {
    Duration::from_millis(millis(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_and_waits_out_of_range_are_refused() {
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
