//! The one table of commands: it decides what is spoken, and answers COMMAND.

/// A command by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the command of its name")]
pub enum Name {
    Append,
    Auth,
    Client,
    Cluster,
    Command,
    Config,
    DbSize,
    Decr,
    DecrBy,
    Del,
    DelEx,
    Discard,
    Echo,
    Exec,
    Exists,
    Expire,
    ExpireAt,
    ExpireTime,
    Get,
    GetDel,
    GetEx,
    GetRange,
    Hello,
    Incr,
    IncrBy,
    IncrEx,
    Info,
    KvApply,
    KvOpts,
    KvRun,
    MGet,
    MSet,
    Multi,
    Persist,
    PExpire,
    PExpireAt,
    PExpireTime,
    Ping,
    PSetEx,
    PTtl,
    Quit,
    ReadOnly,
    ReadWrite,
    Reset,
    Scan,
    Select,
    Set,
    SetEx,
    SetNx,
    SetRange,
    SlowLog,
    StrLen,
    Time,
    Ttl,
    Type,
    Unlink,
    Unwatch,
    Wait,
    Watch,
}

/// One command.
#[derive(Debug)]
pub struct Command {
    /// Its name, in small letters.
    pub name: &'static str,
    /// Which it is.
    pub id: Name,
    /// Its arguments with the name; negative for at least so many.
    pub arity: i8,
    /// What clients and proxies go by, with blanks between.
    pub flags: &'static str,
    /// The first key, the last one (negative: from the end), how far they are apart; 0 is none.
    pub keys: (i8, i8, i8),
    /// Its group in the documents of Redis.
    pub group: &'static str,
    /// The version of Redis that had it first.
    pub since: &'static str,
    /// What it does.
    pub summary: &'static str,
}

/// Bytes of a name, at most.
const NAME_BYTES_MAX: usize = 16;

/// All commands, by their names.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "append",
        id: Name::Append,
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "2.0.0",
        summary: "Appends a string to the value of a key. Creates the key if it \
            doesn't exist.",
    },
    Command {
        name: "auth",
        id: Name::Auth,
        arity: -2,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: (0, 0, 0),
        group: "connection",
        since: "1.0.0",
        summary: "Authenticates the connection.",
    },
    Command {
        name: "client",
        id: Name::Client,
        arity: -2,
        flags: "",
        keys: (0, 0, 0),
        group: "connection",
        since: "2.4.0",
        summary: "A container for client connection commands.",
    },
    Command {
        name: "cluster",
        id: Name::Cluster,
        arity: -2,
        flags: "",
        keys: (0, 0, 0),
        group: "cluster",
        since: "3.0.0",
        summary: "A container for commands about the slots of this node.",
    },
    Command {
        name: "command",
        id: Name::Command,
        arity: -1,
        flags: "loading stale",
        keys: (0, 0, 0),
        group: "server",
        since: "2.8.13",
        summary: "Returns detailed information about all commands.",
    },
    Command {
        name: "config",
        id: Name::Config,
        arity: -2,
        flags: "",
        keys: (0, 0, 0),
        group: "server",
        since: "2.0.0",
        summary: "A container for server configuration commands.",
    },
    Command {
        name: "dbsize",
        id: Name::DbSize,
        arity: 1,
        flags: "readonly fast",
        keys: (0, 0, 0),
        group: "server",
        since: "1.0.0",
        summary: "Returns the number of keys in the database.",
    },
    Command {
        name: "decr",
        id: Name::Decr,
        arity: 2,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Decrements the integer value of a key by one. Uses 0 as initial \
            value if the key doesn't exist.",
    },
    Command {
        name: "decrby",
        id: Name::DecrBy,
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Decrements a number from the integer value of a key. Uses 0 as \
            initial value if the key doesn't exist.",
    },
    Command {
        name: "del",
        id: Name::Del,
        arity: -2,
        flags: "write",
        keys: (1, -1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Deletes one or more keys.",
    },
    Command {
        name: "delex",
        id: Name::DelEx,
        arity: -2,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "string",
        since: "8.4.0",
        summary: "Deletes a key if its value equals another one, or differs.",
    },
    Command {
        name: "discard",
        id: Name::Discard,
        arity: 1,
        flags: "noscript loading stale fast allow_busy",
        keys: (0, 0, 0),
        group: "transactions",
        since: "2.0.0",
        summary: "Discards a transaction.",
    },
    Command {
        name: "echo",
        id: Name::Echo,
        arity: 2,
        flags: "fast",
        keys: (0, 0, 0),
        group: "connection",
        since: "1.0.0",
        summary: "Returns the given string.",
    },
    Command {
        name: "exec",
        id: Name::Exec,
        arity: 1,
        flags: "noscript loading stale skip_slowlog",
        keys: (0, 0, 0),
        group: "transactions",
        since: "1.2.0",
        summary: "Executes all commands in a transaction.",
    },
    Command {
        name: "exists",
        id: Name::Exists,
        arity: -2,
        flags: "readonly fast",
        keys: (1, -1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Determines whether one or more keys exist.",
    },
    Command {
        name: "expire",
        id: Name::Expire,
        arity: -3,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Sets the expiration time of a key in seconds.",
    },
    Command {
        name: "expireat",
        id: Name::ExpireAt,
        arity: -3,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "1.2.0",
        summary: "Sets the expiration time of a key to a Unix timestamp.",
    },
    Command {
        name: "expiretime",
        id: Name::ExpireTime,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "7.0.0",
        summary: "Returns the expiration time of a key as a Unix timestamp.",
    },
    Command {
        name: "get",
        id: Name::Get,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Returns the string value of a key.",
    },
    Command {
        name: "getdel",
        id: Name::GetDel,
        arity: 2,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "string",
        since: "6.2.0",
        summary: "Returns the string value of a key after deleting the key.",
    },
    Command {
        name: "getex",
        id: Name::GetEx,
        arity: -2,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "string",
        since: "6.2.0",
        summary: "Returns the string value of a key after setting its expiration time.",
    },
    Command {
        name: "getrange",
        id: Name::GetRange,
        arity: 4,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "string",
        since: "2.4.0",
        summary: "Returns a substring of the string stored at a key.",
    },
    Command {
        name: "hello",
        id: Name::Hello,
        arity: -1,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: (0, 0, 0),
        group: "connection",
        since: "6.0.0",
        summary: "Handshakes with the server.",
    },
    Command {
        name: "incr",
        id: Name::Incr,
        arity: 2,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Increments the integer value of a key by one. Uses 0 as initial \
            value if the key doesn't exist.",
    },
    Command {
        name: "incrby",
        id: Name::IncrBy,
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Increments the integer value of a key by a number. Uses 0 as \
            initial value if the key doesn't exist.",
    },
    Command {
        name: "increx",
        id: Name::IncrEx,
        arity: -2,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "8.8.0",
        summary: "Increments the integer value of a key within bounds, and sets \
            its expiration time. Uses 0 as initial value if the key doesn't exist.",
    },
    Command {
        name: "info",
        id: Name::Info,
        arity: -1,
        flags: "loading stale",
        keys: (0, 0, 0),
        group: "server",
        since: "1.0.0",
        summary: "Returns information and statistics about the server.",
    },
    Command {
        name: "kv.apply",
        id: Name::KvApply,
        arity: -3,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "penstock",
        since: "7.4.0",
        summary: "Runs guards and effects on up to 255 keys of one slot, all or none.",
    },
    Command {
        name: "kv.opts",
        id: Name::KvOpts,
        arity: -1,
        flags: "loading stale fast",
        keys: (0, 0, 0),
        group: "penstock",
        since: "7.4.0",
        summary: "Sets or tells the ack level, the age of reads and the next token.",
    },
    Command {
        name: "kv.run",
        id: Name::KvRun,
        arity: -3,
        flags: "write denyoom",
        keys: (2, 2, 1),
        group: "penstock",
        since: "7.4.0",
        summary: "Runs a program of the schema on up to eight keys of one slot, all or nothing.",
    },
    Command {
        name: "mget",
        id: Name::MGet,
        arity: -2,
        flags: "readonly fast",
        keys: (1, -1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Returns the string values of one or more keys. Keys of several \
            slots are not read at one instant.",
    },
    Command {
        name: "mset",
        id: Name::MSet,
        arity: -3,
        flags: "write denyoom",
        keys: (1, -1, 2),
        group: "string",
        since: "1.0.1",
        summary: "Sets the string values of one or more keys. Not atomic: each \
            key is a change of its own.",
    },
    Command {
        name: "multi",
        id: Name::Multi,
        arity: 1,
        flags: "noscript loading stale fast allow_busy",
        keys: (0, 0, 0),
        group: "transactions",
        since: "1.2.0",
        summary: "Starts a transaction.",
    },
    Command {
        name: "persist",
        id: Name::Persist,
        arity: 2,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "2.2.0",
        summary: "Removes the expiration time of a key.",
    },
    Command {
        name: "pexpire",
        id: Name::PExpire,
        arity: -3,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "2.6.0",
        summary: "Sets the expiration time of a key in milliseconds.",
    },
    Command {
        name: "pexpireat",
        id: Name::PExpireAt,
        arity: -3,
        flags: "write fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "2.6.0",
        summary: "Sets the expiration time of a key to a Unix milliseconds timestamp.",
    },
    Command {
        name: "pexpiretime",
        id: Name::PExpireTime,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "7.0.0",
        summary: "Returns the expiration time of a key as a Unix milliseconds timestamp.",
    },
    Command {
        name: "ping",
        id: Name::Ping,
        arity: -1,
        flags: "fast",
        keys: (0, 0, 0),
        group: "connection",
        since: "1.0.0",
        summary: "Returns the server's liveliness response.",
    },
    Command {
        name: "psetex",
        id: Name::PSetEx,
        arity: 4,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "string",
        since: "2.6.0",
        summary: "Sets both string value and expiration time in milliseconds of a \
            key. The key is created if it doesn't exist.",
    },
    Command {
        name: "pttl",
        id: Name::PTtl,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "2.6.0",
        summary: "Returns the expiration time in milliseconds of a key.",
    },
    Command {
        name: "quit",
        id: Name::Quit,
        arity: -1,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: (0, 0, 0),
        group: "connection",
        since: "1.0.0",
        summary: "Closes the connection.",
    },
    Command {
        name: "readonly",
        id: Name::ReadOnly,
        arity: 1,
        flags: "loading stale fast",
        keys: (0, 0, 0),
        group: "cluster",
        since: "3.0.0",
        summary: "Enables read-only queries for a connection to a replica node.",
    },
    Command {
        name: "readwrite",
        id: Name::ReadWrite,
        arity: 1,
        flags: "loading stale fast",
        keys: (0, 0, 0),
        group: "cluster",
        since: "3.0.0",
        summary: "Ends READONLY.",
    },
    Command {
        name: "reset",
        id: Name::Reset,
        arity: 1,
        flags: "noscript loading stale fast no_auth allow_busy",
        keys: (0, 0, 0),
        group: "connection",
        since: "6.2.0",
        summary: "Resets the connection.",
    },
    Command {
        name: "scan",
        id: Name::Scan,
        arity: -2,
        flags: "readonly",
        keys: (0, 0, 0),
        group: "generic",
        since: "2.8.0",
        summary: "Iterates over the key names in the database.",
    },
    Command {
        name: "select",
        id: Name::Select,
        arity: 2,
        flags: "loading stale fast",
        keys: (0, 0, 0),
        group: "connection",
        since: "1.0.0",
        summary: "Changes the selected database. There is one, 0.",
    },
    Command {
        name: "set",
        id: Name::Set,
        arity: -3,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Sets the string value of a key, ignoring its type. The key is \
            created if it doesn't exist.",
    },
    Command {
        name: "setex",
        id: Name::SetEx,
        arity: 4,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "string",
        since: "2.0.0",
        summary: "Sets the string value and expiration time of a key. Creates the \
            key if it doesn't exist.",
    },
    Command {
        name: "setnx",
        id: Name::SetNx,
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Set the string value of a key only when the key doesn't exist.",
    },
    Command {
        name: "setrange",
        id: Name::SetRange,
        arity: 4,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "string",
        since: "2.2.0",
        summary: "Overwrites a part of a string value with another by an offset. \
            Creates the key if it doesn't exist.",
    },
    Command {
        name: "slowlog",
        id: Name::SlowLog,
        arity: -2,
        flags: "",
        keys: (0, 0, 0),
        group: "server",
        since: "2.2.12",
        summary: "A container for slow log commands.",
    },
    Command {
        name: "strlen",
        id: Name::StrLen,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "string",
        since: "2.2.0",
        summary: "Returns the length of a string value.",
    },
    Command {
        name: "time",
        id: Name::Time,
        arity: 1,
        flags: "loading stale fast",
        keys: (0, 0, 0),
        group: "server",
        since: "2.6.0",
        summary: "Returns the server time.",
    },
    Command {
        name: "ttl",
        id: Name::Ttl,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Returns the expiration time in seconds of a key.",
    },
    Command {
        name: "type",
        id: Name::Type,
        arity: 2,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Determines the type of value stored at a key.",
    },
    Command {
        name: "unlink",
        id: Name::Unlink,
        arity: -2,
        flags: "write fast",
        keys: (1, -1, 1),
        group: "generic",
        since: "4.0.0",
        summary: "Deletes one or more keys.",
    },
    Command {
        name: "unwatch",
        id: Name::Unwatch,
        arity: 1,
        flags: "noscript loading stale fast allow_busy",
        keys: (0, 0, 0),
        group: "transactions",
        since: "2.2.0",
        summary: "Forgets about watched keys of a transaction.",
    },
    Command {
        name: "wait",
        id: Name::Wait,
        arity: 3,
        flags: "",
        keys: (0, 0, 0),
        group: "generic",
        since: "3.0.0",
        summary: "Waits until the writes of the connection are at other nodes, and \
            tells at how many.",
    },
    Command {
        name: "watch",
        id: Name::Watch,
        arity: -2,
        flags: "noscript loading stale fast allow_busy",
        keys: (1, -1, 1),
        group: "transactions",
        since: "2.2.0",
        summary: "Monitors changes to keys to determine the execution of a transaction.",
    },
];

/// The names as numbers, which are in the order of the names.
const NAMES: [u128; COMMANDS.len()] = {
    let mut names = [0; COMMANDS.len()];
    let mut place = 0;
    while place < names.len() {
        let (name, mut bytes) = (COMMANDS[place].name.as_bytes(), [0; NAME_BYTES_MAX]);
        let (into, _) = bytes.split_at_mut(name.len());
        into.copy_from_slice(name);
        names[place] = u128::from_be_bytes(bytes);
        place += 1;
    }
    names
};

/// The command of a name in letters of any size.
#[inline]
#[must_use]
pub fn find(name: &[u8]) -> Option<&'static Command> {
    let mut small = [0; NAME_BYTES_MAX];
    small.get_mut(..name.len())?.copy_from_slice(name);
    small.make_ascii_lowercase();
    let place = NAMES.binary_search(&u128::from_be_bytes(small)).ok()?;
    let command = &COMMANDS[place];
    // A zero at the end of a name is as no byte.
    (command.name.len() == name.len()).then_some(command)
}

impl Command {
    /// Whether a command may have so many arguments, its name included.
    #[inline]
    #[must_use]
    pub fn takes(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        match self.arity < 0 {
            true => arguments >= least,
            false => arguments == least,
        }
    }

    /// Whether it is taken before a login.
    #[must_use]
    pub fn needs_no_login(&self) -> bool {
        self.flags().any(|flag| flag == "no_auth")
    }

    /// Its flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.flags.split_ascii_whitespace()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_in_order_and_each_is_found_by_its_name() {
        assert!(COMMANDS.is_sorted_by(|one, other| one.name < other.name));
        for command in COMMANDS {
            assert!(command.name.len() <= NAME_BYTES_MAX);
            let found = find(command.name.to_ascii_uppercase().as_bytes()).expect("is there");
            assert_eq!(found.name, command.name);
            assert_eq!(found.id, command.id);
        }
        for name in ["", "ge", "gets", "get\0", "\0", "zzz", "a name of 17 bytes"] {
            assert!(find(name.as_bytes()).is_none(), "{name:?}");
        }
        assert!(find(b"monitor").is_none() && find(b"").is_none() && find(&[b'a'; 99]).is_none());
    }
}
