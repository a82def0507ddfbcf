//! [`ClientBuilder`]: the settings of a client, and its connection.

use crate::client::Client;
use crate::config::credentials::{Credentials, Source};
use crate::config::options::{HandOff, NameMapper, Options, Replication, whole_millis};
#[cfg(any(feature = "tls", feature = "redisson-config"))]
use crate::config::tls::Tls;
use crate::connection::{Servers, Topology, permissions};
use crate::engine;
use crate::error::Result;
use crate::observer::Observer;
use crate::owner::{self, entered};
use crate::protocol::keys;
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The settings of a new [`Client`].
///
/// ```no_run
/// # async fn f() -> redisson_lock::Result<()> {
/// let client = redisson_lock::Client::builder()
///     .watchdog_timeout(std::time::Duration::from_secs(60))
///     .response_timeout(std::time::Duration::from_secs(1))
///     .connect("redis://localhost")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the settings have no effect until `connect`"]
pub struct ClientBuilder {
    options: Options,
    /// `None` draws a random id for each client that this builder connects.
    id: Option<Uuid>,
}

impl ClientBuilder {
    pub(super) fn new() -> Self {
        Self { options: Options::default(), id: None }
    }

    /// Sets the lease of holds that the watchdog renews. Default 30 s.
    ///
    /// The watchdog renews a hold each time a third of its lease has passed. Fractions of a millisecond are ignored. Mirrors Redisson's
    /// `lockWatchdogTimeout`.
    pub fn watchdog_timeout(mut self, lease: Duration) -> Self {
        self.options.lease = whole_millis(lease);
        self
    }

    /// Sets how long the client waits for a reply. Default 3 s.
    ///
    /// This limits every call that does not wait for a lock, except `connect` (see [`connect_timeout`](Self::connect_timeout)) and
    /// [`Client::close`], which may take up to three response timeouts.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.options.response_timeout = timeout;
        self
    }

    /// Sets how long the client may take to find its server and to connect, initially and when it reconnects. Default 5 s.
    ///
    /// If a host name has several addresses, they are tried one after the other, and each gets a share of the time that is left to accept
    /// the connection. A server that accepts it and then does not answer hides the other addresses.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Sets the first and the longest pause between attempts to reconnect. Default 10 ms and 500 ms.
    ///
    /// The pause doubles each time, up to `longest`, and a part of it is random. Requests that are safe to repeat are sent again after a
    /// reconnect.
    pub fn reconnect_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.options.reconnect_min = first;
        self.options.reconnect_max = longest;
        self
    }

    /// Adds an observer, which is called when a call waits, a hold begins or ends, and a connection returns. Default none.
    ///
    /// Several observers are called in the order in which they were added. See [`Observer`].
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.options.observers.add(observer);
        self
    }

    /// Sets the bounds of the local hand-off. Default [`HandOff::new`].
    pub fn hand_off(mut self, bounds: HandOff) -> Self {
        self.options.hand_off = bounds;
        self
    }

    /// Sets how many replicas must confirm an acquire before it succeeds.
    ///
    /// Default: no check for a single server, and [`Replication::any`] with sentinels, replicated servers and clusters.
    ///
    /// The check needs the commands `ROLE` and `WAIT`. If the server refuses one of them, [`Replication::any`] continues without the
    /// check and logs one warning. [`Replication::at_least`] fails at connect with [`Error::Refused`](crate::Error::Refused).
    pub fn replication(mut self, replication: Replication) -> Self {
        self.options.replication = Some(replication);
        self
    }

    /// Sets how long the first waiter of a fair lock may ignore the free lock before the waiter is removed from the queue. Default 300 s.
    ///
    /// Mirrors Redisson's `fairLockWaitTimeout`. Use the same value on both sides.
    pub fn fair_lock_wait_timeout(mut self, allowance: Duration) -> Self {
        self.options.fair_wait_timeout = allowance;
        self
    }

    /// Sets how long the last token of a fenced lock is kept after the last acquire by this client. Default: forever, as in Redisson.
    ///
    /// After that time the next token is 1. So the retention must be longer than the time for which the resource remembers a token. It must
    /// be at least as long as the [watchdog timeout](Self::watchdog_timeout).
    pub fn fencing_token_retention(mut self, retention: Duration) -> Self {
        self.options.token_retention = Some(retention);
        self
    }

    /// Sets the function that maps the name of each lock to its key. Default: unchanged.
    ///
    /// The mapping is applied before any other key or channel is derived from the name. Mirrors Redisson's `NameMapper`.
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.options.name_mapper = Some(NameMapper(Arc::new(map)));
        self
    }

    /// Sets how the client and its servers authenticate each other over TLS (`rediss://`). Default [`Tls::new`].
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: Tls) -> Self {
        self.with_tls(tls)
    }

    #[cfg(any(feature = "tls", feature = "redisson-config"))]
    pub(crate) fn with_tls(mut self, tls: Tls) -> Self {
        self.options.tls = Some(tls);
        self
    }

    /// Sets the callback that provides the client's credentials. Default: the user and password of the URL, if any.
    ///
    /// The callback replaces the user and password of the URL. It is called for each new connection, including reconnects, so a changed
    /// password takes effect at the next connection.
    ///
    /// The callback runs on a thread of the runtime, so it must not block; fetch credentials in advance. A panic in the callback fails
    /// that attempt to connect: [`connect`](Self::connect) returns [`Error::Misuse`](crate::Error::Misuse), and a reconnect is tried
    /// again.
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
    /// // In a task of yours: open connections stay open, and new connections use the new token.
    /// token.send_replace(String::from("the second"));
    /// # Ok(()) }
    /// ```
    pub fn credentials(mut self, provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.options.credentials = Some(Source(Arc::new(provide)));
        self
    }

    /// Sets the callback that provides the credentials for sentinels. Default: none.
    ///
    /// The rules of [`credentials`](Self::credentials) apply. Without credentials, a sentinel that requires a password fails with
    /// [`Error::Refused`](crate::Error::Refused) and the code `NOAUTH`.
    pub fn sentinel_credentials(mut self, provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.options.sentinel_credentials = Some(Source(Arc::new(provide)));
        self
    }

    /// Sends the master's user and password to each sentinel that requires a password, as Redisson does. Default: off.
    ///
    /// Any process that answers at a sentinel's address can then learn the password. Prefer
    /// [`sentinel_credentials`](Self::sentinel_credentials) if the sentinels have a password of their own.
    ///
    /// Connecting fails with [`Error::Misuse`](crate::Error::Misuse) if a sentinel's transport is weaker than the master's: without TLS
    /// although the master uses TLS, or unverified although the master is verified.
    pub fn share_credentials_with_sentinels(mut self) -> Self {
        self.options.share_credentials = true;
        self
    }

    /// Registers the client under the name of its application, so that others see who holds a lock. Default: off.
    ///
    /// The client writes a key `redisson-lock:client:<uuid>` with the application, the name of the host, the id of the process and the
    /// time. Then [`Holder::client`](crate::Holder::client) and the command line name it: "orders-service on host-3, pid 4711". The
    /// [name mapper](Self::name_mapper) does not apply to this key. Java ignores it.
    ///
    /// A task renews the key at intervals of half the watchdog timeout, but at most 15 s. The key of a process that died expires after one
    /// watchdog timeout and one to two such intervals. [`Client::close`] deletes it. If it cannot be written, the client logs a warning and
    /// works without it.
    ///
    /// `application` has 1 to 256 bytes and no control character.
    ///
    /// ```no_run
    /// # async fn f() -> redisson_lock::Result<()> {
    /// let client = redisson_lock::Client::builder().register_as("orders-service").connect("redis://127.0.0.1/").await?;
    /// # Ok(()) }
    /// ```
    pub fn register_as(mut self, application: impl AsRef<str>) -> Self {
        self.options.application = Some(application.as_ref().into());
        self
    }

    /// Sets the UUID that identifies this client in owner ids. Default: a random one.
    ///
    /// No two clients may share a UUID. The clients of this library recognise each other by the version of the default, which is 8. Only
    /// then does a crowd at one lock notice clients of other libraries, and compete with them.
    pub fn client_id(mut self, id: Uuid) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets whether the messages of a cluster are sharded.
    ///
    /// Sharded messages are sent with `SPUBLISH` to the nodes of the lock's slot, and not with `PUBLISH` to every node. All clients of
    /// a cluster must use the same mode, or they miss each other's releases. Mirrors Redisson's `shardedSubscriptionMode`.
    ///
    /// Default: sharded if the cluster supports it (Redis or Valkey 7.0 and later). Redisson has chosen automatically since 3.22, and has
    /// had the setting since 3.29. The setting has no effect outside a cluster. If `true` is set and the cluster cannot shard
    /// messages, connecting fails with [`Error::Refused`](crate::Error::Refused) and the code `VERSION`.
    pub fn sharded_messages(mut self, on: bool) -> Self {
        self.options.sharded = Some(on);
        self
    }

    /// Connects to the servers that `url` names. See [`Client::connect`] for the forms of a URL.
    ///
    /// # Errors
    /// As for [`Client::connect`]; also [`Error::Misuse`](crate::Error::Misuse) for settings out of range.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client> {
        self.connect_with(url).await
    }

    /// Connects to `servers`: a URL, or the connection settings of redis-rs (see [`Servers`]).
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn connect_with(self, servers: impl Into<Servers>) -> Result<Client> {
        let (servers, options) = self.checked(servers.into())?;
        let (limit, until) = (options.response_timeout, Moment::now() + options.connect_timeout);
        let session = engine::connect(servers, options).await?;
        let client = Client::new(session);
        if let Ok(keys) = client.keys(keys::probe_key()) {
            permissions::check(&client.session.connection, &keys, limit.min(until.remaining())).await?;
        }
        Ok(client)
    }

    /// Returns a client that connects in the background, so that a program can start while its servers are down.
    ///
    /// Until the client is connected, calls behave as during an outage: `try_lock` fails at once with
    /// [`Error::Unavailable`](crate::Error::Unavailable), whose reason says why the last attempt failed, and `lock` waits. Errors of
    /// [`connect`](Self::connect), such as a wrong password, appear in this reason, too. The permissions of the user are not checked.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for an invalid URL, settings out of range, outside a tokio runtime, and for a cluster without
    /// [`sharded_messages`](Self::sharded_messages), because only a connected cluster reports its mode.
    ///
    /// ```no_run
    /// # async fn f() -> redisson_lock::Result<()> {
    /// let client = redisson_lock::Client::builder().connect_lazy("redis://127.0.0.1/")?;
    /// if !client.is_connected() {
    ///     println!("Redis is away; the service starts without it");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn connect_lazy(self, servers: impl Into<Servers>) -> Result<Client> {
        let (servers, options) = self.checked(servers.into())?;
        Ok(Client::new(engine::start(&servers, options)?))
    }

    /// Checks the servers and the settings, and sets the settings that depend on the servers.
    fn checked(self, servers: Servers) -> Result<(Topology, Options)> {
        let servers = servers.resolve(&self.options)?;
        let mut options = self.options;
        options.id = self.id.unwrap_or_else(owner::new_client_id);
        if servers.can_fail_over() {
            options.replication.get_or_insert(Replication::any());
        }
        options.check()?;
        entered()?;
        if !options.replication().is_off() {
            // A local hand-off skips the check, so each hold needs an acquire of its own.
            options.hand_off.max_in_row = 0;
        }
        Ok((servers, options))
    }
}
