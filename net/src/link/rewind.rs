//! REWIND and REWOUND: a destination names the keys of its diverged records, and the source has
//! written these keys anew.

use crate::batch::{padded, read_u16, read_u32};
use crate::limits::KEY_BYTES_MAX;
use crate::link::body::{at_most, fixed, head, zero};
use crate::link::fault::LinkFault;
use crate::link::history::Position;
use crate::link::limits::REWIND_KEYS_MAX;

/// REWIND, by the destination: keys of its diverged records, which the source is to write anew. The
/// destination sends the next REWIND when REWOUND has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind<'a> {
    /// The partition.
    pub partition: u16,
    /// Whether this is the last REWIND of the partition.
    pub is_last: bool,
    /// Number of keys.
    pub count: u16,
    keys: &'a [u8],
}

/// REWOUND, by the source: it has written the keys of one REWIND anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewound {
    /// The partition.
    pub partition: u16,
    /// The last record that was written for these keys.
    pub at: Position,
}

impl<'a> Rewind<'a> {
    /// Encodes keys into `into`.
    ///
    /// # Panics
    /// If there are more than [`REWIND_KEYS_MAX`] keys, or a key is empty or too long.
    pub fn write(
        into: &'a mut Vec<u8>,
        partition: u16,
        is_last: bool,
        keys: &[&[u8]],
    ) -> Rewind<'a> {
        assert!(keys.len() <= REWIND_KEYS_MAX, "{} keys", keys.len());
        into.clear();
        for key in keys {
            assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "no key");
            let len = u16::try_from(key.len()).expect("checked above");
            into.extend_from_slice(&len.to_le_bytes());
            into.extend_from_slice(&[0; 6]);
            into.extend_from_slice(key);
            into.resize(into.len().next_multiple_of(8), 0);
        }
        Rewind {
            partition,
            is_last,
            count: u16::try_from(keys.len()).expect("checked above"),
            keys: into,
        }
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, LinkFault> {
        let (head, keys, partition) = head::<8>(body, "REWIND")?;
        let (count, last) = (read_u16(head, 2), read_u32(head, 4));
        at_most("keys", count.into(), REWIND_KEYS_MAX as u64)?;
        at_most("whether it is the last", last.into(), 1)?;
        let mut rest = keys;
        for _ in 0..count {
            rest = next_key(rest)?.1;
        }
        match rest.is_empty() {
            true => Ok(Rewind {
                partition,
                is_last: last == 1,
                count,
                keys,
            }),
            false => Err(LinkFault::BodyLength {
                kind: "REWIND",
                len: keys.len(),
                needed: keys.len() - rest.len(),
            }),
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&u32::from(self.is_last).to_le_bytes());
        out.extend_from_slice(self.keys);
    }

    /// The keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.keys;
        std::iter::from_fn(move || {
            let (key, behind) = next_key(rest).ok()?;
            rest = behind;
            Some(key)
        })
    }
}

impl Rewound {
    pub(super) fn read(body: &[u8]) -> Result<Self, LinkFault> {
        let (body, partition) = fixed::<24>(body, "REWOUND")?;
        zero(&body[2..8], "what stands behind the partition in REWOUND")?;
        Ok(Rewound {
            partition,
            at: Position::read(body, 8)?,
        })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&[0; 6]);
        self.at.put(out);
    }
}

fn next_key(bytes: &[u8]) -> Result<(&[u8], &[u8]), LinkFault> {
    let length = |needed| LinkFault::BodyLength {
        kind: "REWIND",
        len: bytes.len(),
        needed,
    };
    let head = bytes.first_chunk::<8>().ok_or(length(8))?;
    let len = usize::from(read_u16(head, 0));
    if !(1..=KEY_BYTES_MAX).contains(&len) {
        return Err(LinkFault::Field {
            name: "the length of a key",
            found: len as u64,
            max: KEY_BYTES_MAX as u64,
        });
    }
    let end = 8 + padded(len);
    let padding = bytes.get(8 + len..end).ok_or(length(end))?;
    if head[2..].iter().chain(padding).any(|&byte| byte != 0) {
        return Err(LinkFault::Reserved {
            name: "what stands around a key",
        });
    }
    Ok((&bytes[8..8 + len], &bytes[end..]))
}
