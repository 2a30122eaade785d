//! Segment files as somebody is to see them: each from its start up to some length, zeros behind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use penstock_storage::io::SegmentSource;
use penstock_storage::place::FileId;

use crate::system::named_error::named;

/// The start of a file, and zeros up to a length.
#[derive(Debug)]
pub(crate) struct Slice {
    path: PathBuf,
    held_bytes: u64,
    bytes: u64,
}

impl Slice {
    /// The first `held_bytes` of the file at `path`, then zeros up to `bytes`.
    pub(crate) fn new(path: PathBuf, held_bytes: u64, bytes: u64) -> Self {
        Slice {
            path,
            held_bytes,
            bytes,
        }
    }
}

/// A source that recovery reads, made of slices.
#[derive(Debug)]
pub(crate) struct View {
    slices: BTreeMap<FileId, Slice>,
    open: Option<(FileId, File)>,
}

impl View {
    pub(crate) fn new(slices: impl IntoIterator<Item = (FileId, Slice)>) -> Self {
        View {
            slices: slices.into_iter().collect(),
            open: None,
        }
    }

    /// Where the bytes of a file of this view come from.
    pub(crate) fn path(&self, file: FileId) -> &Path {
        &self.slices[&file].path
    }
}

impl SegmentSource for View {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        Ok(self
            .slices
            .iter()
            .map(|(&file, slice)| (file, slice.bytes))
            .collect())
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let slice = &self.slices[&file];
        let part = |end: u64| {
            let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            left.min(into.len())
        };
        let (held, all) = (part(slice.held_bytes), part(slice.bytes));
        into[held..all].fill(0);
        if held == 0 {
            return Ok(all);
        }
        let open = match self.open.take() {
            Some((open, opened)) if open == file => opened,
            _ => File::open(&slice.path).map_err(|error| named(&slice.path, &error))?,
        };
        let (_, opened) = self.open.insert((file, open));
        let mut filled = 0;
        while filled < held {
            match opened.read_at(&mut into[filled..held], offset + filled as u64) {
                // Shorter than it was: the reader finds out what that means.
                Ok(0) => return Ok(filled),
                Ok(moved) => filled += moved,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(named(&slice.path, &error)),
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_in_zeros_and_then_at_all() {
        let path = std::env::temp_dir().join(format!("penstock-slice-{}", std::process::id()));
        std::fs::write(&path, [7; 10]).unwrap();
        let mut view = View::new([(FileId(1), Slice::new(path.clone(), 4, 8))]);
        assert_eq!(view.files().unwrap(), [(FileId(1), 8)]);
        for offset in 0..10usize {
            let mut into = [9; 6];
            let read = view.read_at(FileId(1), offset as u64, &mut into).unwrap();
            let expected: Vec<u8> = (offset..8.max(offset))
                .take(6)
                .map(|at| if at < 4 { 7 } else { 0 })
                .collect();
            assert_eq!(into[..read], expected, "from {offset}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
