//! The processes of `cargo xtask chaos` that need this library or a runtime: the Rust clients and the fault proxy. They take
//! commands on stdin, and exit when it closes.

// A program exports nothing: `pub` means that other modules use the item.
#![allow(unreachable_pub)]

mod call_delay;
mod client;
mod fault_proxy;
mod grant;
#[allow(dead_code)]
mod keys;
mod ledger;
#[allow(dead_code)]
#[path = "../it/support/proxy.rs"]
mod proxy;
mod random;
mod workload;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["client", rest @ ..] => client::run(rest).await,
        ["proxy", server, count] => fault_proxy::run(server.parse()?, count.parse()?).await,
        _ => Err(format!("unknown arguments: {arguments:?}").into()),
    }
}
