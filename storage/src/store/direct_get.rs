//! What a GET of a cached key shows that has a value and no expiry.

use crate::memory::index::entry::CellId;
use crate::memory::keys::Found;
use crate::store::data::Data;
use crate::types::key_home::KeyHome;
use crate::types::place::Lsn;
use crate::types::version::Version;

/// A key as a GET shows it.
#[derive(Clone, Copy, Debug)]
pub struct DirectRead<'a> {
    /// Its cell.
    pub id: CellId,
    /// Its value.
    pub value: &'a [u8],
    /// Whether the cell is marked as in use.
    pub is_used: bool,
    /// The version of the last change, and its position in the log.
    pub version: Version,
    /// Up to where the log must be durable before that change is.
    pub lsn: Lsn,
}

impl Data {
    /// What a GET of `key` shows, whose only cell by
    /// [`Keys::only_cells`](crate::store::Keys::only_cells) is this one if nothing came, went or
    /// moved since. `None`: a keyspace may rule the key, or it is not cached, is
    /// deleted, or has an expiry or members.
    #[inline(always)]
    #[must_use]
    pub fn direct_get(
        &self,
        KeyHome { slot, hash }: KeyHome,
        key: &[u8],
        only: Option<CellId>,
    ) -> Option<DirectRead<'_>> {
        if self.may_be_ruled(key) {
            return None;
        }
        let id = match only {
            Some(id) if self.keys.is_at(id, key) => id,
            _ => match self.keys.find(slot, hash, key) {
                Found::Cached(id) => id,
                Found::Absent | Found::Cold(_) => return None,
            },
        };
        let (cell, version, lsn) = self.keys.cells().with_version(id);
        if !cell.is_plain_for_ever() {
            return None;
        }
        // No closure: as a function of its own it costs a GET thirty instructions.
        Some(DirectRead {
            id,
            value: cell.value(),
            is_used: cell.is_used(),
            version,
            lsn,
        })
    }
}
