//! `hold`: a lock that is held until standard input ends or a signal comes.

use crate::args::{Connection, Hold};
use crate::failure::Failure;
use crate::locks::{self, Held};
use crate::output::line;
use crate::signals::Signals;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;
use std::io::{self, Read};
use std::thread;
use tokio::sync::oneshot;

/// Holds the lock. Returns 0 after the release.
pub async fn hold(hold: Hold, connection: &Connection) -> Result<u8, Failure> {
    locks::while_held(&hold.name, &hold.terms, connection, Signals::ending()?, keep).await
}

async fn keep(held: Held, signals: &mut Signals) -> Result<u8, Failure> {
    let status = held.status();
    let name = status.name().to_owned();
    line(&json!({"event": "held", "name": name, "owner": held.owner(), "token": status.token()}))?;
    tokio::select! {
        biased;
        state = status.lost() => {
            let reason = locks::reason(state);
            // The exit code tells of the loss even if nobody reads the line.
            let _ = line(&json!({"event": "lost", "name": name, "reason": reason}));
            return Err(Failure::Lost(format!("the lock `{name}` is lost: {reason}: treat the work as unprotected")));
        }
        _ = signals.next() => {}
        _ = input_ended() => {}
    }
    held.release().await?;
    Ok(0)
}

/// Waits for the end of standard input. A thread reads it, and may outlive the wait until this process ends.
async fn input_ended() {
    let (ended, wait) = oneshot::channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            match io::stdin().read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that has the same pipe or terminal may have made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], None);
                }
                Err(_) => break,
            }
        }
        let _ = ended.send(());
    });
    let _ = wait.await;
}
