//! COMMAND: the table, told.

use super::glob;
use super::parser::Arguments;
use super::reply::Replies;
use super::table::{COMMANDS, Command, find};
use super::words::{unknown_subcommand, wrong_subcommand};

/// Commands that INFO and DOCS tell by their names at once: more than there are, and few enough
/// that the same name again and again makes no long reply.
const NAMES_MAX: usize = 256;

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
    replies.array(0);
    key_specification(command, replies);
    replies.array(0);
}

fn categories(command: &Command) -> Vec<&'static str> {
    let has = |flag| command.flags().any(|known| known == flag);
    let mut categories = Vec::new();
    match command.group {
        "string" => categories.push("@string"),
        "generic" => categories.push("@keyspace"),
        "connection" => categories.push("@connection"),
        "transactions" => categories.push("@transaction"),
        _ => {}
    }
    if has("readonly") {
        categories.push("@read");
    }
    if has("write") {
        categories.push("@write");
    }
    categories.push(if has("fast") { "@fast" } else { "@slow" });
    categories
}

/// Where the keys stand, as clients of Redis 7 read it.
fn key_specification(command: &Command, replies: &mut Replies<'_>) {
    let (first, last, step) = command.keys;
    if first == 0 {
        return replies.array(0);
    }
    let is_read = command.flags().any(|flag| flag == "readonly") || command.name == "watch";
    replies.array(1);
    replies.map(3);
    replies.bulk(b"flags");
    replies.set(2);
    replies.simple(if is_read { "RO" } else { "RW" });
    replies.simple(if is_read { "access" } else { "update" });
    replies.bulk(b"begin_search");
    replies.map(2);
    replies.bulk(b"type");
    replies.bulk(b"index");
    replies.bulk(b"spec");
    replies.map(1);
    replies.bulk(b"index");
    replies.integer(first.into());
    replies.bulk(b"find_keys");
    replies.map(2);
    replies.bulk(b"type");
    replies.bulk(b"range");
    replies.bulk(b"spec");
    replies.map(3);
    replies.bulk(b"lastkey");
    replies.integer(if last < 0 { last.into() } else { 0 });
    replies.bulk(b"keystep");
    replies.integer(step.into());
    replies.bulk(b"limit");
    replies.integer(0);
}

fn documents(args: Arguments<'_>, replies: &mut Replies<'_>) {
    let asked: Vec<&Command> = match args.len() {
        2 => COMMANDS.iter().collect(),
        _ => args.from(2).filter_map(find).collect(),
    };
    replies.map(asked.len());
    for command in asked {
        replies.bulk(command.name.as_bytes());
        replies.map(3);
        for (name, text) in [
            ("summary", command.summary),
            ("since", command.since),
            ("group", command.group),
        ] {
            replies.bulk(name.as_bytes());
            replies.bulk(text.as_bytes());
        }
    }
}

fn list(args: Arguments<'_>, replies: &mut Replies<'_>) {
    let is = |number: usize, name: &[u8]| args.get(number).eq_ignore_ascii_case(name);
    let names: Vec<&str> = match args.len() {
        2 => COMMANDS.iter().map(|command| command.name).collect(),
        5 if is(2, b"FILTERBY") && is(3, b"PATTERN") => COMMANDS
            .iter()
            .map(|command| command.name)
            .filter(|name| glob::matches(args.get(4), name.as_bytes()))
            .collect(),
        _ => return replies.error(b"ERR syntax error"),
    };
    replies.array(names.len());
    names.iter().for_each(|name| replies.bulk(name.as_bytes()));
}
