//! GET of one key and nothing else, read by two words of its head.

use crate::batch::{padded, read_u64};
use crate::limits::KEY_BYTES_MAX;
use crate::request::head::{ITEM_HEADER_BYTES, field, is_reserved};
use crate::request::verb::Verb;

/// The first word of the head: the length of the block, the operation, and one key.
const FIRST: u64 = ITEM_HEADER_BYTES as u64 | (Verb::Get as u64) << 16 | 1 << 32;

/// The key of an item that is a GET of the value, without flags and extensions. `None`: it is
/// something else, or [`crate::request::Request::read`] refuses it.
#[inline(always)]
#[must_use]
pub fn plain_get(item: &[u8]) -> Option<&[u8]> {
    let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
    if read_u64(head, 0) != FIRST {
        return None;
    }
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
