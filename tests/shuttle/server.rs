//! The server of these tests: [`Data`] behind byte streams. It reads commands in RESP, can cut connections and lose replies, and can
//! be away for a time.

use super::data::{Data, Number, next_command};
use super::sync::{below, task};
use super::time::since_boot;
use crate::protocol::script;
use crate::runtime::mutex::{Mutex, MutexGuard};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{mpsc, watch};

thread_local!(static SERVER: RefCell<Option<Arc<Server>>> = const { RefCell::new(None) });

pub(super) struct Server {
    data: Mutex<Data>,
    /// A change of this number closes all connections.
    epoch: watch::Sender<u64>,
    outage: Mutex<Option<Outage>>,
}

/// A time without connections.
#[derive(Clone, Copy)]
pub(super) enum Outage {
    /// It begins before the next request that has this word is run, and takes this long.
    Before(&'static str, Duration),
    /// It begins after the next request that has this word was run, and before its reply.
    After(&'static str, Duration),
    Until(Duration),
}

/// Starts an empty server.
pub(super) fn begin() {
    let server = Server {
        data: Mutex::new(Data::new(script_named)),
        epoch: watch::Sender::new(0),
        outage: Mutex::new(None),
    };
    SERVER.set(Some(Arc::new(server)));
}

/// The name of the script with this digest or source.
fn script_named(text: &str) -> Option<&'static str> {
    script::ALL.iter().find(|script| script.sha() == text || script.source == text).map(|script| script.name)
}

/// Leaks the server of a run that failed, because its tasks were stopped and cannot be dropped.
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
    if server.is_down() {
        task::yield_now().await;
        return Err(std::io::ErrorKind::ConnectionRefused.into());
    }
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
    if server.is_down() {
        server.lock().listeners.remove(&id);
    }
    (Link { server, id }, heard)
}

/// The client's end of a connection for subscriptions. Each call is a round trip, and returns `None` if the connection was cut.
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
        self.data.lock()
    }

    /// Closes all connections.
    pub(super) fn cut(&self) {
        self.lock().listeners.clear();
        self.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// From now on one reply in `loss` is lost; 0 for none.
    pub(super) fn lose(&self, loss: u64) {
        self.lock().loss = loss;
    }

    /// Plans an outage, which replaces the one before.
    pub(super) fn plan(&self, outage: Outage) {
        *self.outage.lock() = Some(outage);
    }

    pub(super) fn go_down_for(&self, time: Duration) {
        self.plan(Outage::Until(since_boot() + time));
        self.cut();
    }

    fn is_down(&self) -> bool {
        matches!(*self.outage.lock(), Some(Outage::Until(end)) if since_boot() < end)
    }

    /// The outage that begins at the request `words`, if there is one.
    fn outage_at(&self, words: &[String]) -> Option<Outage> {
        let outage = *self.outage.lock();
        outage.filter(|outage| match outage {
            Outage::Before(word, _) | Outage::After(word, _) => words.iter().any(|other| other == word),
            Outage::Until(_) => false,
        })
    }

    pub(super) fn create_permits(&self, semaphore: &str, value: i64) {
        self.lock().numbers.insert(semaphore.to_owned(), Number { value, expires: None });
    }

    pub(super) fn free_permits(&self, semaphore: &str) -> i64 {
        self.lock().numbers[semaphore].value
    }

    pub(super) fn publish(&self, channel: &str) -> u64 {
        self.lock().publish(channel)
    }

    /// Whether a holder probe found a lock free after the message of its release was sent.
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
        let mut queued = None;
        loop {
            while let Some(words) = next_command(&mut buffer) {
                let loss = self.lock().loss;
                let fate = if loss == 0 { 2 } else { below(loss * 2) };
                if fate == 0 {
                    return;
                }
                let outage = self.outage_at(&words);
                if let Some(Outage::Before(_, time)) = outage {
                    return self.go_down_for(time);
                }
                let answer = self.lock().answer(words, &mut queued, since_boot());
                if let Some(Outage::After(_, time)) = outage {
                    return self.go_down_for(time);
                }
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
