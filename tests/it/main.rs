//! Every test that needs a real server, in one binary. Run them with `cargo xtask test`.

mod alone;
mod interop;
mod peer_smoke;
mod support;
