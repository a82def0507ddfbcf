//! Many guards dropped at once: the tasks and the memory that their releases take, and the order of the releases.

use redisson_lock::{Client, LockGuard, Owner};
use tokio::runtime::Handle;

use crate::support::worker::Worker;
use crate::support::{Server, eventually};

const GUARDS: usize = 2_000;
/// The limit for the tasks that release at the same time and the client's other tasks.
const TASKS: usize = 300;

async fn guards(client: &Client) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for n in 0..GUARDS {
        guards.push(client.lock(format!("lock-{n}")).lock().await.unwrap());
    }
    guards
}

fn records(server: &Server) -> usize {
    redis::cmd("DBSIZE").query(&mut server.cli()).unwrap()
}

#[tokio::test]
async fn few_tasks_release_many_dropped_guards() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guards = guards(&client).await;
    assert_eq!(records(&server), GUARDS);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    drop(guards);
    let mut most = 0;
    while records(&server) > 0 {
        // The releases start and end while this task yields.
        for _ in 0..10 {
            tokio::task::yield_now().await;
            most = most.max(tasks() - before);
        }
    }
    assert!(most <= TASKS, "{most} tasks at once for {GUARDS} guards");
}

/// A call that needs a lock whose release is pending runs that release first.
#[tokio::test]
async fn a_lock_dropped_among_many_can_be_acquired_at_once() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    drop(guards(&client).await);
    let last = client.lock(format!("lock-{}", GUARDS - 1)).with_owner(&Owner::unique());
    let guard = last.try_lock().await.unwrap().expect("its guard was dropped");
    assert!(records(&server) > 1, "all locks were released before");
    guard.unlock().await.unwrap();
    // `close` waits for the pending releases.
    client.close().await;
    assert_eq!(records(&server), 0);
}

/// The locks are held by a process of their own, because the peak of the memory belongs to the whole process.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn many_dropped_guards_take_little_memory() {
    const MANY: usize = 10_000;
    /// The limit for the growth by one dropped guard. A release that waits takes about 70 bytes. One that runs takes 3 KB, and 256 run.
    const BYTES: usize = 400;
    let server = Server::start();
    let mut worker = Worker::start(&["drop", &server.url(), &MANY.to_string()]);
    let peak = |line: String, mark: &str| -> usize { line.strip_prefix(mark).unwrap().parse().unwrap() };
    let before = peak(worker.line().await, "held ");
    assert_eq!(records(&server), MANY);
    worker.go().await;
    eventually(|| records(&server) == 0).await;
    worker.go().await;
    let after = peak(worker.line().await, "released ");
    let each = (after - before) * 1024 / MANY;
    assert!(each <= BYTES, "{each} bytes for each guard: from {before} KB to {after} KB");
}
