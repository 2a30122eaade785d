//! [`Builder`]: a value of a layout, field by field.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use bytes::Bytes;
use zerocopy::IntoBytes;

use crate::layout::named_field::NamedField;
use crate::layout::text::Text;
use crate::layout::types::{LayoutType, PlainBytes};
use crate::layout::view::OwnedView;
use crate::layout::{Layout, LayoutError};

/// A value of the layout `L` that is being made. Fields that are not written are zero.
#[derive(Clone, Debug)]
pub struct Builder<L> {
    parts: Parts,
    of: PhantomData<fn() -> L>,
}

/// The fixed fields, and the texts by the offsets of their fields.
#[derive(Clone, Debug)]
pub struct Parts {
    fixed: Vec<u8>,
    texts: BTreeMap<usize, String>,
}

impl<L: Layout + PlainBytes> Builder<L> {
    pub(super) fn new() -> Self {
        Builder {
            parts: Parts {
                fixed: vec![0; size_of::<L>()],
                texts: BTreeMap::new(),
            },
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

impl Parts {
    /// Writes a field at an offset.
    pub fn set(&mut self, offset: usize, field: &impl PlainBytes) {
        let bytes = field.as_bytes();
        self.fixed[offset..offset + bytes.len()].copy_from_slice(bytes);
        // A nested layout that is written whole takes the texts before it away.
        let gone: Vec<usize> = self
            .texts
            .range(offset..offset + bytes.len())
            .map(|(at, _)| *at)
            .collect();
        for at in gone {
            self.texts.remove(&at);
        }
    }

    /// Writes the text of the field at an offset.
    pub(super) fn set_text(&mut self, offset: usize, text: &str) {
        self.texts.insert(offset, text.into());
    }

    fn finish(mut self) -> Bytes {
        let mut texts = Vec::new();
        for (offset, text) in &self.texts {
            let place = Text::at(self.fixed.len() + texts.len(), text.len());
            texts.extend_from_slice(text.as_bytes());
            self.fixed[*offset..*offset + size_of::<Text>()].copy_from_slice(place.as_bytes());
        }
        self.fixed.extend_from_slice(&texts);
        self.fixed.into()
    }
}
