//! Settings: options with their defaults, TLS, credentials.

pub mod credentials;
pub mod options;
pub mod tls;
