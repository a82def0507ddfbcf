//! Where a client's servers are, as its user says it.

use super::Address;
use super::finder::{Finder, Sentinel};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::tls::Tls;
use std::sync::Arc;

/// The servers of a client. Debug shows neither user nor password.
#[derive(Clone, Debug)]
pub(crate) struct Servers(Finder);

/// After `redis`, or `rediss` for TLS.
const SENTINEL: &str = "-sentinel://";

impl Servers {
    /// From a URL: of one server, or `redis-sentinel://[user:password@]host[:port][,host[:port]..][/database]#master`, where
    /// user and password are the master's; `rediss-sentinel` where sentinels and servers are reached by TLS.
    pub(crate) fn parse(url: &str, tls: Option<&Tls>) -> Result<Self> {
        let (scheme, rest) = match url.split_once(SENTINEL) {
            Some((scheme @ ("redis" | "rediss"), rest)) => (scheme, rest),
            _ => return Address::parse(url, tls).map(|address| Self(Finder::At(address))),
        };
        let parse = |rest: &str| Address::parse(&format!("{scheme}://{rest}"), tls);
        let bad = || {
            Error::misuse(format!(
                "bad URL: use redis{SENTINEL}[user:password@]host[:port][,host[:port]..][/database]#master"
            ))
        };
        let (rest, service) =
            rest.split_once('#').filter(|(_, service)| !service.is_empty()).ok_or_else(bad)?;
        // A password may hold any of these but the last `@`.
        let (credentials, rest) = rest.rsplit_once('@').map_or(("", rest), |(before, rest)| (before, rest));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let at = if credentials.is_empty() { "" } else { "@" };
        let master = parse(&format!("{credentials}{at}sentinel/{database}"))?;
        let sentinels = hosts
            .split(',')
            .map(|host| match host.rsplit_once(':') {
                Some((_, port)) if !port.ends_with(']') => parse(host),
                _ if host.is_empty() => Err(bad()),
                _ => parse(&format!("{host}:26379")),
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
