//! Changes over several shards: the shards of a node in virtual time, with crashes at each step.

mod history;
mod world;

use penstock_net::slot::{core_of, slot_of};
use penstock_storage::io::IoFailure;

use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Asked, Failure};

use history::{Event, History};
use world::{Backup, Found, Node};

/// Keys of the model, which are of all shards.
pub const KEYS: usize = 8;
/// Steps of a run.
const STEPS: usize = 400;

pub fn key(number: usize) -> String {
    format!("key{number}")
}

/// What clients ask: one change over several keys, or something beside it.
fn command(random: &mut Random, shards: usize) -> Vec<String> {
    let mut keys: Vec<String> = (0..KEYS).map(key).collect();
    for at in 0..KEYS {
        keys.swap(at, random.below(KEYS));
    }
    // MSET and DEL within one shard are an item for each key.
    let shards = u16::try_from(shards).expect("few");
    let core = |key: &String| core_of(slot_of(key.as_bytes()), shards);
    let other = keys.iter().position(|key| core(key) != core(&keys[0]));
    keys.swap(1, other.expect("keys are of all shards"));
    let [a, b, c] = [&keys[0], &keys[1], &keys[2]];
    let number = random.below(1_000);
    let one = match random.below(14) {
        0 => format!("GET {a}"),
        1 => format!("SET {a} {number}"),
        2 => format!("DEL {a} {b} {c}"),
        3 => format!("MSET {a} {number} {b} {number}"),
        4 => format!("RENAME {a} {b}"),
        5 => format!("COPY {a} {b} REPLACE"),
        6 => format!("MSETNX {a} {number} {b} {number}"),
        7 | 8 => format!("EVAL all 2 {a} {b} INCRBY~{a}~{number} INCRBY~{b}~-{number} GET~{a}"),
        9 => format!("INCRBY {a} {number}"),
        _ => {
            return vec![
                "MULTI".into(),
                format!("INCRBY {a} -{number}"),
                format!("INCRBY {b} {number}"),
                format!("GET {c}"),
                "EXEC".into(),
            ];
        }
    };
    vec![one]
}

/// Runs a node for some steps. After each step `check` may take its disks away.
fn run(
    seed: u64,
    shards: u16,
    failing: Option<(u16, usize, Failure)>,
    mut check: impl FnMut(&Node, &History, usize),
) -> (Node, History) {
    let mut random = Random::new(seed * 1_000 + u64::from(shards));
    let mut node = Node::new(shards, failing);
    let mut history = History::default();
    for step in 0..STEPS {
        act(&mut node, &mut history, &mut random);
        check(&node, &history, step);
        if node.is_fatal() {
            break;
        }
    }
    (node, history)
}

/// One step of a run.
fn act(node: &mut Node, history: &mut History, random: &mut Random) {
    let shards = node.shards();
    if random.once_in(3) {
        let client = random.below(shards);
        if node.is_free(client) {
            let command = command(random, shards);
            history.asked(client, command.clone());
            node.ask(client, &command);
        }
    }
    if random.once_in(60) {
        node.fill(random.below(shards), random.once_in(2));
    }
    node.step(random);
    for (client, reply) in node.take_replies() {
        history.answered(client, reply);
    }
}

#[test]
fn a_backup_holds_each_change_whole_or_not_at_all() {
    let (mut taken, mut decided) = (0, 0);
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let shards = 2 + u16::try_from(seed % 3).expect("small");
        let mut random = Random::new(seed);
        let mut node = Node::new(shards, None);
        let mut history = History::default();
        let (mut backup, mut rest) = (Backup::default(), STEPS / 8);
        for step in 0..2 * STEPS {
            act(&mut node, &mut history, &mut random);
            rest = rest.saturating_sub(1);
            if rest > 0 || step % 2 == 1 {
                continue;
            }
            if let Some((from, images)) = backup.step(&mut node, history.now()) {
                let mut restored = node.restored(images);
                restored.settle();
                let found = restored.read_all();
                history
                    .as_of(from)
                    .check(&found)
                    .unwrap_or_else(|why| panic!("a backup: {why}"));
                taken += 1;
                // What was held back goes on.
                node.pass_us(400_000);
                (backup, rest) = (Backup::default(), STEPS / 8);
            }
        }
        decided += node.decided();
    }
    assert!(
        taken > 20 && decided > 100,
        "{taken} backups, {decided} changes"
    );
}

#[test]
fn what_clients_see_is_as_if_changes_ran_one_behind_the_other() {
    let mut decided = 0;
    for seed in seeds(30) {
        let _seed = Seed(seed);
        let shards = 2 + u16::try_from(seed % 3).expect("small");
        let (mut node, mut history) = run(seed, shards, None, |_, _, _| {});
        node.settle();
        for (client, reply) in node.take_replies() {
            history.answered(client, reply);
        }
        assert!(history.is_complete(), "{history:?}");
        decided += node.decided();
        assert_eq!(node.open_changes(), 0);
        let found = node.read_all();
        history
            .check(&found)
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(decided > 100, "{decided} changes of several shards");
}

#[test]
fn a_crash_at_each_step_leaves_each_change_whole_or_not_at_all() {
    let mut resumed = 0;
    for seed in seeds(6) {
        let _seed = Seed(seed);
        let shards = 2 + u16::try_from(seed % 3).expect("small");
        let mut random = Random::new(seed);
        run(seed, shards, None, |node, history, step| {
            if step % 2 == 0 {
                resumed += crash(node, history, &mut random, shards);
            }
        });
    }
    assert!(
        resumed > 20,
        "{resumed} starts found a change that was decided"
    );
}

/// Cuts the power, starts again with `shards`, and holds what is there against the history. How
/// many changes the start finished.
fn crash(node: &Node, history: &History, random: &mut Random, shards: u16) -> u64 {
    let (found, resumed) = restarted(node, random, shards);
    history
        .check(&found)
        .unwrap_or_else(|why| panic!("behind a crash: {why}"));
    resumed
}

fn restarted(node: &Node, random: &mut Random, shards: u16) -> (Found, u64) {
    let mut again = node.cut(random, shards);
    // It may crash within the start.
    for _ in 0..random.below(3) {
        for _ in 0..random.below(30) {
            again.step(random);
        }
        again = again.cut(random, shards);
    }
    again.settle();
    assert!(again.is_serving());
    (again.read_all(), again.resumed())
}

#[test]
fn a_crash_and_a_start_with_another_number_of_shards_leave_each_change_whole() {
    let mut resumed = 0;
    for seed in seeds(4) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let shards = 2 + u16::try_from(seed % 3).expect("small");
        run(seed, shards, None, |node, history, step| {
            if step % 8 == 0 {
                let others = [1, 2, 3, 4][random.below(4)];
                let (found, count) = {
                    let mut again = node.reshard(&mut random, others);
                    again.settle();
                    assert!(again.is_serving());
                    (again.read_all(), again.resumed())
                };
                history
                    .check(&found)
                    .unwrap_or_else(|why| panic!("with {others} shards: {why}"));
                resumed += count;
            }
        });
    }
    assert!(
        resumed > 5,
        "{resumed} starts found a change that was decided"
    );
}

#[test]
fn no_failure_of_a_request_to_the_disk_tears_a_change() {
    for seed in seeds(2) {
        let _seed = Seed(seed);
        let shards = 2;
        let (calm, _) = run(seed, shards, None, |_, _, _| {});
        for shard in 0..shards {
            let asked = calm.asked(shard).to_vec();
            for (number, asked) in asked.iter().enumerate().filter(|(at, _)| at % 3 == 0) {
                let failure = match asked {
                    Asked::Write | Asked::Sync => {
                        Failure::Ends(IoFailure::Device(crate::EIO), number % 3)
                    }
                    Asked::Read => Failure::Unreadable,
                    Asked::Spare => Failure::NoSpare,
                };
                let mut random = Random::new(seed);
                let failing = Some((shard, number, failure));
                let (node, history) = run(seed, shards, failing, |_, _, _| {});
                let (found, _) = restarted(&node, &mut random, shards);
                history.check(&found).unwrap_or_else(|why| {
                    panic!("request {number} of shard {shard}, {failure:?}: {why}")
                });
            }
        }
    }
}

#[test]
fn the_checker_finds_a_history_that_no_order_explains() {
    let mut history = History::default();
    let one = |text: &str| vec![text.to_string()];
    history.asked(0, one("SET key0 1"));
    history.answered(0, "+OK\\r\\n".into());
    history.asked(0, one("GET key0"));
    history.answered(0, "$-1\\r\\n".into());
    assert!(
        history
            .check(&Found::from([("key0".into(), "1".into())]))
            .is_err()
    );
    assert!(matches!(history.last(), Some(Event { .. })));
}
