//! What happened, as the processes logged it and the campaign saw it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// One of the few words of which a log consists; kept once, and for ever.
pub type Word = &'static str;

/// A hold, as the process that had it tells. Times are in ns of the boot-time clock.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    pub process: Word,
    /// As the record has it; `-` where it is not told.
    pub owner: Word,
    pub key: Word,
    /// Fixed, in ms; 0 with a watchdog.
    pub lease_ms: u64,
    pub asked: u64,
    pub start: u64,
    /// The state then; `Java` where the process can't tell.
    pub first: Word,
    pub read: u64,
    pub written: u64,
    pub end: u64,
    /// Of the deadline, when the last state was read.
    pub left: u64,
    pub last: Word,
    /// The last deadline seen while the hold was live; 0 if none was.
    pub deadline: u64,
    /// When it was told to be lost; 0 if it was not.
    pub lost: u64,
    /// What the machine kept from the process just before.
    pub delayed: u64,
    pub outcome: Word,
    pub done: u64,
    /// 0 without one.
    pub token: u64,
    /// Of the key's capacity.
    pub share: u64,
    /// The last time at which its state was read as held; 0 if never, or where the process does not know.
    pub held: u64,
}

impl Hold {
    pub fn is_lost(&self) -> bool {
        self.last.starts_with("Lost") || self.outcome == "Lost" || self.outcome == "NotHeld"
    }
}

/// A call that must end on time, if it took longer than a moment or failed.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub process: Word,
    #[expect(dead_code, reason = "it is for whoever reads of a violation")]
    pub what: Word,
    pub start: u64,
    pub end: u64,
    /// 0 for none.
    pub limit_ms: u64,
    pub outcome: Word,
    pub delayed: u64,
}

/// A time in which a process was kept from running.
#[derive(Clone, Debug, Default)]
pub struct Stall {
    pub process: Word,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Beat {
    pub process: Word,
    /// Of the processes of that name, the how-manieth.
    pub life: usize,
    pub at: u64,
    pub resident_kb: u64,
    pub wall_s: u64,
}

/// A fault, as it was done.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub kind: Word,
    /// Whom it was for; `None` for everybody.
    pub process: Option<Word>,
    /// What it was for; none for every key.
    pub keys: Vec<String>,
    /// Before it was begun, when it had begun, before its end was begun, when it was over.
    pub from: u64,
    pub begun: u64,
    pub ending: u64,
    pub to: u64,
    /// From `begun` to `ending` no request that takes or renews a hold was confirmed.
    pub silent: bool,
    /// The records it was for were lost or freed; of a failover, those that the new master lacks.
    pub resets: bool,
    /// Of an eviction, the records that are known to be gone. `keys` has also those that a record beside them was taken from.
    pub evicted: Vec<String>,
    pub failover: Option<Failover>,
}

/// One server took another's place.
#[derive(Clone, Debug, Default)]
pub struct Failover {
    /// Before the old one was killed.
    pub killed: u64,
    /// The first slot and the last that it is about.
    pub slots: (u16, u16),
    /// What the new one had when the old one was gone, and nobody could write; and when that had been read.
    pub kept: Records,
    pub looked: u64,
    /// It had been cut off for a while.
    pub lag: bool,
}

impl Failover {
    /// Whether the new master has the record of a hold.
    pub fn keeps(&self, hold: &Hold) -> bool {
        let names = |text: &String| {
            let rest = text.strip_prefix(hold.owner);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        // The ids of permits are in a record beside the one that counts them; the hold has them one behind the other.
        if let Some(taken) = self.kept.0.get(&format!("{{{}}}:timeout", hold.key)) {
            let mut ids = hold.owner.as_bytes().chunks(16);
            return ids.all(|id| taken.iter().any(|text| text.as_bytes() == id));
        }
        let record = self.kept.0.get(record_of(hold.key));
        record.is_some_and(|texts| hold.owner == "-" || texts.iter().any(names))
    }
}

/// By key, the texts in it.
#[derive(Clone, Default)]
pub struct Records(pub HashMap<String, Vec<String>>);

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.0.len())
    }
}

/// Of a cluster; the first and the last of them all are what a server alone has.
pub fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
    let counted = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    let bit = |sum: u16| if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
    let byte = |sum: u16, byte: u8| (0..8).fold(sum ^ u16::from(byte) << 8, |sum, _| bit(sum));
    counted.bytes().fold(0, byte) % 16384
}

impl Window {
    pub fn is_about(&self, key: &str) -> bool {
        (self.keys.is_empty() || self.keys.iter().any(|of| of == record_of(key)))
            && self
                .failover
                .as_ref()
                .is_none_or(|failover| (failover.slots.0..=failover.slots.1).contains(&slot(record_of(key))))
    }

    /// Whether the record of a hold from before it was lost or freed.
    pub fn took(&self, key: &str) -> bool {
        match self.evicted.is_empty() {
            true => self.is_about(key),
            false => self.evicted.iter().any(|of| of == record_of(key)),
        }
    }

    /// The same of what may be lost with it: several locks are lost with one.
    pub fn concerns(&self, key: &str) -> bool {
        let of_several = self.failover.is_some() || self.keys.iter().any(|of| of.starts_with("multi:"));
        self.is_about(key) || of_several && key.starts_with("multi:")
    }

    /// Permits without a lease may be gone for good, or, where Java has some, be there twice: it sends a release again
    /// whose answer it did not get.
    pub fn spoils(&self, semaphore: &str) -> bool {
        // Which request took effect is no longer known where a mark was evicted.
        let takes = ["kill-client", "acl-publish"].contains(&self.kind) || !self.evicted.is_empty();
        // The new master may lack a release.
        let frees = self.resets || self.failover.is_some();
        takes || frees && self.is_about(semaphore) || semaphore.starts_with("java") && self.hits("java")
    }

    /// From when on records may be gone.
    pub fn lost_at(&self) -> u64 {
        self.failover.as_ref().map_or(self.from, |failover| failover.killed)
    }

    pub fn hits(&self, process: &str) -> bool {
        self.process.is_none_or(|of| of == process)
    }
}

/// Of the values of a group, the group; of anything else itself.
pub fn record_of(key: &str) -> &str {
    key.split('/').next().unwrap_or(key)
}

/// When a semaphore was made.
#[derive(Clone, Debug, Default)]
pub struct Era {
    pub key: String,
    pub began: u64,
}

/// Of a semaphore, in the end.
#[derive(Clone, Debug, Default)]
pub struct Permits {
    pub key: String,
    pub free: i64,
}

#[derive(Default)]
pub struct History {
    pub lease_ns: u64,
    /// Acquires counted once a replica had them.
    pub replicated: bool,
    pub holds: Vec<Hold>,
    pub calls: Vec<Call>,
    pub stalls: Vec<Stall>,
    pub beats: Vec<Beat>,
    /// In the order of their times.
    pub windows: Vec<Window>,
    /// The Rust processes.
    pub clients: Vec<Word>,
    pub kinds: Vec<Word>,
    pub eras: Vec<Era>,
    pub permits: Vec<Permits>,
    /// The Redisson beside them fails to renew its readers' holds once one counts 2, which an acquire that it sends again
    /// does; then it frees the lock for everybody (3.44 to 3.52).
    pub java_frees_readers: bool,
    /// From when on the processes had warmed up: a JVM that has just begun keeps the others from running.
    pub warm: u64,
    /// When the work was told to stop.
    pub stopped: u64,
}

impl History {
    /// The faults that were there at some time between two: each begins when the one before is over.
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
            let mut lives = HashMap::new();
            for line in text.lines() {
                self.take(&name, line, &mut lives).ok_or_else(|| format!("{name}: cannot read {line:?}"))?;
            }
        }
        self.holds.sort_by_key(|hold| hold.start);
        Ok(())
    }

    fn take(&mut self, name: &str, line: &str, lives: &mut HashMap<String, (usize, u64)>) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let text = |at: usize| words.get(at).map(|word| kept(word));
        fn number<T: FromStr>(words: &[&str], at: usize) -> Option<T> {
            words.get(at)?.parse().ok()
        }
        let number = |at| number::<u64>(&words, at);
        match *words.first()? {
            "hold" => self.holds.push(Hold {
                process: text(1)?,
                owner: text(3)?,
                key: text(4)?,
                lease_ms: number(6)?,
                asked: number(7)?,
                start: number(8)?,
                first: text(9)?,
                read: number(10)?,
                written: number(11)?,
                end: number(12)?,
                left: number(13)?,
                last: text(14)?,
                deadline: number(15)?,
                lost: number(16)?,
                delayed: number(17)?,
                outcome: text(18)?,
                done: number(19)?,
                token: number(20)?,
                share: number(21)?,
                held: number(22).unwrap_or_default(),
            }),
            "call" => self.calls.push(Call {
                process: text(1)?,
                start: number(4)?,
                end: number(5)?,
                limit_ms: number(6)?,
                what: text(3)?,
                outcome: text(7)?,
                delayed: number(8)?,
            }),
            "stall" => self.stalls.push(Stall { process: text(1)?, from: number(2)?, to: number(3)? }),
            "beat" => {
                let holds = number(2)?;
                let life = lives.entry(name.to_owned()).or_default();
                // A new process counts from the beginning.
                *life = (life.0 + usize::from(holds < life.1), holds);
                self.beats.push(Beat {
                    process: kept(name),
                    life: life.0,
                    at: number(1)?,
                    resident_kb: number(4)?,
                    wall_s: number(7)?,
                });
            }
            "note" => {}
            _ => return None,
        }
        Some(())
    }
}

pub fn kept(word: &str) -> Word {
    static WORDS: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(word) {
        return known;
    }
    let word: Word = Box::leak(word.to_owned().into_boxed_str());
    words.insert(word);
    word
}
