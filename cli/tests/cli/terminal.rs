//! `run` as a job of an interactive shell, on a real terminal.

use crate::screen::{pair, read_until, set_size};
use crate::support::{PROGRAM, Server, eventually, with_default_signals};
use rustix::process::Pid;
use rustix::termios::tcgetpgrp;
use std::fs::File;
use std::io::Write;
use std::process::Child;

/// A shell on a terminal.
pub struct Terminal {
    side: File,
    shell: Child,
    shown: String,
}

impl Terminal {
    pub fn start(server: &Server) -> Self {
        let (side, other) = pair();
        set_size(&side, (24, 80));
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

    pub fn write(&mut self, text: &str) {
        self.side.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the shell has given the terminal to a job. It shows the command of the job earlier.
    fn wait_for_job(&self) {
        let shell = Pid::from_child(&self.shell);
        eventually(|| tcgetpgrp(&self.side).is_ok_and(|foreground| foreground != shell));
    }

    /// Reads on until the shell shows that the last command ended with this exit code.
    #[track_caller]
    fn see_code(&mut self, code: u8) {
        self.write("echo code-$?\n");
        self.see(&format!("code-{code}"));
    }

    /// Reads on until this text has appeared.
    #[track_caller]
    pub fn see(&mut self, text: &str) {
        self.until(text);
    }

    /// The same. Returns what came before the text.
    #[track_caller]
    pub fn until(&mut self, text: &str) -> String {
        read_until(&self.side, &mut self.shown, text)
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
    terminal.see_code(0);
}

#[test]
fn ctrl_c_ends_the_program() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    terminal.write(&format!("{PROGRAM} run n -c 'echo is-''started; exec sleep 1000'\n"));
    terminal.see("is-started");
    terminal.write("\x03");
    terminal.see_code(130);
    eventually(|| !server.exists("n"));
}

#[test]
fn ctrl_c_ends_the_script() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let line = format!("{PROGRAM} run n -c \"echo is-''started; exec sleep 1000\"; echo is-''after");
    terminal.write(&format!("bash -c '{}'\n", line.replace('\'', r"'\''")));
    terminal.see("is-started");
    terminal.write("\x03");
    terminal.write("echo code-$?\n");
    let before = terminal.until("code-130");
    assert!(!before.contains("is-after"), "{before}");
    eventually(|| !server.exists("n"));
}

#[test]
fn a_program_that_reads_in_the_background_stops_the_job_until_fg() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let line = "'echo is-''started; read line; echo got-$line'";
    terminal.write("set -b\n");
    terminal.write(&format!("{PROGRAM} run n -c {line} &\n"));
    terminal.see("is-started");
    terminal.see("Stopped");
    terminal.write("fg\n");
    terminal.see("run n");
    terminal.write("text\n");
    terminal.see("got-text");
    terminal.see_code(0);

    // Ctrl-Z and bg, and then fg.
    terminal.write(&format!("{PROGRAM} run n -c {line}\n"));
    terminal.see("is-started");
    terminal.write("\x1a");
    terminal.see("Stopped");
    terminal.write("bg\n");
    terminal.see("run n");
    terminal.see("Stopped");
    terminal.write("fg\n");
    terminal.see("run n");
    terminal.write("more\n");
    terminal.see("got-more");
    terminal.see_code(0);
}

/// The program reads only later, so that nothing stops it before `fg`.
#[test]
fn fg_gives_the_terminal_to_a_program_that_runs_in_the_background() {
    let server = Server::start();
    let mut terminal = Terminal::start(&server);
    let line = "echo is-''started; until [ -e go ]; do sleep 0.01; done; read line; echo got-$line";
    let folder = server.socket().replace("/socket", "");
    terminal.write(&format!("cd {folder}; {PROGRAM} run n -c \"{}\" &\n", line.replace('$', r"\$")));
    terminal.see("is-started");
    terminal.write("fg\n");
    terminal.wait_for_job();
    // Ctrl-Z stops the job.
    terminal.write("\x1a");
    terminal.see("Stopped");
    terminal.write("touch go; fg\n");
    terminal.see("run n");
    terminal.write("text\n");
    terminal.see("got-text");
    terminal.see_code(0);
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
    terminal.see_code(0);
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
fn force_unlock_ends_no_hold_that_it_did_not_show() {
    let server = Server::start();
    let record = |owner: &str| {
        let _: u32 = server.raw(&["DEL", "n"]);
        let _: u32 =
            server.raw(&["HSET", "n", &format!("7c9e6679-7425-40de-944b-e07fc1f90ae7:{owner}"), "1"]);
    };
    record("85");
    let mut terminal = Terminal::start(&server);
    let ask = format!("{PROGRAM} force-unlock n; echo code-''$?\n");
    terminal.write(&ask);
    terminal.see("thread 85? ");
    terminal.see("Type yes: ");
    record("86");
    terminal.write("yes\n");
    terminal.see("`n` is unchanged, because it has another holder now, held by client");
    terminal.see("thread 86");
    terminal.see("code-75");
    assert!(server.exists("n"));
    terminal.write(&ask);
    terminal.see("thread 86? ");
    terminal.see("Type yes: ");
    let _: u32 = server.raw(&["DEL", "n"]);
    terminal.write("yes\n");
    terminal.see("`n` was free");
    terminal.see("code-0");
}

/// A fair lock looks like a plain one until a client waits for it.
#[test]
fn force_unlock_wakes_a_fair_waiter_that_came_after_the_question() {
    let server = Server::start();
    let owner = |thread: u8| format!("7c9e6679-7425-40de-944b-e07fc1f90ae7:{thread}");
    let _: u32 = server.raw(&["HSET", "n", &owner(85), "1"]);
    let mut terminal = Terminal::start(&server);
    terminal.write(&format!("{PROGRAM} force-unlock n; echo code-''$?\n"));
    terminal.see("Type yes: ");
    let _: u32 = server.raw(&["RPUSH", "redisson_lock_queue:{n}", &owner(86)]);
    let _: u32 = server.raw(&["ZADD", "redisson_lock_timeout:{n}", "99999999999999", &owner(86)]);
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut messages = connection.as_pubsub();
    messages.subscribe(format!("redisson_lock__channel:{{n}}:{}", owner(86))).unwrap();
    messages.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    terminal.write("yes\n");
    terminal.see("code-0");
    assert!(!server.exists("n"));
    messages.get_message().expect("the waiter is woken");
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
