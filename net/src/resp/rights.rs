//! Rights at commands that are answered without an item; items are judged by the shard.

use crate::rights::{Need, Rights};

use super::parser::Arguments;
use super::table::{self, Name};

/// The words of Redis for a key that may not be used.
pub(super) const NO_KEY: &[u8] = b"NOPERM No permissions to access a key";

/// What a user needs for all keys to be answered a command; `None` if nothing.
fn need_of(id: Name, args: Arguments<'_>) -> Option<Need> {
    let is_of_others = || {
        let names = ["list", "kill", "pause", "unblock", "unpause"];
        let is = |name: &str| args.get(1).eq_ignore_ascii_case(name.as_bytes());
        args.len() > 1 && names.into_iter().any(is)
    };
    let flushes = || args.len() > 1 && args.get(1).eq_ignore_ascii_case(b"flush");
    match id {
        Name::Script if flushes() => Some(Need::ADMIN),
        Name::Info | Name::Config | Name::SlowLog | Name::Debug => Some(Need::ADMIN),
        Name::FlushAll | Name::FlushDb => Some(Need::ADMIN),
        Name::Client if is_of_others() => Some(Need::ADMIN),
        Name::DbSize | Name::PubSub => Some(Need::READ),
        _ => None,
    }
}

/// The refusal of a command, in the words of Redis, if the user lacks a right.
pub(super) fn refusal(id: Name, args: Arguments<'_>, rights: &Rights) -> Option<Vec<u8>> {
    let keeps_scripts = id == Name::Script && args.len() > 1 && {
        let names = ["load", "show"];
        let is = |name: &str| args.get(1).eq_ignore_ascii_case(name.as_bytes());
        names.into_iter().any(is)
    };
    if !keeps_scripts || rights.is_any() {
        rights.demand_prefix(need_of(id, args)?, &[]).err()?;
    }
    let mut command = table::find(args.get(0))?.name.to_string();
    let has_parts = matches!(
        id,
        Name::Config | Name::SlowLog | Name::Client | Name::Script
    );
    if has_parts && args.len() > 1 {
        command.push('|');
        let part = args.get(1).to_ascii_lowercase();
        command.push_str(&part.escape_ascii().to_string());
    }
    let user = rights.user();
    Some(format!("NOPERM User {user} has no permissions to run the '{command}' command").into())
}
