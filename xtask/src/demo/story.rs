//! What the demo prints: the events in the order of their times, and the summary.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::io::{self, IsTerminal};

use super::process::{Language, Process};
use super::{Act, Deed, Event, LEASE, THREADS, monotonic_ns};

pub struct Story {
    contenders: Vec<Contender>,
    /// Who goes by which text in the record.
    owners: HashMap<String, usize>,
    colours: bool,
    began_ns: u64,
    /// By time, and in order of arrival.
    untold: BTreeMap<(u64, usize), Event>,
    heard: usize,
    /// When, how and by whom the lock was last let go, as the server saw it.
    let_go: Option<(u64, Act, usize)>,
    holds: Vec<Hold>,
}

struct Contender {
    label: String,
    language: Language,
    colour: u8,
    /// Of the turn under way.
    waits_ns: u64,
    start_ns: u64,
    count: usize,
    reentries: usize,
    renewals: usize,
}

struct Hold {
    who: usize,
    waits_ns: u64,
    start_ns: u64,
    end_ns: u64,
}

impl Story {
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
            untold: BTreeMap::new(),
            heard: 0,
            let_go: None,
            holds: Vec::new(),
        }
    }

    pub fn hear(&mut self, ns: u64, event: Event) {
        self.heard += 1;
        self.untold.insert((ns, self.heard), event);
    }

    /// Tells what happened before a time.
    pub fn tell(&mut self, until_ns: u64) {
        while let Some(entry) = self.untold.first_entry().filter(|entry| entry.key().0 < until_ns) {
            let ns = entry.key().0;
            match entry.remove() {
                Event::Did { who, deed } => self.did(ns, who, deed),
                Event::Seen { act, words } => {
                    // A hand-over names two owners, first the one that lets go.
                    let who = words.iter().find_map(|word| self.owners.get(word));
                    if let Some(&who) = who {
                        self.seen(ns, who, act);
                    }
                }
            }
        }
    }

    fn did(&mut self, ns: u64, who: usize, deed: Deed) {
        let contender = &mut self.contenders[who];
        match deed {
            Deed::Waits => {
                contender.waits_ns = ns;
                self.line(ns, who, "waits", "");
            }
            Deed::Holds(owner) => {
                contender.count += 1;
                let count = contender.count;
                let note = if count == 1 {
                    contender.start_ns = ns;
                    self.owners.extend(owner.map(|owner| (owner, who)));
                    self.how_let_in(who)
                } else {
                    contender.reentries += 1;
                    "re-entered".to_owned()
                };
                self.line(ns, who, &format!("holds (count {count})"), &note);
            }
            Deed::Ends => {
                contender.count = 0;
                let Contender { waits_ns, start_ns, .. } = *contender;
                self.holds.push(Hold { who, waits_ns, start_ns, end_ns: ns });
            }
            Deed::Freed => {}
        }
    }

    fn how_let_in(&mut self, who: usize) -> String {
        let Contender { waits_ns, start_ns, .. } = self.contenders[who];
        let let_go = self.let_go.take();
        let time = self.holds.last().and_then(|last| hand_over(last.end_ns, waits_ns, start_ns));
        let (Some(time), Some((_, act, by))) = (time, let_go.filter(|(ns, ..)| waits_ns < *ns)) else {
            return "it was free".to_owned();
        };
        let by = &self.contenders[by].label;
        match act {
            Act::HandedOn => format!("after {time:.2} ms, handed over by {by} (no message)"),
            Act::Published | Act::Renewed => format!("after {time:.2} ms, woken by {by}"),
        }
    }

    fn seen(&mut self, ns: u64, who: usize, act: Act) {
        match act {
            Act::Renewed => {
                self.contenders[who].renewals += 1;
                self.line(ns, who, "renews", &format!("for {} ms, by the watchdog", LEASE.as_millis()));
            }
            Act::Published | Act::HandedOn => self.let_go = Some((ns, act, who)),
        }
    }

    fn line(&self, ns: u64, who: usize, what: &str, note: &str) {
        let Contender { label, colour, .. } = &self.contenders[who];
        let seconds = ns.saturating_sub(self.began_ns) as f64 / 1e9;
        let label = format!("{label:<13}");
        let label = if self.colours { format!("\x1b[{colour}m{label}\x1b[0m") } else { label };
        println!("{}", format!("{seconds:>7.3}s  {label}  {what:<15}  {note}").trim_end());
    }

    /// Prints the summary. Returns what is wrong with it.
    pub fn sum_up(mut self, found: u64) -> Vec<String> {
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
            problems.push(format!("{overlaps} holds began before another had ended"));
        }

        println!(
            "\nhand-over                  count       p50       p99   from calling unlock to returning from lock"
        );
        let one_process = |from: &Hold, to: &Hold| from.who / THREADS == to.who / THREADS;
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
        self.contenders[hold.who].language
    }
}

/// In ms, from one's call of unlock to the return of the next one's lock. `None` if that one was not yet waiting.
fn hand_over(end_ns: u64, waits_ns: u64, start_ns: u64) -> Option<f64> {
    (waits_ns < end_ns).then(|| start_ns.saturating_sub(end_ns) as f64 / 1e6)
}
