//! Snapshots of the index: where the newest part of each key stands, the kept versions of keys, the
//! settings of keyspaces, and how much of each segment expires by when, so that a start reads them
//! and the end of the log instead of all of it.
//!
//! A snapshot is taken beside the traffic. It *begins* at a position up to which the log is
//! durable; then the index is walked in small steps, and an entry that points behind that position
//! is left out, because the log from there on is replayed anyway. So an entry of a snapshot belongs
//! to a key that was not changed between the begin and the moment when the walk came to it. A key
//! whose change the walk has seen is not in the snapshot, so the change itself must not get lost: a
//! snapshot is *finished* only when everything that was appended by the end of the walk is durable.
//!
//! The kept versions are walked like the index, then the settings, then what a node of a cluster
//! notes of partitions. A version that is not there any more
//! when the walk comes to it is not kept by then, nor ever again: the footer tells a time that is
//! not before that, and what was superseded or set meanwhile is in the log behind the begin. The
//! last two are told as the walk finds them, also if their record stands behind the begin: later
//! ones are as good, and a start needs to know of each superseded part there whether it is kept.
//!
//! The times of segments come behind the parts, so that they tell of every part that an entry
//! points to. What is told and replayed as well counts twice among what was added, which makes
//! nothing count as expired ([`crate::store::cleaning::live`]).
//!
//! The timers of armed keys follow them. A key that is armed, disarmed or fired during the walk has
//! a record behind the begin that says so. A timer that is out of date does no harm.
//!
//! A snapshot is only ever an accelerator. One that is not whole, of another node, log or key hash,
//! or that does not fit the segments that are there, is not used; the log alone gives the same.
//! Every byte is described in `SNAPSHOTS.md`.

use crate::format::record::{SEQUENCE_MAX, read_u32, read_u64};
use crate::format::segment::Owner;
use crate::format::system_key::{EPOCHS_BYTES_MAX, LOCAL_BYTES_MAX};
use crate::memory::timers::Timer;
use crate::recovery::snapshot::packed::{self};
use crate::store::cleaning::expiring::{Amount, BUCKETS, Bucket, Expiring};
use crate::store::cleaning::live::FileTimes;
use crate::store::keyspace::settings::{
    KEYSPACES_MAX, PREFIX_BYTES_MAX, SETTINGS_BYTES, Settings, SettingsEntry,
};
use crate::store::local::PartitionEntry;
use crate::store::versions::entry::{CHECK_MAX, VersionEntry};
use crate::types::io::BLOCK_BYTES;
use crate::types::packed_place::NewestPart;
use crate::types::packed_place::{FILES_MAX, PackedPlace};
use crate::types::place::FileId;
use crate::types::place::{LogPosition, Lsn, Place};
use crate::types::version::{PARTITIONS, SLOTS, Sequences, Version};
use crc32fast::Hasher;
use std::fmt;
use std::io;

/// The first bytes of a snapshot.
pub const SNAPSHOT_MAGIC: [u8; 8] = *b"PSTKSNP1";

/// The version of the snapshot format.
pub const SNAPSHOT_VERSION: u32 = 6;

/// The same of a snapshot with flush marks in the index: builds that know no marks leave it aside,
/// and refuse the log.
pub const SNAPSHOT_VERSION_OF_MARKS: u32 = 7;

/// The same of a snapshot with redo records in the index, and perhaps flush marks: builds that know
/// no redo records leave it aside, and refuse the log.
pub const SNAPSHOT_VERSION_OF_REDO: u32 = 8;

/// Entries of the index in a chunk, at most.
pub const CHUNK_ENTRIES_MAX: usize = 1 << 14;

/// Segments that a snapshot may point into, at most.
pub const COVERED_SEGMENTS_MAX: usize = 1 << 16;

/// Entries of one slot that a start takes into the index at once; those of a slot with more follow
/// one by one, so that they take no memory twice.
pub(super) const SLOT_ENTRIES_MAX: usize = 1 << 16;

pub(super) const CHUNK_MAGIC: [u8; 4] = *b"PKSC";

pub(super) const FOOTER_MAGIC: [u8; 4] = *b"PKSF";

const SEQUENCES_AT: usize = 112;

pub(super) const SEGMENTS_AT: usize = SEQUENCES_AT + 8 * PARTITIONS;

const SEGMENT_BYTES: usize = 32;

pub(super) const CHUNK_HEAD_BYTES: usize = 20;

/// Bytes of the entries of a chunk, at most.
pub(super) const CHUNK_BYTES_MAX: usize = CHUNK_ENTRIES_MAX * packed::ROW_BYTES_MAX;

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

const TIMER_BYTES: usize = 12;

pub(super) const SECTIONS: u32 = 6;

pub(super) const FOOTER_BYTES: usize = 40;

const FLAG_UNPROVEN: u8 = 1;

const FLAG_RELEASED: u8 = 2;

const FLAG_LINKED: u8 = 4;

const FLAG_HEADS: u8 = 8;

const VERSION_FLAG_DELETION: u8 = 1;

const VERSION_FLAG_MARKED: u8 = 2;

const VERSION_FLAGS: u8 = VERSION_FLAG_DELETION | VERSION_FLAG_MARKED;

/// What the entries of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Newest = 1,
    Versions = 2,
    Settings = 3,
    Partitions = 4,
    Times = 5,
    Timers = 6,
}

impl Section {
    pub(super) fn read(number: u32) -> Option<Self> {
        let all = [
            Section::Newest,
            Section::Versions,
            Section::Settings,
            Section::Partitions,
            Section::Times,
            Section::Timers,
        ];
        all.into_iter().find(|&section| section as u32 == number)
    }

    /// What an entry takes; those of the newest parts are packed.
    pub(super) const fn entry_bytes(self) -> Option<usize> {
        match self {
            Section::Newest => None,
            Section::Versions => Some(VERSION_BYTES),
            Section::Settings => Some(SETTINGS_ENTRY_BYTES),
            Section::Partitions => Some(PARTITION_ENTRY_BYTES),
            Section::Times => Some(TIMES_BYTES),
            Section::Timers => Some(TIMER_BYTES),
        }
    }

    /// Entries of a chunk, at most.
    pub(super) const fn chunk_entries_max(self) -> usize {
        match self.entry_bytes() {
            None => CHUNK_ENTRIES_MAX,
            Some(bytes) => CHUNK_BYTES_MAX / bytes,
        }
    }
}

/// The log and the number of a snapshot. The newest snapshot of a log has the highest number.
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
    /// The node that the snapshot belongs to.
    pub owner: Owner,
    /// The name of the snapshot.
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
    /// The index had flush marks by then.
    pub has_marks: bool,
    /// The log has had heads of members. A start behind a snapshot reads no part before its
    /// position, so a build that knows no heads must not take it for its own.
    pub has_heads: bool,
    /// The index had redo records by then. Nothing tells whether it had marks then.
    pub has_redo: bool,
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
    /// The newest time that the log carried then, in unix milliseconds: what had expired by this
    /// time may have been left out.
    pub time_ms: u64,
    /// CRC over the CRCs of the chunks.
    pub chunks_crc: u32,
}

/// An entry of one of the sections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotItem<'a> {
    /// An entry of the index.
    Newest(NewestPart),
    /// A kept version.
    Version(VersionEntry),
    /// The settings of a keyspace in a partition.
    Settings(SettingsEntry<'a>),
    /// What a node of a cluster notes of a partition.
    Partition(PartitionEntry<'a>),
    /// How much of a file expires by when.
    Times(FileTimes),
    /// When an armed key may expire.
    Timer(Timer),
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

    fn version(&self) -> u32 {
        match (self.has_redo, self.has_marks) {
            (true, _) => SNAPSHOT_VERSION_OF_REDO,
            (false, true) => SNAPSHOT_VERSION_OF_MARKS,
            (false, false) => SNAPSHOT_VERSION,
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
        bytes[8..12].copy_from_slice(&self.version().to_le_bytes());
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
            + u8::from(self.is_linked) * FLAG_LINKED
            + u8::from(self.has_heads) * FLAG_HEADS;
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
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
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
            has_heads: bytes[100] & FLAG_HEADS != 0,
            has_marks: read_u32(&bytes[8..12]) == SNAPSHOT_VERSION_OF_MARKS,
            has_redo: read_u32(&bytes[8..12]) == SNAPSHOT_VERSION_OF_REDO,
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

pub(super) const fn header_bytes(segments: usize) -> usize {
    SEGMENTS_AT + SEGMENT_BYTES * segments + 8
}

pub(super) fn encode_version(entry: &VersionEntry, into: &mut Vec<u8>) {
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

pub(super) fn decode_version(bytes: &[u8; VERSION_BYTES]) -> Result<VersionEntry, &'static str> {
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

pub(super) fn encode_settings(entry: &SettingsEntry<'_>, into: &mut Vec<u8>) {
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

pub(super) fn decode_settings(
    bytes: &[u8; SETTINGS_ENTRY_BYTES],
) -> Result<SettingsEntry<'_>, &'static str> {
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

pub(super) fn encode_partition(entry: &PartitionEntry<'_>, into: &mut Vec<u8>) {
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

pub(super) fn decode_partition(
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

pub(super) fn encode_times(entry: &FileTimes, into: &mut Vec<u8>) {
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

pub(super) fn decode_times(bytes: &[u8; TIMES_BYTES]) -> Result<FileTimes, &'static str> {
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
    // The words are summed up, and the sum must not overflow.
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

pub(super) fn encode_timer(timer: &Timer, into: &mut Vec<u8>) {
    into.extend_from_slice(&timer.expiry_ms.to_le_bytes()[..6]);
    into.extend_from_slice(&timer.slot.to_le_bytes());
    into.extend_from_slice(&timer.hash.to_le_bytes());
}

pub(super) fn decode_timer(bytes: &[u8; TIMER_BYTES]) -> Result<Timer, &'static str> {
    let [a, b, c, d, e, f, slot_low, slot_high, hash @ ..] = *bytes;
    let timer = Timer {
        expiry_ms: u64::from_le_bytes([a, b, c, d, e, f, 0, 0]),
        slot: u16::from_le_bytes([slot_low, slot_high]),
        hash: u32::from_le_bytes(hash),
    };
    match timer.slot < SLOTS {
        true => Ok(timer),
        false => Err("a timer cannot be one of a key"),
    }
}

/// Over the header's CRC, so that a chunk belongs to this snapshot only, its own head and entries.
pub(super) fn chunk_crc(header_crc: u32, chunk: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header_crc.to_le_bytes());
    hasher.update(&chunk[..CHUNK_HEAD_BYTES - 4]);
    hasher.update(&chunk[CHUNK_HEAD_BYTES..]);
    hasher.finalize()
}

pub(super) fn footer_crc(header_crc: u32, footer: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&header_crc.to_le_bytes());
    hasher.update(&footer[..FOOTER_BYTES - 4]);
    hasher.finalize()
}
