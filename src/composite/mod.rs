//! Composite locks: [`MultiLock`](multi_lock::MultiLock) needs all of its locks, [`RedLock`](red_lock::RedLock) a majority.

pub(crate) mod guard;
pub(crate) mod multi_lock;
pub(crate) mod red_lock;
pub(crate) mod rounds;
