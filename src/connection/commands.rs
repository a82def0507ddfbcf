//! Sends requests, and decides when to send them again.
//!
//! Invariants 3 and 6 of ARCHITECTURE.md apply: a request whose outcome is unknown is sent again only if a repeat is harmless, and a repeat
//! that the server must recognise is marked ([`Request::is_repeated`]). Every `call` ends by its deadline.

mod call;
mod route;

use super::node::{Live, Outage, Shared, TransientRefusal};
use super::nodes::{Absent, Nodes, Target};
use super::pulse::Cut;
use super::replicas::Reached;
use super::servers::Topology;
use super::{ErrorClass, Master, SubscriptionEndpoints, classify};
use crate::config::options::{Options, Replication};
use crate::error::{Error, Phase, Result};
use crate::protocol::keys;
use crate::protocol::script::{Reply, Request, Undecodable};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task::JoinHandle;
use crate::runtime::sync::{select, time};
use crate::stats::Counters;
use call::Call;
pub(crate) use route::{Route, SendError, Sent};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, warn};

/// The id of no connection.
const NONE: u64 = 0;
/// The error code for keys of several slots in one request.
const CROSSED: &str = "CROSSSLOT";

/// A connection to the server that outlives its sockets. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    nodes: Nodes,
    name: Arc<str>,
    changes: watch::Receiver<()>,
    response_timeout: Duration,
    replication: Replication,
    /// A server that was not configured as a cluster refused keys of several slots, so it is the endpoint of a cluster.
    many_slots: Arc<AtomicBool>,
    counters: Arc<Counters>,
}

/// How long a request may be retried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    For(Duration),
    Until(Moment),
    /// Until the later of both.
    LaterOf(Moment, Duration),
}

impl Limit {
    fn end(self, now: Moment) -> Moment {
        match self {
            Self::For(time) => now + time,
            Self::Until(end) => end,
            Self::LaterOf(end, time) => end.max(now + time),
        }
    }
}

/// The reply to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub reply: Reply,
    /// The start of the send that was answered.
    pub sent: Moment,
    /// The data epoch of the server that replied.
    pub data_epoch: u64,
    /// The number of the connection.
    pub connection_id: u64,
}

/// Why a request has no reply.
#[derive(Debug)]
pub(crate) struct Failure {
    node: Arc<str>,
    cause: Cause,
    /// A send went unanswered, so the request may have run, or may still run.
    pub unanswered: bool,
}

#[derive(Debug)]
enum Cause {
    Refused {
        code: String,
        message: String,
    },
    /// The server refused for now. The request did not run.
    NotNow {
        code: String,
        message: String,
    },
    Unreachable(Outage),
    NoAnswer {
        waited: Duration,
    },
}

/// The absence of a connection to one server.
pub(crate) struct Absence(watch::Receiver<()>);

impl Absence {
    /// Whether there has been no connection since. A connection to another node of a cluster counts, too.
    pub(crate) fn lasts(&self) -> bool {
        self.0.has_changed().is_ok_and(|changed| !changed)
    }
}

impl Failure {
    /// The server's error code, if it refused for good.
    pub(crate) fn code(&self) -> Option<&str> {
        match &self.cause {
            Cause::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// The server refused for good.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code().is_some()
    }

    /// The keys of the request are on two servers for now. A request for each key may succeed.
    pub(crate) fn is_try_again(&self) -> bool {
        matches!(&self.cause, Cause::NotNow { code, .. } if code == "TRYAGAIN")
    }

    /// The request has keys of several slots. Nothing was done; a request for each slot may succeed.
    pub(crate) fn is_cross_slot(&self) -> bool {
        self.code() == Some(CROSSED)
    }
}

impl Answer {
    fn of(reply: Reply, sent: Moment, live: &Live) -> Self {
        Self { reply, sent, data_epoch: live.data_epoch, connection_id: live.id }
    }
}

impl Connection {
    /// Connects, checks the server, and starts the supervisor on the current runtime.
    pub(crate) async fn connect(servers: &Topology, options: &Options) -> Result<(Self, JoinHandle<()>)> {
        let shared = Shared::new(options);
        let (nodes, supervisor) = Nodes::connect(servers, options, &shared).await?;
        Ok((Self::of(nodes, servers, options, &shared), supervisor))
    }

    /// Starts the supervisor on the current runtime, which then connects.
    pub(crate) fn start(servers: &Topology, options: &Options) -> Result<(Self, JoinHandle<()>)> {
        let shared = Shared::new(options);
        let (nodes, supervisor) = Nodes::start(servers, options, &shared)?;
        Ok((Self::of(nodes, servers, options, &shared), supervisor))
    }

    fn of(nodes: Nodes, servers: &Topology, options: &Options, shared: &Shared) -> Self {
        let (response_timeout, replication) = (options.response_timeout, options.replication());
        let (name, changes) = (servers.name().into(), shared.changes());
        let (many_slots, counters) = (Arc::default(), shared.counters.clone());
        Self { nodes, name, changes, response_timeout, replication, many_slots, counters }
    }

    /// Whether there is a connection to every server that is known, and to one at least.
    pub(crate) fn is_connected(&self) -> bool {
        let masters = self.nodes.masters();
        !masters.is_empty() && masters.iter().all(|node| node.usable(NONE).is_ok())
    }

    /// Sends `PING` to each master, and waits for the replies within the response timeout.
    ///
    /// # Errors
    /// [`Error::Unavailable`] at once without a connection to one of them.
    pub(crate) async fn ping(&self) -> Result<()> {
        let (phase, until) = (Phase::Inspect, Moment::now() + self.response_timeout);
        let masters = self.nodes.masters();
        if masters.is_empty() {
            return Err(Error::unavailable(phase, self.node(), "not connected yet"));
        }
        for node in masters {
            let live = node.usable(NONE).map_err(|outage| outage.error(phase, &node.name))?;
            let name = live.node.to_string();
            let reply = select! {
                reply = live.ping() => reply,
                cut = live.cut(Moment::now(), until) => return Err(match cut {
                    Cut::Ended => Error::unavailable(phase, name, "the connection dropped"),
                    Cut::Late => Error::TimedOut { phase, node: name, waited: self.response_timeout },
                }),
            };
            match reply {
                Ok(_) => {}
                Err(error) => match classify(&error) {
                    ErrorClass::Unknown { reason } => return Err(Error::unavailable(phase, name, reason)),
                    // The server replied, though to refuse the command.
                    _ => debug!(%name, %error, "the server refuses PING"),
                },
            }
        }
        Ok(())
    }

    /// The counters of the client.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(crate) fn node(&self) -> &str {
        &self.name
    }

    /// The masters that are known, each connected or not.
    pub(crate) fn masters(&self) -> Vec<Master> {
        let masters = self.nodes.masters().into_iter();
        masters.map(|node| Master::new(node, self.response_timeout)).collect()
    }

    /// The name of the server that has `record`.
    pub(crate) fn node_of(&self, record: &str) -> Arc<str> {
        match self.nodes.usable(self.target(record), NONE) {
            Ok(live) => live.node.clone(),
            Err(absent) => absent.node,
        }
    }

    /// How long to wait for a single reply.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Whether there is a connection to the server of `record`.
    pub(crate) fn is_up(&self, record: &str) -> bool {
        self.nodes.usable(self.target(record), NONE).is_ok()
    }

    /// Watches for a connection to the server of `record`, if there is none.
    pub(crate) fn absence(&self, record: &str) -> Option<Absence> {
        let mut changes = self.changes.clone();
        changes.borrow_and_update();
        (!self.is_up(record)).then_some(Absence(changes))
    }

    /// The reason why requests for `record` get no reply: a missing connection, or a transient refusal at `since` or later.
    pub(crate) fn unavailability(&self, record: &str, since: Moment, phase: Phase) -> Option<Error> {
        match self.nodes.usable(self.target(record), NONE) {
            Ok(live) => live.refusal(since).map(|TransientRefusal { code, message, .. }| Error::Refused {
                phase,
                node: live.node.to_string(),
                code,
                message,
            }),
            Err(Absent { node, outage }) => Some(outage.error(phase, &node)),
        }
    }

    /// The data epoch of the server of `record`; `None` without a connection to it.
    pub(crate) fn data_epoch(&self, record: &str) -> Option<u64> {
        self.nodes.usable(self.target(record), NONE).ok().map(|live| live.data_epoch)
    }

    /// The endpoints to subscribe at, for messages from the nodes of `servers`.
    pub(crate) fn endpoints(&self, servers: &Topology) -> SubscriptionEndpoints {
        self.nodes.endpoints(servers, self.changes.clone())
    }

    /// Whether the number of subscribers that a node reports includes every subscriber.
    pub(crate) fn counts_every_subscriber(&self) -> bool {
        self.nodes.counts_every_subscriber()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.nodes.is_cluster()
    }

    /// The slot of `record`, or 0 if the server has no slots. All keys of one request must have one slot. A server that is the
    /// endpoint of a cluster is recognised when it refuses the first such request.
    pub(crate) fn slot(&self, record: &str) -> u16 {
        match self.nodes.is_cluster() || self.many_slots.load(Ordering::Relaxed) {
            true => keys::slot(record),
            false => 0,
        }
    }

    /// The destination of a request for `record`.
    fn target(&self, record: &str) -> Target<'static> {
        Target::Slot(if self.nodes.is_cluster() { keys::slot(record) } else { 0 })
    }

    /// The time since which the server in the data epoch `data_epoch` has lost no write; `None` without a connection to such a server.
    pub(crate) fn unbroken_since(&self, data_epoch: u64) -> Option<Moment> {
        self.nodes.in_epoch(data_epoch).map(|live| live.since)
    }

    /// Waits until a connection has gone down or come up since the last call on this clone.
    pub(crate) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The supervisor has stopped, so nothing changes any more.
            std::future::pending().await
        }
    }

    /// Checks that enough replicas have the writes to `record` of the data epoch `data_epoch`.
    ///
    /// # Errors
    /// [`Error::NotReplicated`] if they do not; [`Error::Unavailable`] if the server does not report it.
    pub(crate) async fn check_replicas(&self, record: &str, data_epoch: u64) -> Result<()> {
        if self.replication.is_off() {
            return Ok(());
        }
        let unknown = |node: &str, reason: &str| Err(Error::unavailable(Phase::Acquire, node, reason));
        let Some(live) = self.nodes.in_epoch(data_epoch) else {
            return unknown(self.node(), "the connection was lost before replicas confirmed the lock");
        };
        let mut reached = live.replicas.reached(keys::wait_marker_key(record)).await;
        if reached == Reached::Elsewhere {
            // The record's slot is migrating, and accepts no new key here. A key of another slot of this master serves as well.
            for slot in self.nodes.other_slots(&live, record) {
                reached = live.replicas.reached(keys::wait_marker_key_in(slot)).await;
                if reached != Reached::Elsewhere {
                    break;
                }
            }
        }
        match reached {
            Reached::Enough => Ok(()),
            Reached::TooFew { acknowledged, needed } => {
                let (node, waited) = (live.node.to_string(), self.replication.within);
                Err(Error::NotReplicated { node, acknowledged, needed, waited })
            }
            Reached::Elsewhere | Reached::Unknown => unknown(
                &live.node,
                "it does not report which replicas have the lock: check that the user may run ROLE and WAIT",
            ),
        }
    }

    /// A task that checks that replicas have a release, and logs a warning if not. A failover may then restore the record until its
    /// lease ends. `None` if replicas are not checked.
    pub(crate) fn report_replicas(
        &self,
        record: &Arc<str>,
        data_epoch: u64,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        if self.replication.is_off() {
            return None;
        }
        let (this, record) = (self.clone(), record.clone());
        Some(async move {
            if let Err(error) = this.check_replicas(&record, data_epoch).await {
                warn!(lock = ?record, %error, "released, but replicas may not have the release");
            }
        })
    }

    /// The connection to the server of `record`, if it is up.
    pub(crate) fn route(&self, record: &str) -> Option<Route> {
        self.nodes.usable(self.target(record), NONE).ok().map(Route)
    }

    /// [`call_within`](Self::call_within) the response timeout.
    pub(crate) async fn call(&self, request: &mut Request) -> Result<Answer, Failure> {
        self.call_within(request, Limit::For(self.response_timeout)).await
    }

    /// Sends `request` until it gets a reply, within `limit`. An unanswered send is repeated, unless the request forbids it. A
    /// request that may not wait fails at once without a connection.
    pub(crate) async fn call_within(&self, request: &mut Request, limit: Limit) -> Result<Answer, Failure> {
        let mut call = Call::new(self, request, limit);
        loop {
            let (live, asking) = call.route().await?;
            let sent = call.now();
            call.check_age(sent, &live)?;
            match call.send(&live, sent, asking).await {
                Ok(Some(reply)) => return Ok(Answer::of(reply, sent, &live)),
                Ok(None) => call.request.go_by_script(),
                // Boxed, because it is large, and few calls need it.
                Err(class) => Box::pin(call.recover(class, &live, sent)).await?,
            }
        }
    }

    /// Waits for a connection to `target`, other than the one with the id `dead`.
    async fn up(&self, target: Target<'_>, dead: u64, until: Moment) -> Result<Arc<Live>, Absent> {
        let mut changes = self.changes.clone();
        loop {
            changes.borrow_and_update();
            let absent = match self.nodes.usable(target, dead) {
                Ok(live) => return Ok(live),
                Err(absent) => absent,
            };
            match time::timeout(until.remaining(), changes.changed()).await {
                Ok(Ok(())) => {}
                // The client is closed, or its runtime has ended.
                Ok(Err(_)) => return Err(absent),
                // The reason may have changed meanwhile.
                Err(_) => return self.nodes.usable(target, dead),
            }
        }
    }

    /// The public error for a failure.
    pub(crate) fn error(&self, failure: Failure, phase: Phase) -> Error {
        let node = failure.node.to_string();
        match failure.cause {
            Cause::Refused { code, message } | Cause::NotNow { code, message } => {
                Error::Refused { phase, node, code, message }
            }
            Cause::Unreachable(_) if self.changes.has_changed().is_err() => Error::Closed { phase },
            Cause::Unreachable(outage) => outage.error(phase, &node),
            Cause::NoAnswer { waited } => Error::TimedOut { phase, node, waited },
        }
    }

    /// The public error for a reply that cannot be decoded.
    pub(crate) fn protocol_error(&self, phase: Phase) -> Error {
        Self::protocol_error_of(self.node(), phase)
    }

    pub(super) fn protocol_error_of(node: &str, phase: Phase) -> Error {
        Error::Refused {
            phase,
            node: node.to_owned(),
            code: "PROTOCOL".into(),
            message: "the reply does not fit the request: check for a proxy between client and server".into(),
        }
    }

    /// Sends a request that only reads, or is harmless to repeat, and decodes its reply.
    pub(crate) async fn ask<T>(
        &self,
        mut request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
        phase: Phase,
    ) -> Result<T> {
        match self.call(&mut request).await {
            Ok(answer) => decoded(&answer.reply).map_err(|_| self.protocol_error(phase)),
            Err(failure) => Err(self.error(failure, phase)),
        }
    }
}
