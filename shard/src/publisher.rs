//! What scripts publish: the messages leave when the record of the changes beside them is durable.

use std::cell::Cell;
use std::fmt::Debug;

use penstock_net::resp::StagedMessage;
use penstock_storage::place::Lsn;

/// Steps of patterns that the messages of one script may take, but for those of its last one.
pub(crate) const SCRIPT_STEPS_MAX: usize = 1 << 22;

/// Where the scripts of a shard publish. A shard knows no subscribers: the shell that makes a shard
/// gives it an implementation.
pub trait Publisher {
    /// How many times a message to a channel would be received.
    fn receivers(&self, channel: &[u8]) -> usize;

    /// Steps that patterns take at most to find them.
    fn steps(&self, channel: &[u8]) -> usize;

    /// Keeps all that a message needs on its way. `None`: nobody receives it.
    ///
    /// # Errors
    /// There is no room.
    fn post(&self, channel: &[u8], payload: &[u8]) -> Result<Option<Box<dyn Posted>>, NoRoom>;
}

/// There is no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// A message that has all that it needs on its way. What is dropped gives it back.
pub trait Posted: Debug {
    /// The message leaves. Nobody waits for its receivers.
    fn send(self: Box<Self>);
}

/// The messages of one script, in their order.
pub(crate) type Messages = Vec<Box<dyn Posted>>;

/// What the APPLY of a script answers, and what leaves when that answer may.
#[derive(Clone, Copy)]
pub(crate) struct ScriptAnswer<'a> {
    /// The reply of the script, which stands in the answer.
    pub(crate) reply: &'a [u8],
    /// The messages, until they are taken out.
    pub(crate) messages: &'a Cell<Messages>,
}

impl<'a> ScriptAnswer<'a> {
    pub(crate) fn new(reply: &'a [u8], messages: &'a Cell<Messages>) -> Self {
        ScriptAnswer { reply, messages }
    }
}

/// The messages of the scripts of one shard.
#[derive(Default)]
pub(crate) struct Publications {
    publisher: Option<Box<dyn Publisher>>,
    /// Messages that wait until a record is durable.
    waiting: Vec<(Lsn, Messages)>,
    /// No record that is waited for is earlier.
    first: Lsn,
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

    /// Takes room for messages.
    pub(crate) fn take(&self, staged: &[StagedMessage]) -> Result<Messages, NoRoom> {
        let Some(publisher) = self.publisher() else {
            return Ok(Vec::new());
        };
        let post = |it: &StagedMessage| publisher.post(&it.channel, &it.payload).transpose();
        staged.iter().filter_map(post).collect()
    }

    /// Messages leave when the log is durable up to `gate`; it is up to `durable`.
    pub(crate) fn add(&mut self, messages: Messages, gate: Lsn, durable: Lsn) {
        if gate <= durable {
            send(messages);
        } else if !messages.is_empty() {
            self.first = match self.waiting.is_empty() {
                true => gate,
                false => self.first.min(gate),
            };
            self.waiting.push((gate, messages));
        }
    }

    /// The log is durable up to a later record.
    pub(crate) fn release(&mut self, durable: Lsn) {
        if self.waiting.is_empty() || self.first > durable {
            return;
        }
        // Gates need not ascend: a script that only reads waits for what it has seen.
        let ended = self.waiting.extract_if(.., |(gate, _)| *gate <= durable);
        ended.for_each(|(_, messages)| send(messages));
        let gates = self.waiting.iter().map(|(gate, _)| *gate);
        self.first = gates.min().unwrap_or_default();
    }
}

/// Messages leave, in their order.
pub(crate) fn send(messages: Messages) {
    messages.into_iter().for_each(|message| message.send());
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use penstock_net::resp::{Kind, Message, MessageBytes};

    use super::*;

    /// Keeps what is published.
    struct Kept {
        counted: Arc<MessageBytes>,
        seen: Rc<RefCell<Vec<Vec<u8>>>>,
    }

    #[derive(Debug)]
    struct KeptPost(Arc<Message>, Rc<RefCell<Vec<Vec<u8>>>>);

    impl Posted for KeptPost {
        fn send(self: Box<Self>) {
            self.1.borrow_mut().push(self.0.payload().to_vec());
        }
    }

    impl Publisher for Kept {
        fn receivers(&self, _: &[u8]) -> usize {
            1
        }

        fn steps(&self, _: &[u8]) -> usize {
            0
        }

        fn post(&self, channel: &[u8], payload: &[u8]) -> Result<Option<Box<dyn Posted>>, NoRoom> {
            let message = (Kind::Channel, channel, payload);
            let message = Message::new(message, &self.counted, 1000).ok_or(NoRoom)?;
            Ok(Some(Box::new(KeptPost(message, Rc::clone(&self.seen)))))
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
        assert!(publications.take(&many).is_err());
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
