//! Who holds: the current task, the current thread, an explicit [`Owner`], or the guard of one acquire; and the text that
//! says so in a record.
//!
//! The text is `<client uuid>:<id>`. A task's id is a bare number, a thread's starts with `thread-`, an explicit
//! owner's with `owner-`, a guard's with `guard-`, so the four kinds never meet. From the second era of a client on (see `session`) the text
//! ends in `~<era>`: a text that a dead connection might still deliver something for is never used again.
//! Ids hold no `:` and no `~`.

use crate::error::{Error, Result};
use crate::runtime::sync::Handle;
use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use uuid::Uuid;

/// An explicit owner: ownership that does not hang on a task or a thread.
///
/// All who use an equal `Owner` with one client are one owner: each re-enters what another holds. Without one the
/// owner is the current tokio task, or the current thread at the root of a `block_on`.
///
/// ```
/// # fn main() -> Result<(), redisson_lock::Error> {
/// let owner = redisson_lock::Owner::new("import-job")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// An owner named `text`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the text is empty, longer than 256 bytes, or contains `:`, `~` or a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.is_empty()
            || text.len() > 256
            || text.contains(|c: char| c == ':' || c == '~' || c.is_control())
        {
            return Err(Error::misuse(
                "an owner's text must have 1 to 256 bytes and no `:`, `~` or control character",
            ));
        }
        Ok(Self(text.into()))
    }

    /// An owner that equals no other.
    pub fn unique() -> Self {
        Self(Uuid::new_v4().to_string().into())
    }

    /// The text it was made of.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Who asks, within this process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerId {
    Task(tokio::task::Id),
    Thread(u64),
    Explicit(Owner),
    /// The guard of one acquire: no other acquire of the process has it.
    Guard(u64),
}

impl OwnerId {
    /// The current tokio task, or the thread at a `block_on` root.
    pub(crate) fn current() -> Result<Self> {
        if let Some(task) = tokio::task::try_id() {
            return Ok(Self::Task(task));
        }
        entered()?;
        Ok(Self::thread())
    }

    /// The current thread, also inside a task.
    pub(crate) fn thread() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local!(static ID: Cell<u64> = const { Cell::new(0) });
        // In a thread that is ending the cell may be gone: then the id is of no one else, too.
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
        entered()?;
        Ok(Self::Explicit(owner.clone()))
    }

    /// The owner of one acquire.
    pub(crate) fn guard() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        entered()?;
        Ok(Self::Guard(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The text of this owner in a record.
    pub(crate) fn text(&self, client: &str, era: u32) -> Arc<str> {
        let mut text = String::with_capacity(client.len() + 24);
        text.push_str(client);
        let written = match self {
            Self::Task(id) => write!(text, ":{id}"),
            Self::Thread(id) => write!(text, ":thread-{id}"),
            Self::Explicit(owner) => write!(text, ":owner-{}", owner.0),
            Self::Guard(id) => write!(text, ":guard-{id}"),
        };
        debug_assert!(written.is_ok());
        if era > 0 {
            let _ = write!(text, "~{era}");
        }
        text.into()
    }
}

/// What follows an owner's text where it holds a write lock.
pub(crate) const WRITER: &str = ":write";

/// What names the owner in a text, whatever its client and its era.
pub(crate) fn id(text: &str) -> &str {
    let id = text.split_once(':').map_or(text, |(_, id)| id);
    id.split_once('~').map_or(id, |(id, _)| id)
}

/// Whether `text` is of that client and of an era before `era`, so that no new hold will have it.
pub(crate) fn is_retired(text: &str, client: &str, era: u32) -> bool {
    let Some(id) = text.strip_prefix(client).and_then(|rest| rest.strip_prefix(':')) else { return false };
    let id = id.strip_suffix(WRITER).unwrap_or(id);
    let of = id.rsplit_once('~').map_or(Some(0), |(_, era)| era.parse().ok());
    of.is_some_and(|of| of < era)
}

/// Waiting needs tokio's timers, and outside tokio a thread can run many tasks, so a thread would be no owner.
pub(crate) fn entered() -> Result<()> {
    match Handle::try_current() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::misuse(
            "called outside a tokio runtime, where tasks cannot be told apart: name the owner by `with_owner` and \
             enter a tokio runtime, or use the `blocking` API",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_owner_never_share_a_text() {
        let texts: Vec<_> = ["1", "thread-1", "owner-1", "guard-1"]
            .iter()
            .map(|t| OwnerId::Explicit(Owner::new(t).unwrap()).text("u", 0))
            .chain([OwnerId::Thread(1).text("u", 0), OwnerId::Thread(1).text("u", 1)])
            .chain([OwnerId::Guard(1).text("u", 0), OwnerId::Guard(1).text("u", 1)])
            .collect();
        assert_eq!(
            texts.iter().map(|t| &**t).collect::<Vec<_>>(),
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

    #[tokio::test]
    async fn each_acquire_of_a_mutex_has_an_owner_of_its_own() {
        let ids = [OwnerId::guard().unwrap(), OwnerId::guard().unwrap()];
        assert_ne!(ids[0], ids[1]);
        assert!(ids.iter().all(|id| is_retired(&id.text("u", 0), "u", 1)));
    }

    #[test]
    fn only_texts_of_earlier_eras_of_this_client_are_retired() {
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
    fn an_explicit_owner_has_no_separator() {
        for bad in ["", "a:b", "a~1", "a\nb", &"x".repeat(257)] {
            assert!(matches!(Owner::new(bad), Err(Error::Misuse { .. })), "{bad:?}");
        }
        assert_ne!(Owner::unique(), Owner::unique());
    }
}
