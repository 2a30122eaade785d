//! Nodes that decide by themselves: each has a `Failover` beside its shards, sends heartbeats,
//! reads the plan from a store, and makes the swaps that it wishes for. See `shard/FAILOVER.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_net::link::{Membership, PartitionSet};
use penstock_shard::Event as ShardEvent;
use penstock_shard::Topology;
use penstock_shard::cluster::Plan;
use penstock_shard::lease::{Failover, FailoverPlan, LeaseRules, LeaseTable, Placing, Wish};
use penstock_shard::replication::planted::{Bug, is_planted};

use crate::plan::ALL_SEEDS;
use crate::random::Random;

use super::event::Event;
use super::heartbeats::Wires;
use super::outages::Outages;
use super::partings::Partings;
use super::store::{PlanStore, plan_of};
use super::writers::Writers;
use super::{NODES, Setting, World, number_of};

/// Nodes of these seeds decide by themselves.
pub const FAILOVER_SEEDS: std::ops::Range<u64> = 1_060_000_000..1_160_000_000;
/// ... and of one in four that a clock has given since then.
const CLOCK_SEEDS_FROM: u64 = 1_883_035_000_000_000;

/// Clients ask for level `all` in [`ALL_SEEDS`], whose nodes decide, too, and in those that decide
/// and that a clock has given since then.
const CLOCK_ALL_FROM: u64 = 1_883_205_000_000_000;

/// Whether the nodes of a seed decide by themselves.
pub(super) fn decide(seed: u64) -> bool {
    let is_numbered = FAILOVER_SEEDS.contains(&seed) || ALL_SEEDS.contains(&seed);
    is_numbered || seed >= CLOCK_SEEDS_FROM && seed % 4 == 3
}

/// Whether clients ask for level `all` in a seed.
pub(super) fn asks_for_all(seed: u64) -> bool {
    decide(seed) && (ALL_SEEDS.contains(&seed) || seed >= CLOCK_ALL_FROM)
}

/// What runs of a seed meet at level `all`.
pub(super) fn must_meet_at_all(seed: u64) -> impl Iterator<Item = (&'static str, u64)> {
    let all = MET_AT_ALL.iter().filter(move |_| asks_for_all(seed));
    all.map(|&what| (what, 0))
}

/// What every long run with level `all` meets.
pub const MET_AT_ALL: &[&str] = &[
    "acked at all",
    "level all reached by the disk alone",
    "members of a writer away",
    "parted behind an entry",
    "rush at all",
    "stopped behind a request",
];

/// What every long run of such seeds meets.
pub const MET_BY_DECIDERS: &[&str] = &[
    "a lease ran out",
    "answer to a swap lost",
    "connection of heartbeats lost",
    "core stood still",
    "entry",
    "granted",
    "heartbeats silent",
    "joining by itself",
    "left to people",
    "machine suspended",
    "process stopped",
    "process stopped for minutes",
    "removal",
    "store down",
    "store out of reach of a node",
    "store down beside a kill",
    "store out of reach of a swap",
    "swap in conflict",
    "swap late",
    "swap lost",
    "swap of a dead author",
    "swap that landed was unknown",
    "taken over again soon",
    "takeover",
    "takeover of all partitions of a node",
];

/// How often a node looks at what is due, by its clock.
const DECIDE_US: u64 = 20_000;
/// How often it reads the store.
const LOAD_ROUNDS: u64 = 5;

/// One start of a node.
pub(super) struct Decider {
    pub(super) failover: Failover,
    /// When it sent heartbeats last, by its clock.
    beat_us: u64,
    rounds: u64,
    /// The start of each other node that it has met.
    met: BTreeMap<usize, u64>,
    /// By a planted bug: until when it goes by a plan of its own.
    alone_until_us: u64,
}

/// How long a planted bug goes by a plan of its own.
const ALONE_US: u64 = 4_000_000;

/// All of them, and what is between them.
pub(super) struct Deciders {
    pub(super) random: Random,
    rules: LeaseRules,
    pub(super) store: PlanStore,
    runs: [Option<Decider>; NODES],
    pub(super) wires: Wires,
    pub(super) outages: Outages,
    pub(super) partings: Option<Partings>,
    pub(super) writers: Writers,
    /// When each partition was taken over last.
    taken_us: BTreeMap<u16, u64>,
}

impl Decider {
    /// Whether another start of a node is met than before.
    pub(super) fn has_met(&mut self, node: usize, start: u64) -> bool {
        self.met.insert(node, start) != Some(start)
    }
}

impl Deciders {
    /// Those of a seed, if its nodes decide. `first` is the plan at the begin.
    pub(super) fn of_seed(seed: u64, setting: &Setting, first: &mut Plan) -> Option<Deciders> {
        if !decide(seed) {
            return None;
        }
        let mut random = Random::new(seed, 120);
        let rules = random.pick(&[LeaseRules::STARVED, LeaseRules::QUIET]);
        (first.number, first.is_leased) = (1, true);
        let assignments = first.partitions.iter();
        let placing = |assignment: &penstock_shard::cluster::Assignment| Placing {
            assignment: assignment.clone(),
            joining: Vec::new(),
        };
        let document = FailoverPlan {
            number: first.number,
            placings: assignments.map(placing).collect(),
            rules,
            min_sync: random.pick(&[0, 0, 0, 1]),
            is_paused: false,
            stay_learners: if setting.has_learner {
                vec![3]
            } else {
                Vec::new()
            },
        };
        let mut outages = Outages::new(&mut random);
        let partings = asks_for_all(seed)
            .then(|| Partings::of_seed(seed))
            .flatten();
        if partings.is_some() {
            outages.are_rare();
        }
        Some(Deciders {
            rules,
            store: PlanStore::new(document),
            runs: Default::default(),
            wires: Wires::default(),
            outages,
            partings,
            writers: Writers::default(),
            taken_us: BTreeMap::new(),
            random,
        })
    }
}

impl Setting {
    /// Nodes need seconds to decide, so traffic is slow and goes on until faults end.
    pub(super) fn wait_for_deciders(&mut self, random: &mut Random) {
        self.operations = u64::MAX;
        self.network_us = random.pick(&[200, 1_000, 2_000]);
        self.think_us = random.pick(&[60_000, 200_000, 400_000]);
        self.replica_level = random.pick(&[300_000, 700_000, 1_000_000]);
        self.may_wipe = false;
        self.may_go_back = false;
    }
}

impl World {
    pub(super) fn rules(&self) -> LeaseRules {
        self.deciders.as_ref().expect("nodes decide").rules
    }

    pub(super) fn decider(&mut self, node: usize) -> Option<&mut Decider> {
        self.deciders.as_mut()?.runs[node].as_mut()
    }

    pub(super) fn store(&mut self) -> &mut PlanStore {
        &mut self.deciders.as_mut().expect("nodes decide").store
    }

    /// Something happens that only nodes which decide know of.
    pub(super) fn take_decision(&mut self, event: Event) {
        match event {
            Event::Outage => self.befall_deciders(),
            Event::Parting => self.part_members(),
            Event::Decide { node, run } => self.of_run(node, run, |world| world.decide(node)),
            Event::Loaded {
                node,
                run,
                document,
            } => self.of_run(node, run, |world| world.take_document(node, *document)),
            Event::ShardPlan { node, run, shard } => {
                self.of_run(node, run, |world| world.give_plan(node, shard));
            }
            Event::SwapLands {
                author,
                is_answered,
                expected,
                document,
                wish,
            } => self.land_swap(author, is_answered, (expected, *document), &wish),
            Event::SwapEnds {
                node,
                run,
                is_answered,
                wish,
            } => self.of_run(node, run, |world| world.end_swap(node, is_answered, &wish)),
            Event::WireBytes { wire, to, bytes } => self.wire_bytes(wire, to, bytes),
            Event::WireClosed { wire, to } => self.wire_closed(wire, to),
            _ => unreachable!("the world takes all others"),
        }
    }

    // ---- starts and ends ----

    /// A node is to start: what it has of leases, from before anything else of the start. Whether
    /// it can; a node that reads no plan tries again.
    pub(super) fn start_decider(&mut self, node: usize) -> bool {
        let now_us = self.clocks[node].read(self.now_us);
        let true_us = self.now_us;
        let Some(deciders) = &mut self.deciders else {
            return true;
        };
        if !deciders.store.is_reached(true_us, node) {
            self.after(200_000, Event::Start { node });
            return false;
        }
        let plan = deciders.store.document().clone();
        deciders.runs[node] = Some(Decider {
            failover: Failover::new(now_us, number_of(node), plan),
            beat_us: 0,
            rounds: 0,
            met: BTreeMap::new(),
            alone_until_us: 0,
        });
        true
    }

    /// Its shards run.
    pub(super) fn begin_to_decide(&mut self, node: usize) {
        let table = self.nodes[node].leases();
        if let Some(decider) = self.decider(node) {
            decider.failover.publish(&table);
            let run = self.nodes[node].run;
            self.after(100, Event::Decide { node, run });
        }
    }

    /// The process is gone.
    pub(super) fn end_decider(&mut self, node: usize, is_power_cut: bool) {
        if let Some(deciders) = &mut self.deciders {
            deciders.runs[node] = None;
            self.close_wires(node, is_power_cut);
        }
    }

    // ---- looks ----

    /// Notes what the shards of a node have told.
    pub(super) fn note_standings(&mut self, node: usize) {
        let now_us = self.clocks[node].read(self.now_us);
        let table = self.nodes[node].leases();
        let topology = Topology::new(self.nodes[node].shards);
        let shard_of = |partition: u16| topology.owner(partition * 64);
        let decider = self.decider(node).expect("it runs");
        decider.failover.note_all(now_us, &table, shard_of);
    }

    /// A node looks at what is due.
    pub(super) fn decide(&mut self, node: usize) {
        let run = self.nodes[node].run;
        let deciders = self.deciders.as_mut().expect("nodes decide");
        let next_us = deciders.random.within(DECIDE_US / 2, DECIDE_US * 3 / 2);
        let next_us = self.clocks[node].in_true_us(next_us);
        self.after(next_us, Event::Decide { node, run });
        let now_us = self.clocks[node].read(self.now_us);
        let beat_us = self.rules().beat_us();
        let decider = self.decider(node).expect("it runs");
        decider.failover.note_awake(now_us);
        decider.rounds += 1;
        let loads = decider.rounds.is_multiple_of(LOAD_ROUNDS);
        self.note_standings(node);
        self.tend_wires(node);
        let decider = self.decider(node).expect("it runs");
        if now_us >= decider.beat_us + beat_us {
            decider.beat_us = now_us;
            self.beat(node);
        }
        self.wish(node);
        if loads {
            self.load(node);
        }
    }

    /// Asks for the newest plan.
    fn load(&mut self, node: usize) {
        let (run, now_us) = (self.nodes[node].run, self.now_us);
        let deciders = self.deciders.as_mut().expect("nodes decide");
        let is_news = deciders.runs[node].as_ref().is_some_and(|it| {
            let (here, there) = (it.failover.plan(), deciders.store.document());
            let was_alone = it.alone_until_us > 0 && now_us >= it.alone_until_us;
            here.number < there.number || was_alone && here != there
        });
        if is_news && deciders.store.is_reached(now_us, node) {
            let document = Box::new(deciders.store.document().clone());
            let delay_us = deciders.random.within(500, 20_000);
            let loaded = Event::Loaded {
                node,
                run,
                document,
            };
            self.after(delay_us, loaded);
        }
    }

    /// A plan was read: leases go by it first, then the shards.
    pub(super) fn take_document(&mut self, node: usize, document: FailoverPlan) {
        let now_us = self.clocks[node].read(self.now_us);
        let plan = plan_of(&document, &self.plan.clients);
        let table = self.nodes[node].leases();
        let decider = self.decider(node).expect("it runs");
        let is_known = document.number <= decider.failover.plan().number;
        if is_known && std::mem::take(&mut decider.alone_until_us) == 0 {
            return;
        }
        decider.failover.take_plan(now_us, document);
        decider.failover.publish(&table);
        decider.beat_us = 0;
        self.nodes[node].plan = plan;
        let run = self.nodes[node].run;
        for shard in 0..usize::from(self.nodes[node].shards) {
            let deciders = self.deciders.as_mut().expect("nodes decide");
            let delay_us = deciders.random.within(0, 5_000);
            self.after(delay_us, Event::ShardPlan { node, run, shard });
        }
    }

    /// A shard gets the plan that its node has by then.
    pub(super) fn give_plan(&mut self, node: usize, shard: usize) {
        let plan = Arc::clone(&self.nodes[node].plan);
        self.step(node, shard, ShardEvent::Plan(plan));
    }

    // ---- swaps ----

    /// Makes a swap, if the node wishes for one.
    fn wish(&mut self, node: usize) {
        let now_us = self.clocks[node].read(self.now_us);
        let table = self.nodes[node].leases();
        let decider = self.decider(node).expect("it runs");
        let Some(wish) = wish_of(&mut decider.failover, now_us, &table) else {
            return;
        };
        let mut document = decider.failover.plan().clone();
        let expected = document.number;
        document.number += 1;
        wish.apply(number_of(node), &mut document.placings);
        if matches!(wish, Wish::Remove { .. }) && is_planted(Bug::RemovedLate) {
            self.go_alone(node, document.clone());
        }
        let true_us = self.now_us;
        let deciders = self.deciders.as_mut().expect("nodes decide");
        let fate = deciders.store.fate(true_us, node, &mut deciders.random);
        self.meet(fate.name);
        let run = self.nodes[node].run;
        if let Some(lands_us) = fate.lands_us {
            let lands = Event::SwapLands {
                author: (node, run),
                is_answered: fate.is_answered,
                expected,
                document: Box::new(document),
                wish: Box::new(wish.clone()),
            };
            self.at(lands_us, lands);
        }
        let ends = Event::SwapEnds {
            node,
            run,
            is_answered: fate.is_answered,
            wish: Box::new(wish),
        };
        self.at(fate.ends_us, ends);
    }

    /// A swap comes to the store.
    pub(super) fn land_swap(
        &mut self,
        author: (usize, u64),
        is_answered: bool,
        (expected, document): (u64, FailoverPlan),
        wish: &Wish,
    ) {
        let now_us = self.now_us;
        if !self.store().is_up(now_us) {
            return;
        }
        let plan = plan_of(&document, &self.plan.clients);
        if self.store().swap(expected, document).is_none() {
            self.meet("swap in conflict");
            return;
        }
        self.meet(match wish {
            Wish::TakeOver { .. } => "takeover",
            Wish::Remove { .. } => "removal",
            Wish::Join { .. } => "joining by itself",
            Wish::Admit { .. } => "entry",
        });
        if !is_answered {
            self.meet("swap that landed was unknown");
        }
        if !self.is_run(author.0, author.1) {
            self.meet("swap of a dead author");
        }
        if let Wish::TakeOver { from, partitions } = wish {
            self.taken_over(*from, partitions);
        }
        self.plan = plan;
        self.part_behind(author.0, wish);
    }

    /// What follows for what clients may be missing.
    fn taken_over(&mut self, from: u8, partitions: &PartitionSet) {
        for partition in partitions.iter() {
            self.oracle.promoted(partition);
            self.part(partition);
            self.handed.remove(&partition);
            let now_us = self.now_us;
            let deciders = self.deciders.as_mut().expect("nodes decide");
            let before_us = deciders.taken_us.insert(partition, now_us);
            if before_us.is_some_and(|before_us| now_us < before_us + 20_000_000) {
                self.meet("taken over again soon");
            }
        }
        // `self.plan` is the one before.
        let mut written = self
            .partitions
            .iter()
            .filter(|&&partition| self.plan.partitions[usize::from(partition)].primary == from);
        if written.all(|&partition| partitions.has(partition)) {
            self.meet("takeover of all partitions of a node");
        }
    }

    /// The author of a swap goes on.
    pub(super) fn end_swap(&mut self, node: usize, is_answered: bool, wish: &Wish) {
        let decider = self.decider(node).expect("it runs");
        decider.failover.swapped();
        if let Wish::Admit {
            node: member,
            partitions,
        } = wish
            && !is_answered
            && is_planted(Bug::SwapAssumedFailed)
        {
            // The entry is given up: who was never admitted need not be waited for.
            let mut document = decider.failover.plan().clone();
            document.number += 1;
            let silent = vec![(*member, *partitions)];
            Wish::Remove { silent }.apply(number_of(node), &mut document.placings);
            self.go_alone(node, document);
        }
        self.load(node);
    }

    /// By a planted bug a node goes by a plan that no home has.
    fn go_alone(&mut self, node: usize, document: FailoverPlan) {
        self.take_document(node, document);
        let until_us = self.now_us + ALONE_US;
        self.decider(node).expect("it runs").alone_until_us = until_us;
    }

    // ---- people ----

    /// A person changes who writes, by a swap that is told.
    pub(super) fn publish_document(&mut self, plan: &Plan) {
        let mut document = self.store().document().clone();
        document.number += 1;
        for (placing, assignment) in document.placings.iter_mut().zip(&plan.partitions) {
            placing.assignment = assignment.clone();
            let is_sync = |node: &u8| assignment.members.contains(&(*node, Membership::Sync));
            placing.joining.retain(is_sync);
        }
        self.plan = plan_of(&document, &plan.clients);
        let expected = document.number - 1;
        let store = self.store();
        assert!(
            store.swap(expected, document).is_some(),
            "nobody came first"
        );
    }

    /// Whether a node may be promoted by what the store has.
    pub(super) fn is_promotable_by_store(&self, partition: u16, number: u8) -> Option<bool> {
        let store = &self.deciders.as_ref()?.store;
        let placing = &store.document().placings[usize::from(partition)];
        Some(placing.is_promotable(number))
    }

    /// What no node may do: who is to write a partition cannot begin, and nobody may take it over.
    pub(super) fn is_left_to_people(&self, partition: u16) -> bool {
        let store = &self.deciders.as_ref().expect("nodes decide").store;
        let placing = &store.document().placings[usize::from(partition)];
        let may = |node: usize| {
            let standing = self.nodes[node].leases().standing(partition, true);
            match number_of(node) == placing.assignment.primary {
                true => standing.is_able,
                false => placing.is_promotable(number_of(node)) && standing.is_candidate,
            }
        };
        !(0..NODES).any(may)
    }

    /// Where the sync set is not what it is to be yet.
    pub(super) fn difference_of_members(&self) -> Option<String> {
        let store = &self.deciders.as_ref()?.store;
        let document = store.document();
        for &partition in &self.partitions {
            let placing = &document.placings[usize::from(partition)];
            let missing = (0..NODES).map(number_of).find(|number| {
                *number != placing.assignment.primary
                    && !document.stay_learners.contains(number)
                    && !placing.is_promotable(*number)
            });
            if let Some(number) = missing {
                return Some(format!(
                    "partition {partition}: node {number} is not in the sync set of {placing:?}"
                ));
            }
        }
        None
    }
}

/// What a node wishes for by what its shards have told.
fn wish_of(failover: &mut Failover, now_us: u64, table: &LeaseTable) -> Option<Wish> {
    let (number, placings) = (failover.plan().number, failover.plan().placings.iter());
    let joining: BTreeSet<(u8, u16)> = (0..)
        .zip(placings)
        .flat_map(|(partition, it)| it.joining.iter().map(move |&node| (node, partition)))
        .collect();
    let is_complete = |node: u8, partition: u16| {
        let member = table.member(node, partition);
        let is_it = match joining.contains(&(node, partition)) {
            true => member.is_proven || is_planted(Bug::JoiningNotWaited) && member.has_joined,
            false => member.has_joined,
        };
        member.plan == number && is_it
    };
    failover.wish(now_us, is_complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_whose_nodes_decide_holds_and_is_the_same_run_again() {
        let seed = FAILOVER_SEEDS.start + 1;
        let first = crate::cluster::run(seed);
        assert_eq!(first.failure, None);
        assert_eq!(first.hash, crate::cluster::run(seed).hash);
    }

    #[test]
    fn a_seed_whose_clients_ask_for_level_all_holds() {
        assert!(asks_for_all(ALL_SEEDS.start) && !asks_for_all(FAILOVER_SEEDS.start));
        assert_eq!(crate::cluster::run(ALL_SEEDS.start + 1).failure, None);
    }
}
