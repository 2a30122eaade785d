//! Values that are structs: [`Layout`], its description, its views and its builder.
//!
//! The bytes, the hash and what is refused are described in LAYOUTS.md beside this crate.

mod builder;
mod description;
mod error;
mod marked;
mod named_field;
mod parts;
mod plain_bytes;
mod text;
mod types;
mod view;

use bytes::Bytes;

pub use builder::Builder;
pub use description::{Description, FieldInfo, Kind};
pub use error::LayoutError;
pub use marked::LayoutMismatch;
pub use named_field::NamedField;
pub use parts::Parts;
pub use plain_bytes::PlainBytes;
pub use text::Text;
pub use types::{Comparable, Countable, LayoutType};
pub use view::{OwnedView, View};

/// A struct whose bytes are a value. `#[derive(Layout)]` implements it, and gives the struct one
/// function for each field, from which guards and effects are made.
///
#[doc = include_str!("../../LAYOUTS.md")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no layout",
    note = "write #[derive(Layout, TryFromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)] \
            and #[repr(C)] above it"
)]
pub trait Layout: LayoutType {
    /// Names, types and offsets of the fields, and their hash. The derive macro tells the same as
    /// `LAYOUT` of the struct.
    const DESCRIPTION: &'static Description;

    /// The struct where the bytes of a value lie, without a copy.
    ///
    /// # Errors
    /// [`LayoutError`] if the value is too short, or if a bool is neither 0 nor 1.
    #[inline]
    fn view(bytes: &[u8]) -> Result<View<'_, Self>, LayoutError>
    where
        Self: PlainBytes,
    {
        View::read(bytes)
    }

    /// The same with the bytes in it, such as those of [`Value`](crate::Value).
    ///
    /// # Errors
    /// As [`Layout::view`].
    fn owned(bytes: Bytes) -> Result<OwnedView<Self>, LayoutError>
    where
        Self: PlainBytes,
    {
        OwnedView::read(bytes)
    }

    /// Begins a value whose fields are all zero.
    #[must_use]
    fn build() -> Builder<Self>
    where
        Self: PlainBytes,
    {
        Builder::new()
    }
}
