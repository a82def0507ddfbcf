//! The work of one key queue: its waiters, its releases and its holds. Plain data: nothing here sends a request.

use crate::config::options::{HandOff, Lease};
use crate::engine::busy::LastBusy;
use crate::engine::callers::Callers;
use crate::engine::current::{Current, Rest};
use crate::engine::releases::{Release, ReleasedLevel, Releases};
use crate::engine::run::{Run, YieldWindow};
use crate::engine::unfinished::{DirectRequest, Unfinished};
use crate::engine::waiters::{NOT_ENTERED, Outcome, Waiter, Waiters};
use crate::kinds::kind::LockKind;
use crate::lease::hold::Hold;
use crate::owner::LocalOwner;
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Reading;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// The work and the holds of a key queue. A program may hold many locks, so the parts that a lock which is only held does not need are
/// boxed. They count as empty until they are first changed.
#[derive(Default)]
pub(crate) struct Work {
    company: Option<Box<Company>>,
    pub releases: Releases,
    /// A waiter may have the owner of the current hold. Unset once none was found. With many waiters the search takes longer than
    /// everything else in a hand-off.
    pub may_reenter: bool,
    pub current: Option<Current>,
    /// A release was taken from the queue and is not finished.
    pub releasing: bool,
    /// It releases a level of the current hold, which still counts that level.
    pub counts_released: bool,
    /// The queue has an actor.
    pub has_actor: bool,
    /// The queue has left the session's table, so new work goes to another queue.
    pub removed: bool,
}

/// The part of a key queue's work that a lock which is only held does not have: calls, other holds, and what is known of other clients.
#[derive(Default)]
pub(crate) struct Company {
    pub callers: Callers,
    /// The request that a caller sends itself, see `direct.rs`.
    pub direct: Option<DirectRequest>,
    pub waiters: Waiters,
    /// The ticket of the waiter for which the actor has sent an acquire, until the effect of that is known, or an undo is queued.
    pub attempting: Option<u64>,
    /// Shared holds that have an owner. None of them is current.
    pub shared_holds: Vec<Arc<Hold>>,
    /// The permits that passed from holder to waiter since the last release, see `permits.rs`.
    pub passing: Option<Box<Run>>,
    /// The owner id of a reader whose request is in flight. The record may name it.
    pub in_flight: Option<Arc<str>>,
    /// The result of a direct request on which the actor has to act.
    pub finding: Option<Box<Finding>>,
    /// When the lock was last known to be held, and by whom.
    pub busy: Option<LastBusy>,
    /// The end of the yield window, see `contention.rs`.
    pub yield_until: Option<Moment>,
    /// Until then other clients are assumed to take and release the lock without messages.
    pub pollers_until: Option<Moment>,
    /// The rest of the actor, while it waits.
    pub rest: Option<Rest>,
}

impl Deref for Work {
    type Target = Company;
    fn deref(&self) -> &Company {
        static NONE: LazyLock<Company> = LazyLock::new(Company::default);
        self.company.as_deref().unwrap_or_else(|| &NONE)
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut Company {
        self.company.get_or_insert_default()
    }
}

/// The result of a caller's request that the actor has to act on.
pub(crate) enum Finding {
    /// The lock was busy, for at most `ttl`. `before` is the signal's reading before the request.
    /// If it was busy for one waiter only, `only` is its ticket.
    Busy { kind: Arc<dyn LockKind>, before: Reading, ttl: Option<Duration>, only: Option<u64> },
    /// The lock was freed, and other clients may want it.
    Freed(YieldWindow),
}

/// Returns the next number of the sequence that orders callers by arrival, and entries in Redis's queues. It must be drawn while the
/// key queue is locked, so that the callers of a queue arrive in the order of their tickets.
pub(crate) fn next_ticket() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Work {
    /// Adds a waiter. Returns the receiver of its outcome.
    pub(crate) fn enqueue(
        &mut self,
        ticket: u64,
        kind: &Arc<dyn LockKind>,
        owner: LocalOwner,
        terms: Terms,
        once: bool,
    ) -> oneshot::Receiver<Outcome> {
        let (reply, outcome) = oneshot::channel();
        let Terms { lease, pipelined } = terms;
        self.may_reenter |= self.current.as_ref().is_some_and(|current| current.hold.owner == owner);
        let alone = self.current.is_none() && self.waiters.is_empty() && !self.is_releasing();
        self.waiters.insert(Waiter {
            ticket,
            kind: kind.clone(),
            owner,
            lease,
            once,
            pipelined,
            attempts: 0,
            alone,
            owner_id: None,
            queued: false,
            turn: NOT_ENTERED,
            unanswered: None,
            reply,
        });
        outcome
    }

    /// Whether nobody holds the lock, waits for it, or releases it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_actor
            && self.direct.is_none()
            && self.current.is_none()
            && self.shared_holds.is_empty()
            && !self.has_work()
    }

    /// Notes that the record was freed.
    pub(crate) fn note_freed(&mut self) {
        if self.current.is_none()
            && let Some(busy) = self.company.as_deref_mut().and_then(|company| company.busy.as_mut())
        {
            busy.still = false;
        }
    }

    /// Whether clients that send no messages were noticed recently.
    pub(crate) fn has_pollers(&self) -> bool {
        self.pollers_until.is_some_and(|until| !until.passed())
    }

    /// Whether another hand-off of a lock, or pass of permits, may follow in `run`.
    pub(crate) fn may_go_on(&self, run: &Run, kind: &dyn LockKind, bounds: &HandOff, now: Moment) -> bool {
        let others = run.others.unwrap_or(0);
        let noticed = others > 0 || self.has_pollers();
        let in_row = u64::from(bounds.max_in_row).min((self.waiters.len() as u64).div_ceil(others.max(1)));
        // Clients that wait for a kind that polls may have no subscription, so they may not have been noticed.
        let longest = match noticed || kind.poll().is_some() {
            true => bounds.max_time.min(bounds.max_time_alone),
            false => bounds.max_time_alone,
        };
        bounds.max_in_row > 0 && now.since(run.since) < longest && (!noticed || u64::from(run.count) < in_row)
    }

    /// Notes that the actor waits, so a waiter does, too.
    pub(crate) fn note_wait(&mut self, rest: Rest) {
        // Only the first one can be alone.
        if let Some(waiter) = self.waiters.iter_mut().next() {
            waiter.alone = false;
        }
        self.rest = Some(rest);
    }

    /// Notes that the actor has woken up.
    pub(crate) fn note_wake_up(&mut self) {
        if self.rest.is_some() {
            self.rest = None;
        }
    }

    /// Whether the actor may stay at rest after the request of a caller, such as a hand-off. `epoch` is that of the signal.
    pub(crate) fn lets_rest(&self, epoch: u64) -> bool {
        let (Some(rest), Some(current)) = (self.rest, &self.current) else { return false };
        // Other clients count a subscription as a waiter.
        let must_unsubscribe = rest.subscribed && self.waiters.is_empty();
        rest.suits(current) && rest.epoch == epoch && !must_unsubscribe && !self.has_step()
    }

    /// Whether the actor has a step to do that does not depend on the turns of the waiters.
    pub(crate) fn has_step(&self) -> bool {
        self.may_reenter || !self.releases.is_empty() || self.waiters.next_apart().is_some()
    }

    /// Whether there is something to do for an actor.
    pub(crate) fn has_work(&self) -> bool {
        !self.waiters.is_empty() || !self.releases.is_empty() || self.finding.is_some()
    }

    /// Queues the undo of an acquire before all other releases. A numbered undo has an effect only while its acquire is the last request of
    /// the client that took effect, so no other request may come in between.
    pub(crate) fn queue_undo(&mut self, kind: &Arc<dyn LockKind>, owner_id: Arc<str>, until: Moment) {
        self.releases.push_front(Release::undo(kind, &owner_id, until));
    }

    /// Takes the next release.
    pub(crate) fn next_release(&mut self) -> Option<Release> {
        let release = self.releases.pop();
        self.releasing = release.is_some();
        self.counts_released =
            matches!(&release, Some(Release::Level(level)) if self.levels_of(&level.hold) > 0);
        release
    }

    /// Queues the release of a level.
    pub(crate) fn queue_release(&mut self, level: ReleasedLevel) {
        self.releases.push_back(Release::Level(level));
    }

    /// Whether a release is queued or not finished.
    pub(crate) fn is_releasing(&self) -> bool {
        self.releasing
            || !self.releases.is_empty()
            || self.direct.as_ref().is_some_and(|direct| direct.is_release())
    }

    /// Records a shared hold.
    pub(crate) fn keep_shared(&mut self, hold: &Arc<Hold>) {
        self.shared_holds.retain(|other| !other.is_over());
        self.shared_holds.push(hold.clone());
    }

    /// The owner id that the record has for the holds of `owner`, if there are any.
    pub(crate) fn owner_id_of(&self, owner: &LocalOwner) -> Option<Arc<str>> {
        let current = self.current.iter().map(|current| &current.hold);
        let live = self.shared_holds.iter().filter(|hold| !hold.is_over());
        current.chain(live).find(|hold| hold.owner == *owner).map(|hold| hold.owner_id.clone())
    }

    /// The number of levels of `hold`. 0 if it is not the current hold, or if levels are about to be granted.
    pub(crate) fn levels_of(&self, hold: &Arc<Hold>) -> usize {
        let known = |current: &&Current| Arc::ptr_eq(&current.hold, hold) && !current.is_changing();
        self.current.as_ref().filter(known).map_or(0, |current| current.levels as usize)
    }

    /// The current hold, if it has a level that is not being released.
    pub(crate) fn in_hand(&self) -> Option<Arc<Hold>> {
        let Current { hold, levels, .. } = self.current.as_ref()?;
        let returned =
            |release: &&Release| matches!(release, Release::Level(level) if Arc::ptr_eq(&level.hold, hold));
        let returned = self.releases.iter().filter(returned).count() + usize::from(self.counts_released);
        (*levels as usize > returned).then(|| hold.clone())
    }

    /// The run of `hold`. `None` unless it has one level that the record confirms, and the key has no other work than waiters of a lock.
    pub(crate) fn run_of_sole_level(&self, hold: &Arc<Hold>, now: Moment) -> Option<Run> {
        if hold.kind.permits().is_some() {
            let run = || self.passing.as_deref().map_or(Run::new(now, None), |run| *run);
            return (self.is_idle() && !self.removed).then(run);
        }
        let current = self.current.as_ref().filter(|current| current.has_one_level(hold))?;
        let run = current.run();
        let is_busy = self.direct.is_some() || self.is_releasing() || self.finding.is_some();
        let is_sole = current.lagging().is_none() && self.shared_holds.is_empty();
        (is_sole && !is_busy && !self.removed && run.messages_at_probe.is_none()).then_some(run)
    }

    /// Whether the client has to see what becomes of a request before it closes: of a release, or of an acquire whose caller has left.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.is_releasing() || self.attempting.is_some_and(|ticket| !self.waiters.contains(ticket))
    }

    /// Makes `current` the current hold.
    pub(crate) fn set_current(&mut self, current: Current) {
        self.busy = LastBusy::at(current.since, Some(current.hold.owner.clone()));
        // A later call of the same owner sets this, too.
        self.may_reenter = current.hold.owner.makes_several_calls();
        self.current = Some(current);
    }

    /// Removes the current hold, which is being released. Returns its run and the owner id in the record.
    pub(crate) fn end_hold(&mut self, now: Moment) -> Option<(Run, Arc<str>)> {
        let mut current = self.current.take()?;
        let (run, lagging) = (current.run(), current.set_lagging(None));
        let hold = current.hold;
        self.busy = LastBusy::at(now, Some(hold.owner.clone()));
        Some((run, lagging.map_or_else(|| hold.owner_id.clone(), |lagging| lagging.owner_id)))
    }

    /// Whether the current hold was seen to be over.
    pub(crate) fn has_ended_hold(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.hold.is_over())
    }

    /// Whether an actor has something to do although nobody waits.
    pub(crate) fn needs_cleanup(&self) -> bool {
        !self.releases.is_empty() || self.has_ended_hold()
    }

    /// Removes the current hold, which has ended. Its loss handler releases its owner id. If the record names another one, this method
    /// queues the release of that id.
    pub(crate) fn drop_hold(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        if let Some(lagging) = current.set_lagging(None) {
            let until = lagging.until + current.hold.lease();
            self.releases.push_back(Release::undo(&current.hold.kind, &lagging.owner_id, until));
        }
    }

    /// Whether the waiter that was just added at the end merely joins other waiters behind a hold of this client, or the request of a
    /// caller in flight, so that the actor need not wake up. A waiter that has to enter Redis's queue needs the actor.
    pub(crate) fn only_joins(&self) -> bool {
        let Some(newest) = self.waiters.back() else { return false };
        let joins = match &self.current {
            Some(current) => {
                let suits = self.rest.is_some_and(|rest| rest.suits(current));
                newest.owner != current.hold.owner && (suits || self.waiters.len() > 1)
            }
            // The end of a caller's request wakes the actor, if it has to.
            None => self.rest.is_some() && self.direct_until().is_some(),
        };
        joins && self.releases.is_empty() && !newest.needs_reply()
    }

    /// Removes the waiter with this ticket, if it still waits. Also removes its entry in Redis's queue, unless another waiter of its owner
    /// shares it.
    pub(crate) fn leave(&mut self, ticket: u64) -> Option<Waiter> {
        let mut waiter = self.waiters.remove(ticket)?;
        if let Some(unanswered) = waiter.unanswered.take() {
            self.queue_undo(&waiter.kind, unanswered.owner_id, unanswered.until);
        }
        if let Some(owner_id) = &waiter.owner_id
            && !self.waits_by(owner_id)
        {
            self.releases.push_back(Release::dequeue(&waiter.kind, owner_id));
        }
        Some(waiter)
    }

    /// Removes and returns all waiters and releases.
    pub(crate) fn take_queued(&mut self) -> (Waiters, Releases) {
        let waiters = self.company.as_deref_mut().map(|company| std::mem::take(&mut company.waiters));
        (waiters.unwrap_or_default(), std::mem::take(&mut self.releases))
    }

    /// Frees what an idle queue does not need. Returns whether the queue is unused.
    pub(crate) fn tidy(&mut self) -> bool {
        if self.has_actor || self.has_work() {
            return false;
        }
        self.end_company();
        self.callers.is_empty() && self.is_idle()
    }

    /// Frees the memory that waiters needed, once there are none. Keeps the knowledge of other clients, and shared holds.
    fn end_company(&mut self) {
        let Some(company) = self.company.as_deref_mut() else { return };
        company.waiters = Waiters::default();
        company.shared_holds.retain(|hold| !hold.is_over());
        let lasts = |until: Option<Moment>| until.is_some_and(|until| !(until + LastBusy::FRESH).passed());
        if company.callers.is_empty()
            && company.direct.is_none()
            && company.passing.is_none()
            && company.in_flight.is_none()
            && company.shared_holds.is_empty()
            && !lasts(company.yield_until)
            && !lasts(company.pollers_until)
        {
            self.company = None;
        }
    }

    /// Removes and returns all waiters that are in Redis's queue, and queues the removal of their entries there.
    pub(crate) fn remove_queued(&mut self) -> Vec<Waiter> {
        let queued = self.waiters.iter().filter(|waiter| waiter.owner_id.is_some());
        let tickets: Vec<_> = queued.map(|waiter| waiter.ticket).collect();
        let waiters: Vec<_> = tickets.into_iter().filter_map(|ticket| self.waiters.remove(ticket)).collect();
        // The waiters of an owner share an entry.
        let entries: BTreeMap<_, _> =
            waiters.iter().filter_map(|waiter| Some((waiter.owner_id.as_ref()?, &waiter.kind))).collect();
        self.releases.extend(entries.into_iter().map(|(owner_id, kind)| Release::dequeue(kind, owner_id)));
        waiters
    }

    /// Makes the waiters with this owner id request the lock, or queue, again under another one. Returns whether any of them is in Redis's
    /// queue.
    pub(crate) fn wait_anew(&mut self, owner_id: &Arc<str>) -> bool {
        for waiter in self.waiters.iter_mut() {
            waiter.unanswered.take_if(|unanswered| unanswered.owner_id == *owner_id);
        }
        let old = self.lose_entry(owner_id);
        let waited = old.is_some();
        self.releases.extend(old.map(|kind| Release::dequeue(&kind, owner_id)));
        waited
    }

    /// Notes that Redis's queue has no entry for this owner id any more. Returns the kind of its waiters, if there are any. They have
    /// to enter the queue again.
    pub(crate) fn lose_entry(&mut self, owner_id: &Arc<str>) -> Option<Arc<dyn LockKind>> {
        let mut kind = None;
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.owner_id.as_ref() == Some(owner_id)) {
            (waiter.owner_id, waiter.queued, waiter.turn) = (None, false, NOT_ENTERED);
            kind.get_or_insert_with(|| waiter.kind.clone());
        }
        kind
    }

    /// Whether a waiter has this owner id in Redis's queue.
    pub(crate) fn waits_by(&self, owner_id: &Arc<str>) -> bool {
        self.waiters.iter().any(|waiter| waiter.owner_id.as_ref() == Some(owner_id))
    }

    /// Until when an actor has to wait for the request of a caller.
    pub(crate) fn direct_until(&self) -> Option<Moment> {
        self.direct.as_ref().map(|direct| direct.until).filter(|until| !until.passed())
    }

    /// Overtakes the caller of a request that is late: undoes its acquire, or repeats its release. Returns whether it has just been
    /// overtaken: then no later hold may have its owner id.
    pub(crate) fn overtake_direct(&mut self) -> bool {
        let direct = self.company.as_deref_mut().and_then(|company| company.direct.as_mut());
        let Some(unfinished) = direct.and_then(|direct| direct.unfinished.as_mut()) else { return false };
        let work = match unfinished {
            Unfinished::Acquire(acquire) if !acquire.overtaken => {
                acquire.overtaken = true;
                Release::Undo(acquire.undo())
            }
            Unfinished::Release(_) => {
                let (reply, outcome) = oneshot::channel();
                match std::mem::replace(unfinished, Unfinished::Overtaken(outcome)) {
                    Unfinished::Release(freeing) => Release::Free(Box::new(freeing), true, Some(reply)),
                    _ => return false,
                }
            }
            Unfinished::Acquire(_) | Unfinished::Overtaken(_) => return false,
        };
        self.releases.push_front(work);
        true
    }

    /// Turns the request of a caller, whose outcome is unknown, into work for an actor.
    pub(crate) fn take_over(&mut self) {
        let unfinished = self.direct.take().and_then(|direct| direct.unfinished);
        self.releases.push_front(match unfinished {
            Some(Unfinished::Acquire(acquire)) => Release::Undo(acquire.undo()),
            Some(Unfinished::Release(freeing)) => Release::Free(Box::new(freeing), true, None),
            Some(Unfinished::Overtaken(_)) | None => return,
        });
    }
}

/// The terms on which a caller wants to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub lease: Lease,
    pub pipelined: bool,
}
