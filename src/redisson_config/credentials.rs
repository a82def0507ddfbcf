//! The user and the password of a section, which the address may contain too.

use super::file::bad;
use crate::config::credentials::Credentials;
use crate::error::Result;

pub(super) const ENCRYPTED: &str = "is encrypted in the format of Redisson PRO, which is not supported: provide it with \
                                    `RedissonConfig::credentials`";
pub(super) const ENCRYPTED_OF_SENTINELS: &str =
    "is encrypted in the format of Redisson PRO, which is not supported: write it into the file unencrypted";

pub(super) fn is_encrypted(password: &str) -> bool {
    password.starts_with("{aes}")
}

/// Merges the credentials of two places. Returns `None` if they contradict each other.
pub(super) fn merged(
    one: (Option<String>, Option<String>),
    other: (Option<String>, Option<String>),
) -> Option<(Option<String>, Option<String>)> {
    let both = |one: Option<String>, other: Option<String>| match (one, other) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => Some(one.or(other)),
    };
    Some((both(one.0, other.0)?, both(one.1, other.1)?))
}

/// Ignores a user without a password, as Redisson does.
pub(super) fn credentials(user: Option<String>, password: Option<String>) -> Option<Credentials> {
    let password = password.filter(|password| !password.is_empty())?;
    Some(match user.filter(|user| !user.is_empty()) {
        Some(user) => Credentials::new(user, password),
        None => Credentials::password(password),
    })
}

/// The sentinels' own credentials. `shared` is the master's password, if the caller shares it: a user without a password goes with it.
pub(super) fn of_sentinels(
    user: Option<String>,
    password: Option<String>,
    shared: Option<Option<&str>>,
) -> Result<Option<Credentials>> {
    let is_some = |text: &String| !text.is_empty();
    match (user.filter(is_some), password.filter(is_some), shared) {
        (Some(_), None, None) => Err(bad(
            "`sentinelServersConfig.sentinelUsername`: has no password, and Redisson sends the master's password with it: add \
             `sentinelPassword`, or call `RedissonConfig::share_credentials_with_sentinels`",
        )),
        (Some(user), None, Some(masters)) => Ok(credentials(Some(user), masters.map(str::to_owned))),
        (user, password, _) => Ok(credentials(user, password)),
    }
}
