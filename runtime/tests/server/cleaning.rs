//! A directory with a bound of its own, in the real server: overwriting goes on for ever, what
//! grows is refused when it is full, room comes back, and nothing is lost by any of it.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use penstock_client::{Client, ClientError, Field, Verbs};

use crate::command::command;
use crate::process::{Server, the_machine};
use crate::scratch::folder;

const DISK_BYTES_MAX: u64 = 24 << 20;

fn serve(data: &Path, io: &str) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "1", "--io", io, "--cache-bytes", "1MiB"])
            .args(["--value-bytes-max", "16KiB", "--segment-bytes", "2MiB"])
            .args(["--disk-bytes-max", "24MiB", "--data"])
            .arg(data)
            .stderr(Stdio::null()),
    )
}

fn disk_bytes(data: &Path) -> u64 {
    bytes_in(&data.join("segments"))
}

fn bytes_in(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        // A file may leave between the list and the look.
        .filter_map(|entry| entry.unwrap().metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

fn counter(client: &Client, name: &str) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    info["counters"][name].as_u64().unwrap()
}

fn value(key: u64, round: u64) -> Vec<u8> {
    [key, round]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .cycle()
        .take(1_000)
        .collect()
}

/// All keys in the first round, then one in three, so that what counts lies between what does not;
/// some never again, so that no segment of the first round ends by itself.
fn is_in(key: u64, round: u64) -> bool {
    round == 0 || !key.is_multiple_of(50) && (key * 7 + round * 11) % 31 < 10
}

fn overwritten_for_ever(io: &str) {
    let _one = the_machine();
    let data = folder(format!("cleaning-{io}"));
    let server = serve(&data, io);
    let client = server.client();
    // Five times what the disk may hold, of 4 MB that count.
    const KEYS: u64 = 4_000;
    const ROUNDS: u64 = 30;
    // What is wholly superseded leaves first; how much of that there is hangs on the disk.
    const ROUNDS_MAX: u64 = 10 * ROUNDS;
    let mut rounds = 0;
    while rounds < ROUNDS || counter(&client, "moved_bytes") == 0 {
        let round = rounds;
        rounds += 1;
        assert!(round < ROUNDS_MAX, "nothing is ever moved");
        let is_written = |key: &u64| is_in(*key, round);
        for some in (0..KEYS).filter(is_written).collect::<Vec<_>>().chunks(200) {
            let pending: Vec<_> = some
                .iter()
                .map(|key| client.set(&key.to_le_bytes(), &value(*key, round)))
                .collect();
            for pending in pending {
                pending.wait().expect("what does not grow finds room");
            }
        }
        let bytes = disk_bytes(&data);
        assert!(bytes <= DISK_BYTES_MAX, "{bytes} bytes in round {round}");
    }
    let released = counter(&client, "segments_released");
    assert!(released > 5, "{released} released");
    drop(server);

    let server = serve(&data, io);
    let client = server.client();
    for key in 0..KEYS {
        let found = client.get(&key.to_le_bytes()).wait().unwrap();
        let last = (0..rounds).rev().find(|round| is_in(key, *round)).unwrap();
        assert_eq!(found.expect("set").bytes, value(key, last), "{key}");
    }
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn overwriting_goes_on_for_ever_in_a_bounded_directory_with_io_uring() {
    overwritten_for_ever("auto");
}

#[test]
fn overwriting_goes_on_for_ever_in_a_bounded_directory_with_threads() {
    overwritten_for_ever("threads");
}

#[test]
fn what_grows_is_refused_when_full_and_deleting_makes_room_again() {
    let _one = the_machine();
    let data = folder("cleaning-full");
    let server = serve(&data, "auto");
    let client = server.client();
    client
        .set(b"stock", &1_000_000u64.to_le_bytes())
        .wait()
        .unwrap();
    let mut kept: HashMap<u64, Vec<u8>> = HashMap::new();
    let fill = |kept: &mut HashMap<u64, Vec<u8>>, from: u64| {
        for key in from..from + 100_000 {
            match client.set(&key.to_le_bytes(), &value(key, 0)).wait() {
                Ok(_) => drop(kept.insert(key, value(key, 0))),
                Err(ClientError::Busy(text)) if text.starts_with("FULL") => return,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("it is never full");
    };
    fill(&mut kept, 0);
    assert!(kept.len() > 5_000, "{} keys of some 24 MB", kept.len());
    // The sale goes on: a decrement takes no room.
    for sold in 1..=5_000u64 {
        let sell = [Field::u64(0).at_least(1), Field::u64(0).decrease(1)];
        let sale = client.update_if(b"stock", &sell).wait();
        assert!(sale.is_ok(), "sale {sold}: {sale:?}");
        if sold % 1_000 == 0 {
            assert!(disk_bytes(&data) <= DISK_BYTES_MAX);
        }
    }
    // Deleting a third gives room for new keys.
    let gone: Vec<u64> = kept.keys().copied().filter(|key| key % 3 == 0).collect();
    for key in gone {
        assert!(client.del(&key.to_le_bytes()).wait().unwrap());
        kept.remove(&key);
    }
    let before = kept.len();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while kept.len() < before + 1_000 {
        assert!(std::time::Instant::now() < deadline, "no room came back");
        let from = 1_000_000 + kept.len() as u64;
        fill(&mut kept, from);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(server);

    let server = serve(&data, "auto");
    let client = server.client();
    for key in 0..10_000u64 {
        let found = client.get(&key.to_le_bytes()).wait().unwrap();
        assert_eq!(
            found.map(|found| found.bytes.to_vec()),
            kept.get(&key).cloned(),
            "{key}"
        );
    }
    let stock = client.get(b"stock").wait().unwrap().expect("set");
    assert_eq!(stock.bytes, &995_000u64.to_le_bytes()[..]);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn key_tables_count_against_the_limit_and_leave_before_anything_is_refused() {
    fill_beside_tables("cleaning-tables", true);
}

#[test]
fn key_tables_that_a_start_has_listed_and_nobody_wanted_leave_as_well() {
    fill_beside_tables("cleaning-tables-listed", false);
}

/// Fills a store with key tables to its limit. If they are not to be `loaded`, behind a start.
fn fill_beside_tables(name: &str, loaded: bool) {
    let _one = the_machine();
    let data = folder(name);
    let mut server = serve(&data, "auto");
    let mut client = server.client();
    const KEYS_FIRST: u64 = 6_000;
    for some in (0..KEYS_FIRST).collect::<Vec<_>>().chunks(200) {
        let sets = some
            .iter()
            .map(|key| client.set(&key.to_le_bytes(), &value(*key, 0)));
        let sets: Vec<_> = sets.collect();
        sets.into_iter().for_each(|set| drop(set.wait().unwrap()));
    }
    let scan = |client: &Client, keys: u64| {
        let shown = client.scan(b"", false).map(|entry| entry.unwrap().key);
        let shown: std::collections::HashSet<_> = shown.collect();
        assert_eq!(shown.len() as u64, keys);
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let wait_for = |is_there: &dyn Fn() -> bool, what: &str| {
        while !is_there() {
            assert!(std::time::Instant::now() < deadline, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    let tables = data.join("tables");
    wait_for(
        &|| {
            scan(&client, KEYS_FIRST);
            counter(&client, "key_tables") >= 2
        },
        "no tables are made",
    );
    // A table whose file is being written is not counted yet.
    wait_for(
        &|| counter(&client, "key_table_bytes") == bytes_in(&tables),
        "the tables are counted",
    );
    if !loaded {
        drop(server);
        server = serve(&data, "auto");
        client = server.client();
        wait_for(
            &|| counter(&client, "key_table_bytes") == bytes_in(&tables),
            "the tables of before are listed",
        );
    }
    // Keys come until one is refused.
    let mut keys = KEYS_FIRST;
    loop {
        match client.set(&keys.to_le_bytes(), &value(keys, 0)).wait() {
            Ok(_) => keys += 1,
            Err(ClientError::Busy(text)) if text.starts_with("FULL") => break,
            Err(error) => panic!("{error}"),
        }
        let taken = disk_bytes(&data) + bytes_in(&tables);
        assert!(taken <= DISK_BYTES_MAX, "{taken} bytes");
    }
    // No segment had room any more, and no table was in its place.
    assert!(disk_bytes(&data) + (3 << 20) > DISK_BYTES_MAX);
    assert_eq!(bytes_in(&tables), 0);
    wait_for(
        &|| counter(&client, "key_tables") == 0,
        "the shard holds tables that are gone",
    );
    let made = counter(&client, "key_tables_made");
    scan(&client, keys);
    assert_eq!(counter(&client, "key_tables_made"), made);
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}
