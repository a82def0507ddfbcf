//! The effects that each kind of fault may have: losses, errors and delays. A loss, an error or a delay that no nearby fault
//! lists is a violation, however many other faults are near.

/// How long a fault may keep a free lock from being acquired by a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// No longer than without a fault.
    None,
    /// Until the clients have reconnected and resubscribed to a server that is up.
    Reconnect,
    /// The same, after the heartbeat has closed a connection without answers.
    Heartbeat,
    /// The same, after a connection attempt that hangs.
    Retry,
    /// Until the lease of an abandoned hold has expired.
    Lease,
}

pub struct Effects {
    pub kind: &'static str,
    /// The reasons of losses, and [`AT_RELEASE`].
    pub losses: &'static [&'static str],
    /// The errors of calls.
    pub errors: &'static [&'static str],
    pub delay: Delay,
}

/// A loss that the holder learns from the reply to its release.
pub const AT_RELEASE: &str = "release";

const NONE: &[&str] = &[];
/// The server confirms nothing for so long that a lease expires. Then another client may acquire the lock.
const SILENCE: &[&str] = &["Expired", "Unreachable", "Gone", "Taken", AT_RELEASE];
/// The record is gone, and another client may acquire the lock.
const GONE: &[&str] = &["Gone", "Taken", AT_RELEASE];
const DATA_LOST: &[&str] = &["DataLost", "Gone", "Taken", AT_RELEASE];
const NO_ANSWER: &[&str] = &["Unavailable", "TimedOut", "Ambiguous"];
const NO_CONNECTION: &[&str] = &["Unavailable", "Ambiguous"];

const fn effects(
    kind: &'static str,
    losses: &'static [&'static str],
    errors: &'static [&'static str],
    delay: Delay,
) -> Effects {
    Effects { kind, losses, errors, delay }
}

const ALL: &[Effects] = &[
    effects(
        "kill-server",
        DATA_LOST,
        &["Unavailable", "TimedOut", "Ambiguous", "Refused-LOADING"],
        Delay::Retry,
    ),
    effects("stop-server", SILENCE, NO_ANSWER, Delay::Lease),
    effects("stop-server-short", NONE, &["TimedOut"], Delay::Retry),
    effects("drop-normal", NONE, NO_CONNECTION, Delay::Reconnect),
    effects("cut", NONE, NO_CONNECTION, Delay::Reconnect),
    effects("drop-pubsub", NONE, NONE, Delay::Reconnect),
    effects("half-open", SILENCE, NO_ANSWER, Delay::Lease),
    effects("half-open-pubsub", NONE, NONE, Delay::Reconnect),
    // The server renewed a hold that the client considers lost.
    effects("deaf", &["Expired", "Unreachable", AT_RELEASE], NO_ANSWER, Delay::Heartbeat),
    effects("latency", NONE, &["TimedOut"], Delay::Retry),
    effects("lose-reply", NONE, NO_CONNECTION, Delay::Reconnect),
    effects("late-request", NONE, NO_ANSWER, Delay::Lease),
    effects("half-frame", NONE, NO_CONNECTION, Delay::Reconnect),
    effects("script-flush", NONE, NONE, Delay::None),
    effects("pause", SILENCE, NO_ANSWER, Delay::Lease),
    effects("sleep", SILENCE, NO_ANSWER, Delay::Lease),
    effects("oom", NONE, &["Refused-OOM"], Delay::Retry),
    effects("string", &["Expired", "Gone", "Taken", AT_RELEASE], &["Refused-WRONGTYPE"], Delay::Retry),
    effects("readonly", SILENCE, &["Unavailable", "TimedOut", "Ambiguous", "Refused-READONLY"], Delay::Lease),
    effects("loading", SILENCE, &["Unavailable", "TimedOut", "Ambiguous", "Refused-LOADING"], Delay::Lease),
    // A release that may not publish leaves the record unchanged until its lease expires.
    effects("acl-publish", NONE, &["Refused-NOPERM"], Delay::Lease),
    effects(
        "password",
        SILENCE,
        &["Unavailable", "TimedOut", "Ambiguous", "Refused-NOAUTH", "Refused-WRONGPASS"],
        Delay::Lease,
    ),
    effects("stop-client", SILENCE, NO_ANSWER, Delay::Lease),
    effects("kill-client", NONE, NONE, Delay::Lease),
    effects("force-unlock", GONE, NONE, Delay::None),
    effects("busy", SILENCE, &["Unavailable", "TimedOut", "Ambiguous", "Refused-BUSY"], Delay::Lease),
    effects("clock", NONE, NONE, Delay::None),
    effects("starve", SILENCE, NO_ANSWER, Delay::Lease),
    effects("drop-runtime", NONE, NONE, Delay::Lease),
    effects("evict", GONE, &["Refused-OOM"], Delay::Retry),
    effects("evict-volatile-ttl", GONE, &["Refused-OOM"], Delay::Retry),
    effects("evict-volatile-lru", GONE, &["Refused-OOM"], Delay::Retry),
    effects("evict-volatile-lfu", GONE, &["Refused-OOM"], Delay::Retry),
    effects("evict-volatile-random", GONE, &["Refused-OOM"], Delay::Retry),
    effects(
        "failover",
        &["DataLost", "Expired", "Unreachable", "Gone", "Taken", AT_RELEASE],
        &[
            "Unavailable",
            "TimedOut",
            "Ambiguous",
            "NotReplicated",
            "Refused-CLUSTERDOWN",
            "Refused-LOADING",
            "Refused-MOVED",
            "Refused-READONLY",
        ],
        Delay::Lease,
    ),
];

/// # Panics
/// If the kind is not in the table.
pub fn of(kind: &str) -> &'static Effects {
    let known = ALL.iter().find(|effects| effects.kind == kind);
    known.unwrap_or_else(|| panic!("no effects are listed for {kind}"))
}

#[cfg(test)]
mod tests {
    use super::super::schedule;
    use super::*;

    #[test]
    fn every_kind_of_fault_lists_its_effects() {
        for kind in &schedule::KINDS {
            of(kind.name);
        }
    }
}
