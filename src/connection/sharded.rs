//! A connection for sharded subscriptions. It speaks RESP3, because the redis crate supports sharded messages only there.
//!
//! A server that gives a slot away sends `sunsubscribe` for its channels without a request. The redis crate takes that for the
//! reply to the last request. So every reply is checked, and a connection that received such a message is replaced: its
//! channels are subscribed again at the masters that own their slots by then.

use super::Address;
use crate::config::options::Options;
use crate::error::Result;
use crate::runtime::mutex::{Mutex, MutexGuard};
use crate::runtime::sync::task::{self, JoinHandle};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisError, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// The sending half.
#[derive(Clone)]
pub(super) struct ShardSink {
    connection: MultiplexedConnection,
    channels: Channels,
}

/// The receiving half. Dropping it closes the connection.
pub(super) struct ShardStream {
    pushes: UnboundedReceiver<PushInfo>,
    channels: Channels,
    driver: JoinHandle<()>,
}

/// The channels of a connection, and whether the server ended one of them.
#[derive(Clone, Default)]
struct Channels(Arc<Mutex<Subscribed>>, Arc<AtomicBool>);

#[derive(Default)]
struct Subscribed {
    /// The channels that are subscribed or requested.
    wanted: HashSet<Arc<str>>,
    /// For each channel, the number of requests to unsubscribe whose confirmation [`ShardStream`] has not received yet. The channel may be
    /// wanted again meanwhile.
    leaving: HashMap<Arc<str>, usize>,
}

impl Subscribed {
    fn leave(&mut self, channel: &Arc<str>) {
        self.wanted.remove(channel);
        *self.leaving.entry(channel.clone()).or_default() += 1;
    }

    /// Notes the reply to a request to unsubscribe. Returns whether there was such a request.
    fn left(&mut self, channel: &str) -> bool {
        let Some(pending) = self.leaving.get_mut(channel) else { return false };
        *pending -= 1;
        if *pending == 0 {
            self.leaving.remove(channel);
        }
        true
    }

    /// Notes the end of a subscription. Returns whether the server ended it, and it is wanted.
    fn has_lost(&mut self, channel: &str) -> bool {
        !self.left(channel) && self.wanted.contains(channel)
    }
}

pub(super) async fn open(address: &Address, options: &Options) -> Result<(ShardSink, ShardStream)> {
    let (sender, pushes) = mpsc::unbounded_channel();
    let (connection, driver) = address.open_pushed(options, sender).await?;
    let channels = Channels::default();
    let sink = ShardSink { connection, channels: channels.clone() };
    Ok((sink, ShardStream { pushes, channels, driver: task::spawn(driver) }))
}

impl ShardSink {
    pub(super) async fn subscribe(&mut self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        self.channels.lock().wanted.extend(channels.iter().cloned());
        self.ask("SSUBSCRIBE", &PushKind::SSubscribe, channels).await
    }

    pub(super) async fn unsubscribe(&mut self, channels: &[Arc<str>]) -> Result<(), RedisError> {
        for channel in channels {
            self.channels.lock().leave(channel);
        }
        self.ask("SUNSUBSCRIBE", &PushKind::SUnsubscribe, channels).await
    }

    pub(super) async fn ping(&mut self) -> Result<(), RedisError> {
        match self.connection.send_packed_command(&redis::cmd("PING")).await? {
            Value::SimpleString(pong) if pong == "PONG" => Ok(()),
            other => Err(out_of_step(&other)),
        }
    }

    /// Whether the server has given a slot away. The server itself has not failed.
    pub(super) fn has_moved(&self) -> bool {
        self.channels.1.load(Ordering::Relaxed)
    }

    /// Sends one command for each channel, because all channels of one command must be in one slot.
    async fn ask(
        &mut self,
        command: &str,
        confirmation: &PushKind,
        channels: &[Arc<str>],
    ) -> Result<(), RedisError> {
        let mut commands = redis::pipe();
        for channel in channels {
            commands.cmd(command).arg(channel.as_bytes());
        }
        let answers = self.connection.send_packed_commands(&commands, 0, channels.len()).await?;
        let mut refused = None;
        for (channel, answer) in channels.iter().zip(answers) {
            match answer {
                Value::Push { kind, data } if kind == *confirmation && names(&data, channel) => {}
                Value::ServerError(error) => {
                    let mut channels = self.channels.lock();
                    match confirmation {
                        PushKind::SUnsubscribe => _ = channels.left(channel),
                        _ => _ = channels.wanted.remove(channel),
                    }
                    refused = Some(error.into());
                }
                other => return Err(out_of_step(&other)),
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

impl ShardStream {
    /// The channel of the next message; `None` once the connection has to be replaced.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            let PushInfo { kind, data } = self.pushes.recv().await?;
            let channel = || match data.first() {
                Some(Value::BulkString(name)) => String::from_utf8(name.clone()).ok(),
                _ => None,
            };
            match kind {
                PushKind::SMessage => match channel() {
                    Some(channel) => return Some(channel),
                    None => continue,
                },
                PushKind::SUnsubscribe
                    if channel().is_some_and(|name| self.channels.lock().has_lost(&name)) =>
                {
                    self.channels.1.store(true, Ordering::Relaxed);
                    return None;
                }
                PushKind::Disconnection => return None,
                _ => {}
            }
        }
    }
}

impl Drop for ShardStream {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Channels {
    fn lock(&self) -> MutexGuard<'_, Subscribed> {
        self.0.lock()
    }
}

fn names(data: &[Value], channel: &str) -> bool {
    matches!(data.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}

fn out_of_step(answer: &Value) -> RedisError {
    std::io::Error::other(format!(
        "the reply {answer:?} belongs to another request: the connection is replaced"
    ))
    .into()
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// A subscription may begin again before the end of the one before is confirmed.
    #[tokio::test]
    async fn a_late_confirmation_ends_no_connection() {
        let (sender, pushes) = mpsc::unbounded_channel();
        let channels = Channels::default();
        let mut stream = ShardStream { pushes, channels: channels.clone(), driver: task::spawn(async {}) };
        let push = |kind| {
            let data = vec![Value::BulkString(b"c".to_vec()), Value::Int(0)];
            sender.send(PushInfo { kind, data }).unwrap();
        };
        let channel: Arc<str> = "c".into();
        for _ in 0..2 {
            channels.lock().wanted.insert(channel.clone());
            channels.lock().leave(&channel);
        }
        channels.lock().wanted.insert(channel.clone());
        push(PushKind::SUnsubscribe);
        push(PushKind::SUnsubscribe);
        push(PushKind::SMessage);
        assert_eq!(stream.next().await.as_deref(), Some("c"));
        push(PushKind::SUnsubscribe);
        assert_eq!(stream.next().await, None, "the server gave the slot away");
        assert!(channels.1.load(Ordering::Relaxed));
    }
}
