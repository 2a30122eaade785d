//! What a store cleans with, and what it cleans.

use crate::log::log::Log;
use crate::store::cleaning::cleaner::Cleaner;
use crate::store::data::Data;
use crate::store::inheritance::Inheritance;
use crate::types::io::Blocks;
use crate::types::place::Lsn;

/// The cleaning of one store: its cleaner, and what is still to be taken over from logs of an
/// earlier generation. It decides what is read, copied and released, and how fast writes may go;
/// each step is lent what it cleans.
#[derive(Debug)]
pub struct Cleaning<P: Blocks> {
    pub(super) cleaner: Cleaner<P::Block>,
    pub(in crate::store) inheritance: Inheritance,
}

/// What is cleaned: the log, what is known of the keys in it, and the blocks for what is read.
pub(in crate::store) struct Cleaned<'s, P: Blocks> {
    pub(in crate::store) data: &'s mut Data,
    pub(in crate::store) log: &'s mut Log<P>,
    pub(in crate::store) blocks: &'s mut P,
}

impl<P: Blocks> Cleaning<P> {
    pub(in crate::store) fn new() -> Self {
        Cleaning {
            cleaner: Cleaner::new(),
            inheritance: Inheritance::default(),
        }
    }

    /// A record was logged, or something else has changed what the next choice finds.
    #[inline]
    pub(in crate::store) fn note_record(&mut self) {
        self.cleaner.must_pick = true;
    }

    /// Whether writes may go only so fast, and are to be noted.
    #[inline]
    pub(in crate::store) fn bounds_writes(&self) -> bool {
        self.cleaner.pace.is_bounded()
    }

    /// Bytes of clients were logged while writes are bounded.
    pub(in crate::store) fn note_written(&mut self, bytes: u64) {
        self.cleaner.pace.takes(bytes);
    }

    /// The last copy that is not known to be durable.
    pub(in crate::store) fn last_move(&self) -> Option<Lsn> {
        self.cleaner.moves.back().map(|moved| moved.lsn)
    }

    /// What is taken over from logs of an earlier generation.
    #[inline]
    #[must_use]
    pub fn inheritance(&self) -> &Inheritance {
        &self.inheritance
    }
}
