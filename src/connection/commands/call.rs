//! One call: a request on its way to a reply, in three steps that repeat.
//!
//! - `route` chooses the connection, and waits for it.
//! - `send` sends the request once, and classifies the reply.
//! - `recover` prepares the next send, or fails. It alone decides whether a send may be repeated (ARCHITECTURE invariant
//!   3), and `check_age` until when.

use super::{Absent, CROSSED, Cause, Connection, Failure, Limit, NONE};
use crate::connection::exchange::{Exchange, NoReply};
use crate::connection::node::Live;
use crate::connection::nodes::Target;
use crate::connection::pulse::Cut;
use crate::connection::redirects::Redirect;
use crate::connection::{ErrorClass, RetryDelay, classify};
use crate::protocol::script::{Reply, Request, Verb};
use crate::runtime::clock::Moment;
use crate::runtime::sync::time;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tracing::{debug, info, warn};

pub(super) struct Call<'a> {
    connection: &'a Connection,
    pub request: &'a mut Request,
    key: Arc<str>,
    started: Moment,
    /// The deadline of the call.
    until: Moment,
    /// The deadline for waiting until the server is ready.
    patience: Moment,
    backoff: RetryDelay,
    /// Send the script's source instead of its digest.
    by_source: bool,
    /// The id of a connection that has failed under this call.
    dead: u64,
    /// The redirect to follow.
    redirect: Option<Redirect>,
    redirected: bool,
    /// The last transient refusal or repeated redirect. It is the cause of the failure if the next send gets no answer.
    refusal: Option<Cause>,
    /// `started`, while it is still the current time, so that the first send need not read the clock.
    first: Option<Moment>,
}

impl<'a> Call<'a> {
    pub(super) fn new(connection: &'a Connection, request: &'a mut Request, limit: Limit) -> Self {
        let started = Moment::now();
        let until = limit.end(started);
        Self {
            connection,
            key: request.routing_key().clone(),
            started,
            until,
            patience: if request.may_wait() { until } else { started },
            request,
            backoff: RetryDelay::new(Duration::from_millis(2), Duration::from_millis(100)),
            by_source: false,
            dead: NONE,
            redirect: None,
            redirected: false,
            refusal: None,
            first: Some(started),
        }
    }

    pub(super) fn now(&mut self) -> Moment {
        self.first.take().unwrap_or_else(Moment::now)
    }

    /// The connection for the next send, and whether the send needs `ASKING`.
    pub(super) async fn route(&mut self) -> Result<(Arc<Live>, bool), Failure> {
        let nodes = &self.connection.nodes;
        // The node of an earlier redirect may be gone, and the slot at a third node.
        let target = match &self.redirect {
            Some(to) if to.ask || nodes.usable(Target::Redirected(to), NONE).is_ok() => {
                Target::Redirected(to)
            }
            _ => self.connection.target(&self.key),
        };
        let asking = matches!(target, Target::Redirected(to) if to.ask);
        if let Ok(live) = nodes.usable(target, self.dead) {
            return Ok((live, asking));
        }
        // Boxed, because it is large, and few calls wait here.
        match Box::pin(self.connection.up(target, self.dead, self.patience)).await {
            Ok(live) => {
                self.first = None;
                Ok((live, asking))
            }
            Err(Absent { node, outage }) => {
                let cause = Cause::Unreachable(outage);
                Err(Failure { node, cause, unanswered: self.request.is_repeated() })
            }
        }
    }

    /// # Errors
    /// If a repeat of the request `now` would be too late.
    pub(super) fn check_age(&self, now: Moment, live: &Live) -> Result<(), Failure> {
        if !self.request.is_stale(now) {
            return Ok(());
        }
        let node = &live.node;
        warn!(lock = ?self.key, %node, "a request is too old to be repeated, and it is unknown whether it took effect");
        Err(self.failure(live, Cause::NoAnswer { waited: now.since(self.started) }))
    }

    /// Sends the request once, `now`. `None` if its fast path did nothing.
    pub(super) async fn send(
        &mut self,
        live: &Arc<Live>,
        now: Moment,
        asking: bool,
    ) -> Result<Option<Reply>, ErrorClass> {
        let until = self.until.min(now + self.connection.response_timeout);
        let (live, request, by_source) = (live.clone(), self.request.clone(), self.by_source);
        let (exchange, answer) = Exchange { live, request, by_source, asking }.send(now, until).await;
        let unknown = |reason: &str| ErrorClass::Unknown { reason: reason.into() };
        let (ended, class) = match answer {
            Ok(reply) => return Ok(reply),
            Err(NoReply::Cut(Cut::Late)) => (false, unknown("no answer")),
            Err(NoReply::Cut(Cut::Ended)) => (true, unknown("the connection dropped")),
            Err(NoReply::Failed(error)) => (error.is_unrecoverable_error(), classify(&error)),
        };
        if ended {
            self.dead = exchange.live.id;
        }
        Err(class)
    }

    /// Prepares the next send after the one at `sent`, which failed.
    ///
    /// # Errors
    /// If the request must not be sent again.
    pub(super) async fn recover(
        &mut self,
        class: ErrorClass,
        live: &Live,
        sent: Moment,
    ) -> Result<(), Failure> {
        if !matches!(class, ErrorClass::NoScript) {
            self.redirect = None;
        }
        match class {
            ErrorClass::NoScript => {
                if let Verb::Script(script) = self.request.verb() {
                    debug!(script = script.name, "the server does not know the script: sending its source");
                }
                self.by_source = true;
                Ok(())
            }
            ErrorClass::Elsewhere(redirect) => self.follow(redirect, live).await,
            ErrorClass::Refused { code, message } if !self.request.outlasts(&code) => {
                if code == CROSSED && !self.connection.many_slots.swap(true, Ordering::Relaxed) {
                    let node = &live.node;
                    info!(%node, "the server has slots: requests for several locks are split by slot from now on");
                }
                Err(self.failure(live, Cause::Refused { code, message }))
            }
            ErrorClass::Refused { code, message } | ErrorClass::NotNow { code, message } => {
                self.wait_until_ready(code, message, live).await
            }
            ErrorClass::Unknown { reason } => self.repeat(reason, live, sent),
        }
    }

    async fn follow(&mut self, redirect: Redirect, live: &Live) -> Result<(), Failure> {
        let redirect = redirect.seen_at(live.address.host());
        let moved = format!("slot {} is at {}:{}", redirect.slot, redirect.host, redirect.port);
        let code = "MOVED".to_owned();
        if !self.connection.nodes.redirect(redirect.clone()) {
            let message = format!("{moved}: the server is a cluster node: use redis-cluster://");
            return Err(self.failure(live, Cause::Refused { code, message }));
        }
        // A second redirect may come from a node that does not know yet that it owns the slot.
        if self.redirected {
            self.back_off_after(Cause::NotNow { code, message: moved }, live).await?;
        }
        self.redirected = true;
        self.redirect = Some(redirect).filter(Redirect::has_host);
        self.dead = NONE;
        Ok(())
    }

    /// Waits after a transient refusal.
    async fn wait_until_ready(&mut self, code: String, message: String, live: &Live) -> Result<(), Failure> {
        live.note_refusal(&code, &message);
        if code == "READONLY" || code == "CLUSTERDOWN" {
            self.connection.nodes.doubt(live.id);
        }
        self.back_off_after(Cause::NotNow { code, message }, live).await
    }

    /// Marks the request as repeated after the send at `sent`, whose outcome is unknown.
    fn repeat(&mut self, reason: String, live: &Live, sent: Moment) -> Result<(), Failure> {
        let cause = if self.dead == live.id {
            Cause::Unreachable(reason.into())
        } else {
            let waited = Moment::now().since(self.started);
            self.refusal.take().unwrap_or(Cause::NoAnswer { waited })
        };
        let again = self.request.repeat(sent);
        match again && !self.until.passed() {
            true => Ok(()),
            false => Err(self.failure(live, cause)),
        }
    }

    /// Waits before the next send, and keeps the refusal in case that send gets no answer.
    ///
    /// # Errors
    /// The refusal, if the patience ends first.
    async fn back_off_after(&mut self, refusal: Cause, live: &Live) -> Result<(), Failure> {
        if time::timeout(self.patience.remaining(), self.backoff.wait()).await.is_err() {
            return Err(self.failure(live, refusal));
        }
        self.refusal = Some(refusal);
        Ok(())
    }

    fn failure(&self, live: &Live, cause: Cause) -> Failure {
        Failure { node: live.node.clone(), cause, unanswered: self.request.is_repeated() }
    }
}
