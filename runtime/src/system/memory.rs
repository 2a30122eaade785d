//! The bound on the memory of the process: how much it may take, how much it takes, and what that
//! leaves to index and values.
//!
//! What the process takes beside them (code, buffers of connections and disks, free room of the
//! allocator) is not counted but measured: a thread looks at the resident memory every few
//! milliseconds, takes off what the shards say that they hold, and gives them the rest. Between two
//! looks the thread prefaults memory for values.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::system;
use crate::system::advice::Problem;
use crate::system::huge_pages;

/// Between two looks at the resident memory.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// After memory was given back in vain, it is not tried again for so long.
const VAIN_PAUSE: Duration = Duration::from_secs(1);
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
    is_over: AtomicBool,
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
    pub(crate) fn tell(&self, shard: u16, bytes: usize) {
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

    fn look(&self, resident: u64) {
        let Some(held) = self.held() else { return };
        // What is prefaulted is for values, and goes back to the system when memory is short.
        let held = held + huge_pages::prefaulted_bytes();
        self.leave(resident.saturating_sub(held).max(self.others_min));
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
        let mut not_before = Instant::now();
        let mut pause = LOOK_EVERY;
        while !self.is_over.load(Ordering::Relaxed) {
            std::thread::sleep(pause);
            let began = Instant::now();
            let Ok(mut resident) = resident_bytes() else {
                continue;
            };
            let most = self.max - self.slack();
            if resident > most && huge_pages::prefaulted_bytes() > 0 {
                huge_pages::give_back_prefaulted(resident - most);
                resident = resident_bytes().unwrap_or(resident);
            }
            if resident > most && Instant::now() >= not_before {
                // What the allocator keeps counts as others', and would drive values out for
                // nothing.
                huge_pages::give_back_free_memory();
                system::give_back_free_memory();
                let after = resident_bytes().unwrap_or(resident);
                if resident.saturating_sub(after) < WORTH_BYTES {
                    not_before = Instant::now() + VAIN_PAUSE;
                }
                resident = after;
            }
            self.look(resident);
            if self.held().is_some() {
                self.prefault();
            }
            pause = LOOK_EVERY.saturating_sub(began.elapsed()).max(PREFAULT_MAX);
        }
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
        bound.tell(0, 3 << 20);
        bound.tell(1, 4 << 20);
        bound.look(others + (7 << 20));
        assert_eq!(bound.share(), before, "no more than was thought");
        bound.look(others + (17 << 20));
        assert_eq!(bound.share(), before - (5 << 20));
        bound.look(u64::MAX);
        assert_eq!(bound.share(), 0);
        assert!(available_bytes() < u64::MAX && resident_bytes().unwrap() > 0);
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
