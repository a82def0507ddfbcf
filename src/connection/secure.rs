//! TLS: the one place that names rustls.

use super::socket::Stream;
use crate::config::tls::Tls;
use crate::error::{Error, Result};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion,
};
use tracing::{debug, warn};

/// Makes a plain stream a secure one.
pub(crate) struct Connector {
    connector: TlsConnector,
    name: Option<ServerName<'static>>,
    /// What is told at each connection.
    danger: Option<&'static str>,
}

impl Connector {
    pub(super) fn new(tls: &Tls) -> Result<Self> {
        let bad = |what: &str, error: &dyn std::fmt::Display| Error::misuse(format!("TLS: {what}: {error}"));
        let provider = Arc::new(provider(tls)?);
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(tls)?)
            .map_err(|error| bad("the protocols and cipher suites do not fit together", &error))?;
        let mut danger = None;
        let config = if tls.unverified {
            danger = Some("the server's certificate is NOT verified: anybody may be at the other end");
            config
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Forgiving { provider, authorities: None }))
        } else {
            let mut roots = RootCertStore::empty();
            match &tls.authorities {
                Some(pem) => {
                    for certificate in certificates(pem, "the certificate authorities")? {
                        roots.add(certificate).map_err(|error| bad("a certificate authority", &error))?;
                    }
                }
                None => {
                    let system = rustls_native_certs::load_native_certs();
                    let (taken, _) = roots.add_parsable_certificates(system.certs);
                    if taken == 0 {
                        let why = system.errors.first().map_or("there are none".into(), ToString::to_string);
                        return Err(bad("the operating system's certificate authorities", &why));
                    }
                    debug!(taken, "certificate authorities of the operating system");
                }
            }
            if tls.unnamed {
                danger = Some(
                    "the server's name is NOT verified: anybody with a certificate of the authority may be at the other end",
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
            ServerName::try_from(name).map_err(|_| Error::misuse("TLS: the server name is no name of a host"))
        });
        Ok(Self { connector: Arc::new(config).into(), name: name.transpose()?, danger })
    }

    pub(super) async fn secure(&self, host: &str, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        if let Some(danger) = self.danger {
            warn!(host, "{danger}");
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let mut stream = self.connector.connect(name, stream).await?;
        // Only with its first answer does a server tell whether it trusts the client.
        stream.write_all(b"PING\r\n").await?;
        stream.flush().await?;
        while stream.read_u8().await? != b'\n' {}
        Ok(Box::new(stream))
    }
}

/// The versions that are offered.
fn versions(tls: &Tls) -> Result<Vec<&'static SupportedProtocolVersion>> {
    let Some(names) = &tls.protocols else { return Ok(rustls::ALL_VERSIONS.to_vec()) };
    let version = |name: &String| match name.as_str() {
        "TLSv1.2" => Ok(&TLS12),
        "TLSv1.3" => Ok(&TLS13),
        other => Err(Error::misuse(format!(
            "TLS: no protocol {other:?} here; there are \"TLSv1.2\" and \"TLSv1.3\""
        ))),
    };
    match names.as_slice() {
        [] => Err(Error::misuse("TLS: no protocol is named; there are \"TLSv1.2\" and \"TLSv1.3\"")),
        names => names.iter().map(version).collect(),
    }
}

/// With the cipher suites that are offered.
fn provider(tls: &Tls) -> Result<CryptoProvider> {
    let mut provider = ring::default_provider();
    let Some(names) = &tls.cipher_suites else { return Ok(provider) };
    // rustls marks those of TLS 1.3 by a number that their names do not have.
    let name = |suite: &SupportedCipherSuite| {
        suite.suite().as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1)
    };
    let known: Vec<String> = provider.cipher_suites.iter().map(name).collect();
    for unknown in names.iter().filter(|name| !known.contains(name)) {
        warn!(suite = ?unknown, "TLS: there is no such cipher suite here");
    }
    provider.cipher_suites.retain(|suite| names.contains(&name(suite)));
    match provider.cipher_suites.is_empty() {
        true => Err(Error::misuse(format!(
            "TLS: none of the cipher suites is known; there are {}",
            known.join(", ")
        ))),
        false => Ok(provider),
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    match CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Error::misuse(format!("TLS: {what}: no certificate in it; is it PEM?"))),
        Err(error) => Err(Error::misuse(format!("TLS: {what}: {error}"))),
    }
}

/// Why the two sides do not trust each other, and what to do about it, if that is what `error` is about.
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
                "connect by a name that the certificate is for, or give it by `Tls::server_name`"
            }
            // It is signed in the name of one that is trusted, but not by it.
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                "give the authority that signed the server's certificate by `Tls::certificate_authorities`"
            }
            _ => "the server needs another certificate",
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure,
        ) => "the server wants a certificate of the client that it trusts: give it by `Tls::identity`",
        rustls::Error::InvalidMessage(_) => "does the server speak TLS at this port? Else use redis://",
        _ => "server and client do not agree on TLS",
    };
    Some(format!("{error}: {advice}"))
}

/// Takes a certificate for any name that one of the authorities signed; without them any certificate. It does not let anybody
/// show one of which he has no key.
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
        // The name is what is looked at last, so that all else is good where only it is wrong.
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
