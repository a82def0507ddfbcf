//! The rules by which a history is judged. Each is a function of the history alone, and each is shown to fail on a bad
//! one below.
//!
//! A hold is *certain* if it was told to be held when it began and when it ended: it never comes back from being lost, so
//! it was held all the time between. Of a Java hold nothing is told: it is taken for certain only if no fault that could
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

use super::history::{History, Hold, Permits, Window, record_of};
use super::keys::{FAIR_WAIT_MS, PERMITS, WRITER, capacity};

/// What a call may take beyond its limit, as promised; then there is what the machine kept the process from running.
const MARGIN_NS: u64 = 50_000_000;
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

/// All that is wrong with a history.
pub fn judge(history: &History) -> Vec<Violation> {
    let rules = [
        overlaps,
        overwritten,
        late_calls,
        late_news,
        held_in_silence,
        lived_through_a_reset,
        no_progress,
        waited_too_long,
        changed_under_a_reader,
        tokens_fall,
        permits_add_up,
        out_of_the_blue,
        growth,
    ];
    rules.iter().flat_map(|rule| rule(history)).collect()
}

/// Certain holds of one key at one time do not take more than it has, within one life of the server's data: one hold is all
/// there is, or so many permits, or readers beside each other, but none beside a writer.
fn overlaps(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut live: HashMap<&str, Vec<&Hold>> = HashMap::new();
    for hold in history.holds.iter().filter(|hold| is_certain(history, hold)) {
        let beside = live.entry(hold.key).or_default();
        beside.retain(|other| other.end > hold.start);
        if beside.iter().map(|other| other.share).sum::<u64>() + hold.share > capacity(hold.key) {
            let text: Vec<_> = beside.iter().chain([&hold]).map(|hold| format!("{hold:?}")).collect();
            let rule = match capacity(hold.key) {
                1 => "two held one key",
                WRITER => "a writer was not alone",
                _ => "more held permits than there are",
            };
            found.push(Violation { rule, at: hold.start, text: text.join("\n  ") });
        }
        beside.push(hold);
    }
    found
}

/// No write of a certain hold is overwritten by another that has not read it. Every write is of a number of its own, so
/// two that read the same one did not see each other.
fn overwritten(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut readers: HashMap<(&str, u64), &Hold> = HashMap::new();
    let certain = history.holds.iter().filter(|hold| is_certain(history, hold));
    for hold in certain.filter(|hold| hold.read != hold.written && !is_reader(hold)) {
        if let Some(before) = readers.insert((hold.key, hold.read), hold) {
            let text = format!("{before:?}\n  {hold:?}");
            found.push(Violation { rule: "a write was overwritten", at: hold.start, text });
        }
    }
    found
}

fn late_calls(history: &History) -> Vec<Violation> {
    let late = |took: u64, limit_ms: u64, stalled: u64| took > limit_ms * 1_000_000 + MARGIN_NS + stalled;
    let limited = history.calls.iter().filter(|call| call.limit_ms > 0);
    limited
        .filter(|call| {
            late(
                call.end - call.start,
                call.limit_ms,
                stalled(history, call.process, call.start, call.end) + call.delayed,
            )
        })
        .map(|call| Violation { rule: "a call ended too late", at: call.start, text: format!("{call:?}") })
        .collect()
}

/// What a certain reader sees is written by no certain hold while it reads. One that was told to be lost may still have
/// written.
fn changed_under_a_reader(history: &History) -> Vec<Violation> {
    let certain = || history.holds.iter().filter(|hold| is_certain(history, hold));
    let writes = certain().filter(|hold| !is_reader(hold) && capacity(hold.key) == WRITER);
    let writers: HashMap<u64, &Hold> = writes.map(|hold| (hold.written, hold)).collect();
    let changed = certain().filter(|hold| is_reader(hold) && hold.read != hold.written);
    changed
        .filter_map(|reader| Some((reader, writers.get(&reader.written)?)))
        .map(|(reader, writer)| {
            let text = format!("{reader:?}\n  {writer:?}");
            Violation { rule: "a reader saw a write", at: reader.end, text }
        })
        .collect()
}

/// Within one life of the data, whoever asks when another has its token gets a greater one; and so does each certain hold
/// after another. A force-unlock keeps the last token.
fn tokens_fall(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
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
        let mut wrong = |before: &Hold, hold: &Hold| {
            let text = format!("{before:?}\n  {hold:?}");
            found.push(Violation { rule: "a token did not rise", at: hold.start, text });
        };
        for hold in by_asking {
            while let Some(before) = by_start.next_if(|before| before.start < hold.asked) {
                greatest = greatest.into_iter().chain([*before]).max_by_key(|hold| hold.token);
            }
            if let Some(before) = greatest.filter(|before| before.token >= hold.token) {
                wrong(before, hold);
            }
        }
        let certain: Vec<_> = holds.iter().filter(|hold| is_certain(history, hold)).collect();
        for pair in certain.windows(2) {
            // Else it was found above.
            if pair[0].token >= pair[1].token && pair[0].start >= pair[1].asked {
                wrong(pair[0], pair[1]);
            }
        }
    }
    found
}

/// While it asked and was answered, all data were lost.
fn resets_near(history: &History, hold: &Hold) -> bool {
    let all = history.windows.iter().filter(|window| window.resets && window.keys.is_empty());
    all.into_iter().any(|window| window.from <= hold.start && window.to >= hold.asked)
}

/// No permit comes from nowhere, and in the end all are there of a semaphore that no fault could take any from.
fn permits_add_up(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for Permits { key, free } in &history.permits {
        let all = i64::from(PERMITS);
        let era = history.eras.iter().find(|era| era.key == *key);
        let whole = era.is_some_and(|era| !is_spoilt(history, key, era.began, u64::MAX));
        // The new master may lack an acquire that nobody made sure of, and have its release.
        let lost = history.windows.iter().any(|window| window.resets && window.failover.is_some());
        if *free > all && (whole || !key.starts_with("java") && !lost) {
            let text = format!("{key} has {free} permits");
            found.push(Violation { rule: "permits came from nowhere", at: history.stopped, text });
        } else if *free < all && whole {
            let text = format!("{key} has {free} permits");
            found.push(Violation { rule: "permits are gone", at: history.stopped, text });
        }
    }
    let present = |era: &&super::history::Era| history.permits.iter().any(|permits| permits.key == era.key);
    for era in history.eras.iter().filter(|era| !present(era)) {
        if !is_spoilt(history, &era.key, era.began, u64::MAX) {
            let text = format!("{} is gone", era.key);
            found.push(Violation { rule: "permits are gone", at: history.stopped, text });
        }
    }
    found
}

/// Whether a fault between two times may have taken permits away for good, or brought some.
fn is_spoilt(history: &History, semaphore: &str, from: u64, to: u64) -> bool {
    let between = |window: &&Window| window.from >= from && window.from <= to;
    history.windows.iter().filter(between).any(|window| window.spoils(semaphore))
}

/// A loss is told no later than the deadline, and no state is live after it.
fn late_news(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for hold in history.holds.iter().filter(|hold| is_rust(hold)) {
        let mut wrong = |rule| found.push(Violation { rule, at: hold.end, text: format!("{hold:?}") });
        if hold.left == 0 && !hold.last.starts_with("Lost") && hold.last != "Released" {
            wrong("live after its deadline");
        }
        let told = if hold.lost > 0 { hold.lost } else { hold.end };
        if hold.deadline > 0 && told > hold.deadline {
            let late = told - hold.deadline;
            if hold.lost == 0 && !hold.last.starts_with("Lost") && hold.left == 0 {
                wrong("lost, and not told");
            }
            if hold.lost > 0
                && late > MARGIN_NS + hold.delayed + stalled(history, hold.process, hold.deadline, told)
            {
                wrong("told too late that it is lost");
            }
        }
    }
    found
}

/// A lease after the server fell silent nobody believes to hold anything, until it is back. This is judged by the fault
/// alone, and not by the deadline that the library tells.
fn held_in_silence(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for window in history.windows.iter().filter(|window| window.silent) {
        let dark = window.begun + EFFECT_NS + history.lease_ns..window.ending;
        for hold in around(history, dark.start, dark.end) {
            if is_rust(hold)
                && has_lease(hold)
                && window.hits(hold.process)
                && window.is_about(hold.key)
                && dark.contains(&hold.end)
                && ["Held", "Suspect"].contains(&hold.last)
            {
                let text = format!("{}: {hold:?}", window.kind);
                found.push(Violation { rule: "held in silence", at: hold.end, text });
            }
        }
    }
    found
}

/// Whoever held a record that was lost or freed is told within a lease.
fn lived_through_a_reset(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for window in history.windows.iter().filter(|window| window.resets) {
        for hold in around(history, window.from, window.to + 2 * history.lease_ns) {
            let lived = hold.start < window.lost_at()
                && hold.end > window.to + history.lease_ns + EFFECT_NS
                && window.took(hold.key)
                && window.failover.as_ref().is_none_or(|failover| !failover.keeps(hold));
            if lived && is_rust(hold) && has_lease(hold) && !hold.last.starts_with("Lost") {
                let text = format!("{}: {hold:?}", window.kind);
                found.push(Violation { rule: "held what was freed", at: hold.end, text });
            }
        }
    }
    found
}

/// After a fault, unless the next one is too soon, the hot keys of every kind are taken within a lease and a retry, and every
/// client takes the key that is its own.
fn no_progress(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, window) in history.windows.iter().enumerate() {
        for watched in watched_keys(history) {
            let Watched { name, process, .. } = &watched;
            let until = patience(history, window, name, *process);
            let next = next_fault(history, number);
            if until < next && progress(history, window, &watched).is_none_or(|took| window.to + took > until)
            {
                let text = format!("{name} was not taken within a lease and a retry after {}", window.kind);
                found.push(Violation { rule: "no progress", at: window.to, text });
            }
        }
    }
    found
}

/// Nobody who waits when a fault is over waits for longer than a lease and a retry, if the next fault leaves the time: where
/// there are places in a queue, of a client or in the record. A writer may wait for readers who come and go, and several
/// locks for each other's holders.
fn waited_too_long(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, window) in history.windows.iter().enumerate() {
        let (over, next) = (window.to + history.lease_ns + RETRY_NS, next_fault(history, number));
        let late = history.holds.partition_point(|hold| hold.start <= over);
        let late = history.holds[late..].iter().take_while(|hold| hold.start < over + 60_000_000_000);
        let waited =
            late.filter(|hold| over < next && hold.asked < window.to && is_rust(hold)).filter(|hold| {
                let until = patience(history, window, hold.key, Some(hold.process));
                hold.start > until && until < next
            });
        for hold in waited.filter(|hold| hold.share < WRITER && !hold.key.starts_with("multi:")) {
            let text = format!("{}: {hold:?}", window.kind);
            found.push(Violation { rule: "waited too long", at: window.to, text });
        }
    }
    found
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

/// No hold is lost and no call fails without a fault that could be why. A fixed lease may run out.
fn out_of_the_blue(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let excused = |process: &str, key: Option<&str>, from: u64, to: u64| {
        history.windows.iter().any(|window| {
            window.hits(process)
                && key.is_none_or(|key| window.concerns(key))
                && window.from <= to
                && window.to + history.lease_ns + RETRY_NS >= from
        }) || stalled(history, process, from.saturating_sub(history.lease_ns), to) > history.lease_ns / 4
    };
    for hold in history.holds.iter().filter(|hold| is_rust(hold) && hold.is_lost()) {
        let ran_out = hold.lease_ms > 0 && hold.done > hold.asked + hold.lease_ms * 1_000_000;
        if !ran_out && !excused(hold.process, Some(hold.key), hold.start, hold.done) {
            let rule = "lost without a fault";
            found.push(Violation { rule, at: hold.end, text: format!("{hold:?}") });
        }
    }
    for call in history.calls.iter().filter(|call| call.outcome.starts_with(|c: char| c.is_uppercase())) {
        let fine = ["Ok", "Lost", "NotHeld"].contains(&call.outcome);
        // Those that end as they should when the server is too slow for them.
        let stalled = stalled(history, call.process, call.start, call.end);
        let short = call.limit_ms * 1_000_000 < 200_000_000 + call.delayed + stalled;
        let impatient = call.outcome == "TimedOut" && call.limit_ms > 0 && short;
        if !fine && !impatient && !excused(call.process, None, call.start, call.end) {
            let rule = "failed without a fault";
            found.push(Violation { rule, at: call.end, text: format!("{call:?}") });
        }
    }
    found
}

/// No process grows after its warm-up.
fn growth(history: &History) -> Vec<Violation> {
    let mut warm: HashMap<(&str, usize), (u64, Option<u64>, u64)> = HashMap::new();
    for beat in &history.beats {
        let entry = warm.entry((beat.process, beat.life)).or_insert((beat.at, None, 0));
        if beat.at > entry.0 + WARM_UP_NS {
            entry.1.get_or_insert(beat.resident_kb);
            entry.2 = beat.resident_kb;
        }
    }
    warm.into_iter()
        .filter_map(|((process, _), (at, warm, last))| Some((process, at, warm?, last)))
        .filter(|(_, _, warm, last)| *last > warm + GROWTH_KB)
        .map(|(process, at, warm, last)| {
            let text = format!("{process} grew from {warm} to {last} kB");
            Violation { rule: "memory grows", at, text }
        })
        .collect()
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
        return hold.first == "Held" && hold.last == "Held" && !history.windows.iter().any(crosses);
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

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
