//! The holder of a lock, and the client that it belongs to.
//!
//! A client may register itself: a key of its own describes it, see `lease/registration.rs`. The value has a line for each part, such as
//! `application=orders-service`. It may come from anybody, so nothing of it is trusted: only a value of this form is shown, and only
//! escaped.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest application or host, in bytes.
const LONGEST: usize = 256;
/// The longest value of a client's key. A longer one describes no client.
pub(crate) const LONGEST_VALUE: usize = 1024;

/// The holder of a lock, according to the record.
///
/// Two holders are equal if their owner and count are. The [client](Self::client) does not count, because it is not in the record.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// if let Some(holder) = client.lock("orders:42").holder().await? {
///     println!("{} holds it {} times", holder.client_id(), holder.count());
///     if let Some(client) = holder.client() {
///         println!("that is {} on {}, pid {}", client.application, client.host, client.pid);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Holder {
    owner: String,
    count: u64,
    client: Option<Arc<ClientInfo>>,
}

impl Holder {
    pub(crate) fn new(owner: String, count: u64) -> Self {
        Self { owner, count, client: None }
    }

    /// Returns the owner id in the record: `<client uuid>:<id>`.
    ///
    /// The id is that of a task, a thread, an explicit owner, or the guard of a mutex. For a Java holder it is the id of the Java
    /// thread.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the UUID of the holder's client: the part of the owner id before the first colon, or the whole text if it has no colon.
    pub fn client_id(&self) -> &str {
        self.owner.split(':').next().unwrap_or(&self.owner)
    }

    /// Returns how many times the owner holds the lock.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the description of the holder's client, if that client registered itself:
    /// see [`ClientBuilder::register_as`](crate::ClientBuilder::register_as).
    ///
    /// A Java client has none. It is read right after the record. `None` if the server does not answer that question in time, or does not
    /// permit it.
    pub fn client(&self) -> Option<&ClientInfo> {
        self.client.as_deref()
    }

    pub(crate) fn set_client(&mut self, client: Option<Arc<ClientInfo>>) {
        self.client = client;
    }
}

impl PartialEq for Holder {
    fn eq(&self, other: &Self) -> bool {
        (&self.owner, self.count) == (&other.owner, other.count)
    }
}

impl Eq for Holder {}

impl Hash for Holder {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.owner, self.count).hash(state);
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, count) = (self.owner.escape_debug(), self.count);
        match &self.client {
            Some(client) => write!(f, "{client} ({owner}, count {count})"),
            None => write!(f, "{owner} (count {count})"),
        }
    }
}

/// A client, as it described itself: see [`ClientBuilder::register_as`](crate::ClientBuilder::register_as).
///
/// `Display` writes `orders-service on host-3, pid 4711`, and escapes characters that could confuse a terminal.
///
/// ```
/// # fn f(client: redisson_lock::ClientInfo) {
/// println!("{client}, since {:?}", client.since);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The name of the application.
    pub application: String,
    /// The name of its host.
    pub host: String,
    /// The id of its process, on that host or in its container.
    pub pid: u32,
    /// When the client was made, by the clock of its host.
    pub since: SystemTime,
}

impl ClientInfo {
    /// Describes a client of this process that is made now. `host` is cut if it is too long.
    pub(crate) fn of_process(application: &str, host: &str) -> Self {
        let mut name = String::new();
        for sign in host.chars().filter(|sign| !sign.is_control()) {
            if name.len() + sign.len_utf8() <= LONGEST {
                name.push(sign);
            }
        }
        let host = if name.is_empty() { "unknown".to_owned() } else { name };
        Self { application: application.to_owned(), host, pid: std::process::id(), since: SystemTime::now() }
    }

    /// The value of the client's key.
    pub(crate) fn value(&self) -> String {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let Self { application, host, pid, .. } = self;
        format!("application={application}\nhost={host}\npid={pid}\nsince={since}")
    }

    /// The client that a key with this value describes. Lines with other names are left out.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok().filter(|text| text.len() <= LONGEST_VALUE)?;
        let part = |name: &str| text.split('\n').find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let word = |name| part(name).filter(|word| is_word(word)).map(str::to_owned);
        let since = Duration::from_millis(part("since")?.parse().ok()?);
        Some(Self {
            application: word("application")?,
            host: word("host")?,
            pid: part("pid")?.parse().ok()?,
            since: UNIX_EPOCH.checked_add(since)?,
        })
    }
}

impl fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, pid {}", self.application.escape_debug(), self.host.escape_debug(), self.pid)
    }
}

/// Whether `text` may be the name of an application or a host.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "application=orders\nhost=h\npid=7\nsince=1700000000000";

    #[test]
    fn a_value_describes_the_client_that_wrote_it() {
        for (application, host) in [("orders", "host-3"), ("a=b, \"c\"", "schloß"), (&*"x".repeat(256), "h")]
        {
            let written = ClientInfo::of_process(application, host);
            let read = ClientInfo::parse(written.value().as_bytes()).expect("it is whole");
            assert_eq!((&*read.application, &*read.host, read.pid), (application, host, std::process::id()));
            assert!(written.since.duration_since(read.since).unwrap() < Duration::from_millis(1));
        }
        let later = format!("colour=red\n{VALUE}\nshape=round");
        assert_eq!(ClientInfo::parse(later.as_bytes()), ClientInfo::parse(VALUE.as_bytes()));
    }

    #[test]
    fn a_host_that_cannot_be_shown_is_cut() {
        let host = |name: &str| ClientInfo::of_process("a", name).host;
        assert_eq!((host(""), host("a\nb\u{1b}"), host("ß")), ("unknown".into(), "ab".into(), "ß".into()));
        assert_eq!(host(&"ß".repeat(1000)).len(), LONGEST);
    }

    #[test]
    fn another_value_describes_no_client() {
        for value in [
            String::new(),
            "orders".into(),
            VALUE.replace("pid=7", "pid=-1"),
            VALUE.replace("pid=7", "pid=4294967296"),
            VALUE.replace("since=1", "since=99999999999999"),
            VALUE.replace("host=h", "host="),
            VALUE.replace("host=h", "host=\u{1b}[31m"),
            VALUE.replace("orders", "a\tb"),
            VALUE.replace("orders", &"x".repeat(257)),
            format!("{VALUE}\n{}", "x".repeat(1024)),
        ] {
            assert_eq!(ClientInfo::parse(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(ClientInfo::parse(&[VALUE.as_bytes(), b"\xff"].concat()), None);
    }

    #[test]
    fn a_client_is_shown_on_one_line() {
        let odd = VALUE.replace("orders", "or\u{202e}ders");
        let mut holder = Holder::new("u:1".into(), 2);
        assert_eq!(holder.to_string(), "u:1 (count 2)");
        holder.set_client(ClientInfo::parse(odd.as_bytes()).map(Arc::new));
        assert_eq!(holder.to_string(), "or\\u{202e}ders on h, pid 7 (u:1, count 2)");
        assert_eq!(holder, Holder::new("u:1".into(), 2));
    }
}
