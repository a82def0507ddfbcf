//! The events of a timeline, from this process or another one.

use std::borrow::Cow;
use std::time::Duration;

/// An event of a lock in a [`Timeline`](crate::Timeline).
///
/// ```
/// use redisson_lock::{Timeline, TimelineChange, TimelineEvent};
///
/// let event = TimelineEvent::new(Timeline::now(), "orders:42", "thread-7", TimelineChange::Waiting { call: 1 });
/// let event = event.with_kind("fair").with_source("java");
/// assert_eq!(event.lock, "orders:42");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimelineEvent {
    /// When it occurred, by the clock of [`Timeline::now`](crate::Timeline::now).
    pub at: Duration,
    /// The name of the lock.
    pub lock: String,
    /// The kind of the lock. The default is `reentrant lock`.
    pub kind: Cow<'static, str>,
    /// The owner of the hold, or of the call that waits.
    pub owner: String,
    /// The process. `None` is this one.
    pub source: Option<String>,
    /// The change.
    pub change: TimelineChange,
}

/// The change that a [`TimelineEvent`] reports.
///
/// A number identifies a call within its source, and another one a hold. Both need to be unique only as long as they go on.
///
/// ```
/// use redisson_lock::TimelineChange;
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let lost = TimelineChange::Lost { hold: 7, held: ms(1500), reason: "the record is gone".into() };
/// assert_ne!(lost, TimelineChange::Released { hold: 7, held: ms(1500) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimelineChange {
    /// A call began to wait.
    Waiting {
        /// The number of the call.
        call: u64,
    },
    /// A hold began.
    Acquired {
        /// The number of the call.
        call: u64,
        /// The number of the hold.
        hold: u64,
        /// How long the call waited; zero if it did not.
        waited: Duration,
    },
    /// The owner acquired a further level of its hold.
    ReEntered {
        /// The number of the call.
        call: u64,
        /// The number of the hold.
        hold: u64,
        /// How long the call waited; zero if it did not.
        waited: Duration,
    },
    /// A call passed a latch, which nobody holds.
    Passed {
        /// The number of the call.
        call: u64,
        /// How long the call waited; zero if it did not.
        waited: Duration,
    },
    /// A call ended without the lock.
    Refused {
        /// The number of the call.
        call: u64,
        /// How long the call waited; zero if it did not.
        waited: Duration,
        /// Why it ended, such as `busy` or `timed out`.
        outcome: Cow<'static, str>,
    },
    /// The owner released its hold.
    Released {
        /// The number of the hold.
        hold: u64,
        /// How long it lasted.
        held: Duration,
    },
    /// The process no longer follows the hold, although it may last: see
    /// [`Observer::on_unended`](crate::observer::Observer::on_unended).
    Abandoned {
        /// The number of the hold.
        hold: u64,
        /// How long it lasted so far.
        held: Duration,
    },
    /// The hold was lost.
    Lost {
        /// The number of the hold.
        hold: u64,
        /// How long it lasted.
        held: Duration,
        /// Why it was lost.
        reason: Cow<'static, str>,
    },
}

impl TimelineEvent {
    /// An event of a reentrant lock, from this process.
    pub fn new(
        at: Duration,
        lock: impl Into<String>,
        owner: impl Into<String>,
        change: TimelineChange,
    ) -> Self {
        Self {
            at,
            lock: lock.into(),
            kind: Cow::Borrowed("reentrant lock"),
            owner: owner.into(),
            source: None,
            change,
        }
    }

    /// The same event of a lock of this kind.
    #[must_use]
    pub fn with_kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The same event from another process.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }
}
