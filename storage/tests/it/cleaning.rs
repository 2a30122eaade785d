//! Cleaning against a disk that gives wrong bytes: what was read twice is checked twice.

use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::contents::History;
use penstock_storage::io::{Block, Io};
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{SETTINGS_BYTES, Settings, keyspace_key};
use penstock_storage::log::{Log, LogConfig, Purpose, Room, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::record::{KindedValue, PartView, number_bytes, part_bytes};
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{recover, survey};
use penstock_storage::store::{At, Found, Store, WasAt};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::{OWNER, config};
use crate::random::Random;

pub(crate) const SEGMENT_BYTES: usize = 128 << 10;
const VALUE_BYTES: usize = 100;
pub(crate) const START_MS: u64 = 1_800_000_000_000;
/// What every fourth key has for ever; the others are written again.
const KEYS: u32 = 4_000;

pub(crate) struct Yard {
    pub(crate) disk: Disk,
    pub(crate) store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    pub(crate) now_us: u64,
    salts: Random,
    segment_bytes: usize,
    /// No more spares can be had.
    pub(crate) is_full: bool,
}

pub(crate) fn hash(key: &[u8]) -> u32 {
    // The store's own keys are longer, and have none. No key here is a token.
    key.try_into().map_or(0, |key| u32::from_le_bytes(key) << 1)
}

/// Where the index has a key: the highest byte of a number says which slot, of those from 64 on
/// every fortieth.
pub(crate) fn home_of(key: &[u8]) -> KeyHome {
    let slot = key
        .try_into()
        .map_or(0, |key| u32::from_le_bytes(key) >> 24);
    KeyHome::new(64 + 40 * u16::try_from(slot).expect("a byte"), hash(key))
}

impl Yard {
    pub(crate) fn empty(log: Log<Heap>) -> Yard {
        Yard {
            disk: Disk::default(),
            store: Store::new(log, Heap, 256, [0; 256], Replayed::new(1 << 22)),
            requests: Vec::new(),
            now_us: 0,
            salts: Random::new(1),
            segment_bytes: SEGMENT_BYTES,
            is_full: false,
        }
    }

    /// An empty store whose segments are as short as they may be.
    fn of_smallest_segments() -> Yard {
        let config = LogConfig {
            frame_bytes: 4096,
            record_bytes_max: 1024,
            ..config(SyncMethod::DurableWrite)
        };
        let segment_bytes = usize::try_from(config.segment_bytes_min()).expect("small");
        let mut yard = Yard::empty(Log::new(config, LogStart::default(), Heap));
        yard.segment_bytes = segment_bytes.next_multiple_of(4096);
        yard
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
        yard.store.cleaning_mut().configure(CleaningConfig {
            space_percent_max: 101,
            bytes_per_s: 1 << 30,
            log_bytes_max: 0,
        });
        yard
    }

    pub(crate) fn put(&mut self, number: u32) {
        while !self.try_put(Purpose::Grow, number, &[7; VALUE_BYTES]) {
            self.turn();
        }
    }

    /// Whether there was room for it.
    fn try_put(&mut self, purpose: Purpose, number: u32, value: &[u8]) -> bool {
        self.try_put_until(purpose, number, value, None)
    }

    /// The same of a value with an expiry.
    pub(crate) fn try_put_until(
        &mut self,
        purpose: Purpose,
        number: u32,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> bool {
        let expires = expiry_ms.is_some();
        if self.store.room(purpose, 4, value.len(), expires) != Room::Yes {
            return false;
        }
        let home = KeyHome::new(64, number << 1);
        let key = number.to_le_bytes();
        let cell = match self.store.keys().find(64, number << 1, &key) {
            Found::Cached(cell) => {
                self.store
                    .keys_mut()
                    .set_value(home, cell, KindedValue::plain(value), expiry_ms)
            }
            Found::Absent => {
                self.store
                    .keys_mut()
                    .insert(home, &key, KindedValue::plain(value), expiry_ms)
            }
            Found::Cold(_) => panic!("all are in memory"),
        };
        let (lsn, _) = self.store.commit(self.now_us, 64, &[(number << 1, cell)]);
        self.store.log_mut().want_durable(lsn);
        true
    }

    /// Gives these keys this value, all in one record.
    pub(crate) fn put_together(&mut self, numbers: &[u32], value: &[u8]) {
        let bytes = part_bytes(4, value.len(), false, 0) + number_bytes(numbers.len());
        while self.store.room_for(Purpose::Grow, numbers.len() * bytes) != Room::Yes {
            self.turn();
        }
        let cells: Vec<_> = numbers
            .iter()
            .map(|number| {
                let (home, key) = (KeyHome::new(64, number << 1), number.to_le_bytes());
                let keys = self.store.keys_mut();
                let cell = match keys.find(home.slot, home.hash, &key) {
                    Found::Cached(cell) => {
                        keys.set_value(home, cell, KindedValue::plain(value), None)
                    }
                    Found::Absent => keys.insert(home, &key, KindedValue::plain(value), None),
                    Found::Cold(_) => panic!("all are in memory"),
                };
                (home.hash, cell)
            })
            .collect();
        let (lsn, _) = self.store.commit(self.now_us, 64, &cells);
        self.store.log_mut().want_durable(lsn);
    }

    pub(crate) fn delete(&mut self, number: u32) {
        while self.store.room(Purpose::Keep, 4, 0, false) != Room::Yes {
            self.turn();
        }
        let Found::Cached(cell) = self
            .store
            .keys()
            .find(64, number << 1, &number.to_le_bytes())
        else {
            panic!("all are in memory")
        };
        self.store
            .keys_mut()
            .mark_deleted(KeyHome::new(64, number << 1), cell);
        let (lsn, _) = self.store.commit(self.now_us, 64, &[(number << 1, cell)]);
        self.store.log_mut().want_durable(lsn);
    }

    /// Begins what the log wants.
    pub(crate) fn pump(&mut self) {
        while !self.is_full && self.store.log().spares_wanted() > 0 {
            self.add_spare();
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
    }

    fn add_spare(&mut self) {
        let file = self.disk.create(self.segment_bytes);
        let salt = self.salts.next();
        let bytes = self.segment_bytes as u64;
        self.store.log_mut().add_spare(file, salt, bytes);
    }

    /// Gives the keys of a prefix settings of their own.
    pub(crate) fn keep_versions(&mut self, prefix: &[u8], settings: Settings) {
        self.pump();
        self.store
            .keyspaces_mut()
            .learn(prefix, settings)
            .expect("there is room");
        let key = keyspace_key(1, prefix);
        let room = self
            .store
            .room(Purpose::Keep, key.len(), SETTINGS_BYTES, false);
        assert_eq!(room, Room::Yes);
        self.store.commit_settings(self.now_us, 64, &key, prefix);
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_us += ms * 1_000;
        self.store
            .data_mut()
            .observe(self.now_us, START_MS + self.now_us / 1_000);
    }

    /// What the key `number` was then.
    fn was(&self, number: u32, ms: u64) -> WasAt {
        let key = number.to_le_bytes();
        let Found::Cached(cell) = self.store.keys().find(64, number << 1, &key) else {
            panic!("all are in memory")
        };
        self.store.version_at(
            KeyHome::new(64, number << 1),
            &key,
            Some(cell),
            At::TimeMs(ms),
        )
    }

    /// The store that a start makes of what is durable, in an earlier time.
    pub(crate) fn restarted(mut self, ms: u64) -> Yard {
        let survey = survey(&mut self.disk, OWNER).expect("nothing is damaged");
        let segments = survey.logs.values().next().expect("there is a log");
        let mut memory = Replayed::new(1 << 22);
        let mut replay = |part: &PartView<'_>, place| {
            memory.replay(&home_of, part, place, |_, _| panic!("all are in memory"))
        };
        let recovered = recover(&mut self.disk, segments, &mut replay).expect("it is whole");
        memory.carry_time(recovered.time_ms);
        let mut collect = |part: &PartView<'_>, place| {
            memory.collect(&home_of, part, place);
            Ok(())
        };
        recover(&mut self.disk, segments, &mut collect).expect("it is whole");
        memory.finish_versions();
        let config = config(SyncMethod::DurableWrite);
        let log = Log::with_history(config, recovered.start, recovered.history.clone(), Heap);
        let sequences = *recovered.history.sequences.clone();
        self.store = Store::new(log, Heap, 2 << 8, sequences, memory);
        self.store.data_mut().observe(1, ms);
        self
    }

    /// Ends all writes.
    pub(crate) fn turn(&mut self) {
        self.pump();
        while let Some(index) = (0..self.disk.under_way().len()).find(|&index| !self.is_read(index))
        {
            let completion = self.disk.complete(index);
            let log = self.store.log_mut();
            log.completed(self.now_us, completion)
                .expect("a sound disk");
            self.pump();
        }
        self.store.settle(&home_of);
    }

    fn is_read(&self, index: usize) -> bool {
        matches!(self.disk.under_way()[index], Io::Read { .. })
    }

    /// Removes what was released.
    fn remove(&mut self) {
        while let Some(file) = self.store.take_removable() {
            self.disk.files.remove(&file);
        }
    }

    /// Runs a step of cleaning. `spoil` changes the bytes of its read. Returns whether it read.
    pub(crate) fn clean(&mut self, spoil: impl Fn(&mut [u8])) -> bool {
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
        self.store.cleaning_mut().read(completion);
        true
    }
}

/// A key that is changed again and again leaves segments behind that hold nothing else.
#[test]
fn segments_in_which_nothing_counts_are_released_unread_and_a_start_finds_what_was_last() {
    let log = Log::new(config(SyncMethod::DurableWrite), LogStart::default(), Heap);
    let mut yard = Yard::empty(log);
    yard.put(5);
    for _ in 0..4_000 {
        yard.put(3);
        yard.turn();
        yard.clean(|_| ());
    }
    let counters = yard.store.cleaning().counters();
    assert!(counters.unread > 20, "{counters:?}");
    // At most the segment with the other key was read and copied, once.
    assert!(counters.segments - counters.unread <= 1, "{counters:?}");
    let last = yard.store.data().numbering().sequences()[1];
    let sequence_of = |yard: &Yard, number: u32| match yard.store.keys().find(
        64,
        number << 1,
        &number.to_le_bytes(),
    ) {
        Found::Cached(cell) => yard.store.keys().version(cell).sequence,
        _ => panic!("all are in memory"),
    };
    let first = sequence_of(&yard, 5);
    assert_eq!(sequence_of(&yard, 3), last);
    // Released records are told as gone, and none behind them.
    let gone = yard.store.forgotten(1);
    assert!((first..last).contains(&gone), "{gone} of {first} to {last}");
    let yard = yard.restarted(START_MS);
    assert_eq!(sequence_of(&yard, 3), last);
    assert_eq!(sequence_of(&yard, 5), first);
    assert!((gone..last).contains(&yard.store.forgotten(1)));
}

/// A member that has the hidden values and not these deletions would keep the values for good.
#[test]
fn deletions_stay_in_the_log_while_somebody_reads_it_from_its_begin() {
    let mut yard = Yard::wasteful();
    for number in (0..KEYS).filter(|number| number % 2 == 0) {
        yard.delete(number);
    }
    let clean = |yard: &mut Yard| {
        for number in (1..KEYS).step_by(2) {
            yard.put(number);
            yard.turn();
            yard.clean(|_| ());
        }
        yard.store.cleaning().counters()
    };
    yard.store.cleaning_mut().keep_deletions(true);
    let kept = clean(&mut yard);
    assert!(kept.segments > 4, "{kept:?}");
    assert_eq!(kept.tombstones_dropped, 0);
    assert!(!yard.store.cleaning().is_dropping_deletions());
    yard.store.cleaning_mut().keep_deletions(false);
    let dropped = clean(&mut yard);
    assert!(dropped.tombstones_dropped > 0, "{dropped:?}");
}

/// The log has no room in the middle of a frame, so the frame is read again, wrong this time behind
/// its header: its segment is told damaged and stays, and with it every key that was not judged.
#[test]
fn a_frame_that_is_read_again_in_its_middle_is_checked_again() {
    // How much stands in the open frame decides where the room ends: within a frame that is judged
    // for most of these.
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
        let damaged = yard.store.cleaning_mut().take_damaged();
        assert!(damaged.is_some(), "nothing is told with {more} more");
    }
}

/// A segment that cleaning begins holds the list of all segments. Of the smallest segments a longer
/// list would leave room for one frame of copies: no more than what each release gives back.
#[test]
fn a_log_of_as_many_segments_as_it_may_have_keeps_those_that_belong_to_cleaning() {
    let mut yard = Yard::of_smallest_segments();
    let (mut most_sealed, mut written, mut is_cleaning) = (0, 0, true);
    for _ in 0..6_000 {
        // Every sixteenth write makes a key that stays, the others change a few again and again.
        let number = match written % 16 {
            0 => 1_000 + written,
            _ => written % 7,
        };
        written += u32::from(yard.try_put(Purpose::Grow, number, &[7; VALUE_BYTES]));
        yard.turn();
        let log = yard.store.log();
        // The first release lets the log have a list. Later ones come when they must.
        is_cleaning = log.has_most_segments() || (is_cleaning && log.counters().released == 0);
        if is_cleaning {
            yard.clean(|_| ());
        }
        yard.remove();
        most_sealed = most_sealed.max(yard.store.log().sealed_segments().len());
    }
    let most = yard.store.log().segments_max();
    let counters = yard.store.cleaning().counters();
    assert!(most_sealed <= most - most / 8, "{most_sealed} of {most}");
    assert!(
        counters.segments > 1_000 && written > 2_000,
        "{written} {counters:?}"
    );
}

/// The list of all segments fills half of what the smallest ones have for frames. Where each
/// release had a list of its own, a segment had room for one copy beside it. The smallest record,
/// alone in its segment, was then worth most again and again: cleaning moved it until its credit
/// was used up, and the log was full of what does not count.
#[test]
fn cleaning_makes_a_log_of_the_most_segments_short_where_little_counts() {
    let mut yard = Yard::of_smallest_segments();
    let mut written = 0;
    while !yard.store.log().has_most_segments() {
        // Each segment has a key that stays, one of them with a short value, and what ceases to
        // count.
        let (number, bytes) = match written % 2 {
            0 if written == 400 => (1_000, 8),
            0 => (1_000 + written, 4 * VALUE_BYTES),
            _ => (written % 7, VALUE_BYTES),
        };
        written += u32::from(yard.try_put(Purpose::Grow, number, &[7; 4 * VALUE_BYTES][..bytes]));
        yard.turn();
        // The first release lets the log have a list.
        if yard.store.log().counters().released == 0 {
            yard.clean(|_| ());
        }
        yard.remove();
    }
    let most = yard.store.log().segments_max();
    for _ in 0..5_000 {
        yard.clean(|_| ());
        yard.turn();
        yard.remove();
    }
    let left = yard.store.log().sealed_segments().len();
    let counters = yard.store.cleaning().counters();
    assert!(left < most / 2, "{left} of {most}, {counters:?}");
}

/// The disk is full, the last spare is a short one, and nothing but the open segment could be
/// cleaned: sealing it would take the spare, and what counts in it would not fit in there.
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
        // What grows leaves the end of the segment to edits.
        for number in [number, number & !1] {
            while !yard.try_put(Purpose::Keep, number, &[7; VALUE_BYTES]) {
                yard.turn();
            }
        }
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

/// Of what every segment holds a fifth is waste, but copies of the rest, which is kept of the past
/// and names its successor in them, are longer than the segment: to begin with one would take the
/// last spare for nothing.
#[test]
fn no_segment_is_begun_on_a_full_disk_whose_kept_versions_do_not_fit_in_a_spare_as_copies() {
    let mut config = config(SyncMethod::DurableWrite);
    config.frame_bytes = 64 << 10;
    let log = Log::with_history(config, LogStart::default(), History::default(), Heap);
    let mut yard = Yard::empty(log);
    yard.segment_bytes = 1 << 20;
    yard.store.cleaning_mut().configure(CleaningConfig {
        space_percent_max: 101,
        bytes_per_s: 1 << 30,
        log_bytes_max: 0,
    });
    let settings = Settings {
        revision: 1,
        versions: 255,
        ..Settings::default()
    };
    yard.keep_versions(b"v", settings);
    let kept = |number: u32| u32::from_le_bytes(*b"v\0\0\0") | number << 8;
    let mut round = 0;
    let mut write = |yard: &mut Yard, purpose: Purpose| {
        round += 1;
        let versions = 10 * round..10 * round + 10;
        yard.try_put(purpose, 1, &[7; VALUE_BYTES])
            && versions
                .into_iter()
                .all(|at| yard.try_put(purpose, kept(at / 200), &[7; 8]))
    };
    while yard.store.log().sealed_segments().len() < 5 {
        if !write(&mut yard, Purpose::Grow) {
            yard.turn();
        }
    }
    yard.is_full = true;
    yard.store.log_mut().spare_refused();
    // Until cleaning alone may take the last spare.
    let mut refused = 0;
    while refused < 2 {
        if write(&mut yard, Purpose::Keep) {
            refused = 0;
        } else {
            refused += 1;
            yard.turn();
        }
    }
    let spare_bytes = yard.store.log().sure_bytes_of_spare();
    assert!(spare_bytes > 0);
    for _ in 0..600 {
        yard.turn();
        yard.clean(|_| {});
    }
    let counters = yard.store.cleaning().counters();
    assert_eq!((counters.reads, counters.segments), (0, 0));
    assert_eq!(yard.store.log().sure_bytes_of_spare(), spare_bytes);
}

/// Between two versions one was kept until its time was over, and cleaning dropped it. A start in a
/// time before that must not take the older one for what stood there.
#[test]
fn a_version_that_ended_by_a_time_leaves_no_older_one_in_its_place_in_a_time_before() {
    const RETENTION_MS: u64 = 1_000;
    let log = Log::new(config(SyncMethod::DurableWrite), LogStart::default(), Heap);
    let mut yard = Yard::empty(log);
    yard.store.cleaning_mut().configure(CleaningConfig {
        space_percent_max: 101,
        bytes_per_s: 1 << 30,
        log_bytes_max: 0,
    });
    yard.pass(1);
    let settings = Settings {
        revision: 1,
        retention_ms: RETENTION_MS,
        ..Settings::default()
    };
    yard.keep_versions(b"v", settings);
    let key = u32::from_le_bytes(*b"v\0\0\0");
    // The first version stands where all is still needed, the second where nothing is.
    yard.put(key);
    for number in (0..660).chain(5_000..5_400) {
        yard.put(number);
    }
    yard.pass(100);
    let second_ms = yard.store.data().time_ms();
    yard.put(key);
    for round in 0..4 {
        for number in 5_000..6_000 {
            yard.put(number);
            // These writes make the segment of the second version the best one to clean.
            if round > 0 && number % 100 == 0 {
                yard.put(10_000 * round + number);
            }
        }
    }
    yard.pass(100);
    yard.put(key);
    let (first, second) = (yard.was(key, second_ms - 1), yard.was(key, second_ms));
    assert_ne!(first, second);
    yard.pass(RETENTION_MS - 10);
    let last_ms = yard.store.data().time_ms();
    yard.put(1);
    yard.turn();
    yard.pass(20);
    let mut removed = Vec::new();
    for _ in 0..200 {
        yard.clean(|_| {});
        yard.turn();
        while let Some(file) = yard.store.take_removable() {
            yard.disk.files.remove(&file);
            removed.push(file);
        }
    }
    let stood = |was| match was {
        WasAt::Version(kept) => kept.place.file,
        other => panic!("{other:?}"),
    };
    let (first, second) = (stood(first), stood(second));
    assert!(
        removed.contains(&second) && !removed.contains(&first),
        "{removed:?}, and the versions stood in {first:?} and {second:?}"
    );
    let yard = yard.restarted(last_ms);
    assert!(matches!(yard.was(key, second_ms), WasAt::NotKept { .. }));
}

/// The last spare went to a segment that was begun for cleaning, and no other one comes. Most of
/// that segment is empty, and only copies may take it.
#[test]
fn whatever_finds_no_room_and_gets_none_is_full_after_a_while_and_asked_anew_later() {
    let config = config(SyncMethod::DurableWrite);
    let log = Log::with_history(config, LogStart::default(), History::default(), Heap);
    let mut yard = Yard::empty(log);
    for number in 0..100 {
        yard.put(number);
    }
    yard.turn();
    yard.is_full = true;
    while yard.store.log().has_spares() {
        assert!(yard.store.log_mut().seal_for_cleaning());
        yard.turn();
    }
    yard.store.log_mut().spare_refused();
    let mut answers = [Vec::new(), Vec::new()];
    for _ in 0..1_500 {
        for (purpose, answers) in [Purpose::Grow, Purpose::Keep].into_iter().zip(&mut answers) {
            let room = yard.store.room(purpose, 4, VALUE_BYTES, false);
            assert_ne!(room, Room::Yes, "there is none");
            if answers.last() != Some(&room) {
                answers.push(room);
            }
        }
        yard.clean(|_| ());
        yard.turn();
        // Others take the room of what is removed.
        while yard.store.take_removable().is_some() {}
        yard.store.log_mut().spare_refused();
    }
    let [grows, keeps] = answers;
    assert_eq!(grows, [Room::Wait, Room::Full]);
    // Nobody tells that room came, so each second another one waits for it.
    assert_eq!(keeps, [Room::Wait, Room::Full, Room::Wait, Room::Full]);
    yard.is_full = false;
    yard.turn();
    yard.clean(|_| ());
    assert!(yard.try_put(Purpose::Keep, 7, &[8; VALUE_BYTES]));
}

/// One spare came, and the next one is made for as long as that takes.
#[test]
fn a_log_whose_next_spare_is_being_made_is_not_full_before_that_is_refused() {
    let config = config(SyncMethod::DurableWrite);
    let log = Log::with_history(config, LogStart::default(), History::default(), Heap);
    let mut yard = Yard::empty(log);
    for number in 0..100 {
        yard.put(number);
    }
    yard.turn();
    yard.is_full = true;
    while yard.store.log().has_spares() {
        assert!(yard.store.log_mut().seal_for_cleaning());
        yard.turn();
    }
    let pass = |yard: &mut Yard, is_refused: bool| {
        yard.clean(|_| ());
        yard.turn();
        while yard.store.take_removable().is_some() {}
        if is_refused {
            yard.store.log_mut().spare_refused();
        }
    };
    // Cleaning does what it can.
    (0..300).for_each(|_| pass(&mut yard, true));
    yard.add_spare();
    let mut number = 100;
    let mut fill = |yard: &mut Yard| {
        while yard.try_put(Purpose::Grow, number, &[7; VALUE_BYTES]) {
            number += 1;
        }
    };
    let grows = |yard: &mut Yard| yard.store.room(Purpose::Grow, 4, VALUE_BYTES, false);
    for _ in 0..500 {
        // What cleaning gives back is taken at once.
        fill(&mut yard);
        assert_ne!(grows(&mut yard), Room::Full, "a spare is being made");
        pass(&mut yard, false);
    }
    for _ in 0..300 {
        fill(&mut yard);
        pass(&mut yard, true);
        grows(&mut yard);
    }
    assert_eq!(grows(&mut yard), Room::Full);
}
