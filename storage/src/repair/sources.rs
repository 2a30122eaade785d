//! Sources over the files of a directory: one that goes on behind bad reads, one as if the repair
//! were done.

use crate::repair::damage::Plan;
use crate::repair::rebuild::{BLOCK, within};
use crate::types::io::SegmentSource;
use crate::types::place::FileId;
use std::collections::BTreeMap;
use std::io;

/// A source that goes round what the device cannot read: zeros, which never check.
pub(super) struct Patient<'a, S>(pub(super) &'a mut S);

impl<S: SegmentSource> SegmentSource for Patient<'_, S> {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        self.0.files()
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if let Ok(read) = self.0.read_at(file, offset, into) {
            return Ok(read);
        }
        let mut filled = 0;
        while filled < into.len() {
            // Up to the next block of the file, so that no sector that can be read is left out.
            let at = offset + filled as u64;
            let len = within(at, (at / BLOCK + 1) * BLOCK).min(into.len() - filled);
            let stretch = &mut into[filled..][..len];
            match self.0.read_at(file, at, stretch) {
                Ok(read) if read < len => return Ok(filled + read),
                Ok(_) => {}
                Err(_) => stretch.fill(0),
            }
            filled += len;
        }
        Ok(filled)
    }
}

/// The directory as it is after a plan.
pub(super) struct Repaired<'a, S> {
    pub(super) source: &'a mut S,
    pub(super) plan: &'a Plan,
}

impl<S: SegmentSource> SegmentSource for Repaired<'_, S> {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        let mut files: BTreeMap<FileId, u64> = self.source.files()?.into_iter().collect();
        files.retain(|file, _| !self.plan.removals.contains(file));
        let rebuilds = self.plan.rebuilds.iter();
        files.extend(rebuilds.map(|rebuild| (rebuild.file, rebuild.bytes)));
        Ok(files.into_iter().collect())
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut rebuilds = self.plan.rebuilds.iter();
        let Some(rebuild) = rebuilds.find(|rebuild| rebuild.file == file) else {
            return self.source.read_at(file, offset, into);
        };
        let left = usize::try_from(rebuild.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = into.len().min(left);
        rebuild.read(self.source, offset, &mut into[..len])?;
        Ok(len)
    }
}
