//! `top`: a live table of the locks, on the full screen of a terminal.
//!
//! `history` has what the readings showed, `columns` and `view` draw it, `screen` takes the terminal and gives it back. This file reads
//! the locks and the keys. Nothing else asks the server: each reading is one pass of [`Client::locks`].

mod columns;
mod history;
mod screen;
mod view;

use crate::args::{Connection, Top};
use crate::connect::with_client;
use crate::failure::Failure;
use crate::list::holder_name;
use crate::permissions::{Wanted, explained};
use columns::Column;
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use history::{Entry, History};
use ratatui::widgets::TableState;
use redisson_lock::{Client, Description, Error};
use screen::Screen;
use std::future::pending;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tokio_stream::StreamExt;

/// How often the screen is drawn at least, because it shows for how long the server is unreachable.
const REDRAW: Duration = Duration::from_secs(1);
/// The rows of PgUp and PgDn.
const PAGE: isize = 10;

/// Shows the locks until a key or a signal ends it.
pub async fn top(top: &Top, connection: &Connection) -> Result<u8, Failure> {
    Screen::check()?;
    with_client(connection, async |client| {
        let mut screen = Screen::open()?;
        let mut events = EventStream::new();
        let mut app = App::new(top);
        let mut next = Some(Box::pin(read(client, top, Duration::ZERO)));
        loop {
            app.is_connected = client.is_connected();
            screen.draw(|frame| view::draw(frame, &mut app))?;
            tokio::select! {
                biased;
                event = events.next() => {
                    let event = event.ok_or_else(|| Failure::System("the terminal is gone".to_owned()))?;
                    let event = event.map_err(|error| Failure::system("cannot read the terminal", &error))?;
                    match app.react(&event) {
                        Reaction::Continue => {}
                        Reaction::Redraw => screen.redraw()?,
                        Reaction::Suspend => {
                            screen.suspend()?;
                            app.history.interrupt();
                        }
                        Reaction::Quit => return Ok(0),
                    }
                    if app.is_paused {
                        next = None;
                    } else if next.is_none() {
                        next = Some(Box::pin(read(client, top, Duration::ZERO)));
                    }
                }
                reading = of(&mut next) => {
                    if let Err(failure) = app.take(reading) {
                        drop(screen);
                        return Err(explained(client, Wanted::Pattern(&top.pattern), failure).await);
                    }
                    next = Some(Box::pin(read(client, top, top.interval)));
                }
                () = sleep(REDRAW) => {}
            }
        }
    })
    .await
}

/// The result of one pass over the database.
struct Reading {
    locks: Vec<Description>,
    /// The number of strings that may be no lock.
    unclear: usize,
}

/// Reads the locks after a delay.
async fn read(client: &Client, top: &Top, delay: Duration) -> Result<Reading, Error> {
    sleep(delay).await;
    let mut reading = Reading { locks: Vec::new(), unclear: 0 };
    let mut locks = client.locks(&top.pattern);
    while let Some(seen) = locks.next().await {
        let seen = seen?;
        if top.all || seen.kind.is_certain() {
            reading.locks.push(seen);
        } else {
            reading.unclear += 1;
        }
    }
    Ok(reading)
}

/// Waits for the reading, if one is under way.
async fn of<F: Future>(reading: &mut Option<Pin<Box<F>>>) -> F::Output {
    match reading {
        Some(reading) => reading.await,
        None => pending().await,
    }
}

/// The state of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Table,
    /// The filter is being typed. The earlier one is kept for Esc.
    Filter {
        earlier: String,
    },
    /// One lock, scrolled down by some lines.
    Details {
        name: String,
        down: u16,
    },
    Help,
}

/// The consequence of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Continue,
    Redraw,
    Suspend,
    Quit,
}

/// The state of the program.
struct App<'a> {
    options: &'a Top,
    history: History,
    unclear: usize,
    sort: Column,
    filter: String,
    mode: Mode,
    is_paused: bool,
    is_connected: bool,
    /// The error of the last reading, and when the first of them came.
    trouble: Option<(String, Instant)>,
    /// The name in the selected row, which the selection follows. `None` until a key has moved the selection.
    selected: Option<String>,
    /// The position of the selected row, and of the first row on the screen.
    state: TableState,
}

impl<'a> App<'a> {
    fn new(options: &'a Top) -> Self {
        Self {
            options,
            history: History::default(),
            unclear: 0,
            sort: Column::Waiters,
            filter: String::new(),
            mode: Mode::Table,
            is_paused: false,
            is_connected: true,
            trouble: None,
            selected: None,
            state: TableState::new(),
        }
    }

    /// Takes a reading. An error that a later reading may not have leaves the table as it is; another one ends the program.
    fn take(&mut self, reading: Result<Reading, Error>) -> Result<(), Failure> {
        let now = Instant::now();
        match reading {
            Ok(reading) => {
                self.history.update(reading.locks, now);
                self.unclear = reading.unclear;
                self.trouble = None;
                self.select();
            }
            Err(error) if error.is_retryable() => {
                self.history.interrupt();
                let since = self.trouble.as_ref().map_or(now, |(_, since)| *since);
                self.trouble = Some((error.to_string(), since));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The time that the table shows.
    fn now(&self) -> Instant {
        self.history.read().unwrap_or_else(Instant::now)
    }

    /// The locks that the filter leaves, in their order.
    fn rows(&self) -> Vec<&Entry> {
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        let is_wanted = |entry: &&Entry| {
            let lock = &entry.lock;
            let owners = lock.holders.iter().map(|holder| holder.owner());
            let mut clients = lock.holders.iter().map(holder_name);
            has(&lock.name)
                || clients.any(|client| has(&client))
                || owners.chain(lock.queue.iter().map(String::as_str)).any(has)
        };
        let mut rows: Vec<_> = self.history.entries().filter(is_wanted).collect();
        let now = self.now();
        rows.sort_by(|one, other| self.sort.order(one, other, now));
        rows
    }

    /// Selects the row of the selected name, or the row that is in its place now.
    fn select(&mut self) {
        let names: Vec<&str> = self.rows().into_iter().map(|row| &*row.lock.name).collect();
        let of_name = names.iter().position(|name| Some(*name) == self.selected.as_deref());
        let last = names.len().checked_sub(1);
        let position = of_name.or(last.map(|last| self.state.selected().unwrap_or(0).min(last)));
        let name = position.map(|position| names[position].to_owned());
        self.state.select(position);
        self.selected = self.selected.take().and(name);
    }

    fn move_by(&mut self, rows: isize) {
        let last = self.rows().len().saturating_sub(1);
        let position = self.state.selected().unwrap_or(0).saturating_add_signed(rows).min(last);
        self.state.select(Some(position));
        self.selected = self.rows().get(position).map(|row| row.lock.name.clone());
    }

    fn react(&mut self, event: &Event) -> Reaction {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            _ => Reaction::Continue,
        }
    }

    fn press(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Reaction::Quit,
                KeyCode::Char('l') => Reaction::Redraw,
                KeyCode::Char('z') => Reaction::Suspend,
                _ => Reaction::Continue,
            };
        }
        match &mut self.mode {
            Mode::Table => return self.press_in_table(key.code),
            Mode::Filter { earlier } => {
                match key.code {
                    KeyCode::Char(character) => self.filter.push(character),
                    KeyCode::Backspace => drop(self.filter.pop()),
                    KeyCode::Esc => {
                        self.filter = std::mem::take(earlier);
                        self.mode = Mode::Table;
                    }
                    KeyCode::Enter => self.mode = Mode::Table,
                    _ => {}
                }
                self.select();
            }
            Mode::Details { down, .. } => match key.code {
                KeyCode::Char('q') => return Reaction::Quit,
                KeyCode::Esc | KeyCode::Enter => self.mode = Mode::Table,
                KeyCode::Down | KeyCode::Char('j') => *down = down.saturating_add(1),
                KeyCode::Up | KeyCode::Char('k') => *down = down.saturating_sub(1),
                KeyCode::Char('p') => self.pause(),
                _ => {}
            },
            Mode::Help => self.mode = Mode::Table,
        }
        Reaction::Continue
    }

    fn press_in_table(&mut self, key: KeyCode) -> Reaction {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Reaction::Quit,
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::PageDown => self.move_by(PAGE),
            KeyCode::PageUp => self.move_by(-PAGE),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            KeyCode::Char('s') => {
                self.sort = self.sort.next_sort();
                self.select();
            }
            KeyCode::Char('/') => self.mode = Mode::Filter { earlier: self.filter.clone() },
            KeyCode::Char('p') => self.pause(),
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Enter => {
                let position = self.state.selected().unwrap_or(0);
                if let Some(name) = self.rows().get(position).map(|row| row.lock.name.clone()) {
                    self.mode = Mode::Details { name, down: 0 };
                }
            }
            _ => {}
        }
        Reaction::Continue
    }

    fn pause(&mut self) {
        self.is_paused = !self.is_paused;
        self.history.interrupt();
    }
}
