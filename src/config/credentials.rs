//! Who a client is to its servers.

use std::fmt;
use std::sync::Arc;

/// A user's name and password. Debug shows neither.
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
    /// Those of a user of the server's access control list.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// Those of the user who has no name: the server's `requirepass`.
    pub fn password(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Where they come from, at each connection anew.
#[derive(Clone)]
pub(crate) struct Source(pub Arc<dyn Fn() -> Credentials + Send + Sync>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}
