//! A run of denials: APPLYs, or RUNs of one program, that the same instruction denies as the one
//! before them, because they differ only in what no instruction up to that one has used. After a
//! drop is sold out, nearly all purchases are such items.
//!
//! The first item of a run was read, judged and run. An item behind it is compared with it, and
//! asked for what its own names and its token can change: the slot, the settings of a keyspace, a
//! key that has a value, must be read or has effects that are due, a token that is known. If one of
//! these says otherwise than for the first item, the item runs by itself.

use std::ops::Range;

use penstock_net::apply::{DeniedApply, may_repeat_denied};
use penstock_net::item::ItemForm;
use penstock_net::refusal::ShownName;
use penstock_net::reply::write_again;
use penstock_net::request::Verb;
use penstock_net::rights::{Need, Rights};
use penstock_net::slot::{leading_tag, slot_of};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug};
use penstock_storage::store::{Found, Store};

use super::repeat_items::{Answered, RepeatedItems};
use super::{Key, KeyHash, Ran, token};
use crate::programs::ProgramRunner;

/// Denials that repeat one another.
pub(crate) struct RepeatedDenials<'s, 'b, P: Blocks> {
    store: &'s mut Store<P>,
    judge: Judge<'s>,
    /// The item that was denied.
    before: &'b [u8],
    denied: DeniedApply,
    /// The APPLY that the item is or becomes.
    first: &'s [u8],
    slot: u16,
    /// Keys that begin with these bytes are of the slot.
    tag: Option<&'s [u8]>,
    answer: Range<usize>,
    status: Status,
    /// The last change of the keys that all items have, and of all keys of the first item, for
    /// which its answer waits.
    seen: Lsn,
    gate: Lsn,
    /// Where a RUN becomes an APPLY.
    expanded: &'s mut Vec<u8>,
}

/// What items of a run are read and judged by.
pub(crate) struct Judge<'s> {
    pub(crate) hash: &'s KeyHash,
    pub(crate) programs: &'s ProgramRunner,
    /// `None`: the items may do everything, or were judged where they came in.
    pub(crate) rights: Option<&'s Rights>,
    /// All items are RUNs of this program. Told only where there are rights.
    pub(crate) program: Option<ShownName>,
}

/// The denied item as an APPLY, and room for another one.
pub(crate) struct Applies<'s> {
    pub(crate) first: &'s [u8],
    pub(crate) next: &'s mut Vec<u8>,
}

impl<'s, 'b, P: Blocks> RepeatedDenials<'s, 'b, P> {
    /// Items behind this one, which was just denied by the instruction `failed`. `None` if each of
    /// them must run by itself.
    pub(crate) fn open(
        store: &'s mut Store<P>,
        judge: Judge<'s>,
        applies: Applies<'s>,
        before: &Answered<'b>,
        value_bytes_max: u32,
    ) -> Option<Self> {
        let first = applies.first;
        let denied = DeniedApply::of(first, before.instruction.into(), value_bytes_max)?;
        let key = denied.used_keys(first).next()?;
        let (slot, tag) = (slot_of(key), leading_tag(key));
        let newest = |newest: Lsn, name| {
            let key = in_memory(store, slot, judge.hash.of(name), name)?;
            Some(newest.max(key.lsn))
        };
        let seen = denied.used_keys(first).try_fold(Lsn(0), newest)?;
        let gate = denied.free_keys(first).try_fold(seen, newest)?;
        Some(RepeatedDenials {
            store,
            judge,
            before: before.item,
            denied,
            first,
            slot,
            tag,
            answer: before.answer.clone(),
            status: before.status,
            seen,
            gate,
            expanded: applies.next,
        })
    }

    /// Whether an item that repeats the first one gets the same answer at the same moment: neither
    /// one of its names nor its token says otherwise.
    #[inline]
    fn is_answered_alike(&mut self, item: &[u8]) -> bool {
        let token = self.denied.token_of(item);
        self.denied.is_repeated_by(self.first, item)
            && self.names_are_alike(item)
            && token.is_none_or(|it| token::is_new(self.store, self.judge.hash, self.slot, it))
    }

    /// The same of a RUN of the same program, by the APPLY that it becomes.
    fn is_run_answered_alike(&mut self, item: &[u8]) -> bool {
        if !may_repeat_denied(self.before, item) {
            return false;
        }
        let mut expanded = std::mem::take(self.expanded);
        let is_read = self.judge.programs.expand(item, &mut expanded).is_ok();
        let is_alike = is_read && self.is_answered_alike(&expanded);
        *self.expanded = expanded;
        is_alike
    }

    #[inline]
    fn names_are_alike(&self, item: &[u8]) -> bool {
        let firsts = self.denied.free_keys(self.first);
        let mut seen = self.seen;
        for (first, name) in firsts.zip(self.denied.free_keys(item)) {
            let is_of_slot =
                self.tag.is_some_and(|tag| name.starts_with(tag)) || slot_of(name) == self.slot;
            if !is_of_slot || !self.is_ruled_alike(name, first) || !self.judge.allows(name) {
                return false;
            }
            // An item uses the keys that have a value, also if it is denied.
            match in_memory(self.store, self.slot, self.judge.hash.of(name), name) {
                Some(key) if key.value_cell().is_none() => seen = seen.max(key.lsn),
                _ => return false,
            }
        }
        seen == self.gate
    }

    /// Whether the same keyspace holds for two keys, so that level and limits are the same.
    #[inline]
    fn is_ruled_alike(&self, name: &[u8], first: &[u8]) -> bool {
        let keyspaces = self.store.keyspaces();
        if !keyspaces.may_rule(name) && !keyspaces.may_rule(first) {
            return true;
        }
        let prefix_of = |key| keyspaces.of(self.slot, key).map(|(prefix, _)| prefix);
        prefix_of(name) == prefix_of(first)
    }
}

impl Judge<'_> {
    /// Whether the user may both read and change a key, whatever the item does with the key, or run
    /// the program on it.
    fn allows(&self, name: &[u8]) -> bool {
        self.rights.is_none_or(|rights| match &self.program {
            None => rights.allows(Need::READ_WRITE, name),
            Some(program) => rights
                .judge_run(Some(program.as_str()), std::iter::once(name))
                .is_ok(),
        })
    }
}

/// A key that needs no read and has no effects that are due.
#[inline]
fn in_memory<'k, P: Blocks>(
    store: &Store<P>,
    slot: u16,
    hash: u32,
    name: &'k [u8],
) -> Option<Key<'k>> {
    match store.keys().find(slot, hash, name) {
        Found::Cold(_) => None,
        found => {
            let key = Key::new(store, hash, name, found);
            key.unfired_cell(store).is_none().then_some(key)
        }
    }
}

impl<'b, P: Blocks> RepeatedItems<'b> for RepeatedDenials<'_, 'b, P> {
    const VERB: Verb = Verb::Apply;

    #[inline]
    fn next(&mut self, number: u16, item: &'b [u8], out: &mut Vec<u8>) -> Option<Ran> {
        // An APPLY and a RUN of the same bytes are judged by different rights.
        let is_alike = match ItemForm::of(self.before) {
            ItemForm::Run => self.is_run_answered_alike(item),
            _ => ItemForm::of(item) == ItemForm::Apply && self.is_answered_alike(item),
        };
        if !is_alike {
            return None;
        }
        write_again(out, self.answer.clone(), number);
        Some(Ran::Answered {
            gate: planted::or(Bug::UngatedFailure, Lsn(0), self.gate),
            status: self.status,
        })
    }
}
