//! The promise: what was durable is there after any crash, and nothing that was not appended.

use penstock_storage::log::SyncMethod;

use crate::journal::{Journal, Parts};
use crate::random::Random;
use crate::seed::{Seed, seeds};

/// A record of random shape, mostly small, at times larger than a standard frame.
fn record(random: &mut Random, number: usize) -> Parts {
    let count = match random.below(48) {
        0..12 => 1 + random.below(8),
        // More than a part's four bits can number.
        12..16 => 9 + random.below(40),
        _ => 1,
    };
    (0..count)
        .map(|part| {
            let key = format!("{number}/{part}").into_bytes();
            let len = match random.below(20) {
                0 if count < 9 => random.below(1_500),
                1 if count == 1 => random.below(14_000),
                _ => random.below(40),
            };
            let value = (0..len).map(|_| random.next().to_le_bytes()[0]).collect();
            (key, (!random.once_in(6)).then_some(value))
        })
        .collect()
}

/// Several lives of one log, each ended by a power cut at a random moment.
fn live_and_crash(seed: u64, sync: SyncMethod) {
    let _named = Seed(seed);
    let mut random = Random::new(seed);
    let mut journal = Journal::new(sync, seed);
    for life in 0..4 {
        for _ in 0..random.below(400) {
            match random.below(10) {
                0..4 => {
                    let parts = record(&mut random, journal.appended.len());
                    if let Some((lsn, _)) = journal.append(&parts)
                        && random.once_in(2)
                    {
                        journal.log.want_durable(lsn);
                    }
                }
                4..6 => journal.pump(),
                6..9 if !journal.disk.under_way().is_empty() => {
                    journal.complete(random.below(journal.disk.under_way().len()))
                }
                9 if random.once_in(3) => journal.add_spares(),
                9 if random.once_in(8) => journal.idle(),
                _ => journal.now_us += random.next() % 3_000,
            }
            assert!(journal.log.durable() <= journal.log.appended());
        }
        let durable = usize::try_from(journal.log.durable().0).expect("small");
        journal.disk.crash(|| sectors_kept(&mut random));
        let appended = journal.appended.clone();
        let restart = journal
            .restart(sync)
            .unwrap_or_else(|error| panic!("life {life}: {error}"));
        assert!(
            restart.records.len() >= durable,
            "life {life}: {durable} durable, {} recovered",
            restart.records.len()
        );
        assert_eq!(
            restart.records,
            appended[..restart.records.len()],
            "life {life}: not a prefix of what was appended"
        );
    }
}

#[test]
fn every_durable_record_survives_a_power_cut_with_durable_writes() {
    seeds(300).for_each(|seed| live_and_crash(seed, SyncMethod::DurableWrite));
}

#[test]
fn every_durable_record_survives_a_power_cut_with_write_then_sync() {
    seeds(300).for_each(|seed| live_and_crash(seed, SyncMethod::WriteThenSync));
}

/// The sectors of a write that a power cut leaves: none, all or some.
pub fn sectors_kept(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => 0,
        1 => u64::MAX,
        _ => random.next(),
    }
}
