//! A log over the disk of the tests, with what was appended beside it.

use penstock_storage::contents::History;
use penstock_storage::io::Io;
use penstock_storage::layout::Layout;
use penstock_storage::log::{Log, LogConfig, Room, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Lsn, Place};
use penstock_storage::record::{PartKind, PartSpec, RecordSpec, ValueKind};
use penstock_storage::recovery::{
    Proof, Recovered, RecoveryError, Rows, prove_spare, recover, survey_heads,
};
use penstock_storage::segment::Owner;

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::random::Random;

pub const OWNER: Owner = Owner {
    cluster_id: [7; 16],
    node_id: [9; 16],
};
pub const SEGMENT_BYTES: usize = 128 << 10;
pub const FRAME_BYTES: usize = 8 << 10;
pub const RECORD_BYTES_MAX: usize = 16 << 10;
pub const LOG_ID: u64 = 3;

/// Key and value of the parts of one record; no value is a tombstone.
pub type Parts = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub struct Journal {
    pub disk: Disk,
    pub log: Log<Heap>,
    pub requests: Vec<Io<HeapBlock>>,
    pub now_us: u64,
    /// What was appended, in order: LSN 1 first.
    pub appended: Vec<Parts>,
    /// Makes salts.
    random: Random,
}

pub fn config(sync: SyncMethod) -> LogConfig {
    LogConfig {
        owner: OWNER,
        incarnation: 1,
        log_id: LOG_ID,
        frame_bytes: FRAME_BYTES,
        record_bytes_max: RECORD_BYTES_MAX,
        frames_in_flight_max: 2,
        frames_sealed_max: 4,
        sync,
        interval_us: 1_000,
        idle_mark_us: 5_000,
    }
}

impl Journal {
    pub fn new(sync: SyncMethod, seed: u64) -> Self {
        Self::with(config(sync), Disk::default(), seed)
    }

    pub fn with(config: LogConfig, disk: Disk, seed: u64) -> Self {
        let log = Log::new(config, LogStart::default(), Heap);
        Journal {
            disk,
            log,
            requests: Vec::new(),
            now_us: 0,
            appended: Vec::new(),
            random: Random::new(seed ^ 0x5A17),
        }
    }

    /// Gives the log the spares that it wants.
    pub fn add_spares(&mut self) {
        while self.log.spares_wanted() > 0 {
            let file = self.disk.create(SEGMENT_BYTES);
            self.log
                .add_spare(file, self.random.next(), SEGMENT_BYTES as u64);
        }
    }

    /// Appends a record if there is room.
    pub fn append(&mut self, parts: &Parts) -> Option<(Lsn, Vec<Place>)> {
        let specs: Vec<PartSpec<'_>> = parts
            .iter()
            .map(|(key, value)| PartSpec {
                kind: if value.is_some() {
                    PartKind::Put
                } else {
                    PartKind::Tombstone
                },
                key,
                value: value.as_deref().unwrap_or(&[]),
                expiry_ms: None,
                value_kind: ValueKind::Plain,
                layout: 0,
                is_crowded: false,
            })
            .collect();
        let sequence = self.appended.len() as u64 + 1;
        let record = RecordSpec {
            slot: 64,
            epoch: 257,
            sequence,
            time_ms: 1_000 + sequence,
            parts: &specs,
            extension: &[],
        };
        if self
            .log
            .room(penstock_storage::log::Purpose::Grow, record.bytes())
            != Room::Yes
        {
            return None;
        }
        let mut places = vec![Place::default(); specs.len()];
        let lsn = self.log.append(self.now_us, &record, &mut places);
        self.appended.push(parts.clone());
        assert_eq!(lsn, Lsn(self.appended.len() as u64));
        Some((lsn, places))
    }

    /// Appends a one-part record that must find room and is wanted durable.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Lsn {
        let (lsn, _) = self
            .append(&vec![(key.to_vec(), Some(value.to_vec()))])
            .expect("room");
        self.log.want_durable(lsn);
        lsn
    }

    pub fn pump(&mut self) {
        self.log.pump(self.now_us, &mut self.requests);
        self.disk.submit(&mut self.requests);
    }

    /// Ends the request at `index` well.
    pub fn complete(&mut self, index: usize) {
        let completion = self.disk.complete(index);
        self.log
            .completed(self.now_us, completion)
            .expect("the disk does not fail");
    }

    /// Turns until nothing is under way and nothing that is wanted waits.
    pub fn flush(&mut self) {
        self.pump();
        while !self.disk.under_way().is_empty() {
            self.complete(0);
            self.pump();
        }
    }

    /// Lets time pass until the log has written its mark.
    pub fn idle(&mut self) {
        self.now_us += 10_000;
        self.flush();
    }

    pub fn close(&mut self) {
        self.log.close();
        self.flush();
        assert!(self.log.is_closed());
    }

    /// Starts again from what the disk holds, as the next incarnation.
    pub fn restart(&mut self, sync: SyncMethod) -> Result<Restart, RecoveryError> {
        let restart = read_back(&mut self.disk)?;
        let incarnation = restart.incarnation + 1;
        let start = restart
            .recovered
            .as_ref()
            .map_or(LogStart::default(), |recovered| recovered.start);
        let history = restart
            .recovered
            .as_ref()
            .map_or(History::default(), |recovered| recovered.history.clone());
        self.log = Log::with_history(
            LogConfig {
                incarnation,
                ..config(sync)
            },
            start,
            history,
            Heap,
        );
        for (file, bytes) in &restart.spares {
            self.log.add_spare(*file, self.random.next(), *bytes);
        }
        self.appended.truncate(restart.records.len());
        Ok(restart)
    }
}

/// What a start finds, and has done about it.
pub struct Restart {
    pub records: Vec<Parts>,
    pub recovered: Option<Recovered>,
    pub spares: Vec<(FileId, u64)>,
    pub incarnation: u64,
    /// The rows of the recovery table that were met.
    pub rows: Rows,
}

/// Recovers the one log of `disk` and tidies the files as the server does at its start.
pub fn read_back(disk: &mut Disk) -> Result<Restart, RecoveryError> {
    let survey = survey_heads(disk, OWNER, &Layout::new(u16::MAX))?;
    for &(file, bytes) in survey.spares.iter().chain(&survey.reused) {
        assert_eq!(prove_spare(disk, file, bytes)?, Proof::Spare);
    }
    let reused = survey.reused.iter().map(|(file, _)| file);
    let rotten = survey.rotten.iter().map(|spare| &spare.file);
    for file in reused
        .chain(rotten)
        .chain(&survey.torn_activations)
        .chain(survey.released.values().flatten())
    {
        disk.files.remove(file);
    }
    assert!(survey.logs.keys().all(|&log_id| log_id == LOG_ID));
    let mut records: Vec<Parts> = Vec::new();
    let mut recovered = None;
    let mut incarnation = 0;
    let mut rows = survey.rows;
    if let Some(segments) = survey.logs.get(&LOG_ID) {
        incarnation = segments
            .last()
            .expect("a log has segments")
            .header
            .incarnation;
        let found = recover(disk, segments, &mut |part, _| {
            if part.ordinal() == 0 {
                records.push(Vec::new());
            }
            let value = (part.kind() == PartKind::Put).then(|| part.value().to_vec());
            records
                .last_mut()
                .expect("ordinal 0 comes first")
                .push((part.key().to_vec(), value));
            Ok(())
        })?;
        if let Some(file) = found.release {
            disk.files.remove(&file);
        }
        for &(file, bytes) in &found.truncate {
            disk.files
                .get_mut(&file)
                .expect("it was read")
                .truncate(usize::try_from(bytes).expect("small files"));
        }
        assert_eq!(found.records, records.len() as u64);
        rows.extend(found.rows);
        recovered = Some(found);
    }
    Ok(Restart {
        records,
        recovered,
        spares: survey.spares,
        incarnation,
        rows,
    })
}
