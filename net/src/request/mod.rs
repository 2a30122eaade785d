//! Requests: the items of a batch as views, and the writer of batches.

mod ask;
mod batch_request;
mod extension;
mod extra;
mod flags;
mod head;
mod item;
mod plain;
mod repeat;
mod template;
mod terms;
mod token;
pub(crate) mod verb;

use crate::batch::{padded, read_u16, read_u32, read_u64};
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::limits::KEY_BYTES_MAX;
use crate::refusal::Refusal;
use crate::request::verb::Field;
use crate::slot::slot_of;

pub use crate::version::Version;
pub use ask::Ask;
pub use batch_request::{BatchRequest, ask_without_show};
pub(crate) use extension::Extension;
pub use extra::Extra;
pub use head::{ITEM_HEADER_BYTES, likely_has_others, likely_key, likely_other_keys, likely_token};
pub(crate) use head::{field, is_reserved};
pub use plain::{Plain, plain};
pub use repeat::{decode_repeated, may_begin_run, may_repeat};
pub(crate) use template::ItemTemplate;
pub use terms::{Condition, Expiry, MemberRead, Wanted, When};
pub use token::{Token, TokenTextError, request_hash};
pub use verb::{AnswerContent, Effect, Verb};

/// One operation, checked, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub verb: Verb,
    /// When SET and DEL apply.
    pub condition: Condition,
    /// The key that GET, SET and DEL are about; the first of UPDATE_IF.
    pub key: &'a [u8],
    /// The second key of UPDATE_IF.
    pub second_key: Option<&'a [u8]>,
    /// The value of SET; what UPDATE_IF starts from if the first key is missing.
    pub value: &'a [u8],
    /// Whether UPDATE_IF makes a missing first key from `value`.
    pub has_start: bool,
    /// What SET and UPDATE_IF do with the expiry of the first key.
    pub expiry: Expiry,
    /// What GET answers.
    pub wanted: Wanted,
    /// What the verb asks besides.
    pub extra: Extra,
    token: Option<&'a [u8]>,
    instructions: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads one item, checking everything that needs no store.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    #[inline]
    pub fn read(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        match Self::read_plain(item, value_bytes_max) {
            Some(request) => Ok(request),
            None => item::read(item, value_bytes_max),
        }
    }

    /// Reads an item of one key without flags and extensions, as nearly all are. Most fields of the
    /// head are compared as one word. `None`: [`item::read`] reads the item, or refuses it.
    #[inline(always)]
    fn read_plain(item: &'a [u8], value_bytes_max: u32) -> Option<Self> {
        /// All but the length of the block, the operation and the count of instructions.
        const FIELDS: u64 = 0xFFFF_00FF_FF00_0000;
        const ONE_KEY: u64 = 1 << 32;
        let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
        if read_u64(head, 0) & FIELDS != ONE_KEY || read_u16(head, 10) != 0 {
            return None;
        }
        let verb = Verb::plain(head[2])?;
        let instruction_count = usize::from(head[5]);
        let row = verb.row();
        let value_len_max = match row.value {
            Field::Always => value_bytes_max,
            _ => 0,
        };
        let key_len = usize::from(read_u16(head, 8));
        let value_len = read_u32(head, 12);
        let keys_start = ITEM_HEADER_BYTES + instruction_count * INSTRUCTION_BYTES;
        let value_start = keys_start + padded(key_len);
        let end = value_start as u64 + u64::from(value_len).next_multiple_of(8);
        if instruction_count > row.instructions_max
            || usize::from(read_u16(head, 0)) != keys_start
            || !(1..=KEY_BYTES_MAX).contains(&key_len)
            || value_len > value_len_max
            || item.len() as u64 != end
        {
            return None;
        }
        let key = field(item, keys_start, key_len, "key 0").ok()?;
        let value = field(item, value_start, value_len as usize, "the value").ok()?;
        let instructions = &item[ITEM_HEADER_BYTES..keys_start];
        let are_good = instructions
            .as_chunks::<INSTRUCTION_BYTES>()
            .0
            .iter()
            .all(|bytes| Instruction::decode(bytes, 1).is_some());
        if is_reserved(key) || !are_good {
            return None;
        }
        Some(Request {
            verb,
            condition: Condition::Always,
            key,
            second_key: None,
            value,
            has_start: false,
            expiry: row.expiry,
            wanted: Wanted::Value,
            extra: Extra::None,
            token: None,
            instructions,
        })
    }

    /// The slot whose shard answers.
    #[inline]
    #[must_use]
    pub fn slot(&self) -> u16 {
        match self.verb {
            // One shard decides about keyspaces.
            Verb::Keyspace => 0,
            _ => slot_of(self.key),
        }
    }

    /// The name of the write, if it has one.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.token.map(Token::checked)
    }

    /// The bytes of the name of the write, if it has one.
    #[inline]
    pub(crate) fn token_bytes(&self) -> Option<&'a [u8]> {
        self.token
    }

    /// The instructions, not decoded.
    #[inline]
    pub(crate) fn instruction_bytes(&self) -> &'a [[u8; INSTRUCTION_BYTES]] {
        self.instructions.as_chunks().0
    }

    /// How many instructions there are.
    #[inline]
    #[must_use]
    pub fn instruction_count(&self) -> usize {
        self.instructions.len() / INSTRUCTION_BYTES
    }

    /// Instruction `number`, which is below [`Request::instruction_count`].
    #[inline(always)]
    #[must_use]
    pub fn instruction(&self, number: usize) -> Instruction {
        let bytes = &self.instructions.as_chunks::<INSTRUCTION_BYTES>().0[number];
        let key_count = 1 + u8::from(self.second_key.is_some());
        Instruction::decode(bytes, key_count).expect("checked when the item was read")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEADER_BYTES;
    use crate::instruction::{FieldType, Operation};
    use crate::level::AckLevel;
    use crate::limits::RESERVED_KEY;

    /// Items as clients send them, and those with each bit of their head another.
    fn items() -> Vec<Vec<u8>> {
        let step = |operation| Instruction {
            operation,
            field_type: FieldType::U64,
            key: 0,
            reason: 1,
            offset: 0,
            immediate: 1,
        };
        let program = [step(Operation::Ge), step(Operation::Sub)];
        let mut items = Vec::new();
        for key in [
            &b"k"[..],
            b"a key of more",
            b"{tag}sixteen-key",
            &[0; 9],
            RESERVED_KEY,
        ] {
            for which in 0..6 {
                let mut frame = Vec::new();
                let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
                match which {
                    0 => batch.get(&mut frame, key),
                    1 => batch.set(&mut frame, key, b"some value", Condition::Always),
                    2 => batch.del(&mut frame, key, Condition::Always),
                    3 => batch.update_if(&mut frame, key, None, &program, None),
                    4 => batch.update_if(&mut frame, key, Some(b"other"), &program, Some(b"9")),
                    _ => batch.set(&mut frame, key, b"", Condition::Present),
                }
                batch.finish(&mut frame);
                let body = &frame[HEADER_BYTES..];
                let item = crate::batch::Batch::read(body)
                    .expect("well formed")
                    .item(0);
                items.push(item.to_vec());
            }
        }
        let bits = items.iter().flat_map(|item| {
            let bits = 8 * item.len().min(ITEM_HEADER_BYTES + 2 * INSTRUCTION_BYTES);
            (0..bits).map(|bit| {
                let mut item = item.clone();
                item[bit / 8] ^= 1 << (bit % 8);
                item
            })
        });
        let bits: Vec<Vec<u8>> = bits.collect();
        items.extend(bits);
        items
    }

    #[test]
    fn what_is_read_as_a_plain_item_is_what_all_checks_together_read() {
        let mut plain = 0;
        for item in items() {
            for value_bytes_max in [4, 10, 1 << 20] {
                let Some(request) = Request::read_plain(&item, value_bytes_max) else {
                    continue;
                };
                plain += 1;
                let all = item::read(&item, value_bytes_max);
                assert_eq!(
                    format!("{request:?}"),
                    format!("{:?}", all.expect("it is good"))
                );
            }
        }
        assert!(plain > 60, "{plain} of {} are plain", 3 * items().len());
    }

    #[test]
    fn a_plain_get_or_set_is_what_all_checks_together_read_as_one_and_no_more() {
        let (mut gets, mut sets) = (0, 0);
        for item in items() {
            for value_bytes_max in [4, 10, 1 << 20] {
                let expected = item::read(&item, value_bytes_max).ok().filter(|request| {
                    let is_get = request.verb == Verb::Get && request.wanted == Wanted::Value;
                    let is_set = request.verb == Verb::Set
                        && request.condition == Condition::Always
                        && request.expiry == Expiry::Never;
                    (is_get || is_set) && request.extra == Extra::None
                });
                let Some((key, plain)) = plain(&item, value_bytes_max) else {
                    assert!(expected.is_none(), "{expected:?} is plain");
                    continue;
                };
                let expected = expected.expect("it is good");
                assert_eq!(key, expected.key);
                match plain {
                    Plain::Get => {
                        assert_eq!(expected.verb, Verb::Get);
                        gets += 1;
                    }
                    Plain::Set { body, value_len } => {
                        assert_eq!(expected.verb, Verb::Set);
                        let value_at = padded(key.len());
                        assert_eq!(&body[..key.len()], key);
                        assert_eq!(&body[value_at..][..value_len], expected.value);
                        assert_eq!(body.len(), value_at + padded(value_len));
                        sets += 1;
                    }
                }
            }
        }
        assert!(gets > 180 && sets > 100, "{gets} and {sets} are plain");
    }

    #[test]
    fn nearly_all_items_are_plain() {
        let items = items();
        let is_plain = |item: &Vec<u8>| Request::read_plain(item, 1 << 20).is_some();
        // GET, SET, DEL and UPDATE_IF of one key; then one of two keys, and a condition.
        assert!(items[..4].iter().all(is_plain));
        assert!(!items[4..6].iter().any(is_plain));
    }
}
