//! Targets for URLs, configuration files and the messages of a subscription connection.

use arbitrary::{Arbitrary, Unstructured};
use redisson_lock::fuzzing::{self, Act, dispatch};

/// A URL is accepted or refused, and its password is never shown.
pub fn urls(input: &[u8]) {
    if let Ok(url) = str::from_utf8(input) {
        fuzzing::url(url);
    }
}

/// A Redisson configuration file is accepted or refused in bounded time and memory, and its passwords are never shown.
pub fn configuration(input: &[u8]) {
    if let Ok(text) = str::from_utf8(input) {
        fuzzing::configuration(text);
    }
}

/// The subscription registry does not panic, whatever its server sends, while listeners come and go.
pub fn messages(input: &[u8]) {
    let subscribe = (0..2).map(|n| act(Step::Subscribe(n)));
    dispatch(subscribe.chain([Act::Says(input.to_vec())]));
    if let Ok(steps) = Vec::<Step>::arbitrary_take_rest(Unstructured::new(input)) {
        dispatch(steps.into_iter().map(act));
    }
}

/// A step of the script. Most variants are valid server messages, so that the fuzzer reaches the code behind them.
#[derive(Arbitrary, Debug)]
enum Step {
    Bytes(Vec<u8>),
    Confirm { kind: bool, channel: u8, left: i8 },
    Message { channel: u8, text: Vec<u8> },
    Error(String),
    Pong,
    Subscribe(u8),
    Leave(u8),
}

fn act(step: Step) -> Act {
    let name = |n: u8| format!("channel-{}", n % 3);
    match step {
        Step::Bytes(bytes) => Act::Says(bytes),
        Step::Confirm { kind, channel, left } => {
            let (kind, channel) = (if kind { "subscribe" } else { "unsubscribe" }, name(channel));
            Act::Says(format!("*3\r\n{}{}:{left}\r\n", bulk(kind), bulk(&channel)).into())
        }
        Step::Message { channel, text } => {
            let head = format!("*3\r\n{}{}${}\r\n", bulk("message"), bulk(&name(channel)), text.len());
            Act::Says([head.as_bytes(), &text, b"\r\n"].concat())
        }
        Step::Error(text) => Act::Says(format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into()),
        Step::Pong => Act::Says(format!("*2\r\n{}{}", bulk("pong"), bulk("")).into()),
        Step::Subscribe(channel) => Act::Subscribe(name(channel)),
        Step::Leave(n) => Act::Leave(n),
    }
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
