//! How a store looks through its sealed segments, a read at a time.

use crate::format::corruption::Corruption;
use crate::log::log::Log;
use crate::store::scrub::{AGAIN_US, CHUNK_BYTES, Scrub, ScrubCounters};
use crate::store::store::Store;
use crate::types::io::{Asker, BLOCK_BYTES, Blocks, Completion, Io, IoToken};
use crate::types::place::FileId;

impl<P: Blocks> Store<P> {
    /// Where the scrub is.
    #[must_use]
    pub fn scrubbing(&self) -> &Scrub {
        &self.scrub
    }

    /// Where the scrub is: its period, and the damage that it found.
    pub fn scrubbing_mut(&mut self) -> &mut Scrub {
        &mut self.scrub
    }

    /// Asks for the next piece if it is due.
    #[inline]
    pub fn scrub(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        if self.scrub.is_due(now_us) {
            self.scrub.ask(now_us, &self.log, &mut self.blocks, io);
        }
    }

    /// The end of a read.
    pub fn scrub_read(&mut self, now_us: u64, completion: Completion<P::Block>) {
        self.scrub.take(now_us, &self.log, completion);
    }
}

impl Scrub {
    /// Looks through all sealed segments once within each `period_us`; never if that is 0. `seed`
    /// is another one at each start.
    pub fn configure(&mut self, period_us: u64, seed: u64) {
        self.period_us = period_us;
        self.seed = seed;
    }

    /// What was looked through.
    #[must_use]
    pub fn counters(&self) -> ScrubCounters {
        self.counters
    }

    /// The next damage that was found and not told yet.
    pub fn take_rotten(&mut self) -> Option<Corruption> {
        self.found.pop()
    }

    /// Whether a read of this file is under way.
    #[must_use]
    pub fn reads(&self, file: FileId) -> bool {
        let segment = &self.segment;
        self.reading_bytes > 0 && segment.as_ref().is_some_and(|it| it.sealed.file == file)
    }

    /// When [`Store::scrub`] is to be called for this log at the latest, if nothing else happens.
    #[must_use]
    pub fn deadline_us<P: Blocks>(&self, log: &Log<P>) -> Option<u64> {
        let is_due = self.period_us > 0 && self.reading_bytes == 0;
        (is_due && !log.sealed_segments().is_empty()).then_some(self.next_us)
    }

    #[inline]
    fn is_due(&self, now_us: u64) -> bool {
        self.period_us > 0 && now_us >= self.next_us && self.reading_bytes == 0
    }

    /// Asks for the next piece.
    #[cold]
    fn ask<P: Blocks>(
        &mut self,
        now_us: u64,
        log: &Log<P>,
        blocks: &mut P,
        io: &mut Vec<Io<P::Block>>,
    ) {
        self.next_us = now_us + AGAIN_US;
        self.forget_released(log.sealed_segments());
        if self.segment.is_none() {
            self.pick(log.sealed_segments(), log.durable_end());
        }
        let Some(segment) = &self.segment else {
            return;
        };
        let (offset, end) = (segment.at(), segment.sealed.end.end_offset);
        // Where memory is short, a smaller piece does.
        let most = usize::try_from(end - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let sizes = [most, most.min(CHUNK_BYTES / 4), BLOCK_BYTES];
        let taken = sizes
            .iter()
            .find_map(|&bytes| Some((bytes, blocks.take(bytes)?)));
        if let Some((bytes, block)) = taken {
            self.next_us = now_us;
            self.tokens += 1;
            self.reading_bytes = bytes;
            io.push(Io::Read {
                token: IoToken::new(Asker::Scrub, self.tokens),
                file: segment.sealed.file,
                offset,
                block,
                len: u32::try_from(bytes).expect("a chunk is small"),
            });
        }
    }

    /// The end of a read: checks what it brought.
    fn take<P: Blocks>(&mut self, now_us: u64, log: &Log<P>, completion: Completion<P::Block>) {
        let bytes = std::mem::take(&mut self.reading_bytes);
        self.forget_released(log.sealed_segments());
        let Some(segment) = &mut self.segment else {
            return;
        };
        let (at, end) = (segment.at(), segment.sealed.end.end_offset);
        let checked = match completion.brought(bytes) {
            Ok(brought) => {
                self.counters.bytes += bytes as u64;
                segment.check(&brought[..bytes])
            }
            Err(_) => Err(segment.wrong("it cannot be read", None)),
        };
        let came_to = match checked {
            Ok(()) if segment.offset < end => segment.at(),
            Ok(()) => {
                self.leave();
                end
            }
            Err(wrong) if segment.is_tried_enough() => {
                self.note_damage(&wrong);
                end
            }
            Err(_) => {
                self.next_us = now_us + AGAIN_US;
                at
            }
        };
        // What was passed takes its share of the period.
        let share = u128::from(self.period_us) * u128::from(came_to.saturating_sub(at))
            / u128::from(self.total_bytes.max(1));
        let share_us = u64::try_from(share).map_or(self.period_us, |us| us.min(self.period_us));
        self.next_us += share_us;
    }
}
