//! The kinds of lock, with their keys, requests and traits. Related kinds share a file. A kind has no loop and does no I/O.

pub(crate) mod description;
mod fair;
mod fenced;
mod group;
pub(crate) mod kind;
mod read_write;
mod reentrant;
mod semaphore;
mod spin;
mod value;

pub(crate) use fair::Fair;
pub(crate) use fenced::Fenced;
pub(crate) use group::Group;
pub(crate) use read_write::{Read, Write};
pub(crate) use reentrant::{NonReentrant, Reentrant};
pub(crate) use semaphore::{ExpirablePermits, Latch, Permits};
pub(crate) use spin::Spin;
pub(crate) use value::Value;
