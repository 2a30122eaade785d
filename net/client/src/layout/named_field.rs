//! [`NamedField`]: a field of a layout by its name, from which guards and effects are made.

use std::fmt;
use std::marker::PhantomData;

use penstock_net::apply::{ApplyField, ApplyKey};
use penstock_net::field::Field;
use penstock_net::instruction::{Instruction, Operation};

use crate::layout::types::{Comparable, Countable, LayoutType};

/// A field of type `T` in the layout `L`. The functions that `#[derive(Layout)]` writes return it.
///
/// Guards and effects of UPDATE_IF are made from it, and by [`NamedField::of`] those of APPLY.
/// Numbers have the field's own type: an `I32` takes an `i32`.
///
/// ```compile_fail,E0308
/// # use penstock_client::NamedField;
/// # use zerocopy::little_endian::U32;
/// # fn stock() -> NamedField<(), U32> { unimplemented!() }
/// let guard = stock().at_least(1u64); // a u32 cannot be compared so
/// ```
pub struct NamedField<L, T> {
    offset: u32,
    key: u8,
    reason: u8,
    of: PhantomData<fn() -> (L, T)>,
}

impl<L, T> Clone for NamedField<L, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, T> Copy for NamedField<L, T> {}

impl<L, T> fmt::Debug for NamedField<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamedField {
            offset,
            key,
            reason,
            of: _,
        } = self;
        f.debug_struct("NamedField")
            .field("offset", offset)
            .field("key", key)
            .field("reason", reason)
            .finish()
    }
}

impl<L, T> NamedField<L, T> {
    /// A field that begins at this byte of its layout.
    #[doc(hidden)]
    #[must_use]
    pub const fn at_offset(offset: usize) -> Self {
        assert!(offset <= u32::MAX as usize, "a layout is at most 4 GiB");
        #[expect(clippy::cast_possible_truncation, reason = "it was compared above")]
        let offset = offset as u32;
        NamedField {
            offset,
            key: 0,
            reason: 0,
            of: PhantomData,
        }
    }

    /// Where it begins in the value.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// A field of the layout that this field is: `Order::buyer().then(Buyer::bought())`.
    #[must_use]
    pub const fn then<U>(self, inner: NamedField<T, U>) -> NamedField<L, U> {
        let mut inside = self.moved(inner.offset);
        // What the inner field says for itself counts.
        if inner.key != 0 {
            inside.key = inner.key;
        }
        if inner.reason != 0 {
            inside.reason = inner.reason;
        }
        inside
    }

    /// The same field of the second key.
    #[must_use]
    pub const fn of_second_key(self) -> Self {
        NamedField { key: 1, ..self }
    }

    /// The code that a failure of its instructions tells.
    #[must_use]
    pub const fn or_else(self, reason: u8) -> Self {
        NamedField { reason, ..self }
    }

    const fn moved<U>(self, by: u32) -> NamedField<L, U> {
        NamedField {
            offset: self.offset + by,
            key: self.key,
            reason: self.reason,
            of: PhantomData,
        }
    }
}

impl<L, T: LayoutType, const N: usize> NamedField<L, [T; N]> {
    /// An element of the array.
    ///
    /// # Panics
    /// If the array has no such element.
    #[must_use]
    pub fn at(self, index: usize) -> NamedField<L, T> {
        assert!(index < N, "element {index} of {N}");
        let by = u32::try_from(index * size_of::<T>()).expect("the array ends within the layout");
        self.moved(by)
    }
}

impl<L, T> NamedField<L, T> {
    /// The field without its types.
    #[must_use]
    pub fn field(self) -> Field
    where
        T: Comparable,
    {
        let field = Field::new(T::FIELD_TYPE, self.offset).or_else(self.reason);
        match self.key {
            0 => field,
            _ => field.of_second_key(),
        }
    }

    /// The field in the value of a key of an APPLY, with the code of [`NamedField::or_else`].
    #[must_use]
    pub fn of(self, key: ApplyKey) -> ApplyField
    where
        T: Comparable,
    {
        key.field(T::FIELD_TYPE, self.offset).or_else(self.reason)
    }

    /// Guard: the field is this.
    #[must_use]
    pub fn equals(self, number: T::Number) -> Instruction
    where
        T: Comparable,
    {
        self.instruction(Operation::Eq, number)
    }

    /// Guard: the field is not this.
    #[must_use]
    pub fn differs_from(self, number: T::Number) -> Instruction
    where
        T: Comparable,
    {
        self.instruction(Operation::Ne, number)
    }

    /// Effect: the field becomes this.
    #[must_use]
    pub fn set(self, number: T::Number) -> Instruction
    where
        T: Comparable,
    {
        self.instruction(Operation::Set, number)
    }

    /// Guard: the field is at least this.
    #[must_use]
    pub fn at_least(self, number: T::Number) -> Instruction
    where
        T: Countable,
    {
        self.instruction(Operation::Ge, number)
    }

    /// Guard: the field is at most this.
    #[must_use]
    pub fn at_most(self, number: T::Number) -> Instruction
    where
        T: Countable,
    {
        self.instruction(Operation::Le, number)
    }

    /// Effect: this is added; leaving the range fails.
    #[must_use]
    pub fn increase(self, number: T::Number) -> Instruction
    where
        T: Countable,
    {
        self.instruction(Operation::Add, number)
    }

    /// Effect: this is subtracted; leaving the range fails.
    #[must_use]
    pub fn decrease(self, number: T::Number) -> Instruction
    where
        T: Countable,
    {
        self.instruction(Operation::Sub, number)
    }

    fn instruction(self, operation: Operation, number: T::Number) -> Instruction
    where
        T: Comparable,
    {
        self.field().instruction(operation, T::bits(number))
    }
}
