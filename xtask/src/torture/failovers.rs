//! The rules of failovers, and their figures. What the new master had when the old one was gone is known, so it is told of each
//! hold whether the failover took it.

use std::fmt::Write;

use super::check::{RETRY_NS, Rule, Verdict, Violation, has_lease, is_rust, lives_on, stalled};
use super::history::{Failover, History, Hold, Window};

/// Within which each process goes on after a failover.
const RESUMES_NS: u64 = 2_000_000_000;

pub const RULES: [Rule; 5] = [
    Rule {
        name: "the new master has what was acknowledged",
        judge: acknowledged_and_lost,
        needs: |history| history.replicated && any(history),
    },
    Rule { name: "a hold that the new master has lives on", judge: kept_and_lost, needs: any },
    Rule { name: "a hold is renewed at the new master", judge: not_renewed, needs: any },
    Rule {
        name: "a hold that the new master lacks is lost by a renewal",
        judge: lost_and_not_told,
        // Whether a new master lacks one is chance; with the check of replicas it is a fault.
        needs: |_| false,
    },
    Rule { name: "every process goes on after a failover", judge: resumed_too_late, needs: any },
];

fn any(history: &History) -> bool {
    failovers(history).next().is_some()
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
        let ran_out = hold.lease_ms > 0 && failover.looked > hold.asked + hold.lease_ms * 1_000_000;
        let ended = hold.lost > 0 && hold.lost < window.begun;
        hold.end > window.begun && !ran_out && !ended && window.is_about(hold.key) && is_rust(hold)
    })
}

/// Where acquires count only once the replica has them, it has what is held. A permit without an owner cannot be found.
fn acknowledged_and_lost(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history).filter(|_| history.replicated) {
        let held = held_then(history, window, failover);
        for hold in held.filter(|hold| hold.first == "Held" && has_lease(hold)) {
            verdict.judge((!failover.keeps(hold)).then(|| {
                let rule = "acknowledged, and not on the new master";
                Violation { rule, at: failover.killed, text: format!("{hold:?}") }
            }));
        }
    }
    verdict
}

/// The holds of the moment of the kill that the new master has. Of several locks another may be lost, and all with it.
fn kept<'a>(
    history: &'a History,
    window: &'a Window,
    failover: &'a Failover,
) -> impl Iterator<Item = &'a Hold> {
    let alone = |hold: &&Hold| history.replicated || !hold.key.starts_with("multi:");
    held_then(history, window, failover)
        .filter(alone)
        .filter(move |hold| has_lease(hold) && lives_on(window, hold))
}

/// What the new master has lives on: it is not lost for a reason that the failover is none of.
fn kept_and_lost(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        for hold in kept(history, window, failover) {
            let gone = ["Lost-DataLost", "Lost-Gone", "Lost-Taken"].contains(&hold.last)
                || hold.last == "Held" && hold.is_lost();
            let ran_out = hold.lease_ms > 0 && hold.done > hold.asked + hold.lease_ms * 1_000_000;
            let soon = hold.done < window.to + history.lease_ns;
            verdict.judge((gone && soon && !ran_out).then(|| {
                let rule = "lost, though the new master has it";
                Violation { rule, at: failover.killed, text: format!("{hold:?}") }
            }));
        }
    }
    verdict
}

/// What the watchdog keeps is renewed at the new master, so that its deadline advances: beyond the kill and a lease, because the
/// old master confirmed nothing that was sent later. Judged where the last lease of the old master left the time to connect to
/// the new one, and the hold went on until then. It may have been lost meanwhile, for whatever reason: then it was not renewed.
fn not_renewed(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        for hold in kept(history, window, failover).filter(|hold| hold.lease_ms == 0 && hold.deadline > 0) {
            let next = window.to + RETRY_NS;
            let next = next + stalled(history, hold.process, failover.killed, next);
            let renewed = hold.deadline > failover.killed + history.lease_ns;
            let had_time = next < hold.deadline && hold.end.max(hold.lost) > next;
            if renewed || had_time {
                verdict.judge((!renewed).then(|| {
                    let rule = "not renewed at the new master";
                    Violation { rule, at: failover.killed, text: format!("{hold:?}") }
                }));
            }
        }
    }
    verdict
}

/// What it lacks is told by the next renewal, of which there is one each third of a lease.
fn lost_and_not_told(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        let until = window.to + history.lease_ns / 3 + RETRY_NS;
        let lacking = held_then(history, window, failover)
            .filter(|hold| hold.lease_ms == 0 && has_lease(hold) && !failover.keeps(hold));
        for hold in lacking {
            let late = hold.end > until + stalled(history, hold.process, window.to, until);
            verdict.judge((late && !hold.is_lost()).then(|| {
                let rule = "lost, and not told by a renewal";
                Violation { rule, at: window.to, text: format!("{hold:?}") }
            }));
        }
    }
    verdict
}

/// Each process takes something at the new master soon after everyone knew of it.
fn resumed_too_late(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        for process in &history.clients {
            let until = window.to + RESUMES_NS;
            let until = until + stalled(history, process, window.to, until);
            if until < history.stopped {
                let took = resumed(history, window, process);
                verdict.judge(took.is_none_or(|took| failover.killed + took > until).then(|| {
                    let text =
                        format!("{process}: {took:?} ns, the failover {} ns", window.to - failover.killed);
                    Violation { rule: "resumed too late", at: window.to, text }
                }));
            }
        }
    }
    verdict
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

#[cfg(test)]
mod tests {
    use super::super::check::is_certain;
    use super::super::history::Records;
    use super::*;

    const MS: u64 = 1_000_000;

    /// One that began before the master was killed, at 1000, and ended when another had its place, at 3000.
    fn hold(process: &'static str) -> Hold {
        Hold {
            process,
            owner: "id:1",
            key: "hot:0",
            asked: 800 * MS,
            start: 900 * MS,
            first: "Held",
            end: 3500 * MS,
            last: "Held",
            outcome: "Ok",
            done: 3501 * MS,
            share: 1,
            ..Hold::default()
        }
    }

    fn history(replicated: bool, records: &[(&str, &[&str])], holds: Vec<Hold>) -> History {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let kept = Records(records.iter().map(|(key, of)| ((*key).to_owned(), texts(of))).collect());
        let failover = Failover { killed: 1000 * MS, slots: (0, 16383), kept, looked: 1100 * MS, lag: true };
        let window = Window {
            kind: "failover",
            from: 500 * MS,
            begun: 1010 * MS,
            ending: 2900 * MS,
            to: 3000 * MS,
            resets: !replicated,
            failover: Some(failover),
            ..Window::default()
        };
        History {
            lease_ns: 2000 * MS,
            replicated,
            holds,
            windows: vec![window],
            clients: vec!["rust0"],
            stopped: 60_000 * MS,
            ..History::default()
        }
    }

    #[test]
    fn what_was_acknowledged_is_on_the_new_master() {
        let judged = |replicated, records: &[(&str, &[&str])], hold| {
            acknowledged_and_lost(&history(replicated, records, vec![hold])).found.len()
        };
        assert_eq!(judged(true, &[("hot:0", &["id:1", "1"])], hold("rust0")), 0);
        assert_eq!(judged(true, &[], hold("rust0")), 1);
        assert_eq!(judged(true, &[("hot:0", &["id:12", "1"])], hold("rust0")), 1);
        // Nobody was asked.
        assert_eq!(judged(false, &[], hold("rust0")), 0);
        // It may have been given back by then, had ended by itself, or is not known by anything.
        assert_eq!(judged(true, &[], Hold { end: 1005 * MS, ..hold("rust0") }), 0);
        assert_eq!(judged(true, &[], Hold { lease_ms: 290, ..hold("rust0") }), 0);
        assert_eq!(judged(true, &[], Hold { lease_ms: 310, ..hold("rust0") }), 1);
        assert_eq!(judged(true, &[], Hold { key: "semaphore:1", ..hold("rust0") }), 0);
        assert_eq!(judged(true, &[], Hold { first: "Java", ..hold("java") }), 0);
    }

    #[test]
    fn a_record_is_found_as_its_kind_has_it() {
        let keeps = |records: &[(&str, &[&str])], key, owner| {
            let history = history(true, records, Vec::new());
            let failover = history.windows[0].failover.as_ref().unwrap();
            failover.keeps(&Hold { key, owner, ..hold("rust0") })
        };
        assert!(keeps(&[("readwrite:hot", &["mode", "write", "id:1:write", "1"])], "readwrite:hot", "id:1"));
        assert!(keeps(&[("group:hot", &["a", "id:1"])], "group:hot/a", "id:1"));
        // Several locks as one do not tell their owner.
        assert!(keeps(&[("multi:0", &["id:1", "1"])], "multi:0", "-"));
        assert!(!keeps(&[], "multi:0", "-"));
        let (one, two) = ("0123456789abcdef", "fedcba9876543210");
        let taken: &[(&str, &[&str])] = &[("expirable:1", &["2"]), ("{expirable:1}:timeout", &[one])];
        assert!(keeps(taken, "expirable:1", one));
        assert!(!keeps(taken, "expirable:1", "0123456789abcdeffedcba9876543210"));
        assert!(!keeps(taken, "expirable:1", two));
    }

    #[test]
    fn what_the_new_master_has_is_not_lost() {
        let lost = || Hold { last: "Lost-Gone", outcome: "NotHeld", ..hold("rust0") };
        let judged = |records: &[(&str, &[&str])], hold| {
            kept_and_lost(&history(false, records, vec![hold])).found.len()
        };
        let kept: &[(&str, &[&str])] = &[("hot:0", &["id:1", "1"])];
        assert_eq!(judged(kept, hold("rust0")), 0);
        assert_eq!(judged(kept, lost()), 1);
        assert_eq!(judged(&[], lost()), 0);
        // Its lease may end while nobody can renew it.
        assert_eq!(judged(kept, Hold { last: "Lost-Unreachable", ..lost() }), 0);
    }

    #[test]
    fn what_the_new_master_has_is_renewed_there() {
        let kept: &[(&str, &[&str])] = &[("hot:0", &["id:1", "1"])];
        // Killed at 1000, with a lease of 9 s, and promoted at 3000: of so many judged, how many were not renewed.
        let judged = |hold: Hold| {
            let history = History { lease_ns: 9000 * MS, ..history(true, kept, vec![hold]) };
            let verdict = not_renewed(&history);
            (verdict.judged, verdict.found.len())
        };
        let with = |end: u64, deadline: u64| Hold { end: end * MS, deadline: deadline * MS, ..hold("rust0") };
        // A renewal comes within a retry of the end of the failover.
        assert_eq!(judged(with(4490, 9990)), (0, 0));
        assert_eq!(judged(with(4510, 9990)), (1, 1));
        // Sent before the kill, and after.
        assert_eq!(judged(with(4510, 10_000)), (1, 1));
        assert_eq!(judged(with(4510, 10_001)), (1, 0));
        assert_eq!(judged(with(3100, 12_000)), (1, 0));
        // The lease of the old master was over before there was a new one.
        assert_eq!(judged(with(4510, 4500)), (0, 0));
        assert_eq!(judged(with(4510, 4501)), (1, 1));
        // Nobody told of it any more, and it ended by its deadline, unheard.
        let expired = |lost: u64| Hold { lost: lost * MS, last: "Lost-Unreachable", ..with(4000, 9990) };
        assert_eq!(judged(expired(9990)), (1, 1));
        // A fixed lease is not renewed.
        assert_eq!(judged(Hold { lease_ms: 9000, ..with(4510, 9990) }), (0, 0));
        assert_eq!(judged(Hold { deadline: 0, ..with(4510, 0) }), (0, 0));
    }

    #[test]
    fn only_what_the_new_master_lacks_is_in_doubt() {
        let certain = |records: &[(&str, &[&str])], process| {
            let history = history(false, records, vec![hold(process)]);
            is_certain(&history, &history.holds[0])
        };
        assert!(certain(&[("hot:0", &["id:1", "1"])], "rust0"));
        assert!(!certain(&[], "rust0"));
        // What is pipelined may be ahead of its record.
        assert!(!certain(&[("hot:0", &["id:1", "1"])], "rust1"));
    }

    #[test]
    fn what_the_new_master_lacks_is_told_by_a_renewal() {
        // A third of a lease and a retry after 3000.
        let judged = |hold| lost_and_not_told(&history(false, &[], vec![hold])).found.len();
        let long = |end: u64| Hold { end: end * MS, ..hold("rust0") };
        assert_eq!(judged(long(5100)), 0);
        assert_eq!(judged(long(5200)), 1);
        assert_eq!(judged(Hold { outcome: "Lost", ..long(5200) }), 0);
    }

    #[test]
    fn what_the_new_master_lacks_is_told_within_a_lease() {
        let judged = |records: &[(&str, &[&str])], hold| judge_all(&history(false, records, vec![hold]));
        let long = |process| Hold { end: 5100 * MS, left: 1, ..hold(process) };
        let kept: &[(&str, &[&str])] = &[("hot:0", &["id:1", "1"])];
        for process in ["rust0", "rust1"] {
            assert_eq!(judged(kept, long(process)), 0, "{process}");
            assert_eq!(judged(&[], long(process)), 1, "{process}");
            assert_eq!(judged(&[], Hold { last: "Lost-DataLost", ..long(process) }), 0, "{process}");
        }
    }

    fn judge_all(history: &History) -> usize {
        let found = super::super::check::judge(history).violations;
        found.iter().filter(|violation| violation.rule == "held what was freed").count()
    }

    #[test]
    fn each_process_goes_on_after_a_failover() {
        let after = |start: u64| Hold { asked: start * MS, start: start * MS, ..hold("rust0") };
        let judged = |holds| resumed_too_late(&history(true, &[], holds)).found.len();
        assert_eq!(judged(vec![after(4900)]), 0);
        assert_eq!(judged(vec![after(5100)]), 1);
        // Those of the old master, and of others, do not count.
        assert_eq!(judged(vec![after(990)]), 1);
        assert_eq!(judged(vec![Hold { process: "rust2", ..after(4900) }]), 1);
    }
}
