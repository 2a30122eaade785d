//! A record and its parts, as a writer gives them to the encoder.

use crate::types::version::Version;

use super::{PART_HEADER_BYTES, padded};

/// What a part says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// The key has this value.
    Put,
    /// The key is gone.
    Tombstone,
}

/// What the bytes of a value are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// Bytes of a client.
    #[default]
    Plain,
    /// A head of members: [`HeadView`](crate::format::head::HeadView).
    Head,
}

/// A value and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindedValue<'v> {
    /// What it is.
    pub kind: ValueKind,
    /// Its bytes.
    pub bytes: &'v [u8],
}

impl<'v> KindedValue<'v> {
    /// The number of the type of its members; 0 of bytes of a client.
    #[must_use]
    pub fn type_number(self) -> u8 {
        match self.kind {
            ValueKind::Plain => 0,
            ValueKind::Head => self.bytes.first().copied().unwrap_or_default(),
        }
    }

    /// A value without a byte, as keys have it before they are given one.
    pub const NONE: KindedValue<'static> = KindedValue::plain(&[]);

    /// Bytes of a client.
    #[inline]
    #[must_use]
    pub const fn plain(bytes: &'v [u8]) -> Self {
        let kind = ValueKind::Plain;
        KindedValue { kind, bytes }
    }

    /// A head of members.
    #[inline]
    #[must_use]
    pub const fn head(bytes: &'v [u8]) -> Self {
        let kind = ValueKind::Head;
        KindedValue { kind, bytes }
    }
}

/// One part to be written.
#[derive(Clone, Copy, Debug)]
pub struct PartSpec<'a> {
    /// Put or tombstone; a tombstone has an empty value.
    pub kind: PartKind,
    /// 1 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// At most [`VALUE_BYTES_MAX`] bytes.
    pub value: &'a [u8],
    /// What they are. A tombstone and a key of the store's own have no head.
    pub value_kind: ValueKind,
    /// Unix milliseconds from which on the key is gone.
    pub expiry_ms: Option<u64>,
    /// The layout of the value; 0 is opaque bytes.
    pub layout: u16,
    /// Another key of the same hash may be in the index: to know which one the part belongs to, its
    /// key must be compared.
    pub is_crowded: bool,
}

/// One record to be written.
#[derive(Clone, Copy, Debug)]
pub struct RecordSpec<'a> {
    /// The slot that all keys route to.
    pub slot: u16,
    /// 24-bit term and 8-bit node ordinal.
    pub epoch: u32,
    /// Dense per partition, from 1.
    pub sequence: u64,
    /// Unix milliseconds, 48 bits.
    pub time_ms: u64,
    /// 1 to [`PARTS_MAX`] parts.
    pub parts: &'a [PartSpec<'a>],
    /// The encoded extension areas of the first parts (each a multiple of 8 bytes, or nothing); the
    /// others have none.
    pub extension: &'a [&'a [u8]],
}

/// The encoded size of a part of a record of few parts, in bytes. Each part of a record of more has
/// [`number_bytes`](super::number_bytes) besides.
#[inline]
#[must_use]
pub const fn part_bytes(
    key_len: usize,
    value_len: usize,
    expiry: bool,
    extension_len: usize,
) -> usize {
    PART_HEADER_BYTES
        + padded(key_len)
        + padded(value_len)
        + if expiry { 8 } else { 0 }
        + extension_len
}

impl<'a> PartSpec<'a> {
    /// A value of opaque bytes that never expires, under a key whose hash no other key has.
    #[inline]
    #[must_use]
    pub const fn put(key: &'a [u8], value: &'a [u8]) -> Self {
        PartSpec {
            kind: PartKind::Put,
            key,
            value,
            value_kind: ValueKind::Plain,
            expiry_ms: None,
            layout: 0,
            is_crowded: false,
        }
    }

    /// The end of a key whose hash no other key has.
    #[inline]
    #[must_use]
    pub const fn tombstone(key: &'a [u8]) -> Self {
        PartSpec {
            kind: PartKind::Tombstone,
            ..PartSpec::put(key, &[])
        }
    }

    /// The same, where another key may have the hash.
    #[inline]
    #[must_use]
    pub const fn crowded(self) -> Self {
        PartSpec {
            is_crowded: true,
            ..self
        }
    }
}

impl<'a> RecordSpec<'a> {
    /// The change with this version, made at `time_ms`. No part has an extension area.
    #[inline]
    #[must_use]
    pub const fn new(slot: u16, version: Version, time_ms: u64, parts: &'a [PartSpec<'a>]) -> Self {
        RecordSpec {
            slot,
            epoch: version.epoch,
            sequence: version.sequence,
            time_ms,
            parts,
            extension: &[],
        }
    }
}
