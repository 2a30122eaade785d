//! What stands on the platter: the segment files and their bytes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use penstock_storage::io::SegmentSource;
use penstock_storage::place::FileId;

/// What a device writes as a whole.
pub const SECTOR_BYTES: usize = 512;

/// The files of one data directory. A key table has the number that the disk knows it by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub files: BTreeMap<FileId, Vec<u8>>,
}

impl Image {
    /// Adds a zero-written file under the next free number.
    pub fn create(&mut self, bytes: usize) -> FileId {
        self.create_from(1, bytes)
    }

    /// The same under a number that is not below `first`.
    pub fn create_from(&mut self, first: u32, bytes: usize) -> FileId {
        let last = self.segments().last();
        let file = FileId(last.map_or(first, |(file, _)| first.max(file.0 + 1)));
        self.files.insert(file, vec![0; bytes]);
        file
    }

    /// The segment files, in order.
    fn segments(&self) -> impl Iterator<Item = (&FileId, &Vec<u8>)> {
        let files = self.files.iter();
        files.filter(|(file, _)| file.segment_of_table().is_none())
    }

    /// The bytes of a file that is there.
    pub fn file(&mut self, file: FileId) -> &mut Vec<u8> {
        self.files.get_mut(&file).expect("the file is there")
    }

    /// The bytes at a place.
    pub fn at(&mut self, file: FileId, offset: usize, len: usize) -> &mut [u8] {
        &mut self.file(file)[offset..offset + len]
    }

    /// A number of these contents: the exclusive or of one number for each sector and each length,
    /// so that it can follow the change of a sector.
    pub fn fingerprint(&self) -> u64 {
        self.files.iter().fold(0, |sum, (&file, bytes)| {
            let sectors = bytes.chunks(SECTOR_BYTES).enumerate();
            let sectors = sectors
                .map(|(number, sector)| sector_fingerprint(file, number * SECTOR_BYTES, sector));
            sectors.fold(sum ^ fingerprint(&(file, bytes.len())), |sum, one| {
                sum ^ one
            })
        })
    }
}

/// The share of one sector in the fingerprint of its image.
pub fn sector_fingerprint(file: FileId, offset: usize, bytes: &[u8]) -> u64 {
    fingerprint(&(file, offset, bytes))
}

fn fingerprint(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl SegmentSource for Image {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        let lengths = self.segments();
        Ok(lengths
            .map(|(&file, bytes)| (file, bytes.len() as u64))
            .collect())
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = &self.files[&file];
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let len = into.len().min(bytes.len() - start);
        into[..len].copy_from_slice(&bytes[start..start + len]);
        Ok(len)
    }
}
