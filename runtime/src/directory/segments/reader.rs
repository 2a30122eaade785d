//! Reads segment files at a start and for an inspection.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use penstock_storage::io::{BLOCK_BYTES, SegmentSource};
use penstock_storage::place::FileId;

use super::Segments;
use crate::directory::read_ahead::ReadAhead;
use crate::system;
use crate::system::named_error::named;

/// Reads segment files in whatever order recovery wants, one open at a time.
///
/// Each file is synced before a byte behind its first block is read: what an earlier process wrote
/// and did not flush may be in the page cache only, and recovery must not build on what a power cut
/// can still take back. Who reads the first block alone builds on nothing else in that file: a
/// header was durable before anything was written behind it, and that before the header of the next
/// segment.
#[derive(Debug)]
pub struct SegmentReader {
    segments: Segments,
    open: Option<(FileId, File)>,
    synced: HashSet<FileId>,
    ahead: ReadAhead,
    announced: HashSet<FileId>,
}

impl SegmentReader {
    pub(super) fn new(segments: Segments) -> Self {
        SegmentReader {
            segments,
            open: None,
            synced: HashSet::new(),
            ahead: ReadAhead::default(),
            announced: HashSet::new(),
        }
    }

    /// The open file; synced, if more than its first block is going to be read.
    fn file(&mut self, id: FileId, end: u64) -> io::Result<&File> {
        let file = match self.open.take() {
            Some((open, file)) if open == id => file,
            _ => {
                let path = self.segments.path(id);
                let file = File::open(&path).map_err(|error| named(&path, &error))?;
                // What is read beyond what is asked for costs a start time. If this fails, it does.
                let _ = system::read_as_asked(file.as_fd());
                file
            }
        };
        if end > BLOCK_BYTES as u64 && self.synced.insert(id) {
            let path = self.segments.path(id);
            file.sync_all().map_err(|error| named(&path, &error))?;
        }
        Ok(&self.open.insert((id, file)).1)
    }
}

impl SegmentSource for SegmentReader {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        self.segments.list()
    }

    fn will_read(&mut self, id: FileId, offset: u64) {
        // Once, from wherever that was. Whatever fails is told by the read.
        if self.announced.insert(id) && self.file(id, u64::MAX).is_ok() {
            self.open
                .iter()
                .for_each(|(_, file)| self.ahead.announce(file, offset));
        }
    }

    fn read_at(&mut self, id: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let path = self.segments.path(id);
        let file = self.file(id, offset + into.len() as u64)?;
        let mut filled = 0;
        while filled < into.len() {
            match file.read_at(&mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(moved) => filled += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(named(&path, &error)),
            }
        }
        self.segments.progress.read(filled as u64);
        Ok(filled)
    }
}
