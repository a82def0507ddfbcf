//! Prints the demo's events in order, and the summary.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::io::{self, IsTerminal};

use super::process::{Language, Process};
use super::timeline::Events;
use super::{Effect, Event, LEASE, Step, THREADS, monotonic_ns};

pub struct Transcript {
    contenders: Vec<Contender>,
    /// The contender of each owner id.
    owners: HashMap<String, usize>,
    colours: bool,
    began_ns: u64,
    /// Events to print, by time and order of arrival.
    pending: BTreeMap<(u64, usize), Event>,
    received: usize,
    /// When and how the lock was last released, as the server saw it, and by whom.
    released: Option<(u64, Effect, usize)>,
    holds: Vec<Hold>,
    timeline: Events,
}

struct Contender {
    label: String,
    language: Language,
    colour: u8,
    /// For the current turn.
    waits_ns: u64,
    start_ns: u64,
    count: usize,
    reentries: usize,
    renewals: usize,
}

struct Hold {
    id: usize,
    waits_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

impl Transcript {
    pub fn new(processes: &[Process]) -> Self {
        let mut contenders = Vec::new();
        let mut owners = HashMap::new();
        for (process, colour) in processes.iter().zip([33, 36, 35]) {
            owners.extend(process.owners.iter().cloned().zip(contenders.len()..));
            contenders.extend((0..THREADS).map(|thread| Contender {
                label: process.label_of(thread),
                language: process.language,
                colour,
                waits_ns: 0,
                start_ns: 0,
                count: 0,
                reentries: 0,
                renewals: 0,
            }));
        }
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            contenders,
            owners,
            colours: io::stdout().is_terminal() && !plain,
            began_ns: monotonic_ns(),
            pending: BTreeMap::new(),
            received: 0,
            released: None,
            holds: Vec::new(),
            timeline: Events::default(),
        }
    }

    pub fn record(&mut self, ns: u64, event: Event) {
        self.received += 1;
        self.pending.insert((ns, self.received), event);
    }

    /// Prints the events before a time.
    pub fn print_until(&mut self, until_ns: u64) {
        while let Some(entry) = self.pending.first_entry().filter(|entry| entry.key().0 < until_ns) {
            let ns = entry.key().0;
            match entry.remove() {
                Event::Step { id, step } => self.step(ns, id, step),
                Event::Monitored { effect, words } => {
                    // A hand-over names two owners; the first one releases.
                    let id = words.iter().find_map(|word| self.owners.get(word));
                    if let Some(&id) = id {
                        self.effect(ns, id, effect);
                    }
                }
            }
        }
    }

    fn step(&mut self, ns: u64, id: usize, step: Step) {
        let contender = &mut self.contenders[id];
        match step {
            Step::Waits => {
                contender.waits_ns = ns;
                self.line(ns, id, "waits", "");
            }
            Step::Holds(owner) => {
                contender.count += 1;
                let count = contender.count;
                let note = if count == 1 {
                    contender.start_ns = ns;
                    self.owners.extend(owner.map(|owner| (owner, id)));
                    let waited_ns =
                        self.hand_over_to(id).map_or(0, |_| ns.saturating_sub(self.contenders[id].waits_ns));
                    self.timeline.acquired(ns, &self.contenders[id].label, waited_ns);
                    self.describe_wait(id)
                } else {
                    contender.reentries += 1;
                    self.timeline.re_entered(ns, &contender.label);
                    "re-entered".to_owned()
                };
                self.line(ns, id, &format!("holds (count {count})"), &note);
            }
            Step::Ends => {
                contender.count = 0;
                let Contender { waits_ns, start_ns, .. } = *contender;
                self.timeline.released(ns, &contender.label, ns.saturating_sub(start_ns));
                self.holds.push(Hold { id, waits_ns, start_ns, end_ns: ns });
            }
            Step::Freed => {}
        }
    }

    /// The time in ms from the last release to the hold that this contender has begun, if it waited for that release.
    fn hand_over_to(&self, id: usize) -> Option<f64> {
        let Contender { waits_ns, start_ns, .. } = self.contenders[id];
        self.holds.last().and_then(|last| hand_over(last.end_ns, waits_ns, start_ns))
    }

    fn describe_wait(&mut self, id: usize) -> String {
        let waits_ns = self.contenders[id].waits_ns;
        let released = self.released.take();
        let time = self.hand_over_to(id);
        let (Some(time), Some((_, effect, by))) = (time, released.filter(|(ns, ..)| waits_ns < *ns)) else {
            return "the lock was free".to_owned();
        };
        let by = &self.contenders[by].label;
        match effect {
            Effect::HandedOn => format!("after {time:.2} ms, handed over by {by} (no message)"),
            Effect::Published | Effect::Renewed => format!("after {time:.2} ms, woken by {by}"),
        }
    }

    fn effect(&mut self, ns: u64, id: usize, effect: Effect) {
        match effect {
            Effect::Renewed => {
                self.contenders[id].renewals += 1;
                self.line(ns, id, "renews", &format!("for {} ms, by the watchdog", LEASE.as_millis()));
            }
            Effect::Published | Effect::HandedOn => self.released = Some((ns, effect, id)),
        }
    }

    fn line(&self, ns: u64, id: usize, what: &str, note: &str) {
        let Contender { label, colour, .. } = &self.contenders[id];
        let seconds = ns.saturating_sub(self.began_ns) as f64 / 1e9;
        let label = format!("{label:<13}");
        let label = if self.colours { format!("\x1b[{colour}m{label}\x1b[0m") } else { label };
        println!("{}", format!("{seconds:>7.3}s  {label}  {what:<15}  {note}").trim_end());
    }

    /// Writes the timeline, and prints its paths.
    pub fn write_timeline(&self) -> Result<(), String> {
        let [trace, page] = self.timeline.write()?;
        println!("\ntimeline: {} opens in a browser", page.display());
        println!("timeline: {} opens in https://ui.perfetto.dev and in chrome://tracing", trace.display());
        Ok(())
    }

    /// Prints the summary, and returns the problems.
    pub fn summarize(mut self, found: u64) -> Vec<String> {
        let mut problems = Vec::new();
        println!();
        for language in [Language::Java, Language::Rust] {
            let all = || self.contenders.iter().filter(|contender| contender.language == language);
            let reentries: usize = all().map(|contender| contender.reentries).sum();
            let renewals: usize = all().map(|contender| contender.renewals).sum();
            let holds = self.holds.iter().filter(|hold| self.language(hold) == language).count();
            if all().next().is_some() {
                println!("{language:?}: {holds} holds, {reentries} re-entries, {renewals} renewals");
                if holds == 0 {
                    problems.push(format!("{language:?} never held the lock"));
                }
            }
        }

        let expected = self.holds.len() as u64;
        println!("counter: {expected} expected, {found} found");
        if found != expected {
            problems.push(format!("the counter is {found} instead of {expected}: holds overlapped"));
        }

        self.holds.sort_by_key(|hold| hold.start_ns);
        let mut last_end_ns = 0;
        let mut overlaps = 0;
        for hold in &self.holds {
            overlaps += usize::from(hold.start_ns < last_end_ns);
            last_end_ns = last_end_ns.max(hold.end_ns);
        }
        println!("overlapping holds: {overlaps}");
        if overlaps > 0 {
            problems.push(format!("{overlaps} holds overlapped another one"));
        }

        println!(
            "\nhand-over                  count       p50       p99   from calling unlock to returning from lock"
        );
        let one_process = |from: &Hold, to: &Hold| from.id / THREADS == to.id / THREADS;
        let languages = |from: &Hold, to: &Hold| (self.language(from), self.language(to));
        let rust = |from: &Hold, to: &Hold| languages(from, to) == (Language::Rust, Language::Rust);
        self.hand_overs("Java -> Rust", |from, to| languages(from, to) == (Language::Java, Language::Rust));
        self.hand_overs("Rust -> Java", |from, to| languages(from, to) == (Language::Rust, Language::Java));
        self.hand_overs("Java -> Java", |from, to| languages(from, to) == (Language::Java, Language::Java));
        self.hand_overs("Rust -> Rust", |from, to| rust(from, to) && !one_process(from, to));
        self.hand_overs("Rust -> Rust, one process", |from, to| rust(from, to) && one_process(from, to));
        println!();
        problems
    }

    fn hand_overs(&self, label: &str, counts: impl Fn(&Hold, &Hold) -> bool) {
        let pairs = self.holds.windows(2).filter(|pair| counts(&pair[0], &pair[1]));
        let times = pairs.filter_map(|pair| hand_over(pair[0].end_ns, pair[1].waits_ns, pair[1].start_ns));
        let mut times: Vec<f64> = times.collect();
        times.sort_by(f64::total_cmp);
        if !times.is_empty() {
            let rank = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
            println!("{label:<25}  {:>5}  {:>6.2} ms  {:>6.2} ms", times.len(), rank(50), rank(99));
        }
    }

    fn language(&self, hold: &Hold) -> Language {
        self.contenders[hold.id].language
    }
}

/// The time in ms from the call of unlock to the return of the next lock. `None` if the next contender was not waiting yet.
fn hand_over(end_ns: u64, waits_ns: u64, start_ns: u64) -> Option<f64> {
    (waits_ns < end_ns).then(|| start_ns.saturating_sub(end_ns) as f64 / 1e6)
}
