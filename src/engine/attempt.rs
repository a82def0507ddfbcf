//! The steps of the key actor that acquire: the first hold of an owner, further levels of it, and the grants that follow.
//!
//! Invariants:
//! 1. A level is granted only after its request was confirmed, and an exclusive lock to one owner at a time. (`pipelined.rs`
//!    grants earlier, and shows why that is safe.)
//! 2. An unanswered request is repeated unchanged, or undone. Its owner id is not used for any other hold, except by an owner that
//!    still has a shared hold under it.
//! 3. A lock that was acquired for a waiter that has left goes to the next waiter, or is released.

use crate::config::options::{Lease, millis};
use crate::connection::{Answer, Failure, Limit};
use crate::engine::busy::LastBusy;
use crate::engine::contention::undo_orphan;
use crate::engine::grants::{acquired, begin, grant};
use crate::engine::key_actor::KeyActor;
use crate::engine::key_queue::KeyQueue;
use crate::engine::queue_id::QueueId;
use crate::engine::run::Run;
use crate::engine::waiters::{Outcome, Waiter};
use crate::engine::work::{Work, next_ticket};
use crate::error::{Error, LossReason, Phase, Result};
use crate::kinds::kind::{Access, AcquireArgs, LockKind, Waiting, would_deadlock};
use crate::lease::hold::{Begun, Hold};
use crate::observer::Way;
use crate::owner::{self, LocalOwner};
use crate::protocol::script::{self, Acquired, Recounted, Request};
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Reading;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// How long a hold that was waited for keeps its subscription.
const LISTEN_ON: Duration = Duration::from_millis(10);

/// An attempt for one waiter.
pub(crate) struct Attempt {
    pub ticket: u64,
    pub kind: Arc<dyn LockKind>,
    pub owner: LocalOwner,
    pub lease: Lease,
    pub once: bool,
    /// The ticket of the last waiter when the attempt was made. The reply may be out of date for later waiters.
    newest: u64,
}

impl Attempt {
    /// An attempt for `waiter`, which is one of `work`. Boxed, because it is passed on several times.
    pub(crate) fn of(waiter: &Waiter, work: &Work) -> Box<Self> {
        let Waiter { ticket, kind, owner, lease, once, .. } = waiter;
        let (kind, owner, newest) = (kind.clone(), owner.clone(), work.waiters.newest());
        Box::new(Self { ticket: *ticket, kind, owner, lease: *lease, once: *once, newest })
    }
}

/// An attempt that was sent.
struct SentAttempt {
    attempt: Box<Attempt>,
    /// The signal's reading before it was sent.
    before: Reading,
    owner_id: Arc<str>,
    /// The length of the lease.
    length: Duration,
    /// It follows a message that came since the last attempt.
    woken: bool,
    /// The owner had a counterpart hold, which may have been in release.
    beside_counterpart: bool,
}

impl KeyActor {
    /// Requests the lock, and acts on the reply. A request without a reply is repeated while its waiter waits.
    pub(crate) async fn attempt(&mut self, attempt: Box<Attempt>) {
        let before = self.queue.signal.reading();
        let length = self.session.lease_duration(attempt.lease);
        let Some((mut request, owner_id)) = self.prepare(&attempt, length) else { return };
        self.note_in_flight(&owner_id);
        if attempt.once || self.busy_reply.is_some() {
            // The lock is probably busy, and only the script reports for how long.
            request.go_by_script();
        }
        let last = std::mem::replace(&mut self.messages_at_attempt, before.messages);
        let woken = last != before.messages;
        let beside_counterpart =
            self.counterpart_queue(&*attempt.kind, &attempt.owner).is_some_and(|queue| {
                let work = queue.work();
                work.current.is_some() || work.is_releasing()
            });
        let sent = SentAttempt { attempt, before, owner_id, length, woken, beside_counterpart };
        loop {
            let failure = match self.session.connection.call(&mut request).await {
                Ok(answer) => {
                    self.rotate_if_repeated(&request);
                    if self.accepts(&sent, &request, &answer).await {
                        self.on_reply(sent, &answer);
                    }
                    return;
                }
                Err(failure) => failure,
            };
            let refused = failure.is_refusal();
            let Attempt { ticket, once, .. } = *sent.attempt;
            let (session, queue) = (&self.session, &self.queue);
            if failure.unanswered {
                session.rotate_owner_ids();
                let waits = queue.work().waiters.contains(ticket);
                let may_repeat = !request.is_stale(Moment::now());
                if !refused && !once && waits && may_repeat && !session.is_closed() {
                    // The same request again, so that it counts once even if an earlier send took effect.
                    debug!(lock = ?queue.record(), "acquire went unanswered, repeating it");
                    continue;
                }
                self.undo_sent(&sent);
            }
            if refused || once || session.is_closed() {
                let error = session.connection.error(failure, Phase::Acquire);
                self.tell(ticket, Outcome::failed(error));
            }
            return;
        }
    }

    /// The request of an attempt, and its owner id: the unanswered request of the waiter itself, or a new one. `None` if the waiter has left:
    /// the undo of its own request may be queued, and a new one must not precede that.
    fn prepare(&self, attempt: &Attempt, length: Duration) -> Option<(Request, Arc<str>)> {
        let counterpart = self.counterpart(&*attempt.kind, &attempt.owner);
        let (owner_id, waiting) = self.identify(attempt);
        let unanswered = self.queue.work().waiters.get_mut(attempt.ticket)?.unanswered.take();
        if let Some(unanswered) = unanswered {
            return Some((unanswered.request, unanswered.owner_id));
        }
        let args = AcquireArgs { owner_id: &owner_id, lease_ms: millis(length), waiting, counterpart };
        Some((attempt.kind.acquire(&args), owner_id))
    }

    /// Queues the undo of an attempt.
    fn undo_sent(&self, sent: &SentAttempt) {
        self.queue.work().queue_undo(&sent.attempt.kind, sent.owner_id.clone(), Moment::now() + sent.length);
    }

    /// Whether the reply to an attempt counts. If the lock was acquired, this checks the replicas. An acquire that does not count is undone.
    async fn accepts(&self, sent: &SentAttempt, request: &Request, answer: &Answer) -> bool {
        let Attempt { ticket, kind, .. } = &*sent.attempt;
        let access = kind.traits().access;
        match script::acquired(&answer.reply) {
            Ok(Acquired::Busy(_)) if request.is_repeated() && access == Access::Shared => {
                // An earlier send may still arrive and succeed. No record would show that the result is this client's.
                self.undo_sent(sent);
            }
            Ok(Acquired::Taken(_)) if access != Access::Gate => {
                let record = self.queue.record();
                if let Err(error) = self.session.connection.check_replicas(record, answer.data_epoch).await {
                    debug!(lock = ?record, owner = %sent.owner_id, %error, "acquire not replicated, undoing it");
                    self.undo_sent(sent);
                    self.tell(*ticket, Outcome::failed(error));
                    return false;
                }
            }
            _ => {}
        }
        true
    }

    /// The key queue of the owner's counterpart hold.
    fn counterpart_queue(&self, kind: &dyn LockKind, owner: &LocalOwner) -> Option<Arc<KeyQueue>> {
        self.session.existing_queue(&QueueId::of_counterpart(kind, owner)?)
    }

    /// The owner id of the owner's counterpart hold, if it has one.
    fn counterpart(&self, kind: &dyn LockKind, owner: &LocalOwner) -> Option<Arc<str>> {
        let queue = self.counterpart_queue(kind, owner)?;
        let work = queue.work();
        let held = work.current.as_ref().filter(|current| current.hold.owner == *owner);
        held.map(|current| current.hold.owner_id.clone())
    }

    /// Whether the owner has a level of its counterpart hold that is not being released.
    fn has_counterpart(&self, kind: &dyn LockKind, owner: &LocalOwner) -> bool {
        let in_hand = self.counterpart_queue(kind, owner).and_then(|queue| queue.work().in_hand());
        in_hand.is_some_and(|hold| hold.owner == *owner && hold.state().is_live())
    }

    /// A live shared hold of the owner. A new hold takes the same owner id, because under another one the owner would wait for
    /// itself.
    fn shared_hold_of(&self, owner: &LocalOwner) -> Option<Arc<Hold>> {
        // `state` may find that the deadline has passed and report that to the queue, so the queue must not be locked then.
        let holds = self.queue.work().shared_holds.clone();
        holds.into_iter().find(|hold| hold.owner == *owner && hold.state().is_live())
    }

    /// Counts the attempt, and gives the waiter its owner id and its turn. Returns the id, and whether it is already in Redis's queue.
    fn identify(&self, Attempt { ticket, kind, owner, once, .. }: &Attempt) -> (Arc<str>, Waiting) {
        let shared = self.shared_hold_of(owner);
        let fresh = || self.session.owner_id(owner);
        let owner_id = || kind.owner_id(shared.map_or_else(fresh, |hold| kind.owner(&hold.owner_id).into()));
        let mut work = self.queue.work();
        let Some(waiter) = work.waiters.get_mut(*ticket) else {
            return (owner_id(), Waiting::No);
        };
        waiter.attempts += 1;
        if *once || !kind.traits().queued {
            return (owner_id(), Waiting::No);
        }
        // From here on `Work::leave` also removes the waiter from Redis's queue, whether or not the request has arrived.
        let owner_id = waiter.owner_id.get_or_insert_with(owner_id).clone();
        let entry =
            work.waiters.iter().find(|other| other.queued && other.owner_id.as_ref() == Some(&owner_id));
        let entry = entry.map(|other| other.turn);
        // A repeat reuses its request and does not come here. Only a busy reply shows that there is an entry.
        let turn = entry.unwrap_or_else(next_ticket);
        for waiter in work.waiters.iter_mut().filter(|waiter| waiter.owner_id.as_ref() == Some(&owner_id)) {
            waiter.turn = turn;
        }
        (owner_id, if entry.is_some() { Waiting::Queued } else { Waiting::New })
    }

    /// Acts on the reply to an attempt.
    fn on_reply(&mut self, sent: SentAttempt, answer: &Answer) {
        let SentAttempt { ref attempt, before, ref owner_id, woken, beside_counterpart, .. } = sent;
        let Attempt { ticket, ref kind, ref owner, once, .. } = **attempt;
        let ttl = match script::acquired(&answer.reply) {
            Ok(Acquired::Taken(number)) => return self.on_taken(sent, answer, number),
            Ok(Acquired::Busy(ttl)) => {
                if let Some(owner) = script::blocking_owner_id(&answer.reply) {
                    undo_orphan(&self.session, kind, owner);
                    self.crowd.found(owner::is_foreign(owner, &self.session.id));
                    if kind.traits().queued && self.queue.work().waiters.put_first(owner) {
                        self.busy_reply = None;
                    }
                }
                ttl
            }
            Ok(Acquired::Stale(ttl)) => {
                // A waiter in Redis's queue keeps its owner id.
                let late = kind.traits().queued
                    && owner::is_retired(owner_id, &self.session.id, self.session.generation());
                if late || kind.traits().access == Access::Shared {
                    // An earlier send may have taken effect, and its hold may have ended since.
                    self.undo_sent(&sent);
                    debug!(lock = ?self.queue.record(), owner = %owner_id, "the acquire is out of date, undoing it");
                } else {
                    warn!(lock = ?self.queue.record(), owner = %owner_id, "the owner id is in use by another client");
                }
                self.session.rotate_owner_ids();
                ttl
            }
            Ok(Acquired::Own(_)) if self.has_counterpart(&**kind, owner) => {
                return self.tell(ticket, Outcome::failed(would_deadlock(&**kind)));
            }
            // The counterpart hold is being released. A single attempt has to see the lock without it.
            Ok(Acquired::Own(_)) if once && beside_counterpart => return,
            // It is being granted or released.
            Ok(Acquired::Own(ttl)) => ttl,
            Err(script::Undecodable) => {
                let error = self.session.connection.protocol_error(Phase::Acquire);
                return self.tell(ticket, Outcome::failed(error));
            }
        };
        if woken {
            self.session.counters.empty_wake_ups.count();
        }
        let mut work = self.queue.work();
        if let Some(waiter) = work.waiters.get_mut(ticket) {
            waiter.queued = waiter.owner_id.is_some();
        }
        let first = work.waiters.first().is_none_or(|first| first.ticket == ticket);
        work.busy = LastBusy::at(Moment::now(), None);
        drop(work);
        // In Redis's queue only the first waiter's reply counts. The others have to wait for that waiter in any case.
        if first || !kind.traits().queued {
            let only = (kind.traits().access == Access::Shared).then_some(ticket);
            self.busy(kind, before, ttl, only);
        }
        if once {
            self.tell(ticket, Outcome::Busy);
        }
    }

    /// Begins the hold that the attempt acquired, and grants it. `number` is its token, or the time that the record had left, depending on
    /// the kind.
    fn on_taken(&mut self, sent: SentAttempt, answer: &Answer, number: u64) {
        let SentAttempt { attempt, before, owner_id, length, woken, .. } = sent;
        if woken {
            self.session.counters.useful_wake_ups.count();
        }
        let Attempt { ticket, kind, owner, newest, .. } = *attempt;
        self.busy_reply = None;
        self.yield_window = None;
        self.checked = Some(before.epoch);
        self.crowd.begin(before.messages);
        self.crowd.found(false);
        // A waiter may soon be back, and would miss the messages that come before it is subscribed again.
        self.listen_until = self.subscription.is_some().then(|| Moment::now() + LISTEN_ON);
        let run = Run::new(answer.sent, self.messages_at_probe.take());
        if kind.traits().queued {
            // The grant has consumed the owner's entry.
            self.queue.work().lose_entry(&owner_id);
        }
        let (data_epoch, sent, lease) = (answer.data_epoch, answer.sent, length);
        let begun = Begun { kind, owner, owner_id, data_epoch, sent, lease, token: None };
        let hold = acquired(&self.session, begun, number);
        match hold.kind.traits().access {
            Access::Exclusive => begin(&self.queue, &hold, sent, run),
            Access::Shared if hold.kind.owned().is_some() => self.queue.work().keep_shared(&hold),
            Access::Shared => {}
            Access::Gate => {
                let tickets: Vec<_> = {
                    let work = self.queue.work();
                    let asked = work.waiters.iter().take_while(|waiter| waiter.ticket <= newest);
                    // A lock of the same name has the same queue.
                    let passing = asked.filter(|waiter| waiter.kind.traits().access == Access::Gate);
                    passing.map(|waiter| waiter.ticket).collect()
                };
                return grant(&self.session, &self.queue, &hold, &tickets, Way::AfterWait);
            }
        }
        grant(&self.session, &self.queue, &hold, &[ticket], Way::AfterWait);
    }

    /// Grants further levels to waiters of the owner that holds the lock.
    pub(crate) async fn reenter(&mut self, waiters: Vec<(u64, Lease)>) {
        let Some((hold, from)) = self.change_current() else { return };
        let to = from + waiters.len() as u32;
        let length =
            waiters.iter().map(|&(_, lease)| self.session.lease_duration(lease)).max().unwrap_or_default();
        let changed = self.recount(&hold, from, to, length, Phase::Acquire).await;
        if changed.is_ok() {
            let tickets: Vec<_> = waiters.iter().map(|&(ticket, _)| ticket).collect();
            grant(&self.session, &self.queue, &hold, &tickets, Way::AfterWait);
        }
        self.with_current(&hold, |current| {
            current.set_changing(false);
            // A level that was taken meanwhile did not know the number of levels.
            hold.limit_to(current.levels as usize);
        });
        if let Err(error) = changed {
            for (ticket, _) in waiters {
                self.tell(ticket, Outcome::failed(error.clone()));
            }
        }
    }

    /// Whether a change of the count is sent again after a failure. A renewal may have moved the deadline meanwhile, so the hold may still be
    /// live.
    fn repeats_recount(&self, hold: &Arc<Hold>, failure: &Failure) -> bool {
        failure.unanswered && !failure.is_refusal() && hold.state().is_live() && !self.session.is_closed()
    }

    /// Changes the count in the record. Repeats the request until the outcome is known or the hold has ended.
    pub(crate) async fn recount(
        &mut self,
        hold: &Arc<Hold>,
        from: u32,
        to: u32,
        lease: Duration,
        phase: Phase,
    ) -> Result<()> {
        let connection = self.session.connection.clone();
        let (mut from, goal) = (u64::from(from), u64::from(to));
        let Some(mut request) = hold.kind.recount(&hold.owner_id, from, goal, millis(lease)) else {
            return Err(would_deadlock(&*hold.kind));
        };
        loop {
            let answer = connection.call_within(&mut request, Limit::Until(hold.deadline())).await;
            if request.is_repeated() {
                self.session.rotate_owner_ids();
                self.with_current(hold, |current| current.doubt_count());
            }
            let answer = match answer {
                Ok(answer) => answer,
                Err(failure) if self.repeats_recount(hold, &failure) => continue,
                Err(failure) if phase == Phase::Release => return Err(self.release_error(failure)),
                Err(failure) => return Err(connection.error(failure, phase)),
            };
            match script::recounted(&answer.reply) {
                Ok(Recounted::Done) => {
                    match phase {
                        Phase::Release => hold.renew(answer.sent, answer.data_epoch, lease),
                        _ => hold.confirm(answer.sent, answer.data_epoch, lease),
                    };
                    self.session.watchdog.watch(hold);
                    self.session.watchdog.doubt_if_cut([hold.clone()], answer.data_epoch, &connection);
                    self.with_current(hold, |current| current.recorded = to);
                    return Ok(());
                }
                // A late send of an earlier change may have arrived in between. The owner id belongs to this hold alone, so this
                // client's count is right, and the change starts again from the count found.
                Ok(Recounted::Mismatch(Some(found)))
                    if found != from
                        && self.with_current(hold, |current| current.is_unsure()).unwrap_or_default() =>
                {
                    from = found;
                    if let Some(again) = hold.kind.recount(&hold.owner_id, from, goal, millis(lease)) {
                        request = again;
                    }
                }
                Ok(Recounted::Mismatch(_)) => {
                    self.session.rotate_owner_ids();
                    return Err(shared_uuid(self.queue.record()));
                }
                Ok(Recounted::Gone) => return Err(self.lost(hold, hold.gone_in(answer.data_epoch))),
                Ok(Recounted::Other) => return Err(self.lost(hold, LossReason::Taken)),
                Err(script::Undecodable) => return Err(connection.protocol_error(phase)),
            }
        }
    }
}

/// The error of a hold count that only another client can have written.
fn shared_uuid(record: &str) -> Error {
    Error::misuse(format!(
        "the hold count of `{}` is not the one that this client recorded, so another client uses the same uuid: give each client a \
         uuid of its own",
        record.escape_debug()
    ))
}
