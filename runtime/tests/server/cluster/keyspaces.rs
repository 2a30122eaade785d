//! Settings of keyspaces in a cluster whose partitions two nodes write.

use penstock_client::{Client, ClientError, ClientOptions, Verbs};
use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;

use super::nodes::{Cluster, PATIENCE, Server, until};
use crate::process::beside_clusters;

fn layout(layout: u16) -> Action {
    Action::Set(Settings {
        layout,
        ..Settings::default()
    })
}

impl Server {
    /// Waits until the node tells this layout of the only keyspace.
    fn until_layout(&self, layout: u16) {
        until(&format!("layout {layout}"), || {
            let client = self.client(AckLevel::Disk);
            let answer = client.keyspace(b"", Action::List).wait().expect("told");
            answer
                .first()
                .is_some_and(|it| it.settings.layout == layout)
        });
    }
}

#[test]
fn a_member_that_is_asked_for_level_all_sends_its_client_to_the_node_that_decides() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-keyspaces-level");
    let (first, second) = cluster.start_two();
    // It has no link with the other member.
    let third = cluster.add_third(&first);
    let options = ClientOptions {
        deadline: PATIENCE,
        ..ClientOptions::default()
    };
    let client = Client::connect(second.address, options).expect("it listens");
    let settings = Settings {
        level_min: AckLevel::All,
        ..Settings::default()
    };
    let changed = client.keyspace(b"stock:", Action::Set(settings)).wait();
    changed.expect("all nodes understand it");
    third.stop();
}

#[test]
fn a_keyspace_is_changed_while_two_nodes_write_and_reaches_one_that_was_away() {
    let _clusters = beside_clusters();
    // What a busy machine may take, and what the test waits for the node that is away.
    let cluster = Cluster::with_timeout("cluster-keyspaces", 8_000);
    let (first, second) = cluster.start_two();
    cluster.does(&["switch", "--to", "2", "--partitions", "100-255"]);

    let client = first.client(AckLevel::Disk);
    client.keyspace(b"k", layout(1)).wait().expect("changed");
    first.until_layout(1);
    second.until_layout(1);
    // The second node does not write partition 0, and tells a client that goes on to the first one.
    match second
        .client(AckLevel::Disk)
        .keyspace(b"k", layout(2))
        .wait()
    {
        Err(ClientError::Busy(text)) => assert!(text.contains("partition 0"), "{text}"),
        answer => panic!("{answer:?}"),
    }
    let options = ClientOptions {
        deadline: PATIENCE,
        ..ClientOptions::default()
    };
    let other = Client::connect(second.address, options).expect("it listens");
    other.keyspace(b"k", layout(2)).wait().expect("changed");
    first.until_layout(2);
    second.until_layout(2);

    second.stop();
    match client.keyspace(b"k", layout(3)).wait() {
        Err(ClientError::Unknown(it)) => assert!(it.text().contains("as soon as"), "{it}"),
        answer => panic!("{answer:?}"),
    }
    let second = cluster.start(2, &[]);
    second.until_layout(3);
    first.until_layout(3);
    client.keyspace(b"k", layout(4)).wait().expect("changed");
    second.until_layout(4);
}
