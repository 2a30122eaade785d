//! Bringing one shard up on its own thread: disk, calibration, recovery, store.

use std::fs::File;
use std::io;
use std::time::Instant;

use penstock_shard::Shard;
use penstock_storage::io::SegmentSource;
use penstock_storage::log::{Log, LogConfig, Place};
use penstock_storage::record::PartView;
use penstock_storage::recovery::{RecoveryError, recover};
use penstock_storage::store::{Memory, Store};

use crate::block::{Arena, ArenaLayout};
use crate::disk::{Disk, DiskOptions};

use super::{CoreStart, ServeError};

/// A shard that is ready to serve, and what it found.
pub(crate) struct Opened {
    pub(crate) shard: Shard<Arena>,
    pub(crate) disk: Disk,
    pub(crate) text: String,
}

/// Opens the disk, times it, replays the shard's log.
pub(crate) fn open(start: &CoreStart) -> Result<Opened, ServeError> {
    let system = |action| move |error| ServeError::System { action, error };
    let layout = ArenaLayout::default();
    let arena = Arena::new(layout).map_err(system("map the memory of a shard's disk"))?;
    let options = DiskOptions {
        mode: start.disk_mode,
        ..DiskOptions::default()
    };
    let mut disk =
        Disk::open(options, &arena).map_err(|refused| ServeError::Option(refused.to_string()))?;

    let began = Instant::now();
    let mut memory = Memory::new(
        usize::try_from(start.config.cache_bytes / u64::from(start.shard_config.topology.shards()))
            .unwrap_or(usize::MAX),
    );
    let log_id = u64::from(start.shard) + 1;
    let segments = start
        .survey
        .logs
        .get(&log_id)
        .map_or(&[][..], Vec::as_slice);
    let hash = Shard::<Arena>::key_hash(start.shard_config.hash_seed);
    let mut source = start.segments.reader();
    let mut random_access = start.segments.reader();
    let mut key_at = |place: Place, see: &mut dyn FnMut(&PartView<'_>)| -> io::Result<()> {
        let mut bytes = vec![0; place.bytes as usize];
        let read = random_access.read_at(place.file, place.offset, &mut bytes)?;
        let part = PartView::read(&bytes[..read]).map_err(|error| {
            io::Error::other(format!(
                "{:08}.seg at offset {}: {error:?}",
                place.file.0, place.offset
            ))
        })?;
        see(&part);
        Ok(())
    };
    let recovered = recover(&mut source, segments, &mut |part, place| {
        memory.replay(hash(part.key()), part, place, &mut key_at)
    })
    .map_err(ServeError::Recovery)?;
    let recovery_ms = began.elapsed().as_millis();

    // Nothing above changed a file. From here on the verdict is acted on.
    for &(file, bytes) in &recovered.truncate {
        start
            .segments
            .truncate(file, bytes)
            .map_err(system("cut the unused end of a sealed segment"))?;
    }
    if let Some(file) = recovered.release {
        start
            .segments
            .remove(file)
            .map_err(system("remove a segment that holds nothing"))?;
    }
    for segment in segments
        .iter()
        .filter(|segment| Some(segment.file) != recovered.release)
    {
        let fd = start
            .segments
            .open_file(segment.file)
            .map_err(system("open a segment"))?;
        if Some(segment.file) == recovered.last_file {
            // What was read may so far be in the system's memory alone.
            let file = File::from(fd.try_clone().map_err(system("open a segment"))?);
            file.sync_all().map_err(system("sync the last segment"))?;
        }
        disk.attach(segment.file, fd);
    }
    let incarnation = start.shard_config.hello.incarnation;
    let config = LogConfig {
        owner: start.owner,
        incarnation,
        log_id,
        frame_bytes: 256 << 10,
        record_bytes_max: usize::try_from(start.config.record_bytes_max()).unwrap_or(usize::MAX),
        frames_in_flight_max: usize::try_from(start.config.frames_in_flight)
            .expect("a small number"),
        frames_sealed_max: 8,
        sync: start.calibration.method,
        interval_us: u64::from(start.config.interval_ms) * 1000,
        idle_mark_us: 5_000,
    };
    if config.segment_bytes_min() > start.config.segment_bytes {
        return Err(ServeError::Option(format!(
            "--segment-bytes {} is too small for the largest record of {} bytes: it needs {}",
            start.config.segment_bytes,
            config.record_bytes_max,
            config.segment_bytes_min()
        )));
    }
    let mut log = Log::new(config, recovered.start, arena.clone());
    for &file in &start.spares_left {
        let fd = start
            .segments
            .open_file(file)
            .map_err(system("open a spare segment"))?;
        disk.attach(file, fd);
        let salt = crate::system::random_u64().map_err(system("get random bytes"))?;
        log.add_spare(file, salt, start.config.segment_bytes);
    }
    // A start is a new term: no version is ever given out twice, whatever the last run had in flight.
    let term = u32::try_from(incarnation)
        .ok()
        .filter(|term| *term < 1 << 24)
        .ok_or_else(|| {
            ServeError::Option(format!(
                "this directory was started {incarnation} times; terms end at {}",
                1 << 24
            ))
        })?;
    let epoch = term << 8;
    if recovered.epoch_max >= epoch {
        return Err(ServeError::Recovery(RecoveryError::Read {
            file: None,
            error: io::Error::other(format!(
                "records of epoch {:#x} are newer than this start ({epoch:#x}): the IDENTITY file is of an older copy of the directory",
                recovered.epoch_max
            )),
        }));
    }
    let store = Store::new(log, arena, epoch, *recovered.sequences, memory);
    let shard = Shard::new(start.shard_config.clone(), store);
    let torn = recovered.torn.map_or(String::new(), |torn| {
        format!("; {:08}.seg was torn at offset {} by a crash, nothing acknowledged as durable was there", torn.file.0, torn.offset)
    });
    let text = format!(
        "core {}, {} keys from {} records in {recovery_ms} ms{torn}",
        start.core.map_or("any".into(), |core| core.id.to_string()),
        shard.usage().keys,
        recovered.records
    );
    Ok(Opened { shard, disk, text })
}
