//! A real PostgreSQL for one test, and sessions in it.
//!
//! As for a redis-server, a few lines of `sh` stand between the test and the server, and end it with this process.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::server::free_port;

/// Its arguments are the folder of PostgreSQL's programs and the port. It prints a line when the server is ready, and a line with the log
/// when the server does not start. SIGQUIT ends the server at once, with its shared memory. `guardian.sh` says why signals are ignored.
const GUARDIAN: &str = r#"
trap '' HUP INT TERM PIPE
directory=$(mktemp -d) && cd "$directory" || exit
"$1/initdb" --pgdata=data --username=test --auth=trust --encoding=UTF8 --no-locale --no-sync > log 2>&1 </dev/null &&
  "$1/pg_ctl" --pgdata=data --wait --log=log start >/dev/null 2>&1 </dev/null \
    --options="-h 127.0.0.1 -p $2 -k '$directory' -c fsync=off -c max_connections=20" &&
  echo ready || tr '\n' ' ' <log
exec >/dev/null 2>&1
read -r _
"$1/pg_ctl" --pgdata=data --mode=immediate stop
cd / && rm -rf "$directory"
"#;

const ATTEMPTS: usize = 5;

pub struct Postgres {
    programs: PathBuf,
    port: u16,
    guardian: Child,
    /// The guardian's pipe, closed before the wait for the guardian.
    pipe: Option<ChildStdin>,
}

impl Postgres {
    pub fn start() -> Self {
        let programs = PathBuf::from(super::setting("REDISSON_LOCK_POSTGRES"));
        let mut log = String::new();
        // Another process may bind the free port first.
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let mut command = Command::new("sh");
            command.args(["-c", GUARDIAN, "guardian"]).arg(&programs).arg(port.to_string());
            // PostgreSQL refuses to run as root. Debian's package creates this user.
            if rustix::process::geteuid().is_root() {
                command.uid(id_of_user("-u")).gid(id_of_user("-g"));
            }
            let streams =
                command.process_group(0).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut guardian = streams.spawn().expect("sh cannot be run");
            let mut lines = BufReader::new(guardian.stdout.take().expect("it is piped"));
            log.clear();
            lines.read_line(&mut log).expect("the log is text");
            let pipe = guardian.stdin.take();
            let started = Self { programs: programs.clone(), port, guardian, pipe };
            if log == "ready\n" {
                return started;
            }
        }
        panic!("PostgreSQL does not start: {log}");
    }

    pub fn url(&self) -> String {
        format!("postgresql://test@127.0.0.1:{}/postgres", self.port)
    }

    pub fn session(&self) -> Session {
        let mut psql = Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1"])
            .arg(self.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql cannot be run");
        let answers = BufReader::new(psql.stdout.take().expect("it is piped"));
        Session { statements: psql.stdin.take(), psql, answers }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.pipe.take());
        self.guardian.wait().expect("the guardian is our child");
    }
}

/// The id of the user `postgres`.
fn id_of_user(option: &str) -> u32 {
    let output = Command::new("id").args([option, "postgres"]).output().expect("id can be run");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim()
        .parse()
        .expect("PostgreSQL refuses to run as root, and there is no user `postgres`: create it")
}

/// A connection. Its transaction stays open between two calls.
pub struct Session {
    psql: Child,
    statements: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Session {
    /// Runs statements, and returns the lines of their rows, with `|` between two columns.
    pub fn run(&mut self, sql: &str) -> String {
        const END: &str = "end of the answer";
        let statements = self.statements.as_mut().expect("taken only by drop");
        writeln!(statements, "{sql};\n\\echo {END}").expect("psql runs");
        let mut rows = String::new();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).expect("text") > 0, "psql failed at {sql:?}");
            if line.trim_end() == END {
                return rows.trim_end().to_owned();
            }
            rows += &line;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.statements.take());
        let _ = self.psql.wait();
    }
}
