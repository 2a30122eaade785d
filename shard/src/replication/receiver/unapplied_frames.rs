//! Frames of one link with records that are not durable here.

use std::collections::VecDeque;

use penstock_storage::place::Lsn;

use crate::replication::PartitionId;

/// Frames that are noted before the finished ones are taken out.
pub(super) const FRAMES_MAX: usize = 1024;

/// Frames that came, in order, and up to which of them all is durable.
#[derive(Debug)]
pub(super) struct UnappliedFrames {
    frames: VecDeque<UnappliedFrame>,
    /// Up to this frame all is durable here.
    durable: u64,
}

#[derive(Debug)]
struct UnappliedFrame {
    number: u64,
    /// How many records and joins of each partition are not applied: each partition once,
    /// ascending.
    left: Vec<(PartitionId, u32)>,
    /// Behind which record of the log here all that was applied is durable.
    lsn: Lsn,
}

impl UnappliedFrame {
    fn is_done(&self, durable: Lsn) -> bool {
        self.left.is_empty() && self.lsn <= durable
    }
}

impl UnappliedFrames {
    /// On a link on which `received` frames came so far.
    pub(super) fn new(received: u64) -> Self {
        UnappliedFrames {
            frames: VecDeque::new(),
            durable: received,
        }
    }

    /// Up to this frame all is durable here.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// A frame came with so many records or joins of each of these partitions, ascending.
    pub(super) fn push(&mut self, number: u64, left: Vec<(PartitionId, u32)>) {
        let lsn = Lsn(0);
        self.frames.push_back(UnappliedFrame { number, left, lsn });
    }

    /// So many records and joins of a partition that came in a frame were applied, and are durable
    /// with this record of the log here.
    pub(super) fn applied(&mut self, partition: PartitionId, number: u64, count: u32, lsn: Lsn) {
        let at = self.frames.partition_point(|it| it.number < number);
        let frame = self.frames.get_mut(at);
        let Some(frame) = frame.filter(|it| it.number == number) else {
            return;
        };
        if let Ok(at) = frame.left.binary_search_by_key(&partition, |left| left.0) {
            frame.left[at].1 -= count;
            frame.lsn = frame.lsn.max(lsn);
            if frame.left[at].1 == 0 {
                frame.left.remove(at);
            }
        }
    }

    /// The link has lost a partition: nothing of it is left to do.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        for frame in &mut self.frames {
            frame.left.retain(|&(of, _)| of != partition);
        }
    }

    /// The log here is durable up to `durable`, and frames up to `received` came. Partitions that
    /// are not in `is_opened` were taken over by another link, and are applied for that one.
    pub(super) fn advance(
        &mut self,
        durable: Lsn,
        received: u64,
        is_opened: impl Fn(PartitionId) -> bool,
    ) {
        while let Some(frame) = self.frames.front_mut() {
            frame.left.retain(|&(number, _)| is_opened(number));
            if !frame.is_done(durable) {
                break;
            }
            self.frames.pop_front();
        }
        // After one that waits there may be any number of finished frames.
        if self.frames.len() > FRAMES_MAX {
            self.frames.retain(|frame| !frame.is_done(durable));
        }
        let until = self.frames.front().map(|frame| frame.number - 1);
        self.durable = self.durable.max(until.unwrap_or(received));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }
}
