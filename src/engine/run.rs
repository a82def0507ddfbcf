//! Whose turn it is: the run of a lock among the waiters of this client, and the turns of other clients after it.

use crate::runtime::clock::Moment;
use std::time::Duration;

/// A series of local hand-offs, from an acquire until the lock is freed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    pub since: Moment,
    /// The number of hand-offs.
    pub count: u32,
    /// Subscriptions of other clients, if known.
    pub others: Option<u64>,
    /// The number of messages received before the probe that found no holder, if there was one.
    pub messages_at_probe: Option<u64>,
}

impl Run {
    pub(crate) fn new(since: Moment, messages_at_probe: Option<u64>) -> Self {
        Self { since, count: 0, others: None, messages_at_probe }
    }
}

/// A yield window: after a release whose message reached other clients, this client lets them acquire first.
///
/// The client does not contend before `until`. Each other client is owed one turn. While turns are owed, each message extends the window,
/// because the client that waited longest may be slower than this one. No turn is owed any more when there has been a message for each, or
/// when this client acquires the lock.
pub(crate) struct YieldWindow {
    pub until: Moment,
    pub turns: Option<Turns>,
}

/// The turns that this client owes to others.
pub(crate) struct Turns {
    /// The length of the window that each message opens.
    pub time: Duration,
    /// The messages heard so far.
    pub heard: u64,
    /// The number of messages after which no turn is owed.
    pub paid: u64,
}
