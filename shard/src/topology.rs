//! The shards of a node and their slots. Each shard owns a contiguous group of partitions, and the
//! groups are nearly equal.

use penstock_net::hello::SlotRange;
use penstock_net::slot::{SLOTS, core_of, slots_of};

/// The shards of a node, at most: one partition each.
pub const SHARDS_MAX: u16 = 256;

/// The owner of every slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    shards: u16,
}

impl Topology {
    /// A node of `shards` shards, 1 to [`SHARDS_MAX`].
    #[must_use]
    pub fn new(shards: u16) -> Self {
        assert!((1..=SHARDS_MAX).contains(&shards), "{shards} shards");
        Topology { shards }
    }

    /// Shards of the node.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The shard that owns `slot`.
    #[inline]
    #[must_use]
    pub fn owner(&self, slot: u16) -> u16 {
        core_of(slot, self.shards)
    }

    /// The last of the slots that the owner of `slot` has.
    #[must_use]
    pub fn last_slot(&self, slot: u16) -> u16 {
        *slots_of(self.owner(slot), self.shards).end()
    }

    /// The slot map, with `port(shard)` as the port of each shard.
    #[must_use]
    pub fn ranges(&self, port: impl Fn(u16) -> u16) -> Vec<SlotRange> {
        let mut ranges: Vec<SlotRange> = Vec::new();
        for slot in 0..SLOTS {
            let shard = self.owner(slot);
            match ranges.last_mut() {
                Some(range) if range.shard == shard => range.last = slot,
                _ => ranges.push(SlotRange {
                    first: slot,
                    last: slot,
                    shard,
                    port: port(shard),
                }),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_owner_and_every_shard_a_contiguous_share() {
        for shards in [1, 2, 3, 7, 64, 255, 256] {
            let topology = Topology::new(shards);
            let ranges = topology.ranges(|shard| 7420 + shard);
            assert_eq!(ranges.len(), usize::from(shards));
            assert_eq!(
                (ranges[0].first, ranges[ranges.len() - 1].last),
                (0, SLOTS - 1)
            );
            for (shard, range) in (0..).zip(&ranges) {
                assert_eq!((range.shard, range.port), (shard, 7420 + shard));
                assert_eq!(topology.last_slot(range.first), range.last);
                assert_eq!(topology.last_slot(range.last), range.last);
                assert!(
                    range.last - range.first + 1 >= SLOTS / shards / 2,
                    "{shards} shards: {range:?}"
                );
            }
        }
    }
}
