//! What a node shows to other nodes, checked as they will check it.

use std::sync::Arc;
use std::time::Duration;

use penstock_net::link::NodeName;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore};

use super::chain::{Defect, Found, Source};
use super::names::node_name;

/// The name of a node as TLS takes it.
pub(crate) fn server_name(name: NodeName) -> ServerName<'static> {
    let name = ServerName::try_from(name.to_string());
    name.expect("letters, digits, dots and a hyphen are a DNS name")
}

/// The other nodes are to take the own certificate, where they connect and where they listen.
pub(super) fn check_own(
    chain: &[Found],
    name: NodeName,
    roots: &Arc<RootCertStore>,
    verifier: &dyn ClientCertVerifier,
    now_unix_s: u64,
) -> Result<(), Defect> {
    let (first, between) = chain.split_first().expect("a chain has a certificate");
    let defect = |cause: String| Defect::new(Source::Certificate, Some(first.line), cause);
    match node_name(&first.bytes) {
        Some(it) if it == name => {}
        Some(other) => {
            return Err(defect(format!(
                "the certificate is that of {other}, and this is {name}"
            )));
        }
        None => {
            return Err(defect(format!(
                "the certificate of {} does not name one node of a cluster: {name} is wanted, as \
                 `penstock cluster certs` writes it",
                first.subject()
            )));
        }
    }
    let between: Vec<CertificateDer<'_>> = between.iter().map(|it| it.bytes.clone()).collect();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now_unix_s));
    let provider = Arc::new(ring::default_provider());
    let of_source = WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), provider)
        .build()
        .map_err(|error| Defect::new(Source::Ca, None, error))?;
    let by_source =
        of_source.verify_server_cert(&first.bytes, &between, &server_name(name), &[], now);
    let by_destination = verifier.verify_client_cert(&first.bytes, &between, now);
    by_source
        .map(drop)
        .and(by_destination.map(drop))
        .map_err(|error| {
            defect(format!(
                "the other nodes would refuse the certificate: {error}; cluster_tls_ca has to have \
                 who signed it, or the file those between"
            ))
        })
}

/// What a node shows where it connects, and whom it takes there.
pub(super) fn dialing(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has suites of TLS 1.3")
        .with_root_certificates(Arc::clone(roots))
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(config)
}
