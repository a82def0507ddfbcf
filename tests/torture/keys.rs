//! The keys of the campaign, and the cells that they guard. Used by the campaign and its processes.
//!
//! A key is `<kind>:<which>`, save for the reentrant lock's, of which there are several sorts (see `work.rs`). Of a group
//! each value is judged by itself, as `<key>/<value>`, and of several locks each lock. A semaphore is used for an era: what
//! takes permits away for good, or brings some twice, ends it, and the next one has a name of its own.

pub const KINDS: [&str; 11] = [
    "reentrant",
    "fair",
    "fenced",
    "readwrite",
    "spin",
    "nonreentrant",
    "value",
    "group",
    "semaphore",
    "expirable",
    "multi",
];

/// Rust processes.
pub const CLIENTS: u64 = 4;

/// In cells of 8 bytes.
pub const CELLS: usize = 1024;

/// Keys that are wanted one after the other, each for so long. None comes again before the longest lease has ended.
pub const PASSING: u64 = 128;
pub const PASSING_MS: u64 = 100;

/// The cells that tell the eras: that of semaphores, and that of the one whose permits Java takes as well. 0: there is
/// none.
pub const ERA: u64 = 62;
pub const JAVA_ERA: u64 = 63;
/// Of each semaphore.
pub const PERMITS: u32 = 3;

/// Of what a key has, a hold takes a share: a permit or more, all that there are, or as a reader next to nothing.
pub const READER: u64 = 1;
pub const WRITER: u64 = 1 << 20;

/// How much of a key may be taken at a time.
pub fn capacity(key: &str) -> u64 {
    match key.split(':').next() {
        Some("readwrite") => WRITER,
        Some("semaphore" | "javasemaphore" | "expirable") => PERMITS.into(),
        _ => 1,
    }
}

/// What a key is of, as a report has it.
pub fn kind(key: &str) -> &str {
    match key.split(':').next().unwrap_or(key) {
        "hot" | "own" | "fresh" | "kept" | "long" | "pair" | "duel" | "passing" => "reentrant",
        "javasemaphore" => "semaphore beside Java",
        kind => kind,
    }
}

/// The values of a group, and of these each hold has some.
pub const VALUES: [&str; 3] = ["a", "b", "c"];

/// For how long a waiter for a fair lock counts that is not heard of, in ms.
pub const FAIR_WAIT_MS: u64 = 100;

/// Of the `member`th thing that a kind's key guards.
pub fn cell(kind: &str, member: u64) -> u64 {
    64 + 8 * at(kind) + member
}

/// Of a key that is held for long.
pub fn long_cell(kind: &str, number: u64) -> u64 {
    256 + 16 * at(kind) + number
}

/// Of the keys that two clients contend for, that of a client.
pub fn of_rivals(index: u64) -> u64 {
    index / 2
}

/// Whether a key is held for longer than a lease, so that a waiter may wait for that long.
pub fn is_held_for_long(key: &str) -> bool {
    key.split(':').take(2).any(|part| part.starts_with("long"))
}

/// Of the keys that a client has for itself, one after the other.
pub fn fresh_cell(index: u64) -> u64 {
    448 + index
}

/// Of a key that is wanted for a moment.
pub fn passing_cell(number: u64) -> u64 {
    512 + number
}

fn at(kind: &str) -> u64 {
    KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u64
}
