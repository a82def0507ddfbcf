//! `doctor`: what the servers permit, how they are set up, and what that means for locks.

use crate::args::{Connection, Doctor};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::output::{line, write_out};
use crate::table::{Style, shown, styled};
use redisson_lock::{ServerClock, ServerReport};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// The exit code if something endangers a lock.
const ENDANGERED: u8 = 1;
/// The difference of clocks from which it endangers the locks of Java clients with the clock of this host.
const SKEW: Duration = Duration::from_secs(1);

/// The commands of each kind. `docs/deployment.md` explains them.
const NEEDS: [(&str, &str); 9] = [
    ("lock, spin, non-reentrant", "del exists hdel hexists hget hscan hset pexpire pttl publish pubsub"),
    (
        "fair",
        "del exists hdel hexists hget hscan hset lindex llen lpop lpush lrange lrem pexpire pttl publish rpush time zadd zrange \
         zrangebyscore zrem zscore",
    ),
    ("fenced", "del exists get hdel hexists hget hscan hset incr pexpire pttl publish pubsub"),
    ("read, write", "del exists hdel hexists hget hgetall hlen hscan hset pexpire pttl publish pubsub set"),
    ("value", "del exists get pexpire pttl publish pubsub set"),
    ("group", "exists get hdel hget hincrby hset pexpire pttl publish pubsub set time"),
    ("semaphore", "decrby exists get incrby persist pexpire publish set"),
    (
        "expirable-semaphore",
        "decrby exists get incrby persist pexpire pttl publish set time zadd zcard zrange zrangebyscore zrem \
         zremrangebyscore zscore",
    ),
    ("latch", "decr del exists get pexpire pttl publish set"),
];

/// The commands of `list`, `inspect`, `watch` and `top`. Without the others of `docs/deployment.md`, they show less.
pub const READING: &str = "getrange hget hscan pttl scan type";

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// A lock may be lost, may be held twice, or cannot be used.
    Danger,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Danger => "danger",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => Style::Green,
            Self::Note => Style::Yellow,
            Self::Danger => Style::Red,
        }
    }
}

/// A fact about a server, and what it means.
struct Finding {
    level: Level,
    subject: &'static str,
    text: String,
}

/// Examines the servers. Returns 1 if something endangers a lock.
pub async fn doctor(doctor: &Doctor, connection: &Connection) -> Result<u8, Failure> {
    with_client(connection, async |client| {
        let reports = client.examine().await?;
        let (now, at) = (SystemTime::now(), std::time::Instant::now());
        let mut endangered = false;
        for report in &reports {
            let offset = report.clock.and_then(|clock| offset(clock, now, at));
            let findings = findings(report, offset);
            endangered |= findings.iter().any(|finding| finding.level == Level::Danger);
            if doctor.json {
                line(&as_json(report, offset, &findings))?;
            } else {
                let mut text = format!("{}\n", styled(&shown(&report.node), Style::Bold));
                for Finding { level, subject, text: found } in &findings {
                    let level = styled(&format!("{:<7}", level.name()), level.style());
                    text.push_str(&format!("  {level} {subject:<12} {found}\n"));
                }
                write_out(text)?;
            }
        }
        if !doctor.json {
            write_out(if endangered {
                "Something endangers locks.\n"
            } else {
                "Nothing endangers locks.\n"
            })?;
        }
        Ok(if endangered { ENDANGERED } else { 0 })
    })
    .await
}

/// By how many ms the clock of the server is ahead, and how wrong that may be.
fn offset(clock: ServerClock, now: SystemTime, at: std::time::Instant) -> Option<(i64, u64)> {
    let middle = clock.asked + clock.round_trip / 2;
    let here =
        now.checked_sub(at.saturating_duration_since(middle))?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let uncertainty = u64::try_from(clock.round_trip.as_millis() / 2).unwrap_or(u64::MAX);
    Some((ms(clock.since_epoch) - ms(here), uncertainty + 1))
}

fn findings(report: &ServerReport, offset: Option<(i64, u64)>) -> Vec<Finding> {
    let mut found = vec![version(report)];
    found.extend(commands(report));
    found.extend([eviction(report), persistence(report)]);
    found.extend(replicas(report));
    found.push(clock(offset));
    found
}

fn version(report: &ServerReport) -> Finding {
    let field = |name: &str| report.info.get(name).map(String::as_str);
    let product = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => return unknown("version", "INFO"),
    };
    let number = |text: &str| {
        let mut parts = text.split('.').map_while(|part| part.parse::<u32>().ok());
        Some((parts.next()?, parts.next()?))
    };
    let is_old = field("redis_version").and_then(number).is_some_and(|version| version < (6, 2));
    let text = if is_old { format!("{product}: the oldest tested version is 6.2") } else { product };
    Finding { level: if is_old { Level::Note } else { Level::Ok }, subject: "version", text }
}

/// One finding for each kind that lacks a command.
fn commands(report: &ServerReport) -> Vec<Finding> {
    let subject = "commands";
    let finding = |level, text| Finding { level, subject, text };
    let mut found = Vec::new();
    for (kind, needs) in NEEDS {
        let lacks = lacking(report, needs);
        if !lacks.is_empty() {
            let text = format!(
                "{kind}: cannot be used, because the user may not run {}: grant it",
                lacks.join(", ")
            );
            found.push(finding(Level::Danger, text));
        }
    }
    let subscribe: Vec<&str> = lacking(report, "subscribe ssubscribe");
    if !subscribe.is_empty() {
        let text = format!(
            "every kind but spin: nobody can wait, because the user may not run {}: grant it",
            subscribe.join(", ")
        );
        found.push(finding(Level::Danger, text));
    }
    if found.is_empty() {
        found.push(finding(Level::Ok, "the user may run the commands of every kind".to_owned()));
    }
    let reading = lacking(report, READING);
    if !reading.is_empty() {
        let lacks = reading.join(", ");
        let text =
            format!("list, inspect, watch and top cannot be used, because the user may not run {lacks}");
        found.push(finding(Level::Note, text));
    }
    if let Some(reason) = &report.restricted {
        found.push(finding(Level::Note, format!("the user may not use every key and channel: {reason}")));
    }
    found
}

/// The commands of a kind, by its name on the command line.
pub fn needs_of(kind: &str) -> &'static str {
    let (_, needs) =
        NEEDS.iter().find(|(kinds, _)| kinds.split(", ").any(|other| other == kind)).unwrap_or(&NEEDS[0]);
    needs
}

/// Which of the needed commands, separated by spaces, the server refuses.
pub fn lacking<'a>(report: &ServerReport, needs: &'a str) -> Vec<&'a str> {
    let refused = |command: &str| report.refused.contains_key(command);
    // A cluster with sharded messages needs SPUBLISH in place of PUBLISH.
    let is_lacking = |command: &&str| refused(command) || (*command == "publish" && refused("spublish"));
    needs.split(' ').filter(is_lacking).collect()
}

fn eviction(report: &ServerReport) -> Finding {
    let subject = "eviction";
    let field = |name: &str| report.info.get(name).map(String::as_str);
    let Some(policy) = field("maxmemory_policy") else { return unknown(subject, "INFO") };
    let is_limited = field("maxmemory").is_some_and(|limit| limit != "0");
    let evicted = field("evicted_keys").unwrap_or("0");
    let (level, text) = match (policy, is_limited) {
        ("noeviction", _) => (Level::Ok, "maxmemory-policy is noeviction".to_owned()),
        (policy, true) => {
            let text = format!(
                "maxmemory-policy is {policy}, and the server has evicted {evicted} keys: locks of every kind may vanish while \
                 they are held: set noeviction"
            );
            (Level::Danger, text)
        }
        (policy, false) => {
            let text =
                format!("maxmemory-policy is {policy}, but memory has no limit, so nothing is evicted");
            (Level::Note, text)
        }
    };
    Finding { level, subject, text }
}

fn persistence(report: &ServerReport) -> Finding {
    let subject = "persistence";
    let field = |name: &str| report.info.get(name).map(String::as_str);
    let setting = |name: &str| report.settings.get(name).map(String::as_str);
    let Some(is_on) = field("aof_enabled").map(|on| on == "1") else { return unknown(subject, "INFO") };
    let failed = ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"]
        .into_iter()
        .find(|name| field(name).is_some_and(|status| status != "ok"));
    let (level, text) = match (failed, is_on, setting("appendfsync")) {
        (Some(name), ..) => (
            Level::Danger,
            format!("{name} is not ok: the server may refuse writes, and loses locks in a restart"),
        ),
        (None, true, Some("always")) => (Level::Ok, "every write is on disk before its reply".to_owned()),
        (None, true, how) => {
            let how = how.unwrap_or("unknown");
            let text = format!(
                "append-only file, appendfsync {how}: a crash of the host may lose the locks of the last second"
            );
            (Level::Note, text)
        }
        (None, false, _) => {
            let text = "no append-only file: a restart loses the locks of every kind, and semaphores, latches and fencing tokens \
                        begin anew"
                .to_owned();
            (Level::Note, text)
        }
    };
    Finding { level, subject, text }
}

fn replicas(report: &ServerReport) -> Vec<Finding> {
    let subject = "replicas";
    let number = |name: &str| report.info.get(name).and_then(|text| text.parse::<u64>().ok());
    let Some(replicas) = number("connected_slaves") else { return vec![unknown(subject, "INFO")] };
    let mut found = Vec::new();
    let mut find = |level, text| found.push(Finding { level, subject, text });
    let lacks: Vec<_> = lacking(report, "role wait").into_iter().map(str::to_uppercase).collect();
    match replicas {
        0 => find(Level::Ok, "none, so there is no failover that could lose a lock".to_owned()),
        n if !lacks.is_empty() => {
            let lacks = lacks.join(" and ");
            find(
                Level::Danger,
                format!("{n}, but the user may not run {lacks}: a failover may lose locks of every kind"),
            );
        }
        n => find(Level::Ok, format!("{n}; acquires can wait until they have the lock")),
    }
    let wanted = report.settings.get("min-replicas-to-write").and_then(|text| text.parse::<u64>().ok());
    let good = number("min_slaves_good_slaves").unwrap_or(replicas);
    match wanted {
        Some(wanted @ 1..) if good < wanted => {
            find(
                Level::Danger,
                format!("{good} of the {wanted} that min-replicas-to-write needs: no lock can be acquired"),
            );
        }
        Some(wanted @ 1..) => find(Level::Ok, format!("min-replicas-to-write is {wanted}")),
        _ => {}
    }
    found
}

fn clock(offset: Option<(i64, u64)>) -> Finding {
    let subject = "clock";
    let Some((ahead, uncertainty)) = offset else { return unknown(subject, "TIME") };
    let which = if ahead < 0 { "behind" } else { "ahead of" };
    let text =
        format!("the server is {} ms {which} this host (within {uncertainty} ms)", ahead.unsigned_abs());
    if Duration::from_millis(ahead.unsigned_abs().saturating_sub(uncertainty)) < SKEW {
        return Finding { level: Level::Ok, subject, text };
    }
    let text = format!(
        "{text}: Java clients of fair locks, group locks and expirable semaphores use the clock of their host, so leases and queues \
         of hosts like this one end at the wrong time: synchronise the clocks"
    );
    Finding { level: Level::Danger, subject, text }
}

fn unknown(subject: &'static str, command: &str) -> Finding {
    Finding { level: Level::Note, subject, text: format!("unknown, because the user may not run {command}") }
}

fn as_json(report: &ServerReport, offset: Option<(i64, u64)>, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| json!({"level": finding.level.name(), "subject": finding.subject, "text": finding.text});
    let field = |name: &str| report.info.get(name);
    json!({
        "node": report.node,
        "version": field("valkey_version").or(field("redis_version")),
        "eviction_policy": field("maxmemory_policy"),
        "replicas": field("connected_slaves").and_then(|text| text.parse::<u64>().ok()),
        "clock_ahead_ms": offset.map(|(ahead, _)| ahead),
        "refused": report.refused,
        "restricted": report.restricted,
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page lists subcommands and sharded commands apart.
    #[test]
    fn the_commands_of_each_kind_are_those_of_the_documentation() {
        let page = include_str!("../../docs/deployment.md");
        let blocks: Vec<&str> =
            page.split("```").skip(1).step_by(2).filter(|block| block.contains("fair_lock")).collect();
        let documented =
            blocks[0].split('\n').filter(|line| line.starts_with(' ')).fold(Vec::new(), |mut kinds, line| {
                // A kind begins with its keys.
                if line.contains('~') {
                    kinds.push(Vec::new());
                }
                let commands = line.split_whitespace().filter_map(|word| word.strip_prefix('+'));
                let last: &mut Vec<&str> = kinds.last_mut().unwrap();
                last.extend(commands.map(|command| command.split('|').next().unwrap()));
                kinds
            });
        let needs = NEEDS.map(|(_, needs)| needs.split(' ').collect::<Vec<_>>());
        assert_eq!(documented, needs);
    }
}
