//! Whether replicas have what was written to their master: `WAIT`, on a connection of its own, because it holds up whatever
//! comes behind it there.
//!
//! Everyone who wants to know at one time shares one `WAIT` (a group commit). It counts what its own connection wrote, so
//! each first writes a key that is gone at once; the replicas that have that have all that was written before it.

use super::{Address, Meaning, link, meaning, told};
use crate::config::options::{Options, Replication, millis};
use crate::error::{Error, Phase, Result};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{Mutex, MutexGuard, time};
use redis::Value;
use redis::aio::MultiplexedConnection;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::warn;

/// The replicas of one server, by one connection's reckoning.
pub(super) struct Replicas {
    master: Address,
    /// Another server at that address is not the one.
    run_id: Option<String>,
    options: Options,
    seen: Seen,
    /// See [`tell`].
    tell: bool,
    waiting: Mutex<Waiting>,
}

/// Whether the server at the other end of `connection` tells what its replicas have. Where it does not, and nobody asks for a
/// number of them, that is a warning; once, as `warned` says.
///
/// # Errors
/// [`Error::Refused`] where it does not, and a number of replicas is asked for.
pub(super) async fn tell(
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
    // Without an answer it is asked when it matters.
    let Ok(Ok(answers)) = trying.await else { return Ok(true) };
    let refused = ["ROLE", "WAIT"].into_iter().zip(answers).find_map(|(command, answer)| {
        let Value::ServerError(error) = answer else { return None };
        match meaning(&error.into()) {
            // It may become a master, and knows the command.
            Meaning::Refused { message, .. } if message.contains("replica instances") => None,
            Meaning::Refused { code, message } => Some((command, code, message)),
            _ => None,
        }
    });
    let Some((command, code, message)) = refused else { return Ok(true) };
    if let Some(replicas) = options.replication().at_least {
        let message = format!(
            "{message}: without {command} no lock can be checked with `Replication::at_least({replicas})`; allow the command, \
             or do without the check by `Replication::at_least(0)`"
        );
        return Err(Error::Refused { phase: Phase::Connect, node: node.to_owned(), code, message });
    }
    if !warned.swap(true, Ordering::Relaxed) {
        warn!(
            node,
            command,
            error = message,
            "acquires are not checked with replicas, and a failover may lose locks: the server refuses the command; if that is \
             intended, turn the check off by `ClientBuilder::replication(Replication::at_least(0))`"
        );
    }
    Ok(false)
}

/// When which servers were last seen with a replica, also by connections that have ended since. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<HashMap<String, Moment>>>);

impl Seen {
    /// Whether that server had one within `lease`. One that was there a moment ago may just be taking the master's place.
    fn lately(&self, server: &str, connected: bool, lease: Duration) -> bool {
        let (mut seen, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Moment::now());
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
    /// Somebody asks for them.
    asking: bool,
    link: Option<Waits>,
    /// Nobody is to need it any more, so it is not kept.
    ended: bool,
}

/// The connection that waits, and the task that drives it.
struct Waits {
    connection: MultiplexedConnection,
    driver: JoinHandle<()>,
}

struct Caller {
    key: Arc<str>,
    reply: oneshot::Sender<Reached>,
}

/// How far a write has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Enough,
    /// So many replicas have it, of so many that are needed.
    TooFew {
        acknowledged: u32,
        needed: u32,
    },
    /// The key is another server's, or about to be.
    Elsewhere,
    /// The server could not be asked.
    Unknown,
}

impl Replicas {
    /// Nobody can be asked unless the server [`tell`]s.
    pub(super) fn new(
        master: Address,
        run_id: Option<String>,
        options: &Options,
        seen: Seen,
        tell: bool,
    ) -> Arc<Self> {
        Arc::new(Self { master, run_id, options: options.clone(), seen, tell, waiting: Mutex::default() })
    }

    /// Whether enough replicas have what was written before this call. `key` is of no use to anybody.
    pub(super) async fn reached(self: &Arc<Self>, key: Arc<str>) -> Reached {
        if !self.tell {
            return Reached::Enough;
        }
        let (reply, answer) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting();
            waiting.callers.push(Caller { key, reply });
            !std::mem::replace(&mut waiting.asking, true)
        };
        if first {
            let this = self.clone();
            task::spawn(async move { this.serve().await });
        }
        answer.await.unwrap_or(Reached::Unknown)
    }

    /// The connection that they were met by has ended. Who asks yet is answered.
    pub(super) fn end(&self) {
        let mut waiting = self.waiting();
        waiting.ended = true;
        waiting.link = None;
    }

    /// Asks until nobody wants to know.
    async fn serve(&self) {
        loop {
            let (callers, link) = {
                let mut waiting = self.waiting();
                if waiting.callers.is_empty() {
                    waiting.asking = false;
                    return;
                }
                (std::mem::take(&mut waiting.callers), waiting.link.take())
            };
            let (link, outcome) = match self.ask_by(link, &callers).await {
                Some((link, outcome)) => (Some(link), outcome),
                // A connection that failed may still answer later, so it is not used again.
                None => (None, vec![Reached::Unknown; callers.len()]),
            };
            for (caller, reached) in callers.into_iter().zip(outcome) {
                let _ = caller.reply.send(reached);
            }
            let mut waiting = self.waiting();
            waiting.link = link.filter(|_| !waiting.ended);
        }
    }

    /// By the connection that was kept; if that was closed while nobody needed it, by a new one. `None` where the server does
    /// not say.
    async fn ask_by(&self, kept: Option<Waits>, callers: &[Caller]) -> Option<(Waits, Vec<Reached>)> {
        if let Some(link) = kept
            && let Some(outcome) = self.ask(&link.connection, callers).await
        {
            return Some((link, outcome));
        }
        let link = self.open().await?;
        let outcome = self.ask(&link.connection, callers).await?;
        Some((link, outcome))
    }

    async fn open(&self) -> Option<Waits> {
        let (link, server, driver) = link::open(&self.master, &self.options, &mut false).await.ok()?;
        let link = Waits { connection: link.connection, driver };
        (server.run_id == self.run_id).then_some(link)
    }

    /// `None` where the server does not say.
    async fn ask(&self, connection: &MultiplexedConnection, callers: &[Caller]) -> Option<Vec<Reached>> {
        let mut connection = connection.clone();
        let Replication { at_least, within } = self.options.replication();
        let (limit, in_cluster) = (self.options.response_timeout, self.options.sharded.is_some());
        // Where there are none, nothing is written for them.
        let mut write = at_least.is_some() || self.has_replicas(0);
        let (written, needed) = loop {
            let callers = if write { callers } else { &[] };
            let mut asked = redis::pipe();
            for Caller { key, .. } in callers {
                if in_cluster {
                    // The record may be here by that alone.
                    asked.cmd("ASKING");
                }
                asked.cmd("SET").arg(&**key).arg("").arg("PX").arg(1);
            }
            asked.cmd("ROLE");
            let each = 1 + usize::from(in_cluster);
            let asking = connection.send_packed_commands(&asked, 0, callers.len() * each + 1);
            let mut answers = time::timeout(limit, asking).await.ok()?.ok()?;
            let connected = u32::try_from(connected(&answers.pop()?)?).unwrap_or(u32::MAX);
            let needed = at_least.unwrap_or_else(|| u32::from(self.has_replicas(connected)));
            if write || needed == 0 {
                let written: Vec<_> = answers.into_iter().skip(each - 1).step_by(each).collect();
                break (written, needed);
            }
            write = true;
        };
        if needed == 0 {
            return Some(vec![Reached::Enough; callers.len()]);
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(needed).arg(millis(within));
        let answer = time::timeout(within + limit, connection.send_packed_command(&wait)).await.ok()?;
        let Value::Int(acknowledged) = told(answer).ok()? else { return None };
        let acknowledged = u32::try_from(acknowledged).ok()?;
        let reached = match acknowledged >= needed {
            true => Reached::Enough,
            false => Reached::TooFew { acknowledged, needed },
        };
        let of = |written: &Value| match written {
            Value::ServerError(error) => match meaning(&error.clone().into()) {
                Meaning::Elsewhere(_) => Reached::Elsewhere,
                _ => Reached::Unknown,
            },
            _ => reached,
        };
        Some(written.iter().map(of).collect())
    }

    fn has_replicas(&self, connected: u32) -> bool {
        let server = self.run_id.as_deref().unwrap_or(self.master.node());
        self.seen.lately(server, connected > 0, self.options.lease)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many replicas a server has by its answer to `ROLE`; `None` where it does not say that it is a master.
pub(super) fn connected(role: &Value) -> Option<usize> {
    let Value::Array(role) = role else { return None };
    match role.as_slice() {
        // Where an offset stands before the replicas differs between servers, and some leave out what is empty.
        [Value::BulkString(role), rest @ ..] if role == b"master" => match rest.last() {
            Some(Value::Array(replicas)) => Some(replicas.len()),
            _ => Some(0),
        },
        _ => None,
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replicas").field(&self.master).finish()
    }
}
