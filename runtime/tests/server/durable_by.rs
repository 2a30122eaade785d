//! What makes writes durable in the real server, and that it does.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_client::Verbs;
use serde_json::Value;

use crate::command::command;
use crate::process::Server;

fn serve(data: &Path, durable_by: &str) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--admin-listen", "off", "--shards", "1"])
        .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
        .args(["--value-bytes-max", "64KiB", "--durable-by", durable_by])
        .arg("--data")
        .arg(data);
    command
}

#[test]
fn kill_9_keeps_what_threads_made_durable_and_info_tells_that_they_did() {
    const ACKNOWLEDGED_MIN: u64 = 300;
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join("durable-by");
    let _ = fs::remove_dir_all(&data);
    let key = |number: u64| format!("key:{number}").into_bytes();
    let mut server = Server::start(&mut serve(&data, "thread"));
    let info = server.client().info().wait().unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let client = server.client();
        let acknowledged = &acknowledged;
        scope.spawn(move || {
            for number in 1.. {
                // The kill ends it.
                let set = client.set(&key(number), &number.to_le_bytes());
                match set.wait() {
                    Ok(_) => acknowledged.store(number, Ordering::Release),
                    Err(_) => return,
                }
            }
        });
        while acknowledged.load(Ordering::Acquire) < ACKNOWLEDGED_MIN {
            std::thread::yield_now();
        }
        server.process.kill().unwrap();
        server.process.wait().unwrap();
    });
    let acknowledged = acknowledged.into_inner();
    if info["io"] == "uring" {
        assert_eq!(info["counters"]["storage_durable_by_thread"], 1, "{info}");
    }
    let server = Server::start(&mut serve(&data, "ring"));
    let client = server.client();
    for number in 1..=acknowledged {
        let found = client.get(&key(number)).wait().unwrap();
        let found = found.unwrap_or_else(|| panic!("{number} of {acknowledged} is gone"));
        assert_eq!(found.bytes[..], number.to_le_bytes());
    }
    let info = client.info().wait().unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["counters"]["storage_durable_by_thread"], 0, "{info}");
    server.stop();
    fs::remove_dir_all(&data).unwrap();
}
