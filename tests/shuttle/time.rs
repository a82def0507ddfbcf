//! The clock of these tests. It stands still while any task can run, and moves to the next timer when all tasks wait. So it shows
//! whether a task had to wait for a timer. In a hurried run it may also move while tasks can run, as if they were slow.

use super::sync::task;
use shuttle::scheduler::TaskId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

thread_local!(static CLOCK: RefCell<Clock> = RefCell::default());

#[derive(Default)]
struct Clock {
    now: Duration,
    limit: Duration,
    timers: BTreeMap<(Duration, u64), Waker>,
    last: u64,
    mover: Option<TaskId>,
    calm: bool,
    idle: Option<Waker>,
}

impl Clock {
    fn with<T>(f: impl FnOnce(&mut Self) -> T) -> T {
        CLOCK.with(|clock| f(&mut clock.borrow_mut()))
    }
}

/// Resets the clock. A run that lasts longer than `limit` hangs.
pub(super) fn begin(limit: Duration) {
    let start = Duration::from_secs(1000);
    Clock::with(|clock| *clock = Clock { now: start, limit: start + limit, ..Clock::default() });
}

/// Leaks the timers of a run that failed, because their tasks cannot be dropped.
pub(super) fn abandon() {
    std::mem::forget(CLOCK.take());
}

/// The task that moves the clock.
pub(super) fn mover() -> Option<TaskId> {
    Clock::with(|clock| clock.mover)
}

/// The time until the next timer, if it may fire early.
pub(super) fn next() -> Duration {
    let next =
        |clock: &mut Clock| clock.timers.first_key_value().map(|(&(at, _), _)| at.saturating_sub(clock.now));
    Clock::with(|clock| if clock.calm { None } else { next(clock) }).unwrap_or(Duration::MAX)
}

/// Completes when every task waits, and none of them for a mutex. From the call on no timer fires early.
pub(super) async fn settle() {
    Clock::with(|clock| clock.calm = true);
    sleep(Duration::from_nanos(1)).await;
}

/// Moves the clock to the next timer whenever the scheduler runs this task.
pub(super) async fn keep_moving() {
    Clock::with(|clock| clock.mover = Some(shuttle::current::me()));
    // After this the scheduler knows which task moves the clock.
    task::yield_now().await;
    loop {
        std::future::poll_fn(|cx| {
            Clock::with(|clock| {
                clock.idle = Some(cx.waker().clone());
                if clock.timers.is_empty() { Poll::Pending } else { Poll::Ready(()) }
            })
        })
        .await;
        let due = advance();
        let hung = Clock::with(|clock| clock.now > clock.limit);
        assert!(!hung, "the run reached its time limit: no task makes progress");
        due.into_iter().for_each(Waker::wake);
        task::yield_now().await;
    }
}

/// Moves the clock to the next timer, if there is one. Returns the tasks to wake.
pub(super) fn advance() -> Vec<Waker> {
    let due = Clock::with(|clock| {
        let Some((&(at, _), _)) = clock.timers.first_key_value() else { return BTreeMap::new() };
        clock.now = clock.now.max(at);
        let later = clock.timers.split_off(&(clock.now, u64::MAX));
        std::mem::replace(&mut clock.timers, later)
    });
    due.into_values().collect()
}

/// When the timers fire.
pub(super) fn timers() -> Vec<Duration> {
    Clock::with(|clock| clock.timers.keys().map(|&(at, _)| at).collect())
}

pub(crate) fn since_boot() -> Duration {
    Clock::with(|clock| clock.now)
}

pub(crate) fn sleep(time: Duration) -> Sleep {
    Sleep { until: since_boot().saturating_add(time), timer: None }
}

pub(crate) async fn timeout<T>(limit: Duration, future: impl Future<Output = T>) -> Result<T, ()> {
    tokio::select! {
        biased;
        done = future => Ok(done),
        () = sleep(limit) => Err(()),
    }
}

pub(crate) struct Sleep {
    until: Duration,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let idle = Clock::with(|clock| {
            if clock.now >= self.until {
                return Err(());
            }
            let timer = *self.timer.get_or_insert_with(|| {
                clock.last += 1;
                clock.last
            });
            clock.timers.insert((self.until, timer), cx.waker().clone());
            Ok(clock.idle.take())
        });
        match idle {
            Err(()) => Poll::Ready(()),
            Ok(idle) => {
                idle.into_iter().for_each(Waker::wake);
                Poll::Pending
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            Clock::with(|clock| clock.timers.remove(&(self.until, timer)));
        }
    }
}
