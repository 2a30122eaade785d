//! Who hands a partition over, by a plan that a node reads late; and what a retry is told behind a
//! takeover.

use penstock_net::level::AckLevel;
use penstock_net::link::Membership;
use penstock_net::request::{Condition, Token};
use penstock_net::status::Status;
use penstock_shard::Event;
use penstock_shard::cluster::{PartitionRole, Plan};
use penstock_shard::replication::LinkId;

use crate::key;
use crate::leases::{LEARNER, Node, Pair, SYNC, lends_to, pair, partition, plan};
use crate::server::Reply;

/// Node 2 is to get the partition in this generation from the node that writes it.
fn handed_over(generation: u32, members: &[(u8, Membership)]) -> Plan {
    let mut plan = plan(2, generation, 2, members);
    plan.partitions[usize::from(partition())].is_handed_over = true;
    plan
}

/// Node 1 has written in generation 4, and node 2 has followed. Both read this plan.
fn both_read(plan: &Plan) -> Pair {
    let mut pair = pair(SYNC);
    pair.link();
    pair.settle();
    let generation = plan.partitions[usize::from(partition())].generation;
    let [writer, member] = &mut pair.nodes;
    member.replan(plan.clone());
    writer.replan(plan.clone());
    lends_to(writer, 2, u16::try_from(generation).expect("14 bits"));
    pair.settle();
    pair
}

/// Whether node 2 was told to begin, and the generation that node 1 has promised.
fn outcome(pair: &Pair) -> (bool, u32) {
    let [writer, member] = &pair.nodes;
    let promised = writer
        .server
        .shard
        .execution()
        .partition(partition())
        .expect("its own");
    (member.standing().is_able, promised.epoch.generation())
}

#[test]
fn who_was_replaced_by_force_before_a_switch_hands_nothing_over() {
    // Node 3 has written generation 5.
    let plan = handed_over(6, &[(3, SYNC), (1, LEARNER)]);
    assert_eq!(outcome(&both_read(&plan)), (false, 4));
}

#[test]
fn who_has_missed_a_switch_hands_over_to_the_primary_behind_it() {
    // Generation 5 was to be handed over to node 3.
    let plan = handed_over(6, &[(3, SYNC), (1, SYNC)]);
    assert_eq!(outcome(&both_read(&plan)), (true, 6));
}

#[test]
fn who_leaves_the_sync_set_in_the_middle_of_a_switch_hands_over_all_the_same() {
    let plan = handed_over(5, &[(3, SYNC), (1, LEARNER)]);
    assert_eq!(outcome(&both_read(&plan)), (true, 5));
}

/// The answer to a write with this token.
fn written(node: &mut Node, id: usize, token: Token) -> &Reply {
    let server = &mut node.server;
    server.send_at(AckLevel::Disk, id, |batch, out| {
        batch.token(token);
        batch.set(out, &key(0), b"once", Condition::Always);
    });
    server.settle();
    &server.replies[&id]
}

#[test]
fn a_retry_answers_the_version_of_the_first_try_also_when_a_rewind_writes_its_token_anew() {
    let mut pair = pair(SYNC);
    pair.link();
    pair.settle();
    pair.unlink();
    pair.settle();
    let token = Token::new(pair.nodes[0].server.time_ms(), [7; 10]);
    // The old primary has executed it, too: its tail has the token.
    assert_eq!(written(&mut pair.nodes[0], 900, token).status, Status::Ok);
    let next = plan(2, 5, 2, &[(1, LEARNER)]);
    pair.nodes[1].replan(next.clone());
    pair.settle();
    let first = written(&mut pair.nodes[1], 901, token);
    assert_eq!((first.status, first.is_replayed), (Status::Ok, false));
    let version = first.version;

    pair.nodes[0].replan(next);
    pair.link();
    for _ in 0..4 {
        pair.settle();
        pair.nodes[0].server.step_quietly(Event::DivergedKept {
            partition: partition(),
            link: Some(LinkId(2)),
        });
    }
    pair.settle();
    let [old, new] = &mut pair.nodes;
    let state = old
        .server
        .shard
        .execution()
        .partition(partition())
        .expect("its own");
    assert_eq!(state.role, PartitionRole::Following);
    let counters = new.server.shard.replication_counters(new.server.now);
    assert!(counters.links.rewritten > 0, "{counters:?}");
    let again = written(new, 902, token);
    assert_eq!((again.status, again.is_replayed), (Status::Ok, true));
    assert_eq!(again.version, version);
}
