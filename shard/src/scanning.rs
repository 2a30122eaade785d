//! Scans under way: steps that wait for their turn, and steps that wait for the reads of cold keys.
//!
//! A step looks at the index twice. The first look finds which cold keys need a read, of their part
//! or of the block of a key table that tells of them; once all of it is read, the second one
//! answers, at one instant, from what the index says then: what was read counts only if it is of
//! the newest part of its key. Nothing that a scan reads goes to the cache.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use penstock_net::request::Version;
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;
use penstock_storage::io::{Asker, BLOCK_BYTES, IoToken};
use penstock_storage::key_home::KeyHome;
use penstock_storage::key_table::{KeyTable, TableBlock};
use penstock_storage::packed_place::PackedPlace;
use penstock_storage::place::FileId;
use penstock_storage::place::Place;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::record::{PartView, ValueKind};
use penstock_storage::store::aligned_span;
use penstock_storage::version::SLOTS;

use crate::requests::parking::Parked;

/// Steps that wait at a time, at most; each may hold two pages of what it read.
pub(crate) const SCANS_MAX: usize = 16;
/// Steps that are run in one turn, at most.
pub(crate) const STEPS_A_TURN_MAX: usize = 2;
/// Index entries that a step looks at, at most, but for those of one hash.
pub(crate) const ENTRIES_A_STEP_MAX: usize = 512;
/// Tokens that a step passes besides, at most: each costs a look at its entry alone.
pub(crate) const TOKENS_A_STEP_MAX: usize = 8 * ENTRIES_A_STEP_MAX;
/// Reads that a step asks for at a time, at most, but for those of one hash.
pub(crate) const READS_A_STEP_MAX: usize = 16;
/// Bytes of those reads, at most, but for the first; with values, what the page has room for.
pub(crate) const READ_BYTES_A_STEP_MAX: usize = 256 << 10;
/// Blocks of key tables that a step asks for at a time, at most, but for those of one hash.
pub(crate) const BLOCKS_A_STEP_MAX: usize = 32;
/// Reads for scans that are at the disk at a time, at most.
const READS_UNDER_WAY_MAX: usize = 16;
/// How often a step reads what has moved meanwhile before it answers without it.
pub(crate) const ROUNDS_MAX: u8 = 4;

/// One step of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) parked: Parked,
    /// Rounds of reads so far.
    pub(crate) rounds: u8,
    parts: Vec<Known>,
    /// Blocks of key tables that it waited for: others may push them out of what all scans share.
    blocks: Vec<(FileId, u32, Arc<TableBlock>)>,
    missing: usize,
}

/// What a step needs to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The part of a cold key.
    Part(KeyHome, PackedPlace),
    /// A block of a segment's key table.
    Block(FileId, u32),
}

/// A cold key that was read.
#[derive(Debug)]
struct Known {
    at: KeyHome,
    packed: PackedPlace,
    /// `None` while the read is under way.
    read: Option<Result<ColdKey, Unread>>,
}

/// What a scan keeps of a part.
#[derive(Debug)]
pub(crate) struct ColdKey {
    pub(crate) key: Box<[u8]>,
    /// `None` if it was not asked for, is too long for a page or has members.
    pub(crate) value: Option<Box<[u8]>>,
    /// The number of the type of its members; 0 of a plain value.
    pub(crate) type_number: u8,
    pub(crate) version: Version,
    pub(crate) expiry_ms: Option<u64>,
}

/// Why a cold key could not be read.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) status: Status,
    pub(crate) message: String,
}

impl ColdKey {
    /// What the step that `request` asks for needs of a part.
    pub(crate) fn of(part: &PartView<'_>, request: &ScanRequest<'_>) -> ColdKey {
        let has_value = request.wants_values
            && part.value_kind() == ValueKind::Plain
            && part.value().len() <= request.bytes_max as usize;
        ColdKey {
            key: part.key().into(),
            value: has_value.then(|| part.value().into()),
            type_number: part.kinded_value().type_number(),
            version: Version {
                epoch: part.epoch(),
                sequence: part.sequence(),
            },
            expiry_ms: part.expiry_ms(),
        }
    }
}

impl Scan {
    pub(crate) fn new(parked: Parked) -> Self {
        Scan {
            parked,
            rounds: 0,
            parts: Vec::new(),
            blocks: Vec::new(),
            missing: 0,
        }
    }

    /// A block of a segment's key table that it waited for.
    pub(crate) fn block(&self, file: FileId, block: u32) -> Option<&TableBlock> {
        let mut blocks = self.blocks.iter();
        let found = blocks.find(|(of, number, _)| (*of, *number) == (file, block));
        found.map(|(_, _, block)| block.as_ref())
    }

    /// What was read of the key that the index has there now; `None` if it needs a read.
    pub(crate) fn known(
        &self,
        at: KeyHome,
        packed: PackedPlace,
    ) -> Option<&Result<ColdKey, Unread>> {
        self.parts
            .iter()
            .find(|known| known.at == at && known.packed == packed)
            .and_then(|known| known.read.as_ref())
    }
}

/// A read for a scan.
#[derive(Debug)]
pub(crate) enum Reading {
    /// A read of a part.
    Part(ScanRead),
    /// A read of a block of a key table.
    Block(BlockRead),
}

/// A read of a block of a segment's key table.
#[derive(Debug)]
pub(crate) struct BlockRead {
    scan: u64,
    pub(crate) file: FileId,
    pub(crate) block: u32,
}

/// A read of a part.
#[derive(Debug)]
pub(crate) struct ScanRead {
    scan: u64,
    pub(crate) at: KeyHome,
    pub(crate) packed: PackedPlace,
    /// The blocks that a second attempt has brought so far.
    again: Option<Vec<u8>>,
}

impl ScanRead {
    pub(crate) fn place(&self) -> Place {
        self.packed.place().expect("a cold key has a place")
    }

    /// Bytes that a second attempt has, or `None` in the first.
    pub(crate) fn brought(&self) -> Option<usize> {
        self.again.as_ref().map(Vec::len)
    }

    /// Takes in what was read; all of it, unless more is to be read.
    pub(crate) fn take_in<'a>(&mut self, bytes: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let place = self.place();
        match &mut self.again {
            None => Some(Cow::Borrowed(bytes)),
            Some(again) => {
                again.extend_from_slice(&bytes[..BLOCK_BYTES.min(bytes.len())]);
                let (_, len) = aligned_span(place);
                let is_last = again.len() >= len as usize
                    || bytes.len() < BLOCK_BYTES
                    || is_planted(Bug::ReadOneBlockAgain);
                is_last.then(|| Cow::Owned(std::mem::take(again)))
            }
        }
    }
}

impl Reading {
    fn scan(&self) -> u64 {
        match self {
            Reading::Part(read) => read.scan,
            Reading::Block(read) => read.scan,
        }
    }

    fn place(&self) -> Place {
        match self {
            Reading::Part(read) => read.place(),
            Reading::Block(read) => {
                let offset = KeyTable::offset_of(read.block);
                Place::new(read.file.key_table(), offset, BLOCK_BYTES)
            }
        }
    }

    fn brought(&self) -> Option<usize> {
        match self {
            Reading::Part(read) => read.brought(),
            Reading::Block(_) => None,
        }
    }
}

/// All scans of a shard.
#[derive(Debug, Default)]
pub(crate) struct Scanning {
    ready: VecDeque<Scan>,
    waiting: HashMap<u64, Scan>,
    unissued: VecDeque<(IoToken, Reading)>,
    under_way: HashMap<IoToken, Reading>,
    last_number: u64,
}

impl Scanning {
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.waiting.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= SCANS_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a step waits for nothing but its turn.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether a read waits for a block.
    pub(crate) fn has_unissued(&self) -> bool {
        !self.unissued.is_empty()
    }

    /// Whether a read of this segment's file is under way or waits.
    pub(crate) fn reads_file(&self, file: FileId) -> bool {
        let unissued = self.unissued.iter().map(|(_, read)| read);
        let mut all = self.under_way.values().chain(unissued);
        all.any(|read| read.place().file == file)
    }

    /// A step waits for its turn.
    pub(crate) fn begin(&mut self, parked: Parked) {
        self.ready.push_back(Scan::new(parked));
    }

    pub(crate) fn next_ready(&mut self) -> Option<Scan> {
        self.ready.pop_front()
    }

    /// A step waits for these reads.
    pub(crate) fn wait(&mut self, mut scan: Scan, wanted: &[Wanted]) {
        let number = self.last_number + 1;
        scan.rounds += 1;
        scan.missing = wanted.len();
        for &wanted in wanted {
            self.last_number += 1;
            let token = IoToken::new(Asker::Scan, self.last_number);
            let read = match wanted {
                Wanted::Part(at, packed) => {
                    scan.parts.push(Known {
                        at,
                        packed,
                        read: None,
                    });
                    Reading::Part(ScanRead {
                        scan: number,
                        at,
                        packed,
                        again: None,
                    })
                }
                Wanted::Block(file, block) => Reading::Block(BlockRead {
                    scan: number,
                    file,
                    block,
                }),
            };
            self.unissued.push_back((token, read));
        }
        self.waiting.insert(number, scan);
    }

    /// The next read to emit, and the bytes that a second attempt has; told by [`Scanning::issued`]
    /// if it was.
    pub(crate) fn next_read(&self) -> Option<(IoToken, Place, Option<usize>)> {
        if self.under_way.len() >= READS_UNDER_WAY_MAX {
            return None;
        }
        let (token, read) = self.unissued.front()?;
        Some((*token, read.place(), read.brought()))
    }

    /// The read that was told last is at the disk.
    pub(crate) fn issued(&mut self) {
        let (token, read) = self.unissued.pop_front().expect("it was told");
        self.under_way.insert(token, read);
    }

    /// A read ended: what it was for, and the step that wants it.
    pub(crate) fn finished(&mut self, token: IoToken) -> (Reading, &Scan) {
        let read = self
            .under_way
            .remove(&token)
            .expect("a read completes once");
        let scan = &self.waiting[&read.scan()];
        (read, scan)
    }

    /// Begins the second attempt.
    pub(crate) fn read_again(&mut self, token: IoToken, mut read: ScanRead) {
        assert!(read.again.is_none(), "there is no third attempt");
        read.again = Some(Vec::new());
        self.unissued.push_back((token, Reading::Part(read)));
    }

    /// Goes on with the second attempt.
    pub(crate) fn read_on(&mut self, token: IoToken, read: ScanRead) {
        self.unissued.push_back((token, Reading::Part(read)));
    }

    /// What a read gave; the step goes on when it was the last.
    pub(crate) fn learn(&mut self, read: &ScanRead, result: Result<ColdKey, Unread>) {
        let scan = self.waiting.get_mut(&read.scan).expect("it waits for this");
        let known = scan.parts.iter_mut().find(|known| {
            known.read.is_none() && (known.at, known.packed) == (read.at, read.packed)
        });
        known.expect("it was asked for").read = Some(result);
        self.came(read.scan);
    }

    /// What the read of a block gave, or that its table is of no use.
    pub(crate) fn learn_block(&mut self, read: &BlockRead, block: Option<Arc<TableBlock>>) {
        if let Some(block) = block {
            let scan = self.waiting.get_mut(&read.scan).expect("it waits for this");
            scan.blocks.push((read.file, read.block, block));
        }
        self.came(read.scan);
    }

    /// The key table of this segment is gone: nothing more is read of it.
    pub(crate) fn forget_table(&mut self, file: FileId) {
        let mut scans = Vec::new();
        self.unissued.retain(|(_, read)| match read {
            Reading::Block(read) if read.file == file => {
                scans.push(read.scan);
                false
            }
            _ => true,
        });
        scans.into_iter().for_each(|scan| self.came(scan));
    }

    /// One of the reads that a step waits for has ended; it goes on when that was the last.
    fn came(&mut self, number: u64) {
        let scan = self.waiting.get_mut(&number).expect("it waits for this");
        scan.missing -= 1;
        if scan.missing == 0 {
            let scan = self.waiting.remove(&number).expect("looked at above");
            self.ready.push_back(scan);
        }
    }
}

/// The slot that a step from this cursor begins in, whichever order it is of: the step belongs to
/// the shard of the slot.
#[must_use]
pub fn slot_of_cursor(cursor: u64) -> u16 {
    let [_, _, _, _, low, high, _, _] = cursor.to_le_bytes();
    u16::from_le_bytes([low, high]) & (SLOTS - 1)
}

/// The upper 17 bits of the cursors of shards whose keys are hashed with this secret; odd.
#[must_use]
pub fn cursor_order(hash_seed: u64) -> u64 {
    Order::new(hash_seed).0
}

/// The order in which the shard of this start has its keys: the hash of a key depends on a secret,
/// so a cursor of another secret tells a slot and no place within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order(u64);

const ORDER_SHIFT: u32 = u32::BITS + 14;
const _: () = assert!(SLOTS == 1 << 14);

impl Order {
    pub(crate) fn new(hash_seed: u64) -> Order {
        // Odd, so that no cursor but the end is 0.
        Order(hash_seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> ORDER_SHIFT | 1)
    }

    /// The point on the wire.
    pub(crate) fn encode(self, at: KeyHome) -> u64 {
        self.0 << ORDER_SHIFT | u64::from(at.slot) << u32::BITS | u64::from(at.hash)
    }

    /// Where to go on; with another order from the begin of the slot.
    pub(crate) fn decode(self, cursor: u64) -> KeyHome {
        let [a, b, c, d, ..] = cursor.to_le_bytes();
        let is_known = cursor >> ORDER_SHIFT == self.0;
        KeyHome {
            slot: slot_of_cursor(cursor),
            hash: match is_known {
                true => u32::from_le_bytes([a, b, c, d]),
                false => 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_one_of_another_order_begins_its_slot_again() {
        let (order, other) = (Order::new(1), Order::new(2));
        for slot in [0, 1, 77, SLOTS - 1] {
            for hash in [0, 1, u32::MAX] {
                let at = KeyHome { slot, hash };
                assert_ne!(order.encode(at), 0);
                assert_eq!(order.decode(order.encode(at)), at);
                assert_eq!(order.decode(other.encode(at)), KeyHome::new(slot, 0));
            }
        }
        assert_eq!(order.decode(0), KeyHome::default());
        assert_eq!(order.decode(u64::MAX).slot, SLOTS - 1);
    }
}
