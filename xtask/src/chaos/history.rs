//! The events of a campaign, read from the logs of the processes and from the campaign itself.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use super::witness::NamedJava;
use super::word::{Word, intern};

/// One hold, as its process logged it. Times are in ns of the boot-time clock.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    pub process: Word,
    /// The owner id in the record; `-` where unknown.
    pub owner: Word,
    pub key: Word,
    /// The fixed lease in ms; 0 with a watchdog.
    pub lease_ms: u64,
    pub asked: u64,
    pub start: u64,
    /// The state at the start; `Java` for a Java hold, which reports none.
    pub first: Word,
    pub read: u64,
    pub written: u64,
    pub end: u64,
    /// The time left to the deadline when the state was last read.
    pub left: u64,
    pub last: Word,
    /// The last deadline read while the hold was live; 0 if none was.
    pub deadline: u64,
    /// When the loss was reported; 0 if it was not.
    pub lost: u64,
    /// For how long the machine delayed the process just before.
    pub delayed: u64,
    pub outcome: Word,
    pub done: u64,
    /// The fencing token; 0 without one.
    pub token: u64,
    /// The share of the key's capacity.
    pub share: u64,
    /// The last time that the state was read as held; 0 if never or unknown.
    pub held: u64,
}

impl Hold {
    pub fn is_lost(&self) -> bool {
        self.last.starts_with("Lost") || self.outcome.starts_with("Lost") || self.outcome == "NotHeld"
    }
}

/// A call with a time limit that took longer than 20 ms or failed.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub process: Word,
    #[expect(dead_code, reason = "shown in the text of a violation")]
    pub what: Word,
    pub start: u64,
    pub end: u64,
    /// 0 without a limit.
    pub limit_ms: u64,
    pub outcome: Word,
    pub delayed: u64,
}

/// A period in which the machine kept a process from running.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    pub process: Word,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Beat {
    pub process: Word,
    /// The number of restarts of the process before this one.
    pub incarnation: usize,
    pub at: u64,
    pub resident_kb: u64,
    pub wall_s: u64,
}

/// The counters of a Rust process that has ended all its work.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub process: Word,
    pub at: u64,
    pub begun: u64,
    pub released: u64,
    pub lost: u64,
    pub unended: u64,
    /// The holds and the calls that the counters say are left.
    pub left: u64,
}

/// A fault, with the times at which it was injected and removed.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub kind: Word,
    /// The process that it was for; `None` for all.
    pub process: Option<Word>,
    /// The keys that it was for; empty for all.
    pub keys: Vec<String>,
    /// Before the fault was injected, once it was in effect, before it was removed, once it was over.
    pub from: u64,
    pub begun: u64,
    pub ending: u64,
    pub to: u64,
    /// The server confirmed no acquire and no renewal from `begun` to `ending`.
    pub silent: bool,
    /// The records of `keys` were lost or freed. For a failover: those that the new master lacks.
    pub loses_records: bool,
    /// For an eviction, the records known to be evicted. `keys` also names the locks whose auxiliary keys were evicted.
    pub evicted: Vec<String>,
    pub failover: Option<Failover>,
}

/// A replica replaced its master.
#[derive(Clone, Debug, Default)]
pub struct Failover {
    /// The time before the old master was killed.
    pub killed: u64,
    /// The first and last slot of the master.
    pub slots: (u16, u16),
    /// The records of the new master after the kill, while nobody could write; and when they had been read.
    pub records: Records,
    pub read_at: u64,
    /// The replica had been cut off for a while.
    pub lag: bool,
}

impl Failover {
    /// Whether the new master has the record of a hold.
    pub fn has_record_of(&self, hold: &Hold) -> bool {
        let is_owner = |string: &String| {
            let rest = string.strip_prefix(hold.owner);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        // The ids of permits are in an auxiliary key. The hold has its ids concatenated.
        if let Some(taken) = self.records.0.get(&format!("{{{}}}:timeout", hold.key)) {
            let mut ids = hold.owner.as_bytes().chunks(16);
            return ids.all(|id| taken.iter().any(|string| string.as_bytes() == id));
        }
        let record = self.records.0.get(record_of(hold.key));
        record.is_some_and(|strings| hold.owner == "-" || strings.iter().any(is_owner))
    }
}

/// The strings in each key: owner ids, counts and modes.
#[derive(Clone, Default)]
pub struct Records(pub HashMap<String, Vec<String>>);

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.0.len())
    }
}

/// The cluster slot of a key. A single server serves all slots.
pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
    let counted = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let bit = |sum: u16| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
    let byte = |sum: u16, byte: u8| (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| bit(sum));
    counted.bytes().fold(0, byte) % 16384
}

impl Window {
    pub fn affects(&self, key: &str) -> bool {
        (self.keys.is_empty() || self.keys.iter().any(|of| of == record_of(key)))
            && self
                .failover
                .as_ref()
                .is_none_or(|failover| (failover.slots.0..=failover.slots.1).contains(&slot(record_of(key))))
    }

    /// Whether this fault removed or freed the record of a hold.
    pub fn removed(&self, key: &str) -> bool {
        match self.evicted.is_empty() {
            true => self.affects(key),
            false => self.evicted.iter().any(|of| of == record_of(key)),
        }
    }

    /// Like `affects`, but includes multi locks, which are lost with any of their members.
    pub fn concerns(&self, key: &str) -> bool {
        let of_several = self.failover.is_some() || self.keys.iter().any(|of| of.starts_with("multi:"));
        self.affects(key) || of_several && key.starts_with("multi:")
    }

    /// Whether this fault may remove permits without a lease, or duplicate those shared with Java, because Redisson repeats
    /// an unanswered release.
    pub fn spoils_permits(&self, semaphore: &str) -> bool {
        // Once a mark is evicted, it is unknown which request took effect.
        let takes = ["kill-client", "acl-publish"].contains(&self.kind) || !self.evicted.is_empty();
        // The new master may lack a release.
        let frees = self.loses_records || self.failover.is_some();
        takes || frees && self.affects(semaphore) || semaphore.starts_with("java") && self.hits("java")
    }

    /// The earliest time at which records may be gone.
    pub fn lost_at(&self) -> u64 {
        self.failover.as_ref().map_or(self.from, |failover| failover.killed)
    }

    pub fn hits(&self, process: &str) -> bool {
        self.process.is_none_or(|of| of == process)
    }
}

/// The key of the record: the group for a value of a group, else the key itself.
pub fn record_of(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}

/// A semaphore, and when it was created.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    pub key: String,
    pub began: u64,
}

/// The free permits of a semaphore at the end.
#[derive(Clone, Debug, Default)]
pub struct Permits {
    pub key: String,
    pub free: i64,
}

#[derive(Default)]
pub struct History {
    pub lease_ns: u64,
    /// An acquire counted only once a replica had it.
    pub replicated: bool,
    pub holds: Vec<Hold>,
    pub calls: Vec<Call>,
    pub stalls: Vec<Stall>,
    pub beats: Vec<Beat>,
    pub counted: Vec<Counted>,
    /// Ordered by time.
    pub windows: Vec<Window>,
    /// The Rust processes.
    pub clients: Vec<Word>,
    pub kinds: Vec<Word>,
    pub generations: Vec<Generation>,
    pub permits: Vec<Permits>,
    /// When the records of shared locks named Redisson.
    pub named_java: Vec<NamedJava>,
    /// The Redisson in this campaign (3.44 to 3.52) fails to renew its readers once one counts 2, which a repeated acquire
    /// causes, and then frees the lock for everybody.
    pub java_frees_readers: bool,
    /// When the processes had warmed up. A starting JVM keeps the others from running.
    pub warm: u64,
    /// When the clients were asked to stop.
    pub stopped: u64,
}

impl History {
    /// The faults that were active in this period. Faults never overlap.
    pub fn windows_between(&self, from: u64, to: u64) -> &[Window] {
        let first = self.windows.partition_point(|window| window.to < from);
        let last = self.windows.partition_point(|window| window.from <= to);
        &self.windows[first..last.max(first)]
    }

    /// Reads every log of a folder.
    pub fn read(&mut self, folder: &Path) -> Result<(), String> {
        let problem = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(folder).map_err(problem)? {
            let path = entry.map_err(problem)?.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).map_err(problem)?;
            let mut incarnations = HashMap::new();
            for line in text.lines() {
                self.take(&name, line, &mut incarnations)
                    .ok_or_else(|| format!("{name}: cannot read {line:?}"))?;
            }
        }
        self.holds.sort_by_key(|hold| hold.start);
        Ok(())
    }

    fn take(
        &mut self,
        name: &str,
        line: &str,
        incarnations: &mut HashMap<String, (usize, u64)>,
    ) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |at: usize| words.get(at).map(|word| intern(word));
        fn number<T: FromStr>(words: &[&str], at: usize) -> Option<T> {
            words.get(at)?.parse().ok()
        }
        let number = |at| number::<u64>(&words, at);
        match *words.first()? {
            "hold" => self.holds.push(Hold {
                process: word(1)?,
                owner: word(3)?,
                key: word(4)?,
                lease_ms: number(6)?,
                asked: number(7)?,
                start: number(8)?,
                first: word(9)?,
                read: number(10)?,
                written: number(11)?,
                end: number(12)?,
                left: number(13)?,
                last: word(14)?,
                deadline: number(15)?,
                lost: number(16)?,
                delayed: number(17)?,
                outcome: word(18)?,
                done: number(19)?,
                token: number(20)?,
                share: number(21)?,
                held: number(22).unwrap_or_default(),
            }),
            "call" => self.calls.push(Call {
                process: word(1)?,
                start: number(4)?,
                end: number(5)?,
                limit_ms: number(6)?,
                what: word(3)?,
                outcome: word(7)?,
                delayed: number(8)?,
            }),
            "stall" => self.stalls.push(Stall { process: word(1)?, from: number(2)?, to: number(3)? }),
            "beat" => {
                let holds = number(2)?;
                let incarnation = incarnations.entry(name.to_owned()).or_default();
                // The counter restarts with each new process.
                *incarnation = (incarnation.0 + usize::from(holds < incarnation.1), holds);
                self.beats.push(Beat {
                    process: intern(name),
                    incarnation: incarnation.0,
                    at: number(1)?,
                    resident_kb: number(4)?,
                    wall_s: number(7)?,
                });
            }
            "counted" => self.counted.push(Counted {
                process: word(1)?,
                at: number(2)?,
                begun: number(3)?,
                released: number(4)?,
                lost: number(5)?,
                unended: number(6)?,
                left: number(7)?,
            }),
            "note" => {}
            _ => return None,
        }
        Some(())
    }
}
