//! The item of APPLY, and what is stored of the effects in it that run when a key expires.
//!
//! That is an item of APPLY, too. Its first key is the one that expires. Of the request it has the
//! effects, the keys that they name and the values that they put, and nothing else. So a shard
//! fires it as any other APPLY.

use crate::apply::instruction::{Action, ApplyInstruction, Operand};
use crate::batch::{padded, push_padded, read_u16, read_u32};
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::limits::{APPLY_KEYS_MAX, EFFECTS_BYTES_MAX, INSTRUCTIONS_MAX, KEY_BYTES_MAX};
use crate::refusal::Refusal;
use crate::request::verb::Verb;
use crate::request::{Expiry, Extension, Request, Token, field, is_reserved};

/// The number of the operation in an item.
pub const APPLY: u8 = Verb::Apply as u8;
/// Bytes before the instructions.
pub(super) const HEAD_BYTES: usize = 32;
/// Where the lengths of the third key and those behind it begin.
const LENGTHS_AT: usize = 16;
const NAMES: [&str; APPLY_KEYS_MAX] = [
    "key 0", "key 1", "key 2", "key 3", "key 4", "key 5", "key 6", "key 7",
];

/// One APPLY, checked, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    keys: [&'a [u8]; APPLY_KEYS_MAX],
    key_count: usize,
    instructions: &'a [[u8; INSTRUCTION_BYTES]],
    /// The bytes that PUT, START and REPLACE take values from.
    data: &'a [u8],
    token: Option<&'a [u8; Token::BYTES]>,
    terms: Option<Terms<'a>>,
}

/// Instructions on fields of fixed width, in their order.
#[derive(Clone, Copy, Debug)]
pub struct InstructionsOfFields<'a>(&'a [[u8; INSTRUCTION_BYTES]]);

impl InstructionsOfFields<'_> {
    /// How many they are.
    #[inline(always)]
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Instruction `number`, which is below [`InstructionsOfFields::count`].
    #[inline(always)]
    #[must_use]
    pub fn instruction(&self, number: usize) -> Instruction {
        Instruction::of_field(&self.0[number]).expect("all of them are of fields")
    }
}

/// What an UPDATE_IF says of its first key, besides its instructions.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The value that the key begins with if the key is missing.
    pub start: Option<&'a [u8]>,
    /// What becomes of the expiry of the key.
    pub expiry: Expiry,
}

impl<'a> ApplyRequest<'a> {
    /// Whether the operation of an unchecked item is APPLY.
    #[inline]
    #[must_use]
    pub fn is_apply(item: &[u8]) -> bool {
        item.get(2) == Some(&APPLY)
    }

    /// Reads one item, checking everything that needs no store. The checks stand in the order in
    /// which PROTOCOL.md lists them.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        let head = item
            .first_chunk::<HEAD_BYTES>()
            .ok_or(Refusal::ItemLength {
                len: item.len(),
                needed: HEAD_BYTES as u64,
            })?;
        let lengths = checked_lengths(head, value_bytes_max)?;
        let (key_count, data_len) = (usize::from(head[4]), read_u32(head, 12));
        let instructions_end = HEAD_BYTES + usize::from(head[5]) * INSTRUCTION_BYTES;
        let keys_at = instructions_end + usize::from(read_u16(head, 6));
        let keys_end = lengths.iter().fold(keys_at, |end, len| end + padded(*len));
        let end = keys_end as u64 + u64::from(data_len).next_multiple_of(8);
        if item.len() as u64 != end {
            return Err(Refusal::ItemLength {
                len: item.len(),
                needed: end,
            });
        }
        let token = match Extension::read(APPLY, &item[instructions_end..keys_at])? {
            Extension::Token(token) => Some(token),
            Extension::None | Extension::Member(_) => None,
        };
        let mut keys = [&[][..]; APPLY_KEYS_MAX];
        let mut at = keys_at;
        for number in 0..key_count {
            let len = lengths[number];
            keys[number] = field(item, at, len, NAMES[number])?;
            at += padded(len);
        }
        let data = field(item, keys_end, data_len as usize, "the data")?;
        let keys_used = &keys[..key_count];
        check_names(keys_used)?;
        let instructions = item[HEAD_BYTES..instructions_end].as_chunks().0;
        // All are checked before the first runs.
        let mut arms = false;
        for (number, bytes) in instructions.iter().enumerate() {
            let read = ApplyInstruction::read(bytes, number, head[4], data_len)?;
            arms |= read.effects().is_some();
            // The value of SET has the same limit.
            if let Some(range) = read.data()
                && range.len() > value_bytes_max as usize
            {
                return Err(Refusal::ValueLength {
                    len: u32::try_from(range.len()).unwrap_or(u32::MAX),
                    max: value_bytes_max,
                });
            }
        }
        let request = ApplyRequest {
            keys,
            key_count,
            instructions,
            data,
            token,
            terms: None,
        };
        if arms {
            request.effects().try_for_each(|it| it.check())?;
        }
        Ok(request)
    }

    /// The program of an UPDATE_IF, whose instructions are the first ones of APPLY. A second key
    /// that is the first one once more is the first one.
    ///
    /// # Panics
    /// If the request is no UPDATE_IF.
    #[inline]
    #[must_use]
    pub fn of_update_if(request: &Request<'a>) -> Self {
        assert!(request.verb == Verb::UpdateIf, "{:?}", request.verb);
        let mut keys = [&[][..]; APPLY_KEYS_MAX];
        keys[0] = request.key;
        let mut key_count = 1;
        if let Some(second) = request.second_key.filter(|second| *second != request.key) {
            (keys[1], key_count) = (second, 2);
        }
        ApplyRequest {
            keys,
            key_count,
            instructions: request.instruction_bytes(),
            data: &[],
            token: request.token_bytes(),
            terms: Some(Terms {
                start: request.has_start.then_some(request.value),
                expiry: request.expiry,
            }),
        }
    }

    /// The verb of the item that it was read from.
    #[inline]
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self.terms {
            Some(_) => Verb::UpdateIf,
            None => Verb::Apply,
        }
    }

    /// What an UPDATE_IF says besides its instructions. `None` of an APPLY.
    #[inline]
    #[must_use]
    pub fn terms(&self) -> Option<&Terms<'a>> {
        self.terms.as_ref()
    }

    /// The number of the key that an instruction names as `key`. An UPDATE_IF may name its only key
    /// as two.
    #[inline(always)]
    pub(super) fn key_of(&self, key: u8) -> usize {
        usize::from(key).min(self.key_count - 1)
    }

    /// The instructions, if all of them compare or change a field of fixed width by an immediate
    /// number.
    #[inline(always)]
    #[must_use]
    pub fn instructions_of_fields(&self) -> Option<InstructionsOfFields<'a>> {
        let are_of_fields = self
            .instructions
            .iter()
            .all(|bytes| Instruction::of_field(bytes).is_some());
        are_of_fields.then_some(InstructionsOfFields(self.instructions))
    }

    /// The keys, 1 to 8, no two alike. The first one decides the slot.
    #[inline]
    #[must_use]
    pub fn keys(&self) -> &[&'a [u8]] {
        &self.keys[..self.key_count]
    }

    /// The first key.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        self.keys[0]
    }

    /// The instructions in their order.
    #[inline]
    pub fn instructions(&self) -> impl Iterator<Item = ApplyInstruction> + use<'a> {
        self.instructions.iter().map(ApplyInstruction::checked)
    }

    /// Keys that an effect may change, now or when a key expires, a bit for each.
    pub(crate) fn changed_keys(&self) -> u8 {
        let moved = self
            .terms
            .is_some_and(|terms| terms.start.is_some() || terms.expiry != Expiry::Keep);
        let changed = self.instructions.iter().fold(0, |changed, bytes| {
            changed | ApplyInstruction::changed_key(bytes)
        });
        match self.key_count {
            1 => u8::from(changed != 0 || moved),
            _ => changed | u8::from(moved),
        }
    }

    /// The instructions, not decoded.
    #[inline]
    pub(super) fn instruction_bytes(&self) -> &'a [[u8; INSTRUCTION_BYTES]] {
        self.instructions
    }

    /// What runs when keys expire, of each ON_EXPIRE.
    pub fn effects(&self) -> impl Iterator<Item = Effects<'a>> {
        let all = self.instructions().enumerate();
        all.filter_map(|(number, it)| Some(Effects::new(self, number, it.key, it.effects()?)))
    }

    /// The bytes that PUT, START and REPLACE take values from.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The name of the write, if it has one.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.token.map(|bytes| Token::checked(*bytes))
    }

    /// The value that PUT, START or REPLACE of the request names.
    #[inline]
    pub(super) fn value(&self, start: u32, len: u32) -> &'a [u8] {
        &self.data[start as usize..][..len as usize]
    }

    /// The values that PUT, START and REPLACE name, and the numbers of their keys.
    pub fn values(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let data = self.data;
        let start = self.terms.and_then(|terms| terms.start);
        let values = self.instructions().filter_map(move |instruction| {
            let range = instruction.data()?;
            Some((usize::from(instruction.key), &data[range]))
        });
        start.map(|value| (0, value)).into_iter().chain(values)
    }
}

/// The lengths of all eight keys, those that are not there being 0, after the checks of the head.
fn checked_lengths(
    head: &[u8; HEAD_BYTES],
    value_bytes_max: u32,
) -> Result<[usize; APPLY_KEYS_MAX], Refusal> {
    let [operation, flags, count, instructions] = [head[2], head[3], head[4], head[5]];
    if operation != APPLY {
        return Err(Refusal::Operation(operation));
    }
    if flags != 0 {
        return Err(Refusal::OperationFlags { operation, flags });
    }
    if !(1..=APPLY_KEYS_MAX).contains(&usize::from(count)) {
        return Err(Refusal::ApplyKeyCount(count));
    }
    if usize::from(instructions) > INSTRUCTIONS_MAX {
        return Err(Refusal::ApplyInstructionCount(instructions));
    }
    let lengths: [u16; APPLY_KEYS_MAX] = std::array::from_fn(|key| match key {
        0 | 1 => read_u16(head, 8 + 2 * key),
        key => read_u16(head, LENGTHS_AT + 2 * (key - 2)),
    });
    let unused = lengths.iter().enumerate().skip(usize::from(count));
    if let Some((_, len)) = unused.clone().find(|(_, len)| **len != 0) {
        return Err(Refusal::Reserved {
            name: "the length of a key that APPLY does not have",
            found: u64::from(*len),
        });
    }
    if read_u32(head, 28) != 0 {
        return Err(Refusal::Reserved {
            name: "the word behind the lengths of APPLY",
            found: u64::from(read_u32(head, 28)),
        });
    }
    let expected =
        HEAD_BYTES + usize::from(instructions) * INSTRUCTION_BYTES + usize::from(read_u16(head, 6));
    if usize::from(read_u16(head, 0)) != expected {
        return Err(Refusal::BlockLength {
            found: read_u16(head, 0),
            expected,
        });
    }
    for (key, len) in (0..count).zip(lengths) {
        if !(1..=KEY_BYTES_MAX).contains(&usize::from(len)) {
            return Err(Refusal::KeyLength { key, len });
        }
    }
    let data_len = read_u32(head, 12);
    let data_bytes_max = data_bytes_max(value_bytes_max);
    if data_len > data_bytes_max {
        return Err(Refusal::ApplyData {
            len: data_len,
            max: data_bytes_max,
        });
    }
    Ok(lengths.map(usize::from))
}

/// The data has room for two of the longest values, as the largest record has.
fn data_bytes_max(value_bytes_max: u32) -> u32 {
    value_bytes_max.saturating_mul(2)
}

/// Refuses the server's own keys, and a key that stands twice.
fn check_names(keys: &[&[u8]]) -> Result<(), Refusal> {
    for (number, name) in keys.iter().enumerate() {
        let key = u8::try_from(number).expect("at most eight");
        if is_reserved(name) {
            return Err(Refusal::KeyReserved { key });
        }
        if let Some(first) = keys[..number].iter().position(|other| other == name) {
            let first = u8::try_from(first).expect("at most eight");
            return Err(Refusal::KeyRepeated { key, first });
        }
    }
    Ok(())
}

/// Appends the item. What is beyond a limit is written as far as the head can say it, and the
/// server refuses the item.
pub fn write_apply(
    out: &mut Vec<u8>,
    keys: &[impl AsRef<[u8]>],
    instructions: &[ApplyInstruction],
    data: &[u8],
) {
    let start = out.len();
    let mut head = [0; HEAD_BYTES];
    let block = HEAD_BYTES + instructions.len() * INSTRUCTION_BYTES;
    let short = |number: usize| u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes();
    head[0..2].copy_from_slice(&short(block));
    head[2] = APPLY;
    head[4] = u8::try_from(keys.len()).unwrap_or(u8::MAX);
    head[5] = u8::try_from(instructions.len()).unwrap_or(u8::MAX);
    let data_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    head[12..16].copy_from_slice(&data_len.to_le_bytes());
    for (number, key) in keys.iter().enumerate().take(APPLY_KEYS_MAX) {
        let at = match number {
            0 | 1 => 8 + 2 * number,
            number => LENGTHS_AT + 2 * (number - 2),
        };
        head[at..at + 2].copy_from_slice(&short(key.as_ref().len()));
    }
    out.extend_from_slice(&head);
    for instruction in instructions {
        out.extend_from_slice(&instruction.encode());
    }
    for key in keys {
        push_padded(out, key.as_ref());
    }
    push_padded(out, data);
    debug_assert!((out.len() - start).is_multiple_of(8));
}

/// The effects of one ON_EXPIRE of a request.
#[derive(Clone, Copy, Debug)]
pub struct Effects<'a> {
    request: ApplyRequest<'a>,
    /// The number of the ON_EXPIRE.
    number: usize,
    /// The key that expires.
    key: u8,
    count: usize,
}

impl<'a> Effects<'a> {
    /// The effects that stand behind instruction `number` of the request, an ON_EXPIRE of this key.
    pub(super) fn new(request: &ApplyRequest<'a>, number: usize, key: u8, count: u8) -> Self {
        Effects {
            request: *request,
            number,
            key,
            count: usize::from(count),
        }
    }

    /// The item to be stored: at most [`EFFECTS_BYTES_MAX`] bytes.
    #[must_use]
    pub fn item(&self) -> Vec<u8> {
        let keys = Named::of(self);
        let mut names = [&[][..]; APPLY_KEYS_MAX];
        for (name, &key) in names.iter_mut().zip(keys.used()) {
            *name = self.request.keys()[usize::from(key)];
        }
        let (mut data, mut effects) = (Vec::new(), Vec::with_capacity(self.count));
        for effect in self.all() {
            effects.push(self.stored(effect, &keys, &mut data));
        }
        let mut item = Vec::with_capacity(self.bytes());
        write_apply(&mut item, &names[..keys.count], &effects, &data);
        item
    }

    /// Refuses what no server stores: instructions that are no effects, or too many bytes.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let left = self.request.instructions().count() - self.number - 1;
        if self.count > left {
            return Err(Refusal::EffectCount {
                instruction: self.number,
                count: self.count,
                left,
            });
        }
        for (number, effect) in (self.number + 1..).zip(self.all()) {
            if !effect.may_run_later() {
                return Err(Refusal::EffectOperation {
                    instruction: number,
                    operation: effect.encode()[0],
                });
            }
        }
        let mut earlier = self.request.instructions().take(self.number);
        let is_same = |it: &ApplyInstruction| it.effects().is_some() && it.key == self.key;
        if let Some(first) = earlier.position(|it| is_same(&it)) {
            return Err(Refusal::EffectsRepeated {
                instruction: self.number,
                key: self.key,
                first,
            });
        }
        match self.bytes() {
            bytes if bytes > EFFECTS_BYTES_MAX => Err(Refusal::EffectBytes {
                instruction: self.number,
                bytes,
            }),
            _ => Ok(()),
        }
    }

    fn all(&self) -> impl Iterator<Item = ApplyInstruction> + use<'a> {
        let behind = self.request.instructions().skip(self.number + 1);
        behind.take(self.count)
    }

    /// Bytes of the item.
    fn bytes(&self) -> usize {
        let keys = Named::of(self);
        let names = keys.used().iter();
        let names = names.map(|&key| padded(self.request.keys()[usize::from(key)].len()));
        let data: usize = self
            .all()
            .filter_map(|it| it.data())
            .map(|it| it.len())
            .sum();
        HEAD_BYTES + self.count * INSTRUCTION_BYTES + names.sum::<usize>() + padded(data)
    }

    /// The effect with the numbers and places of the stored item.
    fn stored(
        &self,
        effect: ApplyInstruction,
        keys: &Named,
        data: &mut Vec<u8>,
    ) -> ApplyInstruction {
        let mut put = |start: u32, len: u32| {
            let at = u32::try_from(data.len()).expect("checked with the request");
            data.extend_from_slice(self.request.value(start, len));
            at
        };
        let of_key = |operand| match operand {
            Operand::Field { key, at } => Operand::Field {
                key: keys.numbers[usize::from(key)],
                at,
            },
            operand => operand,
        };
        let action = match effect.action {
            Action::Change(change, at, operand) => Action::Change(change, at, of_key(operand)),
            Action::Expire(time) => Action::Expire(of_key(time)),
            Action::Put { start, len } => Action::Put {
                start: put(start, len),
                len,
            },
            Action::Start { start, len } => Action::Start {
                start: put(start, len),
                len,
            },
            action => action,
        };
        ApplyInstruction {
            key: keys.numbers[usize::from(effect.key)],
            reason: effect.reason,
            action,
        }
    }
}

/// The keys of a request that effects name, the one that expires first.
struct Named {
    keys: [u8; APPLY_KEYS_MAX],
    count: usize,
    /// Of each key of the request, its number among these.
    numbers: [u8; APPLY_KEYS_MAX],
}

impl Named {
    fn of(effects: &Effects<'_>) -> Self {
        let mut named = Named {
            keys: [0; APPLY_KEYS_MAX],
            count: 0,
            numbers: [u8::MAX; APPLY_KEYS_MAX],
        };
        named.add(effects.key);
        for effect in effects.all() {
            named.add(effect.key);
            if let Some(key) = effect.operand_key() {
                named.add(key);
            }
        }
        named
    }

    fn add(&mut self, key: u8) {
        let number = &mut self.numbers[usize::from(key)];
        if *number == u8::MAX {
            *number = u8::try_from(self.count).expect("at most eight keys");
            self.keys[self.count] = key;
            self.count += 1;
        }
    }

    fn used(&self) -> &[u8] {
        &self.keys[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Apply, Arithmetic, Rate};
    use crate::limits::RESERVED_KEY;

    const VALUE_BYTES_MAX: u32 = 16;

    /// Three keys, five instructions and 13 bytes of data.
    fn sale() -> Vec<u8> {
        let mut apply = Apply::new();
        let stock = apply.key(b"stock:{7}");
        let hold = apply.key(b"hold:{7}:1");
        let limit = apply.key(b"limit:{7}");
        let rate = Rate {
            interval_us: 100_000,
            burst: 20,
            quantity: 1,
        };
        apply
            .then(stock.u32(0).at_least(2u64).or_else(1))
            .then(stock.u32(0).decrease(2u64))
            .put(hold, b"two")
            .then(hold.expire_in(600_000))
            .start(limit, &[0; 10])
            .then(limit.u64(0).take(rate));
        let mut item = Vec::new();
        apply.write(&mut item);
        item
    }

    fn read(item: &[u8]) -> Result<ApplyRequest<'_>, Refusal> {
        ApplyRequest::read(item, VALUE_BYTES_MAX)
    }

    /// The refusal of an item with other bytes at one place.
    fn refused(item: &[u8], at: usize, bytes: &[u8]) -> Refusal {
        let mut item = item.to_vec();
        item[at..at + bytes.len()].copy_from_slice(bytes);
        read(&item).expect_err("refused")
    }

    fn written(request: &ApplyRequest<'_>) -> Vec<u8> {
        let instructions: Vec<_> = request.instructions().collect();
        let mut item = Vec::new();
        write_apply(&mut item, request.keys(), &instructions, request.data());
        item
    }

    #[test]
    fn an_item_comes_back_as_it_was_put_together() {
        let item = sale();
        let request = read(&item).expect("well formed");
        assert_eq!(
            request.keys(),
            [&b"stock:{7}"[..], b"hold:{7}:1", b"limit:{7}"]
        );
        assert_eq!(request.key(), b"stock:{7}");
        assert_eq!(request.instructions().count(), 6);
        let values: Vec<_> = request.values().collect();
        assert_eq!(values, [(1, &b"two"[..]), (2, &[0; 10])]);
        assert_eq!(written(&request), item);
    }

    #[test]
    fn an_item_that_is_cut_is_refused_at_every_byte() {
        let item = sale();
        for len in 0..item.len() {
            assert!(read(&item[..len]).is_err(), "{len} bytes");
        }
        assert!(read(&[item, vec![0; 8]].concat()).is_err());
    }

    #[test]
    fn an_item_with_a_flipped_bit_is_refused_or_written_back_as_it_is() {
        let item = sale();
        let (mut accepted, mut refused) = (0, 0);
        for bit in 0..item.len() * 8 {
            let mut flipped = item.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            match read(&flipped) {
                Ok(request) => {
                    assert_eq!(written(&request), flipped, "bit {bit}");
                    accepted += 1;
                }
                Err(refusal) => {
                    assert!(!refusal.to_string().is_empty());
                    refused += 1;
                }
            }
        }
        assert!(
            accepted > 100 && refused > 300,
            "{accepted} accepted, {refused} refused"
        );
    }

    #[test]
    fn each_bad_byte_of_a_head_is_refused_by_its_name() {
        let item = sale();
        let cases: [(usize, &[u8], &str); 10] = [
            (2, &[4], "operation 4 is not known"),
            (3, &[1], "flags 0x01 are not allowed for operation 10"),
            (4, &[0], "APPLY takes 1 to 8 keys, not 0"),
            (4, &[9], "APPLY takes 1 to 8 keys, not 9"),
            (5, &[65], "APPLY takes 0 to 64 instructions, not 65"),
            (
                4,
                &[2],
                "the length of a key that APPLY does not have is reserved and 0, not 0x9",
            ),
            (
                28,
                &[1],
                "the word behind the lengths of APPLY is reserved and 0, not 0x1",
            ),
            (0, &[8, 0], "block length is 128 for these fields, not 8"),
            (10, &[1, 4], "key 1 has 1025 bytes; 1 to 1024 are accepted"),
            (
                12,
                &[33],
                "data of 33 bytes; APPLY takes at most 32, two of the longest values",
            ),
        ];
        for (at, bytes, text) in cases {
            assert_eq!(refused(&item, at, bytes).to_string(), text);
        }
    }

    #[test]
    fn the_first_wrong_field_in_the_order_of_the_document_is_the_refusal() {
        // Each is wrong by itself, and so are all those behind it.
        let wrong: [(usize, &[u8]); 8] = [
            (2, &[1]),
            (3, &[1]),
            (4, &[9]),
            (5, &[65]),
            (20, &[1]),
            (28, &[1]),
            (0, &[8]),
            (8, &[0, 0]),
        ];
        let item = sale();
        let mut all = item.clone();
        for (at, bytes) in wrong.iter().rev() {
            all[*at..at + bytes.len()].copy_from_slice(bytes);
            let alone = refused(&item, *at, bytes);
            let with_those_behind = read(&all).expect_err("refused");
            // A block length that is wanted depends on the counts.
            assert_eq!(
                std::mem::discriminant(&with_those_behind),
                std::mem::discriminant(&alone),
                "{with_those_behind} and {alone}"
            );
        }
    }

    #[test]
    fn keys_differ_and_are_not_the_servers_own() {
        let item = |keys: &[&[u8]]| {
            let mut item = Vec::new();
            write_apply(&mut item, keys, &[], b"");
            item
        };
        let eight: Vec<Vec<u8>> = (0..8).map(|key| vec![b'a' + key]).collect();
        let eight: Vec<&[u8]> = eight.iter().map(Vec::as_slice).collect();
        assert_eq!(read(&item(&eight)).map(|it| it.keys().len()).ok(), Some(8));
        let mut last = eight.clone();
        last[7] = b"c";
        assert_eq!(
            read(&item(&last)).expect_err("one twice").to_string(),
            "key 7 is key 2 once more; the keys of APPLY differ"
        );
        last[7] = RESERVED_KEY;
        assert!(matches!(
            read(&item(&last)),
            Err(Refusal::KeyReserved { key: 7 })
        ));
    }

    #[test]
    fn a_value_has_the_limit_of_set_also_where_the_data_is_longer() {
        let put = |len| {
            let mut apply = Apply::new();
            let key = apply.key(b"k");
            apply.put(key, &vec![7; len]);
            let mut item = Vec::new();
            apply.write(&mut item);
            item
        };
        assert!(read(&put(16)).is_ok());
        assert_eq!(
            read(&put(17)).expect_err("too long").to_string(),
            "value of 17 bytes; at most 16 are accepted"
        );
    }

    fn item_of(apply: &Apply) -> Vec<u8> {
        let mut item = Vec::new();
        apply.write(&mut item);
        item
    }

    fn effects_of<'a>(request: &ApplyRequest<'a>) -> Vec<Effects<'a>> {
        request.effects().collect()
    }

    /// Stock, an order that is not named by effects, and a hold that returns two units.
    fn hold() -> Apply {
        let mut apply = Apply::new();
        let stock = apply.key(b"stock:{7}");
        let order = apply.key(b"order:{7}");
        let hold = apply.key(b"hold:{7}");
        let log = apply.key(b"log:{7}");
        apply
            .put(order, b"an order")
            .put(hold, &2u32.to_le_bytes())
            .then(hold.expire_in(600_000))
            .on_expire(hold, |effects| {
                effects
                    .then(stock.u32(0).increase(hold.u32(0)))
                    .put(log, b"expired")
                    .start(stock, b"none");
            })
            .then(stock.u32(0).decrease(2u64));
        apply
    }

    #[test]
    fn the_stored_item_is_an_apply_of_the_keys_and_values_that_the_effects_name() {
        let item = item_of(&hold());
        let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
        let effects = effects_of(&request);
        let stored = effects[0].item();
        assert_eq!((effects.len(), stored.len()), (1, effects[0].bytes()));
        let stored = ApplyRequest::read(&stored, 1 << 20).expect("an APPLY");
        let names = [&b"hold:{7}"[..], b"stock:{7}", b"log:{7}"];
        assert_eq!(stored.keys(), names);
        assert_eq!(stored.data(), b"expirednone");
        let mut expected = Apply::new();
        let [hold, stock, log] = names.map(|name| expected.key(name));
        expected.then(stock.u32(0).changes(Arithmetic::Add, hold.u32(0)));
        expected.put(log, b"expired").start(stock, b"none");
        let effects: Vec<_> = stored.instructions().collect();
        assert_eq!(effects, expected.instructions());
    }

    #[test]
    fn no_effect_at_all_stores_the_key_alone() {
        let mut apply = Apply::new();
        apply.key(b"a");
        let key = apply.key(b"b");
        apply.on_expire(key, |_| {});
        let item = item_of(&apply);
        let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
        let stored = effects_of(&request)[0].item();
        assert_eq!(stored.len(), HEAD_BYTES + 8);
        let stored = ApplyRequest::read(&stored, 1 << 20).expect("an APPLY");
        assert_eq!(
            (stored.keys(), stored.instructions().count()),
            (&[&b"b"[..]][..], 0)
        );
    }

    #[test]
    fn what_is_no_effect_is_refused_by_its_number_value_and_limit() {
        type Write = fn(&mut Apply);
        let cases: [(Write, &str); 6] = [
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.then(key.exists());
                    });
                },
                "instruction 1 runs when a key expires: it is of operation 16 to 30, not 1",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.then(key.delete()).then(key.u32(0).told());
                    });
                },
                "instruction 2 runs when a key expires: it is of operation 16 to 30, not 31",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.on_expire(key, |_| {});
                    });
                },
                "instruction 1 runs when a key expires: it is of operation 16 to 30, not 32",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |_| {}).on_expire(key, |_| {});
                },
                "instruction 1: key 0 has its effects by instruction 0 already",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.then(key.runs_on_expiry(2)).then(key.delete());
                },
                "instruction 0: 2 effects are told, and 1 instructions stand behind it",
            ),
            (
                |it| {
                    let key = it.key(b"a");
                    it.on_expire(key, |effects| {
                        effects.put(key, &[7; 2_889]);
                    });
                },
                "instruction 0: its effects take 2952 bytes with their keys and values; at most \
                 2944 are stored",
            ),
        ];
        for (write, text) in cases {
            let mut apply = Apply::new();
            write(&mut apply);
            let item = item_of(&apply);
            let refusal = ApplyRequest::read(&item, 1 << 20).expect_err(text);
            assert_eq!(refusal.to_string(), text);
        }
        let mut apply = Apply::new();
        let key = apply.key(b"a");
        apply.on_expire(key, |effects| {
            effects.put(key, &[7; 2_888]);
        });
        let item = item_of(&apply);
        let request = ApplyRequest::read(&item, 1 << 20).expect("as much as is stored");
        assert_eq!(effects_of(&request)[0].item().len(), EFFECTS_BYTES_MAX);
    }
}
