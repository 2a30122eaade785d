//! The head of an item: 16 bytes, the same for all verbs.

use crate::batch::{padded, read_u16, read_u32};
use crate::limits::RESERVED_KEY;
use crate::refusal::Refusal;

/// Bytes of an item before its condition, instructions, extension and data.
pub const ITEM_HEADER_BYTES: usize = 16;

/// The head of an item. Nothing of it is checked.
pub(super) struct Head {
    pub(super) block_len: u16,
    pub(super) operation: u8,
    pub(super) flags: u8,
    pub(super) key_count: u8,
    pub(super) instruction_count: u8,
    pub(super) extension_len: u16,
    pub(super) key_len: u16,
    pub(super) second_len: u16,
    pub(super) value_len: u32,
}

impl Head {
    pub(super) fn read(item: &[u8]) -> Result<Self, Refusal> {
        let bytes = item.first_chunk::<ITEM_HEADER_BYTES>();
        let bytes = bytes.ok_or(Refusal::ItemLength {
            len: item.len(),
            needed: ITEM_HEADER_BYTES as u64,
        })?;
        Ok(Head {
            block_len: read_u16(bytes, 0),
            operation: bytes[2],
            flags: bytes[3],
            key_count: bytes[4],
            instruction_count: bytes[5],
            extension_len: read_u16(bytes, 6),
            key_len: read_u16(bytes, 8),
            second_len: read_u16(bytes, 10),
            value_len: read_u32(bytes, 12),
        })
    }
}

/// Whether a key is one of the server's own. Nearly no key of a client begins with a zero.
#[inline]
pub(crate) fn is_reserved(key: &[u8]) -> bool {
    key.first() == Some(&RESERVED_KEY[0]) && key.starts_with(RESERVED_KEY)
}

/// The first key of an unchecked item. The key is a hint and may be wrong.
#[inline]
#[must_use]
pub fn likely_key(item: &[u8]) -> Option<&[u8]> {
    let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
    let start = usize::from(read_u16(head, 0));
    item.get(start..start + usize::from(read_u16(head, 8)))
}

/// A field whose padding is zero. The caller knows that it lies within `item`.
#[inline]
pub(crate) fn field<'a>(
    item: &'a [u8],
    start: usize,
    len: usize,
    name: &'static str,
) -> Result<&'a [u8], Refusal> {
    let whole = &item[start..start + padded(len)];
    // The padding is the high bytes of the last eight.
    let used = len % 8;
    if used != 0
        && let Some(last) = whole.last_chunk::<8>()
        && u64::from_le_bytes(*last) >> (8 * used) != 0
    {
        return Err(Refusal::Padding { behind: name });
    }
    Ok(&whole[..len])
}
