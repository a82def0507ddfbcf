//! A hold's deadline is never later than the end of its lease by the server's clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redisson_lock::{Client, HoldStatus};

use crate::support::kind::{Kind, each};
use crate::support::proxy::{ProxyLink, Words};
use crate::support::{Proxy, Server, scripts};

const NAME: &str = "n";
/// Not a whole number of milliseconds, which is the unit that Redis counts in.
const LEASE: Duration = Duration::from_micros(2_000_900);
const ROUNDS: usize = 12;
const RENEWALS: usize = 5;
/// The response timeout of a client behind a proxy.
const RESPONSE: Duration = Duration::from_millis(300);

/// The kinds with a lease in one record.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::locks().chain([Kind::Permit])
}

/// The end of the hold at the server, as time since the Unix epoch.
fn server_end(kind: Kind, cli: &mut redis::Connection) -> Duration {
    let ends: u64 = match kind {
        Kind::Group => {
            let fields: Vec<(String, String)> = redis::cmd("HGETALL").arg(NAME).query(cli).unwrap();
            let ends = fields.iter().filter(|(field, _)| field.ends_with(":expire_time"));
            ends.map(|(_, ends)| ends.parse().unwrap()).min().expect("a value is held")
        }
        Kind::Permit => {
            let key = format!("{{{NAME}}}:timeout");
            let first: Vec<(String, u64)> =
                redis::cmd("ZRANGE").arg(key).arg(&["0", "0", "WITHSCORES"]).query(cli).unwrap();
            first[0].1
        }
        // A key exists until its last millisecond is over.
        _ => redis::cmd("PEXPIRETIME").arg(NAME).query::<u64>(cli).unwrap() + 1,
    };
    Duration::from_millis(ends)
}

/// The hold's deadline as time since the Unix epoch. The wall clock is read first, so the result is never too late.
fn deadline(status: &HoldStatus) -> Duration {
    let wall = SystemTime::now();
    let left = status.deadline().saturating_duration_since(Instant::now());
    wall.duration_since(UNIX_EPOCH).unwrap() + left
}

async fn hold(kind: Kind, client: &Client, lease: Option<Duration>) -> (HoldStatus, Box<dyn Send>) {
    if kind == Kind::Permit {
        let semaphore = client.expirable_semaphore(NAME);
        let semaphore = lease.map_or(semaphore.clone(), |lease| semaphore.with_lease(lease));
        let permit = semaphore.acquire().await.unwrap();
        return (permit.status(), Box::new(permit));
    }
    let lock = kind.lock(client, NAME);
    let lock = lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
    let guard = lock.lock().await.unwrap();
    (guard.status(), Box::new(guard))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_never_later_than_the_servers() {
    each(kinds(), |kind| async move {
        let server = kind.server(NAME);
        let client = Client::connect(server.url()).await.unwrap();
        let mut cli = server.cli();
        for _ in 0..ROUNDS {
            let (status, guard) = hold(kind, &client, Some(LEASE)).await;
            let (ours, servers) = (deadline(&status), server_end(kind, &mut cli));
            assert!(ours <= servers, "{kind}: later by {:?}", ours - servers);
            drop(guard);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_deadline_is_never_later_than_the_servers() {
    each(kinds(), |kind| async move {
        let server = kind.server(NAME);
        let lease = Duration::from_micros(900_900);
        let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
        let mut cli = server.cli();
        let (status, _guard) = hold(kind, &client, None).await;
        for _ in 0..RENEWALS {
            let before = status.deadline();
            let (ours, servers) = (deadline(&status), server_end(kind, &mut cli));
            assert!(ours <= servers, "{kind}: later by {:?}", ours - servers);
            while status.deadline() == before {
                assert!(status.state().is_live(), "{kind}: {:?}", status.state());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    })
    .await;
}

/// A client behind a proxy, the first link for its commands, and the proxy.
async fn behind_a_proxy(server: &Server) -> (Client, ProxyLink, Proxy) {
    scripts::load(server);
    let proxy = Proxy::start(server.port()).await;
    let client = Client::builder().response_timeout(RESPONSE).connect(proxy.url()).await.unwrap();
    let link = proxy.link(0).await;
    (client, link, proxy)
}

fn acquires(words: &Words) -> bool {
    const QUERIES: [&[u8]; 4] = [b"PTTL", b"EXISTS", b"GET", b"HGET"];
    words.iter().any(|word| word == NAME.as_bytes()) && !QUERIES.contains(&words[0].as_slice())
}

/// The client counts the lease from the send that was answered. The server must count it from that send, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_after_a_lost_reply_is_never_later_than_the_servers() {
    each(kinds(), |kind| async move {
        let server = kind.server(NAME);
        let (client, link, _proxy) = behind_a_proxy(&server).await;
        link.lose_reply_to(acquires);
        let (status, _guard) = hold(kind, &client, Some(LEASE)).await;
        link.lost_reply().await;
        let (ours, servers) = (deadline(&status), server_end(kind, &mut server.cli()));
        assert!(ours <= servers, "{kind}: later by {:?}", ours - servers);
    })
    .await;
}

/// The first send of an acquire took effect, got no reply, and its lease expired. The retry does not prove a hold. (Readers are left
/// out because they share the lock.)
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_acquire_that_expired_does_not_share_the_lock() {
    each(kinds().filter(|kind| *kind != Kind::Read), |kind| async move {
        let server = kind.server(NAME);
        let (client, link, _proxy) = behind_a_proxy(&server).await;
        let other = Client::connect(server.url()).await.unwrap();
        link.lose_reply_to(acquires);
        let mut taking =
            tokio::spawn(async move { hold(kind, &client, Some(Duration::from_millis(100))).await });
        link.lost_reply().await;
        let (theirs, guard) = hold(kind, &other, None).await;
        if let Ok(taken) = tokio::time::timeout(RESPONSE * 3, &mut taking).await {
            // On a slow machine the retry may have held the lock earlier.
            let (status, _guard) = taken.unwrap();
            assert!(!status.state().is_live(), "{kind}: both hold it");
        }
        assert!(theirs.state().is_live(), "{kind}");
        drop(guard);
    })
    .await;
}
