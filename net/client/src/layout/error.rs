//! Why bytes are no value of a layout.

use std::fmt;

/// What is wrong with a value. The bytes come from the store, so each case names what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The value ends before the fixed fields do: another layout, or an older one.
    TooShort {
        /// The layout.
        layout: &'static str,
        /// Bytes of its fixed fields.
        needed: usize,
        /// Bytes of the value.
        found: usize,
    },
    /// A bool is neither 0 nor 1: another layout.
    NotBool {
        /// The layout.
        layout: &'static str,
        /// The path of the field.
        field: String,
        /// Where it stands in the value.
        offset: usize,
        /// What stands there.
        found: u8,
    },
    /// A text does not lie between the fixed fields and the end of the value.
    TextOutside {
        /// Where the text would begin.
        offset: u32,
        /// How long it would be.
        len: u32,
        /// Bytes of the fixed fields.
        fixed: usize,
        /// Bytes of the value.
        value: usize,
    },
    /// The bytes of a text are no UTF-8.
    TextNotUtf8 {
        /// Where the text begins.
        offset: u32,
        /// How many of its bytes are UTF-8.
        valid: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::TooShort {
                layout,
                needed,
                found,
            } => write!(
                f,
                "no {layout}: the value has {found} bytes, the layout {needed}"
            ),
            LayoutError::NotBool {
                layout,
                field,
                offset,
                found,
            } => write!(
                f,
                "no {layout}: the bool {field} at byte {offset} is {found}, allowed is 0 or 1"
            ),
            LayoutError::TextOutside {
                offset,
                len,
                fixed,
                value,
            } => write!(
                f,
                "a text of {len} bytes at byte {offset} does not lie between the fixed fields \
                 ({fixed} bytes) and the end of the value ({value} bytes)"
            ),
            LayoutError::TextNotUtf8 { offset, valid } => write!(
                f,
                "the text at byte {offset} is no UTF-8 behind {valid} bytes"
            ),
        }
    }
}

impl std::error::Error for LayoutError {}
