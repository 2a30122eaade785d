//! SLOWLOG: commands whose answer took long, as the server keeps them.

use super::host::{Host, SlowCommand};
use super::number::read_integer;
use super::parser::Arguments;
use super::reply::Replies;
use super::table::{COMMANDS, Name};
use super::words::{unknown_subcommand, wrong_subcommand};

/// A command whose answer took so long is kept, in microseconds.
pub const SLOW_US: u64 = 10_000;
/// Commands that the server keeps, at most.
pub const SLOW_COMMANDS_MAX: usize = 128;
/// Bytes of a key that an entry shows.
const KEY_BYTES_SHOWN: usize = 24;
/// Entries that GET tells, if it is not told how many.
const COUNT_USUAL: usize = 10;

const HELP: [&str; 9] = [
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
];

/// What a command is about: as much as an entry of the log shows. It is copied for each command, so
/// it is small.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    pub(super) name: Name,
    key_len: u8,
    /// The slot of its keys; known only at a node of a cluster.
    pub(super) slot: u16,
    /// Whether WAIT waits for what it writes.
    pub(super) is_noted: bool,
    arguments: u16,
    key: [u8; KEY_BYTES_SHOWN],
    key_bytes: u16,
}

impl Subject {
    pub(super) fn new() -> Self {
        Subject {
            name: Name::Ping,
            key_len: 0,
            slot: 0,
            is_noted: false,
            arguments: 1,
            key: [0; KEY_BYTES_SHOWN],
            key_bytes: 0,
        }
    }

    /// The command is this one, with this first key and so many arguments.
    #[inline]
    pub(super) fn set(&mut self, name: Name, key: &[u8], arguments: usize, slot: u16) {
        let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
        let shown = key.len().min(KEY_BYTES_SHOWN);
        self.key[..shown].copy_from_slice(&key[..shown]);
        self.key_len = u8::try_from(shown).expect("few");
        self.key_bytes = short(key.len());
        self.arguments = short(arguments);
        (self.name, self.slot, self.is_noted) = (name, slot, false);
    }

    /// The command is as the one that `like` is about, but for its first key: `from_key` are its
    /// bytes, and some behind them that are not shown.
    #[inline]
    pub(super) fn set_like(&mut self, like: &Subject, from_key: &[u8], key_len: usize, slot: u16) {
        *self = *like;
        let shown = key_len.min(KEY_BYTES_SHOWN);
        match from_key.first_chunk() {
            Some(key) => self.key = *key,
            None => self.key[..shown].copy_from_slice(&from_key[..shown]),
        }
        self.key_len = u8::try_from(shown).expect("few");
        self.key_bytes = u16::try_from(key_len).unwrap_or(u16::MAX);
        self.slot = slot;
    }

    /// Its arguments, cut as Redis cuts long ones.
    #[cold]
    pub(super) fn shown(&self) -> Vec<Vec<u8>> {
        let command = COMMANDS.iter().find(|command| command.id == self.name);
        let mut shown = vec![command.map_or("", |command| command.name).into()];
        let key = &self.key[..usize::from(self.key_len)];
        let cut = usize::from(self.key_bytes) - key.len();
        if self.arguments > 1 {
            shown.push(match cut {
                0 => key.to_vec(),
                cut => [key, format!("... ({cut} more bytes)").as_bytes()].concat(),
            });
        }
        if self.arguments > 2 {
            let more = self.arguments - 2;
            shown.push(format!("... ({more} more arguments)").into_bytes());
        }
        shown
    }
}

pub(super) fn answer(args: Arguments<'_>, host: &dyn Host, replies: &mut Replies<'_>) {
    let name = args.get(1).to_ascii_lowercase();
    match (&name[..], args.len()) {
        (b"len", 2) => {
            let len = host.slow_commands().len();
            replies.integer(i64::try_from(len).expect("few"));
        }
        (b"reset", 2) => {
            host.forget_slow_commands();
            replies.simple("OK");
        }
        (b"help", 2) => replies.help("SLOWLOG", &HELP),
        (b"get", 2) => write_newest(host, COUNT_USUAL, replies),
        (b"get", 3) => match read_integer(args.get(2)) {
            Some(-1) => write_newest(host, usize::MAX, replies),
            Some(count @ 0..) => write_newest(host, usize::try_from(count).unwrap_or(0), replies),
            _ => replies.error(b"ERR count should be greater than or equal to -1"),
        },
        (b"get", _) => {
            let head = &b"ERR unknown subcommand or wrong number of arguments for '"[..];
            replies.error(&[head, args.get(1), b"'. Try SLOWLOG HELP."].concat());
        }
        (b"len" | b"reset" | b"help", _) => {
            let name = String::from_utf8_lossy(&name);
            wrong_subcommand(&format!("slowlog|{name}"), replies);
        }
        _ => unknown_subcommand("SLOWLOG", args, replies),
    }
}

/// The newest entries, at most `count`.
fn write_newest(host: &dyn Host, count: usize, replies: &mut Replies<'_>) {
    let commands = host.slow_commands();
    let commands = &commands[..commands.len().min(count)];
    replies.array(commands.len());
    for SlowCommand {
        id,
        unix_s,
        took_us,
        arguments,
        address,
        name,
    } in commands
    {
        let number = |number: &u64| i64::try_from(*number).unwrap_or(i64::MAX);
        replies.array(6);
        replies.integer(number(id));
        replies.integer(number(unix_s));
        replies.integer(number(took_us));
        replies.array(arguments.len());
        arguments.iter().for_each(|argument| replies.bulk(argument));
        replies.bulk(address.as_bytes());
        replies.bulk(name.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_shows_the_command_the_begin_of_its_key_and_how_much_more_there_was() {
        let mut subject = Subject::new();
        subject.set(Name::DbSize, b"", 1, 0);
        assert_eq!(subject.shown(), [b"dbsize".to_vec()]);
        subject.set(Name::Get, b"key", 2, 7);
        assert_eq!(subject.shown(), [b"get".to_vec(), b"key".to_vec()]);
        subject.set(Name::Set, &[b'k'; 30], 5, 7);
        let shown = subject.shown();
        assert_eq!(shown[1], b"kkkkkkkkkkkkkkkkkkkkkkkk... (6 more bytes)");
        assert_eq!(shown[2], b"... (3 more arguments)");
    }
}
