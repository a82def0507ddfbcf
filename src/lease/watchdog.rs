//! The watchdog: one task per client that renews holds and ends them at their deadline.
//!
//! - A renewal belongs to one `Hold`. A late reply changes nothing, because a hold that has ended cannot change.
//! - A renewal is never sent twice. After a failure, the next renewal is a new request for the holds that are still live.
//! - A renewal is due a third of the lease after the last confirmed request. If other clients shorten the record's TTL, their
//!   lease counts. The first renewal is up to half of that earlier, so that locks acquired together are renewed apart.
//! - Holds that are due in one tick are renewed in batches. A task for each batch waits for its reply, so a silent server delays no
//!   other batch. Only the watchdog's own task touches the holds, because there may be many, and another core would have to fetch
//!   their memory.
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
use crate::protocol::script::{self, Renewal, Renewed, Request};
use crate::runtime::clock::Moment;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::{select, task, time};
use crate::stats::Counters;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedSender};
use tracing::{Instrument, debug, debug_span, warn};

/// The number of holds in one request.
const BATCH: usize = 50;
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
    /// A lease that moves the deadline.
    Lease(Duration),
    /// The rest of a fixed lease, because other clients may shorten the record's TTL.
    Rest(Duration),
    /// Nothing: the request only checks the hold.
    Check,
}

impl Term {
    fn of(hold: &Hold, standing: &Standing, watchdog: Duration, now: Moment) -> Self {
        match standing.renewed {
            true => Self::Lease(standing.renewal(watchdog, now)),
            false if hold.kind.traits().renews_fixed_leases => Self::Rest(standing.deadline.since(now)),
            false => Self::Check,
        }
    }

    /// The minimum TTL that the request asks for.
    fn lease(self) -> Duration {
        match self {
            Self::Lease(lease) | Self::Rest(lease) => lease,
            Self::Check => Duration::ZERO,
        }
    }

    /// The lease that the request sets. `None` if it only checks the hold.
    fn renewed(self) -> Option<Duration> {
        (!matches!(self, Self::Check)).then(|| self.lease())
    }

    /// A confirmation moves the deadline to at most this long after the request was sent. That is never more than the request asked for,
    /// because a level may have been taken since. The deadline of a fixed lease stays.
    fn extension(self) -> Duration {
        match self {
            Self::Lease(lease) => lease,
            Self::Rest(_) | Self::Check => Duration::ZERO,
        }
    }
}

/// Holds that one request renews, all in the same way.
struct Batch {
    renewal: Renewal,
    holds: Vec<(Arc<Hold>, Term)>,
}

impl Batch {
    fn into_holds(self) -> Vec<Arc<Hold>> {
        self.holds.into_iter().map(|(hold, _)| hold).collect()
    }
}

/// Sends the requests of batches, and the answers back to the watchdog's task.
struct Sender {
    connection: Connection,
    answers: UnboundedSender<(Batch, Result<Answer, Failure>)>,
}

impl Sender {
    /// Sends `request` for `batch`, and waits at most `limit` for the reply. The call itself does not wait.
    fn send(&self, batch: Batch, mut request: Request, limit: Duration) {
        let span = debug_span!("renew", holds = batch.holds.len());
        let (connection, answers) = (self.connection.clone(), self.answers.clone());
        let renewing = async move {
            let answer = connection.call_within(&mut request, Limit::For(limit)).await;
            // Without its receiver the client is closed.
            let _ = answers.send((batch, answer));
        };
        task::spawn(renewing.instrument(span));
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

    /// Doubts `hold`, which has just been watched, if its server has changed since the grant.
    pub(crate) fn doubt_late(&self, hold: &Arc<Hold>, connection: &Connection) {
        if connection.data_epoch(hold.record()) != Some(hold.data_epoch()) {
            self.doubt([hold.clone()], connection);
        }
    }

    /// Doubts `holds` if the connection that has just confirmed them, in the data epoch `data_epoch`, has ended. The watchdog may have learned
    /// of its end before the reply.
    pub(crate) fn doubt_if_cut(
        &self,
        holds: impl IntoIterator<Item = Arc<Hold>>,
        data_epoch: u64,
        connection: &Connection,
    ) {
        if connection.unbroken_since(data_epoch).is_none() {
            self.doubt(holds, connection);
        }
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
        let due = (standing.confirmed + third - early).rounded_down(third / TICKS);
        // The last confirmed request may not have extended the lease, and a level that lasts longer may have been taken since.
        // A renewal does not move the deadline of a fixed lease.
        let outlasts = standing.renewed && standing.end.since(standing.deadline) > third;
        if outlasts { due.min(standing.deadline - third) } else { due }
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
        let (sender, mut answers) = mpsc::unbounded_channel();
        let sender = Sender { connection, answers: sender };
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
                () = link.changed() => {
                    let all: Vec<_> = self.lock().holds.all().cloned().collect();
                    let unreached = self.doubt(all, &sender.connection);
                    // The next change of the connection renews them.
                    self.plan(&unreached, |_, standing| standing.deadline);
                }
                Some((batch, answer)) = answers.recv() => self.answered(batch, answer, &sender),
            }
            let now = Moment::now();
            self.0.counters.lagged(now.since(next));
            self.renew_due(now, &sender);
            if self.0.losses.due() <= now {
                self.report_losses();
            }
        }
    }

    /// Doubts those of `holds` whose server changed, after a connection went down or came up, or a slot moved. Other holds are not
    /// affected. Returns those in doubt whose server is unreachable. They keep their places in the schedule, because outside the
    /// watchdog's task the connection may be up again by now.
    fn doubt(&self, holds: impl IntoIterator<Item = Arc<Hold>>, connection: &Connection) -> Vec<Arc<Hold>> {
        let (mut reached, mut unreached) = (Vec::new(), Vec::new());
        for hold in holds {
            if connection.data_epoch(hold.record()) != Some(hold.data_epoch()) {
                // The hold is in doubt until the next confirmation. Its deadline stays.
                hold.doubt(LossReason::Unreachable);
            }
            if hold.standing().is_none_or(|now| now.suspect) {
                // Read after the doubt: a connection that comes up later is one more change, which finds the hold in doubt.
                let is_reached = connection.data_epoch(hold.record()).is_some();
                if is_reached { &mut reached } else { &mut unreached }.push(hold);
            }
        }
        self.plan(&reached, |_, _| Moment::now());
        unreached
    }

    /// Renews the holds that are due by `now`, and ends those whose deadline has passed. A hold with a fixed lease is checked if it is in
    /// doubt; otherwise only its deadline counts.
    fn renew_due(&self, now: Moment, sender: &Sender) {
        let (mut due, mut ended) = (Vec::new(), Vec::new());
        {
            let mut watched = self.lock();
            for hold in watched.holds.take_due(now) {
                let Some(standing) = hold.standing().filter(|standing| now < standing.deadline) else {
                    ended.push(hold);
                    continue;
                };
                // The deadline holds whatever the outcome of the renewal is.
                watched.holds.put(&hold, standing.deadline.rounded_up(DEADLINES));
                let wanted = standing.renewed || standing.suspect || hold.kind.traits().renews_fixed_leases;
                // The record of a hold that is not settled still names another owner.
                if wanted && standing.settled {
                    due.push(hold);
                }
            }
        }
        // `state_at` notices the end and calls the loss handler, so the schedule must not be locked.
        ended.retain(|hold| hold.state_at(now).is_live());
        self.plan(&ended, |_, standing| standing.deadline);
        self.start_by_slot(due, sender);
    }

    /// Starts the renewal of `holds` in batches. The holds of a batch are renewed in the same way, and are in one slot.
    fn start_by_slot(&self, mut holds: Vec<Arc<Hold>>, sender: &Sender) {
        // If the connection learns of a slot's move meanwhile, the batches get smaller, but remain correct.
        let group = |hold: &Arc<Hold>| (hold.kind.traits().renewal, sender.connection.slot(hold.record()));
        holds.sort_by_cached_key(group);
        while let Some(last) = holds.last() {
            let of_last = group(last);
            let others = holds.iter().rev().take(BATCH).position(|hold| group(hold) != of_last);
            let batch = others.unwrap_or_else(|| holds.len().min(BATCH));
            self.start(holds.split_off(holds.len() - batch), sender);
        }
    }

    fn start_each(&self, batch: Batch, sender: &Sender) {
        batch.holds.into_iter().for_each(|(hold, _)| self.start(vec![hold], sender));
    }

    /// Starts the renewal of `holds`. The holds that have ended since they were due are left out.
    fn start(&self, holds: Vec<Arc<Hold>>, sender: &Sender) {
        let now = Moment::now();
        let (mut keys, mut owners) = (Vec::with_capacity(holds.len()), Vec::with_capacity(holds.len()));
        let (mut batch, mut shortest) = (Vec::with_capacity(holds.len()), self.0.lease);
        for hold in holds {
            let Some(standing) = hold.renewal_sent() else { continue };
            let term = Term::of(&hold, &standing, self.0.lease, now);
            hold.kind.renewed_keys(&hold.owner_id, &mut keys);
            owners.push((hold.owner_id.clone(), millis(term.lease())));
            shortest = shortest.min(self.lease(&standing));
            batch.push((hold, term));
        }
        let Some((first, _)) = batch.first() else { return };
        let renewal = first.kind.traits().renewal;
        let request = script::renew(renewal, keys, owners);
        // A renewal that is too late for the shortest lease of the batch leaves all holds in doubt.
        let limit = sender.connection.response_timeout().min(shortest / 3);
        sender.send(Batch { renewal, holds: batch }, request, limit);
    }

    /// Acts on the answer to a batch: splits the batch if its slot moved, or applies the reply to the holds.
    fn answered(&self, batch: Batch, answer: Result<Answer, Failure>, sender: &Sender) {
        let connection = &sender.connection;
        if !answer.as_ref().is_err_and(|failure| failure.unanswered) {
            batch.holds.iter().for_each(|(hold, _)| hold.renewal_answered());
        }
        let several = batch.holds.len() > 1;
        if several && answer.as_ref().is_err_and(Failure::is_try_again) {
            // The slot is migrating, and some of the records have moved already.
            return self.start_each(batch, sender);
        }
        if several && answer.as_ref().is_err_and(Failure::is_cross_slot) {
            let mut slots = batch.holds.iter().map(|(hold, _)| connection.slot(hold.record()));
            let first = slots.next();
            return match slots.all(|slot| Some(slot) == first) {
                // The server computes slots in another way.
                true => self.start_each(batch, sender),
                false => self.start_by_slot(batch.into_holds(), sender),
            };
        }
        let error = match answer {
            Ok(answer) => match script::renewed(batch.renewal, &answer.reply, batch.holds.len()) {
                Ok(outcomes) => return self.apply(&batch, outcomes, &answer, connection),
                Err(_) => connection.protocol_error(Phase::Renew),
            },
            Err(failure) => connection.error(failure, Phase::Renew),
        };
        self.fail(&batch, &error);
    }

    /// Applies the outcomes of a renewal to its holds, and schedules the holds that are still live.
    fn apply(&self, batch: &Batch, outcomes: Vec<Renewed>, answer: &Answer, connection: &Connection) {
        let (mut held, mut suspect) = (Vec::with_capacity(outcomes.len()), Vec::new());
        let now = Moment::now();
        for ((hold, term), outcome) in batch.holds.iter().zip(outcomes) {
            let before = hold.standing();
            let state = self.apply_one(hold, *term, outcome, answer);
            if let (Some(before), Some(lease)) = (before, term.renewed()) {
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
        self.plan(held.iter().copied().rev(), |hold, standing| self.next(hold, standing));
        self.doubt_if_cut(held.into_iter().cloned(), answer.data_epoch, connection);
        self.retry_soon(suspect);
    }

    fn apply_one(&self, hold: &Arc<Hold>, term: Term, outcome: Renewed, answer: &Answer) -> HoldState {
        match outcome {
            Renewed::Held(left) => {
                if let Some(left) = left {
                    hold.found_left(left, term.lease());
                }
                hold.renew(answer.sent, answer.data_epoch, term.extension())
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
    fn fail(&self, batch: &Batch, error: &Error) {
        let renewals = batch.holds.iter().filter(|(_, term)| term.renewed().is_some());
        self.0.counters.not_renewed.add(renewals.count() as u64);
        warn!(holds = batch.holds.len(), %error, "renewal failed");
        let refused = matches!(error, Error::Refused { .. });
        let reason = if refused { LossReason::Expired } else { LossReason::Unreachable };
        // A hold that ended meanwhile stays ended.
        let holds = batch.holds.iter().map(|(hold, _)| hold);
        self.retry_soon(holds.filter(|hold| hold.doubt(reason).is_live()));
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

#[cfg(all(test, not(shuttle)))]
#[test]
fn a_fixed_lease_that_ends_early_is_renewed_as_any_other() {
    use crate::kinds::Read;
    use crate::lease::hold::{Begun, Listeners, LossHandler};
    use crate::lease::term::LevelTerm;
    struct Nobody;
    impl LossHandler for Nobody {
        fn losing(&self) {}
        fn doubted(self: Arc<Self>, _: &Arc<Hold>) {}
    }
    let (counters, sent) = (Counters::new(Default::default()), Moment::now());
    let watchdog = Watchdog::new(&Options::default(), &counters);
    let kind = Arc::new(Read::new(crate::protocol::keys::LockKeys::new("lock".into()).unwrap()));
    let (owner, lease) = (crate::owner::LocalOwner::thread(), watchdog.0.lease * 100);
    let begun = Begun { kind, owner, owner_id: "owner".into(), data_epoch: 0, sent, lease, token: None };
    let loss_handler = std::sync::Weak::<Nobody>::new();
    let hold = Hold::new(begun, &Arc::new(Listeners { counters, loss_handler }));
    hold.begin_level(LevelTerm::fixed(sent + lease), 1);
    hold.end_early(watchdog.0.lease);
    let standing = hold.standing().unwrap();
    // A reply that came just before the end.
    let standing = Standing { confirmed: standing.deadline - DEADLINES, again: true, ..standing };
    assert!(watchdog.next(&hold, &standing) > standing.deadline);
}
