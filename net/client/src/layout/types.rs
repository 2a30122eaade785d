//! What may stand in a layout, and what guards and effects can do with it.

use penstock_net::instruction::FieldType;
use zerocopy::{big_endian as be, little_endian as le};

use crate::layout::description::Kind;
use crate::layout::parts::Parts;
use crate::layout::plain_bytes::PlainBytes;
use crate::layout::text::Text;

/// The type of a field. Its alignment is 1, so a layout has no padding.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a layout",
    label = "not a type of layouts",
    note = "allowed are u8, i8, bool, arrays, Text, other layouts, and the numbers of \
            zerocopy::little_endian and zerocopy::big_endian, such as U32 instead of u32"
)]
pub trait LayoutType: Sized {
    /// What it is in a description.
    const KIND: Kind;

    /// What a caller writes for it, such as `u32` for `U32`, and `&str` for `Text`.
    type Plain<'a>;

    /// Writes it at an offset of a value.
    #[doc(hidden)]
    fn put(plain: Self::Plain<'_>, offset: usize, parts: &mut Parts);
}

/// A type that guards can compare for equality and effects can set.
#[diagnostic::on_unimplemented(
    message = "guards and effects know no `{Self}`",
    note = "they know whole numbers and bool; a float is only stored: keep cents in a U64"
)]
pub trait Comparable: LayoutType {
    /// The type on the wire.
    const FIELD_TYPE: FieldType;

    /// The plain number.
    type Number;

    /// The number as 64 bits, two's complement.
    fn bits(number: Self::Number) -> u64;
}

/// A type that guards can order, and effects can add to and subtract from.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no number that guards and effects count with",
    note = "a bool has equals() and set()"
)]
pub trait Countable: Comparable {}

macro_rules! numbers {
    ($($stored:ty, $plain:ty, $field_type:expr;)*) => {$(
        impl LayoutType for $stored {
            const KIND: Kind = Kind::Number($field_type);
            type Plain<'a> = $plain;

            fn put(plain: $plain, offset: usize, parts: &mut Parts) {
                parts.set(offset, &<$stored>::from(plain));
            }
        }

        impl Comparable for $stored {
            const FIELD_TYPE: FieldType = $field_type;
            type Number = $plain;

            #[inline]
            fn bits(number: $plain) -> u64 {
                // Wider or as wide: a signed number is extended by its sign.
                number as u64
            }
        }

        impl Countable for $stored {}
    )*};
}

numbers! {
    u8, u8, FieldType::U8;
    i8, i8, FieldType::I8;
    le::U16, u16, FieldType::U16;
    le::U32, u32, FieldType::U32;
    le::U64, u64, FieldType::U64;
    le::I16, i16, FieldType::I16;
    le::I32, i32, FieldType::I32;
    le::I64, i64, FieldType::I64;
    be::U16, u16, FieldType::U16.big_endian();
    be::U32, u32, FieldType::U32.big_endian();
    be::U64, u64, FieldType::U64.big_endian();
    be::I16, i16, FieldType::I16.big_endian();
    be::I32, i32, FieldType::I32.big_endian();
    be::I64, i64, FieldType::I64.big_endian();
}

macro_rules! floats {
    ($($stored:ty, $plain:ty, $bytes:literal, $is_big_endian:literal;)*) => {$(
        impl LayoutType for $stored {
            const KIND: Kind = Kind::Float { bytes: $bytes, is_big_endian: $is_big_endian };
            type Plain<'a> = $plain;

            fn put(plain: $plain, offset: usize, parts: &mut Parts) {
                parts.set(offset, &<$stored>::new(plain));
            }
        }
    )*};
}

floats! {
    le::F32, f32, 4, false;
    le::F64, f64, 8, false;
    be::F32, f32, 4, true;
    be::F64, f64, 8, true;
}

impl LayoutType for bool {
    const KIND: Kind = Kind::Bool;
    type Plain<'a> = bool;

    fn put(plain: bool, offset: usize, parts: &mut Parts) {
        parts.set(offset, &plain);
    }
}

impl Comparable for bool {
    const FIELD_TYPE: FieldType = FieldType::U8;
    type Number = bool;

    fn bits(number: bool) -> u64 {
        u64::from(number)
    }
}

impl<T: LayoutType + PlainBytes, const N: usize> LayoutType for [T; N] {
    const KIND: Kind = Kind::Array(&T::KIND, N);
    type Plain<'a> = [T; N];

    fn put(plain: [T; N], offset: usize, parts: &mut Parts) {
        parts.set(offset, &plain);
    }
}

impl LayoutType for Text {
    const KIND: Kind = Kind::Text;
    type Plain<'a> = &'a str;

    fn put(plain: &str, offset: usize, parts: &mut Parts) {
        parts.set_text(offset, plain);
    }
}
