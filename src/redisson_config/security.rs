//! The settings of TLS. One that is not understood is an error: the connection would be less safe than the file says.

use super::addresses::Way;
use super::file::Section;
use super::{Need, RedissonConfig};
use crate::config::tls::Tls;
use crate::error::Result;

impl RedissonConfig {
    /// Whom the client trusts, and by which protocols. Whether it takes a certificate for any name.
    pub(super) fn security(&mut self, section: &mut Section<'_>) -> Result<bool> {
        let stores = ["sslTruststore", "sslKeystore", "sslTrustManagerFactory", "sslKeyManagerFactory"];
        let stores: Vec<_> = stores.into_iter().filter(|key| section.take(key).is_some()).collect();
        let of_stores = ["sslTruststorePassword", "sslKeystorePassword", "sslKeystoreType"];
        let of_stores: Vec<_> = of_stores.into_iter().filter(|key| section.take(key).is_some()).collect();
        let mode = match section.text("sslVerificationMode")?.as_deref() {
            None | Some("STRICT") => None,
            Some("CA_ONLY" | "NONE") => Some("sslVerificationMode"),
            Some(_) => return Err(section.bad("sslVerificationMode", "is STRICT, CA_ONLY or NONE")),
        };
        let endpoint = section.switch("sslEnableEndpointIdentification")? == Some(false);
        let any_name = mode.or(endpoint.then_some("sslEnableEndpointIdentification"));
        let limits = self.limits(section)?;
        if self.way != Way::Tls {
            for key in stores.into_iter().chain(of_stores).chain(any_name).chain(limits) {
                self.warn(section.name(key) + ": is of no meaning for addresses without TLS");
            }
            return Ok(false);
        }
        if stores.is_empty() {
            for key in of_stores {
                self.warn(section.name(key) + ": is of no meaning without a key store");
            }
        }
        let also = match any_name {
            Some(key) => format!("; and `Tls::danger_accept_any_server_name` for {}", section.name(key)),
            None => String::new(),
        };
        for key in stores {
            let what = section.name(key)
                + ": Java's; give the certificates as PEM by `RedissonConfig::tls`, and `Tls::certificate_authorities` or `Tls::identity`"
                + &also;
            self.needs.push((Need::Tls, what));
        }
        if let Some(key) = any_name {
            self.warn(
                section.name(key)
                    + ": the name of the server is not verified, so that whoever has a certificate of a trusted authority can be the \
                       server; who signed it is verified, also for NONE: `RedissonConfig::tls` with \
                       `Tls::certificate_authorities` says whom to trust",
            );
        }
        Ok(any_name.is_some())
    }

    /// Takes the versions of TLS and the cipher suites; the keys of those that are there.
    fn limits(&mut self, section: &mut Section<'_>) -> Result<Vec<&'static str>> {
        let protocols = section.some_texts("sslProtocols")?;
        let suites = section.some_texts("sslCiphers")?;
        let mut there = Vec::new();
        if let Some(names) = protocols {
            let (taken, others): (Vec<_>, Vec<_>) =
                names.into_iter().partition(|name| ["TLSv1.2", "TLSv1.3"].contains(&name.as_str()));
            let old = ["TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello"];
            if taken.is_empty() || others.iter().any(|name| !old.contains(&name.as_str())) {
                return Err(section.bad("sslProtocols", "names TLSv1.2, TLSv1.3 or both here"));
            }
            if !others.is_empty() {
                self.warn(section.name("sslProtocols") + ": not offered here: " + &others.join(", "));
            }
            set_once(&mut self.protocols, taken).map_err(|why| section.bad("sslProtocols", why))?;
            there.push("sslProtocols");
        }
        if let Some(names) = suites {
            set_once(&mut self.cipher_suites, names).map_err(|why| section.bad("sslCiphers", why))?;
            there.push("sslCiphers");
        }
        Ok(there)
    }

    /// With the file's limits, but for those that `tls` has of its own.
    pub(super) fn limited(&self, mut tls: Tls) -> Tls {
        tls.protocols = tls.protocols.or_else(|| self.protocols.clone());
        tls.cipher_suites = tls.cipher_suites.or_else(|| self.cipher_suites.clone());
        tls
    }
}

/// What stands in two places has to be the same in both.
fn set_once(field: &mut Option<Vec<String>>, value: Vec<String>) -> Result<(), &'static str> {
    match field.replace(value) {
        Some(before) if field.as_ref() != Some(&before) => Err("stands in two places, and is not the same"),
        _ => Ok(()),
    }
}
