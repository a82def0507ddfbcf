//! Reads the demo's counter and the server's MONITOR.

use std::io::BufRead;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::time::ClockId;

use super::{CHANNEL, COUNTER, Effect, Event, LOCK, Message, TIMEOUT, clock_ns, monotonic_ns};
use crate::server::Server;

pub fn counter(server: &Server) -> Result<u64, String> {
    let texts = server.call(&["GET", COUNTER], TIMEOUT)?;
    let value = texts.first().map_or("0", String::as_str);
    value.parse().map_err(|_| format!("the counter is not a number: {value:?}"))
}

pub fn watch(server: &Server, sender: Sender<Message>) -> Result<(), String> {
    let mut lines = server.send(&["MONITOR"])?.lines().map_while(Result::ok);
    lines.next().filter(|line| line == "+OK").ok_or("the server refused MONITOR")?;
    thread::spawn(move || read_monitor(lines, &sender));
    Ok(())
}

/// Reads MONITOR. It shows a script, and then the script's commands as lines from `lua`.
fn read_monitor(lines: impl Iterator<Item = String>, sender: &Sender<Message>) {
    let mut script = Vec::new();
    let mut wrote = false;
    for line in lines {
        let Some((ns, lua, words)) = monitored(&line) else { continue };
        if !lua {
            (script, wrote) = (words, false);
            continue;
        }
        let effect = match (words[0].to_lowercase().as_str(), words.get(1).map(String::as_str)) {
            ("publish", Some(CHANNEL)) => Effect::Published,
            ("hdel", Some(LOCK)) if wrote => Effect::HandedOn,
            // An acquire also sets the lease, but after the count.
            ("pexpire", Some(LOCK)) if !wrote => Effect::Renewed,
            (command, _) => {
                wrote |= ["hset", "hincrby"].contains(&command);
                continue;
            }
        };
        let _ = sender.send(Message::Event(ns, Event::Monitored { effect, words: script.clone() }));
    }
}

/// Parses `1700000000.123456 [0 lua] "publish" "channel" "0"`. Does not handle quotes within a word, which no relevant word
/// has.
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
