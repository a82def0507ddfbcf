//! Semaphores under faults: lost replies, late requests, and a server that is out of memory or killed. No permit is
//! taken twice, and none is lost.

use std::task::{Context, Waker};
use std::time::Duration;

use redisson_lock::{Client, Error, ExpirablePermit, HoldState, Phase, Semaphore};
use tokio::task::JoinHandle;

use crate::support::proxy::{Direction, Words};
use crate::support::raw::{NAME, changes};
use crate::support::{FaultyClient, RawRedis, Server, Stopwatch, eventually, subscribers};

const CHANNEL: &str = "redisson_sc:{n}";
const TIMEOUTS: &str = "{n}:timeout";

/// A semaphore of that many permits, behind a proxy.
async fn faulty(permits: u32, bench: FaultyClient) -> (FaultyClient, Semaphore) {
    let semaphore = bench.client.semaphore(NAME);
    assert!(semaphore.try_set_permits(permits).await.unwrap());
    bench.raw.messages();
    (bench, semaphore)
}

/// Asserts that a release was confirmed. On a silent link it may also have gone on in the background.
fn confirmed_or_not(outcome: &Result<(), Error>, cut: bool) {
    let fine = outcome.is_ok() || !cut && matches!(outcome, Err(Error::Ambiguous { .. }));
    assert!(fine, "cut {cut}: {outcome:?}");
}

#[tokio::test]
async fn a_lost_reply_adds_permits_once() {
    for cut in [true, false] {
        let (bench, semaphore) = faulty(7, FaultyClient::losing(cut).await).await;
        bench.lose_reply(cut);
        confirmed_or_not(&semaphore.release(2).await, cut);
        bench.link.lost_reply().await;
        semaphore.acquire().await.unwrap().release().await.unwrap();
        assert_eq!((bench.raw.value(), bench.raw.messages_on(CHANNEL)), (Some(9), vec!["9".to_owned(); 2]));
        bench.raw.assert_nothing_else_left(&[NAME]).await;
    }
}

/// A caller leaves while its acquire is in flight, and the client is closed. The permit has no lease that would return it.
#[tokio::test]
async fn closing_returns_the_permit_of_an_acquire_whose_caller_has_left() {
    let (bench, semaphore) = faulty(1, FaultyClient::start().await).await;
    let other = Client::connect(bench.server.url()).await.unwrap().semaphore(NAME);
    let permit = other.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.link.answered(2, changes).await;
    bench.link.hold(Direction::ToClient);
    permit.release().await.unwrap();
    eventually(|| bench.raw.value() == Some(0)).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let closing = tokio::spawn({
        let client = bench.client.clone();
        async move { client.close().await }
    });
    // The close begins before the reply arrives.
    tokio::task::yield_now().await;
    bench.link.pass(Direction::ToClient);
    closing.await.unwrap();
    assert_eq!(bench.raw.value(), Some(1));
}

/// An adjustment is not safe to repeat, so it is not repeated.
#[tokio::test]
async fn a_lost_reply_to_an_adjustment_is_ambiguous() {
    for cut in [true, false] {
        for adjust in ["set", "add", "drain"] {
            let (bench, semaphore) = faulty(3, FaultyClient::losing(cut).await).await;
            if adjust == "set" {
                bench.raw.run::<()>(&["DEL", NAME]);
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
            assert_eq!(bench.raw.value(), Some(expected), "{adjust}");
        }
    }
}

/// The repeat of the attempt finds too few permits. Its first send arrives when there are enough, and must take none.
#[tokio::test]
async fn a_failed_attempt_takes_nothing_when_it_arrives_late() {
    let (bench, semaphore) = faulty(1, FaultyClient::patient().await).await;
    let other = Client::connect(bench.server.url()).await.unwrap().semaphore(NAME);
    bench.raw.messages();
    let permit = other.acquire().await.unwrap();
    let outcome = bench.link.hold_and_cut(changes, semaphore.try_acquire()).await.unwrap();
    assert!(outcome.is_none());
    // The background work of the first attempt is done once the second one is answered.
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
    bench.link.deliver(changes).await;
    assert_eq!(bench.raw.value(), Some(1));
    assert_eq!(bench.raw.messages_on(CHANNEL), ["1"]);
}

/// The attempt was given up and undone before the server read it.
#[tokio::test]
async fn an_abandoned_attempt_takes_nothing_when_it_arrives_late() {
    let (bench, semaphore) = faulty(1, FaultyClient::start().await).await;
    bench.link.hold(Direction::ToServer);
    let error = semaphore.try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let permit = semaphore.acquire().await.unwrap();
    permit.release().await.unwrap();
    // Everything that waited on the old link, whose other end is closed.
    bench.link.pass(Direction::ToServer);
    bench.link.answered(bench.link.count(changes), changes).await;
    assert_eq!(bench.raw.value(), Some(1));
}

/// A release is sent by its caller, which may never be polled again. An actor repeats it, and the permits are added once.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_release_adds_its_permits_once() {
    let server = Server::start();
    let (client, raw) = (Client::connect(server.url()).await.unwrap(), RawRedis::of(&server));
    let semaphore = client.semaphore(NAME);
    assert!(semaphore.try_set_permits(2).await.unwrap());
    for _ in 0..3 {
        let permits = semaphore.acquire_many(2).await.unwrap();
        let mut unpolled = Box::pin(permits.release());
        server.poll_without_reply(unpolled.as_mut());
        semaphore.acquire_many(2).await.unwrap().release().await.unwrap();
        unpolled.await.unwrap();
        assert_eq!(raw.value(), Some(2));
    }
}

/// An acquire is sent by its caller, too. If others of its client wait for it to be polled again, it is undone.
#[tokio::test(flavor = "multi_thread")]
async fn an_unpolled_acquire_gives_its_permits_back() {
    let server = Server::start();
    let timeout = Duration::from_millis(500);
    let client = Client::builder().response_timeout(timeout).connect(server.url()).await.unwrap();
    let (semaphore, raw) = (client.semaphore(NAME), RawRedis::of(&server));
    assert!(semaphore.try_set_permits(1).await.unwrap());
    // Load the scripts, so that a request is one send.
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let mut acquiring = Box::pin(semaphore.acquire());
    let mut context = Context::from_waker(Waker::noop());
    server.poll_without_reply(acquiring.as_mut());
    eventually(|| raw.value() == Some(0)).await;
    let other = client.semaphore(NAME).try_acquire_for(timeout * 10).await.unwrap();
    let permit = other.expect("the first acquire is undone");
    // Polled after all, it waits behind the other.
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    permit.release().await.unwrap();
    acquiring.await.unwrap().release().await.unwrap();
    assert_eq!(raw.value(), Some(1));
}

/// The caller of an acquire sends it itself. If the connection ends before the reply, the acquire is repeated before a release that waits
/// for it.
#[tokio::test]
async fn an_acquire_of_a_caller_is_repeated_before_later_releases() {
    let (bench, semaphore) = faulty(2, FaultyClient::losing(true).await).await;
    let mut context = Context::from_waker(Waker::noop());
    let held = semaphore.acquire().await.unwrap();
    bench.lose_reply(true);
    let mut acquiring = Box::pin(semaphore.acquire());
    assert!(acquiring.as_mut().poll(&mut context).is_pending());
    let mut releasing = Box::pin(held.release());
    assert!(releasing.as_mut().poll(&mut context).is_pending());
    bench.link.lost_reply().await;
    let (permit, released) = tokio::join!(acquiring, releasing);
    released.unwrap();
    permit.unwrap().release().await.unwrap();
    assert_eq!(bench.raw.value(), Some(2));
}

/// A permit does not pass to a waiter while an earlier caller still waits for its reply.
#[tokio::test]
async fn a_waiter_does_not_overtake_an_acquire_of_a_caller() {
    let server = Server::start();
    let semaphore = Client::connect(server.url()).await.unwrap().semaphore(NAME);
    assert!(semaphore.try_set_permits(1).await.unwrap());
    let mut context = Context::from_waker(Waker::noop());
    let held = semaphore.acquire().await.unwrap();
    server.stop_signal();
    let mut first = Box::pin(semaphore.acquire());
    assert!(first.as_mut().poll(&mut context).is_pending());
    let mut second = Box::pin(semaphore.acquire());
    assert!(second.as_mut().poll(&mut context).is_pending());
    let mut releasing = Box::pin(held.release());
    let passed = releasing.as_mut().poll(&mut context).is_ready();
    server.cont();
    assert!(!passed, "the permit has passed to the second one");
    let (released, permit) = tokio::join!(releasing, first);
    released.unwrap();
    let permit = permit.unwrap();
    assert!(second.as_mut().poll(&mut context).is_pending());
    permit.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}

/// An actor sends the acquires of waiters. If the reply to one is lost and its waiter leaves, the actor undoes it before a release that was
/// made in between.
#[tokio::test]
async fn an_acquire_of_a_waiter_is_undone_before_later_releases() {
    let (bench, semaphore) = faulty(700, FaultyClient::losing(false).await).await;
    let held = semaphore.acquire_many(300).await.unwrap();
    let other = Client::connect(bench.server.url()).await.unwrap().semaphore(NAME);
    let held_elsewhere = other.acquire_many(400).await.unwrap();
    let of_waiter = |words: &Words| words.iter().any(|word| word == b"400");
    let waiting = tokio::spawn(async move { semaphore.acquire_many(400).await });
    // Its caller attempts, and then an actor that is subscribed does.
    bench.link.answered(2, of_waiter).await;
    bench.link.lose_reply_to(of_waiter);
    held_elsewhere.release().await.unwrap();
    bench.link.lost_reply().await;
    assert_eq!(bench.raw.value(), Some(0));
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    confirmed_or_not(&held.release().await, false);
    eventually(|| bench.raw.value() == Some(700)).await;
}

/// Whether a request may take or release permits with ids.
fn names_permits(words: &Words) -> bool {
    words.iter().any(|word| word == TIMEOUTS.as_bytes())
}

/// A semaphore of one permit with a holder and a waiter of the same client.
async fn handing_off(bench: &FaultyClient) -> (ExpirablePermit, JoinHandle<ExpirablePermit>) {
    let semaphore = bench.client.expirable_semaphore(NAME);
    assert!(semaphore.try_set_permits(1).await.unwrap());
    let held = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    (held, waiting)
}

#[tokio::test]
async fn a_lost_reply_passes_permits_once() {
    for cut in [true, false] {
        let bench = FaultyClient::losing(cut).await;
        let (held, waiting) = handing_off(&bench).await;
        match cut {
            true => bench.link.cut_at_reply_to(names_permits),
            false => bench.link.lose_reply_to(names_permits),
        }
        confirmed_or_not(&held.release().await, cut);
        bench.link.lost_reply().await;
        let permit = waiting.await.unwrap();
        let taken: Vec<String> = bench.raw.run(&["ZRANGE", TIMEOUTS, "0", "-1"]);
        let hex = |id: &String| id.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!((taken.iter().map(hex).collect(), bench.raw.value()), (permit.ids(), Some(0)));
        permit.release().await.unwrap();
        assert_eq!(bench.raw.value(), Some(1));
        bench.raw.assert_nothing_else_left(&[NAME]).await;
    }
}

/// The repeat of the hand-off took effect, and the permit has been released since.
#[tokio::test]
async fn a_hand_off_passes_nothing_when_it_arrives_late() {
    let bench = FaultyClient::patient().await;
    let (held, waiting) = handing_off(&bench).await;
    bench.link.hold_and_cut(names_permits, held.release()).await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    bench.link.deliver(names_permits).await;
    assert_eq!((bench.raw.value(), bench.raw.run::<u64>(&["ZCARD", TIMEOUTS])), (Some(1), 0));
}

/// The waiter leaves while the permit is on its way to it.
#[tokio::test]
async fn a_permit_that_passes_to_nobody_is_released() {
    let bench = FaultyClient::patient().await;
    let (held, waiting) = handing_off(&bench).await;
    let sent = bench.link.count(names_permits);
    bench.link.hold(Direction::ToClient);
    let releasing = tokio::spawn(held.release());
    bench.link.asked(sent + 1, names_permits).await;
    waiting.abort();
    assert!(waiting.await.is_err());
    bench.link.pass(Direction::ToClient);
    releasing.await.unwrap().unwrap();
    eventually(|| bench.raw.value() == Some(1)).await;
    bench.raw.assert_nothing_else_left(&[NAME]).await;
}

/// The waiter needs memory, and the release does not.
#[tokio::test]
async fn a_server_out_of_memory_takes_permits_back_instead_of_passing_them() {
    let bench = FaultyClient::start().await;
    let semaphore = bench.client.expirable_semaphore(NAME);
    assert!(semaphore.try_set_permits(1).await.unwrap());
    let held = semaphore.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore.acquire().await });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.raw.set_out_of_memory(true);
    held.release().await.unwrap();
    let refused = waiting.await.unwrap().err();
    assert_eq!(refused.as_ref().and_then(Error::code), Some("OOM"), "{refused:?}");
    assert_eq!((bench.raw.value(), bench.raw.run::<u64>(&["ZCARD", TIMEOUTS])), (Some(1), 0));
}

/// While the server refuses writes, a release is kept. Then it takes effect once.
#[tokio::test]
async fn a_release_is_repeated_until_the_disk_works() {
    let response = FaultyClient::RESPONSE;
    for way in ["release", "drop", "add", "expirable"] {
        let server = Server::start();
        let raw = RawRedis::of(&server);
        let client = Client::builder().response_timeout(response).connect(server.url()).await.unwrap();
        let (semaphore, expirable) = (client.semaphore(NAME), client.expirable_semaphore(NAME));
        semaphore.try_set_permits(3).await.unwrap();
        let permit = if way == "expirable" { None } else { Some(semaphore.acquire_many(2).await.unwrap()) };
        let leased = if way == "expirable" { Some(expirable.acquire_many(2).await.unwrap()) } else { None };
        raw.messages();
        raw.set_disk_failing(true);
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
        let refused = raw.refusals("MISCONF");
        eventually(|| raw.refusals("MISCONF") >= refused + 2).await;
        // The release holds up the calls behind it, which fail in time.
        let (asked, outcome) = (Stopwatch::start(), semaphore.try_acquire().await);
        assert!(matches!(&outcome, Err(error) if error.code() == Some("MISCONF")), "{way}: {outcome:?}");
        assert!(asked.elapsed() < response * 2, "{way}: {:?}", asked.elapsed());
        assert_eq!((raw.value(), raw.messages()), (Some(1), vec![]), "{way}");
        raw.set_disk_failing(false);
        eventually(|| raw.value() == Some(3)).await;
        // The number of permits shows that the release took effect once.
        semaphore.acquire_many(3).await.unwrap().release().await.unwrap();
        assert_eq!((raw.value(), raw.messages_on(CHANNEL)), (Some(3), vec!["3".to_owned(); 2]), "{way}");
        raw.assert_nothing_else_left(&[NAME]).await;
    }
}

/// A server out of memory refuses requests that need memory, and accepts every release.
#[tokio::test]
async fn a_server_out_of_memory_accepts_releases() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
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
    raw.set_out_of_memory(true);
    permit.release().await.unwrap();
    leased.release().await.unwrap();
    latch.count_down().await.unwrap();
    for value in values {
        value.unlock().await.unwrap();
    }
    // The hold goes on as a read hold.
    write.unlock().await.unwrap();
    assert_eq!(raw.run::<String>(&["HGET", "rw", "mode"]), "read");
    assert_eq!(raw.run::<u64>(&["HLEN", "rw"]), 2);
    read.unlock().await.unwrap();
    assert_eq!((raw.value(), expirable.available_permits().await.unwrap()), (Some(3), 3));
    assert_eq!((latch.count().await.unwrap(), group.is_locked().await.unwrap()), (1, false));
    assert_eq!(raw.refusals("OOM"), 0);
}

#[tokio::test]
async fn out_of_memory_fails_acquires_and_not_renewals() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let lease = Duration::from_millis(900);
    let client = Client::builder().watchdog_timeout(lease).connect(server.url()).await.unwrap();
    let (semaphore, expirable) = (client.semaphore(NAME), client.expirable_semaphore(NAME));
    semaphore.try_set_permits(3).await.unwrap();
    let permit = expirable.acquire().await.unwrap();
    let short = expirable.with_lease(lease / 4).acquire().await.unwrap();
    short.forget();
    raw.set_out_of_memory(true);
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
    assert_eq!(raw.run::<i64>(&["ZCARD", "{n}:timeout"]), 2);
    // This query collects expired permits.
    assert_eq!(expirable.available_permits().await.unwrap(), 2);
    raw.set_out_of_memory(false);
    permit.release().await.unwrap();
    assert_eq!(raw.value(), Some(3));
}

/// A refused release is retried until its client closes. After that, nothing of it arrives.
#[tokio::test]
async fn a_closed_client_gives_up_refused_releases() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let clients = || raw.run::<String>(&["CLIENT", "LIST"]).lines().count();
    let before = clients();
    let client =
        Client::builder().response_timeout(FaultyClient::RESPONSE).connect(server.url()).await.unwrap();
    let semaphore = client.semaphore(NAME);
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    raw.set_disk_failing(true);
    drop(permit);
    eventually(|| raw.refusals("MISCONF") > 0).await;
    let closing = Stopwatch::start();
    client.close().await;
    // The close waits this long for releases that are under way.
    assert!(closing.elapsed() < FaultyClient::RESPONSE * 3, "{:?}", closing.elapsed());
    eventually(|| clients() == before).await;
    raw.set_disk_failing(false);
    assert_eq!(raw.value(), Some(0));
    assert!(matches!(semaphore.acquire().await, Err(Error::Closed { phase: Phase::Acquire, .. })));
    assert!(matches!(semaphore.release(1).await, Err(Error::Closed { phase: Phase::Release, .. })));
}

/// The script writes the number of the release before it finds that it cannot add. A repeat must not count as done.
#[tokio::test]
async fn a_value_that_redis_cannot_add_to_is_an_error_and_changes_nothing() {
    let server = Server::start();
    let (client, raw) = (Client::connect(server.url()).await.unwrap(), RawRedis::of(&server));
    for value in ["007", "9223372036854775807"] {
        raw.run::<()>(&["SET", NAME, value]);
        for _ in 0..2 {
            let error = client.semaphore(NAME).release(1).await.unwrap_err();
            assert!(matches!(error, Error::Refused { phase: Phase::Release, .. }), "{value}: {error:?}");
        }
        assert_eq!(raw.run::<String>(&["GET", NAME]), value);
    }
}

/// The reply to the first send is lost. The repeat must not count as done, because the first send changed nothing.
#[tokio::test]
async fn a_repeat_on_a_value_that_redis_cannot_subtract_from_is_an_error() {
    for value in ["007", "001", "9223372036854775808"] {
        for call in ["acquire", "acquire with an id", "count down"] {
            let bench = FaultyClient::losing(true).await;
            bench.raw.run::<()>(&["SET", NAME, value]);
            bench.lose_reply(true);
            let outcome = match call {
                "acquire" => bench.client.semaphore(NAME).acquire().await.map(|permit| permit.forget()),
                "acquire with an id" => bench.client.expirable_semaphore(NAME).acquire().await.map(drop),
                _ => bench.client.count_down_latch(NAME).count_down().await,
            };
            bench.link.lost_reply().await;
            // The client does not know whether the first send of a count-down was refused, too.
            let refused = matches!(outcome, Err(Error::Refused { .. } | Error::Ambiguous { .. }));
            assert!(refused, "{call} {value}: {outcome:?}");
            assert_eq!(bench.raw.run::<String>(&["GET", NAME]), value, "{call}");
            assert_eq!(bench.raw.messages(), [], "{call} {value}");
            // No request has taken effect.
            for mark in bench.raw.run::<Vec<String>>(&["KEYS", "*"]).iter().filter(|key| *key != NAME) {
                assert_eq!(bench.raw.run::<String>(&["GET", mark]), "0", "{call} {value}");
            }
        }
    }
}

/// A request without permission is refused for good, and changes nothing.
#[tokio::test]
async fn a_forbidden_channel_is_an_error_and_changes_nothing() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    raw.run::<()>(&["ACL", "SETUSER", "app", "on", ">canary-in-a-coal-mine", "~*", "resetchannels", "+@all"]);
    let client =
        Client::connect(format!("redis://app:canary-in-a-coal-mine@{}", server.address())).await.unwrap();
    let (semaphore, latch) = (client.semaphore(NAME), client.count_down_latch("latch"));
    raw.run::<()>(&["SET", NAME, "2"]);
    raw.run::<()>(&["SET", "latch", "1"]);
    for _ in 0..2 {
        let permit = semaphore.acquire().await.unwrap();
        assert_eq!(permit.release().await.unwrap_err().code(), Some("NOPERM"));
        assert_eq!(latch.count_down().await.unwrap_err().code(), Some("NOPERM"));
        assert_eq!(latch.delete().await.unwrap_err().code(), Some("NOPERM"));
    }
    assert_eq!((raw.value(), latch.count().await.unwrap()), (Some(0), 1));
}

/// After a restart without data, a release adds its permits to a count that starts at 0.
#[tokio::test]
async fn a_release_after_an_empty_restart_adds_its_permits() {
    let mut server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let semaphore = client.semaphore(NAME);
    semaphore.try_set_permits(1).await.unwrap();
    let permit = semaphore.acquire().await.unwrap();
    // A task of the same client would get the permit without a request.
    let other = Client::connect(server.url()).await.unwrap().semaphore(NAME);
    let waiting = tokio::spawn(async move { other.acquire().await.unwrap().forget() });
    eventually(|| subscribers(&server, CHANNEL) == 1).await;
    server.kill();
    server.restart();
    permit.release().await.unwrap();
    waiting.await.unwrap();
    let value: i64 = redis::cmd("GET").arg(NAME).query(&mut server.cli()).unwrap();
    assert_eq!(value, 0);
}
