//! What good peers send and are told.

use penstock_client::Identity;
use penstock_net::auth::{AuthMethod, AuthRequest, SALT_BYTES, Secret, Verifier};
use penstock_net::hello::ClientHello;
use penstock_net::receive::{Received, Receiver};
use penstock_net::status::Status;

use super::*;

#[test]
fn every_verb_through_tls_is_answered_as_on_a_plain_connection() {
    let (plain, secured) = (Folder::new("verbs-plain"), Folder::new("verbs"));
    let authority = Authority::new("ca");
    let plain = Server::run(&plain, &[]);
    let server = Server::start(&secured, &authority.signs("server"), &[]);
    assert!(
        server.banner.contains("\ntls          1.3"),
        "{}",
        server.banner
    );
    let expected = answers_of(&plain.connect(None).expect("connected"));
    let tls = authority.trusted();
    let client = server.connect(Some(tls.clone())).expect("connected");
    assert_eq!(answers_of(&client), expected);
    assert!(expected.len() > 10, "{expected:?}");
    let shard = Client::connect(server.shard, options(Some(tls))).expect("its own port");
    assert_eq!(answers_of(&shard).len(), expected.len());
    assert_eq!(server.number("penstock_tls_handshakes_total"), 2.0);
}

#[test]
fn values_of_a_mebibyte_go_there_and_back_beside_small_ones() {
    let folder = Folder::new("large");
    let authority = Authority::new("ca");
    let flags = ["--durability", "none", "--value-bytes-max", "1MiB"];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let client = server.serves(&authority.trusted());
    let lens = [0, 1, 100, 4096, 16 << 10, (16 << 10) + 1, 100_000, 1 << 20];
    let key = |number: usize| format!("key {number}").into_bytes();
    let value = |number: usize, len: usize| -> Vec<u8> {
        (0..len)
            .map(|at| (at * 7 + number).to_le_bytes()[0])
            .collect()
    };
    for round in 0..3 {
        let sets: Vec<_> = lens
            .iter()
            .enumerate()
            .map(|(number, &len)| client.set(&key(number), &value(round, len)))
            .collect();
        sets.into_iter()
            .for_each(|set| drop(set.wait().expect("set")));
        let gets: Vec<_> = (0..lens.len() * 4)
            .map(|number| client.get(&key(number % lens.len())))
            .collect();
        for (number, get) in gets.into_iter().enumerate() {
            let found = get.wait().expect("get").expect("it was set").bytes;
            assert!(found == value(round, lens[number % lens.len()]), "{number}");
        }
    }
}

#[test]
fn clients_of_redis_talk_through_tls() {
    let folder = Folder::new("resp");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    let resp = server.resp.expect("a port");
    let mut talk = server.stream(&authority.trusted(), resp);
    let long = "x".repeat(200_000);
    let set = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{long}\r\n",
        long.len()
    );
    let mut expect = |sent: &str, expected: &str| {
        talk.write_all(sent.as_bytes()).expect("sent");
        let mut answer = vec![0; expected.len()];
        talk.read_exact(&mut answer).expect("an answer");
        assert!(answer == expected.as_bytes());
    };
    expect("PING\r\n", "+PONG\r\n");
    expect(&set, "+OK\r\n");
    let expected = format!("${}\r\n{long}\r\n", long.len());
    expect("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", &expected);
    // Many at once.
    expect(&"PING\r\n".repeat(1000), &"+PONG\r\n".repeat(1000));
    let ca = folder.put("ca.pem", &authority.pem, 0o644);
    let port = resp.port().to_string();
    let cli = Command::new("redis-cli")
        .args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert", &ca])
        .args(["set", "from", "redis-cli"])
        .output();
    match cli {
        Err(_) => println!("skipped: there is no redis-cli"),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("nrecognized") => {
            println!("skipped: this redis-cli has no TLS");
        }
        Ok(output) => assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "OK\n",
            "{output:?}"
        ),
    }
}

#[test]
fn a_handshake_in_pieces_of_one_byte_is_served_as_any() {
    let folder = Folder::new("pieces");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    let resp = server.resp.expect("a port");
    let mut stream = TcpStream::connect(resp).expect("it listens");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(LONG)).expect("set");
    let address = resp.to_string();
    let mut session = TlsSession::begin(&authority.trusted(), &address).expect("begun");
    let send = |session: &mut TlsSession, bytes: &[u8], stream: &mut TcpStream| {
        let mut records = Vec::new();
        session.seal(bytes, &mut records);
        for byte in records {
            stream.write_all(&[byte]).expect("sent");
        }
    };
    send(&mut session, b"", &mut stream);
    let mut plaintext = Vec::new();
    let mut chunk = [0; 4096];
    while session.channel_binding().is_none() {
        let read = stream.read(&mut chunk).expect("bytes");
        session
            .receive(&chunk[..read], &mut plaintext)
            .expect("a good server");
    }
    // The end of the handshake and a command at once.
    send(&mut session, b"PING\r\n", &mut stream);
    while plaintext.is_empty() {
        let read = stream.read(&mut chunk).expect("bytes");
        assert!(read > 0, "it is open");
        session
            .receive(&chunk[..read], &mut plaintext)
            .expect("a good server");
    }
    assert_eq!(plaintext, b"+PONG\r\n");
}

#[test]
fn a_client_shows_a_certificate_where_one_is_asked_for() {
    let folder = Folder::new("client-certificate");
    let (authority, of_clients) = (Authority::new("ca"), Authority::new("clients"));
    let ca = folder.put("clients.pem", &of_clients.pem, 0o644);
    let flags = ["--tls-client-ca", &ca];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let showing = |pair: &Pair| {
        let (chain, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
        authority
            .trusted()
            .with_certificate(chain, key)
            .expect("a pair")
    };
    let client = server.serves(&showing(&of_clients.signs("till-7")));
    let error = server
        .connect(Some(authority.trusted()))
        .expect_err("no certificate");
    assert!(
        error.to_string().contains("asks for a certificate"),
        "{error}"
    );
    server.until_logged(&["shows no certificate"]);
    let stranger = showing(&authority.signs("stranger"));
    let error = server
        .connect(Some(stranger))
        .expect_err("signed by somebody else");
    assert!(error.to_string().contains("alert"), "{error}");
    client.ping().wait().expect("others are served");
}

#[test]
fn commands_and_the_load_generator_go_through_tls() {
    let folder = Folder::new("commands");
    let authority = Authority::new("ca");
    let server = Server::start(
        &folder,
        &authority.signs("server"),
        &["--durability", "none"],
    );
    let ca = folder.put("ca.pem", &authority.pem, 0o644);
    let address = server.address.to_string();
    let run = |words: &[&str], flags: &[&str]| -> (Option<i32>, String) {
        let output = crate::command::program(env!("CARGO_BIN_EXE_penstock"))
            .args(words)
            .args(["--addr", &address])
            .args(flags)
            .output()
            .expect("the command");
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let tls = ["--tls-ca", &ca[..]];
    assert_eq!(run(&["set", "key", "value"], &tls).0, Some(0));
    assert_eq!(run(&["get", "key"], &tls).1, "value");
    let (code, printed) = run(&["ping"], &[]);
    assert!(code == Some(3) || code == Some(2), "{code:?} {printed}");
    assert!(printed.contains("give --tls-ca"), "{printed}");
    let (_, printed) = run(&["ping"], &["--tls-ca", &ca, "--tls-name", "elsewhere"]);
    assert!(printed.contains("for another name"), "{printed}");
    let (_, printed) = run(&["ping"], &["--tls-ca", "/nonexistent"]);
    assert!(printed.contains("--tls-ca = \"/nonexistent\""), "{printed}");
    let load = [
        "bench",
        "decr",
        "--duration",
        "0.2",
        "--warmup",
        "0.1",
        "--connections",
        "4",
    ];
    let (code, printed) = run(&load, &["--tls-ca", &ca, "--level", "none"]);
    assert_eq!(code, Some(0), "{printed}");
    let large = [
        "bench",
        "get",
        "--duration",
        "0.2",
        "--keys",
        "20",
        "--connections",
        "2",
    ];
    let flags = ["--tls-ca", &ca, "--level", "none", "--value-bytes", "65536"];
    let (code, printed) = run(&large, &flags);
    assert_eq!(code, Some(0), "{printed}");
    let (_, printed) = run(&load, &[]);
    assert!(printed.contains("give --tls-ca"), "{printed}");
}

#[test]
fn users_log_in_through_tls_by_a_proof_of_the_connection_or_by_their_certificate() {
    let folder = Folder::new("users");
    let (authority, of_clients) = (Authority::new("ca"), Authority::new("clients"));
    let secret = || Secret::new(b"pencil".to_vec()).expect("a secret");
    let ann = Verifier::new(&secret(), [3; SALT_BYTES]);
    let users = format!(
        "decoy 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\nuser ann\npassword {ann}\ncertificate \
         ann\nread \"\"\nwrite \"\"\n"
    );
    let users = folder.put("users", &users, 0o600);
    let ca = folder.put("clients.pem", &of_clients.pem, 0o644);
    let flags = ["--users", &users, "--tls-client-ca", &ca];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let identity = Identity::new("ann", secret()).expect("a name");
    let options = ClientOptions {
        identity: Some(identity),
        ..options(Some(authority.trusted()))
    };
    let client = Client::connect(server.address, options).expect("logged in");
    client.set(b"key", b"value").wait().expect("set");

    // By certificate alone, which only the one of a user is.
    for (name, expected) in [("ann", Status::Ok), ("eve", Status::Auth)] {
        let pair = of_clients.signs(name);
        let tls = authority
            .trusted()
            .with_certificate(pair.certificate.as_bytes(), pair.key.as_bytes());
        let mut stream = server.stream(&tls.expect("a pair"), server.address);
        let mut frames = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "certificate",
        }
        .write(&mut frames, 1);
        let (method, message) = (AuthMethod::Certificate, &b"-"[..]);
        AuthRequest { method, message }.write(&mut frames, 2);
        stream.write_all(&frames).expect("sent");
        let (mut receiver, mut received) = (Receiver::new(1 << 20), Vec::new());
        let mut statuses = Vec::new();
        while statuses.len() < 2 {
            match receiver.next(&received) {
                Received::Frame {
                    header, consumed, ..
                } => {
                    statuses.push(Status::from_code(header.level_or_status));
                    received.drain(..consumed);
                }
                _ => {
                    let mut chunk = [0; 4096];
                    let read = stream.read(&mut chunk).expect("an answer");
                    assert!(read > 0, "it is open");
                    received.extend_from_slice(&chunk[..read]);
                }
            }
        }
        assert_eq!(statuses, [Some(Status::Ok), Some(expected)], "{name}");
    }
}
