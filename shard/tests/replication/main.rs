//! Replication as a whole, in small: nodes with logs that lose what is not durable, links that
//! deliver in pieces and end at any byte, starts, promotions with and without the old primary's
//! knowledge, cleaning. One seed decides a run; the machine is the real one, the shell around it is
//! `world.rs`.
//!
//! What is held against it: no epoch is written by two lives; what a member applies is durable at
//! its source; whoever is promoted has what was acknowledged at level `replica`; what was
//! acknowledged at level `disk` and is gone in the end stands in a lostfound; in the end all nodes
//! are equal; and no link is refused but for a frame that was spoilt on purpose.

mod world;

use world::World;

/// Runs of `cargo test`; `PENSTOCK_REPLICATION_SEEDS` for more, `PENSTOCK_REPLICATION_FIRST` for
/// others.
fn seeds() -> std::ops::Range<u64> {
    let number = |name, or| {
        std::env::var(name).map_or(or, |text| text.parse().unwrap_or_else(|_| panic!("{name}")))
    };
    let first = number("PENSTOCK_REPLICATION_FIRST", 1);
    first..first + number("PENSTOCK_REPLICATION_SEEDS", 300)
}

#[test]
fn nothing_promised_is_lost_and_nothing_leaves_in_silence() {
    let mut met = world::Met::default();
    let mut failed = Vec::new();
    for seed in seeds() {
        match std::panic::catch_unwind(|| World::run(seed)) {
            Ok(run) => met.add(&run),
            Err(_) => {
                println!("seed {seed} failed");
                failed.push(seed);
            }
        }
    }
    println!("{met:?}");
    assert!(failed.is_empty(), "failed: {failed:?}");
    if seeds().count() >= 300 {
        met.check();
    }
}

/// Each planted bug makes a run fail, but for those that so few runs do not meet.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_of_replication_are_caught() {
    use penstock_shard::replication::planted::{Bug, plant};
    /// They need a node that is lost, or several rare things in a row.
    const RARE: [Bug; 9] = [
        Bug::MarksBetweenRejections,
        Bug::PendingForgotten,
        Bug::TailNotSaved,
        Bug::ScanCountsMemory,
        Bug::ScanJoinsEarly,
        Bug::ScanMissesMoves,
        Bug::OwnTailShipped,
        Bug::ScanReadable,
        Bug::ReceivedIsDurable,
    ];
    let only = std::env::var("PENSTOCK_REPLICATION_BUG").ok();
    let mut missed = Vec::new();
    std::panic::set_hook(Box::new(|_| {}));
    for &bug in Bug::of_the_machine() {
        match &only {
            Some(only) if only != bug.name() => continue,
            None if RARE.contains(&bug) => continue,
            _ => {}
        }
        plant(Some(bug));
        let fails = |&seed: &u64| std::panic::catch_unwind(|| World::run(seed)).is_err();
        let caught = seeds().find(fails);
        plant(None);
        match caught {
            Some(seed) => println!("{}: seed {seed}", bug.name()),
            None => missed.push(bug.name()),
        }
    }
    let _ = std::panic::take_hook();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
