//! How a change keeps one item for each of its keys: in an array if they are few, on the heap if
//! they are many.

use crate::format::record::{FEW_PARTS_MAX, PARTS_MAX};

/// Room for one item for each key of a change.
pub trait KeyNumbers {
    /// Keys of a change, at most.
    const MAX: usize;

    /// One item for each key.
    type Of<T: Copy>: AsRef<[T]> + AsMut<[T]> + Clone;

    /// The items of `count` keys by their numbers, in room that may be for more.
    fn make<T: Copy>(count: usize, item: impl FnMut(usize) -> T) -> Self::Of<T>;
}

/// At most `KEYS` keys, which is at most [`FEW_PARTS_MAX`]. There are always as many items.
#[derive(Clone, Copy, Debug)]
pub struct FewKeys<const KEYS: usize>;

/// At most [`PARTS_MAX`] keys.
#[derive(Clone, Copy, Debug)]
pub struct ManyKeys;

impl<const KEYS: usize> KeyNumbers for FewKeys<KEYS> {
    const MAX: usize = KEYS;

    type Of<T: Copy> = [T; KEYS];

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

    fn make<T: Copy>(count: usize, item: impl FnMut(usize) -> T) -> Vec<T> {
        assert!((1..=PARTS_MAX).contains(&count), "{count} keys");
        (0..count).map(item).collect()
    }
}
