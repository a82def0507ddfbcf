//! Every test that needs a real server, in one binary. Run them with `cargo xtask test`.

mod alone;
mod bad_input;
mod cancellation;
mod cancelled_calls;
mod cancelled_tasks;
mod examples;
mod expirable_semaphores;
mod faults;
mod interop;
mod latches;
mod lost_replies;
mod model;
mod model_api;
mod operations;
mod peer_smoke;
mod permits_beside_java;
mod permits_interop;
mod pipelined;
mod schedules;
mod semaphore_faults;
mod semaphores;
mod shortcuts;
mod structure;
mod support;
mod threads;
mod truth_table;
