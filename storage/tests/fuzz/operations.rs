//! The store under planned and unplanned operations, against maps.
//!
//! An input is one byte (how frames are made durable) and a list of steps: keys are written and
//! deleted, one or several at a time, looked up, read from the disk; requests of the disk end in
//! any order; time passes; the power fails. Hashes collide and the cache holds few keys. What is
//! found is what the last commit left; after a power cut every record up to some LSN, no durable
//! one missing.

use std::collections::BTreeMap;

use penstock_storage::index::CellId;
use penstock_storage::io::{Asker, Block, Io, IoFailure, IoToken, SegmentSource};
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, Room, SyncMethod};
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{KindedValue, PartView, number_bytes, part_bytes};
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{recover, survey};
use penstock_storage::store::{Found, Store};
use penstock_storage::version::{PARTITIONS, Version};

use crate::FOLDER;
use crate::directory::{OWNER, SEGMENT_BYTES, config};
use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::target::{Choices, keep};

const STEPS_MAX: usize = 300;
const KEYS: u8 = 12;
const CACHE_BYTES: usize = 600;
const LOG_ID: u64 = 9;
const EPOCH: u32 = 257;

/// The keys of one record and their new values; none is a deletion.
type Change = Vec<(u8, Option<Vec<u8>>)>;
type State = BTreeMap<u8, (Version, Vec<u8>)>;

struct World {
    sync: SyncMethod,
    device: Disk,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    incarnation: u64,
    salt: u64,
    /// Every record that is in the log, LSN 1 first.
    history: Vec<(Version, Change)>,
    /// What the history makes.
    state: State,
    /// Reads under way, by token.
    reads: BTreeMap<u64, (u8, Place)>,
    next_read: u64,
}

const SLOT: u16 = 64;

fn key(number: u8) -> Vec<u8> {
    vec![b'k'; 1 + usize::from(number)]
}

/// Three values, so that every key has others of its hash.
fn home_of(key: &[u8]) -> KeyHome {
    KeyHome::new(SLOT, hash(key))
}

fn hash(key: &[u8]) -> u32 {
    u32::try_from(key.len() % 3).expect("below 3") << 30
}

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let sync = match choices.byte() % 2 {
        0 => SyncMethod::DurableWrite,
        _ => SyncMethod::WriteThenSync,
    };
    let mut world = World::new(sync);
    for _ in 0..STEPS_MAX {
        if choices.is_empty() {
            break;
        }
        world.step(&mut choices);
    }
    world.check_all();
    world.crash(&mut choices);
    world.check_all();
}

impl World {
    fn new(sync: SyncMethod) -> World {
        let log = Log::new(config(LOG_ID, 1, sync), LogStart::default(), Heap);
        World {
            sync,
            device: Disk::default(),
            store: Store::new(
                log,
                Heap,
                EPOCH,
                [0; PARTITIONS],
                Replayed::new(CACHE_BYTES),
            ),
            requests: Vec::new(),
            now_us: 0,
            incarnation: 1,
            salt: 0,
            history: Vec::new(),
            state: State::new(),
            reads: BTreeMap::new(),
            next_read: 0,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.byte() % 10 {
            0..=2 => {
                let mut change: Change = Vec::new();
                for _ in 0..=choices.below(24) {
                    let number = choices.byte() % KEYS;
                    let value = match choices.byte() {
                        0..=63 => None,
                        len => Some(vec![choices.byte(); usize::from(len)]),
                    };
                    if change.iter().all(|(other, _)| *other != number) {
                        change.push((number, value));
                    }
                }
                self.commit(change);
            }
            3 => {
                let number = choices.byte() % KEYS;
                self.find(number);
            }
            4 => {
                self.store.settle(&home_of);
            }
            5 | 6 => self.pump(),
            7 | 8 => {
                if !self.device.under_way().is_empty() {
                    self.complete(choices.below(self.device.under_way().len()));
                }
            }
            _ => match choices.byte() % 8 {
                0 => self.crash(choices),
                1 => self.store.log_mut().spare_refused(),
                2 => self.fail(choices),
                3 => self.stop(choices),
                _ => {
                    self.now_us += 1_000 * u64::from(choices.byte());
                    self.pump();
                }
            },
        }
    }

    fn pump(&mut self) {
        while self.store.log().spares_wanted() > 0 {
            let file = self.device.create(SEGMENT_BYTES);
            self.salt += 0x9E37;
            let log = self.store.log_mut();
            log.add_spare(file, self.salt, SEGMENT_BYTES as u64);
        }
        self.store.settle(&home_of);
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.device.submit(&mut self.requests);
        assert!(self.device.under_way().len() <= 3 + self.reads.len());
    }

    fn complete(&mut self, index: usize) {
        let completion = self.device.complete(index);
        if matches!(completion.token.asker, Asker::LogWrite | Asker::LogSync) {
            let log = self.store.log_mut();
            log.completed(self.now_us, completion)
                .expect("the disk is good");
            assert!(log.durable() <= log.appended());
            return;
        }
        let read = self.reads.remove(&completion.token.number);
        let (number, place) = read.expect("it was asked");
        let block = completion.block.expect("a read has a block");
        self.store
            .data_mut()
            .admit(
                KeyHome::new(SLOT, hash(&key(number))),
                place,
                block.bytes(),
                home_of,
            )
            .expect("what was written");
    }

    /// Whether the token is that of a read, which has ended. The log numbers its requests itself.
    fn ends_read(&mut self, token: IoToken) -> bool {
        let is_of_log = matches!(token.asker, Asker::LogWrite | Asker::LogSync);
        !is_of_log && self.reads.remove(&token.number).is_some()
    }

    /// A request fails. After one of the log's nothing more becomes durable, and a start follows.
    fn fail(&mut self, choices: &mut Choices<'_>) {
        if self.device.under_way().is_empty() {
            return;
        }
        let chosen = choices.below(self.device.under_way().len());
        let completion = self.device.fail(chosen, IoFailure::Device(5));
        if self.ends_read(completion.token) {
            return;
        }
        let log = self.store.log_mut();
        let durable = log.durable();
        assert!(log.completed(self.now_us, completion).is_err(), "poisoned");
        while !self.device.under_way().is_empty() {
            let completion = self.device.complete(0);
            if !self.ends_read(completion.token) {
                let log = self.store.log_mut();
                assert!(log.completed(self.now_us, completion).is_err(), "poisoned");
            }
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        assert!(self.requests.is_empty(), "a poisoned log asks for nothing");
        assert_eq!(self.store.log().durable(), durable);
        self.crash(choices);
    }

    /// A clean stop: every record is durable then.
    fn stop(&mut self, choices: &mut Choices<'_>) {
        self.store.log_mut().close();
        for _ in 0..100 {
            self.pump();
            while !self.device.under_way().is_empty() {
                self.complete(0);
            }
            // The log may rest before it notices that there is nothing to do.
            self.now_us += 10_000;
        }
        let log = self.store.log();
        assert!(log.is_closed() && log.durable() == log.appended());
        self.crash(choices);
    }

    /// Changes keys if they can be told without a read and the log has room.
    fn commit(&mut self, change: Change) {
        let mut found = Vec::new();
        for (number, _) in &change {
            match self.find(*number) {
                Found::Cached(id) => found.push(Some(id)),
                Found::Absent => found.push(None),
                Found::Cold(_) => return,
            }
        }
        let bytes = change.iter().map(|(number, value)| {
            let value_len = value.as_ref().map_or(0, Vec::len);
            part_bytes(key(*number).len(), value_len, false, 0) + number_bytes(change.len())
        });
        if self
            .store
            .room_for(penstock_storage::log::Purpose::Grow, bytes.sum())
            != Room::Yes
        {
            return;
        }
        let cells: Vec<(u32, CellId)> = change
            .iter()
            .zip(found)
            .map(|((number, value), id)| {
                let key = key(*number);
                let home = home_of(&key);
                let mut id = id.unwrap_or_else(|| {
                    self.store
                        .keys_mut()
                        .insert(home, &key, KindedValue::NONE, None)
                });
                match value {
                    Some(value) => {
                        id = self.store.keys_mut().set_value(
                            home,
                            id,
                            KindedValue::plain(value),
                            None,
                        )
                    }
                    None => self.store.keys_mut().mark_deleted(home, id),
                }
                (home.hash, id)
            })
            .collect();
        let (lsn, version) = self.store.commit(self.now_us, SLOT, &cells);
        if version.sequence % 3 != 0 {
            self.store.log_mut().want_durable(lsn);
        }
        self.history.push((version, change));
        assert_eq!(lsn.0, self.history.len() as u64, "LSNs are dense");
        self.state = state(&self.history);
    }

    /// What the store knows of a key; a cold one is asked of the disk.
    fn find(&mut self, number: u8) -> Found {
        let key = key(number);
        let found = self.store.keys().find(SLOT, hash(&key), &key);
        let expected = self.state.get(&number);
        match found {
            Found::Cached(id) => {
                let cell = self.store.keys().cell(id);
                assert_eq!(cell.key(), key);
                let value = (!cell.is_deleted())
                    .then(|| (self.store.keys().version(id), cell.value().to_vec()));
                assert_eq!(value.as_ref(), expected, "key {number}");
                self.store.keys_mut().touch(id);
            }
            Found::Absent => assert_eq!(None, expected, "key {number}"),
            // Perhaps of another key with the same hash.
            Found::Cold(place) => {
                let is_asked = self.reads.values().any(|(_, asked)| *asked == place);
                if !is_asked {
                    self.next_read += 1;
                    self.reads.insert(self.next_read, (number, place));
                    let token = IoToken::new(Asker::Operation, self.next_read);
                    let read = self.store.read(token, place).expect("the heap has blocks");
                    self.device.submit(&mut vec![read]);
                }
            }
        }
        found
    }

    /// Every key, with everything that has to be read for it.
    fn check_all(&mut self) {
        for number in 0..KEYS {
            // Each read makes one more key of the hash warm, and nothing leaves meanwhile.
            for _ in 0..=2 * KEYS {
                if !matches!(self.find(number), Found::Cold(_)) {
                    break;
                }
                while !self.device.under_way().is_empty() {
                    self.complete(0);
                }
            }
            assert!(
                !matches!(self.find(number), Found::Cold(_)),
                "key {number} never becomes warm"
            );
        }
        assert!(self.store.data().usage().keys >= self.state.len());
    }

    fn crash(&mut self, choices: &mut Choices<'_>) {
        let durable = usize::try_from(self.store.log().durable().0).expect("few records");
        self.device
            .crash(|| u64::from_le_bytes([choices.byte(); 8]));
        self.reads.clear();
        let survey = survey(&mut self.device, OWNER).expect("a power cut is no damage");
        for file in &survey.torn_activations {
            self.device.files.remove(file);
        }
        let mut memory = Replayed::new(CACHE_BYTES);
        let (mut start, mut sequences, mut records) = (LogStart::default(), [0; PARTITIONS], 0);
        if let Some(segments) = survey.logs.get(&LOG_ID) {
            let mut cold = Disk::default();
            cold.files = self.device.files.clone();
            let found = recover(&mut self.device, segments, &mut |part, place| {
                memory.replay(&home_of, part, place, |place, visit_part| {
                    read_part(&mut cold, place, visit_part)
                })
            })
            .expect("a power cut is no damage");
            if let Some(file) = found.release {
                self.device.files.remove(&file);
            }
            for &(file, bytes) in &found.truncate {
                let bytes = usize::try_from(bytes).expect("small files");
                let file = self.device.files.get_mut(&file).expect("it was read");
                file.truncate(bytes);
            }
            (start, sequences) = (found.start, *found.history.sequences);
            records = usize::try_from(found.records).expect("few records");
        }
        assert!(
            (durable..=self.history.len()).contains(&records),
            "{records} of {} records, {durable} were durable",
            self.history.len()
        );
        self.history.truncate(records);
        self.state = state(&self.history);
        self.incarnation += 1;
        let config = config(LOG_ID, self.incarnation, self.sync);
        // A version is never given out twice.
        let epoch = EPOCH + (u32::try_from(self.incarnation).expect("few starts") << 8);
        let log = Log::new(config, start, Heap);
        self.store = Store::new(log, Heap, epoch, sequences, memory);
        for (file, bytes) in survey.spares {
            self.salt += 0x9E37;
            self.store.log_mut().add_spare(file, self.salt, bytes);
        }
    }
}

fn state(history: &[(Version, Change)]) -> State {
    let mut state = State::new();
    for (version, change) in history {
        for (number, value) in change {
            match value {
                Some(value) => state.insert(*number, (*version, value.clone())),
                None => state.remove(number),
            };
        }
    }
    state
}

fn read_part(
    device: &mut Disk,
    place: Place,
    visit_part: &mut dyn FnMut(&PartView<'_>),
) -> std::io::Result<()> {
    let mut bytes = vec![0; place.bytes as usize];
    device.read_at(place.file, place.offset, &mut bytes)?;
    visit_part(&PartView::read(&bytes).expect("what was replayed"));
    Ok(())
}

#[test]
fn lives_of_a_store_are_kept() {
    let put = |number: u8, len: u8| vec![0, 0, number, len, number];
    let delete = |number: u8| vec![0, 0, number, 0];
    let three = [0, 2, 1, 100, 1, 2, 100, 2, 3, 100, 3];
    let settled = [5, 7, 0, 5, 7, 0, 5, 7, 0, 4];
    let crash = [9, 0, 0xAA, 0x0F, 0xFF];
    let idle = [9, 2, 10];
    let mut fill = Vec::new();
    for number in 0..60u8 {
        fill.extend(put(number % KEYS, 200));
        fill.extend(settled);
    }
    let cold: Vec<u8> = (0..KEYS).flat_map(|number| [3, number, 7, 0]).collect();
    let named = |name: &str, sync: u8, steps: &[&[u8]]| {
        let input = [&[&[sync][..]], steps].concat().concat();
        (name.to_string(), input)
    };
    let inputs = [
        named("one-put", 0, &[&[5], &put(1, 80), &settled]),
        named("three-at-once", 1, &[&[5], &three, &settled, &crash]),
        named(
            "deleted",
            0,
            &[&[5], &put(1, 80), &delete(1), &settled, &[3, 1]],
        ),
        named(
            "deleted-and-crashed",
            1,
            &[&[5], &put(1, 80), &delete(1), &crash],
        ),
        named("filled-and-cold", 0, &[&[5], &fill, &cold, &idle]),
        named(
            "filled-and-crashed",
            1,
            &[&[5], &fill, &crash, &cold, &fill],
        ),
        named(
            "failed-write",
            1,
            &[&[5], &put(1, 80), &[5, 9, 2, 0], &put(2, 80)],
        ),
        named(
            "failed-sync",
            1,
            &[&[5], &put(1, 80), &[5, 7, 0, 5, 9, 2, 0]],
        ),
        named(
            "stopped",
            0,
            &[&[5], &put(1, 80), &put(2, 0), &[9, 3], &put(3, 70)],
        ),
        named("full-disk", 0, &[&[9, 1], &put(1, 80), &[5], &put(1, 80)]),
    ];
    keep(FOLDER, "operations", &inputs);
}
