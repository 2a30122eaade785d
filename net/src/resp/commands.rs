//! COMMAND: the table, told.

use super::keys_of::{KeyFlags, count_place, key_flags, key_places};
use super::parser::Arguments;
use super::pattern::Pattern;
use super::reply::Replies;
use super::syntax::{syntax_of, write_arguments};
use super::table::{COMMANDS, Command, Name, find};
use super::words::{unknown_subcommand, wrong_subcommand};

/// Commands that INFO and DOCS tell by their names at once: more than there are, and few enough
/// that the same name again and again makes no long reply.
const NAMES_MAX: usize = 256;

const HELP: [&str; 18] = [
    "(no subcommand)",
    "    Return details about all commands.",
    "COUNT",
    "    Return the total number of commands in this server.",
    "GETKEYS <full-command>",
    "    Return the keys from a full command.",
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full command.",
    "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return a list of all commands in this server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
];

pub(super) fn answer(args: Arguments<'_>, replies: &mut Replies<'_>) {
    if args.len() == 1 {
        replies.array(COMMANDS.len());
        return COMMANDS
            .iter()
            .for_each(|command| describe(command, replies));
    }
    let name = args.get(1).to_ascii_lowercase();
    match &name[..] {
        b"count" if args.len() > 2 => wrong_subcommand("command|count", replies),
        b"count" => replies.integer(i64::try_from(COMMANDS.len()).expect("few")),
        b"info" | b"docs" if args.len() - 2 > NAMES_MAX => {
            let count = args.len() - 2;
            let text =
                format!("ERR {count} names of commands; at most {NAMES_MAX} are told at once");
            replies.error(text.as_bytes());
        }
        b"info" if args.len() == 2 => {
            replies.array(COMMANDS.len());
            COMMANDS
                .iter()
                .for_each(|command| describe(command, replies));
        }
        b"info" => {
            replies.array(args.len() - 2);
            for name in args.from(2) {
                match find(name) {
                    Some(command) => describe(command, replies),
                    None => replies.null(),
                }
            }
        }
        b"docs" => documents(args, replies),
        b"list" => list(args, replies),
        b"getkeys" if args.len() > 2 => keys(args, false, replies),
        b"getkeysandflags" if args.len() > 2 => keys(args, true, replies),
        b"getkeys" | b"getkeysandflags" => {
            let name = String::from_utf8_lossy(&name);
            wrong_subcommand(&format!("command|{name}"), replies);
        }
        b"help" if args.len() > 2 => wrong_subcommand("command|help", replies),
        b"help" => replies.help("COMMAND", &HELP),
        _ => unknown_subcommand("COMMAND", args, replies),
    }
}

/// One command as COMMAND INFO tells it.
fn describe(command: &Command, replies: &mut Replies<'_>) {
    let (first, last, step) = command.keys;
    replies.array(10);
    replies.bulk(command.name.as_bytes());
    replies.integer(command.arity.into());
    replies.set(command.flags().count());
    command.flags().for_each(|flag| replies.simple(flag));
    replies.integer(first.into());
    replies.integer(last.into());
    replies.integer(step.into());
    let categories = categories(command);
    replies.set(categories.len());
    categories
        .iter()
        .for_each(|category| replies.simple(category));
    let tips = tips(command.id);
    replies.set(tips.len());
    tips.iter().for_each(|tip| replies.bulk(tip.as_bytes()));
    key_specifications(command, replies);
    replies.array(0);
}

/// What clients of a cluster go by: the nodes that a command goes to, and how their answers become
/// one.
fn tips(id: Name) -> &'static [&'static str] {
    match id {
        Name::MGet => &["request_policy:multi_shard"],
        Name::MSet => &[
            "request_policy:multi_shard",
            "response_policy:all_succeeded",
        ],
        Name::Del | Name::Unlink | Name::Exists | Name::Touch => {
            &["request_policy:multi_shard", "response_policy:agg_sum"]
        }
        Name::DbSize => &["request_policy:all_shards", "response_policy:agg_sum"],
        Name::Ping | Name::FlushAll | Name::FlushDb => {
            &["request_policy:all_shards", "response_policy:all_succeeded"]
        }
        Name::Wait => &["request_policy:all_shards", "response_policy:agg_min"],
        Name::HGetAll | Name::HKeys | Name::HVals => &["nondeterministic_output_order"],
        Name::HRandField | Name::HScan => &["nondeterministic_output"],
        Name::SDiff | Name::SInter | Name::SMembers | Name::SUnion => {
            &["nondeterministic_output_order"]
        }
        Name::SPop | Name::SRandMember | Name::SScan => &["nondeterministic_output"],
        Name::ZRandMember | Name::ZScan => &["nondeterministic_output"],
        Name::Time | Name::Ttl | Name::PTtl => &["nondeterministic_output"],
        Name::Info => &[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ],
        Name::Keys => &["request_policy:all_shards", "nondeterministic_output_order"],
        Name::RandomKey => &[
            "request_policy:all_shards",
            "response_policy:special",
            "nondeterministic_output",
        ],
        Name::Scan => &[
            "nondeterministic_output",
            "request_policy:special",
            "response_policy:special",
        ],
        _ => &[],
    }
}

fn categories(command: &Command) -> Vec<&'static str> {
    let has = |flag| command.flags().any(|known| known == flag);
    let mut categories = Vec::new();
    // In the order of Redis.
    if command.group == "generic" {
        categories.push("@keyspace");
    }
    if has("readonly") {
        categories.push("@read");
    }
    if has("write") {
        categories.push("@write");
    }
    match command.group {
        "string" => categories.push("@string"),
        "bitmap" => categories.push("@bitmap"),
        "hash" => categories.push("@hash"),
        "list" => categories.push("@list"),
        "set" => categories.push("@set"),
        "sorted-set" => categories.push("@sortedset"),
        // The commands of the container have the category, as in Redis.
        "pubsub" if command.id != Name::PubSub => categories.push("@pubsub"),
        _ => {}
    }
    let is_admin = has("admin");
    if is_admin {
        categories.push("@admin");
    }
    categories.push(if has("fast") { "@fast" } else { "@slow" });
    if has("blocking") {
        categories.push("@blocking");
    }
    if is_admin {
        categories.push("@dangerous");
    }
    match command.group {
        "connection" => categories.push("@connection"),
        "transactions" => categories.push("@transaction"),
        _ => {}
    }
    categories
}

/// Where the keys stand, as clients of Redis 7 read it.
fn key_specifications(command: &Command, replies: &mut Replies<'_>) {
    let (first, last, step) = command.keys;
    let counted = count_place(command.id);
    if first == 0 && counted.is_none() {
        return replies.set(0);
    }
    // Each key of RENAME and its like is used in another way.
    let is_pair = matches!(
        command.id,
        Name::Rename
            | Name::RenameNx
            | Name::Copy
            | Name::BLMove
            | Name::BRPopLPush
            | Name::LMove
            | Name::RPopLPush
            | Name::SMove
            | Name::ZRangeStore
    );
    let has_destination = matches!(
        command.id,
        Name::SDiffStore | Name::SInterStore | Name::SUnionStore
    );
    let index = |first: i8| i64::from(first);
    let all = match () {
        () if is_pair => vec![(index(first), 0), (index(first + step), 0)],
        () if has_destination => vec![(index(first), 0), (index(first + step), last)],
        () if first == 0 => Vec::new(),
        () => vec![(index(first), if last < 0 { last } else { 0 })],
    };
    replies.set(all.len() + usize::from(counted.is_some()));
    let ranges = all.len();
    for (number, (first, last)) in all.into_iter().enumerate() {
        key_specification(command, number, first, replies);
        replies.bulk(b"range");
        replies.bulk(b"spec");
        replies.map(3);
        replies.bulk(b"lastkey");
        replies.integer(last.into());
        replies.bulk(b"keystep");
        replies.integer(step.into());
        replies.bulk(b"limit");
        replies.integer(0);
    }
    if let Some(place) = counted {
        let place = i64::try_from(place).expect("few");
        key_specification(command, ranges, place, replies);
        replies.bulk(b"keynum");
        replies.bulk(b"spec");
        replies.map(3);
        for (name, number) in [("keynumidx", 0), ("firstkey", 1), ("keystep", 1)] {
            replies.bulk(name.as_bytes());
            replies.integer(number);
        }
    }
}

/// What is told of some keys up to the type of what follows: where they begin.
fn key_specification(command: &Command, number: usize, first: i64, replies: &mut Replies<'_>) {
    replies.map(3);
    replies.bulk(b"flags");
    let KeyFlags { usual, .. } = key_flags(command.id, number);
    replies.set(usual.len());
    usual.iter().for_each(|flag| replies.simple(flag));
    replies.bulk(b"begin_search");
    replies.map(2);
    replies.bulk(b"type");
    replies.bulk(b"index");
    replies.bulk(b"spec");
    replies.map(1);
    replies.bulk(b"index");
    replies.integer(first);
    replies.bulk(b"find_keys");
    replies.map(2);
    replies.bulk(b"type");
}

/// COMMAND GETKEYS and GETKEYSANDFLAGS.
fn keys(args: Arguments<'_>, has_flags: bool, replies: &mut Replies<'_>) {
    let Some(command) = find(args.get(2)) else {
        return replies.error(b"ERR Invalid command specified");
    };
    let args = args.behind(2);
    let has_keys = command.keys.0 > 0 && command.group != "pubsub";
    if !has_keys && !command.flags().any(|flag| flag == "movablekeys") {
        return replies.error(b"ERR The command has no key arguments");
    }
    if !command.takes(args.len()) {
        return replies.error(b"ERR Invalid number of arguments specified for command");
    }
    let places = key_places(command, args);
    if places.is_empty() && count_place(command.id).is_some() {
        return replies.error(b"ERR Invalid arguments specified for command");
    }
    replies.array(places.len());
    for (number, place) in places.into_iter().enumerate() {
        if !has_flags {
            replies.bulk(args.get(place));
            continue;
        }
        replies.array(2);
        replies.bulk(args.get(place));
        let flags = key_flags(command.id, number).of(args);
        replies.set(flags.len());
        flags.iter().for_each(|flag| replies.simple(flag));
    }
}

fn documents(args: Arguments<'_>, replies: &mut Replies<'_>) {
    let asked: Vec<&Command> = match args.len() {
        2 => COMMANDS.iter().collect(),
        _ => args.from(2).filter_map(find).collect(),
    };
    replies.map(asked.len());
    for command in asked {
        replies.bulk(command.name.as_bytes());
        let syntax = syntax_of(command.id);
        replies.map(if syntax.is_empty() { 3 } else { 4 });
        for (name, text) in [
            ("summary", command.summary),
            ("since", command.since),
            ("group", command.group),
        ] {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
        if !syntax.is_empty() {
            replies.bulk(b"arguments");
            write_arguments(syntax, replies);
        }
    }
}

fn list(args: Arguments<'_>, replies: &mut Replies<'_>) {
    let is = |number: usize, name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
    let names: Vec<&str> = match args.len() {
        2 => COMMANDS.iter().map(|command| command.name).collect(),
        5 if is(2, b"FILTERBY") && is(3, b"PATTERN") => {
            let pattern = Pattern::new(args.get(4));
            let names = COMMANDS.iter().map(|command| command.name);
            names
                .filter(|name| pattern.matches(name.as_bytes()))
                .collect()
        }
        // There are no modules.
        5 if is(2, b"FILTERBY") && is(3, b"MODULE") => Vec::new(),
        5 if is(2, b"FILTERBY") && is(3, b"ACLCAT") => {
            let wanted = args.get(4).to_ascii_lowercase();
            let has = |command: &&Command| {
                let mut all = categories(command).into_iter();
                all.any(|category| category.as_bytes()[1..] == wanted)
            };
            COMMANDS.iter().filter(has).map(|it| it.name).collect()
        }
        _ => return replies.error(b"ERR syntax error"),
    };
    replies.array(names.len());
    names.iter().for_each(|name| replies.bulk(name.as_bytes()));
}
