//! The queue of writes: what goes to the disk when, and what comes back.

use crate::format::frame::{FrameHeader, FrameKind};
use crate::log::config::SyncMethod;
use crate::log::log::Log;
use crate::log::told::Poisoned;
use crate::log::writes::LOG_TOKEN_BIT;
use crate::log::writes::Progress;
use crate::log::writes::SYNC_TOKEN_BIT;
use crate::planted::{Bug, is_planted};
use crate::types::io::{Block, Blocks, Completion, Io, IoToken};
use crate::types::place::LogPosition;

impl<P: Blocks> Log<P> {
    /// The end of one of the log's writes or syncs.
    ///
    /// # Errors
    /// [`Poisoned`] if it failed, now or earlier: the owner must stop acknowledging and exit.
    pub fn completed(
        &mut self,
        now_us: u64,
        completion: Completion<P::Block>,
    ) -> Result<(), Poisoned> {
        if let Some(poisoned) = self.poisoned {
            return Err(poisoned);
        }
        let number = completion.token.0 & !(LOG_TOKEN_BIT | SYNC_TOKEN_BIT);
        let index = usize::try_from(number - self.front_token).expect("a token of this log");
        let write = &mut self.writes[index];
        if let Err(failure) = completion.result
            && !is_planted(Bug::IgnoreWriteError)
        {
            let poisoned = Poisoned {
                failure,
                file: write.file,
                offset: write.offset,
            };
            self.poisoned = Some(poisoned);
            return Err(poisoned);
        }
        self.active_us = now_us;
        if completion.token.0 & SYNC_TOKEN_BIT != 0 {
            self.sync_under_way = false;
            for write in self.writes.iter_mut().filter(|write| {
                write.progress == Progress::Syncing
                    || (write.progress == Progress::Written && is_planted(Bug::SyncCoversLater))
            }) {
                write.progress = Progress::Durable;
                self.under_way -= 1;
                self.flushes_us
                    .add(now_us.saturating_sub(write.emitted_us), 1);
            }
        } else {
            assert_eq!(write.progress, Progress::UnderWay, "a write completes once");
            match self.config.sync {
                SyncMethod::DurableWrite => {
                    write.progress = Progress::Durable;
                    self.under_way -= 1;
                    self.flushes_us
                        .add(now_us.saturating_sub(write.emitted_us), 1);
                    if is_planted(Bug::DurablePastGap) {
                        self.durable = self.durable.max(write.last_lsn);
                    }
                }
                SyncMethod::WriteThenSync if is_planted(Bug::SkipFlush) => {
                    write.progress = Progress::Durable;
                    self.under_way -= 1;
                }
                SyncMethod::WriteThenSync => write.progress = Progress::Written,
            }
        }
        self.advance();
        Ok(())
    }

    /// Writes emitted and not durable, and the sync under way.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.under_way + usize::from(self.sync_under_way)
    }

    pub(super) fn emit_waiting(&mut self, now_us: u64, io: &mut Vec<Io<P::Block>>) {
        let durable = self.config.sync == SyncMethod::DurableWrite && !is_planted(Bug::SkipFlush);
        while self.waiting > 0 && self.under_way < self.config.frames_in_flight_max {
            let index = self.writes.len() - self.waiting;
            if index > 0
                && !is_planted(Bug::HeaderTooEarly)
                && (self.writes[index].is_alone() || self.writes[0].is_alone())
            {
                return;
            }
            let write = &mut self.writes[index];
            let mut block = write.block.take().expect("a waiting write owns its block");
            // It may have been sealed long ago. What goes to the disk after a record was durable
            // proves it, should the record be found damaged.
            if let Some((home, _)) = write.frame {
                let told = match is_planted(Bug::TellWritten) {
                    true => self.written,
                    false => self.durable,
                };
                FrameHeader::tell_durable(home, block.bytes_mut(), told);
                write.told = told;
                self.recorded_durable = self.durable;
            }
            write.progress = Progress::UnderWay;
            write.emitted_us = now_us;
            self.waiting -= 1;
            self.under_way += 1;
            self.counters.flushes += u64::from(durable);
            let token = IoToken(LOG_TOKEN_BIT | (self.front_token + index as u64));
            io.push(Io::Write {
                token,
                file: write.file,
                offset: write.offset,
                block,
                len: write.len,
                durable,
            });
        }
    }

    /// One sync for all writes that are done and not covered by a sync yet. They stand in one file:
    /// a segment header is under way alone.
    pub(super) fn emit_sync(&mut self, io: &mut Vec<Io<P::Block>>) {
        if self.config.sync == SyncMethod::DurableWrite || self.sync_under_way {
            return;
        }
        let Some(first) = self
            .writes
            .iter()
            .position(|write| write.progress == Progress::Written)
        else {
            return;
        };
        let file = self.writes[first].file;
        for write in self
            .writes
            .iter_mut()
            .filter(|write| write.progress == Progress::Written)
        {
            assert!(write.file == file, "writes under way stand in one file");
            write.progress = Progress::Syncing;
        }
        self.sync_under_way = true;
        self.counters.flushes += 1;
        io.push(Io::Sync {
            token: IoToken(LOG_TOKEN_BIT | SYNC_TOKEN_BIT | (self.front_token + first as u64)),
            file,
        });
    }

    /// Moves `written` and `durable` over the entries that are done, oldest first.
    fn advance(&mut self) {
        while let Some(write) = self.writes.front() {
            if write.progress != Progress::Durable {
                break;
            }
            self.durable = write.last_lsn;
            if let Some((home, _)) = write.frame {
                let end_offset = write.offset + u64::from(write.len);
                self.durable_end = (home.segment_sequence, end_offset);
            }
            if matches!(write.frame, Some((_, FrameKind::Contents))) {
                self.tells_released = true;
            }
            if let Some((home, _)) = write.frame
                && self.position.is_none_or(|position| {
                    // A segment counts from its first record on: without one its file may go.
                    position.sequence == home.segment_sequence || position.lsn < write.last_lsn
                })
            {
                self.position = Some(LogPosition {
                    sequence: home.segment_sequence,
                    file: write.file,
                    salt: home.salt,
                    offset: write.offset + u64::from(write.len),
                    lsn: write.last_lsn,
                    is_unproven: write.told < write.last_lsn,
                    has_released: self.tells_released,
                });
            }
            self.releases.allow(write.releases.iter().copied());
            self.writes.pop_front();
            self.front_token += 1;
        }
        self.written = self.written.max(self.durable);
        for write in &self.writes {
            if matches!(write.progress, Progress::Waiting | Progress::UnderWay) {
                break;
            }
            self.written = self.written.max(write.last_lsn);
        }
        self.invariants();
    }
}
