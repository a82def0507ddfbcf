//! What the machine kept from one call. A thread that is ready to run and does not run waits in the kernel's run queue. A call
//! goes on in one thread at a time, so only the wait of that thread delays it. The sum over all threads would let a busy process
//! excuse any lateness. Used by the processes, and tested with the rules of the campaign.

/// A thread, and how long it has waited in the run queue up to now, in ns.
pub type Wait = (u64, u64);

/// The delay of one call, from one poll to the next.
#[derive(Debug, Default)]
pub struct Path {
    before: Vec<Wait>,
    pub delayed: u64,
}

impl Path {
    /// `waits` are those of all threads before the first poll.
    pub fn new(waits: Vec<Wait>) -> Self {
        Self { before: waits, delayed: 0 }
    }

    /// The call was polled by `thread`; `waits` are those of all threads after that.
    pub fn polled(&mut self, thread: u64, waits: Vec<Wait>) {
        let of = |waits: &[Wait]| waits.iter().find(|(of, _)| *of == thread).map(|(_, wait)| *wait);
        if let (Some(before), Some(after)) = (of(&self.before), of(&waits)) {
            self.delayed += after.saturating_sub(before);
        }
        self.before = waits;
    }
}
