//! The processes of `cargo xtask torture` that need this library or a runtime: Rust clients, and the fault proxy. They
//! do what their arguments say, are told more on stdin, and end when it does.

mod client;
mod hand;
#[allow(dead_code)]
mod keys;
mod ledger;
mod path;
#[allow(dead_code)]
#[path = "../it/support/proxy.rs"]
mod proxy;
mod random;
mod switchboard;
mod work;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["client", rest @ ..] => client::run(rest).await,
        ["proxy", server, count] => switchboard::run(server.parse()?, count.parse()?).await,
        _ => Err(format!("unknown arguments: {arguments:?}").into()),
    }
}
