//! The head of an item: 16 bytes, the same for all verbs.

use std::ops::Range;

use crate::batch::{padded, read_u16, read_u32};
use crate::limits::RESERVED_KEY;
use crate::refusal::Refusal;
use crate::request::extension::TOKEN_AREA_BYTES;
use crate::request::token::Token;
use crate::request::verb::Verb;

/// Where an APPLY has the lengths of its third key and of those behind it.
const LATER_LENGTHS: Range<usize> = 16..28;

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

/// Whether an unchecked item looks up more than its first key: another key, or its token.
#[inline]
#[must_use]
pub fn likely_has_others(item: &[u8]) -> bool {
    // Bytes of the extension, of the first key, and of the second one.
    item.first_chunk::<ITEM_HEADER_BYTES>()
        .is_some_and(|head| read_u16(head, 6) != 0 || read_u16(head, 10) != 0)
}

/// Visits the keys of an unchecked item behind its first one. They are hints and may be wrong.
#[inline]
pub fn likely_other_keys<'a>(item: &'a [u8], mut visit: impl FnMut(&'a [u8])) {
    let Some(head) = item.first_chunk::<ITEM_HEADER_BYTES>() else {
        return;
    };
    let mut at = usize::from(read_u16(head, 0)) + padded(usize::from(read_u16(head, 8)));
    let mut visit_next = |len: u16| {
        let len = usize::from(len);
        if len > 0
            && let Some(key) = item.get(at..at + len)
        {
            visit(key);
            at += padded(len);
        }
    };
    visit_next(read_u16(head, 10));
    if head[2] == Verb::Apply as u8
        && let Some(lengths) = item.get(LATER_LENGTHS)
    {
        let lengths = lengths.as_chunks::<2>().0;
        let later = usize::from(head[4]).saturating_sub(2);
        for &len in lengths.iter().take(later) {
            visit_next(u16::from_le_bytes(len));
        }
    }
}

/// The bytes of the token of an unchecked item. They are a hint and may be wrong.
#[inline]
#[must_use]
pub fn likely_token(item: &[u8]) -> Option<[u8; Token::BYTES]> {
    let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
    if usize::from(read_u16(head, 6)) != TOKEN_AREA_BYTES {
        return None;
    }
    let block = item.get(..usize::from(read_u16(head, 0)))?;
    block.last_chunk().copied()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Action, ApplyInstruction};
    use crate::level::AckLevel;
    use crate::request::{BatchRequest, Condition};

    const TOKEN: [u8; 16] = *b"\x01\x7f\x22\xe2\x79\xb0\x7c\xc3\x98\xc4\xdc\x0c\x0c\x07\x39\x8f";

    /// One item with these keys and this token, if there is one.
    fn apply(keys: &[&[u8]], token: Option<[u8; 16]>) -> Vec<u8> {
        let instruction = ApplyInstruction {
            key: 0,
            reason: 0,
            action: Action::Start { start: 0, len: 1 },
        };
        item_of(token, |batch, out| {
            batch.apply_of(out, keys, &[instruction], b"0");
        })
    }

    fn item_of(
        token: Option<[u8; 16]>,
        add: impl FnOnce(&mut BatchRequest, &mut Vec<u8>),
    ) -> Vec<u8> {
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, 1, AckLevel::Disk, 1000, 1);
        if let Some(token) = token {
            batch.token(Token::read(token).expect("a token"));
        }
        add(&mut batch, &mut out);
        batch.finish(&mut out);
        let body = &out[crate::frame::HEADER_BYTES..];
        crate::batch::Batch::read(body)
            .expect("a batch")
            .item(0)
            .to_vec()
    }

    fn others(item: &[u8]) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        likely_other_keys(item, |key| keys.push(key.to_vec()));
        keys
    }

    #[test]
    fn all_keys_and_the_token_of_a_well_formed_item_are_foreseen() {
        let names: Vec<String> = (0..8)
            .map(|key| format!("{{7}}{}", "k".repeat(key)))
            .collect();
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        for count in 1..=names.len() {
            for token in [None, Some(TOKEN)] {
                let item = apply(&names[..count], token);
                assert_eq!(likely_key(&item), Some(names[0]));
                assert_eq!(others(&item), names[1..count]);
                assert_eq!(likely_token(&item), token);
                assert_eq!(likely_has_others(&item), count > 1 || token.is_some());
            }
        }
        let set = item_of(Some(TOKEN), |batch, out| {
            batch.set(out, b"key", b"value", Condition::Always);
        });
        assert_eq!(
            (others(&set), likely_token(&set)),
            (Vec::new(), Some(TOKEN))
        );
    }

    #[test]
    fn an_item_that_is_cut_or_has_any_byte_is_read_within_its_bytes() {
        let item = apply(&[b"{7}", b"{7}second", b"{7}the third"], Some(TOKEN));
        for len in 0..=item.len() {
            let cut = &item[..len];
            assert!(others(cut).len() <= 7 && likely_key(cut).is_none_or(|key| key.len() <= len));
            let _ = (likely_token(cut), likely_has_others(cut));
        }
        for at in 0..item.len() {
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut other = item.clone();
                other[at] = byte;
                let keys = others(&other);
                assert!(keys.iter().map(Vec::len).sum::<usize>() <= other.len());
                let _ = (likely_token(&other), likely_has_others(&other));
            }
        }
    }
}
