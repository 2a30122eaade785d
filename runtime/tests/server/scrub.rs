//! A server that serves tells of damage in a sealed segment, and goes on serving.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions, Verbs};

use crate::command::command;
use crate::scratch;

/// A server that a failing test takes down with it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn damage_in_a_sealed_segment_is_reported_while_the_server_goes_on() {
    let data = scratch::folder("scrub");
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--shards", "1"])
        .args([
            "--cache-bytes",
            "16MiB",
            "--value-bytes-max",
            "64KiB",
            "--segment-bytes",
            "4MiB",
        ])
        .args(["--scrub-period-s", "2", "--spin-us", "0", "--data"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut server = Server(command.spawn().unwrap());
    let banner = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let (to_test, words) = mpsc::channel();
    let errors = BufReader::new(server.0.stderr.take().unwrap()).lines();
    std::thread::spawn(move || {
        let errors = errors.map_while(Result::ok);
        for line in errors.filter(|line| line.contains(" ERROR ")) {
            let _ = to_test.send(line);
        }
    });
    let mut address = None;
    for line in banner.map_while(Result::ok) {
        if let Some(rest) = line.strip_prefix("listening") {
            address = rest
                .split_whitespace()
                .next()
                .map(|it| it.parse::<SocketAddr>().unwrap());
        }
        if line == "ready" {
            break;
        }
    }
    let options = ClientOptions {
        deadline: Duration::from_secs(60),
        ..ClientOptions::default()
    };
    let client = Client::connect(address.unwrap(), options).unwrap();
    for number in 0..200 {
        let key = format!("key:{number}");
        client.set(key.as_bytes(), &[1; 60_000]).wait().unwrap();
    }
    let scrubbed = || -> [u64; 2] {
        let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
        ["scrub_passes", "scrub_damaged"].map(|name| info["counters"][name].as_u64().unwrap())
    };
    let wait_for = |enough: &dyn Fn([u64; 2]) -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !enough(scrubbed()) {
            assert!(
                Instant::now() < until,
                "nothing was looked through: {:?}",
                scrubbed()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // All is well at first.
    wait_for(&|[passes, _]| passes >= 2);
    assert_eq!(scrubbed()[1], 0);

    let path = data.join("segments/00000001.seg");
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 100_000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 100_000).unwrap();
    file.sync_all().unwrap();
    wait_for(&|[_, damaged]| damaged >= 1);
    let printed = words.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(
        printed.contains(&format!(
            "shard 0: {}/segments/00000001.seg is damaged at offset",
            data.display()
        )) && printed.contains(&format!("penstock inspect {} --repair", data.display())),
        "{printed}"
    );
    assert!(printed.contains("(log 1, records from LSN"), "{printed}");
    client.set(b"key:0", b"2").wait().unwrap();
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}
