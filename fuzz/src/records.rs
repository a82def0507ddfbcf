//! Targets for records, owner ids and the replies of scripts.

use crate::answers::{text, values};
use arbitrary::{Arbitrary, Unstructured};
use redisson_lock::fuzzing::{self, Kind};
use redisson_lock::redis::Value;
use std::sync::LazyLock;

/// Every decoder of a script's reply, on arbitrary replies and on plausible ones.
pub fn replies(input: &[u8]) {
    static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
        let client = "application=a\nhost=h\npid=1\nsince=1";
        let others = ["mode", "read", "write", "uuid:1", "uuid:1:write", client, "0", "1"];
        fuzzing::words().into_iter().chain(others).collect()
    });
    fuzzing::reply_bytes(input);
    values(input, &WORDS).for_each(fuzzing::reply);

    #[derive(Arbitrary, Debug)]
    enum Input {
        Status(u8, Option<i64>, Option<String>),
        Renewed(Vec<i8>),
        Moved(i64, i64),
        Record(Vec<(u8, String, i8)>),
        Held(i64, String, i64, i64),
        Inspected(Vec<(String, i8)>, i64, i64),
        Described(Vec<(String, i8)>, i64, Vec<i64>),
    }
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let list = match input {
        Input::Status(word, number, holder) => {
            let words = fuzzing::words();
            let parts = [Some(text(words[usize::from(word) % words.len()])), number.map(Value::Int)];
            parts.into_iter().chain([holder.map(|holder| text(&holder))]).flatten().collect()
        }
        Input::Renewed(holds) => holds.into_iter().map(|n| Value::Int(n.into())).collect(),
        Input::Moved(subscriptions, token) => vec![Value::Int(subscriptions), Value::Int(token)],
        Input::Record(fields) => {
            let fields = fields.into_iter().flat_map(|(n, owner, count)| {
                let owner = if n % 4 == 0 { "mode" } else { &owner };
                [text(owner), text(&if n % 4 == 0 { "write".to_owned() } else { count.to_string() })]
            });
            vec![text("0"), Value::Array(fields.collect())]
        }
        Input::Held(waiters, owner, count, ms) => {
            vec![Value::Int(waiters), text(&owner), Value::Int(count), Value::Int(ms)]
        }
        Input::Inspected(fields, ms, waiters) => {
            let fields = fields.iter().flat_map(|(owner, count)| [text(owner), text(&count.to_string())]);
            let record = Value::Array(vec![text("0"), Value::Array(fields.collect())]);
            vec![record, Value::Int(ms), Value::Int(waiters)]
        }
        Input::Described(fields, ms, numbers) => {
            let fields = fields.iter().flat_map(|(owner, count)| [text(owner), text(&count.to_string())]);
            let record = Value::Array(vec![text("0"), Value::Array(fields.collect())]);
            let numbers = Value::Array(numbers.into_iter().map(Value::Int).collect());
            let queue = Value::Array(vec![text("owner")]);
            let (kind, one) = (text("hash"), Value::Int(1));
            vec![
                kind,
                Value::Int(ms),
                record,
                Value::Nil,
                text("1"),
                queue,
                one.clone(),
                one,
                numbers,
                Value::Int(ms),
            ]
        }
    };
    fuzzing::reply(Value::Array(list));
}

/// A `RESTORE` payload, parsed by the rules of the format, contains the mode, if there is one, the owner once, and nothing else.
pub fn restore_payloads(input: &[u8]) {
    let (times, text) = match input {
        [times, rest @ ..] => (usize::from(*times) + 1, String::from_utf8_lossy(rest)),
        [] => (1, "".into()),
    };
    // The repetition covers lengths that are encoded in one, two and five bytes.
    for owner in [text.to_string(), text.repeat(times)] {
        for mode in [None, Some("write")] {
            let payload = fuzzing::restore_payload(mode, &owner);
            let mode = mode.map(|mode| ["mode", mode]);
            let fields: Vec<_> = mode.into_iter().chain([[owner.as_str(), "1"]]).flatten().collect();
            assert_eq!(record(&payload), Some(fields.iter().map(|text| text.as_bytes().to_vec()).collect()));
        }
    }
}

/// The fields and values of a hash in a valid payload.
fn record(payload: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (content, checksum) = payload.split_at_checked(payload.len().checked_sub(8)?)?;
    assert_eq!(crc(content).to_le_bytes(), *checksum, "the checksum");
    let (content, version) = content.split_at_checked(content.len().checked_sub(2)?)?;
    assert_eq!(u16::from_le_bytes([version[0], version[1]]), 6, "a version that every Redis reads");
    let [4, fields, rest @ ..] = content else { return None };
    let (mut texts, mut left) = (Vec::new(), rest);
    for _ in 0..2 * usize::from(*fields) {
        let (text, rest) = first_text(left)?;
        texts.push(text.to_vec());
        left = rest;
    }
    left.is_empty().then_some(texts)
}

/// A text at the beginning of `bytes`, and what follows it.
fn first_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match bytes {
        [short, rest @ ..] if short >> 6 == 0 => (usize::from(*short), rest),
        [high, low, rest @ ..] if high >> 6 == 1 => (usize::from(high & 0x3f) << 8 | usize::from(*low), rest),
        [0x80, a, b, c, d, rest @ ..] => (u32::from_be_bytes([*a, *b, *c, *d]) as usize, rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

/// The checksum of the format, bit by bit.
fn crc(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0xad93_d235_94c9_35a9;
    let mut crc = 0;
    for byte in bytes {
        crc ^= u64::from(byte.reverse_bits()) << 56;
        for _ in 0..8 {
            crc = crc << 1 ^ if crc >> 63 == 1 { POLYNOMIAL } else { 0 };
        }
    }
    crc.reverse_bits()
}

/// Owner ids: arbitrary ones as a record may have, and those of this library's owners. No two owners share an id, and each id is
/// recognised as one of its client and its generation.
pub fn owner_texts(input: &[u8]) {
    const CLIENTS: [&str; 2] =
        ["33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"];
    let text = &*String::from_utf8_lossy(input);
    assert!(text.contains(fuzzing::owner_id(text)));
    if fuzzing::is_retired(text, CLIENTS[0], 3) {
        assert!(text.starts_with(CLIENTS[0]));
        assert!(fuzzing::is_retired(text, CLIENTS[0], 4), "a retired id stays retired");
    }
    assert!(!fuzzing::is_retired(text, CLIENTS[0], 0), "no id precedes the first generation");

    #[derive(Arbitrary, Debug)]
    enum Who {
        Thread(u64),
        Guard(u64),
        Explicit(String),
    }
    let Ok(owners) = <[(Who, u8, u8); 2]>::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let mut ids = Vec::new();
    for (who, client, generation) in &owners {
        let kind = match who {
            Who::Thread(n) => Kind::Thread(*n),
            Who::Guard(n) => Kind::Guard(*n),
            Who::Explicit(text) => Kind::Explicit(text),
        };
        let (client, generation) = (CLIENTS[usize::from(client % 2)], u32::from(*generation));
        let Some(text) = fuzzing::owner_text(kind, client, generation) else { return };
        assert!(text.starts_with(&format!("{client}:")) && text.matches(':').count() == 1, "{text}");
        for now in [0, generation, generation + 1] {
            assert_eq!(
                fuzzing::is_retired(&text, client, now),
                generation < now,
                "{text} in generation {now}"
            );
            assert_eq!(
                fuzzing::is_retired(&format!("{text}:write"), client, now),
                generation < now,
                "{text}:write"
            );
            assert!(CLIENTS.iter().all(|other| *other == client || !fuzzing::is_retired(&text, other, now)));
        }
        let other = fuzzing::owner_text(kind, CLIENTS[0], generation + 1);
        assert_eq!(Some(fuzzing::owner_id(&text)), other.as_deref().map(fuzzing::owner_id));
        ids.push((text, kind, client, generation));
    }
    let [(one, who, client, generation), (other, ..)] = &ids[..] else { unreachable!("two owners") };
    assert_eq!(one == other, (who, client, generation) == (&ids[1].1, &ids[1].2, &ids[1].3));
}
