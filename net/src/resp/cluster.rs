//! CLUSTER: the slots of a node alone, which has all of them, or of the nodes of a cluster.

use std::fmt::Write as _;

use crate::slot::{SLOTS, slot_of};

use super::host::{ClusterNode, ClusterView, Facts, Host, SlotRange};
use super::parser::Arguments;
use super::reply::Replies;
use super::words::{unknown_subcommand, wrong_subcommand};

/// A node as it is told.
struct Told {
    name: String,
    host: String,
    port: u16,
}

/// What is told of a cluster: neighbouring slots, who writes them, and who holds them besides.
/// Nodes without an address for clients of Redis are left out, and so are the slots they write.
struct Layout {
    me: String,
    nodes: Vec<Told>,
    /// With places in `nodes`.
    ranges: Vec<(u16, u16, usize, Vec<usize>)>,
    known: usize,
}

/// Who writes, who holds besides, and which slots.
type Shard<'a> = (usize, &'a [usize], Vec<(u16, u16)>);

const HELP: [&str; 14] = [
    "INFO",
    "    Return information about the cluster.",
    "KEYSLOT <key>",
    "    Return the hash slot for <key>.",
    "MYID",
    "    Return the node id.",
    "NODES",
    "    Return cluster configuration seen by node. Output format:",
    "    <id> <ip:port> <flags> <primary> <pings> <pongs> <epoch> <link> <slot> ...",
    "SHARDS",
    "    Return information about slot range mappings and the nodes associated with them.",
    "SLOTS",
    "    Return information about slots range mappings. Each range is made of:",
    "    start, end, primary and replicas IP addresses, ports and ids",
];

pub(super) fn answer(args: Arguments<'_>, host: &dyn Host, replies: &mut Replies<'_>) {
    let name = args.get(1).to_ascii_lowercase();
    match (&name[..], args.len()) {
        (b"keyslot", 3) => replies.integer(slot_of(args.get(2)).into()),
        (b"myid", 2) => replies.bulk(Layout::of(host).me.as_bytes()),
        (b"info", 2) => replies.text(&Layout::of(host).info()),
        (b"slots", 2) => Layout::of(host).slots(replies),
        (b"shards", 2) => Layout::of(host).shards(replies),
        (b"nodes", 2) => replies.text(&Layout::of(host).nodes()),
        (b"help", 2) => replies.help("CLUSTER", &HELP),
        (b"keyslot" | b"myid" | b"info" | b"slots" | b"shards" | b"nodes" | b"help", _) => {
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

/// The name of a node of a cluster: 32 digits of the cluster, 8 of its number there.
fn member_name(cluster: &[u8; 16], number: u8) -> String {
    let mut name = String::new();
    for byte in cluster {
        let _ = write!(name, "{byte:02x}");
    }
    let _ = write!(name, "{number:08x}");
    name
}

/// Whether this node writes a slot.
pub(super) fn writes(view: &ClusterView) -> bool {
    view.ranges.iter().any(|range| range.writer == view.me)
}

impl Layout {
    fn of(host: &dyn Host) -> Layout {
        match host.cluster() {
            Some(view) => Layout::of_view(&view),
            None => Layout::alone(&host.facts()),
        }
    }

    fn alone(facts: &Facts) -> Layout {
        let me = node_name(&facts.node);
        Layout {
            nodes: vec![Told {
                name: me.clone(),
                host: facts.ip.clone(),
                port: facts.port,
            }],
            me,
            ranges: vec![(0, SLOTS - 1, 0, Vec::new())],
            known: 1,
        }
    }

    fn of_view(view: &ClusterView) -> Layout {
        let told = |node: &ClusterNode| {
            let (host, port) = node.resp.as_deref()?.rsplit_once(':')?;
            Some(Told {
                name: member_name(&view.id, node.number),
                host: host.trim_matches(['[', ']']).to_string(),
                port: port.parse().ok()?,
            })
        };
        let nodes: Vec<Told> = view.nodes.iter().filter_map(told).collect();
        let place = |number: u8| {
            let name = member_name(&view.id, number);
            nodes.iter().position(|node| node.name == name)
        };
        let range = |range: &SlotRange| {
            // To clients a node is a master or a replica, so one that writes is no replica.
            let is_replica = |member: &&u8| view.ranges.iter().all(|it| it.writer != **member);
            let members = range.members.iter().filter(is_replica);
            let members = members.filter_map(|member| place(*member));
            Some((
                range.first,
                range.last,
                place(range.writer)?,
                members.collect(),
            ))
        };
        let ranges = view.ranges.iter().filter_map(range).collect();
        Layout {
            me: member_name(&view.id, view.me),
            ranges,
            nodes,
            known: view.nodes.len(),
        }
    }

    fn info(&self) -> String {
        let slots: u32 = self
            .ranges
            .iter()
            .map(|(first, last, ..)| u32::from(last - first) + 1)
            .sum();
        let mut writers: Vec<usize> = self.ranges.iter().map(|range| range.2).collect();
        writers.sort_unstable();
        writers.dedup();
        let is_whole = slots == u32::from(SLOTS);
        let rows = [
            (
                "cluster_state",
                if is_whole { "ok" } else { "fail" }.to_string(),
            ),
            ("cluster_slots_assigned", slots.to_string()),
            ("cluster_slots_ok", slots.to_string()),
            ("cluster_slots_pfail", "0".to_string()),
            ("cluster_slots_fail", "0".to_string()),
            ("cluster_known_nodes", self.known.to_string()),
            ("cluster_size", writers.len().to_string()),
            ("cluster_current_epoch", "1".to_string()),
            ("cluster_my_epoch", "1".to_string()),
        ];
        let rows = rows
            .iter()
            .map(|(name, value)| format!("{name}:{value}\r\n"));
        rows.collect()
    }

    fn slots(&self, replies: &mut Replies<'_>) {
        replies.array(self.ranges.len());
        for (first, last, writer, members) in &self.ranges {
            replies.array(3 + members.len());
            replies.integer((*first).into());
            replies.integer((*last).into());
            for node in std::iter::once(writer).chain(members) {
                let node = &self.nodes[*node];
                replies.array(4);
                replies.bulk(node.host.as_bytes());
                replies.integer(node.port.into());
                replies.bulk(node.name.as_bytes());
                replies.array(0);
            }
        }
    }

    /// A shard is what one node writes: with equal members, as Redis has it.
    fn shards(&self, replies: &mut Replies<'_>) {
        let mut shards: Vec<Shard<'_>> = Vec::new();
        for (first, last, writer, members) in &self.ranges {
            let known = shards
                .iter_mut()
                .find(|(other, others, _)| (*other, *others) == (*writer, &members[..]));
            match known {
                Some((.., slots)) => slots.push((*first, *last)),
                None => shards.push((*writer, members, vec![(*first, *last)])),
            }
        }
        replies.array(shards.len());
        for (writer, members, slots) in &shards {
            replies.map(2);
            replies.bulk(b"slots");
            replies.array(2 * slots.len());
            for (first, last) in slots {
                replies.integer((*first).into());
                replies.integer((*last).into());
            }
            replies.bulk(b"nodes");
            replies.array(1 + members.len());
            self.shard_node(*writer, "master", replies);
            for member in *members {
                self.shard_node(*member, "replica", replies);
            }
        }
    }

    fn shard_node(&self, node: usize, role: &str, replies: &mut Replies<'_>) {
        let node = &self.nodes[node];
        replies.map(7);
        replies.bulk(b"id");
        replies.bulk(node.name.as_bytes());
        replies.bulk(b"port");
        replies.integer(node.port.into());
        for (name, text) in [
            ("ip", &node.host[..]),
            ("endpoint", &node.host),
            ("role", role),
        ] {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
        replies.bulk(b"replication-offset");
        replies.integer(0);
        replies.bulk(b"health");
        replies.bulk(b"online");
    }

    /// A line for each node. One that writes nothing is told as a replica of who writes first of
    /// what it holds.
    fn nodes(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let myself = if node.name == self.me { "myself," } else { "" };
            let written = self.ranges.iter().filter(|range| range.2 == number);
            let written: Vec<String> = written
                .map(|(first, last, ..)| match first == last {
                    true => format!(" {first}"),
                    false => format!(" {first}-{last}"),
                })
                .collect();
            let holds = self.ranges.iter().find(|range| range.3.contains(&number));
            let (role, primary) = match (written.is_empty(), holds) {
                (true, Some(range)) => ("slave", &self.nodes[range.2].name[..]),
                _ => ("master", "-"),
            };
            let (name, host, port) = (&node.name, &node.host, node.port);
            let bus = u32::from(port) + 10_000;
            let _ = writeln!(
                text,
                "{name} {host}:{port}@{bus} {myself}{role} {primary} 0 0 1 connected{}",
                written.concat()
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u16, last: u16, writer: u8, members: &[u8]) -> SlotRange {
        SlotRange {
            first,
            last,
            writer,
            members: members.to_vec(),
            sync: members.to_vec(),
        }
    }

    #[test]
    fn nodes_without_an_address_are_left_out_with_the_slots_that_they_write() {
        let node = |number, resp: Option<&str>| ClusterNode {
            number,
            resp: resp.map(str::to_string),
        };
        let view = ClusterView {
            id: [0xAB; 16],
            me: 2,
            nodes: vec![
                node(1, Some("one:7413")),
                node(2, Some("[::1]:7513")),
                node(3, None),
            ],
            ranges: vec![
                range(0, 99, 1, &[2, 3]),
                range(100, 199, 2, &[1]),
                range(200, SLOTS - 1, 3, &[1, 2]),
            ],
        };
        let layout = Layout::of_view(&view);
        let name = |number: u8| format!("{}{number:08x}", "ab".repeat(16));
        assert_eq!(
            layout.nodes(),
            format!(
                "{} one:7413@17413 master - 0 0 1 connected 0-99\n\
                 {} ::1:7513@17513 myself,master - 0 0 1 connected 100-199\n",
                name(1),
                name(2)
            )
        );
        let replicas = layout.ranges.iter().map(|range| range.3.len());
        assert_eq!(replicas.sum::<usize>(), 0, "each of them writes");
        let info = layout.info();
        assert!(info.contains("cluster_state:fail\r\ncluster_slots_assigned:200\r\n"));
        assert!(info.contains("cluster_known_nodes:3\r\ncluster_size:2\r\n"));
    }
}
