//! Records of one partition that are received and not applied.

use std::collections::VecDeque;

use penstock_net::link::Position;

use crate::replication::planted::{self, Bug};
use crate::replication::record::ShippedRecord;

/// What is reserved for the next records when none are there.
const IDLE_BYTES: usize = 16 << 10;

/// Received records and joins in order, and the bytes of the records in one memory.
#[derive(Debug, Default)]
pub(super) struct PendingRecords {
    items: VecDeque<Item>,
    bytes: RecordBytes,
}

#[derive(Debug)]
struct Item {
    /// The frame that it came in, which must be announced durable; 0 if that was announced, or by
    /// another link.
    frame: u64,
    what: Pending,
}

/// What is pending.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    /// A record; its bytes stand behind those of the records before it.
    Record { position: Position, bytes: usize },
    /// JOIN at this position, and the time of its frame.
    Join { at: Position, time_ms: u64 },
}

/// The bytes of records, one behind the other.
#[derive(Debug, Default)]
struct RecordBytes {
    bytes: Vec<u8>,
    /// Before here all were applied.
    start: usize,
}

impl RecordBytes {
    fn pending(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn push(&mut self, record: &[u8]) {
        self.bytes.extend_from_slice(record);
    }

    /// The first so many are applied.
    fn pass(&mut self, bytes: usize) {
        self.start += bytes;
        // Each byte is moved once at most for one that was passed.
        if self.start >= self.bytes.len().div_ceil(2) {
            self.bytes.drain(..self.start);
            self.start = 0;
            if self.bytes.is_empty() && self.bytes.capacity() > IDLE_BYTES {
                self.bytes = Vec::new();
            }
        }
    }
}

impl PendingRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of the records.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.pending().len()
    }

    /// The frame of what is applied next.
    pub(super) fn first_frame(&self) -> Option<u64> {
        self.items.front().map(|item| item.frame)
    }

    /// A record came in a frame.
    pub(super) fn push(&mut self, frame: u64, record: &ShippedRecord<'_>) {
        self.bytes.push(record.bytes);
        self.items.push_back(Item {
            frame: planted::or(Bug::ApplyUnannounced, 0, frame),
            what: Pending::Record {
                position: record.position,
                bytes: record.bytes.len(),
            },
        });
    }

    /// JOIN came in a frame.
    pub(super) fn push_join(&mut self, frame: u64, at: Position, time_ms: u64) {
        let what = Pending::Join { at, time_ms };
        self.items.push_back(Item { frame, what });
    }

    /// What is applied next, with its bytes, if frames up to `announced` are durable at the source.
    pub(super) fn first(&self, announced: u64) -> Option<(Pending, &[u8])> {
        let item = self.items.front().filter(|item| item.frame <= announced)?;
        Some(match item.what {
            Pending::Record { bytes, .. } => (item.what, &self.bytes.pending()[..bytes]),
            Pending::Join { .. } => (item.what, &[]),
        })
    }

    /// The records that may be applied, if frames up to `announced` are durable at the source,
    /// oldest first.
    pub(super) fn upcoming(&self, announced: u64) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.pending();
        let items = self.items.iter();
        let announced = items.take_while(move |item| item.frame <= announced);
        announced.filter_map(move |item| match item.what {
            Pending::Record { bytes, .. } => {
                let (record, behind) = rest.split_at(bytes);
                rest = behind;
                Some(record)
            }
            Pending::Join { .. } => None,
        })
    }

    /// The first record is applied. Its frame and position.
    ///
    /// # Panics
    /// If no record is first.
    pub(super) fn take_record(&mut self) -> (u64, Position) {
        let Some(Item {
            frame,
            what: Pending::Record { position, bytes },
        }) = self.items.pop_front()
        else {
            panic!("a record was to be applied");
        };
        self.bytes.pass(bytes);
        (frame, position)
    }

    /// All up to JOIN is applied. Its frame and position.
    ///
    /// # Panics
    /// If no JOIN is first.
    pub(super) fn take_join(&mut self) -> (u64, Position) {
        let Some(Item {
            frame,
            what: Pending::Join { at, .. },
        }) = self.items.pop_front()
        else {
            panic!("a join was to be applied");
        };
        (frame, at)
    }

    /// All of it may be applied, whatever the source announces.
    pub(super) fn admit(&mut self) {
        for item in &mut self.items {
            item.frame = 0;
        }
    }

    /// The link is gone: what was not announced durable is announced by the next BEGIN, or by
    /// nobody.
    pub(super) fn link_ended(&mut self) {
        for item in &mut self.items {
            if item.frame > 0 {
                item.frame = u64::MAX;
            }
        }
    }

    /// Drops all of it.
    pub(super) fn clear(&mut self) {
        *self = PendingRecords::default();
    }

    /// The source goes on behind `from`: records up to there may be applied. Of the others those
    /// that are not shared with the source have diverged and are returned; the source ships the
    /// rest again.
    pub(super) fn cut(
        &mut self,
        from: Position,
        is_shared: impl Fn(Position) -> bool,
    ) -> Vec<Vec<u8>> {
        let mut diverged = Vec::new();
        let mut before = std::mem::take(self);
        for item in before.items {
            // A join of another connection says nothing of this one.
            let Pending::Record { position, bytes } = item.what else {
                continue;
            };
            let record = &before.bytes.pending()[..bytes];
            if position <= from {
                self.bytes.push(record);
                self.items.push_back(Item { frame: 0, ..item });
            } else if !is_shared(position) {
                diverged.push(record.to_vec());
            }
            before.bytes.pass(bytes);
        }
        diverged
    }
}
