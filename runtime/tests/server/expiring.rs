//! What expires gives its room back in the real server: many times what the disk may hold comes and
//! goes, beside keys that stay, and nothing is refused. `examples/expire_load.rs` is the same at
//! full size.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use penstock_client::{Client, Verbs};
use penstock_net::request::{Condition, Expiry};

use crate::command::command;
use crate::process::{Server, the_machine};
use crate::scratch::folder;

/// How long a test waits for what should come at once.
const PATIENCE: Duration = Duration::from_secs(120);

fn serve(data: &Path, more: &[&str]) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "1", "--durability", "none"])
            .args(["--value-bytes-max", "16KiB", "--segment-bytes", "2MiB"])
            .args(more)
            .arg("--data")
            .arg(data)
            .stderr(Stdio::null()),
    )
}

fn counter(client: &Client, name: &str) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    info["counters"][name].as_u64().unwrap()
}

/// Sets keys. One in `stay` stays, and the others live for a second.
fn set(client: &Client, keys: std::ops::Range<u64>, stay: u64, value: &[u8]) {
    let pending: Vec<_> = keys
        .map(|key| {
            let expiry = match key % stay {
                0 => Expiry::Never,
                _ => Expiry::In(1_000),
            };
            client.set_with(&key.to_le_bytes(), value, Condition::Always, expiry)
        })
        .collect();
    for pending in pending {
        pending.wait().expect("what has expired makes room");
    }
}

/// Waits until INFO tells no more than this.
fn await_most(client: &Client, name: &str, most: u64) {
    let begin = Instant::now();
    loop {
        let now = counter(client, name);
        if now <= most {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{name} is {now}, not {most}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_there(client: &Client, keys: u64, stay: u64) {
    for key in (0..keys).step_by(usize::try_from(stay).unwrap()) {
        let found = client.get(&key.to_le_bytes()).wait().unwrap();
        assert!(found.is_some(), "key {key}");
    }
}

#[test]
fn a_small_disk_takes_four_times_its_size_of_what_expires_and_a_start_knows_it() {
    let _one = the_machine();
    const KEYS: u64 = 100_000;
    const STAY: u64 = 100;
    let data = folder("expiring-disk");
    let bound = ["--disk-bytes-max", "40MiB", "--cache-bytes", "4MiB"];
    let server = serve(&data, &bound);
    let client = server.client();
    let value = [7; 1_500];
    for from in (0..KEYS).step_by(200) {
        set(&client, from..from + 200, STAY, &value);
        // What lives at a time is less than the disk holds: at most 10,000 keys in a second.
        std::thread::sleep(Duration::from_millis(20));
    }
    is_there(&client, KEYS, STAY);
    drop(server);

    let server = serve(&data, &bound);
    let client = server.client();
    await_most(&client, "keys", KEYS / STAY);
    await_most(&client, "index_entries", KEYS / STAY + 2_048);
    is_there(&client, KEYS, STAY);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

/// Small values: a segment has very many keys, and none of the segments is short of room.
#[test]
fn what_has_expired_leaves_the_index_of_an_idle_server() {
    let _one = the_machine();
    const KEYS: u64 = 60_000;
    const STAY: u64 = 500;
    let data = folder("expiring-index");
    let server = serve(&data, &["--cache-bytes", "4MiB"]);
    let client = server.client();
    for from in (0..KEYS).step_by(1_000) {
        set(&client, from..from + 1_000, STAY, b"x");
    }
    await_most(&client, "keys", KEYS / STAY);
    await_most(&client, "index_entries", KEYS / STAY + 2_048);
    is_there(&client, KEYS, STAY);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}
