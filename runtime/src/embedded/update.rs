//! One key of an embedded store that [`update`](penstock_client::update) changes.

use std::time::Duration;

use penstock_client::{Patience, Updated, Verbs};
use penstock_net::request::{Condition, Expiry};

use super::{Changed, ClientError, Penstock, Value};

/// A key that other threads may write too.
pub(super) struct SharedKey<'a> {
    pub(super) store: &'a Penstock,
    pub(super) key: &'a [u8],
    pub(super) patience: Patience,
}

impl Updated for SharedKey<'_> {
    fn read(&mut self) -> Result<Option<Value>, ClientError> {
        self.store.get(self.key).wait()
    }

    fn write(&mut self, value: &[u8], condition: Condition) -> Result<Changed, ClientError> {
        let pending = self
            .store
            .set_with(self.key, value, condition.showing(), Expiry::Keep);
        pending.wait()
    }

    fn random(&mut self) -> u64 {
        self.patience.random()
    }

    fn pause(&mut self, pause: Duration, losses: u32) -> Result<(), ClientError> {
        self.patience.pause(pause, losses)
    }
}
