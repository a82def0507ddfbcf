//! Tables for people: aligned columns, and texts that cannot confuse a terminal.

use std::fmt::Write as _;
use std::time::Duration;

/// Aligns the columns of `rows`, the first of which has the titles. Two spaces separate them.
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A lease: "4.2 s", "-" without a record, or "no end".
pub fn lease(left: Option<Duration>) -> String {
    match left {
        None => "-".to_owned(),
        Some(Duration::MAX) => "no end".to_owned(),
        Some(left) => format!("{:.1} s", left.as_secs_f64()),
    }
}

/// A number that may be unknown.
pub fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// A text of others, without control characters.
pub fn shown(text: &str) -> String {
    text.escape_debug().to_string()
}
