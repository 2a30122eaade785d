//! [`Builder`]: a value of a layout, field by field.

use std::marker::PhantomData;

use crate::layout::named_field::NamedField;
use crate::layout::parts::Parts;
use crate::layout::plain_bytes::PlainBytes;
use crate::layout::types::LayoutType;
use crate::layout::view::OwnedView;
use crate::layout::{Layout, LayoutError};

/// A value of the layout `L` that is being made. Fields that are not written are zero.
#[derive(Clone, Debug)]
pub struct Builder<L> {
    parts: Parts,
    of: PhantomData<fn() -> L>,
}

impl<L: Layout + PlainBytes> Builder<L> {
    pub(super) fn new() -> Self {
        Builder {
            parts: Parts::zeros(size_of::<L>()),
            of: PhantomData,
        }
    }

    /// Writes a field. What was written last counts.
    #[must_use]
    pub fn with<T: LayoutType>(mut self, field: NamedField<L, T>, plain: T::Plain<'_>) -> Self {
        T::put(plain, field.offset() as usize, &mut self.parts);
        self
    }

    /// The value, with its texts behind the fixed fields.
    ///
    /// # Panics
    /// If a bool was written with another byte than 0 or 1, which no safe code can do, or if the
    /// texts have more than 4 GiB.
    #[must_use]
    pub fn finish(self) -> OwnedView<L> {
        let bytes = self.parts.finish();
        match OwnedView::read(bytes) {
            Ok(view) => view,
            Err(error @ (LayoutError::TooShort { .. } | LayoutError::NotBool { .. })) => {
                panic!("fields were written by their types: {error}")
            }
            Err(error) => panic!("texts are read at access: {error}"),
        }
    }
}
