//! Level `all`: every node that may write next has what was answered, and the disk alone where
//! there is no such node.

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;
use penstock_net::link::Membership;
use penstock_net::link::frame::LINK_VERSION;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::scan::{ScanPage, ScanRequest};
use penstock_net::slot::SLOTS;
use penstock_net::status::Status;
use penstock_shard::cluster::Plan;
use penstock_shard::replication::LinkId;
use penstock_shard::replication::handshake::Peer;
use penstock_shard::{Event, slot_of_cursor};
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::key;
use crate::leases::{G, LEARNER, Node, Pair, SYNC, pair, partition, peer, plan};
use crate::server::Server;

/// The plan with this number, in which node 1 writes the partition of the keys.
fn of(number: u64, generation: u32, members: &[(u8, Membership)]) -> Plan {
    plan(number, generation, 1, members)
}

/// What a reply says: status and level.
fn answer(node: &Node, id: usize) -> Option<(Status, AckLevel)> {
    let reply = node.server.replies.get(&id)?;
    Some((reply.status, reply.level))
}

fn all_is_disk(node: &Node) -> u64 {
    let counters = node.server.shard.replication_counters(node.server.now);
    counters.all_is_disk
}

/// Two nodes with a link. The first one writes.
pub fn linked() -> Pair {
    let mut pair = pair(SYNC);
    pair.link();
    pair.settle();
    pair.nodes[0].lends(2);
    pair
}

#[test]
fn level_all_waits_for_the_member_and_a_client_that_does_not_know_it_is_answered_replica() {
    let mut pair = linked();
    let id = pair.nodes[0].set_and_leave(AckLevel::All);
    pair.nodes[0].server.settle();
    assert_eq!(
        answer(&pair.nodes[0], id),
        None,
        "the disk here has it alone"
    );
    pair.settle();
    assert_eq!(
        answer(&pair.nodes[0], id),
        Some((Status::Ok, AckLevel::Replica))
    );
    assert_eq!(all_is_disk(&pair.nodes[0]), 0);
}

#[test]
fn a_node_of_a_cluster_refuses_a_text_as_a_token_and_takes_a_uuid() {
    let mut pair = linked();
    let node = &mut pair.nodes[0];
    let now_ms = node.server.time_ms();
    let text = Token::of_text(b"order-17", now_ms).expect("a short text");
    for (id, token, status) in [
        (900, text, Status::Unsupported),
        (901, Token::new(now_ms, [7; 10]), Status::Ok),
    ] {
        node.server.send(id, |batch, out| {
            batch.token(token);
            batch.set(out, &key(0), b"value", Condition::Always);
        });
        node.server.settle();
        assert_eq!(node.server.replies[&id].status, status);
    }
}

/// Ends a turn of a node. Whether its loop may stand still for the device.
fn turn(node: &mut Node) -> bool {
    let server = &mut node.server;
    server
        .shard
        .step(server.now, Event::TurnEnds, &mut server.outbox);
    let may_wait = server.shard.execution().may_wait_for_device(&server.outbox);
    server.turn();
    may_wait
}

/// Brings the other node what this one ships; how many frames of links that is.
fn carry(pair: &mut Pair, from: usize) -> usize {
    let mut frames = 0;
    for link in std::mem::take(&mut pair.nodes[from].server.links) {
        let mut bytes = Vec::new();
        let shard = &mut pair.nodes[from].server.shard;
        shard.execution_mut().take_link_output(link, &mut bytes);
        frames += frames_of(&bytes);
        let bytes = &bytes;
        let received = Event::LinkReceived { link, bytes };
        pair.nodes[1 - from].server.step_quietly(received);
    }
    frames
}

/// How many frames of a link these bytes are.
fn frames_of(mut bytes: &[u8]) -> usize {
    let mut frames = 0;
    while let Some(body) = bytes.first_chunk::<4>() {
        bytes = &bytes[u32::from_le_bytes(*body) as usize..];
        frames += 1;
    }
    frames
}

#[test]
fn a_write_at_level_all_takes_one_frame_each_way_beside_the_flush_and_no_flush_of_the_member() {
    let mut pair = linked();
    let id = pair.nodes[0].set_and_leave(AckLevel::All);
    assert!(turn(&mut pair.nodes[0]), "somebody waits for this disk");
    assert_eq!(pair.nodes[0].server.device.under_way().len(), 1);
    // The record leaves while the device has it, and the mark in the turn that takes it in.
    assert_eq!(carry(&mut pair, 0), 1);
    turn(&mut pair.nodes[1]);
    assert!(pair.nodes[1].server.device.under_way().is_empty());
    assert_eq!(carry(&mut pair, 1), 1);
    turn(&mut pair.nodes[0]);
    assert_eq!(answer(&pair.nodes[0], id), None, "not on the disk here");
    pair.nodes[0].server.end(0);
    let may_wait = turn(&mut pair.nodes[0]);
    assert!(answer(&pair.nodes[0], id).is_some());
    assert!(!may_wait, "a reply is to leave");

    // What the member applies nobody waits for, so its loop goes on meanwhile.
    assert_eq!(carry(&mut pair, 0), 1);
    let may_wait = turn(&mut pair.nodes[1]);
    assert_eq!(pair.nodes[1].server.device.under_way().len(), 1);
    assert!(!may_wait, "nobody waits");
}

/// Asks for the keys of a partition that begin with a prefix.
fn scan(server: &mut Server, level: AckLevel, id: usize, prefix: &[u8]) {
    let slots = u64::from(SLOTS / LINK_PARTITIONS);
    let request = ScanRequest {
        cursor: (u64::from(partition()) * slots) << 32,
        prefix,
        entries_max: 8,
        bytes_max: 4096,
        wants_values: true,
        wants_types: false,
    };
    server.send_at(level, id, |batch, out| batch.scan(out, &request));
}

#[test]
fn a_page_of_what_was_written_at_level_all_waits_like_a_get_and_ends_with_its_partition() {
    let mut pair = linked();
    let write = pair.nodes[0].set_and_leave(AckLevel::Disk);
    let page = write + 100;
    let server = &mut pair.nodes[0].server;
    server.settle();
    scan(server, AckLevel::All, page, b"");
    server.settle();
    assert_eq!(answer(&pair.nodes[0], page), None);
    pair.settle();
    let replica = Some((Status::Ok, AckLevel::Replica));
    assert_eq!(answer(&pair.nodes[0], page), replica);
    let reply = &pair.nodes[0].server.replies[&page];
    let shown = ScanPage::read(&reply.value).expect("a page");
    assert_eq!(shown.entries().count(), 1);
    let slots = SLOTS / LINK_PARTITIONS;
    assert_eq!(slot_of_cursor(shown.cursor), (partition() + 1) * slots);
}

#[test]
fn a_read_of_what_was_written_at_level_all_waits_like_the_write() {
    let mut pair = linked();
    let write = pair.nodes[0].set_and_leave(AckLevel::Disk);
    let read = write + 100;
    let server = &mut pair.nodes[0].server;
    server.settle();
    server.send_at(AckLevel::All, read, |batch, out| batch.get(out, &key(0)));
    server.settle();
    assert_eq!(
        answer(&pair.nodes[0], write),
        Some((Status::Ok, AckLevel::Disk))
    );
    assert_eq!(answer(&pair.nodes[0], read), None);
    pair.settle();
    let replica = Some((Status::Ok, AckLevel::Replica));
    assert_eq!(answer(&pair.nodes[0], read), replica);
}

#[test]
fn what_waits_ends_at_the_disk_by_the_plan_that_empties_the_set_and_not_before() {
    let mut node = Node::behind_the_grace(&[(2, SYNC), (3, SYNC)]);
    node.lends(2);
    node.lends(3);
    let ids = [(); 2].map(|()| node.set_and_leave(AckLevel::All));
    node.server.settle();
    assert_eq!(ids.map(|id| answer(&node, id)), [None; 2]);
    // The set shrinks, and the rest of it is waited for.
    node.replan(of(2, 4, &[(2, SYNC), (3, LEARNER)]));
    node.lends(2);
    node.server.settle();
    assert_eq!(ids.map(|id| answer(&node, id)), [None; 2]);
    node.replan(of(3, 4, &[(2, LEARNER), (3, LEARNER)]));
    node.server.settle();
    let disk = Some((Status::Ok, AckLevel::Disk));
    assert_eq!(ids.map(|id| answer(&node, id)), [disk; 2]);
    assert_eq!(node.set(AckLevel::All), Status::Ok);
    assert_eq!(all_is_disk(&node), 3);
    assert_eq!(node.set(AckLevel::Replica), Status::NoReplicas);

    // A set that begins again is waited for from its plan on, in the generation before and behind.
    node.replan(of(4, 5, &[(2, SYNC)]));
    node.lends(2);
    let id = node.set_and_leave(AckLevel::All);
    node.server.settle();
    node.lends(2);
    let begun = node.set_and_leave(AckLevel::All);
    node.server.settle();
    let unknown = Some((Status::NoReplicas, AckLevel::None));
    assert!([None, unknown].contains(&answer(&node, id)));
    assert_eq!(answer(&node, begun), None);
    node.server.now.us += 1_000_000;
    node.server.settle();
    assert_eq!([id, begun].map(|id| answer(&node, id)), [unknown; 2]);
    assert_eq!(all_is_disk(&node), 3);
}

#[test]
fn level_all_is_never_below_min_sync() {
    let by_min_sync = |number, members: &[_]| Plan {
        min_sync: 1,
        ..of(number, 4, members)
    };
    let mut node = Node::behind_the_grace(&[(2, SYNC)]);
    node.replan(by_min_sync(2, &[(2, SYNC)]));
    node.lends(2);
    let id = node.set_and_leave(AckLevel::All);
    node.server.settle();
    node.replan(by_min_sync(3, &[(2, LEARNER)]));
    node.server.settle();
    assert_eq!(answer(&node, id), None);
    let refused = node.set_and_leave(AckLevel::All);
    node.server.settle();
    let reply = &node.server.replies[&refused];
    let text = String::from_utf8_lossy(&reply.value);
    assert_eq!(reply.status, Status::NoReplicas);
    assert!(
        text.starts_with("nothing was executed: 0 other nodes"),
        "{text}"
    );
    node.server.now.us += 1_000_000;
    node.server.settle();
    let unknown = Some((Status::NoReplicas, AckLevel::None));
    assert_eq!(answer(&node, id), unknown);
    assert_eq!(node.set(AckLevel::Disk), Status::Ok);
}

#[test]
fn what_waits_at_level_all_is_unknown_when_its_time_is_over_or_another_node_writes() {
    for is_deposed in [false, true] {
        let mut pair = linked();
        pair.unlink();
        let id = pair.nodes[0].set_and_leave(AckLevel::All);
        pair.settle();
        assert_eq!(answer(&pair.nodes[0], id), None);
        if is_deposed {
            let next = plan(2, 5, 2, &[(1, LEARNER)]);
            pair.nodes.iter_mut().for_each(|it| it.replan(next.clone()));
            pair.nodes[1].server.now.us += 2 * G;
            pair.nodes[1].server.settle();
        }
        pair.nodes[0].server.now.us += 1_000_000;
        pair.settle();
        let unknown = Some((Status::NoReplicas, AckLevel::None));
        assert_eq!(answer(&pair.nodes[0], id), unknown);
    }
}

fn decrement() -> Instruction {
    Instruction {
        operation: Operation::Add,
        field_type: FieldType::I64,
        key: 0,
        reason: 1,
        offset: 0,
        immediate: u64::MAX,
    }
}

/// Sends so many equal changes of a key in one batch.
fn send_changes(server: &mut Server, level: AckLevel, id: usize, count: usize) {
    let mut batch = BatchRequest::begin(&mut server.inbox, id as u64, level, 0, count);
    for _ in 0..count {
        let start = Some(&100u64.to_le_bytes()[..]);
        batch.update_if(&mut server.inbox, &key(0), None, &[decrement()], start);
    }
    batch.finish(&mut server.inbox);
    server.hand_over();
}

#[test]
fn the_answers_of_a_run_wait_together_and_each_is_answered_its_own_version() {
    let mut pair = linked();
    let first = pair.nodes[0].set_and_leave(AckLevel::Disk);
    pair.settle();
    let stock = 100u64.to_le_bytes();
    let server = &mut pair.nodes[0].server;
    server.set(first + 1, &key(0), &stock);
    pair.settle();
    pair.nodes[0].lends(2);
    let (id, count) = (first + 100, 40);
    let server = &mut pair.nodes[0].server;
    let runs_before = server.counters().in_runs;
    send_changes(server, AckLevel::All, id, count);
    server.settle();
    assert_eq!(server.counters().in_runs - runs_before, 39);
    assert!(!server.replies.contains_key(&id));
    let counters = server.shard.replication_counters(server.now);
    assert_eq!(counters.waiting, 40);
    pair.settle();
    let server = &pair.nodes[0].server;
    let replies: Vec<_> = (id..id + count).map(|id| &server.replies[&id]).collect();
    let level = AckLevel::Replica;
    assert!(
        replies
            .iter()
            .all(|it| (it.status, it.level) == (Status::Ok, level))
    );
    let sequences: Vec<u64> = replies.iter().map(|it| it.version.sequence).collect();
    assert!(
        sequences.is_sorted_by(|one, next| one + 1 == *next),
        "{sequences:?}"
    );
}

#[test]
fn the_answers_of_a_run_that_no_member_has_in_time_are_each_unknown() {
    let mut pair = linked();
    let server = &mut pair.nodes[0].server;
    server.set(50, &key(0), &100u64.to_le_bytes());
    pair.settle();
    pair.unlink();
    pair.nodes[0].lends(2);
    let server = &mut pair.nodes[0].server;
    send_changes(server, AckLevel::All, 100, 5);
    server.settle();
    server.now.us += 1_000_000;
    server.settle();
    for id in 100..105 {
        assert_eq!(server.replies[&id].status, Status::NoReplicas);
    }
    assert_eq!(server.shard.replication_counters(server.now).waiting, 0);
}

/// A node of two that writes all partitions, waits for nobody, and has met node 2 by this version
/// of the link.
pub fn writer_of_all(versions: &[u16]) -> Server {
    let mut plan = of(1, 4, &[]);
    for assignment in &mut plan.partitions {
        assignment.primary = 1;
        assignment.members = vec![(2, LEARNER)];
    }
    plan.clients.truncate(2);
    plan.is_leased = false;
    let mut node = Node::open(1, Image::default(), 1, plan);
    node.server.settle();
    for (number, &link_version) in (1..).zip(versions) {
        node.server.step_quietly(Event::LinkUp {
            link: LinkId(number),
            peer: Peer {
                link_version,
                ..peer(2)
            },
            is_outgoing: true,
        });
    }
    node.server
}

fn set_keyspace(server: &mut Server, id: usize, settings: Settings) -> Status {
    server.send(id, |batch, out| {
        batch.keyspace(out, b"", Action::Set(settings));
    });
    server.settle();
    server.replies[&id].status
}

#[test]
fn a_keyspace_has_level_all_and_a_default_level_only_when_each_node_of_the_plan_knows_them() {
    let least = Settings {
        level_min: AckLevel::All,
        ..Settings::default()
    };
    let default = Settings {
        level_default: Some(AckLevel::Disk),
        ..Settings::default()
    };
    let (older, newer) = (u16::from(LINK_VERSION), u16::from(LINK_VERSION) + 1);
    // The newest link counts.
    let offers: [(&[u16], Status); 4] = [
        (&[], Status::Unsupported),
        (&[older], Status::Unsupported),
        (&[newer, older], Status::Unsupported),
        (&[older, newer], Status::Ok),
    ];
    for (versions, expected) in offers {
        let mut server = writer_of_all(versions);
        assert_eq!(
            set_keyspace(&mut server, 1, Settings::default()),
            Status::Ok
        );
        for (id, settings) in [(2, least), (3, default)] {
            assert_eq!(set_keyspace(&mut server, id, settings), expected);
            if expected != Status::Ok {
                let text = String::from_utf8_lossy(&server.replies[&id].value);
                assert!(text.contains("node 2 has not offered"), "{text}");
            }
        }
    }
}

#[test]
fn a_page_of_keys_whose_keyspace_asks_for_all_waits_and_no_other_page_does() {
    let mut server = writer_of_all(&[u16::from(LINK_VERSION) + 1]);
    let least = Settings {
        level_min: AckLevel::All,
        ..Settings::default()
    };
    server.send(1, |batch, out| {
        batch.keyspace(out, b"key:", Action::Set(least));
    });
    server.settle();
    assert_eq!(server.replies[&1].status, Status::Ok);
    let level = |server: &mut Server, id, prefix: &[u8]| {
        scan(server, AckLevel::Disk, id, prefix);
        server.settle();
        let reply = server.replies.get(&id)?;
        Some((reply.status, reply.level))
    };
    // Nobody may write next.
    assert_eq!(
        level(&mut server, 2, b""),
        Some((Status::Ok, AckLevel::Disk))
    );
    let mut plan = of(2, 4, &[]);
    for assignment in &mut plan.partitions {
        assignment.primary = 1;
        assignment.members = vec![(2, SYNC)];
    }
    plan.clients.truncate(2);
    plan.is_leased = false;
    server.replan(plan);
    server.settle();
    for (id, prefix) in (10..).zip([&b""[..], b"k", b"key:", b"key:1"]) {
        assert_eq!(level(&mut server, id, prefix), None, "{prefix:?}");
    }
    for (id, prefix) in (20..).zip([&b"kez"[..], b"other"]) {
        let disk = Some((Status::Ok, AckLevel::Disk));
        assert_eq!(level(&mut server, id, prefix), disk, "{prefix:?}");
    }
    server.now.us += 1_000_000;
    server.settle();
    for id in 10..14 {
        assert_eq!(server.replies[&id].status, Status::NoReplicas);
    }
}

#[test]
fn a_request_that_names_no_level_goes_by_the_default_level_of_its_keyspaces() {
    let mut server = writer_of_all(&[u16::from(LINK_VERSION) + 1]);
    let settings = Settings {
        level_default: Some(AckLevel::All),
        ..Settings::default()
    };
    assert_eq!(set_keyspace(&mut server, 1, settings), Status::Ok);
    let set = |server: &mut Server, level, id| {
        server.send_at(level, id, |batch, out| {
            batch.set(out, &key(0), b"value", Condition::Always);
        });
        server.settle();
        server.replies[&id].level
    };
    let mut apply = Apply::new();
    let at = apply.key(&key(1));
    apply.put(at, b"applied");
    assert_eq!(set(&mut server, AckLevel::Interval, 10), AckLevel::Interval);
    assert_eq!(set(&mut server, AckLevel::None, 11), AckLevel::Disk);
    server.send_at(AckLevel::None, 12, |batch, out| batch.apply(out, &apply));
    server.settle();
    assert_eq!(server.replies[&12].level, AckLevel::Disk);
    let counters = server.shard.replication_counters(server.now);
    assert_eq!(counters.all_is_disk, 2);
}

#[test]
fn a_node_alone_reaches_the_disk_at_level_all() {
    let mut server =
        Server::open(SyncMethod::DurableWrite, Image::default(), 1, None).expect("it opens");
    let settings = Settings {
        level_min: AckLevel::All,
        ..Settings::default()
    };
    assert_eq!(set_keyspace(&mut server, 1, settings), Status::Ok);
    server.send_at(AckLevel::All, 2, |batch, out| {
        batch.set(out, &key(0), b"value", Condition::Always);
    });
    server.send_at(AckLevel::None, 3, |batch, out| batch.get(out, &key(0)));
    server.settle();
    for id in [2, 3] {
        let reply = &server.replies[&id];
        assert_eq!((reply.status, reply.level), (Status::Ok, AckLevel::Disk));
    }
}
