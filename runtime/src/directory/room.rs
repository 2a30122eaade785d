//! The room on the disk. Segments come first, key tables take what is left.
//!
//! A segment file is never refused because of key tables. Tables are removed while there is still
//! room for some segments: the room of a removed table is free only when its shard has closed the
//! file, too, and an idle shard checks that once a second.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::directory::key_tables::KeyTableFolder;
use crate::directory::segments::Segments;
use crate::system;

/// Segments for which there must be room when a table is begun.
const SEGMENTS_BESIDE_MIN: u64 = 4;
/// With room for fewer all tables leave. Fewer than above, so that what is made stays for a while.
const SEGMENTS_LOW: u64 = 2;

/// What segments and key tables may take of the disk. A clone tells of the same room.
#[derive(Clone, Debug)]
pub struct DiskRoom {
    segments: Segments,
    key_tables: KeyTableFolder,
    segment_bytes: u64,
    bytes_max: u64,
    /// How often tables had to leave.
    clearances: Arc<AtomicU64>,
}

impl DiskRoom {
    /// The room for segments of `segment_bytes` and for the tables of such: together at most
    /// `bytes_max`, if that is not 0, and what the file system has.
    pub fn new(
        segments: Segments,
        key_tables: KeyTableFolder,
        segment_bytes: u64,
        bytes_max: u64,
    ) -> Self {
        DiskRoom {
            segments,
            key_tables,
            segment_bytes,
            bytes_max,
            clearances: Arc::default(),
        }
    }

    /// The segment files.
    pub fn segments(&self) -> &Segments {
        &self.segments
    }

    /// The key tables.
    pub fn key_tables(&self) -> &KeyTableFolder {
        &self.key_tables
    }

    /// The usual length of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Whether segment files may take so many bytes more, whatever tables take.
    ///
    /// # Errors
    /// As the system says.
    pub fn has_for_segment(&self, bytes: u64) -> io::Result<bool> {
        Ok(self.left_beside(0)? >= bytes)
    }

    /// Bytes that all segments may have, those that are there included.
    ///
    /// # Errors
    /// As the system says.
    pub fn all_bytes(&self) -> io::Result<u64> {
        let segment_bytes = self.segments.bytes()?;
        let tables = self.key_tables.list()?;
        // Tables leave as soon as a segment needs their room.
        let table_bytes: u64 = tables.into_iter().map(|(_, bytes)| bytes).sum();
        let free_bytes = system::free_bytes(self.segments.folder())?;
        let there_is = (free_bytes + table_bytes).saturating_add(segment_bytes);
        Ok(match self.bytes_max {
            0 => there_is,
            most => there_is.min(most),
        })
    }

    /// Whether a table may be begun.
    ///
    /// # Errors
    /// As the system says.
    pub fn has_for_table(&self) -> io::Result<bool> {
        Ok(self.left()? >= SEGMENTS_BESIDE_MIN * self.segment_bytes)
    }

    /// Whether tables have to leave when so many bytes more are taken.
    ///
    /// # Errors
    /// As the system says.
    pub fn is_low(&self, bytes: u64) -> io::Result<bool> {
        Ok(self.left()? < bytes + SEGMENTS_LOW * self.segment_bytes)
    }

    /// Segment files are about to take so many bytes more: if that leaves little, all tables leave.
    /// Whether some left: a shard that has one of them open holds its room for a while.
    ///
    /// # Errors
    /// As the system says; some tables may be left.
    pub fn clear_for_segment(&self, bytes: u64) -> io::Result<bool> {
        if self.key_tables.is_empty()? || !self.is_low(bytes)? {
            return Ok(false);
        }
        // Shards are told first: one that takes a table over behind this gives it up again.
        self.clearances.fetch_add(1, Ordering::Relaxed);
        self.key_tables.remove_all()?;
        Ok(true)
    }

    /// How often tables had to leave. Who uses one looks whether it was more often.
    pub fn clearances(&self) -> u64 {
        self.clearances.load(Ordering::Relaxed)
    }

    /// What neither segments nor tables take, in bytes.
    fn left(&self) -> io::Result<u64> {
        let tables = self.key_tables.list()?;
        self.left_beside(tables.into_iter().map(|(_, bytes)| bytes).sum())
    }

    /// What segments leave if tables take so many bytes of what they may.
    fn left_beside(&self, table_bytes: u64) -> io::Result<u64> {
        let free_bytes = system::free_bytes(self.segments.folder())?;
        let allowed_bytes = match self.bytes_max {
            0 => u64::MAX,
            most => most.saturating_sub(self.segments.bytes()? + table_bytes),
        };
        Ok(free_bytes.min(allowed_bytes))
    }
}
