//! Who subscribes to what at one core.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::glob::{self, Steps};
use super::message::{Kind, Message};

/// Bytes that a subscription takes beside its name.
const SUBSCRIPTION_BYTES: usize = 160;

/// Bytes that a subscription takes: its name stands in a list of the node and in one of the
/// connection.
#[must_use]
pub fn subscription_bytes(name: &[u8]) -> usize {
    SUBSCRIPTION_BYTES + 2 * name.len()
}

/// The subscribers of channels, by the numbers of their connections.
type Subscribers = BTreeSet<u64>;

/// Who subscribes to what at one core.
///
/// What must hold: no name is kept that nobody subscribes to.
#[derive(Debug, Default)]
pub struct Channels {
    channels: BTreeMap<Box<[u8]>, Subscribers>,
    shard_channels: BTreeMap<Box<[u8]>, Subscribers>,
    patterns: BTreeMap<Arc<[u8]>, Subscribers>,
    /// Of all patterns, each once.
    steps: Steps,
}

impl Channels {
    fn names_of(&mut self, kind: Kind) -> &mut BTreeMap<Box<[u8]>, Subscribers> {
        match kind {
            Kind::Shard => &mut self.shard_channels,
            Kind::Channel | Kind::Pattern => &mut self.channels,
        }
    }

    /// Steps that all patterns may take for the name of a channel.
    #[must_use]
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// Whether somebody subscribes to this pattern.
    #[must_use]
    pub fn has_pattern(&self, pattern: &[u8]) -> bool {
        self.patterns.contains_key(pattern)
    }

    /// A connection subscribes. `false` if it does so already.
    pub fn add(&mut self, kind: Kind, name: &[u8], client: u64) -> bool {
        if kind == Kind::Pattern {
            if let Some(known) = self.patterns.get_mut(name) {
                return known.insert(client);
            }
            let steps = Steps::of_pattern(name);
            self.steps.once += steps.once;
            self.steps.each_byte += steps.each_byte;
            self.patterns.insert(name.into(), BTreeSet::from([client]));
            return true;
        }
        let names = self.names_of(kind);
        match names.get_mut(name) {
            Some(known) => known.insert(client),
            None => {
                names.insert(name.into(), BTreeSet::from([client]));
                true
            }
        }
    }

    /// A connection does not subscribe any more. `false` if it has not.
    pub fn remove(&mut self, kind: Kind, name: &[u8], client: u64) -> bool {
        let known = match kind {
            Kind::Pattern => self.patterns.get_mut(name),
            _ => self.names_of(kind).get_mut(name),
        };
        let Some(known) = known else {
            return false;
        };
        let was_there = known.remove(&client);
        if known.is_empty() && kind == Kind::Pattern {
            self.patterns.remove(name);
            let steps = Steps::of_pattern(name);
            self.steps.once -= steps.once;
            self.steps.each_byte -= steps.each_byte;
        } else if known.is_empty() {
            self.names_of(kind).remove(name);
        }
        was_there
    }

    /// How many subscribe to a channel by its name.
    #[must_use]
    pub fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let known = match kind {
            Kind::Channel => self.channels.get(name),
            Kind::Shard => self.shard_channels.get(name),
            Kind::Pattern => self.patterns.get(name),
        };
        known.map_or(0, Subscribers::len)
    }

    /// How many times a message to a channel is received.
    #[must_use]
    pub fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let by_name = self.subscribers(kind, channel);
        let by_pattern = self.matching(kind, channel).map(|(_, it)| it.len());
        by_name + by_pattern.sum::<usize>()
    }

    /// The receivers of a message: those of the channel first, then those of each pattern.
    pub fn visit(&self, message: &Message, mut visit: impl FnMut(u64, Option<&Arc<[u8]>>)) {
        let (kind, channel) = (message.kind(), message.channel());
        let by_name = match kind {
            Kind::Shard => self.shard_channels.get(channel),
            Kind::Channel | Kind::Pattern => self.channels.get(channel),
        };
        by_name
            .into_iter()
            .flatten()
            .for_each(|client| visit(*client, None));
        for (pattern, clients) in self.matching(kind, channel) {
            clients
                .iter()
                .for_each(|client| visit(*client, Some(pattern)));
        }
    }

    /// The patterns of a channel. Those of PUBLISH alone have any.
    fn matching<'a>(
        &'a self,
        kind: Kind,
        channel: &'a [u8],
    ) -> impl Iterator<Item = (&'a Arc<[u8]>, &'a Subscribers)> {
        let patterns = self.patterns.iter().filter(move |_| kind == Kind::Channel);
        patterns.filter(move |(pattern, _)| glob::matches(pattern, channel))
    }

    /// The first name that somebody subscribes to, or the next one behind `last`.
    #[must_use]
    pub fn name_behind(&self, kind: Kind, last: Option<&[u8]>) -> Option<&[u8]> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::Unbounded);
        let named = match kind {
            Kind::Channel => &self.channels,
            Kind::Shard => &self.shard_channels,
            Kind::Pattern => {
                let mut patterns = self.patterns.range::<[u8], _>(range);
                return patterns.next().map(|(name, _)| &**name);
            }
        };
        let mut names = named.range::<[u8], _>(range);
        names.next().map(|(name, _)| &**name)
    }

    /// The names that somebody subscribes to.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = &[u8]> {
        let named = match kind {
            Kind::Channel => Some(&self.channels),
            Kind::Shard => Some(&self.shard_channels),
            Kind::Pattern => None,
        };
        let patterns = (kind == Kind::Pattern).then_some(&self.patterns);
        let named = named.into_iter().flat_map(BTreeMap::keys).map(|it| &**it);
        let patterns = patterns.into_iter().flat_map(BTreeMap::keys);
        named.chain(patterns.map(|it| &**it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::message::MessageBytes;

    #[test]
    fn a_message_comes_once_for_the_name_and_once_for_each_pattern_of_a_subscriber() {
        let mut channels = Channels::default();
        assert!(channels.add(Kind::Channel, b"news.at", 1));
        assert!(!channels.add(Kind::Channel, b"news.at", 1));
        assert!(channels.add(Kind::Pattern, b"news.*", 1));
        assert!(channels.add(Kind::Pattern, b"*.at", 1));
        assert!(channels.add(Kind::Pattern, b"*.at", 2));
        assert!(channels.add(Kind::Shard, b"news.at", 3));
        assert_eq!(channels.receivers(Kind::Channel, b"news.at"), 4);
        assert_eq!(channels.receivers(Kind::Shard, b"news.at"), 1);
        assert_eq!(channels.receivers(Kind::Channel, b"news.de"), 1);
        let counted = Arc::new(MessageBytes::default());
        let message = (Kind::Channel, &b"news.at"[..], &b"hi"[..]);
        let message = Message::new(message, &counted, 1000).expect("there is room");
        let mut seen = Vec::new();
        channels.visit(&message, |client, pattern| {
            seen.push((client, pattern.map(|it| it.to_vec())));
        });
        let by = |pattern: &[u8]| Some(pattern.to_vec());
        let expected = [
            (1, None),
            (1, by(b"*.at")),
            (2, by(b"*.at")),
            (1, by(b"news.*")),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_name_that_nobody_subscribes_to_is_forgotten() {
        let mut channels = Channels::default();
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            assert!(!channels.remove(kind, b"a*b", 1));
            assert!(channels.add(kind, b"a*b", 1));
            assert!(channels.add(kind, b"a*b", 2));
            assert!(channels.remove(kind, b"a*b", 1));
            assert!(!channels.remove(kind, b"a*b", 1));
            assert_eq!(channels.names(kind).count(), 1);
            assert_eq!(channels.name_behind(kind, None), Some(&b"a*b"[..]));
            assert_eq!(channels.name_behind(kind, Some(b"a")), Some(&b"a*b"[..]));
            assert_eq!(channels.name_behind(kind, Some(b"a*b")), None);
            assert!(channels.remove(kind, b"a*b", 2));
            assert_eq!(channels.names(kind).count(), 0);
        }
        assert_eq!(channels.steps(), Steps::default());
    }
}
