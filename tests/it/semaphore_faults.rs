//! Semaphores when answers are lost, requests come late, and the server is out of memory or killed: a permit is neither
//! taken twice nor lost.

use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Semaphore};

use crate::support::proxy::Way;
use crate::support::wire::{NAME, changes};
use crate::support::{Faulty, Server, Stopwatch, Wire, eventually, subscribers};

const CHANNEL: &str = "redisson_sc:{n}";

/// A semaphore of so many permits, behind a proxy.
async fn faulty(permits: u32) -> (Faulty, Semaphore) {
    let bench = Faulty::start().await;
    let semaphore = bench.client.semaphore(NAME);
    assert!(semaphore.try_set_permits(permits).await.unwrap());
    bench.wire.messages();
    (bench, semaphore)
}

/// In the background, or confirmed: it may be either where the link is silent.
fn confirmed_or_not(outcome: &Result<(), Error>, cut: bool) {
    let fine = outcome.is_ok() || !cut && matches!(outcome, Err(Error::Ambiguous { .. }));
    assert!(fine, "cut {cut}: {outcome:?}");
}

#[tokio::test]
async fn a_lost_reply_adds_permits_once() {
    for cut in [true, false] {
        let (bench, semaphore) = faulty(7).await;
        bench.lose_reply(cut);
        confirmed_or_not(&semaphore.release(2).await, cut);
        bench.link.lost_reply().await;
        semaphore.acquire().await.unwrap().release().await.unwrap();
        assert_eq!((bench.wire.value(), bench.wire.told(CHANNEL)), (Some(9), vec!["9".to_owned(); 2]));
        bench.wire.nothing_else_is_left(&[NAME]).await;
    }
}

/// What is not to be repeated is not.
#[tokio::test]
async fn a_lost_reply_to_an_adjustment_is_ambiguous() {
    for cut in [true, false] {
        for adjust in ["set", "add", "drain"] {
            let (bench, semaphore) = faulty(3).await;
            if adjust == "set" {
                bench.wire.run::<()>(&["DEL", NAME]);
            }
            bench.lose_reply(cut);
            let error = match adjust {
                "set" => semaphore.try_set_permits(5).await.map(drop),
                "add" => semaphore.add_permits(2).await.map(drop),
                _ => semaphore.drain_permits().await.map(drop),
            };
            assert!(matches!(error, Err(Error::Ambiguous { .. })), "{adjust}: {error:?}");
            bench.link.lost_reply().await;
            let expected = if adjust == "drain" { 0 } else { 5 };
            while semaphore.available_permits().await.is_err() {}
            assert_eq!(bench.wire.value(), Some(expected), "{adjust}");
        }
    }
}

/// The attempt found too few when it was repeated. Its first send comes when there are enough, and nobody holds by it.
#[tokio::test]
async fn an_attempt_that_was_in_vain_takes_nothing_when_it_comes_late() {
    let (bench, semaphore) = faulty(1).await;
    let other = Client::connect(bench.server.url()).await.unwrap().semaphore(NAME);
    bench.wire.messages();
    let permit = other.acquire().await.unwrap();
    let outcome = bench.link.hold_and_cut(changes, semaphore.try_acquire()).await.unwrap();
    assert!(outcome.is_none());
    // What it does after the answer, it has done when the next is answered.
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
    bench.link.deliver(changes).await;
    assert_eq!(bench.wire.value(), Some(1));
    assert_eq!(bench.wire.told(CHANNEL), ["1"]);
}

/// It was given up and undone before the server read it.
#[tokio::test]
async fn an_attempt_that_was_given_up_takes_nothing_when_it_comes_late() {
    let (bench, semaphore) = faulty(1).await;
    bench.link.hold(Way::ToServer);
    let error = semaphore.try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let permit = semaphore.acquire().await.unwrap();
    permit.release().await.unwrap();
    // All that waited on the old link, whose other end is closed.
    bench.link.pass(Way::ToServer);
    bench.link.answered(bench.link.count(changes), changes).await;
    assert_eq!(bench.wire.value(), Some(1));
}

/// Where nothing is written any more a release is kept until it can be, and done once.
#[tokio::test]
async fn a_release_outlasts_a_server_whose_disk_fails() {
    for way in ["release", "drop", "add", "expirable"] {
        let server = Server::start();
        let wire = Wire::of(&server);
        let client =
            Client::builder().response_timeout(Faulty::RESPONSE).connect(server.url()).await.unwrap();
        let (semaphore, expirable) = (client.semaphore(NAME), client.expirable_semaphore(NAME));
        semaphore.try_set_permits(3).await.unwrap();
        let permit = if way == "expirable" { None } else { Some(semaphore.acquire_many(2).await.unwrap()) };
        let leased = if way == "expirable" { Some(expirable.acquire_many(2).await.unwrap()) } else { None };
        wire.messages();
        wire.disk_fails(true);
        match (way, permit, leased) {
            ("release", Some(permit), _) => {
                let error = permit.release().await.unwrap_err();
                assert!(matches!(error, Error::Ambiguous { .. }), "{error:?}");
            }
            ("add", Some(permit), _) => {
                permit.forget();
                let error = semaphore.release(2).await.unwrap_err();
                assert!(matches!(error, Error::Ambiguous { .. }), "{error:?}");
            }
            (_, permit, leased) => drop((permit, leased)),
        }
        let refused = wire.refusals("MISCONF");
        eventually(|| wire.refusals("MISCONF") >= refused + 2).await;
        // It holds up those behind it, who are told in time.
        let (asked, told) = (Stopwatch::start(), semaphore.try_acquire().await);
        assert!(matches!(&told, Err(error) if error.code() == Some("MISCONF")), "{way}: {told:?}");
        assert!(asked.elapsed() < Faulty::RESPONSE * 2, "{way}: {:?}", asked.elapsed());
        assert_eq!((wire.value(), wire.messages()), (Some(1), vec![]), "{way}");
        wire.disk_fails(false);
        eventually(|| wire.value() == Some(3)).await;
        // Once, by the next one's number.
        semaphore.acquire_many(3).await.unwrap().release().await.unwrap();
        assert_eq!((wire.value(), wire.told(CHANNEL)), (Some(3), vec!["3".to_owned(); 2]), "{way}");
        wire.nothing_else_is_left(&[NAME]).await;
    }
}

/// A server out of memory refuses what makes it larger, and no release.
#[tokio::test]
async fn a_server_out_of_memory_takes_releases() {
    let server = Server::start();
    let wire = Wire::of(&server);
    let client = Client::connect(server.url()).await.unwrap();
    let (semaphore, expirable) = (client.semaphore(NAME), client.expirable_semaphore("leased"));
    semaphore.try_set_permits(3).await.unwrap();
    expirable.try_set_permits(3).await.unwrap();
    let (latch, group) = (client.count_down_latch("latch"), client.group_lock("group", ["a", "b"]));
    latch.try_set_count(2).await.unwrap();
    let lock = client.read_write_lock("rw");
    let (permit, leased) =
        (semaphore.acquire_many(2).await.unwrap(), expirable.acquire_many(2).await.unwrap());
    let values = [group.lock().await.unwrap(), group.lock().await.unwrap()];
    let write = lock.write().lock().await.unwrap();
    let read = lock.read().lock().await.unwrap();
    wire.out_of_memory(true);
    permit.release().await.unwrap();
    leased.release().await.unwrap();
    latch.count_down().await.unwrap();
    for value in values {
        value.unlock().await.unwrap();
    }
    // It goes on as a reader.
    write.unlock().await.unwrap();
    assert_eq!(wire.run::<String>(&["HGET", "rw", "mode"]), "read");
    assert_eq!(wire.run::<u64>(&["HLEN", "rw"]), 2);
    read.unlock().await.unwrap();
    assert_eq!((wire.value(), expirable.available_permits().await.unwrap()), (Some(3), 3));
    assert_eq!((latch.count().await.unwrap(), group.is_locked().await.unwrap()), (1, false));
    assert_eq!(wire.refusals("OOM"), 0);
}

#[tokio::test]
async fn out_of_memory_is_told_to_who_acquires_and_leases_are_renewed() {
    let server = Server::start();
    let wire = Wire::of(&server);
    let lease = Duration::from_millis(900);
    let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    let (semaphore, expirable) = (client.semaphore(NAME), client.expirable_semaphore(NAME));
    semaphore.try_set_permits(3).await.unwrap();
    let permit = expirable.acquire().await.unwrap();
    let short = expirable.with_lease(lease / 4).acquire().await.unwrap();
    short.forget();
    wire.out_of_memory(true);
    for error in [
        semaphore.acquire().await.err(),
        semaphore.try_acquire().await.err(),
        expirable.acquire().await.err(),
    ] {
        assert_eq!(error.as_ref().and_then(Error::code), Some("OOM"), "{error:?}");
    }
    assert_eq!(semaphore.add_permits(1).await.unwrap_err().code(), Some("OOM"));
    let deadline = permit.deadline();
    tokio::time::sleep_until((deadline + lease).into()).await;
    assert_eq!(permit.state(), HoldState::Held);
    assert_eq!(wire.run::<i64>(&["ZCARD", "{n}:timeout"]), 2);
    // Looking collects what has ended.
    assert_eq!(expirable.available_permits().await.unwrap(), 2);
    wire.out_of_memory(false);
    permit.release().await.unwrap();
    assert_eq!(wire.value(), Some(3));
}

/// Until the client closes: then nothing of it comes any more.
#[tokio::test]
async fn a_closed_client_gives_up_what_the_server_refuses() {
    let server = Server::start();
    let wire = Wire::of(&server);
    let clients = || wire.run::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = clients();
    let client = Client::builder().response_timeout(Faulty::RESPONSE).connect(server.url()).await.unwrap();
    let semaphore = client.semaphore(NAME);
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    wire.disk_fails(true);
    drop(permit);
    eventually(|| wire.refusals("MISCONF") > 0).await;
    let closing = Stopwatch::start();
    client.close().await;
    // It waits that long for what is being given back.
    assert!(closing.elapsed() < Faulty::RESPONSE * 3, "{:?}", closing.elapsed());
    eventually(|| clients() == before).await;
    wire.disk_fails(false);
    assert_eq!(wire.value(), Some(0));
    assert!(matches!(semaphore.acquire().await, Err(Error::Unavailable { .. })));
}

/// What the user of the connection may not do is refused for good, and changes nothing.
#[tokio::test]
async fn a_forbidden_channel_is_told_and_changes_nothing() {
    let server = Server::start();
    let wire = Wire::of(&server);
    wire.run::<()>(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">canary-in-a-coal-mine",
        "~*",
        "resetchannels",
        "+@all",
    ]);
    let client =
        Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
    let (semaphore, latch) = (client.semaphore(NAME), client.count_down_latch("latch"));
    wire.run::<()>(&["SET", NAME, "2"]);
    wire.run::<()>(&["SET", "latch", "1"]);
    for _ in 0..2 {
        let permit = semaphore.acquire().await.unwrap();
        assert_eq!(permit.release().await.unwrap_err().code(), Some("NOPERM"));
        assert_eq!(latch.count_down().await.unwrap_err().code(), Some("NOPERM"));
        assert_eq!(latch.delete().await.unwrap_err().code(), Some("NOPERM"));
    }
    assert_eq!((wire.value(), latch.count().await.unwrap()), (Some(0), 1));
}

/// It comes back empty: what was taken of a number is given back to a number.
#[tokio::test]
async fn a_server_that_comes_back_empty() {
    let mut server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let semaphore = client.semaphore(NAME);
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire().await.unwrap().forget() });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    server.kill();
    server.restart();
    permit.release().await.unwrap();
    waiting.await.unwrap();
    let value: i64 = redis::cmd("GET").arg(NAME).query(&mut server.cli()).unwrap();
    assert_eq!(value, 0);
}
