//! Every test that needs a real server, in one binary. Run them with `cargo xtask test`.

mod alone;
mod bad_input;
mod cancellation;
mod cancelled_calls;
mod cancelled_tasks;
mod examples;
mod faults;
mod interop;
mod lost_replies;
mod model;
mod model_api;
mod multi_lock;
mod operations;
mod peer_smoke;
mod pipelined;
mod red_lock;
mod schedules;
mod shortcuts;
mod structure;
mod support;
mod threads;
mod truth_table;
