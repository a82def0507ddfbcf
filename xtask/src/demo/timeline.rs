//! Writes the demo's holds as a trace and as a page. `xtask/contender.rs` does so with the library's `Timeline`, because a build of xtask
//! with the library would compile all of it a second time.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use super::{LOCK, contender};
use crate::paths::{at, target};

/// One line for each event: `<CLOCK_MONOTONIC in ns> <process> <owner> <change> <number of the hold> <time waited or held in ns>`.
#[derive(Default)]
pub struct Events {
    lines: String,
    holds: u64,
}

impl Events {
    /// The contender with this label begins a hold.
    pub fn acquired(&mut self, ns: u64, label: &str, waited_ns: u64) {
        self.holds += 1;
        self.add(ns, label, "acquired", waited_ns);
    }

    pub fn re_entered(&mut self, ns: u64, label: &str) {
        self.add(ns, label, "re-entered", 0);
    }

    pub fn released(&mut self, ns: u64, label: &str, held_ns: u64) {
        self.add(ns, label, "released", held_ns);
    }

    /// The lock has one hold at a time, and the events come in order, so an event belongs to the latest hold.
    fn add(&mut self, ns: u64, label: &str, change: &str, length_ns: u64) {
        let process = label.rsplit_once('/').map_or(label, |(process, _)| process);
        self.lines += &format!("{ns} {process} {label} {change} {} {length_ns}\n", self.holds);
    }

    /// Returns the paths of the trace and of the page.
    pub fn write(&self) -> Result<[PathBuf; 2], String> {
        let folder = target().join("demo");
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let paths = ["timeline.json", "timeline.html"].map(|file| folder.join(file));
        let mut writer = contender("run");
        writer.args(["--", "timeline", LOCK]).args(&paths);
        let failed = |error| format!("demo: the timeline could not be written: {error}");
        let mut writer = writer.stdin(Stdio::piped()).spawn().map_err(failed)?;
        let mut stdin = writer.stdin.take().expect("it is piped");
        stdin.write_all(self.lines.as_bytes()).map_err(failed)?;
        drop(stdin);
        match writer.wait().map_err(failed)? {
            status if status.success() => Ok(paths),
            status => Err(format!("demo: the timeline could not be written: {status}")),
        }
    }
}
