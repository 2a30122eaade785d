//! Members by chance: which places are picked for a count, another choice for another seed.

use crate::resp::fault::{Fault, NOT_AN_INTEGER};
use crate::resp::number::read_integer;

/// Reads how many members are asked for: negative for any, of which one may come again.
pub(super) fn read_count(text: &[u8]) -> Result<i64, Fault> {
    match read_integer(text).ok_or(NOT_AN_INTEGER)? {
        i64::MIN => Err(Fault::Text(
            "ERR value is out of range, value must between -9223372036854775807 and \
             9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// A number below `len`, which is not 0.
pub(super) fn pick(len: usize, seed: u64) -> usize {
    usize::try_from(mixed(seed) % len as u64).expect("below a length")
}

fn mixed(seed: u64) -> u64 {
    let mut number = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        number = (number ^ number >> 30).wrapping_mul(factor);
    }
    number ^ number >> 31
}

/// How many places of `len`, which is not 0, are picked for a count.
pub(super) fn picked_len(len: usize, count: i64) -> usize {
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if count < 0 { wanted } else { wanted.min(len) }
}

/// Places below `len`, which is not 0: distinct ones in ascending order, or any for a negative
/// count.
pub(super) fn picked(len: usize, count: i64, seed: u64) -> impl Iterator<Item = usize> {
    let mut needed = picked_len(len, count);
    let (any, distinct) = if count < 0 { (needed, 0) } else { (0, len) };
    let any = (0..any).map(move |number| pick(len, seed.wrapping_add(number as u64)));
    // Of those that are left each is taken as often as it must be for so many of them.
    let distinct = (0..distinct).filter(move |place| {
        let is_picked = needed > 0 && pick(len - place, seed.wrapping_add(*place as u64)) < needed;
        needed -= usize::from(is_picked);
        is_picked
    });
    any.chain(distinct)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_of_distinct_places_in_order_and_a_negative_one_of_any() {
        let mut seen = [0; 5];
        for seed in (0..2_000).chain([u64::MAX - 2]) {
            for count in 0..7 {
                let places: Vec<usize> = picked(5, count, seed).collect();
                assert!(places.is_sorted_by(|one, other| one < other), "{places:?}");
                assert_eq!(places.len(), picked_len(5, count));
                if count == 2 {
                    places.iter().for_each(|place| seen[*place] += 1);
                }
            }
            let any: Vec<usize> = picked(5, -9, seed).collect();
            assert!(any.len() == 9 && any.iter().all(|place| *place < 5));
        }
        // Each is one of two of five.
        assert!(
            seen.iter().all(|times| (700..900).contains(times)),
            "{seen:?}"
        );
    }
}
