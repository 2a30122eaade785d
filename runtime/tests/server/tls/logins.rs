//! Logins through TLS: bound to the connection, by certificate, and on the port of Redis.

use std::io::{Read, Write};
use std::net::TcpStream;

use penstock_client::{Client, ClientError, ClientOptions, Identity, Secret, Status, Verbs};
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
        ClientError::Refused(answer) => assert_eq!(answer.status, Status::Auth),
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
    let mut told = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&told).contains("p=tls-exporter") {
        let read = stream.read(&mut piece).expect("it answers");
        assert!(read > 0, "{}", told.escape_ascii());
        told.extend_from_slice(&piece[..read]);
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
    let mut told = Vec::new();
    let mut piece = [0; 4096];
    while !told.ends_with(b"$1\r\n1\r\n") {
        let read = stream.read(&mut piece).expect("it answers");
        assert!(read > 0, "{}", told.escape_ascii());
        told.extend_from_slice(&piece[..read]);
    }
    assert_eq!(told, b"+OK\r\n+OK\r\n$1\r\n1\r\n");
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
