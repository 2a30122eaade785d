//! What a caller asks of a program: its id, keys and arguments, as the item of RUN.

use crate::batch::{padded, push_padded};
use crate::limits::FEW_KEYS_MAX;
use crate::program::id::ProgramId;
use crate::program::request::{HEAD_BYTES, RUN, length_at};

/// One run of a program: the keys and arguments in the order of its declaration.
///
/// Nothing is checked here: what is beyond a limit is refused by the server, with the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    program: ProgramId,
    keys: Vec<Vec<u8>>,
    argument_count: usize,
    arguments: Vec<u8>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunArgument<'a> {
    /// A number: two's complement if it is negative.
    Number(u64),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl Run {
    /// No key and no argument yet.
    #[must_use]
    pub fn new(program: ProgramId) -> Self {
        Run {
            program,
            keys: Vec::new(),
            argument_count: 0,
            arguments: Vec::new(),
        }
    }

    /// Adds the next key. The first one decides the slot; all are of one slot.
    #[must_use]
    pub fn key(mut self, key: &[u8]) -> Self {
        self.keys.push(key.to_vec());
        self
    }

    /// Adds the next argument.
    #[must_use]
    pub fn argument<'a>(mut self, argument: impl Into<RunArgument<'a>>) -> Self {
        self.argument_count += 1;
        argument.into().put(&mut self.arguments);
        self
    }

    /// The id of the program.
    #[must_use]
    pub fn program(&self) -> ProgramId {
        self.program
    }

    /// The keys in the order of their numbers.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Appends the item.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let keys = self.keys.iter().map(Vec::as_slice);
        write_run(out, self.program, keys, self.argument_count, |out| {
            out.extend_from_slice(&self.arguments);
        });
    }

    /// The length of the item, in bytes.
    pub(crate) fn item_bytes(&self) -> usize {
        let keys = self.keys.iter().map(|key| padded(key.len()));
        HEAD_BYTES + keys.sum::<usize>() + self.arguments.len()
    }
}

impl RunArgument<'_> {
    /// Appends it as it stands in the item.
    pub(crate) fn put(self, out: &mut Vec<u8>) {
        match self {
            RunArgument::Number(bits) => out.extend_from_slice(&bits.to_le_bytes()),
            RunArgument::Bytes(bytes) => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                out.extend_from_slice(&u64::from(len).to_le_bytes());
                push_padded(out, bytes);
            }
        }
    }

    /// Its length in the item, in bytes.
    pub(crate) fn item_bytes(self) -> usize {
        match self {
            RunArgument::Number(_) => 8,
            RunArgument::Bytes(bytes) => 8 + padded(bytes.len()),
        }
    }
}

/// Appends the item of a RUN, whose arguments `put_arguments` appends.
pub(crate) fn write_run<'a>(
    out: &mut Vec<u8>,
    program: ProgramId,
    keys: impl Iterator<Item = &'a [u8]> + Clone,
    argument_count: usize,
    put_arguments: impl FnOnce(&mut Vec<u8>),
) {
    let from = out.len();
    let mut head = [0; HEAD_BYTES];
    let small = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    head[0] = small(HEAD_BYTES);
    head[2] = RUN;
    head[4] = small(keys.clone().count());
    head[5] = small(argument_count);
    for (number, key) in keys.clone().enumerate().take(FEW_KEYS_MAX) {
        let len = u16::try_from(key.len()).unwrap_or(u16::MAX);
        let at = length_at(number);
        head[at..at + 2].copy_from_slice(&len.to_le_bytes());
    }
    head[32..40].copy_from_slice(&program.0.to_le_bytes());
    out.extend_from_slice(&head);
    for key in keys {
        push_padded(out, key);
    }
    let arguments_at = out.len();
    put_arguments(out);
    let len = u32::try_from(out.len() - arguments_at).unwrap_or(u32::MAX);
    out[from + 12..from + 16].copy_from_slice(&len.to_le_bytes());
}

macro_rules! from_numbers {
    ($($unsigned:ty, $signed:ty;)+) => {
        $(impl From<$unsigned> for RunArgument<'_> {
            fn from(number: $unsigned) -> Self {
                RunArgument::Number(number.into())
            }
        }

        impl From<$signed> for RunArgument<'_> {
            fn from(number: $signed) -> Self {
                RunArgument::Number(i64::from(number).cast_unsigned())
            }
        })+
    };
}

from_numbers! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
}

impl From<bool> for RunArgument<'_> {
    fn from(is_true: bool) -> Self {
        RunArgument::Number(is_true.into())
    }
}

impl<'a> From<&'a [u8]> for RunArgument<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        RunArgument::Bytes(bytes)
    }
}

impl<'a> From<&'a str> for RunArgument<'a> {
    fn from(text: &'a str) -> Self {
        RunArgument::Bytes(text.as_bytes())
    }
}
