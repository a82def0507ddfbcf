//! What goes over the wire: names of keys and channels, scripts and their replies, the payload of `RESTORE`. No I/O.

pub mod keys;
pub mod restore_payload;
pub mod script;
