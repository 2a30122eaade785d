//! Logs on small disks, whatever their segments: deletions and edits of what is there always go on,
//! and FULL ends by itself when much less counts.

use penstock_storage::record::KindedValue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_storage::cleaning::RoomOnDisk;
use penstock_storage::contents::History;
use penstock_storage::index::CellId;
use penstock_storage::io::Io;
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, LogConfig, Purpose, Room, SyncMethod};
use penstock_storage::place::{FileId, LogStart};
use penstock_storage::recovery::Replayed;
use penstock_storage::sizing::segment_bytes_fitting;
use penstock_storage::store::{Found, Store};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::journal::{config, read_back};
use crate::random::Random;

const FRAME_BYTES: usize = 64 << 10;
const RECORD_BYTES_MAX: usize = 64 << 10;
const KIB: u64 = 1 << 10;
const TURN_US: u64 = 1_000;
/// Turns until a file that was asked for comes, and until one that was refused is tried again.
const MAKE_TURNS: usize = 20;
const RETRY_TURNS: usize = 200;
/// Turns until the room is measured again.
const ROOM_TURNS: usize = 100;
/// Turns that a deletion or an edit may wait.
const WAIT_TURNS_MAX: usize = 2_000;
/// Turns until a disk is full.
const FILL_TURNS_MAX: usize = 20_000;
/// When all is deleted, half of what filled the disk at first has room within twice the turns that
/// filled it, and so many more.
const AGAIN_TURNS: usize = 1_000;
const ROUNDS: usize = 2;
/// Every how-manieth case belongs to the usual run; no multiple of the number of variants.
const GATE_STEP: usize = 11;

/// One store on a disk of so many bytes.
#[derive(Clone, Copy, Debug)]
struct Case {
    disk_bytes: u64,
    segment_bytes: u64,
    /// The first two segments are as short as can be, as those of a new directory.
    begins_short: bool,
    value_bytes: usize,
    /// Records that are written in a turn, at most.
    a_turn: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tried {
    Done,
    Waits,
    Full,
}

/// The store of a case, and the helper that makes its segments.
struct Plant {
    case: Case,
    disk: Disk,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    salts: Random,
    taken_bytes: u64,
    /// Lengths that were asked for, and the turns until the first of them is looked at.
    asked: VecDeque<u64>,
    due_turns: usize,
    first_left: u8,
    turns: usize,
    /// The mark of the value of each key.
    model: BTreeMap<u32, u8>,
}

fn hash(key: &[u8]) -> u32 {
    key.try_into().map_or(0, |key| u32::from_le_bytes(key) << 1)
}

fn shuffle(random: &mut Random, keys: &mut [u32]) {
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at + 1));
    }
}

fn least_bytes() -> u64 {
    log_config().segment_bytes_min().next_multiple_of(4096)
}

fn log_config() -> LogConfig {
    LogConfig {
        frame_bytes: FRAME_BYTES,
        record_bytes_max: RECORD_BYTES_MAX,
        ..config(SyncMethod::DurableWrite)
    }
}

impl Plant {
    fn new(case: Case) -> Plant {
        let log = Log::with_history(log_config(), LogStart::default(), History::default(), Heap);
        Plant {
            case,
            disk: Disk::default(),
            store: Store::new(log, Heap, 256, [0; 256], Replayed::new(1 << 26)),
            requests: Vec::new(),
            now_us: 0,
            salts: Random::new(1),
            taken_bytes: 0,
            asked: VecDeque::new(),
            due_turns: MAKE_TURNS,
            first_left: if case.begins_short { 2 } else { 0 },
            turns: 0,
            model: BTreeMap::new(),
        }
    }

    fn length(&self, file: FileId) -> u64 {
        self.disk.files[&file].len() as u64
    }

    /// Serves the first that asked, as the helper of a server does.
    fn make_spares(&mut self) {
        while self.store.log().spares_wanted() > self.asked.len() {
            let bytes = match self.first_left {
                0 => self.case.segment_bytes,
                _ => least_bytes(),
            };
            self.first_left = self.first_left.saturating_sub(1);
            self.asked.push_back(bytes);
        }
        self.due_turns = self.due_turns.saturating_sub(1);
        if self.due_turns > 0 {
            return;
        }
        let Some(&asked) = self.asked.front() else {
            return;
        };
        let left = self.case.disk_bytes - self.taken_bytes;
        let is_starved = self.store.log().is_starved();
        let bytes = match left {
            _ if left >= asked + least_bytes() => asked,
            _ if is_starved && left >= least_bytes() => least_bytes(),
            _ => {
                self.due_turns = RETRY_TURNS;
                return self.store.log_mut().spare_refused();
            }
        };
        self.due_turns = MAKE_TURNS;
        self.asked.pop_front();
        self.taken_bytes += bytes;
        let file = self.disk.create(usize::try_from(bytes).expect("small"));
        let salt = self.salts.next();
        self.store.log_mut().add_spare(file, salt, bytes);
    }

    fn turn(&mut self) {
        self.now_us += TURN_US;
        self.make_spares();
        // What other programs leave is told once in a while, as the helper of a server does.
        if self.turns.is_multiple_of(ROOM_TURNS) {
            self.store.set_room(RoomOnDisk {
                log_bytes: self.case.disk_bytes,
                segment_bytes: self.case.segment_bytes,
            });
        }
        self.turns += 1;
        self.store.settle(&|key: &[u8]| KeyHome::new(64, hash(key)));
        self.store.clean(self.now_us, &hash, &mut self.requests);
        while let Some(file) = self.store.take_removable() {
            self.taken_bytes -= self.length(file);
            self.disk.files.remove(&file);
            self.due_turns = self.due_turns.min(MAKE_TURNS);
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
        while !self.disk.under_way().is_empty() {
            let is_read = matches!(self.disk.under_way()[0], Io::Read { .. });
            let completion = self.disk.complete(0);
            if is_read {
                self.store.cleaning_mut().read(completion);
                continue;
            }
            let log = self.store.log_mut();
            let done = log.completed(self.now_us, completion);
            done.expect("a sound disk");
            log.pump(self.now_us, &mut self.requests);
            self.disk.submit(&mut self.requests);
        }
    }

    fn room(&mut self, purpose: Purpose, value_bytes: usize) -> Tried {
        if purpose == Purpose::Grow && self.store.cleaning().holds_writes() {
            self.store.cleaning_mut().write_waits();
            return Tried::Waits;
        }
        match self.store.room(purpose, 4, value_bytes, false) {
            Room::Yes => Tried::Done,
            Room::Wait => Tried::Waits,
            Room::Full => Tried::Full,
        }
    }

    fn commit(&mut self, number: u32, cell: CellId) {
        let home = number << 1;
        let (lsn, _) = self.store.commit(self.now_us, 64, &[(home, cell)]);
        self.store.log_mut().want_durable(lsn);
    }

    /// Sets a key: a new one grows the store, one that is there does not.
    fn set(&mut self, purpose: Purpose, number: u32) -> Tried {
        let tried = self.room(purpose, self.case.value_bytes);
        if tried == Tried::Done {
            let (home, key) = (KeyHome::new(64, number << 1), number.to_le_bytes());
            let mark = self.model.get(&number).map_or(1, |mark| mark + 1);
            let value = vec![mark; self.case.value_bytes];
            let cell = match self.store.keys().find(64, home.hash, &key) {
                Found::Cached(cell) => {
                    self.store
                        .keys_mut()
                        .set_value(home, cell, KindedValue::plain(&value), None)
                }
                Found::Absent => {
                    self.store
                        .keys_mut()
                        .insert(home, &key, KindedValue::plain(&value), None)
                }
                Found::Cold(_) => panic!("all are in memory"),
            };
            self.commit(number, cell);
            self.model.insert(number, mark);
        }
        tried
    }

    fn delete(&mut self, number: u32) -> Tried {
        let tried = self.room(Purpose::Keep, 0);
        if tried == Tried::Done {
            let home = KeyHome::new(64, number << 1);
            let found = self.store.keys().find(64, home.hash, &number.to_le_bytes());
            let Found::Cached(cell) = found else {
                panic!("all are in memory")
            };
            self.store.keys_mut().mark_deleted(home, cell);
            self.commit(number, cell);
            self.model.remove(&number);
        }
        tried
    }

    /// Adds keys from `number` on until one is refused: the first that was not added.
    fn fill(&mut self, mut number: u32) -> Result<u32, String> {
        for _ in 0..FILL_TURNS_MAX {
            for _ in 0..self.case.a_turn {
                match self.set(Purpose::Grow, number) {
                    Tried::Done => number += 1,
                    Tried::Waits => break,
                    Tried::Full => return Ok(number),
                }
            }
            self.turn();
        }
        Err(format!("it never got full, with {number} keys"))
    }

    /// Adds so many keys from `number` on, however often one is refused, within `turns`.
    fn fill_again(&mut self, mut number: u32, keys: u32, turns: usize) -> Result<u32, String> {
        let end = number + keys;
        for _ in 0..turns {
            for _ in 0..self.case.a_turn {
                if number == end {
                    return Ok(number);
                }
                if self.set(Purpose::Grow, number) != Tried::Done {
                    break;
                }
                number += 1;
            }
            self.turn();
        }
        let left = end - number;
        Err(format!(
            "{left} of {keys} keys have no room {turns} turns after all were deleted"
        ))
    }

    /// Does it to each of the keys; no one may be refused or wait for long.
    fn each(
        &mut self,
        keys: &[u32],
        what: &str,
        mut try_one: impl FnMut(&mut Plant, u32) -> Tried,
    ) -> Result<(), String> {
        let (mut waited, mut in_turn) = (0, 0);
        for (at, &number) in keys.iter().enumerate() {
            loop {
                match try_one(self, number) {
                    Tried::Done => break,
                    Tried::Full => {
                        return Err(format!("{what} {at} of {} is refused", keys.len()));
                    }
                    Tried::Waits if waited > WAIT_TURNS_MAX => {
                        return Err(format!("{what} {at} of {} waits on", keys.len()));
                    }
                    Tried::Waits => {
                        (waited, in_turn) = (waited + 1, 0);
                        self.turn();
                    }
                }
            }
            (waited, in_turn) = (0, in_turn + 1);
            if in_turn == self.case.a_turn {
                in_turn = 0;
                self.turn();
            }
        }
        Ok(())
    }

    /// Whether a start from what is durable now finds the keys and values of the model.
    fn survives(&mut self) -> Result<(), String> {
        while self.store.log().durable() < self.store.log().appended() {
            let lsn = self.store.log().appended();
            self.store.log_mut().want_durable(lsn);
            self.turn();
        }
        let mut disk = Disk::default();
        disk.files = self.disk.files.clone();
        let found = read_back(&mut disk).map_err(|error| format!("{error:?}"))?;
        let mut model = BTreeMap::new();
        for (key, value) in found.records.into_iter().flatten() {
            let Ok(key) = <[u8; 4]>::try_from(&key[..]) else {
                continue;
            };
            let number = u32::from_le_bytes(key);
            match value {
                Some(value) => model.insert(number, value[0]),
                None => model.remove(&number),
            };
        }
        match model == self.model {
            true => Ok(()),
            false => Err(format!(
                "a start finds {} keys in place of {}",
                model.len(),
                self.model.len()
            )),
        }
    }

    /// What stands where, for people.
    fn state(&self) -> String {
        let log = self.store.log();
        let sealed: Vec<_> = log
            .sealed_segments()
            .iter()
            .map(|it| it.file_bytes)
            .collect();
        format!(
            "full {}, low {}, sealed {sealed:?}, open {:?} with {} left, held {}, taken {}, {:?} \
             {:?}",
            log.is_full(),
            log.is_low(),
            log.open_segment().map(|(_, bytes)| bytes),
            log.open_segment_bytes_left(),
            log.held_bytes(),
            self.taken_bytes,
            self.store.cleaning().counters(),
            self.store.cleaning().counting_bytes(),
        )
    }

    /// Fills the disk, edits and deletes all that is there, in any order, and again.
    fn live(&mut self) -> Result<(), String> {
        let mut random = Random::new(self.case.disk_bytes ^ self.case.segment_bytes);
        let began_us = self.now_us;
        let first_keys = self.fill(0)?;
        let filled_turns = usize::try_from((self.now_us - began_us) / TURN_US).expect("few");
        let again_turns = AGAIN_TURNS + 2 * filled_turns;
        let mut first = 0;
        for _ in 0..ROUNDS {
            let end = first + u32::try_from(self.model.len()).expect("few");
            let mut keys: Vec<u32> = (first..end).collect();
            shuffle(&mut random, &mut keys);
            self.each(&keys, "edit", |plant, number| {
                plant.set(Purpose::Keep, number)
            })?;
            shuffle(&mut random, &mut keys);
            let half = keys.len() / 2;
            self.each(&keys[..half], "deletion", Plant::delete)?;
            self.survives()?;
            self.each(&keys[half..], "later deletion", Plant::delete)?;
            self.survives()?;
            let again = self.fill_again(end, first_keys / 2, again_turns)?;
            // As much more as there is room for.
            self.fill(again)?;
            self.survives()?;
            first = end;
        }
        Ok(())
    }
}

/// All cases of the sweep.
fn cases() -> Vec<Case> {
    let least = least_bytes();
    let mut cases = Vec::new();
    for disk in (1..=9).chain([14, 30, 60]) {
        // What is left beside whole segments is anything.
        for rest in [0, least / 3, least - 4096] {
            let disk_bytes = disk * least + rest;
            let asked = [least, least + 20 * KIB, 2 * least, 8 * least];
            let fitting = |asked| segment_bytes_fitting(asked, disk_bytes, least);
            let lengths: BTreeSet<u64> = asked.into_iter().map(fitting).collect();
            for segment_bytes in lengths {
                for (value_bytes, a_turn) in [(100, 64), (1_000, 1), (1_000, 64), (16_000, 8)] {
                    // Small values on larger disks take long.
                    if disk * 100 > 4 * value_bytes as u64 {
                        continue;
                    }
                    for begins_short in [false, true] {
                        cases.push(Case {
                            disk_bytes,
                            segment_bytes,
                            begins_short,
                            value_bytes,
                            a_turn,
                        });
                    }
                }
            }
        }
    }
    cases
}

fn judge(cases: &[Case]) {
    let mut failed = Vec::new();
    for &case in cases {
        let mut plant = Plant::new(case);
        if let Err(why) = plant.live() {
            failed.push(format!("{case:?}: {why}; {}", plant.state()));
        }
    }
    let some: Vec<_> = failed
        .iter()
        .step_by(failed.len() / 30 + 1)
        .cloned()
        .collect();
    let (failed, all) = (failed.len(), cases.len());
    assert!(failed == 0, "{failed} of {all} fail:\n{}", some.join("\n"));
}

#[test]
fn on_some_small_disks_edits_and_deletions_go_on_and_full_ends_when_all_is_deleted() {
    let some: Vec<Case> = cases().into_iter().step_by(GATE_STEP).collect();
    judge(&some);
}

#[test]
#[ignore = "the whole sweep takes a minute"]
fn on_any_small_disk_edits_and_deletions_go_on_and_full_ends_when_all_is_deleted() {
    judge(&cases());
}

/// A log with so many spares and room for so many more segments, for which none is made.
fn plant_with(spares: u64, more: u64) -> Plant {
    let segment_bytes = 8 * least_bytes();
    let mut plant = Plant::new(Case {
        disk_bytes: (spares + more) * segment_bytes + least_bytes(),
        segment_bytes,
        begins_short: false,
        value_bytes: 1_000,
        a_turn: 64,
    });
    plant.due_turns = usize::MAX;
    for _ in 0..spares {
        let file = plant
            .disk
            .create(usize::try_from(segment_bytes).expect("small"));
        let salt = plant.salts.next();
        plant.store.log_mut().add_spare(file, salt, segment_bytes);
    }
    plant.turn();
    plant
}

#[test]
fn the_first_record_waits_for_a_second_spare_only_where_the_room_is_nearly_used_up() {
    for (more, tried) in [(6, Tried::Done), (5, Tried::Waits)] {
        let mut plant = plant_with(1, more);
        assert_eq!(plant.set(Purpose::Grow, 0), tried, "room for {more} more");
    }
}

#[test]
fn growth_leaves_the_end_of_the_last_segment_only_where_the_room_is_nearly_used_up() {
    for (more, takes_the_end) in [(6, true), (5, false)] {
        let mut plant = plant_with(2, more);
        let numbers = 0..100_000;
        let waits = |plant: &mut Plant, number| {
            plant.turn();
            plant.set(Purpose::Grow, number) == Tried::Waits
        };
        let waited = numbers.into_iter().any(|number| waits(&mut plant, number));
        assert!(waited, "one segment takes fewer");
        let left = plant.store.log().open_segment_bytes_left();
        let end_bytes = plant.case.segment_bytes / 4;
        assert_eq!(
            left < end_bytes / 2,
            takes_the_end,
            "{left} are left, room for {more} more"
        );
        assert_eq!(
            plant.set(Purpose::Keep, 0),
            match takes_the_end {
                true => Tried::Waits,
                false => Tried::Done,
            }
        );
    }
}
