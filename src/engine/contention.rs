//! The part of the wait loop that has to do with other clients: what is known of a lock that they hold, when to look
//! again, and what they are owed after a release of ours.
//!
//! Most tell of a release by a message. Some send none (Redisson's spin lock), and these are recognised by what they
//! do: the holder changes, or is gone, and nothing is heard.

use crate::config::options::BackOff;
use crate::engine::actor::KeyActor;
use crate::engine::key_queue::{Busy, Current, Release, Run, Work};
use crate::error::LossReason;
use crate::kinds::kind::{Access, LockKind};
use crate::owner;
use crate::protocol::script;
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Mark;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The least time between two looks at a busy lock, whatever the server said.
const SHORTEST_LOOK: Duration = Duration::from_millis(2);
/// From a busy answer to the first glance at who holds the lock; each further one comes after twice the time.
const FIRST_GLANCE: Duration = Duration::from_millis(10);
/// A glance is put off by up to that long, or a sixteenth of its step, so that those of many locks come together.
const TOGETHER: Duration = Duration::from_millis(40);
/// While the holder has changed without a message for that long, there are clients that send none.
const SILENCE: Duration = Duration::from_millis(50);
/// A release's message that has not come so long after the record was found gone was not sent.
const LATEST_MESSAGE: Duration = Duration::from_millis(3);
/// How long such clients count once seen; and how often to look, while they do.
const POLLERS_COUNT_FOR: Duration = Duration::from_secs(2);
const AMONG_POLLERS: BackOff = BackOff::between(Duration::from_millis(1), Duration::from_millis(16));

/// For so long a hold that was waited for keeps its subscription.
const LISTEN_ON: Duration = Duration::from_millis(10);

/// What Redis last told of a lock that others hold.
#[derive(Clone)]
pub(crate) struct BusyInfo {
    /// The signal before it was asked, and since when nothing was heard.
    pub before: Mark,
    since: Moment,
    /// Who held it at the last glance.
    holder: Option<String>,
    /// When to attempt again if nothing is heard.
    pub attempt_at: Moment,
    /// When to glance at the holder, for holders that leave without a message; and the step from glance to glance.
    glance_at: Moment,
    step: Duration,
    /// When this was told, and the last of the waiters for whom.
    at: Moment,
    newest: u64,
    /// The only waiter for whom, where another may want less.
    only: Option<u64>,
}

impl BusyInfo {
    /// Whether it counts for the waiter of `ticket`.
    pub fn counts_for(&self, ticket: u64) -> bool {
        self.only.is_none_or(|only| only == ticket)
    }

    /// When to glance next, if `newest` is the last of the waiters: one who came later is not to be told "busy" by
    /// what was heard long before.
    pub fn next_glance(&self, newest: u64) -> Moment {
        if newest > self.newest && self.glance_at < Moment::FAR {
            self.glance_at.min(self.at + FIRST_GLANCE)
        } else {
            self.glance_at
        }
    }
}

/// What this client owes to others after a release that they were told of: that they come first.
///
/// It does not contend before `until`. And if turns are owed, then after each message heard it stays away anew, because
/// whoever waited longest may be slower than we are, until so many messages say that each of the others had a turn.
pub(crate) struct Pause {
    pub until: Moment,
    pub turns: Option<Turns>,
}

pub(crate) struct Turns {
    pub time: Duration,
    pub heard: u64,
    pub paid: u64,
}

impl KeyActor {
    /// Until when this client leaves the lock to others, if it does.
    pub(crate) fn away(&mut self, messages: u64, now: Moment) -> Option<Moment> {
        let pause = self.pause.as_mut()?;
        match &mut pause.turns {
            Some(turns) if messages >= turns.paid => self.pause = None,
            Some(turns) if turns.heard != messages => {
                turns.heard = messages;
                pause.until = now + turns.time;
            }
            None if now >= pause.until => self.pause = None,
            _ => {}
        }
        self.pause.as_ref().map(|pause| pause.until).filter(|&until| now < until)
    }

    /// The lock is taken. Who waited for it may soon wait again, and a message that comes before he is subscribed anew is
    /// lost on him.
    pub(crate) fn listen_on(&mut self) {
        self.listens_until = self.subscription.is_some().then(|| Moment::now() + LISTEN_ON);
    }

    /// Takes note of a lock that is busy for `ttl` more.
    pub(crate) fn busy(&mut self, kind: &Arc<dyn LockKind>, before: Mark, ttl: Option<Duration>) {
        let now = Moment::now();
        let earlier = self.told.take().filter(|told| told.before.epoch == before.epoch);
        let lease = self.session.options.lease;
        // Who was taken for gone is told of nothing, and what has to end first may last for much longer than a lease.
        let longest = if kind.manner().queued { lease } else { Duration::MAX };
        let look = ttl.unwrap_or(lease / 3).clamp(SHORTEST_LOOK, longest.max(SHORTEST_LOOK));
        let poll = kind.poll().or_else(|| self.pollers().then_some(AMONG_POLLERS));
        let step = match (&earlier, poll) {
            (Some(told), Some(poll)) => poll.after(told.step),
            (Some(told), None) => told.step,
            (None, Some(poll)) => poll.first,
            (None, None) => FIRST_GLANCE,
        };
        let (since, holder) = earlier.map_or((now, None), |told| (told.since, told.holder));
        let attempt_at = now + if poll.is_some() { look.min(step) } else { look };
        let mut work = self.lane.work();
        work.busy = Busy::at(now, None);
        let newest = work.newest();
        let only =
            work.waiters.front().filter(|_| kind.manner().access == Access::Shared).map(|first| first.ticket);
        drop(work);
        let glance_at = if kind.manner().glances { now + step } else { Moment::FAR };
        self.told =
            Some(BusyInfo { before, since, holder, attempt_at, glance_at, step, at: now, newest, only });
    }

    /// Looks at who holds a busy lock, for less than an attempt costs.
    pub(crate) async fn glance(&mut self, kind: &Arc<dyn LockKind>) {
        let Some(mut told) = self.told.take() else { return };
        let mut request = kind.holder();
        let answer = self.session.connection.call(&mut request).await;
        let answer = answer.ok();
        let holder = answer.as_ref().and_then(|answer| kind.glanced(&answer.reply).ok());
        if let Some(None) = holder {
            // Freed, and no message (yet): attempt.
            self.gone_unheard = Some(told.before.messages);
            return;
        }
        let now = Moment::now();
        if now >= told.glance_at {
            told.step *= 2;
            told.glance_at = together(now, told.step);
        }
        let mut work = self.lane.work();
        (told.at, told.newest) = (now, work.newest());
        if let Some(Some(holder)) = holder {
            work.busy = Busy::at(now, None);
            drop(work);
            for holder in answer.iter().flat_map(|answer| kind.holders(&answer.reply)) {
                self.undo_a_ghost(kind, holder.owner());
            }
            let changed = told.holder.as_deref().is_some_and(|before| before != holder.owner());
            if changed {
                told.step = FIRST_GLANCE;
                told.glance_at = now + told.step;
                // A client that hands its lock on among its own tells of it sooner than that.
                if now.since(told.since) >= SILENCE {
                    self.seen_pollers();
                    told.attempt_at = now;
                }
            }
            told.holder = Some(holder.owner().to_owned());
        }
        self.told = Some(told);
    }

    /// Returns the kind of the queued waiters if their scores are due for a refresh. Otherwise sets the time for it.
    pub(crate) fn keeps(&mut self, work: &Work, now: Moment) -> Option<Arc<dyn LockKind>> {
        let Some(queued) = work.waiters.iter().find(|waiter| waiter.queued) else {
            self.keep_at = None;
            return None;
        };
        // Two refreshes fit into an allowance, because one may go unanswered.
        let next = now + self.session.options.fair_wait_timeout / 3;
        let due = *self.keep_at.get_or_insert(next) <= now;
        if due {
            self.keep_at = Some(next);
        }
        due.then(|| queued.kind.clone())
    }

    /// Refreshes the scores of all queued waiters. Waiters behind the first of this client, or behind a hold of it, send no
    /// attempts that would do so.
    pub(crate) async fn keep(&mut self, kind: &Arc<dyn LockKind>) {
        let texts: Vec<_> = {
            let work = self.lane.work();
            let queued = work.waiters.iter().filter(|waiter| waiter.queued);
            queued.filter_map(|waiter| waiter.text.clone()).collect()
        };
        let Some(mut request) = kind.keep(&texts) else { return };
        let answer = self.session.connection.call(&mut request).await;
        debug!(lock = ?self.lane.record(), waiters = texts.len(), kept = answer.is_ok(), "waiters kept");
    }

    /// Looks whether the current hold is there still: a message came, or one may have been missed.
    pub(crate) async fn check(&mut self) {
        self.checked = Some(self.lane.signal.mark().epoch);
        // One that has been passed on meanwhile is ahead of the record, which is then asked to follow.
        let asked = |current: &&Current| current.behind.is_none();
        let hold = self.lane.work().current.as_ref().filter(asked).map(|current| current.hold.clone());
        let Some(hold) = hold else { return };
        if !hold.kind.manner().glances {
            return;
        }
        let mut request = hold.kind.holder();
        let answer = self.session.connection.call(&mut request).await;
        let Ok(answer) = answer else { return };
        match hold.kind.held_by(&answer.reply) {
            Ok(Some(holder)) if holder.owner() == &*hold.text => {}
            Ok(Some(_)) => _ = hold.lose(LossReason::Taken),
            Ok(None) => _ = hold.lose(hold.gone_in(answer.life)),
            // Of another type.
            Err(script::Undecodable) => {}
        }
    }

    /// A retired text of this client that holds the record without being a hold, or stands in its queue without waiting,
    /// got there by a request that a dead connection delivered late, and nobody else would free it before its time is
    /// over. What it is the lane knows in which it would be held.
    pub(crate) fn undo_a_ghost(&self, kind: &Arc<dyn LockKind>, text: &str) {
        if !owner::is_retired(text, &self.session.id, self.session.era()) {
            return;
        }
        let until = Moment::now() + self.session.options.lease;
        let lane = self.session.lane(kind.lane_of(text));
        let _ = self.session.submit_to(&lane, |work| {
            if work.waiters.iter().any(|waiter| waiter.text.as_deref() == Some(text)) {
                return;
            }
            work.releases.push_back(Release::Text(kind.clone(), text.into(), until));
            if kind.manner().queued {
                work.releases.push_back(Release::Place(kind.clone(), text.into()));
            }
        });
    }

    /// If the holder before us was found gone, and its message did not come since, there was none.
    pub(crate) fn listen_for_the_unheard(&self, run: &mut Run) {
        let Some(before) = run.unheard else { return };
        let heard = before != self.lane.signal.mark().messages || self.own_subscriptions() == 0;
        let waited = Moment::now().since(run.since) >= LATEST_MESSAGE;
        if heard || waited {
            run.unheard = None;
        }
        if !heard && waited {
            self.seen_pollers();
        }
    }

    fn seen_pollers(&self) {
        self.lane.work().pollers_until = Some(Moment::now() + POLLERS_COUNT_FOR);
    }

    /// Whether other clients were seen of late to come and go without messages.
    pub(crate) fn pollers(&self) -> bool {
        self.lane.work().pollers_until.is_some_and(|until| !until.passed())
    }
}

/// A glance after `step`.
fn together(now: Moment, step: Duration) -> Moment {
    (now + step).rounded_up(TOGETHER.min(step / 16))
}
