//! What one key of one client has to do, in order.
//!
//! All that changes a key's record goes through its lane, one request at a time, sent by the lane's driver (see
//! `drive`) and never by the future that asked for it. A future that is dropped leaves its request to the lane,
//! which undoes it. That is what makes the count in the record known.

use crate::config::options::Lease;
use crate::engine::level::Level;
use crate::engine::session::{ActorInHand, Session};
use crate::error::{Error, Result};
use crate::kinds::kind::{LockKind, QueueKey};
use crate::lease::hold::{Hold, Observer};
use crate::owner::OwnerId;
use crate::runtime::clock::Moment;
use crate::runtime::in_place::Place;
use crate::runtime::sync::{Mutex, MutexGuard};
use crate::runtime::wakeup::Signal;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// One key of one client.
pub(crate) struct KeyQueue {
    pub session: Weak<Session>,
    /// Its key in the session's table.
    pub key: QueueKey,
    pub signal: Arc<Signal>,
    this: Weak<KeyQueue>,
    work: Mutex<Work>,
}

/// What is to be done, and what is held.
#[derive(Default)]
pub(crate) struct Work {
    /// Those who want the lock, in the order in which they came.
    pub waiters: VecDeque<Waiter>,
    pub releases: VecDeque<Release>,
    pub current: Option<Current>,
    /// Holds that have an owner and stand beside each other, none of them current.
    pub beside: Vec<Arc<Hold>>,
    /// A release has been taken and is not done yet.
    pub releasing: bool,
    /// Somebody drives the lane.
    pub driven: bool,
    /// The driver, while it is in the hands of a caller.
    pub place: Option<Arc<Place<ActorInHand>>>,
    /// The lane has left the session's table: use another.
    pub removed: bool,
    pub busy: Option<Busy>,
    /// Until when the lock is left to others, see `Pause` in `others`.
    pub away_until: Option<Moment>,
    /// Until then other clients count as ones that take and leave the lock without a message.
    pub pollers_until: Option<Moment>,
}

/// When the lock was last known to be held, for those who waited in vain.
pub(crate) struct Busy {
    at: Moment,
    /// By whom, if by one of this client.
    by: Option<OwnerId>,
    /// Nothing else is known since.
    pub still: bool,
}

impl Busy {
    /// What was known so shortly before one came counts for him, too: the server is not asked anew for each.
    pub(crate) const FRESH: Duration = Duration::from_millis(15);

    pub(crate) fn at(at: Moment, by: Option<OwnerId>) -> Option<Self> {
        Some(Self { at, by, still: true })
    }

    /// Whether the lock was busy for `owner` while it waited since `started`.
    pub(crate) fn was_for(&self, owner: &OwnerId, started: Moment) -> bool {
        let counts = self.at >= started || self.still && self.at + Self::FRESH >= started;
        counts && self.by.as_ref() != Some(owner)
    }
}

/// The hold that this client has on the key.
pub(crate) struct Current {
    pub hold: Arc<Hold>,
    pub since: Moment,
    /// The count in the record.
    pub recorded: u64,
    /// The levels given out. Differs from `recorded` only after a refused partial release.
    pub levels: u64,
    /// A change of the count is on its way.
    pub changing: bool,
    /// A change of the count went unanswered: a late send of it may still spoil the count.
    pub unsure: bool,
    /// What the record says, while it names another than the one who holds.
    pub behind: Option<Behind>,
    pub run: Run,
}

/// A record that a hold is ahead of, see `pipelined`.
#[derive(Clone)]
pub(crate) struct Behind {
    /// Whom the record names.
    pub text: Arc<str>,
    /// The end of its lease, as confirmed.
    pub until: Moment,
    /// A move is on its way, so that it may name another by now.
    pub moving: bool,
    /// When to try again to let it follow, after a refusal.
    pub again_at: Option<Moment>,
}

/// What the record went through since it was acquired from outside: it passes from hold to hold by hand-off.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub since: Moment,
    /// Hand-offs.
    pub count: u32,
    /// Subscriptions of other clients, where known.
    pub others: Option<u64>,
    /// The messages heard before the holder before us was found gone, if it was.
    pub unheard: Option<u64>,
}

impl Run {
    pub(crate) fn new(since: Moment, unheard: Option<u64>) -> Self {
        Self { since, count: 0, others: None, unheard }
    }
}

/// Somebody who wants the lock.
pub(crate) struct Waiter {
    pub ticket: u64,
    pub kind: Arc<dyn LockKind>,
    pub owner: OwnerId,
    pub lease: Lease,
    /// Wants an answer to one attempt, whatever it is.
    pub once: bool,
    /// May have the lock ahead of the record.
    pub pipelined: bool,
    pub attempts: u32,
    /// The text under which it waits in Redis, if its kind has a queue there; and whether it is known to be there.
    pub text: Option<Arc<str>>,
    pub queued: bool,
    /// The ticket that decides its turn. An owner has one entry in Redis' queue, so its waiters share the ticket of the first
    /// of them.
    pub turn: u64,
    pub reply: oneshot::Sender<Outcome>,
}

impl Waiter {
    /// It is to be known to Redis, and is not yet.
    pub(crate) fn is_new(&self) -> bool {
        !self.once && !self.queued && self.kind.manner().queued
    }
}

/// What a waiter is told.
pub(crate) enum Outcome {
    Granted(Level, u32),
    Busy,
    Failed(Error),
}

/// Something to be given back.
pub(crate) enum Release {
    Level(Returned),
    /// A text that must not hold the record any more, until then.
    Text(Arc<dyn LockKind>, Arc<str>, Moment),
    /// A text that must not wait in Redis' queue any more.
    Place(Arc<dyn LockKind>, Arc<str>),
}

/// One level of a hold, on its way back.
pub(crate) struct Returned {
    pub hold: Arc<Hold>,
    /// The watchdog renewed for it.
    pub renewing: bool,
    pub pipelined: bool,
    pub reply: Option<oneshot::Sender<Result<()>>>,
}

impl KeyQueue {
    pub(crate) fn new(session: Weak<Session>, key: QueueKey) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            session,
            key,
            signal: Arc::default(),
            this: this.clone(),
            work: Mutex::default(),
        })
    }

    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of the record.
    pub(crate) fn record(&self) -> &Arc<str> {
        self.key.record()
    }

    pub(crate) fn observer(&self) -> Weak<dyn Observer> {
        self.this.clone() as Weak<dyn Observer>
    }
}

impl Work {
    /// Adds a waiter at the end, and returns its ticket, which is of this process and so of this waiter alone: its
    /// lane may be gone, and another in its place, when the ticket comes back.
    pub(crate) fn enqueue(
        &mut self,
        kind: &Arc<dyn LockKind>,
        owner: OwnerId,
        terms: Terms,
        once: bool,
        reply: oneshot::Sender<Outcome>,
    ) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Taken under the lane's lock, so that the queue is in their order.
        let ticket = NEXT.fetch_add(1, Ordering::Relaxed);
        let Terms { lease, pipelined } = terms;
        if self.waiters.is_empty() {
            // Most are alone.
            self.waiters.reserve_exact(1);
        }
        self.waiters.push_back(Waiter {
            ticket,
            kind: kind.clone(),
            owner,
            lease,
            once,
            pipelined,
            attempts: 0,
            text: None,
            queued: false,
            turn: ticket,
            reply,
        });
        ticket
    }

    /// Undoes the acquire that was just sent, before anything else is given back. A numbered undo has an effect only while
    /// its acquire is the last request of the client that took effect, so a release must not come in between.
    pub(crate) fn undo(&mut self, kind: &Arc<dyn LockKind>, text: Arc<str>, until: Moment) {
        self.releases.push_front(Release::Text(kind.clone(), text, until));
    }

    /// Takes what is to be given back next.
    pub(crate) fn next_release(&mut self) -> Option<Release> {
        let release = self.releases.pop_front();
        self.releasing = release.is_some();
        release
    }

    /// Whether anything is still to be given back.
    pub(crate) fn is_releasing(&self) -> bool {
        self.releasing || !self.releases.is_empty()
    }

    /// Keeps a hold in mind until it is over.
    pub(crate) fn keep_beside(&mut self, hold: &Arc<Hold>) {
        self.beside.retain(|other| !other.is_over());
        self.beside.push(hold.clone());
    }

    /// The text by which the record names the holds of `owner`, if it has any here.
    pub(crate) fn text_of(&self, owner: &OwnerId) -> Option<Arc<str>> {
        let current = self.current.iter().map(|current| &current.hold);
        let live = self.beside.iter().filter(|hold| !hold.is_over());
        current.chain(live).find(|hold| hold.owner == *owner).map(|hold| hold.text.clone())
    }

    /// The hold that somebody has a level of which is not on its way back.
    pub(crate) fn in_hand(&self) -> Option<Arc<Hold>> {
        let Current { hold, levels, .. } = self.current.as_ref()?;
        let returned =
            |release: &&Release| matches!(release, Release::Level(level) if Arc::ptr_eq(&level.hold, hold));
        let returned = self.releases.iter().filter(returned).count() as u64;
        (*levels > returned).then(|| hold.clone())
    }

    /// The waiter that is served and listened for: its turn comes first.
    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiters.iter().min_by_key(|waiter| (waiter.turn, waiter.ticket))
    }

    /// The ticket of the last one who came.
    pub(crate) fn newest(&self) -> u64 {
        self.waiters.back().map_or(0, |waiter| waiter.ticket)
    }

    /// The hold is being given back. Tells whom the record names, too.
    pub(crate) fn end_hold(&mut self, now: Moment) -> Option<(Run, Arc<str>)> {
        let Current { hold, behind, run, .. } = self.current.take()?;
        self.busy = Busy::at(now, Some(hold.owner.clone()));
        Some((run, behind.map_or_else(|| hold.text.clone(), |behind| behind.text)))
    }

    /// The hold has ended, and whoever noticed that has its text cleared. What else the record may name is cleared here.
    pub(crate) fn drop_hold(&mut self) {
        if let Some(Current { hold, behind: Some(behind), .. }) = self.current.take() {
            self.releases.push_back(Release::Text(hold.kind.clone(), behind.text, behind.until + hold.lease));
        }
    }

    /// Whether all that the driver would see in the newest waiter is one more who waits behind a hold of this client. One
    /// who is to be known to Redis is more than that.
    pub(crate) fn is_one_more(&self) -> bool {
        let (Some(current), Some(newest)) = (&self.current, self.waiters.back()) else { return false };
        self.releases.is_empty()
            && self.waiters.len() > 1
            && !newest.once
            && !newest.is_new()
            && newest.owner != current.hold.owner
    }

    /// Takes the waiter of `ticket` out, if it still waits.
    pub(crate) fn take(&mut self, ticket: u64) -> Option<Waiter> {
        let at = self.waiters.binary_search_by_key(&ticket, |w| w.ticket).ok()?;
        self.waiters.remove(at)
    }

    /// Those who wait in Redis' queue go, with their places there.
    pub(crate) fn leave_queue(&mut self) -> Vec<Waiter> {
        let (queued, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.text.is_some());
        self.waiters = others.into();
        let place = |waiter: &Waiter| Some(Release::Place(waiter.kind.clone(), waiter.text.clone()?));
        self.releases.extend(queued.iter().filter_map(place));
        queued
    }

    /// The waiter of `ticket`, if it still waited, gives up.
    pub(crate) fn leave(&mut self, ticket: u64) -> Option<Waiter> {
        let waiter = self.take(ticket)?;
        self.vacate(&waiter);
        Some(waiter)
    }

    /// Gives up the place in Redis' queue of a waiter that was taken out, unless another waiter of its owner shares it.
    pub(crate) fn vacate(&mut self, waiter: &Waiter) {
        if let Some(text) = &waiter.text
            && !self.waits_by(text)
        {
            self.releases.push_back(Release::Place(waiter.kind.clone(), text.clone()));
        }
    }

    /// Makes the waiters of `text` queue again under another text. Returns whether there are any.
    pub(crate) fn wait_anew(&mut self, text: &Arc<str>) -> bool {
        let mut old = None;
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.text.as_ref() == Some(text)) {
            (waiter.text, waiter.queued, waiter.turn) = (None, false, waiter.ticket);
            old.get_or_insert_with(|| waiter.kind.clone());
        }
        let waited = old.is_some();
        self.releases.extend(old.map(|kind| Release::Place(kind, text.clone())));
        waited
    }

    /// Whether a waiter uses `text` in Redis' queue.
    pub(crate) fn waits_by(&self, text: &Arc<str>) -> bool {
        self.waiters.iter().any(|waiter| waiter.text.as_ref() == Some(text))
    }
}

/// How somebody wants to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub lease: Lease,
    pub pipelined: bool,
}

impl Observer for KeyQueue {
    /// The text of a lost hold is never used again, because its release is still to be sent.
    fn losing(&self) {
        if let Some(session) = self.session.upgrade() {
            session.retire_texts();
        }
    }

    /// Those who wait behind a hold that is no longer certain look for themselves.
    fn doubted(&self, hold: &Arc<Hold>) {
        let (Some(session), Some(lane)) = (self.session.upgrade(), self.this.upgrade()) else { return };
        if !hold.state().is_live() {
            tracing::warn!(lock = ?hold.record(), owner = %hold.text, state = ?hold.state(), "hold lost");
            let until = Moment::now() + session.options.lease;
            let release = Release::Text(hold.kind.clone(), hold.text.clone(), until);
            let _ = session.release_later(&lane, release);
        }
        self.signal.look_again();
    }
}
