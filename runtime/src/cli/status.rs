//! `penstock cluster status`: asks each node of a cluster and prints the answers as a table.

use std::collections::BTreeMap;

use clap::Args;
use penstock::cluster::plan::placement::nodes_of;
use serde_json::{Value, json};

use super::Failure;
use super::output::Output;
use super::plan_home::HomeArgs;
use super::server::ServerAddress;

/// Ranges of partitions that a cell names, at most.
const RANGES_MAX: usize = 3;

/// Examples of `penstock cluster status`.
pub const STATUS_EXAMPLES: &str = "\
Each node has a line for each role of its partitions, and one for each node that it ships to. EPOCH
says who may write: the generation, which the cluster's file gives out, a dot, and how often the
writing node has started in it. HEAD is the sum of the sequences of the node's last records, DURABLE
the sum for those on its disk, ACKED the sum for those that the other node has acknowledged to have
received. LAG is what the other node lacks: records, bytes of the log, and how long ago the first of
them was appended. A question mark: that node has not been there since the start. Nodes that do not
answer are named behind the table, as is an etcd that does not, or one whose plan nodes refuse. The
exit code is 3 then. A node with the role `no lease` is to write and may not now, because a member
is silent.

Examples:
  penstock cluster status
  penstock cluster status --addr 127.0.0.1:7511
  penstock cluster status --file /etc/penstock/cluster.toml --json";

/// Arguments of `penstock cluster status`.
#[derive(Args)]
pub struct StatusArgs {
    /// Take the list of nodes from the plan; without it the server at --addr is asked for the list
    #[command(flatten)]
    home: HomeArgs,
    /// Print JSON, with everything that the nodes answer
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerAddress,
}

/// A node and its answer.
struct NodeAnswer {
    node: u64,
    clients: String,
    info: Result<Value, String>,
}

impl StatusArgs {
    /// Asks all nodes and prints the table.
    pub fn run(self) -> Result<(), Failure> {
        let place = self.home.place_if_named()?;
        let plan = place.as_ref().map(nodes_of);
        // Without its etcd a cluster goes on, and this is when people ask for its state.
        let mut troubles = Vec::new();
        let (nodes, revision, asked) = match plan {
            Some(Ok((revision, nodes))) => (nodes, revision, None),
            Some(Err(error)) if place.is_some_and(|it| it.file().is_some()) => {
                return Err(Failure::usage(error));
            }
            unread => {
                let unread = unread.and_then(Result::err).map(|it| it.to_string());
                let info = info_of(&self.server).map_err(|failure| match &unread {
                    Some(cause) => failure.followed_by(&format!("; {cause}")),
                    None => failure.followed_by(
                        "; with --file and the cluster's file the other nodes are asked",
                    ),
                })?;
                troubles.extend(unread);
                let nodes = nodes_in(&info["replication"]);
                (nodes, u64::MAX, Some(info))
            }
        };
        let answers: Vec<NodeAnswer> = std::thread::scope(|scope| {
            let (asked, server) = (&asked, &self.server);
            let asks = nodes.into_iter().map(|(node, clients)| {
                let node = u64::from(node);
                scope.spawn(move || {
                    let known = asked
                        .as_ref()
                        .filter(|info| info["replication"]["node"] == node);
                    let info = match known {
                        Some(info) => Ok(info.clone()),
                        None => info_of(&server.also_at(&clients)).map_err(|it| it.line),
                    };
                    NodeAnswer {
                        node,
                        clients,
                        info,
                    }
                })
            });
            let asks: Vec<_> = asks.collect();
            let ends = asks.into_iter().map(|ask| ask.join());
            ends.map(|end| end.expect("it does not panic")).collect()
        });
        let mut out = Output::stdout();
        match self.json {
            true => out.line(format_args!("{}", json_of(&answers))),
            false => {
                out.bytes(table(&rows(&answers)).as_bytes());
                plans(&answers)
                    .iter()
                    .chain(&leases(&answers))
                    .chain(&hanging(&answers))
                    .chain(&unwritten(&answers))
                    .for_each(|line| out.line(format_args!("{line}")));
            }
        }
        out.finish()?;
        troubles.extend(answers.iter().filter_map(|it| {
            let cause = it.info.as_ref().err()?;
            Some(format!("node {} does not answer: {cause}", it.node))
        }));
        troubles.extend(refused(&answers, revision));
        match troubles.is_empty() {
            true => Ok(()),
            false => Err(Failure::server(troubles.join("; "))),
        }
    }
}

/// The INFO of a server, which must be a node of a cluster.
pub fn info_of(server: &ServerAddress) -> Result<Value, Failure> {
    let info = read_info(&server.connect_node()?.info()?, server)?;
    match info["partitions"].is_array() {
        true => Ok(info),
        false => Err(is_alone(server)),
    }
}

/// Parses the text of INFO. `server` is named in the failure.
pub fn read_info(text: &str, server: &ServerAddress) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::server(format!("{server}: INFO is no JSON: {error}")))
}

/// The failure of a server that is not in a cluster.
pub fn is_alone(server: &ServerAddress) -> Failure {
    Failure::usage(format!(
        "{server} is a node alone: it was started without --cluster"
    ))
}

fn nodes_in(replication: &Value) -> Vec<(u8, String)> {
    let nodes = replication["nodes"].as_array().into_iter().flatten();
    nodes
        .filter_map(|it| {
            let number = u8::try_from(it["node"].as_u64()?).ok()?;
            Some((number, it["clients"].as_str()?.to_string()))
        })
        .collect()
}

fn json_of(answers: &[NodeAnswer]) -> Value {
    let nodes = answers.iter().map(|it| {
        let (node, clients) = (it.node, &it.clients);
        match &it.info {
            Ok(info) => json!({
                "node": node,
                "clients": clients,
                "partitions": info["partitions"],
                "replication": info["replication"],
                "counters": info["counters"],
            }),
            Err(cause) => json!({"node": node, "clients": clients, "error": cause}),
        }
    });
    json!({"nodes": nodes.collect::<Vec<Value>>()})
}

/// Which plan is in force, where its changes are counted: a line if all nodes have the same one,
/// otherwise a line for each node.
fn plans(answers: &[NodeAnswer]) -> Vec<String> {
    let plans = answers.iter().filter_map(|it| {
        let plan = &it.info.as_ref().ok()?["replication"]["plan"];
        plan.is_object().then_some((it.node, plan))
    });
    let plans: Vec<(u64, &Value)> = plans.collect();
    let line = |plan: &Value| {
        let text = |name: &str| plan[name].as_str().unwrap_or("?").to_string();
        format!(
            "plan: revision {}, changed at {} by {}",
            number(plan, "revision"),
            text("changed_at"),
            text("changed_by")
        )
    };
    match plans.as_slice() {
        [] => Vec::new(),
        [(_, first), rest @ ..] if rest.iter().all(|(_, plan)| plan == first) => vec![line(first)],
        all => {
            let lines = all
                .iter()
                .map(|(node, plan)| format!("node {node}: {}", line(plan)));
            lines.collect()
        }
    }
}

/// That nodes act by a later plan than the one in its home, which has this revision.
fn refused(answers: &[NodeAnswer], revision: u64) -> Option<String> {
    let later = answers.iter().filter_map(|it| {
        let acts_by = it.info.as_ref().ok()?["replication"]["plan"]["revision"].as_u64();
        acts_by.filter(|&acts_by| acts_by > revision)
    });
    let acts_by = later.max()?;
    Some(format!(
        "the plan in etcd has revision {revision}, and nodes act by {acts_by}: they refuse the \
         older one (deploy/ETCD.md, PenstockPlanRefused)"
    ))
}

/// Which partitions cannot go on, and what cannot be read for them.
fn hanging(answers: &[NodeAnswer]) -> Vec<String> {
    let infos = answers
        .iter()
        .filter_map(|it| Some((it.node, it.info.as_ref().ok()?)));
    let groups = infos.flat_map(|(node, info)| {
        let groups = info["partitions"].as_array().into_iter().flatten();
        groups.map(move |group| (node, group))
    });
    let hanging = groups.filter(|(_, group)| group["hangs_on"].is_object());
    let lines = hanging.map(|(node, group)| {
        let place = &group["hangs_on"];
        format!(
            "node {node}: partitions {} cannot go on: {:08}.seg cannot be read at offset {}, tried \
             {} times",
            ranges(vec![(number(group, "first"), number(group, "last"))]),
            number(place, "file"),
            number(place, "offset"),
            number(place, "tries"),
        )
    });
    lines.collect()
}

/// That no node which answers writes some partitions.
fn unwritten(answers: &[NodeAnswer]) -> Option<String> {
    let groups = answers.iter().filter_map(|it| it.info.as_ref().ok());
    let groups = groups.flat_map(|info| info["partitions"].as_array().into_iter().flatten());
    let mut is_written = BTreeMap::new();
    for group in groups {
        for partition in number(group, "first")..=number(group, "last") {
            *is_written.entry(partition).or_insert(false) |= group["role"] == "primary";
        }
    }
    let unwritten = is_written.into_iter().filter(|(_, is)| !is);
    let all: Vec<(u64, u64)> = unwritten.map(|(it, _)| (it, it)).collect();
    (!all.is_empty()).then(|| format!("no node that answers writes partitions {}", ranges(all)))
}

/// A line about failover by the plan, and one about the leases of each node; none where the plan
/// cannot have nodes decide.
fn leases(answers: &[NodeAnswer]) -> Vec<String> {
    let infos = answers
        .iter()
        .filter_map(|it| Some((it.node, it.info.as_ref().ok()?)));
    let on = infos.filter(|(_, it)| it["replication"]["failover"].is_object());
    let on: Vec<(u64, &Value)> = on.collect();
    let seconds = |it: &Value| it.as_u64().map(|us| format!("{:.2} s", us as f64 / 1e6));
    let millis = |it: &Value| it.as_u64().map(|us| format!("{:.1} ms", us as f64 / 1e3));
    let mut lines = Vec::new();
    let mut plans = answers.iter().filter_map(|it| it.info.as_ref().ok());
    if on.is_empty() && plans.any(|it| it["replication"]["plan"].is_object()) {
        lines.push("failover: off, a person decides who takes the place of a lost node".into());
    }
    if let Some((_, first)) = on.first() {
        let rules = &first["replication"]["plan"]["failover"];
        lines.push(format!(
            "failover: {}, lease {} ms, grace {} ms, min_sync {}",
            match rules["is_paused"] == true {
                true => "paused",
                false => "on",
            },
            number(rules, "lease_ms"),
            number(rules, "grace_ms"),
            number(rules, "min_sync")
        ));
    }
    for (node, info) in on {
        let failover = &info["replication"]["failover"];
        let peers = failover["peers"].as_array().into_iter().flatten();
        let left = |peer: &&Value| peer["lease_left_us"].as_u64();
        let bound = peers
            .clone()
            .filter(|it| left(it).is_some())
            .min_by_key(left);
        let lease = match (bound, seconds(&failover["lease_left_us"])) {
            (Some(peer), Some(left)) => {
                format!(
                    "lease left {left}, bounded by node {}",
                    number(peer, "node")
                )
            }
            _ => "needs no lease".into(),
        };
        let trips = peers.clone().map(|peer| {
            let trip = millis(&peer["round_trip_us"]).unwrap_or("no heartbeat".into());
            format!("node {} {trip}", number(peer, "node"))
        });
        let trips: Vec<String> = trips.collect();
        let mut line = format!("node {node}: {lease}; round trips: {}", trips.join(", "));
        let without = number(&info["counters"], "partitions_without_lease");
        if without > 0 {
            line += &format!("; {without} partitions without a lease");
        }
        let held = seconds(&failover["held_us"]).filter(|_| number(failover, "held_us") > 0);
        if let Some(held) = held {
            line += &format!("; takes nothing over for {held}");
        }
        for peer in peers {
            if let Some(waits) = seconds(&peer["enters_in_us"]) {
                line += &format!("; node {} may join in {waits}", number(peer, "node"));
            }
        }
        let last = &failover["decided_last"];
        if let (Some(what), Some(at)) = (last["what"].as_str(), last["at"].as_str()) {
            line += &format!(
                "; decided last: {what} at {at}, revision {}",
                number(last, "revision")
            );
        }
        lines.push(line);
    }
    lines
}

const HEADING: [&str; 12] = [
    "NODE",
    "PEER",
    "ROLE",
    "PARTITIONS",
    "EPOCH",
    "HEAD",
    "DURABLE",
    "ACKED",
    "LINK",
    "LAG RECORDS",
    "BYTES",
    "MS",
];

type Row = [String; HEADING.len()];

fn rows(answers: &[NodeAnswer]) -> Vec<Row> {
    let mut rows = vec![HEADING.map(String::from)];
    for it in answers {
        let mut row = Row::default();
        row[0] = it.node.to_string();
        match &it.info {
            Ok(info) => rows.extend(rows_of(&row, info)),
            Err(_) => {
                row[2] = "no answer".into();
                rows.push(row);
            }
        }
    }
    rows
}

fn number(it: &Value, name: &str) -> u64 {
    it[name].as_u64().unwrap_or(0)
}

/// The rows of one node: one for each role of its partitions, then one for each node that it ships
/// to.
fn rows_of(row: &Row, info: &Value) -> Vec<Row> {
    let groups: Vec<&Value> = info["partitions"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let mut roles: Vec<(String, Vec<&Value>)> = Vec::new();
    for group in groups {
        let role = role_of(group);
        match roles.iter_mut().find(|(known, _)| *known == role) {
            Some((_, of_role)) => of_role.push(group),
            None => roles.push((role, vec![group])),
        }
    }
    let sum = |of_role: &[&Value], name| of_role.iter().map(|it| number(it, name)).sum::<u64>();
    let lacks_lease = number(&info["counters"], "partitions_without_lease") > 0;
    let mut rows = Vec::new();
    let mut head = 0;
    for (role, of_role) in &roles {
        let mut row = row.clone();
        row[2] = match role.as_str() {
            "beginning (primary)" if lacks_lease => "no lease (primary)".into(),
            role => role.into(),
        };
        let firsts_lasts = of_role
            .iter()
            .map(|it| (number(it, "first"), number(it, "last")));
        row[3] = ranges(firsts_lasts.collect());
        let epochs = of_role
            .iter()
            .map(|it| (number(it, "generation"), number(it, "start")));
        let (first, last) = (epochs.clone().min(), epochs.max());
        let text_of = |epoch: Option<(u64, u64)>| {
            let (generation, start) = epoch.unwrap_or_default();
            format!("{generation}.{start}")
        };
        row[4] = match first == last {
            true => text_of(first),
            false => format!("{} to {}", text_of(first), text_of(last)),
        };
        row[5] = sum(of_role, "received").to_string();
        row[6] = sum(of_role, "durable").to_string();
        // What a node is to write and does not write now counts, too: members have it.
        if role == "primary" || role.ends_with("(primary)") {
            head += sum(of_role, "received");
        }
        rows.push(row);
    }
    let peers = info["replication"]["peers"]
        .as_array()
        .into_iter()
        .flatten();
    for peer in peers.filter(|it| it["role"] != "primary") {
        let mut row = row.clone();
        row[1] = number(peer, "node").to_string();
        row[2] = peer["role"].as_str().unwrap_or("?").into();
        row[3] = format!("({})", number(peer, "partitions"));
        row[8] = peer["link"].as_str().unwrap_or("?").into();
        let text_of = |name: &str| peer[name].as_u64().map_or("?".into(), |it| it.to_string());
        if let Some(lacks) = peer["lag_records"].as_u64() {
            row[7] = head.saturating_sub(lacks).to_string();
        }
        row[9] = text_of("lag_records");
        row[10] = text_of("lag_bytes");
        row[11] = match peer["lag_us"].as_u64() {
            Some(us) => format!("{}.{}", us / 1000, us % 1000 / 100),
            None => "?".into(),
        };
        rows.push(row);
    }
    rows
}

/// The role of a group of partitions and, in brackets, its duty by the cluster's file. A primary
/// whose duty it is to be one has no brackets.
fn role_of(group: &Value) -> String {
    let text = |name: &str| group[name].as_str().unwrap_or("?");
    match (text("role"), text("duty")) {
        ("primary", "primary") => "primary".into(),
        (role, duty) => format!("{role} ({duty})"),
    }
}

/// Partitions as text, given the first and the last of each range. Adjoining ranges are merged.
fn ranges(mut all: Vec<(u64, u64)>) -> String {
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in all {
        match merged.last_mut().filter(|before| before.1 + 1 == first) {
            Some(before) => before.1 = last,
            None => merged.push((first, last)),
        }
    }
    let count: u64 = merged.iter().map(|(first, last)| last - first + 1).sum();
    let named: Vec<String> = merged
        .iter()
        .take(RANGES_MAX)
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    match merged.len() > RANGES_MAX {
        true => format!("{},... ({count})", named.join(",")),
        false => named.join(","),
    }
}

fn table(rows: &[Row]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADING.len()).map(width).collect();
    rows.iter()
        .map(|row| {
            let cells = row.iter().zip(&widths);
            let cells: Vec<String> = cells
                .map(|(cell, &width)| format!("{cell:width$}"))
                .collect();
            format!("{}\n", cells.join("  ").trim_end())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_decides_shows_its_lease_and_who_bounds_it() {
        let peer = |node: u8, left: u64| {
            json!({"node": node, "is_connected": true, "lease_left_us": left,
                "round_trip_us": 800, "enters_in_us": if node == 3 { json!(4_200_000) } else {
                Value::Null }})
        };
        let info = json!({"counters": {"partitions_without_lease": 2}, "replication": {
            "plan": {"revision": 9, "failover": {"is_paused": true, "lease_ms": 1600,
                "grace_ms": 2000, "min_sync": 1}},
            "failover": {"lease_left_us": 1_430_000, "held_us": 3_000_000, "peers":
                [peer(2, 1_500_000), peer(3, 1_430_000)],
                "decided_last": {"revision": 8, "at": "then", "what": "takeover of node 2"}},
        }});
        let answers = [NodeAnswer {
            node: 1,
            clients: "here".into(),
            info: Ok(info),
        }];
        assert_eq!(refused(&answers, 9), None);
        let refused = refused(&answers, 8).expect("it acts by a later one");
        assert!(refused.contains("revision 8, and nodes act by 9"));
        assert_eq!(
            leases(&answers),
            [
                "failover: paused, lease 1600 ms, grace 2000 ms, min_sync 1",
                "node 1: lease left 1.43 s, bounded by node 3; round trips: node 2 0.8 ms, node 3 \
                 0.8 ms; 2 partitions without a lease; takes nothing over for 3.00 s; node 3 may \
                 join in 4.20 s; decided last: takeover of node 2 at then, revision 8",
            ]
        );
    }

    #[test]
    fn roles_and_peers_have_a_line_each_however_many_ranges_there_are() {
        let group = |first: u64, last: u64, role: &str, duty: &str, start: u64| {
            json!({"first": first, "last": last, "role": role, "duty": duty, "generation": 1,
                "start": start, "node": 1, "applied": 10, "received": 10, "durable": 9})
        };
        let mut partitions = vec![
            group(0, 99, "primary", "primary", 0),
            group(100, 127, "primary", "primary", 3),
        ];
        partitions.extend((0..9).map(|at| group(130 + 3 * at, 130 + 3 * at, "idle", "sync", 0)));
        let peers = json!([
            {"node": 2, "role": "sync", "link": "live", "partitions": 128,
                "lag_records": 4, "lag_bytes": 300, "lag_us": 1250},
            {"node": 2, "role": "primary", "link": "live", "partitions": 9},
            {"node": 3, "role": "learner", "link": "absent", "partitions": 128, "lag_records": null}
        ]);
        let answers = [
            NodeAnswer {
                node: 1,
                clients: "here".into(),
                info: Ok(json!({"partitions": partitions, "replication": {"peers": peers}})),
            },
            NodeAnswer {
                node: 2,
                clients: "there".into(),
                info: Err("no server".into()),
            },
        ];
        let expected = "\
NODE  PEER  ROLE         PARTITIONS           EPOCH       HEAD  DURABLE  ACKED  LINK    LAG
1           primary      0-127                1.0 to 1.3  20    18
1           idle (sync)  130,133,136,... (9)  1.0         90    81
1     2     sync         (128)                                           16     live    4
1     3     learner      (128)                                                  absent  ?
2           no answer
";
        let lags = [
            " RECORDS  BYTES  MS",
            "",
            "",
            "            300    1.2",
            "            ?      ?",
            "",
        ];
        let expected = expected.lines().zip(lags);
        let expected: Vec<String> = expected.map(|(line, lag)| format!("{line}{lag}")).collect();
        let shown = table(&rows(&answers));
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
        assert!(leases(&answers).is_empty(), "a person decides");
        let unwritten = unwritten(&answers).expect("128 of them are written");
        assert_eq!(
            unwritten,
            "no node that answers writes partitions 130,133,136,... (9)"
        );
        let silent = json!({"partitions": [group(0, 255, "beginning", "primary", 0)],
            "counters": {"partitions_without_lease": 256}, "replication": {"peers": [
            {"node": 2, "role": "sync", "link": "live", "partitions": 256, "lag_records": 4}]}});
        let rows = rows_of(&Row::default(), &silent);
        assert_eq!((&*rows[0][2], &*rows[1][7]), ("no lease (primary)", "6"));
        let mut hangs = group(7, 7, "rewinding", "learner", 0);
        hangs["hangs_on"] = json!({"file": 148, "offset": 4096, "tries": 67});
        let hangs = [NodeAnswer {
            node: 2,
            clients: "there".into(),
            info: Ok(json!({"partitions": [group(0, 6, "following", "learner", 0), hangs]})),
        }];
        assert_eq!(
            hanging(&hangs),
            [
                "node 2: partitions 7 cannot go on: 00000148.seg cannot be read at offset 4096, \
              tried 67 times"
            ]
        );
        let answers = json_of(&answers);
        assert_eq!(answers["nodes"][1]["error"], "no server");
        assert_eq!(answers["nodes"][0]["partitions"][0]["last"], 99);
    }
}
