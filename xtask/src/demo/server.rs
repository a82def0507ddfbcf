//! The server that is contended at, and what its MONITOR shows.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::time::ClockId;

use super::{Act, CHANNEL, COUNTER, Event, Heard, LOCK, clock_ns, monotonic_ns};

/// A redis-server that also ends when the demo is killed: the guardian waits for the end of its stdin, which only the
/// demo holds open.
pub struct Server {
    guardian: Child,
    pub port: u16,
}

/// The same that the tests use.
const GUARDIAN: &str = include_str!("../../../tests/it/support/guardian.sh");

impl Server {
    pub fn start(program: &Path) -> Result<Self, String> {
        let problem = |error: io::Error| format!("{}: {error}", program.display());
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|free| free.local_addr())
            .map_err(problem)?
            .port();
        let mut guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(problem)?;
        let mut lines = BufReader::new(guardian.stdout.take().expect("it is piped"));
        let server = Self { guardian, port };
        let mut log = String::new();
        while !log.contains("Ready to accept connections") {
            if lines.read_line(&mut log).map_err(problem)? == 0 {
                return Err(format!("{log}the server does not start"));
            }
        }
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        Ok(server)
    }

    pub fn counter(&self) -> Result<u64, String> {
        let mut answer = self.request(&format!("GET {COUNTER}"))?;
        let mut lines = (&mut answer).lines().map_while(Result::ok);
        let length = lines.next();
        let value = if length.as_deref() == Some("$-1") { Some("0".to_owned()) } else { lines.next() };
        value.and_then(|value| value.parse().ok()).ok_or(format!("the counter cannot be read: {length:?}"))
    }

    pub fn watch(&self, tell: Sender<Heard>) -> Result<(), String> {
        let mut lines = self.request("MONITOR")?.lines().map_while(Result::ok);
        lines.next().filter(|line| line == "+OK").ok_or("the server does not MONITOR")?;
        thread::spawn(move || watch(lines, &tell));
        Ok(())
    }

    fn request(&self, command: &str) -> Result<BufReader<TcpStream>, String> {
        let connect = || {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
            stream.write_all(format!("{command}\r\n").as_bytes())?;
            Ok(BufReader::new(stream))
        };
        connect().map_err(|error: io::Error| format!("the server is gone: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
    }
}

/// Reads MONITOR, which shows a script and then, as lines from `lua`, its commands.
fn watch(lines: impl Iterator<Item = String>, tell: &Sender<Heard>) {
    let mut script = Vec::new();
    let mut wrote = false;
    for line in lines {
        let Some((ns, lua, words)) = monitored(&line) else { continue };
        if !lua {
            (script, wrote) = (words, false);
            continue;
        }
        let act = match (words[0].to_lowercase().as_str(), words.get(1).map(String::as_str)) {
            ("publish", Some(CHANNEL)) => Act::Published,
            ("hdel", Some(LOCK)) if wrote => Act::HandedOn,
            // An acquire sets the lease, too, but first the count.
            ("pexpire", Some(LOCK)) if !wrote => Act::Renewed,
            (command, _) => {
                wrote |= ["hset", "hincrby"].contains(&command);
                continue;
            }
        };
        let _ = tell.send(Heard::Event(ns, Event::Seen { act, words: script.clone() }));
    }
}

/// `1700000000.123456 [0 lua] "publish" "channel" "0"`. Quotes within a word are not minded: none that is looked for
/// has any.
fn monitored(line: &str) -> Option<(u64, bool, Vec<String>)> {
    let (time, rest) = line.strip_prefix('+')?.split_once(' ')?;
    let (origin, words) = rest.split_once("] ")?;
    let (seconds, microseconds) = time.split_once('.')?;
    let wall_us = seconds.parse::<u64>().ok()? * 1_000_000 + microseconds.parse::<u64>().ok()?;
    let carried = (wall_us * 1000 + monotonic_ns()).checked_sub(clock_ns(ClockId::Realtime))?;
    Some((
        carried,
        origin.ends_with(" lua"),
        words.trim_matches('"').split("\" \"").map(str::to_owned).collect(),
    ))
}
