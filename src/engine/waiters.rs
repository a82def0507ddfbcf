//! The callers that wait in a key queue.

use crate::config::options::Lease;
use crate::engine::unfinished::Unanswered;
use crate::error::Error;
use crate::kinds::kind::LockKind;
use crate::lease::hold::Hold;
use crate::observer::Way;
use crate::owner::LocalOwner;
use std::collections::{VecDeque, vec_deque};
use std::ops::Deref;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A caller that wants the lock.
pub(crate) struct Waiter {
    pub ticket: u64,
    pub kind: Arc<dyn LockKind>,
    pub owner: LocalOwner,
    pub lease: Lease,
    /// Wants the outcome of a single attempt.
    pub once: bool,
    /// May be granted the lock ahead of the record.
    pub pipelined: bool,
    pub attempts: u32,
    /// No other call of the client was at the key when it came, it has sent no request itself, and the actor has not waited since.
    pub alone: bool,
    /// The owner id under which it waits in Redis's queue, if its kind has one; and whether it is known to be there.
    pub owner_id: Option<Arc<str>>,
    pub queued: bool,
    /// Its place in Redis's queue, as far as this client's waiters go: when it was entered there
    /// ([`next_ticket`](crate::engine::work::next_ticket)), or [`NOT_ENTERED`]. An owner has one entry, which its waiters share.
    pub turn: u64,
    pub unanswered: Option<Box<Unanswered>>,
    pub reply: oneshot::Sender<Outcome>,
}

/// The outcome of a wait.
pub(crate) enum Outcome {
    /// A level of this hold, the number of attempts that it took, and how the caller came to it. The receiver of the outcome has to release it.
    Granted(Arc<Hold>, u32, Way),
    Busy,
    Failed(Box<Error>),
}

impl Outcome {
    pub(crate) fn failed(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// The turn of a waiter that is not in Redis's queue. It comes after all others.
pub(crate) const NOT_ENTERED: u64 = u64::MAX;

impl Waiter {
    /// Whether it has to enter Redis's queue and is not known to be there.
    fn is_new(&self) -> bool {
        !self.once && !self.queued && self.kind.traits().queued
    }

    /// Whether it needs a reply of its own now.
    pub(crate) fn needs_reply(&self) -> bool {
        self.once || self.is_new()
    }

    /// Whether it needs a reply of its own at some time: the outcome of a single attempt, or a place in Redis's queue.
    fn is_apart(&self) -> bool {
        self.once || self.kind.traits().queued
    }

    /// Delivers a level of `hold`. Returns whether the waiter was still there.
    pub(crate) fn receives(self, hold: &Arc<Hold>, mut way: Way) -> bool {
        if way == Way::AfterWait && self.alone && self.attempts == 1 {
            way = Way::Directly;
        }
        self.reply.send(Outcome::Granted(hold.clone(), self.attempts, way)).is_ok()
    }
}

/// Waiters in the order of arrival, which is the order of their tickets.
///
/// If each hold searched all waiters, its cost would grow with their number. So [`first`](Self::first) and [`apart`](Self::apart) search
/// only if a waiter needs a reply of its own, which is rare.
#[derive(Default)]
pub(crate) struct Waiters {
    all: VecDeque<Waiter>,
    /// The number of waiters that need a reply of their own at some time.
    apart: usize,
}

impl Waiters {
    pub(crate) fn insert(&mut self, waiter: Waiter) {
        if self.all.is_empty() {
            // Most waiters are alone.
            self.all.reserve_exact(1);
        }
        self.apart += usize::from(waiter.is_apart());
        // It is the last one, unless it sent a request itself before.
        let at = self.all.partition_point(|other| other.ticket < waiter.ticket);
        self.all.insert(at, waiter);
    }

    pub(crate) fn remove(&mut self, ticket: u64) -> Option<Waiter> {
        let at = self.position(ticket)?;
        let waiter = self.all.remove(at)?;
        self.apart -= usize::from(waiter.is_apart());
        Some(waiter)
    }

    pub(crate) fn get_mut(&mut self, ticket: u64) -> Option<&mut Waiter> {
        let at = self.position(ticket)?;
        self.all.get_mut(at)
    }

    pub(crate) fn iter_mut(&mut self) -> vec_deque::IterMut<'_, Waiter> {
        self.all.iter_mut()
    }

    pub(crate) fn contains(&self, ticket: u64) -> bool {
        self.position(ticket).is_some()
    }

    /// The waiter whose turn is first. The actor attempts and subscribes for it.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        match self.apart {
            // Nobody has a turn of its own.
            0 => self.all.front(),
            _ => self.all.iter().min_by_key(|waiter| (waiter.turn, waiter.ticket)),
        }
    }

    /// Puts the waiters of this owner id before all others: it is the head of Redis's queue. The order here may differ from the one there
    /// after a request that was late or could not be sent. Returns whether the order changed.
    pub(crate) fn put_first(&mut self, owner_id: &str) -> bool {
        let named = |waiter: &Waiter| waiter.queued && waiter.owner_id.as_deref() == Some(owner_id);
        let Some(first) = self.first().filter(|first| !named(first)) else { return false };
        let turn = first.turn.saturating_sub(1);
        let mut has_moved = false;
        for waiter in self.all.iter_mut().filter(|waiter| named(waiter)) {
            (waiter.turn, has_moved) = (turn, true);
        }
        has_moved
    }

    /// The waiters that holders of this client may hand the lock or pass permits to, in this order.
    pub(crate) fn local(&self) -> impl Iterator<Item = &Waiter> {
        self.all.iter().filter(|waiter| !waiter.once && !waiter.reply.is_closed())
    }

    /// The waiters that need a reply of their own.
    pub(crate) fn apart(&self) -> impl Iterator<Item = &Waiter> {
        let looked_at = if self.apart == 0 { 0 } else { self.all.len() };
        self.all.iter().take(looked_at).filter(|waiter| waiter.is_apart())
    }

    /// The first waiter that still waits for a reply of its own.
    pub(crate) fn next_apart(&self) -> Option<&Waiter> {
        self.apart().find(|waiter| waiter.needs_reply())
    }

    /// The ticket of the last waiter.
    pub(crate) fn newest(&self) -> u64 {
        self.all.back().map_or(0, |waiter| waiter.ticket)
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        self.all.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }
}

impl Deref for Waiters {
    type Target = VecDeque<Waiter>;
    fn deref(&self) -> &VecDeque<Waiter> {
        &self.all
    }
}
