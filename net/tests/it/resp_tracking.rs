//! A connection of RESP that tracks keys: which of its reads are noted, and where it is told of
//! what.

use std::cell::RefCell;
use std::sync::Arc;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ReplyHead};
use penstock_net::resp::{
    Client, Conversation, Host, KeyTracker, Kind, Message, Push, Received, ReplyBound, TrackedBy,
    TrackingFigures, TrackingOptions, TrackingRefused,
};
use penstock_net::rights::{Grants, Right, Rights};
use penstock_net::status::Status;
use penstock_net::version::Version;

/// A server that keeps what is tracked.
#[derive(Default)]
struct Node {
    reads: RefCell<Vec<String>>,
    tracks: RefCell<Option<TrackingOptions>>,
}

impl Node {
    fn reads(&self) -> Vec<String> {
        self.reads.take()
    }
}

impl Host for Node {
    fn unix_us(&self) -> u64 {
        1
    }

    fn elapsed_us(&self) -> u64 {
        0
    }

    fn is_client(&self, _: u64) -> bool {
        true
    }

    fn tracker(&self) -> Option<&dyn KeyTracker> {
        Some(self)
    }
}

impl KeyTracker for Node {
    fn begin(&self, _: u64, options: &TrackingOptions) -> Result<(), TrackingRefused> {
        *self.tracks.borrow_mut() = Some(options.clone());
        Ok(())
    }

    fn end(&self, _: u64) {
        assert!(self.tracks.take().is_some());
    }

    fn reads(&self, _: u64, key: &[u8]) {
        let key = String::from_utf8_lossy(key).into_owned();
        self.reads.borrow_mut().push(key);
    }

    fn figures(&self) -> TrackingFigures {
        TrackingFigures::default()
    }
}

/// A connection, its bytes that were not taken, and what it waits for.
struct Talk {
    conversation: Conversation,
    bytes: Vec<u8>,
    /// Frames: their number and their items.
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
                let text = String::from_utf8(all).expect("text");
                return text.replace("\r\n", " ");
            }
            all.extend(out);
        }
    }

    /// Answers all items that were sent with the value `v`; what leaves.
    fn answer(&mut self, node: &Node) -> String {
        for (id, items) in std::mem::take(&mut self.frames) {
            let mut out = Pieces::default();
            let mut reply = BatchReply::begin(&mut out, id, items).over(Medium::Memory);
            for item in 0..items {
                let item = u16::try_from(item).expect("few");
                ReplyHead::new(Status::Ok, item, AckLevel::Disk, Version::default())
                    .write(out.written(), b"v");
                reply.end_item(&mut out);
            }
            assert!(reply.finish(&mut out, 0, false, false));
            self.conversation.answered(&out.into_bytes(), node);
        }
        self.go_on(node)
    }

    fn invalidate(&mut self, key: &str) -> Received {
        self.invalidate_by(TrackedBy::ThisConnection, Some(key))
    }

    fn invalidate_by(&mut self, by: TrackedBy, key: Option<&str>) -> Received {
        let message = |key: &str| {
            let key = (Kind::Channel, &b""[..], key.as_bytes());
            Message::new(key, &Arc::default(), usize::MAX).expect("there is room")
        };
        self.conversation.invalidate(key.map(message), by, 1 << 20)
    }
}

fn tracking(options: &str, node: &Node) -> Talk {
    let mut talk = Talk::new();
    let command = format!("CLIENT TRACKING ON{options}");
    assert!(talk.send(&["HELLO 3", &command], node).ends_with("+OK "));
    talk
}

#[test]
fn the_invalidation_of_a_key_stands_after_the_reply_that_it_ends() {
    let node = Node::default();
    let mut talk = tracking("", &node);
    // The same command again, and one of the same shape, are read by themselves.
    assert_eq!(talk.send(&["GET a", "GET a", "GET b"], &node), "");
    assert_eq!(node.reads(), ["a", "a", "b"]);
    assert_eq!(talk.invalidate("a"), Received::Waits);
    assert_eq!(talk.go_on(&node), "", "not in front of what was asked for");
    let invalidation = ">2 $10 invalidate *1 $1 a ";
    assert_eq!(talk.answer(&node), format!("$1 v $1 v $1 v {invalidation}"));
    talk.send(&["MGET d e"], &node);
    assert_eq!(talk.invalidate("d"), Received::Waits);
    let invalidation = ">2 $10 invalidate *1 $1 d ";
    assert_eq!(talk.answer(&node), format!("$1 v $1 v {invalidation}"));
    talk.conversation.ended(&node);
    assert!(node.tracks.borrow().is_none());
}

#[test]
fn reads_are_noted_when_they_are_sent_and_by_the_way_of_the_connection() {
    let node = Node::default();
    let mut talk = tracking("", &node);
    let commands = ["EXISTS a b", "TTL c", "STRLEN d", "SET e v", "INCR f"];
    for command in commands {
        talk.send(&[command], &node);
        talk.answer(&node);
    }
    assert_eq!(node.reads(), ["a", "b", "c", "d"]);
    talk.send(&["MULTI", "GET a", "SET b v", "GET c"], &node);
    assert!(node.reads().is_empty(), "nothing was read yet");
    talk.send(&["EXEC"], &node);
    assert_eq!(node.reads(), ["a", "c"]);
    let mut talk = tracking(" OPTIN", &node);
    talk.send(&["GET a", "CLIENT CACHING YES", "GET b", "GET c"], &node);
    assert_eq!(node.reads(), ["b"]);
    let mut talk = tracking(" OPTOUT", &node);
    talk.send(&["GET a", "CLIENT CACHING NO", "GET b", "GET c"], &node);
    assert_eq!(node.reads(), ["a", "c"]);
    let mut talk = tracking(" BCAST PREFIX x", &node);
    talk.send(&["GET x", "CLIENT TRACKING OFF", "GET x"], &node);
    assert!(node.reads().is_empty() && node.tracks.borrow().is_none());
}

#[test]
fn a_connection_that_does_not_read_gets_one_invalidation_of_all_keys() {
    let node = Node::default();
    let mut talk = tracking("", &node);
    talk.conversation.bound_replies(ReplyBound {
        one: 1 << 20,
        left: 160_000,
    });
    talk.send(&["GET a"], &node);
    for number in 0..10_000 {
        let received = talk.invalidate(&format!("key:{number}"));
        assert_ne!(received, Received::TooMuch);
        assert!(talk.conversation.push_bytes().messages <= 20_000);
    }
    let reply = talk.answer(&node);
    let rest = reply.strip_prefix("$1 v ").expect("the reply comes first");
    assert!(rest.starts_with(">2 $10 invalidate _ "), "{rest}");
    assert!(rest.matches("invalidate _").count() == 1, "{rest}");
    // Whoever knows that of all keys, and has asked for nothing since, is not told again.
    let all = |talk: &mut Talk| talk.invalidate_by(TrackedBy::ThisConnection, None);
    let mut talk = tracking("", &node);
    assert_eq!(all(&mut talk), Received::Waits);
    assert_eq!(all(&mut talk), Received::Passed);
    assert_eq!(talk.go_on(&node), ">2 $10 invalidate _ ");
    assert_eq!(all(&mut talk), Received::Passed);
    talk.send(&["GET a"], &node);
    assert_eq!(all(&mut talk), Received::Waits);
    assert_eq!(talk.answer(&node), "$1 v >2 $10 invalidate _ ");
}

const ALL: &str = ">2 $10 invalidate _ ";

#[test]
fn a_null_for_the_keys_of_another_connection_is_never_left_out() {
    let node = Node::default();
    let mut talk = tracking("", &node);
    for _ in 0..2 {
        let all = talk.invalidate_by(TrackedBy::AnotherConnection, None);
        assert_eq!(all, Received::Waits);
        assert_eq!(talk.go_on(&node), ALL);
        // It is told of its own keys once, and has read nothing since.
        talk.invalidate_by(TrackedBy::ThisConnection, None);
        talk.go_on(&node);
    }
    // Neither is a key that it may not read any more: it is a null then.
    let mut grants = Grants::new();
    grants.grant(Right::Write, b"shop:").expect("it is short");
    let rights = Some(Arc::new(Rights::new("ann", &grants)));
    talk.conversation.set_rights(rights);
    let key = talk.invalidate_by(TrackedBy::AnotherConnection, Some("shop:1"));
    assert_eq!((key, &*talk.go_on(&node)), (Received::Waits, ALL));
}

#[test]
fn caching_is_for_the_next_command_also_if_that_is_refused() {
    let refused = ["GET", "NOSUCH x", "CLIENT NOSUCH", "CLIENT", "SET k v EX x"];
    for command in refused {
        let node = Node::default();
        let mut talk = tracking(" OPTOUT", &node);
        let answers = talk.send(&["CLIENT CACHING NO", command], &node);
        let refusal = answers.strip_prefix("+OK ").expect("it is known");
        assert!(refusal.starts_with("-ERR"), "{command}: {refusal}");
        talk.send(&["GET k"], &node);
        assert_eq!(node.reads(), ["k"], "{command}");
    }
    for command in ["CLIENT ID", "CLIENT CACHING", "CLIENT TRACKINGINFO x"] {
        let node = Node::default();
        let mut talk = tracking(" OPTIN", &node);
        talk.send(&["CLIENT CACHING YES", command, "GET k"], &node);
        assert_eq!(node.reads(), ["k"], "{command}");
    }
}

#[test]
fn what_has_no_form_in_resp2_is_dropped_and_a_null_may_come_again() {
    let node = Node::default();
    let mut talk = tracking(" REDIRECT 7", &node);
    talk.send(&["GET a"], &node);
    talk.conversation.redirect_broke(7, &node);
    let reply = talk.answer(&node);
    assert!(reply.contains("tracking-redir-broken :7 "), "{reply}");
    talk.send(&["GET a"], &node);
    talk.conversation.redirect_broke(7, &node);
    let reply = talk.send(&["HELLO 2"], &node) + &talk.answer(&node);
    assert!(!reply.contains("redir-broken"), "{reply}");
    let mut talk = tracking("", &node);
    talk.send(&["GET a"], &node);
    talk.answer(&node);
    let null = |talk: &mut Talk| talk.invalidate_by(TrackedBy::ThisConnection, None);
    talk.send(&["GET a"], &node);
    assert_eq!(null(&mut talk), Received::Waits);
    talk.send(&["HELLO 2"], &node);
    assert!(!talk.answer(&node).contains("invalidate"));
    talk.send(&["HELLO 3"], &node);
    assert_eq!(
        null(&mut talk),
        Received::Waits,
        "the first one was dropped"
    );
    assert_eq!(talk.go_on(&node), ALL);
}

#[test]
fn a_connection_that_is_gone_is_reported_only_to_who_has_named_it() {
    let node = Node::default();
    let mut talk = tracking(" REDIRECT 7", &node);
    talk.conversation.redirect_broke(5, &node);
    assert_eq!(talk.go_on(&node), "", "it was named before");
    let info = talk.send(&["CLIENT TRACKINGINFO"], &node);
    assert!(!info.contains("broken_redirect"), "{info}");
    talk.conversation.redirect_broke(7, &node);
    let broken = ">2 $21 tracking-redir-broken :7 ";
    assert_eq!(talk.go_on(&node), broken);
}

#[test]
fn a_connection_without_resp3_and_subscriptions_gets_no_invalidation() {
    let node = Node::default();
    let mut talk = Talk::new();
    talk.send(&["CLIENT TRACKING ON", "GET a"], &node);
    assert_eq!(node.reads(), ["a"]);
    assert_eq!(talk.invalidate("a"), Received::Passed);
    assert_eq!(talk.answer(&node), "$1 v ");
    // What waits when a connection goes back to RESP2 is dropped, not told as a reply.
    let mut talk = tracking("", &node);
    talk.send(&["GET a"], &node);
    assert_eq!(talk.invalidate("a"), Received::Waits);
    let reply = talk.send(&["HELLO 2"], &node) + &talk.answer(&node);
    assert!(!reply.contains("invalidate"), "{reply}");
}

#[test]
fn reads_and_pushes_are_judged_by_the_rights_of_keys() {
    let node = Node::default();
    let mut talk = tracking("", &node);
    let rights = |right| {
        let mut grants = Grants::new();
        grants.grant(right, b"shop:").expect("within the limits");
        Some(Arc::new(Rights::new("ann", &grants)))
    };
    talk.conversation.set_rights(rights(Right::Read));
    talk.send(&["GET shop:1", "GET other"], &node);
    assert_eq!(node.reads(), ["shop:1"]);
    talk.answer(&node);
    let (refused, taken) = ("-NOPERM", "+OK ");
    for (options, answer) in [
        ("", refused),
        (" PREFIX sho", refused),
        (" PREFIX shop:1 PREFIX x", refused),
        (" PREFIX shop:", taken),
    ] {
        let off = "CLIENT TRACKING OFF";
        let on = format!("CLIENT TRACKING ON BCAST{options}");
        let answers = talk.send(&[off, &on], &node);
        let answers = answers.strip_prefix("+OK ").expect("it is off");
        assert!(answers.starts_with(answer), "{options}: {answers}");
    }
    talk.conversation.set_rights(rights(Right::Write));
    assert_eq!(talk.invalidate("shop:1"), Received::Waits);
    assert_eq!(talk.go_on(&node), ">2 $10 invalidate _ ", "without a name");
}

#[test]
fn a_connection_that_is_notified_itself_has_no_other_that_could_be_gone() {
    let node = Node::default();
    let mut talk = tracking("", &node);
    talk.conversation.redirect_broke(0, &node);
    assert_eq!(talk.go_on(&node), "");
    let info = talk.send(&["CLIENT TRACKINGINFO"], &node);
    assert!(!info.contains("broken_redirect"), "{info}");
    let push = Push::AllInvalidated;
    assert_eq!(talk.conversation.receive(push, 1 << 20), Received::Passed);
}
