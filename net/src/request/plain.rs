//! GET and SET of one key and nothing else, read by two words of their head.

use crate::batch::{padded, read_u16, read_u32, read_u64};
use crate::limits::KEY_BYTES_MAX;
use crate::request::head::{ITEM_HEADER_BYTES, field, is_reserved};
use crate::request::verb::Verb;

/// What a plain item asks: no flags, no condition, no expiry, no extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain<'a> {
    /// GET of the value.
    Get,
    /// SET to a value, whatever the key has.
    Set {
        /// The key and the value behind it, each with zeros up to a multiple of 8.
        body: &'a [u8],
        /// Bytes of the value.
        value_len: usize,
    },
}

/// The first word of the head: the length of the block, the operation, and one key.
const fn first_word(verb: Verb) -> u64 {
    ITEM_HEADER_BYTES as u64 | (verb as u64) << 16 | 1 << 32
}

const GET: u64 = first_word(Verb::Get);
const SET: u64 = first_word(Verb::Set);

/// The key of a plain item and what it asks. `None`: it is something else, or
/// [`crate::request::Request::read`] refuses it.
#[inline(always)]
#[must_use]
pub fn plain(item: &[u8], value_bytes_max: u32) -> Option<(&[u8], Plain<'_>)> {
    let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
    match read_u64(head, 0) {
        GET => Some((plain_get(head, item)?, Plain::Get)),
        SET => plain_set(head, item, value_bytes_max),
        _ => None,
    }
}

#[inline(always)]
fn plain_get<'a>(head: &[u8; ITEM_HEADER_BYTES], item: &'a [u8]) -> Option<&'a [u8]> {
    // The second word is the length of the key and zeros.
    let key_len = usize::try_from(read_u64(head, 8)).ok()?;
    let is_good =
        (1..=KEY_BYTES_MAX).contains(&key_len) && item.len() == ITEM_HEADER_BYTES + padded(key_len);
    if !is_good {
        return None;
    }
    let key = field(item, ITEM_HEADER_BYTES, key_len, "key 0").ok()?;
    (!is_reserved(key)).then_some(key)
}

#[inline(always)]
fn plain_set<'a>(
    head: &[u8; ITEM_HEADER_BYTES],
    item: &'a [u8],
    value_bytes_max: u32,
) -> Option<(&'a [u8], Plain<'a>)> {
    // No second key.
    if read_u16(head, 10) != 0 {
        return None;
    }
    let (key_len, value_len) = (usize::from(read_u16(head, 8)), read_u32(head, 12));
    let body = &item[ITEM_HEADER_BYTES..];
    let value_at = padded(key_len);
    let is_good = (1..=KEY_BYTES_MAX).contains(&key_len)
        && value_len <= value_bytes_max
        && body.len() as u64 == value_at as u64 + u64::from(value_len).next_multiple_of(8);
    if !is_good {
        return None;
    }
    let value_len = value_len as usize;
    let key = field(body, 0, key_len, "key 0").ok()?;
    field(body, value_at, value_len, "the value").ok()?;
    (!is_reserved(key)).then_some((key, Plain::Set { body, value_len }))
}
