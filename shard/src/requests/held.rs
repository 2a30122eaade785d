//! Items of another shard that wait here, by their connections. A connection keeps the order of its
//! items, and connections take turns: one with thousands of items delays the others by one each.

use std::collections::{HashMap, VecDeque};

use crate::mail::SessionId;

use super::parking::Parked;
use super::postponed::take_out;

/// The items that one other shard has sent and that wait.
///
/// What must hold: each connection of `turns` has items, and no other one has.
#[derive(Debug, Default)]
pub(super) struct Held {
    of: HashMap<SessionId, VecDeque<Parked>>,
    /// Whose item is next.
    turns: VecDeque<SessionId>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whether an item of this connection waits.
    pub(super) fn has_of(&self, session: &SessionId) -> bool {
        self.of.contains_key(session)
    }

    /// Adds an item that is younger than all of its connection.
    pub(super) fn push(&mut self, parked: Parked) {
        let session = parked.address.session;
        let items = self.of.entry(session).or_default();
        if items.is_empty() {
            self.turns.push_back(session);
        }
        items.push_back(parked);
    }

    /// Adds the item again that was taken last: it is the next one.
    pub(super) fn push_first(&mut self, parked: Parked) {
        let session = parked.address.session;
        let items = self.of.entry(session).or_default();
        if !items.is_empty() {
            let last = self.turns.pop_back();
            assert_eq!(last, Some(session), "its item was taken last");
        }
        items.push_front(parked);
        self.turns.push_front(session);
    }

    /// The oldest item of the connection whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Parked> {
        let session = self.turns.pop_front()?;
        let items = self.of.get_mut(&session).expect("it has items");
        let parked = items.pop_front();
        match items.is_empty() {
            true => drop(self.of.remove(&session)),
            false => self.turns.push_back(session),
        }
        parked
    }

    /// Takes out the items that `is_it` says, in the order of each connection.
    pub(super) fn take_out(&mut self, is_it: impl Fn(&Parked) -> bool, into: &mut Vec<Parked>) {
        let of = &mut self.of;
        self.turns.retain(|session| {
            let items = of.get_mut(session).expect("it has items");
            into.extend(take_out(items, &is_it));
            let stays = !items.is_empty();
            if !stays {
                of.remove(session);
            }
            stays
        });
    }
}
