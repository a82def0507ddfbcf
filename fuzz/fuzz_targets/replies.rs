//! Every decoder on every reply: as bytes that the redis crate parses, and built as a value.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use redisson_lock::redis::Value;

/// Half of the words are ones that the scripts say, so that their numbers are reached, too.
#[derive(Arbitrary, Debug)]
enum Piece {
    Nil,
    Okay,
    Int(i64),
    Bool(bool),
    Double(f64),
    Text(Vec<u8>),
    Simple(String),
    Word(u8),
    List(Vec<Piece>),
    Set(Vec<Piece>),
    Map(Vec<(Piece, Piece)>),
}

#[derive(Arbitrary, Debug)]
enum Input {
    Bytes(Vec<u8>),
    Value(Piece),
}

fuzz_target!(|input: Input| {
    match input {
        Input::Bytes(bytes) => redisson_lock::fuzzing::reply_bytes(&bytes),
        Input::Value(piece) => redisson_lock::fuzzing::reply(value(piece)),
    }
});

fn value(piece: Piece) -> Value {
    const WORDS: [&str; 10] =
        ["TAKEN", "BUSY", "STALE", "OK", "GONE", "OTHER", "MISMATCH", "FREED", "MOVED", "redis_version:7."];
    let all = |pieces: Vec<Piece>| pieces.into_iter().map(value).collect();
    match piece {
        Piece::Nil => Value::Nil,
        Piece::Okay => Value::Okay,
        Piece::Int(n) => Value::Int(n),
        Piece::Bool(b) => Value::Boolean(b),
        Piece::Double(f) => Value::Double(f),
        Piece::Text(text) => Value::BulkString(text),
        Piece::Simple(text) => Value::SimpleString(text),
        Piece::Word(n) => Value::BulkString(WORDS[usize::from(n) % WORDS.len()].into()),
        Piece::List(pieces) => Value::Array(all(pieces)),
        Piece::Set(pieces) => Value::Set(all(pieces)),
        Piece::Map(pairs) => Value::Map(pairs.into_iter().map(|(k, v)| (value(k), value(v))).collect()),
    }
}
