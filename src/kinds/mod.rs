//! The kinds of lock, one a file: names, requests, manner. None has a loop.

mod fair;
mod fenced;
mod read_write;
mod reentrant;
mod spin;

pub(crate) use fair::Fair;
pub(crate) use fenced::Fenced;
pub(crate) use read_write::{Read, Write};
pub(crate) use reentrant::Reentrant;
pub(crate) use spin::Spin;
