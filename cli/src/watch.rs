//! `watch`: acquisitions, releases and losses as they happen. [`events`] compares two sightings of a lock.

use crate::args::{Connection, Watch};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::list::holder_name;
use crate::output::{line, write_out};
use crate::permissions::{Wanted, explained};
use crate::table::{Style, shown, styled};
use redisson_lock::{Client, Description, Error, Holder, Sighting};
use serde_json::json;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt;

/// How much later than the reading of a free record the message of its release may come.
const LATE: Duration = Duration::from_millis(100);
/// How long a lock of a pattern is watched after it was free.
const KEPT: Duration = Duration::from_secs(60);
/// How often the names of a pattern are looked for, at most.
const LOOK: Duration = Duration::from_secs(1);

/// An event of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    what: &'static str,
    kind: Option<String>,
    holder: Option<Holder>,
    /// For people and machines, such as "the lease ended".
    detail: Option<String>,
}

/// An event, the name of its lock, and its time.
type Report = (String, Event, SystemTime);

/// Watches one lock, or all locks of a pattern, until a signal comes.
pub async fn watch(watch: &Watch, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| {
        let (reports, mut happened) = mpsc::unbounded_channel();
        let looking = async {
            if watch.name.contains(['*', '?', '[']) {
                return look_for(client, watch, &reports).await;
            }
            let followed = Follower::new(&watch.name, watch.interval, &reports).follow(client).await;
            // Only a client that is closed ends the stream.
            let failure =
                followed.map_or_else(Failure::from, |()| Failure::System("the client is closed".to_owned()));
            Err(explained(client, Wanted::Lock(&watch.name), failure).await)
        };
        tokio::pin!(looking);
        loop {
            tokio::select! {
                biased;
                Some(report) = happened.recv() => write(&report, watch.json)?,
                done = &mut looking => return done,
            }
        }
    })
    .await
}

/// Follows each lock of the pattern, from when it is found until it has been free for a while.
async fn look_for(client: &Client, watch: &Watch, reports: &UnboundedSender<Report>) -> Result<u8, Failure> {
    let followed = Arc::new(Mutex::new(HashSet::<String>::new()));
    let mut is_first_look = true;
    loop {
        let mut locks = client.locks(&watch.name);
        while let Some(found) = locks.next().await {
            let name = match found {
                Ok(found) if found.kind.is_certain() => found.name,
                Ok(_) => continue,
                Err(error) if error.is_unavailable() => {
                    let _ =
                        reports.send((watch.name.clone(), of_error(error.to_string()), SystemTime::now()));
                    break;
                }
                Err(error) => {
                    return Err(explained(client, Wanted::Pattern(&watch.name), error.into()).await);
                }
            };
            if names(&followed).insert(name.clone()) {
                let follower = Follower::new(&name, watch.interval, reports).while_held(is_first_look);
                let (client, followed) = (client.with_stored_names(), followed.clone());
                tokio::spawn(async move {
                    // The next look for names reports an error that lasts.
                    let _ = follower.follow(&client).await;
                    names(&followed).remove(&name);
                });
            }
        }
        is_first_look = false;
        sleep(watch.interval.max(LOOK)).await;
    }
}

fn names(followed: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    followed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports the events of one lock.
struct Follower {
    name: String,
    interval: Duration,
    reports: UnboundedSender<Report>,
    /// Whether to stop after the lock has been free for a while.
    is_temporary: bool,
    /// The last sighting, and when the server was asked for it: its lease may have been read then.
    before: Option<(Option<Description>, Instant)>,
    /// When the lock was last held, or the start.
    held_at: Instant,
    last_error: Option<String>,
}

impl Follower {
    fn new(name: &str, interval: Duration, reports: &UnboundedSender<Report>) -> Self {
        Self {
            name: name.to_owned(),
            interval,
            reports: reports.clone(),
            is_temporary: false,
            before: None,
            held_at: Instant::now(),
            last_error: None,
        }
    }

    /// Follows a lock that is held only for as long as it is, and for a while after. Unless the first look for locks found it, it was free
    /// before.
    fn while_held(self, is_first_look: bool) -> Self {
        let before = (!is_first_look).then(|| (None, Instant::now()));
        Self { is_temporary: true, before, ..self }
    }

    /// Reports until the client is closed, or nobody receives the reports, or a temporary one is done. Fails if the first reading does, and
    /// another would, too.
    async fn follow(mut self, client: &Client) -> Result<(), Error> {
        let mut sightings = client.watch(&self.name, self.interval);
        let mut due = Instant::now();
        while let Some(seen) = sightings.next().await {
            let at = Instant::now();
            // The answer may be late. A message may have come before the reading was due.
            let asked = due.min(at);
            due = at + self.interval;
            let mut seen = match seen {
                Ok(seen) => seen,
                Err(error) if self.before.is_none() && !error.is_retryable() => return Err(error),
                Err(error) => {
                    self.report_error(error.to_string());
                    // An error may come at once.
                    sleep(self.interval).await;
                    continue;
                }
            };
            if self.has_ended_a_hold(&seen) && seen.releases == 0 {
                // The message comes on another connection than the reading.
                if let Ok(Some(Ok(later))) = timeout(LATE, sightings.next()).await {
                    seen = later;
                }
            }
            if self.take(seen, asked, at).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Whether a holder of the sighting before is no holder in this one.
    fn has_ended_a_hold(&self, seen: &Sighting) -> bool {
        let is_now = |holder: &Holder| {
            seen.lock.iter().flat_map(|lock| &lock.holders).any(|other| other.owner() == holder.owner())
        };
        let before = self.before.iter().filter_map(|(before, _)| before.as_ref());
        before.flat_map(|lock| &lock.holders).any(|holder| !is_now(holder))
    }

    /// Reports what a sighting shows, which the server was asked for and answered between these times.
    fn take(&mut self, seen: Sighting, asked: Instant, at: Instant) -> ControlFlow<()> {
        self.last_error = None;
        let events = match &self.before {
            None => first(&seen),
            Some((before, then)) => events(before.as_ref(), &seen, at - *then),
        };
        for event in events {
            self.report(event)?;
        }
        if seen.lock.is_some() {
            self.held_at = at;
        } else if self.is_temporary && self.held_at.elapsed() > KEPT {
            return ControlFlow::Break(());
        }
        self.before = Some((seen.lock, asked));
        ControlFlow::Continue(())
    }

    /// Reports an error once, until a sighting or another error comes.
    fn report_error(&mut self, error: String) {
        if self.last_error.as_ref() != Some(&error) {
            let _ = self.report(of_error(error.clone()));
            self.last_error = Some(error);
        }
    }

    fn report(&self, event: Event) -> ControlFlow<()> {
        match self.reports.send((self.name.clone(), event, SystemTime::now())) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}

/// The events that describe the lock when the watch begins.
fn first(seen: &Sighting) -> Vec<Event> {
    let Some(lock) = &seen.lock else {
        return vec![Event { what: "free", kind: None, holder: None, detail: None }];
    };
    let mut found: Vec<_> = lock.holders.iter().map(|holder| of_holder("held", lock, holder, None)).collect();
    found.extend(counts(lock).map(|text| of_lock("count", lock, Some(text))));
    found
}

/// The events between two sightings, at most `since` apart.
fn events(before: Option<&Description>, seen: &Sighting, since: Duration) -> Vec<Event> {
    let mut found = Vec::new();
    let now = seen.lock.as_ref();
    let holder_in = |lock: Option<&Description>, owner: &str| {
        lock.and_then(|lock| lock.holders.iter().find(|holder| holder.owner() == owner).cloned())
    };
    for (lock, holder) in
        before.iter().flat_map(|lock| lock.holders.iter().map(move |holder| (*lock, holder)))
    {
        match holder_in(now, holder.owner()) {
            None => found.push(end(lock, holder, seen, since)),
            Some(_) if seen.releases > 0 && now.is_some_and(|now| now.holders.len() == 1) => {
                found.push(of_holder("released", lock, holder, None));
                found.push(of_holder("acquired", lock, holder, None));
            }
            Some(same) if same.count() != holder.count() => {
                found.push(of_holder("count", lock, &same, Some(format!("{} times", same.count()))));
            }
            Some(_) => {}
        }
    }
    if let Some(lock) = now {
        for holder in lock.holders.iter().filter(|holder| holder_in(before, holder.owner()).is_none()) {
            found.push(of_holder("acquired", lock, holder, None));
        }
    }
    let (was, is) = (before.and_then(counts), now.and_then(counts));
    match (before, now) {
        (Some(lock), None) if was.is_some() => found.push(of_lock("deleted", lock, None)),
        (None, Some(lock)) if is.is_some() => found.push(of_lock("created", lock, is)),
        (Some(_), Some(lock)) if was != is => found.push(of_lock("count", lock, is)),
        _ => {}
    }
    found
}

/// The end of a hold: with a message, or with the lease, or in another way.
fn end(lock: &Description, holder: &Holder, seen: &Sighting, since: Duration) -> Event {
    if seen.releases > 0 {
        return of_holder("released", lock, holder, None);
    }
    match lock.remaining_lease {
        Some(left) if left <= since => of_holder("lost", lock, holder, Some("the lease ended".to_owned())),
        _ => of_holder("ended", lock, holder, Some("no message was published".to_owned())),
    }
}

fn of_holder(what: &'static str, lock: &Description, holder: &Holder, detail: Option<String>) -> Event {
    Event { holder: Some(holder.clone()), ..of_lock(what, lock, detail) }
}

fn of_error(error: String) -> Event {
    Event { what: "error", kind: None, holder: None, detail: Some(error) }
}

fn of_lock(what: &'static str, lock: &Description, detail: Option<String>) -> Event {
    Event { what, kind: Some(lock.kind.to_string()), holder: None, detail }
}

/// The numbers of a semaphore or a latch.
fn counts(lock: &Description) -> Option<String> {
    match (lock.count?, lock.taken) {
        (free, Some(taken)) => Some(format!("{free} free, {taken} taken")),
        (count, None) => Some(count.to_string()),
    }
}

fn write((name, event, at): &Report, as_json: bool) -> Result<(), Failure> {
    let time = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let Event { what, kind, holder, detail } = event;
    if as_json {
        return line(&json!({
            "event": what,
            "time_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            "name": name,
            "kind": kind,
            "owner": holder.as_ref().map(Holder::owner),
            "client": holder.as_ref().map(Holder::client_id),
            "count": holder.as_ref().map(Holder::count),
            "detail": detail,
        }));
    }
    let seconds = time.as_secs() % 86_400;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let word = format!("{what:<8}");
    let word = match *what {
        "acquired" | "held" => styled(&word, Style::Green),
        "ended" => styled(&word, Style::Yellow),
        "lost" | "error" => styled(&word, Style::Red),
        _ => word,
    };
    let ms = time.subsec_millis();
    let mut text = format!("{hour:02}:{minute:02}:{second:02}.{ms:03}Z  {word}  {}", shown(name));
    for part in [kind.clone(), holder.as_ref().map(holder_name), detail.as_deref().map(shown)] {
        part.iter().for_each(|part| text.push_str(&format!("  {part}")));
    }
    text.push('\n');
    write_out(text)
}
