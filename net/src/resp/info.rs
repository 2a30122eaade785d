//! INFO in the form of Redis: sections of `name:value` lines.

use std::fmt::Write as _;

use super::broker::Broker;
use super::cluster::node_name;
use super::host::{Facts, Host, is_replica};
use super::message::Kind;
use super::parser::Arguments;
use super::pause::PausedCommands;
use super::table::COMMANDS;
use super::tracking::{KeyTracker, TrackingFigures};
use super::waiting::{KeyWaiters, WaitingFigures};
use super::words::REDIS_VERSION;

/// A line.
type Row = (&'static str, String);

/// The sections, in their order.
const SECTIONS: [&str; 10] = [
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "commandstats",
    "cluster",
    "keyspace",
];
/// A section that is told only if it is named, or all are.
const LONG: &str = "commandstats";

pub(super) fn text(args: Arguments<'_>, host: &dyn Host) -> String {
    let is_named = |section: &str| {
        args.from(1)
            .any(|asked| asked.eq_ignore_ascii_case(section.as_bytes()))
    };
    let wants_all = ["all", "everything"].into_iter().any(is_named);
    let wants_usual = wants_all || args.len() == 1 || is_named("default");
    let facts = host.facts();
    let mut text = String::new();
    for section in SECTIONS {
        let is_usual = if section == LONG {
            wants_all
        } else {
            wants_usual
        };
        if is_usual || is_named(section) {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            text.push_str(separator);
            match section {
                LONG => calls(host, &mut text),
                section => write_section(section, &facts, host, &mut text),
            }
        }
    }
    text
}

fn write_section(section: &str, facts: &Facts, host: &dyn Host, text: &mut String) {
    let (heading, rows) = match section {
        "server" => ("Server", server(facts)),
        "clients" => ("Clients", clients(facts, host)),
        "memory" => ("Memory", memory(facts)),
        "persistence" => (
            "Persistence",
            vec![
                ("loading", "0".to_string()),
                ("rdb_bgsave_in_progress", "0".to_string()),
                ("aof_enabled", "1".to_string()),
                ("aof_rewrite_in_progress", "0".to_string()),
                ("penstock_durability", facts.durability.to_string()),
            ],
        ),
        "stats" => ("Stats", stats(facts, host)),
        "replication" => (
            "Replication",
            vec![
                (
                    "role",
                    if is_replica(host) { "slave" } else { "master" }.to_string(),
                ),
                ("connected_slaves", "0".to_string()),
            ],
        ),
        "cpu" => (
            "CPU",
            vec![
                ("used_cpu_sys", seconds(facts.used.system_us)),
                ("used_cpu_user", seconds(facts.used.user_us)),
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

fn server(facts: &Facts) -> Vec<Row> {
    let mode = match facts.is_clustered {
        true => "cluster",
        false => "standalone",
    };
    vec![
        ("redis_version", REDIS_VERSION.to_string()),
        ("redis_mode", mode.to_string()),
        ("os", "Linux".to_string()),
        ("arch_bits", usize::BITS.to_string()),
        ("multiplexing_api", "io_uring".to_string()),
        ("penstock_version", facts.version.to_string()),
        ("penstock_shards", facts.shards.to_string()),
        ("process_id", facts.pid.to_string()),
        ("run_id", node_name(&facts.node)),
        ("tcp_port", facts.port.to_string()),
        ("uptime_in_seconds", facts.uptime_s.to_string()),
        ("uptime_in_days", (facts.uptime_s / 86_400).to_string()),
    ]
}

fn clients(facts: &Facts, host: &dyn Host) -> Vec<Row> {
    let pauses = host.pauses();
    let pause = pauses.and_then(|it| it.pause());
    let (reason, actions) = match pause.map(|it| it.commands) {
        None => ("none", "none"),
        Some(PausedCommands::Writes) => ("client_pause", "write"),
        Some(PausedCommands::All) => ("client_pause", "all"),
    };
    let until_us = pause.map_or(0, |it| it.until_us);
    let left_ms = until_us.saturating_sub(host.elapsed_us()) / 1000;
    let subscribers = host.broker().map_or(0, Broker::clients);
    let waiters = host.waiters();
    let waiting = waiters.map_or_else(WaitingFigures::default, KeyWaiters::figures);
    vec![
        ("connected_clients", facts.clients.to_string()),
        ("maxclients", facts.clients_max.to_string()),
        (
            "blocked_clients",
            waiters.map_or(0, KeyWaiters::blocked_clients).to_string(),
        ),
        ("tracking_clients", tracked(host).clients.to_string()),
        ("pubsub_clients", subscribers.to_string()),
        ("total_blocking_keys", waiting.keys.to_string()),
        ("paused_reason", reason.to_string()),
        ("paused_actions", actions.to_string()),
        ("paused_timeout_milliseconds", left_ms.to_string()),
    ]
}

fn memory(facts: &Facts) -> Vec<Row> {
    let (used, most) = (facts.used.resident_bytes, facts.used.resident_bytes_most);
    vec![
        ("used_memory", used.to_string()),
        ("used_memory_human", human(used)),
        ("used_memory_rss", used.to_string()),
        ("used_memory_rss_human", human(used)),
        ("used_memory_peak", most.to_string()),
        ("used_memory_peak_human", human(most)),
        ("maxmemory", facts.memory_max.to_string()),
        ("maxmemory_human", human(facts.memory_max)),
        ("maxmemory_policy", "noeviction".to_string()),
        ("mem_fragmentation_ratio", "1.00".to_string()),
    ]
}

fn stats(facts: &Facts, host: &dyn Host) -> Vec<Row> {
    let counts = &facts.counts;
    let (tracked, notified) = (tracked(host), host.notified());
    let names = |kind| host.broker().map_or(0, |broker| broker.names(kind) as u64);
    [
        ("total_connections_received", counts.connections),
        ("total_commands_processed", counts.operations),
        ("instantaneous_ops_per_sec", counts.operations_per_s),
        ("total_net_input_bytes", counts.received_bytes),
        ("total_net_output_bytes", counts.sent_bytes),
        ("rejected_connections", counts.connections_refused),
        ("expired_keys", counts.fired),
        ("evicted_keys", 0),
        ("penstock_expired_announced", notified.announced),
        ("penstock_expired_unannounced", notified.lost),
        ("keyspace_hits", counts.hits),
        ("keyspace_misses", counts.misses),
        ("pubsub_channels", names(Kind::Channel)),
        ("pubsub_patterns", names(Kind::Pattern)),
        ("pubsubshard_channels", names(Kind::Shard)),
        ("tracking_total_keys", tracked.keys),
        ("tracking_total_items", tracked.items),
        ("tracking_total_prefixes", tracked.prefixes),
    ]
    .map(|(name, count)| (name, count.to_string()))
    .into()
}

/// What connections track.
fn tracked(host: &dyn Host) -> TrackingFigures {
    host.tracker()
        .map_or_else(TrackingFigures::default, KeyTracker::figures)
}

/// As in Redis no line tells of an empty database. Keys with an expiry are not counted.
fn keyspace(facts: &Facts) -> Vec<Row> {
    match facts.keys {
        0 => Vec::new(),
        keys => vec![("db0", format!("keys={keys},expires=0,avg_ttl=0"))],
    }
}

/// How often each command came. Times are not taken.
fn calls(host: &dyn Host, text: &mut String) {
    text.push_str("# Commandstats\r\n");
    for command in COMMANDS {
        let (name, calls) = (command.name, host.calls_of(command.id));
        if calls > 0 {
            let _ = write!(
                text,
                "cmdstat_{name}:calls={calls},usec=0,usec_per_call=0.00,rejected_calls=0,\
                 failed_calls=0\r\n"
            );
        }
    }
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// Bytes as people read them, in the form of Redis: `1.50M`.
fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P", "E"];
    let place = bytes.checked_ilog2().unwrap_or(0) / 10;
    let Some(unit) = (place as usize).checked_sub(1).map(|place| units[place]) else {
        return format!("{bytes}B");
    };
    let hundredths = (u128::from(bytes) * 100) >> (10 * place);
    format!("{}.{:02}{unit}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_with_two_digits_of_the_greatest_unit_that_they_fill() {
        let texts = [0, 1023, 1024, 1536, 5 << 20, (5 << 30) - 1, u64::MAX].map(human);
        let expected = ["0B", "1023B", "1.00K", "1.50K", "5.00M", "4.99G", "15.99E"];
        assert_eq!(texts, expected);
        assert_eq!(seconds(1_000_042), "1.000042");
    }
}
