//! One server and the commands that a newcomer tries, by both interfaces to the kernel.

mod apply;
mod tokens;
mod transactions;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::command::command;
use crate::process::signal;
use crate::scratch::folder;

/// A server that a failing test takes down with it.
struct Server {
    process: Child,
    address: String,
    /// Ports that one shard alone listens on.
    shard_ports: Vec<u16>,
    /// What it printed until it was ready.
    said: String,
}

impl Server {
    /// Starts on free ports and reads the addresses from what the server says of itself.
    fn start(directory: &Path, flags: &[&str]) -> Server {
        let mut process = command(&["serve", "--data"])
            .arg(directory)
            .args(["--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
            .args(["--value-bytes-max", "64KiB"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut banner = BufReader::new(process.stdout.take().unwrap());
        let mut server = Server {
            process,
            address: String::new(),
            shard_ports: Vec::new(),
            said: String::new(),
        };
        let mut line = String::new();
        while banner.read_line(&mut line).unwrap() > 0 {
            server.said += &line;
            if let Some(rest) = line.trim().strip_prefix("listening") {
                server.address = rest.split_whitespace().next().unwrap().to_string();
                server.shard_ports = rest
                    .split_whitespace()
                    .filter_map(|word| word.parse().ok())
                    .collect();
            }
            if line.trim() == "ready" {
                // The rest is read too, so that the server never waits for this pipe.
                std::thread::spawn(move || std::io::copy(&mut banner, &mut std::io::sink()));
                return server;
            }
            line.clear();
        }
        let mut said = String::new();
        let mut errors = server.process.stderr.take().unwrap();
        errors.read_to_string(&mut said).unwrap();
        panic!("the server did not start: {said}");
    }

    /// Runs a command against this server.
    fn ask(&self, words: &[&str]) -> Output {
        // A machine that is busy with something else answers late.
        let waits: &[&str] = match words[0] {
            "bench" => &[],
            _ => &["--timeout-ms", "60000"],
        };
        command(words)
            .args(["--addr", &self.address])
            .args(waits)
            .output()
            .unwrap()
    }

    /// Runs a command that must end with this code; what it printed on both streams.
    fn run(&self, code: i32, words: &[&str]) -> String {
        let output = self.ask(words);
        let text = text_of(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        text
    }

    /// SIGTERM; the exit code.
    fn stop(mut self) -> Option<i32> {
        signal(self.process.id(), "-TERM");
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("SIGTERM did not end the server");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// UPDATE_IF in all its forms; `stock:42` is 0 in the end.
fn guards_and_effects(server: &Server) {
    let written = server.run(0, &["set", "stock:42", "u32:2"]);
    assert!(written.ends_with(", level disk\n"), "{written}");
    let decrement = ["update-if", "stock:42", "u32@0 >= 1", "u32@0 -= 1"];
    assert!(server.run(0, &decrement).starts_with("u32@0 = 1\nok, "));
    assert!(server.run(0, &decrement).starts_with("u32@0 = 0\nok, "));
    assert_eq!(
        server.run(1, &decrement),
        "penstock: \"u32@0 >= 1\" failed: the field is 0; nothing was changed\n"
    );
    assert_eq!(
        server.run(1, &["update-if", "stock:42", "u32@0 -= 1 else 7"]),
        "penstock: \"u32@0 -= 1 else 7\" failed: the field is 0 and would leave the range of u32, \
         reason 7; nothing was changed\n"
    );
    assert_eq!(
        server.run(1, &["update-if", "stock:42", "absent", "u32@0 = 9"]),
        "penstock: \"absent\" failed: the key exists; nothing was changed\n"
    );
    assert_eq!(server.run(0, &["get", "stock:42", "--as", "u32@0"]), "0\n");
    assert_eq!(
        server.run(0, &["get", "stock:42", "--as", "hex"]),
        "00000000\n"
    );
    assert!(
        server
            .run(1, &["get", "stock:42", "--as", "u64@0"])
            .contains("lies outside the value, which has 4 bytes")
    );
    assert!(
        server
            .run(2, &["update-if", "stock:42", "u64@0 -= 1"])
            .contains("BAD_FIELD")
    );
    assert!(
        server
            .run(
                0,
                &["update-if", "visits", "i64@0 -= 5", "--start", "i64:0"]
            )
            .starts_with("i64@0 = -5\n")
    );
    assert!(
        server
            .run(0, &["set", "sale:{42}", "u8:1"])
            .starts_with("u8 1\nok, ")
    );
    server.run(0, &["set", "left:{42}", "u32:1"]);
    server.run(
        0,
        &[
            "update-if",
            "left:{42}",
            "second.u8@0 == 1",
            "u32@0 -= 1",
            "--second",
            "sale:{42}",
        ],
    );
    assert!(
        server
            .run(
                2,
                &["update-if", "a{1}", "second.exists", "--second", "b{2}"]
            )
            .contains("CROSS_SLOT")
    );
    // What only an APPLY does: the same words without the name of the key.
    let call = [
        "update-if",
        "calls",
        "u64@0 rate 1/m burst 1",
        "--start",
        "u64:0",
        "--ttl",
        "1h",
    ];
    assert!(server.run(0, &call).starts_with("u64@0 = "));
    let text = server.run(1, &call);
    assert!(text.contains("failed: the units are there in"), "{text}");
    assert_ne!(server.run(0, &["ttl", "calls"]), "never\n");
    let text = server.run(0, &["update-if", "stock:42", "u32@0 max= 3", "return u8@0"]);
    assert!(text.starts_with("u32@0 = 3\nu8@0 = 3\n"), "{text}");
    let text = server.run(1, &["update-if", "stock:42", "u32@0 < u32@0", "put gone"]);
    assert!(
        text.contains("\"u32@0 < u32@0\" failed: u32@0 is 3"),
        "{text}"
    );
    let text = server.run(2, &["update-if", "stock:42", "second.u8@0 == u8@0"]);
    assert!(text.contains("--second KEY"), "{text}");
    server.run(0, &["update-if", "stock:42", "u32@0 = 0"]);
}

/// Missing keys, empty and large values, conditions; `stock:42` is 5 in the end.
fn values_and_conditions(server: &Server, name: &str) {
    assert_eq!(
        server.run(1, &["get", "nobody"]),
        "penstock: \"nobody\" does not exist\n"
    );
    assert_eq!(
        server.run(1, &["set", "stock:42", "x", "--if-absent"]),
        "penstock: \"stock:42\" exists; nothing was changed\n"
    );
    server.run(1, &["set", "nobody", "x", "--if-present"]);
    server.run(1, &["del", "nobody"]);
    server.run(0, &["set", "empty", ""]);
    assert_eq!(server.run(0, &["get", "empty"]), "");
    let folder = folder(format!("{name}-large"));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("value");
    for (bytes, code) in [(64 << 10, 0), ((64 << 10) + 1, 2)] {
        std::fs::write(&path, vec![0xa5; bytes]).unwrap();
        server.run(code, &["set", "large", &format!("@{}", path.display())]);
    }
    let hex = server.run(0, &["get", "large", "--as", "hex"]);
    assert_eq!(hex, "a5".repeat(64 << 10) + "\n");

    let shown = server.run(0, &["get", "stock:42", "--version"]);
    let version = shown.rsplit(' ').next().unwrap().trim();
    server.run(0, &["set", "stock:42", "u32:5", "--if-version", version]);
    assert!(
        server
            .run(1, &["set", "stock:42", "u32:6", "--if-version", version])
            .contains("has version ")
    );
}

/// A whole session: every command, a stop, a start, and what was written is still there.
fn session(name: &str, io: &str) {
    let directory = folder(name);
    let server = Server::start(&directory, &["--io", io, "--shards", "2"]);
    assert_eq!(server.shard_ports.len(), 2, "one port for each shard");

    guards_and_effects(&server);
    values_and_conditions(&server, name);
    assert_eq!(server.run(0, &["ping", "--count", "3"]).lines().count(), 3);
    let info: serde_json::Value = serde_json::from_str(&server.run(0, &["info"])).unwrap();
    assert_eq!(info["shard_count"], 2);
    assert!(info["counters"]["ops"].as_u64().unwrap() > 0);

    // Any port answers for any key.
    for port in &server.shard_ports {
        let address = format!("127.0.0.1:{port}");
        let output = command(&["get", "stock:42", "--as", "u32@0", "--addr", &address])
            .output()
            .unwrap();
        assert_eq!(text_of(&output), "5\n");
    }

    let path = directory.to_str().unwrap();
    let busy = command(&["inspect", path]).output().unwrap();
    assert_eq!(busy.status.code(), Some(2), "served: {}", text_of(&busy));
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&directory, &["--io", io]);
    assert_eq!(server.run(0, &["get", "stock:42", "--as", "u32@0"]), "5\n");
    assert_eq!(server.run(0, &["get", "empty"]), "");
    server.run(0, &["del", "stock:42"]);
    server.run(1, &["get", "stock:42"]);
    assert_eq!(server.stop(), Some(0));

    let sound = command(&["inspect", path, "--dump"]).output().unwrap();
    let text = text_of(&sound);
    assert_eq!(sound.status.code(), Some(0), "{text}");
    assert!(
        text.contains("put stock:42 at ") && text.contains("del stock:42 at "),
        "{text}"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_session_with_io_uring_survives_a_restart() {
    session("session-uring", "uring");
}

#[test]
fn a_session_with_threads_survives_a_restart() {
    session("session-threads", "threads");
}

#[test]
fn weaker_levels_are_raised_to_the_servers_and_the_answer_says_so() {
    let directory = folder("session-levels");
    let server = Server::start(&directory, &["--shards", "1"]);
    let raised = server.run(0, &["set", "k", "v", "--level", "none"]);
    assert!(raised.ends_with("level disk\n"), "{raised}");
    assert_eq!(server.stop(), Some(0));

    let flags = ["--durability", "none", "--interval-ms", "70"];
    let server = Server::start(&directory, &flags);
    let none = server.run(0, &["set", "k", "v", "--level", "none"]);
    assert!(
        none.ends_with("level none, a crash may lose it\n"),
        "{none}"
    );
    let interval = server.run(0, &["set", "k", "v", "--level", "interval"]);
    assert!(
        interval.ends_with("level interval, a crash within 70 ms may lose it\n"),
        "{interval}"
    );
    let disk = server.run(0, &["set", "k", "v"]);
    assert!(disk.ends_with("level disk\n"), "{disk}");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_text_of_digits_is_not_sold_as_a_number() {
    let directory = folder("session-digits");
    let server = Server::start(&directory, &["--shards", "2"]);
    let set = server.run(0, &["set", "stock:9", "1000"]);
    let text = "text of 4 bytes; a number is written as u32:1000\nok, ";
    assert!(set.starts_with(text), "{set}");
    let sale = ["update-if", "stock:9", "u32@0 >= 1", "u32@0 -= 1"];
    let refused = server.run(2, &sale);
    let text = "\"stock:9\" holds the text \"1000\" at u32@0, which is the number 808464433; \
        nothing was changed";
    assert!(refused.contains(text), "{refused}");
    assert!(refused.contains("u32:1000") && refused.contains("--digits-are-numbers"));
    assert_eq!(server.run(0, &["get", "stock:9"]), "1000");
    let number = server.run(0, &[&sale[..], &["--digits-are-numbers"]].concat());
    assert!(number.starts_with("u32@0 = 808464432\nok, "), "{number}");

    let set = server.run(0, &["set", "stock:9", "u32:1000"]);
    assert!(set.starts_with("u32 1000\nok, "), "{set}");
    assert!(server.run(0, &sale).starts_with("u32@0 = 999\nok, "));
    // One byte of 48 to 57 is as often a number as a digit.
    server.run(0, &["set", "few", "u8:50"]);
    let warned = server.run(0, &["update-if", "few", "u8@0 -= 1"]);
    assert!(warned.contains("u8@0 = 49\n"), "{warned}");
    let warning = "u8@0 of \"few\" is 50, which is also the text \"2\"";
    assert!(warned.contains(warning), "{warned}");
    let start = ["update-if", "new", "u64@0 += 1", "--start", "10000000"];
    assert!(server.run(2, &start).contains("would start with the text"));
    assert!(server.run(1, &["get", "new"]).contains("does not exist"));
    let second = ["update-if", "{9}a", "second.u32@0 >= 1", "--second", "{9}b"];
    server.run(0, &["set", "{9}b", "2000"]);
    server.run(0, &["set", "{9}a", "u8:1"]);
    assert!(server.run(2, &second).contains("second.u32@0"));
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn memory_max_above_what_the_machine_has_is_reported_as_a_problem_and_one_below_is_not() {
    let directory = folder("session-memory");
    for (memory_max, is_reported) in [("524288GiB", true), ("256MiB", false)] {
        let server = Server::start(&directory, &["--shards", "1", "--memory-max", memory_max]);
        let problem = "problem    memory_max is 536870912 MiB and the machine";
        assert_eq!(
            server.said.contains(problem),
            is_reported,
            "{}",
            server.said
        );
        assert_eq!(server.stop(), Some(0));
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_key_with_an_expiry_is_shown_kept_over_a_restart_and_gone() {
    let directory = folder("session-expiry");
    let server = Server::start(&directory, &["--shards", "1"]);
    server.run(0, &["set", "hold:7", "u32:2", "--if-absent", "--ttl", "2h"]);
    server.run(0, &["update-if", "hold:7", "u32@0 -= 1"]);
    server.run(0, &["set", "soon", "x", "--ttl", "50ms"]);
    server.run(0, &["set", "for-ever", "x"]);
    assert_eq!(server.run(0, &["ttl", "for-ever"]), "never\n");
    server.run(0, &["expire", "for-ever", "30d"]);
    server.run(0, &["persist", "for-ever"]);
    server.run(1, &["persist", "missing"]);
    let wrong = server.run(2, &["expire", "hold:7", "0s"]);
    assert!(wrong.contains("'0s'") && wrong.contains("1ms"), "{wrong}");
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&directory, &["--shards", "1"]);
    assert_eq!(server.run(0, &["ttl", "for-ever"]), "never\n");
    let left = server.run(0, &["ttl", "hold:7"]);
    let left_ms: u64 = left.split_once(" ms, until ").unwrap().0.parse().unwrap();
    assert!((1..=7_200_000).contains(&left_ms), "{left}");
    assert_eq!(server.run(0, &["get", "hold:7", "--as", "u32@0"]), "1\n");
    std::thread::sleep(Duration::from_millis(60));
    server.run(1, &["get", "soon"]);
    server.run(0, &["expire", "hold:7", "--at", "1"]);
    assert!(server.run(1, &["ttl", "hold:7"]).contains("does not exist"));
    server.run(0, &["set", "hold:7", "u32:9", "--if-absent"]);
    assert_eq!(server.run(0, &["ttl", "hold:7"]), "never\n");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_flipped_bit_in_a_segment_is_found_and_ends_with_exit_code_1() {
    let directory = folder("session-damage");
    let server = Server::start(&directory, &["--shards", "1"]);
    server.run(0, &["set", "a-key-to-be-found", "its value"]);
    server.run(0, &["set", "another", "value"]);
    assert_eq!(server.stop(), Some(0));
    let segments = directory.join("segments");
    let needle = b"a-key-to-be-found";
    let (file, at) = std::fs::read_dir(segments)
        .unwrap()
        .find_map(|entry| {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let at = bytes.windows(needle.len()).position(|w| w == needle)?;
            Some((path, at))
        })
        .unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();

    let path = directory.to_str().unwrap();
    let output = command(&["inspect", path]).output().unwrap();
    let text = text_of(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("DAMAGED: "), "{text}");
    let refused = command(&["serve", "--data", path, "--listen", "127.0.0.1:0"])
        .args(["--shard-ports", "0"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", text_of(&refused));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_server_that_cannot_serve_says_why_in_one_line_with_exit_code_2() {
    let directory = folder("session-refused");
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("file");
    std::fs::write(&file, "no directory").unwrap();
    let foreign = directory.join("foreign");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("diary"), "somebody's").unwrap();
    let served = directory.join("served");
    let server = Server::start(&served, &["--shards", "1"]);
    let port = server.address.rsplit(':').next().unwrap().to_string();
    let new = directory.join("new");

    let refuse = |data: &Path, flags: &[&str], part: &str| {
        let output = command(&["serve", "--data", data.to_str().unwrap()])
            .args(flags)
            .output()
            .unwrap();
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains("ERROR") && line.contains(part), "{line}");
        assert!(line.ends_with("exit_code=2\n"), "{line}");
    };
    let free = ["--listen", "127.0.0.1:0", "--shard-ports", "0"];
    refuse(&file, &free, "not a directory");
    refuse(&foreign, &free, "diary");
    refuse(&served, &free, "in use by process");
    let cpus = std::thread::available_parallelism().unwrap().get();
    // 256 shards are the most that any machine may have.
    if cpus < 256 {
        let shards = (cpus + 1).to_string();
        let flags = [&free[..], &["--shards", &shards]].concat();
        refuse(&new, &flags, &format!("--shards {shards}"));
    }
    let busy = [
        "--listen",
        "127.0.0.1:0",
        "--shards",
        "1",
        "--shard-ports",
        &port,
    ];
    refuse(&new, &busy, &format!("127.0.0.1:{port}"));

    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The files of snapshots in a data directory.
fn snapshots(directory: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory.join("snapshots")).unwrap();
    found.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_start_reads_a_snapshot_and_does_without_a_damaged_one() {
    let directory = folder("snapshot");
    let flags = ["--shards", "1"];
    let server = Server::start(&directory, &flags);
    server.run(0, &["set", "stock:42", "u32:2"]);
    server.run(0, &["bench", "set", "--requests", "4000", "--keys", "500"]);
    server.run(0, &["set", "stock:42", "u32:1"]);
    server.run(0, &["set", "stock:43", "u32:1"]);
    server.run(0, &["del", "stock:43"]);
    assert_eq!(server.stop(), Some(0));
    assert!(!snapshots(&directory).is_empty());
    let inspected = command(&["inspect"]).arg(&directory).output().unwrap();
    assert!(
        text_of(&inspected).contains(".idx: "),
        "{}",
        text_of(&inspected)
    );
    assert!(
        !text_of(&inspected).contains("not usable"),
        "{}",
        text_of(&inspected)
    );

    let holds = |server: &Server| {
        assert_eq!(server.run(0, &["get", "stock:42", "--as", "u32@0"]), "1\n");
        server.run(1, &["get", "stock:43"]);
    };
    // What was timed beside other work is timed again.
    let timed = std::fs::read_to_string(directory.join("CALIBRATION")).unwrap();
    let server = Server::start(&directory, &flags);
    assert!(
        server.said.contains(" entries of 1-0000"),
        "{}",
        server.said
    );
    assert_eq!(
        server.said.contains(", as an earlier start timed it"),
        !timed.contains("load = cpu"),
    );
    holds(&server);
    // Killed.
    drop(server);
    for path in snapshots(&directory) {
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let server = Server::start(&directory, &flags);
    assert!(
        server.said.contains(" was not used: it is damaged at"),
        "{}",
        server.said
    );
    assert!(!server.said.contains(" entries of "), "{}", server.said);
    holds(&server);
    assert_eq!(server.stop(), Some(0));
}

/// No file has the number 0: an index entry that told it would tell of none.
#[test]
fn a_file_that_only_resembles_a_segment_is_named_at_a_start_and_left_alone() {
    let directory = folder("session-stray");
    let server = Server::start(&directory, &["--shards", "1"]);
    server.run(0, &["set", "k", "v"]);
    assert_eq!(server.stop(), Some(0));
    let stray = directory.join("segments/00000000.seg");
    std::fs::write(&stray, vec![0; 4 << 20]).unwrap();
    let server = Server::start(&directory, &["--shards", "1"]);
    assert!(
        server
            .said
            .contains("passed over, because no segment is named so: 00000000.seg\n"),
        "{}",
        server.said
    );
    server.run(0, &["bench", "set", "--requests", "4000", "--keys", "500"]);
    server.run(0, &["get", "k"]);
    assert_eq!(server.stop(), Some(0));
    assert_eq!(std::fs::read(&stray).unwrap(), vec![0; 4 << 20]);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What asks for the counters before a run and behind it says nothing meanwhile.
#[test]
fn a_load_that_takes_longer_than_an_idle_connection_may_live_ends_well() {
    let directory = folder("session-long-load");
    // A generator that does not get a processor for two seconds is idle too.
    let server = Server::start(&directory, &["--shards", "1", "--idle-timeout-s", "2s"]);
    let load = ["--connections", "2", "--rate", "200", "--duration", "5"];
    let words = [&["bench", "set", "--json"][..], &load].concat();
    let text = server.run(0, &words);
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert!(report["server"]["records"].as_u64() > Some(300), "{text}");
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn what_expired_stays_gone_over_restarts_and_what_expires_meanwhile_is_gone() {
    for io in ["uring", "threads"] {
        let directory = folder(format!("session-expiry-{io}"));
        let flags = &["--shards", "1", "--io", io][..];
        let server = Server::start(&directory, flags);
        server.run(0, &["set", "short", "gone", "--ttl", "1s"]);
        server.run(0, &["set", "longer", "gone", "--ttl", "10s"]);
        let all_are_gone = Instant::now() + Duration::from_secs(10);
        server.run(0, &["set", "stays", "here"]);
        // Nothing is written from here on: only the clock knows what time it is.
        std::thread::sleep(Duration::from_millis(1_500));
        server.run(1, &["get", "short"]);
        server.run(0, &["get", "longer"]);
        assert_eq!(server.stop(), Some(0));
        let server = Server::start(&directory, flags);
        server.run(1, &["get", "short"]);
        std::thread::sleep(all_are_gone.saturating_duration_since(Instant::now()));
        drop(server);
        let server = Server::start(&directory, flags);
        server.run(1, &["get", "short"]);
        server.run(1, &["get", "longer"]);
        server.run(0, &["set", "longer", "anew", "--if-absent"]);
        server.run(0, &["get", "stays"]);
        assert_eq!(server.stop(), Some(0));
    }
}
