//! The rules and the figures of failovers. The records of the new master are read after the old one is gone, so it is known
//! for each hold whether the failover lost it.

use std::fmt::Write;

use super::check::{RETRY_NS, Rule, Verdict, Violation, has_lease, is_rust, lives_on, stalled};
use super::history::{Failover, History, Hold, Window};

/// Each process must hold a lock again within this time after a failover.
const RESUMES_NS: u64 = 2_000_000_000;

pub const RULES: [Rule; 5] = [
    Rule {
        name: "acknowledged holds survive a failover",
        judge: missing_after_failover,
        needs: |history| history.replicated && any(history),
    },
    Rule { name: "holds on the new master are not lost", judge: lost_despite_record, needs: any },
    Rule { name: "holds are renewed on the new master", judge: not_renewed, needs: any },
    Rule {
        name: "renewals report holds that the new master lacks",
        judge: loss_not_reported,
        // Without replication a lost hold is a matter of chance; with it, a lost hold is a violation.
        needs: |_| false,
    },
    Rule { name: "every process resumes after a failover", judge: resumed_late, needs: any },
];

fn any(history: &History) -> bool {
    failovers(history).next().is_some()
}

fn failovers(history: &History) -> impl Iterator<Item = (&Window, &Failover)> {
    history.windows.iter().filter_map(|window| Some((window, window.failover.as_ref()?)))
}

/// The holds that were granted before the master was killed and whose release had not begun by then.
fn held_at_kill<'a>(
    history: &'a History,
    window: &'a Window,
    failover: &'a Failover,
) -> impl Iterator<Item = &'a Hold> {
    let until = history.holds.partition_point(|hold| hold.start < failover.killed);
    history.holds[..until].iter().filter(move |hold| {
        let ran_out = hold.lease_ms > 0 && failover.read_at > hold.asked + hold.lease_ms * 1_000_000;
        let ended = hold.lost > 0 && hold.lost < window.begun;
        hold.end > window.begun && !ran_out && !ended && window.affects(hold.key) && is_rust(hold)
    })
}

/// With replication, the new master has every hold that was granted. Permits without a lease have no owner and cannot be
/// checked.
fn missing_after_failover(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history).filter(|_| history.replicated) {
        let held = held_at_kill(history, window, failover);
        for hold in held.filter(|hold| hold.first == "Held" && has_lease(hold)) {
            verdict.judge((!failover.has_record_of(hold)).then(|| {
                let rule = "an acknowledged hold is missing on the new master";
                Violation { rule, at: failover.killed, text: format!("{hold:?}") }
            }));
        }
    }
    verdict
}

/// The holds at the time of the kill that the new master has. A multi lock counts only with replication, because a member on
/// another master may be lost.
fn survivors<'a>(
    history: &'a History,
    window: &'a Window,
    failover: &'a Failover,
) -> impl Iterator<Item = &'a Hold> {
    let no_other_shard = |hold: &&Hold| history.replicated || !hold.key.starts_with("multi:");
    held_at_kill(history, window, failover)
        .filter(no_other_shard)
        .filter(move |hold| has_lease(hold) && lives_on(window, hold))
}

/// A hold that the new master has is not reported as gone, taken or deleted soon after the failover.
fn lost_despite_record(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        for hold in survivors(history, window, failover) {
            let gone = ["Lost-DataLost", "Lost-Gone", "Lost-Taken"].contains(&hold.last)
                || hold.last == "Held" && hold.is_lost();
            let ran_out = hold.lease_ms > 0 && hold.done > hold.asked + hold.lease_ms * 1_000_000;
            let soon = hold.done < window.to + history.lease_ns;
            verdict.judge((gone && soon && !ran_out).then(|| {
                let rule = "a hold on the new master was lost";
                Violation { rule, at: failover.killed, text: format!("{hold:?}") }
            }));
        }
    }
    verdict
}

/// The watchdog renews its holds on the new master, so their deadlines advance past the kill plus a lease; the old master
/// confirmed nothing that was sent later. The rule applies where the last lease left enough time to connect to the new
/// master and the hold lasted that long. A hold that was lost in that time, for any reason, was not renewed.
fn not_renewed(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        for hold in
            survivors(history, window, failover).filter(|hold| hold.lease_ms == 0 && hold.deadline > 0)
        {
            let next = window.to + RETRY_NS;
            let next = next + stalled(history, hold.process, failover.killed, next);
            let renewed = hold.deadline > failover.killed + history.lease_ns;
            let had_time = next < hold.deadline && hold.end.max(hold.lost) > next;
            if renewed || had_time {
                verdict.judge((!renewed).then(|| {
                    let rule = "not renewed on the new master";
                    Violation { rule, at: failover.killed, text: format!("{hold:?}") }
                }));
            }
        }
    }
    verdict
}

/// The next renewal reports a hold that the new master lacks. A renewal is due every third of a lease.
fn loss_not_reported(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        let until = window.to + history.lease_ns / 3 + RETRY_NS;
        let lacking = held_at_kill(history, window, failover)
            .filter(|hold| hold.lease_ms == 0 && has_lease(hold) && !failover.has_record_of(hold));
        for hold in lacking {
            let late = hold.end > until + stalled(history, hold.process, window.to, until);
            verdict.judge((late && !hold.is_lost()).then(|| {
                let rule = "no renewal reported the loss";
                Violation { rule, at: window.to, text: format!("{hold:?}") }
            }));
        }
    }
    verdict
}

/// Each process acquires a lock on the new master soon after the new master is known.
fn resumed_late(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    for (window, failover) in failovers(history) {
        for process in &history.clients {
            let until = window.to + RESUMES_NS;
            let until = until + stalled(history, process, window.to, until);
            if until < history.stopped {
                let took = resumed(history, window, process);
                verdict.judge(took.is_none_or(|took| failover.killed + took > until).then(|| {
                    let text = format!(
                        "{process}: {took:?} ns after the kill; the failover took {} ns",
                        window.to - failover.killed
                    );
                    Violation { rule: "resumed too late", at: window.to, text }
                }));
            }
        }
    }
    verdict
}

/// How long after the kill a process got a hold that it requested after the old master was gone.
fn resumed(history: &History, window: &Window, process: &str) -> Option<u64> {
    let from = history.holds.partition_point(|hold| hold.start < window.ending);
    let first = history.holds[from..]
        .iter()
        .find(|hold| hold.process == process && hold.start >= window.ending && window.affects(hold.key));
    Some(first?.start - window.failover.as_ref()?.killed)
}

/// The failover section of a report; empty without failovers.
pub fn figures(history: &History) -> String {
    let (mut took, mut after) = (Vec::new(), Vec::new());
    let mut java = Vec::new();
    let (mut held, mut lacking, mut reported) = (0, 0, 0);
    for (window, failover) in failovers(history) {
        let lasted = window.to - failover.killed;
        took.push(lasted);
        let late = |process: &str| Some(resumed(history, window, process)?.saturating_sub(lasted));
        after.extend(history.clients.iter().filter_map(|process| late(process)));
        java.extend(late("java"));
        for hold in held_at_kill(history, window, failover).filter(|hold| has_lease(hold)) {
            held += 1;
            lacking += usize::from(!failover.has_record_of(hold));
            reported += usize::from(!failover.has_record_of(hold) && hold.is_lost());
        }
    }
    if took.is_empty() {
        return String::new();
    }
    let lags = failovers(history).filter(|(_, failover)| failover.lag).count();
    let survived = match lacking {
        0 => "had all of them".to_owned(),
        _ => format!("lacked {lacking} of them; {reported} of those were reported as lost"),
    };
    let mut text = format!(
        "{} failovers; in {lags} of them the replica was cut off before the master was killed. {held} holds existed when their \
         master was killed. The new master {survived}.\n\n\
         | | min | median | 95 % | max |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
        took.len(),
    );
    let rows = [
        ("from the kill until all nodes know the new master", took),
        ("from then until each Rust process has acquired a lock on the new master", after),
        ("from then until Java has acquired a lock on the new master", java),
    ];
    for (period, mut times) in rows.into_iter().filter(|(_, times)| !times.is_empty()) {
        times.sort_unstable();
        let at = |share: usize| times[(times.len() - 1) * share / 100] / 1_000_000;
        let _ =
            writeln!(text, "| {period} | {} ms | {} ms | {} ms | {} ms |", at(0), at(50), at(95), at(100));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::check::is_certain;
    use super::super::history::Records;
    use super::*;

    const MS: u64 = 1_000_000;

    /// A hold that began before the kill at 1000 and ended after the promotion at 3000.
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
        let strings = |strings: &[&str]| strings.iter().map(|string| (*string).to_owned()).collect();
        let records = Records(records.iter().map(|(key, of)| ((*key).to_owned(), strings(of))).collect());
        let failover =
            Failover { killed: 1000 * MS, slots: (0, 16383), records, read_at: 1100 * MS, lag: true };
        let window = Window {
            kind: "failover",
            from: 500 * MS,
            begun: 1010 * MS,
            ending: 2900 * MS,
            to: 3000 * MS,
            loses_records: !replicated,
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
    fn acknowledged_holds_are_on_the_new_master() {
        let judged = |replicated, records: &[(&str, &[&str])], hold| {
            missing_after_failover(&history(replicated, records, vec![hold])).found.len()
        };
        assert_eq!(judged(true, &[("hot:0", &["id:1", "1"])], hold("rust0")), 0);
        assert_eq!(judged(true, &[], hold("rust0")), 1);
        assert_eq!(judged(true, &[("hot:0", &["id:12", "1"])], hold("rust0")), 1);
        // Without replication the client did not wait for replicas.
        assert_eq!(judged(false, &[], hold("rust0")), 0);
        // Its release may have begun, its lease had ended, or its record has no owner.
        assert_eq!(judged(true, &[], Hold { end: 1005 * MS, ..hold("rust0") }), 0);
        assert_eq!(judged(true, &[], Hold { lease_ms: 290, ..hold("rust0") }), 0);
        assert_eq!(judged(true, &[], Hold { lease_ms: 310, ..hold("rust0") }), 1);
        assert_eq!(judged(true, &[], Hold { key: "semaphore:1", ..hold("rust0") }), 0);
        assert_eq!(judged(true, &[], Hold { first: "Java", ..hold("java") }), 0);
    }

    #[test]
    fn the_record_of_each_kind_is_found() {
        let keeps = |records: &[(&str, &[&str])], key, owner| {
            let history = history(true, records, Vec::new());
            let failover = history.windows[0].failover.as_ref().unwrap();
            failover.has_record_of(&Hold { key, owner, ..hold("rust0") })
        };
        assert!(keeps(&[("readwrite:hot", &["mode", "write", "id:1:write", "1"])], "readwrite:hot", "id:1"));
        assert!(keeps(&[("group:hot", &["a", "id:1"])], "group:hot/a", "id:1"));
        // A multi lock does not report its owner.
        assert!(keeps(&[("multi:0", &["id:1", "1"])], "multi:0", "-"));
        assert!(!keeps(&[], "multi:0", "-"));
        let (one, two) = ("0123456789abcdef", "fedcba9876543210");
        let taken: &[(&str, &[&str])] = &[("expirable:1", &["2"]), ("{expirable:1}:timeout", &[one])];
        assert!(keeps(taken, "expirable:1", one));
        assert!(!keeps(taken, "expirable:1", "0123456789abcdeffedcba9876543210"));
        assert!(!keeps(taken, "expirable:1", two));
    }

    #[test]
    fn a_hold_on_the_new_master_is_not_lost() {
        let lost = || Hold { last: "Lost-Gone", outcome: "NotHeld", ..hold("rust0") };
        let judged = |records: &[(&str, &[&str])], hold| {
            lost_despite_record(&history(false, records, vec![hold])).found.len()
        };
        let kept: &[(&str, &[&str])] = &[("hot:0", &["id:1", "1"])];
        assert_eq!(judged(kept, hold("rust0")), 0);
        assert_eq!(judged(kept, lost()), 1);
        assert_eq!(judged(&[], lost()), 0);
        // Its lease may expire while no master can renew it.
        assert_eq!(judged(kept, Hold { last: "Lost-Unreachable", ..lost() }), 0);
    }

    #[test]
    fn a_hold_on_the_new_master_is_renewed() {
        let kept: &[(&str, &[&str])] = &[("hot:0", &["id:1", "1"])];
        // The kill is at 1000, the lease 9 s, the promotion at 3000. Returns how many holds were judged and how many were
        // not renewed.
        let judged = |hold: Hold| {
            let history = History { lease_ns: 9000 * MS, ..history(true, kept, vec![hold]) };
            let verdict = not_renewed(&history);
            (verdict.judged, verdict.found.len())
        };
        let with = |end: u64, deadline: u64| Hold { end: end * MS, deadline: deadline * MS, ..hold("rust0") };
        // A renewal is due within a retry of the end of the failover.
        assert_eq!(judged(with(4490, 9990)), (0, 0));
        assert_eq!(judged(with(4510, 9990)), (1, 1));
        // The deadline of a renewal sent before the kill, and after it.
        assert_eq!(judged(with(4510, 10_000)), (1, 1));
        assert_eq!(judged(with(4510, 10_001)), (1, 0));
        assert_eq!(judged(with(3100, 12_000)), (1, 0));
        // The old master's lease ended before a new master existed.
        assert_eq!(judged(with(4510, 4500)), (0, 0));
        assert_eq!(judged(with(4510, 4501)), (1, 1));
        // No renewal reached a server, and the hold ended by its deadline.
        let expired = |lost: u64| Hold { lost: lost * MS, last: "Lost-Unreachable", ..with(4000, 9990) };
        assert_eq!(judged(expired(9990)), (1, 1));
        // A fixed lease is not renewed.
        assert_eq!(judged(Hold { lease_ms: 9000, ..with(4510, 9990) }), (0, 0));
        assert_eq!(judged(Hold { deadline: 0, ..with(4510, 0) }), (0, 0));
    }

    #[test]
    fn only_holds_missing_on_the_new_master_are_uncertain() {
        let certain = |records: &[(&str, &[&str])], process| {
            let history = history(false, records, vec![hold(process)]);
            is_certain(&history, &history.holds[0])
        };
        assert!(certain(&[("hot:0", &["id:1", "1"])], "rust0"));
        assert!(!certain(&[], "rust0"));
        // A pipelined hold may be ahead of its record.
        assert!(!certain(&[("hot:0", &["id:1", "1"])], "rust1"));
    }

    #[test]
    fn a_renewal_reports_a_missing_hold() {
        // A third of a lease and a retry after 3000.
        let judged = |hold| loss_not_reported(&history(false, &[], vec![hold])).found.len();
        let long = |end: u64| Hold { end: end * MS, ..hold("rust0") };
        assert_eq!(judged(long(5100)), 0);
        assert_eq!(judged(long(5200)), 1);
        assert_eq!(judged(Hold { outcome: "Lost-Gone", ..long(5200) }), 0);
    }

    #[test]
    fn a_missing_hold_is_reported_within_a_lease() {
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
        found.iter().filter(|violation| violation.rule == "held although the record was lost").count()
    }

    #[test]
    fn each_process_resumes_after_a_failover() {
        let after = |start: u64| Hold { asked: start * MS, start: start * MS, ..hold("rust0") };
        let judged = |holds| resumed_late(&history(true, &[], holds)).found.len();
        assert_eq!(judged(vec![after(4900)]), 0);
        assert_eq!(judged(vec![after(5100)]), 1);
        // Holds of the old master and of other processes do not count.
        assert_eq!(judged(vec![after(990)]), 1);
        assert_eq!(judged(vec![Hold { process: "rust2", ..after(4900) }]), 1);
    }
}
