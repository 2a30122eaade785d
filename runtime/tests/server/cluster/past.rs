//! Kept versions of a cluster: who takes over knows the whole past, and who gave up what it wrote
//! alone tells none of it.

use penstock_client::{At, Client, ClientError, Verbs};
use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;
use penstock_net::request::Version;
use penstock_net::status::Status;

use super::nodes::{Cluster, Server, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;

const KEYS: u32 = 200;

fn keep(writer: &Server) {
    let settings = Settings {
        versions: 100,
        ..Settings::default()
    };
    let client = writer.client(AckLevel::Disk);
    let changed = client.keyspace(b"key:", Action::Set(settings));
    changed.wait().expect("changed");
}

fn key_of(number: u32) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// Writes this value to all keys; the version of each.
fn write(client: &Client, value: &[u8]) -> Vec<Version> {
    let keys = (0..KEYS).map(key_of);
    let writes: Vec<_> = keys.map(|key| client.set(&key, value)).collect();
    let ends = writes.into_iter().map(|write| write.wait());
    ends.map(|end| end.expect("acknowledged").version).collect()
}

/// Asserts that each key had this value at its version.
fn check(client: &Client, value: &[u8], versions: &[Version]) {
    for (number, &version) in (0..).zip(versions) {
        let was = client.get_at(&key_of(number), At::Version(version));
        let was = was.wait().expect("kept").expect("it had a value");
        assert_eq!((&was.bytes[..], was.version), (value, version));
    }
}

#[test]
fn a_member_that_followed_answers_for_the_whole_past_when_it_takes_over() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-past");
    let (first, second) = cluster.start_two();
    cluster.does(&["switch", "--to", "2", "--partitions", "100-255"]);
    keep(&first);
    cluster.does(&["switch", "--to", "1", "--partitions", "100-255"]);
    let client = first.client(AckLevel::Replica);
    let one = write(&client, b"one");
    let two = write(&client, b"two");
    client.del(&key_of(7)).wait().expect("deleted");
    wait_for_follower(&first, &second);
    let list = |client: &Client| {
        let history = client.history(&key_of(7), 0, 10).wait().expect("told");
        let versions = history.versions.iter();
        versions
            .map(|it| (it.version, it.is_deletion, it.time_ms))
            .collect::<Vec<_>>()
    };
    let history = list(&first.client(AckLevel::Disk));
    assert_eq!(history.len(), 3, "{history:?}");
    // Its start reads the log anew, and the other node gets the rest by delta.
    second.stop();
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);

    cluster.does(&["switch", "--to", "2"]);
    let client = second.client(AckLevel::Disk);
    check(&client, b"one", &one);
    check(&client, b"two", &two);
    assert_eq!(list(&client), history);
    let three = write(&second.client(AckLevel::Replica), b"three");
    drop(second);
    cluster.does(&["promote", "--to", "1", "--force"]);
    wait_for_primary(&first);
    let client = first.client(AckLevel::Disk);
    for (value, versions) in [(&b"one"[..], &one), (b"two", &two), (b"three", &three)] {
        check(&client, value, versions);
    }
    cluster.has_lost_nothing();
}

#[test]
fn a_node_that_gave_up_what_it_wrote_alone_shows_no_version_of_it() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-past-diverged");
    let (first, second) = cluster.start_two();
    keep(&first);
    let client = first.client(AckLevel::Replica);
    let one = write(&client, b"one");
    wait_for_follower(&first, &second);
    drop(second);
    let alone = write(&first.client(AckLevel::Disk), b"alone");
    drop(first);

    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    wait_for_primary(&second);
    let client = second.client(AckLevel::Disk);
    check(&client, b"one", &one);
    let two = write(&client, b"two");
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    check(&client, b"one", &one);

    // A start of the node finds the lost records in its log, and tells none.
    first.stop();
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    cluster.does(&["sync", "--node", "1"]);
    cluster.does(&["switch", "--to", "1"]);
    let client = first.client(AckLevel::Disk);
    let three = write(&client, b"three");
    let four = write(&client, b"four");
    check(&client, b"three", &three);
    check(&client, b"four", &four);
    for number in 0..KEYS {
        let at = usize::try_from(number).expect("few");
        let history = client.history(&key_of(number), 0, 100).wait();
        let history = history.expect("its keyspace keeps versions").versions;
        assert!(
            history.iter().all(|it| it.version != alone[at]),
            "{history:?}"
        );
        for version in [one[at], alone[at], two[at]] {
            let was = client.get_at(&key_of(number), At::Version(version)).wait();
            match was {
                Ok(Some(was)) => assert_eq!((&was.bytes[..], was.version), (&b"two"[..], two[at])),
                Err(ClientError::No(answer)) => {
                    assert_eq!(answer.status, Status::NotKept);
                    let text = String::from_utf8_lossy(&answer.value);
                    assert!(text.contains(", known from "), "{text}");
                }
                history => panic!("{history:?} of {version:?}"),
            }
        }
    }
}
