//! Decides whether a check caught a mutant, from its run with the mutant and its control.

use std::fmt;
use std::time::Duration;

/// How a run of a test or a campaign's rule ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Passed,
    Failed,
    /// The test reached its limit and was killed.
    Hung,
}

#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub end: End,
    pub took: Duration,
}

/// The symptom that a patch names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Symptom {
    Failure,
    Hang,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Caught,
    /// The check passed, or showed another symptom than the patch names.
    Missed,
    /// The check took too long, and the patch does not name a hang.
    Slow,
    /// The check fails without the mutant, so its failure shows nothing.
    ControlFailed,
    /// The patch does not apply, or the mutant does not build.
    NotBuilt,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caught => "caught",
            Self::Missed => "MISSED",
            Self::Slow => "SLOW",
            Self::ControlFailed => "CONTROL FAILED",
            Self::NotBuilt => "NOT BUILT",
        })
    }
}

/// A check that takes longer than this with the mutant is slow, or hangs. `control` is its time without the mutant.
pub fn patience(control: Duration) -> Duration {
    Duration::from_secs(20) + 10 * control
}

/// The time after which a run with the mutant is killed. A hang is proven after `patience`; a failure may take longer.
pub fn limit(symptom: Symptom, control: Duration) -> Duration {
    match symptom {
        Symptom::Hang => patience(control),
        Symptom::Failure => patience(control).max(Duration::from_secs(200)),
    }
}

pub fn decide(symptom: Symptom, control: Run, mutated: Run) -> Outcome {
    match (symptom, mutated.end) {
        _ if control.end != End::Passed => Outcome::ControlFailed,
        (Symptom::Failure, End::Failed) => Outcome::Caught,
        (Symptom::Hang, End::Hung) if mutated.took >= patience(control.took) => Outcome::Caught,
        (_, End::Hung) => Outcome::Slow,
        (_, End::Passed) if mutated.took > patience(control.took) => Outcome::Slow,
        (_, End::Passed) | (Symptom::Hang, End::Failed) => Outcome::Missed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(end: End, seconds: u64) -> Run {
        Run { end, took: Duration::from_secs(seconds) }
    }

    #[test]
    fn only_the_named_symptom_counts_as_caught() {
        let control = run(End::Passed, 2);
        let cases = [
            (Symptom::Failure, run(End::Failed, 3), Outcome::Caught),
            (Symptom::Failure, run(End::Failed, 150), Outcome::Caught),
            (Symptom::Failure, run(End::Passed, 2), Outcome::Missed),
            (Symptom::Failure, run(End::Passed, 40), Outcome::Missed),
            (Symptom::Failure, run(End::Passed, 41), Outcome::Slow),
            (Symptom::Failure, run(End::Hung, 200), Outcome::Slow),
            (Symptom::Hang, run(End::Hung, 40), Outcome::Caught),
            (Symptom::Hang, run(End::Hung, 39), Outcome::Slow),
            (Symptom::Hang, run(End::Passed, 2), Outcome::Missed),
            (Symptom::Hang, run(End::Passed, 41), Outcome::Slow),
            (Symptom::Hang, run(End::Failed, 3), Outcome::Missed),
        ];
        for (symptom, mutated, outcome) in cases {
            assert_eq!(decide(symptom, control, mutated), outcome, "{symptom:?}, {mutated:?}");
        }
    }

    #[test]
    fn a_failed_control_decides_the_outcome() {
        for control in [run(End::Failed, 2), run(End::Hung, 200)] {
            for symptom in [Symptom::Failure, Symptom::Hang] {
                for end in [End::Passed, End::Failed, End::Hung] {
                    assert_eq!(
                        decide(symptom, control, run(end, 300)),
                        Outcome::ControlFailed,
                        "{control:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_run_is_not_killed_before_it_counts_as_slow_or_hung() {
        for seconds in [0, 2, 60] {
            let control = Duration::from_secs(seconds);
            for symptom in [Symptom::Failure, Symptom::Hang] {
                assert!(limit(symptom, control) >= patience(control));
            }
        }
    }
}
