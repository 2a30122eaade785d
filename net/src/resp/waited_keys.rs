//! The keys of one shard that connections wait for, and who may try each of them.
//!
//! ```text
//!            first to come, or the key has got a value of its type
//!     waits ------------------------------------------------------> may try the key
//!       ^                                                             |           |
//!       +---------------------- has found nothing --------------------+    has popped, or is gone
//!                                                                           \--> the next one
//! ```
//!
//! What must hold: each key is tried by one connection at most, the first of those that it may
//! serve. A key that is waited for and that nobody may try has nothing for those who wait. So
//! nobody overtakes, and no element waits beside a connection.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a key has, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHas {
    /// No value.
    Nothing,
    /// A value of the type of this number; 0 is a plain one.
    Value(u8),
    /// One of a type that nobody has asked for who was told.
    OtherValue,
    /// Nobody has asked yet, or what has changed was not told one by one.
    Anything,
}

/// Whether a connection that waits for a key may try it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayTry {
    /// It may, and nobody else.
    Now,
    /// Somebody else tries it, or is to.
    Later,
    /// The key has nothing for it, for all that is known.
    Nothing,
}

/// A connection that waits for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyWaiter<P> {
    /// Who it is, and where.
    pub place: P,
    /// The number of the type that it pops from.
    pub of_type: u8,
}

/// Who may try a key.
#[derive(Clone, Copy, Debug)]
struct Trier {
    ticket: u64,
    /// The key has changed since, by somebody else.
    is_changed: bool,
}

/// Those who wait for one key, by their tickets: who came first has the lowest.
#[derive(Debug)]
struct Queue<P> {
    waiters: BTreeMap<u64, KeyWaiter<P>>,
    /// The same by their types.
    by_type: BTreeMap<u8, BTreeSet<u64>>,
    /// Those who have not tried, and for whom the key may have something.
    untried: BTreeSet<u64>,
    has: KeyHas,
    trier: Option<Trier>,
}

impl<P: Copy> Queue<P> {
    fn new() -> Self {
        Queue {
            waiters: BTreeMap::new(),
            by_type: BTreeMap::new(),
            untried: BTreeSet::new(),
            has: KeyHas::Anything,
            trier: None,
        }
    }

    /// Notes what the key has.
    fn now_has(&mut self, has: KeyHas) {
        self.has = has;
        if has == KeyHas::Nothing {
            // All of them have been told that there is nothing.
            self.untried.clear();
        }
    }

    /// The first one that the key may serve.
    fn first(&self) -> Option<u64> {
        let first_of = |of_type| self.by_type.get(&of_type).and_then(|it| it.first());
        let served = match self.has {
            KeyHas::Nothing => return None,
            KeyHas::Value(of_type) => first_of(of_type),
            KeyHas::OtherValue => None,
            KeyHas::Anything => self.waiters.keys().next(),
        };
        served
            .into_iter()
            .chain(self.untried.first())
            .min()
            .copied()
    }

    /// Lets the first one try that the key may serve, if nobody may.
    fn go_on(&mut self) -> Option<P> {
        if self.trier.is_some() {
            return None;
        }
        let ticket = self.first()?;
        self.untried.remove(&ticket);
        self.trier = Some(Trier {
            ticket,
            is_changed: false,
        });
        self.waiters.get(&ticket).map(|waiter| waiter.place)
    }

    /// Takes one out, who tries no more.
    fn remove(&mut self, ticket: u64) {
        let Some(waiter) = self.waiters.remove(&ticket) else {
            return;
        };
        if let Some(tickets) = self.by_type.get_mut(&waiter.of_type) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.by_type.remove(&waiter.of_type);
            }
        }
        self.untried.remove(&ticket);
        if self.is_trier(ticket) {
            self.trier = None;
        }
    }

    fn is_trier(&self, ticket: u64) -> bool {
        self.trier.is_some_and(|trier| trier.ticket == ticket)
    }
}

/// The keys of a shard that connections wait for.
#[derive(Debug)]
pub struct WaitedKeys<P> {
    queues: HashMap<Box<[u8]>, Queue<P>>,
}

impl<P> Default for WaitedKeys<P> {
    fn default() -> Self {
        WaitedKeys {
            queues: HashMap::new(),
        }
    }
}

impl<P: Copy> WaitedKeys<P> {
    /// How many keys are waited for.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.queues.len()
    }

    /// One more waits for a key, behind all others. Nobody else may try it by that.
    pub fn add(&mut self, key: &[u8], ticket: u64, waiter: KeyWaiter<P>) {
        let queue = match self.queues.get_mut(key) {
            Some(queue) => queue,
            None => self.queues.entry(key.into()).or_insert(Queue::new()),
        };
        queue.waiters.insert(ticket, waiter);
        let tickets = queue.by_type.entry(waiter.of_type).or_default();
        tickets.insert(ticket);
        if queue.has != KeyHas::Nothing || queue.trier.is_some() {
            queue.untried.insert(ticket);
        }
        queue.go_on();
    }

    /// Whether one who waits for a key may try it.
    #[must_use]
    pub fn may_try(&self, key: &[u8], ticket: u64) -> MayTry {
        match self.queues.get(key) {
            Some(queue) if queue.is_trier(ticket) => MayTry::Now,
            Some(queue) if queue.untried.contains(&ticket) => MayTry::Later,
            _ => MayTry::Nothing,
        }
    }

    /// A key has changed. Who has asked for the change has popped, if it is who tries it. Who may
    /// try now, if it is somebody else than before.
    pub fn changed(
        &mut self,
        key: &[u8],
        has: KeyHas,
        is_writer: impl FnOnce(&P) -> bool,
    ) -> Option<P> {
        let queue = self.queues.get_mut(key)?;
        queue.now_has(has);
        if let Some(trier) = &mut queue.trier {
            let ticket = trier.ticket;
            let waiter = queue.waiters.get(&ticket);
            if !waiter.is_some_and(|waiter| is_writer(&waiter.place)) {
                trier.is_changed = true;
                return None;
            }
            queue.remove(ticket);
        }
        self.go_on(key)
    }

    /// Who has tried a key has found this there, which he cannot pop. Who may try now.
    pub fn found(&mut self, key: &[u8], ticket: u64, has: KeyHas) -> Option<P> {
        let queue = self.queues.get_mut(key)?;
        let trier = queue.trier.take_if(|it| it.ticket == ticket)?;
        if !trier.is_changed {
            queue.now_has(has);
        }
        queue.go_on()
    }

    /// One waits for a key no more. Who may try it now, if it is somebody else than before.
    pub fn remove(&mut self, key: &[u8], ticket: u64) -> Option<P> {
        self.queues.get_mut(key)?.remove(ticket);
        self.go_on(key)
    }

    /// Any key may have changed. Who may try one now that he could not try before.
    pub fn all_changed(&mut self) -> Vec<P> {
        let queues = self.queues.values_mut();
        let next = queues.filter_map(|queue| {
            queue.has = KeyHas::Anything;
            // The first one may find a value that is for others behind him.
            queue.untried.extend(queue.waiters.keys());
            if let Some(trier) = &mut queue.trier {
                trier.is_changed = true;
            }
            queue.go_on()
        });
        next.collect()
    }

    fn go_on(&mut self, key: &[u8]) -> Option<P> {
        let queue = self.queues.get_mut(key)?;
        if queue.waiters.is_empty() {
            self.queues.remove(key);
            return None;
        }
        queue.go_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZSET: u8 = 3;
    const LIST: u8 = 4;

    fn waiter(place: u64, of_type: u8) -> KeyWaiter<u64> {
        KeyWaiter { place, of_type }
    }

    /// Connections that have found nothing in `k`, in their order.
    fn waiting(tickets: std::ops::Range<u64>) -> WaitedKeys<u64> {
        let mut keys = WaitedKeys::default();
        for ticket in tickets {
            keys.add(b"k", ticket, waiter(ticket, ZSET));
            if keys.may_try(b"k", ticket) == MayTry::Now {
                assert_eq!(keys.found(b"k", ticket, KeyHas::Nothing), None);
            }
        }
        keys
    }

    #[test]
    fn who_came_first_is_served_first_and_one_at_a_time() {
        let mut keys = waiting(1..4);
        assert_eq!(keys.may_try(b"k", 1), MayTry::Nothing);
        let value = KeyHas::Value(ZSET);
        assert_eq!(keys.changed(b"k", value, |_| false), Some(1));
        assert_eq!(keys.changed(b"k", value, |_| false), None, "one has it");
        // Who comes now is the last one, and may not try before the others.
        keys.add(b"k", 4, waiter(4, ZSET));
        assert_eq!(keys.may_try(b"k", 4), MayTry::Later);
        let mut order = Vec::new();
        let mut next = Some(1);
        while let Some(popping) = next {
            order.push(popping);
            next = keys.changed(b"k", value, |place| *place == popping);
        }
        assert_eq!((order, keys.keys()), (vec![1, 2, 3, 4], 0));
    }

    #[test]
    fn who_comes_to_a_key_that_is_known_to_be_empty_asks_nobody() {
        let mut keys = waiting(1..3);
        assert_eq!(keys.may_try(b"k", 2), MayTry::Nothing);
        // The key that the first one has emptied has nothing for those behind him.
        assert_eq!(keys.changed(b"k", KeyHas::Value(ZSET), |_| false), Some(1));
        keys.add(b"k", 3, waiter(3, ZSET));
        assert_eq!(keys.may_try(b"k", 3), MayTry::Later);
        assert_eq!(keys.changed(b"k", KeyHas::Nothing, |it| *it == 1), None);
        assert_eq!(keys.may_try(b"k", 3), MayTry::Nothing);
        // A value of another type is none of theirs, and is told to who comes behind it.
        assert_eq!(keys.changed(b"k", KeyHas::Value(0), |_| false), None);
        keys.add(b"k", 4, waiter(4, ZSET));
        assert_eq!(keys.may_try(b"k", 4), MayTry::Now);
        assert_eq!(keys.remove(b"k", 4), None);
        assert_eq!(keys.may_try(b"k", 2), MayTry::Nothing);
    }

    #[test]
    fn a_key_serves_those_who_wait_for_its_type() {
        let mut keys = waiting(1..2);
        keys.add(b"k", 2, waiter(2, LIST));
        assert_eq!(keys.changed(b"k", KeyHas::Value(LIST), |_| false), Some(2));
        assert_eq!(keys.changed(b"k", KeyHas::Nothing, |it| *it == 2), None);
        assert_eq!(keys.changed(b"k", KeyHas::Value(ZSET), |_| false), Some(1));
    }

    #[test]
    fn a_change_beside_a_try_that_finds_nothing_is_tried_again() {
        let mut keys = waiting(1..3);
        let value = KeyHas::Value(ZSET);
        assert_eq!(keys.changed(b"k", value, |_| false), Some(1));
        // Somebody who does not wait takes it, and another one is added.
        assert_eq!(keys.changed(b"k", KeyHas::Nothing, |_| false), None);
        assert_eq!(keys.changed(b"k", value, |_| false), None);
        assert_eq!(keys.found(b"k", 1, KeyHas::Nothing), Some(1));
        assert_eq!(keys.found(b"k", 1, KeyHas::Nothing), None);
        assert_eq!(keys.found(b"k", 2, KeyHas::Nothing), None, "he may not try");
    }

    #[test]
    fn where_one_is_gone_who_may_try_the_next_one_may() {
        let mut keys = waiting(1..4);
        assert_eq!(keys.changed(b"k", KeyHas::Value(ZSET), |_| false), Some(1));
        assert_eq!(keys.remove(b"k", 2), None);
        assert_eq!(keys.remove(b"k", 1), Some(3));
        assert_eq!(keys.remove(b"k", 1), None);
        assert_eq!(keys.remove(b"k", 3), None);
        assert_eq!(keys.keys(), 0);
    }

    #[test]
    fn what_is_not_told_one_by_one_is_tried_by_the_first_of_each_key() {
        let mut keys = waiting(1..3);
        keys.add(b"other", 3, waiter(3, LIST));
        assert_eq!(keys.found(b"other", 3, KeyHas::Nothing), None);
        let mut next = keys.all_changed();
        next.sort_unstable();
        assert_eq!(next, [1, 3]);
        assert_eq!(keys.found(b"k", 1, KeyHas::Nothing), None);
    }

    #[test]
    fn when_any_key_may_have_changed_those_of_each_type_try_until_it_is_known_to_be_empty() {
        let mut keys = waiting(1..2);
        keys.add(b"k", 2, waiter(2, LIST));
        keys.add(b"k", 3, waiter(3, LIST));
        assert_eq!(keys.all_changed(), [1]);
        assert_eq!(keys.found(b"k", 1, KeyHas::OtherValue), Some(2));
        assert_eq!(keys.found(b"k", 2, KeyHas::Nothing), None);
        assert_eq!(keys.may_try(b"k", 3), MayTry::Nothing);
    }
}
