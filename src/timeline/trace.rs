//! Writes tracks in the Chrome trace event format. A lock is a process of the format, and a lane is a thread.
//!
//! All text is escaped, also `<`, so that the JSON may stand in a page.

use crate::timeline::event::TimelineChange;
use crate::timeline::tracks::{End, Mark, Recording, Slice, Track};
use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

pub(super) fn write(recording: &Recording, this_process: &str, out: &mut dyn Write) -> io::Result<()> {
    let (tracks, from, until) = recording.tracks();
    write!(
        out,
        r#"{{"displayTimeUnit":"ms","otherData":{{"clock":"CLOCK_MONOTONIC","start_ns":"{}","duration_us":{},"recorded_events":{},"dropped_events":{}}},"traceEvents":["#,
        from.as_nanos(),
        Micros(until.saturating_sub(from)),
        recording.events.len(),
        recording.dropped
    )?;
    let mut trace = Trace { out, this_process, from, is_first: true, last_id: 0 };
    for (at, (lock, track)) in tracks.iter().enumerate() {
        trace.track(at, lock, track)?;
    }
    write!(trace.out, "\n]}}")
}

struct Trace<'a> {
    out: &'a mut dyn Write,
    this_process: &'a str,
    /// All times are relative to it.
    from: Duration,
    is_first: bool,
    /// Processes and threads have different numbers, because a viewer may take equal ones for the same.
    last_id: usize,
}

impl Trace<'_> {
    fn track(&mut self, at: usize, lock: &str, track: &Track<'_>) -> io::Result<()> {
        let pid = self.next_id();
        self.named("process", pid, pid, at, &format!("lock {lock}"))?;
        let holds = self.lanes(pid, 0, "held", &track.holds)?;
        let waits = self.lanes(pid, holds.len(), "waiting", &track.waits)?;
        for (category, slices, lanes) in [("hold", &track.holds, &holds), ("wait", &track.waits, &waits)] {
            for slice in slices {
                self.slice(category, pid, lanes[slice.lane], slice)?;
            }
        }
        let others = match track.marks.iter().any(|mark| mark.hold.is_none()) {
            true => self.lane(pid, holds.len() + waits.len(), "other calls")?,
            false => pid,
        };
        for mark in &track.marks {
            let tid = mark.hold.map_or(others, |hold| holds[track.holds[hold].lane]);
            self.mark(pid, tid, mark)?;
        }
        Ok(())
    }

    /// Names the lanes of these slices, and returns their numbers.
    fn lanes(
        &mut self,
        pid: usize,
        before: usize,
        name: &str,
        slices: &[Slice<'_>],
    ) -> io::Result<Vec<usize>> {
        let count = slices.iter().map(|slice| slice.lane + 1).max().unwrap_or(0);
        let numbered =
            |lane: usize| if count == 1 { name.to_owned() } else { format!("{name} {}", lane + 1) };
        (0..count).map(|lane| self.lane(pid, before + lane, &numbered(lane))).collect()
    }

    fn lane(&mut self, pid: usize, place: usize, name: &str) -> io::Result<usize> {
        let tid = self.next_id();
        self.named("thread", pid, tid, place, name)?;
        Ok(tid)
    }

    fn next_id(&mut self) -> usize {
        self.last_id += 1;
        self.last_id
    }

    /// Names a process or a thread, and its place among others.
    fn named(&mut self, what: &str, pid: usize, tid: usize, place: usize, name: &str) -> io::Result<()> {
        let ids = format!(r#""ph":"M","ts":0,"pid":{pid},"tid":{tid}"#);
        self.event(format_args!(r#"{{"name":"{what}_name",{ids},"args":{{"name":{}}}}}"#, Text(name)))?;
        self.event(format_args!(r#"{{"name":"{what}_sort_index",{ids},"args":{{"sort_index":{place}}}}}"#))
    }

    fn slice(&mut self, category: &str, pid: usize, tid: usize, slice: &Slice<'_>) -> io::Result<()> {
        let event = slice.event;
        let waited = match slice.waited {
            Some(waited) => format!(r#","waited_us":{}"#, Micros(waited)),
            None => String::new(),
        };
        let re_entries = match slice.re_entries {
            0 => String::new(),
            count => format!(r#","re_entries":{count}"#),
        };
        let end = match slice.end {
            End::Open if category == "hold" => "still held".to_owned(),
            End::Open => "still waiting".to_owned(),
            End::Acquired => "acquired".to_owned(),
            End::Refused(outcome) => outcome.to_owned(),
            End::Released => "released".to_owned(),
            End::Abandoned => "no longer followed".to_owned(),
            End::Lost(reason) => format!("lost: {reason}"),
        };
        self.event(format_args!(
            r#"{{"name":{},"cat":"{category}","ph":"X","ts":{},"dur":{},"pid":{pid},"tid":{tid},"args":{{"owner":{},"source":{},"kind":{}{waited}{re_entries},"end":{}}}}}"#,
            Text(&event.owner),
            Micros(slice.from.saturating_sub(self.from)),
            Micros(slice.until.saturating_sub(slice.from)),
            Text(&event.owner),
            Text(event.source.as_deref().unwrap_or(self.this_process)),
            Text(&event.kind),
            Text(&end),
        ))
    }

    fn mark(&mut self, pid: usize, tid: usize, mark: &Mark<'_>) -> io::Result<()> {
        let event = mark.event;
        let (category, detail) = match &event.change {
            TimelineChange::Lost { reason, .. } => ("loss", &**reason),
            TimelineChange::ReEntered { .. } => ("re-entry", "re-entered"),
            TimelineChange::Refused { outcome, .. } => ("refusal", &**outcome),
            TimelineChange::Passed { .. } => ("pass", "passed"),
            // Others are slices alone.
            _ => return Ok(()),
        };
        let name = if category == "loss" { format!("lost: {detail}") } else { detail.to_owned() };
        self.event(format_args!(
            r#"{{"name":{},"cat":"{category}","ph":"i","s":"t","ts":{},"pid":{pid},"tid":{tid},"args":{{"owner":{},"source":{},"kind":{},"reason":{}}}}}"#,
            Text(&name),
            Micros(event.at.saturating_sub(self.from)),
            Text(&event.owner),
            Text(event.source.as_deref().unwrap_or(self.this_process)),
            Text(&event.kind),
            Text(detail),
        ))
    }

    fn event(&mut self, event: fmt::Arguments<'_>) -> io::Result<()> {
        let separator = if self.is_first { "\n" } else { ",\n" };
        self.is_first = false;
        write!(self.out, "{separator}{event}")
    }
}

/// A time in microseconds, the unit of the format.
struct Micros(Duration);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_micros(), self.0.subsec_nanos() % 1000)
    }
}

/// A string of JSON.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for sign in self.0.chars() {
            match sign {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                // The last two end a line in JavaScript.
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => write!(f, "\\u{:04x}", u32::from(sign))?,
                _ if sign.is_control() => write!(f, "\\u{:04x}", u32::from(sign))?,
                _ => write!(f, "{sign}")?,
            }
        }
        f.write_str("\"")
    }
}
