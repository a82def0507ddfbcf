//! The pictures: the table, the details of one lock, and the help, between a title line and a status line.

use crate::table::{has_colours, number, shown, width};
use crate::top::columns::{COLUMNS, Column, cut, cut_owner, fit, lease};
use crate::top::history::{Entry, Since, brief};
use crate::top::{App, Mode};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table, Wrap};
use std::time::Instant;

const KEYS: &str = "q quit  s sort  / filter  p pause  Enter details  ? help";

/// Draws a frame.
pub fn draw(frame: &mut Frame<'_>, app: &mut App<'_>) {
    let lines = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [title, body, status] = Layout::vertical(lines).areas(frame.area());
    draw_title(frame, app, title);
    match app.mode.clone() {
        Mode::Table | Mode::Filter { .. } => draw_table(frame, app, body),
        Mode::Details { name, down } => {
            let lines = details(app.history.get(&name), &name, app.now(), body.width.into());
            // The last line stays in sight.
            let most = u16::try_from(lines.len().saturating_sub(body.height.into())).unwrap_or(u16::MAX);
            if let Mode::Details { down, .. } = &mut app.mode {
                *down = most.min(*down);
            }
            frame.render_widget(Paragraph::new(lines).scroll((down.min(most), 0)), body);
        }
        Mode::Help => frame.render_widget(Paragraph::new(help()), body),
    }
    draw_status(frame, app, status);
}

/// The number of locks, and how current they are.
fn draw_title(frame: &mut Frame<'_>, app: &App<'_>, area: Rect) {
    let (mut all, mut held, mut waited) = (0, 0, 0);
    for entry in app.history.entries() {
        all += 1;
        held += usize::from(!entry.lock.holders.is_empty());
        waited += usize::from(entry.waiting().is_some());
    }
    let state = if app.trouble.is_some() || !app.is_connected {
        coloured("UNREACHABLE", Color::Red).bold()
    } else if app.is_paused {
        coloured("PAUSED", Color::Yellow).bold()
    } else {
        Span::raw(format!("every {} s", app.options.interval.as_secs_f64()))
    };
    let right = u16::try_from(state.width()).unwrap_or(u16::MAX);
    let [left, _, right] =
        Layout::horizontal([Constraint::Min(0), Constraint::Length(1), Constraint::Length(right)])
            .areas(area);
    let counts = if app.history.read().is_some() {
        format!("{all} found, {held} held, {waited} waited for, by {}", app.sort.title().to_lowercase())
    } else {
        "reading".to_owned()
    };
    let name = if area.width < 100 { "top" } else { "redisson-lock top" };
    let rest = usize::from(left.width).saturating_sub(width(name) + width(&counts) + 4);
    let pattern = cut(&shown(&app.options.pattern), rest.max(1));
    let text = Line::from(vec![Span::raw(name).bold(), Span::raw(format!("  {pattern}  {counts}"))]);
    frame.render_widget(text, left);
    frame.render_widget(Line::from(state), right);
}

fn draw_table(frame: &mut Frame<'_>, app: &mut App<'_>, area: Rect) {
    let now = app.now();
    let rows = app.rows();
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(nothing(app)).wrap(Wrap { trim: false }), area);
        return;
    }
    let cells: Vec<[String; 8]> =
        rows.iter().map(|row| COLUMNS.map(|column| column.cell(row, now))).collect();
    let is_waited_for: Vec<bool> = rows.iter().map(|row| row.waiting().is_some()).collect();
    let mut wanted = COLUMNS.map(|column| width(column.title()));
    for row in &cells {
        for (wanted, cell) in wanted.iter_mut().zip(row) {
            *wanted = width(cell).max(*wanted);
        }
    }
    let (columns, gap) = fit(wanted, area.width.into());
    let aligned = |column: Column, text: Line<'static>| {
        if column.is_number() { text.right_aligned() } else { text }
    };
    let titles = columns.iter().map(|&(column, width)| {
        let title = Span::raw(cut(column.title(), width)).bold();
        aligned(column, Line::from(if column == app.sort { title.underlined() } else { title }))
    });
    let titles = Row::new(titles.collect::<Vec<_>>());
    let rows = cells.iter().zip(is_waited_for).map(|(row, is_waited_for)| {
        let cells = columns.iter().map(|&(column, width)| {
            let text = &row[COLUMNS.iter().position(|other| *other == column).unwrap_or_default()];
            let text = if column == Column::Owner { cut_owner(text, width) } else { cut(text, width) };
            let is_warning = is_waited_for && matches!(column, Column::Waiters | Column::Waited);
            aligned(column, Line::from(if is_warning { coloured(text, Color::Yellow) } else { text.into() }))
        });
        Row::new(cells.collect::<Vec<_>>())
    });
    let rows: Vec<_> = rows.collect();
    let widths =
        columns.iter().map(|&(_, width)| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let table = Table::new(rows, widths)
        .header(titles)
        .column_spacing(u16::try_from(gap).unwrap_or(1))
        .row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, area, &mut app.state);
}

/// Why the table is empty.
fn nothing(app: &App<'_>) -> String {
    if app.history.read().is_none() {
        return String::new();
    }
    if app.filter.is_empty() {
        return format!("No lock, semaphore or latch matches {} now.", shown(&app.options.pattern));
    }
    format!("No name and no owner contains {}.", shown(&app.filter))
}

/// The filter, or what is wrong, or the keys.
fn draw_status(frame: &mut Frame<'_>, app: &App<'_>, area: Rect) {
    let most = usize::from(area.width);
    if matches!(app.mode, Mode::Filter { .. }) {
        let text = cut(&format!("/{}", shown(&app.filter)), most.saturating_sub(1));
        let column = u16::try_from(width(&text)).unwrap_or(u16::MAX);
        frame.set_cursor_position(Position { x: area.x.saturating_add(column), y: area.y });
        frame.render_widget(Line::from(text), area);
        return;
    }
    if let Some((error, since)) = &app.trouble {
        let text = format!("no answer for {}, trying again: {}", brief(since.elapsed()), shown(error));
        frame.render_widget(Line::from(coloured(cut(&text, most), Color::Red)), area);
        return;
    }
    let keys = match app.mode {
        Mode::Details { .. } => "q quit  Esc back  j k scroll  p pause",
        Mode::Help => "any key: back",
        _ => KEYS,
    };
    let mut text = keys.to_owned();
    if !app.filter.is_empty() {
        text = format!("filter {}  {text}", shown(&app.filter));
    }
    if app.unclear > 0 {
        text.push_str(&format!("  {} hidden: --all", app.unclear));
    }
    frame.render_widget(Line::from(cut(&text, most)), area);
}

/// The width of the labels of the details.
const LABEL: usize = 9;

/// All that is known of a lock, in lines of at most `most` columns.
fn details(entry: Option<&Entry>, name: &str, now: Instant, most: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: &str, note: &str| lines.extend(labelled(label, text, note, most));
    line("name", &shown(name), "");
    let Some(entry) = entry else {
        line("holder", "none: no lock has this name now", "");
        return lines;
    };
    let lock = &entry.lock;
    let unclear = if lock.kind.is_certain() { "" } else { ", which may be no lock at all" };
    line("kind", &format!("{}{unclear}", lock.kind), "");
    let seen = |since: Option<Since>| {
        since.map_or_else(String::new, |since| format!(", seen for {}", since.text(now)))
    };
    match (lock.count, lock.taken) {
        (Some(free), Some(taken)) => line("permits", &format!("{free} free, {taken} taken"), ""),
        (Some(count), None) => line("count", &count.to_string(), ""),
        (None, _) if lock.holders.is_empty() => line("holder", "none: the lock is free", ""),
        (None, _) => {
            for holder in &lock.holders {
                let times = match holder.count() {
                    1 => "once".to_owned(),
                    count => format!("{count} times"),
                };
                let note = format!(", {times}{}", seen(entry.holder(holder.owner())));
                line("holder", &shown(holder.owner()), &note);
                if let Some(client) = holder.client() {
                    line("client", &client.to_string(), "");
                }
            }
        }
    }
    line("lease", &lease(lock.remaining_lease), "");
    line("waiters", &number(lock.waiters), &seen(entry.waiting()));
    if let Some(token) = lock.token {
        line("token", &token.to_string(), "");
    }
    for (at, owner) in (1..).zip(&lock.queue) {
        let at: usize = at;
        line("queue", &format!("{at}. {}", shown(owner)), &seen(entry.queued(owner)));
    }
    lines
}

/// A label, a text and a note. The text continues below if it is too long, and a note that does not fit has its own line.
fn labelled(label: &str, text: &str, note: &str, most: usize) -> Vec<Line<'static>> {
    let most = most.saturating_sub(LABEL).max(2);
    let mut parts = vec![String::new()];
    for part in Span::raw(text).styled_graphemes(Style::new()) {
        let last = parts.len() - 1;
        if width(&parts[last]) + width(part.symbol) > most {
            parts.push(part.symbol.to_owned());
        } else {
            parts[last].push_str(part.symbol);
        }
    }
    match parts.last_mut() {
        Some(last) if width(last) + width(note) <= most => last.push_str(note),
        _ => parts.push(cut(note.trim_start_matches(", "), most)),
    }
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let line =
        |(label, part)| Line::from(vec![Span::raw(format!("{label:<LABEL$}")).bold(), Span::raw(part)]);
    labels.zip(parts).map(line).collect()
}

fn help() -> Vec<Line<'static>> {
    let key = |keys: &str, effect: &str| {
        Line::from(vec![Span::raw(format!("{keys:<18}")).bold(), Span::raw(effect.to_owned())])
    };
    vec![
        key("up, down, k, j", "move; also PgUp, PgDn, Home and End"),
        key("s", "sort by waiters, waited, held, lease, holders, name"),
        key("/", "show only names and owners with a text"),
        key("", "Enter keeps the text, Esc restores the one before"),
        key("p", "pause, and continue"),
        key("Enter", "show one lock: its holders, its token, and its queue"),
        key("?", "this help"),
        key("Ctrl-L", "draw the screen again"),
        key("Ctrl-Z", "stop until the shell continues this program"),
        key("q, Esc, Ctrl-C", "quit"),
        Line::default(),
        Line::from("WAITED and HELD count from when this program first saw the waiter or holder."),
        Line::from("A + says that it may have been earlier: no reading came shortly before."),
        Line::from("OWNER is one of the holders. A semaphore has its taken permits as HOLDERS."),
    ]
}

fn coloured(text: impl Into<std::borrow::Cow<'static, str>>, colour: Color) -> Span<'static> {
    let style = if has_colours() { Style::new().fg(colour) } else { Style::new() };
    Span::styled(text, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_and_the_keys_fit_a_narrow_window() {
        for line in help() {
            assert!(line.width() <= 80, "{line}");
        }
        assert!(width(KEYS) <= 80);
    }
}
