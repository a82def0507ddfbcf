//! The exit codes, their variables, and the options of `run` that override the variables.

use crate::failure::Failure;
use clap::Args;
use std::env::{self, VarError};

/// The exit codes of this program.
///
/// A program's own code is none of these, nor is 128 + n for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    /// The command line, the environment or the configuration file is wrong.
    pub usage: u8,
    /// Redis is unreachable.
    pub unavailable: u8,
    /// The hold was lost.
    pub lost: u8,
    /// The system failed, or the server refused something.
    pub system: u8,
    /// The lock stayed busy.
    pub busy: u8,
    /// The program cannot be executed.
    pub not_executable: u8,
    /// The program does not exist.
    pub not_found: u8,
}

impl Default for Codes {
    /// Those of `sysexits.h` and of shells.
    fn default() -> Self {
        Self {
            usage: 64,
            unavailable: 69,
            lost: 70,
            system: 71,
            busy: 75,
            not_executable: 126,
            not_found: 127,
        }
    }
}

impl Codes {
    /// Returns the codes of the variables. They apply even to a command line that cannot be read.
    pub fn from_environment() -> Result<Self, Failure> {
        let mut codes = Self::default();
        for (name, code) in [
            ("USAGE", &mut codes.usage),
            ("UNAVAILABLE", &mut codes.unavailable),
            ("LOST", &mut codes.lost),
            ("SYSTEM", &mut codes.system),
            ("BUSY", &mut codes.busy),
            ("NOT_EXECUTABLE", &mut codes.not_executable),
            ("NOT_FOUND", &mut codes.not_found),
        ] {
            let variable = format!("REDISSON_LOCK_{name}_CODE");
            let text = match env::var(&variable) {
                Ok(text) => text,
                Err(VarError::NotPresent) => continue,
                Err(VarError::NotUnicode(_)) => "?".to_owned(),
            };
            *code = text.parse().map_err(|_| {
                Failure::Usage(format!(
                    "the variable {variable} is `{}`: set it to a number from 0 to 255",
                    text.escape_debug()
                ))
            })?;
        }
        Ok(codes)
    }

    /// Returns these codes, changed by the options.
    pub fn with(self, options: &CodeOptions) -> Self {
        Self {
            usage: self.usage,
            unavailable: options.unavailable.unwrap_or(self.unavailable),
            lost: options.lost.unwrap_or(self.lost),
            system: options.system.unwrap_or(self.system),
            busy: options.busy.unwrap_or(self.busy),
            not_executable: options.not_executable.unwrap_or(self.not_executable),
            not_found: options.not_found.unwrap_or(self.not_found),
        }
    }
}

/// The exit codes of `run`.
///
/// There is no option for a wrong command line, because it may end the program before its options are known.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Exit codes")]
pub struct CodeOptions {
    /// The code if the lock stays busy. Default: REDISSON_LOCK_BUSY_CODE, then 75.
    #[arg(short = 'E', long = "conflict-exit-code", visible_alias = "busy-code", value_name = "CODE")]
    pub busy: Option<u8>,
    /// The code if Redis is unreachable. Default: REDISSON_LOCK_UNAVAILABLE_CODE, then 69.
    #[arg(long = "unavailable-code", value_name = "CODE")]
    pub unavailable: Option<u8>,
    /// The code if the lock is lost. Default: REDISSON_LOCK_LOST_CODE, then 70.
    #[arg(long = "lost-code", value_name = "CODE")]
    pub lost: Option<u8>,
    /// The code if the system or the server refuses something. Default: REDISSON_LOCK_SYSTEM_CODE, then 71.
    #[arg(long = "system-code", value_name = "CODE")]
    pub system: Option<u8>,
    /// The code if the program cannot be executed. Default: REDISSON_LOCK_NOT_EXECUTABLE_CODE, then 126.
    #[arg(long = "not-executable-code", value_name = "CODE")]
    pub not_executable: Option<u8>,
    /// The code if the program does not exist. Default: REDISSON_LOCK_NOT_FOUND_CODE, then 127.
    #[arg(long = "not-found-code", value_name = "CODE")]
    pub not_found: Option<u8>,
}
