//! What a client knows of its server, and the level that each handle asks for.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::time::Duration;

use penstock_client::{AckLevel, Client, ClientError, ClientOptions, Verbs};
use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode};
use penstock_net::pieces::Pieces;
use penstock_net::program::SCHEMA_ASKED;
use penstock_net::reply::{BatchReply, ReplyHead, write_error, write_info_reply, write_ping_reply};
use penstock_net::request::Version;
use penstock_net::status::Status;

const FEATURES: u64 = 0xf00;

/// Serves one connection: each item is done at the level of its frame.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("connected to");
        super::answer_frames(stream, |header, body| Some(reply(header, body)));
    });
    address
}

fn reply(header: &Header, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match Opcode::from_code(header.opcode) {
        Some(Opcode::Hello) => super::hello(&[], FEATURES).write(&mut out, header.request_id),
        Some(Opcode::Info) if body == SCHEMA_ASKED => {
            write_info_reply(&mut out, header.request_id, 0, "schema")
        }
        Some(Opcode::Info) => write_info_reply(&mut out, header.request_id, 0, "info"),
        Some(Opcode::Batch) => {
            let level = u8::try_from(header.level_or_status).expect("a level");
            let level = AckLevel::from_code(level).expect("a level");
            let batch = Batch::read(body).expect("a batch");
            let mut pieces = Pieces::default();
            let mut reply = BatchReply::begin(&mut pieces, header.request_id, batch.len());
            for number in 0..batch.len() {
                let number = u16::try_from(number).expect("small");
                let head = ReplyHead::new(Status::Ok, number, level, Version::default());
                head.write(pieces.written(), b"");
                reply.end_item(&mut pieces);
            }
            reply.finish(&mut pieces, 0, false, false);
            out = pieces.into_bytes();
        }
        _ => write_ping_reply(&mut out, header, body, 0),
    }
    out
}

#[test]
fn a_client_shows_what_its_server_has_said_of_itself_and_asks_for_its_schema() {
    let client = Client::connect(serve(), super::patient()).expect("connected");
    assert_eq!(client.hello(), super::hello(&[], FEATURES));
    assert_eq!(client.info().wait().expect("a text"), "info");
    assert_eq!(client.schema().wait().expect("a text"), "schema");
}

#[test]
fn each_handle_of_a_client_asks_for_its_own_level() {
    let disk = Client::connect(serve(), super::patient()).expect("connected");
    let (none, replica) = (
        disk.with_level(AckLevel::None),
        disk.with_level(AckLevel::Replica),
    );
    let handles = [&disk, &none, &replica, &replica, &disk];
    let asked = handles.map(|client| client.set(b"key", b"value"));
    let reached = asked.map(|pending| pending.wait().expect("answered").level);
    let (disk, none, replica) = (AckLevel::Disk, AckLevel::None, AckLevel::Replica);
    assert_eq!(reached, [disk, none, replica, replica, disk]);
}

#[test]
fn a_server_of_another_kind_is_reported_as_that_and_asked_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("connected to");
        let bad = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(bad).expect("sent");
        // The end of the client.
        let _ = stream.read_to_end(&mut Vec::new());
        listener.set_nonblocking(true).expect("a socket");
        listener.accept().map(|_| ())
    });
    let refused = Client::connect(address, super::patient()).expect_err("it is none");
    assert!(matches!(refused, ClientError::Protocol(_)), "{refused:?}");
    let again = other.join().expect("no panic");
    assert!(again.is_err(), "it was asked again");
}

#[test]
fn a_server_that_turns_connections_away_is_reported_by_its_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut answer = Vec::new();
            write_error(&mut answer, None, Status::Busy, 1000, 0, &"3 connections");
            let mut stream = stream.expect("connected to");
            let _ = stream.write_all(&answer);
            let _ = stream.shutdown(Shutdown::Write);
            // The end of the client.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let options = ClientOptions {
        deadline: Duration::from_millis(300),
        ..ClientOptions::default()
    };
    let refused = Client::connect(address, options).expect_err("it is full");
    let ClientError::Busy(text) = &refused else {
        panic!("{refused:?}");
    };
    assert!(text.contains("3 connections"), "{text}");
}
