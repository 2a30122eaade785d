//! What a start changes for good, in the real server: nothing if it is refused, and all that it
//! accepted however it goes on.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use penstock::directory::Directory;
use penstock::directory::identity::Identity;
use penstock_client::{Client, ClientOptions, Verbs};

use crate::command::command;
use crate::process::{Server, signal};
use crate::scratch::folder;

const SMALL: &[&str] = &["--value-bytes-max", "16KiB", "--segment-bytes", "2MiB"];

fn serve(data: &Path, flags: &[&[&str]]) -> std::process::Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command.args(flags.concat()).arg("--data").arg(data);
    command
}

/// The exit code of a start that is refused, and its last line.
fn refused(command: &mut std::process::Command) -> (Option<i32>, String) {
    let mut process = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let code = end_of(&mut process);
    let mut said = String::new();
    process.stderr.unwrap().read_to_string(&mut said).unwrap();
    (code, said.lines().last().unwrap_or_default().to_string())
}

/// The exit code of a process that is to end by itself; it is ended if it does not.
fn end_of(process: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            process.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn identity(data: &Path) -> Identity {
    Directory::inspect(data).unwrap().identity().clone()
}

fn client(server: &Server) -> Client {
    // A machine that is busy with something else answers late.
    let options = ClientOptions {
        deadline: std::time::Duration::from_secs(60),
        ..ClientOptions::default()
    };
    Client::connect(server.address, options).unwrap()
}

#[test]
fn a_first_start_without_room_for_its_largest_value_leaves_no_limit_behind() {
    let data = folder("starts-greedy");
    let greedy = [
        &["--value-bytes-max", "16MiB", "--segment-bytes", "256MiB"][..],
        &["--frame-bytes-max", "32MiB", "--output-bytes-max", "32MiB"],
    ];
    for bound in ["--memory-max", "--disk-bytes-max"] {
        let bound = ["--shards", "1", bound, "64MiB"];
        let [limits, buffers] = greedy;
        let (code, line) = refused(&mut serve(&data, &[limits, buffers, &bound]));
        assert_eq!(code, Some(2), "{line}");
        assert!(line.contains("16777216 bytes"), "{line}");
    }
    let bound = &["--memory-max", "128MiB", "--disk-bytes-max", "64MiB"][..];
    let server = Server::start(&mut serve(&data, &[SMALL, bound]));
    client(&server).set(b"key", &[1; 16 << 10]).wait().unwrap();
    drop(server);
    assert_eq!(identity(&data).value_bytes_max, 16 << 10);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_start_without_enough_memory_names_how_much_would_do() {
    for (number, flags) in [&[][..], SMALL].into_iter().enumerate() {
        for little in ["1B", "16MiB"] {
            let data = folder(format!("starts-little-{number}"));
            let flags = [&["--shards", "1"], flags].concat();
            let (code, line) = refused(&mut serve(&data, &[&flags, &["--memory-max", little]]));
            assert_eq!(code, Some(2), "{line}");
            let mib_text = line.split("raise it to ").nth(1);
            let mib_text = mib_text.and_then(|it| it.split(" MiB;").next());
            let mib: u64 = mib_text.and_then(|it| it.parse().ok()).expect(&line);
            let bound = |mib: u64| format!("{mib}MiB");
            let started =
                Server::start(&mut serve(&data, &[&flags, &["--memory-max", &bound(mib)]]));
            drop(started);
            let much_less = ["--memory-max", &bound(mib - 6)];
            let (code, line) = refused(&mut serve(&data, &[&flags, &much_less]));
            assert_eq!(code, Some(2), "{line}");
            fs::remove_dir_all(&data).unwrap();
        }
    }
}

#[test]
fn a_start_without_room_for_more_shards_leaves_their_number_as_it_was() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("SKIPPED: one CPU, so no start has two shards");
        return;
    }
    let data = folder("starts-shards");
    let server = Server::start(&mut serve(&data, &[SMALL, &["--shards", "1"]]));
    client(&server).set(b"key", b"value").wait().unwrap();
    drop(server);
    let before = identity(&data);
    // Enough for one shard, and for the buffers of two. What the process itself takes differs from
    // build to build, so the refusal of a start with less tells how much that is.
    let little = ["--shards", "1", "--memory-max", "24MiB"];
    let (_, line) = refused(&mut serve(&data, &[SMALL, &little]));
    let enough = line.split_once("raise it to ").expect(&line).1;
    let enough = enough.split_once(" MiB").expect(&line).0;
    let enough = format!("{}MiB", enough.parse::<u64>().expect(&line) + 2);
    for bound in [
        ["--disk-bytes-max", "5MiB"],
        ["--memory-max", enough.as_str()],
    ] {
        let (code, line) = refused(&mut serve(&data, &[SMALL, &["--shards", "2"], &bound]));
        assert_eq!(code, Some(2), "{line}");
        assert!(line.contains("2 shards"), "{line}");
        let server = Server::start(&mut serve(&data, &[SMALL, &bound]));
        let found = client(&server).get(b"key").wait().unwrap().unwrap();
        assert_eq!(&found.bytes[..], b"value");
    }
    assert_eq!(identity(&data).layout(), before.layout());
    fs::remove_dir_all(&data).unwrap();
}

/// What INFO tells by this name.
fn figure(client: &Client, name: &str) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    let value = &info[name];
    value.as_u64().unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Two shards within 512 MiB carried nothing with segments of 64 MiB.
#[test]
fn a_small_limit_of_the_disk_carries_data_in_a_new_directory_and_in_one_with_longer_segments() {
    const MIB: u64 = 1 << 20;
    let shards = &["--shards", "2", "--value-bytes-max", "16KiB"][..];
    let limit = &["--disk-bytes-max", "512MiB", "--durability", "none"][..];
    // 96 MiB of records, overwritten.
    let value = [7; 16 << 10];
    let fill = |client: &Client| {
        for _ in 0..2 {
            for keys in (0..6_144_u32).collect::<Vec<_>>().chunks(64) {
                let sets: Vec<_> = keys
                    .iter()
                    .map(|key| client.set(&key.to_le_bytes(), &value))
                    .collect();
                for (set, key) in sets.into_iter().zip(keys) {
                    set.wait()
                        .unwrap_or_else(|error| panic!("key {key}: {error}"));
                }
            }
        }
    };
    let data = folder("starts-short-segments");
    let server = Server::start(&mut serve(&data, &[shards, limit]));
    let sender = client(&server);
    assert_eq!(figure(&sender, "segment_bytes"), 8 * MIB);
    fill(&sender);
    drop((sender, server));
    assert_eq!(identity(&data).segment_bytes, 8 * MIB);
    fs::remove_dir_all(&data).unwrap();

    let data = folder("starts-longer-segments");
    let server = Server::start(&mut serve(&data, &[shards]));
    let sender = client(&server);
    assert_eq!(figure(&sender, "segment_bytes"), 64 * MIB);
    sender.set(b"old", b"value").wait().unwrap();
    drop((sender, server));
    let server = Server::start(&mut serve(&data, &[shards, limit]));
    let sender = client(&server);
    assert_eq!(figure(&sender, "segment_bytes"), 8 * MIB);
    let found = sender.get(b"old").wait().unwrap().unwrap();
    assert_eq!(&found.bytes[..], b"value");
    fill(&sender);
    drop((sender, server));
    // A length that is asked for stays.
    let asked = &["--segment-bytes", "32MiB"][..];
    let server = Server::start(&mut serve(&data, &[shards, limit, asked]));
    assert_eq!(figure(&client(&server), "segment_bytes"), 32 * MIB);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_limit_that_is_raised_while_logs_are_inherited_outlives_their_end() {
    let data = folder("starts-raised");
    let server = Server::start(&mut serve(&data, &[SMALL, &["--shards", "2"]]));
    let sender = client(&server);
    for number in 0..100_u32 {
        sender.set(&number.to_le_bytes(), b"old").wait().unwrap();
    }
    drop(server);
    let large = vec![7; 256 << 10];
    let wide = &["--value-bytes-max", "256KiB", "--segment-bytes", "4MiB"][..];
    let server = Server::start(&mut serve(&data, &[wide, &["--shards", "1"]]));
    client(&server).set(b"large", &large).wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !Directory::beside(&data)
        .unwrap()
        .identity()
        .inherited
        .is_empty()
    {
        assert!(Instant::now() < deadline, "the inherited logs stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(server);
    assert_eq!(identity(&data).value_bytes_max, 256 << 10);

    // The smaller limit holds for new values only: the large one is there and can be changed.
    let narrow = &["--value-bytes-max", "16KiB", "--segment-bytes", "4MiB"][..];
    let server = Server::start(&mut serve(&data, &[narrow]));
    let sender = client(&server);
    let found = sender.get(b"large").wait().unwrap().unwrap();
    assert!(found.bytes[..] == large[..]);
    sender.del(b"large").wait().unwrap();
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_serves_and_stops_well() {
    let data = folder("starts-unread");
    let mut command = serve(&data, &[SMALL, &["--shards", "1"]]);
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Both pipes break at once, before the first line.
    drop((process.stdout.take(), process.stderr.take()));
    // It is ready when it has taken a spare into use; until then a signal is no clean stop.
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_dir(data.join("segments")).map_or(0, Iterator::count) < 2 {
        assert!(process.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(Instant::now() < deadline, "it makes no segment");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(process.id(), "-TERM");
    assert_eq!(end_of(&mut process), Some(0));
    fs::remove_dir_all(&data).unwrap();
}
