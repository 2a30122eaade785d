//! One item for each part of a record, beside the record.

use std::ops::{Deref, DerefMut};

use super::FEW_PARTS_MAX;

/// As many items as a record has parts. Those of few parts take no memory of the heap.
#[derive(Debug)]
pub struct OfParts<T> {
    few: [T; FEW_PARTS_MAX],
    /// All of them, if they are not few.
    many: Vec<T>,
    count: usize,
}

impl<T: Clone> OfParts<T> {
    /// So many of this item.
    #[inline]
    #[must_use]
    pub fn of(item: T, count: usize) -> Self {
        let mut many = Vec::new();
        if count > FEW_PARTS_MAX {
            many.resize(count, item.clone());
        }
        OfParts {
            few: std::array::from_fn(|_| item.clone()),
            many,
            count,
        }
    }
}

impl<T> Deref for OfParts<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self.count {
            count @ ..=FEW_PARTS_MAX => &self.few[..count],
            _ => &self.many,
        }
    }
}

impl<T> DerefMut for OfParts<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self.count {
            count @ ..=FEW_PARTS_MAX => &mut self.few[..count],
            _ => &mut self.many,
        }
    }
}
