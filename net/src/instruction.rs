//! The little program of UPDATE_IF: guards that compare a fixed-width field with a number, effects
//! that change one, in order, all or nothing.

use std::cmp::Ordering;

use crate::batch::{read_u32, read_u64};
use crate::refusal::Refusal;

/// Bytes of an instruction.
pub const INSTRUCTION_BYTES: usize = 16;

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Guard: the key existed before the request.
    Exists = 1,
    /// Guard: the key did not exist before the request.
    Absent = 2,
    /// Guard: field = immediate.
    Eq = 3,
    /// Guard: field != immediate.
    Ne = 4,
    /// Guard: field < immediate.
    Lt = 5,
    /// Guard: field <= immediate.
    Le = 6,
    /// Guard: field > immediate.
    Gt = 7,
    /// Guard: field >= immediate.
    Ge = 8,
    /// Effect: field becomes the immediate.
    Set = 16,
    /// Effect: the immediate is added; leaving the type's range is a failed guard.
    Add = 17,
    /// Effect: the immediate is subtracted; leaving the type's range is a failed guard.
    Sub = 18,
}

impl Operation {
    /// The operation with this number.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 {
            Self::BY_CODE[code as usize]
        } else {
            None
        }
    }

    const BY_CODE: [Option<Operation>; 32] = {
        let mut table = [None; 32];
        let all = [
            Operation::Exists,
            Operation::Absent,
            Operation::Eq,
            Operation::Ne,
            Operation::Lt,
            Operation::Le,
            Operation::Gt,
            Operation::Ge,
            Operation::Set,
            Operation::Add,
            Operation::Sub,
        ];
        let mut at = 0;
        while at < all.len() {
            table[all[at] as usize] = Some(all[at]);
            at += 1;
        }
        table
    };

    /// Whether it changes a field.
    #[inline]
    #[must_use]
    pub const fn is_effect(self) -> bool {
        self as u8 >= Operation::Set as u8
    }
}

/// A fixed-width integer in a value: low nibble the type, 0x10 big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldType(u8);

impl FieldType {
    /// Unsigned, one byte.
    pub const U8: FieldType = FieldType(0);
    /// Unsigned, two bytes.
    pub const U16: FieldType = FieldType(1);
    /// Unsigned, four bytes.
    pub const U32: FieldType = FieldType(2);
    /// Unsigned, eight bytes.
    pub const U64: FieldType = FieldType(3);
    /// Signed, one byte.
    pub const I8: FieldType = FieldType(4);
    /// Signed, two bytes.
    pub const I16: FieldType = FieldType(5);
    /// Signed, four bytes.
    pub const I32: FieldType = FieldType(6);
    /// Signed, eight bytes.
    pub const I64: FieldType = FieldType(7);
    const BIG_ENDIAN: u8 = 0x10;
    const NAMES: [[&'static str; 8]; 2] = [
        ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"],
        [
            "u8be", "u16be", "u32be", "u64be", "i8be", "i16be", "i32be", "i64be",
        ],
    ];

    /// The type with this number.
    #[inline]
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code & !(Self::BIG_ENDIAN | 7) == 0 {
            Some(FieldType(code))
        } else {
            None
        }
    }

    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The same type with its most significant byte first.
    #[must_use]
    pub const fn big_endian(self) -> Self {
        FieldType(self.0 | Self::BIG_ENDIAN)
    }

    /// Its name in the shell and in messages, such as `u32` or `i64be`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[(self.0 >> 4) as usize][(self.0 & 7) as usize]
    }

    /// The type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        (0u8..8)
            .flat_map(|code| [FieldType(code), FieldType(code).big_endian()])
            .find(|field| field.name() == name)
    }

    /// Bytes of the field.
    #[inline]
    #[must_use]
    pub const fn width(self) -> usize {
        1 << (self.0 & 3)
    }

    /// Whether it can be negative.
    #[inline]
    #[must_use]
    pub const fn is_signed(self) -> bool {
        self.0 & 4 != 0
    }

    #[inline]
    const fn bits(self) -> u32 {
        8 << (self.0 & 3)
    }

    /// The least and the greatest number that it holds.
    #[inline]
    #[must_use]
    pub const fn range(self) -> (i128, i128) {
        if self.is_signed() {
            (
                -(1i128 << (self.bits() - 1)),
                (1i128 << (self.bits() - 1)) - 1,
            )
        } else {
            (0, (1i128 << self.bits()) - 1)
        }
    }

    /// The number in the field that starts `bytes`, which has [`FieldType::width`] bytes.
    #[must_use]
    pub fn load(self, bytes: &[u8]) -> i128 {
        self.number(self.load_bits(bytes))
    }

    /// Stores a number that is in range.
    pub fn store(self, number: i128, bytes: &mut [u8]) {
        let (low, high) = self.range();
        assert!(
            (low..=high).contains(&number),
            "{number} in a field of {}",
            self.name()
        );
        self.store_bits(read_u64(&number.to_le_bytes(), 0), bytes);
    }

    /// The field as 64 bits, sign-extended if it is signed: how immediates and replies show it.
    #[inline]
    fn load_bits(self, bytes: &[u8]) -> u64 {
        let big = self.0 & Self::BIG_ENDIAN != 0;
        // Fixed widths: a copy of a variable length would be a call.
        let low = match self.0 & 3 {
            0 => u64::from(bytes[0]),
            1 => {
                let field = *bytes.first_chunk::<2>().expect("the width was checked");
                u64::from(if big {
                    u16::from_be_bytes(field)
                } else {
                    u16::from_le_bytes(field)
                })
            }
            2 => {
                let field = *bytes.first_chunk::<4>().expect("the width was checked");
                u64::from(if big {
                    u32::from_be_bytes(field)
                } else {
                    u32::from_le_bytes(field)
                })
            }
            _ => {
                let field = *bytes.first_chunk::<8>().expect("the width was checked");
                if big {
                    u64::from_be_bytes(field)
                } else {
                    u64::from_le_bytes(field)
                }
            }
        };
        self.extend(low)
    }

    /// Stores the low bits of `bits`.
    #[inline]
    pub(crate) fn store_bits(self, bits: u64, bytes: &mut [u8]) {
        let little = bits.to_le_bytes();
        if self.0 & Self::BIG_ENDIAN != 0 {
            for (to, from) in bytes[..self.width()].iter_mut().rev().zip(little) {
                *to = from;
            }
            return;
        }
        match self.0 & 3 {
            0 => bytes[0] = little[0],
            1 => bytes[..2].copy_from_slice(&little[..2]),
            2 => bytes[..4].copy_from_slice(&little[..4]),
            _ => bytes[..8].copy_from_slice(&little),
        }
    }

    /// The low bits of a field, extended to 64 as its sign asks.
    #[inline]
    fn extend(self, low: u64) -> u64 {
        let unused = 64 - self.bits();
        if self.is_signed() {
            ((low << unused).cast_signed() >> unused).cast_unsigned()
        } else {
            (low << unused) >> unused
        }
    }

    /// Whether a field of this type can hold what the 64 bits mean beside it.
    #[inline]
    fn holds(self, bits: u64) -> bool {
        self.extend(bits) == bits
    }

    /// `a` compared with `b`, both as 64 bits of this type.
    #[inline]
    fn compare(self, a: u64, b: u64) -> Ordering {
        if self.is_signed() {
            a.cast_signed().cmp(&b.cast_signed())
        } else {
            a.cmp(&b)
        }
    }

    /// The sum, if the field can hold it.
    #[inline]
    fn add(self, a: u64, b: u64) -> Option<u64> {
        let sum = if self.is_signed() {
            a.cast_signed()
                .checked_add(b.cast_signed())
                .map(i64::cast_unsigned)
        } else {
            a.checked_add(b)
        };
        sum.filter(|&sum| self.holds(sum))
    }

    /// The difference, if the field can hold it.
    #[inline]
    fn subtract(self, a: u64, b: u64) -> Option<u64> {
        let difference = if self.is_signed() {
            a.cast_signed()
                .checked_sub(b.cast_signed())
                .map(i64::cast_unsigned)
        } else {
            a.checked_sub(b)
        };
        difference.filter(|&difference| self.holds(difference))
    }

    /// The number that 64 bits of this type mean.
    fn number(self, bits: u64) -> i128 {
        if self.is_signed() {
            i128::from(bits.cast_signed())
        } else {
            i128::from(bits)
        }
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub operation: Operation,
    /// The field's type.
    pub field_type: FieldType,
    /// The key whose value is meant: 0 or 1.
    pub key: u8,
    /// The author's code, echoed if it fails.
    pub reason: u8,
    /// Where the field starts in the value.
    pub offset: u32,
    /// The number: two's complement for signed types.
    pub immediate: u64,
}

/// What became of an instruction on a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A guard that holds.
    Holds,
    /// An effect: the field's value as sign-extended bits.
    Changed {
        /// As it was.
        before: u64,
        /// As it is now.
        after: u64,
    },
    /// A guard that does not hold, or an effect that would leave the type's range.
    Failed {
        /// The field's value as sign-extended bits.
        actual: u64,
        /// It was an effect.
        overflow: bool,
    },
    /// The field lies outside the value.
    OutsideValue,
}

impl Instruction {
    /// The instruction as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; INSTRUCTION_BYTES] {
        let mut bytes = [0; INSTRUCTION_BYTES];
        bytes[0] = self.operation as u8;
        bytes[1] = self.field_type.code();
        bytes[2] = self.key;
        bytes[3] = self.reason;
        bytes[4..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.immediate.to_le_bytes());
        bytes
    }

    /// Reads and checks instruction `number` of an operation on `key_count` keys.
    ///
    /// # Errors
    /// The [`Refusal`] that names the field.
    #[inline]
    pub fn read(
        bytes: &[u8; INSTRUCTION_BYTES],
        number: usize,
        key_count: u8,
    ) -> Result<Self, Refusal> {
        match Self::decode(bytes, key_count) {
            Some(instruction) => Ok(instruction),
            None => Err(Self::refusal(bytes, number, key_count)),
        }
    }

    /// The instruction, if nothing is wrong with it.
    #[inline(always)]
    pub(crate) fn decode(bytes: &[u8; INSTRUCTION_BYTES], key_count: u8) -> Option<Self> {
        let operation = Operation::from_code(bytes[0])?;
        let field_type = FieldType::from_code(bytes[1])?;
        let [key, reason] = [bytes[2], bytes[3]];
        let (offset, immediate) = (read_u32(bytes, 4), read_u64(bytes, 8));
        // To compare a field with a number that it can never hold, or to set the field to it, is an
        // error of the author. To add such a number is an overflow, and the answer says so. An
        // instruction about a whole key has no field: its bytes stay free for a later meaning.
        let fits = match operation {
            Operation::Exists | Operation::Absent => {
                field_type == FieldType::U8 && offset == 0 && immediate == 0
            }
            Operation::Add | Operation::Sub => true,
            _ => field_type.holds(immediate),
        };
        (key < key_count && fits).then_some(Instruction {
            operation,
            field_type,
            key,
            reason,
            offset,
            immediate,
        })
    }

    #[cold]
    fn refusal(bytes: &[u8; INSTRUCTION_BYTES], instruction: usize, key_count: u8) -> Refusal {
        let [operation, field_type, key, _] = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let Some(known) = FieldType::from_code(field_type) else {
            return Refusal::InstructionType {
                instruction,
                found: field_type,
            };
        };
        if Operation::from_code(operation).is_none() {
            Refusal::InstructionOperation {
                instruction,
                found: operation,
            }
        } else if key >= key_count {
            Refusal::InstructionKey { instruction, key }
        } else if operation < Operation::Eq as u8 {
            Refusal::InstructionField { instruction }
        } else {
            Refusal::Immediate {
                instruction,
                field_type: known.name(),
                immediate: read_u64(bytes, 8),
            }
        }
    }

    /// A checked instruction of a program, if it compares or changes a field of fixed width by an
    /// immediate number.
    #[inline(always)]
    pub(crate) fn of_field(bytes: &[u8; INSTRUCTION_BYTES]) -> Option<Self> {
        let operation = Operation::from_code(bytes[0])?;
        let field_type = FieldType::from_code(bytes[1])?;
        let is_of_field = !matches!(operation, Operation::Exists | Operation::Absent);
        is_of_field.then(|| Instruction {
            operation,
            field_type,
            key: bytes[2],
            reason: bytes[3],
            offset: read_u32(bytes, 4),
            immediate: read_u64(bytes, 8),
        })
    }

    /// What [`Instruction::run`] would tell of `value`, which stays as it is.
    #[inline(always)]
    pub(crate) fn outcome(&self, value: &[u8]) -> Outcome {
        let rest = value.get(self.offset as usize..);
        let before = match self.field_type {
            FieldType::U64 => rest
                .and_then(|rest| rest.first_chunk::<8>())
                .map(|field| u64::from_le_bytes(*field)),
            FieldType::U32 => rest
                .and_then(|rest| rest.first_chunk::<4>())
                .map(|field| u64::from(u32::from_le_bytes(*field))),
            other => rest
                .and_then(|rest| rest.get(..other.width()))
                .map(|field| other.load_bits(field)),
        };
        match before {
            Some(before) => self.run_on(before, |_| {}),
            None => Outcome::OutsideValue,
        }
    }

    /// Runs a comparison or an effect on `value`. The caller runs EXISTS and ABSENT, which are not
    /// about a field.
    #[inline(always)]
    pub fn run(&self, value: &mut [u8]) -> Outcome {
        let start = self.offset as usize;
        let Some(rest) = value.get_mut(start..) else {
            return Outcome::OutsideValue;
        };
        match self.field_type {
            // The usual counters need neither an extension nor a range.
            FieldType::U64 => match rest.first_chunk_mut::<8>() {
                Some(field) => self.run_on(u64::from_le_bytes(*field), |after| {
                    *field = after.to_le_bytes()
                }),
                None => Outcome::OutsideValue,
            },
            FieldType::U32 => match rest.first_chunk_mut::<4>() {
                Some(field) => {
                    let before = u64::from(u32::from_le_bytes(*field));
                    self.run_on(before, |after| {
                        let [a, b, c, d, ..] = after.to_le_bytes();
                        *field = [a, b, c, d];
                    })
                }
                None => Outcome::OutsideValue,
            },
            other => match rest.get_mut(..other.width()) {
                Some(field) => self.run_on(other.load_bits(field), |after| {
                    other.store_bits(after, field)
                }),
                None => Outcome::OutsideValue,
            },
        }
    }

    #[inline(always)]
    fn run_on(&self, before: u64, store: impl FnOnce(u64)) -> Outcome {
        let after = match self.operation {
            Operation::Set => Some(self.immediate),
            Operation::Add => self.field_type.add(before, self.immediate),
            Operation::Sub => self.field_type.subtract(before, self.immediate),
            _ => {
                let order = self.field_type.compare(before, self.immediate);
                let holds = match self.operation {
                    Operation::Eq => order.is_eq(),
                    Operation::Ne => order.is_ne(),
                    Operation::Lt => order.is_lt(),
                    Operation::Le => order.is_le(),
                    Operation::Gt => order.is_gt(),
                    Operation::Ge => order.is_ge(),
                    _ => unreachable!("existence is not a property of a field"),
                };
                return if holds {
                    Outcome::Holds
                } else {
                    Outcome::Failed {
                        actual: before,
                        overflow: false,
                    }
                };
            }
        };
        match after {
            Some(after) => {
                store(after);
                Outcome::Changed { before, after }
            }
            None => Outcome::Failed {
                actual: before,
                overflow: true,
            },
        }
    }

    /// The bytes of the field when it held `before`, which [`Instruction::run`] told. Bytes behind
    /// the field's width mean nothing.
    #[inline]
    #[must_use]
    pub fn field_bytes(&self, before: u64) -> [u8; 8] {
        match self.field_type.0 & FieldType::BIG_ENDIAN != 0 {
            true => (before << (64 - self.field_type.bits())).to_be_bytes(),
            false => before.to_le_bytes(),
        }
    }

    /// Takes back a change by [`Instruction::run`], which told `before`.
    pub fn undo(&self, before: u64, value: &mut [u8]) {
        self.field_type
            .store_bits(before, &mut value[self.offset as usize..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(operation: Operation, field_type: FieldType, immediate: u64) -> Instruction {
        Instruction {
            operation,
            field_type,
            key: 0,
            reason: 0,
            offset: 1,
            immediate,
        }
    }

    #[test]
    fn every_type_loads_what_it_stored_at_its_borders() {
        for code in (0u8..8).chain(0x10..0x18) {
            let field_type = FieldType::from_code(code).unwrap();
            let (low, high) = field_type.range();
            for number in [low, low + 1, -1, 0, 1, high - 1, high]
                .into_iter()
                .filter(|n| (low..=high).contains(n))
            {
                let mut value = [0xAA; 10];
                field_type.store(number, &mut value[1..]);
                assert_eq!(
                    field_type.load(&value[1..]),
                    number,
                    "{}",
                    field_type.name()
                );
                assert_eq!(
                    value[1 + field_type.width()],
                    0xAA,
                    "{} stays within its width",
                    field_type.name()
                );
            }
            assert_eq!(FieldType::from_name(field_type.name()), Some(field_type));
        }
    }

    #[test]
    fn overflow_is_a_failed_guard_and_changes_nothing() {
        for code in (0u8..8).chain(0x10..0x18) {
            let field_type = FieldType::from_code(code).unwrap();
            let (low, high) = field_type.range();
            for (start, operation) in [(high, Operation::Add), (low, Operation::Sub)] {
                let mut value = [0; 9];
                field_type.store(start, &mut value[1..]);
                let before = value;
                let outcome = instruction(operation, field_type, 1).run(&mut value);
                assert_eq!(
                    outcome,
                    Outcome::Failed {
                        actual: read_u64(&start.to_le_bytes(), 0),
                        overflow: true
                    },
                    "{}",
                    field_type.name()
                );
                assert_eq!(value, before);
            }
        }
    }

    #[test]
    fn a_field_outside_the_value_is_refused_at_every_border() {
        for (len, offset, fits) in [
            (4, 0, true),
            (4, 1, false),
            (3, 0, false),
            (0, 0, false),
            (8, 4, true),
            (8, u32::MAX, false),
        ] {
            let mut value = vec![0; len];
            let mut guard = instruction(Operation::Ge, FieldType::U32, 0);
            guard.offset = offset;
            assert_eq!(
                guard.run(&mut value) == Outcome::Holds,
                fits,
                "length {len}, offset {offset}"
            );
        }
    }

    #[test]
    fn a_number_that_the_field_cannot_hold_is_refused_before_anything_runs() {
        let bytes = instruction(Operation::Ge, FieldType::U8, 256).encode();
        assert!(matches!(
            Instruction::read(&bytes, 3, 1),
            Err(Refusal::Immediate { instruction: 3, .. })
        ));
        let bytes = instruction(Operation::Set, FieldType::I8, (-129i64).cast_unsigned()).encode();
        assert!(Instruction::read(&bytes, 0, 1).is_err());
        let bytes = instruction(Operation::Set, FieldType::I8, (-128i64).cast_unsigned()).encode();
        assert!(Instruction::read(&bytes, 0, 1).is_ok());
    }
}
