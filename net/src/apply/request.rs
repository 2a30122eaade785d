//! The program of an APPLY or UPDATE_IF as a view of its item.

mod effects;
mod keys;

use crate::apply::instruction::ApplyInstruction;
use crate::batch::{padded, push_padded, read_u16, read_u32};
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::limits::{APPLY_KEYS_MAX, FEW_KEYS_MAX, KEY_BYTES_MAX, instructions_max};
use crate::refusal::Refusal;
use crate::request::verb::Verb;
use crate::request::{Expiry, Extension, Request, Token, field, is_reserved};

pub use effects::Effects;
pub use keys::Keys;
pub(in crate::apply) use keys::later_lengths_bytes;
use keys::{LaterKeys, check_many, write_later_lengths};

/// The number of the operation in an item.
pub const APPLY: u8 = Verb::Apply as u8;
/// Bytes before the instructions.
pub(super) const HEAD_BYTES: usize = 32;
/// Where the lengths of the third key and those behind it begin.
const LENGTHS_AT: usize = 16;
const NAMES: [&str; FEW_KEYS_MAX] = [
    "key 0", "key 1", "key 2", "key 3", "key 4", "key 5", "key 6", "key 7",
];

/// One APPLY, checked, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// The first eight.
    keys: [&'a [u8]; FEW_KEYS_MAX],
    later_keys: LaterKeys<'a>,
    key_count: usize,
    instructions: &'a [[u8; INSTRUCTION_BYTES]],
    /// The bytes that PUT, START and REPLACE take values from.
    data: &'a [u8],
    token: Option<&'a [u8]>,
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

/// Who has written an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Author {
    Client,
    Server,
}

impl<'a> ApplyRequest<'a> {
    /// Reads one item, checking everything that needs no store. The checks stand in the order in
    /// which PROTOCOL.md lists them.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        Self::read_of(item, value_bytes_max, Author::Client)
    }

    /// As [`ApplyRequest::read`], of an item that this server has written: it may give keys
    /// members.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read_own(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        Self::read_of(item, value_bytes_max, Author::Server)
    }

    fn read_of(item: &'a [u8], value_bytes_max: u32, author: Author) -> Result<Self, Refusal> {
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
        let later_at = lengths.iter().fold(keys_at, |end, len| end + padded(*len));
        let later_keys = match key_count > FEW_KEYS_MAX {
            false => LaterKeys::default(),
            true => LaterKeys::read(item, later_at, key_count)?,
        };
        let keys_end = later_at + later_lengths_bytes(key_count) + later_keys.bytes();
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
        let mut keys = [&[][..]; FEW_KEYS_MAX];
        let mut at = keys_at;
        for number in 0..key_count.min(FEW_KEYS_MAX) {
            let len = lengths[number];
            keys[number] = field(item, at, len, NAMES[number])?;
            at += padded(len);
        }
        let data = field(item, keys_end, data_len as usize, "the data")?;
        match key_count > FEW_KEYS_MAX {
            false => check_names(&keys[..key_count])?,
            true => {
                later_keys.check_padding()?;
                check_many(Keys::new(&keys, later_keys))?;
            }
        }
        let instructions = item[HEAD_BYTES..instructions_end].as_chunks().0;
        // All are checked before the first runs.
        let mut arms = false;
        for (number, bytes) in instructions.iter().enumerate() {
            let read = ApplyInstruction::read(bytes, number, head[4], data_len)?;
            arms |= read.effects().is_some();
            if read.gives_members() && author == Author::Client {
                return Err(Refusal::InstructionOperation {
                    instruction: number,
                    found: bytes[0],
                });
            }
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
            later_keys,
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
        let mut keys = [&[][..]; FEW_KEYS_MAX];
        keys[0] = request.key;
        let mut key_count = 1;
        if let Some(second) = request.second_key.filter(|second| *second != request.key) {
            (keys[1], key_count) = (second, 2);
        }
        ApplyRequest {
            keys,
            later_keys: LaterKeys::default(),
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

    /// How many keys there are, 1 to [`APPLY_KEYS_MAX`].
    #[inline]
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.key_count
    }

    /// The keys, no two alike. The first one decides the slot.
    #[inline]
    #[must_use]
    pub fn keys(&self) -> Keys<'a, '_> {
        Keys::new(self.first_keys(), self.later_keys)
    }

    /// The first eight keys, or all if they are fewer.
    #[inline]
    #[must_use]
    pub fn first_keys(&self) -> &[&'a [u8]] {
        &self.keys[..self.key_count.min(FEW_KEYS_MAX)]
    }

    /// The key with this number, which is below [`ApplyRequest::key_count`]. It takes a step for
    /// each key before it, but for the first eight.
    #[must_use]
    pub fn key_at(&self, number: usize) -> &'a [u8] {
        match self.first_keys().get(number) {
            Some(key) => key,
            None => self.keys().nth(number).expect("there are as many keys"),
        }
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

    /// Whether it gives a key members.
    #[must_use]
    pub fn gives_members(&self) -> bool {
        self.keys_with_members().next().is_some()
    }

    /// The numbers of the keys that it gives members.
    pub fn keys_with_members(&self) -> impl Iterator<Item = usize> + use<'a> {
        let giving = self.instructions().filter(ApplyInstruction::gives_members);
        giving.map(|it| usize::from(it.key))
    }

    /// Of each key, whether an effect may change it, now or when a key expires.
    pub(crate) fn changed_keys(&self) -> [bool; APPLY_KEYS_MAX] {
        let moved = self
            .terms
            .is_some_and(|terms| terms.start.is_some() || terms.expiry != Expiry::Keep);
        let mut changed = [false; APPLY_KEYS_MAX];
        changed[0] = moved;
        for bytes in self.instructions {
            if let Some(key) = ApplyInstruction::changed_key(bytes) {
                changed[self.key_of(key)] = true;
            }
        }
        changed
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
        self.token.map(Token::checked)
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

/// The lengths of the first eight keys, those that are not there being 0, after the checks of the
/// head.
fn checked_lengths(
    head: &[u8; HEAD_BYTES],
    value_bytes_max: u32,
) -> Result<[usize; FEW_KEYS_MAX], Refusal> {
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
    let instructions_max = instructions_max(count.into());
    if usize::from(instructions) > instructions_max {
        return Err(Refusal::ApplyInstructionCount {
            count: instructions,
            max: instructions_max,
        });
    }
    let lengths: [u16; FEW_KEYS_MAX] = std::array::from_fn(|key| match key {
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

/// Whether the item of an APPLY says that it has more than [`FEW_KEYS_MAX`] keys: only a server
/// with [`FEATURE_MANY_KEYS`](crate::hello::FEATURE_MANY_KEYS) takes it.
#[must_use]
pub fn apply_has_many_keys(item: &[u8]) -> bool {
    item.get(4)
        .is_some_and(|count| usize::from(*count) > FEW_KEYS_MAX)
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
    // More keys than there may be are none, which no server takes.
    head[4] = match keys.len() {
        more if more > APPLY_KEYS_MAX => 0,
        count => u8::try_from(count).expect("at most 255"),
    };
    head[5] = u8::try_from(instructions.len()).unwrap_or(u8::MAX);
    let data_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    head[12..16].copy_from_slice(&data_len.to_le_bytes());
    for (number, key) in keys.iter().enumerate().take(FEW_KEYS_MAX) {
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
    let (first, later) = keys.split_at(keys.len().min(FEW_KEYS_MAX));
    for key in first {
        push_padded(out, key.as_ref());
    }
    write_later_lengths(out, later);
    for key in later {
        push_padded(out, key.as_ref());
    }
    push_padded(out, data);
    debug_assert!((out.len() - start).is_multiple_of(8));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Apply, Rate};
    use crate::batch::Batch;
    use crate::frame::HEADER_BYTES;
    use crate::instruction::{FieldType, Operation};
    use crate::level::AckLevel;
    use crate::limits::RESERVED_KEY;
    use crate::request::BatchRequest;

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
        let keys: Vec<&[u8]> = request.keys().collect();
        write_apply(&mut item, &keys, &instructions, request.data());
        item
    }

    #[test]
    fn an_update_if_that_names_one_key_twice_is_a_program_of_one_key() {
        let step = |operation, key| Instruction {
            operation,
            field_type: FieldType::U64,
            key,
            reason: 1,
            offset: 0,
            immediate: 1,
        };
        let program = [step(Operation::Ge, 0), step(Operation::Sub, 1)];
        for (second, count) in [(&b"k"[..], 1), (b"other", 2)] {
            let mut frame = Vec::new();
            let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
            batch.update_if(&mut frame, b"k", Some(second), &program, Some(b"12345678"));
            batch.finish(&mut frame);
            let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
            let request = Request::read(batch.item(0), 64).expect("well formed");
            let program = ApplyRequest::of_update_if(&request);
            assert_eq!(program.key_count(), count);
            assert_eq!((program.key_of(0), program.key_of(1)), (0, count - 1));
            assert_eq!(program.verb(), Verb::UpdateIf);
            let start = program.terms().and_then(|terms| terms.start);
            assert_eq!(start, Some(&b"12345678"[..]));
            let values: Vec<_> = program.values().collect();
            assert_eq!(values, [(0, &b"12345678"[..])]);
            let changed = program.changed_keys();
            let is_all = changed
                .iter()
                .enumerate()
                .all(|(key, it)| *it == (key < count));
            assert!(is_all, "the start, and the second key");
        }
    }

    #[test]
    fn an_item_comes_back_as_it_was_put_together() {
        let item = sale();
        let request = read(&item).expect("well formed");
        assert_eq!(
            request.first_keys(),
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

    /// Each key is put and must be missing before.
    fn wide(count: usize) -> Vec<u8> {
        let mut apply = Apply::new();
        for number in 0..count {
            let key = apply.key(format!("{{7}}{}", number * 31).as_bytes());
            apply.put(key, b"value");
        }
        let mut item = Vec::new();
        apply.write(&mut item);
        item
    }

    #[test]
    fn as_many_keys_as_there_may_be_come_back_in_their_order() {
        for count in [8, 9, 10, 12, 13, 100, APPLY_KEYS_MAX] {
            let item = wide(count);
            let request = read(&item).expect("well formed");
            assert_eq!(written(&request), item, "{count} keys");
            assert_eq!((request.key_count(), request.keys().len()), (count, count));
            for (number, key) in request.keys().enumerate() {
                assert_eq!(key, format!("{{7}}{}", number * 31).as_bytes());
                assert_eq!(request.key_at(number), key);
            }
            let is_many = count > FEW_KEYS_MAX;
            assert_eq!(apply_has_many_keys(&item), is_many, "{count} keys");
        }
        let refusal = read(&wide(APPLY_KEYS_MAX + 1)).expect_err("refused");
        assert_eq!(refusal.to_string(), "APPLY takes 1 to 255 keys, not 0");
    }

    #[test]
    fn an_item_of_many_keys_cut_anywhere_or_with_a_flipped_bit_is_refused_or_written_back() {
        for count in [9, 13] {
            let item = wide(count);
            for len in 0..item.len() {
                assert!(read(&item[..len]).is_err(), "{len} bytes");
            }
            let (mut accepted, mut refused) = (0, 0);
            for bit in 0..item.len() * 8 {
                let mut flipped = item.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                match read(&flipped) {
                    Ok(request) => {
                        assert_eq!(written(&request), flipped, "bit {bit}");
                        accepted += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            assert!(accepted > 100 && refused > 300, "{accepted}, {refused}");
        }
    }

    #[test]
    fn many_keys_are_refused_if_one_stands_twice_or_is_the_servers_own_or_too_long() {
        let with = |names: &[(usize, Vec<u8>)]| {
            let mut keys: Vec<Vec<u8>> = (0..40).map(|it| vec![b'k', b'A' + it]).collect();
            for (number, name) in names {
                keys[*number] = name.clone();
            }
            let mut item = Vec::new();
            write_apply(&mut item, &keys, &[], &[]);
            read(&item)
                .map(|it| it.key_count())
                .map_err(|it| it.to_string())
        };
        assert_eq!(with(&[]), Ok(40));
        for (first, key) in [(0, 39), (3, 7), (7, 8), (20, 21)] {
            let twice = with(&[(first, b"same".to_vec()), (key, b"same".to_vec())]);
            let text = Refusal::KeyRepeated {
                key: u8::try_from(key).expect("few"),
                first: u8::try_from(first).expect("few"),
            };
            assert_eq!(twice, Err(text.to_string()));
        }
        let own = with(&[(30, [RESERVED_KEY, b"x"].concat())]);
        assert_eq!(own, Err(Refusal::KeyReserved { key: 30 }.to_string()));
        let long = with(&[(30, vec![b'k'; KEY_BYTES_MAX + 1])]);
        let text = "key 30 has 1025 bytes; 1 to 1024 are accepted";
        assert_eq!(long, Err(text.to_owned()));
        assert!(with(&[(30, Vec::new())]).is_err());
    }

    #[test]
    fn each_bad_byte_of_a_head_is_refused_by_its_name() {
        let item = sale();
        let cases: [(usize, &[u8], &str); 10] = [
            (2, &[4], "operation 4 is not known"),
            (3, &[1], "flags 0x01 are not allowed for operation 10"),
            (4, &[0], "APPLY takes 1 to 255 keys, not 0"),
            (4, &[9], "key 3 has 0 bytes; 1 to 1024 are accepted"),
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
            (4, &[0]),
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
        assert_eq!(read(&item(&eight)).map(|it| it.key_count()).ok(), Some(8));
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
}
