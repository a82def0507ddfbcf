//! Explores all orders of events of small scenarios: two clients contend for one lock or semaphore, with at most one fault.
//!
//! An event is a delivery (the server executes a request; a client receives a reply, a confirmation or a message), a step of an
//! owner, a timer, or the fault. Between two events the tasks of the clients run until all of them wait, always in the same order.
//! The clock moves to the next timer when nothing else can happen. A scenario says how many timers may fire before that, as if
//! deliveries were slow.
//!
//! Each execution starts anew, because a client cannot be copied. It ends at a state that was reached before:
//! - Two states are the same if each client has received and done the same, and if the server and the network are in the same state.
//!   So orders that differ only in events of different clients are explored once. This leaves nothing out.
//! - The past of a client is replaced by what it has left, where that is known (`state.rs`). This leaves nothing out as long as
//!   `state.rs` names all that a key queue and its actor keep. After a fault, only the past of an idle or waiting client is replaced.
//!
//! A failure prints the events, and a path. `EXPLORE_PATH=<path>` repeats that execution with a log.

mod director;
mod kinds;
mod network;
mod owners;
mod scenarios;
mod search;
mod state;

pub(crate) use network::{Link, connect, listen};
pub(crate) use state::observe;

use crate::shuttled::time;
use director::World;
use kinds::Kind;
use network::Network;
use owners::Step;
use search::{Coverage, InOrder, Search};
use shuttle::{Config, MaxSteps, Runner};
use std::cell::RefCell;
use std::time::{Duration, Instant};

thread_local!(static WORLD: RefCell<Option<World>> = const { RefCell::new(None) });

/// The programs and the bounds of an exploration.
struct Scenario {
    name: &'static str,
    kind: Kind,
    programs: &'static [Program],
    lease: Duration,
    /// How many timers may fire although something else can happen.
    early: u32,
    fault: Option<Fault>,
    /// The owners may see errors.
    may_fail: bool,
    /// The number of executions that the exploration takes at least.
    at_least: u64,
}

/// The program of one owner.
struct Program {
    client: usize,
    owner: &'static str,
    steps: &'static [Step],
    /// Its acquires may be dropped while they wait.
    cancellable: bool,
    /// The owner does not start before this one.
    after: Option<usize>,
}

/// A fault. It strikes the first client once, at any time or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection for commands ends. A reply on its way is lost; a request on its way is executed at any later time.
    CutCommands,
    /// No reply arrives on the connection for commands any more.
    Silence,
    /// The connection for subscriptions ends, and what is on its way is lost.
    CutSubscriptions,
    /// The client stops.
    Crash,
}

impl Fault {
    const CLIENT: usize = 0;

    /// Whether the fault makes a difference now.
    fn applies(self, network: &Network) -> bool {
        match self {
            Self::CutCommands | Self::Silence => {
                let mut links = network.commands.iter().filter(|link| link.client == Self::CLIENT);
                links.any(|link| link.is_up() && !(link.requests.is_empty() && link.replies.is_empty()))
            }
            Self::CutSubscriptions => {
                let mut links = network.subscriptions.iter().filter(|link| link.client == Self::CLIENT);
                links.any(|link| !link.is_idle(network))
            }
            Self::Crash => true,
        }
    }

    fn strike(self, network: &mut Network) {
        match self {
            Self::CutCommands => network.cut_commands(Self::CLIENT),
            Self::Silence => network.silence(Self::CLIENT),
            Self::CutSubscriptions => network.cut_subscriptions(Self::CLIENT),
            Self::Crash => {
                search::crash(Self::CLIENT);
                network.cut_commands(Self::CLIENT);
                network.cut_subscriptions(Self::CLIENT);
            }
        }
    }
}

/// Explores a scenario, or repeats one execution of it.
fn explore(scenario: &'static Scenario) {
    let path = std::env::var("EXPLORE_PATH").ok();
    let search = path.as_deref().map_or_else(Search::default, |path| {
        let log = tracing_subscriber::fmt().with_test_writer().without_time();
        let _ = log.with_max_level(tracing::Level::DEBUG).try_init();
        Search::repeating(path)
    });
    let started = Instant::now();
    let on_panic = PrintPathOnPanic { name: scenario.name, search: search.clone() };
    let directing = search.clone();
    Runner::new(InOrder(search.clone()), config()).run(move || {
        time::begin(Duration::MAX / 2);
        WORLD.set(Some(World::new(scenario)));
        shuttle::future::block_on(async {
            director::direct(scenario, &directing).await;
            // The streams must end before the tasks do, because their ends wake tasks.
            drop(WORLD.take());
            search::end();
            shuttle::future::yield_now().await;
        });
    });
    std::mem::forget(on_panic);
    let Coverage { executions, states } = search.coverage();
    let Scenario { name, kind, early, fault, .. } = scenario;
    let owners = scenario.programs.len();
    println!(
        "{name}: {kind:?}, {owners} owners, fault {fault:?}, {early} early timers: {executions} executions, {states} states, {:.1?}",
        started.elapsed()
    );
    assert!(path.is_some() || executions >= scenario.at_least, "{name}: {executions} executions are too few");
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 0x80000;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(1_000_000);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// Prints the path of an execution that panics.
struct PrintPathOnPanic {
    name: &'static str,
    search: Search,
}

impl Drop for PrintPathOnPanic {
    fn drop(&mut self) {
        // The tasks were stopped and cannot be dropped.
        time::abandon();
        let world = WORLD.take();
        for event in world.iter().flat_map(|world| &world.trace) {
            eprintln!("{event}");
        }
        std::mem::forget(world);
        let path = self.search.path();
        eprintln!("{}: failed; set EXPLORE_PATH={path} to repeat this execution", self.name);
    }
}

fn with<T>(f: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| f(world.as_mut().expect("an exploration runs")))
}

/// Whether an exploration runs on this thread.
pub(crate) fn is_running() -> bool {
    WORLD.with_borrow(Option::is_some)
}

/// Counts a task of a client while it exists.
pub(crate) struct Living(Option<usize>);

impl Living {
    pub(crate) fn begin() -> Self {
        let client = if is_running() { search::client() } else { None };
        if let Some(client) = client {
            with(|world| world.tasks[client] += 1);
        }
        Self(client)
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        if let Some(client) = self.0
            && is_running()
        {
            with(|world| world.tasks[client] -= 1);
        }
    }
}
