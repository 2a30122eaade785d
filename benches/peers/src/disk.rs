//! The device below a folder: what the kernel counts for it, and what one sync takes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Outcome;

const BLOCK_BYTES: usize = 4096;
const SYNC_FILE_BYTES: usize = 16 << 20;
/// Of `open`, on Linux: a write is durable when it returns.
const O_DSYNC: i32 = 0o10000;
/// Of one write of the append.
const BULK_BYTES: usize = 1 << 20;

/// What all programs together have asked of a device so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub written_bytes: u64,
    pub flushes: u64,
}

impl Counters {
    /// Of the device below a path. `None` if the kernel tells nothing of it, as of a tmpfs.
    pub fn below(path: &Path) -> Option<Counters> {
        let device = std::fs::metadata(path).ok()?.dev();
        // As glibc's `major` and `minor`.
        let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
        let minor = (device & 0xff) | (device >> 12 & !0xff);
        let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"));
        Counters::read(&stat.ok()?)
    }

    fn read(stat: &str) -> Option<Counters> {
        let fields: Vec<u64> = stat
            .split_whitespace()
            .map_while(|it| it.parse().ok())
            .collect();
        Some(Counters {
            written_bytes: fields.get(6)? * 512,
            flushes: *fields.get(15)?,
        })
    }

    pub fn since(self, earlier: Counters) -> Counters {
        Counters {
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }
}

/// What one write of 4 KiB and its sync take at the middle, in microseconds: one after the other,
/// over a file that was written before.
pub fn sync_us(folder: &Path, duration: Duration) -> Outcome<f64> {
    let path = folder.join("sync");
    std::fs::write(&path, vec![0u8; SYNC_FILE_BYTES])?;
    File::open(&path)?.sync_all()?;
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(O_DSYNC)
        .open(&path)?;
    let block = [0x5a; BLOCK_BYTES];
    let mut taken = Histogram::<u64>::new(3)?;
    let began = Instant::now();
    let mut offset = 0;
    while began.elapsed() < duration {
        let from = Instant::now();
        file.write_all_at(&block, offset)?;
        taken.record(u64::try_from(from.elapsed().as_nanos())?)?;
        offset = (offset + BLOCK_BYTES as u64) % SYNC_FILE_BYTES as u64;
    }
    std::fs::remove_file(&path)?;
    Ok(taken.value_at_quantile(0.5) as f64 / 1000.0)
}

/// Bytes a second that one program appends in writes of 1 MiB, each durable before the next.
pub fn append_bytes(folder: &Path, duration: Duration) -> Outcome<(f64, Histogram<u64>)> {
    let path = folder.join("append");
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(O_DSYNC)
        .open(&path)?;
    let block = vec![0x5a; BULK_BYTES];
    let mut taken = Histogram::<u64>::new(3)?;
    let (began, mut written) = (Instant::now(), 0);
    while began.elapsed() < duration {
        let from = Instant::now();
        file.write_all_at(&block, written)?;
        taken.record(u64::try_from(from.elapsed().as_nanos())?)?;
        written += BULK_BYTES as u64;
    }
    let rate = written as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok((rate, taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_seventh_and_the_sixteenth_of_a_line() {
        let line = " 1 2 3 4 5 6 70 8 9 10 11 12 13 14 15 160 17\n";
        let counters = Counters::read(line).unwrap();
        assert_eq!((counters.written_bytes, counters.flushes), (70 * 512, 160));
        assert_eq!(Counters::read("1 2 3"), None);
        let later = Counters {
            written_bytes: 80 * 512,
            flushes: 161,
        };
        assert_eq!(
            later.since(counters),
            Counters {
                written_bytes: 5120,
                flushes: 1
            }
        );
    }

    #[test]
    fn syncs_and_appends_are_timed_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sync_us(folder.path(), Duration::from_millis(20)).unwrap() > 0.0);
        let (rate, taken) = append_bytes(folder.path(), Duration::from_millis(20)).unwrap();
        assert!(rate > 0.0 && !taken.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
