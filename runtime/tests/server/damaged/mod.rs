//! What the real commands say and do about a data directory that is damaged.

mod lost_tail;
mod messages;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use penstock_client::{Client, ClientOptions, Verbs};

use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;

/// Values of this length fill the first segment of 4 MiB and a part of the second.
const VALUE_BYTES: usize = 10_000;
const KEYS: usize = 620;

fn serve(directory: &Path) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--cache-bytes", "16MiB", "--value-bytes-max", "64KiB"])
        .args(["--segment-bytes", "4MiB", "--admin-listen", "off", "--data"])
        .arg(directory);
    command
}

/// What a server that is refused its start says, and its exit code.
fn refused(directory: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut child = serve(directory)
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Taken down by whoever waits in vain, if it serves after all.
    let pid = child.id();
    let watch = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(60));
        let pid = pid.to_string();
        let _ = Command::new("sh")
            .args(["-c", "kill -KILL \"$0\"", &pid])
            .status();
    });
    let mut said = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut said)
        .unwrap();
    let code = child.wait().unwrap().code();
    drop(watch);
    (code, said)
}

/// Stops a server; what it said on standard error, if that is piped.
fn stop(mut server: Server) -> String {
    server.signal("-TERM");
    let mut said = String::new();
    if let Some(errors) = &mut server.process.stderr {
        errors.read_to_string(&mut said).unwrap();
    }
    assert_eq!(server.process.wait().unwrap().code(), Some(0), "{said}");
    said
}

/// Runs a command that must end with this code; what it printed on both outputs.
fn output_of(code: i32, words: &[&str]) -> String {
    let output = command(words).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let text = text.concat();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

fn connect(server: &Server) -> Client {
    Client::connect(server.address, ClientOptions::default()).unwrap()
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// A directory with [`KEYS`] keys, one record each in order, that was stopped cleanly.
fn stopped_cleanly(name: &str) -> PathBuf {
    let directory = folder(name);
    let server = Server::start(serve(&directory).args(["--shards", "1"]));
    let client = connect(&server);
    for number in 0..KEYS {
        client.set(&key(number), &[7; VALUE_BYTES]).wait().unwrap();
    }
    drop(client);
    stop(server);
    let snapshots = fs::read_dir(directory.join("snapshots")).unwrap().count();
    assert!(snapshots > 0, "a clean stop takes a snapshot");
    directory
}

/// Copies a directory that is not served.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        fs::create_dir_all(to.join(&folder)).unwrap();
        for entry in fs::read_dir(from.join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            match from.join(&path).is_dir() {
                true => folders.push(path),
                false => drop(fs::copy(from.join(&path), to.join(&path)).unwrap()),
            }
        }
    }
}

/// The segments of the one log, by their sequence in it.
fn segments(directory: &Path) -> BTreeMap<u64, PathBuf> {
    let entries = fs::read_dir(directory.join("segments")).unwrap();
    let used = entries.filter_map(|entry| {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let is_segment = bytes.starts_with(b"PSTKSEG1");
        is_segment.then(|| (u64::from_le_bytes(bytes[72..80].try_into().unwrap()), path))
    });
    used.collect()
}
