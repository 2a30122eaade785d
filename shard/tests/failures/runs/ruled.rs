//! The same beside keyspaces that come and go, and on a node of a cluster whose partitions come and
//! go.

use std::sync::Arc;

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Membership, NodeStart};
use penstock_shard::cluster::{Assignment, ClusterConfig, Plan};
use penstock_shard::replication::PENDING_BYTES_MAX;
use penstock_shard::replication::handshake::Introduction;
use penstock_shard::replication::link_set::LinkSetConfig;

use super::purchases::purchases;
use super::*;

/// Some are a prefix of a keyspace, some begin with one, some share no more than its first byte,
/// and some nothing.
pub(super) const NAMES: [&[u8]; 12] = [
    b"a",
    b"ab",
    b"abc",
    b"b",
    b"b:1",
    b"c",
    b"{t}1",
    b"{t}2",
    b"{u}1",
    b"z",
    b"\xFF",
    b"\xFF and a longer name than the others",
];

const PREFIXES: [&[u8]; 12] = [
    b"", b"a", b"ab", b"abc", b"abcd", b"b:", b"{", b"{t}1", b"\xFF", b"y", b"\x7F", b"zz",
];

const ME: u8 = 1;
const OTHER: u8 = 2;

/// Sets or drops some keyspace. That of all keys is dropped more often than it is set.
pub(super) fn change_keyspace(random: &mut Random, batch: &mut BatchRequest, out: &mut Vec<u8>) {
    let prefix = PREFIXES[random.below(PREFIXES.len())];
    let settings = Settings {
        level_min: [AckLevel::None, AckLevel::Disk][random.below(2)],
        versions: [0, 0, 1, 3][random.below(4)],
        layout: [0, 7][random.below(2)],
        value_bytes_max: [0, 0, 16][random.below(3)],
        ttl_ms: [0, 0, 5_000][random.below(3)],
        ..Settings::default()
    };
    let drops = match prefix {
        [] => !random.once_in(3),
        _ => random.once_in(3),
    };
    let action = match drops {
        true => Action::Drop,
        false => Action::Set(settings),
    };
    batch.keyspace(out, prefix, action);
}

/// A batch of plain items, most of them, of keys that keyspaces rule and others.
fn mixed_batch(random: &mut Random, request_id: u64, levels: &[AckLevel]) -> Vec<u8> {
    let level = levels[random.below(levels.len())];
    let deadline_ms = if random.once_in(20) { 1 } else { 0 };
    let items_max = 1 + random.below(40);
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, request_id, level, deadline_ms, items_max);
    while batch.len() < items_max {
        let key = NAMES[random.below(NAMES.len())];
        match random.below(60) {
            0 => change_keyspace(random, &mut batch, &mut out),
            1 => batch.del(&mut out, key, Condition::Always),
            2..5 => batch.history(&mut out, key, 0, 4),
            5 => {
                let expiry = Expiry::In(1 + random.next() % 5);
                batch.set_with(&mut out, key, b"for a moment", Condition::Always, expiry);
            }
            6 => run(
                random,
                &mut batch,
                &mut out,
                (key, Expiry::Keep),
                items_max,
                Runs::ChangeNothing,
            ),
            7 => purchases(random, &mut batch, &mut out, items_max),
            8..32 => batch.get(&mut out, key),
            _ => {
                let len = [0, 8, 15, 16, 16, 17, 24, 300][random.below(8)];
                let value = vec![(random.next() & 3).to_le_bytes()[0]; len];
                batch.set(&mut out, key, &value, Condition::Always);
            }
        }
    }
    batch.finish(&mut out);
    out
}

/// How the two shards are set up.
fn setup(random: &mut Random) -> (ShardConfig, LogConfig) {
    let log = LogConfig {
        frame_bytes: [2, 8, 16][random.below(3)] * BLOCK_BYTES,
        ..log_config(SyncMethod::DurableWrite, 1)
    };
    let mut config = shard_config(0, 1, 1);
    config.shared_bytes_min = [100, usize::MAX][random.below(2)];
    config.level_min = [AckLevel::None, AckLevel::None, AckLevel::Disk][random.below(3)];
    (config, log)
}

/// Whether keyspaces rule some of the keys and not all of them.
pub(super) fn rules_some(side: &Side) -> bool {
    let keyspaces = side.shard.store().keyspaces();
    let ruled = NAMES.iter().filter(|name| keyspaces.may_rule(name)).count();
    (1..NAMES.len()).contains(&ruled)
}

/// Runs both with what follows from `seed`. How many plain items the first has answered, and how
/// many of them while keyspaces ruled some of the keys.
fn compare_beside_keyspaces(seed: u64) -> [u64; 2] {
    let mut random = Random::new(seed);
    let (config, log) = setup(&mut random);
    let budget = Budget::of_cache([2_500, 1 << 20][random.below(2)]);
    let sides = [(); 2].map(|()| Side::new(config.clone(), log.clone(), budget));
    let levels = [AckLevel::None, AckLevel::Interval, AckLevel::Disk];
    let (mut last, mut beside) = (0, 0);
    let quick = compare_sides(
        seed,
        &mut random,
        sides,
        usize::MAX,
        |random, step, (_, sides)| {
            let [_, gets, sets] = sides[0].quick();
            if rules_some(&sides[0]) {
                beside += gets + sets - last;
            }
            last = gets + sets;
            Some(mixed_batch(random, step, &levels))
        },
    );
    [quick[1] + quick[2], beside]
}

#[test]
fn plain_items_beside_keyspaces_are_answered_logged_and_counted_as_one_by_one() {
    let (mut plain, mut beside, mut count) = (0, 0, 0);
    for number in seeds(12) {
        let seed = Seed(number);
        let [all, of_those] = compare_beside_keyspaces(seed.0);
        (plain, beside, count) = (plain + all, beside + of_those, count + 1);
    }
    assert!(
        plain > 200 * count && beside > 100 * count,
        "{plain} plain items, {beside} of them beside keyspaces"
    );
}

/// Who writes which partitions, behind `before`.
fn next_plan(random: &mut Random, before: Option<&Plan>, min_sync: usize) -> Plan {
    let assignment = |partition: u16| {
        let before = before.map(|plan| &plan.partitions[usize::from(partition)]);
        if let Some(before) = before
            && !random.once_in(4)
        {
            return before.clone();
        }
        let primary = if random.once_in(4) { OTHER } else { ME };
        let member = ME + OTHER - primary;
        let membership = [Membership::Sync, Membership::Learner][random.below(2)];
        Assignment {
            generation: before.map_or(1, |before| before.generation + 1),
            primary,
            members: vec![(member, membership)],
            is_handed_over: false,
            is_loss_accepted: before.is_some(),
            is_incomplete_accepted: before.is_some(),
        }
    };
    Plan {
        partitions: (0..LINK_PARTITIONS).map(assignment).collect(),
        clients: [ME, OTHER]
            .map(|node| (node, format!("node {node}")))
            .to_vec(),
        number: 0,
        is_leased: false,
        min_sync,
    }
}

fn of_cluster(plan: &Arc<Plan>) -> ClusterConfig {
    ClusterConfig {
        links: LinkSetConfig {
            me: Introduction {
                log_format: 1,
                cluster_id: [1; 16],
                node_id: [2; 16],
                start: NodeStart {
                    incarnation: 1,
                    start_id: 1,
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
        plan: Arc::clone(plan),
        leases: Arc::default(),
        offers: Arc::default(),
        replica_timeout_us: 20_000,
        is_new: true,
    }
}

/// The same of a node of a cluster, whose partitions go to the other node and come back. How many
/// plain GETs and SETs the first has answered.
fn compare_in_cluster(seed: u64) -> [u64; 2] {
    let mut random = Random::new(seed);
    let (mut config, log) = setup(&mut random);
    let min_sync = [0, 0, 1][random.below(3)];
    let mut plan = Arc::new(next_plan(&mut random, None, min_sync));
    config.cluster = Some(of_cluster(&plan));
    let budget = Budget::of_cache(1 << 20);
    let sides = [(); 2].map(|()| Side::new(config.clone(), log.clone(), budget));
    let levels = [
        AckLevel::None,
        AckLevel::Interval,
        AckLevel::Disk,
        AckLevel::Disk,
        AckLevel::Replica,
    ];
    let quick = compare_sides(
        seed,
        &mut random,
        sides,
        usize::MAX,
        |random, step, (now, sides)| {
            if random.once_in(80) {
                plan = Arc::new(next_plan(random, Some(&plan), min_sync));
                for side in sides {
                    let event = Event::Plan(Arc::clone(&plan));
                    side.shard.step(now, event, &mut side.outbox);
                }
            }
            Some(mixed_batch(random, step, &levels))
        },
    );
    [quick[1], quick[2]]
}

#[test]
fn plain_items_of_a_node_of_a_cluster_are_answered_logged_and_counted_as_one_by_one() {
    let (mut reads, mut sets, mut count) = (0, 0, 0);
    for number in seeds(12) {
        let seed = Seed(number);
        let [gets, set] = compare_in_cluster(seed.0);
        (reads, sets, count) = (reads + gets, sets + set, count + 1);
    }
    assert!(
        reads > 100 * count && sets > 50 * count,
        "{reads} plain GETs, {sets} plain SETs"
    );
}

/// What a SET and then the same SETs as a batch leave in frames of the log, of a shard whose
/// sequences begin there.
fn logged(sequence: u64, keyspace: Option<&[u8]>) -> (Vec<u8>, [u64; 3]) {
    const FRAME_HEADER_BYTES: usize = 64;
    let log = LogConfig {
        frame_bytes: 16 * BLOCK_BYTES,
        ..log_config(SyncMethod::DurableWrite, 1)
    };
    let mut config = shard_config(0, 1, 1);
    config.shared_bytes_min = usize::MAX;
    let mut side = Side::from(config, log, Budget::of_cache(1 << 20), sequence);
    let now = Now { us: 1, unix_ms: 1 };
    side.send(now, 0, &[]);
    side.settle(now);
    let ask = |side: &mut Side, id, add: &dyn Fn(&mut BatchRequest, &mut Vec<u8>)| {
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, id, AckLevel::Disk, 0, 64);
        add(&mut batch, &mut out);
        batch.finish(&mut out);
        side.send(now, 0, &out);
    };
    if let Some(prefix) = keyspace {
        let settings = Settings {
            versions: 3,
            layout: 7,
            ..Settings::default()
        };
        ask(&mut side, 1, &|batch, out| {
            batch.keyspace(out, prefix, Action::Set(settings));
        });
        side.settle(now);
        assert!(side.shard.store().keyspaces().may_rule(prefix));
    }
    let sets = |batch: &mut BatchRequest, out: &mut Vec<u8>| {
        for value in [&b"0123456789abcdef"[..], b"fedcba9876543210"] {
            for key in [&b"a"[..], b"ab", b"b"] {
                batch.set(out, key, value, Condition::Always);
                batch.get(out, key);
            }
        }
    };
    ask(&mut side, 2, &sets);
    side.settle(now);
    ask(&mut side, 3, &sets);
    let mut bytes = Vec::new();
    side.shard.step(now, Event::TurnEnds, &mut side.outbox);
    for request in &side.outbox.io {
        if let Io::Write { block, len, .. } = request {
            bytes.extend_from_slice(&block.bytes()[FRAME_HEADER_BYTES..*len as usize]);
        }
    }
    (bytes, side.quick())
}

#[test]
fn what_no_keyspace_rules_is_logged_byte_by_byte_as_without_keyspaces() {
    // The record of the keyspace in each partition takes one sequence.
    let (without, plain) = logged(SEQUENCE + 1, None);
    let (beside, plain_beside) = logged(SEQUENCE, Some(b"z"));
    assert!(without == beside && without.len() > 1_000);
    assert_eq!((plain, plain_beside), ([0, 12, 8], [0, 12, 8]));
    let (ruled, none) = logged(SEQUENCE, Some(b""));
    assert!(ruled != without);
    assert_eq!(none, [0; 3]);
}
