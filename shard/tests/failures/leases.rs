//! Nodes that serve under leases: who is answered, and what a shard tells of its partitions. The
//! side that decides is the real one; the other nodes confirm what a test says.

use std::sync::Arc;

use penstock_net::apply::Apply;
use penstock_net::level::AckLevel;
use penstock_net::link::frame::LINK_VERSION_MAX;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Claim, Claims, Confirm, Heartbeat, Membership, NodeStart, PartitionSet};
use penstock_net::placement::Writer;
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::scan::ScanRequest;
use penstock_net::slot::{SLOTS, slot_of};
use penstock_net::status::Status;
use penstock_shard::cluster::{Assignment, ClusterConfig, Plan};
use penstock_shard::lease::{
    Failover, FailoverPlan, LeaseRules, LeaseTable, MemberStanding, Placing,
};
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_shard::replication::link_set::LinkSetConfig;
use penstock_shard::replication::{LinkId, PENDING_BYTES_MAX};
use penstock_shard::{Event, ShardConfig, Topology};
use penstock_storage::version::partition_of;

use crate::image::Image;
use crate::key;
use crate::server::{Server, shard_config};

const RULES: LeaseRules = LeaseRules::QUIET;
const L: u64 = RULES.lease_us();
pub const G: u64 = RULES.grace_us();

/// The partition of the keys.
pub fn partition() -> u16 {
    u16::try_from(partition_of(slot_of(&key(0)))).expect("256")
}

/// This node writes the partition of the keys, with these members; node 9 writes all others.
pub fn plan(number: u64, generation: u32, primary: u8, members: &[(u8, Membership)]) -> Plan {
    let assignment = |it: u16| Assignment {
        generation: if it == partition() { generation } else { 1 },
        primary: if it == partition() { primary } else { 9 },
        members: match it == partition() {
            true => members.to_vec(),
            false => Vec::new(),
        },
        is_handed_over: false,
        is_loss_accepted: false,
        is_incomplete_accepted: false,
    };
    Plan {
        partitions: (0..LINK_PARTITIONS).map(assignment).collect(),
        clients: [1, 2, 3, 9]
            .map(|node| (node, format!("node {node}")))
            .to_vec(),
        number,
        is_leased: true,
        min_sync: 0,
    }
}

pub const SYNC: Membership = Membership::Sync;
pub const LEARNER: Membership = Membership::Learner;

/// A node: its shard, and who decides for it.
pub struct Node {
    number: u8,
    pub server: Server,
    decider: Failover,
    pub table: Arc<LeaseTable>,
    ids: usize,
}

fn introduction(node: u8, incarnation: u32) -> Introduction {
    Introduction {
        log_format: 1,
        cluster_id: [1; 16],
        node_id: [node; 16],
        start: NodeStart {
            incarnation,
            start_id: incarnation,
        },
        node,
        shard: 0,
        shards: 1,
        record_bytes_max: 4 << 10,
        frame_bytes_max: 1 << 20,
    }
}

fn decided_by(plan: &Plan) -> FailoverPlan {
    let placing = |assignment: &Assignment| Placing {
        assignment: assignment.clone(),
        joining: Vec::new(),
    };
    FailoverPlan {
        number: plan.number,
        placings: plan.partitions.iter().map(placing).collect(),
        rules: RULES,
        min_sync: 0,
        is_paused: false,
        stay_learners: Vec::new(),
    }
}

fn config(me: Introduction, plan: Plan, table: &Arc<LeaseTable>) -> ClusterConfig {
    ClusterConfig {
        links: LinkSetConfig {
            me,
            ring_bytes_max: 64 << 10,
            backlog_bytes_max: 0,
            catch_up_bytes_per_s: 0,
            pending_bytes_max: PENDING_BYTES_MAX,
        },
        plan: Arc::new(plan),
        leases: Arc::clone(table),
        offers: Arc::default(),
        replica_timeout_us: 1_000_000,
        is_new: true,
    }
}

/// A node confirms a heartbeat that is sent now, and lends all.
fn confirm(decider: &mut Failover, table: &LeaseTable, now_us: u64, member: u8) {
    let number = decider.send(now_us, member, &mut Vec::new()).number;
    let confirm = Confirm {
        number,
        plan: 1,
        granted: (0..LINK_PARTITIONS).collect::<PartitionSet>(),
    };
    decider.confirm(now_us, member, &confirm);
    decider.publish(table);
}

impl Node {
    /// A start over a directory.
    pub fn open(number: u8, image: Image, incarnation: u32, plan: Plan) -> Self {
        let table = Arc::new(LeaseTable::default());
        let decider = Failover::new(1, number, decided_by(&plan));
        let config = config(introduction(number, incarnation), plan, &table);
        let server = Server::open_in_cluster(config, image, incarnation.into());
        Node {
            number,
            server: server.expect("it opens"),
            decider,
            table,
            ids: 0,
        }
    }

    /// A new node that writes its partition, and whose members lend nothing yet. Its grace is over.
    pub fn behind_the_grace(members: &[(u8, Membership)]) -> Self {
        let mut node = Node::open(1, Image::default(), 1, plan(1, 4, 1, members));
        node.server.settle();
        node.server.now.us = 1 + G;
        node.decider.publish(&node.table);
        node
    }

    pub fn replan(&mut self, plan: Plan) {
        let now_us = self.server.now.us;
        self.decider.take_plan(now_us, decided_by(&plan));
        self.decider.publish(&self.table);
        self.server.replan(plan);
    }

    /// What the shard has told is noted; then a node confirms a heartbeat that is sent now, and
    /// lends all. The shard has had time to look. Until when it lends.
    pub fn lends(&mut self, member: u8) -> u64 {
        let now_us = self.server.now.us;
        self.decider.note_all(now_us, &self.table, |_| 0);
        confirm(&mut self.decider, &self.table, now_us, member);
        self.server.now.us += 5_000;
        now_us + L
    }

    /// The status of a read that arrives now, before any turn, and is answered in later ones.
    pub fn get(&mut self) -> Status {
        self.ids += 1;
        self.server.get(self.ids, &key(0));
        self.server.settle();
        self.server.replies[&self.ids].status
    }

    pub fn set(&mut self, level: AckLevel) -> Status {
        let id = self.set_and_leave(level);
        self.server.settle();
        self.server.replies[&id].status
    }

    pub fn set_and_leave(&mut self, level: AckLevel) -> usize {
        self.ids += 1;
        self.server.send_at(level, self.ids, |batch, out| {
            batch.set(out, &key(0), b"value", Condition::Always);
        });
        self.ids
    }

    pub fn standing(&self) -> penstock_shard::lease::Standing {
        self.table.standing(partition(), true)
    }

    fn member(&self, node: u8) -> MemberStanding {
        self.table.member(node, partition())
    }
}

#[test]
fn without_a_lease_nobody_is_answered_reads_neither() {
    let mut node = Node::behind_the_grace(&[(2, SYNC), (3, SYNC)]);
    node.lends(2);
    assert_eq!(node.get(), Status::NotPrimary, "node 3 lends nothing");
    let reply = &node.server.replies[&node.ids];
    assert_eq!(reply.version, Writer::version(1, 4));
    assert!(String::from_utf8_lossy(&reply.value).contains("no lease"));
    for level in [AckLevel::None, AckLevel::Disk, AckLevel::Replica] {
        assert_eq!(node.set(level), Status::NotPrimary);
    }
    let first = partition() * (SLOTS / LINK_PARTITIONS);
    let cursor = u64::from(first) << 32;
    let scan = ScanRequest {
        cursor,
        prefix: b"",
        entries_max: 8,
        bytes_max: 4096,
        wants_values: true,
        wants_types: false,
    };
    let mut add = Apply::new();
    let at = add.key(&key(0));
    add.put(at, b"applied");
    node.server.send(100, |batch, out| batch.scan(out, &scan));
    node.server.send(101, |batch, out| batch.apply(out, &add));
    node.server.settle();
    for id in [100, 101] {
        assert_eq!(node.server.replies[&id].status, Status::NotPrimary);
    }
    node.lends(3);
    assert_eq!(node.get(), Status::NotFound);
    assert_eq!(node.set(AckLevel::Disk), Status::Ok);
}

#[test]
fn what_a_node_has_lent_itself_it_serves_behind_the_grace_alone() {
    let mut node = Node::open(1, Image::default(), 1, plan(1, 4, 1, &[(2, SYNC)]));
    node.server.settle();
    node.server.now.us = G - 100_000;
    node.lends(2);
    assert_eq!(node.get(), Status::NotPrimary, "its own start is too young");
    node.server.now.us = 1 + G;
    assert_eq!(node.get(), Status::NotFound);
}

#[test]
fn a_partition_that_nobody_may_take_over_is_served_without_a_lease_behind_the_grace() {
    let mut node = Node::open(1, Image::default(), 1, plan(1, 4, 1, &[(2, LEARNER)]));
    node.server.settle();
    node.decider.publish(&node.table);
    assert_eq!(node.get(), Status::NotPrimary);
    node.server.now.us = 1 + G;
    assert_eq!(node.get(), Status::NotFound);
    node.server.now.us += 100 * L;
    assert_eq!(node.get(), Status::NotFound);
}

#[test]
fn a_lease_that_ends_between_two_steps_ends_answers_at_once_and_comes_back_as_it_was() {
    let mut node = Node::behind_the_grace(&[(2, SYNC)]);
    let end_us = node.lends(2);
    assert_eq!(node.set(AckLevel::Disk), Status::Ok);
    let version = node.server.replies[&node.ids].version;
    node.server.now.us = end_us - 6_000;
    node.server.send(200, |batch, out| batch.get(out, &key(0)));
    node.server.turn();
    node.server.now.us = end_us;
    node.server.send(201, |batch, out| batch.get(out, &key(0)));
    node.server.settle();
    assert_eq!(node.server.replies[&200].status, Status::Ok);
    assert_eq!(node.server.replies[&201].status, Status::NotPrimary);
    node.lends(2);
    assert_eq!(node.set(AckLevel::Disk), Status::Ok);
    let again = node.server.replies[&node.ids].version;
    assert_eq!(again.epoch, version.epoch, "no new start of the partition");
    let leases = node
        .server
        .shard
        .replication_counters(node.server.now)
        .leases;
    assert_eq!((leases.lapses, leases.without), (1, 0));
}

#[test]
fn what_waits_for_members_goes_on_waiting_while_the_lease_is_away() {
    let mut node = Node::behind_the_grace(&[(2, SYNC)]);
    let end_us = node.lends(2);
    let id = node.set_and_leave(AckLevel::Replica);
    node.server.turn();
    node.server.now.us = end_us;
    assert_eq!(node.get(), Status::NotPrimary);
    assert!(!node.server.replies.contains_key(&id));
    node.server.now.us += 1_000_000;
    node.server.settle();
    assert_eq!(node.server.replies[&id].status, Status::NoReplicas);
}

/// A node with a key, whose lease is there until then, and a read of the key that has run.
fn with_a_read(id: usize) -> (Node, u64) {
    let mut node = Node::behind_the_grace(&[(2, SYNC)]);
    node.lends(2);
    assert_eq!(node.set(AckLevel::Disk), Status::Ok);
    let end_us = node.lends(2);
    node.server.settle();
    node.server.send(id, |batch, out| batch.get(out, &key(0)));
    (node, end_us)
}

fn ended(node: &Node) -> u64 {
    let counters = node.server.shard.replication_counters(node.server.now);
    counters.leases.ended
}

#[test]
fn what_may_have_run_behind_a_lease_is_not_answered_and_its_connection_ends() {
    for late_us in [0, 1] {
        let (mut node, end_us) = with_a_read(500);
        let server = &mut node.server;
        let turn_ends = Event::TurnEnds;
        server.shard.step(server.now, turn_ends, &mut server.outbox);
        // The thread stood still somewhere since it read its clock.
        server.now.us = end_us - 1 + late_us;
        server.shard.end_turn(server.now, &mut server.outbox);
        let mut out = Vec::new();
        server
            .shard
            .take_output(server.now, server.session, &mut out);
        let closed: Vec<_> = server.outbox.close.iter().map(|it| it.0).collect();
        match late_us {
            0 => assert!(!out.is_empty() && closed.is_empty()),
            _ => assert!(out.is_empty() && closed == [server.session]),
        }
        assert_eq!(ended(&node), late_us);
    }
}

#[test]
fn what_is_taken_before_the_turn_ends_is_held_against_the_lease_at_once() {
    let (mut node, end_us) = with_a_read(500);
    let server = &mut node.server;
    assert!(server.shard.execution().is_unchecked());
    server.now.us = end_us;
    let mut out = Vec::new();
    server
        .shard
        .take_output(server.now, server.session, &mut out);
    assert!(out.is_empty());
    let turn_ends = Event::TurnEnds;
    server.shard.step(server.now, turn_ends, &mut server.outbox);
    assert_eq!(server.outbox.close[0].0, server.session);
    assert_eq!(ended(&node), 1);
}

#[test]
fn what_ran_while_a_lease_was_renewed_or_was_checked_before_its_end_is_answered() {
    let (mut node, end_us) = with_a_read(500);
    node.server.now.us = end_us - 1;
    node.lends(2);
    node.server.settle();
    assert_eq!(node.server.replies[&500].status, Status::Ok);
    // A write that waits for the disk.
    let end_us = node.lends(2);
    node.server.settle();
    let id = node.set_and_leave(AckLevel::Disk);
    node.server.turn();
    assert!(!node.server.replies.contains_key(&id));
    node.server.now.us = end_us + L;
    node.server.settle();
    assert_eq!(node.server.replies[&id].status, Status::Ok);
    assert_eq!(node.get(), Status::NotPrimary);
}

#[test]
fn what_may_have_run_behind_a_lease_is_unknown_at_level_replica() {
    let (mut node, end_us) = with_a_read(500);
    node.server.turn();
    let id = node.set_and_leave(AckLevel::Replica);
    let server = &mut node.server;
    let turn_ends = Event::TurnEnds;
    server.shard.step(server.now, turn_ends, &mut server.outbox);
    server.now.us = end_us;
    server.shard.end_turn(server.now, &mut server.outbox);
    assert!(server.outbox.close.is_empty(), "it has no answer yet");
    node.server.turn();
    node.server.turn();
    assert_eq!(node.server.replies[&id].status, Status::NoReplicas);
}

#[test]
fn a_move_of_the_partition_in_the_same_turn_hides_no_lease_that_was_over() {
    let (mut node, end_us) = with_a_read(500);
    node.replan(plan(2, 5, 2, &[(1, SYNC)]));
    let server = &mut node.server;
    let turn_ends = Event::TurnEnds;
    server.shard.step(server.now, turn_ends, &mut server.outbox);
    server.now.us = end_us;
    server.shard.end_turn(server.now, &mut server.outbox);
    assert_eq!(server.outbox.close[0].0, server.session);
}

#[test]
fn an_answer_of_another_shard_that_may_have_run_behind_a_lease_ends_its_connection() {
    let mine = Plan {
        partitions: plan(1, 4, 1, &[(2, SYNC)])
            .partitions
            .into_iter()
            .map(|it| Assignment {
                primary: 1,
                members: vec![(2, SYNC)],
                ..it
            })
            .collect(),
        ..plan(1, 4, 1, &[])
    };
    let table = Arc::new(LeaseTable::default());
    let of = |shard| {
        let me = Introduction {
            shard,
            shards: 2,
            ..introduction(1, 1)
        };
        ShardConfig {
            cluster: Some(config(me, mine.clone(), &table)),
            ..shard_config(shard, 2, 1)
        }
    };
    let mut pair = crate::keyspaces::Pair::over([of(0), of(1)], false);
    let mut decider = Failover::new(1, 1, decided_by(&mine));
    pair.now.us = 1 + G;
    confirm(&mut decider, &table, pair.now.us, 2);
    pair.settle();
    let others = (0..).map(|number: u32| format!("key {number}").into_bytes());
    let topology = Topology::new(2);
    let key = others
        .into_iter()
        .find(|it| topology.owner(slot_of(it)) == 1);
    let key = key.expect("half of them");
    for (id, stands_still_us) in [(1, 0), (2, L)] {
        confirm(&mut decider, &table, pair.now.us, 2);
        pair.settle();
        let mut bytes = Vec::new();
        let mut batch = BatchRequest::begin(&mut bytes, id, AckLevel::Disk, 0, 1);
        batch.get(&mut bytes, &key);
        batch.finish(&mut bytes);
        pair.send(&bytes);
        pair.turn(0);
        pair.deliver(1);
        pair.stands_still_us = stands_still_us;
        pair.turn(1);
        pair.deliver(0);
        pair.turn(0);
        assert_eq!(pair.replies.contains_key(&id), stands_still_us == 0);
    }
    assert_eq!(pair.closed, [pair.session]);
}

#[test]
fn an_armed_key_does_not_fire_without_a_lease() {
    let mut node = Node::behind_the_grace(&[(2, SYNC)]);
    node.lends(2);
    let mut arm = Apply::new();
    let (hold, stock) = (arm.key(&key(0)), arm.key(&key(1)));
    arm.put(stock, &5u64.to_le_bytes())
        .put(hold, b"held")
        .then(hold.expire_in(10_000))
        .on_expire(hold, |effects| {
            effects.then(stock.u64(0).increase(1u64));
        });
    node.server.send(300, |batch, out| batch.apply(out, &arm));
    node.server.settle();
    assert_eq!(node.server.replies[&300].status, Status::Ok);
    node.server.sleep(60_000);
    node.server.settle();
    assert_eq!(node.server.counters().firing.fired, 0);
    node.lends(2);
    node.server.settle();
    node.server.sleep(1);
    node.server.settle();
    assert_eq!(node.server.counters().firing.fired, 1);
}

#[test]
fn leases_begin_and_end_with_the_plan_while_a_node_runs() {
    let unleased = |number| Plan {
        is_leased: false,
        ..plan(number, 4, 1, &[(2, SYNC)])
    };
    let mut node = Node::open(1, Image::default(), 1, unleased(1));
    node.server.settle();
    assert_eq!(node.get(), Status::NotFound);
    assert_eq!(node.table.turned_us(0), 0, "nobody asks");
    let deadline_us = node.server.shard.deadline_us(node.server.now);
    assert!(deadline_us.is_none_or(|it| it > node.server.now.us + 50_000));
    node.replan(plan(2, 4, 1, &[(2, SYNC)]));
    node.server.send(400, |batch, out| batch.get(out, &key(0)));
    node.server.settle();
    assert_eq!(node.server.replies[&400].status, Status::NotPrimary);
    node.server.now.us = 1 + G;
    node.lends(2);
    assert_eq!(node.get(), Status::NotFound);
    node.server.now.us += L;
    node.server.settle();
    node.replan(unleased(3));
    assert_eq!(node.get(), Status::NotFound);
}

#[test]
fn an_idle_shard_turns_each_50_ms_and_more_often_while_it_waits_for_a_lease() {
    let mut node = Node::behind_the_grace(&[(2, SYNC)]);
    let next_us = |node: &mut Node| {
        node.server.turn();
        let now = node.server.now;
        assert_eq!(node.table.turned_us(0), now.us);
        node.server.shard.deadline_us(now).expect("under leases") - now.us
    };
    assert!(next_us(&mut node) <= 5_000);
    node.lends(2);
    node.server.settle();
    node.server.now.us += 20_000;
    let idle_us = next_us(&mut node);
    assert!((10_000..=50_000).contains(&idle_us), "{idle_us}");
}

/// Two nodes with links for what each of them ships.
pub struct Pair {
    pub nodes: [Node; 2],
}

impl Pair {
    pub fn link(&mut self) {
        for (source, link) in [(0, LinkId(1)), (1, LinkId(2))] {
            let peers = [0, 1].map(|at: usize| peer(self.nodes[at].number));
            for at in [0, 1] {
                self.nodes[at].server.step_quietly(Event::LinkUp {
                    link,
                    peer: peers[1 - at],
                    is_outgoing: at == source,
                });
            }
        }
    }

    pub fn unlink(&mut self) {
        for node in &mut self.nodes {
            for link in [LinkId(1), LinkId(2)] {
                node.server.step_quietly(Event::LinkDown { link });
            }
        }
    }

    /// Lets both turn, and brings each what the other ships.
    pub fn settle(&mut self) {
        for _ in 0..60 {
            for at in [0, 1] {
                self.nodes[at].server.turn();
                self.nodes[at].server.end(0);
                self.nodes[at].server.now.us += 500;
                for link in std::mem::take(&mut self.nodes[at].server.links) {
                    let mut bytes = Vec::new();
                    let shard = &mut self.nodes[at].server.shard;
                    shard.execution_mut().take_link_output(link, &mut bytes);
                    let received = Event::LinkReceived {
                        link,
                        bytes: &bytes,
                    };
                    self.nodes[1 - at].server.step_quietly(received);
                }
            }
        }
    }
}

pub fn peer(node: u8) -> Peer {
    Peer {
        node_id: [node; 16],
        node,
        start: NodeStart {
            incarnation: 1,
            start_id: 1,
        },
        shard: 0,
        shards: 1,
        frame_bytes_max: 1 << 20,
        link_version: LINK_VERSION_MAX.into(),
    }
}

/// Node 1 writes, under a lease of node 2, which has `membership`.
pub fn pair(membership: Membership) -> Pair {
    let plan = plan(1, 4, 1, &[(2, membership)]);
    let mut writer = Node::open(1, Image::default(), 1, plan.clone());
    let mut member = Node::open(2, Image::default(), 1, plan);
    for node in [&mut writer, &mut member] {
        node.server.settle();
        node.server.now.us = 1 + G;
        node.decider.publish(&node.table);
    }
    writer.lends(2);
    let mut pair = Pair {
        nodes: [writer, member],
    };
    assert_eq!(pair.nodes[0].set(AckLevel::Disk), Status::Ok);
    pair
}

#[test]
fn a_shard_publishes_who_may_be_promoted_who_is_able_to_write_and_how_far_it_is() {
    let mut pair = pair(SYNC);
    let [writer, member] = &pair.nodes;
    assert!(writer.standing().is_able && !writer.standing().is_candidate);
    assert!(writer.standing().sequence > 0);
    assert!(!member.standing().is_able && !member.standing().is_candidate);
    assert_eq!(writer.member(2), standing(1, false, false));
    pair.link();
    pair.settle();
    let [writer, member] = &pair.nodes;
    assert!(member.standing().is_candidate && !member.standing().is_able);
    assert_eq!(member.standing().sequence, writer.standing().sequence);
    assert_eq!(writer.member(2), standing(1, true, true));
    pair.unlink();
    pair.settle();
    let [writer, member] = &pair.nodes;
    assert!(member.standing().is_candidate, "it has what it has");
    assert_eq!(writer.member(2), standing(1, false, true));
}

#[test]
fn a_shard_publishes_what_it_waits_for_to_be_handed_over() {
    let mut pair = pair(SYNC);
    pair.link();
    pair.settle();
    let mut next = plan(2, 5, 2, &[(1, SYNC)]);
    next.partitions[usize::from(partition())].is_handed_over = true;
    pair.nodes[1].replan(next.clone());
    pair.settle();
    let standing = pair.nodes[1].standing();
    assert!(standing.is_awaiting && !standing.is_able);
    pair.nodes[0].replan(next);
    lends_to(&mut pair.nodes[0], 2, 5);
    pair.settle();
    let standing = pair.nodes[1].standing();
    assert!(standing.is_able && !standing.is_awaiting);
}

#[test]
fn who_hands_over_serves_until_the_new_primary_has_asked_for_its_lease_or_is_late() {
    for is_asked in [true, false] {
        let mut pair = pair(SYNC);
        pair.link();
        pair.settle();
        let writer = &mut pair.nodes[0];
        let mut next = plan(2, 5, 2, &[(1, SYNC)]);
        next.partitions[usize::from(partition())].is_handed_over = true;
        writer.replan(next);
        writer.server.settle();
        assert_eq!(writer.get(), Status::Ok);
        match is_asked {
            true => lends_to(writer, 2, 5),
            false => writer.server.now.us += 100_000,
        }
        writer.server.settle();
        assert_eq!(writer.get(), Status::Moved);
    }
}

#[test]
fn who_lends_what_it_serves_to_the_next_primary_goes_on_serving() {
    let mut pair = pair(SYNC);
    pair.link();
    pair.settle();
    let writer = &mut pair.nodes[0];
    // The next primary has read the plan before.
    lends_to(writer, 2, 5);
    writer.server.now.us += 20_000;
    writer.server.settle();
    assert_eq!(writer.get(), Status::Ok);
    let counters = writer.server.shard.replication_counters(writer.server.now);
    assert_eq!(counters.leases.lapses, 0);
}

fn standing(plan: u64, has_joined: bool, is_proven: bool) -> MemberStanding {
    MemberStanding {
        plan,
        has_joined,
        is_proven,
    }
}

#[test]
fn a_learner_that_has_joined_is_proven_by_what_it_receives_behind_the_plan_that_counts_it() {
    let mut pair = pair(LEARNER);
    pair.link();
    pair.settle();
    assert_eq!(pair.nodes[0].member(2), standing(1, true, false));
    // It does not hear of what is written last, and comes to count.
    pair.unlink();
    pair.nodes[0].set_and_leave(AckLevel::Disk);
    for node in &mut pair.nodes {
        node.replan(plan(2, 4, 1, &[(2, SYNC)]));
    }
    pair.settle();
    assert_eq!(pair.nodes[0].member(2), standing(2, false, false));
    pair.link();
    pair.settle();
    assert_eq!(pair.nodes[0].member(2), standing(2, true, true));
}

#[test]
fn who_cannot_begin_is_not_vouched_for() {
    let mut node = Node::open(2, Image::default(), 1, plan(1, 4, 1, &[(2, SYNC)]));
    node.server.settle();
    // It has nothing, and a later plan does not say that it may begin so.
    node.replan(plan(2, 5, 2, &[(1, SYNC)]));
    node.server.settle();
    assert!(!node.standing().is_able);
    assert!(node.server.notices.concat().contains("not begun"));
}

/// Another node asks for the partition in a generation, and is granted it.
pub fn lends_to(node: &mut Node, from: u8, generation: u16) {
    let now_us = node.server.now.us;
    node.decider.note_all(now_us, &node.table, |_| 0);
    let claim = Claim {
        partition: partition(),
        generation,
        sequence: 0,
    };
    let last_read = node.decider.send(now_us, from, &mut Vec::new()).number;
    let mut bytes = Vec::new();
    let heartbeat = Heartbeat {
        number: 1,
        last_read,
        plan: 9,
        claims: Claims::write(&mut bytes, [claim]),
    };
    let granted = node.decider.read(now_us, from, &heartbeat).granted;
    assert!(granted.has(partition()));
    node.decider.publish(&node.table);
}

#[test]
fn what_is_handed_over_is_served_at_once_and_what_is_taken_over_behind_the_grace() {
    for is_handed_over in [true, false] {
        let mut pair = pair(SYNC);
        pair.link();
        pair.settle();
        let mut next = plan(2, 5, 2, &[(1, SYNC)]);
        next.partitions[usize::from(partition())].is_handed_over = is_handed_over;
        let [writer, member] = &mut pair.nodes;
        // The member has lent it a moment ago.
        lends_to(member, 1, 4);
        let lent_us = member.server.now.us;
        writer.replan(next.clone());
        lends_to(writer, 2, 5);
        member.replan(next.clone());
        pair.settle();
        let [writer, member] = &mut pair.nodes;
        assert!(member.standing().is_able);
        assert_eq!(writer.get(), Status::Moved);
        member.lends(1);
        assert!(member.server.now.us < lent_us + G);
        let expected = match is_handed_over {
            true => Status::Ok,
            false => Status::NotPrimary,
        };
        assert_eq!(member.get(), expected);
        member.server.now.us = lent_us + G;
        member.lends(1);
        assert_eq!(member.get(), Status::Ok);
    }
}

#[test]
fn by_min_sync_no_change_is_acknowledged_at_level_disk_that_no_member_has() {
    let mut pair = pair(SYNC);
    let plan = Plan {
        min_sync: 1,
        ..plan(2, 4, 1, &[(2, SYNC)])
    };
    // The member lends, and gets nothing.
    let writer = &mut pair.nodes[0];
    writer.replan(plan.clone());
    writer.lends(2);
    let changes = [AckLevel::Disk, AckLevel::Replica].map(|level| writer.set_and_leave(level));
    writer.ids += 1;
    let refused = writer.ids;
    writer
        .server
        .send_at(AckLevel::Disk, refused, |batch, out| {
            batch.set(out, &key(0), b"other", Condition::Absent);
        });
    assert_eq!(writer.get(), Status::Ok, "a read waits for nobody");
    assert_eq!(
        writer.server.replies[&refused].status,
        Status::Exists,
        "nor does a no"
    );
    for id in changes {
        assert!(!writer.server.replies.contains_key(&id), "{id}");
    }
    writer.server.now.us += 1_000_000;
    writer.server.settle();
    for id in changes {
        let reply = &writer.server.replies[&id];
        let text = String::from_utf8_lossy(&reply.value);
        assert_eq!(reply.status, Status::NoReplicas);
        assert!(text.starts_with("it was executed here"), "{text}");
    }
    let counters = writer.server.shard.replication_counters(writer.server.now);
    assert_eq!(
        (counters.waits, counters.waits_below, counters.missed),
        (2, 0, 2)
    );

    writer.lends(2);
    pair.nodes[1].replan(plan);
    pair.link();
    pair.settle();
    pair.nodes[0].lends(2);
    let id = pair.nodes[0].set_and_leave(AckLevel::Disk);
    pair.nodes[0].server.settle();
    assert!(
        !pair.nodes[0].server.replies.contains_key(&id),
        "on the disk here alone"
    );
    pair.settle();
    assert_eq!(pair.nodes[0].server.replies[&id].status, Status::Ok);
}

#[test]
fn a_write_that_is_older_than_the_begin_of_its_node_is_executed_and_says_so() {
    let mut node = Node::open(1, Image::default(), 1, plan(1, 4, 1, &[(2, LEARNER)]));
    node.server.settle();
    node.decider.publish(&node.table);
    node.server.now.us = 1 + G;
    let began_ms = node.server.now.unix_ms;
    let mut set_at = |time_ms: u64, level: AckLevel, value: &[u8]| {
        node.ids += 1;
        node.server.send_at(level, node.ids, |batch, out| {
            batch.token(Token::new(time_ms, [7; 10]));
            batch.set(out, &key(0), value, Condition::Always);
        });
        node.server.settle();
        let reply = &node.server.replies[&node.ids];
        (reply.status, reply.is_replayed, reply.has_begun_since)
    };
    let disk = AckLevel::Disk;
    let old_ms = began_ms - 1;
    assert_eq!(set_at(old_ms, disk, b"a"), (Status::Ok, false, true));
    assert_eq!(
        set_at(old_ms, disk, b"a"),
        (Status::Ok, true, false),
        "its answer again"
    );
    assert_eq!(
        set_at(old_ms, disk, b"b"),
        (Status::TokenReused, false, false)
    );
    assert_eq!(
        set_at(began_ms + 10_000, disk, b"c"),
        (Status::Ok, false, false)
    );
    // Nothing is asked of what has no token.
    assert_eq!(node.set(disk), Status::Ok);
    assert!(!node.server.replies[&node.ids].has_begun_since);
}
