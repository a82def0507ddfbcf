//! The semaphores of a campaign, one generation after another. A permit without a lease is lost with its process, and nobody
//! can detect that. So a fault that may lose or duplicate permits retires the semaphore, and the clients use a new one from
//! then on.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::history::{Generation, Window};
use super::keys::{GENERATION_CELL, JAVA_GENERATION_CELL, PERMITS};
use super::now;
use super::servers::Servers;

const TIMEOUT: Duration = Duration::from_secs(10);

pub struct Generations {
    cells: File,
    kinds: Vec<&'static str>,
    with_java: bool,
    last: u64,
    pub started: Vec<Generation>,
}

impl Generations {
    pub fn open(folder: &Path, kinds: &[&'static str], with_java: bool) -> Result<Self, String> {
        let cells = OpenOptions::new().write(true).open(folder.join("cells"));
        let cells = cells.map_err(|error| format!("cells: {error}"))?;
        Ok(Self { cells, kinds: kinds.to_vec(), with_java, last: 0, started: Vec::new() })
    }

    pub fn start(&mut self, servers: &Servers) -> Result<(), String> {
        self.create(servers, &["semaphore", "expirable"], GENERATION_CELL)?;
        self.create(servers, if self.with_java { &["javasemaphore"] } else { &[] }, JAVA_GENERATION_CELL)
    }

    /// Starts a new generation of each semaphore that the fault may have affected.
    pub fn renew_after(&mut self, servers: &Servers, window: &Window) -> Result<(), String> {
        if window.spoils_permits("semaphore:") {
            self.create(servers, &["semaphore", "expirable"], GENERATION_CELL)?;
        }
        if self.with_java && window.spoils_permits("javasemaphore:") {
            self.create(servers, &["javasemaphore"], JAVA_GENERATION_CELL)?;
        }
        Ok(())
    }

    fn create(&mut self, servers: &Servers, names: &[&str], cell: u64) -> Result<(), String> {
        self.last += 1;
        let mut used = false;
        for name in names {
            if !self.kinds.contains(&name.trim_start_matches("java")) {
                continue;
            }
            let key = format!("{name}:{}", self.last);
            let began = now();
            servers.master_of(&key).call(&["SET", &key, &PERMITS.to_string()], TIMEOUT)?;
            self.started.push(Generation { key, began });
            used = true;
        }
        let generation = if used { self.last } else { 0 };
        self.cells
            .write_all_at(&generation.to_be_bytes(), cell * 8)
            .map_err(|error| format!("cells: {error}"))
    }
}
