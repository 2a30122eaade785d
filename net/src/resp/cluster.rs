//! CLUSTER: the slots of a node alone, which has all of them, or of the nodes of a cluster.

use std::fmt::Write as _;

use crate::slot::{SLOTS, core_of, partition_end, slot_of, slots_of};

use super::cores::{CorePorts, OwnCore};
use super::host::{ClusterNode, ClusterView, Facts, Host, SlotRange};
use super::parser::Arguments;
use super::reply::Replies;
use super::words::{unknown_subcommand, wrong_subcommand};

/// A node as clients see it: a core with a port of its own, or all of a node.
struct ShownNode {
    name: String,
    host: String,
    port: u16,
}

/// Neighbouring slots, who writes them, and who holds them besides: places in `Layout::nodes`.
type Placed = (u16, u16, usize, Vec<usize>);

/// A cluster as clients see it. Nodes without an address for clients of Redis are left out, and so
/// are the slots they write.
struct Layout {
    me: String,
    nodes: Vec<ShownNode>,
    /// The port that the cores share, for a connection that came by it: it has no slots.
    entry: Option<ShownNode>,
    ranges: Vec<Placed>,
    known: usize,
}

/// Where the cores of a node stand in `Layout::nodes`.
struct Places {
    number: u8,
    first: usize,
    /// One, if the node has one port.
    cores: u16,
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
    format!("{}{number:08x}", digits(cluster))
}

/// The name of a core: 32 digits of the node or its cluster, 4 of the core, 4 of the node's number,
/// which is 0 of a node alone.
fn core_name(identity: &[u8; 16], core: u16, number: u8) -> String {
    format!("{}{:04x}{number:04x}", digits(identity), core + 1)
}

fn digits(identity: &[u8; 16]) -> String {
    identity.iter().fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

impl Layout {
    fn of(host: &dyn Host) -> Layout {
        match host.cluster() {
            Some(view) => Layout::of_view(&view, host.core()),
            None => Layout::alone(&host.facts(), host.core()),
        }
    }

    fn alone(facts: &Facts, own: Option<OwnCore>) -> Layout {
        let at = |name, port| ShownNode {
            name,
            host: facts.announced_host.clone(),
            port,
        };
        let node = at(node_name(&facts.node), facts.port);
        let Some(ports) = facts.announced_cores else {
            return Layout {
                me: node.name.clone(),
                nodes: vec![node],
                entry: None,
                ranges: vec![(0, SLOTS - 1, 0, Vec::new())],
                known: 1,
            };
        };
        let name = |core| core_name(&facts.node, core, 0);
        let nodes = (0..ports.cores()).map(|core| at(name(core), ports.port(core)));
        let ranges = (0..ports.cores()).map(|core| {
            let slots = slots_of(core, ports.cores());
            (*slots.start(), *slots.end(), core.into(), Vec::new())
        });
        let entry = own.is_none().then_some(node);
        Layout {
            me: own.map_or(node_name(&facts.node), |own| name(own.core)),
            nodes: nodes.collect(),
            ranges: ranges.collect(),
            known: usize::from(ports.cores()) + usize::from(entry.is_some()),
            entry,
        }
    }

    fn of_view(view: &ClusterView, own: Option<OwnCore>) -> Layout {
        let (mut nodes, mut places, mut entry) = (Vec::new(), Vec::new(), None);
        let mut me = member_name(&view.id, view.me);
        for node in &view.nodes {
            let Some((host, port)) = address(node) else {
                continue;
            };
            let at = |name, port| ShownNode {
                name,
                host: host.to_string(),
                port,
            };
            places.push(Places {
                number: node.number,
                first: nodes.len(),
                cores: node.cores.map_or(1, CorePorts::cores),
            });
            let whole = at(member_name(&view.id, node.number), port);
            let Some(ports) = node.cores else {
                nodes.push(whole);
                continue;
            };
            let name = |core| core_name(&view.id, core, node.number);
            nodes.extend((0..ports.cores()).map(|core| at(name(core), ports.port(core))));
            match own {
                _ if node.number != view.me => {}
                Some(own) if own.core < ports.cores() => me = name(own.core),
                _ => entry = Some(whole),
            }
        }
        let of_core = |node: &ClusterNode| node.cores.map_or(1, |ports| ports.cores().into());
        let known: usize = view.nodes.iter().map(of_core).sum();
        Layout {
            me,
            ranges: ranges(view, &places, nodes.len()),
            nodes,
            known: known + usize::from(entry.is_some()),
            entry,
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

    /// A line for each node, the entry port first, if it is asked. One that writes nothing is told
    /// as a replica of who writes first of what it holds.
    fn nodes(&self) -> String {
        let mut text = String::new();
        // No place in `nodes` is so high, so it has no slots.
        let entry = self.entry.iter().map(|entry| (usize::MAX, entry));
        for (number, node) in entry.chain(self.nodes.iter().enumerate()) {
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

/// Where clients of Redis find a node.
fn address(node: &ClusterNode) -> Option<(&str, u16)> {
    let (host, port) = node.resp.as_deref()?.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']), port.parse().ok()?))
}

/// The slots of a cluster with this many places. Ranges are split at the borders of the cores of
/// who writes and of who holds them besides. To clients a node is a master or a replica, so one
/// that writes is no replica.
fn ranges(view: &ClusterView, places: &[Places], count: usize) -> Vec<Placed> {
    let place = |number: u8, slot: u16| {
        let node = places.iter().find(|node| node.number == number)?;
        Some(node.first + usize::from(core_of(slot, node.cores)))
    };
    let mut writes = vec![false; count];
    for (range, (first, _)) in pieces(view) {
        if let Some(writer) = place(range.writer, first) {
            writes[writer] = true;
        }
    }
    let mut placed: Vec<Placed> = Vec::new();
    for (range, (first, last)) in pieces(view) {
        let Some(writer) = place(range.writer, first) else {
            continue;
        };
        let members = range.members.iter();
        let members = members.filter_map(|member| place(*member, first));
        let members: Vec<usize> = members.filter(|member| !writes[*member]).collect();
        match placed.last_mut() {
            Some((.., end, before, others))
                if first > range.first && (*before, &*others) == (writer, &members) =>
            {
                *end = last;
            }
            _ => placed.push((first, last, writer, members)),
        }
    }
    placed
}

/// The parts of all ranges, each within one partition, so that a core has all of it or nothing.
fn pieces(view: &ClusterView) -> impl Iterator<Item = (&SlotRange, (u16, u16))> {
    view.ranges.iter().flat_map(|range| {
        let mut next = Some(range.first);
        std::iter::from_fn(move || {
            let first = next?;
            let last = partition_end(first).min(range.last);
            next = (last < range.last).then(|| last + 1);
            Some((range, (first, last)))
        })
    })
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
            cores: None,
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
        let layout = Layout::of_view(&view, None);
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

    #[test]
    fn each_core_is_a_node_with_its_slots_and_names_that_stay() {
        let facts = |port, cores| Facts {
            node: [0xAB; 16],
            announced_host: "host".into(),
            port,
            announced_cores: CorePorts::new(7430, cores),
            ..Facts::default()
        };
        let name = |core: u16| format!("{}{:04x}0000", "ab".repeat(16), core + 1);
        let own = OwnCore { core: 1, cores: 2 };
        let by_core = Layout::alone(&facts(7431, 2), Some(own));
        assert_eq!(
            by_core.nodes(),
            format!(
                "{} host:7430@17430 master - 0 0 1 connected 0-8191\n\
                 {} host:7431@17431 myself,master - 0 0 1 connected 8192-16383\n",
                name(0),
                name(1)
            )
        );
        assert_eq!(by_core.me, name(1));
        assert!(
            by_core
                .info()
                .contains("cluster_known_nodes:2\r\ncluster_size:2\r\n")
        );
        // The entry port is a node of its own, without slots.
        let by_entry = Layout::alone(&facts(7413, 2), None);
        let nodes = by_entry.nodes();
        let (entry, cores) = nodes.split_once('\n').expect("lines");
        assert_eq!(
            entry,
            format!(
                "{} host:7413@17413 myself,master - 0 0 1 connected",
                "ab".repeat(20)
            )
        );
        assert_eq!(cores, by_core.nodes().replace("myself,", ""));
        // Another number of shards moves slots, and no name.
        let by_three = Layout::alone(&facts(7413, 3), None);
        let names = by_three.nodes.iter().map(|node| node.name.clone());
        assert_eq!(names.collect::<Vec<_>>(), [0, 1, 2].map(name));
        let borders = by_three.ranges.iter().map(|range| (range.0, range.1));
        let expected = [(0, 5503), (5504, 10_943), (10_944, 16_383)];
        assert_eq!(borders.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn members_with_another_number_of_shards_split_slots_at_the_borders_of_both() {
        let node = |number: u8, cores: u16| ClusterNode {
            number,
            resp: Some(format!("[::{number}]:7413")),
            cores: CorePorts::new(7430, cores),
        };
        let view = ClusterView {
            id: [0xAB; 16],
            me: 2,
            nodes: vec![node(1, 2), node(2, 3), node(3, 0)],
            ranges: vec![range(0, SLOTS - 1, 1, &[2, 3])],
        };
        let layout = Layout::of_view(&view, Some(OwnCore { core: 2, cores: 3 }));
        // Two cores of node 1, then three of node 2, then node 3, which has one port.
        let expected = [
            (0, 5503, 0, vec![2, 5]),
            (5504, 8191, 0, vec![3, 5]),
            (8192, 10_943, 1, vec![3, 5]),
            (10_944, SLOTS - 1, 1, vec![4, 5]),
        ];
        assert_eq!(layout.ranges, expected);
        let name = |core: u16, number: u8| format!("{}{core:04x}{number:04x}", "ab".repeat(16));
        assert_eq!(layout.me, name(3, 2));
        assert_eq!(layout.nodes[5].name, name(0, 3));
        let nodes = layout.nodes();
        let replica = |core: u16, port: u16, mine: &str, of: u16| {
            let (name, of) = (name(core, 2), name(of, 1));
            let bus = port + 10_000;
            format!("{name} ::2:{port}@{bus} {mine}slave {of} 0 0 1 connected\n")
        };
        for (core, mine, of) in [(1, "", 1), (2, "", 1), (3, "myself,", 2)] {
            let line = replica(core, 7429 + core, mine, of);
            assert!(nodes.contains(&line), "{line} in {nodes}");
        }
        assert_eq!(view.address_of(1, 8191).as_deref(), Some("[::1]:7430"));
        assert_eq!(view.address_of(1, 8192).as_deref(), Some("[::1]:7431"));
        assert_eq!(view.address_of(3, 8192).as_deref(), Some("[::3]:7413"));
    }

    #[test]
    fn a_core_that_writes_is_a_master_beside_one_of_its_node_that_does_not() {
        let node = |number: u8| ClusterNode {
            number,
            resp: Some(format!("h{number}:7413")),
            cores: CorePorts::new(7430, 2),
        };
        let view = ClusterView {
            id: [0xAB; 16],
            me: 2,
            nodes: vec![node(1), node(2)],
            ranges: vec![range(0, 8255, 1, &[2]), range(8256, SLOTS - 1, 2, &[1])],
        };
        let layout = Layout::of_view(&view, None);
        // The second core of each writes, so it is a replica of nobody.
        let expected = [
            (0, 8191, 0, vec![2]),
            (8192, 8255, 1, vec![]),
            (8256, SLOTS - 1, 3, vec![]),
        ];
        assert_eq!(layout.ranges, expected);
        assert!(layout.nodes().contains(" h2:7413@17413 myself,master - "));
        assert!(!view.writes_in(0..=8191) && view.writes_in(8192..=SLOTS - 1));
    }
}
