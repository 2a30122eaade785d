//! The version of a key, and the slots and partitions that versions are counted in.

/// Contiguous groups of slots; a sequence is dense within one of them.
pub const PARTITIONS: usize = 256;
/// Slots that keys are routed to.
pub const SLOTS: u16 = 16_384;

/// The partition of a slot.
#[inline]
#[must_use]
pub fn partition_of(slot: u16) -> usize {
    assert!(slot < SLOTS, "slots are computed modulo {SLOTS}");
    usize::from(slot) / (SLOTS as usize / PARTITIONS)
}

/// The last slot of the partition of a slot.
#[inline]
#[must_use]
pub fn last_slot_of_partition(slot: u16) -> u16 {
    let slots = SLOTS as usize / PARTITIONS;
    let last = usize::from(slot) / slots * slots + slots - 1;
    u16::try_from(last).expect("a slot")
}

/// The version of a key: compared in this order, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 24-bit term and 8-bit node ordinal.
    pub epoch: u32,
    /// Dense per partition, from 1.
    pub sequence: u64,
}

/// The last sequence given out in each partition.
pub type Sequences = [u64; PARTITIONS];
/// An epoch of each partition.
pub type Epochs = [u32; PARTITIONS];
