//! The item of APPLY.

use crate::apply::instruction::ApplyInstruction;
use crate::batch::{padded, push_padded, read_u16, read_u32};
use crate::instruction::INSTRUCTION_BYTES;
use crate::limits::{APPLY_KEYS_MAX, INSTRUCTIONS_MAX, KEY_BYTES_MAX};
use crate::refusal::Refusal;
use crate::request::verb::Verb;
use crate::request::{extension_refusal, field, is_reserved};

/// The number of the operation in an item.
pub const APPLY: u8 = Verb::Apply as u8;
/// Bytes before the instructions.
const HEAD_BYTES: usize = 32;
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
    /// The bytes that PUT and START take values from.
    data: &'a [u8],
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
        if keys_at > instructions_end {
            let area = &item[instructions_end..keys_at];
            return Err(extension_refusal(APPLY, area));
        }
        let mut keys = [&[][..]; APPLY_KEYS_MAX];
        let mut at = keys_at;
        for (key, (len, name)) in keys.iter_mut().zip(lengths.into_iter().zip(NAMES)) {
            *key = field(item, at, len, name)?;
            at += padded(len);
        }
        let data = field(item, keys_end, data_len as usize, "the data")?;
        let keys_used = &keys[..key_count];
        check_names(keys_used)?;
        let instructions = item[HEAD_BYTES..instructions_end].as_chunks().0;
        // All are checked before the first runs.
        for (number, bytes) in instructions.iter().enumerate() {
            let read = ApplyInstruction::read(bytes, number, head[4], data_len)?;
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
        Ok(ApplyRequest {
            keys,
            key_count,
            instructions,
            data,
        })
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

    /// The bytes of the data that an instruction of the request names.
    #[inline]
    pub(super) fn data(&self, start: u32, len: u32) -> &'a [u8] {
        &self.data[start as usize..][..len as usize]
    }

    /// The values that PUT and START name, and the numbers of their keys.
    pub fn values(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let data = self.data;
        self.instructions().filter_map(move |instruction| {
            let range = instruction.data()?;
            Some((usize::from(instruction.key), &data[range]))
        })
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
