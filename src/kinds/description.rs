//! Descriptions of records whose kind is unknown. What a record contains tells its kind.

use crate::holder::Holder;
use crate::owner::WRITER;
use crate::protocol::keys;
use crate::protocol::script::{Content, Record, TimeToLive};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use uuid::Uuid;

/// The kind of a lock, semaphore or latch, as its record shows it.
///
/// Some kinds have the same record: see the variants. `Display` writes the name that the command line uses.
///
/// ```
/// use redisson_lock::RecordKind;
/// assert_eq!(RecordKind::Fair.to_string(), "fair");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordKind {
    /// A reentrant lock or mutex. Spin locks and non-reentrant locks have the same record, and so has a fair lock for which nobody waits.
    Lock,
    /// A lock for which owners wait in a queue.
    Fair,
    /// A lock whose name has a fencing token. The token stays in Redis, so a [`Lock`](Self::Lock) of the same name looks the same.
    Fenced,
    /// A read/write lock with readers only.
    Read,
    /// A read/write lock with a writer, which may also read.
    Write,
    /// A group lock.
    Group,
    /// A value lock of this library: a string with an expiry that begins with the UUID of a client.
    Value,
    /// An expirable semaphore, of which permits are taken.
    ExpirableSemaphore,
    /// A semaphore of either kind, because somebody waits for its permits.
    Semaphore,
    /// A latch, because somebody waits for it.
    Latch,
    /// An integer. It may be a semaphore or a latch, or no lock at all.
    Integer,
    /// Another short string with an expiry. It may be the value lock of another library, or no lock at all.
    Text,
}

impl RecordKind {
    /// Returns whether the record belongs to a lock, semaphore or latch. It may not for [`Integer`](Self::Integer) and
    /// [`Text`](Self::Text).
    pub fn is_certain(self) -> bool {
        !matches!(self, Self::Integer | Self::Text)
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lock => "lock",
            Self::Fair => "fair",
            Self::Fenced => "fenced",
            Self::Read => "read",
            Self::Write => "write",
            Self::Group => "group",
            Self::Value => "value",
            Self::ExpirableSemaphore => "expirable-semaphore",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Integer => "integer",
            Self::Text => "text",
        })
    }
}

/// A lock, semaphore or latch at one moment, with the kind that its record shows.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// if let Some(seen) = client.describe("orders:42").await? {
///     println!("{} is a {} lock, held by {:?}", seen.name, seen.kind, seen.holders);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The name as stored in Redis, after the name mapper.
    pub name: String,
    /// The kind.
    pub kind: RecordKind,
    /// The holders, writers first. Semaphores and latches name none. If there are more than a thousand, some may be missing.
    ///
    /// Of a group lock, each holder has the largest count of its values.
    pub holders: Vec<Holder>,
    /// The time until the record ends unless it is renewed, [`Duration::MAX`] if it never ends. `None` if only the queue of a fair lock
    /// exists. Of a group lock, it is the time until the last hold ends.
    pub remaining_lease: Option<Duration>,
    /// The number of waiters, `None` if it is unknown: see [`Inspection::waiters`](crate::Inspection::waiters).
    pub waiters: Option<u64>,
    /// The fencing token of the last hold, if the name has one.
    pub token: Option<u64>,
    /// The owner ids of the first hundred waiters of a fair lock, in order. Waiters that no longer respond are among them until they are
    /// skipped.
    pub queue: Vec<String>,
    /// The number of free permits of a semaphore, or the count of a latch.
    pub count: Option<i64>,
    /// The number of taken permits of an expirable semaphore. Permits whose lease has ended are among them until the next acquire.
    pub taken: Option<u64>,
}

/// Describes a record. `None` if it belongs to no lock, semaphore or latch.
pub(crate) fn describe(name: &str, record: &Record) -> Option<Description> {
    let Record { left, queued, taken, .. } = *record;
    let found = match &record.content {
        Content::Absent if queued > 0 => Found::new(RecordKind::Fair),
        Content::Absent if taken > 0 => Found::counting(RecordKind::ExpirableSemaphore, 0),
        Content::Absent => return None,
        Content::Hash { fields, mode: Some(mode) } => read_write(fields, mode)?,
        Content::Hash { fields, mode: None } => plain(record, fields).or_else(|| group(record, fields))?,
        Content::Text(text) => string(record, std::str::from_utf8(text).ok()?)?,
    };
    let Found { kind, holders, count, left: of_holds } = found;
    let listeners = |at: usize| record.listeners.map(|listeners| listeners[at]);
    let is_fair = kind == RecordKind::Fair;
    Some(Description {
        name: name.to_owned(),
        kind,
        holders,
        remaining_lease: of_holds.or(left.duration()),
        waiters: match kind {
            RecordKind::Fair => Some(queued),
            RecordKind::Read | RecordKind::Write => listeners(1),
            RecordKind::ExpirableSemaphore | RecordKind::Semaphore => listeners(2),
            RecordKind::Latch => listeners(3),
            RecordKind::Integer => Some(0).filter(|_| record.listeners.is_some()),
            _ => listeners(0),
        },
        token: record.token.filter(|_| is_fair || matches!(kind, RecordKind::Lock | RecordKind::Fenced)),
        queue: if is_fair { record.queue.clone() } else { Vec::new() },
        count,
        taken: Some(taken).filter(|_| kind == RecordKind::ExpirableSemaphore),
    })
}

/// The kind and the numbers that the value of a record's key shows.
struct Found {
    kind: RecordKind,
    holders: Vec<Holder>,
    count: Option<i64>,
    /// The time until the last hold ends, if the record's expiry is not that time.
    left: Option<Duration>,
}

impl Found {
    fn new(kind: RecordKind) -> Self {
        Self { kind, holders: Vec::new(), count: None, left: None }
    }

    fn held(kind: RecordKind, holders: Vec<Holder>) -> Self {
        Self { holders, ..Self::new(kind) }
    }

    fn counting(kind: RecordKind, count: i64) -> Self {
        Self { count: Some(count), ..Self::new(kind) }
    }
}

/// A hash of owner ids and hold counts.
fn plain(record: &Record, fields: &[(String, String)]) -> Option<Found> {
    let kind = match record {
        Record { queued: 1.., .. } => RecordKind::Fair,
        Record { token: Some(_), .. } => RecordKind::Fenced,
        _ => RecordKind::Lock,
    };
    holders(fields.iter()).map(|holders| Found::held(kind, holders))
}

/// The same hash with the field `mode`.
fn read_write(fields: &[(String, String)], mode: &str) -> Option<Found> {
    let kind = match mode {
        "read" => RecordKind::Read,
        "write" => RecordKind::Write,
        _ => return None,
    };
    let mut holders = holders(fields.iter().filter(|(field, _)| field != "mode"))?;
    holders.sort_by_key(|holder| !holder.owner().ends_with(WRITER));
    Some(Found::held(kind, holders))
}

/// The holders, if every field is an owner id with a count.
fn holders<'a>(fields: impl Iterator<Item = &'a (String, String)>) -> Option<Vec<Holder>> {
    let holder = |(owner, count): &(String, String)| {
        let count = count.parse().ok().filter(|count| *count > 0)?;
        is_owner_id(owner).then(|| Holder::new(owner.clone(), count))
    };
    fields.map(holder).collect::<Option<Vec<_>>>().filter(|holders| !holders.is_empty())
}

/// A hash with three fields for each value of a group.
fn group(record: &Record, fields: &[(String, String)]) -> Option<Found> {
    let now = record.now?;
    let fields: BTreeMap<&str, &str> = fields.iter().map(|(field, value)| (&**field, &**value)).collect();
    let (mut counts, mut end, mut values) = (BTreeMap::<&str, u64>::new(), now, 0);
    for (value, owner) in &fields {
        if value.len() != keys::HASH || !is_owner_id(owner) {
            continue;
        }
        let number = |what: &str| fields.get(&*format!("{value}:{owner}:{what}"))?.parse::<u64>().ok();
        let (Some(expires), Some(count)) = (number("expire_time"), number("lock_count")) else { continue };
        values += 1;
        if expires > now {
            let most = counts.entry(owner).or_default();
            *most = count.max(*most);
            end = end.max(expires);
        }
    }
    let holders = counts.into_iter().map(|(owner, count)| Holder::new(owner.to_owned(), count)).collect();
    let left = Some(Duration::from_millis(end - now));
    (values > 0).then(|| Found { left, ..Found::held(RecordKind::Group, holders) })
}

/// A string: a number of permits, a count, or a token.
fn string(record: &Record, text: &str) -> Option<Found> {
    if let Ok(count) = text.parse() {
        let [_, _, semaphore, latch] = record.listeners.unwrap_or_default();
        let kind = match (record.taken, semaphore, latch) {
            (1.., ..) => RecordKind::ExpirableSemaphore,
            (0, 1.., _) => RecordKind::Semaphore,
            (0, 0, 1..) => RecordKind::Latch,
            (0, 0, 0) => RecordKind::Integer,
        };
        return Some(Found::counting(kind, count));
    }
    // A longer string was cut.
    let is_token = matches!(record.left, TimeToLive::Left(_)) && !text.is_empty() && text.len() < 256;
    let kind = if is_owner_id(text) { RecordKind::Value } else { RecordKind::Text };
    is_token.then(|| Found::held(kind, vec![Holder::new(text.to_owned(), 1)]))
}

/// Whether the text begins with the UUID of a client, as every owner id does.
fn is_owner_id(text: &str) -> bool {
    text.split_once(':')
        .is_some_and(|(client, id)| client.len() == 36 && Uuid::try_parse(client).is_ok() && !id.is_empty())
}
