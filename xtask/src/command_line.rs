//! `cargo xtask check-command-line`: `redisson-lock` installs from a clean checkout, and starts quickly. With `--static`, it also builds
//! without a dynamic C library.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cargo::cargo;
use crate::paths::{at, remove, root, target};
use crate::server::Server;
use crate::setup::{self, Clock};

const STATIC: &str = "x86_64-unknown-linux-musl";
/// The time from the start of the program to its first request.
const LIMIT: Duration = Duration::from_millis(10);
const RUNS: usize = 31;

pub fn check(is_static: bool) -> Result<(), String> {
    let folder = target().join("command-line");
    remove(fs::remove_dir_all(&folder)).map_err(at(&folder))?;
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    let mut programs = vec![("cargo install", install(&folder)?)];
    if is_static {
        programs.push(("static", build_static(&folder)?));
    }
    let server = Server::start(&setup::run(&[], Clock::Real)?.server, &[])?;
    let mut slow = Vec::new();
    for (name, program) in &programs {
        let size = fs::metadata(program).map_err(at(program))?.len() as f64 / 1e6;
        let first = median(|| first_request(program, &folder.join("socket")))?;
        let whole = median(|| inspect(program, server.port))?;
        println!(
            "command line: {name}: {size:.1} MB; first request after {}, `inspect` takes {}",
            milliseconds(first),
            milliseconds(whole)
        );
        if first > LIMIT {
            slow.push(format!("{name} sends its first request after {}", milliseconds(first)));
        }
    }
    if slow.is_empty() {
        Ok(())
    } else {
        Err(format!("command line: {}: at most {LIMIT:?}", slow.join("; ")))
    }
}

/// Installs from the files of the last commit, and returns the program.
fn install(folder: &Path) -> Result<PathBuf, String> {
    let (checkout, archive, installed) =
        (folder.join("checkout"), folder.join("checkout.tar"), folder.join("root"));
    fs::create_dir_all(&checkout).map_err(at(&checkout))?;
    run(Command::new("git").args(["archive", "HEAD", "--output"]).arg(&archive).current_dir(root()))?;
    run(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&checkout))?;
    let began = Instant::now();
    let mut cargo = cargo();
    cargo.args(["install", "--locked", "--quiet", "--path"]).arg(checkout.join("cli"));
    run(cargo.arg("--root").arg(&installed).arg("--target-dir").arg(target()))?;
    println!("command line: cargo install took {} s", began.elapsed().as_secs());
    Ok(installed.join("bin/redisson-lock"))
}

/// Builds the program that needs no library of the system.
fn build_static(folder: &Path) -> Result<PathBuf, String> {
    let mut cargo = cargo();
    cargo.args(["build", "--release", "--locked", "--quiet", "--target", STATIC]).arg("--manifest-path");
    cargo.arg(folder.join("checkout/cli/Cargo.toml")).arg("--target-dir").arg(target());
    run(&mut cargo).map_err(|problem| {
        format!(
            "{problem}: run `rustup target add {STATIC}`, and install Debian's package `musl-tools` for its C compiler"
        )
    })?;
    let program = target().join(STATIC).join("release/redisson-lock");
    let bytes = fs::read(&program).map_err(at(&program))?;
    // The path of a dynamic linker.
    let linkers: [&[u8]; 2] = [b"/lib64/ld-linux", b"/lib/ld-musl"];
    match linkers.iter().any(|linker| bytes.windows(linker.len()).any(|part| part == *linker)) {
        true => Err(format!("command line: {} needs a dynamic linker", program.display())),
        false => Ok(program),
    }
}

/// The time from the start of the program until a server gets the first byte of its first request.
fn first_request(program: &Path, socket: &Path) -> Result<Duration, String> {
    remove(fs::remove_file(socket)).map_err(at(socket))?;
    let listener = UnixListener::bind(socket).map_err(at(socket))?;
    let mut command = Command::new(program);
    command.args(["inspect", "n"]).env("REDISSON_LOCK_URL", format!("redis+unix://{}", socket.display()));
    let began = Instant::now();
    let mut running = command.stderr(Stdio::null()).spawn().map_err(at(program))?;
    let (mut connection, _) = listener.accept().map_err(at(socket))?;
    connection.read_exact(&mut [0]).map_err(at(socket))?;
    let took = began.elapsed();
    let _ = running.kill();
    running.wait().map_err(at(program))?;
    Ok(took)
}

/// The time of a whole command beside a server.
fn inspect(program: &Path, port: u16) -> Result<Duration, String> {
    let mut command = Command::new(program);
    command.args(["inspect", "n", "--json"]).stdout(Stdio::null());
    command.env("REDISSON_LOCK_URL", format!("redis://127.0.0.1:{port}"));
    let began = Instant::now();
    run(&mut command)?;
    Ok(began.elapsed())
}

fn median(mut measure: impl FnMut() -> Result<Duration, String>) -> Result<Duration, String> {
    let mut times = (0..RUNS).map(|_| measure()).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    Ok(times[RUNS / 2])
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("command line: {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("command line: {command:?}: {status}")) }
}
