//! The order and the times of the faults. They depend on the seed only.

use super::random::Random;

/// A kind of fault, with its least and greatest duration in ms.
pub struct Kind {
    pub name: &'static str,
    least: u64,
    most: u64,
}

const fn kind(name: &'static str, least: u64, most: u64) -> Kind {
    Kind { name, least, most }
}

/// Durations above 2,000 ms outlast the lease.
pub const KINDS: [Kind; 34] = [
    kind("kill-server", 0, 300),
    kind("stop-server", 2500, 3500),
    kind("stop-server-short", 50, 900),
    kind("drop-normal", 0, 0),
    kind("cut", 0, 0),
    kind("drop-pubsub", 0, 0),
    kind("half-open", 2500, 3500),
    kind("half-open-pubsub", 2500, 3500),
    // Longer than the response timeout.
    kind("deaf", 1200, 1900),
    kind("latency", 800, 2500),
    kind("lose-reply", 100, 100),
    kind("late-request", 100, 2500),
    kind("half-frame", 50, 50),
    kind("script-flush", 0, 0),
    kind("pause", 300, 3000),
    kind("sleep", 2200, 3000),
    kind("oom", 300, 1500),
    kind("string", 200, 1200),
    kind("readonly", 300, 2500),
    kind("loading", 0, 0),
    kind("acl-publish", 300, 1500),
    kind("password", 300, 1500),
    kind("stop-client", 2200, 3500),
    kind("kill-client", 0, 0),
    kind("force-unlock", 0, 0),
    kind("busy", 300, 2500),
    kind("clock", 500, 2000),
    kind("starve", 2200, 2600),
    kind("drop-runtime", 0, 0),
    kind("evict", 20, 200),
    kind("evict-volatile-ttl", 20, 200),
    kind("evict-volatile-lru", 20, 200),
    kind("evict-volatile-lfu", 20, 200),
    kind("evict-volatile-random", 20, 200),
];

/// The quiet time before the first fault and after the last.
pub const QUIET_MS: u64 = 4000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The time after the end of the previous fault, or after the start.
    pub after_ms: u64,
    pub kind: &'static str,
    pub lasts_ms: u64,
    /// The client that it hits. Some kinds take `None` for all clients.
    pub target: Option<usize>,
    /// A random number for any other choice that a kind makes.
    pub choice: u64,
}

/// Plans each kind once in random order, then again, until the time is up. In the first round each fault is followed by
/// enough time to observe recovery. In later rounds half of the faults come while the previous one still has effects.
pub fn plan(seed: u64, minutes: u64, kinds: &[&'static str], clients: usize) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let mut faults: Vec<Fault> = Vec::new();
    let mut left_ms = (minutes * 60_000).saturating_sub(QUIET_MS);
    let mut after_ms = QUIET_MS;
    let mut round: Vec<&Kind> = Vec::new();
    loop {
        if round.is_empty() {
            round = KINDS.iter().filter(|kind| kinds.contains(&kind.name)).collect();
        }
        let kind = round.swap_remove(random.between(0, round.len() as u64 - 1) as usize);
        let lasts_ms = random.between(kind.least, kind.most);
        let one = random.between(0, clients as u64 - 1) as usize;
        let target = (random.between(0, 3) > 0).then_some(one);
        let choice = random.next();
        let hasty = random.between(0, 1) == 0 && faults.len() >= kinds.len();
        let calm = if hasty { random.between(700, 1300) } else { random.between(3700, 4100) };
        let Some(left) = left_ms.checked_sub(after_ms + lasts_ms) else { return faults };
        left_ms = left;
        faults.push(Fault { after_ms, kind: kind.name, lasts_ms, target, choice });
        after_ms = calm;
    }
}

/// Plans `count` failovers. A quarter are followed by `lease_ms` and some more time, to observe recovery. Before half of
/// them the replica is cut off for a while.
pub fn failovers(seed: u64, count: usize, lease_ms: u64) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let mut after_ms = QUIET_MS;
    let mut next = || {
        let lasts_ms = if random.between(0, 1) == 0 { 0 } else { random.between(100, 700) };
        let fault = Fault { after_ms, kind: "failover", lasts_ms, target: None, choice: random.next() };
        after_ms = if random.between(0, 3) == 0 { lease_ms + 2500 } else { random.between(1000, 3000) };
        fault
    };
    (0..count).map(|_| next()).collect()
}

/// Equal plans have equal digests (FNV-1a).
pub fn digest(faults: &[Fault]) -> u64 {
    let text: String = faults.iter().map(|fault| format!("{fault:?}\n")).collect();
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_fixes_the_plan() {
        let all: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        let (one, again) = (plan(1, 2, &all, 4), plan(1, 2, &all, 4));
        assert_eq!(one, again);
        assert_eq!(digest(&one), digest(&again));
        assert_ne!(digest(&one), digest(&plan(2, 2, &all, 4)));
        assert_ne!(digest(&one), digest(&plan(1, 2, &all[1..], 4)));
    }

    #[test]
    fn four_minutes_have_room_for_every_kind() {
        let all: Vec<_> = KINDS.iter().map(|kind| kind.name).collect();
        for seed in 0..20 {
            let faults = plan(seed, 4, &all, 4);
            for name in &all {
                assert!(faults.iter().any(|fault| fault.kind == *name), "{seed}: {name}");
            }
            assert!(faults[..all.len()].iter().all(|fault| fault.after_ms >= 3700), "{seed}");
            let lasts: u64 = faults.iter().map(|fault| fault.after_ms + fault.lasts_ms).sum();
            assert!(lasts + QUIET_MS <= 240_000, "{seed}");
        }
    }
}
