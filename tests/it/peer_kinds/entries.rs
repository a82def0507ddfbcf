//! The names of the objects that belong to one map key, and the hash in these names.

use super::{Stage, versions_since};
use crate::support::since;

/// Strings, each with its hash by Kryo 5, the default codec from 3.19 on, and by plain UTF-8 (`StringCodec`).
const HASHES: [(&str, &str, &str); 7] = [
    ("x", "UAtNwcfhLzLiIyViPu3ySw", "Bt/D4wylKYCgzX0jVwjowg"),
    ("y", "aontSToqYqQXNA8h9vd9SA", "798uvSmTyISBDNXkBRQBxg"),
    ("", "8kZ0F42HzoQfW3jDxQ6f4g", "t6rZwibGo2uy1OSmNVe8pg"),
    ("orders", "C0xoxP9hLjXvqHeh/EoBFA", "fkpb4qUHoaX1lP+lHM7glg"),
    ("ordérs", "TaI9X8L4BeRgpZ2hBUPH/g", "E6gPBu6X2kGLu8UWKck+Bg"),
    ("日本語 🔒", "9noj45fzXlEI7/s0q4NDYA", "9mSveH+PPX2O51x+zLsL3w"),
    ("0123456789012345678901234567890123456789", "GPaArWQIHvWXn8TgE1ma0Q", "YNGkRfF4ty/PLq0A3m3V8Q"),
];

/// The same for repetitions of `x`. The lengths include the limits of the codec's and the hash's own steps.
const HASHES_OF_XS: [(usize, &str, &str); 11] = [
    (2, "kyMQz3UJr01K97lLwbFXIA", "JmUUVP0w7bkE6wFoj01fRw"),
    (31, "BzTMKSuziXWGj9li2P2Lsg", "1omFCAk+GBQpap37/rKLeQ"),
    (32, "0UUk8uVNEOXl9hsMj/fNEQ", "oog9enxT89k7nsZ/uTkmfw"),
    (33, "eJfv05+bxLxhUVWN6o5g5Q", "cJuuy+d4tHkkrsjaNAk7Bw"),
    (62, "cyVahN3+pEgrQrgQfwv6sA", "uQPRxbWkmIuGzkvT0gqi2g"),
    (63, "ma/RvrPrjU5Zb4KYSOVxCg", "OiaHKjbbgYIeOPAr5lIERw"),
    (64, "Bekkp6AkMLV+JUofb7pueQ", "Yf7BT79iRm/v41FnUYzF2Q"),
    (127, "cDHBDj/FsxNXIdBGuVe9xg", "YMAbAHzdG0t+YuMmWUfIAw"),
    (1000, "XLkpRZMDL17w72P9Or8pXA", "jLfAn1gq52CKyR3XDlUZhQ"),
    (8191, "NmpezaN+LNmtrtk6JFdEXA", "73oClZW8QoRsVoN3Llltgg"),
    (8192, "7HVzTJYo2Ad4m1pbihFrQg", "AA+G2FLVzKrVwQGWXe/WCw"),
];

#[tokio::test]
async fn the_hash_of_a_key_depends_on_the_codec() {
    for version in versions_since(3, 10) {
        let (kryo, utf8) = (Stage::new(&version).await, Stage::with(&version, &["codec=StringCodec"]).await);
        let (kryo, utf8) = (kryo.thread("1"), utf8.thread("1"));
        let repeated = HASHES_OF_XS.map(|(count, kryo, utf8)| ("x".repeat(count), kryo, utf8));
        let single = HASHES.map(|(text, kryo, utf8)| (text.to_owned(), kryo, utf8));
        for (text, by_kryo, by_utf8) in single.iter().chain(&repeated) {
            let name = utf8.of_entry("plain", "m", text).await.unwrap();
            assert_eq!(name, format!("{{m}}:{by_utf8}:lock"), "{version} {text}");
            let name = kryo.of_entry("plain", "m", text).await.unwrap();
            let same = name == format!("{{m}}:{by_kryo}:lock");
            // Older versions have another default codec.
            assert_eq!(same, since(&version, 3, 19), "{version} {text}: {name}");
        }
    }
}

#[tokio::test]
async fn each_kind_has_its_own_name_for_a_key() {
    for version in versions_since(3, 10) {
        let stage = Stage::with(&version, &["codec=StringCodec"]).await;
        let one = stage.thread("1");
        for (kind, suffix) in [
            ("plain", "lock"),
            ("fair", "fairlock"),
            ("read", "rw_lock"),
            ("write", "rw_lock"),
            ("semaphore", "semaphore"),
            ("permitsemaphore", "permitexpirablesemaphore"),
            ("latch", "countdownlatch"),
        ] {
            for (map, start) in [("m", "{m}"), ("a{b}", "a{b}"), ("a}", "{a}}")] {
                let name = one.of_entry(kind, map, "x").await.unwrap();
                assert_eq!(name, format!("{start}:Bt/D4wylKYCgzX0jVwjowg:{suffix}"), "{version}");
            }
        }
        // The name is that of an ordinary lock.
        let name = one.of_entry("plain", "m", "x").await.unwrap();
        one.lock("plain", &name).await.unwrap();
        stage.assert_record(&name, [(&one.owner().await, "1")]);
        let other = stage.thread("2");
        assert!(!other.try_lock("plain", &name).await.unwrap(), "{version}");
        one.unlock("plain", &name).await.unwrap();
        assert!(stage.keys().is_empty(), "{version}");
    }
}
