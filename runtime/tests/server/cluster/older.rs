//! Real servers of one cluster that start with an older copy of their directory: they must end, and
//! not write again what they had written otherwise.

use std::fs;
use std::path::Path;

use penstock_client::{Client, ClientError, Field, Verbs};
use penstock_net::level::AckLevel;

use super::nodes::{Cluster, Server, until, wait_for_follower, wait_for_primary};
use crate::process::beside_clusters;

const KEY: &[u8] = b"stock:42";

/// A directory with all that is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("there") {
        let entry = entry.expect("read");
        let into = to.join(entry.file_name());
        match entry.file_type().expect("known").is_dir() {
            true => copy(&entry.path(), &into),
            false => drop(fs::copy(entry.path(), into).expect("copied")),
        }
    }
}

fn put_in_place(copied: &Path, of: &Path) {
    fs::remove_dir_all(of).expect("removed");
    copy(copied, of);
}

fn take(client: &Client, units: u64) {
    let sale = [Field::u64(0).at_least(units), Field::u64(0).decrease(units)];
    let taken = client.update_if(KEY, &sale).wait();
    taken.expect("acknowledged");
}

fn left(server: &Server) -> u64 {
    let read = server.client(AckLevel::Disk).get(KEY).wait();
    let value = read.expect("read").expect("it is there");
    u64::from_le_bytes((*value.bytes).try_into().expect("a number"))
}

#[test]
fn a_primary_with_an_older_copy_of_its_directory_ends_and_what_was_sold_stays_sold() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("older-primary");
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Replica);
    client.set(KEY, &100u64.to_le_bytes()).wait().expect("set");
    drop(client);
    first.stop();
    let older = cluster.folder.join("older");
    copy(&cluster.data(1), &older);

    let first = cluster.start(1, &[]);
    wait_for_primary(&first);
    wait_for_follower(&first, &second);
    let client = first.client(AckLevel::Replica);
    (0..3).for_each(|_| take(&client, 10));
    drop(client);
    first.stop();
    put_in_place(&older, &cluster.data(1));

    // The start that the other node has seen, of another copy; then one that it has not seen,
    // without what it had told.
    for cause in ["another start 2 was seen", "had told durable what it wrote"] {
        let (code, said) = cluster.start_to_its_end(1);
        assert_eq!(code, Some(1));
        assert!(said.contains(cause), "{cause}");
    }
    cluster.edits(&["promote", "--to", "2", "--force"]);
    wait_for_primary(&second);
    assert_eq!(left(&second), 70);

    fs::remove_dir_all(cluster.data(1)).expect("removed");
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    let client = second.client(AckLevel::Disk);
    take(&client, 1);
    wait_for_follower(&second, &first);
    assert_eq!(left(&second), 69);
}

#[test]
fn a_member_with_an_older_copy_of_its_directory_is_refused_once_and_gets_what_it_lacks() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("older-member");
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Replica);
    client.set(KEY, &100u64.to_le_bytes()).wait().expect("set");
    second.stop();
    let older = cluster.folder.join("older");
    copy(&cluster.data(2), &older);

    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    (0..3).for_each(|_| take(&client, 10));
    second.stop();
    put_in_place(&older, &cluster.data(2));
    let (code, said) = cluster.start_to_its_end(2);
    assert_eq!(code, Some(1));
    assert!(said.contains("another start 2 was seen"));
    // No other node was told of a record by this start, so the next start may go on.
    let second = cluster.start(2, &[]);
    take(&client, 10);
    wait_for_follower(&first, &second);
    cluster.edits(&["switch", "--to", "2"]);
    wait_for_primary(&second);
    assert_eq!(left(&second), 60);
}

#[test]
fn a_primary_whose_directory_was_lost_does_not_begin_again_beside_who_has_all() {
    let _clusters = beside_clusters();
    let cluster = Cluster::with_timeout("older-empty", 1_000);
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Replica);
    client.set(KEY, &100u64.to_le_bytes()).wait().expect("set");
    take(&client, 30);
    drop((client, first));
    fs::remove_dir_all(cluster.data(1)).expect("removed");
    // By mistake, as on its first day.
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    until("it is told", || {
        first.has_said("have no epoch in common") || second.has_said("have no epoch in common")
    });
    let answer = first.client(AckLevel::Replica).set(b"other", b"1").wait();
    assert!(matches!(answer, Err(ClientError::Unknown(_))), "{answer:?}");
    drop(first);
    cluster.edits(&["promote", "--to", "2", "--force"]);
    wait_for_primary(&second);
    assert_eq!(left(&second), 70);
}
