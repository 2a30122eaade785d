//! The values in memory: cells that hold a key, its value, its version and the place of its last
//! change, within a budget of bytes.
//!
//! A cell is edited in place. A reply copies the bytes out first, or shares their block. A cell is
//! a run of bytes: a head of [`HEAD_BYTES`], the key, the value, and the expiry of a key that
//! has one. Runs of about the same length stand side by side in pages, so a counter of 8 bytes
//! under a key of 16 takes 42 bytes and no heap block; only what is longer than [`SMALL_BYTES_MAX`]
//! has one of its own. A head holds nothing that can be had otherwise: slot and hash follow from
//! the key, the low bits of the sequence stand in the place, epochs are numbers of a short table.
//!
//! A reply can share such a block. A change of the cell meanwhile gives the cell another block
//! first, so a shared block stays as it was. Only the block that the cell has counts as memory of
//! the cache. The holders of other blocks count these themselves.
//!
//! A cell is young until it has been used again after it came. Two hands go round over all cells,
//! each with a second chance for what was used since: one lets young cells leave while they are
//! half of all or more, the other one the rest. So what is asked for once leaves soon, as with
//! S3-FIFO, but neither hand needs an order of the cells: two bits are all. An entry whose last
//! change is not durable yet never leaves, so a read from disk always finds what it looks for.
//! Pages that have become thin are emptied, a few cells at a time, and given back.
//!
//! `examples/policies.rs` compares in the same memory, hits in per cent of CLOCK (one hand, one
//! bit), SIEVE and S3-FIFO (8 bytes more for each cell) and this: zipf 0.99 over ten times as many
//! keys as cells 72.9, 76.3, 76.7, 76.3; zipf 0.8 46.3, 52.3, 53.0, 52.5; uniform 10.0, 8.4, 8.4,
//! 10.0; zipf 0.99 with scans 59.2, 63.6, 64.0, 63.4; zipf 0.99 over keys that change 71.8, 63.8,
//! 70.4, 71.8.

use crate::format::extension::EffectsArea;
use crate::format::record::{KEY_BYTES_MAX, KindedValue, ValueKind};
use crate::memory::cache::armed::Armed;
use crate::memory::cache::cell::Cell;
use crate::memory::cache::cell::Changed;
use crate::memory::cache::cell::DELETED;
use crate::memory::cache::cell::EPOCH_AT;
use crate::memory::cache::cell::EPOCH_ELSEWHERE;
use crate::memory::cache::cell::EXPIRING;
use crate::memory::cache::cell::EXPIRY_BYTES;
use crate::memory::cache::cell::FREE;
use crate::memory::cache::cell::GENERATION_AT;
use crate::memory::cache::cell::HEAD_BYTES;
use crate::memory::cache::cell::Head;
use crate::memory::cache::cell::KEY_SHIFT;
use crate::memory::cache::cell::LENGTHS_AT;
use crate::memory::cache::cell::MARKS;
use crate::memory::cache::cell::PLACE_AT;
use crate::memory::cache::cell::REFERENCED;
use crate::memory::cache::cell::SEQUENCE_AT;
use crate::memory::cache::cell::SEQUENCE_MAX;
use crate::memory::cache::cell::SMALL_BYTES_MAX;
use crate::memory::cache::cell::YOUNG;
use crate::memory::cache::cell::YOUNG_AT;
use crate::memory::cache::cell::is_free;
use crate::memory::cache::cell::key_len;
use crate::memory::cache::cell::lengths;
use crate::memory::cache::cell::place_in;
use crate::memory::cache::cell::put;
use crate::memory::cache::cell::set_flags;
use crate::memory::cache::cell::set_kind;
use crate::memory::cache::cell::set_lengths;
use crate::memory::cache::cell::set_small_value_len;
use crate::memory::cache::cell::small_value_len;
use crate::memory::cache::large::BESIDE_SHARE_MAX;
use crate::memory::cache::large::HEAP_BLOCK_BYTES;
use crate::memory::cache::large::Large;
use crate::memory::cache::large::new_block;
use crate::memory::cache::page::CLASSES;
use crate::memory::cache::page::FIRST_PAGE_BYTES;
use crate::memory::cache::page::LARGE_BIT;
use crate::memory::cache::page::NONE;
use crate::memory::cache::page::PAGE_BYTES;
use crate::memory::cache::page::PAGES_MAX;
use crate::memory::cache::page::Page;
use crate::memory::cache::page::class_bytes;
use crate::memory::cache::page::class_of;
use crate::memory::cache::page::large_id;
use crate::memory::cache::page::large_number;
use crate::memory::cache::page::page_and_slot;
use crate::memory::cache::page::small_id;
use crate::memory::generation::{DURABLE, Generations};
use crate::memory::index::entry::CellId;
use crate::types::packed_place::PackedPlace;
use crate::types::place::Lsn;
use crate::types::version::Version;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Budgets beyond this are taken for this: cell numbers have no more bits.
pub const BUDGET_BYTES_MAX: usize = PAGES_MAX / 8 * 7 * PAGE_BYTES;

/// Bytes of memory that a key of `key_bytes` and a value of `value_bytes` take in the cache.
#[must_use]
pub fn cell_bytes(key_bytes: usize, value_bytes: usize, expires: bool) -> usize {
    let bytes = HEAD_BYTES + key_bytes + value_bytes + if expires { EXPIRY_BYTES } else { 0 };
    match bytes <= SMALL_BYTES_MAX {
        true => class_bytes(class_of(bytes)),
        false => size_of::<Large>() + bytes - HEAD_BYTES + HEAP_BLOCK_BYTES,
    }
}

/// The cells of one shard.
#[derive(Debug)]
pub struct Cache {
    pub(super) pages: Vec<Page>,
    free_pages: Vec<u32>,
    /// The number of pages of each class, and the pages of each class with a free cell.
    opened: [u32; CLASSES],
    pub(super) roomy: Vec<Vec<u32>>,
    pub(super) large: Vec<Large>,
    free_large: Vec<u32>,
    /// The page that is emptied, and its cells that were not looked at yet.
    pub(super) thin: Option<(u32, u16)>,
    /// The page that could not be emptied last.
    pub(super) stuck: Option<u32>,
    /// Turns until a thin page is looked for.
    pub(super) thin_search_in: u32,
    pub(super) generations: Generations,
    /// The epoch of this run: number 0.
    pub(super) own_epoch: Option<u32>,
    /// The epochs of other versions: numbers from 1 on.
    pub(super) epochs: Vec<u32>,
    /// By cell, versions that fit in no head: of one epoch too many, or of a sequence too great.
    pub(super) versions: BTreeMap<u32, Version>,
    /// What runs when the keys of cells expire.
    pub(super) armed: Armed,
    /// Cells in use, and those of them that are young.
    pub(super) len: usize,
    pub(super) young: usize,
    /// Cells of pages that were ever used, their bytes, and the bytes of those in use.
    pub(super) fresh_cells: usize,
    pub(super) fresh_bytes: usize,
    pub(super) page_bytes: usize,
    /// Heap blocks of large cells.
    pub(super) heap_bytes: usize,
    budget_bytes: usize,
    /// Over the young cells, and over the others.
    pub(super) hands: [Hand; 2],
    /// Steps of the hands since a cell left, more came, or more was durable.
    pub(super) vain_steps: usize,
    /// Up to where the log was durable in the last turn.
    pub(super) durable: Lsn,
}

/// The cell that is looked at next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hand {
    /// A page or, beyond all pages, a large cell.
    pub(super) at: usize,
    pub(super) slot: u16,
}

/// One of the hand over young cells, two of the other: what was used leaves in the second.
const VAIN_ROUNDS_MAX: usize = 4;

/// Turns between two looks for a thin page, and pages of a class that are compared.
pub(super) const THIN_SEARCH_TURNS: u32 = 64;

/// Bytes of free cells beside a sixteenth of all, above which pages are emptied.
pub(super) const SPARE_BYTES: usize = 4 * PAGE_BYTES;

/// Where the value of a cell stands in a page.
#[derive(Clone, Debug)]
pub(crate) struct ValuePlace {
    page: usize,
    range: Range<usize>,
}

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
            thin_search_in: THIN_SEARCH_TURNS,
            generations: Generations::new(),
            own_epoch: None,
            epochs: Vec::new(),
            versions: BTreeMap::new(),
            armed: Armed::default(),
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

    /// Where the value of a cell in a page stands, until the cell is given another value, moved or
    /// removed. `None` if it stands in a block of its own.
    pub(crate) fn value_place(&self, id: CellId) -> Option<ValuePlace> {
        if large_number(id).is_some() {
            return None;
        }
        let (page, slot) = page_and_slot(id);
        let (head, _) = self.pages[page].cell(slot);
        let from = slot * self.pages[page].cell_bytes() + HEAD_BYTES + key_len(head);
        let range = from..from + small_value_len(head);
        Some(ValuePlace { page, range })
    }

    /// The value that stands there.
    #[inline]
    pub(crate) fn value_at(&mut self, place: &ValuePlace) -> &mut [u8] {
        &mut self.pages[place.page].bytes[place.range.clone()]
    }

    /// The value as a part of its block, which a reply may share instead of a copy. `None` if the
    /// value stands in a page, or with too much beside it.
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
        usize::from(head[0]) ^ bytes.last().map_or(0, |&byte| usize::from(byte))
    }

    /// Whether a cell has a heap block of its own.
    #[inline]
    #[must_use]
    pub(crate) fn is_large(id: CellId) -> bool {
        id.0 & LARGE_BIT != 0
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
        let &[.., a, b, c, d] = head.first_chunk::<YOUNG_AT>().expect("a head is longer");
        let high = head[YOUNG_AT] & !MARKS;
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

    /// The cell, its version and its position in the log, as [`Cache::version`] and [`Cache::lsn`]
    /// tell them.
    #[inline(always)]
    pub(crate) fn with_version(&self, id: CellId) -> (Cell<'_>, Version, Lsn) {
        let cell = self.cell(id);
        let lsn = self.generations.end(cell.head[GENERATION_AT]);
        (cell, self.version_in(id, cell.head), lsn)
    }

    /// Whether any cell is armed.
    #[inline]
    #[must_use]
    pub fn has_armed(&self) -> bool {
        !self.armed.is_empty()
    }

    /// What runs when the key of a cell expires.
    #[inline]
    #[must_use]
    pub fn effects(&self, id: CellId) -> Option<&EffectsArea> {
        match self.armed.is_empty() {
            true => None,
            false => self.armed.get(id),
        }
    }

    /// Has this run when the key of a cell expires, which has an expiry.
    pub(crate) fn arm(&mut self, id: CellId, area: EffectsArea) {
        assert!(self.cell(id).expiry_ms().is_some(), "it expires");
        self.vain_steps = 0;
        self.armed.put(id, area);
    }

    /// Nothing runs any more when the key of a cell expires. Tells what was to run.
    #[inline]
    pub(crate) fn disarm(&mut self, id: CellId) -> Option<EffectsArea> {
        match self.armed.is_empty() {
            true => None,
            false => self.armed.take(id),
        }
    }

    /// Notes that the cell was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        set_flags(self.head_mut(id), REFERENCED);
    }

    /// Records the last change: its version, where it stands, and its log position if it is not
    /// durable.
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
        // A new key does not count as used.
        let used = match before == PackedPlace::default() {
            true => 0,
            false => REFERENCED,
        };
        let lengths = lengths(head);
        let marks = head[YOUNG_AT] & MARKS;
        // Each part is stored as it is loaded: a load across two stores would wait for both.
        let [a, b, c, d, high, ..] = (version.sequence >> 8).to_le_bytes();
        head[PLACE_AT..SEQUENCE_AT].copy_from_slice(&place.bits().to_le_bytes());
        head[SEQUENCE_AT..YOUNG_AT].copy_from_slice(&[a, b, c, d]);
        head[YOUNG_AT] = marks | high & !MARKS;
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
    pub fn insert(
        &mut self,
        key: &[u8],
        KindedValue { kind, bytes: value }: KindedValue<'_>,
        expiry_ms: Option<u64>,
    ) -> CellId {
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
        set_kind(&mut head, kind);
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

    /// Gives the cell another value and expiry, and disarms it; a deleted key lives again. The cell
    /// may have to become another one, which is the answer: the index is to be told.
    pub fn set_value(
        &mut self,
        id: CellId,
        KindedValue { kind, bytes: value }: KindedValue<'_>,
        expiry_ms: Option<u64>,
    ) -> CellId {
        self.disarm(id);
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
                // Replies may still hold the old block. The value is written anew, so only the key
                // is copied from it.
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
            set_kind(head, kind);
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
        let moved = self.insert(
            &key[..key_len],
            KindedValue { kind, bytes: value },
            expiry_ms,
        );
        self.young -= usize::from(head[YOUNG_AT] & YOUNG == 0);
        let moved_head = self.head_mut(moved);
        moved_head[..LENGTHS_AT].copy_from_slice(&head[..LENGTHS_AT]);
        set_kind(moved_head, kind);
        set_flags(moved_head, REFERENCED);
        if let Some(version) = version {
            self.versions.insert(moved.0, version);
        }
        self.remove(id);
        moved
    }

    /// Gives the cell of a live key another expiry and leaves its value, and its effects if it
    /// expires. The cell may have to become another one, as with [`Cache::set_value`].
    pub fn set_expiry(&mut self, id: CellId, expiry_ms: Option<u64>) -> CellId {
        let cell = self.cell(id);
        assert!(!cell.is_deleted(), "only a live key can expire");
        let end = key_len(cell.head) + cell.value_len;
        let Some(expiry_ms) = expiry_ms else {
            self.disarm(id);
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
            let (kind, bytes) = (cell.value_kind(), &cell.value().to_vec());
            return self.set_value(id, KindedValue { kind, bytes }, Some(expiry_ms));
        }
        let (head, bytes) = self.parts_mut(id);
        set_flags(head, EXPIRING);
        put(&mut bytes[end..], &[], Some(expiry_ms));
        id
    }

    /// Marks the key as deleted; the cell stays until [`Cache::remove`], because readers must not
    /// be told of the deletion before it is durable.
    pub fn mark_deleted(&mut self, id: CellId) {
        self.disarm(id);
        if let Some(number) = large_number(id) {
            self.large[number].value_len = 0;
        } else {
            set_small_value_len(self.head_mut(id), 0);
        }
        let head = self.head_mut(id);
        set_kind(head, ValueKind::Plain);
        set_lengths(head, lengths(head) & !FREE | DELETED | REFERENCED);
    }

    /// Frees the cell.
    pub fn remove(&mut self, id: CellId) {
        self.disarm(id);
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
        self.page_bytes + self.heap_bytes + large * size_of::<Large>() + self.armed.bytes()
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
            + self.armed.bytes()
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

    /// Bytes of what leads to the cells: it does not shrink when they leave.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.memory_bytes() - self.fresh_bytes - self.heap_bytes - self.armed.bytes()
    }

    /// Takes a cell of a class; what it holds is old.
    pub(super) fn place_for(&mut self, class: usize) -> CellId {
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
    pub(super) fn free(&mut self, id: CellId) {
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
    pub(super) fn close(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        if std::mem::take(&mut page.has_room) {
            let roomy = &mut self.roomy[usize::from(page.class)];
            let at = roomy.iter().position(|&roomy| roomy == number);
            roomy.swap_remove(at.expect("a page that has room is listed"));
        }
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
    pub(super) fn head_mut(&mut self, id: CellId) -> &mut Head {
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
