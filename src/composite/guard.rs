//! [`MultiLockGuard`], which releases the locks of a composite lock.

use crate::error::{Error, Result};
use crate::guard::LockGuard;
use crate::lease::status::HoldState;
use crate::owner::entered;
use crate::runtime::gather::gather;
use crate::runtime::mutex::Mutex;
use crate::status::{HoldStatus, Several, status_methods};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The locks that a [`MultiLock`](crate::MultiLock) or a [`RedLock`](crate::RedLock) has acquired.
///
/// Call [`unlock`](Self::unlock) to confirm the release. A dropped guard releases its locks in the background.
///
/// A guard reports the common state of its locks, and [`status`](Self::status) returns a [`HoldStatus`] for other tasks. Once the
/// state is [`HoldState::Lost`], the remaining locks are released in the background, because the multi lock or red lock cannot recover.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// let both = redisson_lock::MultiLock::new([client.mutex("from"), client.mutex("to")])?;
/// let guard = both.lock().await?;
/// for member in guard.members() {
///     println!("{} is {:?}", member.name(), member.state());
/// }
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiLockGuard {
    pub(crate) status: HoldStatus,
    several: Arc<Several>,
    guards: Guards,
}

status_methods!(MultiLockGuard, status);

/// The guards that are still to be released.
#[derive(Clone, Default)]
struct Guards(Arc<Mutex<Vec<Member>>>);

impl Guards {
    fn take(&self, which: impl FnMut(&mut Member) -> bool) -> Vec<Member> {
        self.0.lock().extract_if(.., which).collect()
    }
}

impl MultiLockGuard {
    /// Creates the guard of a composite that needs `needed` live holds among the guards that count. If it is not held, or not for
    /// longer than `least`, returns the guards, which the caller must release.
    pub(crate) fn new(
        guards: Vec<Member>,
        needed: usize,
        least: Duration,
    ) -> Result<Self, impl Iterator<Item = LockGuard>> {
        let client = guards.first().map(|member| member.guard.session().clone());
        let several = guards.iter().filter(|member| member.counts).map(|member| member.guard.status());
        let several = Several::new(several.collect(), needed);
        let (status, guards) = (several.status(), Guards(Arc::new(Mutex::new(guards))));
        if status.state() != HoldState::Held || status.validity() <= least {
            return Err(guards.take(|_| true).into_iter().map(|member| member.guard));
        }
        // The caller's runtime may end before the hold does.
        if let Some(client) = client {
            client.spawn(release_the_rest(status.clone(), guards.clone()));
        }
        Ok(Self { status, several, guards })
    }

    /// Returns the holds that count towards the required number. See [`HoldStatus::members`].
    pub fn members(&self) -> &[HoldStatus] {
        self.status.members()
    }

    /// Releases all locks at once.
    ///
    /// Returns when as many releases as needed have been confirmed: all of a multi lock, a majority of a red lock. The others continue
    /// in the background. All locks are released, whatever this call returns.
    ///
    /// # Errors
    /// - [`Error::Lost`] or [`Error::NotHeld`] if too many locks were lost: the error of one of them. Treat the work as unprotected.
    /// - Otherwise, the error of a lock whose release was not confirmed, as for [`LockGuard::unlock`].
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the releases, which continue in the background.
    pub async fn unlock(self) -> Result<()> {
        entered()?;
        let (needed, members) = (self.several.needed(), self.members().len());
        let ended = self.several.release();
        let releases = self.guards.take(|_| true).into_iter().map(|Member { guard, counts }| async move {
            let outcome = guard.unlock().await;
            counts.then_some(outcome)
        });
        let confirmed = |done: &[Option<Option<Result<()>>>]| {
            done.iter().filter(|outcome| matches!(outcome, Some(Some(Ok(()))))).count() >= needed
        };
        let done = gather(releases, confirmed).await;
        if ended == HoldState::Released && confirmed(&done) {
            return Ok(());
        }
        let errors: Vec<_> = done.into_iter().flatten().flatten().filter_map(Result::err).collect();
        let lost = errors.iter().filter(|error| error.is_lost()).count();
        let is_lost = ended != HoldState::Released || members - lost < needed;
        // A member may discover its loss only now. Prefer the error that agrees with the state reported before.
        let was_reported = ended != HoldState::Released;
        let candidates = errors.into_iter().filter(|error| error.is_lost() == is_lost);
        let found = candidates.min_by_key(|error| matches!(error, Error::NotHeld { .. }) != was_reported);
        let reason = if let HoldState::Lost(reason) = ended { Some(reason) } else { None };
        Err(found.unwrap_or_else(|| Error::NotHeld { name: self.name().to_owned(), reason, holder: None }))
    }
}

/// Releases the live locks once the composite is lost. Keeps the lost ones, because `unlock` reports their errors.
async fn release_the_rest(status: HoldStatus, guards: Guards) {
    if let HoldState::Lost(_) = status.lost().await {
        // Every loss is noticed before the mutex is locked, because an observer of the loss may drop the composite's guard.
        for member in status.members() {
            member.state();
        }
        drop(guards.take(|member| !member.guard.is_over()));
    }
}

impl Drop for MultiLockGuard {
    fn drop(&mut self) {
        self.several.release();
        drop(self.guards.take(|_| true));
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiLockGuard").field(&self.status).finish()
    }
}

/// One lock of a composite lock.
pub(crate) struct Member {
    pub guard: LockGuard,
    /// Whether the lock counts towards the number that is needed.
    pub counts: bool,
}
