//! Draws the report's timeline: the holds of each key and process, and the faults.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::check::is_certain;
use super::history::{History, Hold};

const WIDTH: f64 = 1400.0;
const LEFT: f64 = 110.0;
const TOP: f64 = 120.0;
const ROW: f64 = 16.0;

pub fn draw(history: &History) -> String {
    let first = history.holds.first().map_or(0, |hold| hold.start);
    let last = history.holds.iter().map(|hold| hold.end).max().unwrap_or(first + 1).max(first + 1);
    let x = |at: u64| LEFT + (WIDTH - LEFT) * at.saturating_sub(first) as f64 / (last - first) as f64;
    let mut rows: BTreeMap<(&str, &str), Vec<&Hold>> = BTreeMap::new();
    for hold in &history.holds {
        // All generations of a semaphore share a row.
        let key = hold.key.trim_end_matches(|c: char| c.is_ascii_digit() && hold.key.contains("e:"));
        rows.entry((key, hold.process)).or_default().push(hold);
    }
    let height = TOP + ROW * (rows.len() as f64 + 1.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for window in &history.windows {
        let (from, wide) = (x(window.from), (x(window.to) - x(window.from)).max(0.5));
        let _ = writeln!(
            text,
            "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{wide:.1}\" height=\"{:.0}\" fill=\"#f4c7c3\"/>\
             <text transform=\"translate({from:.1},{:.0}) rotate(-60)\">{}</text>",
            height - TOP,
            TOP - 4.0,
            window.kind,
        );
    }
    for (number, ((key, process), holds)) in rows.into_iter().enumerate() {
        let y = TOP + ROW * number as f64;
        let _ = writeln!(text, "<text x=\"2\" y=\"{:.1}\">{key} {process}</text>", y + 11.0);
        for (colour, from, to) in bars(history, &holds, &x) {
            let wide = (to - from).max(0.4);
            let _ = writeln!(
                text,
                "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"12\" fill=\"{colour}\"/>",
                y + 2.0
            );
        }
    }
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"12\">{} s. Green: certain; grey: Java or uncertain; red: lost. Shaded: faults.</text>\n</svg>",
        (last - first) / 1_000_000_000
    );
    text
}

/// Merges the holds of one row that would touch at this width.
fn bars(history: &History, holds: &[&Hold], x: &impl Fn(u64) -> f64) -> Vec<(&'static str, f64, f64)> {
    let mut bars: Vec<(&'static str, f64, f64)> = Vec::new();
    for hold in holds {
        let colour = if hold.first != "Java" && hold.is_lost() {
            "#c5221f"
        } else if is_certain(history, hold) {
            "#188038"
        } else {
            "#9aa0a6"
        };
        let (from, to) = (x(hold.start), x(hold.end));
        match bars.last_mut() {
            Some((before, _, end)) if *before == colour && from < *end + 0.5 => *end = end.max(to),
            _ => bars.push((colour, from, to)),
        }
    }
    bars
}
