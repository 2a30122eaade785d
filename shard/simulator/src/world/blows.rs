//! What happens to the node, and the quiet behind it in which all is judged.

use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::request::BatchRequest;
use penstock_shard::Event as ShardEvent;
use penstock_storage::recovery::Corruption;

use crate::coverage::Fault;
use crate::disk::DiskFaults;
use crate::linear;
use crate::operation::Operation;
use crate::oracle::{self, State};
use crate::plan::Blow;

use super::{CLEAN_STOP_US_MAX, Event, Phase, QUIET_US_MAX, ROT_US_MAX, SETTLE_US, Step, World};

impl World {
    pub(super) fn advance(&mut self) -> Step {
        if self.phase == Phase::Traffic {
            while let Some(&(at, blow)) = self.plan.blows.get(self.next_blow)
                && self.issued >= at
            {
                // A node that is down or about to be waits for its next blow.
                let needs_node = matches!(blow, Blow::Kill | Blow::PowerCut | Blow::CleanStop);
                if needs_node && self.node.as_ref().is_none_or(|node| node.is_stopping) {
                    break;
                }
                self.next_blow += 1;
                self.strike(blow);
            }
            if self.issued >= self.plan.operations
                && self.next_blow >= self.plan.blows.len()
                && self.node.as_ref().is_some_and(|node| !node.is_stopping)
            {
                self.be_quiet();
            }
            return Ok(());
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.now_us > self.phase_us + QUIET_US_MAX {
            let waiting: Vec<String> = self
                .oracle
                .records
                .iter()
                .enumerate()
                .filter(|(_, record)| record.state == State::Pending)
                .take(3)
                .map(|(number, record)| {
                    format!(
                        "{number} {:?} on key {}",
                        record.plan.operation, record.plan.key
                    )
                })
                .collect();
            return Err(format!(
                "without faults {} s in phase {:?} are not enough; not answered: {}; {}",
                QUIET_US_MAX / 1_000_000,
                self.phase,
                waiting.join(", "),
                self.state_of_holds()
            ));
        }
        let is_served = self.node.as_ref().is_some_and(|node| !node.is_stopping);
        let is_idle = is_served
            && self
                .links
                .iter()
                .all(|link| link.is_abandoned || link.outstanding.is_empty());
        let all_ready = self.clients.iter().all(|client| {
            client
                .link
                .is_some_and(|link| self.links[link].is_ready && !self.links[link].is_closed)
        });
        match self.phase {
            Phase::Drain if is_idle => self.crash_once_more(),
            Phase::Quiet if is_idle && all_ready => {
                self.oracle.must_execute = true;
                self.keys_read = 0;
                self.enter(Phase::Audit);
            }
            Phase::Audit | Phase::Last
                if is_idle && all_ready && self.keys_read < self.plan.keys.len() =>
            {
                self.read_next_keys();
            }
            Phase::Audit | Phase::Last if is_idle && all_ready && !self.has_scanned => {
                let link = self.clients[0].link.expect("all are connected");
                self.send_page(0, link);
            }
            Phase::Audit | Phase::Last if is_idle && all_ready && self.has_others_left() => {
                self.read_others();
            }
            Phase::Audit if is_idle && all_ready => {
                self.has_scanned = false;
                self.keys_read = 0;
                self.last_reads = <_>::default();
                self.read_holds_again();
                self.read_visits_again();
                self.enter(Phase::Last);
                self.stop();
            }
            Phase::Last if is_idle && all_ready && self.run > self.phase_run => {
                self.rot();
            }
            Phase::Rot => return self.must_be_reported(),
            _ => {}
        }
        Ok(())
    }

    /// Lets a bit of a sealed segment rot under the running node.
    fn rot(&mut self) {
        self.enter(Phase::Done);
        let Some(node) = self.node.as_ref().filter(|_| self.plan.scrub_us > 0) else {
            return;
        };
        let sealed: Vec<_> = node
            .cores
            .iter()
            .flat_map(|core| {
                let log = core.shard.store().log();
                let open = log.durable_end().segment_sequence;
                let sealed = log.sealed_segments().iter();
                sealed.filter(move |segment| segment.end.sequence < open)
            })
            .copied()
            .collect();
        if sealed.is_empty() {
            return;
        }
        let segment = sealed[self.chance.index(sealed.len())];
        let at = self
            .chance
            .index(usize::try_from(segment.end.end_offset).expect("small files"));
        let mut disk = self.disk.borrow_mut();
        let byte = disk.image(segment.file).expect("it is sealed")[at];
        disk.damage(segment.file, at, &[byte ^ 1 << self.chance.below(8)]);
        drop(disk);
        self.rotting = Some(segment.file);
        self.enter(Phase::Rot);
    }

    /// The rot must be told within two periods, unless cleaning has released the segment since.
    fn must_be_reported(&mut self) -> Step {
        let is_there = self.rotting.is_some_and(|file| {
            let cores = self.node.iter().flat_map(|node| &node.cores);
            let mut sealed = cores.flat_map(|core| core.shard.store().log().sealed_segments());
            sealed.any(|segment| segment.file == file)
        });
        if !is_there {
            self.enter(Phase::Done);
        } else if self.now_us > self.phase_us + 2 * self.plan.scrub_us + ROT_US_MAX {
            let cores = self.node.iter().flat_map(|node| &node.cores);
            let scrubbed: Vec<String> = cores
                .map(|core| {
                    let store = core.shard.store();
                    let sealed = store.log().sealed_segments().len();
                    let reads = core.shard.counters().reads;
                    format!(
                        "{:?} over {sealed} segments, {reads} reads",
                        store.scrubbing().counters()
                    )
                })
                .collect();
            return Err(format!(
                "what rotted in a sealed segment was not told: {}; {}",
                self.describe_damage().join(", "),
                scrubbed.join(", ")
            ));
        }
        Ok(())
    }

    /// Looking through sealed segments found damage.
    pub(super) fn judge_rotten(&mut self, rotten: &Corruption) -> Step {
        self.trace.fold_bytes(rotten.to_string().as_bytes());
        let disk = self.disk.borrow();
        let may_misread = disk.faults.read_error > 0 || disk.faults.bad_read > 0;
        if !disk.is_damaged() && !may_misread {
            return Err(format!("nothing is damaged, and it was told: {rotten}"));
        }
        drop(disk);
        if self.rotting == Some(rotten.file) {
            self.rotting = None;
            self.hit(Fault::RotReported);
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_us = self.now_us;
        self.phase_run = self.run;
    }

    /// No more faults from here on.
    fn be_quiet(&mut self) {
        {
            let mut disk = self.disk.borrow_mut();
            disk.faults = DiskFaults::default();
            disk.bytes_max = 0;
            disk.is_full = false;
        }
        self.plan.memory_bytes_max = usize::MAX;
        let now = self.now();
        for core in self.node.iter_mut().flat_map(|node| &mut node.cores) {
            let bytes = usize::MAX;
            core.shard
                .step(now, ShardEvent::MemoryBound { bytes }, &mut core.outbox);
        }
        self.plan.slow_network = 0;
        if self.paused_until_us > self.now_us {
            self.paused_until_us = self.now_us;
            self.at(self.now_us, Event::RunsAgain);
        }
        // Either everything is answered first, or everything that is on its way meets the crash.
        self.enter(Phase::Drain);
        if self.chance.chance(500_000) {
            self.crash_once_more();
        }
    }

    /// What this crash leaves must be all.
    fn crash_once_more(&mut self) {
        self.enter(Phase::Quiet);
        let is_power_cut = self.chance.chance(700_000);
        self.hit(if is_power_cut {
            Fault::PowerCut
        } else {
            Fault::Kill
        });
        self.die(is_power_cut);
        self.pass_expiries();
    }

    fn stop(&mut self) {
        self.hit(Fault::CleanStop);
        let Some(node) = self.node.as_mut() else {
            return;
        };
        node.is_stopping = true;
        let run = node.run;
        for shard in 0..usize::from(self.layout.shards) {
            self.step(shard, ShardEvent::Stop);
        }
        self.at(self.now_us + CLEAN_STOP_US_MAX, Event::Exit { run });
    }

    /// Reads the next few keys at level disk: so few that no queue may be full.
    fn read_next_keys(&mut self) {
        let link = self.clients[0].link.expect("all are connected");
        let next = self.keys_read;
        let plans: Vec<oracle::Plan> = (next..self.plan.keys.len())
            .take(4)
            .map(|key| oracle::Plan {
                units: 1,
                expected: self.oracle.seen_version(key),
                ..oracle::Plan::new(Operation::Get, key, AckLevel::Disk)
            })
            .collect();
        self.keys_read += plans.len();
        self.send_batch(link, AckLevel::Disk, plans);
    }

    /// Whether the last look has not read all keys that have judges of their own.
    fn has_others_left(&self) -> bool {
        self.has_sales_left()
            || self.has_holds_left()
            || self.has_banks_left()
            || self.has_visits_left()
    }

    /// Reads some of them.
    fn read_others(&mut self) {
        match () {
            () if self.has_sales_left() => self.read_sales(),
            () if self.has_holds_left() => self.read_holds(),
            () if self.has_banks_left() => self.read_banks(),
            () => self.read_visits(),
        }
    }

    fn strike(&mut self, blow: Blow) {
        self.trace.fold(&[self.issued as u64, 0xB10]);
        let live: Vec<usize> = self
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| {
                link.client.is_some() && link.is_ready && !link.is_closed && !link.is_abandoned
            })
            .map(|(number, _)| number)
            .collect();
        let victim = (!live.is_empty()).then(|| live[self.chance.index(live.len())]);
        match blow {
            Blow::Kill => {
                self.hit(Fault::Kill);
                self.die(false);
            }
            Blow::PowerCut => {
                self.hit(Fault::PowerCut);
                self.die(true);
            }
            Blow::CleanStop => self.stop(),
            Blow::Pause(us) => {
                self.hit(Fault::Pause);
                self.paused_until_us = self.paused_until_us.max(self.now_us + us);
                let until_us = self.paused_until_us;
                self.held_up_until_us = self.held_up_until_us.max(until_us + SETTLE_US);
                self.at(until_us, Event::RunsAgain);
            }
            Blow::ClockJump(ms) => {
                self.hit(Fault::ClockJump);
                self.unix_offset_ms += ms;
            }
            Blow::NoSpace(us) => {
                self.disk.borrow_mut().is_full = true;
                // Whoever waits for a segment waits until then, and for the maker's next try.
                self.held_up_until_us = self.held_up_until_us.max(self.now_us + us + SETTLE_US);
                self.at(self.now_us + us, Event::SpaceIsBack);
            }
            Blow::Cut => {
                if let Some(link) = victim {
                    self.hit(Fault::CutConnection);
                    self.close_at_server(link);
                }
            }
            Blow::HalfOpen => {
                if let Some(link) = victim {
                    self.hit(Fault::HalfOpen);
                    self.give_up(link);
                }
            }
            Blow::SlowReader(us) => {
                if let Some(link) = victim {
                    self.hit(Fault::SlowReader);
                    self.links[link].is_reading = false;
                    self.at(self.now_us + us, Event::ReadsAgain { link });
                }
            }
            Blow::Hostile => {
                self.hit(Fault::HostileBytes);
                let link = self.open_link(None);
                let mut bytes = Vec::new();
                if self.chance.chance(500_000) {
                    ClientHello {
                        protocol_min: 1,
                        protocol_max: 1,
                        features: 0,
                        name: "hostile",
                    }
                    .write(&mut bytes, 0);
                }
                let mut batch = BatchRequest::begin(&mut bytes, 9, AckLevel::Disk, 0, 1);
                // Reads alone: a flipped bit that makes another good request changes nothing.
                batch.get(&mut bytes, b"nobody's key");
                batch.finish(&mut bytes);
                for _ in 0..self.chance.within(1, 8) {
                    let at = self.chance.index(bytes.len());
                    bytes[at] ^= 1 << self.chance.below(8);
                }
                let noise = self.chance.index(200);
                for _ in 0..noise {
                    let [byte, ..] = self.chance.bits().to_le_bytes();
                    bytes.push(byte);
                }
                self.send_to_server(link, bytes);
            }
        }
    }

    pub(super) fn judge(&mut self) -> Result<u64, String> {
        if self.plan.shards < 2
            || self.plan.clients < 8
            || self.oracle.records.len() < 5_000
            || self.recoveries < 1
        {
            return Err(format!(
                "the run does not count: {} shards, {} clients, {} operations, {} recoveries",
                self.plan.shards,
                self.plan.clients,
                self.oracle.records.len(),
                self.recoveries
            ));
        }
        self.oracle.finish()?;
        if let Some(sales) = &self.sales {
            sales.finish()?;
        }
        if let Some(node) = &self.node {
            self.judge_tokens(&node.cores)?;
        }
        if let Some(holds) = &self.holds {
            holds.finish()?;
        }
        if let Some(transactions) = &mut self.transactions {
            transactions.finish()?;
        }
        if let Some(visiting) = &mut self.visiting {
            visiting.visits.finish()?;
        }
        linear::check(&self.oracle)
    }
}
