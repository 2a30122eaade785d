//! Reads of the disk: of cold keys, of cleaning and of inherited logs.

use penstock_net::status::Status;
use penstock_storage::io::{Block, Blocks, Completion, Io, IoFailure, IoToken};
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::FileId;
use penstock_storage::place::Place;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::record::PartView;
use penstock_storage::store::{AdmitError, aligned_span};

use crate::event::Outbox;
use crate::execution::Execution;
use crate::execution::verbs::Cold;
use crate::execution::verbs::past::in_block;
use crate::step::Step;

impl<P: Blocks> Execution<P> {
    /// Takes the keys of a read into the cache, where nobody has used them yet, or tells, of each,
    /// why it cannot be answered. `bad` are the blocks that could not be read, by where they begin.
    pub(crate) fn admit_read(
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
                None => store
                    .data_mut()
                    .admit(KeyHome { slot, hash }, place, bytes, |key| {
                        key_hash.home_of(key)
                    }),
                // A version of the past stays out of the cache.
                Some(version) => bytes
                    .get(in_block(place)..)
                    .and_then(|bytes| PartView::read(bytes).ok())
                    .filter(|part| {
                        let home = key_hash.home_of(part.key());
                        (part.version(), part.slot(), home)
                            == (version, slot, KeyHome { slot, hash })
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
    pub(crate) fn read(
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
    pub(crate) fn clean(&mut self, step: &mut Step<'_, P::Block>) {
        let hash = self.setup.hash();
        let has_progress = match self.phase.is_stopping() {
            true => self.store.stop_cleaning(),
            false => self
                .store
                .clean(step.now.us, &|key| hash.of(key), &mut step.outbox.io),
        };
        self.phase.note_progress(has_progress);
        while let Some(damaged) = self.store.cleaning_mut().take_damaged() {
            step.outbox.damaged.push(damaged);
        }
        while let Some(file) = self.store.take_removable() {
            self.scans.forget_table(file, &mut step.outbox.key_tables);
            self.files.leave(file);
        }
        for file in self.files.take_leaving() {
            if self.reads_file(file) && !is_planted(Bug::RemoveUnderRead) {
                self.files.leave(file);
            } else {
                self.chores.forget_file(file);
                step.outbox.removals.push(file);
            }
        }
    }

    /// Whether a read of this file is under way or waits.
    pub(crate) fn reads_file(&self, file: FileId) -> bool {
        self.requests.parking.reads_file(file)
            || self.scans.steps.reads_file(file)
            || self.store.scrubbing().reads(file)
            || self.linked.as_ref().is_some_and(|it| it.is_reading(file))
    }

    /// Tells, once, that nothing refers to the inherited logs any more.
    pub(crate) fn take_over(&mut self, outbox: &mut Outbox<P::Block>) {
        if !self.store.cleaning().inheritance().is_there()
            || self.files.has_reported_taken_over()
            || self.phase.is_stopping()
            || !self.store.has_taken_over()
        {
            return;
        }
        let mut files = self.store.cleaning().inheritance().files();
        if !files.any(|file| self.reads_file(file)) || is_planted(Bug::TakenOverUnderRead) {
            self.files.report_taken_over();
            outbox.has_taken_over = true;
        }
    }
}

/// What a read of a part gave. A second attempt has `brought` so many bytes before it, so the file
/// may end before the next ones.
pub(crate) fn bytes_read<B: Block>(
    completion: &Completion<B>,
    brought: Option<usize>,
) -> Result<&[u8], IoFailure> {
    completion.brought(usize::from(brought.unwrap_or_default() == 0))
}

pub(crate) fn not_read(place: Place, failure: IoFailure) -> String {
    let Place { file, offset, .. } = place;
    format!(
        "{:08}.seg at offset {offset} could not be read: {failure:?}",
        file.0
    )
}

pub(crate) fn not_written(place: Place) -> String {
    let Place { file, offset, .. } = place;
    format!(
        "{:08}.seg at offset {offset} does not hold what was written",
        file.0
    )
}

/// A key that a read brought.
pub(crate) struct Admitted {
    pub(crate) place: Place,
    /// It came into the cache, where nobody has used it yet.
    pub(crate) is_new: bool,
}
