//! One lock over time: [`Client::watch`].

use crate::client::Client;
use crate::client::locks::describe;
use crate::connection::pubsub::Subscription;
use crate::engine::names::KnownClients;
use crate::engine::session::Session;
use crate::error::{Error, Result};
use crate::kinds::description::{Description, RecordKind};
use crate::owner::entered;
use crate::protocol::keys::AnyKeys;
use crate::runtime::sync::{select, time};
use crate::runtime::wakeup::Signal;
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The shortest interval.
const SHORTEST: Duration = Duration::from_millis(10);

/// A lock at one moment, as [`Client::watch`] saw it.
///
/// ```
/// # fn f(seen: redisson_lock::Sighting) {
/// match seen.lock {
///     Some(lock) => println!("{} holders", lock.holders.len()),
///     None => println!("free, after {} releases", seen.releases),
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// The lock as its record shows it; `None` without a record.
    pub lock: Option<Description>,
    /// The number of messages of releases that came since the sighting before.
    pub releases: u64,
}

impl Client {
    /// Returns a stream that shows the lock `name`, of any kind, now and again whenever its release is published, and after each
    /// `interval`.
    ///
    /// The stream never ends by itself, except when the client is closed. After an error it continues. An interval below 10 ms is 10 ms.
    ///
    /// The stream misses a hold that begins and ends between two sightings:
    /// - No message reports an acquire, the end of a lease, or the release of a spin lock or of another library's value lock.
    /// - The release of a fair lock is published to its next waiter only, and that of a reader only if it is the last.
    /// - Semaphores and latches are only read after each interval.
    ///
    /// The stream subscribes to the channels of the lock. It does not count itself as a waiter, but other clients do.
    ///
    /// ```no_run
    /// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
    /// use std::time::Duration;
    /// use tokio_stream::StreamExt;
    /// let mut sightings = client.watch("orders:42", Duration::from_secs(1));
    /// while let Some(seen) = sightings.next().await {
    ///     println!("{:?}", seen?.lock.map(|lock| lock.holders));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`describe`](Self::describe).
    ///
    /// # Cancel safety
    /// Cancel safe: the stream works only while it is polled, and changes nothing.
    pub fn watch(
        &self,
        name: &str,
        interval: Duration,
    ) -> impl Stream<Item = Result<Sighting>> + Send + Unpin + use<> {
        let keys = self.keys(name).map(AnyKeys::new);
        let step: Option<Pin<Box<dyn Future<Output = Step> + Send>>> = match keys {
            Ok(keys) => {
                let signal = Arc::<Signal>::default();
                let [lock, read_write, ..] = &keys.channels;
                let subscriptions =
                    [lock, read_write].map(|channel| self.session.pubsub.subscribe(channel, &signal));
                let session = self.session.clone();
                let interval = interval.max(SHORTEST);
                let watch = Watch {
                    session,
                    keys,
                    interval,
                    signal,
                    subscriptions,
                    heard: 0,
                    known: KnownClients::default(),
                };
                Some(Box::pin(watch.step(true)))
            }
            Err(error) => Some(Box::pin(async { (Err(error), None) })),
        };
        Sightings { step }
    }
}

/// The state of a stream between two sightings.
struct Watch {
    session: Arc<Session>,
    keys: AnyKeys,
    interval: Duration,
    signal: Arc<Signal>,
    /// Those of a lock and a read/write lock.
    subscriptions: [Subscription; 2],
    /// The number of messages that were reported.
    heard: u64,
    /// The clients of the holders.
    known: KnownClients,
}

/// A sighting, and the state after it, unless it is the last.
type Step = (Result<Sighting>, Option<Watch>);

impl Watch {
    async fn step(mut self, first: bool) -> Step {
        if let Err(error) = entered() {
            return (Err(error), None);
        }
        if !first {
            select! {
                () = self.signal.woken() => {}
                () = time::sleep(self.interval) => {}
            }
        }
        let heard = self.signal.reading().messages;
        self.known.keep_described();
        match describe(&self.session, &self.keys, &mut self.known).await {
            Ok(mut lock) => {
                lock.iter_mut().for_each(|lock| self.discount(lock));
                let releases = heard - std::mem::replace(&mut self.heard, heard);
                (Ok(Sighting { lock, releases }), Some(self))
            }
            Err(error) => {
                let is_last = matches!(error, Error::Closed { .. } | Error::Misuse { .. });
                (Err(error), (!is_last && !self.session.is_closed()).then_some(self))
            }
        }
    }

    /// Does not count this stream's own subscription.
    fn discount(&self, lock: &mut Description) {
        let own = match lock.kind {
            RecordKind::Read | RecordKind::Write => &self.subscriptions[1],
            RecordKind::Lock
            | RecordKind::Fenced
            | RecordKind::Group
            | RecordKind::Value
            | RecordKind::Text => &self.subscriptions[0],
            _ => return,
        };
        lock.waiters = lock.waiters.map(|waiters| waiters.saturating_sub(own.is_confirmed().into()));
    }
}

/// The stream of [`Client::watch`].
struct Sightings {
    step: Option<Pin<Box<dyn Future<Output = Step> + Send>>>,
}

impl Stream for Sightings {
    type Item = Result<Sighting>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let (seen, rest) = ready!(step.as_mut().poll(cx));
        self.step = rest.map(|watch| Box::pin(watch.step(false)) as _);
        Poll::Ready(Some(seen))
    }
}
