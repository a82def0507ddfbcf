//! One handle for all kinds, whatever their own handles are called: it is acquired, waited for, held, and released or
//! lost. The suites that run for every kind use nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::time::{Duration, Instant};

use redisson_lock::{
    Client, ClientBuilder, Error, ExpirablePermit, ExpirableSemaphore, HoldState, Lock, LockGuard, MultiLock,
    MultiLockGuard, Owner, RedLock, Semaphore, SemaphorePermit,
};

use super::kind::Kind;
use super::{Proxy, Server};

/// The lease of a red lock here, which is also the age from which a server counts. It is long enough for a busy machine.
const COUNTS_AFTER: Duration = Duration::from_secs(3);

/// A client of a server. A red lock has three clients, which reach the server at three addresses and take it for three
/// servers. `red_lock` covers servers that are really independent.
pub struct ClientSet {
    clients: Vec<Client>,
    _addresses: Vec<Proxy>,
}

impl ClientSet {
    pub async fn of(kind: Kind, server: &Server) -> Self {
        Self::with(kind, kind.builder(), server).await
    }

    pub async fn with(kind: Kind, builder: ClientBuilder, server: &Server) -> Self {
        let mut this = Self::from(builder.clone().connect(server.url()).await.expect("the server is up"));
        for address in Self::extra_addresses(kind, server).await {
            let client = builder.clone().connect(address.url()).await.expect("the server is up");
            this.join(client, address);
        }
        this.counting(kind).await
    }

    /// The addresses of the clients that the kind needs in addition to the first.
    pub async fn extra_addresses(kind: Kind, server: &Server) -> Vec<Proxy> {
        if kind != Kind::Red {
            return Vec::new();
        }
        vec![Proxy::start(server.port()).await, Proxy::start(server.port()).await]
    }

    /// Uses clients that are connected already. A kind that needs fewer uses the first ones.
    pub fn from_clients(clients: Vec<Client>) -> Self {
        Self { clients, _addresses: Vec::new() }
    }

    pub fn join(&mut self, client: Client, address: Proxy) {
        self.clients.push(client);
        self._addresses.push(address);
    }

    /// Waits until the servers count for a red lock.
    pub async fn counting(self, kind: Kind) -> Self {
        if kind == Kind::Red {
            kind.of(&self, "counts").lock().await.expect("it is free").unlock().await.expect("it was held");
        }
        self
    }

    pub fn clients(&self) -> &[Client] {
        &self.clients
    }
}

impl From<Client> for ClientSet {
    fn from(client: Client) -> Self {
        Self { clients: vec![client], _addresses: Vec::new() }
    }
}

impl Deref for ClientSet {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.clients[0]
    }
}

impl fmt::Debug for ClientSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.clients).finish()
    }
}

impl Kind {
    pub fn builder(self) -> ClientBuilder {
        let builder = Client::builder();
        if self == Self::Red { builder.watchdog_timeout(COUNTS_AFTER) } else { builder }
    }

    /// A semaphore has one permit, so that its holder excludes all others.
    pub fn of(self, party: &ClientSet, name: &str) -> AnyLock {
        let member = |(client, name): (&Client, String)| client.lock(name);
        match self {
            Self::Multi => {
                let names = self.records(name).into_iter().map(|name| member((party, name)));
                AnyLock::Multi(MultiLock::new(names).expect("they differ"))
            }
            Self::Red => {
                let locks = party.clients.iter().zip(self.records(name)).map(member);
                let red = RedLock::new(locks).expect("each is at another server");
                // Each server takes part, however busy the machine is.
                AnyLock::Red(red.with_node_timeout(Duration::from_secs(2)))
            }
            Self::Semaphore => AnyLock::Semaphore(party.semaphore(name)),
            Self::Permit => AnyLock::Permit(party.expirable_semaphore(name)),
            _ => AnyLock::Lock(self.lock(party, name)),
        }
    }
}

/// A handle of any kind. Its methods are named like those of [`Lock`].
#[derive(Clone)]
pub enum AnyLock {
    Lock(Lock),
    Multi(MultiLock),
    Red(RedLock),
    Semaphore(Semaphore),
    Permit(ExpirableSemaphore),
}

impl AnyLock {
    pub async fn lock(&self) -> Result<Held, Error> {
        Ok(match self {
            Self::Lock(lock) => Held::Lock(lock.lock().await?),
            Self::Multi(multi) => Held::Several(multi.lock().await?),
            Self::Red(red) => Held::Several(red.lock().await?),
            Self::Semaphore(semaphore) => Held::Number(semaphore.acquire().await?),
            Self::Permit(semaphore) => Held::Permit(semaphore.acquire().await?),
        })
    }

    pub async fn try_lock(&self) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock().await?.map(Held::Lock),
            Self::Multi(multi) => multi.try_lock().await?.map(Held::Several),
            Self::Red(red) => red.try_lock().await?.map(Held::Several),
            Self::Semaphore(semaphore) => semaphore.try_acquire().await?.map(Held::Number),
            Self::Permit(semaphore) => semaphore.try_acquire().await?.map(Held::Permit),
        })
    }

    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<Held>, Error> {
        Ok(match self {
            Self::Lock(lock) => lock.try_lock_for(wait).await?.map(Held::Lock),
            Self::Multi(multi) => multi.try_lock_for(wait).await?.map(Held::Several),
            Self::Red(red) => red.try_lock_for(wait).await?.map(Held::Several),
            Self::Semaphore(semaphore) => semaphore.try_acquire_for(wait).await?.map(Held::Number),
            Self::Permit(semaphore) => semaphore.try_acquire_for(wait).await?.map(Held::Permit),
        })
    }

    /// For kinds with a single lock.
    pub fn as_lock(&self) -> &Lock {
        if let Self::Lock(lock) = self { lock } else { panic!("several locks, or a semaphore") }
    }

    /// For kinds with a lease.
    pub fn with_lease(&self, lease: Duration) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.with_lease(lease)),
            Self::Multi(multi) => Self::Multi(multi.with_lease(lease)),
            Self::Red(red) => Self::Red(red.with_lease(lease)),
            Self::Semaphore(_) => panic!("a plain permit has no lease"),
            Self::Permit(semaphore) => Self::Permit(semaphore.with_lease(lease)),
        }
    }

    /// Permits have no owner, so a semaphore stays as it is.
    pub fn with_owner(&self, owner: &Owner) -> Self {
        match self {
            Self::Lock(lock) => Self::Lock(lock.with_owner(owner)),
            Self::Multi(multi) => Self::Multi(multi.with_owner(owner)),
            Self::Red(red) => Self::Red(red.with_owner(owner)),
            Self::Semaphore(_) | Self::Permit(_) => self.clone(),
        }
    }
}

/// A hold of any kind. Dropping it releases it.
#[derive(Debug)]
pub enum Held {
    Lock(LockGuard),
    Several(MultiLockGuard),
    Number(SemaphorePermit),
    Permit(ExpirablePermit),
}

impl Held {
    pub async fn unlock(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Several(guard) => guard.unlock().await,
            Self::Number(permit) => permit.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }

    /// A plain permit is held until it is released.
    pub fn state(&self) -> HoldState {
        match self {
            Self::Lock(guard) => guard.state(),
            Self::Several(guard) => guard.state(),
            Self::Number(_) => HoldState::Held,
            Self::Permit(permit) => permit.state(),
        }
    }

    /// Waits for the end of the hold, which must come.
    pub async fn lost(&self) -> HoldState {
        let lost = async {
            match self {
                Self::Lock(guard) => guard.lost().await,
                Self::Several(guard) => guard.lost().await,
                Self::Number(_) => panic!("a plain permit is not lost"),
                Self::Permit(permit) => permit.lost().await,
            }
        };
        tokio::time::timeout(Duration::from_secs(20), lost).await.expect("the hold ends")
    }

    pub fn deadline(&self) -> Instant {
        match self {
            Self::Lock(guard) => guard.deadline(),
            Self::Several(guard) => guard.deadline(),
            Self::Number(_) => panic!("a plain permit has no lease"),
            Self::Permit(permit) => permit.deadline(),
        }
    }

    /// The owner id in the first record. It is empty where records name no owner.
    pub fn owner(&self) -> &str {
        match self {
            Self::Lock(guard) => guard.owner(),
            Self::Several(guard) => guard.members()[0].owner(),
            Self::Number(_) | Self::Permit(_) => "",
        }
    }

    pub fn token(&self) -> Option<u64> {
        if let Self::Lock(guard) = self { guard.token() } else { None }
    }

    /// The value of [`Kind::holders`] if this is the only hold, with that many levels.
    pub fn alone(&self, levels: u64) -> BTreeMap<String, u64> {
        let mut holders = BTreeMap::new();
        match self {
            Self::Several(guard) => {
                for member in guard.members() {
                    *holders.entry(member.owner().to_owned()).or_default() += levels;
                }
            }
            _ => _ = holders.insert(self.owner().to_owned(), levels),
        }
        holders
    }
}
