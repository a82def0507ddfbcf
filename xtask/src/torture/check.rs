//! The rules by which a history is judged. Each is a function of the history alone, and each is shown to fail on a bad
//! one below.
//!
//! A hold is *certain* from its start to the last time at which its state was read as held: it never comes back from being
//! lost, so it was held all the time between. Of a Java hold nothing is told: it is taken for certain only if no fault that could
//! concern it came within a lease of it. The Rust processes of odd number hand on pipelined: of holds that follow a record
//! which is gone, they tell only the one that is current when that is found out, at most a lease later.
//!
//! Redisson's own faults are not ours. Where one can break a rule for our holds, too, this is judged only up to the fault
//! that may bring it about:
//! - It sends a release again whose answer it did not get, and a semaphore then has a permit more. So the semaphore that
//!   Java uses, too, counts until a fault hits Java; then there is another. Ours alone counts through all faults.
//! - A Redisson of 3.44 to 3.52 whose reader counts 2, after an acquire that it sent again, frees the lock for everybody.
//!   There the holds of a read/write lock count where no fault that hits Java came within two leases.

use std::collections::HashMap;

use super::effects::{self, Delay, Effects};
use super::history::{History, Hold, Permits, Window, record_of};
use super::keys::{FAIR_WAIT_MS, PERMITS, WRITER, capacity, is_held_for_long};

/// What a call may take beyond its limit, as promised; then there is what the machine kept the process from running.
const MARGIN_NS: u64 = 50_000_000;
/// How long a free lock may stay untaken while somebody waits: a spin lock's waiter looks every 128 ms at least.
const IDLE_NS: u64 = 200_000_000;
/// What a client needs to connect and subscribe again at a server that is there.
const RECONNECT_NS: u64 = 500_000_000;
/// After so long without an answer a client ends its connection: a heartbeat is sent after 250 ms, and waits for the client's
/// response timeout of 1 s.
const HEARTBEAT_NS: u64 = 1_250_000_000;
/// What a client needs to find a server that is there again: an attempt to connect that still hangs, and a pause.
pub const RETRY_NS: u64 = 1_500_000_000;
/// A signal and a proxy take effect not quite at once.
const EFFECT_NS: u64 = 10_000_000;
/// What a process may grow by after it has warmed up.
const GROWTH_KB: u64 = 16 * 1024;
const WARM_UP_NS: u64 = 20_000_000_000;
/// Tasks that a killed process or runtime leaves behind in a fair lock's queue: each may count for its allowance.
const FAIR_WAITERS: u64 = 2;

#[derive(Debug)]
pub struct Violation {
    pub rule: &'static str,
    /// Where to look for the fault.
    pub at: u64,
    pub text: String,
}

/// The outcome of one rule.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How often the rule applied.
    pub judged: usize,
    pub found: Vec<Violation>,
}

impl Verdict {
    /// The rule applied once.
    pub fn judge(&mut self, violation: Option<Violation>) {
        self.judged += 1;
        self.found.extend(violation);
    }
}

/// A rule, and what a campaign must have for it to apply.
pub struct Rule {
    pub name: &'static str,
    pub judge: fn(&History) -> Verdict,
    pub needs: fn(&History) -> bool,
}

const RULES: [Rule; 14] = [
    Rule { name: "certain holds do not overlap", judge: overlaps, needs: |_| true },
    Rule { name: "no write is overwritten", judge: overwritten, needs: |_| true },
    Rule { name: "calls end on time", judge: late_calls, needs: |_| true },
    Rule { name: "a loss is told by the deadline", judge: late_news, needs: |_| true },
    Rule { name: "nobody holds in a silence", judge: held_in_silence, needs: is_dark },
    Rule {
        name: "holders learn of a reset",
        judge: lived_through_a_reset,
        needs: |history| has(history, |window| window.resets),
    },
    Rule {
        name: "locks are taken after a fault",
        judge: no_progress,
        needs: |history| has(history, |window| window.failover.is_none()),
    },
    Rule {
        name: "nobody waits on after a fault",
        judge: waited_too_long,
        needs: |history| has(history, |window| window.failover.is_none()),
    },
    Rule { name: "a free lock is taken by its waiters", judge: idle_while_wanted, needs: |_| true },
    Rule {
        name: "a reader sees no write",
        judge: changed_under_a_reader,
        needs: |history| history.kinds.contains(&"readwrite"),
    },
    Rule { name: "tokens rise", judge: tokens_fall, needs: |history| history.kinds.contains(&"fenced") },
    Rule {
        name: "permits add up",
        judge: permits_add_up,
        needs: |history| ["semaphore", "expirable"].iter().any(|kind| history.kinds.contains(kind)),
    },
    Rule {
        name: "a fault does no harm but its own",
        judge: out_of_the_blue,
        needs: |history| has(history, |_| true),
    },
    Rule { name: "memory does not grow", judge: growth, needs: |history| history.stopped > 2 * WARM_UP_NS },
];

/// There was a silence that outlasts a lease.
fn is_dark(history: &History) -> bool {
    let dark = |window: &Window| window.silent && window.ending > window.begun + EFFECT_NS + history.lease_ns;
    history.windows.iter().any(dark)
}

fn has(history: &History, which: fn(&Window) -> bool) -> bool {
    history.windows.iter().any(which)
}

/// What the rules say of a history.
#[derive(Default)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    /// How often each rule applied, and how often it was broken.
    pub counts: Vec<(&'static str, usize, usize)>,
    /// The rules that never applied, though the campaign had all that they need, and the kinds of fault that none applied to.
    pub unjudged: Vec<&'static str>,
}

impl Judgement {
    pub fn is_well(&self) -> bool {
        self.violations.is_empty() && self.unjudged.is_empty()
    }

    pub fn add(&mut self, rules: &[Rule], history: &History) {
        for rule in rules {
            let Verdict { judged, found } = (rule.judge)(history);
            self.counts.push((rule.name, judged, found.len()));
            if judged == 0 && (rule.needs)(history) {
                self.unjudged.push(rule.name);
            }
            self.violations.extend(found);
        }
    }
}

/// Judges a history by all rules of this page.
pub fn judge(history: &History) -> Judgement {
    let mut judgement = Judgement::default();
    judgement.add(&RULES, history);
    judgement
}

/// Certain holds of one key at one time do not take more than it has, within one life of the server's data: one hold is all
/// there is, or so many permits, or readers beside each other, but none beside a writer. A hold that was lost later counts
/// until it was last seen held, be that its start alone.
fn overlaps(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut live: HashMap<&str, Vec<Hold>> = HashMap::new();
    for hold in history.holds.iter().filter_map(|hold| certain_part(history, hold)) {
        let beside = live.entry(hold.key).or_default();
        beside.retain(|other| other.end > hold.start);
        let taken = beside.iter().map(|other| other.share).sum::<u64>() + hold.share;
        verdict.judge((taken > capacity(hold.key)).then(|| {
            let text: Vec<_> = beside.iter().chain([&hold]).map(|hold| format!("{hold:?}")).collect();
            let rule = match capacity(hold.key) {
                1 => "two held one key",
                WRITER => "a writer was not alone",
                _ => "more held permits than there are",
            };
            Violation { rule, at: hold.start, text: text.join("\n  ") }
        }));
        beside.push(hold);
    }
    verdict
}

/// No write of a certain hold is overwritten by another that has not read it. Every write is of a number of its own, so
/// two that read the same one did not see each other.
fn overwritten(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut readers: HashMap<(&str, u64), &Hold> = HashMap::new();
    let certain = history.holds.iter().filter(|hold| is_certain(history, hold));
    for hold in certain.filter(|hold| hold.read != hold.written && !is_reader(hold)) {
        let before = readers.insert((hold.key, hold.read), hold);
        verdict.judge(before.map(|before| {
            let text = format!("{before:?}\n  {hold:?}");
            Violation { rule: "a write was overwritten", at: hold.start, text }
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
            rule: "a call ended too late",
            at: call.start,
            text: format!("{call:?}"),
        }));
    }
    verdict
}

/// What a certain reader sees is written by no certain hold while it reads. One that was told to be lost may still have
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
            Violation { rule: "a reader saw a write", at: reader.end, text }
        }));
    }
    verdict
}

/// Within one life of the data, whoever asks when another has its token gets a greater one; and so does each certain hold
/// after another. A force-unlock keeps the last token.
fn tokens_fall(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut lives: Vec<u64> = history
        .windows
        .iter()
        .filter(|window| window.resets && window.keys.is_empty())
        .map(|window| window.to)
        .collect();
    lives.insert(0, 0);
    let mut holds: HashMap<(&str, usize), Vec<&Hold>> = HashMap::new();
    for hold in history.holds.iter().filter(|hold| hold.token > 0) {
        let life = lives.partition_point(|began| *began <= hold.asked);
        // It may have got its token in the life before or after that in which it asked.
        if lives.get(life).is_none_or(|next| hold.start < *next) && !resets_near(history, hold) {
            holds.entry((hold.key, life)).or_default().push(hold);
        }
    }
    for holds in holds.values() {
        let mut by_start = holds.iter().peekable();
        let mut greatest: Option<&Hold> = None;
        let mut by_asking = holds.clone();
        by_asking.sort_by_key(|hold| hold.asked);
        let fell = |before: &Hold, hold: &Hold| {
            let text = format!("{before:?}\n  {hold:?}");
            Violation { rule: "a token did not rise", at: hold.start, text }
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
            // Else it was found above.
            if pair[0].start >= pair[1].asked {
                verdict.judge((pair[0].token >= pair[1].token).then(|| fell(pair[0], pair[1])));
            }
        }
    }
    verdict
}

/// While it asked and was answered, all data were lost.
fn resets_near(history: &History, hold: &Hold) -> bool {
    let all = history.windows.iter().filter(|window| window.resets && window.keys.is_empty());
    all.into_iter().any(|window| window.from <= hold.start && window.to >= hold.asked)
}

/// No permit comes from nowhere, and in the end all are there of a semaphore that no fault could take any from.
fn permits_add_up(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for Permits { key, free } in &history.permits {
        let all = i64::from(PERMITS);
        let era = history.eras.iter().find(|era| era.key == *key);
        let whole = era.is_some_and(|era| !is_spoilt(history, key, era.began, u64::MAX));
        // The new master may lack an acquire that nobody made sure of, and have its release.
        let lost = history.windows.iter().any(|window| window.resets && window.failover.is_some());
        let rule = if *free > all && (whole || !key.starts_with("java") && !lost) {
            Some("permits came from nowhere")
        } else {
            (*free < all && whole).then_some("permits are gone")
        };
        verdict.judge(rule.map(|rule| {
            let text = format!("{key} has {free} permits");
            Violation { rule, at: history.stopped, text }
        }));
    }
    let present = |era: &&super::history::Era| history.permits.iter().any(|permits| permits.key == era.key);
    for era in history.eras.iter().filter(|era| !present(era)) {
        verdict.judge((!is_spoilt(history, &era.key, era.began, u64::MAX)).then(|| {
            let text = format!("{} is gone", era.key);
            Violation { rule: "permits are gone", at: history.stopped, text }
        }));
    }
    verdict
}

/// Whether a fault between two times may have taken permits away for good, or brought some.
fn is_spoilt(history: &History, semaphore: &str, from: u64, to: u64) -> bool {
    let between = |window: &&Window| window.from >= from && window.from <= to;
    history.windows.iter().filter(between).any(|window| window.spoils(semaphore))
}

/// A loss is told no later than the deadline, and no state is live after it.
fn late_news(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for hold in history.holds.iter().filter(|hold| is_rust(hold)) {
        let told = if hold.lost > 0 { hold.lost } else { hold.end };
        let late = if hold.deadline > 0 { told.saturating_sub(hold.deadline) } else { 0 };
        let dead = hold.left == 0 && !hold.last.starts_with("Lost");
        let allowed = || MARGIN_NS + hold.delayed + stalled(history, hold.process, hold.deadline, told);
        let rule = if dead && hold.last != "Released" {
            Some("live after its deadline")
        } else if dead && late > 0 && hold.lost == 0 {
            Some("lost, and not told")
        } else {
            (hold.lost > 0 && late > 0 && late > allowed()).then_some("told too late that it is lost")
        };
        verdict.judge(rule.map(|rule| Violation { rule, at: hold.end, text: format!("{hold:?}") }));
    }
    verdict
}

/// A lease after the server fell silent nobody believes to hold anything, until it is back. This is judged by the fault
/// alone, and not by the deadline that the library tells.
fn held_in_silence(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for window in history.windows.iter().filter(|window| window.silent) {
        let dark = window.begun + EFFECT_NS + history.lease_ns..window.ending;
        for hold in around(history, window.begun, dark.end).filter(|_| !dark.is_empty()) {
            let concerned =
                is_rust(hold) && has_lease(hold) && window.hits(hold.process) && window.is_about(hold.key);
            if concerned && hold.end > window.begun {
                let held = dark.contains(&hold.end) && ["Held", "Suspect"].contains(&hold.last);
                verdict.judge(held.then(|| {
                    let text = format!("{}: {hold:?}", window.kind);
                    Violation { rule: "held in silence", at: hold.end, text }
                }));
            }
        }
    }
    verdict
}

/// Whoever held a record that was lost or freed is told within a lease.
fn lived_through_a_reset(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for window in history.windows.iter().filter(|window| window.resets) {
        for hold in around(history, window.from, window.to + 2 * history.lease_ns) {
            let crossed = hold.start < window.lost_at()
                && hold.end > window.to
                && window.took(hold.key)
                && window.failover.as_ref().is_none_or(|failover| !failover.keeps(hold));
            if crossed && is_rust(hold) && has_lease(hold) {
                let late = hold.end > window.to + history.lease_ns + EFFECT_NS;
                verdict.judge((late && !hold.last.starts_with("Lost")).then(|| {
                    let text = format!("{}: {hold:?}", window.kind);
                    Violation { rule: "held what was freed", at: hold.end, text }
                }));
            }
        }
    }
    verdict
}

/// After a fault, unless the next one is too soon, the hot keys of every kind are taken within a lease and a retry, and every
/// client takes the key that is its own.
fn no_progress(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (number, window) in history.windows.iter().enumerate() {
        for watched in watched_keys(history) {
            let Watched { name, process, .. } = &watched;
            let until = patience(history, window, name, *process);
            if until < next_fault(history, number) {
                let took = progress(history, window, &watched);
                verdict.judge(took.is_none_or(|took| window.to + took > until).then(|| {
                    let text =
                        format!("{name} was not taken within a lease and a retry after {}", window.kind);
                    Violation { rule: "no progress", at: window.to, text }
                }));
            }
        }
    }
    verdict
}

/// Whether the time after a fault was long enough to see that things go on.
pub fn is_judged(history: &History, number: usize) -> bool {
    let window = &history.windows[number];
    window.to + history.lease_ns + RETRY_NS < next_fault(history, number)
}

/// Nobody who waits when a fault is over waits for longer than a lease and a retry, if the next fault leaves the time: where
/// there are places in a queue, of a client or in the record. Some wait for holders who come and go, and are left out: a writer for
/// readers, several locks or several values of a group for each other's holders, and whoever wants what is held for longer than a
/// lease.
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
            let until = patience(history, window, hold.key, Some(hold.process));
            verdict.judge((hold.start > until && until < next).then(|| {
                let text = format!("{}: {hold:?}", window.kind);
                Violation { rule: "waited too long", at: window.to, text }
            }));
        }
    }
    verdict
}

/// Whether a hold was taken together with others: its values of a group have a line each, with the same times.
fn is_of_several_values(history: &History, hold: &Hold) -> bool {
    let first = history.holds.partition_point(|other| other.start < hold.start);
    let at_once = history.holds[first..].iter().take_while(|other| other.start == hold.start);
    let mut values = at_once.filter(|other| (other.owner, other.asked) == (hold.owner, hold.asked));
    hold.key.starts_with("group:") && values.any(|other| other.key != hold.key)
}

/// A lock that nobody holds is taken at once by those who wait for it, at any time of the campaign, unless a fault is near that
/// delays a wake-up or leaves a hold behind. Judged by the next hold. Its task waited before the lock was free; or the lock is one
/// of those that are wanted for a moment, and then it was free from when it was asked for. A waiter may wait for another of several
/// locks or values, so these are left out, as are readers and permits, which are beside each other, and a fair lock beside Java,
/// where the turn may be that of a thread which its JVM has not woken yet.
fn idle_while_wanted(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut before: HashMap<&str, &Hold> = HashMap::new();
    let beside_java = history.holds.iter().any(|hold| !is_rust(hold));
    for hold in &history.holds {
        let others_first = beside_java && hold.key.starts_with("fair:");
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
            // Few are idle for long, and to look for excuses takes time.
            let allowed = IDLE_NS + MARGIN_NS;
            let idle = || {
                let free = free.max(delayed_until(history, hold, beside_java));
                let idle = hold.start.saturating_sub(free);
                let late = idle > allowed && idle > allowed + machine_stalled(history, free, hold.start);
                late.then_some(idle)
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

/// Until when faults before a hold excuse that its lock stays free. An acquire that Redisson sends again counts twice, so a
/// fault that hits it may leave a lock taken for a lease. A fair lock's dead waiters count, too.
fn delayed_until(history: &History, hold: &Hold, beside_java: bool) -> u64 {
    let dead = if hold.key.starts_with("fair:") { FAIR_WAITERS * FAIR_WAIT_MS * 1_000_000 } else { 0 };
    let until = |window: &Window| {
        let delay = match effects::of(window.kind).delay {
            Delay::None => return 0,
            _ if beside_java && window.hits("java") => Delay::Lease,
            delay => delay,
        };
        let over = match delay {
            Delay::None => window.to,
            Delay::Reconnect => window.to + RECONNECT_NS,
            Delay::Heartbeat => window.to.min(window.begun + HEARTBEAT_NS) + RECONNECT_NS,
            Delay::Retry => window.to + RETRY_NS,
            Delay::Lease => window.to + history.lease_ns + RETRY_NS,
        };
        over + dead
    };
    let longest = history.lease_ns + RETRY_NS + dead;
    let near = history.windows_between(hold.asked.saturating_sub(longest), hold.start);
    // Messages may be heard at a server that the lock is not at.
    let concerns = |window: &&Window| window.failover.is_some() || window.concerns(hold.key);
    near.iter().filter(concerns).map(until).max().unwrap_or_default()
}

/// Until when things must go on after a fault. For a fair lock its dead waiters count, too. After a failover a lock may first
/// stay taken for a lease, by a release that the new master lacks; and a Redisson that is the first in a queue and missed its
/// message, because it did not listen at the new master yet, asks again when the next lease would end.
fn patience(history: &History, window: &Window, key: &str, process: Option<&str>) -> u64 {
    let allowed = history.lease_ns + RETRY_NS;
    let dead = if key.starts_with("fair:") { FAIR_WAITERS * FAIR_WAIT_MS * 1_000_000 } else { 0 };
    let stalled = process.map_or(0, |name| stalled(history, name, window.to, window.to + history.lease_ns));
    let beside_java = || history.holds.iter().any(|hold| !is_rust(hold));
    let asleep = window.failover.is_some() && key.starts_with("fair:") && beside_java();
    window.to + allowed + dead + stalled + if asleep { history.lease_ns } else { 0 }
}

fn next_fault(history: &History, number: usize) -> u64 {
    history.windows.get(number + 1).map_or(history.stopped, |next| next.from)
}

/// What must go on being taken.
pub struct Watched<'a> {
    pub name: String,
    /// How much of it; `None` for anything.
    share: Option<u64>,
    /// Whose it is.
    process: Option<&'a str>,
}

/// How long after a fault the key was taken.
pub fn progress(history: &History, window: &Window, watched: &Watched) -> Option<u64> {
    let from = history.holds.partition_point(|hold| hold.start < window.to);
    let taken = history.holds[from..].iter().find(|hold| {
        hold.key.starts_with(&watched.name) && watched.share.is_none_or(|share| share == hold.share)
    });
    taken.map(|hold| hold.start - window.to)
}

/// The keys of a kind by their beginnings: those of values of a group, and of eras of a semaphore, go by many names.
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
            // Not by Java's hands: it takes a while until it asks again.
            "semaphore" | "expirable" => watch(&format!("{kind}:"), None, None),
            _ => watch(&format!("{kind}:hot"), None, None),
        }
    }
    watched
}

/// No hold is lost and no call fails without a fault nearby that lists this loss or this error among its effects. A fixed lease
/// may run out.
fn out_of_the_blue(history: &History) -> Verdict {
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
        let ran_out = hold.lease_ms > 0 && hold.done > hold.asked + hold.lease_ms * 1_000_000;
        if ran_out {
            continue;
        }
        // A body that was cut off is not told why.
        let reason = hold.last.strip_prefix("Lost-").filter(|reason| *reason != "Run");
        let may = |effects: &Effects| match reason {
            Some(reason) => effects.losses.contains(&reason),
            None if hold.last.starts_with("Lost") => !effects.losses.is_empty(),
            None => effects.losses.contains(&effects::AT_RELEASE),
        };
        let fine = excused(hold.process, Some(hold.key), hold.start, hold.done, &may);
        verdict.judge((!fine).then(|| Violation {
            rule: "lost without a fault",
            at: hold.end,
            text: format!("{hold:?}"),
        }));
    }
    for call in history.calls.iter().filter(|call| call.outcome.starts_with(|c: char| c.is_uppercase())) {
        if ["Ok", "Lost", "NotHeld"].contains(&call.outcome) {
            continue;
        }
        // Those that end as they should when the server is too slow for them.
        let stalled = stalled(history, call.process, call.start, call.end);
        let short = call.limit_ms * 1_000_000 < 200_000_000 + call.delayed + stalled;
        let impatient = call.outcome == "TimedOut" && call.limit_ms > 0 && short;
        let may = |effects: &Effects| effects.errors.contains(&call.outcome);
        let fine = impatient || excused(call.process, None, call.start, call.end, &may);
        verdict.judge((!fine).then(|| Violation {
            rule: "failed without a fault",
            at: call.end,
            text: format!("{call:?}"),
        }));
    }
    verdict
}

/// No process grows after its warm-up.
fn growth(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    let mut warm: HashMap<(&str, usize), (u64, Option<u64>, u64)> = HashMap::new();
    for beat in &history.beats {
        let entry = warm.entry((beat.process, beat.life)).or_insert((beat.at, None, 0));
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

/// The hold, as long as it is certain.
fn certain_part(history: &History, hold: &Hold) -> Option<Hold> {
    if is_certain(history, hold) {
        return Some(hold.clone());
    }
    let part = Hold { end: hold.held, last: "Held", ..hold.clone() };
    (hold.last != "Held" && hold.held > 0 && is_certain(history, &part)).then_some(part)
}

pub fn is_certain(history: &History, hold: &Hold) -> bool {
    let lease = history.lease_ns;
    let near = |window: &Window, by: u64| window.from <= hold.end + by && window.to + by >= hold.start;
    if hold.key.contains("semaphore")
        && let Some(era) = history.eras.iter().find(|era| era.key == hold.key)
        && is_spoilt(history, hold.key, era.began, hold.end)
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
        // The answer that told of it may have been on its way while the record was freed; then its release is told so.
        let told = if hold.is_lost() { hold.asked } else { hold.start };
        let crosses = |window: &Window| {
            let follows = window.lost_at() <= hold.end && window.to + blind >= told;
            window.resets && follows && window.is_about(hold.key) && !lives_on(window, hold)
        };
        let near = history.windows_between(told.saturating_sub(blind), hold.end);
        return hold.first == "Held" && hold.last == "Held" && !near.iter().any(crosses);
    }
    // A failover ends what Java had asked of the server before; what it asks for after that it gets of the new one.
    let concerns = |window: &Window| match window.failover {
        Some(_) => window.from <= hold.done && window.to >= hold.asked,
        None => near(window, lease),
    };
    let mut windows = history.windows.iter();
    hold.outcome == "Ok"
        && hold.end < hold.asked.max(hold.start) + lease / 2
        && !windows.any(|window| concerns(window) && window.is_about(hold.key) && window.hits(hold.process))
}

/// A failover left it its record. (Of what is pipelined the record may be that of the hold before.)
pub fn lives_on(window: &Window, hold: &Hold) -> bool {
    let Some(failover) = &window.failover else { return false };
    hold.start < failover.killed && !is_pipelined(hold) && failover.keeps(hold)
}

fn is_reader(hold: &Hold) -> bool {
    capacity(hold.key) == WRITER && hold.share < WRITER
}

/// A permit of a plain semaphore has none.
pub fn has_lease(hold: &Hold) -> bool {
    !record_of(hold.key).contains("semaphore")
}

pub fn is_rust(hold: &Hold) -> bool {
    hold.first != "Java"
}

/// Handed on by a process of odd number, and of a kind that may be.
fn is_pipelined(hold: &Hold) -> bool {
    let odd = hold.process.strip_prefix("rust").and_then(|number| number.parse::<u64>().ok());
    let confirmed = ["fair:", "fenced:", "readwrite:", "value:", "group:", "expirable:"];
    odd.is_some_and(|number| number % 2 == 1) && !confirmed.iter().any(|kind| hold.key.starts_with(kind))
}

/// Holds that may have ended between two times: none lasts longer than half a minute.
fn around(history: &History, from: u64, to: u64) -> impl Iterator<Item = &Hold> {
    let first = history.holds.partition_point(|hold| hold.start < from.saturating_sub(30_000_000_000));
    history.holds[first..].iter().take_while(move |hold| hold.start < to)
}

/// How long a process was kept from running between two times.
pub fn stalled(history: &History, process: &str, from: u64, to: u64) -> u64 {
    let of = history.stalls.iter().filter(|stall| stall.process == process);
    of.map(|stall| stall.to.min(to).saturating_sub(stall.from.max(from))).sum()
}

/// How long between two times the machine kept at least one process from running. A hand-over passes through the server and the
/// proxies, too, which have no log.
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
