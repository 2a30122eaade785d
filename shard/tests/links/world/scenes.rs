//! Scenes that are told step by step, because chance meets them too seldom.

use penstock_shard::replication::notes::{Notes, Tags};
use penstock_shard::replication::{Journal, Role};
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::record::part_bytes;

use super::{Assignment, LOG_ID, Logs, NODES, PARTITIONS, SEGMENT_BYTES, World};

/// What goes wrong in the middle of a handover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The link ends.
    LinkEnds,
    /// The node that hands over starts again.
    OldStarts,
    /// The node that is to write starts again.
    NewStarts,
    /// Both do.
    BothStart,
}

impl World {
    /// A node deletes a key in a tail of its own, follows one that has an older value of it, and is
    /// let write before it has rewound, and perhaps loses its power so many turns later: what it
    /// serves it serves behind a start, too, and so do those to whom it ships all of it.
    pub fn force_in_a_rewind(seed: u64, power_cut: Option<usize>) {
        let mut world = World::new(seed, Some(1));
        let partition = PARTITIONS[0];
        let first = world.plan[&partition].primary;
        let second = (first + 1) % NODES;
        let key = world.keys[&partition][2].clone();
        let change = |world: &mut World, at: usize, value: Option<u8>| {
            let change = (key.clone(), value.map(|it| vec![it; 8]));
            let done = world.commit(at, partition, &[change]);
            assert!(done.is_some(), "node {at} writes");
            world.exchange(6);
        };
        let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        world.cut = all.filter(|&pair| pair != (first, second)).collect();
        world.exchange(20);
        change(&mut world, first, Some(1));
        world.part(first, second);
        change(&mut world, first, Some(2));
        assert!(world.promote_to(partition, second, false));
        world.exchange(6);
        change(&mut world, second, None);
        assert!(world.promote_to(partition, first, false));
        world.exchange(6);

        world.cut.remove(&(first, second));
        let mut is_back = false;
        for _ in 0..40 {
            world.exchange(1);
            is_back = world.contents(second, partition).contains_key(&key);
            if is_back {
                break;
            }
        }
        let state = world.state(second, partition);
        let is_rewinding = state.facts().rewind_from.is_some();
        assert!(is_back && is_rewinding, "{state:?}");
        world.part(first, second);
        assert!(world.promote_to(partition, second, true));
        if let Some(turns) = power_cut {
            world.exchange(turns);
            world.restart(second);
            let is_begun = matches!(world.state(second, partition).role(), Role::Primary { .. });
            assert!(is_begun || world.promote_to(partition, second, true));
        }
        world.exchange(40);
        let node = &world.nodes[second];
        assert!(node.links.may_write(partition, &node.store));
        let served = world.contents(second, partition);
        assert!(power_cut.is_some() || served.contains_key(&key));
        world.restart(second);
        assert_eq!(world.contents(second, partition), served);
        world.settle(false);
        world.check_end();
    }

    /// A node writes a value alone, as the last one of a segment, which its later starts cut behind
    /// it. The place of the value is longer than the value, and reaches behind the end of the file.
    /// The node follows its successor, which wrote the key too, and so must read it.
    pub fn rewind_over_the_end_of_a_cut_segment(seed: u64) {
        let mut world = World::new(seed, Some(1));
        let partition = PARTITIONS[0];
        let first = world.plan[&partition].primary;
        let second = (first + 1) % NODES;
        let key = world.keys[&partition][2].clone();
        let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        world.cut = all.filter(|&pair| pair != (first, second)).collect();
        world.exchange(20);
        world.part(first, second);
        // With the header of its frame it ends within eight bytes of a block.
        let part_len = 3 * BLOCK_BYTES - FRAME_HEADER_BYTES;
        let value_len = part_len - part_bytes(key.len(), 0, false, 0);
        let change = |world: &mut World, at: usize, value: Vec<u8>| {
            let done = world.commit(at, partition, &[(key.clone(), Some(value))]);
            assert!(done.is_some(), "node {at} writes");
        };
        change(&mut world, first, vec![7; value_len]);
        // Durable, and nothing behind it.
        for _ in 0..3 {
            world.turn(first);
            world.complete_all(first);
        }
        // The start behind it begins another segment, and the next one cuts the one before that.
        for _ in 0..2 {
            world.restart(first);
            world.exchange(3);
        }
        let lengths = world.nodes[first].disk.files.values().map(Vec::len);
        assert!(lengths.into_iter().any(|bytes| bytes < SEGMENT_BYTES));
        assert!(world.promote_to(partition, second, false));
        world.exchange(6);
        change(&mut world, second, vec![8; 8]);
        let tries = world.met.count("read from the log");
        world.settle(false);
        // What cannot be read would be tried in each turn.
        assert!(world.met.count("read from the log") < tries + 200);
        assert!(world.state(first, partition).is_whole());
        world.check_end();
    }

    /// A former primary starts with another number of shards. The tail that it had written alone
    /// stands in a log that it inherits, and goes with it: what the successor wrote to the same
    /// keys must not come before the tail is kept.
    pub fn change_shards_with_a_tail(seed: u64) {
        let mut world = World::new(seed, Some(1));
        let partition = PARTITIONS[0];
        let first = world.plan[&partition].primary;
        let second = (first + 1) % NODES;
        let key = world.keys[&partition][2].clone();
        let change = |world: &mut World, at: usize, value: u8| {
            let change = (key.clone(), Some(vec![value; 8]));
            let done = world.commit(at, partition, &[change]);
            world.exchange(6);
            done.expect("it writes").1
        };
        let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        world.cut = all.filter(|&pair| pair != (first, second)).collect();
        world.exchange(20);
        // What stands before the tail takes some time to be gone through.
        for other in world.keys[&partition].clone() {
            let done = world.commit(first, partition, &[(other, Some(vec![7; 15_000]))]);
            assert!(done.is_some());
            world.exchange(6);
        }
        change(&mut world, first, 1);
        world.part(first, second);
        let tail = change(&mut world, first, 2);
        assert!(world.promote_to(partition, second, false));
        world.exchange(6);
        change(&mut world, second, 3);

        let logs = Logs {
            own: LOG_ID + 1,
            inherited: Some(LOG_ID),
        };
        world.has_changed_shards = true;
        world.restart_with(first, logs);
        let cleaning = CleaningConfig {
            space_percent_max: 120,
            bytes_per_s: 4096,
            log_bytes_max: 0,
        };
        world.nodes[first].store.cleaning_mut().configure(cleaning);
        world.cut.remove(&(second, first));
        world.exchange(100);
        assert!(world.nodes[first].store.cleaning().inheritance().is_there());
        for _ in 0..200 {
            world.nodes[first].now_us += 1_000_000;
            world.exchange(1);
        }
        let node = &world.nodes[first];
        assert!(!node.store.cleaning().inheritance().is_there());
        assert!(node.lostfound.contains(&(partition, tail.at)), "{tail:?}");
        world.settle(false);
        world.check_end();
    }

    /// A scan does not bring a key that its destination has, because the deletion is gone: the
    /// destination sweeps the value. Later it writes the partition, and scans an empty node. Its
    /// ring holds the value, and behind it the deletion, which has the version of the value.
    pub fn scan_an_empty_node_from_one_that_has_swept(seed: u64) {
        let mut world = World::new(seed, Some(1));
        // Nothing is kept for others, and the ring holds everything that follows.
        (world.ring_bytes, world.backlog_bytes) = (1 << 20, 0);
        (0..NODES).for_each(|at| world.restart(at));
        let partition = PARTITIONS[0];
        let first = world.plan[&partition].primary;
        let (second, third) = ((first + 1) % NODES, (first + 2) % NODES);
        let key = world.keys[&partition][2].clone();
        let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        // The ring of the second one is read by a link that has nothing to ship until then.
        let is_there = |pair: &(usize, usize)| [(first, second), (second, third)].contains(pair);
        world.cut = all.filter(|pair| !is_there(pair)).collect();
        let pairs: Vec<_> = world.links.keys().copied().collect();
        pairs.into_iter().for_each(|pair| world.close(pair));
        world.exchange(20);
        let put = [(key.clone(), Some(vec![1; 8]))];
        assert!(world.commit(first, partition, &put).is_some());
        world.exchange(20);
        assert!(world.contents(second, partition).contains_key(&key));
        assert!(world.nodes[second].links.memory().ring_bytes > 0);

        world.part(first, second);
        let deletion = [(key.clone(), None)];
        assert!(world.commit(first, partition, &deletion).is_some());
        // Until cleaning has let the deletion go, too.
        let mut others = world.keys[&partition].clone();
        others.retain(|it| *it != key);
        let mut writes = 0;
        while world.is_on_disk(first, &key) {
            let other = world.random.below(others.len());
            let put = [(others[other].clone(), Some(vec![7; 8_000]))];
            assert!(world.commit(first, partition, &put).is_some());
            world.exchange(2);
            writes += 1;
            assert!(writes < 2_000, "the deletion stays");
        }
        world.cut.remove(&(first, second));
        world.exchange(60);
        assert!(!world.contents(second, partition).contains_key(&key));
        assert_eq!(world.nodes[second].links.counters().swept, 1);

        world.part(first, second);
        assert!(world.promote_to(partition, second, false));
        world.exchange(66);
        let state = world.state(third, partition);
        assert!(state.is_readable(), "{state:?}");
        assert!(!world.contents(third, partition).contains_key(&key));
        world.settle(false);
        world.check_end();
    }

    /// The only member goes away, for so many writes of a kibibyte, and comes back. Meanwhile the
    /// ring of the node that writes goes on, or gives up all that it holds; in the end both nodes
    /// have the same.
    pub fn leave_for(seed: u64, writes: usize) {
        let mut world = World::new(seed, Some(1));
        (world.ring_bytes, world.backlog_bytes) = (20_000, u64::MAX);
        (0..NODES).for_each(|at| world.restart(at));
        let partition = PARTITIONS[0];
        let first = world.plan[&partition].primary;
        let second = (first + 1) % NODES;
        let all = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        world.cut = all.filter(|&pair| pair != (first, second)).collect();
        let pairs: Vec<_> = world.links.keys().copied().collect();
        pairs.into_iter().for_each(|pair| world.close(pair));
        world.exchange(20);
        let keys = world.keys[&partition].clone();
        let write = |world: &mut World, number: usize| {
            let put = [(keys[number % keys.len()].clone(), Some(vec![7; 1_000]))];
            assert!(world.commit(first, partition, &put).is_some());
            world.exchange(2);
            world.nodes[first].links.memory().ring_bytes
        };
        let is_at_rest = |held: &u64| *held == 0;
        let held: Vec<_> = (0..40).map(|number| write(&mut world, number)).collect();
        assert!(!held.iter().any(is_at_rest), "{held:?}");
        world.part(first, second);
        let held: Vec<_> = (0..writes)
            .map(|number| write(&mut world, number))
            .collect();
        let (going_on, at_rest) = held.split_at(held.len().min(18));
        assert!(!going_on.iter().any(is_at_rest), "{held:?}");
        assert!(at_rest.iter().skip(4).all(is_at_rest), "{held:?}");
        assert!(held.iter().all(|held| *held <= 20_000), "{held:?}");
        world.cut.remove(&(first, second));
        let mut turns = 0;
        while !world.state(second, partition).is_readable() {
            world.exchange(1);
            turns += 1;
            assert!(turns < 1_000, "{writes} writes are not caught up with");
        }
        let held = write(&mut world, 0);
        assert!(!is_at_rest(&held));
        world.settle(false);
        world.check_end();
    }

    /// A node hands a partition over to another one, and so many steps later something goes wrong.
    /// It ends as it would have: the new one writes, and has all that there was.
    pub fn hand_over_with(mishap: Mishap, steps: usize) {
        let mut world = World::new(steps as u64, Some(1));
        let partition = PARTITIONS[0];
        let old = world.plan[&partition].primary;
        let new = (old + 1) % NODES;
        world.exchange(20);
        let key = world.keys[&partition][2].clone();
        let written = world.commit(old, partition, &[(key, Some(vec![1; 8]))]);
        let (_, written) = written.expect("it is served");
        // On its own disk, and perhaps nowhere else.
        for _ in 0..3 {
            world.turn(old);
            world.complete_all(old);
        }
        let assignment = Assignment {
            generation: world.plan[&partition].generation + 1,
            primary: new,
            handed_over_by: Some(old),
        };
        world.plan.insert(partition, assignment);
        world.hand_over(partition);
        for step in 0..steps {
            let at = [old, new][step / 2 % 2];
            match step % 2 {
                0 => {
                    world.nodes[at].now_us += 1_000;
                    world.turn(at);
                    world.complete_all(at);
                }
                _ => (0..20).for_each(|_| world.deliver()),
            }
        }
        world.close((old, new));
        world.close((new, old));
        if matches!(mishap, Mishap::OldStarts | Mishap::BothStart) {
            world.restart(old);
        }
        if matches!(mishap, Mishap::NewStarts | Mishap::BothStart) {
            world.restart(new);
        }
        world.exchange(40);
        let node = &world.nodes[new];
        assert!(node.links.may_write(partition, &node.store), "{mishap:?}");
        let state = world.state(new, partition);
        assert!(state.history().contains(written.at, state.applied()));
        let kept = world
            .nodes
            .iter()
            .map(|it| it.kept.len() + it.lostfound.len());
        assert_eq!(kept.sum::<usize>(), 0, "nothing has diverged");
        world.settle(false);
        world.check_end();
    }

    /// A node hands a partition over while its log has no room for the promise. Until the log has
    /// room again no turn of the node asks for another one: a server would use all of a core for
    /// nothing.
    pub fn hand_over_on_a_full_disk() {
        let mut world = World::new(0, Some(1));
        let partition = PARTITIONS[0];
        let old = world.plan[&partition].primary;
        let new = (old + 1) % NODES;
        world.exchange(20);
        world.fill_log(old);
        let assignment = Assignment {
            generation: world.plan[&partition].generation + 1,
            primary: new,
            handed_over_by: Some(old),
        };
        world.plan.insert(partition, assignment);
        world.hand_over(partition);
        world.exchange(40);
        let state = world.state(old, partition);
        assert!(matches!(state.role(), Role::Primary { .. }), "{state:?}");

        let mut asks = 0;
        for _ in 0..100 {
            world.turn(old);
            world.complete_all(old);
            asks += usize::from(world.nodes[old].links.take_due());
        }
        assert!(asks < 5, "{asks} of 100 turns ask for another one");

        world.full.clear();
        world.exchange(40);
        let node = &world.nodes[new];
        assert!(node.links.may_write(partition, &node.store));
        world.settle(false);
        world.check_end();
    }

    /// Whether a file of a node still names a key.
    fn is_on_disk(&self, at: usize, key: &[u8]) -> bool {
        let mut files = self.nodes[at].disk.files.values();
        files.any(|bytes| bytes.windows(key.len()).any(|found| found == key))
    }

    /// The disk of a node has no room for another segment, and its log is filled with local records
    /// until it takes none.
    fn fill_log(&mut self, at: usize) {
        self.full.insert(at);
        let tags = Tags::default();
        let facts = self.state(at, PARTITIONS[1]).facts().clone();
        let mut full_rounds = 0;
        for _ in 0..100_000 {
            let node = &mut self.nodes[at];
            let mut notes = Notes {
                store: &mut node.store,
                tags: &tags,
                now_us: node.now_us,
            };
            if notes.has_room() {
                notes.note(PARTITIONS[1], &facts);
                full_rounds = 0;
                continue;
            }
            full_rounds += 1;
            if full_rounds == 20 {
                return;
            }
            self.exchange(1);
        }
        panic!("the log of node {at} takes ever more");
    }
}
