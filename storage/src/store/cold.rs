//! Keys that stand on disk only: the read of a part, and its way into memory.

use crate::format::record::{PartKind, PartView};
use crate::memory::index::entry::Home;
use crate::planted::{self, Bug};
use crate::store::data::Data;
use crate::store::store::Store;
use crate::types::io::{BLOCK_BYTES, Blocks, Io, IoToken};
use crate::types::key_home::KeyHome;
use crate::types::packed_place::PackedPlace;
use crate::types::place::Place;
use crate::types::version::{Version, partition_of};

/// Why a part that was read is not the one that the index asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitError {
    /// The bytes are not a valid part, or the part of another key or version.
    Corrupt,
}

impl Data {
    /// Takes the key that stands at `place` into the cache, if an entry for `slot` and `hash` still
    /// points there: the index may have moved on while the read was under way. `read` is what
    /// [`Store::read`] asked for, or less at the end of the file.
    ///
    /// # Errors
    /// [`AdmitError::Corrupt`] if the index points to `place` and the bytes read are not the part
    /// of the entry. Nothing is cached then.
    pub fn admit(
        &mut self,
        KeyHome { slot, hash }: KeyHome,
        place: Place,
        read: &[u8],
        home_of: impl Fn(&[u8]) -> KeyHome,
    ) -> Result<(), AdmitError> {
        let current = self
            .keys
            .entries()
            .candidates(slot, hash)
            .find_map(|candidate| match candidate.home {
                Home::Disk(packed) if packed.place() == Some(place) => {
                    Some((candidate.position, packed))
                }
                _ => None,
            });
        let Some((position, packed)) = current else {
            return Ok(());
        };
        let part = part_read(KeyHome { slot, hash }, packed, read, home_of)?;
        let own_epoch = self.numbering.epoch(partition_of(slot));
        let version = Version {
            epoch: planted::or(Bug::AdmitWithOwnEpoch, own_epoch, part.epoch()),
            sequence: part.sequence(),
        };
        // Parts on disk are durable: the cell would still be in memory otherwise.
        let at = (position, KeyHome { slot, hash });
        self.keys.admit(at, packed, &part, version);
        Ok(())
    }
}

impl<P: Blocks> Store<P> {
    /// The one aligned read that brings `place` into memory, or `None` if no block is free now.
    pub fn read(&mut self, token: IoToken, place: Place) -> Option<Io<P::Block>> {
        let (offset, len) = aligned_span(place);
        let block = self.blocks.take(len as usize)?;
        Some(Io::Read {
            token,
            file: place.file,
            offset,
            block,
            len,
        })
    }

    /// The read of one block of `place`'s aligned span, `start` bytes behind its beginning; `None`
    /// if no block is free now.
    ///
    /// # Panics
    /// If no block of the span begins there.
    pub fn read_piece(
        &mut self,
        token: IoToken,
        place: Place,
        start: usize,
    ) -> Option<Io<P::Block>> {
        let (offset, len) = aligned_span(place);
        assert!(
            start < len as usize && start.is_multiple_of(BLOCK_BYTES),
            "the span has no block at {start}"
        );
        let block = self.blocks.take(BLOCK_BYTES)?;
        Some(Io::Read {
            token,
            file: place.file,
            offset: offset + start as u64,
            block,
            len: u32::try_from(BLOCK_BYTES).expect("a block is small"),
        })
    }
}

/// The part that a cold entry for `slot` and `hash` points to, in what [`Store::read`] asked for,
/// or less at the end of the file.
///
/// # Errors
/// [`AdmitError::Corrupt`] if it is not there.
pub fn part_read(
    KeyHome { slot, hash }: KeyHome,
    packed: PackedPlace,
    read: &[u8],
    home_of: impl Fn(&[u8]) -> KeyHome,
) -> Result<PartView<'_>, AdmitError> {
    let offset = packed.place().unwrap_or_default().offset;
    let start = usize::try_from(offset % BLOCK_BYTES as u64).expect("less than a block");
    read.get(start..)
        .and_then(|bytes| PartView::read(bytes).ok())
        .filter(|part| {
            part.kind() == PartKind::Put
                && part.slot() == slot
                && home_of(part.key()) == KeyHome { slot, hash }
                && packed.is_sequence(part.sequence())
        })
        .ok_or(AdmitError::Corrupt)
}

/// The aligned span of a file that covers a part: offset and length.
#[must_use]
pub fn aligned_span(place: Place) -> (u64, u32) {
    let unit = BLOCK_BYTES as u64;
    let start = place.offset / unit * unit;
    let end = (place.offset + u64::from(place.bytes)).next_multiple_of(unit);
    (
        start,
        u32::try_from(end - start).expect("a part is bounded by the record limit"),
    )
}
