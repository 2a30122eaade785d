//! One run of a log over the device, with what was appended beside it.

use penstock_storage::io::Io;
use penstock_storage::log::{Log, LogConfig, Room, SyncMethod};
use penstock_storage::place::{LogStart, Lsn, Place};
use penstock_storage::record::{PartKind, PartSpec, RecordSpec, ValueKind};
use penstock_storage::segment::Owner;

use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::image::Image;
use crate::random::Random;
use crate::start::Start;

pub const OWNER: Owner = Owner {
    cluster_id: [7; 16],
    node_id: [9; 16],
};
pub const LOG_ID: u64 = 3;
/// The slot of all records, and its partition.
pub const SLOT: u16 = 64;
pub const PARTITION: usize = 1;

/// What is fixed in a world.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub segment_bytes: usize,
    pub frame_bytes: usize,
    pub frames_in_flight: usize,
    pub sync: SyncMethod,
}

impl Shape {
    /// Segments of four frames of one block, as small as they can be.
    pub fn tiny(frames_in_flight: usize, sync: SyncMethod) -> Self {
        Shape {
            segment_bytes: 36 << 10,
            frame_bytes: 4 << 10,
            frames_in_flight,
            sync,
        }
    }

    pub fn log_config(&self, incarnation: u64) -> LogConfig {
        LogConfig {
            owner: OWNER,
            incarnation,
            log_id: LOG_ID,
            frame_bytes: self.frame_bytes,
            record_bytes_max: self.frame_bytes - penstock_storage::frame::FRAME_HEADER_BYTES,
            frames_in_flight_max: self.frames_in_flight,
            frames_sealed_max: 4,
            sync: self.sync,
            interval_us: 1_000,
            idle_mark_us: 5_000,
        }
    }
}

/// A record that was appended: its epoch, and keys with values; no value is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub epoch: u32,
    pub parts: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Keys with values; no value is a tombstone.
pub type Parts = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// One part with a value of `bytes` that no compression and no zero explains.
pub fn filled(number: usize, bytes: usize) -> Parts {
    let mut random = Random::new(number as u64);
    let value = (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect();
    vec![(format!("key {number}").into_bytes(), Some(value))]
}

pub struct Life {
    pub device: Device,
    pub log: Log<Heap>,
    /// What was appended in this life and recovered from those before: LSN 1 first.
    pub appended: Vec<Record>,
    pub now_us: u64,
    shape: Shape,
    epoch: u32,
    requests: Vec<Io<HeapBlock>>,
    salts: Random,
}

impl Life {
    pub fn first(shape: Shape) -> Self {
        Life::on(shape, Image::default(), LogStart::default(), 1, Vec::new())
    }

    /// Goes on where `start` found the end; its verdict has been acted on.
    pub fn after(shape: Shape, image: Image, start: &Start, mut appended: Vec<Record>) -> Self {
        appended.truncate(start.records);
        let incarnation = start.incarnation + 1;
        let mut life = Life::on(shape, image, start.end, incarnation, appended);
        for &(file, bytes) in &start.spares {
            let salt = life.salts.next();
            life.log.add_spare(file, salt, bytes);
        }
        life
    }

    fn on(
        shape: Shape,
        image: Image,
        start: LogStart,
        incarnation: u64,
        appended: Vec<Record>,
    ) -> Self {
        Life {
            device: Device::holding(image),
            log: Log::new(shape.log_config(incarnation), start, Heap),
            appended,
            now_us: 0,
            shape,
            epoch: u32::try_from(incarnation << 8).expect("few lives"),
            requests: Vec::new(),
            salts: Random::new(0x5A17 + incarnation),
        }
    }

    /// Gives the log the spares that it wants, of the usual length.
    pub fn add_spares(&mut self) {
        while self.log.spares_wanted() > 0 {
            self.add_spare(self.shape.segment_bytes);
        }
    }

    pub fn add_spare(&mut self, bytes: usize) {
        let file = self.device.image.create(bytes);
        self.log.add_spare(file, self.salts.next(), bytes as u64);
    }

    /// Appends a record that somebody waits for, if there is room.
    pub fn append(&mut self, parts: &Parts) -> Option<Vec<Place>> {
        let specs: Vec<PartSpec<'_>> = parts
            .iter()
            .map(|(key, value)| PartSpec {
                kind: match value {
                    Some(_) => PartKind::Put,
                    None => PartKind::Tombstone,
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
            slot: SLOT,
            epoch: self.epoch,
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
        assert_eq!(lsn, Lsn(sequence));
        self.log.want_durable(lsn);
        self.appended.push(Record {
            epoch: self.epoch,
            parts: parts.clone(),
        });
        Some(places)
    }

    /// Appends a record, making room for it if need be, and waits until it is durable.
    pub fn put(&mut self, parts: &Parts) {
        self.add_spares();
        while self.append(parts).is_none() {
            self.flush();
        }
        self.flush();
        assert_eq!(self.acked(), self.appended.len());
    }

    pub fn pump(&mut self) {
        self.log.pump(self.now_us, &mut self.requests);
        self.device.submit(&mut self.requests);
    }

    /// Ends the request at `index` well.
    pub fn complete(&mut self, index: usize) {
        let completion = self.device.complete(index);
        self.log
            .completed(self.now_us, completion)
            .expect("the device does not fail");
    }

    /// Turns until nothing is under way and nothing that somebody waits for is left.
    pub fn flush(&mut self) {
        self.pump();
        while !self.device.under_way().is_empty() {
            self.complete(0);
            self.pump();
        }
    }

    /// Lets time pass until the log has written its mark.
    pub fn idle(&mut self) {
        self.now_us += 10_000;
        self.flush();
    }

    /// Stops cleanly.
    pub fn close(&mut self) {
        self.log.close();
        self.flush();
        assert!(self.log.is_closed());
    }

    /// Records that were acknowledged as durable.
    pub fn acked(&self) -> usize {
        usize::try_from(self.log.durable().0).expect("few records")
    }
}
