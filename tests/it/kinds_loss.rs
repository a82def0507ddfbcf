//! How long a hold of each kind lasts, and how its holder learns that it lasts no more.

use std::time::{Duration, Instant};

use redisson_lock::{Client, Error, HoldState, LossReason, Owner};

use crate::kinds::clients;
use crate::support::contender::Party;
use crate::support::kind::{Kind, channels, each, keys, nothing_is_left};
use crate::support::{Messages, Server, Stopwatch, eventually};

const NAME: &str = "n";
/// Of a client whose watchdog is waited for.
const LEASE: Duration = Duration::from_millis(1500);
/// From when something can be known to when it is told, on a busy machine: sooner than a deadline would tell it, which is two
/// thirds of the lease after the renewal.
const TOLD: Duration = Duration::from_millis(450);

async fn watched(kind: Kind, server: &Server) -> Party {
    Party::with(kind, Client::builder().watchdog_timeout(LEASE), server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_hold_whose_record_is_gone_is_told_by_the_next_renewal() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let watch = Stopwatch::start();
        let server = kind.server(NAME);
        let client = watched(kind, &server).await;
        let (outer, inner) = {
            let lock = kind.of(&client, NAME);
            let outer = lock.lock().await.unwrap();
            (outer, if kind.is_reentrant() { Some(lock.lock().await.unwrap()) } else { None })
        };
        // The next renewal comes a third of the lease after what was confirmed last, which was sent a lease before the
        // deadline.
        let due = outer.deadline() - LEASE + LEASE / 3;
        kind.erase(&server, NAME);
        assert_eq!(outer.lost().await, HoldState::Lost(LossReason::Gone), "{kind}");
        let late = watch.since(due);
        assert!(late < TOLD, "{kind}: told {late:?} after the renewal was due");
        // However often it is asked.
        for guard in inner.into_iter().chain([outer]) {
            guard.lost().await;
            assert_eq!(guard.state(), HoldState::Lost(LossReason::Gone), "{kind}");
            let outcome = guard.unlock().await;
            assert!(matches!(outcome, Err(Error::NotHeld { holder: None, .. })), "{kind}: {outcome:?}");
        }
        // The next hold is none the worse for it.
        kind.make(&server, NAME);
        let guard = kind.of(&client, NAME).lock().await.unwrap();
        assert_eq!(guard.state(), HoldState::Held);
        guard.unlock().await.unwrap();
        only_strings_are_left(kind, &server, &client).await;
    })
    .await;
}

/// Nothing that is answered after it revives one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_frozen_past_the_lease_revives_no_hold_of_any_kind() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let server = kind.server(NAME);
        let client = watched(kind, &server).await;
        let lock = kind.of(&client, NAME);
        let guard = lock.lock().await.unwrap();
        server.stop_signal();
        let stopped = Stopwatch::start();
        let told = guard.lost().await;
        assert!(stopped.elapsed() < LEASE + TOLD, "{kind}: told after {:?}", stopped.elapsed());
        assert!(
            matches!(told, HoldState::Lost(LossReason::Unreachable | LossReason::Expired)),
            "{kind}: {told:?}"
        );
        server.cont();
        let next = lock.try_lock_for(LEASE * 6).await.unwrap().expect("nobody holds it");
        assert_eq!(guard.state(), told, "{kind}");
        assert!(guard.unlock().await.unwrap_err().is_lost(), "{kind}");
        assert_eq!(next.state(), HoldState::Held, "{kind}");
        next.unlock().await.unwrap();
        only_strings_are_left(kind, &server, &client).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_whose_record_is_gone_is_told_by_its_release() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_long_leases()), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = clients(kind, &server).await;
        let lock = kind.of(&one, NAME).with_lease(Duration::from_secs(60));
        let guard = lock.lock().await.unwrap();
        kind.erase(&server, NAME);
        assert_eq!(guard.state(), HoldState::Held, "{kind}: nobody has looked");
        match guard.unlock().await {
            Err(Error::Lost { reason: LossReason::Gone, holder: None, .. }) => {}
            other => panic!("{kind}: {other:?}"),
        }

        // Somebody else has it by then, and keeps it.
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
                let told = if kind.tells_taken() { LossReason::Taken } else { LossReason::Gone };
                let named = holder.as_ref().map_or("", |holder| holder.owner());
                assert_eq!((reason, named), (told, others.owner()), "{kind}");
            }
            Err(Error::NotHeld { holder: Some(holder), .. }) => assert_eq!(holder.owner(), others.owner()),
            other => panic!("{kind}: {other:?}"),
        }
        assert_eq!(others.state(), HoldState::Held);
        others.unlock().await.unwrap_or_else(|error| panic!("{kind}: the other's hold was freed: {error}"));
        only_strings_are_left(kind, &server, &one).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_unlock_frees_it_for_who_waits_and_is_told_to_the_holder() {
    each(Kind::rival_locks(), |(holder, waiter)| async move {
        let server = Server::start();
        let (one, two) = (watched(waiter, &server).await, Party::of(waiter, &server).await);
        assert!(!holder.lock(&two, NAME).force_unlock().await.unwrap(), "{holder}: nobody held it");
        let watch = Stopwatch::start();
        let guard = holder.lock(&one, NAME).lock().await.unwrap();
        let lock = waiter.lock(&two, NAME);
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        if waiter.publishes() {
            eventually(|| !channels(&server).is_empty()).await;
        }
        let due = guard.deadline() - LEASE + LEASE / 3;
        let mut messages = Messages::of(&server);
        let forced = Stopwatch::start();
        assert!(holder.lock(&two, NAME).force_unlock().await.unwrap(), "{holder}");
        let next = waiting.await.unwrap();
        let told: Vec<_> = messages.heard().into_iter().map(|(_, message)| message).collect();
        assert_eq!(told, vec![holder.message(); usize::from(holder.publishes())], "{holder} to {waiter}");
        // Before the lease could end: it was told.
        assert!(forced.elapsed() < LEASE / 2, "{holder} to {waiter}: {:?}", forced.elapsed());
        let state = guard.lost().await;
        assert!(matches!(state, HoldState::Lost(LossReason::Taken)), "{holder} to {waiter}: {state:?}");
        let late = watch.since(due);
        assert!(late < TOLD, "{holder}: told {late:?} after the renewal was due");
        match guard.unlock().await {
            Err(Error::NotHeld { holder: Some(holder), .. }) => assert_eq!(holder.owner(), next.owner()),
            other => panic!("{holder}: {other:?}"),
        }
        assert_eq!(next.state(), HoldState::Held);
        next.unlock().await.unwrap();
        only_strings_are_left(waiter, &server, &two).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fixed_lease_ends_when_it_says_and_frees_the_lock() {
    const FIXED: Duration = Duration::from_millis(400);
    each(Kind::rivals().filter(|(holder, _)| holder.has_lease()), |(holder, waiter)| async move {
        let server = waiter.server(NAME);
        let (one, two) = clients(waiter, &server).await;
        let (asked, watch) = (Instant::now(), Stopwatch::start());
        let guard = holder.of(&one, NAME).with_lease(FIXED).lock().await.unwrap();
        let deadline = guard.deadline();
        let sent = deadline + holder.drift(FIXED) - FIXED;
        assert!((asked..=Instant::now()).contains(&sent), "{holder}");
        let left = holder.life(&mut server.cli(), NAME);
        assert!((1..=400).contains(&left), "{holder}: {left} ms are left");

        let lock = waiter.of(&two, NAME);
        let next = lock.lock().await.unwrap();
        let (over, late) = (Instant::now(), watch.since(deadline));
        // The record ends no earlier than what its holder was promised; who waits looks then, or a little later.
        assert!(over >= deadline && late < TOLD, "{holder} to {waiter}: {late:?}");
        assert_eq!(guard.lost().await, HoldState::Lost(LossReason::Expired), "{holder}");
        let outcome = guard.unlock().await;
        assert!(matches!(outcome, Err(Error::NotHeld { .. })), "{holder}: {outcome:?}");
        assert_eq!(next.state(), HoldState::Held, "{waiter}");
        next.unlock().await.unwrap();
        nothing_is_left(waiter, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_lives_for_30_s_unless_something_else_is_said() {
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
            // A second level lengthens nothing beyond its own lease.
            if kind.is_reentrant() {
                let inner = lock.lock().await.unwrap();
                let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut server.cli()).unwrap();
                assert!((lease - 1000..=lease).contains(&left), "{kind}: {left} ms after a re-entry");
                inner.unlock().await.unwrap();
            }
            guard.unlock().await.unwrap();
        }
        // A token outlives all leases.
        for key in keys(&server) {
            let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut server.cli()).unwrap();
            assert_eq!((Some(key), left), (kind.remains(NAME), -1), "{kind}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_keeps_a_hold_beyond_its_lease() {
    each(Kind::ALL.into_iter().filter(|kind| kind.has_lease()), |kind| async move {
        let server = kind.server(NAME);
        let (one, two) = (watched(kind, &server).await, Party::of(kind, &server).await);
        let guard = kind.of(&one, NAME).lock().await.unwrap();
        let inner = if kind.is_reentrant() { Some(kind.of(&one, NAME).lock().await.unwrap()) } else { None };
        let until = Instant::now() + LEASE * 3;
        let mut cli = server.cli();
        let string = kind.keys_of_a_hold(NAME, guard.owner()).filter(|_| kind == Kind::Read);
        while Instant::now() < until {
            assert_eq!(guard.state(), HoldState::Held, "{kind}");
            assert!(kind.life(&mut cli, NAME) > 0, "{kind}: the record was let lapse");
            if let Some(key) = &string {
                let left: i64 = redis::cmd("PTTL").arg(key).query(&mut cli).unwrap();
                assert!(left > 0, "{kind}: {key} was let lapse");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(kind.rival().of(&two, NAME).try_lock().await.unwrap().is_none(), "{kind}");
        if let Some(inner) = inner {
            inner.unlock().await.unwrap();
        }
        guard.unlock().await.unwrap();
        nothing_is_left(kind, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_empty_is_told_to_the_holder_and_serves_who_waits() {
    each(Kind::rivals().filter(|(holder, _)| holder.has_lease()), |(holder, waiter)| async move {
        let mut server = waiter.server(NAME);
        // Of the default lease, so that none ends before the server is back.
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
        // Whoever waited may have the record by the time the holder can look.
        let told = matches!(state, HoldState::Lost(LossReason::DataLost | LossReason::Taken));
        assert!(told, "{holder}: {state:?}");
        if let Some(fixed) = &fixed {
            assert_eq!(fixed.lost().await, HoldState::Lost(LossReason::DataLost), "{holder}");
        }
        for lost in fixed.into_iter().chain([guard]) {
            let outcome = lost.unlock().await;
            assert!(matches!(outcome, Err(Error::NotHeld { .. })), "{holder}: {outcome:?}");
        }
        assert_eq!(next.state(), HoldState::Held, "{waiter}");
        // The numbers begin anew with the data.
        assert_eq!(next.token(), (waiter == Kind::Fenced).then_some(1));
        next.unlock().await.unwrap();
        nothing_is_left(waiter, NAME, &server, &[&one, &two]).await;
    })
    .await;
}

/// Fault 10 of the wire contract: such a record tells nobody when to look again.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_no_expiry_is_not_waited_for_for_ever() {
    let cases = Kind::rival_locks().filter(|(holder, _)| holder.lives_by_its_record());
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
        // Later than any glance, and told to nobody.
        tokio::time::sleep(LEASE / 3).await;
        redis::cmd("DEL").arg(NAME).exec(&mut cli).unwrap();
        let freed = Stopwatch::start();
        let guard = waiting.await.unwrap();
        assert!(freed.elapsed() < LEASE / 3 + TOLD, "{holder} to {waiter}: {:?}", freed.elapsed());
        guard.unlock().await.unwrap();
        nothing_is_left(waiter, NAME, &server, &[&client]).await;
    })
    .await;
}

/// As [`nothing_is_left`], but for the strings of read holds whose record somebody deleted: they end by themselves.
async fn only_strings_are_left(kind: Kind, server: &Server, client: &Party) {
    for key in keys(server).into_iter().filter(|key| key.contains(":rwlock_timeout:")) {
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut server.cli()).unwrap();
        assert!(left != -1, "{kind}: {key} would stay for ever");
        redis::cmd("DEL").arg(&key).exec(&mut server.cli()).unwrap();
    }
    nothing_is_left(kind, NAME, server, &[client]).await;
}
