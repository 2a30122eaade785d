//! Logins through TLS: bound to the connection, by certificate, and on the port of Redis.

use std::io::{Read, Write};
use std::net::TcpStream;

use penstock_client::{Client, ClientError, ClientOptions, Identity, Secret, Status, Unfit, Verbs};
use penstock_net::auth::{KEY_BYTES, SALT_BYTES, Verifier};

use super::{Authority, Folder, Server, options};

fn key() -> Secret {
    Secret::of_key(&[7; KEY_BYTES])
}

fn users(folder: &Folder) -> String {
    let till = Verifier::new(&key(), [0; SALT_BYTES]);
    let pencil = Secret::new(b"pencil".to_vec()).expect("a secret");
    let pencil = Verifier::new(&pencil, [3; SALT_BYTES]);
    let text = format!(
        "decoy 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\
         user ann\npassword {pencil}\nkey till {till}\nread \"\"\nwrite \"\"\nadmin \"\"\n\
         user bob\ncertificate till-7\nread \"\"\nwrite \"\"\nadmin \"\"\n"
    );
    folder.put("users", &text, 0o600)
}

#[test]
fn a_login_is_bound_to_its_connection_through_tls_also_behind_one_that_is_made_anew() {
    let folder = Folder::new("logins");
    let authority = Authority::new("ca");
    let users = users(&folder);
    let server = Server::start(&folder, &authority.signs("server"), &["--users", &users]);
    let identity = Identity::new("ann/till", key()).expect("a name");
    let with = |identity: Option<Identity>| ClientOptions {
        identity,
        ..options(Some(authority.trusted()))
    };
    let client = Client::connect(server.address, with(Some(identity))).expect("logged in");
    client.set(b"k", b"1").wait().expect("set");
    match Client::connect(server.address, with(None)).expect_err("nobody") {
        ClientError::Unfit(Unfit::NeedsIdentity) => {}
        other => panic!("{other}"),
    }
    // A client that does not bind its login is told to.
    let mut stream = server.stream(&authority.trusted(), server.address);
    let mut bytes = Vec::new();
    let hello = penstock_net::hello::ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "unbound",
    };
    hello.write(&mut bytes, 1);
    let request = penstock_net::auth::AuthRequest {
        method: penstock_net::auth::AuthMethod::Scram,
        message: b"n,,n=ann/till,r=0123456789abcdef",
    };
    request.write(&mut bytes, 2);
    stream.write_all(&bytes).expect("sent");
    let mut received = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&received).contains("p=tls-exporter") {
        let read = stream.read(&mut piece).expect("it answers");
        assert!(read > 0, "{}", received.escape_ascii());
        received.extend_from_slice(&piece[..read]);
    }
    server.until("penstock_logins_failed_total", 1.0);
}

#[test]
fn the_port_of_redis_takes_secrets_through_tls() {
    let folder = Folder::new("logins-resp");
    let authority = Authority::new("ca");
    let users = users(&folder);
    let server = Server::start(&folder, &authority.signs("server"), &["--users", &users]);
    let mut stream = server.stream(&authority.trusted(), server.resp.expect("a port"));
    stream
        .write_all(b"AUTH ann pencil\r\nSET k 1\r\nGET k\r\n")
        .expect("sent");
    let mut received = Vec::new();
    let mut piece = [0; 4096];
    while !received.ends_with(b"$1\r\n1\r\n") {
        let read = stream.read(&mut piece).expect("it answers");
        assert!(read > 0, "{}", received.escape_ascii());
        received.extend_from_slice(&piece[..read]);
    }
    assert_eq!(received, b"+OK\r\n+OK\r\n$1\r\n1\r\n");
    // What is no TLS is not listened to.
    let mut plain = TcpStream::connect(server.address).expect("it listens");
    plain.write_all(b"AUTH ann pencil\r\n").expect("sent");
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"+OK"), "{}", rest.escape_ascii());
}

#[test]
fn a_certificate_that_is_a_users_logs_in_over_both_protocols_and_another_one_does_not() {
    let folder = Folder::new("logins-certificate");
    let (authority, of_clients) = (Authority::new("ca"), Authority::new("clients"));
    let ca = folder.put("clients.pem", &of_clients.pem, 0o644);
    let users = users(&folder);
    let flags = ["--tls-client-ca", &ca, "--users", &users];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let showing = |name: &str| {
        let pair = of_clients.signs(name);
        let (chain, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
        let tls = authority.trusted().with_certificate(chain, key);
        tls.expect("a pair")
    };
    let client = server.connect(Some(showing("till-7"))).expect("logged in");
    client.set(b"k", b"1").wait().expect("set");
    match server
        .connect(Some(showing("till-8")))
        .expect_err("no user has it")
    {
        ClientError::Refused(answer) => assert_eq!(answer.status, Status::Auth),
        other => panic!("{other}"),
    }
    let mut stream = server.stream(&showing("till-7"), server.resp.expect("a port"));
    stream.write_all(b"GET k\r\n").expect("sent");
    let mut piece = [0; 64];
    let read = stream.read(&mut piece).expect("it answers");
    assert_eq!(&piece[..read], b"$1\r\n1\r\n");
    // A secret is another way in, also with such a certificate.
    let identity = Identity::new("ann/till", key()).expect("a name");
    let with = ClientOptions {
        identity: Some(identity),
        ..options(Some(showing("till-8")))
    };
    let client = Client::connect(server.address, with).expect("logged in");
    client.get(b"k").wait().expect("got");
}

#[test]
fn loads_log_in_by_a_secret_or_by_a_certificate_alone_and_count_along() {
    let folder = Folder::new("loads");
    let (authority, of_clients) = (Authority::new("ca"), Authority::new("clients"));
    let clients = folder.put("clients.pem", &of_clients.pem, 0o644);
    let users = users(&folder);
    let flags = ["--tls-client-ca", &clients, "--users", &users];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let ca = folder.put("ca.pem", &authority.pem, 0o644);
    let secret = folder.put("secret", "pencil", 0o600);
    let wrong = folder.put("wrong", "crayon", 0o600);
    let till = of_clients.signs("till-7");
    let certificate = folder.put("till.pem", &till.certificate, 0o644);
    let key = folder.put("till.key", &till.key, 0o600);
    let by_secret = ["--user", "ann", "--secret-file", &secret];
    let by_certificate = ["--tls-cert", &certificate, "--tls-key", &key];
    let run = |words: &[&str], flags: &[&str]| -> (Option<i32>, String) {
        let output = crate::command::program(env!("CARGO_BIN_EXE_penstock"))
            .args(words)
            .args(["--addr", &server.address.to_string(), "--tls-ca", &ca])
            .args(flags)
            .output()
            .expect("the command");
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let short = ["--duration", "0.2", "--warmup", "0.1", "--connections", "3"];
    for way in [&by_secret[..], &by_certificate] {
        for load in ["decr", "get"] {
            let (code, printed) = run(&["bench", load], &[&short[..], way].concat());
            assert_eq!(code, Some(0), "{load} {way:?}: {printed}");
        }
        let ledger = [&short[..], way, &["--ledger"]].concat();
        let (code, printed) = run(&["bench", "decr"], &ledger);
        assert_eq!(code, Some(0), "{printed}");
        // Buyers cut connections, which log in anew.
        let sale = ["--units", "200", "--buyers", "300", "--connections", "4"];
        let (code, printed) = run(&["bench", "sale"], &[&sale[..], way].concat());
        assert!(code == Some(0) && printed.contains("PASS"), "{printed}");
    }
    let (code, printed) = run(&["bench", "decr"], &short);
    assert!(
        code == Some(3) && printed.contains("has users"),
        "{printed}"
    );
    let wrong = ["--user", "ann", "--secret-file", &wrong];
    let (code, printed) = run(&["bench", "decr"], &[&short[..], &wrong].concat());
    assert!(
        code == Some(3) && printed.contains("AUTH"),
        "{code:?} {printed}"
    );
}

#[test]
fn an_identity_that_may_wait_goes_on_as_nobody_where_the_certificate_proves_the_server() {
    let folder = Folder::new("may-wait");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    let with = |identity_may_wait: bool| ClientOptions {
        identity: Some(Identity::new("ann/till", key()).expect("a name")),
        identity_may_wait,
        ..options(Some(authority.trusted()))
    };
    let refused = Client::connect(server.address, with(false)).expect_err("no users");
    assert!(refused.to_string().contains("has no users"), "{refused}");
    let client = Client::connect(server.address, with(true)).expect("it may");
    client.set(b"k", b"1").wait().expect("set");
    drop((client, server));

    // The same client, when the server has users.
    let users = users(&folder);
    let server = Server::start(&folder, &authority.signs("server"), &["--users", &users]);
    let client = Client::connect(server.address, with(true)).expect("logged in");
    client.set(b"k", b"2").wait().expect("set");
    server.until("penstock_logins_total", 1.0);
}
