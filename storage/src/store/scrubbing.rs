//! How a store looks through its sealed segments, a read at a time.

use crate::format::corruption::Corruption;
use crate::store::scrub::AGAIN_US;
use crate::store::scrub::CHUNK_BYTES;
use crate::store::scrub::ScrubCounters;
use crate::store::store::Store;
use crate::types::io::{Asker, BLOCK_BYTES, Blocks, Completion, Io, IoToken};
use crate::types::place::FileId;

impl<P: Blocks> Store<P> {
    /// Looks through all sealed segments once within each `period_us`; never if that is 0. `seed`
    /// is another one at each start.
    pub fn set_scrub(&mut self, period_us: u64, seed: u64) {
        self.scrub.period_us = period_us;
        self.scrub.seed = seed;
    }

    /// What was looked through.
    #[must_use]
    pub fn scrub_counters(&self) -> ScrubCounters {
        self.scrub.counters
    }

    /// The next damage that was found and not told yet.
    pub fn take_rotten(&mut self) -> Option<Corruption> {
        self.scrub.found.pop()
    }

    /// Whether a read of this file is under way.
    #[must_use]
    pub fn scrub_reads(&self, file: FileId) -> bool {
        let segment = &self.scrub.segment;
        self.scrub.reading_bytes > 0 && segment.as_ref().is_some_and(|it| it.sealed.file == file)
    }

    /// When [`Store::scrub`] is to be called at the latest, if nothing else happens.
    #[must_use]
    pub fn scrub_deadline_us(&self) -> Option<u64> {
        let is_due = self.scrub.period_us > 0 && self.scrub.reading_bytes == 0;
        (is_due && !self.log().sealed_segments().is_empty()).then_some(self.scrub.next_us)
    }

    /// Asks for the next piece if it is due.
    #[inline]
    pub fn scrub(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let scrub = &self.scrub;
        if scrub.period_us > 0 && now_us >= scrub.next_us && scrub.reading_bytes == 0 {
            self.scrub_on(now_us, io);
        }
    }

    #[cold]
    fn scrub_on(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let mut scrub = std::mem::take(&mut self.scrub);
        scrub.next_us = now_us + AGAIN_US;
        scrub.forget_released(self.log().sealed_segments());
        if scrub.segment.is_none() {
            scrub.pick(self.log().sealed_segments(), self.log().durable_end());
        }
        if let Some(segment) = &scrub.segment {
            let (offset, end) = (segment.at(), segment.sealed.end.end_offset);
            // Where memory is short, a smaller piece does.
            let most =
                usize::try_from(end - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
            let sizes = [most, most.min(CHUNK_BYTES / 4), BLOCK_BYTES];
            let taken = sizes
                .iter()
                .find_map(|&bytes| Some((bytes, self.blocks.take(bytes)?)));
            if let Some((bytes, block)) = taken {
                scrub.next_us = now_us;
                scrub.tokens += 1;
                scrub.reading_bytes = bytes;
                io.push(Io::Read {
                    token: IoToken::new(Asker::Scrub, scrub.tokens),
                    file: segment.sealed.file,
                    offset,
                    block,
                    len: u32::try_from(bytes).expect("a chunk is small"),
                });
            }
        }
        self.scrub = scrub;
    }

    /// The end of a read.
    pub fn scrub_read(&mut self, now_us: u64, completion: Completion<P::Block>) {
        let mut scrub = std::mem::take(&mut self.scrub);
        let bytes = std::mem::take(&mut scrub.reading_bytes);
        scrub.forget_released(self.log().sealed_segments());
        if let Some(segment) = &mut scrub.segment {
            let (at, end) = (segment.at(), segment.sealed.end.end_offset);
            let checked = match completion.brought(bytes) {
                Ok(brought) => {
                    scrub.counters.bytes += bytes as u64;
                    segment.check(&brought[..bytes])
                }
                Err(_) => Err(segment.wrong("it cannot be read", None)),
            };
            let came_to = match checked {
                Ok(()) if segment.offset < end => segment.at(),
                Ok(()) => {
                    scrub.leave();
                    end
                }
                Err(wrong) if segment.is_tried_enough() => {
                    scrub.tell(&wrong);
                    end
                }
                Err(_) => {
                    scrub.next_us = now_us + AGAIN_US;
                    at
                }
            };
            // What was passed takes its share of the period.
            let share = u128::from(scrub.period_us) * u128::from(came_to.saturating_sub(at))
                / u128::from(scrub.total_bytes.max(1));
            scrub.next_us +=
                u64::try_from(share).map_or(scrub.period_us, |us| us.min(scrub.period_us));
        }
        self.scrub = scrub;
    }
}
