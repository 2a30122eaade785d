//! Replies that wait for the disk here and for members of the sync set: at level `replica` for
//! every one, and by `min_sync` of the plan at level `disk` for so many.

use std::collections::VecDeque;

use penstock_storage::place::Lsn;

use super::PartitionId;

/// Which members of the sync set a reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needed {
    /// Every one, and at least one.
    All,
    /// So many of them; all of them if there are fewer.
    Some(usize),
}

/// A reply that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting<T> {
    /// Whose record it is.
    pub partition: PartitionId,
    /// The record.
    pub lsn: Lsn,
    /// Who must have it.
    pub needed: Needed,
    /// When to answer that the outcome is unknown, in microseconds.
    pub deadline_us: u64,
    /// Whom to answer.
    pub whom: T,
}

/// Replies that wait for members, at most so many.
#[derive(Debug)]
pub struct ReplicaGates<T> {
    waiting: VecDeque<Waiting<T>>,
    most: usize,
    /// No deadline is earlier.
    first_deadline_us: u64,
}

/// What a reply is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The level was reached.
    Reached,
    /// It was not in time, or never will be: it may have been executed.
    Unknown {
        /// How many members have the record.
        members: u8,
    },
}

impl<T> ReplicaGates<T> {
    /// Nobody waits; at most `most` will.
    #[must_use]
    pub fn new(most: usize) -> Self {
        ReplicaGates {
            waiting: VecDeque::new(),
            most,
            first_deadline_us: u64::MAX,
        }
    }

    /// When the first of them is answered at the latest.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        (!self.waiting.is_empty()).then_some(self.first_deadline_us)
    }

    /// Whether another one may wait; to be asked before anything is executed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting.len() < self.most
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether somebody waits for the members of this partition.
    #[must_use]
    pub fn is_waited_for(&self, partition: PartitionId) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|waiting| waiting.partition == partition)
    }

    /// One more waits.
    ///
    /// # Panics
    /// If there is no room.
    pub fn wait(&mut self, waiting: Waiting<T>) {
        assert!(self.has_room(), "asked before it was executed");
        self.first_deadline_us = self.first_deadline_us.min(waiting.deadline_us);
        self.waiting.push_back(waiting);
    }

    /// The one that waits longest.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        self.waiting.front().map(|waiting| &waiting.whom)
    }

    /// Answers who need not wait any longer, in order: the log is durable up to `durable`;
    /// `received` tells for a partition up to which record each member of its sync set has all, or
    /// `None` for one that does not count now. An empty sync set lets nobody reach level `replica`.
    pub fn release<I>(
        &mut self,
        now_us: u64,
        durable: Lsn,
        received: impl Fn(PartitionId) -> I,
        mut answer: impl FnMut(T, Outcome),
    ) where
        I: Iterator<Item = Option<Lsn>>,
    {
        let mut first_us = u64::MAX;
        for _ in 0..self.waiting.len() {
            let waiting = self.waiting.pop_front().expect("counted");
            let has = |member: Option<Lsn>| member.is_some_and(|lsn| lsn >= waiting.lsn);
            let mut members = received(waiting.partition).peekable();
            let is_received = match waiting.needed {
                Needed::All => members.peek().is_some() && members.all(has),
                Needed::Some(count) => {
                    let (mut all, mut having) = (0, 0);
                    for member in members {
                        all += 1;
                        having += usize::from(has(member));
                    }
                    having >= count.min(all)
                }
            };
            if waiting.lsn <= durable && is_received {
                answer(waiting.whom, Outcome::Reached);
            } else if now_us >= waiting.deadline_us {
                let members = received(waiting.partition).filter(|member| has(*member));
                let members = u8::try_from(members.count()).unwrap_or(u8::MAX);
                answer(waiting.whom, Outcome::Unknown { members });
            } else {
                first_us = first_us.min(waiting.deadline_us);
                self.waiting.push_back(waiting);
            }
        }
        self.first_deadline_us = first_us;
    }

    /// Answers all who wait for this partition: its node is not primary any more.
    pub fn depose(&mut self, partition: PartitionId, mut answer: impl FnMut(T)) {
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.partition == partition {
                true => answer(waiting.whom),
                false => self.waiting.push_back(waiting),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_waits_for_the_disk_and_for_every_member() {
        let mut gates = ReplicaGates::new(4);
        for (whom, partition, lsn) in [('a', 1, 10), ('b', 2, 11), ('c', 1, 12)] {
            gates.wait(Waiting {
                partition,
                lsn: Lsn(lsn),
                needed: Needed::All,
                deadline_us: 1000 + lsn,
                whom,
            });
        }
        let release = |gates: &mut ReplicaGates<char>, now_us, durable, members: &[Option<u64>]| {
            let mut answers = Vec::new();
            gates.release(
                now_us,
                Lsn(durable),
                |partition| {
                    let all = members.iter().map(|member| member.map(Lsn));
                    all.take(if partition == 1 { 9 } else { 1 })
                },
                |whom, outcome| answers.push((whom, outcome)),
            );
            answers
        };
        use Outcome::{Reached, Unknown};
        assert_eq!(
            release(&mut gates, 0, 20, &[Some(20), None]),
            [('b', Reached)]
        );
        assert_eq!(release(&mut gates, 0, 9, &[Some(20), Some(20)]), []);
        assert_eq!(release(&mut gates, 0, 20, &[Some(20), Some(9)]), []);
        assert_eq!(
            release(&mut gates, 0, 20, &[Some(10), Some(11)]),
            [('a', Reached)]
        );
        assert_eq!(release(&mut gates, 1011, 20, &[Some(11), Some(20)]), []);
        assert_eq!(
            release(&mut gates, 1012, 20, &[Some(11), Some(20)]),
            [('c', Unknown { members: 1 })]
        );
        assert!(gates.is_empty());
    }

    #[test]
    fn who_needs_some_members_waits_for_so_many_and_for_all_where_there_are_fewer() {
        let answered = |count: usize, durable: u64, members: &[Option<u64>]| {
            let mut gates = ReplicaGates::new(1);
            gates.wait(Waiting {
                partition: 1,
                lsn: Lsn(10),
                needed: Needed::Some(count),
                deadline_us: 1_000,
                whom: (),
            });
            let mut is_reached = false;
            let received = |_| members.iter().map(|member| member.map(Lsn));
            let answer = |(), outcome| is_reached = outcome == Outcome::Reached;
            gates.release(999, Lsn(durable), received, answer);
            is_reached
        };
        assert!(answered(1, 10, &[None, Some(10)]));
        assert!(answered(1, 10, &[Some(9), Some(11)]));
        assert!(!answered(1, 9, &[Some(10), Some(10)]), "not on the disk");
        assert!(!answered(1, 10, &[Some(9), None]));
        assert!(!answered(2, 10, &[Some(10), Some(9)]));
        assert!(answered(2, 10, &[Some(10)]), "there is one alone");
        assert!(!answered(2, 10, &[None]));
        assert!(answered(1, 10, &[]), "a successor goes on alone");
    }

    #[test]
    fn a_level_is_not_reached_when_nobody_is_left_in_the_sync_set() {
        let mut gates = ReplicaGates::new(1);
        gates.wait(Waiting {
            partition: 1,
            lsn: Lsn(1),
            needed: Needed::All,
            deadline_us: 1_000,
            whom: 'a',
        });
        let nobody = Outcome::Unknown { members: 0 };
        for (now_us, expected) in [(999, None), (1_000, Some(nobody))] {
            let mut answer = None;
            gates.release(
                now_us,
                Lsn(9),
                |_| [].into_iter(),
                |_, outcome| answer = Some(outcome),
            );
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn nobody_waits_beyond_the_bound_or_for_a_primary_that_is_none_any_more() {
        let mut gates = ReplicaGates::new(2);
        for (whom, partition) in [('a', 1), ('b', 2)] {
            assert!(gates.has_room());
            gates.wait(Waiting {
                partition,
                lsn: Lsn(1),
                needed: Needed::All,
                deadline_us: 1,
                whom,
            });
        }
        assert!(!gates.has_room());
        let mut answers = Vec::new();
        gates.depose(2, |whom| answers.push(whom));
        assert_eq!((answers.as_slice(), gates.len()), (&['b'][..], 1));
    }
}
