//! The number of a part: where it stands in a record of more parts than four bits can say.

use super::{FEW_PARTS_MAX, PARTS_MAX};

/// Bytes of the number of a part.
pub const NUMBER_BYTES: usize = 8;

/// Bytes of the number that each part of a record of `count` parts has: 0 in a record of few.
#[inline]
#[must_use]
pub const fn number_bytes(count: usize) -> usize {
    if count > FEW_PARTS_MAX {
        NUMBER_BYTES
    } else {
        0
    }
}

/// The number of part `ordinal` of `count`, both within the limits of a record.
#[cold]
pub(super) fn encode(ordinal: usize, count: usize) -> [u8; NUMBER_BYTES] {
    let mut number = [0; NUMBER_BYTES];
    for (into, part) in number.chunks_exact_mut(2).zip([ordinal, count]) {
        let part = u16::try_from(part).expect("a record has fewer parts");
        into.copy_from_slice(&part.to_le_bytes());
    }
    number
}

/// The ordinal and the parts of the record, in a number that stands at the begin of these bytes.
pub(super) fn read(number: &[u8]) -> [u16; 2] {
    [0, 2].map(|at| u16::from_le_bytes([number[at], number[at + 1]]))
}

/// Whether these are the number of a part of a record of more than few parts.
#[cold]
pub(super) fn is_sound(number: &[u8]) -> bool {
    let [ordinal, count] = read(number);
    let is_many = (FEW_PARTS_MAX + 1..=PARTS_MAX).contains(&usize::from(count));
    is_many && ordinal < count && number[4..] == [0; 4]
}
