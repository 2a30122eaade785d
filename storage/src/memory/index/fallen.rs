//! The entries of partitions that were flushed, until they are cleared.
//!
//! A flush takes the tables of a partition's slots away whole, however many entries they have. From
//! then on no look-up of a key finds an entry of them, for there is only one way to look a key up.
//! Tokens stay: they are found here until clearing puts each back into its slot.

use crate::memory::index::entry::Entry;
use crate::memory::index::groups::Slot;
use crate::types::version::{PARTITIONS, SLOTS};
use std::collections::VecDeque;
use std::ops::Range;

/// Tables that a flush has taken away.
#[derive(Debug)]
pub(super) struct Fallen {
    pub(super) slots: Box<[Slot]>,
    /// Partitions whose tables are here, in the order in which they came: each at most once.
    partitions: VecDeque<usize>,
    /// Where the clearing of the first of them goes on: a slot, and a group of its table.
    next: (usize, usize),
    /// Entries of keys: all but tokens.
    pub(super) keys: usize,
    /// Tokens of each partition that are here.
    pub(super) tokens: Box<[u32]>,
}

impl Default for Fallen {
    fn default() -> Self {
        Fallen {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            partitions: VecDeque::new(),
            next: (0, 0),
            keys: 0,
            tokens: [0; PARTITIONS].into(),
        }
    }
}

/// The slots of a partition.
pub(super) fn slots_of(partition: usize) -> Range<usize> {
    let slots = usize::from(SLOTS) / PARTITIONS;
    partition * slots..(partition + 1) * slots
}

impl Fallen {
    /// Whether tables of a partition are here.
    pub(super) fn has(&self, partition: usize) -> bool {
        self.partitions.contains(&partition)
    }

    /// Whether nothing is here.
    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// How many partitions have tables here.
    pub(super) fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Has a partition cleared before the others.
    pub(super) fn hasten(&mut self, partition: usize) {
        let at = self.partitions.iter().position(|&it| it == partition);
        if let Some(at) = at.filter(|&at| at > 0) {
            self.partitions.remove(at);
            self.partitions.push_front(partition);
            self.next = (slots_of(partition).start, 0);
        }
    }

    /// Notes that the tables of a partition are here from now on, with so many keys and tokens.
    pub(super) fn add(&mut self, partition: usize, keys: usize, tokens: u32) {
        assert!(!self.has(partition), "a partition falls once at a time");
        if self.partitions.is_empty() {
            self.next = (slots_of(partition).start, 0);
        }
        self.partitions.push_back(partition);
        self.keys += keys;
        self.tokens[partition] = tokens;
    }

    /// Takes the entries of the next group out, with their slot and how many bytes of memory they
    /// give back. `None` if nothing is left.
    pub(super) fn take_group(&mut self) -> Option<(u16, Box<[Entry]>, usize)> {
        loop {
            let partition = *self.partitions.front()?;
            let (slot, group) = self.next;
            if slot == slots_of(partition).end {
                self.partitions.pop_front();
                let next = self.partitions.front();
                self.next = (next.map_or(0, |&next| slots_of(next).start), 0);
                continue;
            }
            let table = &mut self.slots[slot];
            let before = table.heap_bytes();
            let taken = table.take_group(group);
            match taken {
                Some((_, number)) => self.next = (slot, number + 1),
                // Groups that a removal has merged may stand before the place.
                None if table.used() > 0 => self.next = (slot, 0),
                None => {
                    *table = Slot::default();
                    self.next = (slot + 1, 0);
                }
            }
            let freed = before - table.heap_bytes();
            let slot = u16::try_from(slot).expect("a slot");
            match taken {
                Some((entries, _)) => return Some((slot, entries, freed)),
                None if freed > 0 => return Some((slot, Box::default(), freed)),
                None => {}
            }
        }
    }
}
