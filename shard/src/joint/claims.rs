//! Claims of slots of one shard, in the order in which they came.
//!
//! A claim is granted all of its slots at once, when no older claim wants one of them. A change
//! claims from one shard after the other, ascending, so no two changes wait for each other.
//!
//! A FLUSH that meets a claim claims all slots of its partition: what comes later waits behind it.
//! It claims of one shard alone, and gives that back in the turn in which it is granted.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// A change: the shard that leads it, and its name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChangeName {
    pub(crate) leader: u16,
    pub(crate) change: u64,
}

/// Whose a claim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimant {
    Change(ChangeName),
    /// A FLUSH of the partition that begins with this slot.
    Flush(u16),
}

#[derive(Debug)]
struct Claim {
    claimant: Claimant,
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
        self.push(Claimant::Change(name), number, slots);
    }

    /// The claim that a FLUSH of these slots, which are a partition, has to wait for, if it has to:
    /// `number`, unless a FLUSH of before waits for the same. `None` while it is granted, too.
    pub(crate) fn before_flush(&mut self, slots: Range<u16>, number: u64) -> Option<u64> {
        let claimant = Claimant::Flush(slots.start);
        if let Some(claim) = self.all.iter().find(|claim| claim.claimant == claimant) {
            return (!claim.is_granted).then_some(claim.number);
        }
        let is_held = slots.clone().any(|slot| self.holders.contains_key(&slot));
        is_held.then(|| {
            self.push(claimant, number, slots.collect());
            number
        })
    }

    /// The numbers of the claims of FLUSH that are granted.
    pub(crate) fn granted_flushes(&self) -> Vec<u64> {
        let granted = self
            .all
            .iter()
            .filter(|claim| claim.is_granted && matches!(claim.claimant, Claimant::Flush(_)));
        granted.map(|claim| claim.number).collect()
    }

    /// Whether a FLUSH waits.
    pub(crate) fn has_flush(&self) -> bool {
        let mut claims = self.all.iter();
        claims.any(|claim| matches!(claim.claimant, Claimant::Flush(_)))
    }

    fn push(&mut self, claimant: Claimant, number: u64, slots: Vec<u16>) {
        self.all.push(Claim {
            claimant,
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
            .any(|claim| claim.claimant == Claimant::Change(name) && claim.is_granted)
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
        let claimant = Claimant::Change(name);
        let mut claims = self.all.iter();
        let at = claims.position(|claim| claim.claimant == claimant)?;
        Some(self.remove(at))
    }

    /// The FLUSH with this claim has run.
    pub(crate) fn release_flush(&mut self, number: u64) {
        let at = self.all.iter().position(|claim| claim.number == number);
        self.remove(at.expect("it is granted"));
    }

    fn remove(&mut self, at: usize) -> u64 {
        let claim = self.all.remove(at);
        if claim.is_granted {
            claim.slots.iter().for_each(|slot| {
                self.holders.remove(slot);
            });
        }
        claim.number
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

    #[test]
    fn a_flush_waits_for_what_came_before_it_and_what_comes_later_waits_for_it() {
        let mut claims = Claims::default();
        assert_eq!(claims.before_flush(0..64, 10), None, "nothing is held");
        claims.add(name(1), 11, vec![1, 70]);
        claims.grant();
        assert_eq!(claims.before_flush(0..64, 12), Some(12));
        assert_eq!(claims.before_flush(0..64, 13), Some(12), "both are one");
        assert_eq!(claims.before_flush(128..192, 13), None);
        claims.add(name(2), 14, vec![2]);
        claims.add(name(3), 15, vec![71]);
        claims.grant();
        assert_eq!(granted(&claims), [1, 3]);
        assert!(claims.granted_flushes().is_empty());
        claims.release(name(1));
        claims.grant();
        assert_eq!(claims.granted_flushes(), [12]);
        assert_eq!(claims.before_flush(0..64, 16), None, "it runs");
        assert_eq!(claims.holder(2), Some(12));
        claims.release_flush(12);
        assert!(!claims.has_flush());
        claims.grant();
        assert_eq!(granted(&claims), [2, 3]);
    }
}
