//! Fast paths: plain commands instead of a script (see [`FastPath`]), and which of them a server permits to this client.
//!
//! ARCHITECTURE invariant 3: a fast path that fails, or reports that it did nothing, has written nothing. So the script may follow, and does
//! not count as a repeat.

use super::{ErrorClass, classify, into_server_error, server_text};
use crate::protocol::restore_payload;
use crate::protocol::script::{Delete, FastCommand, FastPath, Reply, created_reply, deleted_reply};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::debug;

/// Messages of servers that never restore a record for this client.
const NEVER: [&str; 8] = [
    "unknown command",
    "run this command",
    "permissions to run",
    "only supports",
    "not supported",
    "unsupported",
    "not allowed",
    "disabled",
];
/// Codes of refusals that concern one key or one moment only. (Some servers report a busy key as `ERR`.)
const PASSING: [&str; 5] = ["BUSYKEY", "WRONGTYPE", "OOM", "MISCONF", "CROSSSLOT"];

/// The commands that send one request.
#[derive(Clone)]
pub(super) enum Commands {
    One(Cmd),
    /// Commands that are sent together, the number of replies to skip at their beginning, and the number of replies after these.
    Several(Pipeline, usize, usize),
}

impl Commands {
    /// `command`, after `ASKING` if `asking`.
    pub(super) fn of(command: Cmd, asking: bool) -> Self {
        if !asking {
            return Self::One(command);
        }
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command);
        Self::Several(both, 1, 1)
    }
}

/// The fast paths that are permitted on one connection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct FastPaths(Arc<Permitted>);

#[derive(Debug, Default)]
struct Permitted {
    restore: AtomicBool,
    set: AtomicBool,
    transactions: AtomicBool,
    delete_if: Option<DeleteIf>,
    /// The command that publishes a message.
    publish: &'static str,
}

/// The command that deletes a string if it has a given value.
#[derive(Clone, Copy, Debug)]
enum DeleteIf {
    /// Valkey 9.0 and later.
    DelIfEq,
    /// Redis 8.4 and later.
    DelEx,
}

impl DeleteIf {
    fn command(self, key: &str, value: &str) -> Cmd {
        match self {
            Self::DelIfEq => command(&["DELIFEQ", key, value]),
            Self::DelEx => command(&["DELEX", key, "IFEQ", value]),
        }
    }
}

/// A command in one allocation for its words and one for its bytes.
fn command(words: &[&str]) -> Cmd {
    let mut command = Cmd::with_capacity(words.len(), words.iter().map(|word| word.len()).sum());
    for word in words {
        command.arg(word);
    }
    command
}

impl FastPaths {
    /// Finds out which fast paths are permitted. It tries requests that have no effect:
    /// - a transaction without commands, because a forbidden transaction with commands would run in part;
    /// - a `RESTORE` with a wrong checksum, and the conditional deletions, of `key`, which does not exist.
    ///
    /// # Errors
    /// If the probe ended the connection.
    pub(super) async fn probe(
        mut connection: MultiplexedConnection,
        key: &str,
        sharded: bool,
    ) -> Result<Self, RedisError> {
        let mut tries = redis::pipe();
        // The payload is a real record, so that a server that cannot restore hashes refuses it as such. A server that ignores the
        // checksum has the key for a millisecond.
        let mut payload = restore_payload::held_once(None, key);
        payload.iter_mut().rev().take(8).for_each(|byte| *byte = !*byte);
        tries.cmd("MULTI").cmd("EXEC").cmd("RESTORE").arg(key).arg(1).arg(payload);
        for delete_if in [DeleteIf::DelIfEq, DeleteIf::DelEx] {
            tries.add_command(delete_if.command(key, ""));
        }
        let replies = match connection.send_packed_commands(&tries, 0, 5).await {
            Err(error) if error.is_unrecoverable_error() => return Err(error),
            replies => replies.unwrap_or_default(),
        };
        let [multi, exec, restore, del_if_eq, del_ex] = replies.as_slice() else {
            return Ok(Self::default());
        };
        // A node of a cluster that does not have the slot of the key knows the command, too.
        let known = |reply: &Value| match reply {
            Value::ServerError(error) => error.kind() == Some(ServerErrorKind::Moved),
            reply => matches!(reply, Value::Int(_)),
        };
        let delete_if = match (known(del_if_eq), known(del_ex)) {
            (true, _) => Some(DeleteIf::DelIfEq),
            (_, true) => Some(DeleteIf::DelEx),
            _ => None,
        };
        let transactions = [multi, exec].iter().all(|reply| !matches!(reply, Value::ServerError(_)));
        // A user that may not use this key may still use others.
        let refused = |error: &str| NEVER.iter().any(|no| error.contains(no));
        let restore = match restore {
            Value::ServerError(error) => !refused(&server_text::details(error)),
            _ => false,
        };
        Ok(Self(Arc::new(Permitted {
            restore: restore.into(),
            set: true.into(),
            transactions: transactions.into(),
            delete_if,
            publish: if sharded { "SPUBLISH" } else { "PUBLISH" },
        })))
    }

    /// Turns `RESTORE` off, whatever the user's permissions.
    pub(super) fn forbid_restore(&self) {
        self.0.restore.store(false, Ordering::Relaxed);
    }

    /// Whether the server permits the fast path, as far as known.
    pub(super) fn permits(&self, fast_path: &FastPath) -> bool {
        let Permitted { restore, set, transactions, delete_if, .. } = &*self.0;
        match &fast_path.command {
            FastCommand::Restore { .. } => restore.load(Ordering::Relaxed),
            FastCommand::Set { .. } => set.load(Ordering::Relaxed),
            FastCommand::Transaction { delete, .. } => {
                transactions.load(Ordering::Relaxed)
                    && (matches!(delete, Delete::Field(_)) || delete_if.is_some())
            }
        }
    }

    /// The commands of the fast path.
    pub(super) fn commands<'a>(&self, fast_path: &'a FastPath, key: &str) -> Option<&'a Commands> {
        fast_path.packed(|| match &fast_path.command {
            FastCommand::Restore { mode, owner, lease_ms } => {
                Commands::One(restore(key, *mode, owner, *lease_ms))
            }
            FastCommand::Set { value, lease_ms } => {
                Commands::One(command(&["SET", key, value, "NX", "PX", &lease_ms.to_string()]))
            }
            FastCommand::Transaction { delete, channel } => {
                Commands::Several(self.transaction(key, delete, channel), 0, 4)
            }
        })
    }

    /// The reply to the fast path. `None` if it did nothing.
    pub(super) fn reply(
        &self,
        fast_path: &FastPath,
        answer: Result<Value, RedisError>,
    ) -> Result<Option<Reply>, RedisError> {
        let permitted = match &fast_path.command {
            FastCommand::Transaction { .. } => return self.transacted(answer?),
            FastCommand::Restore { .. } => &self.0.restore,
            FastCommand::Set { .. } => &self.0.set,
        };
        match into_server_error(answer) {
            Ok(Value::Nil) => Ok(None),
            Ok(_) => Ok(Some(created_reply())),
            Err(error) => self.refused(permitted, error),
        }
    }

    fn transaction(&self, key: &str, delete: &Delete, channel: &str) -> Pipeline {
        // Without a command for it, `permits` refuses the transaction.
        let delete_if = self.0.delete_if.unwrap_or(DeleteIf::DelIfEq);
        let delete = match delete {
            Delete::Field(name) => command(&["HDEL", key, name]),
            Delete::IfEqual(value) => delete_if.command(key, value),
        };
        let mut commands = Pipeline::with_capacity(4);
        for command in
            [command(&["MULTI"]), delete, command(&[self.0.publish, channel, "0"]), command(&["EXEC"])]
        {
            commands.add_command(command);
        }
        commands
    }

    /// The reply to a transaction. `None` if it deleted nothing.
    ///
    /// The message may be missing after a deletion, if the permission to publish was withdrawn within the transaction.
    fn transacted(&self, answer: Value) -> Result<Option<Reply>, RedisError> {
        let Value::Array(replies) = answer else { return Ok(None) };
        let done = match replies.as_slice() {
            [_, _, _, Value::Array(done)] => done,
            // The server refused MULTI for now and then became ready, so each command ran by itself.
            [Value::ServerError(_), done @ .., _] if done.first() == Some(&Value::Int(1)) => done,
            replies => {
                let error = replies.iter().find_map(|reply| match reply {
                    Value::ServerError(error) => Some(error.clone().into()),
                    _ => None,
                });
                return error.map_or(Ok(None), |error| self.refused(&self.0.transactions, error));
            }
        };
        Ok(match done {
            [Value::Int(1), Value::Int(subscribers)] => Some(deleted_reply(*subscribers)),
            [Value::Int(1), _] => Some(deleted_reply(0)),
            _ => None,
        })
    }

    /// Turns a fast path off after a refusal, unless the refusal concerns this key or this moment only.
    fn refused(&self, permitted: &AtomicBool, error: RedisError) -> Result<Option<Reply>, RedisError> {
        let passing = match classify(&error) {
            ErrorClass::Unknown { .. } | ErrorClass::Elsewhere(_) => return Err(error),
            ErrorClass::Refused { code, message } => {
                PASSING.contains(&code.as_str()) || message.contains("already exists")
            }
            ErrorClass::NotNow { .. } | ErrorClass::NoScript => return Ok(None),
        };
        if !passing && permitted.swap(false, Ordering::Relaxed) {
            debug!(error = server_text::of_error(&error), "fast path refused: using the script from now on");
        }
        Ok(None)
    }
}

fn restore(key: &str, mode: Option<&str>, owner: &str, lease_ms: u64) -> Cmd {
    let payload = restore_payload::held_once(mode, owner);
    let mut command = Cmd::with_capacity(4, key.len() + payload.len() + 40);
    command.arg("RESTORE").arg(key).arg(lease_ms).arg(payload);
    command
}
