//! Runs each rule on a history that keeps it and on one that breaks it. Times are in ms; the lease is 2 s.

use super::*;
use crate::chaos::call_delay::CallDelay;
use crate::chaos::history::{Beat, Call, Counted, Generation, Stall};
use crate::chaos::witness::NamedJava;

const MS: u64 = 1_000_000;

/// A certain hold. The cell values depend on the times.
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
        share: 1,
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
    Window { loses_records: true, ..window("kill-server", from, to) }
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
fn keeps(rule: fn(&History) -> Verdict, history: &History) {
    let found = rule(history).found;
    assert!(found.is_empty(), "{found:#?}");
}

#[track_caller]
fn breaks(rule: fn(&History) -> Verdict, history: &History) {
    assert_eq!(rule(history).found.len(), 1);
}

#[test]
fn two_certain_holds_do_not_overlap() {
    let pair = |second: Hold| history(vec![hold("a", "k", 100, 200), second], vec![]);
    keeps(overlaps, &pair(hold("b", "k", 200, 300)));
    keeps(overlaps, &pair(hold("b", "other", 150, 300)));
    // These were never read as held.
    keeps(overlaps, &pair(lost(hold("b", "k", 150, 300))));
    keeps(overlaps, &pair(Hold { last: "Suspect", ..hold("b", "k", 150, 300) }));
    breaks(overlaps, &pair(hold("b", "k", 199, 300)));
    breaks(overlaps, &pair(hold("a", "k", 199, 300)));
    // The second hold ends first, and a third overlaps only the first.
    let mut three = history(vec![hold("a", "k", 100, 900), hold("b", "k", 150, 160)], vec![]);
    assert_eq!(overlaps(&three).found.len(), 1);
    three.holds.push(hold("c", "k", 800, 1000));
    assert_eq!(overlaps(&three).found.len(), 2);
}

#[test]
fn a_hold_that_was_lost_counts_until_it_was_last_seen_held() {
    let seen = |start, held| Hold { held: held * MS, ..lost(hold("b", "k", start, 900)) };
    let with = |second: Hold| history(vec![hold("a", "k", 100, 200), second], vec![]);
    breaks(overlaps, &with(seen(150, 150)));
    breaks(overlaps, &with(Hold { last: "Suspect", ..seen(150, 150) }));
    keeps(overlaps, &with(seen(250, 300)));
    let before = |held| history(vec![seen(50, held), hold("a", "k", 100, 200)], vec![]);
    breaks(overlaps, &before(150));
    keeps(overlaps, &before(60));
    // The data was lost in between.
    let reset = |from, to| History { windows: vec![reset(from, to)], ..with(seen(150, 150)) };
    keeps(overlaps, &reset(120, 140));
    breaks(overlaps, &reset(300, 400));
}

#[test]
fn holds_are_judged_within_one_data_epoch() {
    let holds = || vec![hold("a", "k", 100, 500), hold("b", "k", 400, 600)];
    keeps(overlaps, &history(holds(), vec![reset(300, 350)]));
    breaks(overlaps, &history(holds(), vec![reset(50, 90)]));
    breaks(overlaps, &history(holds(), vec![window("stop-server", 300, 350)]));
    breaks(overlaps, &history(holds(), vec![Window { keys: vec!["other".into()], ..reset(300, 350) }]));
    keeps(overlaps, &history(holds(), vec![Window { keys: vec!["k".into()], ..reset(300, 350) }]));
}

#[test]
fn an_answer_in_flight_may_belong_to_the_last_epoch() {
    let refused = Hold { asked: 340 * MS, outcome: "Lost-Gone", ..hold("a", "k", 352, 500) };
    let pair = |first: Hold| history(vec![first, hold("b", "k", 353, 400)], vec![reset(300, 350)]);
    keeps(overlaps, &pair(refused.clone()));
    breaks(overlaps, &pair(Hold { asked: 351 * MS, ..refused.clone() }));
    breaks(overlaps, &pair(Hold { outcome: "Ok", ..refused }));
}

#[test]
fn a_pipelined_hold_counts_one_lease_after_a_data_loss() {
    let holds = |odd, at| vec![hold("rust2", "k", at, at + 100), hold(odd, "k", at + 50, at + 150)];
    keeps(overlaps, &history(holds("rust1", 1000), vec![reset(300, 350)]));
    breaks(overlaps, &history(holds("rust1", 2351), vec![reset(300, 350)]));
    breaks(overlaps, &history(holds("rust4", 1000), vec![reset(300, 350)]));
}

#[test]
fn a_java_hold_counts_only_without_a_nearby_fault() {
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
fn the_next_holder_reads_each_write() {
    let pair = |read| Hold { read, ..hold("b", "k", 300, 400) };
    keeps(lost_updates, &history(vec![hold("a", "k", 100, 200), pair(200)], vec![]));
    breaks(lost_updates, &history(vec![hold("a", "k", 100, 200), pair(100)], vec![]));
    keeps(lost_updates, &history(vec![hold("a", "k", 100, 200), lost(pair(100))], vec![]));
    // A hold that writes nothing overwrites nothing.
    let idle = Hold { read: 100, written: 100, ..hold("b", "k", 300, 400) };
    keeps(lost_updates, &history(vec![hold("a", "k", 100, 200), idle], vec![]));
}

#[test]
fn calls_return_on_time() {
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

/// A call runs in one thread at a time. Other threads of its process that wait for a processor do not delay it.
#[test]
fn a_late_call_is_not_excused_by_other_threads() {
    let (own, other, third) = (1, 2, 3);
    let at = |waits: [u64; 3]| vec![(own, waits[0] * MS), (other, waits[1] * MS), (third, waits[2] * MS)];
    let call = |delay: &CallDelay| History {
        calls: vec![Call {
            process: "a",
            start: 1000 * MS,
            end: 1300 * MS,
            limit_ms: 100,
            outcome: "Ok",
            delayed: delay.delayed,
            ..Call::default()
        }],
        ..history(vec![], vec![])
    };
    let mut busy = CallDelay::new(at([40, 50, 60]));
    busy.polled(own, at([45, 150, 160]));
    busy.polled(own, at([50, 250, 260]));
    assert_eq!(busy.delayed, 10 * MS);
    breaks(late_calls, &call(&busy));
    // The delays of its own threads count, including after it moved to another thread.
    let mut moved = CallDelay::new(at([40, 50, 60]));
    moved.polled(own, at([120, 50, 60]));
    moved.polled(other, at([500, 120, 60]));
    assert_eq!(moved.delayed, 150 * MS);
    keeps(late_calls, &call(&moved));
    // Threads that started later are unknown.
    let mut unknown = CallDelay::new(at([0, 0, 0]));
    unknown.polled(4, at([500, 500, 500]));
    assert_eq!(unknown.delayed, 0);
}

#[test]
fn a_loss_is_reported_by_the_deadline() {
    let reported = |at: u64| {
        history(vec![Hold { deadline: 3000 * MS, lost: at * MS, ..lost(hold("a", "k", 1000, at)) }], vec![])
    };
    keeps(late_losses, &reported(3050));
    breaks(late_losses, &reported(3051));
    let paused = History { stalls: vec![stall("a", 2000, 5000)], ..reported(5000) };
    keeps(late_losses, &paused);
    let live = |last| history(vec![Hold { left: 0, last, ..hold("a", "k", 1000, 3100) }], vec![]);
    keeps(late_losses, &live("Lost-Expired"));
    breaks(late_losses, &live("Held"));
    breaks(late_losses, &live("Suspect"));
}

#[test]
fn no_hold_outlives_a_silent_server() {
    let until = |end, last| Hold { last, ..hold("a", "k", 1000, end) };
    let during = |hold| history(vec![hold], vec![silence(2000, 6000)]);
    keeps(held_in_silence, &during(until(4009, "Held")));
    breaks(held_in_silence, &during(until(4011, "Held")));
    breaks(held_in_silence, &during(until(5999, "Suspect")));
    keeps(held_in_silence, &during(until(5999, "Lost-Expired")));
    // Only a confirmation after the silence can count here.
    keeps(held_in_silence, &during(until(6001, "Held")));
    let others = Window { process: Some("b"), ..silence(2000, 6000) };
    keeps(held_in_silence, &history(vec![until(5000, "Held")], vec![others]));
}

#[test]
fn a_holder_learns_that_the_data_was_lost() {
    let through =
        |end, last| history(vec![Hold { last, ..hold("a", "k", 1000, end) }], vec![reset(2000, 2100)]);
    keeps(survived_record_loss, &through(4110, "Held"));
    breaks(survived_record_loss, &through(4111, "Held"));
    keeps(survived_record_loss, &through(5000, "Lost-Gone"));
    let others = Window { keys: vec!["other".into()], ..reset(2000, 2100) };
    keeps(survived_record_loss, &history(vec![hold("a", "k", 1000, 5000)], vec![others]));
}

/// Only the holder of an evicted record learns of the eviction. An evicted auxiliary key makes its hold uncertain.
#[test]
fn a_holder_learns_that_its_record_was_evicted() {
    let evicted = || Window {
        loses_records: true,
        keys: vec!["a".into(), "{b}:auxiliary".into(), "b".into()],
        evicted: vec!["a".into(), "{b}:auxiliary".into()],
        ..window("evict-volatile-ttl", 1000, 1200)
    };
    for (key, reported) in [("a", true), ("b", false), ("c", false)] {
        let through = || hold("rust0", key, 500, 3500);
        if reported {
            breaks(survived_record_loss, &history(vec![through()], vec![evicted()]));
        } else {
            keeps(survived_record_loss, &history(vec![through()], vec![evicted()]));
        }
        keeps(survived_record_loss, &history(vec![lost(through())], vec![evicted()]));
        assert_eq!(is_certain(&history(vec![], vec![evicted()]), &through()), key == "c", "{key}");
    }
}

#[test]
fn locks_are_acquired_again_after_a_fault() {
    let after = |hot: u64, own: u64, next: Option<u64>| {
        let mut holds = vec![
            hold("a", "hot:1", 1100, 1110),
            hold("a", "hot:0", hot, hot + 1),
            hold("rust0", "own:0", own, own + 1),
        ];
        holds.sort_by_key(|hold| hold.start);
        let mut windows = vec![window("cut", 900, 1000)];
        windows.extend(next.map(|from| window("cut", from, from)));
        // Nothing after the last fault is checked.
        let stopped = next.unwrap_or(60_000) * MS;
        let kinds = vec!["reentrant"];
        History { clients: vec!["rust0"], kinds, stopped, ..history(holds, windows) }
    };
    keeps(no_progress, &after(4499, 4499, None));
    breaks(no_progress, &after(4501, 1000, None));
    breaks(no_progress, &after(1000, 4501, None));
    breaks(no_progress, &after(1000, 900, None));
    keeps(no_progress, &after(4501, 1000, Some(4000)));
    let paused = History { stalls: vec![stall("rust0", 1000, 3000)], ..after(1000, 5000, None) };
    keeps(no_progress, &paused);
    // Redisson held the lock without knowing it.
    let named = |key, to: u64| {
        let period = NamedJava { key, from: 950 * MS, to: to * MS };
        History { named_java: vec![period], ..after(5500, 1000, None) }
    };
    keeps(no_progress, &named("hot:0", 2000));
    breaks(no_progress, &named("hot:0", 1900));
    breaks(no_progress, &named("hot:1", 2000));
}

#[test]
fn losses_and_errors_need_a_fault_that_lists_them() {
    let one = |windows| history(vec![lost(hold("a", "k", 10_000, 10_500))], windows);
    breaks(unexplained_failures, &one(vec![]));
    keeps(unexplained_failures, &one(vec![window("pause", 10_100, 10_100)]));
    keeps(unexplained_failures, &one(vec![window("pause", 6000, 6500)]));
    breaks(unexplained_failures, &one(vec![window("pause", 6000, 6499)]));
    breaks(unexplained_failures, &one(vec![window("pause", 10_501, 10_600)]));
    breaks(
        unexplained_failures,
        &one(vec![Window { keys: vec!["pair:0".into()], ..window("string", 10_100, 10_200) }]),
    );
    breaks(
        unexplained_failures,
        &one(vec![Window { process: Some("b"), ..window("pause", 10_100, 10_200) }]),
    );
    let ran_out = Hold { lease_ms: 400, ..lost(hold("a", "k", 10_000, 10_500)) };
    keeps(unexplained_failures, &history(vec![ran_out.clone()], vec![]));
    let later = Hold { lease_ms: 600, ..ran_out };
    breaks(unexplained_failures, &history(vec![later.clone()], vec![]));
    // A deadline that was read is exact.
    let read = |end: u64, left: u64| Hold { end: end * MS, left: left * MS, last: "Held", ..later.clone() };
    keeps(unexplained_failures, &history(vec![read(10_200, 299)], vec![]));
    breaks(unexplained_failures, &history(vec![read(10_200, 300)], vec![]));
    // A nearby fault excuses only the losses and errors that it lists.
    breaks(unexplained_failures, &one(vec![window("cut", 10_100, 10_100)]));
    let taken = Hold { last: "Lost-DataLost", ..lost(hold("a", "k", 10_000, 10_500)) };
    breaks(unexplained_failures, &history(vec![taken.clone()], vec![window("pause", 10_100, 10_200)]));
    keeps(unexplained_failures, &history(vec![taken], vec![window("kill-server", 10_100, 10_200)]));
    let at_release = Hold { outcome: "Lost-Gone", ..hold("a", "k", 10_000, 10_500) };
    breaks(unexplained_failures, &history(vec![at_release.clone()], vec![window("latency", 10_100, 10_200)]));
    keeps(unexplained_failures, &history(vec![at_release], vec![window("force-unlock", 10_100, 10_200)]));
    let refused = |kind| History {
        calls: vec![Call { process: "a", outcome: "Refused-OOM", ..Call::default() }],
        ..history(vec![], vec![window(kind, 0, 100)])
    };
    keeps(unexplained_failures, &refused("oom"));
    breaks(unexplained_failures, &refused("readonly"));

    let failed = |outcome, limit_ms| History {
        calls: vec![Call { process: "a", outcome, limit_ms, ..Call::default() }],
        ..history(vec![], vec![])
    };
    breaks(unexplained_failures, &failed("Unavailable", 1000));
    breaks(unexplained_failures, &failed("Refused-OOM", 0));
    breaks(unexplained_failures, &failed("TimedOut", 1000));
    keeps(unexplained_failures, &failed("TimedOut", 20));
    let mut slow = failed("TimedOut", 250);
    breaks(unexplained_failures, &slow);
    slow.calls[0].delayed = 51 * MS;
    keeps(unexplained_failures, &slow);
    (slow.calls[0].delayed, slow.calls[0].end) = (0, 250 * MS);
    slow.stalls.push(stall("b", 100, 151));
    breaks(unexplained_failures, &slow);
    slow.stalls.push(stall("a", 100, 151));
    keeps(unexplained_failures, &slow);
    breaks(unexplained_failures, &failed("Unavailable", 20));
    keeps(unexplained_failures, &failed("Ok", 1000));
}

fn java(hold: Hold) -> Hold {
    Hold { first: "Java", last: "Java", ..hold }
}

fn share(share: u64, hold: Hold) -> Hold {
    Hold { share, ..hold }
}

#[test]
fn the_values_of_a_group_are_judged_separately() {
    let pair = |value| history(vec![hold("a", "group:hot/a", 100, 200), hold("b", value, 150, 300)], vec![]);
    keeps(overlaps, &pair("group:hot/b"));
    breaks(overlaps, &pair("group:hot/a"));
    let of_group = |key: &str| Window { keys: vec![key.into()], ..reset(120, 130) };
    let mut freed = pair("group:hot/a");
    freed.windows.push(of_group("group:hot"));
    keeps(overlaps, &freed);
    freed.windows[0] = of_group("group:other");
    breaks(overlaps, &freed);
}

#[test]
fn readers_share_and_writers_are_exclusive() {
    let reader = |process, start, end| hold(process, "readwrite:hot", start, end);
    let writer = |process, start, end| share(WRITER, reader(process, start, end));
    let readers = || vec![reader("a", 100, 300), reader("b", 110, 200), reader("c", 120, 400)];
    keeps(overlaps, &history(readers(), vec![]));
    let with = |hold: Hold| history(readers().into_iter().chain([hold]).collect(), vec![]);
    keeps(overlaps, &with(writer("d", 400, 500)));
    breaks(overlaps, &with(writer("d", 399, 500)));
    keeps(overlaps, &with(lost(writer("d", 399, 500))));
    breaks(overlaps, &history(vec![writer("a", 100, 200), reader("b", 199, 300)], vec![]));
    breaks(overlaps, &history(vec![writer("a", 100, 200), writer("b", 199, 300)], vec![]));
}

#[test]
fn a_redisson_that_frees_readers_counts_only_without_faults() {
    let reader = hold("a", "readwrite:hot", 10_000, 10_300);
    let holds = vec![reader.clone(), share(WRITER, Hold { process: "b", ..reader })];
    let near = |at, java_frees_readers| History {
        java_frees_readers,
        ..history(holds.clone(), vec![window("cut", at, at)])
    };
    keeps(overlaps, &near(6001, true));
    breaks(overlaps, &near(5999, true));
    breaks(overlaps, &near(6001, false));
    let others = Window { process: Some("rust1"), ..window("cut", 9000, 9000) };
    breaks(overlaps, &History { windows: vec![others], ..near(0, true) });
}

#[test]
fn no_more_permits_are_held_than_exist() {
    for key in ["semaphore:1", "javasemaphore:1", "expirable:1"] {
        let permits = |process, of, start, end| share(of, hold(process, key, start, end));
        let three = || vec![permits("a", 2, 100, 300), permits("b", 1, 110, 200), permits("c", 1, 200, 400)];
        keeps(overlaps, &history(three(), vec![]));
        let with = |hold: Hold| history(three().into_iter().chain([hold]).collect(), vec![]);
        breaks(overlaps, &with(permits("d", 1, 299, 500)));
        breaks(overlaps, &with(java(permits("java", 1, 299, 500))));
        keeps(overlaps, &with(permits("d", 1, 300, 500)));
        keeps(overlaps, &with(permits("d", 2, 300, 350)));
        breaks(overlaps, &with(permits("d", 3, 300, 350)));
    }
}

/// A generation of a semaphore since 50, in which four processes held three permits.
fn too_many(key: &'static str, window: Window) -> History {
    let holds = ["a", "b", "c", "d"].map(|process| hold(process, key, 10_000, 10_300));
    let generations = vec![Generation { key: key.into(), began: 50 * MS }];
    History { generations, ..history(holds.into(), vec![window]) }
}

#[test]
fn a_semaphore_counts_for_its_generation() {
    let by = |kind| window(kind, 100, 200);
    // Faults of the network or the server are no excuse.
    breaks(overlaps, &too_many("semaphore:1", by("cut")));
    breaks(overlaps, &too_many("semaphore:1", by("lose-reply")));
    // A process was killed, or a release was refused for good.
    keeps(overlaps, &too_many("semaphore:1", by("kill-client")));
    keeps(overlaps, &too_many("semaphore:1", by("acl-publish")));
    keeps(overlaps, &too_many("semaphore:1", reset(100, 200)));
    breaks(overlaps, &too_many("semaphore:1", reset(10_301, 10_400)));
    breaks(overlaps, &too_many("semaphore:1", Window { keys: vec!["hot:0".into()], ..reset(100, 200) }));
    breaks(overlaps, &too_many("semaphore:1", window("kill-client", 10, 20)));
    // Permits with leases expire, and a release counts once.
    breaks(overlaps, &too_many("expirable:1", by("kill-client")));
}

#[test]
fn a_semaphore_shared_with_java_counts_until_a_fault_hits_java() {
    keeps(overlaps, &too_many("javasemaphore:1", window("cut", 100, 200)));
    breaks(overlaps, &too_many("javasemaphore:1", window("cut", 10, 20)));
    breaks(overlaps, &too_many("javasemaphore:1", window("cut", 10_301, 10_400)));
    let others = Window { process: Some("rust1"), ..window("cut", 100, 200) };
    breaks(overlaps, &too_many("javasemaphore:1", others));
}

#[test]
fn no_write_happens_during_a_read_hold() {
    let reader = |written| Hold { read: 5, written, ..hold("a", "readwrite:hot", 100, 300) };
    let writer = share(WRITER, Hold { read: 5, ..hold("b", "readwrite:hot", 150, 200) });
    let seen = |written, writer: &Hold| history(vec![reader(written), writer.clone()], vec![]);
    keeps(changed_under_a_reader, &seen(5, &writer));
    breaks(changed_under_a_reader, &seen(200, &writer));
    keeps(changed_under_a_reader, &seen(200, &lost(writer.clone())));
    keeps(
        changed_under_a_reader,
        &History { holds: vec![lost(reader(200)), writer], ..history(vec![], vec![]) },
    );
    // Two readers that read the same value overwrote nothing.
    keeps(lost_updates, &history(vec![reader(200), Hold { process: "b", ..reader(200) }], vec![]));
}

#[test]
fn fencing_tokens_increase() {
    let with = |token, hold: Hold| Hold { token, ..hold };
    let first = || with(7, hold("a", "fenced:hot", 100, 200));
    let then = |second: Hold| history(vec![first(), second], vec![]);
    keeps(tokens_not_increasing, &then(with(8, hold("b", "fenced:hot", 300, 400))));
    breaks(tokens_not_increasing, &then(with(7, hold("b", "fenced:hot", 300, 400))));
    breaks(tokens_not_increasing, &then(with(6, java(hold("java", "fenced:hot", 300, 400)))));
    keeps(tokens_not_increasing, &then(with(6, hold("b", "fenced:long1", 300, 400))));
    // This hold asked before and was granted after.
    breaks(
        tokens_not_increasing,
        &then(with(6, Hold { asked: 50 * MS, ..hold("b", "fenced:hot", 300, 400) })),
    );
    // This one learned late of a token that it got before.
    let stopped = lost(with(6, Hold { asked: 50 * MS, ..hold("b", "fenced:hot", 300, 400) }));
    keeps(tokens_not_increasing, &then(stopped.clone()));
    // But not before it asked.
    breaks(tokens_not_increasing, &then(Hold { asked: 101 * MS, ..stopped }));
    let anew = |windows| history(vec![first(), with(1, hold("b", "fenced:hot", 300, 400))], windows);
    keeps(tokens_not_increasing, &anew(vec![reset(220, 250)]));
    breaks(tokens_not_increasing, &anew(vec![reset(20, 50)]));
    breaks(tokens_not_increasing, &anew(vec![Window { keys: vec!["fenced:hot".into()], ..reset(220, 250) }]));
}

#[test]
fn permits_are_neither_created_nor_lost() {
    let left = |key: &str, free, window: Option<Window>| History {
        generations: vec![Generation { key: key.into(), began: 50 * MS }],
        permits: vec![Permits { key: key.into(), free }],
        ..history(vec![], window.into_iter().collect())
    };
    for key in ["semaphore:1", "javasemaphore:1", "expirable:1"] {
        keeps(permits_add_up, &left(key, 3, None));
        breaks(permits_add_up, &left(key, 2, None));
        breaks(permits_add_up, &left(key, 4, None));
        let killed = || Some(window("kill-client", 100, 100));
        keeps(permits_add_up, &left(key, 2, killed()));
        breaks(permits_add_up, &left(key, 2, Some(window("kill-client", 40, 40))));
        breaks(permits_add_up, &History { permits: vec![], ..left(key, 3, None) });
        keeps(permits_add_up, &History { permits: vec![], ..left(key, 3, Some(reset(100, 200))) });
    }
    breaks(permits_add_up, &left("semaphore:1", 4, Some(window("kill-client", 100, 100))));
    keeps(permits_add_up, &left("semaphore:1", 3, Some(window("cut", 100, 100))));
    breaks(permits_add_up, &left("semaphore:1", 2, Some(window("cut", 100, 100))));
    // Redisson repeats a release.
    keeps(permits_add_up, &left("javasemaphore:1", 4, Some(window("cut", 100, 100))));
}

#[test]
fn a_permit_without_a_lease_reports_no_loss() {
    let through = |key| history(vec![hold("a", key, 1000, 5000)], vec![reset(2000, 2100)]);
    keeps(survived_record_loss, &through("semaphore:1"));
    breaks(survived_record_loss, &through("expirable:1"));
    breaks(survived_record_loss, &through("fair:long1"));
    let dark = |key| history(vec![hold("a", key, 1000, 5000)], vec![silence(2000, 6000)]);
    keeps(held_in_silence, &dark("javasemaphore:1"));
    breaks(held_in_silence, &dark("value:long1"));
}

#[test]
fn a_multi_lock_is_lost_with_its_member() {
    let lost = Hold { last: "Lost-Gone", ..lost(hold("a", "multi:1", 10_000, 10_500)) };
    let freed = |key: &str| Window { kind: "force-unlock", keys: vec![key.into()], ..reset(10_100, 10_200) };
    keeps(unexplained_failures, &history(vec![lost.clone()], vec![freed("multi:0")]));
    breaks(unexplained_failures, &history(vec![lost], vec![freed("hot:0")]));
}

#[test]
fn every_kind_is_acquired_again_after_a_fault() {
    let names = [
        "fair:hot",
        "fenced:hot",
        "spin:hot",
        "nonreentrant:hot",
        "value:hot",
        "group:hot/b",
        "semaphore:3",
        "expirable:3",
        "multi:0",
    ];
    for name in names {
        let kind = name.split(':').next().expect("it has one");
        let taken = |key: &'static str, at| {
            let mut holds = vec![hold("a", key, at, at + 1)];
            if kind == "multi" {
                holds.push(hold("a", "multi:1", 1200, 1201));
                holds.sort_by_key(|hold| hold.start);
            }
            History { kinds: vec![kind], ..history(holds, vec![window("cut", 900, 1000)]) }
        };
        keeps(no_progress, &taken(name, 4500));
        breaks(no_progress, &taken(name, 4701));
        breaks(no_progress, &taken("fair:long1", 1100));
    }
    // Readers alone are not enough.
    let both = |share_of_last| {
        let holds = vec![
            hold("a", "readwrite:hot", 1100, 1101),
            share(share_of_last, hold("b", "readwrite:hot", 1200, 1201)),
        ];
        History { kinds: vec!["readwrite"], ..history(holds, vec![window("cut", 900, 1000)]) }
    };
    keeps(no_progress, &both(WRITER));
    breaks(no_progress, &both(1));
}

#[test]
fn no_waiter_stays_stuck_after_a_fault() {
    let waited = |key, until| Hold { asked: 500 * MS, ..hold("a", key, until, until + 10) };
    let after = |hold, next| history(vec![hold], vec![window("cut", 900, 1000), window("cut", next, next)]);
    keeps(waited_too_long, &after(waited("k", 4500), 9000));
    breaks(waited_too_long, &after(waited("k", 4501), 9000));
    // The next fault came first.
    keeps(waited_too_long, &after(waited("k", 4501), 4500));
    keeps(waited_too_long, &after(Hold { asked: 1001 * MS, ..waited("k", 4501) }, 9000));
    // Two dead waiters are in the queue.
    keeps(waited_too_long, &after(waited("fair:hot", 4700), 9000));
    breaks(waited_too_long, &after(waited("fair:hot", 4701), 9000));
    // A Redisson whose reply was lost is the head of the queue, and gets the message of the release.
    let beside_java = |kind, until| {
        let holds = vec![java(hold("j", "fair:hot", 400, 410)), waited("fair:hot", until)];
        history(holds, vec![window(kind, 900, 1000), window(kind, 9000, 9000)])
    };
    keeps(waited_too_long, &beside_java("lose-reply", 6700));
    breaks(waited_too_long, &beside_java("lose-reply", 6701));
    breaks(waited_too_long, &beside_java("drop-pubsub", 4701));
    keeps(waited_too_long, &after(share(WRITER, waited("readwrite:hot", 8000)), 9000));
    keeps(waited_too_long, &after(waited("multi:0", 8000), 9000));
    for key in ["long:1", "fair:long1", "group:long1/a"] {
        keeps(waited_too_long, &after(waited(key, 8000), 9000));
    }
    breaks(waited_too_long, &after(waited("group:hot/a", 8000), 9000));
    // A request for several values waits for the holders of each.
    let mut both = after(waited("group:hot/a", 8000), 9000);
    both.holds.push(waited("group:hot/b", 8000));
    keeps(waited_too_long, &both);
}

#[test]
fn a_process_does_not_grow() {
    let beats = |last| {
        let beat = |at: u64, resident_kb| Beat { process: "a", at: at * MS, resident_kb, ..Beat::default() };
        let beats = vec![beat(0, 1000), beat(20_001, 9000), beat(30_000, 12_000), beat(60_000, last)];
        History { beats, ..history(vec![], vec![]) }
    };
    keeps(memory_growth, &beats(9000 + 16 * 1024));
    breaks(memory_growth, &beats(9001 + 16 * 1024));
}

#[test]
fn counters_add_up() {
    let counted = |released, unended, left| {
        let counted = vec![Counted { begun: 3, released, lost: 1, unended, left, ..Counted::default() }];
        History { counted, ..history(vec![], vec![]) }
    };
    keeps(miscounted, &counted(2, 0, 0));
    breaks(miscounted, &counted(1, 0, 0));
    breaks(miscounted, &counted(3, 0, 0));
    breaks(miscounted, &counted(1, 1, 0));
    breaks(miscounted, &counted(2, 0, 1));
}

#[test]
fn a_free_lock_goes_to_its_waiters() {
    let after = |asked: u64, start: u64| Hold { asked: asked * MS, ..hold("b", "k", start, start + 10) };
    let pair = |asked, start| history(vec![hold("a", "k", 10_000, 10_100), after(asked, start)], vec![]);
    keeps(idle_while_wanted, &pair(10_050, 10_350));
    breaks(idle_while_wanted, &pair(10_050, 10_351));
    // Nobody waited when it became free.
    keeps(idle_while_wanted, &pair(10_101, 11_000));
    // A passing key counts from the request.
    let passing = |asked| Hold { key: "passing:1", ..after(asked, 11_000) };
    let passed = |asked| {
        history(vec![Hold { key: "passing:1", ..hold("a", "k", 10_000, 10_100) }, passing(asked)], vec![])
    };
    keeps(idle_while_wanted, &passed(10_750));
    breaks(idle_while_wanted, &passed(10_749));
    breaks(idle_while_wanted, &history(vec![passing(10_749)], vec![]));
    // Nothing counts before the warm-up.
    keeps(idle_while_wanted, &History { warm: 10_101 * MS, ..pair(10_050, 11_000) });
    breaks(idle_while_wanted, &History { warm: 10_100 * MS, ..pair(10_050, 11_000) });
    let lost_before = |outcome| Hold { outcome, ..hold("a", "k", 10_000, 10_100) };
    let behind = |outcome| history(vec![lost_before(outcome), after(10_050, 11_000)], vec![]);
    breaks(idle_while_wanted, &behind("Ok"));
    keeps(idle_while_wanted, &behind("NotHeld"));
    let with = |window: Window| History { windows: vec![window], ..pair(10_050, 11_000) };
    keeps(idle_while_wanted, &with(window("drop-pubsub", 10_250, 10_250)));
    breaks(idle_while_wanted, &with(window("drop-pubsub", 10_249, 10_249)));
    keeps(idle_while_wanted, &with(window("kill-client", 7250, 7250)));
    breaks(idle_while_wanted, &with(window("kill-client", 7249, 7249)));
    breaks(idle_while_wanted, &with(window("script-flush", 10_100, 10_100)));
    // A client without answers gives up its requests once it finds the connection dead, however long the fault lasts.
    keeps(idle_while_wanted, &with(window("deaf", 9000, 10_250)));
    breaks(idle_while_wanted, &with(window("deaf", 9000, 10_249)));
    breaks(idle_while_wanted, &with(window("deaf", 8999, 10_900)));
    breaks(idle_while_wanted, &with(Window { keys: vec!["other".into()], ..window("cut", 10_050, 10_060) }));
    // Stalls of every process count, and overlapping stalls count once.
    let stalled = |stalls| History { stalls, ..pair(10_050, 11_000) };
    keeps(idle_while_wanted, &stalled(vec![stall("c", 10_200, 10_850)]));
    breaks(idle_while_wanted, &stalled(vec![stall("c", 10_200, 10_849)]));
    breaks(idle_while_wanted, &stalled(vec![stall("b", 10_200, 10_600), stall("c", 10_300, 10_700)]));
    keeps(idle_while_wanted, &stalled(vec![stall("b", 10_200, 10_600), stall("c", 10_600, 10_850)]));
    // Redisson held the lock without knowing it. Its own fault is no excuse.
    let period = |key, to: u64| NamedJava { key, from: 10_050 * MS, to: to * MS };
    let named = |named_java| {
        let of_java = java(hold("java", "other", 10_000, 10_100));
        let mut history = History { named_java, ..with(window("drop-normal", 10_000, 10_010)) };
        history.holds.insert(0, of_java);
        history
    };
    breaks(idle_while_wanted, &named(vec![]));
    keeps(idle_while_wanted, &named(vec![period("k", 10_860)]));
    breaks(idle_while_wanted, &named(vec![period("k", 10_600)]));
    breaks(idle_while_wanted, &named(vec![period("other", 10_860)]));
    // It may be the turn of a Java thread.
    let fair = |first: Hold| history(vec![first, Hold { key: "fair:hot", ..after(10_050, 11_000) }], vec![]);
    breaks(idle_while_wanted, &fair(hold("a", "fair:hot", 10_000, 10_100)));
    keeps(idle_while_wanted, &fair(java(hold("java", "fair:hot", 10_000, 10_100))));
    // A hold in between outlasts the others.
    let mut three = pair(10_050, 11_000);
    three.holds.insert(1, hold("c", "k", 10_150, 10_900));
    assert_eq!(idle_while_wanted(&three).found.len(), 0);
}

#[test]
fn a_rule_that_never_applied_is_named() {
    let mut quiet = history(vec![hold("a", "k", 100, 200)], vec![]);
    quiet.kinds = vec!["reentrant"];
    let judgement = judge(&quiet);
    assert!(judgement.counts.contains(&("certain holds do not overlap", 1, 0)));
    assert!(judgement.unexercised.contains(&"calls return on time"));
    assert!(!judgement.unexercised.contains(&"fencing tokens increase"));
}
