//! A device with a cache that forgets: what it was asked to write stands on the platter for certain
//! only when a durable write or a sync of it has ended. Until then each sector is there or not.

use penstock_storage::io::{Block, Completion, Io, IoFailure, IoToken};
use penstock_storage::place::FileId;

use crate::heap::HeapBlock;
use crate::image::{Image, SECTOR_BYTES, sector_fingerprint};

/// One sector that a power cut keeps or loses.
#[derive(Clone, Debug)]
pub struct Sector {
    pub file: FileId,
    pub offset: usize,
    pub bytes: Vec<u8>,
}

impl Sector {
    /// Exchanges the sector with what stands at its place: kept if it was lost, lost if it was
    /// kept. Returns what the fingerprint of the image changes by.
    pub fn toggle(&mut self, image: &mut Image) -> u64 {
        let (file, offset) = (self.file, self.offset);
        let there = image.at(file, offset, self.bytes.len());
        let change =
            sector_fingerprint(file, offset, there) ^ sector_fingerprint(file, offset, &self.bytes);
        there.swap_with_slice(&mut self.bytes);
        change
    }
}

/// A plain write that ended and that no sync covers yet.
struct Unsynced {
    number: u64,
    file: FileId,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Default)]
pub struct Device {
    /// What a power cut certainly leaves.
    pub image: Image,
    under_way: Vec<Io<HeapBlock>>,
    unsynced: Vec<Unsynced>,
    /// The number of the next write that ends without being durable.
    next_number: u64,
    /// For each sync under way the first of those numbers that it does not cover.
    syncs: Vec<(IoToken, u64)>,
}

impl Device {
    pub fn holding(image: Image) -> Self {
        Device {
            image,
            ..Device::default()
        }
    }

    pub fn submit(&mut self, requests: &mut Vec<Io<HeapBlock>>) {
        for request in requests.drain(..) {
            if let Io::Sync { token, .. } = request {
                self.syncs.push((token, self.next_number));
            }
            self.under_way.push(request);
        }
    }

    pub fn under_way(&self) -> &[Io<HeapBlock>] {
        &self.under_way
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
                let bytes = &block.bytes()[..len as usize];
                if durable {
                    self.image
                        .at(file, offset, bytes.len())
                        .copy_from_slice(bytes);
                } else {
                    self.unsynced.push(Unsynced {
                        number: self.next_number,
                        file,
                        offset,
                        bytes: bytes.to_vec(),
                    });
                    self.next_number += 1;
                }
                ended(token, Some(block), Ok(()))
            }
            Io::Sync { token, file } => {
                self.sync_ended(token, file, true);
                ended(token, None, Ok(()))
            }
            Io::Read {
                token,
                file,
                offset,
                mut block,
                len,
            } => {
                let (offset, len) = (usize::try_from(offset).expect("small files"), len as usize);
                let into = &mut block.bytes_mut()[..len];
                into.copy_from_slice(self.image.at(file, offset, len));
                ended(token, Some(block), Ok(()))
            }
        }
    }

    /// Ends the request at `index` with a failure. Of a write its first `sectors` reach the
    /// platter; a sync brings there all or, with `sectors` 0, nothing, and then forgets what it was
    /// to bring.
    pub fn fail(
        &mut self,
        index: usize,
        failure: IoFailure,
        sectors: usize,
    ) -> Completion<HeapBlock> {
        match self.under_way.remove(index) {
            Io::Write {
                token,
                file,
                offset,
                block,
                len,
                ..
            } => {
                let offset = usize::try_from(offset).expect("small files");
                let reached = (sectors * SECTOR_BYTES).min(len as usize);
                let bytes = &block.bytes()[..reached];
                self.image.at(file, offset, reached).copy_from_slice(bytes);
                ended(token, Some(block), Err(failure))
            }
            Io::Sync { token, file } => {
                self.sync_ended(token, file, sectors > 0);
                ended(token, None, Err(failure))
            }
            Io::Read { token, block, .. } => ended(token, Some(block), Err(failure)),
        }
    }

    fn sync_ended(&mut self, token: IoToken, file: FileId, reaches_platter: bool) {
        let mut syncs = self.syncs.iter();
        let at = syncs.position(|(other, _)| *other == token);
        let (_, end) = self.syncs.swap_remove(at.expect("the sync was submitted"));
        let (covered, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unsynced)
            .into_iter()
            .partition(|write| write.number < end && write.file == file);
        self.unsynced = others;
        for write in covered.iter().filter(|_| reaches_platter) {
            self.image
                .at(write.file, write.offset, write.bytes.len())
                .copy_from_slice(&write.bytes);
        }
    }

    /// What a power cut now may keep or lose, sector by sector; those that change nothing left out.
    pub fn unflushed(&self) -> Vec<Sector> {
        let unsynced = self.unsynced.iter();
        let unsynced = unsynced.map(|write| (write.file, write.offset, &write.bytes[..]));
        let under_way = self.under_way.iter().filter_map(|request| match request {
            Io::Write {
                file,
                offset,
                block,
                len,
                ..
            } => Some((
                *file,
                usize::try_from(*offset).expect("small files"),
                &block.bytes()[..*len as usize],
            )),
            Io::Sync { .. } | Io::Read { .. } => None,
        });
        let mut sectors = Vec::new();
        for (file, start, bytes) in unsynced.chain(under_way) {
            for (number, bytes) in bytes.chunks(SECTOR_BYTES).enumerate() {
                let offset = start + number * SECTOR_BYTES;
                if self.image.files[&file][offset..offset + bytes.len()] != *bytes {
                    let bytes = bytes.to_vec();
                    sectors.push(Sector {
                        file,
                        offset,
                        bytes,
                    });
                }
            }
        }
        sectors
    }
}

fn ended(
    token: IoToken,
    block: Option<HeapBlock>,
    result: Result<(), IoFailure>,
) -> Completion<HeapBlock> {
    Completion {
        token,
        block,
        result,
    }
}
