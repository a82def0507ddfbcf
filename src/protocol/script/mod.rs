//! The table of scripts, one request for each thing that is asked of Redis, and the decoding of what comes back.
//!
//! A [`Request`] says with its arguments what it expects to find, so that sending it again is harmless; the one that
//! is not ([`force_unlock`]) says so by [`Request::repeat`] being refused.

mod fair;
mod group;
mod inspect;
mod lock;
mod read_write;
mod semaphore;
mod value;

pub(crate) use fair::*;
pub(crate) use group::*;
pub(crate) use inspect::*;
pub(crate) use lock::*;
pub(crate) use read_write::*;
pub(crate) use semaphore::*;
pub(crate) use value::*;

use std::any::Any;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A Lua script under `lua/`.
#[derive(Debug)]
pub(crate) struct Script {
    pub name: &'static str,
    pub source: &'static str,
    sha: OnceLock<String>,
    tells: OnceLock<bool>,
}

impl Script {
    /// The digest by which EVALSHA knows the script.
    pub(crate) fn sha(&self) -> &str {
        self.sha.get_or_init(|| sha1_smol::Sha1::from(self.source).digest().to_string())
    }

    /// What is said behind all arguments to a script that has to do with messages, where each of them is for the nodes of its
    /// slot alone: the command that sends such a message.
    pub(crate) fn sharded(&self) -> Option<&'static str> {
        self.tells.get_or_init(|| self.source.contains("'spublish'")).then_some("spublish")
    }
}

macro_rules! scripts {
    ($($ident:ident = $name:literal;)*) => {
        $(pub(crate) static $ident: Script =
            Script {
                name: $name,
                source: include_str!(concat!("../../../lua/", $name, ".lua")),
                sha: OnceLock::new(),
                tells: OnceLock::new(),
            };)*
        /// All of them, for what must hold for every script.
        #[cfg(any(test, fuzzing))]
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
    FENCED_ACQUIRE = "fenced_acquire";
    FENCED_MOVE = "fenced_move";
    FAIR_ACQUIRE = "fair_acquire";
    FAIR_RELEASE = "fair_release";
    FAIR_ABANDON = "fair_abandon";
    FAIR_KEEP = "fair_keep";
    FAIR_FORCE_UNLOCK = "fair_force_unlock";
    WRITE_ACQUIRE = "write_acquire";
    WRITE_RELEASE = "write_release";
    READ_ACQUIRE = "read_acquire";
    READ_EXTEND = "read_extend";
    READ_RELEASE = "read_release";
    READ_RENEW = "read_renew";
    RW_FORCE_UNLOCK = "rw_force_unlock";
    SEMAPHORE_ACQUIRE = "semaphore_acquire";
    SEMAPHORE_RELEASE = "semaphore_release";
    SEMAPHORE_SET = "semaphore_set";
    SEMAPHORE_ADD = "semaphore_add";
    SEMAPHORE_DRAIN = "semaphore_drain";
    PERMIT_ACQUIRE = "permit_acquire";
    PERMIT_RELEASE = "permit_release";
    PERMIT_RENEW = "permit_renew";
    PERMIT_FREE = "permit_free";
    LATCH_LOOK = "latch_look";
    LATCH_COUNT_DOWN = "latch_count_down";
    LATCH_SET = "latch_set";
    LATCH_DELETE = "latch_delete";
    VALUE_ACQUIRE = "value_acquire";
    VALUE_RELEASE = "value_release";
    VALUE_RENEW = "value_renew";
    VALUE_FORCE_UNLOCK = "value_force_unlock";
    GROUP_ACQUIRE = "group_acquire";
    GROUP_RELEASE = "group_release";
    GROUP_RENEW = "group_renew";
    GROUP_LOOK = "group_look";
    GROUP_FORCE_UNLOCK = "group_force_unlock";
    PROBE = "probe";
}

/// The words that scripts answer, as their heads and their code have them.
#[cfg(any(test, fuzzing))]
pub(crate) fn words() -> std::collections::BTreeSet<&'static str> {
    let quoted = |text: &'static str| text.split('\'').skip(1).step_by(2);
    let in_lists = ALL.iter().flat_map(|script| script.source.split('{').skip(1)).map(|rest| {
        let list = rest.split(['}', '\n']).next().unwrap_or_default();
        quoted(list).filter(|word| !word.is_empty() && word.bytes().all(|sign| sign.is_ascii_uppercase()))
    });
    in_lists.flatten().collect()
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
    /// See [`Request::outlasts`].
    kept: bool,
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
    /// `SET` makes the string with its expiry, if there is none.
    Set { value: Arc<str>, lease_ms: u64 },
    /// `MULTI`, what deletes, `PUBLISH`, `EXEC`.
    Transaction { delete: Delete, channel: Arc<str> },
}

#[derive(Debug)]
pub(crate) enum Delete {
    /// A field of the record.
    Field(Arc<str>),
    /// The record, if that is its value, where the server has a command for it.
    IfEqual(Arc<str>),
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
        Self {
            asked: Arc::new(Asked { verb, keys, args, repeat, shortcut }),
            repeated: false,
            direct,
            kept: false,
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

    /// What it gives back would be lost if it were given up, because no lease ends it: a server whose disk fails is asked
    /// again. (One out of memory accepts it.) Meanwhile nothing else of its lane is sent, because its number comes before
    /// theirs; but the server would refuse that, too, and each call ends by its own deadline.
    fn kept(mut self) -> Self {
        self.kept = true;
        self
    }

    /// Whether a refusal with that code is one for now only.
    pub(crate) fn outlasts(&self, code: &str) -> bool {
        self.kept && code == "MISCONF"
    }

    pub(crate) fn verb(&self) -> Verb {
        self.asked.verb
    }

    pub(crate) fn keys(&self) -> &[Arc<str>] {
        &self.asked.keys
    }

    /// What says which node it is for: its first key, or what a script without keys is told first.
    pub(crate) fn place(&self) -> &Arc<str> {
        match (&*self.asked.keys, &*self.asked.args) {
            ([key, ..], _) | ([], [Arg::Text(key), ..]) => key,
            _ => unreachable!("a request is about something"),
        }
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
    /// A word that says why not, and a number behind it, if there is one. What follows is in the way, see [`hindrance`].
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

/// A time to live: none where the record has no expiry.
fn ttl(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// What [`Way::Restore`] and [`Way::Set`] come to when they made the record.
pub(crate) fn restored() -> Reply {
    Reply::Int(1)
}

/// What [`Way::Transaction`] comes to when it deleted and told `subscribers`.
pub(crate) fn deleted(subscribers: i64) -> Reply {
    Reply::Int(subscribers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::keys::{GroupKeys, LockKeys, PermitKeys, QueueKeys, ReadWriteKeys};
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
            if !script.name.ends_with("_renew") {
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
        let queue = QueueKeys::new(LockKeys::new("k".into()).unwrap());
        let group = GroupKeys::new(LockKeys::new("k".into()).unwrap(), String::new(), uuid::Uuid::nil());
        let permits = PermitKeys::semaphore(LockKeys::new("k".into()).unwrap(), uuid::Uuid::nil());
        let rw = ReadWriteKeys::new(LockKeys::new("k".into()).unwrap());
        for request in [
            acquire(&k, &o, 1),
            acquire_fenced(&k, &k, &o, 1, 1),
            acquire_fair(&queue, &o, [1, 1, 1]),
            recount(&k, &o, 1, 2, 1),
            release(&k, &o, &k),
            release_silently(&k, &o, &k),
            release_fair(&queue, &o),
            hand_over(&k, &o, &o, 1, &k),
            hand_over_fenced([&k, &k], &o, &o, [1, 1], &k),
            abandon_fair(&queue, &o, 1),
            keep_fair(&queue, &[o.clone(), o.clone()], 1),
            force_unlock(&k, &k),
            force_unlock_fair(&queue),
            acquire_write(&rw, &o, 1, &o),
            release_write(&rw, &o),
            acquire_read(&rw, &o, 1, &o),
            extend_read(&rw, &o, 1),
            release_read(&rw, &o),
            force_unlock_read_write(&rw, Side::Read),
            take_permits(&permits, &o, 1),
            give_permits(&permits, 1, Some(&o)),
            set_permits(&permits, 1, 0),
            add_permits(&permits, 1, true),
            drain_permits(&permits),
            take_ids(&permits, &o, 1),
            give_ids(&permits, &o),
            free_permits(&permits),
            look(&permits),
            count_down(&permits),
            set_count(&permits, 1),
            delete_latch(&permits),
            take_values(&group, 1, &o, 1),
            give_values(&group, 1, &o, None),
            values_holder(&group, None),
            force_unlock_values(&group),
            acquire_value(&k, &o, 1),
            release_value(&k, &o, &k),
            force_unlock_value(&k, &k),
        ] {
            let Verb::Script(script) = request.verb() else { unreachable!() };
            let used = ["KEYS", "ARGV"].map(|what| indexes(script.source, what).len());
            let said = request.args().count() + usize::from(script.sharded().is_some());
            assert_eq!([request.keys().len(), said], used, "{}", script.name);
        }
    }

    /// Those that stand for a refusal, each in one of the forms that scripts give it.
    #[test]
    fn each_word_of_a_script_is_understood() {
        assert_eq!(words(), BTreeSet::from(["BUSY", "GONE", "MISMATCH", "OTHER", "OWN", "STALE"]));
        for word in words() {
            let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
            let forms = [
                vec![text(word)],
                vec![text(word), Reply::Int(1)],
                vec![text(word), Reply::Int(1), text("holder")],
            ];
            let understood = forms.map(Reply::List).iter().any(|reply| {
                acquired(reply).is_ok()
                    || recounted(reply).is_ok()
                    || released(reply).is_ok()
                    || handed_over(reply).is_ok()
            });
            assert!(understood, "{word}");
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
            assert_eq!(renewed(Renewal::Lock, reply, 1), Err(Undecodable));
        }
    }
}
