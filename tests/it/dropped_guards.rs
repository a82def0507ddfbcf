//! Many guards dropped at once: how much is in flight for them, and who waits for whom.

use redisson_lock::{Client, LockGuard, Owner};
use tokio::runtime::Handle;

use crate::support::{Server, eventually};

const GUARDS: usize = 2_000;
/// The tasks that give back at once, and those that the client has anyway.
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
async fn many_dropped_guards_are_given_back_by_few_tasks() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guards = guards(&client).await;
    assert_eq!(records(&server), GUARDS);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    drop(guards);
    let started = tasks() - before;
    assert!(started <= TASKS, "{started} tasks for {GUARDS} guards");
    eventually(|| records(&server) == 0).await;
}

/// A lock whose release waits among many is released first by whoever needs it.
#[tokio::test]
async fn a_lock_that_was_dropped_among_many_is_free_at_once() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    drop(guards(&client).await);
    let last = client.lock(format!("lock-{}", GUARDS - 1)).with_owner(&Owner::unique());
    let guard = last.try_lock().await.unwrap().expect("its guard was dropped");
    assert!(records(&server) > 1, "all had been released before");
    guard.unlock().await.unwrap();
    // Closing waits for what is being given back.
    client.close().await;
    assert_eq!(records(&server), 0);
}
