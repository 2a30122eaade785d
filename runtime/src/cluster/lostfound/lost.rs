//! What a diverged tail did to each key. Pure.
//!
//! A tail holds whole values, not what was asked for. So what it did to a key is told by two of
//! them: the value that the key had at the fork, which stands in the log of the node that wrote the
//! tail, and the last one of the tail.

use penstock_shard::replication::Epoch;

/// The value of a key at the fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtFork {
    /// It had this one, or was not there.
    Was(Option<Vec<u8>>),
    /// The log has released what might tell.
    Unknown,
}

/// What a tail did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The key.
    pub key: Vec<u8>,
    /// Epoch and sequence of the last record of the tail that changed it.
    pub version: (u32, u64),
    /// How many records of the tail changed it.
    pub records: usize,
    /// What it was before.
    pub before: AtFork,
    /// What it was behind the first of them; none if that deleted it.
    pub first: Option<Vec<u8>>,
    /// What it was behind the last of them; none if that deleted it.
    pub after: Option<Vec<u8>>,
    /// When that value expires.
    pub expiry_ms: Option<u64>,
}

impl Lost {
    /// The difference that the tail made to a number of 8 bytes.
    #[must_use]
    pub fn units(&self) -> Option<i128> {
        let before = match &self.before {
            AtFork::Was(value) => number(value.as_deref()?)?,
            AtFork::Unknown => return None,
        };
        Some(number(self.after.as_deref()?)? - before)
    }
}

/// By how much tails have changed numbers of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    /// The number of keys whose difference is known.
    pub keys: usize,
    /// By so much, together.
    pub changed: i128,
    /// Keys whose values are numbers behind the tail, and whose values at the fork are not known.
    pub unknown_keys: usize,
    /// The change of these keys, from the first one in the tail to the last one.
    pub unknown_changed: i128,
}

impl Units {
    /// The sums over all of `lost`.
    #[must_use]
    pub fn of(lost: &[Lost]) -> Units {
        let mut units = Units::default();
        for lost in lost {
            match (lost.units(), lost.after.as_deref().and_then(number)) {
                (Some(changed), _) => {
                    units.keys += 1;
                    units.changed += changed;
                }
                (None, Some(after)) if lost.before == AtFork::Unknown => {
                    units.unknown_keys += 1;
                    let first = lost.first.as_deref().and_then(number);
                    units.unknown_changed += first.map_or(0, |first| after - first);
                }
                (None, _) => {}
            }
        }
        units
    }
}

/// Unsigned, as a counter is.
fn number(value: &[u8]) -> Option<i128> {
    let bytes: [u8; 8] = value.try_into().ok()?;
    Some(i128::from(u64::from_le_bytes(bytes)))
}

/// Who wrote a tail: no other tail of the partition is of the same generation of the same node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    generation: u32,
    node: u8,
}

impl Writer {
    /// The one whose epoch it is.
    #[must_use]
    pub fn of(epoch: u32) -> Writer {
        let epoch = Epoch(epoch);
        Writer {
            generation: epoch.generation(),
            node: epoch.node(),
        }
    }

    /// The number of the node.
    #[must_use]
    pub fn node(self) -> u8 {
        self.node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(before: AtFork, after: Option<&[u8]>) -> Lost {
        Lost {
            key: b"key".to_vec(),
            version: (1, 1),
            records: 2,
            before,
            first: after.map(<[u8]>::to_vec),
            after: after.map(<[u8]>::to_vec),
            expiry_ms: None,
        }
    }

    fn was(value: Option<&[u8]>) -> AtFork {
        AtFork::Was(value.map(<[u8]>::to_vec))
    }

    #[test]
    fn of_a_counter_the_difference_is_shown_or_that_it_is_not_known() {
        let bytes = |number: u64| number.to_le_bytes();
        let sold = lost(was(Some(&bytes(100))), Some(&bytes(90)));
        assert_eq!(sold.units(), Some(-10));
        let unknown = Lost {
            first: Some(bytes(97).to_vec()),
            ..lost(AtFork::Unknown, Some(&bytes(90)))
        };
        assert_eq!(unknown.units(), None);
        let word = lost(was(Some(b"word")), Some(&bytes(90)));
        let deleted = lost(AtFork::Unknown, None);
        assert_eq!(
            Units::of(&[sold.clone(), unknown, word, deleted, sold]),
            Units {
                keys: 2,
                changed: -20,
                unknown_keys: 1,
                unknown_changed: -7,
            }
        );
    }
}
