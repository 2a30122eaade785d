//! Harms, which befall nodes beside blows. Nodes change their number of shards or stop on request,
//! disks are full, sectors rot, nodes leave and enter sync sets, and either side of a handover is
//! struck at any of its steps.
//! Harms draw from a stream of their own, so that a seed from before they existed is still the same
//! run.

use std::collections::BTreeMap;

use penstock_net::link::Membership;
use penstock_shard::Event as ShardEvent;
use penstock_shard::cluster::{Assignment, PartitionRole};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::place::FileId;

use crate::damage;
use crate::disk::DiskFaults;
use crate::random::Random;

use super::event::Strike;
use super::{Event, NODES, Phase, Setting, Step, World, number_of};

/// What a long run with harms must meet.
pub(super) const MUST_MEET: &[&str] = &[
    "entered the sync set",
    "expiring",
    "full disk",
    "FULL",
    "handover struck",
    "inherited logs gone",
    "joining",
    "left the sync set",
    "member again",
    "member no more",
    "read damaged",
    "rot",
    "shards changed",
    "shards changed again",
    "stopped on request",
];

/// A node that was asked to stop has stopped within this time.
const STOP_US_MAX: u64 = 60_000_000;
/// How long it takes until somebody tries again to make a spare on a full disk.
const SPARE_AGAIN_US: u64 = 20_000;
/// Some seeds from here on have long values.
const LONG_VALUES_FROM: u64 = 700_000_000;

/// What a seed decides of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Harms {
    /// Between two harms, about; none if 0.
    every_us: u64,
    /// Whether nodes stop on request.
    stops: bool,
    pub(super) full_disks: bool,
    /// How long a disk stays full at most.
    pub(super) full_us_max: u64,
    rot: bool,
    members: bool,
    /// Whether a sync set without a proven node begins in a new generation.
    pub(super) renews: bool,
    /// Parts of a million of the starts that have another number of shards.
    reshards: u32,
    /// Of the steps of handovers at which somebody is struck.
    strikes: u32,
    /// Of the reads that fail or bring other bytes, once for each block.
    read_errors: u32,
    /// Of the values that expire.
    pub(super) expiring: u32,
}

impl Harms {
    /// Gives the clients of some seeds long values: the longer a value, the further its place may
    /// reach behind the end of a cut segment.
    pub(super) fn lengthen_values(&self, seed: u64, setting: &mut Setting) {
        if seed >= LONG_VALUES_FROM && seed % 5 == 3 && !self.full_disks {
            setting.value_bytes = 16_000;
            setting.read_bytes = setting.read_bytes.max(300 << 10);
        }
    }

    pub(super) fn new(random: &mut Random) -> Self {
        Harms {
            every_us: random.pick(&[50_000, 200_000, 1_000_000]),
            stops: random.chance(500_000),
            full_disks: random.chance(300_000),
            full_us_max: 5_000_000,
            rot: random.chance(250_000),
            members: random.chance(500_000),
            renews: false,
            reshards: random.pick(&[0, 0, 200_000, 600_000]),
            strikes: random.pick(&[0, 100_000, 400_000]),
            read_errors: random.pick(&[0, 0, 20_000]),
            expiring: random.pick(&[0, 0, 300_000]),
        }
    }

    /// Nodes move members by themselves, and what keeps a disk from being written is left out: it
    /// keeps writers from beginning.
    pub(super) fn leave_to_deciders(&mut self) {
        self.full_disks = false;
        self.rot = false;
        self.members = false;
        self.read_errors = 0;
    }

    /// Whether a part on a disk may be unreadable.
    pub(super) fn may_fail_to_read(&self) -> bool {
        self.rot
    }

    pub(super) fn takes_members_out(&self) -> bool {
        self.members
    }
}

/// Where the two of a handover are: the role and the promise of each.
pub(super) type Stage = [Option<(PartitionRole, u32)>; 2];

impl World {
    pub(super) fn begin_harms(&mut self) {
        if self.harms.every_us > 0 {
            let delay_us = self.harm.latency(self.harms.every_us);
            self.after(delay_us, Event::Harm);
        }
    }

    /// One of them.
    pub(super) fn befall(&mut self) {
        if self.phase != Phase::Traffic {
            return;
        }
        let node = self.harm.index(NODES);
        match self.harm.below(4) {
            0 if self.harms.stops => self.stop(node),
            1 if self.harms.full_disks => self.fill(node),
            2 if self.harms.rot => self.rot(node),
            3 if self.harms.members => self.move_member(),
            _ => {}
        }
        self.begin_harms();
    }

    /// Before a start: its disk is as it is to be, and perhaps it gets another number of shards.
    pub(super) fn prepare_start(&mut self, node: usize) {
        let is_traffic = self.phase == Phase::Traffic;
        let may_change = is_traffic && self.nodes[node].was_started;
        if self.harms.reshards > 0 && may_change && self.harm.chance(self.harms.reshards) {
            self.nodes[node].wanted_shards = self.harm.pick(&[1, 2, 3, 4]);
        }
        let mut disk = self.nodes[node].disk.borrow_mut();
        disk.heal();
        disk.faults = match is_traffic {
            true => DiskFaults {
                read_error: self.harms.read_errors,
                bad_read: self.harms.read_errors,
                is_passing: true,
                ..DiskFaults::default()
            },
            false => DiskFaults::default(),
        };
    }

    /// Whether what a node reads of its log may be damaged.
    pub(super) fn may_find_damage(&self, node: usize) -> bool {
        self.harms.read_errors > 0 || self.nodes[node].disk.borrow().is_damaged()
    }

    // ---- stops ----

    fn stop(&mut self, node: usize) {
        let is_stopping = self.nodes[node].stops_since_us.is_some();
        let is_paused = self.now_us < self.nodes[node].paused_until_us;
        if self.nodes[node].cores.is_none() || is_stopping || is_paused {
            return;
        }
        self.nodes[node].stops_since_us = Some(self.now_us);
        for shard in 0..usize::from(self.nodes[node].shards) {
            self.step(node, shard, ShardEvent::Stop);
        }
    }

    /// Ends the process of a node that has stopped.
    pub(super) fn end_stopped(&mut self, node: usize) {
        let cores = self.nodes[node].cores.iter().flatten();
        let is_stopping = self.nodes[node].stops_since_us.is_some();
        if is_stopping && cores.into_iter().all(|core| core.is_stopped) {
            self.meet("stopped on request");
            self.die(node, false);
            let again_us = self.harm.within(1_000, 1_000_000);
            self.after(again_us, Event::Start { node });
        }
    }

    pub(super) fn judge_stops(&self) -> Step {
        for (number, node) in self.nodes.iter().enumerate() {
            // What stands still stops once it goes on.
            let stands_us = node.paused_until_us.max(self.cores_stand_until_us(number));
            let since_us = node.stops_since_us.map(|us| us.max(stands_us));
            if since_us.is_none_or(|us| self.now_us <= us + STOP_US_MAX) {
                continue;
            }
            let cores = node.cores.iter().flatten();
            let waiting = cores.filter(|core| !core.is_stopped);
            let logs: Vec<String> = waiting
                .map(|core| {
                    let log = core.shard.store().log();
                    format!(
                        "{:?} appended, {:?} durable, {} spares wanted, starved: {}",
                        log.appended(),
                        log.durable(),
                        log.spares_wanted(),
                        log.is_starved(),
                    )
                })
                .collect();
            return Err(format!("a node that was asked to stop does not: {logs:?}"));
        }
        Ok(())
    }

    // ---- full disks ----

    fn fill(&mut self, node: usize) {
        self.meet("full disk");
        self.was_full = true;
        let segment_bytes = self.nodes[node].segment_bytes(&self.setting);
        let segment_bytes = usize::try_from(segment_bytes).expect("small");
        let more = self.harm.pick(&[0, segment_bytes, 3 * segment_bytes]);
        let mut disk = self.nodes[node].disk.borrow_mut();
        disk.bytes_max = disk.used_bytes() + more;
        drop(disk);
        let full_us = self.harm.within(10_000, self.harms.full_us_max);
        self.after(full_us, Event::Roomy { node });
    }

    pub(super) fn make_roomy(&mut self, node: usize) {
        self.nodes[node].disk.borrow_mut().bytes_max = 0;
    }

    /// A spare for a shard, or none on a full disk.
    pub(super) fn spare(&mut self, node: usize, shard: usize) {
        let salt = self.chance.bits();
        let all_bytes = self.nodes[node].segment_bytes(&self.setting);
        let short_bytes = all_bytes - self.setting.segment_bytes_more;
        let shards = u64::from(self.nodes[node].shards);
        let mut disk = self.nodes[node].disk.borrow_mut();
        let kept_bytes = match disk.bytes_max {
            0 => 0,
            _ => shards * short_bytes,
        };
        let made = disk.create(all_bytes, kept_bytes, salt);
        let mut made = made.map(|(file, is_reused)| (file, all_bytes, is_reused));
        let cores = self.nodes[node].cores.as_ref().expect("it runs");
        if made.is_none() && cores[shard].shard.store().log().is_starved() {
            let short = disk.create(short_bytes, 0, salt);
            made = short.map(|(file, is_reused)| (file, short_bytes, is_reused));
        }
        drop(disk);
        let Some((file, bytes, is_reused)) = made else {
            self.step(node, shard, ShardEvent::SpareRefused);
            let run = self.nodes[node].run;
            self.after(SPARE_AGAIN_US, Event::Spare { node, run, shard });
            return;
        };
        let spare = ShardEvent::Spare {
            file,
            salt,
            bytes,
            is_reused,
        };
        self.step(node, shard, spare);
    }

    // ---- rot ----

    /// A sector of a sealed segment rots. It is put right while the node is down.
    fn rot(&mut self, node: usize) {
        if self.nodes[node].cores.is_none() || self.nodes[node].disk.borrow().is_damaged() {
            return;
        }
        let mut disk = self.nodes[node].disk.borrow_mut();
        let mut logs: BTreeMap<u64, Vec<(u64, FileId, usize)>> = BTreeMap::new();
        for (file, image) in disk.images() {
            if let Some(header) = damage::header_of(image) {
                let home = header.home();
                let of_log = logs.entry(home.log_id).or_default();
                of_log.push((home.segment_sequence, file, image.len()));
            }
        }
        let old = logs.into_values().flat_map(|mut segments| {
            segments.sort_unstable();
            // The last one is written, and what closes the one before may be under way.
            segments.truncate(segments.len().saturating_sub(2));
            segments
        });
        let is_good = |&(_, file, bytes): &(u64, FileId, usize)| {
            bytes > BLOCK_BYTES && !disk.forgotten.contains(&file) && disk.is_at_rest(file)
        };
        let old: Vec<(u64, FileId, usize)> = old.filter(is_good).collect();
        if old.is_empty() {
            return;
        }
        let (_, file, bytes) = self.harm.pick(&old);
        let blocks = bytes / BLOCK_BYTES;
        let offset = BLOCK_BYTES * (1 + self.harm.index(blocks - 1)) + self.harm.index(BLOCK_BYTES);
        match self.harm.chance(500_000) {
            true => disk.make_unreadable(file, offset),
            false => {
                let byte = disk.image(file).expect("just seen")[offset];
                disk.damage(file, offset, &[byte ^ 1 << self.harm.below(8)]);
            }
        }
        drop(disk);
        self.meet("rot");
        let run = self.nodes[node].run;
        let until_us = self.harm.within(50_000, 3_000_000);
        self.after(until_us, Event::Repair { node, run });
    }

    /// The operator ends a node whose disk is damaged and starts it on a good copy.
    pub(super) fn repair(&mut self, node: usize) {
        if self.nodes[node].disk.borrow().is_damaged() {
            self.die(node, false);
            self.after(1_000, Event::Start { node });
        }
    }

    // ---- members ----

    /// A node leaves the sync set of a partition, begins to enter it, or holds it no more.
    fn move_member(&mut self) {
        let partition = self.harm.pick(&self.partitions);
        let mut plan = (*self.plan).clone();
        let assignment = &mut plan.partitions[usize::from(partition)];
        let number = number_of(self.harm.index(NODES));
        if assignment.primary == number {
            return;
        }
        let before = assignment.clone();
        let members = &mut assignment.members;
        let at = members.iter().position(|&(member, _)| member == number);
        let what = match at.map(|at| (at, members[at].1)) {
            None => {
                members.push((number, Membership::Learner));
                "member again"
            }
            Some((at, Membership::Sync)) => {
                members[at].1 = Membership::Learner;
                "left the sync set"
            }
            Some((at, Membership::Learner)) if self.harm.chance(250_000) => {
                members.remove(at);
                "member no more"
            }
            Some((at, Membership::Learner)) => {
                members[at].1 = Membership::Sync;
                "joining"
            }
        };
        // One that enters is not proven, whatever it was; one that leaves is none of the set.
        let joining = self.joining.keys().filter(|(of, _)| *of == partition);
        let joining: Vec<u8> = joining.map(|&(_, it)| it).chain([number]).collect();
        if self.harms.renews && before.needs_generation(assignment, &joining) {
            // As the command, which changes nothing before a handover is over.
            let primary = usize::from(before.primary) - 1;
            if before.is_handed_over && !self.serves(primary, partition) {
                return;
            }
            assignment.renew();
            self.meet("sync set in a new generation");
            self.handed.remove(&partition);
            self.prove_anew(partition);
        }
        let is_sync = |it: &Assignment| it.members.contains(&(number, Membership::Sync));
        let key = (partition, number);
        match (is_sync(&before), is_sync(assignment)) {
            (true, false) => {
                self.joining.remove(&key);
            }
            (false, true) => {
                self.next_joining += 1;
                self.joining.insert(key, self.next_joining);
            }
            _ => {}
        }
        self.meet(what);
        self.publish(plan);
    }

    /// Every node holds everything again.
    pub(super) fn complete_members(&mut self) {
        let mut plan = (*self.plan).clone();
        for &partition in &self.partitions {
            let assignment = &mut plan.partitions[usize::from(partition)];
            for number in (0..NODES).map(number_of) {
                let mut members = assignment.members.iter();
                let is_member = members.any(|&(member, _)| member == number);
                if !is_member && assignment.primary != number {
                    assignment.members.push((number, Membership::Learner));
                }
            }
        }
        if plan != *self.plan {
            self.publish(plan);
        }
    }

    /// Whether a node may be promoted: it is in the sync set, and it has all that was acknowledged
    /// before it entered the set.
    pub(super) fn is_promotable(&self, partition: u16, number: u8) -> bool {
        if let Some(is_promotable) = self.is_promotable_by_store(partition, number) {
            return is_promotable;
        }
        let mut members = self.plan.partitions[usize::from(partition)].members.iter();
        let is_sync = members.any(|&member| member == (number, Membership::Sync));
        is_sync && !self.joining.contains_key(&(partition, number))
    }

    /// The joining nodes that are proven complete by a read at level replica that this node answers
    /// now: those in the sync set of the plan that this node knows.
    pub(super) fn proves(&self, node: usize, partition: u16) -> Vec<u64> {
        let at = usize::from(partition);
        let (here, newest) = (
            &self.nodes[node].plan.partitions[at],
            &self.plan.partitions[at],
        );
        let is_it = here.primary == number_of(node)
            && (here.primary, here.generation) == (newest.primary, newest.generation);
        let waits_for = |member: u8| here.members.contains(&(member, Membership::Sync));
        let joining = self.joining.iter();
        joining
            .filter(|&(&(of, member), _)| is_it && of == partition && waits_for(member))
            .map(|(_, &number)| number)
            .collect()
    }

    /// Such a read was answered.
    pub(super) fn proved(&mut self, joining: &[u64]) {
        let before = self.joining.len();
        self.joining.retain(|_, number| !joining.contains(number));
        if self.joining.len() < before {
            self.meet("entered the sync set");
        }
    }

    /// Another node is to write a partition, so reads that were asked of its former writer prove
    /// nothing.
    pub(super) fn prove_anew(&mut self, partition: u16) {
        let of_partition = self
            .joining
            .iter_mut()
            .filter(|(key, _)| key.0 == partition);
        for (_, number) in of_partition {
            self.next_joining += 1;
            *number = self.next_joining;
        }
    }

    // ---- handovers ----

    /// Notes after a turn of a node how far each handover has come, and perhaps strikes one of its
    /// two nodes.
    pub(super) fn watch_handovers(&mut self) {
        if self.harms.strikes == 0 || self.phase != Phase::Traffic {
            return;
        }
        for (partition, (from, to, before)) in self.handed.clone() {
            let stage_at = |node: usize| {
                let state = self.nodes[node].partition(partition);
                state.map(|it| (it.role, it.epoch.0))
            };
            let stage = [stage_at(from), stage_at(to)];
            if stage == before {
                continue;
            }
            if matches!(stage[1], Some((PartitionRole::Primary, _))) {
                self.handed.remove(&partition);
            } else {
                self.handed.insert(partition, (from, to, stage));
            }
            if self.harm.chance(self.harms.strikes) {
                let node = self.harm.pick(&[from, to]);
                let strike = match self.harm.below(6) {
                    0 => Strike::Kill(node),
                    1 => Strike::PowerCut(node),
                    2 => Strike::Pause(node),
                    3 | 4 => Strike::Lose(from, to),
                    _ => Strike::Cut(from, to),
                };
                let network_us = self.setting.network_us;
                let delays = [0, 20, 200, network_us / 2, network_us, 3 * network_us];
                let delay_us = self.harm.pick(&delays);
                self.after(delay_us, Event::Strike { strike });
            }
        }
    }

    pub(super) fn strike(&mut self, strike: Strike) {
        if self.phase != Phase::Traffic {
            return;
        }
        self.meet("handover struck");
        match strike {
            Strike::Kill(node) => self.end_node(node, false),
            Strike::PowerCut(node) => self.end_node(node, true),
            Strike::Pause(node) => {
                let pause_us = self.harm.within(1_000, 500_000);
                self.pause(node, pause_us);
            }
            Strike::Lose(from, to) => {
                let of = |pair: &(usize, usize, usize, usize)| {
                    [(from, to), (to, from)].contains(&(pair.0, pair.2))
                };
                let links = self.linked.iter().filter(|(pair, _)| of(pair));
                for link in links.map(|(_, &link)| link).collect::<Vec<_>>() {
                    self.lose_link(link);
                }
            }
            Strike::Cut(from, to) => {
                let cut_us = self.harm.within(1_000, 500_000);
                self.cut(from, to, cut_us);
                self.cut(to, from, cut_us);
            }
        }
    }
}
