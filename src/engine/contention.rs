//! The steps of the key actor that deal with other clients: what is known of a lock that they hold, when to look again, and when
//! to yield to them.
//!
//! Most clients publish a message when they release. Some do not (Redisson's spin lock). They are recognised when the holder
//! changes or disappears without a message.

use crate::config::options::BackOff;
use crate::engine::busy::{BusyReply, FIRST_PROBE, LastBusy};
use crate::engine::current::Current;
use crate::engine::key_actor::{KeyActor, foreign_subscriptions};
use crate::engine::queue_id::QueueId;
use crate::engine::releases::Release;
use crate::engine::run::Run;
use crate::engine::session::Session;
use crate::engine::work::Work;
use crate::error::LossReason;
use crate::kinds::kind::{LockKind, Probed};
use crate::owner;
use crate::protocol::script;
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Reading;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The shortest time between two attempts at a busy lock, whatever the server reported.
const SHORTEST_LOOK: Duration = Duration::from_millis(2);
/// A probe is delayed by up to this time, or by a sixteenth of its step if that is less, so that the probes of many locks share system
/// calls.
const PROBE_GRID: Duration = Duration::from_millis(40);
/// If the holder has changed and no message was heard for this long, some clients send none.
const SILENCE: Duration = Duration::from_millis(50);
/// If no message arrives within this time after the record was found gone, none was sent.
const LATEST_MESSAGE: Duration = Duration::from_millis(3);
/// How long the client polls after it noticed a client without messages, and at which intervals.
const POLLERS_COUNT_FOR: Duration = Duration::from_secs(2);
const POLL_BACK_OFF: BackOff = BackOff::between(Duration::from_millis(1), Duration::from_millis(16));

impl KeyActor {
    /// Updates the yield window. Returns its end while it is open.
    pub(crate) fn yield_until(&mut self, messages: u64, now: Moment) -> Option<Moment> {
        let yield_window = self.yield_window.as_mut()?;
        match &mut yield_window.turns {
            Some(turns) if messages >= turns.paid => self.yield_window = None,
            Some(turns) if turns.heard != messages => {
                turns.heard = messages;
                yield_window.until = now + turns.time;
            }
            None if now >= yield_window.until => self.yield_window = None,
            _ => {}
        }
        self.yield_window.as_ref().map(|yield_window| yield_window.until).filter(|&until| now < until)
    }

    /// Records that the lock is busy, for at most `ttl` if its holder does not renew, and plans when to look again. `only`: see
    /// [`BusyReply::only`].
    pub(crate) fn busy(
        &mut self,
        kind: &Arc<dyn LockKind>,
        before: Reading,
        ttl: Option<Duration>,
        only: Option<u64>,
    ) {
        let now = Moment::now();
        let earlier = self.busy_reply.take().filter(|busy_reply| busy_reply.before.epoch == before.epoch);
        let lease = self.session.options.lease;
        // No message comes to a waiter that Redis's queue has dropped, and none when the lease of a permit is shortened.
        let longest = if kind.traits().queued || kind.permits().is_some() { lease } else { Duration::MAX };
        let look = ttl.unwrap_or(lease / 3).clamp(SHORTEST_LOOK, longest.max(SHORTEST_LOOK));
        let poll = kind.poll().or_else(|| self.queue.work().has_pollers().then_some(POLL_BACK_OFF));
        let step = match (&earlier, poll) {
            (Some(busy_reply), Some(poll)) => poll.after(busy_reply.step),
            (Some(busy_reply), None) => busy_reply.step,
            (None, Some(poll)) => poll.first,
            (None, None) => FIRST_PROBE + self.crowd.longest_delay(),
        };
        let (since, holder) = earlier.map_or((now, None), |busy_reply| (busy_reply.since, busy_reply.holder));
        let attempt_at = now + if poll.is_some() { look.min(step) } else { look };
        let newest = self.queue.work().waiters.newest();
        let probe_at = if kind.traits().probes_holder { now + step } else { Moment::FAR };
        self.busy_reply =
            Some(BusyReply { before, since, holder, attempt_at, probe_at, step, at: now, newest, only });
    }

    /// Probes the holder of a busy lock, which costs less than an attempt.
    pub(crate) async fn probe_holder(&mut self, kind: &Arc<dyn LockKind>) {
        let Some(mut busy_reply) = self.busy_reply.take() else { return };
        let mut request = kind.holder_probe();
        let answer = self.session.connection.call(&mut request).await;
        let answer = answer.ok();
        let probed = answer.as_ref().and_then(|answer| kind.probed(&answer.reply).ok());
        if let Some(Probed::Free) = probed {
            // The lock is free, and no message has arrived yet. Without a busy reply, the next step is an attempt.
            self.messages_at_probe = Some(busy_reply.before.messages);
            return;
        }
        let now = Moment::now();
        if now >= busy_reply.probe_at {
            busy_reply.step *= 2;
            let grid = PROBE_GRID.min(busy_reply.step / 16);
            busy_reply.probe_at = (now + busy_reply.step).rounded_up(grid);
        }
        let mut work = self.queue.work();
        (busy_reply.at, busy_reply.newest) = (now, work.waiters.newest());
        if let Some(Probed::Busy(holder)) = probed {
            work.busy = LastBusy::at(now, None);
            drop(work);
            let named = answer.as_ref().zip(kind.owned()).map(|(answer, kind)| kind.holders(&answer.reply));
            for holder in named.iter().flatten() {
                undo_orphan(&self.session, kind, holder.owner());
            }
            let changed = busy_reply.holder.is_some() && busy_reply.holder != holder;
            if changed {
                busy_reply.step = FIRST_PROBE;
                busy_reply.probe_at = now + busy_reply.step;
                // A client that only hands its lock over locally publishes a message sooner than that.
                if now.since(busy_reply.since) >= SILENCE {
                    self.note_pollers();
                    busy_reply.attempt_at = now;
                }
            }
            busy_reply.holder = holder;
        }
        self.busy_reply = Some(busy_reply);
    }

    /// Counts the other clients that wait for the lock.
    pub(crate) async fn count_crowd(&mut self) {
        let Some(subscription) = &self.subscription else { return };
        let mut request = script::count_subscriptions(subscription.channel());
        let answer = self.session.connection.call(&mut request).await;
        let subscriptions =
            answer.ok().and_then(|answer| script::subscriptions(&answer.reply).ok().flatten());
        let others = foreign_subscriptions(&self.session, subscriptions, self.own_subscriptions());
        self.crowd.counted(others, Moment::now());
    }

    /// Returns the kind of the queued waiters if their scores are due for a refresh. Otherwise sets the time for it.
    pub(crate) fn refresh_due(&mut self, work: &Work, now: Moment) -> Option<Arc<dyn LockKind>> {
        let Some(queued) = work.waiters.apart().find(|waiter| waiter.queued) else {
            self.refresh_at = None;
            return None;
        };
        // Two refreshes fit into an allowance, because one may go unanswered.
        let next = now + self.session.options.fair_wait_timeout / 3;
        let due = *self.refresh_at.get_or_insert(next) <= now;
        if due {
            self.refresh_at = Some(next);
        }
        due.then(|| queued.kind.clone())
    }

    /// Refreshes the scores of all queued waiters. Waiters behind the first of this client, or behind a hold of it, send no
    /// attempts that would do so.
    pub(crate) async fn refresh(&mut self, kind: &Arc<dyn LockKind>) {
        let owner_ids: Vec<_> = {
            let work = self.queue.work();
            let queued = work.waiters.iter().filter(|waiter| waiter.queued);
            queued.filter_map(|waiter| waiter.owner_id.clone()).collect()
        };
        let Some(mut request) = kind.refresh(&owner_ids) else { return };
        let answer = self.session.connection.call(&mut request).await;
        debug!(lock = ?self.queue.record(), waiters = owner_ids.len(), kept = answer.is_ok(), "refreshed the scores of queued waiters");
    }

    /// Asks whether the current hold still exists, because a message came or may have been missed.
    pub(crate) async fn check(&mut self) {
        self.checked = Some(self.queue.signal.reading().epoch);
        // A hold that is ahead of the record is not named there. `move_record` moves the record to it.
        let asked = |current: &&Current| current.lagging().is_none();
        let hold = self.queue.work().current.as_ref().filter(asked).map(|current| current.hold.clone());
        let Some(hold) = hold else { return };
        let Some(kind) = hold.kind.owned() else { return };
        let mut request = kind.holder_probe();
        let answer = self.session.connection.call(&mut request).await;
        let Ok(answer) = answer else { return };
        match kind.held_by(&answer.reply) {
            Ok(Some(holder)) if holder.owner() == &*hold.owner_id => {}
            Ok(Some(_)) => _ = hold.lose(LossReason::Taken),
            Ok(None) => _ = hold.lose(hold.gone_in(answer.data_epoch)),
            // The key has a value of another type.
            Err(script::Undecodable) => {}
        }
    }

    /// Notices a previous holder that sent no message: it was found gone, and its message has not arrived since.
    pub(crate) fn detect_silent_release(&self, run: &mut Run) {
        let Some(before) = run.messages_at_probe else { return };
        let heard = before != self.queue.signal.reading().messages || self.own_subscriptions() == 0;
        let waited = Moment::now().since(run.since) >= LATEST_MESSAGE;
        if heard || waited {
            run.messages_at_probe = None;
        }
        if !heard && waited {
            self.note_pollers();
        }
    }

    /// Records that some clients release without a message, so this client has to poll.
    fn note_pollers(&self) {
        self.queue.work().pollers_until = Some(Moment::now() + POLLERS_COUNT_FOR);
    }
}

/// Undoes an orphaned record or queue entry. A retired owner id of this client that is neither a hold nor a waiter was written by
/// a request that a dead connection delivered late. Nobody else would remove it before it expires. The key queue in which the id
/// would be held knows whether it is a hold or a waiter.
pub(crate) fn undo_orphan(session: &Arc<Session>, kind: &Arc<dyn LockKind>, owner_id: &str) {
    if !owner::is_retired(owner_id, &session.id, session.generation())
        || session.spared.contains(kind.record(), owner_id)
    {
        return;
    }
    let until = Moment::now() + session.options.lease;
    let queue = session.queue_with(QueueId::of_owner_id(&**kind, owner_id));
    session.release_later(queue, |work| {
        if work.waiters.iter().any(|waiter| waiter.owner_id.as_deref() == Some(owner_id)) {
            return;
        }
        let owner_id: Arc<str> = owner_id.into();
        work.releases.push_back(Release::undo(kind, &owner_id, until));
        if kind.traits().queued {
            work.releases.push_back(Release::dequeue(kind, &owner_id));
        }
    });
}
