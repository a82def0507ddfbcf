//! The keys of the campaign, and the cells that they guard. The campaign and its processes share this file.
//!
//! A key is `<kind>:<which>`. The reentrant lock has several sorts of keys instead (see `workload.rs`). Each value of a group is
//! judged separately, as `<key>/<value>`, and so is each member of a multi lock. A semaphore lasts for one generation: a
//! fault that may lose or duplicate permits ends the generation, and the next one has a new key.

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

/// The number of Rust processes.
pub const CLIENTS: u64 = 4;

/// The number of cells, of 8 bytes each.
pub const CELLS: usize = 1024;

/// Keys that are wanted one after another, each for this long. None recurs before the longest lease has ended.
pub const PASSING: u64 = 128;
pub const PASSING_MS: u64 = 100;

/// The cells with the current generation of the semaphores, and of the semaphore that Java shares. 0 means none.
pub const GENERATION_CELL: u64 = 62;
pub const JAVA_GENERATION_CELL: u64 = 63;
/// The permits of each semaphore.
pub const PERMITS: u32 = 3;

/// A hold takes a share of its key's capacity: a number of permits, the whole, or as a reader almost nothing.
pub const READER: u64 = 1;
pub const WRITER: u64 = 1 << 20;

/// The capacity of a key.
pub fn capacity(key: &str) -> u64 {
    match key.split(':').next() {
        Some("readwrite") => WRITER,
        Some("semaphore" | "javasemaphore" | "expirable") => PERMITS.into(),
        _ => 1,
    }
}

/// The kind of a key, as reports name it.
pub fn kind(key: &str) -> &str {
    match key.split(':').next().unwrap_or(key) {
        "hot" | "own" | "fresh" | "kept" | "long" | "pair" | "duel" | "passing" => "reentrant",
        "javasemaphore" => "semaphore shared with Java",
        kind => kind,
    }
}

/// The values of a group. Each hold takes some of them.
pub const VALUES: [&str; 3] = ["a", "b", "c"];

/// How long a fair lock keeps a silent waiter in its queue, in ms.
pub const FAIR_WAIT_MS: u64 = 100;

/// The cell of member `member` of a kind's key.
pub fn cell(kind: &str, member: u64) -> u64 {
    64 + 8 * at(kind) + member
}

/// The cell of a key that is held for long.
pub fn long_cell(kind: &str, number: u64) -> u64 {
    256 + 16 * at(kind) + number
}

/// The number of the key that a client and its rival contend for.
pub fn of_rivals(index: u64) -> u64 {
    index / 2
}

/// Whether a key is held for longer than a lease, so that waiters may wait as long.
pub fn is_held_for_long(key: &str) -> bool {
    key.split(':').take(2).any(|part| part.starts_with("long"))
}

/// The cell of a client's `fresh` and `kept` keys.
pub fn fresh_cell(index: u64) -> u64 {
    448 + index
}

/// The cell of a `passing` key.
pub fn passing_cell(number: u64) -> u64 {
    512 + number
}

fn at(kind: &str) -> u64 {
    KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u64
}
