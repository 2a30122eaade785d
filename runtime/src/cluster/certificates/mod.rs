//! The files of certificates that `penstock cluster certs` writes: the authority once, the nodes of
//! the cluster's file and clients as often as somebody asks.

mod authority;

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_net::link::NodeName;

use crate::cluster::certificates::authority::{Authority, Signed, Subject};
use crate::cluster::plan::file::{ClusterFile, ClusterNode, numbers_of};
use crate::cluster::plan::home::PlanPlace;
use crate::cluster::plan::placement::text_of;
use crate::cluster::plan::replacing::{beside, replace, write_new};
use crate::system::private_file::read_private;

/// The key of the authority is no longer than this.
const KEY_BYTES_MAX: usize = 64 << 10;
/// Bytes of the name of a client, at most: so many take certificates and the users' file.
const CLIENT_NAME_BYTES_MAX: usize = 64;
/// A certificate is for all to read, and its key for its owner.
const PUBLIC: u32 = 0o644;
const PRIVATE: u32 = 0o600;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct CertificateOrder {
    /// Where the files are, and are written.
    pub folder: PathBuf,
    /// These nodes; all of the file if neither nodes nor clients are named.
    pub nodes: Vec<u8>,
    /// Further hosts of nodes.
    pub hosts: Vec<(u8, String)>,
    /// Clients, by their names.
    pub clients: Vec<String>,
    /// How long certificates of nodes and clients hold.
    pub days: u32,
}

/// A certificate that was written.
#[derive(Clone, Debug)]
pub struct MadeCertificate {
    /// For people: `node 3`.
    pub whose: String,
    /// Its file; the key stands beside it.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
    /// When it ends, in seconds since 1970.
    pub expires_unix_s: u64,
}

/// Why certificates are not written, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateError(String);

impl fmt::Display for CertificateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CertificateError {}

fn failed(path: &Path, cause: &dyn fmt::Display) -> CertificateError {
    CertificateError(format!("{}: {cause}", path.display()))
}

/// Writes what is asked for: first the authority, if there is none yet.
///
/// # Errors
/// [`CertificateError`]. What is wrong with the order is found before anything is written.
pub fn make_certificates(
    place: &PlanPlace,
    order: &CertificateOrder,
) -> Result<Vec<MadeCertificate>, CertificateError> {
    let cluster = text_of(place).and_then(|text| ClusterFile::of(place, text));
    let cluster = cluster.map_err(|error| CertificateError(error.to_string()))?;
    let nodes = nodes_of(&cluster, order)?;
    check_clients(&order.clients)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_unix_s = now.map_or(0, |it| it.as_secs());
    fs::create_dir_all(&order.folder).map_err(|error| failed(&order.folder, &error))?;
    let mut made = Vec::new();
    let authority = authority(&cluster.cluster_id, &order.folder, now_unix_s, &mut made)?;
    let mut sign = |whose: String, name: &str, subject: &Subject<'_>| {
        let signed = authority.sign(subject, order.days, now_unix_s);
        let signed = signed.map_err(|error| CertificateError(format!("{whose}: {error}")))?;
        made.push(write(&order.folder, whose, name, &signed)?);
        Ok(())
    };
    for (node, hosts) in &nodes {
        let name = NodeName {
            node: *node,
            cluster_id: cluster.cluster_id,
        };
        let subject = Subject::Node(name, hosts);
        sign(format!("node {node}"), &format!("node-{node}"), &subject)?;
    }
    for name in &order.clients {
        let subject = Subject::Client(name);
        sign(
            format!("client {name}"),
            &format!("client-{name}"),
            &subject,
        )?;
    }
    Ok(made)
}

/// The nodes that are asked for, with the hosts that their certificates name.
fn nodes_of(
    cluster: &ClusterFile,
    order: &CertificateOrder,
) -> Result<Vec<(u8, Vec<String>)>, CertificateError> {
    let known = |number: u8, option: &str| {
        cluster.node(number).ok_or_else(|| {
            let known = numbers_of(&cluster.nodes);
            CertificateError(format!(
                "{option} {number}: no [[node]] of the cluster's file has that number: there are \
                 {known}"
            ))
        })
    };
    for (number, host) in &order.hosts {
        known(*number, "--name")?;
        if NodeName::is_kept_for_nodes(host) || host.is_empty() {
            return Err(CertificateError(format!(
                "--name {number}={host}: names that end with .penstock are those of nodes, which \
                 certificates get by themselves"
            )));
        }
    }
    let mut wanted = order.nodes.clone();
    if wanted.is_empty() && order.clients.is_empty() {
        wanted = cluster.nodes.iter().map(|it| it.number).collect();
    }
    let nodes = wanted.into_iter().map(|number| {
        let node = known(number, "--node")?;
        let more = order.hosts.iter().filter(|(it, _)| *it == number);
        let mut hosts = hosts_of(node);
        hosts.extend(more.map(|(_, host)| host.clone()));
        let mut seen = std::collections::BTreeSet::new();
        hosts.retain(|host| seen.insert(host.clone()));
        Ok((number, hosts))
    });
    nodes.collect()
}

/// Where clients and other nodes find it, and where itself does.
fn hosts_of(node: &ClusterNode) -> Vec<String> {
    let addresses = [Some(&node.clients), node.resp.as_ref()];
    let mut hosts: Vec<String> = Vec::new();
    for text in addresses.into_iter().flatten() {
        let host = text.rsplit_once(':').map_or(&text[..], |(host, _)| host);
        hosts.push(host.trim_matches(['[', ']']).to_string());
    }
    hosts.push(node.links.ip().to_string());
    hosts.push("localhost".into());
    let own = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    hosts.extend(own.map(|it| it.to_string()));
    hosts
}

fn check_clients(clients: &[String]) -> Result<(), CertificateError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_name = |name: &String| {
        let is_long = name.len() > CLIENT_NAME_BYTES_MAX;
        !name.is_empty() && !is_long && name.bytes().all(is_good)
    };
    match clients.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => Err(CertificateError(format!(
            "--client {}: a name has 1 to {CLIENT_NAME_BYTES_MAX} of the characters A-Z a-z 0-9 _ \
             . -",
            name.escape_debug()
        ))),
    }
}

/// The authority of the folder; a new one if it has none.
fn authority(
    cluster_id: &[u8; 16],
    folder: &Path,
    now_unix_s: u64,
    made: &mut Vec<MadeCertificate>,
) -> Result<Authority, CertificateError> {
    let (certificate, key) = (folder.join("ca.pem"), folder.join("ca.key"));
    let text = match fs::read(&certificate) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !key.exists() => {
            let done = Authority::make(cluster_id, now_unix_s);
            let (authority, own) = done.map_err(|error| failed(&certificate, &error))?;
            let whose = "CA of the cluster".to_string();
            made.push(write(folder, whose, "ca", &own)?);
            return Ok(authority);
        }
        Err(error) => return Err(failed(&certificate, &error)),
    };
    let secret = read_private(&key, KEY_BYTES_MAX).map_err(|error| match error.is_missing() {
        true => CertificateError(format!(
            "{} is here and {} is not: give this command where the key is, or move the certificate \
             away to begin with a new CA, which every node must have before any node has a \
             certificate of it",
            certificate.display(),
            key.display()
        )),
        false => CertificateError(error.to_string()),
    })?;
    let secret = zeroize::Zeroizing::new(secret);
    let secret = std::str::from_utf8(&secret).map_err(|error| failed(&key, &error))?;
    Authority::read(&text, secret, cluster_id, now_unix_s)
        .map_err(|cause| failed(&certificate, &cause))
}

/// Puts a key and then its certificate into their places.
fn write(
    folder: &Path,
    whose: String,
    name: &str,
    signed: &Signed,
) -> Result<MadeCertificate, CertificateError> {
    let certificate = folder.join(format!("{name}.pem"));
    let key = folder.join(format!("{name}.key"));
    for (path, text, mode) in [
        (&key, signed.key.as_str(), PRIVATE),
        (&certificate, signed.certificate.as_str(), PUBLIC),
    ] {
        let temporary = beside(path);
        // Of a run that was ended.
        let _ = fs::remove_file(&temporary);
        write_new(&temporary, text.as_bytes(), mode)
            .and_then(|()| replace(&temporary, path))
            .map_err(|error| failed(path, &format_args!("cannot be written: {error}")))?;
    }
    Ok(MadeCertificate {
        whose,
        certificate,
        key,
        expires_unix_s: signed.expires_unix_s,
    })
}
