//! The commands that a server runs, in order, including those of scripts.

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
        let mut stream = TcpStream::connect(server.address()).expect("the server is up");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("the socket is open");
        stream.write_all(b"MONITOR\r\n").expect("the socket is open");
        let mut lines = BufReader::new(stream);
        let mut ok = String::new();
        lines.read_line(&mut ok).expect("it answers");
        assert_eq!(ok, "+OK\r\n");
        Self { lines, server: server.cli() }
    }

    /// The commands since the last call, as words in MONITOR's spelling. The first word is in lower case.
    pub fn commands(&mut self) -> Vec<Vec<String>> {
        self.lines().into_iter().map(|(_, words)| words).collect()
    }

    /// The scripts that were called by their hash since the last call, each with the commands that it ran.
    pub fn scripts(&mut self) -> Vec<(Vec<String>, Vec<Vec<String>>)> {
        let mut scripts: Vec<(Vec<String>, Vec<Vec<String>>)> = Vec::new();
        for (by_a_script, words) in self.lines() {
            match scripts.last_mut() {
                Some((_, commands)) if by_a_script => commands.push(words),
                _ if words[0] == "evalsha" => scripts.push((words, Vec::new())),
                _ => {}
            }
        }
        scripts
    }

    /// The commands, each with whether a script ran it.
    fn lines(&mut self) -> Vec<(bool, Vec<String>)> {
        redis::cmd("ECHO").arg(END).exec(&mut self.server).expect("ECHO");
        let mut commands = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).expect("the server runs");
            let Some((by, command)) = line.trim_end().split_once("] \"") else { continue };
            let mut words: Vec<_> =
                command.strip_suffix('"').unwrap_or(command).split("\" \"").map(str::to_owned).collect();
            words[0] = words[0].to_lowercase();
            if words == ["echo", END] {
                return commands;
            }
            commands.push((by.ends_with(" lua"), words));
        }
    }
}
