//! The credentials and the TLS settings. No message quotes a secret.

use crate::args::Connection;
use crate::connect::has_password;
use crate::failure::Failure;
use redisson_lock::{Credentials, Tls};
use std::env::{self, VarError};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

/// The variable with the password.
const PASSWORD: &str = "REDISSON_LOCK_PASSWORD";

/// Provides the credentials of each connection.
pub type Provide = Box<dyn Fn() -> Credentials + Send + Sync>;

/// Returns the credentials of the options and of the variable, if there are any. They replace those of a configuration file.
pub fn credentials(connection: &Connection) -> Result<Option<Provide>, Failure> {
    let user = connection.user.clone();
    let of = move |password: String| match &user {
        Some(user) => Credentials::new(user, password),
        None => Credentials::password(password),
    };
    if let Some(file) = &connection.password_file {
        let (file, last) = (file.clone(), Mutex::new(read_password(file)?));
        // Again for each connection, because the file may get a new password. While it is unreadable, the last one counts.
        return Ok(Some(Box::new(move || {
            let mut last = last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Ok(password) = read_password(&file) {
                *last = password;
            }
            of(last.clone())
        })));
    }
    match env::var(PASSWORD) {
        Ok(password) if password.is_empty() => Err(Failure::Usage(format!("{PASSWORD} is empty: unset it"))),
        Ok(password) => Ok(Some(Box::new(move || of(password.clone())))),
        Err(VarError::NotUnicode(_)) => Err(Failure::Usage(format!("{PASSWORD} is not UTF-8: correct it"))),
        Err(VarError::NotPresent) if connection.user.is_some() => Err(Failure::Usage(format!(
            "--user has no password: put it into the variable {PASSWORD}, or name a file with --password-file"
        ))),
        Err(VarError::NotPresent) => Ok(None),
    }
}

/// Reads a password, which ends with its line.
fn read_password(file: &Path) -> Result<String, Failure> {
    let text = String::from_utf8(read(file, "--password-file")?);
    let password = text.ok().and_then(|text| text.lines().next().map(str::to_owned));
    password.filter(|password| !password.is_empty()).ok_or_else(|| {
        Failure::Usage(format!("{} has no password in its first line: correct it", file.display()))
    })
}

/// Returns the TLS settings of the options, if there are any.
pub fn tls(connection: &Connection) -> Result<Option<Tls>, Failure> {
    if !connection.wants_tls() {
        return Ok(None);
    }
    let mut tls = Tls::new();
    if let Some(file) = &connection.cacert {
        tls = tls.certificate_authorities(read(file, "--cacert")?);
    }
    match (&connection.cert, &connection.key) {
        (Some(cert), Some(key)) => tls = tls.identity(read(cert, "--cert")?, read(key, "--key")?),
        (None, None) => {}
        _ => return Err(Failure::Usage("--cert and --key belong together: name both files".to_owned())),
    }
    if let Some(name) = &connection.sni {
        tls = tls.server_name(name);
    }
    if connection.insecure {
        tls = tls.danger_accept_any_certificate();
    }
    Ok(Some(tls))
}

/// Checks that the URL and the options do not contradict each other.
pub fn check_url(url: &str, connection: &Connection, has_credentials: bool) -> Result<(), Failure> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if connection.wants_tls() && !["rediss", "valkeys"].iter().any(|tls| scheme.starts_with(tls)) {
        return Err(Failure::Usage(
            "the options for TLS have no effect on this URL: use a URL such as rediss://HOST".to_owned(),
        ));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if has_credentials && (authority.contains('@') || has_password(url)) {
        return Err(Failure::Usage(format!(
            "the URL has credentials, and so have --password-file or {PASSWORD}: write the user with --user, and use one of them"
        )));
    }
    Ok(())
}

fn read(file: &Path, option: &str) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| {
        Failure::Usage(format!("cannot read {}: {error}: name a readable file with {option}", file.display()))
    })
}
