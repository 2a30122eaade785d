//! A disk in memory: writes are under way until the test completes them, in any order, and a crash
//! keeps any part of what was not durable yet, sector by sector.

use std::collections::BTreeMap;

use penstock_storage::io::{Block, Completion, FileId, Io, IoFailure, IoToken, SegmentSource};

pub use crate::heap::{Heap, HeapBlock};
pub use crate::random::Random;

/// What a device writes as a whole.
const SECTOR_BYTES: usize = 512;

/// The seeds of a random test.
pub fn seeds(count: u64) -> std::ops::RangeInclusive<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().expect("a seed is a number"))
    };
    match number("PENSTOCK_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("PENSTOCK_SEEDS").unwrap_or(count),
    }
}

/// Names the seed of a random test that fails.
pub struct Seed(pub u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with PENSTOCK_SEED={}", self.0);
        }
    }
}

/// A write that the device has accepted and not made durable.
struct Pending {
    file: FileId,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Default)]
pub struct Disk {
    /// What would be there after a power cut that loses everything pending.
    pub files: BTreeMap<FileId, Vec<u8>>,
    under_way: Vec<Io<HeapBlock>>,
    /// Plain writes that completed and await a sync.
    unsynced: Vec<Pending>,
    /// For each sync under way the number of unsynced writes that it covers.
    covered: Vec<(IoToken, usize)>,
}

impl Disk {
    /// A disk with these files and nothing under way.
    pub fn holding(files: BTreeMap<FileId, Vec<u8>>) -> Self {
        Disk {
            files,
            ..Disk::default()
        }
    }

    /// A zero-written file under the next free number.
    pub fn create(&mut self, bytes: usize) -> FileId {
        let file = FileId(
            self.files
                .last_key_value()
                .map_or(1, |(file, _)| file.0 + 1),
        );
        self.files.insert(file, vec![0; bytes]);
        file
    }

    pub fn submit(&mut self, requests: &mut Vec<Io<HeapBlock>>) {
        for request in requests.drain(..) {
            if let Io::Sync { token, .. } = request {
                self.covered.push((token, self.unsynced.len()));
            }
            self.under_way.push(request);
        }
    }

    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The request under way at `index`.
    pub fn request(&self, index: usize) -> &Io<HeapBlock> {
        &self.under_way[index]
    }

    /// Ends the request at `index` well.
    pub fn complete(&mut self, index: usize) -> Completion<HeapBlock> {
        match self.under_way.remove(index) {
            Io::Write {
                token,
                file,
                offset,
                block,
                len,
                durable,
            } => {
                let offset = usize::try_from(offset).expect("small files");
                let bytes = block.bytes()[..len as usize].to_vec();
                let pending = Pending {
                    file,
                    offset,
                    bytes,
                };
                if durable {
                    self.apply(&pending);
                } else {
                    self.unsynced.push(pending);
                }
                Completion {
                    token,
                    block: Some(block),
                    result: Ok(()),
                }
            }
            Io::Sync { token, file } => {
                let at = self
                    .covered
                    .iter()
                    .position(|(covering, _)| *covering == token)
                    .expect("submitted");
                let (_, count) = self.covered.remove(at);
                let (synced, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unsynced)
                    .into_iter()
                    .enumerate()
                    .partition(|(n, write)| *n < count && write.file == file);
                // Other syncs under way cover what is left of theirs.
                for (_, other) in &mut self.covered {
                    *other -= synced.iter().filter(|(n, _)| n < other).count();
                }
                self.unsynced = later.into_iter().map(|(_, write)| write).collect();
                for (_, write) in &synced {
                    self.apply(write);
                }
                Completion {
                    token,
                    block: None,
                    result: Ok(()),
                }
            }
            Io::Read {
                token,
                file,
                offset,
                mut block,
                len,
            } => {
                let offset = usize::try_from(offset).expect("small files");
                let len = len as usize;
                let mut bytes = self.files[&file].clone();
                for write in self.unsynced.iter().filter(|write| write.file == file) {
                    bytes[write.offset..write.offset + write.bytes.len()]
                        .copy_from_slice(&write.bytes);
                }
                let bytes = &bytes[offset..bytes.len().min(offset + len)];
                block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                Completion {
                    token,
                    block: Some(block),
                    result: Ok(()),
                }
            }
        }
    }

    /// Ends the request at `index` with a failure; nothing of it reaches the disk.
    pub fn fail(&mut self, index: usize, failure: IoFailure) -> Completion<HeapBlock> {
        match self.under_way.remove(index) {
            Io::Write { token, block, .. } | Io::Read { token, block, .. } => Completion {
                token,
                block: Some(block),
                result: Err(failure),
            },
            Io::Sync { token, .. } => Completion {
                token,
                block: None,
                result: Err(failure),
            },
        }
    }

    /// A power cut: of every write that is not durable nothing, everything or some sectors remain.
    pub fn crash(&mut self, random: &mut Random) {
        let mut pending = std::mem::take(&mut self.unsynced);
        for request in std::mem::take(&mut self.under_way) {
            if let Io::Write {
                file,
                offset,
                block,
                len,
                ..
            } = request
            {
                let offset = usize::try_from(offset).expect("small files");
                pending.push(Pending {
                    file,
                    offset,
                    bytes: block.bytes()[..len as usize].to_vec(),
                });
            }
        }
        self.covered.clear();
        for write in pending {
            match random.below(4) {
                0 => {}
                1 => self.apply(&write),
                _ => {
                    for (number, sector) in write.bytes.chunks(SECTOR_BYTES).enumerate() {
                        if random.once_in(2) {
                            let offset = write.offset + number * SECTOR_BYTES;
                            self.apply(&Pending {
                                file: write.file,
                                offset,
                                bytes: sector.to_vec(),
                            });
                        }
                    }
                }
            }
        }
    }

    fn apply(&mut self, write: &Pending) {
        let file = self
            .files
            .get_mut(&write.file)
            .expect("the log writes to files that exist");
        file[write.offset..write.offset + write.bytes.len()].copy_from_slice(&write.bytes);
    }
}

impl SegmentSource for Disk {
    fn files(&mut self) -> std::io::Result<Vec<(FileId, u64)>> {
        Ok(self
            .files
            .iter()
            .map(|(&file, bytes)| (file, bytes.len() as u64))
            .collect())
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        let bytes = &self.files[&file];
        let start = usize::try_from(offset)
            .expect("small files")
            .min(bytes.len());
        let len = into.len().min(bytes.len() - start);
        into[..len].copy_from_slice(&bytes[start..start + len]);
        Ok(len)
    }
}
