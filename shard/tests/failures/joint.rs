//! Changes over several shards: the shards of a node in virtual time, with crashes at each step.

mod cases;
mod commands;
mod history;
mod model;
mod world;

use penstock_storage::io::IoFailure;

use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Asked, Failure};

use history::{Event, History};
use model::{Found, Held};
use world::{Backup, Met, Node};

/// Steps of a run.
const STEPS: usize = 400;
/// Ticks that no run has.
const NEVER: u64 = 1_000_000;

/// Shards of the node of a seed.
fn shards_of(seed: u64) -> u16 {
    2 + u16::try_from(seed % 3).expect("small")
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
        if random.once_in(60) {
            history.passed(node.tick());
        }
        act(&mut node, &mut history, &mut random, 0);
        check(&node, &history, step);
        if node.is_fatal() {
            break;
        }
    }
    (node, history)
}

/// One step of a run. Keys end a few ticks behind so many more.
fn act(node: &mut Node, history: &mut History, random: &mut Random, far: u64) {
    let shards = node.shards();
    if random.once_in(3) {
        let client = random.below(shards);
        if node.is_free(client) && history.has_room() {
            let command = match history.watched_by(client) {
                Some((_, keys)) => commands::watched(&keys, random),
                None => commands::command(random, shards, node.ticks(), far),
            };
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

/// Takes backups of a node that goes on. How many were taken, and how many changes were decided.
fn back_up(seed: u64) -> (usize, u64) {
    let _seed = Seed(seed);
    let shards = shards_of(seed);
    let mut random = Random::new(seed);
    let mut node = Node::new(shards, None);
    let mut history = History::default();
    let (mut backup, mut rest, mut taken) = (Backup::default(), STEPS / 8, 0);
    for _ in 0..2 * STEPS {
        act(&mut node, &mut history, &mut random, NEVER);
        rest = rest.saturating_sub(1);
        if rest > 0 {
            continue;
        }
        // A change has the time for all of its ways between two questions now and then.
        let rest_max = [2, 2, 200][random.below(3)];
        rest = 1 + random.below(rest_max);
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
    (taken, node.decided())
}

#[test]
fn a_backup_holds_each_change_whole_or_not_at_all() {
    let (mut taken, mut decided) = (0, 0);
    for seed in seeds(30) {
        let (more_taken, more_decided) = back_up(seed);
        (taken, decided) = (taken + more_taken, decided + more_decided);
    }
    assert!(
        taken > 20 && decided > 100,
        "{taken} backups, {decided} changes"
    );
}

/// Runs a node until all is at rest, and looks for an order. How many changes were decided, and
/// how many transactions behind WATCH were null and were not.
fn order(seed: u64) -> (u64, (usize, usize)) {
    let _seed = Seed(seed);
    let (mut node, mut history) = run(seed, shards_of(seed), None, |_, _, _| {});
    node.settle();
    for (client, reply) in node.take_replies() {
        history.answered(client, reply);
    }
    assert!(history.is_complete(), "{history:?}");
    assert_eq!(node.open_changes(), 0);
    let found = node.read_all();
    history
        .check(&found)
        .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    (node.decided(), history.watched())
}

#[test]
fn what_clients_see_is_as_if_changes_ran_one_behind_the_other() {
    let (mut decided, mut null, mut others) = (0, 0, 0);
    for seed in seeds(30) {
        let (more_decided, (more_null, more_others)) = order(seed);
        decided += more_decided;
        (null, others) = (null + more_null, others + more_others);
    }
    assert!(decided > 100, "{decided} changes of several shards");
    assert!(null > 0 && others > 0, "{null} null, {others} not");
}

/// Cuts the power at every second step. What the starts have met.
fn crash_often(seed: u64) -> Met {
    let _seed = Seed(seed);
    let shards = shards_of(seed);
    let mut random = Random::new(seed);
    let mut met = Met::default();
    run(seed, shards, None, |node, history, step| {
        if step % 2 == 0 {
            met = met.and(crash(node, history, &mut random, shards));
        }
    });
    met
}

#[test]
fn a_crash_at_each_step_leaves_each_change_whole_or_not_at_all() {
    let met = seeds(6).map(crash_often).fold(Met::default(), Met::and);
    assert!(met.resumed > 20 && met.with_redo > 0, "{met:?}");
    assert!(met.with_snapshot > 0, "no start used a snapshot: {met:?}");
}

/// Each of these bugs makes one of the runs above fail, whatever they count.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_of_changes_over_several_shards_are_caught() {
    use penstock_storage::planted::{Bug, plant};

    type Run = fn(u64);
    let (ordered, crashed): (Run, Run) = (|seed| _ = order(seed), |seed| _ = crash_often(seed));
    let backed_up: Run = |seed| _ = back_up(seed);
    let all = [
        (Bug::DecideBeforeReady, ordered),
        (Bug::CloseBeforeApplied, crashed),
        (Bug::ForgetClaim, ordered),
        (Bug::DecideBesideBackup, backed_up),
    ];
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for (bug, run) in all {
        plant(Some(bug));
        let caught = seeds(100).find(|&seed| std::panic::catch_unwind(|| run(seed)).is_err());
        plant(None);
        match caught {
            Some(seed) => println!("{}: seed {seed}", bug.name()),
            None => missed.push(bug.name()),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Cuts the power, starts again with `shards`, and holds what is there against the history. What
/// the starts have met.
fn crash(node: &Node, history: &History, random: &mut Random, shards: u16) -> Met {
    let (found, met) = restarted(node, random, shards);
    history
        .check(&found)
        .unwrap_or_else(|why| panic!("behind a crash: {why}"));
    met
}

fn restarted(node: &Node, random: &mut Random, shards: u16) -> (Found, Met) {
    let mut again = node.cut(random, shards);
    let mut met = Met::default();
    // It may crash within the start.
    for _ in 0..random.below(3) {
        for _ in 0..random.below(30) {
            again.step(random);
        }
        met = met.and(again.met());
        again = again.cut(random, shards);
    }
    again.settle();
    assert!(again.is_serving());
    (again.read_all(), met.and(again.met()))
}

#[test]
fn a_crash_and_a_start_with_another_number_of_shards_leave_each_change_whole() {
    let mut resumed = 0;
    for seed in seeds(4) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let shards = shards_of(seed);
        run(seed, shards, None, |node, history, step| {
            if step % 8 == 0 {
                let others = [1, 2, 3, 4][random.below(4)];
                let (found, count) = {
                    let mut again = node.reshard(&mut random, others);
                    again.settle();
                    assert!(again.is_serving());
                    (again.read_all(), again.met().resumed)
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
            .check(&Found::from([("key0".into(), Held::text("1"))]))
            .is_err()
    );
    assert!(matches!(history.last(), Some(Event { .. })));
}
