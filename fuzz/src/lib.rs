//! The bodies of the fuzz targets. Each target takes arbitrary bytes and asserts the properties of the decoder that it is named
//! after. `fuzz_targets` passes them to libFuzzer; `tests/smoke.rs` runs them without it.

mod answers;
mod client;
mod records;
mod servers;

pub use client::{configuration, messages, urls};
pub use records::{owner_texts, replies, restore_payloads};
pub use servers::{cluster_slots, errors, info, roles, sentinels, server_texts};

/// The body of a target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: [(&str, Target); 12] = [
    ("cluster_slots", cluster_slots),
    ("configuration", configuration),
    ("errors", errors),
    ("info", info),
    ("messages", messages),
    ("owner_texts", owner_texts),
    ("replies", replies),
    ("restore_payloads", restore_payloads),
    ("roles", roles),
    ("sentinels", sentinels),
    ("server_texts", server_texts),
    ("urls", urls),
];
