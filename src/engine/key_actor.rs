//! The state of a key actor, and what all its steps use.

use crate::connection::Failure;
use crate::connection::pubsub::Subscription;
use crate::engine::busy::BusyReply;
use crate::engine::crowd::Crowd;
use crate::engine::current::Current;
use crate::engine::key_queue::KeyQueue;
use crate::engine::releases::Dequeue;
use crate::engine::run::YieldWindow;
use crate::engine::session::Session;
use crate::engine::waiters::Outcome;
use crate::error::{Error, LossReason, Phase};
use crate::lease::hold::Hold;
use crate::protocol::script::Request;
use crate::runtime::clock::Moment;
use std::collections::VecDeque;
use std::sync::Arc;

/// The state of the loop that serves one key queue.
pub(crate) struct KeyActor {
    pub session: Arc<Session>,
    pub queue: Arc<KeyQueue>,
    pub subscription: Option<Subscription>,
    /// The last busy reply.
    pub busy_reply: Option<BusyReply>,
    /// The other clients that wait for the lock.
    pub crowd: Crowd,
    /// The messages that had been heard before the last attempt.
    pub messages_at_attempt: u64,
    /// The epoch that was read before the last check of the current hold, or before its acquire.
    pub checked: Option<u64>,
    /// [`Run::messages_at_probe`](crate::engine::run::Run::messages_at_probe) of the next run.
    pub messages_at_probe: Option<u64>,
    /// The yield window, while there is one. Boxed, because few waiting actors have one.
    pub yield_window: Option<Box<YieldWindow>>,
    /// Until then the subscription outlives the last waiter, while the lock is held.
    pub listen_until: Option<Moment>,
    /// A waiter came during a yield window. From then on the subscription is kept through yield windows.
    pub keep_subscribed: bool,
    /// When to refresh the scores of the waiters in Redis's queue.
    pub refresh_at: Option<Moment>,
    /// Unanswered removals from Redis's queue. They are retried from `dequeue_at` on, while there is a connection.
    pub dequeues: VecDeque<Dequeue>,
    pub dequeue_at: Moment,
    /// It waits for the request of a caller, and does nothing else.
    pub is_behind_caller: bool,
    /// The last step was for a waiter that needs a reply of its own, so the next one is for the waiter whose turn it is.
    pub turn_is_next: bool,
    /// The epoch of the signal on which it has acted.
    pub epoch: u64,
    /// The queue has no work left.
    pub done: bool,
}

impl KeyActor {
    pub(crate) fn new(session: Arc<Session>, queue: Arc<KeyQueue>) -> Self {
        let messages_at_attempt = queue.signal.get().reading().messages;
        let crowd = Crowd::new(messages_at_attempt);
        Self {
            session,
            queue,
            subscription: None,
            busy_reply: None,
            crowd,
            messages_at_attempt,
            checked: None,
            messages_at_probe: None,
            yield_window: None,
            listen_until: None,
            keep_subscribed: false,
            refresh_at: None,
            dequeues: VecDeque::new(),
            dequeue_at: Moment::now(),
            is_behind_caller: false,
            turn_is_next: false,
            epoch: 0,
            done: false,
        }
    }

    /// Records the owner id of a request that is about to be sent. Only the requests of other readers name it.
    pub(crate) fn note_in_flight(&self, owner_id: &Arc<str>) {
        if self.queue.is_readers() {
            self.queue.work().in_flight = Some(owner_id.clone());
        }
    }

    /// Marks the count of the current hold as being changed. Returns the hold and its count, or `None` while the hold is ahead of the
    /// record.
    pub(crate) fn change_current(&self) -> Option<(Arc<Hold>, u32)> {
        let mut work = self.queue.work();
        let current = work.current.as_mut().filter(|current| current.lagging().is_none())?;
        current.set_changing(true);
        Some((current.hold.clone(), current.recorded))
    }

    /// Runs `f` on the current hold if that is `hold`.
    pub(crate) fn with_current<T>(&self, hold: &Arc<Hold>, f: impl FnOnce(&mut Current) -> T) -> Option<T> {
        let mut work = self.queue.work();
        work.current.as_mut().filter(|current| Arc::ptr_eq(&current.hold, hold)).map(f)
    }

    /// This client's confirmed subscriptions to the channel: 0 or 1.
    pub(crate) fn own_subscriptions(&self) -> u64 {
        u64::from(self.subscription.as_ref().is_some_and(Subscription::is_confirmed))
    }

    pub(crate) fn lost(&self, hold: &Arc<Hold>, reason: LossReason) -> Error {
        hold.lose(reason);
        Error::Lost { name: self.queue.record().to_string(), reason, holder: None }
    }

    /// Removes a waiter from the queue and delivers its outcome.
    pub(crate) fn tell(&self, ticket: u64, outcome: Outcome) {
        let waiter = self.queue.work().leave(ticket);
        if let Some(waiter) = waiter {
            let _ = waiter.reply.send(outcome);
        }
    }

    /// Rotates the owner ids if an earlier send of `request` went unanswered. That send may still arrive, and must not change a
    /// later hold.
    pub(crate) fn rotate_if_repeated(&self, request: &Request) {
        if request.is_repeated() {
            self.session.rotate_owner_ids();
        }
    }

    /// The error of a release that was refused or went unanswered. If only a repeat was refused, the first send may have taken
    /// effect.
    pub(crate) fn release_error(&self, failure: Failure) -> Error {
        if !failure.unanswered {
            return self.session.connection.error(failure, Phase::Release);
        }
        self.session.rotate_owner_ids();
        Error::Ambiguous { phase: Phase::Release, node: self.session.connection.node().into() }
    }
}

/// The number of a channel's subscriptions that belong to other clients, if this client has `own` of `all`. `None` if it is not known.
pub(crate) fn foreign_subscriptions(session: &Session, all: Option<u64>, own: u64) -> Option<u64> {
    let known = all.filter(|_| session.connection.counts_every_subscriber());
    known.map(|all| all.saturating_sub(own))
}
