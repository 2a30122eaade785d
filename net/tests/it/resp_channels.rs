//! A connection of RESP with subscriptions: what it takes, what it gets and when, and its bounds.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ReplyHead};
use penstock_net::resp::{
    Broker, BrokerFull, Channels, Client, Conversation, Host, Kind, Message, Push, Received,
    ReplyBound,
};
use penstock_net::rights::{Grants, Right, Rights};
use penstock_net::status::Status;
use penstock_net::version::Version;

use crate::resp::Still;

/// A server with one core.
#[derive(Default)]
struct Node {
    channels: RefCell<Channels>,
    published: RefCell<Vec<Arc<Message>>>,
    /// Names that may be subscribed to, if they are bounded.
    names_left: RefCell<Option<usize>>,
    /// Steps that patterns take for a message.
    steps: usize,
    /// Messages that were mailed and are not given out.
    in_mail: Cell<u64>,
}

impl Host for Node {
    fn unix_us(&self) -> u64 {
        Still.unix_us()
    }

    fn elapsed_us(&self) -> u64 {
        0
    }

    fn broker(&self) -> Option<&dyn Broker> {
        Some(self)
    }
}

impl Broker for Node {
    fn subscribe(&self, kind: Kind, name: &[u8], client: u64) -> Result<(), BrokerFull> {
        if let Some(left) = &mut *self.names_left.borrow_mut() {
            let full = BrokerFull::Names { bytes_max: 77 };
            *left = left.checked_sub(1).ok_or(full)?;
        }
        self.channels.borrow_mut().add(kind, name, client);
        Ok(())
    }

    fn unsubscribe(&self, kind: Kind, name: &[u8], client: u64) {
        assert!(self.channels.borrow_mut().remove(kind, name, client));
    }

    fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> Result<usize, BrokerFull> {
        self.published
            .borrow_mut()
            .push(message(kind, channel, payload));
        Ok(self.channels.borrow().receivers(kind, channel))
    }

    fn mail(&self) -> (u64, u64) {
        (7, 7 - self.in_mail.get())
    }

    fn steps(&self, _: Kind, _: &[u8]) -> usize {
        self.steps
    }

    fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        self.channels.borrow().subscribers(kind, name)
    }

    fn visit_names(&self, kind: Kind, visit: &mut dyn FnMut(&[u8]) -> bool) {
        self.channels.borrow().names(kind).all(visit);
    }

    fn clients(&self) -> usize {
        0
    }
}

fn message(kind: Kind, channel: &[u8], payload: &[u8]) -> Arc<Message> {
    Message::new((kind, channel, payload), &Arc::default(), usize::MAX).expect("there is room")
}

fn push(channel: &str, payload: &str) -> Push {
    Push::Message(message(
        Kind::Channel,
        channel.as_bytes(),
        payload.as_bytes(),
    ))
}

/// A connection, its bytes that were not taken, and what it waits for.
struct Talk {
    conversation: Conversation,
    bytes: Vec<u8>,
    /// Frames of GETs: their number and their items.
    frames: Vec<(u64, usize)>,
}

impl Talk {
    fn new() -> Talk {
        Talk {
            conversation: Conversation::new(Client::default(), Limits::default(), false),
            bytes: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Sends commands, words with blanks between; what leaves.
    fn send(&mut self, commands: &[&str], node: &Node) -> String {
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            self.bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                let argument = format!("${}\r\n{word}\r\n", word.len());
                self.bytes.extend(argument.bytes());
            }
        }
        self.go_on(node)
    }

    fn go_on(&mut self, node: &Node) -> String {
        let mut all = Vec::new();
        loop {
            let mut frame = Vec::new();
            let taken = self.conversation.take(&self.bytes, &mut frame, node);
            self.bytes.drain(..taken);
            if let Some(head) = frame.first_chunk::<HEADER_BYTES>() {
                let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
                self.frames
                    .push((Header::decode(head).request_id, batch.len()));
            }
            let mut out = Vec::new();
            self.conversation.take_out(&mut out);
            if taken == 0 && frame.is_empty() && out.is_empty() {
                return String::from_utf8(all).expect("text");
            }
            all.extend(out);
        }
    }

    /// Answers items `from..to` of the first frame with the value `v`; what leaves.
    fn answer(&mut self, from: usize, to: usize, node: &Node) -> String {
        let (id, items) = self.frames[0];
        let mut out = Pieces::default();
        let mut reply = BatchReply::begin(&mut out, id, to - from).over(Medium::Memory);
        for item in from..to {
            let item = u16::try_from(item).expect("few");
            ReplyHead::new(Status::Ok, item, AckLevel::Disk, Version::default())
                .write(out.written(), b"v");
            reply.end_item(&mut out);
        }
        assert!(reply.finish(&mut out, 0, false, to < items));
        self.conversation.answered(&out.into_bytes(), node);
        self.go_on(node)
    }
}

fn lines(text: &str) -> String {
    text.replace("\r\n", " ")
}

#[test]
fn a_message_comes_behind_the_replies_that_were_asked_for_before_it_and_within_none() {
    let node = Node::default();
    let mut talk = Talk::new();
    talk.send(&["HELLO 3", "SUBSCRIBE c"], &node);
    assert_eq!(
        talk.send(&["MGET a b c"], &node),
        "*3\r\n",
        "the array begins"
    );
    assert_eq!(
        talk.conversation.receive(push("c", "1"), 1 << 20),
        Received::Waits
    );
    assert_eq!(talk.go_on(&node), "");
    assert_eq!(talk.answer(0, 2, &node), "$1\r\nv\r\n$1\r\nv\r\n");
    // An array that comes behind the message waits for it; any other command does not.
    assert_eq!(talk.send(&["PING", "MGET d e"], &node), "");
    let rest = lines(&talk.answer(2, 3, &node));
    assert_eq!(rest, "$1 v +PONG >3 $7 message $1 c $1 1 *2 ");
}

#[test]
fn subscribers_of_resp2_send_few_commands_until_they_have_left_all_channels() {
    let node = Node::default();
    let mut talk = Talk::new();
    talk.send(&["SUBSCRIBE c", "PSUBSCRIBE p*"], &node);
    for command in ["GET k", "CLIENT LIST", "PUBLISH c m", "MULTI", "HELLO 3"] {
        let refused = talk.send(&[command], &node);
        assert!(refused.starts_with("-ERR Can't execute '"), "{refused}");
    }
    assert_eq!(lines(&talk.send(&["PING"], &node)), "*2 $4 pong $0  ");
    talk.send(&["UNSUBSCRIBE", "PUNSUBSCRIBE"], &node);
    assert_eq!(talk.send(&["PING"], &node), "+PONG\r\n");
    // What has not left is not left out.
    talk.send(&["SUBSCRIBE c"], &node);
    assert_eq!(
        talk.conversation.receive(push("c", "1"), 1 << 20),
        Received::Waits
    );
    let left = lines(&talk.send(&["UNSUBSCRIBE c"], &node));
    assert_eq!(left, "*3 $7 message $1 c $1 1 *3 $11 unsubscribe $1 c :0 ");
    assert_eq!(
        talk.conversation.receive(push("c", "2"), 1 << 20),
        Received::Passed
    );
    talk.send(&["SUBSCRIBE c", "RESET"], &node);
    assert_eq!(node.subscribers(Kind::Channel, b"c"), 0);
}

#[test]
fn a_subscribe_that_finds_no_room_subscribes_to_nothing() {
    let node = Node::default();
    *node.names_left.borrow_mut() = Some(3);
    let mut talk = Talk::new();
    talk.send(&["SUBSCRIBE a"], &node);
    let refused = talk.send(&["SUBSCRIBE a b c d"], &node);
    assert!(
        refused.starts_with("-ERR") && refused.contains("77"),
        "{refused}"
    );
    let held = ["a", "b", "c", "d"].map(|it| node.subscribers(Kind::Channel, it.as_bytes()));
    assert_eq!(held, [1, 0, 0, 0]);
    talk.conversation.ended(&node);
    assert_eq!(node.subscribers(Kind::Channel, b"a"), 0);
}

#[test]
fn channels_are_judged_by_the_rights_of_keys_and_a_right_that_is_gone_drops_messages() {
    let node = Node::default();
    let mut talk = Talk::new();
    let rights = |right| {
        let mut grants = Grants::new();
        grants.grant(right, b"shop:").expect("within the limits");
        Some(Arc::new(Rights::new("ann", &grants)))
    };
    talk.conversation.set_rights(rights(Right::Read));
    talk.send(&["HELLO 3"], &node);
    let refused = "-NOPERM No permissions to access a channel\r\n";
    for command in [
        "SUBSCRIBE shop",
        "SUBSCRIBE shop:1 other",
        "SSUBSCRIBE other",
        "PSUBSCRIBE shop*",
        "PSUBSCRIBE shop?:",
        "PUBLISH shop:1 m",
        "SPUBLISH shop:1 m",
    ] {
        assert_eq!(talk.send(&[command], &node), refused, "{command}");
    }
    assert!(
        talk.send(&["PUBSUB CHANNELS"], &node)
            .starts_with("-NOPERM")
    );
    let taken = talk.send(&["SUBSCRIBE shop:1", "PSUBSCRIBE shop:*"], &node);
    assert_eq!(taken.matches("subscribe\r\n").count(), 2, "{taken}");
    assert_eq!(
        talk.conversation.receive(push("shop:1", "1"), 1 << 20),
        Received::Waits
    );
    talk.conversation.set_rights(rights(Right::Write));
    assert_eq!(
        talk.conversation.receive(push("shop:1", "2"), 1 << 20),
        Received::Passed
    );
    assert!(talk.go_on(&node).ends_with("\r\n1\r\n"), "it came before");
    assert_eq!(talk.send(&["PUBLISH shop:1 m"], &node), ":2\r\n");
    assert_eq!(node.published.borrow().len(), 1);
}

#[test]
fn who_does_not_read_is_ended_when_its_share_is_used_up_and_holds_nothing_then() {
    let node = Node::default();
    let payload = "x".repeat(1000);
    let taken = |messages_left, replies_left| {
        let mut talk = Talk::new();
        talk.send(&["SUBSCRIBE c"], &node);
        talk.conversation.bound_replies(ReplyBound {
            one: 1 << 20,
            left: replies_left,
        });
        // As long as it likes, if nothing waits.
        let long = "y".repeat(100_000);
        let first = talk.conversation.receive(push("c", &long), messages_left);
        assert_eq!(first, Received::Waits);
        let mut out = Vec::new();
        while talk.conversation.may_send() {
            talk.conversation.take_out(&mut out);
            assert!(
                out.len() <= 64 << 10,
                "no more is written than may leave at once"
            );
            out.clear();
        }
        let mut taken = 0;
        while talk
            .conversation
            .receive(push("c", &payload), messages_left)
            == Received::Waits
        {
            taken += 1;
        }
        assert_eq!(talk.conversation.push_bytes().messages, 0);
        taken
    };
    // About 1,160 bytes each.
    assert_eq!(taken(1 << 20, 1 << 30), (1 << 16) / 1161);
    assert_eq!(taken(1 << 30, 1 << 20), (1 << 16) / 1161);
    assert_eq!(taken(0, 0), 4096 / 1161);
    assert_eq!(
        taken(1 << 30, 1 << 30),
        (1 << 20) / 1161,
        "output_bytes_max"
    );
}

#[test]
fn messages_that_take_many_steps_of_patterns_leave_others_their_turn() {
    let node = Node {
        steps: 300_000,
        ..Node::default()
    };
    let mut talk = Talk::new();
    let all = b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$1\r\nm\r\n".repeat(10);
    let (mut rest, mut rests, mut frame) = (&all[..], Vec::new(), Vec::new());
    while !rest.is_empty() {
        let taken = talk.conversation.take(rest, &mut frame, &node);
        rest = &rest[taken..];
        rests.push((node.published.borrow().len(), talk.conversation.rests()));
    }
    assert_eq!(rests, [(4, true), (8, true), (10, false)]);
    assert_eq!(talk.conversation.out(), &b":0\r\n".repeat(10));
}

#[test]
fn what_a_restricted_connection_sends_is_shown_cut() {
    let node = Node::default();
    let mut talk = Talk::new();
    talk.send(&["SUBSCRIBE c"], &node);
    let long = format!("CONFIG {}", "\u{1}".repeat(100_000));
    let refused = talk.send(&[&long], &node);
    assert!(refused.starts_with("-ERR Can't execute 'config|"));
    assert!(refused.len() < 1000, "{}", refused.len());
}

#[test]
fn names_are_no_replies_that_a_connection_keeps() {
    let node = Node::default();
    let mut talk = Talk::new();
    let names: Vec<String> = (0..30).map(|it| format!("{it:0>1000}")).collect();
    talk.send(&[&format!("SUBSCRIBE {}", names.join(" "))], &node);
    assert_eq!(talk.conversation.kept_bytes(), 0);
}

#[test]
fn a_transaction_with_a_script_waits_for_all_that_was_asked_for_before_it() {
    let node = Node::default();
    let mut talk = Talk::new();
    talk.send(&["SET k v", "MULTI", "EVAL x 0", "EXEC"], &node);
    assert_eq!(talk.frames, [(0, 1)], "the script may publish");
    talk.answer(0, 1, &node);
    assert_eq!(talk.frames.len(), 2, "EXEC");
}

#[test]
fn who_leaves_a_channel_gets_what_was_published_before() {
    for (command, left) in [("UNSUBSCRIBE", ">3 $11 unsubscribe "), ("RESET", "+RESET ")] {
        let node = Node::default();
        let mut talk = Talk::new();
        talk.send(&["HELLO 3", "SUBSCRIBE c"], &node);
        node.in_mail.set(1);
        assert_eq!(talk.send(&["PUBLISH c m", command], &node), ":1\r\n");
        assert!(talk.conversation.rests(), "the core has it in its mail");
        let received = talk.conversation.receive(push("c", "m"), 1 << 20);
        assert_eq!(received, Received::Waits);
        node.in_mail.set(0);
        let all = lines(&talk.go_on(&node));
        let message = ">3 $7 message $1 c $1 m ";
        assert!(all.starts_with(&format!("{message}{left}")), "{all}");
        assert_eq!(node.subscribers(Kind::Channel, b"c"), 0);
    }
}
