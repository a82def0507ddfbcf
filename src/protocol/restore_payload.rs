//! The serialized record of an owner that holds a lock once, in the format that `RESTORE` reads.
//!
//! The payload is a hash in the original RDB encoding (type 4: the number of fields, then each field and its value as
//! strings), the RDB version, and a CRC-64 of all preceding bytes. `createDumpPayload` in Redis's `cluster.c` writes this
//! format. Redis 2.6 and later and Valkey read version 6.

use crc::{CRC_64_REDIS, Crc};

const CHECKSUM: Crc<u64> = Crc::<u64>::new(&CRC_64_REDIS);
const HASH: u8 = 4;
const RDB_VERSION: u16 = 6;

/// The record of `owner`, with a hold count of 1. The record of a read/write lock also has a mode.
pub(crate) fn held_once(mode: Option<&str>, owner: &str) -> Vec<u8> {
    let mode = mode.map(|mode| ("mode", mode));
    let mut bytes = Vec::with_capacity(owner.len() + 32);
    bytes.extend([HASH, 1 + u8::from(mode.is_some())]);
    for text in mode.into_iter().chain([(owner, "1")]).flat_map(<[&str; 2]>::from) {
        put_length(&mut bytes, text.len());
        bytes.extend(text.as_bytes());
    }
    bytes.extend(RDB_VERSION.to_le_bytes());
    bytes.extend(CHECKSUM.checksum(&bytes).to_le_bytes());
    bytes
}

/// Appends a length in one, two or five bytes. The first byte says how many.
fn put_length(bytes: &mut Vec<u8>, length: usize) {
    match u32::try_from(length) {
        Ok(short @ 0..0x40) => bytes.push(short as u8),
        Ok(short @ 0x40..0x4000) => bytes.extend((short as u16 | 0x4000).to_be_bytes()),
        Ok(long) => {
            bytes.push(0x80);
            bytes.extend(long.to_be_bytes());
        }
        Err(_) => unreachable!("an owner id is shorter than the 512 MB that Redis accepts"),
    }
}
