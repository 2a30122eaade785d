//! What a caller asks of a program: its id, keys and arguments, as the item of RUN.

use crate::batch::{padded, push_padded};
use crate::limits::APPLY_KEYS_MAX;
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
        match argument.into() {
            RunArgument::Number(bits) => self.arguments.extend_from_slice(&bits.to_le_bytes()),
            RunArgument::Bytes(bytes) => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.arguments
                    .extend_from_slice(&u64::from(len).to_le_bytes());
                push_padded(&mut self.arguments, bytes);
            }
        }
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
        let mut head = [0; HEAD_BYTES];
        let small = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
        head[0] = small(HEAD_BYTES);
        head[2] = RUN;
        head[4] = small(self.keys.len());
        head[5] = small(self.argument_count);
        let len = u32::try_from(self.arguments.len()).unwrap_or(u32::MAX);
        head[12..16].copy_from_slice(&len.to_le_bytes());
        for (number, key) in self.keys.iter().enumerate().take(APPLY_KEYS_MAX) {
            let len = u16::try_from(key.len()).unwrap_or(u16::MAX);
            let at = length_at(number);
            head[at..at + 2].copy_from_slice(&len.to_le_bytes());
        }
        head[32..40].copy_from_slice(&self.program.0.to_le_bytes());
        out.extend_from_slice(&head);
        for key in &self.keys {
            push_padded(out, key);
        }
        out.extend_from_slice(&self.arguments);
    }

    /// The length of the item, in bytes.
    pub(crate) fn item_bytes(&self) -> usize {
        let keys = self.keys.iter().map(|key| padded(key.len()));
        HEAD_BYTES + keys.sum::<usize>() + self.arguments.len()
    }
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
