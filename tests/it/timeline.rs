//! A timeline of real locks, and the page and the trace in a real browser.

use crate::support::browser::Browser;
use crate::support::{BUSY_WAIT, Server, setting};
use redisson_lock::{Client, HoldState, LossReason, Owner, Timeline, TimelineChange, TimelineEvent};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A name that ends the script, becomes an element, or loads a picture, if it is not escaped.
const HOSTILE: &str =
    "\"</script ><img src='http://127.0.0.1:9/x' onerror='document.title=1'>\u{1b}[31m\r\n锁 \u{202e}&lt;";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A page that is removed with it.
struct Page(PathBuf);

impl Page {
    fn of(timeline: &Timeline, name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("redisson-lock-{}-{name}.html", std::process::id()));
        timeline.write_page(File::create(&path).unwrap()).unwrap();
        Self(path)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Begin and end of the slices of a lock and a category, in order, and the texts of their ends.
fn slices(trace: &Value, lock: &str, category: &str) -> (Vec<(f64, f64)>, BTreeMap<String, usize>) {
    let events = trace["traceEvents"].as_array().unwrap();
    let is_name =
        |event: &&Value| event["name"] == "process_name" && event["args"]["name"] == format!("lock {lock}");
    let pid = &events.iter().find(is_name).unwrap_or_else(|| panic!("no track of {lock}"))["pid"];
    let (mut found, mut ends) = (Vec::new(), BTreeMap::new());
    for event in events.iter().filter(|event| event["cat"] == category && &event["pid"] == pid) {
        let from = event["ts"].as_f64().unwrap();
        found.push((from, from + event["dur"].as_f64().unwrap_or(0.0)));
        let end = event["args"].get("end").unwrap_or(&event["args"]["reason"]);
        *ends.entry(end.as_str().unwrap().to_owned()).or_insert(0) += 1;
        assert!(event["args"]["owner"].as_str().is_some_and(|owner| !owner.is_empty()));
    }
    found.sort_by(|a, b| a.partial_cmp(b).unwrap());
    (found, ends)
}

fn ends<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.map(|(end, count)| (end.to_owned(), count)).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_records_its_holds_waits_refusals_and_losses() {
    let server = Server::start();
    let timeline = Arc::new(Timeline::new(10_000).with_source("test"));
    let connect = || async {
        let builder = Client::builder().observer(timeline.clone()).watchdog_timeout(ms(2000));
        builder.connect(server.url()).await.unwrap()
    };
    let clients = [connect().await, connect().await];
    let tasks = (0..8).map(|n| {
        let mutex = clients[n % 2].mutex("contended");
        tokio::spawn(async move {
            for _ in 0..10 {
                let guard = mutex.lock().await.unwrap();
                tokio::task::yield_now().await;
                guard.unlock().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }

    let lost = clients[0].mutex("lost").lock().await.unwrap();
    assert!(clients[1].mutex("lost").try_lock().await.unwrap().is_none());
    assert!(clients[1].mutex("lost").try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    let _: () = redis::cmd("DEL").arg("lost").query(&mut server.cli()).unwrap();
    // A renewal finds it.
    assert_eq!(lost.lost().await, HoldState::Lost(LossReason::Gone));
    let lock = clients[0].lock("re-entered").with_owner(&Owner::unique());
    let outer = lock.lock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    outer.unlock().await.unwrap();
    let semaphore = clients[0].semaphore("permits");
    semaphore.try_set_permits(2).await.unwrap();
    let permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    for permit in permits {
        permit.release().await.unwrap();
    }
    let held = clients[1].mutex("held").lock().await.unwrap();

    let mut trace = Vec::new();
    timeline.write_trace(&mut trace).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let (holds, how) = slices(&trace, "contended", "hold");
    assert_eq!(how, ends([("released", 80)]));
    assert!(holds.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.0005), "holds overlap: {holds:?}");
    let (waits, how) = slices(&trace, "contended", "wait");
    assert_eq!(how, ends([("acquired", waits.len())]));
    let stats = clients.each_ref().map(Client::stats);
    let waited: u64 = stats.iter().map(|stats| stats.acquired_after_wait + stats.handed_over).sum();
    // The permits may count, too.
    assert!(waits.len() >= 7 && waits.len() as u64 >= waited - 2, "{} waits, {waited}", waits.len());

    let (_, how) = slices(&trace, "lost", "hold");
    assert_eq!(how, ends([("lost: the record is gone", 1)]));
    assert_eq!(slices(&trace, "lost", "loss").1, ends([("the record is gone", 1)]));
    let mut refusals = slices(&trace, "lost", "wait").1;
    refusals.extend(slices(&trace, "lost", "refusal").1);
    assert_eq!(refusals, ends([("busy", 1), ("timed out", 1)]));
    assert_eq!(slices(&trace, "re-entered", "hold").1, ends([("released", 1)]));
    assert_eq!(slices(&trace, "re-entered", "re-entry").1, ends([("re-entered", 1)]));
    let (permits, how) = slices(&trace, "permits", "hold");
    assert_eq!(how, ends([("released", 2)]));
    assert!(permits[1].0 < permits[0].1, "the permits are held at one time: {permits:?}");
    assert_eq!(slices(&trace, "held", "hold").1, ends([("still held", 1)]));
    held.unlock().await.unwrap();
}

#[test]
fn a_browser_shows_tracks_holds_waits_and_losses_without_the_network() {
    let timeline = Timeline::new(252);
    let event = |at, lock: &str, owner: &str, change| {
        timeline.record(TimelineEvent::new(ms(at), lock, owner, change).with_source("java"));
    };
    let acquired = |hold, waited| TimelineChange::Acquired { call: hold, hold, waited: ms(waited) };
    let released = |hold, held| TimelineChange::Released { hold, held: ms(held) };
    event(0, "dropped", "nobody", released(1000, 0));
    for n in 0..100 {
        event(n * 10, "orders", "thread-7", acquired(n, n % 3));
        event(n * 10 + 9, "orders", "thread-7", released(n, 9));
    }
    for n in 0..20 {
        event(400 + n, "readers", "reader", acquired(200 + n, 0));
    }
    for n in 0..20 {
        event(900 + n, "readers", "reader", released(200 + n, 500));
    }
    event(100, HOSTILE, HOSTILE, TimelineChange::Waiting { call: 300 });
    event(500, HOSTILE, HOSTILE, acquired(300, 400));
    event(510, HOSTILE, HOSTILE, TimelineChange::ReEntered { call: 302, hold: 300, waited: Duration::ZERO });
    let busy = TimelineChange::Refused { call: 303, waited: Duration::ZERO, outcome: "busy".into() };
    event(520, HOSTILE, "other", busy);
    event(800, HOSTILE, HOSTILE, TimelineChange::Lost { hold: 300, held: ms(300), reason: HOSTILE.into() });
    event(810, HOSTILE, "other", acquired(301, 0));
    for n in 0..6 {
        let owner = format!("waiter-{n}");
        event(820, HOSTILE, &owner, TimelineChange::Waiting { call: 400 + n });
    }
    let page = Page::of(&timeline, "page");

    let mut browser = Browser::start();
    browser.open(&page.0);
    let text = |browser: &mut Browser, selector: &str| {
        let value = browser.evaluate(&format!("document.querySelector({selector:?}).textContent"));
        value.as_str().unwrap_or_else(|| panic!("{selector}: {value}")).to_owned()
    };
    assert_eq!(browser.evaluate("document.querySelectorAll('.track').length"), 3);
    let counts = "[...document.querySelectorAll('.track')].map(
        row => [row.dataset.holds, row.dataset.waits, row.dataset.losses].join(' ')).join(', ')";
    assert_eq!(browser.evaluate(counts), "2 7 1, 100 66 0, 20 0 0");
    // One rectangle for each slice, because at this width none hides another.
    let shapes =
        "['.hold', '.wait', '.loss', '.re-entry', '.refusal', '.hold.lost', '.hold.open', '.wait.open'].map(
        shape => document.querySelectorAll('svg ' + shape).length).join(' ')";
    assert_eq!(browser.evaluate(shapes), "122 73 1 1 1 1 1 6");
    let summary = text(&mut browser, "#summary");
    assert!(summary.starts_with("3 locks, 122 holds, 73 waits, 1 loss in "), "{summary}");
    let dropped = text(&mut browser, "#dropped");
    assert_eq!(dropped, "1 older event dropped, because the timeline keeps 252 events.");

    // The names are text, and whole.
    assert_eq!(text(&mut browser, ".track h2"), HOSTILE);
    assert_eq!(browser.evaluate("document.title"), "Who held what when");
    assert_eq!(browser.evaluate("document.images.length"), 0);
    browser.point_at(".hold.lost");
    assert_eq!(text(&mut browser, "#tip b"), HOSTILE);
    let details = text(&mut browser, "#tip dl");
    let end = format!("holds300 mswaited400 msre-entries1endlost: {HOSTILE}lock{HOSTILE}");
    assert!(details.starts_with(&end), "{details:?}");
    browser.point_at("svg path.loss");
    let loss = text(&mut browser, "#tip dl");
    assert!(loss.starts_with(&format!("lost{HOSTILE}")) && loss.ends_with("processjavaat800 ms"), "{loss:?}");
    browser.point_at("h1");
    assert_eq!(browser.evaluate("document.querySelector('#tip').hidden"), true);

    // Slices outside the part that is shown are not drawn.
    let shown = "document.querySelectorAll('svg .hold').length";
    for key in ["+", "+", "+"] {
        browser.press(key);
    }
    let zoomed = browser.evaluate(shown).as_u64().unwrap();
    assert!((20..60).contains(&zoomed), "{zoomed}");
    browser.press("0");
    assert_eq!(browser.evaluate(shown), 122);

    assert_eq!(browser.requested(), [format!("file://{}", page.0.display())]);
    assert_eq!(browser.problems(), Vec::<&Value>::new());
}

/// speedscope is one of the viewers of this format. It has a view for each lane.
#[test]
fn speedscope_reads_the_trace() {
    let timeline = Timeline::new(100);
    for n in 0..3 {
        let (begin, end) = (ms(10 * n), ms(10 * n + 25));
        let acquired = TimelineChange::Acquired { call: n, hold: n, waited: ms(1) };
        timeline.record(TimelineEvent::new(begin, "stock", HOSTILE, acquired).with_kind("read"));
        let lost = TimelineChange::Lost { hold: n, held: ms(25), reason: HOSTILE.into() };
        timeline.record(TimelineEvent::new(end, "stock", HOSTILE, lost).with_kind("read"));
    }
    let mut trace = Vec::new();
    timeline.write_trace(&mut trace).unwrap();
    // Its command line hands over a file by such a script.
    let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, trace);
    let script = std::env::temp_dir().join(format!("redisson-lock-{}-trace.js", std::process::id()));
    fs::write(&script, format!("speedscope.loadFileFromBase64('timeline.json', '{base64}')")).unwrap();

    let mut browser = Browser::start();
    let viewer = PathBuf::from(setting("REDISSON_LOCK_NODE_PEER")).join("speedscope/dist/release/index.html");
    browser.open_at(&viewer, &format!("#localProfilePath={}", script.display()));
    // Three holds overlap, and the waits do not.
    browser.text_with("lock stock (pid 1), held 1 (tid 2) (1/4)");
    fs::remove_file(script).unwrap();
    assert_eq!(browser.problems(), Vec::<&Value>::new());
}

/// This process knows only of its own holds and waits that they go on.
#[test]
fn holds_of_other_processes_are_drawn_until_the_last_event() {
    let timeline = Timeline::new(10);
    let acquired = || TimelineChange::Acquired { call: 1, hold: 1, waited: Duration::ZERO };
    let begin = Timeline::now() - ms(900);
    timeline.record(TimelineEvent::new(begin, "n", "there", acquired()).with_source("java"));
    let waiting = TimelineChange::Waiting { call: 2 };
    timeline.record(TimelineEvent::new(begin + ms(10), "n", "there", waiting).with_source("java"));
    timeline.record(TimelineEvent::new(begin + ms(30), "m", "here", acquired()));
    let mut json = Vec::new();
    timeline.write_trace(&mut json).unwrap();
    let trace: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(slices(&trace, "n", "hold").0, [(0.0, 30_000.0)]);
    assert_eq!(slices(&trace, "n", "wait").0, [(10_000.0, 30_000.0)]);
    let (from, until) = slices(&trace, "m", "hold").0[0];
    assert!(from == 30_000.0 && until >= 900_000.0, "{from} {until}");
}
