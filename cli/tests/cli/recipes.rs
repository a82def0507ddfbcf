//! The recipes of `docs/command-line.md`, run as they are written.

use crate::support::{PROGRAM, Process, Server, eventually, with_default_signals};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const GUIDE: &str = include_str!("../../../docs/command-line.md");

/// The only line of a recipe with this text.
fn recipe(text: &str) -> &'static str {
    let (_, recipes) = GUIDE.split_once("\n## Recipes\n").unwrap();
    let lines: Vec<_> =
        recipes.lines().filter(|line| line.starts_with("    ") && line.contains(text)).collect();
    let [line] = lines.as_slice() else { panic!("{text:?}: {lines:?}") };
    line.trim()
}

/// A folder with programs that a recipe names.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("redisson-lock-recipe-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn program(&self, name: &str, text: &str) {
        let file = self.0.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A command that finds the programs of this folder, and `redisson-lock`.
    fn command(&self, server: &Server, program: &str) -> Command {
        let own = Path::new(PROGRAM).parent().unwrap().to_str().unwrap();
        let path = format!("{}:{own}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let mut command = with_default_signals(program);
        command.env("PATH", path).env("REDISSON_LOCK_URL", server.url()).current_dir(&self.0);
        command.stdin(Stdio::null());
        command
    }

    fn shell(&self, server: &Server, line: &str) -> Command {
        let mut command = self.command(server, "sh");
        command.args(["-c", line]);
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cron_job_of_several_hosts_runs_once() {
    let (server, folder) = (Server::start(), Folder::new("cron"));
    folder.program("report", "echo ran");
    let line = recipe("nightly-report");
    let hosts: Vec<_> = (0..3).map(|_| Process::start(&mut folder.shell(&server, line))).collect();
    let done: Vec<_> = hosts.into_iter().map(Process::end).collect();
    for host in &done {
        host.assert_code(0);
    }
    assert_eq!(done.iter().filter(|host| host.out == "ran\n").count(), 1, "{done:?}");
    // A host whose clock is behind comes later.
    let late = folder.shell(&server, line).output().unwrap();
    assert!(late.status.success() && late.stdout.is_empty(), "{late:?}");
    folder.program("report", "exit 3");
    let _: u32 = server.raw(&["DEL", "nightly-report"]);
    assert_eq!(folder.shell(&server, line).output().unwrap().status.code(), Some(3));
}

#[test]
fn deployments_follow_each_other() {
    let (server, folder) = (Server::start(), Folder::new("deploy"));
    folder.program("deploy.sh", "echo deploying; read line; echo deployed");
    let line = recipe("./deploy.sh");
    let mut first = Process::start(folder.shell(&server, line).stdin(Stdio::piped()));
    assert_eq!(first.line(), "deploying");
    let mut second = Process::start(&mut folder.shell(&server, line));
    let waiting = second.error_line("waiting for `deploy`");
    assert!(waiting.contains("owner-deploy-"), "{waiting}");
    assert!(server.output(&["inspect", "deploy"]).out.contains("owner-deploy-"));
    first.close_input();
    assert_eq!(first.line(), "deployed");
    assert_eq!(second.line(), "deploying");
    second.end().assert_code(0);
}

#[test]
fn a_job_of_kubernetes_ends_with_its_pod() {
    let (server, folder) = (Server::start(), Folder::new("job"));
    folder.program("migrate", "trap 'exit 3' TERM; echo started; while :; do sleep 0.01; done");
    let list = recipe("command: [").split_once('[').unwrap().1.strip_suffix(']').unwrap();
    let words: Vec<_> = list.split(", ").map(|word| word.trim_matches('"')).collect();
    let mut run = Process::start(folder.command(&server, words[0]).args(&words[1..]));
    assert_eq!(run.line(), "started");
    run.signal(rustix::process::Signal::TERM);
    run.end().assert_code(3);
    assert!(!server.exists("orders-migration"));
}

#[test]
fn a_lock_is_held_and_found_during_maintenance() {
    let (server, folder) = (Server::start(), Folder::new("hold"));
    let mut holder = Process::start(folder.shell(&server, recipe("hold orders:42")).stdin(Stdio::piped()));
    holder.line();
    let seen = folder.shell(&server, recipe("inspect orders:42")).output().unwrap();
    assert!(String::from_utf8(seen.stdout).unwrap().contains("holder   "));
    let list = folder.shell(&server, recipe("list 'orders:*'")).output().unwrap();
    assert!(String::from_utf8(list.stdout).unwrap().contains("orders:42"));
    holder.close_input();
    holder.end().assert_code(0);
    eventually(|| !server.exists("orders:42"));
}
