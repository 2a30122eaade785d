//! Operations that are not answered yet. They wait for a read or for room, or are on their way to
//! or from another shard.

mod held;
pub(crate) mod mailboxes;
pub(crate) mod parking;
pub(crate) mod postponed;

use penstock_net::pieces::Pieces;

use mailboxes::Mailboxes;
use parking::{Parked, Parking};
use postponed::Postponed;

/// The operations of a shard that are under way.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Operations that wait for a read.
    pub(crate) parking: Parking,
    /// Operations that found no room in the log.
    pub(crate) postponed: Postponed,
    /// Operations of other shards, and operations that other shards run.
    pub(crate) mail: Mailboxes,
    /// Where the answer of an operation is written that runs outside its frame.
    scratch: Pieces,
    /// Where each answer of a mailed run ends, while the run lasts.
    pub(crate) run_ends: Vec<usize>,
}

impl Requests {
    pub(crate) fn new(mail: Mailboxes) -> Self {
        Requests {
            parking: Parking::default(),
            postponed: Postponed::default(),
            mail,
            scratch: Pieces::default(),
            run_ends: Vec::new(),
        }
    }

    /// Whether nothing waits here that another operation must not pass.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.parking.is_empty() && self.postponed.is_empty()
    }

    /// Whether nothing waits here at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_idle() && !self.mail.holds_any()
    }

    /// Whether something waits here for room or for a block of memory.
    pub(crate) fn waits_for_room(&self) -> bool {
        !self.postponed.is_empty() || self.mail.holds_any() || self.parking.has_unissued()
    }

    /// Takes out what `is_it` says: of what waits for reads, for room in the log and for room for
    /// answers, each in order.
    pub(crate) fn take_out(&mut self, is_it: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let mut taken = self.parking.take_out(&is_it);
        taken.extend(self.postponed.take_out(&is_it));
        self.mail.take_out_held(&is_it, &mut taken);
        taken
    }

    /// Empty memory for the answer of one operation, to be given back.
    pub(crate) fn take_scratch(&mut self) -> Pieces {
        std::mem::take(&mut self.scratch)
    }

    /// Gives that memory back. Shared values in it are held by the answer alone.
    pub(crate) fn give_scratch(&mut self, mut pieces: Pieces) {
        pieces.clear();
        self.scratch = pieces;
    }
}
