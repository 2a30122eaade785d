//! A certificate with its key, checked, as rustls takes them. Pure: bytes and time are arguments.

use std::fmt;
use std::sync::Arc;

use penstock_client::tls::pem::{encoding_fault, key_fault};
use penstock_net::link::NodeName;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::chain::{Defect, Found, Source, certificates, check_chain, check_time, roots};
use super::links;
use super::verifiers::ClientsOnly;

/// Whom a certificate is shown to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Clients. Each must show a certificate, if there are signers of such and nothing else tells
    /// who it is.
    Clients { needs_certificate: bool },
    /// Other nodes, by the node of this name.
    Links(NodeName),
}

/// What a server shows to the other side.
#[derive(Clone)]
pub(crate) struct Identity {
    /// For the ports of clients.
    pub(crate) config: Arc<ServerConfig>,
    /// What it shows where it connects: other nodes.
    pub(crate) dialing: Option<Arc<ClientConfig>>,
    /// For the admin port, where a certificate of the client is a proof and never a must.
    pub(crate) admin: Arc<ServerConfig>,
    /// When the first certificate of the chain ends, in seconds since 1970.
    pub(crate) expires_unix_s: u64,
}

impl Identity {
    /// From the texts of the files: the chain, its key, and those who sign certificates of the
    /// other side.
    ///
    /// # Errors
    /// [`Defect`] of the first thing that is wrong.
    pub(crate) fn read(
        chain: &[u8],
        key: &[u8],
        ca: Option<&[u8]>,
        purpose: Purpose,
        now_unix_s: u64,
    ) -> Result<Identity, Defect> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(chain, Source::Certificate)?;
        chain.iter().try_for_each(|it| check_time(it, now_unix_s))?;
        check_chain(&chain, &provider, now_unix_s)?;
        let of_key = |cause: &dyn fmt::Display| Defect::new(Source::Key, None, cause);
        let fault = encoding_fault(key).or_else(|| key_fault(key));
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match (error, fault) {
            (_, Some(fault)) => of_key(&fault),
            (rustls::pki_types::pem::Error::NoItemsFound, None) => {
                of_key(&"there is no private key in PEM (BEGIN PRIVATE KEY)")
            }
            (error, None) => of_key(&format_args!("the private key cannot be read: {error}")),
        })?;
        let roots = ca.map(|text| roots(text, now_unix_s)).transpose()?;
        let roots = roots.map(Arc::new);
        let expires = chain.iter().map(Found::expires_unix_s).min();
        let shown = Shown {
            provider,
            chain: chain.iter().map(|it| it.bytes.clone()).collect(),
            key,
        };
        let config = |needs_certificate| {
            let verifier = roots
                .as_ref()
                .map(|roots| shown.verifier(roots, purpose, needs_certificate));
            shown.config(verifier.transpose()?)
        };
        let (config, admin, dialing) = match (purpose, &roots) {
            (Purpose::Links(name), Some(roots)) => {
                let verifier = shown.verifier(roots, purpose, true)?;
                links::check_own(&chain, name, roots, verifier.as_ref(), now_unix_s)?;
                let Shown { chain, key, .. } = &shown;
                let made = links::dialing(chain.clone(), key.clone_key(), roots, &shown.provider);
                let dialing = Arc::new(made.map_err(|error| of_unusable(&error))?);
                let config = shown.config(Some(verifier))?;
                (Arc::clone(&config), config, Some(dialing))
            }
            (
                Purpose::Clients {
                    needs_certificate: true,
                },
                Some(_),
            ) => (config(true)?, config(false)?, None),
            _ => {
                let config = config(false)?;
                (Arc::clone(&config), config, None)
            }
        };
        Ok(Identity {
            config,
            admin,
            dialing,
            expires_unix_s: expires.expect("a chain has a certificate"),
        })
    }
}

/// What a server shows.
struct Shown {
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Shown {
    /// What judges the certificates of the other side, which must show one if one is needed.
    fn verifier(
        &self,
        roots: &Arc<RootCertStore>,
        purpose: Purpose,
        is_needed: bool,
    ) -> Result<Arc<dyn ClientCertVerifier>, Defect> {
        let (roots, provider) = (Arc::clone(roots), Arc::clone(&self.provider));
        let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
        let builder = match is_needed {
            true => builder,
            false => builder.allow_unauthenticated(),
        };
        let built = builder.build();
        let built = built.map_err(|it| Defect::new(Source::Ca, None, it))?;
        Ok(match purpose {
            Purpose::Clients { .. } => Arc::new(ClientsOnly(built)),
            Purpose::Links(_) => built,
        })
    }

    /// As rustls takes it.
    fn config(
        &self,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Result<Arc<ServerConfig>, Defect> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has suites of TLS 1.3");
        let builder = match verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let built = builder.with_single_cert(self.chain.clone(), self.key.clone_key());
        let mut config = built.map_err(|error| of_unusable(&error))?;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

/// A key and a certificate that do not go together.
fn of_unusable(error: &rustls::Error) -> Defect {
    let of_key = |cause: &dyn fmt::Display| Defect::new(Source::Key, None, cause);
    match error {
        rustls::Error::InconsistentKeys(_) => {
            of_key(&"the key is not that of the first certificate of the chain")
        }
        error => of_key(&format_args!("the private key cannot be used: {error}")),
    }
}

#[cfg(test)]
mod tests;
