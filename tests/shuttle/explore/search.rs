//! The depth-first search over the choices of an execution, and the scheduler that makes the rest of an execution deterministic.

use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// The choices of one execution after another, in depth-first order.
///
/// A client cannot be copied, so each execution repeats the choices that lead to its first new one. It ends at a state that was
/// reached before.
#[derive(Clone, Default)]
pub(super) struct Search(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// The choices of this execution so far, and those that it still has to repeat.
    path: Vec<Choice>,
    made: usize,
    reached: HashSet<u128>,
    executions: u64,
    /// Only the choices of `path` are made, once.
    repeats: bool,
}

#[derive(Clone, Copy)]
struct Choice {
    taken: usize,
    options: usize,
    state: u128,
}

/// The part of the tree that a search has covered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coverage {
    pub executions: u64,
    pub states: usize,
}

impl Search {
    /// A search that makes only these choices, and then the first option each time.
    pub(super) fn repeating(path: &str) -> Self {
        let taken = path.split('.').filter(|taken| !taken.is_empty());
        let taken = taken.map(|taken| taken.parse().expect("a path is numbers between dots"));
        let path = taken.map(|taken| Choice { taken, options: 0, state: 0 }).collect();
        Self(Arc::new(Mutex::new(Inner { path, repeats: true, ..Inner::default() })))
    }

    /// Begins the next execution. Returns false if there is none.
    fn begin(&self) -> bool {
        let mut inner = self.lock();
        if inner.executions > 0 && (inner.repeats || !inner.backtrack()) {
            return false;
        }
        inner.executions += 1;
        inner.made = 0;
        true
    }

    /// Chooses one of `options` in `state`, or nothing if the state was reached before.
    pub(super) fn choose(&self, options: usize, state: u128) -> Option<usize> {
        let mut inner = self.lock();
        let at = inner.made;
        inner.made += 1;
        if inner.repeats {
            return Some(inner.path.get(at).map_or(0, |choice| choice.taken));
        }
        if let Some(choice) = inner.path.get(at) {
            assert_eq!((choice.options, choice.state), (options, state), "the same choices led elsewhere");
            return Some(choice.taken);
        }
        if !inner.reached.insert(state) {
            return None;
        }
        inner.path.push(Choice { taken: 0, options, state });
        Some(0)
    }

    /// The choices of this execution, for [`Search::repeating`].
    pub(super) fn path(&self) -> String {
        let inner = self.lock();
        let taken: Vec<_> =
            inner.path.iter().take(inner.made).map(|choice| choice.taken.to_string()).collect();
        taken.join(".")
    }

    pub(super) fn coverage(&self) -> Coverage {
        let inner = self.lock();
        Coverage { executions: inner.executions, states: inner.reached.len() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic")
    }
}

impl Inner {
    /// Goes back to the last choice that has an option left, and takes that. Returns false if there is none.
    fn backtrack(&mut self) -> bool {
        while let Some(last) = self.path.last_mut() {
            last.taken += 1;
            if last.taken < last.options {
                return true;
            }
            self.path.pop();
        }
        false
    }
}

thread_local! {
    /// The client of each task of this execution, by the number of the task. The director has none.
    static CLIENTS: RefCell<Vec<Option<usize>>> = const { RefCell::new(Vec::new()) };
    /// The client for which the director spawns tasks.
    static SPAWNING: Cell<Option<usize>> = const { Cell::new(None) };
    static RUNNING: Cell<usize> = const { Cell::new(DIRECTOR) };
    /// The client whose tasks do not run any more.
    static CRASHED: Cell<Option<usize>> = const { Cell::new(None) };
    static OVER: Cell<bool> = const { Cell::new(false) };
}

/// The number of the task that makes the choices.
const DIRECTOR: usize = 0;

/// Runs tasks in the order of their numbers until all of them wait, and only then the director.
pub(super) struct InOrder(pub Search);

/// Tasks that the director spawns from now on belong to `client`. Tasks that they spawn belong to it, too.
pub(super) fn spawn_for(client: usize) {
    SPAWNING.set(Some(client));
}

/// The client of the running task.
pub(super) fn client() -> Option<usize> {
    CLIENTS.with_borrow(|clients| clients.get(RUNNING.get()).copied().flatten()).or(SPAWNING.get())
}

/// Stops the tasks of `client`.
pub(super) fn crash(client: usize) {
    CRASHED.set(Some(client));
}

pub(super) fn has_crashed(client: usize) -> bool {
    CRASHED.get() == Some(client)
}

/// Ends this execution when the director yields.
pub(super) fn end() {
    OVER.set(true);
}

impl Scheduler for InOrder {
    fn new_execution(&mut self) -> Option<Schedule> {
        CLIENTS.with_borrow_mut(Vec::clear);
        SPAWNING.set(None);
        CRASHED.set(None);
        OVER.set(false);
        RUNNING.set(DIRECTOR);
        self.0.begin().then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yields: bool) -> Option<TaskId> {
        if OVER.get() {
            return None;
        }
        let current = current.map(usize::from);
        let newest = runnable.iter().map(|task| usize::from(task.id())).max()?;
        // Only the current task can have spawned the tasks that are new here.
        let parent = client();
        CLIENTS.with_borrow_mut(|clients| {
            let first = if clients.is_empty() { None } else { parent };
            clients.resize_with(clients.len().max(newest + 1), || first);
        });
        let stopped = |id: usize| CLIENTS.with_borrow(|clients| clients[id].is_some_and(has_crashed));
        let ids = || runnable.iter().map(|task| usize::from(task.id())).filter(|id| !stopped(*id));
        let stays = current.filter(|id| !yields && *id != DIRECTOR && ids().any(|other| other == *id));
        let next = stays
            .or_else(|| ids().find(|id| *id != DIRECTOR && Some(*id) != current))
            .or_else(|| ids().find(|id| *id != DIRECTOR))
            .unwrap_or(DIRECTOR);
        RUNNING.set(next);
        Some(next.into())
    }

    fn next_u64(&mut self) -> u64 {
        // Delays are random; half of their range serves as well as any other.
        u64::MAX / 2
    }
}
