//! Count-down latches among Rust clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use redisson_lock::{Client, CountDownLatch, Error};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::crossing::{self, Cut, Tally};
use crate::support::wire::{NAME, changes};
use crate::support::{Faulty, Server, Stopwatch, Wire, eventually, subscribers};

const CHANNEL: &str = "redisson_countdownlatch__channel__{n}";
/// At once: by a message, and not by a look at the clock.
const PROMPT: Duration = Duration::from_millis(500);

struct Bench {
    server: Server,
    wire: Wire,
    latch: CountDownLatch,
}

impl Bench {
    async fn of(count: u32) -> Self {
        let server = Server::start();
        let latch = another(&server).await;
        assert!(latch.try_set_count(count).await.unwrap());
        Self { wire: Wire::of(&server), latch, server }
    }

    /// Tasks of so many clients, each of which waits, and is known to.
    async fn waiters(&self, clients: usize, each: usize) -> Waiters {
        let mut waiters = Vec::new();
        for _ in 0..clients {
            let latch = another(&self.server).await;
            for _ in 0..each {
                let latch = latch.clone();
                waiters.push(tokio::spawn(async move { latch.wait().await.unwrap() }));
            }
        }
        eventually(|| subscribers(&self.server, CHANNEL) == clients as u64).await;
        self.wire.messages();
        Waiters(waiters)
    }
}

struct Waiters(Vec<JoinHandle<()>>);

impl Waiters {
    fn nobody_passed(&self) {
        assert!(self.0.iter().all(|waiter| !waiter.is_finished()), "somebody passed a closed latch");
    }

    /// Which was opened at that time.
    async fn all_pass(self, opened: Stopwatch) {
        for waiter in self.0 {
            tokio::time::timeout(Duration::from_secs(5), waiter).await.expect("it waits on").unwrap();
        }
        assert!(opened.elapsed() < PROMPT, "{:?}", opened.elapsed());
    }
}

async fn another(server: &Server) -> CountDownLatch {
    Client::connect(server.url()).await.unwrap().count_down_latch(NAME)
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_go_on_at_zero_and_not_before() {
    let bench = Bench::of(3).await;
    let waiters = bench.waiters(3, 4).await;
    for left in [2, 1] {
        bench.latch.count_down().await.unwrap();
        assert_eq!((bench.wire.value(), bench.latch.count().await.unwrap()), (Some(left), left as u64));
    }
    // Whoever would pass now, by a look or a message, has had the time for it.
    assert!(!bench.latch.wait_for(Duration::from_millis(50)).await.unwrap());
    waiters.nobody_passed();
    assert_eq!(bench.wire.messages(), vec![]);
    let opened = Stopwatch::start();
    bench.latch.count_down().await.unwrap();
    waiters.all_pass(opened).await;
    assert_eq!(bench.wire.told(CHANNEL), ["0"]);
    // An open latch stays open, and is not there.
    bench.latch.count_down().await.unwrap();
    bench.latch.wait().await.unwrap();
    assert!(bench.latch.wait_for(Duration::ZERO).await.unwrap());
    assert_eq!((bench.latch.count().await.unwrap(), bench.wire.messages()), (0, vec![]));
    bench.wire.nothing_else_is_left(&[]).await;
}

/// Each count once, whoever counts and how many at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_counts_down_exactly() {
    const EACH: u32 = 25;
    let bench = Bench::of(6 * EACH + 1).await;
    let waiters = bench.waiters(2, 2).await;
    let (counted, mut tasks) = (Arc::new(AtomicU32::new(0)), JoinSet::new());
    for latch in [bench.latch.clone(), another(&bench.server).await] {
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
    assert_eq!((counted.load(SeqCst), bench.wire.value()), (6 * EACH, Some(1)));
    waiters.nobody_passed();
    let opened = Stopwatch::start();
    bench.latch.count_down().await.unwrap();
    waiters.all_pass(opened).await;
    bench.wire.nothing_else_is_left(&[]).await;
}

#[tokio::test]
async fn a_latch_that_was_opened_can_be_set_anew() {
    let bench = Bench::of(1).await;
    assert!(!bench.latch.try_set_count(5).await.unwrap());
    assert_eq!(bench.wire.value(), Some(1));
    for count in [1, 2, 1] {
        if bench.latch.count().await.unwrap() == 0 {
            bench.wire.messages();
            assert!(bench.latch.try_set_count(count).await.unwrap());
            assert_eq!(
                (bench.wire.told(CHANNEL), bench.wire.value()),
                (vec!["1".to_owned()], Some(count.into()))
            );
        }
        let waiters = bench.waiters(1, 2).await;
        for _ in 1..count {
            bench.latch.count_down().await.unwrap();
        }
        waiters.nobody_passed();
        let opened = Stopwatch::start();
        bench.latch.count_down().await.unwrap();
        waiters.all_pass(opened).await;
        eventually(|| subscribers(&bench.server, CHANNEL) == 0).await;
    }
}

#[tokio::test]
async fn deleting_opens_it() {
    let bench = Bench::of(7).await;
    let waiters = bench.waiters(2, 2).await;
    let opened = Stopwatch::start();
    assert!(bench.latch.delete().await.unwrap());
    waiters.all_pass(opened).await;
    assert!(!bench.latch.delete().await.unwrap());
    assert_eq!(bench.wire.told(CHANNEL), ["0"]);
    bench.wire.nothing_else_is_left(&[]).await;
}

/// 0, and what another program may have written.
#[tokio::test]
async fn a_count_of_nothing_is_open() {
    let bench = Bench::of(0).await;
    assert_eq!(bench.wire.value(), Some(0));
    bench.latch.wait().await.unwrap();
    assert!(!bench.latch.try_set_count(1).await.unwrap());
    for foreign in ["0", "-3"] {
        bench.wire.run::<()>(&["SET", NAME, foreign]);
        assert!(bench.latch.wait_for(Duration::ZERO).await.unwrap());
        assert_eq!(bench.latch.count().await.unwrap(), 0);
        bench.latch.count_down().await.unwrap();
        assert_eq!(bench.wire.value(), None, "{foreign}");
    }
    assert_eq!(bench.wire.messages(), vec![]);
    bench.wire.nothing_else_is_left(&[]).await;
}

#[tokio::test]
async fn waits_end_on_time() {
    let bench = Bench::of(1).await;
    assert!(!bench.latch.wait_for(Duration::ZERO).await.unwrap());
    let (wait, started) = (Duration::from_millis(200), Stopwatch::start());
    assert!(!bench.latch.wait_for(wait).await.unwrap());
    assert!(started.is_within(wait..wait + PROMPT), "{started:?}");
    bench.wire.nothing_else_is_left(&[NAME]).await;
    let latch = bench.latch.clone();
    let waiting = tokio::spawn(async move { latch.wait_for(Duration::from_secs(60)).await.unwrap() });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.latch.count_down().await.unwrap();
    assert!(waiting.await.unwrap());
}

/// What another client was told to have opened is open for one look, whoever else of this client waits still.
#[tokio::test]
async fn one_look_asks_the_server_also_while_others_wait() {
    let bench = Bench::of(1).await;
    let waiters = bench.waiters(1, 1).await;
    let latch = another(&bench.server).await;
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    eventually(|| subscribers(&bench.server, CHANNEL) == 2).await;
    assert!(!latch.wait_for(Duration::ZERO).await.unwrap());
    // By another program that tells nobody.
    bench.wire.run::<()>(&["DEL", NAME]);
    let opened = Stopwatch::start();
    assert!(latch.wait_for(Duration::ZERO).await.unwrap());
    waiting.await.unwrap().unwrap();
    assert!(opened.elapsed() < PROMPT, "{:?}", opened.elapsed());
    waiters.0.into_iter().for_each(|waiter| waiter.abort());
}

/// Braces round any name, unlike all other channels.
#[tokio::test]
async fn names_and_messages_are_redissons() {
    let bench = Bench::of(1).await;
    let client = Client::connect(bench.server.url()).await.unwrap();
    bench.wire.messages();
    for name in ["orders", "a{b}c", "{x}", "a}", "two words"] {
        let latch = client.count_down_latch(name);
        assert!(latch.try_set_count(1).await.unwrap());
        latch.count_down().await.unwrap();
        assert!(latch.try_set_count(2).await.unwrap());
        assert!(latch.delete().await.unwrap());
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        assert_eq!(bench.wire.told(&channel), ["1", "0", "1", "0"], "{name}");
    }
}

#[tokio::test]
async fn a_lost_reply_counts_once_and_a_late_request_not_at_all() {
    for cut in [true, false] {
        let bench = Faulty::start().await;
        let latch = bench.client.count_down_latch(NAME);
        latch.try_set_count(3).await.unwrap();
        bench.lose_reply(cut);
        let outcome = latch.count_down().await;
        let fine = outcome.is_ok() || !cut && matches!(outcome, Err(Error::Ambiguous { .. }));
        assert!(fine, "cut {cut}: {outcome:?}");
        bench.link.lost_reply().await;
        // Behind the repeats.
        latch.count_down().await.unwrap();
        assert_eq!(bench.wire.value(), Some(1), "cut {cut}");

        // The one that opens it.
        let bench = Faulty::start().await;
        let latch = bench.client.count_down_latch(NAME);
        latch.try_set_count(1).await.unwrap();
        bench.wire.messages();
        bench.lose_reply(cut);
        let _ = latch.count_down().await;
        bench.link.lost_reply().await;
        latch.wait().await.unwrap();
        latch.try_set_count(2).await.unwrap();
        latch.count_down().await.unwrap();
        assert_eq!(bench.wire.value(), Some(1), "cut {cut}");
        assert_eq!(bench.wire.told(CHANNEL), ["0", "1"], "cut {cut}");
    }
    // Not that of an older latch either, which would open the next one.
    for count in [2, 1] {
        let bench = Faulty::start().await;
        let latch = bench.client.count_down_latch(NAME);
        latch.try_set_count(count).await.unwrap();
        bench.link.hold_and_cut(changes, async { latch.count_down().await.unwrap() }).await;
        if count == 1 {
            latch.try_set_count(1).await.unwrap();
        }
        assert_eq!(bench.wire.value(), Some(1));
        bench.link.deliver(changes).await;
        assert_eq!(bench.wire.value(), Some(1), "{count}");
    }
}

#[tokio::test]
async fn a_count_down_outlasts_a_server_whose_disk_fails() {
    let bench = Faulty::start().await;
    let latch = bench.client.count_down_latch(NAME);
    latch.try_set_count(1).await.unwrap();
    bench.wire.messages();
    let waiting = tokio::spawn({
        let other = Client::connect(bench.server.url()).await.unwrap().count_down_latch(NAME);
        async move { other.wait().await.unwrap() }
    });
    eventually(|| subscribers(&bench.server, CHANNEL) == 1).await;
    bench.wire.messages();
    bench.wire.disk_fails(true);
    let error = latch.count_down().await.unwrap_err();
    assert!(matches!(error, Error::Ambiguous { .. }), "{error:?}");
    let refused = bench.wire.refusals("MISCONF");
    eventually(|| bench.wire.refusals("MISCONF") >= refused + 2).await;
    assert_eq!((bench.wire.value(), bench.wire.messages()), (Some(1), vec![]));
    assert!(!waiting.is_finished());
    bench.wire.disk_fails(false);
    waiting.await.unwrap();
    assert_eq!((bench.wire.value(), bench.wire.told(CHANNEL)), (None, vec!["0".to_owned()]));
}

#[tokio::test]
async fn a_server_that_comes_back_empty_opens_it() {
    let bench = Bench::of(1).await;
    let waiters = bench.waiters(1, 2).await;
    let Bench { mut server, .. } = bench;
    server.kill();
    server.restart();
    waiters.all_pass(Stopwatch::start()).await;
}

/// Who leaves, leaves no subscription, and takes nothing from those who stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_may_be_dropped_anywhere() {
    let bench = Faulty::start().await;
    let Faulty { wire, proxy, client, server, .. } = &bench;
    let (latch, other) = (client.count_down_latch(NAME), another(server).await);
    let tally = Tally::default();
    for position in ["closed", "opened"] {
        crossing::series(&tally, ("wait", position), &Cut::SERIES, async |crossing| {
            assert!(other.try_set_count(1).await.unwrap());
            crossing::shut(proxy, crossing.cut, changes);
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
            let cut = crossing::cross(proxy, crossing.cut, call, opening).await.is_none();
            proxy.open_gate();
            other.count_down().await.unwrap();
            eventually(|| wire.value().is_none()).await;
            latch.wait().await.unwrap();
            wire.nothing_else_is_left(&[]).await;
            cut
        })
        .await;
    }
    tally.at_least([("wait", "closed", 4), ("wait", "opened", 4)]);
}

#[tokio::test]
async fn bad_input_is_refused_and_changes_nothing() {
    let bench = Bench::of(1).await;
    let Bench { wire, latch, server } = &bench;
    let nameless = Client::connect(server.url()).await.unwrap().count_down_latch("");
    wire.messages();
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
        wire.run::<()>(&["DEL", NAME]);
        wire.run::<()>(&make);
        let before: Vec<u8> = wire.run(&["DUMP", NAME]);
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
        assert_eq!(wire.run::<Vec<u8>>(&["DUMP", NAME]), before, "{make:?}");
        assert_eq!((wire.messages(), wire.keys().len()), (vec![], 1), "{make:?}");
    }
}

/// An answer counts for those who waited when it was asked for. Since then the latch may have been closed.
#[tokio::test]
async fn whoever_closed_a_latch_does_not_pass_by_an_earlier_answer() {
    let server = Server::start();
    let latch = another(&server).await;
    // The server learns the script.
    latch.wait().await.unwrap();
    let mut early = std::pin::pin!(latch.wait());
    std::future::poll_fn(|cx| {
        assert!(early.as_mut().poll(cx).is_pending(), "it has asked, and not been answered");
        std::task::Poll::Ready(())
    })
    .await;
    assert!(latch.try_set_count(1).await.unwrap());
    assert!(!latch.wait_for(Duration::from_millis(100)).await.unwrap(), "it passed the latch that it closed");
    // It was open when this one asked.
    early.await.unwrap();
}
