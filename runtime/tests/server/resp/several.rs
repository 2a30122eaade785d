//! Changes of keys of several shards on the real server: money moves between accounts of all shards
//! under kill -9, beside backups, and over starts with other numbers of shards.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::spread::{ACCOUNTS, MONEY, PAYERS, number, pay};
use super::{Talk, folder};
use crate::command::command;
use crate::process::Server;

/// Payments that are acknowledged before the server is killed.
const PAID_MIN: usize = 150;
const SHARDS: [u16; 6] = [2, 2, 1, 2, 2, 2];

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
    let (mut resumed, mut counts) = (0, [[0; 2]; PAYERS]);
    for (round, shards) in SHARDS.into_iter().enumerate().skip(1) {
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
            while paid.load(Ordering::Relaxed) < PAID_MIN {
                std::thread::yield_now();
            }
            server.process.kill().unwrap();
            server.process.wait().unwrap();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let reply;
        (server, reply) = serve(&data, address, shards);
        resumed += reply
            .iter()
            .filter(|line| line.starts_with("resumed"))
            .count();
        let mut talk = Talk::with(address);
        assert_eq!(sum(&mut talk), all, "round {round}");
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
        "no start found a change that was decided and not made"
    );
    server.stop();
    for backup in 1..=3 {
        check_backup(&vault, backup, all);
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
