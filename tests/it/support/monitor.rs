//! What a server is told to do, in order, and also by scripts.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::Server;

pub struct Monitor {
    lines: BufReader<TcpStream>,
    server: redis::Connection,
}

const END: &str = "that was all";

impl Monitor {
    pub fn start(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("the server is there");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("the socket is open");
        stream.write_all(b"MONITOR\r\n").expect("the socket is open");
        let mut lines = BufReader::new(stream);
        let mut ok = String::new();
        lines.read_line(&mut ok).expect("it answers");
        assert_eq!(ok, "+OK\r\n");
        Self { lines, server: server.cli() }
    }

    /// The commands since the last call, by their words as MONITOR spells them; the first in lower case.
    pub fn commands(&mut self) -> Vec<Vec<String>> {
        redis::cmd("ECHO").arg(END).exec(&mut self.server).expect("ECHO");
        let mut commands = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("the server goes on");
            let Some((_, command)) = line.trim_end().split_once("] \"") else { continue };
            let mut words: Vec<_> = command.trim_end_matches('"').split("\" \"").map(str::to_owned).collect();
            words[0] = words[0].to_lowercase();
            if words == ["echo", END] {
                return commands;
            }
            commands.push(words);
        }
    }
}
