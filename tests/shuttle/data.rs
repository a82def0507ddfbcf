//! The data of the server of these tests: records that follow the scripts' truth table, their expiry, and channels. Each call gets
//! the time as an argument. The file names nothing of the crate, so that `tests/it/shuttle_server.rs` can compare it with a real
//! server.

use super::restore_payload;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;

pub(crate) struct Data {
    pub records: BTreeMap<String, Record>,
    /// The strings: the free permits of semaphores, and the marks of their clients.
    pub numbers: BTreeMap<String, Number>,
    /// Returns the name of the script with this digest or source.
    named: fn(&str) -> Option<&'static str>,
    /// The scripts that were loaded by `EVAL`.
    known: BTreeSet<&'static str>,
    pub listeners: BTreeMap<u64, Listener>,
    last: u64,
    /// One reply in this number is lost with its connection, before or after its request was run; 0 for none.
    pub loss: u64,
    /// When each record was last released.
    freed: BTreeMap<String, Duration>,
    /// A holder probe found a lock that was released earlier: its client had missed the message.
    pub found_by_looking: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub counts: BTreeMap<String, u64>,
    pub expires: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub value: i64,
    /// `None` for a string that never expires.
    pub expires: Option<Duration>,
}

pub(crate) struct Listener {
    pub channels: BTreeSet<String>,
    messages: mpsc::UnboundedSender<String>,
}

/// The commands since `MULTI`, or `None` outside a transaction.
pub(crate) type Queued = Option<Vec<Vec<String>>>;

impl Data {
    pub(crate) fn new(named: fn(&str) -> Option<&'static str>) -> Self {
        Self {
            named,
            records: BTreeMap::new(),
            numbers: BTreeMap::new(),
            known: BTreeSet::new(),
            listeners: BTreeMap::new(),
            last: 0,
            loss: 0,
            freed: BTreeMap::new(),
            found_by_looking: false,
        }
    }

    /// Loads these scripts.
    pub(crate) fn load(&mut self, scripts: impl Iterator<Item = &'static str>) {
        self.known.extend(scripts);
    }

    pub(crate) fn add(&mut self, messages: mpsc::UnboundedSender<String>) -> u64 {
        self.last += 1;
        self.listeners.insert(self.last, Listener { channels: BTreeSet::new(), messages });
        self.last
    }

    /// Runs a command of a connection at the time `now` and returns its reply.
    pub(crate) fn answer(&mut self, words: Vec<String>, queued: &mut Queued, now: Duration) -> String {
        match (words[0].as_str(), &mut *queued) {
            ("MULTI", _) => {
                *queued = Some(Vec::new());
                "+OK\r\n".to_owned()
            }
            ("EXEC", _) => {
                let commands = queued.take().unwrap_or_default();
                let answers: Vec<_> = commands.iter().map(|words| self.run(words, now)).collect();
                format!("*{}\r\n{}", answers.len(), answers.concat())
            }
            (_, Some(queue)) => {
                queue.push(words);
                "+QUEUED\r\n".to_owned()
            }
            _ => self.run(&words, now),
        }
    }

    fn run(&mut self, words: &[String], now: Duration) -> String {
        self.records.retain(|_, record| record.expires > now);
        self.numbers.retain(|_, number| number.expires.is_none_or(|at| at > now));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            [verb @ ("EVALSHA" | "EVAL"), text, _, rest @ ..] => {
                let script = (self.named)(text).expect("a script of ours");
                if *verb == "EVALSHA" && !self.known.contains(script) {
                    return "-NOSCRIPT No matching script.\r\n".into();
                }
                self.known.insert(script);
                self.script(script, rest, now)
            }
            ["RESTORE", key, ..] if self.records.contains_key(*key) => {
                "-BUSYKEY Target key name already exists.\r\n".into()
            }
            ["RESTORE", key, lease, payload] => {
                // See `src/protocol/restore_payload.rs`: one byte has the length of a short owner id, which follows.
                let owner = payload[3..][..usize::from(payload.as_bytes()[2])].to_owned();
                if String::from_utf8_lossy(&restore_payload::held_once(None, &owner)) != *payload {
                    return "-ERR DUMP payload version or checksum are wrong\r\n".into();
                }
                let expires = now + Duration::from_millis(lease.parse().expect("a number"));
                let record = Record { counts: BTreeMap::from([(owner, 1)]), expires };
                self.records.insert((*key).to_owned(), record);
                self.freed.remove(*key);
                "+OK\r\n".into()
            }
            ["HDEL", key, owner] => {
                let Some(record) = self.records.get_mut(*key).filter(|r| r.counts.contains_key(*owner))
                else {
                    return ":0\r\n".into();
                };
                record.counts.remove(*owner);
                self.records.retain(|_, record| !record.counts.is_empty());
                self.freed.insert((*key).to_owned(), now);
                ":1\r\n".into()
            }
            ["PUBLISH", channel, _] => format!(":{}\r\n", self.publish(channel)),
            ["HSCAN", key, ..] => {
                let missed = self.freed.get(*key).is_some_and(|&freed| freed < now);
                self.found_by_looking |= !self.records.contains_key(*key) && missed;
                let record = self.records.get(*key).cloned().unwrap_or_default();
                let items = record.counts.iter().map(|(owner, n)| bulk(owner) + &bulk(&n.to_string()));
                format!("*2\r\n{}*{}\r\n{}", bulk("0"), record.counts.len() * 2, items.collect::<String>())
            }
            ["GET", key] => match self.numbers.get(*key) {
                Some(number) => bulk(&number.value.to_string()),
                None => "$-1\r\n".into(),
            },
            ["PING", ..] => "+PONG\r\n".into(),
            ["INFO", ..] => {
                bulk("redis_version:7.0.15\r\nrun_id:1\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n")
            }
            _ => "+OK\r\n".into(),
        }
    }

    /// Does what the scripts do. `tests/it/shuttle_server.rs` compares the two.
    fn script(&mut self, script: &str, words: &[&str], now: Duration) -> String {
        let ms = |text: &str| Duration::from_millis(text.parse().expect("a number"));
        if script == "lock_renew" {
            let (keys, args) = words.split_at(words.len() / 3);
            let held: Vec<_> = keys
                .iter()
                .zip(args.chunks(2))
                .map(|(key, arg)| match self.records.get_mut(*key) {
                    None => ":0\r\n",
                    Some(record) if record.counts.contains_key(arg[0]) => {
                        record.expires = record.expires.max(now + ms(arg[1]));
                        ":1\r\n"
                    }
                    Some(_) => ":-3\r\n",
                })
                .collect();
            return match held.iter().all(|answer| *answer == ":1\r\n") {
                true => format!(":{}\r\n", held.len()),
                false => format!("*{}\r\n{}", held.len(), held.concat()),
            };
        }
        if script == "count_subscriptions" {
            return number(self.subscriptions(words[0]));
        }
        if let ("semaphore_acquire" | "semaphore_release", [record, mark, args @ ..]) = (script, words) {
            return self.permits(script, [record, mark], args, now);
        }
        let (key, args) = (words[0], &words[1..]);
        let absent = !self.records.contains_key(key);
        let record = self.records.entry(key.to_owned()).or_default();
        let count = record.counts.get(args[0]).copied();
        let left = i64::try_from(record.expires.saturating_sub(now).as_millis()).expect("a short time");
        let again = args.last() == Some(&"1");
        let answer = match (script, args, count) {
            ("lock_acquire", [owner, lease, _], None) if absent => {
                record.counts.insert((*owner).to_owned(), 1);
                record.expires = now + ms(lease);
                self.freed.remove(key);
                number(1)
            }
            ("lock_acquire", _, None) => {
                let holder = record.counts.keys().next().expect("a record has an owner");
                format!("*3\r\n{}:{left}\r\n{}", bulk("BUSY"), bulk(holder))
            }
            ("lock_acquire", [_, lease, _], Some(1)) if again => {
                record.expires = record.expires.max(now + ms(lease));
                number(1)
            }
            ("lock_acquire", _, Some(_)) => status("STALE", Some(left)),
            ("lock_hand_off", [_, to, lease, channel, _], _)
                if count == Some(1) || count.is_none() && again && record.counts.get(*to) == Some(&1) =>
            {
                record.counts = BTreeMap::from([((*to).to_owned(), 1)]);
                let ends = now + ms(lease);
                // If an earlier send moved the record, it may have been renewed since.
                record.expires = if count.is_none() { record.expires.max(ends) } else { ends };
                number(self.subscriptions(channel))
            }
            ("lock_hand_off", _, Some(_)) => status("MISMATCH", None),
            ("lock_recount", [owner, from, to, lease, _], Some(n)) => {
                let (from, to): (u64, u64) = (from.parse().expect("n"), to.parse().expect("n"));
                if n == from || n == to && again {
                    record.counts.insert((*owner).to_owned(), to);
                    record.expires = record.expires.max(now + ms(lease));
                    number(1)
                } else {
                    status("MISMATCH", i64::try_from(n).ok())
                }
            }
            ("lock_release", [_, channel], Some(_)) => {
                self.records.remove(key);
                let receivers = self.publish(channel);
                self.freed.insert(key.to_owned(), now);
                number(receivers)
            }
            ("lock_hand_off" | "lock_recount" | "lock_release", _, None) => {
                status(if absent { "GONE" } else { "OTHER" }, None)
            }
            (name, ..) => panic!("{name} with {args:?}"),
        };
        self.records.retain(|_, record| !record.counts.is_empty());
        answer
    }

    /// Does what the scripts of a semaphore do that take and return permits.
    fn permits(&mut self, script: &str, [record, mark]: [&str; 2], args: &[&str], now: Duration) -> String {
        let int = |text: &str| text.parse::<i64>().expect("a number");
        let (request, permits, kept) = (int(args[0]), int(args[1]), int(args[2]).unsigned_abs());
        let done = self.numbers.get(mark).map_or(0, |mark| mark.value);
        let free = self.numbers.get(record).copied();
        let marked = Number { value: request, expires: Some(now + Duration::from_millis(kept)) };
        let change = |data: &mut Self, by: i64| {
            let free = free.unwrap_or(Number { value: 0, expires: None });
            data.numbers.insert(record.to_owned(), Number { value: free.value + by, ..free });
        };
        match (script, args) {
            ("semaphore_acquire", _) if done == request => number(1),
            ("semaphore_acquire", _) if done > request => status("STALE", Some(-1)),
            ("semaphore_acquire", _) if free.is_none_or(|free| free.value < permits) => {
                status("BUSY", Some(-1))
            }
            ("semaphore_acquire", _) => {
                self.numbers.insert(mark.to_owned(), marked);
                change(self, -permits);
                number(1)
            }
            ("semaphore_release", _) if done >= request => number(0),
            ("semaphore_release", [_, _, _, channel, taken_by]) => {
                self.numbers.insert(mark.to_owned(), marked);
                if *taken_by != "0" && done != int(taken_by) {
                    return number(0);
                }
                change(self, permits);
                number(self.publish(channel))
            }
            (name, args) => panic!("{name} with {args:?}"),
        }
    }

    fn subscriptions(&self, channel: &str) -> u64 {
        let subscribed = |listener: &&Listener| listener.channels.contains(channel);
        self.listeners.values().filter(subscribed).count() as u64
    }

    pub(crate) fn publish(&mut self, channel: &str) -> u64 {
        let listening = self.listeners.values().filter(|listener| listener.channels.contains(channel));
        listening.filter(|listener| listener.messages.send(channel.to_owned()).is_ok()).count() as u64
    }
}

fn number(number: u64) -> String {
    format!(":{number}\r\n")
}

fn status(word: &str, number: Option<i64>) -> String {
    match number {
        None => format!("*1\r\n{}", bulk(word)),
        Some(number) => format!("*2\r\n{}:{number}\r\n", bulk(word)),
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Removes a complete command from the front of `buffer`.
pub(crate) fn next_command(buffer: &mut Vec<u8>) -> Option<Vec<String>> {
    let mut at = 0;
    let mut number = |sign: u8, skip: usize| {
        at += skip;
        let end = at + buffer.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(buffer[at], sign, "a command is an array of strings");
        let number: usize = std::str::from_utf8(&buffer[at + 1..end]).ok()?.parse().ok()?;
        at = end + 2;
        Some((number, at))
    };
    let (count, mut end) = number(b'*', 0)?;
    let mut words = Vec::new();
    let mut skip = 0;
    for _ in 0..count {
        let (length, start) = number(b'$', skip)?;
        end = start + length + 2;
        skip = length + 2;
        words.push(String::from_utf8_lossy(buffer.get(start..start + length)?).into_owned());
    }
    if buffer.len() < end {
        return None;
    }
    buffer.drain(..end);
    Some(words)
}
