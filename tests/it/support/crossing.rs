//! Futures that are dropped before they end: at every poll, and at every frame that their work sends or gets.
//!
//! A [`Cut`] says when, [`cross`] does it, a [`Bench`] is where it is done and tells whether anything was left
//! behind, and a [`Tally`] counts how often it was done.
//!
//! The client that is tried is on a runtime of its own, so that its tasks can be counted, and behind a proxy with a
//! gate. What its callers do runs on the runtime of the test.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use redisson_lock::{Client, ClientBuilder, HoldState, Lock, Owner};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::contender::{Contender, Held, Party};
use super::kind::{Kind, is_idle, keys};
use super::proxy::Words;
use super::{Proxy, Server, scripts};

pub const NAME: &str = "n";
/// How the channels of all kinds begin, those of a queue's waiters and of several locks too.
const CHANNELS: [&[u8]; 3] = [b"redisson_lock__channel:{n", b"redisson_rwlock:{n", b"redisson_sc:{n"];
const SENTINEL: &str = "sentinel";
/// Of the client that is tried. Well over [`PROMPT`], so that what a lease frees is not taken for what was undone.
pub const LEASE: Duration = Duration::from_millis(3600);
/// At once: an undo, or the turn of the next.
pub const PROMPT: Duration = Duration::from_secs(1);
/// How long a wake-up is waited for, before the test fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// A client has two connections and what drives each, the subscriptions' driver being a task of its own, and the
/// watchdog.
const TASKS_AT_REST: usize = 5;

/// When a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// After so many polls.
    Polls(usize),
    /// After so many polls, and the wake-up that asks for one more.
    Woken(usize),
    /// While the frame after so many is on its way: it arrives later.
    Before(usize),
    /// As soon as one frame more than so many has arrived, and while the next can't.
    After(usize),
}

impl Cut {
    /// Each begins a series that goes on for as long as there is something to cut.
    pub const SERIES: [fn(usize) -> Self; 4] =
        [Self::Polls, |n| Self::Woken(n + 1), Self::Before, Self::After];
    /// Those by frames.
    pub const FRAMES: [fn(usize) -> Self; 2] = [Self::Before, Self::After];

    /// How many frames may pass before it.
    fn frames(self) -> usize {
        match self {
            Self::Polls(_) | Self::Woken(_) => usize::MAX,
            Self::Before(frames) => frames,
            Self::After(frames) => frames + 1,
        }
    }
}

/// A place at which a future is dropped, to be named in a failure.
#[derive(Clone, Copy, Debug)]
pub struct Crossing {
    pub function: &'static str,
    pub position: &'static str,
    pub cut: Cut,
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, dropped at {:?}", self.function, self.position, self.cut)
    }
}

/// Shuts the gate where `cut` says.
pub fn shut(proxy: &Proxy, cut: Cut, which: fn(&Words) -> bool) {
    proxy.shut_gate_after(cut.frames(), which);
}

/// Polls `call` whenever it is woken, and drops it at `cut`; its output, if it ended before that. `pending` is called
/// after the first poll, unless `call` is over by then.
pub async fn cross<T>(
    proxy: &Proxy,
    cut: Cut,
    call: impl Future<Output = T>,
    pending: impl FnOnce(),
) -> Option<T> {
    let mut call = Box::pin(call);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut at_frame = pin!(at_frame(proxy, cut));
    let mut pending = Some(pending);
    let mut polls = 0;
    while cut != Cut::Polls(polls) {
        if let Poll::Ready(output) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        polls += 1;
        if let Some(pending) = pending.take() {
            pending();
        }
        if cut == Cut::Polls(polls) {
            break;
        }
        tokio::select! {
            biased;
            () = &mut at_frame => break,
            () = woken.0.notified() => {}
            () = tokio::time::sleep(PATIENCE) => panic!("neither {cut:?} nor an end comes"),
        }
        if cut == Cut::Woken(polls) {
            break;
        }
    }
    None
}

/// Ends at a `cut` by frames.
pub async fn at_frame(proxy: &Proxy, cut: Cut) {
    match cut {
        Cut::Polls(_) | Cut::Woken(_) => pending().await,
        Cut::Before(_) => proxy.stopped().await,
        Cut::After(frames) => proxy.passed(frames + 1).await,
    }
}

#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Runs `once` for each cut of each series, until the call ends undisturbed.
pub async fn series(
    tally: &Tally,
    (function, position): (&'static str, &'static str),
    series: &[fn(usize) -> Cut],
    once: impl AsyncFn(Crossing) -> bool,
) {
    for cut in series {
        for n in 0.. {
            let crossing = Crossing { function, position, cut: cut(n) };
            if !once(crossing).await {
                break;
            }
            tally.add(&crossing);
        }
    }
}

/// Polls `call` as if it ran on the runtime of `handle`.
pub async fn on<T>(handle: &Handle, call: impl Future<Output = T>) -> T {
    let mut call = Box::pin(call);
    poll_fn(|cx| {
        let _entered = handle.enter();
        call.as_mut().poll(cx)
    })
    .await
}

/// A runtime of one thread, for a client alone.
pub struct Aside(Option<Runtime>);

impl Aside {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("there is room for a thread")))
    }

    pub fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it lives").handle()
    }

    pub fn tasks(&self) -> usize {
        self.handle().metrics().num_alive_tasks()
    }

    /// Ends the runtime, and its tasks wherever they stand. Nothing runs on it any more when this is over.
    pub async fn end(mut self) {
        let runtime = self.0.take().expect("it lives");
        tokio::task::spawn_blocking(move || drop(runtime)).await.expect("it ends");
    }

    pub async fn connect(&self, builder: ClientBuilder, proxy: &Proxy) -> Client {
        let before = self.tasks();
        let connecting = self.handle().spawn(builder.connect(proxy.url()));
        let client = connecting.await.expect("no panic").expect("the server is there");
        soon("the client's tasks", || self.tasks() == before + TASKS_AT_REST).await;
        client
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A server, the client that is tried, and two others.
pub struct Bench {
    /// Of the lock that is tried. Who makes it wait, and who comes next, is of its rival.
    pub kind: Kind,
    pub server: Server,
    cli: RefCell<redis::Connection>,
    /// Between `near` and the server.
    pub proxy: Proxy,
    pub near: Party,
    pub aside: Aside,
    /// Between `far` and the server.
    far_proxy: Proxy,
    /// The client of those who come next.
    pub far: Party,
    /// The client that holds what the others wait for.
    pub other: Party,
}

impl Bench {
    pub async fn start() -> Self {
        Self::of(Kind::Reentrant).await
    }

    pub async fn of(kind: Kind) -> Self {
        let server = kind.server(NAME);
        scripts::load(&server);
        let cli = server.cli();
        let (proxy, far_proxy) = (Proxy::start(server.port()).await, Proxy::start(server.port()).await);
        let aside = Aside::new();
        let builder = Client::builder().watchdog_timeout(LEASE);
        let mut near = Party::from(aside.connect(builder.clone(), &proxy).await);
        for address in Party::further_addresses(kind, &server).await {
            near.join(aside.connect(builder.clone(), &address).await, address);
        }
        let mut far =
            Party::from(kind.builder().connect(far_proxy.url()).await.expect("the server is there"));
        for address in Party::further_addresses(kind, &server).await {
            far.join(kind.builder().connect(address.url()).await.expect("the server is there"), address);
        }
        let other = Party::of(kind, &server);
        let (near, far, other) = tokio::join!(near.counting(kind), far.counting(kind), other);
        let this = Self { kind, server, cli: RefCell::new(cli), proxy, near, aside, far_proxy, far, other };
        // Two of each client, and ours.
        let connections = [&this.near, &this.far, &this.other].map(|party| party.clients().len() * 2);
        soon("the connections", || this.connections() == connections.iter().sum::<usize>() + 1).await;
        this
    }

    /// The lock that is tried, for an owner that is the same in each crossing.
    pub fn lock(&self, lease: Option<Duration>) -> Lock {
        self.contender(lease).as_lock().clone()
    }

    /// The same of whatever kind.
    pub fn contender(&self, lease: Option<Duration>) -> Contender {
        let owner = Owner::new("caller").expect("a good text");
        let contender = self.kind.of(&self.near, NAME).with_owner(&owner);
        lease.map_or(contender.clone(), |lease| contender.with_lease(lease))
    }

    pub fn rival(&self, party: &Party) -> Contender {
        self.kind.rival().of(party, NAME)
    }

    /// Who holds it, and how often.
    pub fn record(&self) -> BTreeMap<String, u64> {
        self.kind.holders(&mut self.cli.borrow_mut(), NAME)
    }

    pub fn delete_record(&self) {
        self.kind.erase(&self.server, NAME);
        self.kind.make(&self.server, NAME);
    }

    pub fn connections(&self) -> usize {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut self.cli.borrow_mut()).expect("LIST");
        list.lines().count()
    }

    pub fn channels(&self) -> Vec<String> {
        redis::cmd("PUBSUB").arg("CHANNELS").query(&mut self.cli.borrow_mut()).expect("CHANNELS")
    }

    /// Another task of the client that is tried, which takes its place in the queue as soon as this task waits.
    pub fn next_here(&self) -> JoinHandle<()> {
        next(&self.rival(&self.near))
    }

    /// A task of another client, which has been answered `answers` times: by the second it is subscribed.
    pub async fn next_there(&self, answers: usize) -> JoinHandle<()> {
        let link = self.far_proxy.link(0).await;
        let before = link.count(changes_record);
        let next = next(&self.rival(&self.far));
        let asked = link.answered(before + answers, changes_record);
        // It may be served at once, and then releases.
        asked.await;
        next
    }

    /// One has it, once, and nobody else.
    pub async fn held_alone(&self, crossing: &Crossing, held: &Held) {
        if self.kind.is_of_a_majority() {
            // Whose calls end while a minority is still at it.
            soon(&format!("{crossing}: an end of the minority's part"), || self.record() == held.alone(1))
                .await;
        }
        assert_eq!((held.state(), self.record()), (HoldState::Held, held.alone(1)), "{crossing}");
    }

    /// Those who come next are served, at once.
    pub async fn served(&self, crossing: &Crossing, next: impl IntoIterator<Item = JoinHandle<()>>) {
        let started = Instant::now();
        for next in next {
            let served = tokio::time::timeout(PROMPT.saturating_sub(started.elapsed()), next).await;
            served
                .unwrap_or_else(|_| panic!("{crossing}: the next is not served: {self:?}"))
                .expect("served");
        }
    }

    /// The client that is tried has nothing to do, but for `held` locks.
    pub async fn idle(&self, crossing: &Crossing, held: usize) {
        let lanes = || match held {
            0 => is_idle(&self.near),
            _ => format!("{:?}", self.near).contains(&format!("lanes: {held} ")),
        };
        soon(&format!("{crossing}: an end of the queue"), lanes).await;
        soon(&format!("{crossing}: an end of the subscriptions"), || self.channels().is_empty()).await;
        let tasks = || self.aside.tasks() == TASKS_AT_REST * self.near.clients().len();
        soon(&format!("{crossing}: an end of the client's tasks"), tasks).await;
    }

    /// Nothing is left behind: no record, queue or other key, subscription, lane (and so no queue), unanswered request or task.
    pub async fn at_rest(&self, crossing: &Crossing) {
        soon(&format!("{crossing}: an end of the record"), || self.record().is_empty()).await;
        self.idle(crossing, 0).await;
        let nothing = || keys(&self.server).into_iter().eq(self.kind.remains(NAME));
        soon(&format!("{crossing}: an end of the other keys"), nothing).await;
        for client in [&self.far, &self.other] {
            soon(&format!("{crossing}: an end of the others' queues"), || is_idle(client)).await;
        }
        // What is still on its way is no part of the next crossing.
        soon(&format!("{crossing}: an end of the subscriptions"), || {
            self.proxy.unanswered(|words| words[0].ends_with(b"SUBSCRIBE")) == 0 && self.channels().is_empty()
        })
        .await;
    }

    /// Nothing is renewed later: of two that are watched over, the one that was taken first is renewed first.
    pub async fn no_renewal_follows(&self) {
        if !self.kind.has_lease() {
            return;
        }
        let renewed = |name: &str| [name.to_owned(), format!("{{{name}}}:timeout")].map(String::into_bytes);
        let requests = |name: &str| {
            let renewed = renewed(name);
            self.proxy.answered(|words, _| words.iter().any(|word| renewed.contains(word)))
        };
        let before = requests(NAME).len();
        self.kind.make(&self.server, SENTINEL);
        let sentinel = self.kind.of(&self.near, SENTINEL).lock().await.expect("the lock is free");
        let limit = Instant::now() + LEASE;
        while requests(SENTINEL).len() < 2 {
            assert!(Instant::now() < limit, "the watchdog renews nothing");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let later = requests(NAME).split_off(before);
        assert!(later.is_empty(), "something is still renewed: {later:?}");
        assert_eq!(self.record(), BTreeMap::new());
        sentinel.unlock().await.expect("it was renewed");
    }

    /// How often a free lock was found by a glance: by those who had no message to go by.
    pub fn found_by_glances(&self) -> usize {
        let found = |words: &Words, reply: &[u8]| words[0] == b"HSCAN" && reply == b"*2\r\n$1\r\n0\r\n*0\r\n";
        self.proxy.answered(found).len() + self.far_proxy.answered(found).len()
    }
}

impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench")
            .field("record", &self.record())
            .field("channels", &self.channels())
            .field("tasks", &self.aside.tasks())
            .field("near", &self.near)
            .finish_non_exhaustive()
    }
}

fn next(lock: &Contender) -> JoinHandle<()> {
    let lock = lock.clone();
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("the server is there");
        guard.unlock().await.expect("the lock was held");
    })
}

/// Waits until `condition` holds, which must be soon.
pub async fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PROMPT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The frames of a lock's work whose order is always the same. Glances go by the clock, and heartbeats.
pub fn of_the_lock(words: &Words) -> bool {
    const BY_THE_CLOCK: [&[u8]; 4] = [b"HSCAN", b"GET", b"PING", b"UNSUBSCRIBE"];
    let of_a_channel = |word: &Vec<u8>| CHANNELS.iter().any(|channel| word.starts_with(channel));
    let named = |word: &Vec<u8>| word == NAME.as_bytes() || word.starts_with(b"n.") || of_a_channel(word);
    words.iter().any(named) && !BY_THE_CLOCK.contains(&words[0].as_slice())
}

pub fn not_a_heartbeat(words: &Words) -> bool {
    words[0] != b"PING"
}

fn changes_record(words: &Words) -> bool {
    const CHANGES: [&[u8]; 5] = [b"EVAL", b"EVALSHA", b"RESTORE", b"SET", b"HDEL"];
    of_the_lock(words) && CHANGES.contains(&words[0].as_slice())
}

/// How often futures were dropped, by function and position.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<(&'static str, &'static str), usize>>);

impl Tally {
    pub fn add(&self, crossing: &Crossing) {
        let mut counts = self.0.lock().expect("no panic");
        *counts.entry((crossing.function, crossing.position)).or_default() += 1;
    }

    pub fn total(&self) -> usize {
        self.0.lock().expect("no panic").values().sum()
    }

    /// Prints the counts, which must be at least the ones given; no row may be missing on either side.
    pub fn at_least(&self, least: impl IntoIterator<Item = (&'static str, &'static str, usize)>) {
        let counts = self.0.lock().expect("no panic");
        let mut functions = BTreeMap::<_, usize>::new();
        for ((function, position), count) in &*counts {
            println!("{function}, {position}: dropped {count} times");
            *functions.entry(function).or_default() += count;
        }
        for (function, count) in &functions {
            println!("{function}: dropped {count} times in all");
        }
        let least: BTreeMap<_, _> = least.into_iter().map(|(f, p, n)| ((f, p), n)).collect();
        assert!(counts.keys().eq(least.keys()), "{:?}", counts.keys());
        for (row, count) in &*counts {
            assert!(
                count >= &least[row],
                "{row:?}: dropped {count} times, which is less than {}",
                least[row]
            );
        }
    }
}
