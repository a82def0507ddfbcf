//! The server of these tests: one record at a time by the scripts' truth table, its expiry, and its channels, in
//! memory. Commands come in RESP over a byte stream; it can cut connections and lose answers.

use super::sync::{below, task};
use super::time::since_boot;
use crate::dump;
use crate::script::{self, Script};
use shuttle::sync::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};

thread_local!(static SERVER: RefCell<Option<Arc<Server>>> = const { RefCell::new(None) });

pub(super) struct Server {
    data: Mutex<Data>,
    /// Connections of an earlier epoch are closed.
    epoch: watch::Sender<u64>,
}

#[derive(Default)]
struct Data {
    records: BTreeMap<String, Record>,
    known: BTreeSet<String>,
    listeners: BTreeMap<u64, Listener>,
    last: u64,
    /// One answer in so many is lost, with its connection, before or after its request was run; 0 for none.
    loss: u64,
    /// When each record was last freed with a message to somebody.
    freed: BTreeMap<String, Duration>,
    /// A client had to look to find that a lock was free: it had missed the message.
    found_by_looking: bool,
}

#[derive(Clone, Default)]
struct Record {
    counts: BTreeMap<String, u64>,
    expires: Duration,
}

struct Listener {
    channels: BTreeSet<String>,
    messages: mpsc::UnboundedSender<String>,
}

/// A new server, empty.
pub(super) fn begin() {
    let server = Server { data: Mutex::default(), epoch: watch::Sender::new(0) };
    SERVER.set(Some(Arc::new(server)));
}

/// Leaks the server of a run that failed: what hangs on it stands where it stood, and cannot be dropped.
pub(super) fn abandon() {
    std::mem::forget(SERVER.take());
}

pub(super) fn server() -> Arc<Server> {
    SERVER.with(|server| server.borrow().clone().expect("a run has a server"))
}

/// A connection for commands.
pub(crate) async fn connect() -> std::io::Result<DuplexStream> {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let server = server();
    let mut epoch = server.epoch.subscribe();
    drop(task::spawn(async move {
        tokio::select! {
            biased;
            _ = epoch.changed() => {}
            () = server.serve(ours) => {}
        }
    }));
    task::yield_now().await;
    Ok(theirs)
}

/// A connection for subscriptions.
pub(crate) async fn listen() -> (Link, mpsc::UnboundedReceiver<String>) {
    let (messages, heard) = mpsc::unbounded_channel();
    task::yield_now().await;
    let server = server();
    let id = server.lock().add(messages);
    (Link { server, id }, heard)
}

/// The client's side of a connection for subscriptions. Each call is a round trip; `None` if it was cut.
pub(crate) struct Link {
    server: Arc<Server>,
    id: u64,
}

impl Link {
    pub(crate) async fn subscribe(&self, channels: &[Arc<str>]) -> Option<()> {
        self.change(|all| all.extend(channels.iter().map(|channel| channel.to_string()))).await
    }

    pub(crate) async fn unsubscribe(&self, channels: &[Arc<str>]) -> Option<()> {
        self.change(|all| all.retain(|one| channels.iter().all(|channel| **channel != **one))).await
    }

    pub(crate) async fn is_up(&self) -> bool {
        self.change(|_| {}).await.is_some()
    }

    async fn change(&self, change: impl FnOnce(&mut BTreeSet<String>)) -> Option<()> {
        task::yield_now().await;
        change(&mut self.server.lock().listeners.get_mut(&self.id)?.channels);
        task::yield_now().await;
        Some(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.server.lock().listeners.remove(&self.id);
    }
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes all connections.
    pub(super) fn cut(&self) {
        self.lock().listeners.clear();
        self.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// From now on one answer in `loss` is lost; 0 for none.
    pub(super) fn lose(&self, loss: u64) {
        self.lock().loss = loss;
    }

    pub(super) fn publish(&self, channel: &str) -> u64 {
        self.lock().publish(channel)
    }

    /// Whether a lock was found free by a look, later than its message was sent.
    pub(super) fn found_by_looking(&self) -> bool {
        self.lock().found_by_looking
    }

    pub(super) fn records(&self) -> usize {
        self.lock().records.len()
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.lock().listeners.values().map(|listener| listener.channels.len()).sum()
    }

    async fn serve(&self, mut stream: DuplexStream) {
        let mut buffer = Vec::new();
        let mut queued: Option<Vec<Vec<String>>> = None;
        loop {
            while let Some(words) = next_command(&mut buffer) {
                let loss = self.lock().loss;
                let fate = if loss == 0 { 2 } else { below(loss * 2) };
                if fate == 0 {
                    return;
                }
                let answer = match (words[0].as_str(), &mut queued) {
                    ("MULTI", _) => {
                        queued = Some(Vec::new());
                        "+OK\r\n".to_owned()
                    }
                    ("EXEC", _) => {
                        let mut data = self.lock();
                        let answers: Vec<_> =
                            queued.take().unwrap_or_default().iter().map(|words| data.run(words)).collect();
                        format!("*{}\r\n{}", answers.len(), answers.concat())
                    }
                    (_, Some(queue)) => {
                        queue.push(words);
                        "+QUEUED\r\n".to_owned()
                    }
                    _ => self.lock().run(&words),
                };
                if fate == 1 {
                    return;
                }
                task::yield_now().await;
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl Data {
    fn add(&mut self, messages: mpsc::UnboundedSender<String>) -> u64 {
        self.last += 1;
        self.listeners.insert(self.last, Listener { channels: BTreeSet::new(), messages });
        self.last
    }

    fn run(&mut self, words: &[String]) -> String {
        let now = since_boot();
        self.records.retain(|_, record| record.expires > now);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["EVALSHA", sha, ..] if !self.known.contains(*sha) => "-NOSCRIPT No matching script.\r\n".into(),
            ["EVALSHA", sha, _, rest @ ..] => {
                let script =
                    script::ALL.iter().find(|script| script.sha() == *sha).expect("a script of ours");
                self.script(script, rest)
            }
            ["EVAL", source, _, rest @ ..] => {
                let script =
                    script::ALL.iter().find(|script| script.source == *source).expect("a script of ours");
                self.known.insert(script.sha().to_owned());
                self.script(script, rest)
            }
            ["RESTORE", key, ..] if self.records.contains_key(*key) => {
                "-BUSYKEY Target key name already exists.\r\n".into()
            }
            ["RESTORE", key, lease, payload] => {
                // See `src/dump.rs`: the length of a short owner is in one byte, and then comes the owner.
                let owner = payload[3..][..usize::from(payload.as_bytes()[2])].to_owned();
                if String::from_utf8_lossy(&dump::held_once(&owner)) != *payload {
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
            ["PING", ..] => "+PONG\r\n".into(),
            ["INFO", ..] => {
                bulk("redis_version:7.0.15\r\nrun_id:1\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n")
            }
            _ => "+OK\r\n".into(),
        }
    }

    /// As `tests/it/truth_table.rs` has it of the scripts.
    fn script(&mut self, script: &Script, words: &[&str]) -> String {
        let now = since_boot();
        let ms = |text: &str| Duration::from_millis(text.parse().expect("a number"));
        if script.name == "lock_renew" {
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
        let (key, args) = (words[0], &words[1..]);
        let absent = !self.records.contains_key(key);
        let record = self.records.entry(key.to_owned()).or_default();
        let count = record.counts.get(args[0]).copied();
        let left = i64::try_from(record.expires.saturating_sub(now).as_millis()).expect("a short time");
        let again = args.last() == Some(&"1");
        let answer = match (script.name, args, count) {
            ("lock_acquire", [owner, lease, _], None) if absent => {
                record.counts.insert((*owner).to_owned(), 1);
                record.expires = now + ms(lease);
                self.freed.remove(key);
                number(1)
            }
            ("lock_acquire", _, None) => status("BUSY", Some(left)),
            ("lock_acquire", [_, lease, _], Some(1)) if again => {
                record.expires = record.expires.max(now + ms(lease));
                number(1)
            }
            ("lock_acquire", _, Some(_)) => status("STALE", Some(left)),
            ("lock_move", [_, to, lease, channel, _], _)
                if count == Some(1) || count.is_none() && again && record.counts.get(*to) == Some(&1) =>
            {
                record.counts = BTreeMap::from([((*to).to_owned(), 1)]);
                record.expires = now + ms(lease);
                let subscribed = |listener: &&Listener| listener.channels.contains(*channel);
                let all = self.listeners.values().filter(subscribed).count();
                number(all as u64)
            }
            ("lock_move", _, Some(_)) => status("MISMATCH", None),
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
                let told = self.publish(channel);
                self.freed.insert(key.to_owned(), now);
                number(told)
            }
            ("lock_move" | "lock_recount" | "lock_release", _, None) => {
                status(if absent { "GONE" } else { "OTHER" }, None)
            }
            (name, ..) => panic!("{name} with {args:?}"),
        };
        self.records.retain(|_, record| !record.counts.is_empty());
        answer
    }

    fn publish(&mut self, channel: &str) -> u64 {
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

/// Takes a whole command from the front of `buffer`.
fn next_command(buffer: &mut Vec<u8>) -> Option<Vec<String>> {
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
