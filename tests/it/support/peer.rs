//! Locks of other libraries in other languages, in processes that follow requests (`tests/peers` describes them).

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{Server, setting};

/// One client of one library. Ends when dropped.
pub struct Peer {
    pub language: &'static str,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Peer {
    /// redis-py, and node-redlock.
    pub const LANGUAGES: [&str; 2] = ["Python", "Node"];

    pub fn start(language: &'static str, server: &Server) -> Self {
        let (program, script, library, path) = match language {
            "Python" => ("python3", "lock.py", "REDISSON_LOCK_PYTHON_PEER", "PYTHONPATH"),
            "Node" => ("node", "lock.js", "REDISSON_LOCK_NODE_PEER", "NODE_PATH"),
            _ => panic!("no peer speaks {language}"),
        };
        let mut process = Command::new(program)
            .arg(format!("{}/tests/peers/{script}", env!("CARGO_MANIFEST_DIR")))
            .arg(server.port().to_string())
            .env(path, setting(library))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let requests = process.stdin.take().expect("it is piped");
        let answers = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Self { language, requests, answers, _process: process }
    }

    /// Sends a request. Call [`answer`](Self::answer) for each.
    pub async fn ask(&mut self, request: &str) {
        self.requests.write_all(format!("{request}\n").as_bytes()).await.expect("the peer runs");
    }

    pub async fn answer(&mut self) -> String {
        let line = self.answers.next_line().await.expect("it is text").expect("the peer died");
        let answer = line.strip_prefix("ok ");
        answer.unwrap_or_else(|| panic!("{}: {line}", self.language)).to_owned()
    }

    pub async fn call(&mut self, request: &str) -> String {
        self.ask(request).await;
        self.answer().await
    }

    /// Whether the answer is yes.
    pub async fn does(&mut self, request: &str) -> bool {
        self.call(request).await == "true"
    }
}
