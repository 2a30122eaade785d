//! The operations that an engine has begun, each in a slot that owns its block until the device is
//! done with it.
//!
//! A key names a slot and the generation it was filled in, so that an engine that reported twice,
//! or something that was never asked for, is caught instead of freeing another one's memory.

use penstock_storage::io::IoToken;

use crate::disk::arena::ArenaBlock;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write { durable: bool },
    Sync,
}

/// One request, from its acceptance to its completion.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) token: IoToken,
    /// Its place in the table of files.
    pub(super) file: usize,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    /// Bytes to move; 0 for a sync.
    pub(super) len: u32,
    /// None for a sync.
    pub(super) block: Option<ArenaBlock>,
}

/// A fixed number of slots. `len() + free.len() == slots.len()`.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    operation: Option<Operation>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Self {
            slots: (0..count)
                .map(|_| Slot {
                    generation: 0,
                    operation: None,
                })
                .collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// How many slots are taken.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a free slot and returns its key. There must be a free slot.
    pub(super) fn insert(&mut self, operation: Operation) -> u64 {
        let index = self
            .free
            .pop()
            .expect("the disk begins no more than it has slots for");
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.operation = Some(operation);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// Empties the slot of a key that an engine reported.
    pub(super) fn remove(&mut self, key: u64) -> Operation {
        let [a, b, c, d, e, f, g, h] = key.to_le_bytes();
        let index = u32::from_le_bytes([a, b, c, d]);
        let generation = u32::from_le_bytes([e, f, g, h]);
        let slot = &mut self.slots[index as usize];
        assert_eq!(
            slot.generation, generation,
            "an operation completed that was not under way"
        );
        let operation = slot.operation.take().expect("an operation completes once");
        self.free.push(index);
        operation
    }

    /// Gives up the blocks of all slots, whose memory then lives as long as the process.
    pub(super) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use penstock_storage::io::Asker;

    use super::*;

    fn sync(token: u64) -> Operation {
        Operation {
            token: IoToken::new(Asker::Operation, token),
            file: 0,
            kind: Kind::Sync,
            offset: 0,
            len: 0,
            block: None,
        }
    }

    #[test]
    fn every_key_brings_back_its_own_operation_in_any_order() {
        let mut slots = Slots::new(3);
        let keys: Vec<u64> = (0..3).map(|token| slots.insert(sync(token))).collect();
        assert_eq!(slots.len(), 3);
        assert_eq!(
            slots.remove(keys[1]).token,
            IoToken::new(Asker::Operation, 1)
        );
        let again = slots.insert(sync(9));
        assert_ne!(
            again, keys[1],
            "the slot is the same, the generation is not"
        );
        assert_eq!(
            slots.remove(keys[2]).token,
            IoToken::new(Asker::Operation, 2)
        );
        assert_eq!(slots.remove(again).token, IoToken::new(Asker::Operation, 9));
        assert_eq!(
            slots.remove(keys[0]).token,
            IoToken::new(Asker::Operation, 0)
        );
        assert_eq!(slots.len(), 0);
    }

    #[test]
    #[should_panic(expected = "an operation completed that was not under way")]
    fn a_key_of_an_earlier_generation_is_caught() {
        let mut slots = Slots::new(1);
        let old = slots.insert(sync(1));
        slots.remove(old);
        slots.insert(sync(2));
        slots.remove(old);
    }

    #[test]
    #[should_panic(expected = "an operation completes once")]
    fn a_completion_that_is_reported_twice_is_caught() {
        let mut slots = Slots::new(1);
        let key = slots.insert(sync(1));
        slots.remove(key);
        slots.remove(key);
    }
}
