//! A node under leases that come and go by chance, with plans that change and a thread that stands
//! still anywhere: what it answers is held against the words of its table.

use penstock_net::link::Membership;
use penstock_net::status::Status;
use penstock_shard::Event;
use penstock_shard::cluster::Plan;

use crate::key;
use crate::leases::{G, LEARNER, Node, SYNC, partition, plan};
use crate::random::Random;
use crate::seed::{Seed, seeds};

/// What is refused before its end, and how long the table is not read, in microseconds.
const MARGIN_US: u64 = 5_000;
const CHECK_US: u64 = 10_000;

/// What came of all runs.
#[derive(Debug, Default)]
struct Met {
    answered: usize,
    refused: usize,
    ended: usize,
}

struct Run {
    node: Node,
    plan: Plan,
    random: Random,
    /// Since when nothing has changed, and turns have come.
    calm_us: u64,
    /// A read that ran and was not held against its lease yet: the sync set that it ran under.
    open: Option<(usize, Vec<u8>)>,
    /// The first end of a lease that was in force since the last check.
    first_us: u64,
    ids: usize,
    met: Met,
}

impl Run {
    fn now_us(&self) -> u64 {
        self.node.server.now.us
    }

    /// Until when the table lends the partition by this sync set.
    fn end_us(&self, sync: &[u8]) -> u64 {
        let sync = sync.iter().copied();
        self.node.table.lease_end_us(partition(), sync)
    }

    fn sync(&self) -> Vec<u8> {
        let assignment = &self.plan.partitions[usize::from(partition())];
        let members = assignment.members.iter();
        let sync = members.filter(|it| it.1 == SYNC);
        sync.map(|it| it.0).collect()
    }

    fn is_mine(&self) -> bool {
        self.plan.partitions[usize::from(partition())].primary == 1
    }

    /// Notes the lease that is in force.
    fn note(&mut self) {
        if self.plan.is_leased && self.is_mine() {
            let end_us = self.end_us(&self.sync());
            if end_us > self.now_us() {
                self.first_us = self.first_us.min(end_us);
            }
        }
    }

    fn replan(&mut self) {
        let sets: [&[(u8, Membership)]; 5] = [
            &[(2, SYNC)],
            &[(3, SYNC)],
            &[(2, SYNC), (3, SYNC)],
            &[(2, LEARNER)],
            &[(2, SYNC), (3, LEARNER)],
        ];
        let members = sets[self.random.below(5)];
        let before = &self.plan.partitions[usize::from(partition())];
        let (moves, generation) = (self.random.below(5) == 0, before.generation);
        let (primary, generation) = match (moves, before.primary) {
            (false, primary) => (primary, generation),
            (true, 1) => (2, generation + 1),
            (true, _) => (1, generation + 1),
        };
        let members: Vec<_> = match primary {
            1 => members.to_vec(),
            _ => vec![(1, SYNC), (3, SYNC)],
        };
        self.plan = Plan {
            is_leased: self.random.below(6) > 0,
            ..plan(self.plan.number + 1, generation, primary, &members)
        };
        self.node.replan(self.plan.clone());
        self.calm_us = self.now_us();
        self.note();
    }

    /// A read comes. One that the table has no lease for does not run.
    fn read(&mut self) {
        self.ids += 1;
        let (id, now_us, sync) = (self.ids, self.now_us(), self.sync());
        self.note();
        let has_no_lease = self.plan.is_leased
            && (self.end_us(&sync) <= now_us + MARGIN_US || now_us < 1 + G)
            || !self.is_mine();
        let is_leased = self.plan.is_leased;
        self.node.server.get(id, &key(0));
        if has_no_lease {
            self.check(0);
            assert_eq!(self.status(id).map(is_run), Some(false), "read {id}");
            return;
        }
        self.open = is_leased.then_some((id, sync));
    }

    fn status(&mut self, id: usize) -> Option<Status> {
        let server = &mut self.node.server;
        for _ in 0..3 {
            if server.replies.contains_key(&id) || !server.outbox.close.is_empty() {
                break;
            }
            server.turn();
        }
        server.replies.get(&id).map(|reply| reply.status)
    }

    /// The turn ends; its thread stands still for a while behind what it executes.
    fn check(&mut self, stands_still_us: u64) {
        let server = &mut self.node.server;
        let turn_ends = Event::TurnEnds;
        server.shard.step(server.now, turn_ends, &mut server.outbox);
        server.now.us += stands_still_us;
        server.shard.end_turn(server.now, &mut server.outbox);
        let (now_us, has_ended) = (server.now.us, !server.outbox.close.is_empty());
        if has_ended {
            assert!(self.first_us <= now_us, "ended without a reason");
            self.met.ended += 1;
        } else if let Some((id, sync)) = self.open.take() {
            let is_there = self.end_us(&sync) > now_us;
            let status = self.status(id).expect("it is answered");
            assert!(is_there || !is_run(status), "read {id} behind its lease");
            match is_run(status) {
                true => self.met.answered += 1,
                false => self.met.refused += 1,
            }
        }
        self.first_us = u64::MAX;
        self.note();
    }

    /// When nothing has changed for a while, who has a lease is answered.
    fn calm(&mut self) {
        for _ in 0..30 {
            self.node.server.now.us += 1_000;
            self.check(0);
            self.node.server.turn();
            self.node.server.end(0);
            if !self.node.server.outbox.close.is_empty() {
                return;
            }
        }
        let (now_us, end_us) = (self.now_us(), self.end_us(&self.sync()));
        let is_calm = now_us > self.calm_us + 2 * CHECK_US;
        let has_lease = now_us > 1 + G && end_us > now_us + 2 * MARGIN_US;
        if is_calm && self.is_mine() && (has_lease || !self.plan.is_leased) {
            self.ids += 1;
            self.node.server.get(self.ids, &key(0));
            let status = self.status(self.ids).expect("it is answered");
            assert!(is_run(status), "{status:?}: its lease is there");
        }
    }

    fn run(seed: u64) -> Met {
        let first = plan(1, 4, 1, &[(2, SYNC)]);
        let mut run = Run {
            node: Node::open(1, Default::default(), 1, first.clone()),
            plan: first,
            random: Random::new(seed),
            calm_us: 0,
            open: None,
            first_us: u64::MAX,
            ids: 0,
            met: Met::default(),
        };
        run.node.server.settle();
        for _ in 0..80 {
            match run.random.below(12) {
                0..=2 => {
                    let member = 2 + u8::try_from(run.random.below(2)).expect("small");
                    run.node.lends(member);
                    run.note();
                }
                3 => run.replan(),
                4..=6 => run.read(),
                7..=8 => {
                    let still_us = [0, 3_000, 60_000, 600_000][run.random.below(4)];
                    run.check(still_us);
                }
                9 => run.calm(),
                _ => {
                    let us = [500, 7_000, 100_000, 500_000][run.random.below(4)];
                    run.check(0);
                    run.node.server.now.us += us;
                }
            }
            if !run.node.server.outbox.close.is_empty() {
                break;
            }
        }
        run.met
    }
}

/// Whether it was executed.
fn is_run(status: Status) -> bool {
    match status {
        Status::Ok | Status::NotFound => true,
        Status::NotPrimary | Status::Moved => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whatever_leases_plans_and_threads_do_an_answer_that_leaves_ran_under_its_lease() {
    let mut all = Met::default();
    for seed in seeds(300) {
        let _named = Seed(seed);
        let met = Run::run(seed);
        all.answered += met.answered;
        all.refused += met.refused;
        all.ended += met.ended;
    }
    println!("{all:?}");
    if seeds(300).count() >= 300 {
        assert!(
            all.answered > 100 && all.ended > 20 && all.refused > 5,
            "{all:?}"
        );
    }
}
