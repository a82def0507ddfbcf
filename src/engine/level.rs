//! One level of a hold, as whoever was granted it has it.
//!
//! Invariants:
//! 4. A level given out is given back once: by its owner's unlock or drop, or by the lane if nobody took it.
//! 7. A level is renewed only while somebody has it.
//! 8. Giving back neither blocks nor panics.

use crate::config::options::{ENDLESS, Lease};
use crate::engine::key_queue::{KeyQueue, Release, Returned};
use crate::engine::pipelined;
use crate::engine::session::{Session, Turn};
use crate::error::{Error, Phase, Result};
use crate::kinds::kind::{Access, LockKind};
use crate::lease::hold::{Begun, Hold};
use crate::owner::OwnerId;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use tokio::sync::oneshot;

/// One level of a hold: given back when dropped.
pub(crate) struct Level {
    pub session: Arc<Session>,
    pub lane: Arc<KeyQueue>,
    pub hold: Arc<Hold>,
    lease: Lease,
    pipelined: bool,
    /// The watchdog renews for it.
    renewing: bool,
    released: bool,
}

impl Level {
    pub(crate) fn new(
        session: &Arc<Session>,
        lane: &Arc<KeyQueue>,
        hold: &Arc<Hold>,
        lease: Lease,
        pipelined: bool,
    ) -> Self {
        Self {
            session: session.clone(),
            lane: lane.clone(),
            hold: hold.clone(),
            lease,
            pipelined,
            renewing: false,
            // There is nothing to give back of what is not held.
            released: hold.kind.manner().access == Access::Gate,
        }
    }

    /// Something to be given back that was not taken here.
    pub(crate) fn outstanding(session: &Arc<Session>, kind: &Arc<dyn LockKind>) -> Result<Self> {
        session.check_open()?;
        let owner = OwnerId::thread();
        let lane = session.lane(kind.lane(&owner));
        let begun = Begun {
            kind: kind.clone(),
            owner,
            text: "".into(),
            life: 0,
            sent: Moment::now(),
            lease: ENDLESS,
            token: None,
        };
        let hold = Hold::new(begun, lane.observer());
        Ok(Self::new(session, &lane, &hold, Lease::Endless, false))
    }

    /// Its owner has it: from now on it is watched, and renewed. One that nobody takes ends with its lease.
    pub(crate) fn take(&mut self) {
        if self.lease == Lease::Watchdog {
            self.hold.begin_renewal();
            self.renewing = true;
        }
        if self.lease != Lease::Endless {
            self.session.watchdog.watch(&self.hold);
        }
    }

    /// Nobody will give it back, and nobody renews for it.
    pub(crate) fn forget(mut self) {
        self.released = true;
        if self.renewing {
            self.hold.end_renewal();
        }
    }

    /// Gives the level back, and returns where the outcome will be told, and what to drive meanwhile. `None` if it was
    /// passed on to another task, so that there is nothing to wait for.
    pub(crate) fn release(&mut self) -> Result<Option<(oneshot::Receiver<Result<()>>, Turn)>> {
        if self.pass_on() {
            return Ok(None);
        }
        let (reply, outcome) = oneshot::channel();
        let release = self.returned(Some(reply));
        match self.session.submit_to(&self.lane, |work| work.releases.push_back(release)) {
            Ok(((), turn)) => Ok(Some((outcome, turn))),
            Err(fork @ Error::Misuse { .. }) => Err(fork),
            Err(_) => Err(self.session.closed_error(Phase::Release)),
        }
    }

    fn pass_on(&mut self) -> bool {
        self.released = self.pipelined && self.session.check_open().is_ok() && pipelined::pass_on(self);
        self.released
    }

    fn returned(&mut self, reply: Option<oneshot::Sender<Result<()>>>) -> Release {
        self.released = true;
        let (hold, renewing, pipelined) = (self.hold.clone(), self.renewing, self.pipelined);
        Release::Level(Returned { hold, renewing, pipelined, reply })
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        // A lost hold has nothing to give back; what its text may still hold is the lane's to clear.
        if !self.released && self.hold.state().is_live() && !self.pass_on() {
            let release = self.returned(None);
            let _ = self.session.release_later(&self.lane, release);
        }
    }
}
