//! Nodes part around the changes of a sync set, in some seeds with level `all`.
//!
//! The members of a writer are away until it stands alone. When one of them may be promoted again,
//! the writer and the member are cut off from each other at once, and often the writer from the
//! plan. So the member takes over soon, and a writer that does not wait for the member loses what
//! it acknowledges meanwhile.
//!
//! In other seeds the process of a writer stands still in the middle of a turn, behind a request
//! that it has executed, and a member takes over. So the writer finds that what it has executed may
//! have run behind its lease.

use penstock_shard::lease::Wish;

use crate::random::Random;

use super::event::Event;
use super::{NODES, Phase, World};

/// Between the begin of the cluster and the time when members go away.
const BEGIN_US: (u64, u64) = (300_000, 3_000_000);
/// How long it takes, at most, until a member that is back may be promoted, if nothing is in the
/// way.
const ENTRY_US: u64 = 10_000_000;

/// What a seed decides of them.
#[derive(Debug)]
pub(super) struct Partings {
    random: Random,
    /// Parts of a million of the entries behind which nodes part. If 0, processes stand still.
    chance: u32,
    /// The writer whose process stands still behind the next request.
    stops: Option<usize>,
}

impl Partings {
    /// Those of a seed with level `all`, if it has some: every fourth seed has none.
    pub(super) fn of_seed(seed: u64) -> Option<Partings> {
        let mut random = Random::new(seed, 122);
        let chance = random.pick(&[0, 500_000, 1_000_000]);
        let is_some = seed % 4 != 2 && (chance > 0 || random.chance(700_000));
        is_some.then_some(Partings {
            random,
            chance,
            stops: None,
        })
    }
}

impl World {
    fn partings(&mut self) -> Option<&mut Partings> {
        self.deciders.as_mut()?.partings.as_mut()
    }

    /// The cluster is made.
    pub(super) fn begin_to_part(&mut self) {
        if let Some(partings) = self.partings() {
            let delay_us = partings.random.within(BEGIN_US.0, BEGIN_US.1);
            self.after(delay_us, Event::Parting);
        }
    }

    /// A grace by the slowest clock.
    fn longest_grace_us(&self) -> u64 {
        self.rules().grace_us() * 5 / 4
    }

    /// A writer and its members part.
    pub(super) fn part_members(&mut self) {
        if self.phase != Phase::Traffic {
            return;
        }
        let partitions = self.partitions.clone();
        let partings = self.partings().expect("it was asked for");
        let partition = partings.random.pick(&partitions);
        let (is_alone, next_us) = (
            partings.chance > 0,
            partings.random.within(4_000_000, 9_000_000),
        );
        let writer = usize::from(self.plan.partitions[usize::from(partition)].primary) - 1;
        if is_alone {
            return self.leave_alone(writer);
        }
        self.partings().expect("just seen").stops = Some(writer);
        self.after(next_us, Event::Parting);
    }

    /// Bytes of a client have come to a node, and it has executed what was in them. If it is
    /// the one, its process stands still before its turn ends, until a member has taken over.
    pub(super) fn stop_behind_request(&mut self, node: usize) {
        let is_traffic = self.phase == Phase::Traffic;
        let Some(partings) = self.partings().filter(|_| is_traffic) else {
            return;
        };
        if partings.stops.take_if(|it| *it == node).is_none() {
            return;
        }
        let grace_us = self.longest_grace_us();
        let random = &mut self.partings().expect("just seen").random;
        let us = random.within(grace_us, 3 * grace_us);
        self.meet("stopped behind a request");
        self.nodes[node].paused_until_us = self.now_us + us;
        self.after(us, Event::RunsAgain { node });
    }

    /// All members of a writer go down until it stands alone.
    fn leave_alone(&mut self, writer: usize) {
        let grace_us = self.longest_grace_us();
        let random = &mut self.partings().expect("it was asked for").random;
        let down_us = 2 * grace_us + random.within(200_000, 1_000_000);
        self.meet("members of a writer away");
        for node in (0..NODES).filter(|&node| node != writer) {
            if self.nodes[node].cores.is_some() {
                self.die(node, false);
                self.after(down_us, Event::Start { node });
            }
        }
        self.outages_go_on_until(self.now_us + down_us + ENTRY_US);
    }

    /// A swap of a node has landed, and perhaps has not been told.
    pub(super) fn part_behind(&mut self, author: usize, wish: &Wish) {
        let Wish::Admit { node: member, .. } = wish else {
            return;
        };
        let (grace_us, member) = (self.longest_grace_us(), usize::from(*member) - 1);
        let is_traffic = self.phase == Phase::Traffic;
        let Some(partings) = self.partings().filter(|_| is_traffic) else {
            return;
        };
        if !partings.random.chance(partings.chance) {
            return;
        }
        let random = &mut partings.random;
        let cut_us = 2 * grace_us + random.within(500_000, 4_000_000);
        let is_apart = random.chance(700_000);
        let apart_us = random.within(cut_us / 2, cut_us);
        self.meet("parted behind an entry");
        self.cut(author, member, cut_us);
        self.cut(member, author, cut_us);
        let now_us = self.now_us;
        if is_apart {
            self.store().leaves(author, now_us + apart_us);
        }
        self.outages_go_on_until(now_us + cut_us + grace_us);
    }
}
