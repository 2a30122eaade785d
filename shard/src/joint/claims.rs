//! Claims of slots of one shard, in the order in which they came.
//!
//! A claim is granted all of its slots at once, when no older claim wants one of them. A change
//! claims from one shard after the other, ascending, so no two changes wait for each other.

use std::collections::{HashMap, HashSet};

/// A change: the shard that leads it, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChangeName {
    pub(crate) leader: u16,
    pub(crate) change: u64,
}

#[derive(Debug)]
struct Claim {
    name: ChangeName,
    number: u64,
    slots: Vec<u16>,
    is_granted: bool,
}

/// The claims of a shard.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// In the order in which they came.
    all: Vec<Claim>,
    /// The number of the claim that a slot is granted to.
    holders: HashMap<u16, u64>,
}

impl Claims {
    /// Whether no slot is granted to anybody.
    pub(crate) fn is_free(&self) -> bool {
        self.holders.is_empty()
    }

    /// A claim comes. Its number is used by no other one.
    pub(crate) fn add(&mut self, name: ChangeName, number: u64, slots: Vec<u16>) {
        self.all.push(Claim {
            name,
            number,
            slots,
            is_granted: false,
        });
    }

    /// Grants what can be granted.
    pub(crate) fn grant(&mut self) {
        let mut wanted: HashSet<u16> = HashSet::new();
        for claim in &mut self.all {
            if !claim.is_granted && claim.slots.iter().all(|slot| !wanted.contains(slot)) {
                claim.is_granted = true;
                let slots = claim.slots.iter();
                self.holders.extend(slots.map(|slot| (*slot, claim.number)));
            }
            wanted.extend(&claim.slots);
        }
    }

    /// Whether a change has what it claimed.
    pub(crate) fn is_granted(&self, name: ChangeName) -> bool {
        self.all
            .iter()
            .any(|claim| claim.name == name && claim.is_granted)
    }

    /// The number of the claim that has a slot.
    pub(crate) fn holder(&self, slot: u16) -> Option<u64> {
        self.holders.get(&slot).copied()
    }

    /// The numbers of all claims.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.all.iter().map(|claim| claim.number)
    }

    /// A change gives back what it claimed. The number of its claim, if it had any.
    pub(crate) fn release(&mut self, name: ChangeName) -> Option<u64> {
        let at = self.all.iter().position(|claim| claim.name == name)?;
        let claim = self.all.remove(at);
        if claim.is_granted {
            claim.slots.iter().for_each(|slot| {
                self.holders.remove(slot);
            });
        }
        Some(claim.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(change: u64) -> ChangeName {
        ChangeName { leader: 0, change }
    }

    fn granted(claims: &Claims) -> Vec<u64> {
        (1..9).filter(|it| claims.is_granted(name(*it))).collect()
    }

    #[test]
    fn a_claim_waits_for_each_older_one_that_wants_a_slot_of_it_granted_or_not() {
        let mut claims = Claims::default();
        for (change, slots) in [(1, vec![1, 2]), (2, vec![2, 3]), (3, vec![3]), (4, vec![4])] {
            claims.add(name(change), 10 * change, slots);
        }
        claims.grant();
        assert_eq!(granted(&claims), [1, 4]);
        assert_eq!((claims.holder(2), claims.holder(3)), (Some(10), None));
        assert_eq!(claims.release(name(1)), Some(10));
        claims.grant();
        assert_eq!(granted(&claims), [2, 4]);
        // One that waits gives up.
        assert_eq!(claims.release(name(3)), Some(30));
        assert_eq!(claims.release(name(2)), Some(20));
        assert_eq!(claims.release(name(2)), None);
        claims.grant();
        assert!(!claims.is_free());
        claims.release(name(4));
        assert!(claims.is_free());
    }
}
