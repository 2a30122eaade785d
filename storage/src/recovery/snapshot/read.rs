//! The reader of a snapshot, which checks every byte and the order of entries.

use crate::format::record::{read_u32, read_u64};
use crate::memory::timers::Timer;
use crate::recovery::snapshot::format::CHUNK_BYTES_MAX;
use crate::recovery::snapshot::format::CHUNK_HEAD_BYTES;
use crate::recovery::snapshot::format::CHUNK_MAGIC;
use crate::recovery::snapshot::format::COVERED_SEGMENTS_MAX;
use crate::recovery::snapshot::format::FOOTER_BYTES;
use crate::recovery::snapshot::format::FOOTER_MAGIC;
use crate::recovery::snapshot::format::SECTIONS;
use crate::recovery::snapshot::format::SEGMENTS_AT;
use crate::recovery::snapshot::format::SNAPSHOT_MAGIC;
use crate::recovery::snapshot::format::Section;
use crate::recovery::snapshot::format::SnapshotError;
use crate::recovery::snapshot::format::SnapshotFooter;
use crate::recovery::snapshot::format::SnapshotHeader;
use crate::recovery::snapshot::format::SnapshotItem;
use crate::recovery::snapshot::format::chunk_crc;
use crate::recovery::snapshot::format::decode_partition;
use crate::recovery::snapshot::format::decode_settings;
use crate::recovery::snapshot::format::decode_timer;
use crate::recovery::snapshot::format::decode_times;
use crate::recovery::snapshot::format::decode_version;
use crate::recovery::snapshot::format::footer_crc;
use crate::recovery::snapshot::format::header_bytes;
use crate::recovery::snapshot::format::{SNAPSHOT_VERSION, SNAPSHOT_VERSION_OF_REDO};
use crate::recovery::snapshot::packed::{self, Rows};
use crate::store::cleaning::live::FileTimes;
use crate::store::keyspace::settings::SettingsEntry;
use crate::store::local::PartitionEntry;
use crate::store::versions::entry::VersionEntry;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::NewestPart;
use crate::types::place::Lsn;
use crc32fast::Hasher;
use std::io;

/// A finished snapshot. Reads are asked for by offset; as many bytes are moved as the file has.
pub struct SnapshotReader<R> {
    pub(super) read_at: R,
    pub(super) file_bytes: u64,
    pub(super) header: SnapshotHeader,
    pub(super) header_crc: u32,
    pub(super) header_bytes: u64,
    pub(super) footer: SnapshotFooter,
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
        let known = SNAPSHOT_VERSION..=SNAPSHOT_VERSION_OF_REDO;
        if !known.contains(&version) {
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
        if !is_footer {
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
        self.chunks(visit)
    }

    pub(super) fn chunks(
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
            let damaged = |cause| SnapshotError::Damaged { offset, cause };
            let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let wanted = left.min(buffer.len());
            if !fill(&mut self.read_at, offset, &mut buffer[..wanted])? {
                return Err(damaged("it ends within a chunk"));
            }
            let chunk = Chunk::read(&buffer[..wanted], chunks, self.header_crc).map_err(damaged)?;
            chunk_crcs.update(&chunk.crc.to_le_bytes());
            chunk.visit(&mut order, &mut visit).map_err(damaged)?;
            chunks += 1;
            entries += chunk.count as u64;
            offset += chunk.bytes.len() as u64;
        }
        let found = (chunks, entries, chunk_crcs.finalize());
        let footer = self.footer;
        if found != (footer.chunks, footer.entries, footer.chunks_crc) {
            return Err(SnapshotError::Damaged {
                offset,
                cause: "chunks are missing",
            });
        }
        Ok(footer)
    }
}

/// One chunk whose head and checksum were checked.
struct Chunk<'a> {
    section: Section,
    count: usize,
    /// How the entries of an index are packed.
    rows: Option<Rows>,
    crc: u32,
    /// Head and entries.
    bytes: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// Reads chunk `number` from the begin of `read`. Otherwise says what is wrong with the chunk.
    fn read(read: &'a [u8], number: u32, header_crc: u32) -> Result<Self, &'static str> {
        if read.len() < CHUNK_HEAD_BYTES
            || read[0..4] != CHUNK_MAGIC
            || read_u32(&read[4..8]) != number
        {
            return Err("no chunk stands there");
        }
        let section = Section::read(read_u32(&read[8..12])).ok_or("a chunk is of no section")?;
        let count = read_u32(&read[12..16]) as usize;
        if !(1..=section.chunk_entries_max()).contains(&count) {
            return Err("a chunk has an impossible length");
        }
        let body = &read[CHUNK_HEAD_BYTES..];
        let rows = body.first_chunk().and_then(|head| Rows::read(count, head));
        let entries_bytes = match (section.entry_bytes(), &rows) {
            (Some(bytes), _) => count * bytes,
            (None, Some(rows)) => packed::HEAD_BYTES + rows.bytes(),
            (None, None) => return Err("its entries cannot be those of an index"),
        };
        let bytes = read.get(..CHUNK_HEAD_BYTES + entries_bytes);
        let bytes = bytes.ok_or("it ends within a chunk")?;
        let crc = read_u32(&bytes[16..20]);
        if crc != chunk_crc(header_crc, bytes) {
            return Err("a chunk does not check");
        }
        Ok(Chunk {
            section,
            count,
            rows,
            crc,
            bytes,
        })
    }

    /// Visits the entries, each of which must follow the one before it.
    fn visit(
        &self,
        order: &mut Order,
        visit: &mut impl FnMut(&SnapshotItem<'_>) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let encoded = &self.bytes[CHUNK_HEAD_BYTES..];
        match self.section {
            Section::Newest => {
                let rows = self.rows.as_ref().expect("read with the head");
                rows.decode(&encoded[packed::HEAD_BYTES..], |entry| {
                    order.newest(entry)?;
                    visit(&SnapshotItem::Newest(*entry))
                })
            }
            Section::Versions => encoded.as_chunks().0.iter().try_for_each(|encoded| {
                let entry = decode_version(encoded)?;
                order.version(&entry)?;
                visit(&SnapshotItem::Version(entry))
            }),
            Section::Settings => encoded.as_chunks().0.iter().try_for_each(|encoded| {
                let entry = decode_settings(encoded)?;
                order.settings(&entry)?;
                visit(&SnapshotItem::Settings(entry))
            }),
            Section::Partitions => encoded.as_chunks().0.iter().try_for_each(|encoded| {
                let entry = decode_partition(encoded)?;
                order.partition(&entry)?;
                visit(&SnapshotItem::Partition(entry))
            }),
            Section::Times => encoded.as_chunks().0.iter().try_for_each(|encoded| {
                let entry = decode_times(encoded)?;
                order.times(&entry)?;
                visit(&SnapshotItem::Times(entry))
            }),
            Section::Timers => encoded.as_chunks().0.iter().try_for_each(|encoded| {
                let timer = decode_timer(encoded)?;
                order.timer(timer)?;
                visit(&SnapshotItem::Timer(timer))
            }),
        }
    }
}

/// How far the entries of a snapshot have come: sections follow each other, and each ascends.
#[derive(Debug, Default)]
pub(super) struct Order {
    pub(super) newest: KeyHome,
    pub(super) version: Option<(u16, u32, u32, u64)>,
    pub(super) settings: Option<(u16, u8)>,
    pub(super) partition: Option<u8>,
    pub(super) times: Option<u32>,
    pub(super) timer: Option<Timer>,
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
            (Section::Timers, self.timer.is_some()),
        ];
        begun
            .iter()
            .any(|&(other, has_begun)| has_begun && other > section)
    }

    pub(super) fn newest(&mut self, entry: &NewestPart) -> Result<(), &'static str> {
        if entry.key < self.newest || self.is_over(Section::Newest) {
            return Err(Self::BROKEN);
        }
        self.newest = entry.key;
        Ok(())
    }

    pub(super) fn version(&mut self, entry: &VersionEntry) -> Result<(), &'static str> {
        let at = Some(entry.order());
        if at <= self.version || self.is_over(Section::Versions) {
            return Err(Self::BROKEN);
        }
        self.version = at;
        Ok(())
    }

    pub(super) fn settings(&mut self, entry: &SettingsEntry<'_>) -> Result<(), &'static str> {
        let at = Some((entry.number, entry.partition));
        if at <= self.settings || self.is_over(Section::Settings) {
            return Err(Self::BROKEN);
        }
        self.settings = at;
        Ok(())
    }

    pub(super) fn partition(&mut self, entry: &PartitionEntry<'_>) -> Result<(), &'static str> {
        let at = Some(entry.partition);
        if at <= self.partition || self.is_over(Section::Partitions) {
            return Err(Self::BROKEN);
        }
        self.partition = at;
        Ok(())
    }

    pub(super) fn times(&mut self, entry: &FileTimes) -> Result<(), &'static str> {
        let at = Some(entry.file.0);
        if at <= self.times || self.is_over(Section::Times) {
            return Err(Self::BROKEN);
        }
        self.times = at;
        Ok(())
    }

    pub(super) fn timer(&mut self, timer: Timer) -> Result<(), &'static str> {
        if Some(timer) <= self.timer {
            return Err(Self::BROKEN);
        }
        self.timer = Some(timer);
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
