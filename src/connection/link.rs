//! One socket to one server: it knows which fast paths the server permits, encodes a request, and decodes its reply.

use super::coalesced::Load;
use super::fast_path::{Commands, FastPaths};
use super::server::{self, Server};
use super::{Address, into_server_error};
use crate::config::options::{Options, millis};
use crate::error::{Error, Phase, Result};
use crate::protocol::keys;
use crate::protocol::script::{Arg, FastPath, Reply, Request, Verb};
use crate::runtime::clock::Moment;
use crate::runtime::sync::task::{self, JoinHandle};
use crate::runtime::sync::{select, time};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use std::borrow::Cow;
use tracing::{debug, warn};

/// A connection that does not reconnect.
#[derive(Debug)]
pub(super) struct Link {
    pub connection: MultiplexedConnection,
    load: Load,
    fast_paths: FastPaths,
    /// Messages are sharded: a script publishes them by `SPUBLISH`.
    sharded: bool,
}

/// Whether to find out which fast paths a server permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probing {
    On,
    /// The last probe ended its connection, maybe by coincidence.
    Again,
    /// Use scripts only.
    Off,
}

/// Opens a connection within the connect timeout. Returns it with its server and the task that drives it.
///
/// If the probe ends the connection, the connection is opened again. If the probe ends two in a row, `probing` becomes
/// [`Probing::Off`], and the next connection is for scripts only.
pub(super) async fn open(
    address: &Address,
    options: &Options,
    probing: &mut Probing,
) -> Result<(Link, Server, JoinHandle<()>)> {
    open_until(Moment::now() + options.connect_timeout, address, options, probing).await
}

/// [`open`], before `until`.
pub(super) async fn open_until(
    until: Moment,
    address: &Address,
    options: &Options,
    probing: &mut Probing,
) -> Result<(Link, Server, JoinHandle<()>)> {
    let sharded = options.sharded == Some(true);
    loop {
        let load = Load::default();
        let (connection, mut driver) = address.open_loaded(until, options, load.clone()).await?;
        let handshake = server::handshake(connection.clone(), address.node(), until, options.connect_timeout);
        let server = select! {
            server = handshake => server?,
            () = &mut driver => {
                return Err(Error::unavailable(Phase::Connect, address.node(), "the connection dropped"));
            }
        };
        let fast_paths = if *probing != Probing::Off {
            let probe_key = keys::probe_key();
            let probe = FastPaths::probe(connection.clone(), &probe_key, sharded);
            let probed = select! {
                probed = time::timeout(until.remaining(), probe) => probed.unwrap_or_else(|_| Ok(FastPaths::default())).ok(),
                () = &mut driver => None,
            };
            let Some(fast_paths) = probed else {
                *probing = probing.after_loss(address.node());
                continue;
            };
            *probing = Probing::On;
            if !server.logs_absolute_expiry {
                fast_paths.forbid_restore();
            }
            fast_paths
        } else {
            FastPaths::default()
        };
        return Ok((Link { connection, load, fast_paths, sharded }, server, task::spawn(driver)));
    }
}

impl Probing {
    /// The next state, after the probe has ended a connection to `node`.
    fn after_loss(self, node: &str) -> Self {
        if self == Self::On {
            debug!(node, "the connection ended when it was probed for fast paths: probing again");
            return Self::Again;
        }
        warn!(
            node,
            "the server ended two connections when they were probed for fast paths: reconnecting with scripts only"
        );
        Self::Off
    }
}

impl Link {
    /// Whether the server permits this fast path, as far as known.
    pub(super) fn permits(&self, fast_path: &FastPath) -> bool {
        self.fast_paths.permits(fast_path)
    }

    /// Sends `request` once, after `ASKING` if `asking`. `None` if the request's fast path did nothing.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        by_source: bool,
        asking: bool,
    ) -> Result<Option<Reply>, RedisError> {
        let fast_path = request.fast_path().filter(|_| !asking);
        let commands = match fast_path {
            Some(fast_path) => match self.fast_paths.commands(fast_path, &request.keys()[0]) {
                Some(commands) => Cow::Borrowed(commands),
                None => return Ok(None),
            },
            None => Cow::Owned(Commands::of(encode(request, by_source, self.sharded), asking)),
        };
        let _in_flight = fast_path.map(|_| self.load.enter());
        let mut connection = self.connection.clone();
        let answer = match &*commands {
            Commands::One(command) => connection.send_packed_command(command).await,
            Commands::Several(commands, skipped, replies) => {
                connection.send_packed_commands(commands, *skipped, *replies).await.map(Value::Array)
            }
        };
        match fast_path {
            Some(fast_path) => self.fast_paths.reply(fast_path, answer),
            None => {
                let reply = answer.map(|reply| match reply {
                    Value::Array(mut replies) if asking => replies.pop().unwrap_or(Value::Nil),
                    reply => reply,
                });
                into_server_error(reply).map(|value| Some(decode(value)))
            }
        }
    }
}

/// Words besides keys and arguments: the command, a digest, the number of keys, and the word of sharded messages.
const WORDS: usize = 4;
/// Room for these words.
const BYTES: usize = 64;
/// Room for a key or an argument. Most are shorter.
const BYTES_A_WORD: usize = 48;

fn encode(request: &Request, by_source: bool, sharded: bool) -> Cmd {
    let words = request.keys().len() + request.args().count();
    let mut command = Cmd::with_capacity(words + WORDS, words * BYTES_A_WORD + BYTES);
    match request.verb() {
        Verb::Command(name) => command.arg(name),
        Verb::Script(script) => command
            .arg(if by_source { "EVAL" } else { "EVALSHA" })
            .arg(if by_source { script.source } else { script.sha() })
            .arg(request.keys().len()),
    };
    for key in request.keys() {
        command.arg(key.as_bytes());
    }
    for arg in request.args() {
        match arg {
            Arg::Text(text) => command.arg(text.as_bytes()),
            Arg::Bytes(bytes) => command.arg(bytes),
            Arg::Number(number) => command.arg(*number),
            Arg::Until(end) => command.arg(millis(end.remaining()).max(1)),
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

/// The bytes that are written to the socket.
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
        _ => Reply::Unsupported,
    }
}
