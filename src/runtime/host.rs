//! The name of this host.

/// Returns the name of this host, or of its container. Empty if the operating system does not tell it.
pub(crate) fn name() -> String {
    #[cfg(unix)]
    return rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
