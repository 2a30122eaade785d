//! What is turned away, while others are served.

use super::*;

/// Reads to the end of a connection: what came before it.
fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(LONG)).expect("set");
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => bytes,
        Err(error) => panic!("it does not end: {error}"),
    }
}

#[test]
fn bytes_that_are_no_tls_are_refused_with_a_line_in_the_log_and_others_are_served() {
    let folder = Folder::new("plain");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    let client = server.serves(&authority.trusted());
    let error = server.connect(None).expect_err("no TLS");
    assert!(error.to_string().contains("speaks TLS"), "{error}");
    server.until_logged(&["127.0.0.1", "its bytes are no TLS"]);
    for (address, bytes) in [
        (server.resp.expect("a port"), &b"PING\r\n"[..]),
        (server.shard, b"GET / HTTP/1.1\r\n\r\n"),
        (server.address, &[0xFF; 10_000]),
    ] {
        let mut stream = TcpStream::connect(address).expect("it listens");
        let _ = stream.write_all(bytes);
        let answer = rest_of(&mut stream);
        assert!(
            answer.is_empty() || answer[0] == 0x15,
            "an alert at most: {answer:?}"
        );
    }
    client.ping().wait().expect("others are served");
    server.until("penstock_tls_handshakes_failed_total", 4.0);
}

#[test]
fn a_client_of_tls_at_a_plain_port_is_refused_by_name() {
    let folder = Folder::new("at-plain");
    let authority = Authority::new("ca");
    let server = Server::run(&folder, &[]);
    let error = server
        .connect(Some(authority.trusted()))
        .expect_err("no TLS there");
    assert!(error.to_string().contains("no TLS at this port"), "{error}");
    let client = server.connect(None).expect("it serves");
    client.ping().wait().expect("on");
}

#[test]
fn a_server_that_is_not_trusted_or_has_another_name_gets_nothing() {
    let folder = Folder::new("untrusted");
    let (authority, other) = (Authority::new("ca"), Authority::new("ca"));
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    let error = server
        .connect(Some(other.trusted()))
        .expect_err("another CA");
    assert!(
        error.to_string().contains("not signed by the CA"),
        "{error}"
    );
    server.until_logged(&["gave up with the alert"]);
    let named = authority.trusted().with_server_name("elsewhere.example");
    let error = server
        .connect(Some(named.expect("a name")))
        .expect_err("another name");
    assert!(error.to_string().contains("for another name"), "{error}");
    server.serves(&authority.trusted());
}

#[test]
fn tls_1_2_is_refused_with_the_alert_that_says_so() {
    let folder = Folder::new("older");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    // Versions, random, no session, two suites of 1.2, no compression, groups and signatures.
    let extensions = b"\x00\x0A\x00\x04\x00\x02\x00\x17\x00\x0D\x00\x04\x00\x02\x04\x03";
    let mut hello = [
        &b"\x03\x03"[..],
        &[7; 32],
        b"\x00\x00\x04\xC0\x2B\xC0\x2F\x01\x00",
    ]
    .concat();
    hello.extend([0, extensions.len().to_le_bytes()[0]]);
    hello.extend(extensions);
    let mut message = vec![1, 0, 0, hello.len().to_le_bytes()[0]];
    message.extend(hello);
    let mut record = vec![22, 3, 1, 0, message.len().to_le_bytes()[0]];
    record.extend(message);
    let mut stream = TcpStream::connect(server.address).expect("it listens");
    stream.write_all(&record).expect("sent");
    assert_eq!(rest_of(&mut stream), [0x15, 3, 3, 0, 2, 2, 70]);
    server.until_logged(&["TLS 1.2 or older"]);
    let port = server.address.port().to_string();
    let openssl = Command::new("openssl")
        .args([
            "s_client",
            "-tls1_2",
            "-connect",
            &format!("127.0.0.1:{port}"),
        ])
        .stdin(Stdio::null())
        .output();
    match openssl {
        Err(_) => println!("skipped: there is no openssl"),
        Ok(output) => assert!(!output.status.success(), "{output:?}"),
    }
    server.serves(&authority.trusted());
}

#[test]
fn a_flipped_bit_ends_its_connection_and_others_are_served() {
    let folder = Folder::new("flipped");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &[]);
    let client = server.serves(&authority.trusted());
    let resp = server.resp.expect("a port");
    for at in [3, 4, 5, 12, 27] {
        let (mut session, mut stream) = server.stream(&authority.trusted(), resp).into_session();
        let mut records = Vec::new();
        session.seal(b"PING\r\n", &mut records);
        stream.write_all(&records).expect("sent");
        // The session is open: what comes now is none of the handshake's.
        let mut answer = [0; 64];
        let read = stream.read(&mut answer).expect("an answer");
        let mut plaintext = Vec::new();
        session
            .receive(&answer[..read], &mut plaintext)
            .expect("sound");
        assert_eq!(plaintext, b"+PONG\r\n");
        records.clear();
        session.seal(b"PING\r\n", &mut records);
        let second = records.len();
        session.seal(b"PING\r\n", &mut records);
        records[second + at] ^= 1;
        stream.write_all(&records).expect("sent");
        // A record whose length rose is not whole yet.
        let _ = stream.write_all(&[0; 1 << 15]);
        let bytes = rest_of(&mut stream);
        let mut plaintext = Vec::new();
        let taken = session.receive(&bytes, &mut plaintext);
        // The second one never runs. A reset may take the answer of the first one back.
        assert!(
            plaintext.is_empty() || plaintext == b"+PONG\r\n",
            "{at}: {plaintext:?}"
        );
        assert!(
            taken.is_err() || bytes.is_empty() || !plaintext.is_empty(),
            "{at}: {taken:?}"
        );
        client.ping().wait().expect("others are served");
    }
    server.until_logged(&["a connection through TLS ends"]);
}

/// What a client says first.
fn client_hello(tls: &ClientTls) -> Vec<u8> {
    let session = TlsSession::begin(tls, "localhost:1");
    let mut bytes = Vec::new();
    session.expect("begun").take_output(&mut bytes);
    bytes
}

#[test]
fn half_handshakes_are_bounded_and_ended_and_take_nobody_elses_place_for_long() {
    let folder = Folder::new("half");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &["--shards", "1"]);
    let tls = authority.trusted();
    let client = server.serves(&tls);
    let hello = client_hello(&tls);
    // Some say nothing, others a part of what they should.
    let half: Vec<TcpStream> = (0..300)
        .map(|number| {
            let mut stream = TcpStream::connect(server.address).expect("it listens");
            let said = number % 3 * hello.len() / 3;
            let _ = stream.write_all(&hello[..said]);
            stream
        })
        .collect();
    client.set(b"meanwhile", b"served").wait().expect("set");
    server.until("penstock_tls_handshakes_refused_total", 44.0);
    for mut stream in half {
        rest_of(&mut stream);
    }
    server.until("penstock_tls_handshakes_failed_total", 256.0);
    server.until_logged(&["too many handshakes"]);
    server.until_logged(&["not whole within 3 s"]);
    let _other = server.serves(&tls);
    server.until("penstock_connections", 2.0);
}

/// Kilobytes that a process has in memory.
fn resident_kb(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.process.id());
    let status = std::fs::read_to_string(path).expect("it lives");
    let line = status.lines().find(|it| it.starts_with("VmRSS:"));
    let number = line.and_then(|it| it.split_whitespace().nth(1));
    number.expect("a number").parse().expect("a number")
}

#[test]
fn ten_thousand_half_handshakes_leave_memory_bounded_and_others_served() {
    const WAVES: usize = 20;
    const EACH: usize = 500;
    let folder = Folder::new("storm");
    let authority = Authority::new("ca");
    let server = Server::start(&folder, &authority.signs("server"), &["--shards", "1"]);
    let tls = authority.trusted();
    let client = server.serves(&tls);
    let hello = client_hello(&tls);
    // Most of a message that is as long as one may be, in whole records: all that a half handshake
    // can make the server hold.
    let first = [&[22, 3, 1, 0x40, 0, 1, 0, 0xFF, 0xF0][..], &[0; 0x3FFC]].concat();
    let next = [&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat();
    let endless = [&first[..], &next, &next, &next[..100]].concat();
    let before_kb = resident_kb(&server);
    let ended = || {
        server.number("penstock_tls_handshakes_refused_total")
            + server.number("penstock_tls_handshakes_failed_total")
    };
    for wave in 1..=WAVES {
        let half: Vec<TcpStream> = (0..EACH)
            .map(|number| {
                let mut stream = TcpStream::connect(server.address).expect("it listens");
                let said = match number % 4 {
                    3 => &endless[..],
                    part => &hello[..part * hello.len() / 2],
                };
                let _ = stream.write_all(said);
                stream
            })
            .collect();
        let key = wave.to_le_bytes();
        client.set(&key, b"served").wait().expect("set");
        let value = client.get(&key).wait().expect("got");
        assert_eq!(value.expect("it is there").bytes, b"served"[..]);
        // 256 of them have a place, and rustls takes 64 KiB of a message: some 25 MiB.
        let held_kb = resident_kb(&server).saturating_sub(before_kb);
        assert!(held_kb < 64 << 10, "{held_kb} KiB in wave {wave}");
        drop(half);
        let expected = (wave * EACH) as f64;
        let until = std::time::Instant::now() + super::LONG;
        while ended() < expected && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(
            (ended() - expected).abs() < 0.5,
            "{} in wave {wave}",
            ended()
        );
    }
    let _other = server.serves(&tls);
    server.until("penstock_connections", 2.0);
}

#[test]
fn a_connection_beyond_the_limit_is_closed_before_its_handshake() {
    let folder = Folder::new("limit");
    let authority = Authority::new("ca");
    let flags = ["--connections-max", "1"];
    let server = Server::start(&folder, &authority.signs("server"), &flags);
    let client = server.serves(&authority.trusted());
    let mut second = TcpStream::connect(server.address).expect("it listens");
    assert!(rest_of(&mut second).is_empty());
    client.ping().wait().expect("it is served");
}
