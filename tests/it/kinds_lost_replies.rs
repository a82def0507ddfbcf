//! Answers that never come, for each kind of lock: what was asked counts once, however often it had to be asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Owner};

use crate::support::contender::{Contender, Held, Party};
use crate::support::kind::{Kind, each, keys, nothing_is_left};
use crate::support::proxy::{Link, Way, Words};
use crate::support::{Faulty, Messages, Proxy, Server, Stopwatch, eventually, scripts};

const NAME: &str = "n";
/// Short, so that what is found by waiting for an answer is found soon; and long enough for a busy machine.
const RESPONSE: Duration = Duration::from_secs(1);

/// The reply is lost with its connection, or the connection is silent from then on.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Cut,
    Silence,
}

/// A majority makes up for the reply that is lost.
fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| !kind.is_of_a_majority())
}

fn kinds_and_losses() -> impl Iterator<Item = (Kind, Loss)> {
    kinds().flat_map(|kind| [(kind, Loss::Cut), (kind, Loss::Silence)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_an_acquire_leaves_one_hold_of_each_kind() {
    each(kinds_and_losses(), |(kind, loss)| async move {
        let mut bench = Bench::start(kind).await;
        bench.strike(loss);
        let guard = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        // The hold whose reply was lost, and not another that waited until that one's lease was over.
        let first = !guard.owner().contains('~');
        assert!(first || kind.starts_over(), "{kind}, {loss:?}: {}", guard.owner());
        held_still(&guard).await;
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 1);
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
        // What the dead connection may still deliver is of a text that is not used again.
        let guard = bench.lock.lock().await.unwrap();
        assert!(kind.has_fresh_texts() || guard.owner().contains('~'), "{kind}: {}", guard.owner());
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 2);
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_single_try_leaves_its_hold_or_none_of_each_kind() {
    each(kinds_and_losses(), |(kind, loss)| async move {
        let mut bench = Bench::start(kind).await;
        bench.strike(loss);
        match (loss, bench.lock.try_lock().await) {
            // The new connection is there long before the time is over.
            (Loss::Cut, Ok(Some(guard))) => {
                bench.assert_held(&guard, 1);
                guard.unlock().await.unwrap();
            }
            (Loss::Silence, Err(Error::TimedOut { .. })) => {}
            (Loss::Cut, Err(Error::TimedOut { .. })) if kind.starts_over() => {}
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
        let mut bench = Bench::start(kind).await;
        let outer = bench.lock.lock().await.unwrap();
        bench.strike(loss);
        let inner = bench.lock.lock().await.unwrap();
        bench.link.lost_reply().await;
        bench.assert_held(&outer, 2);
        inner.unlock().await.unwrap();
        bench.assert_held(&outer, 1);
        held_still(&outer).await;
        bench.assert_token(&outer, 1);
        outer.unlock().await.unwrap();
        bench.assert_freed(if kind.tells_each_level() { 2 } else { 1 }).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_release_is_one_release_of_each_kind() {
    each(kinds_and_losses(), |(kind, loss)| async move {
        let mut bench = Bench::start(kind).await;
        let guard = bench.lock.lock().await.unwrap();
        bench.strike(loss);
        let outcome = guard.unlock().await;
        match loss {
            Loss::Cut => outcome.unwrap(),
            Loss::Silence => assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}"),
        }
        bench.link.lost_reply().await;
        // Its place is behind the repeats.
        let guard = bench.lock.lock().await.unwrap();
        bench.assert_held(&guard, 1);
        bench.assert_token(&guard, 2);
        held_still(&guard).await;
        guard.unlock().await.unwrap();
        bench.assert_freed(2).await;
    })
    .await;
}

/// Between the release and its repeat somebody else has taken the lock: that is no business of the repeat's.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_release_leaves_the_next_hold_of_each_kind_alone() {
    each(kinds(), |kind| async move {
        let bench = Bench::start(kind).await;
        let far = Party::of(kind, &bench.server).await;
        let guard = bench.lock.lock().await.unwrap();
        bench.strike(Loss::Silence);
        let (outcome, next) = tokio::join!(guard.unlock(), async {
            bench.link.lost_reply().await;
            kind.of(&far, NAME).lock().await.unwrap()
        });
        assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{kind}: {outcome:?}");
        let lock = bench.lock.with_owner(&Owner::unique());
        if kind.is_exclusive() {
            // Asked after the repeats.
            assert!(lock.try_lock().await.unwrap().is_none(), "{kind}");
        } else {
            lock.lock().await.unwrap().unlock().await.unwrap();
        }
        held_still(&next).await;
        bench.assert_held(&next, 1);
        next.unlock().await.unwrap_or_else(|error| panic!("{kind}: {error}"));
        bench.assert_gone().await;
    })
    .await;
}

/// A dead connection may deliver a request when it was repeated long ago.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_comes_late_leaves_the_hold_of_each_kind_alone() {
    each(kinds(), |kind| async move {
        let mut bench = Bench::start(kind).await;
        let guard = bench.link.hold_and_cut(changes_record, async { bench.lock.lock().await.unwrap() }).await;
        let guard = if kind.numbers_requests() {
            // Nor does it take again what was given back.
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
        held_still(&guard).await;
        guard.unlock().await.unwrap();
        bench.assert_freed(1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_comes_late_leaves_the_next_hold_of_each_kind_alone() {
    let cases = kinds().flat_map(|kind| [(kind, false), (kind, true)]);
    each(cases, |(kind, held)| async move {
        let bench = Bench::start(kind).await;
        let guard = bench.lock.lock().await.unwrap();
        bench.link.hold_and_cut(changes_record, async { guard.unlock().await.unwrap() }).await;
        if held {
            let next = bench.lock.lock().await.unwrap();
            bench.link.deliver(changes_record).await;
            bench.assert_held(&next, 1);
            held_still(&next).await;
            next.unlock().await.unwrap();
        } else {
            bench.assert_gone().await;
            bench.link.deliver(changes_record).await;
        }
        // A message more is the least that comes of it.
        bench.assert_gone().await;
    })
    .await;
}

/// Its connection for messages drops, or is silent: which only its heartbeat tells, because it is silent by nature.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_subscription_is_lost_hears_of_the_next_release_of_each_kind() {
    let cases = kinds_and_losses().filter(|(kind, _)| kind.listens() && !kind.polls());
    each(cases, |(kind, loss)| async move {
        let bench = Bench::start(kind).await;
        let far = Party::of(kind, &bench.server).await;
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
        if kind.glances() {
            let looks = |words: &Words| names_record(words) && !changes_record(words);
            // Each pause between two looks is twice the one before: 10 ms, .. 640 ms. So the next one is far away.
            bench.link.answered(bench.link.count(looks) + 7, looks).await;
        }
        let released = Stopwatch::start();
        guard.unlock().await.unwrap();
        let woken = waiting.await.unwrap();
        let took = released.elapsed();
        assert!(took < Duration::from_millis(500), "{kind}, {loss:?}: {took:?}");
        woken.unlock().await.unwrap();
        // The server has the silent connection still, and its subscription.
        eventually(|| keys(&bench.server).into_iter().eq(kind.remains(NAME))).await;
    })
    .await;
}

/// A writer's release that goes on as a reader, and its repeat.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_downgrade_leaves_the_read_hold() {
    each([Loss::Cut, Loss::Silence], |loss| async move {
        let bench = Bench::start(Kind::Write).await;
        let write = bench.lock.lock().await.unwrap();
        let read = bench.client.read_write_lock(NAME).read().lock().await.unwrap();
        bench.strike(loss);
        let outcome = write.unlock().await;
        match loss {
            Loss::Cut => outcome.unwrap(),
            Loss::Silence => assert!(matches!(outcome, Ok(()) | Err(Error::Ambiguous { .. })), "{outcome:?}"),
        }
        bench.link.lost_reply().await;
        let record = BTreeMap::from([(read.owner().to_owned(), "1".to_owned()), mode("read")]);
        eventually(|| bench.record() == record).await;
        let read = Held::Lock(read);
        held_still(&read).await;
        read.unlock().await.unwrap();
        bench.assert_gone().await;
    })
    .await;
}

/// Those whose record names its holder in a field of its own.
fn hashes() -> impl Iterator<Item = (Kind, Kind)> {
    Kind::rival_locks().filter(|(holds, _)| !matches!(holds, Kind::Value | Kind::Group))
}

/// A text of before an unanswered request is not used for a new hold, but its hold may last: whoever of the same client
/// waits behind it must not take it for one that nobody holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_from_before_an_unanswered_request_is_let_be_by_its_clients_waiters() {
    each(hashes(), |(holds, waits)| async move {
        let bench = Bench::start(holds).await;
        let guard = bench.lock.lock().await.unwrap();
        let record = bench.record();
        bench.link.cut_at_reply_to(|words| words.iter().any(|word| word == b"other"));
        drop(bench.client.lock("other").lock().await.unwrap());
        bench.link.lost_reply().await;
        assert!(!guard.owner().contains('~'), "{holds}");
        let lock = waits.lock(&bench.client, NAME).with_owner(&Owner::unique());
        // Long enough for some looks at who holds it.
        let waited = lock.try_lock_for(Duration::from_millis(300)).await.unwrap();
        assert!(waited.is_none(), "{waits} beside {holds}: {waited:?}");
        assert_eq!(bench.record(), record, "{waits} behind {holds}");
        held_still(&guard).await;
        guard.unlock().await.unwrap();
    })
    .await;
}

/// An acquire that comes late finds the lock free, and nobody holds it by the text that it brings.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_comes_late_to_a_free_lock_of_each_kind_is_undone_for_who_waits() {
    for (ghost, waits) in hashes() {
        let bench = Faulty::start().await;
        let lock = ghost.lock(&bench.client, NAME);
        let guard = bench.link.hold_and_cut(changes_record, async { lock.lock().await.unwrap() }).await;
        let text = guard.owner().to_owned();
        guard.unlock().await.unwrap();
        bench.link.deliver(changes_record).await;
        assert!(bench.wire.run::<bool>(&["HEXISTS", NAME, &text]), "{ghost}: no ghost came");
        let lock = waits.lock(&bench.client, NAME);
        let guard = lock.try_lock_for(Duration::from_secs(5)).await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("{waits}: the ghost of a {ghost} is let be"));
        assert_ne!(guard.owner(), text);
        guard.unlock().await.unwrap();
        nothing_is_left(ghost, NAME, &bench.server, &[&bench.client]).await;
    }
}

/// One that comes late to a queue waits there for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_comes_late_to_a_queue_is_undone_for_who_waits() {
    for kind in [Kind::Fair, Kind::NonReentrantFair] {
        let bench = Faulty::start().await;
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
        assert_eq!(bench.wire.run::<u64>(&["LLEN", queue]), 1, "{kind}: no ghost came");
        others.unlock().await.unwrap();
        let guard = lock.try_lock_for(Duration::from_secs(5)).await.unwrap();
        guard.unwrap_or_else(|| panic!("{kind}: the ghost is let be")).unlock().await.unwrap();
        nothing_is_left(kind, NAME, &bench.server, &[&bench.client, &far]).await;
    }
}

/// A hold may be in doubt for a moment after its connection dropped, until it is renewed.
async fn held_still(guard: &Held) {
    eventually(|| {
        let state = guard.state();
        assert!(state.is_live(), "{guard:?}");
        state == HoldState::Held
    })
    .await;
}

/// A client behind a proxy, and what the server says without it.
struct Bench {
    kind: Kind,
    server: Server,
    proxy: Proxy,
    client: Party,
    lock: Contender,
    /// Commands go here at first.
    link: Link,
    messages: Messages,
}

impl Bench {
    async fn start(kind: Kind) -> Self {
        let server = kind.server(NAME);
        scripts::load(&server);
        let messages = Messages::of(&server);
        let proxy = Proxy::start(server.port()).await;
        let client = Client::builder().response_timeout(RESPONSE).connect(proxy.url()).await.unwrap();
        let link = proxy.link(0).await;
        let client = Party::from(client);
        let lock = kind.of(&client, NAME);
        Self { kind, server, proxy, client, lock, link, messages }
    }

    /// Loses the reply to the next request that may change the lock.
    fn strike(&self, loss: Loss) {
        match loss {
            Loss::Cut => self.link.cut_at_reply_to(changes_record),
            Loss::Silence => self.link.lose_reply_to(changes_record),
        }
    }

    fn record(&self) -> BTreeMap<String, String> {
        redis::cmd("HGETALL").arg(NAME).query(&mut self.server.cli()).unwrap()
    }

    /// The record is that of this hold alone, and so are the other keys.
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

    /// So many holds were numbered.
    fn assert_token(&self, guard: &Held, number: u64) {
        if self.kind == Kind::Fenced {
            let key = self.kind.remains(NAME);
            let token: u64 = redis::cmd("GET").arg(key).query(&mut self.server.cli()).unwrap();
            assert_eq!((guard.token(), token), (Some(number), number), "{}", self.kind);
        }
    }

    async fn assert_gone(&self) {
        nothing_is_left(self.kind, NAME, &self.server, &[&self.client]).await;
    }

    /// It is free, after so many releases since this was asked last.
    async fn assert_freed(&mut self, releases: usize) {
        self.assert_gone().await;
        let messages: Vec<_> = self.messages.heard().into_iter().map(|(_, message)| message).collect();
        // Each round over told of what it gave back.
        let told =
            if self.kind.starts_over() { messages.len() } else { releases * self.kind.messages_to_nobody() };
        let expected = vec![self.kind.message(); told];
        assert_eq!(messages, expected, "{}", self.kind);
    }
}

fn mode(of: &str) -> (String, String) {
    ("mode".to_owned(), of.to_owned())
}

/// Whether a request names the lock's record, other than to look at it.
fn changes_record(words: &Words) -> bool {
    const LOOKS: [&[u8]; 5] = [b"PTTL", b"EXISTS", b"GET", b"HGET", b"HSCAN"];
    names_record(words) && !LOOKS.contains(&words[0].as_slice())
}

fn names_record(words: &Words) -> bool {
    words.iter().any(|word| word == NAME.as_bytes())
}

fn subscribes(words: &Words) -> bool {
    words[0] == b"SUBSCRIBE"
}

/// What an owner asked for in vain, or has given back, is not what it holds: it may still be in the record when the same
/// owner asks for the other side.
#[tokio::test]
async fn a_reader_on_its_way_does_not_keep_its_owner_from_writing() {
    let server = Server::start();
    scripts::load(&server);
    let proxy = Proxy::start(server.port()).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    let link = proxy.open_links().into_iter().find(|link| !link.subscribes()).expect("it is connected");
    let (sides, owner) = (client.read_write_lock(NAME), Owner::unique());
    let (reading, writing) = (sides.read().with_owner(&owner), sides.write().with_owner(&owner));
    let asks = |words: &Words| words[0] == b"EVALSHA" && words.iter().any(|word| word == NAME.as_bytes());

    link.hold(Way::ToClient);
    let tried = reading.try_lock_for(Duration::from_millis(50)).await;
    assert!(matches!(tried, Err(Error::TimedOut { .. })), "{tried:?}");
    let behind = async {
        link.asked(2, asks).await;
        link.pass(Way::ToClient);
    };
    let (guard, ()) = tokio::join!(writing.lock(), behind);
    let guard = guard.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();

    // Dropped, a reader is given back while its owner goes on.
    for _ in 0..50 {
        drop(reading.lock().await.unwrap());
        writing.lock().await.unwrap().unlock().await.unwrap();
    }
    let _reads = reading.lock().await.unwrap();
    assert!(matches!(writing.lock().await, Err(Error::WouldDeadlock { .. })));
}
