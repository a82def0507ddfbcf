//! The TLS settings. An unknown one is an error, because the connection would be less safe than the file says.

use super::addresses::Transport;
use super::file::Section;
use super::{Need, RedissonConfig};
use crate::config::tls::Tls;
use crate::error::Result;

impl RedissonConfig {
    /// Reads the trust settings and the limits. Returns whether the client accepts a certificate for any name.
    pub(super) fn security(&mut self, section: &mut Section<'_>) -> Result<bool> {
        let stores = ["sslTruststore", "sslKeystore", "sslTrustManagerFactory", "sslKeyManagerFactory"];
        let stores: Vec<_> = stores.into_iter().filter(|key| section.take(key).is_some()).collect();
        let of_stores = ["sslTruststorePassword", "sslKeystorePassword", "sslKeystoreType"];
        let of_stores: Vec<_> = of_stores.into_iter().filter(|key| section.take(key).is_some()).collect();
        let mode = match section.text("sslVerificationMode")?.as_deref() {
            None | Some("STRICT") => None,
            Some("CA_ONLY" | "NONE") => Some("sslVerificationMode"),
            Some(_) => return Err(section.bad("sslVerificationMode", "must be STRICT, CA_ONLY or NONE")),
        };
        let endpoint = section.switch("sslEnableEndpointIdentification")? == Some(false);
        let any_name = mode.or(endpoint.then_some("sslEnableEndpointIdentification"));
        let limits = self.limits(section)?;
        if self.transport != Transport::Tls {
            for key in stores.into_iter().chain(of_stores).chain(any_name).chain(limits) {
                self.warn(section.name(key) + ": has no effect on addresses without TLS");
            }
            return Ok(false);
        }
        if stores.is_empty() {
            for key in of_stores {
                self.warn(section.name(key) + ": has no effect without a key store");
            }
        }
        let also = match any_name {
            Some(key) => {
                format!("; also call `Tls::danger_accept_any_server_name` for {}", section.name(key))
            }
            None => String::new(),
        };
        for key in stores {
            let what = section.name(key)
                + ": Java's stores cannot be read; pass the certificates as PEM to `RedissonConfig::tls`, with \
                   `Tls::certificate_authorities` or `Tls::identity`"
                + &also;
            self.needs.push((Need::Tls, what));
        }
        if let Some(key) = any_name {
            self.warn(
                section.name(key)
                    + ": the server's name is not verified, so anyone with a certificate of a trusted authority can impersonate \
                       the server; the authority is verified, even for NONE: choose it with `RedissonConfig::tls` and \
                       `Tls::certificate_authorities`",
            );
        }
        Ok(any_name.is_some())
    }

    /// Takes the TLS versions and the cipher suites. Returns the keys that are set.
    fn limits(&mut self, section: &mut Section<'_>) -> Result<Vec<&'static str>> {
        let protocols = section.non_empty_texts("sslProtocols")?;
        let suites = section.non_empty_texts("sslCiphers")?;
        let mut set = Vec::new();
        if let Some(names) = protocols {
            let (taken, others): (Vec<_>, Vec<_>) =
                names.into_iter().partition(|name| ["TLSv1.2", "TLSv1.3"].contains(&name.as_str()));
            let old = ["TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello"];
            if taken.is_empty() || others.iter().any(|name| !old.contains(&name.as_str())) {
                return Err(section.bad("sslProtocols", "must name TLSv1.2, TLSv1.3 or both"));
            }
            if !others.is_empty() {
                self.warn(
                    section.name("sslProtocols") + ": old versions are not offered: " + &others.join(", "),
                );
            }
            set_once(&mut self.protocols, taken).map_err(|why| section.bad("sslProtocols", why))?;
            set.push("sslProtocols");
        }
        if let Some(names) = suites {
            set_once(&mut self.cipher_suites, names).map_err(|why| section.bad("sslCiphers", why))?;
            set.push("sslCiphers");
        }
        Ok(set)
    }

    /// Adds the file's limits where `tls` has none of its own.
    pub(super) fn limited(&self, mut tls: Tls) -> Tls {
        tls.protocols = tls.protocols.or_else(|| self.protocols.clone());
        tls.cipher_suites = tls.cipher_suites.or_else(|| self.cipher_suites.clone());
        tls
    }
}

/// Refuses a second value that differs from the first.
fn set_once(field: &mut Option<Vec<String>>, value: Vec<String>) -> Result<(), &'static str> {
    match field.replace(value) {
        Some(before) if field.as_ref() != Some(&before) => Err("is set in two places to different values"),
        _ => Ok(()),
    }
}
