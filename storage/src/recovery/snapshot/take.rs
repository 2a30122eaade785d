//! Takes a snapshot of a store, a step at a time, and tells when it may end.

use crate::if_planted;
use crate::memory::timers::Timer;
use crate::planted::{self, Bug, is_planted};
use crate::recovery::snapshot::format::{
    COVERED_SEGMENTS_MAX, CoveredSegment, SnapshotHeader, SnapshotName,
};
use crate::recovery::snapshot::write::SnapshotWriter;
use crate::store::cleaning::live::FileTimes;
use crate::store::keyspace::settings::SettingsEntry;
use crate::store::local::PartitionEntry;
use crate::store::store::Store;
use crate::store::versions::entry::VersionEntry;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::NewestPart;
use crate::types::place::Lsn;

/// A snapshot of a store's index that is being taken.
#[derive(Debug)]
pub struct Taking {
    writer: SnapshotWriter,
    walk: Walk,
    /// The section before is still to be written.
    must_write: bool,
    /// What was appended when the walk was at its end.
    pub(super) to: Lsn,
    /// The newest time that the log carried then.
    pub(super) time_ms: u64,
}

/// Where the walk goes on. The versions come before the settings, so that the settings tell of
/// every keyspace that a version names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Newest(KeyHome),
    Versions(u128),
    Settings(usize),
    Partitions,
    /// From this file on.
    Times(u32),
    /// Behind this timer.
    Timers(Option<Timer>),
    Ended,
}

/// What a step of taking a snapshot came to.
#[derive(Debug)]
pub enum Taken {
    /// Nothing to write now; go on.
    Nothing,
    /// The next bytes of the file; go on.
    Chunk(Vec<u8>),
    /// The last bytes: with them the snapshot is whole.
    Last(Vec<u8>),
}

impl Taking {
    /// The name of the snapshot.
    #[must_use]
    pub fn name(&self) -> SnapshotName {
        self.writer.name()
    }

    /// Entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.writer.entries()
    }

    /// What must be durable before the next step can end it; nothing while there is more to walk.
    #[must_use]
    pub fn waits_for(&self) -> Option<Lsn> {
        matches!(self.walk, Walk::Ended).then_some(self.to)
    }

    /// Begins a snapshot of the index, with the first bytes of its file; `hash_check` is what the
    /// key hash makes of a constant. To be called between two changes, behind [`Store::settle`].
    /// None if nothing was logged yet, or while a copy that is durable is not known to the index.
    pub fn begin<P: Blocks>(
        store: &mut Store<P>,
        number: u64,
        hash_check: u64,
    ) -> Option<(Taking, Vec<u8>)> {
        store.settle_copies();
        let position = store.log().position()?;
        if store.cleaning().covered(store.log().durable()) < position.lsn {
            return None;
        }
        // A deletion that is neither told here nor read behind this would be in nobody's count.
        let mut unsettled = store.data.deletions();
        assert!(
            unsettled.all(|lsn| lsn > position.lsn),
            "deletions are settled before"
        );
        let log = store.log();
        let history = log.history();
        let tombstones = |file| u32::try_from(store.data.live.tombstones(file)).unwrap_or(u32::MAX);
        let before = history
            .segments
            .iter()
            .filter(|segment| segment.end.sequence < position.sequence);
        let mut segments: Vec<CoveredSegment> = before
            .map(|segment| CoveredSegment {
                sequence: segment.end.sequence,
                salt: segment.salt,
                end_offset: segment.end.end_offset,
                file: segment.file,
                tombstone_bytes: tombstones(segment.file),
            })
            .collect();
        segments.push(CoveredSegment {
            sequence: position.sequence,
            salt: position.salt,
            end_offset: position.offset,
            file: position.file,
            tombstone_bytes: tombstones(position.file),
        });
        if segments.len() > COVERED_SEGMENTS_MAX {
            return None;
        }
        let header = SnapshotHeader {
            owner: log.config().owner,
            name: SnapshotName {
                log_id: log.config().log_id,
                number,
            },
            incarnation: log.config().incarnation,
            hash_check,
            from: position.lsn,
            epoch_max: history.epoch_max,
            is_unproven: position.is_unproven,
            has_released: position.has_released,
            is_linked: history.is_linked,
            has_marks: store.data().flushes().marks() > 0,
            has_heads: store.keys().has_heads(),
            has_redo: store.data().owed().records() > 0,
            sequences: history.sequences.clone(),
            segments,
        };
        let (writer, bytes) = SnapshotWriter::new(&header);
        let taking = Taking {
            writer,
            walk: Walk::Newest(KeyHome::default()),
            must_write: false,
            to: Lsn(0),
            time_ms: 0,
        };
        Some((taking, bytes))
    }

    /// Goes on with a snapshot, over about so many more entries of the index. To be called between
    /// two changes, and again only when the bytes of the last step are on their way.
    pub fn step<P: Blocks>(&mut self, store: &Store<P>, entries: usize) -> Taken {
        let Taking {
            writer,
            walk,
            must_write,
            to,
            time_ms,
        } = self;
        if *must_write || writer.is_chunk_full() {
            if let Some(chunk) = writer.next_chunk() {
                return Taken::Chunk(chunk);
            }
            *must_write = false;
        }
        let history = store.log().history();
        let next = match *walk {
            Walk::Newest(from) => {
                let is_mark = |entry: &NewestPart| store.data.flushes().is_mark(entry.key);
                let mut take = |entry: NewestPart| {
                    if_planted!(Bug::FlushForgottenBySnapshot, is_mark(&entry), return);
                    writer.take(&entry);
                };
                let next = store.data.keys.newest_parts(from, entries, &mut take);
                next.map(Walk::Newest)
            }
            Walk::Versions(from) => {
                let mut take = |entry: VersionEntry| writer.take_version(&entry);
                let next = store.data.versions.walk(from, entries, &mut take);
                next.map(Walk::Versions)
            }
            Walk::Settings(from) => {
                let mut take = |entry: SettingsEntry<'_>| writer.take_settings(&entry);
                let next = store.data.keyspaces.walk(from, entries, &mut take);
                next.map(Walk::Settings)
            }
            Walk::Partitions => {
                if history.is_linked {
                    let mut take = |entry: PartitionEntry<'_>| writer.take_partition(&entry);
                    store.data.locals.walk(history, &mut take);
                }
                None
            }
            Walk::Times(from) => {
                let mut take = |entry: FileTimes| writer.take_times(&entry);
                let next = store.data.live.walk_times(from, entries, &mut take);
                next.map(Walk::Times)
            }
            Walk::Timers(behind) => {
                let mut take = |timer: Timer| writer.take_timer(timer);
                let next = store.data.keys.timers().walk(behind, entries, &mut take);
                next.map(|last| Walk::Timers(Some(last)))
            }
            Walk::Ended => {
                let durable = store.log().durable();
                if durable < *to && !is_planted(Bug::FinishUndurable) {
                    return Taken::Nothing;
                }
                return Taken::Last(writer.finish((*to).min(durable), *time_ms));
            }
        };
        if let Some(next) = next {
            *walk = next;
            return Taken::Nothing;
        }
        *must_write = true;
        let last = planted::or(Bug::VersionsBehindEnd, Walk::Versions(0), Walk::Ended);
        *walk = match *walk {
            Walk::Newest(_) => Walk::Versions(0),
            Walk::Versions(_) => Walk::Settings(0),
            Walk::Settings(_) => Walk::Partitions,
            Walk::Partitions => Walk::Times(0),
            Walk::Times(_) => Walk::Timers(None),
            Walk::Timers(_) | Walk::Ended => Walk::Ended,
        };
        if *walk == last {
            *to = store.log().appended();
        }
        if matches!(walk, Walk::Ended) {
            // Versions may be gone whose time had ended, and the log need not tell that time.
            *time_ms =
                match store.data.keyspaces.keeps_versions() && !is_planted(Bug::SnapshotUntimed) {
                    true => store.data.time_ms().max(store.carried_ms()),
                    false => store.carried_ms(),
                };
        }
        Taken::Nothing
    }
}
