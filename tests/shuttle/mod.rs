//! The client's own code, scheduled at random: its locks, atomics and tasks are shuttle's, its clock is `time`, and at
//! the other end of its connections is `server`. Built with `--cfg shuttle` only; `cargo xtask test` does that.
//!
//! Each run is decided by one number. One that fails names it, and `SHUTTLE_SEED=<it>` repeats that run alone.

mod contention;
pub(crate) mod data;
mod holds;
mod registry;
mod run;
pub(crate) mod server;
pub(crate) mod sync;
pub(crate) mod time;

use crate::protocol::restore_payload;
