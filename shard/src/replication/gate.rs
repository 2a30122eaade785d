//! Replies that wait for the disk here and for members of the sync set: at level `replica` for
//! every one, at level `all` for every one that there is, and by `min_sync` of the plan at level
//! `disk` for so many.
//!
//! They stand in one queue for each partition and each kind of need, in the order of the log. So a
//! turn looks at the first ones of the queues, and walks a queue whole only when a time in it is
//! over.

use std::collections::{BTreeMap, VecDeque};

use penstock_storage::place::Lsn;

use super::PartitionId;

/// Which members of the sync set a reply waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needed {
    /// Every one, and at least one.
    All,
    /// Every one, and at least `min_sync` of the plan. None if nobody may write next.
    Every,
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

/// The sync set of a partition by the plan in force.
#[derive(Clone, Copy, Debug)]
pub struct SyncSet<I> {
    /// Up to which record each member has all, or `None` for one that does not count now.
    pub received: I,
    /// No other node may write next: the set is empty.
    pub is_alone: bool,
    /// How few members may be in the set for level `all`.
    pub min_sync: usize,
}

/// Replies that wait for members, at most so many.
#[derive(Debug)]
pub struct ReplicaGates<T> {
    queues: BTreeMap<(PartitionId, Needed), Queue<T>>,
    /// Of queues that are not there any more.
    spare: Vec<VecDeque<Waiting<T>>>,
    waiting: usize,
    most: usize,
    /// No deadline is earlier.
    first_deadline_us: u64,
    /// The queue that the newest one stands in.
    newest: Option<(PartitionId, Needed)>,
    visited: u64,
}

/// Those of one partition and one kind, in the order of the log.
#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    /// No deadline is earlier.
    first_deadline_us: u64,
}

/// Buffers that are kept, at most.
const SPARE_MAX: usize = 16;

/// What a reply is to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The level was reached.
    Reached,
    /// The disk has it, and nobody else may write next: what level `all` comes to then.
    ReachedAlone,
    /// It was not in time, or never will be: it may have been executed.
    Unknown {
        /// How many members have the record.
        members: u8,
    },
}

/// Up to which record replies of one kind are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reach {
    through: Lsn,
    outcome: Outcome,
}

/// What the sync set lets replies reach. `None`: nothing.
fn reach<I>(needed: Needed, set: &SyncSet<I>, members: &mut [Option<Lsn>]) -> Option<Reach> {
    let reached = |through| Reach {
        through,
        outcome: Outcome::Reached,
    };
    let alone = Reach {
        through: Lsn(u64::MAX),
        outcome: Outcome::ReachedAlone,
    };
    // One that does not count has nothing.
    let all = members.iter().copied().min().flatten();
    match needed {
        Needed::All => all.map(reached),
        Needed::Every if members.len() < set.min_sync => None,
        Needed::Every if set.is_alone => Some(alone),
        Needed::Every => all.map(reached),
        Needed::Some(count) => match count.min(members.len()) {
            0 => Some(reached(Lsn(u64::MAX))),
            count => {
                members.sort_unstable_by(|one, other| other.cmp(one));
                members[count - 1].map(reached)
            }
        },
    }
}

impl<T> ReplicaGates<T> {
    /// Nobody waits; at most `most` will.
    #[must_use]
    pub fn new(most: usize) -> Self {
        ReplicaGates {
            queues: BTreeMap::new(),
            spare: Vec::new(),
            waiting: 0,
            most,
            first_deadline_us: u64::MAX,
            newest: None,
            visited: 0,
        }
    }

    /// When the first of them is answered at the latest.
    #[must_use]
    pub fn deadline_us(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.first_deadline_us)
    }

    /// Whether another one may wait; to be asked before anything is executed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.waiting < self.most
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// How many were looked at by [`ReplicaGates::release`] so far.
    #[must_use]
    pub fn visited(&self) -> u64 {
        self.visited
    }

    /// Whether somebody waits for the members of this partition.
    #[must_use]
    pub fn is_waited_for(&self, partition: PartitionId) -> bool {
        let from = (partition, Needed::All);
        let next = self.queues.range(from..).next();
        next.is_some_and(|((waits_in, _), _)| *waits_in == partition)
    }

    /// One more waits. Its record is not before the last one of its queue.
    ///
    /// # Panics
    /// If there is no room.
    pub fn wait(&mut self, waiting: Waiting<T>) {
        assert!(self.has_room(), "asked before it was executed");
        let of = (waiting.partition, waiting.needed);
        let spare = &mut self.spare;
        let queue = self.queues.entry(of).or_insert_with(|| Queue {
            waiting: spare.pop().unwrap_or_default(),
            first_deadline_us: u64::MAX,
        });
        let last = queue.waiting.back();
        assert!(last.is_none_or(|last| last.lsn <= waiting.lsn), "in order");
        queue.first_deadline_us = queue.first_deadline_us.min(waiting.deadline_us);
        self.first_deadline_us = self.first_deadline_us.min(waiting.deadline_us);
        self.newest = Some(of);
        queue.waiting.push_back(waiting);
        self.waiting += 1;
    }

    /// The newest one, if nobody was answered since it came.
    pub fn newest(&self) -> Option<&T> {
        let newest = self.queues.get(self.newest.as_ref()?)?.waiting.back()?;
        Some(&newest.whom)
    }

    /// Takes the newest one out, if nobody was answered since it came.
    pub fn take_newest(&mut self) -> Option<Waiting<T>> {
        let of = self.newest.take()?;
        let waiting = self.queues.get_mut(&of)?.waiting.pop_back()?;
        self.waiting -= 1;
        Some(waiting)
    }

    /// Those of each queue that wait longest.
    pub fn first(&self) -> impl Iterator<Item = &T> {
        let queues = self.queues.values();
        queues.filter_map(|queue| queue.waiting.front().map(|waiting| &waiting.whom))
    }

    /// Answers who need not wait any longer, those of one partition and need in order: the log is
    /// durable up to `durable`; `set` tells the sync set of a partition. An empty one lets nobody
    /// reach level `replica`.
    pub fn release<I>(
        &mut self,
        now_us: u64,
        durable: Lsn,
        set: impl Fn(PartitionId) -> SyncSet<I>,
        mut answer: impl FnMut(T, Outcome),
    ) where
        I: Iterator<Item = Option<Lsn>>,
    {
        self.newest = None;
        let mut members = Vec::new();
        let (mut first_us, mut visited) = (u64::MAX, 0);
        for (&(partition, needed), queue) in &mut self.queues {
            let mut set = set(partition);
            members.clear();
            members.extend(&mut set.received);
            let before = queue.waiting.len();
            if let Some(reach) = reach(needed, &set, &mut members) {
                let through = reach.through.min(durable);
                let is_reached = |it: &mut Waiting<T>| it.lsn <= through;
                while let Some(waiting) = queue.waiting.pop_front_if(is_reached) {
                    answer(waiting.whom, reach.outcome);
                }
            }
            visited += (before - queue.waiting.len() + 1) as u64;
            if now_us >= queue.first_deadline_us {
                visited += queue.waiting.len() as u64;
                queue.end_late(now_us, &members, &mut answer);
            }
            self.waiting -= before - queue.waiting.len();
            first_us = first_us.min(queue.first_deadline_us);
        }
        self.first_deadline_us = first_us;
        self.visited += visited;
        self.drop_empty();
    }

    /// Answers all who wait for this partition: its node is not primary any more.
    pub fn depose(&mut self, partition: PartitionId, mut answer: impl FnMut(T)) {
        self.newest = None;
        for (_, queue) in self
            .queues
            .range_mut((partition, Needed::All)..)
            .take_while(|((of, _), _)| *of == partition)
        {
            self.waiting -= queue.waiting.len();
            queue.waiting.drain(..).for_each(|it| answer(it.whom));
        }
        self.drop_empty();
    }

    /// Keeps no queue that nobody waits in, and some of their buffers.
    fn drop_empty(&mut self) {
        let spare = &mut self.spare;
        self.queues.retain(|_, queue| {
            let is_empty = queue.waiting.is_empty();
            if is_empty && spare.len() < SPARE_MAX {
                spare.push(std::mem::take(&mut queue.waiting));
            }
            !is_empty
        });
    }
}

impl<T> Queue<T> {
    /// Answers those whose time is over.
    fn end_late(
        &mut self,
        now_us: u64,
        members: &[Option<Lsn>],
        answer: &mut impl FnMut(T, Outcome),
    ) {
        self.first_deadline_us = u64::MAX;
        for _ in 0..self.waiting.len() {
            let waiting = self.waiting.pop_front().expect("counted");
            if now_us >= waiting.deadline_us {
                let has = |member: &&Option<Lsn>| member.is_some_and(|it| it >= waiting.lsn);
                let members = members.iter().filter(has).count();
                let members = u8::try_from(members).unwrap_or(u8::MAX);
                answer(waiting.whom, Outcome::Unknown { members });
            } else {
                self.first_deadline_us = self.first_deadline_us.min(waiting.deadline_us);
                self.waiting.push_back(waiting);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<I>(received: I) -> SyncSet<I> {
        SyncSet {
            received,
            is_alone: false,
            min_sync: 0,
        }
    }

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
                    of(all.take(if partition == 1 { 9 } else { 1 }))
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
            let received = |_| of(members.iter().map(|member| member.map(Lsn)));
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
                |_| of([].into_iter()),
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

    /// What a reply at level `all` is told of record 10 in this set, in time and behind it.
    fn outcomes_at_all(received: &[Option<u64>], is_alone: bool, min_sync: usize) -> [String; 2] {
        [999, 1_000].map(|now_us| {
            let mut gates = ReplicaGates::new(1);
            gates.wait(Waiting {
                partition: 1,
                lsn: Lsn(10),
                needed: Needed::Every,
                deadline_us: 1_000,
                whom: (),
            });
            let mut outcomes = String::new();
            let set = |_| SyncSet {
                received: received.iter().map(|member| member.map(Lsn)),
                is_alone,
                min_sync,
            };
            gates.release(now_us, Lsn(10), set, |(), outcome| {
                outcomes = format!("{outcome:?}");
            });
            outcomes
        })
    }

    #[test]
    fn level_all_waits_for_every_member_and_for_none_where_nobody_may_write_next() {
        let reached = ["Reached"; 2].map(String::from);
        let alone = ["ReachedAlone"; 2].map(String::from);
        let unknown = |members| [String::new(), format!("Unknown {{ members: {members} }}")];
        assert_eq!(outcomes_at_all(&[Some(10), Some(11)], false, 0), reached);
        assert_eq!(outcomes_at_all(&[Some(10), Some(9)], false, 0), unknown(1));
        assert_eq!(outcomes_at_all(&[Some(10), None], false, 0), unknown(1));
        assert_eq!(outcomes_at_all(&[], true, 0), alone);
        assert_eq!(outcomes_at_all(&[], false, 0), unknown(0), "not begun");
    }

    #[test]
    fn level_all_is_never_below_min_sync() {
        let unknown = |members| [String::new(), format!("Unknown {{ members: {members} }}")];
        assert_eq!(outcomes_at_all(&[], true, 1), unknown(0));
        assert_eq!(outcomes_at_all(&[Some(10)], false, 2), unknown(1));
        let reached = ["Reached"; 2].map(String::from);
        assert_eq!(outcomes_at_all(&[Some(10), Some(10)], false, 2), reached);
    }

    #[test]
    fn a_turn_checks_those_that_it_answers_and_the_next_one_of_each_queue() {
        let mut gates = ReplicaGates::new(10_000);
        for lsn in 1..=9_000 {
            gates.wait(Waiting {
                partition: (lsn % 3) as PartitionId,
                lsn: Lsn(lsn),
                needed: Needed::Every,
                deadline_us: 1_000_000,
                whom: lsn,
            });
        }
        let mut answered = Vec::new();
        for turn in 0..100 {
            let received = |_| of([Some(Lsn(turn))].into_iter());
            gates.release(turn, Lsn(9_000), received, |whom, _| answered.push(whom));
        }
        assert_eq!((answered.len(), gates.len()), (99, 8_901));
        assert_eq!(gates.visited(), 99 + 3 * 100);
        // A time that is over is looked for in the whole of its queue.
        gates.release(1_000_000, Lsn(0), |_| of([].into_iter()), |_, _| ());
        assert!(gates.is_empty());
        assert_eq!(gates.visited(), 99 + 3 * 100 + 3 + 8_901);
    }

    #[test]
    fn the_newest_one_is_taken_back_until_somebody_is_answered() {
        let mut gates = ReplicaGates::new(2);
        let waiting = Waiting {
            partition: 1,
            lsn: Lsn(1),
            needed: Needed::Every,
            deadline_us: 1,
            whom: 'a',
        };
        gates.wait(waiting);
        assert_eq!(gates.take_newest(), Some(waiting));
        assert_eq!((gates.take_newest(), gates.len()), (None, 0));
        gates.wait(waiting);
        gates.release(0, Lsn(0), |_| of([].into_iter()), |_, _| ());
        assert_eq!((gates.take_newest(), gates.len()), (None, 1));
    }
}
