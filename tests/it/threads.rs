//! The blocking API: plain threads, with and without a runtime around them.

use crate::support::{Server, Stopwatch};
use redisson_lock::blocking::{Client, Lock, MultiLock};
use redisson_lock::{BackOff, Error, HoldState, LossReason};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

#[test]
fn a_thread_re_enters_and_excludes_other_threads() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let lock = client.lock("n");
    let guard = lock.lock().unwrap();
    let again = lock.try_lock().unwrap().expect("the same thread");
    assert_eq!((lock.hold_count().unwrap(), lock.is_held().unwrap()), (2, true));
    let other = lock.clone();
    std::thread::spawn(move || {
        assert!(other.try_lock().unwrap().is_none());
        assert!(other.try_lock_for(Duration::from_millis(30)).unwrap().is_none());
        assert_eq!((other.hold_count().unwrap(), other.is_held().unwrap()), (0, false));
        assert_eq!(other.holder().unwrap().unwrap().count(), 2);
    })
    .join()
    .unwrap();
    again.unlock().unwrap();
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap() && lock.remaining_lease().unwrap().is_none());
}

#[test]
fn waiting_threads_exclude_each_other() {
    const THREADS: u64 = 8;
    const EACH: u64 = 50;
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let work = move |lock: Lock, start: Arc<Barrier>, url: String| {
        let mut cli = redis::Client::open(url).unwrap().get_connection().unwrap();
        start.wait();
        for _ in 0..EACH {
            let guard = lock.lock().unwrap();
            let count: Option<u64> = redis::cmd("GET").arg("counter").query(&mut cli).unwrap();
            redis::cmd("SET").arg("counter").arg(count.unwrap_or(0) + 1).exec(&mut cli).unwrap();
            guard.unlock().unwrap();
        }
    };
    let start = Arc::new(Barrier::new(THREADS as usize));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (lock, start, url) = (client.lock("n"), start.clone(), server.url());
            std::thread::spawn(move || work(lock, start, url))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let count: u64 = redis::cmd("GET").arg("counter").query(&mut server.cli()).unwrap();
    assert_eq!(count, THREADS * EACH);
}

#[test]
fn the_last_handle_may_be_dropped_anywhere_and_frees_its_hold() {
    let server = Server::start();
    let freed = || {
        let dropped = Instant::now();
        while redis::cmd("EXISTS").arg("n").query(&mut server.cli()).unwrap() {
            // The lease would free the lock after 30 s.
            assert!(dropped.elapsed() < Duration::from_secs(20), "the lock was not released");
        }
    };
    // The guard outlives every handle, and its release outlives the guard.
    let client = Client::connect(server.url()).unwrap();
    let guard = client.lock("n").lock().unwrap();
    drop(client);
    assert_eq!(guard.state(), HoldState::Held);
    drop(guard);
    freed();

    // Also in async code, where nothing may wait for a runtime.
    let client = Client::connect(server.url()).unwrap();
    let guard = client.lock("n").lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        drop(client);
        drop(guard);
    });
    freed();
}

#[test]
fn blocking_calls_work_in_spawn_blocking_and_panic_in_async_code() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let lock = client.lock("n");
    runtime.block_on(async {
        let there = lock.clone();
        tokio::task::spawn_blocking(move || there.lock().unwrap().unlock().unwrap()).await.unwrap();
        let there = lock.clone();
        let error = tokio::spawn(async move { there.lock().map(drop) }).await.unwrap_err();
        let panic = error.into_panic();
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|t| t.to_string()));
        assert!(text.unwrap().contains("runtime"), "the panic does not name the runtime");
    });
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn threads_see_expiry_loss_and_force_unlock() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let lock = client.lock("n");
    let lease = Duration::from_millis(100);
    let guard = lock.with_lease(lease).lock().unwrap();
    std::thread::sleep(lease);
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Expired));
    assert!(matches!(guard.unlock(), Err(Error::NotHeld { .. })));
    let guard = lock.lock().unwrap();
    assert!(lock.force_unlock().unwrap());
    assert!(matches!(guard.unlock(), Err(Error::Lost { reason: LossReason::Gone, .. })));
    client.close();
    assert!(matches!(lock.lock(), Err(Error::Closed { .. })));
}

#[test]
fn a_thread_waits_for_a_loss() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let lease = Duration::from_millis(100);
    // A loss ends the wait, long before its limit.
    let watch = Stopwatch::start();
    let guard = client.lock("n").with_lease(lease).lock().unwrap();
    assert_eq!(guard.lost_for(Duration::from_secs(60)), Some(LossReason::Expired));
    assert!(watch.elapsed() < Duration::from_secs(5));
    assert_eq!(guard.lost_for(Duration::ZERO), Some(LossReason::Expired));
    // A hold that lasts ends the wait at its limit.
    let guard = client.lock("m").lock().unwrap();
    assert_eq!(guard.lost_for(Duration::ZERO), None);
    assert_eq!((guard.lost_for(lease), guard.state()), (None, HoldState::Held));
    guard.unlock().unwrap();

    let multi = MultiLock::new([client.mutex("a"), client.mutex("b")]).unwrap().with_lease(lease);
    assert_eq!(multi.lock().unwrap().lost_for(Duration::from_secs(60)), Some(LossReason::Expired));
    let semaphore = client.expirable_semaphore("s");
    assert!(semaphore.try_set_permits(1).unwrap());
    let permit = semaphore.with_lease(lease).acquire().unwrap();
    assert_eq!(permit.lost_for(Duration::from_secs(60)), Some(LossReason::Expired));
}

/// Each kind works for threads: one thread holds the lock, and another one waits and gets it.
#[test]
fn run_calls_its_body_in_the_calling_thread_and_reports_a_loss() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let (lock, wait) = (client.lock("n"), Duration::from_millis(500));
    let here = std::thread::current().id();
    // The body may block, and its thread owns the lock.
    let seen = lock.run(|holding| {
        assert_eq!((std::thread::current().id(), holding.state()), (here, HoldState::Held));
        lock.is_held().unwrap()
    });
    assert!(seen.unwrap() && !lock.is_locked().unwrap());
    let outcome = lock.try_run_for(wait, |_| lock.force_unlock().unwrap());
    assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Gone, .. })), "{outcome:?}");
    // A panic releases the lock.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.run(|_| panic!("a bug"))));
    assert!(panicked.is_err());
    assert!(client.mutex("n").try_lock_for(Duration::from_secs(10)).unwrap().is_some());

    let multi = MultiLock::new([client.mutex("a"), client.mutex("b")]).unwrap();
    assert_eq!(multi.run(|holding| holding.members().len()).unwrap(), 2);
    let guard = client.mutex("b").lock().unwrap();
    assert_eq!(multi.try_run_for(wait, |_| panic!("it is busy")).unwrap(), None::<()>);
    guard.unlock().unwrap();
    let outcome = multi.run(|_| client.mutex("b").force_unlock().unwrap());
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
}

#[test]
fn each_kind_works_for_threads() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let entry = client.map_entry("m", "key");
    let locks = [
        client.fair_lock("fair"),
        client.fenced_lock("fenced"),
        client.spin_lock("spin", BackOff::new()),
        client.non_reentrant_lock("once"),
        client.non_reentrant_fair_lock("once-fair"),
        client.read_write_lock("rw").write().clone(),
        client.group_lock("group", ["x", "y"]),
        entry.lock(),
        entry.fair_lock(),
        entry.read_write_lock().write().clone(),
    ];
    for lock in locks {
        let guard = lock.lock().unwrap();
        std::thread::scope(|scope| {
            let (tried, trying) = std::sync::mpsc::channel();
            scope.spawn(|| {
                let tried = tried;
                assert!(lock.try_lock().unwrap().is_none(), "{lock:?}");
                // A slow server may not answer within so short a wait.
                let waited = lock.try_lock_for(Duration::from_millis(20));
                assert!(matches!(waited, Ok(None) | Err(Error::TimedOut { .. })), "{lock:?}: {waited:?}");
                tried.send(()).unwrap();
                lock.lock().unwrap().unlock().unwrap();
            });
            trying.recv().unwrap();
            guard.unlock().unwrap();
        });
        assert!(!lock.is_locked().unwrap(), "{lock:?}");
    }
    let reads = client.read_write_lock("rw");
    let guard = reads.read().lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| reads.read().lock().unwrap().unlock().unwrap());
    });
    guard.unlock().unwrap();

    assert!(entry.semaphore().try_set_permits(1).unwrap());
    assert!(entry.expirable_semaphore().try_set_permits(1).unwrap());
    assert!(entry.count_down_latch().try_set_count(1).unwrap());
}

#[test]
fn semaphores_latches_and_value_locks_work_for_threads() {
    let server = Server::start();
    let client = Client::connect(server.url()).unwrap();
    let value = || -> Option<i64> { redis::cmd("GET").arg("s").query(&mut server.cli()).unwrap() };

    let semaphore = client.semaphore("s");
    assert!(semaphore.try_set_permits(3).unwrap() && !semaphore.try_set_permits(1).unwrap());
    let permit = semaphore.acquire_many(2).unwrap();
    assert_eq!((permit.permits(), semaphore.available_permits().unwrap()), (2, 1));
    assert!(semaphore.try_acquire_many(2).unwrap().is_none());
    let other = semaphore.clone();
    let waiting = std::thread::spawn(move || other.try_acquire_many_for(3, Duration::from_secs(10)).unwrap());
    permit.release().unwrap();
    drop(waiting.join().unwrap().expect("all are free"));
    semaphore.acquire().unwrap().forget();
    assert!(semaphore.release_if_exists(2).unwrap());
    assert_eq!((semaphore.add_permits(-1).unwrap(), semaphore.drain_permits().unwrap()), (3, 3));
    assert!(semaphore.try_acquire().unwrap().is_none());
    assert!(client.semaphore("t").try_set_permits_for(1, Duration::from_secs(60)).unwrap());

    let leased = client.expirable_semaphore("s");
    assert_eq!((leased.add_permits(2).unwrap(), leased.available_permits().unwrap()), (2, 2));
    let permit = leased.without_lease().acquire_many(2).unwrap();
    assert_eq!((permit.ids().len(), permit.state()), (2, HoldState::Held));
    assert!(leased.try_acquire().unwrap().is_none());
    assert_eq!((leased.acquired_permits().unwrap(), leased.permits().unwrap()), (2, 2));
    let id = &permit.ids()[0];
    assert!(leased.update_lease(id, Duration::from_secs(60)).unwrap());
    assert!(leased.remaining_lease(id).unwrap().is_some_and(|left| left > Duration::from_secs(30)));
    assert!(leased.release(id).unwrap() && permit.release().is_err());
    assert_eq!(leased.set_permits(2).unwrap(), 2);
    let short = leased.with_lease(Duration::from_millis(100)).acquire().unwrap();
    let waiting = leased.try_acquire_many_for(2, Duration::from_secs(10)).unwrap();
    assert_eq!(short.state(), HoldState::Lost(LossReason::Expired));
    drop(waiting.expect("one has ended"));
    leased.acquire().unwrap().release().unwrap();
    assert_eq!(value(), Some(2));

    let latch = client.count_down_latch("l");
    assert!(latch.try_set_count(2).unwrap());
    // A slow server may not answer within so short a wait.
    let waited = latch.wait_for(Duration::from_millis(20));
    assert!(matches!(waited, Ok(false) | Err(Error::TimedOut { .. })), "{waited:?}");
    let other = latch.clone();
    let waiting = std::thread::spawn(move || other.wait_for(Duration::from_secs(10)).unwrap());
    latch.count_down().unwrap();
    assert_eq!(latch.count().unwrap(), 1);
    latch.count_down().unwrap();
    assert!(waiting.join().unwrap());
    latch.wait().unwrap();
    assert!(latch.try_set_count(1).unwrap() && latch.delete().unwrap() && !latch.delete().unwrap());

    let lock = client.value_lock("v");
    let guard = lock.lock().unwrap();
    assert!(matches!(lock.try_lock(), Err(Error::WouldDeadlock { .. })));
    let other = lock.clone();
    let waiting = std::thread::spawn(move || other.lock().unwrap().unlock().unwrap());
    guard.unlock().unwrap();
    waiting.join().unwrap();
}
