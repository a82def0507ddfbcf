//! Chooses the next event whenever all tasks of the clients wait, and checks the invariants before each choice.

use super::kinds::{Handle, Kind};
use super::network::{LOCK, Network};
use super::owners::{self, Owner};
use super::search::{self, Search};
use super::state::{Fingerprint, Labels, Note, forget_pasts, state};
use super::{Fault, Scenario, with};
use crate::config::options::Options;
use crate::connection::Topology;
use crate::engine;
use crate::engine::queue_id::QueueId;
use crate::engine::session::Session;
use crate::shuttled::sync::task;
use crate::shuttled::time;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use uuid::Uuid;

/// A waiter for a free lock may wait this long after the last event: the client yields to others, for 3 ms. The first probe comes
/// after 10 ms.
const LONGEST_YIELD: Duration = Duration::from_millis(5);
/// Without a fault, nothing is left this long after the last event.
const CLEAN_AFTER: Duration = Duration::from_secs(1);
/// Only timers that are due within this time may fire early. Heartbeats are later.
const NEAR: Duration = Duration::from_millis(100);

/// One step of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The server executes the next request of this connection.
    Execute(usize),
    /// The client receives the next reply of this connection.
    Reply(usize),
    /// The server changes the subscriptions of this connection.
    Change(usize),
    /// The client receives the next confirmation or message of this connection.
    Hear(usize),
    /// This owner makes its next step.
    Act(usize),
    /// This owner drops the acquire that it waits for.
    Cancel(usize),
    /// The next timer fires.
    Tick,
    Fault,
}

/// The state of one execution, apart from the clients'.
pub(super) struct World {
    pub network: Network,
    pub owners: Vec<Owner>,
    pub sessions: Vec<Weak<Session>>,
    /// The inputs and the actions of each client so far. They determine the client's state.
    pub histories: Vec<Fingerprint>,
    /// The numbers of each client's requests.
    pub labels: Vec<Labels>,
    /// The knowledge and the step of each client's actor, if it has one.
    pub notes: Vec<Option<Note>>,
    /// The fault has struck the client.
    pub struck: Vec<bool>,
    pub early_left: u32,
    pub fault_left: Option<Fault>,
    /// The time of the last event that was no timer.
    pub last_event: Duration,
    /// The events so far, for a failure.
    pub trace: Vec<String>,
    pub tasks: Vec<i64>,
    /// The number of tasks of each client once it is connected.
    pub resting: Vec<i64>,
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let owner =
            |program: &super::Program| Owner::new(program.client, program.steps.len(), program.cancellable);
        Self {
            network: Network::new(scenario.kind),
            owners: scenario.programs.iter().map(owner).collect(),
            sessions: (0..CLIENTS).map(|_| Weak::new()).collect(),
            histories: vec![Fingerprint::default(); CLIENTS],
            labels: vec![Labels::default(); CLIENTS],
            notes: vec![None; CLIENTS],
            struck: vec![false; CLIENTS],
            early_left: scenario.early,
            fault_left: scenario.fault,
            last_event: Duration::ZERO,
            trace: Vec::new(),
            tasks: vec![0; CLIENTS],
            resting: vec![0; CLIENTS],
        }
    }

    fn fault_applies(&self) -> bool {
        self.fault_left.is_some_and(|fault| fault.applies(&self.network))
    }

    pub(super) fn note(&mut self, client: usize, what: &str) {
        self.histories[client].add(what);
    }
}

pub(super) const CLIENTS: usize = 2;

/// Runs one execution.
pub(super) async fn direct(scenario: &'static Scenario, search: &Search) {
    connect(scenario).await;
    start_owners(scenario).await;
    loop {
        settle().await;
        scenario.kind.check();
        with(|world| scenario.kind.note_busy(world));
        let events = enabled(scenario);
        if events.is_empty() {
            if is_over() && is_clean(scenario.kind) {
                check_outcomes(scenario);
                return;
            }
            forced_tick(scenario);
            continue;
        }
        forget_pasts();
        let Some(chosen) = search.choose(events.len(), state()) else { return };
        happen(events[chosen]);
    }
}

async fn connect(scenario: &Scenario) {
    for client in 0..CLIENTS {
        search::spawn_for(client);
        let options =
            Options { id: Uuid::from_u128(client as u128 + 1), lease: scenario.lease, ..Options::default() };
        drop(task::spawn(async move {
            let servers = Topology::parse("redis://server", &Options::default()).expect("a URL");
            let session = engine::connect(servers, options).await.expect("a connection");
            with(|world| world.sessions[client] = Arc::downgrade(&session));
            // Keeps the client.
            std::future::pending::<()>().await;
            drop(session);
        }));
        while with(|world| world.sessions[client].upgrade().is_none()) {
            settle().await;
        }
    }
    settle().await;
    with(|world| world.resting = world.tasks.clone());
}

async fn start_owners(scenario: &Scenario) {
    for (number, program) in scenario.programs.iter().enumerate() {
        search::spawn_for(program.client);
        let session = with(|world| world.sessions[program.client].upgrade()).expect("connected");
        let handle = Handle::new(scenario.kind, session, program, scenario.lease);
        drop(shuttle::future::spawn(owners::act(number, handle, program.steps)));
        settle().await;
    }
}

/// Lets the clients run until all their tasks wait, and the server answer what does not matter.
async fn settle() {
    loop {
        task::yield_now().await;
        if !with(|world| world.network.exchange()) {
            return;
        }
    }
}

/// The events that are possible now.
fn enabled(scenario: &Scenario) -> Vec<Event> {
    let next_timer = time::timers().first().copied();
    with(|world| {
        let mut events = deliveries(&world.network);
        events.extend(steps(scenario, &world.owners));
        let own = own_events(world, &events);
        if !own.is_empty() || events.is_empty() {
            return own;
        }
        if world.early_left > 0 && next_timer.is_some_and(|at| at < time::since_boot() + NEAR) {
            events.push(Event::Tick);
        }
        if world.fault_applies() {
            events.push(Event::Fault);
        }
        events
    })
}

fn deliveries(network: &Network) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, link) in network.commands.iter().enumerate() {
        events.extend((!link.replies.is_empty()).then_some(Event::Reply(number)));
        events.extend((!link.requests.is_empty()).then_some(Event::Execute(number)));
    }
    for (number, link) in network.subscriptions.iter().enumerate() {
        events.extend((!link.incoming.is_empty()).then_some(Event::Hear(number)));
        events.extend((!link.changes.is_empty()).then_some(Event::Change(number)));
    }
    events
}

/// The steps of owners that are possible now.
fn steps(scenario: &Scenario, owners: &[Owner]) -> Vec<Event> {
    let begun = |other: usize| owners[other].steps_left < scenario.programs[other].steps.len();
    let mut events = Vec::new();
    for (number, owner) in owners.iter().enumerate().filter(|(_, owner)| !search::has_crashed(owner.client)) {
        if owner.ready && owner.steps_left > 0 && scenario.programs[number].after.is_none_or(begun) {
            events.push(Event::Act(number));
        }
        if owner.waits && owner.cancellable {
            events.push(Event::Cancel(number));
        }
    }
    events
}

/// The events of a client that no event of the other client can affect, so that their order with the other's need not be explored:
/// the client has no request or subscription at the server, and no timer may fire first. A fault strikes only its own client.
fn own_events(world: &World, events: &[Event]) -> Vec<Event> {
    let World { network, owners, .. } = world;
    let client_of = |event: &Event| match *event {
        Event::Reply(link) | Event::Execute(link) => Some(network.commands[link].client),
        Event::Hear(link) | Event::Change(link) => Some(network.subscriptions[link].client),
        Event::Act(owner) | Event::Cancel(owner) => Some(owners[owner].client),
        Event::Tick | Event::Fault => None,
    };
    if world.early_left > 0 {
        return Vec::new();
    }
    let own = |client| {
        let own = events.iter().copied().filter(move |event| client_of(event) == Some(client));
        own.collect::<Vec<_>>()
    };
    let mut isolated =
        (0..CLIENTS).filter(|client| network.is_isolated(*client)).map(|client| (client, own(client)));
    let Some((client, mut own)) = isolated.find(|(_, own)| !own.is_empty()) else { return Vec::new() };
    if client == Fault::CLIENT && world.fault_applies() {
        own.push(Event::Fault);
    }
    own
}

/// Makes an event happen.
fn happen(event: Event) {
    let mut due = Vec::new();
    with(|world| {
        let now = time::since_boot();
        world.last_event = now;
        let (client, what) = match event {
            Event::Execute(link) => {
                let request = world.network.execute(link);
                (None, format!("executes {request:?}"))
            }
            Event::Reply(link) => {
                let reply = world.network.commands[link].reply();
                (Some(world.network.commands[link].client), format!("{reply:?}"))
            }
            Event::Change(link) => {
                world.network.change(link);
                (None, String::new())
            }
            Event::Hear(link) => {
                let heard = world.network.subscriptions[link].hear();
                (Some(world.network.subscriptions[link].client), heard)
            }
            Event::Act(owner) => {
                let acted = world.owners.iter().map(|owner| owner.acted).max().unwrap_or(0) + 1;
                world.owners[owner].go(acted);
                (Some(world.owners[owner].client), String::new())
            }
            Event::Cancel(owner) => {
                world.owners[owner].cancel();
                (Some(world.owners[owner].client), String::new())
            }
            Event::Tick => {
                world.early_left -= 1;
                due = tick(world);
                (None, String::new())
            }
            Event::Fault => {
                let fault = world.fault_left.take().expect("a fault is left");
                fault.strike(&mut world.network);
                world.struck[Fault::CLIENT] = true;
                (Some(Fault::CLIENT), format!("{fault:?}"))
            }
        };
        world.trace.push(format!("{now:?} {event:?} {what}"));
        if let Some(client) = client {
            world.note(client, &format!("{event:?} {what}"));
        }
    });
    due.into_iter().for_each(Waker::wake);
}

/// Moves the clock to the next timer. Returns the tasks to wake.
fn tick(world: &mut World) -> Vec<Waker> {
    let due = time::advance();
    for client in 0..CLIENTS {
        world.note(client, &format!("tick {:?}", time::since_boot()));
    }
    due
}

/// Moves the clock, because nothing else can happen. A waiter must not depend on that if what it wants is free.
fn forced_tick(scenario: &Scenario) {
    let at = *time::timers().first().expect("a client has timers");
    let due = with(|world| {
        let waiting: Vec<_> = world.owners.iter().enumerate().filter(|(_, owner)| owner.waits).collect();
        let waiting = waiting
            .iter()
            .filter(|(_, owner)| !search::has_crashed(owner.client) && world.network.reaches(owner.client));
        let waiting: Vec<_> = waiting.map(|(number, _)| *number).collect();
        let free_since = scenario.kind.free_since(world);
        let lost = !waiting.is_empty() && free_since.is_some_and(|since| at > since + LONGEST_YIELD);
        assert!(!lost, "nothing is held, and owners {waiting:?} wait for a timer at {at:?}");
        // Without a fault nothing is left for the end of a lease.
        let limit = scenario.fault.map_or(CLEAN_AFTER, |_| scenario.lease + Duration::from_secs(10));
        assert!(at < world.last_event + limit, "{}", left(world));
        tick(world)
    });
    due.into_iter().for_each(Waker::wake);
}

/// Whether every owner of a running client has made its steps.
fn is_over() -> bool {
    with(|world| world.owners.iter().all(|owner| owner.is_done() || search::has_crashed(owner.client)))
}

fn check_outcomes(scenario: &Scenario) {
    let failures: Vec<_> =
        with(|world| world.owners.iter().flat_map(|owner| &owner.failures).cloned().collect());
    assert!(scenario.may_fail || failures.is_empty(), "{failures:?}");
}

/// Whether nothing is left.
fn is_clean(kind: Kind) -> bool {
    with(|world| {
        let running = |client: &usize| !search::has_crashed(*client);
        let idle = |client: usize| {
            let session = world.sessions[client].upgrade().expect("kept");
            let queue = session.existing_queue(&QueueId::Record(LOCK.into()));
            queue.is_none() && world.tasks[client] <= world.resting[client]
        };
        kind.is_returned(world) && world.network.channels() == 0 && (0..CLIENTS).filter(running).all(idle)
    })
}

/// The remains of an execution, for the report of a failure.
fn left(world: &World) -> String {
    format!(
        "left: {:?} {:?}, {} subscriptions, tasks {:?} instead of {:?}",
        world.network.data.records,
        world.network.data.numbers,
        world.network.channels(),
        world.tasks,
        world.resting
    )
}
