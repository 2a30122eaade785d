//! Writes with tokens against a server that executes each token once and can die at any moment.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_client::{
    Apply, Changed, Client, ClientError, ClientOptions, Condition, Field, Instruction, Token,
    Unknown, Verbs, new_token,
};
use penstock_net::apply::ApplyRequest;
use penstock_net::batch::Batch;
use penstock_net::frame::Opcode;
use penstock_net::hello::{FEATURE_APPLY, FEATURE_TOKENS};
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ITEM_FLAG_REPLAYED, ReplyHead, write_ping_reply};
use penstock_net::request::{Request, Version};
use penstock_net::status::Status;

/// What the server does with one batch. Behind its script it answers.
#[derive(Clone, Copy, Debug)]
enum Act {
    Answers,
    /// It executes the items, and the connection ends before the answer.
    ExecutesAndDies,
    /// The connection ends, and nothing is executed.
    Dies,
    /// It executes the items and says nothing.
    IsSilent,
    /// It executes nothing and gives this answer.
    Says(Status),
    /// As `Dies`; from now on the server knows no tokens.
    DiesAndForgets,
}

#[derive(Default)]
struct Store {
    script: VecDeque<Act>,
    has_forgotten: bool,
    answers: HashMap<Token, u64>,
    /// How often a write was executed.
    executed: u64,
    /// The token of each item that arrived.
    tokens: Vec<Option<Token>>,
}

struct Server {
    address: SocketAddr,
    store: Arc<Mutex<Store>>,
}

impl Server {
    fn start(features: u64, script: &[Act]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let store = Arc::new(Mutex::new(Store {
            script: script.iter().copied().collect(),
            ..Store::default()
        }));
        let served = Arc::clone(&store);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                converse(stream, features, &served);
            }
        });
        Server { address, store }
    }

    fn with_tokens(script: &[Act]) -> Server {
        Server::start(FEATURE_TOKENS | FEATURE_APPLY, script)
    }

    /// A client that names its writes and has saved a retry for them.
    fn client(&self) -> Client {
        self.client_after(10, super::patient())
    }

    fn client_after(&self, requests: usize, options: ClientOptions) -> Client {
        let options = ClientOptions {
            names_writes: true,
            ..options
        };
        let script = std::mem::take(&mut self.store().script);
        let client = Client::connect(self.address, options).expect("connected");
        for _ in 0..requests {
            let _ = client.get(b"key").wait().expect("an answer");
        }
        let mut store = self.store();
        store.script = script;
        store.tokens.clear();
        drop(store);
        client
    }

    fn store(&self) -> std::sync::MutexGuard<'_, Store> {
        self.store.lock().expect("nobody panics with it")
    }

    fn executed(&self) -> u64 {
        self.store().executed
    }
}

fn converse(stream: TcpStream, features: u64, store: &Mutex<Store>) {
    super::answer_frames(stream, |header, body| {
        let mut out = Vec::new();
        let mut store = store.lock().expect("nobody panics with it");
        match Opcode::from_code(header.opcode) {
            Some(Opcode::Hello) => {
                let forgotten = if store.has_forgotten {
                    FEATURE_TOKENS
                } else {
                    0
                };
                super::hello(&[], features & !forgotten).write(&mut out, header.request_id);
            }
            Some(Opcode::Batch) => {
                let act = store.script.pop_front().unwrap_or(Act::Answers);
                match act {
                    Act::DiesAndForgets => store.has_forgotten = true,
                    Act::Dies => {}
                    _ => out = store.answer(act, header.request_id, body),
                }
                match act {
                    Act::Dies | Act::ExecutesAndDies | Act::DiesAndForgets => return None,
                    Act::IsSilent => out.clear(),
                    Act::Answers | Act::Says(_) => {}
                }
            }
            _ => write_ping_reply(&mut out, header, body, 0),
        }
        Some(out)
    });
}

impl Store {
    fn answer(&mut self, act: Act, request_id: u64, body: &[u8]) -> Vec<u8> {
        let batch = Batch::read(body).expect("a batch");
        let mut pieces = Pieces::default();
        let mut reply = BatchReply::begin(&mut pieces, request_id, batch.len());
        for number in 0..batch.len() {
            let mut item = Vec::new();
            let (head, value) = self.item(act, number, batch.item(number));
            head.write(&mut item, &value);
            let item = Pieces::from(item);
            reply.raw(&mut pieces, &mut item.reader(), item.len());
        }
        reply.finish(&mut pieces, 0, false, false);
        pieces.into_bytes()
    }

    fn item(&mut self, act: Act, number: usize, item: &[u8]) -> (ReplyHead, Vec<u8>) {
        let (token, is_read) = match ApplyRequest::read(item, 1 << 20) {
            Ok(apply) => (apply.token(), false),
            Err(_) => {
                let request = Request::read(item, 1 << 20).expect("an item");
                (request.token(), request.verb.name() == "get")
            }
        };
        self.tokens.push(token);
        let number = u16::try_from(number).expect("small");
        let version = |sequence| Version { epoch: 1, sequence };
        let head =
            |status, sequence| ReplyHead::new(status, number, AckLevel::Disk, version(sequence));
        if let Act::Says(status) = act {
            return (head(status, 0), Vec::new());
        }
        if is_read {
            return (head(Status::NotFound, 0), Vec::new());
        }
        if let Some(&sequence) = token.and_then(|token| self.answers.get(&token)) {
            let replayed = ReplyHead {
                flags: ITEM_FLAG_REPLAYED,
                ..head(Status::Ok, sequence)
            };
            return (replayed, Vec::new());
        }
        self.executed += 1;
        if let Some(token) = token {
            self.answers.insert(token, self.executed);
        }
        (head(Status::Ok, self.executed), Vec::new())
    }
}

fn sale() -> [Instruction; 2] {
    let stock = Field::u32(0);
    [stock.at_least(1), stock.decrease(1)]
}

fn unknown(outcome: Result<Changed, ClientError>) -> Unknown {
    match outcome {
        Err(ClientError::Unknown(unknown)) => unknown,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_whose_connection_ended_is_sent_again_with_its_token_and_executed_once() {
    for (act, is_replayed) in [(Act::ExecutesAndDies, true), (Act::Dies, false)] {
        let server = Server::with_tokens(&[act]);
        let client = server.client();
        let pending = client.update_if(b"stock", &sale());
        let token = pending.token().expect("it is named");
        let sold = pending.wait().expect("sent again");
        assert_eq!(sold.is_replayed, is_replayed, "{act:?}");
        assert_eq!(server.executed(), 1);
        let arrived = server.store().tokens.clone();
        assert!(arrived.iter().all(|&it| it == Some(token)), "{arrived:?}");

        let server = Server::with_tokens(&[act]);
        let client = server.client();
        let mut apply = Apply::new();
        let key = apply.key(b"stock");
        apply.then(key.u32(0).decrease(1u64));
        let sold = super::block_on(async { client.apply(&apply).await });
        assert_eq!(sold.expect("sent again").is_replayed, is_replayed);
        assert_eq!(server.executed(), 1);
    }
}

#[test]
fn without_budget_the_outcome_is_unknown_and_resolve_answers_it_as_often_as_it_is_asked() {
    for (act, is_replayed) in [(Act::ExecutesAndDies, true), (Act::Dies, false)] {
        let server = Server::with_tokens(&[act]);
        let client = server.client_after(8, super::patient());
        let pending = client.update_if(b"stock", &sale());
        let token = pending.token();
        let unknown = unknown(pending.wait());
        assert_eq!(unknown.token(), token);
        let shown = token.expect("it is named").to_string();
        assert!(unknown.to_string().contains(&shown), "{unknown}");
        let write = unknown.write().expect("it has a token");
        let sold: Changed = client.resolve(write).wait().expect("resolved");
        assert_eq!(sold.is_replayed, is_replayed);
        let again: Changed = client.resolve(write).wait().expect("resolved");
        assert!(again.is_replayed);
        assert_eq!(again.version, sold.version);
        assert_eq!(server.executed(), 1);
    }
}

#[test]
fn a_write_that_is_not_answered_within_the_deadline_can_be_resolved() {
    let server = Server::with_tokens(&[Act::IsSilent]);
    let options = ClientOptions {
        deadline: Duration::from_millis(300),
        ..super::patient()
    };
    let client = server.client_after(0, options);
    let unknown = unknown(client.update_if(b"stock", &sale()).wait());
    let write = unknown.write().expect("it has a token");
    // The machine may be busy for longer than the deadline.
    let sold: Changed = std::iter::repeat_with(|| client.resolve(write).wait())
        .take(100)
        .find_map(Result::ok)
        .expect("resolved");
    assert!(sold.is_replayed);
    assert_eq!(server.executed(), 1);
}

#[test]
fn a_no_of_a_retry_is_believed_only_if_the_server_has_searched_for_the_token() {
    let proofs = [
        Status::GuardFailed,
        Status::NotFound,
        Status::Exists,
        Status::VersionMismatch,
        Status::BadField,
        Status::WrongType,
        Status::TokenReused,
    ];
    for status in Status::ALL.into_iter().filter(|&it| it != Status::Ok) {
        let server = Server::with_tokens(&[Act::ExecutesAndDies, Act::Says(status)]);
        let options = ClientOptions {
            retries_busy: false,
            follows: false,
            ..super::patient()
        };
        let client = server.client_after(10, options);
        let outcome = client.update_if(b"stock", &sale()).wait();
        if proofs.contains(&status) {
            let is_no = matches!(outcome, Err(ClientError::No(_) | ClientError::Refused(_)));
            assert!(is_no, "{status:?}: {outcome:?}");
            continue;
        }
        let unknown = unknown(outcome);
        assert!(unknown.text().contains(status.name()) || status == Status::Deadline);
        let write = unknown.write().expect("it has a token");
        let sold: Changed = client.resolve(write).wait().expect("resolved");
        assert!(sold.is_replayed, "{status:?}");
    }
}

#[test]
fn an_answer_that_leaves_the_outcome_open_can_be_resolved() {
    for status in [Status::NoReplicas, Status::Io, Status::TokenTooOld] {
        let server = Server::with_tokens(&[Act::Says(status)]);
        let client = server.client();
        let unknown = unknown(client.update_if(b"stock", &sale()).wait());
        let answer = unknown.answer().expect("the server has said so");
        assert_eq!(answer.status, status);
        let write = unknown.write().expect("it has a token");
        let sold: Changed = client.resolve(write).wait().expect("resolved");
        assert!(!sold.is_replayed);
    }
}

#[test]
fn a_write_that_is_refused_after_a_lost_answer_has_no_answer_of_its_own() {
    let server = Server::with_tokens(&[Act::ExecutesAndDies, Act::Says(Status::Full)]);
    let client = server.client();
    let unknown = unknown(client.update_if(b"stock", &sale()).wait());
    assert!(unknown.text().contains("FULL"), "{unknown}");
    assert_eq!(
        unknown.answer(),
        None,
        "FULL is the answer of the second try"
    );
}

#[test]
fn only_writes_that_are_not_the_same_twice_as_once_get_a_token() {
    let server = Server::with_tokens(&[]);
    let client = server.client();
    client.set(b"key", b"1").wait().expect("set");
    client
        .set_if(b"key", b"1", Condition::Absent)
        .wait()
        .expect("set");
    client.del(b"key").wait().expect("deleted");
    client
        .del_if(b"key", Condition::Present)
        .wait()
        .expect("deleted");
    client.get(b"key").wait().expect("read");
    client.update_if(b"key", &sale()).wait().expect("sold");
    client
        .update_if(b"key", &sale()[..1])
        .wait()
        .expect("looked at");
    let are_named: Vec<bool> = server.store().tokens.iter().map(Option::is_some).collect();
    assert_eq!(are_named, [false, true, false, true, false, true, false]);

    // The server has one connection at a time.
    drop(client);
    let unnamed = Client::connect(server.address, super::patient()).expect("connected");
    unnamed.update_if(b"key", &sale()).wait().expect("sold");
    assert_eq!(
        server.store().tokens.last(),
        Some(&None),
        "unless it is asked for"
    );
    let token = new_token().expect("random");
    unnamed.named(token).set(b"key", b"1").wait().expect("set");
    assert_eq!(server.store().tokens.last(), Some(&Some(token)));
}

#[test]
fn to_a_server_that_knows_no_tokens_none_is_sent_and_nothing_unknown_is_sent_again() {
    let server = Server::start(FEATURE_APPLY, &[Act::Answers, Act::Dies]);
    let client = server.client();
    let sold = client.update_if(b"stock", &sale()).wait().expect("sold");
    assert!(!sold.is_replayed);
    let unknown = unknown(client.update_if(b"stock", &sale()).wait());
    assert_eq!(unknown.write(), None);
    assert_eq!(server.store().tokens, [None]);
    let token = new_token().expect("random");
    match client.named(token).update_if(b"stock", &sale()).wait() {
        Err(ClientError::Refused(answer)) => assert_eq!(answer.status, Status::Unsupported),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.executed(), 1);
}

#[test]
fn a_write_in_doubt_is_not_sent_to_a_server_that_has_forgotten_tokens() {
    let server = Server::with_tokens(&[Act::DiesAndForgets]);
    let client = server.client();
    let unknown = unknown(client.update_if(b"stock", &sale()).wait());
    assert!(unknown.text().contains("feature bit 8"), "{unknown}");
    assert!(unknown.write().is_some());
    assert_eq!(server.executed(), 0);
}

#[test]
fn of_many_writes_whose_connection_ended_a_tenth_of_the_requests_is_sent_again() {
    let server = Server::with_tokens(&[Act::IsSilent, Act::ExecutesAndDies]);
    let client = server.client_after(20, super::patient());
    // The first batch has the first write alone; the others wait for the connection meanwhile.
    let pending: Vec<_> = (0..30)
        .map(|_| client.update_if(b"stock", &sale()))
        .collect();
    let mut outcomes: Vec<_> = Vec::new();
    // If one batch took all of them, no connection has ended.
    let ends = client.update_if(b"stock", &sale());
    for one in pending.into_iter().chain([ends]) {
        outcomes.push(one.wait());
    }
    let open: Vec<Unknown> = outcomes
        .into_iter()
        .filter_map(|it| match it {
            Err(ClientError::Unknown(unknown)) => Some(unknown),
            Ok(_) => None,
            other => panic!("{other:?}"),
        })
        .collect();
    let arrived = server.store().tokens.clone();
    let distinct: HashSet<_> = arrived.iter().collect();
    let again = arrived.len() - distinct.len();
    assert!(
        again <= 5,
        "51 requests have earned five retries, not {again}"
    );
    for unknown in &open {
        let write = unknown.write().expect("it has a token");
        let _: Changed = client.resolve(write).wait().expect("resolved");
    }
    assert_eq!(server.executed(), 31, "each once");
}
