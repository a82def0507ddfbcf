//! Count-down latches among Rust clients.

use futures_util::poll;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use redisson_lock::{Client, CountDownLatch, Error};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::drop_point::{self, CutAt, Tally};
use crate::support::raw::{NAME, changes};
use crate::support::{FaultyClient, RawRedis, Server, Stopwatch, eventually, subscribers};

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";
/// Upper bound for a wake-up by message. A wake-up by timer would take longer.
const PROMPT: Duration = Duration::from_millis(500);

struct Bench {
    server: Server,
    raw: RawRedis,
    latch: CountDownLatch,
}

impl Bench {
    async fn of(count: u32) -> Self {
        let server = Server::start();
        let latch = latch_of_new_client(&server).await;
        assert!(latch.try_set_count(count).await.unwrap());
        Self { raw: RawRedis::of(&server), latch, server }
    }

    /// Starts `each` waiting tasks for each of `clients` new clients, and returns once all clients are subscribed.
    async fn waiters(&self, clients: usize, each: usize) -> Waiters {
        let mut waiters = Vec::new();
        for _ in 0..clients {
            let latch = latch_of_new_client(&self.server).await;
            for _ in 0..each {
                let latch = latch.clone();
                waiters.push(tokio::spawn(async move { latch.wait().await.unwrap() }));
            }
        }
        eventually(|| subscribers(&self.server, CHANNEL) == clients as u64).await;
        self.raw.messages();
        Waiters(waiters)
    }
}

struct Waiters(Vec<JoinHandle<()>>);

impl Waiters {
    fn assert_none_passed(&self) {
        assert!(self.0.iter().all(|waiter| !waiter.is_finished()), "a waiter passed a closed latch");
    }

    /// `opened` was started when the latch was opened.
    async fn all_pass(self, opened: Stopwatch) {
        for waiter in self.0 {
            tokio::time::timeout(Duration::from_secs(5), waiter).await.expect("the waiter passes").unwrap();
        }
        assert!(opened.elapsed() < PROMPT, "{:?}", opened.elapsed());
    }
}

async fn latch_of_new_client(server: &Server) -> CountDownLatch {
    Client::connect(server.url()).await.unwrap().count_down_latch(NAME)
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_pass_at_zero_and_not_before() {
    let bench = Bench::of(3).await;
    let waiters = bench.waiters(3, 4).await;
    for left in [2, 1] {
        bench.latch.count_down().await.unwrap();
        assert_eq!((bench.raw.value(), bench.latch.count().await.unwrap()), (Some(left), left as u64));
    }
    // This wait gives a wrong wake-up the time to show.
    let waited = bench.latch.wait_for(Duration::from_millis(50)).await;
    assert!(matches!(waited, Ok(false) | Err(Error::TimedOut { .. })), "{waited:?}");
    waiters.assert_none_passed();
    assert_eq!(bench.raw.messages(), vec![]);
    let opened = Stopwatch::start();
    bench.latch.count_down().await.unwrap();
    waiters.all_pass(opened).await;
    assert_eq!(bench.raw.messages_on(CHANNEL), ["0"]);
    // An open latch stays open, and has no key.
    bench.latch.count_down().await.unwrap();
    bench.latch.wait().await.unwrap();
    assert!(bench.latch.wait_for(Duration::ZERO).await.unwrap());
    assert_eq!((bench.latch.count().await.unwrap(), bench.raw.messages()), (0, vec![]));
    bench.raw.assert_nothing_else_left(&[]).await;
}

/// Every count takes effect exactly once, however many clients and tasks count at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_counts_each_take_effect_once() {
    const EACH: u32 = 25;
    let bench = Bench::of(6 * EACH + 1).await;
    let waiters = bench.waiters(2, 2).await;
    let (counted, mut tasks) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    for latch in [bench.latch.clone(), latch_of_new_client(&bench.server).await] {
        for _ in 0..3 {
            let (latch, counted) = (latch.clone(), counted.clone());
            tasks.spawn(async move {
                for _ in 0..EACH {
                    latch.count_down().await.unwrap();
                    counted.fetch_add(1, SeqCst);
                }
            });
        }
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!((counted.load(SeqCst), bench.raw.value()), (6 * EACH, Some(1)));
    waiters.assert_none_passed();
    let opened = Stopwatch::start();
    bench.latch.count_down().await.unwrap();
    waiters.all_pass(opened).await;
    bench.raw.assert_nothing_else_left(&[]).await;
}

#[tokio::test]
async fn an_open_latch_can_be_set_again() {
    let bench = Bench::of(1).await;
    assert!(!bench.latch.try_set_count(5).await.unwrap());
    assert_eq!(bench.raw.value(), Some(1));
    for count in [1, 2, 1] {
        if bench.latch.count().await.unwrap() == 0 {
            bench.raw.messages();
            assert!(bench.latch.try_set_count(count).await.unwrap());
            assert_eq!(
                (bench.raw.messages_on(CHANNEL), bench.raw.value()),
                (vec!["1".to_owned()], Some(count.into()))
            );
        }
        let waiters = bench.waiters(1, 2).await;
        for _ in 1..count {
            bench.latch.count_down().await.unwrap();
        }
        waiters.assert_none_passed();
        let opened = Stopwatch::start();
        bench.latch.count_down().await.unwrap();
        waiters.all_pass(opened).await;
        eventually(|| subscribers(&bench.server, CHANNEL) == 0).await;
    }
}

#[tokio::test]
async fn deleting_a_latch_opens_it() {
    let bench = Bench::of(7).await;
    let waiters = bench.waiters(2, 2).await;
    let opened = Stopwatch::start();
    assert!(bench.latch.delete().await.unwrap());
    waiters.all_pass(opened).await;
    assert!(!bench.latch.delete().await.unwrap());
    assert_eq!(bench.raw.messages_on(CHANNEL), ["0"]);
    bench.raw.assert_nothing_else_left(&[]).await;
}

/// A latch with a count of 0 or below is open, even if another program wrote the count.
#[tokio::test]
async fn a_count_of_zero_or_below_is_open() {
    let bench = Bench::of(0).await;
    assert_eq!(bench.raw.value(), Some(0));
    bench.latch.wait().await.unwrap();
    assert!(!bench.latch.try_set_count(1).await.unwrap());
    for foreign in ["0", "-3"] {
        bench.raw.run::<()>(&["SET", NAME, foreign]);
        assert!(bench.latch.wait_for(Duration::ZERO).await.unwrap());
        assert_eq!(bench.latch.count().await.unwrap(), 0);
        bench.latch.count_down().await.unwrap();
        assert_eq!(bench.raw.value(), None, "{foreign}");
    }
    assert_eq!(bench.raw.messages(), vec![]);
    bench.raw.assert_nothing_else_left(&[]).await;
}

#[tokio::test]
async fn waits_end_on_time() {
    let bench = Bench::of(1).await;
    assert!(!bench.latch.wait_for(Duration::ZERO).await.unwrap());
    let (wait, started) = (Duration::from_millis(200), Stopwatch::start());
    assert!(!bench.latch.wait_for(wait).await.unwrap());
    assert!(started.is_within(wait..wait + PROMPT), "{started:?}");
    bench.raw.assert_nothing_else_left(&[NAME]).await;
    let latch = bench.latch.clone();
    let waiting = tokio::spawn(async move { latch.wait_for(Duration::from_secs(60)).await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.latch.count_down().await.unwrap();
    assert!(waiting.await.unwrap());
}

/// A wait with a timeout of zero asks the server, even while other tasks of the client wait for the same latch.
#[tokio::test]
async fn a_wait_of_zero_asks_the_server_while_others_wait() {
    let bench = Bench::of(1).await;
    let waiters = bench.waiters(1, 1).await;
    let latch = latch_of_new_client(&bench.server).await;
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    eventually(|| subscribers(&bench.server, CHANNEL) == 2).await;
    assert!(!latch.wait_for(Duration::ZERO).await.unwrap());
    // Another program deletes the key and publishes nothing.
    bench.raw.run::<()>(&["DEL", NAME]);
    let opened = Stopwatch::start();
    assert!(latch.wait_for(Duration::ZERO).await.unwrap());
    waiting.await.unwrap().unwrap();
    assert!(opened.elapsed() < PROMPT, "{:?}", opened.elapsed());
    waiters.0.into_iter().for_each(|waiter| waiter.abort());
}

/// The channel has braces around any name, unlike the channels of the other kinds.
#[tokio::test]
async fn channel_names_and_messages_match_redisson() {
    let bench = Bench::of(1).await;
    let client = Client::connect(bench.server.url()).await.unwrap();
    bench.raw.messages();
    for name in ["orders", "a{b}c", "{x}", "a}", "two words"] {
        let latch = client.count_down_latch(name);
        assert!(latch.try_set_count(1).await.unwrap());
        latch.count_down().await.unwrap();
        assert!(latch.try_set_count(2).await.unwrap());
        assert!(latch.delete().await.unwrap());
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        assert_eq!(bench.raw.messages_on(&channel), ["1", "0", "1", "0"], "{name}");
    }
}

#[tokio::test]
async fn a_lost_reply_counts_once_and_a_late_request_never() {
    for cut in [true, false] {
        let bench = FaultyClient::losing(cut).await;
        let latch = bench.client.count_down_latch(NAME);
        latch.try_set_count(3).await.unwrap();
        bench.lose_reply(cut);
        // This count runs after the repeats of the first one.
        for outcome in [latch.count_down().await, latch.count_down().await] {
            let unconfirmed = matches!(outcome, Err(Error::Ambiguous { .. } | Error::Unavailable { .. }));
            assert!(outcome.is_ok() || !cut && unconfirmed, "cut {cut}: {outcome:?}");
        }
        bench.link.lost_reply().await;
        eventually(|| bench.raw.value() == Some(1)).await;

        // The same for the count that opens the latch.
        let bench = FaultyClient::losing(cut).await;
        let latch = bench.client.count_down_latch(NAME);
        latch.try_set_count(1).await.unwrap();
        bench.raw.messages();
        bench.lose_reply(cut);
        let _ = latch.count_down().await;
        bench.link.lost_reply().await;
        latch.wait().await.unwrap();
        latch.try_set_count(2).await.unwrap();
        latch.count_down().await.unwrap();
        assert_eq!(bench.raw.value(), Some(1), "cut {cut}");
        assert_eq!(bench.raw.messages_on(CHANNEL), ["0", "1"], "cut {cut}");
    }
    // A late count for an earlier latch must not count on the latch that was set after it.
    for count in [2, 1] {
        let bench = FaultyClient::patient().await;
        let latch = bench.client.count_down_latch(NAME);
        latch.try_set_count(count).await.unwrap();
        bench.link.hold_and_cut(changes, async { latch.count_down().await.unwrap() }).await;
        if count == 1 {
            latch.try_set_count(1).await.unwrap();
        }
        assert_eq!(bench.raw.value(), Some(1));
        bench.link.deliver(changes).await;
        assert_eq!(bench.raw.value(), Some(1), "{count}");
    }
}

/// A latch with a count of 1, behind a proxy.
async fn faulty() -> (FaultyClient, CountDownLatch) {
    let bench = FaultyClient::start().await;
    let latch = bench.client.count_down_latch(NAME);
    latch.try_set_count(1).await.unwrap();
    bench.raw.messages();
    (bench, latch)
}

#[tokio::test]
async fn a_count_down_is_repeated_until_the_disk_works() {
    let (bench, latch) = faulty().await;
    let waiting = tokio::spawn({
        let other = Client::connect(bench.server.url()).await.unwrap().count_down_latch(NAME);
        async move { other.wait().await.unwrap() }
    });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.raw.messages();
    bench.raw.set_disk_failing(true);
    let error = latch.count_down().await.unwrap_err();
    assert!(matches!(error, Error::Ambiguous { .. }), "{error:?}");
    let refused = bench.raw.refusals("MISCONF");
    eventually(|| bench.raw.refusals("MISCONF") >= refused + 2).await;
    assert_eq!((bench.raw.value(), bench.raw.messages()), (Some(1), vec![]));
    assert!(!waiting.is_finished());
    bench.raw.set_disk_failing(false);
    waiting.await.unwrap();
    assert_eq!((bench.raw.value(), bench.raw.messages_on(CHANNEL)), (None, vec!["0".to_owned()]));
}

/// The message would open the latch in Java.
#[tokio::test]
async fn a_refused_deletion_notifies_nobody() {
    let (bench, latch) = faulty().await;
    bench.raw.set_disk_failing(true);
    let error = latch.delete().await.unwrap_err();
    assert_eq!(error.code(), Some("MISCONF"), "{error:?}");
    assert_eq!((bench.raw.value(), bench.raw.messages()), (Some(1), vec![]));
    bench.raw.set_disk_failing(false);
    assert!(latch.delete().await.unwrap());
    assert_eq!((bench.raw.value(), bench.raw.messages_on(CHANNEL)), (None, vec!["0".to_owned()]));
}

#[tokio::test]
async fn a_server_that_restarts_empty_opens_the_latch() {
    let bench = Bench::of(1).await;
    let waiters = bench.waiters(1, 2).await;
    let Bench { mut server, .. } = bench;
    server.kill();
    server.restart();
    waiters.all_pass(Stopwatch::start()).await;
}

/// A dropped wait leaves no subscription, and takes nothing from the other waiters.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_dropped_anywhere_leaves_nothing() {
    let bench = FaultyClient::patient().await;
    let FaultyClient { raw, proxy, client, server, .. } = &bench;
    let (latch, other) = (client.count_down_latch(NAME), latch_of_new_client(server).await);
    let tally = Tally::default();
    for position in ["closed", "opened"] {
        drop_point::for_each_cut(&tally, ("wait", position), &CutAt::SERIES, async |drop_point| {
            assert!(other.try_set_count(1).await.unwrap());
            drop_point::shut_gate(proxy, drop_point.cut, changes);
            let call = async {
                match position {
                    "closed" => _ = tokio::time::timeout(Duration::from_millis(50), latch.wait()).await,
                    _ => latch.wait().await.unwrap(),
                }
            };
            let opening = || {
                if position == "opened" {
                    let other = other.clone();
                    tokio::spawn(async move { other.count_down().await.unwrap() });
                }
            };
            let cut = drop_point::drop_at(proxy, drop_point.cut, call, opening).await.is_none();
            proxy.open_gate();
            other.count_down().await.unwrap();
            eventually(|| raw.value().is_none()).await;
            latch.wait().await.unwrap();
            raw.assert_nothing_else_left(&[]).await;
            cut
        })
        .await;
    }
    tally.at_least([("wait", "closed", 4), ("wait", "opened", 4)]);
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let bench = Bench::of(1).await;
    let Bench { raw, latch, server } = &bench;
    let nameless = Client::connect(server.url()).await.unwrap().count_down_latch("");
    raw.messages();
    for misuse in [
        nameless.wait().await.err(),
        nameless.count_down().await.err(),
        nameless.try_set_count(1).await.err(),
        nameless.delete().await.err(),
        latch.wait_for(Duration::MAX).await.err(),
    ] {
        assert!(matches!(misuse, Some(Error::Misuse { .. })), "{misuse:?}");
    }
    for make in [["RPUSH", NAME, "1"], ["SET", NAME, "many"], ["SET", NAME, "1.5"]] {
        raw.run::<()>(&["DEL", NAME]);
        raw.run::<()>(&make);
        let before: Vec<u8> = raw.run(&["DUMP", NAME]);
        for (call, error) in [
            ("wait", latch.wait().await.err()),
            ("count_down", latch.count_down().await.err()),
            ("count", latch.count().await.err()),
        ] {
            let expected = if call == "count" && make[0] == "SET" { "PROTOCOL" } else { "WRONGTYPE" };
            assert_eq!(error.as_ref().and_then(Error::code), Some(expected), "{call}, {make:?}: {error:?}");
        }
        assert!(!latch.try_set_count(1).await.unwrap());
        if make[0] == "RPUSH" {
            assert_eq!(latch.delete().await.unwrap_err().code(), Some("WRONGTYPE"));
        }
        assert_eq!(raw.run::<Vec<u8>>(&["DUMP", NAME]), before, "{make:?}");
        assert_eq!((raw.messages(), raw.keys().len()), (vec![], 1), "{make:?}");
    }
}

/// A reply counts for the waiters that were queued when the question was sent. The latch may have been closed since.
#[tokio::test]
async fn a_reply_from_before_a_close_does_not_count_for_a_later_wait() {
    let server = Server::start();
    let raw = RawRedis::of(&server);
    let latch = latch_of_new_client(&server).await;
    // Load the script.
    latch.wait().await.unwrap();
    let asked = server.calls("evalsha");
    let mut early = std::pin::pin!(latch.wait());
    // The server answers while this thread waits for its counter. The client reads the reply when this task yields again.
    while server.calls("evalsha") == asked {
        assert!(poll!(early.as_mut()).is_pending(), "the question is not answered yet");
        tokio::task::yield_now().await;
    }
    raw.run::<()>(&["SET", NAME, "1"]);
    let mut late = std::pin::pin!(latch.wait_for(Duration::from_millis(100)));
    assert!(poll!(late.as_mut()).is_pending(), "it joins the queue before the reply is read");
    let late = late.await;
    // A slow server may not answer within so short a wait.
    let closed = matches!(late, Ok(false) | Err(Error::TimedOut { .. }));
    assert!(closed, "a wait passed the latch that was closed before it: {late:?}");
    // The latch was open when this wait asked.
    early.await.unwrap();
}
