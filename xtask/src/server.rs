//! Runs a redis-server for one xtask command. A guardian stops the server even if the command is killed: it waits for the
//! end of its stdin, which only this process holds open.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The same guardian as in the tests.
const GUARDIAN: &str = include_str!("../../tests/it/support/guardian.sh");

pub struct Server {
    guardian: Child,
    process: Pid,
    pub port: u16,
}

impl Server {
    /// Starts a server on a free port.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::start_on(free_port()?, program, arguments)
    }

    pub fn start_on(port: u16, program: &Path, arguments: &[&str]) -> Result<Self, String> {
        Self::launch(port, program, &[], arguments, None)
    }

    /// Starts a sentinel. It rewrites `file`, and its log is next to it.
    pub fn sentinel(program: &Path, file: &Path) -> Result<Self, String> {
        let mut file = file.to_owned();
        let first = [&*file.to_string_lossy(), "--sentinel"].map(str::to_owned);
        file.set_extension("txt");
        let log = File::create(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::launch(free_port()?, program, &[&first[0], &first[1]], &[], Some(log))
    }

    /// `first` precedes the options that every server gets.
    fn launch(
        port: u16,
        program: &Path,
        first: &[&str],
        arguments: &[&str],
        log_file: Option<File>,
    ) -> Result<Self, String> {
        let problem = |error: io::Error| format!("{}: {error}", program.display());
        let mut guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(program)
            .args(first)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(problem)?;
        let mut lines = BufReader::new(guardian.stdout.take().expect("it is piped"));
        let mut log = String::new();
        lines.read_line(&mut log).map_err(problem)?;
        let process = log.trim().parse().ok().and_then(Pid::from_raw).ok_or("the guardian printed no pid")?;
        let server = Self { guardian, process, port };
        while !["Ready to accept connections", "Sentinel ID is"].iter().any(|ready| log.contains(ready)) {
            if lines.read_line(&mut log).map_err(problem)? == 0 {
                return Err(format!("{log}the server did not start"));
            }
        }
        // A full pipe would block the server.
        let rest = move || match log_file {
            Some(mut file) => io::copy(&mut lines, &mut file),
            None => io::copy(&mut lines, &mut io::sink()),
        };
        thread::spawn(rest);
        Ok(server)
    }

    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(self.process, signal).map_err(|error| format!("the server is unreachable: {error}"))
    }

    /// Sends one command on a new connection, and leaves the reply to the caller.
    pub fn send(&self, words: &[&str]) -> Result<BufReader<TcpStream>, String> {
        let mut connection = self.connect()?;
        connection.send(words)?;
        Ok(connection.stream)
    }

    /// Opens a connection for several commands.
    pub fn connect(&self) -> Result<Connection, String> {
        Connection::open(self.port)
    }

    /// Returns the strings of the reply, in order.
    pub fn call(&self, words: &[&str], timeout: Duration) -> Result<Vec<String>, String> {
        self.connect()?.call(words, timeout)
    }
}

pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(port: u16) -> Result<Self, String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        stream.map(|stream| Self { stream: BufReader::new(stream) }).map_err(|error| gone(&error))
    }

    pub fn call(&mut self, words: &[&str], timeout: Duration) -> Result<Vec<String>, String> {
        self.send(words)?;
        self.receive(timeout).map_err(|error| format!("{}: {error}", words.join(" ")))
    }

    /// Waits for the next reply or message.
    pub fn receive(&mut self, timeout: Duration) -> Result<Vec<String>, String> {
        let mut texts = Vec::new();
        self.stream
            .get_ref()
            .set_read_timeout(Some(timeout))
            .and_then(|()| read_reply(&mut self.stream, &mut texts))
            .map_err(|error| error.to_string())?;
        Ok(texts)
    }

    fn send(&mut self, words: &[&str]) -> Result<(), String> {
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(frame.as_bytes()).map_err(|error| gone(&error))
    }
}

fn gone(error: &io::Error) -> String {
    format!("the server is unreachable: {error}")
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    Ok(listener.map_err(|error| format!("no port is free: {error}"))?.port())
}

/// How long a server may take to answer, and a group of servers to change state.
const TIMEOUT: Duration = Duration::from_secs(10);
const CHANGE: Duration = Duration::from_secs(30);
/// How often a condition is checked.
const LOOK: Duration = Duration::from_millis(5);

impl Server {
    /// Returns the reply to a command, split at spaces; empty if the command fails.
    pub fn query(&self, command: &str) -> Vec<String> {
        self.call(&command.split(' ').collect::<Vec<_>>(), TIMEOUT).unwrap_or_default()
    }

    pub fn run(&self, command: &str) -> Result<(), String> {
        self.call(&command.split(' ').collect::<Vec<_>>(), TIMEOUT).map(drop)
    }
}

pub fn wait_until(problem: &str, mut condition: impl FnMut() -> bool) -> Result<(), String> {
    let limit = Instant::now() + CHANGE;
    while !condition() {
        if Instant::now() >= limit {
            return Err(problem.to_owned());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
    }
}

fn read_reply(answer: &mut BufReader<TcpStream>, texts: &mut Vec<String>) -> io::Result<()> {
    let mut line = String::new();
    answer.read_line(&mut line)?;
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = usize::try_from(rest.parse::<i64>().unwrap_or(-1));
    match (kind, length) {
        ("-", _) => return Err(io::Error::other(rest)),
        ("*", Ok(count)) => (0..count).try_for_each(|_| read_reply(answer, texts))?,
        ("$", Ok(length)) => {
            let mut bytes = vec![0; length + 2];
            answer.read_exact(&mut bytes)?;
            texts.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        ("$" | "*", Err(_)) => {}
        _ => texts.push(rest.to_owned()),
    }
    Ok(())
}
