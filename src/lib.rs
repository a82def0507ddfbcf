//! Distributed locks on Redis, wire-compatible with Java [Redisson](https://redisson.org).
//!
//! Rust and Java programs share the same locks, because both use the same records, channels and messages.
//!
//! - The *record* of a lock is its data in Redis, under the lock's name.
//! - A *hold* is the ownership of a lock by one owner, from its grant until it is released or lost.
//! - A *level* is one acquire within a hold: a re-entry adds a level, and the hold is released with its last level.
//! - An *owner id*, `<client uuid>:<id>`, names the owner in the record.
//!
//! [`Client`] connects to Redis and creates the lock handles. In a service, use [`Client::mutex`]: its [`LockGuard`] owns the lock.
//! [`Lock`] documents the operations that all locks with an owner share, and explains when the current task is the owner.
//!
//! ```no_run
//! use redisson_lock::{Client, Result};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<()> {
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let guard = client.mutex("orders:42").lock().await?;
//! // The watchdog renews the lease while the guard lives.
//! guard.unlock().await?; // an error if the hold was lost
//! # Ok(())
//! # }
//! ```
//!
//! | need | item |
//! | --- | --- |
//! | one owner at a time: mutex, reentrant, fair, fenced, spin, non-reentrant, group and value locks | the methods of [`Client`] |
//! | many readers or one writer | [`ReadWriteLock`] |
//! | several locks as one; a lock on a majority of servers | [`MultiLock`]; [`RedLock`] |
//! | at most n at a time; wait until n others are ready | [`Semaphore`], [`ExpirableSemaphore`]; [`CountDownLatch`] |
//! | the lock of one key of a Redisson map | [`MapEntry`] |
//! | the locks that exist, of any kind | [`Client::describe`], [`Client::locks`], [`Client::watch`] |
//! | what the servers permit, and how they are set up | [`Client::examine`] |
//! | settings | [`ClientBuilder`], [`Servers`], [`HandOff`], [`BackOff`], [`Replication`] |
//! | the state of a hold | [`HoldStatus`], [`HoldState`], [`LossReason`] |
//! | who held what when (feature `timeline`) | `Timeline` |
//! | threads without an async runtime (feature `blocking`, on by default) | `blocking` |
//! | Redisson's configuration file (feature `redisson-config`) | `RedissonConfig` |
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `blocking` | yes | the module `blocking`: the same API for threads without a runtime |
//! | `tls` | yes | `rediss://` URLs and `Tls`, by rustls |
//! | `ring`, `aws-lc-rs` | `ring` | the crypto provider of `tls`; with both, `ring` |
//! | `metrics` | no | `Metrics`, an observer that records metrics of the crate `metrics` |
//! | `timeline` | no | `Timeline`, which records who held what when, and writes it for a browser or a trace viewer |
//! | `redisson-config` | no | `RedissonConfig`, which reads Redisson's own configuration file |
//! | `redis-interop` | no | the redis crate as `redis`, and [`Servers`] with the connection settings of its clients |
//!
//! # Guide
//!
//! - [Getting started](https://docs.rs/crate/redisson-lock/latest/source/docs/getting-started.md)
//! - [Choosing a lock](https://docs.rs/crate/redisson-lock/latest/source/docs/choosing-a-lock.md)
//! - [Interop with Java](https://docs.rs/crate/redisson-lock/latest/source/docs/interop.md)
//! - [Migrating from Redisson](https://docs.rs/crate/redisson-lock/latest/source/docs/migrating-from-redisson.md)
//! - [Deployment](https://docs.rs/crate/redisson-lock/latest/source/docs/deployment.md)
//! - [Observability](https://docs.rs/crate/redisson-lock/latest/source/docs/observability.md)
//! - [Command line](https://docs.rs/crate/redisson-lock/latest/source/docs/command-line.md)
//! - [Troubleshooting](https://docs.rs/crate/redisson-lock/latest/source/docs/troubleshooting.md)
//! - [Reliability](https://docs.rs/crate/redisson-lock/latest/source/docs/reliability.md)
//! - [Performance](https://docs.rs/crate/redisson-lock/latest/source/docs/performance.md)

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
// Only with the feature `tls` is every public type exported. Unit tests include entry points of the fuzz targets.
#![cfg_attr(any(not(feature = "tls"), test), allow(unreachable_pub))]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod codec;
mod composite;
mod config;
mod connection;
mod engine;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod holder;
mod kinds;
mod latch;
mod lease;
mod lock;
mod map_entry;
#[cfg(measuring)]
#[doc(hidden)]
pub mod measuring;
#[cfg(feature = "metrics")]
mod metrics;
pub mod observer;
mod owner;
mod protocol;
#[cfg(feature = "redisson-config")]
mod redisson_config;
mod runtime;
mod semaphore;
#[cfg(all(test, shuttle))]
#[path = "../tests/shuttle/mod.rs"]
mod shuttled;
mod stats;
mod status;
#[cfg(feature = "timeline")]
mod timeline;

pub use client::{Client, ClientBuilder, ServerClock, ServerReport, Sighting};
pub use codec::{Codec, Kryo5, Utf8};
pub use composite::guard::MultiLockGuard;
pub use composite::multi_lock::MultiLock;
pub use composite::red_lock::RedLock;
pub use config::credentials::Credentials;
pub use config::options::{BackOff, HandOff, Replication};
#[cfg(feature = "tls")]
pub use config::tls::Tls;
pub use connection::Servers;
pub use error::{Error, LossReason, Phase, Result};
pub use guard::LockGuard;
pub use holder::{ClientInfo, Holder};
pub use kinds::description::{Description, RecordKind};
pub use kinds::kind::Inspection;
pub use latch::CountDownLatch;
pub use lease::status::HoldState;
pub use lock::{Lock, ReadWriteLock};
pub use map_entry::MapEntry;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use owner::Owner;
#[cfg(feature = "redis-interop")]
pub use redis;
#[cfg(feature = "redisson-config")]
pub use redisson_config::RedissonConfig;
pub use semaphore::{ExpirablePermit, ExpirableSemaphore, Semaphore, SemaphorePermit};
pub use stats::{Losses, Renewals, Requests, Stats, WakeUps};
pub use status::HoldStatus;
#[cfg(feature = "timeline")]
pub use timeline::Timeline;
#[cfg(feature = "timeline")]
pub use timeline::event::{TimelineChange, TimelineEvent};
pub use uuid;

/// Compiles the programs in the README and in the guide as documentation tests.
#[cfg(all(doctest, feature = "blocking"))]
mod guide {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/getting-started.md")]
    struct GettingStarted;
    #[doc = include_str!("../docs/choosing-a-lock.md")]
    struct ChoosingALock;
    #[doc = include_str!("../docs/migrating-from-redisson.md")]
    struct Migrating;
    #[cfg(all(feature = "metrics", feature = "timeline"))]
    #[doc = include_str!("../docs/observability.md")]
    struct Observability;
}
