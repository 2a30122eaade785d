//! CONFIG GET: what tools ask for, as the server has it.

use super::glob;
use super::host::Facts;
use super::parser::Arguments;
use super::reply::Replies;
use super::slow::{SLOW_COMMANDS_MAX, SLOW_US};
use super::words::{unknown_subcommand, wrong_subcommand};

pub(super) fn answer(
    args: Arguments<'_>,
    bulk_bytes_max: usize,
    facts: &Facts,
    replies: &mut Replies<'_>,
) {
    if !args.get(1).eq_ignore_ascii_case(b"get") {
        return unknown_subcommand("CONFIG", args, replies);
    }
    if args.len() < 3 {
        return wrong_subcommand("config|get", replies);
    }
    let is_always = facts.durability == "disk";
    let rows = [
        (
            "appendfsync",
            if is_always { "always" } else { "everysec" }.to_string(),
        ),
        ("appendonly", "yes".to_string()),
        ("bind", facts.ip.clone()),
        ("databases", "1".to_string()),
        ("maxclients", facts.clients_max.to_string()),
        ("maxmemory", facts.memory_max.to_string()),
        ("maxmemory-policy", "noeviction".to_string()),
        ("port", facts.port.to_string()),
        ("proto-max-bulk-len", bulk_bytes_max.to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", SLOW_US.to_string()),
        ("slowlog-max-len", SLOW_COMMANDS_MAX.to_string()),
        ("tcp-keepalive", facts.keepalive_s.to_string()),
        ("timeout", facts.idle_s.to_string()),
    ];
    let is_asked = |name: &str| {
        args.from(2).any(|pattern| {
            let pattern = pattern.to_ascii_lowercase();
            glob::matches(&pattern, name.as_bytes())
        })
    };
    let asked: Vec<_> = rows.iter().filter(|(name, _)| is_asked(name)).collect();
    replies.map(asked.len());
    for (name, value) in asked {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}
