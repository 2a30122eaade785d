//! An embedding process dies; what it was told is durable is there.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use penstock::embedded::Field;
use penstock::{Options, Penstock, Verbs};
use penstock_net::request::Expiry;

fn options() -> Options {
    Options::default()
        .deadline(std::time::Duration::from_secs(60))
        .segment_bytes(4 << 20)
        .value_bytes_max(64 << 10)
        .cache_bytes(8 << 20)
}

/// The directory of the process that is to be killed.
const VICTIM: &str = "PENSTOCK_EMBEDDED_VICTIM";

#[test]
fn kill_9_of_the_embedding_process_keeps_what_was_acknowledged() {
    for mode in ["threads", "local"] {
        let scratch =
            std::env::temp_dir().join(format!("penstock-kill-{mode}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&scratch);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "kill::writes_until_it_is_killed",
            ])
            .env(VICTIM, &scratch)
            .env("PENSTOCK_EMBEDDED_MODE", mode)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // What it said before it died was acknowledged.
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut acknowledged = 0;
        for line in said.lines() {
            if let Some(number) = line.unwrap().strip_prefix("acknowledged ") {
                acknowledged = number.parse::<u64>().unwrap();
                if acknowledged == 300 {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        assert!(acknowledged >= 300, "{mode}: it wrote only {acknowledged}");
        let mut store = Penstock::open_local(&scratch, options()).unwrap();
        for number in 1..=acknowledged {
            let found = store.get(format!("key:{number}").as_bytes()).unwrap();
            assert_eq!(
                found.unwrap().bytes[..],
                number.to_le_bytes(),
                "{mode}: {number}"
            );
        }
        let count = store.get(b"count").unwrap().unwrap();
        let count = u64::from_le_bytes(count.bytes[..].try_into().unwrap());
        assert!(
            count == acknowledged || count == acknowledged + 1,
            "{mode}: {count}"
        );
        store.close().unwrap();
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}

#[test]
#[ignore = "is started, and killed, by the test of kill -9"]
fn writes_until_it_is_killed() {
    let directory = PathBuf::from(std::env::var_os(VICTIM).expect("named by who starts it"));
    let add = [Field::u64(0).increase(1)];
    let start = 0u64.to_le_bytes();
    let key = |number: u64| format!("key:{number}").into_bytes();
    if std::env::var("PENSTOCK_EMBEDDED_MODE").as_deref() == Ok("local") {
        let mut store = Penstock::open_local(directory, options()).unwrap();
        for number in 1u64.. {
            store.set(&key(number), &number.to_le_bytes()).unwrap();
            store
                .update_if_with(b"count", None, &add, Some(&start), Expiry::Keep)
                .unwrap();
            println!("acknowledged {number}");
        }
    } else {
        let store = Penstock::open(directory, options()).unwrap();
        for number in 1u64.. {
            let set = store.set(&key(number), &number.to_le_bytes());
            let count = store.update_if_with(b"count", None, &add, Some(&start), Expiry::Keep);
            set.wait().unwrap();
            count.wait().unwrap();
            println!("acknowledged {number}");
        }
    }
}
