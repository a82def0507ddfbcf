//! Requests that ask a server about itself.

use super::{Arg, PERMISSION_PROBE_ALL, Repeat, Reply, Request, Undecodable, Verb};
use std::sync::Arc;

/// Finds the commands of all kinds that the user may not run. No lock may have the name `record`. The reply is that of
/// [`permission_probe`](super::permission_probe()).
pub(crate) fn probe_all(record: &Arc<str>, channel: &Arc<str>) -> Request {
    let args = vec![Arg::Text(record.clone()), Arg::Text(channel.clone())];
    Request::new(Verb::Script(&PERMISSION_PROBE_ALL), Vec::new(), args, Repeat::Free, None)
}

/// Runs a command that only reads.
pub(crate) fn question(command: &'static str, args: &[&'static str]) -> Request {
    let args = args.iter().copied().map(Arg::Literal).collect();
    Request::new(Verb::Command(command), Vec::new(), args, Repeat::Free, None)
}

/// Reply of `INFO`: its fields.
pub(crate) fn info(reply: &Reply) -> Result<Vec<(String, String)>, Undecodable> {
    let Reply::Text(text) = reply else { return Err(Undecodable) };
    let text = String::from_utf8_lossy(text);
    let field =
        |line: &str| line.trim().split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(text.lines().filter_map(field).collect())
}

/// Reply of `CONFIG GET`: names and values.
pub(crate) fn settings(reply: &Reply) -> Result<Vec<(String, String)>, Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let pair = |pair: &[Reply]| match pair {
        [Reply::Text(name), Reply::Text(value)] => {
            Ok([name, value].map(|text| String::from_utf8_lossy(text).into_owned()).into())
        }
        _ => Err(Undecodable),
    };
    items.chunks(2).map(pair).collect()
}

/// Reply of `TIME`: seconds and microseconds since the epoch.
pub(crate) fn time(reply: &Reply) -> Result<[u64; 2], Undecodable> {
    let Reply::List(items) = reply else { return Err(Undecodable) };
    let [seconds, micros] = items.as_slice() else { return Err(Undecodable) };
    let number = |reply: &Reply| u64::try_from(reply.int()?).map_err(|_| Undecodable);
    Ok([number(seconds)?, number(micros)?])
}
