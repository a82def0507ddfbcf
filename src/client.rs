//! The client: connects, and makes the handles.

use crate::config::credentials::{Credentials, Source};
use crate::config::options::{BackOff, HandOff, NameMapper, Options, Replication, whole_millis};
use crate::config::tls::Tls;
use crate::connection::permissions;
use crate::connection::{IntoConnectionInfo, Servers};
use crate::engine::session::Session;
use crate::error::Result;
use crate::kinds::kind::LockKind;
use crate::kinds::{Fair, Fenced, Group, Read, Reentrant, Spin, Value, Write};
use crate::latch::CountDownLatch;
use crate::lock::{Lock, ReadWriteLock};
use crate::map_entry::{self, MapEntry};
use crate::owner::entered;
use crate::protocol::keys::{self, GroupKeys, LockKeys};
use crate::runtime::clock::Moment;
use crate::semaphore::{ExpirableSemaphore, Semaphore};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A connection to Redis that takes part in Redisson's locks. Cheap to clone; one a process is enough.
///
/// Its background tasks run on the runtime on which it was connected, and end when the last of its handles and
/// guards is dropped and what they held is given back (where the server can't be reached: when the leases have ended),
/// or with that runtime: then waiters get [`Error::Unavailable`](crate::Error::Unavailable) and
/// holds end with their lease. A client refuses to work in a forked child.
#[derive(Clone, Debug)]
pub struct Client {
    session: Arc<Session>,
}

impl Client {
    /// Connects with the default settings to `redis://[user:password@]host[:port][/database]`,
    /// `redis+unix:///path[?db=n&user=u&pass=p]`, or the master of that name that sentinels watch over:
    /// `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`, where user and password are those of
    /// the master; or a cluster, some of whose nodes are `redis-cluster://[user:password@]host[:port][,host[:port]..]`; or whichever of
    /// several is the master, without sentinels (Redisson's replicated servers, such as ElastiCache's):
    /// `redis-replicated://[user:password@]host[:port][,host[:port]..][/database]`. With `rediss` in the place of `redis`: by TLS.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for a bad URL, [`Error::Unavailable`](crate::Error::Unavailable) or
    /// [`Error::TimedOut`](crate::Error::TimedOut) if there is no server, [`Error::Refused`](crate::Error::Refused) if
    /// it refuses the user, or to run scripts, is a replica (code `READONLY`), or is too old (code `VERSION`),
    /// [`Error::Untrusted`](crate::Error::Untrusted) if TLS fails.
    ///
    /// What may be meant and may not is a warning of [`tracing`]: commands or the channel that the user may not use, a
    /// server that may evict records.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(url: impl AsRef<str>) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Settings for a new client.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { options: Options::default(), id: None }
    }

    /// The reentrant lock of that name, held by the current task: see [`Lock`] for when that is a trap, and
    /// [`mutex`](Self::mutex). No I/O; a bad name is an [`Error::Misuse`](crate::Error::Misuse) of the calls that need it.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(name, |keys| Ok(Reentrant::new(keys)))
    }

    /// The [`lock`](Self::lock) of that name, held by its guard: the lock for services. It has the same record and channel,
    /// so it excludes every `lock` and every Java `RLock` of that name.
    ///
    /// Each acquire has an owner of its own, so it is never a re-entry. It waits behind every other hold, also of the same
    /// task, as [`tokio::sync::Mutex`] does; `try_lock` returns `None` meanwhile. The guard may go to any task.
    /// [`Lock::is_held`] and [`Lock::hold_count`] ask about a task's hold, so they fail with
    /// [`Error::Misuse`](crate::Error::Misuse) here, and so does an acquire after [`Lock::with_owner`].
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// let guard = client.mutex("orders:42").lock().await?;
    /// tokio::spawn(async move {
    ///     // The work, which may outlive the request that began it.
    ///     guard.unlock().await
    /// });
    /// # Ok(()) }
    /// ```
    pub fn mutex(&self, name: impl AsRef<str>) -> Lock {
        self.lock(name).into_mutex()
    }

    /// Redisson's fair lock: whoever came first, of all clients, gets it next. The order is kept in Redis; a waiter that is
    /// gone is passed over ([`ClientBuilder::fair_lock_wait_timeout`]). It can't share its name with a lock of another kind.
    ///
    /// `try_lock` does not stand in line, and takes the lock only if nobody waits.
    pub fn fair_lock(&self, name: impl AsRef<str>) -> Lock {
        let allowance = self.session.options.fair_wait_timeout;
        self.make(name, |keys| Ok(Fair::new(keys, allowance)))
    }

    /// Redisson's fenced lock: a [`lock`](Self::lock) whose guards carry a [token](crate::Holding::token), a number greater
    /// than those of all holds before. A resource that refuses a smaller token than it has seen is safe also from a holder
    /// that does not know yet that it lost the lock.
    ///
    /// The numbers are kept in Redis, by default for ever ([`ClientBuilder::fencing_token_retention`]): where the server loses its
    /// data they begin at 1 again. A re-entry keeps the token of its hold (Redisson's own re-entry raises the number, and its
    /// `getToken()` reads whatever it is by then). An owner who takes it while it holds the plain lock of that name
    /// re-enters a hold without a number.
    pub fn fenced_lock(&self, name: impl AsRef<str>) -> Lock {
        let retention = self.session.options.token_retention;
        self.make(name, |keys| Ok(Fenced::new(keys, retention)))
    }

    /// Redisson's spin lock: the [`lock`](Self::lock)'s record without messages. Who waits looks again after a
    /// [`BackOff`], so that a release costs less and a wait more. Locks of both kinds exclude each other by one name, but a
    /// release of this one wakes nobody.
    pub fn spin_lock(&self, name: impl AsRef<str>, back_off: BackOff) -> Lock {
        self.make(name, |keys| back_off.check().map(|()| Spin::new(keys, back_off)))
    }

    /// Redisson's non-reentrant lock: a [`lock`](Self::lock) that an owner who holds it can't take again:
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock) at once.
    pub fn non_reentrant_lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(name, |keys| Ok(Reentrant::not(keys)))
    }

    /// Redisson's non-reentrant fair lock: a [`fair_lock`](Self::fair_lock) that an owner who holds it can't take again.
    pub fn non_reentrant_fair_lock(&self, name: impl AsRef<str>) -> Lock {
        let allowance = self.session.options.fair_wait_timeout;
        self.make(name, |keys| Ok(Fair::not_reentrant(keys, allowance)))
    }

    /// Redisson's read/write lock: any number of readers, or one writer. It favours nobody: while readers come and go without
    /// a gap, a writer waits.
    pub fn read_write_lock(&self, name: impl AsRef<str>) -> ReadWriteLock {
        let name = name.as_ref();
        ReadWriteLock::new(
            self.make(name, |keys| Ok(Read::new(keys))),
            self.make(name, |keys| Ok(Write::new(keys))),
        )
    }

    /// The classic lock of Redis: a string that `SET name token NX PX lease` makes. It excludes holders that use any library of
    /// that kind, in any language; Redisson has none. It has no owner but its guard; a task that holds it and asks again gets
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock).
    pub fn value_lock(&self, name: impl AsRef<str>) -> Lock {
        self.make(name, |keys| Ok(Value::new(keys)))
    }

    /// Redisson's semaphore. Make it once by [`Semaphore::try_set_permits`].
    pub fn semaphore(&self, name: impl AsRef<str>) -> Semaphore {
        Semaphore::new(self.session.clone(), name.as_ref())
    }

    /// Redisson's semaphore of permits with ids and leases. Make it once by [`ExpirableSemaphore::try_set_permits`].
    pub fn expirable_semaphore(&self, name: impl AsRef<str>) -> ExpirableSemaphore {
        ExpirableSemaphore::new(self.session.clone(), name.as_ref())
    }

    /// Redisson's count-down latch. Make it once by [`CountDownLatch::try_set_count`].
    pub fn count_down_latch(&self, name: impl AsRef<str>) -> CountDownLatch {
        CountDownLatch::new(self.session.clone(), name.as_ref())
    }

    /// Redisson's lock on values of a group, its `getMultiLock(group, values)`: all of them are taken, or none, and owners of other
    /// values of the group do not exclude each other. It can't share its name with a lock of another kind.
    ///
    /// The values are bytes as the Java side's codec makes them: see [`Codec`](crate::Codec).
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
        let values = map_entry::hashes(values);
        self.make(group, |keys| Ok(Group::new(GroupKeys::new(keys, values?, self.session.mark))))
    }

    /// What Redisson keeps for a key of a map. The key is bytes as the Java side's codec makes them: see [`Codec`](crate::Codec).
    pub fn map_entry(&self, map: impl AsRef<str>, key: impl AsRef<[u8]>) -> MapEntry {
        MapEntry::new(self, &self.session.options.map(map.as_ref()), key.as_ref())
    }

    fn make<K: LockKind>(&self, name: impl AsRef<str>, kind: impl FnOnce(LockKeys) -> Result<K>) -> Lock {
        Lock::new(self.session.clone(), name.as_ref(), kind)
    }

    /// The uuid by which this client's holds are known.
    pub fn id(&self) -> Uuid {
        self.session.options.id
    }

    /// Waits for releases that are under way in the background (at most the response timeout, and only inside a tokio
    /// runtime), then stops the client's tasks. Waiters get [`Error::Unavailable`](crate::Error::Unavailable); what is still held is no longer
    /// renewed and ends with its lease.
    ///
    /// # Cancel safety
    /// Dropping the future before it ends leaves the client open, unless waiters of a fair lock were sent away by then: these
    /// leave their places in line, which would hold up others.
    pub async fn close(&self) {
        if entered().is_ok() {
            self.session.wait_for_releases().await;
            if self.session.leave_queues() {
                // From here on there is no way back.
                let _closing = self.session.closing();
                self.session.wait_for_releases().await;
            }
        }
        self.session.close();
    }
}

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    options: Options,
    /// Each client draws its own, unless its user has one for it.
    id: Option<Uuid>,
}

impl ClientBuilder {
    /// The lease of holds that the watchdog renews, every third of it. Redisson's `lockWatchdogTimeout`.
    /// Default 30 s. Fractions of a millisecond are cut off.
    pub fn watchdog_timeout(mut self, lease: Duration) -> Self {
        self.options.lease = whole_millis(lease);
        self
    }

    /// How long an answer is waited for: the limit of every call that does not wait for the lock. Default 3 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = timeout;
        self
    }

    /// How long connecting may take, at first and after a drop. Default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// The pauses between tries to reconnect: the first, and the longest; each is about twice the one before, with a
    /// random part. Default 10 ms and 500 ms. Requests that are harmless to repeat are sent again meanwhile.
    pub fn reconnect_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.options.reconnect_min = first;
        self.options.reconnect_max = longest;
        self
    }

    /// The bounds of the local hand-off. Default [`HandOff::default`].
    pub fn hand_off(mut self, bounds: HandOff) -> Self {
        self.options.hand_off = bounds;
        self
    }

    /// How many replicas must have an acquire before it counts. Default: none where one server is named, and
    /// [`Replication::any`] where another may take its place.
    ///
    /// The check needs the commands `ROLE` and `WAIT`. If the server refuses one of them, [`Replication::any`] goes on without the
    /// check, with one warning; a number of replicas fails at connect as [`Error::Refused`](crate::Error::Refused).
    pub fn replication(mut self, replication: Replication) -> Self {
        self.options.replication = Some(replication);
        self
    }

    /// For how long a waiter for a fair lock that is first in line, and is not heard of, keeps its place once the lock is free.
    /// Redisson's `fairLockWaitTimeout`, and best the same as there. Default 300 s.
    pub fn fair_lock_wait_timeout(mut self, allowance: Duration) -> Self {
        self.options.fair_wait_timeout = allowance;
        self
    }

    /// For how long the last token of a fenced lock is kept after its last acquire by this client; then the numbers begin at
    /// 1 again, so it must be longer than the resource remembers a token. Default: for ever, as Redisson does.
    pub fn fencing_token_retention(mut self, retention: Duration) -> Self {
        self.options.token_retention = Some(retention);
        self
    }

    /// Maps each lock's name to its key before anything else is derived from it. Redisson's `NameMapper`.
    /// Default: unchanged.
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.options.name_mapper = Some(NameMapper(Arc::new(map)));
        self
    }

    /// How servers are known, and this client to them, over TLS (`rediss://`). Default: [`Tls::new`].
    pub fn tls(mut self, tls: Tls) -> Self {
        self.options.tls = Some(tls);
        self
    }

    /// Who this client is to the servers: asked at each connection that is opened, at first and after a drop, so that a password
    /// that changes is followed. In the place of user and password in the URL. Default: those of the URL, if any.
    ///
    /// The callback is called on a thread of the runtime, so it must not block: fetch credentials in advance. A panic in it fails that
    /// attempt to connect: [`Error::Misuse`](crate::Error::Misuse) from [`connect`](Self::connect); after a drop the client tries again.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::{Client, Credentials};
    /// use tokio::sync::watch;
    /// let (token, current) = watch::channel(String::from("the first"));
    /// let client = Client::builder()
    ///     .credentials(move || Credentials::new("app", current.borrow().as_str()))
    ///     .connect("redis://127.0.0.1")
    ///     .await?;
    /// // A task of yours: the connections that are open stay, the next ones have this.
    /// token.send_replace(String::from("the second"));
    /// # Ok(()) }
    /// ```
    pub fn credentials(mut self, provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.options.credentials = Some(Source(Arc::new(provide)));
        self
    }

    /// The credentials for sentinels, as [`credentials`](Self::credentials) are for servers. Default: none, and a sentinel
    /// that asks for a password is [`Error::Refused`](crate::Error::Refused) with the code `NOAUTH`.
    pub fn sentinel_credentials(mut self, provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.options.sentinel_credentials = Some(Source(Arc::new(provide)));
        self
    }

    /// Sends the master's user and password to each sentinel that asks for a password, as Redisson does. Whoever answers at a
    /// sentinel's address can then learn them, so [`sentinel_credentials`](Self::sentinel_credentials) are better where sentinels
    /// have a password of their own. Default: sentinels get nothing of the master's.
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) from connecting where a sentinel is reached over a weaker transport than the master:
    /// the one without TLS and the other with it, or the one without verification.
    pub fn share_credentials_with_sentinels(mut self) -> Self {
        self.options.share_credentials = true;
        self
    }

    /// The uuid by which this client's holds are known. No two clients may share one. Default: a random one.
    pub fn client_id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }

    /// Whether the messages of a cluster are sharded: sent with `SPUBLISH` to the nodes of the lock's slot alone, and not with
    /// `PUBLISH` to each node. All clients of one cluster must do the same, or they don't hear of each other's releases:
    /// it is Redisson's `shardedSubscriptionMode`. Default: sharded where the cluster can (Redis or Valkey 7.0 up), as
    /// Redisson does from 3.22 on, and its setting from 3.29 on. Not used but in a cluster.
    /// Where `true` can't be had, connecting is [`Error::Refused`](crate::Error::Refused) with the code `VERSION`.
    pub fn sharded_messages(mut self, on: bool) -> Self {
        self.options.sharded = Some(on);
        self
    }

    /// Connects. See [`Client::connect`].
    ///
    /// # Errors
    /// As for [`Client::connect`], and [`Error::Misuse`](crate::Error::Misuse) for settings out of range.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client> {
        let servers = Servers::parse(url.as_ref(), &self.options)?;
        self.connect_by(servers).await
    }

    /// Connects to where a [`redis::Client`](crate::redis::Client) of yours does: as the same user, to the same database, by TLS if
    /// it does. The version of the protocol, the timeouts and the socket's settings are this crate's own. That it is to trust any
    /// certificate counts unless [`tls`](Self::tls) says otherwise. A text is read by that crate, which passes over what it does not
    /// know (`?database=3`); [`connect`](Self::connect) does not.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// let yours = redisson_lock::redis::Client::open("redis://127.0.0.1/3")?;
    /// let builder = redisson_lock::Client::builder();
    /// let client = builder.connect_to(yours.get_connection_info().clone()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`connect`](Self::connect), and [`Error::Misuse`](crate::Error::Misuse) where it has certificates: these can't be read
    /// from it, and have to be given by [`tls`](Self::tls).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect_to(self, server: impl IntoConnectionInfo) -> Result<Client> {
        let servers = Servers::one(server, &self.options)?;
        self.connect_by(servers).await
    }

    /// Connects to a cluster by some of its nodes: by those that a `redis::cluster::ClusterClient` was made of, because it does
    /// not tell them itself. User, password and TLS are the same for all nodes, and stand with each of these.
    ///
    /// # Errors
    /// As for [`connect_to`](Self::connect_to).
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect_to_cluster(
        self,
        nodes: impl IntoIterator<Item = impl IntoConnectionInfo>,
    ) -> Result<Client> {
        let servers = Servers::cluster(nodes, &self.options)?;
        self.connect_by(servers).await
    }

    /// Connects to the master that `sentinels` watch over by the name of `service`: what a `redis::sentinel::SentinelClient` was
    /// made of, because it does not tell that itself. `master` says how the master is got into: user, password, database, and
    /// whether by TLS; its host and port are those that the sentinels say. The sentinels' own users and passwords stand with
    /// them, or come from [`sentinel_credentials`](Self::sentinel_credentials). The master is the one that most of the sentinels
    /// that answer name.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), redisson_lock::Error> {
    /// use redisson_lock::Client;
    /// let sentinels = ["redis://:secret@10.0.0.1:26379", "redis://:secret@10.0.0.2:26379"];
    /// let client = Client::builder().connect_by_sentinels(sentinels, "orders", "redis://app:other@master/3").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`connect_to`](Self::connect_to); and [`Error::Misuse`](crate::Error::Misuse) for a master by TLS and sentinels without
    /// it, unless [`Tls::server_name`](crate::Tls::server_name) says for whom the master's certificate is.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect_by_sentinels(
        self,
        sentinels: impl IntoIterator<Item = impl IntoConnectionInfo>,
        service: impl AsRef<str>,
        master: impl IntoConnectionInfo,
    ) -> Result<Client> {
        let servers = Servers::by_sentinels(sentinels, service.as_ref(), master, &self.options)?;
        self.connect_by(servers).await
    }

    async fn connect_by(self, servers: Servers) -> Result<Client> {
        let mut options = self.options;
        options.id = self.id.unwrap_or_else(Uuid::new_v4);
        if servers.fail_over() {
            options.replication.get_or_insert(Replication::any());
        }
        options.check()?;
        entered()?;
        if !options.replication().is_off() {
            // Each hold is to be asked for.
            options.hand_off.max_in_row = 0;
        }
        let (limit, until) = (options.response_timeout, Moment::now() + options.connect_timeout);
        let session = Session::connect(servers, options).await?;
        if let Ok(keys) = session.keys(&keys::nobodys()) {
            permissions::check(&session.connection, &keys, limit.min(until.remaining())).await?;
        }
        Ok(Client { session })
    }
}
