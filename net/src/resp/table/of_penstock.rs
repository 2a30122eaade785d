//! The commands that Redis does not have, by their names.

use super::{Command, Name};

pub(super) const OF_PENSTOCK: &[Command] = &[
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
        name: "kv.get",
        id: Name::KvGet,
        arity: 4,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "penstock",
        since: "7.4.0",
        summary: "Returns the fields of the value of a key, by a layout.",
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
];
