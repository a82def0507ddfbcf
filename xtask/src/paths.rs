//! Folders of the workspace, and errors that name a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The workspace's own `target`, even when cargo builds elsewhere.
pub fn target() -> PathBuf {
    root().join("target")
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of the workspace").to_owned()
}

pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(at(path))
}

/// Ignores that the file does not exist.
pub fn remove(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub fn at(path: &Path) -> impl Fn(io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("setup: {path}: {error}")
}
