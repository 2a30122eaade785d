//! The keys of a transaction: in the order in which its commands name them, and found by their
//! names.
//!
//! A command may name a key for every few of its bytes. So a name is compared with those of the
//! keys in order, and with all of them only while they are few.

use std::ops::{Deref, DerefMut};

use crate::limits::FEW_KEYS_MAX;

use super::key_state::KeyState;

/// The keys, no two alike.
#[derive(Clone, Debug, Default)]
pub(super) struct TransactionKeys {
    all: Vec<KeyState>,
    /// Places of `all` in the order of the names.
    order: Vec<usize>,
}

impl TransactionKeys {
    /// Adds a key that is not there yet.
    pub(super) fn add(&mut self, name: &[u8]) {
        if let Err(at) = self.at(name) {
            self.order.insert(at, self.all.len());
            self.all.push(KeyState::new(name));
        }
    }

    /// The key of this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<&KeyState> {
        if self.all.len() <= FEW_KEYS_MAX {
            return self.all.iter().find(|key| key.name() == name);
        }
        let at = self.at(name).ok()?;
        self.all.get(self.order[at])
    }

    /// The same, to be changed.
    pub(super) fn find_mut(&mut self, name: &[u8]) -> Option<&mut KeyState> {
        if self.all.len() <= FEW_KEYS_MAX {
            return self.all.iter_mut().find(|key| key.name() == name);
        }
        let at = self.at(name).ok()?;
        self.all.get_mut(self.order[at])
    }

    /// Where the key of a name stands in `order`, or where it would.
    fn at(&self, name: &[u8]) -> Result<usize, usize> {
        self.order
            .binary_search_by(|&place| self.all[place].name().cmp(name))
    }
}

impl Deref for TransactionKeys {
    type Target = [KeyState];

    fn deref(&self) -> &[KeyState] {
        &self.all
    }
}

impl DerefMut for TransactionKeys {
    fn deref_mut(&mut self) -> &mut [KeyState] {
        &mut self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_name_however_many_there_are() {
        let mut keys = TransactionKeys::default();
        let name = |number: usize| format!("key {}", number * 7919 % 300).into_bytes();
        for number in 0..300 {
            keys.add(&name(number));
            keys.add(&name(number / 2));
            assert_eq!(keys.len(), number + 1);
            for known in 0..300 {
                let found = keys.find_mut(&name(known)).map(|key| key.name().to_vec());
                assert_eq!(found, (known <= number).then(|| name(known)));
            }
            assert_eq!(keys[number].name(), name(number), "in their order");
        }
    }
}
