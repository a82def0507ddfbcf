//! TLS. No other file names rustls.

use super::socket::Stream;
use crate::config::tls::Tls;
use crate::error::{Error, Result};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};
use tracing::{debug, warn};

/// Adds TLS to a plain stream.
pub(crate) struct Connector {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
    /// The warning that is logged at each connection.
    danger: Option<&'static str>,
}

impl Connector {
    pub(super) fn new(tls: &Tls) -> Result<Self> {
        let provider = Arc::new(provider(tls)?);
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(tls)?)
            .map_err(|error| {
                Error::misuse(format!(
                    "TLS: no configured cipher suite fits a configured protocol ({error}): change `cipher_suites` or `protocols`"
                ))
            })?;
        let mut danger = None;
        let config = if tls.unverified {
            danger = Some("the server's certificate is NOT verified: anybody can impersonate the server");
            config
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Forgiving { provider, authorities: None }))
        } else {
            let roots = authorities(tls)?;
            if tls.unnamed {
                danger = Some(
                    "the server's name is NOT verified: anybody with a certificate of a trusted authority can impersonate the server",
                );
                let authorities =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                        .build()
                        .map_err(|error| bad("the certificate authorities", &error))?;
                config.dangerous().with_custom_certificate_verifier(Arc::new(Forgiving {
                    provider,
                    authorities: Some(authorities),
                }))
            } else {
                config.with_root_certificates(roots)
            }
        };
        let config = match &tls.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain, "the client's certificate")?;
                let key =
                    PrivateKeyDer::from_pem_slice(key).map_err(|error| bad("the client's key", &error))?;
                config
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| bad("the client's certificate", &error))?
            }
        };
        let name = tls.server_name.clone().map(|name| {
            ServerName::try_from(name).map_err(|_| {
                Error::misuse("TLS: the server name is not a host name: give `Tls::server_name` a DNS name or an IP address")
            })
        });
        Ok(Self { connector: Arc::new(config).into(), name: name.transpose()?, danger })
    }

    pub(super) async fn tls(&self, host: &str, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        if let Some(danger) = self.danger {
            warn!(host, "{danger}");
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let mut stream = self.connector.connect(name, stream).await?;
        // With TLS 1.3 a server refuses the client's certificate only after the handshake, in its first reply.
        stream.write_all(b"PING\r\n").await?;
        stream.flush().await?;
        while stream.read_u8().await? != b'\n' {}
        Ok(Box::new(stream))
    }
}

fn bad(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::misuse(format!("TLS: {what}: {error}"))
}

/// The certificate authorities to trust: the configured ones, or else the operating system's.
fn authorities(tls: &Tls) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    if let Some(pem) = &tls.authorities {
        for certificate in certificates(pem, "the certificate authorities")? {
            roots.add(certificate).map_err(|error| bad("a certificate authority", &error))?;
        }
        return Ok(roots);
    }
    let system = rustls_native_certs::load_native_certs();
    let (taken, _) = roots.add_parsable_certificates(system.certs);
    if taken == 0 {
        let why = system.errors.first().map_or("none found".into(), ToString::to_string);
        let why = format!("{why}: pass authorities with `Tls::certificate_authorities`");
        return Err(bad("the operating system's certificate authorities", &why));
    }
    debug!(taken, "loaded the operating system's certificate authorities");
    Ok(roots)
}

/// The protocol versions to offer.
fn versions(tls: &Tls) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let Some(names) = &tls.protocols else { return Ok(rustls::ALL_VERSIONS.to_vec()) };
    let version = |name: &String| match name.as_str() {
        "TLSv1.2" => Ok(&TLS12),
        "TLSv1.3" => Ok(&TLS13),
        other => {
            Err(Error::misuse(format!("TLS: unknown protocol {other:?}: use \"TLSv1.2\" or \"TLSv1.3\"")))
        }
    };
    match names.as_slice() {
        [] => Err(Error::misuse("TLS: the list of protocols is empty: use \"TLSv1.2\" or \"TLSv1.3\"")),
        names => names.iter().map(version).collect(),
    }
}

/// The crypto provider that the process has installed, or else that of a feature.
fn default_provider() -> Result<CryptoProvider> {
    if let Some(installed) = CryptoProvider::get_default() {
        return Ok(CryptoProvider::clone(installed));
    }
    #[cfg(feature = "ring")]
    return Ok(rustls::crypto::ring::default_provider());
    #[cfg(all(feature = "aws-lc-rs", not(feature = "ring")))]
    return Ok(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
    Err(Error::misuse(
        "TLS: there is no crypto provider: enable this crate's feature `ring` or `aws-lc-rs`, or install a provider of rustls",
    ))
}

/// The crypto provider, limited to the cipher suites to offer.
fn provider(tls: &Tls) -> Result<CryptoProvider> {
    let mut provider = default_provider()?;
    let Some(names) = &tls.cipher_suites else { return Ok(provider) };
    // rustls spells TLS 1.3 suites `TLS13_..`; their standard names begin with `TLS_`.
    let name = |suite: &SupportedCipherSuite| {
        suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
    };
    let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
    for unknown in names.iter().filter(|name| !known.contains(name)) {
        warn!(suite = ?unknown, "TLS: unknown cipher suite ignored");
    }
    provider.cipher_suites.retain(|suite| names.contains(&name(suite)));
    match provider.cipher_suites.is_empty() {
        true => Err(Error::misuse(format!(
            "TLS: none of the configured cipher suites is known: use some of {}",
            known.join(", ")
        ))),
        false => Ok(provider),
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(bad(what, &"no certificate found: pass it in PEM format")),
        Err(error) => Err(bad(what, &error)),
    }
}

/// Why the TLS handshake failed, with advice; `None` if `error` is not a TLS error.
pub(super) fn distrust(error: &io::Error) -> Option<String> {
    use CertificateError as Certificate;
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let advice = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired | Certificate::ExpiredContext { .. } => "renew the server's certificate",
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                "compare the clocks of server and client"
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                "connect to a name that the certificate is for, or set that name with `Tls::server_name`"
            }
            // BadSignature: the certificate names a trusted issuer, but another key signed it.
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "pass the authority that signed the server's certificate with `Tls::certificate_authorities`"
            }
            _ => "give the server another certificate",
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure,
        ) => "the server requires a client certificate that it trusts: pass one with `Tls::identity`",
        rustls::Error::InvalidMessage(_) => "if the server does not speak TLS at this port, use redis://",
        _ => "check that server and client have a TLS version and a cipher suite in common",
    };
    Some(format!("{error}: {advice}"))
}

/// Accepts a certificate of the authorities for any name; without authorities, any certificate. The server must still prove that
/// it has the certificate's private key.
#[derive(Debug)]
struct Forgiving {
    provider: Arc<CryptoProvider>,
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Forgiving {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        // The verifier checks the name last, so all other checks passed if the name is wrong.
        match authorities.verify_server_cert(certificate, chain, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
