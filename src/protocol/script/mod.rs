//! The table of scripts, a constructor for each request to Redis, and the decoding of the replies.
//!
//! Most requests contain what they expect to find in the record, so they may be sent twice. A few, such as [`force_unlock`], must not be
//! sent twice, and refuse [`Request::repeat`].

mod client;
mod describe;
mod examine;
mod fair;
mod group;
mod inspect;
mod lock;
mod read_write;
mod semaphore;
mod value;

pub(crate) use client::*;
pub(crate) use describe::*;
pub(crate) use examine::*;
pub(crate) use fair::*;
pub(crate) use group::*;
pub(crate) use inspect::*;
pub(crate) use lock::*;
pub(crate) use read_write::*;
pub(crate) use semaphore::*;
pub(crate) use value::*;

use crate::runtime::clock::Moment;
use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A Lua script under `lua/`.
#[derive(Debug)]
pub(crate) struct Script {
    pub name: &'static str,
    pub source: &'static str,
    sha: OnceLock<String>,
    /// The script publishes messages or counts subscriptions.
    uses_channel: bool,
}

impl Script {
    /// The digest by which EVALSHA knows the script.
    pub(crate) fn sha(&self) -> &str {
        self.sha.get_or_init(|| sha1_smol::Sha1::from(self.source).digest().to_string())
    }

    /// The additional last argument, where messages are sharded: the command that publishes a sharded message. `None` for
    /// scripts that do not deal with messages.
    pub(crate) fn sharded(&self) -> Option<&'static str> {
        self.uses_channel.then_some("spublish")
    }
}

/// Declares the scripts. `channel` marks a script that publishes messages or counts subscriptions.
macro_rules! scripts {
    (@uses_channel) => { false };
    (@uses_channel channel) => { true };
    ($($ident:ident = $name:literal $($channel:ident)?;)*) => {
        $(pub(crate) static $ident: Script =
            Script {
                name: $name,
                source: include_str!(concat!("../../../lua/", $name, ".lua")),
                sha: OnceLock::new(),
                uses_channel: scripts!(@uses_channel $($channel)?),
            };)*
        /// All scripts.
        #[cfg(any(test, fuzzing))]
        pub(crate) static ALL: &[&Script] = &[$(&$ident),*];
    };
}

scripts! {
    LOCK_ACQUIRE = "lock_acquire";
    LOCK_RECOUNT = "lock_recount";
    LOCK_RELEASE = "lock_release" channel;
    LOCK_HAND_OFF = "lock_hand_off" channel;
    LOCK_RENEW = "lock_renew";
    LOCK_INSPECT = "lock_inspect" channel;
    LOCK_FORCE_UNLOCK = "lock_force_unlock" channel;
    FENCED_ACQUIRE = "fenced_acquire";
    FENCED_HAND_OFF = "fenced_hand_off" channel;
    FAIR_ACQUIRE = "fair_acquire";
    FAIR_RELEASE = "fair_release" channel;
    FAIR_HAND_OFF = "fair_hand_off" channel;
    FAIR_LEAVE = "fair_leave" channel;
    FAIR_REFRESH = "fair_refresh";
    FAIR_INSPECT = "fair_inspect";
    FAIR_FORCE_UNLOCK = "fair_force_unlock" channel;
    WRITE_ACQUIRE = "write_acquire";
    WRITE_RELEASE = "write_release" channel;
    READ_ACQUIRE = "read_acquire";
    READ_EXTEND = "read_extend";
    READ_RELEASE = "read_release" channel;
    READ_RENEW = "read_renew";
    READ_WRITE_FORCE_UNLOCK = "read_write_force_unlock" channel;
    SEMAPHORE_ACQUIRE = "semaphore_acquire";
    SEMAPHORE_RELEASE = "semaphore_release" channel;
    SEMAPHORE_RELEASE_EXISTING = "semaphore_release_existing" channel;
    SEMAPHORE_SET = "semaphore_set" channel;
    SEMAPHORE_ADD = "semaphore_add" channel;
    SEMAPHORE_DRAIN = "semaphore_drain";
    PERMIT_ACQUIRE = "permit_acquire" channel;
    PERMIT_RELEASE = "permit_release" channel;
    PERMIT_HAND_OFF = "permit_hand_off";
    PERMIT_RENEW = "permit_renew";
    PERMIT_LOOK = "permit_look" channel;
    PERMIT_SET = "permit_set" channel;
    LATCH_LOOK = "latch_look";
    LATCH_COUNT_DOWN = "latch_count_down" channel;
    LATCH_SET = "latch_set" channel;
    LATCH_DELETE = "latch_delete" channel;
    VALUE_ACQUIRE = "value_acquire";
    VALUE_RELEASE = "value_release" channel;
    VALUE_HAND_OFF = "value_hand_off" channel;
    VALUE_RENEW = "value_renew";
    VALUE_INSPECT = "value_inspect" channel;
    VALUE_FORCE_UNLOCK = "value_force_unlock" channel;
    GROUP_ACQUIRE = "group_acquire";
    GROUP_RELEASE = "group_release" channel;
    GROUP_RENEW = "group_renew";
    GROUP_LOOK = "group_look" channel;
    GROUP_FORCE_UNLOCK = "group_force_unlock" channel;
    COUNT_SUBSCRIPTIONS = "count_subscriptions" channel;
    RECORD_DESCRIBE = "record_describe" channel;
    PERMISSION_PROBE = "permission_probe" channel;
    PERMISSION_PROBE_ALL = "permission_probe_all" channel;
}

/// The words with which scripts refuse a request, collected from their heads and their code.
#[cfg(any(test, fuzzing))]
pub(crate) fn words() -> std::collections::BTreeSet<&'static str> {
    let quoted = |text: &'static str| text.split('\'').skip(1).step_by(2);
    let in_lists = ALL.iter().flat_map(|script| script.source.split('{').skip(1)).map(|rest| {
        let list = rest.split(['}', '\n']).next().unwrap_or_default();
        quoted(list).filter(|word| !word.is_empty() && word.bytes().all(|sign| sign.is_ascii_uppercase()))
    });
    in_lists.flatten().collect()
}

/// The command or script that a request runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Script(&'static Script),
    Command(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Text(Arc<str>),
    Bytes([u8; 16]),
    Number(u64),
    /// The time until this moment in ms, at least 1. A repeat has less left than the first send.
    Until(Moment),
    Literal(&'static str),
}

/// Whether and how a request may be sent a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// Unchanged: the request only reads, or has the same outcome both times.
    Free,
    /// With a last argument that says that there was an earlier send.
    Flagged,
    /// Unchanged, for this time after the first send. Later the server may have forgotten that send.
    For(Duration),
    /// Not at all.
    Never,
    /// Not at all, and the request does not wait for a connection either. The caller makes a new request of what still applies.
    Afresh,
}

/// A request to Redis, and the state of its sending. Cheap to clone, to make the same request again.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    parts: Arc<Parts>,
    /// When the first send began that was not answered.
    unanswered: Option<Moment>,
    /// The fast path, if the request has one, has not been tried yet.
    tries_fast_path: bool,
    /// See [`Request::outlasts`].
    outlasts_disk_errors: bool,
}

#[derive(Debug)]
struct Parts {
    verb: Verb,
    keys: Vec<Arc<str>>,
    args: Vec<Arg>,
    repeat: Repeat,
    fast_path: Option<FastPath>,
}

/// The fast path of a request: commands that do the work of its script at half the cost for the server.
///
/// The commands have the whole effect of the script or none. They have none where the script would refuse; then the script
/// runs, and its reply has the reason. Only a first send takes the fast path.
#[derive(Debug)]
pub(crate) struct FastPath {
    pub command: FastCommand,
    /// The type is erased, because only `connection` may name the types of the redis crate.
    packed: OnceLock<Box<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
pub(crate) enum FastCommand {
    /// `RESTORE` creates the record with its expiry, if no record exists.
    Restore { mode: Option<&'static str>, owner: Arc<str>, lease_ms: u64 },
    /// `SET` creates the string with its expiry, if none exists.
    Set { value: Arc<str>, lease_ms: u64 },
    /// `MULTI`, a deletion, `PUBLISH`, `EXEC`.
    Transaction { delete: Delete, channel: Arc<str> },
}

#[derive(Debug)]
pub(crate) enum Delete {
    /// Deletes this field of the record.
    Field(Arc<str>),
    /// Deletes the record if it has this value. Not every server has a command for it.
    IfEqual(Arc<str>),
}

impl FastPath {
    fn new(command: FastCommand) -> Option<Self> {
        Some(Self { command, packed: OnceLock::new() })
    }

    /// The encoded commands, which the connection builds once and keeps for further sends of the request. `None` if they were
    /// built as another type.
    pub(crate) fn packed<T: Any + Send + Sync>(&self, pack: impl FnOnce() -> T) -> Option<&T> {
        self.packed.get_or_init(|| Box::new(pack())).downcast_ref()
    }
}

impl Request {
    fn new(
        verb: Verb,
        keys: Vec<Arc<str>>,
        args: Vec<Arg>,
        repeat: Repeat,
        fast_path: Option<FastPath>,
    ) -> Self {
        let tries_fast_path = fast_path.is_some();
        Self {
            parts: Arc::new(Parts { verb, keys, args, repeat, fast_path }),
            unanswered: None,
            tries_fast_path,
            outlasts_disk_errors: false,
        }
    }

    fn script(script: &'static Script, key: &Arc<str>, args: Vec<Arg>, repeat: Repeat) -> Self {
        Self::with_keys(script, vec![key.clone()], args, repeat)
    }

    fn with_keys(script: &'static Script, keys: Vec<Arc<str>>, args: Vec<Arg>, repeat: Repeat) -> Self {
        Self::new(Verb::Script(script), keys, args, repeat, None)
    }

    fn read(command: &'static str, key: &Arc<str>, args: Vec<Arg>) -> Self {
        Self::new(Verb::Command(command), vec![key.clone()], args, Repeat::Free, None)
    }

    /// Makes the request outlast a failing disk of the server.
    ///
    /// It returns permits that no lease would end, so they would be lost if the request were given up. Meanwhile the key
    /// queue sends no other request, because their numbers would be higher; the server would refuse these requests, too, and
    /// every call ends by its own deadline. (A server out of memory accepts the request.)
    fn outlasting_disk_errors(mut self) -> Self {
        self.outlasts_disk_errors = true;
        self
    }

    /// Whether a refusal with this error code is temporary, so that the request is sent again.
    pub(crate) fn outlasts(&self, code: &str) -> bool {
        self.outlasts_disk_errors && code == "MISCONF"
    }

    pub(crate) fn verb(&self) -> Verb {
        self.parts.verb
    }

    pub(crate) fn keys(&self) -> &[Arc<str>] {
        &self.parts.keys
    }

    /// The key that decides which node gets the request: its first key, or the first argument of a script without keys.
    pub(crate) fn routing_key(&self) -> &Arc<str> {
        match (&*self.parts.keys, &*self.parts.args) {
            ([key, ..], _) | ([], [Arg::Text(key), ..]) => key,
            _ => unreachable!("every request has a key or a text argument"),
        }
    }

    /// The arguments for the next send.
    pub(crate) fn args(&self) -> impl Iterator<Item = &Arg> {
        let flagged = self.is_repeated() && self.parts.repeat == Repeat::Flagged;
        let last = self.parts.args.len().wrapping_sub(1);
        self.parts
            .args
            .iter()
            .enumerate()
            .map(move |(at, arg)| if flagged && at == last { &REPEATED } else { arg })
    }

    /// The fast path, if the request tries it first.
    pub(crate) fn fast_path(&self) -> Option<&FastPath> {
        self.parts.fast_path.as_ref().filter(|_| self.tries_fast_path)
    }

    /// From now on, sends run the script.
    pub(crate) fn go_by_script(&mut self) {
        self.tries_fast_path = false;
    }

    /// Whether an earlier send was not answered.
    pub(crate) fn is_repeated(&self) -> bool {
        self.unanswered.is_some()
    }

    /// Prepares another send after the one at `sent` was not answered. Returns false if the request must not be sent again.
    pub(crate) fn repeat(&mut self, sent: Moment) -> bool {
        self.unanswered.get_or_insert(sent);
        self.go_by_script();
        !matches!(self.parts.repeat, Repeat::Never | Repeat::Afresh)
    }

    /// Whether a send at `now` would repeat the request too late.
    pub(crate) fn is_stale(&self, now: Moment) -> bool {
        match (self.unanswered, self.parts.repeat) {
            (Some(sent), Repeat::For(time)) => now.since(sent) >= time,
            _ => false,
        }
    }

    /// Whether the request may wait for a connection, or for the server to become ready.
    pub(crate) fn may_wait(&self) -> bool {
        self.parts.repeat != Repeat::Afresh
    }
}

const FIRST: Arg = Arg::Literal("0");
static REPEATED: Arg = Arg::Literal("1");

/// A value that Redis returned, without types of the redis crate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    /// A type of value that no script or command of this library returns.
    Unsupported,
}

/// A reply that does not fit its request, such as that of a foreign script or a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable;

/// The reply of a script that changes a record.
enum Status<'a> {
    /// Success. The reply is a plain number, because that costs the server least.
    Done(i64),
    /// A refusal: a word, and sometimes a number. A third item is for [`blocking_owner_id`].
    Not(&'a [u8], Option<i64>),
}

impl Reply {
    fn int(&self) -> Result<i64, Undecodable> {
        match self {
            Self::Int(n) => Ok(*n),
            Self::Text(text) => {
                std::str::from_utf8(text).ok().and_then(|t| t.parse().ok()).ok_or(Undecodable)
            }
            _ => Err(Undecodable),
        }
    }

    fn status(&self) -> Result<Status<'_>, Undecodable> {
        match self {
            Self::Int(number) => Ok(Status::Done(*number)),
            Self::List(items) => match items.as_slice() {
                [Self::Text(word)] => Ok(Status::Not(word, None)),
                [Self::Text(word), number] | [Self::Text(word), number, Self::Text(_)] => {
                    Ok(Status::Not(word, Some(number.int()?)))
                }
                _ => Err(Undecodable),
            },
            _ => Err(Undecodable),
        }
    }
}

/// The remaining lifetime of a record, `None` if it never expires.
fn ttl(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The reply of [`FastCommand::Restore`] and [`FastCommand::Set`] if they created the record.
pub(crate) fn created_reply() -> Reply {
    Reply::Int(1)
}

/// The reply of [`FastCommand::Transaction`] if it deleted the record or field, and its message reached `subscribers`.
pub(crate) fn deleted_reply(subscribers: i64) -> Reply {
    Reply::Int(subscribers)
}

#[cfg(test)]
mod tests;
