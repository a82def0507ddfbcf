//! Random sequences of steps: their number, their seed, and the report of one that fails.

use std::env;
use std::fmt::Debug;

use proptest::collection;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// The number of sequences, and the seed that they all come from. The same two give the same sequences.
const CASES: &str = "REDISSON_LOCK_CASES";
const SEED: &str = "REDISSON_LOCK_SEED";
pub const USUAL_CASES: u32 = 256;
const USUAL_SEED: u32 = 1;

/// The longest sequence.
const STEPS: usize = 40;

/// Runs `test` on random sequences of steps. If one fails, finds a shorter one that fails too, and panics with that.
/// Returns how many were tried.
pub fn sequences<S>(step: S, test: impl Fn(&[S::Value]) -> Result<(), String>) -> u32
where
    S: Strategy,
    S::Value: Clone + Debug,
{
    let (cases, seed) = (number(CASES, USUAL_CASES), number(SEED, USUAL_SEED));
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed.into()),
        failure_persistence: None,
        max_shrink_iters: 1000,
        // A failure may be a wait for an event that never comes.
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let tried = TestRunner::new(config)
        .run(&collection::vec(step, 1..=STEPS), |steps| test(&steps).map_err(TestCaseError::fail));
    match tried {
        Ok(()) => cases,
        Err(TestError::Fail(why, steps)) => {
            let steps: Vec<_> = steps.iter().map(|step| format!("    {step:?}\n")).collect();
            panic!(
                "{why}\nafter the steps\n{}a short form of one of {cases} sequences from seed {seed}; repeat it with {CASES}={cases} \
                 {SEED}={seed}",
                steps.concat()
            );
        }
        Err(TestError::Abort(why)) => panic!("the run was aborted: {why}"),
    }
}

fn number(name: &str, usual: u32) -> u32 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
        Err(_) => usual,
    }
}
