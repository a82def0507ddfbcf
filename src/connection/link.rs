//! One socket to one server: what is permitted over it, how a request is written to it, and how its answer is read.

use super::server::{self, Server};
use super::shortcuts::Shortcuts;
use super::{Address, told};
use crate::config::options::Options;
use crate::error::{Error, Phase, Result};
use crate::protocol::keys;
use crate::protocol::script::{Arg, Reply, Request, Verb};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{select, time};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tracing::warn;

/// A connection that ends with its socket. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub connection: MultiplexedConnection,
    shortcuts: Shortcuts,
    /// Each message is for the nodes of its slot alone.
    sharded: bool,
}

/// A new one, the server at its end, and the task that drives it. `probing` says whether to find out which ways around Lua there
/// are, and is false from then on if the connection died of that: scripts only, then.
pub(super) async fn open(
    address: &Address,
    options: &Options,
    probing: &mut bool,
) -> Result<(Link, Server, JoinHandle<()>)> {
    open_until(Moment::now() + options.connect_timeout, address, options, probing).await
}

/// The same within a time that others have used a part of.
pub(super) async fn open_until(
    until: Moment,
    address: &Address,
    options: &Options,
    probing: &mut bool,
) -> Result<(Link, Server, JoinHandle<()>)> {
    let sharded = options.sharded == Some(true);
    loop {
        let (connection, mut driver) = address.open(until, options).await?;
        let meeting = server::meet(connection.clone(), address.node(), until, options.connect_timeout);
        let server = select! {
            met = meeting => met?,
            () = &mut driver => {
                let (phase, node) = (Phase::Connect, address.node().to_owned());
                return Err(Error::Unavailable { phase, node, reason: "the connection dropped".into() });
            }
        };
        let shortcuts = if *probing {
            let nobody = keys::nobodys();
            let probe = Shortcuts::probe(connection.clone(), &nobody, sharded);
            let probed = select! {
                probed = time::timeout(until.remaining(), probe) => probed.unwrap_or_else(|_| Ok(Shortcuts::default())).ok(),
                () = &mut driver => None,
            };
            let Some(shortcuts) = probed else {
                warn!(
                    node = address.node(),
                    "the server ended the connection when it was asked what it can do without scripts: scripts only"
                );
                *probing = false;
                continue;
            };
            if !server.logs_ends {
                shortcuts.without_restore();
            }
            shortcuts
        } else {
            Shortcuts::default()
        };
        return Ok((Link { connection, shortcuts, sharded }, server, task::spawn(driver)));
    }
}

impl Link {
    /// Sends `request` once; `asking` what the node is about to get. `None` if its shortcut did nothing.
    pub(super) async fn exchange(
        mut self,
        request: &Request,
        by_source: bool,
        asking: bool,
    ) -> Result<Option<Reply>, RedisError> {
        if asking {
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(encode(request, by_source, self.sharded));
            let mut answers = self.connection.send_packed_commands(&both, 1, 1).await?;
            return told(Ok(answers.pop().unwrap_or(Value::Nil))).map(|value| Some(decode(value)));
        }
        if let Some(shortcut) = request.shortcut() {
            return self.shortcuts.take(shortcut, &mut self.connection, &request.keys()[0]).await;
        }
        let command = encode(request, by_source, self.sharded);
        told(self.connection.send_packed_command(&command).await).map(|value| Some(decode(value)))
    }
}

fn encode(request: &Request, by_source: bool, sharded: bool) -> Cmd {
    let mut command = match request.verb() {
        Verb::Command(name) => redis::cmd(name),
        Verb::Script(script) => {
            let mut command = redis::cmd(if by_source { "EVAL" } else { "EVALSHA" });
            command.arg(if by_source { script.source } else { script.sha() }).arg(request.keys().len());
            command
        }
    };
    for key in request.keys() {
        command.arg(key.as_bytes());
    }
    for arg in request.args() {
        match arg {
            Arg::Text(text) => command.arg(text.as_bytes()),
            Arg::Number(number) => command.arg(*number),
            Arg::Literal(text) => command.arg(*text),
        };
    }
    if sharded
        && let Verb::Script(script) = request.verb()
        && let Some(word) = script.sharded()
    {
        command.arg(word);
    }
    command
}

/// As it is written to the socket.
#[cfg(measuring)]
pub(crate) fn packed(request: &Request) -> Vec<u8> {
    encode(request, false, false).get_packed_command()
}

pub(super) fn decode(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(n) => Reply::Int(n),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) => Reply::Text(text.into_bytes()),
        Value::Array(items) => Reply::List(items.into_iter().map(decode).collect()),
        Value::Okay => Reply::Text(b"OK".to_vec()),
        _ => Reply::Strange,
    }
}
