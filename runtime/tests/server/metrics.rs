//! The admin port of the real server: what it tells is what clients did, probes say what is so, and
//! nobody who asks badly or slowly keeps the others from their answers.
#![expect(
    unsafe_code,
    reason = "stopping one thread of a process is a system call that std lacks"
)]

mod prometheus;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::command::command;
use crate::promql::{deployed_queries, is_of_cluster};
use crate::scrape::{Numbers, ask, reply};
use crate::scratch;
use penstock_client::{Client, ClientError, ClientOptions, Field, Verbs};
use penstock_net::status::Status;

/// How long something that must come may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that a failing test takes down with it.
struct Server {
    process: Child,
    banner: BufReader<ChildStdout>,
    admin: SocketAddr,
    /// Set when it is ready.
    address: Option<SocketAddr>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(data: &Path, flags: &[&str]) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--value-bytes-max", "16KiB", "--segment-bytes", "2MiB"])
        .args(flags)
        .arg("--data")
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

impl Server {
    /// A server that has told its admin port and is not ready yet.
    fn begin(data: &Path, flags: &[&str]) -> Server {
        let mut process = serve(data, flags).stderr(Stdio::null()).spawn().unwrap();
        let mut banner = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        banner.read_line(&mut line).unwrap();
        let url = line.split_whitespace().nth(1);
        let admin = url.and_then(|url| url.strip_prefix("http://")?.parse().ok());
        Server {
            process,
            banner,
            admin: admin.unwrap_or_else(|| panic!("no admin port is told first: {line:?}")),
            address: None,
        }
    }

    fn become_ready(mut self) -> Server {
        loop {
            let mut line = String::new();
            let len = self.banner.read_line(&mut line).unwrap();
            assert!(len > 0, "the server did not start");
            if let Some(rest) = line.strip_prefix("listening") {
                let address = rest.split_whitespace().next();
                self.address = address.map(|it| it.parse().unwrap());
            }
            if line.trim() == "ready" {
                return self;
            }
        }
    }

    fn start(name: &str, flags: &[&str]) -> Server {
        Server::begin(&folder(name), flags).become_ready()
    }

    fn client(&self) -> Client {
        let options = ClientOptions {
            deadline: PATIENCE,
            ..ClientOptions::default()
        };
        Client::connect(self.address.expect("it is ready"), options).unwrap()
    }

    /// Status and body of a page.
    fn get(&self, page: &str) -> (u16, String) {
        let request = format!("GET {page} HTTP/1.1\r\nHost: penstock\r\n\r\n");
        ask(self.admin, request.as_bytes())
    }

    fn scrape(&self) -> Numbers {
        let (status, body) = self.get("/metrics");
        assert_eq!(status, 200, "{body}");
        Numbers::read(&body)
    }

    /// Asks for a page until it answers so.
    fn until(&self, page: &str, status: u16, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (found, body) = self.get(page);
            if found == status && body.contains(part) {
                return;
            }
            assert!(Instant::now() < deadline, "{page}: {found} {body}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The thread of that name.
    fn thread(&self, name: &str) -> i32 {
        let tasks = format!("/proc/{}/task", self.process.id());
        let named = fs::read_dir(tasks).unwrap().map(|entry| entry.unwrap());
        let mut found = named.filter(|entry| {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            comm.trim() == name
        });
        let found = found.next().unwrap_or_else(|| panic!("no thread {name}"));
        found.file_name().to_string_lossy().parse().unwrap()
    }
}

fn folder(name: &str) -> PathBuf {
    scratch::folder(format!("metrics-{name}"))
}

/// What these tests ask of a scrape.
trait Answered {
    fn answered(&self, operation: &str, status: &str) -> f64;
}

impl Answered for Numbers {
    fn answered(&self, operation: &str, status: &str) -> f64 {
        let labels = [("operation", operation), ("status", status)];
        self.sum("penstock_operations_total", &labels)
    }
}

/// 280 operations, one frame that is refused, a scan and a ping.
fn use_every_verb(client: &Client) {
    let stock = Field::u64(0);
    for round in 0u64..60 {
        let key = format!("key:{round}");
        client
            .set(key.as_bytes(), &round.to_le_bytes())
            .wait()
            .unwrap();
        client
            .get(key.as_bytes())
            .wait()
            .unwrap()
            .expect("just set");
        assert!(client.get(b"nobody").wait().unwrap().is_none());
        let edit = [stock.at_least(30), stock.decrease(1)];
        match client.update_if(key.as_bytes(), &edit).wait() {
            Ok(_) => assert!(round >= 30),
            Err(ClientError::No(_)) => assert!(round < 30),
            Err(other) => panic!("{other:?}"),
        }
        if round % 3 == 0 {
            assert!(client.del(key.as_bytes()).wait().unwrap());
            assert!(!client.del(key.as_bytes()).wait().unwrap());
        }
    }
    assert!(client.set(b"large", &[0; 20 << 10]).wait().is_err());
    assert_eq!(client.scan(b"key:", false).count(), 40);
    client.ping().wait().unwrap();
}

#[test]
fn what_is_scraped_under_load_only_grows_and_is_in_the_end_what_the_client_did() {
    let server = Server::start("load", &["--shards", "1"]);
    server.until("/readyz", 200, "ready");
    server.until("/livez", 200, "live");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let (mut scrapes, mut last) = (0, 0.0);
            while !is_over.load(Ordering::Relaxed) {
                let numbers = server.scrape();
                let now = numbers.sum("penstock_operations_total", &[]);
                assert!(now >= last, "{now} after {last}");
                (scrapes, last) = (scrapes + 1, now);
                std::thread::sleep(Duration::from_millis(10));
            }
            scrapes
        });
        let client = server.client();
        use_every_verb(&client);
        is_over.store(true, Ordering::Relaxed);
        assert!(scraper.join().unwrap() > 0);
    });
    let expected = [
        ("set", "OK", 60.0),
        ("get", "OK", 60.0),
        ("get", "NOT_FOUND", 60.0),
        ("update_if", "OK", 30.0),
        ("update_if", "GUARD_FAILED", 30.0),
        ("del", "OK", 20.0),
        ("del", "NOT_FOUND", 20.0),
        ("unreadable", "TOO_LARGE", 1.0),
    ];
    let deadline = Instant::now() + PATIENCE;
    let numbers = loop {
        let numbers = server.scrape();
        let is_there = expected
            .iter()
            .all(|(operation, status, count)| numbers.answered(operation, status) == *count);
        // The last reply is counted when it has left, a turn later.
        let left = numbers.sum("penstock_stage_seconds_count", &[("stage", "reply")]);
        let has_left = left == numbers.sum("penstock_operations_total", &[]);
        if is_there && has_left && numbers.sum("penstock_pings_total", &[]) >= 1.0 {
            break numbers;
        }
        let counted = expected.map(|(operation, status, _)| numbers.answered(operation, status));
        assert!(Instant::now() < deadline, "{counted:?}, not {expected:?}");
    };
    let scans = numbers.answered("scan", "OK");
    assert!(scans >= 1.0);
    let all: f64 = expected.iter().map(|(.., count)| count).sum::<f64>() + scans;
    assert_eq!(
        numbers.sum("penstock_operations_total", &[]),
        all,
        "and no others"
    );

    // One connection of one shard: every operation passed these stages.
    let count = |stage| numbers.sum("penstock_stage_seconds_count", &[("stage", stage)]);
    assert_eq!(
        (count("queue"), count("apply"), count("reply")),
        (all, all, all)
    );
    // Each of 110 changes was waited for; a reply that shows what is not durable yet waits as well.
    assert!(
        (110.0..=all).contains(&count("flush")),
        "{}",
        count("flush")
    );
    let frames = numbers.sum("penstock_log_frames_total", &[]);
    assert_eq!(
        numbers.sum("penstock_log_commit_records_count", &[]),
        frames
    );
    assert_eq!(numbers.sum("penstock_log_commit_records_sum", &[]), 110.0);
    assert_eq!(numbers.sum("penstock_log_records_total", &[]), 110.0);
    assert!(numbers.sum("penstock_log_device_seconds_count", &[]) >= frames);
    assert!(numbers.sum("penstock_log_written_bytes_total", &[]) >= 4096.0 * frames);
    assert_eq!(numbers.sum("penstock_cache_hits_total", &[]), all - scans);
    assert_eq!(numbers.sum("penstock_start_ratio", &[]), 1.0);
    assert_eq!(numbers.sum("penstock_ready", &[]), 1.0);
    assert!(numbers.sum("process_resident_memory_bytes", &[]) > 1e6);

    // INFO tells the same.
    let text = server.client().info().wait().unwrap();
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(info["counters"]["ops"], 280);
    assert_eq!(info["counters"]["gets"], 120);
    assert_eq!(info["counters"]["guards_failed"], 50);
    assert_eq!(info["answers"]["get"]["NOT_FOUND"], 60);
    assert_eq!(info["histograms"]["apply"]["count"].as_f64(), Some(all));
    assert_eq!(info["counters"]["records"], 110);
}

#[test]
fn every_rule_and_query_that_is_deployed_is_promql_and_finds_what_it_asks_for_in_a_scrape() {
    let server = Server::start("names", &["--shards", "1"]);
    server.client().set(b"key", b"value").wait().unwrap();
    server.client().ping().wait().unwrap();
    let mut numbers = server.scrape();
    // Each number is told by itself, within a moment.
    let deadline = Instant::now() + PATIENCE;
    while numbers.answered("set", "OK") < 1.0 {
        assert!(Instant::now() < deadline, "no SET was told");
        numbers = server.scrape();
    }
    let statuses = Status::ALL.iter().map(|status| status.name()).collect();
    // What only a node of a cluster tells is checked with those, in `replicas.rs`, and what only a
    // server with a certificate tells in `tls/files.rs`. What only a node that decides tells is
    // checked in `cluster/failover.rs`. `up` is Prometheus's own.
    let of_others =
        |metric: &str| is_of_cluster(metric) || metric.starts_with("penstock_tls_certificate_");
    let is_asked = |metric: &str| metric != "up" && !of_others(metric);
    let queries = deployed_queries();
    let missing = queries.iter();
    let missing = missing.flat_map(|query| query.missing(is_asked, &numbers.samples, &statuses));
    let missing: Vec<String> = missing.collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_scraper_gets_the_format_that_it_asks_for_with_the_same_numbers_in_both() {
    let server = Server::start("formats", &["--shards", "1"]);
    let scrape = |accept: &str| {
        let mut stream = TcpStream::connect(server.admin).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: penstock\r\n{accept}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let kind = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Type: "));
        (kind.unwrap().to_string(), body.to_string())
    };
    let (kind, text) = scrape("Accept: text/plain;version=0.0.4\r\n");
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(
        scrape("").0,
        kind,
        "who asks for nothing gets what all can read"
    );
    assert!(!text.contains("# EOF") && text.contains("# TYPE penstock_operations_total counter\n"));
    let accept =
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n";
    let (kind, open) = scrape(accept);
    assert_eq!(
        kind,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE penstock_operations counter\n"));
    let names = |text: &str| -> Vec<_> {
        let samples = Numbers::read(text).samples.into_iter();
        samples.map(|(name, labels, _)| (name, labels)).collect()
    };
    let of_text: BTreeSet<_> = names(&text).into_iter().collect();
    assert_eq!(of_text, names(&open).into_iter().collect());
}

#[test]
fn the_runbook_says_what_to_do_for_each_alert_and_for_no_other() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let read = |name: &str| fs::read_to_string(deploy.join(name)).unwrap();
    let alerts: BTreeSet<String> = read("monitoring/alerts.yml")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .map(str::to_string)
        .collect();
    assert!(alerts.len() > 5, "{alerts:?}");
    let runbook = read("RUNBOOK.md") + &read("FAILOVER.md");
    let words = runbook.split(|letter: char| !letter.is_ascii_alphanumeric());
    let treated: BTreeSet<String> = words
        .filter(|word| word.len() > "Penstock".len() && word.starts_with("Penstock"))
        .map(str::to_string)
        .collect();
    assert_eq!(treated, alerts);
}

#[test]
fn bad_requests_get_clear_errors_and_slow_clients_hold_nobody_up() {
    let server = Server::start("hostile", &["--shards", "1"]);
    let admin = server.admin;
    let refused = |bytes: &[u8], status: u16, part: &str| {
        let (found, body) = ask(admin, bytes);
        assert_eq!(found, status, "{body}");
        assert!(body.contains(part) && body.len() < 1_000, "{body}");
    };
    refused(b"POST /metrics HTTP/1.1\r\n\r\n", 405, "GET or HEAD");
    refused(b"DELETE /livez HTTP/1.1\r\n\r\n", 405, "DELETE");
    refused(b"GET / HTTP/1.1\r\n\r\n", 404, "/readyz");
    refused(b"GET /metrics\r\n\r\n", 400, "not an HTTP/1 request");
    refused(&[0xff; 64], 400, "not an HTTP/1 request");
    let line = format!("GET /{} HTTP/1.1\r\n", "a".repeat(100_000));
    refused(line.as_bytes(), 431, "8192 bytes");
    let headers = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(500));
    refused(headers.as_bytes(), 431, "64 headers");
    let (status, body) = ask(admin, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((status, body.as_str()), (200, ""));

    // More than there are places for, each a different way of being slow.
    let connect = || TcpStream::connect(admin).unwrap();
    let slow: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = connect();
            let said: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /metr",
                // The reply is never read.
                _ => b"GET /metrics HTTP/1.1\r\n\r\n",
            };
            stream.write_all(said).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(server.get("/livez").0, 200);
        server.scrape();
    }
    drop(slow);

    let mut late = connect();
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    late.write_all(b"GET /readyz HTTP/1.1\r\nHost:").unwrap();
    let (status, body) = reply(&mut late);
    assert_eq!(status, 408);
    assert!(body.contains("within 5 s"), "{body}");
    server.client().set(b"alive", b"yes").wait().unwrap();
}

#[test]
fn a_full_server_is_live_but_not_ready_until_there_is_room_again() {
    let flags = ["--shards", "1", "--disk-bytes-max", "16MiB"];
    let server = Server::start("full", &flags);
    let client = server.client();
    let mut keys = 0u64;
    let deadline = Instant::now() + PATIENCE;
    // A log that was full for a moment takes more when one more segment has come, so both pages
    // must say FULL in one round.
    loop {
        match client.set(&keys.to_le_bytes(), &[7; 10_000]).wait() {
            Ok(_) => keys += 1,
            Err(ClientError::Busy(text)) if text.starts_with("FULL") => {
                let (status, body) = server.get("/readyz");
                let numbers = server.scrape();
                if status == 503
                    && body.contains("FULL: shard 0 can make no more segments")
                    && numbers.answered("set", "FULL") >= 1.0
                    && numbers.sum("penstock_disk_full", &[]) == 1.0
                    && numbers.sum("penstock_ready", &[]) == 0.0
                {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(
            Instant::now() < deadline,
            "{keys} keys, and never full for good"
        );
        assert!(keys < 10_000, "16 MiB take no 100 MB");
    }
    assert_eq!(server.get("/livez").0, 200);
    for key in 0..keys {
        assert!(client.del(&key.to_le_bytes()).wait().unwrap());
    }
    server.until("/readyz", 200, "ready");
}

/// Lowers or raises the limit of open files of a running server; `false` where that is not
/// possible.
fn limit_files(server: &Server, limit: usize) -> bool {
    let pid = server.process.id().to_string();
    let mut prlimit = Command::new("prlimit");
    let limited = prlimit.args(["--pid", &pid, &format!("--nofile={limit}:")]);
    limited.status().is_ok_and(|it| it.success())
}

/// The limit of open files at which a server has room for `more` of them.
fn limit_for(server: &Server, more: usize) -> usize {
    let folder = format!("/proc/{}/fd", server.process.id());
    let open: BTreeSet<usize> = fs::read_dir(folder)
        .unwrap()
        .filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok())
        .collect();
    let mut free = (0..).filter(|number| !open.contains(number));
    free.nth(more).unwrap()
}

#[test]
fn a_server_without_a_descriptor_for_a_segment_says_so_and_not_that_its_disk_is_full() {
    let flags = ["--shards", "1", "--disk-bytes-max", "1GiB"];
    let server = Server::start("descriptors", &flags);
    let client = server.client();
    client.set(b"key", b"value").wait().unwrap();
    // The admin port needs one for a probe, and a segment one more.
    if !limit_files(&server, limit_for(&server, 1)) {
        println!("SKIPPED: prlimit cannot lower the limit of a process here");
        return;
    }
    let refused = (0..10_000u64).find_map(|number| {
        let set = client.set(&number.to_le_bytes(), &[7; 10_000]).wait();
        set.err()
    });
    match refused {
        Some(ClientError::Busy(text)) => {
            assert!(
                text.starts_with("BUSY") && text.contains("file descriptor"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    server.until("/readyz", 503, "no file descriptor is left");
    let numbers = server.scrape();
    assert_eq!(numbers.sum("penstock_no_file_descriptor", &[]), 1.0);
    assert_eq!(numbers.sum("penstock_disk_full", &[]), 0.0);
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    assert_eq!(info["counters"]["no_file_descriptor"], 1, "{info}");
    assert_eq!(info["counters"]["disk_full"], 0);

    assert!(limit_files(&server, 1024));
    server.until("/readyz", 200, "ready");
    client.set(b"later", &[7; 10_000]).wait().unwrap();
    let numbers = server.scrape();
    assert_eq!(numbers.sum("penstock_no_file_descriptor", &[]), 0.0);
}

#[test]
fn without_an_admin_port_there_is_none_and_a_taken_one_is_named() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    let data = folder("taken");
    let output = serve(&data, &["--admin-listen", &taken]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains(&taken) && text.contains("--admin-listen"),
        "{text}"
    );

    let mut process = serve(&folder("off"), &["--admin-listen", "off", "--shards", "1"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let banner = BufReader::new(process.stdout.take().unwrap());
    let lines = banner.lines().map_while(Result::ok);
    let said: Vec<String> = lines.take_while(|line| line != "ready").collect();
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let names: Vec<String> = tasks
        .map(|entry| fs::read_to_string(entry.unwrap().path().join("comm")).unwrap_or_default())
        .collect();
    let _ = process.kill();
    let _ = process.wait();
    assert!(
        said.iter().any(|line| line.starts_with("listening")),
        "{said:?}"
    );
    assert!(
        !said.iter().any(|line| line.starts_with("admin")),
        "{said:?}"
    );
    assert!(
        !names.iter().any(|name| name.contains("admin")),
        "{names:?}"
    );
}

/// A thread of another process that stands still while this lives.
struct Stopped(i32);

impl Stopped {
    fn stop(thread: i32) -> Stopped {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: SEIZE and INTERRUPT take no memory of this process, only the number of a thread.
        let sought = unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, none, none) };
        assert_eq!(
            sought, 0,
            "the system lets nobody stop the threads of a child"
        );
        // SAFETY: as above.
        let stopped = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none) };
        assert_eq!(stopped, 0);
        let mut status = 0;
        // SAFETY: `status` is a number of ours that outlives the call.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        assert_eq!(waited, thread);
        assert!(libc::WIFSTOPPED(status));
        Stopped(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: DETACH takes no memory of this process, only the number of the thread and no
        // signal.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

#[test]
fn a_server_that_starts_is_live_and_not_ready_and_says_how_far_it_is() {
    let server = Server::begin(&folder("start"), &["--shards", "1"]);
    let main = i32::try_from(server.process.id()).unwrap();
    let stopped = Stopped::stop(main);
    let (status, body) = server.get("/readyz");
    assert_eq!(status, 503, "{body}");
    assert!(
        body.starts_with("starting, ") && body.ends_with(" %\n"),
        "{body}"
    );
    assert_eq!(server.get("/livez").0, 200);
    let numbers = server.scrape();
    assert_eq!(numbers.sum("penstock_ready", &[]), 0.0);
    assert!(numbers.sum("penstock_start_ratio", &[]) < 1.0);
    drop(stopped);
    let server = server.become_ready();
    server.until("/readyz", 200, "ready");
}

#[test]
fn a_loop_that_hangs_is_not_live_and_one_that_is_idle_is() {
    let server = Server::start("hang", &["--shards", "1"]);
    let stopped = Stopped::stop(server.thread("penstock-0"));
    server.until("/livez", 503, "the loop of shard 0 has not turned for ");
    assert_eq!(server.get("/readyz").0, 200, "it may come back");
    drop(stopped);
    server.until("/livez", 200, "live");
    // Idle for longer than a loop may stand still.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(server.get("/livez").0, 200);
}
