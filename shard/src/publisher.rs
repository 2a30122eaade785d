//! What scripts publish: the messages leave when the record of the changes beside them is durable.

use std::collections::VecDeque;
use std::sync::Arc;

use penstock_net::resp::{Message, StagedMessage};
use penstock_storage::place::Lsn;

/// Where the scripts of a shard publish. A shard knows no subscribers: the shell that makes a shard
/// gives it an implementation.
pub trait Publisher {
    /// How many times a message to a channel would be received.
    fn receivers(&self, channel: &[u8]) -> usize;

    /// Keeps room for a message. `None`: there is none.
    fn message(&self, channel: &[u8], payload: &[u8]) -> Option<Arc<Message>>;

    /// Publishes a message. Nobody waits for its receivers.
    fn publish(&mut self, message: Arc<Message>);
}

/// The messages of the scripts of one shard.
#[derive(Default)]
pub(crate) struct Publications {
    publisher: Option<Box<dyn Publisher>>,
    /// Messages that wait until a record is durable.
    waiting: VecDeque<(Lsn, Vec<Arc<Message>>)>,
}

impl Publications {
    /// Scripts publish here from now on.
    pub(crate) fn begin(&mut self, publisher: Box<dyn Publisher>) {
        self.publisher = Some(publisher);
    }

    /// Where scripts publish; nowhere in an embedded store.
    pub(crate) fn publisher(&self) -> Option<&dyn Publisher> {
        self.publisher.as_deref()
    }

    /// Takes room for messages. `None`: there is none for all of them.
    pub(crate) fn take(&self, staged: &[StagedMessage]) -> Option<Vec<Arc<Message>>> {
        let Some(publisher) = self.publisher() else {
            return Some(Vec::new());
        };
        let message = |it: &StagedMessage| publisher.message(&it.channel, &it.payload);
        staged.iter().map(message).collect()
    }

    /// Messages leave when the log is durable up to `gate`; it is up to `durable`.
    pub(crate) fn add(&mut self, messages: Vec<Arc<Message>>, gate: Lsn, durable: Lsn) {
        if !messages.is_empty() {
            self.waiting.push_back((gate, messages));
            self.release(durable);
        }
    }

    /// The log is durable up to a later record.
    pub(crate) fn release(&mut self, durable: Lsn) {
        let Some(publisher) = &mut self.publisher else {
            return;
        };
        // Gates need not ascend: a script that only reads waits for what it has seen.
        self.waiting.retain_mut(|(gate, messages)| {
            if *gate > durable {
                return true;
            }
            messages.drain(..).for_each(|it| publisher.publish(it));
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use penstock_net::resp::{Kind, MessageBytes};

    use super::*;

    /// Keeps what is published.
    struct Kept {
        counted: Arc<MessageBytes>,
        seen: Rc<RefCell<Vec<Vec<u8>>>>,
    }

    impl Publisher for Kept {
        fn receivers(&self, _: &[u8]) -> usize {
            1
        }

        fn message(&self, channel: &[u8], payload: &[u8]) -> Option<Arc<Message>> {
            Message::new((Kind::Channel, channel, payload), &self.counted, 1000)
        }

        fn publish(&mut self, message: Arc<Message>) {
            self.seen.borrow_mut().push(message.payload().to_vec());
        }
    }

    #[test]
    fn a_message_leaves_when_its_record_is_durable_and_without_room_none_is_taken() {
        let (counted, seen) = (Arc::default(), Rc::default());
        let mut publications = Publications::default();
        publications.begin(Box::new(Kept {
            counted: Arc::clone(&counted),
            seen: Rc::clone(&seen),
        }));
        let staged = |payload: &[u8]| StagedMessage {
            channel: b"c".as_slice().into(),
            payload: payload.into(),
        };
        let many = vec![staged(&[0; 300]); 4];
        assert!(publications.take(&many).is_none());
        assert_eq!(counted.held(), 0, "what was taken for some is given back");
        for (gate, payload) in [(20, b"20"), (10, b"10"), (21, b"21")] {
            let messages = publications
                .take(&[staged(payload)])
                .expect("there is room");
            publications.add(messages, Lsn(gate), Lsn(9));
        }
        assert!(seen.borrow().is_empty());
        publications.release(Lsn(10));
        assert_eq!(*seen.borrow(), [b"10"]);
        publications.release(Lsn(30));
        assert_eq!(*seen.borrow(), [b"10", b"20", b"21"]);
        assert_eq!(counted.held(), 0);
        let messages = publications.take(&[staged(b"now")]).expect("there is room");
        publications.add(messages, Lsn(0), Lsn(30));
        assert_eq!(seen.borrow().len(), 4, "nothing is waited for");
    }
}
