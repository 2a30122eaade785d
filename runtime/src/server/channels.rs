//! The channels of a node: who subscribes at which core, and the messages on their way there.
//!
//! ```text
//! PUBLISH at core 0: counts receivers of each core --> one message, shared --> mail of each core
//!                                                                              that has a receiver
//! core 1: takes its mail --> asks its channels again --> pushes of each connection --> socket
//! ```
//!
//! What must hold: a core locks its own channels to change them, and others lock them to count; no
//! lock is held while something else is waited for. Messages of one publisher keep their order,
//! because each core has one queue.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use penstock_net::resp::{
    BrokerFull, Channels, Kind, Message, SUBSCRIPTION_BYTES, steps_of_pattern,
};
use penstock_shard::publisher::Publisher;

use crate::stats::ChannelFigures;

/// Messages that may wait for one core.
const MAILED_MAX: usize = 1 << 16;
/// Elements of patterns that a byte of a channel's name may be compared with, of all patterns.
const PATTERN_STEPS_MAX: usize = 1 << 14;

/// What one core has of the channels.
#[derive(Debug)]
struct CoreChannels {
    channels: RwLock<Channels>,
    /// Messages that wait for the core.
    mailed: AtomicUsize,
    mail: flume::Sender<Arc<Message>>,
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

    /// Takes a place in the mail. `false` if there is none.
    fn takes_place(&self) -> bool {
        let more = |mailed: usize| (mailed < MAILED_MAX).then_some(mailed + 1);
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
    ) -> (NodeChannels, Vec<flume::Receiver<Arc<Message>>>) {
        let boxes: Vec<_> = (0..cores).map(|_| flume::unbounded()).collect();
        let of_core = |(mail, _): &(flume::Sender<Arc<Message>>, _)| CoreChannels {
            channels: RwLock::default(),
            mailed: AtomicUsize::new(0),
            mail: mail.clone(),
        };
        let channels = NodeChannels {
            cores: boxes.iter().map(of_core).collect(),
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
        let bytes = name.len() + SUBSCRIPTION_BYTES;
        if !self.figures.names.take(bytes, self.bytes_max) {
            let bytes_max = self.bytes_max;
            return Err(BrokerFull::Names { bytes_max });
        }
        if kind == Kind::Pattern {
            let held = self.cores.iter().map(|core| core.read().pattern_steps());
            if held.sum::<usize>() + steps_of_pattern(name) > PATTERN_STEPS_MAX {
                self.figures.names.give(bytes);
                let steps_max = PATTERN_STEPS_MAX;
                return Err(BrokerFull::Patterns { steps_max });
            }
        }
        if !self.cores[usize::from(core)]
            .write()
            .add(kind, name, client)
        {
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
            self.figures.names.give(name.len() + SUBSCRIPTION_BYTES);
        }
    }

    /// How many times a message to a channel would be received.
    pub(crate) fn receivers(&self, kind: Kind, channel: &[u8]) -> usize {
        let of_core = |core: &CoreChannels| core.read().receivers(kind, channel);
        self.cores.iter().map(of_core).sum()
    }

    /// A message that counts from now on. `None`: there is no room.
    pub(crate) fn message(
        &self,
        kind: Kind,
        channel: &[u8],
        payload: &[u8],
    ) -> Option<Arc<Message>> {
        let message = (kind, channel, payload);
        Message::new(message, &self.figures.messages, self.bytes_max)
    }

    /// Mails a message to each core that has a receiver; how many receivers there are. It is made
    /// if there are any.
    pub(crate) fn publish(
        &self,
        (kind, channel): (Kind, &[u8]),
        make: impl FnOnce() -> Option<Arc<Message>>,
    ) -> Result<usize, BrokerFull> {
        let of_core = |core: &CoreChannels| core.read().receivers(kind, channel);
        let receivers: Vec<usize> = self.cores.iter().map(of_core).collect();
        let all = receivers.iter().sum::<usize>();
        if all == 0 {
            return Ok(0);
        }
        let bytes_max = self.bytes_max;
        let message = make().ok_or(BrokerFull::Messages { bytes_max })?;
        let cores = self.cores.iter().zip(&receivers);
        let mut cores = cores.filter(|(_, receivers)| **receivers > 0);
        let mut taken: Vec<&CoreChannels> = Vec::new();
        // All of them get it, or none does.
        let are_all = cores.all(|(core, _)| {
            let has_place = core.takes_place();
            if has_place {
                taken.push(core);
            }
            has_place
        });
        if !are_all {
            taken.iter().for_each(|core| core.gives_place());
            let messages_max = MAILED_MAX;
            return Err(BrokerFull::Mail { messages_max });
        }
        for core in taken {
            // A core that has ended has no receivers.
            drop(core.mail.send(Arc::clone(&message)));
        }
        Ok(all)
    }

    /// Shows the receivers of a message that a core has taken out of its mail.
    pub(crate) fn deliver(
        &self,
        core: u16,
        message: &Message,
        visit: impl FnMut(u64, Option<&Arc<[u8]>>),
    ) {
        let core = &self.cores[usize::from(core)];
        core.gives_place();
        core.read().visit(message, visit);
    }

    /// Bytes that are left for messages.
    pub(crate) fn messages_left(&self) -> usize {
        self.bytes_max.saturating_sub(self.figures.messages.held())
    }

    /// A connection is ended because too much waits for its peer.
    pub(crate) fn subscriber_ended(&self) {
        self.figures.subscriber_ended();
    }

    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let of_core = |core: &CoreChannels| core.read().subscribers(kind, name);
        self.cores.iter().map(of_core).sum()
    }

    /// Shows each name of a kind once, until `visit` answers `false`.
    pub(crate) fn visit_names(&self, kind: Kind, visit: &mut dyn FnMut(&[u8]) -> bool) {
        let held: Vec<_> = self.cores.iter().map(CoreChannels::read).collect();
        match &held[..] {
            [only] => drop(only.names(kind).all(visit)),
            _ => {
                let names: BTreeSet<&[u8]> = held.iter().flat_map(|it| it.names(kind)).collect();
                names.into_iter().all(visit);
            }
        }
    }
}

/// Where the scripts of one core publish.
pub(super) struct ScriptPublisher(pub(super) Arc<NodeChannels>);

impl Publisher for ScriptPublisher {
    fn receivers(&self, channel: &[u8]) -> usize {
        self.0.receivers(Kind::Channel, channel)
    }

    fn message(&self, channel: &[u8], payload: &[u8]) -> Option<Arc<Message>> {
        self.0.message(Kind::Channel, channel, payload)
    }

    fn publish(&mut self, message: Arc<Message>) {
        let (kind, channel) = (message.kind(), message.channel());
        // Nobody is left to be told of a full mail: the change beside it is made.
        let _ = self
            .0
            .publish((kind, channel), || Some(Arc::clone(&message)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_two_cores() -> (NodeChannels, Vec<flume::Receiver<Arc<Message>>>) {
        NodeChannels::new(2, 10_000, &Arc::default())
    }

    fn publish_at(channels: &NodeChannels, payload: &[u8]) -> Result<usize, BrokerFull> {
        let (kind, channel) = (Kind::Channel, &b"news"[..]);
        channels.publish((kind, channel), || channels.message(kind, channel, payload))
    }

    #[test]
    fn a_message_is_mailed_once_to_each_core_that_has_a_receiver() {
        let (channels, mail) = of_two_cores();
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
        assert_eq!(channels.subscribers(Kind::Channel, b"news"), 3);
        // Who has gone meanwhile gets nothing.
        channels.unsubscribe(1, news, 7);
        let message = mail[1].recv().expect("it was mailed");
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
        let (channels, mail) = of_two_cores();
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
        let (channels, _mail) = of_two_cores();
        let name = |number: usize| format!("{number:0>1000}").into_bytes();
        let subscribe = |number| channels.subscribe(0, (Kind::Channel, &name(number)), 7);
        let full = Err(BrokerFull::Names { bytes_max: 10_000 });
        let taken = (0..20)
            .take_while(|number| subscribe(*number).is_ok())
            .count();
        assert_eq!((taken, subscribe(99)), (8, full));
        let held = channels.figures.names.held();
        (0..taken).for_each(|it| channels.unsubscribe(0, (Kind::Channel, &name(it)), 7));
        assert_eq!((held, channels.figures.names.held()), (8 * 1160, 0));
        let (channels, _mail) = NodeChannels::new(2, 1 << 30, &Arc::default());
        let pattern = |number: usize| format!("*{number:0>1000}").into_bytes();
        let subscribe = |number| {
            let core = u16::from(number % 2 == 0);
            channels.subscribe(core, (Kind::Pattern, &pattern(number)), 7)
        };
        let taken = (0..99)
            .take_while(|number| subscribe(*number).is_ok())
            .count();
        assert_eq!(taken, PATTERN_STEPS_MAX / 1001);
        channels
            .subscribe(0, (Kind::Pattern, b"shop:*"), 7)
            .expect("it takes one step");
    }
}
