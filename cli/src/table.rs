//! Output for people: aligned columns, colours, and texts that cannot confuse a terminal.

use ratatui::text::Span;
use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::sync::LazyLock;
use std::time::Duration;

/// How a word is shown on a terminal that has colours.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// A title.
    Bold,
    /// As it should be.
    Green,
    /// Worth a look.
    Yellow,
    /// A loss, or a danger.
    Red,
}

/// Whether standard output has colours: it is a terminal, and `NO_COLOR` is not set.
pub fn has_colours() -> bool {
    static COLOURS: LazyLock<bool> = LazyLock::new(|| {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_none_or(|name| name == "dumb");
        io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
    });
    *COLOURS
}

/// Returns the text in a style, if standard output has colours.
pub fn styled(text: &str, style: Style) -> String {
    let code = match style {
        Style::Bold => 1,
        Style::Green => 32,
        Style::Yellow => 33,
        Style::Red => 31,
    };
    if has_colours() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Aligns the columns of `rows`, the first of which has the titles. Two spaces separate them.
pub fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = self::width(cell).max(*width);
        }
    }
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell}{:1$}", "", width + 2 - self::width(cell));
        }
        let line = line.trim_end();
        text.push_str(&if at == 0 { styled(line, Style::Bold) } else { line.to_owned() });
        text.push('\n');
    }
    text
}

/// The width of a text in a terminal, where some characters take two columns.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
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

/// A text of others, without control characters and others that cannot be printed.
pub fn shown(text: &str) -> String {
    const PRINTABLE: [char; 3] = ['\'', '"', '\\'];
    let mut shown = String::new();
    for part in text.split_inclusive(PRINTABLE) {
        // `escape_debug` also escapes these, so that a shown name could not be pasted into another command.
        let rest = part.trim_end_matches(PRINTABLE);
        shown.extend(rest.escape_debug());
        shown.push_str(&part[rest.len()..]);
    }
    shown
}
