//! Where a number stands in a value: a field of fixed width, or the whole value as a decimal.

use crate::instruction::FieldType;

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NumberKind {
    /// In a field of fixed width.
    Field(FieldType),
    /// As text that is the whole value: an i64 in the form of [`Decimal`].
    ///
    /// [`Decimal`]: crate::apply::Decimal
    Decimal,
}

impl NumberKind {
    const DECIMAL: u8 = 8;

    /// The kind with this number on the wire.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code == Self::DECIMAL {
            return Some(NumberKind::Decimal);
        }
        match FieldType::from_code(code) {
            Some(field_type) => Some(NumberKind::Field(field_type)),
            None => None,
        }
    }

    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            NumberKind::Field(field_type) => field_type.code(),
            NumberKind::Decimal => Self::DECIMAL,
        }
    }

    /// Its name in the shell and in messages: that of the field type, or `decimal`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            NumberKind::Field(field_type) => field_type.name(),
            NumberKind::Decimal => "decimal",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "decimal" => Some(NumberKind::Decimal),
            name => FieldType::from_name(name).map(NumberKind::Field),
        }
    }

    /// The least and the greatest number that it holds.
    #[inline]
    #[must_use]
    pub const fn range(self) -> (i128, i128) {
        match self {
            NumberKind::Field(field_type) => field_type.range(),
            NumberKind::Decimal => FieldType::I64.range(),
        }
    }

    /// Whether it can be negative.
    #[inline]
    #[must_use]
    pub const fn is_signed(self) -> bool {
        match self {
            NumberKind::Field(field_type) => field_type.is_signed(),
            NumberKind::Decimal => true,
        }
    }

    /// Whether it can hold a number.
    #[inline]
    #[must_use]
    pub const fn holds(self, number: i128) -> bool {
        let (least, greatest) = self.range();
        least <= number && number <= greatest
    }

    /// The number that 64 bits mean beside it: two's complement if it is signed.
    #[inline]
    #[must_use]
    pub fn number(self, bits: u64) -> i128 {
        match self.is_signed() {
            true => i128::from(bits.cast_signed()),
            false => i128::from(bits),
        }
    }

    /// Whether it holds all that 64 bits mean beside it.
    #[inline]
    pub(super) const fn is_of_64_bits(self) -> bool {
        match self {
            NumberKind::Field(field_type) => field_type.width() == size_of::<u64>(),
            NumberKind::Decimal => true,
        }
    }

    /// Whether it is a u64, of either byte order.
    pub(super) fn is_u64(self) -> bool {
        let NumberKind::Field(field_type) = self else {
            return false;
        };
        field_type == FieldType::U64 || field_type == FieldType::U64.big_endian()
    }
}

/// A kind of number at a place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberAt {
    kind: NumberKind,
    offset: u32,
}

impl NumberAt {
    /// A field of fixed width that begins at this byte of the value.
    #[must_use]
    pub fn field(field_type: FieldType, offset: u32) -> Self {
        NumberAt {
            kind: NumberKind::Field(field_type),
            offset,
        }
    }

    /// The whole value as a decimal.
    #[must_use]
    pub const fn decimal() -> Self {
        NumberAt {
            kind: NumberKind::Decimal,
            offset: 0,
        }
    }

    /// A kind by its number on the wire, at this byte. A decimal begins at 0.
    #[inline]
    pub(super) fn from_code(code: u8, offset: u32) -> Option<Self> {
        let kind = NumberKind::from_code(code)?;
        (kind != NumberKind::Decimal || offset == 0).then_some(NumberAt { kind, offset })
    }

    /// How it is written.
    #[inline]
    #[must_use]
    pub fn kind(self) -> NumberKind {
        self.kind
    }

    /// Where it begins in the value.
    #[inline]
    #[must_use]
    pub fn offset(self) -> u32 {
        self.offset
    }
}
