//! From when on a node of a cluster knows the past of a partition.
//!
//! ```text
//!    came by scan or rewind            came in order
//!    without a past                    with every version
//! ------------------------------|--------------------------> versions of the partition
//!                             floor
//! ```
//!
//! What must hold: a node that writes the floor into the local record has each key as it was at the
//! floor, and gets every later record in order. No record up to the floor is younger than its time.
//! While a scan or a rewind is under way nothing of the past is known, and nothing is kept.

use crate::format::record::{read_u32, read_u64};
use crate::store::keyspace::settings::Since;
use crate::types::version::Version;

/// Bytes of a local record that tells no floor.
pub const LOCAL_BYTES: usize = 56;
/// Bytes of one that tells a floor.
pub const LOCAL_BYTES_WITH_FLOOR: usize = 72;
/// The version of the form of local records.
pub const LOCAL_VERSION: u8 = 1;
/// A scan is under way.
pub const LOCAL_HAS_SCAN: u8 = 1;
/// The log holds what has diverged.
pub const LOCAL_HAS_REWIND: u8 = 2;
/// A floor is told.
pub const LOCAL_HAS_FLOOR: u8 = 4;
/// Where the time of the floor stands.
pub const FLOOR_TIME_AT: usize = 48;
/// Where its version stands: epoch (4), zero (4), sequence (8).
pub const FLOOR_AT: usize = 56;

/// From when on the past of the keys of a partition is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Floor {
    /// From the first record on.
    #[default]
    Begin,
    /// From this version on; what was there then has no past.
    At(Since),
    /// Not at all: a scan or a rewind is under way.
    Unknown,
}

impl Floor {
    /// What a local record tells.
    pub(crate) fn read(local: &[u8]) -> Floor {
        if local.len() < LOCAL_BYTES || local[0] != LOCAL_VERSION {
            return Floor::Begin;
        }
        let flags = local[1];
        if flags & (LOCAL_HAS_SCAN | LOCAL_HAS_REWIND) != 0 {
            return Floor::Unknown;
        }
        if flags & LOCAL_HAS_FLOOR == 0 || local.len() < LOCAL_BYTES_WITH_FLOOR {
            return Floor::Begin;
        }
        Floor::At(Since {
            version: Version {
                epoch: read_u32(&local[FLOOR_AT..FLOOR_AT + 4]),
                sequence: read_u64(&local[FLOOR_AT + 8..FLOOR_AT + 16]),
            },
            time_ms: read_u64(&local[FLOOR_TIME_AT..FLOOR_TIME_AT + 8]),
        })
    }
}

/// The floors of the partitions of a shard.
#[derive(Debug, Default)]
pub(crate) struct Floors {
    /// By partition; nothing behind the last one that is not [`Floor::Begin`].
    of: Vec<Floor>,
}

impl Floors {
    pub(crate) fn of(&self, partition: usize) -> Floor {
        self.of.get(partition).copied().unwrap_or_default()
    }

    /// Takes in what a local record tells. Whether it is another floor than before.
    pub(crate) fn set(&mut self, partition: usize, floor: Floor) -> bool {
        if self.of(partition) == floor {
            return false;
        }
        if self.of.len() <= partition {
            self.of.resize(partition + 1, Floor::Begin);
        }
        self.of[partition] = floor;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_read_from_a_local_record_unless_something_is_under_way() {
        let mut local = [0; LOCAL_BYTES_WITH_FLOOR];
        local[0] = LOCAL_VERSION;
        local[FLOOR_TIME_AT] = 7;
        local[FLOOR_AT] = 8;
        local[FLOOR_AT + 8] = 9;
        assert_eq!(Floor::read(&local[..LOCAL_BYTES]), Floor::Begin);
        assert_eq!(Floor::read(&local), Floor::Begin);
        local[1] = LOCAL_HAS_FLOOR;
        let since = Since {
            version: Version {
                epoch: 8,
                sequence: 9,
            },
            time_ms: 7,
        };
        assert_eq!(Floor::read(&local), Floor::At(since));
        for under_way in [LOCAL_HAS_SCAN, LOCAL_HAS_REWIND] {
            local[1] = LOCAL_HAS_FLOOR | under_way;
            assert_eq!(Floor::read(&local), Floor::Unknown);
        }
        assert_eq!(Floor::read(b"of no node"), Floor::Begin);
    }
}
