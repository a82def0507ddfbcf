//! How servers are known, and the client to them, where the connection is encrypted. What is done with it is the
//! connection's own business.

use std::fmt;

/// How a server is known to be the right one, and what it knows the client by, over TLS: for URLs that begin with `rediss://`.
/// By default a server needs a certificate for the host of its URL, signed by an authority that the operating system trusts.
///
/// Certificates and keys are PEM texts, as in the files that most tools write.
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
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only what these authorities signed is trusted, in the place of the operating system's.
    pub fn certificate_authorities(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { authorities: Some(pem.into()), ..self }
    }

    /// The client's certificate, with the chain that leads to its authority, and its private key. Default: none.
    pub fn identity(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((chain.into(), key.into())), ..self }
    }

    /// The name that the server's certificate must be for. Default: the host of the URL.
    pub fn server_name(self, name: impl Into<String>) -> Self {
        Self { server_name: Some(name.into()), ..self }
    }

    /// The versions of TLS that are offered: `TLSv1.2`, `TLSv1.3` or both. Default: both. Another name, or none, is
    /// [`Error::Misuse`](crate::Error::Misuse) of `connect`.
    pub fn protocols<I: Into<String>>(self, names: impl IntoIterator<Item = I>) -> Self {
        Self { protocols: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// The cipher suites that are offered, by the names of their IANA registry, such as `TLS_AES_256_GCM_SHA384` or
    /// `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`. Default: all that this crate has, which are those with forward secrecy and AEAD. A
    /// name that it does not have is left out with a warning; if none is left, `connect` fails with
    /// [`Error::Misuse`](crate::Error::Misuse).
    pub fn cipher_suites<I: Into<String>>(self, names: impl IntoIterator<Item = I>) -> Self {
        Self { cipher_suites: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Takes a certificate for any name, if an authority signed it that is trusted: what others call `CA_ONLY`. Whoever has one
    /// of that authority, for whatever name, can be the server to the client; a warning at each connection says so. For an
    /// authority that signs for these servers alone, given by [`certificate_authorities`](Self::certificate_authorities).
    pub fn danger_accept_any_server_name(self) -> Self {
        Self { unnamed: true, ..self }
    }

    /// Takes whatever certificate the server shows. Whoever can get between it and this client can then read all, be the server
    /// to the client, and learn its password; a warning at each connection says so. For trying things out only.
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
