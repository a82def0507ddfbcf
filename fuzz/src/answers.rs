//! Server replies made from arbitrary bytes, and the checks that targets share.

use arbitrary::{Arbitrary, Unstructured};
use redisson_lock::redis::{Value, parse_redis_value};

/// A reply. Many of its strings are words that the decoder knows, so that the fuzzer reaches the code behind them.
#[derive(Arbitrary, Debug)]
enum Piece {
    Nil,
    Okay,
    Int(i64),
    Small(i8),
    Bool(bool),
    Double(f64),
    Text(Vec<u8>),
    Simple(String),
    Word(u8),
    List(Vec<Piece>),
    Set(Vec<Piece>),
    Map(Vec<(Piece, Piece)>),
}

/// The reply that the redis crate parses from `input`, if any, and a reply built from `input` that contains `words`.
pub fn values(input: &[u8], words: &[&str]) -> impl Iterator<Item = Value> {
    let piece = Piece::arbitrary_take_rest(Unstructured::new(input));
    parse_redis_value(input).into_iter().chain(piece.map(|piece| value(piece, words)))
}

fn value(piece: Piece, words: &[&str]) -> Value {
    let all = |pieces: Vec<Piece>| pieces.into_iter().map(|piece| value(piece, words)).collect();
    match piece {
        Piece::Nil => Value::Nil,
        Piece::Okay => Value::Okay,
        Piece::Int(n) => Value::Int(n),
        Piece::Small(n) => Value::Int(n.into()),
        Piece::Bool(b) => Value::Boolean(b),
        Piece::Double(f) => Value::Double(f),
        Piece::Text(text) => Value::BulkString(text),
        Piece::Simple(text) => Value::SimpleString(text),
        Piece::Word(n) => text(words[usize::from(n) % words.len()]),
        Piece::List(pieces) => Value::Array(all(pieces)),
        Piece::Set(pieces) => Value::Set(all(pieces)),
        Piece::Map(pairs) => {
            Value::Map(pairs.into_iter().map(|(k, v)| (value(k, words), value(v, words))).collect())
        }
    }
}

pub fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

/// A host: a plausible one or any string, with equal probability.
#[derive(Arbitrary, Clone, Debug)]
pub enum Host {
    Known(u8),
    Any(String),
}

impl Host {
    pub fn text(&self) -> &str {
        const KNOWN: [&str; 6] = ["10.0.0.1", "2001:db8::1", "redis-1.example.org", "fe80::1%eth0", "", "?"];
        match self {
            Self::Known(n) => KNOWN[usize::from(*n) % KNOWN.len()],
            Self::Any(text) => text,
        }
    }
}

/// Checks that a decoded host is a name, an address or empty, because a client connects to it and shows it.
pub fn is_a_host(host: &str) {
    assert!(host.len() <= 255, "a host of {} bytes is too long", host.len());
    is_plain(host);
    assert!(!host.contains([' ', '"', '\'', '\\']), "{host:?} is not a host");
}

/// Checks that a shown text is on one line, and neither moves the cursor nor changes the direction of the text behind it.
pub fn is_plain(text: &str) {
    let turns = ['\u{200e}', '\u{200f}', '\u{61c}', '\u{2028}', '\u{2029}', '\u{feff}'];
    let bad = |sign: char| {
        sign.is_control()
            || turns.contains(&sign)
            || matches!(sign, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(bad), "{text:?} is not escaped");
}
