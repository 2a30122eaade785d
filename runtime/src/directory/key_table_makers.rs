//! The files of key tables: one helper thread makes and loads them for all shards, one after the
//! other.
//!
//! A table grows under the name `*.tmp` and gets its name when it is whole. It is never synced: one
//! that a power cut has left torn does not check, and the segment that it is of is all that it
//! holds. Its segment is read past the page cache and at a bounded rate, so that what clients wait
//! for is not held up.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_shard::{KeyTableOrder, Shard};
use penstock_storage::io::{BLOCK_BYTES, Block, Blocks, SegmentSource};
use penstock_storage::key_table::{KeyTable, TableError, TableHome};
use penstock_storage::place::FileId;

use crate::directory::files::{open_for_device, read_at};
use crate::directory::room::DiskRoom;
use crate::directory::segments::Segments;
use crate::disk::arena::{Arena, ArenaBlock, ArenaLayout};

/// Entries that are sorted in a pass, in bytes. What they stand in may have as much room again.
const SORT_BYTES_MAX: usize = 4 << 20;
/// Bytes of one read.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a segment that are read in a second, at most.
const BYTES_PER_S_MAX: u64 = 64 << 20;
/// What is written at a time.
const WRITE_BYTES: usize = 64 << 10;
/// Orders that may wait. A shard loads and removes one table for each segment at most, and makes
/// one at a time.
const ORDERS_MAX: usize = 1 << 20;

/// The result of an order for a key table.
#[derive(Debug)]
pub(crate) struct KeyTableOutcome {
    /// The segment of the table.
    pub(crate) file: FileId,
    /// The table and its open file.
    pub(crate) table: Result<(KeyTable, OwnedFd), TableError>,
}

struct Order {
    order: KeyTableOrder,
    outcomes: flume::Sender<KeyTableOutcome>,
}

/// The helper thread. Dropping it ends the thread; a table that is not finished is left out.
#[derive(Debug)]
pub(crate) struct KeyTableMakers {
    orders: Option<flume::Sender<Order>>,
    room: DiskRoom,
    /// Clearances of the room when the helper was started.
    clearances: u64,
    is_over: Arc<AtomicBool>,
    helper: Option<JoinHandle<()>>,
}

impl KeyTableMakers {
    /// Starts the helper. Keys are ordered by the hash of `hash_seed`. What it makes has a place in
    /// `room`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(room: DiskRoom, hash_seed: u64) -> io::Result<Self> {
        let (orders, inbox) = flume::bounded::<Order>(ORDERS_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let maker = Maker {
            room: room.clone(),
            hash_seed,
            is_over: Arc::clone(&is_over),
        };
        let helper = std::thread::Builder::new()
            .name("penstock-keys".into())
            .spawn(move || {
                for Order { order, outcomes } in inbox {
                    let (file, table) = match order {
                        KeyTableOrder::Load(home) => (home.file, maker.load(&home)),
                        KeyTableOrder::Make(home) => (home.file, maker.make(&home)),
                        // One that cannot be removed is with the next start.
                        KeyTableOrder::Remove(file) => {
                            drop(maker.room.key_tables().remove(file));
                            continue;
                        }
                    };
                    // A shard that is gone needs no answer.
                    let _ = outcomes.send(KeyTableOutcome { file, table });
                }
            })?;
        Ok(Self {
            orders: Some(orders),
            clearances: room.clearances(),
            room,
            is_over,
            helper: Some(helper),
        })
    }

    /// A handle for one shard, which hears of what had to leave since the helper was started.
    pub(crate) fn handle(&self) -> KeyTableHandle {
        let (outcome_sender, outcomes) = flume::unbounded();
        KeyTableHandle {
            orders: self.orders.clone().expect("it runs until it is dropped"),
            clearances: self.clearances,
            room: self.room.clone(),
            outcome_sender,
            outcomes,
        }
    }
}

impl Drop for KeyTableMakers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread ends when the last handle is gone too; what it makes then is of no use.
        drop(self.orders.take());
        drop(self.helper.take());
    }
}

/// Gives one shard's orders to the helper; never blocks.
#[derive(Clone, Debug)]
pub(crate) struct KeyTableHandle {
    orders: flume::Sender<Order>,
    room: DiskRoom,
    /// Clearances of the room that the shard knows of.
    clearances: u64,
    outcome_sender: flume::Sender<KeyTableOutcome>,
    outcomes: flume::Receiver<KeyTableOutcome>,
}

impl KeyTableHandle {
    /// Gives the next order.
    pub(crate) fn order(&self, order: KeyTableOrder) {
        let outcomes = self.outcome_sender.clone();
        let refused = self.orders.try_send(Order { order, outcomes }).is_err();
        if refused && let KeyTableOrder::Load(home) | KeyTableOrder::Make(home) = order {
            let error = io::Error::other("the thread that makes key tables is gone");
            let _ = self.outcome_sender.send(KeyTableOutcome {
                file: home.file,
                table: Err(error.into()),
            });
        }
    }

    /// The next outcome that was not taken yet.
    pub(crate) fn outcome(&self) -> Option<KeyTableOutcome> {
        self.outcomes.try_recv().ok()
    }

    /// Whether all tables have had to leave since the last call.
    pub(crate) fn must_leave(&mut self) -> bool {
        let clearances = self.room.clearances();
        std::mem::replace(&mut self.clearances, clearances) != clearances
    }
}

struct Maker {
    room: DiskRoom,
    hash_seed: u64,
    is_over: Arc<AtomicBool>,
}

impl Maker {
    fn load(&self, home: &TableHome) -> Result<(KeyTable, OwnedFd), TableError> {
        let is_direct = self.room.segments().is_direct();
        self.room.key_tables().load(home, is_direct)
    }

    /// Loads the table, or makes it. Another shard may have made the table of an inherited segment
    /// already.
    fn make(&self, home: &TableHome) -> Result<(KeyTable, OwnedFd), TableError> {
        let made = self.load(home).or_else(|_| self.write(home));
        if made.is_err() {
            let _ = fs::remove_file(self.room.key_tables().tmp(home.file));
        }
        made
    }

    fn write(&self, home: &TableHome) -> Result<(KeyTable, OwnedFd), TableError> {
        let (folder, segments) = (self.room.key_tables(), self.room.segments());
        let clearances = self.room.clearances();
        let demand = |has_room: bool| match has_room {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::StorageFull)),
        };
        demand(self.room.has_for_table()?)?;
        let tmp = folder.tmp(home.file);
        let mut source = PacedReader::open(segments, home.file, &self.is_over)?;
        let mut written = Written {
            file: OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&tmp)?,
            begins: 0,
            bytes: Vec::with_capacity(WRITE_BYTES),
        };
        let home_of = Shard::<Arena>::home_of(self.hash_seed);
        let table = KeyTable::build(
            home,
            &mut source,
            &home_of,
            SORT_BYTES_MAX,
            &mut |offset, bytes| {
                demand(self.room.clearances() == clearances)?;
                written.write(offset, bytes)
            },
        )?;
        written.flush()?;
        demand(!self.room.is_low(table.file_bytes())?)?;
        let path = folder.file(home.file);
        fs::rename(&tmp, &path)?;
        let fd = open_for_device(&path, segments.is_direct())?;
        Ok((table, fd.into()))
    }
}

/// A file to which pieces are written that mostly follow one another.
struct Written {
    file: File,
    /// Where what is gathered belongs.
    begins: u64,
    bytes: Vec<u8>,
}

impl Written {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let is_next = self.begins + self.bytes.len() as u64 == offset;
        if !is_next || self.bytes.len() + bytes.len() > WRITE_BYTES {
            self.flush()?;
            self.begins = offset;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.bytes, self.begins)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Reads one segment in order, piece by piece, no faster than it may.
struct PacedReader<'a> {
    id: FileId,
    file: File,
    block: ArenaBlock,
    /// What `block` holds.
    begins: u64,
    len: usize,
    began: Instant,
    read_bytes: u64,
    is_over: &'a AtomicBool,
}

impl<'a> PacedReader<'a> {
    fn open(segments: &Segments, id: FileId, is_over: &'a AtomicBool) -> io::Result<Self> {
        let mut arena = Arena::new(ArenaLayout {
            frame_blocks: 1,
            frame_block_bytes: CHUNK_BYTES,
            read_blocks: 0,
            read_block_bytes: BLOCK_BYTES,
            overflow_bytes_max: 0,
        })?;
        Ok(PacedReader {
            id,
            file: segments.open_file(id)?.into(),
            block: arena
                .take(CHUNK_BYTES)
                .expect("the arena has one block of this size"),
            begins: 0,
            len: 0,
            began: Instant::now(),
            read_bytes: 0,
            is_over,
        })
    }

    /// Brings the piece that begins with the block of `offset`.
    fn fill(&mut self, offset: u64) -> io::Result<()> {
        let due = Duration::from_micros(self.read_bytes * 1_000_000 / BYTES_PER_S_MAX);
        std::thread::sleep(due.saturating_sub(self.began.elapsed()));
        if self.is_over.load(Ordering::Relaxed) {
            return Err(io::Error::other("the server ends"));
        }
        self.begins = offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        self.len = 0;
        self.len = read_at(&self.file, self.begins, self.block.bytes_mut())?;
        self.read_bytes += self.len as u64;
        Ok(())
    }
}

impl SegmentSource for PacedReader<'_> {
    fn files(&mut self) -> io::Result<Vec<(FileId, u64)>> {
        Ok(vec![(self.id, self.file.metadata()?.len())])
    }

    fn read_at(&mut self, id: FileId, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        assert_eq!(id, self.id, "a table is made of one segment");
        let mut filled = 0;
        while filled < into.len() {
            let at = offset + filled as u64;
            if !(self.begins..self.begins + self.len as u64).contains(&at) {
                self.fill(at)?;
            }
            let held = &self.block.bytes()[..self.len];
            let start = usize::try_from(at - self.begins).expect("within the piece");
            let Some(held) = held.get(start..).filter(|held| !held.is_empty()) else {
                break;
            };
            let moved = held.len().min(into.len() - filled);
            into[filled..filled + moved].copy_from_slice(&held[..moved]);
            filled += moved;
        }
        Ok(filled)
    }
}
