//! Each rule on a history that keeps it and on one that breaks it. Times are in ms here; the lease is 2 s.

use super::*;
use crate::torture::history::{Beat, Call, Stall};

const MS: u64 = 1_000_000;

/// A certain hold, of a process and key of its own each time.
fn hold(process: &'static str, key: &'static str, start: u64, end: u64) -> Hold {
    Hold {
        process,
        key,
        asked: start * MS,
        start: start * MS,
        first: "Held",
        read: start,
        written: end,
        end: end * MS,
        left: 1000 * MS,
        last: "Held",
        outcome: "Ok",
        done: end * MS,
        ..Hold::default()
    }
}

fn lost(hold: Hold) -> Hold {
    Hold { last: "Lost-Expired", outcome: "NotHeld", left: 0, ..hold }
}

fn window(kind: &'static str, from: u64, to: u64) -> Window {
    Window { kind, from: from * MS, begun: from * MS, ending: to * MS, to: to * MS, ..Window::default() }
}

fn reset(from: u64, to: u64) -> Window {
    Window { resets: true, ..window("kill-server", from, to) }
}

fn silence(from: u64, to: u64) -> Window {
    Window { silent: true, ..window("stop-server", from, to) }
}

fn history(holds: Vec<Hold>, windows: Vec<Window>) -> History {
    History { lease_ns: 2000 * MS, holds, windows, stopped: 60_000 * MS, ..History::default() }
}

fn stall(process: &'static str, from: u64, to: u64) -> Stall {
    Stall { process, from: from * MS, to: to * MS }
}

#[track_caller]
fn keeps(rule: fn(&History) -> Vec<Violation>, history: &History) {
    let found = rule(history);
    assert!(found.is_empty(), "{found:#?}");
}

#[track_caller]
fn breaks(rule: fn(&History) -> Vec<Violation>, history: &History) {
    assert_eq!(rule(history).len(), 1);
}

#[test]
fn two_certain_holds_do_not_overlap() {
    let pair = |second: Hold| history(vec![hold("a", "k", 100, 200), second], vec![]);
    keeps(overlaps, &pair(hold("b", "k", 200, 300)));
    keeps(overlaps, &pair(hold("b", "other", 150, 300)));
    keeps(overlaps, &pair(lost(hold("b", "k", 150, 300))));
    keeps(overlaps, &pair(Hold { last: "Suspect", ..hold("b", "k", 150, 300) }));
    breaks(overlaps, &pair(hold("b", "k", 199, 300)));
    breaks(overlaps, &pair(hold("a", "k", 199, 300)));
    // The second ends first, and a third overlaps only the first.
    let mut three = history(vec![hold("a", "k", 100, 900), hold("b", "k", 150, 160)], vec![]);
    assert_eq!(overlaps(&three).len(), 1);
    three.holds.push(hold("c", "k", 800, 1000));
    assert_eq!(overlaps(&three).len(), 2);
}

#[test]
fn holds_are_judged_within_one_life_of_the_data() {
    let holds = || vec![hold("a", "k", 100, 500), hold("b", "k", 400, 600)];
    keeps(overlaps, &history(holds(), vec![reset(300, 350)]));
    breaks(overlaps, &history(holds(), vec![reset(50, 90)]));
    breaks(overlaps, &history(holds(), vec![window("stop-server", 300, 350)]));
    breaks(overlaps, &history(holds(), vec![Window { key: Some("other".into()), ..reset(300, 350) }]));
    keeps(overlaps, &history(holds(), vec![Window { key: Some("k".into()), ..reset(300, 350) }]));
}

#[test]
fn a_pipelined_hold_counts_a_lease_after_a_reset() {
    let holds = |odd, at| vec![hold("rust2", "k", at, at + 100), hold(odd, "k", at + 50, at + 150)];
    keeps(overlaps, &history(holds("rust1", 1000), vec![reset(300, 350)]));
    breaks(overlaps, &history(holds("rust1", 2351), vec![reset(300, 350)]));
    breaks(overlaps, &history(holds("rust4", 1000), vec![reset(300, 350)]));
}

#[test]
fn a_java_hold_counts_where_no_fault_is_near() {
    let java = |start, end| Hold { first: "Java", last: "Java", ..hold("java", "k", start, end) };
    let holds = || vec![hold("a", "k", 10_000, 10_200), java(10_100, 10_150)];
    breaks(overlaps, &history(holds(), vec![]));
    breaks(overlaps, &history(holds(), vec![window("cut", 1000, 8099)]));
    keeps(overlaps, &history(holds(), vec![window("cut", 1000, 8101)]));
    keeps(overlaps, &history(holds(), vec![window("cut", 12_000, 13_000)]));
    let others = Window { process: Some("a"), ..window("cut", 10_000, 10_100) };
    breaks(overlaps, &history(holds(), vec![others]));
    let refused = Hold { outcome: "IllegalMonitorStateException", ..java(10_100, 10_150) };
    keeps(overlaps, &history(vec![hold("a", "k", 10_000, 10_200), refused], vec![]));
}

#[test]
fn a_write_is_read_by_the_next_who_holds() {
    let pair = |read| Hold { read, ..hold("b", "k", 300, 400) };
    keeps(overwritten, &history(vec![hold("a", "k", 100, 200), pair(200)], vec![]));
    breaks(overwritten, &history(vec![hold("a", "k", 100, 200), pair(100)], vec![]));
    keeps(overwritten, &history(vec![hold("a", "k", 100, 200), lost(pair(100))], vec![]));
    // Who wrote nothing overwrote nothing.
    let idle = Hold { read: 100, written: 100, ..hold("b", "k", 300, 400) };
    keeps(overwritten, &history(vec![hold("a", "k", 100, 200), idle], vec![]));
}

#[test]
fn calls_end_on_time() {
    let call = |took: u64, delayed: u64| History {
        calls: vec![Call {
            process: "a",
            start: 1000 * MS,
            end: (1000 + took) * MS,
            limit_ms: 100,
            outcome: "Ok",
            delayed: delayed * MS,
            ..Call::default()
        }],
        ..history(vec![], vec![])
    };
    keeps(late_calls, &call(150, 0));
    breaks(late_calls, &call(151, 0));
    keeps(late_calls, &call(160, 10));
    let stopped = |process| History { stalls: vec![stall(process, 1050, 4000)], ..call(2000, 0) };
    keeps(late_calls, &stopped("a"));
    breaks(late_calls, &stopped("b"));
    let mut endless = call(9000, 0);
    endless.calls[0].limit_ms = 0;
    keeps(late_calls, &endless);
}

#[test]
fn a_loss_is_told_by_the_deadline() {
    let told = |at: u64| {
        history(vec![Hold { deadline: 3000 * MS, lost: at * MS, ..lost(hold("a", "k", 1000, at)) }], vec![])
    };
    keeps(late_news, &told(3050));
    breaks(late_news, &told(3051));
    let paused = History { stalls: vec![stall("a", 2000, 5000)], ..told(5000) };
    keeps(late_news, &paused);
    let live = |last| history(vec![Hold { left: 0, last, ..hold("a", "k", 1000, 3100) }], vec![]);
    keeps(late_news, &live("Lost-Expired"));
    breaks(late_news, &live("Held"));
    breaks(late_news, &live("Suspect"));
}

#[test]
fn nobody_holds_a_lease_into_a_silence() {
    let until = |end, last| Hold { last, ..hold("a", "k", 1000, end) };
    let during = |hold| history(vec![hold], vec![silence(2000, 6000)]);
    keeps(held_in_silence, &during(until(4009, "Held")));
    breaks(held_in_silence, &during(until(4011, "Held")));
    breaks(held_in_silence, &during(until(5999, "Suspect")));
    keeps(held_in_silence, &during(until(5999, "Lost-Expired")));
    // Told by no more than what was confirmed after the silence.
    keeps(held_in_silence, &during(until(6001, "Held")));
    let others = Window { process: Some("b"), ..silence(2000, 6000) };
    keeps(held_in_silence, &history(vec![until(5000, "Held")], vec![others]));
}

#[test]
fn who_lives_through_a_reset_is_told() {
    let through =
        |end, last| history(vec![Hold { last, ..hold("a", "k", 1000, end) }], vec![reset(2000, 2100)]);
    keeps(lived_through_a_reset, &through(4110, "Held"));
    breaks(lived_through_a_reset, &through(4111, "Held"));
    keeps(lived_through_a_reset, &through(5000, "Lost-Gone"));
    let others = Window { key: Some("other".into()), ..reset(2000, 2100) };
    keeps(lived_through_a_reset, &history(vec![hold("a", "k", 1000, 5000)], vec![others]));
}

#[test]
fn things_go_on_after_a_fault() {
    let after = |hot: u64, own: u64, next: Option<u64>| {
        let mut holds = vec![
            hold("a", "hot:1", 1100, 1110),
            hold("a", "hot:0", hot, hot + 1),
            hold("rust0", "own:0", own, own + 1),
        ];
        holds.sort_by_key(|hold| hold.start);
        let mut windows = vec![window("cut", 900, 1000)];
        windows.extend(next.map(|from| window("cut", from, from)));
        // What comes after the last fault is not looked at.
        let stopped = next.unwrap_or(60_000) * MS;
        History { clients: vec!["rust0"], stopped, ..history(holds, windows) }
    };
    keeps(no_progress, &after(4499, 4499, None));
    breaks(no_progress, &after(4501, 1000, None));
    breaks(no_progress, &after(1000, 4501, None));
    breaks(no_progress, &after(1000, 900, None));
    keeps(no_progress, &after(4501, 1000, Some(4000)));
    let paused = History { stalls: vec![stall("rust0", 1000, 3000)], ..after(1000, 5000, None) };
    keeps(no_progress, &paused);
}

#[test]
fn nothing_is_lost_or_fails_without_a_fault() {
    let one = |windows| history(vec![lost(hold("a", "k", 10_000, 10_500))], windows);
    breaks(out_of_the_blue, &one(vec![]));
    keeps(out_of_the_blue, &one(vec![window("cut", 10_100, 10_100)]));
    keeps(out_of_the_blue, &one(vec![window("cut", 6000, 6500)]));
    breaks(out_of_the_blue, &one(vec![window("cut", 6000, 6499)]));
    breaks(out_of_the_blue, &one(vec![window("cut", 10_501, 10_600)]));
    breaks(
        out_of_the_blue,
        &one(vec![Window { key: Some("pair:0".into()), ..window("string", 10_100, 10_200) }]),
    );
    breaks(out_of_the_blue, &one(vec![Window { process: Some("b"), ..window("cut", 10_100, 10_200) }]));
    let ran_out = Hold { lease_ms: 400, ..lost(hold("a", "k", 10_000, 10_500)) };
    keeps(out_of_the_blue, &history(vec![ran_out.clone()], vec![]));
    breaks(out_of_the_blue, &history(vec![Hold { lease_ms: 600, ..ran_out }], vec![]));

    let failed = |outcome, limit_ms| History {
        calls: vec![Call { process: "a", outcome, limit_ms, ..Call::default() }],
        ..history(vec![], vec![])
    };
    breaks(out_of_the_blue, &failed("Unavailable", 1000));
    breaks(out_of_the_blue, &failed("Refused-OOM", 0));
    breaks(out_of_the_blue, &failed("TimedOut", 1000));
    keeps(out_of_the_blue, &failed("TimedOut", 20));
    keeps(out_of_the_blue, &failed("Ok", 1000));
}

#[test]
fn a_process_does_not_grow() {
    let beats = |last| {
        let beat = |at: u64, resident_kb| Beat { process: "a", at: at * MS, resident_kb, ..Beat::default() };
        let beats = vec![beat(0, 1000), beat(20_001, 9000), beat(30_000, 12_000), beat(60_000, last)];
        History { beats, ..history(vec![], vec![]) }
    };
    keeps(growth, &beats(9000 + 16 * 1024));
    breaks(growth, &beats(9001 + 16 * 1024));
}
