//! The states of a hold, which several tasks change at the same time.

use super::run::{Pace, run};
use super::sync::{atomic, below, task, time};
use crate::error::LossReason;
use crate::kinds::Reentrant;
use crate::lease::hold::{Begun, Hold, Listeners, LossHandler};
use crate::lease::status::HoldState;
use crate::owner::LocalOwner;
use crate::protocol::keys::LockKeys;
use crate::runtime::clock::Moment;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Counts the calls of a hold's loss handler.
#[derive(Default)]
struct Counts {
    losing: atomic::AtomicU64,
    doubted: atomic::AtomicU64,
    lost: atomic::AtomicU64,
}

impl LossHandler for Counts {
    fn losing(&self) {
        self.losing.fetch_add(1, atomic::Ordering::SeqCst);
    }

    fn doubted(self: Arc<Self>, hold: &Arc<Hold>) {
        self.doubted.fetch_add(1, atomic::Ordering::SeqCst);
        if matches!(hold.state(), HoldState::Lost(_)) {
            self.lost.fetch_add(1, atomic::Ordering::SeqCst);
        }
    }
}

/// Confirmations, doubts, losses, releases and the clock race. No task sees a hold come back. The loss handler is notified of a loss once,
/// and before any task can see it. A follower of the states ends with the final state of the hold.
#[test]
fn a_hold_never_comes_back_and_everyone_hears_of_its_end() {
    run("a_hold_never_comes_back", 2000, Pace::Hurried(20), Duration::from_secs(20), || async {
        let counts = Arc::new(Counts::default());
        let loss_handler: Weak<dyn LossHandler> = Arc::downgrade(&counts) as Weak<dyn LossHandler>;
        let listeners = Arc::new(Listeners { counters: Arc::default(), loss_handler });
        let lease = Duration::from_millis(10);
        let sent = Moment::now();
        let kind = Arc::new(Reentrant::new(LockKeys::new("lock".into()).expect("a name")));
        let (owner, owner_id) = (LocalOwner::Thread(1), "u:thread-1".into());
        let hold =
            Hold::new(Begun { kind, owner, owner_id, data_epoch: 1, sent, lease, token: None }, &listeners);
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (hold, counts) = (hold.clone(), counts.clone());
                task::spawn(async move {
                    for _ in 0..4 {
                        let before = hold.state();
                        let after = match below(8) {
                            0 | 1 => hold.confirm(Moment::now(), 1, lease),
                            2 | 3 => hold.doubt(LossReason::Unreachable),
                            4 => hold.lose(LossReason::Gone),
                            5 => hold.release(),
                            6 => {
                                time::sleep(Duration::from_millis(below(8))).await;
                                hold.state()
                            }
                            _ => {
                                let mut states = hold.watch_state();
                                let seen = *states.borrow_and_update();
                                let now = hold.state();
                                if seen.is_live() && !now.is_live() {
                                    states.changed().await.expect("the hold lives");
                                }
                                now
                            }
                        };
                        let now = hold.state();
                        assert!(
                            before.is_live() || now == before,
                            "{before:?}, then {after:?}, then {now:?}"
                        );
                        if matches!(hold.state(), HoldState::Lost(_)) {
                            let losing = counts.losing.load(atomic::Ordering::SeqCst);
                            assert_eq!(losing, 1, "the loss was visible before the loss handler knew of it");
                        }
                    }
                })
            })
            .collect();
        let following = {
            let hold = hold.clone();
            task::spawn(async move {
                let mut states = hold.watch_state();
                loop {
                    let state = *states.borrow_and_update();
                    if !state.is_live() {
                        return state;
                    }
                    states.changed().await.expect("the hold lives");
                }
            })
        };
        for task in tasks {
            task.await.expect("no panic");
        }
        let last = hold.lose(LossReason::Taken);
        assert_eq!(following.await.expect("no panic"), last);
        let lost = u64::from(matches!(last, HoldState::Lost(_)));
        assert_eq!(counts.losing.load(atomic::Ordering::SeqCst), lost);
        assert!(counts.lost.load(atomic::Ordering::SeqCst) >= lost);
    });
}
