//! Messages of PUBLISH. All receivers share the one copy of a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that a message takes beside its channel and its payload.
const MESSAGE_BYTES: usize = 96;

/// What can be subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A channel of PUBLISH.
    Channel,
    /// All channels of PUBLISH with names of a pattern.
    Pattern,
    /// A channel of SPUBLISH, which belongs to the slot of its name.
    Shard,
}

/// Bytes of all messages of a node that have not left, each counted once.
#[derive(Debug, Default)]
pub struct MessageBytes(AtomicUsize);

impl MessageBytes {
    /// The bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts so many bytes more. `false` if they would be more than `bytes_max`: none is counted.
    #[must_use]
    pub fn take(&self, bytes: usize, bytes_max: usize) -> bool {
        let more = |held: usize| held.checked_add(bytes).filter(|all| *all <= bytes_max);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Counts so many bytes no more.
    pub fn give(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A message of PUBLISH or SPUBLISH. Its bytes count until the last who holds it drops it.
#[derive(Debug)]
pub struct Message {
    kind: Kind,
    channel: Box<[u8]>,
    payload: Box<[u8]>,
    counted: Arc<MessageBytes>,
}

impl Message {
    /// A message to a channel of this kind. `None`: all messages together would take more than
    /// `bytes_max`.
    #[must_use]
    pub fn new(
        (kind, channel, payload): (Kind, &[u8], &[u8]),
        counted: &Arc<MessageBytes>,
        bytes_max: usize,
    ) -> Option<Arc<Message>> {
        let bytes = MESSAGE_BYTES + channel.len() + payload.len();
        counted.take(bytes, bytes_max).then(|| {
            Arc::new(Message {
                kind,
                channel: channel.into(),
                payload: payload.into(),
                counted: Arc::clone(counted),
            })
        })
    }

    /// [`Kind::Channel`] or [`Kind::Shard`].
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it was published.
    #[must_use]
    pub fn channel(&self) -> &[u8] {
        &self.channel
    }

    /// What was published.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        MESSAGE_BYTES + self.channel.len() + self.payload.len()
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.counted.give(self.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_once_until_the_last_holder_drops_it() {
        let counted = Arc::new(MessageBytes::default());
        let new = |bytes_max| Message::new((Kind::Channel, b"c", &[7; 1000]), &counted, bytes_max);
        let message = new(2000).expect("there is room");
        let others = vec![Arc::clone(&message); 100];
        assert_eq!(counted.held(), 1000 + 1 + MESSAGE_BYTES);
        assert!(new(2000).is_none(), "the second one has no room");
        drop(message);
        assert_eq!(counted.held(), 1000 + 1 + MESSAGE_BYTES);
        drop(others);
        assert_eq!(counted.held(), 0);
        assert!(new(2000).is_some());
    }
}
