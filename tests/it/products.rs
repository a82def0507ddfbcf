//! Every kind of lock on servers that answer as other products do (`support/product.rs`): it works, or connecting fails with an
//! error that says what is missing. The table of docs/deployment.md is what comes out of this.

use std::sync::Arc;
use std::time::Duration;

use redisson_lock::{Client, Error, HoldState, Owner, Phase, Replication};

use crate::support::contender::{Held, Party};
use crate::support::kind::{Kind, each, in_time};
use crate::support::product::{
    ALL, DRAGONFLY, ELASTICACHE_SERVERLESS, GARNET, Imitation, KVROCKS, MEMORYDB, MEMORYSTORE, Product,
    REDIS_ENTERPRISE,
};
use crate::support::{Stopwatch, eventually};

/// Of all that a hold goes through: it excludes another client, is renewed, and is passed on to one that waits.
async fn works(kind: Kind, server: &Imitation) {
    let name = format!("{kind:?}");
    let builder = match kind {
        Kind::Red => kind.builder(),
        _ => kind.builder().watchdog_timeout(Duration::from_millis(1500)),
    };
    let (one, two) = tokio::join!(server.clients(builder.clone()), server.clients(builder));
    let (one, two) = (Party::of_clients(one).counting(kind).await, Party::of_clients(two));
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
    // Long enough for it to listen: what it hears comes much sooner than what it would find out by itself.
    eventually(|| server.asked("subscribe") + server.asked("ssubscribe") > 0 || !kind.listens()).await;
    guard.unlock().await.unwrap();
    let guard = in_time("its turn", waiting).await.unwrap().unwrap();
    assert_eq!(guard.state(), HoldState::Held, "{kind}");
    guard.unlock().await.unwrap();
    // The next acquire of one who knows the lock.
    in_time("a second turn", kind.of(&one, &name).lock()).await.unwrap().unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_works_on_every_product() {
    each(ALL, |product: Product| async move {
        let server = Arc::new(Imitation::start(product).await);
        each(Kind::ALL, |kind| {
            let server = server.clone();
            async move { works(kind, &server).await }
        })
        .await;
    })
    .await;
}

/// Where other servers may take a master's place, by sentinels or as a cluster.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Works,
    /// Connecting is refused with this text.
    Refused(&'static str),
}

/// What comes of `redis-sentinel://` and of `redis-cluster://`, as they are and with a number of replicas asked for; and of
/// `redis-replicated://`.
const SEVERAL: [(Product, [Outcome; 5]); 7] = {
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
async fn what_a_product_cannot_do_for_replicas_is_refused_at_connect() {
    each(SEVERAL, |(product, outcomes)| async move {
        let mut server = Imitation::start(product).await;
        let (sentinels, cluster) = (server.sentinel().await, server.url("redis-cluster"));
        let replicated = server.url("redis-replicated");
        let urls = [
            (&sentinels, false),
            (&sentinels, true),
            (&cluster, false),
            (&cluster, true),
            (&replicated, false),
        ];
        for ((url, number), outcome) in urls.into_iter().zip(outcomes) {
            let said = format!("{} at {url} with a number of replicas: {number}", product.name);
            let mut builder = Client::builder();
            if number {
                builder = builder.replication(Replication::at_least(1).within(Duration::from_millis(50)));
            }
            let started = Stopwatch::start();
            match (builder.connect(url).await, outcome) {
                (Ok(client), Outcome::Works) => match client.lock("n").lock().await {
                    Ok(guard) => guard.unlock().await.unwrap(),
                    // There are none here.
                    Err(Error::NotReplicated { acknowledged: 0, needed: 1, .. }) if number => {}
                    Err(error) => panic!("{said}: {error}"),
                },
                (Err(error), Outcome::Refused(text)) => {
                    let phase = matches!(error, Error::Refused { phase: Phase::Connect, .. });
                    assert!(phase && error.to_string().contains(text), "{said}: {error:?}");
                    assert!(started.elapsed() < Duration::from_secs(3), "{said}: {:?}", started.elapsed());
                }
                (answer, _) => panic!("{said}: {answer:?} in the place of {outcome:?}"),
            }
        }
    })
    .await;
}

/// The imitations are no more lenient than what they imitate, so that what works there works for a reason.
#[tokio::test(flavor = "multi_thread")]
async fn the_imitations_refuse_what_they_are_to_refuse() {
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
        let server = Imitation::start(product).await;
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
