//! The command line. The texts here are the help, the man pages and the completions.

use crate::codes::CodeOptions;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Hold, inspect and release the locks that redisson-lock and Java Redisson share in Redis.
#[derive(Debug, Parser)]
#[command(name = "redisson-lock", version, max_term_width = 100)]
pub struct Cli {
    /// How to reach Redis.
    #[command(flatten)]
    pub connection: Connection,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// How to reach Redis.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// The servers: redis://, rediss://, redis-sentinel://, redis-cluster:// or redis-replicated:// and an address.
    ///
    /// Default: the environment variable REDISSON_LOCK_URL, then redis://127.0.0.1/. A URL with a password belongs in the variable,
    /// because every user of the machine can read the process list.
    #[arg(long, global = true, value_name = "URL", conflicts_with = "config")]
    pub url: Option<String>,
    /// Read the servers and credentials from this Redisson configuration file, YAML or JSON.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The user in Redis's access control list. Default: the default user.
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// Read the password from the first line of this file. Default: the variable REDISSON_LOCK_PASSWORD, then none.
    ///
    /// The file is read again for each connection, so that the password may change.
    #[arg(long, global = true, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Trust the certificate authorities in this PEM file, in place of the system's.
    #[arg(long, global = true, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// The client's certificate chain, a PEM file.
    #[arg(long, global = true, value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// The private key of --cert, a PEM file.
    #[arg(long, global = true, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// The name in the server's certificate. Default: the host of the URL.
    #[arg(long, global = true, value_name = "HOST")]
    pub sni: Option<String>,
    /// Accept any certificate. An attacker on the network can then read the traffic and the password.
    #[arg(long, global = true, conflicts_with = "cacert")]
    pub insecure: bool,
    /// Limit the time to connect, and the time of each request to Redis. Default: 5, or the timeouts of --config.
    #[arg(long, global = true, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Report on standard error what is waited for, and who holds it.
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

impl Connection {
    /// Whether an option for TLS is set.
    pub fn wants_tls(&self) -> bool {
        self.insecure
            || [&self.cacert, &self.cert, &self.key].iter().any(|file| file.is_some())
            || self.sni.is_some()
    }
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Hold a lock while a program runs.
    Run(Run),
    /// Hold a lock until standard input ends or a signal comes.
    ///
    /// Writes one line of JSON when the lock is held, and one if the hold is lost.
    Hold(Hold),
    /// Show the kind of a lock, who holds it, how long the lease lasts, and who waits.
    Inspect(Inspect),
    /// Show the locks, semaphores and latches that there are now.
    List(List),
    /// Release a lock, whoever holds it, and wake its waiters.
    ForceUnlock(ForceUnlock),
    /// Create, count, acquire and release the permits of a semaphore with leases.
    Semaphore {
        /// The action.
        #[command(subcommand)]
        command: SemaphoreCommand,
    },
    /// Create, count, acquire and release the permits of a semaphore without leases.
    PlainSemaphore {
        /// The action.
        #[command(subcommand)]
        command: PlainSemaphoreCommand,
    },
    /// Create, count down and wait for a count-down latch.
    Latch {
        /// The action.
        #[command(subcommand)]
        command: LatchCommand,
    },
    /// Show acquisitions, releases and losses as they happen.
    Watch(Watch),
    /// Show the locks, their holders and their waiters in a live table on the full screen.
    ///
    /// Keys: q quits, s sorts, / filters, p pauses, Enter shows one lock, ? shows all keys.
    Top(Top),
    /// Examine what the server permits and how it is set up, and what that means for locks.
    ///
    /// Exits with 1 if something endangers a lock.
    Doctor(Doctor),
    /// Write the completions of a shell to standard output.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// Commands for the program itself and for the build. They are no part of the help and the completions.
#[derive(Debug, Parser)]
#[command(name = "redisson-lock")]
pub enum Internal {
    /// Write the man pages into a folder.
    #[command(name = "__man-pages")]
    ManPages {
        /// The folder, which must exist.
        folder: PathBuf,
    },
    /// Become the program of `run`.
    #[command(name = "__launch")]
    Launch(Launch),
    /// End the program of `run` when `run` cannot.
    #[command(name = "__guard")]
    Guard(Guard),
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One holder at a time: Java's getLock.
    Lock,
    /// In order of arrival: Java's getFairLock.
    Fair,
    /// With a fencing token: Java's getFencedLock.
    Fenced,
    /// Without messages; waiters poll: Java's getSpinLock.
    Spin,
    /// The read side of Java's getReadWriteLock.
    Read,
    /// The write side of Java's getReadWriteLock.
    Write,
    /// The classic Redis lock, SET NX.
    Value,
}

/// The kind of the lock.
#[derive(Args, Clone, Copy, Debug)]
pub struct KindArgs {
    /// The kind of lock. It must be the kind that the other programs use for the name.
    #[arg(long, value_enum, default_value_t = Kind::Lock)]
    pub kind: Kind,
    /// Take the read side of a read/write lock, as --kind read does.
    #[arg(short, long, conflicts_with_all = ["kind", "exclusive"])]
    pub shared: bool,
    /// Take the write side of a read/write lock, as --kind write does.
    #[arg(short = 'x', long, conflicts_with = "kind")]
    pub exclusive: bool,
}

impl KindArgs {
    /// Returns the kind that the options name.
    pub fn kind(self) -> Kind {
        match self {
            Self { shared: true, .. } => Kind::Read,
            Self { exclusive: true, .. } => Kind::Write,
            Self { kind, .. } => kind,
        }
    }
}

/// The kind of the lock, if its record does not show it.
#[derive(Args, Clone, Copy, Debug)]
pub struct KindOverride {
    /// The kind of the lock. Default: the kind that its record shows.
    #[arg(long, value_enum)]
    pub kind: Option<Kind>,
    /// The read side of a read/write lock, as --kind read.
    #[arg(short, long, conflicts_with_all = ["kind", "exclusive"])]
    pub shared: bool,
    /// The write side of a read/write lock, as --kind write.
    #[arg(short = 'x', long, conflicts_with = "kind")]
    pub exclusive: bool,
}

impl KindOverride {
    /// Returns the kind that the options name, if they name one.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Self { shared: true, .. } => Some(Kind::Read),
            Self { exclusive: true, .. } => Some(Kind::Write),
            Self { kind, .. } => kind,
        }
    }
}

/// How to acquire and keep a lock.
#[derive(Args, Clone, Debug)]
pub struct Terms {
    /// The kind of the lock.
    #[command(flatten)]
    pub kind: KindArgs,
    /// Do not wait for a busy lock.
    #[arg(short, long, visible_alias = "nb", conflicts_with = "wait")]
    pub nonblock: bool,
    /// Wait at most this long for a busy lock; fractions are allowed. Default: without a limit.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub wait: Option<Duration>,
    /// The lease, which is renewed while the lock is held. Default: 30, or the lockWatchdogTimeout of --config.
    ///
    /// It is how long the lock of a dead holder stays busy.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    pub lease: Option<Duration>,
    /// Keep the lock busy for at least this long, even if it is released earlier.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds, conflicts_with = "max_hold")]
    pub min_hold: Option<Duration>,
    /// End the hold after this long. The hold is then lost.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
    pub max_hold: Option<Duration>,
    /// A name for the holder, which `inspect` shows. A unique suffix is added to it.
    #[arg(long, value_name = "NAME", conflicts_with = "limit")]
    pub owner: Option<String>,
    /// Allow this many holders at a time, by an expirable semaphore in place of a lock.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["kind", "shared", "exclusive", "min_hold", "max_hold"])]
    pub limit: Option<u32>,
}

/// Hold a lock while a program runs.
#[derive(Args, Clone, Debug)]
pub struct Run {
    /// The name of the lock.
    pub name: String,
    /// How to acquire and keep the lock.
    #[command(flatten)]
    pub terms: Terms,
    /// The action on the program if the lock is lost while it runs.
    #[arg(long, value_enum, value_name = "ACTION", default_value_t = OnLost::Term)]
    pub on_lost: OnLost,
    /// The time between the SIGTERM and the SIGKILL that end the program.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5")]
    pub kill_after: Duration,
    /// The exit codes.
    #[command(flatten)]
    pub codes: CodeOptions,
    /// Run this command line with /bin/sh, in place of a program.
    #[arg(short, long, value_name = "LINE", conflicts_with = "program")]
    pub command: Option<String>,
    /// The program and its arguments.
    #[arg(last = true, required_unless_present = "command", value_name = "COMMAND")]
    pub program: Vec<OsString>,
}

/// The action on the program of a lost lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// It gets SIGTERM, and SIGKILL after --kill-after.
    Term,
    /// It gets SIGKILL.
    Kill,
    /// It continues, and a message says so.
    Warn,
}

/// Hold a lock until standard input ends or a signal comes.
#[derive(Args, Clone, Debug)]
pub struct Hold {
    /// The name of the lock.
    pub name: String,
    /// How to acquire and keep the lock.
    #[command(flatten)]
    pub terms: Terms,
}

/// Show a lock.
#[derive(Args, Clone, Debug)]
pub struct Inspect {
    /// The name of the lock.
    pub name: String,
    /// The kind of the lock, if its record does not show it.
    #[command(flatten)]
    pub kind: KindOverride,
    /// Write one line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Show the locks, semaphores and latches that there are now.
#[derive(Args, Clone, Debug)]
pub struct List {
    /// Show only names that match this glob, such as 'orders:*'. It is the pattern of Redis's SCAN.
    #[arg(default_value = "*")]
    pub pattern: String,
    /// Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks.
    #[arg(short, long)]
    pub all: bool,
    /// Write one line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Show what happens to locks.
#[derive(Args, Clone, Debug)]
pub struct Watch {
    /// The name of a lock, or a glob with *, ? or [, such as 'orders:*'.
    #[arg(value_name = "NAME|PATTERN")]
    pub name: String,
    /// How often to read a lock whose release is not published.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds, default_value = "0.5")]
    pub interval: Duration,
    /// Write one line of JSON for each event.
    #[arg(long)]
    pub json: bool,
}

/// Show the locks in a live table.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// Show only names that match this glob, such as 'orders:*'. It is the pattern of Redis's SCAN.
    #[arg(default_value = "*")]
    pub pattern: String,
    /// Also show integers, which may be semaphores or latches, and short strings with an expiry, which may be value locks.
    #[arg(short, long)]
    pub all: bool,
    /// The time from the end of a reading to the next one. A reading visits every key of the database once, by SCAN.
    #[arg(long, value_name = "SECONDS", value_parser = positive_seconds, default_value = "2")]
    pub interval: Duration,
}

/// Examine the servers.
#[derive(Args, Clone, Debug)]
pub struct Doctor {
    /// Write one line of JSON for each server.
    #[arg(long)]
    pub json: bool,
}

/// Release a lock, whoever holds it.
#[derive(Args, Clone, Debug)]
pub struct ForceUnlock {
    /// The name of the lock.
    pub name: String,
    /// The kind of the lock, if its record does not show it.
    #[command(flatten)]
    pub kind: KindOverride,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// Write one line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// A command for an expirable semaphore: Java's getPermitExpirableSemaphore.
#[derive(Debug, Subcommand)]
pub enum SemaphoreCommand {
    /// Create the semaphore with this many permits, unless it exists.
    Create {
        /// The name of the semaphore.
        name: String,
        /// The number of permits.
        permits: u32,
    },
    /// Write the numbers of free, taken and all permits.
    Count {
        /// The name of the semaphore.
        name: String,
        /// Write one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Acquire a permit, and write its id. The permit outlives this command, until its lease ends.
    Acquire {
        /// The name of the semaphore.
        name: String,
        /// How long the permit lasts. Nothing renews it.
        #[arg(long, value_name = "SECONDS", value_parser = positive_seconds)]
        lease: Duration,
        /// Do not wait for a permit.
        #[arg(short, long, conflicts_with = "wait")]
        nonblock: bool,
        /// Wait at most this long for a permit. Default: without a limit.
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
        wait: Option<Duration>,
    },
    /// Release a permit by the id that `acquire` wrote.
    Release {
        /// The name of the semaphore.
        name: String,
        /// The id of the permit.
        id: String,
    },
}

/// A command for a semaphore without leases: Java's getSemaphore.
#[derive(Debug, Subcommand)]
pub enum PlainSemaphoreCommand {
    /// Create the semaphore with this many permits, unless it exists.
    Create {
        /// The name of the semaphore.
        name: String,
        /// The number of permits.
        permits: u32,
    },
    /// Write the number of free permits. A semaphore that does not exist has none.
    Count {
        /// The name of the semaphore.
        name: String,
    },
    /// Acquire permits. They have no lease, so they stay taken until somebody releases them.
    Acquire {
        /// The name of the semaphore.
        name: String,
        /// The number of permits, which are acquired at once.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value = "1")]
        permits: u32,
        /// Do not wait for permits.
        #[arg(short, long, conflicts_with = "wait")]
        nonblock: bool,
        /// Wait at most this long for permits. Default: without a limit.
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
        wait: Option<Duration>,
    },
    /// Release permits. Nothing checks who acquired them.
    Release {
        /// The name of the semaphore.
        name: String,
        /// The number of permits.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value = "1")]
        permits: u32,
    },
}

/// A command for a latch: Java's getCountDownLatch.
#[derive(Debug, Subcommand)]
pub enum LatchCommand {
    /// Create the latch with this count, unless it exists.
    Create {
        /// The name of the latch.
        name: String,
        /// The count.
        #[arg(value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Count the latch down by one.
    CountDown {
        /// The name of the latch.
        name: String,
    },
    /// Write the count, which is 0 if the latch is open.
    Count {
        /// The name of the latch.
        name: String,
    },
    /// Wait until the latch is open. A latch that does not exist is open.
    Wait {
        /// The name of the latch.
        name: String,
        /// Wait at most this long. Default: without a limit.
        #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
        wait: Option<Duration>,
    },
}

/// The arguments of the launcher.
#[derive(Args, Debug)]
pub struct Launch {
    /// The process id of `run`.
    pub parent: i32,
    /// The exit code if the program cannot be executed.
    pub not_executable: u8,
    /// The exit code if the program does not exist.
    pub not_found: u8,
    /// Make the program the foreground job of the terminal.
    #[arg(long)]
    pub foreground: bool,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub program: Vec<OsString>,
}

/// The arguments of the guard.
#[derive(Args, Debug)]
pub struct Guard {
    /// The process group of the program.
    pub group: i32,
}

/// About 31 years. Longer times may overflow the clocks of the system and of Redis.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// Reads a time in seconds, with fractions.
fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a number of seconds: write a number such as 2 or 0.5");
    let number: f64 = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(number) {
        Ok(time) if time <= LONGEST => Ok(time),
        Ok(_) => {
            Err(format!("`{text}` seconds are too long: the longest time is {} seconds", LONGEST.as_secs()))
        }
        Err(_) => Err(wrong()),
    }
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        time if time < Duration::from_millis(1) => Err("the shortest time is 0.001 seconds".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_fractions_and_limits() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["-1", "x", "", "inf", "nan", "1e30"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(positive_seconds("0").is_err());
        assert!(seconds("1e9").is_ok());
        let error = seconds("1e19").unwrap_err();
        assert!(error.contains("the longest time is 1000000000 seconds"), "{error}");
    }
}
