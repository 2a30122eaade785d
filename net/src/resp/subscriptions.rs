//! What one connection subscribes to.

use std::collections::BTreeSet;

use super::message::Kind;

/// Names and patterns of one connection, at most.
pub const SUBSCRIPTIONS_MAX: usize = 4096;
/// Bytes of the name of a channel, and of a pattern.
pub const CHANNEL_BYTES_MAX: usize = 1024;

/// What one connection subscribes to.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    shard_channels: BTreeSet<Box<[u8]>>,
}

impl Subscriptions {
    fn of(&mut self, kind: Kind) -> &mut BTreeSet<Box<[u8]>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shard_channels,
        }
    }

    /// The names of a kind.
    pub(super) fn names(&self, kind: Kind) -> &BTreeSet<Box<[u8]>> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shard_channels,
        }
    }

    /// How many names and patterns there are.
    pub(super) fn len(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shard_channels.len()
    }

    /// The number that SUBSCRIBE and its like answer: names and patterns are counted together,
    /// channels of SSUBSCRIBE by themselves.
    pub(super) fn answered(&self, kind: Kind) -> usize {
        match kind {
            Kind::Shard => self.shard_channels.len(),
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
        }
    }

    pub(super) fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.names(kind).contains(name)
    }

    pub(super) fn add(&mut self, kind: Kind, name: &[u8]) {
        self.of(kind).insert(name.into());
    }

    /// `false` if it is none.
    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        self.of(kind).remove(name)
    }
}
