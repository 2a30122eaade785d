//! Takes a snapshot into memory before the log behind it is replayed.

use crate::memory::budget::Budget;
use crate::planted::{Bug, is_planted};
use crate::recovery::replayed::Replayed;
use crate::recovery::snapshot::coverage::Coverage;
use crate::recovery::snapshot::format::SLOT_ENTRIES_MAX;
use crate::recovery::snapshot::format::SnapshotError;
use crate::recovery::snapshot::format::SnapshotItem;
use crate::recovery::snapshot::read::SnapshotReader;
use crate::store::cleaning::live::FileTimes;
use crate::store::keyspace::settings::KEYSPACES_MAX;
use crate::types::packed_place::PackedPlace;
use std::io;

/// Fills a memory from a snapshot that fits the log. The caller then replays the log behind the
/// snapshot into the same memory.
///
/// # Errors
/// [`SnapshotError`]. The memory is of no use then.
pub fn load<R: FnMut(u64, &mut [u8]) -> io::Result<usize>>(
    reader: SnapshotReader<R>,
    coverage: &Coverage,
    budget: Budget,
) -> Result<Replayed, SnapshotError> {
    let mut memory = Replayed::behind_snapshot(budget, reader.header(), reader.footer(), coverage);
    let mut slot = 0;
    let mut of_slot: Vec<(u32, PackedPlace)> = Vec::new();
    let mut named = vec![false; KEYSPACES_MAX];
    let mut taken: Vec<FileTimes> = Vec::new();
    reader.entries(|item| {
        let entry = match item {
            SnapshotItem::Newest(entry) => entry,
            SnapshotItem::Version(version) => {
                let is_gone = !coverage.admits(version.place)?;
                named[usize::from(version.keyspace)] = true;
                memory.take_in_version(version, is_gone && !is_planted(Bug::KeepReleasedVersions));
                return Ok(());
            }
            SnapshotItem::Settings(settings) => return memory.take_in_settings(settings),
            SnapshotItem::Partition(notes) => return memory.take_in_notes(notes),
            SnapshotItem::Times(times) => {
                if coverage.admits_file(times.file)? {
                    taken.push(times.clone());
                }
                return Ok(());
            }
            SnapshotItem::Timer(timer) => {
                if !is_planted(Bug::SnapshotWithoutTimers) {
                    memory.take_in_timer(*timer);
                }
                return Ok(());
            }
        };
        if !coverage.admits(entry.place())? {
            return Ok(());
        }
        if of_slot.len() == SLOT_ENTRIES_MAX || slot != entry.key.slot {
            memory.take_in(slot, &of_slot);
            of_slot.clear();
            slot = entry.key.slot;
        }
        of_slot.push((entry.key.hash, entry.part));
        Ok(())
    })?;
    memory.take_in(slot, &of_slot);
    taken.iter().for_each(|times| memory.take_in_times(times));
    let mut named = (0..).zip(named).filter(|(_, is_named)| *is_named);
    if !named.all(|(number, _)| memory.has_keyspace(number)) {
        return Err(SnapshotError::Stranger(
            "has versions of a keyspace that it does not tell of",
        ));
    }
    Ok(memory)
}
