//! Snapshots of keys between two readings of the server's clock, and the end of a record as exactly as they show it.

use std::collections::BTreeMap;

use redis::{Cmd, Connection, ConnectionLike, Value};

/// When a command ran, by the server's clock in ms: not before `from` and not after `to`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub from: i64,
    pub to: i64,
}

/// When a record ends, by the server's clock in ms.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Never,
    /// At some time in this window.
    Within(Window),
}

impl End {
    /// After a `PEXPIRE` of `lease` at `asked`.
    pub fn after(lease: i64, asked: Window) -> Self {
        Self::Within(Window { from: asked.from + lease, to: asked.to + lease })
    }

    /// After a renewal with `lease` at `asked`, which never moves the end closer. A record without an end gets one.
    pub fn renewed(self, lease: i64, asked: Window) -> Self {
        match (self, Self::after(lease, asked)) {
            (Self::Within(now), Self::Within(then)) => {
                Self::Within(Window { from: now.from.max(then.from), to: now.to.max(then.to) })
            }
            (_, then) => then,
        }
    }

    /// Whether a `PTTL` at `asked` may have returned `ttl`. Its value narrows the window.
    pub fn agrees(&mut self, ttl: i64, asked: Window) -> bool {
        match self {
            Self::Never => ttl == -1,
            Self::Within(end) => {
                end.from = end.from.max(asked.from + ttl);
                end.to = end.to.min(asked.to + ttl);
                ttl >= 0 && end.from <= end.to
            }
        }
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Nothing,
    Hash(BTreeMap<String, String>),
    Text(String),
    Other(String),
}

/// A snapshot of a key.
#[derive(Clone, Debug)]
pub struct Seen {
    pub content: Content,
    pub ttl: i64,
    pub asked: Window,
}

/// Sends `commands` in one pipeline, and then looks at `keys`. Returns the replies, errors among them, when the
/// commands ran, and the snapshots.
pub fn run_and_look(
    connection: &mut Connection,
    commands: &[Cmd],
    keys: &[&str],
) -> (Vec<Value>, Window, Vec<Seen>) {
    let mut all = redis::pipe();
    all.cmd("TIME");
    for command in commands {
        all.add_command(command.clone());
    }
    all.cmd("TIME");
    for key in keys {
        for look in ["TYPE", "HGETALL", "GET", "PTTL"] {
            all.cmd(look).arg(key);
        }
    }
    all.cmd("TIME");
    let count = 3 + commands.len() + 4 * keys.len();
    let answers =
        connection.req_packed_commands(&all.get_packed_pipeline(), 0, count).expect("the server replies");
    assert_eq!(answers.len(), count);
    let mut answers = answers.into_iter();
    let from = clock(answers.next());
    let replies = answers.by_ref().take(commands.len()).collect();
    let to = clock(answers.next());
    let looks: Vec<_> = answers.by_ref().take(4 * keys.len()).collect();
    let asked = Window { from: to, to: clock(answers.next()) };
    let seen = looks.chunks(4).map(|look| Seen {
        content: content(look),
        ttl: redis::from_redis_value(look[3].clone()).expect("PTTL returns a number"),
        asked,
    });
    (replies, Window { from, to }, seen.collect())
}

fn content(look: &[Value]) -> Content {
    let kind: String = redis::from_redis_value(look[0].clone()).expect("TYPE returns a word");
    match kind.as_str() {
        "none" => Content::Nothing,
        "hash" => Content::Hash(redis::from_redis_value(look[1].clone()).expect("HGETALL of a hash")),
        "string" => Content::Text(redis::from_redis_value(look[2].clone()).expect("GET of a string")),
        _ => Content::Other(kind),
    }
}

/// The server's clock in ms, from its `TIME`.
fn clock(answer: Option<Value>) -> i64 {
    let answer = answer.expect("each command has a reply");
    let (seconds, micros): (i64, i64) = redis::from_redis_value(answer).expect("TIME returns two numbers");
    seconds * 1000 + micros / 1000
}
