//! Commands that the Valkey of the comparison does not have: INCREX and DELEX as the documents of
//! Redis 8.8 have them, and what the port has of its own.

use super::{Resp, Talk, encode, start, words_of};

/// Commands and their replies, one behind the other; `|` stands for the end of a line.
const INCREX_AND_DELEX: &str = r"
INCREX k => *2|:1|:1|
INCREX k BYINT 9 => *2|:10|:9|
INCREX k BYINT -3 LBOUND 0 => *2|:7|:-3|
INCREX k BYINT -8 LBOUND 0 => *2|:7|:0|
INCREX k BYINT 8 UBOUND 10 => *2|:7|:0|
INCREX k BYINT 8 UBOUND 10 SATURATE => *2|:10|:3|
INCREX k BYINT -20 SATURATE LBOUND -1 => *2|:-1|:-11|
GET k => $2|-1|
INCREX new BYINT 15 UBOUND 10 => *2|:0|:0|
EXISTS new => :0|
INCREX new BYINT 5 UBOUND 10 EX 100 => *2|:5|:5|
TTL new => :100|
INCREX new EX 500 ENX => *2|:6|:1|
TTL new => :100|
INCREX new BYINT 10 UBOUND 10 EX 900 => *2|:6|:0|
TTL new => :100|
INCREX new => *2|:7|:1|
TTL new => :100|
INCREX new PERSIST => *2|:8|:1|
TTL new => :-1|
INCREX new PX 100000 ENX => *2|:9|:1|
TTL new => :100|
INCREX new EXAT 1 => *2|:10|:1|
EXISTS new => :0|
SET big 9223372036854775800 => +OK|
INCREX big BYINT 100 => *2|:9223372036854775800|:0|
INCREX big BYINT 100 SATURATE => *2|:9223372036854775807|:7|
SET far -9223372036854775808 => +OK|
INCREX far BYINT 1 LBOUND 9223372036854775807 SATURATE => -ERR applied increment would overflow|
INCREX far BYINT 5 UBOUND -9223372036854775808 => *2|:-9223372036854775808|:0|
SET text hello => +OK|
INCREX text => -ERR value is not an integer or out of range|
INCREX text SATURATE => -ERR value is not an integer or out of range|
INCREX k BYINT abc => -ERR Increment is not an integer or out of range|
INCREX k LBOUND x => -ERR LBOUND is not an integer or out of range|
INCREX k UBOUND 1.5 => -ERR UBOUND is not an integer or out of range|
INCREX k LBOUND 10 UBOUND 5 => -ERR LBOUND can't be greater than UBOUND|
INCREX k ENX => -ERR ENX flag requires an expiration|
INCREX k PERSIST ENX => -ERR syntax error|
INCREX k EX 10 PX 10 => -ERR syntax error|
INCREX k EX 10 PERSIST => -ERR syntax error|
INCREX k BYINT 1 BYINT 2 => -ERR syntax error|
INCREX k SATURATE SATURATE => -ERR syntax error|
INCREX k BYINT => -ERR syntax error|
INCREX k FOO => -ERR syntax error|
INCREX k EX 0 => -ERR invalid expire time in 'increx' command|
INCREX k BYFLOAT 1.5 => -ERR BYFLOAT is not supported: numbers are integers of 64 bits|
INCREX => -ERR wrong number of arguments for 'increx' command|
SET d v => +OK|
DELEX d IFEQ w => :0|
DELEX d IFNE v => :0|
DELEX d IFEQ v => :1|
DELEX d IFEQ v => :0|
DELEX d IFNE v => :0|
SET d v => +OK|
DELEX d IFNE w => :1|
SET d v => +OK|
DELEX d => :1|
DELEX d => :0|
DELEX d IFEQ => -ERR syntax error|
DELEX d IFDEQ 0 => -ERR syntax error|
MULTI => +OK|
INCREX {d}n BYINT -1 LBOUND 0 => +QUEUED|
INCREX {d}n BYINT 5 UBOUND 3 SATURATE => +QUEUED|
SET {d}v 1 IFEQ 2 => +QUEUED|
DELEX {d}n IFEQ 3 => +QUEUED|
EXEC => *4|*2|:0|:0|*2|:3|:3|$-1|:1|
";

pub(super) fn ask(talk: &mut Talk, line: &str) -> String {
    let words = words_of(line);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    talk.send(&encode(&words));
    String::from_utf8(talk.reply())
        .unwrap()
        .replace("\r\n", "|")
}

/// Whether a reply is the one that is expected, or begins with it in front of three dots.
fn is_as_expected(reply: &str, expected: &str) -> bool {
    match expected.strip_suffix("...") {
        Some(begin) => reply.starts_with(begin),
        None => reply == expected,
    }
}

fn expect_all(resp: &Resp, table: &str) {
    let mut talk = Talk::with(resp.address);
    let lines = table.lines().filter(|line| !line.is_empty());
    let differences: Vec<String> = lines
        .filter_map(|line| {
            let (words, expected) = line.split_once(" => ").unwrap();
            let reply = ask(&mut talk, words);
            (!is_as_expected(&reply, expected)).then(|| format!("{line}\n  told {reply}"))
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn increx_and_delex_do_what_redis_documents() {
    let resp = start("resp-increx", &["--shards", "1"]);
    expect_all(&resp, INCREX_AND_DELEX);
    resp.server.stop();
}

/// What a connection asks beyond the commands of Redis, and what is refused of it.
const APPLY_AND_OPTIONS: &str = r#"
KV.APPLY s "k1 start 2" "k1.decimal -= 1 else 7" "k1.decimal >= 0" => *12|$6|status|$2|OK|$7|numbers|*1|:1|$11|instruction|:-1|$6|reason|:0|$7|version|$VERSION|$8|replayed|:0|
KV.APPLY s "k1.decimal -= 2" "k1.decimal >= 0 else 7" => *12|$6|status|$12|GUARD_FAILED|$7|numbers|*1|:-1|$11|instruction|:1|$6|reason|:7|$7|version|$VERSION|$8|replayed|:0|
GET s => $1|1|
KV.APPLY {s}a KEY {s}b "k1 put" "two words" "k2 put u32:7" "k2 expires in 100s" => *12|$6|status|$2|OK|$7|numbers|*0|$11|instruction|:-1|$6|reason|:0|$7|version|$VERSION|$8|replayed|:0|
GET {s}a => $9|two words|
STRLEN {s}b => :4|
TTL {s}b => :100|
KV.APPLY none "return k1.decimal" => *12|$6|status|$9|NOT_FOUND|$7|numbers|*0|$11|instruction|:0|$6|reason|:0|$7|version|$VERSION|$8|replayed|:0|
KV.APPLY s KEY t "k1 absent" => -CROSSSLOT Keys in request don't hash to the same slot|
KV.APPLY s KEY s "k1 absent" => -ERR a key stands twice|
KV.APPLY s "k1 put" => -ERR 'k1 put': the value is to be the next argument|
KV.APPLY s "k1 put @/etc/passwd" => -ERR @FILE is for the shell: give the value itself|
KV.APPLY s => -ERR wrong number of arguments for 'kv.apply' command|
KV.OPTS => *8|$5|level|$7|default|$5|stale|:1000|$5|token|$-1|$8|replayed|$-1|
KV.OPTS level=disk stale=20 => +OK|
KV.OPTS token=017f22e2-79b0-7cc3-98c4-dc0c0c07398f => +OK|
GET s => $1|1|
KV.OPTS => *8|$5|level|$4|disk|$5|stale|:20|$5|token|$36|017f22e2-79b0-7cc3-98c4-dc0c0c07398f|$8|replayed|$-1|
KV.OPTS level=most => -ERR KV.OPTS: level = 'most': allowed is none, interval...
KV.OPTS stale=1s => -ERR KV.OPTS: stale = '1s': allowed is 0 to 86400000 milliseconds|
KV.OPTS token=1 => -ERR KV.OPTS: token = '1': allowed is a UUID of version 7, or any text...
KV.OPTS durable => -ERR KV.OPTS: option = 'durable': allowed is level=, stale=, names=, token=...
KV.OPTS token= => +OK|
INCR s => :2|
KV.OPTS level=replica => +OK|
INCR s => -ERR ack level replica is for operations on the nodes of a cluster...
RESET => +RESET|
INCR s => :3|
MULTI => +OK|
KV.OPTS level=disk => -ERR Command 'kv.opts' not allowed inside a transaction|
KV.APPLY s "k1 absent" => -ERR Command 'kv.apply' not allowed inside a transaction|
EXEC => -EXECABORT Transaction discarded because of previous errors.|
READONLY => +OK|
GET s => $1|3|
WAIT 1 1 => :0|
"#;

/// Behind MULTI: what is taken that names no key, and what is refused.
const BEHIND_MULTI: &str = r"
SET k v => +OK|
MULTI => +OK|
DBSIZE => +QUEUED|
TIME => +QUEUED|
INFO server => +QUEUED|
SELECT 0 => +QUEUED|
GET k => +QUEUED|
EXEC => *5|:...
MULTI => +OK|
AUTH default secret => -ERR Command 'auth' not allowed inside a transaction|
EXEC => -EXECABORT Transaction discarded because of previous errors.|
MULTI => +OK|
HELLO 3 => -ERR Command 'hello' not allowed inside a transaction|
SCAN 0 => -ERR Command 'scan' not allowed inside a transaction|
CLIENT ID => -ERR Command 'client' not allowed inside a transaction|
EXEC => -EXECABORT Transaction discarded because of previous errors.|
CLIENT HELP => *47|+CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:|...
CONFIG HELP => *9|+CONFIG <subcommand>...
COMMAND HELP => *21|+COMMAND <subcommand>...
CLUSTER HELP => *17|+CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:|+INFO|...
CLUSTER HELP x => -ERR wrong number of arguments for 'cluster|help' command|
CLIENT BOGUS => -ERR unknown subcommand 'BOGUS'. Try CLIENT HELP.|
HELLO 3 => %7|...
COMMAND INFO del => *1|*10|$3|del|:-2|~1|+write|:1|:-1|:1|~3|+@keyspace|+@write|+@slow|~2|$26|request_policy:multi_shard|$23|response_policy:agg_sum|~1|%3|...
";

#[test]
fn commands_without_keys_stand_behind_multi_if_they_keep_nothing_and_containers_have_help() {
    let resp = start("resp-behind-multi", &["--shards", "1"]);
    expect_all(&resp, BEHIND_MULTI);
    // INCRBY of 0 is a change, and one item all the same: it takes a token.
    let mut talk = Talk::with(resp.address);
    for _ in 0..2 {
        assert_eq!(
            ask(&mut talk, &format!("KV.OPTS token={}", token(1))),
            "+OK|"
        );
        assert_eq!(ask(&mut talk, "INCRBY n 0"), ":0|");
    }
    resp.server.stop();
}

/// The reply with `$VERSION` for a version, which is a length and EPOCH:SEQUENCE.
fn with_version(reply: &str) -> String {
    let Some((begin, rest)) = reply.split_once("$7|version|$") else {
        return reply.to_string();
    };
    let rest: Vec<&str> = rest.splitn(3, '|').collect();
    assert!(rest[1].split_once(':').is_some(), "{reply}");
    format!("{begin}$7|version|$VERSION|{}", rest[2])
}

#[test]
fn an_apply_of_words_is_atomic_and_options_are_those_of_the_connection() {
    let resp = start("resp-apply", &["--shards", "1"]);
    let mut talk = Talk::with(resp.address);
    let mut differences = Vec::new();
    for line in APPLY_AND_OPTIONS.lines().filter(|line| !line.is_empty()) {
        let (words, expected) = line.split_once(" => ").unwrap();
        let reply = ask(&mut talk, words);
        let reply = with_version(&reply);
        if !is_as_expected(&reply, expected) {
            differences.push(format!("{line}\n  told {reply}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    resp.server.stop();
}

/// A token of now: its first 48 bits are unix milliseconds.
pub(super) fn token(number: u8) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let ms = now.unwrap().as_millis();
    let ms = format!("{ms:012x}");
    format!("{}-{}-7000-8000-0000000000{number:02x}", &ms[..8], &ms[8..])
}

#[test]
fn a_write_that_is_sent_again_with_its_token_is_executed_once_and_says_so() {
    let resp = start("resp-token", &["--shards", "1"]);
    let mut talk = Talk::with(resp.address);
    let replayed = |talk: &mut Talk| {
        let replied = ask(talk, "KV.OPTS");
        replied.split_once("$8|replayed|").unwrap().1.to_string()
    };
    for (number, command, reply) in [
        (1, "DECR stock", ":-1|"),
        (2, "SET k v NX", "+OK|"),
        (3, "DEL k", ":1|"),
        (4, "INCREX sold UBOUND 1 EX 100", "*2|:1|:1|"),
        (5, "MSET one 1", "+OK|"),
        (6, "EXPIRE one 100", ":1|"),
    ] {
        let token = token(number);
        for is_again in [":0|", ":1|"] {
            assert_eq!(ask(&mut talk, &format!("KV.OPTS token={token}")), "+OK|");
            assert_eq!(ask(&mut talk, command), reply);
            assert_eq!(replayed(&mut talk), is_again, "{command}");
        }
        // Another write of the same key with that token is another one.
        assert_eq!(ask(&mut talk, &format!("KV.OPTS token={token}")), "+OK|");
        let key = command.split(' ').nth(1).unwrap();
        let replied = ask(&mut talk, &format!("SET {key} other"));
        assert!(replied.starts_with("-TOKENREUSED "), "{command}: {replied}");
    }
    assert_eq!(ask(&mut talk, "GET stock"), "$2|-1|");
    // The token is gone behind the write, and one that no item can have is refused and dropped.
    assert_eq!(ask(&mut talk, "DECR stock"), ":-2|");
    for command in ["MSET a 1 b 2", "SET k v GET", "APPEND k v", "FLUSHALL"] {
        let token = token(9);
        assert_eq!(ask(&mut talk, &format!("KV.OPTS token={token}")), "+OK|");
        let replied = ask(&mut talk, command);
        assert!(replied.starts_with("-ERR a token is for a write of one item"));
    }
    let apply = format!("KV.OPTS token={}", token(10));
    for is_again in ["|:0|", "|:1|"] {
        assert_eq!(ask(&mut talk, &apply), "+OK|");
        let replied = ask(&mut talk, r#"KV.APPLY stock "k1.decimal -= 1""#);
        assert!(
            replied.contains("|*1|:-3|") && replied.ends_with(is_again),
            "{replied}"
        );
    }
    let token = token(11);
    for is_again in ["|:0|", "|:1|"] {
        let apply = format!(r#"KV.APPLY stock TOKEN {token} "k1.decimal -= 1""#);
        let replied = ask(&mut talk, &apply);
        assert!(
            replied.contains("|*1|:-4|") && replied.ends_with(is_again),
            "{replied}"
        );
    }
    assert_eq!(
        ask(&mut talk, r#"KV.APPLY stock TOKEN 7 "k1 exists""#),
        "-ERR TOKEN '7': a token is a UUID: 32 hexadecimal digits, in groups of 8, 4, 4, 4 and 12|"
    );
    resp.server.stop();
}
