//! The table of scripts, one request for each thing that is asked of Redis, and the decoding of what comes back.
//!
//! A [`Request`] says with its arguments what it expects to find, so that sending it again is harmless; the one that
//! is not ([`force_unlock`]) says so by [`Request::repeat`] being refused.

use crate::error::Holder;
use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A Lua script under `lua/`.
#[derive(Debug)]
pub(crate) struct Script {
    pub name: &'static str,
    pub source: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    /// The digest by which EVALSHA knows the script.
    pub(crate) fn sha(&self) -> &str {
        self.sha.get_or_init(|| sha1_smol::Sha1::from(self.source).digest().to_string())
    }
}

macro_rules! scripts {
    ($($ident:ident = $name:literal;)*) => {
        $(pub(crate) static $ident: Script =
            Script { name: $name, source: include_str!(concat!("../lua/", $name, ".lua")), sha: OnceLock::new() };)*
        /// All of them, for what must hold for every script.
        #[cfg(test)]
        pub(crate) static ALL: &[&Script] = &[$(&$ident),*];
    };
}

scripts! {
    LOCK_ACQUIRE = "lock_acquire";
    LOCK_RECOUNT = "lock_recount";
    LOCK_RELEASE = "lock_release";
    LOCK_MOVE = "lock_move";
    LOCK_RENEW = "lock_renew";
    LOCK_FORCE_UNLOCK = "lock_force_unlock";
    PROBE = "probe";
}

/// What is run on the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Script(&'static Script),
    Command(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) enum Arg {
    Text(Arc<str>),
    Number(u64),
    Literal(&'static str),
}

/// What a second send of a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// Nothing: it reads, or its outcome does not depend on it.
    Free,
    /// The last argument tells the script that there was an earlier send.
    Flagged,
    /// There must be no second send.
    Never,
    /// Whoever asked asks anew, for what is still so by then: nothing is waited for and nothing sent twice.
    Afresh,
}

/// One thing asked of Redis, and how far that has come. Cheap to clone: to ask for the same anew.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    asked: Arc<Asked>,
    /// An earlier send of it went unanswered.
    pub repeated: bool,
    /// Whether its shortcut, if it has one, is still to be tried.
    direct: bool,
}

#[derive(Debug)]
struct Asked {
    verb: Verb,
    keys: Vec<Arc<str>>,
    args: Vec<Arg>,
    repeat: Repeat,
    shortcut: Option<Shortcut>,
}

/// How a first send does without Lua what its script does, for half of what it costs the server. It does all of it or
/// nothing, and nothing where the script would refuse: then the script is run, and tells why.
#[derive(Debug)]
pub(crate) struct Shortcut {
    pub way: Way,
    packed: OnceLock<Box<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
pub(crate) enum Way {
    /// `RESTORE` makes the record with its expiry, if there is none.
    Restore { owner: Arc<str>, lease_ms: u64 },
    /// `MULTI`, `HDEL`, `PUBLISH`, `EXEC`.
    Transaction { owner: Arc<str>, channel: Arc<str> },
}

impl Shortcut {
    fn new(way: Way) -> Option<Self> {
        Some(Self { way, packed: OnceLock::new() })
    }

    /// What the connection makes of it once, and keeps for the next time it is asked for. Always of one type.
    pub(crate) fn packed<T: Any + Send + Sync>(&self, pack: impl FnOnce() -> T) -> &T {
        let packed = self.packed.get_or_init(|| Box::new(pack()));
        packed.downcast_ref().unwrap_or_else(|| unreachable!("a shortcut is packed as one type"))
    }
}

impl Request {
    fn new(
        verb: Verb,
        keys: Vec<Arc<str>>,
        args: Vec<Arg>,
        repeat: Repeat,
        shortcut: Option<Shortcut>,
    ) -> Self {
        let direct = shortcut.is_some();
        Self { asked: Arc::new(Asked { verb, keys, args, repeat, shortcut }), repeated: false, direct }
    }

    fn script(script: &'static Script, key: &Arc<str>, args: Vec<Arg>, repeat: Repeat) -> Self {
        Self::new(Verb::Script(script), vec![key.clone()], args, repeat, None)
    }

    fn read(command: &'static str, key: &Arc<str>, args: Vec<Arg>) -> Self {
        Self::new(Verb::Command(command), vec![key.clone()], args, Repeat::Free, None)
    }

    pub(crate) fn verb(&self) -> Verb {
        self.asked.verb
    }

    pub(crate) fn keys(&self) -> &[Arc<str>] {
        &self.asked.keys
    }

    /// The arguments for the next send.
    pub(crate) fn args(&self) -> impl Iterator<Item = &Arg> {
        let flagged = self.repeated && self.asked.repeat == Repeat::Flagged;
        let last = self.asked.args.len().wrapping_sub(1);
        self.asked
            .args
            .iter()
            .enumerate()
            .map(move |(at, arg)| if flagged && at == last { &REPEATED } else { arg })
    }

    /// What to try first.
    pub(crate) fn shortcut(&self) -> Option<&Shortcut> {
        self.asked.shortcut.as_ref().filter(|_| self.direct)
    }

    /// From now on only its script will do.
    pub(crate) fn go_by_script(&mut self) {
        self.direct = false;
    }

    /// Makes this the second send of a request whose first went unanswered. False where it must not be sent again.
    pub(crate) fn repeat(&mut self) -> bool {
        self.repeated = true;
        self.go_by_script();
        !matches!(self.asked.repeat, Repeat::Never | Repeat::Afresh)
    }

    /// Whether it may be sent later than it was asked for: when there is a connection, or the server is ready for it.
    pub(crate) fn may_wait(&self) -> bool {
        self.asked.repeat != Repeat::Afresh
    }
}

const FIRST: Arg = Arg::Literal("0");
static REPEATED: Arg = Arg::Literal("1");

/// A value that came back, free of the client crate's types.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    /// A kind of value that no script or command of ours returns.
    Strange,
}

/// A reply that does not fit its request: a foreign script or proxy answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable;

/// What a script that changes a record answers.
enum Status<'a> {
    /// A number alone, because that costs the server least.
    Done(i64),
    /// A word that says why not, and a number behind it, if there is one.
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
                [Self::Text(word), number] => Ok(Status::Not(word, Some(number.int()?))),
                _ => Err(Undecodable),
            },
            _ => Err(Undecodable),
        }
    }
}

/// A time to live: none where the record has no expiry.
fn ttl(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What [`Way::Restore`] comes to when it made the record.
pub(crate) fn restored() -> Reply {
    Reply::Int(1)
}

/// What [`Way::Transaction`] comes to when it deleted the field and told `subscribers`.
pub(crate) fn deleted(subscribers: i64) -> Reply {
    Reply::Int(subscribers)
}

/// Outcome of [`acquire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Taken,
    Busy(Option<Duration>),
    Stale(Option<Duration>),
}

/// The first hold of `owner`.
pub(crate) fn acquire(record: &Arc<str>, owner: &Arc<str>, lease_ms: u64) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Number(lease_ms), FIRST];
    let shortcut = Shortcut::new(Way::Restore { owner: owner.clone(), lease_ms });
    Request::new(Verb::Script(&LOCK_ACQUIRE), vec![record.clone()], args, Repeat::Flagged, shortcut)
}

pub(crate) fn acquired(reply: &Reply) -> Result<Acquired, Undecodable> {
    match reply.status()? {
        Status::Done(1) => Ok(Acquired::Taken),
        Status::Not(b"BUSY", Some(ms)) => Ok(Acquired::Busy(ttl(ms))),
        Status::Not(b"STALE", Some(ms)) => Ok(Acquired::Stale(ttl(ms))),
        _ => Err(Undecodable),
    }
}

/// Outcome of [`recount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recounted {
    Done,
    Gone,
    Other,
    /// The count in the record, if it is one.
    Mismatch(Option<u64>),
}

/// Changes the count of `owner` from `from` to `to`; the record lives at least `lease_ms` longer.
pub(crate) fn recount(record: &Arc<str>, owner: &Arc<str>, from: u64, to: u64, lease_ms: u64) -> Request {
    let args =
        vec![Arg::Text(owner.clone()), Arg::Number(from), Arg::Number(to), Arg::Number(lease_ms), FIRST];
    Request::script(&LOCK_RECOUNT, record, args, Repeat::Flagged)
}

pub(crate) fn recounted(reply: &Reply) -> Result<Recounted, Undecodable> {
    match reply.status()? {
        Status::Done(1) => Ok(Recounted::Done),
        Status::Not(b"GONE", None) => Ok(Recounted::Gone),
        Status::Not(b"OTHER", None) => Ok(Recounted::Other),
        Status::Not(b"MISMATCH", n) => Ok(Recounted::Mismatch(n.and_then(|n| u64::try_from(n).ok()))),
        _ => Err(Undecodable),
    }
}

/// Outcome of [`release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// How many subscribers the message reached.
    Freed(u64),
    Gone,
    Other,
}

/// The last release of `owner`.
pub(crate) fn release(record: &Arc<str>, owner: &Arc<str>, channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(owner.clone()), Arg::Text(channel.clone())];
    let shortcut = Shortcut::new(Way::Transaction { owner: owner.clone(), channel: channel.clone() });
    Request::new(Verb::Script(&LOCK_RELEASE), vec![record.clone()], args, Repeat::Free, shortcut)
}

pub(crate) fn released(reply: &Reply) -> Result<Released, Undecodable> {
    match reply.status()? {
        Status::Done(n) => Ok(Released::Freed(u64::try_from(n).map_err(|_| Undecodable)?)),
        Status::Not(b"GONE", None) => Ok(Released::Gone),
        Status::Not(b"OTHER", None) => Ok(Released::Other),
        _ => Err(Undecodable),
    }
}

/// Outcome of [`hand_over`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandedOver {
    /// How many subscriptions the channel has, where that can be known.
    Moved(Option<u64>),
    Gone,
    Other,
    Mismatch,
}

/// Moves the single hold of `from` to `to`.
pub(crate) fn hand_over(
    record: &Arc<str>,
    from: &Arc<str>,
    to: &Arc<str>,
    lease_ms: u64,
    channel: &Arc<str>,
) -> Request {
    let args = vec![
        Arg::Text(from.clone()),
        Arg::Text(to.clone()),
        Arg::Number(lease_ms),
        Arg::Text(channel.clone()),
        FIRST,
    ];
    Request::script(&LOCK_MOVE, record, args, Repeat::Flagged)
}

pub(crate) fn handed_over(reply: &Reply) -> Result<HandedOver, Undecodable> {
    match reply.status()? {
        Status::Done(n @ -1..) => Ok(HandedOver::Moved(u64::try_from(n).ok())),
        Status::Not(b"GONE", None) => Ok(HandedOver::Gone),
        Status::Not(b"OTHER", None) => Ok(HandedOver::Other),
        Status::Not(b"MISMATCH", None) => Ok(HandedOver::Mismatch),
        _ => Err(Undecodable),
    }
}

/// Outcome of [`renew`] for one hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Held,
    /// There is no record.
    Gone,
    /// Others hold the lock.
    Other,
    WrongType,
    /// The server refuses, for now: a replica, too few replicas, no room on its disk.
    Refused,
}

/// Renews a batch of (record, owner, lease in ms, 0 to only look).
pub(crate) fn renew(batch: impl IntoIterator<Item = (Arc<str>, Arc<str>, u64)>) -> Request {
    let (mut keys, mut args) = (Vec::new(), Vec::new());
    for (record, owner, lease_ms) in batch {
        keys.push(record);
        args.extend([Arg::Text(owner), Arg::Number(lease_ms)]);
    }
    Request::new(Verb::Script(&LOCK_RENEW), keys, args, Repeat::Afresh, None)
}

pub(crate) fn renewed(reply: &Reply, batch: usize) -> Result<Vec<Renewed>, Undecodable> {
    match reply {
        Reply::Int(all) if usize::try_from(*all) == Ok(batch) => Ok(vec![Renewed::Held; batch]),
        Reply::List(items) if items.len() == batch => items
            .iter()
            .map(|item| match item.int()? {
                1 => Ok(Renewed::Held),
                0 => Ok(Renewed::Gone),
                -1 => Ok(Renewed::WrongType),
                -2 => Ok(Renewed::Refused),
                -3 => Ok(Renewed::Other),
                _ => Err(Undecodable),
            })
            .collect(),
        _ => Err(Undecodable),
    }
}

/// Frees the record whoever holds it. Must not be sent twice.
pub(crate) fn force_unlock(record: &Arc<str>, channel: &Arc<str>) -> Request {
    Request::script(&LOCK_FORCE_UNLOCK, record, vec![Arg::Text(channel.clone())], Repeat::Never)
}

/// Finds out what the user may not do. No lock is named `record`.
pub(crate) fn probe(record: &Arc<str>, channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(record.clone()), Arg::Text(channel.clone())];
    Request::new(Verb::Script(&PROBE), Vec::new(), args, Repeat::Free, None)
}

/// The commands that [`probe`] found refused, each with the server's words.
pub(crate) fn refused(reply: &Reply) -> Result<Vec<(String, String)>, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let mut texts = Vec::new();
    for item in items {
        let Reply::Text(text) = item else { return Err(Undecodable) };
        texts.push(String::from_utf8_lossy(text).into_owned());
    }
    Ok(texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

pub(crate) fn exists(record: &Arc<str>) -> Request {
    Request::read("EXISTS", record, Vec::new())
}

/// Reply of [`exists`] and [`force_unlock`].
pub(crate) fn yes(reply: &Reply) -> Result<bool, Undecodable> {
    reply.int().map(|n| n == 1)
}

pub(crate) fn time_to_live(record: &Arc<str>) -> Request {
    Request::read("PTTL", record, Vec::new())
}

/// What a record's expiry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeToLive {
    Absent,
    Never,
    Left(Duration),
}

pub(crate) fn lives(reply: &Reply) -> Result<TimeToLive, Undecodable> {
    Ok(match reply.int()? {
        -2 => TimeToLive::Absent,
        ms => ttl(ms).map_or(TimeToLive::Never, TimeToLive::Left),
    })
}

pub(crate) fn hold_count(record: &Arc<str>, owner: &Arc<str>) -> Request {
    Request::read("HGET", record, vec![Arg::Text(owner.clone())])
}

pub(crate) fn counted(reply: &Reply) -> Result<u64, Undecodable> {
    match reply {
        Reply::Nil => Ok(0),
        reply => u64::try_from(reply.int()?).map_err(|_| Undecodable),
    }
}

pub(crate) fn holder(record: &Arc<str>) -> Request {
    Request::read("HGETALL", record, Vec::new())
}

pub(crate) fn held_by(reply: &Reply) -> Result<Option<Holder>, Undecodable> {
    match reply {
        Reply::List(items) => match items.as_slice() {
            [] => Ok(None),
            [Reply::Text(owner), count, ..] => Ok(Some(Holder::new(
                String::from_utf8_lossy(owner).into_owned(),
                u64::try_from(count.int()?).map_err(|_| Undecodable)?,
            ))),
            _ => Err(Undecodable),
        },
        _ => Err(Undecodable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The indexes n of `what[n]` in `text`.
    fn indexes(text: &str, what: &str) -> BTreeSet<String> {
        text.match_indices(&format!("{what}["))
            .map(|(at, found)| text[at + found.len()..].split(']').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn each_header_names_the_keys_and_arguments_that_are_used() {
        for script in ALL {
            let (header, code): (Vec<_>, Vec<_>) = script.source.lines().partition(|l| l.starts_with("--"));
            let (header, code) = (header.join("\n"), code.join("\n"));
            assert!(header.contains("Reply"), "{} tells no reply", script.name);
            // A batch walks KEYS instead of indexing it.
            if script.name != "lock_renew" {
                assert_eq!(indexes(&header, "KEYS"), indexes(&code, "KEYS"), "{}", script.name);
                assert_eq!(indexes(&header, "ARGV").len(), indexes(&code, "ARGV").len(), "{}", script.name);
            }
            assert_eq!(script.sha().len(), 40);
        }
        let on_disk = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/lua")).unwrap().count();
        assert_eq!(on_disk, ALL.len(), "a script under lua/ is missing in the table");
    }

    #[test]
    fn each_request_has_as_many_arguments_as_its_script_uses() {
        let (k, o): (Arc<str>, Arc<str>) = ("k".into(), "o".into());
        for request in [
            acquire(&k, &o, 1),
            recount(&k, &o, 1, 2, 1),
            release(&k, &o, &k),
            hand_over(&k, &o, &o, 1, &k),
            force_unlock(&k, &k),
        ] {
            let Verb::Script(script) = request.verb() else { unreachable!() };
            let used = indexes(script.source, "ARGV").len();
            assert_eq!((request.keys().len(), request.args().count()), (1, used), "{}", script.name);
        }
    }

    #[test]
    fn replies_that_do_not_fit_are_told_apart_and_never_panic() {
        let strange = [
            Reply::Nil,
            Reply::Int(-7),
            Reply::Text(b"TAKEN".to_vec()),
            Reply::List(vec![]),
            Reply::List(vec![Reply::Text(b"BUSY".to_vec())]),
            Reply::List(vec![Reply::Text(b"".to_vec()), Reply::Int(1)]),
            Reply::List(vec![Reply::Text(b"FREED".to_vec()), Reply::Int(1)]),
            Reply::List(vec![Reply::Nil, Reply::Strange]),
            Reply::Strange,
        ];
        for reply in &strange {
            assert_eq!(acquired(reply), Err(Undecodable));
            assert_eq!(recounted(reply), Err(Undecodable));
            assert_eq!(released(reply), Err(Undecodable));
            assert_eq!(handed_over(reply), Err(Undecodable));
            assert_eq!(renewed(reply, 1), Err(Undecodable));
        }
    }
}
