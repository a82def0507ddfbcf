//! The names of all keys and channels. No other module builds one; scripts only add an owner id, and the number of a read hold.
//!
//! The rules are Redisson's. A lock's name that contains `{` is used unchanged. Any other name is put in braces, so that
//! all keys of one lock share a cluster slot.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use highway::{HighwayHash, HighwayHasher, Key};
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

/// The longest key or value that Redis accepts (`proto-max-bulk-len`, 512 MB by default).
const MAX_BYTES: usize = 512 * 1024 * 1024;

/// The names of a reentrant lock.
#[derive(Debug)]
pub(crate) struct LockKeys {
    record: Arc<str>,
    /// All keys and channels of the lock must be in the slot of its record.
    clustered: bool,
    /// Built on first use, because an uncontended lock needs no channel.
    channel: OnceLock<Arc<str>>,
}

const CHANNEL: &str = "redisson_lock__channel";
const TOKEN: &str = "redisson_lock_token";
const READ_WRITE: &str = "redisson_rwlock";
const READ_TIMEOUT: &str = ":rwlock_timeout:";
const SEMAPHORE: &str = "redisson_sc";
const LATCH: &str = "redisson_countdownlatch__channel__";
const PERMIT_TIMEOUTS: &str = "timeout";
/// Redisson's own, which this library never writes.
const UNLOCK_LATCH: &str = "redisson_unlock_latch";
/// Part of the keys that only this library uses.
const OWN_PREFIX: &str = "redisson-lock";
const CLIENT: &str = "client";
const WRITTEN: &str = "written";
const QUEUE: &str = "redisson_lock_queue";
const TIMEOUTS: &str = "redisson_lock_timeout";
/// More bytes than any prefix and suffix add to a name.
const ROOM: usize = 1024;

impl LockKeys {
    /// Names for the lock `name`, which the name mapper has already been applied to.
    pub(crate) fn new(name: String) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::misuse("a name must not be empty"));
        }
        if name.len() + ROOM > MAX_BYTES {
            return Err(Error::misuse(format!(
                "a name has {} bytes, more than the 512 MB that Redis accepts: use a shorter name",
                name.len()
            )));
        }
        Ok(Self { record: name.into(), clustered: false, channel: OnceLock::new() })
    }

    /// The same names for a cluster. Fails if Redisson's rules put the keys of this lock into several slots.
    pub(crate) fn in_cluster(self) -> Result<Self> {
        let derived = [prefix("", &self.record), suffix(&self.record, "")];
        require_one_slot(&self.record, &derived)?;
        Ok(Self { clustered: true, ..self })
    }

    /// The key of the record, which is the lock's name.
    pub(crate) fn record(&self) -> &Arc<str> {
        &self.record
    }

    /// The channel on which releases are published.
    pub(crate) fn channel(&self) -> &Arc<str> {
        self.channel.get_or_init(|| lock_channel(&self.record))
    }

    /// The key of the record, for a kind that keeps no other name until it is used.
    pub(crate) fn into_record(self) -> Arc<str> {
        self.record
    }

    /// The key that holds the last token of a fenced lock.
    pub(crate) fn token(&self) -> Arc<str> {
        prefix(TOKEN, &self.record).into()
    }
}

/// The names of a fair lock.
#[derive(Debug)]
pub(crate) struct FairLockKeys {
    pub lock: LockKeys,
    /// The list of the waiters' owner ids.
    pub queue: Arc<str>,
    /// The sorted set of the times at which waiters are removed.
    pub timeouts: Arc<str>,
}

impl FairLockKeys {
    pub(crate) fn new(lock: LockKeys) -> Self {
        let [queue, timeouts] = [QUEUE, TIMEOUTS].map(|key| prefix(key, &lock.record).into());
        Self { lock, queue, timeouts }
    }

    /// The channel of the waiter with this owner id.
    pub(crate) fn channel_of(&self, owner_id: &str) -> Arc<str> {
        format!("{}:{owner_id}", self.lock.channel()).into()
    }
}

/// The names of a read/write lock.
#[derive(Clone, Debug)]
pub(crate) struct ReadWriteKeys {
    pub record: Arc<str>,
    pub channel: Arc<str>,
}

impl ReadWriteKeys {
    pub(crate) fn new(LockKeys { record, .. }: LockKeys) -> Self {
        Self { channel: prefix(READ_WRITE, &record).into(), record }
    }

    /// The string that expires with the read hold of this owner id.
    pub(crate) fn timeout(&self, owner_id: &str) -> Arc<str> {
        format!("{}{READ_TIMEOUT}1", suffix(&self.record, owner_id)).into()
    }

    /// The parts of a timeout's name before the owner id, and between the owner id and the number of the hold.
    pub(crate) fn around_reader(&self) -> [Arc<str>; 2] {
        [suffix(&self.record, "").into(), READ_TIMEOUT.into()]
    }
}

/// The names of a semaphore or a latch.
#[derive(Debug)]
pub(crate) struct CounterKeys {
    pub record: Arc<str>,
    pub channel: Arc<str>,
    /// The sorted set of permit ids and the ends of their leases.
    pub timeouts: Arc<str>,
    /// The number of this client's last numbered request that took effect, by which scripts recognise a repeat.
    pub last_request: Arc<str>,
}

impl CounterKeys {
    /// The names of a semaphore, used by the client with the unique id `client`.
    pub(crate) fn semaphore(LockKeys { record, .. }: LockKeys, client: Uuid) -> Self {
        Self::with_channel(prefix(SEMAPHORE, &record), record, client)
    }

    /// The names of a latch. Redisson puts braces around any name in a latch's channel.
    pub(crate) fn latch(LockKeys { record, clustered, .. }: LockKeys, client: Uuid) -> Result<Self> {
        let channel = format!("{LATCH}{{{record}}}");
        if clustered {
            require_one_slot(&record, &[channel.as_str()])?;
        }
        Ok(Self::with_channel(channel, record, client))
    }

    fn with_channel(channel: String, record: Arc<str>, client: Uuid) -> Self {
        let [timeouts, last_request] = [PERMIT_TIMEOUTS.to_owned(), format!("{OWN_PREFIX}:{client}")]
            .map(|key| suffix(&record, &key).into());
        Self { channel: channel.into(), timeouts, last_request, record }
    }
}

/// The names that belong to a record of any kind.
#[derive(Debug)]
pub(crate) struct AnyKeys {
    pub record: Arc<str>,
    /// The queue of a fair lock.
    pub queue: Arc<str>,
    /// The last token of a fenced lock.
    pub token: Arc<str>,
    /// The permits of an expirable semaphore.
    pub timeouts: Arc<str>,
    /// The channels of a lock, a read/write lock, a semaphore and a latch.
    pub channels: [Arc<str>; 4],
}

impl AnyKeys {
    pub(crate) fn new(lock: LockKeys) -> Self {
        let record = lock.record().clone();
        let latch = format!("{LATCH}{{{record}}}");
        let channels =
            [lock.channel().to_string(), prefix(READ_WRITE, &record), prefix(SEMAPHORE, &record), latch];
        Self {
            queue: prefix(QUEUE, &record).into(),
            token: lock.token(),
            timeouts: suffix(&record, PERMIT_TIMEOUTS).into(),
            channels: channels.map(Arc::from),
            record,
        }
    }
}

/// Whether a key has the name of a part of a lock, semaphore or latch, and not that of its record.
pub(crate) fn is_part(key: &str) -> bool {
    let begins = |word: &str| key.strip_prefix(word).is_some_and(|rest| rest.starts_with(':'));
    let word = format!(":{OWN_PREFIX}:");
    let is_own = |(at, _): (usize, &str)| {
        let rest = &key[at + word.len()..];
        rest == WRITTEN
            || rest.get(..uuid::fmt::Hyphenated::LENGTH).is_some_and(|id| Uuid::parse_str(id).is_ok())
    };
    [TOKEN, QUEUE, TIMEOUTS, UNLOCK_LATCH].into_iter().any(begins)
        || [CLIENT, WRITTEN].iter().any(|own| begins(&format!("{OWN_PREFIX}:{own}")))
        || key.contains(READ_TIMEOUT)
        || key.match_indices(&word).any(is_own)
}

/// The names of values of a group.
#[derive(Debug)]
pub(crate) struct GroupKeys {
    pub record: Arc<str>,
    pub channel: Arc<str>,
    /// The hashes of the values, sorted and concatenated.
    pub values: Arc<str>,
    client: Uuid,
}

impl GroupKeys {
    /// The names of the hashed `values`, used by the client with the unique id `client`.
    pub(crate) fn new(lock: LockKeys, values: String, client: Uuid) -> Self {
        Self { channel: lock.channel().clone(), record: lock.record, values: values.into(), client }
    }

    /// The number of the owner's last request that took effect, by which scripts recognise a repeat.
    pub(crate) fn last_request(&self, owner: &str) -> Arc<str> {
        suffix(&self.record, &format!("{OWN_PREFIX}:{}:{owner}", self.client)).into()
    }
}

/// The name of an object that belongs to a key of a map.
pub(crate) fn of_entry(map: &str, hash: &str, kind: &str) -> String {
    suffix(map, &format!("{hash}:{kind}"))
}

/// The length of a [`hash`].
pub(crate) const HASH: usize = 22;

/// The hash that Redisson puts into a name for `value`: a 128-bit HighwayHash with Redisson's key, as 22 characters of
/// base64 without padding.
pub(crate) fn hash(value: &[u8]) -> String {
    const KEY: Key =
        Key([0x9e37_79b9_7f4a_7c15, 0xf39c_c060_5ced_c834, 0x1082_276b_f3a2_7251, 0xf86c_6a11_d0c1_8e95]);
    let hash = HighwayHasher::new(KEY).hash128(value);
    STANDARD_NO_PAD.encode(hash.map(u64::to_be_bytes).concat())
}

/// The number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key or channel, as the Redis cluster specification defines it: the checksum of the text between the first
/// `{` and the next `}`, or of the whole key if there is no such text.
pub(crate) fn slot(key: &str) -> u16 {
    const CHECKSUM: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);
    let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    CHECKSUM.checksum(hashed.as_bytes()) % SLOTS
}

fn require_one_slot(record: &str, names: &[impl AsRef<str>]) -> Result<()> {
    match names.iter().all(|name| slot(name.as_ref()) == slot(record)) {
        true => Ok(()),
        false => Err(Error::misuse(format!(
            "the keys and channels of `{}` would be in different slots of the cluster: use a name without braces, or, \
             except for a latch, a name with a `{{tag}}`",
            record.escape_debug()
        ))),
    }
}

/// The key that the check of replicas writes before it waits for them, in the slot of `record`. Nobody reads the key.
pub(crate) fn wait_marker_key(record: &str) -> Arc<str> {
    suffix(record, &format!("{OWN_PREFIX}:{WRITTEN}")).into()
}

/// The same kind of key in the slot `wanted`.
pub(crate) fn wait_marker_key_in(wanted: u16) -> Arc<str> {
    let key = |n: u32| format!("{OWN_PREFIX}:{WRITTEN}:{n}");
    (0..).map(key).find(|key| slot(key) == wanted).unwrap_or_default().into()
}

/// The key by which the client with this id registers itself. The name mapper does not apply.
pub(crate) fn client(id: Uuid) -> Arc<str> {
    format!("{OWN_PREFIX}:{CLIENT}:{id}").into()
}

/// The name of a lock that nobody uses, for probing what the user and the server permit.
pub(crate) fn probe_key() -> String {
    format!("{OWN_PREFIX}:nobody:{}", Uuid::new_v4())
}

/// The channel on which the releases of the lock with this record are published.
pub(crate) fn lock_channel(record: &str) -> Arc<str> {
    prefix(CHANNEL, record).into()
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

    #[test]
    fn a_lock_may_be_named_like_this_library() {
        let id = Uuid::new_v4();
        let parts = [
            client(id).to_string(),
            wait_marker_key("n").to_string(),
            wait_marker_key_in(7).to_string(),
            format!("{{n}}:{OWN_PREFIX}:{id}"),
            format!("{{n}}:{OWN_PREFIX}:{id}:task-1"),
            format!("{{{OWN_PREFIX}:n}}:{OWN_PREFIX}:{id}"),
        ];
        for key in parts {
            assert!(is_part(&key), "{key}");
        }
        for key in
            ["redisson-lock:orders:42", "prod:redisson-lock:job", "redisson-lock", "n:redisson-locks:written"]
        {
            assert!(!is_part(key), "{key}");
        }
    }

    /// The expected slots come from `CLUSTER KEYSLOT` of Redis 7.0.
    #[test]
    fn slots_are_those_of_redis() {
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
    fn names_whose_keys_are_in_several_slots_are_refused_in_a_cluster() {
        let latch = |name: &str| {
            let keys = LockKeys::new(name.into()).and_then(LockKeys::in_cluster)?;
            CounterKeys::latch(keys, Uuid::nil())
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
