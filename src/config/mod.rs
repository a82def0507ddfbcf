//! The settings of a client: options with their defaults, TLS, and credentials.

pub(crate) mod credentials;
pub(crate) mod options;
#[cfg_attr(not(feature = "tls"), allow(dead_code))]
pub(crate) mod tls;
