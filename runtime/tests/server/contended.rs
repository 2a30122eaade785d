//! The real server beside programs that want all CPUs. Counts are exact, no time is asserted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use penstock_client::{Client, Verbs};
use penstock_net::level::AckLevel;
use serde_json::Value;

use crate::cluster::nodes::{Cluster, wait_for_follower, wait_for_primary};
use crate::command::command;
use crate::process::{Server, the_machine};
use crate::scratch;

/// How long programs beside a test want a CPU at most, and the test waits for what they cause.
const BESIDE_MAX: Duration = Duration::from_secs(180);
/// Programs for each CPU.
const HOGS_PER_CPU: usize = 6;

/// Threads that want a CPU each.
struct Hogs {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Hogs {
    fn start() -> Hogs {
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Instant::now() + BESIDE_MAX;
        let cpus = std::thread::available_parallelism().unwrap().get();
        let hog = |_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    for _ in 0..10_000 {
                        std::hint::spin_loop();
                    }
                }
            })
        };
        let threads = (0..HOGS_PER_CPU * cpus).map(hog).collect();
        Hogs { is_over, threads }
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(name: &str, options: &[&str]) -> (Server, PathBuf) {
    let data = scratch::folder(name);
    let server = start(&data, options);
    (server, data)
}

fn start(data: &Path, options: &[&str]) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--admin-listen", "off", "--resp-listen", "off"])
            .args(["--shards", "1", "--cache-bytes", "16MiB"])
            .args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"])
            .args(options)
            .arg("--data")
            .arg(data),
    )
}

fn counter(client: &Client, name: &str) -> u64 {
    let info = client.info().wait().unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    info["counters"][name].as_u64().unwrap()
}

/// One SET after the other until the server says that its CPU is contended. `false` on a kernel
/// that counts no run delay.
fn is_contended(client: &Client) -> bool {
    is_contended_beside(client, client)
}

/// The same of one server while another one is written to.
fn is_contended_beside(server: &Client, written: &Client) -> bool {
    if fs::metadata("/proc/thread-self/schedstat").is_err() {
        eprintln!("SKIPPED: this kernel counts no run delay");
        return false;
    }
    let until = Instant::now() + BESIDE_MAX;
    while counter(server, "cpu_contended") == 0 {
        assert!(
            Instant::now() < until,
            "the CPU counts as free beside all these programs"
        );
        for _ in 0..20 {
            written.set(b"key", b"value").wait().unwrap();
        }
    }
    true
}

/// Writes that a test makes at the least.
const SETS: u64 = 200;
/// Writes of one round, one after the other.
const ROUND_SETS: u64 = 50;

/// What a round of lone durable writes has cost.
#[derive(Debug)]
struct Costs {
    /// Requests that a thread of the disk has carried out.
    punted: u64,
    watches: u64,
    inline: u64,
    flushes: u64,
    /// Sleeps of the shard's thread.
    slept: u64,
}

fn costs(server: &Server, client: &Client) -> Costs {
    let names = ["storage_punted", "watches", "storage_inline", "flushes"];
    let begun = names.map(|name| counter(client, name));
    let slept_before = slept(server);
    for _ in 0..ROUND_SETS {
        client.set(b"key", b"value").wait().unwrap();
    }
    let slept = slept(server) - slept_before;
    let since = |at: usize| counter(client, names[at]) - begun[at];
    Costs {
        punted: since(0),
        watches: since(1),
        inline: since(2),
        flushes: since(3),
        slept,
    }
}

#[test]
fn a_lone_durable_write_on_a_contended_cpu_needs_no_other_thread_and_no_watch() {
    let _machine = the_machine();
    let (server, data) = serve("contended", &[]);
    let client = server.client();
    let hogs = Hogs::start();
    if is_contended(&client) {
        let cpus = std::thread::available_parallelism().unwrap().get();
        assert_eq!(counter(&client, "off_core"), u64::from(cpus > 1));
        // A device that takes 0.1 s for a write is not waited for again for a second, later for up
        // to 64 s. So a busy disk makes rounds with writes that are not inline.
        let until = Instant::now() + BESIDE_MAX / 2;
        loop {
            let costs = costs(&server, &client);
            assert_eq!(costs.watches, 0);
            let are_inline = (ROUND_SETS..=costs.flushes).contains(&costs.inline);
            // One sleep for the command and two for the device; some sleeps end by timers, more of
            // them in a round whose writes wait long for the CPU.
            if costs.punted == 0 && are_inline && costs.slept <= 4 * ROUND_SETS {
                break;
            }
            assert!(
                Instant::now() < until,
                "no round without a slow write and with 4 sleeps a write at most: {costs:?}"
            );
        }
        assert_eq!(
            counter(&client, "cpu_contended"),
            1,
            "the programs still run"
        );
    }
    drop(hogs);
    server.stop();
    fs::remove_dir_all(data).unwrap();
}

/// How often the thread of the shard has slept.
fn slept(server: &Server) -> u64 {
    status_of_shard(server, "voluntary_ctxt_switches:")
        .parse()
        .unwrap()
}

/// A line of what the system says of the thread of the shard.
fn status_of_shard(server: &Server, name: &str) -> String {
    let tasks = format!("/proc/{}/task", server.process.id());
    let tasks = fs::read_dir(tasks)
        .unwrap()
        .map(|task| task.unwrap().path());
    let is_shard = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "penstock-0\n")
    };
    let shard = tasks
        .into_iter()
        .find(is_shard)
        .expect("the thread of the shard");
    let status = fs::read_to_string(shard.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.expect("the line").trim().to_string()
}

#[test]
fn kill_9_keeps_what_the_thread_of_the_shard_made_durable_itself() {
    let _machine = the_machine();
    let (mut server, data) = serve("contended-kill", &[]);
    let client = server.client();
    let hogs = Hogs::start();
    let is_contended = is_contended(&client);
    let inline = counter(&client, "storage_inline");
    let key = |number: u64| format!("key:{number}").into_bytes();
    let until = Instant::now() + BESIDE_MAX / 2;
    let mut written = 0;
    // A busy disk makes writes that are not inline, for up to 64 s.
    while written < SETS || (is_contended && counter(&client, "storage_inline") == inline) {
        assert!(Instant::now() < until, "no write of {written} was inline");
        for number in written..written + SETS {
            client
                .set(&key(number), &number.to_le_bytes())
                .wait()
                .unwrap();
        }
        written += SETS;
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    drop(hogs);
    let server = start(&data, &[]);
    let client = server.client();
    for number in 0..written {
        let found = client.get(&key(number)).wait().unwrap();
        let found = found.unwrap_or_else(|| panic!("{number} is gone"));
        assert_eq!(found.bytes[..], number.to_le_bytes());
    }
    server.stop();
    fs::remove_dir_all(data).unwrap();
}

#[test]
fn a_member_on_a_contended_cpu_answers_its_primary_and_leaves_its_writes_to_the_disk() {
    let _machine = the_machine();
    let cluster = Cluster::new("contended-member");
    let first = cluster.start(1, &["--cluster-new"]);
    wait_for_primary(&first);
    let second = cluster.start(2, &[]);
    wait_for_follower(&first, &second);
    let (client, member) = (first.client(AckLevel::All), second.client(AckLevel::Disk));
    let hogs = Hogs::start();
    if is_contended(&client) && is_contended_beside(&member, &client) {
        let (inline, flushes) = (
            counter(&client, "storage_inline"),
            counter(&member, "flushes"),
        );
        let until = Instant::now() + BESIDE_MAX / 2;
        while counter(&client, "storage_inline") == inline {
            assert!(Instant::now() < until, "no write was inline");
            for _ in 0..SETS {
                client.set(b"key", b"value").wait().unwrap();
            }
        }
        wait_for_follower(&first, &second);
        assert!(counter(&member, "flushes") > flushes);
        assert_eq!(counter(&member, "storage_inline"), 0);
    }
    drop(hogs);
}
