//! The outputs for events that are written here. `tests/it/timeline.rs` has those of real locks, and a browser.

use crate::timeline::Timeline;
use crate::timeline::event::{TimelineChange, TimelineEvent};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Names that break out of a string, an element or a line, if they are not escaped.
const HOSTILE: [&str; 8] = [
    "\"quoted\" \\ back",
    "</script><script>document.title = 'owned'</script>",
    "<!-- <script> ]]> -->",
    "\u{0}\u{1b}[31m\r\n\t\u{7f}\u{9b}",
    "锁 🔒 ß\u{301}",
    "\u{202e}desrever \u{2028}\u{2029}\u{feff}",
    "@TRACE@ ${name} {{x}} %s &lt;",
    "",
];

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn acquired(hold: u64, waited: u64) -> TimelineChange {
    TimelineChange::Acquired { call: hold, hold, waited: ms(waited) }
}

fn released(hold: u64, held: u64) -> TimelineChange {
    TimelineChange::Released { hold, held: ms(held) }
}

fn lost(hold: u64, held: u64) -> TimelineChange {
    TimelineChange::Lost { hold, held: ms(held), reason: "the record is gone".into() }
}

fn timeline(events: impl IntoIterator<Item = (u64, &'static str, &'static str, TimelineChange)>) -> Timeline {
    let timeline = Timeline::new(100);
    for (at, lock, owner, change) in events {
        timeline.record(TimelineEvent::new(ms(at), lock, owner, change).with_source("elsewhere"));
    }
    timeline
}

fn trace(timeline: &Timeline) -> Value {
    let mut json = Vec::new();
    timeline.write_trace(&mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn events(trace: &Value) -> &[Value] {
    trace["traceEvents"].as_array().unwrap()
}

/// The owner, begin, length and end of each slice of a category, in ms.
fn slices(trace: &Value, category: &str) -> Vec<(String, f64, f64, String)> {
    let of_category = events(trace).iter().filter(|event| event["ph"] == "X" && event["cat"] == category);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let ms = |value: &Value| value.as_f64().unwrap() / 1000.0;
    of_category
        .map(|event| (text(&event["name"]), ms(&event["ts"]), ms(&event["dur"]), text(&event["args"]["end"])))
        .collect()
}

fn slice(owner: &str, from: f64, length: f64, end: &str) -> (String, f64, f64, String) {
    (owner.to_owned(), from, length, end.to_owned())
}

/// Checks what the format requires of each event, and that slices of one lane do not overlap. Returns the number of slices.
fn assert_valid(trace: &Value) -> usize {
    let (mut processes, mut threads) = (BTreeMap::new(), BTreeMap::new());
    let mut ends: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for event in events(trace) {
        let (pid, tid) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let ts = event["ts"].as_f64().unwrap();
        let name = event["name"].as_str().unwrap();
        match event["ph"].as_str().unwrap() {
            "M" if name == "process_name" => {
                assert_eq!(processes.insert(pid, event["args"]["name"].as_str().unwrap()), None);
            }
            "M" if name == "thread_name" => {
                assert!(event["args"]["name"].is_string());
                assert_eq!(threads.insert(tid, pid), None);
            }
            "M" => assert!(event["args"]["sort_index"].is_u64() && name.ends_with("_sort_index")),
            "X" => ends.entry(tid).or_default().push((ts, event["dur"].as_f64().unwrap())),
            "i" => assert_eq!(event["s"], "t"),
            phase => panic!("unknown phase {phase}"),
        }
        if event["ph"] != "M" {
            assert_eq!(threads.get(&tid), Some(&pid).filter(|_| tid != pid), "a slice in no lane: {event}");
            assert!(processes.contains_key(&pid) && ts >= 0.0);
            assert!(["owner", "source", "kind"].iter().all(|field| event["args"][field].is_string()));
        }
    }
    let total = trace["otherData"]["duration_us"].as_f64().unwrap();
    for lane in ends.values_mut() {
        lane.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert!(lane.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0 + 0.0005), "overlap: {lane:?}");
        assert!(lane.iter().all(|(ts, dur)| *dur >= 0.0 && ts + dur <= total + 0.0005));
    }
    ends.values().map(Vec::len).sum()
}

#[test]
fn holds_waits_and_losses_become_slices_and_points() {
    let busy = TimelineChange::Refused { call: 11, waited: Duration::ZERO, outcome: "busy".into() };
    let timed_out = TimelineChange::Refused { call: 12, waited: ms(7), outcome: "timed out".into() };
    let timeline = timeline([
        (100, "a", "one", acquired(1, 0)),
        (105, "a", "two", TimelineChange::Waiting { call: 2 }),
        (110, "a", "one", TimelineChange::ReEntered { call: 10, hold: 1, waited: Duration::ZERO }),
        (111, "a", "three", busy),
        (112, "a", "four", timed_out),
        (120, "a", "one", released(1, 20)),
        // It has waited from its call on, and not from the busy reply on.
        (121, "a", "two", acquired(2, 17)),
        (130, "a", "two", lost(2, 9)),
        // Nothing else of this hold was recorded.
        (140, "b", "five", released(3, 25)),
    ]);
    let trace = trace(&timeline);
    assert_eq!(assert_valid(&trace), 5);
    let holds = [
        slice("one", 0.0, 20.0, "released"),
        slice("two", 21.0, 9.0, "lost: the record is gone"),
        slice("five", 15.0, 25.0, "released"),
    ];
    assert_eq!(slices(&trace, "hold"), holds);
    let waits = [slice("two", 4.0, 17.0, "acquired"), slice("four", 5.0, 7.0, "timed out")];
    assert_eq!(slices(&trace, "wait"), waits);
    let points: Vec<_> = events(&trace).iter().filter(|event| event["ph"] == "i").collect();
    let of = |at: usize| (points[at]["cat"].as_str().unwrap(), points[at]["ts"].as_f64().unwrap() / 1000.0);
    assert_eq!(
        (points.len(), of(0), of(1), of(2)),
        (3, ("re-entry", 10.0), ("refusal", 11.0), ("loss", 30.0))
    );
    assert_eq!(points[2]["args"]["reason"], "the record is gone");
    let args = &events(&trace).iter().find(|event| event["name"] == "two" && event["cat"] == "hold").unwrap()
        ["args"];
    assert_eq!(args["waited_us"], 17_000.0);
    assert_eq!((&args["source"], &args["kind"]), (&"elsewhere".into(), &"reentrant lock".into()));
}

#[test]
fn what_has_not_ended_is_drawn_until_the_end() {
    let mut open =
        vec![(10, "a", "one", acquired(1, 0)), (15, "a", "two", TimelineChange::Waiting { call: 2 })];
    open.push((30, "b", "three", acquired(1, 0)));
    let timeline = timeline(open);
    let expected = [slice("one", 0.0, 20.0, "still held"), slice("three", 20.0, 0.0, "still held")];
    assert_eq!(slices(&trace(&timeline), "hold"), expected);
    assert_eq!(slices(&trace(&timeline), "wait"), [slice("two", 5.0, 15.0, "still waiting")]);
    // A hold of this process goes on until now.
    let held = Timeline::new(10);
    held.record(TimelineEvent::new(Timeline::now() - ms(50), "c", "four", acquired(1, 0)));
    let (_, from, length, _) = slices(&trace(&held), "hold").remove(0);
    assert!(from == 0.0 && length >= 50.0, "{length}");
}

#[test]
fn holds_that_overlap_are_in_lanes_of_their_own() {
    let readers = (0..30u64).flat_map(|n| {
        let hold = (n * 10, "shared", "reader", acquired(n, 0));
        [hold, (n * 10 + 25, "shared", "reader", released(n, 25))]
    });
    let trace = trace(&timeline(readers));
    assert_eq!(assert_valid(&trace), 30);
    let lanes = events(&trace).iter().filter(|event| event["name"] == "thread_name");
    assert_eq!(lanes.map(|lane| &lane["args"]["name"]).collect::<Vec<_>>(), ["held 1", "held 2", "held 3"]);
}

#[test]
fn exclusive_holds_without_an_overlap_share_one_lane() {
    let turns = (0..40u64).flat_map(|n| {
        let owner = ["one", "two", "three"][n as usize % 3];
        [(n * 10, "x", owner, acquired(n, 8)), (n * 10 + 10, "x", owner, released(n, 10))]
    });
    let trace = trace(&timeline(turns));
    assert_eq!(assert_valid(&trace), 80);
    let holds = events(&trace).iter().filter(|event| event["cat"] == "hold");
    assert_eq!(holds.map(|hold| hold["tid"].as_u64()).collect::<std::collections::BTreeSet<_>>().len(), 1);
}

#[test]
fn equal_numbers_of_two_processes_are_two_holds() {
    let timeline = Timeline::new(10);
    for (source, at) in [("java", 0), ("rust", 20)] {
        timeline.record(TimelineEvent::new(ms(at), "a", source, acquired(1, 0)).with_source(source));
    }
    for (source, at) in [("rust", 30), ("java", 10)] {
        timeline.record(TimelineEvent::new(ms(at), "a", source, released(1, 10)).with_source(source));
    }
    let holds = [slice("java", 0.0, 10.0, "released"), slice("rust", 20.0, 10.0, "released")];
    assert_eq!(slices(&trace(&timeline), "hold"), holds);
}

#[test]
fn the_oldest_events_are_dropped_and_counted() {
    let timeline = Timeline::new(6);
    assert!(timeline.is_empty());
    for n in 0..100 {
        timeline.record(TimelineEvent::new(ms(n), "a", n.to_string(), acquired(n, 0)));
        timeline.record(TimelineEvent::new(ms(n), "a", n.to_string(), released(n, 0)));
    }
    assert_eq!((timeline.len(), timeline.dropped()), (6, 194));
    assert!(timeline.ring().events.capacity() < 32);
    let trace = trace(&timeline);
    assert_eq!(assert_valid(&trace), 3);
    assert_eq!(
        (&trace["otherData"]["dropped_events"], &trace["otherData"]["recorded_events"]),
        (&194.into(), &6.into())
    );
    assert!(format!("{timeline:?}").contains("dropped: 194"));
}

#[test]
fn an_empty_timeline_is_a_valid_trace() {
    let trace = trace(&Timeline::new(0));
    assert_eq!((assert_valid(&trace), events(&trace).len()), (0, 0));
}

#[test]
fn hostile_names_stay_names() {
    let timeline = Timeline::new(100).with_source(HOSTILE[1]);
    for (n, name) in (0..).zip(HOSTILE) {
        let reason = TimelineChange::Lost { hold: n, held: ms(1), reason: name.into() };
        for change in [acquired(n, 1), reason] {
            let event = TimelineEvent::new(ms(n + 1), name, name, change).with_kind(name);
            timeline.record(if n == 0 { event } else { event.with_source(name) });
        }
    }
    let trace = trace(&timeline);
    assert_eq!(assert_valid(&trace), 2 * HOSTILE.len());
    let mut owners: Vec<String> = slices(&trace, "hold").into_iter().map(|slice| slice.0).collect();
    let mut expected = HOSTILE.map(str::to_owned);
    owners.sort();
    expected.sort();
    assert_eq!(owners, expected);

    let mut page = Vec::new();
    timeline.write_page(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    // The trace ends at the first end of a script, and is the same.
    let (_, rest) = page.split_once("id=\"trace\">").unwrap();
    let (inside, rest) = rest.split_once("</script>").unwrap();
    assert_eq!(serde_json::from_str::<Value>(inside).unwrap(), trace);
    assert!(!inside.contains(['<', '>', '&', '\u{2028}', '\u{1b}', '\0']));
    assert_eq!(rest.matches("</script>").count(), 1);
}
