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
}

impl ChannelFigures {
    /// A connection is ended because too much waits for its peer.
    pub(crate) fn subscriber_ended(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of names, bytes of messages, and how many connections were ended.
    pub(crate) fn read(&self) -> [u64; 3] {
        let ended = self.ended.load(Ordering::Relaxed);
        [self.names.held() as u64, self.messages.held() as u64, ended]
    }
}
