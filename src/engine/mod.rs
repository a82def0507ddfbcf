//! One key at a time: the queue of a key, the loop that serves it, attempts, contention, release and hand-off.

pub mod acquire;
pub mod actor;
pub mod attempt;
pub mod background;
pub mod contention;
pub mod future_box;
pub mod key_queue;
pub mod level;
pub mod pending;
pub mod pipelined;
pub mod release;
pub mod session;
