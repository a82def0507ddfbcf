//! One task a client that renews holds and tells them when their lease has ended.
//!
//! Invariants:
//! 7. A renewal belongs to one generation of one hold. What comes back for a hold that has ended meanwhile changes
//!    nothing, because an ended hold cannot change.
//!    A renewal that fails is made anew of the holds that are still live by then, and never sent twice.
//!
//! Renewals are sent a third of the lease after the last confirmed one was sent, in batches; a hold's first one up to half
//! of that earlier, so that many locks that were taken at once are not renewed at once for ever after. Those of one tick
//! come together. The task itself never waits for an answer, so a silent server delays no other batch. While there are
//! holds it looks at the clock at least every second, because timers stand still in a sleeping host.

use crate::clock::Moment;
use crate::connection::{Connection, Limit};
use crate::error::{Error, LossReason, Phase};
use crate::hold::{Hold, HoldState};
use crate::options::millis;
use crate::script::{self, Renewed};
use crate::sync::{Mutex, MutexGuard, select, task, time};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{Instrument, debug, debug_span, warn};

/// Holds in one script.
const BATCH: usize = 100;
/// Ticks in a third of the lease.
const TICKS: u32 = 64;
/// The longest time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(1);

/// The watchdog of a client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lease: Duration,
    schedule: Mutex<Schedule>,
    earlier: Notify,
}

/// What comes next for each hold, by time and generation.
#[derive(Debug)]
struct Schedule {
    /// Each hold knows when it is due, to be found again.
    next: BTreeMap<(Moment, u64), Arc<Hold>>,
    /// Until when the task sleeps.
    asleep_until: Moment,
}

impl Watchdog {
    pub(crate) fn new(lease: Duration) -> Self {
        let schedule = Schedule { next: BTreeMap::new(), asleep_until: Moment::FAR };
        Self(Arc::new(Shared { lease, schedule: Mutex::new(schedule), earlier: Notify::new() }))
    }

    /// Watches over `hold` from now on.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        if !hold.is_renewed() {
            return self.plan(hold, hold.deadline());
        }
        let third = self.0.lease / 3;
        let (confirmed, again) = hold.confirmed();
        let early = if again { Duration::ZERO } else { third.mul_f64(share(hold.generation) / 2.0) };
        self.plan(hold, (confirmed + third - early).rounded_down(third / TICKS));
    }

    /// No longer watches over `hold`.
    pub(crate) fn forget(&self, hold: &Hold) {
        let mut schedule = self.lock();
        if let Some(due) = hold.plan(None) {
            schedule.next.remove(&(due, hold.generation));
        }
    }

    fn plan(&self, hold: &Arc<Hold>, due: Moment) {
        let mut schedule = self.lock();
        if let Some(old) = hold.plan(Some(due)) {
            schedule.next.remove(&(old, hold.generation));
        }
        schedule.next.insert((due, hold.generation), hold.clone());
        if due < schedule.asleep_until {
            self.0.earlier.notify_one();
        }
        drop(schedule);
        if hold.is_released() {
            // Since the caller looked; and whoever released it may have had nothing to take out.
            self.forget(hold);
        }
    }

    /// Serves for ever; meant for a task of its own.
    pub(crate) async fn serve(self, connection: Connection) {
        let mut link = connection.clone();
        loop {
            let next = {
                let mut schedule = self.lock();
                let until = match schedule.next.first_key_value() {
                    Some((&(due, _), _)) => due.min(Moment::now() + LOOK),
                    None => Moment::FAR,
                };
                schedule.asleep_until = until;
                until
            };
            let everyone = select! {
                () = self.0.earlier.notified() => false,
                () = time::sleep(next.remaining()) => false,
                () = link.changed() => true,
            };
            let due = self.take_due(everyone);
            let down = link.down().is_some();
            for hold in due.iter().filter(|_| everyone) {
                // In doubt until the next confirmation; the deadline goes on counting.
                if hold.doubt(LossReason::Unreachable).is_live() && down {
                    self.plan(hold, hold.deadline());
                }
            }
            if !(everyone && down) {
                self.renew(due, everyone, &connection);
            }
        }
    }

    /// The holds that are due, or all of them.
    fn take_due(&self, everyone: bool) -> Vec<Arc<Hold>> {
        let mut schedule = self.lock();
        let until = if everyone { Moment::FAR } else { Moment::now() };
        let later = schedule.next.split_off(&(until, u64::MAX));
        let due: Vec<_> = std::mem::replace(&mut schedule.next, later).into_values().collect();
        for hold in &due {
            hold.plan(None);
        }
        due
    }

    /// Renews those that are renewed; looks at the others too if they are in doubt or `look`, else leaves them to
    /// their deadline.
    fn renew(&self, due: Vec<Arc<Hold>>, look: bool, connection: &Connection) {
        let mut batch = Vec::new();
        for hold in due {
            let state = hold.state();
            if !state.is_live() {
                continue;
            }
            // Whatever becomes of the request, the deadline is kept.
            self.plan(&hold, hold.deadline());
            // The record of one that is not settled names another.
            if hold.is_settled() && (hold.is_renewed() || look || state == HoldState::Suspect) {
                batch.push(hold);
            }
        }
        for batch in batch.chunks(BATCH) {
            let span = debug_span!("renew", holds = batch.len());
            task::spawn(self.clone().renew_batch(batch.to_vec(), connection.clone()).instrument(span));
        }
    }

    async fn renew_batch(self, holds: Vec<Arc<Hold>>, connection: Connection) {
        let lease = self.0.lease;
        let renewed: Vec<bool> = holds.iter().map(|hold| hold.is_renewed()).collect();
        let mut request = script::renew(holds.iter().zip(&renewed).map(|(hold, &renewed)| {
            (hold.record.clone(), hold.text.clone(), if renewed { millis(lease) } else { 0 })
        }));
        holds.iter().for_each(|hold| hold.renewal_sent());
        let limit = Limit::For(connection.response_timeout().min(lease / 3));
        let answer = connection.call_within(&mut request, limit).await;
        if !answer.as_ref().is_err_and(|failure| failure.unanswered) {
            holds.iter().for_each(|hold| hold.renewal_answered());
        }
        let outcome = match answer {
            Ok(answer) => match script::renewed(&answer.reply, holds.len()) {
                Ok(outcome) => Ok((outcome, answer.sent, answer.life)),
                Err(_) => Err(connection.strange(Phase::Renew)),
            },
            Err(failure) => Err(connection.error(failure, Phase::Renew)),
        };
        match outcome {
            Ok((outcome, sent, life)) => {
                for ((hold, &renewed), outcome) in holds.iter().zip(&renewed).zip(outcome) {
                    let state = match outcome {
                        Renewed::Held => hold.confirm(sent, if renewed { lease } else { Duration::ZERO }),
                        Renewed::Gone => hold.lose(hold.gone_in(life)),
                        Renewed::Other | Renewed::WrongType => hold.lose(LossReason::Taken),
                        Renewed::Refused => hold.doubt(LossReason::Expired),
                    };
                    debug!(lock = ?hold.record, owner = %hold.text, ?state, "renewed");
                    match state {
                        HoldState::Held => self.watch(hold),
                        HoldState::Suspect => self.ask_again(hold),
                        _ => self.forget(hold),
                    }
                }
            }
            Err(error) => {
                warn!(holds = holds.len(), %error, "renewal failed");
                let refused = matches!(error, Error::Refused { .. });
                let why = if refused { LossReason::Expired } else { LossReason::Unreachable };
                for hold in &holds {
                    // A hold that ended meanwhile is past doubting.
                    if hold.doubt(why).is_live() {
                        self.ask_again(hold);
                    }
                }
            }
        }
    }

    fn ask_again(&self, hold: &Arc<Hold>) {
        let again = Moment::now() + (self.0.lease / 10).min(LOOK);
        self.plan(hold, again.min(hold.deadline()));
    }

    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.0.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share of 1 for each number, such that those of any numbers in a row are spread evenly: multiples of the golden ratio
/// (Knuth, The Art of Computer Programming, volume 3, 6.4).
fn share(number: u64) -> f64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
}
