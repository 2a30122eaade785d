//! A real Prometheus with the deployed files beside a real server. `.ci/run` gives the programs.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_client::Verbs;
use serde_json::Value;

use super::{PATIENCE, Server, folder};
use crate::promql::deployed_queries;

/// Names the folder with `prometheus` and `promtool`.
const PROGRAMS: &str = "PENSTOCK_PROMETHEUS";

/// What the index takes of `memory_max`, and whether PenstockMemoryNearBound tells.
const NEAR_BOUND: &str = r#"
rule_files: [alerts.yml]
tests:
  - interval: 1m
    input_series:
      - series: 'process_resident_memory_bytes{job="penstock",instance="near"}'
        values: '99+0x30'
      - series: 'penstock_memory_max_bytes{job="penstock",instance="near"}'
        values: '100+0x30'
      - series: 'penstock_index_bytes{job="penstock",instance="near",shard="0"}'
        values: '50+0x30'
      - series: 'penstock_index_bytes{job="penstock",instance="near",shard="1"}'
        values: '30+0x30'
      - series: 'penstock_memory_limit_bytes{job="penstock",instance="near",shard="0"}'
        values: '50+0x30'
      - series: 'penstock_memory_limit_bytes{job="penstock",instance="near",shard="1"}'
        values: '50+0x30'
      - series: 'process_resident_memory_bytes{job="penstock",instance="values"}'
        values: '99+0x30'
      - series: 'penstock_memory_max_bytes{job="penstock",instance="values"}'
        values: '100+0x30'
      - series: 'penstock_index_bytes{job="penstock",instance="values",shard="0"}'
        values: '20+0x30'
      - series: 'penstock_memory_limit_bytes{job="penstock",instance="values",shard="0"}'
        values: '100+0x30'
    promql_expr_test:
      - expr: count by (instance) (ALERTS{alertname="PenstockMemoryNearBound",alertstate="firing"})
        eval_time: 20m
        exp_samples: [{labels: '{instance="near"}', value: 1}]
"#;

/// What counts of what the disk carries, and which alerts tell before it is full. None tells of a
/// server that does not know yet what the disk carries.
const NEARLY_FULL: &str = r#"
rule_files: [alerts.yml]
tests:
  - interval: 1m
    input_series:
      - series: 'penstock_log_counting_bytes{job="penstock",instance="nearly",shard="0"}'
        values: '10+0x30'
      - series: 'penstock_log_counting_bytes_max{job="penstock",instance="nearly",shard="0"}'
        values: '100+0x30'
      - series: 'penstock_log_counting_bytes{job="penstock",instance="nearly",shard="1"}'
        values: '85+0x30'
      - series: 'penstock_log_counting_bytes_max{job="penstock",instance="nearly",shard="1"}'
        values: '100+0x30'
      - series: 'penstock_log_counting_bytes{job="penstock",instance="about",shard="0"}'
        values: '95+0x30'
      - series: 'penstock_log_counting_bytes_max{job="penstock",instance="about",shard="0"}'
        values: '100+0x30'
      - series: 'penstock_log_counting_bytes{job="penstock",instance="new",shard="0"}'
        values: '1+0x30'
      - series: 'penstock_log_counting_bytes_max{job="penstock",instance="new",shard="0"}'
        values: '0+0x30'
    promql_expr_test:
      - expr: count by (instance) (ALERTS{alertname="PenstockDiskNearlyFull",alertstate="firing"})
        eval_time: 5m
        exp_samples:
          - {labels: '{instance="nearly"}', value: 1}
          - {labels: '{instance="about"}', value: 1}
      - expr: count by (instance) (ALERTS{alertname="PenstockDiskAboutFull",alertstate="firing"})
        eval_time: 5m
        exp_samples: [{labels: '{instance="about"}', value: 1}]
"#;

fn programs() -> PathBuf {
    let folder = std::env::var_os(PROGRAMS);
    folder
        .unwrap_or_else(|| panic!("{PROGRAMS} names the folder of prometheus and promtool"))
        .into()
}

/// Runs `promtool` with these words in a directory; what it says.
fn promtool(directory: &Path, words: &[&str]) {
    let output = Command::new(programs().join("promtool"))
        .args(words)
        .current_dir(directory)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {words:?}: {said}");
    println!("promtool {words:?}: {said}");
}

/// Whether the text format can be read. Advice on names (exit code 3) is no mistake.
fn check_metrics(text: &str) {
    let mut process = Command::new(programs().join("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = process.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = process.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    println!("promtool check metrics: {said}");
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
}

fn deployed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(name)
}

/// A Prometheus that a failing test takes down with it.
struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    fn start(directory: &Path) -> Prometheus {
        let mut process = Command::new(programs().join("prometheus"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=series"])
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(directory)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let mut address = None;
        for line in log.by_ref().map_while(Result::ok) {
            // The address that the system chose for port 0.
            let found = line.split("address=").nth(1).unwrap_or_default();
            let found = found.split_whitespace().next().unwrap_or_default();
            let found: Option<SocketAddr> = found.trim_matches('"').parse().ok();
            said.push(line);
            if found.is_some_and(|it| it.port() != 0) {
                address = found;
                break;
            }
        }
        std::thread::spawn(move || log.for_each(drop));
        let Some(address) = address else {
            let _ = process.kill();
            let _ = process.wait();
            panic!("prometheus did not listen: {said:#?}");
        };
        Prometheus { process, address }
    }

    /// The data of an answer of its interface; `None` while it is not ready.
    fn try_ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        let answer: Value = serde_json::from_str(body).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        assert!(answer["warnings"].is_null(), "{path}: {answer}");
        Some(answer["data"].clone())
    }

    fn ask(&self, path: &str) -> Value {
        let answer = self.try_ask(path);
        answer.unwrap_or_else(|| panic!("no answer: {path}"))
    }

    /// What an expression is now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let data = self.ask(&format!("query?query={encoded}"));
        data["result"].as_array().expect("a vector").clone()
    }

    fn rules(&self) -> Vec<Value> {
        let data = self.ask("rules");
        let groups = data["groups"].as_array().expect("groups").iter();
        groups
            .flat_map(|group| group["rules"].as_array().expect("rules").clone())
            .collect()
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never was so: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "needs prometheus and promtool in the folder that PENSTOCK_PROMETHEUS names: .ci/run \
    does that"]
fn a_real_prometheus_takes_the_deployed_files_and_answers_every_rule_and_query() {
    let directory = folder("prometheus");
    fs::create_dir_all(&directory).unwrap();
    let copy = |from: &str, to: &str| fs::copy(deployed(from), directory.join(to)).unwrap();
    copy("monitoring/alerts.yml", "alerts.yml");
    // What the first start of compose makes for Prometheus.
    let own = directory.join("own");
    fs::create_dir_all(&own).unwrap();
    for made in ["admin-token", "ca.pem"] {
        fs::write(own.join(made), made).unwrap();
    }
    let composed = fs::read_to_string(deployed("compose/prometheus.yml")).unwrap();
    let there = composed.replace("/etc/prometheus/own", &own.display().to_string());
    assert!(there != composed, "{composed}");
    fs::write(directory.join("compose.yml"), there).unwrap();
    fs::write(directory.join("near_bound.yml"), NEAR_BOUND).unwrap();
    fs::write(directory.join("nearly_full.yml"), NEARLY_FULL).unwrap();
    promtool(
        &deployed("monitoring"),
        &["check", "config", "prometheus.yml"],
    );
    promtool(&directory, &["check", "config", "compose.yml"]);
    promtool(&directory, &["check", "rules", "alerts.yml"]);
    promtool(&directory, &["test", "rules", "near_bound.yml"]);
    promtool(&directory, &["test", "rules", "nearly_full.yml"]);

    let server = Server::start("prometheus-data", &["--shards", "1"]);
    let config = fs::read_to_string(deployed("monitoring/prometheus.yml")).unwrap();
    let config = config
        .replace("127.0.0.1:7412", &server.admin.to_string())
        .replace("interval: 15s", "interval: 1s");
    assert!(config.contains(&server.admin.to_string()), "{config}");
    fs::write(directory.join("prometheus.yml"), config).unwrap();
    check_metrics(&server.get("/metrics").1);
    let prometheus = Prometheus::start(&directory);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = server.client();
        let is_over = &is_over;
        scope.spawn(move || {
            // Some of everything that the dashboard shows.
            for round in 0u64.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let value = round.to_le_bytes();
                client.set(&value, &value).wait().unwrap();
                client.get(&value).wait().unwrap().expect("just set");
                client.get(b"nobody").wait().unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check(&prometheus);
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    });
}

fn check(prometheus: &Prometheus) {
    until("it serves", || {
        prometheus.try_ask("status/buildinfo").is_some()
    });
    until("four scrapes", || {
        let scrapes = prometheus.query(r#"count_over_time((up{job="penstock"} == 1)[1m:1s])"#);
        let count = scrapes.first().and_then(|it| it["value"][1].as_str());
        count.is_some_and(|count| count.parse::<u64>().unwrap() >= 4)
    });
    until("every rule was evaluated", || {
        let rules = prometheus.rules();
        assert!(rules.len() > 20, "{} rules", rules.len());
        rules.iter().all(|rule| rule["health"] != "unknown")
    });
    for rule in prometheus.rules() {
        assert_eq!(rule["health"], "ok", "{rule}");
        // A slow machine may make one wait to be told: pending.
        assert_ne!(rule["state"], "firing", "of a sound node alone: {rule}");
    }
    let alerts = prometheus.rules();
    let is_alert = |name: &str| alerts.iter().any(|rule| rule["name"] == name);
    let mut count = 0;
    for query in deployed_queries() {
        let found = prometheus.query(&query.expression);
        assert!(
            is_alert(&query.name) || query.is_of_cluster() || !found.is_empty(),
            "{} shows nothing: {}",
            query.name,
            query.expression
        );
        count += 1;
    }
    println!("{count} expressions were answered");
}
