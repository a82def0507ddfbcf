//! What a kind of lock tells the engine about itself: its names, its requests, its manner. A kind has no loop, no I/O and
//! no state of a hold.

use crate::config::options::BackOff;
use crate::error::{Error, Holder};
use crate::owner::{self, OwnerId};
use crate::protocol::script::{self, Renewal, Reply, Request, TimeToLive, Undecodable};
use std::fmt;
use std::sync::Arc;

/// Names a lane within a client. The parts are compared one by one: a name may contain any character, so a text joined
/// of them may equal the name of another record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueKey {
    /// All that changes the record of this key.
    Record(Arc<str>),
    /// What one owner does to a record as a reader.
    Reader(Arc<OwnersPart>),
    /// What one owner does to the values of a group in a record.
    Group(Arc<OwnersPart>),
}

/// Behind one pointer, so that the key of a whole record stays small: most are.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnersPart {
    pub record: Arc<str>,
    /// The id in the owner's texts, whatever the era.
    pub owner: Box<str>,
}

impl QueueKey {
    pub(crate) fn reader(record: &Arc<str>, text: &str) -> Self {
        Self::Reader(OwnersPart::new(record, text))
    }

    pub(crate) fn group(record: &Arc<str>, text: &str) -> Self {
        Self::Group(OwnersPart::new(record, text))
    }

    /// The key of the record.
    pub(crate) fn record(&self) -> &Arc<str> {
        match self {
            Self::Record(record) => record,
            Self::Reader(part) | Self::Group(part) => &part.record,
        }
    }
}

impl OwnersPart {
    /// Of the owner whom `text` names.
    fn new(record: &Arc<str>, text: &str) -> Arc<Self> {
        Arc::new(Self { record: record.clone(), owner: owner::id(text).into() })
    }
}

/// One kind of lock, with its names.
pub(crate) trait LockKind: Send + Sync + 'static {
    fn manner(&self) -> &'static KindTraits;
    /// The key of the record.
    fn record(&self) -> &Arc<str>;
    /// What `owner` does goes through this lane, one request after the other: by default, all that changes one record.
    fn lane(&self, _owner: &OwnerId) -> QueueKey {
        QueueKey::Record(self.record().clone())
    }
    /// The part of the record that it takes, of a kind that does not take the whole.
    fn part(&self) -> Option<Arc<str>> {
        None
    }
    /// The lane of the owner whom a text found in the record names.
    fn lane_of(&self, _text: &str) -> QueueKey {
        QueueKey::Record(self.record().clone())
    }
    /// The lane of what `owner` may hold beside this and has to be known here: a reader's write hold, and the reverse.
    fn partner(&self, _owner: &OwnerId) -> Option<QueueKey> {
        None
    }
    /// How the record names an owner whose text is `text`.
    fn text(&self, text: Arc<str>) -> Arc<str> {
        text
    }
    /// The owner that a text of [`text`](Self::text) names.
    fn owner<'a>(&self, text: &'a str) -> &'a str {
        text
    }
    /// Where whoever waits under `text` is told of a release, if anywhere.
    fn channel(&self, text: &Arc<str>) -> Option<Arc<str>>;
    /// When to look again at a busy lock, for those who may be told of no release.
    fn poll(&self) -> Option<BackOff> {
        None
    }
    /// The first hold of an owner.
    fn acquire(&self, ask: &Ask<'_>) -> Request;
    /// A change of the count of an owner who goes on holding. Only of kinds that are taken more than once.
    fn recount(&self, _owner: &Arc<str>, _from: u64, _to: u64, _lease_ms: u64) -> Option<Request> {
        None
    }
    /// The last release of an owner.
    fn release(&self, owner: &Arc<str>) -> Request;
    /// The hand-off from an owner to another. Only of kinds that are handed on.
    fn hand_over(&self, _from: &Arc<str>, _to: &Arc<str>, _lease_ms: u64) -> Option<Request> {
        None
    }
    /// Takes whoever waits under `text` out of Redis' queue. Only of kinds that have one.
    fn abandon(&self, _text: &Arc<str>) -> Option<Request> {
        None
    }
    /// Refreshes the scores of the waiters `texts` in Redis' queue. Only for kinds that have one.
    fn keep(&self, _texts: &[Arc<str>]) -> Option<Request> {
        None
    }
    /// Frees the record whoever holds it. Only of kinds that have an owner.
    fn force_unlock(&self) -> Option<Request> {
        None
    }
    /// Makes sure that nothing of an acquire under `text` stays, whatever became of it. Also of a text of another kind that
    /// may be found in the record.
    fn undo(&self, text: &Arc<str>) -> Request {
        self.release(text)
    }
    /// Asks who holds it.
    fn holder(&self) -> Request {
        script::holder(self.record())
    }
    fn held_by(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        script::held_by(reply)
    }
    /// Asks how often an owner holds it.
    fn hold_count(&self, owner: &Arc<str>) -> Request {
        script::hold_count(self.record(), owner)
    }
    fn counted(&self, _owner: &str, reply: &Reply) -> Result<u64, Undecodable> {
        script::counted(reply)
    }
    /// All whom a look at the holder names.
    fn holders(&self, reply: &Reply) -> Vec<Holder> {
        self.held_by(reply).ok().flatten().into_iter().collect()
    }
    /// What a look at the holder says to those who wait: `None` if there is something for them.
    fn glanced(&self, reply: &Reply) -> Result<Option<Holder>, Undecodable> {
        self.held_by(reply)
    }
    /// Asks whether anyone holds it.
    fn is_locked(&self) -> Request {
        script::exists(self.record())
    }
    fn locked(&self, reply: &Reply) -> Result<bool, Undecodable> {
        script::yes(reply)
    }
    /// Asks how long the lease lasts that it is held with.
    fn time_to_live(&self) -> Request {
        script::time_to_live(self.record())
    }
    fn lives(&self, reply: &Reply) -> Result<TimeToLive, Undecodable> {
        script::lives(reply)
    }
    /// The keys that are renewed for a hold.
    fn renewed_keys(&self, _owner: &Arc<str>, keys: &mut Vec<Arc<str>>) {
        keys.push(self.record().clone());
    }
}

impl fmt::Debug for dyn LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.manner().name, self.record())
    }
}

impl dyn LockKind {
    /// Whether a hold of this one may be handed on to a waiter of `other`, who is at the same lane.
    pub(crate) fn passes_to(&self, other: &dyn LockKind) -> bool {
        self.manner().passes_to(other.manner())
    }
}

/// What an acquire is asked with.
pub(crate) struct Ask<'a> {
    /// The owner as the record is to name it.
    pub text: &'a Arc<str>,
    pub lease_ms: u64,
    pub waiting: Waiting,
    /// The owner's text at its [`LockKind::partner`], if it holds that.
    pub partner: Option<Arc<str>>,
}

/// How far the waiter of an acquire is known to Redis, if its kind has a queue there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It does not wait: one attempt.
    No,
    /// It is not in the queue yet.
    New,
    /// It was put there before.
    Queued,
}

/// How a kind behaves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KindTraits {
    /// As its users call it.
    pub name: &'static str,
    /// An owner who holds it may take it again.
    pub reentrant: bool,
    /// Passes from waiter to waiter of a client, see `release`.
    pub handed_on: bool,
    /// Also ahead of the record, see `pipelined`.
    pub pipelined: bool,
    /// Redis has the order of its waiters, and each of them is to be known there.
    pub queued: bool,
    /// A look at who holds it tells, for less than an attempt costs, whether to attempt.
    pub glances: bool,
    pub access: Access,
    /// The record names an owner.
    pub owned: bool,
    /// Each hold has a number of its own, which the acquire and the hand-off answer.
    pub fenced: bool,
    /// The record counts the levels of a hold. Else it has a 1, and only the client counts.
    pub counts: bool,
    /// What keeps its holds alive.
    pub renewal: Renewal,
    /// Others may shorten the record's life. So also a fixed lease is kept up, and an acquire and a renewal report the
    /// time that the record had left.
    pub kept_up: bool,
}

/// Whom a grant lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its owner alone, whose hold is the lane's current one, and may have further levels.
    Exclusive,
    /// One waiter; others may hold beside it. The engine keeps no order among holds, and none of them is taken twice. No
    /// record tells whose they are, so there is an order among those who wait, and what a request may have done is
    /// undone by its number.
    Shared,
    /// Everyone who waited when it was asked for. Nothing is held, and nothing given back.
    Gate,
}

impl KindTraits {
    /// Redisson's reentrant lock, from which the others differ.
    pub(crate) const REENTRANT: Self = Self {
        name: "reentrant lock",
        reentrant: true,
        handed_on: true,
        pipelined: true,
        queued: false,
        glances: true,
        access: Access::Exclusive,
        owned: true,
        fenced: false,
        counts: true,
        renewal: Renewal::Lock,
        kept_up: false,
    };

    /// By value: one constant may have several addresses.
    fn passes_to(&self, other: &Self) -> bool {
        self.handed_on && self == other
    }
}

/// What an owner is told who would have to wait for himself.
pub(crate) fn would_deadlock(kind: &dyn LockKind) -> Error {
    Error::WouldDeadlock { name: kind.record().to_string(), kind: kind.manner().name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_passes_to_equal_manners_at_any_address() {
        static COPY: KindTraits = KindTraits::REENTRANT;
        static OTHER: KindTraits = KindTraits { name: "other", ..KindTraits::REENTRANT };
        static KEPT: KindTraits = KindTraits { handed_on: false, ..KindTraits::REENTRANT };
        assert!(KindTraits::REENTRANT.passes_to(&COPY));
        assert!(!KindTraits::REENTRANT.passes_to(&OTHER));
        assert!(!KEPT.passes_to(&KEPT));
    }
}
