//! Data directories as the log leaves them, with all that was written beside them.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use penstock_storage::frame::{FrameHeader, FrameHome};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{Log, LogConfig, Room, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{PartKind, PartSpec, RecordSpec, ValueKind};
use penstock_storage::recovery::{recover, survey};
use penstock_storage::segment::{FirstBlock, Owner, SegmentHeader};

use crate::disk::Disk;
use crate::heap::Heap;

pub const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0xD2; 16],
};
pub const SEGMENT_BYTES: usize = 40 << 10;
const RECORD_BYTES_MAX: usize = BLOCK_BYTES - 64;

/// Key and value of the parts of one record; no value is a tombstone.
pub type Parts = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A frame as it was written.
pub struct Frame {
    pub file: FileId,
    pub home: FrameHome,
    pub header: FrameHeader,
}

#[derive(Default)]
pub struct Directory {
    pub files: BTreeMap<FileId, Vec<u8>>,
    /// The records of each log in order, LSN 1 first.
    pub records: BTreeMap<u64, Vec<Parts>>,
    pub frames: Vec<Frame>,
}

pub fn config(log_id: u64, incarnation: u64, sync: SyncMethod) -> LogConfig {
    LogConfig {
        owner: OWNER,
        incarnation,
        log_id,
        frame_bytes: BLOCK_BYTES,
        record_bytes_max: RECORD_BYTES_MAX,
        frames_in_flight_max: 2,
        frames_sealed_max: 4,
        sync,
        interval_us: 1_000,
        idle_mark_us: 5_000,
    }
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// With a summary.
    Stop,
    /// With a mark.
    Idle,
    /// Right behind a commit.
    Cut,
}

/// All directories, made once: empty, one short log, one of several segments, one that was
/// started twice, two logs and spares.
pub fn all() -> &'static [Directory] {
    static ALL: OnceLock<Vec<Directory>> = OnceLock::new();
    ALL.get_or_init(|| {
        [
            &[][..],
            &[(3, 1, End::Idle)],
            &[(3, 2, End::Cut)],
            &[(3, 30, End::Stop)],
            &[(3, 40, End::Cut)],
            &[(3, 12, End::Idle), (3, 9, End::Cut), (3, 3, End::Idle)],
            &[(3, 12, End::Cut), (4, 20, End::Idle), (3, 9, End::Stop)],
        ]
        .into_iter()
        .map(made)
        .collect()
    })
}

/// Runs one after the other: log, records, end.
fn made(runs: &[(u64, usize, End)]) -> Directory {
    let mut device = Disk::default();
    let mut directory = Directory::default();
    for (incarnation, &(log_id, records, end)) in (1..).zip(runs) {
        let start = match directory.records.get(&log_id) {
            Some(_) => restart(&mut device, log_id),
            None => LogStart::default(),
        };
        let config = config(log_id, incarnation, SyncMethod::DurableWrite);
        let mut log = Log::new(config, start, Heap);
        let history = directory.records.entry(log_id).or_default();
        for number in 0..records {
            let parts = parts(history.len());
            append(&mut device, &mut log, history.len(), &parts);
            history.push(parts);
            // Every third frame has two records.
            if number % 3 != 0 || number + 1 == records {
                flush(&mut device, &mut log, 0);
            }
        }
        if end == End::Stop {
            log.close();
        }
        if end != End::Cut {
            flush(&mut device, &mut log, 5_000);
        }
    }
    device.create(SEGMENT_BYTES);
    directory.frames = frames(&device.files);
    directory.files = device.files;
    directory
}

/// The parts of record `number`: mostly one, at times more than four bits number, with values of
/// all lengths.
fn parts(number: usize) -> Parts {
    let key = |which: usize| {
        let name = match which {
            0..11 => (number * 7 + which) % 11,
            other => other,
        };
        format!("{{key}}{name}").into_bytes()
    };
    let value = |which: usize| {
        let len = (number * 37 + which * 5) % 300;
        ((number + which) % 5 != 4).then(|| vec![number.to_le_bytes()[0]; len])
    };
    (0..[1, 1, 3, 1, 2, 8, 1, 14][number % 8])
        .map(|which| (key(which), value(which)))
        .collect()
}

fn append(device: &mut Disk, log: &mut Log<Heap>, before: usize, parts: &Parts) {
    let specs: Vec<PartSpec<'_>> = parts
        .iter()
        .map(|(key, value)| PartSpec {
            kind: match value {
                Some(_) => PartKind::Put,
                None => PartKind::Tombstone,
            },
            key,
            value: value.as_deref().unwrap_or_default(),
            expiry_ms: None,
            value_kind: ValueKind::Plain,
            layout: 0,
            is_crowded: false,
        })
        .collect();
    let sequence = before as u64 + 1;
    let record = RecordSpec {
        slot: 64,
        epoch: 257,
        sequence,
        time_ms: 1_700_000_000_000 + sequence,
        parts: &specs,
        extension: &[],
    };
    while log.room(penstock_storage::log::Purpose::Grow, record.bytes()) != Room::Yes {
        flush(device, log, 0);
    }
    let lsn = log.append(0, &record, &mut vec![Place::default(); specs.len()]);
    log.want_durable(lsn);
}

pub fn flush(device: &mut Disk, log: &mut Log<Heap>, now_us: u64) {
    let mut requests = Vec::new();
    loop {
        while log.spares_wanted() > 0 {
            let file = device.create(SEGMENT_BYTES);
            log.add_spare(file, 0x5A17 * u64::from(file.0), SEGMENT_BYTES as u64);
        }
        log.pump(now_us, &mut requests);
        device.submit(&mut requests);
        if device.under_way().is_empty() {
            return;
        }
        let completion = device.complete(0);
        log.completed(now_us, completion).expect("the disk is good");
    }
}

pub fn header(bytes: &[u8]) -> Option<SegmentHeader> {
    match SegmentHeader::read(bytes.first_chunk()?) {
        FirstBlock::Segment(header) => Some(header),
        _ => None,
    }
}

/// The frames that stand in good files.
fn frames(files: &BTreeMap<FileId, Vec<u8>>) -> Vec<Frame> {
    let mut frames = Vec::new();
    for (&file, bytes) in files {
        let Some(segment) = header(bytes) else {
            continue;
        };
        let home = segment.home();
        let mut at = BLOCK_BYTES;
        while at < bytes.len()
            && let Ok(header) = FrameHeader::read(home, at as u64, &bytes[at..])
        {
            at += header.padded_bytes();
            frames.push(Frame { file, home, header });
        }
    }
    frames
}

/// Where the next run of a log goes on, after what a start does to the files.
fn restart(device: &mut Disk, log_id: u64) -> LogStart {
    let survey = survey(device, OWNER).expect("the files are good");
    let found = recover(device, &survey.logs[&log_id], &mut |_, _| Ok(()));
    let found = found.expect("the files are good");
    if let Some(file) = found.release {
        device.files.remove(&file);
    }
    for &(file, bytes) in &found.truncate {
        let bytes = usize::try_from(bytes).expect("small files");
        device
            .files
            .get_mut(&file)
            .expect("it was read")
            .truncate(bytes);
    }
    found.start
}
