//! The full screen of a terminal. Whatever ends the program, [`Screen`] gives the terminal back as it was, also after a panic.

use crate::failure::Failure;
use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{
    self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use rustix::process::{Signal, kill_current_process_group};
use std::io::{self, BufWriter, IsTerminal, Stdout, stdin, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the terminal is in our hands.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

type FullTerminal = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// The full screen.
pub struct Screen {
    // Dropped first.
    terminal: FullTerminal,
    _restore: Restore,
}

/// Restores the terminal when dropped.
struct Restore;

impl Screen {
    /// Fails if there is no terminal.
    pub fn check() -> Result<(), Failure> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
        if stdin().is_terminal() && stdout().is_terminal() && !is_dumb {
            return Ok(());
        }
        Err(Failure::Usage(
            "`top` needs a terminal: use `list` for the locks as they are now, or `watch` for what happens to them"
                .to_owned(),
        ))
    }

    /// Takes the terminal.
    pub fn open() -> Result<Self, Failure> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let earlier = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                earlier(info);
            }));
        });
        let restore = Restore;
        enter().map_err(failed)?;
        Ok(Self { terminal: full().map_err(failed)?, _restore: restore })
    }

    /// Draws a frame, in the present size of the terminal.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        if !IS_OPEN.load(Ordering::Acquire) {
            return Err(Failure::System("a task panicked: the message above tells where".to_owned()));
        }
        self.terminal.draw(draw).map(drop).map_err(failed)
    }

    /// Draws everything again, after another program wrote to the terminal.
    pub fn redraw(&mut self) -> Result<(), Failure> {
        // `Terminal::clear` would ask the terminal for its cursor, and the answer would look like keys.
        execute!(stdout(), Clear(ClearType::All)).map_err(failed)?;
        self.terminal = full().map_err(failed)?;
        Ok(())
    }

    /// Stops this job, as Ctrl-Z does, until the shell continues it.
    pub fn suspend(&mut self) -> Result<(), Failure> {
        restore();
        kill_current_process_group(Signal::TSTP).map_err(|error| Failure::system("cannot stop", &error))?;
        enter().map_err(failed)?;
        self.redraw()
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        restore();
    }
}

fn full() -> io::Result<FullTerminal> {
    // A frame is written at once.
    let backend = CrosstermBackend::new(BufWriter::new(stdout()));
    // A serial line, or a container, may not know its size.
    let viewport = match terminal::size() {
        Ok((0, _) | (_, 0)) => Viewport::Fixed(Rect::new(0, 0, 80, 24)),
        _ => Viewport::Fullscreen,
    };
    Terminal::with_options(backend, TerminalOptions { viewport })
}

fn enter() -> io::Result<()> {
    IS_OPEN.store(true, Ordering::Release);
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)
}

fn restore() {
    if IS_OPEN.swap(false, Ordering::AcqRel) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::system("cannot use the terminal", &error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};
    use std::env;
    use std::fs::File;
    use std::io::Read;
    use std::process::Command;

    const VARIABLE: &str = "REDISSON_LOCK_TEST_PANICS";

    /// Runs itself again, in a terminal, where it panics.
    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        if env::var_os(VARIABLE).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("canary");
        }
        let side = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&side).unwrap();
        unlockpt(&side).unwrap();
        let name = ptsname(&side, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = File::from(rustix::fs::open(&name, flags, Mode::empty()).unwrap());
        let input = || program.try_clone().unwrap();
        let mut child = Command::new("setsid")
            .arg("--ctty")
            .arg(env::current_exe().unwrap())
            .args([
                "--exact",
                "--nocapture",
                "top::screen::tests::a_panic_restores_the_terminal_before_its_message",
            ])
            .env(VARIABLE, "1")
            .stdin(input())
            .stdout(input())
            .stderr(input())
            .spawn()
            .unwrap();
        drop(program);
        let (mut side, mut shown, mut bytes) = (File::from(side), Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = side.read(&mut bytes) {
            shown.extend_from_slice(&bytes[..read]);
        }
        assert!(!child.wait().unwrap().success());
        let shown = String::from_utf8_lossy(&shown);
        let position = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text:?}: {shown:?}"));
        let order = ["\x1b[?1049h", "\x1b[?1049l", "canary"].map(position);
        assert!(order.is_sorted(), "{shown:?}");
        assert!(tcgetattr(&side).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON));
    }
}
