//! The errors of this crate, grouped by the caller's remedy.
//!
//! A busy lock is not an error: `try_lock` then returns `Ok(None)`. No error text contains a password.

use crate::holder::Holder;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A result with this crate's [`Error`].
///
/// ```
/// use redisson_lock::{Client, Result};
///
/// async fn is_free(client: &Client, name: &str) -> Result<bool> {
///     Ok(!client.lock(name).is_locked().await?)
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The operation during which a call failed.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// use redisson_lock::{Error, Phase};
/// let guard = client.mutex("orders:42").lock().await?;
/// match guard.unlock().await {
///     Err(Error::Ambiguous { phase: Phase::Release, node, .. }) => println!("{node} may have released it"),
///     outcome => outcome?,
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Connecting, authenticating, or checking the server.
    Connect,
    /// Acquiring or re-entering a lock, taking permits, or waiting for a latch.
    Acquire,
    /// Releasing a lock or permits, or counting down a latch.
    Release,
    /// Renewing a lease.
    Renew,
    /// Reading the state of a lock, a semaphore or a latch.
    Inspect,
    /// Releasing a lock regardless of its holder.
    ForceUnlock,
    /// Creating a semaphore or a latch, deleting a latch, or changing the number of permits or a permit's lease.
    Adjust,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::Inspect => "inspect",
            Self::ForceUnlock => "force-unlock",
            Self::Adjust => "adjust",
        })
    }
}

/// The reason for the loss of a hold, as precisely as the client can know it.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// # use redisson_lock::{HoldState, LossReason};
/// let guard = client.mutex("orders:42").lock().await?;
/// if let HoldState::Lost(LossReason::DataLost) = guard.lost().await {
///     println!("the server restarted without its data");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lock was force-unlocked or expired, and then another owner acquired it. Or another program overwrote the record.
    Taken,
    /// The record disappeared before its lease ended: it was force-unlocked, deleted, or evicted.
    Gone,
    /// The record disappeared along with its server's data.
    ///
    /// The server was replaced or restarted, which its run id shows. If the user may not read the run id, the reason is
    /// [`Gone`](Self::Gone).
    DataLost,
    /// The lease ended according to this client's clock: a fixed lease, a lease that was not renewed in time, or the last one before the
    /// limit of [`with_max_hold`](crate::Lock::with_max_hold).
    Expired,
    /// The lease ended according to this client's clock, because the server was unreachable or did not answer when the renewal was due.
    ///
    /// The record may still exist.
    Unreachable,
}

impl LossReason {
    #[cfg(feature = "metrics")]
    pub(crate) const ALL: [Self; 5] =
        [Self::Taken, Self::Gone, Self::DataLost, Self::Expired, Self::Unreachable];

    /// Its name in metrics and traces.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Gone => "gone",
            Self::DataLost => "data_lost",
            Self::Expired => "expired",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taken => "another owner has the lock",
            Self::Gone => "the record is gone",
            Self::DataLost => "the server lost its data",
            Self::Expired => "the lease expired without a renewal",
            Self::Unreachable => "the lease expired while the server was unreachable",
        })
    }
}

/// The error type of this crate.
///
/// A service usually distinguishes these cases. It does not have to list variants:
///
/// | what happened | how it is reported | what a service does |
/// | --- | --- | --- |
/// | The lock is busy. | `Ok(None)`, not an error | Reply "409 Conflict", or try later. |
/// | Redis is down, slow, or not ready. | [`is_unavailable`](Self::is_unavailable) | Reply "503 Service Unavailable". |
/// | The hold was lost. | [`is_lost`](Self::is_lost) | Treat the work as unprotected: undo it, or do it again in a new hold. |
/// | The call is wrong. | [`is_misuse`](Self::is_misuse) | Reply "500 Internal Server Error", and correct the program. |
/// | The server refuses for good, or TLS fails. | the other errors | Reply "500 Internal Server Error", and correct the settings. |
///
/// If Redis is unavailable and the error [is retryable](Self::is_retryable), the same call may succeed later.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> u16 {
/// match client.mutex("orders:42").try_lock().await {
///     Ok(Some(_guard)) => 200,
///     Ok(None) => 409,
///     Err(error) if error.is_unavailable() => 503,
///     Err(_) => 500,
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The call or its arguments are invalid.
    ///
    /// It is returned before anything is sent. Exception: a reply may show that another client uses this client's UUID.
    #[non_exhaustive]
    Misuse {
        /// The mistake and its remedy.
        message: String,
    },
    /// The owner would wait for itself.
    ///
    /// It holds a lock that cannot be acquired twice, or it holds the read lock and requests the write lock. Nothing was changed.
    #[non_exhaustive]
    WouldDeadlock {
        /// The name of the lock.
        name: String,
        /// The kind of lock that was requested.
        kind: &'static str,
    },
    /// The server did not answer in time.
    ///
    /// The client undoes an acquire that the server may still execute. If the acquire arrives after that undo, the next waiter of this
    /// client undoes it, or the record expires with its lease.
    #[non_exhaustive]
    TimedOut {
        /// The operation that failed.
        phase: Phase,
        /// The server.
        node: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The server is unreachable.
    ///
    /// An acquire that the server may have executed is undone in the background, or ends with its lease. A guard's release continues in
    /// the background until it is confirmed or the lease has ended. The release of a [`SemaphorePermit`](crate::SemaphorePermit), which has
    /// no lease, continues until the client is closed, or for half an hour after the first send without an answer.
    #[non_exhaustive]
    Unavailable {
        /// The operation that failed.
        phase: Phase,
        /// The server.
        node: String,
        /// The reason, as far as known.
        reason: String,
        /// The I/O error that is the reason, if one is. [`source`](std::error::Error::source) returns it.
        source: Option<Arc<io::Error>>,
    },
    /// The client is closed, or its runtime has ended.
    ///
    /// After a release, the hold ends with its lease; the permits of a [`Semaphore`](crate::Semaphore), which have no lease, stay taken.
    #[non_exhaustive]
    Closed {
        /// The operation that failed.
        phase: Phase,
    },
    /// The TLS handshake failed, for example because one side does not trust the other's certificate.
    #[non_exhaustive]
    Untrusted {
        /// The server.
        node: String,
        /// The reason and the remedy.
        reason: String,
    },
    /// The server answered with an error.
    ///
    /// An acquire that the server may have executed is undone in the background, or ends with its lease. After a release, the hold ends
    /// with its lease; the permits of a [`Semaphore`](crate::Semaphore), which have no lease, stay taken.
    #[non_exhaustive]
    Refused {
        /// The operation that failed.
        phase: Phase,
        /// The server.
        node: String,
        /// The server's error code: `WRONGTYPE`, `NOPERM`, `OOM`, `WRONGPASS`, ...
        code: String,
        /// The rest of the server's message.
        message: String,
    },
    /// Too few replicas confirmed the acquire in time (see [`Replication`](crate::Replication)), so the lock is released again.
    #[non_exhaustive]
    NotReplicated {
        /// The master.
        node: String,
        /// The number of replicas that confirmed the acquire.
        acknowledged: u32,
        /// The number of replicas required.
        needed: u32,
        /// How long the call waited for the replicas.
        waited: Duration,
    },
    /// The call found that the hold is lost.
    ///
    /// Treat the work as unprotected.
    #[non_exhaustive]
    Lost {
        /// The name of the lock.
        name: String,
        /// The reason for the loss.
        reason: LossReason,
        /// The current holder, if the server answered in time.
        holder: Option<Holder>,
    },
    /// The hold was already known to be lost before the unlock.
    #[non_exhaustive]
    NotHeld {
        /// The name of the lock.
        name: String,
        /// The reason for the loss. `None` if an earlier unlock of the same hold has reported it.
        reason: Option<LossReason>,
        /// The current holder, if the server answered in time.
        holder: Option<Holder>,
    },
    /// The request was sent but not answered in time, so it may or may not have taken effect.
    ///
    /// A release is repeated in the background until it is confirmed or the lease has ended. A count-down and the release of a
    /// [`SemaphorePermit`](crate::SemaphorePermit) are repeated for half an hour after the first send without an answer. These requests are
    /// not repeated, because a repeat could affect a later holder, take effect twice, or return another answer: those of the phases
    /// `ForceUnlock` and `Adjust`, [`Semaphore::release_if_exists`](crate::Semaphore::release_if_exists), and
    /// [`ExpirableSemaphore::release`](crate::ExpirableSemaphore::release).
    #[non_exhaustive]
    Ambiguous {
        /// The operation that failed.
        phase: Phase,
        /// The server.
        node: String,
    },
}

impl Error {
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::Misuse { message: message.into() }
    }

    pub(crate) fn unavailable(phase: Phase, node: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unavailable { phase, node: node.into(), reason: reason.into(), source: None }
    }

    /// Returns why `node` is unavailable after this error of a connect, without its phase, and without the node if it is the same.
    pub(crate) fn reason_at(&self, at: &str) -> String {
        match self {
            Self::Unavailable { node, reason, .. } if node == at => reason.clone(),
            Self::Unavailable { node, reason, .. } => format!("{node}: {reason}"),
            Self::TimedOut { node, waited, .. } if node == at => format!("no answer within {waited:?}"),
            other => {
                let text = other.to_string();
                text.strip_prefix("connect: ").map_or(text.clone(), str::to_owned)
            }
        }
    }

    /// Returns the server's error code (`WRONGTYPE`, `NOPERM`, ..) if the server refused the request.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// Returns `true` if the lock is known to be no longer held.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::NotHeld { .. })
    }

    /// Returns `true` if no usable answer came from the servers: they are unreachable, slow, or not ready, or the client is closed.
    ///
    /// A server is not ready if its code is `LOADING`, `BUSY`, `TRYAGAIN`, `CLUSTERDOWN`, `MASTERDOWN`, `READONLY`, `NOREPLICAS`, `OOM` or
    /// `MISCONF`.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::TimedOut { .. }
            | Self::Unavailable { .. }
            | Self::Closed { .. }
            | Self::NotReplicated { .. }
            | Self::Ambiguous { .. } => true,
            Self::Refused { code, .. } => NOT_NOW.contains(&&**code) || ["OOM", "MISCONF"].contains(&&**code),
            _ => false,
        }
    }

    /// Whether a call that waits goes on after this error of one request: no answer came, or the server answers no such request now.
    pub(crate) fn is_temporary(&self) -> bool {
        match self {
            Self::TimedOut { .. } | Self::Unavailable { .. } => true,
            Self::Refused { code, .. } => NOT_NOW.contains(&&**code),
            _ => false,
        }
    }

    /// Returns `true` if the same call may succeed later, and repeating it is harmless.
    ///
    /// These are the errors of [`is_unavailable`](Self::is_unavailable), except [`Ambiguous`](Self::Ambiguous), after which the request may
    /// have taken effect, and [`Closed`](Self::Closed).
    pub fn is_retryable(&self) -> bool {
        self.is_unavailable() && !matches!(self, Self::Ambiguous { .. } | Self::Closed { .. })
    }

    /// Returns `true` if the program is at fault: [`Misuse`](Self::Misuse) and [`WouldDeadlock`](Self::WouldDeadlock).
    pub fn is_misuse(&self) -> bool {
        matches!(self, Self::Misuse { .. } | Self::WouldDeadlock { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let present = |f: &mut fmt::Formatter<'_>, holder: &Option<Holder>| match holder {
            Some(holder) => write!(f, "; now held by {holder}"),
            None => Ok(()),
        };
        match self {
            Self::Misuse { message } => write!(f, "misuse: {message}"),
            Self::WouldDeadlock { name, kind } => {
                write!(
                    f,
                    "a {kind} on `{}` would wait for a hold of the same owner: release that hold first, or use \
                     another owner",
                    name.escape_debug()
                )
            }
            Self::TimedOut { phase, node, waited } => {
                write!(f, "{phase}: no answer from {node} within {waited:?}")
            }
            Self::Unavailable { phase, node, reason, .. } => {
                write!(f, "{phase}: {node} is unavailable: {reason}")
            }
            Self::Closed { phase } => write!(f, "{phase}: the client is closed: connect a new one"),
            Self::Untrusted { node, reason } => write!(f, "connect: TLS with {node} failed: {reason}"),
            Self::Refused { phase, node, code, message } => {
                write!(f, "{phase}: {node} refused: {code} {message}")?;
                remedy(code, message).map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
            }
            Self::NotReplicated { node, acknowledged, needed, waited } => write!(
                f,
                "acquire: only {acknowledged} of {needed} replicas of {node} confirmed the lock within {waited:?}, so it is \
                 released: check the replicas, or require fewer with `ClientBuilder::replication`"
            ),
            Self::Lost { name, reason, holder } => {
                write!(f, "the hold on `{}` is lost: {reason}", name.escape_debug())?;
                present(f, holder)
            }
            Self::NotHeld { name, reason, holder } => {
                write!(f, "`{}` is not held by this guard", name.escape_debug())?;
                reason.map_or(Ok(()), |reason| write!(f, ": {reason}"))?;
                present(f, holder)
            }
            Self::Ambiguous { phase, node } => {
                write!(
                    f,
                    "{phase}: {node} did not confirm the request in time, so it may have taken effect: query the state before you repeat it"
                )
            }
        }
    }
}

/// The codes of a server that may serve the same request later.
pub(crate) const NOT_NOW: [&str; 7] =
    ["LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "NOREPLICAS"];

/// Returns the remedy for a refusal.
fn remedy(code: &str, message: &str) -> Option<&'static str> {
    Some(match code {
        "ERR" if message.contains("cluster support disabled") => {
            "the server is not a node of a cluster: use redis:// in place of redis-cluster://"
        }
        "NOAUTH" => {
            "set a password in the URL or with `ClientBuilder::credentials`; for sentinels use `sentinel_credentials` \
             (in a Redisson file `sentinelPassword`), or `share_credentials_with_sentinels` if they have the master's password"
        }
        "WRONGPASS" => {
            "check the user and password in the URL or from `ClientBuilder::credentials`, or those of sentinels from \
             `sentinel_credentials`"
        }
        "NOPERM" => {
            "grant the user the permissions that docs/deployment.md in this crate's package lists for this kind of lock"
        }
        "READONLY" | "MASTERDOWN" => "name the master, the sentinels or the cluster in the URL",
        "CLUSTERDOWN" => {
            "some slots have no master: bring one back, or set `cluster-require-full-coverage no` to use the other slots"
        }
        "WRONGTYPE" => "another program uses the name for a value of another type: use another name",
        "OOM" => "give the server more memory, or raise its `maxmemory`",
        "MISCONF" => "the server cannot write to its disk: repair the disk",
        "NOREPLICAS" => "check the replicas, or lower the server's `min-replicas-to-write`",
        _ => return None,
    })
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unavailable { source: Some(source), .. } => Some(&**source),
            _ => None,
        }
    }
}
