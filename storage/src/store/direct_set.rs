//! A SET that gives a cached key another value where it stands, as a record in the open frame.

use crate::format::direct_part::DirectBody;
use crate::format::record::{PartSpec, RecordSpec};
use crate::memory::index::entry::CellId;
use crate::planted::{Bug, is_planted};
use crate::store::data::Data;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::PackedPlace;
use crate::types::place::Lsn;
use crate::types::version::{Version, partition_of};

impl Data {
    /// Whether the settings of a keyspace may be in force for a key, which is no plain one then.
    #[inline(always)]
    pub(super) fn may_be_ruled(&self, key: &[u8]) -> bool {
        self.keyspaces.may_rule(key) && !is_planted(Bug::RuledKeyGoesPlain)
    }
}

impl<P: Blocks> Store<P> {
    /// Whether nothing but the key and the open frame decides whether [`Store::direct_set`] sets a
    /// key: no bound on what is written, memory and segments for all that comes. The answer holds
    /// as long as nothing but that and reads run.
    #[must_use]
    pub fn allows_direct_set(&self) -> bool {
        !self.cleaning.bounds_writes() && !self.data.is_memory_short() && self.log.takes_all()
    }

    /// As a [`Store::change`] that puts the value of `body` without an expiry, if
    /// [`Store::allows_direct_set`]. The only cell of the key's slot and hash by
    /// [`Keys::only_cells`](crate::store::Keys::only_cells) is this one if nothing came, went or
    /// moved since.
    ///
    /// `None`, and nothing has changed: a keyspace may rule the key, or it is not cached, is
    /// deleted, has an expiry or shares its hash, its cell must become another one, or the open
    /// frame has no room.
    #[inline(always)]
    pub fn direct_set(
        &mut self,
        now_us: u64,
        KeyHome { slot, hash }: KeyHome,
        body: DirectBody<'_>,
        only: Option<CellId>,
    ) -> Option<(Lsn, Version)> {
        let (key, value) = (body.key(), body.value());
        // The store's own keys begin with 0.
        if key[0] == 0 || self.data.may_be_ruled(key) {
            return None;
        }
        let id = match only {
            Some(id) => id,
            None => self.data.keys.entries().only_cell(slot, hash)?,
        };
        let partition = partition_of(slot);
        let last = self.data.numbering.last(partition);
        let version = Version {
            sequence: last.sequence + 1,
            ..last
        };
        let time_ms = self.data.time_ms();
        let Store {
            log,
            data,
            cleaning,
            ..
        } = self;
        let Data {
            keys,
            live,
            numbering,
            ..
        } = data;
        let mut logged = None;
        let before = keys.direct_set(id, (key, value), version, || {
            if !log.has_open_room(body.part_bytes()) {
                return None;
            }
            let parts = [PartSpec::put(key, value)];
            let record = RecordSpec::new(slot, version, time_ms, &parts);
            let (lsn, place) = log.append_direct(now_us, &record, body);
            logged = Some((lsn, place));
            Some((lsn, PackedPlace::new(place, version.sequence)))
        })?;
        let (lsn, place) = logged?;
        numbering.go_on_behind(partition, version);
        cleaning.note_record();
        live.moves(before, place);
        data.note_changed(id);
        Some((lsn, version))
    }
}
