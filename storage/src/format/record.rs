//! The record: one commit of one request, written as 1 to 4,096 self-contained parts.
//!
//! A part carries everything that a reader needs (slot, version, time, key, value, its own CRC), so
//! it can be read, cleaned or shipped alone and unchanged. There is no record header besides: the
//! parts of a record stand side by side in one frame and tell their ordinal and their number.
//! Every byte is described in `FORMAT.md`.

mod items;
mod kinds;
mod number;
mod of_parts;
mod spec;

use crate::format::checksum::crc32;
use crate::format::extension;
use crate::planted::{self, Bug, is_planted};
use crate::types::version::Version;

pub use number::{NUMBER_BYTES, number_bytes};
pub use of_parts::OfParts;
pub use spec::{KindedValue, PartKind, PartSpec, RecordSpec, ValueKind, part_bytes};

/// Bytes of a part before its key.
pub const PART_HEADER_BYTES: usize = 40;
/// Parts of one record, at most.
pub const PARTS_MAX: usize = 4096;
/// Parts of a record whose parts are not numbered, at most: the others have four bits for that.
pub const FEW_PARTS_MAX: usize = 9;
/// Bytes of a key, at most.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a value, at most.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

const FLAG_EXPIRY: u8 = 1;
const FLAG_EXTENSION: u8 = 2;
const FLAG_CLEANED: u8 = 4;
const FLAG_CROWDED: u8 = 8;
const FLAG_SUPERSEDED: u8 = 16;
const FLAG_NUMBERED: u8 = 32;
const FLAGS_KNOWN: u8 =
    FLAG_EXPIRY | FLAG_EXTENSION | FLAG_CLEANED | FLAG_CROWDED | FLAG_SUPERSEDED | FLAG_NUMBERED;
/// Bytes that a copy of a superseded version may have more than the part.
pub const SUCCESSOR_BYTES: usize = extension::SUCCESSOR_AREA_BYTES;
const TIME_BITS: u32 = 48;
/// Where the CRC stands, of what is behind it.
pub(super) const CRC_AT: usize = 4;
/// The largest sequence: more than any partition ever has.
pub const SEQUENCE_MAX: u64 = (1 << 48) - 1;
/// The latest expiry, in unix milliseconds.
pub const EXPIRY_MS_MAX: u64 = (1 << TIME_BITS) - 1;

#[inline]
pub(super) const fn padded(len: usize) -> usize {
    (len + 7) & !7
}

impl RecordSpec<'_> {
    /// The encoded size of the record, in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().enumerate();
        let bytes = parts.map(|(ordinal, part)| {
            let expires = part.expiry_ms.is_some();
            let extension_len = self.area(ordinal).len();
            part_bytes(part.key.len(), part.value.len(), expires, extension_len)
        });
        bytes.sum::<usize>() + self.parts.len() * number_bytes(self.parts.len())
    }

    /// The extension area of a part, or nothing.
    #[inline]
    fn area(&self, ordinal: usize) -> &[u8] {
        self.extension.get(ordinal).copied().unwrap_or_default()
    }

    /// Encodes part `ordinal` to the start of `into` and returns its size.
    ///
    /// # Panics
    /// If a length is outside its limit or `into` is too short: the caller checks both before.
    #[inline]
    pub fn encode_part(&self, ordinal: usize, into: &mut [u8]) -> usize {
        let part = &self.parts[ordinal];
        assert!(
            (1..=KEY_BYTES_MAX).contains(&part.key.len()),
            "key length {}",
            part.key.len()
        );
        assert!(
            part.value.len() <= VALUE_BYTES_MAX,
            "value length {}",
            part.value.len()
        );
        assert!(part.expiry_ms.is_none_or(|ms| ms <= EXPIRY_MS_MAX));
        let extension = self.area(ordinal);
        assert!(extension.is_empty() || extension::check(extension).is_some());
        assert!(part.kind == PartKind::Put || part.value.is_empty());
        assert!(kinds::may_be(part), "a head is one, and of a client's key");
        let number_bytes = number_bytes(self.parts.len());
        let len = part_bytes(
            part.key.len(),
            part.value.len(),
            part.expiry_ms.is_some(),
            extension.len(),
        ) + number_bytes;
        let into = &mut into[..len];
        let (header, body) = into
            .split_first_chunk_mut::<PART_HEADER_BYTES>()
            .expect("len covers the header");
        self.put_header(ordinal, len, header);

        let rest = put_padded(body, part.key);
        let rest = put_padded(rest, part.value);
        let rest = match part.expiry_ms {
            Some(expiry_ms) => put_padded(rest, &expiry_ms.to_le_bytes()),
            None => rest,
        };
        let rest = match number_bytes {
            0 => rest,
            _ => put_padded(rest, &number::encode(ordinal, self.parts.len())),
        };
        rest.copy_from_slice(extension);
        let crc = crc32(&into[8..]);
        into[4..8].copy_from_slice(&crc.to_le_bytes());
        len
    }

    /// Puts the header of part `ordinal`, which has `len` bytes, but for its CRC.
    #[inline(always)]
    pub(super) fn put_header(
        &self,
        ordinal: usize,
        len: usize,
        header: &mut [u8; PART_HEADER_BYTES],
    ) {
        let part = &self.parts[ordinal];
        assert!(self.parts.len() <= PARTS_MAX && self.time_ms >> TIME_BITS == 0);
        assert!((1..=SEQUENCE_MAX).contains(&self.sequence));
        let mut flags = 0;
        if part.expiry_ms.is_some() {
            flags |= FLAG_EXPIRY;
        }
        if !self.area(ordinal).is_empty() {
            flags |= FLAG_EXTENSION;
        }
        if part.is_crowded {
            flags |= FLAG_CROWDED;
        }
        let kind = match part.kind {
            PartKind::Put => 1,
            PartKind::Tombstone => 2,
        };
        let numbers = match self.parts.len() > FEW_PARTS_MAX {
            false => (self.parts.len() << 4) | ordinal,
            true => {
                flags |= FLAG_NUMBERED;
                0
            }
        };
        header[0..4].copy_from_slice(&low_u32(len).to_le_bytes());
        header[8] = kind;
        header[9] = flags;
        header[10] = numbers.to_le_bytes()[0];
        header[11] = planted::or(Bug::MembersUnlogged, 0, kinds::encoding(part.value_kind));
        header[12..14].copy_from_slice(&self.slot.to_le_bytes());
        header[14..16].copy_from_slice(&low_u32(part.key.len()).to_le_bytes()[..2]);
        header[16..20].copy_from_slice(&low_u32(part.value.len()).to_le_bytes());
        header[20..24].copy_from_slice(&self.epoch.to_le_bytes());
        header[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        let time_and_layout = self.time_ms | (u64::from(part.layout) << TIME_BITS);
        header[32..40].copy_from_slice(&time_and_layout.to_le_bytes());
    }
}

/// Makes an encoded part a record of its own that cleaning wrote.
fn seal_moved(is_crowded: bool, part: &mut [u8]) {
    part[9] = (part[9] & !FLAG_CROWDED) | FLAG_CLEANED;
    if is_crowded {
        part[9] |= FLAG_CROWDED;
    }
    part[10] = 1 << 4;
    let crc = crc32(&part[8..]);
    part[4..8].copy_from_slice(&crc.to_le_bytes());
}

#[inline]
fn put_padded<'a>(into: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (field, rest) = into.split_at_mut(padded(bytes.len()));
    if !is_planted(Bug::KeepOldPadding) {
        // One store for the padding, whatever its length.
        *field.last_chunk_mut().unwrap_or(&mut [0; 8]) = [0; 8];
    }
    field[..bytes.len()].copy_from_slice(bytes);
    rest
}

#[inline]
fn low_u32(len: usize) -> u32 {
    u32::try_from(len).expect("lengths are bounded by the record limits")
}

/// Why bytes are not a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartError {
    /// Lengths, padding or CRC do not agree: not what was written.
    Damaged,
    /// A kind, flag or encoding of another format version.
    Unsupported {
        /// The kind.
        kind: u8,
        /// The flags.
        flags: u8,
        /// The value encoding.
        encoding: u8,
    },
}

/// A part that was read and checked whole.
#[derive(Clone, Copy, Debug)]
pub struct PartView<'a> {
    bytes: &'a [u8],
    kind: PartKind,
    key_len: usize,
    value_len: usize,
}

impl<'a> PartView<'a> {
    /// Reads the part at the start of `bytes`, checking every field before it is used.
    ///
    /// # Errors
    /// [`PartError`] if it is damaged or of an unknown kind.
    pub fn read(bytes: &'a [u8]) -> Result<Self, PartError> {
        let header = bytes
            .first_chunk::<PART_HEADER_BYTES>()
            .ok_or(PartError::Damaged)?;
        let len = read_u32(&header[0..4]) as usize;
        if len < PART_HEADER_BYTES || !len.is_multiple_of(8) {
            return Err(PartError::Damaged);
        }
        let bytes = bytes.get(..len).ok_or(PartError::Damaged)?;
        if crc32(&bytes[8..]) != read_u32(&header[4..8]) {
            return Err(PartError::Damaged);
        }
        let [kind, flags, numbers, encoding] = [header[8], header[9], header[10], header[11]];
        let kind = match kind {
            1 => PartKind::Put,
            2 => PartKind::Tombstone,
            _ => {
                return Err(PartError::Unsupported {
                    kind,
                    flags,
                    encoding,
                });
            }
        };
        if flags & !FLAGS_KNOWN != 0 || encoding > kinds::ENCODING_HEAD {
            return Err(PartError::Unsupported {
                kind: header[8],
                flags,
                encoding,
            });
        }
        let key_len = usize::from(u16::from_le_bytes([header[14], header[15]]));
        let value_len = read_u32(&header[16..20]) as usize;
        let is_numbered = flags & FLAG_NUMBERED != 0;
        let (ordinal, count) = (numbers & 15, numbers >> 4);
        let is_placed = match is_numbered {
            false => (1..=FEW_PARTS_MAX).contains(&usize::from(count)) && ordinal < count,
            // The number tells, and is read below. A copy by cleaning is a record alone.
            true => numbers == 0 && flags & FLAG_CLEANED == 0,
        };
        let bounded = (1..=KEY_BYTES_MAX).contains(&key_len)
            && value_len <= VALUE_BYTES_MAX
            && is_placed
            && u16::from_le_bytes([header[12], header[13]]) < crate::types::version::SLOTS
            && (kind == PartKind::Put || value_len == 0);
        if !bounded {
            return Err(PartError::Damaged);
        }
        let part = PartView {
            bytes,
            kind,
            key_len,
            value_len,
        };
        let number_at = part_bytes(key_len, value_len, flags & FLAG_EXPIRY != 0, 0);
        let fixed = number_at + if is_numbered { NUMBER_BYTES } else { 0 };
        let extended = flags & FLAG_EXTENSION != 0;
        let padding_clean = |start: usize, len: usize| {
            bytes
                .get(start + len..start + padded(len))
                .is_some_and(|p| p.iter().all(|&b| b == 0))
        };
        if fixed > len
            || (extended != (len > fixed))
            || !(1..=SEQUENCE_MAX).contains(&part.sequence())
            || part.expiry_ms().is_some_and(|ms| ms > EXPIRY_MS_MAX)
            || !padding_clean(PART_HEADER_BYTES, key_len)
            || !padding_clean(PART_HEADER_BYTES + padded(key_len), value_len)
            || is_numbered && !number::is_sound(&bytes[number_at..fixed])
        {
            return Err(PartError::Damaged);
        }
        if extended && !extension::check(&bytes[fixed..]).ok_or(PartError::Damaged)? {
            return Err(PartError::Unsupported {
                kind: header[8],
                flags,
                encoding,
            });
        }
        if extended && !items::are_sound(&part, &bytes[fixed..]) {
            return Err(PartError::Damaged);
        }
        if encoding != 0 {
            kinds::check(&part)?;
        }
        if part.is_superseded() {
            let is_copy = flags & FLAG_CLEANED != 0;
            // A value that is never the newest says what took its place.
            if !is_copy || (kind == PartKind::Put && part.successor().is_none()) {
                return Err(PartError::Damaged);
            }
        }
        Ok(part)
    }

    /// Slot and key of the part at the start of `bytes`, if it is one, without checking that: good
    /// for loading early what it will need and nothing else.
    #[must_use]
    pub fn guess(bytes: &[u8]) -> Option<(u16, &[u8])> {
        let header = bytes.first_chunk::<PART_HEADER_BYTES>()?;
        let slot = u16::from_le_bytes([header[12], header[13]]);
        let key_len = usize::from(u16::from_le_bytes([header[14], header[15]]));
        let key = bytes.get(PART_HEADER_BYTES..PART_HEADER_BYTES + key_len)?;
        (slot < crate::types::version::SLOTS).then_some((slot, key))
    }

    /// The part at the start of bytes that [`PartView::read`] has checked and that stand in memory
    /// since, or that were just encoded.
    ///
    /// # Panics
    /// If they end before the part does.
    #[inline]
    #[must_use]
    pub fn again(bytes: &'a [u8]) -> Self {
        let header = bytes
            .first_chunk::<PART_HEADER_BYTES>()
            .expect("it was read");
        let len = read_u32(&header[0..4]) as usize;
        assert!(len >= PART_HEADER_BYTES, "it was read");
        PartView {
            bytes: &bytes[..len],
            kind: match header[8] {
                2 => PartKind::Tombstone,
                _ => PartKind::Put,
            },
            key_len: usize::from(u16::from_le_bytes([header[14], header[15]])),
            value_len: read_u32(&header[16..20]) as usize,
        }
    }

    /// The encoded part.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Put or tombstone.
    #[must_use]
    pub fn kind(&self) -> PartKind {
        self.kind
    }

    /// Encodes a copy of the part as a record of its own, with the same version and time, to the
    /// start of `into`, and returns its size. As a tombstone it has neither value nor expiry.
    /// `is_crowded` as for [`PartSpec`], but for a tombstone also if the key itself is in the
    /// index.
    ///
    /// # Panics
    /// If `into` is too short.
    pub fn encode_moved(&self, kind: PartKind, is_crowded: bool, into: &mut [u8]) -> usize {
        let len = if kind == self.kind {
            self.copy_alone(into)
        } else {
            assert!(kind == PartKind::Tombstone, "nothing becomes a put");
            let part = PartSpec {
                kind,
                key: self.key(),
                value: &[],
                value_kind: ValueKind::Plain,
                expiry_ms: None,
                layout: 0,
                is_crowded: false,
            };
            let record = RecordSpec {
                slot: self.slot(),
                epoch: self.epoch(),
                sequence: self.sequence(),
                time_ms: self.time_ms(),
                parts: &[part],
                extension: &[],
            };
            record.encode_part(0, into)
        };
        let into = &mut into[..len];
        if kind == PartKind::Tombstone {
            // Versions before and behind this deletion may be gone, so it says nothing about the
            // past.
            into[9] |= FLAG_SUPERSEDED;
        }
        seal_moved(is_crowded, into);
        len
    }

    /// Encodes a copy of a deletion that is kept and the newest of its key, as a record of its own,
    /// to the start of `into`, and returns its size.
    ///
    /// # Panics
    /// If `into` is too short.
    pub fn encode_deletion(&self, is_crowded: bool, into: &mut [u8]) -> usize {
        let len = self.copy_alone(into);
        seal_moved(is_crowded, &mut into[..len]);
        len
    }

    /// Copies the part without its number to the start of `into`, and returns how many bytes it has
    /// there. Its CRC is that of the part with its number.
    #[inline]
    fn copy_alone(&self, into: &mut [u8]) -> usize {
        if self.bytes[9] & FLAG_NUMBERED == 0 {
            into[..self.bytes.len()].copy_from_slice(self.bytes);
            return self.bytes.len();
        }
        let behind = self.extension();
        let number_at = self.bytes.len() - behind.len() - NUMBER_BYTES;
        let len = number_at + behind.len();
        into[..number_at].copy_from_slice(&self.bytes[..number_at]);
        into[number_at..len].copy_from_slice(behind);
        into[0..4].copy_from_slice(&low_u32(len).to_le_bytes());
        into[9] &= !FLAG_NUMBERED;
        len
    }

    /// Encodes a copy of a version that is kept and that `successor` superseded, as a record of its
    /// own, to the start of `into`, and returns its size: at most [`SUCCESSOR_BYTES`] more than the
    /// part has.
    ///
    /// # Panics
    /// If `into` is too short.
    pub fn encode_superseded(
        &self,
        successor: Version,
        is_crowded: bool,
        into: &mut [u8],
    ) -> usize {
        if self.successor().is_some() {
            let len = self.copy_alone(into);
            seal_moved(is_crowded, &mut into[..len]);
            return len;
        }
        let before = self.copy_alone(into);
        let area_start = before - self.extension().len();
        let len = area_start + extension::with_successor_bytes(self.extension());
        let into = &mut into[..len];
        into[before..].fill(0);
        extension::add_successor(successor, &mut into[area_start..]);
        into[0..4].copy_from_slice(&low_u32(len).to_le_bytes());
        into[9] |= FLAG_EXTENSION;
        if self.kind == PartKind::Put {
            into[9] |= FLAG_SUPERSEDED;
        }
        seal_moved(is_crowded, into);
        len
    }

    /// Whether cleaning appended it, as a copy of one that stood elsewhere.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.bytes[9] & FLAG_CLEANED != 0
    }

    /// Whether another key of the same hash may have been in the index when the part was appended.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.bytes[9] & FLAG_CROWDED != 0
    }

    /// Whether the part was superseded when it was copied. A superseded value is never the newest
    /// of its key, whatever else is there. A superseded deletion says nothing about the versions
    /// before or behind it.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.bytes[9] & FLAG_SUPERSEDED != 0
    }

    /// The version that took its place, if it tells.
    #[must_use]
    pub fn successor(&self) -> Option<Version> {
        extension::successor(self.extension())
    }

    /// What runs when the key expires, if it tells.
    #[inline]
    #[must_use]
    pub fn effects(&self) -> Option<&'a [u8]> {
        match self.bytes[9] & FLAG_EXTENSION {
            0 => None,
            _ => extension::effects(self.extension()),
        }
    }

    /// Position of the part in its record.
    #[inline]
    #[must_use]
    pub fn ordinal(&self) -> usize {
        match self.bytes[10] {
            0 => usize::from(self.number()[0]),
            numbers => usize::from(numbers & 15),
        }
    }

    /// Parts of its record.
    #[inline]
    #[must_use]
    pub fn count(&self) -> usize {
        match self.bytes[10] {
            0 => usize::from(self.number()[1]),
            numbers => usize::from(numbers >> 4),
        }
    }

    /// What the number of a numbered part tells: its ordinal, and the parts of its record.
    #[cold]
    fn number(&self) -> [u16; 2] {
        let behind = self.bytes.len() - self.extension().len();
        number::read(&self.bytes[behind - NUMBER_BYTES..])
    }

    /// The slot.
    #[must_use]
    pub fn slot(&self) -> u16 {
        u16::from_le_bytes([self.bytes[12], self.bytes[13]])
    }

    /// 24-bit term and 8-bit node ordinal.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        read_u32(&self.bytes[20..24])
    }

    /// How many changes of the key it stands for: 1, or those of a run. They have the sequences up
    /// to its own.
    #[inline]
    #[must_use]
    pub fn changes(&self) -> u64 {
        match self.bytes[9] & FLAG_EXTENSION {
            0 => 1,
            _ => extension::changes(self.extension()).unwrap_or(1),
        }
    }

    /// That of its last change, dense per partition.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        read_u64(&self.bytes[24..32])
    }

    /// Epoch and sequence.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            epoch: self.epoch(),
            sequence: self.sequence(),
        }
    }

    /// Unix milliseconds of the commit.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        read_u64(&self.bytes[32..40]) & ((1 << TIME_BITS) - 1)
    }

    /// The layout of the value.
    #[must_use]
    pub fn layout(&self) -> u16 {
        u16::from_le_bytes([self.bytes[38], self.bytes[39]])
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        &self.bytes[PART_HEADER_BYTES..PART_HEADER_BYTES + self.key_len]
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        let start = PART_HEADER_BYTES + padded(self.key_len);
        &self.bytes[start..start + self.value_len]
    }

    /// The extension area, or nothing.
    #[inline]
    #[must_use]
    pub fn extension(&self) -> &'a [u8] {
        let flags = self.bytes[9];
        let start = part_bytes(self.key_len, self.value_len, flags & FLAG_EXPIRY != 0, 0);
        match flags & FLAG_NUMBERED {
            0 => &self.bytes[start..],
            _ => &self.bytes[start + NUMBER_BYTES..],
        }
    }

    /// Unix milliseconds from which on the key is gone.
    #[must_use]
    pub fn expiry_ms(&self) -> Option<u64> {
        let start = part_bytes(self.key_len, self.value_len, false, 0);
        (self.bytes[9] & FLAG_EXPIRY != 0).then(|| read_u64(&self.bytes[start..start + 8]))
    }
}

pub(crate) fn read_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

pub(crate) fn read_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::extension::EffectsArea;

    fn sample(expiry_ms: Option<u64>, extension: &[u8]) -> Vec<u8> {
        let parts = [
            PartSpec {
                kind: PartKind::Put,
                key: b"stock:42",
                value: &[9, 8, 7],
                expiry_ms,
                value_kind: ValueKind::Plain,
                layout: 513,
                is_crowded: false,
            },
            PartSpec {
                kind: PartKind::Tombstone,
                key: b"{stock:42}x",
                value: &[],
                expiry_ms: None,
                value_kind: ValueKind::Plain,
                layout: 0,
                is_crowded: false,
            },
        ];
        let record = RecordSpec {
            slot: 77,
            epoch: 0x0102_0304,
            sequence: 99,
            time_ms: 1_700_000_000_123,
            parts: &parts,
            extension: &[extension],
        };
        let mut bytes = vec![0xAA; record.bytes()];
        let first = record.encode_part(0, &mut bytes);
        let second = record.encode_part(1, &mut bytes[first..]);
        assert_eq!(first + second, bytes.len());
        bytes
    }

    #[test]
    fn what_was_encoded_is_read_back() {
        let extension = [
            24u8, 0, 1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0, 0,
        ];
        for (expiry, extension) in [
            (None, &[][..]),
            (Some(5), &[][..]),
            (Some(EXPIRY_MS_MAX), &extension[..]),
            (None, &extension[..]),
        ] {
            let bytes = sample(expiry, extension);
            let first = PartView::read(&bytes).unwrap();
            assert_eq!(
                (first.key(), first.value(), first.kind()),
                (&b"stock:42"[..], &[9u8, 8, 7][..], PartKind::Put)
            );
            assert_eq!(
                (
                    first.slot(),
                    first.epoch(),
                    first.sequence(),
                    first.time_ms()
                ),
                (77, 0x0102_0304, 99, 1_700_000_000_123)
            );
            assert_eq!(
                (
                    first.layout(),
                    first.expiry_ms(),
                    first.ordinal(),
                    first.count()
                ),
                (513, expiry, 0, 2)
            );
            let second = PartView::read(&bytes[first.bytes().len()..]).unwrap();
            assert_eq!(
                (second.key(), second.kind(), second.ordinal()),
                (&b"{stock:42}x"[..], PartKind::Tombstone, 1)
            );
        }
    }

    #[test]
    fn a_small_decrement_costs_56_bytes() {
        assert_eq!(part_bytes(8, 8, false, 0), 56);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_part_is_seen() {
        let bytes = sample(Some(7), &[]);
        let len = PartView::read(&bytes).unwrap().bytes().len();
        for bit in 0..len * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(PartView::read(&flipped).is_err(), "bit {bit}");
        }
        for cut in 0..len {
            assert!(PartView::read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn an_item_that_must_be_understood_is_unsupported() {
        let area = [
            24u8, 0, 1, 0, 0, 0, 0, 0, 0, 128, 3, 0, 0, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0, 0,
        ];
        assert!(matches!(
            PartView::read(&sample(None, &area)),
            Err(PartError::Unsupported {
                flags: FLAG_EXTENSION,
                ..
            })
        ));
    }

    #[test]
    fn effects_ride_in_any_part_of_a_put_that_expires_and_in_no_other() {
        let area = EffectsArea::new(b"what runs");
        let read = |kind, expiry_ms, ordinal: usize| {
            let part = PartSpec {
                kind,
                key: b"hold",
                value: &[],
                expiry_ms,
                value_kind: ValueKind::Plain,
                layout: 0,
                is_crowded: false,
            };
            let mut areas = [&[][..]; 3];
            areas[ordinal] = area.bytes();
            let record = RecordSpec {
                slot: 77,
                epoch: 1,
                sequence: 99,
                time_ms: 5,
                parts: &[part; 3],
                extension: &areas,
            };
            let mut bytes = vec![0xAA; record.bytes()];
            let (mut at, mut starts) = (0, [0; 3]);
            for (part, start) in starts.iter_mut().enumerate() {
                *start = at;
                at += record.encode_part(part, &mut bytes[at..]);
            }
            assert_eq!(at, bytes.len());
            let part = PartView::read(&bytes[starts[ordinal]..]);
            part.map(|part| part.effects().map(<[u8]>::to_vec))
        };
        for ordinal in 0..3 {
            let expected = Ok(Some(b"what runs".to_vec()));
            assert_eq!(read(PartKind::Put, Some(5), ordinal), expected);
        }
        let damaged = Err(PartError::Damaged);
        assert_eq!(read(PartKind::Put, None, 1), damaged);
        assert_eq!(read(PartKind::Tombstone, Some(5), 1), damaged);
    }

    #[test]
    fn a_copy_of_a_superseded_value_names_its_successor_and_is_a_record_of_its_own() {
        let successor = Version {
            epoch: 7,
            sequence: 1 << 40,
        };
        let area = [
            24u8, 0, 1, 0, 0, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 5, 6, 7, 0, 0, 0, 0, 0,
        ];
        for (expiry, extension) in [(None, &[][..]), (Some(5), &[]), (None, &area)] {
            let bytes = sample(expiry, extension);
            let part = PartView::read(&bytes).unwrap();
            assert_eq!((part.is_superseded(), part.successor()), (false, None));
            let mut copy = vec![0xAA; part.bytes().len() + SUCCESSOR_BYTES];
            let len = part.encode_superseded(successor, false, &mut copy);
            let moved = PartView::read(&copy[..len]).unwrap();
            assert_eq!(
                (moved.is_superseded(), moved.successor()),
                (true, Some(successor))
            );
            assert_eq!(
                (moved.key(), moved.value(), moved.expiry_ms(), moved.count()),
                (part.key(), part.value(), expiry, 1)
            );
            let mut again = vec![0xAA; len];
            let other = Version::default();
            assert_eq!(moved.encode_superseded(other, false, &mut again), len);
            assert_eq!(again, copy[..len], "a copy of the copy is the same");
        }
    }

    #[test]
    fn a_superseded_part_that_is_no_copy_or_names_no_successor_is_damage() {
        let bytes = sample(None, &[]);
        let first = PartView::read(&bytes).unwrap().bytes().len();
        for (part, flags, is_good) in [
            (&bytes[..first], FLAG_SUPERSEDED, false),
            (&bytes[..first], FLAG_SUPERSEDED | FLAG_CLEANED, false),
            (&bytes[first..], FLAG_SUPERSEDED, false),
            (&bytes[first..], FLAG_SUPERSEDED | FLAG_CLEANED, true),
        ] {
            let mut part = part.to_vec();
            part[9] |= flags;
            let crc = crc32(&part[8..]);
            part[4..8].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(PartView::read(&part).is_ok(), is_good, "flags {flags}");
        }
    }

    #[test]
    fn numbers_that_no_part_has_are_damage_even_under_a_good_crc() {
        let bytes = sample(Some(EXPIRY_MS_MAX), &[]);
        let len = read_u32(&bytes) as usize;
        let with = |at: usize, number: u64| {
            let mut part = bytes[..len].to_vec();
            part[at..at + 8].copy_from_slice(&number.to_le_bytes());
            let crc = crc32(&part[8..]);
            part[4..8].copy_from_slice(&crc.to_le_bytes());
            PartView::read(&part).map(|_| ())
        };
        let (sequence, expiry) = (24, len - 8);
        for at in [sequence, expiry] {
            assert_eq!(with(at, (1 << 48) - 1), Ok(()));
            assert_eq!(with(at, 1 << 48), Err(PartError::Damaged));
            assert_eq!(with(at, u64::MAX), Err(PartError::Damaged));
        }
        assert_eq!(with(sequence, 0), Err(PartError::Damaged));
    }

    #[test]
    fn padding_that_is_not_zero_is_damage_even_under_a_good_crc() {
        let bytes = sample(None, &[]);
        let len = read_u32(&bytes) as usize;
        // The value has three bytes of eight.
        for at in PART_HEADER_BYTES + 8 + 3..len {
            let mut padded = bytes.clone();
            padded[at] = 1;
            let crc = crc32(&padded[8..len]);
            padded[4..8].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(PartView::read(&padded).unwrap_err(), PartError::Damaged);
        }
        let mut second = bytes[len..].to_vec();
        // The key has eleven bytes of sixteen.
        second[PART_HEADER_BYTES + 11] = 1;
        let crc = crc32(&second[8..]);
        second[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(PartView::read(&second).unwrap_err(), PartError::Damaged);
    }

    #[test]
    fn a_part_of_a_later_format_is_unsupported_and_not_damage() {
        let mut bytes = sample(None, &[]);
        bytes[8] = 3;
        let len = read_u32(&bytes) as usize;
        let crc = crc32(&bytes[8..len]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(
            PartView::read(&bytes).unwrap_err(),
            PartError::Unsupported {
                kind: 3,
                flags: 0,
                encoding: 0
            }
        );
    }
}
