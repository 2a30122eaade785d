//! How many turns of its loop a core takes for an operation.

use penstock_client::{Client, Verbs};
use serde_json::Value;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

fn turns(client: &Client) -> u64 {
    let info = client.info().wait().unwrap();
    let info: Value = serde_json::from_str(&info).unwrap();
    info["counters"]["turns"].as_u64().unwrap()
}

/// A request takes one turn. Its reply leaves after that, and nothing waits for the room.
#[test]
fn a_reply_that_has_left_ends_no_turn() {
    const GETS: u64 = 2_000;
    let data = scratch::folder("turns");
    let server = Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--admin-listen", "off", "--shards", "1"])
            .args(["--cache-bytes", "16MiB", "--segment-bytes", "4MiB"])
            .args(["--value-bytes-max", "64KiB"])
            .arg("--data")
            .arg(&data),
    );
    let client = server.client();
    client.set(b"key", b"value").wait().unwrap();
    let before = turns(&client);
    for _ in 0..GETS {
        client.get(b"key").wait().unwrap();
    }
    let taken = turns(&client) - before;
    // Some turns come because of the time.
    assert!((GETS..GETS * 3 / 2).contains(&taken), "{taken} turns");
    server.stop();
}
