//! The hand-off of a lock from its holder to the next waiter of the same client, by one script.
//!
//! The bounded hand-off among local waiters is lock cohorting: Dice, Marathe, Shavit, "Lock Cohorting: A General Technique for
//! Designing NUMA Locks", PPoPP 2012. Here a cohort is a client, and each owner's lease begins anew.
//!
//! Invariant: the script moves the record from owner to owner, so the record always names the holder. The exception is a hold that is ahead
//! of the record (`pipelined.rs`): its hand-off names the owner id in the record.

use crate::config::options::millis;
use crate::connection::{Answer, Limit};
use crate::engine::grants::begin;
use crate::engine::key_actor::{KeyActor, foreign_subscriptions};
use crate::engine::key_queue::KeyQueue;
use crate::engine::run::Run;
use crate::engine::session::Session;
use crate::engine::unfinished::{Freeing, Successor};
use crate::engine::waiters::Waiter;
use crate::engine::work::Work;
use crate::error::{Error, LossReason, Result};
use crate::kinds::kind::LockKind;
use crate::lease::hold::{Begun, Hold};
use crate::lease::status::HoldState;
use crate::protocol::script::{self, Arg, HandedOff, Request};
use crate::runtime::clock::Moment;
use std::sync::Arc;
use tracing::debug;

/// A hold that has just begun, and the ticket of its waiter, which has not been granted it yet.
pub(crate) type Handed = (Arc<Hold>, u64);

/// The waiter that `hold` may be handed to, if the bounds of the hand-off allow it.
pub(crate) fn successor<'a>(
    session: &Session,
    work: &'a Work,
    hold: &Hold,
    deadline: Moment,
    run: &Run,
    now: Moment,
) -> Option<&'a Waiter> {
    let next = match hold.kind.traits().queued {
        true => work.waiters.first().filter(|next| next.queued && !next.reply.is_closed()),
        false => work.waiters.local().next(),
    };
    let next = next.filter(|next| hold.kind.hands_off_to(&*next.kind))?;
    let left = deadline.since(now);
    let length = session.lease_duration(next.lease);
    let allowed = work.may_go_on(run, &*hold.kind, &session.options.hand_off, now)
        && (length / 3..=length).contains(&left)
        && next.owner != hold.owner
        && hold.kept_after(now).is_none();
    allowed.then_some(next)
}

impl Successor {
    /// The successor of a hold of `kind`.
    pub(crate) fn of(session: &Session, kind: &dyn LockKind, waiter: &Waiter) -> Self {
        Self {
            ticket: waiter.ticket,
            owner: waiter.owner.clone(),
            // A waiter in Redis's queue has its owner id.
            owner_id: waiter
                .owner_id
                .clone()
                .unwrap_or_else(|| kind.owner_id(session.owner_id(&waiter.owner))),
            lease: session.lease_duration(waiter.lease),
        }
    }

    /// The request that moves the record from the owner id `named` of `hold` to this waiter.
    pub(crate) fn request(&self, hold: &Hold, named: &Arc<str>) -> Option<Request> {
        hold.kind.hand_off(named, &self.owner_id, Arg::Number(millis(self.lease)))
    }
}

impl KeyActor {
    /// Moves the record to the successor. Returns `None` if the record must be freed instead.
    pub(crate) async fn hand_off(
        &mut self,
        freeing: &Freeing,
        successor: &Successor,
        repeated: bool,
    ) -> Option<Result<Option<Handed>>> {
        let Freeing { hold, named, deadline, .. } = freeing;
        let mut request = successor.request(hold, named)?;
        if repeated {
            request.repeat(freeing.began);
        }
        let answer = match self.session.connection.call_within(&mut request, Limit::Until(*deadline)).await {
            Ok(answer) => answer,
            Err(failure) if failure.unanswered => {
                let owner_ids = [named.clone(), successor.owner_id.clone()];
                self.undo_both(&hold.kind, owner_ids, Moment::now() + successor.lease);
                return Some(Err(self.release_error(failure)));
            }
            Err(failure) => {
                debug!(lock = ?self.queue.record(), code = failure.code(), "hand-off refused, freeing the lock");
                return None;
            }
        };
        self.rotate_if_repeated(&request);
        let own = self.own_subscriptions();
        handed_off(&self.session, &self.queue, freeing, successor, &answer, request.is_repeated(), own)
    }
}

/// Acts on the reply to a hand-off: begins the hold of the successor. Returns `None` if the record must be freed instead. `own` is the number
/// of this client's subscriptions.
pub(crate) fn handed_off(
    session: &Session,
    queue: &KeyQueue,
    Freeing { hold: from, was, run, .. }: &Freeing,
    successor: &Successor,
    answer: &Answer,
    repeated: bool,
    own: u64,
) -> Option<Result<Option<Handed>>> {
    // The last busy reply is out of date if the record has not moved.
    let lost = |reason| {
        queue.signal.look_again();
        Some(vanished(session, queue, repeated, *was, reason).map(|()| None))
    };
    match script::handed_off(&answer.reply) {
        Ok(HandedOff::Moved { subscriptions, token }) => {
            // If the number is not known, another client is assumed.
            let others = foreign_subscriptions(session, subscriptions, own).or(Some(1));
            let run = Run { count: run.count + 1, others, ..*run };
            let Successor { ticket, owner, owner_id, lease } = successor;
            let (kind, owner, owner_id) = (from.kind.clone(), owner.clone(), owner_id.clone());
            let (data_epoch, sent, lease) = (answer.data_epoch, answer.sent, *lease);
            if kind.traits().queued {
                // The grant has consumed the owner's entry.
                queue.work().lose_entry(&owner_id);
            }
            let begun = Begun { kind, owner, owner_id, data_epoch, sent, lease, token };
            let hold = Hold::new(begun, &session.listeners);
            begin(queue, &hold, sent, run);
            Some(Ok(Some((hold, *ticket))))
        }
        Ok(HandedOff::Freed) => {
            queue.work().note_freed();
            queue.signal.look_again();
            Some(Ok(None))
        }
        Ok(HandedOff::Gone) => lost(from.gone_in(answer.data_epoch)),
        Ok(HandedOff::Other) => lost(LossReason::Taken),
        Ok(HandedOff::Mismatch) | Err(script::Undecodable) => None,
    }
}

/// The outcome of a release that did not find its owner in the record: the hold was lost before. But if the hold was certain and an
/// earlier send of the release went unanswered, that send may have freed the record, and the release counts as done.
pub(crate) fn vanished(
    session: &Session,
    queue: &KeyQueue,
    repeated: bool,
    was: HoldState,
    reason: LossReason,
) -> Result<()> {
    if repeated && was == HoldState::Held {
        return Ok(());
    }
    session.rotate_owner_ids();
    Err(Error::Lost { name: queue.record().to_string(), reason, holder: None })
}
