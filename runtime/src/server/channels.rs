//! The channels of a node: who subscribes at which core, and the messages on their way there.
//!
//! ```text
//! PUBLISH at core 0: counts receivers of each core --> one message, shared --> mail of each core
//!                                                                              that has a receiver
//!                |
//!                +--> queues for the other nodes of a cluster (cluster/relay)
//! core 1: takes its mail --> asks its channels again --> pushes of each connection --> socket
//! ```
//!
//! What must hold: a core locks its own channels to change them, and others lock them to count; no
//! lock is held while something else is waited for. Messages of one publisher keep their order,
//! because each core has one queue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use penstock_net::resp::{
    BrokerFull, CHANNEL_BYTES_MAX, Channels, Kind, Message, MessageBytes, Steps, subscription_bytes,
};
use penstock_shard::publisher::{NoRoom, Posted, Publisher};

use crate::cluster::{PeerQueues, RelayParts};
use crate::stats::ChannelFigures;

/// Messages that may wait for one core.
const MAILED_MAX: usize = 1 << 16;
/// Tracked keys take this part of the places and of the bytes of messages at most: changes of keys
/// alone do not keep a message from being published.
const TRACKED_DIVISOR: usize = 2;
/// Messages that wait for other nodes take this part of the bytes of messages: a node that takes
/// none keeps no message from being published here.
const RELAYED_DIVISOR: usize = 4;
/// Steps that all patterns may take for the longest name of a channel.
const PATTERN_STEPS_MAX: usize = 1 << 22;

/// A connection that gets a tracked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    /// The connection that gets it, ...
    pub(crate) client: u64,
    /// ... and the one that tracks it.
    pub(crate) tracker: u64,
}

/// A tracked key that has changed, and connections of one core that are told.
#[derive(Debug)]
pub(crate) struct Invalidated {
    pub(crate) key: Arc<Message>,
    pub(crate) receivers: Box<[Receiver]>,
    counted: Arc<MessageBytes>,
}

impl Drop for Invalidated {
    fn drop(&mut self) {
        self.counted.give(size_of_val(&*self.receivers));
    }
}

/// What is in the mail of a core.
#[derive(Debug)]
pub(crate) enum Mailed {
    /// A message for the subscribers of its channel.
    Message(Arc<Message>),
    /// A tracked key has changed.
    Invalidated(Invalidated),
    /// All tracked keys have changed.
    AllInvalidated,
    /// CLIENT PAUSE holds nothing back any more.
    Unpaused,
    /// This connection may try a key that it waits for.
    MayTry(u64),
    /// CLIENT UNBLOCK has named a connection.
    Unblocked(Unblocked),
    /// The thread of the core stands still until then.
    Sleep(Instant),
    /// The connection is gone that gets the keys of another one.
    RedirectBroke {
        /// The connection that tracks them, ...
        tracker: u64,
        /// ... and the one that it has named.
        gone: u64,
    },
}

/// A connection whose wait is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unblocked {
    pub(crate) client: u64,
    /// What it had while it waited.
    pub(crate) ticket: u64,
    pub(crate) is_error: bool,
}

/// What one core has of the channels.
#[derive(Debug)]
struct CoreChannels {
    channels: RwLock<Channels>,
    /// Messages that wait for the core.
    mailed: AtomicUsize,
    /// How many were sent to the core so far, and how many of them its connections have got.
    sent: AtomicU64,
    given: AtomicU64,
    /// All tracked keys have changed, and that is in the mail.
    has_all_invalidated: AtomicBool,
    /// The end of a pause is in the mail.
    has_unpaused: AtomicBool,
    mail: flume::Sender<Mailed>,
}

impl CoreChannels {
    fn read(&self) -> RwLockReadGuard<'_, Channels> {
        self.channels.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Channels> {
        self.channels
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place in the mail. `false` if so many are taken.
    fn takes_place(&self, places_max: usize) -> bool {
        let more = |mailed: usize| (mailed < places_max).then_some(mailed + 1);
        self.mailed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn gives_place(&self) {
        self.mailed.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The channels of all cores.
#[derive(Debug)]
pub(crate) struct NodeChannels {
    cores: Box<[CoreChannels]>,
    /// What leaves for other nodes.
    peers: Arc<PeerQueues>,
    figures: Arc<ChannelFigures>,
    /// Bytes of messages, and of names, at most.
    bytes_max: usize,
}

impl NodeChannels {
    /// Channels of so many cores; messages and names may take so many bytes each. The mail of each
    /// core comes out at the other ends.
    pub(crate) fn new(
        cores: u16,
        bytes_max: usize,
        figures: &Arc<ChannelFigures>,
    ) -> (NodeChannels, Vec<flume::Receiver<Mailed>>) {
        let boxes: Vec<_> = (0..cores).map(|_| flume::unbounded()).collect();
        let of_core = |(mail, _): &(flume::Sender<Mailed>, _)| CoreChannels {
            channels: RwLock::default(),
            mailed: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            given: AtomicU64::new(0),
            has_all_invalidated: AtomicBool::new(false),
            has_unpaused: AtomicBool::new(false),
            mail: mail.clone(),
        };
        let channels = NodeChannels {
            cores: boxes.iter().map(of_core).collect(),
            peers: Arc::new(PeerQueues::new(bytes_max / RELAYED_DIVISOR, figures)),
            figures: Arc::clone(figures),
            bytes_max,
        };
        (channels, boxes.into_iter().map(|(_, mail)| mail).collect())
    }

    /// A connection of a core subscribes.
    pub(crate) fn subscribe(
        &self,
        core: u16,
        (kind, name): (Kind, &[u8]),
        client: u64,
    ) -> Result<(), BrokerFull> {
        let bytes = subscription_bytes(name);
        if !self.figures.names.take(bytes, self.bytes_max) {
            let bytes_max = self.bytes_max;
            return Err(BrokerFull::Names { bytes_max });
        }
        let own = &self.cores[usize::from(core)];
        // A pattern that is known at this core takes no steps more.
        if kind == Kind::Pattern && !own.read().has_pattern(name) {
            let longest = CHANNEL_BYTES_MAX;
            let held = self.cores.iter().map(|core| core.read().steps());
            let held = held.map(|steps| steps.over(longest)).sum::<usize>();
            let steps = held + Steps::of_pattern(name).over(longest);
            let steps_max = PATTERN_STEPS_MAX;
            if steps > steps_max {
                self.figures.names.give(bytes);
                return Err(BrokerFull::Patterns { steps, steps_max });
            }
        }
        if !own.write().add(kind, name, client) {
            self.figures.names.give(bytes);
        }
        Ok(())
    }

    /// It does not any more.
    pub(crate) fn unsubscribe(&self, core: u16, (kind, name): (Kind, &[u8]), client: u64) {
        let was_there = self.cores[usize::from(core)]
            .write()
            .remove(kind, name, client);
        if was_there {
            self.figures.names.give(subscription_bytes(name));
        }
    }

    /// How many times a message to a channel would be received.
    pub(crate) fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let of_core = |core: &CoreChannels| core.read().receivers(kind, channel);
        self.cores.iter().map(of_core).sum()
    }

    /// How many messages were sent to a core, and how many of them its connections have got.
    pub(crate) fn mail(&self, core: u16) -> (u64, u64) {
        let core = &self.cores[usize::from(core)];
        let sent = core.sent.load(Ordering::Relaxed);
        (sent, core.given.load(Ordering::Relaxed))
    }

    /// Steps that patterns take at most for a message to a channel.
    pub(crate) fn steps(&self, kind: Kind, channel: &[u8]) -> usize {
        let of_core = |core: &CoreChannels| core.read().steps().over(channel.len());
        match kind {
            Kind::Channel => self.cores.iter().map(of_core).sum(),
            Kind::Pattern | Kind::Shard => 0,
        }
    }

    /// What the connections to other nodes need. Messages that come are for this node alone.
    pub(crate) fn relay(self: &Arc<Self>) -> RelayParts {
        let channels = Arc::clone(self);
        RelayParts {
            queues: Arc::clone(&self.peers),
            take: Arc::new(move |channel, payload| {
                let to = (Kind::Channel, channel);
                match channels.post_to(to, payload, Reach::Node) {
                    Ok(post) => drop(post.map(Post::send)),
                    Err(_) => channels.figures.lose(1),
                }
            }),
        }
    }

    /// Keeps room for a message, and a place in the mail of each core that has a receiver: it may
    /// be sent then. `None`: nobody receives it, and nothing is kept. For other nodes no place is
    /// kept: there it may be lost.
    pub(crate) fn post(
        self: &Arc<Self>,
        to: (Kind, &[u8]),
        payload: &[u8],
    ) -> Result<Option<Post>, BrokerFull> {
        let reach = match to.0 {
            Kind::Channel if self.peers.peers() > 0 => Reach::Cluster,
            _ => Reach::Node,
        };
        self.post_to(to, payload, reach)
    }

    fn post_to(
        self: &Arc<Self>,
        (kind, channel): (Kind, &[u8]),
        payload: &[u8],
        reach: Reach,
    ) -> Result<Option<Post>, BrokerFull> {
        let mut post = Post {
            channels: Arc::clone(self),
            message: None,
            cores: Vec::new(),
            receivers: 0,
            reach,
        };
        // What has taken a place gives it back when it is dropped.
        for (number, core) in self.cores.iter().enumerate() {
            let receivers = core.read().receivers(kind, channel);
            if receivers == 0 {
                continue;
            }
            if !core.takes_place(MAILED_MAX) {
                let messages_max = MAILED_MAX;
                return Err(BrokerFull::Mail { messages_max });
            }
            post.receivers += receivers;
            post.cores.push(number);
        }
        let has_receivers = !post.cores.is_empty();
        if !has_receivers && reach == Reach::Node {
            return Ok(None);
        }
        let bytes_max = self.bytes_max;
        let message = (kind, channel, payload);
        post.message = Message::new(message, &self.figures.messages, bytes_max);
        match post.message.is_some() {
            true => Ok(Some(post)),
            false if has_receivers => Err(BrokerFull::Messages { bytes_max }),
            false => {
                self.peers.lose();
                Ok(None)
            }
        }
    }

    /// Mails a message to each core that has a receiver; how many receivers there are.
    pub(crate) fn publish(
        self: &Arc<Self>,
        to: (Kind, &[u8]),
        payload: &[u8],
    ) -> Result<usize, BrokerFull> {
        Ok(self.post(to, payload)?.map_or(0, Post::send))
    }

    /// The same for receivers of this node alone.
    pub(crate) fn publish_here(
        self: &Arc<Self>,
        to: (Kind, &[u8]),
        payload: &[u8],
    ) -> Result<usize, BrokerFull> {
        let post = self.post_to(to, payload, Reach::Node)?;
        Ok(post.map_or(0, Post::send))
    }

    /// Shows the receivers of a message that a core has taken out of its mail; how many steps its
    /// patterns took at most.
    pub(crate) fn deliver(
        &self,
        core: u16,
        message: &Message,
        visit: impl FnMut(u64, Option<&Arc<[u8]>>),
    ) -> usize {
        let core = &self.cores[usize::from(core)];
        core.gives_place();
        let channels = core.read();
        channels.visit(message, visit);
        core.given.fetch_add(1, Ordering::Relaxed);
        match message.kind() {
            Kind::Channel => channels.steps().over(message.channel().len()),
            Kind::Pattern | Kind::Shard => 0,
        }
    }

    /// Names that connections ask for, in bytes, ...
    pub(crate) fn names(&self) -> &MessageBytes {
        &self.figures.names
    }

    /// ... and how many they may be.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Mails a key that has changed to connections of each core. `false`: some of them have no room
    /// for it, and are to be told that all keys have changed.
    pub(crate) fn mail_invalidated(
        &self,
        key: &[u8],
        receivers: BTreeMap<u16, Vec<Receiver>>,
    ) -> bool {
        if receivers.is_empty() {
            return true;
        }
        let (counted, bytes_max) = (&self.figures.messages, self.bytes_max / TRACKED_DIVISOR);
        let Some(key) = Message::new((Kind::Channel, b"", key), counted, bytes_max) else {
            return false;
        };
        let mut has_all = true;
        for (core, receivers) in receivers {
            let core = &self.cores[usize::from(core)];
            let receivers = receivers.into_boxed_slice();
            if !counted.take(size_of_val(&*receivers), bytes_max) {
                has_all = false;
                continue;
            }
            let invalidated = Invalidated {
                key: Arc::clone(&key),
                receivers,
                counted: Arc::clone(counted),
            };
            match core.takes_place(MAILED_MAX / TRACKED_DIVISOR) {
                // A core that has ended has no connections.
                true => drop(core.mail.send(Mailed::Invalidated(invalidated))),
                false => has_all = false,
            }
        }
        has_all
    }

    /// Mails to each core that all tracked keys have changed. There is always room: it is in the
    /// mail of a core once.
    pub(crate) fn mail_all_invalidated(&self) {
        for core in &self.cores {
            if !core.has_all_invalidated.swap(true, Ordering::SeqCst) {
                drop(core.mail.send(Mailed::AllInvalidated));
            }
        }
    }

    /// Mails to each core that commands are held no more. It is in the mail of a core once.
    pub(crate) fn mail_unpaused(&self) {
        for core in &self.cores {
            if !core.has_unpaused.swap(true, Ordering::SeqCst) {
                drop(core.mail.send(Mailed::Unpaused));
            }
        }
    }

    /// Mails to the core of a connection that it may try a key. That is mailed once before each try
    /// of a key, and so for each key that it waits for.
    pub(crate) fn mail_may_try(&self, core: u16, client: u64) {
        let core = &self.cores[usize::from(core)];
        drop(core.mail.send(Mailed::MayTry(client)));
    }

    /// Mails to the core of a connection that its wait is to end. Each command asks for that once.
    pub(crate) fn mail_unblocked(&self, core: u16, unblocked: Unblocked) {
        let core = &self.cores[usize::from(core)];
        drop(core.mail.send(Mailed::Unblocked(unblocked)));
    }

    /// Mails to each core but one that its thread is to stand still. Each connection asks for that
    /// once at a time.
    pub(crate) fn mail_sleep(&self, but: u16, until: Instant) {
        for (number, core) in self.cores.iter().enumerate() {
            if number != usize::from(but) {
                drop(core.mail.send(Mailed::Sleep(until)));
            }
        }
    }

    /// A core is about to let its connections go on.
    pub(crate) fn took_unpaused(&self, core: u16) {
        let core = &self.cores[usize::from(core)];
        core.has_unpaused.store(false, Ordering::SeqCst);
    }

    /// Mails to the core of a connection that tracks keys that the receiver of them is gone. It is
    /// mailed once for each CLIENT TRACKING.
    pub(crate) fn mail_redirect_broke(&self, core: u16, receiver: Receiver) {
        let core = &self.cores[usize::from(core)];
        let Receiver { client, tracker } = receiver;
        let gone = client;
        drop(core.mail.send(Mailed::RedirectBroke { tracker, gone }));
    }

    /// Whether a null for all keys is in the mail of a core.
    #[cfg(test)]
    pub(crate) fn is_all_mailed(&self, core: u16) -> bool {
        let core = &self.cores[usize::from(core)];
        core.has_all_invalidated.load(Ordering::SeqCst)
    }

    /// A core has taken a key that has changed out of its mail.
    pub(crate) fn took_invalidated(&self, core: u16) {
        self.cores[usize::from(core)].gives_place();
    }

    /// A core is about to tell its connections that all tracked keys have changed.
    pub(crate) fn took_all_invalidated(&self, core: u16) {
        let core = &self.cores[usize::from(core)];
        core.has_all_invalidated.store(false, Ordering::SeqCst);
    }

    /// Bytes that are left for messages.
    pub(crate) fn messages_left(&self) -> usize {
        self.bytes_max.saturating_sub(self.figures.messages.held())
    }

    /// A connection is ended because too much waits for its peer.
    pub(crate) fn subscriber_ended(&self) {
        self.figures.subscriber_ended();
    }

    /// How many connections of one core, or of all, subscribe to a name.
    pub(crate) fn subscribers(&self, core: Option<u16>, kind: Kind, name: &[u8]) -> usize {
        let of_core = |core: &CoreChannels| core.read().subscribers(kind, name);
        match core {
            Some(core) => of_core(&self.cores[usize::from(core)]),
            None => self.cores.iter().map(of_core).sum(),
        }
    }

    /// Shows each name of a kind once, until `visit` answers `false`.
    pub(crate) fn visit_names(&self, kind: Kind, visit: &mut dyn FnMut(&[u8]) -> bool) {
        let mut last: Option<Box<[u8]>> = None;
        // A core waits for one look-up at most: there may be many names.
        let behind = |last: Option<&[u8]>| {
            let of_core = |core: &CoreChannels| core.read().name_behind(kind, last).map(Box::from);
            self.cores.iter().filter_map(of_core).min()
        };
        while let Some(name) = behind(last.as_deref()) {
            if !visit(&name) {
                return;
            }
            last = Some(name);
        }
    }
}

/// Who gets a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Subscribers of this node.
    Node,
    /// Those of the other nodes of the cluster, too.
    Cluster,
}

/// A message with its place in the mail of each core that has a receiver.
#[derive(Debug)]
pub(crate) struct Post {
    channels: Arc<NodeChannels>,
    /// `None` behind the sending.
    message: Option<Arc<Message>>,
    /// Cores whose mail has a place for it.
    cores: Vec<usize>,
    receivers: usize,
    reach: Reach,
}

impl Post {
    /// Mails the message; how many receivers it had when its places were taken.
    fn send(mut self) -> usize {
        let message = self.message.take().expect("it is sent once");
        for core in std::mem::take(&mut self.cores) {
            let core = &self.channels.cores[core];
            // Before it is there: who waits for all that were sent waits for too many then.
            core.sent.fetch_add(1, Ordering::Relaxed);
            // A core that has ended has no receivers.
            drop(core.mail.send(Mailed::Message(Arc::clone(&message))));
        }
        if self.reach == Reach::Cluster {
            self.channels.peers.put(&message);
        }
        self.receivers
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let cores = self.cores.iter().map(|core| &self.channels.cores[*core]);
        cores.for_each(CoreChannels::gives_place);
    }
}

impl Posted for Post {
    fn send(self: Box<Self>) {
        Post::send(*self);
    }
}

/// Where the scripts of one core publish.
pub(super) struct ScriptPublisher(pub(super) Arc<NodeChannels>);

impl Publisher for ScriptPublisher {
    fn receivers(&self, channel: &[u8]) -> usize {
        self.0.receivers(Kind::Channel, channel)
    }

    fn steps(&self, channel: &[u8]) -> usize {
        self.0.steps(Kind::Channel, channel)
    }

    fn post(&self, channel: &[u8], payload: &[u8]) -> Result<Option<Box<dyn Posted>>, NoRoom> {
        match self.0.post((Kind::Channel, channel), payload) {
            Ok(post) => Ok(post.map(|post| Box::new(post) as Box<dyn Posted>)),
            Err(_) => Err(NoRoom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Mail = Vec<flume::Receiver<Mailed>>;

    fn message_of(mailed: Mailed) -> Arc<Message> {
        match mailed {
            Mailed::Message(message) => message,
            other => panic!("a message was mailed: {other:?}"),
        }
    }

    fn of_two_cores(bytes_max: usize) -> (Arc<NodeChannels>, Mail) {
        let (channels, mail) = NodeChannels::new(2, bytes_max, &Arc::default());
        (Arc::new(channels), mail)
    }

    fn publish_at(channels: &Arc<NodeChannels>, payload: &[u8]) -> Result<usize, BrokerFull> {
        channels.publish((Kind::Channel, b"news"), payload)
    }

    #[test]
    fn a_message_is_mailed_once_to_each_core_that_has_a_receiver() {
        let (channels, mail) = of_two_cores(10_000);
        let news = (Kind::Channel, &b"news"[..]);
        let publish = |payload: &[u8]| publish_at(&channels, payload);
        assert_eq!(publish(b"0"), Ok(0));
        channels.subscribe(1, news, 7).expect("there is room");
        channels.subscribe(1, news, 8).expect("there is room");
        let all = (Kind::Pattern, &b"*"[..]);
        channels.subscribe(1, all, 8).expect("there is room");
        assert_eq!(publish(b"1"), Ok(3));
        assert_eq!((mail[0].len(), mail[1].len()), (0, 1));
        channels.subscribe(0, news, 9).expect("there is room");
        assert_eq!(publish(b"2"), Ok(4));
        assert_eq!((mail[0].len(), mail[1].len()), (1, 2));
        assert_eq!(channels.subscribers(None, Kind::Channel, b"news"), 3);
        assert_eq!(channels.subscribers(Some(1), Kind::Channel, b"news"), 2);
        // Who has gone meanwhile gets nothing.
        channels.unsubscribe(1, news, 7);
        let message = message_of(mail[1].recv().expect("it was mailed"));
        let mut seen = Vec::new();
        channels.deliver(1, &message, |client, pattern| {
            seen.push((client, pattern.is_some()));
        });
        assert_eq!(
            (message.payload(), seen),
            (&b"1"[..], vec![(8, false), (8, true)])
        );
        let mut names = Vec::new();
        channels.visit_names(Kind::Channel, &mut |name| {
            names.push(name.to_vec());
            true
        });
        assert_eq!(names, [b"news"], "once, of two cores");
    }

    #[test]
    fn messages_that_nobody_takes_are_refused_by_their_bytes_and_named() {
        let (channels, mail) = of_two_cores(10_000);
        let news = (Kind::Channel, &b"news"[..]);
        channels.subscribe(0, news, 7).expect("there is room");
        let publish = || publish_at(&channels, &[0; 3000]);
        assert_eq!([publish(), publish(), publish()], [Ok(1); 3]);
        let full = BrokerFull::Messages { bytes_max: 10_000 };
        assert_eq!(publish(), Err(full));
        assert!(full.text().contains("10000"));
        drop(mail[0].recv());
        assert_eq!(publish(), Ok(1), "one was taken");
    }

    #[test]
    fn names_and_patterns_are_bounded_and_what_was_refused_counts_nothing() {
        let (channels, _mail) = of_two_cores(10_000);
        let name = |number: usize| format!("{number:0>1000}").into_bytes();
        let subscribe = |number| channels.subscribe(0, (Kind::Channel, &name(number)), 7);
        let full = Err(BrokerFull::Names { bytes_max: 10_000 });
        let taken = (0..20)
            .take_while(|number| subscribe(*number).is_ok())
            .count();
        assert_eq!((taken, subscribe(99)), (4, full));
        let held = channels.figures.names.held();
        (0..taken).for_each(|it| channels.unsubscribe(0, (Kind::Channel, &name(it)), 7));
        assert_eq!((held, channels.figures.names.held()), (4 * 2160, 0));
        let (channels, _mail) = of_two_cores(1 << 30);
        let pattern = |number: usize| format!("*{number:0>1000}").into_bytes();
        let subscribe = |number| {
            let core = u16::from(number % 2 == 0);
            channels.subscribe(core, (Kind::Pattern, &pattern(number)), 7)
        };
        let taken = (0..99)
            .take_while(|number| subscribe(*number).is_ok())
            .count();
        assert_eq!(taken, PATTERN_STEPS_MAX / (1000 << 10));
        let subscribe = |name: &[u8]| channels.subscribe(0, (Kind::Pattern, name), 8);
        subscribe(&pattern(1)).expect("it is known at this core");
        subscribe(b"shop:*").expect("it takes few steps");
        let class = [b"*[", &b"a*"[..].repeat(400)[..], b"]"].concat();
        assert!(subscribe(&class).is_err(), "a class counts in full");
    }

    #[test]
    fn what_may_be_sent_has_its_places_and_gives_them_back_if_it_is_dropped() {
        let (channels, mail) = of_two_cores(1 << 30);
        let news = (Kind::Channel, &b"news"[..]);
        let post = |channels: &Arc<NodeChannels>| channels.post(news, b"m");
        assert!(post(&channels).expect("nothing is taken").is_none());
        assert_eq!(channels.figures.messages.held(), 0, "nobody receives it");
        (0..2).for_each(|core| channels.subscribe(core, news, 7).expect("there is room"));
        let kept: Vec<Post> = (0..MAILED_MAX)
            .map(|_| post(&channels).expect("a place").expect("a receiver"))
            .collect();
        let messages_max = MAILED_MAX;
        let full = BrokerFull::Mail { messages_max };
        assert_eq!(publish_at(&channels, b"x"), Err(full));
        let held = channels.figures.messages.held();
        let mut kept = kept.into_iter();
        assert_eq!(kept.next().expect("many").send(), 2);
        assert_eq!(
            publish_at(&channels, b"x"),
            Err(full),
            "it waits for its cores"
        );
        drop(kept);
        assert!(channels.figures.messages.held() < held);
        let mailed = || channels.cores[1].mailed.load(Ordering::Relaxed);
        assert_eq!((mailed(), mail[1].len()), (1, 1));
        assert_eq!(publish_at(&channels, b"x"), Ok(2));
        assert_eq!(mailed(), 2);
    }
}
