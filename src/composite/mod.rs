//! Composite locks: [`MultiLock`](multi_lock::MultiLock) needs all of its locks, [`RedLock`](red_lock::RedLock) a majority.

pub mod gather;
pub mod guard;
pub mod multi_lock;
pub mod red_lock;
pub mod rounds;
