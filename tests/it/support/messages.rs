//! Everything that is published on a server.

use super::Server;

pub struct Messages {
    all: redis::Connection,
    server: redis::Connection,
}

/// Published by ourselves: what came before it is all there is, because messages come in order.
const END: &str = "that was all";
/// A part of the channels on which a new client tries out whether it may publish.
const TRIAL: &str = "redisson-lock:nobody:";

impl Messages {
    pub fn of(server: &Server) -> Self {
        // Without a time limit of its own: that would be interrupted by signals, and what is waited for always comes.
        let mut all = server.cli();
        redis::cmd("PSUBSCRIBE").arg("*").exec(&mut all).expect("PSUBSCRIBE");
        Self { all, server: server.cli() }
    }

    /// Channel and message of what was published since the last call.
    pub fn heard(&mut self) -> Vec<(String, String)> {
        redis::cmd("PUBLISH").arg(END).arg("").exec(&mut self.server).expect("PUBLISH");
        let mut heard = Vec::new();
        loop {
            let push = self.all.recv_response().expect("there is one at least");
            let (_, _, channel, message): (String, String, String, String) =
                redis::from_redis_value(push).expect("a message is text");
            if channel == END {
                return heard;
            }
            if !channel.contains(TRIAL) {
                heard.push((channel, message));
            }
        }
    }
}
