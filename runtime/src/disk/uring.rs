//! The ring: io_uring for one shard's segment files.
//!
//! One thread uses the ring (SINGLE_ISSUER). Completions arrive whenever that thread enters the
//! kernel, for whichever ring (COOP_TASKRUN). So the network's ring polls this ring's descriptor,
//! the poll wakes the loop, and the completions are there without another call. DEFER_TASKRUN would
//! hang: then completions arrive only when the thread enters the kernel for *this* ring, and
//! nothing wakes the thread to do so.
//!
//! Queue sizes: the submission queue holds all that the disk may have in flight, the completion
//! queue four times that, so neither can be full.
#![expect(unsafe_code, reason = "submission entries carry raw addresses")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, opcode, types};

use super::patience::patiently;
use super::slots::Kind;
use super::{Arrival, Order};
use crate::disk::arena::Arena;
use crate::system;
use crate::system::advice::Problem;

/// How often a flush tries again while the kernel is short of memory and nothing is under way
/// whose end would free some; a millisecond apart.
const BUSY_RETRIES_MAX: u32 = 1000;

/// The limit of helper threads of the kernel per ring, for disk and for other work. In steady
/// state there are none; when there are, they must not crowd out the shards.
const KERNEL_WORKERS_MAX: [u32; 2] = [4, 4];

pub(super) struct Uring {
    ring: IoUring,
    /// What `io_uring_enter` is given: the ring's number in the thread's table with the flag that
    /// says so, or the descriptor.
    enter_fd: RawFd,
    enter_flags: u32,
    /// Files with a number below this are in the ring's table.
    registered_files: usize,
    arena_registered: bool,
    enters: u64,
    setup: Vec<&'static str>,
}

/// The flags that are asked for, in the order in which an old kernel is relieved of them.
const SETUP_FLAGS: [(&str, SetFlag); 4] = [
    ("SINGLE_ISSUER", io_uring::Builder::setup_single_issuer),
    ("TASKRUN_FLAG", io_uring::Builder::setup_taskrun_flag),
    ("COOP_TASKRUN", io_uring::Builder::setup_coop_taskrun),
    ("SUBMIT_ALL", io_uring::Builder::setup_submit_all),
];

type SetFlag = fn(&mut io_uring::Builder) -> &mut io_uring::Builder;

impl Uring {
    pub(super) fn open(
        in_flight_max: u32,
        registered_files_max: u32,
        arena: Option<&Arena>,
        problems: &mut Vec<Problem>,
    ) -> Result<Self, UringRefused> {
        let entries = in_flight_max.next_power_of_two();
        let (ring, dropped) =
            patiently(|| build(entries)).map_err(|error| UringRefused::of(&error))?;
        if dropped > 0 {
            problems.push(Problem {
                cause: format!(
                    "the kernel knows no ring flag {}",
                    names(&SETUP_FLAGS[..dropped]).join(", ")
                ),
                mend: "use Linux 6.1 or newer".into(),
            });
        }
        if !(ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop()) {
            return Err(UringRefused::OldKernel);
        }
        let mut setup = names(&SETUP_FLAGS[dropped..]);

        let mut workers = KERNEL_WORKERS_MAX;
        // Before 5.15 there is no such limit, and the ring works all the same.
        let _ = ring.submitter().register_iowq_max_workers(&mut workers);

        let files = u64::from(registered_files_max).min(open_files_max());
        let registered_files = match ring.submitter().register_files_sparse(
            u32::try_from(files).expect("it is at most registered_files_max"),
        ) {
            Ok(()) => {
                setup.push("registered files");
                usize::try_from(files).expect("a u32 fits")
            }
            Err(error) => {
                problems.push(Problem {
                    cause: format!("files are not registered with the ring ({error})"),
                    mend: "use Linux 5.19 or newer and raise the limit of open files (ulimit -n)"
                        .into(),
                });
                0
            }
        };

        let register = |arena: &Arena| {
            // SAFETY: the mapping is valid for its whole length, and `Disk` holds the arena for as
            // long as the ring; the kernel pins the pages besides.
            patiently(|| unsafe { ring.submitter().register_buffers(&[arena.iovec()]) })
        };
        let arena_registered = match arena.map(|arena| (arena, register(arena))) {
            None => false,
            Some((_, Ok(()))) => {
                setup.push("registered buffers");
                true
            }
            Some((arena, Err(error))) => {
                problems.push(Problem {
                    cause: format!(
                        "the arena of {} bytes is not registered with the ring ({error}), \
                         which costs some speed",
                        arena.layout().bytes()
                    ),
                    mend: "raise the limit of locked memory: ulimit -l unlimited, or \
                           LimitMEMLOCK=infinity in the systemd unit"
                        .into(),
                });
                false
            }
        };

        let mut enter_fd = ring.as_raw_fd();
        let mut enter_flags = 0;
        if let Some(index) = register_ring(&ring) {
            setup.push("registered ring");
            enter_fd = index;
            enter_flags = EnterFlags::REGISTERED_RING.bits();
        }
        Ok(Self {
            ring,
            enter_fd,
            enter_flags,
            registered_files,
            arena_registered,
            enters: 0,
            setup,
        })
    }

    pub(super) fn describe(&self) -> String {
        let entries = self.ring.params().sq_entries();
        format!("io_uring, {entries} entries, {}", self.setup.join(" | "))
    }

    pub(super) fn enters(&self) -> u64 {
        self.enters
    }

    pub(super) fn wake_fd(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring is open while it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }.try_clone_to_owned()
    }

    /// Enters a file into the ring's table; its place there, or none if it must be named by its
    /// descriptor.
    pub(super) fn file_opened(&mut self, index: usize, fd: &OwnedFd) -> Option<u32> {
        if index >= self.registered_files {
            return None;
        }
        let place = u32::try_from(index).expect("the table is smaller than that");
        let updated = self
            .ring
            .submitter()
            .register_files_update(place, &[fd.as_raw_fd()]);
        updated.ok().map(|_| place)
    }

    /// Clears a file's place in the table. Should that fail, the kernel keeps the file open until
    /// the place is taken again, which harms nobody.
    pub(super) fn file_closed(&mut self, place: u32) {
        let _ = self.ring.submitter().register_files_update(place, &[-1]);
    }

    /// Puts an order into the submission queue.
    pub(super) fn queue(&mut self, order: &Order) {
        let (offset, len) = (order.offset, order.len);
        let flags = match order.kind {
            Kind::Write { durable: true } => libc::RWF_DSYNC,
            _ => 0,
        };
        // The ring's library has one type for a file by number and one for a file by descriptor,
        // and no public trait over both.
        macro_rules! entry {
            ($file:expr) => {
                match (order.kind, order.span) {
                    (Kind::Sync, _) | (_, None) => opcode::Fsync::new($file)
                        .flags(types::FsyncFlags::DATASYNC)
                        .build(),
                    (Kind::Read, Some(span)) if span.in_mapping && self.arena_registered => {
                        opcode::ReadFixed::new($file, span.address, len, 0)
                            .offset(offset)
                            .build()
                    }
                    (Kind::Read, Some(span)) => opcode::Read::new($file, span.address, len)
                        .offset(offset)
                        .build(),
                    (_, Some(span)) if span.in_mapping && self.arena_registered => {
                        opcode::WriteFixed::new($file, span.address, len, 0)
                            .offset(offset)
                            .rw_flags(flags)
                            .build()
                    }
                    (_, Some(span)) => opcode::Write::new($file, span.address, len)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            };
        }
        let entry = match order.registered {
            Some(place) => entry!(types::Fixed(place)),
            None => entry!(types::Fd(order.fd)),
        };
        // SAFETY: the slot table owns the block that the entry's address points into, and the file
        // table the file, until the arrival with this key; `assert_span` checked that the length
        // fits the block.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(order.key)) };
        pushed.expect("the queue holds all that may be in flight");
    }

    /// Hands the submission queue to the kernel; no system call when it is empty. `in_flight`
    /// counts what is queued here or under way.
    pub(super) fn flush(&mut self, in_flight: usize) -> io::Result<()> {
        let mut retries = 0;
        loop {
            let queued = self.ring.submission().len();
            if queued == 0 {
                return Ok(());
            }
            let to_submit = u32::try_from(queued).expect("the queue is bounded by a u32");
            match self.enter(to_submit, 0) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_busy(&error) => {
                    if in_flight > queued {
                        // What is under way frees what the kernel lacks; its end comes back here.
                        return Ok(());
                    }
                    retries += 1;
                    if retries > BUSY_RETRIES_MAX {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The next completion that is visible in shared memory.
    #[inline]
    pub(super) fn next_arrival(&mut self) -> Option<Arrival> {
        let completion = self.ring.completion().next()?;
        Some(Arrival {
            key: completion.user_data(),
            result: completion.result(),
        })
    }

    /// Has the kernel post completions that it holds back for this thread, if its flags say that
    /// there are any.
    #[inline]
    pub(super) fn poll(&mut self) -> io::Result<()> {
        let queue = self.ring.submission();
        if !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        match self.enter(0, EnterFlags::GETEVENTS.bits()) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted && !is_busy(&error) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Blocks until something arrived or the time is over.
    pub(super) fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        self.enters += 1;
        let time = types::Timespec::from(at_most);
        let arguments = types::SubmitArgs::new().timespec(&time);
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Ok(_) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted || is_busy(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn enter(&mut self, to_submit: u32, flags: u32) -> io::Result<()> {
        self.enters += 1;
        // SAFETY: the ring is open, there is no argument structure, and the entries in the queue
        // were made by `queue`, which vouches for their addresses.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.enter_fd,
                to_submit,
                0u32,
                flags | self.enter_flags,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

/// The ring with as many of the flags as the kernel knows, and how many it does not. It has been
/// entered once: a filter may allow a ring to be set up and not to be used.
fn build(entries: u32) -> io::Result<(IoUring, usize)> {
    let mut dropped = 0;
    loop {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(entries * 4);
        for (_, set) in &SETUP_FLAGS[dropped..] {
            set(&mut builder);
        }
        match builder.build(entries) {
            Ok(ring) => return ring.submit().map(|_| (ring, dropped)),
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL) && dropped < SETUP_FLAGS.len() =>
            {
                dropped += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn names(flags: &[(&'static str, SetFlag)]) -> Vec<&'static str> {
    flags.iter().map(|(name, _)| *name).collect()
}

/// Enters the ring into the calling thread's table of rings, which saves looking up its descriptor
/// at every entry; its number there, or none on an old kernel.
fn register_ring(ring: &IoUring) -> Option<RawFd> {
    /// `struct io_uring_rsrc_update`.
    #[repr(C)]
    struct Update {
        offset: u32,
        reserved: u32,
        data: u64,
    }
    const IORING_REGISTER_RING_FDS: u32 = 20;
    let fd = ring.as_raw_fd();
    let data = u64::try_from(fd).expect("an open descriptor is not negative");
    let mut update = Update {
        offset: u32::MAX,
        reserved: 0,
        data,
    };
    // SAFETY: the pointer is to one live structure of the layout that this command reads and
    // writes, and the ring is open.
    let registered = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            IORING_REGISTER_RING_FDS,
            &raw mut update,
            1u32,
        )
    };
    if registered == 1 {
        RawFd::try_from(update.offset).ok()
    } else {
        None
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY))
}

fn open_files_max() -> u64 {
    system::limit(system::Resource::OpenFiles).map_or(1024, |limit| limit.soft)
}

/// Why the kernel gives no ring, by what the operator can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UringRefused {
    /// A seccomp filter, as containers have it.
    Seccomp,
    /// `kernel.io_uring_disabled` has this value.
    Sysctl(u8),
    /// The kernel has no io_uring, or one that is too old.
    OldKernel,
    /// Not enough lockable or other memory.
    NoMemory,
    /// No descriptor is left.
    NoDescriptor,
    /// Anything else, by its errno.
    Other(i32),
}

impl UringRefused {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error().unwrap_or(0) {
            libc::EPERM | libc::EACCES => match disabled_by_sysctl() {
                0 => Self::Seccomp,
                value => Self::Sysctl(value),
            },
            libc::ENOSYS => Self::OldKernel,
            libc::ENOMEM => Self::NoMemory,
            libc::EMFILE | libc::ENFILE => Self::NoDescriptor,
            errno => Self::Other(errno),
        }
    }

    /// Cause and mend for the start-up banner.
    pub fn problem(&self) -> Problem {
        let (cause, mend) = match self {
            Self::Seccomp => (
                "io_uring is forbidden by a seccomp filter".to_owned(),
                "run the container with --security-opt seccomp=deploy/seccomp.json",
            ),
            Self::Sysctl(value) => (
                format!("io_uring is switched off by kernel.io_uring_disabled = {value}"),
                "sysctl -w kernel.io_uring_disabled=0",
            ),
            Self::OldKernel => (
                "the kernel's io_uring is missing or too old".to_owned(),
                "use Linux 6.1 or newer",
            ),
            Self::NoMemory => (
                "there is not enough lockable memory for a ring".to_owned(),
                "ulimit -l unlimited, or LimitMEMLOCK=infinity in the systemd unit",
            ),
            Self::NoDescriptor => (
                "no file descriptor is left for a ring".to_owned(),
                "ulimit -n 65536, or LimitNOFILE=65536 in the systemd unit",
            ),
            Self::Other(errno) => (
                format!(
                    "io_uring is refused: {}",
                    io::Error::from_raw_os_error(*errno)
                ),
                "use --io threads",
            ),
        };
        Problem {
            cause,
            mend: mend.to_owned(),
        }
    }
}

/// Asks the kernel for a ring as a shard would, and gives it back: the flags it grants.
pub(crate) fn probe() -> Result<String, UringRefused> {
    let (_, dropped) = build_checked(8)?;
    Ok(names(&SETUP_FLAGS[dropped..]).join(" | "))
}

/// The smallest ring, set up as a shard's.
pub(super) fn probe_ring() -> Result<IoUring, UringRefused> {
    build_checked(8).map(|(ring, _)| ring)
}

fn build_checked(entries: u32) -> Result<(IoUring, usize), UringRefused> {
    let (ring, dropped) = build(entries).map_err(|error| UringRefused::of(&error))?;
    if !(ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop()) {
        return Err(UringRefused::OldKernel);
    }
    Ok((ring, dropped))
}

fn disabled_by_sysctl() -> u8 {
    let value = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    value
        .ok()
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
