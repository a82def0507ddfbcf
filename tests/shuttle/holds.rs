//! The states of a hold, changed from many sides.

use super::run::{Pace, run};
use super::sync::{atomic, below, task, time};
use crate::error::LossReason;
use crate::kinds::Reentrant;
use crate::lease::hold::{Begun, Hold, HoldState, Observer};
use crate::owner::OwnerId;
use crate::protocol::keys::LockKeys;
use crate::runtime::clock::Moment;
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Default)]
struct Told {
    losing: atomic::AtomicU64,
    doubted: atomic::AtomicU64,
    lost: atomic::AtomicU64,
}

impl Observer for Told {
    fn losing(&self) {
        self.losing.fetch_add(1, atomic::Ordering::SeqCst);
    }

    fn doubted(&self, hold: &Arc<Hold>) {
        self.doubted.fetch_add(1, atomic::Ordering::SeqCst);
        if matches!(hold.state(), HoldState::Lost(_)) {
            self.lost.fetch_add(1, atomic::Ordering::SeqCst);
        }
    }
}

/// Confirmations, doubts, losses, a release and the clock race; nobody sees a hold come back, the observer hears of a
/// loss before anyone can see it and of it once, and who follows ends with the state that the hold ended in.
#[test]
fn a_hold_never_comes_back_and_everyone_hears_of_its_end() {
    run("a_hold_never_comes_back", 2000, Pace::Hurried(20), Duration::from_secs(20), || async {
        let told = Arc::new(Told::default());
        let observer: Weak<dyn Observer> = Arc::downgrade(&told) as Weak<dyn Observer>;
        let lease = Duration::from_millis(10);
        let sent = Moment::now();
        let kind = Arc::new(Reentrant::new(LockKeys::new("lock".into()).expect("a name")));
        let (owner, text) = (OwnerId::Thread(1), "u:thread-1".into());
        let hold = Hold::new(Begun { kind, owner, text, life: 1, sent, lease, token: None }, observer);
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let (hold, told) = (hold.clone(), told.clone());
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
                                let mut states = hold.follow();
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
                            assert_eq!(told.losing.load(atomic::Ordering::SeqCst), 1, "seen as lost untold");
                        }
                    }
                })
            })
            .collect();
        let following = {
            let hold = hold.clone();
            task::spawn(async move {
                let mut states = hold.follow();
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
        assert_eq!(told.losing.load(atomic::Ordering::SeqCst), lost);
        assert!(told.lost.load(atomic::Ordering::SeqCst) >= lost);
    });
}
