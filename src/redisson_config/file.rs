//! The parts of a configuration file, as YAML has them: texts, numbers, lists and classes, each taken once, so that what is left
//! is what nobody has asked for.

use crate::error::{Error, Result};
use std::time::Duration;
use yaml_rust2::Yaml;

/// What is of no meaning for locks here, whatever it says.
pub(super) const OF_NO_MEANING: &[&str] = &[
    "addressResolverGroupFactory",
    "checkMasterLinkStatus",
    "checkSentinelsList",
    "checkSlaveStatusWithSyncing",
    "checkSlotsCoverage",
    "cleanUpKeysAmount",
    "clientName",
    "codec",
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
    pub left: Vec<(&'a str, &'a Yaml)>,
}

impl<'a> Section<'a> {
    pub(super) fn new(of: &'static str, yaml: &'a Yaml) -> Result<Self> {
        let what = if of.is_empty() { "it" } else { of };
        let Yaml::Hash(map) = yaml else {
            return Err(bad(&format!("`{what}`: has to be names with values")));
        };
        let entry = |(key, value): (&'a Yaml, &'a Yaml)| Some((key.as_str()?, value));
        Ok(Self { of, left: map.iter().filter_map(entry).collect() })
    }

    pub(super) fn name(&self, key: &str) -> String {
        if self.of.is_empty() { format!("`{key}`") } else { format!("`{}.{key}`", self.of) }
    }

    pub(super) fn bad(&self, key: &str, why: &str) -> Error {
        bad(&format!("{}: {why}", self.name(key)))
    }

    pub(super) fn peek(&self, key: &str) -> Option<&'a Yaml> {
        self.left.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// What is null is not there.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a Yaml> {
        let at = self.left.iter().position(|(name, _)| *name == key)?;
        Some(self.left.remove(at).1).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>> {
        match self.take(key) {
            None => Ok(None),
            Some(Yaml::String(text) | Yaml::Real(text)) => Ok(Some(text.clone())),
            Some(Yaml::Integer(number)) => Ok(Some(number.to_string())),
            Some(Yaml::Boolean(value)) => Ok(Some(value.to_string())),
            Some(_) => Err(self.bad(key, "has to be a text")),
        }
    }

    pub(super) fn texts(&mut self, key: &str) -> Result<Vec<String>> {
        let texts = |list: &Vec<Yaml>| {
            list.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        match self.take(key) {
            None => Ok(Vec::new()),
            Some(Yaml::Array(list)) => texts(list).ok_or_else(|| self.bad(key, "has to be a list of texts")),
            Some(_) => Err(self.bad(key, "has to be a list of texts")),
        }
    }

    pub(super) fn number(&mut self, key: &str) -> Result<Option<u64>> {
        let Some(yaml) = self.take(key) else { return Ok(None) };
        let number = match yaml {
            Yaml::Integer(number) => u64::try_from(*number).ok(),
            Yaml::String(text) => text.parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.bad(key, "has to be a number, 0 or greater"))
    }

    pub(super) fn milliseconds(&mut self, key: &str) -> Result<Option<Duration>> {
        Ok(self.number(key)?.map(Duration::from_millis))
    }

    pub(super) fn switch(&mut self, key: &str) -> Result<Option<bool>> {
        match self.text(key)?.as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.bad(key, "has to be true or false")),
        }
    }

    /// The class that stands there, with where, but for the one that does nothing. YAML has it as a tag.
    pub(super) fn class(&mut self, key: &str, text: &str, default: &str) -> Option<String> {
        let yaml = self.take(key)?;
        let line =
            text.lines().find_map(|line| line.trim_start().strip_prefix(key)?.trim_start().strip_prefix(':'));
        let tag = line.and_then(|rest| rest.split_once("!<")?.1.split_once('>').map(|(class, _)| class));
        let class = tag.or(yaml["class"].as_str()).or(yaml.as_str()).unwrap_or("some class");
        (!class.ends_with(default)).then(|| format!("{} is {class}", self.name(key)))
    }

    /// Where servers call each other by other addresses than their clients do.
    pub(super) fn no_nat(&mut self) -> Result<()> {
        for key in ["natMap", "natMapper"] {
            let maps = self.take(key).is_some_and(|yaml| yaml.as_hash().is_none_or(|map| !map.is_empty()));
            if maps {
                return Err(self.bad(
                    key,
                    "addresses are not mapped here: let the servers announce those that clients reach",
                ));
            }
        }
        Ok(())
    }
}

pub(super) fn bad(what: &str) -> Error {
    Error::misuse(format!("Redisson's configuration: {what}"))
}

/// With `${NAME}` and `${NAME:-default}` replaced.
pub(super) fn with_variables(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String> {
    let (mut done, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, found)) = rest.split_once("${") {
        let Some((variable, behind)) = found.split_once('}') else { break };
        let (name, default) = match variable.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (variable, None),
        };
        let value = value(name).or(default);
        done.push_str(before);
        done.push_str(&value.ok_or_else(|| bad(&format!("the variable `{name}` is not set")))?);
        rest = behind;
    }
    done.push_str(rest);
    Ok(done)
}
