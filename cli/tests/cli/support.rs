//! A server for one test, and the program.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const GUARDIAN: &str = include_str!("../../../tests/it/support/guardian.sh");

/// A server at a Unix socket, which no other test can take over. It ends with this process at the latest.
pub struct Server {
    folder: PathBuf,
    running: Option<Running>,
    arguments: Vec<String>,
}

struct Running {
    server: Pid,
    guardian: Child,
    pipe: Option<ChildStdin>,
}

impl Server {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server that has its data again after a restart.
    pub fn durable() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub fn with(arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Short, because the path of a socket has at most 107 bytes.
        let folder = std::env::temp_dir().join(format!("redisson-lock-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        let mut server = Self { folder, running: None, arguments };
        server.launch();
        server
    }

    fn launch(&mut self) {
        let program = std::env::var("REDISSON_LOCK_SERVER")
            .expect("REDISSON_LOCK_SERVER is not set: run the tests with `cargo xtask test`");
        let folder = self.folder.to_str().unwrap();
        let mut guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian", &program, "--port", "0", "--unixsocket", &self.socket()])
            .args(["--save", "", "--appendonly", "no", "--dir", folder])
            .args(&self.arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(guardian.stdout.take().unwrap());
        let mut pid = String::new();
        lines.read_line(&mut pid).unwrap();
        let server = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let mut log = String::new();
        while !log.contains("eady to accept connections") {
            assert_ne!(lines.read_line(&mut log).unwrap(), 0, "the server does not start:\n{log}");
        }
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        self.running = Some(Running { server, pipe: guardian.stdin.take(), guardian });
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        let Some(Running { server, mut guardian, pipe }) = self.running.take() else { return };
        kill_process(server, Signal::KILL).unwrap();
        drop(pipe);
        guardian.wait().unwrap();
    }

    /// Starts the killed server again.
    pub fn start_again(&mut self) {
        assert!(self.running.is_none());
        self.launch();
    }

    /// Stops or continues the server.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.running.as_ref().unwrap().server, signal).unwrap();
    }

    pub fn socket(&self) -> String {
        self.folder.join("socket").to_str().unwrap().to_owned()
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket())
    }

    /// Also listens at a port, and returns it.
    pub fn listen(&self) -> u16 {
        loop {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
            // Fails if another process was quicker to bind it.
            if redis::cmd("CONFIG").arg(&["SET", "port", &port.to_string()]).exec(&mut connection).is_ok() {
                return port;
            }
        }
    }

    /// Runs a raw command.
    pub fn raw<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
    }

    pub fn exists(&self, key: &str) -> bool {
        self.raw(&["EXISTS", key])
    }

    /// The program, with the URL of this server.
    pub fn cli(&self, words: &[&str]) -> Command {
        let mut command = with_default_signals(PROGRAM);
        command.args(words).env("REDISSON_LOCK_URL", self.url()).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn output(&self, words: &[&str]) -> Done {
        Done::of(self.cli(words).output().unwrap())
    }

    /// Starts the program.
    pub fn spawn(&self, words: &[&str]) -> Process {
        Process::start(&mut self.cli(words))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A command that ignores no signal, although the tests may have been started by `nohup` or in the background.
pub fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_redisson-lock");

/// A wait in seconds that ends as busy. The server answers within it, even if this machine stalls for a moment.
pub const BRIEF: &str = "1";

/// A program that has ended.
#[derive(Debug)]
pub struct Done {
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Done {
    pub fn of(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code(), signal: status.signal(), out: text(stdout), err: text(stderr) }
    }

    #[track_caller]
    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{self:?}");
    }

    /// A shell sees 128 + n in both cases. Only a death by SIGINT ends its script.
    #[track_caller]
    pub fn assert_ended_by(&self, signal: Signal) {
        if signal == Signal::INT {
            assert_eq!((self.code, self.signal), (None, Some(signal.as_raw())), "{self:?}");
        } else {
            self.assert_code(128 + signal.as_raw());
        }
    }
}

/// A program that runs. It is killed when dropped.
pub struct Process {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self::with_errors(command, Stdio::piped())
    }

    /// Starts it with this standard error.
    pub fn with_errors(command: &mut Command, errors: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(errors).spawn().unwrap();
        Self { output: child.stdout.take().map(BufReader::new), child }
    }

    /// The next line of its output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut errors = String::new();
            let _ = self.child.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("the output has ended: {errors}");
        }
        line.trim_end().to_owned()
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The first line of its errors that contains this text.
    pub fn error_line(&mut self, text: &str) -> String {
        let mut errors = BufReader::new(self.child.stderr.as_mut().unwrap());
        loop {
            let mut line = String::new();
            assert_ne!(errors.read_line(&mut line).unwrap(), 0, "no error has {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }

    pub fn take_input(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Reads its output no longer.
    pub fn close_output(&mut self) {
        self.output = None;
    }

    /// Waits for its end. The output is what was not read as lines.
    pub fn end(mut self) -> Done {
        let (mut out, mut err) = (String::new(), String::new());
        if let Some(errors) = &mut self.child.stderr {
            errors.read_to_string(&mut err).unwrap();
        }
        if let Some(output) = &mut self.output {
            output.read_to_string(&mut out).unwrap();
        }
        let status = self.child.wait().unwrap();
        Done { code: status.code(), signal: status.signal(), out, err }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state of a process, such as `T` if it is stopped; `None` if it does not exist.
pub fn state(pid: Pid) -> Option<char> {
    stat(&pid.as_raw_pid().to_string()).map(|(state, _)| state)
}

/// The children of a process.
pub fn children(parent: Pid) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let children = processes.filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().ok()?;
        let (_, its_parent) = stat(&name)?;
        (its_parent == parent.as_raw_pid()).then(|| pid(&name))
    });
    children.collect()
}

/// The state and the parent of a process.
fn stat(pid: &str) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// Holds `name` until its input is closed. Returns the owner, too.
pub fn hold(server: &Server, name: &str, options: &[&str]) -> (Process, String) {
    let words = [["hold", name].as_slice(), options].concat();
    let mut holder = Process::start(server.cli(&words).stdin(Stdio::piped()));
    let line = holder.line();
    let owner = line.split(r#""owner":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
    (holder, owner)
}

/// Whether a process exists that is not only waiting to be reaped.
pub fn is_alive(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

pub fn pid(line: &str) -> Pid {
    Pid::from_raw(line.trim().parse().unwrap()).unwrap()
}

/// Waits for a condition that has no event.
#[track_caller]
pub fn eventually(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "the condition never held");
        thread::sleep(Duration::from_millis(2));
    }
}
