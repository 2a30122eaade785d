//! Whether a part of the log still counts, and as what.

use crate::format::contents::History;
use crate::format::record::{PartKind, PartView};
use crate::format::system_key::{
    is_flush, is_horizon, is_local, is_system, is_token, token_time_ms,
};
use crate::memory::index::entry::{Candidate, Home};
use crate::planted::{self, Bug, is_planted};
use crate::store::data::Data;
use crate::store::versions::entry::KeyId;
use crate::types::place::Place;
use crate::types::version::{Version, partition_of};

/// What becomes of a part when its segment is cleaned. A flush mark of the oldest segment goes:
/// what it hides is gone with its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing needs it.
    Dead,
    /// It has expired and nothing older is there: the index is to forget it.
    Expired,
    /// It must be there again, as this.
    Copied(PartKind),
    /// It is superseded by this version and kept.
    Kept(Version),
    /// It is a deletion, the newest version of its key, and kept.
    KeptDeletion,
}

impl Data {
    /// What becomes of a part that stands at `place` of a sealed and durable segment: the one
    /// function that says what counts. `is_oldest` if no segment stands before it, and deletions
    /// need not be kept; `history` is that of the log.
    #[must_use]
    pub fn liveness(
        &self,
        history: &History,
        part: &PartView<'_>,
        place: Place,
        is_oldest: bool,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> Liveness {
        if is_local(part.key()) {
            return match self.locals.stands_at(part.slot(), place) {
                true => Liveness::Copied(PartKind::Put),
                false => Liveness::Dead,
            };
        }
        let hash = hash_of(part.key());
        // The index points to keys of the store's own that it has, and to what an earlier version
        // took from a client. A deletion of a token or of a horizon hides it, as one of another key
        // does.
        if is_system(part.key())
            && !is_token(part.key())
            && !is_horizon(part.key())
            && self.keys.pointer_to(part.slot(), hash, place).is_none()
        {
            return match self.keyspaces.is_at(part, place) {
                true => Liveness::Copied(PartKind::Put),
                false => Liveness::Dead,
            };
        }
        match part.kind() {
            PartKind::Put => {
                match self.keys.pointer_to(part.slot(), hash, place) {
                    None => {
                        let successor = self.successor_of(part, place, hash);
                        let successor = planted::or(Bug::DropKeptVersion, None, successor);
                        return successor.map_or(Liveness::Dead, Liveness::Kept);
                    }
                    // It is swept: the deletion is in the log and not durable yet.
                    Some(Candidate {
                        home: Home::Memory(id),
                        ..
                    }) if self.keys.cell(id).is_deleted() => return Liveness::Dead,
                    Some(_) if is_oldest && is_flush(part.key()) => return Liveness::Expired,
                    Some(_) => {}
                }
                // The effects of an armed key have not run: its end would be newer.
                let is_armed = part.effects().is_some() && !is_planted(Bug::CleanUnfired);
                if is_armed
                    || !self.is_expired(part.expiry_ms())
                    || self.keeps_expired(part)
                    || self.keeps_token(part) && !is_planted(Bug::TokenForgottenByCleaning)
                {
                    return Liveness::Copied(PartKind::Put);
                }
                // An older value of the key, perhaps without an expiry, must not come back.
                if is_oldest || is_planted(Bug::DropExpired) {
                    Liveness::Expired
                } else {
                    Liveness::Copied(PartKind::Tombstone)
                }
            }
            PartKind::Tombstone => {
                // In the oldest segment a deletion hides nothing: older parts of the key are gone
                // with their segments, and later parts are newer.
                let mut candidates = self.keys.entries().candidates(part.slot(), hash);
                let is_over = candidates.any(|candidate| match candidate.home {
                    Home::Memory(id) if self.keys.cell(id).key() == part.key() => {
                        // Behind a tail that has diverged older versions may follow, until its keys
                        // are written anew.
                        let is_newer = self.keys.version(id) > part.version();
                        assert!(
                            is_newer || history.is_linked,
                            "a deletion that is durable has left the index"
                        );
                        is_newer
                    }
                    _ => false,
                });
                if let Some(successor) = self.successor_of(part, place, hash) {
                    return Liveness::Kept(successor);
                }
                if self.is_kept_deletion(part, place, hash) {
                    return Liveness::KeptDeletion;
                }
                let id = KeyId::new(part.slot(), hash, part.key());
                let known = self.versions.get(id, part.sequence());
                if known.is_some_and(|(_, version)| version.place != place) {
                    // An earlier run copied it already, and the copy is what is kept.
                    return Liveness::Dead;
                }
                // What is older must not seem to be what the next version superseded.
                let is_over = (is_over || self.came_again(history, part, hash))
                    && self.keyspaces.rule(part.slot(), part.key()).is_none();
                if is_oldest || is_over || is_planted(Bug::DropTombstone) {
                    Liveness::Dead
                } else {
                    Liveness::Copied(PartKind::Tombstone)
                }
            }
        }
    }

    /// Whether the value with the version of this deletion is there again: a node has shipped its
    /// record behind the deletion, of a key that was swept or of a value that had expired. A copy
    /// of the deletion would stand behind that value and hide it. What is older than both is hidden
    /// by the value.
    ///
    /// A cold entry tells the low bits of a sequence alone. That another key of this slot has the
    /// same hash of 32 bits and the same 8 bits is taken for impossible.
    fn came_again(&self, history: &History, part: &PartView<'_>, hash: u32) -> bool {
        if !history.is_linked {
            return false;
        }
        let mut candidates = self.keys.entries().candidates(part.slot(), hash);
        candidates.any(|candidate| match candidate.home {
            Home::Memory(id) => {
                let cell = self.keys.cell(id);
                cell.key() == part.key()
                    && !cell.is_deleted()
                    && self.keys.version(id) == part.version()
            }
            Home::Disk(packed) => packed.is_sequence(part.sequence()),
        })
    }

    /// The version that superseded the one at this place, if that is kept.
    fn successor_of(&self, part: &PartView<'_>, place: Place, hash: u32) -> Option<Version> {
        if self.versions.is_empty() {
            return None;
        }
        let rule = self.keyspaces.rule(part.slot(), part.key())?;
        let id = KeyId::new(part.slot(), hash, part.key());
        let (_, version) = self.versions.get(id, part.sequence())?;
        if version.place != place {
            return None;
        }
        let now_ms = self.time_ms();
        let newer = self.versions.successor(id, rule, now_ms, part.sequence())?;
        Some(newer.version)
    }

    /// Whether the deletion at this place is the newest version of its key and something before it
    /// is kept.
    fn is_kept_deletion(&self, part: &PartView<'_>, place: Place, hash: u32) -> bool {
        let id = KeyId::new(part.slot(), hash, part.key());
        let rule = self.keyspaces.rule(part.slot(), part.key());
        let known = self.versions.get(id, part.sequence());
        let newest = self.versions.newest(id);
        let is_newest = newest.is_some_and(|it| it.version.sequence == part.sequence());
        let (Some(rule), Some((_, version))) = (rule, known) else {
            return false;
        };
        let (now_ms, sequence) = (self.time_ms(), part.sequence());
        is_newest
            && version.place == place
            && self.versions.needs_deletion(id, rule, now_ms, sequence)
    }

    /// Whether a part is a token that the log does not allow to be gone yet.
    fn keeps_token(&self, part: &PartView<'_>) -> bool {
        let partition = partition_of(part.slot());
        token_time_ms(part.key(), part.expiry_ms())
            .is_some_and(|token_ms| !self.horizons.may_drop(partition, token_ms))
    }

    /// Whether a value that has expired and is the newest of its key is kept for its time.
    fn keeps_expired(&self, part: &PartView<'_>) -> bool {
        let rule = self.keyspaces.rule(part.slot(), part.key());
        // What had expired when it was written took the place of the one before it then.
        let ended_ms = part.expiry_ms().unwrap_or(0).max(part.time_ms());
        rule.is_some_and(|rule| rule.keeps_ended(ended_ms, self.time_ms()))
    }
}
