//! Finding out after a stop of any kind what the log holds, before anything is served.
//!
//! A log is accepted frame by frame from its first segment on; magic, segment, own offset, LSN and
//! both salted CRCs must agree. All segments but the last must reach exactly the end that their
//! successor's header recorded, otherwise something that was durable is damaged and recovery
//! refuses. In the last segment a bad frame is the torn end of the crash, unless a later frame
//! header proves that it was durable once; later bytes are looked at for that evidence only, never
//! to go on replaying. The table of cases is in `FORMAT.md`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, padded_bytes};
use crate::io::{BLOCK_BYTES, FileId, SegmentSource};
use crate::log::{LogStart, Lsn, Place};
use crate::record::{PARTS_MAX, PartError, PartView};
use crate::segment::{FirstBlock, Owner, SegmentHeader};
use crate::store::{PARTITIONS, Sequences, partition_of};
use crate::summary::Summary;

/// One segment file of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The file.
    pub file: FileId,
    /// Its length now, in bytes.
    pub file_bytes: u64,
    /// Its first block.
    pub header: SegmentHeader,
}

/// What the files of a data directory are, by their first blocks.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The segments of each log, in order.
    pub logs: BTreeMap<u64, Vec<Segment>>,
    /// Files that hold nothing and may be taken into use, with their lengths.
    pub spares: Vec<(FileId, u64)>,
    /// Files whose first block was torn when they were about to be taken into use; they hold
    /// nothing that was ever durable and are to be deleted.
    pub torn_activations: Vec<FileId>,
}

/// What one log held.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Where the writer goes on.
    pub start: LogStart,
    /// The last sequence of each partition.
    pub sequences: Box<Sequences>,
    /// The highest epoch of any part.
    pub epoch_max: u32,
    /// Commit frames replayed.
    pub frames: u64,
    /// Records replayed.
    pub records: u64,
    /// The end of the last segment was torn by a crash and left out.
    pub torn: Option<TornTail>,
    /// Whether the last frame is a mark or summary that covers everything before it.
    pub is_clean: bool,
    /// The last segment's file and its length without the unused or torn rest.
    pub truncate: Option<(FileId, u64)>,
}

/// What a crash left half written. None of it was acknowledged as durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: FileId,
    /// Where the good frames end.
    pub offset: u64,
    /// The first record that is not there.
    pub lsn: Lsn,
}

/// Why a data directory cannot be served.
#[derive(Debug)]
pub enum RecoveryError {
    /// A file could not be read.
    Read {
        /// The file.
        file: Option<FileId>,
        /// What the system said.
        error: io::Error,
    },
    /// A file of another node or cluster lies in the directory.
    Foreign {
        /// The file.
        file: FileId,
        /// What its header says.
        found: Owner,
    },
    /// Written by a version with another format.
    Version {
        /// The file.
        file: FileId,
        /// What was found, in words.
        found: String,
    },
    /// Something that was durable is not what was written.
    Corrupt(Corruption),
}

/// Damage, with what it puts at risk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The log, if it is known.
    pub log_id: Option<u64>,
    /// The file.
    pub file: FileId,
    /// Where in the file.
    pub offset: u64,
    /// The first record concerned.
    pub lsn_from: Lsn,
    /// The last record known to have been durable there, if it is known.
    pub lsn_to: Option<Lsn>,
    /// What is wrong, in words.
    pub cause: &'static str,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}.seg is damaged at offset {}: {}", self.file.0, self.offset, self.cause)?;
        if let Some(log_id) = self.log_id {
            write!(f, " (log {log_id}, records from LSN {}", self.lsn_from.0)?;
            match self.lsn_to {
                Some(to) => write!(f, " to {} were durable)", to.0)?,
                None => write!(f, " on)")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::Read { file: Some(file), error } => write!(f, "cannot read {:08}.seg: {error}", file.0),
            RecoveryError::Read { file: None, error } => write!(f, "cannot list the segments: {error}"),
            RecoveryError::Foreign { file, found } => write!(
                f,
                "{:08}.seg belongs to node {} of cluster {}, not to this data directory",
                file.0,
                Hex(&found.node_id),
                Hex(&found.cluster_id)
            ),
            RecoveryError::Version { file, found } => write!(f, "{:08}.seg has {found}, which this version does not read", file.0),
            RecoveryError::Corrupt(corruption) => corruption.fmt(f),
        }
    }
}

impl std::error::Error for RecoveryError {}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads the first block of every file and sorts the files into logs and spares.
///
/// # Errors
/// [`RecoveryError`] for a file that cannot be read, is not of `owner`, has another version, or is
/// damaged although it must have been durable; and for a gap in a log.
pub fn survey(source: &mut impl SegmentSource, owner: Owner) -> Result<Survey, RecoveryError> {
    let mut files = source.files().map_err(|error| RecoveryError::Read { file: None, error })?;
    files.sort_unstable();
    let mut survey = Survey::default();
    let mut damaged = Vec::new();
    for (file, file_bytes) in files {
        let mut block = [0; BLOCK_BYTES];
        let read = source.read_at(file, 0, &mut block).map_err(|error| RecoveryError::Read { file: Some(file), error })?;
        match SegmentHeader::read(&block) {
            // A file too short for a header was never durable as a segment.
            _ if read < BLOCK_BYTES => survey.torn_activations.push(file),
            FirstBlock::Spare => survey.spares.push((file, file_bytes)),
            FirstBlock::Segment(header) if header.owner != owner => return Err(RecoveryError::Foreign { file, found: header.owner }),
            FirstBlock::Segment(header) => {
                survey.logs.entry(header.log_id).or_default().push(Segment { file, file_bytes, header });
            }
            FirstBlock::OtherVersion(version) => {
                return Err(RecoveryError::Version { file, found: format!("segment format version {version}") });
            }
            FirstBlock::Damaged => damaged.push(file),
        }
    }
    for (&log_id, segments) in &mut survey.logs {
        segments.sort_unstable_by_key(|segment| segment.header.sequence);
        for (expected, segment) in (1..).zip(segments.iter()) {
            if segment.header.sequence != expected {
                return Err(RecoveryError::Corrupt(Corruption {
                    log_id: Some(log_id),
                    file: segment.file,
                    offset: 0,
                    lsn_from: Lsn(0),
                    lsn_to: Some(segment.header.previous_end_lsn),
                    cause: "the segment before it is missing or two segments have one sequence",
                }));
            }
        }
    }
    // A first block that is neither empty nor valid is the torn activation of a new segment only if
    // nothing behind it was ever written: frames are emitted after the header, so any byte there
    // means that the header may have been durable.
    for file in damaged {
        if holds_anything_behind_its_first_block(source, file)? {
            return Err(RecoveryError::Corrupt(Corruption {
                log_id: None,
                file,
                offset: 0,
                lsn_from: Lsn(0),
                lsn_to: None,
                cause: "its header does not check and frames stand behind it",
            }));
        }
        survey.torn_activations.push(file);
    }
    Ok(survey)
}

fn holds_anything_behind_its_first_block(source: &mut impl SegmentSource, file: FileId) -> Result<bool, RecoveryError> {
    let mut block = [0; BLOCK_BYTES];
    let read = source
        .read_at(file, BLOCK_BYTES as u64, &mut block)
        .map_err(|error| RecoveryError::Read { file: Some(file), error })?;
    Ok(block[..read].iter().any(|&byte| byte != 0))
}

/// Replays one log in order, handing every part of every good frame to `visit`.
///
/// # Errors
/// [`RecoveryError`] if something durable is damaged or of another format; whatever `visit` fails
/// with, as a read error.
pub fn recover(
    source: &mut impl SegmentSource,
    segments: &[Segment],
    visit: &mut dyn FnMut(&PartView<'_>, Place) -> io::Result<()>,
) -> Result<Recovered, RecoveryError> {
    let mut replay = Replay::new();
    for (index, segment) in segments.iter().enumerate() {
        let header = &segment.header;
        let follows = header.previous_sequence == replay.start.last_sequence
            && header.previous_end_offset == replay.start.end_offset
            && header.previous_end_lsn == replay.start.last_lsn
            && header.first_lsn.0 == replay.start.last_lsn.0 + 1;
        if !follows {
            // The header was durable before any frame behind it, so what it tells of its
            // predecessor was durable too.
            let previous = index.checked_sub(1).map_or(segment.file, |previous| segments[previous].file);
            return Err(RecoveryError::Corrupt(Corruption {
                log_id: Some(header.log_id),
                file: previous,
                offset: replay.start.end_offset,
                lsn_from: Lsn(replay.start.last_lsn.0 + 1),
                lsn_to: Some(header.previous_end_lsn),
                cause: "its good frames do not end where the next segment says they ended",
            }));
        }
        let end = replay.segment(source, segment, visit)?;
        let is_last = index + 1 == segments.len();
        if let End::Bad { cause } = end {
            let torn_lsn = Lsn(replay.start.last_lsn.0 + 1);
            let offset = replay.start.end_offset;
            let evidence = if is_last {
                evidence_of_durability(source, segment, offset, torn_lsn)?
            } else {
                segments[index + 1].header.previous_end_lsn.max(Lsn(0)).into()
            };
            match evidence {
                Some(lsn_to) if is_last || segments[index + 1].header.previous_end_offset > offset => {
                    return Err(RecoveryError::Corrupt(Corruption {
                        log_id: Some(header.log_id),
                        file: segment.file,
                        offset,
                        lsn_from: torn_lsn,
                        lsn_to: Some(lsn_to),
                        cause,
                    }));
                }
                _ if is_last => replay.torn = Some(TornTail { file: segment.file, offset, lsn: torn_lsn }),
                // The torn end of an earlier run, which its successor's header left out.
                _ => {}
            }
        }
        if is_last && replay.start.end_offset < segment.file_bytes {
            replay.truncate = Some((segment.file, replay.start.end_offset));
        }
    }
    Ok(replay.finish())
}

enum End {
    /// The frames end at the end of the file, in zeros, or in a summary.
    Clean,
    /// Something else stands where the next frame should.
    Bad { cause: &'static str },
}

struct Replay {
    start: LogStart,
    sequences: Box<Sequences>,
    epoch_max: u32,
    frames: u64,
    records: u64,
    torn: Option<TornTail>,
    is_clean: bool,
    truncate: Option<(FileId, u64)>,
    buffer: Vec<u8>,
}

/// Bytes asked of the source at a time.
const CHUNK_BYTES: usize = 1 << 20;

impl Replay {
    fn new() -> Self {
        Replay {
            start: LogStart::default(),
            sequences: Box::new([0; PARTITIONS]),
            epoch_max: 0,
            frames: 0,
            records: 0,
            torn: None,
            is_clean: true,
            truncate: None,
            buffer: Vec::new(),
        }
    }

    fn finish(self) -> Recovered {
        Recovered {
            start: self.start,
            sequences: self.sequences,
            epoch_max: self.epoch_max,
            frames: self.frames,
            records: self.records,
            torn: self.torn,
            is_clean: self.is_clean,
            truncate: self.truncate,
        }
    }

    fn segment(
        &mut self,
        source: &mut impl SegmentSource,
        segment: &Segment,
        visit: &mut dyn FnMut(&PartView<'_>, Place) -> io::Result<()>,
    ) -> Result<End, RecoveryError> {
        let home = segment.header.home();
        let mut offset = BLOCK_BYTES as u64;
        self.start.last_sequence = segment.header.sequence;
        self.start.end_offset = offset;
        let mut window = Window { file: segment.file, start: 0, filled: 0 };
        let mut summary = Summary::new();
        loop {
            let Some(block) = window.bytes(source, &mut self.buffer, offset, BLOCK_BYTES)? else { return Ok(End::Clean) };
            let Some(header) = FrameHeader::read(home, offset, block) else {
                let is_zero = block.iter().all(|&byte| byte == 0);
                return if is_zero && !self.has_more_behind(source, segment, offset)? {
                    Ok(End::Clean)
                } else {
                    Ok(End::Bad { cause: "no frame of this segment stands there" })
                };
            };
            if header.first_lsn.0 != self.start.last_lsn.0 + 1 || header.durable_lsn > self.start.last_lsn {
                return Ok(End::Bad { cause: "the frame there does not follow the one before" });
            }
            let padded = header.padded_bytes();
            if offset + padded as u64 > segment.header.segment_bytes {
                return Ok(End::Bad { cause: "the frame there is longer than its segment" });
            }
            let Some(frame) = window.bytes(source, &mut self.buffer, offset, padded)? else {
                return Ok(End::Bad { cause: "the file ends within the frame" });
            };
            if !FrameHeader::body_is_intact(home, frame) {
                return Ok(End::Bad { cause: "the body of the frame does not check" });
            }
            let body = &frame[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.body_bytes as usize];
            let corrupt = |cause| {
                RecoveryError::Corrupt(Corruption {
                    log_id: Some(home.log_id),
                    file: segment.file,
                    offset,
                    lsn_from: header.first_lsn,
                    lsn_to: Some(Lsn(header.end_lsn().0 - 1)),
                    cause,
                })
            };
            match header.kind {
                FrameKind::Commit => {
                    let mut tally = Tally { sequences: &mut self.sequences, epoch_max: &mut self.epoch_max, summary: &mut summary };
                    let place = Place { file: segment.file, offset: offset + FRAME_HEADER_BYTES as u64, bytes: 0 };
                    let records = tally.frame(body, place, visit).map_err(|error| match error {
                        PartOfFrameError::Damaged => corrupt("a part in a good frame does not check"),
                        PartOfFrameError::Unsupported(found) => RecoveryError::Version { file: segment.file, found },
                        PartOfFrameError::Visit(error) => RecoveryError::Read { file: Some(segment.file), error },
                    })?;
                    if records != header.record_count || records == 0 {
                        return Err(corrupt("the frame does not hold the records that it counts"));
                    }
                    self.frames += 1;
                    self.records += u64::from(records);
                    self.is_clean = false;
                }
                FrameKind::Mark if body.is_empty() && header.record_count == 0 => {}
                FrameKind::Summary if header.record_count == 0 => {
                    if Summary::read(body).as_ref() != Some(&summary) {
                        return Err(corrupt("the summary does not agree with the segment"));
                    }
                }
                FrameKind::Mark | FrameKind::Summary => return Err(corrupt("a frame without records counts some")),
            }
            offset += padded as u64;
            self.start.end_offset = offset;
            self.start.last_lsn = Lsn(header.end_lsn().0 - 1);
            self.is_clean |= header.durable_lsn == self.start.last_lsn;
            if header.kind == FrameKind::Summary {
                return Ok(End::Clean);
            }
        }
    }

    /// Whether anything but zeros stands in the rest of the file: then the zeros at `offset` are a
    /// lost write and not the end.
    fn has_more_behind(&mut self, source: &mut impl SegmentSource, segment: &Segment, offset: u64) -> Result<bool, RecoveryError> {
        let mut at = offset;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = source.read_at(segment.file, at, &mut chunk).map_err(|error| RecoveryError::Read { file: Some(segment.file), error })?;
            if read == 0 {
                return Ok(false);
            }
            if chunk[..read].iter().any(|&byte| byte != 0) {
                return Ok(true);
            }
            at += read as u64;
        }
    }
}

enum PartOfFrameError {
    Damaged,
    Unsupported(String),
    Visit(io::Error),
}

struct Tally<'a> {
    sequences: &'a mut Sequences,
    epoch_max: &'a mut u32,
    summary: &'a mut Summary,
}

impl Tally<'_> {
    /// Checks and visits the parts of one frame and returns its number of records.
    fn frame(
        &mut self,
        body: &[u8],
        at: Place,
        visit: &mut dyn FnMut(&PartView<'_>, Place) -> io::Result<()>,
    ) -> Result<u32, PartOfFrameError> {
        // All parts are checked before the first is visited: a frame replays whole or not at all.
        let mut records = 0;
        let mut expected = 0;
        let mut current = (0, 0, 0);
        for_each_part(body, |part, _| {
            if part.ordinal() != expected || part.count() > PARTS_MAX {
                return Err(PartOfFrameError::Damaged);
            }
            let identity = (part.count(), part.sequence(), part.epoch());
            if expected == 0 {
                current = identity;
                records += 1;
            } else if identity != current {
                return Err(PartOfFrameError::Damaged);
            }
            expected = if part.ordinal() + 1 == part.count() { 0 } else { part.ordinal() + 1 };
            Ok(())
        })?;
        if expected != 0 {
            return Err(PartOfFrameError::Damaged);
        }
        for_each_part(body, |part, start| {
            let place = Place {
                file: at.file,
                offset: at.offset + start as u64,
                bytes: u32::try_from(part.bytes().len()).map_err(|_| PartOfFrameError::Damaged)?,
            };
            let last = &mut self.sequences[partition_of(part.slot())];
            *last = (*last).max(part.sequence());
            *self.epoch_max = (*self.epoch_max).max(part.epoch());
            let tombstone = part.kind() == crate::record::PartKind::Tombstone;
            self.summary.note(part.slot(), part.epoch(), part.sequence(), place.offset, tombstone);
            visit(&part, place).map_err(PartOfFrameError::Visit)
        })?;
        Ok(records)
    }
}

fn for_each_part(body: &[u8], mut each: impl FnMut(PartView<'_>, usize) -> Result<(), PartOfFrameError>) -> Result<(), PartOfFrameError> {
    let mut start = 0;
    while start < body.len() {
        let part = PartView::read(&body[start..]).map_err(|error| match error {
            PartError::Damaged => PartOfFrameError::Damaged,
            PartError::Unsupported { kind, flags, encoding } => {
                PartOfFrameError::Unsupported(format!("a part of kind {kind}, flags {flags:#x}, encoding {encoding}"))
            }
        })?;
        each(part, start)?;
        start += part.bytes().len();
    }
    Ok(())
}

/// A stretch of a file in memory.
struct Window {
    file: FileId,
    start: u64,
    filled: usize,
}

impl Window {
    /// `len` bytes at `offset`, or `None` if the file ends before. `len` is bounded by the segment.
    fn bytes<'b>(
        &mut self,
        source: &mut impl SegmentSource,
        buffer: &'b mut Vec<u8>,
        offset: u64,
        len: usize,
    ) -> Result<Option<&'b [u8]>, RecoveryError> {
        let held = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok()).filter(|skip| skip + len <= self.filled);
        let skip = match held {
            Some(skip) => skip,
            None => {
                buffer.resize(buffer.len().max(len).max(CHUNK_BYTES), 0);
                self.filled = source.read_at(self.file, offset, buffer).map_err(|error| RecoveryError::Read { file: Some(self.file), error })?;
                self.start = offset;
                0
            }
        };
        Ok((skip + len <= self.filled).then(|| &buffer[skip..skip + len]))
    }
}

/// The highest LSN that a frame header behind `offset` knows to have been durable, if it reaches
/// `missing`: proof that what is bad at `offset` had been written whole.
fn evidence_of_durability(
    source: &mut impl SegmentSource,
    segment: &Segment,
    offset: u64,
    missing: Lsn,
) -> Result<Option<Lsn>, RecoveryError> {
    let mut highest = None;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = offset;
    loop {
        let read = source.read_at(segment.file, at, &mut chunk).map_err(|error| RecoveryError::Read { file: Some(segment.file), error })?;
        for (number, block) in chunk[..read].chunks_exact(BLOCK_BYTES).enumerate() {
            let position = at + (number * BLOCK_BYTES) as u64;
            if let Some(header) = FrameHeader::read(segment.header.home(), position, block)
                && header.durable_lsn >= missing
            {
                highest = highest.max(Some(header.durable_lsn));
            }
        }
        if read < CHUNK_BYTES {
            return Ok(highest);
        }
        at += read as u64;
    }
}

/// Bytes that a frame with `body_bytes` takes; for readers that walk a segment on their own.
#[must_use]
pub fn frame_bytes(body_bytes: u32) -> usize {
    padded_bytes(body_bytes as usize)
}
