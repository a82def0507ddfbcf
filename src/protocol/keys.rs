//! Every key and channel name, and nothing else builds one.
//!
//! The rules are Redisson's: a name that contains `{` is used as it is, any other is put in braces, so that all
//! keys of one lock share a cluster slot.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use highway::{HighwayHash, HighwayHasher, Key};
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// Redis refuses keys and values longer than this (`proto-max-bulk-len`, by default 512 MB).
const MAX_BYTES: usize = 512 * 1024 * 1024;

/// The names of one reentrant lock.
#[derive(Debug)]
pub(crate) struct LockKeys {
    record: Arc<str>,
    /// All that there is of a lock has to be in the slot of its record.
    clustered: bool,
    /// Made when it is needed: a lock that is only held has no use for it.
    channel: OnceLock<Arc<str>>,
}

const CHANNEL: &str = "redisson_lock__channel";
const TOKEN: &str = "redisson_lock_token";
const READ_WRITE: &str = "redisson_rwlock";
const READ_TIMEOUT: &str = ":rwlock_timeout:";
const SEMAPHORE: &str = "redisson_sc";
const LATCH: &str = "redisson_countdownlatch__channel__";
/// No name of Redisson's.
const MARK: &str = "redisson-lock";
const QUEUE: &str = "redisson_lock_queue";
const TIMEOUTS: &str = "redisson_lock_timeout";
/// The longest of what is put before a name, and behind it.
const ROOM: usize = 1024;

impl LockKeys {
    /// `name` is the lock's name after the name mapper.
    pub(crate) fn new(name: String) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::misuse("a lock's name must not be empty"));
        }
        if name.len() + ROOM > MAX_BYTES {
            return Err(Error::misuse(format!(
                "a lock's name of {} bytes is over Redis' 512 MB",
                name.len()
            )));
        }
        Ok(Self { record: name.into(), clustered: false, channel: OnceLock::new() })
    }

    /// The same in a cluster, where a name can be one that Redisson's rules lead into several slots.
    pub(crate) fn in_cluster(self) -> Result<Self> {
        let beside = [prefix("", &self.record), suffix(&self.record, "")];
        one_slot(&self.record, &beside)?;
        Ok(Self { clustered: true, ..self })
    }

    /// The key of the record: the lock's name itself.
    pub(crate) fn record(&self) -> &Arc<str> {
        &self.record
    }

    /// The channel on which a release is published.
    pub(crate) fn channel(&self) -> &Arc<str> {
        self.channel.get_or_init(|| prefix(CHANNEL, &self.record).into())
    }
}

impl LockKeys {
    /// The key of a fenced lock's last token.
    pub(crate) fn token(&self) -> Arc<str> {
        prefix(TOKEN, &self.record).into()
    }
}

/// The names of a lock with a queue of waiters.
#[derive(Debug)]
pub(crate) struct QueueKeys {
    pub lock: LockKeys,
    /// A list of owners.
    pub queue: Arc<str>,
    /// Until when each counts.
    pub timeouts: Arc<str>,
}

impl QueueKeys {
    pub(crate) fn new(lock: LockKeys) -> Self {
        let [queue, timeouts] = [QUEUE, TIMEOUTS].map(|key| prefix(key, &lock.record).into());
        Self { lock, queue, timeouts }
    }

    /// The channel on which the waiter of that text is told.
    pub(crate) fn channel_of(&self, text: &str) -> Arc<str> {
        format!("{}:{text}", self.lock.channel()).into()
    }
}

/// The names of a read/write lock.
#[derive(Debug)]
pub(crate) struct ReadWriteKeys {
    pub record: Arc<str>,
    pub channel: Arc<str>,
}

impl ReadWriteKeys {
    pub(crate) fn new(LockKeys { record, .. }: LockKeys) -> Self {
        Self { channel: prefix(READ_WRITE, &record).into(), record }
    }

    /// The string that lives as long as the read hold of that text.
    pub(crate) fn timeout(&self, text: &str) -> Arc<str> {
        format!("{}{READ_TIMEOUT}1", suffix(&self.record, text)).into()
    }

    /// What stands before an owner in the names of the strings, and what between it and the number of the hold.
    pub(crate) fn around_reader(&self) -> [Arc<str>; 2] {
        [suffix(&self.record, "").into(), READ_TIMEOUT.into()]
    }
}

/// The names of a semaphore or a latch.
#[derive(Debug)]
pub(crate) struct PermitKeys {
    pub record: Arc<str>,
    pub channel: Arc<str>,
    /// When each permit that has an id ends.
    pub timeouts: Arc<str>,
    /// What tells a repeated request of this client from a new one; of no use to others.
    pub mark: Arc<str>,
}

impl PermitKeys {
    /// `client` is of one client alone.
    pub(crate) fn semaphore(LockKeys { record, .. }: LockKeys, client: Uuid) -> Self {
        Self::told_by(prefix(SEMAPHORE, &record), record, client)
    }

    /// A latch's channel has braces round any name.
    pub(crate) fn latch(LockKeys { record, clustered, .. }: LockKeys, client: Uuid) -> Result<Self> {
        let channel = format!("{LATCH}{{{record}}}");
        if clustered {
            one_slot(&record, &[channel.as_str()])?;
        }
        Ok(Self::told_by(channel, record, client))
    }

    fn told_by(channel: String, record: Arc<str>, client: Uuid) -> Self {
        let [timeouts, mark] =
            ["timeout".to_owned(), format!("{MARK}:{client}")].map(|key| suffix(&record, &key).into());
        Self { channel: channel.into(), timeouts, mark, record }
    }
}

/// The names of values of a group.
#[derive(Debug)]
pub(crate) struct GroupKeys {
    pub record: Arc<str>,
    pub channel: Arc<str>,
    /// Their hashes, one behind the other, in order.
    pub values: Arc<str>,
    client: Uuid,
}

impl GroupKeys {
    /// `client` is of one client alone.
    pub(crate) fn new(lock: LockKeys, values: String, client: Uuid) -> Self {
        Self { channel: lock.channel().clone(), record: lock.record, values: values.into(), client }
    }

    /// What tells a repeated request of that owner from a new one; of no use to others.
    pub(crate) fn mark(&self, owner: &str) -> Arc<str> {
        suffix(&self.record, &format!("{MARK}:{}:{owner}", self.client)).into()
    }
}

/// The name of what belongs to a key of a map.
pub(crate) fn of_entry(map: &str, hash: &str, kind: &str) -> String {
    suffix(map, &format!("{hash}:{kind}"))
}

/// A value as Redisson has it in a name: its HighwayHash of 128 bits, with Redisson's key, in base64 without padding: 22
/// characters.
pub(crate) fn hash(value: &[u8]) -> String {
    const KEY: Key =
        Key([0x9e37_79b9_7f4a_7c15, 0xf39c_c060_5ced_c834, 0x1082_276b_f3a2_7251, 0xf86c_6a11_d0c1_8e95]);
    let hash = HighwayHasher::new(KEY).hash128(value);
    STANDARD_NO_PAD.encode(hash.map(u64::to_be_bytes).concat())
}

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key or channel, as Redis' cluster specification has it: the checksum of what stands between the first `{` and
/// the next `}`, if anything does, else of all of it.
pub(crate) fn slot(key: &str) -> u16 {
    const CHECKSUM: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
    let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
    let counted = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    CHECKSUM.checksum(counted.as_bytes()) % SLOTS
}

fn one_slot(record: &str, names: &[impl AsRef<str>]) -> Result<()> {
    match names.iter().all(|name| slot(name.as_ref()) == slot(record)) {
        true => Ok(()),
        false => Err(Error::misuse(format!(
            "in a cluster, what belongs to `{}` would be in another slot than the record: choose a name without braces, or, \
             but for a latch, with a `{{tag}}`",
            record.escape_debug()
        ))),
    }
}

/// A key beside `record` that is of no use to anybody.
pub(crate) fn written(record: &str) -> Arc<str> {
    suffix(record, &format!("{MARK}:written")).into()
}

/// A key in that slot that is of no use to anybody.
pub(crate) fn of_slot(wanted: u16) -> Arc<str> {
    let of = |n: u32| format!("{MARK}:written:{n}");
    (0..).map(of).find(|key| slot(key) == wanted).unwrap_or_default().into()
}

/// The name of a lock that nobody has, to try out what a user may do.
pub(crate) fn nobodys() -> String {
    format!("redisson-lock:nobody:{}", Uuid::new_v4())
}

/// `prefix:name` when the name contains `{`, else `prefix:{name}`.
fn prefix(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// `name:suffix` when the name contains `{`, else `{name}:suffix`.
fn suffix(name: &str, suffix: &str) -> String {
    if name.contains('{') { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `CLUSTER KEYSLOT` of Redis 7.0.
    #[test]
    fn slots_are_redis() {
        let slots = [
            ("orders", 105),
            ("redisson_lock__channel:{orders}", 105),
            ("a{b}c", 3300),
            ("{x}", 16287),
            ("a{", 14311),
            ("}{", 12793),
            ("{}x", 10595),
            ("a}", 5921),
            ("foo{bar}{zap}", 5061),
            ("foo{{bar}}zap", 4015),
            ("schloß", 1537),
            ("", 0),
        ];
        for (key, expected) in slots {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn names_that_lead_into_several_slots_are_refused_in_a_cluster() {
        let latch = |name: &str| {
            let keys = LockKeys::new(name.into()).and_then(LockKeys::in_cluster)?;
            PermitKeys::latch(keys, Uuid::nil())
        };
        for good in ["orders", "two words", "a{b}c", "{x}", "schloß", "{a}{"] {
            assert!(LockKeys::new(good.into()).unwrap().in_cluster().is_ok(), "{good}");
            assert_eq!(latch(good).is_ok(), !good.contains('{'), "{good}");
        }
        for bad in ["a{", "}{", "{}x", "a}", "}"] {
            let keys = LockKeys::new(bad.into()).unwrap();
            let slots = [&**keys.record(), keys.channel(), &keys.token()].map(slot);
            assert_ne!([slots[0]; 3], slots, "{bad}");
            assert!(matches!(keys.in_cluster(), Err(Error::Misuse { .. })), "{bad}");
            assert!(latch(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_channel_of_a_name_is_redissons() {
        for (name, channel) in [
            ("orders", "redisson_lock__channel:{orders}"),
            ("a", "redisson_lock__channel:{a}"),
            ("a{b}c", "redisson_lock__channel:a{b}c"),
            ("{x}", "redisson_lock__channel:{x}"),
            ("a{", "redisson_lock__channel:a{"),
            ("}{", "redisson_lock__channel:}{"),
            ("{}x", "redisson_lock__channel:{}x"),
            ("a}", "redisson_lock__channel:{a}}"),
            ("two words", "redisson_lock__channel:{two words}"),
            ("line\nbreak", "redisson_lock__channel:{line\nbreak}"),
            ("schloß \"q\"", "redisson_lock__channel:{schloß \"q\"}"),
        ] {
            let keys = LockKeys::new(name.into()).unwrap();
            assert_eq!((&**keys.record(), &**keys.channel()), (name, channel));
        }
    }
}
