//! The libraries, each used as its README shows.

use crate::least;
use metrics_exporter_prometheus::PrometheusBuilder;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};
use redisson_lock::observer::{Acquired, Ended, Observer};
use redisson_lock::{
    BackOff, Client, ExpirablePermit, ExpirableSemaphore, HandOff, Lock, LockGuard, Metrics, Replication,
    Semaphore, SemaphorePermit,
};
use rlock::async_lock::{RLock, RLockGuard};
use rslock::LockManager;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard, broadcast};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::StreamExt;

const LEASE: Duration = Duration::from_secs(30);

/// The scripts of a straightforward lock on a hash: the baseline.
const RAW_ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], ARGV[2])
    return nil
end
return redis.call('pttl', KEYS[1])";
const RAW_RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return nil
end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then
    redis.call('del', KEYS[1])
    redis.call('publish', ARGV[2], 0)
    return 1
end
return 0";
/// A channel of its own, on which no client of Redisson's protocol counts as a waiter.
const OWN_CHANNEL: &str = "raw-unlocked";
/// Redisson's channel for the key of the scenarios with one key, so that Java clients hear of releases.
const SHARED_CHANNEL: &str = "redisson_lock__channel:{bench}";
/// Renews the locks of KEYS for ARGV[1] ms, each if the owner in ARGV holds it. Returns how many owners do.
const RAW_RENEW: &str = "
local held = 0
for i, key in ipairs(KEYS) do
    if redis.call('hexists', key, ARGV[i + 1]) == 1 then
        redis.call('pexpire', key, ARGV[1])
        held = held + 1
    end
end
return held";
/// As many as ours renews at once.
const RENEWED_AT_ONCE: usize = 50;

/// Buckets for the durations of calls and holds, in seconds.
const BUCKETS: [f64; 8] = [0.0001, 0.001, 0.01, 0.1, 0.5, 1.0, 10.0, 60.0];

/// An observer that adds up the durations of calls and holds.
#[derive(Default)]
struct Total {
    calls: AtomicU64,
    holds: AtomicU64,
}

impl Observer for Total {
    fn on_acquired(&self, acquired: &Acquired<'_>) {
        self.calls.fetch_add(acquired.took.as_nanos() as u64, Relaxed);
    }

    fn on_released(&self, hold: &Ended<'_>) {
        self.holds.fetch_add(hold.held.as_nanos() as u64, Relaxed);
    }
}

pub enum Library {
    Ours(Client),
    Raw(Raw),
    Rlock(RLock),
    Rslock(LockManager),
    /// No Redis: the upper bound.
    Tokio(Arc<Mutex<()>>),
}

#[derive(Clone)]
pub struct Raw {
    client: Arc<redis::Client>,
    connection: MultiplexedConnection,
    acquire: Arc<str>,
    release: Arc<str>,
    renew: Arc<str>,
    released: broadcast::Sender<()>,
    channel: &'static str,
    /// Acquires and releases without Lua: the upper bound for a library that does so.
    native: bool,
}

/// The lock of one worker.
pub enum Handle {
    Ours(Lock),
    Semaphore(Semaphore),
    Expirable(ExpirableSemaphore),
    Raw { raw: Raw, key: String, owner: String },
    Rlock { lock: RLock, key: String },
    Rslock { manager: LockManager, key: String },
    Tokio(Arc<Mutex<()>>),
}

pub enum Guard<'a> {
    Ours(LockGuard),
    Semaphore(SemaphorePermit),
    Expirable(ExpirablePermit),
    Raw(&'a Handle),
    Rlock(RLockGuard),
    Rslock(rslock::LockGuard),
    Tokio(#[allow(dead_code)] OwnedMutexGuard<()>),
}

impl Library {
    /// Connects a client that may contend with clients of Redisson.
    pub async fn connect_beside_java(name: &str, url: &str) -> Self {
        match name {
            "raw" => Self::Raw(Raw::connect(url, false, SHARED_CHANNEL).await),
            _ => Self::connect(name, url).await,
        }
    }

    pub async fn connect(name: &str, url: &str) -> Self {
        match name {
            "ours" => Self::Ours(Client::connect(url).await.expect("a server")),
            "pipelined" => {
                let hand_off = HandOff::new().pipelined(true);
                Self::Ours(Client::builder().hand_off(hand_off).connect(url).await.expect("a server"))
            }
            "observed" => Self::observed(Arc::new(Total::default()), url).await,
            "metrics" => {
                // An exporter reads the metrics at intervals, which is not measured.
                let recorder =
                    PrometheusBuilder::new().set_buckets(&BUCKETS).expect("some").install_recorder();
                recorder.expect("the first recorder");
                Self::observed(Arc::new(Metrics::new()), url).await
            }
            // In a cluster without replicas.
            "sharded" | "unsharded" => {
                let builder = Client::builder().replication(Replication::at_least(0));
                let client = builder.sharded_messages(name == "sharded").connect(url).await;
                Self::Ours(client.expect("a cluster"))
            }
            "raw" => Self::Raw(Raw::connect(url, false, OWN_CHANNEL).await),
            "native" => Self::Raw(Raw::connect(url, true, OWN_CHANNEL).await),
            "rlock" => Self::Rlock(RLock::new(url).await.expect("a server")),
            // Retries after up to 200 ms, which is its default.
            "rslock" => Self::Rslock(LockManager::new(vec![url.to_owned()])),
            "tokio" => Self::Tokio(Arc::default()),
            other => panic!("unknown library: {other}"),
        }
    }

    async fn observed(observer: Arc<dyn Observer>, url: &str) -> Self {
        Self::Ours(Client::builder().observer(observer).connect(url).await.expect("a server"))
    }

    /// Hears the messages of releases until it is dropped. A client of redis-rs that waits for locks needs it.
    pub async fn listen(&self) -> JoinSet<()> {
        let mut listening = JoinSet::new();
        if let Self::Raw(raw) = self {
            let mut messages = raw.client.get_async_pubsub().await.expect("a server");
            messages.subscribe(raw.channel).await.expect("a subscription");
            let sender = raw.released.clone();
            listening.spawn(async move {
                let mut messages = messages.into_on_message();
                while messages.next().await.is_some() {
                    let _ = sender.send(());
                }
            });
        }
        listening
    }

    pub fn handle(&self, worker: usize, key: &str) -> Handle {
        match self {
            // Its owner is the worker's task.
            Self::Ours(client) => Handle::Ours(client.lock(key)),
            Self::Raw(raw) => raw.handle(worker, key),
            Self::Rlock(lock) => Handle::Rlock { lock: lock.clone(), key: key.to_owned() },
            Self::Rslock(manager) => Handle::Rslock { manager: manager.clone(), key: key.to_owned() },
            Self::Tokio(mutex) => Handle::Tokio(mutex.clone()),
        }
    }
}

impl Handle {
    /// A lock or semaphore of one kind. A semaphore gets `permits` permits.
    pub async fn of_kind(client: &Client, kind: &str, key: &str, permits: u32) -> Self {
        let lock = match kind {
            "fair" => client.fair_lock(key),
            "fenced" => client.fenced_lock(key),
            "read" => client.read_write_lock(key).read().clone(),
            "write" => client.read_write_lock(key).write().clone(),
            "spin" => client.spin_lock(key, BackOff::new()),
            "value" => client.value_lock(key),
            "semaphore" => {
                let semaphore = client.semaphore(key);
                semaphore.try_set_permits(permits).await.expect("permits");
                return Self::Semaphore(semaphore);
            }
            "expirable" => {
                let semaphore = client.expirable_semaphore(key);
                semaphore.try_set_permits(permits).await.expect("permits");
                return Self::Expirable(semaphore);
            }
            other => panic!("unknown kind: {other}"),
        };
        Self::Ours(lock)
    }
}

impl Raw {
    async fn connect(url: &str, native: bool, channel: &'static str) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&config).await.expect("a server");
        let [acquire, release, renew] = loaded(&mut connection, [RAW_ACQUIRE, RAW_RELEASE, RAW_RENEW]).await;
        let released = broadcast::Sender::new(1024);
        let client = Arc::new(client);
        Self { client, connection, acquire, release, renew, released, channel, native }
    }

    /// The same connection, with the least scripts of a kind.
    pub async fn of_kind(&self, kind: &str) -> Self {
        let [acquire, release] = loaded(&mut self.connection.clone(), least::scripts(kind)).await;
        Self { acquire, release, ..self.clone() }
    }

    pub fn handle(&self, worker: usize, key: &str) -> Handle {
        Handle::Raw { raw: self.clone(), key: key.to_owned(), owner: owner(worker) }
    }

    /// Renews these locks, each with its owner, at each third of the lease for ever: in batches at even intervals.
    pub async fn renew(&self, held: &[(String, String)]) {
        let pause = LEASE / 3 / held.len().div_ceil(RENEWED_AT_ONCE) as u32;
        let mut ticks = tokio::time::interval(pause);
        for batch in held.chunks(RENEWED_AT_ONCE).cycle() {
            ticks.tick().await;
            let (keys, owners): (Vec<&str>, Vec<&str>) =
                batch.iter().map(|(key, owner)| (&**key, &**owner)).unzip();
            let renewed: usize = redis::cmd("EVALSHA")
                .arg(&*self.renew)
                .arg(batch.len())
                .arg(keys)
                .arg(LEASE.as_millis() as u64)
                .arg(owners)
                .query_async(&mut self.connection.clone())
                .await
                .expect("an answer");
            assert_eq!(renewed, batch.len(), "lost a lock");
        }
    }

    /// Takes the lock, or returns for how many ms it is still held.
    pub async fn take(&self, key: &str, owner: &str) -> Option<i64> {
        if self.native {
            let mut restore = redis::cmd("RESTORE");
            restore.arg(key).arg(LEASE.as_millis() as u64).arg(self.payload(owner));
            let taken: Result<(), _> = restore.query_async(&mut self.connection.clone()).await;
            return taken.err().map(|_| LEASE.as_millis() as i64);
        }
        redis::cmd("EVALSHA")
            .arg(&*self.acquire)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(LEASE.as_millis() as u64)
            .query_async(&mut self.connection.clone())
            .await
            .expect("an answer")
    }

    /// Waits for a message, or the end of the lease, until it takes the lock. [`Library::listen`] hears the messages.
    pub async fn lock(&self, key: &str, owner: &str) {
        if self.take(key, owner).await.is_some() {
            let mut released = self.released.subscribe();
            while let Some(left) = self.take(key, owner).await {
                let _ = timeout(Duration::from_millis(left.unsigned_abs()), released.recv()).await;
            }
        }
    }

    pub async fn leave(&self, key: &str, owner: &str) {
        if self.native {
            let mut transaction = redis::pipe();
            transaction.atomic().hdel(key, owner).publish(self.channel, "0");
            let (deleted, _): (u64, u64) =
                transaction.query_async(&mut self.connection.clone()).await.expect("an answer");
            assert_eq!(deleted, 1, "released what was not held");
            return;
        }
        let freed: Option<i64> = redis::cmd("EVALSHA")
            .arg(&*self.release)
            .arg(1)
            .arg(key)
            .arg(owner)
            .arg(self.channel)
            .query_async(&mut self.connection.clone())
            .await
            .expect("an answer");
        assert!(freed.is_some(), "released what was not held");
    }

    /// A hash with one field of value 1, as `DUMP` encodes it.
    fn payload(&self, owner: &str) -> Vec<u8> {
        let mut bytes = vec![4, 1, owner.len() as u8];
        bytes.extend(owner.as_bytes());
        bytes.extend([1, b'1', 6, 0]);
        bytes.extend(crc::Crc::<u64>::new(&crc::CRC_64_REDIS).checksum(&bytes).to_le_bytes());
        bytes
    }
}

/// The owner id of a worker of redis-rs.
pub fn owner(worker: usize) -> String {
    format!("e0c7c3a1-4a9d-4a7b-9a57-0a7cf2a3f001:{worker}")
}

/// The hashes of scripts that the server then has.
async fn loaded<const N: usize>(
    connection: &mut MultiplexedConnection,
    scripts: [impl AsRef<str>; N],
) -> [Arc<str>; N] {
    let mut hashes = [const { String::new() }; N];
    for (hash, script) in hashes.iter_mut().zip(scripts) {
        *hash = Script::new(script.as_ref()).prepare_invoke().load_async(connection).await.expect("a script");
    }
    hashes.map(Into::into)
}

impl Handle {
    pub async fn lock(&self) -> Guard<'_> {
        match self {
            Self::Ours(lock) => Guard::Ours(lock.lock().await.expect("the lock")),
            Self::Semaphore(semaphore) => Guard::Semaphore(semaphore.acquire().await.expect("a permit")),
            Self::Expirable(semaphore) => Guard::Expirable(semaphore.acquire().await.expect("a permit")),
            Self::Raw { raw, key, owner } => {
                raw.lock(key, owner).await;
                Guard::Raw(self)
            }
            Self::Rlock { lock, key } => Guard::Rlock(lock.acquire_mutex(key).await.expect("the lock")),
            Self::Rslock { manager, key } => {
                Guard::Rslock(manager.acquire(key.as_str(), LEASE).await.expect("the lock"))
            }
            Self::Tokio(mutex) => Guard::Tokio(mutex.clone().lock_owned().await),
        }
    }
}

impl Guard<'_> {
    pub async fn unlock(self) {
        match self {
            Self::Ours(guard) => guard.unlock().await.expect("a release"),
            Self::Semaphore(permit) => permit.release().await.expect("a release"),
            Self::Expirable(permit) => permit.release().await.expect("a release"),
            Self::Raw(Handle::Raw { raw, key, owner }) => raw.leave(key, owner).await,
            Self::Raw(_) => unreachable!("made by a raw handle"),
            Self::Rlock(mut guard) => guard.release().await.expect("a release"),
            Self::Rslock(guard) => guard.release().await,
            Self::Tokio(guard) => drop(guard),
        }
    }
}
