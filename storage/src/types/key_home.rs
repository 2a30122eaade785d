//! Where the index finds a key: the slot and the hash of the key.

/// The slot of a key and the hash of the key in that slot. Several keys may share a home.
///
/// The order is that of slots, and of hashes within a slot: walks of the index and the entries of a
/// snapshot follow this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHome {
    /// The slot.
    pub slot: u16,
    /// The hash within the slot, with the shard's seed.
    pub hash: u32,
}

impl KeyHome {
    /// The home of the keys with this slot and hash.
    #[inline]
    #[must_use]
    pub const fn new(slot: u16, hash: u32) -> Self {
        KeyHome { slot, hash }
    }
}
