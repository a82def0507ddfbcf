//! Redisson's own configuration file: what it says of servers and locks, for a client here. Nothing of it is passed over in
//! silence.

mod file;

use self::file::{OF_NO_MEANING, Section, bad, with_variables};
use crate::client::{Client, ClientBuilder};
use crate::credentials::Credentials;
use crate::error::Result;
use crate::options::Replication;
use crate::tls::Tls;
use std::fmt;
use tracing::warn;
use yaml_rust2::{Yaml, YamlLoader};

/// Redisson's configuration file, YAML or JSON, for one server, sentinels, a cluster, replicated servers, or a master with
/// slaves. What it says about servers, credentials, timeouts and locks counts here as there; `${NAME}` and
/// `${NAME:-default}` stand for variables of the environment.
///
/// What is of no meaning here (threads, pools, codecs) is named by [`warnings`](Self::warnings). What would be needed and can't
/// be taken from the file, because it is Java's own (a key store, a class), is an error of [`connect`](Self::connect) unless it is
/// given by [`tls`](Self::tls), [`name_mapper`](Self::name_mapper) or [`credentials`](Self::credentials).
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
    user: Option<String>,
    password: Option<String>,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    /// What stands behind the scheme in the URL.
    place: String,
    builder: ClientBuilder,
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
    /// of the wrong type, or names a variable that is not set.
    pub fn parse(text: &str) -> Result<Self> {
        let text = with_variables(text, |name| std::env::var(name).ok())?;
        let documents =
            YamlLoader::load_from_str(&text).map_err(|error| bad(&format!("is not YAML: {error}")))?;
        let mut whole = Section::new("", documents.first().unwrap_or(&Yaml::Null))?;
        let mut config = Self {
            scheme: "redis",
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            place: String::new(),
            builder: Client::builder(),
            needs: Vec::new(),
            warnings: Vec::new(),
        };
        let modes = [
            "singleServerConfig",
            "sentinelServersConfig",
            "clusterServersConfig",
            "masterSlaveServersConfig",
            "replicatedServersConfig",
            // By its older name.
            "elasticacheServersConfig",
        ];
        let mut named = Vec::new();
        for mode in modes {
            if let Some(yaml) = whole.take(mode) {
                named.push((mode, Section::new(mode, yaml)?));
            }
        }
        let [(mode, mut servers)] = <[_; 1]>::try_from(named)
            .map_err(|named| bad(&format!("names {} kinds of servers, and must name one", named.len())))?;
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
        // In later versions of Redisson some of that stands outside of the servers' part.
        for section in [&mut servers, &mut whole] {
            config.access(section, &text)?;
            config.rest(section);
        }
        Ok(config)
    }

    /// What of the file is not used, each with the reason.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// In the place of Java's key stores and its other settings of TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
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
            warn!(warning, "a part of Redisson's configuration is not used");
        }
        let mut builder = self.builder;
        // A user's name alone goes with the master's password.
        let of_sentinels =
            self.sentinel_password.or_else(|| self.sentinel_user.as_ref().and(self.password.clone()));
        if let Some(credentials) = credentials(self.sentinel_user, of_sentinels) {
            builder = builder.sentinel_credentials(move || credentials.clone());
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
        let hosts = self.hosts(section, key, vec![address], ["redis", "rediss"])?;
        let database = section.number("database")?.unwrap_or(0);
        self.place = format!("{hosts}/{database}");
        Ok(())
    }

    fn sentinels(&mut self, section: &mut Section<'_>) -> Result<()> {
        let addresses = section.texts("sentinelAddresses")?;
        let hosts =
            self.hosts(section, "sentinelAddresses", addresses, ["redis-sentinel", "rediss-sentinel"])?;
        let name = section.text("masterName")?.ok_or_else(|| section.bad("masterName", "is missing"))?;
        self.sentinel_user = section.text("sentinelUsername")?;
        self.sentinel_password = section.text("sentinelPassword")?;
        section.no_nat()?;
        let database = section.number("database")?.unwrap_or(0);
        self.place = format!("{hosts}/{database}#{name}");
        Ok(())
    }

    fn replicated(&mut self, section: &mut Section<'_>) -> Result<()> {
        let addresses = section.texts("nodeAddresses")?;
        let schemes = ["redis-replicated", "rediss-replicated"];
        let hosts = self.hosts(section, "nodeAddresses", addresses, schemes)?;
        section.no_nat()?;
        let database = section.number("database")?.unwrap_or(0);
        self.place = format!("{hosts}/{database}");
        Ok(())
    }

    fn cluster(&mut self, section: &mut Section<'_>) -> Result<()> {
        let addresses = section.texts("nodeAddresses")?;
        self.place = self.hosts(section, "nodeAddresses", addresses, ["redis-cluster", "rediss-cluster"])?;
        match section.text("shardedSubscriptionMode")?.as_deref() {
            None | Some("AUTO") => {}
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

    /// `host:port,host:port`, all by TLS or none.
    fn hosts(
        &mut self,
        section: &Section<'_>,
        key: &str,
        addresses: Vec<String>,
        [plain, secure]: [&'static str; 2],
    ) -> Result<String> {
        let mut hosts = Vec::new();
        for address in &addresses {
            let (scheme, host) = address.split_once("://").unwrap_or(("redis", address));
            let scheme = match scheme {
                "redis" | "valkey" => plain,
                "rediss" | "valkeys" => secure,
                _ => return Err(section.bad(key, "an address begins with redis:// or rediss://")),
            };
            if host.contains('@') {
                return Err(section.bad(key, "who the client is stands in `username` and `password`"));
            }
            if hosts.is_empty() {
                self.scheme = scheme;
            } else if self.scheme != scheme {
                return Err(section.bad(key, "some addresses are by TLS, and some are not"));
            }
            hosts.push(host.trim_end_matches('/'));
        }
        match hosts.is_empty() {
            true => Err(section.bad(key, "is missing")),
            false => Ok(hosts.join(",")),
        }
    }

    /// What goes for all locks.
    fn locks(&mut self, section: &mut Section<'_>, replicas: bool) -> Result<()> {
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

    /// Who the client is, how it is let in, and how its names are mapped.
    fn access(&mut self, section: &mut Section<'_>, text: &str) -> Result<()> {
        self.user = section.text("username")?.or(self.user.take());
        self.password = section.text("password")?.or(self.password.take());
        if let Some(timeout) = section.milliseconds("timeout")? {
            self.builder = self.builder.clone().response_timeout(timeout);
        }
        if let Some(timeout) = section.milliseconds("connectTimeout")? {
            self.builder = self.builder.clone().connect_timeout(timeout);
        }
        for key in ["sslTruststore", "sslKeystore", "sslTrustManagerFactory", "sslKeyManagerFactory"] {
            if section.take(key).is_some() {
                let what = section.name(key)
                    + ": Java's; give the certificates as PEM by `RedissonConfig::tls`, and `Tls::certificate_authorities` or `Tls::identity`";
                self.needs.push((Need::Tls, what));
            }
        }
        for key in ["sslTruststorePassword", "sslKeystorePassword", "sslKeystoreType"] {
            section.take(key);
        }
        let unverified = section.text("sslVerificationMode")?.is_some_and(|mode| mode != "STRICT")
            | (section.switch("sslEnableEndpointIdentification")? == Some(false));
        if unverified {
            self.warn(
                section.name("sslVerificationMode")
                    + ": certificates are verified here, unless `RedissonConfig::tls` says otherwise",
            );
        }
        if let Some(class) = section.class("credentialsResolver", text, "DefaultCredentialsResolver") {
            let what = format!("{class}: give what it says by `RedissonConfig::credentials`");
            self.needs.push((Need::Credentials, what));
        }
        if let Some(class) = section.class("commandMapper", text, "DefaultCommandMapper") {
            return Err(bad(&format!("{class}: commands that have other names are not supported")));
        }
        let prefix =
            section.peek("nameMapper").and_then(|mapper| mapper["prefix"].as_str().map(str::to_owned));
        if let Some(class) = section.class("nameMapper", text, "DefaultNameMapper") {
            match prefix {
                Some(prefix) => {
                    self.warn(format!(
                        "{class}: taken for one that puts its prefix before a name, and does nothing else"
                    ));
                    self.builder = self.builder.clone().name_mapper(move |name| format!("{prefix}{name}"));
                }
                None => {
                    let what = format!("{class}: give what it does by `RedissonConfig::name_mapper`");
                    self.needs.push((Need::NameMapper, what));
                }
            }
        }
        Ok(())
    }

    /// What nobody has asked for.
    fn rest(&mut self, section: &mut Section<'_>) {
        let (known, unknown): (Vec<_>, Vec<_>) =
            section.left.drain(..).map(|(key, _)| key).partition(|key| OF_NO_MEANING.contains(key));
        if !known.is_empty() {
            self.warnings.push(format!("of no meaning here: {}", known.join(", ")));
        }
        for key in unknown {
            let name = section.name(key);
            self.warnings.push(format!("{name}: unknown"));
        }
    }
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
        f.debug_struct("RedissonConfig")
            .field("scheme", &self.scheme)
            .field("place", &self.place)
            .field("needs", &self.needs)
            .field("warnings", &self.warnings)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

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
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        let off = parsed("checkLockSyncedSlaves: false\nclusterServersConfig: {nodeAddresses: [a:1]}");
        assert!(format!("{:?}", off.builder).contains("at_least: Some(0)"));
    }

    #[test]
    fn nothing_is_passed_over_in_silence() {
        let config = parsed(
            "threads: 16\ncodec: !<org.redisson.codec.Kryo5Codec> {}\nsingleServerConfig: {address: a, pool: 1}",
        );
        assert_eq!(
            config.warnings,
            ["`singleServerConfig.pool`: unknown", "of no meaning here: threads, codec"]
        );
    }

    #[test]
    fn what_is_javas_is_asked_for() {
        let with = |line: &str| parsed(&format!("singleServerConfig:\n  address: rediss://a\n  {line}\n"));
        let needs = |line: &str| with(line).needs.into_iter().map(|(need, _)| need).collect::<Vec<_>>();
        assert_eq!(needs("sslTruststore: file:/trust.jks"), [Need::Tls]);
        assert_eq!(needs("credentialsResolver: !<com.example.Vault> {}"), [Need::Credentials]);
        assert_eq!(needs("nameMapper: !<com.example.Mapper> {}"), [Need::NameMapper]);
        assert_eq!(needs("nameMapper: !<org.redisson.api.DefaultNameMapper> {}"), []);
        assert_eq!(needs("nameMapper: null"), []);
        let prefixed = with("nameMapper: !<com.example.Prefix> {prefix: 'app:'}");
        assert!(prefixed.needs.is_empty() && prefixed.warnings[0].contains("com.example.Prefix"));
        let given = with("nameMapper: !<com.example.Mapper> {}").name_mapper(str::to_owned);
        assert!(given.needs.is_empty());
    }

    #[test]
    fn bad_files_are_misuse() {
        for (bad, what) in [
            ("", "names"),
            ("a: [", "YAML"),
            ("threads: 1", "0 kinds"),
            ("singleServerConfig: {}", "singleServerConfig.address"),
            ("singleServerConfig: {address: 'http://a'}", "redis://"),
            ("singleServerConfig: {address: a, timeout: soon}", "number"),
            ("singleServerConfig: {address: 'redis://:canary@a'}", "`password`"),
            ("singleServerConfig: {address: a}\nclusterServersConfig: {nodeAddresses: [a]}", "2 kinds"),
            ("clusterServersConfig: {nodeAddresses: ['redis://a', 'rediss://b']}", "TLS"),
            ("clusterServersConfig: {nodeAddresses: [a], natMap: {a: b}}", "natMap"),
            ("sentinelServersConfig: {sentinelAddresses: [a], sentinelPassword: canary}", "masterName"),
            ("singleServerConfig: {address: '${NO_SUCH_VARIABLE_HERE}'}", "NO_SUCH_VARIABLE_HERE"),
            ("singleServerConfig: {address: a, commandMapper: !<com.example.C> {}}", "commandMapper"),
        ] {
            let message = misuse(bad);
            assert!(message.contains(what) && !message.contains("canary"), "{bad}: {message}");
        }
        let value = |name: &str| (name == "HOST").then(|| "h:1".to_owned());
        assert_eq!(with_variables("a ${HOST} ${PORT:-6379} $x", value).unwrap(), "a h:1 6379 $x");
    }
}
