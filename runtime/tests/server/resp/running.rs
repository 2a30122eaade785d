//! KV.RUN on the real server: programs of a schema by their names, what is refused, and files that
//! change meanwhile.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::beyond::{ask, token};
use super::{PATIENCE, Resp, Talk, encode, folder, start};

const SCHEMA: &str = r#"
[layout.Stock]
fields = ["available:u32@0", "sold:i64@8", "is_open:bool@16"]

[program.restock]
keys = ["stock:Stock"]
arguments = ["quantity:u32 1..100"]
instructions = ["stock start {}", "stock.available += quantity"]

[program.take]
keys = ["stock:Stock", "order"]
arguments = ["quantity:u32 1..10", "note:u8[8]"]
instructions = [
    "stock.available >= quantity else 7",
    "stock.available -= quantity",
    "order put { note }",
]

[program.move]
keys = ["stock:Stock"]
arguments = ["by:i64", "is_sure:bool"]
instructions = ["stock.sold += by", "stock.is_open = is_sure"]
"#;

/// Commands, and below each its reply: `|` stands for the end of a line, `...` for a rest that is
/// not looked at. Of a reply that is a map its values are shown.
const RUNS: &str = r#"
KV.RUN restock stock{7} quantity=5
    OK [5] instruction -1 reason 0 replayed 0
kv.run take stock{7} key order{7} quantity=2 "note=a =\r\n"
    OK [3] instruction -1 reason 0 replayed 0
STRLEN order{7}
    :5|
KV.RUN take stock{7} KEY order{7} note= quantity=4
    GUARD_FAILED [3] instruction 0 reason 7 replayed 0
STRLEN order{7}
    :5|
KV.RUN take none{7} KEY order{7} note= quantity=1
    NOT_FOUND [] instruction 0 reason 7 replayed 0
KV.RUN move stock{7} by=-4 is_sure=true
    OK [-4, 1] instruction -1 reason 0 replayed 0
KV.RUN move stock{7} by=0x10 is_sure=0
    OK [12, 0] instruction -1 reason 0 replayed 0
KV.RUN move stock{7} by=9223372036854775808 is_sure=1
    -ERR move: by = '9223372036854775808': allowed is a number, -9223...
KV.RUN move stock{7} by=1 is_sure=yes
    -ERR move: is_sure = 'yes': allowed is 0, 1, true or false|
KV.RUN buy stock{7}
    -ERR no program 'buy': there are move, restock, take|
KV.RUN 0x0000000000000001 stock{7}
    -ERR no program '0x0000000000000001': there are move, restock, take|
KV.RUN "" stock{7}
    -ERR no program '': there are move, restock, take|
KV.RUN \xff stock{7}
    -ERR no program...
KV.RUN restock
    -ERR wrong number of arguments for 'kv.run' command|
KV.RUN restock stock{7}
    -ERR restock: quantity= is missing: allowed is 1..100|
KV.RUN restock stock{7} quantity=0
    -ERR restock: quantity = '0': allowed is a number, 1..100|
KV.RUN restock stock{7} quantity=101
    -ERR restock: quantity = '101': allowed is a number, 1..100|
KV.RUN restock stock{7} quantity=-1
    -ERR restock: quantity = '-1': allowed is a number, 1..100|
KV.RUN restock stock{7} quantity=
    -ERR restock: quantity = '': allowed is a number, 1..100|
KV.RUN restock stock{7} quantity=1.5
    -ERR restock: quantity = '1.5': allowed is a number, 1..100|
KV.RUN restock stock{7} quantity=1 quantity=1
    -ERR restock: quantity twice|
KV.RUN restock stock{7} quantity
    -ERR restock: argument 'quantity': NAME=VALUE with NAME of quantity|
KV.RUN restock stock{7} 5
    -ERR restock: argument '5': NAME=VALUE with NAME of quantity|
KV.RUN restock stock{7} quantity=1 buyer=ann
    -ERR restock: argument 'buyer=ann': NAME=VALUE with NAME of quantity|
KV.RUN restock stock{7} KEY order{7} quantity=1
    -ERR restock: 2 keys, and it takes 1: stock|
KV.RUN take stock{7} quantity=1 note=x
    -ERR take: 1 keys, and it takes 2: stock, order|
KV.RUN take stock{7} KEY order{8} quantity=1 note=x
    -CROSSSLOT Keys in request don't hash to the same slot|
KV.RUN take stock{7} KEY stock{7} quantity=1 note=x
    -ERR a key stands twice|
KV.RUN take stock{7} KEY order{7} quantity=1 note=123456789
    -ERR take: note = '123456789': allowed is 8 bytes at most, not 9|
KV.RUN take {} KEY {}1 KEY {}2 KEY {}3 KEY {}4 KEY {}5 KEY {}6 KEY {}7 KEY {}8
    -CROSSSLOT...
KV.RUN take {a} KEY {a}1 KEY {a}2 KEY {a}3 KEY {a}4 KEY {a}5 KEY {a}6 KEY {a}7 KEY {a}8
    -ERR 9 keys: at most 8|
KV.RUN take "" KEY order{7}
    -ERR a key has 1 to 1024 bytes|
KV.RUN take stock{7} KEY
    -ERR take: 1 keys, and it takes 2: stock, order|
KV.RUN restock stock{7} TOKEN 7 quantity=1
    -ERR TOKEN '7': a token is a UUID: 32 hexadecimal digits, in groups of 8, 4, 4, 4 and 12|
KV.RUN restock stock{7} TOKEN
    -ERR restock: argument 'TOKEN': NAME=VALUE with NAME of quantity|
SET text{7} xyz
    +OK|
KV.RUN restock text{7} quantity=1
    -ERR ...
MULTI
    +OK|
KV.RUN restock stock{7} quantity=1
    -ERR Command 'kv.run' not allowed inside a transaction|
EXEC
    -EXECABORT Transaction discarded because of previous errors.|
KV.OPTS level=replica
    +OK|
KV.RUN restock stock{7} quantity=1
    -ERR ack level replica is for operations on the nodes of a cluster...
RESET
    +RESET|
COMMAND INFO kv.run
    *1|*10|$6|kv.run|:-3|*2|+write|+denyoom|:2|:2|:1|...
KV.RUN restock stock{7} quantity=1
    OK [4] instruction -1 reason 0 replayed 0
"#;

fn schema_folder(name: &str, text: &str) -> PathBuf {
    let folder = folder(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("sale.toml"), text).unwrap();
    folder
}

fn start_with(name: &str, schema: &str) -> (Resp, PathBuf) {
    let schema = schema_folder(&format!("{name}-schema"), schema);
    let options = ["--shards", "1", "--schema", schema.to_str().unwrap()];
    (start(name, &options), schema)
}

#[test]
fn a_program_runs_by_its_name_and_what_it_cannot_take_is_refused_with_the_limit() {
    let (resp, _) = start_with("resp-run", SCHEMA);
    let mut talk = Talk::with(resp.address);
    let mut differences = Vec::new();
    let lines: Vec<&str> = RUNS.lines().filter(|line| !line.is_empty()).collect();
    for pair in lines.chunks(2) {
        let [words, expected] = [pair[0], pair[1].trim_start()];
        let reply = shown(&ask_bytes(&mut talk, words));
        let is_as_expected = match expected.strip_suffix("...") {
            Some(begin) => reply.starts_with(begin),
            None => reply == expected,
        };
        if !is_as_expected {
            differences.push(format!("{words}\n  told {reply}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // As long as arguments may be, in a name, a value and an argument: the connection lives.
    let long = "x".repeat(60_000);
    for words in [
        &["KV.RUN", &long, "s"][..],
        &["KV.RUN", "restock", "s", &long],
        &["KV.RUN", "restock", "s", &format!("quantity={long}")],
        &[
            "KV.RUN",
            "take",
            "s",
            "KEY",
            "{s}o",
            "quantity=1",
            &format!("note={long}"),
        ],
    ] {
        let reply = talk.ask(words);
        assert!(reply.starts_with("-ERR ") && reply.len() < 200, "{reply}");
    }
    let all: Vec<String> = (0..100_000).map(|number| format!("a{number}=1")).collect();
    let words = ["KV.RUN", "restock", "s"].into_iter();
    let words: Vec<&str> = words.chain(all.iter().map(String::as_str)).collect();
    assert!(
        talk.ask(&words)
            .starts_with("-ERR restock: argument 'a0=1'")
    );
    assert_eq!(ask(&mut talk, "PING"), "+PONG|");
    resp.server.stop();
}

/// The values of the map that KV.RUN tells; other replies as they are.
fn shown(reply: &str) -> String {
    let words: Vec<&str> = reply.split('|').collect();
    if words[0] != "*12" {
        return reply.to_string();
    }
    assert_eq!([words[2], words[6]], ["status", "numbers"], "{reply}");
    let count: usize = words[7].trim_start_matches('*').parse().unwrap();
    let (numbers, rest) = words[8..].split_at(count);
    let [
        _,
        "instruction",
        instruction,
        _,
        "reason",
        reason,
        _,
        "version",
        _,
        version,
        _,
        "replayed",
        replayed,
        "",
    ] = rest
    else {
        panic!("{reply}");
    };
    assert!(version.split_once(':').is_some(), "{reply}");
    let numbers: Vec<&str> = numbers.iter().map(|it| &it[1..]).collect();
    let [instruction, reason, replayed] = [instruction, reason, replayed].map(|it| &it[1..]);
    format!(
        "{} [{}] instruction {instruction} reason {reason} replayed {replayed}",
        words[4],
        numbers.join(", ")
    )
}

/// As `ask`, where a reply may have bytes that are no text.
fn ask_bytes(talk: &mut Talk, line: &str) -> String {
    let words = super::words_of(line);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    talk.send(&encode(&words));
    String::from_utf8_lossy(&talk.reply()).replace("\r\n", "|")
}

#[test]
fn a_run_that_is_sent_again_with_its_token_is_executed_once_and_says_so() {
    let (resp, _) = start_with("resp-run-token", SCHEMA);
    let mut talk = Talk::with(resp.address);
    let options = format!("KV.OPTS token={}", token(1));
    for is_again in ["|:0|", "|:1|"] {
        assert_eq!(ask(&mut talk, &options), "+OK|");
        let reply = ask(&mut talk, "KV.RUN restock stock{7} quantity=5");
        assert!(
            reply.contains("|*1|:5|") && reply.ends_with(is_again),
            "{reply}"
        );
    }
    let token = token(2);
    for is_again in ["|:0|", "|:1|"] {
        let run = format!("KV.RUN restock stock{{7}} TOKEN {token} quantity=6");
        let reply = ask(&mut talk, &run);
        assert!(
            reply.contains("|*1|:11|") && reply.ends_with(is_again),
            "{reply}"
        );
    }
    // The same token for another quantity, and a pipeline whose options stand before it.
    let reply = ask(
        &mut talk,
        &format!("KV.RUN restock stock{{7}} TOKEN {token} quantity=7"),
    );
    assert!(reply.starts_with("-TOKENREUSED "), "{reply}");
    talk.send(b"KV.OPTS level=none\r\nKV.RUN restock stock{7} quantity=1\r\nPING\r\n");
    assert_eq!(talk.reply(), b"+OK\r\n");
    let reply = String::from_utf8(talk.reply()).unwrap();
    assert!(reply.contains("\r\n:12\r\n"), "{reply}");
    assert_eq!(talk.reply(), b"+PONG\r\n");
    resp.server.stop();
}

#[test]
fn fields_of_a_value_are_shown_by_a_layout_or_in_the_notation_of_fields() {
    let (resp, _) = start_with("resp-fields", SCHEMA);
    let mut talk = Talk::with(resp.address);
    ask(&mut talk, "KV.RUN restock stock{7} quantity=5");
    ask(&mut talk, "KV.RUN move stock{7} by=-4 is_sure=true");
    let stock = "available|:5|$4|sold|:-4|$7|is_open|:1|";
    assert_eq!(
        ask(&mut talk, "KV.GET stock{7} AS Stock"),
        format!("*6|$9|{stock}")
    );
    assert_eq!(
        ask(&mut talk, "kv.get stock{7} as \"u32@0, i64@8\""),
        "*4|$5|u32@0|:5|$5|i64@8|:-4|"
    );
    ask(
        &mut talk,
        "SET big \"\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\"",
    );
    assert_eq!(
        ask(&mut talk, "KV.GET big AS u64@0"),
        "*2|$5|u64@0|$20|18446744073709551615|"
    );
    // A value of before a field was added ends before it.
    ask(&mut talk, "SET short \"\\x01\\x00\\x00\\x00\"");
    assert_eq!(
        ask(&mut talk, "KV.GET short AS Stock"),
        "*2|$9|available|:1|"
    );
    for (line, expected) in [
        ("KV.GET none AS Stock", "$-1|"),
        (
            "KV.GET stock{7}",
            "-ERR wrong number of arguments for 'kv.get' command|",
        ),
        ("KV.GET stock{7} IN Stock", "-ERR syntax error|"),
        (
            "KV.GET stock{7} AS Stack",
            "-ERR no layout 'Stack': there are Stock; or fields such as u32@0,u64be@8|",
        ),
        (
            "KV.GET short AS u64@0",
            "-ERR u64@0: u64@0 cannot be read from a value of 4 bytes|",
        ),
    ] {
        assert_eq!(ask(&mut talk, line), expected, "{line}");
    }
    let reply = ask(&mut talk, "KV.GET short AS u9@0");
    assert!(reply.starts_with("-ERR KV.GET: "), "{reply}");
    let long = format!("KV.GET short AS {}u8@0", "u8@0,".repeat(60));
    assert_eq!(
        ask(&mut talk, &long),
        "-ERR KV.GET: 304 bytes of fields; at most 256|"
    );
    talk.ask(&["HELLO", "3"]);
    assert_eq!(
        ask(&mut talk, "KV.GET stock{7} AS Stock"),
        format!("%3|$9|{stock}")
    );
    assert_eq!(ask(&mut talk, "KV.GET none AS u8@0"), "_|");
    resp.server.stop();
}

#[test]
fn a_name_runs_what_the_files_say_since_the_last_signal() {
    let (resp, schema) = start_with("resp-run-anew", SCHEMA);
    let mut talk = Talk::with(resp.address);
    assert!(ask(&mut talk, "KV.RUN restock stock{7} quantity=5").contains("|*1|:5|"));
    let anew = SCHEMA
        .replace("[program.take]", "[program.sell]")
        .replace("1..100\"", "1..1000\"");
    fs::write(schema.join("sale.toml"), anew).unwrap();
    resp.server.signal("-HUP");
    let until = Instant::now() + PATIENCE;
    loop {
        let reply = ask(&mut talk, "KV.RUN restock stock{7} quantity=1000");
        if reply.contains("|*1|:1005|") {
            break;
        }
        assert!(reply.contains("allowed is a number, 1..100"), "{reply}");
        assert!(Instant::now() < until, "the files are not read");
    }
    assert_eq!(
        ask(
            &mut talk,
            "KV.RUN take stock{7} KEY order{7} quantity=1 note=x"
        ),
        "-ERR no program 'take': there are move, restock, sell|"
    );
    resp.server.stop();
}

#[test]
fn a_server_without_a_schema_says_that_it_has_no_program() {
    let resp = start("resp-run-none", &["--shards", "2"]);
    let mut talk = Talk::with(resp.address);
    let reply = ask(&mut talk, "KV.RUN buy stock{7}");
    assert_eq!(reply, "-ERR no program 'buy': this node has none|");
    resp.server.stop();
}
