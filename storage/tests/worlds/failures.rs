//! A store with a cache far smaller than its data, run once for each of its requests and each way
//! in which that one can fail; and a recovery run once for each of its reads.
//!
//! After a failed write or sync nothing more is acknowledged, whatever else ends well, and all that
//! was acknowledged before is found after a power cut. A failed or wrong read is an error and never
//! a wrong value, and the next one goes well. Without a spare segment the log is full, until there
//! is one.

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use penstock_storage::index::CellId;
use penstock_storage::io::{Asker, Block, Completion, Io, IoFailure, IoToken, SegmentSource};
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Log, Poisoned, Room, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{KindedValue, part_bytes};
use penstock_storage::recovery::RecoveryError;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::{Found, Store};

use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::image::Image;
use crate::life::{Life, Parts, Record, SLOT, Shape, filled};
use crate::random::Random;
use crate::start::{NoStart, start};
use crate::tally::{Effort, Met, Tally};

const EIO: i32 = 5;
/// More than any write has.
const SECTORS_ALL: usize = 1 << 16;
const CACHE_BYTES: usize = 2_500;
const KEYS: usize = 12;
const EPOCH: u32 = 1 << 8;

/// How a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// A write or sync reports an error; of a write so many sectors arrive, of a sync all or
    /// nothing.
    Device { sectors: usize },
    /// A write moves only so many sectors.
    Short { sectors: usize },
    /// A read reports an error.
    Read,
    /// A read ends well and one bit is another.
    Flipped { bit: usize },
    /// A read ends well and brings zeros.
    Zeros,
    /// A read ends well and brings another block of the file.
    Elsewhere,
    /// The disk is full: no spare segment is to be had this time.
    NoSpare,
}

const WRITE_FAILURES: [Failure; 7] = [
    Failure::Device { sectors: 0 },
    Failure::Device { sectors: 1 },
    Failure::Device { sectors: 4 },
    Failure::Device {
        sectors: SECTORS_ALL,
    },
    Failure::Short { sectors: 0 },
    Failure::Short { sectors: 1 },
    Failure::Short { sectors: 7 },
];
const SYNC_FAILURES: [Failure; 2] = [
    Failure::Device { sectors: 0 },
    Failure::Device {
        sectors: SECTORS_ALL,
    },
];

/// Everything that is asked for, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Write,
    Sync,
    Read,
    Spare,
}

/// Fails every request in every way, with both methods of syncing.
pub fn walk(effort: Effort) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    for sync in [SyncMethod::DurableWrite, SyncMethod::WriteThenSync] {
        let rounds = if effort == Effort::All { 150 } else { 40 };
        let mut calm = Shop::new(sync, None);
        calm.trade(rounds).expect("nothing fails");
        tally.add(calm.ends_well().map(|()| Met::Unharmed));
        for (number, &asked) in calm.asked.iter().enumerate() {
            for failure in failures(asked, number, effort) {
                let met = fail(sync, rounds, number, failure);
                tally.add(met.map_err(|wrong| {
                    format!("{sync:?}, request {number}, {asked:?}, {failure:?}: {wrong}")
                }));
            }
        }
        fail_reads_of_a_start(sync, &mut tally);
    }
    tally.elapsed = began.elapsed();
    tally
}

fn failures(asked: Asked, number: usize, effort: Effort) -> Vec<Failure> {
    match asked {
        Asked::Write => WRITE_FAILURES.to_vec(),
        Asked::Sync => SYNC_FAILURES.to_vec(),
        Asked::Spare => vec![Failure::NoSpare],
        Asked::Read => {
            let flips = if effort == Effort::All { 200 } else { 8 };
            let mut random = Random::new(number as u64);
            let flips = (0..flips).map(|_| Failure::Flipped {
                bit: random.below(8 * 4096),
            });
            [Failure::Read, Failure::Zeros, Failure::Elsewhere]
                .into_iter()
                .chain(flips)
                .collect()
        }
    }
}

/// One run in which request `number` fails.
fn fail(sync: SyncMethod, rounds: usize, number: usize, failure: Failure) -> Result<Met, String> {
    let mut shop = Shop::new(sync, Some((number, failure)));
    let is_read = matches!(
        failure,
        Failure::Read | Failure::Flipped { .. } | Failure::Zeros | Failure::Elsewhere
    );
    match shop.trade(rounds) {
        Ok(()) if is_read || failure == Failure::NoSpare => {
            // A flipped bit beside the part that is read concerns another part.
            let must_notice = !matches!(failure, Failure::Flipped { .. } | Failure::Elsewhere);
            if must_notice && shop.noticed == 0 {
                return Err("nobody noticed".into());
            }
            shop.ends_well()?;
            Ok(if shop.noticed > 0 {
                Met::Refused
            } else {
                Met::Unharmed
            })
        }
        Ok(()) => Err("it was not noticed".into()),
        Err(Stop::Wrong(wrong)) => Err(wrong),
        Err(Stop::Poisoned(_)) if is_read => Err("a read poisons the log".into()),
        Err(Stop::Poisoned(poisoned)) => {
            shop.stays_poisoned(poisoned)?;
            shop.is_found_after_a_power_cut()?;
            Ok(Met::Refused)
        }
    }
}

/// Why a run ends early.
#[derive(Debug)]
enum Stop {
    Poisoned(Poisoned),
    Wrong(String),
}

struct Shop {
    shape: Shape,
    device: Device,
    store: Store<Heap>,
    requests: Vec<Io<HeapBlock>>,
    now_us: u64,
    appended: Vec<Record>,
    /// What each key is, if every change counts.
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was asked for, and which of it is to fail how.
    asked: Vec<Asked>,
    failing: Option<(usize, Failure)>,
    doomed: Option<(IoToken, Failure)>,
    /// Errors that the store or the log reported, poison apart.
    noticed: usize,
    salts: Random,
}

fn home_of(key: &[u8]) -> KeyHome {
    KeyHome::new(SLOT, hash(key))
}

fn hash(key: &[u8]) -> u32 {
    key.iter().fold(7u32, |hash, &byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(byte))
    }) << 1
}

impl Shop {
    fn new(sync: SyncMethod, failing: Option<(usize, Failure)>) -> Self {
        let shape = Shape::tiny(2, sync);
        let log = Log::new(shape.log_config(1), LogStart::default(), Heap);
        Shop {
            shape,
            device: Device::default(),
            store: Store::new(log, Heap, EPOCH, [0; 256], Replayed::new(CACHE_BYTES)),
            requests: Vec::new(),
            now_us: 0,
            appended: Vec::new(),
            model: BTreeMap::new(),
            asked: Vec::new(),
            failing,
            doomed: None,
            noticed: 0,
            salts: Random::new(3),
        }
    }

    /// Changes and reads keys, with requests under way all the time.
    fn trade(&mut self, rounds: usize) -> Result<(), Stop> {
        for round in 0..rounds {
            let key = round * 5 % KEYS;
            let mut change = filled(key, 200 + round * 97 % 900);
            match round % 7 {
                3 => change[0].1 = None,
                5 => change.extend(filled((key + 1) % KEYS, 40)),
                _ => {}
            }
            self.change(&change)?;
            self.pump();
            if round % 3 == 2 {
                self.end_one(round % 2)?;
            }
            self.check(round * 7 % KEYS)?;
        }
        self.rest()?;
        for key in 0..KEYS {
            self.check(key)?;
        }
        Ok(())
    }

    fn change(&mut self, change: &Parts) -> Result<(), Stop> {
        let bytes = change.iter().map(|(key, value)| {
            part_bytes(key.len(), value.as_ref().map_or(0, Vec::len), false, 0)
        });
        let bytes = bytes.sum();
        let mut tries = 0;
        loop {
            for (key, _) in change {
                self.warm(key)?;
            }
            match self
                .store
                .room_for(penstock_storage::log::Purpose::Grow, bytes)
            {
                Room::Yes => break,
                Room::Full => self.noticed += 1,
                Room::Wait => {}
            }
            tries += 1;
            if tries > 100 {
                return Err(Stop::Wrong("there is never room".into()));
            }
            self.pump();
            if !self.device.under_way().is_empty() {
                self.end_one(0)?;
            }
        }
        let mut cells = Vec::new();
        for (key, value) in change {
            let mut id = match self.store.keys().find(SLOT, hash(key), key) {
                Found::Cached(id) => id,
                Found::Absent => self.store.keys_mut().insert(
                    KeyHome::new(SLOT, hash(key)),
                    key,
                    KindedValue::NONE,
                    None,
                ),
                Found::Cold(_) => return Err(Stop::Wrong("a warm key went cold".into())),
            };
            match value {
                Some(value) => {
                    id = self.store.keys_mut().set_value(
                        home_of(key),
                        id,
                        KindedValue::plain(value),
                        None,
                    );
                    self.model.insert(key.clone(), value.clone());
                }
                None => {
                    self.store.keys_mut().mark_deleted(home_of(key), id);
                    self.model.remove(key);
                }
            }
            cells.push((hash(key), id));
        }
        let (lsn, _) = self.store.commit(self.now_us, SLOT, &cells);
        self.store.log_mut().want_durable(lsn);
        self.appended.push(Record {
            epoch: EPOCH,
            parts: change.clone(),
        });
        Ok(())
    }

    fn check(&mut self, number: usize) -> Result<(), Stop> {
        self.store.settle(&home_of);
        let key = filled(number, 0).remove(0).0;
        let found = self.warm(&key)?;
        let value = found.map(|id| self.store.keys().cell(id).value().to_vec());
        if value.as_ref() == self.model.get(&key) {
            Ok(())
        } else {
            Err(Stop::Wrong(format!("a wrong value of key {number}")))
        }
    }

    /// The cell of a key, read if it is cold; after a read that fails, once more.
    fn warm(&mut self, key: &[u8]) -> Result<Option<CellId>, Stop> {
        for _ in 0..10 {
            let place = match self.store.keys().find(SLOT, hash(key), key) {
                Found::Cached(id) => {
                    return Ok((!self.store.keys().cell(id).is_deleted()).then_some(id));
                }
                Found::Absent => return Ok(None),
                Found::Cold(place) => place,
            };
            let read = self.store.read(IoToken::new(Asker::Operation, 1), place);
            self.requests.push(read.expect("the heap has blocks"));
            self.submit();
            let completion = self.end(self.device.under_way().len() - 1, Some(place));
            let block = completion.block.expect("a read has a block");
            let admitted = match completion.result {
                Ok(()) => self
                    .store
                    .data_mut()
                    .admit(KeyHome::new(SLOT, hash(key)), place, block.bytes(), home_of)
                    .is_ok(),
                Err(_) => false,
            };
            self.noticed += usize::from(!admitted);
        }
        Err(Stop::Wrong("a cold key never becomes warm".into()))
    }

    fn pump(&mut self) {
        while self.store.log().spares_wanted() > 0 {
            self.asked.push(Asked::Spare);
            let is_refused = self.failing == Some((self.asked.len() - 1, Failure::NoSpare));
            if is_refused {
                self.noticed += 1;
                self.store.log_mut().spare_refused();
                break;
            }
            let bytes = self.shape.segment_bytes;
            let (file, salt) = (self.device.image.create(bytes), self.salts.next());
            self.store.log_mut().add_spare(file, salt, bytes as u64);
        }
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        self.submit();
    }

    fn submit(&mut self) {
        for request in &self.requests {
            let (asked, token) = match request {
                Io::Write { token, .. } => (Asked::Write, token),
                Io::Sync { token, .. } => (Asked::Sync, token),
                Io::Read { token, .. } => (Asked::Read, token),
            };
            if let Some((number, failure)) = self.failing
                && number == self.asked.len()
            {
                self.doomed = Some((*token, failure));
            }
            self.asked.push(asked);
        }
        self.device.submit(&mut self.requests);
    }

    /// Ends the request at `index`, or the oldest, as it is to end.
    fn end_one(&mut self, index: usize) -> Result<(), Stop> {
        let index = index.min(self.device.under_way().len().saturating_sub(1));
        if self.device.under_way().is_empty() {
            return Ok(());
        }
        let completion = self.end(index, None);
        let ended = self.store.log_mut().completed(self.now_us, completion);
        self.store.settle(&home_of);
        ended.map_err(Stop::Poisoned)
    }

    fn end(&mut self, index: usize, place: Option<Place>) -> Completion<HeapBlock> {
        let (Io::Write { token, .. } | Io::Sync { token, .. } | Io::Read { token, .. }) =
            self.device.under_way()[index];
        let Some((_, failure)) = self.doomed.take_if(|(doomed, _)| *doomed == token) else {
            return self.device.complete(index);
        };
        match failure {
            Failure::Device { sectors } => self.device.fail(index, IoFailure::Device(EIO), sectors),
            Failure::Short { sectors } => {
                let moved = u32::try_from(sectors * 512).expect("few sectors");
                self.device.fail(index, IoFailure::Short { moved }, sectors)
            }
            Failure::Read => self.device.fail(index, IoFailure::Device(EIO), 0),
            Failure::Flipped { .. } | Failure::Zeros | Failure::Elsewhere => {
                let mut completion = self.device.complete(index);
                let place = place.expect("only reads bring wrong bytes");
                let block = completion.block.as_mut().expect("a read has a block");
                match failure {
                    Failure::Flipped { bit } => block.bytes_mut()[bit / 8] ^= 1 << (bit % 8),
                    Failure::Zeros => block.bytes_mut().fill(0),
                    _ => {
                        let len = block.bytes().len();
                        let bytes = &self.device.image.files[&place.file];
                        block.bytes_mut().copy_from_slice(&bytes[4096..4096 + len]);
                    }
                }
                completion
            }
            Failure::NoSpare => unreachable!("a spare is no request to the disk"),
        }
    }

    /// Everything ends, then the log writes its mark.
    fn rest(&mut self) -> Result<(), Stop> {
        for _ in 0..2 {
            for _ in 0..1_000 {
                self.pump();
                if self.device.under_way().is_empty() {
                    break;
                }
                self.end_one(0)?;
            }
            self.now_us += 10_000;
        }
        Ok(())
    }

    fn acked(&self) -> usize {
        usize::try_from(self.store.log().durable().0).expect("few records")
    }

    /// All that was appended is acknowledged and found, and proven by a mark.
    fn ends_well(&mut self) -> Result<(), String> {
        if self.acked() != self.appended.len() {
            return Err(format!(
                "{} of {} records are acknowledged",
                self.acked(),
                self.appended.len()
            ));
        }
        self.is_found_after_a_power_cut()
    }

    /// Whatever ends well now, nothing more is acknowledged and nothing more goes to the disk.
    fn stays_poisoned(&mut self, poisoned: Poisoned) -> Result<(), String> {
        let acked = self.acked();
        while !self.device.under_way().is_empty() {
            let completion = self.device.complete(0);
            let ended = self.store.log_mut().completed(self.now_us, completion);
            if ended != Err(poisoned) {
                return Err(format!("after the poison a write ended as {ended:?}"));
            }
        }
        self.now_us += 1_000_000;
        self.store.log_mut().pump(self.now_us, &mut self.requests);
        if !self.requests.is_empty() || self.acked() != acked {
            return Err(format!(
                "after the poison {} requests, {acked} and then {} acknowledged",
                self.requests.len(),
                self.acked()
            ));
        }
        Ok(())
    }

    /// Of what is not flushed nothing, all or some remains; the acknowledged is there, and a new
    /// life goes on from it without a trouble.
    fn is_found_after_a_power_cut(&self) -> Result<(), String> {
        let mut random = Random::new(self.asked.len() as u64);
        for subset in 0..8 {
            let mut image = self.device.image.clone();
            for mut sector in self.device.unflushed() {
                if subset == 1 || subset > 1 && random.once_in(2) {
                    sector.toggle(&mut image);
                }
            }
            let found = match start(&mut image, &self.appended) {
                Ok(found) => found,
                Err(NoStart::Wrong(wrong)) => return Err(wrong),
                Err(NoStart::Refused(error)) => return Err(format!("not served: {error}")),
            };
            if found.records < self.acked() {
                return Err(format!(
                    "{} records were acknowledged, {} are there",
                    self.acked(),
                    found.records
                ));
            }
            found
                .actions
                .iter()
                .for_each(|action| action.apply(&mut image));
            let mut life = Life::after(self.shape, image, &found, self.appended.clone());
            for number in 0..3 {
                life.put(&filled(number, 900));
            }
            life.close();
            match start(&mut life.device.image, &life.appended) {
                Ok(again) if again.records == life.appended.len() && again.torn.is_none() => {}
                again => return Err(format!("after a clean life: {again:?}")),
            }
            if self.device.unflushed().is_empty() {
                break;
            }
        }
        Ok(())
    }
}

/// A source with one read that fails or brings a flipped bit.
struct Flaky {
    image: Image,
    reads_left: usize,
    bit: Option<usize>,
    has_failed: bool,
}

impl SegmentSource for Flaky {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        self.image.files()
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let read = self.image.read_at(file, offset, into)?;
        let is_this = self.reads_left == 0 && !self.has_failed;
        self.reads_left = self.reads_left.saturating_sub(1);
        if is_this {
            self.has_failed = true;
            match self.bit {
                None => return Err(io::Error::from_raw_os_error(EIO)),
                Some(bit) => into[bit / 8 % read.max(1)] ^= 1 << (bit % 8),
            }
        }
        Ok(read)
    }
}

/// Each read of a start fails, and then each brings a flipped bit: the log ends in a mark, so
/// nothing is left out in silence, and the next start, which reads well, finds all.
fn fail_reads_of_a_start(sync: SyncMethod, tally: &mut Tally) {
    let mut shop = Shop::new(sync, None);
    shop.trade(20).expect("nothing fails");
    let image = &shop.device.image;
    let all = shop.appended.len();
    let mut random = Random::new(11);
    for number in 0..1_000 {
        let bits = (0..20).map(|_| Some(random.below(8 * 32 * 4096)));
        let mut was_reached = false;
        for bit in std::iter::once(None).chain(bits) {
            let mut source = Flaky {
                image: image.clone(),
                reads_left: number,
                bit,
                has_failed: false,
            };
            let found = start(&mut source, &shop.appended);
            was_reached |= source.has_failed;
            if !source.has_failed {
                continue;
            }
            tally.add(match found {
                Err(NoStart::Refused(RecoveryError::Read { file, .. }))
                    if bit.is_none() && file.is_some() =>
                {
                    Ok(Met::Refused)
                }
                Err(NoStart::Refused(RecoveryError::Corrupt(_))) if bit.is_some() => {
                    Ok(Met::Refused)
                }
                Ok(found) if found.records == all && bit.is_some() => Ok(match found.torn {
                    Some(_) => Met::Reported,
                    None => Met::Unharmed,
                }),
                found => Err(format!("read {number} of a start, {bit:?}: {found:?}")),
            });
        }
        if !was_reached {
            return;
        }
    }
    tally.add(Err("a start reads without end".into()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_of_any_request_acknowledges_what_is_lost_or_shows_what_is_wrong() {
        let tally = walk(crate::effort());
        assert_eq!(tally.first_wrong, None);
        assert!(tally.refused > 500, "{tally:?}");
    }
}
