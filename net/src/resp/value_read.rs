//! Commands that tell something of a value and change nothing: GETBIT, BITCOUNT, OBJECT, MEMORY.

use crate::apply::Decimal;

use super::bits::{self, Stretch};
use super::fault::{Fault, NOT_AN_INTEGER, SYNTAX};
use super::members::head::encoding_of;
use super::number::read_integer;
use super::parser::Arguments;
use super::reply::Replies;
use super::words::{unknown_subcommand, wrong_subcommand};

/// Bytes up to which Redis keeps a value beside its object.
const EMBEDDED_BYTES_MAX: usize = 44;
/// What MEMORY USAGE adds to key and value, in bytes: a cell has a head, and a place in the index.
const KEY_OVERHEAD_BYTES: usize = 48;

/// What is to be told of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueRead {
    /// Whether a bit is set.
    Bit(u64),
    /// How many bits are.
    Bits(Stretch),
    /// How Redis would keep it.
    Encoding,
    /// How many refer to it.
    References,
    /// How often it is used.
    Frequency,
    /// How long it was not used.
    Idle,
    /// Memory of a key with a name of so many bytes.
    Usage(usize),
}

impl ValueRead {
    /// Reads OBJECT of a key. `None` if it names none.
    pub(super) fn of_object(args: Arguments<'_>) -> Result<Option<Self>, Fault> {
        let name = args.get(1);
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let (read, full_name) = match () {
            () if is("encoding") => (ValueRead::Encoding, "object|encoding"),
            () if is("refcount") => (ValueRead::References, "object|refcount"),
            () if is("freq") => (ValueRead::Frequency, "object|freq"),
            () if is("idletime") => (ValueRead::Idle, "object|idletime"),
            () => return Ok(None),
        };
        match args.len() {
            3 => Ok(Some(read)),
            _ => Err(Fault::Arity(full_name)),
        }
    }

    /// Reads MEMORY USAGE of a key. `None` if it is another subcommand.
    pub(super) fn of_memory(args: Arguments<'_>) -> Result<Option<Self>, Fault> {
        if !args.get(1).eq_ignore_ascii_case(b"usage") {
            return Ok(None);
        }
        if args.len() < 3 {
            return Err(Fault::Arity("memory|usage"));
        }
        for number in (3..args.len()).step_by(2) {
            // A value has no parts of which samples could be taken.
            let is_known = args.get(number).eq_ignore_ascii_case(b"samples");
            if !is_known || number + 1 >= args.len() {
                return Err(SYNTAX);
            }
            let samples = read_integer(args.get(number + 1)).ok_or(NOT_AN_INTEGER)?;
            if samples < 0 {
                return Err(SYNTAX);
            }
        }
        Ok(Some(ValueRead::Usage(args.get(2).len())))
    }

    /// Whether it reads the bits of a plain value.
    pub(super) fn is_of_plain(self) -> bool {
        matches!(self, ValueRead::Bit(_) | ValueRead::Bits(_))
    }

    /// Writes the reply about a key that has a plain value, or one with members, or none.
    pub(super) fn write_of(
        self,
        plain: Option<&[u8]>,
        members: Option<&[u8]>,
        replies: &mut Replies<'_>,
    ) {
        match (self, members) {
            (ValueRead::Encoding, Some(members)) => replies.bulk(encoding_of(members)),
            (read, members) => read.write(plain.or(members), replies),
        }
    }

    /// Writes the reply about a plain value, or that there is none.
    pub(super) fn write(self, value: Option<&[u8]>, replies: &mut Replies<'_>) {
        let number = |number: u64| i64::try_from(number).expect("values are bounded");
        let there = value.unwrap_or_default();
        match self {
            ValueRead::Bit(place) => replies.integer(bits::is_set(there, place).into()),
            ValueRead::Bits(stretch) => replies.integer(number(stretch.count(there))),
            _ if value.is_none() => replies.null(),
            ValueRead::Encoding => replies.bulk(match there.len() {
                _ if Decimal::read(there).is_some() => b"int",
                ..=EMBEDDED_BYTES_MAX => b"embstr",
                _ => b"raw",
            }),
            ValueRead::References => replies.integer(1),
            ValueRead::Frequency => replies.error(
                b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. \
                  Please note that when switching between policies at runtime LRU and LFU data \
                  will take some time to adjust.",
            ),
            ValueRead::Idle => {
                replies.error(b"ERR idle time is not tracked: no key is dropped for it");
            }
            ValueRead::Usage(key_bytes) => {
                let bytes = there.len() + key_bytes + KEY_OVERHEAD_BYTES;
                replies.integer(number(bytes as u64));
            }
        }
    }
}

const OBJECT_HELP: [&str; 8] = [
    "ENCODING <key>",
    "    Return how Redis would keep the value of <key>: int, embstr or raw.",
    "FREQ <key>",
    "    Refused: how often a key is used is not tracked.",
    "IDLETIME <key>",
    "    Refused: how long a key was not used is not tracked.",
    "REFCOUNT <key>",
    "    Return the number of references of the value of <key>: 1.",
];

const MEMORY_HELP: [&str; 2] = [
    "USAGE <key> [SAMPLES <count>]",
    "    Return memory in bytes of <key> and its value, about.",
];

/// Answers HELP of OBJECT and refuses what is no subcommand.
pub(super) fn answer_object(args: Arguments<'_>, replies: &mut Replies<'_>) {
    answer("OBJECT", "object|help", &OBJECT_HELP, args, replies);
}

/// Answers HELP of MEMORY and refuses what is no subcommand.
pub(super) fn answer_memory(args: Arguments<'_>, replies: &mut Replies<'_>) {
    answer("MEMORY", "memory|help", &MEMORY_HELP, args, replies);
}

fn answer(
    container: &str,
    help_name: &str,
    help: &[&str],
    args: Arguments<'_>,
    replies: &mut Replies<'_>,
) {
    match (args.get(1).eq_ignore_ascii_case(b"help"), args.len()) {
        (true, 2) => replies.help(container, help),
        (true, _) => wrong_subcommand(help_name, replies),
        (false, _) => unknown_subcommand(container, args, replies),
    }
}
