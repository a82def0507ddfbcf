//! Tells the states of an exploration apart.

use super::director::{CLIENTS, World};
use super::network::{Incoming, LOCK, Reply, Request, channels_of};
use super::owners::Owner;
use super::{search, with};
use crate::connection::pubsub::Subscription;
use crate::engine::current::Current;
use crate::engine::key_actor::KeyActor;
use crate::engine::queue_id::QueueId;
use crate::engine::releases::Release;
use crate::engine::step::{Action, Step};
use crate::engine::unfinished::{DirectRequest, Unfinished};
use crate::engine::waiters::Waiter;
use crate::engine::work::Work;
use crate::kinds::kind::LockKind;
use crate::runtime::wakeup::Reading;
use crate::shuttled::time;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

/// The knowledge of an actor when it began its present step, and that step.
#[derive(Clone)]
pub(super) struct Note {
    text: String,
    /// It waits for a signal or a timer. Otherwise it sends requests.
    waits: bool,
    before: Reading,
    /// The last waiter at the time of its last busy reply.
    newest: u64,
    /// The only waiter for which that reply counts.
    only: Option<u64>,
}

/// Notes what an actor knows, and the step that it begins. Of the signal's counters only the distances matter. Kinds with a queue in
/// Redis are not explored, so their state is left out.
pub(crate) fn observe(actor: &dyn Any, step: &dyn Any) {
    if !super::is_running() {
        return;
    }
    let (Some(actor), Some(step)) = (actor.downcast_ref::<KeyActor>(), step.downcast_ref::<Step>()) else {
        unreachable!("an actor begins a step")
    };
    let (kind, waits) = match step {
        Step::Wait(_) => ("wait", true),
        Step::Do(Action::Release(_)) => ("release", false),
        Step::Do(Action::Reenter(_)) => ("re-enter", false),
        Step::Do(Action::Attempt(_)) => ("attempt", false),
        Step::Do(Action::ProbeHolder(_)) => ("probe", false),
        Step::Do(Action::Check) => ("check", false),
        _ => ("other", false),
    };
    let note = note(actor, kind, waits);
    with(|world| {
        let client = search::client().expect("an actor has a client");
        world.notes[client] = Some(note).filter(|_| kind != "other");
    });
}

fn note(actor: &KeyActor, kind: &str, waits: bool) -> Note {
    let before = actor.queue.signal.reading();
    let busy = actor.busy_reply.as_ref().map(|busy| {
        let behind = (before.epoch - busy.before.epoch, before.messages - busy.before.messages);
        (behind, busy.since, busy.holder.clone(), busy.attempt_at, busy.probe_at, busy.step, busy.at)
    });
    let window = actor.yield_window.as_ref().map(|window| {
        let turns = window.turns.as_ref();
        let turns =
            turns.map(|turns| (before.messages - turns.heard, turns.paid.saturating_sub(before.messages)));
        (window.until, turns)
    });
    let checked = actor.checked.map(|checked| before.epoch - checked);
    let probed = actor.messages_at_probe.map(|messages| before.messages - messages);
    let subscribed = actor.subscription.as_ref().map(Subscription::is_confirmed);
    let listening = (subscribed, actor.listen_until, actor.keep_subscribed, actor.turn_is_next);
    let crowd = &actor.crowd;
    let crowd = (crowd.in_vain(before.messages), crowd.count_at.remaining(), crowd.is_greedy());
    let current = hold(&actor.queue.work(), before.messages);
    let text =
        format!("{kind} {busy:?} {window:?} {checked:?} {probed:?} {listening:?} {crowd:?} {current:?}");
    let busy = actor.busy_reply.as_ref();
    let (newest, only) = busy.map_or((0, None), |busy| (busy.newest, busy.only));
    Note { text, waits, before, newest, only }
}

/// The current hold of a key queue.
fn hold(work: &Work, messages: u64) -> Option<String> {
    work.current.as_ref().map(|current| {
        let Current { hold, since, recorded, levels, .. } = current;
        let (changing, count_unsure) = (current.is_changing(), current.is_unsure());
        let run = current.run();
        let missed = run.messages_at_probe.map(|before| messages - before);
        let run = (run.since, run.count, run.others, missed);
        let hold = (&hold.owner_id, hold.is_over(), hold.deadline(), hold.end());
        format!("{hold:?} {since:?} {recorded} {levels} {changing} {count_unsure} {run:?}")
    })
}

/// Forgets the past of each client of which all that the past has left is known.
pub(super) fn forget_pasts() {
    for client in 0..CLIENTS {
        if let Some(left) = left(client) {
            with(|world| {
                let on_its_way = recorded(world, client);
                let labels = &mut world.labels[client];
                labels.renew(&[&left, &on_its_way]);
                let left = labels.apply(&left);
                world.histories[client] = Fingerprint::default();
                world.note(client, &left);
            });
        }
    }
}

/// All that the past of a client has left, apart from what is on its way. `None` if it is not known.
fn left(client: usize) -> Option<String> {
    if search::has_crashed(client) {
        return Some("crashed".to_owned());
    }
    let (session, more_tasks, note, struck) = with(|world| {
        let session = world.sessions[client].upgrade().expect("kept");
        let more_tasks = world.tasks[client] - world.resting[client];
        (session, more_tasks, world.notes[client].clone(), world.struck[client])
    });
    let generation = session.generation();
    let Some(queue) = session.existing_queue(&QueueId::Record(LOCK.into())) else {
        return (more_tasks <= 0).then(|| generation.to_string());
    };
    let now = queue.signal.reading();
    let work = queue.work();
    let note = note.filter(|_| work.has_actor);
    let unknown = work.has_actor && note.is_none() || more_tasks > i64::from(work.has_actor);
    let sends = work.direct.is_some() || note.as_ref().is_some_and(|note| !note.waits);
    if unknown || sends && struck || work.finding.is_some() {
        return None;
    }
    let releases: Option<Vec<_>> = work.releases.iter().map(level).collect();
    let releases = releases?;
    let newest = note.as_ref().map_or(0, |note| note.newest);
    let waiters: Option<Vec<_>> = work.waiters.iter().map(|waiter| shown(waiter, newest)).collect();
    let waiters = waiters?;
    let direct = match &work.direct {
        Some(request) => Some((now, request.until, direct(request)?)),
        None => None,
    };
    let heard =
        note.as_ref().map(|note| (now.epoch - note.before.epoch, now.messages - note.before.messages));
    let place = |ticket| work.waiters.iter().position(|waiter| waiter.ticket == ticket);
    let only = note.as_ref().and_then(|note| note.only).map(place);
    let note = note.map(|note| note.text);
    let current = hold(&work, now.messages);
    let seen = (&work.busy, work.yield_until, work.pollers_until, work.rest, &work.passing);
    drop(session);
    Some(format!(
        "{generation} {note:?} {heard:?} {only:?} {current:?} {seen:?} {releases:?} {waiters:?} {direct:?}"
    ))
}

/// The request of a caller. A release that an actor has overtaken follows a fault, and is not known.
fn direct(request: &DirectRequest) -> Option<String> {
    match request.unfinished.as_ref()? {
        Unfinished::Acquire(acquire) => {
            Some(format!("{} {}", id(&*acquire.kind, &acquire.owner_id), acquire.overtaken))
        }
        Unfinished::Release(freeing) => {
            let next = freeing.successor.as_ref().map(|next| (&next.owner_id, next.lease));
            Some(format!("{} {next:?}", id(&*freeing.hold.kind, &freeing.named)))
        }
        Unfinished::Overtaken(_) => None,
    }
}

/// A release of a level. Other releases follow faults, and are not known.
fn level(release: &Release) -> Option<String> {
    match release {
        Release::Level(level) => {
            // The release of permits does not name the request that took them.
            let owner_id = level.hold.kind.permits().is_none().then_some(&level.hold.owner_id);
            Some(format!("{owner_id:?} {}", level.reply.is_some()))
        }
        _ => None,
    }
}

/// An owner id. The one of permits is a number.
fn id(kind: &dyn LockKind, owner_id: &str) -> String {
    if kind.permits().is_some() { format!("{NUMBER}{owner_id}") } else { owner_id.to_owned() }
}

fn shown(waiter: &Waiter, newest: u64) -> Option<String> {
    let arrived = waiter.ticket <= newest;
    waiter.unanswered.is_none().then(|| format!("{:?} {} {arrived}", waiter.owner, waiter.once))
}

/// A fingerprint of everything that decides how the execution goes on: what each client has received and done, the data of the
/// server, and what is on its way.
pub(super) fn state() -> u128 {
    let (now, timers) = (time::since_boot(), time::timers());
    with(|world| {
        let recorded: Vec<_> = (0..CLIENTS).map(|client| recorded(world, client)).collect();
        let mut all = Fingerprint::default();
        world.histories.iter().for_each(|history| all.add(&history.0.to_string()));
        let World { network, labels, early_left, fault_left, owners, struck, .. } = world;
        all.add(&format!("{now:?} {timers:?} {early_left} {fault_left:?} {:?}", network.data.records));
        all.add(&format!("{struck:?}"));
        for owner in owners.iter() {
            let Owner { ready, cancellable, waits, may_be_busy, steps_left, guards, failures, .. } = owner;
            let before = place(owner, owners);
            let may_be_busy = *waits && *may_be_busy;
            all.add(&format!("{ready} {cancellable} {waits} {may_be_busy} {steps_left}"));
            all.add(&format!("{guards} {before} {failures:?}"));
        }
        all.add(&network.free_permits().to_string());
        for (text, labels) in recorded.iter().zip(labels.iter_mut()) {
            all.add(&labels.apply(text));
        }
        for link in &network.commands {
            let requests: Vec<_> = link.requests.iter().map(Request::text).collect();
            let replies: Vec<_> = link.replies.iter().map(Reply::text).collect();
            let text = format!("{} {requests:?} {replies:?}", link.is_up());
            all.add(&labels[link.client].apply(&text));
        }
        for link in &network.subscriptions {
            let channels = channels_of(network, link);
            let incoming: Vec<_> = link.incoming.iter().map(Incoming::text).collect();
            let changes: Vec<_> = link.changes.iter().map(|(change, _)| change).collect();
            all.add(&format!("{channels:?} {changes:?} {incoming:?}"));
        }
        all.0
    })
}

/// The number of owners of the same client that made their present step earlier. Requests for permits do not name their owners, but a key
/// queue keeps the order of its callers.
fn place(owner: &Owner, owners: &[Owner]) -> usize {
    let before = |other: &&Owner| !other.ready && other.client == owner.client && other.acted < owner.acted;
    if owner.ready { 0 } else { owners.iter().filter(before).count() }
}

/// The sign before the number of a request in a text.
pub(super) const NUMBER: char = '#';

/// The numbers of one client's requests for permits. Another execution has other numbers, and only their order matters. So a fingerprint
/// contains a label instead of each.
#[derive(Clone, Default)]
pub(super) struct Labels(BTreeMap<u64, usize>);

impl Labels {
    /// Labels the numbers in these texts anew. The client has no others left.
    fn renew(&mut self, texts: &[&str]) {
        self.0.clear();
        texts.iter().flat_map(|text| numbers(text)).for_each(|number| _ = self.0.insert(number, 0));
        self.0.values_mut().enumerate().for_each(|(at, label)| *label = at);
    }

    /// Replaces the numbers in a text by their labels. The number of labels comes first, because it decides those of later numbers.
    fn apply(&mut self, text: &str) -> String {
        let new: BTreeSet<_> = numbers(text).filter(|number| !self.0.contains_key(number)).collect();
        for number in new {
            let last = self.0.last_key_value().map_or(0, |(last, _)| *last);
            assert!(last < number, "number {number} of a request appears after number {last}");
            self.0.insert(number, self.0.len());
        }
        let before = text.split(NUMBER).next().unwrap_or_default();
        let labelled = numbered(text).map(|(number, rest)| format!("{NUMBER}{}{rest}", self.0[&number]));
        format!("{} {before}{}", self.0.len(), labelled.collect::<String>())
    }
}

/// The numbers of requests in a text.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    numbered(text).map(|(number, _)| number)
}

/// The numbers of requests in a text, each with the text up to the next one.
fn numbered(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.split(NUMBER).skip(1).map(|part| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        (number.parse().expect("a number"), rest)
    })
}

/// The numbers of a client's requests outside it: the last one that took effect, and those on their way. The time at which the mark expires
/// is left out, because no execution takes that long.
fn recorded(world: &World, client: usize) -> String {
    let session = world.sessions[client].upgrade().expect("kept");
    let key = session.instance.to_string();
    let mark = world.network.data.numbers.iter().find(|(name, _)| name.ends_with(&key));
    let mark = mark.map(|(_, mark)| format!("{NUMBER}{}", mark.value)).unwrap_or_default();
    let links = world.network.commands.iter().filter(|link| link.client == client);
    let requests = links.flat_map(|link| {
        let replies = link.replies.iter().map(Reply::text);
        link.requests.iter().map(Request::text).chain(replies)
    });
    format!("{mark} {}", requests.collect::<Vec<_>>().join(" "))
}

/// A hash of 128 bits (FNV-1a), so that two states hardly ever have the same one.
#[derive(Clone, Copy)]
pub(super) struct Fingerprint(u128);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fingerprint {
    pub(super) fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}
