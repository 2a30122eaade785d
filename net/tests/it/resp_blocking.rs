//! A connection of RESP whose command pops, and waits until it can: what it tries, and when the
//! wait ends.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::program::ServedSchema;
use penstock_net::reply::{BatchReply, ReplyHead};
use penstock_net::resp::{
    Client, ClusterView, Conversation, Facts, Host, KeyHas, KeyWaiter, KeyWaiters, MayTry, Pause,
    PauseControl, PausedCommands, SlowCommand, WaitedKeys, WaitersFull, WaitingFigures, WaitsFor,
};
use penstock_net::status::Status;
use penstock_net::version::Version;

const NOTHING: &str = "*-1\r\n";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const ZSET: KeyHas = KeyHas::Value(3);

/// A node of two shards: keys with a small first letter are of shard 0.
#[derive(Default)]
struct Node {
    now_us: Cell<u64>,
    pause: Cell<Option<Pause>>,
    keys: RefCell<WaitedKeys<u64>>,
    last_ticket: Cell<u64>,
    /// Who was told that he may try a key.
    notified: RefCell<Vec<u64>>,
    is_full: Cell<bool>,
    /// Connections as CLIENT LIST tells them.
    listed: RefCell<Option<u64>>,
}

impl Node {
    fn notify(&self, next: Option<u64>) {
        self.notified.borrow_mut().extend(next);
    }

    /// A key gets a value.
    fn changes(&self, key: &str, has: KeyHas) -> Vec<u64> {
        let next = self
            .keys
            .borrow_mut()
            .changed(key.as_bytes(), has, |_| false);
        self.notify(next);
        self.notified.take()
    }
}

impl Host for Node {
    fn unix_us(&self) -> u64 {
        1
    }

    fn elapsed_us(&self) -> u64 {
        self.now_us.get()
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn clients(&self) -> Vec<Client> {
        Vec::new()
    }

    fn client_changed(&self, client: &Client) {
        *self.listed.borrow_mut() = client.ticket;
    }

    fn was_slow(&self, command: SlowCommand) {
        panic!("{command:?} has waited, and was not slow");
    }

    fn slow_commands(&self) -> Vec<SlowCommand> {
        Vec::new()
    }

    fn forget_slow_commands(&self) {}

    fn cluster(&self) -> Option<ClusterView> {
        None
    }

    fn serves(&self, _: u16, _: bool) -> bool {
        true
    }

    fn schema(&self) -> Arc<ServedSchema> {
        Arc::default()
    }

    fn scan_order(&self) -> u64 {
        1
    }

    fn pauses(&self) -> Option<&dyn PauseControl> {
        Some(self)
    }

    fn waiters(&self) -> Option<&dyn KeyWaiters> {
        Some(self)
    }
}

impl PauseControl for Node {
    fn pause(&self) -> Option<Pause> {
        self.pause.get()
    }

    fn begin(&self, pause: Pause) {
        self.pause.set(Some(pause));
    }

    fn end(&self) {
        self.pause.set(None);
    }
}

impl KeyWaiters for Node {
    fn shard_of(&self, key: &[u8]) -> u16 {
        key[0].is_ascii_uppercase().into()
    }

    fn begin(&self, client: u64, of_type: u8, keys: &[&[u8]]) -> Result<u64, WaitersFull> {
        if self.is_full.get() {
            return Err(WaitersFull { bytes_max: 77 });
        }
        let ticket = self.last_ticket.get() + 1;
        self.last_ticket.set(ticket);
        let place = client;
        for key in keys {
            let waiter = KeyWaiter { place, of_type };
            self.keys.borrow_mut().add(key, ticket, waiter);
        }
        Ok(ticket)
    }

    fn may_try(&self, key: &[u8], ticket: u64) -> MayTry {
        self.keys.borrow().may_try(key, ticket)
    }

    fn found(&self, key: &[u8], ticket: u64, has: KeyHas) {
        let next = self.keys.borrow_mut().found(key, ticket, has);
        self.notify(next);
    }

    fn end(&self, ticket: u64, keys: &[&[u8]]) {
        for key in keys {
            let next = self.keys.borrow_mut().remove(key, ticket);
            self.notify(next);
        }
    }

    fn unblock(&self, _: u64, _: bool) -> bool {
        false
    }

    fn blocked_clients(&self) -> usize {
        0
    }

    fn figures(&self) -> WaitingFigures {
        WaitingFigures::default()
    }
}

/// A connection, its bytes that were not taken, and the frame that it waits for.
struct Talk {
    conversation: Conversation,
    bytes: Vec<u8>,
    frame: Option<u64>,
}

impl Talk {
    fn of(id: u64) -> Talk {
        let client = Client {
            id,
            ..Client::default()
        };
        Talk {
            conversation: Conversation::new(client, Limits::default(), false),
            bytes: Vec::new(),
            frame: None,
        }
    }

    /// Sends a command, words with blanks between; the words of the try that is sent.
    fn send(&mut self, command: &str, node: &Node) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        self.bytes.extend(format!("*{}\r\n", words.len()).bytes());
        for word in words {
            let argument = format!("${}\r\n{word}\r\n", word.len());
            self.bytes.extend(argument.bytes());
        }
        self.go_on(node)
    }

    /// The words of the try that is sent now; nothing if none is.
    fn go_on(&mut self, node: &Node) -> String {
        let mut tried = String::new();
        loop {
            let mut frame = Vec::new();
            let taken = self.conversation.take(&self.bytes, &mut frame, node);
            self.bytes.drain(..taken);
            if let Some(head) = frame.first_chunk::<HEADER_BYTES>() {
                let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
                assert_eq!((batch.len(), self.frame), (1, None), "one at a time");
                self.frame = Some(Header::decode(head).request_id);
                let item = batch.item(0);
                let from = item.windows(2).position(|pair| pair == b"BZ").expect("it");
                // Zeros fill an item up.
                tried = item[from..].escape_ascii().to_string().replace("\\x00", "");
            }
            if taken == 0 && frame.is_empty() {
                return tried;
            }
        }
    }

    /// Answers the try with this reply.
    fn answer(&mut self, reply: &str, node: &Node) {
        self.answer_with(Status::Ok, reply, node);
    }

    fn answer_with(&mut self, status: Status, text: &str, node: &Node) {
        let id = self.frame.take().expect("a try is under way");
        let mut out = Pieces::default();
        let mut reply = BatchReply::begin(&mut out, id, 1).over(Medium::Memory);
        let head = ReplyHead::new(status, 0, AckLevel::Disk, Version::default());
        head.write(out.written(), text.as_bytes());
        reply.end_item(&mut out);
        assert!(reply.finish(&mut out, 0, false, false));
        self.conversation.answered(&out.into_bytes(), node);
    }

    fn out(&mut self) -> String {
        let mut out = Vec::new();
        self.conversation.take_out(&mut out);
        String::from_utf8(out).expect("text")
    }

    /// It has found nothing and waits.
    fn blocked(id: u64, command: &str, node: &Node) -> Talk {
        let mut talk = Talk::of(id);
        let mut tried = talk.send(command, node);
        while !tried.is_empty() {
            talk.answer(NOTHING, node);
            tried = talk.go_on(node);
        }
        assert!(matches!(talk.conversation.waits_for(), WaitsFor::Keys(_)));
        assert_eq!(talk.out(), "");
        node.notified.take();
        talk
    }
}

#[test]
fn keys_are_tried_shard_by_shard_in_their_order_and_the_first_reply_is_that_of_the_command() {
    let node = Node::default();
    let mut talk = Talk::of(1);
    assert_eq!(talk.send("BZPOPMIN a b C D a e 0", &node), "BZPOPMINab0");
    talk.answer(NOTHING, &node);
    assert_eq!(talk.go_on(&node), "BZPOPMINCD0");
    talk.answer(NOTHING, &node);
    assert_eq!(talk.go_on(&node), "BZPOPMINe0");
    assert_eq!(talk.out(), "");
    talk.answer("*3\r\n$1\r\ne\r\n$1\r\nm\r\n$1\r\n1\r\n", &node);
    assert_eq!(talk.out(), "*3\r\n$1\r\ne\r\n$1\r\nm\r\n$1\r\n1\r\n");
    assert_eq!(node.keys.borrow().keys(), 0, "it waits no more");
    // The number of keys is that of those that are tried.
    assert_eq!(
        talk.send("BZMPOP 0 3 a B c MAX COUNT 7", &node),
        "BZMPOP01aMAXCOUNT7"
    );
    talk.answer(WRONG_TYPE, &node);
    assert_eq!(talk.out(), WRONG_TYPE);
    assert_eq!(node.keys.borrow().keys(), 0);
}

#[test]
fn who_is_notified_tries_the_keys_that_he_may_try_alone() {
    let node = Node::default();
    let mut first = Talk::blocked(1, "BZPOPMIN k 0", &node);
    let mut second = Talk::blocked(2, "BZPOPMIN x k Y 0", &node);
    assert_eq!(*node.listed.borrow(), Some(2));
    assert_eq!(second.go_on(&node), "", "nobody has told it");
    assert_eq!(node.changes("k", ZSET), [1]);
    assert_eq!(node.changes("Y", ZSET), [2]);
    second.conversation.may_try();
    assert_eq!(second.go_on(&node), "BZPOPMINY0", "k is the other one's");
    first.conversation.may_try();
    assert_eq!(first.go_on(&node), "BZPOPMINk0");
    first.answer("*0\r\n", &node);
    assert_eq!(
        (first.out(), node.notified.take()),
        ("*0\r\n".into(), vec![2])
    );
    // Told while a try is under way, it tries again when that has found nothing.
    second.conversation.may_try();
    assert_eq!(second.go_on(&node), "");
    second.answer(NOTHING, &node);
    assert_eq!(second.go_on(&node), "BZPOPMINk0");
    second.answer("*0\r\n", &node);
    assert_eq!(second.out(), "*0\r\n");
    assert_eq!(
        (node.keys.borrow().keys(), *node.listed.borrow()),
        (0, None)
    );
}

#[test]
fn a_wait_is_over_at_its_microsecond_and_a_try_that_has_begun_is_answered() {
    let node = Node::default();
    node.now_us.set(1_000);
    let mut talk = Talk::blocked(1, "BZPOPMIN k 0.0025", &node);
    assert_eq!(talk.conversation.waits_for(), WaitsFor::Keys(Some(4_000)));
    node.now_us.set(3_999);
    assert_eq!((talk.go_on(&node), talk.out()), ("".into(), "".into()));
    node.now_us.set(4_000);
    assert_eq!((talk.go_on(&node), talk.out()), ("".into(), NOTHING.into()));
    assert_eq!(node.keys.borrow().keys(), 0);
    let mut talk = Talk::blocked(1, "BZPOPMIN k 1", &node);
    node.changes("k", ZSET);
    talk.conversation.may_try();
    assert_eq!(talk.go_on(&node), "BZPOPMINk1");
    // Nothing is to be done before the answer, so no timer runs.
    assert_eq!(talk.conversation.waits_for(), WaitsFor::Keys(None));
    node.now_us.set(9_000_000);
    assert_eq!((talk.go_on(&node), talk.out()), ("".into(), "".into()));
    talk.answer("*0\r\n", &node);
    assert_eq!(talk.out(), "*0\r\n");
}

#[test]
fn a_key_that_could_not_be_tried_is_tried_once_before_the_end() {
    let node = Node::default();
    let mut first = Talk::of(1);
    assert_eq!(first.send("BZPOPMIN k 0", &node), "BZPOPMINk0");
    let mut second = Talk::of(2);
    assert_eq!(
        second.send("BZPOPMIN k 0.001", &node),
        "",
        "another one tries it"
    );
    assert_eq!(second.conversation.waits_for(), WaitsFor::Keys(Some(1_000)));
    node.now_us.set(1_000);
    assert_eq!(second.go_on(&node), "BZPOPMINk0.001");
    second.answer(NOTHING, &node);
    assert_eq!(second.out(), NOTHING);
    first.answer("*0\r\n", &node);
    assert_eq!(
        (first.out(), node.keys.borrow().keys()),
        ("*0\r\n".into(), 0)
    );
}

#[test]
fn a_value_of_another_type_is_an_error_for_who_comes_and_nothing_for_who_waits() {
    let node = Node::default();
    let mut waits = Talk::blocked(1, "BZPOPMIN k 0", &node);
    assert!(node.changes("k", KeyHas::Value(0)).is_empty());
    let mut comes = Talk::of(2);
    assert_eq!(comes.send("BZPOPMIN k 0", &node), "BZPOPMINk0");
    comes.answer(WRONG_TYPE, &node);
    assert_eq!(comes.out(), WRONG_TYPE);
    // The value is another one again when it is tried.
    assert_eq!(node.changes("k", ZSET), [1]);
    waits.conversation.may_try();
    assert_eq!(waits.go_on(&node), "BZPOPMINk0");
    waits.answer(WRONG_TYPE, &node);
    assert_eq!((waits.go_on(&node), waits.out()), ("".into(), "".into()));
    assert_eq!(node.changes("k", ZSET), [1], "it waits on");
}

#[test]
fn keys_of_one_try_are_tried_alone_where_one_has_a_value_of_another_type() {
    let node = Node::default();
    let mut talk = Talk::blocked(1, "BZPOPMIN {t}1 {t}2 0", &node);
    node.notify(node.keys.borrow_mut().all_changed().pop());
    talk.conversation.may_try();
    assert_eq!(talk.go_on(&node), "BZPOPMIN{t}1{t}20");
    talk.answer(WRONG_TYPE, &node);
    assert_eq!(talk.go_on(&node), "BZPOPMIN{t}10");
    talk.answer(WRONG_TYPE, &node);
    assert_eq!(talk.go_on(&node), "BZPOPMIN{t}20");
    talk.answer("*0\r\n", &node);
    assert_eq!(talk.out(), "*0\r\n");
}

#[test]
fn nothing_is_tried_for_who_has_left_and_the_next_one_may_try() {
    let node = Node::default();
    let mut gone = Talk::blocked(1, "BZPOPMIN k other 0", &node);
    let mut next = Talk::blocked(2, "BZPOPMIN k 0", &node);
    assert_eq!(node.changes("k", ZSET), [1]);
    gone.conversation.may_try();
    gone.conversation.leaves(&node);
    assert_eq!(gone.go_on(&node), "");
    assert_eq!(
        (node.notified.take(), node.keys.borrow().keys()),
        (vec![2], 1)
    );
    next.conversation.may_try();
    assert_eq!(next.go_on(&node), "BZPOPMINk0");
    // An answer to one that has left meanwhile is nobody's.
    next.conversation.leaves(&node);
    next.answer("*0\r\n", &node);
    assert_eq!((next.out(), node.keys.borrow().keys()), ("".into(), 0));
}

#[test]
fn client_unblock_ends_the_wait_that_it_has_seen_and_no_other() {
    let node = Node::default();
    let mut talk = Talk::blocked(1, "BZPOPMIN k 0", &node);
    talk.conversation.unblock(7, true);
    assert_eq!((talk.go_on(&node), talk.out()), ("".into(), "".into()));
    talk.conversation.unblock(1, true);
    talk.go_on(&node);
    assert_eq!(
        talk.out(),
        "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
    );
    let mut talk = Talk::blocked(1, "BZPOPMIN k 0", &node);
    node.changes("k", ZSET);
    talk.conversation.may_try();
    assert_eq!(talk.go_on(&node), "BZPOPMINk0");
    talk.conversation.unblock(2, false);
    talk.answer(NOTHING, &node);
    talk.go_on(&node);
    assert_eq!((talk.out(), node.keys.borrow().keys()), (NOTHING.into(), 0));
}

#[test]
fn a_pause_holds_tries_and_not_the_end_of_a_wait() {
    let node = Node::default();
    let mut talk = Talk::blocked(1, "BZPOPMIN k 0.5", &node);
    node.pause.set(Some(Pause {
        commands: PausedCommands::Writes,
        until_us: 1 << 40,
    }));
    node.changes("k", ZSET);
    talk.conversation.may_try();
    assert_eq!(talk.go_on(&node), "");
    assert_eq!(talk.conversation.waits_for(), WaitsFor::PauseEnd(500_000));
    node.pause.set(None);
    assert_eq!(talk.go_on(&node), "BZPOPMINk0.5");
    talk.answer(NOTHING, &node);
    node.pause.set(Some(Pause {
        commands: PausedCommands::All,
        until_us: 1 << 40,
    }));
    node.now_us.set(500_000);
    assert_eq!((talk.go_on(&node), talk.out()), ("".into(), NOTHING.into()));
}

#[test]
fn what_cannot_wait_or_be_tried_is_refused_and_leaves_nothing_behind() {
    let node = Node::default();
    let mut talk = Talk::of(1);
    let keys: Vec<String> = (0..256).map(|number| format!("k{number}")).collect();
    assert_eq!(
        talk.send(&format!("BZPOPMIN {} 0", keys.join(" ")), &node),
        ""
    );
    assert_eq!(
        talk.out(),
        "-ERR 256 keys; a command waits for at most 255\r\n"
    );
    node.is_full.set(true);
    assert_eq!(talk.send("BZPOPMIN k 0", &node), "");
    assert!(talk.out().starts_with("-BUSY nothing was executed"));
    node.is_full.set(false);
    assert_eq!(talk.send("BZPOPMIN k L 0", &node), "BZPOPMINk0");
    talk.answer_with(Status::Moved, "", &node);
    let out = talk.out();
    assert!(out.starts_with('-'), "{out}");
    assert_eq!(talk.go_on(&node), "");
    assert_eq!(node.keys.borrow().keys(), 0);
}
