//! Injects each kind of fault, and removes it.

use std::fs;
use std::io::BufRead;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::evictions;
use super::generations::Generations;
use super::history::Window;
use super::keys;
use super::now;
use super::processes::{PASSWORD, Recipe};
use super::random::Random;
use super::schedule::Fault;
use super::servers::Servers;
use super::word::intern;
use crate::process::Process;
use crate::server::Server;

/// How long the server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Extra keys that slow down a reload, and its approximate duration in us.
const FILLERS: usize = 50;
const LOAD_US: usize = 1_000_000;

/// Everything that faults act on.
pub struct Testbed {
    pub servers: Servers,
    /// In front of a single server. Several servers have no proxy.
    pub proxy: Option<Process>,
    /// One for each client.
    pub urls: Vec<String>,
    pub clients: Vec<Process>,
    /// How many clients were ever started.
    pub started: u64,
    pub recipe: Recipe,
    pub generations: Generations,
}

impl Testbed {
    /// Injects the fault, and removes it.
    pub fn inflict(&mut self, fault: &Fault) -> Result<Window, String> {
        let mut window = Window { kind: fault.kind, from: now(), ..Window::default() };
        let lasts = Duration::from_millis(fault.lasts_ms);
        let target = fault.target.map_or("*".to_owned(), |index| index.to_string());
        let one = fault.target.unwrap_or(fault.choice as usize % self.clients.len());
        let for_one =
            |window: &mut Window| window.process = fault.target.map(|index| intern(&format!("rust{index}")));
        match fault.kind {
            "kill-server" => {
                window.loses_records = true;
                self.servers.kill();
                self.wait(&mut window, lasts);
                self.servers.start_again()?;
            }
            "stop-server" | "stop-server-short" => {
                window.silent = true;
                self.server().signal(Signal::STOP)?;
                self.wait(&mut window, lasts);
                self.server().signal(Signal::CONT)?;
            }
            "drop-normal" => self.run("CLIENT KILL TYPE normal")?,
            "drop-pubsub" => self.run("CLIENT KILL TYPE pubsub")?,
            "cut" | "deaf" | "half-open" | "half-open-pubsub" | "lose-reply" => {
                for_one(&mut window);
                window.silent = fault.kind == "half-open";
                let fault_name = match fault.kind {
                    "cut" => "cut",
                    "deaf" => "deaf",
                    "half-open" => "dark",
                    "lose-reply" => "lose",
                    _ => "dark-pubsub",
                };
                self.proxy(&target, fault_name)?;
                self.wait(&mut window, lasts);
                self.proxy(&target, "light")?;
            }
            "latency" => {
                for_one(&mut window);
                let mut random = Random::new(fault.choice);
                for _ in 0..fault.lasts_ms / 50 {
                    self.proxy(&target, &format!("delay {}", random.between(0, 60)))?;
                    thread::sleep(Duration::from_millis(50));
                }
                self.proxy(&target, "delay 0")?;
            }
            "late-request" => {
                for_one(&mut window);
                self.proxy(&target, "hold")?;
                thread::sleep(Duration::from_millis(100));
                self.proxy(&target, "hangup")?;
                self.wait(&mut window, lasts);
                self.proxy(&target, "pass")?;
            }
            "half-frame" => {
                for_one(&mut window);
                self.proxy(
                    &target,
                    if fault.choice.is_multiple_of(2) { "half-request" } else { "half-reply" },
                )?;
                self.wait(&mut window, lasts);
            }
            "script-flush" => self.run("SCRIPT FLUSH")?,
            "pause" => {
                window.silent = true;
                self.run(&format!("CLIENT PAUSE {} WRITE", fault.lasts_ms))?;
                window.begun = now();
                thread::sleep(lasts.saturating_sub(Duration::from_millis(10)));
                window.ending = now();
                thread::sleep(Duration::from_millis(10));
                self.run("CLIENT UNPAUSE")?;
            }
            "sleep" => {
                window.silent = true;
                let asked = self.server().send(&["DEBUG", "SLEEP", &lasts.as_secs_f64().to_string()])?;
                self.wait(&mut window, lasts - Duration::from_millis(50));
                drop(asked);
                self.run("PING")?;
            }
            "oom" => self.toggle("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", &mut window, lasts)?,
            "string" => {
                let number = keys::of_rivals(one as u64);
                window.keys = self.keys_of("long", &format!("long:{number}"), &number.to_string());
                window.loses_records = true;
                let (set, delete) = (window.keys.join(" x "), window.keys.join(" "));
                self.toggle(&format!("MSET {set} x"), &format!("DEL {delete}"), &mut window, lasts)?;
            }
            "readonly" => {
                window.silent = true;
                self.toggle("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", &mut window, lasts)?;
            }
            "loading" => self.load(&mut window)?,
            "acl-publish" => {
                let (take, give) = ("ACL SETUSER chaos -publish", "ACL SETUSER chaos +publish");
                self.toggle(take, give, &mut window, lasts)?;
            }
            "password" => {
                window.silent = true;
                self.run("ACL SETUSER chaos resetpass >second")?;
                self.run("CLIENT KILL USER chaos")?;
                self.wait(&mut window, lasts);
                self.run(&format!("ACL SETUSER chaos >{PASSWORD}"))?;
            }
            "stop-client" => {
                window.process = Some(intern(&self.clients[one].label));
                self.clients[one].signal(Signal::STOP)?;
                self.wait(&mut window, lasts);
                self.clients[one].signal(Signal::CONT)?;
            }
            "kill-client" => {
                window.process = Some(intern(&self.clients[one].label));
                self.clients[one].kill()?;
                self.clients[one] = self.recipe.client(one, self.started, &self.urls[one])?;
                self.started += 1;
                self.clients[one].wait_for("ready", TIMEOUT)?;
            }
            "force-unlock" => {
                let number = keys::of_rivals(one as u64);
                let keys = ["hot:0".to_owned(), "hot:1".to_owned(), format!("long:{number}")];
                let key = &keys[(fault.choice >> 8) as usize % keys.len()];
                window.loses_records = true;
                window.keys = self.keys_of("hot", key, "");
                for key in &window.keys {
                    self.clients[one].send(&format!("force {key}"))?;
                    let outcome = self.clients[one].wait_for("forced", TIMEOUT)?;
                    if outcome == "Ambiguous" {
                        return Err(format!("force_unlock of {key} returned {outcome} without a fault"));
                    }
                }
            }
            "busy" => {
                window.silent = true;
                let mut endless = self.server().send(&["EVAL", "while true do end", "0"])?;
                thread::sleep(Duration::from_millis(200));
                self.wait(&mut window, lasts);
                self.run("SCRIPT KILL")?;
                // The script ends with an error when it is killed.
                let ended = endless.read_line(&mut String::new());
                ended.map_err(|error| format!("the endless script: {error}"))?;
            }
            "clock" => {
                window.process = Some(intern(&self.clients[0].label));
                let by = if fault.choice.is_multiple_of(2) { 3600 } else { -86_400 };
                self.move_clock(by)?;
                self.wait(&mut window, lasts);
                self.move_clock(0)?;
            }
            "starve" => {
                window.process = Some(intern(&self.clients[one].label));
                window.begun = now();
                self.clients[one].send(&format!("starve {}", fault.lasts_ms))?;
                self.clients[one].wait_for("starved", TIMEOUT)?;
                window.ending = now();
            }
            "drop-runtime" => {
                self.clients[one].send(&format!("drop-runtime {}", 1 + fault.choice % 40))?;
                self.clients[one].wait_for("dropped", TIMEOUT)?;
            }
            "evict" => {
                window.loses_records = true;
                self.run("CONFIG SET maxmemory-policy allkeys-random")?;
                self.toggle("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", &mut window, lasts)?;
                self.run("CONFIG SET maxmemory-policy noeviction")?;
            }
            volatile if volatile.starts_with("evict-volatile-") => {
                let policy = volatile.trim_start_matches("evict-");
                evictions::evict(self.server(), policy, lasts, &mut window)?;
                let locks = self.recipe.kinds.contains(&"reentrant");
                if locks && !window.evicted.iter().any(|key| evictions::is_record(key)) {
                    return Err("the server evicted no lock".to_owned());
                }
            }
            "failover" => {
                window.silent = true;
                window.loses_records = !self.recipe.replicated;
                let shard = fault.choice as usize % self.servers.shards.len();
                self.servers.fail_over(shard, lasts, &mut window)?;
            }
            other => return Err(format!("unknown fault: {other}")),
        }
        if window.to == 0 {
            window.to = now();
        }
        if window.begun == 0 {
            (window.begun, window.ending) = (window.from, window.to);
        }
        self.generations.renew_after(&self.servers, &window)?;
        Ok(window)
    }

    /// The reentrant key, and the key of the same role of each other kind whose holds can be taken away.
    fn keys_of(&self, which: &str, reentrant: &str, number: &str) -> Vec<String> {
        let others = self.recipe.kinds.iter().filter_map(|kind| match (*kind, which) {
            ("reentrant" | "semaphore" | "expirable", _) => None,
            ("multi", "hot") => Some("multi:0".to_owned()),
            (kind, which) => Some(format!("{kind}:{which}{number}")),
        });
        std::iter::once(reentrant.to_owned()).chain(others).collect()
    }

    pub fn server(&self) -> &Server {
        self.servers.shards[0].master()
    }

    /// Keeps the fault, which is in effect now, for this long.
    fn wait(&self, window: &mut Window, lasts: Duration) {
        window.begun = now();
        thread::sleep(lasts);
        window.ending = now();
    }

    fn toggle(&self, take: &str, give: &str, window: &mut Window, lasts: Duration) -> Result<(), String> {
        self.run(take)?;
        self.wait(window, lasts);
        self.run(give)
    }

    fn run(&self, command: &str) -> Result<(), String> {
        let words: Vec<&str> = command.split(' ').collect();
        self.server().call(&words, TIMEOUT).map(drop)
    }

    fn proxy(&mut self, target: &str, fault: &str) -> Result<(), String> {
        let proxy = self.proxy.as_mut().ok_or("this topology has no proxy")?;
        proxy.send(&format!("{target} {fault}"))?;
        proxy.wait_for("ok", TIMEOUT).map(drop)
    }

    /// Saves the data and loads it again, slowly. Records survive, and clients get LOADING.
    fn load(&self, window: &mut Window) -> Result<(), String> {
        let filler = "x".repeat(2048);
        for number in 0..FILLERS {
            let key = format!("filler:{number}");
            self.server().call(&["SET", &key, &filler, "EX", "60"], TIMEOUT)?;
        }
        let keys = self.server().call(&["DBSIZE"], TIMEOUT)?.concat();
        let keys: usize = keys.parse().map_err(|_| format!("unexpected reply to DBSIZE: {keys:?}"))?;
        self.run(&format!("CONFIG SET key-load-delay {}", LOAD_US / keys))?;
        window.begun = now();
        self.run("DEBUG RELOAD")?;
        window.ending = now();
        self.run("CONFIG SET key-load-delay 0")?;
        for number in 0..FILLERS {
            self.run(&format!("DEL filler:{number}"))?;
        }
        Ok(())
    }

    /// Shifts the first client's wall clock by this many seconds from real time, and waits until the client sees it.
    fn move_clock(&self, by: i64) -> Result<(), String> {
        let (_, file) = self.recipe.clock.as_ref().ok_or("no library is installed that shifts the clock")?;
        fs::write(file, format!("{by:+}")).map_err(|error| format!("{}: {error}", file.display()))?;
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            // The client reports its time once a second.
            let reported = i64::try_from(self.clients[0].beat(6)).unwrap_or_default();
            if reported.abs_diff(real.as_secs() as i64 + by) < 60 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the first client's clock did not shift by {by} s"))
    }
}
