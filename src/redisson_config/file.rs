//! The sections of a configuration file. Each value is taken once, so the values that remain are those that nothing uses.

use super::value::{Content, MOST_BYTES, Value};
use crate::error::{Error, Result};
use std::fmt;
use std::iter;
use std::ops::Range;
use std::time::Duration;

/// The sections of the kinds of servers.
const MODES: [&str; 6] = [
    "singleServerConfig",
    "sentinelServersConfig",
    "clusterServersConfig",
    "masterSlaveServersConfig",
    "replicatedServersConfig",
    // The older name of `replicatedServersConfig`.
    "elasticacheServersConfig",
];

/// The settings that have no effect here, whatever their value.
pub(super) const IGNORED: &[&str] = &[
    "addressResolverGroupFactory",
    "checkMasterLinkStatus",
    "checkSentinelsList",
    "checkSlaveStatusWithSyncing",
    "checkSlotsCoverage",
    "cleanUpKeysAmount",
    "clientName",
    "codecProvider",
    "connectionListener",
    "connectionMinimumIdleSize",
    "connectionPoolSize",
    "credentialsReapplyInterval",
    "decodeInExecutor",
    "dnsMonitoring",
    "dnsMonitoringInterval",
    "dnsMonitoringTimes",
    "eventLoopGroup",
    "executor",
    "failedAttempts",
    "failedSlaveCheckInterval",
    "failedSlaveNodeDetector",
    "failedSlaveReconnectionInterval",
    "fallbackLoadingToMaster",
    "idleConnectionTimeout",
    "keepAlive",
    "keepPubSubOrder",
    "lazyInitialization",
    "loadBalancer",
    "lockWatchdogBatchSize",
    "masterConnectionMinimumIdleSize",
    "masterConnectionPoolSize",
    "maxCleanUpDelay",
    "minCleanUpDelay",
    "monitorIPChanges",
    "nettyExecutor",
    "nettyHook",
    "nettyThreads",
    "pingConnectionInterval",
    "pingTimeout",
    "protocol",
    "readMode",
    "reconnectionDelay",
    "reconnectionTimeout",
    "redissonReferenceEnabled",
    "referenceEnabled",
    "reliableTopicWatchdogTimeout",
    "resolverProvider",
    "retryAttempts",
    "retryDelay",
    "retryInterval",
    "scanInterval",
    "sentinelsDiscovery",
    "slaveConnectionMinimumIdleSize",
    "slaveConnectionPoolSize",
    "slaveSubscriptionConnectionMinimumIdleSize",
    "slaveSubscriptionConnectionPoolSize",
    "sslProvider",
    "subscriptionConnectionMinimumIdleSize",
    "subscriptionConnectionPoolSize",
    "subscriptionMode",
    "subscriptionTimeout",
    "subscriptionsPerConnection",
    "tcpKeepAlive",
    "tcpKeepAliveCount",
    "tcpKeepAliveIdle",
    "tcpKeepAliveInterval",
    "tcpNoDelay",
    "tcpUserTimeout",
    "threads",
    "transportMode",
    "useLinuxNativeEpoll",
    "useScriptCache",
    "useThreadClassLoader",
    "valkeyCapabilities",
];

/// Takes the only section of servers out of the file, with its name.
pub(super) fn servers_section<'a>(whole: &mut Section<'a>) -> Result<(&'static str, Section<'a>)> {
    let mut sections = Vec::new();
    for mode in MODES {
        if let Some(value) = whole.take(mode) {
            sections.push((mode, Section::new(mode, value)?));
        }
    }
    let [section] = <[_; 1]>::try_from(sections).map_err(|sections| {
        bad(&format!(
            "the file has {} server sections and needs exactly one of {}; from a Spring application.yml, pass only the \
             Redisson text inside it",
            sections.len(),
            MODES[..5].join(", ")
        ))
    })?;
    Ok(section)
}

/// A section of the file, and the entries that are still unused.
pub(super) struct Section<'a> {
    of: &'static str,
    pub unused: Vec<(&'a str, &'a Value)>,
}

/// A Java class that a setting names.
pub(super) struct Class<'a> {
    name: &'a str,
    pub properties: &'a [(String, Value)],
}

impl Class<'_> {
    /// The name as shown in messages.
    pub(super) fn shown(&self) -> impl fmt::Display {
        self.name.escape_debug()
    }

    /// Whether this is Redisson's own class of that name, in any of its packages.
    pub(super) fn is_redissons(&self, name: &str) -> bool {
        self.name.starts_with("org.redisson.") && self.name.rsplit('.').next() == Some(name)
    }
}

impl<'a> Section<'a> {
    pub(super) fn new(of: &'static str, value: &'a Value) -> Result<Self> {
        let Content::Map(map) = &value.content else {
            let what = if of.is_empty() { "the file".to_owned() } else { format!("`{of}`:") };
            return Err(bad(&format!("{what} must be a map")));
        };
        Ok(Self { of, unused: map.iter().map(|(name, value)| (name.as_str(), value)).collect() })
    }

    /// Whether this section is the whole file.
    pub(super) fn is_outer(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn name(&self, key: &str) -> String {
        let key = key.escape_debug();
        if self.of.is_empty() { format!("`{key}`") } else { format!("`{}.{key}`", self.of) }
    }

    pub(super) fn bad(&self, key: &str, why: &str) -> Error {
        bad(&format!("{}: {why}", self.name(key)))
    }

    /// Takes a value. A null counts as absent.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a Value> {
        let at = self.unused.iter().position(|(name, _)| *name == key)?;
        Some(self.unused.remove(at).1).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.take(key).map(|value| self.text_of(key, value)).transpose()
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>> {
        match self.take(key).map(|value| &value.content) {
            None => Ok(Vec::new()),
            Some(Content::List(list)) => list.iter().map(|item| self.text_of(key, item)).collect(),
            Some(_) => Err(self.bad(key, "must be a list of strings")),
        }
    }

    /// Takes a list with at least one string.
    pub(super) fn non_empty_texts(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let is_set = self.unused.iter().any(|(name, value)| *name == key && !value.is_null());
        let texts = self.texts(key)?;
        match is_set && texts.is_empty() {
            true => Err(self.bad(key, "must contain at least one entry")),
            false => Ok(is_set.then_some(texts)),
        }
    }

    /// Returns the string of a value that is in use.
    pub(super) fn text_of(&self, key: &str, value: &Value) -> Result<String> {
        let text = value.text().ok_or_else(|| self.bad(key, "must be a string"))?;
        // The message does not name the variable, because a password may look like one.
        if variables(text).next().is_some() {
            return Err(self.bad(
                key,
                "contains a `${..}` variable that is not set (Java system properties are not available)",
            ));
        }
        Ok(text.to_owned())
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.bad(key, "must be a number of 0 or more"))
    }

    pub(super) fn milliseconds(&mut self, key: &str) -> Result<Option<Duration>> {
        Ok(self.number(key)?.map(Duration::from_millis))
    }

    pub(super) fn switch(&mut self, key: &str) -> Result<Option<bool>> {
        match self.text(key)?.map(|text| text.to_ascii_lowercase()).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.bad(key, "must be true or false")),
        }
    }

    /// Takes the class that a setting names, unless it is Redisson's own class `default`.
    pub(super) fn class(&mut self, key: &str, default: &str) -> Option<Class<'a>> {
        let value = self.take(key)?;
        let properties = match &value.content {
            Content::Map(map) => map.as_slice(),
            _ => &[],
        };
        let name = value.class.as_deref().or(value.text()).unwrap_or("an unnamed class");
        Some(Class { name, properties }).filter(|class| !class.is_redissons(default))
    }

    /// Refuses settings that map the addresses of servers.
    pub(super) fn refuse_nat(&mut self) -> Result<()> {
        let mapper = self.class("natMapper", "DefaultNatMapper").map(|_| "natMapper");
        let map = self.take("natMap").filter(|map| map.content != Content::Map(Vec::new())).map(|_| "natMap");
        match mapper.or(map) {
            None => Ok(()),
            Some(key) => Err(self.bad(
                key,
                "address mapping is not supported: configure the servers to announce addresses that clients can reach",
            )),
        }
    }
}

pub(super) fn bad(what: &str) -> Error {
    Error::misuse(format!("Redisson's configuration: {what}"))
}

/// A `${NAME}` or `${NAME:-default}`.
struct Variable<'a> {
    name: &'a str,
    default: Option<&'a str>,
    /// The position in the text.
    at: Range<usize>,
}

/// Returns all variables in `text`, in one pass.
fn variables(text: &str) -> impl Iterator<Item = Variable<'_>> {
    let (mut from, mut end) = (0, 0);
    iter::from_fn(move || {
        loop {
            let start = from + text[from..].find("${")?;
            let name = start + 2;
            from = name;
            let behind = name + text[name..].find(|sign| !is_of_name(sign)).unwrap_or(text.len() - name);
            // The end of one variable also ends all that began before it, so it is searched for only once.
            if end < behind {
                end = text[behind..].find(['}', '\n']).map_or(text.len(), |more| behind + more);
            }
            let default = match &text[behind..end] {
                "" => None,
                rest if rest.starts_with(":-") => Some(&rest[2..]),
                _ => continue,
            };
            if behind == name || !text[end..].starts_with('}') {
                continue;
            }
            from = end + 1;
            return Some(Variable { name: &text[name..behind], default, at: start..from });
        }
    })
}

fn is_of_name(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || ['_', '.'].contains(&sign)
}

/// Replaces the variables with known values. The others stay, as in Redisson, because the settings that contain them may be unused.
/// Returns `None` if the result is longer than a file may be.
pub(super) fn with_variables(text: &str, value: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (mut done, mut from) = (String::with_capacity(text.len()), 0);
    for Variable { name, default, at } in variables(text) {
        if let Some(value) = value(name).or(default.map(str::to_owned)) {
            done.push_str(&text[from..at.start]);
            done.push_str(&value);
            from = at.end;
        }
        if done.len() > MOST_BYTES {
            return None;
        }
    }
    done.push_str(&text[from..]);
    Some(done).filter(|done| done.len() <= MOST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_known_values_are_replaced() {
        let value = |name: &str| (name == "HOST").then(|| "h:1".to_owned());
        for (text, expected) in [
            ("a ${HOST} ${PORT:-6379} $x", "a h:1 6379 $x"),
            ("${OTHER} ${HOST:-x}", "${OTHER} h:1"),
            ("${a b} ${ ${HOST} }", "${a b} ${ h:1 }"),
            ("${OTHER\n} ${HOST", "${OTHER\n} ${HOST"),
        ] {
            assert_eq!(with_variables(text, value).as_deref(), Some(expected));
        }
    }

    /// A separate search for the end of each variable would take minutes.
    #[test]
    fn unterminated_variables_take_linear_time() {
        for unit in ["${", "${A:-", "${A:-${"] {
            let text = unit.repeat((1 << 20) / unit.len());
            assert_eq!(with_variables(&text, |_| None).as_deref(), Some(&*text));
            assert_eq!(variables(&text).count(), 0);
        }
    }

    #[test]
    fn variables_cannot_inflate_the_file() {
        let text = "${A}".repeat(1000);
        assert_eq!(with_variables(&text, |_| Some("x".repeat(100_000))), None);
    }
}
