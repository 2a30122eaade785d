//! What the value of a part is: bytes of a client, or a head.

use crate::format::head::{self, HeadError};
use crate::format::system_key::is_system;

use super::{KindedValue, PartError, PartKind, PartSpec, PartView, ValueKind};

/// The encoding of a value that is a head; that of bytes of a client is 0.
pub(super) const ENCODING_HEAD: u8 = 1;

/// The encoding of a value.
#[inline]
pub(super) const fn encoding(kind: ValueKind) -> u8 {
    match kind {
        ValueKind::Plain => 0,
        ValueKind::Head => ENCODING_HEAD,
    }
}

/// Whether a part may have a value of its kind.
#[inline]
pub(super) fn may_be(part: &PartSpec<'_>) -> bool {
    part.value_kind == ValueKind::Plain
        || may_be_head(part.kind, part.key) && { head::check(part.value).is_ok() }
}

/// Checks a part whose encoding is that of a head.
#[cold]
pub(super) fn check(part: &PartView<'_>) -> Result<(), PartError> {
    if !may_be_head(part.kind(), part.key()) {
        return Err(PartError::Damaged);
    }
    head::check(part.value()).map_err(|error| match error {
        HeadError::Damaged => PartError::Damaged,
        HeadError::Unknown => PartError::Unsupported {
            kind: part.bytes[8],
            flags: part.bytes[9],
            encoding: ENCODING_HEAD,
        },
    })
}

/// A tombstone has no value, and the store's own keys have values of their own.
#[cold]
fn may_be_head(kind: PartKind, key: &[u8]) -> bool {
    kind == PartKind::Put && !is_system(key)
}

impl<'a> PartView<'a> {
    /// What its value is.
    #[inline]
    #[must_use]
    pub fn value_kind(&self) -> ValueKind {
        match self.bytes[11] {
            ENCODING_HEAD => ValueKind::Head,
            _ => ValueKind::Plain,
        }
    }

    /// Its value and what it is.
    #[inline]
    #[must_use]
    pub fn kinded_value(&self) -> KindedValue<'a> {
        KindedValue {
            kind: self.value_kind(),
            bytes: self.value(),
        }
    }
}
