//! An APPLY that one of its instructions has denied, and the items that the same instruction denies
//! for the same reason: those that differ only in what no instruction up to that one has used.
//!
//! ```text
//! head, instructions | token | key 0, used keys | other names | data
//! same                 free    same               free          free, if no PUT stood before
//! ```

use crate::apply::instruction::ApplyInstruction;
use crate::apply::request::{APPLY, ApplyRequest, HEAD_BYTES};
use crate::batch::{padded, read_u16};
use crate::instruction::INSTRUCTION_BYTES;
use crate::limits::FEW_KEYS_MAX;
use crate::program::{RUN, RUN_HEAD_BYTES};
use crate::request::{Token, is_reserved};

/// Parts of an item that may differ, at most: a token, the names of all keys but the first, and the
/// data.
const FREE_MAX: usize = FEW_KEYS_MAX + 1;

/// An APPLY that was denied.
///
/// It knows where the parts of the item stand, and not the item: each method takes the item.
#[derive(Clone, Debug)]
pub struct DeniedApply {
    bytes: usize,
    /// Where the names stand that may differ; what is behind `name_count` means nothing.
    names: [Part; FEW_KEYS_MAX],
    name_count: usize,
    /// Where the names stand that may not differ, the first key among them.
    used: [Part; FEW_KEYS_MAX],
    used_count: usize,
    /// A name that may differ is as long as another one, so both may become the same.
    may_collide: bool,
    token: Option<Part>,
    /// All that may differ, ascending; what is behind `free_count` means nothing.
    free: [Part; FREE_MAX],
    free_count: usize,
}

/// Bytes of an item.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    start: usize,
    end: usize,
}

impl Part {
    fn new(start: usize, len: usize) -> Self {
        Part {
            start,
            end: start + len,
        }
    }

    fn len(self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn of(self, item: &[u8]) -> &[u8] {
        &item[self.start..self.end]
    }
}

impl DeniedApply {
    /// The item, whose instruction `failed` was the first that did not hold. `None` if the item is
    /// bad, has no such instruction, a token that is a text, or more keys than [`FEW_KEYS_MAX`].
    #[must_use]
    pub fn of(item: &[u8], failed: usize, value_bytes_max: u32) -> Option<Self> {
        let request = ApplyRequest::read(item, value_bytes_max).ok()?;
        let has_text = request.token().is_some_and(|token| token.is_text());
        if request.key_count() > FEW_KEYS_MAX || has_text {
            return None;
        }
        let ran = request.instruction_bytes().get(..=failed)?;
        let (mut used, mut uses_data) = (1, false);
        for instruction in ran.iter().map(ApplyInstruction::checked) {
            let operand = instruction.operand_key().unwrap_or(instruction.key);
            used |= 1 << instruction.key | 1 << operand;
            uses_data |= instruction.data().is_some();
        }
        let keys_at = usize::from(read_u16(item, 0));
        let mut denied = DeniedApply {
            bytes: item.len(),
            names: Default::default(),
            name_count: 0,
            used: Default::default(),
            used_count: 0,
            may_collide: false,
            token: request
                .token()
                .map(|_| Part::new(keys_at - Token::BYTES, Token::BYTES)),
            free: Default::default(),
            free_count: 0,
        };
        if let Some(token) = denied.token {
            denied.may_differ(token);
        }
        let mut at = keys_at;
        for (number, key) in request.keys().enumerate() {
            let name = Part::new(at, key.len());
            if used & 1 << number == 0 {
                denied.names[denied.name_count] = name;
                denied.name_count += 1;
                denied.may_differ(name);
            } else {
                denied.used[denied.used_count] = name;
                denied.used_count += 1;
            }
            at += padded(key.len());
        }
        if !uses_data && !request.data().is_empty() {
            denied.may_differ(Part::new(at, request.data().len()));
        }
        denied.may_collide = denied.names().iter().enumerate().any(|(number, name)| {
            let others = denied.names()[..number].iter().chain(denied.used());
            others.into_iter().any(|other| other.len() == name.len())
        });
        Some(denied)
    }

    fn may_differ(&mut self, part: Part) {
        self.free[self.free_count] = part;
        self.free_count += 1;
    }

    #[inline]
    fn names(&self) -> &[Part] {
        &self.names[..self.name_count]
    }

    fn used(&self) -> &[Part] {
        &self.used[..self.used_count]
    }

    /// Whether an item is well formed and differs from the denied one in nothing that decides
    /// whether the same instruction denies it. Whether its names are of the same slot is not asked.
    ///
    /// # Panics
    /// If `denied` is shorter than the item that was denied.
    #[inline]
    #[must_use]
    pub fn is_repeated_by(&self, denied: &[u8], item: &[u8]) -> bool {
        if item.len() != self.bytes {
            return false;
        }
        let mut from = 0;
        for free in &self.free[..self.free_count] {
            if denied[from..free.start] != item[from..free.start] {
                return false;
            }
            from = free.end;
        }
        let is_same = denied[from..] == item[from..];
        let is_good = |name: &Part| !is_reserved(name.of(item));
        is_same
            && self.names().iter().all(is_good)
            && self
                .token
                .is_none_or(|token| Token::read(token_bytes(token.of(item))).is_ok())
            && !(self.may_collide && self.has_a_name_twice(item))
    }

    #[cold]
    fn has_a_name_twice(&self, item: &[u8]) -> bool {
        self.names().iter().enumerate().any(|(number, name)| {
            let mut others = self.names()[..number].iter().chain(self.used());
            others.any(|other| other.of(item) == name.of(item))
        })
    }

    /// The keys that all items have; the first one decides the slot.
    pub fn used_keys<'a>(&self, item: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.used().iter().map(|name| name.of(item))
    }

    /// The keys of an item that another one may name otherwise.
    #[inline]
    pub fn free_keys<'a>(&self, item: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.names().iter().map(|name| name.of(item))
    }

    /// The token of an item that [`DeniedApply::is_repeated_by`] takes. `None`: none of them has
    /// one.
    #[inline]
    #[must_use]
    pub fn token_of(&self, item: &[u8]) -> Option<Token> {
        self.token.map(|token| Token::checked(token.of(item)))
    }
}

fn token_bytes(part: &[u8]) -> [u8; Token::BYTES] {
    *part.first_chunk().expect("it was read there")
}

/// Whether an item may be an APPLY or a RUN that is denied as the one before it was, as far as its
/// head, instructions and first key show without being read.
#[inline]
#[must_use]
pub fn may_repeat_denied(before: &[u8], item: &[u8]) -> bool {
    let Some(head) = before.first_chunk::<HEAD_BYTES>() else {
        return false;
    };
    let (end, keys_at) = match head[2] {
        APPLY => {
            let end = HEAD_BYTES + usize::from(head[5]) * INSTRUCTION_BYTES;
            (end, usize::from(read_u16(head, 0)))
        }
        RUN => (
            RUN_HEAD_BYTES,
            RUN_HEAD_BYTES + usize::from(read_u16(head, 6)),
        ),
        _ => return false,
    };
    let key = keys_at..keys_at + usize::from(read_u16(head, 8));
    before.len() == item.len()
        && before.get(..end) == item.get(..end)
        && before.get(key.clone()) == item.get(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Apply, ApplyKey};
    use crate::limits::RESERVED_KEY;

    const VALUE_BYTES_MAX: u32 = 64;

    /// A purchase that its first instruction denies.
    fn purchase(hold: &[u8], buyer: u8, change: impl FnOnce(&mut Apply, ApplyKey)) -> Vec<u8> {
        let mut apply = Apply::new();
        let stock = apply.key(b"{drop}stock");
        let hold = apply.key(hold);
        apply
            .then(stock.u64(0).at_least(1u64).or_else(3))
            .then(stock.u64(0).decrease(1u64))
            .put(hold, &[buyer; 16])
            .then(hold.expire_in(900_000));
        change(&mut apply, hold);
        let mut item = Vec::new();
        apply.write(&mut item);
        item
    }

    fn denied(item: &[u8], failed: usize) -> DeniedApply {
        DeniedApply::of(item, failed, VALUE_BYTES_MAX).expect("it has that instruction")
    }

    #[test]
    fn an_item_of_another_hold_and_buyer_repeats_the_one_before() {
        let item = purchase(b"{drop}hold 1", 1, |_, _| {});
        let other = purchase(b"{drop}hold 2", 2, |_, _| {});
        let first = denied(&item, 0);
        assert!(may_repeat_denied(&item, &other) && first.is_repeated_by(&item, &other));
        let names: Vec<_> = first.free_keys(&other).collect();
        assert_eq!(names, [b"{drop}hold 2"]);
        assert_eq!(first.used_keys(&item).collect::<Vec<_>>(), [b"{drop}stock"]);
        assert_eq!(first.token_of(&other), None);
    }

    #[test]
    fn what_an_instruction_up_to_the_failed_one_uses_may_not_differ() {
        let item = purchase(b"{drop}hold 1", 1, |_, _| {});
        let of_hold = purchase(b"{drop}hold 2", 1, |_, _| {});
        let of_data = purchase(b"{drop}hold 1", 2, |_, _| {});
        // The second instruction is about the stock, the third one puts the hold.
        assert!(denied(&item, 1).is_repeated_by(&item, &of_hold));
        assert!(denied(&item, 1).is_repeated_by(&item, &of_data));
        let all_used = denied(&item, 2);
        assert!(all_used.is_repeated_by(&item, &item));
        assert!(!all_used.is_repeated_by(&item, &of_hold));
        assert!(!all_used.is_repeated_by(&item, &of_data));
        assert!(DeniedApply::of(&item, 4, VALUE_BYTES_MAX).is_none());
        let mut beside = Apply::new();
        let stock = beside.key(b"{drop}stock");
        let limit = beside.key(b"{drop}limit");
        beside.then(stock.u64(0).at_most(limit.u64(0)));
        let mut item = Vec::new();
        beside.write(&mut item);
        let mut other = item.clone();
        let limit_at = item.len() - 8;
        other[limit_at] ^= 1;
        assert!(!denied(&item, 0).is_repeated_by(&item, &other));
    }

    #[test]
    fn bad_names_other_lengths_and_other_instructions_do_not_repeat() {
        let item = purchase(b"{drop}hold 1", 1, |_, _| {});
        let first = denied(&item, 0);
        let longer = purchase(b"{drop}hold 12", 1, |_, _| {});
        assert!(!first.is_repeated_by(&item, &longer));
        let more = purchase(b"{drop}hold 1", 1, |apply, hold| {
            apply.then(hold.delete());
        });
        assert!(!may_repeat_denied(&item, &more) && !first.is_repeated_by(&item, &more));
        let same_as_stock = purchase(b"{drop}stock", 1, |_, _| {});
        let other_stock = purchase(b"{drop}hold1", 1, |_, _| {});
        assert!(!denied(&other_stock, 0).is_repeated_by(&other_stock, &same_as_stock));
        let of_server = purchase(RESERVED_KEY, 1, |_, _| {});
        let of_nobody = purchase(&vec![b'x'; RESERVED_KEY.len()], 1, |_, _| {});
        assert!(!denied(&of_nobody, 0).is_repeated_by(&of_nobody, &of_server));
    }

    /// Whatever repeats is read as well formed, and has the same instructions and used keys.
    #[test]
    fn an_item_with_a_flipped_bit_repeats_only_if_a_free_part_differs() {
        let item = purchase(b"{drop}hold 1", 1, |_, _| {});
        let first = denied(&item, 0);
        let mut repeated = 0;
        for bit in 0..item.len() * 8 {
            let mut flipped = item.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if first.is_repeated_by(&item, &flipped) {
                let read = ApplyRequest::read(&flipped, VALUE_BYTES_MAX).expect("well formed");
                let one = ApplyRequest::read(&item, VALUE_BYTES_MAX).expect("well formed");
                assert_eq!(read.instruction_bytes(), one.instruction_bytes());
                assert_eq!(read.key(), one.key());
                repeated += 1;
            }
        }
        assert_eq!(repeated, 8 * (b"{drop}hold 1".len() + 16));
    }
}
