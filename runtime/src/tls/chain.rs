//! Certificates of a file, read and checked. Pure: bytes and time are arguments.

use std::fmt;

use penstock_client::tls::pem::encoding_fault;
use rustls::RootCertStore;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// The file that something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Certificate,
    Key,
    Ca,
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
pub(super) struct Found {
    pub(super) line: usize,
    pub(super) bytes: CertificateDer<'static>,
    certificate: Certificate,
}

impl Found {
    pub(super) fn subject(&self) -> String {
        self.certificate.tbs_certificate.subject.to_string()
    }

    fn issuer(&self) -> String {
        self.certificate.tbs_certificate.issuer.to_string()
    }

    pub(super) fn expires_unix_s(&self) -> u64 {
        let validity = self.certificate.tbs_certificate.validity;
        validity.not_after.to_unix_duration().as_secs()
    }
}

/// All certificates of a text, at least one.
pub(super) fn certificates(text: &[u8], source: Source) -> Result<Vec<Found>, Defect> {
    if let Some(fault) = encoding_fault(text) {
        return Err(Defect::new(source, Some(1), fault));
    }
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

pub(super) fn check_time(found: &Found, now_unix_s: u64) -> Result<(), Defect> {
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
pub(super) fn check_chain(
    chain: &[Found],
    provider: &CryptoProvider,
    now_unix_s: u64,
) -> Result<(), Defect> {
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

/// Those who sign certificates of the other side.
pub(super) fn roots(text: &[u8], now_unix_s: u64) -> Result<RootCertStore, Defect> {
    let mut roots = RootCertStore::empty();
    for found in certificates(text, Source::Ca)? {
        check_time(&found, now_unix_s).map_err(|defect| Defect {
            source: Source::Ca,
            ..defect
        })?;
        let added = roots.add(found.bytes);
        added.map_err(|error| {
            let cause = format!("the certificate signs no others: {error}");
            Defect::new(Source::Ca, Some(found.line), cause)
        })?;
    }
    Ok(roots)
}
