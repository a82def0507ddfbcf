#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquire;
mod ask;
mod at_work;
mod background;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod clock;
mod connection;
mod contend;
mod credentials;
mod drive;
mod dump;
mod entry;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod hold;
mod in_place;
mod keys;
mod kinds;
mod lane;
mod latch;
mod level;
mod lock;
#[cfg(measuring)]
#[doc(hidden)]
pub mod measuring;
mod members;
mod multi_guard;
mod multi_lock;
mod options;
mod others;
mod owner;
mod pending;
mod permissions;
mod pipelined;
mod pubsub;
mod red_lock;
#[cfg(feature = "redisson-config")]
mod redisson_config;
mod release;
mod schedule;
mod script;
mod semaphore;
mod session;
#[cfg(all(test, shuttle))]
#[path = "../tests/shuttle/mod.rs"]
mod shuttled;
mod sync;
mod tls;
mod wakeup;
mod watchdog;

pub use client::{Client, ClientBuilder};
pub use credentials::Credentials;
pub use entry::{Codec, Kryo5, MapEntry, Utf8};
pub use error::{Error, Holder, LossReason, Phase, Result};
pub use guard::{Holding, LockGuard};
pub use hold::HoldState;
pub use latch::CountDownLatch;
pub use lock::{Lock, ReadWriteLock};
pub use multi_guard::{MultiHolding, MultiLockGuard};
pub use multi_lock::MultiLock;
pub use options::{BackOff, HandOff, Replication};
pub use owner::Owner;
pub use red_lock::RedLock;
pub use redis;
#[cfg(feature = "redisson-config")]
pub use redisson_config::RedissonConfig;
pub use semaphore::{ExpirablePermit, ExpirableSemaphore, Semaphore, SemaphorePermit};
pub use tls::Tls;
