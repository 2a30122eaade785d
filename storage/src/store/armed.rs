//! Keys with effects that run when they expire: what a shard asks the store to fire them.
//!
//! An armed key whose time has come is hidden as any expired key is, and stays in index, log and
//! snapshots until a change ends it. That change is one record with the effects, made by the node
//! that writes the partition ([`Store::stage`]).

use crate::memory::index::entry::{CellId, Home};
use crate::memory::timers::{Timer, Timers};
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::place::Place;

/// What stands where a timer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedKey {
    /// The armed key with this expiry.
    Armed(CellId),
    /// This must be read first to know.
    Cold(Place),
    /// No such key: the timer is out of date.
    Gone,
}

impl<P: Blocks> Store<P> {
    /// When armed keys expire.
    #[inline]
    #[must_use]
    pub fn timers(&self) -> &Timers {
        self.keys.timers()
    }

    /// Whether an armed key may have expired.
    #[inline]
    #[must_use]
    pub fn has_due(&self) -> bool {
        let earliest_ms = self.keys.timers().earliest_ms();
        earliest_ms.is_some_and(|earliest_ms| earliest_ms <= self.time_ms())
    }

    /// What runs when a cached key expires, as an item of APPLY.
    #[must_use]
    pub fn effects(&self, id: CellId) -> Option<&[u8]> {
        let area = self.keys.cells().effects(id)?;
        Some(area.effects())
    }

    /// Whether a cached key is armed and has expired: its effects are to run before anything else
    /// looks at it.
    #[must_use]
    pub fn must_fire(&self, id: CellId) -> bool {
        self.is_expired(self.cell(id).expiry_ms()) && self.keys.cells().effects(id).is_some()
    }

    /// What a timer points to.
    #[must_use]
    pub fn at_timer(&self, timer: Timer) -> TimedKey {
        let mut cold = None;
        for candidate in self.keys.entries().candidates(timer.slot, timer.hash) {
            match candidate.home {
                Home::Memory(id) => {
                    let is_it = self.cell(id).expiry_ms() == Some(timer.expiry_ms)
                        && self.keys.cells().effects(id).is_some();
                    if is_it {
                        return TimedKey::Armed(id);
                    }
                }
                Home::Disk(packed) => cold = cold.or(packed.place()),
            }
        }
        cold.map_or(TimedKey::Gone, TimedKey::Cold)
    }

    /// Takes a timer out that points to no key.
    pub fn drop_timer(&mut self, timer: Timer) {
        self.keys.drop_timer(timer);
    }

    /// Pins these keys in memory until the next call, at most as many as a record has parts: those
    /// that the effects of one armed key need, beside those of [`Store::pin`].
    pub fn pin_due(&mut self, homes: impl IntoIterator<Item = (u16, u32)>) {
        self.room.pin_due(homes);
    }
}
