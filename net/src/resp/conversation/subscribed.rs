//! SUBSCRIBE and its like, PUBLISH, and the messages that a connection gets.

use crate::rights::{Need, Rights};
use crate::slot::slot_of;

use super::super::answer::moved;
use super::super::glob;
use super::super::host::Host;
use super::super::message::Kind;
use super::super::parser::Arguments;
use super::super::pause::Pause;
use super::super::pubsub::{NONE_HERE, check_name};
use super::super::pushes::{Push, Pushes};
use super::super::reply::{Protocol, Replies};
use super::super::sink::Sink;
use super::super::subscriptions::{SUBSCRIPTIONS_MAX, Subscriptions};
use super::super::table::{Command, Name};
use super::super::tracking::Tracking;
use super::super::words;
use super::{CROSS_SLOT, Conversation, OUT_BYTES_MAX, OUT_BYTES_MIN, Passed, Talk};

const NO_CHANNEL: &[u8] = b"NOPERM No permissions to access a channel";
/// Bytes of an answer to SUBSCRIBE and its like beside the name.
const ANSWER_BYTES: usize = 48;
/// Bytes of messages that may wait for a peer, however little is left.
const WAITING_BYTES_MIN: usize = 4 << 10;
/// The part of what is left that may wait for one peer.
const SHARE_DIVISOR: usize = 16;

/// Steps of patterns that messages take before others have their turn.
const STEPS_AT_ONCE: usize = 1 << 20;

/// Why no more of what has come is taken for now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    /// Answers are waited for, or that replies leave.
    pub(super) is_blocked: bool,
    /// Others are to have their turn.
    rests: bool,
    /// Steps of patterns that messages have taken since they had it.
    steps: usize,
    /// CLIENT PAUSE holds at the node.
    pub(super) of_node: Option<Pause>,
    /// It holds the command at the front.
    pub(super) is_held: bool,
}

/// What a connection subscribes to, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Subscribed {
    pub(super) subscriptions: Subscriptions,
    pub(super) pushes: Pushes,
    /// The keys that it tracks.
    pub(super) tracking: Option<Tracking>,
    /// A command ends subscriptions when the core has given out so many messages.
    ends_behind: Option<u64>,
}

/// Bytes of messages that wait for a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushBytes {
    /// Of the list of them.
    pub list: usize,
    /// Of the messages, as if each were a copy.
    pub messages: usize,
}

/// What became of a message for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It waits for the peer.
    Waits,
    /// It is for others: the connection does not subscribe any more, or may not read it.
    Passed,
    /// Too much waits for the peer: the connection is to be ended.
    TooMuch,
}

impl Conversation {
    /// A message comes for the connection. So many bytes are left for the messages of all.
    pub fn receive(&mut self, push: Push, messages_left: usize) -> Received {
        self.talk.receive(push, messages_left)
    }

    /// Moves what may leave to the empty `into`.
    pub fn take_out(&mut self, into: &mut Vec<u8>) {
        self.talk.take_out(into);
    }

    /// The connection has ended: it subscribes to nothing any more.
    pub fn ended(&mut self, host: &dyn Host) {
        self.talk.end_subscriptions(host);
    }

    /// Whether others are to have their turn before more is taken: what was published has taken
    /// many steps, or messages are in the mail of the core.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.talk.pauses.rests
    }

    /// What waits for the peer beside [`Conversation::out`].
    #[must_use]
    pub fn push_bytes(&self) -> PushBytes {
        let subscribed = self.talk.subscribed.as_ref();
        subscribed.map_or(PushBytes::default(), |it| PushBytes {
            list: it.pushes.list_bytes(),
            messages: it.pushes.bytes(),
        })
    }

    /// Whether [`Conversation::take_out`] would have something to give.
    #[must_use]
    pub fn may_send(&self) -> bool {
        let talk = &self.talk;
        let has_messages = talk.has_pushes() && !talk.is_within_reply() && !talk.waits_to_push();
        !talk.out.is_empty() || talk.is_within_push() || has_messages
    }
}

impl Talk {
    pub(super) fn subscribed_mut(&mut self) -> &mut Subscribed {
        self.subscribed.get_or_insert_default()
    }

    /// Whether messages wait for the peer.
    pub(super) fn has_pushes(&self) -> bool {
        let subscribed = self.subscribed.as_ref();
        subscribed.is_some_and(|it| !it.pushes.is_empty())
    }

    /// Whether messages that have counted this connection have not left. A command that ends
    /// subscriptions waits for those.
    pub(super) fn awaits_messages(&mut self, host: &dyn Host) -> bool {
        let Some(subscribed) = &mut self.subscribed else {
            return false;
        };
        if subscribed.subscriptions.len() > 0
            && let Some(broker) = host.broker()
        {
            let (mailed, given) = broker.mail();
            if given < *subscribed.ends_behind.get_or_insert(mailed) {
                self.pauses.rests = true;
                return true;
            }
        }
        if !subscribed.pushes.is_empty() {
            return true;
        }
        subscribed.ends_behind = None;
        false
    }

    /// Whether a part of a reply is written and another is not.
    fn is_within_reply(&self) -> bool {
        self.current_entry.is_some() || self.ring.is_within_reply()
    }

    /// Whether the first message that waits does so for a reply.
    fn waits_to_push(&self) -> bool {
        let subscribed = self.subscribed.as_ref();
        subscribed.is_some_and(|it| it.pushes.waits_for(self.ring.first_entry()))
    }

    /// Whether a part of a message has left and another has not.
    pub(super) fn is_within_push(&self) -> bool {
        let subscribed = self.subscribed.as_ref();
        subscribed.is_some_and(|it| it.pushes.is_within_one())
    }

    /// Whether only some commands are taken: replies and messages look the same in RESP2.
    pub(super) fn is_restricted(&self) -> bool {
        let subscribed = self.subscribed.as_ref();
        self.protocol == Protocol::Resp2 && subscribed.is_some_and(|it| it.subscriptions.len() > 0)
    }

    /// Refuses a command that a connection of RESP2 with subscriptions may not send.
    #[cold]
    pub(super) fn refuse_restricted(&mut self, command: &Command, args: Arguments<'_>) -> Passed {
        let mut name = command.name.to_string();
        if command.has_subcommands() && args.len() > 1 {
            let part = args.get(1);
            let part = part[..part.len().min(words::SHOWN_BYTES_MAX)].to_ascii_lowercase();
            name.push('|');
            name.push_str(&part.escape_ascii().to_string());
        }
        let text = format!(
            "Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context"
        );
        match command.id {
            Name::Exec => self.refuse_only(
                format!("EXECABORT Transaction discarded because of: {text}").as_bytes(),
            ),
            _ => self.refuse_only(format!("ERR {text}").as_bytes()),
        }
    }

    /// PING of such a connection.
    pub(super) fn ping_restricted(&mut self, args: Arguments<'_>) -> Passed {
        if args.len() > 2 {
            return self.refuse(|out| words::wrong_arity("ping", out));
        }
        let word = args.from(1).next().unwrap_or_default();
        let protocol = self.protocol;
        self.ring.reply(protocol, &mut self.out, |replies| {
            replies.array(2);
            replies.bulk(b"pong");
            replies.bulk(word);
        });
        Passed::Whole
    }

    /// SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE.
    pub(super) fn subscribe(&mut self, kind: Kind, args: Arguments<'_>, host: &dyn Host) -> Passed {
        let Some(broker) = host.broker() else {
            return self.refuse_only(NONE_HERE);
        };
        if self.awaits_silence() {
            return Passed::Waits;
        }
        if let Err(text) = self.judge_names(kind, args) {
            return self.refuse_only(&text);
        }
        if kind == Kind::Shard && self.is_clustered {
            let slot = slot_of(args.get(1));
            if args.from(1).any(|name| slot_of(name) != slot) {
                return self.refuse_only(CROSS_SLOT);
            }
            if !host.serves(slot, false) {
                return self.is_moved(slot, host);
            }
        }
        let client = self.client.id;
        let mut counts = Vec::with_capacity(args.len() - 1);
        let mut new: Vec<&[u8]> = Vec::new();
        for name in args.from(1) {
            let subscriptions = &mut self.subscribed_mut().subscriptions;
            if !subscriptions.has(kind, name) {
                if let Err(full) = broker.subscribe(kind, name, client) {
                    for name in new {
                        subscriptions.remove(kind, name);
                        broker.unsubscribe(kind, name, client);
                    }
                    return self.refuse_only(full.text().as_bytes());
                }
                subscriptions.add(kind, name);
                new.push(name);
            }
            counts.push(subscriptions.answered(kind));
        }
        self.note_subscriptions(host);
        let word = match kind {
            Kind::Channel => "subscribe",
            Kind::Pattern => "psubscribe",
            Kind::Shard => "ssubscribe",
        };
        self.answers_aloud(|replies| {
            for (name, count) in args.from(1).zip(counts) {
                answer(word, Some(name), count, replies);
            }
        });
        Passed::Whole
    }

    /// Whether a connection may subscribe to these names: how long and how many they are, and its
    /// rights.
    fn judge_names(&self, kind: Kind, args: Arguments<'_>) -> Result<(), Vec<u8>> {
        args.from(1).try_for_each(check_name)?;
        let subscribed = self.subscribed.as_ref();
        let held = subscribed.map_or(0, |it| it.subscriptions.len());
        let named = args.len() - 1;
        if held + named > SUBSCRIPTIONS_MAX {
            return Err(format!(
                "ERR a connection has at most {SUBSCRIPTIONS_MAX} subscriptions: it has {held}, \
                 and {named} more are named"
            )
            .into_bytes());
        }
        self.judge_answer(args.from(1))?;
        let is_allowed = |name| may_read(self.rights.as_deref(), kind, name);
        match args.from(1).all(is_allowed) {
            true => Ok(()),
            false => Err(NO_CHANNEL.to_vec()),
        }
    }

    /// Whether there is room for the answers about these names.
    fn judge_answer<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Result<(), Vec<u8>> {
        let bytes = names.map(|name| name.len() + ANSWER_BYTES).sum::<usize>();
        let bound = self.bound;
        match bytes <= bound.bytes_max() {
            true => Ok(()),
            false => Err(format!("ERR the reply would take {bytes} bytes, and {bound}").into()),
        }
    }

    /// UNSUBSCRIBE, PUNSUBSCRIBE, SUNSUBSCRIBE. Messages that have come before leave before.
    pub(super) fn unsubscribe(
        &mut self,
        kind: Kind,
        args: Arguments<'_>,
        host: &dyn Host,
    ) -> Passed {
        if self.awaits_messages(host) || self.awaits_silence() {
            return Passed::Waits;
        }
        let subscriptions = &mut self.subscribed_mut().subscriptions;
        let names: Vec<Vec<u8>> = match args.len() {
            1 => subscriptions
                .names(kind)
                .iter()
                .map(|it| it.to_vec())
                .collect(),
            _ if args.len() - 1 > SUBSCRIPTIONS_MAX => {
                let text =
                    format!("ERR at most {SUBSCRIPTIONS_MAX} names may stand in one command");
                return self.refuse_only(text.as_bytes());
            }
            _ => args.from(1).map(<[u8]>::to_vec).collect(),
        };
        if let Err(text) = self.judge_answer(names.iter().map(|it| &it[..])) {
            return self.refuse_only(&text);
        }
        let client = self.client.id;
        let subscriptions = &mut self.subscribed_mut().subscriptions;
        let counts: Vec<usize> = names
            .iter()
            .map(|name| {
                if subscriptions.remove(kind, name)
                    && let Some(broker) = host.broker()
                {
                    broker.unsubscribe(kind, name, client);
                }
                subscriptions.answered(kind)
            })
            .collect();
        let left = subscriptions.answered(kind);
        self.note_subscriptions(host);
        let word = match kind {
            Kind::Channel => "unsubscribe",
            Kind::Pattern => "punsubscribe",
            Kind::Shard => "sunsubscribe",
        };
        self.answers_aloud(|replies| {
            if names.is_empty() {
                answer(word, None, left, replies);
            }
            for (name, count) in names.iter().zip(counts) {
                answer(word, Some(name), count, replies);
            }
        });
        Passed::Whole
    }

    /// CLIENT LIST tells how many subscriptions there are.
    fn note_subscriptions(&mut self, host: &dyn Host) {
        let subscriptions = &self.subscribed_mut().subscriptions;
        let count = |kind| {
            let names = subscriptions.names(kind).len();
            u32::try_from(names).expect("subscriptions are bounded")
        };
        let counts = [Kind::Channel, Kind::Pattern, Kind::Shard].map(count);
        self.client.subscriptions = counts;
        host.client_changed(&self.client);
    }

    /// Ends all subscriptions, and the tracking of keys.
    pub(super) fn end_subscriptions(&mut self, host: &dyn Host) {
        self.stop_tracking(host);
        let Some(subscribed) = self.subscribed.take() else {
            return;
        };
        self.client.subscriptions = [0; 3];
        let Some(broker) = host.broker() else {
            return;
        };
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in subscribed.subscriptions.names(kind) {
                broker.unsubscribe(kind, name, self.client.id);
            }
        }
    }

    /// PUBLISH and SPUBLISH. What the connection has written before is there when a message leaves,
    /// so it leaves when all commands before it are answered.
    pub(super) fn publish(
        &mut self,
        kind: Kind,
        args: Arguments<'_>,
        sink: &Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if !self.ring.is_empty() || !sink.is_empty() {
            return Passed::Waits;
        }
        if self.pauses.steps >= STEPS_AT_ONCE {
            self.pauses.rests = true;
            return Passed::Waits;
        }
        let (channel, payload) = (args.get(1), args.get(2));
        if let Some(broker) = host.broker() {
            self.pauses.steps += broker.steps(kind, channel);
        }
        let published = self.judge_publish(channel).and_then(|()| {
            let broker = host.broker().ok_or_else(|| NONE_HERE.to_vec())?;
            if kind == Kind::Shard && self.is_clustered && !host.serves(slot_of(channel), false) {
                return Ok(None);
            }
            let receivers = broker.publish(kind, channel, payload);
            receivers.map(Some).map_err(|full| full.text().into_bytes())
        });
        match published {
            Err(text) => self.refuse_only(&text),
            Ok(None) => self.is_moved(slot_of(channel), host),
            Ok(Some(receivers)) => {
                let protocol = self.protocol;
                self.ring.reply(protocol, &mut self.out, |replies| {
                    replies.integer(i64::try_from(receivers).unwrap_or(i64::MAX));
                });
                Passed::Whole
            }
        }
    }

    fn judge_publish(&self, channel: &[u8]) -> Result<(), Vec<u8>> {
        check_name(channel)?;
        let rights = self.rights.as_deref();
        match rights.is_none_or(|rights| rights.allows(Need::WRITE, channel)) {
            true => Ok(()),
            false => Err(NO_CHANNEL.to_vec()),
        }
    }

    /// Another node has the slot.
    fn is_moved(&mut self, slot: u16, host: &dyn Host) -> Passed {
        let protocol = self.protocol;
        self.ring.reply(protocol, &mut self.out, |replies| {
            moved(slot, None, host, replies);
        });
        Passed::Whole
    }

    /// Bytes of messages that may wait for the peer, of so many that are left for all.
    pub(super) fn waiting_bytes_max(&self, messages_left: usize) -> usize {
        let share = messages_left.min(self.bound.left) / SHARE_DIVISOR;
        share.max(WAITING_BYTES_MIN).min(self.bound.one)
    }

    fn receive(&mut self, push: Push, messages_left: usize) -> Received {
        let Some((kind, name, channel)) = push.subscription() else {
            return Received::Passed;
        };
        let bytes = push.bytes();
        let is_wanted = self
            .subscribed
            .as_ref()
            .is_some_and(|it| it.subscriptions.has(kind, name));
        if !is_wanted || !may_read(self.rights.as_deref(), Kind::Channel, channel) {
            return Received::Passed;
        }
        let bytes_max = self.waiting_bytes_max(messages_left);
        let behind = self.pushes_behind();
        let pushes = &mut self.subscribed_mut().pushes;
        // Who has taken all before gets one, however long it is.
        if !pushes.is_empty() && pushes.bytes() + bytes > bytes_max {
            pushes.clear();
            return Received::TooMuch;
        }
        pushes.add(push, behind);
        Received::Waits
    }

    /// Moves what may leave to the empty `into`: the rest of a message that has begun to leave,
    /// replies, and messages whose turn has come.
    fn take_out(&mut self, into: &mut Vec<u8>) {
        let bytes_left = self.bound.left;
        self.drop_undeliverable();
        let Some(subscribed) = &mut self.subscribed else {
            std::mem::swap(&mut self.out, into);
            return;
        };
        let bytes_max = (bytes_left / SHARE_DIVISOR).clamp(OUT_BYTES_MIN, OUT_BYTES_MAX);
        let pushes = &mut subscribed.pushes;
        pushes.write_begun(bytes_max, into);
        if pushes.is_within_one() {
            return;
        }
        match into.is_empty() {
            true => std::mem::swap(&mut self.out, into),
            false => into.append(&mut self.out),
        }
        let is_within_reply = self.is_within_reply();
        let Some(subscribed) = &mut self.subscribed else {
            return;
        };
        if !is_within_reply {
            let pushes = &mut subscribed.pushes;
            // Many replies do not keep messages from leaving.
            let bytes_max = bytes_max.max(into.len() + OUT_BYTES_MIN);
            let at = (self.ring.first_entry(), self.protocol);
            pushes.write(at, bytes_max, into);
        }
    }
}

/// Whether a user may subscribe to a channel, or to all channels of a pattern: the names of
/// channels are judged as keys are.
pub(super) fn may_read(rights: Option<&Rights>, kind: Kind, name: &[u8]) -> bool {
    let begin = match kind {
        Kind::Pattern => glob::literal_prefix(name),
        Kind::Channel | Kind::Shard => name,
    };
    rights.is_none_or(|rights| rights.allows(Need::READ, begin))
}

/// Writes the answer about one name.
fn answer(word: &str, name: Option<&[u8]>, count: usize, replies: &mut Replies<'_>) {
    replies.push(3);
    replies.bulk(word.as_bytes());
    match name {
        Some(name) => replies.bulk(name),
        None => replies.null(),
    }
    replies.integer(i64::try_from(count).unwrap_or(i64::MAX));
}
