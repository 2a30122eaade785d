//! Bringing one shard up on its own thread: disk, then the shard from its files.

use std::fs::File;
use std::io;
use std::time::Instant;

use penstock_shard::opening::{self, SegmentFiles};
use penstock_shard::{Event, Now, Outbox, Shard};
use penstock_storage::io::FileId;
use penstock_storage::log::LogConfig;

use crate::block::{Arena, ArenaLayout};
use crate::directory::{SegmentReader, Segments};
use crate::disk::{Disk, DiskOptions};

use super::{CoreStart, ServeError};

impl SegmentFiles for Segments {
    type Reader = SegmentReader;

    fn reader(&self) -> SegmentReader {
        Segments::reader(self)
    }

    fn truncate(&mut self, file: FileId, bytes: u64) -> io::Result<()> {
        Segments::truncate(self, file, bytes)
    }

    fn remove(&mut self, file: FileId) -> io::Result<()> {
        Segments::remove(self, file)
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        File::from(self.open_file(file)?).sync_all()
    }
}

/// A shard that is ready to serve, and what it found.
pub(crate) struct Opened {
    pub(crate) shard: Shard<Arena>,
    pub(crate) disk: Disk,
    pub(crate) text: String,
}

/// Opens the disk, replays the shard's log.
pub(crate) fn open(start: &CoreStart) -> Result<Opened, ServeError> {
    let system = |action| move |error| ServeError::System { action, error };
    let arena =
        Arena::new(ArenaLayout::default()).map_err(system("map the memory of a shard's disk"))?;
    let options = DiskOptions {
        mode: start.disk_mode,
        ..DiskOptions::default()
    };
    let mut disk =
        Disk::open(options, &arena).map_err(|refused| ServeError::Option(refused.to_string()))?;

    let began = Instant::now();
    let log = LogConfig {
        owner: start.owner,
        incarnation: start.shard_config.hello.incarnation,
        log_id: u64::from(start.shard) + 1,
        frame_bytes: 256 << 10,
        record_bytes_max: usize::try_from(start.config.record_bytes_max()).unwrap_or(usize::MAX),
        frames_in_flight_max: usize::try_from(start.config.frames_in_flight)
            .expect("a small number"),
        frames_sealed_max: 8,
        sync: start.sync,
        interval_us: u64::from(start.config.interval_ms) * 1000,
        idle_mark_us: 5_000,
    };
    let cache_bytes = start.config.cache_bytes / u64::from(start.shard_config.topology.shards());
    let opening::Opened {
        mut shard,
        recovered,
        files,
    } = opening::open_shard(
        &mut start.segments.clone(),
        &start.survey,
        start.shard_config.clone(),
        log,
        start.config.segment_bytes,
        usize::try_from(cache_bytes).unwrap_or(usize::MAX),
        arena,
    )?;
    let recovery_ms = began.elapsed().as_millis();

    for &file in files.iter().chain(&start.spares_left) {
        let fd = start
            .segments
            .open_file(file)
            .map_err(system("open a segment"))?;
        disk.attach(file, fd);
    }
    for &file in &start.spares_left {
        let salt = crate::system::random_u64().map_err(system("get random bytes"))?;
        let bytes = start.config.segment_bytes;
        shard.step(
            Now::default(),
            Event::Spare { file, salt, bytes },
            &mut Outbox::default(),
        );
    }
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
