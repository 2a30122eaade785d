//! The hands that choose which cell leaves.

use crate::memory::cache::cell::EXPIRING;
use crate::memory::cache::cell::FREE;
use crate::memory::cache::cell::GENERATION_AT;
use crate::memory::cache::cell::REFERENCED;
use crate::memory::cache::cell::YOUNG;
use crate::memory::cache::cell::YOUNG_AT;
use crate::memory::cache::cell::lengths;
use crate::memory::cache::cell::set_lengths;
use crate::memory::cache::cells::{Cache, Hand};
use crate::memory::cache::page::large_id;
use crate::memory::cache::page::small_id;
use crate::memory::generation::DURABLE;
use crate::memory::index::entry::CellId;
use crate::types::place::Lsn;

/// Young cells are one in so many, or more. Fewer keep more of what was used for long, and give way
/// to other keys later.
const YOUNG_SHARE: usize = 2;

impl Cache {
    /// Steps of a hand in one round.
    #[must_use]
    pub fn round(&self) -> usize {
        self.fresh_cells + self.pages.len() + self.large.len() + 1
    }

    /// Moves a hand to a cell that may leave: live, durable up to `durable`, not used since it came
    /// or a hand last passed; or one that has expired by `now_ms`, however young and used it is.
    /// Every cell that is passed is one of `steps`; `None` when they are used up.
    pub fn victim(&mut self, durable: Lsn, now_ms: u64, steps: &mut usize) -> Option<CellId> {
        while *steps > 0 && self.len > 0 {
            *steps -= 1;
            self.vain_steps += 1;
            let of_young = self.young * YOUNG_SHARE >= self.len;
            let Some(id) = self.advance(usize::from(of_young)) else {
                continue;
            };
            let is_young = self.head_mut(id)[YOUNG_AT] & YOUNG != 0;
            let is_expired = self.has_expired(id, now_ms);
            if (is_young != of_young && !is_expired) || !self.may_leave(id, durable) {
                continue;
            }
            if is_expired {
                return Some(id);
            }
            let head = self.head_mut(id);
            let flags = lengths(head);
            head[GENERATION_AT] = DURABLE;
            if flags & REFERENCED != 0 {
                set_lengths(head, flags & !REFERENCED);
                head[YOUNG_AT] &= !YOUNG;
                self.young -= usize::from(is_young);
                continue;
            }
            return Some(id);
        }
        None
    }

    /// Whether nobody finds the key of a cell any more, because its time has passed. An armed key
    /// is about to be looked at.
    fn has_expired(&mut self, id: CellId, now_ms: u64) -> bool {
        lengths(self.head_mut(id)) & FREE == EXPIRING
            && self.cell(id).expiry_ms().is_some_and(|ms| ms <= now_ms)
            && self.effects(id).is_none()
    }

    /// The next cell of the round of a hand, or `None` between two pages.
    fn advance(&mut self, hand: usize) -> Option<CellId> {
        let hand = &mut self.hands[hand];
        if let Some(page) = self.pages.get(hand.at) {
            if hand.slot < page.fresh {
                let slot = hand.slot;
                hand.slot += 1;
                return Some(small_id(hand.at, slot));
            }
            *hand = Hand {
                at: hand.at + 1,
                slot: 0,
            };
            return None;
        }
        let number = hand.at - self.pages.len();
        if number < self.large.len() {
            hand.at += 1;
            return Some(large_id(number));
        }
        *hand = Hand::default();
        None
    }
}
