//! Checks that replicas have the writes to their master, by `WAIT` on a connection of its own: `WAIT` blocks every later command
//! on its connection.
//!
//! Callers that check at the same time share one `WAIT` (a group commit). `WAIT` counts the writes of its own connection, so
//! each caller first writes a key that expires at once. A replica that has this key also has all earlier writes.

use super::link::{self, Probing};
use super::{Address, ErrorClass, classify, into_server_error};
use crate::config::options::{Options, millis};
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::task::JoinHandle;
use crate::runtime::sync::{Handle, time};
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::warn;

/// The replicas of the server behind one connection.
pub(super) struct Replicas {
    master: Address,
    /// The run id of the server. A server with another run id at this address does not count.
    run_id: Option<String>,
    options: Arc<Options>,
    seen: Seen,
    /// See [`check_support`].
    supported: bool,
    waiting: Mutex<Waiting>,
    /// The runtime of the client.
    runtime: Handle,
}

/// Whether the server behind `connection` permits the commands that check its replicas. If the settings name no
/// number of replicas, a refusal is logged as a warning, once for each `warned`.
///
/// # Errors
/// [`Error::Refused`] if the server refuses and the settings name a number of replicas.
pub(super) async fn check_support(
    mut connection: MultiplexedConnection,
    node: &str,
    options: &Options,
    until: Moment,
    warned: &AtomicBool,
) -> Result<bool> {
    if options.replication().is_off() {
        return Ok(true);
    }
    let mut tries = redis::pipe();
    tries.cmd("ROLE").cmd("WAIT").arg(0).arg(1);
    let trying = time::timeout(until.remaining(), connection.send_packed_commands(&tries, 0, 2));
    // Without a reply, the first acquire finds out.
    let Ok(Ok(answers)) = trying.await else { return Ok(true) };
    let refused = ["ROLE", "WAIT"].into_iter().zip(answers).find_map(|(command, answer)| {
        let Value::ServerError(error) = answer else { return None };
        match classify(&error.into()) {
            // A replica knows the command, and may become a master.
            ErrorClass::Refused { message, .. } if message.contains("replica instances") => None,
            ErrorClass::Refused { code, message } => Some((command, code, message)),
            _ => None,
        }
    });
    let Some((command, code, message)) = refused else { return Ok(true) };
    if let Some(replicas) = options.replication().at_least {
        let message = format!(
            "{message}: `Replication::at_least({replicas})` needs {command}; allow the command, or turn the check off with \
             `Replication::at_least(0)`"
        );
        return Err(Error::Refused { phase: Phase::Connect, node: node.to_owned(), code, message });
    }
    if !warned.swap(true, Ordering::Relaxed) {
        warn!(
            node,
            command,
            error = message,
            "acquires are not checked with replicas, so a failover may lose locks: the server refuses the command; allow it, or \
             turn the check off with `ClientBuilder::replication(Replication::at_least(0))`"
        );
    }
    Ok(false)
}

/// When each server was last seen with a replica, also by connections that have ended since. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<HashMap<String, Moment>>>);

impl Seen {
    /// Whether `server` had a replica within `lease`. A replica that has just disconnected may be about to replace the master.
    fn had_replica(&self, server: &str, connected: bool, lease: Duration) -> bool {
        let (mut seen, now) = (self.0.lock(), Moment::now());
        seen.retain(|_, at| now.since(*at) < lease);
        if connected {
            seen.insert(server.to_owned(), now);
        }
        seen.contains_key(server)
    }
}

#[derive(Default)]
struct Waiting {
    callers: Vec<Caller>,
    /// A task serves the callers.
    serving: bool,
    link: Option<WaitLink>,
    /// The command connection has ended, so `link` is not kept.
    ended: bool,
}

/// The connection for `WAIT`, and the task that drives it.
struct WaitLink {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

/// The task that serves the callers. If it ends early, its drop ends the waits of the callers. It ends early with the runtime of the
/// client, which may be before its first poll.
struct Serving {
    replicas: Arc<Replicas>,
    done: bool,
}

struct Caller {
    key: Arc<str>,
    reply: oneshot::Sender<Reached>,
}

/// How far a write has been replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Enough,
    TooFew {
        acknowledged: u32,
        needed: u32,
    },
    /// The slot of the key belongs to another server, or is migrating there.
    Elsewhere,
    /// The server did not report it.
    Unknown,
}

impl Replicas {
    /// `supported` is the result of [`check_support`].
    pub(super) fn new(
        master: Address,
        run_id: Option<String>,
        options: &Arc<Options>,
        seen: Seen,
        supported: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            master,
            run_id,
            options: options.clone(),
            seen,
            supported,
            waiting: Mutex::default(),
            runtime: Handle::current(),
        })
    }

    /// How far the writes before this call have been replicated. `key` is written for `WAIT` to count, and has no other use.
    pub(super) async fn reached(self: &Arc<Self>, key: Arc<str>) -> Reached {
        if !self.supported {
            return Reached::Enough;
        }
        let (reply, answer) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting();
            waiting.callers.push(Caller { key, reply });
            !std::mem::replace(&mut waiting.serving, true)
        };
        if first {
            let serving = Serving { replicas: self.clone(), done: false };
            // The runtime of this caller may end before those of the others.
            self.runtime.spawn(serving.run());
        }
        answer.await.unwrap_or(Reached::Unknown)
    }

    /// The command connection has ended. Pending callers still get a reply.
    pub(super) fn end(&self) {
        let mut waiting = self.waiting();
        waiting.ended = true;
        waiting.link = None;
    }

    /// Serves callers, one group at a time, until none is left. Called by [`Serving`] only.
    async fn serve(&self) {
        loop {
            let (callers, link) = {
                let mut waiting = self.waiting();
                if waiting.callers.is_empty() {
                    waiting.serving = false;
                    return;
                }
                (std::mem::take(&mut waiting.callers), waiting.link.take())
            };
            let (link, outcome) = match self.ask_by(link, &callers).await {
                Some((link, outcome)) => (Some(link), outcome),
                // A failed connection may still deliver a late reply, so it is not used again.
                None => (None, vec![Reached::Unknown; callers.len()]),
            };
            for (caller, reached) in callers.into_iter().zip(outcome) {
                let _ = caller.reply.send(reached);
            }
            let mut waiting = self.waiting();
            waiting.link = link.filter(|_| !waiting.ended);
        }
    }

    /// Asks on the kept connection. If it was closed while idle, asks again on a new one. `None` if the server does not report.
    async fn ask_by(&self, kept: Option<WaitLink>, callers: &[Caller]) -> Option<(WaitLink, Vec<Reached>)> {
        if let Some(mut link) = kept
            && let Some(outcome) = self.ask(&mut link.connection, callers).await
        {
            return Some((link, outcome));
        }
        let mut link = self.open().await?;
        let outcome = self.ask(&mut link.connection, callers).await?;
        Some((link, outcome))
    }

    async fn open(&self) -> Option<WaitLink> {
        let (link, server, driver) = link::open(&self.master, &self.options, &mut Probing::Off).await.ok()?;
        let link = WaitLink { connection: link.connection, driver };
        (server.run_id == self.run_id).then_some(link)
    }

    /// One exchange with the server for a group of callers. `None` if the server does not report.
    async fn ask(&self, connection: &mut MultiplexedConnection, callers: &[Caller]) -> Option<Vec<Reached>> {
        // A server without replicas needs no writes.
        let expected = self.options.replication().at_least.is_some() || self.has_replicas(0);
        let (mut writes, mut needed) = self.write(connection, if expected { callers } else { &[] }).await?;
        if !expected && needed > 0 {
            (writes, needed) = self.write(connection, callers).await?;
        }
        if needed == 0 {
            return Some(vec![Reached::Enough; callers.len()]);
        }
        let reached = self.wait(connection, needed).await?;
        Some(writes.iter().map(|write| of_write(write, reached)).collect())
    }

    /// Writes the keys of `callers`. Returns the replies, and how many replicas are needed.
    async fn write(
        &self,
        connection: &mut MultiplexedConnection,
        callers: &[Caller],
    ) -> Option<(Vec<Value>, u32)> {
        let in_cluster = self.options.sharded.is_some();
        let mut asked = redis::pipe();
        for Caller { key, .. } in callers {
            if in_cluster {
                // The slot may be one that this node still imports.
                asked.cmd("ASKING");
            }
            asked.cmd("SET").arg(&**key).arg("").arg("PX").arg(1);
        }
        asked.cmd("ROLE");
        let each = 1 + usize::from(in_cluster);
        let asking = connection.send_packed_commands(&asked, 0, callers.len() * each + 1);
        let mut answers = time::timeout(self.options.response_timeout, asking).await.ok()?.ok()?;
        let connected = u32::try_from(replica_count(&answers.pop()?)?).unwrap_or(u32::MAX);
        let needed =
            self.options.replication().at_least.unwrap_or_else(|| u32::from(self.has_replicas(connected)));
        Some((answers.into_iter().skip(each - 1).step_by(each).collect(), needed))
    }

    /// Waits until `needed` replicas have the writes of this connection.
    async fn wait(&self, connection: &mut MultiplexedConnection, needed: u32) -> Option<Reached> {
        let within = self.options.replication().within;
        let mut wait = redis::cmd("WAIT");
        wait.arg(needed).arg(millis(within));
        let limit = within + self.options.response_timeout;
        let answer = time::timeout(limit, connection.send_packed_command(&wait)).await.ok()?;
        let Value::Int(acknowledged) = into_server_error(answer).ok()? else { return None };
        let acknowledged = u32::try_from(acknowledged).ok()?;
        Some(match acknowledged >= needed {
            true => Reached::Enough,
            false => Reached::TooFew { acknowledged, needed },
        })
    }

    fn has_replicas(&self, connected: u32) -> bool {
        let server = self.run_id.as_deref().unwrap_or(self.master.node());
        self.seen.had_replica(server, connected > 0, self.options.lease)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

impl Serving {
    async fn run(mut self) {
        self.replicas.serve().await;
        // From here on, another task may serve.
        self.done = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.done {
            let mut waiting = self.replicas.waiting();
            waiting.serving = false;
            let callers = std::mem::take(&mut waiting.callers);
            drop(waiting);
            // The callers wake without the lock.
            drop(callers);
        }
    }
}

/// How far one write has been replicated, if `reached` holds for all writes of the connection that succeeded.
fn of_write(reply: &Value, reached: Reached) -> Reached {
    match reply {
        Value::ServerError(error) => match classify(&error.clone().into()) {
            ErrorClass::Elsewhere(_) => Reached::Elsewhere,
            _ => Reached::Unknown,
        },
        _ => reached,
    }
}

/// The number of replicas in the reply to `ROLE`; `None` if the server is no master.
pub(super) fn replica_count(role: &Value) -> Option<usize> {
    let Value::Array(role) = role else { return None };
    match role.as_slice() {
        // Servers differ in whether an offset precedes the list of replicas, and some omit an empty list.
        [Value::BulkString(role), rest @ ..] if role == b"master" => match rest.last() {
            Some(Value::Array(replicas)) => Some(replicas.len()),
            _ => Some(0),
        },
        _ => None,
    }
}

impl Drop for WaitLink {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replicas").field(&self.master).finish()
    }
}
