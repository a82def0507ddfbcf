//! The fault proxy as a process: one proxy a client, and faults by name on stdin.
//!
//! Says the ports on one line. Each line of stdin is `<client or *> <fault> [<number>]`, and is answered with `ok` when it
//! is done.

use crate::Failure;
use crate::proxy::{Link, Proxy, Way, Words};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

pub async fn run(server: u16, count: usize) -> Result<(), Failure> {
    let mut proxies = Vec::new();
    for _ in 0..count {
        proxies.push(Proxy::forgetful(server).await);
    }
    let ports: Vec<String> = proxies.iter().map(|proxy| proxy.port().to_string()).collect();
    println!("{}", ports.join(" "));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        let (who, fault) = (words[0], words.get(1).copied().unwrap_or_default());
        let number = words.get(2).map_or(Ok(0), |word| word.parse())?;
        for (index, proxy) in proxies.iter().enumerate() {
            if who == "*" || who.parse() == Ok(index) {
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
        "cut" => links.iter().for_each(Link::cut),
        "dark" => proxy.darken(),
        // The server does what it reads, and no answer comes back.
        "deaf" => commands().for_each(|link| link.swallow(Way::ToClient)),
        "dark-pubsub" => links.iter().filter(|link| link.subscribes()).for_each(Link::swallow_both),
        // What was swallowed is given up: each side of a dead link learns of it in the end.
        "light" => {
            proxy.lighten();
            links.iter().filter(|link| link.is_swallowing()).for_each(Link::cut);
        }
        "delay" => {
            for way in [Way::ToServer, Way::ToClient] {
                links.iter().for_each(|link| link.delay(way, Duration::from_millis(number)));
            }
        }
        "lose" => commands().for_each(|link| link.cut_at_reply_to(changes_a_record)),
        "hold" => commands().for_each(|link| link.hold(Way::ToServer)),
        "hangup" => commands().filter(|link| link.is_holding()).for_each(Link::cut_client),
        "pass" => links.iter().filter(|link| link.is_holding()).for_each(|link| link.pass(Way::ToServer)),
        "half-request" => commands().for_each(|link| link.halve(Way::ToServer)),
        "half-reply" => commands().for_each(|link| link.halve(Way::ToClient)),
        _ => return Err(format!("no such fault: {fault}").into()),
    }
    Ok(())
}

/// Every command by which the library changes a record: a script, or what it sends instead of one. `EXEC` stands for the
/// commands of its transaction, which take effect with it.
fn changes_a_record(words: &Words) -> bool {
    const WITHOUT_SCRIPT: [&[u8]; 3] = [b"restore", b"set", b"exec"];
    let command = words[0].to_ascii_lowercase();
    command.starts_with(b"eval") || WITHOUT_SCRIPT.contains(&&*command)
}
