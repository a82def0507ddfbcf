//! The terminal's foreground job.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::stdio::stdin;
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;

/// Whether the program may become the foreground job: standard input is the terminal, and this process is in the foreground.
///
/// In front of a pipe the other commands of the pipeline are the foreground job, and must stay it.
pub fn is_ours() -> bool {
    has_foreground(getpgrp()) && !writes_to_pipe()
}

/// Whether the group is the foreground job of the terminal.
pub fn has_foreground(group: Pid) -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground == group)
}

/// Makes the group the foreground job, if standard input is the terminal. A group that has ended changes nothing.
pub fn give_to(group: Pid) {
    // Otherwise SIGTTOU would stop a caller in the background.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let earlier = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let _ = tcsetpgrp(stdin(), group);
    if let Ok(earlier) = earlier {
        let _ = earlier.thread_set_mask();
    }
}

fn writes_to_pipe() -> bool {
    let copy = std::io::stdout().as_fd().try_clone_to_owned();
    copy.and_then(|copy| File::from(copy).metadata()).is_ok_and(|output| output.file_type().is_fifo())
}
