//! The writer of a snapshot: entries in, chunks out.

use crate::format::record::read_u32;
use crate::memory::timers::Timer;
use crate::recovery::snapshot::format::CHUNK_MAGIC;
use crate::recovery::snapshot::format::FOOTER_BYTES;
use crate::recovery::snapshot::format::FOOTER_MAGIC;
use crate::recovery::snapshot::format::Section;
use crate::recovery::snapshot::format::SnapshotFooter;
use crate::recovery::snapshot::format::SnapshotHeader;
use crate::recovery::snapshot::format::SnapshotName;
use crate::recovery::snapshot::format::chunk_crc;
use crate::recovery::snapshot::format::encode_partition;
use crate::recovery::snapshot::format::encode_settings;
use crate::recovery::snapshot::format::encode_timer;
use crate::recovery::snapshot::format::encode_times;
use crate::recovery::snapshot::format::encode_version;
use crate::recovery::snapshot::format::footer_crc;
use crate::recovery::snapshot::packed::{self};
use crate::store::cleaning::live::FileTimes;
use crate::store::keyspace::settings::SettingsEntry;
use crate::store::local::PartitionEntry;
use crate::store::versions::entry::VersionEntry;
use crate::types::packed_place::NewestPart;
use crate::types::place::{LogPosition, Lsn, Place};
use crc32fast::Hasher;

/// A snapshot that is being taken: the bytes of its file, piece by piece, in order.
#[derive(Debug)]
pub struct SnapshotWriter {
    pub(super) name: SnapshotName,
    pub(super) position: LogPosition,
    pub(super) header_crc: u32,
    /// By file number: whether all of the file is covered. Without the segment of the position.
    pub(super) covered: Vec<bool>,
    /// Newest parts that are in no chunk yet.
    pub(super) newest: Vec<NewestPart>,
    /// Entries of another section that are in no chunk yet, as they stand there.
    pending: Vec<u8>,
    section: Section,
    pub(super) footer: SnapshotFooter,
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

    /// The name of the snapshot.
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

    /// Takes the notes of a partition, wherever its local record stands, when no settings wait for
    /// a chunk.
    pub fn take_partition(&mut self, entry: &PartitionEntry<'_>) {
        encode_partition(entry, &mut self.pending);
        self.takes(Section::Partitions);
    }

    /// Takes the times of a file, if some of it is covered, when no notes of a partition wait for a
    /// chunk.
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

    /// Takes a timer, when no times of a file wait for a chunk.
    pub fn take_timer(&mut self, timer: Timer) {
        encode_timer(&timer, &mut self.pending);
        self.takes(Section::Timers);
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
