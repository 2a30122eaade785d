//! Cleaning against a disk that gives wrong bytes: what was read twice is checked twice.

use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::contents::History;
use penstock_storage::io::{Block, Io};
use penstock_storage::log::{Log, LogStart, Purpose, Room, SyncMethod};
use penstock_storage::store::{Found, Memory, Store};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::config;
use crate::random::Random;

const SEGMENT_BYTES: usize = 128 << 10;
const VALUE_BYTES: usize = 100;
/// What every fourth key has for ever; the others are written again.
const KEYS: u32 = 4_000;

struct Yard {
    disk: Disk,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    salts: Random,
    /// No more spares can be had.
    is_full: bool,
}

fn hash(key: &[u8]) -> u32 {
    u32::from_le_bytes(key.try_into().expect("four bytes"))
}

impl Yard {
    fn empty(log: Log<Heap>) -> Yard {
        Yard {
            disk: Disk::default(),
            store: Store::new(log, Heap, 256, [0; 256], Memory::new(1 << 22)),
            requests: Vec::new(),
            now_us: 0,
            salts: Random::new(1),
            is_full: false,
        }
    }

    /// A store in whose segments a fourth of all counts.
    fn wasteful() -> Yard {
        let log = Log::new(config(SyncMethod::DurableWrite), LogStart::default(), Heap);
        let mut yard = Yard::empty(log);
        for number in 0..KEYS {
            yard.put(number);
        }
        for number in (0..KEYS).filter(|number| number % 4 > 0) {
            yard.put(number);
        }
        yard.store.set_cleaning(CleaningConfig {
            space_percent_max: 101,
            bytes_per_s: 1 << 30,
            log_bytes_max: 0,
        });
        yard
    }

    fn put(&mut self, number: u32) {
        while self.store.room(Purpose::Grow, 4, VALUE_BYTES, false) != Room::Yes {
            self.turn();
        }
        let (key, value) = (number.to_le_bytes(), [7; VALUE_BYTES]);
        let cell = match self.store.find(64, number, &key) {
            Found::Cached(cell) => cell,
            Found::Absent => self.store.insert((64, number), &key, &value, None),
            Found::Cold(_) => panic!("all are in memory"),
        };
        let (lsn, _) = self.store.commit(self.now_us, 64, &[(number, cell)]);
        self.store.log_mut().want_durable(lsn);
    }

    /// Begins what the log wants.
    fn pump(&mut self) {
        while !self.is_full && self.store.log().spares_wanted() > 0 {
            let file = self.disk.create(SEGMENT_BYTES);
            let salt = self.salts.next();
            self.store
                .log_mut()
                .add_spare(file, salt, SEGMENT_BYTES as u64);
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
    }

    /// Ends all writes.
    fn turn(&mut self) {
        self.pump();
        while let Some(index) = (0..self.disk.under_way().len()).find(|&index| !self.is_read(index))
        {
            let completion = self.disk.complete(index);
            let log = self.store.log_mut();
            log.completed(self.now_us, completion)
                .expect("a sound disk");
            self.pump();
        }
        self.store.settle(&|key: &[u8]| (64, hash(key)));
    }

    fn is_read(&self, index: usize) -> bool {
        matches!(self.disk.under_way()[index], Io::Read { .. })
    }

    /// A step of cleaning, whose read gives what `spoil` makes of it. Whether it read.
    fn clean(&mut self, spoil: impl Fn(&mut [u8])) -> bool {
        self.now_us += 1_000;
        self.store.clean(self.now_us, &hash, &mut self.requests);
        self.disk.submit(&mut self.requests);
        let Some(index) = (0..self.disk.under_way().len()).find(|&index| self.is_read(index))
        else {
            return false;
        };
        let mut completion = self.disk.complete(index);
        spoil(
            completion
                .block
                .as_mut()
                .expect("a read has a block")
                .bytes_mut(),
        );
        self.store.clean_read(completion);
        true
    }
}

/// The log has no room in the middle of a frame, so the frame is read again, wrong this time behind
/// its header: its segment is told damaged and stays, and with it every key that was not judged.
#[test]
fn a_frame_that_is_read_again_in_its_middle_is_checked_again() {
    // How much stands in the open frame decides where the room ends: within a frame that is judged for
    // most of these.
    for more in 0..12 {
        let mut yard = Yard::wasteful();
        yard.turn();
        for number in 0..more {
            yard.put(4 * number + 1);
        }
        let mut blocked = 0;
        // No write ends: sooner or later there is no room for a copy.
        for _ in 0..200 {
            let before = yard.store.log().appended();
            let has_read = yard.clean(|_| {});
            yard.pump();
            let has_moved = yard.store.log().appended() > before;
            blocked = if has_read || has_moved {
                0
            } else {
                blocked + 1
            };
            if blocked == 5 {
                break;
            }
        }
        assert_eq!(blocked, 5, "there is room for everything");
        let has_read = (0..40).any(|_| yard.clean(|bytes| bytes[96..].fill(0)));
        assert!(has_read, "the frame is read again");
        for _ in 0..300 {
            yard.turn();
            yard.clean(|_| {});
            while let Some(file) = yard.store.take_removable() {
                yard.disk.files.remove(&file);
            }
        }
        let damaged = yard.store.take_damaged();
        assert!(damaged.is_some(), "nothing is told with {more} more");
    }
}

/// The disk is full, the last spare is a short one, and nothing but the open segment could be cleaned:
/// sealing it would take the spare, and what counts in it would not fit in there.
#[test]
fn a_short_spare_is_kept_when_what_counts_would_not_fit_in_it() {
    let config = config(SyncMethod::DurableWrite);
    let short_bytes = config.segment_bytes_min().next_multiple_of(4096);
    let log = Log::with_history(config, LogStart::default(), History::default(), Heap);
    let mut yard = Yard::empty(log);
    yard.is_full = true;
    for bytes in [16 * short_bytes, short_bytes] {
        let file = yard.disk.create(usize::try_from(bytes).unwrap());
        let salt = yard.salts.next();
        yard.store.log_mut().add_spare(file, salt, bytes);
    }
    // Half of what is written counts.
    let mut number = 0;
    while number < 100 || yard.store.log().open_segment_bytes_left() > short_bytes {
        yard.put(number);
        yard.put(number & !1);
        number += 1;
    }
    yard.turn();
    yard.store.log_mut().spare_refused();
    let segment = yard.store.log().open_segment();
    for _ in 0..20 {
        yard.clean(|_| panic!("nothing can be cleaned"));
        yard.turn();
    }
    assert_eq!(yard.store.log().open_segment(), segment);
    let (keep, bytes) = (Purpose::Keep, VALUE_BYTES);
    assert_eq!(yard.store.room(keep, 4, bytes, false), Room::Yes);
}
