//! Items that differ from one another in key and value alone: what they share is kept once.

use crate::batch::{padded, push_padded, read_u16};
use crate::request::head::ITEM_HEADER_BYTES;

/// Bytes of an item before its key that a template keeps, at most: an APPLY of four instructions.
const BLOCK_BYTES_MAX: usize = 128;
/// Bytes behind the key that a template keeps.
const DATA_BYTES: usize = 8;

/// What items of one key have in common. Key and value may differ.
#[derive(Clone, Debug)]
pub(crate) struct ItemTemplate {
    /// Everything before the key, the lengths of the last key and value included.
    block: [u8; BLOCK_BYTES_MAX],
    block_len: usize,
    /// What stands behind each key, unless that is a value.
    data: Option<[u8; DATA_BYTES]>,
}

impl ItemTemplate {
    /// What an item of one key has, which is whole. `has_value` tells whether others have another
    /// value than this one. `None` if there is too much of it.
    pub(crate) fn of(item: &[u8], has_value: bool) -> Option<Self> {
        let block_len = usize::from(read_u16(item, 0));
        let key_end = block_len + padded(usize::from(read_u16(item, 8)));
        let (mut block, data) = ([0; BLOCK_BYTES_MAX], item.get(key_end..)?);
        block
            .get_mut(..block_len)?
            .copy_from_slice(&item[..block_len]);
        let data = match has_value || data.is_empty() {
            true => None,
            false => Some(data.try_into().ok()?),
        };
        Some(ItemTemplate {
            block,
            block_len,
            data,
        })
    }

    /// Appends an item with this key, and with this value if items have one.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
        let (head, more) = self.block.split_first_chunk().expect("a block has a head");
        let mut head: [u8; ITEM_HEADER_BYTES] = *head;
        // The server refuses lengths over the limit and names the limit.
        let key_len = u16::try_from(key.len()).unwrap_or(u16::MAX);
        head[8..10].copy_from_slice(&key_len.to_le_bytes());
        if let Some(value) = value {
            let value_len = u32::try_from(value.len()).unwrap_or(u32::MAX);
            head[12..16].copy_from_slice(&value_len.to_le_bytes());
        }
        out.extend_from_slice(&head);
        if self.block_len > ITEM_HEADER_BYTES {
            out.extend_from_slice(&more[..self.block_len - ITEM_HEADER_BYTES]);
        }
        push_padded(out, key);
        match (value, &self.data) {
            (Some(value), _) => push_padded(out, value),
            (None, Some(data)) => out.extend_from_slice(data),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::frame::HEADER_BYTES;
    use crate::level::AckLevel;
    use crate::request::{BatchRequest, Condition, Expiry, MemberRead, Wanted};
    use crate::version::Version;

    type Put = fn(&mut BatchRequest, &mut Vec<u8>, &[u8], &[u8]);

    fn item(put: Put, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
        put(&mut batch, &mut frame, key, value);
        batch.finish(&mut frame);
        let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
        batch.item(0).to_vec()
    }

    #[test]
    fn an_item_of_a_template_is_the_item_that_is_written_anew() {
        let member = |batch: &mut BatchRequest, out: &mut Vec<u8>, key: &[u8], _: &[u8]| {
            let member = MemberRead {
                staleness_us_max: 7,
                version_min: Version::default(),
            };
            batch.get_of_member(out, key, Wanted::Expiry, member);
        };
        let cases: [(Put, bool); 6] = [
            (|batch, out, key, _| batch.get(out, key), false),
            (member, false),
            (
                |batch, out, key, _| batch.del(out, key, Condition::Always),
                false,
            ),
            (
                |batch, out, key, value| batch.set(out, key, value, Condition::Absent),
                true,
            ),
            (
                |batch, out, key, value| {
                    batch.set_with(out, key, value, Condition::Always, Expiry::In(9));
                },
                true,
            ),
            (
                |batch, out, key, _| {
                    batch.update_if_with(out, key, None, &[], None, Expiry::At(9));
                },
                false,
            ),
        ];
        for (number, (put, has_value)) in cases.into_iter().enumerate() {
            let template = ItemTemplate::of(&item(put, b"a key", b"a value"), has_value);
            let template = template.expect("it is short");
            for len in [1, 7, 8, 9, 1024] {
                let (key, value) = (vec![b'k'; len], vec![b'v'; len - 1]);
                let mut out = Vec::new();
                template.write(&mut out, &key, has_value.then_some(&value));
                assert_eq!(out, item(put, &key, &value), "case {number}, {len}");
            }
        }
    }

    #[test]
    fn what_is_long_has_no_template() {
        let put: Put = |batch, out, key, value| batch.set(out, key, value, Condition::Always);
        let item = item(put, b"a key", b"a value of 19 bytes");
        assert!(ItemTemplate::of(&item, true).is_some());
        assert!(ItemTemplate::of(&item, false).is_none());
        let mut long = item;
        long.resize(300, 0);
        long[0] = 136;
        assert!(ItemTemplate::of(&long, true).is_none());
    }
}
