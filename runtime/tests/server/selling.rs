//! `penstock demo` and `penstock bench sale` with the real binary: they pass, they fail when one
//! record is forged, and they leave nothing behind.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command::command;
use crate::process::{Server, signal, the_machine};
use crate::scratch;

/// How long a sale may take to write its stock.
const PATIENCE: Duration = Duration::from_secs(60);

/// A demo for tests.
const SMALL: [&str; 8] = [
    "--units",
    "400",
    "--buyers",
    "3000",
    "--connections",
    "20",
    "--seconds",
    "3",
];

fn folder(name: &str) -> PathBuf {
    let path = scratch::folder(name);
    fs::create_dir_all(&path).unwrap();
    path
}

/// A command whose temporary files go to a directory of the test.
fn within(folder: &Path, words: &[&str]) -> Command {
    let mut command = command(words);
    command.env("TMPDIR", folder);
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

fn json_of(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

/// A demo that runs, and the rest of what it prints.
fn begin(folder: &Path, words: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let words = [&["demo"], &SMALL[..], words].concat();
    let mut demo = within(folder, &words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(demo.stdout.take().unwrap());
    (demo, said)
}

/// The word behind this one at the beginning of a line.
fn word_behind(said: &mut impl BufRead, first: &str) -> String {
    for line in said.lines().map_while(Result::ok) {
        if let Some(rest) = line.strip_prefix(first) {
            let word = rest.split_whitespace().next().unwrap();
            return word.trim_end_matches(',').to_string();
        }
    }
    panic!("no line begins with {first}");
}

#[test]
fn a_demo_passes_over_a_kill_and_leaves_nothing_behind() {
    let _one = the_machine();
    let folder = folder("demo-passes");
    let words = [&["demo"], &SMALL[..], &["--json", "--seed", "7"]].concat();
    let result = json_of(&within(&folder, &words).output().unwrap());
    assert_eq!(
        (&result["passes"], &result["seed"]),
        (&json!(true), &json!(7))
    );
    assert_eq!(result["kills"].as_array().map(Vec::len), Some(1));
    let ledger = &result["ledger"];
    let [available, held, sold] = ["available", "held", "sold"].map(|it| number(&ledger[it]));
    assert_eq!(available + held + sold, 400);
    assert!(sold > 200 && held > 0, "{ledger}");
    let counts = &result["counts"];
    assert_eq!(number(&counts["buyers"]), 3000);
    for count in [
        "sent_twice",
        "cut",
        "abandoned",
        "sold_out",
        "over_limit",
        "replayed",
    ] {
        assert!(number(&counts[count]) > 0, "{count}: {counts}");
    }
    assert!(is_empty(&folder));
}

/// Changes a record of a sale, as soon as the sale has written its stock.
fn forge(forgery: &[&str], server: &str) {
    let began = Instant::now();
    loop {
        let forged = command(forgery).args(["--addr", server]).output().unwrap();
        if forged.status.success() {
            return;
        }
        let text = String::from_utf8_lossy(&forged.stderr);
        assert!(
            text.contains("does not exist") && began.elapsed() < PATIENCE,
            "{text}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_demo_fails_when_one_record_is_forged() {
    let _one = the_machine();
    let folder = folder("demo-forged");
    let forgeries: [&[&str]; 2] = [
        // A unit from nowhere; an order that nobody was promised.
        &["update-if", "drop:{0}:stock", "u64@8 += 1"],
        &["set", "drop:{0}:order:8999", "0xb70b000001000000"],
    ];
    for (forgery, check) in forgeries.into_iter().zip(["FAIL stock", "FAIL orders"]) {
        let (mut demo, mut said) = begin(&folder, &[]);
        let server = word_behind(&mut said, "server");
        forge(forgery, &server);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(demo.wait().unwrap().code(), Some(1), "{rest}");
        assert!(rest.contains(check) && rest.ends_with("FAIL\n"), "{rest}");
        assert!(is_empty(&folder));
    }
}

/// Whether a process serves data below a folder.
fn has_server(folder: &Path) -> bool {
    let folder = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let lines = processes.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
    lines
        .filter(|line| line.windows(5).any(|word| word == b"serve"))
        .any(|line| String::from_utf8_lossy(&line).contains(folder))
}

#[test]
fn a_demo_that_is_interrupted_takes_its_server_and_its_directory_with_it() {
    let _one = the_machine();
    let folder = folder("demo-interrupted");
    let (mut demo, mut said) = begin(&folder, &[]);
    word_behind(&mut said, "server");
    assert!(!is_empty(&folder) && has_server(&folder));
    signal(demo.id(), "-INT");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1));
    assert!(!rest.contains("PASS"), "{rest}");
    assert!(is_empty(&folder) && !has_server(&folder));
}

#[test]
fn the_page_of_a_demo_shows_the_sale_until_its_end() {
    let _one = the_machine();
    let folder = folder("demo-page");
    let (mut demo, mut said) = begin(&folder, &["--page"]);
    let page = word_behind(&mut said, "page");
    let address = page.trim_start_matches("http://").trim_end_matches('/');
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(get("/").contains("<canvas id=\"heat\">"));
    let mut sale = Value::Null;
    while sale["is_over"] != true {
        let text = get("/sale.json");
        let (_, body) = text.split_once("\r\n\r\n").expect("a body");
        sale = serde_json::from_str(body).expect("JSON");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(sale["stage"], "PASS");
    assert_eq!(sale["buyers"].as_str().map(str::len), Some(3000));
    assert!(sale["points"].as_array().is_some_and(|it| it.len() > 3));
    assert_eq!(sale["kills"].as_array().map(Vec::len), Some(1));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{rest}");
}

#[test]
fn a_sale_over_many_articles_passes_while_its_server_is_killed_again_and_again() {
    let _one = the_machine();
    let folder = folder("sale-killed");
    let html = folder.join("report.html");
    let words = ["bench", "sale", "--json", "--kill", "3", "--buyers", "6000"];
    let more = [
        "--units", "3000", "--skus", "20", "--hold", "1", "--limit", "3",
    ];
    let output = within(&folder, &[&words[..], &more].concat())
        .args(["--connections", "30", "--html"])
        .arg(&html)
        .output()
        .unwrap();
    let result = json_of(&output);
    assert_eq!(result["passes"], true);
    assert_eq!(result["kills"].as_array().map(Vec::len), Some(3));
    assert!(number(&result["counts"]["asked_again"]) > 0);
    let report = fs::read_to_string(&html).unwrap();
    assert!(report.contains("\"stage\":\"PASS\"") && !report.contains("http://"));
    fs::remove_file(&html).unwrap();
    assert!(is_empty(&folder));
}

/// Whether there is an etcd; says so if there is none.
fn has_etcd() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = std::env::split_paths(&path).any(|folder| folder.join("etcd").is_file());
    if !has {
        println!("skipped: no etcd is installed (apt-get install etcd-server)");
    }
    has
}

#[test]
fn a_sale_loses_nothing_and_sells_nothing_twice_while_its_writer_is_replaced() {
    let _one = the_machine();
    if !has_etcd() {
        return;
    }
    let folder = folder("sale-kill-primary");
    let words = ["bench", "sale", "--kill-primary", "--json"];
    let more = ["--buyers", "4000", "--units", "2000", "--connections", "20"];
    let output = within(&folder, &[&words[..], &more].concat())
        .output()
        .unwrap();
    let result = json_of(&output);
    assert_eq!(result["passes"], true);
    assert_eq!(result["kills"].as_array().map(Vec::len), Some(1));
    assert_eq!(result["gaps_ms"].as_array().map(Vec::len), Some(1));
    assert!(is_empty(&folder), "nothing is left");
}

#[test]
fn a_sale_that_is_to_lose_its_writer_says_that_it_needs_an_etcd() {
    let folder = folder("sale-no-etcd");
    let output = within(&folder, &["bench", "sale", "--kill-primary"])
        .env("PATH", &folder)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && printed.contains("no program etcd is in PATH"),
        "{printed}"
    );
    assert!(is_empty(&folder), "nothing is left");
}

#[test]
fn a_sale_at_a_server_that_is_there_comes_at_its_rate_and_uses_keys_of_its_own() {
    let _one = the_machine();
    let data = folder("sale-at").join("data");
    let server = Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args([
                "--admin-listen",
                "off",
                "--shards",
                "1",
                "--segment-bytes",
                "4MiB",
            ])
            .args(["--value-bytes-max", "64KiB", "--data"])
            .arg(data),
    );
    for _ in 0..2 {
        let output = command(&[
            "bench", "sale", "--json", "--rate", "2000", "--buyers", "2000",
        ])
        .args([
            "--units",
            "500",
            "--hold",
            "0.5",
            "--addr",
            &server.address.to_string(),
        ])
        .output()
        .unwrap();
        let result = json_of(&output);
        assert_eq!(
            (&result["passes"], &result["rate"]),
            (&json!(true), &json!(2000.0))
        );
        assert!(
            result["seconds"].as_f64() >= Some(0.999),
            "{}",
            result["seconds"]
        );
    }
}

#[test]
fn a_drop_says_when_all_was_taken_and_paid() {
    let _one = the_machine();
    let folder = folder("sale-drop");
    let words = [
        "bench",
        "sale",
        "--drop",
        "--units",
        "2000",
        "--connections",
        "100",
    ];
    let output = within(&folder, &words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("taken   all units after ") && text.ends_with("PASS\n"),
        "{text}"
    );
    let stock = "2000 initial = 0 available + 0 held + 2000 sold";
    assert!(text.contains(stock), "{text}");
}

#[test]
fn what_a_sale_cannot_be_is_refused_by_name() {
    let remote = "192.0.2.1:7411";
    for (words, part) in [
        (&["--kill", "2", "--addr", "127.0.0.1:1"][..], "--kill"),
        (&["--zipf", "11"], "--zipf 11 is from 0 to 10"),
        (&["--rate", "0"], "--rate 0 is buyers a second"),
        (&["--hold", "0"], "--hold 0 is seconds"),
        (&["--abandoned", "101"], "--abandoned"),
        (&["--addr", remote], "needs --allow-remote"),
        (&["--skus", "0"], "--skus"),
    ] {
        let output = command(&["bench", "sale"]).args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
    let output = command(&["demo", "--seconds", "0.1"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("--seconds 0.1 is from 0.5 to 3600"),
        "{errors}"
    );
}

#[test]
fn two_results_differ_or_do_not_by_their_seconds() {
    let folder = folder("bench-compare");
    let file = |name: &str, rates: &[f64]| {
        let second = |rate: &f64| {
            json!({
                "operations": 1000, "operations_per_second": rate,
                "latency_us": {"p50": 1e6 / rate, "p99": 500.0},
            })
        };
        let series: Vec<Value> = rates.iter().map(second).collect();
        let result = json!({"workload": "decr", "date": "today", "series": series});
        let path = folder.join(name);
        fs::write(&path, result.to_string()).unwrap();
        path
    };
    let slow: Vec<f64> = (0..13).map(|it| 1000.0 + f64::from(it)).collect();
    let fast: Vec<f64> = slow.iter().map(|it| it + 100.0).collect();
    let (slow, fast) = (file("slow", &slow), file("fast", &fast));
    let few = file("few", &[1000.0; 5]);
    let compare = |a: &Path, b: &Path| {
        let output = command(&["bench", "--compare"])
            .arg(a)
            .arg(b)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = compare(&slow, &fast);
    let verdicts: Vec<&str> = text
        .lines()
        .skip(3)
        .map(|it| it.rsplit("  ").next().unwrap())
        .collect();
    let expected = ["B is better", "B is better", "no difference shown"];
    assert_eq!((code, &verdicts[..]), (Some(0), &expected[..]), "{text}");
    let (_, text) = compare(&fast, &slow);
    assert!(
        text.contains("B is worse") && !text.contains("better"),
        "{text}"
    );
    let (code, text) = compare(&slow, &few);
    assert_eq!(code, Some(2));
    assert!(
        text.contains("few: 4 seconds with operations/s; at least 8"),
        "{text}"
    );
    let (code, text) = compare(&slow, &folder.join("none"));
    assert!(code == Some(2) && text.contains("none"), "{text}");
}
