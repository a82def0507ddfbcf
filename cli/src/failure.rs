//! [`Failure`]: why a command failed, and its exit code.

use crate::codes::Codes;
use crate::signals;
use redisson_lock::Error;
use std::fmt;
use std::io;

/// The signal that ends other programs whose output nobody reads. Rust programs ignore it.
const SIGPIPE: i32 = nix::sys::signal::SIGPIPE as i32;

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
    /// This signal ended the command, or the program of `run`.
    Signalled(i32),
    /// Nobody reads standard output any longer, as in front of `head`.
    Unread,
}

impl Failure {
    /// The failure of a call of the system.
    pub fn system(what: &str, error: &dyn fmt::Display) -> Self {
        Self::System(format!("{what}: {error}"))
    }

    /// Returns the exit code.
    pub fn code(&self, codes: &Codes) -> u8 {
        match self {
            Self::Usage(_) => codes.usage,
            Self::Busy(_) => codes.busy,
            Self::Lost(_) => codes.lost,
            Self::Library(error) if error.is_lost() => codes.lost,
            Self::Library(error) if error.is_unavailable() => codes.unavailable,
            Self::Library(error) if error.is_misuse() => codes.usage,
            Self::Library(_) | Self::System(_) => codes.system,
            Self::Signalled(signal) => signals::exit_code(*signal),
            Self::Unread => signals::exit_code(SIGPIPE),
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
            Self::Library(Error::Refused { code, .. }) if code == "WRONGTYPE" => {
                write!(
                    f,
                    "the name is in use for another kind of value ({code}): use another name, or the right command or --kind"
                )
            }
            Self::Library(Error::Refused { node, code, .. }) if code == "WRONGPASS" || code == "NOAUTH" => {
                write!(
                    f,
                    "{node} refuses the user or the password ({code}): check REDISSON_LOCK_URL, or --user and \
                     REDISSON_LOCK_PASSWORD or --password-file, or the file of --config"
                )
            }
            Self::Library(error @ Error::Untrusted { .. }) => {
                write!(f, "{error}: the options are --cacert, --cert with --key, and --sni")
            }
            Self::Library(error) => write!(f, "{error}"),
            Self::Signalled(signal) => write!(f, "signal {signal} ended the command"),
            Self::Unread => f.write_str("nobody reads standard output"),
        }
    }
}
