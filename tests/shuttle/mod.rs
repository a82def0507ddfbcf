//! The client's own code on random schedules. Mutexes, atomics and tasks are those of shuttle, the clock is `time`, and its
//! connections lead to `server`. Built only with `--cfg shuttle`, which `cargo xtask test` sets.
//!
//! A seed decides each run. A run that fails prints its seed, and `SHUTTLE_SEED=<seed>` repeats that run alone.
//!
//! The tests of `explore` use the same replacements, but try all orders of events with a network of their own.

mod contention;
pub(crate) mod data;
pub(crate) mod explore;
mod holds;
mod outages;
mod registry;
mod run;
pub(crate) mod server;
pub(crate) mod sync;
pub(crate) mod time;

use crate::protocol::restore_payload;
