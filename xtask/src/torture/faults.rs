//! How each fault is done and undone.

use std::fs;
use std::io::BufRead;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::eras::Eras;
use super::evictions;
use super::history::{Window, kept};
use super::keys;
use super::now;
use super::processes::{PASSWORD, Recipe};
use super::random::Random;
use super::schedule::Fault;
use super::servers::Servers;
use crate::process::Process;
use crate::server::Server;

/// How long the server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a server that loads reads beside the rest, and for about how long.
const FILLERS: usize = 50;
const LOAD_US: usize = 1_000_000;

/// Everything that faults are done to.
pub struct Stage {
    pub servers: Servers,
    /// Before the one server; there is none before several.
    pub proxy: Option<Process>,
    /// For each client.
    pub urls: Vec<String>,
    pub clients: Vec<Process>,
    /// How many clients were ever started.
    pub started: u64,
    pub recipe: Recipe,
    pub eras: Eras,
}

impl Stage {
    /// Does the fault, and undoes it.
    pub fn inflict(&mut self, fault: &Fault) -> Result<Window, String> {
        let mut window = Window { kind: fault.kind, from: now(), ..Window::default() };
        let lasts = Duration::from_millis(fault.lasts_ms);
        let who = fault.target.map_or("*".to_owned(), |index| index.to_string());
        let one = fault.target.unwrap_or(fault.choice as usize % self.clients.len());
        let for_one =
            |window: &mut Window| window.process = fault.target.map(|index| kept(&format!("rust{index}")));
        match fault.kind {
            "kill-server" => {
                window.resets = true;
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
            "drop-normal" => self.tell("CLIENT KILL TYPE normal")?,
            "drop-pubsub" => self.tell("CLIENT KILL TYPE pubsub")?,
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
                self.proxy(&who, fault_name)?;
                self.wait(&mut window, lasts);
                self.proxy(&who, "light")?;
            }
            "latency" => {
                for_one(&mut window);
                let mut random = Random::new(fault.choice);
                for _ in 0..fault.lasts_ms / 50 {
                    self.proxy(&who, &format!("delay {}", random.between(0, 60)))?;
                    thread::sleep(Duration::from_millis(50));
                }
                self.proxy(&who, "delay 0")?;
            }
            "late-request" => {
                for_one(&mut window);
                self.proxy(&who, "hold")?;
                thread::sleep(Duration::from_millis(100));
                self.proxy(&who, "hangup")?;
                self.wait(&mut window, lasts);
                self.proxy(&who, "pass")?;
            }
            "half-frame" => {
                for_one(&mut window);
                self.proxy(&who, if fault.choice.is_multiple_of(2) { "half-request" } else { "half-reply" })?;
                self.wait(&mut window, lasts);
            }
            "script-flush" => self.tell("SCRIPT FLUSH")?,
            "pause" => {
                window.silent = true;
                self.tell(&format!("CLIENT PAUSE {} WRITE", fault.lasts_ms))?;
                window.begun = now();
                thread::sleep(lasts.saturating_sub(Duration::from_millis(10)));
                window.ending = now();
                thread::sleep(Duration::from_millis(10));
                self.tell("CLIENT UNPAUSE")?;
            }
            "sleep" => {
                window.silent = true;
                let asked = self.server().request(&["DEBUG", "SLEEP", &lasts.as_secs_f64().to_string()])?;
                self.wait(&mut window, lasts - Duration::from_millis(50));
                drop(asked);
                self.tell("PING")?;
            }
            "oom" => self.between("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", &mut window, lasts)?,
            "string" => {
                let number = keys::of_rivals(one as u64);
                window.keys = self.keys_of("long", &format!("long:{number}"), &number.to_string());
                window.resets = true;
                let (set, delete) = (window.keys.join(" x "), window.keys.join(" "));
                self.between(&format!("MSET {set} x"), &format!("DEL {delete}"), &mut window, lasts)?;
            }
            "readonly" => {
                window.silent = true;
                self.between("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", &mut window, lasts)?;
            }
            "loading" => self.load(&mut window)?,
            "acl-publish" => {
                let (take, give) = ("ACL SETUSER torture -publish", "ACL SETUSER torture +publish");
                self.between(take, give, &mut window, lasts)?;
            }
            "password" => {
                window.silent = true;
                self.tell("ACL SETUSER torture resetpass >second")?;
                self.tell("CLIENT KILL USER torture")?;
                self.wait(&mut window, lasts);
                self.tell(&format!("ACL SETUSER torture >{PASSWORD}"))?;
            }
            "stop-client" => {
                window.process = Some(kept(&self.clients[one].label));
                self.clients[one].signal(Signal::STOP)?;
                self.wait(&mut window, lasts);
                self.clients[one].signal(Signal::CONT)?;
            }
            "kill-client" => {
                window.process = Some(kept(&self.clients[one].label));
                self.clients[one].kill()?;
                self.clients[one] = self.recipe.client(one, self.started, &self.urls[one])?;
                self.started += 1;
                self.clients[one].hear("ready", PATIENCE)?;
            }
            "force-unlock" => {
                let number = keys::of_rivals(one as u64);
                let keys = ["hot:0".to_owned(), "hot:1".to_owned(), format!("long:{number}")];
                let key = &keys[(fault.choice >> 8) as usize % keys.len()];
                window.resets = true;
                window.keys = self.keys_of("hot", key, "");
                for key in &window.keys {
                    self.clients[one].say(&format!("force {key}"))?;
                    let outcome = self.clients[one].hear("forced", PATIENCE)?;
                    if outcome == "Ambiguous" {
                        return Err(format!("the force-unlock of {key} ended {outcome} in calm weather"));
                    }
                }
            }
            "busy" => {
                window.silent = true;
                let mut endless = self.server().request(&["EVAL", "while true do end", "0"])?;
                thread::sleep(Duration::from_millis(200));
                self.wait(&mut window, lasts);
                self.tell("SCRIPT KILL")?;
                // Its error is the end of it.
                let told = endless.read_line(&mut String::new());
                told.map_err(|error| format!("the endless script: {error}"))?;
            }
            "clock" => {
                window.process = Some(kept(&self.clients[0].label));
                let by = if fault.choice.is_multiple_of(2) { 3600 } else { -86_400 };
                self.move_clock(by)?;
                self.wait(&mut window, lasts);
                self.move_clock(0)?;
            }
            "starve" => {
                window.process = Some(kept(&self.clients[one].label));
                window.begun = now();
                self.clients[one].say(&format!("starve {}", fault.lasts_ms))?;
                self.clients[one].hear("starved", PATIENCE)?;
                window.ending = now();
            }
            "drop-runtime" => {
                self.clients[one].say(&format!("drop-runtime {}", 1 + fault.choice % 40))?;
                self.clients[one].hear("dropped", PATIENCE)?;
            }
            "evict" => {
                window.resets = true;
                self.tell("CONFIG SET maxmemory-policy allkeys-random")?;
                self.between("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", &mut window, lasts)?;
                self.tell("CONFIG SET maxmemory-policy noeviction")?;
            }
            volatile if volatile.starts_with("evict-volatile-") => {
                let policy = volatile.trim_start_matches("evict-");
                evictions::evict(self.server(), policy, lasts, &mut window)?;
                let locks = self.recipe.kinds.contains(&"reentrant");
                if locks && !window.evicted.iter().any(|key| evictions::is_record(key)) {
                    return Err("the server evicted no record of a lock".to_owned());
                }
            }
            "failover" => {
                window.silent = true;
                window.resets = !self.recipe.replicated;
                let shard = fault.choice as usize % self.servers.shards.len();
                self.servers.fail_over(shard, lasts, &mut window)?;
            }
            other => return Err(format!("no such fault: {other}")),
        }
        if window.to == 0 {
            window.to = now();
        }
        if window.begun == 0 {
            (window.begun, window.ending) = (window.from, window.to);
        }
        self.eras.go_on(&self.servers, &window)?;
        Ok(window)
    }

    /// One of the reentrant lock, and of each other kind whose holds can be taken away the key that is called so.
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

    /// The fault is there now; it is to stay for so long.
    fn wait(&self, window: &mut Window, lasts: Duration) {
        window.begun = now();
        thread::sleep(lasts);
        window.ending = now();
    }

    fn between(&self, take: &str, give: &str, window: &mut Window, lasts: Duration) -> Result<(), String> {
        self.tell(take)?;
        self.wait(window, lasts);
        self.tell(give)
    }

    fn tell(&self, command: &str) -> Result<(), String> {
        let words: Vec<&str> = command.split(' ').collect();
        self.server().ask(&words, PATIENCE).map(drop)
    }

    fn proxy(&mut self, who: &str, fault: &str) -> Result<(), String> {
        let proxy = self.proxy.as_mut().ok_or("there is no proxy")?;
        proxy.say(&format!("{who} {fault}"))?;
        proxy.hear("ok", PATIENCE).map(drop)
    }

    /// Saves what there is and reads it again, slowly. What is held stays so, and clients are told LOADING.
    fn load(&self, window: &mut Window) -> Result<(), String> {
        let filler = "x".repeat(2048);
        for number in 0..FILLERS {
            let key = format!("filler:{number}");
            self.server().ask(&["SET", &key, &filler, "EX", "60"], PATIENCE)?;
        }
        let keys = self.server().ask(&["DBSIZE"], PATIENCE)?.concat();
        let keys: usize = keys.parse().map_err(|_| format!("so many keys: {keys:?}"))?;
        self.tell(&format!("CONFIG SET key-load-delay {}", LOAD_US / keys))?;
        window.begun = now();
        self.tell("DEBUG RELOAD")?;
        window.ending = now();
        self.tell("CONFIG SET key-load-delay 0")?;
        for number in 0..FILLERS {
            self.tell(&format!("DEL filler:{number}"))?;
        }
        Ok(())
    }

    /// Moves the first client's wall clock by so many seconds from the real one, and waits until it shows.
    fn move_clock(&self, by: i64) -> Result<(), String> {
        let (_, file) = self.recipe.clock.as_ref().ok_or("there is no library to move the clock with")?;
        fs::write(file, format!("{by:+}")).map_err(|error| format!("{}: {error}", file.display()))?;
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            // It tells its time once a second.
            let told = i64::try_from(self.clients[0].beat(6)).unwrap_or_default();
            if told.abs_diff(real.as_secs() as i64 + by) < 60 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the first client's clock does not move by {by} s"))
    }
}
