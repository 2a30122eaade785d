//! Transactions and scripts over keys of several slots on the real server: money moves between
//! accounts under kill -9.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Talk, encode, folder, start};
use crate::command::command;
use crate::process::Server;

pub(super) const ACCOUNTS: usize = 30;
pub(super) const MONEY: i64 = 1_000;
pub(super) const PAYERS: usize = 4;
/// Payments that are acknowledged before the server is killed.
const PAID_MIN: usize = 300;
const ROUNDS: usize = 3;
/// Moves a unit from one account to another, and counts that.
const MOVE: &str = "\
redis.call('DECR', KEYS[1])
redis.call('INCR', KEYS[2])
return redis.call('INCR', KEYS[3])";

fn serve(data: &Path, address: SocketAddr) -> Server {
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve
        .args(["--admin-listen", "off", "--shards", "1"])
        .args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"])
        .arg("--resp-listen")
        .arg(address.to_string())
        .arg("--data")
        .arg(data);
    Server::start(&mut serve)
}

/// Pays until the server is gone: how many payments were acknowledged, and how many asked for.
pub(super) fn pay(address: SocketAddr, payer: usize, paid: &AtomicUsize) -> [i64; 2] {
    let mut talk = Talk::with(address);
    let moves = format!("moves:{payer}");
    for number in 0..i64::MAX {
        let at = usize::try_from(number).expect("few");
        let from = format!("account:{}", (at * 7 + payer) % ACCOUNTS);
        let to = format!("account:{}", (at * 11 + 2 * payer + 1) % ACCOUNTS);
        let reply = match number % 2 {
            0 => talk.ask(&["EVAL", MOVE, "3", &from, &to, &moves]),
            _ => {
                let words: [&[&str]; 5] = [
                    &["MULTI"],
                    &["DECR", &from],
                    &["INCR", &to],
                    &["INCR", &moves],
                    &["EXEC"],
                ];
                ask_together(&mut talk, &words)
            }
        };
        if reply.is_empty() {
            return [number, number + 1];
        }
        let is_paid = reply.starts_with(':') || reply.starts_with("*3\r\n:");
        assert!(is_paid, "{from} to {to}: {reply}");
        paid.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the server is killed")
}

/// Sends commands at once; the last reply, nothing if the server is gone.
fn ask_together(talk: &mut Talk, commands: &[&[&str]]) -> String {
    let encoded = commands.iter().map(|words| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        encode(&words)
    });
    talk.send(&encoded.collect::<Vec<_>>().concat());
    let mut last = Vec::new();
    for _ in commands {
        last = talk.reply();
        if last.is_empty() {
            break;
        }
    }
    String::from_utf8(last).expect("text")
}

pub(super) fn number(talk: &mut Talk, key: &str) -> i64 {
    let reply = talk.ask(&["GET", key]);
    let text = reply.split("\r\n").nth(1).unwrap_or_default();
    if text.is_empty() {
        return 0;
    }
    text.parse().expect("a number")
}

#[test]
fn money_that_moves_between_slots_is_neither_made_nor_lost_over_kill_9() {
    let data = folder("resp-spread-kill");
    let address = crate::cluster::nodes::free_address();
    let mut server = serve(&data, address);
    let mut talk = Talk::with(address);
    for account in 0..ACCOUNTS {
        talk.ask(&["SET", &format!("account:{account}"), &MONEY.to_string()]);
    }
    let mut before = [0; PAYERS];
    for round in 0..ROUNDS {
        let paid = AtomicUsize::new(0);
        let ended: Vec<[i64; 2]> = std::thread::scope(|scope| {
            let threads = (0..PAYERS).map(|payer| {
                let paid = &paid;
                scope.spawn(move || pay(address, payer, paid))
            });
            let threads: Vec<_> = threads.collect();
            while paid.load(Ordering::Relaxed) < PAID_MIN {
                std::thread::yield_now();
            }
            server.process.kill().unwrap();
            server.process.wait().unwrap();
            let ended = threads.into_iter().map(|it| it.join().unwrap());
            ended.collect()
        });
        server = serve(&data, address);
        let mut talk = Talk::with(address);
        let accounts = (0..ACCOUNTS).map(|it| number(&mut talk, &format!("account:{it}")));
        let sum: i64 = accounts.sum();
        let all = i64::try_from(ACCOUNTS).expect("few") * MONEY;
        assert_eq!(sum, all, "behind round {round}");
        for (payer, [acknowledged, asked]) in ended.into_iter().enumerate() {
            let moves = number(&mut talk, &format!("moves:{payer}")) - before[payer];
            assert!(
                (acknowledged..=asked).contains(&moves),
                "payer {payer}: {moves} of {acknowledged} to {asked}"
            );
            before[payer] += moves;
        }
    }
    server.stop();
}

#[test]
fn keys_of_two_shards_are_refused_whole_and_those_of_one_shard_are_not() {
    let resp = start("resp-spread-shards", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    let (mut done, mut refused) = (0, 0);
    for number in 0..40 {
        let keys = [format!("first{number}"), format!("x{}", 3 * number)];
        talk.ask(&["MULTI"]);
        for key in &keys {
            talk.ask(&["SET", key, "1"]);
        }
        let reply = talk.ask(&["EXEC"]);
        let expected = match reply.starts_with("-CROSSSLOT") {
            true => {
                refused += 1;
                ":0\r\n"
            }
            false => {
                assert_eq!(reply, "*2\r\n+OK\r\n+OK\r\n");
                done += 1;
                ":2\r\n"
            }
        };
        assert_eq!(talk.ask(&["EXISTS", &keys[0], &keys[1]]), expected);
        // The same with a key that is watched.
        talk.ask(&["WATCH", &keys[0]]);
        talk.ask(&["MULTI"]);
        talk.ask(&["SET", &keys[1], "2"]);
        let watched = talk.ask(&["EXEC"]);
        let is_refused = watched.starts_with("-CROSSSLOT");
        assert_eq!(is_refused, reply.starts_with("-CROSSSLOT"), "{watched}");
    }
    assert!(done > 5 && refused > 5, "{done} and {refused}");
    resp.server.stop();
}
