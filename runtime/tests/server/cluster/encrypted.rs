//! Links through TLS between real servers: a cluster that has it from the start, one that gets it
//! while it serves, and who does not come in by the other's port.

use penstock_client::tls::ClientTls;
use penstock_client::{Client, ClientOptions};
use penstock_net::level::AckLevel;

use super::Model;
use super::nodes::{
    Cluster, PATIENCE, Server, is_within_patience, until, wait_for_follower, wait_for_primary,
};
use super::pki::words;
use crate::process::beside_clusters;

const PLAIN: &str = "penstock_replication_links_plain";

impl Cluster {
    /// A third node in the file, of the sync set, and certificates for all.
    fn with_certificates_of_three(&self) {
        self.edits(&["add", "--node", &self.third()]);
        self.edits(&["certs"]);
    }

    pub fn start_encrypted(&self, node: u8, more: &[&str]) -> Server {
        let tls = self.tls(node);
        self.start(node, &[&words(&tls)[..], more].concat())
    }

    fn start_optional(&self, node: u8) -> Server {
        self.start_encrypted(node, &["--cluster-tls-optional"])
    }
}

fn until_plain(nodes: &[&Server], wanted: f64) {
    for node in nodes {
        until("each of its links is as encrypted as it is to be", || {
            node.number(PLAIN, &[]) == wanted
        });
    }
}

#[test]
fn three_nodes_with_tls_hold_what_is_acknowledged_over_kills_a_takeover_and_new_certificates() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("encrypted");
    cluster.with_certificates_of_three();
    let mut model = Model::default();
    let first = cluster.start_encrypted(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let [second, third] = [2, 3].map(|node| cluster.start_encrypted(node, &[]));
    wait_for_follower(&first, &second);
    wait_for_follower(&first, &third);
    cluster.does(&["sync", "--node", "3"]);
    model.change(&first.client(AckLevel::Replica), 1);
    until_plain(&[&first, &second, &third], 0.0);
    let of_links = [("certificate", "links")];
    let ends = |node: &Server| node.number("penstock_tls_certificate_expires_seconds", &of_links);
    let before = ends(&second);
    assert!(before > 1_700_000_000.0, "{before}");

    // New certificates are taken while links live, and new links have them.
    cluster.edits(&["certs", "--days", "40"]);
    until("the end of the new one is told", || ends(&second) < before);
    until("nothing is refused any more", || {
        second.number("penstock_tls_certificate_refused", &of_links) == 0.0
    });
    model.change(&first.client(AckLevel::Replica), 2);
    drop(third);
    model.change(&first.client(AckLevel::Disk), 3);
    let third = cluster.start_encrypted(3, &[]);
    wait_for_follower(&first, &third);

    // Wrong files change nothing.
    let good = cluster.certificate_text("node-1.key");
    let certificate = cluster.certificate_text("node-1.pem");
    cluster.put(
        "node-1",
        &certificate,
        &cluster.certificate_text("node-2.key"),
    );
    until("it tells that the key is wrong", || {
        first.has_said("cluster_tls_key: ")
            && first.number("penstock_tls_certificate_refused", &of_links) == 1.0
    });
    model.change(&first.client(AckLevel::Replica), 4);
    cluster.put("node-1", &certificate, &good);

    // The primary is lost, and comes back as one that follows.
    drop(first);
    cluster.does(&["promote", "--to", "2", "--force"]);
    model.check(&second.client(AckLevel::Disk));
    let first = cluster.start_encrypted(1, &[]);
    wait_for_follower(&second, &first);
    model.change(&second.client(AckLevel::Replica), 5);
    wait_for_follower(&second, &first);
    until_plain(&[&first, &second, &third], 0.0);
    cluster.has_lost_nothing();
    [first, second, third].into_iter().for_each(Server::stop);
}

#[test]
fn a_running_cluster_gets_tls_node_by_node_while_it_acknowledges() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("encrypted-change");
    let mut model = Model::default();
    let (mut first, mut second) = cluster.start_two();
    let mut third = cluster.add_third(&first);
    cluster.does(&["sync", "--node", "3"]);
    model.change(&first.client(AckLevel::Replica), 1);
    let plain = |node: &Server| node.number(PLAIN, &[]);
    assert!(plain(&first) > 0.0 && plain(&second) > 0.0);
    cluster.edits(&["certs"]);

    // Each node gets its certificate, and takes and makes links with TLS and without.
    second.stop();
    second = cluster.start_optional(2);
    wait_for_follower(&first, &second);
    model.change(&first.client(AckLevel::Replica), 2);
    assert!(plain(&second) > 0.0, "node 1 has no TLS yet");
    third.stop();
    third = cluster.start_optional(3);
    wait_for_follower(&first, &third);
    model.change(&first.client(AckLevel::Replica), 3);
    cluster.does(&["switch", "--to", "2"]);
    model.change(&second.client(AckLevel::Disk), 4);
    // Node 2 makes links with TLS, and node 1 does not know what that is.
    until("it is linked without TLS", || plain(&second) > 0.0);
    first.stop();
    first = cluster.start_optional(1);
    wait_for_follower(&second, &first);
    model.change(&second.client(AckLevel::Replica), 5);
    until_plain(&[&first, &second, &third], 0.0);

    // Each node gives up links without TLS.
    first.stop();
    first = cluster.start_encrypted(1, &[]);
    wait_for_follower(&second, &first);
    third.stop();
    third = cluster.start_encrypted(3, &[]);
    wait_for_follower(&second, &third);
    model.change(&second.client(AckLevel::Replica), 6);
    cluster.does(&["switch", "--to", "1"]);
    model.change(&first.client(AckLevel::Replica), 7);
    second.stop();
    second = cluster.start_encrypted(2, &[]);
    wait_for_follower(&first, &second);
    model.change(&first.client(AckLevel::Replica), 8);
    until_plain(&[&first, &second, &third], 0.0);
    model.check(&first.client(AckLevel::Disk));
    cluster.has_lost_nothing();

    // A node without TLS stays outside from now on, and both tell why.
    third.stop();
    let third = cluster.start(3, &[]);
    until("both tell why", || {
        first.has_said("it may have no TLS on its links")
            && third.has_said("this node has no cluster_tls_cert")
    });
}

#[test]
fn a_certificate_of_a_node_opens_no_session_and_that_of_a_client_does() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("encrypted-clients");
    cluster.edits(&["certs"]);
    cluster.edits(&["certs", "--client", "till-7"]);
    let file = |name: &str| cluster.certificates().join(name).display().to_string();
    let (certificate, key, ca) = (file("node-1.pem"), file("node-1.key"), file("ca.pem"));
    let of_clients = [
        ["--tls-cert", &certificate],
        ["--tls-key", &key],
        ["--tls-client-ca", &ca],
    ];
    let first =
        cluster.start_encrypted(1, &[of_clients.as_flattened(), &["--cluster-new"]].concat());
    let connect = |name: Option<&str>| {
        let ca = cluster.certificate_text("ca.pem");
        let mut tls = ClientTls::trusting(ca.as_bytes()).expect("a CA");
        if let Some(name) = name {
            let [chain, key] = ["pem", "key"].map(|end| format!("{name}.{end}"));
            let [chain, key] = [chain, key].map(|it| cluster.certificate_text(&it));
            tls = tls
                .with_certificate(chain.as_bytes(), key.as_bytes())
                .expect("a pair");
        }
        let options = ClientOptions {
            tls: Some(tls),
            deadline: PATIENCE,
            ..ClientOptions::default()
        };
        let client = Client::connect(first.address, options)?;
        client.ping().wait().map(drop)
    };
    let is_served = is_within_patience(|| connect(Some("client-till-7")).is_ok());
    assert!(
        is_served,
        "the certificate of a client opens the port of clients"
    );
    for refused in [Some("node-1"), Some("node-2"), None] {
        connect(refused).expect_err("it opens nothing");
    }
    until("it tells why", || {
        first.has_said("it shows the certificate of a node, which opens links alone")
            && first.has_said("it shows no certificate, and one is needed")
    });
}
