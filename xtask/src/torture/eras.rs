//! The eras of the semaphores. A permit without a lease is gone with the process that had it, and nobody can tell; what
//! ends so, or may have, is left to itself, and a new semaphore is used from then on.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::history::{Era, Window};
use super::keys::{ERA, JAVA_ERA, PERMITS};
use super::now;
use super::servers::Servers;

const PATIENCE: Duration = Duration::from_secs(10);

pub struct Eras {
    cells: File,
    kinds: Vec<&'static str>,
    with_java: bool,
    last: u64,
    pub begun: Vec<Era>,
}

impl Eras {
    pub fn open(folder: &Path, kinds: &[&'static str], with_java: bool) -> Result<Self, String> {
        let cells = OpenOptions::new().write(true).open(folder.join("cells"));
        let cells = cells.map_err(|error| format!("cells: {error}"))?;
        Ok(Self { cells, kinds: kinds.to_vec(), with_java, last: 0, begun: Vec::new() })
    }

    pub fn begin(&mut self, servers: &Servers) -> Result<(), String> {
        self.make(servers, &["semaphore", "expirable"], ERA)?;
        self.make(servers, if self.with_java { &["javasemaphore"] } else { &[] }, JAVA_ERA)
    }

    /// Begins another era of what the fault may have spoilt.
    pub fn go_on(&mut self, servers: &Servers, window: &Window) -> Result<(), String> {
        if window.spoils("semaphore:") {
            self.make(servers, &["semaphore", "expirable"], ERA)?;
        }
        if self.with_java && window.spoils("javasemaphore:") {
            self.make(servers, &["javasemaphore"], JAVA_ERA)?;
        }
        Ok(())
    }

    fn make(&mut self, servers: &Servers, names: &[&str], cell: u64) -> Result<(), String> {
        self.last += 1;
        let mut used = false;
        for name in names {
            if !self.kinds.contains(&name.trim_start_matches("java")) {
                continue;
            }
            let key = format!("{name}:{}", self.last);
            let began = now();
            servers.of(&key).ask(&["SET", &key, &PERMITS.to_string()], PATIENCE)?;
            self.begun.push(Era { key, began });
            used = true;
        }
        let era = if used { self.last } else { 0 };
        self.cells.write_all_at(&era.to_be_bytes(), cell * 8).map_err(|error| format!("cells: {error}"))
    }
}
