//! The parts of a configuration file: texts, numbers, lists and classes, each taken once, so that what is left is what nobody
//! has asked for.

use super::value::{Content, MOST_BYTES, Value};
use crate::error::{Error, Result};
use std::fmt;
use std::iter;
use std::ops::Range;
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
    name: &'a str,
    pub properties: &'a [(String, Value)],
}

impl Class<'_> {
    /// For messages.
    pub(super) fn shown(&self) -> impl fmt::Display {
        self.name.escape_debug()
    }

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
        let key = key.escape_debug();
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

    /// A list of at least one text.
    pub(super) fn some_texts(&mut self, key: &str) -> Result<Option<Vec<String>>> {
        let is_there = self.left.iter().any(|(name, value)| *name == key && !value.is_null());
        let texts = self.texts(key)?;
        match is_there && texts.is_empty() {
            true => Err(self.bad(key, "has to name at least one")),
            false => Ok(is_there.then_some(texts)),
        }
    }

    /// That of `key`, which is used.
    pub(super) fn text_of(&self, key: &str, value: &Value) -> Result<String> {
        let text = value.text().ok_or_else(|| self.bad(key, "has to be a text"))?;
        // Which one is not said: a password may look like one.
        if variables(text).next().is_some() {
            return Err(self.bad(
                key,
                "has a `${..}` of a variable that is not set (Java's system properties are not known here)",
            ));
        }
        Ok(text.to_owned())
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
    /// Where it stands in the text.
    at: Range<usize>,
}

/// All in `text`, in one pass.
fn variables(text: &str) -> impl Iterator<Item = Variable<'_>> {
    let (mut from, mut end) = (0, 0);
    iter::from_fn(move || {
        loop {
            let start = from + text[from..].find("${")?;
            let name = start + 2;
            from = name;
            let behind = name + text[name..].find(|sign| !is_of_name(sign)).unwrap_or(text.len() - name);
            // What ends one variable ends all that begin before it: it is looked for once.
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

/// With the variables replaced whose values are known. The others stay, as for Redisson: where one stands they may not matter.
/// `None` if that becomes longer than a file may be.
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
    fn variables_are_replaced_where_they_are_known() {
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

    /// With a search for the end of each, this would take minutes.
    #[test]
    fn variables_without_an_end_take_no_longer() {
        for unit in ["${", "${A:-", "${A:-${"] {
            let text = unit.repeat((1 << 20) / unit.len());
            assert_eq!(with_variables(&text, |_| None).as_deref(), Some(&*text));
            assert_eq!(variables(&text).count(), 0);
        }
    }

    #[test]
    fn variables_cannot_blow_the_file_up() {
        let text = "${A}".repeat(1000);
        assert_eq!(with_variables(&text, |_| Some("x".repeat(100_000))), None);
    }
}
