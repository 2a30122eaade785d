//! Cases that the model meets too seldom.

use penstock_net::slot::{core_of, slot_of};
use penstock_storage::version::partition_of;

use crate::random::Random;

use super::model::Content;
use super::world::{Node, time_ms};

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

/// Keys of a shard of several, each of another slot.
fn keys_at(shard: u16, shards: u16) -> impl Iterator<Item = String> {
    let keys = (0..).map(|number| format!("name{number}"));
    keys.filter(move |key| core_of(slot_of(key.as_bytes()), shards) == shard)
}

/// Two keys of a shard that are of one partition and two slots.
fn two_of_a_partition(shard: u16, shards: u16) -> [String; 2] {
    let partition = |key: &String| partition_of(slot_of(key.as_bytes()));
    let mut before: Vec<String> = Vec::new();
    for key in keys_at(shard, shards) {
        let other = before.iter().find(|it| partition(it) == partition(&key));
        if let Some(other) = other {
            return [other.clone(), key];
        }
        before.push(key);
    }
    unreachable!("there are more keys than partitions")
}

/// Two clients that make changes over shards without an end: one of the two slots of a partition is
/// claimed at any time.
struct Steady {
    node: Node,
    lines: [String; 2],
    changes: usize,
    others: Vec<String>,
}

impl Steady {
    const SHARDS: u16 = 3;

    fn new() -> (Steady, [String; 2]) {
        let mut node = Node::new(Self::SHARDS, None);
        node.settle();
        let keys = two_of_a_partition(0, Self::SHARDS);
        let others: Vec<String> = keys_at(1, Self::SHARDS).take(2).collect();
        // Two shards lead: the slots of both are never free in the same turn.
        let lines = [
            format!("MSET {} 1 {} 1", keys[0], others[0]),
            format!("MSET {} 1 {} 1", others[1], keys[1]),
        ];
        let mut steady = Steady {
            node,
            lines,
            changes: 0,
            others: Vec::new(),
        };
        steady.begin();
        (steady, keys)
    }

    /// The second client begins amid a change of the first one.
    fn begin(&mut self) {
        let (mut rounds, before) = (0, self.changes);
        self.ask(0);
        while self.changes == before {
            self.node.round();
            rounds += 1;
            self.take_replies(false);
        }
        self.node.settle();
        self.ask(0);
        for _ in 0..rounds / 2 {
            self.node.round();
        }
        self.ask(1);
    }

    fn ask(&mut self, client: usize) {
        self.node.ask(client, &[self.lines[client].clone()]);
    }

    fn take_replies(&mut self, goes_on: bool) {
        for (client, reply) in self.node.take_replies() {
            if client > 1 {
                self.others.push(reply);
                continue;
            }
            assert_eq!(reply, "+OK\\r\\n");
            self.changes += 1;
            if goes_on {
                self.ask(client);
            }
        }
    }

    /// A round in which both clients go on.
    fn round(&mut self) {
        self.node.round();
        self.take_replies(true);
    }
}

#[test]
fn a_flush_goes_on_beside_changes_that_never_end() {
    let (mut steady, _) = Steady::new();
    steady.node.ask(2, &["FLUSHALL".to_string()]);
    let before = steady.changes;
    while steady.others.is_empty() {
        steady.round();
        let changes = steady.changes - before;
        assert!(changes < 60, "no flush beside {changes} changes");
    }
    assert_eq!(steady.others, ["+OK\\r\\n"]);
    let after = steady.changes;
    (0..ROUNDS).for_each(|_| steady.round());
    assert!(steady.changes > after + 2, "they go on behind it");
}

#[test]
fn a_transaction_of_one_shard_waits_for_more_than_64_changes_over_several() {
    let (mut steady, [a, b]) = Steady::new();
    let lines = ["MULTI", &format!("GET {a}"), &format!("GET {b}"), "EXEC"];
    steady.node.ask(2, &lines.map(str::to_string));
    let before = steady.changes;
    while steady.others.is_empty() && steady.changes < before + 100 {
        steady.round();
    }
    assert!(steady.others.is_empty(), "{:?}", steady.others);
    steady.node.settle();
    steady.take_replies(false);
    let both = "*2\\r\\n$1\\r\\n1\\r\\n$1\\r\\n1\\r\\n";
    assert_eq!(steady.others, [both]);
}

#[test]
fn scripts_of_several_shards_that_take_a_slice_each_run_in_turns_of_their_own() {
    const CLIENTS: u16 = 4;
    let mut node = Node::new(CLIENTS, None);
    node.settle();
    let first = keys_at(0, CLIENTS).take(usize::from(CLIENTS));
    let other = keys_at(1, CLIENTS).take(usize::from(CLIENTS));
    for (client, (a, b)) in first.zip(other).enumerate() {
        node.ask(client, &[format!("EVAL heavy 2 {a} {b} GET~{a} GET~{b}")]);
    }
    node.settle();
    assert_eq!(node.take_replies().len(), usize::from(CLIENTS));
    assert_eq!(node.heavy_at_once(), 1);
}

#[test]
fn what_a_script_has_taken_before_it_met_another_shard_counts() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (a, b) = (&keys_of(0)[0], &keys_of(1)[0]);
    let few = format!("EVAL dear 0 GET~{a} GET~{a}");
    assert_eq!(ask(&mut node, few), "$-1\\r\\n$-1\\r\\n");
    // The third run would begin with as much as two have taken.
    let reply = ask(&mut node, format!("EVAL dear 0 GET~{a} GET~{b}"));
    assert!(reply.starts_with("-TRYAGAIN"), "{reply}");
}

#[test]
fn who_keeps_values_is_notified_of_a_change_over_several_shards_before_its_answer() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (a, b) = (&keys_of(0)[0], &keys_of(1)[0]);
    let told = node.track();
    for client in [0, 1] {
        let writer = Some(node.writer(client));
        node.ask(client, &[format!("MSET {a} {client} {b} {client}")]);
        let mut replies = Vec::new();
        while replies.is_empty() {
            node.round();
            replies = node.take_replies();
        }
        let mut lines = told.take();
        lines.retain(|line| !line.contains(" made "));
        lines.sort();
        let comes = [(0, a), (1, b)].map(|(shard, key)| format!("{shard} comes {key} {writer:?}"));
        assert_eq!(lines, comes);
        node.settle();
        let later = told.take();
        let is_made = |line: &String| line.contains(" made ");
        assert!(later.iter().all(is_made), "it is told once: {later:?}");
    }
}

#[test]
fn what_a_change_over_several_shards_shows_is_noted_where_its_keys_are() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (a, b) = (&keys_of(0)[0], &keys_of(1)[0]);
    let until_ms = time_ms(1_000);
    for key in [a, b] {
        ask(&mut node, format!("SET {key} 1 PXAT {until_ms}"));
    }
    let told = node.track();
    let lines = ["MULTI", &format!("GET {a}"), &format!("GET {b}"), "EXEC"];
    node.ask(0, &lines.map(str::to_string));
    node.settle();
    node.take_replies();
    let mut lines = told.take();
    lines.sort();
    lines.dedup();
    let shown = [(0, a), (1, b)].map(|(shard, key)| format!("{shard} shown {key} {until_ms}"));
    assert_eq!(lines, shown, "the port notes what a transaction reads");
    let writer = node.writer(1);
    node.ask(1, &[format!("EVAL all 2 {a} {b} GET~{a} GET~{b}")]);
    node.settle();
    node.take_replies();
    let lines = told.take();
    for (shard, key) in [(0, a), (1, b)] {
        let read = format!("{shard} read {key} {writer:?}");
        let read = lines.iter().position(|line| *line == read);
        let shown = format!("{shard} shown {key} {until_ms}");
        let shown = lines.iter().rposition(|line| *line == shown);
        assert!(read.is_some() && shown > read, "{lines:?}");
    }
}

/// A program that takes from a key of each shard, as a command of RESP.
fn takes(a: &str, b: &str, token: &str) -> String {
    format!("KV.APPLY {a} KEY {b} {token}k1.decimal~>=~1 k1.decimal~-=~1 k2.decimal~+=~1")
}

fn numbers(node: &mut Node, keys: [&String; 2]) -> [String; 2] {
    let found = node.read_all();
    keys.map(|key| match &found[key].content {
        Content::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_program_with_keys_of_several_shards_is_one_change() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (a, b) = (&keys_of(0)[0], &keys_of(1)[0]);
    ask(&mut node, format!("MSET {a} 1 {b} 5"));
    let before = node.decided();
    let reply = ask(&mut node, takes(a, b, ""));
    assert!(
        reply.contains("OK") && reply.contains(":0\\r\\n:6"),
        "{reply}"
    );
    assert_eq!(node.decided(), before + 1);
    // A guard that does not hold leaves both.
    let reply = ask(&mut node, takes(a, b, ""));
    assert!(reply.contains("GUARD_FAILED"), "{reply}");
    assert_eq!(numbers(&mut node, [a, b]), ["0", "6"]);
    // So do effects of an expiry, which are of one slot.
    let armed =
        format!("KV.APPLY {a} KEY {b} k1~put 1 k1~expires~in~2000ms when~k1~expires:~k2~put 7");
    let reply = ask(&mut node, armed);
    assert!(reply.starts_with("-CROSSSLOT"), "{reply}");
    assert_eq!(numbers(&mut node, [a, b]), ["0", "6"]);
}

#[test]
fn a_program_of_several_shards_is_done_once_for_its_token_whenever_the_power_is_cut() {
    let (a, b) = (&keys_of(0)[0], &keys_of(1)[0]);
    let token = format!("TOKEN order-17 SENT {} ", time_ms(0));
    let mut random = Random::new(3);
    let (mut replayed, mut resumed) = (0, 0);
    for rounds in 0..ROUNDS {
        let mut node = Node::new(SHARDS, None);
        node.settle();
        ask(&mut node, format!("MSET {a} 9 {b} 9"));
        node.ask(0, &[takes(a, b, &token)]);
        (0..rounds).for_each(|_| _ = node.round());
        let is_answered = !node.take_replies().is_empty();
        let mut again = node.cut(&mut random, SHARDS);
        resumed += again.met().with_redo;
        again.settle();
        let reply = ask(&mut again, takes(a, b, &token));
        assert!(reply.contains(":8\\r\\n:10"), "{rounds}: {reply}");
        let is_replayed = reply.contains("replayed\\r\\n:1");
        assert!(is_replayed || !is_answered, "{rounds}: {reply}");
        replayed += usize::from(is_replayed);
        assert_eq!(numbers(&mut again, [a, b]), ["8", "10"], "{rounds}");
        // Another request with the token is none.
        let other = ask(&mut again, takes(b, a, &token));
        assert!(other.contains(":9\\r\\n:9"), "of another slot: {other}");
        let other = format!("KV.APPLY {a} KEY {b} {token}k1.decimal~-=~2 k2.decimal~+=~2");
        let other = ask(&mut again, other);
        assert!(other.starts_with("-TOKENREUSED"), "{other}");
    }
    assert!(replayed > 0 && replayed < ROUNDS, "{replayed}");
    assert!(resumed > 0, "no start has made a token");
}

#[test]
fn a_program_that_leaves_more_than_a_record_has_is_refused_at_each_length() {
    let mut node = Node::new(SHARDS, None);
    node.settle();
    let (here, there) = (keys_of(0), keys_of(1));
    let keys = [&here[0], &there[0], &here[1], &there[1]];
    let (mut done, mut refused) = (0, 0);
    for len in (850..1_020).step_by(2) {
        let value = "v".repeat(len);
        for key in keys {
            assert_eq!(ask(&mut node, format!("SET {key} {value}")), "+OK\\r\\n");
        }
        for token in [String::new(), format!("TOKEN t-{len} SENT {} ", time_ms(0))] {
            let [a, b, c, d] = keys;
            let fields = "k1.u8@0~+=~1 k2.u8@0~+=~1 k3.u8@0~+=~1 k4.u8@0~+=~1";
            let asked = format!("KV.APPLY {a} KEY {b} KEY {c} KEY {d} {token}{fields}");
            let reply = ask(&mut node, asked);
            match reply.contains("OK") {
                true => done += 1,
                false => {
                    let is_named = ["is the limit", "the largest record"];
                    let is_named = is_named.iter().any(|text| reply.contains(text));
                    assert!(is_named, "{len}: {reply}");
                    refused += 1;
                }
            }
        }
    }
    assert!(done > 20 && refused > 5, "{done} done, {refused} refused");
}
