//! The dashboard and the rules of `contrib/`: each is valid, and a real Prometheus evaluates each of their expressions.

use crate::support::prometheus::{Prometheus, serve, tool};
use crate::support::{Server, eventually, setting};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use redisson_lock::{Client, Metrics};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A bound for what must happen.
const SOON: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_millis(1500);

const DASHBOARD: &str = include_str!("../../contrib/grafana/redisson-lock.json");
const RULES: &str = include_str!("../../contrib/prometheus/redisson-lock.rules.yml");
const DOCUMENT: &str = include_str!("../../docs/observability.md");
/// The metrics of the library. A histogram is a family of series with suffixes.
const METRICS: [&str; 9] = [
    "redisson_lock_acquire_seconds",
    "redisson_lock_hold_seconds",
    "redisson_lock_held",
    "redisson_lock_waiting",
    "redisson_lock_lost_total",
    "redisson_lock_renewal_slack_ratio",
    "redisson_lock_hand_offs_total",
    "redisson_lock_reconnects_total",
    "redisson_lock_script_fallbacks_total",
];

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib")
}

/// The panels, without the titles of rows.
fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let all = dashboard["panels"].as_array().unwrap();
    all.iter().filter(|panel| panel["type"] != "row").cloned().collect()
}

fn expressions(panel: &Value) -> impl Iterator<Item = &str> {
    panel["targets"].as_array().unwrap().iter().map(|target| target["expr"].as_str().unwrap())
}

/// The names of the alerts.
fn alerts() -> Vec<&'static str> {
    RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// The names of metrics in an expression, without the suffixes of histograms. Names with a colon are those of recording rules.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_' && sign != ':');
    let base = |word: &'_ str| {
        let length = ["_bucket", "_count", "_sum"].iter().find_map(|end| Some(word.strip_suffix(end)?.len()));
        length.unwrap_or(word.len())
    };
    words.filter(|word| word.starts_with("redisson_lock_")).map(|word| &word[..base(word)]).collect()
}

/// Runs promtool, and returns whether it succeeded, and its output.
fn promtool(words: &[&str], file: &Path) -> (bool, String) {
    let output = Command::new(tool("promtool")).args(words).arg(file).output().unwrap();
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), text)
}

#[test]
fn the_rules_are_valid_and_each_alert_has_a_test() {
    let (good, text) = promtool(&["check", "rules"], &contrib().join("prometheus/redisson-lock.rules.yml"));
    assert!(good, "{text}");
    let (good, text) =
        promtool(&["test", "rules"], &contrib().join("prometheus/redisson-lock.rules.test.yml"));
    assert!(good, "{text}");
    let tests = fs::read_to_string(contrib().join("prometheus/redisson-lock.rules.test.yml")).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rules-{}", uuid::Uuid::new_v4()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("tests.yml"), tests).unwrap();
    for alert in alerts() {
        // Neither an alert that never fires nor one that always does passes the tests.
        for always in [false, true] {
            let (head, rest) = RULES.split_once(&format!("- alert: {alert}\n")).unwrap();
            let (_, rest) = rest.split_once("        labels:\n").unwrap();
            let expr = if always { "vector(1)" } else { "vector(1) > 1" };
            let changed = format!("{head}- alert: {alert}\n        expr: {expr}\n        labels:\n{rest}");
            fs::write(folder.join("redisson-lock.rules.yml"), changed).unwrap();
            let (good, text) = promtool(&["test", "rules"], &folder.join("tests.yml"));
            assert!(!good && text.contains("exp:"), "{alert}, always: {always}: {text}");
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn each_alert_says_what_to_do() {
    let blocks: Vec<_> = RULES.split("- alert: ").skip(1).collect();
    assert!(blocks.len() >= 5);
    for block in blocks {
        let name = block.lines().next().unwrap();
        let link = format!("docs: docs/observability.md#{}\n", name.to_lowercase());
        for part in ["severity: ", "summary: ", "description: ", &link] {
            assert!(block.contains(part), "{name}: {part}");
        }
        assert!(DOCUMENT.contains(&format!("#### {name}\n")), "{name} has no section");
    }
}

#[test]
fn each_metric_is_shown_and_no_other_is_named() {
    let panels = panels();
    let shown: BTreeSet<&str> = panels.iter().flat_map(expressions).flat_map(metrics_in).collect();
    assert_eq!(shown, BTreeSet::from(METRICS));
    let lines = RULES.lines().filter(|line| !line.trim_start().starts_with('#'));
    let alerted: BTreeSet<&str> = lines.flat_map(metrics_in).collect();
    assert!(alerted.is_subset(&shown), "{alerted:?}");
    for metric in METRICS {
        assert!(DOCUMENT.contains(&format!("`{metric}")), "{metric} is not documented");
    }
}

#[test]
fn the_panels_are_complete_and_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeMap::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(w > 0 && x + w <= 24, "{title}");
        for cell in (y..y + h).flat_map(|y| (x..x + w).map(move |x| (x, y))) {
            assert_eq!(taken.insert(cell, title), None, "{title}");
        }
    }
    for panel in panels() {
        let title = &panel["title"];
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 20), "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for expression in expressions(&panel) {
            let series = |name: &str| expression.matches(name).count();
            let instances = series(r#"instance=~"$instance""#);
            assert_eq!(instances, series("redisson_lock_"), "{title}: {expression}");
            // A connection belongs to no lock, and so to no group.
            let grouped = instances - series("redisson_lock_reconnects_total");
            assert_eq!(series(r#"group=~"$group""#), grouped, "{title}: {expression}");
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance", "group"]);
}

/// Grafana itself cannot be installed here, so its own types judge the file.
#[test]
fn the_dashboard_has_only_parts_that_grafana_knows() {
    let library = setting("REDISSON_LOCK_GRAFANA");
    let check = |file: &Path| {
        let output = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dashboard/check.py"))
            .arg(file)
            .env("PYTHONPATH", &library)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(check(&contrib().join("grafana/redisson-lock.json")), "");
    // It finds a part that is unknown.
    let wrong =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dashboard-{}.json", uuid::Uuid::new_v4()));
    fs::write(&wrong, DASHBOARD.replacen("\"lineWidth\"", "\"lineWith\"", 1)).unwrap();
    assert!(check(&wrong).contains(".lineWith is unknown"));
    fs::remove_file(wrong).unwrap();
}

/// Real work of a client, scraped by a real Prometheus. The recorder is that of this thread, on which the client's tasks run.
#[tokio::test]
async fn prometheus_evaluates_every_expression() {
    let recorder = recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let server = Server::unrestricted();
    let metrics = Metrics::new().metrics_group(|name| name.split(':').next().unwrap_or_default().to_owned());
    let builder = Client::builder().watchdog_timeout(LEASE).observer(Arc::new(metrics));
    let client = builder.connect(server.url()).await.unwrap();
    let working = tokio::spawn(async move {
        loop {
            work(&client, &server).await;
        }
    });
    let page = handle.clone();
    let target = serve(move || page.render());
    let prometheus =
        Prometheus::start("shop", &target, &contrib().join("prometheus/redisson-lock.rules.yml"));
    for panel in panels() {
        for expression in expressions(&panel) {
            let filled = expression
                .replace("$__rate_interval", "2s")
                .replace("$__range", "10s")
                .replace("$instance", ".*")
                .replace("$group", "orders");
            assert!(!filled.contains('$'), "{filled}");
            let mut values = Vec::new();
            // There is data, after a few scrapes.
            let seen = timeout(SOON, async {
                while values.is_empty() || !values.iter().any(|(_, value): &(Value, f64)| *value >= 0.0) {
                    values = prometheus.values(&filled);
                    sleep(Duration::from_millis(20)).await;
                }
            });
            assert!(seen.await.is_ok(), "{filled}: {values:?}\n{}", handle.render());
        }
    }
    for variable in ["instance", "group"] {
        let found = prometheus.ask(&format!("label/{variable}/values"), &[("match[]", "redisson_lock_held")]);
        assert!(!found.as_array().unwrap().is_empty(), "{variable}");
    }
    eventually(|| {
        let groups = prometheus.ask("rules", &[]);
        let groups = groups["groups"].as_array().unwrap();
        let rules: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
        let wrong: Vec<_> = rules.iter().filter(|rule| rule["health"] == "err").collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        rules.iter().all(|rule| rule["health"] == "ok")
    })
    .await;
    for name in RULES.lines().filter_map(|line| line.trim().strip_prefix("- record: ")) {
        eventually(|| !prometheus.values(name).is_empty()).await;
    }
    // This alert does not wait.
    eventually(|| {
        let alerts = prometheus.ask("alerts", &[]);
        let firing = alerts["alerts"].as_array().unwrap().iter().filter(|alert| alert["state"] == "firing");
        let summaries: BTreeSet<_> =
            firing.map(|alert| alert["annotations"]["summary"].as_str().unwrap()).collect();
        summaries.contains("shop lost locks that it held (gone)")
    })
    .await;
    // Every label value that the panels and the rules name, and every metric.
    let page = handle.render();
    for part in ["acquired", "busy", "timed_out", "cancelled", "failed"].map(|it| format!("outcome=\"{it}\""))
    {
        assert!(page.contains(&part), "{part}");
    }
    for part in METRICS.into_iter().chain(["end=\"lost\"", "kind=\"count-down latch\"", "contended=\"true\""])
    {
        assert!(page.contains(part), "{part}");
    }
    // A counter of losses exists before the first loss.
    assert!(page.contains("redisson_lock_lost_total{reason=\"unreachable\",group=\"orders\"} 0"), "{page}");
    assert!(!working.is_finished());
    working.abort();
}

/// An exporter with the buckets that the documentation recommends.
fn recorder() -> PrometheusRecorder {
    let seconds = [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0];
    let shares = [0.1, 0.2, 0.33, 0.5, 0.67, 1.0];
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &seconds)
        .and_then(|it| it.set_buckets_for_metric(Matcher::Suffix("_ratio".into()), &shares))
        .unwrap()
        .build_recorder()
}

/// Moves each metric.
async fn work(client: &Client, server: &Server) {
    let lock = client.mutex("orders:1");
    let first = lock.lock().await.unwrap();
    // Busy, timed out, cancelled.
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(Duration::from_millis(5)).await.unwrap().is_none());
    assert!(timeout(Duration::from_millis(5), lock.lock()).await.is_err());
    // A hand-off.
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap() }
    });
    while client.stats().waiting == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    first.unlock().await.unwrap();
    let held = waiting.await.unwrap();
    // A renewal, and then a loss.
    let deadline = held.deadline();
    while held.deadline() == deadline {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(lock.force_unlock().await.unwrap());
    held.lost().await;
    drop(held);
    // A plain command that does nothing, because the client does not know of this holder.
    redis::cmd("HSET")
        .arg(&["orders:4", "a3d6f0c2-0000-4000-8000-000000000000:1", "1"])
        .exec(&mut server.cli())
        .unwrap();
    let stranger = client.mutex("orders:4").try_lock_for(Duration::from_millis(100)).await;
    // On a busy machine the reply may be late.
    assert!(!matches!(stranger, Ok(Some(_))), "{stranger:?}");
    // An error.
    redis::cmd("SET").arg(&["orders:2", "no lock"]).exec(&mut server.cli()).unwrap();
    client.mutex("orders:2").try_lock().await.unwrap_err();
    assert!(client.count_down_latch("orders:3").wait_for(Duration::ZERO).await.unwrap());
    // A connection.
    let reconnects = client.stats().reconnects;
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut server.cli()).unwrap();
    while client.stats().reconnects == reconnects || !client.is_connected() {
        sleep(Duration::from_millis(1)).await;
    }
}
