//! Lost replies, for each kind of lock: a request takes effect once, however often it has to be sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redisson_lock::{Client, Error, HandOff, HoldState, Owner};

use crate::support::any_lock::{AnyLock, ClientSet, Held};
use crate::support::kind::{Kind, assert_nothing_left, channels, each, keys};
use crate::support::proxy::{Direction, ProxyLink, Words};
use crate::support::{FaultyClient, Messages, Proxy, Server, Stopwatch, eventually, scripts};

const NAME: &str = "n";
/// Short, so that a silent connection is found soon, and long enough for a busy machine.
const RESPONSE: Duration = Duration::from_secs(1);
const FOREVER: Duration = Duration::from_secs(3600);

/// Whether the reply is lost together with its connection, or the connection is silent from then on.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Cut,
    Silence,
}

/// All kinds but those of a majority, which makes up for the lost reply.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| !kind.needs_a_majority())
}

fn kinds_and_losses() -> impl Iterator<Item = (Kind, Loss)> {
    kinds().flat_map(|kind| [(kind, Loss::Cut), (kind, Loss::Silence)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_an_acquire_leaves_one_hold_of_each_kind() {
    each(kinds_and_losses(), |(kind, loss)| async move {
        let mut bench = Bench::losing(loss, kind).await;
        bench.lose_next_reply(loss);
        let guard = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        // This is the hold whose reply was lost, and not a second one that waited for the lease of the first to expire.
        let first = !guard.owner().contains('~');
        assert!(first || kind.reacquires_after_disconnect(), "{kind}, {loss:?}: {}", guard.owner());
        assert_still_held(&guard).await;
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 1);
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
        // The dead connection may still deliver requests, but only with an owner id that is not used again.
        let guard = bench.lock.lock().await.unwrap();
        assert!(kind.has_fresh_owner_ids() || guard.owner().contains('~'), "{kind}: {}", guard.owner());
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 2);
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_try_lock_leaves_its_hold_or_none_of_each_kind() {
    each(kinds_and_losses(), |(kind, loss)| async move {
        let mut bench = Bench::losing(loss, kind).await;
        bench.lose_next_reply(loss);
        match (loss, bench.lock.try_lock().await) {
            // The new connection is established long before the time limit.
            (Loss::Cut, Ok(Some(guard))) => {
                bench.assert_held(&guard, 1);
                guard.unlock().await.unwrap();
            }
            // The heartbeat may find the silence first.
            (Loss::Silence, Err(Error::TimedOut { .. } | Error::Unavailable { .. })) => {}
            (Loss::Cut, Err(Error::TimedOut { .. })) if kind.reacquires_after_disconnect() => {}
            (_, other) => panic!("{kind}, {loss:?}: {other:?}"),
        }
        bench.assert_freed(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_re_entry_counts_once_in_each_kind() {
    let cases = kinds_and_losses().filter(|(kind, _)| kind.is_reentrant());
    each(cases, |(kind, loss)| async move {
        let mut bench = Bench::losing(loss, kind).await;
        let outer = bench.lock.lock().await.unwrap();
        bench.lose_next_reply(loss);
        let inner = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        bench.assert_held(&outer, 2);
        inner.unlock().await.unwrap();
        bench.assert_held(&outer, 1);
        assert_still_held(&outer).await;
        bench.assert_token(&outer, 1);
        outer.unlock().await.unwrap();
        bench.assert_freed(if kind.publishes_each_level() { 2 } else { 1 }).await;
    })
    .await;
}

/// The record may already name the next owner when the request is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_hand_off_passes_the_lock_once_of_each_kind() {
    let cases = kinds_and_losses().filter(|(kind, _)| kind.hands_off());
    each(cases, |(kind, loss)| async move {
        let mut bench = Bench::losing(loss, kind).await;
        let guard = bench.lock.with_owner(&Owner::unique()).lock().await.unwrap();
        let next = bench.lock.with_owner(&Owner::unique());
        let waiting = tokio::spawn(async move { next.lock().await });
        eventually(|| bench.client.stats().waiting == 1).await;
        // The actor subscribes for a waiter in Redis's queue after the reply to the request that put it there.
        eventually(|| !kind.is_queued() || !channels(&bench.server).is_empty()).await;
        bench.release_unanswered(guard, loss).await;
        let guard = waiting.await.unwrap().unwrap();
        assert_still_held(&guard).await;
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 2);
        assert_eq!(bench.messages.heard(), [], "{kind}, {loss:?}: the lock was freed");
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_release_is_one_release_of_each_kind() {
    each(kinds_and_losses(), |(kind, loss)| async move {
        let mut bench = Bench::losing(loss, kind).await;
        let guard = bench.lock.lock().await.unwrap();
        bench.release_unanswered(guard, loss).await;
        // This acquire is queued behind the retries.
        let guard = bench.lock.lock().await.unwrap();
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 2);
        assert_still_held(&guard).await;
        guard.unlock().await.unwrap();
        bench.assert_freed(2).await;
    })
    .await;
}

/// Another client acquires the lock between the release and its retry. The retry must not end that hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_release_leaves_the_next_hold_of_each_kind_alone() {
    each(kinds(), |kind| async move {
        let bench = Bench::losing(Loss::Silence, kind).await;
        let far = ClientSet::of(kind, &bench.server).await;
        let guard = bench.lock.lock().await.unwrap();
        bench.lose_next_reply(Loss::Silence);
        let (outcome, next) = tokio::join!(guard.unlock(), async {
            bench.link.lost_reply().await;
            kind.of(&far, NAME).lock().await.unwrap()
        });
        assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{kind}: {outcome:?}");
        // The retry, on the next link for commands.
        bench.proxy.link(2).await.answered(1, changes_record).await;
        let lock = bench.lock.with_owner(&Owner::unique());
        if kind.is_exclusive() {
            assert!(lock.try_lock().await.unwrap().is_none(), "{kind}");
        } else {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        assert_still_held(&next).await;
        bench.assert_held(&next, 1);
        next.unlock().await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        bench.assert_gone().await;
    })
    .await;
}

/// A dead connection may deliver a request long after its retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_acquire_leaves_the_hold_of_each_kind_alone() {
    each(kinds(), |kind| async move {
        let mut bench = Bench::patient(kind).await;
        let guard = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
        let guard = if kind.numbers_requests() {
            // The late acquire does not acquire a released lock again.
            guard.unlock().await.unwrap();
            bench.link.deliver(changes_record).await;
            bench.assert_freed(1).await;
            bench.lock.lock().await.unwrap()
        } else {
            bench.link.deliver(changes_record).await;
            guard
        };
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 1);
        assert_still_held(&guard).await;
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_release_leaves_the_next_hold_of_each_kind_alone() {
    let cases = kinds().flat_map(|kind| [(kind, false), (kind, true)]);
    each(cases, |(kind, held)| async move {
        let bench = Bench::patient(kind).await;
        let guard = bench.lock.lock().await.unwrap();
        bench.link.hold_and_cut(changes_record, async { guard.unlock().await.unwrap() }).await;
        if held {
            let next = bench.lock.lock().await.unwrap();
            bench.link.deliver(changes_record).await;
            bench.assert_held(&next, 1);
            assert_still_held(&next).await;
            next.unlock().await.unwrap();
        } else {
            bench.assert_gone().await;
            bench.link.deliver(changes_record).await;
        }
        // A late release may publish another message, so messages are not counted here.
        bench.assert_gone().await;
    })
    .await;
}

/// The connection for messages drops or goes silent. Only the heartbeat notices silence, which is normal on that connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_lost_its_subscription_is_woken_by_the_next_release() {
    let cases = kinds_and_losses().filter(|(kind, _)| kind.listens() && !kind.polls());
    each(cases, |(kind, loss)| async move {
        let bench = Bench::losing(loss, kind).await;
        let far = ClientSet::of(kind, &bench.server).await;
        let guard = kind.rival().of(&far, NAME).lock().await.unwrap();
        let lock = bench.lock.clone();
        let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
        let subscription = bench.proxy.link(1).await;
        subscription.answered(1, subscribes).await;
        match loss {
            Loss::Cut => subscription.cut(),
            Loss::Silence => subscription.swallow_both(),
        }
        bench.proxy.link(2).await.answered(1, subscribes).await;
        if kind.probes() {
            let is_probe = |words: &Words| names_record(words) && !changes_record(words);
            // Each interval between two holder probes is twice the one before, from 10 ms to 640 ms. The next probe comes much later.
            bench.link.answered(bench.link.count(is_probe) + 7, is_probe).await;
        }
        let released = Stopwatch::start();
        guard.unlock().await.unwrap();
        let woken = waiting.await.unwrap();
        let took = released.elapsed();
        assert!(took < Duration::from_millis(500), "{kind}, {loss:?}: {took:?}");
        woken.unlock().await.unwrap();
        // The server still has the silent connection and its subscription.
        eventually(|| keys(&bench.server).into_iter().eq(kind.remaining_key(NAME))).await;
    })
    .await;
}

/// A writer's release that keeps its read hold, and the retry of that release.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_downgrade_leaves_the_read_hold() {
    each([Loss::Cut, Loss::Silence], |loss| async move {
        let bench = Bench::losing(loss, Kind::Write).await;
        let write = bench.lock.lock().await.unwrap();
        let read = bench.client.read_write_lock(NAME).read().lock().await.unwrap();
        bench.lose_next_reply(loss);
        let outcome = write.unlock().await;
        match loss {
            Loss::Cut => outcome.unwrap(),
            Loss::Silence => assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}"),
        }
        bench.link.lost_reply().await;
        let record = BTreeMap::from([(read.owner().to_owned(), "1".to_owned()), mode("read")]);
        eventually(|| bench.record() == record).await;
        let read = Held::Lock(read);
        assert_still_held(&read).await;
        read.unlock().await.unwrap();
        bench.assert_gone().await;
    })
    .await;
}

/// The pairs of kinds whose record names each holder in a field of its own.
fn rivals_with_owner_fields() -> impl Iterator<Item = (Kind, Kind)> {
    Kind::rival_locks().filter(|(holder, _)| !matches!(holder, Kind::Value | Kind::Group))
}

/// An owner id from before an unanswered request is not used for a new hold, but an existing hold keeps it. Waiters of the same
/// client must not take that hold for an orphaned record.
#[tokio::test(flavor = "multi_thread")]
async fn local_waiters_keep_a_hold_from_before_an_unanswered_request() {
    each(rivals_with_owner_fields(), |(holder, waiter)| async move {
        let bench = Bench::patient(holder).await;
        let guard = bench.lock.lock().await.unwrap();
        let record = bench.record();
        bench.link.cut_at_reply_to(|words| words.iter().any(|word| word == b"other"));
        drop(bench.client.lock("other").lock().await.unwrap());
        bench.link.lost_reply().await;
        assert!(!guard.owner().contains('~'), "{holder}");
        let lock = waiter.lock(&bench.client, NAME).with_owner(&Owner::unique());
        // Long enough for some holder probes.
        let waited = lock.try_lock_for(Duration::from_millis(300)).await;
        // A slow server may not answer within so short a wait.
        let refused = matches!(waited, Ok(None) | Err(Error::TimedOut { .. }));
        assert!(refused, "{waiter} acquired behind {holder}: {waited:?}");
        assert_eq!(bench.record(), record, "{waiter} behind {holder}");
        assert_still_held(&guard).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// A late acquire finds the lock free, and creates an orphaned record: no hold has its owner id.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_acquire_of_a_free_lock_is_undone_for_a_waiter_of_each_kind() {
    for (orphan, waiter) in rivals_with_owner_fields() {
        let bench = FaultyClient::patient().await;
        let lock = orphan.lock(&bench.client, NAME);
        let guard = bench.link.hold_and_cut(changes_record, async { lock.lock().await.unwrap() }).await;
        let owner_id = guard.owner().to_owned();
        guard.unlock().await.unwrap();
        bench.link.deliver(changes_record).await;
        assert!(
            bench.raw.run::<bool>(&["HEXISTS", NAME, &owner_id]),
            "{orphan}: no orphaned record was created"
        );
        let lock = waiter.lock(&bench.client, NAME);
        let guard = lock.try_lock_for(Duration::from_secs(5)).await.unwrap();
        let guard =
            guard.unwrap_or_else(|| panic!("{waiter}: the orphaned record of a {orphan} was not removed"));
        assert_ne!(guard.owner(), owner_id);
        guard.unlock().await.unwrap();
        assert_nothing_left(orphan, NAME, &bench.server, &[&bench.client]).await;
    }
}

/// A late acquire that joins a queue leaves an orphaned entry there.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_acquire_that_joins_a_queue_is_undone_for_a_waiter() {
    for kind in [Kind::Fair, Kind::NonReentrantFair] {
        let bench = FaultyClient::patient().await;
        let (lock, far) =
            (kind.lock(&bench.client, NAME), Client::connect(bench.server.url()).await.unwrap());
        bench
            .link
            .hold_and_cut(changes_record, async { lock.lock().await.unwrap() })
            .await
            .unlock()
            .await
            .unwrap();
        let others = kind.lock(&far, NAME).lock().await.unwrap();
        bench.link.deliver(changes_record).await;
        let [queue, _] = &kind.keys_of_a_waiter(NAME)[..] else { unreachable!() };
        assert_eq!(bench.raw.run::<u64>(&["LLEN", queue]), 1, "{kind}: no orphaned entry was created");
        others.unlock().await.unwrap();
        let guard = lock.try_lock_for(Duration::from_secs(5)).await.unwrap();
        guard.unwrap_or_else(|| panic!("{kind}: the orphaned entry was not removed")).unlock().await.unwrap();
        assert_nothing_left(kind, NAME, &bench.server, &[&bench.client, &far]).await;
    }
}

/// Waits until the hold is certain. It may be `Suspect` for a moment after its connection dropped, until it is renewed.
async fn assert_still_held(guard: &Held) {
    eventually(|| {
        let state = guard.state();
        assert!(state.is_live(), "{guard:?}");
        state == HoldState::Held
    })
    .await;
}

/// A client behind a proxy, and direct access to its server.
struct Bench {
    kind: Kind,
    server: Server,
    proxy: Proxy,
    client: ClientSet,
    lock: AnyLock,
    /// The first link for commands.
    link: ProxyLink,
    messages: Messages,
}

impl Bench {
    /// Where every connection either replies or ends.
    async fn patient(kind: Kind) -> Self {
        Self::with_response(kind, FaultyClient::PATIENCE).await
    }

    async fn losing(loss: Loss, kind: Kind) -> Self {
        match loss {
            Loss::Cut => Self::patient(kind).await,
            Loss::Silence => Self::with_response(kind, RESPONSE).await,
        }
    }

    async fn with_response(kind: Kind, response: Duration) -> Self {
        let server = kind.server(NAME);
        scripts::load(&server);
        let messages = Messages::of(&server);
        let proxy = Proxy::start(server.port()).await;
        // A hold is handed off, however long it was.
        let hand_off = HandOff::new().max_time(FOREVER).max_time_alone(FOREVER);
        let builder = Client::builder().response_timeout(response).hand_off(hand_off);
        let client = builder.connect(proxy.url()).await.unwrap();
        let link = proxy.link(0).await;
        let client = ClientSet::from(client);
        let lock = kind.of(&client, NAME);
        Self { kind, server, proxy, client, lock, link, messages }
    }

    /// Loses the reply to the next request that may change the lock.
    fn lose_next_reply(&self, loss: Loss) {
        match loss {
            Loss::Cut => self.link.cut_at_reply_to(changes_record),
            Loss::Silence => self.link.lose_reply_to(changes_record),
        }
    }

    /// Releases a hold, and loses the reply.
    async fn release_unanswered(&self, guard: Held, loss: Loss) {
        self.lose_next_reply(loss);
        let outcome = guard.unlock().await;
        match loss {
            Loss::Cut => outcome.unwrap(),
            Loss::Silence => assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}"),
        }
        self.link.lost_reply().await;
    }

    fn record(&self) -> BTreeMap<String, String> {
        redis::cmd("HGETALL").arg(NAME).query(&mut self.server.cli()).unwrap()
    }

    /// Checks that the record and the other keys belong to this hold alone.
    fn assert_held(&self, guard: &Held, levels: u64) {
        let kind = self.kind;
        let recorded = if kind.counts() { levels } else { 1 };
        assert_eq!(kind.holders(&mut self.server.cli(), NAME), guard.alone(recorded), "{kind}");
        if let Kind::Read | Kind::Write = kind {
            assert_eq!(self.record().get("mode").map(String::as_str), Some(kind.java()));
        }
        let mut expected: BTreeSet<_> = kind.keys_of_a_hold(NAME, guard.owner()).into_iter().collect();
        expected.extend(kind.records(NAME));
        assert_eq!(keys(&self.server), expected, "{kind}");
    }

    /// Checks that `number` is the token of this hold and the last token.
    fn assert_token(&self, guard: &Held, number: u64) {
        if self.kind == Kind::Fenced {
            let key = self.kind.remaining_key(NAME);
            let token: u64 = redis::cmd("GET").arg(key).query(&mut self.server.cli()).unwrap();
            assert_eq!((guard.token(), token), (Some(number), number), "{}", self.kind);
        }
    }

    async fn assert_gone(&self) {
        assert_nothing_left(self.kind, NAME, &self.server, &[&self.client]).await;
    }

    /// Checks that the lock is free, after this number of releases since the last check.
    async fn assert_freed(&mut self, releases: usize) {
        self.assert_gone().await;
        let messages: Vec<_> = self.messages.heard().into_iter().map(|(_, message)| message).collect();
        // An attempt that starts over publishes a message for each release of its own.
        let count = if self.kind.reacquires_after_disconnect() {
            messages.len()
        } else {
            releases * self.kind.messages_without_waiters()
        };
        let expected = vec![self.kind.message(); count];
        assert_eq!(messages, expected, "{}", self.kind);
    }
}

fn mode(of: &str) -> (String, String) {
    ("mode".to_owned(), of.to_owned())
}

/// Whether a request names the lock's record and may change it.
fn changes_record(words: &Words) -> bool {
    const QUERIES: [&[u8]; 5] = [b"PTTL", b"EXISTS", b"GET", b"HGET", b"HSCAN"];
    names_record(words) && !QUERIES.contains(&words[0].as_slice())
}

fn names_record(words: &Words) -> bool {
    words.iter().any(|word| word == NAME.as_bytes())
}

fn subscribes(words: &Words) -> bool {
    words[0] == b"SUBSCRIBE"
}

/// A read hold that its owner did not get, or has released, may still be in the record when the owner acquires the write side. It
/// does not count as a hold.
#[tokio::test]
async fn an_unfinished_read_does_not_keep_its_owner_from_writing() {
    let server = Server::start();
    scripts::load(&server);
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    let link = proxy.open_links().into_iter().find(|link| !link.subscribes()).expect("it is connected");
    let (sides, owner) = (client.read_write_lock(NAME), Owner::unique());
    let (reading, writing) = (sides.read().with_owner(&owner), sides.write().with_owner(&owner));
    let is_attempt =
        |words: &Words| words[0] == b"EVALSHA" && words.iter().any(|word| word == NAME.as_bytes());

    link.hold(Direction::ToClient);
    let tried = reading.try_lock_for(Duration::from_millis(50)).await;
    assert!(matches!(tried, Err(Error::TimedOut { .. })), "{tried:?}");
    let behind = async {
        link.asked(2, is_attempt).await;
        link.pass(Direction::ToClient);
    };
    let (guard, ()) = tokio::join!(writing.lock(), behind);
    let guard = guard.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();

    // The client releases a dropped reader in the background while the owner goes on.
    for _ in 0..50 {
        drop(reading.lock().await.unwrap());
        writing.lock().await.unwrap().unlock().await.unwrap();
    }
    let _reads = reading.lock().await.unwrap();
    assert!(matches!(writing.lock().await, Err(Error::WouldDeadlock { .. })));
}
