//! [`Text`]: a text of any length in a value of fixed fields.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::error::LayoutError;

/// Where a text stands in its value. [`View::text`](crate::layout::View::text) reads it.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct Text {
    offset: U32,
    len: U32,
}

impl Text {
    /// A text that stands there. An empty text stands nowhere.
    pub(super) fn at(offset: usize, len: usize) -> Text {
        let short = |number| U32::new(u32::try_from(number).expect("a value is at most 16 MiB"));
        match len {
            0 => Text::default(),
            _ => Text {
                offset: short(offset),
                len: short(len),
            },
        }
    }

    /// Bytes of the text.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    /// The text in its value, whose fixed fields are so many bytes.
    pub(super) fn of<'a>(&self, value: &'a [u8], fixed: usize) -> Result<&'a str, LayoutError> {
        if self.is_empty() {
            return Ok("");
        }
        let (offset, len) = (self.offset.get(), self.len.get());
        let start = offset as usize;
        let bytes = value
            .get(start..)
            .and_then(|behind| behind.get(..len as usize))
            .filter(|_| start >= fixed)
            .ok_or(LayoutError::TextOutside {
                offset,
                len,
                fixed,
                value: value.len(),
            })?;
        std::str::from_utf8(bytes).map_err(|error| LayoutError::TextNotUtf8 {
            offset,
            valid: error.valid_up_to(),
        })
    }
}
