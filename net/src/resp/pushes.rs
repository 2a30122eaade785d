//! What a connection gets without having asked: messages of its channels. They wait as they are
//! shared; only what is about to leave is written, a part of a long one at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use super::message::{Kind, Message};
use super::reply::{Protocol, Replies};

/// Bytes of what stands around a message, at most, beside the names.
const FRAME_BYTES: usize = 64;

/// One message for one connection.
#[derive(Clone, Debug)]
pub enum Push {
    /// By the name of its channel.
    Message(Arc<Message>),
    /// By a pattern.
    OfPattern(Arc<Message>, Arc<[u8]>),
    /// A tracked key has changed: the payload of the message.
    Invalidated(Arc<Message>),
    /// All keys have.
    AllInvalidated,
    /// The connection of this number is gone, which was to be told of tracked keys.
    RedirectBroken(u64),
}

/// The channel of RESP2 for keys that have changed.
const INVALIDATE_CHANNEL: &[u8] = b"__redis__:invalidate";

impl Push {
    /// What a connection that gets it subscribes to, and the channel.
    pub(super) fn subscription(&self) -> Option<(Kind, &[u8], &[u8])> {
        match self {
            Push::Message(message) => Some((message.kind(), message.channel(), message.channel())),
            Push::OfPattern(message, pattern) => Some((Kind::Pattern, pattern, message.channel())),
            Push::Invalidated(_) | Push::AllInvalidated | Push::RedirectBroken(_) => None,
        }
    }

    /// Whether it tells of keys that have changed.
    fn is_invalidation(&self) -> bool {
        matches!(self, Push::Invalidated(_) | Push::AllInvalidated)
    }

    fn is_broken_redirect(&self) -> bool {
        matches!(self, Push::RedirectBroken(_))
    }

    /// Bytes that it takes on the way to the peer, at most.
    pub(super) fn bytes(&self) -> usize {
        FRAME_BYTES
            + match self {
                Push::Message(message) | Push::Invalidated(message) => message.bytes(),
                Push::OfPattern(message, pattern) => message.bytes() + pattern.len(),
                Push::AllInvalidated | Push::RedirectBroken(_) => 0,
            }
    }

    /// What stands in front of the payload.
    fn head(&self, protocol: Protocol) -> Vec<u8> {
        let mut head = Vec::new();
        let mut replies = Replies::new(&mut head, protocol);
        let message = match self {
            Push::Invalidated(key) => {
                begin_invalidation(&mut replies);
                replies.array(1);
                replies.bulk_begins(key.payload().len());
                return head;
            }
            Push::AllInvalidated => {
                begin_invalidation(&mut replies);
                replies.null();
                return without_line_end(head);
            }
            Push::RedirectBroken(client) => {
                replies.push(2);
                replies.bulk(b"tracking-redir-broken");
                replies.integer(i64::try_from(*client).unwrap_or(i64::MAX));
                return without_line_end(head);
            }
            Push::Message(message) => {
                replies.push(3);
                replies.bulk(match message.kind() {
                    Kind::Shard => b"smessage",
                    Kind::Channel | Kind::Pattern => b"message",
                });
                message
            }
            Push::OfPattern(message, pattern) => {
                replies.push(4);
                replies.bulk(b"pmessage");
                replies.bulk(pattern);
                message
            }
        };
        replies.bulk(message.channel());
        replies.bulk_begins(message.payload().len());
        head
    }

    fn payload(&self) -> &[u8] {
        match self {
            Push::Message(message) | Push::OfPattern(message, _) => message.payload(),
            Push::Invalidated(key) => key.payload(),
            Push::AllInvalidated | Push::RedirectBroken(_) => &[],
        }
    }
}

/// What stands in front of the keys that have changed.
fn begin_invalidation(replies: &mut Replies<'_>) {
    match replies.protocol() {
        Protocol::Resp2 => {
            replies.push(3);
            replies.bulk(b"message");
            replies.bulk(INVALIDATE_CHANNEL);
        }
        Protocol::Resp3 => {
            replies.push(2);
            replies.bulk(b"invalidate");
        }
    }
}

/// The end of the last line stands behind the payload.
fn without_line_end(mut head: Vec<u8>) -> Vec<u8> {
    head.truncate(head.len() - 2);
    head
}

/// One of [`Pushes`].
#[derive(Debug)]
struct Waiting {
    push: Push,
    /// It leaves behind the replies of all commands of the ring below this number.
    behind: u64,
}

/// Messages that wait until their peer takes them, in their order.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    waiting: VecDeque<Waiting>,
    /// Bytes of all of them on the way to the peer.
    bytes: usize,
    /// How many of them tell of keys that have changed, ...
    invalidations: usize,
    /// ... and how many are [`Push::RedirectBroken`].
    broken_redirects: usize,
    /// The first one is on its way: in this protocol, and so many bytes of it are written.
    begun: Option<(Protocol, usize)>,
}

impl Pushes {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a part of the first one is written and another is not: nothing else may leave.
    pub(super) fn is_within_one(&self) -> bool {
        self.begun.is_some()
    }

    /// Whether the first one waits for the reply of a command from `ring_first` on.
    pub(super) fn waits_for(&self, ring_first: u64) -> bool {
        let first = self.waiting.front();
        first.is_some_and(|first| self.begun.is_none() && first.behind > ring_first)
    }

    /// Bytes of all that wait, as if each were a copy.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the list itself.
    pub(super) fn list_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting>()
    }

    /// One more, behind the replies of the commands of the ring below `behind`.
    pub(super) fn add(&mut self, push: Push, behind: u64) {
        self.bytes += push.bytes();
        self.invalidations += usize::from(push.is_invalidation());
        self.broken_redirects += usize::from(push.is_broken_redirect());
        self.waiting.push_back(Waiting { push, behind });
    }

    /// Whether one waits, and no other.
    pub(super) fn has_one(&self) -> bool {
        self.waiting.len() == 1
    }

    /// Drops the invalidations of keys that have not begun to leave.
    pub(super) fn drop_invalidations(&mut self) {
        if self.invalidations > 0 {
            self.drop_those(Push::is_invalidation);
        }
    }

    /// Drops what says that a connection is gone and has not begun to leave.
    pub(super) fn drop_broken_redirects(&mut self) {
        if self.broken_redirects > 0 {
            self.drop_those(Push::is_broken_redirect);
        }
    }

    fn drop_those(&mut self, is_dropped: fn(&Push) -> bool) {
        let mut is_begun = self.begun.is_some();
        self.waiting
            .retain(|it| std::mem::take(&mut is_begun) || !is_dropped(&it.push));
        self.count();
    }

    /// Counts what is left.
    fn count(&mut self) {
        self.bytes = self.waiting.iter().map(|it| it.push.bytes()).sum();
        let invalidations = self.waiting.iter().filter(|it| it.push.is_invalidation());
        self.invalidations = invalidations.count();
        let broken = self
            .waiting
            .iter()
            .filter(|it| it.push.is_broken_redirect());
        self.broken_redirects = broken.count();
        self.waiting.shrink_to_fit();
    }

    /// Drops all that have not begun to leave.
    pub(super) fn clear(&mut self) {
        self.waiting.truncate(usize::from(self.begun.is_some()));
        self.count();
    }

    /// Appends what may leave to `out` until that has `bytes_max`: those that wait for the replies
    /// of no command from `ring_first` on.
    pub(super) fn write(
        &mut self,
        (ring_first, protocol): (u64, Protocol),
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) {
        let may_begin = |first: &Waiting| first.behind <= ring_first;
        while out.len() < bytes_max && self.waiting.front().is_some_and(may_begin) {
            self.begun.get_or_insert((protocol, 0));
            self.write_begun(bytes_max, out);
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    /// Appends the rest of the message that has begun to leave to `out` until that has `bytes_max`.
    pub(super) fn write_begun(&mut self, bytes_max: usize, out: &mut Vec<u8>) {
        let Some((protocol, mut written)) = self.begun else {
            return;
        };
        let first = self.waiting.front().expect("it has begun to leave");
        let head = first.push.head(protocol);
        let parts = [&head[..], first.push.payload(), b"\r\n"];
        let len = parts.iter().map(|it| it.len()).sum::<usize>();
        let mut skipped = written;
        for part in parts {
            let begin = skipped.min(part.len());
            let room = bytes_max.saturating_sub(out.len());
            let end = part.len().min(begin + room);
            out.extend_from_slice(&part[begin..end]);
            (written, skipped) = (written + (end - begin), skipped - begin);
            if end < part.len() {
                break;
            }
        }
        if written < len {
            self.begun = Some((protocol, written));
            return;
        }
        self.begun = None;
        self.bytes -= first.push.bytes();
        self.invalidations -= usize::from(first.push.is_invalidation());
        self.broken_redirects -= usize::from(first.push.is_broken_redirect());
        self.waiting.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::message::MessageBytes;

    fn message(channel: &[u8], payload: &[u8]) -> Arc<Message> {
        let counted = Arc::default();
        let message = (Kind::Channel, channel, payload);
        Message::new(message, &counted, usize::MAX).expect("there is room")
    }

    #[test]
    fn a_message_in_parts_is_the_same_and_nothing_stands_within_it() {
        let payload: Vec<u8> = (0..=255).cycle().take(1000).collect();
        let long = message(b"c", &payload);
        let pattern: Arc<[u8]> = b"*".as_slice().into();
        let first = Push::Message(Arc::clone(&long));
        let second = Push::OfPattern(Arc::clone(&long), pattern);
        let (mut whole, mut expected) = (Pushes::default(), Vec::new());
        whole.add(first.clone(), 0);
        whole.write((0, Protocol::Resp3), usize::MAX, &mut expected);
        whole.add(second.clone(), 0);
        whole.write((0, Protocol::Resp2), usize::MAX, &mut expected);
        assert!(expected.starts_with(b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1000\r\n"));
        assert!(whole.is_empty() && whole.bytes() == 0);
        for step in 1..60 {
            let mut parts = Pushes::default();
            parts.add(first.clone(), 0);
            parts.add(second.clone(), 0);
            let (mut all, mut within) = (Vec::new(), 0);
            while !parts.is_empty() {
                // Another protocol begins with the next message, and not within one.
                let protocol = match all.is_empty() {
                    true => Protocol::Resp3,
                    false => Protocol::Resp2,
                };
                let mut out = Vec::new();
                within += usize::from(parts.is_within_one());
                parts.write_begun(step, &mut out);
                parts.write((0, protocol), step, &mut out);
                assert!((1..=step).contains(&out.len()));
                all.extend(out);
            }
            assert!(all == expected, "step {step}");
            assert!(within > 0);
            assert_eq!(parts.bytes(), 0);
        }
    }

    #[test]
    fn a_message_leaves_behind_the_replies_that_were_asked_for_before_it_came() {
        let mut pushes = Pushes::default();
        pushes.add(Push::Message(message(b"c", b"1")), 5);
        pushes.add(Push::Message(message(b"c", b"2")), 3);
        let mut out = Vec::new();
        pushes.write((4, Protocol::Resp2), 1000, &mut out);
        assert!(out.is_empty(), "they keep their order");
        pushes.write((5, Protocol::Resp2), 1000, &mut out);
        assert!(pushes.is_empty());
        assert!(out.starts_with(b"*3\r\n") && out.ends_with(b"$1\r\n2\r\n"));
    }

    #[test]
    fn what_is_dropped_is_all_but_the_message_that_has_begun_to_leave() {
        let counted: Arc<MessageBytes> = Arc::default();
        let new = |payload: &[u8]| {
            let message = (Kind::Channel, &b"c"[..], payload);
            Push::Message(Message::new(message, &counted, usize::MAX).expect("there is room"))
        };
        let mut pushes = Pushes::default();
        pushes.add(new(&[1; 500]), 0);
        pushes.add(new(&[2; 500]), 0);
        let mut out = Vec::new();
        pushes.write((0, Protocol::Resp2), 100, &mut out);
        pushes.clear();
        pushes.write_begun(usize::MAX, &mut out);
        pushes.write((0, Protocol::Resp2), usize::MAX, &mut out);
        assert!(out.ends_with(b"\x01\r\n"));
        assert!(pushes.is_empty() && counted.held() == 0);
    }
}
