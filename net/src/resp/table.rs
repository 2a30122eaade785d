//! The one table of commands: it decides what is spoken, and answers COMMAND.

mod by_name;
mod name;
mod of_channels;
mod of_hashes;
mod of_lists;
mod of_penstock;
mod of_sets;
mod of_zsets;

pub use by_name::find;
pub use name::Name;

use of_channels::{OF_CHANNELS, merged};
use of_hashes::OF_HASHES;
use of_lists::OF_LISTS;
use of_penstock::OF_PENSTOCK;
use of_sets::OF_SETS;
use of_zsets::OF_ZSETS;

/// One command.
#[derive(Clone, Copy, Debug)]
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

/// All commands, by their names.
pub const COMMANDS: &[Command] = &ALL;
static ALL: [Command; MOST.len() + OF_CHANNELS.len()] = merged(&MOST, OF_CHANNELS);
const MOST: [Command; OF_VALUES.len() + OF_PENSTOCK.len()] = merged(&OF_VALUES, OF_PENSTOCK);
const OF_VALUES: [Command; WITH_SETS.len() + OF_ZSETS.len()] = merged(&WITH_SETS, OF_ZSETS);
const WITH_SETS: [Command; WITH_LISTS.len() + OF_SETS.len()] = merged(&WITH_LISTS, OF_SETS);
const WITH_LISTS: [Command; WITH_HASHES.len() + OF_LISTS.len()] = merged(&WITH_HASHES, OF_LISTS);
const WITH_HASHES: [Command; USUAL.len() + OF_HASHES.len()] = merged(USUAL, OF_HASHES);

/// Those of keys and connections, by their names.
const USUAL: &[Command] = &[
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
        name: "bitcount",
        id: Name::BitCount,
        arity: -2,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "bitmap",
        since: "2.6.0",
        summary: "Counts the set bits of a string, or of a stretch of it.",
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
        name: "copy",
        id: Name::Copy,
        arity: -3,
        flags: "write denyoom",
        keys: (1, 2, 1),
        group: "generic",
        since: "6.2.0",
        summary: "Copies the value of a key, and its expiration time, to a new key.",
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
        name: "debug",
        id: Name::Debug,
        arity: -2,
        flags: "admin noscript loading stale",
        keys: (0, 0, 0),
        group: "server",
        since: "1.0.0",
        summary: "A container for debugging commands.",
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
        name: "eval",
        id: Name::Eval,
        arity: -3,
        flags: "noscript stale skip_monitor no_mandatory_keys movablekeys",
        keys: (0, 0, 0),
        group: "scripting",
        since: "2.6.0",
        summary: "Executes a server-side Lua script.",
    },
    Command {
        name: "eval_ro",
        id: Name::EvalRo,
        arity: -3,
        flags: "readonly noscript stale skip_monitor no_mandatory_keys movablekeys",
        keys: (0, 0, 0),
        group: "scripting",
        since: "7.0.0",
        summary: "Executes a read-only server-side Lua script.",
    },
    Command {
        name: "evalsha",
        id: Name::EvalSha,
        arity: -3,
        flags: "noscript stale skip_monitor no_mandatory_keys movablekeys",
        keys: (0, 0, 0),
        group: "scripting",
        since: "2.6.0",
        summary: "Executes a server-side Lua script by SHA1 digest.",
    },
    Command {
        name: "evalsha_ro",
        id: Name::EvalShaRo,
        arity: -3,
        flags: "readonly noscript stale skip_monitor no_mandatory_keys movablekeys",
        keys: (0, 0, 0),
        group: "scripting",
        since: "7.0.0",
        summary: "Executes a read-only server-side Lua script by SHA1 digest.",
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
        name: "flushall",
        id: Name::FlushAll,
        arity: -1,
        flags: "write",
        keys: (0, 0, 0),
        group: "server",
        since: "1.0.0",
        summary: "Removes all keys from all databases.",
    },
    Command {
        name: "flushdb",
        id: Name::FlushDb,
        arity: -1,
        flags: "write",
        keys: (0, 0, 0),
        group: "server",
        since: "1.0.0",
        summary: "Removes all keys from the current database.",
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
        name: "getbit",
        id: Name::GetBit,
        arity: 3,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "bitmap",
        since: "2.2.0",
        summary: "Returns a bit of a string by its offset.",
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
        name: "getset",
        id: Name::GetSet,
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "1.0.0",
        summary: "Returns the previous string value of a key after setting it to a new one.",
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
        name: "incrbyfloat",
        id: Name::IncrByFloat,
        arity: 3,
        flags: "write denyoom fast",
        keys: (1, 1, 1),
        group: "string",
        since: "2.6.0",
        summary: "Increments the value of a key by a number with a point. Uses 0 as \
            initial value if the key does not exist.",
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
        name: "keys",
        id: Name::Keys,
        arity: 2,
        flags: "readonly",
        keys: (0, 0, 0),
        group: "generic",
        since: "1.0.0",
        summary: "Returns all key names that match a pattern.",
    },
    Command {
        name: "memory",
        id: Name::Memory,
        arity: -2,
        flags: "readonly",
        keys: (2, 2, 1),
        group: "server",
        since: "4.0.0",
        summary: "A container for memory introspection commands.",
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
        name: "msetnx",
        id: Name::MSetNx,
        arity: -3,
        flags: "write denyoom",
        keys: (1, -1, 2),
        group: "string",
        since: "1.0.1",
        summary: "Sets the string values of one or more keys of one slot, only when all \
            of them do not exist.",
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
        name: "object",
        id: Name::Object,
        arity: -2,
        flags: "readonly",
        keys: (2, 2, 1),
        group: "generic",
        since: "2.2.3",
        summary: "A container for object introspection commands.",
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
        name: "randomkey",
        id: Name::RandomKey,
        arity: 1,
        flags: "readonly",
        keys: (0, 0, 0),
        group: "generic",
        since: "1.0.0",
        summary: "Returns a random key name from the database.",
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
        name: "rename",
        id: Name::Rename,
        arity: 3,
        flags: "write",
        keys: (1, 2, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Renames a key, with its expiration time, and overwrites the \
            destination. Both are of one slot.",
    },
    Command {
        name: "renamenx",
        id: Name::RenameNx,
        arity: 3,
        flags: "write fast",
        keys: (1, 2, 1),
        group: "generic",
        since: "1.0.0",
        summary: "Renames a key only when the target key name does not exist. Both are \
            of one slot.",
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
        name: "script",
        id: Name::Script,
        arity: -2,
        flags: "",
        keys: (0, 0, 0),
        group: "scripting",
        since: "2.6.0",
        summary: "A container for Lua scripts management commands.",
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
        name: "setbit",
        id: Name::SetBit,
        arity: 4,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "bitmap",
        since: "2.2.0",
        summary: "Sets or clears the bit at an offset of a string. Creates the key if \
            it does not exist.",
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
        name: "touch",
        id: Name::Touch,
        arity: -2,
        flags: "readonly fast",
        keys: (1, -1, 1),
        group: "generic",
        since: "3.2.1",
        summary: "Returns the number of existing keys out of those specified.",
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

    /// Whether a connection of RESP2 with subscriptions may send it.
    #[must_use]
    pub fn is_of_subscribers(&self) -> bool {
        let is_of_connection = matches!(self.id, Name::Ping | Name::Quit | Name::Reset);
        let is_other = matches!(self.id, Name::Publish | Name::SPublish | Name::PubSub);
        is_of_connection || self.group == "pubsub" && !is_other
    }

    /// Whether its first argument says what it does.
    #[must_use]
    pub fn has_subcommands(&self) -> bool {
        use Name::{Client, Cluster, Command, Config, Memory, Object, PubSub, Script, SlowLog};
        matches!(
            self.id,
            Client | Cluster | Command | Config | Memory | Object | PubSub | Script | SlowLog
        )
    }

    /// Its flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> + Clone {
        self.flags.split_ascii_whitespace()
    }
}
