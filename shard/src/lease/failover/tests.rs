use penstock_net::link::Membership;

use super::*;
use crate::cluster::Assignment;

const RULES: LeaseRules = LeaseRules::QUIET;
const G: u64 = RULES.grace_us();

/// Node 1 writes partitions 0 and 1, nodes 2 and 3 are their sync set.
fn plan() -> FailoverPlan {
    let placing = |partition: u16| Placing {
        assignment: Assignment {
            generation: 1,
            primary: 1,
            members: match partition {
                0 | 1 => [2, 3].map(|node| (node, Membership::Sync)).to_vec(),
                _ => Vec::new(),
            },
            is_handed_over: false,
            is_loss_accepted: false,
            is_incomplete_accepted: false,
        },
        joining: Vec::new(),
    };
    FailoverPlan {
        number: 1,
        rules: RULES,
        placings: (0..LINK_PARTITIONS).map(placing).collect(),
        min_sync: 0,
        is_paused: false,
        stay_learners: Vec::new(),
    }
}

fn standing(sequence: u64) -> Standing {
    Standing {
        is_turning: true,
        is_candidate: true,
        is_able: true,
        is_awaiting: false,
        sequence,
    }
}

/// Three nodes over this plan; node 3 has more records than node 2.
fn nodes(plan: &FailoverPlan) -> Vec<Failover> {
    let node = |number: u8| {
        let mut node = Failover::new(0, number, plan.clone());
        for partition in [0, 1] {
            node.note(0, partition, standing(40 + u64::from(number)));
        }
        node
    };
    (1..=3).map(node).collect()
}

/// All send to all, but where nothing passes.
fn exchange(nodes: &mut [Failover], now_us: u64, passes: impl Fn(u8, u8) -> bool) {
    for node in nodes.iter_mut() {
        node.note_awake(now_us);
    }
    for (from, to) in (0..3).flat_map(|from| (0..3).map(move |to| (from, to))) {
        let (one, other) = (nodes[from].me, nodes[to].me);
        if from == to || !passes(one, other) {
            continue;
        }
        let mut claims = Vec::new();
        let heartbeat = nodes[from].send(now_us, other, &mut claims);
        let mut claimed = Vec::new();
        let heartbeat = Heartbeat {
            claims: Claims::write(&mut claimed, heartbeat.claims.iter()),
            ..heartbeat
        };
        let confirm = nodes[to].read(now_us, one, &heartbeat);
        if passes(other, one) {
            nodes[from].confirm(now_us, other, &confirm);
        }
    }
}

/// Heartbeats each 50 ms up to a time.
fn beats(nodes: &mut [Failover], from_us: u64, until_us: u64, passes: impl Fn(u8, u8) -> bool) {
    let mut now_us = from_us;
    while now_us < until_us {
        exchange(nodes, now_us, &passes);
        now_us += RULES.beat_us();
    }
}

fn wish(node: &mut Failover, now_us: u64) -> Option<Wish> {
    node.wish(now_us, |_, _| false)
}

const LOST: fn(u8, u8) -> bool = |from, to| from != 1 && to != 1;

#[test]
fn the_candidate_with_most_records_asks_first_and_the_next_one_150_ms_later() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    assert!(nodes[0].may_serve(2 * G, 0) && !nodes[1].may_serve(2 * G, 0));
    let granted_us = 2 * G - RULES.beat_us();
    beats(&mut nodes, 2 * G, granted_us + G, LOST);
    let due_us = granted_us + G;
    assert_eq!(wish(&mut nodes[2], due_us - 1), None);
    let expected = Some(Wish::TakeOver {
        from: 1,
        partitions: PartitionSet::from_iter([0, 1]),
    });
    assert_eq!(wish(&mut nodes[1], due_us + LeaseRules::RANK_US - 1), None);
    assert_eq!(wish(&mut nodes[1], due_us + LeaseRules::RANK_US), expected);
    assert_eq!(wish(&mut nodes[2], due_us), expected);
    // One swap at a time.
    assert_eq!(wish(&mut nodes[2], due_us), None);
    // The old primary stopped long before.
    assert!(!nodes[0].may_serve(granted_us + RULES.lease_us(), 0));
    assert!(nodes[2].may_begin(due_us, 0));
}

#[test]
fn silent_members_are_removed_if_min_sync_others_stay_and_a_pause_keeps_takeovers_away() {
    for (min_sync, removed) in [(0, &[2, 3][..]), (1, &[]), (2, &[])] {
        let mut plan = plan();
        plan.min_sync = min_sync;
        plan.is_paused = true;
        let mut nodes = nodes(&plan);
        beats(&mut nodes, 0, 2 * G, |_, _| true);
        let silent_us = 2 * G - RULES.beat_us() + RULES.silence_us();
        beats(&mut nodes, 2 * G, silent_us, |_, _| false);
        assert_eq!(wish(&mut nodes[0], silent_us - 1), None);
        let silent = removed
            .iter()
            .map(|&node| (node, PartitionSet::from_iter([0, 1])));
        let silent: Vec<_> = silent.collect();
        let expected = (!silent.is_empty()).then_some(Wish::Remove { silent });
        assert_eq!(wish(&mut nodes[0], silent_us), expected);
        nodes[0].swapped();
        beats(&mut nodes, silent_us, 4 * G, |_, _| false);
        assert_eq!(wish(&mut nodes[2], 9 * G), None);
        // Whichever is back first is the one that stays.
        beats(&mut nodes, 9 * G, 11 * G, |from, to| from != 2 && to != 2);
        let partitions = PartitionSet::from_iter([0, 1]);
        let expected = (min_sync < 2).then_some(Wish::Remove {
            silent: vec![(2, partitions)],
        });
        assert_eq!(wish(&mut nodes[0], 11 * G), expected);
    }
}

#[test]
fn a_primary_that_is_confirmed_by_nobody_leaves_the_others_the_time_to_take_over() {
    let mut nodes = nodes(&plan());
    let last_us = 2 * G - RULES.beat_us();
    beats(&mut nodes, 0, last_us, |_, _| true);
    // The one is cut off a little earlier than the other one.
    let silent_us = last_us - RULES.beat_us() + RULES.alone_us();
    beats(&mut nodes, last_us, 2 * G, |from, to| from + to != 3);
    beats(&mut nodes, 2 * G, silent_us, LOST);
    assert_eq!(wish(&mut nodes[0], silent_us - 1), None);
    assert!(matches!(
        wish(&mut nodes[2], last_us + G),
        Some(Wish::TakeOver { from: 1, .. })
    ));
    // They were lost, too.
    assert!(matches!(
        wish(&mut nodes[0], last_us + RULES.alone_us()),
        Some(Wish::Remove { silent }) if silent.len() == 2
    ));
}

#[test]
fn a_cut_in_one_direction_counts_for_both() {
    for cut in [(1, 2), (2, 1)] {
        let mut nodes = nodes(&plan());
        let passes = |from, to| (from, to) != cut;
        beats(&mut nodes, 0, 2 * G, passes);
        assert!(!nodes[0].may_serve(2 * G, 0), "{cut:?}");
        assert!(nodes[1].may_begin(2 * G, 0), "{cut:?}");
        assert!(!nodes[2].may_begin(2 * G, 0), "{cut:?}");
    }
}

#[test]
fn partitions_of_a_core_that_stands_still_move_and_the_others_stay() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    let still = Standing {
        is_turning: false,
        ..standing(41)
    };
    nodes[0].note(2 * G, 1, still);
    beats(&mut nodes, 2 * G, 4 * G, |_, _| true);
    assert!(nodes[0].may_serve(4 * G, 0) && !nodes[0].may_serve(4 * G, 1));
    let expected = Some(Wish::TakeOver {
        from: 1,
        partitions: PartitionSet::from_iter([1]),
    });
    assert_eq!(wish(&mut nodes[2], 4 * G), expected);
    // While its swap is under way it lends nothing of that, and of the other one it does.
    nodes[0].note(4 * G, 1, standing(41));
    beats(&mut nodes, 4 * G, 6 * G, |_, _| true);
    assert!(nodes[0].may_serve(6 * G, 0) && !nodes[0].may_serve(6 * G, 1));
    nodes[2].swapped();
    beats(&mut nodes, 6 * G, 7 * G, |_, _| true);
    assert!(nodes[0].may_serve(7 * G, 1));
}

#[test]
fn who_was_too_late_to_take_over_lends_to_who_did_before_its_own_swap_has_ended() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    beats(&mut nodes, 2 * G, 4 * G, LOST);
    let wished = wish(&mut nodes[2], 4 * G).expect("node 1 is lost");
    assert_eq!(wish(&mut nodes[1], 4 * G).as_ref(), Some(&wished));
    // The swap of node 3 is made. That of node 2 is not answered yet.
    let mut next = plan();
    next.number = 2;
    wished.apply(3, &mut next.placings);
    nodes[2].swapped();
    for node in &mut nodes[1..] {
        node.take_plan(4 * G, next.clone());
    }
    beats(&mut nodes, 4 * G, 4 * G + RULES.silence_us(), LOST);
    assert!(nodes[2].may_serve(4 * G + RULES.silence_us(), 0));
    assert_eq!(wish(&mut nodes[2], 4 * G + RULES.silence_us()), None);
    assert_eq!(wish(&mut nodes[1], 5 * G), None, "its swap is under way");
}

#[test]
fn a_member_whose_core_stands_still_is_removed_and_not_asked_back_before_it_turns() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    let still = Standing {
        is_turning: false,
        ..standing(42)
    };
    nodes[1].note(2 * G, 1, still);
    beats(&mut nodes, 2 * G, 4 * G, |_, _| true);
    let partitions = PartitionSet::from_iter([1]);
    let removal = wish(&mut nodes[0], 4 * G).expect("it grants nothing");
    let silent = vec![(2, partitions)];
    assert_eq!(removal, Wish::Remove { silent });
    let mut next = plan();
    next.number = 2;
    removal.apply(1, &mut next.placings);
    for node in &mut nodes {
        node.swapped();
        node.take_plan(4 * G, next.clone());
    }
    // It has all records and answers heartbeats, for longer than its hold-down.
    beats(&mut nodes, 4 * G, 20 * G, |_, _| true);
    assert_eq!(nodes[0].wish(20 * G, |_, _| true), None);
    // It is a learner of one partition, and node 3 of none.
    assert!(nodes[0].enters_in_us(20 * G, 2).expect("it may join") > 0);
    assert_eq!(nodes[0].enters_in_us(20 * G, 3), None);
    nodes[1].note(20 * G, 1, standing(42));
    let hold_us = 5_000_000;
    let from_us = 20 * G + hold_us;
    beats(&mut nodes, 20 * G, from_us - G, |_, _| true);
    assert_eq!(nodes[0].wish(from_us - G, |_, _| true), None);
    beats(&mut nodes, from_us - G, from_us + G, |_, _| true);
    assert_eq!(nodes[0].enters_in_us(from_us + G, 2), Some(0));
    let expected = Wish::Join {
        node: 2,
        partitions,
    };
    assert_eq!(nodes[0].wish(from_us + G, |_, _| true), Some(expected));
}

#[test]
fn a_node_that_waits_for_a_handover_is_not_taken_for_lost_before_it_has_begun() {
    let mut plan = plan();
    for placing in &mut plan.placings[..2] {
        placing.assignment.is_handed_over = true;
    }
    let mut nodes = nodes(&plan);
    let waits = Standing {
        is_able: false,
        ..standing(41)
    };
    for partition in [0, 1] {
        nodes[0].note(0, partition, waits);
    }
    beats(&mut nodes, 0, 4 * G, |_, _| true);
    assert_eq!(wish(&mut nodes[2], 4 * G), None);
    nodes[0].note(4 * G, 0, standing(41));
    beats(&mut nodes, 4 * G, 6 * G, |_, _| true);
    beats(&mut nodes, 6 * G, 8 * G, LOST);
    let expected = Some(Wish::TakeOver {
        from: 1,
        partitions: PartitionSet::from_iter([0]),
    });
    assert_eq!(wish(&mut nodes[2], 8 * G), expected);
}

/// Node 1 hands partitions 0 and 1 over to node 2.
fn handed_over() -> FailoverPlan {
    let mut next = plan();
    next.number = 2;
    for placing in &mut next.placings[..2] {
        placing.assignment = Assignment {
            generation: 2,
            primary: 2,
            members: [1, 3].map(|node| (node, Membership::Sync)).to_vec(),
            is_handed_over: true,
            ..placing.assignment.clone()
        };
    }
    next
}

#[test]
fn a_handover_that_does_not_come_is_given_up_whether_it_was_asked_for_or_not() {
    for is_awaiting in [true, false] {
        let mut nodes = nodes(&plan());
        beats(&mut nodes, 0, 2 * G, |_, _| true);
        for node in &mut nodes {
            node.take_plan(2 * G, handed_over());
        }
        let waits = Standing {
            is_able: false,
            is_awaiting,
            ..standing(42)
        };
        for partition in [0, 1] {
            nodes[1].note(2 * G, partition, waits);
        }
        let overdue_us = 2 * G + LeaseRules::HANDOVER_US;
        beats(&mut nodes, 2 * G, overdue_us - G, |_, _| true);
        assert_eq!(wish(&mut nodes[2], overdue_us - G), None);
        beats(&mut nodes, overdue_us - G, overdue_us + 2 * G, |_, _| true);
        let expected = Some(Wish::TakeOver {
            from: 2,
            partitions: PartitionSet::from_iter([0, 1]),
        });
        assert_eq!(wish(&mut nodes[2], overdue_us + 2 * G), expected);
    }
}

#[test]
fn who_gets_a_partition_handed_over_has_its_lease_before_and_serves_behind_the_handover() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    // The others read the plan later.
    nodes[1].take_plan(2 * G, handed_over());
    let waits = Standing {
        is_able: false,
        is_awaiting: true,
        ..standing(42)
    };
    nodes[1].note(2 * G, 0, waits);
    let until_us = 2 * G + RULES.silence_us();
    beats(&mut nodes, 2 * G, until_us, |_, _| true);
    assert!(nodes[1].lease_end_us(0) > until_us);
    assert!(!nodes[1].may_serve(until_us, 0), "it has lent it to node 1");
    nodes[1].handed_over(0, 2);
    assert!(nodes[1].may_serve(until_us, 0));
}

#[test]
fn who_waits_for_a_lost_node_claims_no_more_and_a_third_one_takes_over() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    let next = handed_over();
    let waits = Standing {
        is_able: false,
        is_awaiting: true,
        ..standing(42)
    };
    for node in &mut nodes {
        node.take_plan(2 * G, next.clone());
    }
    for partition in [0, 1] {
        nodes[1].note(2 * G, partition, waits);
    }
    // As long as the old primary is there, it may be slow.
    beats(&mut nodes, 2 * G, 8 * G, |_, _| true);
    assert_eq!(wish(&mut nodes[2], 8 * G), None);
    beats(&mut nodes, 8 * G, 9 * G, LOST);
    // Nobody is removed by a node that does not write.
    assert_eq!(wish(&mut nodes[1], 9 * G), None);
    beats(&mut nodes, 9 * G, 11 * G, LOST);
    let expected = Some(Wish::TakeOver {
        from: 2,
        partitions: PartitionSet::from_iter([0, 1]),
    });
    assert_eq!(wish(&mut nodes[2], 11 * G), expected);
}

#[test]
fn nobody_takes_over_again_within_the_hold_down() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    let mut next = plan();
    next.number = 2;
    let partitions = PartitionSet::from_iter([0, 1]);
    Wish::TakeOver {
        from: 1,
        partitions,
    }
    .apply(3, &mut next.placings);
    let taken_us = 2 * G;
    nodes[1].take_plan(taken_us, next.clone());
    let hold_us = 5_000_000;
    assert_eq!(nodes[1].held_us(taken_us + 1), hold_us - 1);
    beats(&mut nodes, taken_us, taken_us + hold_us, |_, _| false);
    assert_eq!(wish(&mut nodes[1], taken_us + hold_us - 1), None);
    assert_eq!(nodes[1].held_us(taken_us + hold_us), 0);
    let takeover = wish(&mut nodes[1], taken_us + hold_us);
    assert!(matches!(takeover, Some(Wish::TakeOver { from: 3, .. })));
    // An older plan changes nothing.
    nodes[1].take_plan(taken_us, plan());
    assert_eq!(nodes[1].plan(), &next);
}

#[test]
fn what_is_handed_on_before_it_has_come_is_taken_over_when_nobody_can_hand_it_over() {
    let mut nodes = nodes(&plan());
    beats(&mut nodes, 0, 2 * G, |_, _| true);
    let mut next = handed_over();
    // And node 2, which has not got them, is to hand them on to node 3.
    next.number = 3;
    for placing in &mut next.placings[..2] {
        placing.assignment.generation = 3;
        placing.assignment.primary = 3;
        placing.assignment.members = [1, 2].map(|node| (node, Membership::Sync)).to_vec();
    }
    let waits = |is_awaiting| Standing {
        is_able: false,
        is_awaiting,
        ..standing(42)
    };
    for node in &mut nodes {
        node.take_plan(2 * G, handed_over());
        node.take_plan(2 * G, next.clone());
    }
    for partition in [0, 1] {
        nodes[1].note(2 * G, partition, waits(false));
        nodes[2].note(2 * G, partition, waits(true));
    }
    let overdue_us = 2 * G + LeaseRules::HANDOVER_US;
    beats(&mut nodes, 2 * G, overdue_us - G, LOST);
    assert_eq!(wish(&mut nodes[1], overdue_us - G), None);
    beats(&mut nodes, overdue_us - G, overdue_us + 2 * G, LOST);
    let expected = Some(Wish::TakeOver {
        from: 3,
        partitions: PartitionSet::from_iter([0, 1]),
    });
    assert_eq!(wish(&mut nodes[1], overdue_us + 2 * G), expected);
}

#[test]
fn who_cannot_begin_what_it_took_over_is_replaced_by_a_member_that_has_started_since() {
    // Node 1 has taken them over from node 2, and has lost what it had received. Node 3 has all
    // from node 2, and node 1 has never asked it for a lease.
    let mut taken = plan();
    for placing in &mut taken.placings[..2] {
        placing.assignment.generation = 2;
        placing.assignment.members = vec![(3, Membership::Sync), (2, Membership::Learner)];
    }
    let mut nodes = nodes(&taken);
    let unable = Standing {
        is_candidate: false,
        is_able: false,
        ..standing(1)
    };
    for partition in [0, 1] {
        nodes[0].note(0, partition, unable);
    }
    beats(&mut nodes, 0, G, |_, _| true);
    assert_eq!(wish(&mut nodes[2], G - 1), None);
    beats(&mut nodes, G, 2 * G, |_, _| true);
    let expected = Some(Wish::TakeOver {
        from: 1,
        partitions: PartitionSet::from_iter([0, 1]),
    });
    assert_eq!(wish(&mut nodes[2], 2 * G), expected);
}

#[test]
fn who_may_go_by_a_plan_without_failover_is_not_replaced() {
    let mut nodes = nodes(&plan());
    // It was never heard: it may not know of leases.
    beats(&mut nodes, 0, 3 * G, LOST);
    assert_eq!(wish(&mut nodes[2], 3 * G), None);
    beats(&mut nodes, 3 * G, 5 * G, |_, _| true);
    // Failover was off for a while, and node 1 has not read that yet.
    let mut next = plan();
    next.number = 3;
    nodes[2].turn_off();
    nodes[2].take_plan(5 * G, next.clone());
    beats(&mut nodes, 5 * G, 6 * G, |_, _| true);
    beats(&mut nodes, 6 * G, 9 * G, LOST);
    assert_eq!(wish(&mut nodes[2], 9 * G), None);
    // It has read the newer plan now.
    nodes[0].take_plan(9 * G, next);
    beats(&mut nodes, 9 * G, 10 * G, |_, _| true);
    beats(&mut nodes, 10 * G, 12 * G, LOST);
    let takeover = wish(&mut nodes[2], 12 * G);
    assert!(matches!(takeover, Some(Wish::TakeOver { from: 1, .. })));
}
