//! Items that repeat the one before them: the same operation on the same key, with other
//! instructions at most. What the first of them was checked for need not be checked again.

use crate::apply::may_repeat_addition;
use crate::batch::read_u16;
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::program::RUN;
use crate::request::head::ITEM_HEADER_BYTES;
use crate::request::verb::Verb;

/// Whether an item may be one that others repeat.
#[inline]
#[must_use]
pub fn may_begin_run(item: &[u8]) -> bool {
    item.get(2).is_some_and(|verb| {
        *verb == Verb::UpdateIf as u8 || *verb == Verb::Apply as u8 || *verb == RUN
    })
}

/// Whether an item repeats the one before it, as far as its head tells: an UPDATE_IF of one key
/// whose instructions stand right behind the head, or an APPLY of one key that differs in the last
/// operand alone.
#[inline]
#[must_use]
pub fn may_repeat(before: &[u8], item: &[u8]) -> bool {
    // Items of other keys mostly differ in their last bytes, so these are compared first.
    let is_end_same = before.last_chunk::<8>() == item.last_chunk::<8>();
    is_end_same
        && before.len() == item.len()
        && match before.get(2) {
            Some(verb) if *verb == Verb::Apply as u8 => may_repeat_addition(before, item),
            _ => is_repeated(before, item),
        }
}

fn is_repeated(before: &[u8], item: &[u8]) -> bool {
    let (Some(head), Some(next)) = (
        before.first_chunk::<ITEM_HEADER_BYTES>(),
        item.first_chunk::<ITEM_HEADER_BYTES>(),
    ) else {
        return false;
    };
    let end = ITEM_HEADER_BYTES + usize::from(head[5]) * INSTRUCTION_BYTES;
    let is_short = usize::from(read_u16(head, 0)) == end && read_u16(head, 6) == 0;
    let is_of_one_key = head[2] == Verb::UpdateIf as u8 && head[4] == 1;
    head == next && is_of_one_key && is_short && before.get(end..) == item.get(end..)
}

/// Decodes the instructions of an item that repeats another, as [`may_repeat`] tells, as many as
/// `into` has. `false` if one of them is bad: [`Request::read`] tells how.
///
/// [`Request::read`]: crate::request::Request::read
#[inline]
#[must_use]
pub fn decode_repeated(item: &[u8], into: &mut [Instruction]) -> bool {
    let instructions = item[ITEM_HEADER_BYTES..].as_chunks::<INSTRUCTION_BYTES>().0;
    let mut are_good = instructions.len() >= into.len();
    for (into, bytes) in into.iter_mut().zip(instructions) {
        match Instruction::decode(bytes, 1) {
            Some(instruction) => *into = instruction,
            None => are_good = false,
        }
    }
    are_good
}
