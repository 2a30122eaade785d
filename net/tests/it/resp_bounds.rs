//! What a short command of RESP may multiply to: replies of transactions, names, lists.

use std::cell::RefCell;
use std::sync::Arc;

use penstock_net::batch::Batch;
use penstock_net::expression::ValueLayout;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::item::Item;
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::program::{NamedLayout, ServedSchema};
use penstock_net::reply::{BatchReply, KeyExpiry, ReplyHead};
use penstock_net::request::Verb;
use penstock_net::resp::{
    Client, Conversation, Eval, Evals, Host, KeyRead, KeySource, MustWait, Protocol, QueuedEnd,
    ReplyBound, Staged, Unread, run_queued,
};
use penstock_net::status::Status;
use penstock_net::version::Version;

const REPLY_BYTES_MAX: usize = 1 << 20;

/// A server with some connections.
#[derive(Default)]
struct Server {
    clients: RefCell<Vec<Client>>,
}

impl Host for Server {
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn elapsed_us(&self) -> u64 {
        0
    }

    fn clients(&self) -> Vec<Client> {
        self.clients.borrow().clone()
    }

    fn schema(&self) -> Arc<ServedSchema> {
        let layout = ValueLayout::parse("texts:text[64]@0;=512").expect("a layout");
        Arc::new(ServedSchema {
            layouts: vec![NamedLayout {
                name: "Texts".into(),
                layout,
            }],
            ..ServedSchema::default()
        })
    }
}

/// An interpreter that no command asks for.
struct NoScripts;

impl Evals for NoScripts {
    fn eval(
        &mut self,
        _: &Eval<'_>,
        _: Protocol,
        _: &mut Staged,
        _: &mut dyn KeySource,
        _: usize,
        _: &mut Vec<u8>,
    ) -> Result<bool, MustWait> {
        panic!("no command is a script")
    }
}

/// A store in which each key has this value.
struct Values<'a> {
    value: &'a [u8],
}

impl KeySource for Values<'_> {
    fn read(&mut self, _: &[u8]) -> Result<Option<KeyRead<'_>>, Unread> {
        Ok(Some(KeyRead {
            version: Version {
                epoch: 1,
                sequence: 1,
            },
            value: self.value,
            expiry_ms: None,
            is_armed: false,
            has_members: false,
        }))
    }

    fn may_have_changed(&mut self, _: &[u8], _: Version) -> bool {
        false
    }
}

/// A connection beside a session in which each key has the same value.
struct Peer {
    talk: Conversation,
    server: Server,
    value: Vec<u8>,
    /// How many items changed something.
    changes: usize,
}

impl Peer {
    fn new(value_bytes: usize) -> Peer {
        let mut talk = Conversation::new(Client::default(), Limits::default(), false);
        talk.bound_replies(ReplyBound {
            one: REPLY_BYTES_MAX,
            left: usize::MAX,
        });
        Peer {
            talk,
            server: Server::default(),
            value: vec![b'v'; value_bytes],
            changes: 0,
        }
    }

    /// The replies to commands, whose arguments are divided by blanks.
    fn ask(&mut self, commands: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in commands {
            let words: Vec<&str> = line.split(' ').collect();
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
        }
        let (mut at, mut replies) = (0, Vec::new());
        loop {
            let mut frame = Vec::new();
            let taken = self.talk.take(&bytes[at..], &mut frame, &self.server);
            at += taken;
            let answers = self.answer(&frame);
            self.talk.answered(&answers, &self.server);
            replies.append(self.talk.out());
            if taken == 0 && frame.is_empty() {
                assert_eq!(at, bytes.len(), "all of it is taken");
                return replies;
            }
        }
    }

    /// The answers to a frame.
    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        let Some(head) = frame.first_chunk::<HEADER_BYTES>() else {
            return Vec::new();
        };
        let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
        let mut out = Pieces::default();
        let id = Header::decode(head).request_id;
        let mut reply = BatchReply::begin(&mut out, id, batch.len()).over(Medium::Memory);
        for number in 0..batch.len() {
            let version = Version {
                epoch: 1,
                sequence: 1,
            };
            let item = u16::try_from(number).expect("few");
            let head = ReplyHead::new(Status::Ok, item, AckLevel::Disk, version);
            let expiry = KeyExpiry {
                expiry_ms: 0,
                time_ms: 1_700_000_000_000,
            };
            match Item::read(batch.item(number), 1 << 20) {
                Ok(Item::Verb(request)) if request.verb == Verb::Get => {
                    let value = self.value.clone();
                    head.write_extended(out.written(), Some(expiry), None, &value);
                }
                Ok(Item::Script(request)) => {
                    let value = self.value.clone();
                    let (value_bytes_max, now_us) = (1 << 20, 1_700_000_000_000_000);
                    let mut staged = Staged::new(now_us, value_bytes_max, request.access());
                    let bytes_max = request.reply_bytes_max(value_bytes_max);
                    let mut text = Vec::new();
                    let keys = (&mut staged, &mut Values { value: &value } as _);
                    let end = run_queued(&request, bytes_max, keys, &mut NoScripts, &mut text);
                    if end == Ok(QueuedEnd::Done) {
                        self.changes += staged.changed();
                    }
                    head.write(out.written(), &text);
                }
                _ => {
                    self.changes += 1;
                    head.write(out.written(), &[]);
                }
            }
            reply.end_item(&mut out);
        }
        assert!(reply.finish(&mut out, 0, false, false));
        out.into_bytes()
    }
}

/// The reply to EXEC behind these commands, and how many items changed something.
fn exec(value_bytes: usize, commands: &[&str]) -> (Vec<u8>, usize) {
    exec_of(Peer::new(value_bytes), commands)
}

/// The same of a server that takes frames of so many bytes.
fn exec_within(frame_bytes_max: u32, commands: &[&str]) -> (Vec<u8>, usize) {
    let mut peer = Peer::new(1);
    let limits = Limits {
        frame_bytes_max,
        ..Limits::default()
    };
    peer.talk = Conversation::new(Client::default(), limits, false);
    exec_of(peer, commands)
}

fn exec_of(mut peer: Peer, commands: &[&str]) -> (Vec<u8>, usize) {
    let queued = peer.ask(&[&["MULTI"], commands].concat());
    let expected = format!("+OK\r\n{}", "+QUEUED\r\n".repeat(commands.len()));
    assert_eq!(queued, expected.into_bytes());
    let replies = peer.ask(&["EXEC"]);
    (replies, peer.changes)
}

#[test]
fn a_transaction_is_refused_by_what_its_commands_multiply_to_and_changes_nothing() {
    let many = |command: &str, count: usize| vec![command.to_string(); count];
    let mget = format!("MGET{}", " big".repeat(400));
    for (what, commands, value_bytes) in [
        ("GET", many("GET big", 1_000), 1_000_000),
        ("one MGET", vec![mget.clone()], 1_000_000),
        ("GETRANGE", many("GETRANGE big 0 -1", 300), 1_000_000),
        ("SET GET", many("SET big v GET", 3), 1_000_000),
        (
            "SET IFEQ GET, which shows what it does not change",
            many("SET big v IFEQ other GET", 300),
            10_000,
        ),
        (
            "GETDEL of one, shown before",
            {
                let mut all = many("GET big", 105);
                all.push("GETDEL big".to_string());
                all
            },
            10_000,
        ),
        ("GETEX", many("GETEX big PERSIST", 300), 10_000),
        (
            "an old value that another change follows",
            {
                let mut all = many("APPEND big x", 1);
                all.extend(many("GET big", 105));
                all
            },
            10_000,
        ),
    ] {
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        let (reply, changes) = exec(value_bytes, &commands);
        let text = String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned();
        if what == "SET GET" {
            // The values that it puts are short: only the first is long.
            assert!(text.starts_with("*3\r\n$1000000\r\n"), "{what}: {text}");
            continue;
        }
        assert!(text.starts_with("-EXECABORT "), "{what}: {text}");
        assert!(
            text.contains("and 1048576 is the limit: output_bytes_max"),
            "{what}: {text}"
        );
        assert_eq!(changes, 0, "{what}");
        let named: usize = text
            .split(' ')
            .find_map(|word| word.parse().ok())
            .expect("it names what the reply would take");
        assert!(named > REPLY_BYTES_MAX, "{what}: {named}");
    }
    // As much as fits is answered.
    let (reply, _) = exec(10_000, &["GET big"; 104]);
    assert!(reply.starts_with(b"*104\r\n$10000\r\n"));
    assert!(reply.len() > 104 * 10_000 && reply.len() <= REPLY_BYTES_MAX);
}

#[test]
fn where_little_is_left_for_replies_little_is_made() {
    let mut peer = Peer::new(10_000);
    let bound = |left| ReplyBound {
        one: REPLY_BYTES_MAX,
        left,
    };
    peer.talk.bound_replies(bound(50_000));
    peer.ask(&[&["MULTI"][..], &["GET big"; 6]].concat());
    let reply = String::from_utf8(peer.ask(&["EXEC"])).expect("text");
    assert!(reply.starts_with("-EXECABORT "), "{reply}");
    assert!(
        reply.contains("and 50000 is the limit: output_bytes_max, or what is left"),
        "{reply}"
    );
    for (left, most) in [(usize::MAX, 65 << 10), (20_000, 21_000), (0, 5_000)] {
        peer.talk.bound_replies(bound(left));
        let pings = b"*1\r\n$4\r\nPING\r\n".repeat(20_000);
        peer.talk.take(&pings, &mut Vec::new(), &peer.server);
        assert!(peer.talk.is_blocked());
        let made = peer.talk.out().len();
        assert!(made <= most && made > 3_000, "{left} left, {made} made");
        peer.talk.out().clear();
    }
}

#[test]
fn a_connection_that_rests_gives_back_what_a_long_pipeline_took() {
    let mut peer = Peer::new(1);
    let mut commands = Vec::new();
    (0..4_000).for_each(|number| commands.push(format!("SET key{number} value")));
    commands.push("MGET a b c d".to_string());
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let measured = allocation_counter::measure(|| drop(peer.ask(&commands)));
    let kept = usize::try_from(measured.bytes_current.max(0)).expect("positive");
    assert!(kept > 64 << 10, "{kept}");
    assert!(
        peer.talk.capacity() > kept - 4_096,
        "{} told",
        peer.talk.capacity()
    );
    let given = allocation_counter::measure(|| peer.talk.give_back());
    let left = i64::try_from(kept).expect("small") + given.bytes_current;
    assert!(left < 1_024, "{left} bytes are left of {kept}");
    assert_eq!(peer.ask(&["GET a"]), b"$1\r\nv\r\n");
}

#[test]
fn a_transaction_that_is_too_long_takes_little_memory_while_that_is_found_out() {
    let mget = format!("MGET{}", " big".repeat(400));
    let mut peer = Peer::new(1_000_000);
    peer.ask(&["MULTI", &mget, &mget, &mget]);
    let measured = allocation_counter::measure(|| drop(peer.ask(&["EXEC"])));
    assert!(
        measured.bytes_max < 8 << 20,
        "{} bytes for a reply that would take 1.2 GB",
        measured.bytes_max
    );
}

#[test]
fn what_multi_has_queued_counts_and_a_transaction_keeps_nothing() {
    let mut peer = Peer::new(100_000);
    assert_eq!(peer.talk.queued_bytes(), 0);
    peer.ask(&["WATCH a b"]);
    let watched = peer.talk.queued_bytes();
    assert!(watched > 0);
    let set = format!("SET k {}", "v".repeat(50_000));
    let measured = allocation_counter::measure(|| {
        peer.ask(&["MULTI", &set, &set, "PING", "MGET a b"]);
    });
    let queued = peer.talk.queued_bytes() - watched;
    let kept = usize::try_from(measured.bytes_current.max(0)).expect("positive");
    assert!(queued > 100_000, "{queued}");
    assert!(
        queued + 4_096 >= kept && queued <= kept + 4_096,
        "{queued} told, {kept} kept"
    );
    peer.ask(&["DISCARD"]);
    assert_eq!(peer.talk.queued_bytes(), 0);
    let reply = peer.ask(&["APPEND k x"]);
    assert_eq!(reply, b":100001\r\n");
    assert_eq!(peer.talk.kept_bytes(), 0, "values stay in the shard");
}

#[test]
fn exec_of_very_many_keys_is_refused_after_few_comparisons_of_their_names() {
    // All pairs of these names are 80 billion comparisons.
    let keys: String = (0..400_000).map(|key| format!(" {{a}}{key}")).collect();
    let mget = format!("MGET{keys}");
    let (reply, changes) = exec_within(8 << 20, &[&mget]);
    let text = String::from_utf8_lossy(&reply);
    assert!(text.contains("it has more than 255 keys"), "{text}");
    assert_eq!(changes, 0);
    // One key may be named very often.
    let mget = format!("MGET{}", " a".repeat(100_000));
    let (reply, _) = exec_within(8 << 20, &[&mget]);
    assert!(reply.starts_with(b"*1\r\n*100000\r\n"));
}

#[test]
fn nothing_is_kept_behind_multi_for_an_exec_that_will_be_refused() {
    let mut peer = Peer::new(1);
    let many: Vec<&str> = vec!["SET k v"; 1_024];
    peer.ask(&[&["MULTI"][..], &many].concat());
    assert!(peer.talk.queued_bytes() > 0);
    let refused = peer.ask(&["SET k v"]);
    assert_eq!(
        String::from_utf8_lossy(&refused),
        "-ERR too many commands behind MULTI: this is number 1025, and 1024 is the limit\r\n"
    );
    assert_eq!(peer.talk.queued_bytes(), 0, "refused commands do not count");
    peer.ask(&["SET k v"]);
    assert_eq!(peer.talk.queued_bytes(), 0);
    assert!(peer.ask(&["EXEC"]).starts_with(b"-EXECABORT "));
    let long = format!("SET k {}", "v".repeat(900_000));
    let count = Limits::default().frame_bytes_max as usize / 900_000 + 1;
    let refused = peer.ask(&[&["MULTI"][..], &vec![&long[..]; count]].concat());
    let refused = String::from_utf8_lossy(&refused);
    assert!(
        refused.contains(&format!("-ERR the {count} commands behind MULTI take "))
            && refused.ends_with(" is the limit (option frame_bytes_max)\r\n"),
        "{refused}"
    );
    assert!(peer.ask(&["EXEC"]).starts_with(b"-EXECABORT "));
    // Any other refusal does so, too, and the answer stays as in Valkey.
    peer.ask(&["MULTI", "SET k v", "NONSENSE"]);
    assert_eq!(peer.ask(&["SET k v"]), b"+QUEUED\r\n");
    assert_eq!(peer.talk.queued_bytes(), 0);
    assert!(peer.ask(&["EXEC"]).starts_with(b"-EXECABORT "));
    assert_eq!(peer.changes, 0);
}

#[test]
fn what_a_connection_says_of_itself_is_short() {
    let long = "n".repeat(257);
    let most = "n".repeat(256);
    let mut peer = Peer::new(1);
    for (begin, end) in [
        ("CLIENT SETNAME ", ""),
        ("CLIENT SETINFO LIB-NAME ", ""),
        ("CLIENT SETINFO lib-ver ", ""),
        ("HELLO 2 SETNAME ", ""),
        ("HELLO 3 SETNAME ", ""),
    ] {
        let reply = peer.ask(&[&format!("{begin}{long}{end}")]);
        let reply = String::from_utf8_lossy(&reply);
        assert!(
            reply.starts_with("-ERR ") && reply.contains("longer than 256 bytes"),
            "{begin}: {reply}"
        );
        assert!(reply.contains("257"), "{begin}: {reply}");
        let reply = peer.ask(&[&format!("{begin}{most}{end}")]);
        assert!(!reply.starts_with(b"-"), "{begin}");
    }
    let list = peer.ask(&["CLIENT INFO"]);
    assert!(list.len() < 4 * 256);
}

#[test]
fn lists_of_the_server_are_bounded_however_often_a_name_is_asked_for() {
    let mut peer = Peer::new(1);
    for command in ["COMMAND INFO", "COMMAND DOCS"] {
        let names = format!("{command}{}", " get".repeat(200_000));
        let reply = peer.ask(&[&names]);
        let begin = String::from_utf8_lossy(&reply[..reply.len().min(100)]).into_owned();
        assert!(begin.starts_with("-ERR 200000 "), "{begin}");
        let few = format!("{command}{}", " get".repeat(256));
        let reply = peer.ask(&[&few]);
        assert!(!reply.starts_with(b"-") && reply.len() < 256 << 10);
    }
    let client = |id| Client {
        id,
        name: "n".repeat(256),
        ..Client::default()
    };
    peer.server
        .clients
        .replace((0..1_000).map(client).collect());
    let reply = peer.ask(&["CLIENT LIST"]);
    assert!(reply.starts_with(b"$"));
    peer.server
        .clients
        .replace((0..9_000).map(client).collect());
    let reply = peer.ask(&["CLIENT LIST"]);
    let begin = String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned();
    assert!(
        begin.starts_with("-ERR the list of 9000 connections takes more than "),
        "{begin}"
    );
    assert!(
        begin.contains("and output_bytes_max is 1048576\r\n"),
        "{begin}"
    );
}

#[test]
fn texts_of_a_value_that_share_bytes_are_refused_by_what_they_multiply_to() {
    let value_of = |len: u32| {
        let place = [512u32.to_le_bytes(), len.to_le_bytes()].concat();
        [place.repeat(64), vec![b't'; len as usize]].concat()
    };
    let ask = ["KV.GET key AS Texts"];
    let mut peer = Peer::new(0);
    peer.value = value_of(512 << 10);
    let reply = String::from_utf8(peer.ask(&ask)).expect("a text");
    let wanted = 64 * (512 << 10);
    assert!(
        reply.starts_with("-ERR the reply would take ")
            && reply.ends_with(&format!(
                " bytes, and output_bytes_max is {REPLY_BYTES_MAX}\r\n"
            )),
        "{reply}"
    );
    let number = reply
        .split(' ')
        .nth(5)
        .and_then(|it| it.parse::<usize>().ok());
    assert!(number.is_some_and(|bytes| (wanted..wanted + 4_096).contains(&bytes)));
    // As many texts that fit are told.
    peer.value = value_of(14 << 10);
    let reply = peer.ask(&ask);
    assert!(reply.starts_with(b"*128\r\n"), "64 names and values");
    assert!(reply.len() > 64 * (14 << 10) && reply.len() < REPLY_BYTES_MAX);
}
