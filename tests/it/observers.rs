//! Observers: their events have the documented contents and order, they may use the client, and their panics harm nothing.

use crate::support::any_lock::{AnyLock, ClientSet};
use crate::support::kind::Kind;
use crate::support::log::WarningLog;
use crate::support::tally::Tally;
use crate::support::{BUSY_WAIT, Server, eventually};
use futures_util::FutureExt;
use redisson_lock::observer::{Acquired, CallEnd, Ended, NotAcquired, Observer, Renewed, Waiting, Way};
use redisson_lock::{Client, HoldState, LossReason, MultiLock, MultiLockGuard, Owner, blocking};
use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

const NAME: &str = "n";
/// A watchdog timeout so short that a test sees a renewal.
const RENEWED: Duration = Duration::from_millis(1500);

/// Writes each event as a line.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Diary {
    fn on_waiting(&self, call: &Waiting<'_>) {
        self.note(format!("{} of {} waits as {}", call.kind, call.name, end_of(call.owner)));
    }

    fn on_acquired(&self, acquired: &Acquired<'_>) {
        let Acquired { kind, name, way, waited, token, .. } = acquired;
        self.note(format!(
            "{kind} of {name} {way}, waited {waited}, token {token:?}, {}",
            end_of(acquired.owner)
        ));
    }

    fn on_not_acquired(&self, call: &NotAcquired<'_>) {
        self.note(format!(
            "{} of {} {}, waited {}, {}",
            call.kind,
            call.name,
            call.end,
            call.waited,
            end_of(call.owner)
        ));
    }

    fn on_released(&self, hold: &Ended<'_>) {
        self.note(format!("{} of {} released, {}", hold.kind, hold.name, end_of(hold.owner)));
    }

    fn on_lost(&self, hold: &Ended<'_>, reason: LossReason) {
        self.note(format!("{} of {} lost, {reason:?}, {}", hold.kind, hold.name, end_of(hold.owner)));
    }
}

/// An owner id without the uuid of its client.
fn end_of(owner: &str) -> &str {
    owner.split_once(':').map_or(owner, |(_, id)| id)
}

async fn observed(server: &Server, observer: Arc<dyn Observer>) -> Client {
    Client::builder().observer(observer).connect(server.url()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_name_the_lock_its_kind_and_its_owner() {
    let server = Server::start();
    let diary = Arc::new(Diary::default());
    let client = observed(&server, diary.clone()).await;
    let other = Client::connect(server.url()).await.unwrap();
    let owned = |id: &str| client.fenced_lock(NAME).with_owner(&Owner::new(id).unwrap());
    let (first, second) = (owned("first"), owned("second"));

    let guard = first.lock().await.unwrap();
    let inner = first.lock().await.unwrap();
    inner.unlock().await.unwrap();
    assert!(second.try_lock().await.unwrap().is_none());
    let waits = tokio::spawn(async move { second.lock().await.unwrap() });
    eventually(|| client.stats().waiting == 1).await;
    guard.unlock().await.unwrap();
    let guard = waits.await.unwrap();
    redis::cmd("DEL").arg(NAME).exec(&mut server.cli()).unwrap();
    guard.unlock().await.unwrap_err();
    assert_eq!(
        diary.take(),
        [
            "fenced lock of n directly, waited false, token Some(1), owner-first",
            "fenced lock of n waits as owner-first",
            "fenced lock of n re-entered, waited true, token Some(1), owner-first",
            "fenced lock of n waits as owner-second",
            "fenced lock of n busy, waited true, owner-second",
            "fenced lock of n waits as owner-second",
            "fenced lock of n released, owner-first",
            "fenced lock of n handed over, waited true, token Some(2), owner-second",
            "fenced lock of n released, owner-second",
        ]
    );

    // A lock at which nothing of the client is left to do.
    let third = client.fenced_lock("m").with_owner(&Owner::new("first").unwrap());
    let guard = other.fenced_lock("m").lock().await.unwrap();
    assert!(third.try_lock().await.unwrap().is_none());
    assert!(third.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    guard.unlock().await.unwrap();
    assert_eq!(
        diary.take(),
        [
            "fenced lock of m busy, waited false, owner-first~1",
            "fenced lock of m waits as owner-first~1",
            "fenced lock of m timed out, waited true, owner-first~1",
        ]
    );

    // A latch is passed and not held.
    client.count_down_latch("l").wait().await.unwrap();
    let lines = diary.take();
    assert!(lines[1].starts_with("count-down latch of l directly, waited true, token None, "), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_and_numbers_connect_the_events_of_a_call_and_of_a_hold() {
    #[derive(Default)]
    struct Numbers(Mutex<Vec<(&'static str, u64, Duration)>>);
    impl Observer for Numbers {
        fn on_waiting(&self, call: &Waiting<'_>) {
            self.0.lock().unwrap().push(("waiting", call.call, Duration::ZERO));
        }
        fn on_acquired(&self, acquired: &Acquired<'_>) {
            let mut events = self.0.lock().unwrap();
            events.push(("acquired", acquired.call, acquired.took));
            events.push(("hold", acquired.hold.unwrap(), Duration::ZERO));
        }
        fn on_released(&self, hold: &Ended<'_>) {
            self.0.lock().unwrap().push(("released", hold.hold, hold.held));
        }
    }
    const HELD: Duration = Duration::from_millis(60);
    let server = Server::start();
    let numbers = Arc::new(Numbers::default());
    let client = observed(&server, numbers.clone()).await;
    let other = Client::connect(server.url()).await.unwrap();
    let guard = other.lock(NAME).lock().await.unwrap();
    let lock = client.lock(NAME);
    let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(|| client.stats().waiting == 1).await;
    tokio::time::sleep(HELD).await;
    guard.unlock().await.unwrap();
    let guard = waits.await.unwrap();
    tokio::time::sleep(HELD).await;
    guard.unlock().await.unwrap();
    let events = numbers.0.lock().unwrap();
    let [waiting, acquired, hold, released] = events[..] else { panic!("{events:?}") };
    assert_eq!((waiting.0, acquired.0, released.0), ("waiting", "acquired", "released"), "{events:?}");
    assert_eq!((waiting.1, hold.1), (acquired.1, released.1), "{events:?}");
    assert!(acquired.2 >= HELD && released.2 >= HELD, "{events:?}");
}

#[test]
fn a_client_of_threads_has_observers_in_the_order_in_which_they_were_added() {
    struct Order(&'static str, Arc<Diary>);
    impl Observer for Order {
        fn on_acquired(&self, acquired: &Acquired<'_>) {
            self.1.note(format!("{} {}", self.0, acquired.way));
        }
    }
    let server = Server::start();
    let diary = Arc::new(Diary::default());
    let builder = Client::builder()
        .observer(Arc::new(Order("first", diary.clone())))
        .observer(Arc::new(Order("second", diary.clone())));
    let client = blocking::Client::connect_with(builder, server.url()).unwrap();
    client.lock(NAME).lock().unwrap().unlock().unwrap();
    assert_eq!(diary.take(), ["first directly", "second directly"]);
}

/// Uses a lock in each event: an attempt that is dropped after its first poll locks all that an attempt locks.
#[derive(Default)]
struct Meddler(OnceLock<AnyLock>);

thread_local! {
    /// The meddler of this thread causes events itself.
    static MEDDLING: Cell<bool> = const { Cell::new(false) };
}

impl Meddler {
    fn meddle(&self) {
        if let Some(lock) = self.0.get()
            && !MEDDLING.replace(true)
        {
            drop(lock.try_lock().now_or_never());
            MEDDLING.set(false);
        }
    }
}

impl Observer for Meddler {
    fn on_waiting(&self, _: &Waiting<'_>) {
        self.meddle();
    }
    fn on_acquired(&self, _: &Acquired<'_>) {
        self.meddle();
    }
    fn on_not_acquired(&self, _: &NotAcquired<'_>) {
        self.meddle();
    }
    fn on_renewed(&self, _: &Renewed<'_>) {
        self.meddle();
    }
    fn on_released(&self, _: &Ended<'_>) {
        self.meddle();
    }
    fn on_lost(&self, _: &Ended<'_>, _: LossReason) {
        self.meddle();
    }
    fn on_unended(&self, _: &Ended<'_>) {
        self.meddle();
    }
}

/// Many short holds of one key, renewals, a lost hold and a guard that outlives its client.
async fn use_one_key(kind: Kind, pipelined: bool) {
    let server = kind.server(NAME);
    let meddler = Arc::new(Meddler::default());
    let (builder, tally) = Tally::of(kind.builder().watchdog_timeout(RENEWED));
    let party = ClientSet::with(kind, builder.observer(meddler.clone()), &server).await;
    let lock = match kind.of(&party, NAME) {
        AnyLock::Lock(lock) if pipelined => AnyLock::Lock(lock.with_pipelined_hand_off(true)),
        lock => lock,
    };
    assert!(meddler.0.set(lock.clone()).is_ok());
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    lock.lock().await.unwrap().unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let renewed = || party.clients()[0].stats().renewals.done;
    let (held, before) = (lock.lock().await.unwrap(), renewed());
    eventually(|| renewed() > before || !kind.has_lease()).await;
    redis::cmd("FLUSHALL").exec(&mut server.cli()).unwrap();
    let _ = held.unlock().await;
    eventually(|| party.clients().iter().all(|client| client.stats().held == 0)).await;
    if let [client] = party.clients() {
        tally.assert_agrees(client).await;
    }
}

/// A call under a lock of the library would never return, so each kind has a thread, whose end is awaited.
#[test]
fn an_observer_may_use_the_client() {
    let kinds = Kind::ALL.into_iter().map(|kind| (kind, false)).chain([(Kind::Reentrant, true)]);
    for (kind, pipelined) in kinds {
        let (done, returned) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            runtime.unwrap().block_on(use_one_key(kind, pipelined));
            done.send(()).unwrap();
        });
        let waited = returned.recv_timeout(Duration::from_secs(30));
        assert!(waited.is_ok(), "{kind:?}, pipelined {pipelined}: {waited:?}");
    }
}

/// The group lock adds its values to the owner id by which the client knows a hold.
#[tokio::test]
async fn the_owner_of_a_group_lock_is_its_owner_id() {
    let server = Server::start();
    let diary = Arc::new(Diary::default());
    let client = observed(&server, diary.clone()).await;
    let group = client.group_lock(NAME, ["a", "b"]).with_owner(&Owner::new("first").unwrap());
    group.lock().await.unwrap().unlock().await.unwrap();
    let events = diary.take();
    assert!(events.len() >= 2 && events.iter().all(|event| event.ends_with("owner-first")), "{events:?}");
}

/// When the second member is lost, drops the guard of a multi lock. Before that, the event of the first member lasts until the lease of the
/// second one has ended.
#[derive(Default)]
struct Heir {
    guard: Mutex<Option<MultiLockGuard>>,
    ends: Mutex<Option<Instant>>,
}

impl Observer for Heir {
    fn on_lost(&self, _: &Ended<'_>, _: LossReason) {
        match self.ends.lock().unwrap().take() {
            Some(end) => std::thread::sleep(end - Instant::now() + Duration::from_millis(10)),
            None => drop(self.guard.lock().unwrap().take()),
        }
    }
}

async fn lose_two_members() {
    const LEASE: Duration = Duration::from_secs(1);
    let server = Server::start();
    let heir = Arc::new(Heir::default());
    let client = observed(&server, heir.clone()).await;
    let [one, two] = ["one", "two"].map(|name| client.lock(name));
    // The second member has a longer lease of its owner.
    let longer = two.with_lease(2 * LEASE).lock().await.unwrap();
    let guard = MultiLock::new([one, two]).unwrap().with_lease(LEASE).lock().await.unwrap();
    let status = guard.status();
    let first = guard.deadline();
    *heir.ends.lock().unwrap() = Some(longer.deadline());
    *heir.guard.lock().unwrap() = Some(guard);
    // This thread is the only one of the runtime, so no task notices the loss before this call.
    std::thread::sleep(first - Instant::now());
    assert!(matches!(status.state(), HoldState::Lost(_)));
    eventually(|| heir.guard.lock().unwrap().is_none()).await;
}

/// The other members are released in the background once the multi lock is lost.
#[test]
fn an_observer_of_a_loss_may_drop_the_guard_of_a_multi_lock() {
    let (done, returned) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(lose_two_members());
        done.send(()).unwrap();
    });
    assert_eq!(returned.recv_timeout(Duration::from_secs(30)), Ok(()));
}

/// Panics in each method.
struct Bomb;

impl Observer for Bomb {
    fn on_waiting(&self, _: &Waiting<'_>) {
        panic!("waiting");
    }
    fn on_acquired(&self, _: &Acquired<'_>) {
        panic!("acquired");
    }
    fn on_not_acquired(&self, _: &NotAcquired<'_>) {
        panic!("not acquired");
    }
    fn on_renewed(&self, _: &Renewed<'_>) {
        panic!("renewed");
    }
    fn on_released(&self, _: &Ended<'_>) {
        panic!("released");
    }
    fn on_lost(&self, _: &Ended<'_>, _: LossReason) {
        panic!("lost");
    }
    fn on_unended(&self, _: &Ended<'_>) {
        panic!("unended");
    }
    fn on_reconnected(&self, _: &str) {
        panic!("reconnected");
    }
    fn on_script_fallback(&self, _: &str) {
        panic!("fallback");
    }
}

#[tokio::test]
async fn a_panic_of_an_observer_harms_nothing() {
    let log = WarningLog::start();
    let mut server = Server::start();
    let builder = Client::builder().watchdog_timeout(RENEWED).observer(Arc::new(Bomb));
    let (builder, tally) = Tally::of(builder);
    let client = builder.connect(server.url()).await.unwrap();
    let other = Client::connect(server.url()).await.unwrap();
    let lock = client.mutex(NAME);

    // Acquired, renewed, lost.
    let guard = lock.lock().await.unwrap();
    eventually(|| client.stats().renewals.done >= 1).await;
    redis::cmd("DEL").arg(NAME).exec(&mut server.cli()).unwrap();
    guard.lost().await;
    drop(guard);
    // A fallback, a wait that ends without the lock, and one that ends with it. Released.
    let held = other.lock(NAME).lock().await.unwrap();
    assert!(lock.try_lock_for(BUSY_WAIT).await.unwrap().is_none());
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.unwrap().unlock().await.unwrap() }
    });
    eventually(|| client.stats().waiting == 1).await;
    held.unlock().await.unwrap();
    waits.await.unwrap();
    // Reconnected.
    server.kill();
    server.start_again();
    eventually(|| client.stats().reconnects >= 1 && client.is_connected()).await;
    // Unended.
    let permits = client.semaphore("s");
    permits.try_set_permits(1).await.unwrap();
    permits.acquire().await.unwrap().forget();

    tally.assert_agrees(&client).await;
    let panics = log.lines("an observer panicked").len();
    assert!(panics >= 9, "{panics} panics");
}

/// The ends of calls that a unit of work reports to its own log.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_and_a_failed_call_are_told_apart() {
    #[derive(Default)]
    struct Ends(Mutex<Vec<(CallEnd, bool)>>);
    impl Observer for Ends {
        fn on_not_acquired(&self, call: &NotAcquired<'_>) {
            self.0.lock().unwrap().push((call.end, call.waited));
        }
        fn on_acquired(&self, acquired: &Acquired<'_>) {
            assert_eq!(acquired.way, Way::Directly);
        }
    }
    let mut server = Server::start();
    let ends = Arc::new(Ends::default());
    let client = observed(&server, ends.clone()).await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    let lock = client.mutex(NAME);
    let waits = tokio::spawn(async move { lock.lock().await });
    eventually(|| client.stats().waiting == 1).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    guard.unlock().await.unwrap();
    server.kill();
    eventually(|| !client.is_connected()).await;
    client.mutex(NAME).try_lock().await.unwrap_err();
    assert_eq!(*ends.0.lock().unwrap(), [(CallEnd::Cancelled, true), (CallEnd::Failed, false)]);
}
