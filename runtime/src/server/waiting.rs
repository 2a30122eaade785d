//! The keys that clients of Redis wait for: a table for each shard, and who may try which.
//!
//! ```text
//! BZPOPMIN at core 0 --> table of the shard of its key --> may try: item to that shard
//! shard 1: a change --> table --> who may try now --> mail of its core --> item to shard 1
//! ```
//!
//! What must hold: a connection stands in the table before its item is sent, and a change comes to
//! the table behind the change. So what was added behind a try that has found nothing is told of.
//! One table is locked at a time, and no other lock beside it. Nobody asks again and again: a
//! connection is told once that it may try a key, and a shard that nobody waits at asks one number.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_net::resp::{
    KeyHas, KeyWaiter, MayTry, WaitedKeys, WaitersFull, WaitingFigures, subscription_bytes,
};
use penstock_net::slot::{core_of, slot_of};
use penstock_storage::store::KeyChange;

use super::channels::NodeChannels;
use super::client_place::ClientPlace;

/// A connection that waits.
#[derive(Clone, Copy, Debug)]
struct WaitingClient {
    id: u64,
    place: ClientPlace,
}

/// The keys of a shard that connections wait for.
#[derive(Debug, Default)]
struct ShardWaiters {
    /// How many connections wait, each as often as it waits for a key.
    waits: AtomicUsize,
    keys: Mutex<WaitedKeys<WaitingClient>>,
}

impl ShardWaiters {
    fn keys(&self) -> MutexGuard<'_, WaitedKeys<WaitingClient>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys of a node that connections wait for.
#[derive(Debug)]
pub(crate) struct NodeWaiters {
    shards: Box<[ShardWaiters]>,
    last_ticket: AtomicU64,
    /// How often a connection was told.
    notified: AtomicU64,
    channels: Arc<NodeChannels>,
}

impl NodeWaiters {
    /// For a node of so many shards.
    pub(crate) fn new(shards: u16, channels: &Arc<NodeChannels>) -> Self {
        NodeWaiters {
            shards: (0..shards).map(|_| ShardWaiters::default()).collect(),
            last_ticket: AtomicU64::new(0),
            notified: AtomicU64::new(0),
            channels: Arc::clone(channels),
        }
    }

    /// The shard of a key.
    pub(crate) fn shard_of(&self, key: &[u8]) -> u16 {
        let shards = u16::try_from(self.shards.len()).expect("at most 256");
        core_of(slot_of(key), shards)
    }

    fn of_key(&self, key: &[u8]) -> &ShardWaiters {
        &self.shards[usize::from(self.shard_of(key))]
    }

    /// A connection waits for keys from now on; its ticket.
    pub(crate) fn begin(
        &self,
        id: u64,
        place: ClientPlace,
        of_type: u8,
        keys: &[&[u8]],
    ) -> Result<u64, WaitersFull> {
        let bytes = keys.iter().map(|key| subscription_bytes(key)).sum();
        let (names, bytes_max) = (self.channels.names(), self.channels.bytes_max());
        if !names.take(bytes, bytes_max) {
            return Err(WaitersFull { bytes_max });
        }
        let ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1;
        let waiter = KeyWaiter {
            place: WaitingClient { id, place },
            of_type,
        };
        for key in keys {
            let shard = self.of_key(key);
            shard.waits.fetch_add(1, Ordering::SeqCst);
            shard.keys().add(key, ticket, waiter);
        }
        Ok(ticket)
    }

    /// Whether it may try a key.
    pub(crate) fn may_try(&self, key: &[u8], ticket: u64) -> MayTry {
        self.of_key(key).keys().may_try(key, ticket)
    }

    /// It has found this in a key.
    pub(crate) fn found(&self, key: &[u8], ticket: u64, has: KeyHas) {
        let next = self.of_key(key).keys().found(key, ticket, has);
        self.tell(next);
    }

    /// It waits for keys no more.
    pub(crate) fn end(&self, ticket: u64, keys: &[&[u8]]) {
        for key in keys {
            let shard = self.of_key(key);
            let next = shard.keys().remove(key, ticket);
            shard.waits.fetch_sub(1, Ordering::SeqCst);
            self.tell(next);
        }
        let bytes = keys.iter().map(|key| subscription_bytes(key)).sum();
        self.channels.names().give(bytes);
    }

    /// Whether anybody waits for a key of a shard.
    pub(crate) fn is_waited_at(&self, shard: u16) -> bool {
        self.shards[usize::from(shard)].waits.load(Ordering::SeqCst) > 0
    }

    /// A key of a shard has changed.
    pub(crate) fn changed(&self, shard: u16, key: &[u8], change: KeyChange) {
        if !self.is_waited_at(shard) {
            return;
        }
        let has = match change.type_number {
            None => KeyHas::Nothing,
            Some(number) => KeyHas::Value(number),
        };
        let is_writer = |it: &WaitingClient| change.writer == Some(it.place.writer);
        let shard = &self.shards[usize::from(shard)];
        let next = shard.keys().changed(key, has, is_writer);
        self.tell(next);
    }

    /// Any key of a shard may have changed.
    pub(crate) fn all_changed(&self, shard: u16) {
        let next = self.shards[usize::from(shard)].keys().all_changed();
        next.into_iter().for_each(|it| self.tell(Some(it)));
    }

    /// Tells a connection that it may try a key.
    fn tell(&self, next: Option<WaitingClient>) {
        if let Some(WaitingClient { id, place }) = next {
            self.notified.fetch_add(1, Ordering::Relaxed);
            self.channels.mail_may_try(place.core, id);
        }
    }

    /// What is waited for.
    pub(crate) fn figures(&self) -> WaitingFigures {
        let keys = self.shards.iter().map(|shard| shard.keys().keys() as u64);
        WaitingFigures {
            keys: keys.sum(),
            notified: self.notified.load(Ordering::Relaxed),
        }
    }
}
