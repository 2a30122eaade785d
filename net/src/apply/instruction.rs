//! An instruction of APPLY: 16 bytes, the same form as those of UPDATE_IF, with more operations and
//! operands that need not be numbers.

use crate::apply::number::{NumberAt, NumberKind};
use crate::apply::rate::Rate;
use crate::batch::{read_u32, read_u64};
use crate::instruction::INSTRUCTION_BYTES;
use crate::limits::{EXPIRY_MS_MAX, INSTRUCTIONS_MAX};
use crate::refusal::Refusal;
use crate::version::Version;
use std::ops::Range;

/// How two numbers must compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the comparison of its name")]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Which bits of the operand must be set in the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitTest {
    /// All of them.
    All,
    /// At least one of them.
    Any,
    /// None of them.
    None,
}

/// What an effect makes of a number and its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// The operand.
    Set,
    /// The sum. A sum that the number cannot hold fails.
    Add,
    /// The difference. A difference that the number cannot hold fails.
    Sub,
    /// The sum, or the nearest number that can be held.
    AddSaturating,
    /// The difference, or the nearest number that can be held.
    SubSaturating,
    /// The lesser of both.
    Min,
    /// The greater of both.
    Max,
    /// The bits that both have.
    And,
    /// The bits that one of them has.
    Or,
    /// The bits that just one of them has.
    Xor,
}

/// What a number is compared with, or changed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// These 64 bits: two's complement beside a signed number.
    Immediate(u64),
    /// A number of a value of the request, as the instructions before left it.
    Field {
        /// Which key.
        key: u8,
        /// Where in its value.
        at: NumberAt,
    },
    /// The shard's time in unix milliseconds, and so many more.
    Now {
        /// Milliseconds that are added; negative for the past.
        plus_ms: i64,
    },
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Guard: the key existed before the request.
    Exists,
    /// Guard: the key did not exist before the request.
    Absent,
    /// Guard: the key had this version before the request.
    Version(Version),
    /// Guard: the key did not exist before the request, nor has it come and gone since the newest
    /// version of its partition was this one. It may fail although the key did not.
    AbsentSince(Version),
    /// Guard: the shard's time is before this one, in unix milliseconds.
    Before(Operand),
    /// Guard: the shard's time is this one or later, in unix milliseconds.
    Since(Operand),
    /// Guard: the number compares so with the operand.
    Compare(Comparison, NumberAt, Operand),
    /// Guard: the number has these bits.
    Bits(BitTest, NumberAt, Operand),
    /// Effect: the number becomes another one.
    Change(Arithmetic, NumberAt, Operand),
    /// Effect: the value becomes these bytes of the data, whatever it was. No expiry stays.
    Put {
        /// Where the bytes begin in the data.
        start: u32,
        /// How many they are.
        len: u32,
    },
    /// Effect: as [`Action::Put`] if the key has no value, else none.
    Start {
        /// Where the bytes begin in the data.
        start: u32,
        /// How many they are.
        len: u32,
    },
    /// Effect: the value becomes these bytes of the data. Its expiry and what runs then stay. The
    /// key must have a value.
    Replace {
        /// Where the bytes begin in the data.
        start: u32,
        /// How many they are.
        len: u32,
    },
    /// As [`Action::Put`] of a value with members, by the server itself alone.
    PutHead {
        /// Where the bytes begin in the data.
        start: u32,
        /// How many they are.
        len: u32,
    },
    /// As [`Action::Replace`] by a value with members, by the server itself alone.
    ReplaceHead {
        /// Where the bytes begin in the data.
        start: u32,
        /// How many they are.
        len: u32,
    },
    /// Effect: the key is deleted. It must have a value.
    Delete,
    /// Effect: the key is gone from this time on, in unix milliseconds; 0 is never. It must have a
    /// value.
    Expire(Operand),
    /// Effect: units of a rate are taken, if they are there. The field is a u64.
    Rate(NumberAt, Rate),
    /// The answer tells the number. It stays as it is.
    Return(NumberAt),
    /// Effect: the next instructions run when the key expires.
    OnExpire {
        /// How many they are.
        effects: u8,
    },
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApplyInstruction {
    /// The number of the key that it is about.
    pub key: u8,
    /// The author's code, echoed if it fails.
    pub reason: u8,
    /// What it does.
    pub action: Action,
}

/// Bits of the byte of types that tell where the operand comes from.
const SOURCE_BITS: u8 = 0x60;
const SOURCE_FIELD: u8 = 0x20;
const SOURCE_NOW: u8 = 0x40;

mod code {
    pub(super) const EXISTS: u8 = 1;
    pub(super) const ABSENT: u8 = 2;
    pub(super) const EQ: u8 = 3;
    pub(super) const GE: u8 = 8;
    pub(super) const VERSION: u8 = 9;
    pub(super) const BEFORE: u8 = 10;
    pub(super) const SINCE: u8 = 11;
    pub(super) const ALL_BITS: u8 = 12;
    pub(super) const NO_BITS: u8 = 14;
    pub(super) const SET: u8 = 16;
    pub(super) const XOR: u8 = 25;
    pub(super) const PUT: u8 = 26;
    pub(super) const START: u8 = 27;
    pub(super) const DELETE: u8 = 28;
    pub(super) const EXPIRE: u8 = 29;
    pub(super) const RATE: u8 = 30;
    pub(super) const RETURN: u8 = 31;
    pub(super) const ON_EXPIRE: u8 = 32;
    pub(super) const REPLACE: u8 = 33;
    pub(super) const ABSENT_SINCE: u8 = 35;
    pub(super) const PUT_HEAD: u8 = 36;
    pub(super) const REPLACE_HEAD: u8 = 37;
}

impl Comparison {
    /// In the order of their numbers on the wire.
    const ALL: [Comparison; 6] = [
        Comparison::Eq,
        Comparison::Ne,
        Comparison::Lt,
        Comparison::Le,
        Comparison::Gt,
        Comparison::Ge,
    ];
}

impl BitTest {
    const ALL: [BitTest; 3] = [BitTest::All, BitTest::Any, BitTest::None];
}

impl Arithmetic {
    const ALL: [Arithmetic; 10] = [
        Arithmetic::Set,
        Arithmetic::Add,
        Arithmetic::Sub,
        Arithmetic::AddSaturating,
        Arithmetic::SubSaturating,
        Arithmetic::Min,
        Arithmetic::Max,
        Arithmetic::And,
        Arithmetic::Or,
        Arithmetic::Xor,
    ];

    /// Whether the operand itself is what the number may become, so that one which the number can
    /// never hold is a mistake of the author.
    fn takes_operand(self) -> bool {
        matches!(
            self,
            Arithmetic::Set | Arithmetic::And | Arithmetic::Or | Arithmetic::Xor
        )
    }
}

impl Operand {
    #[inline]
    fn decode(source: u8, bits: u64) -> Option<Self> {
        match source {
            0 => Some(Operand::Immediate(bits)),
            SOURCE_NOW => Some(Operand::Now {
                plus_ms: bits.cast_signed(),
            }),
            SOURCE_FIELD => {
                let [a, b, c, d, kind, key, 0, 0] = bits.to_le_bytes() else {
                    return None;
                };
                let offset = u32::from_le_bytes([a, b, c, d]);
                let at = NumberAt::from_code(kind, offset)?;
                Some(Operand::Field { key, at })
            }
            _ => None,
        }
    }

    /// The bits that tell where it comes from, and the 64 bits.
    fn encode(self) -> (u8, u64) {
        match self {
            Operand::Immediate(bits) => (0, bits),
            Operand::Now { plus_ms } => (SOURCE_NOW, plus_ms.cast_unsigned()),
            Operand::Field { key, at } => {
                let [a, b, c, d] = at.offset().to_le_bytes();
                let bytes = [a, b, c, d, at.kind().code(), key, 0, 0];
                (SOURCE_FIELD, u64::from_le_bytes(bytes))
            }
        }
    }

    /// The key whose value it is in.
    #[inline]
    fn key(self) -> Option<u8> {
        match self {
            Operand::Field { key, .. } => Some(key),
            Operand::Immediate(_) | Operand::Now { .. } => None,
        }
    }

    /// Whether a number of this kind can be compared with it or become it.
    #[inline]
    fn fits(self, kind: NumberKind) -> bool {
        match self {
            Operand::Immediate(bits) => kind.is_of_64_bits() || kind.holds(kind.number(bits)),
            Operand::Field { .. } | Operand::Now { .. } => true,
        }
    }
}

impl ApplyInstruction {
    /// The instruction as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; INSTRUCTION_BYTES] {
        let (operation, kind, offset, bits) = self.fields();
        let mut bytes = [0; INSTRUCTION_BYTES];
        bytes[0] = operation;
        bytes[1] = kind;
        bytes[2] = self.key;
        bytes[3] = self.reason;
        bytes[4..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..16].copy_from_slice(&bits.to_le_bytes());
        bytes
    }

    /// Operation, type with the source of the operand, offset, and the last 64 bits.
    fn fields(&self) -> (u8, u8, u32, u64) {
        let on = |operation, at: NumberAt, operand: Operand| {
            let (source, bits) = operand.encode();
            (operation, at.kind().code() | source, at.offset(), bits)
        };
        let whole = |operation, operand: Operand| {
            let (source, bits) = operand.encode();
            (operation, source, 0, bits)
        };
        let data = |operation, start, len| (operation, 0, start, u64::from(len));
        match self.action {
            Action::Exists => (code::EXISTS, 0, 0, 0),
            Action::Absent => (code::ABSENT, 0, 0, 0),
            Action::Version(Version { epoch, sequence }) => (code::VERSION, 0, epoch, sequence),
            Action::AbsentSince(Version { epoch, sequence }) => {
                (code::ABSENT_SINCE, 0, epoch, sequence)
            }
            Action::Before(time) => whole(code::BEFORE, time),
            Action::Since(time) => whole(code::SINCE, time),
            Action::Compare(comparison, at, operand) => {
                on(code::EQ + comparison as u8, at, operand)
            }
            Action::Bits(test, at, operand) => on(code::ALL_BITS + test as u8, at, operand),
            Action::Change(change, at, operand) => on(code::SET + change as u8, at, operand),
            Action::Put { start, len } => data(code::PUT, start, len),
            Action::Start { start, len } => data(code::START, start, len),
            Action::Replace { start, len } => data(code::REPLACE, start, len),
            Action::PutHead { start, len } => data(code::PUT_HEAD, start, len),
            Action::ReplaceHead { start, len } => data(code::REPLACE_HEAD, start, len),
            Action::Delete => (code::DELETE, 0, 0, 0),
            Action::Expire(time) => whole(code::EXPIRE, time),
            Action::Rate(at, rate) => (code::RATE, at.kind().code(), at.offset(), rate.bits()),
            Action::Return(at) => (code::RETURN, at.kind().code(), at.offset(), 0),
            Action::OnExpire { effects } => (code::ON_EXPIRE, 0, effects.into(), 0),
        }
    }

    /// Reads and checks instruction `number` of an item with so many keys and so many bytes of
    /// data.
    ///
    /// # Errors
    /// The [`Refusal`] that names the field.
    #[inline]
    pub fn read(
        bytes: &[u8; INSTRUCTION_BYTES],
        number: usize,
        key_count: u8,
        data_len: u32,
    ) -> Result<Self, Refusal> {
        let read = match Self::decode(bytes) {
            Ok(read) => read,
            Err(wrong) => return Err(wrong.refusal(bytes, number, data_len)),
        };
        let operand_key = read.operand_key().filter(|key| *key >= key_count);
        if read.key >= key_count || operand_key.is_some() {
            let own = Some(read.key).filter(|key| *key >= key_count);
            return Err(Refusal::InstructionKey {
                instruction: number,
                key: own.or(operand_key).expect("one of them"),
            });
        }
        if let Some(range) = read.data()
            && range.end > data_len as usize
        {
            return Err(Refusal::InstructionData {
                instruction: number,
                start: range.start as u64,
                end: range.end as u64,
                data_len,
            });
        }
        Ok(read)
    }

    /// Decodes an instruction that was checked.
    #[inline(always)]
    pub(super) fn checked(bytes: &[u8; INSTRUCTION_BYTES]) -> Self {
        Self::decode(bytes)
            .ok()
            .expect("checked when the item was read")
    }

    /// The operand, if the instruction has one.
    #[inline]
    fn operand(&self) -> Option<Operand> {
        match self.action {
            Action::Before(operand) | Action::Since(operand) | Action::Expire(operand) => {
                Some(operand)
            }
            Action::Compare(_, _, operand)
            | Action::Bits(_, _, operand)
            | Action::Change(_, _, operand) => Some(operand),
            _ => None,
        }
    }

    /// The key in whose value its operand is.
    #[inline]
    pub(super) fn operand_key(&self) -> Option<u8> {
        self.operand().and_then(Operand::key)
    }

    /// How many of the next instructions run when its key expires, if it is an ON_EXPIRE.
    #[inline]
    #[must_use]
    pub fn effects(&self) -> Option<u8> {
        match self.action {
            Action::OnExpire { effects } => Some(effects),
            _ => None,
        }
    }

    /// Whether it replaces a value whose expiry stays.
    #[must_use]
    pub fn replaces(&self) -> bool {
        matches!(
            self.action,
            Action::Replace { .. } | Action::ReplaceHead { .. }
        )
    }

    /// Whether it gives a key members: the server alone writes what these are.
    #[inline]
    #[must_use]
    pub fn gives_members(&self) -> bool {
        matches!(
            self.action,
            Action::PutHead { .. } | Action::ReplaceHead { .. }
        )
    }

    /// Whether it may stand behind an ON_EXPIRE: all effects but ON_EXPIRE itself and REPLACE.
    /// Effects are stored, and servers without REPLACE may have to run them.
    #[must_use]
    pub fn may_run_later(&self) -> bool {
        self.is_effect() && self.effects().is_none() && !self.replaces() && !self.gives_members()
    }

    /// The bytes of the data that it names.
    #[inline]
    pub(super) fn data(&self) -> Option<Range<usize>> {
        match self.action {
            Action::Put { start, len }
            | Action::Start { start, len }
            | Action::Replace { start, len }
            | Action::PutHead { start, len }
            | Action::ReplaceHead { start, len } => {
                Some(start as usize..start as usize + len as usize)
            }
            _ => None,
        }
    }

    /// The bit of the key that an instruction may change which was checked; 0 if it only looks.
    #[inline]
    pub(super) fn changed_key(bytes: &[u8; INSTRUCTION_BYTES]) -> Option<u8> {
        let is_effect =
            bytes[0] >= code::SET && bytes[0] != code::RETURN && bytes[0] != code::ABSENT_SINCE;
        is_effect.then_some(bytes[2])
    }

    /// Whether it may change something. An instruction that only looks is a guard or RETURN.
    #[must_use]
    pub fn is_effect(&self) -> bool {
        matches!(
            self.action,
            Action::Change(..)
                | Action::Put { .. }
                | Action::Start { .. }
                | Action::Replace { .. }
                | Action::PutHead { .. }
                | Action::ReplaceHead { .. }
                | Action::Delete
                | Action::Expire(_)
                | Action::Rate(..)
                | Action::OnExpire { .. }
        )
    }

    #[inline(always)]
    fn decode(bytes: &[u8; INSTRUCTION_BYTES]) -> Result<Self, Wrong> {
        let raw = Raw::of(bytes);
        let nth = |first: u8| usize::from(raw.operation - first);
        let action = match raw.operation {
            code::EXISTS => raw.bare(Action::Exists)?,
            code::ABSENT => raw.bare(Action::Absent)?,
            code::DELETE => raw.bare(Action::Delete)?,
            code::EQ..=code::GE => {
                let at = raw.number_at()?;
                Action::Compare(Comparison::ALL[nth(code::EQ)], at, raw.fitting(at)?)
            }
            code::VERSION => Action::Version(raw.version()?),
            code::ABSENT_SINCE => Action::AbsentSince(raw.version()?),
            code::BEFORE => Action::Before(raw.bound()?),
            code::SINCE => Action::Since(raw.bound()?),
            code::ALL_BITS..=code::NO_BITS => {
                let at = raw.number_at()?;
                Action::Bits(BitTest::ALL[nth(code::ALL_BITS)], at, raw.fitting(at)?)
            }
            code::SET..=code::XOR => {
                let (change, at) = (Arithmetic::ALL[nth(code::SET)], raw.number_at()?);
                let operand = match change.takes_operand() {
                    true => raw.fitting(at)?,
                    false => raw.operand()?,
                };
                Action::Change(change, at, operand)
            }
            code::PUT => {
                let (start, len) = raw.data()?;
                Action::Put { start, len }
            }
            code::START => {
                let (start, len) = raw.data()?;
                Action::Start { start, len }
            }
            code::REPLACE => {
                let (start, len) = raw.data()?;
                Action::Replace { start, len }
            }
            code::PUT_HEAD => {
                let (start, len) = raw.data()?;
                Action::PutHead { start, len }
            }
            code::REPLACE_HEAD => {
                let (start, len) = raw.data()?;
                Action::ReplaceHead { start, len }
            }
            code::EXPIRE => Action::Expire(raw.time(0)?),
            code::RATE => raw.rate()?,
            code::RETURN => {
                let at = raw.number_at()?;
                raw.has_no_operand()?;
                Action::Return(at)
            }
            code::ON_EXPIRE => Action::OnExpire {
                effects: raw.effects()?,
            },
            _ => return Err(Wrong::Operation),
        };
        Ok(ApplyInstruction {
            key: bytes[2],
            reason: bytes[3],
            action,
        })
    }
}

/// The fields of an instruction whose meaning its operation decides.
struct Raw {
    operation: u8,
    /// The type without the bits of the source.
    kind: u8,
    source: u8,
    offset: u32,
    bits: u64,
}

impl Raw {
    #[inline]
    fn of(bytes: &[u8; INSTRUCTION_BYTES]) -> Self {
        Raw {
            operation: bytes[0],
            kind: bytes[1] & !SOURCE_BITS,
            source: bytes[1] & SOURCE_BITS,
            offset: read_u32(bytes, 4),
            bits: read_u64(bytes, 8),
        }
    }

    /// The version that the key is compared with.
    fn version(&self) -> Result<Version, Wrong> {
        self.has_no_type()?;
        Ok(Version {
            epoch: self.offset,
            sequence: self.bits,
        })
    }

    /// The number that the instruction is about.
    #[inline]
    fn number_at(&self) -> Result<NumberAt, Wrong> {
        let at = NumberAt::from_code(self.kind, self.offset);
        at.ok_or(match self.kind == NumberKind::Decimal.code() {
            true => Wrong::DecimalOffset,
            false => Wrong::Type,
        })
    }

    #[inline]
    fn operand(&self) -> Result<Operand, Wrong> {
        Operand::decode(self.source, self.bits).ok_or(match self.source == SOURCE_FIELD {
            true => Wrong::OperandNumber,
            false => Wrong::Source,
        })
    }

    /// The operand, if the number may be compared with it or become it.
    #[inline]
    fn fitting(&self, at: NumberAt) -> Result<Operand, Wrong> {
        match self.operand()? {
            operand if operand.fits(at.kind()) => Ok(operand),
            _ => Err(Wrong::Immediate(at.kind())),
        }
    }

    /// The action that is about a whole key and has no operand.
    #[inline]
    fn bare(&self, action: Action) -> Result<Action, Wrong> {
        self.has_no_field()?;
        self.has_no_operand()?;
        Ok(action)
    }

    /// The operand as a time that the shard's time is compared with.
    fn bound(&self) -> Result<Operand, Wrong> {
        // Comparing the shard's time with itself asks nothing.
        match self.source == SOURCE_NOW {
            true => Err(Wrong::Source),
            false => self.time(1),
        }
    }

    /// The operand as a time. One that the instruction itself names is at least `ms_min`.
    fn time(&self, ms_min: u64) -> Result<Operand, Wrong> {
        self.has_no_field()?;
        match self.operand()? {
            Operand::Immediate(ms) if !(ms_min..=EXPIRY_MS_MAX).contains(&ms) => Err(Wrong::Time),
            operand => Ok(operand),
        }
    }

    /// Where bytes of the data begin, and how many they are.
    #[inline]
    fn data(&self) -> Result<(u32, u32), Wrong> {
        self.has_no_type()?;
        let len = u32::try_from(self.bits).map_err(|_| Wrong::Data)?;
        Ok((self.offset, len))
    }

    /// How many instructions run when a key expires.
    fn effects(&self) -> Result<u8, Wrong> {
        self.has_no_type()?;
        unused("the operand", self.bits)?;
        let count = u8::try_from(self.offset).ok();
        let count = count.filter(|count| usize::from(*count) < INSTRUCTIONS_MAX);
        count.ok_or(Wrong::Effects)
    }

    #[inline]
    fn rate(&self) -> Result<Action, Wrong> {
        let at = self.number_at()?;
        if !at.kind().is_u64() {
            return Err(Wrong::RateType);
        }
        if self.source != 0 {
            return Err(Wrong::Source);
        }
        let rate = Rate::from_bits(self.bits).ok_or(Wrong::Rate)?;
        Ok(Action::Rate(at, rate))
    }

    #[inline]
    fn has_no_field(&self) -> Result<(), Wrong> {
        unused("the type", self.kind.into())?;
        unused("the offset", self.offset.into())
    }

    #[inline]
    fn has_no_operand(&self) -> Result<(), Wrong> {
        unused("the source of the operand", self.source.into())?;
        unused("the operand", self.bits)
    }

    /// Neither a number of the key nor a source of the operand.
    #[inline]
    fn has_no_type(&self) -> Result<(), Wrong> {
        unused("the type", (self.kind | self.source).into())
    }
}

#[inline]
fn unused(name: &'static str, found: u64) -> Result<(), Wrong> {
    match found {
        0 => Ok(()),
        found => Err(Wrong::Unused { name, found }),
    }
}

/// What is wrong with the bytes of an instruction.
enum Wrong {
    Operation,
    Type,
    DecimalOffset,
    Source,
    OperandNumber,
    Unused { name: &'static str, found: u64 },
    Immediate(NumberKind),
    Data,
    Time,
    RateType,
    Rate,
    Effects,
}

impl Wrong {
    #[cold]
    fn refusal(
        self,
        bytes: &[u8; INSTRUCTION_BYTES],
        instruction: usize,
        data_len: u32,
    ) -> Refusal {
        let raw = Raw::of(bytes);
        match self {
            Wrong::Operation => Refusal::InstructionOperation {
                instruction,
                found: raw.operation,
            },
            Wrong::Type => Refusal::InstructionType {
                instruction,
                found: bytes[1],
            },
            Wrong::DecimalOffset => Refusal::DecimalOffset {
                instruction,
                offset: raw.offset,
            },
            Wrong::Source => Refusal::OperandSource {
                instruction,
                operation: raw.operation,
                found: raw.source,
            },
            Wrong::OperandNumber => Refusal::OperandNumber {
                instruction,
                found: raw.bits,
            },
            Wrong::Unused { name, found } => Refusal::InstructionUnused {
                instruction,
                operation: raw.operation,
                name,
                found,
            },
            Wrong::Immediate(kind) => Refusal::Immediate {
                instruction,
                field_type: kind.name(),
                immediate: raw.bits,
            },
            Wrong::Data => Refusal::InstructionData {
                instruction,
                start: raw.offset.into(),
                end: raw.bits.saturating_add(raw.offset.into()),
                data_len,
            },
            Wrong::Time => Refusal::InstructionTime {
                instruction,
                ms: raw.bits,
            },
            Wrong::Effects => Refusal::Effects {
                instruction,
                count: raw.offset,
            },
            Wrong::RateType => Refusal::RateType {
                instruction,
                found: raw.kind,
            },
            Wrong::Rate => Refusal::InstructionRate {
                instruction,
                interval_us: raw.bits & Rate::INTERVAL_US_MAX,
                burst: u16::from_le_bytes([bytes[13], bytes[14]]),
                quantity: bytes[15],
            },
        }
    }
}

#[cfg(test)]
mod tests;
