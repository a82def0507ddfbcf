//! `RedLock`: a majority of locks on independent servers.

use crate::faults::EndlessScript;
use crate::support::drop_point::{CutAt, DropPoint, PROMPT, Tally, drop_at, for_each_cut, shut_gate, soon};
use crate::support::kind::each;
use crate::support::{Java, Proxy, Server, Stopwatch, eventually, versions};
use redisson_lock::{
    Client, Error, HoldState, Lock, LossReason, MultiLockGuard, Owner, RedLock, blocking, redis,
};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The lease of most clients here, which is also the time for which a new server does not count.
const LEASE: Duration = Duration::from_millis(900);
/// The lease in tests that watch a hold for several leases. Two thirds of it are left at each renewal, and the machine does
/// not stall for so long.
const LONG_LEASE: Duration = Duration::from_secs(2);
/// The default node timeout.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// Allowance for a busy machine, in times that have nothing to do with a lease.
const SLACK: Duration = Duration::from_millis(250);

const NAME: &str = "n";

async fn connect(url: impl AsRef<str>) -> Client {
    connect_with(LEASE, url).await
}

async fn connect_with(lease: Duration, url: impl AsRef<str>) -> Client {
    Client::builder().watchdog_timeout(lease).connect(url).await.unwrap()
}

/// A client of each server.
async fn clients(servers: &[Server]) -> Vec<Client> {
    clients_with(LEASE, servers).await
}

async fn clients_with(lease: Duration, servers: &[Server]) -> Vec<Client> {
    let mut clients = Vec::new();
    for server in servers {
        clients.push(connect_with(lease, server.url()).await);
    }
    clients
}

fn red(clients: &[Client]) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.lock(NAME))).unwrap()
}

/// Like [`red`], but every server takes part, however busy the machine is.
fn patient(clients: &[Client]) -> RedLock {
    red(clients).with_node_timeout(Duration::from_secs(2))
}

/// Three servers, and clients for which they already count.
async fn three() -> (Vec<Server>, Vec<Client>) {
    three_with(LEASE).await
}

async fn three_with(lease: Duration) -> (Vec<Server>, Vec<Client>) {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let clients = clients_with(lease, &servers).await;
    tokio::time::sleep(lease + Duration::from_millis(20)).await;
    (servers, clients)
}

/// The median time of 20 rounds, in each of which `members` servers grant the lock.
async fn round(red: &RedLock, members: usize) -> Duration {
    let mut rounds = Vec::new();
    for _ in 0..20 {
        let started = Stopwatch::start();
        let guard = red.lock().await.unwrap();
        assert_eq!(guard.members().len(), members);
        guard.unlock().await.unwrap();
        rounds.push(started.elapsed());
    }
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

fn held(server: &Server) -> bool {
    redis::cmd("EXISTS").arg(NAME).query(&mut server.cli()).unwrap()
}

/// The number of servers that have a record.
fn records(servers: &[Server]) -> usize {
    servers.iter().filter(|server| held(server)).count()
}

fn is_young(error: &Error) -> bool {
    matches!(error, Error::Unavailable { reason, .. } if reason.contains("started less than a lease ago"))
}

async fn is_refused_as_young(lock: &RedLock) {
    let error = lock.try_lock().await.unwrap_err();
    assert!(is_young(&error), "{error:?}");
}

/// Waits for the end of the hold, which must come.
async fn lost(guard: &MultiLockGuard) -> HoldState {
    tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("the hold ends")
}

#[tokio::test]
async fn a_majority_holds_and_reports_its_validity() {
    let lease = LONG_LEASE;
    let (servers, clients) = three_with(lease).await;
    let red = patient(&clients);
    let started = Instant::now();
    let guard = red.try_lock().await.unwrap().expect("nobody has it");
    assert_eq!((guard.state(), guard.members().len(), records(&servers)), (HoldState::Held, 3, 3));
    // The allowance for clock drift: 1 % and 2 ms.
    let drift = lease / 100 + Duration::from_millis(2);
    assert!(guard.deadline() <= Instant::now() + lease - drift);
    assert!(guard.deadline() > started + lease - drift - Duration::from_millis(1));
    let mut deadlines: Vec<_> = guard.members().iter().map(|member| member.deadline()).collect();
    deadlines.sort();
    let now = Instant::now();
    assert!(guard.validity() <= deadlines[1] - now + Duration::from_millis(1));

    // The validity falls, and each renewal raises it.
    let mut by_name: Vec<_> = servers.iter().collect();
    by_name.sort_by_key(|server| server.address());
    let (mut fell, mut rose, mut before, mut least) = (0, 0, guard.validity(), lease);
    let started = Instant::now();
    while started.elapsed() < lease * 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = guard.validity();
        *(if now < before { &mut fell } else { &mut rose }) += 1;
        (before, least) = (now, least.min(now));
        for (member, server) in guard.members().iter().zip(&by_name) {
            let deadline = member.deadline();
            let left: u64 = redis::cmd("PTTL").arg(NAME).query(&mut server.cli()).unwrap();
            // The record outlives the deadline by the drift allowance. PTTL counts whole milliseconds.
            let end = Instant::now() + Duration::from_millis(left + 1);
            assert!(deadline + drift <= end, "{:?}", end - deadline);
        }
        // A late reply to a renewal makes the hold suspect for a moment.
        assert!(guard.state().is_live(), "{:?}", guard.state());
    }
    assert!(fell > 20 && rose >= 4 && least > lease / 3, "{fell} {rose} {least:?}");

    // The same owner takes it again; another owner does not get it.
    let again = red.try_lock().await.unwrap().expect("it is the same owner");
    let other = red.with_owner(&Owner::unique());
    assert!(other.try_lock().await.unwrap().is_none());
    // Long enough for a reply of each server, which may stall for a moment.
    let (wait, started) = (Duration::from_secs(1), Stopwatch::start());
    assert!(other.try_lock_for(wait).await.unwrap().is_none());
    assert!(started.is_within(wait..wait + SLACK), "{started:?}");
    again.unlock().await.unwrap();
    assert_eq!(records(&servers), 3);
    guard.unlock().await.unwrap();
    eventually(|| records(&servers) == 0).await;

    // One member that another client holds does not matter, and two do. A failed attempt releases the rest.
    let stranger = connect(servers[0].url()).await;
    let one = stranger.lock(NAME).lock().await.unwrap();
    let guard = other.lock().await.unwrap();
    assert_eq!(guard.members().len(), 2);
    guard.unlock().await.unwrap();
    let another = connect(servers[1].url()).await;
    let two = another.lock(NAME).lock().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(!held(&servers[2]));
    drop((one, two));

    // A fixed lease ends by itself, and before the records do.
    eventually(|| records(&servers) == 0).await;
    let guard = red.with_lease(lease).lock().await.unwrap();
    assert_eq!(lost(&guard).await, HoldState::Lost(LossReason::Expired));
    assert_eq!(guard.validity(), Duration::ZERO);
    assert!(matches!(guard.unlock().await, Err(Error::NotHeld { .. })));
    eventually(|| records(&servers) == 0).await;
}

/// A server that runs a long script is up, and refuses other requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_that_is_busy_with_a_script_is_awaited() {
    let (servers, clients) = three().await;
    servers.iter().for_each(|server| server.configure("lua-time-limit", "50"));
    let scripts = [EndlessScript::start(&servers[0]).await, EndlessScript::start(&servers[1]).await];
    let red = patient(&clients);
    let refused = red.try_lock().await;
    assert!(matches!(&refused, Err(Error::Refused { code, .. }) if code == "BUSY"), "{refused:?}");
    // The lock at the third server is freed at the end of each round.
    let freed = servers[2].calls("publish");
    let waiting = tokio::spawn(async move { red.lock().await });
    eventually(|| servers[2].calls("publish") >= freed + 2).await;
    scripts.into_iter().for_each(EndlessScript::kill);
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn misuse_is_reported_before_anything_is_sent() {
    let (servers, clients) = three().await;
    let bad: [Vec<Lock>; 4] = [
        vec![],
        vec![clients[0].lock("a"), clients[1].lock("a"), clients[0].lock("b")],
        vec![clients[0].lock("a"), clients[1].lock("a").with_owner(&Owner::unique())],
        vec![clients[0].lock("")],
    ];
    for locks in bad {
        let shown = format!("{locks:?}");
        assert!(matches!(RedLock::new(locks), Err(Error::Misuse { .. })), "{shown}");
    }
    let red = red(&clients);
    servers.iter().for_each(Server::commandstats_reset);
    let asked = || servers.iter().map(|server| server.scripts() + server.calls("restore")).sum::<u64>();
    for wrong in [
        red.with_lease(Duration::from_millis(2)),
        red.with_minimum_validity(LEASE - Duration::from_millis(11)),
        red.with_node_timeout(Duration::ZERO),
        // The others would be a majority.
        RedLock::new([0, 1, 2].map(|at| match at {
            0 => clients[at].lock(NAME).with_lease(Duration::MAX),
            _ => clients[at].lock(NAME),
        }))
        .unwrap(),
    ] {
        assert!(matches!(wrong.lock().await, Err(Error::Misuse { .. })), "{wrong:?}");
    }
    assert_eq!(asked(), 0);
    let guard = red.with_minimum_validity(LEASE - Duration::from_millis(300)).lock().await.unwrap();
    assert!(guard.validity() > Duration::from_millis(300));
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_minority_may_be_down_and_a_down_majority_is_reported_in_time() {
    let (mut servers, clients) = three().await;
    let (red, patient) = (red(&clients), patient(&clients));
    let all_up = round(&patient, 3).await;
    servers[2].kill();
    red.lock().await.unwrap().unlock().await.unwrap();
    // The client does not wait for a server that it knows to be down.
    let one_down = round(&patient, 2).await;
    assert!(one_down < all_up + NODE_TIMEOUT / 2, "{one_down:?}, and {all_up:?} with all servers");
    assert_eq!(records(&servers[..2]), 0);

    servers[1].kill();
    let started = Stopwatch::start();
    let failed = red.try_lock().await;
    assert!(matches!(failed, Err(Error::Unavailable { .. } | Error::TimedOut { .. })), "{failed:?}");
    assert!(started.elapsed() < NODE_TIMEOUT * 2 + SLACK, "{:?}", started.elapsed());
    let failed = red.try_lock_for(Duration::from_millis(400)).await;
    let took = started.elapsed();
    assert!(matches!(failed, Err(Error::Unavailable { .. } | Error::TimedOut { .. })), "{failed:?}");
    assert!(took < NODE_TIMEOUT * 2 + Duration::from_millis(400) + SLACK, "{took:?}");
    eventually(|| !held(&servers[0])).await;

    // A waiter gets the lock once the restarted server has been up for a lease.
    let waiting = tokio::spawn({
        let red = red.clone();
        async move { red.lock().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    servers[1].restart();
    let back = Instant::now();
    let guard = waiting.await.unwrap();
    assert!(back.elapsed() > LEASE - Duration::from_millis(20), "{:?}", back.elapsed());
    guard.unlock().await.unwrap();

    // A client that is closed does not count as a failed server.
    for client in &clients[..2] {
        client.close().await;
    }
    assert!(matches!(red.lock().await, Err(Error::Closed { .. })));
    eventually(|| !held(&servers[0])).await;
}

#[tokio::test]
async fn a_frozen_server_costs_no_more_than_the_node_timeout() {
    let (servers, clients) = three().await;
    let guard = patient(&clients).lock().await.unwrap();
    assert_eq!(guard.members().len(), 3);
    servers[0].stop_signal();
    // The unlock does not wait for the frozen server.
    let started = Stopwatch::start();
    guard.unlock().await.unwrap();
    assert!(started.elapsed() < SLACK, "{:?}", started.elapsed());
    assert_eq!(records(&servers[1..]), 0);
    // The default, and another that is well below the response timeout.
    let longer = Duration::from_millis(400);
    for (red, timeout) in [(red(&clients), NODE_TIMEOUT), (red(&clients).with_node_timeout(longer), longer)] {
        let started = Stopwatch::start();
        let guard = red.lock().await.unwrap();
        assert!(started.is_within(timeout..timeout + SLACK), "{started:?}");
        assert_eq!(guard.members().len(), 2);
        guard.unlock().await.unwrap();
    }
    // The requests that it got meanwhile are undone once it continues.
    servers[0].cont();
    eventually(|| records(&servers) == 0).await;
    tokio::time::sleep(LEASE).await;
    assert_eq!(records(&servers), 0);
    let guard = patient(&clients).lock().await.unwrap();
    assert_eq!(guard.members().len(), 3);
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn a_lost_majority_stays_lost_and_the_rest_is_released() {
    let (servers, clients) = three().await;
    let red = patient(&clients);
    // One member is lost, and a majority is left.
    let guard = red.lock().await.unwrap();
    clients[0].lock(NAME).force_unlock().await.unwrap();
    tokio::time::sleep(LEASE).await;
    assert_eq!(guard.state(), HoldState::Held);
    guard.unlock().await.unwrap();

    // Two members are lost.
    let guard = red.lock().await.unwrap();
    for client in &clients[..2] {
        client.lock(NAME).force_unlock().await.unwrap();
    }
    assert_eq!(lost(&guard).await, HoldState::Lost(LossReason::Gone));
    eventually(|| records(&servers) == 0).await;
    assert!(guard.unlock().await.unwrap_err().is_lost());

    // Two servers are frozen for longer than the validity, and then continue.
    let guard = red.lock().await.unwrap();
    for server in &servers[..2] {
        server.stop_signal();
    }
    eventually(|| guard.state() == HoldState::Suspect).await;
    // From here on, nothing reads the state of the hold.
    eventually(|| !held(&servers[2])).await;
    for server in &servers[..2] {
        server.cont();
    }
    eventually(|| records(&servers) == 0).await;
    assert_eq!(guard.state(), HoldState::Lost(LossReason::Unreachable));
    assert!(guard.unlock().await.unwrap_err().is_lost());

    let operators = [clients[1].lock(NAME), clients[2].lock(NAME)];
    let outcome = red
        .run(async |_| {
            for operator in operators {
                operator.force_unlock().await.unwrap();
            }
            tokio::time::sleep(Duration::from_secs(20)).await
        })
        .await;
    assert!(matches!(outcome, Err(Error::Lost { reason: LossReason::Gone, .. })), "{outcome:?}");
    eventually(|| records(&servers) == 0).await;
}

/// A server that started a moment ago may have restarted without its data.
#[tokio::test]
async fn a_grant_by_a_recently_started_server_does_not_count() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let connected = Instant::now();
    let young = patient(&clients(&servers).await);
    is_refused_as_young(&young).await;
    eventually(|| records(&servers) == 0).await;
    let guard = young.lock().await.unwrap();
    assert!(connected.elapsed() >= LEASE, "{:?}", connected.elapsed());
    guard.unlock().await.unwrap();

    // These servers have been up for long enough, as far as their whole seconds show.
    let uptime = |server: &Server| {
        let info: String = redis::cmd("INFO").arg("server").query(&mut server.cli()).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    eventually(|| servers.iter().all(|server| uptime(server) >= LEASE.as_secs() + 2)).await;
    let old = clients(&servers).await;
    let guard = patient(&old).try_lock().await.unwrap().expect("the servers have been up for long enough");
    guard.unlock().await.unwrap();
    eventually(|| records(&servers) == 0).await;
    // A longer lease may still be running.
    is_refused_as_young(&patient(&old).with_lease(Duration::from_secs(60))).await;
    // So may the watchdog's lease, for a lock with a short one.
    let mut cautious = Vec::new();
    for server in &servers {
        cautious.push(Client::connect(server.url()).await.unwrap());
    }
    is_refused_as_young(&patient(&cautious).with_lease(LEASE)).await;

    // A client that may not query the uptime takes the servers for new.
    for server in &servers {
        redis::cmd("ACL").arg(&["SETUSER", "default", "-info"]).exec(&mut server.cli()).unwrap();
    }
    let blind = patient(&clients(&servers).await);
    is_refused_as_young(&blind).await;
    drop(blind.lock().await.unwrap());
    for server in &servers {
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut server.cli()).unwrap();
    }
    // Such a client takes every server for new to which it reconnects.
    eventually_fails(&blind, is_young).await;
}

/// The loop and the tasks that connect again share the runtime's only thread.
#[tokio::test]
async fn attempts_in_a_loop_let_the_client_connect_again() {
    let (mut servers, clients) = three().await;
    let lock = red(&clients);
    servers.iter_mut().for_each(Server::kill);
    eventually_fails(&lock, |error| matches!(error, Error::Unavailable { .. }) && !is_young(error)).await;
    servers.iter_mut().for_each(Server::start_again);
    eventually_fails(&lock, is_young).await;
}

/// Tries without a pause until the error is the expected one.
async fn eventually_fails(lock: &RedLock, is_expected: impl Fn(&Error) -> bool) {
    let started = Instant::now();
    loop {
        let error = lock.try_lock().await.expect_err("no majority counts");
        if is_expected(&error) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{error:?}");
    }
}

/// The classic schedule: a holder has two of three servers, one of the two restarts empty, and another client finds two
/// that grant. The holder is cut off and does not know.
#[tokio::test]
async fn a_server_that_restarts_empty_allows_no_second_holder() {
    const HELD: Duration = Duration::from_millis(1500);
    for (first, lease) in [(false, LEASE), (true, LEASE), (true, HELD), (false, HELD)] {
        let mut servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let mut proxies = Vec::new();
        for server in &servers {
            proxies.push(Proxy::start(server.port()).await);
        }
        let mut near = Vec::new();
        for proxy in &proxies {
            near.push(connect(proxy.url()).await);
        }
        // Two clients that were connected before the restart, and one that connects after it.
        let before =
            [red(&clients(&servers).await), red(&clients(&servers).await)].map(|red| red.with_lease(lease));
        tokio::time::sleep(LEASE.max(lease) + Duration::from_millis(20)).await;
        proxies[2].partition();
        let guard = red(&near).with_lease(lease).lock().await.unwrap();
        assert_eq!(guard.members().len(), 2);
        assert!(!held(&servers[2]));
        proxies.iter().for_each(Proxy::partition);
        servers[usize::from(first)].restart();
        let after = red(&clients(&servers).await).with_lease(lease);
        let deadline = guard.deadline();
        assert_eq!(guard.state(), HoldState::Held);
        let mut tries = 0;
        for other in before.iter().chain([&after]).cycle() {
            let answer = other.with_owner(&Owner::unique()).try_lock().await;
            let state = guard.state();
            // An observation from before the deadline counts.
            if Instant::now() >= deadline {
                break;
            }
            assert!(!matches!(answer, Ok(Some(_))), "two hold it: {guard:?}, {answer:?}");
            assert_eq!(state, HoldState::Held);
            tries += 1;
        }
        assert!(tries > 10, "{tries}");
        assert!(matches!(guard.state(), HoldState::Lost(_)));
        // The holder's lease is over, and the server has been up for a lease.
        let next = after.try_lock_for(LEASE * 3).await.unwrap().expect("nobody has it");
        next.unlock().await.unwrap();
    }
}

/// A record expires by the wall clock of its server. If that jumps, the record is gone early or stays. The majority
/// still has the lock, and no other client gets it.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_jump_allows_no_second_holder() {
    each(["+3600s", "-3600s"], |jump| async move {
        let file = std::env::temp_dir().join(format!("redisson-lock-clock-{}{jump}", std::process::id()));
        std::fs::write(&file, "+0s").unwrap();
        let servers = [Server::start(), Server::start(), Server::with_clock(file.to_str().unwrap())];
        let (ours, others) =
            (clients_with(LONG_LEASE, &servers).await, clients_with(LONG_LEASE, &servers).await);
        tokio::time::sleep(LONG_LEASE + Duration::from_millis(20)).await;
        let guard = patient(&ours).lock().await.unwrap();
        assert_eq!(guard.members().len(), 3);
        let time = |server: &Server| -> i64 {
            let (seconds, _): (i64, i64) = redis::cmd("TIME").query(&mut server.cli()).unwrap();
            seconds
        };
        let before = time(&servers[2]);
        std::fs::write(&file, jump).unwrap();
        assert!((time(&servers[2]) - before).abs() > 3500, "the clock did not jump");
        assert_eq!(held(&servers[2]), jump.starts_with('-'));
        let (other, started) = (patient(&others), Instant::now());
        while started.elapsed() < LONG_LEASE * 2 {
            let answer = other.with_owner(&Owner::unique()).try_lock().await;
            assert!(!matches!(answer, Ok(Some(_))), "{jump}: two hold it: {guard:?}, {answer:?}");
            // A late reply to a renewal makes the hold suspect for a moment.
            assert!(guard.state().is_live(), "{jump}: {:?}", guard.state());
        }
        guard.unlock().await.unwrap();
        let next = other.try_lock_for(LONG_LEASE * 4).await.unwrap().expect("nobody has it");
        next.unlock().await.unwrap();
        std::fs::remove_file(file).unwrap();
    })
    .await;
}

/// Drops the acquire at the same points as `kinds_cancelled`, while another client holds one of the members. Nothing
/// may be left.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let proxy = Proxy::start(servers[0].port()).await;
    let clients =
        [connect(proxy.url()).await, connect(servers[1].url()).await, connect(servers[2].url()).await];
    let others = self::clients(&servers).await;
    let tally = Tally::default();
    // The first use of a script takes two requests, and new servers do not count.
    let red = red(&clients).with_owner(&Owner::new("caller").unwrap());
    red.lock().await.unwrap().unlock().await.unwrap();
    for_each_cut(&tally, ("RedLock::lock", "one is busy"), &CutAt::SERIES, async |drop_point| {
        let held = others[0].lock(NAME).lock().await.unwrap();
        shut_gate(&proxy, drop_point.cut, |words| {
            words.iter().any(|word| word == NAME.as_bytes()) && words[0] != b"HSCAN"
        });
        let guard = drop_at(&proxy, drop_point.cut, red.lock(), || {}).await;
        let dropped = guard.is_none();
        proxy.open_gate();
        drop((guard, held));
        at_rest(&drop_point, &servers, &clients).await;
        dropped
    })
    .await;
    tally.at_least([("RedLock::lock", "one is busy", 6)]);
}

async fn at_rest(drop_point: &DropPoint, servers: &[Server], clients: &[Client]) {
    assert!(PROMPT > LEASE);
    soon(&format!("{drop_point}: the records are gone"), || records(servers) == 0).await;
    for client in clients {
        soon(&format!("{drop_point}: the clients are idle"), || format!("{client:?}").contains("queues: 0 "))
            .await;
    }
    for server in servers {
        let channels =
            || -> Vec<String> { redis::cmd("PUBSUB").arg("CHANNELS").query(&mut server.cli()).unwrap() };
        soon(&format!("{drop_point}: the subscriptions have ended"), || channels().is_empty()).await;
    }
}

#[test]
fn threads_exclude_each_other_with_a_red_lock() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let connect = |server: &Server| {
        let builder = Client::builder().watchdog_timeout(LEASE);
        blocking::Client::connect_with(builder, server.url()).unwrap()
    };
    let clients: Vec<_> = servers.iter().map(connect).collect();
    let red = blocking::RedLock::new(clients.iter().map(|client| client.lock(NAME))).unwrap();
    let red = red.with_node_timeout(Duration::from_secs(2));
    let guard = red.lock().unwrap();
    assert!(guard.state() == HoldState::Held && guard.validity() > LEASE / 2);
    let other = red.clone();
    assert!(std::thread::spawn(move || other.try_lock().unwrap().is_none()).join().unwrap());
    drop((clients, red));
    guard.unlock().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn java_and_rust_exclude_each_other() {
    const EACH: usize = 15;
    for version in versions() {
        let mut servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let java = Java::get(&version);
        let mut peers = Vec::new();
        for server in &servers {
            peers.push(java.client(server, 0).await);
        }
        let members: Vec<_> = peers.iter().map(|peer| (peer, "plain", NAME)).collect();
        let (thread, other) = (peers[0].thread("t"), peers[0].thread("u"));
        thread.combine("red", "r", &members).await.unwrap();
        other.combine("red", "r", &members).await.unwrap();
        let clients = clients(&servers).await;
        tokio::time::sleep(LEASE + Duration::from_millis(20)).await;
        let red = patient(&clients);

        thread.lock("red", "r").await.unwrap();
        assert_eq!(records(&servers), 3, "{version}");
        assert!(red.try_lock().await.unwrap().is_none(), "{version}");
        assert!(clients[1].lock(NAME).try_lock().await.unwrap().is_none(), "{version}");
        thread.unlock("red", "r").await.unwrap();
        let guard = red.lock().await.unwrap();
        assert!(!thread.try_lock("red", "r").await.unwrap(), "{version}");
        assert!(!other.try_lock("plain", NAME).await.unwrap(), "{version}");
        // A waiter gets the lock.
        let waiting = thread.lock("red", "r");
        guard.unlock().await.unwrap();
        waiting.await.unwrap();
        let waiting = tokio::spawn({
            let red = red.clone();
            async move { red.lock().await.unwrap() }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        thread.unlock("red", "r").await.unwrap();
        waiting.await.unwrap().unlock().await.unwrap();

        // A crowd.
        eventually(|| records(&servers) == 0).await;
        let counter = &servers[0];
        let loops: Vec<_> =
            [&thread, &other].map(|thread| thread.loop_("red", "r", EACH as u32, "c", Duration::ZERO)).into();
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let counting = redis::Client::open(counter.url()).unwrap();
            let mut counting = counting.get_multiplexed_async_connection().await.unwrap();
            let red = red.clone();
            tasks.spawn(async move {
                for _ in 0..EACH {
                    let guard = red.lock().await.unwrap();
                    let value: Option<usize> =
                        redis::cmd("GET").arg("c").query_async(&mut counting).await.unwrap();
                    let value = value.unwrap_or(0) + 1;
                    redis::cmd("SET").arg("c").arg(value).exec_async(&mut counting).await.unwrap();
                    guard.unlock().await.unwrap();
                }
            });
        }
        let started = Instant::now();
        tasks.join_all().await;
        println!("{version}: Rust was done in {:?}", started.elapsed());
        let mut holds = Vec::new();
        for running in loops {
            holds.extend(running.await.unwrap());
        }
        println!("{version}: Java was done in {:?}", started.elapsed());
        assert_eq!(holds.len(), 2 * EACH);
        let counted: usize = redis::cmd("GET").arg("c").query(&mut servers[0].cli()).unwrap();
        assert_eq!(counted, 5 * EACH, "{version}: increments were lost");

        // With a minority down.
        servers[2].kill();
        thread.lock("red", "r").await.unwrap();
        let refused = red.try_lock().await;
        assert!(!matches!(refused, Ok(Some(_))), "{version}: {refused:?}");
        thread.unlock("red", "r").await.unwrap();
        let guard = red.lock().await.unwrap();
        assert!(!thread.try_lock("red", "r").await.unwrap(), "{version}");
        guard.unlock().await.unwrap();
    }
}
