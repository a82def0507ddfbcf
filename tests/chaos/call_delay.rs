//! Measures for how long the machine delayed one call. A thread that is ready but not running waits in the kernel's run
//! queue. A call runs in one thread at a time, so only that thread's waits delay it. The sum over all threads would let a
//! busy process excuse any delay. The processes use this file, and `check_tests.rs` tests it.

/// A thread, and its total wait in the run queue so far, in ns.
pub type Wait = (u64, u64);

/// The delay of one call, summed from poll to poll.
#[derive(Debug, Default)]
pub struct CallDelay {
    before: Vec<Wait>,
    pub delayed: u64,
}

impl CallDelay {
    /// `waits` are those of all threads before the first poll.
    pub fn new(waits: Vec<Wait>) -> Self {
        Self { before: waits, delayed: 0 }
    }

    /// `thread` has polled the call; `waits` are those of all threads after that.
    pub fn polled(&mut self, thread: u64, waits: Vec<Wait>) {
        let of = |waits: &[Wait]| waits.iter().find(|(of, _)| *of == thread).map(|(_, wait)| *wait);
        if let (Some(before), Some(after)) = (of(&self.before), of(&waits)) {
            self.delayed += after.saturating_sub(before);
        }
        self.before = waits;
    }
}
