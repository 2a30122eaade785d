//! A server whose time stands still, and one key that is written in every way there is: by commands
//! of Redis alone and behind MULTI, by items of the native protocol, and by transactions of the
//! Rust client.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use penstock_client::{Answer, Ask, ClientError, Isolation, Token, Transacted, Transaction};
use penstock_net::apply::Apply;
use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::program::{Program, ProgramParts, Programs, ServedSchema};
use penstock_net::request::{BatchRequest, Condition, Expiry, Wanted};
use penstock_net::resp::{Client, Conversation};
use penstock_net::status::Status;
use penstock_shard::SessionId;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::interpreter::Lines;
use crate::rights::resp::Still;
use crate::server::{Server, Snapshots, for_each_reply, log_config};

/// The time of the server, until a test lets it go on.
pub const NOW_MS: u64 = 1_800_000_000_000;
/// When a key ends that was given an expiry.
pub const ENDS_MS: u64 = NOW_MS + 100_000;
/// How long values live that begin in the keyspace.
pub const KEYSPACE_MS: u64 = 1_000_000;
const KEYSPACE: &[u8] = b"{e}t:";
/// What the effects of an armed key add to.
const STOCK: &[u8] = b"{e}stock";
/// More turns than anything takes.
const TURNS_MAX: usize = 1_000;

/// How a key is before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Missing,
    Plain,
    Expiring,
    /// With effects that add one to the stock.
    Armed,
    MissingInKeyspace,
    InKeyspace,
    PersistedInKeyspace,
    ArmedInKeyspace,
}

impl Start {
    pub const ALL: [Start; 8] = [
        Start::Missing,
        Start::Plain,
        Start::Expiring,
        Start::Armed,
        Start::MissingInKeyspace,
        Start::InKeyspace,
        Start::PersistedInKeyspace,
        Start::ArmedInKeyspace,
    ];

    /// The lifetime of what begins anew, in milliseconds.
    pub fn lifetime_ms(self) -> Option<u64> {
        let is_inside = matches!(
            self,
            Start::MissingInKeyspace
                | Start::InKeyspace
                | Start::PersistedInKeyspace
                | Start::ArmedInKeyspace
        );
        is_inside.then_some(KEYSPACE_MS)
    }

    pub fn key(self) -> &'static str {
        match self.lifetime_ms() {
            Some(_) => "{e}t:key",
            None => "{e}key",
        }
    }

    pub fn is_armed(self) -> bool {
        matches!(self, Start::Armed | Start::ArmedInKeyspace)
    }

    pub fn exists(self) -> bool {
        !matches!(self, Start::Missing | Start::MissingInKeyspace)
    }

    /// When it ends, if it exists and does.
    pub fn expiry_ms(self) -> Option<u64> {
        match self {
            Start::Expiring | Start::Armed | Start::ArmedInKeyspace => Some(ENDS_MS),
            Start::InKeyspace => Some(NOW_MS + KEYSPACE_MS),
            _ => None,
        }
    }
}

/// What is there of the key, and of what its effects do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub value: Option<Vec<u8>>,
    /// When it ends; 0 is never.
    pub expiry_ms: u64,
    pub stock: u64,
    /// The stock when all keys have ended that ever do.
    pub stock_at_last: u64,
}

pub struct Bench {
    pub server: Server,
    start: Start,
    native: SessionId,
    asked: usize,
    resp: Option<(Conversation, SessionId)>,
    host: Still,
}

impl Bench {
    pub fn new(start: Start) -> Bench {
        let log = log_config(SyncMethod::DurableWrite, 1);
        let none = (Snapshots::new(), 0);
        let budget = Budget::of_cache(1 << 20);
        let server = Server::open_with(none, budget, NOW_MS, log, Image::default(), None);
        let mut server = server.expect("it opens");
        server.raw = Some(Vec::new());
        let schema = ServedSchema {
            programs: Programs::new(vec![bump()]),
            layouts: Vec::new(),
            text: String::new(),
        };
        server.serve(schema.clone());
        let execution = server.shard.execution_mut();
        execution.serve_scripts(Box::new(Lines));
        let mut bench = Bench {
            start,
            native: server.session,
            server,
            asked: 0,
            resp: None,
            host: Still {
                joined_cores: 0,
                schema: Arc::new(schema),
                unix_us: NOW_MS * 1_000,
            },
        };
        bench.rest();
        bench.prepare();
        bench.connect();
        bench
    }

    /// Opens the connection for commands of Redis.
    fn connect(&mut self) {
        let session = self
            .server
            .shard
            .front_mut()
            .open_session_translated(self.server.now, 0);
        let limits = Limits {
            frame_bytes_max: 16 << 10,
            value_bytes_max: 3 << 10,
        };
        let talk = Conversation::new(Client::default(), limits, false);
        self.resp = Some((talk, session));
        self.server.session = session;
        self.server.inbox = Conversation::greeting();
        self.server.hand_over();
        self.rest();
        self.server.raw = Some(Vec::new());
    }

    fn prepare(&mut self) {
        let settings = Settings {
            ttl_ms: KEYSPACE_MS,
            ..Settings::default()
        };
        self.done(|b, o| b.keyspace(o, KEYSPACE, Action::Create(settings)));
        self.done(|b, o| b.set(o, STOCK, b"0", Condition::Always));
        let key = self.start.key().as_bytes();
        match self.start {
            Start::Missing | Start::MissingInKeyspace => {}
            Start::Plain | Start::InKeyspace => {
                self.done(|b, o| b.set(o, key, b"5", Condition::Always));
            }
            Start::Expiring => {
                let expiry = Expiry::At(ENDS_MS);
                self.done(|b, o| b.set_with(o, key, b"5", Condition::Always, expiry));
            }
            Start::PersistedInKeyspace => {
                self.done(|b, o| b.set(o, key, b"5", Condition::Always));
                self.done(|b, o| b.update_if_with(o, key, None, &[], None, Expiry::Never));
            }
            Start::Armed | Start::ArmedInKeyspace => {
                let mut hold = Apply::new();
                let (key, stock) = (hold.key(key), hold.key(STOCK));
                hold.put(key, b"5")
                    .then(key.expire_at(ENDS_MS))
                    .on_expire(key, |effects| {
                        effects.then(stock.decimal().increase(1u64));
                    });
                self.done(|b, o| b.apply(o, &hold));
            }
        }
    }

    /// Turns until nothing is to be done. No time goes by.
    fn rest(&mut self) {
        let mut quiet_turns = 0;
        for _ in 0..TURNS_MAX {
            self.server.turn();
            let is_quiet =
                self.server.device.under_way().is_empty() && self.server.outbox.sendable.is_empty();
            quiet_turns = if is_quiet { quiet_turns + 1 } else { 0 };
            if quiet_turns == 4 {
                return;
            }
            self.server.end(0);
        }
        panic!("the shard never comes to rest");
    }

    /// Sends an item and takes its answer.
    pub fn answer(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Answer {
        self.server.session = self.native;
        self.asked += 1;
        let id = self.asked;
        // As commands of Redis ask: at the least level.
        self.server.send_at(AckLevel::None, id, item);
        self.rest();
        let raw = self.server.raw.replace(Vec::new()).expect("kept");
        let mut answer = None;
        for_each_reply(&raw, |_, item| answer = Some(Answer::of_item(&item)));
        answer.expect("an answer")
    }

    fn done(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) {
        let answer = self.answer(item);
        assert_eq!(answer.status, Status::Ok, "{:?}", answer.value);
    }

    /// Sends a command of Redis and takes its reply. `K` is the key, `''` no byte, and a tilde a
    /// blank within a word.
    pub fn command(&mut self, line: &str) -> String {
        let (mut talk, session) = self.resp.take().expect("there is one");
        self.server.session = session;
        let words: Vec<String> = line.split(' ').map(|word| self.word(word)).collect();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
        }
        for _ in 0..10 {
            let mut frame = Vec::new();
            let taken = talk.take(&bytes, &mut frame, &self.host);
            bytes.drain(..taken);
            self.server.inbox.extend(frame);
            self.server.hand_over();
            self.rest();
            let raw = self.server.raw.replace(Vec::new()).expect("kept");
            talk.answered(&raw, &self.host);
        }
        assert!(bytes.is_empty(), "{line} was not taken");
        let reply = std::mem::take(talk.out());
        self.resp = Some((talk, session));
        reply.escape_ascii().to_string().replace("\\'", "'")
    }

    fn word(&self, word: &str) -> String {
        match word {
            "K" => self.start.key().into(),
            "''" => String::new(),
            word => word.replace('~', " "),
        }
    }

    /// A transaction of the Rust client.
    pub fn transaction(&mut self) -> Transaction<&mut Bench> {
        Transaction::begin(self, Isolation::Serializable)
    }

    /// All that was written to the disk, the mark of an idle log too.
    pub fn image(&mut self) -> Image {
        for _ in 0..16 {
            self.rest();
        }
        self.server.device.image.clone()
    }

    /// What there is now, and what becomes of the stock when time goes by.
    pub fn find(&mut self) -> Found {
        let key = self.start.key().as_bytes();
        let wanted = Wanted::ValueAndExpiry;
        let answer = self.answer(|b, o| b.get_with(o, key, wanted));
        let value = (answer.status == Status::Ok).then(|| answer.value.to_vec());
        let expiry_ms = answer.expiry.map_or(0, |it| it.expiry_ms);
        let stock = self.stock();
        self.server.sleep(10 * KEYSPACE_MS);
        self.rest();
        let stock_at_last = self.stock();
        assert_eq!(self.server.failed_effects, [""; 0]);
        Found {
            value,
            expiry_ms,
            stock,
            stock_at_last,
        }
    }

    fn stock(&mut self) -> u64 {
        let answer = self.answer(|b, o| b.get(o, STOCK));
        let text = String::from_utf8(answer.value.to_vec()).expect("text");
        text.parse().expect("a number")
    }
}

/// A store that has answered when the question is asked.
impl Transacted for Bench {
    type Asked = Ready<Result<Answer, ClientError>>;

    fn ask(&mut self, ask: Ask<'_>, _: Option<Token>) -> Self::Asked {
        ready(Ok(self.answer(|batch, out| ask.write(batch, out))))
    }

    fn value_bytes_max(&self) -> Option<u32> {
        None
    }

    fn deadline(&self) -> Duration {
        Duration::MAX
    }
}

/// The program `bump` of one key: one is added to its decimal.
fn bump() -> Program {
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.then(key.decimal().increase(1u64));
    let program = Program::new(ProgramParts {
        name: "bump".into(),
        keys: vec!["counter".into()],
        arguments: Vec::new(),
        instructions: apply.instructions().to_vec(),
        data: Vec::new(),
        blanks: Vec::new(),
    });
    program.expect("a sound program")
}
