//! Puts the trace into a page.

use crate::timeline::trace;
use crate::timeline::tracks::Recording;
use std::io::{self, Write};

/// The page, with a mark where the trace belongs. Its script reads the trace, and makes elements with names as text only.
const PAGE: &str = include_str!("page.html");
const MARK: &str = "@TRACE@";

pub(super) fn write(recording: &Recording, this_process: &str, out: &mut dyn Write) -> io::Result<()> {
    let (before, after) = PAGE.split_once(MARK).unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    trace::write(recording, this_process, out)?;
    out.write_all(after.as_bytes())
}
