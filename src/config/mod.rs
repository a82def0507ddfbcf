//! The settings of a client: options with their defaults, TLS, and credentials.

pub mod credentials;
pub mod options;
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub mod tls;
