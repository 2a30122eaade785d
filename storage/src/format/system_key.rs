//! Keys of the store's own records: what they begin with and how long their values are.

/// What the keys of the store's own records begin with.
pub const SYSTEM_KEY: &[u8] = b"\0\0penstock/";
/// What the keys of local records begin with. The rest only leads to a slot of the partition.
pub const LOCAL_KEY: &[u8] = b"\0\0penstock/local/";
/// What the keys of the records of epochs begin with: which epochs wrote the partition. They are
/// records like others; a start tells the newest of each partition besides.
pub const EPOCHS_KEY: &[u8] = b"\0\0penstock/epochs/";
/// Bytes of the value of a local record, at most.
pub const LOCAL_BYTES_MAX: usize = 256;
/// Bytes of the value of a record of epochs, at most.
pub const EPOCHS_BYTES_MAX: usize = 1024;

/// Whether a part with this key is a local record.
#[inline]
#[must_use]
pub fn is_local(key: &[u8]) -> bool {
    // Nearly no key begins with a zero.
    key[0] == 0 && key.starts_with(LOCAL_KEY)
}

/// Whether a part with this key is a record of epochs.
#[inline]
#[must_use]
pub fn is_epochs(key: &[u8]) -> bool {
    key[0] == 0 && key.starts_with(EPOCHS_KEY)
}

/// Whether a key is one of the store's own.
#[inline]
#[must_use]
pub fn is_system(key: &[u8]) -> bool {
    key[0] == SYSTEM_KEY[0] && key.starts_with(SYSTEM_KEY)
}
