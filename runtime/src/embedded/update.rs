//! One key of an embedded store that [`update`](penstock_client::update) changes.

use std::time::Duration;

use penstock_client::{Patience, Updated};
use penstock_net::request::{Condition, Expiry};

use super::{Changed, ClientError, Local, Penstock, Value};

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

/// Beyond so many lost writes a store with one caller gives up. One is lost if the key expires
/// behind the read, and the next one finds no key that could expire.
const LOCAL_LOSSES_MAX: u32 = 8;

/// A key that nobody else writes.
pub(super) struct LocalKey<'a> {
    pub(super) store: &'a mut Local,
    pub(super) key: &'a [u8],
}

impl Updated for LocalKey<'_> {
    fn read(&mut self) -> Result<Option<Value>, ClientError> {
        self.store.get(self.key)
    }

    fn write(&mut self, value: &[u8], condition: Condition) -> Result<Changed, ClientError> {
        self.store
            .set_with(self.key, value, condition.showing(), Expiry::Keep)
    }

    fn random(&mut self) -> u64 {
        0
    }

    fn pause(&mut self, _pause: Duration, losses: u32) -> Result<(), ClientError> {
        if losses > LOCAL_LOSSES_MAX {
            let text = format!("{losses} writes were lost, though nobody else writes");
            return Err(ClientError::Busy(text));
        }
        Ok(())
    }
}
