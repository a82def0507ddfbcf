//! `run`: a program that runs while a lock is held.
//!
//! 1. The program starts only after the acquire, and not if a signal or a loss came before.
//! 2. Each signal goes to the program's whole group.
//! 3. After a loss, the group ends within `--kill-after`. The guard ends it if this process cannot.
//! 4. The lock is released only after the program has ended.

use crate::args::{Connection, OnLost, Run};
use crate::child::{Change, Child, End, Prevention, Start, TOKEN};
use crate::codes::Codes;
use crate::failure::Failure;
use crate::guard::Message;
use crate::locks::{self, Held};
use crate::output::say;
use crate::signals::{self, Signals};
use redisson_lock::{HoldState, HoldStatus};
use rustix::process::Signal;
use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Runs the program, and returns its exit code.
pub async fn run(run: Run, connection: &Connection, codes: &Codes) -> Result<u8, Failure> {
    let signals = Signals::forwarded()?;
    let held = async |held, signals: &mut Signals| hold(&run, codes, held, signals).await;
    locks::while_held(&run.name, &run.terms, connection, signals, held).await
}

/// Runs the program, and releases what is held.
async fn hold(run: &Run, codes: &Codes, held: Held, signals: &mut Signals) -> Result<u8, Failure> {
    let status = held.status();
    let mut environment =
        vec![("REDISSON_LOCK_NAME", status.name().to_owned()), ("REDISSON_LOCK_OWNER", held.owner())];
    if let Some(token) = status.token() {
        environment.push((TOKEN, token.to_string()));
    }
    let first = (run.on_lost != OnLost::Warn).then(|| Message::deadline(status.validity(), kill_after(run)));
    let started = Child::start(&program(run), &environment, first, codes, &status, signals).await;
    let ended = match started {
        Ok(Start::Running(mut child)) => supervise(run, &status, &mut child, signals).await,
        Ok(Start::Prevented(Prevention::Signal(signal))) => Err(Failure::Signalled(signal)),
        Ok(Start::Prevented(Prevention::Loss(state))) => {
            let (name, reason) = (status.name(), locks::reason(state));
            Err(Failure::Lost(format!("the lock `{name}` was lost before the program started: {reason}")))
        }
        Err(failure) => Err(failure),
    };
    let released = release(run, &status, held, signals).await;
    let code = ended?.report();
    released.and(code)
}

/// Releases what is held after the end of the program. Fails if the program may have run unprotected.
async fn release(run: &Run, status: &HoldStatus, held: Held, signals: &mut Signals) -> Result<(), Failure> {
    let state = status.state();
    if !state.is_live() && run.on_lost != OnLost::Warn {
        return Err(Failure::Lost(lost(status, state, "its work may be unprotected")));
    }
    let released = tokio::select! {
        biased;
        released = held.release() => released,
        // The program has ended, and its exit code is known. The lease ends the hold.
        _ = signals.next_ending() => return Ok(()),
    };
    match released {
        Err(error) if error.is_lost() && run.on_lost != OnLost::Warn => {
            Err(Failure::Lost(format!("{error}: the work of the program may be unprotected")))
        }
        // The program was to continue after a loss, and a message has told of it.
        Err(error) if error.is_lost() => {
            say(&error);
            Ok(())
        }
        Err(error) => {
            say(format_args!("{error}: the lock may stay busy until its lease ends"));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// The time that the program has after a loss.
fn kill_after(run: &Run) -> Duration {
    if run.on_lost == OnLost::Kill { Duration::ZERO } else { run.kill_after }
}

fn program(run: &Run) -> Vec<OsString> {
    match &run.command {
        Some(line) => vec!["/bin/sh".into(), "-c".into(), line.into()],
        None => run.program.clone(),
    }
}

fn lost(status: &HoldStatus, state: HoldState, effect: &str) -> String {
    let (name, reason) = (status.name(), locks::reason(state));
    format!("the lock `{name}` is lost while the program runs: {reason}: {effect}")
}

fn effect(action: OnLost) -> &'static str {
    match action {
        OnLost::Term => "it gets SIGTERM",
        OnLost::Kill => "it gets SIGKILL",
        OnLost::Warn => "it continues unprotected",
    }
}

/// Sends the signals of a loss. Returns when the program gets SIGKILL.
fn on_loss(action: OnLost, kill_after: Duration, child: &mut Child) -> Option<Instant> {
    match action {
        OnLost::Term => {
            child.signal(Signal::TERM);
            // A stopped program gets the signal only when it continues.
            child.signal(Signal::CONT);
            child.tell_guard(Message::kill_after(kill_after));
            Some(Instant::now() + kill_after)
        }
        OnLost::Kill => {
            child.signal(Signal::KILL);
            None
        }
        OnLost::Warn => None,
    }
}

/// How soon the guard needs the next message, so that each renewal reaches it well before the deadline that it knows.
///
/// A share of the time that is left now, because the first lease may be longer than later ones, and a renewal may come late.
fn until_next_message(status: &HoldStatus) -> Duration {
    (status.validity() / 10).clamp(Duration::from_millis(10), Duration::from_secs(1))
}

/// Waits for the program to end, and forwards signals. Ends the program if the hold is lost.
async fn supervise(
    run: &Run,
    status: &HoldStatus,
    child: &mut Child,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let kill_after = kill_after(run);
    let mut hold_ended = pin!(status.lost());
    let (mut is_lost, mut kill_at, mut must_end) = (false, None::<Instant>, false);
    let ended = loop {
        let is_guarded = run.on_lost != OnLost::Warn && !is_lost && status.state().is_live();
        if is_guarded {
            child.tell_guard(Message::deadline(status.validity(), kill_after));
        }
        tokio::select! {
            biased;
            // Before the end of the program, because a signal that came before it ends the rest of the group.
            number = signals.next() => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    if signal == Signal::CONT {
                        // The shell may have made this job the foreground job.
                        child.take_terminal();
                    }
                    child.signal(signal);
                }
                must_end |= signals::is_ending(number);
            }
            change = child.change() => match change {
                Change::Ended(end) => break Ok(end),
                Change::Unknown(error) => {
                    must_end = true;
                    break Err(Failure::system("cannot wait for the program, so that its group is ended", &error));
                }
                Change::Stopped(signal) => child.stop_too(signal),
            },
            state = &mut hold_ended, if !is_lost => {
                is_lost = true;
                kill_at = on_loss(run.on_lost, kill_after, child);
                // After the signals, because a pipe that nobody reads may block.
                say(lost(status, state, effect(run.on_lost)));
            }
            () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                kill_at = None;
                child.signal(Signal::KILL);
            }
            () = sleep(until_next_message(status)), if is_guarded => {}
        }
    };
    // If this process was stopped, the program may have ended before the loss was seen.
    let is_live = status.state().is_live();
    must_end |= run.on_lost != OnLost::Warn && !is_live;
    if must_end {
        // Without a loss, `--on-lost` does not count.
        let time = if is_live { run.kill_after } else { kill_after };
        let left = kill_at.map_or(time, |at| at.saturating_duration_since(Instant::now()));
        child.end_group(left).await;
    }
    child.dismiss_guard();
    ended
}
