//! The copies that cleaning made: what they change once they are durable.

use crate::format::record::{PartKind, PartView, SUCCESSOR_BYTES};
use crate::log::log::Log;
use crate::log::reports::Moved;
use crate::memory::index::entry::Candidate;
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaner::Move;
use crate::store::cleaning::cleaning::Cleaning;
use crate::store::cleaning::judge::Judged;
use crate::store::cleaning::liveness::Liveness;
use crate::store::data::Data;
use crate::store::versions::entry::KeyId;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::PackedPlace;
use crate::types::place::{FileId, Lsn, Place};

impl Data {
    /// Takes the entries of versions out that go with a part: its own entry, and the entries of
    /// older versions when none of these is kept. Takes out at most `left` entries, which falls.
    /// Returns whether all of them are out.
    pub(super) fn drop_versions(&mut self, judged: &Judged<'_>, left: &mut usize) -> bool {
        let &Judged {
            ref part,
            place,
            hash,
            liveness,
        } = judged;
        if self.versions.is_empty() {
            return true;
        }
        let id = KeyId::new(part.slot(), hash, part.key());
        let through = match liveness {
            Liveness::Dead | Liveness::Expired => {
                let known = self.versions.get(id, part.sequence());
                if known.is_none_or(|(_, version)| version.place != place) {
                    return true;
                }
                part.sequence()
            }
            // Its own entry goes when the deletion that takes its place is durable.
            Liveness::Copied(PartKind::Tombstone) if part.kind() == PartKind::Put => {
                part.sequence() - 1
            }
            _ => return true,
        };
        let live = &mut self.live;
        self.versions
            .remove_through(id, through, left, |place| live.loses(place))
    }

    /// The part of a version stands elsewhere now.
    fn moved_version(&mut self, moved: &Move) {
        let Move {
            id,
            sequence,
            is_marked,
            from,
            to,
            ..
        } = *moved;
        if !self.versions.is_empty()
            && self.versions.moved(id, sequence, (from, to), is_marked) == Some(true)
        {
            self.live.loses(from);
            self.live.gains(to);
        }
    }

    /// Takes the entry that points to this place, and its cell, out. A part with this sequence
    /// stands there.
    pub(super) fn forget(&mut self, slot: u16, hash: u32, (place, sequence): (Place, u64)) {
        let Some(candidate) = self.keys.pointer_to(slot, hash, place) else {
            return;
        };
        self.live.loses(place);
        self.keys.remove(candidate.position, candidate.home);
        self.flushes.forget(KeyHome::new(slot, hash));
        self.note_removal(slot, hash, sequence);
    }

    /// Whether a part that is copied shares its hash with another key in the index. What the index
    /// does not point to is a deletion: for all that its hash tells, any entry may be another
    /// key's.
    pub(super) fn is_crowded(&self, slot: u16, hash: u32, place: Place) -> bool {
        match self.keys.pointer_to(slot, hash, place) {
            Some(_) => self.keys.entries().is_crowded(slot, hash),
            None => self.keys.entries().candidates(slot, hash).next().is_some(),
        }
    }

    /// Bytes that copies of what counts in a file take, at most.
    pub(super) fn copies_bytes(&self, file: FileId, is_oldest: bool) -> u64 {
        let live = self.counts_in(file);
        if self.versions.is_empty() {
            let deletions = live.tombstones + live.deletions;
            return live.parts + if is_oldest { 0 } else { deletions };
        }
        let kept = self.versions.copies(file);
        let deletions = match is_oldest {
            true => kept.deletion_bytes,
            false => live.tombstones.max(kept.deletion_bytes) + live.deletions,
        };
        live.parts + deletions + kept.unmarked * SUCCESSOR_BYTES as u64
    }
}

impl<P: Blocks> Cleaning<P> {
    /// Lets the index point to the copies that are durable, with the log durable up to `durable`.
    pub(in crate::store) fn apply_moves(&mut self, data: &mut Data, durable: Lsn) {
        while let Some(&moved) = self.cleaner.moves.front() {
            if moved.lsn > durable && !is_planted(Bug::MoveBeforeDurable) {
                break;
            }
            self.cleaner.moves.pop_front();
            match moved.kind {
                PartKind::Tombstone if moved.was == PartKind::Put => {
                    // The deletion stands for a value that had expired. The index forgets the
                    // value, unless the key has changed since.
                    data.forget(moved.slot, moved.hash, (moved.from, moved.sequence));
                    let live = &mut data.live;
                    if !data.versions.is_empty() {
                        // Older ones went before the copy was made.
                        let mut left = usize::MAX;
                        data.versions.remove_through(
                            moved.id,
                            moved.sequence,
                            &mut left,
                            |place| {
                                live.loses(place);
                            },
                        );
                    }
                    data.live.gains_tombstone(moved.to);
                }
                PartKind::Tombstone => {
                    data.moved_version(&moved);
                    data.live.gains_tombstone(moved.to);
                }
                PartKind::Put => {
                    // Unless the key has changed since.
                    if let Some(candidate) =
                        data.keys.pointer_to(moved.slot, moved.hash, moved.from)
                    {
                        let packed = PackedPlace::new(moved.to, moved.sequence);
                        let Candidate { position, home } = candidate;
                        data.keys.point_to(position, home, packed);
                        data.live.loses(moved.from);
                        data.live.gains_until(moved.to, moved.expires);
                    } else if data.keyspaces.moved(moved.slot, moved.from, moved.to) {
                        data.live.loses(moved.from);
                        data.live.gains(moved.to);
                    } else if data.locals.stands_at(moved.slot, moved.from) {
                        data.locals.moved(moved.slot, moved.to);
                        data.live.loses(moved.from);
                        data.live.gains(moved.to);
                    }
                    data.moved_version(&moved);
                }
            }
        }
    }

    /// Whether a copy of what stands there is not durable yet.
    pub(in crate::store) fn is_moving(&self, from: Place) -> bool {
        self.cleaner.moves.iter().any(|moved| moved.from == from)
    }

    /// Logs a key's part that stands at `from` again, as a deletion of the same version, and lets
    /// the index forget the key when that is durable. The log must have room.
    pub(in crate::store) fn move_as_deletion(
        &mut self,
        log: &mut Log<P>,
        now_us: u64,
        part: &PartView<'_>,
        hash: u32,
        from: Place,
    ) -> Lsn {
        let kind = PartKind::Tombstone;
        let (lsn, to) = log.append_moved(now_us, part, Moved::As(kind), true);
        self.cleaner.must_pick = true;
        self.cleaner.moves.push_back(Move {
            lsn,
            slot: part.slot(),
            hash,
            sequence: part.sequence(),
            id: KeyId::new(part.slot(), hash, part.key()),
            was: PartKind::Put,
            kind,
            is_marked: false,
            expires: None,
            from,
            to,
        });
        lsn
    }

    /// Bytes of the parts in a file that count and that are copied already.
    pub(super) fn moving_bytes(&self, data: &Data, file: FileId) -> u64 {
        let moves = self.cleaner.moves.iter();
        moves
            .filter(|moved| moved.from.file == file)
            .filter(|moved| {
                let version = data.versions.get(moved.id, moved.sequence);
                data.keys
                    .pointer_to(moved.slot, moved.hash, moved.from)
                    .is_some()
                    || version.is_some_and(|(_, it)| it.is_counted && it.place == moved.from)
                    || data.keyspaces.stands_at(moved.slot, moved.from)
                    || data.locals.stands_at(moved.slot, moved.from)
            })
            .map(|moved| u64::from(moved.from.bytes))
            .sum()
    }
}
