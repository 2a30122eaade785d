//! The admin port beyond loopback: who is told what, and who keeps whom from it.

use super::*;

/// Two tokens, each of two parts: what stands whole in the memory of a server came to it as one.
fn token(number: u8) -> String {
    ["0123456789abcdef", "0123456789abcdef", &number.to_string()].concat()
}

/// A server whose admin port others can reach.
pub(super) struct Guarded {
    pub(super) folder: Folder,
    pub(super) authority: Authority,
    pub(super) server: Server,
    admin: SocketAddr,
}

impl Guarded {
    pub(super) fn start(folder: Folder, flags: &[&str]) -> Guarded {
        let authority = Authority::new("ca");
        let server = Server::start(
            &folder,
            &authority.signs("server"),
            &[&["--admin-listen", "0.0.0.0:0"], flags].concat(),
        );
        let line = server.banner.lines().find(|it| it.starts_with("admin"));
        let line = line.expect("a line of the banner");
        assert!(line.contains(" https://0.0.0.0:"), "{line}");
        let admin = SocketAddr::new([127, 0, 0, 1].into(), server.admin.port());
        Guarded {
            folder,
            authority,
            server,
            admin,
        }
    }

    /// One that takes the first token alone, with an audit log.
    fn with_token(name: &str) -> Guarded {
        let folder = Folder::new(name);
        let token = folder.put("token", &token(1), 0o600);
        let audit = folder.path("audit");
        let flags = ["--admin-token-file", &token, "--audit-file", &audit];
        Guarded::start(folder, &flags)
    }

    /// Status, head and body of what is answered to a request for a page.
    fn ask_as(&self, tls: &ClientTls, page: &str, headers: &str) -> (u16, String, String) {
        let mut stream = self.server.stream(tls, self.admin);
        let request = format!("GET {page} HTTP/1.1\r\nHost: penstock\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut text = String::new();
        stream
            .read_to_string(&mut text)
            .expect("a reply, and a clean end");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.strip_prefix("HTTP/1.1 ").expect("a status line")[..3].parse();
        (
            status.expect("a number"),
            head.to_string(),
            body.to_string(),
        )
    }

    pub(super) fn ask(&self, page: &str, token: Option<&str>) -> (u16, String, String) {
        let header = token.map(|it| format!("Authorization: Bearer {it}\r\n"));
        self.ask_as(&self.authority.trusted(), page, &header.unwrap_or_default())
    }

    fn number(&self, name: &str) -> f64 {
        let (status, _, page) = self.ask("/metrics", Some(&token(1)));
        assert_eq!(status, 200, "{page}");
        Numbers::read(&page).sum(name, &[])
    }

    fn audit(&self) -> String {
        fs::read_to_string(self.folder.path("audit")).expect("an audit log")
    }
}

#[test]
fn all_but_the_status_of_probes_needs_the_token_and_no_log_has_it() {
    let guarded = Guarded::with_token("admin-token");
    let (right, wrong) = (token(1), token(2));
    let (status, _, page) = guarded.ask("/metrics", Some(&right));
    assert!(status == 200 && page.contains("penstock_ready 1"), "{page}");
    assert_eq!(guarded.ask("/readyz", Some(&right)).2, "ready\n");
    assert_eq!(guarded.ask("/livez", Some(&right)).2, "live\n");
    let answer = guarded.ask("/nothing", Some(&right));
    assert!(
        answer.0 == 404 && answer.2.contains("/metrics"),
        "{answer:?}"
    );
    for shown in [None, Some(wrong.as_str()), Some(&right[..32]), Some("")] {
        for page in ["/metrics", "/nothing", "/", "/metrics?x=1"] {
            let (status, head, body) = guarded.ask(page, shown);
            assert_eq!(status, 401, "{page}: {body}");
            assert!(head.contains("WWW-Authenticate: Bearer"), "{head}");
            assert!(
                !body.contains("penstock_") && body.lines().count() == 1,
                "{body}"
            );
        }
        for page in ["/livez", "/readyz", "/readyz?role=primary"] {
            let (status, _, body) = guarded.ask(page, shown);
            assert_eq!((status, body.as_str()), (200, ""), "{page}");
        }
    }
    assert_eq!(guarded.number("penstock_admin_refused_total"), 16.0);
    let doubled = format!("Authorization: Bearer {right}\r\n").repeat(2);
    let answer = guarded.ask_as(&guarded.authority.trusted(), "/metrics", &doubled);
    assert_eq!(answer.0, 401, "two headers are none");
    guarded
        .server
        .until_logged(&["WARN", "admin port", "127.0.0.1 is refused"]);
    let audit = guarded.audit();
    assert!(
        audit.contains("\"event\":\"admin_refused\",\"peer\":\"127.0.0.1\""),
        "{audit}"
    );
    for text in [
        audit,
        guarded.server.errors(),
        guarded.server.banner.clone(),
    ] {
        for token in [&right, &wrong] {
            assert!(!text.contains(&token[..32]), "a token stands in a log");
        }
    }
}

#[test]
fn a_token_is_taken_while_it_stands_in_the_file_and_none_when_the_file_is_gone_or_open() {
    let guarded = Guarded::with_token("admin-file");
    let files = &guarded.folder;
    let is_taken = |number| guarded.ask("/metrics", Some(&token(number))).0 == 200;
    assert!(is_taken(1) && !is_taken(2));
    files.put("token", &format!("{}\n{}\n", token(1), token(2)), 0o600);
    assert!(is_taken(1) && is_taken(2), "both, while they change places");
    files.put("token", &token(2), 0o600);
    assert!(!is_taken(1) && is_taken(2));
    files.put("token", &token(2), 0o644);
    assert!(!is_taken(2));
    guarded
        .server
        .until_logged(&["ERROR", "admin_token_file", "others may read it"]);
    files.put("token", "short", 0o600);
    assert!(!is_taken(2));
    guarded
        .server
        .until_logged(&["ERROR", "line 1: a token has 32 to 512"]);
    files.put("token", &token(1), 0o600);
    assert!(is_taken(1) && !is_taken(2));
    fs::remove_file(files.0.join("token")).expect("removed");
    assert!(!is_taken(1));
    assert_eq!(guarded.ask("/readyz", None).0, 200, "probes go on");
    guarded
        .server
        .until_logged(&["ERROR", "admin_token_file", "cannot be read"]);
}

#[test]
fn a_certificate_of_a_client_opens_the_port_and_no_certificate_is_needed_for_a_probe() {
    let folder = Folder::new("admin-certificate");
    let clients = Authority::new("clients");
    let ca = folder.put("clients.pem", &clients.pem, 0o644);
    let guarded = Guarded::start(folder, &["--tls-client-ca", &ca]);
    let shows = |pair: &Pair| {
        let (certificate, key) = (pair.certificate.as_bytes(), pair.key.as_bytes());
        let tls = guarded
            .authority
            .trusted()
            .with_certificate(certificate, key);
        tls.expect("a certificate")
    };
    let (status, _, page) = guarded.ask_as(&shows(&clients.signs("prometheus")), "/metrics", "");
    assert!(status == 200 && page.contains("penstock_ready 1"), "{page}");
    // The port of clients needs one, and this port does not.
    guarded
        .server
        .connect(Some(guarded.authority.trusted()))
        .expect_err("no certificate");
    assert_eq!(guarded.ask("/readyz", None).0, 200);
    let (status, _, body) = guarded.ask("/metrics", None);
    assert_eq!(status, 401, "{body}");
    assert_eq!(
        guarded.ask("/metrics", Some(&token(1))).0,
        401,
        "no token is taken"
    );
    let stranger = shows(&Authority::new("other").signs("prometheus"));
    let stream = TcpStream::connect(guarded.admin).expect("it listens");
    let until = Instant::now() + LONG;
    let shaken = TlsStream::connect(&stranger, &guarded.admin.to_string(), stream, until);
    // With TLS 1.3 a client learns of the refusal behind its handshake.
    if let Ok(mut stream) = shaken {
        stream.stream().set_read_timeout(Some(LONG)).expect("set");
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        assert!(
            stream.read_to_string(&mut answer).is_err() || answer.is_empty(),
            "{answer}"
        );
    }
    guarded
        .server
        .until_logged(&["admin port", "through TLS ends"]);
}

#[test]
fn bytes_that_are_no_tls_and_half_handshakes_end_and_others_are_served() {
    let guarded = Guarded::with_token("admin-half");
    let read_all = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(LONG)).expect("set");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let plain = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(guarded.admin).expect("it listens");
        stream.write_all(bytes).expect("sent");
        read_all(stream)
    };
    let answer = plain(b"GET /metrics HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n");
    assert!(!answer.starts_with(b"HTTP"), "{}", answer.escape_ascii());
    guarded
        .server
        .until_logged(&["WARN", "admin port", "its bytes are no TLS"]);
    assert_eq!(
        guarded.number("penstock_admin_handshakes_failed_total"),
        1.0
    );

    // More of them than there are places, and each stays as long as it may.
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let halves: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = TcpStream::connect(guarded.admin).expect("it listens");
            let sent = stream.write_all(&hello[..number % hello.len()]);
            sent.expect("sent");
            stream
        })
        .collect();
    assert_eq!(guarded.ask("/readyz", None).0, 200);
    assert_eq!(guarded.ask("/metrics", Some(&token(1))).0, 200);
    for stream in halves {
        let answer = read_all(stream);
        assert!(answer.len() < 64, "{}", answer.escape_ascii());
    }
    // Those without a place ended unread; those with one when their time was over.
    let failed = guarded.number("penstock_admin_handshakes_failed_total");
    assert!((1.0..=66.0).contains(&failed), "{failed}");
    guarded
        .server
        .until_logged(&["its handshake was not whole within 3 s"]);
}

#[test]
fn a_handshake_and_a_request_in_pieces_of_one_byte_are_served_as_any() {
    let guarded = Guarded::with_token("admin-pieces");
    let stream = TcpStream::connect(guarded.admin).expect("it listens");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(LONG)).expect("set");
    let address = guarded.admin.to_string();
    let tls = guarded.authority.trusted();
    let mut session = TlsSession::begin(&tls, &address).expect("begun");
    let mut hello = Vec::new();
    session.take_output(&mut hello);
    let mut pieces = stream.try_clone().expect("the same socket");
    hello
        .chunks(1)
        .for_each(|byte| pieces.write_all(byte).expect("sent"));
    session
        .shake_hands(&stream, Instant::now() + LONG)
        .expect("shaken");
    let request = format!(
        "GET /metrics HTTP/1.0\r\nAuthorization: Bearer {}\r\n\r\n",
        token(1)
    );
    for byte in request.as_bytes().chunks(1) {
        let mut records = Vec::new();
        session.seal(byte, &mut records);
        pieces.write_all(&records).expect("sent");
    }
    let (mut ciphertext, mut answer) = (Vec::new(), Vec::new());
    let _ = pieces.read_to_end(&mut ciphertext);
    session.receive(&ciphertext, &mut answer).expect("read");
    assert!(
        answer.starts_with(b"HTTP/1.1 200 OK"),
        "{}",
        answer.escape_ascii()
    );
}

#[test]
fn a_token_file_that_others_can_read_or_without_a_token_is_refused_at_the_start() {
    let folder = Folder::new("admin-refused");
    for (text, mode, cause) in [
        (token(1), 0o644, "others may read it (mode 0644): chmod 600"),
        (
            "short".into(),
            0o600,
            "line 1: a token has 32 to 512 characters, not 5",
        ),
    ] {
        let path = folder.put("token", &text, mode);
        let output = command(&folder, &["--admin-token-file", &path])
            .output()
            .expect("run");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("admin_token_file") && printed.contains(cause),
            "{printed}"
        );
        assert!(!printed.contains(&text), "{printed}");
        assert!(!folder.0.join("data").exists(), "nothing was made");
    }
}

#[test]
fn a_token_file_counts_on_loopback_too_where_the_port_stays_without_tls() {
    let folder = Folder::new("admin-loopback");
    let path = folder.put("token", &token(1), 0o600);
    let server = Server::run(&folder, &["--admin-token-file", &path]);
    assert!(
        server.banner.contains("admin        http://127.0.0.1:"),
        "{}",
        server.banner
    );
    let ask = |headers: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\n{headers}\r\n");
        ask(server.admin, request.as_bytes()).0
    };
    assert_eq!(ask(""), 401);
    assert_eq!(ask(&format!("Authorization: Bearer {}\r\n", token(1))), 200);
}

#[test]
fn a_second_start_of_a_directory_names_the_directory_and_not_its_ports() {
    let folder = Folder::new("admin-second");
    let server = Server::run(&folder, &[]);
    let admin = server.admin.to_string();
    let output = command(&folder, &["--admin-listen", &admin])
        .output()
        .expect("run");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("in use by process"), "{printed}");
    let other = Folder::new("admin-second-other");
    let output = command(&other, &["--admin-listen", &admin])
        .output()
        .expect("run");
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("for probes and metrics") && !printed.contains("in use by process"),
        "{printed}"
    );
}
