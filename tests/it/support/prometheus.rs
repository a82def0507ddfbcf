//! A real Prometheus for one test, which scrapes a page of the test.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use serde_json::Value;

/// Ends Prometheus with this process, as it does for a redis-server.
const GUARDIAN: &str = include_str!("guardian.sh");

/// Prometheus or one of its tools.
pub fn tool(name: &str) -> PathBuf {
    Path::new(&super::setting("REDISSON_LOCK_PROMETHEUS")).join(name)
}

/// Serves a new page at each request, for as long as this process lives. Returns the address.
pub fn serve(mut page: impl FnMut() -> String + Send + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // Prometheus may close the connection early, and scrapes again.
            let _ = stream.and_then(|stream| answer(stream, &page()));
        }
    });
    address
}

fn answer(mut stream: TcpStream, page: &str) -> io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    write!(
        stream,
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n{page}",
        page.len()
    )
}

pub struct Prometheus {
    address: String,
    guardian: Child,
    /// The guardian's pipe, closed before the wait for the guardian.
    pipe: Option<ChildStdin>,
    settings: PathBuf,
}

impl Prometheus {
    /// Scrapes `target`, as the job `job`, and evaluates the rules five times a second. It listens at a port of its own choice.
    pub fn start(job: &str, target: &str, rules: &Path) -> Self {
        let settings =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("prometheus-{}.yml", uuid::Uuid::new_v4()));
        let text = format!(
            "global: {{scrape_interval: 200ms, evaluation_interval: 200ms}}\n\
             rule_files: [{rules:?}]\n\
             scrape_configs: [{{job_name: {job}, static_configs: [{{targets: [{target:?}]}}]}}]\n"
        );
        fs::write(&settings, text).expect("there is room");
        let mut guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(tool("prometheus"))
            .arg(format!("--config.file={}", settings.display()))
            .args(["--web.listen-address=127.0.0.1:0", "--storage.tsdb.path=data"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh can be run");
        let pipe = guardian.stdin.take();
        let mut lines = BufReader::new(guardian.stdout.take().expect("it is piped"));
        let (mut log, mut address, mut ready) = (String::new(), None, false);
        // The two lines come from two of its threads, in any order.
        let address = loop {
            if ready && let Some(address) = address.take() {
                break address;
            }
            let mut line = String::new();
            assert!(
                lines.read_line(&mut line).expect("the log is text") > 0,
                "Prometheus does not start:\n{log}"
            );
            log += &line;
            if let Some((_, rest)) = line.split_once("msg=\"Listening on\" address=") {
                address = Some(rest.trim().to_owned());
            }
            ready |= line.contains("Server is ready");
        };
        // A full pipe would stop it.
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        Self { address, guardian, pipe, settings }
    }

    /// The field `data` of the answer to a question of its API.
    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(stream, "GET /api/v1/{path}?{} HTTP/1.0\r\n\r\n", pairs.join("&")).expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (_, body) = answer.split_once("\r\n\r\n").expect("it answers by HTTP");
        let mut body: Value =
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"));
        assert_eq!(body["status"], "success", "{path} {parameters:?}: {body}");
        body["data"].take()
    }

    /// The values of an expression, each with its labels.
    pub fn values(&self, expression: &str) -> Vec<(Value, f64)> {
        let data = self.ask("query", &[("query", expression)]);
        let one = |one: &Value| {
            (one["metric"].clone(), one["value"][1].as_str().expect("a number").parse().expect("a number"))
        };
        data["result"].as_array().expect("a vector").iter().map(one).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.guardian.wait().expect("the guardian is our child");
        let _ = fs::remove_file(&self.settings);
    }
}
