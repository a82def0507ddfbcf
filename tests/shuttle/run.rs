//! Runs a test on many random schedules.

use super::sync::task;
use super::{server, time};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, MaxSteps, Runner};
use std::time::Duration;

/// In a hurried run, only timers that fire within this time may fire early.
const NEAR: Duration = Duration::from_millis(50);

/// How the clock of a run advances.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// No timer fires while any task can run.
    Patient,
    /// Once in this number of steps, the next timer fires although tasks can run, if it is near.
    Hurried(u64),
}

/// Runs `test` with `count` fixed seeds, and then with as many random ones.
///
/// A run fails if its clock passes `limit`, because then no task makes progress.
pub(super) fn run<F>(name: &str, count: u64, pace: Pace, limit: Duration, test: fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    if let Ok(seed) = std::env::var("SHUTTLE_SEED") {
        let log =
            tracing_subscriber::fmt().with_test_writer().without_time().with_max_level(tracing::Level::DEBUG);
        let _ = log.try_init();
        return once(name, seed.parse().expect("SHUTTLE_SEED is a number"), pace, limit, test);
    }
    let random = uuid::Uuid::new_v4().as_u64_pair().1 >> 16;
    println!("{name}: seeds 1 to {count}, and {random} to {}", random + count - 1);
    (1..=count).chain(random..random + count).for_each(|seed| once(name, seed, pace, limit, test));
}

fn once<F>(name: &str, seed: u64, pace: Pace, limit: Duration, test: fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let on_panic = PrintSeedOnPanic { name: name.to_owned(), seed };
    let mut config = Config::new();
    config.stack_size = 0x80000;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    let body = move || {
        time::begin(limit);
        server::begin();
        shuttle::future::block_on(async move {
            drop(task::spawn(time::keep_moving()));
            test().await;
            // The remaining tasks are dropped where they are. None of them may hold a mutex then.
            time::settle().await;
        });
    };
    // Every second run prefers some tasks over others for long stretches, which finds different schedules.
    if seed.is_multiple_of(2) {
        Runner::new(Paced { pace, seed, inner: PctScheduler::new_from_seed(seed, 5, 1) }, config).run(body);
    } else {
        Runner::new(Paced { pace, seed, inner: RandomScheduler::new_from_seed(seed, 1) }, config).run(body);
    }
    std::mem::forget(on_panic);
}

/// Prints the seed of a run that panics.
struct PrintSeedOnPanic {
    name: String,
    seed: u64,
}

impl Drop for PrintSeedOnPanic {
    fn drop(&mut self) {
        server::abandon();
        time::abandon();
        eprintln!("{}: failed; set SHUTTLE_SEED={} to repeat this run", self.name, self.seed);
    }
}

/// A scheduler that runs the task that advances the clock only when the pace allows it.
struct Paced<S> {
    pace: Pace,
    seed: u64,
    inner: S,
}

impl<S: Scheduler> Scheduler for Paced<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.inner.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let mover = time::mover();
        let others: Vec<&Task> = runnable.iter().copied().filter(|task| Some(task.id()) != mover).collect();
        if others.len() == runnable.len() {
            return self.inner.next_task(runnable, current, is_yielding);
        }
        if let Pace::Hurried(steps) = self.pace {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (self.seed >> 33).is_multiple_of(steps) && time::next() < NEAR {
                return mover;
            }
        }
        if others.is_empty() { mover } else { self.inner.next_task(&others, current, is_yielding) }
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}
