//! Reads of the disk: of cold keys and of cleaning, and what becomes of them.

use penstock_net::reply::ReplyHead;
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::{Block, Blocks, Completion, Io, IoFailure, IoToken};
use penstock_storage::place::FileId;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::record::PartView;
use penstock_storage::store::{AdmitError, aligned_span};

use crate::busy::Told;
use crate::execute::Cold;
use crate::execute::past::in_block;
use crate::requests::parking::{Finished, Parked, Waiter};

use super::operation::Operation;
use super::{Admitted, Now, Outbox, Shard};

impl<P: Blocks> Shard<P> {
    /// A read for parked operations ended. Their keys come into the cache, and the operations run.
    /// A read that brought something wrong is done once more, block by block.
    pub(super) fn key_read(
        &mut self,
        now: Now,
        completion: &Completion<P::Block>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let token = completion.token;
        let brought = self.requests.parking.again(token);
        let read = bytes_read(completion, brought);
        let (again, bad);
        let (bytes, bad) = if brought.is_none() {
            let bad = read.err().map(|failure| (0, failure));
            (read.unwrap_or_default(), Vec::from_iter(bad))
        } else if self.requests.parking.add_block(token, read) {
            (again, bad) = self.requests.parking.take_again(token);
            (&again[..], bad)
        } else {
            return;
        };
        let admitted = self.admit_read(token, bytes, &bad);
        let has_failed = admitted.iter().any(Result::is_err);
        if has_failed && brought.is_none() && !is_planted(Bug::ReadOnce) {
            self.stats.read_again();
            self.requests.parking.read_again(token);
            return;
        }
        self.run_waiters(now, token, bytes, admitted, outbox);
    }

    /// Runs the operations that waited for a read, or tells them why their key cannot be read.
    fn run_waiters(
        &mut self,
        now: Now,
        token: IoToken,
        bytes: &[u8],
        mut admitted: Vec<Result<Admitted, (Status, String)>>,
        outbox: &mut Outbox<P::Block>,
    ) {
        let Finished {
            colds,
            waiters,
            ends_pin,
        } = self.requests.parking.finished(token);
        for (cold, admitted) in colds.iter().zip(&admitted) {
            if let Err((status, _)) = admitted {
                let home = (cold.slot, cold.hash);
                self.chores.note_bad_place(home, cold.place, *status);
                self.firing.note_unread(home);
            }
        }
        for cold in &colds {
            self.learn_horizon(cold.slot);
        }
        if ends_pin {
            // The operation that the keys are kept for runs before anything leaves.
            self.store.pin(None);
        }
        // The waiters are older than the postponed operations: they were parked before those, or
        // taken from their front. So waiters that find no room go to the front of the postponed
        // operations, in their order.
        let mut kept = 0;
        for waiter in waiters {
            let Waiter {
                number,
                is_behind,
                mut parked,
            } = waiter;
            self.renew_rights(&mut parked);
            let is_denied = self.is_denied(&Operation::of(&parked));
            match &mut admitted[number] {
                Err((status, message)) if !is_behind && !is_denied => {
                    self.answer_unread(now, parked, *status, message, outbox);
                }
                admitted if kept == 0 => {
                    let brought = admitted.as_ref().ok().map(|it| (it.place, bytes));
                    if let Some(parked) = self.run_detached(now, parked, brought, outbox) {
                        self.requests.postponed.insert(0, parked);
                        kept = 1;
                    }
                    if let Ok(admitted) = admitted
                        && std::mem::take(&mut admitted.is_new)
                    {
                        let Cold { slot, hash, .. } = colds[number];
                        self.store.forget_use((slot, hash));
                    }
                }
                _ => {
                    self.requests.postponed.insert(kept, parked);
                    kept += 1;
                }
            }
        }
    }

    /// Answers an operation whose key cannot be read.
    fn answer_unread(
        &mut self,
        now: Now,
        mut parked: Parked,
        status: Status,
        message: &str,
        outbox: &mut Outbox<P::Block>,
    ) {
        let asked = self.asked_by(&parked.item);
        self.stats.answer(asked, status);
        self.stats.answer_later(now.us, parked.came_us);
        let mut out = Vec::new();
        let item = parked.address.item;
        ReplyHead::new(status, item, parked.level, Version::default())
            .write_message(&mut out, &message);
        self.unreserve(&mut parked);
        let told = Told::behind(Lsn(0));
        self.answer_detached(parked.origin, parked.address, told, &out.into(), outbox);
    }

    /// Takes the keys of a read into the cache, where nobody has used them yet, or tells, of each,
    /// why it cannot be answered. `bad` are the blocks that could not be read, by where they begin.
    fn admit_read(
        &mut self,
        token: IoToken,
        bytes: &[u8],
        bad: &[(usize, IoFailure)],
    ) -> Vec<Result<Admitted, (Status, String)>> {
        let (store, key_hash) = (&mut self.store, self.setup.hash());
        let admit = |&Cold {
                         slot,
                         hash,
                         place,
                         version,
                     }: &Cold| {
            let (_, len) = aligned_span(place);
            if let Some((_, failure)) = bad.iter().find(|(start, _)| *start < len as usize) {
                return Err((Status::Io, not_read(place, *failure)));
            }
            let admitted = match version {
                None => store.admit((slot, hash), place, bytes, |key| key_hash.home_of(key)),
                // A version of the past stays out of the cache.
                Some(version) => bytes
                    .get(in_block(place)..)
                    .and_then(|bytes| PartView::read(bytes).ok())
                    .filter(|part| {
                        let home = key_hash.home_of(part.key());
                        (part.version(), part.slot(), home) == (version, slot, (slot, hash))
                    })
                    .map(|_| ())
                    .ok_or(AdmitError::Corrupt),
            };
            let is_new = version.is_none();
            admitted
                .map(|()| Admitted { place, is_new })
                .map_err(|AdmitError::Corrupt| (Status::Corrupt, not_written(place)))
        };
        self.requests
            .parking
            .colds(token)
            .iter()
            .map(admit)
            .collect()
    }

    /// Emits a read, or the next piece of a second attempt that has brought so many bytes; `false`
    /// if there is no block for it now.
    pub(super) fn read(
        &mut self,
        token: IoToken,
        place: Place,
        brought: Option<usize>,
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let io = match brought {
            None => self.store.read(token, place),
            Some(start) => self.store.read_piece(token, place, start),
        };
        let Some(io) = io else {
            return false;
        };
        let bytes = match &io {
            Io::Read { len, .. } => u64::from(*len),
            Io::Write { .. } | Io::Sync { .. } => 0,
        };
        self.stats.read(bytes);
        outbox.io.push(io);
        true
    }

    /// A step of cleaning, and what it is done with.
    pub(super) fn clean(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        let hash = self.setup.hash();
        let has_progress = match self.phase.is_stopping() {
            true => self.store.stop_cleaning(),
            false => self
                .store
                .clean(now.us, &|key| hash.of(key), &mut outbox.io),
        };
        self.phase.note_progress(has_progress);
        while let Some(damaged) = self.store.take_damaged() {
            outbox.damaged.push(damaged);
        }
        while let Some(file) = self.store.take_removable() {
            self.scans.forget_table(file, &mut outbox.key_tables);
            self.files.leave(file);
        }
        for file in self.files.take_leaving() {
            if self.reads_file(file) && !is_planted(Bug::RemoveUnderRead) {
                self.files.leave(file);
            } else {
                self.chores.forget_file(file);
                outbox.removals.push(file);
            }
        }
    }

    /// Whether a read of this file is under way or waits.
    fn reads_file(&self, file: FileId) -> bool {
        self.requests.parking.reads_file(file)
            || self.scans.steps.reads_file(file)
            || self.store.scrub_reads(file)
            || self.linked.as_ref().is_some_and(|it| it.is_reading(file))
    }

    /// Tells, once, that nothing refers to the inherited logs any more.
    pub(super) fn take_over(&mut self, outbox: &mut Outbox<P::Block>) {
        if !self.store.is_inheriting()
            || self.files.has_told_taken_over()
            || self.phase.is_stopping()
            || !self.store.has_taken_over()
        {
            return;
        }
        let mut files = self.store.inherited_files();
        if !files.any(|file| self.reads_file(file)) || is_planted(Bug::TakenOverUnderRead) {
            self.files.tell_taken_over();
            outbox.has_taken_over = true;
        }
    }
}

/// What a read of a part gave. A second attempt has `brought` so many bytes before it, so the file
/// may end before the next ones.
pub(super) fn bytes_read<B: Block>(
    completion: &Completion<B>,
    brought: Option<usize>,
) -> Result<&[u8], IoFailure> {
    completion.brought(usize::from(brought.unwrap_or_default() == 0))
}

pub(super) fn not_read(place: Place, failure: IoFailure) -> String {
    let Place { file, offset, .. } = place;
    format!(
        "{:08}.seg at offset {offset} could not be read: {failure:?}",
        file.0
    )
}

pub(super) fn not_written(place: Place) -> String {
    let Place { file, offset, .. } = place;
    format!(
        "{:08}.seg at offset {offset} does not hold what was written",
        file.0
    )
}
