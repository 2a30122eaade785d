//! How a change keeps one item for each of its keys: in an array if they are few, on the heap if
//! they are many. And how it knows the slots of its keys.

use crate::format::record::{FEW_PARTS_MAX, PARTS_MAX};

/// Room for one item for each key of a change.
pub trait KeyNumbers {
    /// Keys of a change, at most.
    const MAX: usize;

    /// One item for each key.
    type Of<T: Copy>: AsRef<[T]> + AsMut<[T]> + Clone;

    /// The slots of the keys.
    type Slots: KeySlots;

    /// The items of `count` keys by their numbers, in room that may be for more.
    fn make<T: Copy>(count: usize, item: impl FnMut(usize) -> T) -> Self::Of<T>;
}

/// The slots of the keys of a change.
pub trait KeySlots: Clone {
    /// All keys are of one slot.
    const ARE_ONE: bool;

    /// The slots of `count` keys: `first` is that of key 0, `slot_of` has that of each other key by
    /// its number.
    fn of_keys(first: u16, count: usize, slot_of: impl FnMut(usize) -> u16) -> Self;

    /// The slot of a key.
    fn of(&self, which: usize) -> u16;
}

/// The slot of all keys.
#[derive(Clone, Copy, Debug)]
pub struct OneSlot(pub u16);

/// The slot of each key.
#[derive(Clone, Debug)]
pub struct SlotOfEach(Vec<u16>);

impl KeySlots for OneSlot {
    const ARE_ONE: bool = true;

    #[inline(always)]
    fn of_keys(first: u16, _count: usize, _slot_of: impl FnMut(usize) -> u16) -> Self {
        OneSlot(first)
    }

    #[inline(always)]
    fn of(&self, _which: usize) -> u16 {
        self.0
    }
}

impl KeySlots for SlotOfEach {
    const ARE_ONE: bool = false;

    fn of_keys(first: u16, count: usize, slot_of: impl FnMut(usize) -> u16) -> Self {
        SlotOfEach(
            std::iter::once(first)
                .chain((1..count).map(slot_of))
                .collect(),
        )
    }

    fn of(&self, which: usize) -> u16 {
        self.0[which]
    }
}

/// At most `KEYS` keys, which is at most [`FEW_PARTS_MAX`]. There are always as many items.
#[derive(Clone, Copy, Debug)]
pub struct FewKeys<const KEYS: usize>;

/// At most [`PARTS_MAX`] keys.
#[derive(Clone, Copy, Debug)]
pub struct ManyKeys;

/// At most [`PARTS_MAX`] keys, of any slots.
#[derive(Clone, Copy, Debug)]
pub struct SpreadKeys;

impl<const KEYS: usize> KeyNumbers for FewKeys<KEYS> {
    const MAX: usize = KEYS;

    type Of<T: Copy> = [T; KEYS];

    type Slots = OneSlot;

    #[inline(always)]
    fn make<T: Copy>(count: usize, item: impl FnMut(usize) -> T) -> [T; KEYS] {
        const { assert!(0 < KEYS && KEYS <= FEW_PARTS_MAX) };
        assert!((1..=KEYS).contains(&count), "{count} keys");
        std::array::from_fn(item)
    }
}

impl KeyNumbers for ManyKeys {
    const MAX: usize = PARTS_MAX;

    type Of<T: Copy> = Vec<T>;

    type Slots = OneSlot;

    fn make<T: Copy>(count: usize, item: impl FnMut(usize) -> T) -> Vec<T> {
        assert!((1..=PARTS_MAX).contains(&count), "{count} keys");
        (0..count).map(item).collect()
    }
}

impl KeyNumbers for SpreadKeys {
    const MAX: usize = PARTS_MAX;

    type Of<T: Copy> = Vec<T>;

    type Slots = SlotOfEach;

    fn make<T: Copy>(count: usize, item: impl FnMut(usize) -> T) -> Vec<T> {
        ManyKeys::make(count, item)
    }
}
