//! Server addresses as Redisson reads them, converted to the form of this crate's URLs.

use super::file::Section;
use crate::error::{Error, Result};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The characters that would end the path of a URL or have another meaning in it.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// The addresses of the servers, and the client's credentials for them.
#[cfg_attr(test, derive(Debug))]
#[derive(Default)]
pub(super) struct Servers {
    pub transport: Transport,
    /// `host:port,host:port`, or the path of a socket as URLs encode it.
    pub location: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Whether anything follows the port of an address.
    pub has_suffix: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Transport {
    #[default]
    Plain,
    Tls,
    Unix,
}

impl Servers {
    /// Reads all of `addresses`, the value of `key` in `section`.
    pub(super) fn read(section: &Section<'_>, key: &str, addresses: &[String]) -> Result<Self> {
        let bad = |why: &str| section.bad(key, why);
        let mut servers: Option<Self> = None;
        for address in addresses {
            let one = Self::one(address, &bad)?;
            let Some(all) = &mut servers else {
                servers = Some(one);
                continue;
            };
            if all.transport != one.transport {
                return Err(bad("use TLS for all addresses or for none"));
            }
            if one.transport == Transport::Unix {
                return Err(bad("a unix socket takes a single address"));
            }
            all.location.push(',');
            all.location.push_str(&one.location);
            all.has_suffix |= one.has_suffix;
            if one.password.is_some() && all.password.is_some() {
                if (&one.user, &one.password) != (&all.user, &all.password) {
                    return Err(bad("all addresses must have the same user and password"));
                }
            } else if one.password.is_some() {
                (all.user, all.password) = (one.user, one.password);
            }
        }
        servers.ok_or_else(|| bad("is missing"))
    }

    fn one(address: &str, bad: &impl Fn(&str) -> Error) -> Result<Self> {
        let (scheme, rest) = address.split_once("://").unwrap_or(("redis", address));
        let transport = match scheme {
            "redis" | "valkey" => Transport::Plain,
            "rediss" | "valkeys" => Transport::Tls,
            "redis+uds" | "valkey+uds" => Transport::Unix,
            _ => return Err(bad("an address must begin with redis://, rediss:// or redis+uds://")),
        };
        if transport == Transport::Unix {
            // Redisson takes all of it as the path. It would look for a file whose name contains the password.
            if !rest.starts_with('/') {
                return Err(bad(
                    "the path of a unix socket must begin with `/`; set user and password with `username` and `password`",
                ));
            }
            let location = utf8_percent_encode(rest, IN_PATH).to_string();
            return Ok(Self { transport, location, ..Self::default() });
        }
        let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if behind.contains('@') {
            return Err(bad("write / ? # and @ in a user or password as %2F %3F %23 and %40"));
        }
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority),
        };
        let (user, password) = match credentials.map(|both| both.split_once(':').unwrap_or(("", both))) {
            Some((user, password)) => (Some(decoded(user, bad)?), Some(decoded(password, bad)?)),
            None => (None, None),
        };
        // The port follows the last colon, as in Redisson.
        let location = match host.rsplit_once(':') {
            Some((ip, port)) if ip.contains(':') && !ip.starts_with('[') => format!("[{ip}]:{port}"),
            _ => host.to_owned(),
        };
        if location.is_empty() || location.contains(',') {
            return Err(bad("must be one host and its port"));
        }
        let has_suffix = !behind.trim_end_matches('/').is_empty();
        Ok(Self { transport, location, user: user.filter(|user| !user.is_empty()), password, has_suffix })
    }
}

/// Decodes like `java.net.URLDecoder`.
fn decoded(text: &str, bad: &impl Fn(&str) -> Error) -> Result<String> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|sign| sign.is_ascii_hexdigit());
    let text = text.replace('+', " ");
    match percent_decode_str(&text).decode_utf8() {
        Ok(decoded) if text.split('%').skip(1).all(is_escape) => Ok(decoded.into_owned()),
        _ => Err(bad("write % in a user or password as %25; + means a space")),
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
        for (address, location, user, password, has_suffix) in [
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
            assert_eq!(
                (servers.location.as_str(), known, servers.has_suffix),
                (location, (user, password), has_suffix)
            );
            assert_eq!(servers.transport, Transport::Plain);
        }
        assert_eq!(read(&["rediss://h:1"]).unwrap().transport, Transport::Tls);
        for scheme in ["redis+uds", "valkey+uds"] {
            let socket = read(&[&format!("{scheme}:///tmp/a b?%#.sock")]).unwrap();
            assert_eq!(
                (socket.transport, socket.location.as_str()),
                (Transport::Unix, "/tmp/a%20b%3F%25%23.sock")
            );
        }
        let several = read(&["redis://a:1", "redis://pw@b:2", "redis://pw@c:3"]).unwrap();
        assert_eq!((several.location.as_str(), several.password.as_deref()), ("a:1,b:2,c:3", Some("pw")));
    }

    #[test]
    fn an_ambiguous_address_is_misuse() {
        for (addresses, what) in [
            (&["http://h:1"][..], "must begin with"),
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
