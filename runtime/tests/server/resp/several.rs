//! Changes of keys of several shards on the real server: money moves between accounts of all shards
//! under kill -9, beside backups, and over starts with other numbers of shards.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use penstock_net::slot::{core_of, slot_of};

use super::spread::{ACCOUNTS, MONEY, PAYERS, number, pay};
use super::{Talk, folder};
use crate::command::command;
use crate::process::Server;

/// Payments that are acknowledged before the server is killed.
const PAID_MIN: usize = 150;
/// The shards of the first servers. All others have two.
const SHARDS: [u16; 6] = [2, 2, 1, 2, 2, 2];
/// Kills, at most: more than [`SHARDS`] says only while no start has found a decided change.
const KILLS_MAX: usize = 30;
/// Moments at which a server stands still, at most, until one is amid a change.
const STOPS_MAX: usize = 200;
/// How long its threads may take to stand still, in milliseconds.
const STILL_WITHIN_MS: usize = 1_000;

fn serve(data: &Path, address: SocketAddr, shards: u16) -> (Server, Vec<String>) {
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve
        .args(["--admin-listen", "off", "--shards", &shards.to_string()])
        .args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"])
        .args(["--resp-several-shards", "--resp-listen"])
        .arg(address.to_string())
        .arg("--data")
        .arg(data);
    Server::start_with_banner(&mut serve)
}

fn sum(talk: &mut Talk) -> i64 {
    (0..ACCOUNTS)
        .map(|account| number(talk, &format!("account:{account}")))
        .sum()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

#[test]
fn money_that_moves_between_shards_is_neither_made_nor_lost_over_kill_9_backups_and_shards() {
    let (data, vault) = (folder("resp-several-kill"), folder("resp-several-vault"));
    let address = crate::cluster::nodes::free_address();
    let (mut server, _) = serve(&data, address, SHARDS[0]);
    let mut talk = Talk::with(address);
    for account in 0..ACCOUNTS {
        talk.ask(&["SET", &format!("account:{account}"), &MONEY.to_string()]);
    }
    let all = MONEY * i64::try_from(ACCOUNTS).expect("few");
    let (mut resumed, mut amid, mut counts) = (0, 0, [[0; 2]; PAYERS]);
    let (mut round, mut before, mut order) = (0, SHARDS[0], None);
    while round + 1 < SHARDS.len() || resumed == 0 && round < KILLS_MAX {
        round += 1;
        let shards = SHARDS.get(round).copied().unwrap_or(2);
        let paid = AtomicUsize::new(0);
        let ended: Vec<[i64; 2]> = std::thread::scope(|scope| {
            let threads = (0..PAYERS).map(|payer| {
                let paid = &paid;
                scope.spawn(move || pay(address, payer, paid))
            });
            let threads: Vec<_> = threads.collect();
            if round == 1 {
                for _ in 0..3 {
                    back_up(&data, &vault, server.address);
                }
            }
            wait_for(&paid, PAID_MIN);
            order = (before > 1).then(|| Order::place(address, round));
            amid += usize::from(before > 1 && stops_amid_change(&server, &data, &paid));
            server.process.kill().unwrap();
            server.process.wait().unwrap();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let reply;
        (server, reply) = serve(&data, address, shards);
        before = shards;
        resumed += reply
            .iter()
            .filter(|line| line.starts_with("resumed"))
            .count();
        let mut talk = Talk::with(address);
        assert_eq!(sum(&mut talk), all, "round {round}");
        if let Some(order) = order.take() {
            order.place_again(&mut talk);
            assert_eq!(
                sum(&mut talk),
                all,
                "round {round}: an order was executed twice"
            );
        }
        for (payer, [acknowledged, asked]) in ended.into_iter().enumerate() {
            let moves = number(&mut talk, &format!("moves:{payer}"));
            let [least, most] = counts[payer].map(|count: i64| count);
            let known = least + acknowledged..=most + asked;
            assert!(
                known.contains(&moves),
                "payer {payer}: {moves}, not {known:?}"
            );
            counts[payer] = [moves; 2];
        }
    }
    assert!(
        resumed > 0,
        "{round} servers were killed, {amid} of them while their logs had a change that was \
         decided and not made, and no start found one"
    );
    server.stop();
    for backup in 1..=3 {
        check_backup(&vault, backup, all);
    }
}

/// A KV.APPLY with a token that moves money between accounts of two shards, and its answer.
struct Order {
    words: Vec<String>,
    reply: String,
}

impl Order {
    fn place(address: SocketAddr, number: usize) -> Order {
        let core = |account: &String| core_of(slot_of(account.as_bytes()), 2);
        let accounts: Vec<String> = (0..ACCOUNTS).map(|it| format!("account:{it}")).collect();
        let other = accounts.iter().find(|it| core(it) != core(&accounts[0]));
        let other = other.expect("both shards have some");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let sent_ms = now.expect("behind 1970").as_millis();
        let line = format!(
            "KV.APPLY {} KEY {other} TOKEN order-{number} SENT {sent_ms} k1.decimal~-=~1 \
             k2.decimal~+=~1",
            accounts[0]
        );
        let words: Vec<String> = line.split(' ').map(|word| word.replace('~', " ")).collect();
        let reply = ask(&mut Talk::with(address), &words);
        assert!(reply.contains("replayed\r\n:0"), "{reply}");
        Order { words, reply }
    }

    /// The answer is the first one.
    fn place_again(&self, talk: &mut Talk) {
        let first = self.reply.replace("replayed\r\n:0", "replayed\r\n:1");
        assert_eq!(ask(talk, &self.words), first);
    }
}

fn ask(talk: &mut Talk, words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    talk.ask(&words)
}

/// Waits until so many payments are acknowledged. A server that stands still acknowledges none.
fn wait_for(paid: &AtomicUsize, count: usize) {
    while paid.load(Ordering::Relaxed) < count {
        std::thread::yield_now();
    }
}

/// Has a server stand still while its logs have a change that is decided and not made. `false`: it
/// goes on, and was amid none at [`STOPS_MAX`] moments.
fn stops_amid_change(server: &Server, data: &Path, paid: &AtomicUsize) -> bool {
    for _ in 0..STOPS_MAX {
        server.signal("-STOP");
        // A thread within a request to the disk stops behind it.
        for _ in 0..STILL_WITHIN_MS {
            if stands_still(server.process.id()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if has_open_change(data) {
            return true;
        }
        server.signal("-CONT");
        wait_for(paid, paid.load(Ordering::Relaxed) + 1);
    }
    false
}

/// Whether no thread of a process runs.
fn stands_still(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.map(|thread| thread.unwrap().path()).all(|thread| {
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
        // Behind the name in brackets.
        let state = stat.rsplit(')').next().unwrap_or_default();
        state.trim_start().starts_with(['T', 't'])
    })
}

/// Whether the logs of a server that stands still have a redo record that no deletion ends. They
/// are looked at in a copy: the server has the directory locked.
fn has_open_change(data: &Path) -> bool {
    let copy = folder("resp-several-copy");
    copy_folder(data, &copy);
    let output = command(&["inspect", "--dump", text(&copy)])
        .output()
        .unwrap();
    let dump = String::from_utf8_lossy(&output.stdout);
    let mut newest = HashMap::new();
    for line in dump.lines().filter(|line| line.contains("penstock/redo/")) {
        let (_, key) = line.split_once("penstock/redo/").expect("it has it");
        let key = key.split(" at ").next().expect("a tag");
        newest.insert(key.to_string(), line.trim_start().starts_with("put "));
    }
    newest.values().any(|is_put| *is_put)
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn back_up(data: &Path, vault: &Path, address: SocketAddr) {
    let address = address.to_string();
    let words = [
        "backup",
        "--data",
        text(data),
        "--to",
        text(vault),
        "--addr",
        &address,
    ];
    let output = command(&words).output().unwrap();
    let reply = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{reply}");
}

/// Restores a backup, counted from the newest one, and adds up what is there.
fn check_backup(vault: &Path, backup: usize, all: i64) {
    let mut names: Vec<_> = std::fs::read_dir(vault)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".manifest"))
        .collect();
    names.sort();
    let name = &names[names.len() - backup];
    let restored = folder(format!("resp-several-restored-{backup}"));
    let words = [
        "restore",
        "--from",
        text(vault),
        "--to",
        text(&restored),
        "--backup",
        name,
    ];
    let output = command(&words).output().unwrap();
    let reply = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{reply}");
    let address = crate::cluster::nodes::free_address();
    let (server, _) = serve(&restored, address, 2);
    let mut talk = Talk::with(address);
    assert_eq!(sum(&mut talk), all, "backup {name}");
    drop(server);
}
