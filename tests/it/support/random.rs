//! Random sequences of steps: how many, from which seed, and what is said of one that fails.

use std::env;
use std::fmt::Debug;

use proptest::collection;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// How many sequences to try, and the number that they all come from. The same two give the same sequences.
const CASES: &str = "REDISSON_LOCK_CASES";
const SEED: &str = "REDISSON_LOCK_SEED";
pub const USUAL_CASES: u32 = 256;
const USUAL_SEED: u32 = 1;

/// The longest sequence.
const STEPS: usize = 40;

/// Runs `test` on random sequences of steps. Of one that fails it finds a short one that fails too, and tells that.
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
        // Where each failure is a wait for what never comes.
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
                "{why}\nby the steps\n{}a short form of one of {cases} sequences from seed {seed}: again with {CASES}={cases} \
                 {SEED}={seed}",
                steps.concat()
            );
        }
        Err(TestError::Abort(why)) => panic!("nothing was shown: {why}"),
    }
}

fn number(name: &str, usual: u32) -> u32 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is to be a number, not {text:?}")),
        Err(_) => usual,
    }
}
