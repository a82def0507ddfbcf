//! The lifetime of a hold of each kind, and how its holder learns of its loss.

use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, LossReason, Owner};

use crate::kinds::clients;
use crate::support::any_lock::ClientSet;
use crate::support::kind::{Kind, assert_nothing_left, channels, each, keys};
use crate::support::{Messages, Server, Stopwatch, eventually};

const NAME: &str = "n";
/// The watchdog timeout in tests that wait for a renewal.
const LEASE: Duration = Duration::from_millis(1500);
/// The time limit for the report of a loss, on a busy machine. Without a report, the hold would end at its deadline, two thirds of
/// the lease after the renewal.
const REPORT_LIMIT: Duration = Duration::from_millis(450);

async fn watched(kind: Kind, server: &Server) -> ClientSet {
    ClientSet::with(kind, Client::builder().watchdog_timeout(LEASE), server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_renewal_reports_a_deleted_record() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let watch = Stopwatch::start();
        let server = kind.server(NAME);
        let client = watched(kind, &server).await;
        let (outer, inner) = {
            let lock = kind.of(&client, NAME);
            let outer = lock.lock().await.unwrap();
            (outer, if kind.is_reentrant() { Some(lock.lock().await.unwrap()) } else { None })
        };
        // The next renewal comes a third of the lease after the last confirmed request, which was sent one lease before the
        // deadline.
        let due = outer.deadline() - LEASE + LEASE / 3;
        kind.erase(&server, NAME);
        assert_eq!(outer.lost().await, HoldState::Lost(LossReason::Gone), "{kind}");
        let late = watch.since(due);
        assert!(late < REPORT_LIMIT, "{kind}: reported {late:?} after the renewal was due");
        // Every later query returns the same state.
        for guard in inner.into_iter().chain([outer]) {
            guard.lost().await;
            assert_eq!(guard.state(), HoldState::Lost(LossReason::Gone), "{kind}");
            let outcome = guard.unlock().await;
            assert!(matches!(outcome, Err(Error::NotHeld { holder: None, .. })), "{kind}: {outcome:?}");
        }
        // The loss does not affect the next hold.
        kind.make(&server, NAME);
        let guard = kind.of(&client, NAME).lock().await.unwrap();
        assert_eq!(guard.state(), HoldState::Held);
        guard.unlock().await.unwrap();
        only_read_timeouts_are_left(kind, &server, &client).await;
    })
    .await;
}

/// Renewals and releases need no memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_ends_no_hold_of_any_kind() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let server = kind.server(NAME);
        let client = watched(kind, &server).await;
        let guard = kind.of(&client, NAME).lock().await.unwrap();
        let deadline = guard.deadline();
        server.configure("maxmemory", "1");
        tokio::select! {
            state = guard.lost() => panic!("{kind}: {state:?}"),
            () = eventually(|| guard.deadline() > deadline + LEASE) => {}
        }
        guard.unlock().await.unwrap();
        server.configure("maxmemory", "0");
        only_read_timeouts_are_left(kind, &server, &client).await;
    })
    .await;
}

/// No reply that arrives after the loss revives a hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_frozen_past_the_lease_revives_no_hold_of_any_kind() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let server = kind.server(NAME);
        let client = watched(kind, &server).await;
        let lock = kind.of(&client, NAME);
        let guard = lock.lock().await.unwrap();
        server.stop_signal();
        let stopped = Stopwatch::start();
        let state = guard.lost().await;
        assert!(stopped.elapsed() < LEASE + REPORT_LIMIT, "{kind}: reported after {:?}", stopped.elapsed());
        assert!(
            matches!(state, HoldState::Lost(LossReason::Unreachable | LossReason::Expired)),
            "{kind}: {state:?}"
        );
        server.cont();
        let next = lock.try_lock_for(LEASE * 6).await.unwrap().expect("the lock is free");
        assert_eq!(guard.state(), state, "{kind}");
        assert!(guard.unlock().await.unwrap_err().is_lost(), "{kind}");
        assert_eq!(next.state(), HoldState::Held, "{kind}");
        next.unlock().await.unwrap();
        only_read_timeouts_are_left(kind, &server, &client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_of_a_fixed_lease_reports_a_deleted_record() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_long_leases()), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = clients(kind, &server).await;
        let lock = kind.of(&one, NAME).with_lease(Duration::from_secs(60));
        let guard = lock.lock().await.unwrap();
        kind.erase(&server, NAME);
        assert_eq!(guard.state(), HoldState::Held, "{kind}: no request has found the loss yet");
        match guard.unlock().await {
            Err(Error::Lost { reason: LossReason::Gone, holder: None, .. }) => {}
            other => panic!("{kind}: {other:?}"),
        }

        // Another client holds the lock by the time of the release, and keeps it.
        kind.make(&server, NAME);
        let guard = lock.lock().await.unwrap();
        let inner = if kind.is_reentrant() { Some(lock.lock().await.unwrap()) } else { None };
        kind.erase(&server, NAME);
        kind.make(&server, NAME);
        let others = kind.of(&two, NAME).lock().await.unwrap();
        if let Some(inner) = inner {
            let outcome = inner.unlock().await;
            assert!(matches!(outcome, Err(Error::Lost { .. })), "{kind}: {outcome:?}");
        }
        match guard.unlock().await {
            Err(Error::Lost { reason, holder, .. }) => {
                let expected = if kind.distinguishes_taken() { LossReason::Taken } else { LossReason::Gone };
                let named = holder.as_ref().map_or("", |holder| holder.owner());
                assert_eq!((reason, named), (expected, others.owner()), "{kind}");
            }
            Err(Error::NotHeld { holder: Some(holder), .. }) => assert_eq!(holder.owner(), others.owner()),
            other => panic!("{kind}: {other:?}"),
        }
        assert_eq!(others.state(), HoldState::Held);
        others.unlock().await.unwrap_or_else(|error| panic!("{kind}: the other's hold was freed: {error}"));
        only_read_timeouts_are_left(kind, &server, &one).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_unlock_wakes_a_waiter_and_is_reported_to_the_holder() {
    each(Kind::rival_locks(), |(holder, waiter)| async move {
        let server = Server::start();
        let (one, two) = (watched(waiter, &server).await, ClientSet::of(waiter, &server).await);
        assert!(!holder.lock(&two, NAME).force_unlock().await.unwrap(), "{holder}: the lock was not held");
        let watch = Stopwatch::start();
        let guard = holder.lock(&one, NAME).lock().await.unwrap();
        let lock = waiter.lock(&two, NAME);
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        if waiter.publishes() {
            eventually(|| !channels(&server).is_empty()).await;
        }
        let mut messages = Messages::of(&server);
        let forced = Stopwatch::start();
        assert!(holder.lock(&two, NAME).force_unlock().await.unwrap(), "{holder}");
        // A slow machine may have renewed the hold before that.
        let due = guard.deadline() - LEASE + LEASE / 3;
        let next = waiting.await.unwrap();
        let (granted, took) = (Instant::now(), forced.elapsed());
        let published: Vec<_> = messages.heard().into_iter().map(|(_, message)| message).collect();
        assert_eq!(
            published,
            vec![holder.message(); usize::from(holder.publishes())],
            "{holder} to {waiter}"
        );
        // The lease could not have expired by now, so the message woke the waiter.
        assert!(took < LEASE / 2, "{holder} to {waiter}: {took:?}");
        let state = guard.lost().await;
        // A renewal between the release and the grant finds no record. The first one may come half of its time early.
        let gone = due - LEASE / 4 < granted && state == HoldState::Lost(LossReason::Gone);
        assert!(gone || state == HoldState::Lost(LossReason::Taken), "{holder} to {waiter}: {state:?}");
        let late = watch.since(due);
        assert!(late < REPORT_LIMIT, "{holder}: reported {late:?} after the renewal was due");
        match guard.unlock().await {
            Err(Error::NotHeld { holder: Some(holder), .. }) => assert_eq!(holder.owner(), next.owner()),
            other => panic!("{holder}: {other:?}"),
        }
        assert_eq!(next.state(), HoldState::Held);
        next.unlock().await.unwrap();
        only_read_timeouts_are_left(waiter, &server, &two).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_expires_on_time_and_frees_the_lock() {
    const FIXED: Duration = Duration::from_millis(400);
    each(Kind::rivals().filter(|(holder, _)| holder.has_lease()), |(holder, waiter)| async move {
        let server = waiter.server(NAME);
        let (one, two) = clients(waiter, &server).await;
        let (before, watch) = (Instant::now(), Stopwatch::start());
        let guard = holder.of(&one, NAME).with_lease(FIXED).lock().await.unwrap();
        let deadline = guard.deadline();
        let sent = deadline + holder.drift(FIXED) - FIXED;
        assert!((before..=Instant::now()).contains(&sent), "{holder}");
        let left = holder.remaining_ms(&mut server.cli(), NAME);
        // A permit's timeout is rounded up to the next whole millisecond.
        let most = 400 + i64::from(holder == Kind::Permit);
        assert!((1..=most).contains(&left), "{holder}: {left} ms are left");

        let lock = waiter.of(&two, NAME);
        let next = lock.lock().await.unwrap();
        let (over, late) = (Instant::now(), watch.since(deadline));
        // The record does not end before the holder's deadline. A waiter retries then, or a little later.
        assert!(over >= deadline && late < REPORT_LIMIT, "{holder} to {waiter}: {late:?}");
        assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Expired), "{holder}");
        let outcome = guard.unlock().await;
        assert!(matches!(outcome, Err(Error::NotHeld { .. })), "{holder}: {outcome:?}");
        assert_eq!(next.state(), HoldState::Held, "{waiter}");
        next.unlock().await.unwrap();
        assert_nothing_left(waiter, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_lease_is_30_s_for_each_kind() {
    each(Kind::locks(), |kind| async move {
        let server = Server::start();
        let (one, _two) = clients(kind, &server).await;
        let lock = kind.lock(&one, NAME);
        for (lock, lease) in [(lock.clone(), 30_000), (lock.with_lease(Duration::from_secs(7)), 7_000)] {
            let guard = lock.lock().await.unwrap();
            let expiring = [
                Some(NAME.to_owned()),
                kind.keys_of_a_hold(NAME, guard.owner()).filter(|_| kind == Kind::Read),
            ];
            for key in expiring.into_iter().flatten() {
                let left: u64 = redis::cmd("PTTL").arg(&key).query(&mut server.cli()).unwrap();
                assert!((lease - 1000..=lease).contains(&left), "{kind}: {key} lives for {left} ms");
            }
            let left = lock.remaining_lease().await.unwrap().expect("it is held");
            assert!(left.as_millis() as u64 > lease - 1000, "{kind}: {left:?}");
            // A second level extends the hold by no more than its own lease.
            if kind.is_reentrant() {
                let inner = lock.lock().await.unwrap();
                let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut server.cli()).unwrap();
                assert!((lease - 1000..=lease).contains(&left), "{kind}: {left} ms after a re-entry");
                inner.unlock().await.unwrap();
            }
            guard.unlock().await.unwrap();
        }
        // Only the last token of a fenced lock stays, without an expiry.
        for key in keys(&server) {
            let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut server.cli()).unwrap();
            assert_eq!((Some(key), left), (kind.remaining_key(NAME), -1), "{kind}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_keeps_a_hold_beyond_its_lease() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = (watched(kind, &server).await, ClientSet::of(kind, &server).await);
        let guard = kind.of(&one, NAME).lock().await.unwrap();
        let inner = if kind.is_reentrant() { Some(kind.of(&one, NAME).lock().await.unwrap()) } else { None };
        let until = Instant::now() + LEASE * 3;
        let mut cli = server.cli();
        let string = kind.keys_of_a_hold(NAME, guard.owner()).filter(|_| kind == Kind::Read);
        while Instant::now() < until {
            // A late reply makes the hold suspect.
            assert!(guard.state().is_live(), "{kind}: {:?}", guard.state());
            assert!(kind.remaining_ms(&mut cli, NAME) > 0, "{kind}: the record expired");
            if let Some(key) = &string {
                let left: i64 = redis::cmd("PTTL").arg(key).query(&mut cli).unwrap();
                assert!(left > 0, "{kind}: {key} expired");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(kind.rival().of(&two, NAME).try_lock().await.unwrap().is_none(), "{kind}");
        if let Some(inner) = inner {
            inner.unlock().await.unwrap();
        }
        guard.unlock().await.unwrap();
        assert_nothing_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_empty_is_reported_and_serves_waiters() {
    each(Kind::rivals().filter(|(holder, _)| holder.has_lease()), |(holder, waiter)| async move {
        let mut server = waiter.server(NAME);
        // With the default lease, so that no lease expires before the server is back.
        let (one, two) = clients(waiter, &server).await;
        let guard = holder.of(&one, NAME).lock().await.unwrap();
        holder.make(&server, "fixed");
        let lock = holder.of(&one, "fixed").with_lease(Duration::from_secs(60));
        let fixed = if holder.has_long_leases() { Some(lock.lock().await.unwrap()) } else { None };
        let lock = waiter.of(&two, NAME);
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        if waiter.listens() {
            eventually(|| !channels(&server).is_empty()).await;
        }
        server.restart();
        waiter.make(&server, NAME);
        let next = waiting.await.unwrap();
        let state = guard.lost().await;
        // The waiter may have acquired the lock before the holder can check its record.
        let expected = matches!(state, HoldState::Lost(LossReason::DataLost | LossReason::Taken));
        assert!(expected, "{holder}: {state:?}");
        if let Some(fixed) = &fixed {
            assert_eq!(fixed.lost().await, HoldState::Lost(LossReason::DataLost), "{holder}");
        }
        for lost in fixed.into_iter().chain([guard]) {
            let outcome = lost.unlock().await;
            assert!(matches!(outcome, Err(Error::NotHeld { .. })), "{holder}: {outcome:?}");
        }
        assert_eq!(next.state(), HoldState::Held, "{waiter}");
        // The tokens begin again with the new data.
        assert_eq!(next.token(), (waiter == Kind::Fenced).then_some(1));
        next.unlock().await.unwrap();
        assert_nothing_left(waiter, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

/// Fault 10 of the wire contract: such a record does not say when to retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_behind_a_record_without_an_expiry_is_served() {
    let cases = Kind::rival_locks().filter(|(holder, _)| holder.expires_with_its_record());
    each(cases, |(holder, waiter)| async move {
        let server = Server::start();
        let client = watched(waiter, &server).await;
        let mut cli = server.cli();
        let mut record = redis::cmd("HSET");
        record.arg(NAME).arg("somebody:1").arg(1);
        match holder {
            Kind::Value => {
                record = redis::cmd("SET");
                record.arg(NAME).arg("somebody's");
            }
            Kind::Read => _ = record.arg("mode").arg("read"),
            Kind::Write if waiter == Kind::Read => {
                record = redis::cmd("HSET");
                record.arg(NAME).arg("somebody:1:write").arg(1).arg("mode").arg("write");
            }
            Kind::Write => _ = record.arg("mode").arg("write"),
            _ => {}
        }
        record.exec(&mut cli).unwrap();
        let lock = waiter.lock(&client, NAME);
        assert!(lock.with_owner(&Owner::unique()).try_lock().await.unwrap().is_none(), "{waiter}");
        assert_eq!(lock.remaining_lease().await.unwrap(), Some(Duration::MAX), "{waiter}");
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        if waiter.publishes() {
            eventually(|| !channels(&server).is_empty()).await;
        }
        // Delete the record without a message, later than any holder probe.
        tokio::time::sleep(LEASE / 3).await;
        redis::cmd("DEL").arg(NAME).exec(&mut cli).unwrap();
        let freed = Stopwatch::start();
        let guard = waiting.await.unwrap();
        assert!(freed.elapsed() < LEASE / 3 + REPORT_LIMIT, "{holder} to {waiter}: {:?}", freed.elapsed());
        guard.unlock().await.unwrap();
        assert_nothing_left(waiter, NAME, &server, &[&client]).await;
    })
    .await;
}

/// Like [`assert_nothing_left`], but ignores the timeout keys of read holds whose record was deleted: they expire by themselves.
async fn only_read_timeouts_are_left(kind: Kind, server: &Server, client: &ClientSet) {
    for key in keys(server).into_iter().filter(|key| key.contains(":rwlock_timeout:")) {
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut server.cli()).unwrap();
        assert!(left != -1, "{kind}: {key} never expires");
        redis::cmd("DEL").arg(&key).exec(&mut server.cli()).unwrap();
    }
    assert_nothing_left(kind, NAME, server, &[client]).await;
}
