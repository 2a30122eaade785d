//! The item of RUN as a view of its bytes.

use crate::apply::APPLY;
use crate::batch::{padded, read_u16, read_u32, read_u64};
use crate::limits::{FEW_KEYS_MAX, KEY_BYTES_MAX, PROGRAM_ARGUMENTS_MAX};
use crate::program::id::ProgramId;
use crate::refusal::Refusal;
use crate::request::{Extension, Token, field};

/// The number of the operation in an item.
pub const RUN: u8 = 11;
/// Bytes before the extension.
pub(crate) const HEAD_BYTES: usize = 40;
const NAMES: [&str; FEW_KEYS_MAX] = [
    "key 0", "key 1", "key 2", "key 3", "key 4", "key 5", "key 6", "key 7",
];

/// Where the length of a key stands in the head, as in that of APPLY.
pub(super) fn length_at(key: usize) -> usize {
    match key {
        0 | 1 => 8 + 2 * key,
        key => 16 + 2 * (key - 2),
    }
}

/// One RUN, checked as far as that needs no program.
#[derive(Clone, Copy, Debug)]
pub struct RunRequest<'a> {
    program: ProgramId,
    pub(super) head: &'a [u8; HEAD_BYTES],
    /// The area with the token, or nothing.
    pub(super) extension: &'a [u8],
    /// The keys, padded, one behind the other.
    pub(super) keys: &'a [u8],
    /// The arguments, padded, one behind the other.
    pub(super) arguments: &'a [u8],
}

impl<'a> RunRequest<'a> {
    /// Reads one item. The checks stand in the order in which RUN.md lists them. What the keys
    /// and the program are is judged behind that.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    pub fn read(item: &'a [u8]) -> Result<Self, Refusal> {
        let head = item
            .first_chunk::<HEAD_BYTES>()
            .ok_or(Refusal::ItemLength {
                len: item.len(),
                needed: HEAD_BYTES as u64,
            })?;
        let lengths = checked_lengths(head)?;
        let arguments_len = read_u32(head, 12);
        let keys_at = HEAD_BYTES + usize::from(read_u16(head, 6));
        let keys_end = lengths.iter().fold(keys_at, |end, len| end + padded(*len));
        let end = keys_end as u64 + u64::from(arguments_len);
        if item.len() as u64 != end {
            return Err(Refusal::ItemLength {
                len: item.len(),
                needed: end,
            });
        }
        let extension = &item[HEAD_BYTES..keys_at];
        // It becomes that of the APPLY, which takes the same ones.
        Extension::read(APPLY, extension)?;
        let mut at = keys_at;
        for (len, name) in lengths.into_iter().zip(NAMES) {
            field(item, at, len, name)?;
            at += padded(len);
        }
        Ok(RunRequest {
            program: ProgramId(read_u64(head, 32)),
            head,
            extension,
            keys: &item[keys_at..keys_end],
            arguments: &item[keys_end..],
        })
    }

    /// The id of the program.
    #[must_use]
    pub fn program(&self) -> ProgramId {
        self.program
    }

    /// The first key, which decides the slot.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        &self.keys[..usize::from(read_u16(self.head, length_at(0)))]
    }

    /// The keys in the order of their numbers.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (head, keys, mut at) = (self.head, self.keys, 0);
        (0..usize::from(head[4])).map(move |number| {
            let start = at;
            let len = usize::from(read_u16(head, length_at(number)));
            at += padded(len);
            &keys[start..start + len]
        })
    }

    /// The arguments as they stand in the item. Only the program tells what they are.
    #[must_use]
    pub fn arguments(&self) -> &'a [u8] {
        self.arguments
    }

    /// The name of the write, if it has one.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match Extension::read(APPLY, self.extension) {
            Ok(Extension::Token(bytes)) => Some(Token::checked(bytes)),
            _ => None,
        }
    }

    /// How many keys there are.
    #[must_use]
    pub fn key_count(&self) -> u8 {
        self.head[4]
    }

    /// How many arguments there are to be.
    #[must_use]
    pub fn argument_count(&self) -> u8 {
        self.head[5]
    }
}

/// The lengths of all eight keys, those that are not there being 0, after the checks of the head.
fn checked_lengths(head: &[u8; HEAD_BYTES]) -> Result<[usize; FEW_KEYS_MAX], Refusal> {
    let [operation, flags, count, arguments] = [head[2], head[3], head[4], head[5]];
    if operation != RUN {
        return Err(Refusal::Operation(operation));
    }
    if flags != 0 {
        return Err(Refusal::OperationFlags { operation, flags });
    }
    if !(1..=FEW_KEYS_MAX).contains(&usize::from(count)) {
        return Err(Refusal::RunKeyCount(count));
    }
    if usize::from(arguments) > PROGRAM_ARGUMENTS_MAX {
        return Err(Refusal::RunArgumentCount(arguments));
    }
    let lengths: [u16; FEW_KEYS_MAX] = std::array::from_fn(|key| read_u16(head, length_at(key)));
    let unused = &lengths[usize::from(count)..];
    if let Some(len) = unused.iter().find(|len| **len != 0) {
        return Err(Refusal::Reserved {
            name: "the length of a key that RUN does not have",
            found: u64::from(*len),
        });
    }
    if read_u32(head, 28) != 0 {
        return Err(Refusal::Reserved {
            name: "the word behind the lengths of RUN",
            found: u64::from(read_u32(head, 28)),
        });
    }
    let expected = HEAD_BYTES + usize::from(read_u16(head, 6));
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
    let arguments_len = read_u32(head, 12);
    if !arguments_len.is_multiple_of(8) {
        return Err(Refusal::RunArguments(arguments_len));
    }
    Ok(lengths.map(usize::from))
}
