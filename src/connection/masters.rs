//! Requests for one master, whatever its keys are.

use super::commands::Connection;
use super::exchange::{Exchange, NoReply};
use super::node::{Live, Node};
use super::pulse::Cut;
use super::{ErrorClass, classify};
use crate::error::{Error, Phase, Result};
use crate::protocol::script::{Reply, Request, Undecodable};
use crate::runtime::clock::Moment;
use std::sync::Arc;
use std::time::Duration;

/// A master of the client: the only server, or one of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Master {
    node: Node,
    response_timeout: Duration,
}

impl Master {
    pub(super) fn new(node: Node, response_timeout: Duration) -> Self {
        Self { node, response_timeout }
    }

    /// The name of the server, or of the node while there is no connection.
    pub(crate) fn node(&self) -> String {
        self.node.usable(0).map_or_else(|_| self.node.name.to_string(), |live| live.node.to_string())
    }

    /// Sends a request that only reads, once, and decodes its reply. Does not wait for a connection.
    pub(crate) async fn ask<T>(
        &self,
        request: &Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
        phase: Phase,
    ) -> Result<T> {
        Ok(self.ask_in_epoch(request, decoded, phase).await?.0)
    }

    /// As [`ask`](Self::ask). Also returns the data epoch of the server that replied.
    pub(crate) async fn ask_in_epoch<T>(
        &self,
        request: &Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
        phase: Phase,
    ) -> Result<(T, u64)> {
        let live = self.node.usable(0).map_err(|outage| outage.error(phase, &self.node.name))?;
        let node = || live.node.to_string();
        let reply = match exchange(&live, request, Moment::now() + self.response_timeout).await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Err(Error::TimedOut { phase, node: node(), waited: self.response_timeout }),
            Err(ErrorClass::Refused { code, message } | ErrorClass::NotNow { code, message }) => {
                return Err(Error::Refused { phase, node: node(), code, message });
            }
            Err(ErrorClass::Unknown { reason }) => return Err(Error::unavailable(phase, node(), reason)),
            // The request has no key, so a redirect does not fit it.
            Err(_) => return Err(Connection::protocol_error_of(&live.node, phase)),
        };
        let decoded = decoded(&reply).map_err(|_| Connection::protocol_error_of(&live.node, phase))?;
        Ok((decoded, live.data_epoch))
    }
}

/// Sends the request, with the source of its script if the server does not know it. `None` if no reply comes before `until`.
async fn exchange(live: &Arc<Live>, request: &Request, until: Moment) -> Result<Option<Reply>, ErrorClass> {
    let mut exchange = Exchange::new(live.clone(), request.clone());
    loop {
        let answer;
        (exchange, answer) = exchange.send(Moment::now(), until).await;
        match answer {
            Ok(reply) => return Ok(Some(reply.unwrap_or(Reply::Nil))),
            Err(NoReply::Cut(Cut::Ended)) => {
                return Err(ErrorClass::Unknown { reason: "the connection dropped".into() });
            }
            Err(NoReply::Cut(Cut::Late)) => return Ok(None),
            Err(NoReply::Failed(error)) => match classify(&error) {
                ErrorClass::NoScript if !exchange.by_source => exchange.by_source = true,
                class => return Err(class),
            },
        }
    }
}
