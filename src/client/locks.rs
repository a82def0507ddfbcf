//! Locks, semaphores and latches whose kind is unknown: [`Client::describe`] and [`Client::locks`].

use crate::client::{Client, keys_of};
use crate::connection::Master;
use crate::engine::names::KnownClients;
use crate::engine::session::Session;
use crate::error::{Error, Phase, Result};
use crate::kinds::description::{self, Description};
use crate::protocol::keys::{self, AnyKeys};
use crate::protocol::script;
use crate::runtime::gather::gather;
use futures_core::Stream;
use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// How many records are read at the same time.
const AT_ONCE: usize = 50;

impl Client {
    /// Returns what the record of `name` shows: the kind of the lock, semaphore or latch, its holders, and its waiters.
    ///
    /// Returns `None` if the name is free, or belongs to something else. The call changes nothing. It takes one round trip, and another
    /// for the [descriptions](crate::Holder::client) of the holders' clients. It needs some
    /// [permissions](https://docs.rs/crate/redisson-lock/latest/source/docs/deployment.md) beyond those of a lock.
    ///
    /// # Errors
    /// [`Error::TimedOut`], [`Error::Unavailable`],
    /// [`Error::Refused`]; [`Error::Misuse`] for an invalid name.
    ///
    /// # Cancel safety
    /// Cancel safe: the call changes nothing.
    pub async fn describe(&self, name: impl AsRef<str>) -> Result<Option<Description>> {
        let keys = AnyKeys::new(self.keys(name)?);
        describe(&self.session, &keys, &mut KnownClients::default()).await
    }

    /// Returns a stream of the locks, semaphores and latches whose names match the glob `pattern`, such as `orders:*`.
    ///
    /// The pattern is that of Redis's `SCAN`, and applies to the names as stored in Redis. The stream visits every key of the database,
    /// step by step, in a cluster on every master. It yields no name twice. A lock that is acquired or released meanwhile may be missing.
    /// If a server restarts or is replaced between two steps, the stream visits its keys again. An outage during a step ends it with an
    /// error.
    ///
    /// A client with a [name mapper](crate::ClientBuilder::name_mapper) opens the locks that were found by
    /// [`with_stored_names`](Self::with_stored_names).
    ///
    /// A string may be a semaphore, a latch or a value lock without showing it: see [`RecordKind::is_certain`](crate::RecordKind). Names
    /// that are not UTF-8 are left out, and in a cluster [those whose keys are in several
    /// slots](https://docs.rs/crate/redisson-lock/latest/source/docs/interop.md).
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// use tokio_stream::StreamExt;
    /// let mut locks = client.locks("orders:*");
    /// while let Some(seen) = locks.next().await {
    ///     let seen = seen?;
    ///     println!("{} ({}): {:?}", seen.name, seen.kind, seen.holders);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`describe`](Self::describe). The stream ends with the first error.
    ///
    /// # Cancel safety
    /// Cancel safe: the stream works only while it is polled, and changes nothing.
    pub fn locks(&self, pattern: &str) -> impl Stream<Item = Result<Description>> + Send + Unpin + use<> {
        let scan = Scan {
            session: self.session.clone(),
            pattern: pattern.into(),
            masters: None,
            cursor: None,
            seen: HashSet::new(),
            known: KnownClients::default(),
        };
        Locks { found: VecDeque::new(), step: Some(Box::pin(scan.step())) }
    }
}

/// Describes the record with these keys, with the descriptions of its holders' clients.
pub(super) async fn describe(
    session: &Session,
    keys: &AnyKeys,
    known: &mut KnownClients,
) -> Result<Option<Description>> {
    let until = session.question_ends();
    let mut found = read(session, keys).await?;
    let holders = found.iter_mut().flat_map(|found| &mut found.holders);
    session.name_holders(holders, known, until).await;
    Ok(found)
}

async fn read(session: &Session, keys: &AnyKeys) -> Result<Option<Description>> {
    let record = session.inspect(script::describe(keys), script::described).await?;
    Ok(record.and_then(|record| description::describe(&keys.record, &record)))
}

/// The position of a scan.
struct Scan {
    session: Arc<Session>,
    pattern: Arc<str>,
    /// The masters that are left, the current one at the end. `None` before the first step.
    masters: Option<Vec<Master>>,
    /// Where to continue at the current master, and its data epoch: after a restart or a failover, the cursor means nothing.
    cursor: Option<(Arc<str>, u64)>,
    /// The keys that were visited and may be locks.
    seen: HashSet<String>,
    /// The clients of the locks that were found.
    known: KnownClients,
}

/// The outcome of a step: what it found, and the position after it, if the scan is not over.
type Step = (Result<Vec<Description>>, Option<Scan>);

impl Scan {
    async fn step(mut self) -> Step {
        match self.visit().await {
            Ok(found) => {
                let is_over = self.masters.as_ref().is_some_and(Vec::is_empty);
                (Ok(found), (!is_over).then_some(self))
            }
            Err(error) => (Err(error), None),
        }
    }

    async fn visit(&mut self) -> Result<Vec<Description>> {
        self.session.check_readable()?;
        let connection = &self.session.connection;
        let masters = self.masters.get_or_insert_with(|| connection.masters());
        let Some(master) = masters.last() else {
            return Err(Error::unavailable(Phase::Inspect, connection.node(), "not connected yet"));
        };
        let (cursor, before) = self.cursor.take().unzip();
        let request = script::scan(&cursor.unwrap_or_else(|| "0".into()), &self.pattern);
        let ((next, keys), epoch) = master.ask_in_epoch(&request, script::scanned, Phase::Inspect).await?;
        if before.is_some_and(|before| before != epoch) {
            // The next step begins again. It passes over what was seen.
            return Ok(Vec::new());
        }
        if next.is_none() {
            masters.pop();
        }
        self.cursor = next.map(|next| (next, epoch));
        let mut found: Vec<Description> = Vec::new();
        for names in keys.chunks(AT_ONCE) {
            let names = names.iter().filter(|name| !keys::is_part(name) && !self.seen.contains(*name));
            let described = gather(names.map(|name| self.read(name)), |_| false).await;
            for described in described.into_iter().flatten() {
                if let Some(described) = described? {
                    found.push(described);
                }
            }
        }
        found.retain(|found| self.seen.insert(found.name.clone()));
        let (holders, until) =
            (found.iter_mut().flat_map(|found| &mut found.holders), self.session.question_ends());
        self.session.name_holders(holders, &mut self.known, until).await;
        Ok(found)
    }

    async fn read(&self, name: &str) -> Result<Option<Description>> {
        match keys_of(&self.session, name.to_owned()) {
            Ok(keys) => read(&self.session, &AnyKeys::new(keys)).await,
            // No lock can have such a name.
            Err(_) => Ok(None),
        }
    }
}

/// The stream of [`Client::locks`].
struct Locks {
    found: VecDeque<Description>,
    step: Option<Pin<Box<dyn Future<Output = Step> + Send>>>,
}

impl Stream for Locks {
    type Item = Result<Description>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Poll::Ready(Some(Ok(found)));
            }
            let Some(step) = &mut self.step else { return Poll::Ready(None) };
            let (found, rest) = ready!(step.as_mut().poll(cx));
            self.step = rest.map(|scan| Box::pin(scan.step()) as _);
            match found {
                Ok(found) => self.found = found.into(),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}
