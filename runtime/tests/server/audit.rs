//! The audit log of a real server: who logged in, who was refused, who was denied what.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Identity, Secret, Verbs};
use serde_json::Value;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// Longer than any answer and any change of the file takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn user(file: &Path, words: &[&str]) -> String {
    let mut user = command(&[&["user"], words].concat());
    let output = user.env("PENSTOCK_USERS", file).output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    let printed = String::from_utf8(output.stdout).expect("text");
    printed.trim_end().to_string()
}

fn connect(server: &Server, name: &str, secret: &str) -> Option<Client> {
    let secret = Secret::new(secret.as_bytes().to_vec()).expect("a secret");
    let options = ClientOptions {
        deadline: PATIENCE,
        identity: Some(Identity::new(name, secret).expect("a login")),
        ..ClientOptions::default()
    };
    Client::connect(server.address, options).ok()
}

fn lines(audit: &Path) -> Vec<Value> {
    let text = fs::read_to_string(audit).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect()
}

/// Waits for a line of this event, and returns it.
fn wait_for(audit: &Path, event: &str) -> Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let mut found = lines(audit).into_iter();
        if let Some(line) = found.find(|line| line["event"] == event) {
            return line;
        }
        assert!(Instant::now() < until, "no {event}: {:?}", lines(audit));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_audit_names_who_came_who_was_refused_and_what_was_asked_and_shows_no_secret() {
    let folder = scratch::folder("audit");
    fs::create_dir_all(&folder).expect("a folder");
    let (file, audit) = (folder.join("users"), folder.join("audit.jsonl"));
    let till = user(&file, &["add", "till", "--key", "one"]);
    let ann = user(&file, &["add", "ann"]);
    user(&file, &["grant", "ann", "admin", ""]);
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args([
        "--admin-listen",
        "off",
        "--resp-listen",
        "off",
        "--shards",
        "1",
    ]);
    let paths = [
        ("--users", &file),
        ("--audit-file", &audit),
        ("--data", &folder.join("data")),
    ];
    for (option, path) in paths {
        serve.arg(option).arg(path);
    }
    let server = Server::start(&mut serve);

    let client = connect(&server, "till/one", &till).expect("it lets the till in");
    let login = wait_for(&audit, "login");
    assert_eq!(
        (&login["user"], &login["peer"]),
        (&"till/one".into(), &"127.0.0.1".into())
    );
    for _ in 0..50 {
        client.set(b"stock:1", b"1").wait().expect_err("it may not");
    }
    let denied = wait_for(&audit, "denied");
    assert_eq!(
        (&denied["user"], &denied["times"]),
        (&"till/one".into(), &1.into())
    );
    let cause = denied["cause"].as_str().expect("a text");
    assert!(
        cause.contains("no right to write at \"stock:1\""),
        "{cause}"
    );
    // A second later the next one is told, with all that were not.
    std::thread::sleep(Duration::from_millis(1_100));
    client.set(b"stock:1", b"1").wait().expect_err("it may not");
    let denials = || -> u64 {
        let denied = lines(&audit);
        let denied = denied.iter().filter(|line| line["event"] == "denied");
        denied
            .map(|line| line["times"].as_u64().expect("a number"))
            .sum()
    };
    let until = Instant::now() + PATIENCE;
    while denials() < 51 {
        assert!(Instant::now() < until, "{} denials are told", denials());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(denials(), 51, "each is counted once");

    assert!(connect(&server, "ann", "a wrong password").is_none());
    let refused = wait_for(&audit, "login_refused");
    assert_eq!(refused["user"], "ann");

    let mut keyspace = command(&["keyspace", "create", "cart:"]);
    keyspace.arg("--addr").arg(server.address.to_string());
    let secret = folder.join("secret");
    fs::write(&secret, &ann).expect("written");
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    keyspace
        .args(["--user", "ann", "--secret-file"])
        .arg(&secret);
    let output = keyspace.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let asked = wait_for(&audit, "keyspace");
    let fields = (&asked["user"], &asked["asked"], &asked["prefix"]);
    assert_eq!(fields, (&"ann".into(), &"create".into(), &"cart:".into()));

    user(&file, &["remove", "till"]);
    assert_eq!(wait_for(&audit, "users")["users"], 1);
    assert_eq!(wait_for(&audit, "user_gone")["user"], "till/one");
    server.stop();
    wait_for(&audit, "stop");
    let text = fs::read_to_string(&audit).expect("read");
    for secret in [&till, &ann, "a wrong password"] {
        assert!(!text.contains(secret), "a secret stands in the audit log");
    }
}
