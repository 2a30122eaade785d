//! Ready-made segment files: one helper thread for all shards.
//!
//! A segment is written full of zeros and flushed before a log gets it. A durable write into such
//! a file changes no metadata of the file system, which halves its time, and can never find the
//! disk full. So the disk is full here, where nobody waits for an acknowledgement, and the shard
//! is told while it still has room.
//!
//! A segment that a log has done with comes back through [`SpareHandle::release`] and serves again
//! as it is, behind spare headers of a fresh salt: writing it full of zeros once more would double
//! what the disk writes for a log that is cleaned all the time.
//!
//! Spares that an earlier run left are given out before any is made. A start has read only their
//! begin, so each is read whole before it serves: the first before the first write, the others
//! beside the traffic.

use std::collections::VecDeque;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_shard::SpareFailure;
use penstock_shard::opening::Leftovers;
use penstock_storage::io::{BLOCK_BYTES, Block, Blocks};
use penstock_storage::packed_place::FILES_MAX;
use penstock_storage::place::FileId;
use penstock_storage::recovery::{Proof, RecoveryError, prove_spare};
use penstock_storage::segment::Owner;
use penstock_storage::spare::SpareHeader;
use tracing::warn;

use crate::directory::files::open_for_device;
use crate::directory::room::DiskRoom;
use crate::directory::room_share::{RoomFigures, RoomShare};
use crate::directory::segments::{Segments, numbers_over};
use crate::directory::set_aside::{report, set_aside};
use crate::disk::arena::{Arena, ArenaBlock, ArenaLayout};
use crate::system;
use crate::system::open_files;

/// The size of one write of zeros, in bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// How many files that served before are kept for the next requests, at most.
const REUSED_MAX: usize = 2;
/// Files that are over and removed before the next request is looked at, at most.
const REMOVED_A_ROUND_MAX: usize = 16;

/// How long a request that found no file waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// There is no room for a segment yet: key tables leave for it, and shards have some of them open.
const TABLES_LEAVE: io::ErrorKind = io::ErrorKind::ResourceBusy;

/// How long after a measurement of the room on the disk the next one is due, at least, and in
/// lengths of the measurement itself: a directory of many files takes a while to list.
const MEASURE_AFTER: Duration = Duration::from_secs(1);
const MEASURE_PAUSE_SHARE: u32 = 100;

/// How many requests and releases may wait: one release of every file that there can be, and the
/// few spares that each of the shards asks for at a time.
const ORDERS_MAX: usize = FILES_MAX as usize + (1 << 16);

/// A segment file that is ready to be used.
#[derive(Debug)]
pub struct Spare {
    /// Its number.
    pub file: FileId,
    /// Open as the disk wants it.
    pub fd: OwnedFd,
    /// Never used for this file before, and not to be foreseen.
    pub salt: u64,
    /// Its length.
    pub bytes: u64,
    /// It served before.
    pub is_reused: bool,
}

/// What became of a request. One that found no file stays; it is tried again each second and
/// whenever something else is asked for or released, and what comes of it is told each time.
#[derive(Debug)]
pub enum SpareOutcome {
    /// Here it is.
    Ready(Spare),
    /// The disk is full, or its quota is used up.
    Refused {
        /// What is free on the file system, in bytes.
        free_bytes: u64,
        /// How many files the shard had given back by then.
        released: u64,
    },
    /// The disk or the system fails.
    Failed {
        /// What that is for the shard.
        failure: SpareFailure,
        /// What the system said.
        error: io::Error,
    },
    /// All shards have taken over what they inherited, and it is durable that the inherited logs
    /// are void.
    InheritedGone,
    /// What an earlier run left as a spare is none: nothing more must be written. Told to all who
    /// wait and to all who got a file of this helper.
    Damaged(String),
}

/// Called by the helper thread, so it must only pass the outcome on.
pub type Deliver = Box<dyn Fn(SpareOutcome) + Send>;

/// A file that a shard waits for.
struct Wanted {
    bytes: u64,
    least_bytes: u64,
    is_starved: Arc<AtomicBool>,
    /// Files of the shard that came back.
    released: Arc<AtomicU64>,
    deliver: Deliver,
}

/// What is to be done when all shards have taken over what they inherited.
pub(crate) struct TakingOver {
    /// How many must have.
    pub(crate) shards: usize,
    /// Tells durably that the inherited logs are void. Tried again each second if it fails.
    pub(crate) finish: Box<dyn FnMut() -> io::Result<()> + Send>,
    /// The files of those logs, removed then.
    pub(crate) files: Vec<FileId>,
}

enum Order {
    Expect(TakingOver),
    TakenOver(Deliver),
    Make(Wanted),
    /// A file, and how many came back from its shard.
    Release(FileId, Arc<AtomicU64>),
    Stop,
}

/// The helper thread. Dropping it ends the thread after the file that it is making.
#[derive(Debug)]
pub struct Spares {
    orders: flume::Sender<Order>,
    room_figures: RoomFigures,
    helper: Option<JoinHandle<()>>,
}

impl Spares {
    /// Starts the helper. New files get numbers above those of all files that are there. Those of
    /// the usual length serve again, others serve once. The last `short_bytes` of `room` are left
    /// to short files for starved shards. Files that served before get spare headers of `owner`.
    /// What an earlier run has `left` is given out first.
    ///
    /// # Errors
    /// The folder cannot be listed, or no thread can be started.
    pub fn start(
        room: DiskRoom,
        owner: Owner,
        short_bytes: u64,
        left: Leftovers,
    ) -> io::Result<Self> {
        let (orders, inbox) = flume::bounded(ORDERS_MAX);
        let segments = room.segments().clone();
        let next_file = segments.next_file()?.0;
        let room_figures = RoomFigures::default();
        let measured = room_figures.clone();
        let helper = std::thread::Builder::new()
            .name("penstock-spare".into())
            .spawn(move || {
                Helper {
                    segments,
                    room,
                    owner,
                    short_bytes,
                    ready: VecDeque::new(),
                    left,
                    asked_bytes: 0,
                    served: Vec::new(),
                    next_file,
                    wanted: VecDeque::new(),
                    taking_over: None,
                    taken_over: Vec::new(),
                    void: Vec::new(),
                    damage: None,
                    room_figures: measured,
                    measure_at: Instant::now(),
                }
                .run(&inbox);
            })?;
        Ok(Self {
            orders,
            room_figures,
            helper: Some(helper),
        })
    }

    /// Sets what is done when all shards have taken over the logs that they inherited.
    pub(crate) fn expect(&self, taking_over: TakingOver) {
        let _ = self.orders.send(Order::Expect(taking_over));
    }

    /// A handle for one shard.
    pub fn handle(&self) -> SpareHandle {
        SpareHandle {
            orders: self.orders.clone(),
            is_starved: Arc::default(),
            released: Arc::default(),
            room_figures: self.room_figures.clone(),
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(helper) = self.helper.take() {
            let _ = helper.join();
        }
    }
}

/// Asks the helper for files and gives them back; never blocks.
#[derive(Clone, Debug)]
pub struct SpareHandle {
    orders: flume::Sender<Order>,
    is_starved: Arc<AtomicBool>,
    /// Files that the helper has back from the shard.
    released: Arc<AtomicU64>,
    room_figures: RoomFigures,
}

impl SpareHandle {
    /// Asks for one file of `bytes`, or, while the shard is starved and there is no room for that,
    /// of `least_bytes`; both are multiples of the block. `deliver` gets the outcome, on the
    /// helper's thread.
    pub fn request(&self, bytes: u64, least_bytes: u64, deliver: Deliver) {
        let is_length = |bytes: u64| bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u64);
        assert!(
            is_length(bytes) && is_length(least_bytes) && least_bytes <= bytes,
            "{bytes} bytes of segment, at least {least_bytes}"
        );
        self.send(Order::Make(Wanted {
            bytes,
            least_bytes,
            is_starved: Arc::clone(&self.is_starved),
            released: Arc::clone(&self.released),
            deliver,
        }));
    }

    /// What the log of the shard may have of the disk.
    pub(crate) fn room_share(&self) -> RoomShare {
        self.room_figures.share()
    }

    /// Whether the shard cannot even tell a release for want of a segment.
    pub fn set_starved(&self, is_starved: bool) {
        self.is_starved.store(is_starved, Ordering::Relaxed);
    }

    /// Gives back a file that nothing refers to any more and that no disk reads or writes. That
    /// nothing in it counts must be durable.
    pub fn release(&self, file: FileId) {
        self.send(Order::Release(file, Arc::clone(&self.released)));
    }

    /// The shard needs inherited logs no more; said once. `deliver` gets
    /// [`SpareOutcome::InheritedGone`] when all shards have said so and it is durable.
    pub(crate) fn taken_over(&self, deliver: Deliver) {
        self.send(Order::TakenOver(deliver));
    }

    fn send(&self, order: Order) {
        // After the helper has ended nobody waits for an answer.
        if let Err(flume::TrySendError::Full(_)) = self.orders.try_send(order) {
            panic!("{ORDERS_MAX} orders for segment files wait: a shard asks without end");
        }
    }
}

struct Helper {
    segments: Segments,
    room: DiskRoom,
    owner: Owner,
    short_bytes: u64,
    /// Files for the next requests: spares of an earlier run that were proven, and files that
    /// served before.
    ready: VecDeque<Spare>,
    /// What an earlier run left and nobody has read whole yet.
    left: Leftovers,
    /// What was asked for last, in bytes: files of this length serve again.
    asked_bytes: u64,
    /// Who got a file while there was something of that kind.
    served: Vec<Deliver>,
    next_file: u32,
    wanted: VecDeque<Wanted>,
    taking_over: Option<TakingOver>,
    /// Shards that have taken over.
    taken_over: Vec<Deliver>,
    /// Files of logs that IDENTITY tells no more.
    void: Vec<FileId>,
    /// What was found in a file that was left; nobody gets one any more.
    damage: Option<String>,
    /// What all segments may have, for the shards, and when that is measured the next time.
    room_figures: RoomFigures,
    measure_at: Instant,
}

impl Helper {
    fn run(mut self, inbox: &flume::Receiver<Order>) {
        let mut retry_at = None;
        loop {
            self.measure_room();
            let due_at = match (retry_at, self.wanted.is_empty()) {
                (None, true) => self.measure_at,
                (None, false) => Instant::now(),
                (Some(retry_at), _) => self.measure_at.min(retry_at),
            };
            match inbox.recv_deadline(due_at) {
                Ok(Order::Expect(taking_over)) => {
                    // Shards replay now; what was left is proved when they ask.
                    self.taking_over = Some(taking_over);
                    continue;
                }
                Ok(Order::TakenOver(deliver)) => self.taken_over.push(deliver),
                Ok(Order::Make(wanted)) => self.wanted.push_back(wanted),
                Ok(Order::Release(file, released)) => {
                    self.take_back(file);
                    released.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Order::Stop) | Err(flume::RecvTimeoutError::Disconnected) => return,
                Err(flume::RecvTimeoutError::Timeout) => {
                    let is_due = match retry_at {
                        Some(retry_at) => Instant::now() >= retry_at,
                        None => !self.wanted.is_empty(),
                    };
                    // Only a measurement was due.
                    if !is_due {
                        continue;
                    }
                }
            }
            let finish_at = self.finish_taking_over();
            let remove_at = self.remove_void();
            let serve_at = self.serve_first();
            retry_at = [serve_at, finish_at, remove_at].into_iter().flatten().min();
        }
    }

    /// Measures what all segments may have, if that is due.
    fn measure_room(&mut self) {
        let began = Instant::now();
        if began < self.measure_at {
            return;
        }
        // Without an answer the last one holds.
        if let Ok(bytes) = self.room.all_bytes() {
            self.room_figures.set(bytes);
        }
        let took = began.elapsed();
        self.measure_at = began + took + MEASURE_AFTER.max(took * MEASURE_PAUSE_SHARE);
    }

    /// Makes the inherited logs void if all shards have taken them over; when to try again.
    fn finish_taking_over(&mut self) -> Option<Instant> {
        let taken_over = self.taken_over.len();
        let mut taking_over = self
            .taking_over
            .take_if(|taking_over| taken_over == taking_over.shards)?;
        if let Err(error) = (taking_over.finish)() {
            warn!(%error, "IDENTITY cannot be written, inherited logs stay for now: {error}");
            self.taking_over = Some(taking_over);
            return Some(Instant::now() + RETRY_AFTER);
        }
        for deliver in self.taken_over.drain(..) {
            deliver(SpareOutcome::InheritedGone);
        }
        self.void = taking_over.files;
        None
    }

    /// Removes some of the files that are over; when to go on. Requests come in between.
    fn remove_void(&mut self) -> Option<Instant> {
        let rest = self.void.len().saturating_sub(REMOVED_A_ROUND_MAX);
        for file in self.void.drain(rest..) {
            // One that cannot be removed, or is there again after a power cut, stays: the next
            // start knows from IDENTITY that it is void.
            drop(self.segments.remove_soon(file));
        }
        (rest > 0).then(Instant::now)
    }

    /// Proves a file that was left, if nobody waits or none is ready; otherwise serves the request
    /// of a starved shard or, if there is none, the one that waits longest. When to go on, or to
    /// try again if the disk is full.
    fn serve_first(&mut self) -> Option<Instant> {
        if let Some(damage) = &self.damage {
            let waiting = self.wanted.drain(..).map(|wanted| wanted.deliver);
            let deliveries = waiting.chain(self.served.drain(..));
            deliveries.for_each(|deliver| deliver(SpareOutcome::Damaged(damage.clone())));
            return None;
        }
        if self.ready.is_empty() || self.wanted.is_empty() {
            match self.prove_next() {
                // What was asked for meanwhile comes before the next.
                Ok(true) => return Some(Instant::now()),
                Ok(false) => self.served.clear(),
                Err(RecoveryError::Read { error, .. }) => {
                    self.refuse(&error);
                    return Some(Instant::now() + RETRY_AFTER);
                }
                Err(damage) => {
                    let data = self.segments.data().to_string_lossy();
                    self.damage = Some(damage.within(&data).to_string());
                    return Some(Instant::now());
                }
            }
        }
        let is_starved = |wanted: &Wanted| wanted.is_starved.load(Ordering::Relaxed);
        let starved = self.wanted.iter().position(is_starved);
        let first = starved.unwrap_or(0);
        let (bytes, least_bytes) = {
            let wanted = self.wanted.get(first)?;
            (wanted.bytes, wanted.least_bytes)
        };
        self.asked_bytes = bytes;
        let ready = self.ready.iter().position(|spare| spare.bytes >= bytes);
        let made = match ready.and_then(|at| self.ready.remove(at)) {
            Some(spare) => Ok(spare),
            None => self.make(bytes, self.short_bytes),
        };
        let made = match made {
            Err(error) if starved.is_some() && is_full(&error) => self.make(least_bytes, 0),
            made => made,
        };
        match made {
            Ok(spare) => {
                let wanted = self.wanted.remove(first).expect("it was found above");
                // Until the shard has it and says so again, it is to get no second one.
                wanted.is_starved.store(false, Ordering::Relaxed);
                (wanted.deliver)(SpareOutcome::Ready(spare));
                if self.left.is_empty() {
                    return None;
                }
                self.served.push(wanted.deliver);
                Some(Instant::now())
            }
            // Room is under way, so nothing is said before the next try.
            Err(error) if error.kind() == TABLES_LEAVE => Some(Instant::now() + RETRY_AFTER),
            Err(error) => {
                self.refuse(&error);
                Some(Instant::now() + RETRY_AFTER)
            }
        }
    }

    /// Makes a released file ready to serve again, or removes it. One that cannot be removed stays:
    /// recovery knows from the log that it is over.
    fn take_back(&mut self, file: FileId) {
        if self.ready.len() < REUSED_MAX
            && let Ok(Some(spare)) = self.reuse(file)
        {
            self.ready.push_back(spare);
        } else {
            let _ = self.segments.remove(file);
        }
    }

    /// The file under a new number, with spare headers; nothing if it is not of the usual length or
    /// has another name, which a backup gave it to read it in peace.
    fn reuse(&mut self, file: FileId) -> io::Result<Option<Spare>> {
        let path = self.segments.path(file);
        let tmp = path.with_extension("tmp");
        // Nobody gives it another name from here on: there is none that is known.
        fs::rename(&path, &tmp)?;
        let lengths = [self.asked_bytes, self.room.segment_bytes()];
        let write = || {
            let of = fs::metadata(&tmp)?;
            let bytes = of.len();
            if !lengths.contains(&bytes) || of.nlink() != 1 {
                fs::remove_file(&tmp)?;
                return Ok(None);
            }
            let salt = system::random_u64()?;
            let owner = self.owner;
            let headed = write_spare_headers(
                &tmp,
                bytes,
                self.segments.is_direct(),
                SpareHeader { owner, salt },
            )?;
            let file = self.unused_number()?;
            fs::rename(&tmp, self.segments.path(file))?;
            self.segments.sync()?;
            Ok(Some(Spare {
                file,
                fd: headed.into(),
                salt,
                bytes,
                is_reused: true,
            }))
        };
        let made = write();
        match &made {
            Ok(Some(spare)) => self.next_file = spare.file.0 + 1,
            Ok(None) => {}
            // What it leaves behind is no segment; the next start removes it.
            Err(_) => drop(fs::remove_file(&tmp)),
        }
        made
    }

    /// Reads the next of the files that an earlier run left whole, and makes it ready or, if it is
    /// of no use, removes it or sets it aside. Whether there was one.
    fn prove_next(&mut self) -> Result<bool, RecoveryError> {
        let mut reader = self.segments.reader();
        let Leftovers {
            spares,
            superfluous,
        } = &mut self.left;
        let left = match spares.is_empty() {
            true => &mut *superfluous,
            false => &mut *spares,
        };
        if let Some(&(file, bytes)) = left.front()
            && let Proof::Rotten(rotten) = prove_spare(&mut reader, file, bytes)?
        {
            set_aside(&self.segments, file).map_err(|error| RecoveryError::Read {
                file: Some(file),
                error,
            })?;
            left.pop_front();
            report(&self.segments, &rotten);
            return Ok(true);
        }
        if let Some(&(file, bytes)) = spares.front() {
            let opened = || {
                Ok(Spare {
                    file,
                    fd: self.segments.open_file(file)?,
                    salt: system::random_u64()?,
                    bytes,
                    is_reused: false,
                })
            };
            let file = Some(file);
            self.ready
                .push_back(opened().map_err(|error| RecoveryError::Read { file, error })?);
            spares.pop_front();
        } else if let Some((file, _)) = superfluous.pop_front() {
            self.take_back(file);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Tells why there is no file.
    fn refuse(&self, error: &io::Error) {
        for wanted in &self.wanted {
            let released = wanted.released.load(Ordering::Relaxed);
            (wanted.deliver)(self.refusal(error, released));
        }
    }

    fn refusal(&self, error: &io::Error, released: u64) -> SpareOutcome {
        if is_full(error) {
            let free_bytes = system::free_bytes(self.segments.folder()).unwrap_or(0);
            SpareOutcome::Refused {
                free_bytes,
                released,
            }
        } else {
            let failure = match open_files::is_exhausted(error) {
                true => SpareFailure::NoDescriptor,
                false => SpareFailure::System,
            };
            let error = io::Error::new(error.kind(), error.to_string());
            SpareOutcome::Failed { failure, error }
        }
    }

    /// The next number that no file has. After the highest one they begin again, so that none is
    /// used again soon.
    fn unused_number(&self) -> io::Result<FileId> {
        let numbers = 1..FILES_MAX;
        let from = match numbers.contains(&self.next_file) {
            true => self.next_file,
            false => numbers.start,
        };
        (from..numbers.end)
            .chain(numbers.start..from)
            .map(FileId)
            .find(|&file| !self.segments.path(file).exists())
            .ok_or_else(|| numbers_over(FileId(FILES_MAX)))
    }

    /// A new file of zeros, complete and durable before it gets its name, beside which `kept_bytes`
    /// stay free.
    fn make(&mut self, bytes: u64, kept_bytes: u64) -> io::Result<Spare> {
        let wanted_bytes = bytes + kept_bytes;
        // A table that cannot be removed is no reason to refuse a segment.
        let tables_leave = self.room.clear_for_segment(wanted_bytes).unwrap_or(false);
        if !self.room.has_for_segment(wanted_bytes)? {
            return Err(match tables_leave {
                true => TABLES_LEAVE.into(),
                false => io::ErrorKind::StorageFull.into(),
            });
        }
        let file = self.unused_number()?;
        let path = self.segments.path(file);
        let tmp = path.with_extension("tmp");
        let write = || {
            let made = write_zeros(&tmp, bytes, self.segments.is_direct())?;
            fs::rename(&tmp, &path)?;
            self.segments.sync()?;
            Ok(made)
        };
        match write() {
            Ok(made) => {
                self.next_file = file.0 + 1;
                Ok(Spare {
                    file,
                    fd: made.into(),
                    salt: system::random_u64()?,
                    bytes,
                    is_reused: false,
                })
            }
            Err(error) => {
                // The next attempt, or the next start, removes what this leaves behind.
                let _ = fs::remove_file(&tmp);
                Err(error)
            }
        }
    }
}

/// A file that may not be so long (`ulimit -f`) is one for which there is no room.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// [`ZEROS_BYTES`] of zeros, aligned for a device.
fn zeros() -> io::Result<ArenaBlock> {
    let mut arena = Arena::new(ArenaLayout {
        frame_blocks: 1,
        frame_block_bytes: ZEROS_BYTES,
        read_blocks: 0,
        read_block_bytes: BLOCK_BYTES,
        overflow_bytes_max: 0,
    })?;
    let mut zeros = arena
        .take(ZEROS_BYTES)
        .expect("the arena has one block of this size");
    zeros.bytes_mut().fill(0);
    Ok(zeros)
}

/// Writes the header into the last block and then, when that is durable, into the first.
fn write_spare_headers(
    path: &Path,
    bytes: u64,
    direct: bool,
    header: SpareHeader,
) -> io::Result<File> {
    let file = open_for_device(path, direct)?;
    let mut block = zeros()?;
    let block = block
        .bytes_mut()
        .first_chunk_mut::<BLOCK_BYTES>()
        .expect("a block");
    header.encode(block);
    for offset in [bytes - BLOCK_BYTES as u64, 0] {
        file.write_all_at(block, offset)?;
        file.sync_data()?;
    }
    Ok(file)
}

/// Writes a file of zeros and flushes it. The write of the zeros itself, not only the reservation
/// of their place, is what makes later writes change no metadata.
pub(crate) fn write_zeros(path: &Path, bytes: u64, direct: bool) -> io::Result<File> {
    File::create(path)?.set_permissions(Permissions::from_mode(0o600))?;
    let file = open_for_device(path, direct)?;
    match system::allocate(file.as_fd(), bytes) {
        // Without reservation a full disk is found later, by the writes.
        Err(error) if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            return Err(error);
        }
        _ => {}
    }
    let zeros = zeros()?;
    let mut written = 0;
    while written < bytes {
        let step =
            usize::try_from(bytes - written).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        file.write_all_at(&zeros.bytes()[..step], written)?;
        written += step as u64;
    }
    file.sync_all()?;
    Ok(file)
}
