//! How the rings of all shards are set up, by how much memory the process may lock.
//!
//! The kernel charges registered buffers against RLIMIT_MEMLOCK, since 6.14 the memory of rings
//! too, for all processes of a user together. Nobody is told how much is left, so it is tried: one
//! small ring registers the same pages again and again. All shards get the same set-up: shards of
//! unequal speed would look like a fault.
#![expect(
    unsafe_code,
    reason = "memory is registered with a ring by its address"
)]

use std::io;
use std::ptr::NonNull;
use std::time::Instant;

use io_uring::IoUring;

use crate::disk::arena::ArenaLayout;
use crate::system::advice::Problem;
use crate::system::{self, Limit, Resource};

use super::patience::{RELEASE_MAX, RELEASE_PAUSE};
use super::uring::{self, UringRefused};
use super::{DiskOptions, IoMode};

/// Entries of the ring of a core's sockets, and its setups from the best to the least: smaller
/// rings come before buffers that are not registered. The last has small rings for the disks, too.
const LADDER: [RingSetup; 7] = [
    RingSetup::new(4096, true),
    RingSetup::new(1024, true),
    RingSetup::new(256, true),
    RingSetup::new(4096, false),
    RingSetup::new(1024, false),
    RingSetup::new(256, false),
    RingSetup::new(64, false),
];

/// How one shard's rings are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingSetup {
    /// Submission entries of the ring of its sockets; the completion queue has four times as many.
    pub(crate) socket_entries: u32,
    /// Whether the ring of its disk registers its buffers.
    pub(crate) registers_buffers: bool,
}

impl RingSetup {
    const fn new(socket_entries: u32, registers_buffers: bool) -> RingSetup {
        RingSetup {
            socket_entries,
            registers_buffers,
        }
    }

    /// The bounds of the shard's disk.
    pub(crate) fn disk_options(self, mode: IoMode) -> DiskOptions {
        let mut options = DiskOptions {
            mode,
            registers_buffers: self.registers_buffers,
            ..DiskOptions::default()
        };
        if self.socket_entries < 256 {
            options.reads_in_flight_max = 39;
            options.writes_in_flight_max = 24;
        }
        options
    }

    /// Bytes that the rings and buffers of one shard are charged with.
    fn charge(self, kernel: Charges, has_sockets: bool) -> u64 {
        let disk = self.disk_options(IoMode::Uring);
        let disk_entries = disk.reads_in_flight_max + disk.writes_in_flight_max;
        let sockets = match has_sockets {
            true => ring_bytes(self.socket_entries),
            false => 0,
        };
        let rings = match kernel {
            Charges::RingsAndBuffers => sockets + ring_bytes(disk_entries.next_power_of_two()),
            Charges::Buffers => 0,
        };
        let buffers = match self.registers_buffers {
            true => ArenaLayout::default().bytes() as u64,
            false => 0,
        };
        rings + buffers
    }
}

impl std::fmt::Display for RingSetup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let disk = self.disk_options(IoMode::Uring);
        write!(
            f,
            "{} entries for sockets, {} for the disk, buffers {}registered",
            self.socket_entries,
            (disk.reads_in_flight_max + disk.writes_in_flight_max).next_power_of_two(),
            if self.registers_buffers { "" } else { "not " }
        )
    }
}

/// What the kernel charges against the limit of locked memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charges {
    RingsAndBuffers,
    Buffers,
}

/// At least the memory of a ring: entries of 64 bytes, and of 4 and four times 16 bytes with a
/// head, in whole pages, and a page more for what a later kernel may add.
fn ring_bytes(entries: u32) -> u64 {
    let entries = u64::from(entries);
    let page = |bytes: u64| bytes.next_multiple_of(4096);
    page(entries * 64) + page(512 + entries * (4 + 4 * 16)) + 4096
}

/// The io_uring set-up that all shards get, and why it is not the best one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RingPlan {
    /// `None`: threads for disks and epoll for sockets.
    pub(crate) setup: Option<RingSetup>,
    /// Why it is not the best one.
    pub(crate) problem: Option<Problem>,
}

impl RingPlan {
    /// Threads, because they are asked for.
    fn threads() -> RingPlan {
        RingPlan {
            setup: None,
            problem: None,
        }
    }

    /// What does the work: `"uring"` or `"threads"`.
    pub(crate) fn io(&self) -> &'static str {
        match self.setup {
            Some(_) => "uring",
            None => "threads",
        }
    }

    /// The bounds of each shard's disk.
    pub(crate) fn disk_options(&self, mode: IoMode) -> DiskOptions {
        match self.setup {
            Some(setup) => setup.disk_options(mode),
            None => DiskOptions {
                mode: IoMode::Threads,
                ..DiskOptions::default()
            },
        }
    }

    /// Looks at what this process may lock, and takes the best set-up that fits for so many shards.
    ///
    /// # Errors
    /// `mode` demands io_uring, and the smallest rings do not fit, or the kernel refuses any.
    pub(crate) fn find(mode: IoMode, shards: u16, has_sockets: bool) -> Result<RingPlan, String> {
        if mode == IoMode::Threads {
            return Ok(RingPlan::threads());
        }
        let limit = system::limit(Resource::LockedMemory);
        let limit = limit.unwrap_or(Limit { soft: 0, hard: 0 }).soft;
        let full = LADDER[0].charge(Charges::RingsAndBuffers, has_sockets) * u64::from(shards);
        let until = Instant::now() + RELEASE_MAX;
        let found = loop {
            let found = Headroom::measure(full);
            let is_all = matches!(&found, Ok(found) if found.bytes >= full)
                || matches!(&found, Err(refused) if *refused != UringRefused::NoMemory);
            // What the limit would allow may be held by a process that has just ended.
            if is_all || limit < full || Instant::now() >= until {
                break found;
            }
            std::thread::sleep(RELEASE_PAUSE);
        };
        let headroom = match found {
            Ok(found) => found,
            Err(UringRefused::NoMemory) => Headroom {
                bytes: 0,
                charges: Charges::RingsAndBuffers,
            },
            // Its cause and its mend are told with the kernel's other gifts.
            Err(_) if mode == IoMode::Auto => return Ok(RingPlan::threads()),
            Err(refused) => {
                let Problem { cause, mend } = refused.problem();
                return Err(format!("--io uring: {cause}; {mend}"));
            }
        };
        decide(mode, shards, has_sockets, headroom, limit)
    }
}

/// How much this process may still lock, and what of it rings take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Headroom {
    bytes: u64,
    charges: Charges,
}

/// The best set-up that fits.
fn decide(
    mode: IoMode,
    shards: u16,
    has_sockets: bool,
    headroom: Headroom,
    limit: u64,
) -> Result<RingPlan, String> {
    let charge = |setup: RingSetup| setup.charge(headroom.charges, has_sockets) * u64::from(shards);
    let setup = LADDER
        .into_iter()
        .find(|setup| charge(*setup) <= headroom.bytes);
    if setup == Some(LADDER[0]) {
        return Ok(RingPlan {
            setup,
            problem: None,
        });
    }
    let (full, least) = (charge(LADDER[0]), charge(LADDER[LADDER.len() - 1]));
    let locked_bytes = match limit {
        u64::MAX => 0,
        bytes => bytes.saturating_sub(headroom.bytes),
    };
    let limit = match limit {
        u64::MAX => "unlimited".to_string(),
        bytes => format!("{bytes} bytes"),
    };
    let left = format!(
        "the limit of locked memory (RLIMIT_MEMLOCK, {limit}) leaves {} bytes",
        headroom.bytes
    );
    let enough = |bytes: u64| {
        // What is locked now stays locked.
        let bytes = bytes.saturating_add(locked_bytes);
        let kib = bytes.div_ceil(1024);
        format!(
            "ulimit -l {kib}, or LimitMEMLOCK={bytes} in the systemd unit, and more if other \
             processes of this user lock memory"
        )
    };
    if setup.is_none() && mode == IoMode::Uring {
        return Err(format!(
            "--io uring: {left}, and the smallest rings of {shards} shards take {least}; {}; or \
             --io auto, which takes threads then",
            enough(least)
        ));
    }
    let instead = match setup {
        Some(setup) => format!("they get {setup}"),
        None => "threads do the work of rings".into(),
    };
    Ok(RingPlan {
        setup,
        problem: Some(Problem {
            cause: format!(
                "{left}, and {shards} shards take {full} for rings and buffers: {instead}, which \
                 costs some speed"
            ),
            mend: enough(full),
        }),
    })
}

impl Headroom {
    /// Tries to lock up to `wanted` bytes.
    fn measure(wanted: u64) -> Result<Headroom, UringRefused> {
        let probe = uring::probe_ring()?;
        let Ok(pages) = Pages::map() else {
            return Err(UringRefused::NoMemory);
        };
        if pages.may_lock(&probe, wanted) {
            return Ok(Headroom {
                bytes: wanted,
                charges: Charges::RingsAndBuffers,
            });
        }
        let bytes = pages.most(&probe, wanted);
        let another = uring::probe_ring();
        let charges = match pages.most(&probe, bytes) == bytes && another.is_ok() {
            true => Charges::Buffers,
            false => Charges::RingsAndBuffers,
        };
        Ok(Headroom { bytes, charges })
    }
}

/// Small pages that are registered to see whether they may be.
struct Pages(NonNull<libc::c_void>);

/// Their bytes.
const PAGES_BYTES: usize = 1 << 20;
const PAGE_BYTES: u64 = 4096;

impl Pages {
    fn map() -> io::Result<Pages> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of
        // anybody. The advice changes no contents: a huge page would be charged once, however often
        // it is registered.
        unsafe {
            let mapped = libc::mmap(
                std::ptr::null_mut(),
                PAGES_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            if mapped == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(mapped, PAGES_BYTES, libc::MADV_NOHUGEPAGE);
            Ok(Pages(
                NonNull::new(mapped).expect("a mapping never begins at zero"),
            ))
        }
    }

    /// Whether so many bytes may be locked at once; they are not afterwards.
    fn may_lock(&self, ring: &IoUring, bytes: u64) -> bool {
        let whole = PAGES_BYTES as u64;
        let lengths = std::iter::repeat_n(whole, usize::try_from(bytes / whole).unwrap_or(0));
        let buffers: Vec<libc::iovec> = lengths
            .chain([bytes % whole].into_iter().filter(|rest| *rest > 0))
            .map(|length| libc::iovec {
                iov_base: self.0.as_ptr(),
                iov_len: usize::try_from(length).expect("at most a mebibyte"),
            })
            .collect();
        if buffers.is_empty() {
            return true;
        }
        // SAFETY: each buffer is a part of the mapping, which outlives the registration, and
        // nothing is read into it.
        let registered = unsafe { ring.submitter().register_buffers(&buffers) };
        registered.is_ok() && ring.submitter().unregister_buffers().is_ok()
    }

    /// The most bytes below `wanted` that may be locked, in whole pages.
    fn most(&self, ring: &IoUring, wanted: u64) -> u64 {
        let (mut fits, mut beyond) = (0, wanted / PAGE_BYTES + 1);
        while beyond - fits > 1 {
            let middle = u64::midpoint(fits, beyond);
            match self.may_lock(ring, middle * PAGE_BYTES) {
                true => fits = middle,
                false => beyond = middle,
            }
        }
        fits * PAGE_BYTES
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `map` got, and no ring has it registered.
        unsafe { libc::munmap(self.0.as_ptr(), PAGES_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn setup(mode: IoMode, shards: u16, kib: u64) -> Result<RingPlan, String> {
        let headroom = Headroom {
            bytes: kib * KIB,
            charges: Charges::RingsAndBuffers,
        };
        decide(mode, shards, true, headroom, kib * KIB)
    }

    #[test]
    fn smaller_rings_come_before_plain_buffers_and_these_before_threads() {
        let of = |shards, kib| {
            let plan = setup(IoMode::Auto, shards, kib).expect("auto always serves");
            assert_eq!(
                plan.problem.is_none(),
                plan.setup == Some(LADDER[0]),
                "whatever is given up is told: {plan:?}"
            );
            plan.setup
                .map(|it| (it.socket_entries, it.registers_buffers))
        };
        let table = [
            (1, [None, Some((64, false)), Some((1024, false))]),
            (2, [None, Some((64, false)), Some((256, false))]),
            (8, [None, None, Some((64, false))]),
        ];
        for (shards, expected) in table {
            assert_eq!([0, 64, 256].map(|kib| of(shards, kib)), expected);
        }
        assert_eq!(of(1, 1024), Some((4096, false)));
        assert_eq!(of(1, 4096), Some((4096, false)));
        assert_eq!(of(1, 4096 + 100), Some((256, true)));
        assert_eq!(of(1, 4096 + 200), Some((1024, true)));
        assert_eq!(of(1, 5120), Some((4096, true)));
        assert_eq!(of(2, 1024), Some((1024, false)));
        assert_eq!(of(2, 8192), Some((4096, false)));
        assert_eq!(of(2, 9500), Some((4096, true)));
        assert_eq!(of(8, 1024), Some((256, false)));
        assert_eq!(of(8, 5120), Some((4096, false)));
        assert_eq!(of(8, 8192), Some((4096, false)));
        assert_eq!(of(8, u64::MAX / KIB), Some((4096, true)));
    }

    #[test]
    fn a_kernel_that_charges_no_rings_gives_all_of_them() {
        let headroom = Headroom {
            bytes: 64 * KIB,
            charges: Charges::Buffers,
        };
        let plan = decide(IoMode::Auto, 8, true, headroom, 64 * KIB).expect("auto");
        assert_eq!(plan.setup, Some(RingSetup::new(4096, false)));
    }

    #[test]
    fn demanded_rings_that_do_not_fit_are_refused_with_the_limit_and_what_would_do() {
        let message = setup(IoMode::Uring, 8, 64).expect_err("they do not fit");
        let (left, least) = (
            64 * KIB,
            8 * LADDER[6].charge(Charges::RingsAndBuffers, true),
        );
        assert!(message.starts_with("--io uring: "), "{message}");
        assert!(
            message.contains(&format!("leaves {left} bytes"))
                && message.contains(&least.to_string()),
            "{message}"
        );
        assert!(
            message.contains("--io auto") && !message.contains('\n'),
            "{message}"
        );
        let plan = setup(IoMode::Uring, 8, 256).expect("small rings are rings");
        assert_eq!(plan.setup, Some(LADDER[6]));
    }

    #[test]
    fn what_was_promised_can_be_made() {
        // On whatever limit the tests run.
        let plan = RingPlan::find(IoMode::Auto, 1, true).expect("auto");
        if let Some(setup) = plan.setup {
            let arena = crate::disk::arena::Arena::new(ArenaLayout::default()).expect("mapped");
            let disk = crate::disk::Disk::open(setup.disk_options(IoMode::Auto), &arena);
            assert_eq!(disk.expect("opened").engine(), "uring");
        }
    }
}
