//! `Metrics`: each metric and each label is moved by its event. One test, because a process has one recorder.

use crate::support::{BUSY_WAIT, Proxy, Server, eventually};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redisson_lock::{Client, HandOff, Lock, LossReason, Metrics};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(2);

/// The metrics of the process.
struct Recorded {
    recorder: Snapshotter,
    /// The changes since the last look at their group, by the group. A snapshot resets all groups.
    unseen: Mutex<HashMap<Option<String>, BTreeMap<String, Value>>>,
}

/// The change of a counter or gauge, or the values of a histogram.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Counter(u64),
    Gauge(f64),
    Histogram(Vec<f64>),
}

impl Value {
    fn add(&mut self, later: Self) {
        match (self, later) {
            (Self::Counter(number), Self::Counter(more)) => *number += more,
            (Self::Gauge(number), Self::Gauge(more)) => *number += more,
            (Self::Histogram(values), Self::Histogram(more)) => values.extend(more),
            (this, later) => panic!("{later:?} after {this:?}"),
        }
    }
}

impl Recorded {
    fn start() -> Self {
        let recorder = DebuggingRecorder::new();
        let this = Self { recorder: recorder.snapshotter(), unseen: Mutex::default() };
        recorder.install().unwrap();
        this
    }

    /// Each metric of the group, or without one, that moved since the last look, as `name{label="value",..}`.
    fn moved(&self, group: Option<&str>) -> BTreeMap<String, Value> {
        let mut unseen = self.unseen.lock().unwrap();
        for (key, _, _, value) in self.recorder.snapshot().into_vec() {
            let (_, key) = key.into_parts();
            let mut labels: Vec<_> = key.labels().map(|label| (label.key(), label.value())).collect();
            let group = labels.pop_if(|(key, _)| *key == "group").map(|(_, value)| value.to_owned());
            let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
            let value = match value {
                DebugValue::Counter(0) => continue,
                DebugValue::Counter(number) => Value::Counter(number),
                DebugValue::Gauge(number) => Value::Gauge(number.0),
                DebugValue::Histogram(values) if values.is_empty() => continue,
                DebugValue::Histogram(values) => {
                    Value::Histogram(values.iter().map(|value| value.0).collect())
                }
            };
            let name = format!("{}{{{}}}", key.name(), labels.join(","));
            match unseen.entry(group).or_default().entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => entry.get_mut().add(value),
            }
        }
        unseen.remove(&group.map(str::to_owned)).unwrap_or_default()
    }

    /// Collects what moves in the group until `is_complete`: an event reaches an observer shortly after it is counted, and a snapshot is not
    /// one moment.
    async fn until(
        &self,
        group: &str,
        is_complete: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        eventually(|| {
            self.moved(Some(group)).into_iter().for_each(|(name, value)| match all.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => entry.get_mut().add(value),
            });
            is_complete(&all)
        })
        .await;
        all
    }

    /// Asserts that the acquires and ends of holds of the group since the last call are these.
    fn assert_moved(&self, group: &str, expected: &[&str]) {
        let timed = |(name, value): (String, Value)| match value {
            Value::Histogram(values) if !name.starts_with("redisson_lock_renewal") => {
                assert!(values.iter().all(|seconds| (0.0..60.0).contains(seconds)), "{values:?}");
                Some(format!("{} {}", values.len(), name.trim_start_matches("redisson_lock_")))
            }
            _ => None,
        };
        let moved: Vec<_> = self.moved(Some(group)).into_iter().filter_map(timed).collect();
        assert_eq!(moved, expected);
    }
}

fn run(server: &Server, words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.cli()).unwrap();
}

async fn wait_for_lock(client: &Client, lock: &Lock) -> tokio::task::JoinHandle<()> {
    let waiting = client.stats().waiting;
    let lock = lock.clone();
    let waits = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() });
    eventually(|| client.stats().waiting == waiting + 1).await;
    waits
}

#[tokio::test(flavor = "multi_thread")]
async fn each_metric_is_moved_by_its_event() {
    let recorded = Recorded::start();
    let mut server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let metrics = Metrics::new().metrics_group(|name| name.split(':').next().unwrap().to_owned());
    let builder = Client::builder().watchdog_timeout(LEASE).response_timeout(LEASE / 2);
    // No limit of time ends a series of hand-offs, on a slow machine either.
    let hand_off = HandOff::new().max_time(LEASE).max_time_alone(LEASE);
    let client = builder.hand_off(hand_off).observer(Arc::new(metrics)).connect(proxy.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();

    // Outcomes of calls without contention, and gauges.
    let lock = client.lock("plain:1");
    let guard = lock.lock().await.unwrap();
    drop(lock.lock().await.unwrap());
    let moved = recorded.moved(Some("plain"));
    assert_eq!(moved["redisson_lock_held{kind=\"reentrant lock\"}"], Value::Gauge(1.0), "{moved:?}");
    let acquired =
        "redisson_lock_acquire_seconds{kind=\"reentrant lock\",outcome=\"acquired\",contended=\"false\"}";
    assert!(matches!(&moved[acquired], Value::Histogram(values) if values.len() == 2), "{moved:?}");
    guard.unlock().await.unwrap();
    let moved = recorded.moved(Some("plain"));
    assert_eq!(moved["redisson_lock_held{kind=\"reentrant lock\"}"], Value::Gauge(-1.0), "{moved:?}");
    let released = "redisson_lock_hold_seconds{kind=\"reentrant lock\",end=\"released\"}";
    assert!(matches!(&moved[released], Value::Histogram(values) if values.len() == 1), "{moved:?}");

    // Outcomes with contention, and a fallback to the script.
    let lock = client.mutex("busy:1");
    let guard = other.lock("busy:1").lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    assert_eq!(recorded.moved(Some("busy"))["redisson_lock_script_fallbacks_total{}"], Value::Counter(1));
    let cancelled = wait_for_lock(&client, &lock).await;
    let waiting = "redisson_lock_waiting{kind=\"reentrant lock\"}";
    recorded.until("busy", |all| all.get(waiting) == Some(&Value::Gauge(1.0))).await;
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    let waits = wait_for_lock(&client, &lock).await;
    guard.unlock().await.unwrap();
    waits.await.unwrap();
    recorded.assert_moved(
        "busy",
        &[
            "1 acquire_seconds{kind=\"reentrant lock\",outcome=\"acquired\",contended=\"true\"}",
            "1 acquire_seconds{kind=\"reentrant lock\",outcome=\"cancelled\",contended=\"true\"}",
            "1 hold_seconds{kind=\"reentrant lock\",end=\"released\"}",
        ],
    );

    // Hand-offs, and a kind of its own.
    let fair = client.spin_lock("passed:1", redisson_lock::BackOff::new());
    let guard = fair.with_owner(&redisson_lock::Owner::new("a").unwrap()).lock().await.unwrap();
    let waits = wait_for_lock(&client, &fair).await;
    guard.unlock().await.unwrap();
    waits.await.unwrap();
    let moved = recorded.moved(Some("passed"));
    assert_eq!(moved["redisson_lock_hand_offs_total{}"], Value::Counter(1), "{moved:?}");
    assert!(
        moved.contains_key("redisson_lock_hold_seconds{kind=\"spin lock\",end=\"released\"}"),
        "{moved:?}"
    );

    // A latch is passed and not held. A permit that is forgotten is unended.
    client.count_down_latch("others:latch").wait().await.unwrap();
    let permits = client.semaphore("others:permits");
    permits.try_set_permits(1).await.unwrap();
    permits.acquire().await.unwrap().forget();
    recorded.assert_moved(
        "others",
        &[
            "1 acquire_seconds{kind=\"count-down latch\",outcome=\"acquired\",contended=\"false\"}",
            "1 acquire_seconds{kind=\"semaphore\",outcome=\"acquired\",contended=\"false\"}",
            "1 hold_seconds{kind=\"semaphore\",end=\"unended\"}",
        ],
    );

    // A renewal leaves most of the lease.
    let guard = client.mutex("renewed:1").lock().await.unwrap();
    eventually(|| client.stats().renewals.done >= 1).await;
    guard.unlock().await.unwrap();
    let slack = "redisson_lock_renewal_slack_ratio{}";
    let moved = recorded.until("renewed", |all| all.contains_key(slack)).await;
    let Value::Histogram(left) = &moved[slack] else { panic!("{moved:?}") };
    assert!(left.iter().all(|left| (0.0..=1.0).contains(left)), "{left:?}");

    // Losses by reason.
    let lock = client.mutex("lost:1");
    let lost = async |guard: redisson_lock::LockGuard, reason, label: &str| {
        assert_eq!(guard.lost().await, redisson_lock::HoldState::Lost(reason));
        drop(guard);
        let counter = format!("redisson_lock_lost_total{{reason={label:?}}}");
        let ended = "redisson_lock_hold_seconds{kind=\"reentrant lock\",end=\"lost\"}";
        let moved =
            recorded.until("lost", |all| [&*counter, ended].iter().all(|name| all.contains_key(*name))).await;
        assert_eq!(moved[&counter], Value::Counter(1), "{moved:?}");
    };
    let guard = lock.lock().await.unwrap();
    run(&server, "DEL lost:1");
    lost(guard, LossReason::Gone, "gone").await;
    let guard = lock.lock().await.unwrap();
    server.give_away("lost:1");
    lost(guard, LossReason::Taken, "taken").await;
    run(&server, "DEL lost:1");
    let guard = lock.with_lease(LEASE / 4).lock().await.unwrap();
    lost(guard, LossReason::Expired, "expired").await;
    let guard = lock.lock().await.unwrap();
    proxy.partition();
    lost(guard, LossReason::Unreachable, "unreachable").await;
    proxy.heal();
    eventually(|| client.is_connected()).await;
    let guard = lock.lock().await.unwrap();
    server.kill();
    server.start_again();
    lost(guard, LossReason::DataLost, "data_lost").await;

    // Connections have no lock, so their metric has no group. A call without a connection fails.
    eventually(|| client.is_connected()).await;
    let reconnects = recorded.moved(None)["redisson_lock_reconnects_total{}"].clone();
    assert!(matches!(reconnects, Value::Counter(2..)), "{reconnects:?}");
    recorded.moved(Some("failed"));
    server.kill();
    eventually(|| !client.is_connected()).await;
    client.lock("failed:1").try_lock().await.unwrap_err();
    recorded.assert_moved(
        "failed",
        &["1 acquire_seconds{kind=\"reentrant lock\",outcome=\"failed\",contended=\"false\"}"],
    );
}
