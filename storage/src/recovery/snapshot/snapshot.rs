//! Snapshots of the index: where the newest part of each key stands, the kept versions of keys, the
//! settings of keyspaces, and how much of each segment expires by when, so that a start reads them and the end of the log instead of all of it.
//!
//! A snapshot is taken beside the traffic. It *begins* at a position up to which the log is durable;
//! then the index is walked in small steps, and an entry that points behind that position is left
//! out, because the log from there on is replayed anyway. So an entry of a snapshot belongs to a key
//! that was not changed between the begin and the moment when the walk came to it. A key whose
//! change the walk has seen is not in the snapshot, so the change itself must not get lost: a
//! snapshot is *finished* only when everything that was appended by the end of the walk is durable.
//!
//! The kept versions are walked like the index, then the settings, then what a node of a cluster notes of
//! partitions. A version that is not there any more
//! when the walk comes to it is not kept by then, nor ever again: the footer tells a time that is not before
//! that, and what was superseded or set meanwhile is in the log behind the begin. The last two are told as the
//! walk finds them, also if their record stands behind the begin: later ones are as good, and a start needs
//! to know of each superseded part there whether it is kept.
//!
//! The times of segments come last, so that they tell of every part that an entry points to. What is told and
//! replayed as well counts twice among what was added, which makes nothing count as expired ([`crate::store::cleaning::live`]).
//!
//! A snapshot is only ever an accelerator. One that is not whole, of another node, log or key hash,
//! or that does not fit the segments that are there, is not used; the log alone gives the same.
//! Every byte is described in `FORMAT.md`.

use crate::types::packed_place::NewestPart;
use std::fmt;
use std::io;

use crc32fast::Hasher;

use crate::format::record::{SEQUENCE_MAX, read_u32, read_u64};
use crate::format::segment::Owner;
use crate::format::system_key::{EPOCHS_BYTES_MAX, LOCAL_BYTES_MAX};
use crate::memory::budget::Budget;
use crate::planted::{Bug, is_planted};
use crate::recovery::replay::Segment;
use crate::recovery::replayed::Memory;
use crate::store::cleaning::expiring::{Amount, BUCKETS, Bucket, Expiring};
use crate::store::cleaning::live::FileTimes;
use crate::store::keyspace::{
    KEYSPACES_MAX, PREFIX_BYTES_MAX, SETTINGS_BYTES, Settings, SettingsEntry,
};
use crate::store::local::PartitionEntry;
use crate::store::store::Store;
use crate::store::versions::{CHECK_MAX, VersionEntry};
use crate::types::io::{BLOCK_BYTES, Blocks};
use crate::types::packed_place::{Cursor, FILES_MAX, PackedPlace};
use crate::types::place::FileId;
use crate::types::place::{LogPosition, Lsn, Place};
use crate::types::version::{PARTITIONS, SLOTS, Sequences, Version};

use crate::recovery::snapshot::packed::{self, Rows};

/// The first bytes of a snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"PSTKSNP1";
/// The version of the snapshot format.
pub const SNAPSHOT_VERSION: u32 = 5;
/// Entries of the index in a chunk, at most.
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
/// Bytes of the entries of a chunk, at most.
const CHUNK_BYTES_MAX: usize = CHUNK_ENTRIES_MAX * packed::ROW_BYTES_MAX;
const VERSION_BYTES: usize = 56;
const SETTINGS_AT: usize = 24;
const PREFIX_AT: usize = SETTINGS_AT + SETTINGS_BYTES;
const SETTINGS_ENTRY_BYTES: usize = PREFIX_AT + PREFIX_BYTES_MAX;
const LOCAL_AT: usize = 72;
const EPOCHS_AT: usize = LOCAL_AT + LOCAL_BYTES_MAX;
const PARTITION_ENTRY_BYTES: usize = EPOCHS_AT + EPOCHS_BYTES_MAX;
const BUCKETS_AT: usize = 24;
const BUCKET_BYTES: usize = 40;
const TIMES_BYTES: usize = BUCKETS_AT + BUCKETS * BUCKET_BYTES;
const SECTIONS: u32 = 5;
pub(super) const FOOTER_BYTES: usize = 40;
const FLAG_UNPROVEN: u8 = 1;
const FLAG_RELEASED: u8 = 2;
const FLAG_LINKED: u8 = 4;
const VERSION_FLAG_DELETION: u8 = 1;
const VERSION_FLAG_MARKED: u8 = 2;
const VERSION_FLAGS: u8 = VERSION_FLAG_DELETION | VERSION_FLAG_MARKED;

/// What the entries of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Newest = 1,
    Versions = 2,
    Settings = 3,
    Partitions = 4,
    Times = 5,
}

impl Section {
    fn read(number: u32) -> Option<Self> {
        let all = [
            Section::Newest,
            Section::Versions,
            Section::Settings,
            Section::Partitions,
            Section::Times,
        ];
        all.into_iter().find(|&section| section as u32 == number)
    }

    /// What an entry takes; those of the newest parts are packed.
    const fn entry_bytes(self) -> Option<usize> {
        match self {
            Section::Newest => None,
            Section::Versions => Some(VERSION_BYTES),
            Section::Settings => Some(SETTINGS_ENTRY_BYTES),
            Section::Partitions => Some(PARTITION_ENTRY_BYTES),
            Section::Times => Some(TIMES_BYTES),
        }
    }

    /// Entries of a chunk, at most.
    const fn chunk_entries_max(self) -> usize {
        match self.entry_bytes() {
            None => CHUNK_ENTRIES_MAX,
            Some(bytes) => CHUNK_BYTES_MAX / bytes,
        }
    }
}

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
    /// The log held local records by then: it is one of a node of a cluster.
    pub is_linked: bool,
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

/// An entry of one of the sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotItem<'a> {
    /// Of the index.
    Newest(NewestPart),
    /// A version that is known.
    Version(VersionEntry),
    /// The settings of a keyspace in a partition.
    Settings(SettingsEntry<'a>),
    /// What a node of a cluster notes of a partition.
    Partition(PartitionEntry<'a>),
    /// How much of a file expires by when.
    Times(FileTimes),
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
                write!(f, "has {sections} sections, of which {SECTIONS} are known")
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
            + u8::from(self.has_released) * FLAG_RELEASED
            + u8::from(self.is_linked) * FLAG_LINKED;
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
            is_linked: bytes[100] & FLAG_LINKED != 0,
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

fn encode_version(entry: &VersionEntry, into: &mut Vec<u8>) {
    let flags = u8::from(entry.is_deletion) * VERSION_FLAG_DELETION
        + u8::from(entry.is_marked) * VERSION_FLAG_MARKED;
    let part = PackedPlace::new(entry.place, entry.version.sequence);
    into.extend_from_slice(&entry.slot.to_le_bytes());
    into.extend_from_slice(&entry.hash.to_le_bytes());
    into.extend_from_slice(&entry.check.to_le_bytes()[..3]);
    into.push(flags);
    into.extend_from_slice(&entry.keyspace.to_le_bytes());
    into.extend_from_slice(&entry.version.epoch.to_le_bytes());
    into.extend_from_slice(&entry.version.sequence.to_le_bytes());
    into.extend_from_slice(&part.bits().to_le_bytes());
    into.extend_from_slice(&entry.time_ms.to_le_bytes()[..6]);
    into.extend_from_slice(&entry.expiry_ms.to_le_bytes()[..6]);
    let successor = entry.successor.unwrap_or_default();
    into.extend_from_slice(&successor.epoch.to_le_bytes());
    into.extend_from_slice(&successor.sequence.to_le_bytes());
}

fn decode_version(bytes: &[u8; VERSION_BYTES]) -> Result<VersionEntry, &'static str> {
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let six = |at: usize| {
        let high = u64::from(short(at + 4));
        high << 32 | u64::from(read_u32(&bytes[at..at + 4]))
    };
    let slot = short(0);
    let keyspace = short(10);
    let flags = bytes[9];
    let sequence = read_u64(&bytes[16..24]);
    let part = PackedPlace::read(read_u64(&bytes[24..32]));
    let place = part
        .filter(|part| part.is_sequence(sequence))
        .and_then(PackedPlace::place);
    let successor = Version {
        epoch: read_u32(&bytes[44..48]),
        sequence: read_u64(&bytes[48..56]),
    };
    let is_followed = sequence < successor.sequence && successor.sequence <= SEQUENCE_MAX;
    let is_possible = slot < SLOTS
        && (is_followed || successor == Version::default())
        && usize::from(keyspace) < KEYSPACES_MAX
        && flags & !VERSION_FLAGS == 0
        && (1..=SEQUENCE_MAX).contains(&sequence);
    match place {
        Some(place) if is_possible => Ok(VersionEntry {
            slot,
            hash: read_u32(&bytes[2..6]),
            check: read_u32(&bytes[6..10]) & CHECK_MAX,
            keyspace,
            version: Version {
                epoch: read_u32(&bytes[12..16]),
                sequence,
            },
            is_deletion: flags & VERSION_FLAG_DELETION != 0,
            is_marked: flags & VERSION_FLAG_MARKED != 0,
            successor: (successor != Version::default()).then_some(successor),
            time_ms: six(32),
            expiry_ms: six(38),
            place,
        }),
        _ => Err("a version cannot be one of a key"),
    }
}

fn encode_settings(entry: &SettingsEntry<'_>, into: &mut Vec<u8>) {
    let part = PackedPlace::new(entry.place, entry.version.sequence);
    let prefix_bytes = u8::try_from(entry.prefix.len()).expect("a prefix has at most 64 bytes");
    into.extend_from_slice(&entry.number.to_le_bytes());
    into.extend_from_slice(&[entry.partition, prefix_bytes]);
    into.extend_from_slice(&entry.version.epoch.to_le_bytes());
    into.extend_from_slice(&entry.version.sequence.to_le_bytes());
    into.extend_from_slice(&part.bits().to_le_bytes());
    into.extend_from_slice(&entry.value());
    into.extend_from_slice(entry.prefix);
    into.resize(into.len() + PREFIX_BYTES_MAX - entry.prefix.len(), 0);
}

fn decode_settings(bytes: &[u8; SETTINGS_ENTRY_BYTES]) -> Result<SettingsEntry<'_>, &'static str> {
    let impossible = "settings cannot be those of a keyspace";
    let number = u16::from_le_bytes([bytes[0], bytes[1]]);
    let sequence = read_u64(&bytes[8..16]);
    let part = PackedPlace::read(read_u64(&bytes[16..24]));
    let place = part
        .filter(|part| part.is_sequence(sequence))
        .and_then(PackedPlace::place);
    let value = Settings::read(&bytes[SETTINGS_AT..PREFIX_AT]);
    let (prefix, padding) = bytes[PREFIX_AT..]
        .split_at_checked(usize::from(bytes[3]))
        .ok_or(impossible)?;
    let is_possible = usize::from(number) < KEYSPACES_MAX && padding.iter().all(|&byte| byte == 0);
    match (place, value) {
        (Some(place), Some((settings, Some(since)))) if is_possible => Ok(SettingsEntry {
            number,
            partition: bytes[2],
            prefix,
            settings,
            since,
            version: Version {
                epoch: read_u32(&bytes[4..8]),
                sequence,
            },
            place,
        }),
        _ => Err(impossible),
    }
}

fn encode_partition(entry: &PartitionEntry<'_>, into: &mut Vec<u8>) {
    let (count, place, local) = entry
        .local
        .map_or((0, None, &[][..]), |(count, place, value)| {
            (count, Some(place), value)
        });
    let (version, epochs) = entry.epochs.unwrap_or_default();
    let short = |len: usize| u16::try_from(len).expect("the values are bounded");
    let lens = [short(local.len()), short(epochs.len()), 0];
    into.extend_from_slice(&u16::from(entry.partition).to_le_bytes());
    into.extend(lens.iter().flat_map(|len| len.to_le_bytes()));
    into.extend_from_slice(&entry.last.epoch.to_le_bytes());
    into.extend_from_slice(&place.map_or(0, |place| place.file.0).to_le_bytes());
    let words = [
        entry.last.sequence,
        entry.forgotten,
        entry.highest,
        count,
        place.map_or(0, |place| place.offset),
    ];
    into.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    into.extend_from_slice(&place.map_or(0, |place| place.bytes).to_le_bytes());
    into.extend_from_slice(&version.epoch.to_le_bytes());
    into.extend_from_slice(&version.sequence.to_le_bytes());
    into.extend_from_slice(local);
    into.resize(into.len() + LOCAL_BYTES_MAX - local.len(), 0);
    into.extend_from_slice(epochs);
    into.resize(into.len() + EPOCHS_BYTES_MAX - epochs.len(), 0);
}

fn decode_partition(
    bytes: &[u8; PARTITION_ENTRY_BYTES],
) -> Result<PartitionEntry<'_>, &'static str> {
    let impossible = "notes cannot be those of a partition";
    let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let word = |at: usize| read_u64(&bytes[at..at + 8]);
    let value = |from: usize, to: usize, len: u16| {
        let (value, padding) = bytes[from..to].split_at_checked(usize::from(len))?;
        padding.iter().all(|&byte| byte == 0).then_some(value)
    };
    let local = value(LOCAL_AT, EPOCHS_AT, short(2)).ok_or(impossible)?;
    let epochs = value(EPOCHS_AT, PARTITION_ENTRY_BYTES, short(4)).ok_or(impossible)?;
    let place = Place {
        file: FileId(read_u32(&bytes[12..16])),
        offset: word(48),
        bytes: read_u32(&bytes[56..60]),
    };
    let version = Version {
        epoch: read_u32(&bytes[60..64]),
        sequence: word(64),
    };
    let (count, last_sequence) = (word(40), word(16));
    let is_place = (1..FILES_MAX).contains(&place.file.0)
        && place.offset >= BLOCK_BYTES as u64
        && place.bytes > 0;
    let no_place = Place {
        file: FileId(0),
        offset: 0,
        bytes: 0,
    };
    let is_possible = match count {
        0 => place == no_place && local.is_empty(),
        _ => is_place && count <= SEQUENCE_MAX,
    } && (version != Version::default() || epochs.is_empty())
        && [last_sequence, word(24), word(32), version.sequence]
            .iter()
            .all(|&sequence| sequence <= SEQUENCE_MAX)
        && short(6) == 0;
    match u8::try_from(short(0)) {
        Ok(partition) if is_possible => Ok(PartitionEntry {
            partition,
            last: Version {
                epoch: read_u32(&bytes[8..12]),
                sequence: last_sequence,
            },
            forgotten: word(24),
            highest: word(32),
            local: (count > 0).then_some((count, place, local)),
            epochs: (version != Version::default()).then_some((version, epochs)),
        }),
        _ => Err(impossible),
    }
}

fn encode_times(entry: &FileTimes, into: &mut Vec<u8>) {
    let start = into.len();
    let buckets = entry.expiring.buckets();
    let count = u32::try_from(buckets.len()).expect("a table is bounded");
    into.extend_from_slice(&entry.file.0.to_le_bytes());
    into.extend_from_slice(&count.to_le_bytes());
    into.extend_from_slice(&entry.lasting.parts.to_le_bytes());
    into.extend_from_slice(&entry.lasting.bytes.to_le_bytes());
    for bucket in buckets {
        let Amount {
            parts,
            bytes,
            deletion_bytes,
        } = bucket.amount;
        for word in [bucket.from_ms, bucket.by_ms, parts, bytes, deletion_bytes] {
            into.extend_from_slice(&word.to_le_bytes());
        }
    }
    into.resize(start + TIMES_BYTES, 0);
}

fn decode_times(bytes: &[u8; TIMES_BYTES]) -> Result<FileTimes, &'static str> {
    let word = |at: usize| read_u64(&bytes[at..at + 8]);
    let file = FileId(read_u32(&bytes[0..4]));
    let count = read_u32(&bytes[4..8]) as usize;
    let buckets = (BUCKETS_AT..TIMES_BYTES).step_by(BUCKET_BYTES).take(count);
    let buckets: Vec<Bucket> = buckets
        .map(|at| Bucket {
            from_ms: word(at),
            by_ms: word(at + 8),
            amount: Amount {
                parts: word(at + 16),
                bytes: word(at + 24),
                deletion_bytes: word(at + 32),
            },
        })
        .collect();
    let lasting = Amount {
        parts: word(8),
        bytes: word(16),
        deletion_bytes: 0,
    };
    let mut amounts = buckets.iter().map(|bucket| bucket.amount).chain([lasting]);
    // They are summed up.
    let are_possible = amounts.all(|it| {
        let words = [it.parts, it.bytes, it.deletion_bytes];
        words.iter().all(|&word| word < 1 << 56)
    });
    let rest = &bytes[BUCKETS_AT + buckets.len() * BUCKET_BYTES..];
    if !are_possible
        || buckets.len() != count
        || rest.iter().any(|&byte| byte != 0)
        || !(1..FILES_MAX).contains(&file.0)
    {
        return Err("the times of a file cannot be");
    }
    Ok(FileTimes {
        file,
        lasting,
        expiring: Box::new(Expiring::restore(&buckets)?),
    })
}

/// A snapshot that is being taken: the bytes of its file, piece by piece, in order.
#[derive(Debug)]
pub struct SnapshotWriter {
    name: SnapshotName,
    position: LogPosition,
    header_crc: u32,
    /// By file number: whether all of the file is covered. Without the segment of the position.
    covered: Vec<bool>,
    /// Newest parts that are in no chunk yet.
    newest: Vec<NewestPart>,
    /// Entries of another section that are in no chunk yet, as they stand there.
    pending: Vec<u8>,
    section: Section,
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
            newest: Vec::new(),
            pending: Vec::new(),
            section: Section::Newest,
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

    /// Takes an entry, if it is covered. All entries of the index come first.
    #[inline]
    pub fn take(&mut self, entry: &NewestPart) {
        if self.covers(entry.place()) {
            assert!(self.section == Section::Newest, "they come first");
            self.newest.push(*entry);
            self.footer.entries += 1;
        }
    }

    /// Takes a version, if it is covered, when no entry of the index waits for a chunk.
    pub fn take_version(&mut self, entry: &VersionEntry) {
        if self.covers(entry.place) {
            encode_version(entry, &mut self.pending);
            self.takes(Section::Versions);
        }
    }

    /// Takes settings, wherever their record stands, when no version waits for a chunk.
    pub fn take_settings(&mut self, entry: &SettingsEntry<'_>) {
        encode_settings(entry, &mut self.pending);
        self.takes(Section::Settings);
    }

    /// Takes the notes of a partition, wherever its local record stands, when no settings wait for a chunk.
    pub fn take_partition(&mut self, entry: &PartitionEntry<'_>) {
        encode_partition(entry, &mut self.pending);
        self.takes(Section::Partitions);
    }

    /// Takes the times of a file, if some of it is covered, when no notes of a partition wait for a chunk.
    pub fn take_times(&mut self, entry: &FileTimes) {
        let first = Place {
            file: entry.file,
            offset: 0,
            bytes: 0,
        };
        if self.covers(first) {
            encode_times(entry, &mut self.pending);
            self.takes(Section::Times);
        }
    }

    /// An entry was added to those that wait for a chunk.
    fn takes(&mut self, section: Section) {
        if self.section != section {
            assert!(
                self.section < section
                    && self.newest.is_empty()
                    && Some(self.pending.len()) == section.entry_bytes(),
                "the section before is written"
            );
            self.section = section;
        }
        self.footer.entries += 1;
    }

    /// Entries that are in no chunk yet.
    fn waiting(&self) -> usize {
        match self.section.entry_bytes() {
            None => self.newest.len(),
            Some(bytes) => self.pending.len() / bytes,
        }
    }

    /// Whether [`SnapshotWriter::next_chunk`] should be written before more entries are taken.
    #[must_use]
    pub fn is_chunk_full(&self) -> bool {
        self.waiting() >= self.section.chunk_entries_max()
    }

    /// The next bytes: a chunk of entries that were taken; nothing if there are none.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let entries = self.waiting().min(self.section.chunk_entries_max());
        if entries == 0 {
            return None;
        }
        let count = u32::try_from(entries).expect("a chunk is bounded");
        let mut chunk = Vec::new();
        chunk.extend_from_slice(&CHUNK_MAGIC);
        chunk.extend_from_slice(&self.footer.chunks.to_le_bytes());
        chunk.extend_from_slice(&(self.section as u32).to_le_bytes());
        chunk.extend_from_slice(&count.to_le_bytes());
        chunk.extend_from_slice(&[0; 4]);
        match self.section.entry_bytes() {
            None => {
                packed::encode(&self.newest[..entries], &mut chunk);
                self.newest.drain(..entries);
            }
            Some(bytes) => chunk.extend(self.pending.drain(..entries * bytes)),
        }
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
        assert!(self.waiting() == 0, "the last chunk was taken");
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
    pub(super) header_bytes: u64,
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
        if sections != SECTIONS {
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
        visit: impl FnMut(&SnapshotItem<'_>) -> Result<(), &'static str>,
    ) -> Result<SnapshotFooter, SnapshotError> {
        let told = self.footer;
        match self.chunks(visit) {
            Err(SnapshotError::Damaged { .. }) if is_planted(Bug::UseUnfinished) => Ok(told),
            read => read,
        }
    }

    fn chunks(
        mut self,
        mut visit: impl FnMut(&SnapshotItem<'_>) -> Result<(), &'static str>,
    ) -> Result<SnapshotFooter, SnapshotError> {
        let end = self.file_bytes - FOOTER_BYTES as u64;
        let mut buffer = vec![0; CHUNK_HEAD_BYTES + packed::HEAD_BYTES + CHUNK_BYTES_MAX];
        let mut chunk_crcs = Hasher::new();
        let (mut chunks, mut entries) = (0, 0);
        let mut order = Order::default();
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
            {
                return damaged("no chunk stands there");
            }
            let Some(section) = Section::read(read_u32(&read[8..12])) else {
                return damaged("a chunk is of no section");
            };
            let count = read_u32(&read[12..16]) as usize;
            if !(1..=section.chunk_entries_max()).contains(&count) {
                return damaged("a chunk has an impossible length");
            }
            let body = &read[CHUNK_HEAD_BYTES..];
            let rows = body.first_chunk().and_then(|head| Rows::read(count, head));
            let bytes = match (section.entry_bytes(), &rows) {
                (Some(bytes), _) => count * bytes,
                (None, Some(rows)) => packed::HEAD_BYTES + rows.bytes(),
                (None, None) => return damaged("its entries cannot be those of an index"),
            };
            let bytes = CHUNK_HEAD_BYTES + bytes;
            let Some(chunk) = read.get(..bytes) else {
                return damaged("it ends within a chunk");
            };
            let crc = read_u32(&chunk[16..20]);
            if crc != chunk_crc(self.header_crc, chunk) {
                return damaged("a chunk does not check");
            }
            chunk_crcs.update(&crc.to_le_bytes());
            let encoded = &chunk[CHUNK_HEAD_BYTES..];
            let visited = match section {
                Section::Newest => {
                    let rows = rows.expect("read above");
                    rows.decode(&encoded[packed::HEAD_BYTES..], |entry| {
                        order.newest(entry)?;
                        visit(&SnapshotItem::Newest(*entry))
                    })
                }
                Section::Versions => {
                    let (encoded, _) = encoded.as_chunks();
                    encoded.iter().try_for_each(|encoded| {
                        let entry = decode_version(encoded)?;
                        order.version(&entry)?;
                        visit(&SnapshotItem::Version(entry))
                    })
                }
                Section::Settings => {
                    let (encoded, _) = encoded.as_chunks();
                    encoded.iter().try_for_each(|encoded| {
                        let entry = decode_settings(encoded)?;
                        order.settings(&entry)?;
                        visit(&SnapshotItem::Settings(entry))
                    })
                }
                Section::Partitions => {
                    let (encoded, _) = encoded.as_chunks();
                    encoded.iter().try_for_each(|encoded| {
                        let entry = decode_partition(encoded)?;
                        order.partition(&entry)?;
                        visit(&SnapshotItem::Partition(entry))
                    })
                }
                Section::Times => {
                    let (encoded, _) = encoded.as_chunks();
                    encoded.iter().try_for_each(|encoded| {
                        let entry = decode_times(encoded)?;
                        order.times(&entry)?;
                        visit(&SnapshotItem::Times(entry))
                    })
                }
            };
            if let Err(cause) = visited {
                return damaged(cause);
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

/// How far the entries of a snapshot have come: sections follow each other, and each ascends.
#[derive(Debug, Default)]
struct Order {
    newest: Cursor,
    version: Option<(u16, u32, u32, u64)>,
    settings: Option<(u16, u8)>,
    partition: Option<u8>,
    times: Option<u32>,
}

impl Order {
    const BROKEN: &str = "its entries are not in order";

    /// Whether an entry of a section behind this one has come.
    fn is_over(&self, section: Section) -> bool {
        let begun = [
            (Section::Versions, self.version.is_some()),
            (Section::Settings, self.settings.is_some()),
            (Section::Partitions, self.partition.is_some()),
            (Section::Times, self.times.is_some()),
        ];
        begun
            .iter()
            .any(|&(other, has_begun)| has_begun && other > section)
    }

    fn newest(&mut self, entry: &NewestPart) -> Result<(), &'static str> {
        if entry.key < self.newest || self.is_over(Section::Newest) {
            return Err(Self::BROKEN);
        }
        self.newest = entry.key;
        Ok(())
    }

    fn version(&mut self, entry: &VersionEntry) -> Result<(), &'static str> {
        let at = Some(entry.order());
        if at <= self.version || self.is_over(Section::Versions) {
            return Err(Self::BROKEN);
        }
        self.version = at;
        Ok(())
    }

    fn settings(&mut self, entry: &SettingsEntry<'_>) -> Result<(), &'static str> {
        let at = Some((entry.number, entry.partition));
        if at <= self.settings || self.is_over(Section::Settings) {
            return Err(Self::BROKEN);
        }
        self.settings = at;
        Ok(())
    }

    fn partition(&mut self, entry: &PartitionEntry<'_>) -> Result<(), &'static str> {
        let at = Some(entry.partition);
        if at <= self.partition || self.is_over(Section::Partitions) {
            return Err(Self::BROKEN);
        }
        self.partition = at;
        Ok(())
    }

    fn times(&mut self, entry: &FileTimes) -> Result<(), &'static str> {
        let at = Some(entry.file.0);
        if at <= self.times {
            return Err(Self::BROKEN);
        }
        self.times = at;
        Ok(())
    }
}

/// Whether all of `into` could be read.
pub(super) fn fill(
    read_at: &mut impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    offset: u64,
    into: &mut [u8],
) -> Result<bool, SnapshotError> {
    read_at(offset, into)
        .map(|moved| moved == into.len())
        .map_err(SnapshotError::Read)
}

/// Which files of a log a snapshot's entries may point into, and which of them are gone by now.
#[derive(Clone, Debug)]
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

    /// Whether an entry of the index or a version that stands at `place` may be used: not if its segment
    /// was released.
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

/// A snapshot of a store's index that is being taken.
#[derive(Debug)]
pub struct Taking {
    writer: SnapshotWriter,
    walk: Walk,
    /// The section before is still to be written.
    must_write: bool,
    /// What was appended when the walk was at its end.
    to: Lsn,
    /// The newest time that the log carried then.
    time_ms: u64,
}

/// Where the walk goes on. The versions come before the settings, so that the settings tell of every keyspace
/// that a version names.
#[derive(Clone, Copy, Debug)]
enum Walk {
    Newest(Cursor),
    Versions(u128),
    Settings(usize),
    Partitions,
    /// From this file on.
    Times(u32),
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
        matches!(self.walk, Walk::Ended).then_some(self.to)
    }
}

impl<P: Blocks> Store<P> {
    /// Begins a snapshot of the index, with the first bytes of its file; `hash_check` is what the key
    /// hash makes of a constant. To be called between two changes, behind [`Store::settle`]. None if nothing was logged yet, or
    /// while a copy that is durable is not known to the index.
    pub fn begin_snapshot(&mut self, number: u64, hash_check: u64) -> Option<(Taking, Vec<u8>)> {
        self.apply_moves();
        let position = self.log().position()?;
        if self.covered() < position.lsn {
            return None;
        }
        // A deletion that is neither told here nor read behind this would be in nobody's count.
        let mut unsettled = self.deletions();
        assert!(
            unsettled.all(|lsn| lsn > position.lsn),
            "deletions are settled before"
        );
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
            is_linked: history.is_linked,
            sequences: history.sequences.clone(),
            segments,
        };
        let (writer, bytes) = SnapshotWriter::new(&header);
        let taking = Taking {
            writer,
            walk: Walk::Newest(Cursor::default()),
            must_write: false,
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
            must_write,
            to,
            time_ms,
        } = taking;
        if *must_write || writer.is_chunk_full() {
            if let Some(chunk) = writer.next_chunk() {
                return Taken::Chunk(chunk);
            }
            *must_write = false;
        }
        let history = self.log().history();
        let next = match *walk {
            Walk::Newest(from) => {
                let next = self.newest_parts(from, entries, &mut |entry| writer.take(&entry));
                next.map(Walk::Newest)
            }
            Walk::Versions(from) => {
                let mut take = |entry: VersionEntry| writer.take_version(&entry);
                let next = self.versions.walk(from, entries, &mut take);
                next.map(Walk::Versions)
            }
            Walk::Settings(from) => {
                let mut take = |entry: SettingsEntry<'_>| writer.take_settings(&entry);
                let next = self.keyspaces.walk(from, entries, &mut take);
                next.map(Walk::Settings)
            }
            Walk::Partitions => {
                if history.is_linked {
                    let mut take = |entry: PartitionEntry<'_>| writer.take_partition(&entry);
                    self.locals.walk(history, &mut take);
                }
                None
            }
            Walk::Times(from) => {
                let mut take = |entry: FileTimes| writer.take_times(&entry);
                let next = self.live.walk_times(from, entries, &mut take);
                next.map(Walk::Times)
            }
            Walk::Ended => {
                let durable = self.log().durable();
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
        if is_planted(Bug::VersionsBehindEnd) && matches!(walk, Walk::Newest(_)) {
            *to = self.log().appended();
        }
        *walk = match *walk {
            Walk::Newest(_) => Walk::Versions(0),
            Walk::Versions(_) => Walk::Settings(0),
            Walk::Settings(_) => Walk::Partitions,
            Walk::Partitions => Walk::Times(0),
            Walk::Times(_) | Walk::Ended => Walk::Ended,
        };
        if matches!(walk, Walk::Ended) {
            if !is_planted(Bug::VersionsBehindEnd) {
                *to = self.log().appended();
            }
            // Versions may be gone whose time had ended, and the log need not tell that time.
            *time_ms = match self.keyspaces.keeps_versions() && !is_planted(Bug::SnapshotUntimed) {
                true => self.time_ms().max(self.carried_ms()),
                false => self.carried_ms(),
            };
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
    let mut slot = 0;
    let mut of_slot: Vec<(u32, PackedPlace)> = Vec::new();
    let mut named = vec![false; KEYSPACES_MAX];
    let mut told: Vec<FileTimes> = Vec::new();
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
                    told.push(times.clone());
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
    told.iter().for_each(|times| memory.take_in_times(times));
    let mut named = (0..).zip(named).filter(|(_, is_named)| *is_named);
    if !named.all(|(number, _)| memory.has_keyspace(number)) {
        return Err(SnapshotError::Stranger(
            "has versions of a keyspace that it does not tell of",
        ));
    }
    Ok(memory)
}
