//! What commands do at their edges: standard output that takes nothing, a terminal, options before
//! the command, variables that somebody else has set.
#![expect(unsafe_code, reason = "a terminal of this test's own")]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::Path;
use std::process::{Command, Output};

use penstock_client::Verbs;

use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;

fn serving(name: &str) -> Command {
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args([
        "--shards",
        "1",
        "--admin-listen",
        "off",
        "--resp-listen",
        "off",
    ]);
    serve.args([
        "--segment-bytes",
        "4MiB",
        "--value-bytes-max",
        "64KiB",
        "--schema",
    ]);
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/programs");
    serve.arg(programs).arg("--data").arg(folder(name));
    serve
}

fn at(server: &Server, words: &[&str]) -> Command {
    let mut asked = command(words);
    asked.env("PENSTOCK_ADDR", server.address.to_string());
    asked
}

fn errors_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_that_writes_says_that_it_was_executed_when_nobody_can_be_answered() {
    if !Path::new("/dev/full").exists() {
        println!("skipped: there is no /dev/full");
        return;
    }
    let server = Server::start(&mut serving("untold"));
    let client = server.client();
    client.set(b"stock", &10u32.to_le_bytes()).wait().unwrap();
    client.set(b"gone", b"v").wait().unwrap();
    let scratch = folder("untold-files");
    fs::create_dir_all(&scratch).unwrap();
    let rows = scratch.join("rows.csv");
    fs::write(&rows, "key,value\nloaded,v\n").unwrap();
    let (rows, users) = (rows.to_str().unwrap(), scratch.join("users"));
    let users = users.to_str().unwrap();
    let buy = "run buy stock:{f} order:{f}:1 buyer:{f}:ann quantity=1 hold_ms=600000";
    let load = format!("load {rows}");
    let writes = [
        "set new u32:1",
        "update-if stock u32@0>=1 u32@0-=1",
        "expire stock 1h",
        "persist stock",
        "del gone",
        "run restock stock:{f} quantity=3 limit_per_buyer=2",
        buy,
        "keyspace create k: --ttl 1h",
        "keyspace set k: --ttl 2h",
        "keyspace drop k:",
        &load,
        &format!("user add ann --users {users}"),
        &format!("user password ann --users {users}"),
    ];
    let fails = |line: &str| {
        let mut asked = at(&server, &line.split(' ').collect::<Vec<_>>());
        let asked = asked.stdout(File::options().write(true).open("/dev/full").unwrap());
        let output = asked.output().unwrap();
        (output.status.code(), errors_of(&output))
    };
    for line in writes {
        let (code, printed) = fails(line);
        assert_eq!(code, Some(4), "{line}: {printed}");
        assert!(
            printed.contains(", but the answer cannot be written: "),
            "{line}: {printed}"
        );
    }
    // Each was executed once.
    let stock = client.get(b"stock").wait().unwrap().unwrap();
    assert_eq!(stock.bytes[..], 9u32.to_le_bytes());
    assert!(client.get(b"gone").wait().unwrap().is_none());
    assert!(client.get(b"loaded").wait().unwrap().is_some());
    for line in ["get stock", "scan", "ttl stock", "set k v --token new"] {
        let (code, printed) = fails(line);
        assert_eq!(code, Some(2), "{line}: {printed}");
        assert!(
            !printed.contains("the write was executed"),
            "{line}: {printed}"
        );
    }
    assert!(
        client.get(b"k").wait().unwrap().is_none(),
        "its token was not told"
    );
    server.stop();
    fs::remove_dir_all(scratch).unwrap();
}

#[test]
fn an_answer_that_leaves_a_write_with_a_token_open_is_reported_as_the_server_says_it() {
    let server = Server::start(&mut serving("old-token"));
    // Of 1970, which is behind each horizon.
    let token = penstock_client::Token::new(1, [7; 10]).to_string();
    let mut asked = at(&server, &["set", "k", "v", "--token", &token]);
    let output = asked.output().unwrap();
    let printed = errors_of(&output);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("TOKEN_TOO_OLD"), "{printed}");
    assert!(
        !printed.contains("ask the same"),
        "it would help nobody: {printed}"
    );
    server.stop();
}

/// What a command prints on a terminal.
fn on_terminal(mut asked: Command) -> String {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: the two numbers live until the call returns, and it takes nothing else.
    let opened = unsafe {
        libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    assert_eq!(opened, 0, "a terminal");
    // SAFETY: the call has just made both, and nobody else has them.
    let (mut ours, theirs) = unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) };
    let status = asked.stdout(theirs).status().unwrap();
    assert!(status.success());
    // The command has the other end no more, so the reading ends.
    drop(asked);
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = ours.read(&mut chunk) {
        text.extend_from_slice(&chunk[..read]);
    }
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_terminal_is_shown_no_raw_bytes_unless_they_are_asked_for() {
    let server = Server::start(&mut serving("terminal"));
    let client = server.client();
    client.set(b"n", &200u32.to_le_bytes()).wait().unwrap();
    client.set(b"text", "Größe\n".as_bytes()).wait().unwrap();
    let get = |words: &[&str]| at(&server, &[&["get"], words].concat());
    assert_eq!(on_terminal(get(&["n"])), "\\xc8\\x00\\x00\\x00\n");
    assert_eq!(on_terminal(get(&["text"])), "Größe\n\n");
    assert_eq!(on_terminal(get(&["n", "--as", "u32@0"])), "200\n");
    let piped = get(&["n"]).output().unwrap();
    assert_eq!(piped.stdout, 200u32.to_le_bytes());
    server.stop();
}

#[test]
fn the_server_may_be_named_before_the_command() {
    let server = Server::start(&mut serving("leading"));
    let address = server.address.to_string();
    for words in [
        &["--addr", &address, "set", "k", "v"][..],
        &["--addr", &address, "--timeout-ms", "9000", "get", "k"],
        &["--addr", &address, "keyspace", "list"],
    ] {
        let output = command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", errors_of(&output));
    }
    server.stop();
}

#[test]
fn a_number_that_was_set_as_short_text_is_named_when_it_is_counted_with() {
    let server = Server::start(&mut serving("short-text"));
    let output_of = |words: &[&str]| {
        let output = at(&server, words).output().unwrap();
        (output.status.code(), errors_of(&output))
    };
    assert_eq!(output_of(&["set", "x", "100"]).0, Some(0));
    for words in [
        &["update-if", "x", "u32@0 -= 1"][..],
        &["apply", "--key", "k=x", "k.u32@0 -= 1"],
    ] {
        let (code, printed) = output_of(words);
        assert_eq!(code, Some(2), "{printed}");
        assert!(
            printed.contains("\"x\" holds the text \"100\" of 3 bytes"),
            "{printed}"
        );
        assert!(
            printed.contains("A number is written as u32:100"),
            "{printed}"
        );
    }
    // Short, and no number.
    assert_eq!(output_of(&["set", "x", "ab"]).0, Some(0));
    assert!(
        output_of(&["update-if", "x", "u32@0 -= 1"])
            .1
            .contains("BAD_FIELD")
    );
    server.stop();
}

#[test]
fn variables_of_services_of_kubernetes_keep_no_server_from_its_start() {
    let mut serve = serving("service-links");
    let errors = folder("service-links.errors");
    serve.envs([
        ("PENSTOCK_PORT", "tcp://10.0.0.1:7411"),
        ("PENSTOCK_SERVICE_HOST", "10.0.0.1"),
        ("PENSTOCK_METRICS_PORT_7412_TCP_PROTO", "tcp"),
    ]);
    serve.stderr(File::create(&errors).unwrap());
    Server::start(&mut serve).stop();
    let printed = fs::read_to_string(&errors).unwrap();
    let lines: Vec<&str> = printed
        .lines()
        .filter(|it| it.contains("passed over"))
        .collect();
    assert_eq!(lines.len(), 1, "{printed}");
    assert!(lines[0].contains("and 2 others"), "{printed}");
    fs::remove_file(errors).unwrap();
}
