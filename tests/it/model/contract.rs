//! The contract of the scripts: the effect of each request on a record, its reply and its messages.
//!
//! The model follows the truth table and the heads of the scripts, and not their implementation.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::record::{Content, End, Window};

pub const KEYS: [&str; 2] = ["orders", "stock"];
pub const CHANNELS: [&str; 2] = ["redisson_lock__channel:{orders}", "redisson_lock__channel:{stock}"];
/// The number of subscribers of each channel, not counting the subscription to all channels.
pub const SUBSCRIPTIONS: [i64; 2] = [0, 2];
/// The first two owners belong to one client, and hand the record to each other.
pub const OWNERS: [&str; 3] = [
    "11111111-1111-4111-8111-111111111111:1",
    "11111111-1111-4111-8111-111111111111:2",
    "22222222-2222-4222-8222-222222222222:1",
];

/// The cases that each request can find, with its reply. The part after `again` replaces one of them for a retry.
///
/// If the owner itself holds the record, its count is `expected`, `done` (the result of a first send) or `else`.
const CELLS: &str = "
acquire: nothing TAKEN, other BUSY, done STALE, else STALE, type WRONGTYPE; again done TAKEN
recount: nothing GONE, other OTHER, expected OK, done MISMATCH, else MISMATCH, type WRONGTYPE; again done OK
release: nothing GONE, other OTHER, expected FREED, else FREED, type WRONGTYPE
move: nothing GONE, other OTHER, expected MOVED, else MISMATCH, done OTHER, type WRONGTYPE; again done MOVED
renew: nothing 0, other -3, else 1, type -1
force-unlock: nothing 0, other 1, type WRONGTYPE
";

/// A request. Keys and owners are indices of the tables above; a count of `None` is the count in the record.
#[derive(Clone, Debug)]
pub enum Request {
    Acquire { key: usize, owner: usize, lease: i64 },
    Recount { key: usize, owner: usize, from: Option<i64>, by: i64, lease: i64 },
    Release { key: usize, owner: usize },
    Move { key: usize, from: usize, lease: i64 },
    Renew(Vec<(usize, usize, i64)>),
    ForceUnlock { key: usize },
}

/// The reply to a request.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    /// A success, which the script reports by this number alone.
    Done(&'static str, i64),
    Word(&'static str),
    Count(&'static str, i64),
    /// A word, with the time that the record has left.
    Left(&'static str, End),
    Number(i64),
    WrongType,
}

impl Request {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "acquire",
            Self::Recount { .. } => "recount",
            Self::Release { .. } => "release",
            Self::Move { .. } => "move",
            Self::Renew(_) => "renew",
            Self::ForceUnlock { .. } => "force-unlock",
        }
    }

    /// Whether the script distinguishes a retry from a first send.
    pub fn is_flagged(&self) -> bool {
        matches!(self, Self::Acquire { .. } | Self::Recount { .. } | Self::Move { .. })
    }
}

/// The expected count and the new count, which differs from it and is at least 1.
pub fn counts(from: Option<i64>, by: i64) -> (i64, i64) {
    let from = from.unwrap_or(1);
    (from, if from + by >= 1 { from + by } else { from + by.abs() })
}

impl Reply {
    pub fn word(&self) -> String {
        match self {
            Self::Word(word) | Self::Done(word, _) | Self::Count(word, _) | Self::Left(word, _) => {
                (*word).to_owned()
            }
            Self::Number(number) => number.to_string(),
            Self::WrongType => "WRONGTYPE".to_owned(),
        }
    }
}

/// The expected content and expiry of a key.
#[derive(Debug)]
pub struct Record {
    pub content: Content,
    pub end: End,
}

/// The relation of a record to the owner of a request.
#[derive(PartialEq)]
pub enum Found {
    Nothing,
    Other,
    Mine(i64),
    WrongType,
}

impl Record {
    pub const NOTHING: Self = Self { content: Content::Nothing, end: End::Never };

    pub fn find(&self, owner: usize) -> Found {
        match &self.content {
            Content::Nothing => Found::Nothing,
            Content::Hash(fields) => match fields.get(OWNERS[owner]) {
                Some(count) => Found::Mine(count.parse().unwrap()),
                None => Found::Other,
            },
            _ => Found::WrongType,
        }
    }

    pub fn set(&mut self, owner: &str, count: i64) {
        match &mut self.content {
            Content::Hash(fields) => drop(fields.insert(owner.to_owned(), count.to_string())),
            Content::Nothing => {
                *self = Self {
                    content: Content::Hash(BTreeMap::from([(owner.to_owned(), count.to_string())])),
                    end: End::Never,
                }
            }
            _ => {}
        }
    }

    /// Lets an existing record expire after `lease`, or not before that if `at_least`. A missing record stays missing.
    pub fn lives(&mut self, lease: i64, at_least: bool, asked: Window) {
        if self.content != Content::Nothing {
            self.end = if at_least { self.end.renewed(lease, asked) } else { End::after(lease, asked) };
        }
    }
}

/// The case that a request found, by its name in [`CELLS`], and its reply.
pub type Outcome = (&'static str, Reply);

#[derive(Debug)]
pub struct Model {
    pub records: [Record; 2],
    /// The expected messages, each with its channel.
    pub published: Vec<(String, String)>,
}

impl Model {
    pub fn new() -> Self {
        Self { records: [Record::NOTHING; 2], published: Vec::new() }
    }

    /// Applies a request that ran at `asked`, and returns its outcomes.
    pub fn answer(&mut self, request: &Request, repeated: bool, asked: Window) -> Vec<Outcome> {
        vec![match *request {
            Request::Acquire { key, owner, lease } => self.acquire(key, owner, lease, repeated, asked),
            Request::Recount { key, owner, from, by, lease } => {
                self.recount(key, owner, counts(from, by), lease, repeated, asked)
            }
            Request::Release { key, owner } => self.release(key, owner),
            Request::Move { key, from, lease } => self.hand_over(key, from, lease, repeated, asked),
            Request::Renew(ref batch) => {
                return batch
                    .iter()
                    .map(|&(key, owner, lease)| self.renew(key, owner, lease, asked))
                    .collect();
            }
            Request::ForceUnlock { key } => self.force_unlock(key),
        }]
    }

    fn acquire(&mut self, key: usize, owner: usize, lease: i64, repeated: bool, asked: Window) -> Outcome {
        let record = &mut self.records[key];
        let case = match record.find(owner) {
            Found::WrongType => return ("type", Reply::WrongType),
            Found::Other => return ("other", Reply::Left("BUSY", record.end)),
            Found::Mine(1) if !repeated => return ("done", Reply::Left("STALE", record.end)),
            Found::Mine(1) => "done",
            Found::Mine(_) => return ("else", Reply::Left("STALE", record.end)),
            Found::Nothing => "nothing",
        };
        record.set(OWNERS[owner], 1);
        record.lives(lease, case == "done", asked);
        (case, Reply::Done("TAKEN", 1))
    }

    fn recount(
        &mut self,
        key: usize,
        owner: usize,
        (from, to): (i64, i64),
        lease: i64,
        repeated: bool,
        asked: Window,
    ) -> Outcome {
        let record = &mut self.records[key];
        let case = match record.find(owner) {
            Found::WrongType => return ("type", Reply::WrongType),
            Found::Nothing => return ("nothing", Reply::Word("GONE")),
            Found::Other => return ("other", Reply::Word("OTHER")),
            Found::Mine(count) if count == from => "expected",
            Found::Mine(count) if count == to && repeated => "done",
            Found::Mine(count) => {
                return (if count == to { "done" } else { "else" }, Reply::Count("MISMATCH", count));
            }
        };
        record.set(OWNERS[owner], to);
        if lease > 0 {
            record.end = record.end.renewed(lease, asked);
        }
        (case, Reply::Done("OK", 1))
    }

    fn release(&mut self, key: usize, owner: usize) -> Outcome {
        let case = match self.records[key].find(owner) {
            Found::WrongType => return ("type", Reply::WrongType),
            Found::Nothing => return ("nothing", Reply::Word("GONE")),
            Found::Other => return ("other", Reply::Word("OTHER")),
            Found::Mine(1) => "expected",
            Found::Mine(_) => "else",
        };
        self.free(key);
        // The subscription to all channels counts, too.
        (case, Reply::Done("FREED", SUBSCRIPTIONS[key] + 1))
    }

    fn hand_over(&mut self, key: usize, from: usize, lease: i64, repeated: bool, asked: Window) -> Outcome {
        let to = 1 - from;
        let record = &mut self.records[key];
        let case = match record.find(from) {
            Found::WrongType => return ("type", Reply::WrongType),
            Found::Nothing => return ("nothing", Reply::Word("GONE")),
            Found::Other if record.find(to) != Found::Mine(1) => return ("other", Reply::Word("OTHER")),
            Found::Other if !repeated => return ("done", Reply::Word("OTHER")),
            Found::Other => "done",
            Found::Mine(1) => "expected",
            Found::Mine(_) => return ("else", Reply::Word("MISMATCH")),
        };
        if let Content::Hash(fields) = &mut record.content {
            fields.remove(OWNERS[from]);
        }
        record.set(OWNERS[to], 1);
        record.lives(lease, case == "done", asked);
        (case, Reply::Done("MOVED", SUBSCRIPTIONS[key]))
    }

    fn renew(&mut self, key: usize, owner: usize, lease: i64, asked: Window) -> Outcome {
        let record = &mut self.records[key];
        match record.find(owner) {
            Found::WrongType => ("type", Reply::Number(-1)),
            Found::Nothing => ("nothing", Reply::Number(0)),
            Found::Other => ("other", Reply::Number(-3)),
            Found::Mine(_) => {
                if lease > 0 {
                    record.end = record.end.renewed(lease, asked);
                }
                ("else", Reply::Number(1))
            }
        }
    }

    fn force_unlock(&mut self, key: usize) -> Outcome {
        match self.records[key].content {
            Content::Nothing => ("nothing", Reply::Number(0)),
            Content::Hash(_) => {
                self.free(key);
                ("other", Reply::Number(1))
            }
            _ => ("type", Reply::WrongType),
        }
    }

    fn free(&mut self, key: usize) {
        self.records[key] = Record::NOTHING;
        self.published.push((CHANNELS[key].into(), "0".into()));
    }
}

/// The cells of [`CELLS`], by the names under which the tests count them.
pub fn cells() -> BTreeSet<String> {
    let mut cells = BTreeSet::new();
    for line in CELLS.trim().lines() {
        let (request, rest) = line.split_once(": ").unwrap();
        let (first, again) =
            rest.split_once("; again ").map_or((rest, None), |(first, again)| (first, Some(again)));
        cells.extend(first.split(", ").map(|cell| format!("{request} {cell}")));
        let Some(again) = again else { continue };
        cells.insert(format!("again {request} {again}"));
        let same = first.split(", ").filter(|cell| cell.split(' ').next() != again.split(' ').next());
        cells.extend(same.map(|cell| format!("again {request} {cell}")));
    }
    cells
}
