//! The hold that a client has on a key, and the rest of an actor behind it. Plain data.

use crate::engine::run::Run;
use crate::lease::hold::Hold;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;

/// The hold that this client has on the key.
pub(crate) struct Current {
    pub hold: Arc<Hold>,
    /// When its first request was sent, or when it was passed on.
    pub since: Moment,
    /// The count in the record.
    pub recorded: u32,
    /// The granted levels. They differ from `recorded` only after a refused partial release, or while the count is changing.
    pub levels: u32,
    rare: Option<Box<Rare>>,
}

/// The parts that few current holds have.
#[derive(Default)]
struct Rare {
    /// A change of the count is in flight.
    changing: bool,
    /// A change of the count went unanswered. A late send of it may still arrive and spoil the count.
    count_unsure: bool,
    /// `None` for a run that begins with this hold.
    run: Option<Run>,
    /// The state of the record, while the hold is ahead of it.
    lagging: Option<LaggingRecord>,
}

/// A record that a hold is ahead of, see `pipelined.rs`.
#[derive(Clone)]
pub(crate) struct LaggingRecord {
    /// The owner id in the record, as last confirmed.
    pub owner_id: Arc<str>,
    /// The end of the record's lease, as last confirmed or, if that is earlier, as a move in flight may have set it.
    pub until: Moment,
    /// The target of the move in flight. The record may already name it.
    pub moving_to: Option<Arc<str>>,
    /// When to retry a move that was refused.
    pub retry_at: Option<Moment>,
}

impl LaggingRecord {
    /// A record that names `owner_id` until `until`, while no move is in flight.
    pub(crate) fn new(owner_id: &Arc<str>, until: Moment) -> Self {
        Self { owner_id: owner_id.clone(), until, moving_to: None, retry_at: None }
    }

    /// Whether a move in flight takes the record from this owner id or to it.
    pub(crate) fn is_in_flight(&self, owner_id: &Arc<str>) -> bool {
        self.moving_to.as_ref().is_some_and(|to| [to, &self.owner_id].contains(&owner_id))
    }
}

impl Current {
    /// The hold of a request that was sent at `since`.
    pub(crate) fn new(hold: Arc<Hold>, since: Moment, run: Run) -> Self {
        let rare =
            (run != Run::new(since, None)).then(|| Box::new(Rare { run: Some(run), ..Rare::default() }));
        Self { hold, since, recorded: 1, levels: 0, rare }
    }

    /// Whether this is `hold`, and the record has its only level.
    pub(crate) fn has_one_level(&self, hold: &Arc<Hold>) -> bool {
        let one = (self.recorded, self.levels) == (1, 1) && !self.is_changing() && !self.is_unsure();
        one && Arc::ptr_eq(&self.hold, hold)
    }

    /// Whether a change of the count is in flight.
    pub(crate) fn is_changing(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.changing)
    }

    pub(crate) fn set_changing(&mut self, changing: bool) {
        self.rare_mut().changing = changing;
    }

    /// Whether a late send of a change of the count may still arrive.
    pub(crate) fn is_unsure(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.count_unsure)
    }

    pub(crate) fn doubt_count(&mut self) {
        self.rare_mut().count_unsure = true;
    }

    pub(crate) fn run(&self) -> Run {
        let run = self.rare.as_ref().and_then(|rare| rare.run);
        run.unwrap_or_else(|| Run::new(self.since, None))
    }

    pub(crate) fn run_mut(&mut self) -> &mut Run {
        let run = self.run();
        self.rare_mut().run.get_or_insert(run)
    }

    /// The state of the record, while the hold is ahead of it.
    pub(crate) fn lagging(&self) -> Option<&LaggingRecord> {
        self.rare.as_ref()?.lagging.as_ref()
    }

    pub(crate) fn lagging_mut(&mut self) -> Option<&mut LaggingRecord> {
        self.rare.as_mut()?.lagging.as_mut()
    }

    /// Returns what [`lagging`](Self::lagging) was before.
    pub(crate) fn set_lagging(&mut self, lagging: Option<LaggingRecord>) -> Option<LaggingRecord> {
        if lagging.is_none() && self.rare.is_none() {
            return None;
        }
        std::mem::replace(&mut self.rare_mut().lagging, lagging)
    }

    fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }
}

/// Waiters behind a hold of their own client expect a hand-off for this long, or up to twice as long. Then the actor subscribes for them.
pub(crate) const LISTEN_AFTER: Duration = Duration::from_millis(10);

/// The rest of an actor that has nothing to do until a signal or a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub until: Moment,
    /// It is subscribed to the channel of its waiters.
    pub subscribed: bool,
    /// The epoch of the signal on which it has acted.
    pub epoch: u64,
}

impl Rest {
    /// Whether the actor need not wake up for waiters behind this hold of its client.
    pub(crate) fn suits(self, current: &Current) -> bool {
        let end = current.hold.deadline();
        // Twice the time, because an actor that wakes up during a hand-off rests for this time again.
        let latest = if self.subscribed { end } else { end.min(current.since + LISTEN_AFTER * 2) };
        self.until <= latest && current.lagging().is_none()
    }
}
