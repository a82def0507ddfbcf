//! Several locks as one: all of them, or a majority.

pub mod guard;
pub mod multi_lock;
pub mod red_lock;
pub mod rounds;
