//! INFO in the form of Redis: sections of `name:value` lines.

use std::fmt::Write as _;

use super::cluster::node_name;
use super::host::Facts;
use super::parser::Arguments;
use super::words::REDIS_VERSION;

/// The sections, in their order.
const SECTIONS: [&str; 7] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "keyspace",
];

pub(super) fn text(args: Arguments<'_>, facts: &Facts, is_replica: bool) -> String {
    let is_named = |section: &str| {
        args.from(1)
            .any(|asked| asked.eq_ignore_ascii_case(section.as_bytes()))
    };
    let wants_all = args.len() == 1 || ["all", "default", "everything"].into_iter().any(is_named);
    let mut text = String::new();
    for section in SECTIONS.into_iter().chain(["cluster"]) {
        if wants_all || is_named(section) {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            text.push_str(separator);
            write_section(section, facts, is_replica, &mut text);
        }
    }
    text
}

fn write_section(section: &str, facts: &Facts, is_replica: bool, text: &mut String) {
    let (heading, rows) = match section {
        "server" => ("Server", server(facts)),
        "clients" => (
            "Clients",
            vec![
                ("connected_clients", facts.clients.to_string()),
                // No command blocks; redis-cli --stat wants the field.
                ("blocked_clients", "0".to_string()),
                ("maxclients", facts.clients_max.to_string()),
            ],
        ),
        "memory" => (
            "Memory",
            vec![
                ("used_memory", facts.resident_bytes.to_string()),
                ("used_memory_rss", facts.resident_bytes.to_string()),
                ("maxmemory", facts.memory_max.to_string()),
                ("maxmemory_policy", "noeviction".to_string()),
            ],
        ),
        "persistence" => (
            "Persistence",
            vec![
                ("loading", "0".to_string()),
                ("aof_enabled", "1".to_string()),
                ("penstock_durability", facts.durability.to_string()),
            ],
        ),
        "stats" => (
            "Stats",
            vec![
                ("total_connections_received", facts.connections.to_string()),
                ("total_commands_processed", facts.operations.to_string()),
            ],
        ),
        "replication" => (
            "Replication",
            vec![
                (
                    "role",
                    if is_replica { "slave" } else { "master" }.to_string(),
                ),
                ("connected_slaves", "0".to_string()),
            ],
        ),
        "cluster" => (
            "Cluster",
            vec![("cluster_enabled", u8::from(facts.is_clustered).to_string())],
        ),
        _ => ("Keyspace", keyspace(facts)),
    };
    let _ = write!(text, "# {heading}\r\n");
    for (name, value) in rows {
        let _ = write!(text, "{name}:{value}\r\n");
    }
}

fn server(facts: &Facts) -> Vec<(&'static str, String)> {
    let mode = match facts.is_clustered {
        true => "cluster",
        false => "standalone",
    };
    vec![
        ("redis_version", REDIS_VERSION.to_string()),
        ("redis_mode", mode.to_string()),
        ("penstock_version", facts.version.to_string()),
        ("penstock_shards", facts.shards.to_string()),
        ("process_id", facts.pid.to_string()),
        ("run_id", node_name(&facts.node)),
        ("tcp_port", facts.port.to_string()),
        ("uptime_in_seconds", facts.uptime_s.to_string()),
        ("uptime_in_days", (facts.uptime_s / 86_400).to_string()),
    ]
}

/// As in Redis no line tells of an empty database.
fn keyspace(facts: &Facts) -> Vec<(&'static str, String)> {
    match facts.keys {
        0 => Vec::new(),
        keys => vec![("db0", format!("keys={keys}"))],
    }
}
