//! Requests whose record does not name their holder carry numbers: permits, values of a group, counts of a latch.
//! Whatever happens between an acquire and its undo, no request is lost and none counts twice.

use futures_util::poll;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redisson_lock::{Client, Codec, Error, Kryo5, Owner, Replication};

use crate::support::kind::each;
use crate::support::{Proxy, Server, eventually};

const NAME: &str = "n";
/// The response timeout. Short, because the tests wait for it, and long enough for a busy machine.
const RESPONSE: Duration = Duration::from_millis(500);

/// The kinds that undo an acquire by its number or by its permit id.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Permits,
    Leased,
    Group,
}

const KINDS: [Kind; 3] = [Kind::Permits, Kind::Leased, Kind::Group];

/// A guard of any kind.
type Held = Box<dyn Send>;
type Taking = Pin<Box<dyn Future<Output = Result<Option<Held>, Error>> + Send>>;

impl Kind {
    fn make(self, server: &Server) {
        if !matches!(self, Self::Group) {
            redis::cmd("SET").arg(NAME).arg(2).exec(&mut server.cli()).unwrap();
        }
    }

    /// A single attempt. Attempts of one kind share the numbers: those of a group have the same owner, and each takes
    /// another `value`.
    fn take(self, client: &Client, owner: &Owner, value: &str) -> Taking {
        fn held<T: Send + 'static>(taken: Option<T>) -> Option<Held> {
            taken.map(|guard| Box::new(guard) as Held)
        }
        match self {
            Self::Permits => {
                let semaphore = client.semaphore(NAME);
                Box::pin(async move { semaphore.try_acquire().await.map(held) })
            }
            Self::Leased => {
                let semaphore = client.expirable_semaphore(NAME);
                Box::pin(async move { semaphore.try_acquire().await.map(held) })
            }
            Self::Group => {
                let lock = client.group_lock(NAME, [Kryo5.encode(value)]).with_owner(owner);
                Box::pin(async move { lock.try_lock().await.map(held) })
            }
        }
    }

    /// The number that is taken, according to the record.
    fn taken(self, cli: &mut redis::Connection) -> i64 {
        match self {
            Self::Group => redis::cmd("HLEN").arg(NAME).query::<i64>(cli).unwrap() / 3,
            _ => 2 - redis::cmd("GET").arg(NAME).query::<i64>(cli).unwrap(),
        }
    }
}

/// Polls `future` once, and freezes the server before the request gets there.
async fn begin_and_freeze(future: &mut Taking, proxy: &Proxy, server: &Server) {
    proxy.shut_gate_after(0, |words| words.iter().any(|word| word == NAME.as_bytes()));
    assert!(poll!(future.as_mut()).is_pending(), "no reply has arrived yet");
    proxy.stopped().await;
    server.stop_signal();
    proxy.open_gate();
    proxy.passed(1).await;
}

/// The acquire takes effect, and then fails because no replica confirms it. A release that is made in between must wait
/// for the undo.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_acquire_is_undone_before_later_releases() {
    each(KINDS, |kind| async move {
        let (master, owner) = (Server::start(), Owner::unique());
        let replica = Server::replica_of(&master);
        let replication = Replication::any().within(RESPONSE);
        let client = Client::builder().replication(replication).connect(master.url()).await.unwrap();
        kind.make(&master);
        let held = kind.take(&client, &owner, "x").await.unwrap().expect("it is free");
        replica.stop_signal();
        let attempt = tokio::spawn(kind.take(&client, &owner, "y"));
        let mut cli = master.cli();
        eventually(|| kind.taken(&mut cli) == 2).await;
        drop(held);
        let outcome = attempt.await.unwrap().map(|held| held.is_some());
        assert!(matches!(outcome, Err(Error::NotReplicated { .. })), "{kind:?}: {outcome:?}");
        eventually_free(kind, &master).await;
    })
    .await;
}

/// The server is frozen for so long that the client gives up the acquire, and the undo goes unanswered. Then the server
/// runs all requests that it was sent.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_on_a_frozen_server_is_undone_before_later_releases() {
    let faults = KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]);
    each(faults, |(kind, cancelled)| async move {
        let (server, owner) = (Server::start(), Owner::unique());
        let proxy = Proxy::start(server.port()).await;
        let client = Client::builder().response_timeout(RESPONSE).connect(proxy.url()).await.unwrap();
        kind.make(&server);
        // Load both scripts.
        drop(kind.take(&client, &owner, "y").await.unwrap().expect("it is free"));
        let held = kind.take(&client, &owner, "x").await.unwrap().expect("it is free");
        let mut cli = server.cli();
        eventually(|| kind.taken(&mut cli) == 1).await;
        // The reply comes after those to all earlier requests.
        assert!(!client.lock("other").is_locked().await.unwrap());
        let mut attempt = kind.take(&client, &owner, "y");
        begin_and_freeze(&mut attempt, &proxy, &server).await;
        drop(held);
        if cancelled {
            drop(attempt);
        } else {
            let outcome = attempt.await.map(|held| held.is_some());
            assert!(outcome.is_err(), "{kind:?}: {outcome:?}");
        }
        // The server stays frozen for this long.
        tokio::time::sleep(RESPONSE * 3).await;
        server.cont();
        eventually_free(kind, &server).await;
    })
    .await;
}

/// Asserts that everything is released, and only once.
async fn eventually_free(kind: Kind, server: &Server) {
    let mut cli = server.cli();
    for _ in 0..5_000 {
        if kind.taken(&mut cli) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(kind.taken(&mut cli), 0, "{kind:?}: never released");
    let client = Client::connect(server.url()).await.unwrap();
    let owner = Owner::unique();
    let both = [kind.take(&client, &owner, "x").await, kind.take(&client, &owner, "y").await];
    assert!(both.iter().all(|taken| matches!(taken, Ok(Some(_)))), "{kind:?}");
    assert_eq!(kind.taken(&mut cli), 2, "{kind:?}: released more than once");
}

/// Counts that went unanswered are repeated until they are answered, and each takes effect once.
#[tokio::test(flavor = "multi_thread")]
async fn counts_on_a_frozen_server_take_effect_once() {
    let server = Server::start();
    let client = Client::builder().response_timeout(RESPONSE).connect(server.url()).await.unwrap();
    let latch = client.count_down_latch(NAME);
    assert!(latch.try_set_count(5).await.unwrap());
    latch.count_down().await.unwrap();
    server.stop_signal();
    for _ in 0..2 {
        let error = latch.count_down().await.unwrap_err();
        // The heartbeat may have ended the connection before the second one is sent.
        assert!(matches!(error, Error::Ambiguous { .. } | Error::Unavailable { .. }), "{error}");
    }
    server.cont();
    let mut cli = server.cli();
    eventually(|| redis::cmd("GET").arg(NAME).query::<i64>(&mut cli).unwrap() == 2).await;
    latch.count_down().await.unwrap();
    assert_eq!(latch.count().await.unwrap(), 1);
}
