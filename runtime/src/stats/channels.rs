//! What the channels of clients of Redis take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_net::resp::MessageBytes;

/// What the channels of all cores take.
#[derive(Debug, Default)]
pub(crate) struct ChannelFigures {
    /// Names of subscriptions.
    pub(crate) names: MessageBytes,
    /// Messages that subscribers have not taken, each once.
    pub(crate) messages: Arc<MessageBytes>,
    /// Connections that were ended because too much waited for their peers.
    ended: AtomicU64,
    /// Messages that did not reach another node, each for each node.
    lost: AtomicU64,
}

/// [`ChannelFigures`] of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelsRead {
    pub(crate) names_bytes: u64,
    pub(crate) messages_bytes: u64,
    pub(crate) subscribers_ended: u64,
    pub(crate) lost: u64,
}

impl ChannelFigures {
    /// A connection is ended because too much waits for its peer.
    pub(crate) fn subscriber_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// So many messages did not reach another node, or had no room there.
    pub(crate) fn lose(&self, messages: usize) {
        self.lost.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> ChannelsRead {
        ChannelsRead {
            names_bytes: self.names.held() as u64,
            messages_bytes: self.messages.held() as u64,
            subscribers_ended: self.ended.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}
