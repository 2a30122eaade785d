//! Keys with effects that run when they expire: what a shard asks the store to fire them.
//!
//! An armed key whose time has come is hidden as any expired key is, and stays in index, log and
//! snapshots until a change ends it. That change is one record with the effects, made by the node
//! that writes the partition ([`Store::change`](crate::store::Store::change)).

use crate::memory::index::entry::CellId;
use crate::store::data::Data;

impl Data {
    /// Whether an armed key may have expired.
    #[inline]
    #[must_use]
    pub fn has_due(&self) -> bool {
        let earliest_ms = self.keys.timers().earliest_ms();
        earliest_ms.is_some_and(|earliest_ms| earliest_ms <= self.time_ms())
    }

    /// Whether a cached key is armed and has expired: its effects are to run before anything else
    /// looks at it.
    #[must_use]
    pub fn must_fire(&self, id: CellId) -> bool {
        self.is_expired(self.keys.cell(id).expiry_ms()) && self.keys.cells().effects(id).is_some()
    }

    /// Pins these keys in memory until the next call, at most as many as a record has parts: those
    /// that the effects of one armed key need, beside those of [`Data::pin`].
    pub fn pin_due(&mut self, homes: impl IntoIterator<Item = (u16, u32)>) {
        self.room.pin_due(homes);
    }
}
