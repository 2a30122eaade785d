//! The store against a map, with a cache far smaller than the data, hashes that collide, power cuts
//! and cold reads.

use std::collections::BTreeMap;

use penstock_storage::budget::Budget;
use penstock_storage::index::CellId;
use penstock_storage::io::{Asker, Block, Io, IoToken, SegmentSource};
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, LogConfig, Room, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{
    KindedValue, PartKind, PartSpec, PartView, RecordSpec, ValueKind, number_bytes, part_bytes,
};
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{Event, Recovered, Segment, recover, recover_behind, survey};
use penstock_storage::snapshot::{Coverage, SnapshotName, Taken, Taking, load};
use penstock_storage::store::{Found, Store};
use penstock_storage::version::Version;

use crate::crash::sectors_kept;
use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::{OWNER, SEGMENT_BYTES, config};
use crate::kinds::{begin_head, kinded};
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::snapshot;

/// Keys and their new values; none is a deletion. All of one slot.
type Change = Vec<(Vec<u8>, Option<Vec<u8>>)>;

const CACHE_BYTES: usize = 2_000;
const SLOTS_USED: usize = 3;
const HASH_CHECK: u64 = 97;
const KEYS_PER_SLOT: usize = 60;

struct Shop {
    disk: Disk,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    /// What was committed, in order.
    history: Vec<Change>,
    random: Random,
    /// The snapshot that is being taken, with its bytes so far.
    taking: Option<(Taking, Vec<u8>)>,
    /// Finished snapshots.
    snapshots: Vec<(SnapshotName, Vec<u8>)>,
    /// Snapshots that were begun.
    begun: u64,
}

fn key(slot: usize, number: usize) -> Vec<u8> {
    format!("{slot}/{number}").into_bytes()
}

/// The slot that a key's name begins with.
fn slot_of(key: &[u8]) -> u16 {
    u16::from(key[0] - b'0') * 64
}

/// Few distinct values, so that several keys share each.
fn home_of(key: &[u8]) -> KeyHome {
    KeyHome::new(slot_of(key), hash(key))
}

fn hash(key: &[u8]) -> u32 {
    key.iter().fold(7u32, |hash, &byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    }) % 97
        * 2
}

fn state(history: &[Change]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    for (key, value) in history.iter().flatten() {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
    state
}

fn log_config(incarnation: u64) -> LogConfig {
    LogConfig {
        incarnation,
        ..config(SyncMethod::DurableWrite)
    }
}

impl Shop {
    fn new(seed: u64) -> Self {
        let log = Log::new(log_config(1), LogStart::default(), Heap);
        let store = Store::new(log, Heap, 256, [0; 256], Replayed::new(CACHE_BYTES));
        let (disk, random) = (Disk::default(), Random::new(seed ^ 0xC0FFEE));
        Shop {
            disk,
            store,
            requests: Vec::new(),
            now_us: 0,
            history: Vec::new(),
            random,
            taking: None,
            snapshots: Vec::new(),
            begun: 0,
        }
    }

    /// Goes on with a snapshot, or begins one.
    fn snapshot(&mut self) {
        let Some((taking, bytes)) = &mut self.taking else {
            self.begun += 1;
            self.taking = Taking::begin(&mut self.store, self.begun, HASH_CHECK);
            return;
        };
        match taking.step(&self.store, 1 + self.random.below(900)) {
            Taken::Nothing => {}
            Taken::Chunk(chunk) => bytes.extend(chunk),
            Taken::Last(last) => {
                bytes.extend(last);
                let name = taking.name();
                let (_, bytes) = self.taking.take().expect("it is being taken");
                self.snapshots.push((name, bytes));
            }
        }
    }

    fn pump(&mut self) {
        while self.store.log().spares_wanted() > 0 {
            let file = self.disk.create(SEGMENT_BYTES);
            self.store
                .log_mut()
                .add_spare(file, self.random.next(), SEGMENT_BYTES as u64);
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
    }

    fn complete(&mut self, index: usize) {
        let completion = self.disk.complete(index);
        self.store
            .log_mut()
            .completed(self.now_us, completion)
            .expect("the disk does not fail");
        self.store.settle(&home_of);
    }

    /// The cells of the keys that exist, with every cold one read first.
    fn find(&mut self, keys: &[Vec<u8>]) -> Vec<Option<CellId>> {
        'again: for _ in 0..1_000 {
            let mut found = Vec::new();
            for key in keys {
                match self.store.keys().find(slot_of(key), hash(key), key) {
                    Found::Cached(id) => {
                        found.push((!self.store.keys().cell(id).is_deleted()).then_some(id))
                    }
                    Found::Absent => found.push(None),
                    Found::Cold(place) => {
                        self.read(KeyHome::new(slot_of(key), hash(key)), place);
                        continue 'again;
                    }
                }
            }
            return found;
        }
        panic!("a cold key never becomes warm");
    }

    fn read(&mut self, wanted: KeyHome, place: Place) {
        let request = self
            .store
            .read(IoToken::new(Asker::Operation, 1), place)
            .expect("the heap has blocks");
        self.disk.submit(&mut vec![request]);
        let completion = self.disk.complete(self.disk.under_way().len() - 1);
        self.store
            .data_mut()
            .admit(
                wanted,
                place,
                completion.block.expect("a read has a block").bytes(),
                home_of,
            )
            .expect("what was written");
    }

    /// Commits a change; returns whether there was room.
    fn change(&mut self, slot: usize, change: Change) -> bool {
        let bytes: usize = change
            .iter()
            .map(|(key, value)| {
                let value_len = value.as_ref().map_or(0, Vec::len);
                part_bytes(key.len(), value_len, false, 0) + number_bytes(change.len())
            })
            .sum();
        if self
            .store
            .room_for(penstock_storage::log::Purpose::Grow, bytes)
            != Room::Yes
        {
            return false;
        }
        let keys: Vec<Vec<u8>> = change.iter().map(|(key, _)| key.clone()).collect();
        self.find(&keys);
        // Deleted keys that are still in memory have a cell too.
        let found: Vec<Option<CellId>> = keys
            .iter()
            .map(
                |key| match self.store.keys().find(slot_of(key), hash(key), key) {
                    Found::Cached(id) => Some(id),
                    Found::Absent => None,
                    Found::Cold(_) => panic!("read above"),
                },
            )
            .collect();
        let mut cells = Vec::new();
        for ((key, value), id) in change.iter().zip(found) {
            let home = home_of(key);
            let mut id = id.unwrap_or_else(|| {
                self.store
                    .keys_mut()
                    .insert(home, key, KindedValue::NONE, None)
            });
            match value {
                Some(value) => {
                    id = self
                        .store
                        .keys_mut()
                        .set_value(home, id, kinded(value), None)
                }
                None => self.store.keys_mut().mark_deleted(home, id),
            }
            cells.push((home.hash, id));
        }
        let slot = u16::try_from(slot * 64).expect("few slots");
        let (lsn, _) = self.store.commit(self.now_us, slot, &cells);
        self.history.push(change);
        assert_eq!(lsn.0, self.history.len() as u64);
        self.store.log_mut().want_durable(lsn);
        true
    }

    /// Changes a value several times in a run, if there is one in memory and room for it. The last
    /// value is what the log has of them.
    fn run(&mut self, slot: usize, number: usize) {
        let key = key(slot, number);
        let Found::Cached(id) = self.store.keys().find(slot_of(&key), hash(&key), &key) else {
            return;
        };
        let Some(mut run) = self.store.run(self.now_us, home_of(&key), id) else {
            return;
        };
        let mut value = run.value().to_vec();
        let mut before = None;
        let mut lsn = None;
        for _ in 0..1 + self.random.below(5) {
            value.fill_with(|| self.random.next().to_le_bytes()[0]);
            let Some(at) = run.replace(&value) else {
                assert_eq!(lsn, None, "a run that began goes on");
                return;
            };
            assert_eq!(*lsn.get_or_insert(at), at);
            let version = run.version();
            if let Some(Version { sequence, .. }) = before.replace(version) {
                assert_eq!(version.sequence, sequence + 1);
            }
        }
        drop(run);
        let lsn = lsn.expect("it changed");
        self.history.push(vec![(key, Some(value))]);
        assert_eq!(lsn.0, self.history.len() as u64);
        assert_eq!(Some(self.store.keys().version(id)), before);
        self.store.log_mut().want_durable(lsn);
    }

    /// What the store knows of a key of slot 0.
    fn found(&self, number: usize) -> Found {
        let key = key(0, number);
        self.store.keys().find(slot_of(&key), hash(&key), &key)
    }

    fn check(&mut self, slot: usize, number: usize) {
        self.store.settle(&home_of);
        let key = key(slot, number);
        let found = self.find(std::slice::from_ref(&key))[0];
        let value = found.map(|id| {
            let cell = self.store.keys().cell(id);
            assert_eq!(cell.key(), key);
            assert_eq!(cell.kinded_value(), kinded(cell.value()));
            cell.value().to_vec()
        });
        assert_eq!(
            value,
            state(&self.history).get(&key).cloned(),
            "{}",
            String::from_utf8_lossy(&key)
        );
    }

    /// Puts every key of slot 0 and waits until it is durable.
    fn fill(&mut self) {
        for number in 0..KEYS_PER_SLOT {
            let change = vec![(key(0, number), Some(vec![number.to_le_bytes()[0]; 300]))];
            while !self.change(0, change.clone()) {
                self.pump();
            }
            self.pump();
            while !self.disk.under_way().is_empty() {
                self.complete(0);
                self.pump();
            }
        }
    }

    fn check_all(&mut self) {
        for slot in 0..SLOTS_USED {
            for number in 0..KEYS_PER_SLOT {
                self.check(slot, number);
            }
        }
    }

    fn crash_and_restart(&mut self, incarnation: u64) {
        let durable = usize::try_from(self.store.log().durable().0).expect("small");
        self.taking = None;
        self.disk.crash(|| sectors_kept(&mut self.random));
        let survey = survey(&mut self.disk, OWNER).expect("a power cut is no damage");
        for file in survey
            .torn_activations
            .iter()
            .chain(survey.released.values().flatten())
        {
            self.disk.files.remove(file);
        }
        let segments = survey.logs.values().next().map_or(&[][..], Vec::as_slice);
        let (mut opened, recovered) = self.replayed(segments, incarnation, None);
        let records = usize::try_from(recovered.start.last_lsn.0).expect("small");
        assert!(records >= durable);
        self.history.truncate(records);
        // With each snapshot it must come out the same.
        for number in 0..self.snapshots.len() {
            let (store, behind) = self.replayed(segments, incarnation, Some(number));
            assert_eq!(behind.start, recovered.start);
            assert_eq!(behind.history.segments, recovered.history.segments);
            assert_eq!(behind.history.sequences, recovered.history.sequences);
            assert_eq!(behind.history.epoch_max, recovered.history.epoch_max);
            assert_eq!(
                (behind.last_file, &behind.truncate, behind.release),
                (recovered.last_file, &recovered.truncate, recovered.release)
            );
            assert_eq!(store.data().usage().keys, opened.data().usage().keys);
            assert_eq!(store.carried_ms(), opened.carried_ms());
            if self.random.once_in(2) {
                self.store = store;
                self.check_all();
            } else {
                opened = store;
            }
        }
        if let Some(file) = recovered.release {
            self.disk.files.remove(&file);
        }
        self.store = opened;
        for (file, bytes) in survey.spares {
            self.store
                .log_mut()
                .add_spare(file, self.random.next(), bytes);
        }
    }

    /// The store that a start makes of the log, all of it or what is behind a snapshot.
    fn replayed(
        &mut self,
        segments: &[Segment],
        incarnation: u64,
        snapshot: Option<usize>,
    ) -> (Store<Heap>, Recovered) {
        let mut cold_reads = Disk::from(self.disk.files.clone());
        let mut memory = Replayed::new(CACHE_BYTES);
        let mut header = None;
        if let Some((name, bytes)) = snapshot.map(|number| &self.snapshots[number]) {
            let reader = snapshot::open(bytes).expect("it was finished");
            let coverage = Coverage::of(reader.header(), OWNER, *name, HASH_CHECK, segments);
            let coverage = coverage.expect("it is of this log");
            header = Some((reader.header().clone(), *reader.footer()));
            memory =
                load(reader, &coverage, Budget::of_cache(CACHE_BYTES)).expect("it was finished");
        }
        let mut reads = 0;
        let mut replay = |part: &PartView<'_>, place| {
            memory.replay(&home_of, part, place, |place, visit_part| {
                reads += 1;
                read_part(&mut cold_reads, place, visit_part)
            })
        };
        let recovered = match &header {
            Some((header, footer)) => {
                let mut visit = |event: Event<'_>| match event {
                    Event::Part(part, place) => replay(&part, place),
                    Event::Segment(_)
                    | Event::Frame(..)
                    | Event::Contents(_)
                    | Event::Prefetch(_) => Ok(()),
                };
                recover_behind(&mut self.disk, segments, (header, footer), &mut visit)
            }
            None => recover(&mut self.disk, segments, &mut replay).map(Some),
        };
        let recovered = recovered.expect("a power cut is no damage");
        let recovered = recovered.expect("it was finished when the log was durable so far");
        let log = Log::with_history(
            log_config(incarnation),
            recovered.start,
            recovered.history.clone(),
            Heap,
        );
        let sequences = *recovered.history.sequences.clone();
        let store = Store::new(log, Heap, 256, sequences, memory);
        (store, recovered)
    }
}

pub fn read_part(
    disk: &mut Disk,
    place: Place,
    visit_part: &mut dyn FnMut(&PartView<'_>),
) -> std::io::Result<()> {
    let mut bytes = vec![0; place.bytes as usize];
    disk.read_at(place.file, place.offset, &mut bytes)?;
    visit_part(&PartView::read(&bytes).expect("recovery told this place"));
    Ok(())
}

fn run(seed: u64) {
    let _named = Seed(seed);
    let mut random = Random::new(seed);
    let mut shop = Shop::new(seed);
    for life in 2..5 {
        for _ in 0..random.below(600) {
            let slot = random.below(SLOTS_USED);
            if random.once_in(4) {
                shop.snapshot();
            }
            match random.below(10) {
                0..4 => {
                    let mut change = Change::new();
                    let keys = match random.once_in(8) {
                        true => 5 + random.below(40),
                        false => 1 + random.below(3),
                    };
                    for _ in 0..keys {
                        let key = key(slot, random.below(KEYS_PER_SLOT));
                        let mut value: Vec<u8> = (0..random.below(90))
                            .map(|_| random.next().to_le_bytes()[0])
                            .collect();
                        if random.once_in(3) {
                            begin_head(&mut value);
                        }
                        if !change.iter().any(|(other, _)| *other == key) {
                            change.push((key, (!random.once_in(4)).then_some(value)));
                        }
                    }
                    shop.change(slot, change);
                }
                4..6 => shop.check(slot, random.below(KEYS_PER_SLOT)),
                6 => shop.run(slot, random.below(KEYS_PER_SLOT)),
                7 => shop.pump(),
                _ if !shop.disk.under_way().is_empty() => {
                    shop.complete(random.below(shop.disk.under_way().len()))
                }
                _ => shop.now_us += 1_000,
            }
        }
        shop.crash_and_restart(life);
        shop.check_all();
    }
}

#[test]
fn the_store_answers_as_a_map_does_with_a_tiny_cache_and_power_cuts() {
    seeds(40).for_each(run);
}

#[test]
fn the_cache_returns_to_its_budget_and_cold_keys_come_back() {
    let mut shop = Shop::new(1);
    shop.fill();
    shop.store.settle(&home_of);
    let usage = shop.store.data().usage();
    assert!(usage.cache_bytes <= CACHE_BYTES, "{usage:?}");
    assert_eq!(usage.keys, KEYS_PER_SLOT);
    shop.check_all();
    assert!(shop.store.data().usage().cache_bytes <= CACHE_BYTES + 500);
}

/// A change finds the cells of its keys before it inserts the ones that are missing: the insertion
/// must not let the others leave.
#[test]
fn a_cell_that_was_found_stays_until_the_change_is_committed() {
    let mut shop = Shop::new(1);
    shop.fill();
    for number in 0..KEYS_PER_SLOT {
        let known = key(0, number);
        let Found::Cached(id) = shop
            .store
            .keys()
            .find(slot_of(&known), hash(&known), &known)
        else {
            continue;
        };
        for missing in 0..KEYS_PER_SLOT {
            let missing = key(1, missing);
            let new = shop.store.keys_mut().insert(
                KeyHome::new(slot_of(&missing), hash(&missing)),
                &missing,
                KindedValue::plain(b"new"),
                None,
            );
            assert_eq!(shop.store.keys().cell(id).key(), known);
            shop.store.keys_mut().discard(home_of(&missing), new);
        }
    }
}

/// The block that comes back holds another part: the disk read the wrong place.
#[test]
fn a_misdirected_read_is_refused_and_not_cached() {
    let mut shop = Shop::new(1);
    shop.fill();
    let cold: Vec<(Vec<u8>, Place)> = (0..KEYS_PER_SLOT)
        .map(|number| key(0, number))
        .filter_map(
            |key| match shop.store.keys().find(slot_of(&key), hash(&key), &key) {
                Found::Cold(place) => Some((key, place)),
                _ => None,
            },
        )
        .collect();
    let [(first_key, first), (_, second), ..] = &cold[..] else {
        panic!("few cold keys")
    };
    assert_eq!(first.bytes, second.bytes);
    // The same offset within a block, so that a valid part of another key stands there.
    let mut bytes = vec![0; second.bytes as usize];
    shop.disk
        .read_at(second.file, second.offset, &mut bytes)
        .expect("there");
    let part = PartView::read(&bytes).expect("a part");
    assert_eq!(part.kind(), PartKind::Put);
    let start = usize::try_from(first.offset).expect("small");
    shop.disk.files.get_mut(&first.file).expect("there")[start..start + bytes.len()]
        .copy_from_slice(&bytes);
    let request = shop
        .store
        .read(IoToken::new(Asker::Operation, 1), *first)
        .expect("the heap has blocks");
    shop.disk.submit(&mut vec![request]);
    let block = shop.disk.complete(0).block.expect("a read has a block");
    assert!(
        shop.store
            .data_mut()
            .admit(
                KeyHome::new(slot_of(first_key), hash(first_key)),
                *first,
                block.bytes(),
                home_of
            )
            .is_err()
    );
    assert_eq!(
        shop.store
            .keys()
            .find(slot_of(first_key), hash(first_key), first_key),
        Found::Cold(*first)
    );
}

/// The disk lost a write and still holds what stood there before: the same key, an older value.
#[test]
fn an_older_part_of_the_same_key_at_the_place_is_refused() {
    let mut shop = Shop::new(1);
    shop.fill();
    let old: Vec<Found> = (0..KEYS_PER_SLOT)
        .map(|number| shop.found(number))
        .collect();
    shop.fill();
    let (number, old, new) = (0..KEYS_PER_SLOT)
        .find_map(|number| match (old[number], shop.found(number)) {
            (Found::Cold(old), Found::Cold(new)) => Some((number, old, new)),
            _ => None,
        })
        .expect("the cache is tiny");
    let mut bytes = vec![0; old.bytes as usize];
    shop.disk
        .read_at(old.file, old.offset, &mut bytes)
        .expect("there");
    let start = usize::try_from(new.offset).expect("small");
    shop.disk.files.get_mut(&new.file).expect("there")[start..start + bytes.len()]
        .copy_from_slice(&bytes);
    let request = shop
        .store
        .read(IoToken::new(Asker::Operation, 1), new)
        .expect("the heap has blocks");
    shop.disk.submit(&mut vec![request]);
    let block = shop.disk.complete(0).block.expect("a read has a block");
    assert!(
        shop.store
            .data_mut()
            .admit(
                KeyHome::new(0, hash(&key(0, number))),
                new,
                block.bytes(),
                home_of
            )
            .is_err()
    );
}

#[test]
fn a_deletion_stays_in_memory_until_it_is_durable() {
    let mut shop = Shop::new(1);
    shop.fill();
    shop.check(0, 7);
    assert!(shop.change(0, vec![(key(0, 7), None)]));
    for _ in 0..3 {
        shop.store.settle(&home_of);
        let Found::Cached(id) = shop.found(7) else {
            panic!("it left")
        };
        assert!(shop.store.keys().cell(id).is_deleted());
    }
    shop.pump();
    shop.complete(0);
    assert_eq!(shop.found(7), Found::Absent);
}

/// Cleaning will append old parts again: replay goes by version, not by position.
#[test]
fn replay_keeps_the_newer_version_wherever_it_stands() {
    let encode = |epoch, sequence, value: &[u8]| {
        let parts = [PartSpec {
            kind: PartKind::Put,
            key: b"key",
            value,
            expiry_ms: None,
            value_kind: ValueKind::Plain,
            layout: 0,
            is_crowded: false,
        }];
        let record = RecordSpec {
            slot: 0,
            epoch,
            sequence,
            time_ms: 1,
            parts: &parts,
            extension: &[],
        };
        let mut bytes = vec![0; record.bytes()];
        record.encode_part(0, &mut bytes);
        bytes
    };
    let versions = [
        encode(256, 9, b"old"),
        encode(512, 2, b"newest"),
        encode(512, 1, b"newer"),
    ];
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut memory = Replayed::new(CACHE_BYTES);
        for n in order {
            let part = PartView::read(&versions[n]).expect("just encoded");
            let place = Place {
                file: FileId(1),
                offset: 64 * (n as u64 + 1),
                bytes: 56,
            };
            let no_cold_key = |_: Place, _: &mut dyn FnMut(&PartView<'_>)| -> Result<(), ()> {
                panic!("all in memory")
            };
            memory
                .replay(&|_: &[u8]| KeyHome::new(0, 5), &part, place, no_cold_key)
                .expect("no read");
        }
        let store = Store::new(
            Log::new(log_config(1), LogStart::default(), Heap),
            Heap,
            256,
            [0; 256],
            memory,
        );
        let Found::Cached(id) = store.keys().find(0, 5, b"key") else {
            panic!("not in memory")
        };
        assert_eq!(store.keys().cell(id).value(), b"newest", "{order:?}");
    }
}
