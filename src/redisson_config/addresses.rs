//! The addresses of servers as Redisson reads them, and what this crate's URLs make of them.

use super::file::Section;
use crate::error::{Error, Result};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// What would end the path of a URL, or mean something else there.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// Where servers are, and who the client is to them.
#[cfg_attr(test, derive(Debug))]
#[derive(Default)]
pub(super) struct Servers {
    pub way: Way,
    /// `host:port,host:port`, or the path of a socket as URLs have it.
    pub place: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Something stands behind the port of one.
    pub more: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    #[default]
    Plain,
    Tls,
    Unix,
}

impl Servers {
    /// All of `addresses`, which stand in `section` under `key`.
    pub(super) fn read(section: &Section<'_>, key: &str, addresses: &[String]) -> Result<Self> {
        let bad = |why: &str| section.bad(key, why);
        let mut servers: Option<Self> = None;
        for address in addresses {
            let one = Self::one(address, &bad)?;
            let Some(all) = &mut servers else {
                servers = Some(one);
                continue;
            };
            if all.way != one.way {
                return Err(bad("some addresses are by TLS, and some are not"));
            }
            if one.way == Way::Unix {
                return Err(bad("there is one server at a unix socket"));
            }
            all.place.push(',');
            all.place.push_str(&one.place);
            all.more |= one.more;
            if one.password.is_some() && all.password.is_some() {
                if (&one.user, &one.password) != (&all.user, &all.password) {
                    return Err(bad("all servers have the same user and password here"));
                }
            } else if one.password.is_some() {
                (all.user, all.password) = (one.user, one.password);
            }
        }
        servers.ok_or_else(|| bad("is missing"))
    }

    fn one(address: &str, bad: &impl Fn(&str) -> Error) -> Result<Self> {
        let (scheme, rest) = address.split_once("://").unwrap_or(("redis", address));
        let way = match scheme {
            "redis" | "valkey" => Way::Plain,
            "rediss" | "valkeys" => Way::Tls,
            "redis+uds" | "valkey+uds" => Way::Unix,
            _ => return Err(bad("an address begins with redis:// or rediss://, or with redis+uds://")),
        };
        if way == Way::Unix {
            // For Redisson all of it is the path, so that it would look for a file with a password for its name.
            if !rest.starts_with('/') {
                return Err(bad(
                    "the path of a unix socket begins with /; user and password are `username` and `password`",
                ));
            }
            let place = utf8_percent_encode(rest, IN_PATH).to_string();
            return Ok(Self { way, place, ..Self::default() });
        }
        let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if behind.contains('@') {
            return Err(bad("in a user or password / ? # and @ are written %2F %3F %23 and %40"));
        }
        let (known, host) = match authority.rsplit_once('@') {
            Some((known, host)) => (Some(known), host),
            None => (None, authority),
        };
        let (user, password) = match known.map(|known| known.split_once(':').unwrap_or(("", known))) {
            Some((user, password)) => (Some(decoded(user, bad)?), Some(decoded(password, bad)?)),
            None => (None, None),
        };
        // The last colon begins the port, whatever stands before it.
        let place = match host.rsplit_once(':') {
            Some((ip, port)) if ip.contains(':') && !ip.starts_with('[') => format!("[{ip}]:{port}"),
            _ => host.to_owned(),
        };
        if place.is_empty() || place.contains(',') {
            return Err(bad("has to be one host and its port"));
        }
        let more = !behind.trim_end_matches('/').is_empty();
        Ok(Self { way, place, user: user.filter(|user| !user.is_empty()), password, more })
    }
}

/// As `java.net.URLDecoder` does it.
fn decoded(text: &str, bad: &impl Fn(&str) -> Error) -> Result<String> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|sign| sign.is_ascii_hexdigit());
    let text = text.replace('+', " ");
    match percent_decode_str(&text).decode_utf8() {
        Ok(decoded) if text.split('%').skip(1).all(is_escape) => Ok(decoded.into_owned()),
        _ => Err(bad("in a user or password % is written %25, and + is a space")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redisson_config::value::{Content, Value};

    fn read(addresses: &[&str]) -> Result<Servers> {
        let value = Value { class: None, content: Content::Map(Vec::new()) };
        let addresses: Vec<_> = addresses.iter().map(|&address| address.to_owned()).collect();
        Servers::read(&Section::new("s", &value).unwrap(), "address", &addresses)
    }

    #[test]
    fn an_address_is_read_as_redisson_does() {
        for (address, place, user, password, more) in [
            ("redis://h:6379", "h:6379", None, None, false),
            ("valkey://h:6379/", "h:6379", None, None, false),
            ("h:6379", "h:6379", None, None, false),
            ("redis://user:pw@h:6379", "h:6379", Some("user"), Some("pw"), false),
            ("redis://pw@h:6379", "h:6379", None, Some("pw"), false),
            ("redis://:p:w@h:6379", "h:6379", None, Some("p:w"), false),
            ("redis://us%40er:p+w%2B%C3%A9@h:1", "h:1", Some("us@er"), Some("p w+é"), false),
            ("redis://h:6379/3", "h:6379", None, None, true),
            ("redis://pw@h:6379?db=3", "h:6379", None, Some("pw"), true),
            ("redis://2001:db8::1:6379", "[2001:db8::1]:6379", None, None, false),
            ("redis://pw@[2001:db8::1]:6379", "[2001:db8::1]:6379", None, Some("pw"), false),
        ] {
            let servers = read(&[address]).unwrap();
            let known = (servers.user.as_deref(), servers.password.as_deref());
            assert_eq!((servers.place.as_str(), known, servers.more), (place, (user, password), more));
            assert_eq!(servers.way, Way::Plain);
        }
        assert_eq!(read(&["rediss://h:1"]).unwrap().way, Way::Tls);
        for scheme in ["redis+uds", "valkey+uds"] {
            let socket = read(&[&format!("{scheme}:///tmp/a b?%#.sock")]).unwrap();
            assert_eq!((socket.way, socket.place.as_str()), (Way::Unix, "/tmp/a%20b%3F%25%23.sock"));
        }
        let several = read(&["redis://a:1", "redis://pw@b:2", "redis://pw@c:3"]).unwrap();
        assert_eq!((several.place.as_str(), several.password.as_deref()), ("a:1,b:2,c:3", Some("pw")));
    }

    #[test]
    fn what_could_lead_elsewhere_is_misuse() {
        for (addresses, what) in [
            (&["http://h:1"][..], "begins with"),
            (&[], "missing"),
            (&["redis://"], "one host"),
            (&["redis://a:1,b:2"], "one host"),
            (&["redis://user:can/ary@h:1"], "%2F"),
            (&["redis://user:canary%@h:1"], "%25"),
            (&["redis://user:canary%ff@h:1"], "%25"),
            (&["redis://canary@h:1", "redis://canary2@h:2"], "same"),
            (&["redis://one:canary@h:1", "redis://two:canary@h:2"], "same"),
            (&["redis://h:1", "rediss://h:2"], "TLS"),
            (&["redis+uds:///a", "redis+uds:///b"], "socket"),
        ] {
            let error = read(addresses).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("can"), "{addresses:?}: {error}");
        }
    }
}
