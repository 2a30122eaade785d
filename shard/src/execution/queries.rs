//! What the owner of the shard asks of the store and sets in it.

use std::collections::HashMap;

use penstock_net::level::AckLevel;
use penstock_net::limits::KEY_BYTES_MAX;
use penstock_net::request::{Verb, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::key_table::TableHome;
use penstock_storage::place::FileId;
use penstock_storage::system_key::is_system;

use crate::accounts::answers::Asked;
use crate::accounts::stages::Stages;
use crate::execution::Execution;
use crate::execution::operation::least_level;
use crate::execution::verbs::shown_in_memory;
use crate::key_tables::KeyTableCounters;
use crate::now::Now;
use crate::snapshots::SnapshotCounters;
use crate::spare_failure::SpareFailure;

impl<P: Blocks> Execution<P> {
    /// What a GET of `key` at `level` shows at once, without a frame: the value and its version, or
    /// that there is none. `None` if it must be asked for like anything else: the key is not in
    /// memory or not of this shard, what it shows is not as durable as `level` demands, something
    /// that came before waits, or the answer is a refusal.
    #[inline]
    pub fn get_at_once(
        &mut self,
        now: Now,
        level: AckLevel,
        key: &[u8],
    ) -> Option<Option<(&[u8], Version)>> {
        if !self.requests.is_idle()
            || self.joint.holds_any()
            || self.phase.is_stopping()
            || self.phase.fatal().is_some()
        {
            return None;
        }
        self.store.data_mut().observe(now.us, now.unix_ms);
        self.stats.event(now.us);
        let is_unleveled = level == AckLevel::None;
        let level = level.max(self.setup.config().level_min);
        let is_key = (1..=KEY_BYTES_MAX).contains(&key.len()) && !is_system(key);
        let slot = slot_of(key);
        let level = level.max(least_level(&self.store, slot, key, is_unleveled));
        let level = self.reachable(level);
        if !is_key || level.waits_for_members() || !self.setup.owns(slot) {
            return None;
        }
        let (cell, version, lsn) =
            shown_in_memory(&self.store, self.setup.hash().of(key), slot, key)?;
        if level >= AckLevel::Disk && lsn > self.store.log().durable() {
            return None;
        }
        self.stats.answer_at_once(now.us, now.us, 1);
        let Some(id) = cell else {
            self.stats.answer(Asked::Verb(Verb::Get), Status::NotFound);
            return Some(None);
        };
        self.stats.answer(Asked::Verb(Verb::Get), Status::Ok);
        self.store.keys_mut().touch(id);
        Some(Some((self.store.keys().cell(id).value(), version)))
    }

    /// Begins with short segments that grow with the log up to `most_bytes`; before the first turn.
    pub fn grow_segments(&mut self, most_bytes: u64) {
        self.store.log_mut().grow_segments(most_bytes);
    }

    /// Looks through all sealed segments once within each `period_us`; 0, as at first, is never.
    pub fn scrub_within(&mut self, period_us: u64) {
        self.store
            .scrubbing_mut()
            .configure(period_us, self.setup.config().hash_seed);
    }

    /// The segments that may have key tables.
    pub fn key_table_homes(&self) -> impl Iterator<Item = TableHome> {
        self.scans.tables.homes(&self.store)
    }

    /// An earlier run left key tables of these segments, of this shard and of others, with the
    /// bytes of their files. Told once, before the first event.
    pub fn expect_key_tables(&mut self, found: &HashMap<FileId, u64>) {
        self.scans.tables.expect(found, &self.store);
    }

    /// Whether a key table was asked for and has not come.
    #[must_use]
    pub fn awaits_key_table(&self) -> bool {
        self.scans.tables.awaits()
    }

    /// What its key tables did.
    #[must_use]
    pub fn key_table_counters(&self) -> KeyTableCounters {
        self.scans.tables.counters()
    }

    /// Why no segment file could be made ready when one was last wanted, if that was not for want
    /// of space.
    #[must_use]
    pub fn spare_failure(&self) -> Option<SpareFailure> {
        self.files.failure()
    }

    /// Where the time of its operations went.
    #[must_use]
    pub fn stages(&self) -> &Stages {
        self.stats.stages()
    }

    /// What its snapshots did.
    #[must_use]
    pub fn snapshot_counters(&self) -> SnapshotCounters {
        self.chores.snapshots.counters()
    }

    /// Whether a piece of a snapshot was given out and not answered.
    #[must_use]
    pub fn is_writing_snapshot(&self) -> bool {
        self.chores.snapshots.is_writing()
    }
}
