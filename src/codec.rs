//! The codecs whose bytes Redisson hashes into the names of locks.

use crate::error::{Error, Result};
use crate::protocol::keys;

/// Encodes a string into the bytes that Redisson hashes.
///
/// Use the codec with which the Java side is configured. For other values or codecs, pass the encoded bytes to the method yourself.
///
/// ```
/// use redisson_lock::Codec;
///
/// /// Java's `LongCodec` writes numbers as text.
/// struct Long;
///
/// impl Codec for Long {
///     fn encode(&self, value: &str) -> Vec<u8> {
///         value.trim_start_matches('+').into()
///     }
/// }
/// assert_eq!(Long.encode("+42"), b"42");
/// ```
pub trait Codec {
    /// Returns the bytes of `value`.
    fn encode(&self, value: &str) -> Vec<u8>;
}

/// Encodes strings as `Kryo5Codec` does, Redisson's default codec since 3.19.
///
/// ```no_run
/// # async fn f(client: redisson_lock::Client) -> redisson_lock::Result<()> {
/// use redisson_lock::{Codec, Kryo5};
/// let account = client.map_entry("accounts", Kryo5.encode("alice"));
/// account.lock().lock().await?.unlock().await?; // Redisson's `map.getLock("alice")`
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Kryo5;

/// Encodes strings as `StringCodec` does, Redisson's codec for plain UTF-8.
///
/// ```
/// use redisson_lock::{Codec, Utf8};
/// assert_eq!(Utf8.encode("alice"), b"alice");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Utf8;

impl Codec for Kryo5 {
    /// Writes the class id of strings, and then the string in the format of Kryo 5's `Output.writeString`. A string of 2 to 32 ASCII
    /// characters is written as it is, with the high bit of the last one set. Any other string is written as its number of UTF-16 units
    /// plus one, followed by each unit, encoded as in UTF-8.
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
        // The length is one more than the number of units, because 0 means null. The first byte has 6 bits of it, each further byte 7.
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

/// Returns the hashes of the values of a group lock, sorted, without duplicates, and concatenated.
pub(crate) fn hashes(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<String> {
    let mut hashes: Vec<_> = values.into_iter().map(|value| keys::hash(value.as_ref())).collect();
    hashes.sort();
    hashes.dedup();
    if hashes.is_empty() {
        return Err(Error::misuse("a group lock needs at least one value"));
    }
    Ok(hashes.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected hashes are those of Redisson 3.52.0 and 4.7.0.
    #[test]
    fn hashes_match_redisson() {
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
