//! The cores of a node that have RESP ports of their own: to clients for clusters each is a node.

use std::ops::RangeInclusive;

use crate::slot::{core_of, slots_of};

/// The ports at which clients find the cores of a node: that of core i is the first one + i.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorePorts {
    first: u16,
    cores: u16,
}

impl CorePorts {
    /// The ports of so many cores, 1 to 256. `None` if the last port is beyond 65535.
    #[must_use]
    pub fn new(first: u16, cores: u16) -> Option<CorePorts> {
        let last = first.checked_add(cores.checked_sub(1)?)?;
        (cores <= 256 && last >= first).then_some(CorePorts { first, cores })
    }

    /// How many cores there are.
    #[must_use]
    pub fn cores(self) -> u16 {
        self.cores
    }

    /// All of them.
    #[must_use]
    pub fn all(self) -> RangeInclusive<u16> {
        self.first..=self.first + (self.cores - 1)
    }

    /// That of a core.
    #[must_use]
    pub fn port(self, core: u16) -> u16 {
        self.first + core
    }

    /// That of the core that owns a slot.
    #[must_use]
    pub fn port_of_slot(self, slot: u16) -> u16 {
        self.port(core_of(slot, self.cores))
    }
}

/// A core by whose own port a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCore {
    /// Its number.
    pub core: u16,
    /// How many the node has, 1 to 256.
    pub cores: u16,
}

impl OwnCore {
    /// The slots that it owns.
    #[must_use]
    pub fn slots(self) -> RangeInclusive<u16> {
        slots_of(self.core, self.cores)
    }
}
