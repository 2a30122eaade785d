//! Scans in the real server: by the client and by the command, over both shards, with most keys on
//! disk only, over a start.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use penstock_client::{Client, ClientError, Verbs};
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

fn serve(data: &Path) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "2", "--cache-bytes", "1MiB"])
            .args(["--segment-bytes", "16MiB", "--data"])
            .arg(data)
            .stderr(Stdio::null()),
    )
}

impl Server {
    fn scan(&self, words: &[&str]) -> Output {
        let address = self.address.to_string();
        command(&["scan", "--addr", &address])
            .args(words)
            .output()
            .unwrap()
    }

    fn lines(&self, words: &[&str]) -> Vec<String> {
        let output = self.scan(words);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort_unstable();
        lines
    }
}

/// The command over a store of so many keys.
fn the_command_escapes_and_limits(server: &Server, client: &Client, keys: usize) {
    client
        .set(b"line\nend\xFF\\\t", "value\n\u{e9}".as_bytes())
        .wait()
        .unwrap();
    assert_eq!(server.lines(&["line"]), [r"line\x0aend\xff\\\x09"]);
    assert_eq!(
        server.lines(&["line", "--values"]),
        ["line\\x0aend\\xff\\\\\\x09\tvalue\\x0a\u{e9}"]
    );
    assert_eq!(server.lines(&[]).len(), keys + 1);
    assert_eq!(server.lines(&["--limit", "7"]).len(), 7);
    assert_eq!(
        server.lines(&["film", "--values"])[0].len(),
        5 + 4 * 900_000
    );
    let long = "x".repeat(1_025);
    let refused = server.scan(&[&long]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let outcome = client.scan(&[b'x'; 70_000], false).next();
    let Some(Err(ClientError::Refused(answer))) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(answer.status, Status::Malformed);
}

#[test]
fn every_key_is_shown_once_with_its_value_whatever_is_in_memory_and_over_a_start() {
    let data = scratch::folder("scan");
    let mut model = BTreeMap::new();
    let server = serve(&data);
    let client = server.client();
    for number in 0..4_000 {
        let key = match number % 3 {
            0 => format!("stock:{number}"),
            1 => format!("{{one tag}}{number}"),
            _ => format!("sale:{number}"),
        };
        let value = vec![b'a' + u8::try_from(number % 26).unwrap(); 700 + number % 700];
        model.insert(key.into_bytes(), value);
    }
    // One is too long for any page.
    model.insert(b"film".to_vec(), vec![7; 900_000]);
    let sets: Vec<_> = model
        .iter()
        .map(|(key, value)| client.set(key, value))
        .collect();
    for set in sets {
        set.wait().unwrap();
    }
    let check = |client: &Client| {
        let all: Vec<_> = client.scan(b"", true).collect::<Result<_, _>>().unwrap();
        assert_eq!(all.len(), model.len());
        for entry in all {
            assert_eq!(
                entry.value.as_deref(),
                model.get(&*entry.key).map(Vec::as_slice)
            );
            assert!(entry.version.sequence > 0);
        }
        let stock = client.scan(b"stock:", false);
        let stock: Vec<_> = stock.collect::<Result<_, _>>().unwrap();
        assert_eq!(stock.len(), 1_334);
        assert!(stock.iter().all(|entry| entry.value.is_none()));
        assert_eq!(client.scan(b"none", false).count(), 0);
    };
    check(&client);
    // Half of a scan before a start, half behind it.
    let mut cursor = Some(0);
    let mut keys = Vec::new();
    let page = |client: &Client, cursor| {
        let request = ScanRequest {
            cursor,
            prefix: b"s",
            entries_max: 100,
            bytes_max: 65_536,
            wants_values: false,
            wants_types: false,
        };
        client.scan_page(&request).wait()
    };
    while let Some(from) = cursor.take_if(|_| keys.len() < 1_000) {
        let next = page(&client, from).unwrap();
        keys.extend(next.entries.into_iter().map(|entry| entry.key));
        cursor = next.next;
    }
    drop(client);
    drop(server);
    let server = serve(&data);
    let client = server.client();
    while let Some(from) = cursor {
        let next = page(&client, from).unwrap();
        keys.extend(next.entries.into_iter().map(|entry| entry.key));
        cursor = next.next;
    }
    keys.sort_unstable();
    keys.dedup();
    assert!(
        keys.iter()
            .eq(model.keys().filter(|key| key.starts_with(b"s")))
    );
    check(&client);

    the_command_escapes_and_limits(&server, &client, model.len());
    fs::remove_dir_all(&data).unwrap();
}
