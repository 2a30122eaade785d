//! Redo records: what a change of keys of several shards leaves of each of its keys.
//!
//! ```text
//! at  bytes
//!  0  4   bytes of the key
//!  4  4   bytes of the value
//!  8  8   when it expires in unix milliseconds, 0 for never; all ones: the key is deleted
//! 16  4   flags: 1 what runs at the expiry stays as it is, 2 the value is a head with members
//! 20  4   epoch of the version that the change has seen, 0 if the key was missing
//! 24  8   its sequence
//! 32      key, value, zeros up to a multiple of 8
//! ```
//!
//! A key that has another version than the one that was seen has been left so, or was written
//! since.
//!
//! The value of a redo record has one such entry for each key, at least one, one behind the other.

use crate::format::head;
use crate::format::record::{KEY_BYTES_MAX, KindedValue, ValueKind, read_u32, read_u64};
use crate::types::version::Version;

const HEAD_BYTES: usize = 32;
const DELETED: u64 = u64::MAX;
const FLAG_KEEPS_EFFECTS: u32 = 1;
const FLAG_HEAD: u32 = 2;

/// What is left of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its version before; `None` if it was missing.
    pub seen: Option<Version>,
    /// `None`: it is gone.
    pub left: Option<Left<'a>>,
}

/// The value that a key is left with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left<'a> {
    /// Its bytes, and what they are.
    pub value: KindedValue<'a>,
    /// When it expires, in unix milliseconds.
    pub expiry_ms: Option<u64>,
    /// The effects that its expiry runs stay as they are.
    pub keeps_effects: bool,
}

/// Appends one entry.
///
/// # Panics
/// If key or value have 4 GiB or more.
pub fn write(outcome: &Outcome<'_>, into: &mut Vec<u8>) {
    let start = into.len();
    let short = |number: usize| u32::try_from(number).expect("keys and values are bounded");
    let left = outcome.left;
    let KindedValue { kind, bytes: value } = left.map_or(KindedValue::NONE, |left| left.value);
    let expiry_ms = left.map_or(DELETED, |left| left.expiry_ms.unwrap_or(0));
    let keeps_effects = left.is_some_and(|left| left.keeps_effects);
    let flags = u32::from(keeps_effects) * FLAG_KEEPS_EFFECTS
        + u32::from(kind == ValueKind::Head) * FLAG_HEAD;
    into.extend_from_slice(&short(outcome.key.len()).to_le_bytes());
    into.extend_from_slice(&short(value.len()).to_le_bytes());
    into.extend_from_slice(&expiry_ms.to_le_bytes());
    into.extend_from_slice(&flags.to_le_bytes());
    let seen = outcome.seen.unwrap_or_default();
    into.extend_from_slice(&seen.epoch.to_le_bytes());
    into.extend_from_slice(&seen.sequence.to_le_bytes());
    into.extend_from_slice(outcome.key);
    into.extend_from_slice(value);
    into.resize(start + (into.len() - start).next_multiple_of(8), 0);
}

/// Bytes of an entry.
#[must_use]
pub fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (HEAD_BYTES + key_bytes + value_bytes).next_multiple_of(8)
}

/// The entries of a redo record. `None` if the bytes are none.
#[must_use]
pub fn outcomes(mut value: &[u8]) -> Option<Vec<Outcome<'_>>> {
    let mut all = Vec::new();
    while !value.is_empty() {
        let (outcome, rest) = read(value)?;
        all.push(outcome);
        value = rest;
    }
    (!all.is_empty()).then_some(all)
}

fn read(bytes: &[u8]) -> Option<(Outcome<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES)?;
    let (key_bytes, value_bytes) = (read_u32(head) as usize, read_u32(&head[4..]) as usize);
    let (expiry_ms, flags) = (read_u64(&head[8..]), read_u32(&head[16..]));
    let seen = Version {
        epoch: read_u32(&head[20..]),
        sequence: read_u64(&head[24..]),
    };
    let (key, rest) = rest.split_at_checked(key_bytes)?;
    let (value, rest) = rest.split_at_checked(value_bytes)?;
    let padding_bytes = entry_bytes(key_bytes, value_bytes) - HEAD_BYTES - key_bytes - value_bytes;
    let (padding, rest) = rest.split_at_checked(padding_bytes)?;
    let is_deleted = expiry_ms == DELETED;
    let is_good = (1..=KEY_BYTES_MAX).contains(&key_bytes)
        && flags & !(FLAG_KEEPS_EFFECTS | FLAG_HEAD) == 0
        && (flags & FLAG_HEAD == 0 || head::check(value).is_ok())
        && !(is_deleted && (value_bytes > 0 || flags != 0))
        && (seen.epoch == 0) == (seen.sequence == 0)
        && padding.iter().all(|byte| *byte == 0);
    let value = match flags & FLAG_HEAD {
        0 => KindedValue::plain(value),
        _ => KindedValue::head(value),
    };
    let left = (!is_deleted).then_some(Left {
        value,
        expiry_ms: Some(expiry_ms).filter(|ms| *ms > 0),
        keeps_effects: flags & FLAG_KEEPS_EFFECTS != 0,
    });
    let seen = Some(seen).filter(|seen| seen.epoch > 0);
    is_good.then_some((Outcome { key, seen, left }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [Outcome<'static>; 3] {
        let left = |value, expiry_ms, keeps_effects| {
            Some(Left {
                value: KindedValue::plain(value),
                expiry_ms,
                keeps_effects,
            })
        };
        let seen = Version {
            epoch: 3,
            sequence: 900,
        };
        [
            (&b"one"[..], Some(seen), left(&b"value"[..], Some(77), true)),
            (b"two", Some(seen), None),
            (b"three", None, left(b"", None, false)),
        ]
        .map(|(key, seen, left)| Outcome { key, seen, left })
    }

    #[test]
    fn entries_come_back_as_they_were_written() {
        let mut bytes = Vec::new();
        for outcome in all() {
            let start = bytes.len();
            write(&outcome, &mut bytes);
            let value_bytes = outcome.left.map_or(0, |left| left.value.bytes.len());
            assert_eq!(
                bytes.len() - start,
                entry_bytes(outcome.key.len(), value_bytes)
            );
        }
        assert_eq!(outcomes(&bytes), Some(all().to_vec()));
    }

    #[test]
    fn the_example_of_the_document_is_what_is_written() {
        let text = include_str!("../../FORMAT.md");
        let example = text
            .split("and `{b}` deleted:")
            .nth(1)
            .expect("it is there");
        let digits = example.split("```").nth(1).expect("it is there");
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let read: Vec<u8> = digits
            .chunks(2)
            .map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap())
            .collect();
        let left = Left {
            value: KindedValue::plain(b"1"),
            expiry_ms: None,
            keeps_effects: false,
        };
        let seen = Version {
            epoch: 1,
            sequence: 7,
        };
        let both = [(&b"{a}"[..], None, Some(left)), (b"{b}", Some(seen), None)];
        let both = both.map(|(key, seen, left)| Outcome { key, seen, left });
        assert_eq!(outcomes(&read), Some(both.to_vec()));
        let mut bytes = Vec::new();
        both.iter().for_each(|outcome| write(outcome, &mut bytes));
        assert_eq!(bytes, read);
    }

    #[test]
    fn bytes_that_are_cut_or_changed_are_none_or_other_entries_and_none_panics() {
        let mut bytes = Vec::new();
        all().iter().for_each(|outcome| write(outcome, &mut bytes));
        let ends: Vec<usize> = [40, 80].into_iter().chain([bytes.len()]).collect();
        for end in 0..bytes.len() {
            assert_eq!(
                outcomes(&bytes[..end]).is_some(),
                ends.contains(&end),
                "{end}"
            );
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert_ne!(outcomes(&other), Some(all().to_vec()));
            }
        }
    }
}
