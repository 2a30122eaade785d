//! The item that INCR and its like make: an APPLY that adds a number to the decimal of one key,
//! which may begin with a value if it is missing.

use crate::apply::instruction::{Action, Arithmetic, Operand};
use crate::apply::number::NumberKind;
use crate::apply::request::{ApplyRequest, HEAD_BYTES};
use crate::instruction::INSTRUCTION_BYTES;

/// Bytes of an operand, the last ones of its instruction.
const OPERAND_BYTES: usize = size_of::<u64>();

/// An APPLY of one key whose instructions are START, which may be missing, and ADD of an immediate
/// to the decimal. It has no token.
#[derive(Clone, Copy, Debug)]
pub struct Addition<'a> {
    item: &'a [u8],
    key: &'a [u8],
    /// Where the operand of ADD begins.
    operand_at: usize,
}

impl<'a> Addition<'a> {
    /// The addition that an item is; `None` if it is bad or something else.
    #[must_use]
    pub fn of(item: &'a [u8], value_bytes_max: u32) -> Option<Self> {
        let request = ApplyRequest::read(item, value_bytes_max).ok()?;
        let mut instructions = request.instructions();
        let (first, second) = (instructions.next()?, instructions.next());
        let (add, count) = match (first.action, second) {
            (Action::Start { .. }, Some(add)) => (add, 2),
            (_, None) => (first, 1),
            _ => return None,
        };
        let Action::Change(Arithmetic::Add, at, Operand::Immediate(_)) = add.action else {
            return None;
        };
        let is_one = instructions.next().is_none() && request.key_count() == 1;
        let is_plain = at.kind() == NumberKind::Decimal && request.token().is_none();
        (is_one && is_plain).then(|| Addition {
            item,
            key: request.key(),
            operand_at: HEAD_BYTES + count * INSTRUCTION_BYTES - OPERAND_BYTES,
        })
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// What it adds.
    #[inline]
    #[must_use]
    pub fn by(&self) -> i64 {
        self.by_of(self.item).expect("it is as long as itself")
    }

    /// What an item adds that is this one with another number. `None` if it differs in more.
    #[inline]
    #[must_use]
    pub fn repeated_by(&self, item: &[u8]) -> Option<i64> {
        let end = self.operand_at + OPERAND_BYTES;
        let is_same = item.len() == self.item.len()
            && item[..self.operand_at] == self.item[..self.operand_at]
            && item[end..] == self.item[end..];
        match is_same {
            true => self.by_of(item),
            false => None,
        }
    }

    #[inline]
    fn by_of(&self, item: &[u8]) -> Option<i64> {
        let operand = item.get(self.operand_at..)?.first_chunk()?;
        Some(i64::from_le_bytes(*operand))
    }
}

/// Whether an item may be an addition to the same key as the one before it, as far as its bytes
/// tell without being read: both differ in the last operand alone.
#[inline]
pub(crate) fn may_repeat_addition(before: &[u8], item: &[u8]) -> bool {
    let Some(head) = before.first_chunk::<HEAD_BYTES>() else {
        return false;
    };
    let (keys, count) = (head[4], head[5]);
    let end = HEAD_BYTES + usize::from(count) * INSTRUCTION_BYTES;
    let has_extension = head[6..8] != [0; 2];
    if keys != 1 || !(1..=2).contains(&count) || has_extension || before.len() != item.len() {
        return false;
    }
    let operand_at = end - OPERAND_BYTES;
    before.get(..operand_at) == item.get(..operand_at) && before.get(end..) == item.get(end..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Apply, Arithmetic};
    use crate::batch::Batch;
    use crate::frame::HEADER_BYTES;
    use crate::level::AckLevel;
    use crate::request::{BatchRequest, Token};

    fn item(write: impl FnOnce(&mut Apply)) -> Vec<u8> {
        let mut apply = Apply::new();
        write(&mut apply);
        let mut item = Vec::new();
        apply.write(&mut item);
        item
    }

    /// The same item with a token.
    fn named(item: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
        batch.token(Token::new(1, [1; 10]));
        batch.raw(&mut frame, item);
        batch.finish(&mut frame);
        let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
        batch.item(0).to_vec()
    }

    fn added(key: &[u8], by: i64) -> Vec<u8> {
        item(|apply| {
            let key = apply.key(key);
            apply.start(key, b"0");
            apply.then(key.decimal().increase(by));
        })
    }

    #[test]
    fn an_addition_names_its_key_and_number_and_what_a_repeated_one_adds() {
        for by in [1, -1, 0, i64::MAX, i64::MIN] {
            let one = added(b"stock", by);
            let addition = Addition::of(&one, 64).expect("it is one");
            assert_eq!((addition.key(), addition.by()), (&b"stock"[..], by));
            let other = added(b"stock", 700);
            assert!(may_repeat_addition(&one, &other));
            assert_eq!(addition.repeated_by(&other), Some(700));
            for other in [added(b"stack", by), added(b"stocks and more", by)] {
                assert!(!may_repeat_addition(&one, &other));
                assert_eq!(addition.repeated_by(&other), None);
            }
        }
    }

    #[test]
    fn what_does_more_than_add_to_a_decimal_is_no_addition() {
        let bare = item(|apply| {
            let key = apply.key(b"k");
            apply.then(key.decimal().increase(2i64));
        });
        assert_eq!(Addition::of(&bare, 64).map(|it| it.by()), Some(2));
        let others = [
            item(|apply| {
                let key = apply.key(b"k");
                apply.then(key.decimal().changes(Arithmetic::Sub, 1i64));
            }),
            item(|apply| {
                let key = apply.key(b"k");
                apply.then(key.u64(0).increase(1u64));
            }),
            item(|apply| {
                let key = apply.key(b"k");
                let other = apply.key(b"{k}");
                apply.then(key.decimal().increase(1i64)).start(other, b"0");
            }),
            item(|apply| {
                let key = apply.key(b"k");
                apply.then(key.decimal().increase(1i64));
                apply.then(key.expire_in(5));
            }),
            named(&bare),
        ];
        for other in others {
            assert!(ApplyRequest::read(&other, 64).is_ok());
            assert!(Addition::of(&other, 64).is_none());
        }
        let mut bad = bare.clone();
        bad[3] = 1;
        assert!(Addition::of(&bad, 64).is_none());
        for len in 0..bare.len() {
            assert!(!may_repeat_addition(&bare, &bare[..len]));
        }
        let named = named(&bare);
        assert!(!may_repeat_addition(&named, &named));
    }
}
