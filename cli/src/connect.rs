//! Connecting, by a URL or by Redisson's configuration file.

use crate::args::Connection;
use crate::failure::Failure;
use crate::output::say;
use crate::security;
use crate::signals::Signals;
use redisson_lock::{Client, ClientBuilder, RedissonConfig};
use std::env;
use std::time::Duration;
use tokio::time::timeout;

/// The variable with the URL.
const URL: &str = "REDISSON_LOCK_URL";
const DEFAULT_URL: &str = "redis://127.0.0.1/";

/// The default of --timeout for a URL.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time for what is left to send when this process ends early.
const CLOSING: Duration = Duration::from_secs(1);

/// Connects, runs a command until it is done or a signal comes, and closes the client.
pub async fn with_client(
    connection: &Connection,
    command: impl AsyncFnOnce(&Client) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let mut signals = Signals::ending()?;
    let client = tokio::select! {
        biased;
        signal = signals.next_ending() => return Err(Failure::Signalled(signal)),
        client = connect(connection) => client?,
    };
    let outcome = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(Failure::Signalled(signal)),
        done = command(&client) => done,
    };
    close(&client).await;
    outcome
}

/// Closes the client, after what it still has to send, or after a second.
pub async fn close(client: &Client) {
    let _ = timeout(CLOSING, client.close()).await;
}

/// Connects with the default lease.
pub async fn connect(connection: &Connection) -> Result<Client, Failure> {
    connect_with(connection, None).await
}

/// Connects. The holds of the client have this lease, or the default.
pub async fn connect_with(connection: &Connection, lease: Option<Duration>) -> Result<Client, Failure> {
    if connection.timeout.is_some_and(|timeout| timeout.is_zero()) {
        return Err(Failure::Usage("--timeout must be above 0".to_owned()));
    }
    let (tls, credentials) = (security::tls(connection)?, security::credentials(connection)?);
    // Those of a configuration file apply unless the command line has others.
    let limit = connection.timeout.or(connection.config.is_none().then_some(TIMEOUT));
    let settings = |mut builder: ClientBuilder| {
        if let Some(limit) = limit {
            builder = builder.connect_timeout(limit).response_timeout(limit);
        }
        match lease {
            Some(lease) => builder.watchdog_timeout(lease),
            None => builder,
        }
    };
    if let Some(path) = &connection.config {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Usage(format!(
                "cannot read {}: {error}: name a readable file with --config",
                path.display()
            ))
        })?;
        let mut config = RedissonConfig::parse(&text)?;
        if connection.verbose {
            for warning in config.warnings() {
                say(format_args!("{}: {warning}", path.display()));
            }
        }
        if let Some(tls) = tls {
            config = config.tls(tls);
        }
        if let Some(provide) = credentials {
            config = config.credentials(provide);
        }
        return Ok(config.configure(settings).connect().await?);
    }
    let (url, mut builder) = (url(connection)?, settings(Client::builder()));
    security::check_url(&url, connection, credentials.is_some())?;
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    if let Some(provide) = credentials {
        builder = builder.credentials(provide);
    }
    Ok(builder.connect(url).await?)
}

/// Returns the URL. A password is accepted only in the environment.
fn url(connection: &Connection) -> Result<String, Failure> {
    match &connection.url {
        Some(url) if has_password(url) => Err(Failure::Usage(format!(
            "--url contains a password, which every user can read in the process list: put the URL into {URL}, or use \
             --password-file or --config"
        ))),
        Some(url) => Ok(url.clone()),
        None => match env::var(URL) {
            Ok(url) => Ok(url),
            Err(env::VarError::NotPresent) => Ok(DEFAULT_URL.to_owned()),
            Err(env::VarError::NotUnicode(_)) => {
                Err(Failure::Usage(format!("{URL} is not UTF-8: correct it")))
            }
        },
    }
}

/// Whether the URL names a password, in front of the host or as the parameter of a Unix socket.
pub fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let in_front = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    let parameters = rest.split_once('?').map_or("", |(_, parameters)| parameters);
    // A raw `/`, `?` or `#` may be part of a password that was not encoded.
    let unencoded = rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    in_front || unencoded || parameters.split('&').any(|parameter| parameter.starts_with("pass"))
}

#[cfg(test)]
mod tests {
    use super::has_password;

    #[test]
    fn passwords_in_urls_are_found() {
        for url in [
            "redis://user:secret@host/",
            "redis://:secret@host",
            "redis-sentinel://:p@a:1,b:2/0#master",
            "redis+unix:///s?db=1&pass=p",
            "redis://:a/b@host",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in
            ["redis://host:6379/1", "redis-cluster://a:1,b:2", "redis+unix:///s?db=1", "redis://user@host"]
        {
            assert!(!has_password(url), "{url}");
        }
    }
}
