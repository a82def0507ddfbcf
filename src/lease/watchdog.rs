//! The watchdog: one task per client that renews holds and ends them at their deadline.
//!
//! - A renewal belongs to one `Hold`. A late reply changes nothing, because a hold that has ended cannot change.
//! - A renewal is never sent twice. After a failure, the next renewal is a new request for the holds that are still live.
//! - A renewal is due a third of the lease after the last confirmed request. If other clients shorten the record's TTL, their
//!   lease counts. The first renewal is up to half of that earlier, so that locks acquired together are renewed apart.
//! - Holds that are due in one tick are renewed in batches. The task never waits for a reply, so a silent server delays no
//!   other batch.
//! - While there are holds, the task reads the clock every second, because timers stand still while the host sleeps.

use crate::config::options::{Options, millis};
use crate::connection::{Answer, Connection, Failure, Limit};
use crate::error::{Error, LossReason, Phase};
use crate::lease::hold::Hold;
use crate::lease::losses::Losses;
use crate::lease::registration::Names;
use crate::lease::schedule::Schedule;
use crate::lease::spans;
use crate::lease::status::{HoldState, Standing};
use crate::observer;
use crate::protocol::script::{self, Renewal, Renewed};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::{select, task, time};
use crate::stats::Counters;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{Instrument, debug, debug_span, warn};

/// The number of holds in one request.
const BATCH: usize = 100;
/// The number of ticks in a third of the lease.
const TICKS: u32 = 64;
/// The precision of deadlines, which is that of timers.
const DEADLINES: Duration = Duration::from_millis(1);
/// The longest time between two readings of the clock.
const LOOK: Duration = Duration::from_secs(1);

/// The watchdog of a client. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Watchdog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lease: Duration,
    watched: Mutex<Watched>,
    losses: Losses,
    names: Names,
    counters: Arc<Counters>,
    earlier: Notify,
}

#[derive(Debug)]
struct Watched {
    holds: Schedule<Hold>,
    /// When the task wakes up.
    asleep_until: Moment,
}

/// The term that a renewal requests for one hold.
#[derive(Clone, Copy)]
enum Term {
    /// The watchdog's lease, but no more than what is left of the hold's last level.
    Lease(Duration),
    /// The rest of a fixed lease, because other clients may shorten the record's TTL.
    Rest(Duration),
    /// Nothing: the request only checks the hold.
    Check,
}

impl Term {
    fn of(hold: &Hold) -> Self {
        match hold.is_renewed() {
            // Rounded up to whole milliseconds, so that the deadline is no later than the record's expiry.
            true => Self::Lease(hold.end().remaining() + Duration::from_millis(1)),
            false if hold.kind.traits().renews_fixed_leases => Self::Rest(hold.deadline().remaining()),
            false => Self::Check,
        }
    }

    /// The minimum TTL that the request asks for.
    fn lease(self, watchdog: Duration) -> Duration {
        match self {
            Self::Lease(left) => watchdog.min(left),
            Self::Rest(rest) => rest,
            Self::Check => Duration::ZERO,
        }
    }

    /// The lease that the request sets. `None` if it only checks the hold.
    fn renewed(self, watchdog: Duration) -> Option<Duration> {
        (!matches!(self, Self::Check)).then(|| self.lease(watchdog))
    }

    /// How far a confirmation moves the deadline. The deadline of a fixed lease stays.
    fn extension(self, watchdog: Duration) -> Duration {
        match self {
            Self::Lease(_) => watchdog,
            Self::Rest(_) | Self::Check => Duration::ZERO,
        }
    }
}

impl Watchdog {
    pub(crate) fn new(options: &Options, counters: &Arc<Counters>) -> Self {
        let watched = Watched { holds: Schedule::new(), asleep_until: Moment::FAR };
        let (watched, losses, counters) = (Mutex::new(watched), Losses::new(), counters.clone());
        let (lease, names, earlier) = (options.lease, Names::of(options), Notify::new());
        Self(Arc::new(Shared { lease, watched, losses, names, counters, earlier }))
    }

    /// The names of clients, of which the client's own is renewed in a task of its own.
    pub(crate) fn names(&self) -> &Names {
        &self.0.names
    }

    /// Starts to watch `hold`.
    pub(crate) fn watch(&self, hold: &Arc<Hold>) {
        self.plan([hold], |hold, standing| self.next(hold, standing));
    }

    /// Stops watching `hold`, which is over.
    pub(crate) fn forget(&self, hold: &Hold) {
        self.lock().holds.take(hold);
    }

    /// Logs the loss of `hold` soon, together with other losses.
    pub(crate) fn note_loss(&self, hold: &Arc<Hold>) {
        if self.0.losses.note(hold) {
            self.0.earlier.notify_one();
        }
    }

    /// Logs the losses that are not logged yet.
    pub(crate) fn report_losses(&self) {
        self.0.losses.report();
    }

    /// How long the record lasts without a renewal, whichever client renewed it last.
    fn lease(&self, standing: &Standing) -> Duration {
        standing.shortest.map_or(self.0.lease, |shortest| shortest.min(self.0.lease))
    }

    /// When `hold` is due next, if it is not in doubt.
    fn next(&self, hold: &Hold, standing: &Standing) -> Moment {
        if !standing.renewed && !hold.kind.traits().renews_fixed_leases {
            return standing.deadline;
        }
        let third = self.lease(standing) / 3;
        let early = if standing.again { Duration::ZERO } else { third.mul_f64(share(hold.serial) / 2.0) };
        (standing.confirmed + third - early).rounded_down(third / TICKS)
    }

    /// Schedules each of `holds` for the time `due`, or for its deadline if that is earlier. Does not schedule a hold that is
    /// over, because no later call would remove it.
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

    /// Runs the watchdog. The future never ends, and is meant for a task of its own.
    pub(crate) async fn serve(self, connection: Connection) {
        let mut link = connection.clone();
        loop {
            let next = {
                let mut watched = self.lock();
                let first = watched.holds.first();
                watched.asleep_until = first.map_or(Moment::FAR, |due| due.min(Moment::now() + LOOK));
                watched.asleep_until.min(self.0.losses.due())
            };
            select! {
                () = self.0.earlier.notified() => {}
                () = time::sleep(next.remaining()) => {}
                () = link.changed() => self.doubt(&connection),
            }
            let now = Moment::now();
            self.0.counters.lagged(now.since(next));
            let mut due = self.lock().holds.take_due(now);
            due.retain(|hold| hold.state_at(now).is_live());
            // The deadline holds whatever the outcome of the renewal is.
            self.plan(&due, |_, standing| standing.deadline);
            self.renew(due, &connection);
            if self.0.losses.due() <= now {
                self.report_losses();
            }
        }
    }

    /// Doubts the holds whose server changed, after a connection went down or came up, or a slot moved. Other holds are not
    /// affected.
    fn doubt(&self, connection: &Connection) {
        let all: Vec<_> = self.lock().holds.all().cloned().collect();
        let (mut reached, mut unreached) = (Vec::new(), Vec::new());
        for hold in all {
            let data_epoch = connection.data_epoch(hold.record());
            if data_epoch != Some(hold.data_epoch()) {
                // The hold is in doubt until the next confirmation. Its deadline stays.
                hold.doubt(LossReason::Unreachable);
            }
            if hold.standing().is_none_or(|now| now.suspect) {
                if data_epoch.is_some() { &mut reached } else { &mut unreached }.push(hold);
            }
        }
        self.plan(&reached, |_, _| Moment::now());
        // The next change of the connection renews a hold whose server is unreachable now.
        self.plan(&unreached, |_, standing| standing.deadline);
    }

    /// Sends renewals for the holds in `due`. A hold with a fixed lease is checked if it is in doubt; otherwise only its
    /// deadline counts.
    fn renew(&self, mut due: Vec<Arc<Hold>>, connection: &Connection) {
        // The record of a hold that is not settled still names another owner.
        due.retain(|hold| {
            let wanted =
                |now: &Standing| now.renewed || now.suspect || hold.kind.traits().renews_fixed_leases;
            hold.standing().is_some_and(|now| now.settled && wanted(&now))
        });
        for renewal in Renewal::ALL {
            let due: Vec<_> = due.extract_if(.., |hold| hold.kind.traits().renewal == renewal).collect();
            self.start_by_slot(renewal, due, connection);
        }
    }

    fn start_by_slot(&self, renewal: Renewal, mut due: Vec<Arc<Hold>>, connection: &Connection) {
        // If the connection learns of a slot's move meanwhile, the batches get smaller, but remain correct.
        due.sort_by_cached_key(|hold| connection.slot(hold.record()));
        for batch in due
            .chunk_by(|one, other| connection.slot(one.record()) == connection.slot(other.record()))
            .flat_map(|slot| slot.chunks(BATCH))
        {
            self.start(renewal, batch.to_vec(), connection);
        }
    }

    fn start_each(&self, renewal: Renewal, holds: Vec<Arc<Hold>>, connection: &Connection) {
        holds.into_iter().for_each(|hold| self.start(renewal, vec![hold], connection));
    }

    fn start(&self, renewal: Renewal, batch: Vec<Arc<Hold>>, connection: &Connection) {
        let span = debug_span!("renew", holds = batch.len());
        let renewing = self.clone().renew_batch(renewal, batch, connection.clone());
        task::spawn(renewing.instrument(span));
    }

    /// Renews one batch: sends the request, splits the batch if its slot moved, and applies the reply to the holds.
    async fn renew_batch(self, renewal: Renewal, holds: Vec<Arc<Hold>>, connection: Connection) {
        let terms: Vec<_> = holds.iter().map(|hold| Term::of(hold)).collect();
        let answer = self.send(renewal, &holds, &terms, &connection).await;
        if holds.len() > 1 && answer.as_ref().is_err_and(Failure::is_try_again) {
            // The slot is migrating, and some of the records have moved already.
            return self.start_each(renewal, holds, &connection);
        }
        if holds.len() > 1 && answer.as_ref().is_err_and(Failure::is_cross_slot) {
            let slot = connection.slot(holds[0].record());
            return match holds.iter().all(|hold| connection.slot(hold.record()) == slot) {
                // The server computes slots in another way.
                true => self.start_each(renewal, holds, &connection),
                false => self.start_by_slot(renewal, holds, &connection),
            };
        }
        let error = match answer {
            Ok(answer) => match script::renewed(renewal, &answer.reply, holds.len()) {
                Ok(outcomes) => return self.apply(&holds, &terms, outcomes, &answer),
                Err(_) => connection.protocol_error(Phase::Renew),
            },
            Err(failure) => connection.error(failure, Phase::Renew),
        };
        self.fail(&holds, &terms, &error);
    }

    /// Sends the request of a batch.
    async fn send(
        &self,
        renewal: Renewal,
        holds: &[Arc<Hold>],
        terms: &[Term],
        connection: &Connection,
    ) -> Result<Answer, Failure> {
        let mut keys = Vec::with_capacity(holds.len());
        holds.iter().for_each(|hold| hold.kind.renewed_keys(&hold.owner_id, &mut keys));
        let leases = terms.iter().map(|term| millis(term.lease(self.0.lease)));
        let batch = holds.iter().map(|hold| hold.owner_id.clone()).zip(leases);
        let mut request = script::renew(renewal, keys, batch);
        holds.iter().for_each(|hold| hold.renewal_sent());
        // A renewal that is too late for the shortest lease of the batch leaves all holds in doubt.
        let shortest = holds.iter().filter_map(|hold| hold.standing()).map(|now| self.lease(&now)).min();
        let limit = Limit::For(connection.response_timeout().min(shortest.unwrap_or(self.0.lease) / 3));
        let answer = connection.call_within(&mut request, limit).await;
        if !answer.as_ref().is_err_and(|failure| failure.unanswered) {
            holds.iter().for_each(|hold| hold.renewal_answered());
        }
        answer
    }

    /// Applies the outcomes of a renewal to its holds, and schedules the holds that are still live.
    fn apply(&self, holds: &[Arc<Hold>], terms: &[Term], outcomes: Vec<Renewed>, answer: &Answer) {
        let (mut held, mut suspect) = (Vec::with_capacity(holds.len()), Vec::new());
        let now = Moment::now();
        for ((hold, term), outcome) in holds.iter().zip(terms).zip(outcomes) {
            let before = hold.standing();
            let state = self.apply_one(hold, *term, outcome, answer);
            if let (Some(before), Some(lease)) = (before, term.renewed(self.0.lease)) {
                self.count(hold, state, lease, before.term(now));
            }
            debug!(lock = ?hold.record(), owner = %hold.owner_id, ?state, "renewed");
            match state {
                HoldState::Held => held.push(hold),
                HoldState::Suspect => suspect.push(hold),
                _ => self.forget(hold),
            }
        }
        // In reverse order, because the last item of a list is the cheapest to remove.
        self.plan(held.into_iter().rev(), |hold, standing| self.next(hold, standing));
        self.retry_soon(suspect);
    }

    fn apply_one(&self, hold: &Arc<Hold>, term: Term, outcome: Renewed, answer: &Answer) -> HoldState {
        match outcome {
            Renewed::Held(left) => {
                if let Some(left) = left {
                    hold.found_left(left, term.lease(self.0.lease));
                }
                hold.renew(answer.sent, answer.data_epoch, term.extension(self.0.lease))
            }
            Renewed::Gone => hold.lose(hold.gone_in(answer.data_epoch)),
            Renewed::Other | Renewed::WrongType => hold.lose(LossReason::Taken),
            Renewed::Refused => hold.doubt(LossReason::Expired),
        }
    }

    /// Counts a renewal by `lease`, and reports it to the observers and to the span of the hold. It was answered when `left` was left of the
    /// lease `previous`.
    fn count(&self, hold: &Hold, after: HoldState, lease: Duration, (previous, left): (Duration, Duration)) {
        let counters = &self.0.counters;
        match after {
            HoldState::Held => {}
            HoldState::Suspect => return counters.not_renewed.count(),
            // The hold has ended, which counts by itself.
            HoldState::Lost(_) | HoldState::Released => return,
        }
        counters.renewed.count();
        if left < previous / 3 {
            counters.renewed_late.count();
        }
        if let Some(span) = hold.span() {
            spans::renewed(&span, lease, left);
        }
        if counters.observers.is_empty() {
            return;
        }
        let (name, kind, owner) = (&**hold.record(), hold.kind.traits().name, hold.owner_in_record());
        let renewed = observer::Renewed { hold: hold.serial, name, kind, owner, lease, previous, left };
        counters.observers.tell(|observer| observer.on_renewed(&renewed));
    }

    /// Doubts the holds of a failed renewal, and schedules another one.
    fn fail(&self, holds: &[Arc<Hold>], terms: &[Term], error: &Error) {
        let renewals = terms.iter().filter(|term| term.renewed(self.0.lease).is_some());
        self.0.counters.not_renewed.add(renewals.count() as u64);
        warn!(holds = holds.len(), %error, "renewal failed");
        let refused = matches!(error, Error::Refused { .. });
        let reason = if refused { LossReason::Expired } else { LossReason::Unreachable };
        // A hold that ended meanwhile stays ended.
        self.retry_soon(holds.iter().filter(|hold| hold.doubt(reason).is_live()));
    }

    /// Schedules holds that are in doubt for an early renewal.
    fn retry_soon<'a>(&self, holds: impl IntoIterator<Item = &'a Arc<Hold>>) {
        let now = Moment::now();
        self.plan(holds, |_, standing| now + (self.lease(standing) / 10).min(LOOK));
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.watched.lock()
    }
}

/// Maps `number` to a fraction of 1, so that consecutive numbers are spread evenly. This is Fibonacci hashing (Knuth, The Art
/// of Computer Programming, volume 3, 6.4).
fn share(number: u64) -> f64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11) as f64 / (1_u64 << 53) as f64
}
