//! The methods of a shard that serve a tracker of changed keys ([`crate::tracking`]).

use penstock_storage::io::Blocks;

use crate::mail::SessionId;
use crate::requests::parking::Origin;
use crate::shard::Shard;
use crate::tracking::Tracker;

impl<P: Blocks> Shard<P> {
    /// Clients are told of keys that change by this one from now on.
    pub fn serve_tracker(&mut self, tracker: Box<dyn Tracker>) {
        self.execution.tracking.begin(tracker);
    }

    /// What changes from now on, this connection of a shard asks for.
    #[inline]
    pub(crate) fn note_writer(&mut self, origin: Origin, session: SessionId) {
        let execution = &mut self.execution;
        if let Some(changed) = execution.store.data_mut().changed_keys() {
            changed.asks(Some(origin.writer(execution.setup.shard(), session)));
        }
    }
}
