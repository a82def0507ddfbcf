//! One task a client that renews holds and tells them when their lease has ended.
//!
//! Invariants:
//! 7. A renewal belongs to one generation of one hold. What comes back for a hold that has ended meanwhile changes
//!    nothing, because an ended hold cannot change.
//!    A renewal that fails is made anew of the holds that are still live by then, and never sent twice.
//!
//! Renewals are sent a third of the lease after the last confirmed one was sent, in batches; of the shortest lease, where
//! others shorten the record's life to theirs. A hold's first one is sent up to half of that earlier, so that many locks
//! that were taken at once are not renewed at once for ever after. Those of one tick come together. The task itself never
//! waits for an answer, so a silent server delays no other batch. While there are holds it looks at the clock at least
//! every second, because timers stand still in a sleeping host.

use crate::config::options::millis;
use crate::connection::{Connection, Failure, Limit};
use crate::error::{Error, LossReason, Phase};
use crate::lease::hold::{Hold, HoldState, Standing};
use crate::lease::schedule::Schedule;
use crate::protocol::script::{self, Renewal, Renewed};
use crate::runtime::clock::Moment;
use crate::runtime::sync::{Mutex, MutexGuard, select, task, time};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{Instrument, debug, debug_span, warn};

/// Holds in one script.
const BATCH: usize = 100;
/// Ticks in a third of the lease.
const TICKS: u32 = 64;
/// So close to each other, deadlines are one: timers are no finer.
const DEADLINES: Duration = Duration::from_millis(1);
/// The longest time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(1);

/// The watchdog of a client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lease: Duration,
    watched: Mutex<Watched>,
    earlier: Notify,
}

#[derive(Debug)]
struct Watched {
    holds: Schedule<Hold>,
    /// Until when the task sleeps.
    asleep_until: Moment,
}

impl Watchdog {
    pub(crate) fn new(lease: Duration) -> Self {
        let watched = Watched { holds: Schedule::new(), asleep_until: Moment::FAR };
        Self(Arc::new(Shared { lease, watched: Mutex::new(watched), earlier: Notify::new() }))
    }

    /// Watches over `hold` from now on.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.plan([hold], |hold, standing| self.next(hold, standing));
    }

    /// No longer watches over `hold`, which is over.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.lock().holds.take(hold);
    }

    /// How long its record may last without a renewal, whoever set its expiry last.
    fn lease(&self, standing: &Standing) -> Duration {
        standing.shortest.map_or(self.0.lease, |shortest| shortest.min(self.0.lease))
    }

    /// When there is something to do for `hold` if all is well.
    fn next(&self, hold: &Hold, standing: &Standing) -> Moment {
        if !standing.renewed && !hold.kind.manner().kept_up {
            return standing.deadline;
        }
        let third = self.lease(standing) / 3;
        let early = if standing.again { Duration::ZERO } else { third.mul_f64(share(hold.generation) / 2.0) };
        (standing.confirmed + third - early).rounded_down(third / TICKS)
    }

    /// Looks at each of `holds` next when `due` says so, or at its deadline. One that is over is left out: whoever ended it
    /// since has nothing more to take out.
    fn plan<'a>(
        &self,
        holds: impl IntoIterator<Item = &'a Arc<Hold>>,
        due: impl Fn(&Hold, &Standing) -> Moment,
    ) {
        let mut watched = self.lock();
        let mut first = Moment::FAR;
        for hold in holds {
            let Some(standing) = hold.standing() else {
                watched.holds.take(hold);
                continue;
            };
            let due = match due(hold, &standing) {
                due if due < standing.deadline => due,
                _ => standing.deadline.rounded_up(DEADLINES),
            };
            watched.holds.put(hold, due);
            first = first.min(due);
        }
        if first < watched.asleep_until {
            self.0.earlier.notify_one();
        }
    }

    /// Serves for ever; meant for a task of its own.
    pub(crate) async fn serve(self, connection: Connection) {
        let mut link = connection.clone();
        loop {
            let next = {
                let mut watched = self.lock();
                let first = watched.holds.first();
                watched.asleep_until = first.map_or(Moment::FAR, |due| due.min(Moment::now() + LOOK));
                watched.asleep_until
            };
            select! {
                () = self.0.earlier.notified() => {}
                () = time::sleep(next.remaining()) => {}
                () = link.changed() => self.doubt(&connection),
            }
            let now = Moment::now();
            let mut due = self.lock().holds.take_due(now);
            due.retain(|hold| hold.state_at(now).is_live());
            // Whatever becomes of the request, the deadline is kept.
            self.plan(&due, |_, standing| standing.deadline);
            self.renew(due, &connection);
        }
    }

    /// A connection went down or came up, or a record is at another server by now. What that does not concern stays as it is:
    /// a slot that moves is nothing to the holds in all the others.
    fn doubt(&self, connection: &Connection) {
        let all: Vec<_> = self.lock().holds.all().cloned().collect();
        let (mut reached, mut unreached) = (Vec::new(), Vec::new());
        for hold in all {
            let life = connection.life(hold.record());
            if life != Some(hold.life()) {
                // In doubt until the next confirmation; the deadline goes on counting.
                hold.doubt(LossReason::Unreachable);
            }
            if hold.standing().is_none_or(|now| now.suspect) {
                if life.is_some() { &mut reached } else { &mut unreached }.push(hold);
            }
        }
        self.plan(&reached, |_, _| Moment::now());
        // What can't be reached is asked for when that changes.
        self.plan(&unreached, |_, standing| standing.deadline);
    }

    /// Renews those that are renewed; looks at the others too if they are in doubt, else leaves them to their deadline.
    fn renew(&self, mut due: Vec<Arc<Hold>>, connection: &Connection) {
        // The record of one that is not settled names another.
        due.retain(|hold| {
            let wanted = |now: &Standing| now.renewed || now.suspect || hold.kind.manner().kept_up;
            hold.standing().is_some_and(|now| now.settled && wanted(&now))
        });
        for renewal in Renewal::ALL {
            let due: Vec<_> = due.extract_if(.., |hold| hold.kind.manner().renewal == renewal).collect();
            self.start_by_slot(renewal, due, connection);
        }
    }

    fn start_by_slot(&self, renewal: Renewal, mut due: Vec<Arc<Hold>>, connection: &Connection) {
        // If the connection learns of slots in the midst of this, the batches are smaller, and no less right.
        due.sort_by_cached_key(|hold| connection.slot(hold.record()));
        for batch in due
            .chunk_by(|one, other| connection.slot(one.record()) == connection.slot(other.record()))
            .flat_map(|slot| slot.chunks(BATCH))
        {
            self.start(renewal, batch.to_vec(), connection);
        }
    }

    fn start(&self, renewal: Renewal, batch: Vec<Arc<Hold>>, connection: &Connection) {
        let span = debug_span!("renew", holds = batch.len());
        let renewing = self.clone().renew_batch(renewal, batch, connection.clone());
        task::spawn(renewing.instrument(span));
    }

    async fn renew_batch(self, renewal: Renewal, holds: Vec<Arc<Hold>>, connection: Connection) {
        let lease = self.0.lease;
        let renewed: Vec<bool> = holds.iter().map(|hold| hold.is_renewed()).collect();
        let mut keys = Vec::with_capacity(holds.len());
        holds.iter().for_each(|hold| hold.kind.renewed_keys(&hold.text, &mut keys));
        let leases: Vec<_> = holds
            .iter()
            .zip(&renewed)
            .map(|(hold, &renewed)| match renewed {
                true => lease,
                false if hold.kind.manner().kept_up => hold.deadline().remaining(),
                false => Duration::ZERO,
            })
            .collect();
        let asked = holds.iter().zip(&leases).map(|(hold, &lease)| (hold.text.clone(), millis(lease)));
        let mut request = script::renew(renewal, keys, asked);
        holds.iter().for_each(|hold| hold.renewal_sent());
        // A renewal that is late for the shortest of their leases leaves all in doubt.
        let shortest = holds.iter().filter_map(|hold| hold.standing()).map(|now| self.lease(&now)).min();
        let limit = Limit::For(connection.response_timeout().min(shortest.unwrap_or(lease) / 3));
        let answer = connection.call_within(&mut request, limit).await;
        if !answer.as_ref().is_err_and(|failure| failure.unanswered) {
            holds.iter().for_each(|hold| hold.renewal_answered());
        }
        if holds.len() > 1 && answer.as_ref().is_err_and(Failure::is_torn) {
            // Their slot is on its way, and some of them are there already.
            return holds.into_iter().for_each(|hold| self.start(renewal, vec![hold], &connection));
        }
        if holds.len() > 1 && answer.as_ref().is_err_and(Failure::is_crossed) {
            let slot = connection.slot(holds[0].record());
            return match holds.iter().all(|hold| connection.slot(hold.record()) == slot) {
                // The server counts slots in a way of its own.
                true => holds.into_iter().for_each(|hold| self.start(renewal, vec![hold], &connection)),
                false => self.start_by_slot(renewal, holds, &connection),
            };
        }
        let outcome = match answer {
            Ok(answer) => match script::renewed(renewal, &answer.reply, holds.len()) {
                Ok(outcome) => Ok((outcome, answer.sent, answer.life)),
                Err(_) => Err(connection.strange(Phase::Renew)),
            },
            Err(failure) => Err(connection.error(failure, Phase::Renew)),
        };
        match outcome {
            Ok((outcome, sent, life)) => {
                let (mut held, mut suspect) = (Vec::with_capacity(holds.len()), Vec::new());
                let terms = renewed.iter().zip(leases);
                for ((hold, (&renewed, asked)), outcome) in holds.iter().zip(terms).zip(outcome) {
                    let state = match outcome {
                        Renewed::Held(left) => {
                            if let Some(left) = left {
                                hold.found_left(left, asked);
                            }
                            hold.confirm(sent, life, if renewed { lease } else { Duration::ZERO })
                        }
                        Renewed::Gone => hold.lose(hold.gone_in(life)),
                        Renewed::Other | Renewed::WrongType => hold.lose(LossReason::Taken),
                        Renewed::Refused => hold.doubt(LossReason::Expired),
                    };
                    debug!(lock = ?hold.record(), owner = %hold.text, ?state, "renewed");
                    match state {
                        HoldState::Held => held.push(hold),
                        HoldState::Suspect => suspect.push(hold),
                        _ => self.forget(hold),
                    }
                }
                // Backwards: the last one put in is the cheapest to take out.
                self.plan(held.into_iter().rev(), |hold, standing| self.next(hold, standing));
                self.ask_again(suspect);
            }
            Err(error) => {
                warn!(holds = holds.len(), %error, "renewal failed");
                let refused = matches!(error, Error::Refused { .. });
                let why = if refused { LossReason::Expired } else { LossReason::Unreachable };
                // A hold that ended meanwhile is past doubting.
                self.ask_again(holds.iter().filter(|hold| hold.doubt(why).is_live()));
            }
        }
    }

    fn ask_again<'a>(&self, holds: impl IntoIterator<Item = &'a Arc<Hold>>) {
        let now = Moment::now();
        self.plan(holds, |_, standing| now + (self.lease(standing) / 10).min(LOOK));
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A share of 1 for each number, such that those of any numbers in a row are spread evenly: multiples of the golden ratio
/// (Knuth, The Art of Computer Programming, volume 3, 6.4).
fn share(number: u64) -> f64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
}
