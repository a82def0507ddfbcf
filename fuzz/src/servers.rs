//! Targets for the replies in which servers describe themselves and each other.

use crate::answers::{Host, is_a_host, is_plain, text, values};
use arbitrary::{Arbitrary, Unstructured};
use redisson_lock::Error;
use redisson_lock::fuzzing::{self, Meant};
use redisson_lock::redis::Value;
use std::collections::{BTreeMap, BTreeSet};

const SLOTS: u16 = 16_384;
const MASTERS: usize = 1000;
/// The maximum length of a shown text, with the ellipsis and the escape of the last character.
const SHOWN: usize = 1020;

/// A reply to `CLUSTER SLOTS`: arbitrary, and made of ranges. An accepted layout is one that a cluster can have.
pub fn cluster_slots(input: &[u8]) {
    for answer in values(input, &["127.0.0.1", "?", "ip", "hostname", "a\u{1b}[31m"]) {
        if let Some(ranges) = fuzzing::cluster_slots(answer) {
            is_a_layout(&ranges);
        }
    }
    let Ok(ranges) = Vec::<Range>::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let decoded = fuzzing::cluster_slots(Value::Array(ranges.iter().map(Range::answer).collect()));
    if let Some(decoded) = &decoded {
        is_a_layout(decoded);
    }
    let expected: Option<Vec<_>> = ranges.iter().map(Range::decoded).collect();
    let slots = |ranges: &[Decoded]| ranges.iter().map(|r| u32::from(r.1 - r.0) + 1).sum::<u32>();
    let fits = |ranges: &[Decoded]| {
        let masters: BTreeSet<_> = ranges.iter().map(|range| (&range.2, range.3)).collect();
        slots(ranges) <= u32::from(SLOTS) && masters.len() <= MASTERS
    };
    assert_eq!(decoded, expected.filter(|ranges| fits(ranges)));
}

type Decoded = (u16, u16, String, u16);

fn is_a_layout(ranges: &[Decoded]) {
    let mut slots = 0;
    for (first, last, host, _) in ranges {
        assert!(first <= last && *last < SLOTS, "{first} to {last} is not a range of slots");
        slots += u32::from(last - first) + 1;
        is_a_host(host);
        assert_ne!(host, "?", "the host is unknown to the server");
    }
    assert!(slots <= u32::from(SLOTS), "{slots} slots");
    let masters: BTreeSet<_> = ranges.iter().map(|(_, _, host, port)| (host, port)).collect();
    assert!(masters.len() <= MASTERS, "{} masters", masters.len());
}

#[derive(Arbitrary, Debug)]
struct Range {
    first: u16,
    /// The number of further slots.
    more: u8,
    host: Host,
    port: u16,
    /// The IP address of a master whose preferred name is unknown.
    ip: Option<Host>,
    replicas: u8,
}

impl Range {
    fn last(&self) -> u16 {
        self.first.saturating_add(self.more.into())
    }

    fn answer(&self) -> Value {
        let metadata: Vec<_> = self.ip.iter().flat_map(|ip| [text("ip"), text(ip.text())]).collect();
        let node = |port: u16| {
            let parts = vec![
                text(self.host.text()),
                Value::Int(port.into()),
                text("id"),
                Value::Array(metadata.clone()),
            ];
            Value::Array(parts)
        };
        let slots = [self.first, self.last()].map(|slot| Value::Int(slot.into()));
        let nodes = (0..=u16::from(self.replicas % 3)).map(|n| node(self.port.wrapping_add(n)));
        Value::Array(slots.into_iter().chain(nodes).collect())
    }

    fn decoded(&self) -> Option<Decoded> {
        let host = match (self.host.text(), &self.ip) {
            ("?", ip) => ip.as_ref().map(Host::text).filter(|ip| *ip != "?")?,
            (host, _) => host,
        };
        let host = fuzzing::host(host)?;
        (self.last() < SLOTS).then(|| (self.first, self.last(), host, self.port))
    }
}

/// A reply to `SENTINEL MASTER`, and a vote. A master has a host, and the winner of a vote has a majority, in any order of the
/// votes.
pub fn sentinels(input: &[u8]) {
    let check = |answer: Value| {
        let master = fuzzing::sentinel_master(answer);
        if let Some((host, _)) = &master {
            assert!(!host.is_empty(), "a master without a host");
            is_a_host(host);
        }
        master
    };
    let words = ["ip", "port", "flags", "master,o_down", "127.0.0.1", "6379", "name", "num-slaves"];
    values(input, &words).for_each(|answer| _ = check(answer));

    #[derive(Arbitrary, Debug)]
    struct Input {
        before: Vec<(String, String)>,
        host: Host,
        port: u16,
        votes: Vec<u8>,
        silent: u8,
    }
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let port = input.port.to_string();
    let known = [("ip", input.host.text()), ("port", &*port), ("flags", "master")];
    let fields = input.before.iter().map(|(name, value)| (&**name, &**value)).chain(known);
    let answer = Value::Array(fields.flat_map(|(name, value)| [text(name), text(value)]).collect());
    let host = fuzzing::host(input.host.text()).filter(|host| !host.is_empty());
    assert_eq!(check(answer), host.map(|host| (host, input.port)));

    let named = |n: u8| (format!("host-{}", n % 3), 6379 + u16::from(n % 2));
    let mut said: Vec<_> = input.votes.iter().map(|n| named(*n)).collect();
    let of = said.len() + usize::from(input.silent);
    let mut votes = BTreeMap::new();
    said.iter().for_each(|master| *votes.entry(master.clone()).or_insert(0) += 1);
    let winner = votes.into_iter().find(|(_, n)| n * 2 > of).map(|(master, _)| master);
    assert_eq!(fuzzing::vote(&said, of), winner);
    said.reverse();
    assert_eq!(fuzzing::vote(&said, of), winner, "the order of the votes must not count");
}

/// A reply to `ROLE`. Only a server with the role `master` counts as one, with the replicas that it lists.
pub fn roles(input: &[u8]) {
    let words = ["master", "slave", "sentinel", "127.0.0.1", "6379", "connected", "3129659"];
    for answer in values(input, &words) {
        let replicas = fuzzing::role(&answer);
        let Value::Array(parts) = &answer else {
            assert_eq!(replicas, None);
            continue;
        };
        assert_eq!(replicas.is_some(), parts.first() == Some(&text("master")), "{answer:?}");
        let listed = match parts.last() {
            Some(Value::Array(listed)) => listed.len(),
            _ => 0,
        };
        assert!(replicas.is_none_or(|replicas| replicas == listed), "{answer:?}");
    }
}

/// A reply to `INFO`. The fields are escaped, and have the values that the server sent.
pub fn info(input: &[u8]) {
    let check = |text: &str| match fuzzing::info(text) {
        Ok(info) => {
            [&info.run_id, &info.master].into_iter().flatten().for_each(|text| is_shown(text, 2 * SHOWN));
            Some(info)
        }
        Err(error @ Error::Refused { .. }) => {
            is_shown(&error.to_string(), 2 * SHOWN);
            None
        }
        Err(other) => panic!("{other:?}"),
    };
    check(&String::from_utf8_lossy(input));

    #[derive(Arbitrary, Debug)]
    struct Input {
        version: (u8, u8),
        uptime: u32,
        run_id: u64,
        replica: bool,
        before: String,
    }
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let Input { version: (major, minor), uptime, run_id, replica, before } = input;
    let role = if replica { "role:slave\r\nmaster_host:h\r\nmaster_port:1" } else { "role:master" };
    // `before` must not contain a field, which would precede the real one.
    let before = before.replace([':', '\n', '\r'], "");
    let said = format!(
        "# {before}\r\nredis_version:{major}.{minor}.1\r\nrun_id:{run_id:x}\r\nuptime_in_seconds:{uptime}\r\n{role}\r\n"
    );
    match check(&said) {
        None => assert!(major < 5, "{major}.{minor} is not too old"),
        Some(info) => {
            assert!(major >= 5, "{major}.{minor} is too old");
            assert_eq!(info.run_id, Some(format!("{run_id:x}")));
            assert_eq!(info.master.as_deref(), replica.then_some("h:1"));
            assert_eq!(
                info.uptime.as_secs(),
                u64::from(uptime.saturating_sub(1)),
                "never longer than the server reported"
            );
            assert_eq!(info.logs_absolute_expiry, major >= 7);
        }
    }
}

/// Errors of a server, including redirects. The shown text is escaped. A redirect has a valid slot and host, and a valid redirect
/// is followed.
pub fn errors(input: &[u8]) {
    let check = |bytes: &[u8]| {
        let (meant, error) = fuzzing::error(bytes)?;
        match &meant {
            Meant::NoScript => {}
            Meant::Elsewhere { slot, host, .. } => {
                assert!(*slot < SLOTS, "slot {slot}");
                is_a_host(host);
            }
            Meant::NotNow { code, message } | Meant::Refused { code, message } => {
                [code, message].into_iter().for_each(|text| is_shown(text, SHOWN));
            }
            Meant::Unknown { reason } => is_shown(reason, SHOWN),
        }
        is_shown(&error.to_string(), 3 * SHOWN);
        Some(meant)
    };
    check(input);
    let line: Vec<_> = input.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    check(&[b"-", &*line, b"\r\n"].concat());

    #[derive(Arbitrary, Debug)]
    enum Input {
        Redirect { ask: bool, slot: u16, host: Host, port: u16 },
        NotNow(u8, String),
        InScript(u8, String),
    }
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let one_line = |text: &str| text.replace(['\r', '\n'], " ");
    match input {
        Input::Redirect { ask, slot, host, port } => {
            let host = host.text();
            let code = if ask { "ASK" } else { "MOVED" };
            let said = check(format!("-{code} {slot} {}:{port}\r\n", one_line(host)).as_bytes());
            let follows = slot < SLOTS && !host.contains(|sign: char| sign.is_ascii_whitespace());
            match fuzzing::host(host).filter(|_| follows) {
                Some(host) => assert_eq!(said, Some(Meant::Elsewhere { slot, host, port, ask })),
                None => assert!(
                    !matches!(said, Some(Meant::Elsewhere { .. })) || host.contains(char::is_whitespace)
                ),
            }
        }
        Input::NotNow(n, detail) => {
            let codes =
                ["LOADING", "READONLY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "BUSY", "NOREPLICAS"];
            let code = codes[usize::from(n) % codes.len()];
            let said = check(format!("-{code} {}\r\n", one_line(&detail)).as_bytes());
            assert!(matches!(&said, Some(Meant::NotNow { code: c, .. }) if c == code), "{said:?}");
        }
        Input::InScript(n, detail) => {
            let codes = ["WRONGTYPE", "OOM", "NOPERM", "MISCONF"];
            let code = codes[usize::from(n) % codes.len()];
            let line =
                format!("-ERR Error running script: @user_script:1: {code} x{}\r\n", one_line(&detail));
            let said = check(line.as_bytes());
            // Further codes in the message do not count.
            assert!(matches!(&said, Some(Meant::Refused { code: c, .. }) if c == code), "{said:?}");
        }
    }
}

/// A server's text. The shown text is escaped and limited in length, repeats no argument, and does not change when it is escaped
/// again.
pub fn server_texts(input: &[u8]) {
    let text = &*String::from_utf8_lossy(input);
    let shown = fuzzing::shown(text);
    is_shown(&shown, SHOWN);
    if shown.len() < 1000 {
        assert_eq!(fuzzing::shown(&shown), shown);
    }
    // Escaping cannot produce this word.
    let secret = "c\u{e4}nary";
    let repeating = format!("{text}, with args beginning with: '{secret}' {text}");
    assert!(!fuzzing::shown(&repeating).contains(secret) || text.contains(secret), "an argument is repeated");
    assert!(fuzzing::shown(&repeating).starts_with(&shown) || shown.len() >= 1000);
    if let Some(host) = fuzzing::host(text) {
        assert_eq!(host, text);
        is_a_host(&host);
    }
}

fn is_shown(text: &str, most: usize) {
    is_plain(text);
    assert!(text.len() <= most, "{} bytes are shown", text.len());
}
