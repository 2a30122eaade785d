//! Snapshots of the index: where the newest part of each key stands, so that a start reads them and
//! the end of the log instead of all of it.
//!
//! A snapshot is taken beside the traffic. It *begins* at a position up to which the log is durable;
//! then the index is walked in small steps, and an entry that points behind that position is left
//! out, because the log from there on is replayed anyway. So an entry of a snapshot belongs to a key
//! that was not changed between the begin and the moment when the walk came to it. A key whose
//! change the walk has seen is not in the snapshot, so the change itself must not get lost: a
//! snapshot is *finished* only when everything that was appended by the end of the walk is durable.
//!
//! A snapshot is only ever an accelerator. One that is not whole, of another node, log or key hash,
//! or that does not fit the segments that are there, is not used; the log alone gives the same.
//! Every byte is described in `FORMAT.md`.

use std::fmt;
use std::io;

use crc32fast::Hasher;

use crate::budget::Budget;
use crate::index::{Cursor, FILES_MAX, PackedPlace};
use crate::io::{BLOCK_BYTES, Blocks, FileId};
use crate::log::{LogPosition, Lsn, Place};
use crate::planted::{Bug, is_planted};
use crate::record::{read_u32, read_u64};
use crate::recovery::Segment;
use crate::segment::Owner;
use crate::store::{Memory, PARTITIONS, SLOTS, Sequences, Store};

/// The first bytes of a snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"PSTKSNP1";
/// The version of the snapshot format.
pub const SNAPSHOT_VERSION: u32 = 1;
/// Entries of a chunk, at most.
pub const CHUNK_ENTRIES_MAX: usize = 1 << 14;
/// Segments that a snapshot may point into, at most.
pub const COVERED_SEGMENTS_MAX: usize = 1 << 16;

/// Entries of one slot that a start takes into the index at once; those of a slot with more follow one
/// by one, so that they take no memory twice.
const SLOT_ENTRIES_MAX: usize = 1 << 16;

const CHUNK_MAGIC: [u8; 4] = *b"PKSC";
const FOOTER_MAGIC: [u8; 4] = *b"PKSF";
const SEQUENCES_AT: usize = 112;
const SEGMENTS_AT: usize = SEQUENCES_AT + 8 * PARTITIONS;
const SEGMENT_BYTES: usize = 32;
const CHUNK_HEAD_BYTES: usize = 20;
const ENTRY_BYTES: usize = 14;
/// The section of the newest parts; no other is known here.
const SECTION_NEWEST: u32 = 1;
const SECTIONS: u32 = 1;
const FOOTER_BYTES: usize = 40;
const FLAG_UNPROVEN: u8 = 1;
const FLAG_RELEASED: u8 = 2;

/// Which snapshot: of which log, and which of that log's. The newest has the highest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotName {
    /// The log.
    pub log_id: u64,
    /// From 1.
    pub number: u64,
}

impl SnapshotName {
    /// Reads the name of a file, in no other spelling than it is printed.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (log_id, number) = text.strip_suffix(".idx")?.split_once('-')?;
        let name = SnapshotName {
            log_id: log_id.parse().ok()?,
            number: number.parse().ok()?,
        };
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08}.idx", self.log_id, self.number)
    }
}

/// A segment, or the beginning of one, that entries of a snapshot may point into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveredSegment {
    /// Its sequence in the log.
    pub sequence: u64,
    /// Its salt: another one is another segment.
    pub salt: u64,
    /// Where the part of it ends that counts here.
    pub end_offset: u64,
    /// Its file.
    pub file: FileId,
    /// Bytes of deletions in it that may still be needed, about.
    pub tombstone_bytes: u32,
}

/// What stands before the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Whose it is.
    pub owner: Owner,
    /// Which it is.
    pub name: SnapshotName,
    /// The start of the node that took it.
    pub incarnation: u64,
    /// What the key hash makes of a constant: entries made with another hash are of no use.
    pub hash_check: u64,
    /// The last record that is covered: the log is replayed behind it.
    pub from: Lsn,
    /// The highest epoch of a part by then.
    pub epoch_max: u32,
    /// No frame up to the position tells that the last record there was durable.
    pub is_unproven: bool,
    /// The log had released a segment by then.
    pub has_released: bool,
    /// The last sequence of each partition by then, or by when the snapshot was begun.
    pub sequences: Box<Sequences>,
    /// Ascending by sequence. The last one is that of the position, with its offset as the end.
    pub segments: Vec<CoveredSegment>,
}

/// What stands behind the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotFooter {
    /// Chunks before it.
    pub chunks: u32,
    /// Entries in them.
    pub entries: u64,
    /// The last record that the walk may have seen. All up to it were durable before the footer was
    /// written.
    pub to: Lsn,
    /// The newest time that the log carried then, in unix milliseconds: what had expired by this time
    /// may have been left out.
    pub time_ms: u64,
    /// CRC over the CRCs of the chunks.
    pub chunks_crc: u32,
}

/// Where the newest part of one key stands, as the index keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// Slot and hash of the key. The entries of a snapshot ascend by them.
    pub key: Cursor,
    /// Where the part stands, and low bits of its sequence.
    pub part: PackedPlace,
}

/// Why a snapshot is not used.
#[derive(Debug)]
pub enum SnapshotError {
    /// It could not be read.
    Read(io::Error),
    /// It is of a version that is not read here.
    Version(u32),
    /// It has so many sections, more than are known here.
    Sections(u32),
    /// It is not what was written, or was never finished.
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong.
        cause: &'static str,
    },
    /// It is whole and does not belong to this node, log, hash or to the segments that are there.
    Stranger(&'static str),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::Read(error) => write!(f, "cannot be read: {error}"),
            SnapshotError::Version(version) => write!(f, "is of format version {version}"),
            SnapshotError::Sections(sections) => {
                write!(f, "has {sections} sections, of which {SECTIONS} is known")
            }
            SnapshotError::Damaged { offset, cause } => {
                write!(f, "is damaged at offset {offset}: {cause}")
            }
            SnapshotError::Stranger(cause) => f.write_str(cause),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl SnapshotHeader {
    /// The position from which the log is replayed.
    #[must_use]
    pub fn position(&self) -> LogPosition {
        let last = self.segments[self.segments.len() - 1];
        LogPosition {
            sequence: last.sequence,
            file: last.file,
            salt: last.salt,
            offset: last.end_offset,
            lsn: self.from,
            is_unproven: self.is_unproven,
            has_released: self.has_released,
        }
    }

    /// The bytes of the file up to its first chunk.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=COVERED_SEGMENTS_MAX).contains(&self.segments.len()));
        let mut bytes = vec![0; header_bytes(self.segments.len())];
        let len = u32::try_from(bytes.len()).expect("the segments are bounded");
        let count = u32::try_from(self.segments.len()).expect("the segments are bounded");
        bytes[0..8].copy_from_slice(&SNAPSHOT_MAGIC);
        bytes[8..12].copy_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&len.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.owner.cluster_id);
        bytes[32..48].copy_from_slice(&self.owner.node_id);
        let words = [
            self.incarnation,
            self.name.log_id,
            self.name.number,
            self.hash_check,
            self.from.0,
        ];
        for (at, word) in (48..).step_by(8).zip(words) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[96..100].copy_from_slice(&self.epoch_max.to_le_bytes());
        bytes[100] = u8::from(self.is_unproven) * FLAG_UNPROVEN
            + u8::from(self.has_released) * FLAG_RELEASED;
        bytes[104..108].copy_from_slice(&count.to_le_bytes());
        bytes[108..112].copy_from_slice(&SECTIONS.to_le_bytes());
        for (at, sequence) in (SEQUENCES_AT..).step_by(8).zip(*self.sequences) {
            bytes[at..at + 8].copy_from_slice(&sequence.to_le_bytes());
        }
        for (at, segment) in (SEGMENTS_AT..).step_by(SEGMENT_BYTES).zip(&self.segments) {
            let words = [segment.sequence, segment.salt, segment.end_offset];
            for (at, word) in (at..).step_by(8).zip(words) {
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            bytes[at + 24..at + 28].copy_from_slice(&segment.file.0.to_le_bytes());
            bytes[at + 28..at + 32].copy_from_slice(&segment.tombstone_bytes.to_le_bytes());
        }
        let end = bytes.len() - 4;
        let crc = crc32fast::hash(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads what [`SnapshotHeader::encode`] made, whole.
    fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let damaged = |cause| Err(SnapshotError::Damaged { offset: 0, cause });
        let count = (bytes.len() - header_bytes(0)) / SEGMENT_BYTES;
        let end = bytes.len() - 4;
        if read_u32(&bytes[end..]) != crc32fast::hash(&bytes[..end]) {
            return damaged("its header does not check");
        }
        let word = |at: usize| read_u64(&bytes[at..at + 8]);
        let id = |at: usize| -> [u8; 16] { bytes[at..at + 16].try_into().expect("sixteen bytes") };
        let mut sequences = Box::new([0; PARTITIONS]);
        for (at, sequence) in (SEQUENCES_AT..).step_by(8).zip(sequences.iter_mut()) {
            *sequence = word(at);
        }
        let segments = (SEGMENTS_AT..).step_by(SEGMENT_BYTES).take(count);
        let segments = segments.map(|at| CoveredSegment {
            sequence: word(at),
            salt: word(at + 8),
            end_offset: word(at + 16),
            file: FileId(read_u32(&bytes[at + 24..at + 28])),
            tombstone_bytes: read_u32(&bytes[at + 28..at + 32]),
        });
        let header = SnapshotHeader {
            owner: Owner {
                cluster_id: id(16),
                node_id: id(32),
            },
            incarnation: word(48),
            name: SnapshotName {
                log_id: word(56),
                number: word(64),
            },
            hash_check: word(72),
            from: Lsn(word(80)),
            epoch_max: read_u32(&bytes[96..100]),
            is_unproven: bytes[100] & FLAG_UNPROVEN != 0,
            has_released: bytes[100] & FLAG_RELEASED != 0,
            sequences,
            segments: segments.collect(),
        };
        // The CRC spans every byte; one that is encoded differently has a field that is not known.
        if header.encode() != bytes {
            return damaged("its header has fields that this version does not know");
        }
        let is_ascending = |pair: &[CoveredSegment]| pair[0].sequence < pair[1].sequence;
        if !header.segments.windows(2).all(is_ascending) {
            return damaged("its segments are not in order");
        }
        // What is told of files is kept by their number.
        let is_file = |segment: &CoveredSegment| (1..FILES_MAX).contains(&segment.file.0);
        if !header.segments.iter().all(is_file) {
            return damaged("a segment has a file number that cannot be");
        }
        Ok(header)
    }
}

const fn header_bytes(segments: usize) -> usize {
    SEGMENTS_AT + SEGMENT_BYTES * segments + 8
}

impl SnapshotEntry {
    /// Where the part stands.
    #[must_use]
    pub fn place(&self) -> Place {
        self.part.place().expect("every entry has a place")
    }

    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.key.slot.to_le_bytes());
        into.extend_from_slice(&self.key.hash.to_le_bytes());
        into.extend_from_slice(&self.part.bits().to_le_bytes());
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, &'static str> {
        let slot = u16::from_le_bytes([bytes[0], bytes[1]]);
        let part = PackedPlace::read(read_u64(&bytes[6..14]));
        match part {
            Some(part) if slot < SLOTS => Ok(SnapshotEntry {
                key: Cursor {
                    slot,
                    hash: read_u32(&bytes[2..6]),
                },
                part,
            }),
            _ => Err("an entry cannot be one of an index"),
        }
    }
}

/// A snapshot that is being taken: the bytes of its file, piece by piece, in order.
#[derive(Debug)]
pub struct SnapshotWriter {
    name: SnapshotName,
    position: LogPosition,
    header_crc: u32,
    /// By file number: whether all of the file is covered. Without the segment of the position.
    covered: Vec<bool>,
    /// Entries that are in no chunk yet.
    pending: Vec<u8>,
    footer: SnapshotFooter,
    chunk_crcs: Hasher,
}

impl SnapshotWriter {
    /// Begins, with the first bytes of the file.
    #[must_use]
    pub fn new(header: &SnapshotHeader) -> (Self, Vec<u8>) {
        let bytes = header.encode();
        let (_, whole) = header.segments.split_last().expect("at least one segment");
        let highest = whole.iter().map(|segment| segment.file.0).max();
        let mut covered = vec![false; highest.map_or(0, |file| file as usize + 1)];
        for segment in whole {
            covered[segment.file.0 as usize] = true;
        }
        let writer = SnapshotWriter {
            name: header.name,
            position: header.position(),
            header_crc: read_u32(&bytes[bytes.len() - 4..]),
            covered,
            pending: Vec::new(),
            footer: SnapshotFooter {
                chunks: 0,
                entries: 0,
                to: Lsn(0),
                time_ms: 0,
                chunks_crc: 0,
            },
            chunk_crcs: Hasher::new(),
        };
        (writer, bytes)
    }

    /// Which it is.
    #[must_use]
    pub fn name(&self) -> SnapshotName {
        self.name
    }

    /// Entries taken so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.footer.entries
    }

    /// Whether a part that stands there is covered: entries of others are not taken.
    #[inline]
    #[must_use]
    pub fn covers(&self, place: Place) -> bool {
        let is_whole = self
            .covered
            .get(place.file.0 as usize)
            .is_some_and(|&is| is);
        is_whole || (place.file == self.position.file && place.offset < self.position.offset)
    }

    /// Takes an entry, if it is covered.
    #[inline]
    pub fn take(&mut self, entry: &SnapshotEntry) {
        if self.covers(entry.place()) {
            entry.encode(&mut self.pending);
            self.footer.entries += 1;
        }
    }

    /// Whether [`SnapshotWriter::next_chunk`] should be written before more entries are taken.
    #[must_use]
    pub fn is_chunk_full(&self) -> bool {
        self.pending.len() >= CHUNK_ENTRIES_MAX * ENTRY_BYTES
    }

    /// The next bytes: a chunk of entries that were taken; nothing if there are none.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let bytes = self.pending.len().min(CHUNK_ENTRIES_MAX * ENTRY_BYTES);
        if bytes == 0 {
            return None;
        }
        let count = u32::try_from(bytes / ENTRY_BYTES).expect("a chunk is bounded");
        let mut chunk = Vec::with_capacity(CHUNK_HEAD_BYTES + bytes);
        chunk.extend_from_slice(&CHUNK_MAGIC);
        chunk.extend_from_slice(&self.footer.chunks.to_le_bytes());
        chunk.extend_from_slice(&SECTION_NEWEST.to_le_bytes());
        chunk.extend_from_slice(&count.to_le_bytes());
        chunk.extend_from_slice(&[0; 4]);
        chunk.extend(self.pending.drain(..bytes));
        let crc = chunk_crc(self.header_crc, &chunk);
        chunk[16..20].copy_from_slice(&crc.to_le_bytes());
        self.chunk_crcs.update(&crc.to_le_bytes());
        self.footer.chunks += 1;
        Some(chunk)
    }

    /// The last bytes. Everything up to `to`, the last record that was appended when the last entry
    /// was taken, must be durable; `time_ms` is the newest time that the log carried then.
    #[must_use]
    pub fn finish(&self, to: Lsn, time_ms: u64) -> Vec<u8> {
        assert!(self.pending.is_empty(), "the last chunk was taken");
        let mut bytes = vec![0; FOOTER_BYTES];
        bytes[0..4].copy_from_slice(&FOOTER_MAGIC);
        bytes[4..8].copy_from_slice(&self.footer.chunks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.footer.entries.to_le_bytes());
        bytes[16..24].copy_from_slice(&to.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&time_ms.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.chunk_crcs.clone().finalize().to_le_bytes());
        let crc = footer_crc(self.header_crc, &bytes);
        bytes[36..40].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Over the header's CRC, so that a chunk belongs to this snapshot only, its own head and entries.
fn chunk_crc(header_crc: u32, chunk: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header_crc.to_le_bytes());
    hasher.update(&chunk[..CHUNK_HEAD_BYTES - 4]);
    hasher.update(&chunk[CHUNK_HEAD_BYTES..]);
    hasher.finalize()
}

fn footer_crc(header_crc: u32, footer: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header_crc.to_le_bytes());
    hasher.update(&footer[..FOOTER_BYTES - 4]);
    hasher.finalize()
}

/// A finished snapshot. Reads are asked for by offset; as many bytes are moved as the file has.
pub struct SnapshotReader<R> {
    read_at: R,
    file_bytes: u64,
    header: SnapshotHeader,
    header_crc: u32,
    header_bytes: u64,
    footer: SnapshotFooter,
}

impl<R: FnMut(u64, &mut [u8]) -> io::Result<usize>> SnapshotReader<R> {
    /// Reads and checks header and footer.
    ///
    /// # Errors
    /// [`SnapshotError`], but never that it is a stranger: nobody was asked yet.
    pub fn open(mut read_at: R, file_bytes: u64) -> Result<Self, SnapshotError> {
        let damaged = |cause| Err(SnapshotError::Damaged { offset: 0, cause });
        let mut head = [0; SEGMENTS_AT];
        let is_whole = fill(&mut read_at, 0, &mut head)?;
        if !is_whole || head[0..8] != SNAPSHOT_MAGIC {
            return damaged("it does not begin as a snapshot does");
        }
        let version = read_u32(&head[8..12]);
        if version != SNAPSHOT_VERSION {
            return Err(SnapshotError::Version(version));
        }
        let sections = read_u32(&head[108..112]);
        if sections > SECTIONS {
            return Err(SnapshotError::Sections(sections));
        }
        let count = read_u32(&head[104..108]) as usize;
        if !(1..=COVERED_SEGMENTS_MAX).contains(&count)
            || header_bytes(count) != read_u32(&head[12..16]) as usize
        {
            return damaged("its header does not check");
        }
        let mut bytes = vec![0; header_bytes(count)];
        if !fill(&mut read_at, 0, &mut bytes)? {
            return damaged("it ends within its header");
        }
        let header = SnapshotHeader::decode(&bytes)?;
        let header_crc = read_u32(&bytes[bytes.len() - 4..]);
        let mut footer = [0; FOOTER_BYTES];
        let offset = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let unfinished = Err(SnapshotError::Damaged {
            offset,
            cause: "it was not finished",
        });
        if offset < bytes.len() as u64 || !fill(&mut read_at, offset, &mut footer)? {
            return unfinished;
        }
        let is_footer = footer[0..4] == FOOTER_MAGIC
            && read_u32(&footer[36..40]) == footer_crc(header_crc, &footer);
        if is_planted(Bug::UseUnfinished) {
            footer = [0; FOOTER_BYTES];
        } else if !is_footer {
            return unfinished;
        }
        let entries = read_u64(&footer[8..16]);
        if entries > file_bytes / ENTRY_BYTES as u64 {
            return unfinished;
        }
        Ok(SnapshotReader {
            read_at,
            file_bytes,
            header,
            header_crc,
            header_bytes: bytes.len() as u64,
            footer: SnapshotFooter {
                chunks: read_u32(&footer[4..8]),
                entries,
                to: Lsn(read_u64(&footer[16..24])),
                time_ms: read_u64(&footer[24..32]),
                chunks_crc: read_u32(&footer[32..36]),
            },
        })
    }

    /// What stands before the entries.
    #[must_use]
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// What stands behind the entries.
    #[must_use]
    pub fn footer(&self) -> &SnapshotFooter {
        &self.footer
    }

    /// Hands every entry to `visit`. Nothing of them may be used
    /// unless this ends well.
    ///
    /// # Errors
    /// [`SnapshotError`]; whatever `visit` objects to, with the offset of the chunk.
    pub fn entries(
        self,
        visit: impl FnMut(&SnapshotEntry) -> Result<(), &'static str>,
    ) -> Result<SnapshotFooter, SnapshotError> {
        let told = self.footer;
        match self.chunks(visit) {
            Err(SnapshotError::Damaged { .. }) if is_planted(Bug::UseUnfinished) => Ok(told),
            read => read,
        }
    }

    fn chunks(
        mut self,
        mut visit: impl FnMut(&SnapshotEntry) -> Result<(), &'static str>,
    ) -> Result<SnapshotFooter, SnapshotError> {
        let end = self.file_bytes - FOOTER_BYTES as u64;
        let mut buffer = vec![0; CHUNK_HEAD_BYTES + CHUNK_ENTRIES_MAX * ENTRY_BYTES];
        let mut chunk_crcs = Hasher::new();
        let (mut chunks, mut entries) = (0, 0);
        let mut last = Cursor::default();
        let mut offset = self.header_bytes;
        while offset < end {
            let damaged = |cause| Err(SnapshotError::Damaged { offset, cause });
            let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let wanted = left.min(buffer.len());
            if !fill(&mut self.read_at, offset, &mut buffer[..wanted])? {
                return damaged("it ends within a chunk");
            }
            let read = &buffer[..wanted];
            if wanted < CHUNK_HEAD_BYTES
                || read[0..4] != CHUNK_MAGIC
                || read_u32(&read[4..8]) != chunks
                || read_u32(&read[8..12]) != SECTION_NEWEST
            {
                return damaged("no chunk stands there");
            }
            let count = read_u32(&read[12..16]) as usize;
            let bytes = match count {
                1..=CHUNK_ENTRIES_MAX => CHUNK_HEAD_BYTES + count * ENTRY_BYTES,
                _ => return damaged("a chunk has an impossible length"),
            };
            let Some(chunk) = read.get(..bytes) else {
                return damaged("it ends within a chunk");
            };
            let crc = read_u32(&chunk[16..20]);
            if crc != chunk_crc(self.header_crc, chunk) {
                return damaged("a chunk does not check");
            }
            chunk_crcs.update(&crc.to_le_bytes());
            let (encoded, _) = chunk[CHUNK_HEAD_BYTES..].as_chunks::<ENTRY_BYTES>();
            for encoded in encoded {
                let entry = SnapshotEntry::decode(encoded);
                let visited = entry.and_then(|entry| {
                    if entry.key < last {
                        return Err("its entries are not in order");
                    }
                    last = entry.key;
                    visit(&entry)
                });
                if let Err(cause) = visited {
                    return damaged(cause);
                }
            }
            chunks += 1;
            entries += count as u64;
            offset += bytes as u64;
        }
        let found = (chunks, entries, chunk_crcs.finalize());
        let told = self.footer;
        if found != (told.chunks, told.entries, told.chunks_crc) {
            return Err(SnapshotError::Damaged {
                offset,
                cause: "chunks are missing",
            });
        }
        Ok(told)
    }
}

/// Whether all of `into` could be read.
fn fill(
    read_at: &mut impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    offset: u64,
    into: &mut [u8],
) -> Result<bool, SnapshotError> {
    read_at(offset, into)
        .map(|moved| moved == into.len())
        .map_err(SnapshotError::Read)
}

/// Which files of a log a snapshot's entries may point into, and which of them are gone by now.
#[derive(Debug)]
pub struct Coverage {
    by_file: Vec<Covered>,
}

#[derive(Clone, Copy, Debug)]
enum Covered {
    Unknown,
    /// The log tells that the segment was released: whatever still counted was appended again,
    /// behind the position.
    Released,
    /// Up to this offset.
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
        if header.hash_check != hash_check && !is_planted(Bug::UseOtherHash) {
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

    /// Whether an entry may be used: not if its segment was released.
    ///
    /// # Errors
    /// What is wrong with it, if it points where nothing can be.
    pub fn admits(&self, entry: &SnapshotEntry) -> Result<bool, &'static str> {
        let Place {
            file,
            offset,
            bytes,
        } = entry.place();
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

/// A snapshot of a store's index that is being taken.
#[derive(Debug)]
pub struct Taking {
    writer: SnapshotWriter,
    /// Where the walk goes on; none at its end.
    walk: Option<Cursor>,
    /// What was appended when the walk was at its end.
    to: Lsn,
    /// The newest time that the log carried then.
    time_ms: u64,
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
    /// Which snapshot it is.
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
        self.walk.is_none().then_some(self.to)
    }
}

impl<P: Blocks> Store<P> {
    /// Begins a snapshot of the index, with the first bytes of its file; `hash_check` is what the key
    /// hash makes of a constant. To be called between two changes. None if nothing was logged yet, or
    /// while a copy that is durable is not known to the index.
    pub fn begin_snapshot(&mut self, number: u64, hash_check: u64) -> Option<(Taking, Vec<u8>)> {
        self.apply_moves();
        let position = self.log().position()?;
        if self.covered() < position.lsn {
            return None;
        }
        let log = self.log();
        let history = log.history();
        let tombstones = |file| u32::try_from(self.live.tombstones(file)).unwrap_or(u32::MAX);
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
            sequences: history.sequences.clone(),
            segments,
        };
        let (writer, bytes) = SnapshotWriter::new(&header);
        let taking = Taking {
            writer,
            walk: Some(Cursor::default()),
            to: Lsn(0),
            time_ms: 0,
        };
        Some((taking, bytes))
    }

    /// Goes on with a snapshot, over about so many more entries of the index. To be called between two
    /// changes, and again only when the bytes of the last step are on their way.
    pub fn step_snapshot(&self, taking: &mut Taking, entries: usize) -> Taken {
        let Taking {
            writer,
            walk,
            to,
            time_ms,
        } = taking;
        if (walk.is_none() || writer.is_chunk_full())
            && let Some(chunk) = writer.next_chunk()
        {
            return Taken::Chunk(chunk);
        }
        let Some(from) = *walk else {
            let durable = self.log().durable();
            if durable < *to && !is_planted(Bug::FinishUndurable) {
                return Taken::Nothing;
            }
            return Taken::Last(writer.finish((*to).min(durable), *time_ms));
        };
        *walk = self.newest_parts(from, entries, &mut |entry| writer.take(&entry));
        if walk.is_none() {
            *to = self.log().appended();
            *time_ms = self.carried_ms();
        }
        Taken::Nothing
    }
}

/// Fills a memory from a snapshot that fits the log: what it covers, then the log behind it is to be
/// replayed into it.
///
/// # Errors
/// [`SnapshotError`]. What was filled is of no use then.
pub fn load<R: FnMut(u64, &mut [u8]) -> io::Result<usize>>(
    reader: SnapshotReader<R>,
    coverage: &Coverage,
    budget: Budget,
) -> Result<Memory, SnapshotError> {
    let mut memory = Memory::behind_snapshot(budget, reader.header(), reader.footer(), coverage);
    let mut slot: Vec<SnapshotEntry> = Vec::new();
    reader.entries(|entry| {
        if !coverage.admits(entry)? {
            return Ok(());
        }
        let is_of_slot = |first: &SnapshotEntry| first.key.slot == entry.key.slot;
        if slot.len() == SLOT_ENTRIES_MAX || !slot.first().is_none_or(is_of_slot) {
            memory.take_in(&slot);
            slot.clear();
        }
        slot.push(*entry);
        Ok(())
    })?;
    memory.take_in(&slot);
    Ok(memory)
}
