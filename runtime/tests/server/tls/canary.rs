//! Secrets go into a server and into commands in every way there is, and come out nowhere: not in
//! logs, audit log, metrics, INFO, answers, the output of commands, or the memory of the process.
//!
//! The memory of the running process stands for a core file, which would hold the same pages.

use std::fmt::Write as _;

use penstock_net::auth::{KEY_BYTES, Secret};

use super::admin::Guarded;
use super::*;
use crate::cluster::nodes::free_address;
use crate::logins::is_in_memory;

/// A secret, and its forms in which nobody may find it.
struct Canary {
    name: &'static str,
    text: String,
}

impl Canary {
    /// Of words that are made at run time, so that no program holds them as a constant.
    fn new(name: &'static str) -> Canary {
        let mut text = String::new();
        let seed = std::process::id() as usize;
        for (number, letter) in name.bytes().cycle().take(40).enumerate() {
            let shifted = (usize::from(letter) * 31 + number * 17 + seed) % 26;
            text.push(char::from(b'a' + u8::try_from(shifted).expect("a letter")));
        }
        Canary { name, text }
    }

    fn forms(&self) -> Vec<Vec<u8>> {
        let mut hex = String::new();
        for byte in self.text.bytes() {
            write!(hex, "{byte:02x}").expect("text");
        }
        // The last letters of base64 depend on what follows.
        let base64 = base64(self.text.as_bytes());
        let base64 = &base64[..base64.len() - 4];
        let forms = [&self.text, base64, &hex, &hex.to_uppercase()];
        forms.map(|form| form.as_bytes().to_vec()).to_vec()
    }
}

fn base64(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three
            .iter()
            .fold(0, |all, byte| all << 8 | u32::from(*byte));
        let number = number << (8 * (3 - three.len()));
        for place in (0..4).rev() {
            let letter = number >> (6 * place) & 63;
            text.push(char::from(letters[letter as usize]));
        }
    }
    text
}

/// What was seen, by where it was seen.
#[derive(Default)]
struct Seen(Vec<(String, Vec<u8>)>);

impl Seen {
    fn add(&mut self, place: &str, bytes: impl AsRef<[u8]>) {
        self.0.push((place.into(), bytes.as_ref().to_vec()));
    }

    fn has_none_of(&self, canaries: &[Canary]) {
        for (place, bytes) in &self.0 {
            for canary in canaries {
                for form in canary.forms() {
                    let mut windows = bytes.windows(form.len());
                    assert!(
                        !windows.any(|it| it == form),
                        "{} stands in {place}: {}",
                        canary.name,
                        bytes.escape_ascii()
                    );
                }
            }
        }
    }
}

/// Every command that takes a secret, in a form that reaches the server.
const COMMANDS: &[&[&str]] = &[
    &["set", "k", "1"],
    &["get", "k"],
    &["ttl", "k"],
    &["expire", "k", "1h"],
    &["persist", "k"],
    &["update-if", "n", "u64@0 += 1", "--start", "u64:0"],
    &["apply", "--key", "c=n", "c start u64:0", "c.u64@0 += 1"],
    &["run", "restock", "k"],
    &["scan"],
    &["export"],
    &["report", "none:"],
    &["history", "k"],
    &["keyspace", "create", "p:"],
    &["keyspace", "set", "p:"],
    &["keyspace", "list"],
    &["keyspace", "drop", "p:"],
    &["ping"],
    &["info"],
    &["cluster", "status"],
    &["backup", "--to", "/nonexistent/backup"],
    &["load", "/nonexistent.csv", "--key-column", "k"],
    &["del", "k"],
];

fn penstock(words: &[&str]) -> Command {
    crate::command::command(words)
}

/// A server of everything that has a secret, as a node of a cluster.
struct Node {
    guarded: Guarded,
    users: String,
}

impl Node {
    fn start(name: &str, canaries: &[Canary], format: &str) -> Node {
        let folder = Folder::new(name);
        let text = |name| -> &str {
            let mut canaries = canaries.iter();
            &canaries.find(|it| it.name == name).expect("a canary").text
        };
        let (links, clients) = (free_address().to_string(), free_address().to_string());
        let cluster = folder.path("cluster.toml");
        let node = format!("1,{links},{clients}");
        let made = penstock(&["cluster", "init", "--file", &cluster, "--node", &node]).output();
        assert!(made.expect("it runs").status.success());
        folder.put("cluster.toml.secret", text("cluster"), 0o600);
        let users = folder.path("users");
        let ann = Secret::new(text("password").as_bytes().to_vec()).expect("a secret");
        let ann = penstock_net::auth::Verifier::new(&ann, [3; 16]);
        let file = format!(
            "decoy 3q2+7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\nuser ann\npassword {ann}\n\
             read \"\"\nwrite \"\"\nadmin \"\"\n"
        );
        folder.put("users", &file, 0o600);
        let token = folder.put("token", text("token"), 0o600);
        let (audit, log) = (folder.path("audit"), folder.path("log"));
        let flags = [
            ["--cluster", &cluster],
            ["--cluster-node", "1"],
            ["--listen", &clients],
            ["--resp-listen", "127.0.0.1:0"],
            ["--users", &users],
            ["--admin-token-file", &token],
            ["--audit-file", &audit],
            ["--log-file", &log],
            ["--log-format", format],
        ];
        let flags = [flags.as_flattened(), &["--cluster-new"]].concat();
        let guarded = Guarded::start(folder, &flags);
        Node { guarded, users }
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.guarded.folder.0.join(name)).unwrap_or_default()
    }

    /// What RESP through TLS answers, up to its end or to the last word.
    fn say(&self, text: &str, last: &str) -> String {
        let server = &self.guarded.server;
        let resp = server.resp.expect("a port for RESP");
        let mut stream = server.stream(&self.guarded.authority.trusted(), resp);
        stream.write_all(text.as_bytes()).expect("sent");
        let mut output = String::new();
        let mut piece = [0; 4096];
        while !output.ends_with(last) {
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(read) => output += &String::from_utf8_lossy(&piece[..read]),
            }
        }
        output
    }

    /// Runs a command as ann, with the secret of a file.
    fn run(&self, words: &[&str], secret: &str) -> Output {
        let folder = &self.guarded.folder;
        let ca = folder.put("ca.pem", &self.guarded.authority.pem, 0o644);
        penstock(words)
            .env("PENSTOCK_ADDR", self.guarded.server.address.to_string())
            .env("PENSTOCK_TLS_CA", ca)
            .env("PENSTOCK_USER", "ann")
            .env("PENSTOCK_SECRET_FILE", secret)
            .output()
            .expect("it runs")
    }
}

fn canaries() -> Vec<Canary> {
    let names = [
        "password",
        "wrong password",
        "wrong password of commands",
        "token",
        "wrong token",
        "cluster",
    ];
    names.map(Canary::new).into()
}

#[test]
fn a_secret_stands_nowhere_that_a_server_or_a_command_writes_nor_in_its_memory() {
    for format in ["text", "json"] {
        let canaries = canaries();
        let node = Node::start(&format!("canary-{format}"), &canaries, format);
        let [password, wrong, wrong_of_commands, token, wrong_token, _] = &canaries[..] else {
            panic!("six of them");
        };
        let mut seen = Seen::default();
        let right = node.guarded.folder.put("ann", &password.text, 0o600);
        let other = node
            .guarded
            .folder
            .put("other", &wrong_of_commands.text, 0o600);

        // Right secrets, then wrong ones, which delay those that come behind.
        for words in COMMANDS {
            let output = node.run(words, &right);
            let output = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&output).into_owned();
            assert!(!text.contains("secret is wrong"), "{words:?}: {text}");
            assert!(!text.contains("Usage:"), "{words:?}: {text}");
            seen.add(&format!("{words:?}"), output);
        }
        let kept = ["a value of a key", format].join(" that is kept, ");
        assert!(node.run(&["set", "kept", &kept], &right).status.success());
        let auth = format!("AUTH ann {}\r\n", password.text);
        let output = node.say(
            &format!("{auth}INFO\r\nCLIENT LIST\r\nPING\r\n"),
            "+PONG\r\n",
        );
        assert!(
            output.starts_with("+OK\r\n") && output.ends_with("+PONG\r\n"),
            "{output}"
        );
        seen.add("RESP", output);
        for words in COMMANDS {
            let output = node.run(words, &other);
            assert!(!output.status.success(), "{words:?}");
            seen.add(
                &format!("wrong: {words:?}"),
                [output.stdout, output.stderr].concat(),
            );
        }
        for ask in [
            format!("AUTH ann {}\r\n", wrong.text),
            format!("AUTH {}\r\n", wrong.text),
            format!("HELLO 3 AUTH ann {}\r\n", wrong.text),
            format!("AUTH ann {} more\r\n", wrong.text),
        ] {
            let output = node.say(&ask, "\r\n");
            assert!(output.starts_with('-'), "{output}");
            seen.add("RESP, wrong", output);
        }
        for (shown, status) in [(token, 200), (wrong_token, 401)] {
            for page in ["/metrics", "/readyz", "/nothing"] {
                let (output, head, body) = node.guarded.ask(page, Some(&shown.text));
                assert!(page != "/metrics" || output == status, "{output}: {body}");
                seen.add(page, head + &body);
            }
        }
        let listed = penstock(&["user", "list", "--users", &node.users]).output();
        seen.add("user list", listed.expect("it runs").stdout);
        let explained = penstock(&["config", "explain"])
            .env(
                "PENSTOCK_ADMIN_TOKEN_FILE",
                node.guarded.folder.path("token"),
            )
            .output();
        seen.add("config explain", explained.expect("it runs").stdout);

        let is_logged = |file: &[u8], word: &str| String::from_utf8_lossy(file).contains(word);
        let (audit, log) = (node.file("audit"), node.file("log"));
        assert!(is_logged(&audit, "login_refused") && is_logged(&audit, "admin_refused"));
        assert!(is_logged(&log, "ready") && is_logged(&log, "admin port"));
        seen.add("audit log", audit);
        seen.add("log", log);
        seen.add("banner", &node.guarded.server.banner);
        seen.add("standard error", node.guarded.server.errors());
        seen.has_none_of(&canaries);

        let pid = node.guarded.server.process.id();
        assert!(is_in_memory(pid, kept.as_bytes()), "what is there is found");
        // Once: what a secret passes through is the same for both formats.
        let scanned = if format == "json" { &canaries[..] } else { &[] };
        for canary in scanned {
            for form in canary.forms() {
                assert!(
                    !is_in_memory(pid, &form),
                    "{} stands in the memory as {}",
                    canary.name,
                    form.escape_ascii()
                );
            }
        }
    }
}

#[test]
fn a_key_that_a_command_makes_is_printed_once_and_its_file_does_not_hold_it() {
    let folder = Folder::new("canary-key");
    let users = folder.path("users");
    let mut seen = Seen::default();
    let add = penstock(&["user", "add", "till", "--key", "one", "--users", &users]).output();
    let add = add.expect("it runs");
    assert!(add.status.success(), "{add:?}");
    let key = String::from_utf8(add.stdout)
        .expect("text")
        .trim()
        .to_string();
    let parsed = Secret::new(key.clone().into_bytes()).expect("a secret");
    assert!(parsed.kind() == penstock_net::auth::SecretKind::Key && key.len() > KEY_BYTES);
    let canaries = [Canary {
        name: "key",
        text: key,
    }];
    seen.add("standard error", add.stderr);
    seen.add("the users' file", fs::read(&users).expect("a file"));
    for words in [
        &["list"][..],
        &["grant", "till", "read", ""],
        &["key", "till", "two"],
        &["key", "till", "one", "--remove"],
        &["remove", "till"],
    ] {
        let output = penstock(&[&["user"], words, &["--users", &users]].concat()).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        seen.add(
            &format!("{words:?}"),
            [output.stdout, output.stderr].concat(),
        );
    }
    seen.has_none_of(&canaries);
}
