//! Times the disk once, before the shards share it.

use std::io;

use penstock_storage::log::SyncMethod;

use super::banner::{Say, report_problem};
use super::calibration::{self, calibrate};
use super::checks;
use super::error::{OpenError, system};
use super::retiming::{Retiming, RetimingThread};
use crate::directory::Directory;
use crate::disk::arena::{Arena, ArenaLayout};
use crate::disk::{Disk, DiskOptions};

/// Times the disk once, on a thread of its own, and again beside the shards if that was under load:
/// the kernel keeps the workers that a sync needed for as long as the thread lives, and the shards
/// are to show none.
pub(super) fn time_disk(
    directory: &Directory,
    options: DiskOptions,
    say: Say,
) -> Result<(SyncMethod, Option<RetimingThread>), OpenError> {
    let (sync, retiming) = std::thread::scope(|scope| {
        let timed = scope.spawn(|| calibrate_disk(directory, options, say));
        timed.join().expect("calibration does not panic")
    })?;
    let retiming = retiming.map(Retiming::start).transpose();
    let retiming = retiming.map_err(system("start the thread that times the disk"))?;
    Ok((sync, retiming))
}

/// Times the disk once, before the shards share it, unless an earlier start did, and says which way
/// of syncing it is best at.
fn calibrate_disk(
    directory: &Directory,
    options: DiskOptions,
    say: Say,
) -> Result<(SyncMethod, Option<Retiming>), OpenError> {
    let arena = Arena::new(ArenaLayout::default()).map_err(system("map the memory of a disk"))?;
    let mut disk =
        Disk::open(options, &arena).map_err(|refused| OpenError::Option(refused.to_string()))?;
    say(format_args!("{:<12} {}", "disk engine", disk.describe()));
    disk.problems()
        .iter()
        .for_each(|problem| report_problem(problem, say));
    let segments = directory.segments();
    let device = format!(
        "{}, direct {}, {}",
        checks::device_identity(segments.folder()),
        segments.is_direct(),
        disk.describe()
    );
    let kept = calibration::kept(directory.path(), &device);
    let kept = kept.filter(|kept| !kept.is_loaded);
    let calibration = match kept {
        Some(kept) => kept,
        None => match calibrate(&mut disk, &arena, segments) {
            // What is on a full disk can still be read.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                say(format_args!(
                    "sync method  durable writes: not timed, because the disk is full"
                ));
                return Ok((SyncMethod::DurableWrite, None));
            }
            timed => {
                let timed = timed.map_err(system("time the disk"))?;
                // If it cannot be kept, the next start times it again.
                let _ = calibration::keep(directory.path(), &device, &timed);
                timed
            }
        },
    };
    let method = calibration.method_name();
    say(format_args!(
        "sync method  {method}: 4 KiB durable in {} us by durable writes, {} us by write and \
         fdatasync; read in {} us{}",
        calibration.durable_write_us,
        calibration.write_then_sync_us,
        calibration.read_us,
        match (kept, calibration.is_loaded) {
            (Some(_), _) => ", as an earlier start timed it",
            (None, true) => ", while others wanted the CPU: it is timed again when they do not",
            (None, false) => "",
        }
    ));
    let retiming = Retiming {
        data: directory.path().to_path_buf(),
        segments: segments.clone(),
        device,
        options,
        method: calibration.method,
    };
    let retiming = calibration.is_loaded.then_some(retiming);
    Ok((calibration.method, retiming))
}
