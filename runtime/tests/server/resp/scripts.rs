//! Scripts of clients of Redis on the real server: a sale under kill -9, on two shards, with Lua.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Talk, folder, start};
use crate::command::command;
use crate::process::Server;

/// The script that most flash sales are made of: is there stock, has the buyer bought, take one,
/// remember the buyer.
const SALE: &str = "\
local left = tonumber(redis.call('GET', KEYS[1]) or '0')
if left < 1 then return -1 end
if redis.call('EXISTS', KEYS[2]) == 1 then return -2 end
redis.call('DECRBY', KEYS[1], 1)
redis.call('SET', KEYS[2], ARGV[1])
return left - 1";
const UNITS: usize = 100_000;
const BUYERS: usize = 6;
/// Purchases that are acknowledged before the server is killed.
const SOLD_MIN: usize = 400;
const ROUNDS: usize = 3;

fn serve(data: &Path, address: SocketAddr) -> Server {
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve
        .args(["--admin-listen", "off", "--shards", "2"])
        .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
        .args(["--value-bytes-max", "64KiB", "--resp-listen"])
        .arg(address.to_string())
        .arg("--data")
        .arg(data);
    Server::start(&mut serve)
}

/// Two sales, whose keys are of two shards.
fn stock(sale: usize) -> String {
    ["stock:{a}", "stock:{c}"][sale].to_string()
}

fn buyer(sale: usize, round: usize, thread: usize, number: usize) -> String {
    let tag = ["{a}", "{c}"][sale];
    format!("buyer:{tag}:{round}:{thread}:{number}")
}

/// Buys until the server is gone: how many purchases were acknowledged, and how many asked for.
fn buy(
    address: SocketAddr,
    digest: &str,
    round: usize,
    thread: usize,
    sold: &AtomicUsize,
) -> [usize; 2] {
    let sale = thread % 2;
    let mut talk = Talk::with(address);
    let mut acknowledged = 0;
    for number in 0.. {
        let buyer = buyer(sale, round, thread, number);
        let reply = talk.ask(&["EVALSHA", digest, "2", &stock(sale), &buyer, "1"]);
        match reply.strip_prefix(':') {
            Some(left) => {
                assert!(!left.starts_with('-'), "{buyer}: {reply}");
                acknowledged += 1;
                sold.fetch_add(1, Ordering::Relaxed);
            }
            None if reply.is_empty() => return [acknowledged, number + 1],
            None => panic!("{buyer}: {reply}"),
        }
    }
    unreachable!("the server is killed")
}

#[test]
fn a_sale_by_a_script_is_neither_oversold_nor_lost_over_kill_9() {
    let data = folder("resp-scripts-kill");
    let address = crate::cluster::nodes::free_address();
    let mut server = serve(&data, address);
    let mut talk = Talk::with(address);
    for sale in 0..2 {
        talk.ask(&["SET", &stock(sale), &UNITS.to_string()]);
    }
    let mut asked = Vec::new();
    for round in 0..ROUNDS {
        let mut talk = Talk::with(address);
        let digest = talk.ask(&["SCRIPT", "LOAD", SALE]);
        let digest = digest.split("\r\n").nth(1).expect("a digest").to_string();
        let sold = AtomicUsize::new(0);
        let ended = std::thread::scope(|scope| {
            let threads = (0..BUYERS).map(|thread| {
                let (digest, sold) = (&digest, &sold);
                scope.spawn(move || buy(address, digest, round, thread, sold))
            });
            let threads: Vec<_> = threads.collect();
            while sold.load(Ordering::Relaxed) < SOLD_MIN {
                std::thread::yield_now();
            }
            server.process.kill().unwrap();
            server.process.wait().unwrap();
            let ended = threads.into_iter().map(|it| it.join().unwrap());
            ended.collect::<Vec<_>>()
        });
        asked.push(ended);
        server = serve(&data, address);
        let mut talk = Talk::with(address);
        let unknown = talk.ask(&["EVALSHA", &digest, "2", "stock:{a}", "buyer:{a}", "1"]);
        assert!(unknown.starts_with("-NOSCRIPT"), "{unknown}");
        for sale in 0..2 {
            let mut bought = 0;
            for (round, ended) in asked.iter().enumerate() {
                for (thread, [acknowledged, asked]) in ended.iter().enumerate() {
                    for number in (0..*asked).filter(|_| thread % 2 == sale) {
                        let buyer = buyer(sale, round, thread, number);
                        let is_there = talk.ask(&["EXISTS", &buyer]) == ":1\r\n";
                        assert!(is_there || number >= *acknowledged, "{buyer} is lost");
                        bought += usize::from(is_there);
                    }
                }
            }
            let left = talk.ask(&["GET", &stock(sale)]);
            let left: usize = left.split("\r\n").nth(1).unwrap().parse().expect("units");
            assert_eq!(left + bought, UNITS, "sale {sale} behind round {round}");
        }
    }
    server.stop();
}

#[test]
fn a_script_runs_where_its_keys_are_and_scripts_are_known_to_all_cores() {
    let resp = start("resp-scripts-cores", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    for tag in ["a", "b", "c", "d"] {
        let key = format!("n:{{{tag}}}");
        let text = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
        assert_eq!(talk.ask(&["EVAL", text, "1", &key, "7"]), ":7\r\n");
        // Not declared.
        let text = format!("return redis.call('GET', '{key}')");
        assert_eq!(talk.ask(&["EVAL", &text, "0"]), "$1\r\n7\r\n");
    }
    let text = "return {1, 'two', redis.status_reply('THREE'), false, {4.9}}";
    let reply = "*5\r\n:1\r\n$3\r\ntwo\r\n+THREE\r\n$-1\r\n*1\r\n:4\r\n";
    assert_eq!(talk.ask(&["EVAL", text, "0"]), reply);
    let digest = talk.ask(&["SCRIPT", "LOAD", "return #ARGV"]);
    let digest = digest.split("\r\n").nth(1).expect("a digest").to_string();
    for tag in ["a", "b", "c", "d"] {
        let key = format!("n:{{{tag}}}");
        assert_eq!(
            talk.ask(&["EVALSHA", &digest, "1", &key, "x", "y"]),
            ":2\r\n"
        );
    }
    assert_eq!(
        talk.ask(&["SCRIPT", "EXISTS", &digest, "00"]),
        "*2\r\n:1\r\n:0\r\n"
    );
    assert_eq!(talk.ask(&["SCRIPT", "FLUSH"]), "+OK\r\n");
    for tag in ["a", "b", "c", "d"] {
        let key = format!("n:{{{tag}}}");
        let reply = talk.ask(&["EVALSHA", &digest, "1", &key]);
        assert!(reply.starts_with("-NOSCRIPT"), "{reply}");
    }
    resp.server.stop();
}

#[test]
fn a_script_that_does_not_end_is_ended_and_others_are_served() {
    let resp = start("resp-scripts-bounds", &["--shards", "1"]);
    let mut talk = Talk::with(resp.address);
    talk.ask(&["SET", "k", "1"]);
    for text in [
        "while true do end",
        "redis.call('SET', 'k', '2') while true do pcall(error) end",
        "local t = {} while true do t[#t + 1] = string.rep('x', 1000) end",
        "local function f() return f() + 1 end return f()",
        "local s = string.rep('a', 10000) return string.find(s, '.-.-.-.-b')",
        "return string.rep('x', 1e9)",
        "redis.call('SET', 'k', '3') error('no')",
        "local t = {} for i = 1, 100000 do t = {t} end return t",
    ] {
        let reply = talk.ask(&["EVAL", text, "1", "k"]);
        assert!(reply.starts_with('-'), "{text}: {reply}");
        assert_eq!(talk.ask(&["GET", "k"]), "$1\r\n1\r\n", "{text}");
        assert_eq!(talk.ask(&["EVAL", "return 1", "0"]), ":1\r\n");
    }
    resp.server.stop();
}

#[test]
fn a_script_that_is_refused_the_value_of_a_change_under_way_is_answered_why_and_the_server_lives() {
    let options = [
        "--shards",
        "1",
        "--value-bytes-max",
        "1MiB",
        "--cache-bytes",
        "64MiB",
    ];
    let resp = start("resp-scripts-refused", &options);
    let value = "x".repeat(1 << 20);
    let mut talk = Talk::with(resp.address);
    for number in 1..=17 {
        assert_eq!(talk.ask(&["SET", &format!("k{number}"), &value]), "+OK\r\n");
    }
    let is_over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut talk = Talk::with(resp.address);
            while is_over.load(Ordering::Relaxed) == 0 {
                assert_eq!(talk.ask(&["SET", "k17", &value]), "+OK\r\n");
            }
        });
        let all = "for i = 1, 17 do redis.call('strlen', 'k' .. i) end";
        let caught = "for i = 1, 17 do redis.pcall('strlen', 'k' .. i) end return 7";
        for _ in 0..100 {
            let reply = talk.ask(&["EVAL", all, "0"]);
            assert!(
                reply.contains("the values that this script has read"),
                "{reply}"
            );
            assert_eq!(talk.ask(&["EVAL", caught, "0"]), ":7\r\n");
        }
        is_over.store(1, Ordering::Relaxed);
    });
    assert_eq!(talk.ask(&["STRLEN", "k17"]), ":1048576\r\n");
}

#[test]
fn a_command_that_no_script_here_may_call_is_named() {
    let resp = start("resp-script-names", &["--shards", "1"]);
    let mut talk = Talk::with(resp.address);
    for name in [
        "KEYS",
        "SCAN",
        "RANDOMKEY",
        "DBSIZE",
        "FLUSHALL",
        "INFO",
        "CONFIG",
    ] {
        let call = match name {
            "KEYS" => "return redis.call('KEYS', '*')".to_string(),
            "SCAN" => "return redis.call('SCAN', '0')".to_string(),
            "CONFIG" => "return redis.call('CONFIG', 'GET', 'save')".to_string(),
            name => format!("return redis.call('{name}')"),
        };
        let refused = talk.ask(&["EVAL", &call, "0"]);
        let text = format!("-ERR {name} is not supported in scripts here: ");
        assert!(refused.starts_with(&text), "{refused}");
    }
    let refused = talk.ask(&["EVAL", "return redis.call('WATCH', 'k')", "0"]);
    let text = "-ERR This Valkey command is not allowed from script";
    assert!(refused.starts_with(text), "{refused}");
    resp.server.stop();
}
