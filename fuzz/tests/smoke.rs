//! Runs each target on its seeds, on mutated seeds, and on random bytes. It needs no libFuzzer and no nightly compiler.
//!
//! Each run uses the same random input. `REDISSON_LOCK_SEED=7` selects other input, and `REDISSON_LOCK_CASES=100000` more of it.

use redisson_lock_fuzz::{TARGETS, Target};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The number of cases for each target. Half of them are mutated seeds.
const USUAL_CASES: u64 = 2000;

/// Fragments that have a meaning for some decoder.
const PARTS: [&[u8]; 20] = [
    b"",
    b"\r\n",
    b"-1",
    b"0",
    b"16383",
    b"16384",
    b"65535",
    b"65536",
    b"?",
    b":",
    b"$-1\r\n",
    b"*0\r\n",
    b"\x1b[2J",
    "\u{202e}".as_bytes(),
    b"\xff",
    b"9223372036854775807",
    b", with args beginning with: 'canary'",
    b"~1",
    b" ",
    b"\n",
];

#[test]
fn each_target_takes_its_seeds_and_random_input() {
    let number = |name: &str, usual: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")),
        Err(_) => usual,
    };
    let (cases, seed) = (number("REDISSON_LOCK_CASES", USUAL_CASES), number("REDISSON_LOCK_SEED", 1));
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seed");
        seeds.iter().for_each(|seed| run(name, target, seed));
        let mut random = Random(seed);
        for case in 0..cases {
            let input = match case % 2 {
                0 => random.changed(&seeds),
                _ => random.bytes(1 << (case % 10)),
            };
            run(name, target, &input);
        }
    }
}

/// A target that is missing in the table would not run here, and neither would seeds under another name.
#[test]
fn every_target_is_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(root.join(folder)).expect("the folder is there");
        entries
            .map(|entry| entry.expect("it is there").path().file_stem().unwrap().to_string_lossy().into())
            .collect()
    };
    let table: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(in_folder("fuzz_targets"), table);
    assert_eq!(in_folder("seeds"), table);
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("each target has seeds")
        .map(|file| file.expect("it is there").path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a seed can be read")).collect()
}

/// Runs `target`, and prints the input if it fails.
fn run(name: &str, target: Target, input: &[u8]) {
    struct Shown<'a>(&'a str, &'a [u8]);
    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("{}: fails on b\"{}\"", self.0, self.1.escape_ascii());
            }
        }
    }
    let _shown = Shown(name, input);
    target(input);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }

    /// One of the seeds with one to four changes.
    fn changed(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let (at, other) = (self.below(input.len() + 1), self.below(input.len() + 1));
            let range = at.min(other)..at.max(other);
            match self.below(5) {
                0 if !input.is_empty() => {
                    let at = at.min(input.len() - 1);
                    input[at] ^= 1 << self.below(8);
                }
                1 => _ = input.splice(at..at, [self.next() as u8]),
                2 => _ = input.drain(range),
                3 if input.len() < 1 << 16 => {
                    let part = input[range].to_vec();
                    input.splice(at..at, part);
                }
                _ => {
                    _ = input.splice(
                        range.start..range.end.min(range.start + 3),
                        PARTS[self.below(PARTS.len())].to_vec(),
                    )
                }
            }
        }
        input
    }
}
