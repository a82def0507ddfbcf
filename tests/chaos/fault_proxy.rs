//! The fault proxy: one proxy for each client, with faults by name on stdin.
//!
//! It prints the ports on one line. Each line of stdin is `<client or *> <fault> [<number>]`; the proxy prints `ok` once the
//! fault is in effect.

use crate::Failure;
use crate::proxy::{Direction, Proxy, ProxyLink, Words};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

pub async fn run(server: u16, count: usize) -> Result<(), Failure> {
    let mut proxies = Vec::new();
    for _ in 0..count {
        proxies.push(Proxy::without_log(server).await);
    }
    let ports: Vec<String> = proxies.iter().map(|proxy| proxy.port().to_string()).collect();
    println!("{}", ports.join(" "));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let (target, fault) = (words[0], words.get(1).copied().unwrap_or_default());
        let number = words.get(2).map_or(Ok(0), |word| word.parse())?;
        for (index, proxy) in proxies.iter().enumerate() {
            if target == "*" || target.parse() == Ok(index) {
                inflict(proxy, fault, number)?;
            }
        }
        println!("ok");
    }
    Ok(())
}

fn inflict(proxy: &Proxy, fault: &str, number: u64) -> Result<(), Failure> {
    let links = proxy.open_links();
    let commands = || links.iter().filter(|link| !link.subscribes());
    match fault {
        "cut" => links.iter().for_each(ProxyLink::cut),
        "dark" => proxy.partition(),
        // The server executes the requests, but no reply comes back.
        "deaf" => commands().for_each(|link| link.swallow(Direction::ToClient)),
        "dark-pubsub" => links.iter().filter(|link| link.subscribes()).for_each(ProxyLink::swallow_both),
        // Closes the links whose data was swallowed, so that both sides notice.
        "light" => {
            proxy.heal();
            links.iter().filter(|link| link.is_swallowing()).for_each(ProxyLink::cut);
        }
        "delay" => {
            for way in [Direction::ToServer, Direction::ToClient] {
                links.iter().for_each(|link| link.delay(way, Duration::from_millis(number)));
            }
        }
        "lose" => commands().for_each(|link| link.cut_at_reply_to(changes_a_record)),
        "hold" => commands().for_each(|link| link.hold(Direction::ToServer)),
        "hangup" => commands().filter(|link| link.is_holding()).for_each(ProxyLink::cut_client),
        "pass" => {
            links.iter().filter(|link| link.is_holding()).for_each(|link| link.pass(Direction::ToServer))
        }
        "half-request" => commands().for_each(|link| link.cut_in_next_frame(Direction::ToServer)),
        "half-reply" => commands().for_each(|link| link.cut_in_next_frame(Direction::ToClient)),
        _ => return Err(format!("unknown fault: {fault}").into()),
    }
    Ok(())
}

/// Whether the command may change a record: a script, or a fast path's command. `EXEC` stands for its whole transaction.
fn changes_a_record(words: &Words) -> bool {
    const WITHOUT_SCRIPT: [&[u8]; 3] = [b"restore", b"set", b"exec"];
    let command = words[0].to_ascii_lowercase();
    command.starts_with(b"eval") || WITHOUT_SCRIPT.contains(&&*command)
}
