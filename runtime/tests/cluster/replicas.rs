//! What real servers of one cluster tell of their replicas: who is ready for what, how far one is behind that stands still
//! or is gone, that nobody waits for it who did not ask for that, and what it takes back.

mod command;
mod scrape;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_net::client::{Client, ClientError, ClientOptions};
use penstock_net::level::AckLevel;

use command::command;
use scrape::{Numbers, ask};

/// One cluster at a time: there are few cores.
static ONE: Mutex<()> = Mutex::new(());
const PATIENCE: Duration = Duration::from_secs(120);
/// Partitions of a cluster.
const ALL: f64 = 256.0;

/// A server that a failing test takes down with it.
struct Server {
    process: Child,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Drop for Server {
    /// As hard as a crash.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn client(&self, level: AckLevel) -> Client {
        let options = ClientOptions {
            level,
            deadline: PATIENCE,
            ..ClientOptions::default()
        };
        Client::connect(self.address, options).expect("it listens")
    }

    fn page(&self, page: &str) -> (u16, String) {
        let request = format!("GET {page} HTTP/1.1\r\nHost: penstock\r\n\r\n");
        ask(self.admin, request.as_bytes())
    }

    /// A number of `/metrics`, of all shards together.
    fn number(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let (status, body) = self.page("/metrics");
        assert_eq!(status, 200, "{body}");
        Numbers::read(&body).sum(name, labels)
    }

    fn partitions(&self, role: &str) -> f64 {
        self.number("penstock_replication_partitions", &[("role", role)])
    }

    /// Asks until all of it is so.
    fn until_ready(&self, page: &str, status: u16, part: &str) {
        let mut last = String::new();
        until(&format!("{page}: {status} {part}"), || {
            let (found, body) = self.page(page);
            if last != body {
                println!("{page}: {found} {body}");
                last.clone_from(&body);
            }
            found == status && body.contains(part)
        });
    }

    /// Asks until the number is this.
    fn until_number(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let mut last = f64::NAN;
        until(&format!("{name} {labels:?} is {wanted}"), || {
            let found = self.number(name, labels);
            if found != last {
                println!("{name} {labels:?} is {found}");
                last = found;
            }
            found == wanted
        });
    }

    fn until_level(&self, peer: &str, shards: f64) {
        let of = [("peer", peer)];
        self.until_number("penstock_replication_link_state", &of, 3.0 * shards);
        for name in ["lag", "durable_lag"] {
            for unit in ["records", "bytes", "seconds"] {
                let name = format!("penstock_replication_{name}_{unit}");
                self.until_number(&name, &of, 0.0);
            }
        }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([name, &self.process.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The files of a cluster of two, the first with two shards.
struct Cluster {
    folder: PathBuf,
    links: [u16; 2],
    clients: [u16; 2],
    replica_timeout_ms: u32,
}

impl Cluster {
    fn new(name: &str, replica_timeout_ms: u32) -> Cluster {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("secret"), "0123456789abcdef0123456789abcdef").expect("written");
        let free = || {
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            listener.local_addr().expect("bound").port()
        };
        let cluster = Cluster {
            folder,
            links: [free(), free()],
            clients: [free(), free()],
            replica_timeout_ms,
        };
        cluster.place();
        cluster
    }

    fn file(&self) -> PathBuf {
        self.folder.join("cluster.toml")
    }

    /// Lets the first node write everything, and the other one hold it.
    fn place(&self) {
        let ([one, two], [first, second]) = (self.links, self.clients);
        let text = format!(
            r#"version = 1
cluster_id = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
secret_file = "secret"
replica_timeout_ms = {}

[[node]]
number = 1
links = "127.0.0.1:{one}"
clients = "127.0.0.1:{first}"

[[node]]
number = 2
links = "127.0.0.1:{two}"
clients = "127.0.0.1:{second}"

[[placement]]
partitions = [0, 255]
generation = 1
primary = 1
sync = [2]
"#,
            self.replica_timeout_ms
        );
        fs::write(self.file(), text).expect("written");
    }

    fn start(&self, node: u8, more: &[&str]) -> Server {
        let at = usize::from(node) - 1;
        let shards = if node == 1 { "2" } else { "1" };
        let mut process = command(&["serve", "--shard-ports", "0"])
            .args(["--admin-listen", "127.0.0.1:0", "--cache-bytes", "1MiB"])
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.clients[at]))
            .args(["--shards", shards, "--value-bytes-max", "16KiB"])
            .args(["--segment-bytes", "2MiB"])
            .args(["--cluster-node", &node.to_string(), "--cluster"])
            .arg(self.file())
            .arg("--data")
            .arg(self.folder.join(format!("node-{node}")))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let (mut admin, mut address) = (None, None);
        let mut banner = BufReader::new(process.stdout.take().expect("piped")).lines();
        for line in banner.by_ref().map_while(Result::ok) {
            let word = line.split_whitespace().nth(1).unwrap_or_default();
            if line.starts_with("admin") {
                admin = word.strip_prefix("http://").map(|it| it.parse());
            }
            if line.starts_with("listening") {
                address = Some(word.parse());
            }
            if line == "ready" {
                break;
            }
        }
        std::thread::spawn(move || banner.for_each(drop));
        Server {
            process,
            address: address.expect("it listens").expect("an address"),
            admin: admin.expect("it tells").expect("an address"),
        }
    }

    /// Exit code and what was said of a command on the cluster.
    fn command(&self, words: &[&str]) -> (i32, String) {
        let output = command(&["cluster"])
            .args(words)
            .arg("--file")
            .arg(self.file())
            .output()
            .expect("it runs");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        println!("{words:?}: {told}");
        (output.status.code().expect("it ended"), told)
    }
}

const WRITERS: u32 = 4;

/// Each of four sets keys of its own, one after the other: all is acknowledged.
fn write(server: &Server, each: u32, value: &[u8]) {
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let client = server.client(AckLevel::Disk);
                let sets = (0..each).map(|number| format!("{writer}:{number}"));
                let sets: Vec<_> = sets.map(|key| client.set(key.as_bytes(), value)).collect();
                for set in sets {
                    set.wait().expect("acknowledged");
                }
            });
        }
    });
}

/// Every number of replication that the deployed files ask for is one that a primary tells.
fn check_deployed_names(primary: &Server) {
    let (_, body) = primary.page("/metrics");
    let numbers = Numbers::read(&body);
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring");
    let mut used = 0;
    for entry in fs::read_dir(deploy).expect("there") {
        let text = fs::read_to_string(entry.expect("read").path()).expect("text");
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_part(letter));
        for word in words.filter(|word| word.starts_with("penstock_replication_")) {
            let mut samples = numbers.samples.iter();
            assert!(samples.any(|(name, ..)| name == word), "{word}");
            used += 1;
        }
    }
    assert!(used > 20, "{used} uses");
}

#[test]
fn a_replica_that_stands_still_lags_and_lets_nobody_wait_and_is_level_again_when_it_goes_on() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let cluster = Cluster::new("replicas-still", 60_000);
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_ready(
        "/readyz?role=primary",
        200,
        "ready: primary of 256 partitions",
    );
    let to_second = [("peer", "2"), ("role", "sync")];
    let states = "penstock_replication_link_state";
    assert_eq!(first.number(states, &to_second), 0.0, "nobody is there");
    let second = cluster.start(2, &[]);
    second.until_ready("/readyz", 200, "ready: follows 256 partitions");
    second.until_ready("/readyz?role=primary", 503, "not primary");
    assert_eq!(second.page("/readyz?role=writer").0, 400);
    assert_eq!(second.page("/livez").0, 200);
    write(&first, 100, b"both");
    first.until_level("2", 2.0);
    assert_eq!(second.partitions("following"), ALL);
    assert_eq!(first.partitions("primary"), ALL);
    second.until_number(states, &[("peer", "1"), ("role", "primary")], 3.0);
    check_deployed_names(&first);

    // More than the links may have under way and more than a ring holds, of each shard.
    second.signal("-STOP");
    let value = vec![7; 16 << 10];
    let each = 1_000;
    write(&first, each, &value);
    let records = f64::from(WRITERS * each);
    let lag = "penstock_replication_lag_records";
    first.until_number(lag, &to_second, records);
    let shares = |name: &str| first.number(name, &to_second);
    assert!(shares("penstock_replication_lag_bytes") >= records * value.len() as f64);
    let seconds = shares("penstock_replication_lag_seconds");
    until("the lag grows with the time", || {
        shares("penstock_replication_lag_seconds") > seconds + 1.0
    });
    // The writers at level disk waited for nobody, and what stands still takes no more memory than it may.
    assert_eq!(first.number("penstock_replication_waits_total", &[]), 0.0);
    let below = "penstock_replication_waits_below_replica_total";
    assert_eq!(first.number(below, &[]), 0.0);
    let waiting = "penstock_replication_waiting_replies";
    assert_eq!(first.number(waiting, &[]), 0.0);
    let mib = |name: &str| first.number(name, &[]) / f64::from(1 << 20);
    let (ring, buffers) = (
        mib("penstock_replication_ring_bytes"),
        mib("penstock_replication_buffer_bytes"),
    );
    println!("{ring} MiB of rings and {buffers} MiB of buffers in two shards");
    assert!(ring > 16.0 && ring <= 2.0 * 16.5, "{ring} MiB of rings");
    assert!(buffers <= 2.0 * 16.0, "{buffers} MiB of buffers");

    second.signal("-CONT");
    first.until_level("2", 2.0);
    second.until_ready("/readyz", 200, "follows 256 partitions");
    // Level replica waits, and is counted.
    let client = first.client(AckLevel::Replica);
    client.set(b"key", b"value").wait().expect("acknowledged");
    first.until_number("penstock_replication_waits_total", &[], 1.0);
    assert_eq!(first.number(below, &[]), 0.0);
    let durable = "penstock_replication_durable_seconds_count";
    assert!(first.number(durable, &[]) > 0.0);

    // The primary is gone: nobody is ready, and the table still shows who is there.
    drop(first);
    second.until_ready("/readyz", 503, "followed: 256 partitions: no link");
    assert_eq!(second.partitions("followed"), ALL);
    let (code, table) = cluster.command(&["status"]);
    assert!(
        code == 3 && table.contains("node 1 does not answer"),
        "{table}"
    );
    assert!(table.contains("followed (sync)"), "{table}");
    let (code, json) = cluster.command(&["status", "--json"]);
    let json: serde_json::Value =
        serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!(code, 3);
    assert!(json["nodes"][0]["error"].is_string(), "{json}");
    assert_eq!(json["nodes"][1]["replication"]["roles"]["followed"], 256);
}

#[test]
fn what_a_node_wrote_alone_is_told_as_lag_and_then_as_a_tail_and_noreplicas_is_counted() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let cluster = Cluster::new("replicas-tail", 50);
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_ready("/readyz", 200, "primary");
    let second = cluster.start(2, &[]);
    write(&first, 50, b"both");
    first.until_level("2", 2.0);

    // It is gone, and what it lacks is still known.
    drop(second);
    first.until_number("penstock_replication_link_state", &[("peer", "2")], 0.0);
    write(&first, 25, b"alone");
    let records = f64::from(WRITERS * 25);
    first.until_number(
        "penstock_replication_lag_records",
        &[("peer", "2")],
        records,
    );
    assert!(first.number("penstock_replication_lag_seconds", &[]) > 0.0);
    match first.client(AckLevel::Replica).set(b"0:0", b"alone").wait() {
        Err(ClientError::Unknown(text)) => assert!(text.contains("NOREPLICAS"), "{text}"),
        other => panic!("{other:?}"),
    }
    first.until_number("penstock_replication_noreplicas_total", &[], 1.0);
    first.until_number("penstock_replication_waiting_replies", &[], 0.0);
    assert_eq!(first.number("penstock_lostfound_bytes", &[]), 0.0);

    drop(first);
    let second = cluster.start(2, &[]);
    second.until_ready("/readyz", 503, "idle");
    let promote = ["promote", "--to", "2", "--force", "--accept-loss"];
    let (code, told) = cluster.command(&promote);
    assert_eq!(code, 0, "{told}");
    second.until_ready("/readyz?role=primary", 200, "primary of 256");
    let first = cluster.start(1, &[]);
    first.until_ready("/readyz", 200, "follows 256");
    let tail = first.number("penstock_replication_tail_records_total", &[]);
    // Those 101, and the record with which the first node began each of its partitions anew if it did.
    assert!(tail > records, "{tail} records");
    assert!(first.number("penstock_lostfound_bytes", &[]) > 0.0);
    assert_eq!(first.number("penstock_replication_generation", &[]), 2.0);
}

#[test]
fn who_is_refused_in_the_handshake_is_counted_by_reason_on_both_sides() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let cluster = Cluster::new("replicas-refused", 60_000);
    let first = cluster.start(1, &["--cluster-new"]);
    let failed = "penstock_replication_handshakes_failed_total";
    until("nobody is there", || first.number(failed, &[]) > 0.0);
    // The first has read its secret; the second one reads another.
    let other = "another secret that is long enough, too";
    fs::write(cluster.folder.join("secret"), other).expect("written");
    let second = cluster.start(2, &[]);
    let refused = |server: &Server, by| {
        let labels = [("by", by), ("reason", "credentials")];
        server.number("penstock_replication_links_refused_total", &labels) > 0.0
    };
    until("the first counts it", || refused(&first, "here"));
    until("the second counts it", || refused(&second, "there"));
    let cluster_differs = [("reason", "cluster")];
    let strangers = first.number("penstock_replication_links_refused_total", &cluster_differs);
    assert_eq!(strangers, 0.0);
    first.until_ready("/readyz", 200, "primary of 256 partitions");
    second.until_ready("/readyz", 503, "idle: 256 partitions");
}

/// How many records were in each bucket of a histogram, by its bound in seconds.
fn buckets(server: &Server, name: &str) -> Vec<(f64, f64)> {
    let (_, body) = server.page("/metrics");
    let prefix = format!("{name}_bucket{{le=\"");
    let lines = body.lines().filter_map(|line| line.strip_prefix(&prefix));
    let buckets = lines.map(|line| {
        let (bound, count) = line.split_once("\"} ").expect("a bound and a count");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        (number(bound), number(count))
    });
    buckets.collect()
}

/// The bound that at least this share of what came in between is not above.
fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> f64 {
    let news: Vec<(f64, f64)> = before
        .iter()
        .zip(after)
        .map(|(before, after)| (after.0, after.1 - before.1))
        .collect();
    let all = news.last().expect("buckets").1;
    let found = news.iter().find(|(_, count)| *count >= all * share);
    found.expect("the last has all").0
}

/// Sets keys for so long, at most so many in a second; how many that were.
fn load(server: &Server, a_second: f64, time: Duration) -> u32 {
    const IN_FLIGHT: usize = 256;
    let done = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let done = &done;
            scope.spawn(move || {
                let client = server.client(AckLevel::Disk);
                let began = Instant::now();
                let mut pending = std::collections::VecDeque::new();
                let mut count = 0u32;
                while began.elapsed() < time {
                    let due = began.elapsed().as_secs_f64() * a_second / f64::from(WRITERS);
                    if f64::from(count) >= due || pending.len() >= IN_FLIGHT {
                        match pending.pop_front() {
                            Some(set) => {
                                let set: penstock_net::client::Pending<_> = set;
                                set.wait().expect("acknowledged");
                            }
                            None => std::thread::sleep(Duration::from_micros(200)),
                        }
                        continue;
                    }
                    let key = format!("{writer}:{}", count % 10_000);
                    pending.push_back(client.set(key.as_bytes(), &[7; 64]));
                    count += 1;
                }
                for set in pending {
                    set.wait().expect("acknowledged");
                }
                done.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
            });
        }
    });
    done.into_inner()
}

#[test]
#[ignore = "a measurement, worth what the machine is: run it alone, with --nocapture"]
fn measure_lag_at_half_load() {
    let cluster = Cluster::new("replicas-lag", 60_000);
    let first = cluster.start(1, &["--cluster-new"]);
    first.until_ready("/readyz", 200, "primary");
    let _second = cluster.start(2, &[]);
    first.until_level("2", 2.0);
    let time = Duration::from_secs(5);
    let most = f64::from(load(&first, f64::MAX, time)) / time.as_secs_f64();
    first.until_level("2", 2.0);
    let names = ["received", "durable"].map(|it| format!("penstock_replication_{it}_seconds"));
    let before = names.each_ref().map(|name| buckets(&first, name));
    let time = Duration::from_secs(15);
    let half = f64::from(load(&first, most / 2.0, time)) / time.as_secs_f64();
    first.until_level("2", 2.0);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{most:.0} sets a second at most, {half:.0} a second now; load average {load}");
    for (name, before) in names.iter().zip(&before) {
        let after = buckets(&first, name);
        let ms = |share| 1000.0 * quantile(before, &after, share);
        let (p50, p99, p999) = (ms(0.5), ms(0.99), ms(0.999));
        println!("{name}: p50 {p50:.2} ms, p99 {p99:.2} ms, p99.9 {p999:.2} ms");
    }
}
