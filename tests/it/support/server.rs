//! A real redis-server for one test.
//!
//! A guardian, a few lines of `sh`, stands between the test and the server. It waits on a pipe that only this process
//! holds open. However the process ends, the pipe ends with it. The guardian then kills the server, even a stopped one,
//! and removes its directory. So a killed test leaves nothing behind, and closing the pipe ends the server.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

const GUARDIAN: &str = include_str!("guardian.sh");

/// How often to try another port when another process was quicker to bind the free one.
const ATTEMPTS: usize = 20;

/// The certificate and the key of a server, and the authority that it trusts, in PEM.
pub struct Secrets {
    pub authority: String,
    /// The certificate.
    pub chain: String,
    pub key: String,
}

pub struct Server {
    /// The program, and the words before the options.
    program: Vec<String>,
    port: u16,
    arguments: Vec<String>,
    running: Option<Running>,
    /// Keeps the port of a killed server from other tests, whose servers would get this one's clients.
    reserved: Option<Socket>,
    /// The folder of its data, if they outlive a run. Removed when this is dropped.
    data: Option<PathBuf>,
}

impl Server {
    pub fn start() -> Self {
        Self::with_args(&[])
    }

    /// `arguments` follow the usual ones, and override them: `&["--maxmemory", "2mb"]`. The log must go to stdout at
    /// its usual level, because it shows when the server is ready.
    pub fn with_args(arguments: &[&str]) -> Self {
        let program = super::setting("REDISSON_LOCK_SERVER");
        Self::launch(vec![program], &[scripts_only(), arguments].concat())
    }

    /// The server program that this setting names.
    pub fn of(setting: &str) -> Self {
        Self::of_with_args(setting, &[])
    }

    /// The same with arguments.
    pub fn of_with_args(setting: &str, arguments: &[&str]) -> Self {
        Self::launch(vec![super::setting(setting)], arguments)
    }

    /// A server that logs each change at once, and has its data again after [`start_again`](Self::start_again). A
    /// client may use the fast path on it.
    pub fn with_log_of(setting: &str) -> Self {
        // The guardian removes the directory of each run, so the log is elsewhere.
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("data-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&data).expect("there is room");
        let data = data.to_str().expect("it is text");
        let arguments = ["--appendonly", "yes", "--appendfsync", "always", "--dir", data];
        let mut server = Self::launch(vec![super::setting(setting)], &arguments);
        server.data = Some(data.into());
        server
    }

    /// Redis 8.6 with a wall clock that is moved by the contents of that file, such as `+3600s`. (7.0 does not start
    /// with a clock like that.)
    pub fn with_clock(file: &str) -> Self {
        let (program, library) =
            (super::setting("REDISSON_LOCK_REDIS_8_6"), super::setting("REDISSON_LOCK_FAKETIME"));
        let script = format!(
            "export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={file} FAKETIME_NO_CACHE=1 \
             FAKETIME_DONT_FAKE_MONOTONIC=1 && exec {program} --enable-debug-command local \"$@\""
        );
        Self::launch(["sh", "-c", &script, "server"].map(str::to_owned).into(), scripts_only())
    }

    /// A server on which a client may always use the fast path.
    pub fn unrestricted() -> Self {
        Self::launch(vec![super::setting("REDISSON_LOCK_SERVER")], &[])
    }

    /// A replica of `master`, which has acknowledged a write.
    pub fn replica_of(master: &Self) -> Self {
        // It must know the commands that its master passes on.
        let mut arguments: Vec<&str> = master.arguments.iter().map(String::as_str).collect();
        let port = master.port().to_string();
        arguments.extend(["--replicaof", "127.0.0.1", &port]);
        let replica = Self::launch(master.program.clone(), &arguments);
        let mut cli = master.cli();
        let place = format!("port={},state=online", replica.port());
        loop {
            let info: String = redis::cmd("INFO").arg("replication").query(&mut cli).expect("INFO");
            if info.contains(&place) {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // Its first acknowledgement comes up to a second after that.
        let connected: Vec<redis::Value> = redis::cmd("ROLE").query(&mut cli).expect("ROLE");
        let redis::Value::Array(replicas) = &connected[2] else { panic!("{connected:?}") };
        redis::cmd("SET").arg(&["written", "", "PX", "1"]).exec(&mut cli).expect("SET");
        let acknowledged: usize =
            redis::cmd("WAIT").arg(replicas.len()).arg(10_000).query(&mut cli).expect("WAIT");
        assert_eq!(acknowledged, replicas.len());
        replica
    }

    /// A server that is also reached over TLS, at a port of its own.
    pub fn with_tls(secrets: &Secrets, arguments: &[&str]) -> (Self, u16) {
        Self::secured(secrets, "", &[scripts_only(), arguments].concat())
    }

    /// A sentinel with TLS, which knows the port of its master.
    pub fn sentinel_with_tls(secrets: &Secrets, master: u16) -> (Self, u16) {
        let script = format!("printf 'sentinel monitor orders 127.0.0.1 {master} 1\n' > conf && ");
        Self::secured(secrets, &script, &["--tls-replication", "yes"])
    }

    /// `conf` writes the file of a sentinel before the program starts.
    fn secured(Secrets { authority, chain, key }: &Secrets, conf: &str, arguments: &[&str]) -> (Self, u16) {
        let (program, port) = (super::setting("REDISSON_LOCK_SERVER"), free_port());
        let mode = if conf.is_empty() { "" } else { "conf --sentinel" };
        let script = format!(
            "printf '%s' '{authority}' > ca && printf '%s' '{chain}' > chain && printf '%s' '{key}' > key && \
             {conf}exec {program} {mode} --tls-port {port} --tls-ca-cert-file ca --tls-cert-file chain \
             --tls-key-file key --tls-auth-clients no \"$@\""
        );
        (Self::launch(["sh", "-c", &script, "server"].map(str::to_owned).into(), arguments), port)
    }

    /// A sentinel that watches over `master` as `orders`. With as many others as make `quorum`, it promotes a replica
    /// when the master has not replied for a second. If the replica replies too late to be chosen, the next attempt follows
    /// after twice the failover timeout.
    pub fn sentinel(master: &Self, quorum: usize) -> Self {
        let config = format!(
            "sentinel monitor orders 127.0.0.1 {} {quorum}\n\
             sentinel down-after-milliseconds orders 1000\n\
             sentinel failover-timeout orders 2000\n",
            master.port()
        );
        let program = super::setting("REDISSON_LOCK_SERVER");
        // The sentinel writes its state to this file.
        let script =
            format!("printf '{config}' > sentinel.conf && exec {program} sentinel.conf --sentinel \"$@\"");
        Self::launch(["sh", "-c", &script, "sentinel"].map(str::to_owned).into(), &[])
    }

    fn launch(program: Vec<String>, arguments: &[&str]) -> Self {
        super::canary::watch();
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            if let Some(running) = Running::start(&program, port, &arguments) {
                return Self { program, port, arguments, running: Some(running), reserved: None, data: None };
            }
        }
        panic!("no port was free for the server in {ATTEMPTS} attempts");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`
    pub fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub fn pid(&self) -> i32 {
        self.running().server.as_raw_pid()
    }

    /// `SIGKILL`. The server is gone when this returns, with everything in its memory.
    pub fn kill(&mut self) {
        if self.running.take().is_some() {
            self.reserved = Some(reserve(self.port));
        }
    }

    /// Polls `future` once. Its request is sent, and no reply arrives during the poll.
    pub fn poll_without_reply(&self, future: Pin<&mut impl Future>) {
        self.stop_signal();
        assert!(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        self.cont();
    }

    pub fn lives(&self) -> bool {
        self.running.is_some()
    }

    /// Kills the server unless it is dead, and starts an empty one on the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Starts a server that was killed, with its data if it logs them.
    pub fn start_again(&mut self) {
        drop(self.reserved.take());
        let running = Running::start(&self.program, self.port, &self.arguments);
        self.running = Some(running.expect("the server's port was taken while it was down"));
    }

    /// `SIGSTOP`: connections stay, and nothing answers.
    pub fn stop_signal(&self) {
        self.signal(Signal::STOP);
    }

    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// A new connection, for raw commands: `redis::cmd("HGETALL").arg(name).query(&mut server.cli())`.
    pub fn cli(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("the URL is valid");
        client.get_connection().expect("the server does not accept connections")
    }

    /// The version that the server reports.
    pub fn version(&self) -> String {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.cli()).expect("INFO");
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        version.expect("INFO has the version").trim().to_owned()
    }

    /// The microseconds that all commands took since the last reset, by the server's own account. The commands of this
    /// query do not count.
    pub fn busy_us(&self) -> u64 {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.cli()).expect("INFO");
        let spent = |line: &str| line.split(",usec=").nth(1)?.split(',').next()?.parse::<u64>().ok();
        let lines =
            stats.lines().filter(|line| !["info", "config", "client"].iter().any(|own| line.contains(own)));
        lines.filter_map(spent).sum()
    }

    /// The number of script calls, by source or by hash, since the start or the last reset.
    pub fn scripts(&self) -> u64 {
        ["eval", "evalsha"].map(|command| self.calls(command)).iter().sum()
    }

    /// Replaces the record of a lock by that of another owner, in one step.
    pub fn give_away(&self, name: &str) {
        let mut both = redis::pipe();
        both.atomic().del(name).hset(name, "another:1", 1);
        both.exec(&mut self.cli()).expect("a record");
    }

    /// The number of calls of a command, by clients and by scripts. `command` is in lower case.
    pub fn calls(&self, command: &str) -> u64 {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.cli()).expect("INFO");
        let prefix = format!("cmdstat_{command}:calls=");
        stats
            .lines()
            .find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok())
            .unwrap_or(0)
    }

    /// Sets one setting. Several at once need Redis 7.
    #[track_caller]
    pub fn configure(&self, setting: &str, value: &str) {
        let done = redis::cmd("CONFIG").arg("SET").arg(setting).arg(value).exec(&mut self.cli());
        done.unwrap_or_else(|error| panic!("{setting} {value}: {error}"));
    }

    pub fn commandstats_reset(&self) {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.cli()).expect("CONFIG RESETSTAT");
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.running().server, signal).expect("the server can be signalled");
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server was killed")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Not by `kill`, because another test may take the port at once.
        drop(self.running.take());
        if let Some(data) = &self.data {
            let _ = std::fs::remove_dir_all(data);
        }
    }
}

/// A server that runs. Ends when dropped.
struct Running {
    server: Pid,
    guardian: Child,
    /// The guardian's pipe. It is an `Option` only because it must be closed before the wait for the guardian.
    pipe: Option<ChildStdin>,
}

impl Running {
    /// `None` if the port is taken.
    fn start(program: &[String], port: u16, arguments: &[String]) -> Option<Self> {
        let mut guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .args(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .args(if let [program] = program { debug_allowed(program) } else { &[] })
            .args(arguments)
            // A signal to this process's group, such as Ctrl-C, must not end the guardian before its work.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh cannot be run");
        let mut lines = BufReader::new(guardian.stdout.take().expect("it is piped"));
        let mut pid = String::new();
        lines.read_line(&mut pid).expect("the guardian's output is text");
        let server = pid.trim().parse().ok().and_then(Pid::from_raw).expect("the guardian names a pid");
        let running = Self { server, pipe: guardian.stdin.take(), guardian };

        let mut log = String::new();
        while !["eady to accept connections", "Sentinel ID is"].iter().any(|ready| log.contains(ready)) {
            if lines.read_line(&mut log).expect("the server's log is text") == 0 {
                assert!(log.contains("Address already in use"), "the server does not start:\n{log}");
                return None;
            }
        }
        // Reads on, because a full pipe would block the server.
        thread::spawn(move || io::copy(&mut lines, &mut io::sink()));
        Some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.guardian.wait().expect("the guardian is our child");
    }
}

/// A socket that is bound to the port and does not listen: connects are refused, and [`free_port`] finds another port.
fn reserve(port: u16) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be made");
    // The connections of the killed server may not have ended.
    socket.set_reuse_address(true).expect("the option exists");
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    socket.bind(&address.into()).expect("the server's port was taken when it was killed");
    socket
}

pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("no port is free");
    listener.local_addr().expect("it is bound").port()
}

/// With `REDISSON_LOCK_SCRIPTS_ONLY` the client may not use the fast path, so that every test covers the scripts.
fn scripts_only() -> &'static [&'static str] {
    match std::env::var_os("REDISSON_LOCK_SCRIPTS_ONLY") {
        Some(_) => &["--rename-command", "RESTORE", "", "--rename-command", "MULTI", ""],
        None => &[],
    }
}

/// The major version of the server that all tests run on.
pub fn major() -> u32 {
    major_of(&super::setting("REDISSON_LOCK_SERVER"))
}

fn major_of(program: &str) -> u32 {
    static MAJOR: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let mut known = MAJOR.lock().unwrap_or_else(PoisonError::into_inner);
    *known.entry(program.to_owned()).or_insert_with(|| {
        let output = Command::new(program).arg("--version").output().expect("the server cannot be run");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let version = text.split("v=").nth(1).and_then(|rest| rest.split('.').next()?.parse().ok());
        version.unwrap_or_else(|| panic!("{program} --version prints {text:?}"))
    })
}

/// Since 7.0, DEBUG must be enabled. Before that, the option is an error.
fn debug_allowed(program: &str) -> &'static [&'static str] {
    if major_of(program) >= 7 { &["--enable-debug-command", "local"] } else { &[] }
}
