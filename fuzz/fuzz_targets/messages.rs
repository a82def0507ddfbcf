//! What a connection for subscriptions may say: the registry is served over a stream that says anything at all, in
//! pieces, while listeners come and go.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use redisson_lock::fuzzing::{Act, dispatch};

/// Half of the input is what a server would say, so that what follows on it is reached, too.
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

fuzz_target!(|steps: Vec<Step>| dispatch(steps.into_iter().map(act)));

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
