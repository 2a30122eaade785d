//! A certificate with its key, checked, as rustls takes them. Pure: bytes and time are arguments.

use std::fmt;
use std::sync::Arc;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Decode, Tagged};

/// Bytes of a name in a certificate, at most (X.520).
const NAME_BYTES_MAX: usize = 64;

/// What a server shows to its clients.
#[derive(Clone)]
pub(crate) struct Identity {
    /// For the ports of clients.
    pub(crate) config: Arc<ServerConfig>,
    /// For the admin port, where a certificate of the client is a proof and never a must.
    pub(crate) admin: Arc<ServerConfig>,
    /// When the first certificate of the chain ends, in seconds since 1970.
    pub(crate) expires_unix_s: u64,
}

/// The file that something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Certificate,
    Key,
    ClientCa,
}

/// Why files make no identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) source: Source,
    /// The line, from 1, of what is wrong, if it is one thing.
    pub(crate) line: Option<usize>,
    pub(crate) cause: String,
}

impl Defect {
    pub(super) fn new(source: Source, line: Option<usize>, cause: impl fmt::Display) -> Defect {
        let cause = cause.to_string();
        Defect {
            source,
            line,
            cause,
        }
    }
}

/// One certificate of a file.
struct Found {
    line: usize,
    bytes: CertificateDer<'static>,
    certificate: Certificate,
}

impl Found {
    fn subject(&self) -> String {
        self.certificate.tbs_certificate.subject.to_string()
    }

    fn issuer(&self) -> String {
        self.certificate.tbs_certificate.issuer.to_string()
    }

    fn expires_unix_s(&self) -> u64 {
        let validity = self.certificate.tbs_certificate.validity;
        validity.not_after.to_unix_duration().as_secs()
    }
}

impl Identity {
    /// From the texts of the files: the chain, its key, and those who sign certificates of clients.
    /// `needs_certificate`: each client must show one.
    ///
    /// # Errors
    /// [`Defect`] of the first thing that is wrong.
    pub(crate) fn read(
        chain: &[u8],
        key: &[u8],
        client_ca: Option<&[u8]>,
        needs_certificate: bool,
        now_unix_s: u64,
    ) -> Result<Identity, Defect> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(chain, Source::Certificate)?;
        chain.iter().try_for_each(|it| check_time(it, now_unix_s))?;
        check_chain(&chain, &provider, now_unix_s)?;
        let of_key = |cause: &dyn fmt::Display| Defect::new(Source::Key, None, cause);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            rustls::pki_types::pem::Error::NoItemsFound => {
                of_key(&"there is no private key in PEM (BEGIN PRIVATE KEY)")
            }
            error => of_key(&format_args!("the private key cannot be read: {error}")),
        })?;
        let expires = chain.iter().map(Found::expires_unix_s).min();
        let chain = chain.into_iter().map(|it| it.bytes).collect();
        let roots = client_ca.map(|text| roots(text, now_unix_s)).transpose()?;
        let shown = Shown {
            provider,
            chain,
            key,
            roots: roots.map(Arc::new),
        };
        let config = shown.config(needs_certificate)?;
        let admin = match needs_certificate && client_ca.is_some() {
            true => shown.config(false)?,
            false => Arc::clone(&config),
        };
        Ok(Identity {
            config,
            admin,
            expires_unix_s: expires.expect("a chain has a certificate"),
        })
    }
}

/// What a server shows, and whose certificates it takes.
struct Shown {
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: Option<Arc<RootCertStore>>,
}

impl Shown {
    /// As rustls takes it; `needs_certificate`: each client must show one, if there are roots.
    fn config(&self, needs_certificate: bool) -> Result<Arc<ServerConfig>, Defect> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has suites of TLS 1.3");
        let builder = match &self.roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let (roots, provider) = (Arc::clone(roots), Arc::clone(&self.provider));
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match needs_certificate {
                    true => verifier,
                    false => verifier.allow_unauthenticated(),
                };
                let built = verifier.build();
                let built = built.map_err(|it| Defect::new(Source::ClientCa, None, it))?;
                builder.with_client_cert_verifier(built)
            }
        };
        let mut config = builder
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|error| {
                let cause = match error {
                    rustls::Error::InconsistentKeys(_) => {
                        "the key is not that of the first certificate of the chain".to_string()
                    }
                    error => format!("the private key cannot be used: {error}"),
                };
                Defect::new(Source::Key, None, cause)
            })?;
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

/// All certificates of a text, at least one.
fn certificates(text: &[u8], source: Source) -> Result<Vec<Found>, Defect> {
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let begins = lines.filter(|(_, line)| line.trim_ascii().ends_with(b"BEGIN CERTIFICATE-----"));
    let mut begins = begins.map(|(number, _)| number + 1);
    let mut found = Vec::new();
    for bytes in CertificateDer::pem_slice_iter(text) {
        let line = begins.next().unwrap_or(1);
        let defect = |cause: &dyn fmt::Display| Defect::new(source, Some(line), cause);
        let bytes =
            bytes.map_err(|error| defect(&format_args!("the certificate is no PEM: {error}")))?;
        let certificate = Certificate::from_der(&bytes)
            .map_err(|error| defect(&format_args!("the certificate cannot be read: {error}")))?;
        found.push(Found {
            line,
            bytes,
            certificate,
        });
    }
    if found.is_empty() {
        let cause = "there is no certificate in PEM (BEGIN CERTIFICATE)";
        return Err(Defect::new(source, None, cause));
    }
    Ok(found)
}

fn check_time(found: &Found, now_unix_s: u64) -> Result<(), Defect> {
    let validity = found.certificate.tbs_certificate.validity;
    let (begins, ends) = (validity.not_before, validity.not_after);
    let cause = if found.expires_unix_s() < now_unix_s {
        format!("the certificate of {} ended at {ends}", found.subject())
    } else if begins.to_unix_duration().as_secs() > now_unix_s {
        let subject = found.subject();
        format!("the certificate of {subject} is valid from {begins} on, which is not yet")
    } else {
        return Ok(());
    };
    Err(Defect::new(Source::Certificate, Some(found.line), cause))
}

/// Each certificate must be signed by the next one.
fn check_chain(chain: &[Found], provider: &CryptoProvider, now_unix_s: u64) -> Result<(), Defect> {
    let defect =
        |it: &Found, cause: String| Err(Defect::new(Source::Certificate, Some(it.line), cause));
    for pair in chain.windows(2) {
        if pair[0].certificate.tbs_certificate.issuer != pair[1].certificate.tbs_certificate.subject
        {
            let cause = format!(
                "the certificate of {} is signed by {}, and the next one in the file is that of \
                 {}: a certificate between them is missing, or the order is wrong",
                pair[0].subject(),
                pair[0].issuer(),
                pair[1].subject()
            );
            return defect(&pair[0], cause);
        }
    }
    let [first, between @ .., last] = chain else {
        return Ok(());
    };
    let mut roots = RootCertStore::empty();
    if let Err(error) = roots.add(last.bytes.clone()) {
        return defect(last, format!("the certificate signs no others: {error}"));
    }
    let between: Vec<_> = between.iter().map(|it| it.bytes.clone()).collect();
    let verified = ParsedCertificate::try_from(&first.bytes).and_then(|parsed| {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_unix_s));
        let algorithms = provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &between, now, algorithms)
    });
    match verified {
        Ok(()) => Ok(()),
        Err(error) => defect(first, format!("the chain does not hold: {error}")),
    }
}

/// Those who sign certificates of clients.
fn roots(text: &[u8], now_unix_s: u64) -> Result<RootCertStore, Defect> {
    let mut roots = RootCertStore::empty();
    for found in certificates(text, Source::ClientCa)? {
        check_time(&found, now_unix_s).map_err(|defect| Defect {
            source: Source::ClientCa,
            ..defect
        })?;
        let added = roots.add(found.bytes);
        added.map_err(|error| {
            let cause = format!("the certificate signs no others: {error}");
            Defect::new(Source::ClientCa, Some(found.line), cause)
        })?;
    }
    Ok(roots)
}

/// The common name of who a certificate is for. `None` without one, or with one that is too long.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let names = certificate.tbs_certificate.subject.0;
    let mut names = names.iter().flat_map(|them| them.0.iter());
    let value = &names.find(|it| it.oid == CN)?.value;
    let name = match value.tag() {
        x509_cert::der::Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str(),
        x509_cert::der::Tag::PrintableString => {
            value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str()
        }
        _ => return None,
    };
    (1..=NAME_BYTES_MAX)
        .contains(&name.len())
        .then(|| name.into())
}

#[cfg(test)]
mod tests;
