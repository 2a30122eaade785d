//! What the machine gives, looked at before anything is served: one line each for the banner, and
//! for what is not as it should be its cause and the command that mends it.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use core_affinity::CoreId;
use penstock_storage::io::{BLOCK_BYTES, Block, Blocks};

use crate::directory::{Segments, open_for_device};
use crate::disk;
use crate::disk::arena::{Arena, ArenaLayout};
use crate::system::advice::{self, Problem};
use crate::system::huge_pages::{self, Support};
use crate::system::open_files;
use crate::system::{self, Limit, Resource};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// What was found.
    pub value: String,
    /// What is wrong with it, if anything.
    pub problem: Option<Problem>,
}

/// What a server is about to ask of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// Where the segments are.
    pub segments: &'a Segments,
    /// How many shards.
    pub shards: u32,
    /// The size of a segment in bytes.
    pub segment_bytes: u64,
    /// How many connections may be open.
    pub connections_max: u64,
}

/// Raises the limits of open files and of locked memory as far as the process may, and looks at
/// everything that a server depends on.
pub fn check_all(demand: &Demand<'_>) -> Vec<Check> {
    let folder = demand.segments.folder();
    vec![
        kernel(),
        io_uring(),
        locked_memory(),
        huge_pages(),
        open_files(demand),
        cores(demand),
        file_system(folder),
        direct_io(demand.segments),
        block_device(folder),
        free_space(demand),
    ]
}

/// The existing cores that the process's CPU set allows, in ascending order.
pub fn allowed_cores() -> Vec<CoreId> {
    let mut cores = core_affinity::get_core_ids().unwrap_or_default();
    cores.sort_unstable();
    cores
}

fn fine(name: &'static str, value: impl Into<String>) -> Check {
    Check {
        name,
        value: value.into(),
        problem: None,
    }
}

fn wrong(
    name: &'static str,
    value: impl Into<String>,
    cause: impl Into<String>,
    mend: impl Into<String>,
) -> Check {
    let problem = Some(Problem {
        cause: cause.into(),
        mend: mend.into(),
    });
    Check {
        name,
        value: value.into(),
        problem,
    }
}

fn kernel() -> Check {
    let release = read_word("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into());
    match version(&release) {
        Some(version) if version < (6, 1) => wrong(
            "kernel",
            release,
            "older than 6.1: not all flags of the rings are to be had",
            "use Linux 6.1 or newer",
        ),
        _ => fine("kernel", release),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn io_uring() -> Check {
    match disk::probe() {
        Ok(flags) => fine("io_uring", flags),
        Err(refused) => {
            let problem = Some(refused.problem());
            Check {
                name: "io_uring",
                value: "unavailable".into(),
                problem,
            }
        }
    }
}

/// Whether it is enough is seen when rings are tried.
fn locked_memory() -> Check {
    const NAME: &str = "locked memory";
    match system::raise_limit(Resource::LockedMemory) {
        Err(error) => wrong(NAME, "unknown", error.to_string(), "ulimit -l unlimited"),
        // A process with CAP_IPC_LOCK is not held to the limit; root has it unless it was taken.
        Ok(limit) if may_lock_all() => fine(NAME, format!("{}, not held to it", limit_text(limit))),
        Ok(limit) => fine(NAME, limit_text(limit)),
    }
}

fn huge_pages() -> Check {
    const NAME: &str = "huge pages";
    match huge_pages::support() {
        (Support::OnRequest, setting) => fine(NAME, setting),
        (Support::Never, setting) => wrong(
            NAME,
            setting,
            "cached values lie on small pages, which makes random reads of much memory slower",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

fn may_lock_all() -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    effective.is_some_and(|mask| mask & (1 << CAP_IPC_LOCK) != 0)
}

fn limit_text(limit: Limit) -> String {
    match limit.soft {
        u64::MAX => "unlimited".into(),
        soft => soft.to_string(),
    }
}

fn open_files(demand: &Demand<'_>) -> Check {
    const NAME: &str = "open files";
    let wanted = open_files::wanted(demand.connections_max);
    let mend = advice::open_files(wanted);
    match system::raise_limit(Resource::OpenFiles) {
        Err(error) => wrong(NAME, "unknown", error.to_string(), mend),
        Ok(limit) if limit.soft >= wanted => fine(NAME, limit_text(limit)),
        Ok(limit) => wrong(
            NAME,
            limit_text(limit),
            format!(
                "{} connections and the segments may need {wanted}",
                demand.connections_max
            ),
            mend,
        ),
    }
}

fn cores(demand: &Demand<'_>) -> Check {
    const NAME: &str = "cores";
    let allowed = allowed_cores();
    let list = allowed
        .iter()
        .map(|core| core.id.to_string())
        .collect::<Vec<_>>()
        .join(" ");
    let value = format!("{} allowed ({list})", allowed.len());
    let shards = demand.shards as usize;
    if shards > allowed.len() {
        return wrong(
            NAME,
            value,
            format!(
                "{shards} shards share {} cores, and each wants one alone",
                allowed.len()
            ),
            format!(
                "--shards {}, or a wider CPU set (taskset, AllowedCPUs=)",
                allowed.len()
            ),
        );
    }
    match cpu_quota() {
        Some(quota) if quota < f64::from(demand.shards) => wrong(
            NAME,
            value,
            format!("the control group grants {quota:.1} CPUs to {shards} shards: they will stall"),
            "give the container as many CPUs as shards, by CPU set and not by quota",
        ),
        _ => fine(NAME, value),
    }
}

/// How many CPUs' worth of time the control groups grant, if they limit it.
fn cpu_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let folders = root.join(own);
    let quotas = folders
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    quotas
        .filter_map(|folder| quota(&fs::read_to_string(folder.join("cpu.max")).ok()?))
        .reduce(f64::min)
}

/// Reads `quota period`, both in microseconds; a quota of `max` is none.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn file_system(folder: &Path) -> Check {
    const NAME: &str = "file system";
    let magic = match system::file_system_magic(folder) {
        Ok(magic) => magic,
        Err(error) => {
            return wrong(
                NAME,
                "unknown",
                error.to_string(),
                "name another with --data",
            );
        }
    };
    let elsewhere = "name a directory on ext4 or xfs with --data";
    let (value, cause) = match magic {
        0xef53 => return fine(NAME, "ext4"),
        0x5846_5342 => return fine(NAME, "xfs"),
        0x0102_1994 | 0x8584_58f6 => ("tmpfs", "it is memory: nothing survives a power cut"),
        0x794c_7630 => (
            "overlay",
            "it is a container's layer: slow, and gone with the container",
        ),
        0x6969 => (
            "nfs",
            "durability is the distant server's affair, and its flushes are slow",
        ),
        0xfe53_4d42 | 0xff53_4d42 => ("smb", "durability is the distant server's affair"),
        0x6573_5546 => ("fuse", "durability is the affair of a program in between"),
        0x0102_1997 => ("9p", "durability is the affair of the host"),
        0x9123_683e => (
            "btrfs",
            "it copies on write, so every durable write changes metadata",
        ),
        0x2fc1_2fc1 => (
            "zfs",
            "it copies on write, so every durable write changes metadata",
        ),
        _ => ("unknown", "nobody has tried this file system"),
    };
    wrong(NAME, format!("{value} ({magic:#x})"), cause, elsewhere)
}

fn direct_io(segments: &Segments) -> Check {
    const NAME: &str = "direct I/O";
    let elsewhere = "name a directory on ext4 or xfs with --data";
    let buffered = "writes go through the page cache, which costs speed and memory";
    if !segments.is_direct() {
        return wrong(NAME, "refused by the file system", buffered, elsewhere);
    }
    match try_direct(&segments.folder().join("check.tmp")) {
        Ok(Some((memory, offset))) => {
            let value = format!("{memory} bytes in memory, {offset} bytes in files");
            if memory == 0 || offset == 0 {
                wrong(NAME, value, buffered, elsewhere)
            } else if memory.max(offset) as usize > BLOCK_BYTES {
                wrong(
                    NAME,
                    value,
                    format!("blocks here are {BLOCK_BYTES} bytes"),
                    elsewhere,
                )
            } else {
                fine(NAME, value)
            }
        }
        Ok(None) => fine(NAME, "works (the kernel does not say its alignment)"),
        Err(error) => wrong(NAME, "fails", error.to_string(), elsewhere),
    }
}

/// Writes one block past the page cache and reads it back; the alignment that the kernel names.
fn try_direct(path: &Path) -> io::Result<Option<(u32, u32)>> {
    fs::File::create(path)?;
    let file = open_for_device(path, true);
    fs::remove_file(path)?;
    let file = file?;
    let mut arena = Arena::new(ArenaLayout {
        frame_blocks: 0,
        frame_block_bytes: BLOCK_BYTES,
        read_blocks: 2,
        read_block_bytes: BLOCK_BYTES,
        overflow_bytes_max: 0,
    })?;
    let mut take = || arena.take(BLOCK_BYTES).expect("the arena has two blocks");
    let (mut written, mut read) = (take(), take());
    written.bytes_mut().fill(0x5a);
    read.bytes_mut().fill(0);
    file.write_all_at(written.bytes(), 0)?;
    file.read_exact_at(read.bytes_mut(), 0)?;
    if written.bytes() != read.bytes() {
        return Err(io::Error::other(
            "a block came back different from how it was written",
        ));
    }
    system::direct_alignment(file.as_fd())
}

fn block_device(folder: &Path) -> Check {
    const NAME: &str = "block device";
    let Some(device) = device_folder(folder) else {
        return fine(NAME, "none that the kernel names");
    };
    let name = device
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let attribute = |attribute: &str| {
        read_word(device.join("queue").join(attribute)).unwrap_or_else(|| "unknown".into())
    };
    let scheduler = selected(&attribute("scheduler")).to_owned();
    let fua = if attribute("fua") == "1" {
        "forced writes"
    } else {
        "no forced writes"
    };
    let kind = if attribute("rotational") == "1" {
        "rotational"
    } else {
        "solid-state"
    };
    let value = format!(
        "{name}: write cache {}, {fua}, scheduler {scheduler}, {kind}",
        attribute("write_cache")
    );
    if scheduler == "none" || scheduler == "unknown" {
        return fine(NAME, value);
    }
    wrong(
        NAME,
        value,
        "the scheduler queues what the log has ordered already, at some cost",
        format!("echo none > /sys/block/{name}/queue/scheduler"),
    )
}

/// What tells the device of a folder from another one, in one line: its numbers, and of its disk
/// the name, size, model, serial number and what of its queue decides about durable writes.
pub(crate) fn device_identity(folder: &Path) -> String {
    let number = fs::metadata(folder).map_or(0, |found| found.dev());
    let mut identity = format!("{}:{}", libc::major(number), libc::minor(number));
    if let Ok(magic) = system::file_system_magic(folder) {
        identity += &format!(", file system {magic:#x}");
    }
    let Some(device) = device_folder(folder) else {
        return identity;
    };
    for attribute in [
        "size",
        "device/model",
        "device/serial",
        "serial",
        "queue/write_cache",
        "queue/fua",
        "queue/scheduler",
    ] {
        let text = fs::read_to_string(device.join(attribute)).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        identity += &format!(", {text}");
    }
    identity
}

/// Where sysfs describes the whole disk that a folder is on; none for file systems without one.
fn device_folder(folder: &Path) -> Option<PathBuf> {
    let number = fs::metadata(folder).ok()?.dev();
    let link = format!(
        "/sys/dev/block/{}:{}",
        libc::major(number),
        libc::minor(number)
    );
    let device = fs::canonicalize(link).ok()?;
    if device.join("queue").is_dir() {
        return Some(device);
    }
    // A partition has no queue of its own; its disk is the folder above.
    let disk = device.parent()?;
    disk.join("queue").is_dir().then(|| disk.to_path_buf())
}

/// The bracketed one of `none [mq-deadline] kyber`.
fn selected(list: &str) -> &str {
    let inside = list
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(list, |(selected, _)| selected)
}

fn free_space(demand: &Demand<'_>) -> Check {
    const NAME: &str = "free space";
    let mend = "free some, or name a directory on a larger file system with --data";
    let free = match system::free_bytes(demand.segments.folder()) {
        Ok(free) => free,
        Err(error) => return wrong(NAME, "unknown", error.to_string(), mend),
    };
    let value = format!("{} MiB", free >> 20);
    // What segments have already counts as well. Each shard has one open and two ready ahead.
    let has = free.saturating_add(demand.segments.bytes().unwrap_or(0));
    let wanted = demand
        .segment_bytes
        .saturating_mul(3)
        .saturating_mul(u64::from(demand.shards));
    if has >= wanted {
        return fine(NAME, value);
    }
    let cause = format!(
        "{} shards with 3 segments each may need {} MiB",
        demand.shards,
        wanted >> 20
    );
    wrong(NAME, value, cause, mend)
}

fn read_word(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_read_as_far_as_its_two_first_numbers() {
        assert_eq!(version("6.18.44-generic"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("unknown"), None);
        assert!(version("6.9.1") < version("6.10.0"));
    }

    #[test]
    fn the_scheduler_in_force_is_the_bracketed_one() {
        assert_eq!(selected("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(selected("[none]"), "none");
        assert_eq!(selected("unknown"), "unknown");
    }

    #[test]
    fn a_quota_is_a_number_of_cores_and_max_is_none() {
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!(quota("max 100000\n"), None);
        assert_eq!(quota(""), None);
    }
}
