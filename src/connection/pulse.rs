//! Ends the wait for a reply when the connection ends or the deadline of the request passes.
//!
//! A request that is handed to the redis crate while its connection ends gets neither a reply nor an error. So each request waits for the
//! end of the connection, too.
//!
//! Most replies come long before the deadline, and a timer costs more than the rest of the wait. So a request sets a timer only when its
//! deadline is near. Until then the pulse of the connection wakes it, and it looks at the clock. The client's runtime beats the pulse. A
//! caller on another runtime sets a timer at once, because the client's runtime may not be running.

use crate::runtime::clock::Moment;
use crate::runtime::sync::{Handle, RuntimeId, select, time};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// The pulse of a connection.
#[derive(Debug)]
pub(super) struct Pulse {
    ended: AtomicBool,
    /// Several, so that requests on several threads seldom wait for one lock.
    beats: [Notify; 8],
    interval: Duration,
    runtime: RuntimeId,
}

/// Why a request stops waiting for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The connection has ended.
    Ended,
    /// The deadline has passed.
    Late,
}

impl Pulse {
    /// A pulse that the current runtime will [run](Self::run).
    pub(super) fn new(interval: Duration) -> Self {
        let (ended, beats, runtime) = (AtomicBool::new(false), Default::default(), Handle::current().id());
        Self { ended, beats, interval, runtime }
    }

    /// Beats forever.
    pub(super) async fn run(&self) -> ! {
        loop {
            time::sleep(self.interval).await;
            self.beat();
        }
    }

    fn beat(&self) {
        self.beats.iter().for_each(Notify::notify_waiters);
    }

    /// Ends the waits of all requests.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.beat();
    }

    /// Waits for the end of the connection, or until `until`. `now` is the current time.
    pub(super) async fn cut(&self, mut now: Moment, until: Moment) -> Cut {
        // Moments are even.
        let beats = &self.beats[(now.nanos() >> 1) as usize % self.beats.len()];
        loop {
            let beat = beats.notified();
            if self.ended.load(Ordering::SeqCst) {
                return Cut::Ended;
            }
            let left = until.since(now);
            if until == Moment::FAR || (left > self.interval && self.is_run_here()) {
                beat.await;
            } else {
                select! {
                    () = beat => {}
                    // Boxed, because few requests need it, and it would make all of them larger.
                    () = Box::pin(time::sleep(left)) => return Cut::Late,
                }
            }
            now = Moment::now();
        }
    }

    fn is_run_here(&self) -> bool {
        Handle::try_current().is_ok_and(|here| here.id() == self.runtime)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_request_is_cut_at_its_deadline_and_not_before() {
        let pulse = Pulse::new(Duration::from_millis(5));
        for limit in [0, 4, 6, 40].map(Duration::from_millis) {
            let now = Moment::now();
            let cut = async {
                select! {
                    cut = pulse.cut(now, now + limit) => cut,
                    never = pulse.run() => never,
                }
            };
            assert_eq!(time::timeout(LONG, cut).await.expect("the deadline has passed"), Cut::Late);
            assert!(Moment::now() >= now + limit);
        }
    }

    #[tokio::test]
    async fn the_end_of_the_connection_cuts_every_request_before_and_after_it() {
        let pulse = Pulse::new(LONG);
        let cuts = || (0..20).map(|_| pulse.cut(Moment::now(), Moment::FAR));
        let (before, ()) = tokio::join!(futures_util::future::join_all(cuts()), async { pulse.end() });
        let after = futures_util::future::join_all(cuts()).await;
        assert!(before.into_iter().chain(after).all(|cut| cut == Cut::Ended));
    }
}
