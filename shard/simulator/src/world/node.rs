//! The life of the node: starts, ends, files.

use std::rc::Rc;

use penstock_net::hello::{AUTH_NONE, ServerHello};
use penstock_net::limits::Limits;
use penstock_shard::opening::{
    Inventory, Leftovers, OpeningError, SegmentFiles, change_shards, open_shard, prove_spares,
    take_inventory,
};
use penstock_shard::{
    Event as ShardEvent, KeyTableOrder, Outbox, Shard, ShardConfig, SnapshotPolicy, SnapshotWrite,
    Topology, opening,
};
use penstock_storage::budget::Budget as MemoryBudget;
use penstock_storage::cleaning::RoomOnDisk;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::key_table::{KeyTable, TableHome};
use penstock_storage::log::LogConfig;
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::record::part_bytes;
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{Recovered, RecoveryError, Survey};
use penstock_storage::snapshot::SnapshotName;
use penstock_storage::summary::SUMMARY_BYTES_MAX;
use penstock_storage::version::{SLOTS, partition_of};

use crate::coverage::Fault;
use crate::damage::{self, Expected};
use crate::disk::{Files, OWNER, Pool};
use crate::operation::Operation;
use crate::plan::Budget;
use crate::starts::compare_starts;

use super::{Core, Event, FLUSH_TURNS_US_MAX, FLUSH_WRITES_MAX, Node, Phase, Step, World};

/// Between two times that the room on the disk is told, in microseconds.
const ROOM_US: u64 = 100_000;
/// More than any run writes.
const LARGE_ROOM_BYTES: u64 = 1 << 40;

impl World {
    pub(super) fn start(&mut self) -> Step {
        if self.node.is_some() {
            return Ok(());
        }
        self.spoil_snapshots();
        self.spoil_key_tables();
        if self.phase == Phase::Traffic && self.reshards.chance(self.plan.reshards) {
            self.wanted_shards = self.reshards.pick(&[1, 2, 3, 4]);
        }
        if self.limits.chance(self.plan.limits) {
            let limits = [self.plan.value_bytes_max, self.plan.value_bytes_max / 3, 64];
            let before = std::mem::replace(&mut self.value_bytes_max, self.limits.pick(&limits));
            self.oracle.limit_values(self.value_bytes_max);
            if self.value_bytes_max < before {
                self.hit(Fault::ValueLimitLowered);
            }
        }
        self.choose_horizon();
        let expected = {
            let disk = self.disk.borrow();
            disk.is_damaged()
                .then(|| damage::expected(&disk, &self.layout))
        };
        // What stands before a snapshot's position is not read: this is about the log.
        let put_by = std::mem::take(&mut self.disk.borrow_mut().snapshots);
        match expected {
            Some(Expected::Hole) => {
                self.hit(Fault::Hole);
                self.disk.borrow_mut().heal();
            }
            Some(refusal @ (Expected::Refusal | Expected::Contradicted)) => {
                if refusal == Expected::Contradicted {
                    self.disk.borrow_mut().snapshots.clone_from(&put_by);
                }
                self.expect_refusal()?;
                self.disk.borrow_mut().heal();
            }
            Some(Expected::Harmless) | None => {}
        }
        self.disk.borrow_mut().snapshots = put_by;
        let mut is_cut_off = false;
        if self.phase == Phase::Traffic && self.chance.chance(self.plan.bad_starts) {
            let mut disk = self.disk.borrow_mut();
            if self.chance.chance(500_000) {
                disk.changes_left = Some(self.chance.below(6));
                is_cut_off = true;
            } else {
                disk.start_read_errors = 1;
            }
        }
        let opened = self.open();
        let mut disk = self.disk.borrow_mut();
        disk.changes_left = None;
        let had_read_error = disk.start_read_errors == 0;
        disk.start_read_errors = 0;
        drop(disk);
        match opened {
            Ok(cores) => {
                self.disk.borrow_mut().forget_damage();
                self.serve(cores);
                Ok(())
            }
            Err(OpeningError::System { .. }) if is_cut_off => {
                self.hit(Fault::PowerCutDuringStart);
                // Old frames may show behind the clean end now.
                self.was_clean = false;
                self.disk.borrow_mut().power_cut();
                let again_us = self.now_us + self.chance.within(1_000, 50_000);
                self.at(again_us, Event::Start);
                Ok(())
            }
            Err(OpeningError::Recovery(RecoveryError::Read { .. }))
                if had_read_error && !is_cut_off && expected != Some(Expected::Harmless) =>
            {
                let again_us = self.now_us + self.chance.within(1_000, 50_000);
                self.at(again_us, Event::Start);
                Ok(())
            }
            Err(refusal) => Err(format!(
                "a directory that only crashes touched is refused: {refusal}"
            )),
        }
    }

    /// A start on a damaged directory refuses and names the damage.
    fn expect_refusal(&mut self) -> Step {
        match self.open() {
            Err(OpeningError::Recovery(refusal)) => {
                let row = refusal.row();
                let is_read = matches!(refusal, RecoveryError::Read { .. });
                let text = refusal.to_string();
                if row.is_none() && !is_read {
                    return Err(format!("a refusal without a row: {text}"));
                }
                if let Some(row) = row {
                    self.coverage.borrow_mut().row(row);
                }
                self.trace.fold_bytes(text.as_bytes());
                Ok(())
            }
            Err(other) => Err(format!("damage was not named: {other}")),
            Ok(_) => Err(format!(
                "a damaged directory was taken for a good one: {}",
                self.describe_damage().join(", ")
            )),
        }
    }

    pub(super) fn describe_damage(&self) -> Vec<String> {
        let disk = self.disk.borrow();
        let damages = disk.damages.iter().map(|damage| {
            format!(
                "{:08}.seg at {} for {} bytes",
                damage.file.0,
                damage.offset,
                damage.good.len()
            )
        });
        let missing = disk
            .missing
            .iter()
            .map(|(file, _)| format!("{:08}.seg is gone", file.0));
        let strangers = disk
            .strangers
            .iter()
            .map(|file| format!("{:08}.seg is strange", file.0));
        let unreadable = disk
            .unreadable()
            .iter()
            .map(|(file, place)| format!("{:08}.seg cannot be read at {place}", file.0));
        damages
            .chain(missing)
            .chain(strangers)
            .chain(unreadable)
            .collect()
    }

    fn log_config(&self, shard: u16) -> LogConfig {
        LogConfig {
            owner: OWNER,
            incarnation: self.incarnation,
            log_id: self.layout.log_of(shard),
            frame_bytes: self.plan.frame_bytes,
            record_bytes_max: 2 * part_bytes(1024, self.plan.value_bytes_max, true, 0),
            frames_in_flight_max: self.plan.frames_in_flight_max,
            frames_sealed_max: self.plan.frames_sealed_max,
            sync: self.plan.sync,
            interval_us: self.plan.interval_us,
            idle_mark_us: self.plan.idle_mark_us,
        }
    }

    pub(super) fn segment_bytes(&self) -> u64 {
        self.log_config(0)
            .segment_bytes_min()
            .next_multiple_of(4096)
            + self.plan.segment_bytes_more
    }

    /// Opens every shard as the server does.
    fn open(&mut self) -> Result<Vec<Core>, OpeningError> {
        // Made durable before anything is read, as the server does with its identity.
        self.incarnation += 1;
        let mut files = Files(Rc::clone(&self.disk));
        let segment_bytes = self.segment_bytes();
        let mut inventory = take_inventory(&mut files, OWNER, &self.layout, segment_bytes)?;
        if !inventory.survey.void.is_empty() {
            self.hit(Fault::VoidLog);
        }
        if self.wanted_shards != self.layout.shards {
            self.change_shards(&mut files, &inventory)?;
            inventory = take_inventory(&mut files, OWNER, &self.layout, segment_bytes)?;
        }
        for row in inventory.survey.rows.iter() {
            self.coverage.borrow_mut().row(row);
        }
        let mut cores = Vec::new();
        let mut ends = Vec::new();
        for shard in 0..self.layout.shards {
            let (core, end) = self.open_core(&mut files, &inventory, shard)?;
            cores.push(core);
            ends.push(end);
        }
        self.log_ends = ends;
        if let Err(wrong) = self.judge_tokens(&cores) {
            self.failure = Some(format!("at a start {wrong}"));
        }
        self.supply_spares(&mut files, inventory.left, &mut cores)?;
        Ok(cores)
    }

    fn change_shards(
        &mut self,
        files: &mut Files,
        inventory: &Inventory,
    ) -> Result<(), OpeningError> {
        let (shards, incarnation) = (self.wanted_shards, self.incarnation);
        let changed = change_shards(files, inventory, OWNER, shards, incarnation, false)?;
        let layout = changed.layout;
        files.change().map_err(|error| OpeningError::System {
            action: "write IDENTITY",
            error,
        })?;
        self.hit(
            match layout.inherited.len() > usize::from(self.layout.shards) {
                true => Fault::ShardsChangedAgain,
                false => Fault::ShardsChanged,
            },
        );
        self.layout = layout;
        self.log_ends = vec![Lsn(0); usize::from(shards)];
        Ok(())
    }

    fn shard_config(&self, shard: u16, topology: Topology) -> ShardConfig {
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            value_bytes_max: u32::try_from(self.value_bytes_max).expect("small values"),
        };
        let hello = ServerHello {
            protocol: 1,
            shard,
            shard_count: self.layout.shards,
            auth_methods: AUTH_NONE,
            cluster_id: OWNER.cluster_id,
            node_id: OWNER.node_id,
            incarnation: self.incarnation,
            features: 0,
            nonce: [0; 32],
            limits,
            time_ms: 0,
            interval_ms: u32::try_from(self.plan.interval_us / 1000).expect("small"),
            slots: topology.ranges(|shard| 7000 + shard),
            placement: None,
        };
        ShardConfig {
            shard,
            topology,
            hello,
            level_min: self.plan.level_min,
            output_bytes_max: 64 << 10,
            shared_bytes_min: 1,
            partial_frame_us_max: 5_000_000,
            write_stall_us_max: 5_000_000,
            idle_us_max: 60_000_000,
            replies_bytes_max: self.plan.replies_bytes_max,
            input_bytes_max: 64 << 20,
            parked_bytes_max: 1 << 20,
            mailed_items_max: self.plan.mailed_items_max,
            memory_max: 0,
            token_horizon_ms: self.token_horizon_ms,
            hash_seed: self.hash_seed,
            takes_several_shards: false,
            cluster: None,
            snapshots: SnapshotPolicy {
                log_bytes: self.plan.snapshot_bytes,
                stop_us_max: 3_000_000,
            },
            cleaning: self.plan.cleaning,
        }
    }

    /// Opens one shard and judges the findings of its start. Returns the shard and the end of its
    /// log.
    fn open_core(
        &mut self,
        files: &mut Files,
        inventory: &Inventory,
        shard: u16,
    ) -> Result<(Core, Lsn), OpeningError> {
        let topology = Topology::new(self.layout.shards);
        let config = self.shard_config(shard, topology);
        let log = self.log_config(shard);
        // What the log needs at the least; reads share it.
        let frame_bytes = log.frame_bytes.max(log.record_bytes_max + 4096);
        let pool = Pool::new(
            (log.frames_sealed_max + 1) * (frame_bytes + 4096)
                + SUMMARY_BYTES_MAX
                + self.plan.pool_bytes,
        );
        let alone = self.replay_alone(&inventory.survey, shard);
        let opening::Opened {
            shard: mut opened,
            recovered,
            files: _,
            snapshot,
            snapshots_refused,
            inherited_records,
        } = open_shard(
            files,
            inventory,
            config,
            log,
            self.segment_bytes(),
            self.budget(),
            pool,
        )?;
        self.note_sequences(&opened, topology, shard);
        if let Some((name, _)) = snapshot {
            self.hit(Fault::SnapshotUsed);
            let alone = alone.expect("there were snapshots");
            // The judge's own reads are no part of the start.
            let read_errors = std::mem::take(&mut self.disk.borrow_mut().start_read_errors);
            let compared = compare_starts(alone, &opened, &recovered, files);
            self.disk.borrow_mut().start_read_errors = read_errors;
            if let Err(difference) = compared {
                self.failure = Some(format!("with {name} a start differs: {difference}"));
            }
        }
        if !snapshots_refused.is_empty() {
            self.hit(Fault::SnapshotRefused);
        }
        self.judge_end(shard, &recovered);
        self.trace.fold(&[
            recovered.records,
            recovered.frames,
            recovered.start.last_lsn.0,
            inherited_records,
        ]);
        opened.execution_mut().scrub_within(self.plan.scrub_us);
        if self.plan.grows_segments {
            opened.execution_mut().grow_segments(self.segment_bytes());
        }
        let tables = &self.disk.borrow().key_tables;
        let tables = tables.iter().map(|(file, it)| (*file, it.len() as u64));
        opened.execution_mut().expect_key_tables(&tables.collect());
        let core = Core {
            shard: opened,
            outbox: Outbox::default(),
            turn_us: None,
            mail_us: vec![0; usize::from(self.layout.shards)],
            expired_dropped: 0,
            is_stopped: false,
            seen: None,
        };
        Ok((core, recovered.start.last_lsn))
    }

    /// Sequences of a partition never fall from one start to the next.
    fn note_sequences(&mut self, opened: &Shard<Pool>, topology: Topology, shard: u16) {
        for slot in (0..SLOTS).filter(|&slot| topology.owner(slot) == shard) {
            let partition = partition_of(slot);
            let found = opened.store().data().numbering().sequences()[partition];
            let last = &mut self.sequences[partition];
            if found < *last {
                self.failure = Some(format!(
                    "partition {partition} had come to sequence {last}, and a start goes on at \
                     {found}"
                ));
            } else {
                *last = found;
            }
        }
    }

    /// A log that was stopped cleanly is clean.
    fn judge_end(&mut self, shard: u16, recovered: &Recovered) {
        for row in recovered.rows.iter() {
            self.coverage.borrow_mut().row(row);
        }
        let has_written = recovered.start.last_lsn > self.log_ends[usize::from(shard)];
        let is_clean = recovered.is_clean() && recovered.torn.is_none();
        if self.was_clean && has_written && !is_clean {
            self.failure = Some(format!(
                "shard {shard} was stopped cleanly and its log is not clean: {:?} {:?}",
                recovered.start, recovered.rows
            ));
        }
    }

    /// Sets rotted spares aside, removes those that nobody needs, and deals the others out.
    fn supply_spares(
        &mut self,
        files: &mut Files,
        left: Leftovers,
        cores: &mut [Core],
    ) -> Result<(), OpeningError> {
        let rotten = prove_spares(files, &left).map_err(OpeningError::Recovery)?;
        for spare in &rotten {
            let action = "set a spare aside that has rotted";
            files
                .set_aside(spare.file)
                .map_err(|error| OpeningError::System { action, error })?;
        }
        let is_whole = |file: FileId| rotten.iter().all(|spare| spare.file != file);
        for &(file, _) in left.superfluous.iter().filter(|(file, _)| is_whole(*file)) {
            let action = "remove a spare segment that is not needed";
            files
                .remove(file)
                .map_err(|error| OpeningError::System { action, error })?;
        }
        let spares = left.spares.into_iter().filter(|(file, _)| is_whole(*file));
        for (place, (file, bytes)) in spares.enumerate() {
            let core = place % cores.len();
            let salt = self.chance.bits();
            let now = self.now();
            let Core { shard, outbox, .. } = &mut cores[core];
            let spare = ShardEvent::Spare {
                file,
                salt,
                bytes,
                is_reused: false,
            };
            shard.step(now, spare, outbox);
        }
        Ok(())
    }

    /// What a start would make of a log without its snapshots; nothing if it has none.
    fn replay_alone(
        &mut self,
        survey: &Survey,
        shard: u16,
    ) -> Option<Result<(Replayed, Recovered), RecoveryError>> {
        let log_id = self.layout.log_of(shard);
        let mut disk = self.disk.borrow_mut();
        if disk.snapshots.keys().all(|name| name.log_id != log_id) {
            return None;
        }
        let read_errors = std::mem::take(&mut disk.start_read_errors);
        drop(disk);
        let segments = survey.logs.get(&log_id).map_or(&[][..], Vec::as_slice);
        let files = Files(Rc::clone(&self.disk));
        let replayed = opening::replay_all(&files, segments, self.hash_seed, self.budget());
        self.disk.borrow_mut().start_read_errors = read_errors;
        Some(replayed)
    }

    pub(super) fn budget(&self) -> MemoryBudget {
        MemoryBudget {
            cache_bytes_max: self.plan.cache_bytes,
            memory_bytes_max: self.plan.memory_bytes_max,
            cells_bytes_min: MemoryBudget::cells_bytes_min(self.plan.value_bytes_max),
        }
    }

    fn serve(&mut self, mut cores: Vec<Core>) {
        if let Some(visiting) = &mut self.visiting {
            visiting.starts(&mut cores);
        }
        self.was_clean = false;
        self.run += 1;
        self.taken_over = 0;
        self.disk.borrow_mut().forgotten.clear();
        let epoch = u32::try_from(self.incarnation).expect("few starts") << 8;
        self.oracle.started(epoch);
        self.started_us = self.now_us;
        if let Some(holds) = &mut self.holds {
            holds.started();
        }
        if self.run > 1 {
            self.recoveries += 1;
        }
        self.node = Some(Node {
            run: self.run,
            cores,
            is_stopping: false,
        });
        for shard in 0..usize::from(self.layout.shards) {
            self.turn_soon(shard);
        }
        if self.plan.segment_files.are_given {
            self.give_room(self.run);
        }
        if self.first_frame_crash > 0 && self.chance.chance(500_000) {
            self.first_frame_crash = self.plan.first_frame_crashes;
        }
        if self.phase == Phase::Traffic && self.chance.chance(self.plan.early_crashes) {
            let when_us = self.now_us + self.chance.within(1, 8_000);
            self.at(when_us, Event::EarlyCrash { run: self.run });
        }
    }

    /// The process ends without a word.
    pub(super) fn die(&mut self, is_power_cut: bool) {
        self.count_key_tables();
        self.count_runs();
        if self.node.take().is_none() {
            return;
        }
        let mut disk = self.disk.borrow_mut();
        if is_power_cut {
            disk.power_cut();
        } else {
            disk.process_ends();
        }
        if self.plan.budget == Budget::Detectable
            && self.chance.chance(400_000)
            && !disk.is_damaged()
        {
            let inflicted = damage::inflict(&mut disk, &mut self.chance, &self.layout);
            drop(disk);
            if let Some(fault) = inflicted {
                self.hit(fault);
            }
        } else {
            drop(disk);
        }
        self.rot_spare();
        // A record that nobody waits for is written within the interval, and takes no longer to the
        // disk than this, unless something held the process or the disk up.
        let is_held_up = self.plan.disk.stall > 0 || self.now_us < self.held_up_until_us;
        let interval_from_us = match is_held_up {
            true => 0,
            false => self.now_us.saturating_sub(
                self.plan.interval_us + FLUSH_TURNS_US_MAX + FLUSH_WRITES_MAX * self.plan.disk_us.0,
            ),
        };
        self.oracle.crashed(interval_from_us);
        if let Some(sales) = &mut self.sales {
            sales.crashed();
        }
        for (scan, _) in self.clients.iter_mut().filter_map(|it| it.scan.as_mut()) {
            scan.crash(&self.oracle);
        }
        self.cut_all(is_power_cut);
        let again_us = self.now_us + self.chance.within(1_000, 300_000);
        self.at(again_us, Event::Start);
    }

    pub(super) fn exit_cleanly(&mut self) {
        self.count_key_tables();
        self.count_runs();
        self.node = None;
        self.disk.borrow_mut().process_ends();
        self.was_clean = !self.disk.borrow().is_damaged();
        if self.plan.budget == Budget::Detectable
            && self.phase == Phase::Traffic
            && self.was_clean
            && self.rots.chance(600_000)
        {
            let mut disk = self.disk.borrow_mut();
            let lost = damage::lose_tail(&mut disk, &mut self.rots, &self.layout);
            drop(disk);
            lost.inspect(|&fault| self.hit(fault));
        }
        self.rot_spare();
        self.cut_all(false);
        let again_us = self.now_us + self.chance.within(1_000, 300_000);
        self.at(again_us, Event::Start);
    }

    /// A bit of a spare rots now and then.
    fn rot_spare(&mut self) {
        if self.phase == Phase::Traffic && self.rots.chance(60_000) {
            let rotten = damage::rot_spare(&mut self.disk.borrow_mut(), &mut self.rots);
            rotten.inspect(|&fault| self.hit(fault));
        }
    }

    fn cut_all(&mut self, is_silent: bool) {
        for link in 0..self.links.len() {
            if !self.links[link].is_closed {
                self.links[link].is_closed = true;
                self.end_visit(link);
                let delay_us = if is_silent {
                    self.network.within(1_000, 500_000)
                } else {
                    self.network.latency(self.plan.network_us)
                };
                // What was on its way to the client is gone with the machine.
                self.at(self.now_us + delay_us, Event::Closed { link });
            }
        }
    }

    pub(super) fn spare(&mut self, run: u64, shard: usize) {
        if !self.is_run(run) {
            return;
        }
        let salt = self.chance.bits();
        let made = |bytes: u64, kept_bytes: u64| {
            let file = self.disk.borrow_mut().create(bytes, kept_bytes, salt);
            file.map(|(file, is_reused)| (file, bytes, is_reused))
        };
        let is_starved = self.node.as_ref().is_some_and(|node| {
            let log = node.cores[shard].shard.store().log();
            log.is_starved()
        });
        let short_bytes = self.log_config(0).segment_bytes_min();
        let short_bytes = short_bytes.next_multiple_of(4096);
        let kept_bytes = u64::from(self.plan.shards) * short_bytes;
        let short = || is_starved.then(|| made(short_bytes, 0)).flatten();
        let wanted_bytes = self.node.as_ref().map_or(self.segment_bytes(), |node| {
            let log = node.cores[shard].shard.store().log();
            log.spare_bytes_wanted(self.segment_bytes())
        });
        match made(wanted_bytes, kept_bytes).or_else(short) {
            Some((file, bytes, is_reused)) => {
                let spare = ShardEvent::Spare {
                    file,
                    salt,
                    bytes,
                    is_reused,
                };
                self.step(shard, spare);
            }
            None => {
                // They leave before a segment is refused.
                self.step(shard, ShardEvent::GiveUpKeyTables);
                self.step(shard, ShardEvent::SpareRefused);
                // The helper tries again whenever a file was removed; this is as good.
                let again_us = match self.plan.segment_files.most {
                    0 => 1_000_000,
                    _ => 20_000,
                };
                self.at(self.now_us + again_us, Event::Spare { run, shard });
            }
        }
    }

    /// Tells each shard what its log may have of the disk: what is free is shared out evenly.
    pub(super) fn give_room(&mut self, run: u64) {
        if !self.is_run(run) {
            return;
        }
        let used = self.disk.borrow().used_bytes();
        let all = self.disk.borrow().bytes_max;
        let free_bytes = match all {
            0 => LARGE_ROOM_BYTES,
            _ => all.saturating_sub(used) as u64,
        };
        let shards = self.node.as_ref().map_or(0, |node| node.cores.len());
        for shard in 0..shards {
            let Some(node) = self.node.as_ref() else {
                return;
            };
            let log = node.cores[shard].shard.store().log();
            let room = RoomOnDisk {
                log_bytes: log.held_bytes() + free_bytes / shards as u64,
                segment_bytes: log.spare_bytes_wanted(self.segment_bytes()),
            };
            self.step(shard, ShardEvent::Room(room));
        }
        self.at(self.now_us + ROOM_US, Event::Room { run });
    }

    /// The inherited logs are void from now on.
    pub(super) fn inherited_gone(&mut self, run: u64) {
        let ids = std::mem::take(&mut self.layout.inherited);
        self.hit(Fault::InheritedGone);
        let files: Vec<FileId> = self
            .disk
            .borrow()
            .images()
            .filter(|(_, image)| {
                damage::header_of(image)
                    .is_some_and(|header| ids.iter().any(|log| log.log_id == header.log_id))
            })
            .map(|(file, _)| file)
            .collect();
        for shard in 0..usize::from(self.layout.shards) {
            self.step(shard, ShardEvent::InheritedGone);
        }
        for file in files {
            let when_us = self.now_us + self.reshards.latency(5_000);
            self.at(when_us, Event::Remove { run, file });
        }
    }

    pub(super) fn write_snapshot(&mut self, shard: usize, write: SnapshotWrite) {
        let name = write.name;
        let mut disk = self.disk.borrow_mut();
        let is_good = !disk.is_full && !self.snapshots.chance(10_000) && disk.write_snapshot(write);
        if !is_good {
            disk.give_up_snapshot(name.log_id);
        }
        drop(disk);
        if !is_good {
            self.hit(Fault::SnapshotError);
        }
        self.step(shard, ShardEvent::SnapshotWritten { name, is_good });
    }

    pub(super) fn order_key_table(&mut self, run: u64, shard: usize, order: KeyTableOrder) {
        match order {
            KeyTableOrder::Load(home) | KeyTableOrder::Make(home) => {
                let event = Event::KeyTable {
                    run,
                    shard,
                    home,
                    is_left: order == KeyTableOrder::Load(home),
                };
                let when_us = self.now_us + self.key_tables.latency(2_000);
                self.at(when_us, event);
            }
            KeyTableOrder::Remove(file) => {
                let node = self.node.as_ref().expect("it runs");
                let mut homes = node.cores[shard].shard.execution().key_table_homes();
                if homes.any(|home| home.file == file) {
                    self.hit(Fault::KeyTableGivenUp);
                }
                let cores = node.cores.iter();
                let mut inherited =
                    cores.flat_map(|core| core.shard.store().cleaning().inheritance().files());
                // Another shard may have it open.
                if inherited.any(|of| of == file) {
                    return;
                }
                let mut disk = self.disk.borrow_mut();
                disk.key_tables.remove(&file);
                disk.forgotten.insert(file.key_table());
            }
        }
    }

    pub(super) fn make_key_table(&mut self, shard: usize, home: &TableHome) {
        let file = home.file;
        let sort_bytes_max = self.key_tables.pick(&[2_000, 1 << 20]);
        let home_of = Shard::<Pool>::home_of(self.hash_seed);
        let mut disk = self.disk.borrow_mut();
        let is_lost = disk.is_full || self.key_tables.chance(50_000);
        let table = match is_lost {
            true => None,
            false => disk.make_key_table(home, &home_of, sort_bytes_max),
        };
        disk.forgotten.remove(&file.key_table());
        drop(disk);
        self.hit(match table {
            Some(_) => Fault::KeyTableMade,
            None => Fault::KeyTableError,
        });
        self.step(shard, ShardEvent::KeyTable { file, table });
    }

    /// Takes over what an earlier run left, as the server does.
    pub(super) fn load_key_table(&mut self, shard: usize, home: &TableHome) {
        let file = home.file;
        let mut disk = self.disk.borrow_mut();
        // Another shard or a start may have removed it.
        let bytes = disk.key_tables.get(&file).map_or(&[][..], |bytes| bytes);
        let read = &mut |offset: u64, into: &mut [u8]| {
            let start = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
            let moved = into.len().min(bytes.len() - start);
            into[..moved].copy_from_slice(&bytes[start..start + moved]);
            Ok(moved)
        };
        let table = KeyTable::load(home, bytes.len() as u64, read).ok();
        match table {
            Some(_) => drop(disk.forgotten.remove(&file.key_table())),
            None => drop(disk.key_tables.remove(&file)),
        }
        drop(disk);
        self.hit(match table {
            Some(_) => Fault::KeyTableUsed,
            None => Fault::KeyTableRefused,
        });
        self.step(shard, ShardEvent::KeyTable { file, table });
    }

    /// Spoils key tables: they are not synced, they rot, and they may end up beside another
    /// segment.
    fn spoil_key_tables(&mut self) {
        let mut disk = self.disk.borrow_mut();
        let there: Vec<FileId> = disk.images().map(|(file, _)| file).collect();
        disk.key_tables.retain(|file, _| there.contains(file));
        let files: Vec<FileId> = disk.key_tables.keys().copied().collect();
        let random = &mut self.key_tables;
        let mut hits = Vec::new();
        for &file in &files {
            let other = random.pick(&files);
            let bytes = disk.key_tables.get_mut(&file).expect("it is there");
            if bytes.len() < 512 {
                continue;
            }
            match random.below(10) {
                0 => {
                    let at = random.index(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                    hits.push(Fault::KeyTableRot);
                }
                // Where entries stand.
                4..=6 if bytes.len() > 2 * BLOCK_BYTES => {
                    for _ in 0..8 {
                        let at = BLOCK_BYTES + 14 + random.index(1_000);
                        bytes[at] ^= 1 << random.below(8);
                    }
                    hits.push(Fault::KeyTableRot);
                }
                1 => {
                    let len = random.index(bytes.len());
                    bytes.truncate(len);
                    hits.push(Fault::KeyTableRot);
                }
                2 => {
                    let at = random.index(bytes.len() / 512) * 512;
                    bytes[at..at + 512].fill(0);
                    hits.push(Fault::KeyTableRot);
                }
                3 if other != file => {
                    let bytes = disk.key_tables[&other].clone();
                    disk.key_tables.insert(file, bytes);
                    hits.push(Fault::KeyTableOfAnother);
                }
                _ => {}
            }
        }
        drop(disk);
        hits.into_iter().for_each(|fault| self.hit(fault));
    }

    fn count_key_tables(&mut self) {
        let cores = self.node.iter().flat_map(|node| &node.cores);
        let is_read = cores
            .map(|core| core.shard.execution().key_table_counters().block_reads)
            .any(|reads| reads > 0);
        if is_read {
            self.hit(Fault::KeyTableRead);
        }
    }

    /// Notes whether a core has answered items together with the ones before them.
    fn count_runs(&self) {
        let mut cores = self.node.iter().flat_map(|node| &node.cores);
        if cores.any(|core| core.shard.counters().in_runs > 0) {
            let mut coverage = self.coverage.borrow_mut();
            coverage.operation(Operation::AnsweredInRun);
        }
    }

    /// Snapshots rot and get lost like everything else; the log gives the same without them.
    fn spoil_snapshots(&mut self) {
        let mut disk = self.disk.borrow_mut();
        let mut hits = Vec::new();
        let random = &mut self.snapshots;
        let names: Vec<SnapshotName> = disk.snapshots.keys().copied().collect();
        for name in names {
            let bytes = disk.snapshots.get_mut(&name).expect("it is there");
            if bytes.is_empty() {
                continue;
            }
            match random.below(16) {
                0 => {
                    let at = random.index(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                    hits.push(Fault::SnapshotRot);
                }
                1 => {
                    let len = random.index(bytes.len());
                    bytes.truncate(len);
                    hits.push(Fault::SnapshotRot);
                }
                2 | 3 => {
                    disk.snapshots.remove(&name);
                    hits.push(Fault::SnapshotLost);
                }
                _ => {}
            }
        }
        drop(disk);
        hits.into_iter().for_each(|fault| self.hit(fault));
        // With another secret no snapshot is of use.
        if self.snapshots.chance(30_000) {
            self.hash_seed = self.snapshots.bits();
        }
    }
}
