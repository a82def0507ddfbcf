//! Redisson's own configuration file, read into a `ClientBuilder`. Every setting either takes effect, or causes a warning or an
//! error.

mod addresses;
mod credentials;
mod file;
mod security;
mod value;

use self::addresses::{Servers, Transport};
use self::credentials::{ENCRYPTED, ENCRYPTED_OF_SENTINELS, credentials, is_encrypted, merged, of_sentinels};
use self::file::{IGNORED, Section, bad, servers_section, with_variables};
use self::value::MOST_BYTES;
use crate::client::{Client, ClientBuilder};
use crate::config::credentials::Credentials;
use crate::config::options::Replication;
use crate::config::tls::Tls;
use crate::error::Result;
use std::fmt;
use tracing::warn;

/// Redisson's configuration file, in YAML or JSON.
///
/// The file describes a single server, sentinels, a cluster, replicated servers, or a master with slaves. Its settings for servers,
/// credentials, timeouts and locks are honoured. `${NAME}` and `${NAME:-default}` are replaced by environment variables. An unset
/// variable in a value that is used is an error: it may be a system property of Java, which this crate cannot read.
///
/// [`warnings`](Self::warnings) lists the settings that have no effect, such as threads, pools and codecs. Some files need something
/// that only Java can read, such as a key store or a class. [`connect`](Self::connect) then fails unless you provide a replacement
/// with [`tls`](Self::tls), [`name_mapper`](Self::name_mapper) or [`credentials`](Self::credentials).
///
/// Unlike in Redisson, sentinels get the master's password only if you call
/// [`share_credentials_with_sentinels`](Self::share_credentials_with_sentinels).
///
/// An unknown TLS setting is an error, although unknown settings of other kinds are warnings. This applies to names that begin with
/// `ssl`, and to an `sslVerificationMode` other than `STRICT`, `CA_ONLY` and `NONE`. `sslProtocols` and `sslCiphers` limit what the
/// client offers.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use redisson_lock::RedissonConfig;
/// let config = RedissonConfig::parse(&std::fs::read_to_string("redisson.yaml")?)?;
/// let client = config.connect().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "the settings have no effect until `connect`"]
pub struct RedissonConfig {
    scheme: &'static str,
    transport: Transport,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    shares_credentials: bool,
    /// The part of the URL after the scheme.
    location: String,
    builder: ClientBuilder,
    protocols: Option<Vec<String>>,
    cipher_suites: Option<Vec<String>>,
    /// The replacements that the caller must provide, each with a message that says how.
    needs: Vec<(Need, String)>,
    warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Tls,
    NameMapper,
    Credentials,
}

impl RedissonConfig {
    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) if the text
    /// - is neither YAML nor JSON;
    /// - does not name exactly one supported kind of servers;
    /// - has a value of the wrong type, or contradicts itself;
    /// - needs an environment variable that is not set;
    /// - exceeds 1 MiB, 10,000 values or 32 levels, before or after variables and aliases are replaced.
    pub fn parse(text: &str) -> Result<Self> {
        let too_long = || bad(&format!("the file has more than {MOST_BYTES} bytes"));
        if text.len() > MOST_BYTES {
            return Err(too_long());
        }
        let text = with_variables(text, |name| std::env::var(name).ok()).ok_or_else(too_long)?;
        let file = value::read(&text).map_err(|problem| bad(&problem))?;
        let mut whole = Section::new("", &file)?;
        let (mode, mut servers) = servers_section(&mut whole)?;
        let mut config = Self::empty();
        config.topology(mode, &mut servers)?;
        config.locks(&mut whole, mode != "singleServerConfig")?;
        let mut unverified_name = false;
        // Later versions of Redisson accept some of these settings outside the section of the servers.
        for section in [&mut servers, &mut whole] {
            config.access(section)?;
            // As in Java, one of the two places is enough.
            unverified_name |= config.security(section)?;
            config.names(section)?;
            config.warn_of_unused(section)?;
        }
        if config.transport == Transport::Tls {
            let mut tls = config.limited(Tls::new());
            if unverified_name {
                tls = tls.danger_accept_any_server_name();
            }
            config.builder = config.builder.with_tls(tls);
        }
        Ok(config)
    }

    /// Returns the settings that have no effect, and those that weaken security, each with the reason.
    ///
    /// [`connect`](Self::connect) logs them.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Sets the TLS settings, in place of Java's key stores and `sslVerificationMode`.
    ///
    /// The file's `sslProtocols` and `sslCiphers` apply where `tls` does not set its own.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        let tls = self.limited(tls);
        self.builder = self.builder.tls(tls);
        self.provided(Need::Tls)
    }

    /// Sets the name mapper, in place of the class in `nameMapper`.
    ///
    /// The mapper must produce the same keys, or Rust and Java use different locks.
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.builder = self.builder.name_mapper(map);
        self.provided(Need::NameMapper)
    }

    /// Sets the credentials callback, in place of `username` and `password` or of the class in `credentialsResolver`.
    ///
    /// See [`ClientBuilder::credentials`].
    pub fn credentials(mut self, provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        (self.user, self.password) = (None, None);
        self.builder = self.builder.credentials(provide);
        self.provided(Need::Credentials)
    }

    /// Sends the master's user and password to each sentinel that requires a password. Default: off.
    ///
    /// Redisson does so if the file has no `sentinelPassword`. Here this is off by default, because with it on, any process that answers at
    /// a sentinel's address can learn the password. The setting has no effect if the file has a `sentinelPassword`. With a
    /// `sentinelUsername` and no `sentinelPassword`, the client sends that user with the master's password.
    ///
    /// With neither this setting nor a `sentinelPassword`, a sentinel that requires a password fails with
    /// [`Error::Refused`](crate::Error::Refused) and the code `NOAUTH`.
    pub fn share_credentials_with_sentinels(self) -> Self {
        Self { shares_credentials: true, ..self }
    }

    /// Changes further settings of the client.
    pub fn configure(self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self { builder: change(self.builder), ..self }
    }

    /// Connects to the servers that the file describes.
    ///
    /// # Errors
    /// As for [`Client::connect`]; also [`Error::Misuse`](crate::Error::Misuse) if a required replacement was not provided, or if the
    /// file has a `sentinelUsername` without a `sentinelPassword` and
    /// [`share_credentials_with_sentinels`](Self::share_credentials_with_sentinels) was not called.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<Client> {
        if let Some((_, what)) = self.needs.first() {
            return Err(bad(what));
        }
        for warning in &self.warnings {
            warn!(warning, "Redisson's configuration");
        }
        let mut builder = self.builder;
        let shared = self.shares_credentials.then_some(self.password.as_deref());
        match of_sentinels(self.sentinel_user, self.sentinel_password, shared)? {
            Some(credentials) => builder = builder.sentinel_credentials(move || credentials.clone()),
            None if self.shares_credentials => builder = builder.share_credentials_with_sentinels(),
            None => {}
        }
        if let Some(credentials) = credentials(self.user, self.password) {
            builder = builder.credentials(move || credentials.clone());
        }
        builder.connect(format!("{}://{}", self.scheme, self.location)).await
    }

    /// The settings before a file is read.
    fn empty() -> Self {
        Self {
            scheme: "redis",
            transport: Transport::Plain,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            shares_credentials: false,
            location: String::new(),
            builder: Client::builder(),
            protocols: None,
            cipher_suites: None,
            needs: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Reads the addresses from the section of the servers. `mode` is the name of that section.
    fn topology(&mut self, mode: &str, servers: &mut Section<'_>) -> Result<()> {
        match mode {
            "singleServerConfig" => self.single(servers, "address"),
            "masterSlaveServersConfig" => {
                self.single(servers, "masterAddress")?;
                if !servers.texts("slaveAddresses")?.is_empty() {
                    self.builder = self.builder.clone().replication(Replication::any());
                    self.warn(
                        "`slaveAddresses`: ignored; locks do not read from slaves, and the client does not follow a failover to \
                         a slave"
                            .into(),
                    );
                }
                Ok(())
            }
            "sentinelServersConfig" => self.sentinels(servers),
            "clusterServersConfig" => self.cluster(servers),
            _ => self.replicated(servers),
        }
    }

    fn provided(mut self, need: Need) -> Self {
        self.needs.retain(|(other, _)| *other != need);
        self
    }

    fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }

    /// Reads the section of one server.
    fn single(&mut self, section: &mut Section<'_>, key: &str) -> Result<()> {
        let address = section.text(key)?.ok_or_else(|| section.bad(key, "is missing"))?;
        let servers = Servers::read(section, key, &[address])?;
        let hosts = self.servers(section, key, servers, ["redis", "rediss", "redis+unix"])?;
        let database = section.number("database")?.unwrap_or(0);
        self.location = match self.transport {
            Transport::Unix => format!("{hosts}?db={database}"),
            Transport::Plain | Transport::Tls => format!("{hosts}/{database}"),
        };
        Ok(())
    }

    fn sentinels(&mut self, section: &mut Section<'_>) -> Result<()> {
        let key = "sentinelAddresses";
        let addresses = section.texts(key)?;
        let mut sentinels = Servers::read(section, key, &addresses)?;
        // Credentials in these addresses are those of the sentinels.
        let in_address = (sentinels.user.take(), sentinels.password.take());
        let hosts = self.servers(section, key, sentinels, ["redis-sentinel", "rediss-sentinel", ""])?;
        let name = section.text("masterName")?.ok_or_else(|| section.bad("masterName", "is missing"))?;
        let keys = (section.text("sentinelUsername")?, section.text("sentinelPassword")?);
        if keys.1.as_deref().is_some_and(is_encrypted) {
            return Err(section.bad("sentinelPassword", ENCRYPTED_OF_SENTINELS));
        }
        (self.sentinel_user, self.sentinel_password) = merged(in_address, keys).ok_or_else(|| {
            section.bad("sentinelPassword", "contradicts the user or password in the addresses")
        })?;
        section.refuse_nat()?;
        let database = section.number("database")?.unwrap_or(0);
        self.location = format!("{hosts}/{database}#{name}");
        Ok(())
    }

    fn replicated(&mut self, section: &mut Section<'_>) -> Result<()> {
        let key = "nodeAddresses";
        let addresses = section.texts(key)?;
        let nodes = Servers::read(section, key, &addresses)?;
        let hosts = self.servers(section, key, nodes, ["redis-replicated", "rediss-replicated", ""])?;
        section.refuse_nat()?;
        let database = section.number("database")?.unwrap_or(0);
        self.location = format!("{hosts}/{database}");
        Ok(())
    }

    fn cluster(&mut self, section: &mut Section<'_>) -> Result<()> {
        let key = "nodeAddresses";
        let addresses = section.texts(key)?;
        let nodes = Servers::read(section, key, &addresses)?;
        self.location = self.servers(section, key, nodes, ["redis-cluster", "rediss-cluster", ""])?;
        match section.text("shardedSubscriptionMode")?.as_deref() {
            None => self.warn(
                section.name("shardedSubscriptionMode")
                    + ": not set, so messages are sharded if the cluster supports it, as in Redisson since 3.22; if an older \
                       Redisson shares the cluster, call `.configure(|builder| builder.sharded_messages(false))`",
            ),
            Some("AUTO") => {}
            Some(mode @ ("ON" | "OFF")) => {
                self.builder = self.builder.clone().sharded_messages(mode == "ON");
            }
            Some(_) => return Err(section.bad("shardedSubscriptionMode", "must be AUTO, ON or OFF")),
        }
        section.refuse_nat()?;
        match section.number("database")? {
            None | Some(0) => Ok(()),
            Some(_) => Err(section.bad("database", "a cluster has only database 0")),
        }
    }

    /// Returns the hosts. `schemes` are the URL schemes without TLS, with TLS, and for a Unix socket.
    fn servers(
        &mut self,
        section: &Section<'_>,
        key: &str,
        servers: Servers,
        schemes: [&'static str; 3],
    ) -> Result<String> {
        let [plain, tls, unix] = schemes;
        self.transport = servers.transport;
        self.scheme = match servers.transport {
            Transport::Plain => plain,
            Transport::Tls => tls,
            Transport::Unix if unix.is_empty() => {
                return Err(section.bad(key, "a unix socket needs `singleServerConfig`"));
            }
            Transport::Unix => unix,
        };
        if servers.has_suffix {
            self.warn(
                section.name(key)
                    + ": the part after the port is ignored, as in Redisson; set the database with `database`",
            );
        }
        (self.user, self.password) = (servers.user, servers.password);
        Ok(servers.location)
    }

    /// Reads the settings of all locks.
    fn locks(&mut self, section: &mut Section<'_>, replicas: bool) -> Result<()> {
        if let Some(class) = section.class("codec", "Kryo5Codec") {
            self.warn(format!(
                "{} is {}: encode the keys of `Client::map_entry` and the values of `Client::group_lock` with a `Codec` that \
                 produces the same bytes",
                section.name("codec"),
                class.shown()
            ));
        }
        let mut builder = self.builder.clone();
        if let Some(lease) = section.milliseconds("lockWatchdogTimeout")? {
            builder = builder.watchdog_timeout(lease);
        }
        if let Some(allowance) = section.milliseconds("fairLockWaitTimeout")? {
            builder = builder.fair_lock_wait_timeout(allowance);
        }
        let within = section.milliseconds("slavesSyncTimeout")?;
        match section.switch("checkLockSyncedSlaves")? {
            Some(false) => builder = builder.replication(Replication::at_least(0)),
            _ if replicas => {
                let any = Replication::any();
                builder = builder.replication(within.map_or(any, |within| any.within(within)));
            }
            _ => {}
        }
        self.builder = builder;
        Ok(())
    }

    /// Reads the client's credentials and its timeouts.
    fn access(&mut self, section: &mut Section<'_>) -> Result<()> {
        let before = (self.user.take(), self.password.take());
        let keys = (section.text("username")?, section.text("password")?);
        (self.user, self.password) = match section.is_outer() {
            // As in Java, the outer setting wins.
            true => (keys.0.or(before.0), keys.1.or(before.1)),
            false => merged(before, keys).ok_or_else(|| {
                section.bad("password", "contradicts the user or password in the addresses")
            })?,
        };
        if self.password.as_deref().is_some_and(is_encrypted) {
            self.password = None;
            self.needs.push((Need::Credentials, section.name("password") + ": " + ENCRYPTED));
        }
        if let Some(timeout) = section.milliseconds("timeout")? {
            self.builder = self.builder.clone().response_timeout(timeout);
        }
        if let Some(timeout) = section.milliseconds("connectTimeout")? {
            self.builder = self.builder.clone().connect_timeout(timeout);
        }
        if let Some(class) = section.class("credentialsResolver", "DefaultCredentialsResolver") {
            let what = format!(
                "{} is {}: provide its credentials with `RedissonConfig::credentials`",
                section.name("credentialsResolver"),
                class.shown()
            );
            self.needs.push((Need::Credentials, what));
        }
        Ok(())
    }

    /// Reads the settings that map names of locks and commands.
    fn names(&mut self, section: &mut Section<'_>) -> Result<()> {
        if let Some(class) = section.class("commandMapper", "DefaultCommandMapper") {
            let why = format!("is {}: renamed commands are not supported", class.shown());
            return Err(section.bad("commandMapper", &why));
        }
        let Some(class) = section.class("nameMapper", "DefaultNameMapper") else { return Ok(()) };
        let is = format!("{} is {}", section.name("nameMapper"), class.shown());
        let prefix = match class.properties {
            [(name, value)] if name == "prefix" && !value.is_null() => {
                Some(section.text_of("nameMapper", value)?)
            }
            _ => None,
        };
        let builder = self.builder.clone();
        match prefix {
            Some(prefix) if class.is_redissons("PrefixNameMapper") => {
                self.builder = builder.name_mapper(move |name| match name.starts_with(&prefix) {
                    true => name.to_owned(),
                    false => format!("{prefix}{name}"),
                });
            }
            Some(prefix) => {
                self.warn(format!(
                    "{is}: it is assumed to prepend its prefix to every name, even to one that already begins with it, and to do nothing \
                     else; if it does more, provide its mapping with `RedissonConfig::name_mapper`"
                ));
                self.builder = builder.name_mapper(move |name| format!("{prefix}{name}"));
            }
            None => {
                let what = format!("{is}: provide its mapping with `RedissonConfig::name_mapper`");
                self.needs.push((Need::NameMapper, what));
            }
        }
        Ok(())
    }

    /// Warns of the entries that nothing has used.
    fn warn_of_unused(&mut self, section: &mut Section<'_>) -> Result<()> {
        let (known, unknown): (Vec<_>, Vec<_>) =
            section.unused.drain(..).map(|(key, _)| key).partition(|key| IGNORED.contains(key));
        if !known.is_empty() {
            self.warnings.push(format!("settings without effect: {}", known.join(", ")));
        }
        for key in unknown {
            // If it were ignored, the connection would be less safe than the author of the file believes.
            if key.get(..3).is_some_and(|head| head.eq_ignore_ascii_case("ssl")) {
                return Err(section.bad(key, "is an unknown TLS setting"));
            }
            let name = section.name(key);
            self.warnings.push(format!("{name}: unknown setting"));
        }
        Ok(())
    }
}

impl fmt::Debug for RedissonConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query part of a path may contain a password, as in a URL.
        let end = if self.transport == Transport::Unix { self.location.find(['?', '%']) } else { None };
        f.debug_struct("RedissonConfig")
            .field("scheme", &self.scheme)
            .field("location", &&self.location[..end.unwrap_or(self.location.len())])
            .field("needs", &self.needs)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// The property of the fuzz target `configuration`: any `text` is parsed or refused, and never causes a panic. The same holds for a
/// file that contains `text`, and the output about that file does not depend on its passwords.
#[cfg(any(test, fuzzing))]
pub fn read_anything(text: &str) {
    let shown = |text: &str| match RedissonConfig::parse(text) {
        Ok(config) => format!("{config:?} {:?}", config.warnings),
        Err(error @ crate::error::Error::Misuse { .. }) => format!("{error} {error:?}"),
        Err(other) => panic!("{other:?}"),
    };
    shown(text);
    let [one, other] = ["canary", "wombat"].map(|password| {
        shown(&format!(
            "singleServerConfig:\n  address: 'redis://user:{password}@h:1'\n  password: '{password}'\n{text}"
        ))
    });
    assert_eq!(one, other);
}

#[cfg(test)]
mod tests;
