//! The certificate authority of a cluster: what it signs, and its own certificate read back. Pure:
//! time is an argument, files are texts.

use std::time::Duration;

use penstock_client::tls::pem::{encoding_fault, key_fault};
use penstock_net::link::NodeName;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use zeroize::Zeroizing;

use crate::tls::common_name;

/// How long the certificate of the authority holds.
pub(crate) const AUTHORITY_DAYS: u32 = 3650;

/// Clocks of two nodes may differ by so much when a certificate is new.
const CLOCKS_DIFFER_S: u64 = 3600;

pub(crate) const DAY_S: u64 = 86_400;

/// Signs the certificates of one cluster.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) expires_unix_s: u64,
}

/// A certificate and its key, in PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: Zeroizing<String>,
    pub(crate) expires_unix_s: u64,
}

/// Who a certificate is for.
pub(crate) enum Subject<'a> {
    /// A node, and the hosts under which clients find it.
    Node(NodeName, &'a [String]),
    /// A client of this name.
    Client(&'a str),
}

impl Authority {
    /// A new one, with its own certificate.
    ///
    /// # Errors
    /// What could not be done.
    pub(crate) fn make(
        cluster_id: &[u8; 16],
        now_unix_s: u64,
    ) -> Result<(Authority, Signed), rcgen::Error> {
        let mut params = params_of(cluster_id);
        let expires_unix_s = now_unix_s + u64::from(AUTHORITY_DAYS) * DAY_S;
        set_time(&mut params, now_unix_s, expires_unix_s);
        let key = KeyPair::generate()?;
        let signed = Signed {
            certificate: params.self_signed(&key)?.pem(),
            key: Zeroizing::new(key.serialize_pem()),
            expires_unix_s,
        };
        let authority = Authority {
            issuer: Issuer::new(params, key),
            expires_unix_s,
        };
        Ok((authority, signed))
    }

    /// The one that was made before, from its two files.
    ///
    /// # Errors
    /// Why it is of no use, without the names of the files.
    pub(crate) fn read(
        certificate: &[u8],
        key: &str,
        cluster_id: &[u8; 16],
        now_unix_s: u64,
    ) -> Result<Authority, String> {
        if let Some(fault) = encoding_fault(certificate) {
            return Err(fault.into());
        }
        let der = CertificateDer::from_pem_slice(certificate)
            .map_err(|error| format!("there is no certificate in PEM: {error}"))?;
        let read = Certificate::from_der(&der)
            .map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let (name, expected) = (common_name(&der), name_of(cluster_id));
        if name.as_deref() != Some(&expected) {
            let name = name.as_deref().unwrap_or("nobody");
            return Err(format!(
                "it is the certificate of {name}, and that of {expected} is wanted"
            ));
        }
        let tbs = &read.tbs_certificate;
        let expires_unix_s = tbs.validity.not_after.to_unix_duration().as_secs();
        if expires_unix_s <= now_unix_s {
            let ended = tbs.validity.not_after;
            return Err(format!("it ended at {ended}"));
        }
        let fault = encoding_fault(key.as_bytes()).or_else(|| key_fault(key.as_bytes()));
        let key = KeyPair::from_pem(key).map_err(|error| {
            let cause = fault.map_or_else(|| error.to_string(), str::to_string);
            format!("its private key cannot be read: {cause}")
        })?;
        let public = &tbs.subject_public_key_info.subject_public_key;
        if public.raw_bytes() != key.public_key_raw() {
            return Err("the private key is not that of the certificate".into());
        }
        Ok(Authority {
            issuer: Issuer::new(params_of(cluster_id), key),
            expires_unix_s,
        })
    }

    /// A new key with its certificate, for so many days or as long as the authority has.
    ///
    /// # Errors
    /// What could not be done, above all a host that no certificate can name.
    pub(crate) fn sign(
        &self,
        subject: &Subject<'_>,
        days: u32,
        now_unix_s: u64,
    ) -> Result<Signed, rcgen::Error> {
        let (name, names, purposes) = match subject {
            Subject::Node(node, hosts) => {
                let node = node.to_string();
                let mut names = vec![node.clone()];
                names.extend_from_slice(hosts);
                let both = vec![
                    ExtendedKeyUsagePurpose::ServerAuth,
                    ExtendedKeyUsagePurpose::ClientAuth,
                ];
                (node, names, both)
            }
            Subject::Client(name) => {
                let purposes = vec![ExtendedKeyUsagePurpose::ClientAuth];
                ((*name).to_string(), Vec::new(), purposes)
            }
        };
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, &name[..name.len().min(64)]);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes;
        params.use_authority_key_identifier_extension = true;
        let expires_unix_s = self
            .expires_unix_s
            .min(now_unix_s + u64::from(days) * DAY_S);
        set_time(&mut params, now_unix_s, expires_unix_s);
        let key = KeyPair::generate()?;
        Ok(Signed {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: Zeroizing::new(key.serialize_pem()),
            expires_unix_s,
        })
    }
}

/// What the authority of a cluster is called.
fn name_of(cluster_id: &[u8; 16]) -> String {
    let hex: String = cluster_id.iter().map(|it| format!("{it:02x}")).collect();
    format!("penstock cluster {hex}")
}

fn params_of(cluster_id: &[u8; 16]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, name_of(cluster_id));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn set_time(params: &mut CertificateParams, now_unix_s: u64, expires_unix_s: u64) {
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now_unix_s.saturating_sub(CLOCKS_DIFFER_S));
    params.not_after = epoch + Duration::from_secs(expires_unix_s);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_UNIX_S: u64 = 1_795_000_000;
    const ID: [u8; 16] = [0xC1; 16];

    #[test]
    fn an_authority_is_read_back_and_signs_for_as_long_as_it_holds_itself() {
        let (made, own) = Authority::make(&ID, NOW_UNIX_S).expect("made");
        let read = |now| Authority::read(own.certificate.as_bytes(), &own.key, &ID, now);
        let again = read(NOW_UNIX_S).map_err(|message| panic!("{message}"));
        let again = again.expect("sound");
        assert_eq!(again.expires_unix_s, made.expires_unix_s);
        let late = made.expires_unix_s - 3 * DAY_S;
        let client = again.sign(&Subject::Client("till"), 365, late);
        assert_eq!(client.expect("signed").expires_unix_s, made.expires_unix_s);
        let message = read(made.expires_unix_s).err().expect("it has ended");
        assert!(message.contains("it ended at 2036"), "{message}");
    }

    #[test]
    fn the_authority_of_another_cluster_and_the_key_of_another_one_are_refused() {
        let (_, own) = Authority::make(&ID, NOW_UNIX_S).expect("made");
        let (_, other) = Authority::make(&ID, NOW_UNIX_S).expect("made");
        let read = |certificate: &str, key: &str, id| {
            let read = Authority::read(certificate.as_bytes(), key, id, NOW_UNIX_S);
            read.err().expect("refused")
        };
        let message = read(&own.certificate, &own.key, &[8; 16]);
        assert!(message.contains("penstock cluster 0808"), "{message}");
        let message = read(&own.certificate, &other.key, &ID);
        assert!(message.contains("not that of the certificate"), "{message}");
        let message = read(&own.key, &own.key, &ID);
        assert!(message.contains("no certificate in PEM"), "{message}");
    }
}
