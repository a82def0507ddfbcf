//! Certificates for the tests of TLS.

use super::Server;
use super::server::Secrets;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use redisson_lock::Tls;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key.
pub struct Identity {
    pub chain: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { chain, key: key.serialize_pem() }
    }

    pub fn serve(&self, server: &Identity, asks: bool) -> (Server, String) {
        let asks = if asks { ["--tls-auth-clients", "yes"].as_slice() } else { &[] };
        let (server, port) = Server::with_tls(&self.secrets(server), asks);
        (server, format!("rediss://127.0.0.1:{port}"))
    }

    pub fn secrets(&self, Identity { chain, key }: &Identity) -> Secrets {
        Secrets { authority: self.pem.clone(), chain: chain.clone(), key: key.clone() }
    }

    pub fn trusted(&self) -> Tls {
        Tls::new().certificate_authorities(self.pem.clone())
    }
}
