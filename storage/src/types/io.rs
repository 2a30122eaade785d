//! What storage asks of the world and what it is told back: the seam that the real disks of
//! `runtime` and the simulator implement.
//!
//! Storage never performs I/O. It emits [`Io`] values and is later handed one [`Completion`] for
//! each of them, in any order. Memory that the device touches travels by ownership as a [`Block`]:
//! while an [`Io`] is under way its block belongs to the disk, and comes back in the completion.

use crate::types::place::FileId;

/// The unit of every offset, length and address that reaches a device, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// Owned memory that a device can read and write directly.
///
/// The address and the length are multiples of [`BLOCK_BYTES`]. Dropping a block returns it to
/// where it came from.
pub trait Block {
    /// The whole block.
    fn bytes(&self) -> &[u8];
    /// The whole block, to be filled.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Where blocks come from: a bounded arena in the server, plain vectors in tests.
pub trait Blocks {
    /// The block type that this source gives out.
    type Block: Block;
    /// A block of at least `len` bytes, rounded up to [`BLOCK_BYTES`], with unspecified contents,
    /// or `None` when the arena has none left now. `len` is bounded by the record limits of the
    /// log, never by an unchecked number from a disk or a peer.
    fn take(&mut self, len: usize) -> Option<Self::Block>;
}

/// Who asks for an [`Io`]: the part of a shard that takes its [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Asker {
    /// The log, for a write.
    LogWrite,
    /// The log, for a sync.
    LogSync,
    /// Cleaning, for a piece of a sealed segment.
    Cleaning,
    /// The scrub, for a piece of a sealed segment.
    Scrub,
    /// Operations that wait for a cold key or for an older version.
    Operation,
    /// A scan, for a cold key or for a block of a key table.
    Scan,
    /// A link to another node, for records that it ships or applies.
    Link,
}

/// Chosen by the emitter of an [`Io`], returned unchanged in its [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IoToken {
    /// Who asks.
    pub asker: Asker,
    /// Number of the request among those of the asker.
    pub number: u64,
}

impl IoToken {
    /// A request of `asker` with its `number`.
    #[inline]
    #[must_use]
    pub const fn new(asker: Asker, number: u64) -> Self {
        IoToken { asker, number }
    }
}

/// One request to the disk.
#[derive(Debug)]
pub enum Io<B> {
    /// Write `len` bytes of `block`, from its start, at `offset`. With `durable` the completion
    /// may only come after the device has the bytes for good (RWF_DSYNC or its equal).
    Write {
        /// Comes back in the completion.
        token: IoToken,
        /// The file to write.
        file: FileId,
        /// Where, a multiple of [`BLOCK_BYTES`].
        offset: u64,
        /// What; its rest behind `len` is not written.
        block: B,
        /// How much, a multiple of [`BLOCK_BYTES`].
        len: u32,
        /// Whether the write itself must be durable.
        durable: bool,
    },
    /// Make every write of `file` that completed before this request durable (fdatasync).
    Sync {
        /// Comes back in the completion.
        token: IoToken,
        /// The file to sync.
        file: FileId,
    },
    /// Fill the first `len` bytes of `block` from `offset`; both multiples of [`BLOCK_BYTES`].
    Read {
        /// Comes back in the completion.
        token: IoToken,
        /// The file to read.
        file: FileId,
        /// Where, a multiple of [`BLOCK_BYTES`].
        offset: u64,
        /// Filled from its start.
        block: B,
        /// How much, a multiple of [`BLOCK_BYTES`].
        len: u32,
    },
}

/// Why an [`Io`] failed, by what the owner can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoFailure {
    /// The device or the file system reported an error (its errno).
    Device(i32),
    /// Fewer bytes moved than were asked for.
    Short {
        /// The bytes that did.
        moved: u32,
    },
}

/// The end of one [`Io`].
#[derive(Debug)]
pub struct Completion<B> {
    /// The token of the request.
    pub token: IoToken,
    /// The block of the request, if it had one.
    pub block: Option<B>,
    /// Whether all of it was done.
    pub result: Result<(), IoFailure>,
}

impl<B: Block> Completion<B> {
    /// What a read has brought, if that is `bytes_min` or more.
    ///
    /// This is the one rule for short reads. The length of a [`Place`](super::place::Place) is
    /// rounded up, so a read of the last part of a cut segment asks for bytes behind the end of the
    /// file, and comes back as [`IoFailure::Short`]: its reader gives 1 here, and the checks of the
    /// part say whether enough came. A reader of frames asks for no byte behind the end of its
    /// segment, and gives all that it asked for. Bytes that a block held before are never brought.
    ///
    /// # Errors
    /// Why fewer came.
    pub fn brought(&self, bytes_min: usize) -> Result<&[u8], IoFailure> {
        let bytes = self.block.as_ref().map_or(&[][..], Block::bytes);
        match self.result {
            Ok(()) => Ok(bytes),
            Err(IoFailure::Short { moved }) if moved as usize >= bytes_min => {
                Ok(&bytes[..moved as usize])
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Synchronous reads for recovery and inspection, which run before anything is served.
pub trait SegmentSource {
    /// Every segment file present, in no particular order, with its length in bytes.
    fn files(&mut self) -> std::io::Result<Vec<(FileId, u64)>>;
    /// Fills `into` from `offset`; `into` may be of any length and alignment. Returns how many
    /// bytes the file had (short only at its end).
    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> std::io::Result<usize>;
    /// All of the file is going to be read from `offset` on, in order.
    fn will_read(&mut self, _file: FileId, _offset: u64) {}
}
