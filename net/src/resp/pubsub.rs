//! PUBSUB, and the replies of PUBLISH.

use super::bound::ReplyBound;
use super::broker::Broker;
use super::glob::{self, Steps};
use super::host::Host;
use super::message::Kind;
use super::parser::Arguments;
use super::reply::Replies;
use super::subscriptions::CHANNEL_BYTES_MAX;
use super::words::{unknown_subcommand, wrong_subcommand};

/// What a node answers where nobody can subscribe.
pub(super) const NONE_HERE: &[u8] = b"ERR this node has no channels";
/// Steps that the pattern of PUBSUB CHANNELS may take over all names.
const STEPS_MAX: usize = 16 << 20;

const HELP: [&str; 11] = [
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
];

/// Refuses the name of a channel that is too long.
pub(super) fn check_name(name: &[u8]) -> Result<(), Vec<u8>> {
    let bytes = name.len();
    match bytes <= CHANNEL_BYTES_MAX {
        true => Ok(()),
        false => Err(format!(
            "ERR a channel or a pattern has at most {CHANNEL_BYTES_MAX} bytes, and this one has \
             {bytes}"
        )
        .into_bytes()),
    }
}

/// Answers PUBSUB, which has a subcommand.
pub(super) fn answer(
    args: Arguments<'_>,
    bound: ReplyBound,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) {
    let word = args.get(1).to_ascii_lowercase();
    let Some(broker) = host.broker() else {
        return replies.error(NONE_HERE);
    };
    match (&word[..], args.len()) {
        (b"channels", 2..=3) => names(Kind::Channel, args, bound, broker, replies),
        (b"shardchannels", 2..=3) => names(Kind::Shard, args, bound, broker, replies),
        (b"numsub", _) => counts(Kind::Channel, args, bound, broker, replies),
        (b"shardnumsub", _) => counts(Kind::Shard, args, bound, broker, replies),
        (b"numpat", 2) => {
            let patterns = broker.names(Kind::Pattern);
            replies.integer(i64::try_from(patterns).unwrap_or(i64::MAX));
        }
        (b"help", 2) => replies.help("PUBSUB", &HELP),
        (b"channels" | b"shardchannels", _) => {
            let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
            text.extend_from_slice(args.get(1));
            text.extend_from_slice(b"'. Try PUBSUB HELP.");
            replies.error(&text);
        }
        (b"numpat" | b"help", _) => {
            wrong_subcommand(&format!("pubsub|{}", word.escape_ascii()), replies);
        }
        _ => unknown_subcommand("PUBSUB", args, replies),
    }
}

/// The names that somebody subscribes to, of a pattern.
fn names(
    kind: Kind,
    args: Arguments<'_>,
    bound: ReplyBound,
    broker: &dyn Broker,
    replies: &mut Replies<'_>,
) {
    let pattern = (args.len() == 3).then(|| args.get(2));
    if let Some(pattern) = pattern
        && let Err(text) = check_name(pattern)
    {
        return replies.error(&text);
    }
    let (mut found, mut bytes, mut steps) = (Vec::new(), 0, 0);
    let bytes_max = bound.bytes_max();
    let each = pattern.map_or(Steps::default(), Steps::of_pattern);
    broker.visit_names(kind, &mut |name| {
        steps += each.over(name.len()) + name.len();
        if pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
            bytes += name.len() + 16;
            if bytes <= bytes_max {
                found.push(name.to_vec());
            }
        }
        steps <= STEPS_MAX && bytes <= bytes_max
    });
    if steps > STEPS_MAX {
        let text = format!(
            "ERR the pattern takes more than {STEPS_MAX} steps over the names of all channels"
        );
        return replies.error(text.as_bytes());
    }
    if bytes > bytes_max {
        let text = format!("ERR the names take more than {bytes} bytes, and {bound}");
        return replies.error(text.as_bytes());
    }
    replies.array(found.len());
    found.iter().for_each(|name| replies.bulk(name));
}

/// How many subscribe to each of the names.
fn counts(
    kind: Kind,
    args: Arguments<'_>,
    bound: ReplyBound,
    broker: &dyn Broker,
    replies: &mut Replies<'_>,
) {
    let bytes = args.from(2).map(|name| name.len() + 32).sum::<usize>();
    if bytes > bound.bytes_max() {
        let text = format!("ERR the reply would take {bytes} bytes, and {bound}");
        return replies.error(text.as_bytes());
    }
    replies.array(2 * (args.len() - 2));
    for name in args.from(2) {
        replies.bulk(name);
        let subscribers = broker.subscribers(kind, name);
        replies.integer(i64::try_from(subscribers).unwrap_or(i64::MAX));
    }
}
