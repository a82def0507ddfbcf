//! Folders that are filled once, and the programs that fill them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::paths::{at, remove, target};

/// Records what the folder was made from. Written last, so that an interrupted fetch does not count.
const COMPLETE: &str = ".complete";

/// Returns a folder that `fill` creates once for each value of `what`.
pub fn cached_folder(
    name: &str,
    what: &str,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let folder = target().join("others").join(name);
    let complete = folder.join(COMPLETE);
    if fs::read_to_string(&complete).is_ok_and(|made_of| made_of == what) {
        return Ok(folder);
    }
    println!("setup: fetching {name}");
    remove(fs::remove_dir_all(&folder)).map_err(at(&folder))?;
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    fill(&folder)?;
    fs::write(&complete, what).map_err(at(&complete))?;
    Ok(folder)
}

pub fn pip(verb: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", verb]);
    pip
}

pub fn run_checked(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("setup: {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Err(format!("{text}setup: {command:?} failed"))
}
