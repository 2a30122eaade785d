//! The commands of channels, and one table of them and all others.

use super::{Command, Name};

/// The commands of channels, by their names.
pub(super) const OF_CHANNELS: &[Command] = &[
    Command {
        name: "psubscribe",
        id: Name::PSubscribe,
        arity: -2,
        flags: "pubsub noscript loading stale",
        keys: (0, 0, 0),
        group: "pubsub",
        since: "2.0.0",
        summary: "Listens for messages published to channels that match one or more patterns.",
    },
    Command {
        name: "publish",
        id: Name::Publish,
        arity: 3,
        flags: "pubsub loading stale fast",
        keys: (0, 0, 0),
        group: "pubsub",
        since: "2.0.0",
        summary: "Posts a message to a channel.",
    },
    Command {
        name: "pubsub",
        id: Name::PubSub,
        arity: -2,
        flags: "",
        keys: (0, 0, 0),
        group: "pubsub",
        since: "2.8.0",
        summary: "A container for Pub/Sub commands.",
    },
    Command {
        name: "punsubscribe",
        id: Name::PUnsubscribe,
        arity: -1,
        flags: "pubsub noscript loading stale",
        keys: (0, 0, 0),
        group: "pubsub",
        since: "2.0.0",
        summary: "Stops listening to messages published to channels that match patterns.",
    },
    Command {
        name: "spublish",
        id: Name::SPublish,
        arity: 3,
        flags: "pubsub loading stale fast",
        keys: (1, 1, 1),
        group: "pubsub",
        since: "7.0.0",
        summary: "Posts a message to a shard channel.",
    },
    Command {
        name: "ssubscribe",
        id: Name::SSubscribe,
        arity: -2,
        flags: "pubsub noscript loading stale",
        keys: (1, -1, 1),
        group: "pubsub",
        since: "7.0.0",
        summary: "Listens for messages published to shard channels.",
    },
    Command {
        name: "subscribe",
        id: Name::Subscribe,
        arity: -2,
        flags: "pubsub noscript loading stale",
        keys: (0, 0, 0),
        group: "pubsub",
        since: "2.0.0",
        summary: "Listens for messages published to channels.",
    },
    Command {
        name: "sunsubscribe",
        id: Name::SUnsubscribe,
        arity: -1,
        flags: "pubsub noscript loading stale",
        keys: (1, -1, 1),
        group: "pubsub",
        since: "7.0.0",
        summary: "Stops listening to messages posted to shard channels.",
    },
    Command {
        name: "unsubscribe",
        id: Name::Unsubscribe,
        arity: -1,
        flags: "pubsub noscript loading stale",
        keys: (0, 0, 0),
        group: "pubsub",
        since: "2.0.0",
        summary: "Stops listening to messages posted to channels.",
    },
];

/// Two tables as one, by the names.
pub(super) const fn merged<const LEN: usize>(one: &[Command], other: &[Command]) -> [Command; LEN] {
    assert!(one.len() + other.len() == LEN);
    let (mut all, mut left, mut right) = ([one[0]; LEN], 0, 0);
    while left + right < LEN {
        let is_left = right == other.len()
            || left < one.len() && is_before(one[left].name, other[right].name);
        all[left + right] = if is_left { one[left] } else { other[right] };
        if is_left {
            left += 1;
        } else {
            right += 1;
        }
    }
    all
}

const fn is_before(one: &str, other: &str) -> bool {
    let (one, other, mut at) = (one.as_bytes(), other.as_bytes(), 0);
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() || at < other.len() && one[at] < other[at]
}
