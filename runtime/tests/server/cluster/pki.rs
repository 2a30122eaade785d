//! Certificates of the nodes of a test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{CertificateParams, SanType};

use super::nodes::Cluster;
use crate::tls::{Authority, Pair};

/// The id of each cluster of these tests.
pub const ID: &str = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";

/// The name of a node in its certificate.
pub fn node_name(node: u8, id: &str) -> String {
    format!("node-{node}.{id}.penstock")
}

/// A certificate with these names beside those of a host.
pub fn named(
    authority: &Authority,
    names: &[String],
    change: impl FnOnce(&mut CertificateParams),
) -> Pair {
    authority.signs_with("a node", |params| {
        for name in names {
            let name = name.as_str().try_into().expect("a name");
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        change(params);
    })
}

impl Cluster {
    /// The folder in which `penstock cluster certs` puts what it makes.
    pub fn certificates(&self) -> PathBuf {
        self.folder.join("certs")
    }

    fn certificate_file(&self, name: &str) -> String {
        self.certificates().join(name).display().to_string()
    }

    /// The text of such a file.
    pub fn certificate_text(&self, name: &str) -> String {
        fs::read_to_string(self.certificates().join(name)).expect("it was made")
    }

    /// The options with which a node has TLS on its links.
    pub fn tls(&self, node: u8) -> Vec<String> {
        self.tls_of(&format!("node-{node}"))
    }

    /// The same with a certificate and a key of this name.
    pub fn tls_of(&self, name: &str) -> Vec<String> {
        [
            "--cluster-tls-cert".to_string(),
            self.certificate_file(&format!("{name}.pem")),
            "--cluster-tls-key".to_string(),
            self.certificate_file(&format!("{name}.key")),
            "--cluster-tls-ca".to_string(),
            self.certificate_file("ca.pem"),
        ]
        .to_vec()
    }

    /// Puts a certificate of this name beside the others.
    pub fn put(&self, name: &str, certificate: &str, key: &str) {
        let path = |end: &str| self.certificates().join(format!("{name}.{end}"));
        fs::create_dir_all(self.certificates()).expect("made");
        fs::write(path("pem"), certificate).expect("written");
        fs::write(path("key"), key).expect("written");
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(path("key"), private).expect("mine");
    }
}

/// Words as a command takes them.
pub fn words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
