//! The way around Lua (see [`Shortcut`]), and whether the server at the end of a connection lets this client take it.
//!
//! Invariant 3: a shortcut that answers with an error, or that nothing was done, has done nothing, so that the script
//! may follow with no more said about an earlier send than before.

use super::{Meaning, meaning, server_text, told};
use crate::protocol::restore_payload;
use crate::protocol::script::{Delete, Reply, Shortcut, Way, deleted, restored};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::debug;

/// What a server says that will never restore a record.
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
/// The codes of refusals that say nothing of the next key, or of the next moment. (A busy key is an `ERR` to some servers.)
const PASSING: [&str; 5] = ["BUSYKEY", "WRONGTYPE", "OOM", "MISCONF", "CROSSSLOT"];

/// What is permitted over one connection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Shortcuts(Arc<Permitted>);

#[derive(Debug, Default)]
struct Permitted {
    restore: AtomicBool,
    set: AtomicBool,
    transactions: AtomicBool,
    delete_if: Option<DeleteIf>,
    /// What sends a message.
    publish: &'static str,
}

/// How the server deletes a string that has a given value.
#[derive(Clone, Copy, Debug)]
enum DeleteIf {
    /// Valkey, from 9.0 on.
    DelIfEq,
    /// Redis, from 8.4 on.
    DelEx,
}

impl DeleteIf {
    fn put(self, commands: &mut Pipeline, key: &str, value: &str) {
        match self {
            Self::DelIfEq => commands.cmd("DELIFEQ").arg(key).arg(value),
            Self::DelEx => commands.cmd("DELEX").arg(key).arg("IFEQ").arg(value),
        };
    }
}

impl Shortcuts {
    /// Tries the ways without doing anything: an empty transaction, because one that is not permitted would run in
    /// part; and at `nobody`, a key that there is not, `RESTORE` of a record with a wrong checksum, and what deletes nothing.
    ///
    /// # Errors
    /// If the connection ended in the midst of it.
    pub(super) async fn probe(
        mut connection: MultiplexedConnection,
        nobody: &str,
        sharded: bool,
    ) -> Result<Self, RedisError> {
        let mut tries = redis::pipe();
        // Of the kind that is meant, so that a server that can't restore that says so. One that reads it all the same has the
        // key for a millisecond.
        let mut payload = restore_payload::held_once(nobody);
        payload.iter_mut().rev().take(8).for_each(|byte| *byte = !*byte);
        tries.cmd("MULTI").cmd("EXEC").cmd("RESTORE").arg(nobody).arg(1).arg(payload);
        DeleteIf::DelIfEq.put(&mut tries, nobody, "");
        DeleteIf::DelEx.put(&mut tries, nobody, "");
        let replies = match connection.send_packed_commands(&tries, 0, 5).await {
            Err(error) if error.is_unrecoverable_error() => return Err(error),
            replies => replies.unwrap_or_default(),
        };
        let [multi, exec, restore, del_if_eq, del_ex] = replies.as_slice() else {
            return Ok(Self::default());
        };
        let delete_if = match (del_if_eq, del_ex) {
            (Value::Int(_), _) => Some(DeleteIf::DelIfEq),
            (_, Value::Int(_)) => Some(DeleteIf::DelEx),
            _ => None,
        };
        let transactions = [multi, exec].iter().all(|reply| !matches!(reply, Value::ServerError(_)));
        // One that may not use this key may still use others.
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

    /// `RESTORE` is not to be used here, whatever the user may do.
    pub(super) fn without_restore(&self) {
        self.0.restore.store(false, Ordering::Relaxed);
    }

    /// `None` where nothing was done.
    pub(super) async fn take(
        &self,
        shortcut: &Shortcut,
        connection: &mut MultiplexedConnection,
        key: &str,
    ) -> Result<Option<Reply>, RedisError> {
        match &shortcut.way {
            Way::Restore { owner, lease_ms } if self.0.restore.load(Ordering::Relaxed) => {
                let command = shortcut.packed(|| {
                    let payload = restore_payload::held_once(owner);
                    let mut command = Cmd::with_capacity(4, key.len() + payload.len() + 40);
                    command.arg("RESTORE").arg(key).arg(*lease_ms).arg(payload);
                    command
                });
                match told(connection.send_packed_command(command).await) {
                    Ok(_) => Ok(Some(restored())),
                    Err(error) => self.refused(&self.0.restore, error),
                }
            }
            Way::Set { value, lease_ms } if self.0.set.load(Ordering::Relaxed) => {
                let mut command = redis::cmd("SET");
                command.arg(key).arg(&**value).arg("NX").arg("PX").arg(*lease_ms);
                match told(connection.send_packed_command(&command).await) {
                    Ok(Value::Nil) => Ok(None),
                    Ok(_) => Ok(Some(restored())),
                    Err(error) => self.refused(&self.0.set, error),
                }
            }
            Way::Transaction { delete, channel } if self.0.transactions.load(Ordering::Relaxed) => {
                if matches!(delete, Delete::IfEqual(_)) && self.0.delete_if.is_none() {
                    return Ok(None);
                }
                let commands = shortcut.packed(|| {
                    let mut commands = Pipeline::with_capacity(4);
                    commands.cmd("MULTI");
                    match delete {
                        Delete::Field(name) => _ = commands.cmd("HDEL").arg(key).arg(name.as_bytes()),
                        Delete::IfEqual(value) => {
                            if let Some(way) = self.0.delete_if {
                                way.put(&mut commands, key, value);
                            }
                        }
                    }
                    commands.cmd(self.0.publish).arg(channel.as_bytes()).arg("0").cmd("EXEC");
                    commands
                });
                match connection.send_packed_commands(commands, 0, 4).await?.as_slice() {
                    [_, _, _, Value::Array(done)] => Ok(match done.as_slice() {
                        [Value::Int(1), Value::Int(subscribers)] => Some(deleted(*subscribers)),
                        _ => None,
                    }),
                    // The server became ready for commands in their midst, so each was run by itself.
                    [Value::ServerError(_), Value::Int(1), published, _] => {
                        Ok(Some(deleted(if let Value::Int(subscribers) = published {
                            *subscribers
                        } else {
                            0
                        })))
                    }
                    replies => {
                        let error = replies.iter().find_map(|reply| match reply {
                            Value::ServerError(error) => Some(error.clone().into()),
                            _ => None,
                        });
                        error.map_or(Ok(None), |error| self.refused(&self.0.transactions, error))
                    }
                }
            }
            _ => Ok(None),
        }
    }

    /// A refusal is final, unless it is of the moment or of this key.
    fn refused(&self, permitted: &AtomicBool, error: RedisError) -> Result<Option<Reply>, RedisError> {
        let passing = match meaning(&error) {
            Meaning::Unknown { .. } | Meaning::Elsewhere(_) => return Err(error),
            Meaning::Refused { code, message } => {
                PASSING.contains(&code.as_str()) || message.contains("already exists")
            }
            Meaning::NotNow { .. } | Meaning::NoScript => return Ok(None),
        };
        if !passing && permitted.swap(false, Ordering::Relaxed) {
            debug!(error = server_text::of_error(&error), "no way around Lua here: scripts only");
        }
        Ok(None)
    }
}
