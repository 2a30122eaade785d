//! SCAN: the request item for the next keys in the order of slots and key hashes, and the page of
//! keys that answers it.

use crate::batch::{padded, push_padded, read_u16, read_u32, read_u64};
use crate::limits::{KEY_BYTES_MAX, SCAN_BYTES_MAX, SCAN_BYTES_MIN, SCAN_ENTRIES_MAX};
use crate::refusal::Refusal;
use crate::request::verb::Verb;
use crate::version::Version;

/// The number of the operation in an item.
pub const SCAN: u8 = Verb::Scan as u8;
const FLAG_VALUES: u8 = 0x01;
const FLAG_TYPES: u8 = 0x02;
const BLOCK_BYTES: usize = 32;
const PAGE_HEAD_BYTES: usize = 16;
/// Bytes of an entry of a page before its key.
pub const SCAN_ENTRY_BYTES: usize = 24;
const ENTRY_FLAG_VALUE: u8 = 0x01;
const ENTRY_FLAG_LEFT_OUT: u8 = 0x02;
const ENTRY_FLAG_TYPE: u8 = 0x04;

/// One step of a scan, as a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanRequest<'a> {
    /// Where to go on: 0 at the begin, then the cursor of the page before.
    pub cursor: u64,
    /// Only keys that begin with these bytes are wanted.
    pub prefix: &'a [u8],
    /// Keys of the page, at most.
    pub entries_max: u32,
    /// Bytes of the page, at most. Keys of one hash come in one page, so a few of them may exceed
    /// it.
    pub bytes_max: u32,
    /// Values are wanted beside the keys.
    pub wants_values: bool,
    /// The types of the values are wanted in their place, by the server itself alone.
    pub wants_types: bool,
}

impl<'a> ScanRequest<'a> {
    /// The first step over all keys with a prefix: no values, and pages as large as they may be.
    #[must_use]
    pub fn begin(prefix: &'a [u8]) -> Self {
        ScanRequest {
            cursor: 0,
            prefix,
            entries_max: SCAN_ENTRIES_MAX,
            bytes_max: SCAN_BYTES_MAX,
            wants_values: false,
            wants_types: false,
        }
    }

    /// Reads one item.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(item: &'a [u8]) -> Result<Self, Refusal> {
        let length = |needed: usize| Refusal::ItemLength {
            len: item.len(),
            needed: needed as u64,
        };
        let head = item
            .first_chunk::<BLOCK_BYTES>()
            .ok_or(length(BLOCK_BYTES))?;
        let [operation, flags, key_count, instruction_count] = [head[2], head[3], head[4], head[5]];
        if operation != SCAN {
            return Err(Refusal::Operation(operation));
        }
        if !matches!(flags, 0 | FLAG_VALUES | FLAG_TYPES) {
            return Err(Refusal::OperationFlags { operation, flags });
        }
        if key_count != 1 {
            return Err(Refusal::KeyCount {
                operation,
                count: key_count,
            });
        }
        if instruction_count != 0 {
            return Err(Refusal::InstructionCount {
                operation,
                count: instruction_count,
            });
        }
        if usize::from(read_u16(head, 0)) != BLOCK_BYTES {
            return Err(Refusal::BlockLength {
                found: read_u16(head, 0),
                expected: BLOCK_BYTES,
            });
        }
        let reserved = u64::from(read_u16(head, 6))
            | u64::from(read_u16(head, 10)) << 16
            | u64::from(read_u32(head, 12)) << 32;
        if reserved != 0 {
            return Err(Refusal::Reserved {
                name: "what stands around the prefix length of SCAN",
                found: reserved,
            });
        }
        let within = |name, found: u32, min: u32, max: u32| match (min..=max).contains(&found) {
            true => Ok(found),
            false => Err(Refusal::ScanLimit {
                name,
                found,
                min,
                max,
            }),
        };
        let key_bytes_max = u32::try_from(KEY_BYTES_MAX).expect("a small constant");
        let prefix_len = within("prefix bytes", read_u16(head, 8).into(), 0, key_bytes_max)?;
        let entries_max = within("entries", read_u32(head, 24), 1, SCAN_ENTRIES_MAX)?;
        let bytes_max = within("bytes", read_u32(head, 28), SCAN_BYTES_MIN, SCAN_BYTES_MAX)?;
        let end = BLOCK_BYTES + prefix_len as usize;
        if item.len() != padded(end) {
            return Err(length(padded(end)));
        }
        if item[end..].iter().any(|&byte| byte != 0) {
            return Err(Refusal::Padding {
                behind: "the prefix",
            });
        }
        Ok(ScanRequest {
            cursor: read_u64(head, 16),
            prefix: &item[BLOCK_BYTES..end],
            entries_max,
            bytes_max,
            wants_values: flags & FLAG_VALUES != 0,
            wants_types: flags & FLAG_TYPES != 0,
        })
    }

    /// Appends the item. The server refuses an item whose prefix is longer than a key may be.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut block = [0; BLOCK_BYTES];
        block[0] = BLOCK_BYTES.to_le_bytes()[0];
        block[2] = SCAN;
        block[3] = match (self.wants_values, self.wants_types) {
            (true, _) => FLAG_VALUES,
            (false, true) => FLAG_TYPES,
            (false, false) => 0,
        };
        block[4] = 1;
        let prefix_len = u16::try_from(self.prefix.len()).unwrap_or(u16::MAX);
        block[8..10].copy_from_slice(&prefix_len.to_le_bytes());
        block[16..24].copy_from_slice(&self.cursor.to_le_bytes());
        block[24..28].copy_from_slice(&self.entries_max.to_le_bytes());
        block[28..32].copy_from_slice(&self.bytes_max.to_le_bytes());
        out.extend_from_slice(&block);
        push_padded(out, self.prefix);
    }
}

/// One key of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its version.
    pub version: Version,
    /// Its value.
    pub value: ScanValue<'a>,
}

/// The value in an entry of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanValue<'a> {
    /// The request did not ask for values.
    NotAsked,
    /// The whole value.
    Bytes(&'a [u8]),
    /// The value is longer than a page may be, and a GET brings it. Or the key has members.
    LeftOut,
    /// The number of the type of its members; 0 of a plain value.
    Type(u8),
}

impl ScanEntry<'_> {
    /// Bytes of the entry in a page.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        let value = match self.value {
            ScanValue::Bytes(value) => padded(value.len()),
            ScanValue::NotAsked | ScanValue::LeftOut | ScanValue::Type(_) => 0,
        };
        SCAN_ENTRY_BYTES + padded(self.key.len()) + value
    }
}

/// Writes a page at the end of a buffer.
#[derive(Debug)]
pub struct ScanPageWriter {
    start: usize,
    entries: u32,
}

impl ScanPageWriter {
    /// Starts a page.
    #[must_use]
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.resize(start + PAGE_HEAD_BYTES, 0);
        ScanPageWriter { start, entries: 0 }
    }

    /// Entries so far.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self, out: &[u8]) -> usize {
        out.len() - self.start
    }

    /// Adds a key.
    pub fn push(&mut self, out: &mut Vec<u8>, entry: &ScanEntry<'_>) {
        let (flags, value) = match entry.value {
            ScanValue::NotAsked => (0, &[][..]),
            ScanValue::Bytes(value) => (ENTRY_FLAG_VALUE, value),
            ScanValue::LeftOut => (ENTRY_FLAG_LEFT_OUT, &[][..]),
            ScanValue::Type(_) => (ENTRY_FLAG_TYPE, &[][..]),
        };
        let mut head = [0; SCAN_ENTRY_BYTES];
        let key_len = u16::try_from(entry.key.len()).expect("keys have at most 1 KiB");
        let value_len = u32::try_from(value.len()).expect("values have at most 16 MiB");
        head[0..2].copy_from_slice(&key_len.to_le_bytes());
        head[2] = flags;
        if let ScanValue::Type(number) = entry.value {
            head[3] = number;
        }
        head[4..8].copy_from_slice(&value_len.to_le_bytes());
        head[8..12].copy_from_slice(&entry.version.epoch.to_le_bytes());
        head[16..24].copy_from_slice(&entry.version.sequence.to_le_bytes());
        out.extend_from_slice(&head);
        push_padded(out, entry.key);
        push_padded(out, value);
        self.entries += 1;
    }

    /// Ends the page. `cursor` is where the next step goes on, 0 if all keys were passed.
    pub fn finish(self, out: &mut [u8], cursor: u64) {
        let head = &mut out[self.start..self.start + PAGE_HEAD_BYTES];
        head[0..8].copy_from_slice(&cursor.to_le_bytes());
        head[8..12].copy_from_slice(&self.entries.to_le_bytes());
    }
}

/// A page as a view: the value of the reply item of a SCAN.
#[derive(Clone, Copy, Debug)]
pub struct ScanPage<'a> {
    /// Where the next step goes on; 0 if all keys were passed.
    pub cursor: u64,
    count: u32,
    entries: &'a [u8],
}

impl<'a> ScanPage<'a> {
    /// Checks a whole page.
    ///
    /// # Errors
    /// [`Refusal::ScanPage`] that names the entry that does not fit.
    pub fn read(page: &'a [u8]) -> Result<Self, Refusal> {
        let head = page
            .first_chunk::<PAGE_HEAD_BYTES>()
            .ok_or(Refusal::ScanPage { entry: 0 })?;
        let count = read_u32(head, 8);
        let entries = &page[PAGE_HEAD_BYTES..];
        let mut rest = entries;
        for entry in 0..count {
            rest = split_entry(rest)
                .filter(|_| read_u32(head, 12) == 0)
                .ok_or(Refusal::ScanPage { entry })?
                .1;
        }
        match rest.is_empty() && read_u32(head, 12) == 0 {
            true => Ok(ScanPage {
                cursor: read_u64(head, 0),
                count,
                entries,
            }),
            false => Err(Refusal::ScanPage { entry: count }),
        }
    }

    /// Keys of the page.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the page has no key. The scan ends only where the cursor is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The keys, in the order of their slots and hashes.
    pub fn entries(&self) -> impl Iterator<Item = ScanEntry<'a>> + use<'a> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let (entry, behind) = split_entry(rest)?;
            rest = behind;
            Some(entry)
        })
    }
}

/// The first entry and the bytes behind it. `None` if the entry breaks the documented form.
fn split_entry(bytes: &[u8]) -> Option<(ScanEntry<'_>, &[u8])> {
    let head = bytes.first_chunk::<SCAN_ENTRY_BYTES>()?;
    let (key_len, value_len) = (usize::from(read_u16(head, 0)), read_u32(head, 4) as usize);
    let is_clean = (head[3] == 0 || head[2] == ENTRY_FLAG_TYPE)
        && read_u32(head, 12) == 0
        && (1..=KEY_BYTES_MAX).contains(&key_len);
    let (key, rest) = split_padded(&bytes[SCAN_ENTRY_BYTES..], key_len)?;
    let (value, rest) = split_padded(rest, value_len)?;
    let value = match head[2] {
        0 if value.is_empty() => ScanValue::NotAsked,
        ENTRY_FLAG_VALUE => ScanValue::Bytes(value),
        ENTRY_FLAG_LEFT_OUT if value.is_empty() => ScanValue::LeftOut,
        ENTRY_FLAG_TYPE if value.is_empty() => ScanValue::Type(head[3]),
        _ => return None,
    };
    let version = Version {
        epoch: read_u32(head, 8),
        sequence: read_u64(head, 16),
    };
    is_clean.then_some((
        ScanEntry {
            key,
            version,
            value,
        },
        rest,
    ))
}

fn split_padded(bytes: &[u8], len: usize) -> Option<(&[u8], &[u8])> {
    // The length comes from the wire and has no bound yet, so the sum may overflow.
    let (whole, rest) = bytes.split_at_checked(len.checked_next_multiple_of(8)?)?;
    let (field, padding) = whole.split_at(len);
    padding
        .iter()
        .all(|&byte| byte == 0)
        .then_some((field, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_as_it_was_written_and_no_cut_or_flip_of_its_frame_is_a_panic() {
        let version = Version {
            epoch: 256,
            sequence: 7,
        };
        let entries = [
            (&b"k"[..], ScanValue::NotAsked),
            (b"stock:42", ScanValue::Bytes(b"")),
            (b"stock:4711", ScanValue::Bytes(b"0123456789")),
            (b"big", ScanValue::LeftOut),
        ]
        .map(|(key, value)| ScanEntry {
            key,
            version,
            value,
        });
        let mut page = vec![9; 5];
        let mut writer = ScanPageWriter::begin(&mut page);
        let mut bytes = writer.bytes(&page);
        for entry in &entries {
            writer.push(&mut page, entry);
            bytes += entry.encoded_bytes();
            assert_eq!(writer.bytes(&page), bytes);
        }
        writer.finish(&mut page, 1 << 40);
        let page = &page[5..];
        let read = ScanPage::read(page).expect("as written");
        assert_eq!((read.cursor, read.len()), (1 << 40, 4));
        assert!(read.entries().eq(entries));
        for cut in 0..page.len() {
            assert!(ScanPage::read(&page[..cut]).is_err(), "cut at {cut}");
        }
        for bit in 0..page.len() * 8 {
            let mut flipped = page.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = ScanPage::read(&flipped) {
                assert_eq!(read.entries().count(), read.len(), "bit {bit}");
            }
        }
    }
}
