//! What an APPLY does: its instructions one after the other on staged values.

use std::cmp::Ordering;

use crate::apply::decimal::Decimal;
use crate::apply::instruction::{
    Action, ApplyInstruction, Arithmetic, BitTest, Comparison, Operand,
};
use crate::apply::number::{NumberAt, NumberKind};
use crate::apply::rate::{Rate, TooEarly};
use crate::apply::request::{ApplyRequest, Effects};
use crate::instruction::{FieldType, Instruction, Outcome};
use crate::limits::EXPIRY_MS_MAX;
use crate::refusal::Refusal;
use crate::version::Version;

/// The keys of one APPLY while it runs: how they were, and what is staged of them. What is staged
/// of an APPLY that is denied is dropped.
pub trait ApplyKeys<'a> {
    /// Whether a key had a value before the request.
    fn existed(&self, key: usize) -> bool;

    /// The version that a key had before the request; sequence 0 if it had no value.
    fn version(&self, key: usize) -> Version;

    /// Whether a key may have changed between the time when the newest version of its partition was
    /// this one and the request. A change is never missed.
    fn may_have_changed(&self, key: usize, since: Version) -> bool;

    /// The time from which lifetimes count, in unix milliseconds: `now_ms`, or a later one where a
    /// millisecond has begun.
    fn lifetimes_from_ms(&self, now_ms: u64) -> u64 {
        now_ms
    }

    /// The value of a key now; `None` if it has none.
    fn value(&self, key: usize) -> Option<&[u8]>;

    /// Whether the value of a key is one with members now, which instructions do not read.
    fn has_members(&self, _key: usize) -> bool {
        false
    }

    /// `width` bytes from `start` on of the value of a key, to be changed in place. The value has
    /// them.
    fn field_mut(&mut self, key: usize, start: usize, width: usize) -> &mut [u8];

    /// The version of a key that has a value is new, although the value may stay as it was.
    fn log_unchanged(&mut self, key: usize);

    /// Gives a key that has a value another one, of a few bytes. Its expiry stays, and what runs
    /// then.
    fn replace(&mut self, key: usize, value: &[u8]);

    /// The same with bytes of the request, however many they are.
    ///
    /// # Errors
    /// As [`ApplyKeys::put`].
    fn put_keeping(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal>;

    /// Gives a key this value, whatever it has. The expiry that it has goes.
    ///
    /// # Errors
    /// A [`Refusal`] with both numbers: what is staged would take more than may be written.
    fn put(&mut self, key: usize, value: &'a [u8]) -> Result<(), Refusal>;

    /// As [`ApplyKeys::put`], of a value with members.
    ///
    /// # Errors
    /// As [`ApplyKeys::put`].
    fn put_head(&mut self, _key: usize, _value: &'a [u8]) -> Result<(), Refusal> {
        unreachable!("the server itself gives keys members")
    }

    /// As [`ApplyKeys::put_keeping`], of a value with members.
    ///
    /// # Errors
    /// As [`ApplyKeys::put`].
    fn replace_head(&mut self, _key: usize, _value: &'a [u8]) -> Result<(), Refusal> {
        unreachable!("the server itself gives keys members")
    }

    /// Takes the value of a key away that has one.
    fn delete(&mut self, key: usize);

    /// Whether a key may be gone from this time on, in unix milliseconds.
    ///
    /// # Errors
    /// A [`Refusal`] with that time and the times that it is compared with.
    fn takes_expiry(&self, _expiry_ms: u64) -> Result<(), Refusal> {
        Ok(())
    }

    /// A key that has a value is gone from this time on, in unix milliseconds; `None` for never.
    fn expire(&mut self, key: usize, expiry_ms: Option<u64>);

    /// From when on a key that has a value is gone.
    fn expiry_ms(&self, key: usize) -> Option<u64>;

    /// When a key expires, this is to run. Whatever happens to the key behind this instruction, it
    /// has a value and an expiry at the end.
    fn arm(&mut self, key: usize, effects: &Effects<'a>);
}

/// Why an APPLY changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The number of the instruction, from 0.
    pub instruction: usize,
    /// Its author's code.
    pub reason: u8,
    /// What did not hold.
    pub cause: Cause,
}

/// What did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The key has no value.
    NotFound,
    /// A guard, or the range of an effect.
    Guard {
        /// The number that is there, as 64 bits.
        actual: u64,
        /// It was an effect.
        overflow: bool,
    },
    /// The key has this version.
    Version(Version),
    /// The request does not suit what the key holds.
    Refused(Refusal),
}

impl From<Refusal> for Cause {
    fn from(refusal: Refusal) -> Self {
        Cause::Refused(refusal)
    }
}

/// Runs the instructions of `request` at `now_ms` of the shard's time. Appends what the answer
/// tells to `returned`: 8 bytes for each effect on a number and each RETURN.
///
/// # Errors
/// [`Denial`] of the first instruction that does not hold. `returned` may have grown, and what is
/// staged is to be dropped.
pub fn run<'a>(
    request: &ApplyRequest<'a>,
    now_ms: u64,
    keys: &mut impl ApplyKeys<'a>,
    returned: &mut Vec<u8>,
) -> Result<(), Denial> {
    // Effects of an ON_EXPIRE are passed over.
    let (mut next, mut arms) = (0, false);
    for (number, bytes) in request.instruction_bytes().iter().enumerate() {
        if number < next {
            continue;
        }
        // Nearly all instructions are of this kind.
        if let Some(instruction) = Instruction::of_field(bytes) {
            let key = request.key_of(instruction.key);
            run_on_field(&instruction, number, (request, key), keys, returned).map_err(
                |cause| Denial {
                    instruction: number,
                    reason: instruction.reason,
                    cause,
                },
            )?;
            continue;
        }
        let instruction = ApplyInstruction::checked(bytes);
        if let Some(effects) = instruction.effects() {
            next = number + 1 + usize::from(effects);
            arms = true;
        }
        let step = Step {
            request,
            now_ms,
            number,
            key: request.key_of(instruction.key),
        };
        step.run(instruction.action, keys, returned)
            .map_err(|cause| Denial {
                instruction: number,
                reason: instruction.reason,
                cause,
            })?;
    }
    match arms {
        true => check_armed(request, keys),
        false => Ok(()),
    }
}

/// Compares or changes a field of fixed width of a key.
#[inline]
fn run_on_field<'a>(
    instruction: &Instruction,
    number: usize,
    (request, key): (&ApplyRequest<'a>, usize),
    keys: &mut impl ApplyKeys<'a>,
    returned: &mut Vec<u8>,
) -> Result<(), Cause> {
    let value = plain_value(keys, key)?;
    match instruction.outcome(value) {
        Outcome::Holds => Ok(()),
        Outcome::Changed { before, after } => {
            // What stays as it was is no change of an APPLY, and is one of an UPDATE_IF.
            if before != after {
                let (start, width) = (instruction.offset as usize, instruction.field_type.width());
                let field = keys.field_mut(key, start, width);
                instruction.field_type.store_bits(after, field);
            } else if request.terms().is_some() {
                keys.log_unchanged(key);
            }
            returned.extend_from_slice(&after.to_le_bytes());
            Ok(())
        }
        Outcome::Failed { actual, overflow } => Err(Cause::Guard { actual, overflow }),
        Outcome::OutsideValue => Err(Cause::Refused(Refusal::Field {
            instruction: number,
            offset: instruction.offset,
            width: instruction.field_type.width(),
            value_len: value.len(),
        })),
    }
}

/// The value of a key, if it is a plain one.
#[inline]
fn plain_value<'k, 'a>(keys: &'k impl ApplyKeys<'a>, key: usize) -> Result<&'k [u8], Cause> {
    match keys.value(key) {
        Some(_) if keys.has_members(key) => Err(Cause::Refused(Refusal::WrongType { key })),
        Some(value) => Ok(value),
        None => Err(Cause::NotFound),
    }
}

/// Denies an ON_EXPIRE whose key will not expire.
#[cold]
fn check_armed<'a>(request: &ApplyRequest<'a>, keys: &impl ApplyKeys<'a>) -> Result<(), Denial> {
    for (number, instruction) in request.instructions().enumerate() {
        let key = usize::from(instruction.key);
        let expires = keys.value(key).is_some() && keys.expiry_ms(key).is_some();
        if instruction.effects().is_some() && !expires {
            return Err(Denial {
                instruction: number,
                reason: instruction.reason,
                cause: Cause::Refused(Refusal::EffectsInVain {
                    instruction: number,
                    key,
                }),
            });
        }
    }
    Ok(())
}

/// One instruction and what it may look at.
struct Step<'r, 'a> {
    request: &'r ApplyRequest<'a>,
    now_ms: u64,
    /// Its number, for messages.
    number: usize,
    key: usize,
}

impl<'a> Step<'_, 'a> {
    #[inline]
    fn run(
        &self,
        action: Action,
        keys: &mut impl ApplyKeys<'a>,
        returned: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        match action {
            Action::Exists => match keys.existed(self.key) {
                true => Ok(()),
                false => Err(Cause::NotFound),
            },
            Action::Absent => holds(!keys.existed(self.key), 1),
            Action::Version(_) if !keys.existed(self.key) => Err(Cause::NotFound),
            Action::Version(version) => match keys.version(self.key) {
                actual if actual == version => Ok(()),
                actual => Err(Cause::Version(actual)),
            },
            Action::AbsentSince(since) => {
                let existed = keys.existed(self.key);
                let holds_on = !existed && !keys.may_have_changed(self.key, since);
                holds(holds_on, existed.into())
            }
            Action::Before(time) => {
                let is_before = i128::from(self.now_ms) < self.time(time, keys)?;
                holds(is_before, self.now_ms)
            }
            Action::Since(time) => {
                let is_since = i128::from(self.now_ms) >= self.time(time, keys)?;
                holds(is_since, self.now_ms)
            }
            Action::Compare(comparison, at, operand) => {
                let actual = self.number(self.key, at, keys)?;
                let other = self.operand(operand, at.kind(), keys)?;
                holds(comparison.holds(actual.cmp(&other)), bits_of(actual))
            }
            Action::Bits(test, at, operand) => {
                let actual = self.number(self.key, at, keys)?;
                let other = self.operand(operand, at.kind(), keys)?;
                holds(test.holds(actual, other), bits_of(actual))
            }
            Action::Change(change, at, operand) => self.change(change, at, operand, keys, returned),
            Action::Put { start, len } => Ok(keys.put(self.key, self.request.value(start, len))?),
            Action::Start { start, len } => {
                if keys.value(self.key).is_some() {
                    plain_value(keys, self.key)?;
                } else {
                    keys.put(self.key, self.request.value(start, len))?;
                }
                Ok(())
            }
            Action::Replace { start, len } => {
                self.found(keys)?;
                keys.put_keeping(self.key, self.request.value(start, len))?;
                Ok(())
            }
            Action::PutHead { .. } | Action::ReplaceHead { .. } => self.give_members(action, keys),
            Action::Delete => {
                self.found(keys)?;
                keys.delete(self.key);
                Ok(())
            }
            Action::Expire(time) => {
                self.found(keys)?;
                let ms = match time {
                    Operand::Now { plus_ms } => {
                        let from_ms = keys.lifetimes_from_ms(self.now_ms);
                        i128::from(from_ms) + i128::from(plus_ms)
                    }
                    time => self.time(time, keys)?,
                };
                let expiry_ms = u64::try_from(ms)
                    .ok()
                    .filter(|ms| *ms <= EXPIRY_MS_MAX)
                    .ok_or(Refusal::InstructionExpiry {
                        instruction: self.number,
                        ms,
                    })?;
                keys.takes_expiry(expiry_ms)?;
                keys.expire(self.key, (expiry_ms > 0).then_some(expiry_ms));
                Ok(())
            }
            Action::OnExpire { effects } => {
                self.found(keys)?;
                let key = u8::try_from(self.key).expect("at most 255 keys");
                keys.arm(
                    self.key,
                    &Effects::new(self.request, self.number, key, effects),
                );
                Ok(())
            }
            Action::Rate(at, rate) => self.take(at, rate, keys, returned),
            Action::Return(at) => {
                let number = self.number(self.key, at, keys)?;
                returned.extend_from_slice(&bits_of(number).to_le_bytes());
                Ok(())
            }
        }
    }

    /// Gives a number another value, which the answer shows.
    #[inline]
    fn change(
        &self,
        change: Arithmetic,
        at: NumberAt,
        operand: Operand,
        keys: &mut impl ApplyKeys<'a>,
        returned: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let before = self.number(self.key, at, keys)?;
        let operand = self.operand(operand, at.kind(), keys)?;
        let (least, greatest) = at.kind().range();
        let after = change.of(before, operand, (least, greatest));
        if after < least || after > greatest {
            return Err(Cause::Guard {
                actual: bits_of(before),
                overflow: true,
            });
        }
        // What stays as it was is no change.
        if after != before {
            self.store(at, after, keys);
        }
        returned.extend_from_slice(&bits_of(after).to_le_bytes());
        Ok(())
    }

    /// Gives a key a value with members.
    fn give_members(&self, action: Action, keys: &mut impl ApplyKeys<'a>) -> Result<(), Cause> {
        match action {
            Action::PutHead { start, len } => {
                keys.put_head(self.key, self.request.value(start, len))?;
            }
            Action::ReplaceHead { start, len } => {
                self.found(keys)?;
                keys.replace_head(self.key, self.request.value(start, len))?;
            }
            _ => unreachable!("it gives no members"),
        }
        Ok(())
    }

    /// Takes units of a rate.
    fn take(
        &self,
        at: NumberAt,
        rate: Rate,
        keys: &mut impl ApplyKeys<'a>,
        returned: &mut Vec<u8>,
    ) -> Result<(), Cause> {
        let until_us = bits_of(self.number(self.key, at, keys)?);
        let now_us = self.now_ms.saturating_mul(1000);
        let after_us = rate
            .take(until_us, now_us)
            .map_err(|TooEarly { wait_us }| Cause::Guard {
                actual: wait_us,
                overflow: false,
            })?;
        self.store(at, i128::from(after_us), keys);
        returned.extend_from_slice(&after_us.to_le_bytes());
        Ok(())
    }

    fn found(&self, keys: &impl ApplyKeys<'a>) -> Result<(), Cause> {
        match keys.value(self.key) {
            Some(_) => Ok(()),
            None => Err(Cause::NotFound),
        }
    }

    /// The number at a place of the value of a key.
    #[inline]
    fn number(&self, key: usize, at: NumberAt, keys: &impl ApplyKeys<'a>) -> Result<i128, Cause> {
        let value = plain_value(keys, key)?;
        match at.kind() {
            NumberKind::Field(field_type) => {
                let start = at.offset() as usize;
                let field = value
                    .get(start..)
                    .and_then(|it| it.get(..field_type.width()));
                let field = field.ok_or(Refusal::Field {
                    instruction: self.number,
                    offset: at.offset(),
                    width: field_type.width(),
                    value_len: value.len(),
                })?;
                Ok(field_type.load(field))
            }
            NumberKind::Decimal => {
                let number = Decimal::read(value).ok_or(Refusal::Decimal {
                    instruction: self.number,
                    value_len: value.len(),
                })?;
                Ok(i128::from(number))
            }
        }
    }

    /// Writes a number that its kind holds, where one stands.
    #[inline]
    fn store(&self, at: NumberAt, number: i128, keys: &mut impl ApplyKeys<'a>) {
        match at.kind() {
            NumberKind::Field(field_type) => {
                let start = at.offset() as usize;
                let field = keys.field_mut(self.key, start, field_type.width());
                field_type.store_bits(bits_of(number), field);
            }
            NumberKind::Decimal => {
                let number = i64::try_from(number).expect("within the range of a decimal");
                keys.replace(self.key, Decimal::new(number).bytes());
            }
        }
    }

    /// The number that an operand is beside one of this kind.
    #[inline]
    fn operand(
        &self,
        operand: Operand,
        kind: NumberKind,
        keys: &impl ApplyKeys<'a>,
    ) -> Result<i128, Cause> {
        match operand {
            Operand::Immediate(bits) => Ok(kind.number(bits)),
            Operand::Field { key, at } => self.number(usize::from(key), at, keys),
            Operand::Now { plus_ms } => Ok(i128::from(self.now_ms) + i128::from(plus_ms)),
        }
    }

    /// The time that an operand is, in unix milliseconds.
    fn time(&self, operand: Operand, keys: &impl ApplyKeys<'a>) -> Result<i128, Cause> {
        self.operand(operand, NumberKind::Field(FieldType::U64), keys)
    }
}

/// A number as 64 bits: two's complement if it is negative.
#[inline]
fn bits_of(number: i128) -> u64 {
    let [low @ .., _, _, _, _, _, _, _, _] = number.to_le_bytes();
    u64::from_le_bytes(low)
}

#[inline]
fn holds(does: bool, actual: u64) -> Result<(), Cause> {
    match does {
        true => Ok(()),
        false => Err(Cause::Guard {
            actual,
            overflow: false,
        }),
    }
}

impl Comparison {
    #[inline]
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Eq => order.is_eq(),
            Comparison::Ne => order.is_ne(),
            Comparison::Lt => order.is_lt(),
            Comparison::Le => order.is_le(),
            Comparison::Gt => order.is_gt(),
            Comparison::Ge => order.is_ge(),
        }
    }
}

impl BitTest {
    #[inline]
    fn holds(self, number: i128, bits: i128) -> bool {
        match self {
            BitTest::All => number & bits == bits,
            BitTest::Any => number & bits != 0,
            BitTest::None => number & bits == 0,
        }
    }
}

impl Arithmetic {
    /// What becomes of a number whose kind has this range. The kind may not hold the result.
    #[inline]
    fn of(self, before: i128, operand: i128, (least, greatest): (i128, i128)) -> i128 {
        // Operands have 65 bits at most, so nothing overflows.
        match self {
            Arithmetic::Set => operand,
            Arithmetic::Add => before + operand,
            Arithmetic::Sub => before - operand,
            Arithmetic::AddSaturating => (before + operand).clamp(least, greatest),
            Arithmetic::SubSaturating => (before - operand).clamp(least, greatest),
            Arithmetic::Min => before.min(operand),
            Arithmetic::Max => before.max(operand),
            Arithmetic::And => before & operand,
            Arithmetic::Or => before | operand,
            Arithmetic::Xor => before ^ operand,
        }
    }
}
