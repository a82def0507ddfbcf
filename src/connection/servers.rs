//! Where a client's servers are, as its user says it.

use super::Address;
use super::finder::{Finder, Sentinel};
use crate::error::{Error, Result};
use crate::options::Options;
use std::sync::Arc;

/// The servers of a client. Debug shows neither user nor password.
#[derive(Clone, Debug)]
pub(crate) struct Servers(Finder);

const SENTINEL: &str = "redis-sentinel://";

impl Servers {
    /// From a URL: of one server, or `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`, where
    /// user and password are the master's.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let Some(rest) = url.strip_prefix(SENTINEL) else {
            return Address::parse(url).map(|address| Self(Finder::At(address)));
        };
        let bad = || {
            Error::misuse(format!(
                "bad URL: use {SENTINEL}[user:password@]host[:port][,host[:port]..][/database]#master"
            ))
        };
        let (rest, service) =
            rest.split_once('#').filter(|(_, service)| !service.is_empty()).ok_or_else(bad)?;
        // A password may hold any of these but the last `@`.
        let (credentials, rest) = rest.rsplit_once('@').map_or(("", rest), |(before, rest)| (before, rest));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let at = if credentials.is_empty() { "" } else { "@" };
        let master = Address::parse(&format!("redis://{credentials}{at}sentinel/{database}"))?;
        let sentinels = hosts
            .split(',')
            .map(|host| match host.rsplit_once(':') {
                Some((_, port)) if !port.ends_with(']') => Address::parse(&format!("redis://{host}")),
                _ if host.is_empty() => Err(bad()),
                _ => Address::parse(&format!("redis://{host}:26379")),
            })
            .collect::<Result<Vec<_>>>()?;
        let (service, name) = (service.to_owned(), format!("{service}@{}", sentinels[0].node()));
        Ok(Self(Finder::Sentinel(Arc::new(Sentinel { sentinels, service, name, master }))))
    }

    /// Whether another server may take the place of one.
    pub(crate) fn fail_over(&self) -> bool {
        self.0.may_move()
    }

    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Ends when another server than `node` is known to be the one. Never where that can't be.
    pub(crate) async fn moved(&self, node: &str, options: &Options) {
        self.0.moved(node, options).await;
    }

    pub(super) fn finder(&self) -> &Finder {
        &self.0
    }
}
