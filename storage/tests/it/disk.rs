//! A disk in memory: requests end in any order, and a power cut keeps any part of what was not
//! durable, sector by sector.

use std::collections::{BTreeMap, VecDeque};

use penstock_storage::io::{Block, Completion, Io, IoFailure, IoToken, SegmentSource};
use penstock_storage::place::FileId;

use crate::heap::HeapBlock;

/// What a device writes as a whole.
const SECTOR_BYTES: usize = 512;

/// A plain write that ended and that no sync covers yet.
struct Unsynced {
    /// The how-manieth write to end.
    number: u64,
    file: FileId,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Default)]
pub struct Disk {
    /// What a power cut leaves of the files for sure.
    pub files: BTreeMap<FileId, Vec<u8>>,
    under_way: VecDeque<Io<HeapBlock>>,
    unsynced: Vec<Unsynced>,
    /// Writes that have ended.
    ended: u64,
    /// For each sync under way: the writes that had ended when it was asked for.
    syncs: Vec<(IoToken, u64)>,
}

impl Disk {
    /// A file of zeros under the next number.
    pub fn create(&mut self, bytes: usize) -> FileId {
        let last = self.files.last_key_value().map_or(0, |(file, _)| file.0);
        let file = FileId(last + 1);
        self.files.insert(file, vec![0; bytes]);
        file
    }

    pub fn submit(&mut self, requests: &mut Vec<Io<HeapBlock>>) {
        for request in requests.drain(..) {
            if let Io::Sync { token, .. } = request {
                self.syncs.push((token, self.ended));
            }
            self.under_way.push_back(request);
        }
    }

    pub fn under_way(&self) -> &VecDeque<Io<HeapBlock>> {
        &self.under_way
    }

    /// Ends the request at `index` well.
    pub fn complete(&mut self, index: usize) -> Completion<HeapBlock> {
        let request = self.under_way.remove(index).expect("under way");
        let mut result = Ok(());
        let (token, block) = match request {
            Io::Write {
                token,
                file,
                offset,
                block,
                len,
                durable,
            } => {
                let write = self.unsynced(file, offset, &block, len);
                self.ended += 1;
                if durable {
                    self.apply(&write);
                } else {
                    self.unsynced.push(write);
                }
                (token, Some(block))
            }
            Io::Sync { token, file } => {
                let at = self.syncs.iter().position(|(other, _)| *other == token);
                let (_, covered) = self.syncs.swap_remove(at.expect("it was asked for"));
                let (synced, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unsynced)
                    .into_iter()
                    .partition(|write| write.file == file && write.number < covered);
                self.unsynced = rest;
                synced.iter().for_each(|write| self.apply(write));
                (token, None)
            }
            Io::Read {
                token,
                file,
                offset,
                mut block,
                len,
            } => {
                let offset = usize::try_from(offset).expect("small files");
                let mut bytes = self.files[&file].clone();
                for write in self.unsynced.iter().filter(|write| write.file == file) {
                    bytes[write.offset..][..write.bytes.len()].copy_from_slice(&write.bytes);
                }
                let len = len as usize;
                let bytes = &bytes[offset..bytes.len().min(offset + len)];
                block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                if bytes.len() < len {
                    let moved = u32::try_from(bytes.len()).expect("small files");
                    result = Err(IoFailure::Short { moved });
                }
                (token, Some(block))
            }
        };
        Completion {
            token,
            block,
            result,
        }
    }

    /// Ends the request at `index` with a failure; of a write nothing is there.
    pub fn fail(&mut self, index: usize, failure: IoFailure) -> Completion<HeapBlock> {
        let request = self.under_way.remove(index).expect("under way");
        let (token, block) = match request {
            Io::Write { token, block, .. } | Io::Read { token, block, .. } => (token, Some(block)),
            Io::Sync { token, .. } => {
                self.syncs.retain(|(other, _)| *other != token);
                (token, None)
            }
        };
        Completion {
            token,
            block,
            result: Err(failure),
        }
    }

    /// A power cut. Of every write that is not durable some sectors remain: `keeps` gives a bit for
    /// each, the lowest first, and is asked again after 64.
    pub fn crash(&mut self, mut keeps: impl FnMut() -> u64) {
        let mut writes = std::mem::take(&mut self.unsynced);
        self.syncs.clear();
        for request in std::mem::take(&mut self.under_way) {
            if let Io::Write {
                file,
                offset,
                block,
                len,
                ..
            } = request
            {
                writes.push(self.unsynced(file, offset, &block, len));
            }
        }
        for write in writes {
            let mut kept = keeps();
            for (number, sector) in write.bytes.chunks(SECTOR_BYTES).enumerate() {
                if kept & 1 == 1 {
                    self.apply(&Unsynced {
                        number: write.number,
                        file: write.file,
                        offset: write.offset + number * SECTOR_BYTES,
                        bytes: sector.to_vec(),
                    });
                }
                kept = kept.rotate_right(1);
            }
        }
    }

    fn unsynced(&self, file: FileId, offset: u64, block: &HeapBlock, len: u32) -> Unsynced {
        Unsynced {
            number: self.ended,
            file,
            offset: usize::try_from(offset).expect("small files"),
            bytes: block.bytes()[..len as usize].to_vec(),
        }
    }

    fn apply(&mut self, write: &Unsynced) {
        let file = self.files.get_mut(&write.file).expect("it was created");
        file[write.offset..][..write.bytes.len()].copy_from_slice(&write.bytes);
    }
}

impl From<BTreeMap<FileId, Vec<u8>>> for Disk {
    /// These files, and nothing under way.
    fn from(files: BTreeMap<FileId, Vec<u8>>) -> Self {
        Disk {
            files,
            ..Disk::default()
        }
    }
}

impl SegmentSource for Disk {
    fn files(&mut self) -> std::io::Result<Vec<(FileId, u64)>> {
        let files = self.files.iter();
        Ok(files
            .map(|(&file, bytes)| (file, bytes.len() as u64))
            .collect())
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        let bytes = &self.files[&file];
        let start = usize::try_from(offset).map_or(bytes.len(), |start| start.min(bytes.len()));
        let len = into.len().min(bytes.len() - start);
        into[..len].copy_from_slice(&bytes[start..start + len]);
        Ok(len)
    }
}
