//! The values in memory: cells that hold a key, its value, its version and the log position of its
//! last change, within a budget of bytes.
//!
//! A cell is edited in place; whoever answers a request copies the bytes out first. Key and value
//! stand in one run of bytes, and behind them the expiry of a key that has one, inside the cell up to
//! [`INLINE_BYTES`], so that a counter costs no heap block. Cells leave by second chance (CLOCK: one hand, one reference bit): an entry whose
//! last change is not durable yet never leaves, so a read from disk always finds what it looks for.

use crate::index::{CellId, PackedPlace};
use crate::log::Lsn;

/// Key, value and expiry of together at most this many bytes are kept inside the cell.
pub const INLINE_BYTES: usize = 39;
/// Bytes of an expiry behind the value.
const EXPIRY_BYTES: usize = size_of::<u64>();

/// One cached key.
#[derive(Debug)]
pub struct Cell {
    /// Slot of the key, with which its index entry is found again.
    pub slot: u16,
    /// Hash of the key, likewise.
    pub hash: u32,
    /// Epoch of the last change.
    pub epoch: u32,
    /// Sequence of the last change within its partition; 0 for a cell not logged yet.
    pub sequence: u64,
    /// Log position of the last change; replies that show it wait until it is durable.
    pub lsn: Lsn,
    /// Where the last change stands in the log.
    pub place: PackedPlace,
    key_len: u16,
    state: State,
    /// Read or written since the hand last passed.
    referenced: bool,
    value_len: u32,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Live,
    /// Live, with an expiry behind the value.
    Expiring,
    Deleted,
}

#[derive(Debug)]
enum Body {
    Inline([u8; INLINE_BYTES]),
    Heap(Vec<u8>),
}

impl Cell {
    /// The key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.bytes()[..usize::from(self.key_len)]
    }

    /// The value; empty for a deleted key.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &[u8] {
        let key_len = usize::from(self.key_len);
        &self.bytes()[key_len..key_len + self.value_len as usize]
    }

    /// The value, to be edited in place at its length.
    #[inline]
    pub fn value_mut(&mut self) -> &mut [u8] {
        let key_len = usize::from(self.key_len);
        let end = key_len + self.value_len as usize;
        match &mut self.body {
            Body::Inline(bytes) => &mut bytes[key_len..end],
            Body::Heap(bytes) => &mut bytes[key_len..end],
        }
    }

    /// Unix milliseconds from which on the key is gone.
    #[inline]
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        if self.state != State::Expiring {
            return None;
        }
        let start = usize::from(self.key_len) + self.value_len as usize;
        self.bytes()[start..]
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether the key was deleted by a change that may not be durable yet.
    #[inline]
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.state == State::Deleted
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Inline(bytes) => bytes,
            Body::Heap(bytes) => bytes,
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.body {
            Body::Inline(_) => 0,
            Body::Heap(bytes) => bytes.capacity(),
        }
    }
}

/// The cells of one shard.
#[derive(Debug)]
pub struct Cache {
    cells: Vec<Cell>,
    free: Vec<CellId>,
    /// Heap bytes and cells in use, in bytes.
    used_bytes: usize,
    budget_bytes: usize,
    hand: usize,
}

impl Cache {
    /// An empty cache that keeps about `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Cache {
            cells: Vec::new(),
            free: Vec::new(),
            used_bytes: 0,
            budget_bytes,
            hand: 0,
        }
    }

    /// The cell.
    #[inline]
    #[must_use]
    pub fn cell(&self, id: CellId) -> &Cell {
        &self.cells[id.0 as usize]
    }

    /// The cell, to be changed; marks it as in use.
    #[inline]
    pub fn cell_mut(&mut self, id: CellId) -> &mut Cell {
        let cell = &mut self.cells[id.0 as usize];
        cell.referenced = true;
        cell
    }

    /// Loads the start of the cell: a number that depends on it and means nothing.
    #[inline]
    #[must_use]
    pub(crate) fn load(&self, id: CellId) -> usize {
        usize::from(self.cells[id.0 as usize].key_len)
    }

    /// Loads the start of the cell's bytes: a number that depends on them and means nothing.
    #[inline]
    #[must_use]
    pub(crate) fn load_bytes(&self, id: CellId) -> usize {
        match &self.cells[id.0 as usize].body {
            Body::Inline(_) => 0,
            // Key and value of a usual size span two cache lines.
            Body::Heap(bytes) => {
                bytes.first().map_or(0, |&b| usize::from(b))
                    + bytes.last().map_or(0, |&b| usize::from(b))
            }
        }
    }

    /// Records where the last change stands now; the key is not in use for that.
    pub(crate) fn set_place(&mut self, id: CellId, place: PackedPlace) {
        self.cells[id.0 as usize].place = place;
    }

    /// Notes that the cell was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        self.cells[id.0 as usize].referenced = true;
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Cells in use and free.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.cells.len()
    }

    /// Cells in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cells.len() - self.free.len()
    }

    /// Whether no cell is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether cells should leave before more come.
    #[inline]
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.used_bytes > self.budget_bytes
    }

    /// A new cell with this key, value and expiry and no version yet.
    pub fn insert(
        &mut self,
        (slot, hash): (u16, u32),
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> CellId {
        let cell = Cell {
            slot,
            hash,
            epoch: 0,
            sequence: 0,
            lsn: Lsn::default(),
            place: PackedPlace::default(),
            key_len: u16::try_from(key.len()).expect("keys have at most 1 KiB"),
            state: state_of(expiry_ms),
            referenced: true,
            value_len: u32::try_from(value.len()).expect("values have at most 16 MiB"),
            body: body_of(key, value, expiry_ms),
        };
        self.used_bytes += size_of::<Cell>() + cell.heap_bytes();
        match self.free.pop() {
            Some(id) => {
                self.cells[id.0 as usize] = cell;
                id
            }
            None => {
                self.cells.push(cell);
                CellId(
                    u32::try_from(self.cells.len() - 1)
                        .expect("fewer than 2^32 cells fit in memory"),
                )
            }
        }
    }

    /// Gives the cell another value and expiry; a deleted key lives again.
    pub fn set_value(&mut self, id: CellId, value: &[u8], expiry_ms: Option<u64>) {
        let cell = &mut self.cells[id.0 as usize];
        let was_plain = cell.state != State::Expiring;
        cell.state = state_of(expiry_ms);
        cell.referenced = true;
        if value.len() == cell.value_len as usize && was_plain && expiry_ms.is_none() {
            cell.value_mut().copy_from_slice(value);
            return;
        }
        self.used_bytes -= cell.heap_bytes();
        let key_len = usize::from(cell.key_len);
        let len = key_len + value.len() + expiry_ms.map_or(0, |_| EXPIRY_BYTES);
        let fits = match &mut cell.body {
            Body::Inline(bytes) if len <= INLINE_BYTES => {
                put(&mut bytes[key_len..], value, expiry_ms);
                true
            }
            // A block more than twice too large is given back.
            Body::Heap(bytes) if len > INLINE_BYTES && bytes.capacity() < 2 * len => {
                bytes.resize(len, 0);
                put(&mut bytes[key_len..], value, expiry_ms);
                true
            }
            _ => false,
        };
        if !fits {
            cell.body = body_of(cell.key(), value, expiry_ms);
        }
        cell.value_len = u32::try_from(value.len()).expect("values have at most 16 MiB");
        self.used_bytes += cell.heap_bytes();
    }

    /// Gives the cell of a live key another expiry and leaves its value.
    pub fn set_expiry(&mut self, id: CellId, expiry_ms: Option<u64>) {
        let cell = &mut self.cells[id.0 as usize];
        assert!(
            matches!(cell.state, State::Live | State::Expiring),
            "only a live key can expire"
        );
        let end = usize::from(cell.key_len) + cell.value_len as usize;
        self.used_bytes -= cell.heap_bytes();
        match (&mut cell.body, expiry_ms) {
            (_, None) => {}
            (Body::Inline(bytes), Some(_)) if end + EXPIRY_BYTES <= INLINE_BYTES => {
                put(&mut bytes[end..], &[], expiry_ms);
            }
            (Body::Heap(bytes), Some(expiry_ms)) => {
                bytes.truncate(end);
                bytes.extend_from_slice(&expiry_ms.to_le_bytes());
            }
            (Body::Inline(_), Some(_)) => cell.body = body_of(cell.key(), cell.value(), expiry_ms),
        }
        cell.state = state_of(expiry_ms);
        self.used_bytes += cell.heap_bytes();
    }

    /// Marks the key as deleted; the cell stays until [`Cache::remove`], because readers must not
    /// be told of the deletion before it is durable.
    pub fn mark_deleted(&mut self, id: CellId) {
        self.set_value(id, &[], None);
        self.cells[id.0 as usize].state = State::Deleted;
    }

    /// Frees the cell.
    pub fn remove(&mut self, id: CellId) {
        let cell = &mut self.cells[id.0 as usize];
        assert!(cell.state != State::Free, "a cell is freed once");
        self.used_bytes -= size_of::<Cell>() + cell.heap_bytes();
        cell.state = State::Free;
        cell.body = Body::Inline([0; INLINE_BYTES]);
        self.free.push(id);
    }

    /// Moves the hand to a cell that may leave: live, durable up to `durable`, not used since the
    /// hand last passed. Every cell that it passes is one of `steps`; `None` when they are used up.
    pub fn victim(&mut self, durable: Lsn, steps: &mut usize) -> Option<CellId> {
        while *steps > 0 && !self.cells.is_empty() {
            *steps -= 1;
            self.hand = if self.hand + 1 < self.cells.len() {
                self.hand + 1
            } else {
                0
            };
            let cell = &mut self.cells[self.hand];
            let is_live = matches!(cell.state, State::Live | State::Expiring);
            if !is_live || cell.lsn > durable || cell.sequence == 0 {
                continue;
            }
            if std::mem::take(&mut cell.referenced) {
                continue;
            }
            return Some(CellId(
                u32::try_from(self.hand).expect("cell numbers are 32 bits"),
            ));
        }
        None
    }
}

fn state_of(expiry_ms: Option<u64>) -> State {
    match expiry_ms {
        None => State::Live,
        Some(_) => State::Expiring,
    }
}

/// Writes a value and the expiry behind it to the start of `into`.
fn put(into: &mut [u8], value: &[u8], expiry_ms: Option<u64>) {
    into[..value.len()].copy_from_slice(value);
    if let Some(expiry_ms) = expiry_ms {
        into[value.len()..value.len() + EXPIRY_BYTES].copy_from_slice(&expiry_ms.to_le_bytes());
    }
}

fn body_of(key: &[u8], value: &[u8], expiry_ms: Option<u64>) -> Body {
    let len = key.len() + value.len() + expiry_ms.map_or(0, |_| EXPIRY_BYTES);
    if len <= INLINE_BYTES {
        let mut bytes = [0; INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        put(&mut bytes[key.len()..], value, expiry_ms);
        Body::Inline(bytes)
    } else {
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        if let Some(expiry_ms) = expiry_ms {
            bytes.extend_from_slice(&expiry_ms.to_le_bytes());
        }
        Body::Heap(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_change_its_length_across_the_inline_border_and_back() {
        let mut cache = Cache::new(1 << 20);
        let id = cache.insert((0, 7), b"key", b"", None);
        let mut seen = Vec::new();
        for len in [0usize, 1, 36, 37, 100, 64, 63, 40, 36, 0, 5_000, 2, 36] {
            let value = vec![u8::try_from(len % 251).unwrap(); len];
            cache.set_value(id, &value, None);
            assert_eq!(cache.cell(id).key(), b"key");
            assert_eq!(cache.cell(id).value(), value);
            seen.push(cache.used_bytes());
        }
        assert_eq!(
            seen[0], seen[12],
            "the same value costs the same bytes again"
        );
        cache.remove(id);
        assert_eq!((cache.used_bytes(), cache.len()), (0, 0));
    }

    #[test]
    fn a_cell_leaves_only_when_durable_and_after_a_second_chance() {
        let mut cache = Cache::new(0);
        let first = cache.insert((0, 1), b"a", b"1", None);
        let second = cache.insert((0, 2), b"b", b"2", Some(1));
        for (id, lsn) in [(first, 5), (second, 9)] {
            cache.cell_mut(id).lsn = Lsn(lsn);
            cache.cell_mut(id).sequence = 1;
        }
        assert_eq!(
            cache.victim(Lsn(4), &mut 100),
            None,
            "nothing durable, nothing leaves"
        );
        assert_eq!(cache.victim(Lsn(5), &mut 100), Some(first));
        cache.touch(first);
        assert_eq!(cache.victim(Lsn(9), &mut 100), Some(second));
    }

    #[test]
    fn an_expiry_comes_and_goes_beside_values_of_all_lengths() {
        let mut cache = Cache::new(1 << 20);
        let id = cache.insert((0, 7), b"key", b"", None);
        let bare = cache.used_bytes();
        for len in [0usize, 1, 27, 28, 29, 35, 36, 37, 100, 64, 28, 5_000, 2] {
            let value = vec![u8::try_from(len % 251).unwrap(); len];
            for (number, expiry) in [Some(5), None, Some(6), Some(7), None]
                .into_iter()
                .enumerate()
            {
                match number {
                    0 => cache.set_value(id, &value, expiry),
                    _ => cache.set_expiry(id, expiry),
                }
                let cell = cache.cell(id);
                assert_eq!((cell.key(), cell.value()), (&b"key"[..], &value[..]));
                assert_eq!(cell.expiry_ms(), expiry, "{len} bytes");
            }
            cache.set_value(id, &value, Some(9));
            cache.set_value(id, &value, None);
            assert_eq!(
                (cache.cell(id).value(), cache.cell(id).expiry_ms()),
                (&value[..], None)
            );
        }
        cache.set_value(id, b"", Some(4));
        cache.mark_deleted(id);
        assert_eq!(
            cache.cell(id).expiry_ms(),
            None,
            "a deletion does not expire"
        );
        cache.set_value(id, b"", None);
        assert_eq!(
            cache.used_bytes(),
            bare,
            "the same value costs the same bytes again"
        );
    }

    #[test]
    fn an_expiry_makes_no_cell_larger() {
        assert_eq!(size_of::<Cell>(), 88);
        let mut cache = Cache::new(1 << 20);
        let id = cache.insert((0, 7), b"stock:0123456789", &[0; 8], Some(1));
        assert_eq!(
            cache.cell(id).heap_bytes(),
            0,
            "a counter that expires costs no heap block"
        );
    }
}
