//! The segments that a snapshot covers, and whether each is still there.

use crate::format::segment::Owner;
use crate::planted::{Bug, is_planted};
use crate::recovery::segment::Segment;
use crate::recovery::snapshot::format::CoveredSegment;
use crate::recovery::snapshot::format::SnapshotError;
use crate::recovery::snapshot::format::SnapshotHeader;
use crate::recovery::snapshot::format::SnapshotName;
use crate::types::io::BLOCK_BYTES;
use crate::types::place::FileId;
use crate::types::place::Place;

/// The files of a log that a snapshot's entries may point into, and whether each is still there.
#[derive(Clone, Debug)]
pub struct Coverage {
    by_file: Vec<Covered>,
}

#[derive(Clone, Copy, Debug)]
enum Covered {
    Unknown,
    /// The log tells that the segment was released. All that still counted was appended again
    /// behind the snapshot's position.
    Released,
    /// The file is there, and entries may point into it up to this offset.
    Present(u64),
}

impl Coverage {
    /// Compares a snapshot with what a survey has found of its log.
    ///
    /// # Errors
    /// [`SnapshotError::Stranger`] if the snapshot does not belong to it.
    pub fn of(
        header: &SnapshotHeader,
        owner: Owner,
        name: SnapshotName,
        hash_check: u64,
        segments: &[Segment],
    ) -> Result<Self, SnapshotError> {
        let stranger = |cause| Err(SnapshotError::Stranger(cause));
        if header.owner != owner || header.name != name {
            return stranger("belongs to another node or log, or has got another name");
        }
        if header.hash_check != hash_check {
            return stranger("was made with another key hash");
        }
        let position = header.position();
        let mut covered = header.segments.iter().peekable();
        let mut by_file: Vec<Covered> = Vec::new();
        let mut note = |file: FileId, state| {
            let at = file.0 as usize;
            if by_file.len() <= at {
                by_file.resize(at + 1, Covered::Unknown);
            }
            by_file[at] = state;
        };
        for segment in segments {
            let sequence = segment.header.sequence;
            // The survey has found all segments that the log consists of, so these are released.
            while let Some(gone) = covered.next_if(|covered| covered.sequence < sequence) {
                note(gone.file, Covered::Released);
            }
            match covered.next_if(|covered| covered.sequence == sequence) {
                Some(covered) if covered.salt != segment.header.salt => {
                    return stranger("tells of another segment than the one that is there");
                }
                Some(covered) if covered.file != segment.file => {
                    return stranger("tells of another file than the one that is there");
                }
                Some(covered) if covered.end_offset > segment.file_bytes => {
                    return stranger("reaches farther than a segment does");
                }
                Some(covered) => note(covered.file, Covered::Present(covered.end_offset)),
                None if sequence < position.sequence => {
                    return stranger("does not tell of a segment that is there");
                }
                None => {}
            }
        }
        let is_behind = segments
            .last()
            .is_none_or(|last| last.header.sequence < position.sequence);
        if is_behind {
            return stranger("begins behind the end of the log");
        }
        Ok(Coverage { by_file })
    }

    /// Whether a covered segment is there, not released.
    #[must_use]
    pub fn is_there(&self, segment: &CoveredSegment) -> bool {
        let state = self.by_file.get(segment.file.0 as usize);
        matches!(state, Some(Covered::Present(_)))
    }

    /// Whether a part stands before the position in a segment that is there.
    pub(crate) fn is_covered(&self, place: Place) -> bool {
        match self.by_file.get(place.file.0 as usize) {
            Some(Covered::Present(end)) => place.offset < *end,
            _ => false,
        }
    }

    /// Whether what is told of the times of a file may be used: not if its segment was released.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn admits_file(&self, file: FileId) -> Result<bool, &'static str> {
        match self.by_file.get(file.0 as usize) {
            Some(Covered::Present(_)) => Ok(true),
            Some(Covered::Released) => Ok(false),
            Some(Covered::Unknown) | None => Err("the times of an unknown file are told"),
        }
    }

    /// Whether an entry of the index or a version that stands at `place` may be used: not if its
    /// segment was released.
    ///
    /// # Errors
    /// What is wrong with it, if it points where nothing can be.
    pub fn admits(&self, place: Place) -> Result<bool, &'static str> {
        let Place {
            file,
            offset,
            bytes,
        } = place;
        // Rounded up by less than a sixteenth.
        let bytes = u64::from(bytes - bytes / 16);
        match self.by_file.get(file.0 as usize) {
            Some(Covered::Present(end))
                if offset >= BLOCK_BYTES as u64 && offset + bytes <= *end =>
            {
                Ok(true)
            }
            Some(Covered::Present(_)) => Err("an entry points behind the end of its segment"),
            Some(Covered::Released) => Ok(is_planted(Bug::KeepReleased)),
            Some(Covered::Unknown) | None => Err("an entry points into an unknown file"),
        }
    }
}
