//! Owners of holds, and the owner ids that name them in records.
//!
//! An owner is the current task, the current thread, an explicit [`Owner`], or the guard of one acquire. Its id is
//! `<client uuid>:<id>`. The id of a task is a bare number. The others begin with `thread-`, `owner-` or `guard-`, so the four
//! kinds never collide.
//!
//! From the second generation of a client on (see `session`), an owner id ends in `~<generation>`. A dead connection may still
//! deliver a request for an earlier owner id, so that id is never used for a new hold. The part between the client's UUID and these
//! suffixes contains no `:` and no `~`. The owner id of a writer also ends in `:write`.

use crate::error::{Error, Result};
use crate::runtime::sync::Handle;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use uuid::{Builder, Uuid};

/// An explicit owner, independent of tasks and threads.
///
/// All code that uses one client with an equal `Owner` is one owner: it re-enters the holds of that owner. Without an explicit owner, the
/// owner is the current tokio task, or the current thread at the root of a `block_on`.
///
/// In the record, the owner id is `<client uuid>:owner-<name>`, so an operator can read the name in Redis. `Display` writes the name, and
/// `FromStr` parses it.
///
/// ```
/// use redisson_lock::Owner;
/// # fn main() -> redisson_lock::Result<()> {
/// let owner: Owner = "import-job".parse()?;
/// assert_eq!(owner.to_string(), "import-job");
/// let run = Owner::unique_named("nightly")?; // nightly-<uuid>: each run excludes the others
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(
    /// A thin pointer, because each hold has an owner.
    Arc<Box<str>>,
);

impl Owner {
    /// Creates the owner called `name`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if `name` is empty, longer than 256 bytes, or contains `:`, `~` or a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty()
            || name.len() > 256
            || name.contains(|c: char| c == ':' || c == '~' || c.is_control())
        {
            return Err(Error::misuse(
                "an owner's name must have 1 to 256 bytes and no `:`, `~` or control character",
            ));
        }
        Ok(Self(Arc::new(name.into())))
    }

    /// Creates an owner that equals no other owner.
    pub fn unique() -> Self {
        Self(Arc::new(Uuid::new_v4().to_string().into()))
    }

    /// Creates an owner that equals no other owner, and whose name begins with `name`: `<name>-<uuid>`.
    ///
    /// # Errors
    /// [`Error::Misuse`] as for [`new`](Self::new). The uuid counts towards the 256 bytes.
    pub fn unique_named(name: impl AsRef<str>) -> Result<Self> {
        let name = Self::new(name)?;
        Self::new(format!("{name}-{}", Uuid::new_v4()))
    }

    /// Returns the owner's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.as_str()).finish()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Owner {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

/// An owner within this process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LocalOwner {
    Task(tokio::task::Id),
    Thread(u64),
    Explicit(Owner),
    /// The guard of one acquire. No other acquire of the process has the same number.
    Guard(u64),
}

impl LocalOwner {
    /// Whether the owner can make several calls at once. A task or a thread makes one at a time (see `Claim`), and the guard of an acquire
    /// makes no other call.
    pub(crate) fn makes_several_calls(&self) -> bool {
        matches!(self, Self::Explicit(_))
    }

    /// Returns the current tokio task, or the current thread at the root of a `block_on`.
    pub(crate) fn current() -> Result<Self> {
        if let Some(task) = tokio::task::try_id() {
            return Ok(Self::Task(task));
        }
        entered_by_owner()?;
        Ok(Self::thread())
    }

    /// Returns the current thread, even inside a task.
    pub(crate) fn thread() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local!(static ID: Cell<u64> = const { Cell::new(0) });
        // In a thread that is ending, the cell may be gone. A fresh id is unique, too.
        let fresh = || NEXT.fetch_add(1, Ordering::Relaxed);
        Self::Thread(
            ID.try_with(|id| {
                if id.get() == 0 {
                    id.set(fresh());
                }
                id.get()
            })
            .unwrap_or_else(|_| fresh()),
        )
    }

    pub(crate) fn explicit(owner: &Owner) -> Result<Self> {
        entered_by_owner()?;
        Ok(Self::Explicit(owner.clone()))
    }

    /// The owner of calls that need none. It holds no lock, because the numbers of guards begin at 1.
    pub(crate) const ANYONE: Self = Self::Guard(0);

    /// Returns a new owner for one acquire.
    pub(crate) fn guard() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        entered()?;
        Ok(Self::Guard(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Returns this owner's id as written in a record.
    pub(crate) fn owner_id(&self, client: &str, generation: u32) -> Arc<str> {
        let mut text = String::with_capacity(client.len() + 24);
        text.push_str(client);
        let written = match self {
            Self::Task(id) => write!(text, ":{id}"),
            Self::Thread(id) => write!(text, ":thread-{id}"),
            Self::Explicit(owner) => write!(text, ":owner-{owner}"),
            Self::Guard(id) => write!(text, ":guard-{id}"),
        };
        debug_assert!(written.is_ok());
        if generation > 0 {
            let _ = write!(text, "~{generation}");
        }
        text.into()
    }
}

/// The owner ids that a client made last. A task often acquires several locks, or one lock several times, always with the same owner id.
pub(crate) struct OwnerIds(Box<[Mutex<Option<OwnerId>>]>);

struct OwnerId {
    owner: LocalOwner,
    generation: u32,
    text: Arc<str>,
}

/// The number of owner ids that a client keeps.
const RECENT: usize = 256;

/// Finds the place of an owner. Tasks that were spawned one after the other have consecutive numbers, so they share no place.
#[derive(Default)]
struct Place(u64);

impl Hasher for Place {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = self.0.wrapping_add(number);
    }

    fn finish(&self) -> u64 {
        self.0 % RECENT as u64
    }
}

impl OwnerIds {
    pub(crate) fn new() -> Self {
        Self(std::iter::repeat_with(Mutex::default).take(RECENT).collect())
    }

    /// The same as [`LocalOwner::owner_id`].
    pub(crate) fn get(&self, owner: &LocalOwner, client: &str, generation: u32) -> Arc<str> {
        let make = || owner.owner_id(client, generation);
        if let LocalOwner::Guard(_) = owner {
            // It acquires once.
            return make();
        }
        let mut place = Place::default();
        owner.hash(&mut place);
        let mut recent = self.0[place.finish() as usize].lock().unwrap_or_else(PoisonError::into_inner);
        match &*recent {
            Some(known) if known.owner == *owner && known.generation == generation => known.text.clone(),
            _ => {
                let text = make();
                *recent = Some(OwnerId { owner: owner.clone(), generation, text: text.clone() });
                text
            }
        }
    }
}

/// Returns an owner id that no client uses. It names the record of a lock that is kept for a while although it was released.
pub(crate) fn nobody() -> Arc<str> {
    format!("{}:kept", new_client_id()).into()
}

/// The suffix of the owner id in the record of a write lock.
pub(crate) const WRITER: &str = ":write";

/// Returns the part of an owner id that names the owner, without its client and its generation.
pub(crate) fn id(text: &str) -> &str {
    let id = text.split_once(':').map_or(text, |(_, id)| id);
    id.split_once('~').map_or(id, |(id, _)| id)
}

/// Returns a new client id: a random UUID of version 8, by which clients of this library recognise each other. Redisson's have version 4.
pub(crate) fn new_client_id() -> Uuid {
    Builder::from_custom_bytes(Uuid::new_v4().into_bytes()).into_uuid()
}

/// Returns whether `text` is an owner id of a client of another library. `client` is the id of this client. If its version is not 8, the
/// user chose it, and probably those of the peers, too. Then no client counts as foreign.
pub(crate) fn is_foreign(text: &str, client: &str) -> bool {
    /// The digits of a UUID and their hyphens, and the place of the version among them.
    const LENGTH: usize = 36;
    const VERSION: usize = 14;
    let version = |id: &str| (id.len() == LENGTH).then(|| id.as_bytes()[VERSION]);
    let of = text.split_once(':').and_then(|(id, _)| version(id));
    version(client) == Some(b'8') && of.is_some_and(|of| of != b'8')
}

/// Returns whether `text` is an owner id of that client from a generation before `generation`, which no new hold will use.
pub(crate) fn is_retired(text: &str, client: &str, generation: u32) -> bool {
    let Some(id) = text.strip_prefix(client).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let id = id.strip_suffix(WRITER).unwrap_or(id);
    let of = id.rsplit_once('~').map_or(Some(0), |(_, generation)| generation.parse().ok());
    of.is_some_and(|of| of < generation)
}

/// Fails outside a tokio runtime. Waiting needs tokio's timers.
pub(crate) fn entered() -> Result<()> {
    entered_or("called outside a tokio runtime: call it from a task, or use the `blocking` API")
}

/// Fails outside a tokio runtime: a thread outside tokio may run many tasks, so it cannot be an owner.
fn entered_by_owner() -> Result<()> {
    entered_or(
        "called outside a tokio runtime, where tasks cannot be distinguished: enter a runtime and set an owner with \
         `with_owner`, or use the `blocking` API",
    )
}

fn entered_or(problem: &str) -> Result<()> {
    // A task has a runtime. Its handle is shared by all threads, so it costs more to ask for.
    if tokio::task::try_id().is_some() {
        return Ok(());
    }
    Handle::try_current().map(|_| ()).map_err(|_| Error::misuse(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_owner_never_share_an_id() {
        let ids: Vec<_> = ["1", "thread-1", "owner-1", "guard-1"]
            .iter()
            .map(|t| LocalOwner::Explicit(Owner::new(t).unwrap()).owner_id("u", 0))
            .chain([LocalOwner::Thread(1).owner_id("u", 0), LocalOwner::Thread(1).owner_id("u", 1)])
            .chain([LocalOwner::Guard(1).owner_id("u", 0), LocalOwner::Guard(1).owner_id("u", 1)])
            .collect();
        assert_eq!(
            ids.iter().map(|t| &**t).collect::<Vec<_>>(),
            [
                "u:owner-1",
                "u:owner-thread-1",
                "u:owner-owner-1",
                "u:owner-guard-1",
                "u:thread-1",
                "u:thread-1~1",
                "u:guard-1",
                "u:guard-1~1"
            ]
        );
    }

    #[test]
    fn a_holder_of_another_library_is_foreign_to_a_client_with_an_id_of_this_library() {
        let (own, peer) = (new_client_id().to_string(), new_client_id());
        let java = Uuid::new_v4();
        assert!(own != peer.to_string() && is_foreign(&format!("{java}:64"), &own));
        for text in [format!("{peer}:7"), format!("{peer}:owner-a:write"), nobody().to_string(), "x".into()] {
            assert!(!is_foreign(&text, &own), "{text}");
        }
        // An id that the user chose.
        assert!(!is_foreign(&format!("{java}:64"), &Uuid::new_v4().to_string()));
    }

    #[tokio::test]
    async fn each_acquire_of_a_mutex_has_an_owner_of_its_own() {
        let ids = [LocalOwner::guard().unwrap(), LocalOwner::guard().unwrap()];
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| is_retired(&id.owner_id("u", 0), "u", 1)));
    }

    #[test]
    fn a_kept_owner_id_is_that_of_its_owner_and_generation() {
        let ids = OwnerIds::new();
        for generation in [0, 0, 1] {
            for owner in (0..2 * RECENT as u64).map(LocalOwner::Thread) {
                assert_eq!(ids.get(&owner, "u", generation), owner.owner_id("u", generation));
            }
        }
        let recent = || (RECENT as u64..).take(RECENT).map(LocalOwner::Thread);
        let all = || recent().map(|owner| ids.get(&owner, "u", 1)).collect::<Vec<_>>();
        for (first, again) in all().iter().zip(all()) {
            assert!(Arc::ptr_eq(first, &again), "owners with consecutive numbers share a place");
        }
    }

    #[test]
    fn only_owner_ids_of_earlier_generations_of_this_client_are_retired() {
        for (text, retired) in [
            ("u:1", true),
            ("u:thread-1~1", true),
            ("u:owner-a~2", false),
            ("u:1~3", false),
            ("u:1~x", false),
            ("v:1", false),
            ("uu:1", false),
            ("u", false),
        ] {
            assert_eq!(is_retired(text, "u", 2), retired, "{text}");
        }
        assert!(!is_retired("u:1", "u", 0));
    }

    #[test]
    fn the_name_of_an_explicit_owner_has_no_separator() {
        for bad in ["", "a:b", "a~1", "a\nb", &"x".repeat(257)] {
            assert!(matches!(Owner::new(bad), Err(Error::Misuse { .. })), "{bad:?}");
        }
        assert_ne!(Owner::unique(), Owner::unique());
        for long in ["a:b", &"x".repeat(250)] {
            assert!(matches!(Owner::unique_named(long), Err(Error::Misuse { .. })), "{long:?}");
        }
    }

    #[test]
    fn an_owner_is_written_and_parsed_by_its_name() {
        let (one, other) = (Owner::unique_named("nightly").unwrap(), Owner::unique_named("nightly").unwrap());
        assert_ne!(one, other);
        assert!(one.as_str().starts_with("nightly-"));
        assert_eq!(one.to_string().parse::<Owner>().unwrap(), one);
    }
}
