//! The rules by which a history is judged. Each is a function of the history alone, and each is shown to fail on a bad
//! one below.
//!
//! A hold is *certain* if it was told to be held when it began and when it ended: it never comes back from being lost, so
//! it was held all the time between. Of a Java hold nothing is told: it is taken for certain only if no fault that could
//! concern it came within a lease of it. The Rust processes of odd number hand on pipelined: of holds that follow a record
//! which is gone, they tell only the one that is current when that is found out, at most a lease later.

use std::collections::HashMap;

use super::history::{History, Hold, Window};

/// What a call may take beyond its limit, as promised; then there is what the machine kept the process from running.
const MARGIN_NS: u64 = 50_000_000;
/// What a client needs to find a server that is there again: an attempt to connect that still hangs, and a pause.
pub const RETRY_NS: u64 = 1_500_000_000;
/// A signal and a proxy take effect not quite at once.
const EFFECT_NS: u64 = 10_000_000;
/// What a process may grow by after it has warmed up.
const GROWTH_KB: u64 = 16 * 1024;
const WARM_UP_NS: u64 = 20_000_000_000;

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
        out_of_the_blue,
        growth,
    ];
    rules.iter().flat_map(|rule| rule(history)).collect()
}

/// No two certain holds of one key overlap within one life of the server's data.
fn overlaps(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: HashMap<&str, &Hold> = HashMap::new();
    for hold in history.holds.iter().filter(|hold| is_certain(history, hold)) {
        match last.get_mut(hold.key) {
            Some(before) => {
                if hold.start < before.end {
                    let text = format!("{before:?}\n  {hold:?}");
                    found.push(Violation { rule: "two held one key", at: hold.start, text });
                }
                if hold.end > before.end {
                    *before = hold;
                }
            }
            None => {
                last.insert(hold.key, hold);
            }
        }
    }
    found
}

/// No write of a certain hold is overwritten by another that has not read it. Every write is of a number of its own, so
/// two that read the same one did not see each other.
fn overwritten(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut readers: HashMap<(&str, u64), &Hold> = HashMap::new();
    let certain = history.holds.iter().filter(|hold| is_certain(history, hold) && hold.read != hold.written);
    for hold in certain {
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
                && window.hits(hold.process)
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
            let lived = hold.start < window.from
                && hold.end > window.to + history.lease_ns + EFFECT_NS
                && window.is_about(hold.key);
            if lived && is_rust(hold) && !hold.last.starts_with("Lost") {
                let text = format!("{}: {hold:?}", window.kind);
                found.push(Violation { rule: "held what was freed", at: hold.end, text });
            }
        }
    }
    found
}

/// After a fault, unless the next one is too soon, every hot key is taken within a lease and a retry, and every client
/// takes the key that is its own.
fn no_progress(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, window) in history.windows.iter().enumerate() {
        for (key, process) in watched_keys(history) {
            let stalled =
                process.map_or(0, |name| stalled(history, name, window.to, window.to + history.lease_ns));
            let until = window.to + history.lease_ns + RETRY_NS + stalled;
            let next = history.windows.get(number + 1).map_or(history.stopped, |next| next.from);
            if until < next && progress(history, window, &key).is_none_or(|took| window.to + took > until) {
                let text = format!("{key} was not taken within a lease and a retry after {}", window.kind);
                found.push(Violation { rule: "no progress", at: window.to, text });
            }
        }
    }
    found
}

/// How long after a fault the key was taken.
pub fn progress(history: &History, window: &Window, key: &str) -> Option<u64> {
    let from = history.holds.partition_point(|hold| hold.start < window.to);
    history.holds[from..].iter().find(|hold| hold.key == key).map(|hold| hold.start - window.to)
}

/// The keys that must go on being taken, and whose they are.
pub fn watched_keys(history: &History) -> Vec<(String, Option<&str>)> {
    let own = history
        .clients
        .iter()
        .map(|name| (format!("own:{}", name.trim_start_matches(char::is_alphabetic)), Some(*name)));
    own.chain(["hot:0", "hot:1"].map(|key| (key.to_owned(), None))).collect()
}

/// No hold is lost and no call fails without a fault that could be why. A fixed lease may run out.
fn out_of_the_blue(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let excused = |process: &str, key: Option<&str>, from: u64, to: u64| {
        history.windows.iter().any(|window| {
            window.hits(process)
                && key.is_none_or(|key| window.is_about(key))
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
        let impatient = call.outcome == "TimedOut" && call.limit_ms > 0 && call.limit_ms < 200;
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
    if is_rust(hold) {
        let blind = if is_pipelined(hold.process) { lease } else { 0 };
        let crosses = |window: &Window| {
            let follows = window.from <= hold.end && window.to + blind >= hold.start;
            window.resets && follows && window.is_about(hold.key)
        };
        return hold.first == "Held" && hold.last == "Held" && !history.windows.iter().any(crosses);
    }
    let near = |window: &Window| {
        window.from <= hold.end + lease && window.to + lease >= hold.start && window.is_about(hold.key)
    };
    hold.outcome == "Ok"
        && hold.end < hold.asked.max(hold.start) + lease / 2
        && !history.windows.iter().any(|window| near(window) && window.hits(hold.process))
}

fn is_rust(hold: &Hold) -> bool {
    hold.first != "Java"
}

fn is_pipelined(process: &str) -> bool {
    process.strip_prefix("rust").and_then(|number| number.parse::<u64>().ok()).is_some_and(|n| n % 2 == 1)
}

/// Holds that may have ended between two times: none lasts longer than half a minute.
fn around(history: &History, from: u64, to: u64) -> impl Iterator<Item = &Hold> {
    let first = history.holds.partition_point(|hold| hold.start < from.saturating_sub(30_000_000_000));
    history.holds[first..].iter().take_while(move |hold| hold.start < to)
}

/// How long a process was kept from running between two times.
fn stalled(history: &History, process: &str, from: u64, to: u64) -> u64 {
    let of = history.stalls.iter().filter(|stall| stall.process == process);
    of.map(|stall| stall.to.min(to).saturating_sub(stall.from.max(from))).sum()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
