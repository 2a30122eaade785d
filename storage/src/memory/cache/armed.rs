//! What runs when keys expire, beside the cells of those few keys that have something to run. A
//! cell without effects has not a byte for them.

use crate::format::extension::EffectsArea;
use crate::memory::index::entry::CellId;
use std::collections::BTreeMap;

/// Bytes of memory that an entry takes beside the area: its share of the map and its heap block.
const ENTRY_BYTES: usize = 64;

/// The effects of armed cells, by cell.
#[derive(Debug, Default)]
pub(super) struct Armed {
    areas: BTreeMap<u32, EffectsArea>,
    bytes: usize,
}

impl Armed {
    /// Whether no cell is armed: most caches.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.areas.is_empty()
    }

    /// What runs when the key of a cell expires.
    pub(super) fn get(&self, id: CellId) -> Option<&EffectsArea> {
        self.areas.get(&id.0)
    }

    /// Arms a cell, whether it is armed or not.
    pub(super) fn put(&mut self, id: CellId, area: EffectsArea) {
        self.bytes += ENTRY_BYTES + area.bytes().len();
        if let Some(before) = self.areas.insert(id.0, area) {
            self.bytes -= ENTRY_BYTES + before.bytes().len();
        }
    }

    /// Disarms a cell, and tells what was to run.
    pub(super) fn take(&mut self, id: CellId) -> Option<EffectsArea> {
        let area = self.areas.remove(&id.0)?;
        self.bytes -= ENTRY_BYTES + area.bytes().len();
        Some(area)
    }

    /// Bytes of memory.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
