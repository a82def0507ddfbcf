//! The rules of failovers, and their figures. What the new master had when the old one was gone is known, so it is told of each
//! hold whether the failover took it.

use std::fmt::Write;

use super::check::{Violation, has_lease, is_rust, lives_on, stalled};
use super::history::{Failover, History, Hold, Window};

/// Within which each process goes on after a failover.
const RESUMES_NS: u64 = 2_000_000_000;

pub fn judge(history: &History) -> Vec<Violation> {
    let rules = [acknowledged_and_lost, kept_and_lost, resumed_too_late];
    rules.iter().flat_map(|rule| rule(history)).collect()
}

fn failovers(history: &History) -> impl Iterator<Item = (&Window, &Failover)> {
    history.windows.iter().filter_map(|window| Some((window, window.failover.as_ref()?)))
}

/// Those who held when the master was killed: they were told so before, and had not begun to give back after.
fn held_then<'a>(
    history: &'a History,
    window: &'a Window,
    failover: &'a Failover,
) -> impl Iterator<Item = &'a Hold> {
    let until = history.holds.partition_point(|hold| hold.start < failover.killed);
    history.holds[..until].iter().filter(move |hold| {
        let ran_out = hold.lease_ms > 0 && window.begun > hold.asked + hold.lease_ms * 1_000_000;
        let ended = hold.lost > 0 && hold.lost < window.begun;
        hold.end > window.begun && !ran_out && !ended && window.is_about(hold.key) && is_rust(hold)
    })
}

/// Where acquires count only once the replica has them, it has what is held. A permit without an owner cannot be found.
fn acknowledged_and_lost(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (window, failover) in failovers(history).filter(|_| history.replicated) {
        let lacking = held_then(history, window, failover)
            .filter(|hold| hold.first == "Held" && has_lease(hold) && !failover.keeps(hold));
        for hold in lacking {
            let rule = "acknowledged, and not on the new master";
            found.push(Violation { rule, at: failover.killed, text: format!("{hold:?}") });
        }
    }
    found
}

/// What the new master has lives on.
fn kept_and_lost(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (window, failover) in failovers(history) {
        let lost = held_then(history, window, failover).filter(|hold| {
            let gone = ["Lost-DataLost", "Lost-Gone", "Lost-Taken"].contains(&hold.last)
                || hold.last == "Held" && hold.is_lost();
            let ran_out = hold.lease_ms > 0 && hold.done > hold.asked + hold.lease_ms * 1_000_000;
            let soon = hold.done < window.to + history.lease_ns;
            // Of several locks another may be lost, and all with it.
            let alone = history.replicated || !hold.key.starts_with("multi:");
            gone && soon && alone && !ran_out && has_lease(hold) && lives_on(window, hold)
        });
        for hold in lost {
            let rule = "lost, though the new master has it";
            found.push(Violation { rule, at: failover.killed, text: format!("{hold:?}") });
        }
    }
    found
}

/// Each process takes something at the new master soon after everyone knew of it.
fn resumed_too_late(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (window, failover) in failovers(history) {
        for process in &history.clients {
            let until = window.to + RESUMES_NS;
            let until = until + stalled(history, process, window.to, until);
            let took = resumed(history, window, process);
            if until < history.stopped && took.is_none_or(|took| failover.killed + took > until) {
                let text = format!("{process}: {took:?} ns, the failover {} ns", window.to - failover.killed);
                found.push(Violation { rule: "resumed too late", at: window.to, text });
            }
        }
    }
    found
}

/// How long after the kill a process had something of the new master: what it asked for when the old one was gone.
fn resumed(history: &History, window: &Window, process: &str) -> Option<u64> {
    let from = history.holds.partition_point(|hold| hold.start < window.ending);
    let first = history.holds[from..]
        .iter()
        .find(|hold| hold.process == process && hold.start >= window.ending && window.is_about(hold.key));
    Some(first?.start - window.failover.as_ref()?.killed)
}

/// A page of a report; nothing without failovers.
pub fn figures(history: &History) -> String {
    let (mut took, mut after) = (Vec::new(), Vec::new());
    let mut java = Vec::new();
    let (mut held, mut lacking, mut told) = (0, 0, 0);
    for (window, failover) in failovers(history) {
        let lasted = window.to - failover.killed;
        took.push(lasted);
        let late = |process: &str| Some(resumed(history, window, process)?.saturating_sub(lasted));
        after.extend(history.clients.iter().filter_map(|process| late(process)));
        java.extend(late("java"));
        for hold in held_then(history, window, failover).filter(|hold| has_lease(hold)) {
            held += 1;
            lacking += usize::from(!failover.keeps(hold));
            told += usize::from(!failover.keeps(hold) && hold.is_lost());
        }
    }
    if took.is_empty() {
        return String::new();
    }
    let lags = failovers(history).filter(|(_, failover)| failover.lag).count();
    let mut text = format!(
        "{} failovers, {lags} of them of a master whose replica was cut off. Of {held} holds when a master was killed the new one \
         lacked {lacking}, of which {told} were told as lost.\n\n| | least | median | 95 % | most |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
        took.len(),
    );
    let rows = [
        ("failover, from the kill until all know the new master", took),
        ("then until each Rust process has a hold of the new master", after),
        ("then until Java has", java),
    ];
    for (what, mut times) in rows.into_iter().filter(|(_, times)| !times.is_empty()) {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100] / 1_000_000;
        let _ = writeln!(text, "| {what} | {} ms | {} ms | {} ms | {} ms |", at(0), at(50), at(95), at(100));
    }
    text
}
