//! Keys of the store's own records: what they begin with and how long their values are.

use crate::format::horizon::AHEAD_MS_MAX;

/// What the keys of the store's own records begin with.
pub const SYSTEM_KEY: &[u8] = b"\0\0penstock/";
/// What the keys of local records begin with. The rest only leads to a slot of the partition.
pub const LOCAL_KEY: &[u8] = b"\0\0penstock/local/";
/// What the keys of the records of epochs begin with: which epochs wrote the partition. They are
/// records like others; a start tells the newest of each partition besides.
pub const EPOCHS_KEY: &[u8] = b"\0\0penstock/epochs/";
/// What the keys of tokens begin with. A tag of their slot in braces follows, then 16 bytes of a
/// UUID or 32 bytes of the digest of a text.
pub const TOKEN_KEY: &[u8] = b"\0\0penstock/token/{";
/// Bytes of the key of a token that is a UUID.
pub const TOKEN_KEY_BYTES: usize = TOKEN_KEY.len() + 3 + 16;
/// Bytes of the key of a token that is a text.
pub const TEXT_TOKEN_KEY_BYTES: usize = TOKEN_KEY.len() + 3 + 32;
/// What the keys of horizons begin with: how long tokens of the partition are kept, and since when
/// none is missing. A tag that leads to the first slot of the partition follows, and a brace.
pub const HORIZON_KEY: &[u8] = b"\0\0penstock/horizon/{";
/// What the keys of flush marks begin with: all keys of the partition that stand before the mark in
/// their log are gone. A tag as that of a horizon follows, and a brace.
pub const FLUSH_KEY: &[u8] = b"\0\0penstock/flush/{";
/// What the keys of redo records begin with: what a change of keys of several shards leaves of each
/// key. A tag as that of a horizon follows, a brace, and a letter from `a` on.
pub const REDO_KEY: &[u8] = b"\0\0penstock/redo/{";
/// Redo records that a partition may have, one for each letter.
pub const REDO_RECORDS_MAX: usize = 16;
/// Bytes of the key of a redo record.
pub const REDO_KEY_BYTES: usize = REDO_KEY.len() + 4;
/// The value of a flush mark: 8 bytes, reserved.
pub const FLUSH_VALUE: [u8; 8] = [0; 8];
/// Bytes of the value of a local record, at most.
pub const LOCAL_BYTES_MAX: usize = 256;
/// Bytes of the value of a record of epochs, at most.
pub const EPOCHS_BYTES_MAX: usize = 1024;

/// Whether a part with this key is a local record.
#[inline]
#[must_use]
pub fn is_local(key: &[u8]) -> bool {
    // Nearly no key begins with a zero.
    key.first() == Some(&0) && key.starts_with(LOCAL_KEY)
}

/// Whether a part with this key is a record of epochs.
#[inline]
#[must_use]
pub fn is_epochs(key: &[u8]) -> bool {
    key.first() == Some(&0) && key.starts_with(EPOCHS_KEY)
}

/// Whether a part with this key is a token.
#[inline]
#[must_use]
pub fn is_token(key: &[u8]) -> bool {
    key.first() == Some(&0) && key.starts_with(TOKEN_KEY)
}

/// Whether a part with this key is a horizon.
#[inline]
#[must_use]
pub fn is_horizon(key: &[u8]) -> bool {
    key.first() == Some(&0) && key.starts_with(HORIZON_KEY)
}

/// Whether a part with this key is a flush mark.
#[inline]
#[must_use]
pub fn is_flush(key: &[u8]) -> bool {
    key.first() == Some(&0) && key.starts_with(FLUSH_KEY)
}

/// Whether a part with this key is a redo record.
#[inline]
#[must_use]
pub fn is_redo(key: &[u8]) -> bool {
    key.first() == Some(&0) && key.starts_with(REDO_KEY)
}

/// Whether a key is one that a redo record has.
#[must_use]
pub fn is_redo_key(key: &[u8]) -> bool {
    let mut letters = (b'a'..).take(REDO_RECORDS_MAX);
    is_redo(key)
        && key.len() == REDO_KEY_BYTES
        && key[REDO_KEY_BYTES - 2] == b'}'
        && letters.any(|letter| letter == key[REDO_KEY_BYTES - 1])
}

/// The keys of the redo records of a partition, by two bytes that lead to its first slot.
pub fn redo_keys(tag: [u8; 2]) -> impl Iterator<Item = [u8; REDO_KEY_BYTES]> {
    (b'a'..).take(REDO_RECORDS_MAX).map(move |letter| {
        let mut key = [0; REDO_KEY_BYTES];
        key[..REDO_KEY.len()].copy_from_slice(REDO_KEY);
        key[REDO_KEY.len()..].copy_from_slice(&[tag[0], tag[1], b'}', letter]);
        key
    })
}

/// Whether the index has this key of the store's own as it has keys of clients.
#[inline]
#[must_use]
pub fn is_indexed(key: &[u8]) -> bool {
    is_epochs(key) || is_token(key) || is_horizon(key) || is_flush(key) || is_redo(key)
}

/// The tag in the key of a flush mark. `None` if it is no such key.
#[must_use]
pub fn flush_tag(key: &[u8]) -> Option<&[u8]> {
    let tag = key.strip_prefix(FLUSH_KEY)?.strip_suffix(b"}")?;
    (tag.len() == 2).then_some(tag)
}

/// The key of a token.
#[derive(Clone, Copy, Debug)]
pub struct TokenKey {
    bytes: [u8; TEXT_TOKEN_KEY_BYTES],
    len: usize,
}

impl std::ops::Deref for TokenKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The key of a token, by two bytes that lead to its slot and what names it.
///
/// # Panics
/// If the name is neither as long as a UUID nor as a digest.
#[inline]
#[must_use]
pub fn token_key(tag: [u8; 2], name: &[u8]) -> TokenKey {
    assert!(matches!(name.len(), 16 | 32), "{} bytes", name.len());
    let mut bytes = [0; TEXT_TOKEN_KEY_BYTES];
    let (prefix, rest) = bytes.split_at_mut(TOKEN_KEY.len());
    prefix.copy_from_slice(TOKEN_KEY);
    rest[..2].copy_from_slice(&tag);
    rest[2] = b'}';
    rest[3..][..name.len()].copy_from_slice(name);
    let len = TOKEN_KEY.len() + 3 + name.len();
    TokenKey { bytes, len }
}

/// The token whose key this is. `None` if it is no token's.
#[must_use]
pub fn token_of(key: &[u8]) -> Option<[u8; 16]> {
    let is_it = key.len() == TOKEN_KEY_BYTES && is_token(key);
    key.last_chunk::<16>().copied().filter(|_| is_it)
}

/// Whether a key is one that a token has.
#[must_use]
pub fn is_token_key(key: &[u8]) -> bool {
    matches!(key.len(), TOKEN_KEY_BYTES | TEXT_TOKEN_KEY_BYTES) && is_token(key)
}

/// A time that is not before that of a token, in unix milliseconds, by its key and the time of its
/// record: the time of a UUID, and of a text, whose key tells no time, how far ahead of its record
/// it may be. `None` if the key is no token's.
#[inline]
#[must_use]
pub fn token_time_ms(key: &[u8], record_ms: u64) -> Option<u64> {
    is_token_key(key).then(|| match is_text_token(key) {
        true => record_ms + AHEAD_MS_MAX,
        false => time_of_token(key),
    })
}

/// Whether the key of a token is that of a text.
#[inline]
#[must_use]
pub(crate) fn is_text_token(key: &[u8]) -> bool {
    key.len() == TEXT_TOKEN_KEY_BYTES
}

/// The time of a token that is a UUID.
///
/// # Panics
/// If its key is too short for one.
#[inline]
#[must_use]
pub(crate) fn time_of_token(key: &[u8]) -> u64 {
    let token = key.last_chunk::<16>().expect("the key of a token");
    let [a, b, c, d, e, f, ..] = *token;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Whether a key is one of the store's own.
#[inline]
#[must_use]
pub fn is_system(key: &[u8]) -> bool {
    key.first() == Some(&SYSTEM_KEY[0]) && key.starts_with(SYSTEM_KEY)
}
