//! One shard's disk: takes what storage asks for, gives back what became of it.
//!
//! A request waits in a queue (writes and syncs before reads), then in a slot that owns its block
//! until the device is done with it, and comes back as a completion. The slots are the bound: at
//! most so many writes and so many reads are under way, never more than the ring can hold, so a
//! full ring cannot happen. Behind the slots stands one of two engines: a ring of io_uring, or a
//! few threads that call pread and pwrite. While other programs want the CPU of the shard's thread,
//! that thread makes a lone durable write itself.
//!
//! A turn of the loop calls [`Disk::submit`] for each request, [`Disk::flush`] once, and
//! [`Disk::reap`] when the descriptor of [`Disk::wake_fd`] became readable.

pub mod arena;
mod inline_writes;
mod patience;
mod plan;
mod slots;
mod threads;
mod uring;

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use std::{fmt, io};

use penstock_storage::io::{BLOCK_BYTES, Block, Completion, Io, IoFailure};
use penstock_storage::place::FileId;

use crate::disk::arena::{Arena, ArenaBlock, Span};
use crate::system;
use crate::system::advice::Problem;
use crate::system::schedstat::SchedStat;
use inline_writes::{InlineWrites, Queue};
pub(crate) use patience::patiently;
pub(crate) use plan::RingPlan;
use slots::{Kind, Operation, Slots};
use threads::Threads;
use uring::Uring;
pub use uring::UringRefused;
pub(crate) use uring::probe;

/// How long a disk that is dropped waits for what is under way, in seconds. Beyond it the device
/// hangs, and the memory it may still write into is given up instead.
const DROP_SECONDS_MAX: u64 = 30;

/// How long a thread with a disk runs before the scheduler looks for another, in microseconds.
///
/// The kernel ends a durable write by a worker thread on the core that took the device's
/// interrupt. When that is our core and our loop is busy, the worker waits for our slice or for
/// the next tick: 4 ms measured, where 65 us are due. A thread whose slice is shorter runs at once,
/// so ours is made longer than everybody's; the worker needs a few microseconds and is gone.
pub(crate) const TIME_SLICE_US: u32 = 20_000;

/// The engine that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// io_uring where the kernel allows it, else threads, with the reason in [`Disk::problems`].
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads that call pread and pwrite.
    Threads,
}

/// The bounds of one shard's disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// The engine that is asked for.
    pub mode: IoMode,
    /// How many reads may be under way.
    pub reads_in_flight_max: u32,
    /// How many writes and syncs may be under way; reads never take their room.
    pub writes_in_flight_max: u32,
    /// How many files the ring knows by number; further ones work, a little slower.
    pub registered_files_max: u32,
    /// Whether the ring has the arena as a registered buffer, which locks its memory and saves
    /// pinning its pages for each operation.
    pub registers_buffers: bool,
    /// How many threads stand in for the ring.
    pub threads: u32,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            mode: IoMode::Auto,
            reads_in_flight_max: 128,
            writes_in_flight_max: 64,
            registered_files_max: 4096,
            registers_buffers: true,
            threads: 2,
        }
    }
}

/// What a disk has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Calls of `io_uring_enter`; 0 with threads.
    pub enters: u64,
    /// Reads that were taken.
    pub reads: u64,
    /// Writes that were taken.
    pub writes: u64,
    /// Writes among them that had to be durable at completion.
    pub durable_writes: u64,
    /// Syncs that were taken.
    pub syncs: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
    /// Operations handed to a thread of ours. The helpers of io_uring are counted by
    /// [`kernel_workers`].
    pub punted: u64,
    /// Durable writes and syncs that the shard's own thread made, inside [`Disk::flush`].
    pub inline: u64,
    /// Completions that reported a failure.
    pub failures: u64,
}

/// One shard's disk; lives on the thread that opened it.
pub struct Disk {
    engine: Engine,
    /// Accepted, not begun. Bounded by the arena, since every request but a sync owns a block of
    /// it, and by the log, which syncs each of its files once at a time.
    writes_waiting: VecDeque<Operation>,
    reads_waiting: VecDeque<Operation>,
    /// Begun, not completed.
    slots: Slots,
    reads_begun: u32,
    writes_begun: u32,
    inline: InlineWrites,
    /// Taken out of the queue to be inline, and not made yet.
    put_aside: Option<Operation>,
    /// Bytes written since the last sync that a sync has to make durable.
    unsynced_bytes: u64,
    /// The end of an inline write.
    inline_arrival: Option<Arrival>,
    clock: Instant,
    stat: Option<SchedStat>,
    /// How long this thread has waited for a CPU until a moment ago.
    waited_us: u64,
    files: Files,
    options: DiskOptions,
    counters: DiskCounters,
    problems: Vec<Problem>,
    /// Keeps the mapping that the ring has registered.
    _arena: Arena,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one per shard, and it stays in its place"
)]
enum Engine {
    Uring(Uring),
    Threads(Threads),
}

impl Disk {
    /// Opens the engine on the calling thread, which is the only one that may use it. The thread
    /// gets a longer time slice, so that a busy loop does not delay its own completions.
    ///
    /// # Errors
    /// A [`DiskRefused`] that names cause and mend: io_uring was demanded and the kernel refuses
    /// it, or threads could not be started.
    pub fn open(options: DiskOptions, arena: &Arena) -> Result<Self, DiskRefused> {
        let in_flight_max = options
            .reads_in_flight_max
            .checked_add(options.writes_in_flight_max)
            .expect("the two bounds are small numbers");
        assert!(options.reads_in_flight_max > 0 && options.writes_in_flight_max > 0);
        let mut problems = Vec::new();
        let ring = match options.mode {
            IoMode::Threads => None,
            IoMode::Auto | IoMode::Uring => {
                match Uring::open(
                    in_flight_max,
                    options.registered_files_max,
                    options.registers_buffers.then_some(arena),
                    &mut problems,
                ) {
                    Ok(ring) => Some(ring),
                    Err(refused) if options.mode == IoMode::Uring => {
                        return Err(DiskRefused::Uring(refused));
                    }
                    Err(refused) => {
                        problems.push(refused.problem());
                        None
                    }
                }
            }
        };
        let engine = match ring {
            Some(ring) => Engine::Uring(ring),
            None => Engine::Threads(
                Threads::start(options.threads, in_flight_max).map_err(DiskRefused::Threads)?,
            ),
        };
        // After the threads were started, which would inherit it. Where it is refused everything
        // works, and only a loop that never sleeps may wait for its writes.
        let _ = system::set_time_slice(TIME_SLICE_US);
        Ok(Self {
            engine,
            writes_waiting: VecDeque::with_capacity(options.writes_in_flight_max as usize),
            reads_waiting: VecDeque::with_capacity(options.reads_in_flight_max as usize),
            slots: Slots::new(in_flight_max),
            reads_begun: 0,
            writes_begun: 0,
            inline: InlineWrites::default(),
            put_aside: None,
            unsynced_bytes: 0,
            inline_arrival: None,
            clock: Instant::now(),
            stat: SchedStat::of_this_thread(),
            waited_us: 0,
            files: Files::default(),
            options,
            counters: DiskCounters::default(),
            problems,
            _arena: arena.clone(),
        })
    }

    /// The engine at work: `"uring"` or `"threads"`.
    pub fn engine(&self) -> &'static str {
        match self.engine {
            Engine::Uring(_) => "uring",
            Engine::Threads(_) => "threads",
        }
    }

    /// The set-up that the engine got, for the start-up banner.
    pub fn describe(&self) -> String {
        match &self.engine {
            Engine::Uring(ring) => ring.describe(),
            Engine::Threads(threads) => threads.describe(),
        }
    }

    /// What the engine had to do without, with cause and mend.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What was done so far.
    pub fn counters(&self) -> DiskCounters {
        let mut counters = self.counters;
        if let Engine::Uring(ring) = &self.engine {
            counters.enters = ring.enters();
        }
        counters
    }

    /// A descriptor of its own that polls as readable when completions are there, until they are
    /// reaped (a ring) or until [`Disk::clear_wake`] (threads).
    pub fn wake_fd(&self) -> io::Result<OwnedFd> {
        match &self.engine {
            Engine::Uring(ring) => ring.wake_fd(),
            Engine::Threads(threads) => threads.wake_fd(),
        }
    }

    /// To be called after the wake descriptor became readable and *before* [`Disk::reap`], so
    /// that a completion in between raises it again. No system call with a ring.
    #[inline]
    pub fn clear_wake(&mut self) {
        if let Engine::Threads(threads) = &self.engine {
            threads.clear_wake();
        }
    }

    /// Makes a segment file known. The descriptor is closed when the file is detached and its last
    /// operation is done.
    pub fn attach(&mut self, id: FileId, fd: OwnedFd) {
        let index = self.files.attach(id, fd);
        if let Engine::Uring(ring) = &mut self.engine {
            let file = self.files.entry_mut(index);
            file.registered = ring.file_opened(index, &file.fd);
        }
    }

    /// Whether the file is attached.
    pub fn is_attached(&self, id: FileId) -> bool {
        self.files.by_id.contains_key(&id)
    }

    /// Forgets a file: no operation may be submitted for it any more, those submitted complete.
    pub fn detach(&mut self, id: FileId) {
        let index = self
            .files
            .by_id
            .remove(&id)
            .expect("only an attached file is detached");
        self.files.entry_mut(index).detached = true;
        self.close_if_unused(index);
    }

    /// Accepts a request; it begins at the next [`Disk::flush`] that finds room.
    ///
    /// The file must be attached, the length must fit the block, and offset and length must be
    /// whole blocks: all of them are ours to keep, so a breach stops the process.
    #[inline]
    pub fn submit(&mut self, io: Io<ArenaBlock>) {
        match io {
            Io::Write {
                token,
                file,
                offset,
                block,
                len,
                durable,
            } => {
                assert_span(offset, len, &block);
                let file = self.files.begin(file);
                self.counters.writes += 1;
                self.counters.durable_writes += u64::from(durable);
                self.counters.written_bytes += u64::from(len);
                let (kind, block) = (Kind::Write { durable }, Some(block));
                self.writes_waiting.push_back(Operation {
                    token,
                    file,
                    kind,
                    offset,
                    len,
                    block,
                });
            }
            Io::Sync { token, file } => {
                let file = self.files.begin(file);
                self.counters.syncs += 1;
                let (kind, offset, len, block) = (Kind::Sync, 0, 0, None);
                self.writes_waiting.push_back(Operation {
                    token,
                    file,
                    kind,
                    offset,
                    len,
                    block,
                });
            }
            Io::Read {
                token,
                file,
                offset,
                block,
                len,
            } => {
                assert_span(offset, len, &block);
                let file = self.files.begin(file);
                self.counters.reads += 1;
                self.counters.read_bytes += u64::from(len);
                let (kind, block) = (Kind::Read, Some(block));
                self.reads_waiting.push_back(Operation {
                    token,
                    file,
                    kind,
                    offset,
                    len,
                    block,
                });
            }
        }
    }

    /// Other programs want the CPU of this thread from now on, or do not (none): a lone durable
    /// write is made inside [`Disk::flush`] while they do. `waited_us` is how long the thread has
    /// waited for a CPU until a moment ago.
    #[inline]
    pub fn set_contended(&mut self, waited_us: Option<u64>) {
        self.inline.set_contended(waited_us.is_some());
        self.waited_us = waited_us.unwrap_or(0);
    }

    /// Begins what waits and has room, writes first, with at most one system call; none when
    /// nothing is to begin. A write that is made here has arrived afterwards, and nothing wakes the
    /// thread for that: [`Disk::has_inline_arrival`].
    ///
    /// # Errors
    /// The engine is lost; nothing that was submitted can be trusted to end.
    pub fn flush(&mut self) -> io::Result<()> {
        self.flush_others(true)?;
        self.write_inline();
        Ok(())
    }

    /// As [`Disk::flush`], but for the write that is made here, if there may be one and is:
    /// [`Disk::write_inline`] is to follow.
    ///
    /// # Errors
    /// As for [`Disk::flush`].
    pub fn flush_others(&mut self, may_be_inline: bool) -> io::Result<()> {
        if may_be_inline && self.put_aside.is_none() {
            self.put_aside = self.take_inline();
        }
        while self.writes_begun < self.options.writes_in_flight_max {
            let Some(operation) = self.writes_waiting.pop_front() else {
                break;
            };
            self.begin(operation);
        }
        while self.reads_begun < self.options.reads_in_flight_max {
            let Some(operation) = self.reads_waiting.pop_front() else {
                break;
            };
            self.begin(operation);
        }
        match &mut self.engine {
            Engine::Uring(ring) => ring.flush(self.slots.len())?,
            Engine::Threads(_) => {}
        }
        Ok(())
    }

    /// Whether a write is to be made here.
    #[inline]
    #[must_use]
    pub fn has_inline_write(&self) -> bool {
        self.put_aside.is_some()
    }

    /// Makes the write that is to be made here, behind the rest, which the device has meanwhile.
    #[inline]
    pub fn write_inline(&mut self) {
        if let Some(operation) = self.put_aside.take() {
            self.perform_inline(operation);
        }
    }

    /// Whether a write has ended that was made inside [`Disk::flush`] and is not reaped.
    #[inline]
    pub fn has_inline_arrival(&self) -> bool {
        self.inline_arrival.is_some()
    }

    /// Moves every completion that has arrived to the end of `into` and returns how many. No
    /// system call. Requests that waited for their room begin at the next [`Disk::flush`].
    #[inline]
    pub fn reap(&mut self, into: &mut Vec<Completion<ArenaBlock>>) -> usize {
        let before = into.len();
        loop {
            let arrived = match (self.inline_arrival.take(), &mut self.engine) {
                (Some(arrival), _) => Some(arrival),
                (None, Engine::Uring(ring)) => ring.next_arrival(),
                (None, Engine::Threads(threads)) => threads.next_arrival(),
            };
            let Some(Arrival { key, result }) = arrived else {
                break;
            };
            let operation = self.slots.remove(key);
            into.push(self.finish(operation, result));
        }
        into.len() - before
    }

    /// Lets completions that the kernel holds back arrive: one system call when the ring says
    /// that there are such, none otherwise. For a loop that spins instead of sleeping.
    ///
    /// # Errors
    /// As for [`Disk::flush`].
    #[inline]
    pub fn poll(&mut self) -> io::Result<()> {
        match &mut self.engine {
            Engine::Uring(ring) => ring.poll(),
            Engine::Threads(_) => Ok(()),
        }
    }

    /// How many requests were submitted and have not come back.
    #[inline]
    pub fn in_flight(&self) -> usize {
        let put_aside = usize::from(self.put_aside.is_some());
        self.slots.len() + self.writes_waiting.len() + self.reads_waiting.len() + put_aside
    }

    /// Begins what waits and blocks until at least one completion was moved to `into`, or until
    /// nothing is in flight, or until the time is over; returns how many were moved. For start-up
    /// and tests, not for the loop.
    ///
    /// # Errors
    /// As for [`Disk::flush`].
    pub fn wait(
        &mut self,
        into: &mut Vec<Completion<ArenaBlock>>,
        at_most: Duration,
    ) -> io::Result<usize> {
        let deadline = Instant::now() + at_most;
        loop {
            self.flush()?;
            let moved = self.reap(into);
            let left = deadline.saturating_duration_since(Instant::now());
            if moved > 0 || self.in_flight() == 0 || left.is_zero() {
                return Ok(moved);
            }
            match &mut self.engine {
                Engine::Uring(ring) => ring.wait(left)?,
                Engine::Threads(threads) => threads.wait(left),
            }
        }
    }

    /// Waits until nothing is in flight; the completions go to `into`.
    ///
    /// # Errors
    /// `TimedOut` when something is still under way after `at_most`, else as for [`Disk::flush`].
    pub fn drain(
        &mut self,
        into: &mut Vec<Completion<ArenaBlock>>,
        at_most: Duration,
    ) -> io::Result<()> {
        let deadline = Instant::now() + at_most;
        while self.in_flight() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!(
                        "{} disk operations did not end within {at_most:?}",
                        self.in_flight()
                    ),
                ));
            }
            self.wait(into, left)?;
        }
        Ok(())
    }

    /// Takes the first write that waits, if this thread is to make it.
    fn take_inline(&mut self) -> Option<Operation> {
        if !self.inline.are_possible() || self.inline_arrival.is_some() {
            return None;
        }
        let first = self.writes_waiting.front()?;
        let queue = Queue {
            waiting: self.writes_waiting.len(),
            begun: self.writes_begun,
            is_durable: matches!(first.kind, Kind::Write { durable: true } | Kind::Sync),
            bytes: match first.kind {
                Kind::Sync => self.unsynced_bytes,
                _ => first.len.into(),
            },
        };
        if !self.inline.takes(self.now_us(), queue) {
            return None;
        }
        self.writes_waiting.pop_front()
    }

    /// Carries an operation out as a thread of the disk would, and keeps its end for
    /// [`Disk::reap`].
    fn perform_inline(&mut self, operation: Operation) {
        let order = self.order(operation);
        let began_us = self.now_us();
        let result = threads::perform(&order);
        let now_us = self.now_us();
        let mut device_us = now_us - began_us;
        if inline_writes::is_slow(device_us) {
            // What the thread has waited for a CPU is no fault of the device.
            let times = self.stat.as_ref().and_then(SchedStat::read);
            let waited_us = times.map_or(0, |it| it.waited_us.saturating_sub(self.waited_us));
            device_us = device_us.saturating_sub(waited_us);
        }
        self.inline.ended(now_us, device_us);
        self.counters.inline += 1;
        self.inline_arrival = Some(Arrival {
            key: order.key,
            result,
        });
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).expect("half a million years")
    }

    fn begin(&mut self, operation: Operation) {
        let order = self.order(operation);
        match &mut self.engine {
            Engine::Uring(ring) => ring.queue(&order),
            Engine::Threads(threads) => {
                self.counters.punted += 1;
                threads.hand_over(order);
            }
        }
    }

    /// Gives an operation its slot.
    fn order(&mut self, mut operation: Operation) -> Order {
        let begun = match operation.kind {
            Kind::Read => &mut self.reads_begun,
            Kind::Write { .. } | Kind::Sync => &mut self.writes_begun,
        };
        *begun += 1;
        match operation.kind {
            Kind::Write { durable: false } => self.unsynced_bytes += u64::from(operation.len),
            Kind::Sync => self.unsynced_bytes = 0,
            _ => {}
        }
        let span = operation.block.as_mut().map(ArenaBlock::span);
        let (kind, offset, len) = (operation.kind, operation.offset, operation.len);
        let File {
            registered, ref fd, ..
        } = *self.files.entry(operation.file);
        let fd = fd.as_raw_fd();
        let key = self.slots.insert(operation);
        Order {
            key,
            registered,
            fd,
            kind,
            offset,
            len,
            span,
        }
    }

    fn finish(&mut self, operation: Operation, result: i32) -> Completion<ArenaBlock> {
        let begun = match operation.kind {
            Kind::Read => &mut self.reads_begun,
            Kind::Write { .. } | Kind::Sync => &mut self.writes_begun,
        };
        *begun -= 1;
        let entry = self.files.entry_mut(operation.file);
        entry.in_flight -= 1;
        if entry.detached {
            self.close_if_unused(operation.file);
        }
        let result = match u32::try_from(result) {
            Ok(moved) if moved == operation.len => Ok(()),
            Ok(moved) => Err(IoFailure::Short { moved }),
            Err(_) => Err(IoFailure::Device(-result)),
        };
        self.counters.failures += u64::from(result.is_err());
        Completion {
            token: operation.token,
            block: operation.block,
            result,
        }
    }

    fn close_if_unused(&mut self, index: usize) {
        let file = self.files.entry(index);
        if file.in_flight == 0 {
            if let (Engine::Uring(ring), Some(place)) = (&mut self.engine, file.registered) {
                ring.file_closed(place);
            }
            self.files.close(index);
        }
    }
}

impl Drop for Disk {
    /// Waits for what is under way: the device must not write into memory that was given back.
    fn drop(&mut self) {
        self.writes_waiting.clear();
        self.reads_waiting.clear();
        let mut ended = Vec::new();
        if self
            .drain(&mut ended, Duration::from_secs(DROP_SECONDS_MAX))
            .is_err()
        {
            self.slots.abandon();
            self.files.abandon();
            match &mut self.engine {
                Engine::Uring(_) => {}
                Engine::Threads(threads) => threads.abandon(),
            }
        }
    }
}

/// What an engine is told to do. The slot table holds the block of `span`, and the file table the
/// file of `fd`, until the arrival with this key.
struct Order {
    key: u64,
    /// The file's place in the ring's table, if it has one.
    registered: Option<u32>,
    fd: RawFd,
    kind: Kind,
    offset: u64,
    len: u32,
    /// None for a sync alone.
    span: Option<Span>,
}

/// What an engine reports: bytes moved, or a negative errno.
struct Arrival {
    key: u64,
    result: i32,
}

/// The attached files.
#[derive(Default)]
struct Files {
    by_id: HashMap<FileId, usize>,
    entries: Vec<Option<File>>,
    free: Vec<usize>,
}

struct File {
    fd: OwnedFd,
    /// Its place in the ring's table.
    registered: Option<u32>,
    /// Submitted and not completed, waiting ones included.
    in_flight: u32,
    detached: bool,
}

impl Files {
    fn attach(&mut self, id: FileId, fd: OwnedFd) -> usize {
        let file = Some(File {
            fd,
            registered: None,
            in_flight: 0,
            detached: false,
        });
        let index = if let Some(index) = self.free.pop() {
            self.entries[index] = file;
            index
        } else {
            self.entries.push(file);
            self.entries.len() - 1
        };
        let before = self.by_id.insert(id, index);
        assert!(before.is_none(), "file {} is attached already", id.0);
        index
    }

    fn begin(&mut self, id: FileId) -> usize {
        let Some(&index) = self.by_id.get(&id) else {
            panic!("an operation on file {}, which is not attached", id.0)
        };
        self.entry_mut(index).in_flight += 1;
        index
    }

    fn close(&mut self, index: usize) {
        self.entries[index] = None;
        self.free.push(index);
    }

    fn entry(&self, index: usize) -> &File {
        self.entries[index]
            .as_ref()
            .expect("an operation keeps its file open")
    }

    fn entry_mut(&mut self, index: usize) -> &mut File {
        self.entries[index]
            .as_mut()
            .expect("an operation keeps its file open")
    }

    /// Never closes the files, since a helper may still be about to use one of the descriptors.
    fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.entries));
    }
}

/// Why a disk could not be opened.
#[derive(Debug)]
pub enum DiskRefused {
    /// io_uring was demanded and is not to be had.
    Uring(UringRefused),
    /// The threads could not be started.
    Threads(io::Error),
}

impl fmt::Display for DiskRefused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uring(refused) => {
                let Problem { cause, mend } = refused.problem();
                write!(out, "--io uring: {cause}; {mend}")
            }
            Self::Threads(error) => write!(out, "cannot start the disk's threads: {error}"),
        }
    }
}

impl std::error::Error for DiskRefused {}

/// How many helper threads of io_uring this process has now. In steady state none: each stands for
/// operations that could not be started without blocking, at several times their cost.
pub fn kernel_workers() -> io::Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread that ended since the listing has no name any more, which is no error.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        count += usize::from(name.starts_with("iou-wrk"));
    }
    Ok(count)
}

/// A span is whole blocks inside its block; the engines rely on it.
#[inline]
fn assert_span(offset: u64, len: u32, block: &ArenaBlock) {
    assert!(
        len > 0
            && offset.is_multiple_of(BLOCK_BYTES as u64)
            && (len as usize).is_multiple_of(BLOCK_BYTES)
            && len as usize <= block.bytes().len()
            && i32::try_from(len).is_ok(),
        "{len} bytes at {offset} are not whole blocks of {block:?}"
    );
}
