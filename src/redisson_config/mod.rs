//! Redisson's own configuration file: what it says of servers and locks, for a client here. Nothing of it is passed over in
//! silence.

mod addresses;
mod file;
mod security;
mod value;

use self::addresses::{Servers, Way};
use self::file::{OF_NO_MEANING, Section, bad, with_variables};
use self::value::MOST_BYTES;
use crate::client::{Client, ClientBuilder};
use crate::config::credentials::Credentials;
use crate::config::options::Replication;
use crate::config::tls::Tls;
use crate::error::Result;
use std::fmt;
use tracing::warn;

/// The kinds of servers.
const MODES: [&str; 6] = [
    "singleServerConfig",
    "sentinelServersConfig",
    "clusterServersConfig",
    "masterSlaveServersConfig",
    "replicatedServersConfig",
    // By its older name.
    "elasticacheServersConfig",
];

/// Redisson's configuration file, YAML or JSON, for one server, sentinels, a cluster, replicated servers, or a master with
/// slaves. What it says about servers, credentials, timeouts and locks counts here as there; `${NAME}` and
/// `${NAME:-default}` stand for variables of the environment. (Java's system properties are not known here: a value that is
/// needed and has a variable that is not set is an error.)
///
/// What is of no meaning here (threads, pools, codecs) is named by [`warnings`](Self::warnings). What would be needed and can't
/// be taken from the file, because it is Java's own (a key store, a class), is an error of [`connect`](Self::connect) unless it is
/// given by [`tls`](Self::tls), [`name_mapper`](Self::name_mapper) or [`credentials`](Self::credentials).
///
/// A setting of TLS that is not understood is an error, also where an unknown setting of another kind is a warning: an
/// `sslVerificationMode` other than `STRICT`, `CA_ONLY` and `NONE`, and an unknown name that begins with `ssl`. `sslProtocols` and
/// `sslCiphers` limit what the client offers.
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
pub struct RedissonConfig {
    scheme: &'static str,
    way: Way,
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    /// What stands behind the scheme in the URL.
    place: String,
    builder: ClientBuilder,
    protocols: Option<Vec<String>>,
    cipher_suites: Option<Vec<String>>,
    /// What the user has to say, each with how.
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
    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) where it is neither YAML nor JSON, names no servers or a kind of them that is not supported, has a value
    /// of the wrong type, has something twice in two ways, or needs a variable that is not set; and where it has more than 1 MiB,
    /// 10,000 values or 32 levels, each with its variables and aliases replaced.
    pub fn parse(text: &str) -> Result<Self> {
        let too_long = || bad(&format!("it has more than {MOST_BYTES} bytes"));
        if text.len() > MOST_BYTES {
            return Err(too_long());
        }
        let text = with_variables(text, |name| std::env::var(name).ok()).ok_or_else(too_long)?;
        let file = value::read(&text).map_err(|problem| bad(&problem))?;
        let mut whole = Section::new("", &file)?;
        let mut config = Self {
            scheme: "redis",
            way: Way::Plain,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            place: String::new(),
            builder: Client::builder(),
            protocols: None,
            cipher_suites: None,
            needs: Vec::new(),
            warnings: Vec::new(),
        };
        let mut named = Vec::new();
        for mode in MODES {
            if let Some(value) = whole.take(mode) {
                named.push((mode, Section::new(mode, value)?));
            }
        }
        let [(mode, mut servers)] = <[_; 1]>::try_from(named).map_err(|named| {
            bad(&format!(
                "names {} kinds of servers, and must name one: {}. (Of an application.yml of Spring's it is the text in it that is \
                 handed over, not the whole.)",
                named.len(),
                MODES[..5].join(", ")
            ))
        })?;
        match mode {
            "singleServerConfig" => config.single(&mut servers, "address")?,
            "masterSlaveServersConfig" => {
                config.single(&mut servers, "masterAddress")?;
                if !servers.texts("slaveAddresses")?.is_empty() {
                    config.builder = config.builder.replication(Replication::any());
                    config.warn(
                        "`slaveAddresses`: nothing is read there, and none of them is followed as a master"
                            .into(),
                    );
                }
            }
            "sentinelServersConfig" => config.sentinels(&mut servers)?,
            "clusterServersConfig" => config.cluster(&mut servers)?,
            _ => config.replicated(&mut servers)?,
        }
        config.locks(&mut whole, mode != "singleServerConfig")?;
        let mut unverified_name = false;
        // In later versions of Redisson some of that stands outside of the servers' part.
        for section in [&mut servers, &mut whole] {
            config.access(section)?;
            // As in Java, either place is enough.
            unverified_name |= config.security(section)?;
            config.names(section)?;
            config.rest(section)?;
        }
        if config.way == Way::Tls {
            let mut tls = config.limited(Tls::new());
            if unverified_name {
                tls = tls.danger_accept_any_server_name();
            }
            config.builder = config.builder.tls(tls);
        }
        Ok(config)
    }

    /// What of the file is not used, and what makes the connection less safe, each with the reason. [`connect`](Self::connect) logs
    /// them.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// In the place of Java's key stores and of `sslVerificationMode`. The file's `sslProtocols` and `sslCiphers` count where `tls`
    /// has none.
    pub fn tls(mut self, tls: Tls) -> Self {
        let tls = self.limited(tls);
        self.builder = self.builder.tls(tls);
        self.without(Need::Tls)
    }

    /// In the place of the class that `nameMapper` names. It must lead to the same keys, or the locks are others.
    pub fn name_mapper(mut self, map: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        self.builder = self.builder.name_mapper(map);
        self.without(Need::NameMapper)
    }

    /// In the place of `username` and `password`, or of the class that `credentialsResolver` names: see
    /// [`ClientBuilder::credentials`].
    pub fn credentials(mut self, provide: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        (self.user, self.password) = (None, None);
        self.builder = self.builder.credentials(provide);
        self.without(Need::Credentials)
    }

    /// Changes further settings.
    pub fn configure(self, change: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self { builder: change(self.builder), ..self }
    }

    /// Connects.
    ///
    /// # Errors
    /// As for [`Client::connect`]; and [`Error::Misuse`](crate::Error::Misuse) where something is needed that is not in the file.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn connect(self) -> Result<Client> {
        if let Some((_, what)) = self.needs.first() {
            return Err(bad(what));
        }
        for warning in &self.warnings {
            warn!(warning, "Redisson's configuration");
        }
        let mut builder = self.builder;
        // A user's name alone goes with the master's password.
        let of_sentinels =
            self.sentinel_password.or_else(|| self.sentinel_user.as_ref().and(self.password.clone()));
        match credentials(self.sentinel_user, of_sentinels) {
            Some(credentials) => builder = builder.sentinel_credentials(move || credentials.clone()),
            // A file without a password for sentinels means the master's, which goes to those that ask for one.
            None => builder = builder.share_credentials_with_sentinels(),
        }
        if let Some(credentials) = credentials(self.user, self.password) {
            builder = builder.credentials(move || credentials.clone());
        }
        builder.connect(format!("{}://{}", self.scheme, self.place)).await
    }

    fn without(mut self, need: Need) -> Self {
        self.needs.retain(|(other, _)| *other != need);
        self
    }

    fn warn(&mut self, what: String) {
        self.warnings.push(what);
    }

    /// One server.
    fn single(&mut self, section: &mut Section<'_>, key: &str) -> Result<()> {
        let address = section.text(key)?.ok_or_else(|| section.bad(key, "is missing"))?;
        let servers = Servers::read(section, key, &[address])?;
        let hosts = self.servers(section, key, servers, ["redis", "rediss", "redis+unix"])?;
        let database = section.number("database")?.unwrap_or(0);
        self.place = match self.way {
            Way::Unix => format!("{hosts}?db={database}"),
            Way::Plain | Way::Tls => format!("{hosts}/{database}"),
        };
        Ok(())
    }

    fn sentinels(&mut self, section: &mut Section<'_>) -> Result<()> {
        let key = "sentinelAddresses";
        let addresses = section.texts(key)?;
        let mut sentinels = Servers::read(section, key, &addresses)?;
        // What stands there is the sentinels' own.
        let in_address = (sentinels.user.take(), sentinels.password.take());
        let hosts = self.servers(section, key, sentinels, ["redis-sentinel", "rediss-sentinel", ""])?;
        let name = section.text("masterName")?.ok_or_else(|| section.bad("masterName", "is missing"))?;
        let keys = (section.text("sentinelUsername")?, section.text("sentinelPassword")?);
        if keys.1.as_deref().is_some_and(is_encrypted) {
            return Err(section.bad("sentinelPassword", ENCRYPTED));
        }
        (self.sentinel_user, self.sentinel_password) = agreed(in_address, keys)
            .ok_or_else(|| section.bad("sentinelPassword", "the addresses say something else"))?;
        section.no_nat()?;
        let database = section.number("database")?.unwrap_or(0);
        self.place = format!("{hosts}/{database}#{name}");
        Ok(())
    }

    fn replicated(&mut self, section: &mut Section<'_>) -> Result<()> {
        let key = "nodeAddresses";
        let addresses = section.texts(key)?;
        let nodes = Servers::read(section, key, &addresses)?;
        let hosts = self.servers(section, key, nodes, ["redis-replicated", "rediss-replicated", ""])?;
        section.no_nat()?;
        let database = section.number("database")?.unwrap_or(0);
        self.place = format!("{hosts}/{database}");
        Ok(())
    }

    fn cluster(&mut self, section: &mut Section<'_>) -> Result<()> {
        let key = "nodeAddresses";
        let addresses = section.texts(key)?;
        let nodes = Servers::read(section, key, &addresses)?;
        self.place = self.servers(section, key, nodes, ["redis-cluster", "rediss-cluster", ""])?;
        match section.text("shardedSubscriptionMode")?.as_deref() {
            None => self.warn(
                section.name("shardedSubscriptionMode")
                    + ": is not said, so messages are sharded where the cluster can, as Redisson has it from 3.22 on; beside an \
                       older one `.configure(|builder| builder.sharded_messages(false))`",
            ),
            Some("AUTO") => {}
            Some(mode @ ("ON" | "OFF")) => {
                self.builder = self.builder.clone().sharded_messages(mode == "ON");
            }
            Some(_) => return Err(section.bad("shardedSubscriptionMode", "is AUTO, ON or OFF")),
        }
        section.no_nat()?;
        match section.number("database")? {
            None | Some(0) => Ok(()),
            Some(_) => Err(section.bad("database", "a cluster has no other than 0 here")),
        }
    }

    /// Where they are; `schemes` without TLS, with it, and for a unix socket.
    fn servers(
        &mut self,
        section: &Section<'_>,
        key: &str,
        servers: Servers,
        schemes: [&'static str; 3],
    ) -> Result<String> {
        let [plain, tls, unix] = schemes;
        self.way = servers.way;
        self.scheme = match servers.way {
            Way::Plain => plain,
            Way::Tls => tls,
            Way::Unix if unix.is_empty() => {
                return Err(section.bad(key, "a unix socket has one server: `singleServerConfig`"));
            }
            Way::Unix => unix,
        };
        if servers.more {
            self.warn(
                section.name(key)
                    + ": what stands behind the port is dropped, as Redisson does; the database is `database`",
            );
        }
        (self.user, self.password) = (servers.user, servers.password);
        Ok(servers.place)
    }

    /// What goes for all locks.
    fn locks(&mut self, section: &mut Section<'_>, replicas: bool) -> Result<()> {
        if let Some(class) = section.class("codec", "Kryo5Codec") {
            self.warn(format!(
                "{} is {}: keys of maps and values of groups (`Client::map_entry`, `Client::group_lock`) have to be given as \
                 it encodes them, by a `Codec` that does the same",
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

    /// Who the client is, and how long it waits for its servers.
    fn access(&mut self, section: &mut Section<'_>) -> Result<()> {
        let before = (self.user.take(), self.password.take());
        let keys = (section.text("username")?, section.text("password")?);
        (self.user, self.password) = match section.is_outer() {
            // As in Java.
            true => (keys.0.or(before.0), keys.1.or(before.1)),
            false => agreed(before, keys)
                .ok_or_else(|| section.bad("password", "the addresses say something else"))?,
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
                "{} is {}: give what it says by `RedissonConfig::credentials`",
                section.name("credentialsResolver"),
                class.shown()
            );
            self.needs.push((Need::Credentials, what));
        }
        Ok(())
    }

    /// What a name becomes in Redis.
    fn names(&mut self, section: &mut Section<'_>) -> Result<()> {
        if let Some(class) = section.class("commandMapper", "DefaultCommandMapper") {
            let why = format!("is {}: commands that have other names are not supported", class.shown());
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
                    "{is}: taken for one that puts its prefix before every name, also before one that begins with it already, and \
                     does nothing else; give what it does by `RedissonConfig::name_mapper` if that is not so"
                ));
                self.builder = builder.name_mapper(move |name| format!("{prefix}{name}"));
            }
            None => {
                let what = format!("{is}: give what it does by `RedissonConfig::name_mapper`");
                self.needs.push((Need::NameMapper, what));
            }
        }
        Ok(())
    }

    /// What nobody has asked for.
    fn rest(&mut self, section: &mut Section<'_>) -> Result<()> {
        let (known, unknown): (Vec<_>, Vec<_>) =
            section.left.drain(..).map(|(key, _)| key).partition(|key| OF_NO_MEANING.contains(key));
        if !known.is_empty() {
            self.warnings.push(format!("of no meaning here: {}", known.join(", ")));
        }
        for key in unknown {
            // The connection would be less safe than whoever wrote it believes.
            if key.get(..3).is_some_and(|head| head.eq_ignore_ascii_case("ssl")) {
                return Err(section.bad(key, "is no setting of TLS that is known here"));
            }
            let name = section.name(key);
            self.warnings.push(format!("{name}: unknown"));
        }
        Ok(())
    }
}

const ENCRYPTED: &str = "is encrypted as Redisson PRO does it, which is not known here: \
                         give it by `RedissonConfig::credentials`, that of sentinels in the clear";

fn is_encrypted(password: &str) -> bool {
    password.starts_with("{aes}")
}

/// User and password by what two places say, if they do not say different things.
fn agreed(
    one: (Option<String>, Option<String>),
    other: (Option<String>, Option<String>),
) -> Option<(Option<String>, Option<String>)> {
    let both = |one: Option<String>, other: Option<String>| match (one, other) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => Some(one.or(other)),
    };
    Some((both(one.0, other.0)?, both(one.1, other.1)?))
}

/// As Redisson takes them: none without a password.
fn credentials(user: Option<String>, password: Option<String>) -> Option<Credentials> {
    let password = password.filter(|password| !password.is_empty())?;
    Some(match user.filter(|user| !user.is_empty()) {
        Some(user) => Credentials::new(user, password),
        None => Credentials::password(password),
    })
}

impl fmt::Debug for RedissonConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Behind the question mark of a path somebody may have written a password as in a URL.
        let end = if self.way == Way::Unix { self.place.find(['?', '%']) } else { None };
        f.debug_struct("RedissonConfig")
            .field("scheme", &self.scheme)
            .field("place", &&self.place[..end.unwrap_or(self.place.len())])
            .field("needs", &self.needs)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

/// For the fuzz target `configuration`: `text` is understood or refused, never a panic; and so is a file of which it is a part,
/// of which what is shown is the same whatever its passwords are.
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
mod tests {
    use super::*;
    use crate::error::Error;
    use proptest::strategy::Strategy;

    fn parsed(text: &str) -> RedissonConfig {
        RedissonConfig::parse(text).unwrap()
    }

    fn misuse(text: &str) -> String {
        match RedissonConfig::parse(text) {
            Err(Error::Misuse { message }) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_kind_of_servers_is_a_url() {
        let cases = [
            (
                "singleServerConfig: {address: 'redis://127.0.0.1:6379', database: 3}",
                "redis",
                "127.0.0.1:6379/3",
            ),
            (
                "sentinelServersConfig:\n  sentinelAddresses:\n    - redis://a:26379\n    - b:26380\n  masterName: orders",
                "redis-sentinel",
                "a:26379,b:26380/0#orders",
            ),
            (
                r#"{"clusterServersConfig": {"nodeAddresses": ["rediss://a:6379", "rediss://b:6379/"]}}"#,
                "rediss-cluster",
                "a:6379,b:6379",
            ),
            ("singleServerConfig: {address: 'redis+uds:///a b', database: 3}", "redis+unix", "/a%20b?db=3"),
            (
                "masterSlaveServersConfig: {masterAddress: 'redis://m:1', slaveAddresses: ['redis://s:1']}",
                "redis",
                "m:1/0",
            ),
            (
                "replicatedServersConfig: {nodeAddresses: ['rediss://a:1', 'rediss://b:1'], database: 2}",
                "rediss-replicated",
                "a:1,b:1/2",
            ),
        ];
        for (text, scheme, place) in cases {
            let config = parsed(text);
            assert_eq!((config.scheme, config.place.as_str()), (scheme, place), "{text}");
        }
    }

    #[test]
    fn what_is_said_of_locks_and_of_access_counts() {
        let config = parsed(
            "lockWatchdogTimeout: 20000\nfairLockWaitTimeout: 5000\nslavesSyncTimeout: 700\n\
             username: outer\nclusterServersConfig:\n  nodeAddresses: [a:1]\n  password: 'p@ss/1'\n  timeout: 1500\n  \
             connectTimeout: 2500\n  shardedSubscriptionMode: OFF\n",
        );
        let told = format!("{:?}", config.builder);
        for expected in ["20s", "5s", "1.5s", "2.5s", "Some(false)", "700ms", "at_least: None"] {
            assert!(told.contains(expected), "{expected}: {told}");
        }
        assert_eq!((config.user.as_deref(), config.password.as_deref()), (Some("outer"), Some("p@ss/1")));
        assert!(!format!("{config:?} {told}").contains("p@ss"));
        let twice =
            parsed("password: outer\nsingleServerConfig: {address: 'redis://inner@a:1', password: inner}");
        assert_eq!(twice.password.as_deref(), Some("outer"));
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        let off = parsed("checkLockSyncedSlaves: false\nclusterServersConfig: {nodeAddresses: [a:1]}");
        assert!(format!("{:?}", off.builder).contains("at_least: Some(0)"));
    }

    #[test]
    fn nothing_is_passed_over_in_silence() {
        let config = parsed(
            "threads: 16\ncodec: !<org.redisson.codec.Kryo5Codec> {}\nsingleServerConfig: {address: a, pool: 1}",
        );
        assert_eq!(config.warnings, ["`singleServerConfig.pool`: unknown", "of no meaning here: threads"]);
    }

    #[track_caller]
    fn warns(text: &str, expected: &[&str]) {
        let warnings = parsed(text).warnings;
        assert_eq!(warnings.len(), expected.len(), "{text}: {warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.contains(expected), "{text}: {warning}");
        }
    }

    #[test]
    fn what_is_another_here_is_a_warning() {
        warns(
            "codec: !<org.redisson.codec.JsonJacksonCodec> {}\nsingleServerConfig: {address: a}",
            &["JsonJacksonCodec"],
        );
        warns("codec: !<com.acme.Kryo5Codec> {}\nsingleServerConfig: {address: a}", &["com.acme.Kryo5Codec"]);
        warns("clusterServersConfig: {nodeAddresses: [a]}", &["sharded_messages(false)"]);
        warns("clusterServersConfig: {nodeAddresses: [a], shardedSubscriptionMode: AUTO}", &[]);
        warns("singleServerConfig: {address: 'redis://a:1/3'}", &["`database`"]);
        // Of no meaning to Redisson either.
        for setting in
            ["sslTruststore: 'file:/trust.jks'", "sslVerificationMode: NONE", "sslKeystore: 'file:/k'"]
        {
            let key = setting.split(':').next().unwrap();
            let text = format!("singleServerConfig: {{address: 'redis://a:1', {setting}}}");
            warns(&text, &[key]);
            assert_eq!(parsed(&text).needs, []);
        }
    }

    fn needs(text: &str) -> Vec<Need> {
        parsed(text).needs.into_iter().map(|(need, _)| need).collect()
    }

    fn with(line: &str) -> String {
        format!("singleServerConfig:\n  address: rediss://a\n  {line}\n")
    }

    #[test]
    fn what_is_javas_is_asked_for() {
        for (line, expected) in [
            ("sslTruststore: file:/trust.jks", vec![Need::Tls]),
            ("credentialsResolver: !<com.example.Vault> {}", vec![Need::Credentials]),
            ("credentialsResolver: !<org.redisson.config.DefaultCredentialsResolver> {}", vec![]),
            ("password: '{aes}abcd'", vec![Need::Credentials]),
            ("nameMapper: !<com.example.Mapper> {}", vec![Need::NameMapper]),
            ("nameMapper: !<com.example.DefaultNameMapper> {}", vec![Need::NameMapper]),
            ("nameMapper: !<org.redisson.api.DefaultNameMapper> {}", vec![]),
            ("nameMapper: null", vec![]),
        ] {
            assert_eq!(needs(&with(line)), expected, "{line}");
        }
        let given = parsed(&with("nameMapper: !<com.example.Mapper> {}")).name_mapper(str::to_owned);
        assert!(given.needs.is_empty());
        let json = r#"{"singleServerConfig":{"address":"a","nameMapper":{"class":"com.example.Mapper"}}}"#;
        assert_eq!(needs(json), [Need::NameMapper]);
    }

    /// The sections have the same names in them: each counts for itself.
    #[test]
    fn a_class_is_that_of_its_own_section() {
        for (key, default, need) in [
            ("nameMapper", "org.redisson.config.DefaultNameMapper", Need::NameMapper),
            ("credentialsResolver", "org.redisson.config.DefaultCredentialsResolver", Need::Credentials),
        ] {
            let both = |inner: &str, outer: &str| {
                format!(
                    "singleServerConfig:\n  address: a\n  {key}: !<{inner}> {{}}\n{key}: !<{outer}> {{}}\n"
                )
            };
            assert_eq!(needs(&both(default, "com.acme.X")), [need]);
            assert_eq!(needs(&both("com.acme.X", default)), [need]);
            assert_eq!(needs(&both(default, default)), []);
        }
        let text = "singleServerConfig:\n  address: a\n  commandMapper: !<org.redisson.config.DefaultCommandMapper> {}\n\
                    commandMapper: !<com.acme.X> {}\n";
        assert!(misuse(text).contains("com.acme.X"));
    }

    #[test]
    fn a_mapper_that_is_made_of_a_prefix_is_understood() {
        let own = parsed(&with("nameMapper: !<org.redisson.config.PrefixNameMapper> {prefix: 'app:'}"));
        assert!(own.needs.is_empty() && own.warnings.is_empty(), "{own:?}");
        let theirs = parsed(&with("nameMapper: !<com.example.Prefix> {prefix: 'app:'}"));
        assert!(theirs.needs.is_empty());
        let warning = &theirs.warnings[0];
        for word in ["com.example.Prefix", "begins with it", "RedissonConfig::name_mapper"] {
            assert!(warning.contains(word), "{warning}");
        }
        for unknown in [
            "com.example.Prefix> {prefix: 'app:', suffix: x}",
            "org.redisson.config.PrefixNameMapper> {}",
            "org.redisson.config.PrefixNameMapper> {prefix: null}",
        ] {
            assert_eq!(needs(&with(&format!("nameMapper: !<{unknown}"))), [Need::NameMapper], "{unknown}");
        }
    }

    #[test]
    fn names_of_servers_are_verified_as_far_as_the_file_says() {
        let any_name = |config: &RedissonConfig| {
            format!("{:?}", config.builder).contains("danger_accept_any_server_name: true")
        };
        for (line, expected) in [
            ("sslVerificationMode: STRICT", None),
            ("sslVerificationMode: null", None),
            ("sslVerificationMode: CA_ONLY", Some("sslVerificationMode")),
            ("sslVerificationMode: NONE", Some("sslVerificationMode")),
            ("sslEnableEndpointIdentification: true", None),
            ("sslEnableEndpointIdentification: false", Some("sslEnableEndpointIdentification")),
        ] {
            let config = parsed(&with(line));
            assert_eq!(any_name(&config), expected.is_some(), "{line}");
            assert_eq!(config.warnings.len(), usize::from(expected.is_some()), "{line}");
            assert!(expected.is_none_or(|key| config.warnings[0].contains(key)), "{line}");
        }
        let both = parsed(&with("sslTruststore: file:/t\n  sslVerificationMode: CA_ONLY"));
        assert!(both.needs[0].1.contains("Tls::danger_accept_any_server_name"), "{:?}", both.needs);
    }

    #[test]
    fn a_setting_of_tls_that_is_not_understood_is_misuse() {
        for (line, key) in [
            ("sslVerificationMode: strict", "sslVerificationMode"),
            ("sslVerificationMode: FULL", "sslVerificationMode"),
            ("sslVerificationMode: ''", "sslVerificationMode"),
            ("sslVerificationMode: 'STRICT '", "sslVerificationMode"),
            ("sslVerificationMode: [STRICT]", "sslVerificationMode"),
            ("sslEnableEndpointIdentification: no", "sslEnableEndpointIdentification"),
            ("sslVerificationmode: STRICT", "sslVerificationmode"),
            ("sslTruststor: file:/t", "sslTruststor"),
            ("SslTruststore: file:/t", "SslTruststore"),
            ("sslProtocols: []", "sslProtocols"),
            ("sslProtocols: TLSv1.3", "sslProtocols"),
            ("sslProtocols: [TLSv1.3, TLSv1.4]", "sslProtocols"),
            ("sslProtocols: [TLSv1.1]", "sslProtocols"),
            ("sslProtocols: [TLSv1.3]\nsslProtocols: [TLSv1.2]", "sslProtocols"),
            ("sslCiphers: []", "sslCiphers"),
            ("sslCiphers: TLS_AES_128_GCM_SHA256", "sslCiphers"),
        ] {
            for text in [with(line), with(line).replace("rediss:", "redis:")] {
                let message = misuse(&text);
                assert!(message.contains(key), "{line}: {message}");
            }
        }
    }

    #[test]
    fn the_protocols_and_ciphers_of_the_file_are_those_of_the_connection() {
        let file = "sslProtocols: [TLSv1.1, TLSv1.3]\n  sslCiphers: [TLS_AES_128_GCM_SHA256]";
        for config in
            [parsed(&with(file)), parsed(&with(&format!("sslKeystore: file:/k\n  {file}"))).tls(Tls::new())]
        {
            let tls = format!("{:?}", config.builder);
            assert!(tls.contains("protocols: Some([\"TLSv1.3\"])"), "{tls}");
            assert!(tls.contains("cipher_suites: Some([\"TLS_AES_128_GCM_SHA256\"])"), "{tls}");
            assert!(config.warnings[0].contains("TLSv1.1"), "{:?}", config.warnings);
        }
        let own = parsed(&with(file)).tls(Tls::new().protocols(["TLSv1.2"]));
        assert!(format!("{:?}", own.builder).contains("protocols: Some([\"TLSv1.2\"])"));
    }

    /// Java takes all that follows the scheme for the path, so that it has no user there.
    #[test]
    fn the_address_of_a_unix_socket_shows_no_secret() {
        let message = misuse("singleServerConfig: {address: 'redis+uds://user:canary@/run/redis.sock'}");
        assert!(message.contains("username") && !message.contains("canary"), "{message}");
        let odd = parsed("singleServerConfig: {address: 'redis+uds:///run/redis.sock?pass=canary'}");
        let shown = format!("{odd:?}");
        assert!(shown.contains("/run/redis.sock") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_password_like_a_variable_is_not_shown() {
        for file in [
            "singleServerConfig: {address: a, password: 'x${canary}y'}",
            "singleServerConfig: {address: 'redis://:${canary}@a:1'}",
            "clusterServersConfig: {nodeAddresses: ['redis://:${canary}@a:1']}",
            "sentinelServersConfig: {sentinelAddresses: [a], masterName: m, sentinelPassword: '${canary}'}",
        ] {
            let message = misuse(file);
            assert!(message.contains("variable") && !message.contains("canary"), "{message}");
        }
    }

    /// A name of the file may hold what a terminal or a log would obey.
    #[test]
    fn names_of_the_file_are_escaped() {
        let config = parsed("singleServerConfig: {address: a, \"x\\ny\\e[31m\": 1}");
        assert!(!config.warnings[0].contains(char::is_control), "{:?}", config.warnings);
        let message = misuse("singleServerConfig: {address: a, commandMapper: {class: \"x\\ny\"}}");
        assert!(!message.contains(char::is_control), "{message:?}");
    }

    #[test]
    fn who_the_client_is_may_stand_in_the_address() {
        let known = |text: &str| {
            let config = parsed(text);
            assert!(!format!("{config:?}").contains("canary"));
            (config.user, config.password)
        };
        let some = |text: &str| Some(text.to_owned());
        let of = |keys: &str| format!("singleServerConfig: {{address: 'redis://u:canary@h:1'{keys}}}");
        assert_eq!(known(&of("")), (some("u"), some("canary")));
        assert_eq!(known(&of(", username: u, password: canary")), (some("u"), some("canary")));
        for other in [", password: canary2", ", username: v"] {
            assert!(!misuse(&of(other)).contains("canary"));
        }
        assert_eq!(known("singleServerConfig: {address: a, password: 0123}").1, some("0123"));
        let sentinels = "sentinelServersConfig: {sentinelAddresses: ['redis://canary@a:1'], masterName: m, password: canary2}";
        let config = parsed(sentinels);
        assert_eq!((config.password, config.sentinel_password), (some("canary2"), some("canary")));
    }

    #[test]
    fn bad_files_are_misuse() {
        for (bad, what) in [
            ("", "names"),
            ("a: [", "YAML"),
            ("threads: 1", "replicatedServersConfig"),
            ("spring: {redis: {redisson: {config: 'x: 1'}}}", "Spring"),
            ("singleServerConfig: {}", "singleServerConfig.address"),
            ("singleServerConfig: {address: 'http://a'}", "redis://"),
            ("singleServerConfig: {address: a, timeout: soon}", "number"),
            ("singleServerConfig: {address: 'redis+uds:///s', address: 'redis+uds:///t'}", "twice"),
            ("replicatedServersConfig: {nodeAddresses: ['redis+uds:///s']}", "singleServerConfig"),
            ("singleServerConfig: {address: a}\nclusterServersConfig: {nodeAddresses: [a]}", "2 kinds"),
            ("clusterServersConfig: {nodeAddresses: ['redis://a', 'rediss://b']}", "TLS"),
            ("clusterServersConfig: {nodeAddresses: [a], natMap: {a: b}}", "natMap"),
            ("clusterServersConfig: {nodeAddresses: [a], natMapper: !<com.acme.Nat> {}}", "natMapper"),
            ("replicatedServersConfig: {nodeAddresses: [a], natMapper: !<com.acme.Nat> {}}", "natMapper"),
            (
                r#"{"sentinelServersConfig":{"sentinelAddresses":["a"],"masterName":"m","natMapper":{"class":"x.Nat"}}}"#,
                "natMapper",
            ),
            (
                "sentinelServersConfig: {sentinelAddresses: [a], masterName: m, sentinelPassword: '{aes}canary'}",
                "in the clear",
            ),
            ("sentinelServersConfig: {sentinelAddresses: [a], sentinelPassword: canary}", "masterName"),
            (
                "singleServerConfig: {address: '${NO_SUCH_VARIABLE_HERE}'}",
                "`singleServerConfig.address`: has a `${..}` of a variable that is not set",
            ),
            ("singleServerConfig: {address: a, commandMapper: !<com.example.C> {}}", "commandMapper"),
        ] {
            let message = misuse(bad);
            assert!(message.contains(what) && !message.contains("canary"), "{bad}: {message}");
        }
        for fine in [
            "singleServerConfig: {address: a} # ${NO_SUCH_VARIABLE_HERE}",
            "singleServerConfig: {address: a, clientName: '${NO_SUCH_VARIABLE_HERE}'}",
            r#"{"clusterServersConfig":{"nodeAddresses":["a"],"natMapper":{"class":"org.redisson.api.DefaultNatMapper"}}}"#,
            "clusterServersConfig: {nodeAddresses: [a], natMap: {}, natMapper: !<org.redisson.api.DefaultNatMapper> {}}",
        ] {
            parsed(fine);
        }
    }

    proptest::proptest! {
        /// The fuzz target in short: pieces of files in any order.
        #[test]
        fn files_of_anything_are_read_or_refused(
            pieces in proptest::collection::vec(proptest::prop_oneof![
                4 => proptest::sample::select(PIECES).prop_map(str::to_owned),
                1 => ".{0,4}",
            ], 0..24)
        ) {
            read_anything(&pieces.concat());
        }
    }

    const PIECES: &[&str] = &[
        "singleServerConfig",
        "clusterServersConfig",
        "nodeAddresses",
        "address",
        "password",
        "sslVerificationMode",
        "sslProtocols",
        "nameMapper",
        "timeout",
        "STRICT",
        "rediss://u:p@h:1",
        "redis+uds://u:p@/x",
        "${A}",
        "${",
        ":-",
        "}",
        ": ",
        ":\n",
        "\n",
        "  ",
        "- ",
        "? ",
        "[",
        "]",
        "{",
        ",",
        "&a ",
        "*a",
        "!<x.Y> ",
        "!!str ",
        "%TAG !t! x",
        "---\n",
        "'",
        "\"",
        "|\n",
        ">\n",
        "#",
        "~",
        "<<",
    ];
}
