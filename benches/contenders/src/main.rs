//! One library at one server, at the command of `cargo xtask bench`.
//!
//! `contenders <library> <url>`, then one command a line on stdin, each answered by lines that end with `done`:
//! `uncontended <workers> <seconds>`, `contended <workers> <seconds>`, `turns <seconds> <file>`, `hold <count>`,
//! `idle <seconds>`, `wait <count>`, `drop`. Between `begin` and `end` is what is measured; the figures are on the line
//! of `end`, as `name=value`.

mod allocator;
mod library;
mod measure;
mod scenarios;

use library::Library;
use scenarios::Kept;
use std::io::{self, BufRead};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [library, url] = arguments.as_slice() else { panic!("usage: contenders <library> <url>") };
    let library = Library::connect(library, url).await;
    let mut kept = Kept::default();
    println!("ready");
    loop {
        let line = tokio::task::spawn_blocking(|| io::stdin().lock().lines().next()).await.expect("no panic");
        let Some(Ok(line)) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<f64>().expect("a number");
        match words[0] {
            "uncontended" => scenarios::rounds(&library, number(1) as usize, number(2), false).await,
            "contended" => scenarios::rounds(&library, number(1) as usize, number(2), true).await,
            "turns" => scenarios::turns(&library, number(1), words[2]).await,
            "hold" => kept.hold(&library, number(1) as usize).await,
            "wait" => kept.wait(&library, number(1) as usize).await,
            "idle" => scenarios::idle(number(1)).await,
            "drop" => kept.drop().await,
            other => panic!("no such command: {other}"),
        }
        println!("done");
    }
}
