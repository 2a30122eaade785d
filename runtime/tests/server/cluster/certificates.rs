//! `penstock cluster certs`, and what a node says of files that it cannot use.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rcgen::date_time_ymd;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectAltName};

use super::nodes::Cluster;
use super::pki::{ID, named, node_name, words};
use crate::process::beside_clusters;
use crate::tls::Authority;

fn read(text: &str) -> Certificate {
    let der = CertificateDer::from_pem_slice(text.as_bytes()).expect("PEM");
    Certificate::from_der(&der).expect("a certificate")
}

/// The names and addresses of a certificate, as texts.
fn names(text: &str) -> Vec<String> {
    let read = read(text);
    let (_, names) = read
        .tbs_certificate
        .get::<SubjectAltName>()
        .expect("sound")
        .expect("there are names");
    let names = names.0.iter().map(|name| match name {
        GeneralName::DnsName(name) => name.to_string(),
        GeneralName::IpAddress(bytes) => format!("{:?}", bytes.as_bytes()),
        other => format!("{other:?}"),
    });
    names.collect()
}

#[test]
fn every_node_gets_a_certificate_which_the_next_run_renews_and_the_ca_stays() {
    let cluster = Cluster::new("certs-made");
    let printed = cluster.edits(&["certs"]);
    for whose in ["CA of the cluster: ", "node 1: ", "node 2: "] {
        assert!(printed.contains(whose), "{printed}");
    }
    assert!(
        printed.contains("hold until ") && printed.contains(", 365 days"),
        "{printed}"
    );
    let text = |name: &str| cluster.certificate_text(name);
    let mode = |name: &str| {
        let path = cluster.certificates().join(name);
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    };
    for name in ["ca", "node-1", "node-2"] {
        assert_eq!(mode(&format!("{name}.key")), 0o600, "{name}");
        assert_eq!(mode(&format!("{name}.pem")), 0o644, "{name}");
    }
    let found = names(&text("node-2.pem"));
    assert_eq!(found[0], node_name(2, ID));
    for name in ["localhost", "[127, 0, 0, 1]"] {
        let count = found.iter().filter(|it| *it == name).count();
        assert_eq!(count, 1, "{name} in {found:?}");
    }
    let purposes = |name: &str| {
        let found = read(&text(name)).tbs_certificate.get::<ExtendedKeyUsage>();
        found.expect("sound").expect("there are some").1.0.len()
    };
    assert_eq!(purposes("node-1.pem"), 2);

    // Once more: the CA stays, the nodes are renewed.
    let before = ["ca.pem", "ca.key", "node-1.pem", "node-1.key"].map(text);
    let printed = cluster.edits(&["certs", "--days", "30"]);
    assert!(
        !printed.contains("CA of") && printed.contains(", 30 days"),
        "{printed}"
    );
    let after = ["ca.pem", "ca.key", "node-1.pem", "node-1.key"].map(text);
    assert_eq!(before[..2], after[..2]);
    assert!(before[2] != after[2] && before[3] != after[3]);

    // One node, with one more name; and a client, with no name that is a node's.
    let two = text("node-2.pem");
    let named = ["certs", "--node", "1", "--name", "1=kv1.shop.example"];
    cluster.edits(&named);
    assert!(names(&text("node-1.pem")).contains(&"kv1.shop.example".to_string()));
    assert_eq!(text("node-2.pem"), two);
    let printed = cluster.edits(&["certs", "--client", "till-7"]);
    assert!(
        printed.starts_with("client till-7: ") && printed.lines().count() == 1,
        "{printed}"
    );
    assert_eq!(mode("client-till-7.key"), 0o600);
    let client = read(&text("client-till-7.pem"));
    assert_eq!(client.tbs_certificate.subject.to_string(), "CN=till-7");
    let alternative = client.tbs_certificate.get::<SubjectAltName>();
    assert!(alternative.expect("sound").is_none());
    assert_eq!(purposes("client-till-7.pem"), 1);
}

#[test]
fn an_order_that_cannot_be_carried_out_is_refused_in_one_line_and_changes_nothing() {
    let cluster = Cluster::new("certs-refused");
    let refused = |words: &[&str], part: &str| {
        let (code, printed) = cluster.run(&[&["certs"], words].concat());
        assert_eq!(code, 2, "{printed}");
        assert!(printed.contains(part), "{printed:?} lacks {part:?}");
    };
    refused(
        &["--node", "9"],
        "no [[node]] of the cluster's file has that number: there are 1, 2",
    );
    refused(&["--name", "9=host"], "--name 9");
    refused(&["--name", "1=x.penstock"], "those of nodes");
    refused(&["--name", "host"], "NODE=HOST is wanted");
    for name in ["", "a/b", "../x", "ä", &"x".repeat(65)] {
        refused(&["--client", name], "a name has 1 to 64");
    }
    refused(&["--days", "0"], "1..=3650");
    assert!(!cluster.certificates().exists());

    cluster.edits(&["certs"]);
    let key = cluster.certificates().join("ca.key");
    let secret = fs::read(&key).expect("there");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("mine");
    refused(&[], "others may read it (mode 0644)");
    fs::remove_file(&key).expect("mine");
    refused(&[], "give this command where the key is");
    cluster.put("ca", &cluster.certificate_text("node-1.pem"), "x");
    fs::write(&key, &secret).expect("written");
    refused(&[], "penstock cluster c1c1");
    let other = Authority::new(&format!("penstock cluster {ID}"));
    cluster.put("ca", &other.pem, std::str::from_utf8(&secret).expect("PEM"));
    refused(&[], "not that of the certificate");
}

#[test]
fn a_node_refuses_files_with_which_the_others_would_refuse_it_and_names_them() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("certs-unusable");
    let root = Authority::new("root");
    let middle = Authority::made("middle", Some(&root));
    let stranger = Authority::new("stranger");
    let of = |authority: &Authority, node: u8, id: &str| {
        named(authority, &[node_name(node, id)], |_| ())
    };
    cluster.put("ca", &root.pem, "");
    let refused = |certificate: &str, key: &str, parts: &[&str]| {
        cluster.put("bad", certificate, key);
        let printed = cluster.start_refused(1, &words(&cluster.tls_of("bad")));
        for part in parts {
            assert!(printed.contains(part), "{printed:?} lacks {part:?}");
        }
    };
    let good = of(&root, 1, ID);
    let two = of(&root, 2, ID);
    refused(
        &two.certificate,
        &two.key,
        &[
            "cluster_tls_cert: ",
            "bad.pem:1: ",
            "that of node-2.c1c1",
            "this is node-1.c1c1",
        ],
    );
    let other_id = "d".repeat(32);
    let other = of(&root, 1, &other_id);
    refused(
        &other.certificate,
        &other.key,
        &["that of node-1.dddd", "this is node-1.c1c1"],
    );
    let nameless = named(&root, &[], |_| ());
    refused(
        &nameless.certificate,
        &nameless.key,
        &["does not name one node of a cluster"],
    );
    let both = named(&root, &[node_name(1, ID), node_name(2, ID)], |_| ());
    refused(
        &both.certificate,
        &both.key,
        &["does not name one node of a cluster"],
    );
    let wild = named(&root, &[format!("*.{ID}.penstock")], |_| ());
    refused(
        &wild.certificate,
        &wild.key,
        &["does not name one node of a cluster"],
    );
    let strange = of(&stranger, 1, ID);
    refused(
        &strange.certificate,
        &strange.key,
        &["the other nodes would refuse", "UnknownIssuer"],
    );
    let below = of(&middle, 1, ID);
    refused(
        &below.certificate,
        &below.key,
        &["the other nodes would refuse", "those between"],
    );
    let old = named(&root, &[node_name(1, ID)], |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    refused(&old.certificate, &old.key, &["ended at 2002-01-01"]);
    refused(
        &good.certificate,
        &two.key,
        &["cluster_tls_key: ", "not that of the first"],
    );
    refused(
        "",
        &good.key,
        &["cluster_tls_cert: ", "no certificate in PEM"],
    );

    // With the middle in the file it is taken.
    let whole = format!("{}{}", below.certificate, middle.pem);
    cluster.put("whole", &whole, &below.key);
    let whole = cluster.tls_of("whole");
    let node = cluster.start(1, &[&words(&whole)[..], &["--cluster-new"]].concat());
    node.until_role("primary");
}

#[test]
fn options_about_certificates_of_links_that_do_not_go_together_are_refused() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("certs-options");
    cluster.edits(&["certs"]);
    let flags = cluster.tls(1);
    let printed = cluster.start_refused(1, &words(&flags[..4]));
    assert!(printed.contains("cluster_tls_ca together"), "{printed}");
    let printed = cluster.start_refused(1, &["--cluster-tls-optional"]);
    let words = ["--cluster-tls-optional", "cluster_tls_cert"];
    assert!(words.iter().all(|it| printed.contains(it)), "{printed}");
}
