//! A store that holds what was written elsewhere, and writes by itself in turn: against a model,
//! with cold keys, hashes that collide, cleaning that keeps a backlog, and power cuts.

use std::collections::{BTreeMap, BTreeSet};

use penstock_storage::budget::Budget;
use penstock_storage::cleaning::Backlog;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::index::CellId;
use penstock_storage::io::{Asker, Block, Io, IoToken, SegmentSource};
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{SETTINGS_BYTES, Settings, keyspace_key};
use penstock_storage::log::SyncMethod;
use penstock_storage::log::{Log, LogConfig, Purpose, Room};
use penstock_storage::place::{LogStart, Lsn, Place};
use penstock_storage::record::{
    KindedValue, PartKind, PartSpec, PartView, RecordSpec, ValueKind, part_bytes,
};
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{Event, recover, recover_behind, survey};
use penstock_storage::snapshot::{Coverage, SnapshotName, load};
use penstock_storage::store::{Found, Store};
use penstock_storage::system_key::{LOCAL_KEY, is_local};
use penstock_storage::version::{Version, partition_of};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::{OWNER, SEGMENT_BYTES, config};
use crate::kinds::{begin_head, kinded};
use crate::random::Random;
use crate::seed::{Seed, seeds};

mod again;
mod floor;

const CACHE_BYTES: usize = 12_000;
const KEYS: usize = 30;
const VALUE_BYTES: usize = 2_500;
const SLOTS: [u16; 2] = [0, 640];
const TIME_MS: u64 = 1_700_000_000_000;

/// A key's new value with its expiry; none is a deletion.
type Value = Option<(Vec<u8>, Option<u64>)>;
type Change = Vec<(Vec<u8>, Value)>;

/// A record of a partition, wherever it was written.
struct Written {
    version: Version,
    change: Change,
}

struct Member {
    disk: Disk,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    random: Random,
    /// All records of each partition in their order, and how many of them are in the log.
    past: BTreeMap<u16, Vec<Written>>,
    applied: BTreeMap<u16, usize>,
    epochs: BTreeMap<u16, u32>,
    /// What was appended, by its place in the log.
    appended: Vec<(Lsn, u16, usize)>,
    /// The local records of each partition.
    notes: BTreeMap<u16, Vec<(Lsn, Vec<u8>)>>,
    backlog: Option<Backlog>,
    met: Met,
}

/// What the runs must meet.
#[derive(Default)]
struct Met {
    cold: u32,
    released: u32,
    held: u32,
    lost: u32,
    superseded: u32,
    local_kept: u32,
}

fn key(slot: u16, number: usize) -> Vec<u8> {
    format!("{slot}/{number}").into_bytes()
}

fn slot_of(key: &[u8]) -> u16 {
    let text = std::str::from_utf8(key).expect("a key of the test");
    let number = text.split('/').next().expect("a slot");
    number.parse().expect("a slot")
}

fn local_key(slot: u16) -> Vec<u8> {
    [LOCAL_KEY, slot.to_string().as_bytes()].concat()
}

fn hash(key: &[u8]) -> u32 {
    key.iter().fold(7u32, |hash, &byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    }) % 17
        * 2
}

fn home_of(key: &[u8]) -> KeyHome {
    KeyHome::new(slot_of(key), hash(key))
}

fn log_config(incarnation: u64) -> LogConfig {
    LogConfig {
        incarnation,
        ..config(SyncMethod::DurableWrite)
    }
}

/// The record as another node ships it.
fn shipped(slot: u16, written: &Written, time_ms: u64) -> Vec<u8> {
    let parts: Vec<PartSpec<'_>> = written
        .change
        .iter()
        .map(|(key, value)| PartSpec {
            kind: match value {
                Some(_) => PartKind::Put,
                None => PartKind::Tombstone,
            },
            key,
            value: value.as_ref().map_or(&[], |(bytes, _)| bytes),
            expiry_ms: value.as_ref().and_then(|(_, expiry_ms)| *expiry_ms),
            value_kind: value
                .as_ref()
                .map_or(ValueKind::Plain, |(bytes, _)| kinded(bytes).kind),
            layout: 0,
            is_crowded: written.version.sequence.is_multiple_of(2),
        })
        .collect();
    let record = RecordSpec {
        slot,
        epoch: written.version.epoch,
        sequence: written.version.sequence,
        time_ms,
        parts: &parts,
        extension: &[],
    };
    let mut bytes = vec![0; record.bytes()];
    let mut end = 0;
    for ordinal in 0..parts.len() {
        end += record.encode_part(ordinal, &mut bytes[end..]);
    }
    bytes
}

fn parts(mut bytes: &[u8]) -> Vec<PartView<'_>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let part = PartView::read(bytes).expect("just written");
        bytes = &bytes[part.bytes().len()..];
        parts.push(part);
    }
    parts
}

impl Member {
    fn new(seed: u64) -> Member {
        let log = Log::new(log_config(1), LogStart::default(), Heap);
        let mut member = Member {
            disk: Disk::default(),
            store: Store::new(log, Heap, 256, [0; 256], Replayed::new(CACHE_BYTES)),
            requests: Vec::new(),
            now_us: 0,
            random: Random::new(seed ^ 0xBEEF),
            past: SLOTS.map(|slot| (slot, Vec::new())).into(),
            applied: SLOTS.map(|slot| (slot, 0)).into(),
            epochs: SLOTS.map(|slot| (slot, 1 << 8)).into(),
            appended: Vec::new(),
            notes: SLOTS.map(|slot| (slot, Vec::new())).into(),
            backlog: None,
            met: Met::default(),
        };
        member.prepare();
        member
    }

    fn prepare(&mut self) {
        self.store.cleaning_mut().configure(CleaningConfig {
            space_percent_max: 110,
            bytes_per_s: 1 << 30,
            log_bytes_max: 0,
        });
    }

    fn last(&self, slot: u16) -> Version {
        let past = &self.past[&slot][..self.applied[&slot]];
        past.last().map_or_else(Version::default, |it| it.version)
    }

    fn random_change(&mut self, slot: u16) -> Change {
        let mut change = Change::new();
        for _ in 0..1 + self.random.below(3) {
            let key = key(slot, self.random.below(KEYS));
            if change.iter().any(|(other, _)| *other == key) {
                continue;
            }
            let len = self.random.below(VALUE_BYTES);
            let byte = self.random.next().to_le_bytes()[0];
            let expiry_ms = self.random.once_in(5).then_some(TIME_MS * 2);
            let is_deleted = self.random.once_in(4);
            let mut bytes = vec![byte; len];
            if self.random.once_in(3) {
                begin_head(&mut bytes);
            }
            change.push((key, (!is_deleted).then_some((bytes, expiry_ms))));
        }
        change
    }

    /// Another node writes a record.
    fn write_elsewhere(&mut self, slot: u16) {
        let epoch = self.epochs.get_mut(&slot).expect("all are there");
        if self.random.once_in(10) {
            *epoch += 1 << 8;
        }
        let version = Version {
            epoch: *epoch,
            sequence: self.past[&slot].len() as u64 + 1,
        };
        let change = self.random_change(slot);
        let past = self.past.get_mut(&slot).expect("all are there");
        past.push(Written { version, change });
    }

    fn warm(&mut self, parts: &[PartView<'_>]) {
        let keys = || parts.iter().map(PartView::key);
        for (home, place) in self.store.keys().cold_of(parts[0].slot(), keys(), &hash) {
            self.met.cold += 1;
            self.read(home, place);
        }
        assert_eq!(
            self.store.keys().cold_of(parts[0].slot(), keys(), &hash),
            []
        );
    }

    fn read(&mut self, home: KeyHome, place: Place) {
        let request = self
            .store
            .read(IoToken::new(Asker::Operation, 1), place)
            .expect("heap");
        self.disk.submit(&mut vec![request]);
        let completion = self.disk.complete(self.disk.under_way().len() - 1);
        let block = completion.block.expect("a read has a block");
        self.store
            .data_mut()
            .admit(home, place, block.bytes(), home_of)
            .expect("what was written");
    }

    /// The next record of the past comes to this node; one that it has, to be refused.
    fn apply(&mut self, slot: u16) {
        let next = self.applied[&slot];
        if next == self.past[&slot].len() {
            return;
        }
        let time_ms = TIME_MS + next as u64;
        let bytes = shipped(slot, &self.past[&slot][next], time_ms);
        let parts = parts(&bytes);
        self.warm(&parts);
        let needed = bytes.len();
        if self.store.room_for(Purpose::Grow, needed) != Room::Yes {
            return;
        }
        let is_dense = self.random.once_in(2);
        let lsn = self.store.apply(self.now_us, &parts, is_dense, &hash);
        let lsn = lsn.expect("it is news");
        assert!(
            self.store.data().time_ms() >= time_ms,
            "the time goes on with it"
        );
        self.was_appended(lsn, slot);
    }

    fn was_appended(&mut self, lsn: Lsn, slot: u16) {
        let applied = self.applied.get_mut(&slot).expect("all are there");
        *applied += 1;
        self.appended.push((lsn, slot, *applied));
        self.store.log_mut().want_durable(lsn);
    }

    /// A record that is there comes again.
    fn apply_again(&mut self, slot: u16) {
        let applied = self.applied[&slot];
        if applied == 0 {
            return;
        }
        let at = self.random.below(applied);
        let state = self.state(slot);
        let written = &self.past[&slot][at];
        // A deletion that has left the index cannot refuse an older record. No source ships an
        // older record behind it.
        if written
            .change
            .iter()
            .any(|(key, _)| !state.contains_key(key))
        {
            return;
        }
        let bytes = shipped(slot, written, TIME_MS);
        let parts = parts(&bytes);
        self.warm(&parts);
        let before = self.store.log().appended();
        assert_eq!(self.store.apply(self.now_us, &parts, false, &hash), None);
        assert_eq!(self.store.log().appended(), before);
        self.met.superseded += 1;
        // In a log that must be dense it is appended, and changes nothing.
        let needed = bytes.len();
        if self.random.once_in(2) && self.store.room_for(Purpose::Grow, needed) == Room::Yes {
            let lsn = self.store.apply(self.now_us, &parts, true, &hash);
            assert!(lsn.is_some_and(|lsn| lsn > before));
        }
    }

    /// This node writes.
    fn commit(&mut self, slot: u16) {
        if self.applied[&slot] < self.past[&slot].len() {
            return;
        }
        let change = self.random_change(slot);
        let sizes = change.iter().map(|(key, value)| {
            let value_len = value.as_ref().map_or(0, |(bytes, _)| bytes.len());
            part_bytes(key.len(), value_len, true, 0)
        });
        let mut cells = Vec::new();
        for (key, _) in &change {
            while let Found::Cold(place) = self.store.keys().find(slot, hash(key), key) {
                self.read(KeyHome::new(slot, hash(key)), place);
            }
        }
        if self.store.room_for(Purpose::Grow, sizes.sum()) != Room::Yes {
            return;
        }
        for (key, value) in &change {
            let home = home_of(key);
            let mut id: CellId = match self.store.keys().find(slot, home.hash, key) {
                Found::Cached(id) => id,
                Found::Absent => self
                    .store
                    .keys_mut()
                    .insert(home, key, KindedValue::NONE, None),
                Found::Cold(_) => panic!("read above"),
            };
            match value {
                Some((bytes, expiry_ms)) => {
                    id = self
                        .store
                        .keys_mut()
                        .set_value(home, id, kinded(bytes), *expiry_ms);
                }
                None => self.store.keys_mut().mark_deleted(home, id),
            }
            cells.push((home.hash, id));
        }
        let epoch = self.epochs.get_mut(&slot).expect("all are there");
        *epoch += 1 << 8;
        let after = Version {
            epoch: *epoch,
            sequence: self.applied[&slot] as u64,
        };
        self.store.lead(partition_of(slot), after);
        let (lsn, version) = self.store.commit(self.now_us, slot, &cells);
        assert_eq!(
            (version.epoch, version.sequence),
            (after.epoch, after.sequence + 1)
        );
        let past = self.past.get_mut(&slot).expect("all are there");
        past.push(Written { version, change });
        self.was_appended(lsn, slot);
    }

    fn note(&mut self, slot: u16) {
        let key = local_key(slot);
        let len = 8 + self.random.below(100);
        let value = vec![self.random.next().to_le_bytes()[0]; len];
        if self
            .store
            .room(Purpose::Keep, key.len(), value.len(), false)
            != Room::Yes
        {
            return;
        }
        let lsn = self.store.note_local(self.now_us, slot, &key, &value);
        assert_eq!(
            self.store.data().locals().value(slot),
            Some(value.as_slice())
        );
        let notes = self.notes.get_mut(&slot).expect("all are there");
        notes.push((lsn, value));
    }

    /// A node promises before it takes anything, so its log begins with a local record.
    fn link(&mut self) {
        for _ in 0..1_000 {
            if self.store.log().history().is_linked {
                return;
            }
            self.note(SLOTS[0]);
            self.pump();
            self.complete();
        }
        panic!("the log never has room");
    }

    fn pump(&mut self) {
        while self.store.log().spares_wanted() > 0 {
            let file = self.disk.create(SEGMENT_BYTES);
            let salt = self.random.next();
            let log = self.store.log_mut();
            log.add_spare(file, salt, SEGMENT_BYTES as u64);
        }
        self.store.settle(&home_of);
        self.store.clean(self.now_us, &hash, &mut self.requests);
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
        while let Some(file) = self.store.take_removable() {
            self.met.released += 1;
            self.disk.files.remove(&file);
        }
    }

    fn complete(&mut self) {
        if self.disk.under_way().is_empty() {
            return;
        }
        let index = self.random.below(self.disk.under_way().len());
        let completion = self.disk.complete(index);
        match completion.token.asker {
            Asker::LogWrite | Asker::LogSync => {
                let log = self.store.log_mut();
                log.completed(self.now_us, completion).expect("it is sound");
            }
            Asker::Cleaning => self.store.cleaning_mut().read(completion),
            _ => panic!("a read of nobody"),
        }
    }

    /// What the applied records of a partition make: version and value of each key.
    fn state(&self, slot: u16) -> BTreeMap<Vec<u8>, (Version, Vec<u8>, Option<u64>)> {
        let mut state = BTreeMap::new();
        for written in &self.past[&slot][..self.applied[&slot]] {
            for (key, value) in &written.change {
                match value {
                    Some((bytes, expiry_ms)) => {
                        let entry = (written.version, bytes.clone(), *expiry_ms);
                        state.insert(key.clone(), entry)
                    }
                    None => state.remove(key),
                };
            }
        }
        state
    }

    fn check(&mut self) {
        for slot in SLOTS {
            let state = self.state(slot);
            for number in 0..KEYS {
                self.store.settle(&home_of);
                let key = key(slot, number);
                let found = loop {
                    match self.store.keys().find(slot, hash(&key), &key) {
                        Found::Cold(place) => self.read(KeyHome::new(slot, hash(&key)), place),
                        Found::Cached(id) if !self.store.keys().cell(id).is_deleted() => {
                            let cell = self.store.keys().cell(id);
                            assert_eq!(cell.kinded_value(), kinded(cell.value()));
                            let value = (cell.value().to_vec(), cell.expiry_ms());
                            break Some((self.store.keys().version(id), value.0, value.1));
                        }
                        Found::Cached(_) | Found::Absent => break None,
                    }
                };
                assert_eq!(
                    found,
                    state.get(&key).cloned(),
                    "{}",
                    String::from_utf8_lossy(&key)
                );
            }
            let last = self.last(slot);
            assert_eq!(self.store.log().history().last(partition_of(slot)), last);
        }
    }

    /// Keeps what is behind some record that is there, or nothing any more.
    fn hold_back(&mut self) {
        let durable = self.store.log().durable();
        let before = self.backlog;
        self.backlog = match self.random.below(3) {
            0 => None,
            // Somebody falls behind, and all of it is kept from now on.
            1 => Some(Backlog {
                behind: before
                    .filter(|before| before.bytes_max == u64::MAX)
                    .map_or(durable, |before| before.behind),
                bytes_max: u64::MAX,
            }),
            _ => Some(Backlog {
                behind: before.map_or(durable, |before| before.behind),
                bytes_max: 3 * SEGMENT_BYTES as u64,
            }),
        };
        self.store.cleaning_mut().hold_back(self.backlog);
    }

    /// What is kept for others is there: no sequence behind what is forgotten is missing.
    fn check_forgotten(&mut self, found: &BTreeSet<(u16, u64)>) {
        for slot in SLOTS {
            let forgotten = self.store.forgotten(partition_of(slot));
            for sequence in forgotten + 1..=self.applied[&slot] as u64 {
                assert!(
                    found.contains(&(slot, sequence)),
                    "{sequence} of slot {slot} is gone, and {forgotten} is told forgotten"
                );
            }
            self.met.lost += u32::from(forgotten > 0);
            if let Some(backlog) = self.backlog.filter(|it| it.bytes_max == u64::MAX) {
                let lacked = self
                    .appended
                    .iter()
                    .filter(|(lsn, of, _)| *of == slot && *lsn > backlog.behind)
                    .map(|&(_, _, sequence)| sequence as u64)
                    .min();
                if let Some(lacked) = lacked {
                    self.met.held += u32::from(forgotten > 0);
                    assert!(forgotten < lacked, "{forgotten} and {lacked} is lacked");
                }
            }
        }
    }

    fn crash(&mut self, incarnation: u64) {
        self.crash_beside(incarnation, None);
    }

    /// A power cut, and a start with this snapshot, or without any.
    fn crash_beside(&mut self, incarnation: u64, snapshot: Option<&(SnapshotName, Vec<u8>)>) {
        let durable = self.store.log().durable();
        self.disk.crash(|| self.random.next());
        let survey = survey(&mut self.disk, OWNER).expect("a power cut is no damage");
        for file in survey
            .torn_activations
            .iter()
            .chain(survey.released.values().flatten())
        {
            self.disk.files.remove(file);
        }
        let segments = survey.logs.values().next().map_or(&[][..], Vec::as_slice);
        let mut cold = Disk::from(self.disk.files.clone());
        let mut memory = Replayed::new(CACHE_BYTES);
        let mut behind = None;
        if let Some((name, bytes)) = snapshot {
            let reader = again::open(bytes);
            let coverage = Coverage::of(reader.header(), OWNER, *name, 0, segments);
            behind = Some((reader.header().clone(), *reader.footer()));
            let budget = Budget::of_cache(CACHE_BYTES);
            memory = load(reader, &coverage.expect("it fits"), budget).expect("it is whole");
        }
        let mut found = BTreeSet::new();
        let mut replay = |part: &PartView<'_>, place| {
            if !part.is_copy() && !is_local(part.key()) {
                found.insert((part.slot(), part.sequence()));
            }
            let home_of = |key: &[u8]| home_of(key);
            memory.replay(&home_of, part, place, |place, visit_part| {
                let mut bytes = vec![0; place.bytes as usize];
                cold.read_at(place.file, place.offset, &mut bytes)?;
                visit_part(&PartView::read(&bytes).expect("it was replayed"));
                Ok(())
            })
        };
        let recovered = match &behind {
            Some((header, footer)) => {
                let mut visit = |event: Event<'_>| match event {
                    Event::Part(part, place) => replay(&part, place),
                    _ => Ok(()),
                };
                recover_behind(&mut self.disk, segments, (header, footer), &mut visit)
                    .map(|recovered| recovered.expect("the log reaches far enough"))
            }
            None => recover(&mut self.disk, segments, &mut replay),
        };
        let recovered = recovered.expect("a power cut is no damage");
        if memory.keeps_versions() {
            let again = recover(&mut self.disk, segments, &mut |part, place| {
                memory.collect(&|key: &[u8]| home_of(key), part, place);
                Ok(())
            });
            again.expect("it was just read");
            memory.finish_versions();
        }
        if let Some(file) = recovered.release {
            self.disk.files.remove(&file);
        }
        let last_lsn = recovered.start.last_lsn;
        assert!(last_lsn >= durable);
        self.appended.retain(|(lsn, ..)| *lsn <= last_lsn);
        let log = Log::with_history(
            log_config(incarnation),
            recovered.start,
            recovered.history.clone(),
            Heap,
        );
        let sequences = *recovered.history.sequences.clone();
        self.store = Store::new(log, Heap, 1 << 30, sequences, memory);
        for (file, bytes) in survey.spares {
            let salt = self.random.next();
            self.store.log_mut().add_spare(file, salt, bytes);
        }
        self.prepare();
        for slot in SLOTS {
            let of_slot = self.appended.iter().filter(|(_, of, _)| *of == slot);
            let applied = of_slot.map(|&(_, _, count)| count).max().unwrap_or(0);
            self.applied.insert(slot, applied);
            // What is lost was never written, as far as this node can tell.
            self.past.get_mut(&slot).expect("there").truncate(applied);
            *self.epochs.get_mut(&slot).expect("there") += 1 << 8;
            let notes = self.notes.get_mut(&slot).expect("there");
            notes.retain(|(lsn, _)| *lsn <= last_lsn);
            let newest = notes.last().map(|(_, value)| value.as_slice());
            assert_eq!(
                self.store.data().locals().value(slot),
                newest,
                "slot {slot}"
            );
            self.met.local_kept += u32::from(newest.is_some());
        }
        self.check_forgotten(&found);
        self.backlog = None;
    }

    /// Until the log has room and all of it is durable.
    fn rest(&mut self) {
        let appended = self.store.log().appended();
        self.store.log_mut().want_durable(appended);
        for _ in 0..1_000 {
            self.now_us += 1_000;
            self.pump();
            self.complete();
        }
        assert_eq!(self.store.log().durable(), appended);
    }

    /// Sets or deletes a key at some time.
    fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.rest();
        let home = home_of(key);
        let len = value.map_or(0, <[u8]>::len);
        assert_eq!(
            self.store.room(Purpose::Grow, key.len(), len, false),
            Room::Yes
        );
        let id = match self.store.keys().find(home.slot, home.hash, key) {
            Found::Cached(id) => id,
            Found::Absent => self
                .store
                .keys_mut()
                .insert(home, key, KindedValue::NONE, None),
            Found::Cold(_) => panic!("there is room for all of them"),
        };
        let id = match value {
            Some(value) => self
                .store
                .keys_mut()
                .set_value(home, id, kinded(value), None),
            None => {
                self.store.keys_mut().mark_deleted(home, id);
                id
            }
        };
        self.store
            .commit(self.now_us, home.slot, &[(home.hash, id)]);
    }

    /// The versions of a key that are kept, the newest first.
    fn history(&self, key: &[u8]) -> Vec<(Version, bool, u64)> {
        let home = home_of(key);
        let current = match self.store.keys().find(home.slot, home.hash, key) {
            Found::Cached(id) => Some(id),
            Found::Absent => None,
            Found::Cold(_) => panic!("there is room for all of them"),
        };
        let history = self.store.history(home, key, current, 0);
        let versions = history.expect("versions are kept");
        versions
            .map(|it| (it.version, it.is_deletion, it.time_ms))
            .collect()
    }
}

/// Of a keyspace that keeps three versions; a change of the settings drops the layout.
fn settings(revision: u64) -> Settings {
    Settings {
        revision,
        versions: 3,
        layout: if revision == 1 { 9 } else { 0 },
        ..Settings::default()
    }
}

#[test]
fn applied_settings_are_in_force_and_applied_records_keep_the_versions_before_them() {
    let slot = SLOTS[0];
    let mut source = Member::new(1);
    source.store.log_mut().tap();
    let mut now_ms = TIME_MS;
    let mut tick = |member: &mut Member| {
        now_ms += 5;
        member.store.data_mut().observe(member.now_us, now_ms);
    };
    let keys = [key(slot, 1), key(slot, 2)];
    let settings_key = keyspace_key(0, b"");
    for round in 0..8u8 {
        tick(&mut source);
        if round == 1 || round == 5 {
            source.rest();
            let learned = source
                .store
                .keyspaces_mut()
                .learn(b"", settings(round.into()));
            assert_eq!(learned, Ok(true));
            let room = source
                .store
                .room(Purpose::Keep, settings_key.len(), SETTINGS_BYTES, false);
            assert_eq!(room, Room::Yes);
            source
                .store
                .commit_settings(source.now_us, slot, &settings_key, b"");
        }
        source.put(&keys[0], Some(&[round; 20]));
        let is_deleted = round == 4;
        source.put(&keys[1], (!is_deleted).then_some(&[round; 30]));
    }
    source.rest();
    let mut records = Vec::new();
    while let Some(frame) = source.store.log_mut().take_sealed() {
        records.extend(parts(&frame.bytes).iter().map(|part| part.bytes().to_vec()));
    }
    assert_eq!(records.len(), 18, "each has one part");

    let mut member = Member::new(2);
    member.link();
    for (at, record) in records.iter().enumerate() {
        member.rest();
        let room = member.store.room_for(Purpose::Grow, record.len());
        assert_eq!(room, Room::Yes);
        let lsn = member
            .store
            .apply(member.now_us, &parts(record), true, &hash);
        assert!(lsn.is_some(), "what is dense is appended");
        let in_force = member.store.keyspaces().of(slot, &keys[0]);
        // The third record is the first of settings.
        let expected = (at >= 2).then_some(());
        assert_eq!(in_force.map(|_| ()), expected, "behind record {at}");
    }
    member.rest();
    // What is there already changes nothing, whether it is settings or a value.
    for record in &records {
        assert_eq!(member.store.apply(0, &parts(record), false, &hash), None);
    }
    for life in 2..4 {
        for key in &keys {
            assert_eq!(member.history(key), source.history(key), "life {life}");
            assert_eq!(member.history(key).len(), 4, "three before the newest");
        }
        let settings_of =
            |member: &Member| member.store.keyspaces().of(slot, &keys[0]).map(|it| *it.1);
        assert_eq!(settings_of(&member), Some(settings(5)));
        assert_eq!(settings_of(&member), settings_of(&source));
        member.crash(life);
        // Everything is durable, so a start finds the same.
        member.rest();
    }
}

fn run(seed: u64, met: &mut Met) {
    let _named = Seed(seed);
    let mut member = Member::new(seed);
    for life in 2..5 {
        member.link();
        for _ in 0..200 + member.random.below(1_200) {
            let slot = SLOTS[member.random.below(2)];
            match member.random.below(20) {
                0..4 => {
                    member.write_elsewhere(slot);
                    member.apply(slot);
                }
                4 => member.apply(slot),
                5 => member.apply_again(slot),
                6 | 7 => member.commit(slot),
                8 if member.random.once_in(4) => member.note(slot),
                8 if member.random.once_in(8) => member.hold_back(),
                9..13 => member.pump(),
                13 => member.now_us += 1_000 + member.random.next() % 10_000,
                _ => member.complete(),
            }
        }
        member.crash(life);
        member.check();
    }
    met.cold += member.met.cold;
    met.released += member.met.released;
    met.held += member.met.held;
    met.lost += member.met.lost;
    met.superseded += member.met.superseded;
    met.local_kept += member.met.local_kept;
}

#[test]
fn what_is_applied_is_as_good_as_what_is_committed() {
    let mut met = Met::default();
    seeds(40).for_each(|seed| run(seed, &mut met));
    if seeds(40).count() >= 40 {
        assert!(
            met.cold > 0
                && met.released > 0
                && met.held > 0
                && met.lost > 0
                && met.superseded > 0
                && met.local_kept > 0,
            "never met: {} cold, {} released, {} held, {} lost, {} superseded, {} local",
            met.cold,
            met.released,
            met.held,
            met.lost,
            met.superseded,
            met.local_kept
        );
    }
}
