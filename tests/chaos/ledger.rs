//! The cells that the locks guard, and the log of each process. No fault touches either.
//!
//! A cell is 8 bytes of a file. It is read and written separately, and only the lock protects it. Every write is a unique
//! number, so a reader can tell who wrote it. A log line is one write to an append-only file, so a killed process loses no
//! line.

use crate::Failure;
use crate::call_delay::{CallDelay, Wait};
use redisson_lock::{Error, HoldState};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{DirEntry, File, OpenOptions};
use std::future::{Future, poll_fn};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Ledger {
    /// The name of the process in the log.
    pub name: String,
    cells: File,
    log: File,
    last: AtomicU64,
    pub holds: AtomicU64,
    pub lost: AtomicU64,
}

impl Ledger {
    /// `number` is never reused.
    pub fn open(folder: &Path, name: &str, number: u64) -> Result<Self, Failure> {
        Ok(Self {
            name: name.to_owned(),
            cells: OpenOptions::new().read(true).write(true).open(folder.join("cells"))?,
            log: OpenOptions::new().append(true).create(true).open(folder.join(format!("{name}.log")))?,
            last: AtomicU64::new(number << 40),
            holds: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    pub fn read(&self, cell: u64) -> u64 {
        let mut bytes = [0; 8];
        self.cells.read_exact_at(&mut bytes, cell * 8).expect("the file of cells exists");
        u64::from_be_bytes(bytes)
    }

    /// Writes a new number, and returns it.
    pub fn write(&self, cell: u64) -> u64 {
        let value = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.cells.write_all_at(&value.to_be_bytes(), cell * 8).expect("the file of cells exists");
        value
    }

    pub fn log(&self, line: &str) {
        (&self.log).write_all(format!("{line}\n").as_bytes()).expect("the log is writable");
    }
}

/// Awaits a call, and measures for how long the machine delayed it, in ns.
pub async fn measured<T>(call: impl Future<Output = T>) -> (T, u64) {
    let mut delay = CallDelay::new(waits());
    let mut call = pin!(call);
    let outcome = poll_fn(|cx| {
        let polled = call.as_mut().poll(cx);
        delay.polled(this_thread(), waits());
        polled
    });
    (outcome.await, delay.delayed)
}

/// How long each thread has waited in the run queue. Covers the threads that exist at the first call: those of the runtime.
pub fn waits() -> Vec<Wait> {
    static THREADS: OnceLock<Vec<(u64, File)>> = OnceLock::new();
    let threads = THREADS.get_or_init(|| {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let thread = |task: DirEntry| {
            let id = task.file_name().to_str()?.parse().ok()?;
            Some((id, File::open(task.path().join("schedstat")).ok()?))
        };
        tasks.filter_map(thread).collect()
    });
    let wait = |thread: &File| -> Option<u64> {
        let mut bytes = [0; 80];
        let length = thread.read_at(&mut bytes, 0).ok()?;
        std::str::from_utf8(&bytes[..length]).ok()?.split(' ').nth(1)?.parse().ok()
    };
    threads.iter().filter_map(|(id, thread)| Some((*id, wait(thread)?))).collect()
}

/// The kernel's id of this thread.
fn this_thread() -> u64 {
    thread_local! {
        static ID: u64 = std::fs::read_link("/proc/thread-self")
            .ok()
            .and_then(|link| link.file_name()?.to_str()?.parse().ok())
            .unwrap_or_default();
    }
    ID.with(|id| *id)
}

/// A clock that all processes of the host share, and that advances while the host sleeps.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub fn state_word(state: HoldState) -> String {
    match state {
        HoldState::Lost(reason) => format!("Lost-{reason:?}"),
        other => format!("{other:?}"),
    }
}

pub fn error_word(error: &Error) -> String {
    match error {
        Error::Refused { code, .. } => format!("Refused-{code}"),
        Error::Lost { reason, .. } => format!("Lost-{reason:?}"),
        other => format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
    }
}
