//! One item, at least, of each row of the table of RIGHTS.md.

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::program::{Argument, ArgumentKind, Blank, Program, ProgramParts, Run};
use penstock_net::request::{BatchRequest, Condition, Expiry, MemberRead, Verb, Version, Wanted};
use penstock_net::scan::ScanRequest;

/// The key that a row is about, and another one of its slot.
pub const KEY: &[u8] = b"k:{1}a";
pub const OTHER: &[u8] = b"o:{1}b";

type Put = fn(&mut BatchRequest, &mut Vec<u8>, &[u8], &[u8]);

/// An item, and the row that it belongs to.
#[derive(Clone, Copy)]
pub struct Item {
    pub row: &'static str,
    pub verb: Verb,
    put: Put,
    is_exchanged: bool,
}

impl Item {
    /// Adds it to a batch.
    pub fn put(&self, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        match self.is_exchanged {
            false => (self.put)(batch, out, KEY, OTHER),
            true => (self.put)(batch, out, OTHER, KEY),
        }
    }

    /// The same with the keys in each other's place.
    pub fn with_keys_exchanged(self) -> Item {
        let is_exchanged = !self.is_exchanged;
        Item {
            is_exchanged,
            ..self
        }
    }
}

/// A guard that every u64 passes.
pub fn only_reads() -> Instruction {
    step(Operation::Ge, 0, 0)
}

/// Takes one unit.
pub fn takes() -> Instruction {
    step(Operation::Sub, 0, 1)
}

fn step(operation: Operation, key: u8, immediate: u64) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U64,
        key,
        reason: 0,
        offset: 0,
        immediate,
    }
}

/// A program that adds to two counters.
pub fn take() -> Program {
    let mut apply = Apply::new();
    let (a, b) = (apply.key(b"{a}0"), apply.key(b"{a}1"));
    apply
        .then(a.u64(0).increase(0u64))
        .then(b.u64(0).increase(0u64));
    Program::new(ProgramParts {
        name: "take".into(),
        keys: vec!["a".into(), "b".into()],
        arguments: vec![Argument {
            name: "by".into(),
            kind: ArgumentKind::Number { min: 1, max: 100 },
        }],
        instructions: apply.instructions().to_vec(),
        data: Vec::new(),
        blanks: [0, 1]
            .map(|instruction| Blank::Operand {
                instruction,
                argument: 0,
            })
            .to_vec(),
    })
    .expect("sound")
}

fn apply(
    batch: &mut BatchRequest,
    out: &mut Vec<u8>,
    keys: [&[u8]; 2],
    add: impl FnOnce(&mut Apply, penstock_net::apply::ApplyKey, penstock_net::apply::ApplyKey),
) {
    let mut apply = Apply::new();
    let (one, two) = (apply.key(keys[0]), apply.key(keys[1]));
    add(&mut apply, one, two);
    batch.apply(out, &apply);
}

const EFFECT: &str =
    "UPDATE_IF, keys with an effect; the first one with a start value or an expiry";
const UPDATE_OTHER: &str = "UPDATE_IF, other keys";
const APPLY_EFFECT: &str = "APPLY, keys with an effect, also one of ON_EXPIRE";
const APPLY_OTHER: &str = "APPLY, other keys";
const SET: &str = "SET without a condition, the key";
const SET_IF: &str = "SET with a condition, the key";
const KEYSPACE: &str = "KEYSPACE that sets, makes or drops, the prefix";

/// All of them. The first key is the one that the row is about.
pub fn items() -> Vec<Item> {
    [reads(), writes(), updates(), applies(), others()].concat()
}

fn item(row: &'static str, verb: Verb, put: Put) -> Item {
    Item {
        row,
        verb,
        put,
        is_exchanged: false,
    }
}

fn reads() -> Vec<Item> {
    vec![
        item(
            "GET, also of a member, the key",
            Verb::Get,
            |batch, out, key, _| {
                batch.get(out, key);
            },
        ),
        item(
            "GET, also of a member, the key",
            Verb::Get,
            |batch, out, key, _| {
                batch.get_with(out, key, Wanted::Expiry);
            },
        ),
        item(
            "GET, also of a member, the key",
            Verb::Get,
            |batch, out, key, _| {
                let member = MemberRead {
                    staleness_us_max: u64::MAX,
                    version_min: Version::default(),
                };
                batch.get_of_member(out, key, Wanted::Value, member);
            },
        ),
        item("GET_AT, the key", Verb::GetAt, |batch, out, key, _| {
            batch.get_at(out, key, At::TimeMs(1));
        }),
        item("HISTORY, the key", Verb::History, |batch, out, key, _| {
            batch.history(out, key, 0, 10);
        }),
        item("SCAN, the prefix", Verb::Scan, |batch, out, key, _| {
            batch.scan(out, &ScanRequest::begin(&key[..2]));
        }),
    ]
}

fn writes() -> Vec<Item> {
    vec![
        item(SET, Verb::Set, |batch, out, key, _| {
            batch.set(out, key, b"new", Condition::Always);
        }),
        item(SET, Verb::Set, |batch, out, key, _| {
            batch.set_with(out, key, b"new", Condition::Always, Expiry::Keep);
        }),
        item(SET, Verb::Set, |batch, out, key, _| {
            batch.set_with(out, key, b"new", Condition::Always, Expiry::In(1 << 40));
        }),
        item(SET_IF, Verb::Set, |batch, out, key, _| {
            batch.set(out, key, b"new", Condition::Absent);
        }),
        item(SET_IF, Verb::Set, |batch, out, key, _| {
            batch.set(out, key, b"new", Condition::Present.showing());
        }),
        item(SET_IF, Verb::Set, |batch, out, key, _| {
            batch.set(out, key, b"new", Condition::Version(Version::default()));
        }),
        item("DEL, the key", Verb::Del, |batch, out, key, _| {
            batch.del(out, key, Condition::Always);
        }),
        item("DEL, the key", Verb::Del, |batch, out, key, _| {
            batch.del(out, key, Condition::Version(Version::default()).showing());
        }),
    ]
}

fn updates() -> Vec<Item> {
    vec![
        item(EFFECT, Verb::UpdateIf, |batch, out, key, other| {
            batch.update_if(out, key, Some(other), &[only_reads(), takes()], None);
        }),
        item(EFFECT, Verb::UpdateIf, |batch, out, key, _| {
            batch.update_if(out, key, None, &[takes()], None);
        }),
        item(EFFECT, Verb::UpdateIf, |batch, out, key, _| {
            batch.update_if(out, key, None, &[only_reads()], Some(&[0; 8]));
        }),
        item(EFFECT, Verb::UpdateIf, |batch, out, key, _| {
            batch.update_if_with(out, key, None, &[], None, Expiry::In(1 << 40));
        }),
        item(EFFECT, Verb::UpdateIf, |batch, out, key, other| {
            batch.update_if(out, other, Some(key), &[step(Operation::Add, 1, 1)], None);
        }),
        item(UPDATE_OTHER, Verb::UpdateIf, |batch, out, key, _| {
            batch.update_if(out, key, None, &[only_reads()], None);
        }),
        item(UPDATE_OTHER, Verb::UpdateIf, |batch, out, key, other| {
            let guard = step(Operation::Ge, 1, 0);
            batch.update_if(out, other, Some(key), &[takes(), guard], None);
        }),
    ]
}

fn applies() -> Vec<Item> {
    vec![
        item(APPLY_EFFECT, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [key, other], |apply, one, two| {
                apply.then(two.u64(0).at_least(0u64)).put(one, b"new");
            });
        }),
        item(APPLY_EFFECT, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [other, key], |apply, one, two| {
                apply.then(one.exists()).then(two.u64(0).increase(1u64));
            });
        }),
        item(APPLY_EFFECT, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [key, other], |apply, one, _| {
                apply.then(one.delete());
            });
        }),
        item(APPLY_EFFECT, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [key, other], |apply, one, two| {
                apply.put(two, b"hold").then(two.expire_in(1 << 40));
                apply.on_expire(two, |apply| {
                    apply.then(one.u64(0).increase(1u64));
                });
            });
        }),
        item(APPLY_OTHER, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [key, other], |apply, one, two| {
                apply
                    .then(one.u64(0).at_least(0u64))
                    .then(two.u64(0).increase(1u64));
            });
        }),
        item(APPLY_OTHER, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [key, other], |apply, one, _| {
                apply.then(one.u64(0).returned());
            });
        }),
        // A key that no instruction names counts for the size.
        item(APPLY_OTHER, Verb::Apply, |batch, out, key, other| {
            apply(batch, out, [other, key], |apply, one, _| {
                apply.put(one, b"new");
            });
        }),
    ]
}

fn others() -> Vec<Item> {
    vec![
        item(
            "RUN, each key, for this program",
            Verb::Apply,
            |batch, out, key, _| {
                let second = [key, b"2"].concat();
                let run = Run::new(take().id()).key(key).key(&second);
                batch.run(out, &run.argument(7u8));
            },
        ),
        item(KEYSPACE, Verb::Keyspace, |batch, out, key, _| {
            batch.keyspace(out, &key[..2], Action::Set(settings()));
        }),
        item(KEYSPACE, Verb::Keyspace, |batch, out, key, _| {
            batch.keyspace(out, key, Action::Create(settings()));
        }),
        item(KEYSPACE, Verb::Keyspace, |batch, out, key, _| {
            batch.keyspace(out, key, Action::Drop);
        }),
        item(
            "KEYSPACE that tells all, all keys",
            Verb::Keyspace,
            |batch, out, _, _| {
                batch.keyspace(out, b"", Action::List);
            },
        ),
        item("FLUSH, all keys", Verb::Flush, |batch, out, key, _| {
            batch.flush(out, key);
        }),
        item("PING as an item, ", Verb::Ping, |batch, out, _, _| {
            batch.ping(out, b"there and back");
        }),
    ]
}

fn settings() -> Settings {
    Settings::default()
}
