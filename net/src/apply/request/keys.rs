//! The keys of an APPLY behind the eighth: their lengths stand in front of them.

use std::iter::FusedIterator;
use std::slice;

use crate::batch::padded;
use crate::limits::{APPLY_KEYS_MAX, FEW_KEYS_MAX, KEY_BYTES_MAX};
use crate::refusal::Refusal;
use crate::request::is_reserved;

/// Bytes of a length.
const LENGTH_BYTES: usize = 2;

/// Bytes of the lengths of the keys behind the eighth, of so many keys.
pub(in crate::apply) fn later_lengths_bytes(key_count: usize) -> usize {
    padded(key_count.saturating_sub(FEW_KEYS_MAX) * LENGTH_BYTES)
}

/// Appends the lengths of these keys, which stand behind the eighth. A length that has no room is
/// the greatest one.
pub(super) fn write_later_lengths(out: &mut Vec<u8>, later: &[impl AsRef<[u8]>]) {
    for key in later {
        let len = u16::try_from(key.as_ref().len()).unwrap_or(u16::MAX);
        out.extend_from_slice(&len.to_le_bytes());
    }
    let bytes = later.len() * LENGTH_BYTES;
    out.resize(out.len() + padded(bytes) - bytes, 0);
}

/// The keys behind the eighth, as a view of their item.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaterKeys<'a> {
    lengths: &'a [[u8; LENGTH_BYTES]],
    /// The names, each padded.
    names: &'a [u8],
}

impl<'a> LaterKeys<'a> {
    /// The later ones of `key_count` keys, whose lengths begin at `lengths_at`, right behind the
    /// eighth key.
    ///
    /// # Errors
    /// The first [`Refusal`] found. That the padding is zero is not looked at.
    #[cold]
    pub(super) fn read(
        item: &'a [u8],
        lengths_at: usize,
        key_count: usize,
    ) -> Result<Self, Refusal> {
        let short = |needed: usize| Refusal::ItemLength {
            len: item.len(),
            needed: needed as u64,
        };
        let names_at = lengths_at + later_lengths_bytes(key_count);
        let lengths = item.get(lengths_at..names_at);
        let (lengths, _) = lengths.ok_or(short(names_at))?.as_chunks();
        let (lengths, behind) = lengths.split_at(key_count - FEW_KEYS_MAX);
        if behind.iter().any(|length| *length != [0; LENGTH_BYTES]) {
            return Err(Refusal::Padding {
                behind: "the lengths of the keys behind the eighth",
            });
        }
        let mut end = names_at;
        for (key, length) in (FEW_KEYS_MAX..).zip(lengths) {
            let len = u16::from_le_bytes(*length);
            if !(1..=KEY_BYTES_MAX).contains(&usize::from(len)) {
                let key = u8::try_from(key).expect("at most 255");
                return Err(Refusal::KeyLength { key, len });
            }
            end += padded(len.into());
        }
        let names = item.get(names_at..end).ok_or(short(end))?;
        Ok(LaterKeys { lengths, names })
    }

    /// Refuses padding that is not zero.
    #[cold]
    pub(super) fn check_padding(self) -> Result<(), Refusal> {
        let mut at = 0;
        for length in self.lengths {
            let len = usize::from(u16::from_le_bytes(*length));
            let padding = &self.names[at + len..at + padded(len)];
            if padding.iter().any(|byte| *byte != 0) {
                return Err(Refusal::Padding {
                    behind: "a key behind the eighth",
                });
            }
            at += padded(len);
        }
        Ok(())
    }

    /// Bytes of the names with their padding.
    pub(super) fn bytes(self) -> usize {
        self.names.len()
    }
}

/// All keys of an APPLY, in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Keys<'a, 'r> {
    first: slice::Iter<'r, &'a [u8]>,
    later: LaterKeys<'a>,
}

impl<'a, 'r> Keys<'a, 'r> {
    #[inline]
    pub(super) fn new(first: &'r [&'a [u8]], later: LaterKeys<'a>) -> Self {
        Keys {
            first: first.iter(),
            later,
        }
    }
}

impl<'a> Iterator for Keys<'a, '_> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(key) = self.first.next() {
            return Some(key);
        }
        let (length, lengths) = self.later.lengths.split_first()?;
        let len = usize::from(u16::from_le_bytes(*length));
        let (name, names) = self.later.names.split_at(padded(len));
        (self.later.lengths, self.later.names) = (lengths, names);
        Some(&name[..len])
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.first.len() + self.later.lengths.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for Keys<'_, '_> {}

impl FusedIterator for Keys<'_, '_> {}

/// Refuses the server's own keys, and a key that stands twice, of more keys than eight. Each is
/// compared with its neighbours in order, and not with all others.
#[cold]
pub(super) fn check_many(keys: Keys<'_, '_>) -> Result<(), Refusal> {
    let number_of = |number: usize| u8::try_from(number).expect("at most 255");
    let mut names = [&[][..]; APPLY_KEYS_MAX];
    let count = keys.len();
    for (number, (into, name)) in names.iter_mut().zip(keys.clone()).enumerate() {
        if is_reserved(name) {
            let key = number_of(number);
            return Err(Refusal::KeyReserved { key });
        }
        *into = name;
    }
    let names = &mut names[..count];
    names.sort_unstable();
    let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) else {
        return Ok(());
    };
    let mut places = keys.enumerate().filter(|(_, name)| *name == twice[0]);
    let mut next = || places.next().map(|(number, _)| number_of(number));
    let (first, key) = (next().unwrap_or(0), next().unwrap_or(0));
    Err(Refusal::KeyRepeated { key, first })
}
