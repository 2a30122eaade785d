//! The values in memory: cells that hold a key, its value, its version and the place of its last
//! change, within a budget of bytes.
//!
//! A cell is edited in place; whoever answers a request copies the bytes out first, or shares them. It is a run of
//! bytes: a head of [`HEAD_BYTES`], the key, the value, and the expiry of a key that has one. Runs of
//! about the same length stand side by side in pages, so a counter of 8 bytes under a key of 16 takes
//! 42 bytes and no heap block; only what is longer than [`SMALL_BYTES_MAX`] has one of its own. A head
//! holds nothing that can be had otherwise: slot and hash follow from the key, the low bits of the
//! sequence stand in the place, epochs are numbers of a short table.
//!
//! Such a block can be shared: whoever answers holds it. Whatever changes the cell meanwhile gives it another
//! block first, so what is held stays as it was. Only the block that the cell has counts as memory of the cache; what
//! else is held is for its holders to count.
//!
//! A cell is young until it has been used again after it came. Two hands go round over all cells, each
//! with a second chance for what was used since: one lets young cells leave while they are half of
//! all or more, the other one the rest. So what is asked for once leaves soon, as with S3-FIFO, but
//! neither hand needs an order of the cells: two bits are all. An entry whose last change is
//! not durable yet never leaves, so a read from disk always finds what it looks for. Pages that have
//! become thin are emptied, a few cells at a time, and given back.
//!
//! `examples/policies.rs` compares in the same memory, hits in per cent of CLOCK (one hand, one bit), SIEVE
//! and S3-FIFO (8 bytes more for each cell) and this: zipf 0.99 over ten times as many keys as cells
//! 72.9, 76.3, 76.7, 76.3; zipf 0.8 46.3, 52.3, 53.0, 52.5; uniform 10.0, 8.4, 8.4, 10.0; zipf 0.99 with
//! scans 59.2, 63.6, 64.0, 63.4; zipf 0.99 over keys that change 71.8, 63.8, 70.4, 71.8.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::format::record::KEY_BYTES_MAX;
use crate::memory::generation::{DURABLE, Generations};
use crate::memory::index::CellId;
use crate::types::packed_place::PackedPlace;
use crate::types::place::Lsn;
use crate::types::version::Version;

/// Bytes of a cell before its key.
pub const HEAD_BYTES: usize = 18;
/// A cell of more bytes has a heap block of its own.
pub const SMALL_BYTES_MAX: usize = 2048;
/// Bytes of an expiry behind the value.
const EXPIRY_BYTES: usize = size_of::<u64>();

/// Bytes of a page of cells, the first ones of their lengths apart. A page and what an allocator keeps before it fill
/// whole pages of the system; an allocator may know the pages by this length, which hardly anything else has.
pub const PAGE_BYTES: usize = (1 << 18) - 64;
/// The first page of a class is smaller: many stores have few cells of most lengths.
const FIRST_PAGE_BYTES: usize = (1 << 14) - 64;
const SLOT_BITS: u32 = 14;
const LARGE_BIT: u32 = 1 << 31;
const PAGES_MAX: usize = 1 << (31 - SLOT_BITS);
/// Budgets beyond this are taken for this: cell numbers have no more bits.
pub const BUDGET_BYTES_MAX: usize = PAGES_MAX / 8 * 7 * PAGE_BYTES;
/// A heap block takes about so many bytes more than a cell has in it, with the count of those who share it.
const HEAP_BLOCK_BYTES: usize = 32;
/// A block that is shared for its value has no more than this share beside it, which nobody would count.
const BESIDE_SHARE_MAX: usize = 16;

const _: () = assert!(PAGE_BYTES / class_bytes(0) <= 1 << SLOT_BITS);
const _: () = assert!(class_bytes(CLASSES - 1) == SMALL_BYTES_MAX);

/// Lengths of cells, which fill them to nine tenths at least, but for the shortest.
const CLASSES: usize = 104;

const fn class_bytes(class: usize) -> usize {
    match class {
        0..=23 => 18 + class * 2,
        24..=39 => 64 + (class - 23) * 4,
        40..=55 => 128 + (class - 39) * 8,
        56..=71 => 256 + (class - 55) * 16,
        72..=87 => 512 + (class - 71) * 32,
        _ => 1024 + (class - 87) * 64,
    }
}

/// The shortest class that holds `bytes`, at most [`SMALL_BYTES_MAX`].
#[inline]
const fn class_of(bytes: usize) -> usize {
    match bytes {
        0..=64 => bytes.saturating_sub(17) / 2,
        65..=128 => (bytes - 65) / 4 + 24,
        129..=256 => (bytes - 129) / 8 + 40,
        257..=512 => (bytes - 257) / 16 + 56,
        513..=1024 => (bytes - 513) / 32 + 72,
        _ => (bytes - 1025) / 64 + 88,
    }
}

/// Bytes of memory that a key of `key_bytes` and a value of `value_bytes` take in the cache.
#[must_use]
pub fn cell_bytes(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    let bytes = HEAD_BYTES + key_bytes + value_bytes + if expires { EXPIRY_BYTES } else { 0 };
    match bytes <= SMALL_BYTES_MAX {
        true => class_bytes(class_of(bytes)),
        false => size_of::<Large>() + bytes - HEAD_BYTES + HEAP_BLOCK_BYTES,
    }
}

/// What a change made of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// Where the change before it stands.
    pub(crate) before: PackedPlace,
    lengths: u32,
}

impl Changed {
    /// Whether the key is deleted.
    #[inline]
    pub(crate) fn is_deleted(self) -> bool {
        self.lengths & DELETED != 0
    }

    /// Whether it has an expiry.
    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.lengths & EXPIRING != 0
    }
}

/// What stands before the key of every cell: the place (8 bytes), the sequence without its low 8 bits
/// and, above it, whether the cell is young (5), the number of the epoch (1), the generation of the last change (1), flags and the length of the
/// key, and of a value in a page (3).
type Head = [u8; HEAD_BYTES];

const PLACE_AT: usize = 0;
const SEQUENCE_AT: usize = 8;
const YOUNG_AT: usize = 12;
const EPOCH_AT: usize = 13;
const GENERATION_AT: usize = 14;
const LENGTHS_AT: usize = 15;
/// Of the 24 bits of the lengths: the value's 11, then those of the key less one, then the flags.
const KEY_SHIFT: u32 = 11;
const EXPIRING: u32 = 1 << 21;
const DELETED: u32 = 1 << 22;
const REFERENCED: u32 = 1 << 23;
/// Of the last byte of the sequence: the cell is young.
const YOUNG: u8 = 1 << 7;
/// Of which a head has the bits.
const SEQUENCE_MAX: u64 = (1 << 47) - 1;
/// A deletion does not expire: a cell that says so is free.
const FREE: u32 = EXPIRING | DELETED;
/// The epoch of a cell whose version stands in [`Cache::versions`].
const EPOCH_ELSEWHERE: u8 = u8::MAX;

const _: () = assert!(SMALL_BYTES_MAX <= 1 << KEY_SHIFT && KEY_BYTES_MAX <= 1 << 10);
const _: () = assert!(LENGTHS_AT == GENERATION_AT + 1 && HEAD_BYTES == LENGTHS_AT + 3);
const _: () = assert!(YOUNG_AT == SEQUENCE_AT + 4);

#[inline]
fn lengths(head: &Head) -> u32 {
    // With the generation before them they are one load.
    u32::from_le_bytes(*head.last_chunk().expect("a head is longer")) >> 8
}

#[inline]
fn set_lengths(head: &mut Head, lengths: u32) {
    let word = lengths << 8 | u32::from(head[GENERATION_AT]);
    *head.last_chunk_mut().expect("a head is longer") = word.to_le_bytes();
}

#[inline]
fn key_len(head: &Head) -> usize {
    (lengths(head) >> KEY_SHIFT & 0x3FF) as usize + 1
}

#[inline]
fn place_in(head: &Head) -> PackedPlace {
    let bytes = head.first_chunk().expect("a head is longer");
    PackedPlace::from_bits(u64::from_le_bytes(*bytes))
}

#[inline]
fn is_free(head: &Head) -> bool {
    lengths(head) & FREE == FREE
}

/// One cached key.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    head: &'a Head,
    value_len: usize,
    /// Key, value, expiry.
    bytes: &'a [u8],
}

impl<'a> Cell<'a> {
    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        &self.bytes[..key_len(self.head)]
    }

    /// The value; empty for a deleted key.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        &self.bytes[key_len(self.head)..][..self.value_len]
    }

    /// Unix milliseconds from which on the key is gone.
    #[inline]
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        if lengths(self.head) & EXPIRING == 0 {
            return None;
        }
        self.bytes[key_len(self.head) + self.value_len..]
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether the key was deleted by a change that may not be durable yet.
    #[inline]
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        lengths(self.head) & DELETED != 0
    }

    /// Whether the cell was used since a hand passed it.
    #[inline]
    #[must_use]
    pub fn is_used(&self) -> bool {
        lengths(self.head) & REFERENCED != 0
    }

    /// Where the last change stands in the log.
    #[inline]
    #[must_use]
    pub fn place(&self) -> PackedPlace {
        place_in(self.head)
    }
}

/// Cells of one length.
#[derive(Debug, Default)]
struct Page {
    bytes: Box<[u8]>,
    class: u8,
    /// Of its class.
    cell_bytes: u16,
    /// The page is in the list of its class.
    has_room: bool,
    /// Cells in use.
    used: u16,
    /// From here on cells were never used.
    fresh: u16,
    /// The first of the free cells before, which are linked; [`NONE`] if there is none.
    free: u16,
}

const NONE: u16 = u16::MAX;

impl Page {
    #[inline]
    fn cell_bytes(&self) -> usize {
        usize::from(self.cell_bytes)
    }

    fn capacity(&self) -> u16 {
        u16::try_from(self.bytes.len() / self.cell_bytes()).expect("few cells")
    }

    fn is_full(&self) -> bool {
        self.free == NONE && self.fresh == self.capacity()
    }

    #[inline]
    fn cell(&self, slot: usize) -> (&Head, &[u8]) {
        let bytes = self.cell_bytes();
        self.bytes[slot * bytes..][..bytes]
            .split_first_chunk()
            .expect("a cell has a head")
    }

    #[inline]
    fn cell_mut(&mut self, slot: usize) -> (&mut Head, &mut [u8]) {
        let bytes = self.cell_bytes();
        self.bytes[slot * bytes..][..bytes]
            .split_first_chunk_mut()
            .expect("a cell has a head")
    }
}

/// A cell with a heap block.
#[derive(Debug)]
struct Large {
    head: Head,
    value_len: u32,
    /// As long as the cell or longer.
    bytes: Arc<[u8]>,
}

impl Large {
    fn new(head: Head, value_len: usize, bytes: Arc<[u8]>) -> Self {
        let value_len = u32::try_from(value_len).expect("values have at most 16 MiB");
        Large {
            head,
            value_len,
            bytes,
        }
    }

    /// Its head and its block, which nobody shares from now on.
    // Apart from the few instructions of the small cells.
    #[inline(never)]
    fn parts_mut(&mut self) -> (&mut Head, &mut [u8]) {
        (&mut self.head, Arc::make_mut(&mut self.bytes))
    }
}

/// A block of `len` bytes that begins with these.
fn new_block(len: usize, begin: &[u8]) -> Arc<[u8]> {
    let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    let bytes = Arc::get_mut(&mut block).expect("nobody else has it");
    bytes[..begin.len()].copy_from_slice(begin);
    block
}

/// The cells of one shard.
#[derive(Debug)]
pub struct Cache {
    pages: Vec<Page>,
    free_pages: Vec<u32>,
    /// Of each class, how many pages there are, and those that have room.
    opened: [u32; CLASSES],
    roomy: Vec<Vec<u32>>,
    large: Vec<Large>,
    free_large: Vec<u32>,
    /// The page that is emptied, and its cells that were not looked at yet.
    thin: Option<(u32, u16)>,
    /// The page that could not be emptied last.
    stuck: Option<u32>,
    /// Turns until a thin page is looked for.
    look_in: u32,
    generations: Generations,
    /// The epoch of this run: number 0.
    own_epoch: Option<u32>,
    /// The epochs of other versions: numbers from 1 on.
    epochs: Vec<u32>,
    /// By cell, versions that fit in no head: of one epoch too many, or of a sequence too great.
    versions: BTreeMap<u32, Version>,
    /// Cells in use, and those of them that are young.
    len: usize,
    young: usize,
    /// Cells of pages that were ever used, their bytes, and the bytes of those in use.
    fresh_cells: usize,
    fresh_bytes: usize,
    page_bytes: usize,
    /// Heap blocks of large cells.
    heap_bytes: usize,
    budget_bytes: usize,
    /// Over the young cells, and over the others.
    hands: [Hand; 2],
    /// Steps of the hands since a cell left, more came, or more was durable.
    vain_steps: usize,
    /// Up to where the log was durable in the last turn.
    durable: Lsn,
}

/// The cell that is looked at next.
#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    /// A page or, beyond all pages, a large cell.
    at: usize,
    slot: u16,
}

/// Bytes of free cells beside a sixteenth of all, above which pages are emptied.
const SPARE_BYTES: usize = 4 * PAGE_BYTES;
/// Cells of a thin page that are looked at in a turn, and of them moved.
const LOOKS_MAX: u32 = 1024;
const MOVES_MAX: u32 = 64;
/// So many times as much when pages hold more than they may.
const TIGHT_TIMES: u32 = 16;
/// One of the hand over young cells, two of the other: what was used leaves in the second.
const VAIN_ROUNDS_MAX: usize = 4;
/// Young cells are one in so many, or more. Fewer keep more of what was used for long, and give way to
/// other keys later.
const YOUNG_SHARE: usize = 2;
/// Turns between two looks for a thin page, and pages of a class that are compared.
const LOOK_TURNS: u32 = 64;
const COMPARED_MAX: usize = 32;

impl Cache {
    /// An empty cache that keeps about `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Cache {
            pages: Vec::new(),
            free_pages: Vec::new(),
            opened: [0; CLASSES],
            roomy: vec![Vec::new(); CLASSES],
            large: Vec::new(),
            free_large: Vec::new(),
            thin: None,
            stuck: None,
            look_in: LOOK_TURNS,
            generations: Generations::new(),
            own_epoch: None,
            epochs: Vec::new(),
            versions: BTreeMap::new(),
            len: 0,
            young: 0,
            fresh_cells: 0,
            fresh_bytes: 0,
            page_bytes: 0,
            heap_bytes: 0,
            budget_bytes: budget_bytes.min(BUDGET_BYTES_MAX),
            hands: [Hand::default(); 2],
            vain_steps: 0,
            durable: Lsn::default(),
        }
    }

    /// Keeps about so many bytes from now on.
    pub fn set_budget(&mut self, budget_bytes: usize) {
        self.budget_bytes = budget_bytes.min(BUDGET_BYTES_MAX);
    }

    /// The epoch of the versions that this run gives out: it always has a number.
    pub(crate) fn set_epoch(&mut self, epoch: u32) {
        assert!(self.own_epoch.is_none(), "a run has one epoch");
        self.own_epoch = Some(epoch);
    }

    // ---- one cell ----

    /// The cell.
    // Each operation looks at several cells: a call costs as much as what it does.
    #[inline(always)]
    #[must_use]
    pub fn cell(&self, id: CellId) -> Cell<'_> {
        if let Some(number) = large_number(id) {
            let large = &self.large[number];
            return Cell {
                head: &large.head,
                value_len: large.value_len as usize,
                bytes: &large.bytes,
            };
        }
        let (page, slot) = page_and_slot(id);
        let (head, bytes) = self.pages[page].cell(slot);
        Cell {
            head,
            value_len: small_value_len(head),
            bytes,
        }
    }

    /// The value, to be edited in place at its length; marks the cell as in use.
    #[inline]
    pub fn value_mut(&mut self, id: CellId) -> &mut [u8] {
        if let Some(number) = large_number(id) {
            let value_len = self.large[number].value_len as usize;
            let (head, bytes) = self.large[number].parts_mut();
            set_flags(head, REFERENCED);
            return &mut bytes[key_len(head)..][..value_len];
        }
        let (page, slot) = page_and_slot(id);
        let (head, bytes) = self.pages[page].cell_mut(slot);
        set_flags(head, REFERENCED);
        &mut bytes[key_len(head)..][..small_value_len(head)]
    }

    /// The value as a part of its block, which whoever answers may hold instead of a copy; `None` if it
    /// stands in a page, or with too much beside it.
    #[must_use]
    pub fn shared_value(&self, id: CellId) -> Option<(&Arc<[u8]>, Range<usize>)> {
        let large = &self.large[large_number(id)?];
        let (from, len) = (key_len(&large.head), large.value_len as usize);
        let beside = large.bytes.len() - len;
        (beside <= len / BESIDE_SHARE_MAX).then(|| (&large.bytes, from..from + len))
    }

    /// Loads the start and the end of the cell: a number that depends on them and means nothing.
    #[inline]
    #[must_use]
    pub(crate) fn load(&self, id: CellId) -> usize {
        if let Some(number) = large_number(id) {
            return self.large[number].value_len as usize;
        }
        let (page, slot) = page_and_slot(id);
        let (head, bytes) = self.pages[page].cell(slot);
        usize::from(head[0]) + bytes.last().map_or(0, |&byte| usize::from(byte))
    }

    /// Loads the start of the heap block of a large cell: likewise.
    #[inline]
    #[must_use]
    pub(crate) fn load_bytes(&self, id: CellId) -> usize {
        large_number(id).map_or(0, |number| usize::from(self.large[number].bytes[0]))
    }

    /// The version of the last change; zero for a cell not logged yet.
    #[inline]
    #[must_use]
    pub fn version(&self, id: CellId) -> Version {
        self.version_in(id, self.cell(id).head)
    }

    #[inline(always)]
    fn version_in(&self, id: CellId, head: &Head) -> Version {
        if head[EPOCH_AT] == EPOCH_ELSEWHERE {
            return self.versions[&id.0];
        }
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| head[SEQUENCE_AT + at]);
        let high = head[YOUNG_AT] & !YOUNG;
        let sequence = [head[PLACE_AT], a, b, c, d, high, 0, 0];
        let epoch = match head[EPOCH_AT] {
            0 => self.own_epoch.unwrap_or_default(),
            number => self.epochs[usize::from(number) - 1],
        };
        Version {
            epoch,
            sequence: u64::from_le_bytes(sequence),
        }
    }

    /// Up to where the log must be durable before the last change of the cell is.
    #[inline]
    #[must_use]
    pub fn lsn(&self, id: CellId) -> Lsn {
        self.generations.end(self.cell(id).head[GENERATION_AT])
    }

    /// The cell, its version and its position in the log, as [`Cache::version`] and [`Cache::lsn`] tell them.
    #[inline(always)]
    pub(crate) fn look(&self, id: CellId) -> (Cell<'_>, Version, Lsn) {
        let cell = self.cell(id);
        let lsn = self.generations.end(cell.head[GENERATION_AT]);
        (cell, self.version_in(id, cell.head), lsn)
    }

    /// Notes that the cell was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        set_flags(self.head_mut(id), REFERENCED);
    }

    /// Records the last change: its version, where it stands, and its log position if it is not durable.
    #[inline]
    pub(crate) fn set_change(
        &mut self,
        id: CellId,
        version: Version,
        place: PackedPlace,
        lsn: Option<Lsn>,
    ) -> Changed {
        let generation = lsn.map_or(DURABLE, |lsn| self.generations.of_change(lsn));
        let is_elsewhere = version.sequence > SEQUENCE_MAX || !place.is_sequence(version.sequence);
        let epoch = match is_elsewhere {
            true => EPOCH_ELSEWHERE,
            false => self.number_of_epoch(version.epoch),
        };
        let head = self.head_mut(id);
        let was_elsewhere = head[EPOCH_AT] == EPOCH_ELSEWHERE;
        let before = place_in(head);
        // That a key comes is no use of it.
        let used = match before == PackedPlace::default() {
            true => 0,
            false => REFERENCED,
        };
        let lengths = lengths(head);
        let young = head[YOUNG_AT] & YOUNG;
        // Each part is stored as it is loaded: a load across two stores would wait for both.
        let [a, b, c, d, high, ..] = (version.sequence >> 8).to_le_bytes();
        head[PLACE_AT..SEQUENCE_AT].copy_from_slice(&place.bits().to_le_bytes());
        head[SEQUENCE_AT..YOUNG_AT].copy_from_slice(&[a, b, c, d]);
        head[YOUNG_AT] = young | high & !YOUNG;
        head[EPOCH_AT] = epoch;
        let word = (lengths & !REFERENCED | used) << 8 | u32::from(generation);
        head[GENERATION_AT..].copy_from_slice(&word.to_le_bytes());
        if epoch == EPOCH_ELSEWHERE {
            self.versions.insert(id.0, version);
        } else if was_elsewhere {
            self.versions.remove(&id.0);
        }
        Changed { before, lengths }
    }

    /// Takes back that a young cell was used: what brought it does not count.
    pub(crate) fn forget_use(&mut self, id: CellId) {
        let head = self.head_mut(id);
        if head[YOUNG_AT] & YOUNG != 0 {
            set_lengths(head, lengths(head) & !REFERENCED);
        }
    }

    /// Records where the last change stands now; the key is not in use for that.
    pub(crate) fn set_place(&mut self, id: CellId, place: PackedPlace) {
        self.head_mut(id)[PLACE_AT..SEQUENCE_AT].copy_from_slice(&place.bits().to_le_bytes());
    }

    /// A new cell with this key, value and expiry and no version yet.
    pub fn insert(&mut self, key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> CellId {
        let key_bits = u32::try_from(key.len() - 1).expect("keys have at most 1 KiB");
        assert!(
            key_bits < 1 << 10 && u32::try_from(value.len()).is_ok(),
            "keys have 1 to 1024 bytes, and values at most 16 MiB"
        );
        let expiry = expiry_ms.map(u64::to_le_bytes);
        let expiry = expiry.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        let len = key.len() + value.len() + expiry.len();
        let mut head = [0; HEAD_BYTES];
        set_lengths(&mut head, key_bits << KEY_SHIFT);
        head[YOUNG_AT] = YOUNG;
        self.young += 1;
        if expiry_ms.is_some() {
            set_flags(&mut head, EXPIRING);
        }
        self.len += 1;
        self.vain_steps = 0;
        if HEAD_BYTES + len > SMALL_BYTES_MAX {
            let mut large = Large::new(head, value.len(), new_block(len, key));
            put(&mut large.parts_mut().1[key.len()..], value, expiry_ms);
            return self.insert_large(large);
        }
        set_small_value_len(&mut head, value.len());
        let id = self.place_for(class_of(HEAD_BYTES + len));
        let (page, slot) = page_and_slot(id);
        let (cell_head, bytes) = self.pages[page].cell_mut(slot);
        *cell_head = head;
        bytes[..key.len()].copy_from_slice(key);
        bytes[key.len()..][..value.len()].copy_from_slice(value);
        bytes[key.len() + value.len()..][..expiry.len()].copy_from_slice(expiry);
        id
    }

    /// Gives the cell another value and expiry; a deleted key lives again. The cell may have to
    /// become another one, which is the answer: the index is to be told.
    pub fn set_value(&mut self, id: CellId, value: &[u8], expiry_ms: Option<u64>) -> CellId {
        let cell = self.cell(id);
        let (key_len, held) = (key_len(cell.head), HEAD_BYTES + cell.bytes.len());
        let len = key_len + value.len() + expiry_ms.map_or(0, |_| EXPIRY_BYTES);
        let needed = HEAD_BYTES + len;
        let room = match large_number(id) {
            // A block more than twice too large is given back.
            Some(number) if needed > SMALL_BYTES_MAX => {
                let large = &mut self.large[number];
                let held = large.bytes.len();
                let fits = (len..=2 * len).contains(&held);
                // Of a block that is shared only the key is copied.
                if !fits || Arc::get_mut(&mut large.bytes).is_none() {
                    large.bytes = new_block(len, &large.bytes[..key_len]);
                }
                large.value_len = u32::try_from(value.len()).expect("values have at most 16 MiB");
                self.heap_bytes = self.heap_bytes - held + large.bytes.len();
                true
            }
            Some(_) => false,
            None => needed <= held && held <= 2 * needed,
        };
        if room {
            let (head, bytes) = self.parts_mut(id);
            let flags = REFERENCED | expiry_ms.map_or(0, |_| EXPIRING);
            set_lengths(head, lengths(head) & !FREE | flags);
            if id.0 & LARGE_BIT == 0 {
                set_small_value_len(head, value.len());
            }
            put(&mut bytes[key_len..], value, expiry_ms);
            return id;
        }
        let mut key = [0; KEY_BYTES_MAX];
        let cell = self.cell(id);
        key[..key_len].copy_from_slice(cell.key());
        let head = *cell.head;
        let version = self.versions.remove(&id.0);
        let moved = self.insert(&key[..key_len], value, expiry_ms);
        self.young -= usize::from(head[YOUNG_AT] & YOUNG == 0);
        let moved_head = self.head_mut(moved);
        moved_head[..LENGTHS_AT].copy_from_slice(&head[..LENGTHS_AT]);
        set_flags(moved_head, REFERENCED);
        if let Some(version) = version {
            self.versions.insert(moved.0, version);
        }
        self.remove(id);
        moved
    }

    /// Gives the cell of a live key another expiry and leaves its value. The cell may have to become
    /// another one, as with [`Cache::set_value`].
    pub fn set_expiry(&mut self, id: CellId, expiry_ms: Option<u64>) -> CellId {
        let cell = self.cell(id);
        assert!(!cell.is_deleted(), "only a live key can expire");
        let end = key_len(cell.head) + cell.value_len;
        let Some(expiry_ms) = expiry_ms else {
            let head = self.head_mut(id);
            set_lengths(head, lengths(head) & !EXPIRING);
            return id;
        };
        if let Some(number) = large_number(id) {
            let bytes = &mut self.large[number].bytes;
            let held = bytes.len();
            if held < end + EXPIRY_BYTES {
                *bytes = new_block(end + EXPIRY_BYTES, &bytes[..end]);
            }
            self.heap_bytes = self.heap_bytes - held + bytes.len();
        } else if cell.bytes.len() < end + EXPIRY_BYTES {
            let value = cell.value().to_vec();
            return self.set_value(id, &value, Some(expiry_ms));
        }
        let (head, bytes) = self.parts_mut(id);
        set_flags(head, EXPIRING);
        put(&mut bytes[end..], &[], Some(expiry_ms));
        id
    }

    /// Marks the key as deleted; the cell stays until [`Cache::remove`], because readers must not
    /// be told of the deletion before it is durable.
    pub fn mark_deleted(&mut self, id: CellId) {
        if let Some(number) = large_number(id) {
            self.large[number].value_len = 0;
        } else {
            set_small_value_len(self.head_mut(id), 0);
        }
        let head = self.head_mut(id);
        set_lengths(head, lengths(head) & !FREE | DELETED | REFERENCED);
    }

    /// Frees the cell.
    pub fn remove(&mut self, id: CellId) {
        let head = self.head_mut(id);
        assert!(!is_free(head), "a cell is freed once");
        let was_young = head[YOUNG_AT] & YOUNG != 0;
        if head[EPOCH_AT] == EPOCH_ELSEWHERE {
            self.versions.remove(&id.0);
        }
        self.len -= 1;
        self.young -= usize::from(was_young);
        self.vain_steps = 0;
        let Some(number) = large_number(id) else {
            return self.free(id);
        };
        let large = &mut self.large[number];
        set_flags(&mut large.head, FREE);
        let bytes = std::mem::take(&mut large.bytes);
        self.heap_bytes -= bytes.len() + HEAP_BLOCK_BYTES;
        self.free_large.push(id.0 & !LARGE_BIT);
    }

    // ---- all cells ----

    /// Bytes of the cells in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let large = self.large.len() - self.free_large.len();
        self.page_bytes + self.heap_bytes + large * size_of::<Large>()
    }

    /// Bytes of memory that the cache takes, unused room included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.fresh_bytes
            + self.heap_bytes
            + self.pages.capacity() * size_of::<Page>()
            + self.large.capacity() * size_of::<Large>()
            + self.free_large.capacity() * size_of::<u32>()
            + self.versions.len() * 2 * size_of::<(u32, Version)>()
    }

    /// Steps of a hand in one round.
    #[must_use]
    pub fn round(&self) -> usize {
        self.fresh_cells + self.pages.len() + self.large.len() + 1
    }

    /// Cells in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no cell is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether cells should leave before more come.
    #[inline]
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.used_bytes() > self.budget_bytes
    }

    /// Whether the hands may find more that leaves: they have not passed everything in vain.
    #[must_use]
    pub fn may_shrink(&self) -> bool {
        self.vain_steps <= VAIN_ROUNDS_MAX * self.round()
    }

    /// Moves a hand to a cell that may leave: live, durable up to `durable`, not used since it came or a
    /// hand last passed; or one that has expired by `now_ms`, however young and used it is. Every cell that is
    /// passed is one of `steps`; `None` when they are used up.
    pub fn victim(&mut self, durable: Lsn, now_ms: u64, steps: &mut usize) -> Option<CellId> {
        while *steps > 0 && self.len > 0 {
            *steps -= 1;
            self.vain_steps += 1;
            let of_young = self.young * YOUNG_SHARE >= self.len;
            let Some(id) = self.advance(usize::from(of_young)) else {
                continue;
            };
            let is_young = self.head_mut(id)[YOUNG_AT] & YOUNG != 0;
            let is_expired = self.has_expired(id, now_ms);
            if (is_young != of_young && !is_expired) || !self.may_leave(id, durable) {
                continue;
            }
            if is_expired {
                return Some(id);
            }
            let head = self.head_mut(id);
            let flags = lengths(head);
            head[GENERATION_AT] = DURABLE;
            if flags & REFERENCED != 0 {
                set_lengths(head, flags & !REFERENCED);
                head[YOUNG_AT] &= !YOUNG;
                self.young -= usize::from(is_young);
                continue;
            }
            return Some(id);
        }
        None
    }

    /// Whether nobody finds the key of a cell any more, because its time has passed.
    fn has_expired(&mut self, id: CellId, now_ms: u64) -> bool {
        lengths(self.head_mut(id)) & FREE == EXPIRING
            && self.cell(id).expiry_ms().is_some_and(|ms| ms <= now_ms)
    }

    /// The next cell of the round of a hand, or `None` between two pages.
    fn advance(&mut self, hand: usize) -> Option<CellId> {
        let hand = &mut self.hands[hand];
        if let Some(page) = self.pages.get(hand.at) {
            if hand.slot < page.fresh {
                let slot = hand.slot;
                hand.slot += 1;
                return Some(small_id(hand.at, slot));
            }
            *hand = Hand {
                at: hand.at + 1,
                slot: 0,
            };
            return None;
        }
        let number = hand.at - self.pages.len();
        if number < self.large.len() {
            hand.at += 1;
            return Some(large_id(number));
        }
        *hand = Hand::default();
        None
    }

    /// Bytes of memory that cells take, those included that are free in pages.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.used_bytes() + self.fresh_bytes - self.page_bytes
    }

    /// Bytes of what leads to the cells: it does not shrink when they leave.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.memory_bytes() - self.fresh_bytes - self.heap_bytes
    }

    /// Once in each turn: learns what is durable and, if too much of the pages is free, moves some
    /// cells out of a thin one. `leaves` is told of each, old number and new, so that the index can
    /// follow.
    ///
    /// While more than `held_bytes_max` are held, many are moved, and those that no other page has room
    /// for leave the cache, if they may: they get no new number, and `leaves` tells whether they may.
    pub fn settle(
        &mut self,
        durable: Lsn,
        held_bytes_max: usize,
        mut leaves: impl FnMut(&Cache, CellId, Option<CellId>) -> bool,
    ) {
        self.generations.settle(durable);
        if std::mem::replace(&mut self.durable, durable) != durable {
            self.vain_steps = 0;
        }
        let is_tight = self.held_bytes() > held_bytes_max;
        let (mut looks, mut moves) = match is_tight {
            true => (LOOKS_MAX * TIGHT_TIMES, MOVES_MAX * TIGHT_TIMES),
            false => (LOOKS_MAX, MOVES_MAX),
        };
        if self.thin.is_none() && !is_tight {
            self.look_in -= 1;
            if self.look_in > 0 {
                return;
            }
            self.look_in = LOOK_TURNS;
            if self.fresh_bytes - self.page_bytes <= SPARE_BYTES + self.fresh_bytes / 16 {
                return;
            }
            self.thin = self.begin_thin(false);
        }
        while looks > 0 && moves > 0 {
            if self.thin.is_none() && self.held_bytes() > held_bytes_max {
                self.thin = self.begin_thin(true);
            }
            let Some((number, left)) = self.thin else {
                return;
            };
            // The last cell that leaves, or is freed otherwise, gives the page back.
            let Some(slot) = left.checked_sub(1) else {
                // Some may not leave before more is durable.
                self.reopen(number);
                return;
            };
            self.thin = Some((number, slot));
            looks -= 1;
            let from = small_id(number as usize, slot);
            if is_free(self.head_mut(from)) {
                continue;
            }
            moves -= 1;
            let class = usize::from(self.pages[number as usize].class);
            if !is_tight || !self.roomy[class].is_empty() {
                let to = self.relocate(from);
                leaves(self, from, Some(to));
            } else if self.may_leave(from, durable) && leaves(self, from, None) {
                self.remove(from);
            }
        }
    }

    /// A page to be emptied, and its cells that were not looked at yet. `of_all` are those too whose
    /// cells find no room elsewhere.
    fn begin_thin(&mut self, of_all: bool) -> Option<(u32, u16)> {
        let number = self.thinnest(of_all)?;
        self.stuck = None;
        self.close(number);
        Some((number, self.pages[number as usize].fresh))
    }

    /// Goes on with a page that could not be emptied; another one is to be tried before it.
    fn reopen(&mut self, number: u32) {
        self.thin = None;
        self.stuck = Some(number);
        let page = &mut self.pages[number as usize];
        self.vain_steps += usize::from(page.fresh);
        if !page.is_full() {
            page.has_room = true;
            self.roomy[usize::from(page.class)].push(number);
        }
    }

    /// Whether a cell holds what can be read from the disk.
    fn may_leave(&mut self, id: CellId, durable: Lsn) -> bool {
        let end = self.lsn(id);
        let head = self.head_mut(id);
        lengths(head) & DELETED == 0 && end <= durable && head[..SEQUENCE_AT] != [0; SEQUENCE_AT]
    }

    // ---- pages ----

    /// Makes another cell of a page hold what this one holds, and frees it.
    fn relocate(&mut self, from: CellId) -> CellId {
        let (page, slot) = page_and_slot(from);
        self.vain_steps = 0;
        let class = usize::from(self.pages[page].class);
        let bytes = class_bytes(class);
        let to = self.place_for(class);
        let (to_page, to_slot) = page_and_slot(to);
        let [source, target] = self
            .pages
            .get_disjoint_mut([page, to_page])
            .expect("no cell is moved within its page");
        target.bytes[to_slot * bytes..][..bytes]
            .copy_from_slice(&source.bytes[slot * bytes..][..bytes]);
        if let Some(version) = self.versions.remove(&from.0) {
            self.versions.insert(to.0, version);
        }
        self.free(from);
        to
    }

    /// Takes a cell of a class; what it holds is old.
    fn place_for(&mut self, class: usize) -> CellId {
        let number = match self.roomy[class].last() {
            Some(&number) => number,
            None => self.open(class),
        };
        let page = &mut self.pages[number as usize];
        page.used += 1;
        let slot = if page.free == NONE {
            page.fresh += 1;
            self.fresh_cells += 1;
            self.fresh_bytes += class_bytes(class);
            page.fresh - 1
        } else {
            let slot = page.free;
            let (head, _) = page.cell(usize::from(slot));
            page.free = u16::from_le_bytes([head[0], head[1]]);
            slot
        };
        if page.is_full() {
            page.has_room = false;
            self.roomy[class].pop();
        }
        self.page_bytes += class_bytes(class);
        small_id(number as usize, slot)
    }

    /// Gives a cell back to its page, and a page without cells to the system.
    fn free(&mut self, id: CellId) {
        let (number, slot) = page_and_slot(id);
        let page = &mut self.pages[number];
        let next = page.free.to_le_bytes();
        let (head, _) = page.cell_mut(slot);
        set_flags(head, FREE);
        head[..2].copy_from_slice(&next);
        page.free = u16::try_from(slot).expect("14 bits");
        page.used -= 1;
        self.page_bytes -= page.cell_bytes();
        let is_empty = page.used == 0;
        let number = u32::try_from(number).expect("17 bits");
        let is_thin = self.thin.is_some_and(|(thin, _)| thin == number);
        if is_empty {
            self.close(number);
            let page = std::mem::take(&mut self.pages[number as usize]);
            self.fresh_cells -= usize::from(page.fresh);
            self.fresh_bytes -= usize::from(page.fresh) * page.cell_bytes();
            self.opened[usize::from(page.class)] -= 1;
            self.free_pages.push(number);
            if is_thin {
                self.thin = None;
            }
        } else if !page.has_room && !is_thin {
            page.has_room = true;
            self.roomy[usize::from(page.class)].push(number);
        }
    }

    /// A new page for a class.
    fn open(&mut self, class: usize) -> u32 {
        let number = self.free_pages.pop().unwrap_or_else(|| {
            assert!(self.pages.len() < PAGES_MAX, "the budget keeps pages below");
            self.pages.push(Page::default());
            u32::try_from(self.pages.len() - 1).expect("17 bits")
        });
        let bytes = match self.opened[class] {
            0 => FIRST_PAGE_BYTES,
            _ => PAGE_BYTES,
        };
        self.opened[class] += 1;
        self.pages[number as usize] = Page {
            // Zeros of the system: what is not used takes no memory.
            bytes: vec![0; bytes].into_boxed_slice(),
            class: u8::try_from(class).expect("few classes"),
            cell_bytes: u16::try_from(class_bytes(class)).expect("at most 2 KiB"),
            has_room: true,
            free: NONE,
            ..Page::default()
        };
        self.roomy[class].push(number);
        number
    }

    /// Takes no more cells of a page.
    fn close(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        if std::mem::take(&mut page.has_room) {
            let roomy = &mut self.roomy[usize::from(page.class)];
            let at = roomy.iter().position(|&roomy| roomy == number);
            roomy.swap_remove(at.expect("a page that has room is listed"));
        }
    }

    /// The page with the smallest share in use, of those whose cells other pages have room for, or of
    /// all but the one that could not be emptied.
    fn thinnest(&self, of_all: bool) -> Option<u32> {
        let pages = self.roomy.iter().flat_map(|roomy| {
            let compared = &roomy[..roomy.len().min(COMPARED_MAX)];
            let room: usize = compared.iter().map(|&number| self.room(number)).sum();
            compared.iter().copied().filter(move |&number| {
                let used = usize::from(self.pages[number as usize].used);
                (of_all && self.stuck != Some(number)) || room - self.room(number) >= used
            })
        });
        pages.min_by_key(|&number| {
            let page = &self.pages[number as usize];
            usize::from(page.used) * page.cell_bytes()
        })
    }

    fn room(&self, number: u32) -> usize {
        let page = &self.pages[number as usize];
        usize::from(page.capacity() - page.used)
    }

    fn insert_large(&mut self, large: Large) -> CellId {
        self.heap_bytes += large.bytes.len() + HEAP_BLOCK_BYTES;
        match self.free_large.pop() {
            Some(number) => {
                self.large[number as usize] = large;
                CellId(number | LARGE_BIT)
            }
            None => {
                self.large.push(large);
                large_id(self.large.len() - 1)
            }
        }
    }

    #[inline]
    fn head_mut(&mut self, id: CellId) -> &mut Head {
        if let Some(number) = large_number(id) {
            return &mut self.large[number].head;
        }
        let (page, slot) = page_and_slot(id);
        self.pages[page].cell_mut(slot).0
    }

    #[inline]
    fn parts_mut(&mut self, id: CellId) -> (&mut Head, &mut [u8]) {
        if let Some(number) = large_number(id) {
            return self.large[number].parts_mut();
        }
        let (page, slot) = page_and_slot(id);
        self.pages[page].cell_mut(slot)
    }

    #[inline]
    fn number_of_epoch(&mut self, epoch: u32) -> u8 {
        if self.own_epoch == Some(epoch) {
            return 0;
        }
        let at = self.epochs.iter().rposition(|&known| known == epoch);
        let at = at.unwrap_or_else(|| {
            if self.epochs.len() < usize::from(EPOCH_ELSEWHERE) - 1 {
                self.epochs.push(epoch);
                return self.epochs.len() - 1;
            }
            usize::from(EPOCH_ELSEWHERE) - 1
        });
        u8::try_from(at + 1).expect("at most 255")
    }
}

#[inline]
fn large_number(id: CellId) -> Option<usize> {
    (id.0 & LARGE_BIT != 0).then_some((id.0 & !LARGE_BIT) as usize)
}

#[inline]
fn page_and_slot(id: CellId) -> (usize, usize) {
    let slot = id.0 & ((1 << SLOT_BITS) - 1);
    ((id.0 >> SLOT_BITS) as usize, slot as usize)
}

#[inline]
fn small_id(page: usize, slot: u16) -> CellId {
    let page = u32::try_from(page).expect("17 bits");
    CellId(page << SLOT_BITS | u32::from(slot))
}

#[inline]
fn large_id(number: usize) -> CellId {
    CellId(u32::try_from(number).expect("fewer than 2^31 cells of 2 KiB fit in memory") | LARGE_BIT)
}

#[inline]
fn set_flags(head: &mut Head, flags: u32) {
    set_lengths(head, lengths(head) | flags);
}

#[inline]
fn small_value_len(head: &Head) -> usize {
    (lengths(head) & ((1 << KEY_SHIFT) - 1)) as usize
}

#[inline]
fn set_small_value_len(head: &mut Head, len: usize) {
    let len = u32::try_from(len).expect("small");
    set_lengths(head, lengths(head) >> KEY_SHIFT << KEY_SHIFT | len);
}

/// Writes a value and the expiry behind it to the start of `into`.
fn put(into: &mut [u8], value: &[u8], expiry_ms: Option<u64>) {
    into[..value.len()].copy_from_slice(value);
    if let Some(expiry_ms) = expiry_ms {
        into[value.len()..][..EXPIRY_BYTES].copy_from_slice(&expiry_ms.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::place::FileId;
    use crate::types::place::Place;
    use crate::types::place::rounded_bytes;

    fn packed(number: u64) -> PackedPlace {
        let place = Place {
            file: FileId(1),
            offset: 4096 + 8 * (number % 1_000),
            bytes: rounded_bytes(64),
        };
        PackedPlace::new(place, number)
    }

    fn version(epoch: u32, sequence: u64) -> Version {
        Version { epoch, sequence }
    }

    fn durable(cache: &mut Cache, id: CellId) {
        cache.set_change(id, version(1, 1), packed(1), None);
    }

    fn value_of(len: usize) -> Vec<u8> {
        vec![u8::try_from(len % 251).expect("small"); len]
    }

    #[test]
    fn every_length_has_the_shortest_class_that_holds_it() {
        for bytes in HEAD_BYTES + 1..=SMALL_BYTES_MAX {
            let class = class_of(bytes);
            assert!(
                class_bytes(class) >= bytes && class_bytes(class - 1) < bytes,
                "{bytes}"
            );
            assert!(class_bytes(class) - bytes <= 1.max(bytes / 16), "{bytes}");
        }
    }

    #[test]
    fn a_counter_takes_42_bytes_and_no_short_value_a_heap_block() {
        let mut cache = Cache::new(1 << 20);
        cache.insert(&[7; 16], &[0; 8], None);
        assert_eq!(cache.used_bytes(), 42);
        cache.insert(&[8; KEY_BYTES_MAX], &[0; 20], Some(1));
        assert_eq!((cache.heap_bytes, cache.large.len()), (0, 0));
        for (key, value) in [(16, 8), (16, 20), (64, 20), (3, 1024), (16, 65_536)] {
            let before = cache.used_bytes();
            let key_bytes = vec![9; key];
            let id = cache.insert(&key_bytes, &vec![0; value], None);
            assert_eq!(cache.used_bytes() - before, cell_bytes(key, value, false));
            cache.remove(id);
            assert_eq!(cache.used_bytes(), before);
        }
    }

    #[test]
    fn values_and_expiries_of_all_lengths_come_and_go() {
        let mut cache = Cache::new(1 << 20);
        let mut id = cache.insert(b"key", b"", None);
        durable(&mut cache, id);
        let lens = [
            0usize, 1, 27, 28, 29, 35, 100, 64, 28, 2_018, 2_020, 2_027, 2_028, 5_000, 2, 900,
        ];
        for len in lens.into_iter().chain(lens.into_iter().rev()) {
            let value = value_of(len);
            for (number, expiry) in [Some(5), None, Some(6), Some(7), None]
                .into_iter()
                .enumerate()
            {
                id = match number {
                    0 => cache.set_value(id, &value, expiry),
                    _ => cache.set_expiry(id, expiry),
                };
                let cell = cache.cell(id);
                assert_eq!((cell.key(), cell.value()), (&b"key"[..], &value[..]));
                assert_eq!(cell.expiry_ms(), expiry, "{len} bytes");
                assert_eq!((cache.version(id), cache.len()), (version(1, 1), 1));
                assert!(cache.used_bytes() <= 2 * cell_bytes(3, len, true));
            }
            assert_eq!(cache.value_mut(id), value);
        }
        id = cache.set_value(id, b"value", Some(4));
        cache.mark_deleted(id);
        let cell = cache.cell(id);
        assert!(cell.is_deleted() && cell.value().is_empty());
        assert_eq!(cell.expiry_ms(), None, "a deletion does not expire");
        id = cache.set_value(id, b"", None);
        assert!(!cache.cell(id).is_deleted());
        cache.remove(id);
        assert_eq!((cache.used_bytes(), cache.len()), (0, 0));
        assert_eq!(
            (cache.fresh_bytes, cache.heap_bytes),
            (0, 0),
            "pages are given back"
        );
    }

    #[test]
    fn a_block_that_others_share_is_copied_before_it_changes_and_edited_in_place_otherwise() {
        let mut cache = Cache::new(1 << 20);
        let value = value_of(5_000);
        let mut id = cache.insert(b"key", &value, Some(7));
        durable(&mut cache, id);
        let share = |cache: &Cache, id| {
            let (block, range) = cache.shared_value(id).expect("it has a block");
            (Arc::clone(block), range)
        };
        // In place: the next who shares it has the same block.
        let first = Arc::as_ptr(&share(&cache, id).0);
        cache.value_mut(id)[0] = 1;
        id = cache.set_value(id, &value, Some(8));
        id = cache.set_expiry(id, Some(9));
        assert_eq!(Arc::as_ptr(&share(&cache, id).0), first);

        let used = cache.used_bytes();
        type Change = fn(&mut Cache, CellId) -> CellId;
        let changes: [Change; 6] = [
            |cache, id| {
                cache.value_mut(id)[4_999] += 1;
                id
            },
            |cache, id| cache.set_value(id, &value_of(5_001), Some(5)),
            |cache, id| cache.set_value(id, &value_of(4_000), None),
            |cache, id| cache.set_expiry(id, Some(77)),
            |cache, id| cache.set_value(id, b"short", None),
            |cache, id| {
                cache.remove(id);
                cache.insert(b"key", &value_of(3_000), None)
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            id = cache.set_value(id, &value, Some(8));
            let (block, range) = share(&cache, id);
            let before = block.to_vec();
            id = change(&mut cache, id);
            assert_eq!(*block, before, "change {number}");
            assert_eq!(block[range], value);
            assert_eq!(Arc::strong_count(&block), 1, "change {number}");
            assert_eq!(cache.cell(id).key(), b"key");
        }
        id = cache.set_value(id, &value, Some(8));
        let (block, range) = share(&cache, id);
        cache.mark_deleted(id);
        assert!(cache.cell(id).value().is_empty() && block[range] == value);
        assert_eq!(
            cache.used_bytes(),
            used,
            "what others hold is not the cache's"
        );
        cache.remove(id);
        assert_eq!((cache.used_bytes(), cache.heap_bytes), (0, 0));
        assert_eq!(block.len(), 3 + 5_000 + EXPIRY_BYTES);
    }

    #[test]
    fn no_block_is_shared_that_is_much_longer_than_its_value() {
        let mut cache = Cache::new(1 << 20);
        let mut id = cache.insert(b"key", &value_of(SMALL_BYTES_MAX), None);
        assert_eq!(
            cache.shared_value(id).expect("large").1,
            3..3 + SMALL_BYTES_MAX
        );
        let page = cache.insert(b"other", b"value", None);
        assert!(cache.shared_value(page).is_none());
        id = cache.set_value(id, &value_of(7_000), None);
        id = cache.set_value(id, &value_of(6_590), None);
        assert!(cache.shared_value(id).is_none(), "a block of 7,003 bytes");
        id = cache.set_value(id, &value_of(6_592), None);
        assert!(cache.shared_value(id).is_some());
    }

    #[test]
    fn versions_of_any_epoch_and_sequence_are_kept() {
        let mut cache = Cache::new(1 << 20);
        cache.set_epoch(77);
        let mut kept = Vec::new();
        for number in 0..600u64 {
            let mut id = cache.insert(&number.to_le_bytes(), b"value", None);
            let epoch = u32::try_from(number / 2).expect("few") << 8;
            let version = match number % 2 {
                0 => version(epoch, number + 1),
                _ => version(77, (1 << 40) * number + number),
            };
            cache.set_change(id, version, packed(version.sequence), None);
            if number % 3 == 0 {
                id = cache.set_value(id, &value_of(300), None);
            }
            kept.push((id, version));
        }
        assert!(cache.versions.len() > 20, "{}", cache.versions.len());
        for &(id, version) in &kept {
            assert_eq!(cache.version(id), version);
        }
        for (id, _) in kept {
            cache.set_change(id, version(77, 5), packed(5), None);
            assert_eq!(cache.version(id), version(77, 5));
        }
        assert!(cache.versions.is_empty());
    }

    #[test]
    fn a_cell_leaves_only_when_durable_and_not_deleted_and_after_a_second_chance() {
        let mut cache = Cache::new(0);
        let first = cache.insert(b"a", b"1", None);
        let second = cache.insert(b"b", &value_of(5_000), Some(1));
        let deleted = cache.insert(b"c", b"3", None);
        let unlogged = cache.insert(b"d", b"4", None);
        cache.set_change(first, version(1, 1), packed(1), Some(Lsn(5)));
        cache.settle(Lsn(0), usize::MAX, |_, _, _| true);
        cache.set_change(second, version(1, 2), packed(2), Some(Lsn(9)));
        durable(&mut cache, deleted);
        cache.mark_deleted(deleted);
        assert_eq!((cache.lsn(first), cache.lsn(second)), (Lsn(5), Lsn(9)));
        assert_eq!(
            cache.victim(Lsn(4), 0, &mut 100),
            None,
            "nothing durable, nothing leaves"
        );
        assert_eq!(cache.victim(Lsn(5), 0, &mut 100), Some(first));
        cache.touch(first);
        assert_eq!(cache.victim(Lsn(9), 0, &mut 100), Some(second));
        cache.remove(first);
        cache.remove(second);
        assert_eq!(cache.victim(Lsn(9), 0, &mut 100), None);
        assert_eq!(cache.cell(unlogged).key(), b"d");
    }

    /// What is kept is compared with a model, while lengths change and cells leave, and the memory
    /// of pages must follow what is in use.
    #[test]
    fn thin_pages_are_emptied_and_nothing_is_lost() {
        let mut cache = Cache::new(1 << 30);
        let mut model: BTreeMap<u32, (CellId, usize)> = BTreeMap::new();
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut moves = 0;
        for phase in 0..4 {
            for number in 0..60_000u32 {
                let len = 20 + usize::try_from(random(80)).expect("small") + 100 * phase;
                let key = number.to_le_bytes();
                let id = match model.get(&number) {
                    Some(&(id, _)) => cache.set_value(id, &value_of(len), None),
                    None => cache.insert(&key, &value_of(len), None),
                };
                durable(&mut cache, id);
                model.insert(number, (id, len));
                if number % 8 == 0 {
                    cache.settle(Lsn(0), usize::MAX, |cache, from, to| {
                        let to = to.expect("there is room elsewhere");
                        let key = cache.cell(to).key().try_into().expect("four bytes");
                        let entry = model.get_mut(&u32::from_le_bytes(key)).expect("it is kept");
                        assert_eq!(entry.0, from);
                        entry.0 = to;
                        moves += 1;
                        true
                    });
                }
            }
            // Every third leaves.
            model.retain(|number, &mut (id, _)| {
                let leaves = number % 3 == 0;
                if leaves {
                    cache.remove(id);
                }
                !leaves
            });
            for _ in 0..40_000 {
                cache.settle(Lsn(0), usize::MAX, |cache, _, to| {
                    let to = to.expect("there is room elsewhere");
                    let key = cache.cell(to).key().try_into().expect("four bytes");
                    model
                        .get_mut(&u32::from_le_bytes(key))
                        .expect("it is kept")
                        .0 = to;
                    moves += 1;
                    true
                });
            }
            let (used, held) = (cache.used_bytes(), cache.memory_bytes());
            assert!(
                held <= used + used / 8 + 2 * SPARE_BYTES,
                "{held} bytes for {used}"
            );
            let expected: usize = model
                .values()
                .map(|&(_, len)| cell_bytes(4, len, false))
                .sum();
            assert!(used <= expected * 2 && cache.len() == model.len());
            for (number, &(id, len)) in &model {
                let cell = cache.cell(id);
                assert_eq!(
                    (cell.key(), cell.value()),
                    (&number.to_le_bytes()[..], &value_of(len)[..])
                );
            }
        }
        assert!(moves > 1_000, "{moves} cells were moved");
    }

    /// Of each of many lengths a few cells of many are left, spread over all pages.
    #[test]
    fn pages_are_held_within_a_bound_by_moving_cells_and_then_by_letting_some_leave() {
        const HELD_BYTES_MAX: usize = 6 << 20;
        let mut cache = Cache::new(1 << 30);
        let mut kept: BTreeMap<Vec<u8>, CellId> = BTreeMap::new();
        for len in (20..2_000).step_by(60) {
            let keys =
                (0..(1 << 20) / (len + 24)).map(|number| format!("{len} {number}").into_bytes());
            let cells: Vec<_> = keys
                .map(|key| (cache.insert(&key, &value_of(len), None), key))
                .collect();
            for (number, (id, key)) in cells.into_iter().enumerate() {
                durable(&mut cache, id);
                match number % 97 {
                    0 => _ = kept.insert(key, id),
                    _ => cache.remove(id),
                }
            }
        }
        let (used, before) = (cache.used_bytes(), kept.len());
        assert!(cache.held_bytes() > 3 * HELD_BYTES_MAX && used < HELD_BYTES_MAX / 4);
        // A cell whose change is not durable holds its page, and no other.
        let undurable = cache.insert(b"undurable", &value_of(1_000), None);
        cache.set_change(undurable, version(1, 1), packed(1), Some(Lsn(9)));
        let mut undurable = Some(undurable);
        let (mut turns, mut moved, mut gone) = (0, 0, 0);
        while cache.held_bytes() > HELD_BYTES_MAX {
            turns += 1;
            assert!(turns < 1_000, "{} bytes are held", cache.held_bytes());
            cache.settle(Lsn(0), HELD_BYTES_MAX, |cache, from, to| {
                let key = cache.cell(to.unwrap_or(from)).key();
                let Some(to) = to else {
                    assert!(key != b"undurable");
                    gone += 1;
                    return kept.remove(key).is_some();
                };
                moved += 1;
                match kept.get_mut(key) {
                    Some(id) => *id = to,
                    None => undurable = Some(to),
                }
                true
            });
        }
        assert!(
            moved > 100 && gone < before,
            "{moved} moved, {gone} of {before} left"
        );
        assert_eq!(cache.len(), kept.len() + 1);
        for (key, &id) in &kept {
            assert_eq!(cache.cell(id).key(), key);
        }
        assert_eq!(
            undurable.map(|id| cache.cell(id).key()),
            Some(&b"undurable"[..])
        );
        // Nothing may leave: that is told, and the loop rests.
        for _ in 0..5_000 {
            cache.settle(Lsn(0), 0, |_, _, to| to.is_some());
        }
        assert!(!cache.may_shrink());
    }
}
