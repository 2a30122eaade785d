//! Cases that the model meets too seldom.

use penstock_net::slot::{core_of, slot_of};

use crate::random::Random;

use super::model::Content;
use super::world::Node;

const SHARDS: u16 = 2;
/// Items that may wait in a shard.
const PARKED_MAX: usize = 4096;
const ROUNDS: usize = 40;

/// The keys of the model that a shard has.
fn keys_of(shard: u16) -> Vec<String> {
    let keys = (0..8).map(|number| format!("key{number}"));
    let is_of = |key: &String| core_of(slot_of(key.as_bytes()), SHARDS) == shard;
    keys.filter(is_of).collect()
}

fn ask(node: &mut Node, line: String) -> String {
    node.ask(0, &[line]);
    node.settle();
    node.take_replies().pop().expect("a reply").1
}

#[test]
fn effects_that_fire_while_keys_are_copied_begin_the_copies_anew() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (stock, other) = (&keys_of(0)[0], &keys_of(1)[0]);
    let hold = format!("{{{stock}}}hold");
    assert_eq!(ask(&mut node, format!("SET {stock} 1")), "+OK\\r\\n");
    let apply = format!(
        "KV.APPLY {hold} KEY {stock} k1~put 1 k1~expires~in~2000ms when~k1~expires:~k2~put 7"
    );
    assert!(ask(&mut node, apply).contains("OK"), "it is armed");
    let lines = [
        "MULTI".to_string(),
        format!("GET {stock}"),
        format!("GET {hold}"),
        format!("INCRBY {other} 1"),
        "EXEC".to_string(),
    ];
    for client in 0..2 {
        node.ask(client, &lines);
    }
    // One is decided and has the slot, and the other one waits for it: the key cannot fire before
    // the other one copies, and its name is behind that of the key that it changes.
    for _ in 0..ROUNDS {
        if node.open_changes() == 0 {
            node.round();
        }
    }
    assert_eq!(node.open_changes(), 1);
    node.tick();
    node.settle();
    let mut replies: Vec<String> = node.take_replies().into_iter().map(|it| it.1).collect();
    replies.sort();
    let expected = [
        "*3\\r\\n$1\\r\\n1\\r\\n$1\\r\\n1\\r\\n:1\\r\\n",
        "*3\\r\\n$1\\r\\n7\\r\\n$-1\\r\\n:2\\r\\n",
    ];
    assert_eq!(replies, expected);
}

#[test]
fn a_start_reads_the_keys_of_a_decided_part_though_as_much_waits_as_may() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (a, b) = (&keys_of(0)[0], &keys_of(1)[0]);
    assert_eq!(ask(&mut node, format!("MSET {a} 1 {b} 1")), "+OK\\r\\n");
    node.ask(0, &[format!("MSET {a} 2 {b} 2")]);
    let (mut random, mut starts) = (Random::new(1), 0);
    for _ in 0..ROUNDS {
        node.round();
        let mut again = node.cut(&mut random, SHARDS);
        if again.met().with_redo == 0 {
            continue;
        }
        for shard in 0..SHARDS {
            let key = keys_of(shard).pop().expect("one of each");
            let taken = again.read_beside(usize::from(shard), &key, 5_000);
            assert!(taken >= PARKED_MAX, "{taken} reads");
        }
        again.settle();
        let found = again.read_all();
        for key in [a, b] {
            assert_eq!(found[key].content, Content::Text("2".into()));
        }
        starts += 1;
    }
    assert!(starts > 0, "no start found a redo record");
}
