//! A shard with users: what it takes before a login, and whom it lets in.

use std::sync::Arc;

use penstock_net::auth::{
    AuthMethod, AuthReply, AuthRequest, Identity, KEY_BYTES, LOGIN_NONCE_BYTES, Login, Secret,
    Transport, Verifier,
};
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::{
    AUTH_CERTIFICATE, AUTH_NONE, AUTH_SCRAM, AUTH_SCRAM_BOUND, ClientHello, ServerHello,
};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::text_of;
use penstock_net::request::{BatchRequest, Condition};
use penstock_net::status::Status;
use penstock_net::users::Users;
use penstock_shard::{Event, Greeting, Now, Outbox, SessionId, Shard};
use penstock_storage::log::{Log, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::heap::{Heap, HeapBlock};
use crate::server::{log_config, shard_config};

/// What a client was answered.
#[derive(Debug)]
struct Answer {
    header: Header,
    status: Status,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> &str {
        text_of(&self.body).expect("a text")
    }
}

struct Node {
    shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    now: Now,
    nonce: u8,
}

fn key(of: u8) -> Secret {
    Secret::of_key(&[of; KEY_BYTES])
}

fn verifier(of: u8) -> Verifier {
    Verifier::new(&key(of), [0; 16])
}

/// Users with these keys of the till of ann.
fn users(keys: &[u8]) -> Arc<Users> {
    let keys: Vec<_> = keys.iter().map(|of| (format!("till-{of}"), *of)).collect();
    users_with(&keys)
}

/// The same with keys of these names.
fn users_with(keys: &[(String, u8)]) -> Arc<Users> {
    let mut text = format!("decoy {}\n", "3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    text += "user bob\ncertificate bob.shop\nread \"\"\n";
    if !keys.is_empty() {
        text += "user ann\n";
        for (name, of) in keys {
            text += &format!("key {name} {}\n", verifier(*of));
        }
        text += "read \"\"\nwrite \"\"\n";
    }
    Arc::new(Users::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}")))
}

fn encrypted(binding: u8) -> Transport {
    Transport {
        is_encrypted: true,
        channel_binding: Some([binding; 32]),
        ..Transport::plain(Some("192.0.2.1".parse().expect("an address")))
    }
}

fn plain(peer: &str) -> Transport {
    Transport::plain(Some(peer.parse().expect("an address")))
}

impl Node {
    /// With users, or none.
    fn new(users: Option<Arc<Users>>) -> Node {
        Node::of(0, 1, users)
    }

    /// One shard of some.
    fn of(shard: u16, shards: u16, users: Option<Arc<Users>>) -> Node {
        let log = Log::new(
            log_config(SyncMethod::DurableWrite, 1),
            LogStart::default(),
            Heap,
        );
        let store = Store::new(log, Heap, 1 << 8, [0; PARTITIONS], Replayed::new(1 << 20));
        let mut node = Node {
            shard: Shard::new(shard_config(shard, shards, 1), store),
            outbox: Outbox::default(),
            now: Now { us: 1, unix_ms: 1 },
            nonce: 0,
        };
        if let Some(users) = users {
            node.let_in(users);
        }
        node
    }

    fn let_in(&mut self, users: Arc<Users>) -> Vec<SessionId> {
        self.shard
            .step(self.now, Event::Users(users), &mut self.outbox);
        self.outbox.close.drain(..).map(|(id, _)| id).collect()
    }

    fn connect(&mut self, transport: Transport) -> SessionId {
        let id = self.shard.front_mut().open_session(self.now);
        self.nonce += 1;
        let nonce = [self.nonce; 32];
        if self.shard.front().needs_logins() {
            self.shard
                .front_mut()
                .greet(self.now, id, Greeting { nonce, transport });
        }
        id
    }

    /// A connection that has said HELLO.
    fn greeted(&mut self, transport: Transport) -> SessionId {
        let id = self.connect(transport);
        let answer = self.ask(id, &hello());
        assert_eq!(answer[0].status, Status::Ok);
        id
    }

    /// Sends bytes and takes all answers.
    fn ask(&mut self, session: SessionId, bytes: &[u8]) -> Vec<Answer> {
        let received = Event::Received { session, bytes };
        self.shard.step(self.now, received, &mut self.outbox);
        self.answers(session)
    }

    fn answers(&mut self, session: SessionId) -> Vec<Answer> {
        self.shard.step(self.now, Event::TurnEnds, &mut self.outbox);
        let mut out = Vec::new();
        self.shard.take_output(self.now, session, &mut out);
        self.shard
            .step(self.now, Event::Sent { session }, &mut self.outbox);
        let mut receiver = Receiver::new(u32::MAX);
        let (mut at, mut answers) = (0, Vec::new());
        while let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(&out[at..])
        {
            at += consumed;
            answers.push(Answer {
                header,
                status: Status::from_code(header.level_or_status).expect("a status"),
                body: body.to_vec(),
            });
        }
        assert_eq!(at, out.len(), "whole frames");
        answers
    }

    fn scram(&mut self, id: SessionId, message: &str) -> Answer {
        let answers = self.ask(id, &auth(AuthMethod::Scram, message.as_bytes()));
        answers.into_iter().next().expect("an answer")
    }

    /// Begins a login: the client, and its last message. `Err` has the answer to the first one.
    fn prove(
        &mut self,
        id: SessionId,
        name: &str,
        secret: Secret,
        binding: Option<[u8; 32]>,
    ) -> Result<(Login, String), Answer> {
        let identity = Identity::new(name, secret).expect("a name");
        let mut login = Login::new(&identity, binding, &[9; LOGIN_NONCE_BYTES]);
        let first = self.scram(id, &login.first());
        if first.status != Status::Ok {
            return Err(first);
        }
        let AuthReply::GoOn { message } = AuthReply::read(&first.body).expect("a body") else {
            panic!("logged in by one message");
        };
        let challenge = login.challenged(message).expect("a challenge");
        let proof = login.prove(&challenge.salted()).expect("challenged");
        Ok((login, proof))
    }

    /// Runs a login; `Err` has the last answer.
    fn log_in(
        &mut self,
        id: SessionId,
        name: &str,
        secret: Secret,
        binding: Option<[u8; 32]>,
    ) -> Result<ServerHello, Answer> {
        let (mut login, proof) = self.prove(id, name, secret, binding)?;
        let last = self.scram(id, &proof);
        if last.status != Status::Ok {
            return Err(last);
        }
        let AuthReply::Done { message, hello } = AuthReply::read(&last.body).expect("a body")
        else {
            panic!("not logged in");
        };
        login.welcomed(message).expect("the server knows the user");
        Ok(ServerHello::read(hello).expect("HELLO's body"))
    }

    /// Whether a connection may ask: a GET is answered.
    fn gets(&mut self, id: SessionId) -> Status {
        self.ask(id, &get()).first().expect("an answer").status
    }
}

fn hello() -> Vec<u8> {
    let mut out = Vec::new();
    let hello = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "login",
    };
    hello.write(&mut out, 0);
    out
}

fn auth(method: AuthMethod, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    AuthRequest { method, message }.write(&mut out, 7);
    out
}

fn get() -> Vec<u8> {
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, 9, AckLevel::None, 0, 1);
    batch.get(&mut out, b"stock");
    batch.finish(&mut out);
    out
}

#[test]
fn before_a_login_hello_names_no_place_and_no_id_and_the_login_brings_them() {
    let mut node = Node::new(Some(users(&[7])));
    for (transport, methods) in [
        (plain("127.0.0.1"), AUTH_SCRAM),
        (encrypted(3), AUTH_SCRAM_BOUND),
        (
            Transport {
                certificate_name: Some("bob.shop".into()),
                ..encrypted(3)
            },
            AUTH_SCRAM_BOUND | AUTH_CERTIFICATE,
        ),
    ] {
        let binding = transport.channel_binding;
        let id = node.connect(transport);
        let answer = node.ask(id, &hello()).remove(0);
        let server_hello = ServerHello::read(&answer.body).expect("a HELLO");
        assert_eq!(server_hello.auth_methods, methods);
        assert_ne!(server_hello.nonce, [0; 32]);
        assert_eq!(answer.header.slot_or_shard, 0);
        assert_eq!(
            (server_hello.cluster_id, server_hello.node_id),
            ([0; 16], [0; 16])
        );
        assert_eq!((server_hello.incarnation, server_hello.shard_count), (0, 0));
        assert!(server_hello.slots.is_empty() && server_hello.placement.is_none());
        let opened = node.log_in(id, "ann/till-7", key(7), binding);
        let opened = opened.expect("she knows the key");
        assert_eq!((opened.node_id, opened.slots.len()), ([2; 16], 1));
        assert_eq!(node.gets(id), Status::Ok);
    }
    assert_eq!(node.shard.counters().logins.made, 3);
}

/// The table of all opcodes.
#[test]
fn no_opcode_but_hello_auth_and_ping_is_taken_before_a_login() {
    for opcode in 0..=u8::MAX {
        let mut node = Node::new(Some(users(&[7])));
        let id = node.greeted(plain("127.0.0.1"));
        let mut header = Header::request(Opcode::Ping, 5, AckLevel::None, 0);
        header.opcode = opcode;
        let mut frame = Vec::new();
        let body: &[u8] = match opcode {
            0x10 => &get()[32..],
            _ => &[],
        };
        write_frame(&mut frame, header, body);
        let answer = node.ask(id, &frame).remove(0);
        let expected = match opcode {
            0x01 => Status::Malformed,
            0x02 => Status::Ok,
            _ => Status::Auth,
        };
        assert_eq!(answer.status, expected, "opcode {opcode:#04x}");
        assert_eq!(answer.header.request_id, 5);
        let counters = node.shard.counters();
        assert_eq!(
            counters.answers.total(),
            0,
            "opcode {opcode:#04x} ran an item"
        );
        assert!(node.outbox.info.is_empty() && node.outbox.io.is_empty());
        assert!(!node.shard.front().is_finished(id), "the connection lives");
        assert!(node.log_in(id, "ann/till-7", key(7), None).is_ok());
    }
}

#[test]
fn a_login_before_hello_is_refused_like_anything_else_and_a_second_one_by_its_name() {
    let mut node = Node::new(Some(users(&[7])));
    let id = node.connect(plain("127.0.0.1"));
    let early = node
        .ask(id, &auth(AuthMethod::Scram, b"n,,n=ann"))
        .remove(0);
    assert_eq!(early.status, Status::HelloExpected);
    assert!(node.shard.front().is_finished(id));
    let id = node.greeted(plain("127.0.0.1"));
    node.log_in(id, "ann/till-7", key(7), None).expect("in");
    let again = node
        .log_in(id, "ann/till-7", key(7), None)
        .expect_err("in already");
    assert_eq!(again.status, Status::Auth);
    assert!(
        again.text().contains("logged in already"),
        "{}",
        again.text()
    );
    assert_eq!(node.gets(id), Status::Ok, "and goes on as it was");
}

#[test]
fn a_frame_before_a_login_is_short_and_one_behind_it_as_long_as_hello_said() {
    let mut node = Node::new(Some(users(&[7])));
    let id = node.greeted(plain("127.0.0.1"));
    let ping = |bytes: usize| {
        let mut frame = Vec::new();
        let header = Header::request(Opcode::Ping, 5, AckLevel::None, 0);
        write_frame(&mut frame, header, &vec![1; bytes - 32]);
        frame
    };
    assert_eq!(node.ask(id, &ping(1024))[0].status, Status::Ok);
    assert_eq!(node.ask(id, &ping(1032))[0].status, Status::TooLarge);
    node.log_in(id, "ann/till-7", key(7), None).expect("in");
    assert_eq!(node.ask(id, &ping(4096))[0].status, Status::Ok);
}

#[test]
fn who_is_not_logged_in_and_reads_no_answers_is_ended_with_little_held() {
    let mut node = Node::new(Some(users(&[7])));
    let session = node.greeted(plain("127.0.0.1"));
    let mut frame = Vec::new();
    let header = Header::request(Opcode::Ping, 5, AckLevel::None, 0);
    write_frame(&mut frame, header, &[1; 900]);
    let many = frame.repeat(50);
    let received = Event::Received {
        session,
        bytes: &many,
    };
    node.shard.step(node.now, received, &mut node.outbox);
    assert_eq!(node.outbox.close.len(), 1);
    let held: usize = node
        .answers(session)
        .iter()
        .map(|it| it.body.len() + 32)
        .sum();
    assert!(held <= 4 << 10, "{held}");
}

#[test]
fn who_does_not_log_in_in_time_is_ended() {
    let mut node = Node::new(Some(users(&[7])));
    let (idle, open) = (
        node.greeted(plain("10.0.0.1")),
        node.greeted(plain("10.0.0.2")),
    );
    node.log_in(open, "ann/till-7", key(7), None).expect("in");
    node.now.us += 9_000_000;
    node.answers(idle);
    assert!(node.outbox.close.is_empty());
    node.now.us += 2_000_000;
    node.answers(idle);
    assert_eq!(node.outbox.close, [(idle, "it was not logged in in time")]);
}

#[test]
fn the_fifth_failure_ends_the_connection_and_delays_its_address_alone() {
    let mut node = Node::new(Some(users(&[7])));
    let id = node.greeted(plain("10.0.0.1"));
    let mut texts = Vec::new();
    for (name, secret) in [
        ("ann/till-7", key(8)),
        ("nobody", Secret::new(b"guess".to_vec()).expect("a secret")),
        ("ann/till-8", key(7)),
        ("nobody/till-7", key(7)),
    ] {
        let refused = node.log_in(id, name, secret, None).expect_err("wrong");
        texts.push(refused.text().to_string());
        assert!(!node.shard.front().is_finished(id));
        assert_eq!(node.gets(id), Status::Auth);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "one text for all: {texts:?}");
    node.log_in(id, "ann/till-7", key(8), None)
        .expect_err("wrong");
    assert!(node.shard.front().is_finished(id));
    let id = node.greeted(plain("10.0.0.1"));
    let refused = node
        .log_in(id, "ann/till-7", key(7), None)
        .expect_err("delayed");
    assert!(
        refused.text().ends_with("try again in 1000 ms"),
        "{}",
        refused.text()
    );
    assert_eq!(refused.header.deadline_or_retry_ms, 1000);
    let other = node.greeted(plain("10.0.0.2"));
    node.log_in(other, "ann/till-7", key(7), None)
        .expect("another address");
    node.now.us += 1_000_000;
    node.log_in(id, "ann/till-7", key(7), None)
        .expect("the delay is over");
    let counters = node.shard.counters().logins;
    assert_eq!(
        (counters.made, counters.failed, counters.delayed),
        (2, 5, 1)
    );
}

#[test]
fn failures_at_all_shards_of_a_node_count_together_and_each_once() {
    let mut shards = [0, 1, 2].map(|shard| Node::of(shard, 3, Some(users(&[7]))));
    // One try at each shard in turn: the fifth one of all is the last.
    let mut is_ended = Vec::new();
    for number in 0..5 {
        let at = number % 3;
        let id = shards[at].greeted(plain("10.0.0.1"));
        shards[at]
            .log_in(id, "ann/till-7", key(8), None)
            .expect_err("wrong");
        is_ended.push(shards[at].shard.front().is_finished(id));
        let node = &mut shards[at];
        node.shard.step(node.now, Event::TurnEnds, &mut node.outbox);
        let mail: Vec<_> = node.outbox.mail.drain(..).collect();
        let mut notified: Vec<_> = mail.iter().map(|(to, _)| usize::from(*to)).collect();
        notified.push(at);
        notified.sort_unstable();
        assert_eq!(notified, [0, 1, 2], "each other one once");
        for (to, mail) in mail {
            let node = &mut shards[usize::from(to)];
            node.shard
                .step(node.now, Event::Mail(mail), &mut node.outbox);
        }
    }
    assert_eq!(is_ended, [false, false, false, false, true]);
    for node in &mut shards {
        let id = node.greeted(plain("10.0.0.1"));
        let refused = node
            .log_in(id, "ann/till-7", key(7), None)
            .expect_err("delayed");
        assert!(
            refused.text().contains("try again in"),
            "{}",
            refused.text()
        );
        let other = node.greeted(plain("10.0.0.2"));
        node.log_in(other, "ann/till-7", key(7), None)
            .expect("another address");
        node.shard.step(node.now, Event::TurnEnds, &mut node.outbox);
        assert!(node.outbox.mail.is_empty(), "a delay is no failure");
    }
}

#[test]
fn a_proof_that_was_made_for_another_connection_lets_nobody_in() {
    let mut node = Node::new(Some(users(&[7])));
    let (mine, theirs) = (node.greeted(encrypted(1)), node.greeted(encrypted(2)));
    // A third party passes the messages of one on to the other.
    let passed = node.log_in(theirs, "ann/till-7", key(7), Some([1; 32]));
    assert_eq!(
        passed.expect_err("of another connection").status,
        Status::Auth
    );
    node.log_in(mine, "ann/till-7", key(7), Some([1; 32]))
        .expect("her own");
    let unbound = node
        .log_in(theirs, "ann/till-7", key(7), None)
        .expect_err("unbound");
    assert!(
        unbound.text().contains("p=tls-exporter"),
        "{}",
        unbound.text()
    );
}

#[test]
fn a_certificate_of_a_user_opens_a_connection_and_another_one_does_not() {
    let mut node = Node::new(Some(users(&[])));
    let with = |name: Option<&str>| Transport {
        certificate_name: name.map(Into::into),
        ..encrypted(1)
    };
    let certificate = auth(AuthMethod::Certificate, b"-");
    for (name, expected) in [
        (Some("bob.shop"), Status::Ok),
        (Some("bib.shop"), Status::Auth),
        (None, Status::Auth),
    ] {
        let id = node.greeted(with(name));
        assert_eq!(node.ask(id, &certificate)[0].status, expected);
        assert_eq!(node.gets(id), expected);
    }
}

#[test]
fn a_change_of_users_ends_those_who_are_gone_or_have_another_key_and_nobody_else() {
    let mut node = Node::new(Some(users(&[7, 8])));
    let till = |node: &mut Node, of: u8| {
        let id = node.greeted(plain("10.0.0.1"));
        node.log_in(id, &format!("ann/till-{of}"), key(of), None)
            .expect("in");
        id
    };
    let (seven, eight) = (till(&mut node, 7), till(&mut node, 8));
    let early = node.greeted(plain("10.0.0.1"));
    assert_eq!(node.let_in(users(&[7, 9])), [eight]);
    assert_eq!(node.gets(seven), Status::Ok);
    // What it had sent and what comes late runs no more.
    assert!(node.ask(eight, &get()).is_empty());
    assert!(node.log_in(early, "ann/till-8", key(8), None).is_err());
    node.log_in(early, "ann/till-9", key(9), None)
        .expect("a new key");
    assert_eq!(node.let_in(users(&[])), [seven, early]);
    assert_eq!(node.shard.counters().logins.ended, 3);
}

#[test]
fn a_login_under_way_when_the_users_change_is_made_by_who_stays_and_by_nobody_else() {
    let keys = |name: &str, of: u8| users_with(&[(name.into(), of)]);
    for (before, after, expected) in [
        (users(&[7]), users(&[9, 7]), Status::Ok),
        // Gone, another key of that name, and a name that nobody had at the first message.
        (users(&[7]), users(&[8]), Status::Auth),
        (users(&[7]), users(&[]), Status::Auth),
        (keys("till-7", 8), users(&[7]), Status::Auth),
        (users(&[7]), keys("till-7", 8), Status::Auth),
        (users(&[8]), users(&[7]), Status::Auth),
    ] {
        let mut node = Node::new(Some(before));
        let id = node.greeted(plain("10.0.0.1"));
        let (_, proof) = node
            .prove(id, "ann/till-7", key(7), None)
            .expect("challenged");
        assert!(node.let_in(after).is_empty());
        assert_eq!(node.scram(id, &proof).status, expected);
        assert_eq!(node.gets(id), expected);
        let counters = node.shard.counters().logins;
        let failed = u64::from(expected != Status::Ok);
        assert_eq!((counters.made, counters.failed), (1 - failed, failed));
    }
}

#[test]
fn without_users_hello_opens_a_connection_and_a_login_is_refused_by_its_name() {
    let mut node = Node::new(None);
    let id = node.connect(plain("10.0.0.1"));
    let answer = node.ask(id, &hello()).remove(0);
    let server_hello = ServerHello::read(&answer.body).expect("a HELLO");
    assert_eq!(
        (server_hello.auth_methods, server_hello.nonce),
        (AUTH_NONE, [0; 32])
    );
    assert_eq!(node.gets(id), Status::Ok);
    let refused = node
        .log_in(id, "ann/till-7", key(7), None)
        .expect_err("no users");
    assert!(refused.text().contains("no users"), "{}", refused.text());
    assert_eq!(node.gets(id), Status::Ok);
    // Users that come later end those who have never logged in.
    assert_eq!(node.let_in(users(&[7])), [id]);
}

#[test]
fn a_connection_of_which_nothing_is_known_cannot_log_in_and_one_of_the_process_need_not() {
    let mut node = Node::new(Some(users(&[7])));
    let unknown = node.shard.front_mut().open_session(node.now);
    node.ask(unknown, &hello());
    assert_eq!(node.gets(unknown), Status::Auth);
    assert!(node.log_in(unknown, "ann/till-7", key(7), None).is_err());
    let embedded = node.shard.front_mut().open_session_in_memory(node.now);
    let received = Event::Received {
        session: embedded,
        bytes: &hello(),
    };
    node.shard.step(node.now, received, &mut node.outbox);
    assert!(node.shard.front().is_open(embedded));
    assert!(node.let_in(users(&[])).is_empty());
}

#[test]
fn every_cut_and_every_flipped_bit_of_the_frames_of_a_login_lets_nobody_in() {
    let mut made = Vec::new();
    for changed in 0..4_000_usize {
        let mut node = Node::new(Some(users(&[7])));
        let id = node.greeted(plain("10.0.0.1"));
        let identity = Identity::new("ann/till-7", key(7)).expect("a name");
        let mut login = Login::new(&identity, None, &[9; LOGIN_NONCE_BYTES]);
        let (at, bit) = (changed / 8, changed % 8);
        let change = |mut frame: Vec<u8>, from: usize| {
            if (from..from + frame.len()).contains(&at) {
                frame[at - from] ^= 1 << bit;
            }
            frame
        };
        let first = auth(AuthMethod::Scram, login.first().as_bytes());
        let first_len = first.len();
        let answers = node.ask(id, &change(first, 0));
        // What a client would make of it: it has not seen its own bytes changed.
        let challenge = answers.first().filter(|it| it.status == Status::Ok);
        let challenge = challenge.and_then(|it| match AuthReply::read(&it.body) {
            Ok(AuthReply::GoOn { message }) => login.challenged(message).ok(),
            _ => None,
        });
        let Some(challenge) = challenge else {
            assert!(!node.shard.front().is_open(id), "byte {at}, bit {bit}");
            continue;
        };
        let proof = login.prove(&challenge.salted()).expect("challenged");
        let last = auth(AuthMethod::Scram, proof.as_bytes());
        let end = first_len + last.len();
        node.ask(id, &change(last, first_len));
        if node.shard.front().is_open(id) {
            made.push((at, end));
        }
        if at > end {
            break;
        }
    }
    // The request id in a header may be any: its bits are not covered by a proof, but by the CRC.
    assert!(made.iter().all(|&(at, end)| at >= end), "{made:?}");
    assert!(
        !made.is_empty(),
        "what is behind the frames was not changed"
    );
    // Cuts: the stream ends anywhere.
    let id = |node: &mut Node| node.greeted(plain("10.0.0.1"));
    let frame = auth(AuthMethod::Scram, b"n,,n=ann/till-7,r=0123456789abcdef");
    for cut in 0..frame.len() {
        let mut node = Node::new(Some(users(&[7])));
        let id = id(&mut node);
        assert!(node.ask(id, &frame[..cut]).is_empty());
        assert!(!node.shard.front().is_open(id));
    }
}

#[test]
fn sets_before_a_login_change_nothing() {
    let mut node = Node::new(Some(users(&[7])));
    let id = node.greeted(plain("10.0.0.1"));
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, 9, AckLevel::None, 0, 1);
    batch.set(&mut out, b"stock", b"1", Condition::Always);
    batch.finish(&mut out);
    assert_eq!(node.ask(id, &out)[0].status, Status::Auth);
    assert_eq!(
        node.shard.store().log().appended(),
        node.shard.store().log().durable()
    );
    assert_eq!(node.shard.counters().answers.total(), 0);
}
