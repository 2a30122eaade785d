//! Cursors of SCAN for clients that keep numbers as doubles: below 2^53.
//!
//! A cursor of a shard has 17 bits of its order, 14 of the slot and 32 of the hash. The order
//! follows from a secret of the data directory, so it is the same for all cursors that a server
//! gives out. A short cursor has the low 7 bits of it, by which one of another directory is known.

const ORDER_SHIFT: u32 = 46;
const ORDER_BITS: u32 = 7;
const SLOT_SHIFT: u32 = 32;
const SLOT_MASK: u64 = (1 << 14) - 1;

/// A cursor below 2^53. That of the end is 0, and no other is: orders are odd.
#[must_use]
pub fn short_cursor(cursor: u64) -> u64 {
    cursor & ((1 << (ORDER_SHIFT + ORDER_BITS)) - 1)
}

/// The cursor of a short one for shards of this order. With another order the slot begins again.
#[must_use]
pub fn long_cursor(short: u64, order: u64) -> u64 {
    let place = short & ((1 << ORDER_SHIFT) - 1);
    let is_known = short >> ORDER_SHIFT == order & ((1 << ORDER_BITS) - 1);
    match (short, is_known) {
        (0, _) => 0,
        (_, true) => order << ORDER_SHIFT | place,
        // Even, so no shard has it.
        (_, false) => (order & !1) << ORDER_SHIFT | place,
    }
}

/// The slot at which a short cursor stands.
#[must_use]
pub fn slot_of_cursor(short: u64) -> u16 {
    u16::try_from(short >> SLOT_SHIFT & SLOT_MASK).expect("14 bits")
}

/// Whether a short cursor stands behind the begin of its slot.
#[must_use]
pub fn is_inside_slot(short: u64) -> bool {
    short & ((1 << SLOT_SHIFT) - 1) != 0
}

/// The short cursor at the begin of a slot, for shards of this order.
#[must_use]
pub fn cursor_at(slot: u16, order: u64) -> u64 {
    short_cursor(order << ORDER_SHIFT | u64::from(slot) << SLOT_SHIFT)
}

/// The short cursor at a place among the hashes of a slot, for shards of this order.
#[must_use]
pub fn cursor_within(slot: u16, place: u32, order: u64) -> u64 {
    cursor_at(slot, order) | u64::from(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_cursor_is_a_double_and_comes_back_in_its_order_and_in_no_other() {
        let order = 0x1_2345 & 0x1_FFFF | 1;
        for place in [1u64, 77 << 32, (1 << 46) - 1] {
            let long = order << ORDER_SHIFT | place;
            let short = short_cursor(long);
            assert!(short > 0 && short < 1 << 53);
            assert_eq!(long_cursor(short, order), long);
            let other = long_cursor(short, order ^ 2);
            assert_eq!(other & ((1 << 46) - 1), place);
            assert_ne!(other >> ORDER_SHIFT, order ^ 2);
        }
        assert_eq!(short_cursor(0), 0);
        assert_eq!(long_cursor(0, order), 0);
        for slot in [0, 1, 8191, 16_383] {
            let short = cursor_at(slot, order);
            assert_eq!((slot_of_cursor(short), short == 0), (slot, false));
            assert!(!is_inside_slot(short) && is_inside_slot(short + 1));
            assert_eq!(long_cursor(short, order) >> ORDER_SHIFT, order);
        }
    }
}
