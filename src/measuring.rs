//! The doors through which `benches/local` comes in. Built with `--cfg measuring` only.

use crate::connection::packed;
use crate::connection::pubsub::PubSub;
use crate::kinds::Reentrant;
use crate::kinds::kind::LockKind;
use crate::lease::hold::{Begun, Hold, Observer};
use crate::lease::watchdog::Watchdog;
use crate::owner::OwnerId;
use crate::protocol::keys::LockKeys;
use crate::protocol::script;
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Signal;
use std::sync::{Arc, Weak};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

/// The names of one lock. Returns how long they are.
pub fn names(name: &str) -> usize {
    let keys = LockKeys::new(name.to_owned()).expect("a name");
    keys.record().len() + keys.channel().len()
}

/// An acquire and a release by scripts. Returns how long they are.
pub fn requests(name: &str) -> usize {
    let keys = LockKeys::new(name.to_owned()).expect("a name");
    let owner = OwnerId::thread().text("00000000-0000-0000-0000-000000000000", 0);
    let acquire = script::acquire(keys.record(), &owner, 30_000);
    let release = script::release(keys.record(), &owner, keys.channel());
    packed(&acquire).len() + packed(&release).len()
}

/// The subscriptions of a client.
#[derive(Debug)]
pub struct Registry {
    pubsub: PubSub,
    channel: Arc<str>,
    signal: Arc<Signal>,
}

impl Registry {
    /// With so many channels that others listen to.
    pub fn new(others: usize) -> Self {
        let pubsub = PubSub::default();
        for other in 0..others {
            // They stay.
            std::mem::forget(pubsub.subscribe(&format!("channel:{other}").into(), &Arc::default()));
        }
        Self { pubsub, channel: "channel".into(), signal: Arc::default() }
    }

    /// One comes and goes.
    pub fn pass(&self) {
        drop(self.pubsub.subscribe(&self.channel, &self.signal));
    }
}

/// The holds that a watchdog watches over.
#[derive(Debug)]
pub struct Watched {
    watchdog: Watchdog,
    kind: Arc<dyn LockKind>,
    text: Arc<str>,
}

/// Tells nobody.
struct Nobody;

impl Observer for Nobody {
    fn losing(&self) {}
    fn doubted(&self, _: &Arc<Hold>) {}
}

impl Watched {
    /// With so many that are renewed.
    pub fn new(others: usize) -> Self {
        let kind = Arc::new(Reentrant::new(LockKeys::new("record".into()).expect("a name")));
        let this = Self { watchdog: Watchdog::new(LEASE), kind, text: "owner".into() };
        for _ in 0..others {
            // The watchdog keeps it.
            this.begin();
        }
        this
    }

    fn begin(&self) -> Arc<Hold> {
        let (owner, observer) = (OwnerId::thread(), Weak::<Nobody>::new());
        let begun = Begun {
            kind: self.kind.clone(),
            owner,
            text: self.text.clone(),
            life: 1,
            sent: Moment::now(),
            lease: LEASE,
            token: None,
        };
        let hold = Hold::new(begun, observer);
        hold.begin_renewal();
        self.watchdog.watch(&hold);
        hold
    }

    /// One begins and ends.
    pub fn pass(&self) {
        let hold = self.begin();
        hold.release();
        self.watchdog.forget(&hold);
    }
}
