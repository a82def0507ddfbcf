//! Drops futures before they end: at every poll, and at every frame that their work sends or gets.
//!
//! A [`CutAt`] is the point in time, and [`drop_at`] drops a future there. A [`DropBench`] has the clients and checks that
//! nothing is left behind. A [`Tally`] counts the drops.
//!
//! The client under test is on a runtime of its own, so that its tasks can be counted, and behind a proxy with a gate.
//! Its callers run on the runtime of the test.

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

use super::any_lock::{AnyLock, ClientSet, Held};
use super::kind::{Kind, is_idle, keys};
use super::proxy::Words;
use super::{Proxy, Server, Stopwatch, scripts};

pub const NAME: &str = "n";
/// How the channels of all kinds begin, including those of queued waiters and of multi locks.
const CHANNELS: [&[u8]; 3] = [b"redisson_lock__channel:{n", b"redisson_rwlock:{n", b"redisson_sc:{n"];
const SENTINEL: &str = "sentinel";
/// The lease of the client under test. It is well over [`PROMPT`], so that an expiry is not taken for an undo.
pub const LEASE: Duration = Duration::from_millis(3600);
/// Upper bound for an undo, and for the turn of the next waiter, without the stalls of this machine.
pub const PROMPT: Duration = Duration::from_secs(1);
/// How often to look whether something has happened.
const STEP: Duration = Duration::from_millis(1);
/// How long to wait for a wake-up, before the test fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The tasks of an idle client: two connections, the task that drives each of them, the watchdog, and the task that starts the
/// releases of dropped guards.
const TASKS_AT_REST: usize = 6;

/// The point at which a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutAt {
    /// After that many polls.
    Polls(usize),
    /// After that many polls, and the wake-up that asks for one more.
    Woken(usize),
    /// While the frame after that many is held back. It arrives later.
    Before(usize),
    /// As soon as that many frames and one more have arrived, and before the next one can.
    After(usize),
}

impl CutAt {
    /// Each begins a series that goes on for as long as there is something to cut.
    pub const SERIES: [fn(usize) -> Self; 4] =
        [Self::Polls, |n| Self::Woken(n + 1), Self::Before, Self::After];
    /// The series by frames.
    pub const FRAMES: [fn(usize) -> Self; 2] = [Self::Before, Self::After];

    /// The number of frames that may pass before the cut.
    fn frames(self) -> usize {
        match self {
            Self::Polls(_) | Self::Woken(_) => usize::MAX,
            Self::Before(frames) => frames,
            Self::After(frames) => frames + 1,
        }
    }
}

/// The place at which a future is dropped, for the message of a failure.
#[derive(Clone, Copy, Debug)]
pub struct DropPoint {
    pub function: &'static str,
    pub position: &'static str,
    pub cut: CutAt,
}

impl fmt::Display for DropPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, dropped at {:?}", self.function, self.position, self.cut)
    }
}

/// Shuts the gate at `cut`.
pub fn shut_gate(proxy: &Proxy, cut: CutAt, which: fn(&Words) -> bool) {
    proxy.shut_gate_after(cut.frames(), which);
}

/// Polls `call` whenever it is woken, and drops it at `cut`. Returns its output if it ended before that. Calls
/// `pending` after the first poll, unless `call` has ended by then.
pub async fn drop_at<T>(
    proxy: &Proxy,
    cut: CutAt,
    call: impl Future<Output = T>,
    pending: impl FnOnce(),
) -> Option<T> {
    let mut call = Box::pin(call);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut at_frame = pin!(at_frame(proxy, cut));
    let mut pending = Some(pending);
    let mut polls = 0;
    while cut != CutAt::Polls(polls) {
        if let Poll::Ready(output) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        polls += 1;
        if let Some(pending) = pending.take() {
            pending();
        }
        if cut == CutAt::Polls(polls) {
            break;
        }
        tokio::select! {
            biased;
            () = &mut at_frame => break,
            () = woken.0.notified() => {}
            () = tokio::time::sleep(PATIENCE) => panic!("neither {cut:?} nor the end of the call comes"),
        }
        if cut == CutAt::Woken(polls) {
            break;
        }
        // The frame may have woken the call before the proxy has reported it.
        if matches!(cut, CutAt::After(frames) if proxy.admitted() > frames) {
            at_frame.await;
            break;
        }
    }
    None
}

/// Returns at a `cut` by frames.
pub async fn at_frame(proxy: &Proxy, cut: CutAt) {
    match cut {
        CutAt::Polls(_) | CutAt::Woken(_) => pending().await,
        CutAt::Before(_) => proxy.stopped().await,
        CutAt::After(frames) => proxy.passed(frames + 1).await,
    }
}

#[derive(Default)]
struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Runs `once` for each cut of each series, until the call ends without a drop.
pub async fn for_each_cut(
    tally: &Tally,
    (function, position): (&'static str, &'static str),
    for_each_cut: &[fn(usize) -> CutAt],
    once: impl AsyncFn(DropPoint) -> bool,
) {
    for cut in for_each_cut {
        for n in 0.. {
            let drop_point = DropPoint { function, position, cut: cut(n) };
            if !once(drop_point).await {
                break;
            }
            tally.add(&drop_point);
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

/// A runtime of one thread, for one client.
pub struct ClientRuntime(Option<Runtime>);

impl ClientRuntime {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self(Some(runtime.expect("there is room for a thread")))
    }

    pub fn handle(&self) -> &Handle {
        self.0.as_ref().expect("the runtime runs").handle()
    }

    pub fn tasks(&self) -> usize {
        self.handle().metrics().num_alive_tasks()
    }

    /// Ends the runtime, and its tasks wherever they are. Nothing runs on it any more once this returns.
    pub async fn end(mut self) {
        let runtime = self.0.take().expect("the runtime runs");
        tokio::task::spawn_blocking(move || drop(runtime)).await.expect("it ends");
    }

    pub async fn connect(&self, builder: ClientBuilder, proxy: &Proxy) -> Client {
        let before = self.tasks();
        let connecting = self.handle().spawn(builder.connect(proxy.url()));
        let client = connecting.await.expect("no panic").expect("the server is up");
        soon("the client's tasks", || self.tasks() == before + TASKS_AT_REST).await;
        client
    }
}

impl Drop for ClientRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A server, the client under test, and two other clients.
pub struct DropBench {
    /// The kind of the lock under test. The holder that it waits for, and the next waiter, are of its rival kind.
    pub kind: Kind,
    pub server: Server,
    cli: RefCell<redis::Connection>,
    /// Between `near` and the server.
    pub proxy: Proxy,
    /// The client under test.
    pub near: ClientSet,
    pub client_runtime: ClientRuntime,
    /// Between `far` and the server.
    far_proxy: Proxy,
    /// The client of the next waiters.
    pub far: ClientSet,
    /// The client that holds the lock that the others wait for.
    pub other: ClientSet,
}

impl DropBench {
    pub async fn start() -> Self {
        Self::of(Kind::Reentrant).await
    }

    pub async fn of(kind: Kind) -> Self {
        let server = kind.server(NAME);
        scripts::load(&server);
        let cli = server.cli();
        let (proxy, far_proxy) = (Proxy::start(server.port()).await, Proxy::start(server.port()).await);
        let client_runtime = ClientRuntime::new();
        let builder = Client::builder().watchdog_timeout(LEASE);
        let mut near = ClientSet::from(client_runtime.connect(builder.clone(), &proxy).await);
        for address in ClientSet::extra_addresses(kind, &server).await {
            near.join(client_runtime.connect(builder.clone(), &address).await, address);
        }
        let mut far =
            ClientSet::from(kind.builder().connect(far_proxy.url()).await.expect("the server is up"));
        for address in ClientSet::extra_addresses(kind, &server).await {
            far.join(kind.builder().connect(address.url()).await.expect("the server is up"), address);
        }
        let other = ClientSet::of(kind, &server);
        let (near, far, other) = tokio::join!(near.counting(kind), far.counting(kind), other);
        let this =
            Self { kind, server, cli: RefCell::new(cli), proxy, near, client_runtime, far_proxy, far, other };
        // Two connections of each client, and the one of this test.
        let connections = [&this.near, &this.far, &this.other].map(|party| party.clients().len() * 2);
        soon("the connections", || this.connections() == connections.iter().sum::<usize>() + 1).await;
        this
    }

    /// The lock under test, for an owner that is the same at each drop.
    pub fn lock(&self, lease: Option<Duration>) -> Lock {
        self.any_lock(lease).as_lock().clone()
    }

    /// The same for any kind.
    pub fn any_lock(&self, lease: Option<Duration>) -> AnyLock {
        let owner = Owner::new("caller").expect("a valid owner");
        let any_lock = self.kind.of(&self.near, NAME).with_owner(&owner);
        lease.map_or(any_lock.clone(), |lease| any_lock.with_lease(lease))
    }

    pub fn rival(&self, party: &ClientSet) -> AnyLock {
        self.kind.rival().of(party, NAME)
    }

    /// The holders and their counts.
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

    /// Starts another waiter of the client under test. It is queued as soon as this task waits.
    pub fn next_here(&self) -> JoinHandle<()> {
        next(&self.rival(&self.near))
    }

    /// Starts a waiter of another client, and returns once it got `answers` replies. By the second one it is subscribed.
    pub async fn next_there(&self, answers: usize) -> JoinHandle<()> {
        let link = self.far_proxy.link(0).await;
        let before = link.count(changes_record);
        let next = next(&self.rival(&self.far));
        let asked = link.answered(before + answers, changes_record);
        // The waiter may be served at once, and then releases.
        asked.await;
        next
    }

    /// Asserts that `held` is the only hold, with one level.
    pub async fn assert_held_alone(&self, drop_point: &DropPoint, held: &Held) {
        if self.kind.needs_a_majority() {
            // A call on a red lock ends while a minority is still at it.
            soon(&format!("{drop_point}: the minority is done"), || self.record() == held.alone(1)).await;
        }
        assert_eq!((held.state(), self.record()), (HoldState::Held, held.alone(1)), "{drop_point}");
    }

    /// Asserts that the next waiters are served at once.
    pub async fn served(&self, drop_point: &DropPoint, next: impl IntoIterator<Item = JoinHandle<()>>) {
        let started = Stopwatch::start();
        for next in next {
            let served = prompt(&started, next).await;
            served
                .unwrap_or_else(|| panic!("{drop_point}: the next waiter is not served: {self:?}"))
                .expect("served");
        }
    }

    /// Waits until the client under test has nothing to do, except for `held` locks.
    pub async fn idle(&self, drop_point: &DropPoint, held: usize) {
        let queues = || match held {
            0 => is_idle(&self.near),
            _ => format!("{:?}", self.near).contains(&format!("queues: {held} ")),
        };
        soon(&format!("{drop_point}: the queue is empty"), queues).await;
        soon(&format!("{drop_point}: the subscriptions have ended"), || self.channels().is_empty()).await;
        let tasks = || self.client_runtime.tasks() == TASKS_AT_REST * self.near.clients().len();
        soon(&format!("{drop_point}: the client's tasks have ended"), tasks).await;
    }

    /// Waits until nothing is left: no record, queue or other key, subscription, key queue, unanswered request or task.
    pub async fn at_rest(&self, drop_point: &DropPoint) {
        soon(&format!("{drop_point}: the record is gone"), || self.record().is_empty()).await;
        self.idle(drop_point, 0).await;
        let nothing = || keys(&self.server).into_iter().eq(self.kind.remaining_key(NAME));
        soon(&format!("{drop_point}: the other keys are gone"), nothing).await;
        for client in [&self.far, &self.other] {
            soon(&format!("{drop_point}: the queues of the other clients are empty"), || is_idle(client))
                .await;
        }
        // A request that is still under way must not count at the next drop.
        soon(&format!("{drop_point}: the subscriptions have ended"), || {
            self.proxy.unanswered(|words| words[0].ends_with(b"SUBSCRIBE")) == 0 && self.channels().is_empty()
        })
        .await;
    }

    /// Asserts that nothing is renewed any more. Of two watched holds, the one that was taken first is renewed first.
    pub async fn assert_no_renewal(&self) {
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

    /// How often a probe found the lock free. Such a waiter got no message.
    pub fn found_by_probes(&self) -> usize {
        let found = |words: &Words, reply: &[u8]| words[0] == b"HSCAN" && reply == b"*2\r\n$1\r\n0\r\n*0\r\n";
        self.proxy.answered(found).len() + self.far_proxy.answered(found).len()
    }
}

impl fmt::Debug for DropBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench")
            .field("record", &self.record())
            .field("channels", &self.channels())
            .field("tasks", &self.client_runtime.tasks())
            .field("near", &self.near)
            .finish_non_exhaustive()
    }
}

fn next(lock: &AnyLock) -> JoinHandle<()> {
    let lock = lock.clone();
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("the server is up");
        guard.unlock().await.expect("the lock was held");
    })
}

/// The output of `coming`, or `None` if it does not come within [`PROMPT`] of the start of the watch.
pub async fn prompt<T>(started: &Stopwatch, coming: impl Future<Output = T>) -> Option<T> {
    let mut coming = pin!(coming);
    loop {
        tokio::select! {
            biased;
            output = &mut coming => return Some(output),
            () = tokio::time::sleep(STEP) => if started.elapsed() >= PROMPT {
                return None;
            }
        }
    }
}

/// Waits until `condition` holds, for [`PROMPT`] at most.
pub async fn soon(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Stopwatch::start();
    while !condition() {
        assert!(started.elapsed() < PROMPT, "not in time: {what}");
        tokio::time::sleep(STEP).await;
    }
}

/// The frames of a lock's work whose order is always the same. Probes and heartbeats go by the clock.
pub fn has_fixed_order(words: &Words) -> bool {
    const BY_THE_CLOCK: [&[u8]; 4] = [b"HSCAN", b"GET", b"PING", b"UNSUBSCRIBE"];
    let of_a_channel = |word: &Vec<u8>| CHANNELS.iter().any(|channel| word.starts_with(channel));
    // The hand-off of permits names only their leases.
    let named = |word: &Vec<u8>| {
        word == NAME.as_bytes() || word == b"{n}:timeout" || word.starts_with(b"n.") || of_a_channel(word)
    };
    words.iter().any(named) && !BY_THE_CLOCK.contains(&words[0].as_slice())
}

pub fn not_a_heartbeat(words: &Words) -> bool {
    words[0] != b"PING"
}

fn changes_record(words: &Words) -> bool {
    const CHANGES: [&[u8]; 5] = [b"EVAL", b"EVALSHA", b"RESTORE", b"SET", b"HDEL"];
    has_fixed_order(words) && CHANGES.contains(&words[0].as_slice())
}

/// The number of drops, by function and position.
#[derive(Default)]
pub struct Tally(Mutex<BTreeMap<(&'static str, &'static str), usize>>);

impl Tally {
    pub fn add(&self, drop_point: &DropPoint) {
        let mut counts = self.0.lock().expect("no panic");
        *counts.entry((drop_point.function, drop_point.position)).or_default() += 1;
    }

    pub fn total(&self) -> usize {
        self.0.lock().expect("no panic").values().sum()
    }

    /// Prints the counts. Each must be at least the given one, and both sides must have the same rows.
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
