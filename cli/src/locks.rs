//! The handles of all kinds, and the holds.

use crate::args::{Connection, Kind, Terms};
use crate::connect::{close, connect_with};
use crate::failure::Failure;
use crate::output::say;
use crate::signals::Signals;
use crate::table::shown;
use redisson_lock::{
    BackOff, Client, ExpirablePermit, ExpirableSemaphore, HoldState, HoldStatus, Holder, Lock, LockGuard,
    Owner, Result,
};
use std::convert::Infallible;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How often the holder is read while a verbose wait lasts.
const LOOK: Duration = Duration::from_secs(1);

/// Returns the lock `name` of this kind. Each acquire has an owner of its own, or is owned by `owner`.
pub fn lock(client: &Client, kind: Kind, name: &str, owner: &Owner) -> Lock {
    let lock = match kind {
        Kind::Lock => client.lock(name),
        Kind::Fair => client.fair_lock(name),
        Kind::Fenced => client.fenced_lock(name),
        Kind::Spin => client.spin_lock(name, BackOff::default()),
        Kind::Read => client.read_write_lock(name).read().clone(),
        Kind::Write => client.read_write_lock(name).write().clone(),
        Kind::Value => client.value_lock(name),
    };
    lock.with_owner(owner)
}

/// The handle of a lock, or of a semaphore whose permits are held one at a time.
pub enum Holdable {
    /// A lock.
    Lock(Lock),
    /// One permit.
    Semaphore(ExpirableSemaphore),
}

/// A held lock, or one held permit.
pub enum Held {
    /// A lock.
    Lock(LockGuard),
    /// One permit.
    Permit(ExpirablePermit),
}

impl Held {
    /// Returns the status of the hold.
    pub fn status(&self) -> HoldStatus {
        match self {
            Self::Lock(guard) => guard.status(),
            Self::Permit(permit) => permit.status(),
        }
    }

    /// Returns the text that identifies the hold.
    pub fn owner(&self) -> String {
        match self {
            Self::Lock(guard) => guard.owner().to_owned(),
            Self::Permit(permit) => permit.ids().join(","),
        }
    }

    /// Releases the hold.
    pub async fn release(self) -> Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

/// Acquires, and runs `body` with the hold. Closes the client at the end. A signal before the hold ends the command.
pub async fn while_held(
    name: &str,
    terms: &Terms,
    connection: &Connection,
    mut signals: Signals,
    body: impl AsyncFnOnce(Held, &mut Signals) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let opened = tokio::select! {
        biased;
        signal = signals.next_ending() => return Err(Failure::Signalled(signal)),
        opened = open(name, terms, connection) => opened,
    };
    let (client, holdable) = opened?;
    let acquired = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(signal),
        acquired = acquire(&holdable, terms, connection.verbose) => Ok(acquired),
    };
    let outcome = match acquired {
        Err(signal) => Err(Failure::Signalled(signal)),
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(held)) => body(held, &mut signals).await,
    };
    close(&client).await;
    outcome
}

/// Why a hold in this state is no longer live.
pub fn reason(state: HoldState) -> String {
    match state {
        HoldState::Lost(reason) => reason.to_string(),
        _ => "the lease ended".to_owned(),
    }
}

/// Connects, and returns the handle for these terms.
async fn open(name: &str, terms: &Terms, connection: &Connection) -> Result<(Client, Holdable), Failure> {
    let owner = match &terms.owner {
        Some(owner) => Owner::unique_named(owner)?,
        None => Owner::unique(),
    };
    let client = connect_with(connection, terms.lease).await?;
    if let Some(limit) = terms.limit {
        let semaphore = client.expirable_semaphore(name);
        if !semaphore.try_set_permits(limit).await? {
            let permits = semaphore.permits().await?;
            if permits != i64::from(limit) {
                return Err(Failure::Usage(format!(
                    "the semaphore `{name}` has {permits} permits: use --limit {permits}, or another name"
                )));
            }
        }
        return Ok((client, Holdable::Semaphore(semaphore)));
    }
    let mut lock = lock(&client, terms.kind.kind(), name, &owner);
    if let Some(min) = terms.min_hold {
        lock = lock.with_min_hold(min);
    }
    if let Some(max) = terms.max_hold {
        lock = lock.with_max_hold(max);
    }
    Ok((client, Holdable::Lock(lock)))
}

/// Acquires. A lock that stays busy is a failure.
async fn acquire(holdable: &Holdable, terms: &Terms, verbose: bool) -> Result<Held, Failure> {
    let acquired = async {
        let wait = if terms.nonblock { Some(Duration::ZERO) } else { terms.wait };
        Ok::<_, Failure>(match (holdable, wait) {
            (Holdable::Lock(lock), None) => Some(Held::Lock(lock.lock().await?)),
            (Holdable::Lock(lock), Some(wait)) => lock.try_lock_for(wait).await?.map(Held::Lock),
            (Holdable::Semaphore(permits), None) => Some(Held::Permit(permits.acquire().await?)),
            (Holdable::Semaphore(permits), Some(wait)) => {
                permits.try_acquire_for(wait).await?.map(Held::Permit)
            }
        })
    };
    let what = async || match holdable {
        Holdable::Semaphore(semaphore) => {
            permits_waited_for(semaphore.name(), 1, semaphore.available_permits().await)
        }
        Holdable::Lock(lock) => match lock.inspect().await {
            // The acquire is under way.
            Ok(seen) if seen.holders.is_empty() => None,
            Ok(seen) => Some(format!("`{}`{}", lock.name(), held_by(&seen.holders))),
            Err(error) => Some(format!("`{}`: {error}", lock.name())),
        },
    };
    let acquired = reporting(verbose, what, acquired).await?;
    match acquired {
        Some(held) => Ok(held),
        None => Err(busy(holdable).await),
    }
}

/// The failure of an acquire of a busy lock, with the holder if the server tells it.
async fn busy(holdable: &Holdable) -> Failure {
    let (name, holder) = match holdable {
        Holdable::Semaphore(semaphore) => (semaphore.name(), String::new()),
        Holdable::Lock(lock) => {
            (lock.name(), lock.inspect().await.map_or(String::new(), |seen| held_by(&seen.holders)))
        }
    };
    Failure::Busy(format!("`{name}` is busy{holder}: try again later, or wait longer with -w"))
}

/// Waits. A verbose wait says for what, as long as `what` returns a text.
pub async fn reporting<T>(
    verbose: bool,
    what: impl AsyncFn() -> Option<String>,
    wait: impl Future<Output = T>,
) -> T {
    let report = async { if verbose { report_wait(what).await } else { pending().await } };
    tokio::select! {
        biased;
        done = wait => done,
        never = report => match never {},
    }
}

/// Names the permits that a wait is for, unless enough of them are free.
pub fn permits_waited_for(name: &str, permits: u32, free: Result<i64>) -> Option<String> {
    let permits_of = if permits == 1 { "a permit of".to_owned() } else { format!("{permits} permits of") };
    match free {
        // The acquire is under way.
        Ok(free) if free >= permits.into() => None,
        Ok(free) => Some(format!("{permits_of} `{name}`, of which {free} are free")),
        Err(error) => Some(format!("{permits_of} `{name}`: {error}")),
    }
}

/// Writes what a wait is for, whenever that changes, and again after 2 s, 4 s, 8 s and so on.
async fn report_wait(what: impl AsyncFn() -> Option<String>) -> Infallible {
    let mut reported: Option<(String, Instant, Duration)> = None;
    loop {
        let text = what().await;
        match (text, &mut reported) {
            (None, _) => {}
            (Some(text), Some((last, since, again))) if text == *last => {
                if since.elapsed() >= *again {
                    say(format_args!("waiting for {text}, for at least {} s", since.elapsed().as_secs()));
                    *again *= 2;
                }
            }
            (Some(text), _) => {
                say(format_args!("waiting for {text}"));
                reported = Some((text, Instant::now(), 2 * LOOK));
            }
        }
        sleep(LOOK).await;
    }
}

/// Names the holders: ", held by client <uuid>, thread <id>", with the name of the client in front if it has one. A bare number is the id of a Java thread, or of a task of a Rust service.
pub fn held_by(holders: &[Holder]) -> String {
    let id = |holder: &Holder| match holder.owner().split_once(':') {
        Some((client, owner)) => {
            let owner = owner.strip_suffix(":write").unwrap_or(owner);
            let is_number = owner.bytes().all(|byte| byte.is_ascii_digit());
            let what = if is_number { "thread" } else { "owner" };
            format!("client {}, {what} {}", shown(client), shown(owner))
        }
        None => format!("owner {}", shown(holder.owner())),
    };
    let name = |holder: &Holder| match holder.client() {
        Some(client) => format!("{client} ({})", id(holder)),
        None => id(holder),
    };
    match holders {
        [] => String::new(),
        [only] => format!(", held by {}", name(only)),
        [first, others @ ..] => format!(", held by {} and {} others", name(first), others.len()),
    }
}
