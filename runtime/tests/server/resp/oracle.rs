//! Replies of the port beside those of a Valkey or Redis of this machine, byte by byte.
//!
//! A machine has any version of either. So the test asks its peer for product and version, leaves
//! out what that version does not know, and skips a peer with which no comparison was ever made.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::announced::ANNOUNCED;
use super::blocking::{BLOCKED, BLOCKING_TABLE, wait_for_blocked};
use super::channels_table::{CHANNELS_TABLE, MESSAGES, RESTRICTED};
use super::flush_table::FLUSH_TABLE;
use super::hash_table::HASH_TABLE;
use super::list_table::LIST_TABLE;
use super::pausing::{PAUSE_TABLE, PAUSED};
use super::script_table::SCRIPT_TABLE;
use super::set_table::SET_TABLE;
use super::table::TABLE;
use super::tracking_table::{TRACKED, TRACKING_TABLE};
use super::zset_table::ZSET_TABLE;
use super::{Talk, encode, folder, start, words_of};
use crate::cluster::nodes::free_address;

/// What a line of the table begins with that only a Valkey 9 answers as it should.
const VALKEY_9: &str = "[9] ";

/// The lines of the table that a peer knows.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    All,
    AllButValkey9,
}

/// What a peer knows, by its INFO; what it is, if it was never compared.
fn known_by(info: &str) -> Result<Known, String> {
    let field = |name: &str| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|it| it.trim().to_string())
    };
    // A Valkey has both fields, the other one for clients of Redis.
    match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) if version.starts_with("9.") => Ok(Known::All),
        (Some(version), _) => Err(format!("Valkey {version}")),
        (None, Some(version)) if version.starts_with("7.0.") => Ok(Known::AllButValkey9),
        (None, Some(version)) => Err(format!("Redis {version}")),
        (None, None) => Err("a server that does not tell its version".into()),
    }
}

/// The words of the lines of the table that such a peer knows, with the line itself.
fn lines_for(known: &Known) -> Vec<&'static str> {
    // The last line of the table ends the connection.
    let lines = FLUSH_TABLE.lines().chain(SCRIPT_TABLE.lines());
    let lines = lines.chain(HASH_TABLE.lines());
    let lines = lines.chain(LIST_TABLE.lines());
    // Redis 7.0 keeps no set in a list.
    let of_sets = SET_TABLE.lines().filter(|_| *known == Known::All);
    let lines = lines.chain(of_sets);
    let lines = lines.chain(ZSET_TABLE.lines());
    let lines = lines.chain(BLOCKING_TABLE.lines());
    let lines = lines.chain(CHANNELS_TABLE.lines());
    let lines = lines.chain(PAUSE_TABLE.lines());
    let lines = lines.chain(TRACKING_TABLE.lines());
    let lines = lines.chain(TABLE.lines());
    let lines = lines.filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with('#'));
    let asked = lines.filter_map(|line| match line.strip_prefix(VALKEY_9) {
        Some(rest) => (*known == Known::All).then_some(rest),
        None => Some(line),
    });
    asked.collect()
}

/// A Valkey or Redis that ends with the test.
pub(super) struct Peer {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Peer {
    fn start(binary: &Path) -> Peer {
        let address = free_address();
        let folder = folder("valkey");
        std::fs::create_dir_all(&folder).unwrap();
        let process = Command::new(binary)
            .args(["--port", &address.port().to_string()])
            .args(["--bind", "127.0.0.1", "--save", "", "--databases", "1"])
            .args(["--proto-max-bulk-len", "1mb"])
            .args(["--dir", folder.to_str().unwrap()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let peer = Peer { process, address };
        for _ in 0..500 {
            if TcpStream::connect(address).is_ok() {
                return peer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{} does not listen on {address}", binary.display());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn peer_binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("VALKEY_SERVER") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["valkey-server", "redis-server"];
    let mut candidates = names.iter().flat_map(|name| {
        let folders = std::env::split_paths(&path);
        folders.map(move |folder| folder.join(name))
    });
    candidates.find(|path| path.is_file())
}

#[test]
fn replies_are_those_of_valkey_byte_by_byte() {
    let Some(binary) = peer_binary() else {
        eprintln!("skipped: no valkey-server or redis-server in PATH, nor VALKEY_SERVER");
        return;
    };
    let peer = Peer::start(&binary);
    let known = match known_by(&Talk::with(peer.address).ask(&["INFO", "server"])) {
        Ok(known) => known,
        Err(product) => {
            eprintln!(
                "skipped: {} is {product}; the table is compared with Valkey 9 and Redis 7.0",
                binary.display()
            );
            return;
        }
    };
    let lines = lines_for(&known);
    for protocol in ["2", "3"] {
        let ours = start(&format!("resp-beside-{protocol}"), &["--shards", "1"]);
        let mut talks = [Talk::with(ours.address), Talk::with(peer.address)];
        talks[1].ask(&["FLUSHALL"]);
        for talk in &mut talks {
            talk.ask(&["HELLO", protocol]);
        }
        let mut differences = Vec::new();
        for line in &lines {
            let words = words_of(line);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let [ours, theirs] = talks.each_mut().map(|talk| {
                talk.send(&encode(&words));
                talk.reply().escape_ascii().to_string()
            });
            if ours != theirs {
                differences.push(format!("{line}\n  ours   {ours}\n  theirs {theirs}"));
            }
            if *line == "RESET" {
                for talk in &mut talks {
                    talk.ask(&["HELLO", protocol]);
                }
            }
        }
        assert!(
            differences.is_empty(),
            "RESP{protocol}:\n{}",
            differences.join("\n")
        );
    }
}

/// A Valkey 9, or why there is none.
pub(super) fn valkey() -> Result<Peer, String> {
    let binary = peer_binary().ok_or("no valkey-server or redis-server in PATH")?;
    let peer = Peer::start(&binary);
    match known_by(&Talk::with(peer.address).ask(&["INFO", "server"])) {
        Ok(Known::All) => Ok(peer),
        Ok(Known::AllButValkey9) => Err("no Valkey 9".into()),
        Err(product) => Err(product),
    }
}

/// Asks a server the lines of two connections; the answers.
fn answers(address: SocketAddr, protocol: &str, lines: &str) -> Vec<String> {
    let mut talks = [Talk::with(address), Talk::with(address)];
    for talk in &mut talks {
        talk.ask(&["HELLO", protocol]);
    }
    let lines = lines.lines().filter(|line| !line.is_empty());
    let blocked = talks[1].ask(&["CLIENT", "ID"])[1..].trim().to_string();
    let mut admin = Talk::with(address);
    let answer = |line: &str| {
        let (who, words) = line.split_at(1);
        let talk = &mut talks[usize::from(who == "B")];
        let sent = words.strip_prefix(" >");
        if words != " <" {
            let words = words_of(&sent.unwrap_or(words).replace("<B>", &blocked));
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            talk.send(&encode(&words));
        }
        if sent.is_some() {
            wait_for_blocked(&mut admin, 1);
            return line.to_string();
        }
        format!("{line}: {}", talk.reply().escape_ascii())
    };
    lines.map(answer).collect()
}

#[test]
fn messages_are_those_of_valkey_byte_by_byte() {
    let peer = match valkey() {
        Ok(peer) => peer,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let restricted = RESTRICTED.lines().filter(|line| !line.is_empty());
    let restricted: String = restricted.map(|line| format!("A {line}\n")).collect();
    for shards in ["1", "2"] {
        let name = format!("resp-messages-beside-{shards}");
        let ours = start(&name, &["--shards", shards]);
        let lines = [
            ("2", MESSAGES),
            ("3", MESSAGES),
            ("2", &restricted),
            ("3", TRACKED),
            ("2", PAUSED),
            ("3", PAUSED),
            ("2", BLOCKED),
            ("3", BLOCKED),
            ("2", ANNOUNCED),
            ("3", ANNOUNCED),
        ];
        for (protocol, lines) in lines {
            let theirs = answers(peer.address, protocol, lines);
            let ours = answers(ours.address, protocol, lines);
            assert_eq!(ours, theirs, "RESP{protocol}");
        }
        ours.server.stop();
    }
}

#[test]
fn a_peer_is_asked_for_its_version_and_only_for_what_that_version_knows() {
    let info = |fields: &str| known_by(&format!("$99\r\n# Server\r\n{fields}\r\nos:Linux\r\n"));
    assert_eq!(info("redis_version:7.0.15"), Ok(Known::AllButValkey9));
    let valkey = |version| info(&format!("redis_version:7.2.4\r\nvalkey_version:{version}"));
    assert_eq!(valkey("9.1.2"), Ok(Known::All));
    assert_eq!(valkey("8.1.1"), Err("Valkey 8.1.1".into()));
    for version in ["6.0.16", "7.2.4", "8.0.2"] {
        let outcome = info(&format!("redis_version:{version}"));
        assert_eq!(outcome, Err(format!("Redis {version}")));
    }
    assert!(info("uptime:1").is_err());
    let (all, fewer) = (lines_for(&Known::All), lines_for(&Known::AllButValkey9));
    assert!(all.contains(&"SET if w IFEQ v") && all.len() > fewer.len());
    for line in fewer {
        let unknown = [
            "IFEQ", "ifeq", "SETINFO", "NO-TOUCH", "SSUB", "SPUB", "SHARD",
        ];
        assert!(!unknown.iter().any(|word| line.contains(word)), "{line}");
        assert!(!line.starts_with('['), "{line}");
    }
}
