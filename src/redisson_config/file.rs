//! The parts of a configuration file: texts, numbers, lists and classes, each taken once, so that what is left is what nobody
//! has asked for.

use super::value::{Content, Value};
use crate::error::{Error, Result};
use std::time::Duration;

/// What is of no meaning for locks here, whatever it says.
pub(super) const OF_NO_MEANING: &[&str] = &[
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
    "sslCiphers",
    "sslProtocols",
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

/// A part of the file, and what of it is left.
pub(super) struct Section<'a> {
    of: &'static str,
    pub left: Vec<(&'a str, &'a Value)>,
}

/// What Java makes an object of.
pub(super) struct Class<'a> {
    pub name: &'a str,
    pub properties: &'a [(String, Value)],
}

impl Class<'_> {
    /// Whether it is Redisson's own of that name, in whichever of its packages.
    pub(super) fn is_redissons(&self, name: &str) -> bool {
        self.name.starts_with("org.redisson.") && self.name.rsplit('.').next() == Some(name)
    }
}

impl<'a> Section<'a> {
    pub(super) fn new(of: &'static str, value: &'a Value) -> Result<Self> {
        let what = if of.is_empty() { "it" } else { of };
        let Content::Map(map) = &value.content else {
            return Err(bad(&format!("`{what}`: has to be names with values")));
        };
        Ok(Self { of, left: map.iter().map(|(name, value)| (name.as_str(), value)).collect() })
    }

    /// The whole file.
    pub(super) fn is_outer(&self) -> bool {
        self.of.is_empty()
    }

    pub(super) fn name(&self, key: &str) -> String {
        if self.of.is_empty() { format!("`{key}`") } else { format!("`{}.{key}`", self.of) }
    }

    pub(super) fn bad(&self, key: &str, why: &str) -> Error {
        bad(&format!("{}: {why}", self.name(key)))
    }

    /// What is null is not there.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a Value> {
        let at = self.left.iter().position(|(name, _)| *name == key)?;
        Some(self.left.remove(at).1).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.take(key).map(|value| self.text_of(key, value)).transpose()
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>> {
        match self.take(key).map(|value| &value.content) {
            None => Ok(Vec::new()),
            Some(Content::List(list)) => list.iter().map(|item| self.text_of(key, item)).collect(),
            Some(_) => Err(self.bad(key, "has to be a list of texts")),
        }
    }

    /// That of `key`, which is used.
    pub(super) fn text_of(&self, key: &str, value: &Value) -> Result<String> {
        let text = value.text().ok_or_else(|| self.bad(key, "has to be a text"))?;
        let unset = text.match_indices("${").find_map(|(at, open)| Variable::read(&text[at + open.len()..]));
        match unset {
            None => Ok(text.to_owned()),
            Some((Variable { name, .. }, _)) => Err(self.bad(
                key,
                &format!("the variable `{name}` is not set (Java's system properties are not known here)"),
            )),
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.bad(key, "has to be a number, 0 or greater"))
    }

    pub(super) fn milliseconds(&mut self, key: &str) -> Result<Option<Duration>> {
        Ok(self.number(key)?.map(Duration::from_millis))
    }

    pub(super) fn switch(&mut self, key: &str) -> Result<Option<bool>> {
        match self.text(key)?.map(|text| text.to_ascii_lowercase()).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.bad(key, "has to be true or false")),
        }
    }

    /// The class that stands there, but for Redisson's own of the name `default`.
    pub(super) fn class(&mut self, key: &str, default: &str) -> Option<Class<'a>> {
        let value = self.take(key)?;
        let properties = match &value.content {
            Content::Map(map) => map.as_slice(),
            _ => &[],
        };
        let name = value.class.as_deref().or(value.text()).unwrap_or("some class");
        Some(Class { name, properties }).filter(|class| !class.is_redissons(default))
    }

    /// Where servers call each other by other addresses than their clients do.
    pub(super) fn no_nat(&mut self) -> Result<()> {
        let mapper = self.class("natMapper", "DefaultNatMapper").map(|_| "natMapper");
        let map = self.take("natMap").filter(|map| map.content != Content::Map(Vec::new())).map(|_| "natMap");
        match mapper.or(map) {
            None => Ok(()),
            Some(key) => Err(self.bad(
                key,
                "addresses are not mapped here: let the servers announce those that clients reach",
            )),
        }
    }
}

pub(super) fn bad(what: &str) -> Error {
    Error::misuse(format!("Redisson's configuration: {what}"))
}

/// `${NAME}` or `${NAME:-default}`.
struct Variable<'a> {
    name: &'a str,
    default: Option<&'a str>,
}

impl<'a> Variable<'a> {
    /// That at the start of `text`, behind its `${`, and what follows it.
    fn read(text: &'a str) -> Option<(Self, &'a str)> {
        let (inner, rest) = text.split_once('}')?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let part_of_name = |sign: char| sign.is_ascii_alphanumeric() || ['_', '.'].contains(&sign);
        let is_one = !name.is_empty() && name.chars().all(part_of_name) && !inner.contains('\n');
        is_one.then_some((Self { name, default }, rest))
    }
}

/// With the variables replaced whose values are known. The others stay, as for Redisson: where one stands they may not matter.
pub(super) fn with_variables(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let (mut done, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, found)) = rest.split_once("${") {
        done.push_str(before);
        let known = Variable::read(found).and_then(|(variable, behind)| {
            let value = value(variable.name).or(variable.default.map(str::to_owned));
            Some((value?, behind))
        });
        match known {
            Some((value, behind)) => {
                done.push_str(&value);
                rest = behind;
            }
            None => {
                done.push_str("${");
                rest = found;
            }
        }
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_where_they_are_known() {
        let value = |name: &str| (name == "HOST").then(|| "h:1".to_owned());
        for (text, expected) in [
            ("a ${HOST} ${PORT:-6379} $x", "a h:1 6379 $x"),
            ("${OTHER} ${HOST:-x}", "${OTHER} h:1"),
            ("${a b} ${ ${HOST} }", "${a b} ${ h:1 }"),
            ("${OTHER\n} ${HOST", "${OTHER\n} ${HOST"),
        ] {
            assert_eq!(with_variables(text, value), expected);
        }
    }
}
