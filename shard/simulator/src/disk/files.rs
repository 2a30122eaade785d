//! The directory of a shard on the simulated disk.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use penstock_shard::opening::SegmentFiles;
use penstock_storage::io::SegmentSource;
use penstock_storage::place::FileId;
use penstock_storage::snapshot::SnapshotName;

use super::{Disk, EIO, Way};
use crate::coverage::Fault;

/// A handle for the procedure that opens shards.
#[derive(Clone)]
pub struct Files(pub Rc<RefCell<Disk>>);

impl Files {
    /// A change that lasts, unless the machine stops before.
    ///
    /// # Errors
    /// It did.
    pub fn change(&self) -> io::Result<()> {
        let mut disk = self.0.borrow_mut();
        if let Some(left) = &mut disk.changes_left {
            if *left == 0 {
                return Err(io::Error::other("the machine stopped"));
            }
            *left -= 1;
        }
        Ok(())
    }
}

impl SegmentFiles for Files {
    type Reader = Files;

    fn reader(&self) -> Files {
        self.clone()
    }

    fn truncate(&mut self, file: FileId, bytes: u64) -> io::Result<()> {
        self.change()?;
        let mut disk = self.0.borrow_mut();
        let bytes = usize::try_from(bytes).expect("small files");
        let state = disk.files.get_mut(&file).expect("a file of the log");
        state.image.truncate(bytes);
        state.unsynced.retain(|write| write.offset < bytes);
        for write in &mut state.unsynced {
            write.before.truncate(bytes - write.offset);
        }
        Ok(())
    }

    fn remove(&mut self, file: FileId) -> io::Result<()> {
        self.change()?;
        self.0.borrow_mut().unlink(file);
        Ok(())
    }

    fn set_aside(&mut self, file: FileId) -> io::Result<()> {
        self.change()?;
        let mut disk = self.0.borrow_mut();
        disk.hit(Fault::SpareSetAside);
        disk.files.remove(&file);
        Ok(())
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        self.change()?;
        let mut disk = self.0.borrow_mut();
        let covers = disk.next_serial;
        disk.sync(file, covers, &Way::Good)
            .expect("a good sync does not fail");
        Ok(())
    }

    fn snapshots(&mut self) -> io::Result<Vec<(SnapshotName, u64)>> {
        let disk = self.0.borrow();
        let found = disk.snapshots.iter();
        Ok(found
            .map(|(&name, bytes)| (name, bytes.len() as u64))
            .collect())
    }

    fn read_snapshot(
        &mut self,
        name: SnapshotName,
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let disk = self.0.borrow();
        let bytes = &disk.snapshots[&name];
        let start = usize::try_from(offset).map_or(bytes.len(), |at| at.min(bytes.len()));
        let moved = into.len().min(bytes.len() - start);
        into[..moved].copy_from_slice(&bytes[start..start + moved]);
        Ok(moved)
    }

    fn expect_bytes(&mut self, _: u64) {}
}

impl SegmentSource for Files {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        Ok(self
            .0
            .borrow()
            .files
            .iter()
            .map(|(&file, state)| (file, state.image.len() as u64))
            .collect())
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut disk = self.0.borrow_mut();
        if disk.start_read_errors > 0 && disk.random.chance(100_000) {
            disk.start_read_errors -= 1;
            disk.hit(Fault::StartReadError);
            return Err(io::Error::from_raw_os_error(EIO));
        }
        let disk = &*disk;
        let image = &disk.files[&file].image;
        let start = usize::try_from(offset)
            .expect("small files")
            .min(image.len());
        let len = into.len().min(image.len() - start);
        let is_unreadable = disk
            .unreadable
            .iter()
            .any(|&(at, place)| at == file && (start..start + len).contains(&place));
        if is_unreadable {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        into[..len].copy_from_slice(&image[start..start + len]);
        Ok(len)
    }
}

/// A segment as it stood when its key table was begun.
pub(super) struct OneFile(pub(super) FileId, pub(super) Vec<u8>);

impl SegmentSource for OneFile {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        Ok(vec![(self.0, self.1.len() as u64)])
    }

    fn read_at(&mut self, _: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let start = usize::try_from(offset).map_or(self.1.len(), |at| at.min(self.1.len()));
        let len = into.len().min(self.1.len() - start);
        into[..len].copy_from_slice(&self.1[start..start + len]);
        Ok(len)
    }
}
