//! A node of a cluster: what it begins to write, over a directory that holds something or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_net::apply::Apply;
use penstock_net::level::AckLevel;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Membership, NodeStart};
use penstock_net::placement::Writer;
use penstock_net::request::Condition;
use penstock_net::scan::{ScanPage, ScanRequest};
use penstock_net::slot::{SLOTS, slot_of};
use penstock_net::status::Status;
use penstock_shard::cluster::{Assignment, ClusterConfig, Plan};
use penstock_shard::replication::PENDING_BYTES_MAX;
use penstock_shard::replication::handshake::Introduction;
use penstock_shard::replication::link_set::LinkSetConfig;
use penstock_shard::{Event, KeyspaceMail, Mail};
use penstock_storage::keyspace::Settings;
use penstock_storage::version::partition_of;

use crate::image::Image;
use crate::key;
use crate::server::Server;

const ME: u8 = 1;
const OTHER: u8 = 2;

/// This node writes the partition of the keys in a generation, with what it has.
fn plan(generation: u32, is_incomplete_accepted: bool) -> Plan {
    let slot = penstock_net::slot::slot_of(&key(0));
    let assignment = |partition: u16| {
        let is_mine = usize::from(partition) == partition_of(slot);
        let (primary, member) = match is_mine {
            true => (ME, OTHER),
            false => (OTHER, ME),
        };
        Assignment {
            generation: if is_mine { generation } else { 1 },
            primary,
            members: vec![(member, Membership::Sync)],
            is_handed_over: false,
            is_loss_accepted: is_mine && is_incomplete_accepted,
            is_incomplete_accepted: is_mine && is_incomplete_accepted,
        }
    };
    Plan {
        partitions: (0..LINK_PARTITIONS).map(assignment).collect(),
        clients: [ME, OTHER]
            .map(|node| (node, format!("node {node}")))
            .to_vec(),
        number: 0,
        is_leased: false,
        min_sync: 0,
    }
}

fn opened(image: Image, incarnation: u32, plan: Plan) -> Server {
    let config = ClusterConfig {
        links: LinkSetConfig {
            me: Introduction {
                log_format: 1,
                cluster_id: [1; 16],
                node_id: [2; 16],
                start: NodeStart {
                    incarnation,
                    start_id: incarnation,
                },
                node: ME,
                shard: 0,
                shards: 1,
                record_bytes_max: 4 << 10,
                frame_bytes_max: 1 << 20,
            },
            ring_bytes_max: 64 << 10,
            backlog_bytes_max: 0,
            catch_up_bytes_per_s: 0,
            pending_bytes_max: PENDING_BYTES_MAX,
        },
        plan: Arc::new(plan),
        leases: Arc::default(),
        offers: Arc::default(),
        replica_timeout_us: 1_000_000,
        is_new: false,
    };
    Server::open_in_cluster(config, image, incarnation.into()).expect("it opens")
}

/// What the node says to a read.
fn answer(server: &mut Server, id: usize) -> Status {
    server.settle();
    server.get(id, &key(0));
    server.settle();
    server.replies[&id].status
}

#[test]
fn an_empty_directory_begins_nothing_by_what_was_accepted_before_it_was_emptied() {
    let mut server = opened(Image::default(), 1, plan(12, true));
    assert_eq!(answer(&mut server, 1), Status::NotPrimary);
    let notices = server.notices.concat();
    assert!(
        notices.contains("accept_incomplete was in the file before this start"),
        "{notices}"
    );
}

#[test]
fn an_empty_directory_begins_when_people_accept_that_while_it_runs_and_goes_on_behind_a_start() {
    let mut server = opened(Image::default(), 1, plan(11, false));
    assert_eq!(answer(&mut server, 1), Status::NotPrimary);
    server.replan(plan(12, true));
    assert_eq!(answer(&mut server, 2), Status::NotFound);
    server.set(3, &key(0), b"anew");
    server.settle();
    assert_eq!(server.replies[&3].status, Status::Ok);

    let mut again = opened(server.device.image.clone(), 2, plan(12, true));
    assert_eq!(answer(&mut again, 1), Status::Ok);
    assert_eq!(again.replies[&1].value, b"anew");
}

/// The plan in which the other node writes the partition of the keys.
fn plan_of_the_other(generation: u32) -> Plan {
    let mut plan = plan(generation, false);
    for assignment in &mut plan.partitions {
        if assignment.primary == ME {
            (assignment.primary, assignment.members) = (OTHER, vec![(ME, Membership::Sync)]);
        }
    }
    plan
}

#[test]
fn a_member_does_not_fire_and_a_node_that_writes_again_fires_once() {
    let mut server = opened(Image::default(), 1, plan(11, false));
    server.settle();
    server.replan(plan(12, true));
    assert_eq!(answer(&mut server, 1), Status::NotFound);
    let mut arm = Apply::new();
    let (hold, stock) = (arm.key(&key(0)), arm.key(&key(1)));
    arm.put(stock, &5u64.to_le_bytes())
        .put(hold, b"held")
        .then(hold.expire_in(10_000))
        .on_expire(hold, |effects| {
            effects.then(stock.u64(0).increase(1u64));
        });
    server.send(2, |batch, out| batch.apply(out, &arm));
    server.settle();
    assert_eq!(server.replies[&2].status, Status::Ok);
    server.replan(plan_of_the_other(13));
    let pass = |server: &mut Server| {
        server.now.us += 60_000_000;
        server.now.unix_ms += 60_000;
        server.settle();
    };
    pass(&mut server);
    assert_eq!(server.counters().firing.fired, 0, "a member");
    server.replan(plan(14, true));
    server.settle();
    pass(&mut server);
    assert_eq!(server.counters().firing.fired, 1);
    server.get(3, &key(1));
    server.settle();
    assert_eq!(server.replies[&3].value, 6u64.to_le_bytes());
}

/// Another shard tells, in a request, of a keyspace of all keys whose values have one byte.
fn announce_short_values(server: &mut Server) {
    let settings = Settings {
        revision: 1 << 40,
        value_bytes_max: 1,
        ..Settings::default()
    };
    server.step_quietly(Event::Mail(Mail::Keyspaces(KeyspaceMail {
        from: 1,
        is_awaited: true,
        keyspaces: vec![(Box::default(), settings)],
    })));
}

#[test]
fn a_change_of_a_keyspace_that_no_record_has_is_not_brought_by_a_node_that_writes_later() {
    let [mut logs, mut replaced, mut waits] = [(); 3].map(|()| {
        let mut server = opened(Image::default(), 1, plan(11, false));
        server.settle();
        server.replan(plan(12, true));
        assert_eq!(answer(&mut server, 1), Status::NotFound);
        server
    });
    announce_short_values(&mut logs);
    logs.settle();
    // Who is replaced before it has logged the change forgets it.
    announce_short_values(&mut replaced);
    replaced.replan(plan_of_the_other(13));
    replaced.settle();
    // Who does not write waits for a record.
    waits.replan(plan_of_the_other(13));
    waits.settle();
    announce_short_values(&mut waits);
    waits.settle();
    for (server, expected) in [
        (&mut logs, Status::TooLarge),
        (&mut replaced, Status::Ok),
        (&mut waits, Status::Ok),
    ] {
        server.replan(plan(14, true));
        server.settle();
        server.set(2, &key(0), b"long");
        server.settle();
        assert_eq!(server.replies[&2].status, expected);
    }
}

/// A step of a scan from a cursor.
fn page_from(server: &mut Server, id: usize, cursor: u64) {
    let request = ScanRequest {
        cursor,
        prefix: b"",
        entries_max: 8,
        bytes_max: 4096,
        wants_values: true,
        wants_types: false,
    };
    server.send(id, |batch, out| batch.scan(out, &request));
}

/// A node that writes one partition of its shard with forty keys, most of them cold, and the first
/// slot of the partition and of the one behind it, as cursors.
fn with_keys() -> (Server, [u64; 2]) {
    let mut server = opened(Image::default(), 1, plan(11, false));
    server.settle();
    server.replan(plan(12, true));
    assert_eq!(answer(&mut server, 1), Status::NotFound);
    for number in 0..40 {
        server.set(100 + number, &key(number), &[b'v'; 200]);
        server.settle();
        assert_eq!(server.replies[&(100 + number)].status, Status::Ok);
    }
    let slots = u64::from(SLOTS / LINK_PARTITIONS);
    let partition = u64::from(slot_of(&key(0))) / slots;
    let cursors = [partition, partition + 1].map(|partition| (partition * slots) << 32);
    (server, cursors)
}

#[test]
fn a_scan_shows_the_partitions_that_this_node_writes_and_sends_to_the_writers_of_others() {
    let (mut server, [begin, behind]) = with_keys();
    page_from(&mut server, 2, 0);
    server.settle();
    let elsewhere = &server.replies[&2];
    assert_eq!(elsewhere.status, Status::Moved);
    assert_eq!(elsewhere.version, Writer::version(OTHER, 1));

    let (mut cursor, mut keys, mut id) = (begin, BTreeSet::new(), 3);
    while cursor & ((1 << 46) - 1) < behind {
        page_from(&mut server, id, cursor);
        server.settle();
        let reply = &server.replies[&id];
        assert_eq!(reply.status, Status::Ok);
        let page = ScanPage::read(&reply.value).expect("a page");
        keys.extend(page.entries().map(|entry| entry.key.to_vec()));
        cursor = page.cursor;
        id += 1;
    }
    assert!(id > 7, "several pages");
    assert_eq!(keys, (0..40).map(key).collect::<BTreeSet<_>>());
    assert_eq!(
        cursor & ((1 << 46) - 1),
        behind,
        "at the first slot of another node"
    );
    page_from(&mut server, id, cursor);
    server.settle();
    assert_eq!(server.replies[&id].status, Status::Moved);
}

#[test]
fn a_step_of_a_scan_that_waits_while_another_node_takes_over_shows_nothing() {
    let (mut server, [begin, _]) = with_keys();
    page_from(&mut server, 2, begin);
    server.settle();
    let page = ScanPage::read(&server.replies[&2].value).expect("a page");
    let cursor = page.cursor;
    page_from(&mut server, 3, cursor);
    assert!(!server.replies.contains_key(&3), "it waits for its turn");
    server.replan(plan_of_the_other(13));
    server.settle();
    let reply = &server.replies[&3];
    assert_eq!(reply.status, Status::Moved);
    assert_eq!(reply.version, Writer::version(OTHER, 13));
}

/// A node that writes, and a write at level `replica` for which it waits for the other node.
fn waiting_for_the_other(id: usize) -> Server {
    let mut server = opened(Image::default(), 1, plan(11, false));
    server.settle();
    server.replan(plan(12, true));
    assert_eq!(answer(&mut server, 1), Status::NotFound);
    server.send_at(AckLevel::Replica, id, |batch, out| {
        batch.set(out, &key(0), b"alone", Condition::Always);
    });
    server.settle();
    assert!(!server.replies.contains_key(&id), "the other node is away");
    server
}

#[test]
fn a_read_at_level_replica_ends_at_its_deadline_and_a_write_at_the_time_of_the_cluster() {
    let mut server = waiting_for_the_other(2);
    server.send_until(AckLevel::Replica, 50, 3, |batch, out| {
        batch.get(out, &key(0))
    });
    server.send_until(AckLevel::Replica, 50, 4, |batch, out| {
        batch.set(out, &key(0), b"later", Condition::Always);
    });
    let begin_us = server.now.us;
    server.settle();
    assert!(!server.replies.contains_key(&3), "the other node is away");
    server.now.us = begin_us + 50_000;
    server.settle();
    let reply = &server.replies[&3];
    assert_eq!(
        (reply.status, reply.reason),
        (Status::NoReplicas, 0),
        "no node has it"
    );
    for write in [2, 4] {
        assert!(
            !server.replies.contains_key(&write),
            "the level may be reached"
        );
    }
    server.now.us = begin_us + 1_000_000;
    server.settle();
    for write in [2, 4] {
        assert_eq!(server.replies[&write].status, Status::NoReplicas);
    }
}

/// The plan in which nobody else is waited for.
fn plan_without_sync_set(generation: u32) -> Plan {
    let mut plan = plan(generation, true);
    for assignment in &mut plan.partitions {
        if assignment.primary == ME {
            assignment.members = vec![(OTHER, Membership::Learner)];
        }
    }
    plan
}

#[test]
fn a_reply_at_level_replica_is_not_reached_when_the_last_node_leaves_the_sync_set() {
    let mut server = waiting_for_the_other(2);
    server.replan(plan_without_sync_set(12));
    server.settle();
    assert!(!server.replies.contains_key(&2), "nobody else has it");
    server.now.us += 1_000_000;
    server.settle();
    assert_eq!(server.replies[&2].status, Status::NoReplicas);
}

#[test]
fn who_waits_for_the_sync_set_of_a_generation_is_not_answered_by_that_of_the_next() {
    let mut server = waiting_for_the_other(2);
    server.replan(plan(13, false));
    server.settle();
    assert_eq!(server.replies[&2].status, Status::NoReplicas);
    assert_eq!(answer(&mut server, 3), Status::Ok);
}

#[cfg(feature = "planted")]
#[test]
fn a_generation_that_answers_who_waits_for_the_one_before_is_caught() {
    use penstock_shard::replication::planted::{Bug, plant};
    plant(Some(Bug::WaitsOutliveGeneration));
    let run = std::panic::catch_unwind(
        who_waits_for_the_sync_set_of_a_generation_is_not_answered_by_that_of_the_next,
    );
    plant(None);
    assert!(run.is_err(), "{}", Bug::WaitsOutliveGeneration.name());
}

/// Each write of the beginning may be the last one: what was accepted and promised is not asked
/// for again.
#[test]
fn a_power_cut_while_an_empty_directory_begins_leaves_one_that_begins_or_asks_again() {
    let (mut refused, mut begun) = (0, 0);
    for steps in 0..40 {
        let mut server = opened(Image::default(), 1, plan(11, false));
        server.settle();
        server.replan(plan(12, true));
        for step in 0..steps {
            match step % 2 {
                0 => server.turn(),
                _ => server.end(0),
            }
            server.now.us += 1_000;
        }
        let mut again = opened(server.device.image.clone(), 2, plan(12, true));
        if answer(&mut again, 1) == Status::NotPrimary {
            refused += 1;
            again.replan(plan(13, true));
            assert_eq!(answer(&mut again, 2), Status::NotFound, "{steps}");
        } else {
            begun += 1;
            assert_eq!(again.replies[&1].status, Status::NotFound, "{steps}");
        }
    }
    assert!(refused > 0 && begun > 0, "{refused} and {begun}");
}
