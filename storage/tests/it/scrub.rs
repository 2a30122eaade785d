//! Looking through sealed segments while the store serves: all of them within the period, every
//! byte that rots is told, and nothing else is.

use std::collections::BTreeSet;

use penstock_storage::io::{Block, Io, IoFailure};
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, LogConfig, Purpose, Room, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Lsn};
use penstock_storage::record::KindedValue;
use penstock_storage::recovery::Corruption;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::config;
use crate::random::Random;

const PERIOD_US: u64 = 1_000_000_000;
const SEED: u64 = 5;

struct Shelf {
    disk: Disk,
    store: Store<Heap>,
    segment_bytes: usize,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    salts: Random,
}

impl Shelf {
    /// A store with `segments` sealed segments of values of `value_bytes`.
    fn filled(segments: usize, value_bytes: usize) -> Shelf {
        let config = LogConfig {
            record_bytes_max: 2 * value_bytes + 8_192,
            ..config(SyncMethod::DurableWrite)
        };
        let segment_bytes = usize::try_from(config.segment_bytes_min())
            .unwrap()
            .max(128 << 10);
        let log = Log::new(config, LogStart::default(), Heap);
        let mut shelf = Shelf {
            disk: Disk::default(),
            store: Store::new(log, Heap, 256, [0; 256], Replayed::new(1 << 20)),
            segment_bytes,
            requests: Vec::new(),
            now_us: 0,
            salts: Random::new(1),
        };
        let value = vec![7; value_bytes];
        for number in 0u32.. {
            if shelf.store.log().sealed_segments().len() == segments {
                break;
            }
            shelf.put(number, &value);
        }
        shelf.store.scrubbing_mut().configure(PERIOD_US, SEED);
        shelf
    }

    fn put(&mut self, number: u32, value: &[u8]) {
        while self.store.room(Purpose::Grow, 4, value.len(), false) != Room::Yes {
            self.turn();
        }
        let cell = self.store.keys_mut().insert(
            KeyHome::new(64, number),
            &number.to_le_bytes(),
            KindedValue::plain(value),
            None,
        );
        let (lsn, _) = self.store.commit(self.now_us, 64, &[(number, cell)]);
        self.store.log_mut().want_durable(lsn);
        self.turn();
    }

    fn turn(&mut self) {
        while self.store.log().spares_wanted() > 0 {
            let file = self.disk.create(self.segment_bytes);
            let bytes = self.segment_bytes as u64;
            self.store
                .log_mut()
                .add_spare(file, self.salts.next(), bytes);
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
        while !self.disk.under_way().is_empty() {
            let completion = self.disk.complete(0);
            let log = self.store.log_mut();
            log.completed(self.now_us, completion)
                .expect("a sound disk");
        }
        let number = |key: &[u8]| u32::from_le_bytes(key.try_into().expect("four bytes"));
        self.store
            .settle(&|key: &[u8]| KeyHome::new(64, number(key)));
    }

    /// Waits for the next read and has `spoil` change what came of it.
    fn read_once(&mut self, spoil: impl Fn(&mut [u8]) -> Result<(), IoFailure>) {
        self.now_us = self.now_us.max(
            self.store
                .scrubbing()
                .deadline_us(self.store.log())
                .expect("there are segments"),
        );
        self.store.scrub(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
        assert!(self.disk.under_way().len() <= 1);
        while !self.disk.under_way().is_empty() {
            let mut completion = self.disk.complete(0);
            let block = completion.block.as_mut().expect("a read has a block");
            completion.result = spoil(block.bytes_mut());
            self.store.scrub_read(self.now_us, completion);
        }
    }

    /// Looks until `passes` more passes are over; what was told.
    fn pass(&mut self, passes: u64) -> Vec<Corruption> {
        let until = self.store.scrubbing().counters().passes + passes;
        let mut found = Vec::new();
        while self.store.scrubbing().counters().passes < until {
            self.read_once(|_| Ok(()));
            found.extend(self.store.scrubbing_mut().take_rotten());
        }
        found
    }

    fn sealed_bytes(&self) -> u64 {
        self.store
            .log()
            .sealed_segments()
            .iter()
            .map(|it| it.end.end_offset)
            .sum()
    }
}

#[test]
fn a_sound_log_is_read_within_the_period_and_nothing_is_reported() {
    for (segments, value_bytes) in [(5, 3_000), (3, 200_000)] {
        let mut shelf = Shelf::filled(segments, value_bytes);
        // The first pass begins somewhere.
        assert_eq!(shelf.pass(1), []);
        let (from_us, from) = (shelf.now_us, shelf.store.scrubbing().counters().bytes);
        assert_eq!(shelf.pass(1), []);
        let read = shelf.store.scrubbing().counters().bytes - from;
        assert!(
            read >= shelf.sealed_bytes(),
            "{read} bytes of {}",
            shelf.sealed_bytes()
        );
        assert!(
            read <= 2 * shelf.sealed_bytes(),
            "{read} bytes of {}",
            shelf.sealed_bytes()
        );
        let took_us = shelf.now_us - from_us;
        assert!(
            (PERIOD_US * 9 / 10..=PERIOD_US).contains(&took_us),
            "{took_us} us"
        );
    }
}

#[test]
fn every_byte_that_rots_in_a_sealed_segment_is_reported() {
    for (segments, value_bytes, step) in [(2, 3_000, 11), (1, 100_000, 997)] {
        let mut shelf = Shelf::filled(segments, value_bytes);
        for sealed in shelf.store.log().sealed_segments().to_vec() {
            let end = usize::try_from(sealed.end.end_offset).unwrap();
            for at in (0..end).step_by(step) {
                let bit = 1 << (at % 8);
                shelf.disk.files.get_mut(&sealed.file).unwrap()[at] ^= bit;
                let found = shelf.pass(2);
                shelf.disk.files.get_mut(&sealed.file).unwrap()[at] ^= bit;
                let damage = found
                    .first()
                    .unwrap_or_else(|| panic!("byte {at} went unseen"));
                assert!(found.iter().all(|other| other == damage), "{found:?}");
                assert_eq!((damage.file, damage.log_id), (sealed.file, Some(3)));
                assert!(damage.offset <= at as u64, "byte {at}: {damage}");
                assert!(damage.lsn_to.unwrap() <= sealed.end.last_lsn, "{damage}");
            }
        }
        assert_eq!(shelf.pass(2), []);
    }
}

#[test]
fn a_first_pass_begins_elsewhere_by_the_seed() {
    let mut begun = BTreeSet::new();
    for seed in 0..8 {
        let mut shelf = Shelf::filled(4, 3_000);
        shelf.store.scrubbing_mut().configure(PERIOD_US, seed);
        shelf.store.scrub(0, &mut shelf.requests);
        let Some(Io::Read { file, .. }) = shelf.requests.first() else {
            panic!("nothing is read");
        };
        assert!(shelf.store.scrubbing().reads(*file) && !shelf.store.scrubbing().reads(FileId(99)));
        begun.insert(*file);
    }
    assert_eq!(begun.len(), 4);
}

#[test]
fn what_passes_the_second_time_is_not_reported() {
    let mut shelf = Shelf::filled(2, 3_000);
    for _ in 0..20 {
        shelf.read_once(|bytes| {
            bytes[100] ^= 1;
            Ok(())
        });
        shelf.read_once(|_| Ok(()));
        shelf.read_once(|_| Err(IoFailure::Device(5)));
        shelf.read_once(|_| Ok(()));
    }
    assert!(shelf.store.scrubbing().counters().passes > 1);
    assert_eq!(shelf.store.scrubbing_mut().take_rotten(), None);
    assert_eq!(shelf.store.scrubbing().counters().damaged, 0);
}

#[test]
fn what_cannot_be_read_is_reported_and_the_next_segment_is_checked() {
    let mut shelf = Shelf::filled(2, 3_000);
    shelf.read_once(|_| Err(IoFailure::Device(5)));
    shelf.read_once(|_| Err(IoFailure::Short { moved: 512 }));
    let found = shelf
        .store
        .scrubbing_mut()
        .take_rotten()
        .expect("twice is enough");
    assert_eq!((found.offset, found.cause), (0, "it cannot be read"));
    let first = shelf.store.log().sealed_segments()[0];
    let second = shelf.store.log().sealed_segments()[1];
    let known = if found.file == first.file {
        (Lsn(1), first)
    } else {
        (Lsn(first.end.last_lsn.0 + 1), second)
    };
    assert_eq!(
        (found.lsn_from, found.lsn_to),
        (known.0, Some(known.1.end.last_lsn))
    );
    assert_eq!(shelf.pass(2), []);
}

#[test]
fn a_segment_that_is_released_meanwhile_is_left_alone() {
    let mut shelf = Shelf::filled(3, 3_000);
    shelf.store.scrub(0, &mut shelf.requests);
    let Some(Io::Read { file, .. }) = shelf.requests.first() else {
        panic!("nothing is read");
    };
    let released = *shelf
        .store
        .log()
        .sealed_segments()
        .iter()
        .find(|it| it.file == *file)
        .unwrap();
    shelf
        .store
        .log_mut()
        .release(released.end.sequence, &[0; 256]);
    shelf.disk.submit(&mut shelf.requests);
    let mut completion = shelf.disk.complete(0);
    completion.result = Err(IoFailure::Device(5));
    shelf.store.scrub_read(0, completion);
    shelf.disk.files.remove(&released.file);
    // A read of the file that is gone would panic here.
    assert_eq!(shelf.pass(2), []);
}
