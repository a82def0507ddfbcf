//! A proxy between a client and a server, for the faults of a network.
//!
//! Each connection is a [`ProxyLink`] with two directions. Each direction can be delayed, held or swallowed, and the socket
//! at each end can be closed by itself. A link reads whole frames of RESP2, so that a test can name the request it
//! means. It matches replies to requests, except on a link of subscriptions.
//!
//! TCP loses nothing from the middle of a stream, so a reply is lost together with everything behind it on its link.
//!
//! A [`Gate`] across all links counts selected frames in both directions, and can be shut after a number of them.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The words of a request.
pub type Words = Vec<Vec<u8>>;

/// How long a test waits for an event, before it fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// The fate of the frames in one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    /// The frames wait here.
    Hold,
    /// The frames are gone, and so is the end of the stream: neither side learns anything.
    Swallow,
}

/// Ends with all its links when dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    links: Mutex<Vec<ProxyLink>>,
    accepted: watch::Sender<usize>,
    /// Whether new links swallow everything at first.
    dark: watch::Sender<bool>,
    gate: watch::Sender<Gate>,
}

/// The frames of all links pass it one by one.
struct Gate {
    /// Selects the frames that count, by the request that a frame is or answers. A message counts as the request
    /// `message <channel>`.
    which: fn(&Words) -> bool,
    limit: usize,
    let_in: usize,
    passed: usize,
    /// A frame waits at the shut gate.
    stopped: bool,
}

impl Gate {
    fn new(limit: usize, which: fn(&Words) -> bool) -> Self {
        Self { which, limit, let_in: 0, passed: 0, stopped: false }
    }
}

impl Proxy {
    /// Starts a proxy in front of the server on that port.
    pub async fn start(server: u16) -> Self {
        Self::keeping(server, true).await
    }

    /// The same without a record of the traffic, for any number of requests.
    pub async fn without_log(server: u16) -> Self {
        Self::keeping(server, false).await
    }

    async fn keeping(server: u16, keeps: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("no port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            links: Mutex::default(),
            accepted: watch::Sender::new(0),
            dark: watch::Sender::new(false),
            gate: watch::Sender::new(Gate::new(usize::MAX, |_| false)),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, keeps, shared.clone()));
        Self { port, shared, _tasks: tasks }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The connections with at least one open socket.
    pub fn open_links(&self) -> Vec<ProxyLink> {
        let mut links = self.shared.links();
        links.retain(|link| link.is_open());
        links.clone()
    }

    /// The `n`-th connection, counted from 0, once it exists.
    pub async fn link(&self, n: usize) -> ProxyLink {
        let mut accepted = self.shared.accepted.subscribe();
        let there = tokio::time::timeout(PATIENCE, accepted.wait_for(|&count| count > n));
        there.await.unwrap_or_else(|_| panic!("connection {n} was not made")).expect("the proxy runs");
        self.shared.links()[n].clone()
    }

    /// The number of connections so far.
    pub fn count(&self) -> usize {
        self.shared.links().len()
    }

    /// Swallows everything on every link, and on later ones: the network is gone, and neither side is notified.
    pub fn partition(&self) {
        self.shared.dark.send_replace(true);
        self.shared.links().iter().for_each(ProxyLink::swallow_both);
    }

    /// New links pass again. The old ones stay as they are, because TCP would have given them up.
    pub fn heal(&self) {
        self.shared.dark.send_replace(false);
    }

    /// From now on counts the frames that `which` accepts. `limit` of them pass. The next one waits, with everything
    /// behind it in its direction, until [`open_gate`](Self::open_gate).
    pub fn shut_gate_after(&self, limit: usize, which: fn(&Words) -> bool) {
        self.shared.gate.send_replace(Gate::new(limit, which));
    }

    /// Lets everything pass, and goes on counting.
    pub fn open_gate(&self) {
        self.shared.gate.send_modify(|gate| (gate.limit, gate.stopped) = (usize::MAX, false));
    }

    /// The number of frames that count and are in the socket of the other side, or on their way to it.
    pub fn admitted(&self) -> usize {
        self.shared.gate.borrow().let_in
    }

    /// Returns once `count` frames that count have passed: they are in the socket of the other side.
    pub fn passed(&self, count: usize) -> impl Future<Output = ()> + use<> {
        let mut gate = self.shared.gate.subscribe();
        async move { drop(gate.wait_for(|gate| gate.passed >= count).await.expect("the proxy runs")) }
    }

    /// Returns once a frame waits at the shut gate.
    pub async fn stopped(&self) {
        self.shared.gate.subscribe().wait_for(|gate| gate.stopped).await.expect("the proxy runs");
    }

    /// The number of requests without a reply that `which` accepts, on all links.
    pub fn unanswered(&self, which: impl Fn(&Words) -> bool) -> usize {
        let links = self.shared.links();
        let unanswered = |link: &ProxyLink| {
            let log = link.0.log.borrow();
            let asked = log.asked.iter().filter(|words| which(words)).count();
            asked - log.answered.iter().filter(|(words, _)| which(words)).count()
        };
        links.iter().map(unanswered).sum()
    }

    /// The words of the answered requests that `which` accepts together with the reply: one link after the other, and
    /// in order on each.
    pub fn answered(&self, which: impl Fn(&Words, &[u8]) -> bool) -> Vec<Vec<String>> {
        let links = self.shared.links();
        let answered = |link: &ProxyLink| -> Vec<Vec<String>> {
            let log = link.0.log.borrow();
            log.answered
                .iter()
                .filter(|(words, reply)| which(words, reply))
                .map(|(words, _)| short(words))
                .collect()
        };
        links.iter().flat_map(answered).collect()
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Vec<ProxyLink>> {
        self.links.lock().expect("the mutex is not poisoned")
    }

    /// Whether a frame may pass the gate, and whether it counts.
    fn let_in(&self, subject: Option<&Words>) -> (bool, bool) {
        let (mut admitted, mut counts) = (true, false);
        self.gate.send_if_modified(|gate| {
            counts = subject.is_some_and(|words| (gate.which)(words));
            if !counts {
                return false;
            }
            admitted = gate.let_in < gate.limit;
            if admitted {
                gate.let_in += 1;
                return false;
            }
            !std::mem::replace(&mut gate.stopped, true)
        });
        (admitted, counts)
    }
}

/// One connection through the proxy. Cheap to clone.
#[derive(Clone)]
pub struct ProxyLink(Arc<Inner>);

struct Inner {
    to_server: watch::Sender<Control>,
    to_client: watch::Sender<Control>,
    client_open: watch::Sender<bool>,
    server_open: watch::Sender<bool>,
    /// Whether requests and replies are recorded.
    keeps: bool,
    /// Whether the client has subscribed to something.
    subscribes: AtomicBool,
    log: watch::Sender<Traffic>,
}

#[derive(Clone, Copy)]
struct Control {
    mode: Mode,
    delay: Duration,
    /// Half of the next frame passes, and then the link is cut.
    cut_in_next_frame: bool,
}

/// The traffic of a link.
#[derive(Default)]
struct Traffic {
    /// The requests of the client, including those that went no further.
    asked: Vec<Words>,
    /// Sent to the server, and not answered yet.
    unanswered: VecDeque<Words>,
    /// The replies of the server, including those that went no further.
    answered: Vec<(Words, Vec<u8>)>,
    lose: Option<Lose>,
    lost: usize,
}

/// Loses the next reply to a request that `which` accepts.
struct Lose {
    which: Box<dyn Fn(&Words) -> bool + Send + Sync>,
    /// Closes the client's socket then.
    cut: bool,
}

impl ProxyLink {
    /// Passes frames again, including those that were held.
    pub fn pass(&self, way: Direction) {
        self.set(way, |control| control.mode = Mode::Pass);
    }

    /// Holds the frames that come from now on, and those that wait at the shut gate, until [`pass`](Self::pass). A frame that was
    /// held for the server is then delivered even if the client is long gone.
    pub fn hold(&self, way: Direction) {
        self.set(way, |control| control.mode = Mode::Hold);
    }

    /// Takes frames, and does not pass them on. The sockets stay open.
    pub fn swallow(&self, way: Direction) {
        self.set(way, |control| control.mode = Mode::Swallow);
    }

    /// A half-open link: neither side hears from the other any more.
    pub fn swallow_both(&self) {
        self.swallow(Direction::ToServer);
        self.swallow(Direction::ToClient);
    }

    /// Delays the frames that come from now on.
    pub fn delay(&self, way: Direction, delay: Duration) {
        self.set(way, |control| control.delay = delay);
    }

    /// Passes half of the next frame on, and closes both sockets.
    pub fn cut_in_next_frame(&self, way: Direction) {
        self.set(way, |control| control.cut_in_next_frame = true);
    }

    /// Whether the link carries subscriptions.
    pub fn subscribes(&self) -> bool {
        self.0.subscribes.load(Ordering::Relaxed)
    }

    pub fn is_swallowing(&self) -> bool {
        self.0.to_server.borrow().mode == Mode::Swallow
    }

    pub fn is_holding(&self) -> bool {
        self.0.to_server.borrow().mode == Mode::Hold
    }

    fn is_open(&self) -> bool {
        *self.0.client_open.borrow() || *self.0.server_open.borrow()
    }

    /// Closes both sockets.
    pub fn cut(&self) {
        self.0.server_open.send_replace(false);
        self.cut_client();
    }

    /// Closes the socket to the client. The server is not notified, and gets the held frames once they are passed on.
    pub fn cut_client(&self) {
        self.0.client_open.send_replace(false);
    }

    /// Runs `call`, holds its first request that `which` accepts and closes the socket to the client, so that the
    /// request is repeated on another link. [`deliver`](Self::deliver) has the server read the first one later.
    pub async fn hold_and_cut<T>(&self, which: fn(&Words) -> bool, call: impl Future<Output = T>) -> T {
        let asked = self.count(which);
        self.hold(Direction::ToServer);
        let cut = async {
            self.asked(asked + 1, which).await;
            self.cut_client();
        };
        let (done, ()) = tokio::join!(call, cut);
        done
    }

    /// Passes the held frames to the server, and returns once all requests that `which` accepts have been answered.
    pub async fn deliver(&self, which: fn(&Words) -> bool) {
        let count = self.count(which);
        self.pass(Direction::ToServer);
        self.answered(count, which).await;
    }

    /// Loses the reply to the next request that `which` accepts, and everything behind it.
    pub fn lose_reply_to(&self, which: impl Fn(&Words) -> bool + Send + Sync + 'static) {
        self.0.log.send_modify(|log| log.lose = Some(Lose { which: Box::new(which), cut: false }));
    }

    /// The same, and closes the client's socket once the server has answered.
    pub fn cut_at_reply_to(&self, which: impl Fn(&Words) -> bool + Send + Sync + 'static) {
        self.0.log.send_modify(|log| log.lose = Some(Lose { which: Box::new(which), cut: true }));
    }

    /// Returns once that reply was lost, which means that the server has run the request.
    pub async fn lost_reply(&self) {
        self.until("no reply was lost", |log| log.lost > 0).await;
    }

    /// Returns once the client has sent `count` requests that `which` accepts, since the link began.
    pub async fn asked(&self, count: usize, which: impl Fn(&Words) -> bool) {
        let what = "the request did not arrive";
        self.until(what, |log| log.asked.iter().filter(|words| which(words)).count() >= count).await;
    }

    /// Returns once the server has answered `count` requests that `which` accepts, with the last reply.
    pub async fn answered(&self, count: usize, which: impl Fn(&Words) -> bool) -> Vec<u8> {
        let accepted = |log: &Traffic| -> Vec<Vec<u8>> {
            log.answered.iter().filter(|(words, _)| which(words)).map(|(_, reply)| reply.clone()).collect()
        };
        self.until("the request was not answered", |log| accepted(log).len() >= count).await;
        accepted(&self.0.log.borrow()).pop().expect("there is one")
    }

    /// The number of requests of the client that `which` accepts.
    pub fn count(&self, which: impl Fn(&Words) -> bool) -> usize {
        self.0.log.borrow().asked.iter().filter(|words| which(words)).count()
    }

    async fn until(&self, what: &str, done: impl Fn(&Traffic) -> bool) {
        let mut log = self.0.log.subscribe();
        let ended =
            tokio::time::timeout(PATIENCE, log.wait_for(|log| done(log))).await.map(|log| log.is_ok());
        assert!(matches!(ended, Ok(true)), "{what}: {:?}", self.words());
    }

    /// The requests so far, for the message of a failure.
    fn words(&self) -> Vec<Vec<String>> {
        self.0.log.borrow().asked.iter().map(short).collect()
    }

    fn set(&self, way: Direction, change: impl FnOnce(&mut Control)) {
        let control = match way {
            Direction::ToServer => &self.0.to_server,
            Direction::ToClient => &self.0.to_client,
        };
        control.send_modify(change);
    }

    /// Records a request that came.
    fn ask(&self, frame: &[u8]) -> Words {
        let words = words(frame);
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"subscribe")) {
            self.0.subscribes.store(true, Ordering::Relaxed);
        }
        if self.0.keeps {
            self.0.log.send_modify(|log| log.asked.push(words.clone()));
        }
        words
    }

    /// Records a request that goes on to the server.
    fn send(&self, frame: &[u8]) {
        self.0.log.send_modify(|log| log.unanswered.push_back(words(frame)));
    }

    /// Records a reply, which may be the one to lose. Returns the request that it answers.
    fn answer(&self, frame: &[u8]) -> Option<Words> {
        if frame.starts_with(MESSAGE) {
            return Some(words(frame).into_iter().take(2).collect());
        }
        let (mut cut, mut answered) = (false, None);
        self.0.log.send_modify(|log| {
            let Some(words) = log.unanswered.pop_front() else { return };
            answered = Some(words.clone());
            if let Some(lose) = log.lose.take_if(|lose| (lose.which)(&words)) {
                self.swallow(Direction::ToClient);
                log.lost += 1;
                cut = lose.cut;
            }
            if self.0.keeps {
                log.answered.push((words, frame.to_vec()));
            }
        });
        if cut {
            self.cut_client();
        }
        answered
    }
}

/// The beginning of a message on a channel, which answers no request.
const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n";

/// A frame in the proxy.
struct Frame {
    due: Instant,
    bytes: Vec<u8>,
    /// The request that the frame is or answers.
    subject: Option<Words>,
    /// It came while the link held frames.
    held: bool,
}

async fn accept(listener: TcpListener, server: u16, keeps: bool, shared: Arc<Shared>) {
    let mut pumps = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("the listener is ours");
        let mode = if *shared.dark.borrow() { Mode::Swallow } else { Mode::Pass };
        let control = Control { mode, delay: Duration::ZERO, cut_in_next_frame: false };
        let link = ProxyLink(Arc::new(Inner {
            to_server: watch::Sender::new(control),
            to_client: watch::Sender::new(control),
            client_open: watch::Sender::new(true),
            server_open: watch::Sender::new(true),
            keeps,
            subscribes: AtomicBool::new(false),
            log: watch::Sender::default(),
        }));
        // If the server is down, the client is disconnected, as it would be without the proxy.
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("the socket is open");
        }
        let ((client_in, client_out), (server_in, server_out)) = (client.into_split(), server.into_split());
        pumps.spawn(pump(shared.clone(), link.clone(), Direction::ToServer, client_in, server_out));
        pumps.spawn(pump(shared.clone(), link.clone(), Direction::ToClient, server_in, client_out));
        let count = {
            let mut links = shared.links();
            links.push(link);
            links.len()
        };
        shared.accepted.send_replace(count);
    }
}

/// Carries one direction of a link. A socket is closed by dropping both of its halves.
async fn pump(shared: Arc<Shared>, link: ProxyLink, way: Direction, from: OwnedReadHalf, to: OwnedWriteHalf) {
    let (control, from_open, to_open) = match way {
        Direction::ToServer => (&link.0.to_server, &link.0.client_open, &link.0.server_open),
        Direction::ToClient => (&link.0.to_client, &link.0.server_open, &link.0.client_open),
    };
    let (mut control, mut from_open, mut to_open) =
        (control.subscribe(), from_open.subscribe(), to_open.subscribe());
    let mut gate = shared.gate.subscribe();
    let mut before = control.borrow().mode;
    let (mut from, mut to) = (Some(from), Some(to));
    let mut unread = Vec::new();
    let mut waiting: VecDeque<Frame> = VecDeque::new();
    let (mut ended, mut stopped) = (false, false);
    loop {
        if !*from_open.borrow_and_update() {
            from = None;
        }
        if !*to_open.borrow_and_update() {
            to = None;
        }
        let Control { mode, delay, cut_in_next_frame } = *control.borrow_and_update();
        // Frames that came before the link began to swallow have passed already, unless they were held.
        if mode == Mode::Swallow && before == Mode::Hold {
            waiting.clear();
        }
        if mode == Mode::Hold && before != Mode::Hold && stopped {
            // The frames at the shut gate have not passed, so the link holds them, too.
            waiting.iter_mut().for_each(|frame| frame.held = true);
        }
        before = mode;
        gate.mark_unchanged();
        stopped = false;
        let goes_on = |frame: &Frame| mode != Mode::Hold || !frame.held;
        while waiting.front().is_some_and(|frame| goes_on(frame) && frame.due <= Instant::now()) {
            let (admitted, counts) = shared.let_in(waiting.front().and_then(|frame| frame.subject.as_ref()));
            stopped = !admitted;
            if stopped {
                break;
            }
            let Some(Frame { bytes, .. }) = waiting.pop_front() else { break };
            if let Some(open) = &mut to {
                if way == Direction::ToServer {
                    link.send(&bytes);
                }
                let part = if cut_in_next_frame { &bytes[..bytes.len() / 2] } else { &bytes[..] };
                if open.write_all(part).await.is_err() {
                    to = None;
                }
                if cut_in_next_frame {
                    link.cut();
                    to = None;
                }
            }
            if counts {
                shared.gate.send_modify(|gate| gate.passed += 1);
            }
        }
        // The end of the stream is passed on in order, and never by a link that swallows.
        if (ended || from.is_none()) && mode == Mode::Pass && waiting.is_empty() {
            to = None;
        }
        let due = waiting.front().filter(|frame| goes_on(frame) && !stopped).map(|frame| frame.due);
        tokio::select! {
            read = read(&mut from, &mut unread), if !ended => match read {
                // The socket is closed once its other half is dropped, too.
                Ok(0) | Err(_) => (ended, from) = (true, None),
                Ok(_) => {
                    while let Some(length) = frame(&unread) {
                        let bytes: Vec<u8> = unread.drain(..length).collect();
                        // A test may wait for the record of the frame, and then hold those behind it.
                        let held = control.borrow().mode == Mode::Hold;
                        let subject = match way {
                            Direction::ToServer => Some(link.ask(&bytes)),
                            Direction::ToClient => link.answer(&bytes),
                        };
                        if control.borrow().mode != Mode::Swallow {
                            waiting.push_back(Frame { due: Instant::now() + delay, bytes, subject, held });
                        }
                    }
                }
            },
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Ok(()) = control.changed() => {}
            Ok(()) = gate.changed() => {}
            Ok(()) = from_open.changed() => {}
            Ok(()) = to_open.changed() => {}
        }
    }
}

async fn read(from: &mut Option<OwnedReadHalf>, unread: &mut Vec<u8>) -> io::Result<usize> {
    match from {
        Some(from) => from.read_buf(unread).await,
        None => std::future::pending().await,
    }
}

/// The length of the first frame of RESP2, if it is complete. Maps and pushes of RESP3 are understood, too.
pub fn frame(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")? + 2;
    let number = || -> i64 {
        let text = std::str::from_utf8(&bytes[1..line - 2]).expect("a length is text");
        text.parse().expect("a length is a number")
    };
    match bytes[0] {
        b'+' | b'-' | b':' => Some(line),
        b'$' => {
            let end = usize::try_from(number()).map_or(line, |length| line + length + 2);
            (bytes.len() >= end).then_some(end)
        }
        b'*' | b'>' | b'%' => {
            let mut end = line;
            for _ in 0..number() * if bytes[0] == b'%' { 2 } else { 1 } {
                end += frame(&bytes[end..])?;
            }
            Some(end)
        }
        other => panic!("this is not RESP2: {:?}", char::from(other)),
    }
}

/// The words of a request, shortened for the message of a failure.
fn short(words: &Words) -> Vec<String> {
    words.iter().map(|word| String::from_utf8_lossy(word).chars().take(60).collect()).collect()
}

/// The words of a request, which is an array of strings.
pub fn words(frame: &[u8]) -> Words {
    let mut words = Vec::new();
    let line = |at: usize| at + frame[at..].windows(2).position(|end| end == b"\r\n").expect("whole") + 2;
    let mut at = line(0);
    while at < frame.len() {
        let start = line(at);
        let length: usize = std::str::from_utf8(&frame[at + 1..start - 2]).unwrap().parse().unwrap();
        words.push(frame[start..start + length].to_vec());
        at = start + length + 2;
    }
    words
}
