//! Writing to standard output and standard error. A pipe without a reader, or a full disk, never makes this process panic.

use crate::failure::Failure;
use crate::table::shown;
use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Writes a message to standard error, as one line that escapes what cannot be printed. If nobody can read it, the exit code alone tells
/// what happened.
pub fn say(message: impl fmt::Display) {
    let line = format!("redisson-lock: {}\n", shown(&message.to_string()));
    // At once, so that the lines of several processes do not mix.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a text to standard output at once.
pub fn write_out(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_ref()).and_then(|()| output.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::system("cannot write to standard output", &error),
    })
}

/// Writes a line of JSON at once. Characters that cannot be printed are escaped, because the line may go to a terminal.
pub fn line(value: &serde_json::Value) -> Result<(), Failure> {
    let mut text = String::new();
    for char in value.to_string().chars() {
        // `escape_debug` also escapes quotes and backslashes, which are JSON's own here.
        if matches!(char, ' '..='~') || char.escape_debug().count() == 1 {
            text.push(char);
        } else {
            let mut units = [0; 2];
            text.extend(char.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text.push('\n');
    write_out(text)
}
