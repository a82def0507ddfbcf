//! What the demo asks of its server, and what MONITOR shows.

use std::io::BufRead;
use std::sync::mpsc::Sender;
use std::thread;

use rustix::time::ClockId;

use super::{Act, CHANNEL, COUNTER, Event, Heard, LOCK, PATIENCE, clock_ns, monotonic_ns};
use crate::server::Server;

pub fn counter(server: &Server) -> Result<u64, String> {
    let texts = server.ask(&["GET", COUNTER], PATIENCE)?;
    let value = texts.first().map_or("0", String::as_str);
    value.parse().map_err(|_| format!("the counter cannot be read: {value:?}"))
}

pub fn watch(server: &Server, tell: Sender<Heard>) -> Result<(), String> {
    let mut lines = server.request(&["MONITOR"])?.lines().map_while(Result::ok);
    lines.next().filter(|line| line == "+OK").ok_or("the server does not MONITOR")?;
    thread::spawn(move || hear(lines, &tell));
    Ok(())
}

/// Reads MONITOR, which shows a script and then, as lines from `lua`, its commands.
fn hear(lines: impl Iterator<Item = String>, tell: &Sender<Heard>) {
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
