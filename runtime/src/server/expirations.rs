//! Keyspace notifications of one shard: keys whose time is over are announced on channels.
//!
//! The table is that of the shard's thread. What waits in it is bounded by bytes, and what a turn
//! announces by keys and by steps of patterns.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use penstock_net::resp::{ClusterView, ExpiringKeys, Kind, NotificationFigures, Notifications};
use penstock_net::slot::slot_of;

use super::channels::NodeChannels;

/// Keys that a turn of a shard announces. The next turn goes on.
const ANNOUNCED_AT_ONCE: usize = 256;
/// Steps of patterns that a turn takes for them.
const STEPS_AT_ONCE: usize = 1 << 20;
/// Keys of a table that are dropped where it was taken out. More are dropped by a thread: a shard
/// has other things to do.
const DROPPED_AT_ONCE: usize = 1024;

/// What a node announces.
#[derive(Debug)]
pub(crate) struct NodeExpirations {
    /// The bits of [`Notifications`].
    wanted: AtomicU8,
    announced: AtomicU64,
    lost: AtomicU64,
    channels: Arc<NodeChannels>,
    /// As the cluster's file was read last.
    cluster: Arc<RwLock<Option<ClusterView>>>,
    /// Bytes of the table of a shard, at most.
    table_bytes_max: usize,
}

impl NodeExpirations {
    /// For a node of so many shards, whose tables may take so many bytes together.
    pub(crate) fn new(
        shards: u16,
        bytes_max: usize,
        channels: &Arc<NodeChannels>,
        cluster: &Arc<RwLock<Option<ClusterView>>>,
    ) -> Self {
        NodeExpirations {
            wanted: AtomicU8::new(0),
            announced: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            channels: Arc::clone(channels),
            cluster: Arc::clone(cluster),
            table_bytes_max: bytes_max / usize::from(shards),
        }
    }

    /// What is announced now.
    pub(crate) fn wanted(&self) -> Notifications {
        Notifications::of_bits(self.wanted.load(Ordering::SeqCst))
    }

    /// This is announced from now on.
    pub(crate) fn want(&self, notifications: Notifications) {
        self.wanted.store(notifications.bits(), Ordering::SeqCst);
    }

    /// What was announced since the start.
    pub(crate) fn figures(&self) -> NotificationFigures {
        NotificationFigures {
            announced: self.announced.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Whether this node announces a key: of those that hold it, the one that writes it.
    fn announces(&self, key: &[u8]) -> bool {
        let cluster = self.cluster.read().unwrap_or_else(PoisonError::into_inner);
        let view = cluster.as_ref();
        view.is_none_or(|view| view.serves(slot_of(key), false))
    }

    /// Announces a key that has expired; steps that patterns took at most.
    fn announce(&self, key: &[u8]) -> usize {
        let (mut steps, mut has_room) = (0, true);
        if !self.announces(key) {
            return steps;
        }
        self.wanted().messages(key, |channel, payload| {
            let to = (Kind::Channel, channel);
            steps += self.channels.steps(Kind::Channel, channel);
            has_room &= self.channels.publish(to, payload).is_ok();
        });
        let count = if has_room {
            &self.announced
        } else {
            &self.lost
        };
        count.fetch_add(1, Ordering::Relaxed);
        steps
    }
}

/// The keys of one shard that are to be announced.
pub(super) struct ShardExpirations {
    node: Arc<NodeExpirations>,
    keys: RefCell<ExpiringKeys>,
}

impl ShardExpirations {
    pub(super) fn new(node: &Arc<NodeExpirations>) -> Self {
        ShardExpirations {
            node: Arc::clone(node),
            keys: RefCell::default(),
        }
    }

    /// Whether keys are to be announced. If not, none waits any more.
    pub(super) fn is_wanted(&self) -> bool {
        let is_wanted = self.node.wanted().is_any();
        if !is_wanted && !self.keys.borrow().is_empty() {
            self.forget();
        }
        is_wanted
    }

    /// Forgets all keys.
    pub(super) fn forget(&self) {
        let keys = self.keys.take();
        if keys.len() > DROPPED_AT_ONCE {
            let dropper = std::thread::Builder::new().name("expiring-keys".to_string());
            // Without a thread they are dropped here.
            drop(dropper.spawn(move || drop(keys)));
        }
    }

    /// A key has this expiry from `time_ms` on.
    pub(super) fn changed(&self, key: &[u8], expiry_ms: Option<u64>, time_ms: u64) {
        if self.node.wanted().is_any() {
            let bytes_max = self.node.table_bytes_max;
            let mut keys = self.keys.borrow_mut();
            self.count(keys.changes(key, expiry_ms, time_ms, bytes_max));
        }
    }

    /// A value of a key was shown that has this expiry.
    pub(super) fn shown(&self, key: &[u8], expiry_ms: u64) {
        if self.node.wanted().is_any() {
            let bytes_max = self.node.table_bytes_max;
            self.keys.borrow_mut().shows(key, expiry_ms, bytes_max);
        }
    }

    fn count(&self, has_room: bool) {
        if !has_room {
            self.node.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It is so late: announces keys whose time is over, as many as a turn may. When the next one
    /// is to be announced.
    pub(super) fn expire(&self, time_ms: u64) -> Option<u64> {
        let (mut count, mut steps) = (0, 0);
        while count < ANNOUNCED_AT_ONCE && steps < STEPS_AT_ONCE {
            let key = self.keys.borrow_mut().take_expired(time_ms);
            let Some(key) = key else {
                break;
            };
            steps += self.node.announce(&key);
            count += 1;
        }
        self.keys.borrow().next_ms()
    }
}
