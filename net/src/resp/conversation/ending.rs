//! The end of a connection behind an error, or as its peer asked.

use super::Conversation;

/// Whether a connection ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// Nothing is taken any more.
    pub(super) has_begun: bool,
    /// It ends behind an error that its peer is to read: bytes that came behind it.
    dropped_bytes: Option<u64>,
}

impl Ending {
    /// It ends when its replies have left.
    pub(super) fn begin(&mut self) {
        self.has_begun = true;
    }

    /// The same, behind an error.
    pub(super) fn begin_by_error(&mut self) {
        self.has_begun = true;
        self.dropped_bytes.get_or_insert(0);
    }

    /// So many bytes were dropped.
    pub(super) fn drops(&mut self, bytes: usize) {
        if let Some(dropped) = &mut self.dropped_bytes {
            *dropped += bytes as u64;
        }
    }
}

impl Conversation {
    /// Bytes that were dropped behind the error that ends the connection. `None`: no error ends it.
    /// A socket that is closed while its peer sends takes the error away from the peer.
    #[must_use]
    pub fn dropped_bytes(&self) -> Option<u64> {
        self.talk.ending.dropped_bytes
    }
}
