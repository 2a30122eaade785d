//! What a node could not keep is told with what the cluster has of it by now, and a person's choice
//! of it is done again once.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use penstock_client::{Apply, Client, Verbs, new_token};
use penstock_net::level::AckLevel;
use penstock_net::request::Token;
use serde_json::Value;

use super::nodes::{Cluster, Server, until, wait_for_follower, wait_for_primary};
use crate::command::command;
use crate::process::beside_clusters;

/// Buys one for a buyer: the stock falls, and the order is new.
fn order(buyer: &str) -> Apply {
    let key = format!("{{sale}}order:{buyer}");
    let mut apply = Apply::new();
    let (stock, order) = (apply.key(b"{sale}stock"), apply.key(key.as_bytes()));
    apply
        .then(order.is_absent())
        .then(stock.decimal().decrease(1u64))
        .put(order, buyer.as_bytes());
    apply
}

fn sale(client: &Client, token: Option<Token>, buyer: &str) {
    let sold = match token {
        Some(token) => client.named(token).apply(&order(buyer)).wait(),
        None => client.apply(&order(buyer)).wait(),
    };
    sold.expect("sold");
}

fn export(data: &Path, more: &[&str]) -> Vec<Value> {
    let mut exported = command(&["cluster", "lostfound", "export", "--json"]);
    let output = exported.arg(data).args(more).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).expect("text");
    let lines = printed.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON")
}

/// Which buyer's order a write is.
fn buyer_of(write: &Value) -> String {
    let changes = write["changes"].as_array().expect("a list").iter();
    let keys = changes.filter_map(|it| it["key"].as_str());
    let mut orders = keys.filter_map(|it| it.split_once("order:"));
    orders.next().map_or("", |(_, buyer)| buyer).into()
}

fn there(writes: &[Value]) -> Vec<(String, String)> {
    let text = |it: &Value| it["there"].as_str().expect("a word").to_string();
    writes.iter().map(|it| (buyer_of(it), text(it))).collect()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/lostfound/lostfound.py")
}

/// Runs the example; `None` on a machine without a Python that has `match`.
fn script(words: &[&str]) -> Option<Output> {
    let version = "import sys; sys.exit(sys.version_info < (3, 10))";
    let known = Command::new("python3").args(["-c", version]).status();
    if !known.is_ok_and(|it| it.success()) {
        eprintln!("skipped: there is no python3 of 3.10 or later");
        return None;
    }
    let mut run = Command::new("python3");
    run.arg(example()).args(words);
    run.env("PENSTOCK", command(&[]).get_program());
    Some(run.output().expect("it runs"))
}

fn stock_of(client: &Client) -> String {
    let stock = client.get(b"{sale}stock").wait().expect("read");
    let stock = stock.expect("there").bytes.to_vec();
    String::from_utf8(stock).expect("digits")
}

/// A primary whose member is away sells to ann and bob with tokens and to eve without, and is
/// killed. Ann's client asks again; the lost node comes back.
fn sell_alone(cluster: &Cluster, tokens: &[Token; 2]) -> (Server, Server) {
    let (first, second) = cluster.start_two();
    let client = first.client(AckLevel::Replica);
    client.set(b"{sale}stock", b"100").wait().expect("set");
    wait_for_follower(&first, &second);
    second.stop();
    let alone = first.client(AckLevel::Disk);
    sale(&alone, Some(tokens[0]), "ann");
    sale(&alone, Some(tokens[1]), "bob");
    sale(&alone, None, "eve");
    drop((alone, client, first));
    let second = cluster.start(2, &[]);
    cluster.does(&["promote", "--to", "2", "--force", "--accept-loss"]);
    wait_for_primary(&second);
    sale(&second.client(AckLevel::Disk), Some(tokens[0]), "ann");
    let first = cluster.start(1, &[]);
    wait_for_follower(&second, &first);
    until("it keeps the tail", || {
        let files = std::fs::read_dir(cluster.data(1).join("lostfound"));
        files.is_ok_and(|files| files.count() > 0)
    });
    (first, second)
}

#[test]
fn an_export_shows_what_is_there_by_now_and_a_choice_of_it_is_done_once() {
    let _clusters = beside_clusters();
    let cluster = Cluster::new("cluster-export");
    let tokens = [0; 2].map(|_| new_token().expect("random"));
    let (first, second) = sell_alone(&cluster, &tokens);
    let client = second.client(AckLevel::Disk);
    assert_eq!(stock_of(&client), "99");

    let writer = second.address.to_string();
    let data = cluster.data(1);
    let pair = |buyer: &str, there: &str| (buyer.to_string(), there.to_string());
    let offline = export(&data, &["--offline"]);
    let unknown = ["ann", "bob", "eve"].map(|buyer| pair(buyer, "unknown"));
    assert_eq!(there(&offline), unknown);
    // The node runs, and asks its way to the one that writes.
    for addr in [&writer, &first.address.to_string()] {
        let writes = export(&data, &["--addr", addr]);
        let expected = [pair("ann", "token"), pair("bob", "no"), pair("eve", "no")];
        assert_eq!(there(&writes), expected);
        assert_eq!(writes[0]["token"], tokens[0].to_string());
        assert_eq!(writes[2]["token"], Value::Null);
        let bob = &writes[1];
        assert_eq!(bob["written_by"], 1);
        let hex = |text: &str| serde_json::json!({"value_hex": text});
        let stock = &bob["changes"].as_array().expect("a list")[1];
        assert_eq!(stock["key"], "{sale}stock");
        assert_eq!(stock["at_fork"], hex("313030"), "{bob}");
        assert_eq!(stock["before"], hex("3939"), "{bob}");
        assert_eq!(stock["value_hex"], "3938");
        assert_eq!(stock["now"]["value_hex"], "3939");
        let order = &bob["changes"].as_array().expect("a list")[0];
        let none = serde_json::json!({ "value_hex": null });
        assert_eq!((&order["at_fork"], &order["now"]), (&none, &none));
    }
    // The questions have changed nothing.
    assert_eq!(stock_of(&client), "99");
    assert!(
        client
            .get(b"{sale}order:bob")
            .wait()
            .expect("read")
            .is_none()
    );

    if do_again(&cluster, &writer, &client) {
        // Bob's client sends its write at last: it is not executed a second time.
        let outcome = client.named(tokens[1]).apply(&order("bob")).wait();
        assert!(outcome.is_err(), "{outcome:?}");
        assert_eq!(stock_of(&client), "97");
    }
    first.stop();
    second.stop();
}

/// Chooses and applies by the example, twice. Whether that could be done here.
fn do_again(cluster: &Cluster, writer: &str, client: &Client) -> bool {
    let folder = cluster.data(1);
    let (lost, chosen) = (folder.join("lost.jsonl"), folder.join("chosen.jsonl"));
    let writes = export(&folder, &["--addr", writer]);
    let lines: String = writes.iter().map(|it| format!("{it}\n")).collect();
    std::fs::write(&lost, lines).expect("written");
    let (lost, chosen_path) = (lost.display().to_string(), chosen.display().to_string());
    // The export of another node that had received the same.
    let Some(output) = script(&["choose", &lost, &lost]) else {
        return false;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("2 chosen, 1 are there, 0 left"), "{said}");
    std::fs::write(&chosen, &output.stdout).expect("written");
    for expected in ["2 done, 0 were done before", "0 done, 2 were done before"] {
        let output = script(&["apply", &chosen_path, "--addr", writer]).expect("as before");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(expected), "{said} {output:?}");
        assert_eq!(stock_of(client), "97", "each sale counts once");
    }
    true
}
