//! The data that is sent to Redis and received from it: names of keys and channels, requests, replies, and the payload of
//! `RESTORE`. This layer does no I/O.

pub(crate) mod keys;
pub(crate) mod restore_payload;
pub(crate) mod script;
