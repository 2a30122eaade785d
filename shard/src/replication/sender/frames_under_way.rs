//! Frames of one link that one of both sides has not confirmed.

use std::collections::VecDeque;

use penstock_net::link::{Marks, RefusalCode};
use penstock_storage::place::Lsn;

use crate::replication::receiver::LinkRefusal;

/// Frames under way on one link, at most.
pub(super) const FRAMES_MAX: usize = 1024;

/// How far a member has told to have something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// In its memory.
    Received,
    /// On its disk, and to be read there.
    Durable,
}

/// Records that a member has told to have, as they were sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// How far.
    pub confirmed: Confirmed,
    /// The first of them.
    pub first: Lsn,
    /// How many.
    pub records: u32,
}

/// A frame that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentFrame {
    pub(super) number: u64,
    /// Its first record.
    pub(super) first: Lsn,
    /// The frame is durable here when this record is.
    pub(super) lsn: Lsn,
    /// Bytes of records.
    pub(super) bytes: usize,
    /// Records that follow each other.
    pub(super) dense: u32,
    /// The first record that was shipped live, and how many were.
    pub(super) live: Option<(Lsn, u32)>,
    /// The member waits to hear that the frame is durable here.
    pub(super) is_awaited: bool,
}

impl SentFrame {
    /// This one and the next are one from now on, of the next one's number.
    fn join(&mut self, next: &SentFrame) {
        let of_both = [*self, *next].into_iter();
        let firsts = of_both.clone().filter(|frame| frame.bytes > 0);
        let lives = of_both.filter_map(|frame| frame.live);
        *self = SentFrame {
            number: next.number,
            first: firsts.map(|frame| frame.first).min().unwrap_or_default(),
            lsn: self.lsn.max(next.lsn),
            bytes: self.bytes + next.bytes,
            dense: self.dense.saturating_add(next.dense),
            live: lives.reduce(|one, other| (one.0.min(other.0), one.1.saturating_add(other.1))),
            is_awaited: self.is_awaited || next.is_awaited,
        };
    }
}

/// Frames that were sent, and how far both sides have confirmed them.
#[derive(Debug)]
pub(super) struct FramesUnderWay {
    /// Frames that the member has not told durable.
    frames: VecDeque<SentFrame>,
    /// Up to this frame all is durable here.
    durable: u64,
    /// What the member told last.
    marks: Marks,
    /// Up to this record of the ring the member has received all that it was to be shipped.
    received_lsn: Lsn,
    /// The same for what is durable there.
    durable_lsn: Lsn,
    /// What the marks that came last confirmed of what was shipped live.
    confirmations: Vec<Confirmation>,
    /// So many bytes of records may be under way and not be announced durable, or not be received.
    window_bytes: usize,
}

impl FramesUnderWay {
    /// None, on a link on which `sent` frames went out so far.
    pub(super) fn new(sent: u64, window_bytes: usize) -> Self {
        FramesUnderWay {
            frames: VecDeque::new(),
            durable: sent,
            marks: Marks::default(),
            received_lsn: Lsn(0),
            durable_lsn: Lsn(0),
            confirmations: Vec::new(),
            window_bytes,
        }
    }

    /// Up to this frame all is durable here.
    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// What the member told last.
    pub(super) fn marks(&self) -> Marks {
        self.marks
    }

    /// Up to this record of the ring the member has received all that it was to be shipped.
    pub(super) fn received_lsn(&self) -> Lsn {
        self.received_lsn
    }

    /// Up to this record of the ring all that the member was to be shipped is on its disk.
    pub(super) fn durable_lsn(&self) -> Lsn {
        self.durable_lsn
    }

    /// What the marks that came last confirmed.
    pub(super) fn confirmations(&self) -> &[Confirmation] {
        &self.confirmations
    }

    /// One more frame was sent.
    pub(super) fn push(&mut self, frame: SentFrame) {
        self.frames.push_back(frame);
    }

    /// The frame that was sent last.
    ///
    /// # Panics
    /// If none is under way.
    pub(super) fn last_mut(&mut self) -> &mut SentFrame {
        self.frames.back_mut().expect("just sent")
    }

    /// Takes the marks of the member. `sent` is the last frame that was sent, `live` the last
    /// record of the ring that was looked at.
    ///
    /// # Errors
    /// [`LinkRefusal`]: they fall back, or confirm what was not sent.
    pub(super) fn take_marks(
        &mut self,
        marks: Marks,
        sent: u64,
        live: Lsn,
    ) -> Result<(), LinkRefusal> {
        let is_rising = marks.received >= self.marks.received
            && marks.durable >= self.marks.durable
            && marks.durable <= marks.received
            && marks.received <= sent;
        if !is_rising {
            return Err(LinkRefusal {
                code: RefusalCode::Order,
                text: format!("{marks:?} behind {:?}", self.marks),
            });
        }
        let before = std::mem::replace(&mut self.marks, marks);
        self.confirm(before, marks);
        self.pass_over(live);
        self.forget();
        Ok(())
    }

    /// The marks rise: notes which records they confirm.
    fn confirm(&mut self, before: Marks, now: Marks) {
        self.confirmations.clear();
        let is_known = |frame: &SentFrame| frame.number <= before.durable;
        let from = self.frames.partition_point(is_known);
        for frame in self.frames.range(from..) {
            let news = [
                (Confirmed::Received, before.received, now.received),
                (Confirmed::Durable, before.durable, now.durable),
            ];
            for (confirmed, from, to) in news {
                if let Some((first, records)) = frame.live.filter(|live| live.1 > 0)
                    && (from + 1..=to).contains(&frame.number)
                {
                    self.confirmations.push(Confirmation {
                        confirmed,
                        first,
                        records,
                    });
                }
            }
            if frame.number <= now.received && frame.live.is_some() {
                self.received_lsn = self.received_lsn.max(frame.lsn);
            }
            if frame.number <= now.durable && frame.live.is_some() {
                self.durable_lsn = self.durable_lsn.max(frame.lsn);
            }
        }
    }

    /// Where nothing is under way, all of the ring up to `live` counts: the member has what of it
    /// was for the member.
    pub(super) fn pass_over(&mut self, live: Lsn) {
        let mut frames = self.frames.iter().rev();
        let last = frames.find(|frame| frame.live.is_some());
        let last = last.map_or(0, |frame| frame.number);
        if last <= self.marks.received {
            self.received_lsn = self.received_lsn.max(live);
        }
        if last <= self.marks.durable {
            self.durable_lsn = self.durable_lsn.max(live);
        }
    }

    /// The log here is durable up to this record.
    pub(super) fn advance(&mut self, durable: Lsn) {
        let behind = self.behind(self.durable);
        if let Some(last) = behind.take_while(|frame| frame.lsn <= durable).last() {
            self.durable = last.number;
        }
        self.forget();
    }

    /// Whether the member waits to hear of a frame behind `announced` that it is durable here.
    pub(super) fn is_awaited(&self, announced: u64) -> bool {
        let news = self.behind(announced);
        let mut news = news.take_while(|frame| frame.number <= self.durable);
        news.any(|frame| frame.is_awaited)
    }

    /// Whether another frame of records may be sent now.
    pub(super) fn has_window(&self) -> bool {
        if self.frames.len() >= FRAMES_MAX {
            return false;
        }
        let pending = self.behind(self.durable.min(self.marks.received));
        let pending: usize = pending.map(|frame| frame.bytes).sum();
        pending < self.window_bytes
    }

    /// How many records the member has not confirmed, and behind which record of the log they
    /// stand.
    pub(super) fn unconfirmed(&self, confirmed: Confirmed) -> (u64, Option<Lsn>) {
        let mark = match confirmed {
            Confirmed::Received => self.marks.received,
            Confirmed::Durable => self.marks.durable,
        };
        let is_open = |frame: &&SentFrame| frame.number > mark && frame.dense > 0;
        let open = self.frames.iter().filter(is_open);
        open.fold((0, None), |(records, behind), frame| {
            let before = Lsn(frame.first.0.saturating_sub(1));
            let behind = behind.map_or(before, |at: Lsn| at.min(before));
            (records + u64::from(frame.dense), Some(behind))
        })
    }

    /// The frames behind this one.
    fn behind(&self, number: u64) -> impl Iterator<Item = &SentFrame> {
        let from = self.frames.partition_point(|frame| frame.number <= number);
        self.frames.range(from..)
    }

    /// Forgets the frames that are durable on both sides.
    fn forget(&mut self) {
        let until = self.marks.durable.min(self.durable);
        while self
            .frames
            .front()
            .is_some_and(|frame| frame.number <= until)
        {
            self.frames.pop_front();
        }
        if self.frames.len() >= FRAMES_MAX {
            self.merge();
        }
    }

    /// Makes one of neighbours that are received there and durable here. The member confirms
    /// the frames before the first frame that it has not applied whole. One partition that waits
    /// there, for a read that fails or a sweep, must not keep all others of the link waiting here.
    fn merge(&mut self) {
        let settled = self.marks.received.min(self.durable);
        // A member that stands still settles nothing, and all its frames are here in each turn.
        while self.frames.get(1).is_some_and(|it| it.number <= settled) {
            let mut joined = self.frames.pop_front().expect("there are two");
            joined.join(&self.frames[0]);
            self.frames[0] = joined;
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    #[cfg(test)]
    pub(super) fn set_durable(&mut self, durable: u64) {
        self.durable = durable;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_stands_still_costs_no_memory_in_a_turn() {
        let mut frames = FramesUnderWay::new(0, 1 << 20);
        for number in 1..=FRAMES_MAX as u64 {
            frames.push(SentFrame {
                number,
                lsn: Lsn(number),
                ..SentFrame::default()
            });
        }
        let used = allocation_counter::measure(|| {
            for turn in 1..=FRAMES_MAX as u64 {
                frames.advance(Lsn(turn));
                assert!(!frames.has_window());
            }
        });
        assert_eq!(used.count_total, 0);
        let all = FRAMES_MAX as u64;
        assert_eq!((frames.len(), frames.durable()), (FRAMES_MAX, all));
    }
}
