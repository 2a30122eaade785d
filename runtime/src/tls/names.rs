//! The names in a certificate.

use std::sync::Arc;

use penstock_net::link::NodeName;
use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Bytes of a name in a certificate, at most (X.520).
const NAME_BYTES_MAX: usize = 64;

/// The common name of who a certificate is for. `None` without one, or with one that is too long.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let names = certificate.tbs_certificate.subject.0;
    let mut names = names.iter().flat_map(|them| them.0.iter());
    let value = &names.find(|it| it.oid == CN)?.value;
    let name = match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str(),
        _ => return None,
    };
    (1..=NAME_BYTES_MAX)
        .contains(&name.len())
        .then(|| name.into())
}

/// The names of a certificate that are kept for nodes. `None` if it cannot be read.
fn kept_names(certificate: &CertificateDer<'_>) -> Option<Vec<String>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let found = certificate.tbs_certificate.get::<SubjectAltName>().ok()?;
    let names = found.map(|(_, names)| names.0).unwrap_or_default();
    let names = names.into_iter().filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_string()),
        _ => None,
    });
    Some(names.filter(|it| NodeName::is_kept_for_nodes(it)).collect())
}

/// The node that a certificate names. `None` unless it names exactly one.
pub(crate) fn node_name(certificate: &CertificateDer<'_>) -> Option<NodeName> {
    match kept_names(certificate)?.as_slice() {
        [name] => NodeName::parse(name),
        _ => None,
    }
}

/// Whether a certificate has no name that is kept for nodes.
pub(super) fn is_of_no_node(certificate: &CertificateDer<'_>) -> bool {
    kept_names(certificate).is_some_and(|names| names.is_empty())
}
