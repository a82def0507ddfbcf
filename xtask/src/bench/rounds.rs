//! Measures libraries in turn, in rounds, and compares them round by round.

use std::collections::BTreeMap;

use super::Effort;
use super::sample::{Figures, Sample, Samples, rate};
use super::testbed::{TUNED, Testbed};

pub type Measured = BTreeMap<(usize, &'static str), Samples>;

/// Takes the place of a library: one worker of redis-rs on its own key, which needs two round trips per hold.
pub const TWO_TRIPS: &str = "raw, two round trips";

/// Measures every library with every number of workers, in turn. Each round begins with another library.
pub fn rounds(
    testbed: &mut Testbed,
    effort: &Effort,
    command: &str,
    workers: &[usize],
    libraries: &[&'static str],
) -> Result<Measured, String> {
    let mut measured = Measured::new();
    for round in 0..effort.rounds {
        for &workers in workers {
            for &library in &rotated(libraries, round) {
                testbed.wait_for_silence()?;
                if round == 0 && ["Redisson", TUNED].contains(&library) {
                    warm_up(|| Ok(rate(&testbed.measure(library, &format!("{command} {workers} 1"))?)))?;
                }
                let (name, work) = match library {
                    TWO_TRIPS => ("raw", "uncontended 1".to_owned()),
                    _ => (library, format!("{command} {workers}")),
                };
                let sample = testbed.measure(name, &format!("{work} {}", effort.seconds))?;
                measured.entry((workers, library)).or_default().0.push(sample);
            }
        }
    }
    Ok(measured)
}

/// Measures until two rates in a row agree, because the compiler of a JVM needs time.
pub fn warm_up(mut measured: impl FnMut() -> Result<f64, String>) -> Result<(), String> {
    const LONGEST: usize = 10;
    let mut before = measured()?;
    for _ in 0..LONGEST {
        let now = measured()?;
        if (now / before - 1.0).abs() < 0.05 {
            break;
        }
        before = now;
    }
    Ok(())
}

/// Another order in each round: a library that follows a busy one finds a warm processor, and a hot one. In odd rounds each follows
/// another one.
pub fn rotated<T: Clone>(all: &[T], round: usize) -> Vec<T> {
    let mut all = all.to_vec();
    if round % 2 == 1 {
        all.reverse();
    }
    let first = round % all.len();
    all.rotate_left(first);
    all
}

/// The ratio of `figure` for two libraries, in each round.
pub fn ratio(
    measured: &Measured,
    workers: usize,
    (one, other): (&'static str, &'static str),
    figure: impl Fn(&Sample) -> f64,
) -> Figures {
    let (Some(one), Some(other)) = (measured.get(&(workers, one)), measured.get(&(workers, other))) else {
        return Figures::default();
    };
    Figures(one.0.iter().zip(&other.0).map(|(one, other)| figure(one) / figure(other)).collect())
}
