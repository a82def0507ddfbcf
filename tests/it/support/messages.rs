//! Every message that is published on a server.

use super::Server;

pub struct Messages {
    all: redis::Connection,
    server: redis::Connection,
}

/// Published by the test itself. Messages come in order, so all earlier ones have arrived by then.
const END: &str = "that was all";
/// Part of the channels on which a new client tries whether it may publish.
const TRIAL: &str = "redisson-lock:nobody:";

impl Messages {
    pub fn of(server: &Server) -> Self {
        // No read timeout: signals would interrupt it, and an awaited message always comes.
        let mut all = server.cli();
        redis::cmd("PSUBSCRIBE").arg("*").exec(&mut all).expect("PSUBSCRIBE");
        Self { all, server: server.cli() }
    }

    /// The channels and messages that were published since the last call.
    pub fn heard(&mut self) -> Vec<(String, String)> {
        redis::cmd("PUBLISH").arg(END).arg("").exec(&mut self.server).expect("PUBLISH");
        let mut heard = Vec::new();
        loop {
            let push = self.all.recv_response().expect("the end mark arrives");
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
