//! The layout of a cell: its head, key, value and expiry.

use crate::format::record::{KEY_BYTES_MAX, KindedValue, ValueKind};
use crate::types::packed_place::PackedPlace;

/// Bytes of a cell before its key.
pub const HEAD_BYTES: usize = 18;

/// A cell of more bytes has a heap block of its own.
pub const SMALL_BYTES_MAX: usize = 2048;

/// Bytes of an expiry behind the value.
pub(super) const EXPIRY_BYTES: usize = size_of::<u64>();

/// What a change made of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// Where the change before it stands.
    pub(crate) before: PackedPlace,
    pub(super) lengths: u32,
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

/// What stands before the key of every cell: the place (8 bytes), the sequence without its low 8
/// bits and, above it, whether the cell is young and whether its value is a head (5), the number of
/// the epoch (1), the generation of the last change (1), flags and the length of the key, and of a
/// value in a page (3).
pub(super) type Head = [u8; HEAD_BYTES];

pub(super) const PLACE_AT: usize = 0;

pub(super) const SEQUENCE_AT: usize = 8;

pub(super) const YOUNG_AT: usize = 12;

pub(super) const EPOCH_AT: usize = 13;

pub(super) const GENERATION_AT: usize = 14;

pub(super) const LENGTHS_AT: usize = 15;

/// The 24 bits of lengths and flags: 11 for the value's length, then the key's length less one,
/// then the flags.
pub(super) const KEY_SHIFT: u32 = 11;

pub(super) const EXPIRING: u32 = 1 << 21;

pub(super) const DELETED: u32 = 1 << 22;

pub(super) const REFERENCED: u32 = 1 << 23;

/// The highest bit of the sequence's last byte: the cell is young.
pub(super) const YOUNG: u8 = 1 << 7;

/// The bit below: the value is the head of members.
pub(super) const MEMBERS: u8 = 1 << 6;

/// Both.
pub(super) const MARKS: u8 = YOUNG | MEMBERS;

/// The highest sequence that a head has bits for.
pub(super) const SEQUENCE_MAX: u64 = (1 << 46) - 1;

/// A deletion does not expire: a cell that says so is free.
pub(super) const FREE: u32 = EXPIRING | DELETED;

/// The epoch of a cell whose version stands in [`Cache::versions`].
pub(super) const EPOCH_ELSEWHERE: u8 = u8::MAX;
const _: () = assert!(SMALL_BYTES_MAX <= 1 << KEY_SHIFT && KEY_BYTES_MAX <= 1 << 10);
const _: () = assert!(LENGTHS_AT == GENERATION_AT + 1 && HEAD_BYTES == LENGTHS_AT + 3);
const _: () = assert!(YOUNG_AT == SEQUENCE_AT + 4);

#[inline]
pub(super) fn lengths(head: &Head) -> u32 {
    // With the generation before them they are one load.
    u32::from_le_bytes(*head.last_chunk().expect("a head is longer")) >> 8
}

#[inline]
pub(super) fn set_lengths(head: &mut Head, lengths: u32) {
    let word = lengths << 8 | u32::from(head[GENERATION_AT]);
    *head.last_chunk_mut().expect("a head is longer") = word.to_le_bytes();
}

#[inline]
pub(super) fn key_len(head: &Head) -> usize {
    (lengths(head) >> KEY_SHIFT & 0x3FF) as usize + 1
}

#[inline]
pub(super) fn place_in(head: &Head) -> PackedPlace {
    let bytes = head.first_chunk().expect("a head is longer");
    PackedPlace::from_bits(u64::from_le_bytes(*bytes))
}

/// What the value of a cell is, whose head has this byte.
#[inline]
pub(super) const fn kind_in(marks: u8) -> ValueKind {
    match marks & MEMBERS {
        0 => ValueKind::Plain,
        _ => ValueKind::Head,
    }
}

/// The value of a cell is this from now on.
#[inline]
pub(super) fn set_kind(head: &mut Head, kind: ValueKind) {
    head[YOUNG_AT] &= !MEMBERS;
    if kind == ValueKind::Head {
        head[YOUNG_AT] |= MEMBERS;
    }
}

#[inline]
pub(super) fn is_free(head: &Head) -> bool {
    lengths(head) & FREE == FREE
}

/// One cached key.
#[derive(Clone, Copy, Debug)]
pub struct Cell<'a> {
    pub(super) head: &'a Head,
    pub(super) value_len: usize,
    /// Key, value, expiry.
    pub(super) bytes: &'a [u8],
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

    /// What the value is.
    #[inline]
    #[must_use]
    pub fn value_kind(&self) -> ValueKind {
        kind_in(self.head[YOUNG_AT])
    }

    /// The value and what it is.
    #[inline]
    #[must_use]
    pub fn kinded_value(&self) -> KindedValue<'a> {
        KindedValue {
            kind: self.value_kind(),
            bytes: self.value(),
        }
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

    /// Whether it is a plain value without an expiry.
    #[inline(always)]
    pub(crate) fn is_plain_for_ever(&self) -> bool {
        lengths(self.head) & FREE == 0 && self.head[YOUNG_AT] & MEMBERS == 0
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

#[inline]
pub(super) fn set_flags(head: &mut Head, flags: u32) {
    set_lengths(head, lengths(head) | flags);
}

#[inline]
pub(super) fn small_value_len(head: &Head) -> usize {
    (lengths(head) & ((1 << KEY_SHIFT) - 1)) as usize
}

#[inline]
pub(super) fn set_small_value_len(head: &mut Head, len: usize) {
    let len = u32::try_from(len).expect("small");
    set_lengths(head, lengths(head) >> KEY_SHIFT << KEY_SHIFT | len);
}

/// Compares keys eight bytes at a time: they are too short for a call to pay.
#[inline(always)]
pub(crate) fn is_same_key(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    match (a.first_chunk::<8>(), b.first_chunk::<8>()) {
        // Of up to sixteen bytes the first eight and the last eight are all.
        (Some(a_first), Some(b_first)) if a.len() <= 16 => {
            a_first == b_first && a.last_chunk::<8>() == b.last_chunk::<8>()
        }
        _ => is_same_rest(a, b),
    }
}

/// The same of keys of equal length.
#[inline]
fn is_same_rest(a: &[u8], b: &[u8]) -> bool {
    let ((a_eights, a_rest), (b_eights, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let are_same = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) == u64::from_le_bytes(*b);
    a_eights.iter().zip(b_eights).all(are_same) && a_rest.iter().zip(b_rest).all(|(a, b)| a == b)
}

/// Writes a value and the expiry behind it to the start of `into`.
pub(super) fn put(into: &mut [u8], value: &[u8], expiry_ms: Option<u64>) {
    into[..value.len()].copy_from_slice(value);
    if let Some(expiry_ms) = expiry_ms {
        into[value.len()..][..EXPIRY_BYTES].copy_from_slice(&expiry_ms.to_le_bytes());
    }
}
