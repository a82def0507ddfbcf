//! [`Client`], which creates the handles, and [`ClientBuilder`], which connects it.

mod builder;
mod locks;
mod servers;
mod watch;

pub use builder::ClientBuilder;
pub use servers::{ServerClock, ServerReport};
pub use watch::Sighting;

use crate::codec;
use crate::config::options::BackOff;
use crate::engine::session::Session;
use crate::error::Result;
use crate::kinds::kind::OwnedKind;
use crate::kinds::{Fair, Fenced, Group, NonReentrant, Read, Reentrant, Spin, Value, Write};
use crate::latch::CountDownLatch;
use crate::lock::{Lock, ReadWriteLock};
use crate::owner::entered;
use crate::protocol::keys::{GroupKeys, LockKeys};
use crate::semaphore::{ExpirableSemaphore, Semaphore};
use crate::stats::Stats;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use uuid::Uuid;

/// A connection to Redis that creates lock handles.
///
/// A client is cheap to clone, and one client per process is enough. Its background tasks run on the tokio runtime on which it connected.
/// The tasks end once all handles and guards of the client are dropped and the releases are sent, or at the latest when the leases end.
/// While the server is unreachable, some requests are retried for longer: the return of permits that no lease returns, a count-down, and
/// (for up to a day) the removal of a waiter from a fair lock's queue. A count-down and the release of a permit of a [`Semaphore`] are
/// given up half an hour after their first send without an answer. [`close`](Self::close) ends all of them, too.
///
/// If the runtime ends first, waiters get [`Error::Closed`](crate::Error::Closed) and holds end with their leases.
/// A client refuses to work in a child process that `fork` made. A child of a raw `clone` is not recognised, and must not use it.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// client.ping().await?;
/// client.lock("report").lock().await?.unlock().await?;
/// client.close().await; // sends what is left to release
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) session: Arc<Session>,
    /// Names are taken as stored in Redis: the name mapper does not apply.
    stored_names: bool,
}

// A panic of a caller leaves nothing half changed: callers only add work to queues, whose mutexes ignore poisoning.
impl UnwindSafe for Client {}
impl RefUnwindSafe for Client {}

impl Client {
    /// Connects to Redis with the default settings.
    ///
    /// The URL names the servers:
    /// - one server: `redis://[user:password@]host[:port][/database]`
    /// - one server at a Unix socket: `redis+unix:///path[?db=n&user=u&pass=p]`
    /// - the master that sentinels monitor under a name:
    ///   `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`
    /// - a cluster, through some of its nodes: `redis-cluster://[user:password@]host[:port][,host[:port]..]`
    /// - the current master among several servers without sentinels (Redisson's replicated servers, such as ElastiCache):
    ///   `redis-replicated://[user:password@]host[:port][,host[:port]..][/database]`
    ///
    /// With `rediss` in place of `redis`, the connection uses TLS. In a sentinel URL, user and password are those of the master.
    ///
    /// Possible misconfigurations are logged as [`tracing`] warnings: commands or channels that the Redis user has no permission for, and a
    /// server that may evict lock records.
    ///
    /// # Errors
    /// - [`Error::Misuse`](crate::Error::Misuse) for an invalid URL, and outside a tokio runtime.
    /// - [`Error::Unavailable`](crate::Error::Unavailable) or [`Error::TimedOut`](crate::Error::TimedOut) if no server answers.
    /// - [`Error::Refused`](crate::Error::Refused) if the server rejects the user or does not let it run scripts, is a replica (code
    ///   `READONLY`), or is too old (code `VERSION`).
    /// - [`Error::Untrusted`](crate::Error::Untrusted) if TLS fails.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::new()
    }

    /// Returns the reentrant lock `name`, owned by the current task.
    ///
    /// Code that joins futures or serves HTTP requests usually needs [`mutex`](Self::mutex) instead: see the documentation of [`Lock`].
    /// This method does no I/O. An invalid name fails with [`Error::Misuse`](crate::Error::Misuse) in the first call that needs the name.
    ///
    /// Mirrors `RedissonClient.getLock`.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(name, |keys| Ok(Reentrant::new(keys)))
    }

    /// Returns the mutex `name`. Each guard is its own owner. Use it in services.
    ///
    /// A mutex uses the same record and channel as [`lock`](Self::lock), so it excludes every `lock` and every Java `RLock` with that
    /// name.
    ///
    /// Each acquire has an owner of its own, so a mutex is never re-entered. As with [`tokio::sync::Mutex`], an acquire waits for every
    /// other hold, including holds of the same task; `try_lock` returns `None` meanwhile. The guard may move to any task. [`Lock::is_held`]
    /// and [`Lock::hold_count`] ask about a task's hold, so on a mutex they fail with [`Error::Misuse`](crate::Error::Misuse). Every call
    /// on the handle that [`Lock::with_owner`] returns fails with the same error.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// let guard = client.mutex("orders:42").lock().await?;
    /// tokio::spawn(async move {
    ///     // The work may outlive the request that started it.
    ///     guard.unlock().await
    /// });
    /// # Ok(()) }
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(name).into_mutex()
    }

    /// Returns the fair lock `name`, which serves waiters of all clients in order of arrival.
    ///
    /// Redis keeps the queue. A waiter that no longer responds is skipped after [`ClientBuilder::fair_lock_wait_timeout`]. `try_lock`
    /// does not join the queue, and succeeds only if no client waits. A fair lock cannot share its name with a lock of another kind.
    ///
    /// Mirrors `RedissonClient.getFairLock`.
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Lock {
        let allowance = self.session.options.fair_wait_timeout;
        self.make(name, |keys| Ok(Fair::new(keys, allowance)))
    }

    /// Returns the fenced lock `name`, whose guards carry a fencing [token](crate::LockGuard::token).
    ///
    /// Each token is greater than the tokens of all earlier holds. A resource that refuses every token smaller than the largest one that it
    /// has seen is protected even from a holder that has not noticed the loss of its lock. A fenced lock uses the record of
    /// [`lock`](Self::lock).
    ///
    /// Redis stores the last token, by default forever (see [`ClientBuilder::fencing_token_retention`]). If the server loses its data,
    /// tokens begin at 1 again. If the owner already holds the [`lock`](Self::lock) of the same name, the acquire is a re-entry, and
    /// `token()` returns `None`.
    ///
    /// Mirrors `RedissonClient.getFencedLock`. A re-entry keeps the token of its hold, whereas Redisson increments the token, and its
    /// `getToken()` returns the latest one.
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> Lock {
        let retention = self.session.options.token_retention;
        self.make(name, |keys| Ok(Fenced::new(keys, retention)))
    }

    /// Returns the spin lock `name`, which sends no messages.
    ///
    /// A release costs less than that of [`lock`](Self::lock), but wakes no waiter of another client. A waiter polls with a [`BackOff`], so
    /// a wait takes longer. A spin lock uses the record of [`lock`](Self::lock), so a spin lock and a `lock` with the same name exclude
    /// each other.
    ///
    /// Mirrors `RedissonClient.getSpinLock`.
    pub fn spin_lock(&self, name: impl AsRef<str>, back_off: BackOff) -> Lock {
        self.make(name, |keys| back_off.check().map(|()| Spin::new(keys, back_off)))
    }

    /// Returns the non-reentrant lock `name`: a [`lock`](Self::lock) that its owner cannot acquire twice.
    ///
    /// A second acquire by the owner fails at once with [`Error::WouldDeadlock`](crate::Error::WouldDeadlock).
    ///
    /// Mirrors `RedissonClient.getNonReentrantLock`.
    pub fn non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(name, |keys| Ok(NonReentrant::new(keys)))
    }

    /// Returns the non-reentrant fair lock `name`: a [`fair_lock`](Self::fair_lock) that its owner cannot acquire twice.
    ///
    /// A second acquire by the owner fails at once with [`Error::WouldDeadlock`](crate::Error::WouldDeadlock).
    ///
    /// Mirrors `RedissonClient.getNonReentrantFairLock`.
    pub fn non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        let allowance = self.session.options.fair_wait_timeout;
        self.make(name, |keys| Ok(Fair::non_reentrant(keys, allowance)))
    }

    /// Returns the read/write lock `name`: any number of readers, or one writer.
    ///
    /// Neither side has preference: an unbroken stream of readers keeps a writer waiting.
    ///
    /// Mirrors `RedissonClient.getReadWriteLock`.
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        let name = name.as_ref();
        ReadWriteLock::new(
            self.make(name, |keys| Ok(Read::new(keys))),
            self.make(name, |keys| Ok(Write::new(keys))),
        )
    }

    /// Returns the value lock `name`: the classic Redis lock, a string that `SET name token NX PX lease` creates.
    ///
    /// It excludes the holders of every library that uses this pattern, in any language. The record is a random token, which
    /// begins with this client's UUID. A task that already holds the lock and acquires it again gets
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock). Redisson has no such lock.
    pub fn value_lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(name, |keys| Ok(Value::new(keys)))
    }

    /// Returns the semaphore `name`. Create it once with [`Semaphore::try_set_permits`].
    ///
    /// Mirrors `RedissonClient.getSemaphore`.
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(self.session.clone(), self.keys(name))
    }

    /// Returns the expirable semaphore `name`, whose permits have ids and leases.
    ///
    /// Create it once with [`ExpirableSemaphore::try_set_permits`].
    ///
    /// Mirrors `RedissonClient.getPermitExpirableSemaphore`.
    pub fn expirable_semaphore(&self, name: impl AsRef<str>) -> ExpirableSemaphore {
        ExpirableSemaphore::new(self.session.clone(), self.keys(name))
    }

    /// Returns the count-down latch `name`. Create it once with [`CountDownLatch::try_set_count`].
    ///
    /// Mirrors `RedissonClient.getCountDownLatch`.
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(self.session.clone(), self.keys(name))
    }

    /// Returns a lock on `values` of a group: it acquires all of them or none.
    ///
    /// Owners of disjoint values of a group do not exclude each other. A group cannot share its name with a lock of another kind.
    /// Pass the values as the bytes that the codec of the Java side produces: see [`Codec`](crate::Codec).
    ///
    /// Mirrors `RedissonClient.getMultiLock(group, values)`.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{Codec, Kryo5};
    /// let accounts = client.group_lock("accounts", ["alice", "bob"].map(|name| Kryo5.encode(name)));
    /// let guard = accounts.lock().await?;
    /// # Ok(()) }
    /// ```
    pub fn group_lock(
        &self,
        group: impl AsRef<str>,
        values: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Lock {
        let values = codec::hashes(values);
        self.make(group, |keys| Ok(Group::new(GroupKeys::new(keys, values?, self.session.instance))))
    }

    fn make<K: OwnedKind>(&self, name: impl AsRef<str>, kind: impl FnOnce(LockKeys) -> Result<K>) -> Lock {
        Lock::new(self.session.clone(), self.keys(name).and_then(kind))
    }

    /// The keys of the lock, semaphore or latch that users know as `name`.
    fn keys(&self, name: impl AsRef<str>) -> Result<LockKeys> {
        keys_of(&self.session, self.mapped(name.as_ref()))
    }

    /// The name in Redis of the object that users know as `name`.
    pub(crate) fn mapped(&self, name: &str) -> String {
        let mapper = self.session.options.name_mapper.as_ref().filter(|_| !self.stored_names);
        mapper.map_or_else(|| name.to_owned(), |mapper| (mapper.0)(name))
    }

    /// Returns this client without its [name mapper](ClientBuilder::name_mapper): it takes names as they are stored in Redis.
    ///
    /// Use it for names that come from Redis, such as those that [`locks`](Self::locks) finds. Both clients share their connection, and
    /// their handles of one stored name are handles of the same lock.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// use tokio_stream::StreamExt;
    /// let stored = client.with_stored_names();
    /// let mut locks = client.locks("orders:*");
    /// while let Some(seen) = locks.next().await {
    ///     let waiters = stored.lock(seen?.name).inspect().await?.waiters;
    ///     println!("{waiters:?}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_stored_names(&self) -> Self {
        Self { session: self.session.clone(), stored_names: true }
    }

    fn new(session: Arc<Session>) -> Self {
        Self { session, stored_names: false }
    }

    /// Returns the UUID that identifies this client in owner ids.
    pub fn id(&self) -> Uuid {
        self.session.options.id
    }

    /// Returns whether the client is connected to its server, or to every known master of its cluster. Does no I/O.
    ///
    /// The client notices a dropped connection at once. It notices a silent server after at most one second plus the response timeout.
    pub fn is_connected(&self) -> bool {
        !self.session.is_closed() && self.session.connection.is_connected()
    }

    /// Returns what the client did so far, as numbers. Does no I/O.
    ///
    /// ```no_run
    /// # fn f(client: redisson_lock::Client) {
    /// println!("{} locks held, {} calls wait", client.stats().held, client.stats().waiting);
    /// # }
    /// ```
    pub fn stats(&self) -> Stats {
        self.session.counters.snapshot()
    }

    /// Waits for the server, or every known master of the cluster, to answer a `PING`.
    ///
    /// # Errors
    /// - [`Error::Unavailable`](crate::Error::Unavailable) at once if the client is not connected to one of them.
    /// - [`Error::TimedOut`](crate::Error::TimedOut) if there is no answer within the response timeout.
    /// - [`Error::Closed`](crate::Error::Closed) if the client is closed.
    /// - [`Error::Misuse`](crate::Error::Misuse) outside a tokio runtime, and in a forked child process.
    ///
    /// # Cancel safety
    /// Cancel safe: the call changes nothing.
    pub async fn ping(&self) -> Result<()> {
        self.session.check_readable()?;
        self.session.connection.ping().await
    }

    /// Waits for pending releases, and then closes the client.
    ///
    /// `close` takes at most the response timeout, or twice that if waiters of a fair lock must leave their queue, and once more if the
    /// client is [registered](ClientBuilder::register_as). Outside a tokio runtime the client closes without waiting. Waiters get
    /// [`Error::Closed`](crate::Error::Closed). Remaining holds are no longer renewed and end with their leases.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the client open. Exception: once waiters of a fair lock have been removed from their queue, or the
    /// registration of the client is being deleted, the client closes even if the future is dropped.
    pub async fn close(&self) {
        if entered().is_ok() {
            self.session.wait_for_releases().await;
            if self.session.remove_queued_waiters() {
                // The waiters are gone from the queue, so the client must close even if this future is dropped.
                let _closing = self.session.closing();
                self.session.wait_for_releases().await;
            }
            let _closing = self.session.closing();
            self.session.unregister().await;
        }
        self.session.close();
    }
}

/// The keys of the object that Redis knows as `name`.
fn keys_of(session: &Session, name: String) -> Result<LockKeys> {
    let keys = LockKeys::new(name)?;
    if session.connection.is_cluster() { keys.in_cluster() } else { Ok(keys) }
}
