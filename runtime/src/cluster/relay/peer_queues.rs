//! Messages of channels on their way to other nodes.
//!
//! What must hold: a queue that is full loses a message for its node alone, and nobody waits for a
//! queue. A message is put into the queues that there are, in the order in which its publisher's
//! core sends.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use penstock_net::resp::{Message, MessageBytes};

use crate::stats::ChannelFigures;

/// Messages that may wait for one node.
const QUEUED_MAX: usize = 1 << 16;

/// What waits for one node.
#[derive(Debug)]
struct PeerQueue {
    messages: flume::Sender<Arc<Message>>,
    /// Bytes of what waits, and of what is being written.
    bytes: MessageBytes,
}

/// The queues of all nodes that are connected.
#[derive(Debug)]
pub(crate) struct PeerQueues {
    queues: RwLock<Vec<Arc<PeerQueue>>>,
    figures: Arc<ChannelFigures>,
    bytes_max: usize,
}

impl PeerQueues {
    /// Of a node whose queues may take so many bytes.
    pub(crate) fn new(bytes_max: usize, figures: &Arc<ChannelFigures>) -> PeerQueues {
        PeerQueues {
            queues: RwLock::default(),
            figures: Arc::clone(figures),
            bytes_max,
        }
    }

    /// A node is connected: what is put from now on is for it, too.
    pub(crate) fn connect(self: &Arc<Self>) -> PeerMail {
        let (messages, mail) = flume::bounded(QUEUED_MAX);
        let queue = Arc::new(PeerQueue {
            messages,
            bytes: MessageBytes::default(),
        });
        self.write().push(Arc::clone(&queue));
        PeerMail {
            queues: Arc::clone(self),
            queue,
            mail,
        }
    }

    /// How many nodes are connected.
    pub(crate) fn peers(&self) -> usize {
        self.read().len()
    }

    /// Puts a message into each queue that has room for it.
    pub(crate) fn put(&self, message: &Arc<Message>) {
        let queues = self.read();
        let bytes = message.bytes();
        // One message is taken however large it is.
        let bytes_max = (self.bytes_max / queues.len().max(1)).max(bytes);
        for queue in queues.iter() {
            if !queue.bytes.take(bytes, bytes_max) {
                self.figures.lose(1);
            } else if queue.messages.try_send(Arc::clone(message)).is_err() {
                queue.bytes.give(bytes);
                self.figures.lose(1);
            }
        }
    }

    /// A message did not reach its node.
    pub(crate) fn lose_one(&self) {
        self.figures.lose(1);
    }

    /// A message had no room at all, for none of the nodes.
    pub(crate) fn lose(&self) {
        self.figures.lose(self.peers());
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<PeerQueue>>> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<PeerQueue>>> {
        self.queues.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the messages for one node come out. It is connected until this is dropped.
#[derive(Debug)]
pub(crate) struct PeerMail {
    queues: Arc<PeerQueues>,
    queue: Arc<PeerQueue>,
    mail: flume::Receiver<Arc<Message>>,
}

impl PeerMail {
    /// The next message. Waits for it, but not longer than this.
    pub(crate) fn wait(&self, patience: Duration) -> Option<Arc<Message>> {
        self.mail.recv_timeout(patience).ok()
    }

    /// The next message, if it is there.
    pub(crate) fn next(&self) -> Option<Arc<Message>> {
        self.mail.try_recv().ok()
    }

    /// Messages that came out are on their way, and take no room any more.
    pub(crate) fn sent(&self, messages: &mut Vec<Arc<Message>>) {
        let bytes = messages.drain(..).map(|message| message.bytes()).sum();
        self.queue.bytes.give(bytes);
    }
}

impl Drop for PeerMail {
    fn drop(&mut self) {
        let mut queues = self.queues.write();
        queues.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        drop(queues);
        // Nobody puts anything there any more.
        self.queues.figures.lose(self.mail.drain().count());
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::resp::Kind;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn queues(bytes_max: usize) -> (Arc<PeerQueues>, Arc<ChannelFigures>) {
        let figures = Arc::<ChannelFigures>::default();
        (Arc::new(PeerQueues::new(bytes_max, &figures)), figures)
    }

    fn message(figures: &ChannelFigures, payload: &[u8]) -> Arc<Message> {
        let message = (Kind::Channel, &b"c"[..], payload);
        Message::new(message, &figures.messages, usize::MAX).expect("there is room")
    }

    fn lost(figures: &ChannelFigures) -> u64 {
        figures.read().lost
    }

    #[test]
    fn a_node_that_takes_nothing_loses_its_own_messages_and_no_others() {
        let (queues, figures) = queues(20_000);
        let put = |payload: &[u8]| queues.put(&message(&figures, payload));
        put(b"before");
        assert_eq!((queues.peers(), lost(&figures)), (0, 0), "nobody lacks it");
        let (idle, reader) = (queues.connect(), queues.connect());
        let mut sent = Vec::new();
        for number in 0..40u8 {
            put(&[number; 1000]);
            sent.extend(reader.wait(PATIENCE));
            assert_eq!(sent[0].payload(), [number; 1000]);
            reader.sent(&mut sent);
        }
        // Each of the two has half of the room: nine messages.
        let held: Vec<_> = std::iter::from_fn(|| idle.next()).collect();
        assert_eq!((held.len(), lost(&figures)), (9, 31));
        let numbers: Vec<u8> = held.iter().map(|it| it.payload()[0]).collect();
        assert_eq!(numbers, (0..9).collect::<Vec<_>>(), "in their order");
        // What came out counts until it is sent.
        put(&[40; 1000]);
        assert!(idle.next().is_none());
        idle.sent(&mut held.clone());
        put(&[41; 1000]);
        assert_eq!(idle.next().expect("there is room").payload(), [41; 1000]);
    }

    #[test]
    fn a_queue_has_so_many_messages_at_most_and_what_waits_is_lost_with_its_connection() {
        let (queues, figures) = queues(usize::MAX);
        let mail = queues.connect();
        let message = message(&figures, b"m");
        (0..QUEUED_MAX + 3).for_each(|_| queues.put(&message));
        assert_eq!(lost(&figures), 3);
        drop(mail);
        assert_eq!(lost(&figures), 3 + QUEUED_MAX as u64);
        assert_eq!(Arc::strong_count(&message), 1, "nobody holds it");
        queues.put(&message);
        assert_eq!((queues.peers(), Arc::strong_count(&message)), (0, 1));
    }

    #[test]
    fn a_message_that_is_larger_than_the_part_of_a_queue_has_a_queue_of_its_own() {
        let (queues, figures) = queues(1000);
        let mail = queues.connect();
        let large = message(&figures, &[7; 5000]);
        queues.put(&large);
        queues.put(&message(&figures, b"small"));
        assert_eq!(lost(&figures), 1);
        mail.sent(&mut vec![mail.next().expect("it is there")]);
        queues.put(&message(&figures, b"small"));
        queues.put(&large);
        assert_eq!(lost(&figures), 2);
    }
}
