//! Logins of a connection of RESP, beside a session that a test plays with the machine of the
//! server.

use penstock_net::auth::{
    AuthFault, AuthMethod, AuthReply, AuthRequest, Credentials, Exchange, KEY_BYTES, Secret,
    Verifier,
};
use penstock_net::frame::{HEADER_BYTES, Header, Opcode};
use penstock_net::limits::Limits;
use penstock_net::reply::write_error;
use penstock_net::resp::{COMMANDS, Client, Conversation};
use penstock_net::status::Status;

use crate::resp::Still;

const NO_AUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONG_PASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

struct Users(Verifier, Verifier);

impl Credentials for Users {
    fn verifier(&self, login: &str) -> Option<&Verifier> {
        match login {
            "ann" => Some(&self.0),
            "ann/till" => Some(&self.1),
            _ => None,
        }
    }

    fn decoy(&self) -> &[u8; 32] {
        &[0xDE; 32]
    }
}

fn key() -> Secret {
    Secret::of_key(&[7; KEY_BYTES])
}

/// A connection and the session behind it.
struct Talk {
    conversation: Conversation,
    users: Users,
    exchange: Option<Exchange>,
    attempts: u32,
    /// The user of the session's certificate is known.
    is_certified: bool,
    /// What the session answers instead.
    fault: Option<AuthFault>,
    /// Frames that were no logins.
    others: usize,
    /// How often the session was told to forget the user.
    left: usize,
    hashes: usize,
    /// Nobody has time for a hash.
    is_busy: bool,
}

impl Talk {
    fn new(may_carry_secrets: bool, certificate: Option<&str>) -> Talk {
        let pencil = Secret::new(b"pencil".to_vec()).expect("a secret");
        let mut conversation = Conversation::new(Client::default(), Limits::default(), false);
        conversation.require_login(may_carry_secrets, certificate.map(str::to_string));
        Talk {
            conversation,
            users: Users(
                Verifier::with(&pencil, [3; 16], 4096),
                Verifier::new(&key(), [0; 16]),
            ),
            exchange: None,
            attempts: 0,
            is_certified: certificate.is_some(),
            fault: None,
            others: 0,
            left: 0,
            hashes: 0,
            is_busy: false,
        }
    }

    /// Sends commands and takes all that is answered.
    fn say(&mut self, bytes: &[u8]) -> String {
        let (mut at, mut frame) = (0, Vec::new());
        loop {
            let taken = self.conversation.take(&bytes[at..], &mut frame, &Still);
            at += taken;
            let was_frame = !frame.is_empty();
            if was_frame {
                let answer = self.session(&frame);
                frame.clear();
                self.conversation.answered(&answer, &Still);
            }
            if let Some(challenge) = self.conversation.take_challenge() {
                self.hashes += 1;
                let salted = challenge.salted();
                self.conversation
                    .hashed((!self.is_busy).then_some(&*salted));
                continue;
            }
            if taken == 0 && !was_frame {
                break;
            }
        }
        assert_eq!(at, bytes.len(), "all is taken");
        let out = std::mem::take(self.conversation.out());
        String::from_utf8(out).expect("text")
    }

    /// What the session answers to a frame.
    fn session(&mut self, frame: &[u8]) -> Vec<u8> {
        let header = Header::decode(frame.first_chunk().expect("a header"));
        assert_eq!(header.len as usize, frame.len(), "one frame at a time");
        if header.opcode != Opcode::Auth as u8 {
            self.others += 1;
            return Vec::new();
        }
        let request = AuthRequest::read(&frame[HEADER_BYTES..]).expect("a body");
        let mut out = Vec::new();
        let judged = match (self.fault, request.method) {
            (Some(fault), _) => Err(fault),
            (None, AuthMethod::Leave) => {
                self.left += 1;
                Ok(None)
            }
            (None, AuthMethod::Certificate) => match self.is_certified {
                true => Ok(Some("-".to_string())),
                false => Err(AuthFault::Certificate),
            },
            (None, AuthMethod::Scram) => match self.exchange.take() {
                Some(exchange) => {
                    let proven = exchange.finish(request.message, &self.users);
                    proven.map(|it| Some(it.message))
                }
                None => {
                    let nonce = (&[9; 32], self.attempts);
                    let begun = Exchange::begin(request.message, None, nonce, &self.users);
                    let (exchange, message) = begun.expect("a message");
                    self.attempts += 1;
                    self.exchange = Some(exchange);
                    let message = message.as_bytes();
                    AuthReply::GoOn { message }.write(&mut out, header.request_id, 0);
                    return out;
                }
            },
        };
        match judged {
            Ok(None) => AuthReply::GoOn { message: b"-" }.write(&mut out, header.request_id, 0),
            Ok(Some(message)) => {
                let (message, hello) = (message.as_bytes(), &[0; 8][..]);
                AuthReply::Done { message, hello }.write(&mut out, header.request_id, 0);
            }
            Err(fault) => {
                let delay_ms = match fault {
                    AuthFault::Delayed(ms) => u16::try_from(ms).expect("a minute"),
                    _ => 0,
                };
                write_error(&mut out, Some(&header), Status::Auth, delay_ms, 0, &fault);
            }
        }
        out
    }
}

/// A command with as many arguments as it takes at least.
fn asked(name: &str, arity: i8) -> Vec<u8> {
    let arguments = usize::from(arity.unsigned_abs());
    let mut out = format!("*{arguments}\r\n${}\r\n{name}\r\n", name.len());
    for _ in 1..arguments {
        out += "$1\r\n1\r\n";
    }
    out.into_bytes()
}

/// The table of all commands of RESP.
#[test]
fn no_command_but_auth_hello_quit_and_reset_is_taken_before_a_login() {
    for command in COMMANDS {
        let mut talk = Talk::new(true, None);
        let reply = talk.say(&asked(command.name, command.arity));
        match command.name {
            "auth" => assert_eq!(reply, WRONG_PASS),
            "hello" => assert!(reply.starts_with("-NOAUTH HELLO must be called"), "{reply}"),
            "quit" => assert_eq!(reply, "+OK\r\n"),
            "reset" => assert_eq!(reply, "+RESET\r\n"),
            name => assert_eq!(reply, NO_AUTH, "{name}"),
        }
        assert_eq!(talk.others, 0, "{} reached the session", command.name);
    }
}

#[test]
fn auth_and_hello_auth_let_a_user_in_by_password_and_by_key() {
    let text = String::from_utf8(key().expose().to_vec()).expect("text");
    for (login, answer, hashes) in [
        ("AUTH ann pencil".to_string(), "+OK\r\n", 1),
        (format!("AUTH ann/till {text}"), "+OK\r\n", 0),
        (
            "HELLO 3 AUTH ann pencil SETNAME me".to_string(),
            "%7\r\n",
            1,
        ),
    ] {
        let mut talk = Talk::new(true, None);
        let reply = talk.say(format!("PING\r\n{login}\r\nPING\r\n").as_bytes());
        assert!(talk.conversation.has_taken_secret());
        assert!(!talk.conversation.has_taken_secret());
        let rest = reply.strip_prefix(NO_AUTH).expect("before the login");
        assert!(
            rest.starts_with(answer) && rest.ends_with("+PONG\r\n"),
            "{rest}"
        );
        let info = talk.say(b"CLIENT INFO\r\n");
        let user = login
            .split(' ')
            .find(|word| word.starts_with("ann"))
            .expect("a name");
        assert!(info.contains(&format!(" user={user} ")), "{info}");
        assert_eq!(talk.hashes, hashes, "a key needs no thread");
    }
}

#[test]
fn a_wrong_secret_an_unknown_user_and_words_that_are_none_are_refused_in_the_words_of_redis() {
    let mut talk = Talk::new(true, None);
    for login in [
        "AUTH ann pen",
        "AUTH nobody pencil",
        "AUTH pencil",
        "AUTH ann,x pencil",
        "HELLO 3 AUTH ann pen",
        "HELLO 3 AUTH nobody pencil",
    ] {
        assert_eq!(
            talk.say(format!("{login}\r\n").as_bytes()),
            WRONG_PASS,
            "{login}"
        );
    }
    assert_eq!(talk.say(b"AUTH a b c\r\n"), "-ERR syntax error\r\n");
    assert_eq!(talk.say(b"GET k\r\n"), NO_AUTH);
    talk.fault = Some(AuthFault::Delayed(2000));
    let reply = talk.say(b"AUTH ann pencil\r\n");
    assert!(
        reply.starts_with("-ERR too many logins from this address"),
        "{reply}"
    );
    assert_eq!(talk.others, 0);
}

#[test]
fn a_secret_is_not_taken_where_others_may_read_it() {
    let mut talk = Talk::new(false, None);
    for login in ["AUTH ann pencil", "HELLO 3 AUTH ann pencil"] {
        let reply = talk.say(format!("{login}\r\n").as_bytes());
        assert!(reply.starts_with("-ERR AUTH carries the secret"), "{reply}");
    }
    assert_eq!(talk.attempts, 0);
    assert!(
        talk.conversation.has_taken_secret(),
        "it stood in the bytes all the same"
    );
}

#[test]
fn commands_behind_a_login_wait_for_it_and_those_of_another_login_keep_the_user_who_was_in() {
    let mut talk = Talk::new(true, None);
    let reply = talk.say(b"AUTH ann pencil\r\nPING\r\nAUTH ann wrong\r\nPING\r\n");
    assert_eq!(reply, format!("+OK\r\n+PONG\r\n{WRONG_PASS}+PONG\r\n"));
}

#[test]
fn client_reply_drops_the_answer_of_a_login_and_no_other() {
    let many = "-ERR too many logins";
    for (login, is_busy) in [
        ("AUTH ann pencil", false),
        ("AUTH ann wrong", false),
        ("HELLO 3 AUTH ann pencil", false),
        ("AUTH ann pencil", true),
    ] {
        let mut talk = Talk::new(true, None);
        assert_eq!(talk.say(b"AUTH ann pencil\r\n"), "+OK\r\n");
        talk.is_busy = is_busy;
        let skip = format!("CLIENT REPLY SKIP\r\n{login}\r\nECHO a\r\n");
        assert_eq!(talk.say(skip.as_bytes()), "$1\r\na\r\n", "{login}");
        let off = format!("CLIENT REPLY OFF\r\n{login}\r\nECHO a\r\nCLIENT REPLY ON\r\n");
        assert_eq!(talk.say(off.as_bytes()), "+OK\r\n", "{login}");
        let reply = talk.say(format!("{login}\r\n").as_bytes());
        assert_eq!(reply.starts_with(many), is_busy, "{reply}");
    }
}

#[test]
fn commands_before_a_login_are_short_and_those_behind_one_as_long_as_ever() {
    let long = |bytes: usize| format!("*2\r\n$4\r\nECHO\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes));
    let mut talk = Talk::new(true, None);
    assert_eq!(talk.say(long(1024).as_bytes()), NO_AUTH);
    let broken = "-ERR Protocol error: unauthenticated";
    assert_eq!(
        talk.say(long(1025).as_bytes()),
        format!("{broken} bulk length\r\n")
    );
    let mut talk = Talk::new(true, None);
    assert_eq!(
        talk.say(b"*11\r\n"),
        format!("{broken} multibulk length\r\n")
    );
    let mut talk = Talk::new(true, None);
    let line = format!("ECHO {}", "x".repeat(4 << 10));
    let reply = talk.say(line.as_bytes());
    assert_eq!(reply, "-ERR Protocol error: too big inline request\r\n");
    let mut talk = Talk::new(true, None);
    assert_eq!(talk.say(b"AUTH ann pencil\r\n"), "+OK\r\n");
    assert!(
        talk.say(long(60_000).as_bytes())
            .starts_with("$60000\r\nxxx")
    );
}

#[test]
fn reset_forgets_the_user() {
    let mut talk = Talk::new(true, None);
    let reply = talk.say(b"AUTH ann pencil\r\nRESET\r\nPING\r\nAUTH ann pencil\r\nPING\r\n");
    assert_eq!(reply, format!("+OK\r\n+RESET\r\n{NO_AUTH}+OK\r\n+PONG\r\n"));
    assert_eq!(talk.left, 1);
}

#[test]
fn a_certificate_of_a_user_logs_in_by_itself_and_one_of_nobody_does_not() {
    let mut talk = Talk::new(true, Some("bob.shop"));
    assert_eq!(talk.say(b"PING\r\n"), "+PONG\r\n");
    assert!(talk.say(b"CLIENT INFO\r\n").contains(" user=bob.shop "));
    let mut talk = Talk::new(true, Some("bib.shop"));
    talk.is_certified = false;
    assert_eq!(talk.say(b"PING\r\n"), NO_AUTH);
    assert_eq!(talk.say(b"AUTH ann pencil\r\n"), "+OK\r\n");
}

#[test]
fn without_users_auth_is_as_it_was() {
    let mut conversation = Conversation::new(Client::default(), Limits::default(), false);
    let mut say = |bytes: &[u8]| {
        let taken = conversation.take(bytes, &mut Vec::new(), &Still);
        assert_eq!(taken, bytes.len());
        String::from_utf8(std::mem::take(conversation.out())).expect("text")
    };
    assert_eq!(say(b"PING\r\n"), "+PONG\r\n");
    assert_eq!(say(b"AUTH default x\r\n"), "+OK\r\n");
    assert_eq!(say(b"AUTH ann x\r\n"), WRONG_PASS);
    assert!(say(b"AUTH x\r\n").starts_with("-ERR AUTH <password> called without any"));
    assert!(say(b"HELLO 2 AUTH default x\r\n").starts_with("*14\r\n"));
    assert_eq!(say(b"HELLO 2 AUTH ann x\r\n"), WRONG_PASS);
}
