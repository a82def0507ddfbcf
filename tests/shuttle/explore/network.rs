//! The network of an exploration: each request, reply and message waits until the director delivers it.
//!
//! A connection for commands keeps its requests and its replies in order, and so does a connection for subscriptions. Requests that
//! do not name the lock (handshakes, heartbeats) are answered at once.

use super::kinds::Kind;
use super::search;
use super::state::NUMBER;
use super::with;
use crate::protocol::script;
use crate::shuttled::data::{Data, Number, next_command};
use crate::shuttled::time::since_boot;
use std::collections::{BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::{mpsc, oneshot};

/// The only lock or semaphore.
pub(super) const LOCK: &str = "lock";

pub(super) struct Network {
    pub data: Data,
    pub commands: Vec<Commands>,
    pub subscriptions: Vec<Subscriptions>,
}

/// A connection for commands.
pub(super) struct Commands {
    pub client: usize,
    /// `None` once the connection has ended. Its requests may still arrive.
    stream: Option<DuplexStream>,
    unread: Vec<u8>,
    unfinished: Vec<Vec<String>>,
    pub requests: VecDeque<Request>,
    pub replies: VecDeque<Reply>,
    /// No reply arrives any more.
    pub silent: bool,
}

/// A command, or a transaction.
#[derive(Clone, Debug)]
pub(super) struct Request {
    commands: Vec<Vec<String>>,
    /// It names the lock.
    matters: bool,
    sent: Duration,
}

pub(super) struct Reply {
    text: String,
    request: Request,
}

/// A connection for subscriptions.
pub(super) struct Subscriptions {
    pub client: usize,
    id: u64,
    published: mpsc::UnboundedReceiver<String>,
    /// `None` once the connection has ended.
    to_client: Option<mpsc::UnboundedSender<String>>,
    pub changes: VecDeque<(Change, oneshot::Sender<()>)>,
    pub incoming: VecDeque<Incoming>,
}

#[derive(Debug)]
pub(super) enum Change {
    Subscribe(Vec<String>),
    Unsubscribe(Vec<String>),
}

#[derive(Debug)]
pub(super) enum Incoming {
    Confirmation(oneshot::Sender<()>),
    Message(String),
}

impl Incoming {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Confirmation(_) => "confirmed",
            Self::Message(channel) => channel,
        }
    }
}

impl Request {
    pub(super) fn text(&self) -> String {
        let commands: Vec<_> = self.commands.iter().map(|words| labelled(words)).collect();
        format!("{commands:?} {:?}", self.sent)
    }
}

/// The words of a request for a semaphore, with its numbers as in [`Labels`](super::state::Labels), and without the random key of the mark.
fn labelled(words: &[String]) -> Vec<String> {
    let mut words = words.to_vec();
    if words.get(4).is_some_and(|key| key.contains(":redisson-lock:")) {
        words[4].clear();
        for at in [5, 9] {
            if let Some(number) = words.get_mut(at).filter(|number| *number != "0") {
                number.insert(0, NUMBER);
            }
        }
    }
    words
}

impl Reply {
    /// The reply with its request, which says what the client goes on with.
    pub(super) fn text(&self) -> String {
        format!("{} {:?}", self.request.text(), self.text)
    }
}

impl Network {
    pub(super) fn new(kind: Kind) -> Self {
        let named =
            |text: &str| script::ALL.iter().find(|s| s.sha() == text || s.source == text).map(|s| s.name);
        let mut data = Data::new(named);
        data.load(script::ALL.iter().map(|script| script.name));
        if let Kind::Semaphore(value) = kind {
            data.numbers.insert(LOCK.to_owned(), Number { value, expires: None });
        }
        Self { data, commands: Vec::new(), subscriptions: Vec::new() }
    }

    /// Reads what the clients have written, and answers what does not name the lock. Returns whether a client got a reply.
    pub(super) fn exchange(&mut self) -> bool {
        let mut replied = false;
        for link in 0..self.commands.len() {
            self.commands[link].read();
            while self.commands[link].requests.front().is_some_and(|request| !request.matters) {
                self.execute(link);
            }
            while self.commands[link].replies.front().is_some_and(|reply| !reply.request.matters) {
                self.commands[link].reply();
                replied = true;
            }
        }
        replied
    }

    /// Executes the next request of a connection.
    pub(super) fn execute(&mut self, link: usize) -> Option<Request> {
        let request = self.commands[link].requests.pop_front()?;
        let mut queued = None;
        let text: String = request
            .commands
            .iter()
            .map(|words| self.data.answer(words.clone(), &mut queued, since_boot()))
            .collect();
        let commands = &mut self.commands[link];
        if commands.is_up() && !commands.silent {
            commands.replies.push_back(Reply { text, request: request.clone() });
        }
        for link in &mut self.subscriptions {
            while let Ok(message) = link.published.try_recv() {
                link.incoming.push_back(Incoming::Message(message));
            }
        }
        Some(request)
    }

    /// Carries out the next change of a connection's subscriptions.
    pub(super) fn change(&mut self, link: usize) {
        let link = &mut self.subscriptions[link];
        let Some((change, done)) = link.changes.pop_front() else { return };
        let Some(listener) = self.data.listeners.get_mut(&link.id) else { return };
        match change {
            Change::Subscribe(channels) => listener.channels.extend(channels),
            Change::Unsubscribe(channels) => listener.channels.retain(|one| !channels.contains(one)),
        }
        link.incoming.push_back(Incoming::Confirmation(done));
    }

    /// Ends the connections for commands of `client`. Requests that were not executed may still be.
    pub(super) fn cut_commands(&mut self, client: usize) {
        for link in self.commands.iter_mut().filter(|link| link.client == client) {
            link.close();
        }
    }

    /// Loses all replies to `client` from now on, until it opens another connection.
    pub(super) fn silence(&mut self, client: usize) {
        for link in self.commands.iter_mut().filter(|link| link.client == client) {
            link.silent = true;
            link.replies.clear();
        }
    }

    /// Ends the connections for subscriptions of `client`, and loses all that is on its way.
    pub(super) fn cut_subscriptions(&mut self, client: usize) {
        for link in self.subscriptions.iter_mut().filter(|link| link.client == client) {
            self.data.listeners.remove(&link.id);
            link.close();
        }
    }

    /// Whether `client` has both connections, and gets replies.
    pub(super) fn reaches(&self, client: usize) -> bool {
        let commands = self.commands.iter().any(|link| link.client == client && link.is_up() && !link.silent);
        commands && self.subscriptions.iter().any(|link| link.client == client && link.to_client.is_some())
    }

    /// Whether the server has nothing to do for `client`, and sends it no messages.
    pub(super) fn is_isolated(&self, client: usize) -> bool {
        let mut commands = self.commands.iter().filter(|link| link.client == client);
        let mut subscriptions = self.subscriptions.iter().filter(|link| link.client == client);
        commands.all(|link| link.requests.is_empty()) && subscriptions.all(|link| link.is_idle(self))
    }

    pub(super) fn channels(&self) -> usize {
        self.data.listeners.values().map(|listener| listener.channels.len()).sum()
    }

    /// The number of free permits.
    pub(super) fn free_permits(&self) -> i64 {
        self.data.numbers.get(LOCK).map_or(0, |free| free.value)
    }

    /// Whether the record of the lock exists.
    pub(super) fn is_held(&self) -> bool {
        self.data.records.get(LOCK).is_some_and(|record| record.expires > since_boot())
    }
}

impl Commands {
    pub(super) fn is_up(&self) -> bool {
        self.stream.is_some()
    }

    fn close(&mut self) {
        self.read();
        self.end();
    }

    /// Requests that matter may still be executed.
    fn end(&mut self) {
        self.stream = None;
        self.replies.clear();
        self.requests.retain(|request| request.matters);
    }

    fn read(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let mut bytes = [0; 4096];
        let ended = loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.unread.extend(buffer.filled()),
                Poll::Ready(_) => break true,
                Poll::Pending => break false,
            }
        };
        while let Some(words) = next_command(&mut self.unread) {
            let last = words[0] == "EXEC" || words[0] != "MULTI" && self.unfinished.is_empty();
            self.unfinished.push(words);
            if last {
                let commands = std::mem::take(&mut self.unfinished);
                let matters = commands.iter().flatten().any(|word| word == LOCK);
                self.requests.push_back(Request { commands, matters, sent: since_boot() });
            }
        }
        if ended {
            self.end();
        }
    }

    /// Delivers the next reply.
    pub(super) fn reply(&mut self) -> Option<String> {
        let reply = self.replies.pop_front()?;
        if let Some(stream) = &mut self.stream {
            let written =
                Pin::new(stream).poll_write(&mut Context::from_waker(Waker::noop()), reply.text.as_bytes());
            assert!(!matches!(written, Poll::Pending), "the client does not read");
        }
        Some(reply.text)
    }
}

impl Subscriptions {
    /// Whether nothing is subscribed or on its way.
    pub(super) fn is_idle(&self, network: &Network) -> bool {
        self.changes.is_empty() && self.incoming.is_empty() && channels_of(network, self).is_empty()
    }

    fn close(&mut self) {
        self.to_client = None;
        self.changes.clear();
        self.incoming.clear();
    }

    /// Delivers the next confirmation or message. Returns its text.
    pub(super) fn hear(&mut self) -> String {
        match self.incoming.pop_front() {
            Some(Incoming::Confirmation(done)) => {
                let _ = done.send(());
                "confirmed".to_owned()
            }
            Some(Incoming::Message(channel)) => {
                let text = format!("message {channel}");
                if let Some(client) = &self.to_client {
                    let _ = client.send(channel);
                }
                text
            }
            None => String::new(),
        }
    }
}

/// A connection for commands, for the client of the running task.
pub(crate) fn connect() -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(1 << 13);
    let commands = Commands {
        client: search::client().expect("a client connects"),
        stream: Some(ours),
        unread: Vec::new(),
        unfinished: Vec::new(),
        requests: VecDeque::new(),
        replies: VecDeque::new(),
        silent: false,
    };
    with(|world| world.network.commands.push(commands));
    theirs
}

/// A connection for subscriptions, for the client of the running task.
pub(crate) fn listen() -> (Link, mpsc::UnboundedReceiver<String>) {
    let (to_server, published) = mpsc::unbounded_channel();
    let (to_client, heard) = mpsc::unbounded_channel();
    let client = search::client().expect("a client connects");
    let link = with(|world| {
        let id = world.network.data.add(to_server);
        let (to_client, changes, incoming) = (Some(to_client), VecDeque::new(), VecDeque::new());
        world.network.subscriptions.push(Subscriptions {
            client,
            id,
            published,
            to_client,
            changes,
            incoming,
        });
        world.network.subscriptions.len() - 1
    });
    (Link(link), heard)
}

/// The client's end of a connection for subscriptions.
pub(crate) struct Link(usize);

impl Link {
    pub(crate) async fn subscribe(&self, channels: &[Arc<str>]) -> Option<()> {
        self.change(Change::Subscribe(channels.iter().map(|channel| channel.to_string()).collect())).await
    }

    pub(crate) async fn unsubscribe(&self, channels: &[Arc<str>]) -> Option<()> {
        self.change(Change::Unsubscribe(channels.iter().map(|channel| channel.to_string()).collect())).await
    }

    pub(crate) fn is_up(&self) -> bool {
        with(|world| world.network.subscriptions[self.0].to_client.is_some())
    }

    async fn change(&self, change: Change) -> Option<()> {
        let (done, confirmed) = oneshot::channel();
        with(|world| {
            let link = &mut world.network.subscriptions[self.0];
            if link.to_client.is_some() {
                link.changes.push_back((change, done));
            }
        });
        confirmed.await.ok()
    }
}

/// The channels of a connection, for a fingerprint.
pub(super) fn channels_of(network: &Network, link: &Subscriptions) -> BTreeSet<String> {
    network.data.listeners.get(&link.id).map(|listener| listener.channels.clone()).unwrap_or_default()
}
