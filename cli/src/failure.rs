//! [`Failure`]: why a command failed, and its exit code.

use redisson_lock::Error;
use std::fmt;
use std::io;

/// The exit code for a wrong command line.
pub const USAGE: u8 = 64;
/// The exit code if Redis is unreachable.
pub const UNAVAILABLE: u8 = 69;
/// The exit code for a lost hold.
pub const LOST: u8 = 70;
/// The exit code for an error of the system or a refusal of the server.
pub const SYSTEM: u8 = 71;
/// The exit code for a busy lock.
pub const BUSY: u8 = 75;
/// The exit code for a program that cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The exit code for a program that does not exist.
pub const NOT_FOUND: u8 = 127;

/// The exit codes that `run` can change.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// The lock stayed busy.
    pub busy: u8,
    /// Redis is unreachable.
    pub unavailable: u8,
    /// The hold was lost.
    pub lost: u8,
}

impl Default for Codes {
    fn default() -> Self {
        Self { busy: BUSY, unavailable: UNAVAILABLE, lost: LOST }
    }
}

/// Why a command failed, with a remedy.
#[derive(Debug)]
pub enum Failure {
    /// The command line, the environment or the configuration file is wrong.
    Usage(String),
    /// The lock stayed busy.
    Busy(String),
    /// The hold was lost.
    Lost(String),
    /// The library failed.
    Library(Error),
    /// The operating system failed.
    System(String),
}

impl Failure {
    /// The failure of a call of the system.
    pub fn system(what: &str, error: &dyn fmt::Display) -> Self {
        Self::System(format!("{what}: {error}"))
    }

    /// Returns the exit code.
    pub fn code(&self, codes: &Codes) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::Busy(_) => codes.busy,
            Self::Lost(_) => codes.lost,
            Self::Library(error) if error.is_lost() => codes.lost,
            Self::Library(error) if error.is_unavailable() => codes.unavailable,
            Self::Library(error) if error.is_misuse() => USAGE,
            Self::Library(_) | Self::System(_) => SYSTEM,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::System(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Busy(text) | Self::Lost(text) | Self::System(text) => f.write_str(text),
            Self::Library(error @ (Error::Unavailable { .. } | Error::TimedOut { .. })) => {
                write!(f, "{error}: check --url or REDISSON_LOCK_URL, and that the server runs")
            }
            Self::Library(Error::Refused { code, message, .. }) if code == "WRONGTYPE" => {
                write!(
                    f,
                    "the key has a record of another kind ({code} {message}): name the kind with --kind"
                )
            }
            Self::Library(error) => write!(f, "{error}"),
        }
    }
}
