//! An item with every check: flags, a condition, an expiry, two keys, an extension.
//!
//! The checks stand in the order in which PROTOCOL.md lists them: the first one that fails is the
//! refusal.

use std::ops::Range;

use crate::batch::padded;
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::limits::{KEY_BYTES_MAX, KEYSPACE_BYTES_MAX};
use crate::refusal::Refusal;
use crate::request::extension::Extension;
use crate::request::extra::Extra;
use crate::request::flags;
use crate::request::head::{Head, field, is_reserved};
use crate::request::terms::{Condition, Expiry, Wanted};
use crate::request::verb::Verb;
use crate::request::{ITEM_HEADER_BYTES, Request};
use crate::version::Version;

const EXPIRY_BYTES: usize = 8;

/// Reads one item.
///
/// # Errors
/// The first [`Refusal`] found.
#[inline(never)]
pub(super) fn read(item: &[u8], value_bytes_max: u32) -> Result<Request<'_>, Refusal> {
    let head = Head::read(item)?;
    let verb = checked_verb(&head)?;
    let areas = Areas::of(&head, verb)?;
    check_lengths(&head, verb, value_bytes_max)?;
    let end = areas.end(&head);
    if item.len() as u64 != end {
        return Err(Refusal::ItemLength {
            len: item.len(),
            needed: end,
        });
    }
    let extension = Extension::read(head.operation, &item[areas.extension.clone()])?;
    let key = field(item, areas.key, usize::from(head.key_len), "key 0")?;
    let second_key = match head.key_count {
        2 => Some(field(
            item,
            areas.second_key,
            usize::from(head.second_len),
            "key 1",
        )?),
        _ => None,
    };
    let value = field(item, areas.value, head.value_len as usize, "the value")?;
    if is_reserved(key) {
        return Err(Refusal::KeyReserved { key: 0 });
    }
    if second_key.is_some_and(is_reserved) {
        return Err(Refusal::KeyReserved { key: 1 });
    }
    let condition = read_condition(&head, verb, item)?;
    let expiry_field = areas.expiry.clone().map(|at| &item[at]);
    let by_flags = flags::read_expiry(head.flags, expiry_field, verb.row().expiry)?;
    // The time of GET_AT is what it asks for.
    let expiry = match verb {
        Verb::GetAt => Expiry::Never,
        _ => by_flags,
    };
    let (extra, token) = match extension {
        Extension::Member(read) => (Extra::Member(read), None),
        Extension::Token(token) => (
            Extra::read(verb, head.flags, item, key, value)?,
            Some(token),
        ),
        Extension::None => (Extra::read(verb, head.flags, item, key, value)?, None),
    };
    let instructions = &item[areas.instructions];
    // All are checked before the first runs, so that a bad one leaves no effect before it.
    for (number, bytes) in instructions
        .as_chunks::<INSTRUCTION_BYTES>()
        .0
        .iter()
        .enumerate()
    {
        Instruction::read(bytes, number, head.key_count)?;
    }
    Ok(Request {
        verb,
        condition,
        key,
        second_key,
        value,
        has_start: head.flags & flags::START != 0,
        expiry,
        wanted: match verb {
            Verb::Get => flags::read_wanted(head.flags),
            _ => Wanted::Value,
        },
        extra,
        token,
        instructions,
    })
}

/// The verb of a head whose flags and counts it allows.
fn checked_verb(head: &Head) -> Result<Verb, Refusal> {
    let (operation, flags) = (head.operation, head.flags);
    // The items of SCAN and PING have other forms.
    let verb = Verb::of(operation).filter(|verb| verb.row().keys_max > 0);
    let verb = verb.ok_or(Refusal::Operation(operation))?;
    if !verb.row().allows(flags) {
        return Err(Refusal::OperationFlags { operation, flags });
    }
    if !(1..=verb.row().keys_max).contains(&head.key_count) {
        return Err(Refusal::KeyCount {
            operation,
            count: head.key_count,
        });
    }
    if head.key_count == 1 && head.second_len != 0 {
        return Err(Refusal::Reserved {
            name: "the second key's length of an item with one key",
            found: u64::from(head.second_len),
        });
    }
    if usize::from(head.instruction_count) > verb.row().instructions_max {
        return Err(Refusal::InstructionCount {
            operation,
            count: head.instruction_count,
        });
    }
    Ok(verb)
}

/// Where the fields of an item stand.
struct Areas {
    expiry: Option<Range<usize>>,
    instructions: Range<usize>,
    extension: Range<usize>,
    key: usize,
    second_key: usize,
    value: usize,
}

impl Areas {
    fn of(head: &Head, verb: Verb) -> Result<Self, Refusal> {
        let flags = head.flags;
        let has_version = verb.row().has_version(flags);
        let has_expiry = verb.row().has_time(flags);
        if verb == Verb::GetAt && has_version == has_expiry {
            return Err(Refusal::AtUnsaid { flags });
        }
        let version_bytes = if has_version { Version::BYTES } else { 0 };
        let expiry = ITEM_HEADER_BYTES + version_bytes;
        let instructions = expiry + if has_expiry { EXPIRY_BYTES } else { 0 };
        let extension = instructions + usize::from(head.instruction_count) * INSTRUCTION_BYTES;
        let key = extension + usize::from(head.extension_len);
        if usize::from(head.block_len) != key {
            return Err(Refusal::BlockLength {
                found: head.block_len,
                expected: key,
            });
        }
        let second_key = key + padded(usize::from(head.key_len));
        Ok(Areas {
            expiry: has_expiry.then_some(expiry..instructions),
            instructions: instructions..extension,
            extension: extension..key,
            key,
            second_key,
            value: second_key + padded(usize::from(head.second_len)),
        })
    }

    /// The length of the item. In 64 bits: a length that the limit allows may not fit a usize.
    fn end(&self, head: &Head) -> u64 {
        self.value as u64 + u64::from(head.value_len).next_multiple_of(8)
    }
}

/// Checks the lengths of keys and value against their limits.
fn check_lengths(head: &Head, verb: Verb, value_bytes_max: u32) -> Result<(), Refusal> {
    let value_len = head.value_len;
    if verb == Verb::Keyspace {
        // The key is a prefix, and may be empty. The value has the one length of settings, which is
        // compared where the settings are read.
        return match usize::from(head.key_len) <= KEYSPACE_BYTES_MAX {
            true => Ok(()),
            false => Err(Refusal::KeyspaceLength { len: head.key_len }),
        };
    }
    for (key, len) in [(0, head.key_len), (1, head.second_len)]
        .into_iter()
        .take(usize::from(head.key_count))
    {
        if !(1..=KEY_BYTES_MAX).contains(&usize::from(len)) {
            return Err(Refusal::KeyLength { key, len });
        }
    }
    if value_len > value_bytes_max {
        return Err(Refusal::ValueLength {
            len: value_len,
            max: value_bytes_max,
        });
    }
    match value_len > 0 && !verb.row().may_have_value(head.flags) {
        true => Err(Refusal::ValueUnexpected {
            operation: head.operation,
            len: value_len,
        }),
        false => Ok(()),
    }
}

/// The condition of an item whose lengths were checked.
fn read_condition(head: &Head, verb: Verb, item: &[u8]) -> Result<Condition, Refusal> {
    Ok(match flags::of_condition(head.flags) {
        // KEYSPACE gives these flags other meanings, and the version of GET_AT is what it asks for.
        _ if matches!(verb, Verb::Keyspace | Verb::GetAt) => Condition::Always,
        flags::ABSENT => Condition::Absent,
        flags::PRESENT => Condition::Present,
        flags::VERSION => {
            let bytes = item[ITEM_HEADER_BYTES..].first_chunk();
            Condition::Version(Version::read(bytes.expect("the length was checked"))?)
        }
        _ => Condition::Always,
    })
}
