//! Serves one key at a time: its queue, the actor that works the queue off, attempts, contention, release and hand-off.
//!
//! ARCHITECTURE.md lists the files.

pub mod acquire;
pub mod actor;
pub mod attempt;
pub mod background;
pub mod contention;
pub mod direct;
pub mod key_queue;
pub mod level;
pub mod pending;
pub mod pipelined;
pub mod release;
pub mod session;
