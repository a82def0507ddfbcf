//! One level of a hold, from the grant to the release.
//!
//! Invariants:
//! 1. A granted level is released once: by its owner's unlock or drop. A grant whose waiter has left is released without a `Level`
//!    ([`Session::return_level`]), and one that was delivered and not taken when its `Level` is dropped.
//! 2. The watchdog renews a hold for a level only after the owner has taken that level.
//! 3. A release neither blocks nor panics.

use crate::config::options::{ENDLESS, Lease};
use crate::connection::Absence;
use crate::engine::actor;
use crate::engine::direct::DirectRelease;
use crate::engine::key_queue::KeyQueue;
use crate::engine::permits;
use crate::engine::pipelined;
use crate::engine::releases::ReleasedLevel;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::{Access, HeldPermits, LockKind};
use crate::lease::hold::{Begun, Hold};
use crate::lease::term::LevelTerm;
use crate::observer::Way;
use crate::owner::LocalOwner;
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use std::sync::Arc;
use tokio::sync::oneshot;

/// One level of a hold. Dropping it releases it.
pub(crate) struct Level {
    pub session: Arc<Session>,
    pub queue: Arc<KeyQueue>,
    pub hold: Arc<Hold>,
    pipelined: bool,
    /// `None` until the owner has taken the level.
    term: Option<LevelTerm>,
    released: bool,
}

impl Level {
    pub(crate) fn new(
        session: &Arc<Session>,
        queue: &Arc<KeyQueue>,
        hold: &Arc<Hold>,
        pipelined: bool,
    ) -> Self {
        Self {
            session: session.clone(),
            queue: queue.clone(),
            hold: hold.clone(),
            pipelined,
            term: None,
            // A gate is passed and not held, so there is nothing to release.
            released: hold.kind.traits().access == Access::Gate,
        }
    }

    /// A level to release that was not acquired through this engine.
    pub(crate) fn outstanding(session: &Arc<Session>, kind: &Arc<dyn LockKind>) -> Result<Self> {
        session.check_open(Phase::Release)?;
        let owner = LocalOwner::thread();
        let queue = session.queue(&**kind, &owner);
        let begun = Begun {
            kind: kind.clone(),
            owner,
            owner_id: kind.owner_id("".into()),
            data_epoch: 0,
            sent: Moment::now(),
            lease: ENDLESS,
            token: None,
        };
        let hold = Hold::new(begun, &session.listeners);
        Ok(Self::new(session, &queue, &hold, false))
    }

    /// Marks the level as taken by its owner. From now on the watchdog watches the hold, and renews it if the level has no fixed lease. A
    /// level that nobody takes ends with its lease. Returns how the caller came to the level, which was granted by `way`. `None` if the hold
    /// has ended since the grant.
    pub(crate) fn take(&mut self, lease: Lease, mut way: Way) -> Option<Way> {
        let now = Moment::now();
        if !self.hold.state_at(now).is_live() {
            return None;
        }
        // A gate is not held.
        if !self.released {
            if !self.hold.start(now)? {
                way = Way::ReEntered;
            }
            self.session.counters.acquired(way);
        }
        self.term = match lease {
            Lease::Watchdog | Lease::AtLeast(_) => Some(LevelTerm::renewed(Moment::FAR)),
            Lease::WatchdogFor(max) => Some(LevelTerm::renewed(now + max)),
            Lease::Fixed(lease) => Some(LevelTerm::fixed(self.hold.lease_end().min(now + lease))),
            Lease::Endless => None,
        };
        if let Lease::AtLeast(min) = lease {
            self.hold.keep_until(now + min);
        }
        if let Some(term) = self.term {
            let work = self.queue.work();
            self.hold.begin_level(term, work.levels_of(&self.hold));
            drop(work);
            self.session.watchdog.watch(&self.hold);
            self.session.watchdog.doubt_late(&self.hold, &self.session.connection);
        }
        Some(way)
    }

    /// Gives the level up without a release. The watchdog no longer renews for it.
    pub(crate) fn forget(mut self) {
        self.released = true;
        self.hold.end_level(self.term, 0);
        self.hold.abandon();
    }

    /// Releases the level, and waits for the outcome for at most the response timeout. Sends the request directly if nobody else is at the
    /// key, or to hand the lock to the next waiter while the actor rests.
    ///
    /// If the future is dropped, the release continues in the background.
    pub(crate) async fn release(&mut self) -> Result<()> {
        if self.hold.is_over() {
            self.session.check_process()?;
            return Err(self.hold.not_held());
        }
        if self.pass_on() {
            return Ok(());
        }
        self.session.check_open(Phase::Release)?;
        let until = self.session.question_ends();
        if self.hold.kind.permits().is_some() {
            // Held permits do not keep their key queue in the table, so another one may have replaced it.
            self.queue = self.session.queue_with(self.queue.id.clone());
        }
        if let Some(mut direct) = DirectRelease::begin(&self.session, &self.queue, &self.hold, until) {
            self.released = true;
            return direct.send().await.unwrap_or_else(|| Err(self.unconfirmed()));
        }
        self.release_in_turn(until).await
    }

    /// Releases the level after the other requests for the key.
    async fn release_in_turn(&mut self, until: Moment) -> Result<()> {
        let absence = self.session.connection.absence(self.hold.record());
        let (reply, outcome) = oneshot::channel();
        let level = self.returned(Some(reply));
        let connection = &self.session.connection;
        actor::submit(&self.session, self.queue.clone(), |work| work.queue_release(level));
        match time::timeout(until.remaining(), outcome).await {
            Ok(outcome) => outcome.unwrap_or(Err(Error::Closed { phase: Phase::Release })),
            // Without a connection from the begin on, nothing was sent.
            Err(_) => Err(absence
                .filter(Absence::lasts)
                .and_then(|_| connection.unavailability(self.hold.record(), Moment::now(), Phase::Release))
                .unwrap_or_else(|| self.unconfirmed())),
        }
    }

    /// The error of a release that was sent and got no answer in time.
    fn unconfirmed(&self) -> Error {
        Error::Ambiguous { phase: Phase::Release, node: self.session.connection.node().into() }
    }

    /// Passes the lock or the permits to the next waiter of this client at once, where that is allowed.
    fn pass_on(&mut self) -> bool {
        let Self { session, queue, hold, .. } = &*self;
        let is_open = || session.check_open(Phase::Release).is_ok();
        self.released = match hold.kind.permits() {
            Some(HeldPermits::Unnamed(_)) => is_open() && permits::pass_on(session, queue, hold),
            Some(HeldPermits::WithIds(_)) => false,
            None => self.pipelined && is_open() && pipelined::hand_off_ahead(session, queue, hold),
        };
        self.released
    }

    fn returned(&mut self, reply: Option<oneshot::Sender<Result<()>>>) -> ReleasedLevel {
        self.released = true;
        let (hold, term, pipelined) = (self.hold.clone(), self.term, self.pipelined);
        ReleasedLevel { hold, term, pipelined, reply }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        if !self.released && !self.pass_on() {
            let level = self.returned(None);
            self.session.return_level(&self.queue, level);
        }
    }
}
