//! What `penstock bench` reports of a real server: the level reached, every answer, and how to
//! repeat the run.

use std::process::Output;

use penstock_client::Verbs;
use serde_json::Value;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// A run that ends by its requests, however busy the machine is.
const ENOUGH: [&str; 4] = ["--requests", "200", "--duration", "30"];

fn serve(name: &str, durability: &str) -> Server {
    serve_shards(name, durability, "1")
}

fn serve_shards(name: &str, durability: &str, shards: &str) -> Server {
    let data = scratch::folder(name);
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", shards, "--segment-bytes", "4MiB"])
            .args(["--value-bytes-max", "64KiB"])
            .args([
                "--admin-listen",
                "off",
                "--durability",
                durability,
                "--data",
            ])
            .arg(data),
    )
}

impl Server {
    fn bench(&self, words: &[&str]) -> Output {
        command(&["bench"])
            .args(words)
            .args(["--addr", &self.address.to_string()])
            .args(["--connections", "4", "--keys", "300", "--warmup", "0.1"])
            .output()
            .unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.bench(&[words, &["--json"]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {errors}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Server {
    fn keys(&self) -> Vec<String> {
        let output = command(&["scan", "--addr", &self.address.to_string()])
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::to_string).collect()
    }
}

fn errors_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_level_that_the_server_raised_is_reported_as_the_one_reached() {
    let server = serve("bench-raised", "disk");
    let load = ["set", "--level", "none", "--json"];
    let output = server.bench(&[&load[..], &ENOUGH].concat());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["level"], "none");
    assert_eq!(report["level_reached"], "disk");
    let printed = errors_of(&output);
    let raised = "level none was asked for, and the server raised it to disk";
    assert!(
        output.status.success() && printed.contains(raised),
        "{printed}"
    );
    let asked = ["set", "--level", "disk", "--duration", "0.2"];
    let output = server.bench(&asked);
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn levels_are_not_compared_where_the_server_raises_them() {
    let server = serve("bench-one-level", "interval");
    for workload in ["set", "get", "decr"] {
        let output = server.bench(&[workload, "--levels", "--duration", "0.3"]);
        let printed = errors_of(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let raised = "level none is raised to interval by this server";
        assert!(
            printed.contains(raised) && output.stdout.is_empty(),
            "{printed}"
        );
    }
}

#[test]
fn levels_take_turns_and_each_interval_is_a_line_of_csv() {
    let server = serve("bench-levels", "none");
    let words = ["set", "--levels", "--rounds", "2", "--duration", "0.6"];
    let output = server.bench(&[&words[..], &["--csv", "--interval", "0.1"]].concat());
    assert!(output.status.success(), "{}", errors_of(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().expect("a heading");
    let column = |name: &str| names.iter().position(|it| *it == name).expect(name);
    let [level, reached, round] = ["level", "level_reached", "round"].map(column);
    let mut seen = std::collections::BTreeSet::new();
    for line in lines {
        assert_eq!(line.len(), names.len());
        assert_eq!(line[level], line[reached]);
        seen.insert((line[level].to_string(), line[round].to_string()));
    }
    assert_eq!(seen.len(), 3 * 2, "{seen:?}");
    let reports = server.json(&words);
    for (report, level) in reports
        .as_array()
        .expect("three")
        .iter()
        .zip(["none", "interval", "disk"])
    {
        assert_eq!(report["level_reached"], level);
        assert_eq!(report["rounds"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_healthy_run_leaves_nothing_unknown_and_says_how_to_repeat_it() {
    let server = serve("bench-healthy", "disk");
    let ends: [&[&str]; 4] = [
        &["set", "--duration", "0.4"],
        &["get", "--duration", "0.4", "--single"],
        &["decr", "--duration", "30", "--requests", "3000", "--ledger"],
        &["mixed", "--duration", "0.4", "--rate", "20000"],
    ];
    for words in ends {
        let words = [words, &["--seed", "77", "--interval", "0.1"]].concat();
        let report = server.json(&words);
        for count in ["unknown", "unanswered", "refused"] {
            assert_eq!(report[count], 0, "{words:?}: {count}");
        }
        let number = |name: &str| report[name].as_u64().expect(name);
        assert_eq!((number("seed"), number("keys")), (77, 300));
        assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
        let date = report["date"].as_str().expect("a date");
        assert!(date.len() == 20 && date.starts_with("20") && date.ends_with('Z'));
        assert!(report["host"]["cpus"].as_u64() > Some(0) && report["host"]["kernel"].is_string());
        let sum = |list: &str, count: &dyn Fn(&Value) -> u64| -> u64 {
            report[list].as_array().expect(list).iter().map(count).sum()
        };
        let in_series = sum("series", &|it| it["operations"].as_u64().expect("a count"));
        let in_histogram = sum("histogram_ns", &|it| it[1].as_u64().expect("a count"));
        assert_eq!([in_series, in_histogram], [number("operations"); 2]);
    }
}

#[test]
fn keys_that_one_run_filled_serve_further_ones_which_write_none() {
    let server = serve_shards("bench-filled", "disk", "2");
    // Twenty frames of fifteen keys: more than are under way, each answered by both shards.
    let get = ["get", "--value-bytes", "16384", "--requests", "300"];
    let filled = [&get[..], &["--filled"]].concat();
    let output = server.bench(&filled);
    let printed = errors_of(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let missing = "--filled with --keys 300: a read of bench:0000000299";
    assert!(
        printed.contains(missing) && output.stdout.is_empty(),
        "{printed}"
    );
    let records = |report: &Value| report["server"]["record_bytes"].as_u64().expect("counted");
    assert_eq!(server.json(&[&get[..], &["--keep"]].concat())["refused"], 0);
    let report = server.json(&filled);
    assert_eq!((&report["refused"], records(&report)), (&0.into(), 0));
    let set = ["set", "--filled", "--value-bytes", "16"];
    let report = server.json(&[&set[..], &ENOUGH].concat());
    assert!(records(&report) > 0);
    assert_eq!(server.keys().len(), 300, "they are those of the first run");
    let output = server.bench(&["decr", "--filled"]);
    assert!(errors_of(&output).contains("--filled is for get, set and mixed"));
}

#[test]
fn a_run_deletes_the_keys_that_it_has_written_and_no_others() {
    let server = serve_shards("bench-clean", "disk", "2");
    let client = server.client();
    for key in ["bench:mine", "stock", "{buy}:mine"] {
        client.set(key.as_bytes(), b"v").wait().unwrap();
    }
    let mine = server.keys();
    let runs: [&[&str]; 8] = [
        &["get"],
        &["set"],
        &["mixed"],
        &["decr"],
        &["decr", "--ledger"],
        &["buy"],
        &["sold-out"],
        &["echo"],
    ];
    for words in runs {
        // A run ends by its requests: a busy machine may do nothing within a time.
        let report = server.json(&[words, &ENOUGH].concat());
        assert!(report["operations"].as_u64() > Some(0), "{words:?}");
        assert_eq!(server.keys(), mine, "{words:?}");
    }
    server.json(&[&["decr", "--keep"][..], &ENOUGH].concat());
    assert_eq!(server.keys().len(), mine.len() + 1);
}

#[test]
fn connections_come_by_the_ports_of_the_shards_unless_they_are_to_share_one() {
    let server = serve_shards("bench-ports", "disk", "2");
    let forwarded = |words: &[&str]| {
        let report = server.json(&[words, &ENOUGH].concat());
        assert!(report["operations"].as_u64() > Some(0), "{words:?}");
        report["server"]["forwarded"].as_u64().expect("counted")
    };
    for workload in ["set", "mixed", "decr", "buy"] {
        assert_eq!(forwarded(&[workload]), 0, "{workload}");
    }
    assert!(forwarded(&["set", "--shared-port"]) > 0);
}
