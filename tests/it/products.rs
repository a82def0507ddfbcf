//! Every kind of lock on servers that answer as other products do (`support/product.rs`). Either it works, or
//! connecting fails with an error that says what is missing. The table of docs/deployment.md comes from here.

use std::sync::Arc;
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Owner, Phase, Replication};

use crate::support::any_lock::{ClientSet, Held};
use crate::support::kind::{Kind, each, in_time};
use crate::support::product::{
    DRAGONFLY, ELASTICACHE_SERVERLESS, GARNET, KVROCKS, MEMORYDB, MEMORYSTORE, Product, ProductServer,
    REDIS_ENTERPRISE,
};
use crate::support::{Stopwatch, eventually};

/// Takes a hold through its life: it excludes another client, is renewed, and passes to a waiter.
async fn works(kind: Kind, scheme: &str, server: &ProductServer) {
    let name = format!("{scheme}.{kind:?}");
    let builder = match kind {
        Kind::Red => kind.builder(),
        _ => kind.builder().watchdog_timeout(Duration::from_millis(1500)),
    };
    let (one, two) = tokio::join!(server.clients(scheme, builder.clone()), server.clients(scheme, builder));
    let (one, two) = (ClientSet::from_clients(one).counting(kind).await, ClientSet::from_clients(two));
    for record in kind.records(&name) {
        kind.make(server.server(), &record);
    }
    let guard = kind.of(&one, &name).lock().await.unwrap();
    let rival = kind.rival().of(&two, &name).with_owner(&Owner::unique());
    assert!(rival.try_lock().await.unwrap().is_none(), "the {kind} excludes nobody");
    if !matches!(guard, Held::Number(_)) {
        let first = guard.deadline();
        eventually(|| guard.deadline() > first || guard.state() != HoldState::Held).await;
        assert_eq!(guard.state(), HoldState::Held, "the {kind} was not renewed");
    }
    let waiting = tokio::spawn(async move { rival.lock().await });
    // Wait until it listens: a message then comes much sooner than its own next look.
    eventually(|| server.asked("subscribe") + server.asked("ssubscribe") > 0 || !kind.listens()).await;
    guard.unlock().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    assert_eq!(guard.state(), HoldState::Held, "{kind}");
    guard.unlock().await.unwrap();
    // A client that knows the lock acquires it again.
    in_time("a second turn", kind.of(&one, &name).lock()).await.unwrap().unlock().await.unwrap();
}

/// Another client waits for a latch until it is open.
async fn latch_works(scheme: &str, server: &ProductServer) {
    let clients = server.clients(scheme, Client::builder()).await;
    let [latch, other] =
        [0, 1].map(|client: usize| clients[client].count_down_latch(format!("{scheme}.latch")));
    assert!(latch.try_set_count(2).await.unwrap());
    latch.count_down().await.unwrap();
    let waiting = tokio::spawn(async move { other.wait().await });
    assert_eq!(latch.count().await.unwrap(), 1);
    latch.count_down().await.unwrap();
    in_time("the opening of the latch", waiting).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_works_on_every_product() {
    each(PRODUCTS, |(product, outcomes)| async move {
        let server = Arc::new(ProductServer::start(product).await);
        let accepted = SEVERAL.into_iter().zip(outcomes).filter_map(|((scheme, number), outcome)| {
            (!number && matches!(outcome, Outcome::Works)).then_some(scheme)
        });
        for scheme in ["redis"].into_iter().chain(accepted) {
            latch_works(scheme, &server).await;
            let server = server.clone();
            each(Kind::ALL, move |kind| {
                let server = server.clone();
                async move { works(kind, scheme, &server).await }
            })
            .await;
        }
    })
    .await;
}

/// The outcome where another server may take the master's place, under sentinels or in a cluster.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Works,
    /// Connecting is refused with this text.
    Refused(&'static str),
}

/// The schemes of these URLs, and whether the client requires a number of replicas.
const SEVERAL: [(&str, bool); 5] = [
    ("redis-sentinel", false),
    ("redis-sentinel", true),
    ("redis-cluster", false),
    ("redis-cluster", true),
    ("redis-replicated", false),
];

/// The outcomes in the order of [`SEVERAL`]. Over `redis://` every product works.
const PRODUCTS: [(Product, [Outcome; 5]); 7] = {
    use Outcome::{Refused, Works};
    const NO_ROLE: Outcome = Refused("ROLE");
    const NO_WAIT: Outcome = Refused("WAIT");
    const NO_CLUSTER: Outcome = Refused("luster");
    const UNKNOWN: Outcome = Refused("unknown command");
    [
        (ELASTICACHE_SERVERLESS, [Works, NO_ROLE, Works, NO_ROLE, UNKNOWN]),
        (REDIS_ENTERPRISE, [Works, NO_ROLE, Works, NO_ROLE, UNKNOWN]),
        (MEMORYDB, [Works, Works, Works, Works, Works]),
        (MEMORYSTORE, [Works, Works, UNKNOWN, UNKNOWN, Works]),
        (KVROCKS, [Works, NO_WAIT, NO_CLUSTER, NO_CLUSTER, Works]),
        (DRAGONFLY, [Works, Works, NO_CLUSTER, NO_CLUSTER, Works]),
        (GARNET, [Works, NO_WAIT, NO_CLUSTER, NO_CLUSTER, Works]),
    ]
};

#[tokio::test(flavor = "multi_thread")]
async fn missing_replica_commands_are_refused_at_connect() {
    each(PRODUCTS, |(product, outcomes)| async move {
        let server = ProductServer::start(product).await;
        for ((scheme, number), outcome) in SEVERAL.into_iter().zip(outcomes) {
            let url = server.url(scheme);
            let said = format!("{} at {url} with a number of replicas: {number}", product.name);
            let mut builder = Client::builder();
            if number {
                builder = builder.replication(Replication::at_least(1).within(Duration::from_millis(50)));
            }
            let started = Stopwatch::start();
            match (builder.connect(&url).await, outcome) {
                (Ok(client), Outcome::Works) => match client.lock("n").lock().await {
                    Ok(guard) => guard.unlock().await.unwrap(),
                    // There are no replicas here.
                    Err(Error::NotReplicated { acknowledged: 0, needed: 1, .. }) if number => {}
                    Err(error) => panic!("{said}: {error}"),
                },
                (Err(error), Outcome::Refused(text)) => {
                    let phase = matches!(error, Error::Refused { phase: Phase::Connect, .. });
                    assert!(phase && error.to_string().contains(text), "{said}: {error:?}");
                    assert!(started.elapsed() < Duration::from_secs(3), "{said}: {:?}", started.elapsed());
                }
                (answer, _) => panic!("{said}: {answer:?} instead of {outcome:?}"),
            }
        }
    })
    .await;
}

/// The imitations are as strict as their products, so a lock that works on them works for a reason.
#[tokio::test(flavor = "multi_thread")]
async fn the_imitations_refuse_like_their_products() {
    let script = |keys: &'static [&'static str]| {
        let mut command = redis::cmd("EVAL");
        command.arg("return redis.call('get', ARGV[1])").arg(keys.len()).arg(keys).arg("there");
        command
    };
    for (product, keys, refusal) in [
        (DRAGONFLY, &["here"][..], Some("undeclared key")),
        (DRAGONFLY, &["there"], None),
        (GARNET, &["here"], None),
        (MEMORYDB, &["here", "there"], Some("same slot")),
        (REDIS_ENTERPRISE, &["there"], None),
    ] {
        let server = ProductServer::start(product).await;
        let url = server.url("redis");
        let answer = tokio::task::spawn_blocking(move || {
            let mut cli = redis::Client::open(url).unwrap().get_connection().unwrap();
            script(keys).query::<Option<String>>(&mut cli)
        });
        match (answer.await.unwrap(), refusal) {
            (Ok(None), None) => {}
            (Err(error), Some(text)) => {
                assert!(error.to_string().contains(text), "{}: {error}", product.name)
            }
            (answer, _) => panic!("{} with {keys:?}: {answer:?}", product.name),
        }
    }
}

/// A release declares the holds of the client's other readers. Where it may look at no others, the record keeps its expiry.
#[tokio::test]
async fn a_read_release_sets_the_expiry_where_keys_must_be_declared() {
    const SHORT: Duration = Duration::from_secs(60);
    const LONG: Duration = Duration::from_secs(600);
    let server = ProductServer::start(DRAGONFLY).await;
    let mut cli = server.server().cli();
    let mut left = || -> i64 { redis::cmd("PTTL").arg("n").query(&mut cli).unwrap() };
    let (short, long) =
        (1..=SHORT.as_millis() as i64, 2 * SHORT.as_millis() as i64..=LONG.as_millis() as i64);
    let url = server.url("redis");
    let [client, other] = [Client::connect(&url).await.unwrap(), Client::connect(&url).await.unwrap()];
    let reader = |client: &Client, lease| {
        client.read_write_lock("n").read().with_lease(lease).with_owner(&Owner::unique())
    };
    let first = reader(&client, SHORT).lock().await.unwrap();
    let second = reader(&client, LONG).lock().await.unwrap();
    assert!(long.contains(&left()));
    second.unlock().await.unwrap();
    assert!(short.contains(&left()), "the longer hold still counts");
    let second = reader(&client, LONG).lock().await.unwrap();
    first.unlock().await.unwrap();
    assert!(long.contains(&left()), "the longer hold does not count");
    let foreign = reader(&other, SHORT).lock().await.unwrap();
    second.unlock().await.unwrap();
    assert!(long.contains(&left()), "the script cannot know when the other client's hold ends");
    assert_eq!(foreign.state(), HoldState::Held);
    foreign.unlock().await.unwrap();
    assert_eq!(left(), -2, "the record is left");
}
