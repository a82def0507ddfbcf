//! Measures time without the machine's own delays, for bounds that a busy machine must not break.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// How long a probe sleeps.
const STEP: Duration = Duration::from_millis(2);
/// A probe that wakes up later than this after its sleep has seen a stall. Timers count in milliseconds.
const STALL: Duration = Duration::from_millis(3);

/// Measures how long something took, less the stalls of this process. In a stall, a separate thread or a task of the
/// test's runtime was ready to run and did not. A library that waits for the wrong thing causes no stall, so a bound
/// keeps its force. A runtime whose threads all block does cause one.
///
/// Use it for upper bounds. A lower bound takes [`real`](Self::real), or an [`Instant`].
pub struct Stopwatch {
    started: Instant,
    machine: &'static Probe,
    runtime: Option<(Arc<Probe>, AbortHandle)>,
}

impl Stopwatch {
    pub fn start() -> Self {
        let runtime = Handle::try_current().ok().map(|handle| {
            let probe = Arc::new(Probe::at(Instant::now()));
            let task = {
                let probe = probe.clone();
                handle.spawn(async move {
                    loop {
                        tokio::time::sleep(STEP).await;
                        probe.woken(Instant::now());
                    }
                })
            };
            (probe, task.abort_handle())
        });
        Self { started: Instant::now(), machine: Probe::of_machine(), runtime }
    }

    /// The time since the start, without stalls.
    pub fn elapsed(&self) -> Duration {
        self.since(self.started)
    }

    /// The time since the start, with stalls.
    pub fn real(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the time with stalls has reached the start of `range`, and the time without stalls is below its end.
    pub fn is_within(&self, range: Range<Duration>) -> bool {
        range.start <= self.real() && self.elapsed() < range.end
    }

    /// The time since `due`, without stalls. It is zero before `due`. Stalls before the start are unknown.
    pub fn since(&self, due: Instant) -> Duration {
        self.between(due, Instant::now())
    }

    /// The time between two instants, without stalls. It is zero if the second comes first. Stalls before the start are
    /// unknown.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        let mut stalls = self.machine.stalls(from, to);
        if let Some((probe, _)) = &self.runtime {
            stalls.extend(probe.stalls(from, to));
        }
        to.saturating_duration_since(from).saturating_sub(union(stalls))
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.elapsed(), self.real())
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        if let Some((_, task)) = &self.runtime {
            task.abort();
        }
    }
}

type Stall = (Instant, Instant);

struct Probe {
    seen: Mutex<Seen>,
}

struct Seen {
    /// When the probe last ran.
    last: Instant,
    stalls: Vec<Stall>,
}

impl Probe {
    fn at(last: Instant) -> Self {
        Self { seen: Mutex::new(Seen { last, stalls: Vec::new() }) }
    }

    /// The probe whose thread shares nothing with the tests but the machine.
    fn of_machine() -> &'static Self {
        static PROBE: OnceLock<&'static Probe> = OnceLock::new();
        PROBE.get_or_init(|| {
            let probe: &'static Self = Box::leak(Box::new(Self::at(Instant::now())));
            thread::spawn(move || {
                loop {
                    thread::sleep(STEP);
                    probe.woken(Instant::now());
                }
            });
            probe
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no probe panics")
    }

    fn woken(&self, now: Instant) {
        let mut seen = self.seen();
        let due = seen.last + STEP;
        if now > due + STALL {
            seen.stalls.push((due, now));
        }
        seen.last = now;
    }

    /// The stalls between two instants, including one that goes on.
    fn stalls(&self, from: Instant, to: Instant) -> Vec<Stall> {
        let seen = self.seen();
        let due = seen.last + STEP;
        let lasting = (to > due + STALL).then_some((due, to));
        let all = seen.stalls.iter().copied().chain(lasting);
        all.map(|(began, ended)| (began.max(from), ended.min(to)))
            .filter(|(began, ended)| began < ended)
            .collect()
    }
}

/// The total time of these stalls. An overlap counts once.
fn union(mut stalls: Vec<Stall>) -> Duration {
    stalls.sort_unstable();
    let mut until = None;
    let mut sum = Duration::ZERO;
    for (began, ended) in stalls {
        let began = until.map_or(began, |until| began.max(until));
        sum += ended.saturating_duration_since(began);
        until = until.max(Some(ended));
    }
    sum
}

#[test]
fn a_stopwatch_excludes_the_stalls_of_its_runtime() {
    const BLOCKED: Duration = Duration::from_millis(200);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let watch = Stopwatch::start();
        tokio::time::sleep(STEP * 4).await;
        thread::sleep(BLOCKED);
        let (elapsed, real) = (watch.elapsed(), watch.real());
        assert!(real >= BLOCKED + STEP * 4);
        assert!(elapsed <= real - BLOCKED + STEP + STALL, "{elapsed:?} of {real:?}");
    });
}

#[test]
fn a_probe_that_wakes_up_on_time_sees_no_stall() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let probe = Probe::at(start);
    // The sleep, and what timers add to it.
    probe.woken(at(5));
    assert_eq!(probe.stalls(at(0), at(10)), []);
    probe.woken(at(27));
    assert_eq!(probe.stalls(at(0), at(30)), [(at(7), at(27))]);
    assert_eq!(probe.stalls(at(10), at(20)), [(at(10), at(20))]);
    assert_eq!(probe.stalls(at(27), at(32)), []);
    assert_eq!(probe.stalls(at(27), at(40)), [(at(29), at(40))], "it has not woken up since");
}

#[test]
fn stalls_that_overlap_count_once() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    assert_eq!(
        union(vec![(at(5), at(9)), (at(0), at(2)), (at(1), at(3)), (at(6), at(7))]),
        Duration::from_millis(7)
    );
}
