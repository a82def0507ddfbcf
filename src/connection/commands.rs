//! The rules by which a request is sent, and sent again.
//!
//! Invariants:
//! 3. A request whose fate is unknown is sent again only if it is harmless to repeat, and then says so
//!    ([`Request::repeated`]).
//! 6. Every call ends by its deadline, whatever the connection does.

use super::node::{Live, Shared, TransientRefusal};
use super::nodes::{Absent, Nodes, Target};
use super::redirects::Redirect;
use super::replicas::Reached;
use super::servers::Servers;
use super::{Backoff, Meaning, SubscriptionEndpoints, meaning};
use crate::config::options::{Options, Replication};
use crate::error::{Error, Phase, Result};
use crate::protocol::keys;
use crate::protocol::script::{Reply, Request, Undecodable, Verb};
use crate::runtime::clock::Moment;
use crate::runtime::in_place::{self, in_callers_hands};
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{select, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// The epoch of no connection.
const NONE: u64 = 0;
/// The code of a refusal of keys that are of several slots.
const CROSSED: &str = "CROSSSLOT";

/// A connection to the server that outlives its sockets. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    nodes: Nodes,
    name: Arc<str>,
    changes: watch::Receiver<()>,
    response_timeout: Duration,
    replication: Replication,
    /// A server that is named as one refused keys of several slots: it stands for the nodes of a cluster.
    many_slots: Arc<AtomicBool>,
}

/// How long a request is sent and sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    For(Duration),
    Until(Moment),
    /// The later of both.
    Longer(Moment, Duration),
}

impl Limit {
    fn end(self, now: Moment) -> Moment {
        match self {
            Self::For(time) => now + time,
            Self::Until(end) => end,
            Self::Longer(end, time) => end.max(now + time),
        }
    }
}

/// What came back for a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub reply: Reply,
    /// When the send that was answered began.
    pub sent: Moment,
    /// The life of the server's data in which it was answered.
    pub life: u64,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    node: Arc<str>,
    cause: Cause,
    /// A send of it went unanswered: it may have run, or may still run.
    pub unanswered: bool,
}

#[derive(Debug)]
enum Cause {
    Refused {
        code: String,
        message: String,
    },
    /// It says that it can't for now; nothing was done.
    NotNow {
        code: String,
        message: String,
    },
    Unreachable {
        reason: String,
    },
    NoAnswer {
        waited: Duration,
    },
}

impl Failure {
    /// The server's error code, where it refused for good.
    pub(crate) fn code(&self) -> Option<&str> {
        match &self.cause {
            Cause::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Of what was asked for together some is at another server for now. Each by itself may be had.
    pub(crate) fn is_torn(&self) -> bool {
        matches!(&self.cause, Cause::NotNow { code, .. } if code == "TRYAGAIN")
    }

    /// The request has keys of several slots. Nothing was done; a request for each slot may succeed.
    pub(crate) fn is_crossed(&self) -> bool {
        self.code() == Some(CROSSED)
    }
}

impl Connection {
    /// Connects, checks the server, and starts the supervisor on the current runtime.
    pub(crate) async fn connect(servers: &Servers, options: &Options) -> Result<(Self, JoinHandle<()>)> {
        let shared = Shared::new();
        let (nodes, keeper) = Nodes::connect(servers, options, &shared).await?;
        let (response_timeout, replication) = (options.response_timeout, options.replication());
        let (name, changes) = (servers.name().into(), shared.changes());
        let many_slots = Arc::default();
        Ok((Self { nodes, name, changes, response_timeout, replication, many_slots }, keeper))
    }

    pub(crate) fn node(&self) -> &str {
        &self.name
    }

    /// The name of the server of that record.
    pub(crate) fn node_of(&self, record: &str) -> Arc<str> {
        match self.nodes.usable(Target::Key(record), NONE) {
            Ok(live) => live.node,
            Err(absent) => absent.node,
        }
    }

    /// How long a single answer is waited for.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Whether there is a connection to the server of that record.
    pub(crate) fn is_up(&self, record: &str) -> bool {
        self.nodes.usable(Target::Key(record), NONE).is_ok()
    }

    /// What keeps requests for that record from an answer, and did since then.
    pub(crate) fn trouble(&self, record: &str, since: Moment, phase: Phase) -> Option<Error> {
        match self.nodes.usable(Target::Key(record), NONE) {
            Ok(live) => live.unwilling(since).map(|TransientRefusal { code, message, .. }| Error::Refused {
                phase,
                node: live.node.to_string(),
                code,
                message,
            }),
            Err(Absent { node, reason }) => {
                Some(Error::Unavailable { phase, node: node.to_string(), reason: reason.to_string() })
            }
        }
    }

    /// The life of the data of that record's server, while there is a connection to it.
    pub(crate) fn life(&self, record: &str) -> Option<u64> {
        self.nodes.usable(Target::Key(record), NONE).ok().map(|live| live.life)
    }

    /// Where the messages are heard of the nodes that `servers` leads to.
    pub(crate) fn places(&self, servers: &Servers) -> SubscriptionEndpoints {
        self.nodes.places(servers, self.changes.clone())
    }

    /// Whether what a message's sender is told, and what there is at the server, counts everyone who listens.
    pub(crate) fn knows_listeners(&self) -> bool {
        self.nodes.know_listeners()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.nodes.is_cluster()
    }

    /// What is asked for in one request has to be of one slot: 0 where there are none. One server may stand for the nodes of a
    /// cluster, which shows once it has refused a request.
    pub(crate) fn slot(&self, record: &str) -> u16 {
        match self.nodes.is_cluster() || self.many_slots.load(Ordering::Relaxed) {
            true => keys::slot(record),
            false => 0,
        }
    }

    /// Since when the server has lost nothing, as far as can be told, if it is in that life of its data.
    pub(crate) fn unbroken_since(&self, life: u64) -> Option<Moment> {
        self.nodes.living(life).map(|live| live.since)
    }

    /// Ends when the connection has gone down or come up again since the last call on this clone.
    pub(crate) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The supervisor is gone, and nothing will change any more.
            std::future::pending().await
        }
    }

    /// Whether enough replicas have what was written beside `record` in that life of its server's data.
    ///
    /// # Errors
    /// [`Error::NotReplicated`] if not; [`Error::Unavailable`] if nobody knows.
    pub(crate) async fn check_replicas(&self, record: &str, life: u64) -> Result<()> {
        if self.replication.is_off() {
            return Ok(());
        }
        in_place::settle().await;
        let unknown = |node: &str, reason: &str| {
            let (phase, node, reason) = (Phase::Acquire, node.to_owned(), reason.to_owned());
            Err(Error::Unavailable { phase, node, reason })
        };
        let Some(live) = self.nodes.living(life) else {
            return unknown(self.node(), "it was gone before its replicas were known to have the lock");
        };
        let mut reached = live.replicas.reached(keys::written(record)).await;
        if reached == Reached::Elsewhere {
            // The record's slot is on its way to another master, and nothing new is written there any more, or not yet.
            for slot in self.nodes.slots_beside(&live, record) {
                reached = live.replicas.reached(keys::of_slot(slot)).await;
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
            Reached::Elsewhere | Reached::Unknown => {
                unknown(&live.node, "it does not say which replicas have the lock")
            }
        }
    }

    /// Says in the log if replicas do not come to know of a release: a failover may undo that, and the record is there again
    /// until its lease ends.
    pub(crate) async fn report_replicas(&self, record: &Arc<str>, life: u64) {
        if self.replication.is_off() {
            return;
        }
        in_place::settle().await;
        let (this, record) = (self.clone(), record.clone());
        task::spawn(async move {
            if let Err(error) = this.check_replicas(&record, life).await {
                warn!(lock = ?record, %error, "released, but replicas may not know of it");
            }
        });
    }

    /// [`call_within`](Self::call_within) the response timeout.
    pub(crate) async fn call(&self, request: &mut Request) -> Result<Answer, Failure> {
        self.call_within(request, Limit::For(self.response_timeout)).await
    }

    /// Sends `request` until it is answered, within `limit`. A first send that went unanswered is repeated, unless
    /// the request forbids it. One that may not wait is answered at once where there is no connection.
    pub(crate) async fn call_within(&self, request: &mut Request, limit: Limit) -> Result<Answer, Failure> {
        let started = Moment::now();
        let until = limit.end(started);
        let patience = if request.may_wait() { until } else { started };
        if until.since(started) < self.response_timeout {
            in_place::settle().await;
        }
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));
        let (mut by_source, mut dead, mut first) = (false, NONE, Some(started));
        let (key, mut asked, mut redirects) = (request.place().clone(), None::<Redirect>, 0);
        loop {
            let unanswered = request.repeated;
            // Where it has moved to may be gone by now, and the slot at a third.
            let target = match &asked {
                Some(to) if to.ask || self.nodes.usable(Target::Asked(to), NONE).is_ok() => Target::Asked(to),
                _ => Target::Key(&key),
            };
            let live = match self.nodes.usable(target, dead) {
                Ok(live) => live,
                Err(_) => match self.up(target, dead, patience).await {
                    Ok(live) => {
                        first = None;
                        live
                    }
                    Err(Absent { node, reason }) => {
                        let cause = Cause::Unreachable { reason: reason.to_string() };
                        return Err(Failure { node, cause, unanswered });
                    }
                },
            };
            let (epoch, life, node) = (live.epoch, live.life, live.node.clone());
            let fail = |cause| Err(Failure { node: node.clone(), cause, unanswered });
            let sent = first.take().unwrap_or_else(Moment::now);
            let asking = matches!(target, Target::Asked(to) if to.ask);
            let exchange = live.link.clone().exchange(request, by_source, asking);
            let answer = async {
                select! {
                    biased;
                    answer = exchange => Some(answer),
                    () = live.ended() => None,
                }
            };
            // No timer in the hands of a caller: a connection that does not answer is ended by its heartbeat.
            let answer = if in_callers_hands() {
                Ok(answer.await)
            } else {
                time::timeout(self.response_timeout.min(until.remaining()), answer).await
            };
            let meaning = match answer {
                Ok(Some(Ok(Some(reply)))) => return Ok(Answer { reply, sent, life }),
                Ok(Some(Ok(None))) => {
                    request.go_by_script();
                    continue;
                }
                Ok(Some(Err(error))) => {
                    if error.is_unrecoverable_error() {
                        dead = epoch;
                    }
                    meaning(&error)
                }
                Ok(None) => {
                    dead = epoch;
                    Meaning::Unknown { reason: "the connection dropped".into() }
                }
                Err(_) => Meaning::Unknown { reason: "no answer".into() },
            };
            if !matches!(meaning, Meaning::NoScript) {
                asked = None;
            }
            match meaning {
                Meaning::Elsewhere(redirect) => {
                    let redirect = redirect.met_at(live.address.host());
                    let Redirect { slot, host, port, .. } = redirect.clone();
                    if !self.nodes.redirect(redirect.clone()) {
                        let message = format!(
                            "slot {slot} is at {host}:{port}: it is a node of a cluster; name it by redis-cluster://"
                        );
                        return fail(Cause::Refused { code: "MOVED".into(), message });
                    }
                    in_place::settle().await;
                    // A node may send us on that is not told yet of what it is sent for.
                    if redirects > 0 && time::timeout(patience.remaining(), backoff.wait()).await.is_err() {
                        let message = format!("slot {slot} is at {host}:{port}");
                        return fail(Cause::NotNow { code: "MOVED".into(), message });
                    }
                    redirects += 1;
                    asked = Some(redirect).filter(Redirect::is_to_somebody);
                    dead = NONE;
                }
                Meaning::NoScript => {
                    if let Verb::Script(script) = request.verb() {
                        debug!(script = script.name, "not known to the server: sending its source");
                    }
                    by_source = true;
                }
                Meaning::Refused { code, message } if !request.outlasts(&code) => {
                    if code == CROSSED && !self.many_slots.swap(true, Ordering::Relaxed) {
                        info!(%node, "the server has slots: requests for several locks are of one slot each from now on");
                    }
                    return fail(Cause::Refused { code, message });
                }
                Meaning::Refused { code, message } | Meaning::NotNow { code, message } => {
                    live.refused(&code, &message);
                    if code == "READONLY" || code == "CLUSTERDOWN" {
                        self.nodes.doubt(epoch);
                    }
                    in_place::settle().await;
                    if time::timeout(patience.remaining(), backoff.wait()).await.is_err() {
                        return fail(Cause::NotNow { code, message });
                    }
                }
                Meaning::Unknown { reason } => {
                    let cause = if dead == epoch {
                        Cause::Unreachable { reason }
                    } else {
                        Cause::NoAnswer { waited: Moment::now().since(started) }
                    };
                    let again = request.repeat();
                    if until.passed() || !again {
                        return Err(Failure { node, cause, unanswered: true });
                    }
                }
            }
        }
    }

    /// Waits for a connection other than the one of epoch `dead`.
    async fn up(&self, target: Target<'_>, dead: u64, until: Moment) -> Result<Live, Absent> {
        in_place::settle().await;
        let mut changes = self.changes.clone();
        loop {
            changes.borrow_and_update();
            let absent = match self.nodes.usable(target, dead) {
                Ok(live) => return Ok(live),
                Err(absent) => absent,
            };
            match time::timeout(until.remaining(), changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(Absent { reason: "the client is closed".into(), ..absent }),
                // The reason may be another by now.
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
            Cause::Unreachable { reason } => Error::Unavailable { phase, node, reason },
            Cause::NoAnswer { waited } => Error::TimedOut { phase, node, waited },
        }
    }

    /// The public error for an answer that fits no request of ours.
    pub(crate) fn strange(&self, phase: Phase) -> Error {
        Error::Refused {
            phase,
            node: self.node().to_owned(),
            code: "PROTOCOL".into(),
            message: "the answer does not fit the request".into(),
        }
    }

    /// A request of one send or more that only reads or that is harmless to repeat, with its decoded answer.
    pub(crate) async fn ask<T>(
        &self,
        mut request: Request,
        decoded: impl FnOnce(&Reply) -> Result<T, Undecodable>,
        phase: Phase,
    ) -> Result<T> {
        match self.call(&mut request).await {
            Ok(answer) => decoded(&answer.reply).map_err(|_| self.strange(phase)),
            Err(failure) => Err(self.error(failure, phase)),
        }
    }
}
