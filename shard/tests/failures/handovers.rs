//! Who hands a partition over, by a plan that a node reads late.

use penstock_net::link::Membership;
use penstock_shard::cluster::Plan;

use crate::leases::{LEARNER, Pair, SYNC, lends_to, pair, partition, plan};

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
    let promised = writer.server.shard.partition(partition()).expect("its own");
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
