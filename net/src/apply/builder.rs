//! An APPLY that is put together: its keys, then its instructions in their order.

use crate::apply::instruction::{
    Action, ApplyInstruction, Arithmetic, BitTest, Comparison, Operand,
};
use crate::apply::number::NumberAt;
use crate::apply::rate::Rate;
use crate::apply::request::{HEAD_BYTES, later_lengths_bytes, write_apply};
use crate::batch::padded;
use crate::instruction::{FieldType, INSTRUCTION_BYTES};
use crate::version::Version;

/// What one APPLY asks for.
///
/// Nothing is checked here: what is beyond a limit is refused by the server, with the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apply {
    keys: Vec<Vec<u8>>,
    instructions: Vec<ApplyInstruction>,
    data: Vec<u8>,
}

impl Apply {
    /// No key and no instruction.
    #[must_use]
    pub fn new() -> Self {
        Apply::default()
    }

    /// Names a key, or finds it if it is named already. The first one decides the slot; all are of
    /// one slot.
    pub fn key(&mut self, key: &[u8]) -> ApplyKey {
        let known = self.keys.iter().position(|known| known == key);
        let number = known.unwrap_or_else(|| {
            self.keys.push(key.to_vec());
            self.keys.len() - 1
        });
        ApplyKey(u8::try_from(number).unwrap_or(u8::MAX))
    }

    /// Adds an instruction behind those that are there.
    pub fn then(&mut self, instruction: ApplyInstruction) -> &mut Self {
        self.instructions.push(instruction);
        self
    }

    /// Adds the effect that gives a key this value, whatever it has.
    pub fn put(&mut self, key: ApplyKey, value: &[u8]) -> &mut Self {
        let (start, len) = self.add_data(value);
        self.then(key.instruction(Action::Put { start, len }))
    }

    /// Adds the effect that gives a key this value if it has none.
    pub fn start(&mut self, key: ApplyKey, value: &[u8]) -> &mut Self {
        let (start, len) = self.add_data(value);
        self.then(key.instruction(Action::Start { start, len }))
    }

    /// Adds the effect that gives a key this value in the place of the one that it has. Its expiry
    /// and what runs then stay.
    pub fn replace(&mut self, key: ApplyKey, value: &[u8]) -> &mut Self {
        let (start, len) = self.add_data(value);
        self.then(key.instruction(Action::Replace { start, len }))
    }

    /// Adds the effects that run when a key expires: those that `add` adds. The key needs an expiry
    /// at the end of the request.
    pub fn on_expire(&mut self, key: ApplyKey, add: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.instructions.len();
        self.then(key.runs_on_expiry(0));
        add(self);
        let effects = u8::try_from(self.instructions.len() - at - 1).unwrap_or(u8::MAX);
        self.instructions[at] = key.runs_on_expiry(effects);
        self
    }

    /// The keys in the order of their numbers.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// The instructions in their order.
    #[must_use]
    pub fn instructions(&self) -> &[ApplyInstruction] {
        &self.instructions
    }

    /// Whether it may change something.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        self.instructions.iter().any(ApplyInstruction::is_effect)
    }

    /// Appends the item.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_apply(out, &self.keys, &self.instructions, &self.data);
    }

    /// The length of the item, in bytes.
    pub(crate) fn item_bytes(&self) -> usize {
        let keys = self.keys.iter().map(|key| padded(key.len()));
        HEAD_BYTES
            + self.instructions.len() * INSTRUCTION_BYTES
            + later_lengths_bytes(self.keys.len())
            + keys.sum::<usize>()
            + padded(self.data.len())
    }

    /// Where a value stands in the data. One that the data ends with is not written again.
    fn add_data(&mut self, value: &[u8]) -> (u32, u32) {
        let start = match self.data.ends_with(value) {
            true => self.data.len() - value.len(),
            false => {
                self.data.extend_from_slice(value);
                self.data.len() - value.len()
            }
        };
        let short = |number| u32::try_from(number).unwrap_or(u32::MAX);
        (short(start), short(value.len()))
    }
}

/// A key of an [`Apply`], by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyKey(u8);

impl ApplyKey {
    /// The number of the key in its [`Apply`].
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// A number in its value.
    #[must_use]
    pub fn at(self, at: NumberAt) -> ApplyField {
        ApplyField {
            key: self,
            at,
            reason: 0,
        }
    }

    /// A field of any type at an offset of its value.
    #[must_use]
    pub fn field(self, field_type: FieldType, offset: u32) -> ApplyField {
        self.at(NumberAt::field(field_type, offset))
    }

    /// A little-endian u32 at an offset of its value.
    #[must_use]
    pub fn u32(self, offset: u32) -> ApplyField {
        self.field(FieldType::U32, offset)
    }

    /// A little-endian u64 at an offset of its value.
    #[must_use]
    pub fn u64(self, offset: u32) -> ApplyField {
        self.field(FieldType::U64, offset)
    }

    /// Its whole value as a decimal.
    #[must_use]
    pub fn decimal(self) -> ApplyField {
        self.at(NumberAt::decimal())
    }

    /// Guard: it existed before the request.
    #[must_use]
    pub fn exists(self) -> ApplyInstruction {
        self.instruction(Action::Exists)
    }

    /// Guard: it did not exist before the request.
    #[must_use]
    pub fn is_absent(self) -> ApplyInstruction {
        self.instruction(Action::Absent)
    }

    /// Guard: it did not exist before the request, nor has it come and gone since the newest
    /// version of its partition was this one. The server has
    /// [`FEATURE_ABSENT_SINCE`](crate::hello::FEATURE_ABSENT_SINCE).
    #[must_use]
    pub fn is_absent_since(self, newest: Version) -> ApplyInstruction {
        self.instruction(Action::AbsentSince(newest))
    }

    /// Guard: it had this version before the request.
    #[must_use]
    pub fn has_version(self, version: Version) -> ApplyInstruction {
        self.instruction(Action::Version(version))
    }

    /// Effect: it is deleted.
    #[must_use]
    pub fn delete(self) -> ApplyInstruction {
        self.instruction(Action::Delete)
    }

    /// Effect: it is gone from this time on, in unix milliseconds; 0 is never.
    #[must_use]
    pub fn expire_at(self, time: impl Into<Operand>) -> ApplyInstruction {
        self.instruction(Action::Expire(time.into()))
    }

    /// Effect: it is gone so many milliseconds after the shard's time.
    #[must_use]
    pub fn expire_in(self, ms: u64) -> ApplyInstruction {
        let plus_ms = i64::try_from(ms).unwrap_or(i64::MAX);
        self.instruction(Action::Expire(Operand::Now { plus_ms }))
    }

    /// Effect: so many of the next instructions run when it expires.
    pub(super) fn runs_on_expiry(self, effects: u8) -> ApplyInstruction {
        self.instruction(Action::OnExpire { effects })
    }

    fn instruction(self, action: Action) -> ApplyInstruction {
        ApplyInstruction {
            key: self.0,
            reason: 0,
            action,
        }
    }
}

/// A number of a key, from which instructions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyField {
    key: ApplyKey,
    at: NumberAt,
    reason: u8,
}

impl ApplyField {
    /// The same with a code that the answer tells if an instruction that is made of it fails.
    #[must_use]
    pub fn or_else(self, reason: u8) -> Self {
        ApplyField { reason, ..self }
    }

    /// Guard: it compares so with the operand.
    #[must_use]
    pub fn compares(self, comparison: Comparison, with: impl Into<Operand>) -> ApplyInstruction {
        self.instruction(Action::Compare(comparison, self.at, with.into()))
    }

    /// Guard: it is at least this.
    #[must_use]
    pub fn at_least(self, least: impl Into<Operand>) -> ApplyInstruction {
        self.compares(Comparison::Ge, least)
    }

    /// Guard: it is at most this.
    #[must_use]
    pub fn at_most(self, most: impl Into<Operand>) -> ApplyInstruction {
        self.compares(Comparison::Le, most)
    }

    /// Guard: it is this.
    #[must_use]
    pub fn equals(self, number: impl Into<Operand>) -> ApplyInstruction {
        self.compares(Comparison::Eq, number)
    }

    /// Guard: it has these bits.
    #[must_use]
    pub fn has_bits(self, test: BitTest, bits: impl Into<Operand>) -> ApplyInstruction {
        self.instruction(Action::Bits(test, self.at, bits.into()))
    }

    /// Effect: it becomes another number.
    #[must_use]
    pub fn changes(self, change: Arithmetic, by: impl Into<Operand>) -> ApplyInstruction {
        self.instruction(Action::Change(change, self.at, by.into()))
    }

    /// Effect: it becomes this.
    #[must_use]
    pub fn set(self, number: impl Into<Operand>) -> ApplyInstruction {
        self.changes(Arithmetic::Set, number)
    }

    /// Effect: this is added; leaving the range fails.
    #[must_use]
    pub fn increase(self, by: impl Into<Operand>) -> ApplyInstruction {
        self.changes(Arithmetic::Add, by)
    }

    /// Effect: this is subtracted; leaving the range fails.
    #[must_use]
    pub fn decrease(self, by: impl Into<Operand>) -> ApplyInstruction {
        self.changes(Arithmetic::Sub, by)
    }

    /// Effect: units of a rate are taken, if they are there. The field is a u64.
    #[must_use]
    pub fn take(self, rate: Rate) -> ApplyInstruction {
        self.instruction(Action::Rate(self.at, rate))
    }

    /// The answer tells it.
    #[must_use]
    pub fn returned(self) -> ApplyInstruction {
        self.instruction(Action::Return(self.at))
    }

    fn instruction(self, action: Action) -> ApplyInstruction {
        self.key.instruction(action).or_else(self.reason)
    }
}

impl ApplyInstruction {
    /// Guard: the shard's time is before this one, in unix milliseconds.
    #[must_use]
    pub fn before(time: impl Into<Operand>) -> Self {
        ApplyKey(0).instruction(Action::Before(time.into()))
    }

    /// Guard: the shard's time is this one or later, in unix milliseconds.
    #[must_use]
    pub fn since(time: impl Into<Operand>) -> Self {
        ApplyKey(0).instruction(Action::Since(time.into()))
    }

    /// The same with a code that the answer tells if the instruction fails.
    #[must_use]
    pub fn or_else(self, reason: u8) -> Self {
        ApplyInstruction { reason, ..self }
    }
}

impl From<u64> for Operand {
    fn from(number: u64) -> Self {
        Operand::Immediate(number)
    }
}

impl From<i64> for Operand {
    fn from(number: i64) -> Self {
        Operand::Immediate(number.cast_unsigned())
    }
}

impl From<ApplyField> for Operand {
    fn from(field: ApplyField) -> Self {
        Operand::Field {
            key: field.key.number(),
            at: field.at,
        }
    }
}
