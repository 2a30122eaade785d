//! A field of a value, from which the instructions of UPDATE_IF are made.

use crate::instruction::{FieldType, Instruction, Operation};

/// A field of a value, from which instructions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    field_type: FieldType,
    offset: u32,
    key: u8,
    reason: u8,
}

impl Field {
    /// Any type at an offset of the first key's value.
    #[must_use]
    pub fn new(field_type: FieldType, offset: u32) -> Field {
        Field {
            field_type,
            offset,
            key: 0,
            reason: 0,
        }
    }

    /// A little-endian u32 at an offset of the first key's value.
    #[must_use]
    pub fn u32(offset: u32) -> Field {
        Field::new(FieldType::U32, offset)
    }

    /// A little-endian u64 at an offset of the first key's value.
    #[must_use]
    pub fn u64(offset: u32) -> Field {
        Field::new(FieldType::U64, offset)
    }

    /// The same field of the second key.
    #[must_use]
    pub fn of_second_key(self) -> Field {
        Field { key: 1, ..self }
    }

    /// The code that a failure of its instructions tells.
    #[must_use]
    pub fn or_else(self, reason: u8) -> Field {
        Field { reason, ..self }
    }

    /// Guard: the field is at least this.
    #[must_use]
    pub fn at_least(self, number: u64) -> Instruction {
        self.instruction(Operation::Ge, number)
    }

    /// Guard: the field is at most this.
    #[must_use]
    pub fn at_most(self, number: u64) -> Instruction {
        self.instruction(Operation::Le, number)
    }

    /// Guard: the field is this.
    #[must_use]
    pub fn equals(self, number: u64) -> Instruction {
        self.instruction(Operation::Eq, number)
    }

    /// Effect: the field becomes this.
    #[must_use]
    pub fn set(self, number: u64) -> Instruction {
        self.instruction(Operation::Set, number)
    }

    /// Effect: this is added.
    #[must_use]
    pub fn increase(self, number: u64) -> Instruction {
        self.instruction(Operation::Add, number)
    }

    /// Effect: this is subtracted.
    #[must_use]
    pub fn decrease(self, number: u64) -> Instruction {
        self.instruction(Operation::Sub, number)
    }

    /// Any operation. Numbers of signed types are two's complement.
    #[must_use]
    pub fn instruction(self, operation: Operation, immediate: u64) -> Instruction {
        Instruction {
            operation,
            field_type: self.field_type,
            key: self.key,
            reason: self.reason,
            offset: self.offset,
            immediate,
        }
    }
}
