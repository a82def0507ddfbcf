//! The permissions to grant to a user whom the server refuses a command.

use crate::doctor::{READING, lacking, needs_of};
use crate::failure::Failure;
use redisson_lock::{Client, Error};
use std::collections::BTreeSet;

/// The refused read.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// The lock of a name, of any kind.
    Lock(&'a str),
    /// The lock of a name, of this kind.
    Kind(&'a str, &'a str),
    /// The locks of a pattern.
    Pattern(&'a str),
}

/// Returns the failure with the permission to grant, if the server refused a command or a key for lack of one.
///
/// The server does not say which command of a script it refused, so this tries them.
pub async fn explained(client: &Client, wanted: Wanted<'_>, failure: Failure) -> Failure {
    let Failure::Library(Error::Refused { code, .. }) = &failure else { return failure };
    if code != "NOPERM" {
        return failure;
    }
    let Ok(reports) = client.examine().await else { return failure };
    let (needs, of) = match wanted {
        Wanted::Lock(name) => (READING, name),
        Wanted::Kind(name, kind) => (needs_of(kind), name),
        Wanted::Pattern(pattern) => (READING, pattern),
    };
    let is_scan = |command: &&str| *command != "scan" || matches!(wanted, Wanted::Pattern(_));
    let lacks: BTreeSet<_> =
        reports.iter().flat_map(|report| lacking(report, needs)).filter(is_scan).collect();
    if lacks.is_empty() {
        let grant = match wanted {
            // The error itself names the page with the keys of each kind.
            Wanted::Kind(..) => return failure,
            Wanted::Pattern(_) => format!("grant ~* or, for the name N of each lock, {}", keys("N")),
            Wanted::Lock(_) => format!("grant {}", keys(of)),
        };
        return Failure::System(format!("the user may not read every key of `{of}`: {grant}"));
    }
    let list = |prefix: &str, between: &str| {
        lacks.iter().map(|command| format!("{prefix}{command}")).collect::<Vec<_>>().join(between)
    };
    Failure::System(format!(
        "the user may not run {}, which reading `{of}` needs: grant {}",
        list("", ", "),
        list("+", " ")
    ))
}

/// The patterns of the keys that a lock, semaphore or latch of any kind may have.
fn keys(name: &str) -> String {
    // The name is a hash tag, unless it has one.
    let tagged = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("~{name} ~redisson_lock_queue:{tagged} ~redisson_lock_token:{tagged} ~{tagged}:*")
}
