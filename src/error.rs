//! What can go wrong, told apart by what the caller can do about it.
//!
//! Busy is not an error: a contended `try_lock` is `Ok(None)`. No text here carries a password.

use std::fmt;
use std::time::Duration;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a call was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Connecting, authenticating, checking the server.
    Connect,
    /// Acquiring or re-entering a lock.
    Acquire,
    /// Releasing a hold.
    Release,
    /// Renewing a lease.
    Renew,
    /// Reading the state of a lock.
    Inspect,
    /// Freeing a lock whoever holds it.
    ForceUnlock,
    /// Making a semaphore or a latch, or changing how many permits there are.
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

/// Why a hold is lost, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Another owner has the record: the lock was force-unlocked, or it expired, and was taken.
    Taken,
    /// The record is gone before its lease ended: force-unlocked, deleted, or evicted.
    Gone,
    /// The record is gone, and so is the server that had it: the one that answers now is another, or was started anew,
    /// by its run id. (Where the user may not ask for that, the reason is [`Gone`](Self::Gone).)
    DataLost,
    /// The lease ended by this client's own clock: a fixed lease, or one that nobody renewed in time.
    Expired,
    /// The lease ended by this client's own clock, because the server could not be reached, or did not answer, when it
    /// was to be renewed. The record may be there still.
    Unreachable,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Taken => "another owner has the lock",
            Self::Gone => "the record is gone",
            Self::DataLost => "the server lost its data",
            Self::Expired => "the lease ended unrenewed",
            Self::Unreachable => "the lease ended while the server could not be reached",
        })
    }
}

/// Who holds a lock, as the record says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    owner: String,
    count: u64,
}

impl Holder {
    pub(crate) fn new(owner: String, count: u64) -> Self {
        Self { owner, count }
    }

    /// The owner as the record has it: `<client uuid>:<id>`. The id is that of a task, a thread, an explicit owner or the
    /// guard of a mutex. For a Java holder it is the Java thread's id.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The part of the owner before the first colon: the uuid of the holding client.
    pub fn client_id(&self) -> &str {
        self.owner.split(':').next().unwrap_or(&self.owner)
    }

    /// How often the owner holds the lock.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (count {})", self.owner.escape_debug(), self.count)
    }
}

/// The error of every fallible call of this crate.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The call or its arguments are wrong. Nothing was sent; but that another client uses this one's uuid is found
    /// only in a record.
    Misuse {
        /// What is wrong, and what to do instead.
        message: String,
    },
    /// The owner would wait for itself: it holds the lock, and this kind of lock can't be taken twice; or it holds the read
    /// lock and asks for the write lock. Nothing was done.
    WouldDeadlock {
        /// The lock.
        name: String,
        /// The kind of lock that was asked for.
        kind: &'static str,
    },
    /// No answer within the time allowed. An acquire that the server may still carry out is undone by the library. (One
    /// that a dead connection delivers even later is undone when a waiter of this client finds it, else by its lease.)
    TimedOut {
        /// What was being done.
        phase: Phase,
        /// The server.
        node: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The server can't be reached, or the client is closed. Nothing was done; an acquire that was sent before, and that
    /// the server may have carried out, is undone by the library.
    Unavailable {
        /// What was being done.
        phase: Phase,
        /// The server.
        node: String,
        /// Why, as far as known.
        reason: String,
    },
    /// The server and this client do not trust each other over TLS, so there is no connection.
    Untrusted {
        /// The server.
        node: String,
        /// Why, and what to do about it.
        reason: String,
    },
    /// The server answered with an error. Nothing was done; an acquire that was sent before, and that the server may
    /// have carried out, is undone by the library.
    Refused {
        /// What was being done.
        phase: Phase,
        /// The server.
        node: String,
        /// The server's error code: `WRONGTYPE`, `NOPERM`, `OOM`, `WRONGPASS`, ...
        code: String,
        /// The rest of the server's message.
        message: String,
    },
    /// The lock was taken, but too few replicas had that in time ([`Replication`](crate::Replication)), so it is given back.
    NotReplicated {
        /// The master.
        node: String,
        /// Replicas that had it.
        acknowledged: u32,
        /// Replicas that were asked for.
        needed: u32,
        /// How long they had.
        waited: Duration,
    },
    /// The hold turned out to be lost when it was used: what it guarded was not protected to the end.
    Lost {
        /// The lock.
        name: String,
        /// Why.
        reason: LossReason,
        /// Who holds the lock now, where that could be asked.
        holder: Option<Holder>,
    },
    /// An unlock of a hold that had already been told as lost, so it is not held.
    NotHeld {
        /// The lock.
        name: String,
        /// Who holds the lock now, where that could be asked.
        holder: Option<Holder>,
    },
    /// The request was sent and nothing came back in time, so it may or may not have taken effect. A release is
    /// repeated in the background until it is confirmed or the lease has ended; a force-unlock is not repeated,
    /// because a repeat could free a later holder's lock.
    Ambiguous {
        /// What was being done.
        phase: Phase,
        /// The server.
        node: String,
    },
}

impl Error {
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::Misuse { message: message.into() }
    }

    /// The server's error code (`WRONGTYPE`, `NOPERM`, ..), where the server refused.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// True where the lock is known not to be held any more.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::NotHeld { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = |f: &mut fmt::Formatter<'_>, holder: &Option<Holder>| match holder {
            Some(holder) => write!(f, "; now held by {holder}"),
            None => Ok(()),
        };
        match self {
            Self::Misuse { message } => write!(f, "misuse: {message}"),
            Self::WouldDeadlock { name, kind } => {
                write!(
                    f,
                    "a {kind} on `{}`, which the same owner holds: it would wait for itself",
                    name.escape_debug()
                )
            }
            Self::TimedOut { phase, node, waited } => {
                write!(f, "{phase}: no answer from {node} within {waited:?}")
            }
            Self::Unavailable { phase, node, reason } => {
                write!(f, "{phase}: {node} is unavailable: {reason}")
            }
            Self::Untrusted { node, reason } => write!(f, "connect: no trust in {node}: {reason}"),
            Self::Refused { phase, node, code, message } => {
                write!(f, "{phase}: {node} refused: {code} {message}")?;
                remedy(code).map_or(Ok(()), |remedy| write!(f, ": {remedy}"))
            }
            Self::NotReplicated { node, acknowledged, needed, waited } => write!(
                f,
                "acquire: {acknowledged} of {needed} replicas of {node} had the lock within {waited:?}"
            ),
            Self::Lost { name, reason, holder } => {
                write!(f, "the hold on `{}` is lost: {reason}", name.escape_debug())?;
                now(f, holder)
            }
            Self::NotHeld { name, holder } => {
                write!(f, "`{}` is not held by this guard", name.escape_debug())?;
                now(f, holder)
            }
            Self::Ambiguous { phase, node } => {
                write!(f, "{phase}: sent to {node} and never answered; it may have taken effect")
            }
        }
    }
}

/// What to do about a refusal.
fn remedy(code: &str) -> Option<&'static str> {
    Some(match code {
        "NOAUTH" => {
            "give a password in the URL or by `ClientBuilder::credentials`, that of sentinels by `sentinel_credentials` or, if it is the \
             master's, by `share_credentials_with_sentinels`"
        }
        "WRONGPASS" => {
            "check user and password in the URL or from `ClientBuilder::credentials`, those of sentinels from `sentinel_credentials`"
        }
        "NOPERM" => {
            "grant the user what docs/deployment.md in this crate's package lists for this kind of lock"
        }
        "READONLY" | "MASTERDOWN" => "name the master, or the sentinels or the cluster that know who it is",
        "CLUSTERDOWN" => {
            "slots are without a master: bring one back, or set `cluster-require-full-coverage no` for the locks of the others"
        }
        _ => return None,
    })
}

impl std::error::Error for Error {}
