//! Turns events into tracks: one for each lock, with slices in lanes. Slices of one lane do not overlap.

use crate::timeline::event::{TimelineChange, TimelineEvent};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// A copy of the events.
pub(super) struct Recording {
    pub(super) events: Vec<TimelineEvent>,
    pub(super) dropped: u64,
    pub(super) now: Duration,
}

/// The holds, waits and points of one lock.
#[derive(Default)]
pub(super) struct Track<'a> {
    pub(super) holds: Vec<Slice<'a>>,
    pub(super) waits: Vec<Slice<'a>>,
    pub(super) marks: Vec<Mark<'a>>,
}

/// A hold or a wait.
pub(super) struct Slice<'a> {
    /// The first event of the slice that is in memory.
    pub(super) event: &'a TimelineEvent,
    pub(super) from: Duration,
    pub(super) until: Duration,
    /// How long the call of a hold waited, if that is known.
    pub(super) waited: Option<Duration>,
    pub(super) re_entries: u32,
    pub(super) end: End<'a>,
    pub(super) lane: usize,
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End<'a> {
    /// It has not.
    Open,
    Acquired,
    Refused(&'a str),
    Released,
    Abandoned,
    Lost(&'a str),
}

/// A point of a track: a loss, a re-entry, or a call that was refused, or passed a latch, without a wait.
pub(super) struct Mark<'a> {
    pub(super) event: &'a TimelineEvent,
    /// The index of its hold.
    pub(super) hold: Option<usize>,
}

/// The open slices, by their index in the track.
#[derive(Default)]
struct OpenSlices<'a> {
    holds: HashMap<(Option<&'a str>, u64), usize>,
    waits: HashMap<(Option<&'a str>, u64), usize>,
}

impl Recording {
    /// The tracks by the names of their locks, and the first and the last time.
    pub(super) fn tracks(&self) -> (BTreeMap<&str, Track<'_>>, Duration, Duration) {
        let mut events: Vec<&TimelineEvent> = self.events.iter().collect();
        events.sort_by_key(|event| event.at);
        let mut tracks: BTreeMap<&str, (Track<'_>, OpenSlices<'_>)> = BTreeMap::new();
        for event in &events {
            let (track, open) = tracks.entry(&event.lock).or_default();
            track.add(open, event);
        }
        let mut tracks: BTreeMap<&str, Track<'_>> =
            tracks.into_iter().map(|(lock, (track, _))| (lock, track)).collect();
        let last = events.last().map_or(Duration::ZERO, |event| event.at);
        let mut until = last;
        for track in tracks.values_mut() {
            for slice in track.holds.iter_mut().chain(&mut track.waits) {
                if slice.end == End::Open {
                    // Another process may have ended it since, and its events come late.
                    let is_here = slice.event.source.is_none();
                    slice.until = if is_here { last.max(self.now) } else { last };
                    until = until.max(slice.until);
                }
            }
            assign_lanes(&mut track.holds);
            assign_lanes(&mut track.waits);
        }
        let from = tracks.values().map(Track::first).min().unwrap_or(until);
        (tracks, from, until)
    }
}

impl<'a> Track<'a> {
    fn add(&mut self, open: &mut OpenSlices<'a>, event: &'a TimelineEvent) {
        let source = event.source.as_deref();
        match &event.change {
            TimelineChange::Waiting { call } => {
                let at = push(&mut self.waits, event, Duration::ZERO, End::Open);
                open.waits.insert((source, *call), at);
            }
            TimelineChange::Acquired { call, hold, waited } => {
                self.end_wait(open, event, *call, *waited, End::Acquired);
                let at = push(&mut self.holds, event, Duration::ZERO, End::Open);
                self.holds[at].waited = Some(*waited);
                open.holds.insert((source, *hold), at);
            }
            TimelineChange::Passed { call, waited } => {
                if !self.end_wait(open, event, *call, *waited, End::Acquired) {
                    self.marks.push(Mark { event, hold: None });
                }
            }
            TimelineChange::ReEntered { call, hold, waited } => {
                self.end_wait(open, event, *call, *waited, End::Acquired);
                let hold = open.holds.get(&(source, *hold)).copied();
                if let Some(hold) = hold {
                    self.holds[hold].re_entries += 1;
                }
                self.marks.push(Mark { event, hold });
            }
            TimelineChange::Refused { call, waited, outcome } => {
                if !self.end_wait(open, event, *call, *waited, End::Refused(outcome)) {
                    self.marks.push(Mark { event, hold: None });
                }
            }
            TimelineChange::Released { hold, held } => {
                self.end_hold(open, event, *hold, *held, End::Released);
            }
            TimelineChange::Abandoned { hold, held } => {
                self.end_hold(open, event, *hold, *held, End::Abandoned);
            }
            TimelineChange::Lost { hold, held, reason } => {
                let hold = self.end_hold(open, event, *hold, *held, End::Lost(reason));
                self.marks.push(Mark { event, hold: Some(hold) });
            }
        }
    }

    /// Ends the wait that this event belongs to. Returns false if the call did not wait.
    fn end_wait(
        &mut self,
        open: &mut OpenSlices<'a>,
        event: &'a TimelineEvent,
        call: u64,
        waited: Duration,
        end: End<'a>,
    ) -> bool {
        if let Some(at) = open.waits.remove(&(event.source.as_deref(), call)) {
            let wait = &mut self.waits[at];
            (wait.from, wait.until, wait.end) =
                (wait.from.min(event.at.saturating_sub(waited)), event.at, end);
            return true;
        }
        if !waited.is_zero() {
            push(&mut self.waits, event, waited, end);
        }
        !waited.is_zero()
    }

    /// Ends a hold, and returns its index.
    fn end_hold(
        &mut self,
        open: &mut OpenSlices<'a>,
        event: &'a TimelineEvent,
        number: u64,
        held: Duration,
        end: End<'a>,
    ) -> usize {
        let Some(at) = open.holds.remove(&(event.source.as_deref(), number)) else {
            return push(&mut self.holds, event, held, end);
        };
        let hold = &mut self.holds[at];
        (hold.until, hold.end) = (event.at, end);
        at
    }

    fn first(&self) -> Duration {
        let slices = self.holds.iter().chain(&self.waits).map(|slice| slice.from);
        slices.chain(self.marks.iter().map(|mark| mark.event.at)).min().unwrap_or(Duration::MAX)
    }
}

/// Adds a slice of this length that ends with `event`, and returns its index.
fn push<'a>(slices: &mut Vec<Slice<'a>>, event: &'a TimelineEvent, length: Duration, end: End<'a>) -> usize {
    let (from, until) = (event.at.saturating_sub(length), event.at);
    slices.push(Slice { event, from, until, waited: None, re_entries: 0, end, lane: 0 });
    slices.len() - 1
}

/// Gives each slice the first lane that is free when it begins. The slices keep their places, because marks name them by these.
fn assign_lanes(slices: &mut [Slice<'_>]) {
    let mut order: Vec<usize> = (0..slices.len()).collect();
    order.sort_by_key(|at| (slices[*at].from, slices[*at].until));
    let mut ends: Vec<Duration> = Vec::new();
    for at in order {
        let slice = &mut slices[at];
        slice.lane = ends.iter().position(|end| *end <= slice.from).unwrap_or(ends.len());
        match ends.get_mut(slice.lane) {
            Some(end) => *end = slice.until,
            None => ends.push(slice.until),
        }
    }
}
