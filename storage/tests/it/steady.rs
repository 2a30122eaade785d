//! A log that fills what it may take of the disk, overwritten alike for a long time: the sizing
//! rule holds.

use std::collections::VecDeque;

use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::contents::History;
use penstock_storage::io::Io;
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, LogConfig, Purpose, Room, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::record::{KindedValue, part_bytes};
use penstock_storage::recovery::Replayed;
use penstock_storage::sizing::DiskShare;
use penstock_storage::store::{Found, Store};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::config;
use crate::random::Random;

const SEGMENT_BYTES: u64 = 1 << 20;
const FRAME_BYTES: usize = 64 << 10;
const SHARE: DiskShare = DiskShare {
    log_bytes_max: 40 * SEGMENT_BYTES,
    segment_bytes: SEGMENT_BYTES,
    space_percent_max: 140,
};
const KEY_BYTES: usize = 4;
const VALUE_BYTES: usize = 1_000;
const TURN_US: u64 = 1_000;
/// Turns until a file that was given back serves again, or a new one is there.
const SPARE_TURNS: usize = 20;

/// What became of a write that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Done,
    Waits,
    Full,
}

/// One store, and whoever makes segments for it within a limit.
struct Plant {
    disk: Disk,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    salts: Random,
    /// Bytes of all files, those on their way included.
    taken_bytes: u64,
    /// Turns until each of the files that were asked for comes.
    orders: VecDeque<usize>,
    /// Turns in which what grows was refused, as it is told, and how often that changed.
    was_full: bool,
    changes: usize,
}

fn hash(key: &[u8]) -> u32 {
    u32::from_le_bytes(key.try_into().expect("four bytes")) << 1
}

/// How many keys of these tests so many bytes of records are.
fn keys_of(live_bytes: u64) -> usize {
    let part = part_bytes(KEY_BYTES, VALUE_BYTES, false, 0) as u64;
    usize::try_from(live_bytes / part).expect("few")
}

impl Plant {
    fn new() -> Plant {
        let config = LogConfig {
            frame_bytes: FRAME_BYTES,
            ..config(SyncMethod::DurableWrite)
        };
        let log = Log::with_history(config, LogStart::default(), History::default(), Heap);
        let mut store = Store::new(log, Heap, 256, [0; 256], Replayed::new(1 << 26));
        store.cleaning_mut().configure(CleaningConfig {
            space_percent_max: SHARE.space_percent_max,
            bytes_per_s: 32 << 20,
            log_bytes_max: SHARE.log_bytes_max,
        });
        Plant {
            disk: Disk::default(),
            store,
            requests: Vec::new(),
            now_us: 0,
            salts: Random::new(1),
            taken_bytes: 0,
            orders: VecDeque::new(),
            was_full: false,
            changes: 0,
        }
    }

    fn set(&mut self, number: usize) -> Tried {
        if self.store.cleaning().holds_writes() {
            self.store.cleaning_mut().write_waits();
            return Tried::Waits;
        }
        match self
            .store
            .room(Purpose::Grow, KEY_BYTES, VALUE_BYTES, false)
        {
            Room::Yes => {}
            Room::Wait => return Tried::Waits,
            Room::Full => return Tried::Full,
        }
        let number = u32::try_from(number).expect("few");
        let (key, value) = (number.to_le_bytes(), [7; VALUE_BYTES]);
        let cell = match self.store.keys().find(64, number << 1, &key) {
            Found::Cached(cell) => cell,
            Found::Absent => self.store.keys_mut().insert(
                KeyHome::new(64, number << 1),
                &key,
                KindedValue::plain(&value),
                None,
            ),
            Found::Cold(_) => panic!("all are in memory"),
        };
        let (lsn, _) = self.store.commit(self.now_us, 64, &[(number << 1, cell)]);
        self.store.log_mut().want_durable(lsn);
        Tried::Done
    }

    /// Serves the first that asked, as the helper does: refused at once if there is no room.
    fn make_spares(&mut self) {
        while self.store.log().spares_wanted() > self.orders.len() {
            self.orders.push_back(SPARE_TURNS);
        }
        let short_bytes = self.store.log().config().segment_bytes_min();
        for left in &mut self.orders {
            *left = left.saturating_sub(1);
        }
        while self.orders.front() == Some(&0) {
            if self.taken_bytes + SEGMENT_BYTES + short_bytes > SHARE.log_bytes_max {
                self.store.log_mut().spare_refused();
                break;
            }
            self.orders.pop_front();
            self.taken_bytes += SEGMENT_BYTES;
            let file = self
                .disk
                .create(usize::try_from(SEGMENT_BYTES).expect("small"));
            let salt = self.salts.next();
            self.store.log_mut().add_spare(file, salt, SEGMENT_BYTES);
        }
    }

    fn turn(&mut self) {
        self.now_us += TURN_US;
        self.make_spares();
        self.store.settle(&|key: &[u8]| KeyHome::new(64, hash(key)));
        self.store.clean(self.now_us, &hash, &mut self.requests);
        while let Some(file) = self.store.take_removable() {
            self.disk.files.remove(&file);
            self.taken_bytes -= SEGMENT_BYTES;
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
        while !self.disk.under_way().is_empty() {
            let is_read = matches!(self.disk.under_way()[0], Io::Read { .. });
            let completion = self.disk.complete(0);
            match is_read {
                true => self.store.cleaning_mut().read(completion),
                false => {
                    let log = self.store.log_mut();
                    log.completed(self.now_us, completion)
                        .expect("a sound disk");
                    log.pump(self.now_us, &mut self.requests);
                    self.disk.submit(&mut self.requests);
                }
            }
        }
        let is_full = self.store.log().is_full();
        self.changes += usize::from(is_full != self.was_full);
        self.was_full = is_full;
    }

    /// Sets keys up to `keys`, one after the other; whether it was refused before.
    fn fill(&mut self, keys: usize) -> Result<(), usize> {
        let mut number = 0;
        while number < keys {
            for _ in 0..64 {
                match self.set(number) {
                    Tried::Done => number += 1,
                    Tried::Waits => break,
                    Tried::Full => return Err(number),
                }
            }
            self.turn();
        }
        Ok(())
    }

    /// Overwrites keys at random, in each turn as many as `offered`, those first that waited. The
    /// longest wait in microseconds; an error if one is refused.
    fn overwrite(&mut self, keys: usize, times: usize, offered: usize) -> Result<u64, String> {
        let mut random = Random::new(3);
        let (mut done, mut longest_us) = (0, 0);
        let mut due: VecDeque<u64> = VecDeque::new();
        while done < keys * times {
            // The callers of a closed loop: as many are under way as are offered in a turn.
            while due.len() < offered {
                due.push_back(self.now_us);
            }
            while let Some(&since_us) = due.front() {
                match self.set(random.below(keys)) {
                    Tried::Done => {
                        longest_us = longest_us.max(self.now_us - since_us);
                        due.pop_front();
                        done += 1;
                    }
                    Tried::Waits => break,
                    Tried::Full => return Err(format!("FULL after {done} of {}", keys * times)),
                }
            }
            self.turn();
        }
        Ok(longest_us)
    }

    /// Bytes of records that were written for each byte of those that were asked for.
    fn write_amplification(&self) -> f64 {
        let counters = self.store.log().counters();
        let records = counters.record_bytes - counters.moved_bytes;
        counters.record_bytes as f64 / records as f64
    }
}

#[test]
fn a_disk_that_is_filled_exactly_to_the_rule_takes_overwrites_without_full() {
    let keys = keys_of(SHARE.live_bytes_max());
    // From less than cleaning does by the way to more than it can do at all.
    for offered in [2, 20, 100, 1_000] {
        let mut plant = Plant::new();
        assert_eq!(plant.fill(keys), Ok(()), "{offered} a turn");
        let longest_us = plant
            .overwrite(keys, 4, offered)
            .unwrap_or_else(|full| panic!("{offered} a turn: {full}"));
        eprintln!(
            "{offered} a turn: {longest_us} us, {:?}, {:.2}, {:?} at {} us",
            plant.store.cleaning().pace_counters(),
            plant.write_amplification(),
            plant.store.cleaning().counters(),
            plant.now_us
        );
        assert_eq!(plant.changes, 0, "{offered} a turn: the notice came");
        assert!(
            longest_us <= 200_000,
            "{offered} a turn: a write waited {longest_us} us"
        );
        // Frames of two records are half empty, and cleaning has that to make up for as well.
        let most = if offered == 2 { 4.0 } else { 3.3 };
        let written = plant.write_amplification();
        assert!(written < most, "{offered} a turn: {written} bytes for each");
    }
}

/// 69 % of the disk at a steady rate, as 6,000 sets in a second, beside half of the disk at that
/// rate.
#[test]
fn a_steady_load_near_the_limit_waits_as_little_as_one_at_half_of_it() {
    const OFFERED: usize = 6;
    for percent in [50, 69] {
        let mut plant = Plant::new();
        let keys = keys_of(SHARE.log_bytes_max * percent / 100);
        assert!(keys <= keys_of(SHARE.live_bytes_max()) || percent == 69);
        assert_eq!(plant.fill(keys), Ok(()), "{percent} %");
        let before = plant.store.cleaning().pace_counters();
        let (times, mut random) = (3, Random::new(5));
        // Turns that a set of a caller that waits for none of the others has waited for.
        let mut waits = Vec::with_capacity(keys * times);
        let mut due: VecDeque<u64> = VecDeque::new();
        while waits.len() < keys * times {
            due.extend([plant.now_us; OFFERED]);
            while let Some(&since_us) = due.front() {
                match plant.set(random.below(keys)) {
                    Tried::Done => waits.push((plant.now_us - since_us) / TURN_US),
                    Tried::Waits => break,
                    Tried::Full => panic!("{percent} %: FULL after {} sets", waits.len()),
                }
                due.pop_front();
            }
            plant.turn();
        }
        waits.sort_unstable();
        let of = |share: usize| waits[waits.len() * share / 10_000];
        let paced = plant.store.cleaning().pace_counters().waits - before.waits;
        eprintln!(
            "{percent} %: p99 {}, p99.9 {}, most {} turns of waiting; paced {paced} times, {} of \
             {} sets",
            of(9_900),
            of(9_990),
            waits[waits.len() - 1],
            waits.iter().filter(|&&wait| wait > 0).count(),
            waits.len()
        );
        assert_eq!(plant.changes, 0, "{percent} %: the notice came");
        assert_eq!(of(9_990), 0, "{percent} %");
    }
}

#[test]
fn a_disk_that_is_filled_above_the_rule_is_full_and_says_so_once() {
    let mut plant = Plant::new();
    let keys = keys_of(SHARE.log_bytes_max);
    let filled = plant.fill(keys).expect_err("not all of that has room");
    let least = keys_of(SHARE.live_bytes_max());
    assert!(
        filled >= least,
        "refused with {filled} keys, and the rule allows {least}"
    );
    for _ in 0..15_000 {
        assert_eq!(plant.set(filled), Tried::Full);
        plant.turn();
    }
    assert_eq!(plant.changes, 1, "the notice came once and stayed");
}
