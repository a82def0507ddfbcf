//! The settings of a client: options with their defaults, TLS, and credentials.

pub mod credentials;
pub mod options;
pub mod tls;
