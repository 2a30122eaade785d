//! Values that expire give their room back: in the log, in the index, with and without further
//! writes.

use std::collections::BTreeMap;

use penstock_storage::budget::Budget;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::contents::History;
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, LogConfig, Purpose, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::record::PartView;
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{Event, recover, recover_behind, survey};
use penstock_storage::snapshot::{Coverage, SnapshotName, Taken, Taking, load};
use penstock_storage::store::{Found, Store, aligned_span};

use crate::cleaning::{SEGMENT_BYTES, START_MS, Yard, hash};
use crate::disk::Disk;
use crate::heap::Heap;
use crate::journal::{OWNER, config};
use crate::random::Random;
use crate::snapshot::open;
use crate::store::read_part;

const VALUE_BYTES: usize = 100;
/// How long a value lives.
const LIFE_MS: u64 = 10_000;
/// Bytes of segments that the log may take.
const LOG_BYTES_MAX: u64 = 16 * SEGMENT_BYTES as u64;

impl Yard {
    fn of_lives() -> Yard {
        let log = Log::new(config(SyncMethod::DurableWrite), LogStart::default(), Heap);
        let mut yard = Yard::empty(log);
        yard.set_cleaning();
        yard.pass(1);
        yard
    }

    /// A log that begins with short segments and has sealed none, and an index without room for
    /// more than the keys that are there. Every second one lives for [`LIFE_MS`].
    fn with_a_full_index() -> Yard {
        let config = config(SyncMethod::DurableWrite);
        let mut log = Log::with_history(config, LogStart::default(), History::default(), Heap);
        log.grow_segments(SEGMENT_BYTES as u64);
        let mut yard = Yard::empty(log);
        yard.set_cleaning();
        yard.pass(1);
        yard.store.data_mut().set_budget(Budget {
            cache_bytes_max: 1 << 22,
            // The index without keys, and room for some.
            memory_bytes_max: (2 << 20 | 527_256) * 8 / 7,
            cells_bytes_min: 1 << 20,
        });
        let mut number = 0;
        while yard.store.data().has_room_for_keys() {
            yard.put_for(number, (number % 2 > 0).then_some(LIFE_MS));
            number += 1;
        }
        yard
    }

    fn set_cleaning(&mut self) {
        self.store.cleaning_mut().configure(CleaningConfig {
            space_percent_max: 140,
            bytes_per_s: 32 << 20,
            log_bytes_max: LOG_BYTES_MAX,
        });
    }

    /// Reads a key that is on disk only.
    fn warm(&mut self, number: u32) {
        if let Found::Cold(place) = self
            .store
            .keys()
            .find(64, number << 1, &number.to_le_bytes())
        {
            let (offset, bytes) = aligned_span(place);
            let start = usize::try_from(offset).expect("small files");
            let read = &self.disk.files[&place.file][start..][..bytes as usize];
            let home_of = |key: &[u8]| KeyHome::new(64, hash(key));
            let admitted =
                self.store
                    .data_mut()
                    .admit(KeyHome::new(64, number << 1), place, read, home_of);
            admitted.expect("the part is there");
        }
    }

    /// Deletes a key, unless it has expired: nobody finds it then.
    fn delete_if_there(&mut self, number: u32, model: &mut Model) {
        let is_there =
            |yard: &Yard| match yard
                .store
                .keys()
                .find(64, number << 1, &number.to_le_bytes())
            {
                Found::Cached(id) => yard.store.data().exists(id),
                _ => false,
            };
        if is_there(self) {
            self.delete(number);
            model.remove(&number);
        }
    }

    fn time_ms(&self) -> u64 {
        START_MS + self.now_us / 1_000
    }

    /// A value that lives for so long; `None` is for ever.
    fn put_for(&mut self, number: u32, life_ms: Option<u64>) {
        let expiry_ms = life_ms.map(|ms| self.time_ms() + ms);
        while !self.try_put_until(Purpose::Grow, number, &[7; VALUE_BYTES], expiry_ms) {
            self.turn();
        }
    }

    /// Ends what is under way and lets cleaning go on, for so long; there is nothing to do but
    /// that.
    fn work(&mut self, ms: u64) {
        let end_us = self.now_us + ms * 1_000;
        while self.now_us < end_us {
            self.turn();
            self.clean(|_| ());
            self.remove_files();
            self.pass(9);
        }
    }

    fn remove_files(&mut self) {
        while let Some(file) = self.store.take_removable() {
            self.disk.files.remove(&file);
        }
    }

    /// Bytes of sealed segments.
    fn log_bytes(&self) -> u64 {
        let segments = self.store.log().sealed_segments().iter();
        segments.map(|segment| segment.file_bytes).sum()
    }
}

#[test]
fn values_that_expire_give_their_room_back_while_others_come() {
    let mut yard = Yard::of_lives();
    let mut log_bytes_max = 0;
    let mut keys_max = 0;
    // Ten times what the log may take; what has not expired is half of it.
    for number in 0..110_000 {
        yard.put_for(number, Some(LIFE_MS));
        if number % 10 == 0 {
            yard.work(4 * LIFE_MS / 2_500);
            log_bytes_max = log_bytes_max.max(yard.log_bytes());
            keys_max = keys_max.max(yard.store.data().usage().keys);
        }
    }
    assert!(log_bytes_max < LOG_BYTES_MAX, "{log_bytes_max} bytes");
    assert!(keys_max < 25_000, "{keys_max} keys in the index");
}

#[test]
fn what_has_expired_leaves_an_idle_store() {
    let mut yard = Yard::of_lives();
    for number in 0..8_000 {
        // Every tenth one stays.
        yard.put_for(number, (number % 10 > 0).then_some(LIFE_MS));
    }
    yard.work(LIFE_MS / 2);
    assert_eq!(yard.store.data().usage().keys, 8_000);
    let before = yard.log_bytes();
    yard.work(LIFE_MS + 60_000);
    let (keys, after) = (yard.store.data().usage().keys, yard.log_bytes());
    assert!(
        keys < 1_600,
        "{keys} keys are left, of which 800 have not expired"
    );
    assert!(after < before / 4, "{after} of {before} bytes are left");
    for number in (0..8_000).step_by(10) {
        let found = yard
            .store
            .keys()
            .find(64, number << 1, &number.to_le_bytes());
        assert_ne!(found, Found::Absent, "{number}");
    }
}

/// Before anything has expired a full index is full; then a new key is to wait, and soon finds
/// room.
#[test]
fn an_index_that_is_full_of_expired_keys_has_room_again() {
    let mut yard = Yard::of_lives();
    let budget = Budget {
        cache_bytes_max: 1 << 22,
        memory_bytes_max: 3 << 20,
        cells_bytes_min: 1 << 20,
    };
    yard.store.data_mut().set_budget(budget);
    let mut number = 0;
    while yard.store.data().has_room_for_keys() {
        // One in twenty stays, so all that is in the index is no more than the log may hold.
        yard.put_for(number, (number % 20 > 0).then_some(60_000));
        number += 1;
        if number.is_multiple_of(100) {
            yard.turn();
        }
    }
    yard.work(100);
    assert!(!yard.store.waits_for_keys(), "nothing has expired");
    yard.pass(62_000);
    yard.clean(|_| ());
    assert!(yard.store.waits_for_keys(), "nearly all have expired");
    yard.work(2_000);
    assert!(yard.store.data().has_room_for_keys());
    yard.work(30_000);
    assert!(!yard.store.waits_for_keys());
    let keys = yard.store.data().usage().keys;
    assert!(
        keys < number as usize / 20 + 2_048,
        "{keys} of {number} keys"
    );
}

/// A log that begins with short segments wants one spare less until it has sealed a segment.
/// Cleaning does not wait for a spare that nobody has asked for, and a new key does not wait for
/// cleaning.
#[test]
fn a_full_index_of_a_log_without_sealed_segments_keeps_no_new_key_waiting() {
    let mut yard = Yard::with_a_full_index();
    yard.work(LIFE_MS + 5_000);
    assert!(!yard.store.waits_for_keys());
}

/// Before anything has expired, cleaning finds nothing to do. That is no reason to leave a key in a
/// full index later.
#[test]
fn keys_that_expired_in_the_open_segment_leave_a_full_index() {
    let mut yard = Yard::with_a_full_index();
    let keys = yard.store.data().usage().keys;
    yard.work(LIFE_MS + 5_000);
    assert_eq!(yard.store.data().usage().keys, keys.div_ceil(2));
    assert!(yard.store.data().has_room_for_keys());
}

/// What a start makes of the log, with a snapshot or all of it.
fn started(yard: Yard, snapshot: Option<(SnapshotName, Vec<u8>)>) -> Yard {
    let time_ms = yard.time_ms();
    let config = yard.store.log().config().clone();
    let mut disk = Disk::from(yard.disk.files.clone());
    let survey = survey(&mut disk, OWNER).expect("nothing is damaged");
    let segments = survey.logs.values().next().expect("there is a log");
    let home_of = |key: &[u8]| KeyHome::new(64, hash(key));
    let mut memory = Replayed::new(1 << 22);
    let mut behind = None;
    if let Some((name, bytes)) = &snapshot {
        let reader = open(bytes).expect("it was finished");
        let coverage = Coverage::of(reader.header(), OWNER, *name, 0, segments).expect("it fits");
        behind = Some((reader.header().clone(), *reader.footer()));
        memory = load(reader, &coverage, Budget::of_cache(1 << 22)).expect("it was finished");
    }
    let mut cold = Disk::from(disk.files.clone());
    let mut replay = |part: &PartView<'_>, place| {
        memory.replay(&home_of, part, place, |place, visit_part| {
            read_part(&mut cold, place, visit_part)
        })
    };
    let recovered = match &behind {
        Some((header, footer)) => recover_behind(
            &mut disk,
            segments,
            (header, footer),
            &mut |event| match event {
                Event::Part(part, place) => replay(&part, place),
                _ => Ok(()),
            },
        )
        .expect("it is whole")
        .expect("the log reaches far enough"),
        None => recover(&mut disk, segments, &mut replay).expect("it is whole"),
    };
    memory.carry_time(recovered.time_ms);
    let incarnation = config.incarnation + 1;
    let config = LogConfig {
        incarnation,
        ..config
    };
    let sequences = *recovered.history.sequences.clone();
    let log = Log::with_history(config, recovered.start, recovered.history.clone(), Heap);
    let epoch = u32::try_from(incarnation << 8).expect("few starts");
    let mut next = Yard::of_lives();
    if let Some(file) = recovered.release {
        disk.files.remove(&file);
    }
    next.disk = disk;
    next.now_us = yard.now_us;
    next.store = Store::new(log, Heap, epoch, sequences, memory);
    next.set_cleaning();
    next.store.data_mut().observe(next.now_us, time_ms);
    next
}

fn snapshot_of(yard: &mut Yard) -> (SnapshotName, Vec<u8>) {
    yard.turn();
    let (mut taking, mut bytes) = Taking::begin(&mut yard.store, 1, 0).expect("there is a log");
    loop {
        match taking.step(&yard.store, 100) {
            Taken::Nothing => {}
            Taken::Chunk(chunk) => bytes.extend(chunk),
            Taken::Last(last) => {
                bytes.extend(last);
                return (taking.name(), bytes);
            }
        }
    }
}

/// Four restarts did not help a server whose log was full of what had expired.
#[test]
fn a_start_knows_what_has_expired_from_its_snapshot_and_from_the_whole_log() {
    for has_snapshot in [true, false] {
        let mut yard = Yard::of_lives();
        for number in 0..8_000 {
            yard.put_for(number, (number % 10 > 0).then_some(LIFE_MS));
        }
        let snapshot = snapshot_of(&mut yard);
        for number in 8_000..9_000 {
            yard.put_for(number, (number % 10 > 0).then_some(LIFE_MS));
        }
        yard.turn();
        let mut yard = started(yard, has_snapshot.then_some(snapshot));
        assert_eq!(yard.store.data().visible_keys(), 9_000);
        yard.pass(LIFE_MS + 2_000);
        let visible = yard.store.data().visible_keys();
        assert!((900..=920).contains(&visible), "{visible} of 900 keys");
        yard.work(60_000);
        let keys = yard.store.data().usage().keys;
        assert!(keys < 1_924, "{keys} keys, with a snapshot: {has_snapshot}");
    }
}

/// A key of the model: what was written last and is durable, and until when.
type Model = BTreeMap<u32, (u8, Option<u64>)>;

fn check(yard: &mut Yard, model: &Model, seed: u64) {
    for number in 0..NUMBERS {
        yard.warm(number);
        let expected = model.get(&number).copied();
        let expected =
            expected.filter(|(_, until)| until.is_none_or(|ms| ms > yard.store.data().time_ms()));
        let found = match yard
            .store
            .keys()
            .find(64, number << 1, &number.to_le_bytes())
        {
            Found::Cached(id) if yard.store.data().exists(id) => {
                Some(yard.store.keys().cell(id).value()[0])
            }
            _ => None,
        };
        assert_eq!(found, expected.map(|it| it.0), "key {number}, seed {seed}");
    }
    let visible = model
        .values()
        .filter(|(_, until)| until.is_none_or(|ms| ms > yard.store.data().time_ms()));
    assert!(
        yard.store.data().visible_keys() >= visible.count(),
        "seed {seed}"
    );
}

const NUMBERS: u32 = 600;

/// Values with and without an expiry, deletions, cleaning that is cut off anywhere, and starts.
#[test]
fn nothing_visible_is_lost_and_no_older_value_comes_back() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut yard = Yard::of_lives();
        let mut model = Model::new();
        let mut dropped = 0;
        for round in 0..12 {
            let snapshot = (round % 3 > 0).then(|| snapshot_of(&mut yard));
            for step in 0..1_500 {
                let number = u32::try_from(random.below(NUMBERS as usize)).expect("small");
                let value = u8::try_from(step % 251).expect("small");
                let life_ms = (random.below(3) > 0).then(|| random.below(8_000) as u64);
                yard.warm(number);
                match random.below(8) {
                    0 if model.contains_key(&number) => yard.delete_if_there(number, &mut model),
                    _ => {
                        let until = life_ms.map(|ms| yard.store.data().time_ms() + ms);
                        while !yard.try_put_until(Purpose::Grow, number, &[value; 100], until) {
                            yard.turn();
                        }
                        model.insert(number, (value, until));
                    }
                }
                if step % 50 == 0 {
                    yard.turn();
                    yard.clean(|_| ());
                    yard.remove_files();
                    yard.pass(random.below(300) as u64);
                }
            }
            yard.turn();
            check(&mut yard, &model, seed);
            // Copies that do not become durable, and some that do.
            for _ in 0..random.below(40) {
                yard.clean(|_| ());
            }
            dropped += yard.store.cleaning().counters().expired_dropped;
            yard = started(yard, snapshot);
            check(&mut yard, &model, seed);
        }
        assert!(dropped > 0, "seed {seed} left nothing out");
        yard.work(40_000);
        check(&mut yard, &model, seed);
    }
}
