//! Runs one library against one server, on commands from `cargo xtask bench`.
//!
//! `contenders <library> <url>`, then one command per line on stdin: `uncontended <workers> <seconds>`, `contended <workers>
//! <seconds>`, `threads <workers> <seconds>`, `kind <kind> own|one <workers> <seconds>`, `crowd
//! <clients> <seconds>`, `turns <seconds> <file>`, `hold <count> <workers>`, `drop-at-once`, `idle <seconds>`, `wait <count>`, `drop`.
//! The program ends each reply with `done`. The measurement is between the lines `begin` and `end`. The line `end` has the
//! figures as `name=value`.

mod allocator;
mod least;
mod library;
mod measure;
mod scenarios;

use library::Library;
use scenarios::Held;
use std::io::{self, BufRead};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, url] = arguments.as_slice() else { panic!("usage: contenders <library> <url>") };
    let library = Library::connect(name, url).await;
    let mut held = Held::default();
    println!("ready");
    loop {
        let line = tokio::task::spawn_blocking(|| io::stdin().lock().lines().next()).await.expect("no panic");
        let Some(Ok(line)) = line else { return };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<f64>().expect("a number");
        match words[0] {
            "uncontended" => scenarios::uncontended(&library, number(1) as usize, number(2)).await,
            "contended" => scenarios::contended(&library, number(1) as usize, number(2)).await,
            "kind" => {
                scenarios::kind(&library, words[1], words[2] == "own", number(3) as usize, number(4)).await;
            }
            "threads" => scenarios::threads(&library, url, number(1) as usize, number(2)).await,
            "crowd" => scenarios::crowd(name, url, number(1) as usize, number(2)).await,
            "turns" => scenarios::turns(&library, number(1), words[2]).await,
            "hold" => held.hold(&library, number(1) as usize, number(2) as usize).await,
            "wait" => held.wait(&library, number(1) as usize).await,
            "idle" => scenarios::idle(number(1)).await,
            "drop-at-once" => held.drop_at_once(url).await,
            "drop" => held.drop().await,
            other => panic!("unknown command: {other}"),
        }
        println!("done");
    }
}
