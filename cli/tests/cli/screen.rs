//! The window of a terminal emulator.

use crate::support::{PROGRAM, Server, with_default_signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

/// A bound for what must appear.
const SOON: Duration = Duration::from_secs(20);
/// In the window before the program starts.
pub const BEFORE: &str = "from before";

/// A new terminal: the side of its window, and the side of its programs.
pub fn pair() -> (File, File) {
    let side = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&side).unwrap();
    unlockpt(&side).unwrap();
    let name = ptsname(&side, Vec::new()).unwrap();
    let other = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    (File::from(side), File::from(other.unwrap()))
}

/// A window, in which one program runs.
pub struct Screen {
    side: File,
    program: Child,
    emulator: vt100::Parser,
    settings: Termios,
}

impl Screen {
    pub fn start(server: &Server, size: (u16, u16), words: &[&str]) -> Self {
        Self::with(server, size, words, &[])
    }

    /// The same with more variables.
    pub fn with(
        server: &Server,
        (rows, columns): (u16, u16),
        words: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let (side, other) = pair();
        set_size(&side, (rows, columns));
        let settings = tcgetattr(&other).unwrap();
        // A terminal of no size has a window nevertheless.
        let (rows, columns) = if rows == 0 { (24, 80) } else { (rows, columns) };
        let emulator = vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0);
        let input = || other.try_clone().unwrap();
        let program = with_default_signals("setsid")
            .args(["--ctty", PROGRAM])
            .args(words)
            .env("REDISSON_LOCK_URL", server.url())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(input())
            .stdout(input())
            .stderr(input())
            .spawn()
            .unwrap();
        Self { side, program, emulator, settings }
    }

    /// Writes a text into the window, as an earlier program would.
    pub fn show_before(mut self) -> Self {
        self.disturb(BEFORE);
        self
    }

    /// Writes a line into the window, as another program would.
    pub fn disturb(&mut self, text: &str) {
        self.emulator.process(format!("{text}\r\n").as_bytes());
    }

    pub fn press(&mut self, keys: &str) {
        self.side.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program), signal).unwrap();
    }

    pub fn resize(&mut self, (rows, columns): (u16, u16)) {
        self.emulator.screen_mut().set_size(rows.try_into().unwrap(), columns.try_into().unwrap());
        set_size(&self.side, (rows, columns));
    }

    /// Reads on until the window shows this text. Returns the whole text of the window.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        self.wait(text, |shown| shown.contains(text))
    }

    /// Reads on until the window is as it should be. Returns its whole text.
    #[track_caller]
    pub fn wait(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        self.wait_for(what, |screen| is_there(&screen.emulator.screen().contents()));
        self.emulator.screen().contents()
    }

    /// The same for what the text does not tell.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, is_there: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !is_there(self) {
            let left = SOON.saturating_sub(started.elapsed());
            let shown = || self.emulator.screen().contents();
            assert!(!left.is_zero(), "never appeared:\n{what}\n\nbut:\n{}", shown());
            assert!(self.read(left), "it has ended:\n{}", self.emulator.screen().contents());
        }
    }

    /// Reads what comes within a time. Returns `false` if the program has ended.
    fn read(&mut self, most: Duration) -> bool {
        let read = read(&self.side, most);
        self.emulator.process(read.as_deref().unwrap_or_default());
        read.is_some()
    }

    /// Waits for the end of the program. The window must be as before, except for what the program wrote into it. Returns the exit code,
    /// and the text of the window.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, String) {
        let started = Instant::now();
        while self.read(SOON) {
            assert!(started.elapsed() < SOON, "it does not end: {}", self.emulator.screen().contents());
        }
        let code = self.program.wait().unwrap().code();
        let screen = self.emulator.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "the window is not restored");
        let now = tcgetattr(&self.side).unwrap();
        let modes = |settings: &Termios| {
            (settings.input_modes, settings.output_modes, settings.local_modes, settings.control_modes)
        };
        assert_eq!(modes(&now), modes(&self.settings), "the terminal is not restored");
        (code, screen.contents())
    }

    /// The colour of the character in this row and column.
    pub fn colour(&self, row: u16, column: u16) -> vt100::Color {
        self.emulator.screen().cell(row, column).unwrap().fgcolor()
    }

    /// Whether the row is selected.
    pub fn is_reversed(&self, row: u16) -> bool {
        self.emulator.screen().cell(row, 0).unwrap().inverse()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Returns what comes within a time, which may be nothing. `None` if no program uses the terminal any longer.
fn read(mut side: &File, most: Duration) -> Option<Vec<u8>> {
    let mut ready = [PollFd::new(side, PollFlags::IN)];
    if poll(&mut ready, Some(&Timespec::try_from(most).unwrap())).unwrap() == 0 {
        return Some(Vec::new());
    }
    let mut bytes = [0; 4096];
    let read = side.read(&mut bytes).unwrap_or(0);
    (read > 0).then(|| bytes[..read].to_vec())
}

/// Reads on until this text has appeared in `shown`. Returns what came before the text, and removes both.
#[track_caller]
pub fn read_until(side: &File, shown: &mut String, text: &str) -> String {
    let started = Instant::now();
    while !shown.contains(text) {
        let left = SOON.saturating_sub(started.elapsed());
        let bytes = read(side, left).filter(|_| !left.is_zero());
        let bytes = bytes.unwrap_or_else(|| panic!("{text:?} never appeared: {shown}"));
        shown.push_str(&String::from_utf8_lossy(&bytes));
    }
    let (before, rest) = shown.split_once(text).unwrap();
    let (before, rest) = (before.to_owned(), rest.to_owned());
    *shown = rest;
    before
}

pub fn set_size(terminal: &File, (rows, columns): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}
