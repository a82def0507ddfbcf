//! The entry points of `benches/local`. Built only with `--cfg measuring`.

use crate::config::options::Options;
use crate::connection::packed;
use crate::connection::pubsub::PubSub;
use crate::kinds::Reentrant;
use crate::kinds::kind::LockKind;
use crate::lease::hold::{Begun, Hold, Listeners, LossHandler};
use crate::lease::term::LevelTerm;
use crate::lease::watchdog::Watchdog;
use crate::owner::LocalOwner;
use crate::protocol::keys::LockKeys;
use crate::protocol::script;
use crate::runtime::clock::Moment;
use crate::runtime::wakeup::Signal;
use std::sync::{Arc, Weak};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

/// Builds the keys of one lock. Returns their total length.
pub fn names(name: &str) -> usize {
    let keys = LockKeys::new(name.to_owned()).expect("a name");
    keys.record().len() + keys.channel().len()
}

/// Builds the requests of an acquire and a release by scripts. Returns their total length.
pub fn requests(name: &str) -> usize {
    let keys = LockKeys::new(name.to_owned()).expect("a name");
    let owner = LocalOwner::thread().owner_id("00000000-0000-0000-0000-000000000000", 0);
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
    /// A registry with this many other channels.
    pub fn new(others: usize) -> Self {
        let pubsub = PubSub::default();
        for other in 0..others {
            // Dropping the subscription would end it.
            std::mem::forget(pubsub.subscribe(&format!("channel:{other}").into(), &Arc::default()));
        }
        Self { pubsub, channel: "channel".into(), signal: Arc::default() }
    }

    /// Adds and drops one subscription.
    pub fn pass(&self) {
        drop(self.pubsub.subscribe(&self.channel, &self.signal));
    }
}

/// The holds that a watchdog watches over.
#[derive(Debug)]
pub struct Watched {
    watchdog: Watchdog,
    kind: Arc<dyn LockKind>,
    owner_id: Arc<str>,
    listeners: Arc<Listeners>,
}

/// A loss handler that does nothing.
struct Nobody;

impl LossHandler for Nobody {
    fn losing(&self) {}
    fn doubted(self: Arc<Self>, _: &Arc<Hold>) {}
}

impl Watched {
    /// A watchdog with this many other holds that it renews.
    pub fn new(others: usize) -> Self {
        let kind = Arc::new(Reentrant::new(LockKeys::new("record".into()).expect("a name")));
        let options = Options { lease: LEASE, ..Options::default() };
        let counters = Arc::default();
        let watchdog = Watchdog::new(&options, &counters);
        let listeners = Arc::new(Listeners { counters, loss_handler: Weak::<Nobody>::new() });
        let this = Self { watchdog, kind, owner_id: "owner".into(), listeners };
        for _ in 0..others {
            // The watchdog keeps the hold alive.
            this.begin();
        }
        this
    }

    fn begin(&self) -> Arc<Hold> {
        let begun = Begun {
            kind: self.kind.clone(),
            owner: LocalOwner::thread(),
            owner_id: self.owner_id.clone(),
            data_epoch: 1,
            sent: Moment::now(),
            lease: LEASE,
            token: None,
        };
        let hold = Hold::new(begun, &self.listeners);
        hold.begin_level(LevelTerm::renewed(Moment::FAR), 1);
        self.watchdog.watch(&hold);
        hold
    }

    /// Begins and ends one hold.
    pub fn pass(&self) {
        let hold = self.begin();
        hold.release();
        self.watchdog.forget(&hold);
    }
}
