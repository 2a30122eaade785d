//! What the leases of a node and its shards tell each other. Each word is written by one side and
//! read by the other without a lock.
//!
//! ```text
//!  owner of Failover                     shard of a partition, each turn
//!  publish: ends of leases, begins ----> lease_end_us, begins_us
//!  read:    standings, members     <---- turned, tell, promise_member, note_handed_over
//! ```
//!
//! What must hold:
//! - `publish` comes before the CONFIRM that it belongs to leaves, and under the lock of
//!   [`Failover`](super::Failover). So a shard never begins within a lease that this node has lent.
//! - A plan is taken by `Failover` before the shards get it. So a shard with a plan never sees the
//!   ends that an older plan was judged by.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use penstock_net::link::message::LINK_PARTITIONS;

use super::standing::{MemberStanding, Standing};

const PARTITIONS: usize = LINK_PARTITIONS as usize;
/// Shards that a node has at most: one for each partition.
const SHARDS_MAX: usize = PARTITIONS;
const NODES: usize = 256;

/// One word for each partition.
type Words = Box<[AtomicU64]>;

const IS_CANDIDATE: u64 = 1 << 63;
const IS_ABLE: u64 = 1 << 62;
const IS_AWAITING: u64 = 1 << 61;
const SEQUENCE_MASK: u64 = IS_AWAITING - 1;

const HAS_JOINED: u64 = 1 << 63;
const IS_PROVEN: u64 = 1 << 62;
const PLAN_MASK: u64 = IS_PROVEN - 1;

/// The words of one node.
#[derive(Debug)]
pub struct LeaseTable {
    /// By node: until when it lends each partition to this one. Absent: it lends nothing.
    ends_us: Box<[OnceLock<Words>]>,
    /// From when on this node may serve each partition, by what it has lent itself.
    begins_us: Words,
    /// By shard: when it turned last.
    turned_us: Words,
    standings: Words,
    /// By node: what the shard of each partition that is written here says of it as a member.
    members: Box<[OnceLock<Words>]>,
    /// The generation in which each partition was handed over to this node.
    handed_over: Box<[AtomicU32]>,
    /// The highest generation in which this node has lent each partition to another one.
    asked: Box<[AtomicU32]>,
}

impl Default for LeaseTable {
    /// Nobody lends anything, no shard has turned, and nothing may be served.
    fn default() -> Self {
        LeaseTable {
            ends_us: (0..NODES).map(|_| OnceLock::new()).collect(),
            begins_us: (0..PARTITIONS).map(|_| AtomicU64::new(u64::MAX)).collect(),
            turned_us: words(SHARDS_MAX),
            standings: words(PARTITIONS),
            members: (0..NODES).map(|_| OnceLock::new()).collect(),
            handed_over: generations(),
            asked: generations(),
        }
    }
}

fn generations() -> Box<[AtomicU32]> {
    (0..PARTITIONS).map(|_| AtomicU32::new(0)).collect()
}

fn words(count: usize) -> Words {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl LeaseTable {
    // ---- what shards read ----

    /// Until when a partition may be served whose sync set this is. An empty one needs no lease.
    pub fn lease_end_us(&self, partition: u16, sync: impl IntoIterator<Item = u8>) -> u64 {
        let end_us = |node: u8| {
            let row = self.ends_us[usize::from(node)].get();
            row.map_or(0, |row| row[usize::from(partition)].load(Ordering::Acquire))
        };
        sync.into_iter().map(end_us).min().unwrap_or(u64::MAX)
    }

    /// From when on a partition may be served that was not handed over.
    #[must_use]
    pub fn begins_us(&self, partition: u16) -> u64 {
        self.begins_us[usize::from(partition)].load(Ordering::Acquire)
    }

    /// The highest generation in which another node has asked this one for a partition, and was
    /// granted it; 0: none has.
    #[must_use]
    pub fn asked(&self, partition: u16) -> u32 {
        self.asked[usize::from(partition)].load(Ordering::Acquire)
    }

    // ---- what shards tell ----

    /// A shard has turned.
    ///
    /// # Panics
    /// If the node has more shards than partitions.
    pub fn turned(&self, shard: u16, now_us: u64) {
        self.turned_us[usize::from(shard)].store(now_us, Ordering::Release);
    }

    /// What a shard says of one of its partitions; [`Standing::is_turning`] is not of it.
    pub fn set_standing(&self, partition: u16, standing: Standing) {
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        let word = bit(standing.is_candidate, IS_CANDIDATE)
            | bit(standing.is_able, IS_ABLE)
            | bit(standing.is_awaiting, IS_AWAITING)
            | standing.sequence & SEQUENCE_MASK;
        self.standings[usize::from(partition)].store(word, Ordering::Release);
    }

    /// What a shard says of another node that holds a partition which is written here.
    pub fn promise_member(&self, node: u8, partition: u16, standing: MemberStanding) {
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        let word = bit(standing.has_joined, HAS_JOINED)
            | bit(standing.is_proven, IS_PROVEN)
            | standing.plan & PLAN_MASK;
        let row = self.members[usize::from(node)].get_or_init(|| words(PARTITIONS));
        row[usize::from(partition)].store(word, Ordering::Release);
    }

    /// The node that wrote a partition has handed it over to this one, in this generation.
    pub fn note_handed_over(&self, partition: u16, generation: u32) {
        self.handed_over[usize::from(partition)].store(generation, Ordering::Release);
    }

    // ---- the other side ----

    /// A node lends a partition to this one until then.
    pub(super) fn lend(&self, node: u8, partition: u16, end_us: u64) {
        let row = self.ends_us[usize::from(node)].get_or_init(|| words(PARTITIONS));
        row[usize::from(partition)].store(end_us, Ordering::Release);
    }

    /// This node may serve a partition from then on.
    pub(super) fn begin(&self, partition: u16, begins_us: u64) {
        self.begins_us[usize::from(partition)].store(begins_us, Ordering::Release);
    }

    /// Another node has asked for a partition in this generation, and was granted it.
    pub(super) fn ask(&self, partition: u16, generation: u32) {
        self.asked[usize::from(partition)].store(generation, Ordering::Release);
    }

    /// When a shard turned last; 0 before its first turn.
    #[must_use]
    pub fn turned_us(&self, shard: u16) -> u64 {
        self.turned_us[usize::from(shard)].load(Ordering::Acquire)
    }

    /// What a shard said of a partition last, if it turned a moment ago.
    #[must_use]
    pub fn standing(&self, partition: u16, is_turning: bool) -> Standing {
        let word = self.standings[usize::from(partition)].load(Ordering::Acquire);
        Standing {
            is_turning,
            is_candidate: word & IS_CANDIDATE != 0,
            is_able: word & IS_ABLE != 0,
            is_awaiting: word & IS_AWAITING != 0,
            sequence: word & SEQUENCE_MASK,
        }
    }

    /// What the shard of a partition said last of a node.
    #[must_use]
    pub fn member(&self, node: u8, partition: u16) -> MemberStanding {
        let Some(row) = self.members[usize::from(node)].get() else {
            return MemberStanding::default();
        };
        let word = row[usize::from(partition)].load(Ordering::Acquire);
        MemberStanding {
            plan: word & PLAN_MASK,
            has_joined: word & HAS_JOINED != 0,
            is_proven: word & IS_PROVEN != 0,
        }
    }

    /// The generation in which a partition was handed over to this node; 0: none was.
    #[must_use]
    pub fn handed_over(&self, partition: u16) -> u32 {
        self.handed_over[usize::from(partition)].load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_given_nothing_serves_nothing_but_what_nobody_else_holds() {
        let table = LeaseTable::default();
        assert_eq!(table.lease_end_us(7, [2]), 0);
        assert_eq!(table.lease_end_us(7, []), u64::MAX);
        assert_eq!(table.begins_us(7), u64::MAX);
        assert_eq!(table.member(2, 7), MemberStanding::default());
        assert_eq!(table.standing(7, false), Standing::default());
    }

    #[test]
    fn the_least_of_the_members_bounds_a_lease_and_words_come_back_as_they_were_written() {
        let table = LeaseTable::default();
        table.lend(2, 7, 100);
        table.lend(3, 7, 90);
        assert_eq!(table.lease_end_us(7, [2, 3]), 90);
        assert_eq!(table.lease_end_us(7, [2]), 100);
        assert_eq!(table.lease_end_us(8, [2]), 0);
        let standing = Standing {
            is_turning: true,
            is_candidate: true,
            is_able: false,
            is_awaiting: true,
            sequence: 1 << 40,
        };
        table.set_standing(7, standing);
        assert_eq!(table.standing(7, true), standing);
        let member = MemberStanding {
            plan: 12,
            has_joined: true,
            is_proven: false,
        };
        table.promise_member(3, 7, member);
        assert_eq!(table.member(3, 7), member);
        table.turned(3, 55);
        assert_eq!(table.turned_us(3), 55);
        table.note_handed_over(7, 4);
        assert_eq!((table.handed_over(7), table.handed_over(8)), (4, 0));
    }
}
