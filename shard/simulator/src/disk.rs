//! A disk that fails in all the ways in which disks fail.
//!
//! What is written stands in a volatile cache until a durable write or a sync of its file has
//! completed. A power cut keeps, drops or garbles each sector of what is volatile or under way; the
//! end of the process alone loses nothing that has completed. Damage that no crash explains (rot,
//! lost and misdirected writes, flushes that lie) is remembered with what should stand there, so
//! that the simulation can tell what must be refused, and put it right afterwards as an operator
//! with a good copy would.

mod files;
mod pool;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use penstock_shard::{SnapshotWrite, WriteStep};
use penstock_storage::io::{BLOCK_BYTES, Block, Completion, Io, IoFailure, IoToken};
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::FileId;

use penstock_storage::key_table::{KeyTable, TableHome};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::segment::{FirstBlock, Owner, SegmentHeader};
use penstock_storage::snapshot::SnapshotName;
use penstock_storage::spare::SpareHeader;

use crate::coverage::{Coverage, Fault};
use crate::random::Random;

use files::OneFile;

pub use files::Files;
pub use pool::{Pool, PoolBlock};

/// The node of every world.
pub(crate) const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0x0D; 16],
};

/// What a device writes as a whole.
pub const SECTOR_BYTES: usize = 512;
const EIO: i32 = 5;
/// How long a write or sync takes, at most: who waits for the disk has to wait longer.
pub const STALL_US_MAX: u64 = 90_000_000;

/// How often what fails, in parts of a million.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// A write fails with EIO.
    pub write_error: u32,
    /// A write moves less than it should.
    pub short_write: u32,
    /// A sync fails.
    pub sync_error: u32,
    /// A read fails once.
    pub read_error: u32,
    /// A read gives other bytes once.
    pub bad_read: u32,
    /// Blocks whose read failed, or gave other bytes, do so no more.
    pub is_passing: bool,
    /// A write or sync takes a thousand times longer, up to [`STALL_US_MAX`].
    pub stall: u32,
    /// A write that completes was never done.
    pub lost_write: u32,
    /// A write that completes was done elsewhere.
    pub misdirected_write: u32,
    /// A durable write or sync that completes was not durable.
    pub lying_flush: u32,
}

/// A place that does not hold what it should, for no crash's sake.
#[derive(Clone, Debug)]
pub struct Damage {
    /// The file.
    pub file: FileId,
    /// Where.
    pub offset: usize,
    /// What belongs there.
    pub good: Vec<u8>,
}

struct Unsynced {
    serial: u64,
    offset: usize,
    before: Vec<u8>,
    /// The device said that it was durable.
    is_lie: bool,
}

#[derive(Default)]
struct File {
    image: Vec<u8>,
    unsynced: Vec<Unsynced>,
}

enum Way {
    Good,
    Fail(IoFailure),
    Lost,
    Misdirected,
    Lie,
}

struct UnderWay {
    io: Io<PoolBlock>,
    way: Way,
    /// A sync covers the writes with lower serials.
    covers: u64,
}

/// The files of one node.
pub struct Disk {
    /// Whose files they are.
    pub owner: Owner,
    files: BTreeMap<FileId, File>,
    under_way: BTreeMap<u64, UnderWay>,
    next_ticket: u64,
    next_serial: u64,
    /// Places that cannot be read.
    unreadable: Vec<(FileId, usize)>,
    /// What does not hold what it should.
    pub damages: Vec<Damage>,
    /// Files that an operator added by mistake.
    pub strangers: Vec<FileId>,
    /// Files that are gone and should not be.
    pub missing: Vec<(FileId, Vec<u8>)>,
    /// Files that the node has released: it must ask nothing of them any more.
    pub forgotten: BTreeSet<FileId>,
    /// Rates of faults.
    pub faults: DiskFaults,
    /// Typical time of a write in microseconds.
    pub write_us: u64,
    /// Typical time of a read in microseconds.
    pub read_us: u64,
    /// No file can be made.
    pub is_full: bool,
    /// Bytes that all files may take; 0 for any number.
    pub bytes_max: usize,
    /// Changes of files by a start until it is cut off.
    pub changes_left: Option<u64>,
    /// Blocks that were met by a fault that passes: file and number.
    struck: BTreeSet<(FileId, usize)>,
    /// The next reads by a start that fail.
    pub start_read_errors: u64,
    /// Finished snapshots.
    pub snapshots: BTreeMap<SnapshotName, Vec<u8>>,
    /// Key tables, by their segments.
    pub key_tables: BTreeMap<FileId, Vec<u8>>,
    /// Snapshots that are written, by log.
    growing: BTreeMap<u64, (SnapshotName, Vec<u8>)>,
    random: Random,
    coverage: Rc<RefCell<Coverage>>,
    next_file: u32,
    /// What stood in files that are gone.
    old: VecDeque<Vec<u8>>,
}

impl Disk {
    /// A copy of what stands on it, while nothing is under way.
    #[must_use]
    pub fn copy(&self) -> Self {
        assert!(self.under_way.is_empty(), "a process uses it");
        let files = self.files.iter().map(|(&name, file)| {
            let file = File {
                image: file.image.clone(),
                unsynced: Vec::new(),
            };
            (name, file)
        });
        Disk {
            files: files.collect(),
            owner: self.owner,
            next_ticket: self.next_ticket,
            next_serial: self.next_serial,
            faults: self.faults,
            snapshots: self.snapshots.clone(),
            key_tables: self.key_tables.clone(),
            next_file: self.next_file,
            ..Disk::new(self.random.clone(), Rc::clone(&self.coverage))
        }
    }

    /// An empty disk.
    #[must_use]
    pub fn new(random: Random, coverage: Rc<RefCell<Coverage>>) -> Self {
        Disk {
            owner: OWNER,
            files: BTreeMap::new(),
            under_way: BTreeMap::new(),
            next_ticket: 0,
            next_serial: 0,
            unreadable: Vec::new(),
            damages: Vec::new(),
            strangers: Vec::new(),
            missing: Vec::new(),
            forgotten: BTreeSet::new(),
            faults: DiskFaults::default(),
            write_us: 90,
            read_us: 70,
            is_full: false,
            bytes_max: 0,
            changes_left: None,
            struck: BTreeSet::new(),
            start_read_errors: 0,
            snapshots: BTreeMap::new(),
            key_tables: BTreeMap::new(),
            growing: BTreeMap::new(),
            random,
            coverage,
            next_file: 1,
            old: VecDeque::new(),
        }
    }

    fn hit(&self, fault: Fault) {
        self.coverage.borrow_mut().fault(fault);
    }

    fn hit_read(&self, fault: Fault) {
        self.hit(fault);
        if self.faults.is_passing {
            self.hit(Fault::PassingReadError);
        }
    }

    /// A new segment file, and whether it served before; `None` if the disk would have less than
    /// `kept_bytes` free. It is full of zeros, or it has the bytes of a removed file under spare
    /// headers of `salt`.
    pub fn create(&mut self, bytes: u64, kept_bytes: u64, salt: u64) -> Option<(FileId, bool)> {
        let used = self.used_bytes();
        let more = usize::try_from(bytes + kept_bytes).expect("small files");
        let is_crowded = self.bytes_max > 0 && used + more > self.bytes_max;
        if self.is_full || is_crowded {
            self.hit(Fault::NoSpace);
            return None;
        }
        let bytes = usize::try_from(bytes).expect("small files");
        let file = FileId(self.next_file);
        self.next_file += 1;
        let old = self.old.iter().find(|old| old.len() == bytes);
        let old = old.filter(|_| !file.0.is_multiple_of(4)).cloned();
        let is_reused = old.is_some();
        let mut image = old.unwrap_or_else(|| vec![0; bytes]);
        if is_reused {
            self.hit(Fault::Reused);
            let salt = match SegmentHeader::read(image.first_chunk().expect("a block")) {
                FirstBlock::Segment(header) if is_planted(Bug::ReuseSalt) => header.salt,
                _ => salt,
            };
            let header = SpareHeader {
                owner: self.owner,
                salt,
            };
            header.encode(image.last_chunk_mut().expect("a block"));
            header.encode(image.first_chunk_mut().expect("a block"));
        }
        self.files.insert(
            file,
            File {
                image,
                unsynced: Vec::new(),
            },
        );
        Some((file, is_reused))
    }

    /// Bytes that all files take.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.files.values().map(|file| file.image.len()).sum()
    }

    /// Whether nothing of a file is volatile or under way.
    #[must_use]
    pub fn is_at_rest(&self, file: FileId) -> bool {
        let is_of = |it: &UnderWay| {
            let (Io::Write { file: of, .. }
            | Io::Sync { file: of, .. }
            | Io::Read { file: of, .. }) = &it.io;
            *of == file
        };
        let state = self.files.get(&file);
        state.is_some_and(|state| state.unsynced.is_empty()) && !self.under_way.values().any(is_of)
    }

    /// Removes a file for good.
    pub fn unlink(&mut self, file: FileId) {
        let state = self.files.remove(&file).expect("a file of the log");
        self.damages.retain(|damage| damage.file != file);
        self.unreadable.retain(|(damaged, _)| *damaged != file);
        if state.image.iter().skip(BLOCK_BYTES).any(|&byte| byte != 0) {
            self.old.push_front(state.image);
            self.old.truncate(8);
        }
    }

    /// Takes a request; its ticket and when it ends.
    pub fn submit(&mut self, now_us: u64, io: Io<PoolBlock>) -> (u64, u64) {
        let faults = self.faults;
        let random = &mut self.random;
        let mut took_us = match &io {
            Io::Read { .. } => random.latency(self.read_us),
            Io::Write { .. } | Io::Sync { .. } => random.latency(self.write_us),
        };
        let device = Way::Fail(IoFailure::Device(EIO));
        let way = match &io {
            Io::Write { .. } if random.chance(faults.write_error) => device,
            Io::Write { len, .. } if random.chance(faults.short_write) => {
                let moved = u32::try_from(random.below(u64::from(*len))).expect("below a u32");
                Way::Fail(IoFailure::Short { moved })
            }
            Io::Write { .. } if random.chance(faults.lost_write) => Way::Lost,
            Io::Write { offset, .. } if *offset > 0 && random.chance(faults.misdirected_write) => {
                Way::Misdirected
            }
            Io::Write { durable: true, .. } | Io::Sync { .. }
                if random.chance(faults.lying_flush) =>
            {
                Way::Lie
            }
            Io::Sync { .. } if random.chance(faults.sync_error) => device,
            Io::Read {
                file, offset, len, ..
            } if random.chance(faults.read_error)
                && strikes(&mut self.struck, faults, *file, *offset, *len as usize) =>
            {
                device
            }
            _ => Way::Good,
        };
        if !matches!(io, Io::Read { .. }) && random.chance(faults.stall) {
            took_us = (took_us * 1000 + 200_000).min(STALL_US_MAX);
            self.hit(Fault::SlowDisk);
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let covers = self.next_serial;
        self.under_way.insert(ticket, UnderWay { io, way, covers });
        (ticket, now_us + took_us.max(1))
    }

    /// Ends a request.
    pub fn complete(&mut self, ticket: u64) -> Completion<PoolBlock> {
        let UnderWay { io, way, covers } =
            self.under_way.remove(&ticket).expect("a request ends once");
        match io {
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
                let result = self.write(file, offset, bytes, durable, &way);
                let block = Some(block);
                Completion {
                    token,
                    block,
                    result,
                }
            }
            Io::Sync { token, file } => {
                let result = self.sync(file, covers, &way);
                Completion {
                    token,
                    block: None,
                    result,
                }
            }
            Io::Read {
                token,
                file,
                offset,
                block,
                len,
            } => self.read(token, file, offset, block, len, &way),
        }
    }

    fn write(
        &mut self,
        file: FileId,
        offset: usize,
        bytes: &[u8],
        durable: bool,
        way: &Way,
    ) -> Result<(), IoFailure> {
        match way {
            Way::Fail(failure) => {
                self.hit(match failure {
                    IoFailure::Device(_) => Fault::WriteError,
                    IoFailure::Short { .. } => Fault::ShortWrite,
                });
                // Some of it may have arrived.
                self.scatter(file, offset, bytes);
                return Err(*failure);
            }
            Way::Lost => {
                self.hit(Fault::LostWrite);
                self.damages.push(Damage {
                    file,
                    offset,
                    good: bytes.to_vec(),
                });
                return Ok(());
            }
            Way::Misdirected => {
                // Somewhere before in the same file, where nothing is written any more.
                let blocks = offset / BLOCK_BYTES;
                let victim = self.random.index(blocks.max(1)) * BLOCK_BYTES;
                let len = bytes.len().min(offset - victim);
                self.hit(Fault::MisdirectedWrite);
                let image = &mut self.files.get_mut(&file).expect("a file of the log").image;
                let good = image[victim..victim + len].to_vec();
                image[victim..victim + len].copy_from_slice(&bytes[..len]);
                self.damages.push(Damage {
                    file,
                    offset: victim,
                    good,
                });
                self.damages.push(Damage {
                    file,
                    offset,
                    good: bytes.to_vec(),
                });
                return Ok(());
            }
            Way::Good | Way::Lie => {}
        }
        let is_lie = matches!(way, Way::Lie);
        if is_lie {
            self.hit(Fault::LyingFlush);
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        let state = self.files.get_mut(&file).expect("a file of the log");
        for damage in self.damages.iter_mut().filter(|damage| damage.file == file) {
            overlay(&mut damage.good, damage.offset, bytes, offset);
        }
        let place = offset..offset + bytes.len();
        let before = state.image[place.clone()].to_vec();
        state.image[place].copy_from_slice(bytes);
        if durable && !is_lie {
            // What was volatile there before is superseded.
            state.unsynced.retain(|older| {
                older.offset < offset || older.offset + older.before.len() > offset + bytes.len()
            });
            for older in &mut state.unsynced {
                overlay(&mut older.before, older.offset, bytes, offset);
            }
        } else {
            state.unsynced.push(Unsynced {
                serial,
                offset,
                before,
                is_lie,
            });
        }
        Ok(())
    }

    fn sync(&mut self, file: FileId, covers: u64, way: &Way) -> Result<(), IoFailure> {
        let state = self.files.get_mut(&file).expect("a file of the log");
        match way {
            Way::Fail(failure) => {
                // The device dropped some of what it was to keep; a later sync will not tell.
                let random = &mut self.random;
                for write in state.unsynced.iter().rev() {
                    if write.serial < covers && random.chance(500_000) {
                        let place = write.offset..write.offset + write.before.len();
                        if write.is_lie {
                            self.damages.push(Damage {
                                file,
                                offset: write.offset,
                                good: state.image[place.clone()].to_vec(),
                            });
                        }
                        state.image[place].copy_from_slice(&write.before);
                    }
                }
                state.unsynced.clear();
                self.hit(Fault::SyncError);
                Err(*failure)
            }
            Way::Lie => {
                for write in &mut state.unsynced {
                    write.is_lie |= write.serial < covers;
                }
                self.hit(Fault::LyingFlush);
                Ok(())
            }
            _ => {
                state
                    .unsynced
                    .retain(|write| write.serial >= covers || write.is_lie);
                Ok(())
            }
        }
    }

    fn read(
        &mut self,
        token: IoToken,
        file: FileId,
        offset: u64,
        mut block: PoolBlock,
        len: u32,
        way: &Way,
    ) -> Completion<PoolBlock> {
        let offset = usize::try_from(offset).expect("small files");
        let len = len as usize;
        let is_unreadable = self
            .unreadable
            .iter()
            .any(|&(at, place)| at == file && (offset..offset + len).contains(&place));
        let image = match file.segment_of_table() {
            None => self.files.get(&file).map(|file| &file.image),
            Some(segment) => self.key_tables.get(&segment),
        };
        let bytes = image.and_then(|image| image.get(offset..image.len().min(offset + len)));
        let result = match (way, bytes) {
            (Way::Fail(failure), _) => {
                self.hit_read(Fault::ReadError);
                Err(*failure)
            }
            (_, None) => Err(IoFailure::Device(EIO)),
            _ if is_unreadable => Err(IoFailure::Device(EIO)),
            (_, Some(bytes)) => {
                block.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
                match u32::try_from(bytes.len()).expect("small files") {
                    moved if bytes.len() < len => Err(IoFailure::Short { moved }),
                    _ => Ok(()),
                }
            }
        };
        if result.is_ok()
            && self.random.chance(self.faults.bad_read)
            && strikes(&mut self.struck, self.faults, file, offset as u64, len)
        {
            self.hit_read(Fault::BadRead);
            match self.random.below(2) {
                0 => {
                    let at = self.random.index(len);
                    block.bytes_mut()[at] ^= 1 << self.random.below(8);
                }
                _ => {
                    // The device read another place.
                    let image = image.expect("it was read");
                    let other = self.random.index(image.len() / BLOCK_BYTES) * BLOCK_BYTES;
                    let end = (other + len).min(image.len());
                    block.bytes_mut()[..end - other].copy_from_slice(&image[other..end]);
                }
            }
        }
        let block = Some(block);
        Completion {
            token,
            block,
            result,
        }
    }

    /// Of a write that did not end well, any sectors may have arrived in the cache.
    fn scatter(&mut self, file: FileId, offset: usize, bytes: &[u8]) {
        let serial = self.next_serial;
        self.next_serial += 1;
        let Some(state) = self.files.get_mut(&file) else {
            return;
        };
        let before = state.image[offset..offset + bytes.len()].to_vec();
        let kind = self.random.below(4);
        for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let is_kept = match kind {
                0 => false,
                1 => true,
                _ => self.random.chance(500_000),
            };
            if is_kept {
                let at = offset + number * SECTOR_BYTES;
                state.image[at..at + sector.len()].copy_from_slice(sector);
            }
        }
        state.unsynced.push(Unsynced {
            serial,
            offset,
            before,
            is_lie: false,
        });
    }

    /// Writes a piece of a snapshot; whether it could be.
    pub fn write_snapshot(&mut self, write: SnapshotWrite) -> bool {
        let SnapshotWrite { name, step, bytes } = write;
        if step == WriteStep::First {
            self.growing.insert(name.log_id, (name, Vec::new()));
        }
        let Some((_, grown)) = self.growing.get_mut(&name.log_id) else {
            return false;
        };
        grown.extend_from_slice(&bytes);
        if step == WriteStep::Last {
            let (_, whole) = self.growing.remove(&name.log_id).expect("it grew");
            self.snapshots.insert(name, whole);
            let of_log = |kept: &&SnapshotName| kept.log_id == name.log_id;
            let void: Vec<SnapshotName> = self
                .snapshots
                .keys()
                .filter(of_log)
                .rev()
                .skip(2)
                .copied()
                .collect();
            for name in void {
                self.snapshots.remove(&name);
            }
        }
        true
    }

    /// A snapshot cannot be written on.
    pub fn give_up_snapshot(&mut self, log_id: u64) {
        self.growing.remove(&log_id);
    }

    /// Makes the key table of a segment, if it can be read.
    pub fn make_key_table(
        &mut self,
        home: &TableHome,
        home_of: &dyn Fn(&[u8]) -> KeyHome,
        sort_bytes_max: usize,
    ) -> Option<KeyTable> {
        let image = self.files.get(&home.file)?.image.clone();
        let is_unreadable = self.unreadable.iter().any(|&(file, _)| file == home.file);
        let mut source = (!is_unreadable).then_some(OneFile(home.file, image))?;
        let mut made = Vec::new();
        let write = &mut |offset: u64, bytes: &[u8]| {
            let offset = usize::try_from(offset).expect("small files");
            made.resize(made.len().max(offset + bytes.len()), 0);
            made[offset..offset + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let table = KeyTable::build(home, &mut source, home_of, sort_bytes_max, write).ok()?;
        self.key_tables.insert(home.file, made);
        Some(table)
    }

    /// The process ends: what is under way arrives or not, what has completed stays.
    pub fn process_ends(&mut self) {
        self.growing.clear();
        for (_, UnderWay { io, .. }) in std::mem::take(&mut self.under_way) {
            if let Io::Write {
                file,
                offset,
                block,
                len,
                ..
            } = io
            {
                let offset = usize::try_from(offset).expect("small files");
                self.scatter(file, offset, &block.bytes()[..len as usize]);
            }
        }
    }

    /// The power goes: of what is volatile each sector stays, goes or is garbled.
    pub fn power_cut(&mut self) {
        self.process_ends();
        let mut hits = Vec::new();
        let random = &mut self.random;
        for (&name, file) in &mut self.files {
            for write in std::mem::take(&mut file.unsynced).into_iter().rev() {
                let now = file.image[write.offset..write.offset + write.before.len()].to_vec();
                let kind = random.below(4);
                for (number, sector) in write.before.chunks(SECTOR_BYTES).enumerate() {
                    let at = write.offset + number * SECTOR_BYTES;
                    let is_kept = match kind {
                        0 => false,
                        1 => true,
                        _ => random.chance(500_000),
                    };
                    if kind == 3 && !is_kept && random.chance(60_000) {
                        for byte in &mut file.image[at..at + sector.len()] {
                            *byte = random.bits().to_le_bytes()[0];
                        }
                        hits.push(Fault::GarbledSector);
                    } else if !is_kept {
                        file.image[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
                let after = &file.image[write.offset..write.offset + now.len()];
                if write.is_lie && *after != *now {
                    self.damages.push(Damage {
                        file: name,
                        offset: write.offset,
                        good: now,
                    });
                } else if after == write.before.as_slice() {
                    hits.push(Fault::DroppedWrite);
                } else if *after != *now {
                    hits.push(Fault::TornWrite);
                }
            }
        }
        for fault in hits {
            self.hit(fault);
        }
        self.show_old_blocks();
    }

    /// The zeros of a segment file were never on the device behind what was written since: there
    /// stand the frames of the file that had its place in the log before.
    fn show_old_blocks(&mut self) {
        let mut has_hit = false;
        for file in self.files.values_mut() {
            let is_used = file
                .image
                .first_chunk()
                .is_some_and(|block| matches!(SegmentHeader::read(block), FirstBlock::Segment(_)));
            // Log and place in it, as the header tells them.
            let same = |old: &&Vec<u8>| old[..BLOCK_BYTES].get(56..80) == file.image.get(56..80);
            if !is_used || file.image.len() <= 2 * BLOCK_BYTES {
                continue;
            }
            let Some(old) = self.old.iter().find(same) else {
                continue;
            };
            for (block, old) in file
                .image
                .chunks_exact_mut(BLOCK_BYTES)
                .zip(old.chunks_exact(BLOCK_BYTES))
                .skip(1)
            {
                if block.iter().all(|&byte| byte == 0) && old.iter().any(|&byte| byte != 0) {
                    block.copy_from_slice(old);
                    has_hit = true;
                }
            }
        }
        if has_hit {
            self.hit(Fault::OldFrames);
        }
    }

    // ---- damage at rest ----

    /// Every file with what stands in it.
    pub fn images(&self) -> impl Iterator<Item = (FileId, &[u8])> {
        self.files
            .iter()
            .map(|(&file, state)| (file, state.image.as_slice()))
    }

    /// One file.
    #[must_use]
    pub fn image(&self, file: FileId) -> Option<&[u8]> {
        self.files.get(&file).map(|state| state.image.as_slice())
    }

    /// Other bytes stand at a place, from now on.
    pub fn damage(&mut self, file: FileId, offset: usize, bytes: &[u8]) {
        let image = &mut self.files.get_mut(&file).expect("a file of the log").image;
        let place = offset..offset + bytes.len();
        let good = image[place.clone()].to_vec();
        image[place].copy_from_slice(bytes);
        self.damages.push(Damage { file, offset, good });
    }

    /// A byte changes where nothing stands that counts.
    pub fn rot(&mut self, file: FileId, offset: usize, bits: u8) {
        self.files.get_mut(&file).expect("a spare").image[offset] ^= bits;
    }

    /// A sector can be read no more.
    pub fn make_unreadable(&mut self, file: FileId, offset: usize) {
        self.unreadable.push((file, offset));
    }

    /// The end of a file is gone.
    pub fn shorten(&mut self, file: FileId, bytes: usize) {
        let image = &mut self.files.get_mut(&file).expect("a file of the log").image;
        let good = image[bytes..].to_vec();
        image.truncate(bytes);
        self.damages.push(Damage {
            file,
            offset: bytes,
            good,
        });
    }

    /// A file is gone.
    pub fn lose(&mut self, file: FileId) {
        let state = self.files.remove(&file).expect("a file of the log");
        self.missing.push((file, state.image));
    }

    /// A file that does not belong here.
    pub fn add_stranger(&mut self, image: Vec<u8>) {
        let file = FileId(self.next_file);
        self.next_file += 1;
        self.files.insert(
            file,
            File {
                image,
                unsynced: Vec::new(),
            },
        );
        self.strangers.push(file);
    }

    /// Whether something does not hold what it should.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !(self.damages.is_empty()
            && self.unreadable.is_empty()
            && self.strangers.is_empty()
            && self.missing.is_empty())
    }

    /// Whether only single reads are at fault.
    #[must_use]
    pub fn unreadable(&self) -> &[(FileId, usize)] {
        &self.unreadable
    }

    /// Puts everything right, as from a good copy.
    pub fn heal(&mut self) {
        self.unreadable.clear();
        for file in self.strangers.drain(..) {
            self.files.remove(&file);
        }
        for (file, image) in self.missing.drain(..) {
            self.files.insert(
                file,
                File {
                    image,
                    unsynced: Vec::new(),
                },
            );
        }
        for Damage { file, offset, good } in self.damages.drain(..).rev() {
            let Some(state) = self.files.get_mut(&file) else {
                continue;
            };
            let end = offset + good.len();
            if state.image.len() < end && state.image.len() == offset {
                state.image.extend_from_slice(&good);
            } else if state.image.len() >= end {
                state.image[offset..end].copy_from_slice(&good);
            }
        }
    }

    /// What was damaged does not matter any more.
    pub fn forget_damage(&mut self) {
        self.damages.clear();
    }
}

/// Whether a fault may meet a read; of those that pass none meets a block twice.
fn strikes(
    struck: &mut BTreeSet<(FileId, usize)>,
    faults: DiskFaults,
    file: FileId,
    offset: u64,
    len: usize,
) -> bool {
    if !faults.is_passing {
        return true;
    }
    let first = usize::try_from(offset).expect("small files") / BLOCK_BYTES;
    let blocks = (first..first + len / BLOCK_BYTES).map(|block| (file, block));
    if blocks.clone().any(|block| struck.contains(&block)) {
        return false;
    }
    struck.extend(blocks);
    true
}

/// Writes what `bytes` at `offset` cover of `under`, which stands at `under_offset`.
fn overlay(under: &mut [u8], under_offset: usize, bytes: &[u8], offset: usize) {
    let from = under_offset.max(offset);
    let to = (under_offset + under.len()).min(offset + bytes.len());
    if from < to {
        under[from - under_offset..to - under_offset]
            .copy_from_slice(&bytes[from - offset..to - offset]);
    }
}
