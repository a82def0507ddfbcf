//! Values and keys of maps as Redisson names them: encoded by a codec, and hashed.

use crate::client::Client;
use crate::error::Result;
use crate::latch::CountDownLatch;
use crate::lock::{Lock, ReadWriteLock};
use crate::protocol::keys;
use crate::semaphore::{ExpirableSemaphore, Semaphore};

/// How a string becomes the bytes that Redisson hashes: by the codec that the Java side is configured with. For what is no
/// string, or for another codec, give the bytes.
pub trait Codec {
    /// The bytes of `value`.
    fn encode(&self, value: &str) -> Vec<u8>;
}

/// Redisson's default codec from 3.19 on, `Kryo5Codec`, of strings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kryo5;

/// Redisson's `StringCodec`: the string's UTF-8.
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8;

impl Codec for Kryo5 {
    /// The class id of strings, then the string as Kryo 5's `Output.writeString` has it: up to 32 ASCII characters with the
    /// last one marked, else the number of UTF-16 units and each of these in UTF-8's manner.
    fn encode(&self, value: &str) -> Vec<u8> {
        const STRING: u8 = 3;
        const MARK: u8 = 0x80;
        let mut bytes = vec![STRING];
        if value.is_ascii() && (2..=32).contains(&value.len()) {
            bytes.extend(value.as_bytes());
            if let Some(last) = bytes.last_mut() {
                *last |= MARK;
            }
            return bytes;
        }
        // One more than the number of units, because 0 is for null; 6 bits in the first byte, 7 in each further one.
        let mut rest = value.encode_utf16().count() as u64 + 1;
        let more = |rest: u64, bit: u8| if rest > 0 { bit } else { 0 };
        let first = MARK | (rest & 0x3F) as u8;
        rest >>= 6;
        bytes.push(first | more(rest, 0x40));
        while rest > 0 {
            let low = (rest & 0x7F) as u8;
            rest >>= 7;
            bytes.push(low | more(rest, 0x80));
        }
        for unit in value.encode_utf16() {
            match unit {
                0..0x80 => bytes.push(unit as u8),
                0x80..0x800 => bytes.extend([0xC0 | (unit >> 6) as u8, 0x80 | (unit & 0x3F) as u8]),
                _ => bytes.extend([
                    0xE0 | (unit >> 12) as u8,
                    0x80 | (unit >> 6 & 0x3F) as u8,
                    0x80 | (unit & 0x3F) as u8,
                ]),
            }
        }
        bytes
    }
}

impl Codec for Utf8 {
    fn encode(&self, value: &str) -> Vec<u8> {
        value.as_bytes().to_vec()
    }
}

/// What Redisson keeps for one key of a map: `RMap.getLock(key)` and its kin. They are ordinary objects, of which this knows the
/// names. Made by [`Client::map_entry`].
#[derive(Clone, Debug)]
pub struct MapEntry {
    client: Client,
    map: String,
    hash: String,
}

impl MapEntry {
    pub(crate) fn new(client: &Client, map: &str, key: &[u8]) -> Self {
        Self { client: client.clone(), map: map.to_owned(), hash: keys::hash(key) }
    }

    /// The hash of the key, as it is in the names.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// `RMap.getLock(key)`. See [`Client::lock`].
    pub fn lock(&self) -> Lock {
        self.client.lock(self.name("lock"))
    }

    /// `RMap.getFairLock(key)`. See [`Client::fair_lock`].
    pub fn fair_lock(&self) -> Lock {
        self.client.fair_lock(self.name("fairlock"))
    }

    /// `RMap.getReadWriteLock(key)`. See [`Client::read_write_lock`].
    pub fn read_write_lock(&self) -> ReadWriteLock {
        self.client.read_write_lock(self.name("rw_lock"))
    }

    /// `RMap.getSemaphore(key)`. See [`Client::semaphore`].
    pub fn semaphore(&self) -> Semaphore {
        self.client.semaphore(self.name("semaphore"))
    }

    /// `RMap.getPermitExpirableSemaphore(key)`. See [`Client::expirable_semaphore`].
    pub fn expirable_semaphore(&self) -> ExpirableSemaphore {
        self.client.expirable_semaphore(self.name("permitexpirablesemaphore"))
    }

    /// `RMap.getCountDownLatch(key)`. See [`Client::count_down_latch`].
    pub fn count_down_latch(&self) -> CountDownLatch {
        self.client.count_down_latch(self.name("countdownlatch"))
    }

    fn name(&self, kind: &str) -> String {
        keys::of_entry(&self.map, &self.hash, kind)
    }
}

/// The values of a group that are locked together.
pub(crate) fn hashes(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<String> {
    let mut hashes: Vec<_> = values.into_iter().map(|value| keys::hash(value.as_ref())).collect();
    hashes.sort();
    hashes.dedup();
    if hashes.is_empty() {
        return Err(crate::error::Error::misuse("a group lock without a value"));
    }
    Ok(hashes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Redisson 3.52.0 and 4.7.0 name the lock of a key.
    #[test]
    fn hashes_are_redissons() {
        let (long, longer) = ("x".repeat(63), "x".repeat(8192));
        for (text, kryo, utf8) in [
            ("x", "UAtNwcfhLzLiIyViPu3ySw", "Bt/D4wylKYCgzX0jVwjowg"),
            ("y", "aontSToqYqQXNA8h9vd9SA", "798uvSmTyISBDNXkBRQBxg"),
            ("", "8kZ0F42HzoQfW3jDxQ6f4g", "t6rZwibGo2uy1OSmNVe8pg"),
            ("orders", "C0xoxP9hLjXvqHeh/EoBFA", "fkpb4qUHoaX1lP+lHM7glg"),
            ("ordérs", "TaI9X8L4BeRgpZ2hBUPH/g", "E6gPBu6X2kGLu8UWKck+Bg"),
            ("日本語 🔒", "9noj45fzXlEI7/s0q4NDYA", "9mSveH+PPX2O51x+zLsL3w"),
            ("0123456789012345678901234567890123456789", "GPaArWQIHvWXn8TgE1ma0Q", "YNGkRfF4ty/PLq0A3m3V8Q"),
            (&long, "ma/RvrPrjU5Zb4KYSOVxCg", "OiaHKjbbgYIeOPAr5lIERw"),
            (&longer, "7HVzTJYo2Ad4m1pbihFrQg", "AA+G2FLVzKrVwQGWXe/WCw"),
        ] {
            assert_eq!(keys::hash(&Kryo5.encode(text)), kryo, "{text}");
            assert_eq!(keys::hash(&Utf8.encode(text)), utf8, "{text}");
        }
    }
}
