//! Finds the faster way of making a write durable on this disk by trying both.
//!
//! A device with power-loss protection takes a write with RWF_DSYNC as fast as any other, while a
//! sync costs it a round trip; a device without it may take four times as long for a forced write
//! as for a write and a flush. No table tells them apart, thirty-two writes do. They take their
//! time, so what was measured is kept in the file `CALIBRATION` of the data directory, with what it
//! was measured on, and a start on the same takes it from there.
//!
//! While others want the CPU the helpers that end a durable write wait for it, and the slower
//! method looks like the faster one. So such a measurement decides nothing: the single write is
//! taken, which threads make where the ring is slow ([`crate::disk`]). The file has a line more
//! then, `load = cpu`, which readers of before that line do not take: the disk is measured again,
//! by the next start or by [`crate::startup::retiming`], whichever comes first.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use penstock_storage::io::{Asker, BLOCK_BYTES, Block, Blocks, Completion, Io, IoFailure, IoToken};
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;

use crate::directory::Segments;
use crate::directory::spares::write_zeros;
use crate::disk::Disk;
use crate::disk::arena::{Arena, ArenaBlock};
use crate::system::cpu_wait::CpuWait;

/// How many writes are timed by each method, and how many reads.
pub const ROUNDS: u32 = 32;

/// The number of the scratch file, above those of all segments.
const SCRATCH: FileId = FileId(u32::MAX);

/// How long one operation may take before the device counts as hanging.
const OPERATION_MAX: Duration = Duration::from_secs(30);

/// What was measured, medians in microseconds for 4 KiB at a time, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// One write that completes when durable.
    pub durable_write_us: u32,
    /// A plain write and then a sync of the file.
    pub write_then_sync_us: u32,
    /// A read from another place each time.
    pub read_us: u32,
    /// The faster of the two; the single write unless the sync is faster by more than a tenth on a
    /// machine without other load.
    pub method: SyncMethod,
    /// Others wanted the CPU meanwhile.
    pub is_loaded: bool,
}

impl Calibration {
    /// What follows from the times, in the order of the file.
    fn of(times: [u32; NAMES.len()], is_loaded: bool) -> Calibration {
        let [durable_write_us, write_then_sync_us, read_us] = times;
        Calibration {
            durable_write_us,
            write_then_sync_us,
            read_us,
            method: choose(durable_write_us, write_then_sync_us, is_loaded),
            is_loaded,
        }
    }

    /// The method, for people.
    #[must_use]
    pub fn method_name(&self) -> &'static str {
        match self.method {
            SyncMethod::DurableWrite => "durable writes",
            SyncMethod::WriteThenSync => "write, then fdatasync",
        }
    }
}

/// Times both methods on a scratch file beside the segments, through a disk of the kind that will
/// be used.
///
/// # Errors
/// The scratch file cannot be made (a full disk), or the device fails or hangs.
pub fn calibrate(disk: &mut Disk, arena: &Arena, segments: &Segments) -> io::Result<Calibration> {
    let path = segments.folder().join("calibration.tmp");
    let bytes = u64::from(2 * ROUNDS) * BLOCK_BYTES as u64;
    let file = write_zeros(&path, bytes, segments.is_direct()).inspect_err(|_| {
        // A try that met a full disk must not keep its last blocks.
        let _ = fs::remove_file(&path);
    })?;
    fs::remove_file(&path)?;
    disk.attach(SCRATCH, OwnedFd::from(file));
    let wait = CpuWait::begin();
    let measured = measure(disk, &mut arena.clone());
    let is_loaded = wait.is_long();
    disk.detach(SCRATCH);
    measured.map(|times| Calibration::of(times, is_loaded))
}

/// What [`keep`] kept in the data directory `data`, if it was measured on this `device`.
#[must_use]
pub fn kept(data: &Path, device: &str) -> Option<Calibration> {
    read(&fs::read_to_string(data.join(FILE)).ok()?, device)
}

/// Keeps what was measured on `device`, a line of text. It is not made durable: if it is lost, the
/// next start measures again.
///
/// # Errors
/// The file cannot be written.
pub fn keep(data: &Path, device: &str, found: &Calibration) -> io::Result<()> {
    let tmp = data.join(FILE).with_extension("tmp");
    fs::write(&tmp, text(device, found))?;
    fs::rename(tmp, data.join(FILE))
}

const FILE: &str = "CALIBRATION";
const LOADED: &str = "load = cpu\n";
const NAMES: [&str; 3] = ["durable_write_us", "write_then_sync_us", "read_us"];

fn text(device: &str, found: &Calibration) -> String {
    let times = [
        found.durable_write_us,
        found.write_then_sync_us,
        found.read_us,
    ];
    let mut text = format!("device = {device}\n");
    for (name, time) in NAMES.iter().zip(times) {
        let _ = writeln!(text, "{name} = {time}");
    }
    if found.is_loaded {
        text += LOADED;
    }
    text
}

/// Reads [`text`], in no other spelling.
fn read(kept: &str, device: &str) -> Option<Calibration> {
    let mut lines = kept.lines();
    lines.next().filter(|line| line.starts_with("device = "))?;
    let mut times = [0; NAMES.len()];
    for (name, time) in NAMES.iter().zip(&mut times) {
        let number = lines.next()?.strip_prefix(name)?.strip_prefix(" = ")?;
        *time = number.parse().ok()?;
    }
    let found = Calibration::of(times, kept.ends_with(LOADED));
    (text(device, &found) == kept).then_some(found)
}

/// The times, in the order of the file.
fn measure(disk: &mut Disk, arena: &mut Arena) -> io::Result<[u32; NAMES.len()]> {
    let mut block = arena
        .take(BLOCK_BYTES)
        .ok_or_else(|| io::Error::other("the arena has no block left to calibrate with"))?;
    block.bytes_mut().fill(0);
    let mut trial = Trial {
        disk,
        block: Some(block),
        ended: Vec::with_capacity(1),
    };
    let [mut durable, mut synced, mut reads] = [const { Vec::new() }; 3];
    // In turns, so that whatever else the device does at the moment meets both methods alike.
    for round in 0..ROUNDS {
        durable.push(trial.timed(|trial| trial.write(2 * round, true))?);
        synced.push(trial.timed(|trial| {
            trial.write(2 * round + 1, false)?;
            trial.sync()
        })?);
    }
    for round in 0..ROUNDS {
        // An odd factor visits every block of the 64 once, far from the one before.
        reads.push(trial.timed(|trial| trial.read(round * 37 % (2 * ROUNDS)))?);
    }
    Ok([median(durable), median(synced), median(reads)])
}

/// The sync must win by a tenth: it is a second operation, which a ring hands to a helper thread
/// of the kernel, and a draw under noise should not cost that.
fn choose(durable_write_us: u32, write_then_sync_us: u32, is_loaded: bool) -> SyncMethod {
    if !is_loaded && u64::from(write_then_sync_us) * 10 < u64::from(durable_write_us) * 9 {
        SyncMethod::WriteThenSync
    } else {
        SyncMethod::DurableWrite
    }
}

/// One operation at a time on the scratch file.
struct Trial<'a> {
    disk: &'a mut Disk,
    /// Here between operations.
    block: Option<ArenaBlock>,
    ended: Vec<Completion<ArenaBlock>>,
}

impl Trial<'_> {
    fn timed(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<u32> {
        let begin = Instant::now();
        work(self)?;
        Ok(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX))
    }

    fn write(&mut self, at_block: u32, durable: bool) -> io::Result<()> {
        let block = self.block.take().expect("one operation at a time");
        self.run(Io::Write {
            token: IoToken::new(Asker::LogWrite, 0),
            file: SCRATCH,
            offset: offset(at_block),
            block,
            len: block_len(),
            durable,
        })
    }

    fn read(&mut self, at_block: u32) -> io::Result<()> {
        let block = self.block.take().expect("one operation at a time");
        self.run(Io::Read {
            token: IoToken::new(Asker::LogWrite, 0),
            file: SCRATCH,
            offset: offset(at_block),
            block,
            len: block_len(),
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.run(Io::Sync {
            token: IoToken::new(Asker::LogWrite, 0),
            file: SCRATCH,
        })
    }

    fn run(&mut self, io: Io<ArenaBlock>) -> io::Result<()> {
        self.disk.submit(io);
        self.disk.drain(&mut self.ended, OPERATION_MAX)?;
        let ended = self
            .ended
            .pop()
            .expect("what was submitted ends once the disk is drained");
        if ended.block.is_some() {
            self.block = ended.block;
        }
        ended.result.map_err(|failure| match failure {
            IoFailure::Device(errno) => io::Error::from_raw_os_error(errno),
            IoFailure::Short { moved } => io::Error::other(format!("only {moved} bytes moved")),
        })
    }
}

fn offset(at_block: u32) -> u64 {
    u64::from(at_block) * BLOCK_BYTES as u64
}

fn block_len() -> u32 {
    u32::try_from(BLOCK_BYTES).expect("a block is 4 KiB")
}

fn median(mut times: Vec<u32>) -> u32 {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sync_is_chosen_only_where_it_is_clearly_faster() {
        assert_eq!(choose(81, 150, false), SyncMethod::DurableWrite);
        assert_eq!(choose(100, 100, false), SyncMethod::DurableWrite);
        assert_eq!(choose(100, 90, false), SyncMethod::DurableWrite);
        assert_eq!(choose(100, 89, false), SyncMethod::WriteThenSync);
        assert_eq!(choose(4018, 1700, false), SyncMethod::WriteThenSync);
    }

    #[test]
    fn times_that_were_taken_under_load_decide_nothing() {
        for (durable_write_us, write_then_sync_us) in [(228, 147), (2422, 270), (81, 150)] {
            let method = choose(durable_write_us, write_then_sync_us, true);
            assert_eq!(method, SyncMethod::DurableWrite);
        }
    }

    #[test]
    fn what_was_measured_is_taken_for_the_same_device_only() {
        let found = Calibration {
            durable_write_us: 4_018,
            write_then_sync_us: 1_700,
            read_us: 82,
            method: SyncMethod::WriteThenSync,
            is_loaded: false,
        };
        let kept = text("a disk", &found);
        assert_eq!(read(&kept, "a disk"), Some(found));
        assert_eq!(read(&kept, "another disk"), None);
        for len in 0..kept.len() {
            assert_eq!(read(&kept[..len], "a disk"), None, "cut to {len}");
        }
        for other in ["durable_write_us = ", "+", "read_us", "\n"] {
            let spoiled = kept.replacen(other, "x", 1);
            assert!(spoiled == kept || read(&spoiled, "a disk").is_none());
        }
    }

    #[test]
    fn what_was_measured_on_a_quiet_machine_is_kept_as_ever_and_other_times_with_a_line_more() {
        let mut found = Calibration {
            durable_write_us: 2_806,
            write_then_sync_us: 374,
            read_us: 82,
            method: SyncMethod::WriteThenSync,
            is_loaded: false,
        };
        let quiet =
            "device = a disk\ndurable_write_us = 2806\nwrite_then_sync_us = 374\nread_us = 82\n";
        assert_eq!(text("a disk", &found), quiet);
        found.is_loaded = true;
        found.method = SyncMethod::DurableWrite;
        let loaded = text("a disk", &found);
        assert_eq!(loaded, format!("{quiet}load = cpu\n"));
        assert_eq!(read(&loaded, "a disk"), Some(found));
        assert_eq!(read(&format!("{loaded}load = cpu\n"), "a disk"), None);
    }

    #[test]
    fn the_median_is_the_one_in_the_middle_whatever_the_order() {
        assert_eq!(median(vec![9000, 3, 1, 2, 4]), 3);
    }
}
