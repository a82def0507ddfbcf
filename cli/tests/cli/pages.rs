//! The completions and man pages in the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::PROGRAM;

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())
        })
        .collect()
}

#[test]
fn the_man_pages_and_completions_are_current() {
    let remedy = "run `cli/pages` to write them again";
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("man-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    assert!(Command::new(PROGRAM).arg("__man-pages").arg(&folder).status().unwrap().success());
    let written = files(&folder);
    fs::remove_dir_all(&folder).unwrap();
    assert!(files(&own.join("man")) == written, "the man pages are stale: {remedy}");
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(PROGRAM).args(["completions", shell]).output().unwrap();
        let stored = fs::read(own.join("completions").join(format!("redisson-lock.{shell}"))).unwrap();
        assert!(output.stdout == stored, "the completions of {shell} are stale: {remedy}");
    }
}
