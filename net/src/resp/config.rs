//! CONFIG: what tools ask for, as the server has it. While it serves, keyspace notifications alone
//! are set.

use super::host::{Facts, Host};
use super::notifications::Notifications;
use super::parser::Arguments;
use super::pattern::Pattern;
use super::reply::Replies;
use super::slow::{SLOW_COMMANDS_MAX, SLOW_US};
use super::tracked::TRACKED_KEYS_MAX;
use super::words::{unknown_subcommand, wrong_subcommand};

const HELP: [&str; 6] = [
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Taken if the value is the one that holds, and of notify-keyspace-events K, E and x.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
];

/// The setting of keyspace notifications.
const NOTIFICATIONS: &str = "notify-keyspace-events";

/// Settings and their values.
type Settings = Vec<(&'static str, String)>;

pub(super) fn answer(
    args: Arguments<'_>,
    bulk_bytes_max: usize,
    host: &dyn Host,
    replies: &mut Replies<'_>,
) {
    let settings = || settings(&host.facts(), host.notifications(), bulk_bytes_max);
    let name = args.get(1).to_ascii_lowercase();
    match (&name[..], args.len()) {
        (b"get", 3..) => get(args, &settings(), replies),
        (b"set", 4..) if args.len().is_multiple_of(2) => set(args, &settings(), host, replies),
        (b"resetstat", 2) => {
            host.forget_counts();
            replies.simple("OK");
        }
        (b"rewrite", 2) => replies.error(b"ERR The server is running without a config file"),
        (b"help", 2) => replies.help("CONFIG", &HELP),
        (b"get" | b"set" | b"resetstat" | b"rewrite" | b"help", _) => {
            let name = String::from_utf8_lossy(&name);
            wrong_subcommand(&format!("config|{name}"), replies);
        }
        _ => unknown_subcommand("CONFIG", args, replies),
    }
}

fn settings(facts: &Facts, notifications: Notifications, bulk_bytes_max: usize) -> Settings {
    let is_always = facts.durability == "disk";
    vec![
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
        (NOTIFICATIONS, notifications.letters()),
        ("port", facts.port.to_string()),
        ("proto-max-bulk-len", bulk_bytes_max.to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", SLOW_US.to_string()),
        ("slowlog-max-len", SLOW_COMMANDS_MAX.to_string()),
        ("tcp-keepalive", facts.keepalive_s.to_string()),
        ("timeout", facts.idle_s.to_string()),
        ("tracking-table-max-keys", TRACKED_KEYS_MAX.to_string()),
    ]
}

fn get(args: Arguments<'_>, settings: &Settings, replies: &mut Replies<'_>) {
    let mut is_asked = vec![false; settings.len()];
    for pattern in args.from(2) {
        let pattern = Pattern::new(&pattern.to_ascii_lowercase());
        for (is_asked, (name, _)) in is_asked.iter_mut().zip(settings) {
            *is_asked |= pattern.matches(name.as_bytes());
        }
    }
    let asked = settings
        .iter()
        .zip(is_asked)
        .filter(|(_, is_asked)| *is_asked);
    let asked: Vec<_> = asked.map(|(setting, _)| setting).collect();
    replies.map(asked.len());
    for (name, value) in asked {
        replies.bulk(name.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

/// What holds already may be set: tools and frameworks do so as they begin.
fn set(args: Arguments<'_>, settings: &Settings, host: &dyn Host, replies: &mut Replies<'_>) {
    let mut notifications = None;
    for number in (2..args.len()).step_by(2) {
        let name = args.get(number);
        let is = |(known, _): &&(&str, String)| name.eq_ignore_ascii_case(known.as_bytes());
        let text = match settings.iter().find(is) {
            Some((known, _)) if *known == NOTIFICATIONS => {
                match Notifications::read(args.get(number + 1)) {
                    Ok(read) => {
                        notifications = Some(read);
                        continue;
                    }
                    Err(why) => format!(
                        "ERR CONFIG SET failed (possibly related to argument '{known}') - {why}"
                    )
                    .into_bytes(),
                }
            }
            Some((_, value)) if value.as_bytes() == args.get(number + 1) => continue,
            Some((known, value)) => format!(
                "ERR CONFIG SET failed (possibly related to argument '{known}') - can't set \
                 immutable config: it is '{value}' until the server starts with another one"
            )
            .into_bytes(),
            None => {
                let head = &b"ERR Unknown option or number of arguments for CONFIG SET - '"[..];
                [head, name, b"'"].concat()
            }
        };
        return replies.error(&text);
    }
    // All that is named, or nothing.
    if let Some(notifications) = notifications {
        host.notify(notifications);
    }
    replies.simple("OK");
}
