//! The command connection: one multiplexed connection under a supervisor that reconnects it, and the rules by which a
//! request is sent again.
//!
//! Invariants:
//! 3. A request whose fate is unknown is sent again only if it is harmless to repeat, and then says so
//!    ([`Request::repeated`]). The old socket is closed before a new one is opened.
//! 6. Every call ends by its deadline, whatever the connection does.

use super::server::{self, Server};
use super::shortcuts::Shortcuts;
use super::{Address, Backoff, Meaning, meaning, told};
use crate::clock::Moment;
use crate::error::{Error, Phase, Result};
use crate::in_place::{self, in_callers_hands};
use crate::keys;
use crate::options::Options;
use crate::script::{Arg, Reply, Request, Undecodable, Verb};
use crate::sync::task::{self, JoinHandle};
use crate::sync::{select, time};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{debug, info, warn};

/// A connection to the server that outlives its sockets. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    node: Arc<str>,
    response_timeout: Duration,
    status: watch::Receiver<Status>,
}

#[derive(Clone, Debug)]
enum Status {
    Up(Live),
    Down { reason: Arc<str> },
}

#[derive(Clone, Debug)]
struct Live {
    /// Of the socket: each has its own.
    epoch: u64,
    /// Of the server's data, as far as can be told: grows when another server, or this one started anew, answers.
    life: u64,
    /// The server may have lost what was written before, and not what was written since.
    since: Moment,
    link: Link,
}

/// A connection, and what is permitted over it.
#[derive(Clone, Debug)]
struct Link {
    connection: MultiplexedConnection,
    shortcuts: Shortcuts,
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
}

impl Connection {
    /// Connects, checks the server, and starts the supervisor on the current runtime.
    pub(crate) async fn connect(address: Address, options: &Options) -> Result<(Self, JoinHandle<()>)> {
        let (link, server, driver) = open(&address, options).await?;
        let live = Live { epoch: 1, life: 1, since: Moment::now() - server.uptime, link };
        let mut supervisor = Supervisor {
            driver,
            server,
            epoch: live.epoch,
            life: live.life,
            since: live.since,
            status: watch::Sender::new(Status::Up(live)),
            address,
            options: options.clone(),
        };
        let this = Self {
            node: supervisor.address.node().into(),
            response_timeout: options.response_timeout,
            status: supervisor.status.subscribe(),
        };
        Ok((this, task::spawn(async move { supervisor.run().await })))
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// How long a single answer is waited for.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// Why there is no connection, while there is none.
    pub(crate) fn down(&self) -> Option<String> {
        match &*self.status.borrow() {
            Status::Up(_) => None,
            Status::Down { reason } => Some(reason.to_string()),
        }
    }

    /// Since when the server has lost nothing, as far as can be told, if it is in that life of its data.
    pub(crate) fn unbroken_since(&self, life: u64) -> Option<Moment> {
        match &*self.status.borrow() {
            Status::Up(live) if live.life == life => Some(live.since),
            _ => None,
        }
    }

    /// Ends when the connection has gone down or come up again since the last call on this clone.
    pub(crate) async fn changed(&mut self) {
        if self.status.changed().await.is_err() {
            // The supervisor is gone, and nothing will change any more.
            std::future::pending().await
        }
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
        let (mut by_source, mut dead, mut first) = (false, 0, Some(started));
        loop {
            let unanswered = request.repeated;
            let fail = |cause| Err(Failure { cause, unanswered });
            let usable = usable(&self.status.borrow(), dead);
            let Live { epoch, life, link, .. } = match usable {
                Ok(live) => live,
                Err(_) => match self.up(dead, patience).await {
                    Ok(live) => {
                        first = None;
                        live
                    }
                    Err(reason) => return fail(Cause::Unreachable { reason }),
                },
            };
            let sent = first.take().unwrap_or_else(Moment::now);
            let answer = link.exchange(request, by_source);
            // No timer in the hands of a caller: a connection that does not answer is ended by its heartbeat.
            let answer = if in_callers_hands() {
                Ok(answer.await)
            } else {
                time::timeout(self.response_timeout.min(until.remaining()), answer).await
            };
            let meaning = match answer {
                Ok(Ok(Some(reply))) => return Ok(Answer { reply, sent, life }),
                Ok(Ok(None)) => {
                    request.go_by_script();
                    continue;
                }
                Ok(Err(error)) => {
                    if error.is_unrecoverable_error() {
                        dead = epoch;
                    }
                    meaning(&error)
                }
                Err(_) => Meaning::Unknown { reason: "no answer".into() },
            };
            match meaning {
                Meaning::NoScript => {
                    if let Verb::Script(script) = request.verb() {
                        debug!(script = script.name, "not known to the server: sending its source");
                    }
                    by_source = true;
                }
                Meaning::Refused { code, message } if !request.outlasts(&code) => {
                    return fail(Cause::Refused { code, message });
                }
                Meaning::Refused { code, message } | Meaning::NotNow { code, message } => {
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
                        return Err(Failure { cause, unanswered: true });
                    }
                }
            }
        }
    }

    /// Waits for a connection other than the one of epoch `dead`.
    async fn up(&self, dead: u64, until: Moment) -> Result<Live, String> {
        in_place::settle().await;
        let mut status = self.status.clone();
        loop {
            let reason = match usable(&status.borrow_and_update(), dead) {
                Ok(live) => return Ok(live),
                Err(reason) => reason,
            };
            match time::timeout(until.remaining(), status.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err("the client is closed".into()),
                Err(_) => return Err(reason),
            }
        }
    }

    /// The public error for a failure.
    pub(crate) fn error(&self, failure: Failure, phase: Phase) -> Error {
        let node = self.node.to_string();
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
            node: self.node.to_string(),
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

/// The connection, if it is another than the one of epoch `dead`; or why there is none.
fn usable(status: &Status, dead: u64) -> Result<Live, String> {
    match status {
        Status::Up(live) if live.epoch != dead => Ok(live.clone()),
        Status::Up(_) => Err("the connection dropped".to_owned()),
        Status::Down { reason } => Err(reason.to_string()),
    }
}

/// Keeps a connection up.
struct Supervisor {
    driver: JoinHandle<()>,
    server: Server,
    epoch: u64,
    life: u64,
    since: Moment,
    status: watch::Sender<Status>,
    address: Address,
    options: Options,
}

impl Supervisor {
    async fn run(&mut self) {
        loop {
            let reason = self.until_broken().await;
            let node = self.address.node();
            warn!(node, reason, "connection lost");
            self.status.send_replace(Status::Down { reason: reason.into() });
            // The socket is closed once the driver is gone: nothing more of ours enters the old connection.
            self.driver.abort();
            while !self.driver.is_finished() {
                task::yield_now().await;
            }
            let link = self.reopen().await;
            info!(node = self.address.node(), epoch = self.epoch, life = self.life, "reconnected");
            let Self { epoch, life, since, .. } = *self;
            self.status.send_replace(Status::Up(Live { epoch, life, since, link }));
        }
    }

    /// Ends when the connection drops, or does not answer a PING in time: a half-open link tells nothing else.
    async fn until_broken(&mut self) -> &'static str {
        let Status::Up(Live { link: Link { mut connection, .. }, .. }) = self.status.borrow().clone() else {
            return "not connected";
        };
        let timeout = self.options.response_timeout;
        let heartbeat = async {
            loop {
                time::sleep((timeout / 4).min(Duration::from_secs(1))).await;
                let ping = redis::cmd("PING");
                match time::timeout(timeout, connection.send_packed_command(&ping)).await {
                    Ok(Err(error)) if error.is_unrecoverable_error() => return "the connection dropped",
                    Ok(_) => {}
                    Err(_) => return "no answer to a heartbeat",
                }
            }
        };
        select! {
            _ = &mut self.driver => "the connection dropped",
            reason = heartbeat => reason,
        }
    }

    async fn reopen(&mut self) -> Link {
        let mut backoff = Backoff::new(self.options.reconnect_min, self.options.reconnect_max);
        loop {
            match open(&self.address, &self.options).await {
                Ok((link, server, driver)) => {
                    self.driver = driver;
                    self.epoch += 1;
                    let known = server.run_id.is_some();
                    if !known || server.run_id != self.server.run_id {
                        // However long it has been running: it may be a replica that came in for another.
                        self.since = Moment::now();
                    }
                    if known && server.run_id != self.server.run_id {
                        warn!(node = self.address.node(), "the server is another, or was started anew");
                        self.life += 1;
                        self.server = server;
                    }
                    return link;
                }
                Err(error) => {
                    debug!(node = self.address.node(), %error, "could not reconnect");
                    self.status.send_replace(Status::Down { reason: error.to_string().into() });
                }
            }
            backoff.wait().await;
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A new connection, the server at its end, and the task that drives it.
async fn open(address: &Address, options: &Options) -> Result<(Link, Server, JoinHandle<()>)> {
    let until = Moment::now() + options.connect_timeout;
    let (connection, driver) = address.open(options).await?;
    let mut driver = Box::pin(driver);
    let meeting = async {
        let server = server::meet(connection.clone(), address.node(), until, options.connect_timeout).await?;
        let nobody = keys::nobodys();
        let probing = Shortcuts::probe(connection.clone(), &nobody);
        let shortcuts = time::timeout(until.remaining(), probing).await.unwrap_or_default();
        Ok::<_, Error>((server, shortcuts))
    };
    let (server, shortcuts) = select! {
        met = meeting => met?,
        () = &mut driver => {
            let (phase, node) = (Phase::Connect, address.node().to_owned());
            return Err(Error::Unavailable { phase, node, reason: "the connection dropped".into() });
        }
    };
    Ok((Link { connection, shortcuts }, server, task::spawn(driver)))
}

impl Link {
    /// Sends `request` once. `None` if its shortcut did nothing.
    async fn exchange(mut self, request: &Request, by_source: bool) -> Result<Option<Reply>, RedisError> {
        if let Some(shortcut) = request.shortcut() {
            return self.shortcuts.take(shortcut, &mut self.connection, &request.keys()[0]).await;
        }
        let command = encode(request, by_source);
        told(self.connection.send_packed_command(&command).await).map(|value| Some(decode(value)))
    }
}

fn encode(request: &Request, by_source: bool) -> Cmd {
    let mut command = match request.verb() {
        Verb::Command(name) => redis::cmd(name),
        Verb::Script(script) => {
            let mut command = redis::cmd(if by_source { "EVAL" } else { "EVALSHA" });
            command.arg(if by_source { script.source } else { script.sha() }).arg(request.keys().len());
            command
        }
    };
    for key in request.keys() {
        command.arg(key.as_bytes());
    }
    for arg in request.args() {
        match arg {
            Arg::Text(text) => command.arg(text.as_bytes()),
            Arg::Number(number) => command.arg(*number),
            Arg::Literal(text) => command.arg(*text),
        };
    }
    command
}

/// As it is written to the socket.
#[cfg(measuring)]
pub(crate) fn packed(request: &Request) -> Vec<u8> {
    encode(request, false).get_packed_command()
}

pub(super) fn decode(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(n) => Reply::Int(n),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) => Reply::Text(text.into_bytes()),
        Value::Array(items) => Reply::List(items.into_iter().map(decode).collect()),
        Value::Okay => Reply::Text(b"OK".to_vec()),
        _ => Reply::Strange,
    }
}
