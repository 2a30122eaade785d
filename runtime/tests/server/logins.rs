//! Users of the real server: over the own protocol, over RESP, by the client and by commands.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientError, ClientOptions, Identity, Secret, Verbs};
use penstock_net::auth::{KEY_BYTES, SALT_BYTES, Verifier};
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::status::Status;

use crate::cluster::nodes::free_address;
use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    let folder = scratch::folder(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn key(of: u8) -> Secret {
    Secret::of_key(&[of; KEY_BYTES])
}

fn password(text: &str) -> Secret {
    Secret::new(text.as_bytes().to_vec()).unwrap()
}

/// A file of users: `ann` with a password and one key, `bob` with a password who may read alone.
fn users(key_of: u8, has_bob: bool) -> String {
    let mut text = String::from("decoy 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n");
    let ann = Verifier::new(&password("pencil"), [3; SALT_BYTES]);
    let till = Verifier::new(&key(key_of), [0; SALT_BYTES]);
    text +=
        &format!("user ann\npassword {ann}\nkey till {till}\nread \"\"\nwrite \"\"\nadmin \"\"\n");
    if has_bob {
        let bob = Verifier::new(&password("rubber"), [4; SALT_BYTES]);
        text += &format!("user bob\npassword {bob}\nread \"stock:\"\n");
    }
    text
}

fn write(path: &Path, text: &str, mode: u32) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::set_permissions(&beside, Permissions::from_mode(mode)).unwrap();
    fs::rename(&beside, path).unwrap();
}

struct Served {
    server: Server,
    resp: std::net::SocketAddr,
    folder: PathBuf,
}

impl Served {
    fn start(name: &str) -> Served {
        let folder = folder(name);
        write(&folder.join("users"), &users(7, true), 0o600);
        let resp = free_address();
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        serve.args(["--admin-listen", "off", "--resp-listen", &resp.to_string()]);
        serve.arg("--users").arg(folder.join("users"));
        serve.arg("--data").arg(folder.join("data"));
        let server = Server::start(&mut serve);
        Served {
            server,
            resp,
            folder,
        }
    }

    fn client(&self, login: Option<(&str, Secret)>) -> Result<Client, ClientError> {
        let identity = login.map(|(name, secret)| Identity::new(name, secret).unwrap());
        let options = ClientOptions {
            deadline: PATIENCE,
            identity,
            ..ClientOptions::default()
        };
        Client::connect(self.server.address, options)
    }

    fn resp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.resp).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Runs a command of a client; its output, and whether it went well.
    fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
        let mut run = command(words);
        run.arg("--addr").arg(self.server.address.to_string());
        run.envs(variables.iter().copied());
        let output = run.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

fn say(stream: &mut TcpStream, text: &str, until: &str) -> String {
    // One that has ended tells so below.
    let _ = stream.write_all(text.as_bytes());
    let mut reply = String::new();
    let mut piece = [0; 4096];
    while !reply.ends_with(until) {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Ok(read) => reply += std::str::from_utf8(&piece[..read]).unwrap(),
            Err(error) => panic!("{error} behind {reply}"),
        }
    }
    reply
}

#[test]
fn clients_log_in_with_passwords_and_keys_and_others_are_answered_why_not() {
    let served = Served::start("logins-clients");
    for (name, secret) in [("ann", password("pencil")), ("ann/till", key(7))] {
        let client = served.client(Some((name, secret))).unwrap();
        client.set(b"stock:1", b"1").wait().unwrap();
        assert_eq!(
            client.get(b"stock:1").wait().unwrap().unwrap().bytes,
            b"1"[..]
        );
    }
    let refused = |login| match served.client(login).map(drop).unwrap_err() {
        ClientError::Refused(answer) => {
            assert_eq!(answer.status, Status::Auth);
            String::from_utf8(answer.value.to_vec()).unwrap()
        }
        ClientError::Unfit(unfit) => unfit.to_string(),
        other => panic!("{other}"),
    };
    let wrong = refused(Some(("ann", password("pen"))));
    assert!(
        wrong.starts_with("the name or the secret is wrong"),
        "{wrong}"
    );
    assert_eq!(refused(Some(("nobody", password("pen")))), wrong);
    assert_eq!(refused(Some(("ann/till", key(8)))), wrong);
    let none = refused(None);
    assert!(none.starts_with("the server has users"), "{none}");
    let client = served.client(Some(("bob", password("rubber")))).unwrap();
    assert!(client.get(b"stock:1").wait().unwrap().is_some());
    assert!(matches!(
        client.set(b"stock:1", b"2").wait(),
        Err(ClientError::Refused(_))
    ));
    served.server.stop();
}

#[test]
fn a_client_with_a_login_goes_on_behind_a_restart_and_refuses_a_server_without_users() {
    let served = Served::start("logins-restart");
    let client = served.client(Some(("ann/till", key(7)))).unwrap();
    client.set(b"stock:1", b"1").wait().unwrap();
    let address = served.server.address.to_string();
    let Served { server, folder, .. } = served;
    server.stop();
    let again = |users: bool| {
        let mut serve = command(&["serve", "--listen", &address, "--shard-ports", "0"]);
        serve.args(["--admin-listen", "off", "--resp-listen", "off"]);
        serve.arg("--data").arg(folder.join("data"));
        if users {
            serve.arg("--users").arg(folder.join("users"));
        }
        Server::start(&mut serve)
    };
    let server = again(true);
    assert_eq!(
        client.get(b"stock:1").wait().unwrap().unwrap().bytes,
        b"1"[..]
    );
    server.stop();
    let server = again(false);
    let until = Instant::now() + PATIENCE;
    let reply = loop {
        match client.get(b"stock:1").wait() {
            Err(ClientError::Unfit(unfit)) => break unfit.to_string(),
            other => assert!(Instant::now() < until, "{other:?}"),
        }
    };
    assert!(reply.contains("no users"), "{reply}");
    server.stop();
}

#[test]
fn a_removed_key_is_out_within_a_second_on_all_ports_and_a_broken_file_changes_nothing() {
    let served = Served::start("logins-removed");
    let till = served.client(Some(("ann/till", key(7)))).unwrap();
    let ann = served.client(Some(("ann", password("pencil")))).unwrap();
    let mut resp = served.resp();
    let text = String::from_utf8(key(7).expose().to_vec()).unwrap();
    assert_eq!(
        say(&mut resp, &format!("AUTH ann/till {text}\r\n"), "\r\n"),
        "+OK\r\n"
    );
    till.set(b"stock:1", b"1").wait().unwrap();
    write(&served.folder.join("users"), "user\n", 0o600);
    std::thread::sleep(Duration::from_millis(1500));
    till.set(b"stock:1", b"2").wait().unwrap();
    assert_eq!(say(&mut resp, "GET stock:1\r\n", "2\r\n"), "$1\r\n2\r\n");
    write(&served.folder.join("users"), &users(9, false), 0o600);
    // The connection ends, and the key lets nobody in.
    assert_eq!(say(&mut resp, "", "\r\n"), "");
    let reply = loop {
        match till.get(b"stock:1").wait() {
            Ok(_) | Err(ClientError::Unknown(_) | ClientError::NotSent(_)) => {}
            Err(other) => break other.to_string(),
        }
    };
    assert!(reply.contains("the name or the secret is wrong"), "{reply}");
    ann.get(b"stock:1").wait().unwrap();
    served.client(Some(("ann/till", key(9)))).unwrap();
    served
        .client(Some(("bob", password("rubber"))))
        .map(drop)
        .unwrap_err();
    served.server.stop();
}

#[test]
fn the_port_of_redis_takes_auth_and_hello_and_nothing_before() {
    let served = Served::start("logins-resp");
    let mut resp = served.resp();
    let no_auth = "-NOAUTH Authentication required.\r\n";
    assert_eq!(say(&mut resp, "GET k\r\n", "\r\n"), no_auth);
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(say(&mut resp, "AUTH ann pen\r\n", "\r\n"), wrong);
    assert_eq!(say(&mut resp, "AUTH nobody pencil\r\n", "\r\n"), wrong);
    let reply = say(
        &mut resp,
        "AUTH ann pencil\r\nSET k 1\r\nGET k\r\n",
        "$1\r\n1\r\n",
    );
    assert_eq!(reply, "+OK\r\n+OK\r\n$1\r\n1\r\n");
    let mut resp = served.resp();
    let reply = say(
        &mut resp,
        "HELLO 3 AUTH bob rubber\r\nSET stock:1 1\r\n",
        "a key\r\n",
    );
    assert!(reply.starts_with("%7\r\n"), "{reply}");
    assert!(reply.contains("-NOPERM"), "{reply}");
    served.server.stop();
}

#[test]
fn five_wrong_secrets_end_a_connection_and_delay_the_address() {
    let served = Served::start("logins-delay");
    let is_wrong = |reply: &str| reply.starts_with("-WRONGPASS");
    let is_delayed = |reply: &str| reply.starts_with("-ERR too many logins from this address");
    // Each shard counts for itself, and either may take a connection.
    let until = Instant::now() + PATIENCE;
    loop {
        let mut resp = served.resp();
        for _ in 0..5 {
            let reply = say(&mut resp, "AUTH ann pen\r\n", "\r\n");
            assert!(is_wrong(&reply) || is_delayed(&reply), "{reply}");
        }
        let reply = say(&mut resp, "AUTH ann pencil\r\n", "\r\n");
        assert!(reply.is_empty() || is_delayed(&reply), "{reply}");
        let reply = say(&mut served.resp(), "AUTH ann pencil\r\n", "\r\n");
        match is_delayed(&reply) {
            true => break,
            false => assert_eq!(reply, "+OK\r\n"),
        }
        assert!(Instant::now() < until, "no shard delays the address");
    }
    served.server.stop();
}

#[test]
fn commands_take_a_user_and_a_file_that_nobody_else_may_read() {
    let served = Served::start("logins-commands");
    let secret = served.folder.join("secret");
    let path = secret.to_str().unwrap();
    write(&secret, "pencil\n", 0o600);
    let login = ["--user", "ann", "--secret-file", path];
    let (is_good, printed) = served.run(&[&["set", "k", "1"][..], &login].concat(), &[]);
    assert!(is_good, "{printed}");
    let variables = [("PENSTOCK_USER", "ann"), ("PENSTOCK_SECRET_FILE", path)];
    let (is_good, printed) = served.run(&["get", "k"], &variables);
    assert!(is_good && printed.starts_with('1'), "{printed}");
    for (words, mode, expected) in [
        (
            &["get", "k"][..],
            0o600,
            "it has users: give --user and --secret-file",
        ),
        (
            &["get", "k", "--user", "ann"],
            0o600,
            "--user needs --secret-file",
        ),
        (
            &["get", "k", "--secret-file", path],
            0o600,
            "--secret-file needs --user",
        ),
        (
            &[&["get", "k"][..], &login].concat(),
            0o604,
            "others may read it",
        ),
        (
            &["get", "k", "--user", "a,b", "--secret-file", path],
            0o600,
            "the name of a login",
        ),
        (
            &["get", "k", "--user", "bob", "--secret-file", path],
            0o600,
            "the secret is wrong",
        ),
    ] {
        write(&secret, "pencil\n", mode);
        let (is_good, printed) = served.run(words, &[]);
        assert!(
            !is_good && printed.contains(expected),
            "{words:?}: {printed}"
        );
        assert!(!printed.contains("pencil"), "{printed}");
    }
    served.server.stop();
}

#[test]
fn a_users_file_that_others_may_read_or_with_a_defect_keeps_the_server_from_starting() {
    let folder = folder("logins-refused");
    let path = folder.join("users");
    for (text, mode, expected) in [
        (
            users(7, true),
            0o644,
            "others may read it (mode 0644): chmod 600",
        ),
        (
            users(7, true) + "user\n",
            0o600,
            "users:11: user takes one name",
        ),
    ] {
        write(&path, &text, mode);
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        serve
            .arg("--users")
            .arg(&path)
            .arg("--data")
            .arg(folder.join("data"));
        let output = serve.output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && printed.contains(expected),
            "{printed}"
        );
        assert!(!printed.contains("SCRAM"), "{printed}");
        assert!(!folder.join("data").exists(), "nothing was made");
    }
}

/// Whether these bytes stand anywhere in the memory of a process.
pub fn is_in_memory(pid: u32, wanted: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    let ranges = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let is_readable = rest.starts_with('r') && !line.ends_with(']');
        let is_heap = rest.starts_with('r') && line.ends_with("[heap]");
        (is_readable || is_heap).then(|| number(from)..number(to))
    });
    let mut piece = vec![0; 1 << 20];
    ranges.into_iter().any(|range| {
        let mut at = range.start;
        while at < range.end {
            let len = piece.len().min(usize::try_from(range.end - at).unwrap());
            // Pages that are set aside and not there cannot be read.
            let Ok(read) = memory.read_at(&mut piece[..len], at) else {
                return false;
            };
            if piece[..read].windows(wanted.len()).any(|it| it == wanted) {
                return true;
            }
            if read <= wanted.len() {
                return false;
            }
            at += (read - wanted.len()) as u64;
        }
        false
    })
}

#[test]
fn a_secret_stands_in_no_answer_log_or_memory_of_the_server() {
    let served = Served::start("logins-canary");
    // In two parts: a constant of this test would stand in its own memory alone.
    let canary = |end: &str| ["canary-7f3a9c51", end].concat();
    let wrong = canary("-wrong");
    let right = "pencil";
    for login in [
        format!("AUTH ann {wrong}\r\nPING\r\n"),
        format!(
            "*3\r\n$4\r\nAUTH\r\n$3\r\nann\r\n${}\r\n{wrong}\r\n",
            wrong.len()
        ),
        format!("HELLO 3 AUTH ann {wrong}\r\n"),
    ] {
        let reply = say(&mut served.resp(), &login, "\r\n");
        assert!(reply.starts_with("-WRONGPASS"), "{reply}");
    }
    let ask = format!(
        "AUTH ann {right}\r\nSET k {}\r\nSLOWLOG GET 99\r\n",
        canary("-value")
    );
    let mut resp = served.resp();
    let reply = say(&mut resp, &ask, "*0\r\n");
    assert_eq!(reply, "+OK\r\n+OK\r\n*0\r\n");
    let reply = say(&mut resp, "CLIENT LIST\r\nINFO\r\nPING\r\n", "+PONG\r\n");
    assert!(!reply.contains(&wrong), "{reply}");
    let pid = served.server.process.id();
    assert!(
        is_in_memory(pid, canary("-value").as_bytes()),
        "what is kept is found"
    );
    assert!(!is_in_memory(pid, wrong.as_bytes()), "a secret is wiped");
    served.server.stop();
}

/// Answers to frames of each opcode on a connection that has said HELLO.
fn answers(served: &Served, opcodes: impl Iterator<Item = u8>) -> Vec<(u8, Status)> {
    let mut stream = TcpStream::connect(served.server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = Vec::new();
    let hello = ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "table",
    };
    hello.write(&mut bytes, 1000);
    let mut asked = 0;
    for opcode in opcodes {
        let mut header = Header::request(Opcode::Ping, opcode.into(), AckLevel::None, 0);
        header.opcode = opcode;
        write_frame(&mut bytes, header, &[]);
        asked += 1;
    }
    stream.write_all(&bytes).unwrap();
    let (mut receiver, mut received, mut answers) =
        (Receiver::new(1 << 20), Vec::new(), Vec::new());
    while answers.len() < asked {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the connection lives, behind {answers:?}");
        received.extend_from_slice(&piece[..read]);
        while let Received::Frame {
            header, consumed, ..
        } = receiver.next(&received)
        {
            received.drain(..consumed);
            if let Ok(opcode) = u8::try_from(header.request_id) {
                answers.push((opcode, Status::from_code(header.level_or_status).unwrap()));
            }
        }
    }
    answers
}

#[test]
fn no_opcode_runs_before_a_login_at_the_real_server() {
    let served = Served::start("logins-opcodes");
    // In pieces: what waits unread before a login is bounded.
    for first in (0..=u8::MAX).step_by(8) {
        for (opcode, status) in answers(&served, first..=first + 7) {
            let expected = match opcode {
                0x01 => Status::Malformed,
                0x02 => Status::Ok,
                _ => Status::Auth,
            };
            assert_eq!(status, expected, "opcode {opcode:#04x}");
        }
    }
    served.server.stop();
}
