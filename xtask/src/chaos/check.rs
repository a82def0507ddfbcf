//! The rules that judge a history. Each rule is a function of the history alone. `check_tests.rs` shows that each one fails
//! on a bad history.
//!
//! A hold is *certain* from its start to the last time that its state was read as held. A lost hold never comes back, so it
//! was held throughout. A Java hold reports no state, so it is certain only if no fault that could affect it came within a
//! lease of it. Rust processes with an odd number hand off pipelined. When a record disappears under a chain of pipelined
//! holds, such a process reports the loss only to the hold that is current at discovery, at most a lease later.

use std::collections::HashMap;

use super::effects::{self, Delay, Effects};
use super::history::{Counted, History, Hold, Permits, Window, record_of};
use super::keys::{FAIR_WAIT_MS, PERMITS, WRITER, capacity, is_held_for_long};

/// How far a call may exceed its limit. The time for which the machine kept the process from running is added.
const MARGIN_NS: u64 = 50_000_000;
/// How long a free lock may stay free while a waiter exists. A waiter for a spin lock retries at least every 128 ms.
const IDLE_NS: u64 = 200_000_000;
/// How long a client needs to reconnect and resubscribe to a server that is up.
const RECONNECT_NS: u64 = 500_000_000;
/// A client drops a silent connection after this time: it sends a heartbeat after 250 ms, and waits for its response timeout
/// of 1 s.
const HEARTBEAT_NS: u64 = 1_250_000_000;
/// How long a client needs to find a server that is up again: a connection attempt that still hangs, and a pause.
pub const RETRY_NS: u64 = 1_500_000_000;
/// How long a signal or a proxy command may take to have an effect.
const EFFECT_NS: u64 = 10_000_000;
/// How much a process may grow after its warm-up.
const GROWTH_KB: u64 = 16 * 1024;
const WARM_UP_NS: u64 = 20_000_000_000;
/// Dead waiters that a killed process or runtime may leave in a fair lock's queue. Each blocks the queue for its allowance.
const FAIR_WAITERS: u64 = 2;

#[derive(Debug)]
pub struct Violation {
    pub rule: &'static str,
    /// The time by which to find the fault.
    pub at: u64,
    pub text: String,
}

/// The result of one rule.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How often the rule applied.
    pub judged: usize,
    pub found: Vec<Violation>,
}

impl Verdict {
    /// Counts one application of the rule.
    pub fn judge(&mut self, violation: Option<Violation>) {
        self.judged += 1;
        self.found.extend(violation);
    }
}

/// A rule, and a test for whether a campaign must exercise it.
pub struct Rule {
    pub name: &'static str,
    pub judge: fn(&History) -> Verdict,
    pub needs: fn(&History) -> bool,
}

const RULES: [Rule; 15] = [
    Rule { name: "certain holds do not overlap", judge: overlaps, needs: |_| true },
    Rule { name: "no update is lost", judge: lost_updates, needs: |_| true },
    Rule { name: "calls return on time", judge: late_calls, needs: |_| true },
    Rule { name: "losses are reported by the deadline", judge: late_losses, needs: |_| true },
    Rule { name: "no hold outlives a silent server", judge: held_in_silence, needs: is_dark },
    Rule {
        name: "holders learn of lost records",
        judge: survived_record_loss,
        needs: |history| has(history, |window| window.loses_records),
    },
    Rule {
        name: "locks are acquired again after a fault",
        judge: no_progress,
        needs: |history| has(history, |window| window.failover.is_none()),
    },
    Rule {
        name: "no waiter stays stuck after a fault",
        judge: waited_too_long,
        needs: |history| has(history, |window| window.failover.is_none()),
    },
    Rule { name: "a free lock goes to its waiters", judge: idle_while_wanted, needs: |_| true },
    Rule {
        name: "no write during a read hold",
        judge: changed_under_a_reader,
        needs: |history| history.kinds.contains(&"readwrite"),
    },
    Rule {
        name: "fencing tokens increase",
        judge: tokens_not_increasing,
        needs: |history| history.kinds.contains(&"fenced"),
    },
    Rule {
        name: "permits add up",
        judge: permits_add_up,
        needs: |history| ["semaphore", "expirable"].iter().any(|kind| history.kinds.contains(kind)),
    },
    Rule {
        name: "faults cause only their known effects",
        judge: unexplained_failures,
        needs: |history| has(history, |_| true),
    },
    Rule {
        name: "memory does not grow",
        judge: memory_growth,
        needs: |history| history.stopped > 2 * WARM_UP_NS,
    },
    Rule { name: "counters add up", judge: miscounted, needs: |_| true },
];

/// A server was silent for longer than a lease.
fn is_dark(history: &History) -> bool {
    let dark = |window: &Window| window.silent && window.ending > window.begun + EFFECT_NS + history.lease_ns;
    history.windows.iter().any(dark)
}

fn has(history: &History, which: fn(&Window) -> bool) -> bool {
    history.windows.iter().any(which)
}

/// The result of all rules.
#[derive(Default)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    /// For each rule, how often it applied and how often it was broken.
    pub counts: Vec<(&'static str, usize, usize)>,
    /// Rules that the campaign should have exercised but did not, and kinds of fault after which no recovery was observed.
    pub unexercised: Vec<&'static str>,
}

impl Judgement {
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && self.unexercised.is_empty()
    }

    pub fn add(&mut self, rules: &[Rule], history: &History) {
        for rule in rules {
            let Verdict { judged, found } = (rule.judge)(history);
            self.counts.push((rule.name, judged, found.len()));
            if judged == 0 && (rule.needs)(history) {
                self.unexercised.push(rule.name);
            }
            self.violations.extend(found);
        }
    }
}

/// Judges a history by the rules of this file.
pub fn judge(history: &History) -> Judgement {
    let mut judgement = Judgement::default();
    judgement.add(&RULES, history);
    judgement
}

/// Certain holds of one key never take more than its capacity at any time: one hold, a number of permits, or many readers
/// but no reader next to a writer. A loss of the server's data starts a new data epoch, and holds of different epochs may
/// overlap. A hold that was lost later counts until it was last seen held, even if that is its start.
fn overlaps(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut live: HashMap<&str, Vec<Hold>> = HashMap::new();
    for hold in history.holds.iter().filter_map(|hold| certain_part(history, hold)) {
        let overlapping = live.entry(hold.key).or_default();
        overlapping.retain(|other| other.end > hold.start);
        let taken = overlapping.iter().map(|other| other.share).sum::<u64>() + hold.share;
        verdict.judge((taken > capacity(hold.key)).then(|| {
            let text: Vec<_> = overlapping.iter().chain([&hold]).map(|hold| format!("{hold:?}")).collect();
            let rule = match capacity(hold.key) {
                1 => "two holders of one key",
                WRITER => "a writer shared the lock",
                _ => "more permits held than exist",
            };
            Violation { rule, at: hold.start, text: text.join("\n  ") }
        }));
        overlapping.push(hold);
    }
    verdict
}

/// No certain hold overwrites a write that it has not read. Every write is a new number, so two holds that read the same
/// number did not see each other's write.
fn lost_updates(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut readers: HashMap<(&str, u64), &Hold> = HashMap::new();
    let certain = history.holds.iter().filter(|hold| is_certain(history, hold));
    for hold in certain.filter(|hold| hold.read != hold.written && !is_reader(hold)) {
        let before = readers.insert((hold.key, hold.read), hold);
        verdict.judge(before.map(|before| {
            let text = format!("{before:?}\n  {hold:?}");
            Violation { rule: "an update was lost", at: hold.start, text }
        }));
    }
    verdict
}

fn late_calls(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for call in history.calls.iter().filter(|call| call.limit_ms > 0) {
        let stalled = || stalled(history, call.process, call.start, call.end) + call.delayed;
        let allowed = call.limit_ms * 1_000_000 + MARGIN_NS;
        let took = call.end - call.start;
        let late = took > allowed && took > allowed + stalled();
        verdict.judge(late.then(|| Violation {
            rule: "a call returned too late",
            at: call.start,
            text: format!("{call:?}"),
        }));
    }
    verdict
}

/// No certain writer changes a cell while a certain reader reads it. A writer that reported its hold as lost may still have
/// written.
fn changed_under_a_reader(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let certain = || history.holds.iter().filter(|hold| is_certain(history, hold));
    let writes = certain().filter(|hold| !is_reader(hold) && capacity(hold.key) == WRITER);
    let writers: HashMap<u64, &Hold> = writes.map(|hold| (hold.written, hold)).collect();
    for reader in certain().filter(|hold| is_reader(hold)) {
        let writer = writers.get(&reader.written).filter(|_| reader.read != reader.written);
        verdict.judge(writer.map(|writer| {
            let text = format!("{reader:?}\n  {writer:?}");
            Violation { rule: "a write during a read hold", at: reader.end, text }
        }));
    }
    verdict
}

/// Within one data epoch, an acquire that starts while another hold has its token gets a greater token. So does each certain
/// hold after another one. A force-unlock keeps the last token.
fn tokens_not_increasing(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut epochs: Vec<u64> = history
        .windows
        .iter()
        .filter(|window| window.loses_records && window.keys.is_empty())
        .map(|window| window.to)
        .collect();
    epochs.insert(0, 0);
    let mut holds: HashMap<(&str, usize), Vec<&Hold>> = HashMap::new();
    for hold in history.holds.iter().filter(|hold| hold.token > 0) {
        let epoch = epochs.partition_point(|began| *began <= hold.asked);
        // A hold may get its token in the epoch before or after the one in which it asked.
        if epochs.get(epoch).is_none_or(|next| hold.start < *next) && !data_lost_during(history, hold) {
            holds.entry((hold.key, epoch)).or_default().push(hold);
        }
    }
    for holds in holds.values() {
        let mut by_start = holds.iter().peekable();
        let mut greatest: Option<&Hold> = None;
        let mut by_asking = holds.clone();
        by_asking.sort_by_key(|hold| hold.asked);
        let fell = |before: &Hold, hold: &Hold| {
            let text = format!("{before:?}\n  {hold:?}");
            Violation { rule: "a token did not increase", at: hold.start, text }
        };
        for hold in by_asking {
            while let Some(before) = by_start.next_if(|before| before.start < hold.asked) {
                greatest = greatest.into_iter().chain([*before]).max_by_key(|hold| hold.token);
            }
            if let Some(before) = greatest {
                verdict.judge((before.token >= hold.token).then(|| fell(before, hold)));
            }
        }
        let certain: Vec<_> = holds.iter().filter(|hold| is_certain(history, hold)).collect();
        for pair in certain.windows(2) {
            // Otherwise the loop above has compared them.
            if pair[0].start >= pair[1].asked {
                verdict.judge((pair[0].token >= pair[1].token).then(|| fell(pair[0], pair[1])));
            }
        }
    }
    verdict
}

/// All data was lost between the acquire and its answer.
fn data_lost_during(history: &History, hold: &Hold) -> bool {
    let all = history.windows.iter().filter(|window| window.loses_records && window.keys.is_empty());
    all.into_iter().any(|window| window.from <= hold.start && window.to >= hold.asked)
}

/// No permit is created. At the end, every permit of a semaphore is free, unless a fault could have taken some.
fn permits_add_up(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for Permits { key, free } in &history.permits {
        let all = i64::from(PERMITS);
        let generation = history.generations.iter().find(|generation| generation.key == *key);
        let whole = generation.is_some_and(|generation| !is_spoilt(history, key, generation.began, u64::MAX));
        // The new master may lack an unreplicated acquire, and have its release.
        let lost = history.windows.iter().any(|window| window.loses_records && window.failover.is_some());
        let rule = if *free > all && (whole || !key.starts_with("java") && !lost) {
            Some("permits were created")
        } else {
            (*free < all && whole).then_some("permits disappeared")
        };
        verdict.judge(rule.map(|rule| {
            let text = format!("{key} has {free} permits");
            Violation { rule, at: history.stopped, text }
        }));
    }
    let present = |generation: &&super::history::Generation| {
        history.permits.iter().any(|permits| permits.key == generation.key)
    };
    for generation in history.generations.iter().filter(|generation| !present(generation)) {
        verdict.judge((!is_spoilt(history, &generation.key, generation.began, u64::MAX)).then(|| {
            let text = format!("{} no longer exists", generation.key);
            Violation { rule: "permits disappeared", at: history.stopped, text }
        }));
    }
    verdict
}

/// Whether a fault in this period may have removed or duplicated permits.
fn is_spoilt(history: &History, semaphore: &str, from: u64, to: u64) -> bool {
    let between = |window: &&Window| window.from >= from && window.from <= to;
    history.windows.iter().filter(between).any(|window| window.spoils_permits(semaphore))
}

/// A loss is reported by the deadline at the latest, and no state is live after it.
fn late_losses(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for hold in history.holds.iter().filter(|hold| is_rust(hold)) {
        let reported = if hold.lost > 0 { hold.lost } else { hold.end };
        let late = if hold.deadline > 0 { reported.saturating_sub(hold.deadline) } else { 0 };
        let dead = hold.left == 0 && !hold.last.starts_with("Lost");
        let allowed = || MARGIN_NS + hold.delayed + stalled(history, hold.process, hold.deadline, reported);
        let rule = if dead && hold.last != "Released" {
            Some("live after its deadline")
        } else if dead && late > 0 && hold.lost == 0 {
            Some("a loss was not reported")
        } else {
            (hold.lost > 0 && late > 0 && late > allowed()).then_some("a loss was reported too late")
        };
        verdict.judge(rule.map(|rule| Violation { rule, at: hold.end, text: format!("{hold:?}") }));
    }
    verdict
}

/// From one lease after a server falls silent until it answers again, no process believes that it holds. The rule uses the
/// fault's own times, not the deadline that the library reports.
fn held_in_silence(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for window in history.windows.iter().filter(|window| window.silent) {
        let dark = window.begun + EFFECT_NS + history.lease_ns..window.ending;
        for hold in around(history, window.begun, dark.end).filter(|_| !dark.is_empty()) {
            let concerned =
                is_rust(hold) && has_lease(hold) && window.hits(hold.process) && window.affects(hold.key);
            if concerned && hold.end > window.begun {
                let held = dark.contains(&hold.end) && ["Held", "Suspect"].contains(&hold.last);
                verdict.judge(held.then(|| {
                    let text = format!("{}: {hold:?}", window.kind);
                    Violation { rule: "held while the server was silent", at: hold.end, text }
                }));
            }
        }
    }
    verdict
}

/// A holder whose record was lost or freed learns of it within a lease.
fn survived_record_loss(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for window in history.windows.iter().filter(|window| window.loses_records) {
        for hold in around(history, window.from, window.to + 2 * history.lease_ns) {
            let crossed = hold.start < window.lost_at()
                && hold.end > window.to
                && window.removed(hold.key)
                && window.failover.as_ref().is_none_or(|failover| !failover.has_record_of(hold));
            if crossed && is_rust(hold) && has_lease(hold) {
                let late = hold.end > window.to + history.lease_ns + EFFECT_NS;
                verdict.judge((late && !hold.last.starts_with("Lost")).then(|| {
                    let text = format!("{}: {hold:?}", window.kind);
                    Violation { rule: "held although the record was lost", at: hold.end, text }
                }));
            }
        }
    }
    verdict
}

/// After a fault, the hot keys of every kind are acquired within a lease and a retry, and so is every client's own key. A
/// fault that is followed too soon by the next one does not count.
fn no_progress(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (number, window) in history.windows.iter().enumerate() {
        for watched in watched_keys(history) {
            let Watched { name, process, .. } = &watched;
            let until = recovery_deadline(history, window, name, *process);
            if until < next_fault(history, number) {
                let took = progress(history, window, &watched);
                verdict.judge(took.is_none_or(|took| window.to + took > until).then(|| {
                    let text =
                        format!("{name} was not acquired within a lease and a retry after {}", window.kind);
                    Violation { rule: "no progress", at: window.to, text }
                }));
            }
        }
    }
    verdict
}

/// Whether enough time passed after a fault to observe recovery.
pub fn is_judged(history: &History, number: usize) -> bool {
    let window = &history.windows[number];
    window.to + history.lease_ns + RETRY_NS < next_fault(history, number)
}

/// A waiter that waits when a fault ends waits no longer than a lease and a retry, if the next fault leaves the time. This
/// applies where a queue orders the waiters, in a client or in the record. Some waiters depend on a stream of other holders
/// and are left out: writers behind readers, requests for several locks or several values of a group, and keys that are held
/// for longer than a lease.
fn waited_too_long(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for number in (0..history.windows.len()).filter(|number| is_judged(history, *number)) {
        let (window, next) = (&history.windows[number], next_fault(history, number));
        let first = history.holds.partition_point(|hold| hold.start <= window.to);
        let after = history.holds[first..].iter().take_while(|hold| hold.start < window.to + 60_000_000_000);
        let waited = after.filter(|hold| hold.asked < window.to && is_rust(hold));
        let in_line = |hold: &&Hold| {
            let wants_several = hold.key.starts_with("multi:") || is_of_several_values(history, hold);
            hold.share < WRITER && !wants_several && !is_held_for_long(hold.key)
        };
        for hold in waited.filter(in_line) {
            let until = recovery_deadline(history, window, hold.key, Some(hold.process));
            verdict.judge((hold.start > until && until < next).then(|| {
                let text = format!("{}: {hold:?}", window.kind);
                Violation { rule: "waited too long", at: window.to, text }
            }));
        }
    }
    verdict
}

/// Whether a hold was acquired together with others. Each value of a group has its own line, with the same times.
fn is_of_several_values(history: &History, hold: &Hold) -> bool {
    let first = history.holds.partition_point(|other| other.start < hold.start);
    let at_once = history.holds[first..].iter().take_while(|other| other.start == hold.start);
    let mut values = at_once.filter(|other| (other.owner, other.asked) == (hold.owner, hold.asked));
    hold.key.starts_with("group:") && values.any(|other| other.key != hold.key)
}

/// A waiter acquires a free lock at once, at any time of the campaign, unless a nearby fault delays a wake-up or leaves a
/// hold behind, or the record names Redisson. The rule looks at the next hold: it counts if its task waited before the lock
/// became free, or if the key is one of the `passing` keys, which count from the request. Left out are several locks and
/// several values, whose waiters may wait for another part; readers and permits, which share; and a fair lock next to Java,
/// whose turn may belong to a thread that its JVM has not woken yet.
fn idle_while_wanted(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut before: HashMap<&str, &Hold> = HashMap::new();
    let with_java = history.holds.iter().any(|hold| !is_rust(hold));
    for hold in &history.holds {
        let others_first = with_java && hold.key.starts_with("fair:");
        let waits_for_one = !["multi:", "group:"].iter().any(|kind| hold.key.starts_with(kind));
        if capacity(hold.key) != 1 || !waits_for_one || others_first {
            continue;
        }
        let last = before.get(hold.key);
        let done = last.map_or(0, |last| last.done);
        let free = done.max(hold.asked);
        let wanted = hold.asked <= done || hold.key.starts_with("passing:");
        // A hold that was lost may have left its record.
        let given_back = last.is_none_or(|last| last.outcome == "Ok");
        if is_rust(hold) && wanted && given_back && (history.warm..hold.start).contains(&free) {
            // Few locks stay free for long, and the search for excuses is slow.
            let allowed = IDLE_NS + MARGIN_NS;
            let idle = || {
                let free = free.max(delayed_until(history, hold));
                let idle = hold.start.saturating_sub(free);
                let excused = || {
                    machine_stalled(history, free, hold.start)
                        + named_java(history, hold.key, free, hold.start)
                };
                (idle > allowed && idle > allowed + excused()).then_some(idle)
            };
            let late = if hold.start - free > allowed { idle() } else { None };
            verdict.judge(late.map(|idle| {
                let text = format!("idle for {} ms\n  {last:?}\n  {hold:?}", idle / 1_000_000);
                Violation { rule: "a free lock was not taken", at: free, text }
            }));
        }
        let last = before.entry(hold.key).or_insert(hold);
        if hold.done > last.done {
            *last = hold;
        }
    }
    verdict
}

/// The time until which earlier faults excuse a free lock. Dead waiters of a fair lock add their allowance.
fn delayed_until(history: &History, hold: &Hold) -> u64 {
    let dead = if hold.key.starts_with("fair:") { FAIR_WAITERS * FAIR_WAIT_MS * 1_000_000 } else { 0 };
    let until = |window: &Window| {
        let over = match effects::of(window.kind).delay {
            Delay::None => return 0,
            Delay::Reconnect => window.to + RECONNECT_NS,
            Delay::Heartbeat => window.to.min(window.begun + HEARTBEAT_NS) + RECONNECT_NS,
            Delay::Retry => window.to + RETRY_NS,
            Delay::Lease => window.to + history.lease_ns + RETRY_NS,
        };
        over + dead
    };
    let longest = history.lease_ns + RETRY_NS + dead;
    let near = history.windows_between(hold.asked.saturating_sub(longest), hold.start);
    // A waiter may listen at another server than the lock's.
    let concerns = |window: &&Window| window.failover.is_some() || window.concerns(hold.key);
    near.iter().filter(concerns).map(until).max().unwrap_or_default()
}

/// For how long Redisson held a lock in this period without a logged hold: it repeats an acquire whose answer is late, and the
/// repetition counts again.
fn named_java(history: &History, key: &str, from: u64, to: u64) -> u64 {
    let periods = history.named_java.iter().filter(|period| period.key == key);
    periods.map(|period| period.to.min(to).saturating_sub(period.from.max(from))).sum()
}

/// The time by which processes must have recovered from a fault. Dead waiters of a fair lock add their allowance. If the
/// fault leaves requests unanswered, the release of a lock may be lost, so the lock stays held for a lease. A Redisson at the
/// head of a queue may then miss its message too: it waits for a reply that was lost, or is not subscribed to a new master yet.
/// Only the head gets a message, so the next waiter asks again when the lease that it last saw would end. A lock that Redisson
/// holds without knowing it is free only after that.
fn recovery_deadline(history: &History, window: &Window, key: &str, process: Option<&str>) -> u64 {
    let allowed = history.lease_ns + RETRY_NS;
    let dead = if key.starts_with("fair:") { FAIR_WAITERS * FAIR_WAIT_MS * 1_000_000 } else { 0 };
    let stalled = process.map_or(0, |name| stalled(history, name, window.to, window.to + history.lease_ns));
    let with_java = || history.holds.iter().any(|hold| !is_rust(hold));
    let unanswered = effects::of(window.kind).errors.contains(&"Ambiguous");
    let asleep = unanswered && key.starts_with("fair:") && with_java();
    let named = named_java(history, key, window.to, window.to + allowed);
    window.to + allowed + dead + stalled + named + if asleep { history.lease_ns } else { 0 }
}

fn next_fault(history: &History, number: usize) -> u64 {
    history.windows.get(number + 1).map_or(history.stopped, |next| next.from)
}

/// A key, or a group of keys, that must be acquired again after a fault.
pub struct Watched<'a> {
    pub name: String,
    /// The share of the hold that counts; `None` for any.
    share: Option<u64>,
    /// The process that owns the key.
    process: Option<&'a str>,
}

/// How long after a fault the key was acquired.
pub fn progress(history: &History, window: &Window, watched: &Watched) -> Option<u64> {
    let from = history.holds.partition_point(|hold| hold.start < window.to);
    let taken = history.holds[from..].iter().find(|hold| {
        hold.key.starts_with(&watched.name) && watched.share.is_none_or(|share| share == hold.share)
    });
    taken.map(|hold| hold.start - window.to)
}

/// The watched keys of each kind, as prefixes: the values of a group and the generations of a semaphore have many names.
pub fn watched_keys(history: &History) -> Vec<Watched<'_>> {
    let mut watched = Vec::new();
    let mut watch =
        |name: &str, share, process| watched.push(Watched { name: name.to_owned(), share, process });
    for kind in &history.kinds {
        match *kind {
            "reentrant" => {
                for client in &history.clients {
                    let own = format!("own:{}", client.trim_start_matches(char::is_alphabetic));
                    watch(&own, None, Some(*client));
                }
                ["hot:0", "hot:1"].into_iter().for_each(|key| watch(key, None, None));
            }
            "readwrite" => {
                [1, WRITER].into_iter().for_each(|share| watch("readwrite:hot", Some(share), None))
            }
            "multi" => ["multi:0", "multi:1"].into_iter().for_each(|key| watch(key, None, None)),
            // The semaphore that Java shares is left out: Java takes a while to ask again.
            "semaphore" | "expirable" => watch(&format!("{kind}:"), None, None),
            _ => watch(&format!("{kind}:hot"), None, None),
        }
    }
    watched
}

/// Every loss and every failed call has a nearby fault whose listed effects include it. A fixed lease may simply expire.
fn unexplained_failures(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let excused = |process: &str, key: Option<&str>, from: u64, to: u64, may: &dyn Fn(&Effects) -> bool| {
        let near = history.windows_between(from.saturating_sub(history.lease_ns + RETRY_NS), to);
        near.iter().any(|window| {
            window.hits(process)
                && key.is_none_or(|key| window.concerns(key))
                && may(effects::of(window.kind))
        }) || stalled(history, process, from.saturating_sub(history.lease_ns), to) > history.lease_ns / 4
    };
    for hold in history.holds.iter().filter(|hold| is_rust(hold) && hold.is_lost()) {
        if hold.lease_ms > 0 && hold.done > lease_end(hold) {
            continue;
        }
        // A body that `run` cuts off does not learn the reason.
        let reason = hold.last.strip_prefix("Lost-").filter(|reason| *reason != "Run");
        let may = |effects: &Effects| match reason {
            Some(reason) => effects.losses.contains(&reason),
            None if hold.last.starts_with("Lost") => !effects.losses.is_empty(),
            None => effects.losses.contains(&effects::AT_RELEASE),
        };
        let fine = excused(hold.process, Some(hold.key), hold.start, hold.done, &may);
        verdict.judge((!fine).then(|| Violation {
            rule: "lost without a fault that explains it",
            at: hold.end,
            text: format!("{hold:?}"),
        }));
    }
    for call in history.calls.iter().filter(|call| call.outcome.starts_with(|c: char| c.is_uppercase())) {
        if ["Ok", "NotHeld"].contains(&call.outcome) || call.outcome.starts_with("Lost") {
            continue;
        }
        // Timeouts are expected where the limit is too short for the server.
        let stalled = stalled(history, call.process, call.start, call.end);
        let short = call.limit_ms * 1_000_000 < 200_000_000 + call.delayed + stalled;
        let impatient = call.outcome == "TimedOut" && call.limit_ms > 0 && short;
        let may = |effects: &Effects| effects.errors.contains(&call.outcome);
        let fine = impatient || excused(call.process, None, call.start, call.end, &may);
        verdict.judge((!fine).then(|| Violation {
            rule: "failed without a fault that explains it",
            at: call.end,
            text: format!("{call:?}"),
        }));
    }
    verdict
}

/// When a fixed lease ends at the latest. A pipelined hold may begin late in the lease of its record.
fn lease_end(hold: &Hold) -> u64 {
    let full = hold.asked + hold.lease_ms * 1_000_000;
    if hold.left > 0 { full.min(hold.end + hold.left) } else { full }
}

/// No process grows after its warm-up.
fn memory_growth(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut warm: HashMap<(&str, usize), (u64, Option<u64>, u64)> = HashMap::new();
    for beat in &history.beats {
        let entry = warm.entry((beat.process, beat.incarnation)).or_insert((beat.at, None, 0));
        if beat.at > entry.0 + WARM_UP_NS {
            entry.1.get_or_insert(beat.resident_kb);
            entry.2 = beat.resident_kb;
        }
    }
    for ((process, _), (at, warm, last)) in warm {
        let Some(warm) = warm else { continue };
        verdict.judge((last > warm + GROWTH_KB).then(|| {
            let text = format!("{process} grew from {warm} to {last} kB");
            Violation { rule: "memory grows", at, text }
        }));
    }
    verdict
}

/// By its own counters, each process has ended every hold that it began, once, and has seen each of them end.
fn miscounted(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for counted in &history.counted {
        let Counted { process, at, begun, released, lost, unended, left } = *counted;
        verdict.judge((begun == 0 || left > 0 || unended > 0 || begun != released + lost).then(|| {
            let text = format!(
                "{process} began {begun} holds, released {released}, lost {lost}, and did not see {unended} end; {left} holds or calls are left"
            );
            Violation { rule: "counters do not add up", at, text }
        }));
    }
    verdict
}

/// The part of the hold that is certain.
fn certain_part(history: &History, hold: &Hold) -> Option<Hold> {
    if is_certain(history, hold) {
        return Some(hold.clone());
    }
    let part = Hold { end: hold.held, last: "Held", ..hold.clone() };
    (hold.last != "Held" && hold.held > 0 && is_certain(history, &part)).then_some(part)
}

/// Whether a hold is certain, as the head of this file defines it.
///
/// Faults of Redisson itself are not counted. Where one can break a rule for our holds too, the rule applies only up to the
/// fault that may trigger it:
/// - Redisson repeats an unanswered release, and the semaphore gains a permit. So the semaphore that is shared with Java
///   counts until a fault hits Java; then a new one replaces it. A semaphore that only Rust uses counts through all faults.
/// - In Redisson 3.44 to 3.52, a reader that counts 2, after a repeated acquire, frees the lock for everybody. With these
///   versions the holds of a read/write lock count only if no fault hits Java within two leases.
pub fn is_certain(history: &History, hold: &Hold) -> bool {
    let lease = history.lease_ns;
    let near = |window: &Window, by: u64| window.from <= hold.end + by && window.to + by >= hold.start;
    if hold.key.contains("semaphore")
        && let Some(generation) = history.generations.iter().find(|generation| generation.key == hold.key)
        && is_spoilt(history, hold.key, generation.began, hold.end)
    {
        return false;
    }
    let may_be_freed = |window: &Window| near(window, 2 * lease) && window.hits("java");
    if history.java_frees_readers && capacity(hold.key) == WRITER && history.windows.iter().any(may_be_freed)
    {
        return false;
    }
    if is_rust(hold) {
        let blind = if is_pipelined(hold) { lease } else { 0 };
        // The answer may have been in flight while the record was freed. Then the release reports it.
        let since = if hold.is_lost() { hold.asked } else { hold.start };
        let crosses = |window: &Window| {
            let follows = window.lost_at() <= hold.end && window.to + blind >= since;
            window.loses_records && follows && window.affects(hold.key) && !lives_on(window, hold)
        };
        let near = history.windows_between(since.saturating_sub(blind), hold.end);
        return hold.first == "Held" && hold.last == "Held" && !near.iter().any(crosses);
    }
    // A failover affects the requests that Java sent before it. Later requests go to the new master.
    let concerns = |window: &Window| match window.failover {
        Some(_) => window.from <= hold.done && window.to >= hold.asked,
        None => near(window, lease),
    };
    let mut windows = history.windows.iter();
    hold.outcome == "Ok"
        && hold.end < hold.asked.max(hold.start) + lease / 2
        && !windows.any(|window| concerns(window) && window.affects(hold.key) && window.hits(hold.process))
}

/// The hold's record survived the failover. For a pipelined hold the record may be that of its predecessor, so it does not
/// count.
pub fn lives_on(window: &Window, hold: &Hold) -> bool {
    let Some(failover) = &window.failover else { return false };
    hold.start < failover.killed && !is_pipelined(hold) && failover.has_record_of(hold)
}

fn is_reader(hold: &Hold) -> bool {
    capacity(hold.key) == WRITER && hold.share < WRITER
}

/// A plain semaphore's permit has no lease.
pub fn has_lease(hold: &Hold) -> bool {
    !record_of(hold.key).contains("semaphore")
}

pub fn is_rust(hold: &Hold) -> bool {
    hold.first != "Java"
}

/// The hold may be a pipelined hand-off: its process has an odd number, and its kind supports it.
fn is_pipelined(hold: &Hold) -> bool {
    let odd = hold.process.strip_prefix("rust").and_then(|number| number.parse::<u64>().ok());
    let confirmed = ["fair:", "fenced:", "readwrite:", "value:", "group:", "expirable:"];
    odd.is_some_and(|number| number % 2 == 1) && !confirmed.iter().any(|kind| hold.key.starts_with(kind))
}

/// Holds that may have ended in this period. No hold lasts longer than half a minute.
fn around(history: &History, from: u64, to: u64) -> impl Iterator<Item = &Hold> {
    let first = history.holds.partition_point(|hold| hold.start < from.saturating_sub(30_000_000_000));
    history.holds[first..].iter().take_while(move |hold| hold.start < to)
}

/// For how long the machine kept a process from running in this period.
pub fn stalled(history: &History, process: &str, from: u64, to: u64) -> u64 {
    let of = history.stalls.iter().filter(|stall| stall.process == process);
    of.map(|stall| stall.to.min(to).saturating_sub(stall.from.max(from))).sum()
}

/// For how long the machine kept at least one process from running in this period. A hand-over also passes through the
/// server and the proxies, which write no log.
fn machine_stalled(history: &History, from: u64, to: u64) -> u64 {
    let near = history.stalls.iter().map(|stall| (stall.from.max(from), stall.to.min(to)));
    let mut near: Vec<_> = near.filter(|(from, to)| from < to).collect();
    near.sort_unstable();
    let (mut stalled, mut until) = (0, from);
    for (from, to) in near {
        stalled += to.saturating_sub(from.max(until));
        until = until.max(to);
    }
    stalled
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
