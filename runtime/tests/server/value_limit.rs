//! Values that an earlier start accepted, under a lower limit, in the real server: they are read,
//! edited, overwritten, deleted and cleaned, and only new values are held to the limit.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use penstock_client::{Client, ClientError, ClientOptions, Field, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::Expiry;
use penstock_net::status::Status;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

const LARGE: usize = 200_000;
const KEYS: u8 = 12;

fn serve(data: &Path, io: &str, limits: &[&str]) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--shards", "1", "--io", io, "--cache-bytes", "1MiB"])
        .args(["--disk-bytes-max", "64MiB"])
        .args(limits)
        .arg("--data")
        .arg(data)
        .stderr(Stdio::null());
    command
}

const WIDE: &[&str] = &["--value-bytes-max", "200000", "--segment-bytes", "4MiB"];
const NARROW: &[&str] = &["--value-bytes-max", "4KiB", "--segment-bytes", "4MiB"];

/// What a start says that must not come to serve.
fn refusal(command: &mut Command) -> String {
    let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = pipes.spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    if lines.map_while(Result::ok).any(|line| line == "ready") {
        process.kill().unwrap();
        panic!("it serves");
    }
    let output = process.wait_with_output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

fn client(server: &Server) -> Client {
    let options = ClientOptions {
        level: AckLevel::Disk,
        deadline: std::time::Duration::from_secs(60),
        ..ClientOptions::default()
    };
    Client::connect(server.address, options).unwrap()
}

fn stop(mut server: Server) {
    server.signal("-TERM");
    assert!(server.process.wait().unwrap().success());
}

/// The key, then its stock in 8 bytes, then what tells it from others.
fn large(key: u8, stock: u64) -> Vec<u8> {
    let mut value = vec![key; LARGE];
    value[..8].copy_from_slice(&stock.to_le_bytes());
    value
}

fn key(number: u8) -> [u8; 4] {
    [b'{', b't', b'}', number]
}

fn refused_by_length(refused: Result<impl Sized, ClientError>, bytes: usize) {
    let Err(ClientError::Refused(answer)) = refused else {
        panic!("{bytes} bytes were taken");
    };
    assert_eq!(answer.status, Status::TooLarge);
    let text = String::from_utf8_lossy(&answer.value).into_owned();
    assert!(
        text.contains(&bytes.to_string()) && text.contains("4096"),
        "{text}"
    );
}

fn cleaned_bytes(client: &Client) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    info["counters"]["moved_bytes"].as_u64().unwrap()
}

fn a_lowered_limit(io: &str) {
    let data = scratch::folder(format!("value-limit-{io}"));
    let mut server = Server::start(&mut serve(&data, io, WIDE));
    let sender = client(&server);
    for number in 0..KEYS {
        sender.set(&key(number), &large(number, 9)).wait().unwrap();
        // Overwritten again and again, so that cleaning has to copy the large values to give that
        // back.
        let pending: Vec<_> = (0..8)
            .map(|_| sender.set(b"often", &[0; 100_000]))
            .collect();
        for pending in pending {
            pending.wait().unwrap();
        }
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();

    let server = Server::start(&mut serve(&data, io, NARROW));
    let sender = client(&server);
    for number in 0..KEYS {
        let found = sender.get(&key(number)).wait().unwrap().unwrap();
        assert!(found.bytes[..] == large(number, 9)[..], "value {number}");
    }
    refused_by_length(sender.set(&key(0), &large(0, 1)).wait(), LARGE);
    refused_by_length(sender.set(&key(0), &[0; 4097]).wait(), 4097);
    let one_less = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
    sender.update_if(&key(0), &one_less).wait().unwrap();
    sender.set_expiry(&key(0), Expiry::Never).wait().unwrap();
    let from_one_to_the_other = [
        Field::u64(0).decrease(2),
        Field::u64(0).of_second_key().increase(2),
    ];
    sender
        .update_if_with(
            &key(1),
            Some(&key(2)),
            &from_one_to_the_other,
            None,
            Expiry::Keep,
        )
        .wait()
        .unwrap();
    sender.set(&key(3), &[3; 4096]).wait().unwrap();
    assert!(sender.del(&key(4)).wait().unwrap());
    let goal = cleaned_bytes(&sender) + 2 * LARGE as u64;
    let mut rounds = 0_u32;
    while cleaned_bytes(&sender) < goal {
        assert!(rounds < 400, "nothing was cleaned");
        let pending: Vec<_> = (0..100).map(|_| sender.set(b"often", &[1; 4096])).collect();
        for pending in pending {
            pending.wait().unwrap();
        }
        rounds += 1;
    }
    stop(server);

    // Neither is what is there given less room, nor is a start remembered that had none to give.
    let tight = ["--value-bytes-max", "4KiB", "--segment-bytes", "1100KiB"];
    let greedy = ["--value-bytes-max", "16MiB", "--segment-bytes", "256MiB"];
    let greedy = [
        &greedy[..],
        &["--frame-bytes-max", "32MiB", "--output-bytes-max", "32MiB"],
    ]
    .concat();
    let greedy = [&greedy[..], &["--memory-max", "64MiB"]].concat();
    for (limits, named) in [(&tight[..], "200000 bytes"), (&greedy, "16777216 bytes")] {
        let text = refusal(&mut serve(&data, io, limits));
        assert!(text.contains(named), "{text}");
    }

    let server = Server::start(&mut serve(&data, io, NARROW));
    let sender = client(&server);
    for number in 0..KEYS {
        let found = sender.get(&key(number)).wait().unwrap();
        let found = found.as_ref().map(|value| &value.bytes[..]);
        let expected = match number {
            0 => Some(large(0, 8)),
            1 => Some(large(1, 7)),
            2 => Some(large(2, 11)),
            3 => Some(vec![3; 4096]),
            4 => None,
            _ => Some(large(number, 9)),
        };
        assert!(found == expected.as_deref(), "value {number}");
    }
    stop(server);
    let _ = fs::remove_dir_all(&data);
}

#[test]
fn values_beyond_a_lowered_limit_live_on_with_uring() {
    a_lowered_limit("uring");
}

#[test]
fn values_beyond_a_lowered_limit_live_on_with_threads() {
    a_lowered_limit("threads");
}
