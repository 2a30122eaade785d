//! Reads of a node that does not write the key: as new as is asked for, with what its reader has
//! written, or refused by name, also while the node that writes stands still.

use std::time::Duration;

use penstock_client::{Client, ClientError, ClientOptions, MemberGet, ReadFrom, Seen, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::status::Status;

use super::nodes::{Cluster, Server, until};
use crate::command::command;
use crate::process::beside_clusters;
use crate::scrape::Numbers;

const BOUND: Duration = Duration::from_millis(500);

/// What is asked of this node alone.
fn here(server: &Server, staleness_max: Option<Duration>) -> MemberGet {
    MemberGet {
        staleness_max,
        from: ReadFrom::Node(server.address.to_string()),
        or_writer: false,
        ..MemberGet::default()
    }
}

fn number(server: &Server, name: &str) -> f64 {
    let (_, body) = server.page("/metrics");
    Numbers::read(&body).sum(name, &[])
}

/// The command line of a read: whether it was answered, and what it said.
fn get(words: &[&str]) -> (bool, String) {
    let output = command(&["get"]).args(words).output().expect("it runs");
    let printed = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&printed).into_owned(),
    )
}

/// With the version that a write told, a reader of the member never sees less.
fn sees_what_was_written(member: &Server, writer: &Client, reader: &Client, seen: &mut Seen) {
    let mut behind = 0;
    for number in 0..200u32 {
        let changed = writer.set(b"stock:42", &number.to_le_bytes());
        seen.note(b"stock:42", changed.wait().expect("acknowledged").version);
        let with_it = MemberGet {
            version_min: seen.of(b"stock:42"),
            ..here(member, None)
        };
        until("the member has what was written", || {
            match reader.get_of_member(b"stock:42", &with_it).wait() {
                Ok(found) => {
                    let value = found.value.expect("it was set");
                    assert_eq!(*value.bytes, number.to_le_bytes());
                    assert!(Some(found.through) >= with_it.version_min);
                    true
                }
                Err(ClientError::Stale(answer)) => {
                    assert_eq!(answer.status, Status::Stale);
                    behind += 1;
                    false
                }
                other => panic!("{other:?}"),
            }
        });
    }
    println!("{behind} looks were too early");
}

/// The command asks again until the member is new enough.
fn the_command_waits_for_it(writer: &Server, member: &Server) {
    let (address, writes) = (member.address.to_string(), writer.address.to_string());
    let fresh = [
        "stock:42",
        "--as",
        "u32@0",
        "--stale-ms",
        "500",
        "--version",
    ];
    let (is_there, printed) = get(&[&fresh[..], &["--addr", &address]].concat());
    assert!(is_there && printed.starts_with("199\n"), "{printed}");
    let age = printed.lines().find_map(|line| line.strip_prefix("age "));
    let age = age.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    assert!(age.is_some_and(|us| us > 0 && us <= 500_000), "{printed}");
    let (is_there, printed) = get(&[&fresh[..], &["--addr", &writes]].concat());
    assert!(
        is_there && printed.contains("age 0 us, through "),
        "{printed}"
    );
    let (is_there, printed) = get(&["missing", "--stale-ms", "500", "--addr", &address]);
    assert!(!is_there && printed.contains("does not exist"), "{printed}");
}

#[test]
fn a_member_answers_what_is_new_enough_and_says_so_when_it_is_not() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("reads");
    let (first, second) = cluster.start_two();
    let writer = first.client(AckLevel::Disk);
    let reader = second.client(AckLevel::Disk);
    let mut seen = Seen::default();

    sees_what_was_written(&second, &writer, &reader, &mut seen);
    let address = second.address.to_string();
    the_command_waits_for_it(&first, &second);

    // Only the writer knows the state of this moment, so a client that may ask the writer does.
    let now = here(&second, Some(Duration::ZERO));
    match reader.get_of_member(b"stock:42", &now).wait() {
        Err(ClientError::Stale(answer)) => {
            let standing = answer.standing.expect("it tells how old it is");
            assert!(standing.age_us > 0, "{standing:?}");
        }
        other => panic!("{other:?}"),
    }
    let anywhere = Client::connect(second.address, ClientOptions::default()).expect("it listens");
    let now = MemberGet {
        staleness_max: Some(Duration::ZERO),
        ..MemberGet::default()
    };
    let outcome = anywhere.get_of_member(b"stock:42", &now).wait();
    assert_eq!(outcome.expect("answered").age, Some(Duration::ZERO));
    let outcome = anywhere.get_of_member(b"stock:42", &MemberGet::default());
    let value = outcome
        .wait()
        .expect("answered")
        .value
        .expect("it is there");
    assert_eq!(*value.bytes, 199u32.to_le_bytes());
    // What must be there and never was is nowhere.
    let mut version = seen.of(b"stock:42").expect("it was written");
    version.sequence += 1_000;
    let never = MemberGet {
        version_min: Some(version),
        ..MemberGet::default()
    };
    match anywhere.get_of_member(b"stock:42", &never).wait() {
        Err(ClientError::Stale(_)) => {}
        other => panic!("{other:?}"),
    }

    // The writer stands still. The member still has its old records, but nobody knows whether the
    // writer has newer ones.
    until("it is new enough", || {
        let outcome = reader.get_of_member(b"stock:42", &here(&second, Some(BOUND)));
        outcome.wait().is_ok()
    });
    first.freeze();
    until("it is too old", || {
        let outcome = reader.get_of_member(b"stock:42", &here(&second, Some(BOUND)));
        matches!(outcome.wait(), Err(ClientError::Stale(_)))
    });
    let outcome = reader.get_of_member(b"stock:42", &here(&second, None));
    let outcome = outcome.wait().expect("however old");
    assert!(outcome.age > Some(BOUND), "{outcome:?}");
    let (is_there, outcome) = get(&[
        "stock:42",
        "--stale-ms",
        "500",
        "--timeout-ms",
        "200",
        "--addr",
        &address,
    ]);
    assert!(!is_there && outcome.contains("STALE"), "{outcome}");
    let staleness = "penstock_replication_staleness_seconds";
    until("its age is told", || {
        number(&second, staleness) > BOUND.as_secs_f64()
    });
    first.signal("-CONT");
    until("it is new enough again", || {
        let outcome = reader.get_of_member(b"stock:42", &here(&second, Some(BOUND)));
        outcome.wait().is_ok()
    });
    assert!(number(&second, "penstock_replication_member_reads_total") >= 200.0);
    assert!(number(&second, "penstock_replication_member_reads_stale_total") > 0.0);
    assert_eq!(
        number(&first, "penstock_replication_member_reads_total"),
        0.0
    );
    let (code, json) = cluster.run(&["status", "--json"]);
    let json: serde_json::Value =
        serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!(code, 0);
    let peer = &json["nodes"][1]["replication"]["peers"][0];
    assert!(peer["staleness_us"].is_u64(), "{peer}");

    // Nobody ships to it any more: it is no member, and sends elsewhere.
    drop(first);
    until("it follows nobody", || {
        let outcome = reader.get_of_member(b"stock:42", &here(&second, None));
        matches!(outcome.wait(), Err(ClientError::Busy(text)) if text.contains("MOVED"))
    });
}
