//! A value as the struct that it is: [`View`] where it lies, [`OwnedView`] with its bytes.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use bytes::Bytes;
use zerocopy::ConvertError;

use crate::layout::named_field::NamedField;
use crate::layout::plain_bytes::PlainBytes;
use crate::layout::text::Text;
use crate::layout::{Layout, LayoutError};

/// The fixed fields of a value, where its bytes lie.
pub struct View<'a, L> {
    fixed: &'a L,
    value: &'a [u8],
}

impl<L> Clone for View<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for View<'_, L> {}

impl<'a, L: Layout + PlainBytes> View<'a, L> {
    #[inline]
    pub(super) fn read(value: &'a [u8]) -> Result<Self, LayoutError> {
        match L::try_ref_from_prefix(value) {
            Ok((fixed, _texts)) => Ok(View { fixed, value }),
            Err(error) => Err(refusal::<L>(value, &error)),
        }
    }

    /// The fixed fields, for as long as the bytes live.
    #[must_use]
    pub fn fixed(self) -> &'a L {
        self.fixed
    }

    /// All bytes of the value.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.value
    }

    /// A text of the value, checked.
    ///
    /// # Errors
    /// [`LayoutError::TextOutside`] and [`LayoutError::TextNotUtf8`].
    pub fn text(self, field: NamedField<L, Text>) -> Result<&'a str, LayoutError> {
        self.get(field)?.of(self.value, size_of::<L>())
    }

    /// A field by its name, also of a nested layout.
    ///
    /// # Errors
    /// None for a field of this layout: [`Layout::view`] has checked it.
    pub fn get<T: PlainBytes>(self, field: NamedField<L, T>) -> Result<&'a T, LayoutError> {
        let start = field.offset() as usize;
        match T::try_ref_from_prefix(self.value.get(start..).unwrap_or(&[])) {
            Ok((field, _)) => Ok(field),
            Err(_) => Err(LayoutError::TooShort {
                layout: L::DESCRIPTION.name(),
                needed: start + size_of::<T>(),
                found: self.value.len(),
            }),
        }
    }
}

/// What the bytes lack to be a value of the layout.
#[cold]
fn refusal<L: Layout + PlainBytes>(
    value: &[u8],
    error: &zerocopy::TryCastError<&[u8], L>,
) -> LayoutError {
    let layout = L::DESCRIPTION.name();
    match (error, L::DESCRIPTION.wrong_bool(value)) {
        (ConvertError::Validity(_), Some((field, offset, found))) => LayoutError::NotBool {
            layout,
            field,
            offset,
            found,
        },
        _ => LayoutError::TooShort {
            layout,
            needed: size_of::<L>(),
            found: value.len(),
        },
    }
}

impl<L> Deref for View<'_, L> {
    type Target = L;

    #[inline]
    fn deref(&self) -> &L {
        self.fixed
    }
}

impl<L: fmt::Debug> fmt::Debug for View<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fixed.fmt(f)
    }
}

/// A value with its bytes, which were checked once.
#[derive(Clone)]
pub struct OwnedView<L> {
    value: Bytes,
    of: PhantomData<fn() -> L>,
}

impl<L: Layout + PlainBytes> OwnedView<L> {
    pub(super) fn read(value: Bytes) -> Result<Self, LayoutError> {
        View::<L>::read(&value)?;
        Ok(OwnedView {
            value,
            of: PhantomData,
        })
    }

    /// All bytes of the value, as a store takes them.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.value
    }

    /// A view that borrows from this one.
    #[must_use]
    pub fn view(&self) -> View<'_, L> {
        View::read(&self.value).expect("it was checked when it was made")
    }

    /// A text of the value, checked.
    ///
    /// # Errors
    /// [`LayoutError::TextOutside`] and [`LayoutError::TextNotUtf8`].
    pub fn text(&self, field: NamedField<L, Text>) -> Result<&str, LayoutError> {
        self.view().text(field)
    }
}

impl<L: Layout + PlainBytes> Deref for OwnedView<L> {
    type Target = L;

    fn deref(&self) -> &L {
        self.view().fixed
    }
}

impl<L: Layout + PlainBytes + fmt::Debug> fmt::Debug for OwnedView<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
