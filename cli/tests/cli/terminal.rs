//! `run` as a job of an interactive shell, on a real terminal.

use crate::support::{PROGRAM, Server, with_default_signals};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;

/// A new terminal: the side of its window, and the side of its programs.
fn pair() -> (File, File) {
    let side = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&side).unwrap();
    unlockpt(&side).unwrap();
    let name = ptsname(&side, Vec::new()).unwrap();
    let other = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty());
    (File::from(side), File::from(other.unwrap()))
}

/// The window of a terminal emulator, in which one program runs.
pub struct Screen {
    side: File,
    program: Child,
    emulator: vt100::Parser,
}

impl Screen {
    pub fn start(server: &Server, (rows, columns): (u16, u16), words: &[&str]) -> Self {
        let (side, other) = pair();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&side, size).unwrap();
        let input = || other.try_clone().unwrap();
        let program = with_default_signals("setsid")
            .args(["--ctty", PROGRAM])
            .args(words)
            .env("REDISSON_LOCK_URL", server.url())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .stdin(input())
            .stdout(input())
            .stderr(input())
            .spawn()
            .unwrap();
        Self {
            side,
            program,
            emulator: vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0),
        }
    }

    /// Reads on until the window shows this text. Returns the whole text of the window.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let shown = self.emulator.screen().contents();
            if shown.contains(text) {
                return shown;
            }
            let read = self.side.read(&mut bytes).unwrap_or(0);
            assert_ne!(read, 0, "{text:?} never appeared: {shown}");
            self.emulator.process(&bytes[..read]);
        }
    }

    /// The colour of the character in this row and column.
    pub fn colour(&self, row: u16, column: u16) -> vt100::Color {
        self.emulator.screen().cell(row, column).unwrap().fgcolor()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// A shell on a terminal.
struct Terminal {
    side: File,
    shell: Child,
    shown: String,
}

impl Terminal {
    fn start(server: &Server) -> Self {
        let (side, other) = pair();
        let input = || other.try_clone().unwrap();
        // With a session of its own, the terminal is the shell's.
        let shell = with_default_signals("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env("REDISSON_LOCK_URL", server.url())
            .env("PS1", "")
            .stdin(input())
            .stdout(input())
            .stderr(input())
            .spawn()
            .unwrap();
        let mut terminal = Self { side, shell, shown: String::new() };
        // The words of a command are not in its own echo.
        terminal.write("echo is-''ready\n");
        terminal.see("is-ready");
        terminal
    }

    fn write(&mut self, text: &str) {
        self.side.write_all(text.as_bytes()).unwrap();
    }

    /// Reads on until this text has appeared.
    #[track_caller]
    fn see(&mut self, text: &str) {
        self.until(text);
    }

    /// The same. Returns what came before the text.
    #[track_caller]
    fn until(&mut self, text: &str) -> String {
        let mut bytes = [0; 4096];
        while !self.shown.contains(text) {
            let read = self.side.read(&mut bytes).unwrap_or(0);
            assert_ne!(read, 0, "{text:?} never appeared: {}", self.shown);
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
        let (before, rest) = self.shown.split_once(text).unwrap();
        let (before, rest) = (before.to_owned(), rest.to_owned());
        self.shown = rest;
        before
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn the_program_reads_the_terminal() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.write(&format!("{PROGRAM} run n -c 'echo is-''started; read line; echo got-$line'\n"));
    terminal.see("is-started");
    terminal.write("text\n");
    terminal.see("got-text");
    // The terminal is the shell's again.
    terminal.write("echo code-$?\n");
    terminal.see("code-0");
}

#[test]
fn ctrl_c_ends_the_program() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.write(&format!("{PROGRAM} run n -c 'echo is-''started; exec sleep 1000'\n"));
    terminal.see("is-started");
    terminal.write("\x03");
    terminal.write("echo code-$?\n");
    terminal.see("code-130");
    assert!(!server.exists("n"));
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.write(&format!("{PROGRAM} run n -c 'echo is-''started; read line; echo got-$line'\n"));
    terminal.see("is-started");
    terminal.write("\x1a");
    terminal.see("Stopped");
    assert!(server.exists("n"));
    terminal.write("fg\n");
    terminal.see("run n");
    terminal.write("text\n");
    terminal.see("got-text");
    terminal.write("echo code-$?\n");
    terminal.see("code-0");
}

#[test]
fn force_unlock_asks_on_a_terminal() {
    let server = Server::start();
    let owner = "7c9e6679-7425-40de-944b-e07fc1f90ae7:85";
    let _: u32 = server.raw(&["HSET", "n", owner, "1"]);
    let mut terminal = Terminal::start(&server);
    for (answer, code) in [("no", 64), ("", 64), ("yes", 0)] {
        assert!(server.exists("n"));
        terminal.write(&format!("{PROGRAM} force-unlock n; echo code-''$?\n"));
        terminal.see("Release `n`, held by client 7c9e6679-7425-40de-944b-e07fc1f90ae7, thread 85? ");
        terminal.see("Type yes: ");
        terminal.write(&format!("{answer}\n"));
        terminal.see(&format!("code-{code}"));
    }
    assert!(!server.exists("n"));
}

#[test]
fn colours_are_for_terminals_and_can_be_turned_off() {
    let server = Server::start();
    let _: u32 = server.raw(&["HSET", "n", "7c9e6679-7425-40de-944b-e07fc1f90ae7:85", "1"]);
    let mut terminal = Terminal::start(&server);
    terminal.write("export TERM=xterm\n");
    for (setting, coloured) in
        [("", true), ("NO_COLOR= ", true), ("NO_COLOR=1 ", false), ("TERM=dumb ", false)]
    {
        terminal.write(&format!("{setting}{PROGRAM} list; {setting}{PROGRAM} doctor; echo is-''done\n"));
        let shown = terminal.until("is-done");
        assert!(shown.contains("NAME") && shown.contains("eviction"), "{shown}");
        for code in ["\x1b[1mNAME", "\x1b[32mok"] {
            assert_eq!(shown.contains(code), coloured, "{setting}{code}: {shown:?}");
        }
        assert_eq!(shown.contains('\x1b'), coloured, "{setting}: {shown:?}");
    }
    let piped = server.output(&["list"]).out + &server.output(&["doctor"]).out;
    assert!(!piped.contains('\x1b'), "{piped}");
}
