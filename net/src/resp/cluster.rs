//! CLUSTER of a node alone: it has all slots.

use std::fmt::Write as _;

use crate::slot::{SLOTS, slot_of};

use super::host::Facts;
use super::parser::Arguments;
use super::reply::Replies;
use super::words::{unknown_subcommand, wrong_subcommand};

pub(super) fn answer(args: Arguments<'_>, facts: &Facts, replies: &mut Replies<'_>) {
    let name = args.get(1).to_ascii_lowercase();
    match (&name[..], args.len()) {
        (b"keyslot", 3) => replies.integer(slot_of(args.get(2)).into()),
        (b"myid", 2) => replies.bulk(node_name(&facts.node).as_bytes()),
        (b"info" | b"slots" | b"shards" | b"nodes", 2) if facts.is_clustered => {
            replies
                .error(b"ERR this node is one of a cluster, whose RESP addresses it does not know");
        }
        (b"info", 2) => replies.text(&info()),
        (b"slots", 2) => slots(facts, replies),
        (b"shards", 2) => shards(facts, replies),
        (b"nodes", 2) => replies.text(&nodes(facts)),
        (b"keyslot" | b"myid" | b"info" | b"slots" | b"shards" | b"nodes", _) => {
            let name = String::from_utf8_lossy(&name);
            wrong_subcommand(&format!("cluster|{name}"), replies);
        }
        _ => unknown_subcommand("CLUSTER", args, replies),
    }
}

/// The identity of a node in the form of Redis: 40 digits.
pub(super) fn node_name(node: &[u8; 16]) -> String {
    let mut name = String::new();
    for byte in node.iter().chain(&node[..4]) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn info() -> String {
    let rows = [
        ("cluster_state", "ok"),
        ("cluster_slots_assigned", "16384"),
        ("cluster_slots_ok", "16384"),
        ("cluster_slots_pfail", "0"),
        ("cluster_slots_fail", "0"),
        ("cluster_known_nodes", "1"),
        ("cluster_size", "1"),
        ("cluster_current_epoch", "1"),
        ("cluster_my_epoch", "1"),
    ];
    let rows = rows
        .iter()
        .map(|(name, value)| format!("{name}:{value}\r\n"));
    rows.collect()
}

fn slots(facts: &Facts, replies: &mut Replies<'_>) {
    replies.array(1);
    replies.array(3);
    replies.integer(0);
    replies.integer(i64::from(SLOTS) - 1);
    replies.array(4);
    replies.bulk(facts.ip.as_bytes());
    replies.integer(facts.port.into());
    replies.bulk(node_name(&facts.node).as_bytes());
    replies.array(0);
}

fn shards(facts: &Facts, replies: &mut Replies<'_>) {
    replies.array(1);
    replies.map(2);
    replies.bulk(b"slots");
    replies.array(2);
    replies.integer(0);
    replies.integer(i64::from(SLOTS) - 1);
    replies.bulk(b"nodes");
    replies.array(1);
    replies.map(7);
    replies.bulk(b"id");
    replies.bulk(node_name(&facts.node).as_bytes());
    replies.bulk(b"port");
    replies.integer(facts.port.into());
    for (name, text) in [
        ("ip", &facts.ip[..]),
        ("endpoint", &facts.ip),
        ("role", "master"),
    ] {
        replies.bulk(name.as_bytes());
        replies.bulk(text.as_bytes());
    }
    replies.bulk(b"replication-offset");
    replies.integer(0);
    replies.bulk(b"health");
    replies.bulk(b"online");
}

fn nodes(facts: &Facts) -> String {
    let (name, ip, port) = (node_name(&facts.node), &facts.ip, facts.port);
    let bus = u32::from(port) + 10_000;
    format!(
        "{name} {ip}:{port}@{bus} myself,master - 0 0 1 connected 0-{}\n",
        SLOTS - 1
    )
}
