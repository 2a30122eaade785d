//! The store of one shard: the log, and what is known of the keys in it ([`Data`]).
//!
//! A [`crate::store::Change`] edits keys and logs them as one record. While it is open nothing else
//! runs; one that is not committed leaves nothing behind.
//!
//! What must hold: a cell whose last change is not durable stays in memory, so the place of a cold
//! entry can be read from the disk at any time.

use crate::format::record::{FEW_PARTS_MAX, PartSpec, RecordSpec};
use crate::log::log::Log;
use crate::memory::keys::Keys;
use crate::planted::{self, Bug};
use crate::store::cleaning::cleaning::Cleaning;
use crate::store::data::Data;
use crate::store::edited_values::EditedValues;
use crate::store::fields::FieldEdit;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::keyspace::settings::{Record, SETTINGS_BYTES};
use crate::store::loaded::Loaded;
use crate::store::scrub::Scrub;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::place::{Lsn, Place};
use crate::types::version::{Sequences, partition_of};

/// The data of one shard.
pub struct Store<P: Blocks> {
    pub(super) log: Log<P>,
    pub(super) blocks: P,
    pub(crate) data: Data,
    pub(super) cleaning: Cleaning<P>,
    pub(super) scrub: Scrub,
    /// Where the parts of the last record stand, and what is left of a record of more parts.
    pub(super) places: Vec<Place>,
    /// What the open change has edited.
    pub(super) field_edits: Vec<FieldEdit>,
    /// What the open staged change has edited.
    pub(super) edited: EditedValues,
    /// The value of the token that is being logged, whose memory is used again and again.
    pub(super) token_value: Vec<u8>,
}

impl<P: Blocks> Store<P> {
    /// A store over `log` that writes with `epoch`, filled from what recovery replayed.
    pub fn new(
        log: Log<P>,
        blocks: P,
        epoch: u32,
        sequences: Sequences,
        loaded: impl Into<Loaded>,
    ) -> Self {
        Store {
            log,
            blocks,
            data: Data::new(epoch, sequences, loaded.into()),
            cleaning: Cleaning::new(),
            scrub: Scrub::default(),
            places: vec![Place::default(); FEW_PARTS_MAX],
            field_edits: Vec::new(),
            edited: EditedValues::default(),
            token_value: Vec::new(),
        }
    }

    /// The newest time that the log carries, in unix milliseconds.
    #[must_use]
    pub fn carried_ms(&self) -> u64 {
        self.data.clock.found_ms().max(self.log.time_ms())
    }

    /// The settings of keyspaces.
    #[inline]
    #[must_use]
    pub fn keyspaces(&self) -> &Keyspaces {
        &self.data.keyspaces
    }

    /// The settings of keyspaces, to be told of more: what is heard there is logged by
    /// [`Store::commit_settings`].
    pub fn keyspaces_mut(&mut self) -> &mut Keyspaces {
        &mut self.data.keyspaces
    }

    /// Index, cells and timers.
    #[inline(always)]
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.data.keys
    }

    /// Index, cells and timers.
    #[inline]
    pub fn keys_mut(&mut self) -> &mut Keys {
        &mut self.data.keys
    }

    /// The cleaning: its settings and what it did.
    #[inline]
    #[must_use]
    pub fn cleaning(&self) -> &Cleaning<P> {
        &self.cleaning
    }

    /// The cleaning: its settings and the ends of its reads.
    #[inline]
    pub fn cleaning_mut(&mut self) -> &mut Cleaning<P> {
        &mut self.cleaning
    }

    /// What is known of the keys.
    #[inline(always)]
    #[must_use]
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// What is known of the keys.
    #[inline]
    pub fn data_mut(&mut self) -> &mut Data {
        &mut self.data
    }

    /// Logs the newest settings of `prefix` for the partition of `slot`, under a key of that slot
    /// made by [`keyspace::keyspace_key`]. They are in force there at once. [`Store::room`] for the
    /// key and [`SETTINGS_BYTES`] must have said yes.
    pub fn commit_settings(&mut self, now_us: u64, slot: u16, key: &[u8], prefix: &[u8]) -> Lsn {
        let version = self.data.next_version(slot);
        let time_ms = self.data.time_ms();
        let value: [u8; SETTINGS_BYTES] = self.data.keyspaces.to_log(prefix, partition_of(slot));
        let parts = [PartSpec::put(key, &value)];
        let record = RecordSpec::new(slot, version, time_ms, &parts);
        let lsn = self.log.append(now_us, &record, &mut self.places);
        self.cleaning.note_record();
        let record = Record {
            slot,
            key,
            value: &value,
            version,
            time_ms,
        };
        let replaced = self.data.keyspaces.take_record(&record, self.places[0]);
        self.data.live.replaces(replaced);
        lsn
    }

    /// The log, to be driven: completions, spares, pumping.
    pub fn log(&self) -> &Log<P> {
        &self.log
    }

    /// The log, to be driven: completions, spares, pumping.
    pub fn log_mut(&mut self) -> &mut Log<P> {
        &mut self.log
    }

    /// Once in each turn, between two changes: forgets the deletions that are durable by now, and
    /// lets cells leave while the cache is over its budget. At no other time does a cell leave, so
    /// the cells that a change has found stay until it is committed, and of several cold keys the
    /// first does not leave because the second comes.
    ///
    /// Gives back what keys hold that a flush took away, a bounded number. Whether a partition is
    /// out now, so that what waited for that may go on.
    ///
    /// `home_of` tells slot and hash of a key.
    pub fn settle(&mut self, home_of: &impl Fn(&[u8]) -> KeyHome) -> bool {
        let durable = self.log.durable();
        let may_leave = planted::or(Bug::EvictUnflushed, self.log.appended(), durable);
        self.data.settle(durable, may_leave, home_of)
    }
}
