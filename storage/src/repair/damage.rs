//! What a repair found and what it costs, in types and in words.

use crate::format::corruption::Within;
use crate::format::row::Row;
use crate::recovery::refusal::RecoveryError;
use crate::repair::rebuild::Rebuild;
use crate::types::place::FileId;
use crate::types::place::Lsn;
use std::fmt;
use std::ops::Range;

/// Keys that a damage names, at most.
pub const NAMED_PARTS_MAX: usize = 1_000;

/// What is wrong, what would be given up, and what the files would be then.
#[derive(Debug, Default)]
pub struct Plan {
    /// What is wrong and can be mended, in the order of files and logs.
    pub damages: Vec<Damage>,
    /// What cannot be mended here: a file of another node, another format, a contradiction. While
    /// there is any, nothing should be changed.
    pub beyond: Vec<RecoveryError>,
    /// Files to be made anew, each from what it is now.
    pub rebuilds: Vec<Rebuild>,
    /// Files that are to leave the directory.
    pub removals: Vec<FileId>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The row of the recovery table that refuses it.
    pub row: Row,
    /// The file; for a segment that is missing, the one made in its place.
    pub file: FileId,
    /// The stretch of the file that does not check, in bytes.
    pub stretch: Range<u64>,
    /// What must be given up, if anything.
    pub loss: Option<Loss>,
    /// Records of the stretch that are whole and stay.
    pub kept_records: u64,
    /// Records of the stretch that do not stay, if their number is known.
    pub lost_records: Option<u64>,
    /// Parts of the records that do not stay, as far as they can be told.
    pub lost_parts: Vec<LostPart>,
    /// What is done about it.
    pub remedy: &'static str,
}

/// What a repair gives up. Its text is what the operator repeats to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Records of this stretch of a log, at least one of them; without an end all from there on
    /// that the log may have held.
    Records {
        /// The log.
        log_id: u64,
        /// The first.
        from: Lsn,
        /// The last, if it is known.
        to: Option<Lsn>,
    },
    /// Whatever this file held.
    File(FileId),
}

/// A part that is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// Its key.
    pub key: Vec<u8>,
    /// Its slot.
    pub slot: u16,
    /// Its version.
    pub epoch: u32,
    /// Its version.
    pub sequence: u64,
    /// Whether its CRC vouches for all this.
    pub is_checked: bool,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Records { log_id, from, to } => {
                write!(f, "{log_id}:{}-", from.0)?;
                to.map_or(Ok(()), |to| write!(f, "{}", to.0))
            }
            Loss::File(file) => write!(f, "file:{}", file.0),
        }
    }
}

impl Damage {
    /// The same in words, with the path of the file in the data directory `data`.
    #[must_use]
    pub fn within<'a>(&'a self, data: &'a str) -> Within<'a, Self> {
        Within::new(self, data)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.within("").fmt(f)
    }
}

impl fmt::Display for Within<'_, Damage> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let damage = self.subject;
        let Range { start, end } = &damage.stretch;
        let segments = self.folder("segments");
        write!(
            f,
            "{segments}{:08}.seg, bytes {start} to {end} ({}): ",
            damage.file.0, damage.row
        )?;
        match (&damage.loss, damage.lost_records) {
            (None, _) => write!(f, "no record is lost")?,
            (Some(Loss::File(_)), _) => write!(f, "nothing in it can be read")?,
            (Some(Loss::Records { log_id, from, to }), lost) => {
                match lost {
                    // Segments that were released earlier may have held some of them.
                    Some(lost) if damage.row == Row::SegmentMissing => {
                        let plural = if lost == 1 { "" } else { "s" };
                        write!(f, "at most {lost} record{plural} are lost")?;
                    }
                    Some(1) => write!(f, "1 record is lost")?,
                    Some(lost) => write!(f, "{lost} records are lost")?,
                    None => write!(f, "records are lost, nobody can say how many")?,
                }
                write!(f, ", log {log_id}, LSN {}", from.0)?;
                match to {
                    Some(to) => write!(f, " to {}", to.0)?,
                    None => write!(f, " on")?,
                }
            }
        }
        match damage.kept_records {
            0 => {}
            1 => write!(f, ", 1 of the stretch is whole and stays")?,
            kept => write!(f, ", {kept} of the stretch are whole and stay")?,
        }
        write!(f, "; {}", damage.remedy)
    }
}

impl Plan {
    /// Whether a start would be refused as things are.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        !self.damages.is_empty() || !self.beyond.is_empty()
    }

    /// What must be given up, in the order of the damages.
    pub fn losses(&self) -> impl Iterator<Item = Loss> {
        self.damages.iter().filter_map(|damage| damage.loss)
    }

    /// Files that are changed or leave: their bytes are to be put by first.
    pub fn touched(&self) -> impl Iterator<Item = FileId> {
        let rebuilt = self.rebuilds.iter().filter(|rebuild| rebuild.has_old);
        rebuilt
            .map(|rebuild| rebuild.file)
            .chain(self.removals.iter().copied())
    }
}
