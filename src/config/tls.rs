//! The TLS settings. The connection layer interprets them.

use std::fmt;

/// The TLS settings of connections to `rediss://` URLs.
///
/// By default, a server must present a certificate for the host of its URL, signed by an authority that the operating system
/// trusts. Certificates and keys are PEM texts, as in the files that most tools write.
///
/// ```no_run
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use redisson_lock::{Client, Tls};
/// let tls = Tls::new().certificate_authorities(std::fs::read("ca.crt")?);
/// let client = Client::builder().tls(tls).connect("rediss://redis.example.org").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "settings have no effect until a client is built with them"]
pub struct Tls {
    pub(crate) authorities: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) server_name: Option<String>,
    pub(crate) unverified: bool,
    pub(crate) unnamed: bool,
    pub(crate) protocols: Option<Vec<String>>,
    pub(crate) cipher_suites: Option<Vec<String>>,
}

impl Tls {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificate authorities, in place of the operating system's.
    pub fn certificate_authorities(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { authorities: Some(pem.into()), ..self }
    }

    /// Sets the client's certificate chain and its private key. Default: none.
    pub fn identity(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((chain.into(), key.into())), ..self }
    }

    /// Sets the name that the server's certificate must have. Default: the host of the URL.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// Sets the TLS versions to offer: `TLSv1.2`, `TLSv1.3` or both. Default: both.
    ///
    /// `connect` fails with [`Error::Misuse`](crate::Error::Misuse) if the list is empty or contains another name.
    pub fn protocols<I: Into<String>>(self, names: impl IntoIterator<Item = I>) -> Self {
        Self { protocols: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Sets the cipher suites to offer, by their IANA names, such as `TLS_AES_256_GCM_SHA384` or `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`.
    /// Default: all suites that this crate supports, which have forward secrecy and AEAD.
    ///
    /// Unknown names are left out with a warning. If no name is left, `connect` fails with [`Error::Misuse`](crate::Error::Misuse).
    pub fn cipher_suites<I: Into<String>>(self, names: impl IntoIterator<Item = I>) -> Self {
        Self { cipher_suites: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Accepts a certificate for any name, if a trusted authority signed it. Other libraries call this `CA_ONLY`.
    ///
    /// Anyone with a certificate of that authority can impersonate the server. Each connection logs a warning. Use this only with an
    /// authority that signs only for these servers, and set it with [`certificate_authorities`](Self::certificate_authorities).
    pub fn danger_accept_any_server_name(self) -> Self {
        Self { unnamed: true, ..self }
    }

    /// Accepts any certificate.
    ///
    /// An attacker on the network path can then read all traffic, impersonate the server, and learn the client's password. Each
    /// connection logs a warning. Use this for experiments only.
    pub fn danger_accept_any_certificate(self) -> Self {
        Self { unverified: true, ..self }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("certificate_authorities", &self.authorities.is_some())
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .field("protocols", &self.protocols)
            .field("cipher_suites", &self.cipher_suites)
            .field("danger_accept_any_server_name", &self.unnamed)
            .field("danger_accept_any_certificate", &self.unverified)
            .finish()
    }
}
