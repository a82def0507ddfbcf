//! The credentials of a client.

use std::fmt;
use std::sync::Arc;

/// A user name and a password. Its `Debug` output shows neither.
///
/// ```
/// use redisson_lock::Credentials;
/// let of_a_user = Credentials::new("app", "secret");
/// let of_the_default_user = Credentials::password("secret");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) user: Option<String>,
    pub(crate) password: String,
}

impl Credentials {
    /// Returns the credentials of a user in the server's access control list.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// Returns credentials for the default user with this password (the server's `requirepass`).
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// The callback that provides the credentials of each new connection.
#[derive(Clone)]
pub(crate) struct Source(pub Arc<dyn Fn() -> Credentials + Send + Sync>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}
