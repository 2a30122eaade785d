//! The bound on the memory of the process: how much it may take, how much it takes, and what that
//! leaves to index and values.
//!
//! What the process takes beside them (code, buffers of connections and disks, free room of the
//! allocator) is not counted but measured: a thread looks at the resident memory every few
//! milliseconds, takes off what the shards say that they hold, and gives them the rest. Between two
//! looks the thread prefaults memory for values.
//!
//! The allocator keeps what connections free, and that counts as others'. It goes back to the
//! system when the bound is near, and before a shard refuses a new key
//! ([`MemoryBound::make_room`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::system;
use crate::system::advice::Problem;
use crate::system::huge_pages;

/// Between two looks at the resident memory.
const MEASURE_EVERY: Duration = Duration::from_millis(10);
/// After memory was given back in vain because the bound is near, it is not tried again for so
/// long: a full cache is always near its bound.
const VAIN_PAUSE: Duration = Duration::from_secs(1);
/// Between two tries for shards that have no room for a new key, at the least.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);
/// That pause is so many times as long as the last try took, at the least: the core that would
/// refuse stands still meanwhile.
const PAUSE_TIMES: u32 = 19;
/// How long memory is prefaulted between two looks, but for the last huge page. The thread sleeps
/// as long at the least.
const PREFAULT_MAX: Duration = Duration::from_millis(5);
/// What giving back must bring to be tried again soon.
const WORTH_BYTES: u64 = 1 << 20;

/// What the process may take by default: this share of what there is.
const DEFAULT_PERCENT: u64 = 75;

/// The memory that there is: of the machine, or as much of it as a control group leaves.
pub(crate) fn available_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = field_kib(&meminfo, "MemTotal:").map_or(u64::MAX, |kib| kib * 1024);
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.min(group_bytes(&group, Path::new("/sys/fs/cgroup")))
}

/// What `memory_max = 0` means.
pub(crate) fn default_bytes() -> u64 {
    available_bytes() / 100 * DEFAULT_PERCENT
}

/// What is wrong with a bound of `max` bytes where there are only `available`.
pub(crate) fn beyond_problem(max: u64, available: u64) -> Option<Problem> {
    let mib = |bytes: u64| bytes >> 20;
    (max > available).then(|| Problem {
        cause: format!(
            "memory_max is {} MiB and the machine or the control group has {} MiB: the system may \
             end the process before it keeps to its bound",
            mib(max),
            mib(available)
        ),
        mend: format!(
            "give --memory-max {}MiB, or leave it out",
            mib(available / 100 * DEFAULT_PERCENT)
        ),
    })
}

/// The least limit of the control groups that `/proc/self/cgroup` names, and of those above them.
fn group_bytes(text: &str, root: &Path) -> u64 {
    let mut least = u64::MAX;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            "memory" => (root.join("memory"), "memory.limit_in_bytes"),
            _ => continue,
        };
        let mut folder: PathBuf = root.join(path.trim_start_matches('/'));
        while folder.starts_with(&root) {
            let limit = fs::read_to_string(folder.join(file)).unwrap_or_default();
            least = least.min(limit.trim().parse().unwrap_or(u64::MAX));
            folder.pop();
        }
    }
    least
}

fn field_kib(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The memory that the process takes now: what VmRSS of its status says, read from where it costs
/// less.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text
        .split_whitespace()
        .nth(1)
        .and_then(|it| it.parse().ok());
    pages
        .map(|pages: u64| pages * system::page_bytes())
        .ok_or_else(|| io::Error::other("/proc/self/statm tells no resident memory"))
}

/// What one shard is to have whatever its index takes, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    /// Buffers beside its data.
    pub(crate) buffer_bytes: u64,
    /// Bytes of its data that the index never gets.
    pub(crate) cells_bytes_min: u64,
}

/// One bound, shared by all shards.
#[derive(Debug)]
pub(crate) struct MemoryBound {
    max: u64,
    /// What all the rest is taken to need at the least.
    others_min: u64,
    /// What the cells of all shards may take in any case.
    cells_min: u64,
    /// What index and values of all shards may take now beside that.
    data_max: AtomicU64,
    /// What those of each shard take.
    held: Vec<AtomicU64>,
    tries: Mutex<Tries>,
    is_over: AtomicBool,
}

/// The process whose memory is bounded.
trait Process {
    fn now(&self) -> Instant;
    fn resident_bytes(&self) -> io::Result<u64>;
    /// Gives the memory that is free and kept back to the system.
    fn give_back_free(&self);
}

/// The one that this runs in.
struct ThisProcess;

impl Process for ThisProcess {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn resident_bytes(&self) -> io::Result<u64> {
        resident_bytes()
    }

    fn give_back_free(&self) {
        huge_pages::give_back_free_memory();
        system::give_back_free_memory();
    }
}

/// Why free memory is to go back to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// The process takes nearly all that it may.
    BoundIsNear,
    /// A shard has no room for a new key.
    KeyIsRefused,
}

/// When free memory may go back to the system again; at once if nothing is said.
#[derive(Debug, Default)]
struct Tries {
    near_from: Option<Instant>,
    refused_from: Option<Instant>,
}

impl Tries {
    fn is_due(&self, now: Instant, need: Need) -> bool {
        let from = match need {
            Need::BoundIsNear => self.near_from,
            Need::KeyIsRefused => self.refused_from,
        };
        from.is_none_or(|from| now >= from)
    }

    /// Gives free memory back; returns what is resident then.
    fn give_back(&mut self, process: &impl Process, resident: u64) -> u64 {
        let began = process.now();
        process.give_back_free();
        let after = process.resident_bytes().unwrap_or(resident);
        let ended = process.now();
        let was_vain = resident.saturating_sub(after) < WORTH_BYTES;
        self.near_from = was_vain.then_some(ended + VAIN_PAUSE);
        let took = ended.saturating_duration_since(began);
        self.refused_from = Some(ended + REFUSED_PAUSE.max(took * PAUSE_TIMES));
        after
    }
}

impl MemoryBound {
    /// A bound of `max` bytes on a process of so many shards.
    pub(crate) fn new(max: u64, shards: u16, fixed: Fixed) -> io::Result<Self> {
        let bound = MemoryBound {
            max,
            others_min: resident_bytes()? + u64::from(shards) * fixed.buffer_bytes,
            cells_min: u64::from(shards) * fixed.cells_bytes_min,
            data_max: AtomicU64::new(0),
            held: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            tries: Mutex::default(),
            is_over: AtomicBool::new(false),
        };
        bound.leave(bound.others_min);
        Ok(bound)
    }

    /// The bound itself.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// What index and values of one shard may take beside its [`Fixed`].
    #[inline]
    pub(crate) fn share(&self) -> usize {
        let data_max = self.data_max.load(Ordering::Relaxed);
        usize::try_from(data_max / self.held.len() as u64).unwrap_or(usize::MAX)
    }

    /// What they take; only that shard tells it.
    #[inline]
    pub(crate) fn note_held(&self, shard: u16, bytes: usize) {
        self.held[usize::from(shard)].store(bytes as u64, Ordering::Relaxed);
    }

    /// Kept free: what can come between two looks.
    fn slack(&self) -> u64 {
        self.max / 16 + (2 << 20)
    }

    fn leave(&self, others: u64) {
        let fixed = (self.slack() + self.cells_min).saturating_add(others);
        let data_max = self.max.saturating_sub(fixed);
        self.data_max.store(data_max, Ordering::Relaxed);
    }

    /// What all shards hold; `None` while one is being opened, for what it holds would be taken for
    /// others'.
    fn held(&self) -> Option<u64> {
        let held = self.held.iter().map(|held| held.load(Ordering::Relaxed));
        held.map(|held| (held > 0).then_some(held)).sum()
    }

    fn adjust(&self, resident: u64) {
        if let Some(others) = self.others(resident) {
            self.leave(others.max(self.others_min));
        }
    }

    /// What all the rest takes of so many resident bytes.
    fn others(&self, resident: u64) -> Option<u64> {
        // What is prefaulted is for values, and goes back to the system when memory is short.
        let held = self.held()? + huge_pages::prefaulted_bytes();
        Some(resident.saturating_sub(held))
    }

    /// Measures anew what others take, without the free memory that the allocator keeps. A shard
    /// that has no room for a new key calls this, so no key is refused for what connections no
    /// longer have. Free memory goes back each 20 ms at most, and for a twentieth of the time at
    /// most. A second shard waits until the first one is done.
    #[cold]
    pub(crate) fn make_room(&self) {
        self.make_room_in(&ThisProcess);
    }

    fn make_room_in(&self, process: &impl Process) {
        let mut tries = self.tries();
        let now = process.now();
        if !tries.is_due(now, Need::KeyIsRefused) {
            return;
        }
        tries.refused_from = Some(now + REFUSED_PAUSE);
        let Ok(resident) = process.resident_bytes() else {
            return;
        };
        let is_worth = |others: u64| others >= self.others_min + WORTH_BYTES;
        match self.others(resident).is_some_and(is_worth) {
            true => self.adjust(tries.give_back(process, resident)),
            false => self.adjust(resident),
        }
    }

    fn tries(&self) -> MutexGuard<'_, Tries> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so much of the bound is left that prefaulted memory would not go back at once.
    fn has_room_ahead(&self, resident: u64) -> bool {
        resident + 2 * self.slack() < self.max
    }

    /// Starts the thread that looks.
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<Watch> {
        let bound = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("penstock-memory".into())
            .spawn(move || bound.run())?;
        Ok(Watch {
            bound: Arc::clone(self),
            thread: Some(thread),
        })
    }

    fn run(&self) {
        let mut pause = MEASURE_EVERY;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(pause);
            let began = Instant::now();
            if self.measure(&ThisProcess).is_err() {
                continue;
            }
            if self.held().is_some() {
                self.prefault();
            }
            pause = MEASURE_EVERY
                .saturating_sub(began.elapsed())
                .max(PREFAULT_MAX);
        }
    }

    /// One look of the thread. What the allocator keeps counts as others', and would drive values
    /// out for nothing.
    fn measure(&self, process: &impl Process) -> io::Result<()> {
        let mut tries = self.tries();
        let mut resident = process.resident_bytes()?;
        let most = self.max - self.slack();
        if resident > most && huge_pages::prefaulted_bytes() > 0 {
            huge_pages::give_back_prefaulted(resident - most);
            resident = process.resident_bytes().unwrap_or(resident);
        }
        if resident > most && tries.is_due(process.now(), Need::BoundIsNear) {
            resident = tries.give_back(process, resident);
        }
        self.adjust(resident);
        Ok(())
    }

    fn prefault(&self) {
        let until = Instant::now() + PREFAULT_MAX;
        huge_pages::prefault(|| {
            let is_over = self.is_over.load(Ordering::Relaxed) || Instant::now() >= until;
            is_over || !resident_bytes().is_ok_and(|it| self.has_room_ahead(it))
        });
    }
}

/// The thread that looks; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    bound: Arc<MemoryBound>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bound.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_bound_above_the_memory_that_there_is_names_both_and_one_below_is_sound() {
        let problem = beyond_problem(9 << 30, 8 << 30).expect("above");
        assert!(problem.cause.contains("9216 MiB") && problem.cause.contains("8192 MiB"));
        assert_eq!(problem.mend, "give --memory-max 6143MiB, or leave it out");
        assert_eq!(beyond_problem(8 << 30, 8 << 30), None);
    }

    #[test]
    fn what_others_take_is_taken_from_index_and_values() {
        let fixed = Fixed {
            buffer_bytes: 1 << 20,
            cells_bytes_min: 3 << 20,
        };
        let bound = MemoryBound::new(1 << 40, 2, fixed).unwrap();
        let before = bound.share();
        let others = bound.others_min;
        let fixed = bound.slack() + others + 2 * fixed.cells_bytes_min;
        assert_eq!(before as u64, ((1 << 40) - fixed) / 2);
        bound.note_held(0, 3 << 20);
        bound.note_held(1, 4 << 20);
        bound.adjust(others + (7 << 20));
        assert_eq!(bound.share(), before, "no more than was thought");
        bound.adjust(others + (17 << 20));
        assert_eq!(bound.share(), before - (5 << 20));
        bound.adjust(u64::MAX);
        assert_eq!(bound.share(), 0);
        assert!(available_bytes() < u64::MAX && resident_bytes().unwrap() > 0);
    }

    /// A process of a clock and of bytes that a test sets.
    struct Scripted {
        now: Cell<Instant>,
        used: Cell<u64>,
        /// What the allocator keeps of what was freed.
        kept: Cell<u64>,
        /// How long it takes to give that back.
        takes: Cell<Duration>,
        tries: Cell<u32>,
        readings: Cell<u32>,
    }

    impl Scripted {
        fn new(used: u64) -> Scripted {
            Scripted {
                now: Cell::new(Instant::now()),
                used: Cell::new(used),
                kept: Cell::new(0),
                takes: Cell::new(Duration::ZERO),
                tries: Cell::new(0),
                readings: Cell::new(0),
            }
        }

        fn pass(&self, ms: u64) {
            self.now.set(self.now.get() + Duration::from_millis(ms));
        }

        fn free(&self, bytes: u64) {
            self.used.set(self.used.get() - bytes);
            self.kept.set(self.kept.get() + bytes);
        }
    }

    impl Process for Scripted {
        fn now(&self) -> Instant {
            self.now.get()
        }

        fn resident_bytes(&self) -> io::Result<u64> {
            self.readings.set(self.readings.get() + 1);
            Ok(self.used.get() + self.kept.get())
        }

        fn give_back_free(&self) {
            self.kept.set(0);
            self.tries.set(self.tries.get() + 1);
            self.now.set(self.now.get() + self.takes.get());
        }
    }

    const FIXED: Fixed = Fixed {
        buffer_bytes: 1 << 20,
        cells_bytes_min: 3 << 20,
    };

    /// A bound of one shard that holds 1 MiB, the largest share of the shard, and a process whose
    /// connections take this many bytes. The bound is 64 MiB and twice the least of a process.
    fn crowded(connections: u64) -> (MemoryBound, usize, Scripted) {
        let max = 2 * MemoryBound::new(1 << 40, 1, FIXED).unwrap().others_min + (64 << 20);
        let bound = MemoryBound::new(max, 1, FIXED).unwrap();
        bound.note_held(0, 1 << 20);
        let process = Scripted::new(bound.others_min + (1 << 20) + connections);
        let best = bound.share();
        bound.measure(&process).unwrap();
        (bound, best, process)
    }

    /// Half frames of connections drive the process to its bound, so giving back is in vain. Then
    /// the connections end.
    #[test]
    fn a_key_is_not_refused_for_what_connections_have_given_back() {
        let (bound, best, process) = crowded(0);
        assert_eq!(bound.share(), best);
        process.used.set(bound.max());
        bound.measure(&process).unwrap();
        assert_eq!((bound.share(), process.tries.get()), (0, 1), "in vain");
        process.pass(20);
        process.free(bound.max() - bound.others_min - (1 << 20));
        bound.measure(&process).unwrap();
        assert_eq!(bound.share(), 0, "the thread tries a second later");
        bound.make_room_in(&process);
        assert_eq!((bound.share(), process.tries.get()), (best, 2));
    }

    /// The thread gives nothing back below the bound.
    #[test]
    fn what_the_allocator_keeps_below_the_bound_refuses_no_key_for_ever() {
        let (bound, best, process) = crowded(40 << 20);
        assert_eq!(bound.share(), best - (40 << 20));
        process.free(40 << 20);
        for _ in 0..1_000 {
            process.pass(10);
            bound.measure(&process).unwrap();
        }
        assert_eq!((bound.share(), process.tries.get()), (best - (40 << 20), 0));
        bound.make_room_in(&process);
        assert_eq!((bound.share(), process.tries.get()), (best, 1));
    }

    #[test]
    fn free_memory_goes_back_for_refused_keys_for_a_twentieth_of_the_time_at_most() {
        let (bound, _, process) = crowded(40 << 20);
        let tries_in_a_second = |takes_ms: u64| {
            process.takes.set(Duration::from_millis(takes_ms));
            process.pass(10_000);
            let (before, until) = (process.tries.get(), process.now() + Duration::from_secs(1));
            while process.now() < until {
                bound.make_room_in(&process);
                process.now.set(process.now() + Duration::from_micros(100));
            }
            process.tries.get() - before
        };
        assert_eq!(tries_in_a_second(0), 50);
        assert_eq!(tries_in_a_second(1), 48, "each 21 ms");
        assert_eq!(tries_in_a_second(10), 5, "each 200 ms");
        // Where nothing but data has grown, there is nothing to give back, and each look is bounded
        // too.
        process.used.set(bound.others_min + (1 << 20));
        process.readings.set(0);
        assert_eq!(tries_in_a_second(0), 0);
        assert_eq!(process.readings.get(), 50);
    }

    /// Values fill what they may, and the process is near its bound all the time.
    #[test]
    fn a_full_cache_gives_nothing_back_in_vain_but_each_second() {
        let (bound, _, process) = crowded(0);
        process.used.set(bound.max());
        for _ in 0..1_000 {
            process.pass(10);
            bound.measure(&process).unwrap();
        }
        assert_eq!(process.tries.get(), 10);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let root = std::env::temp_dir().join(format!("penstock-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/memory.max"), "1048576\n").unwrap();
        fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(group_bytes("0::/a/b\n", &root), 1 << 20);
        fs::write(root.join("a/b/memory.max"), "4096\n").unwrap();
        assert_eq!(group_bytes("0::/a/b\n", &root), 4096);
        assert_eq!(group_bytes("3:cpu:/a/b\nnonsense\n", &root), u64::MAX);
        fs::create_dir_all(root.join("memory/old")).unwrap();
        fs::write(root.join("memory/old/memory.limit_in_bytes"), "77\n").unwrap();
        assert_eq!(group_bytes("9:memory:/old\n0::/a\n", &root), 77);
        fs::remove_dir_all(&root).unwrap();
    }
}
