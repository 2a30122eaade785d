//! The files that a start reads and changes.

use std::fs::File;
use std::io;

use penstock_shard::opening::SegmentFiles;
use penstock_storage::place::FileId;
use penstock_storage::snapshot::SnapshotName;

use crate::directory::snapshots::SnapshotFolder;
use crate::directory::{ReadAhead, SegmentReader, Segments, read_at, set_aside};

/// The files that a start reads and changes.
pub(super) struct NodeFiles<'a> {
    segments: &'a Segments,
    snapshots: &'a SnapshotFolder,
    /// The snapshot that is read.
    open: Option<(SnapshotName, File)>,
    ahead: ReadAhead,
}

impl<'a> NodeFiles<'a> {
    pub(super) fn new(segments: &'a Segments, snapshots: &'a SnapshotFolder) -> Self {
        NodeFiles {
            segments,
            snapshots,
            open: None,
            ahead: ReadAhead::default(),
        }
    }
}

impl SegmentFiles for NodeFiles<'_> {
    type Reader = SegmentReader;

    fn reader(&self) -> SegmentReader {
        self.segments.reader()
    }

    fn truncate(&mut self, file: FileId, bytes: u64) -> io::Result<()> {
        self.segments.truncate(file, bytes)
    }

    fn remove(&mut self, file: FileId) -> io::Result<()> {
        self.segments.remove(file)
    }

    fn set_aside(&mut self, file: FileId) -> io::Result<()> {
        set_aside::set_aside(self.segments, file)
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        File::from(self.segments.open_file(file)?).sync_all()
    }

    fn snapshots(&mut self) -> io::Result<Vec<(SnapshotName, u64)>> {
        self.snapshots.list()
    }

    fn read_snapshot(
        &mut self,
        name: SnapshotName,
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let file = match self.open.take() {
            Some((open, file)) if open == name => file,
            _ => {
                let file = self.snapshots.open(name)?;
                self.ahead.announce(&file, 0);
                file
            }
        };
        let read = read_at(&file, offset, into)?;
        self.segments.progress().read(read as u64);
        self.open = Some((name, file));
        Ok(read)
    }

    fn expect_bytes(&mut self, bytes: u64) {
        self.segments.progress().expect(bytes);
    }
}
