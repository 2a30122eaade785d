//! UPDATE_IF: guards and edits of fields of one or two keys of a slot. All of them take effect, or
//! none.

use penstock_net::instruction::{Instruction, Operation, Outcome};
use penstock_net::level::AckLevel;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{HeadTemplate, ITEM_FLAG_OVERFLOW, REPLY_ITEM_BYTES, ReplyHead};
use penstock_net::request::{Expiry, Request};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::store::{Change, Committed, FieldBefore, Fields, Found, Run, RunStep, Store};

use super::{Cold, Context, Key, Ran, expiry_after, no, no_room, refused, token, wire};

/// Why the instructions stopped: a guard does not hold, or a field is outside of its value.
enum Stop {
    Failed {
        instruction: Instruction,
        number: usize,
        status: Status,
        actual: u64,
        overflow: bool,
    },
    Refused(Refusal),
}

/// UPDATE_IF of the first key and a second one of its slot, which is looked up here.
pub(super) fn run_on_two<'a, P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'a>,
    first: Key<'a>,
    out: &mut Vec<u8>,
) -> Ran {
    let second = request.second_key.expect("the caller looked");
    let slot = context.slot;
    let hash = context.hash.of(second);
    let found = store.find(slot, hash, second);
    if let Found::Cold(place) = found {
        let cold = Cold {
            slot,
            hash,
            place,
            version: None,
        };
        return match first.at.cell {
            Some(_) => Ran::SecondCold(cold),
            None => Ran::Cold(cold),
        };
    }
    let second = Key::new(store, hash, second, found);
    if let Some(unfired) = second.unfired(store, context) {
        return unfired;
    }
    run::<2, P>(store, context, request, [first, second], out)
}

/// UPDATE_IF of `KEYS` keys, 1 or 2; compiled for each, because nearly all have one.
///
/// A first key that does not exist starts with the request's value, if that has one. Then each
/// instruction must hold or apply, and the expiry of the first key changes if the request says so.
/// If anything fails, no key has changed.
#[inline]
pub(super) fn run<'a, const KEYS: usize, P: Blocks>(
    store: &mut Store<P>,
    context: &Context<'_>,
    request: &Request<'a>,
    keys: [Key<'a>; KEYS],
    out: &mut Vec<u8>,
) -> Ran {
    let first = keys[0];
    let seen = keys.iter().fold(Lsn(0), |seen, key| seen.max(key.lsn));
    let starts = request.has_start && !first.at.exists;
    if request.expiry != Expiry::Keep && !first.at.exists && !starts {
        return no(context, Status::NotFound, &first, out);
    }
    let expiry = match request.expiry {
        Expiry::Keep if starts => context.unsaid(Expiry::Keep),
        expiry => expiry,
    };
    let expiry_ms = match expiry_after(store, expiry, &first) {
        Ok(expiry_ms) => expiry_ms,
        Err(refusal) => return refused(context, refusal, out),
    };
    let changes_expiry = match expiry {
        Expiry::Keep => false,
        // A key that has expired may leave its expiry in the cell.
        Expiry::Never => first.at.expiry_ms.is_some(),
        Expiry::At(_) | Expiry::In(_) => true,
    };

    let mut change = store.change(context.slot, keys.map(|key| key.at));
    if starts && let Err(lack) = change.start(0, request.value) {
        drop(change);
        return no_room(store, context, lack, out);
    }
    let from = out.len();
    out.extend_from_slice(&[0; REPLY_ITEM_BYTES]);
    let exist = keys.map(|key| key.at.exists);
    if let Err(stop) = apply(&mut change, request, &exist, out) {
        out.truncate(from);
        let head = |status| context.head(status, first.version);
        return stopped(head, stop, seen, out);
    }
    if changes_expiry || (forgets_expiry(&first) && change.is_any()) {
        change.expire(0, expiry_ms.filter(|_| changes_expiry));
    }
    if !change.is_any() {
        drop(change);
        return token::end_unchanged(store, context, (first.version, seen), from, out);
    }
    match token::commit(change, context, (out, from)) {
        Ok(Committed { lsn, version }) => {
            // Whichever key has changed: a member that has this version has the change.
            let version = planted::or(Bug::VersionOfOtherKey, first.version, wire(version));
            context.head(Status::Ok, version).patch(out, from);
            Ran::Answered {
                gate: lsn,
                status: Status::Ok,
            }
        }
        Err(lack) => {
            out.truncate(from);
            no_room(store, context, lack, out)
        }
    }
}

/// UPDATE_IF of a key of a run, which exists and keeps its expiry. The item has this number in its
/// request; `heads` are those of answers OK. `None` if it must run by itself: nothing has changed
/// then.
#[inline]
pub(super) fn repeat<P: Blocks>(
    changes: &mut Run<'_, P>,
    program: &[Instruction],
    (number, level, heads): (u16, AckLevel, &HeadTemplate),
    out: &mut Vec<u8>,
) -> Option<Ran> {
    let from = out.len();
    heads.begin(out);
    let step = changes.change(|fields| apply(&mut OneKey(fields), program, &[true], out));
    let gate = match step {
        RunStep::Committed(lsn) => lsn,
        RunStep::Same => changes.lsn(),
        RunStep::Stopped(stop) => {
            out.truncate(from);
            let head = |status| ReplyHead::new(status, number, level, wire(changes.version()));
            return Some(stopped(head, stop, changes.lsn(), out));
        }
        RunStep::Alone => {
            out.truncate(from);
            return None;
        }
    };
    heads.end(out, from, number, changes.version().sequence);
    Some(Ran::Answered {
        gate,
        status: Status::Ok,
    })
}

fn forgets_expiry(first: &Key<'_>) -> bool {
    is_planted(Bug::EditForgetsExpiry) && first.at.exists
}

/// Keys whose fields instructions edit.
trait Editable {
    /// The value of a key; `None` if it has none.
    fn fields(&mut self, which: usize) -> Option<Fields<'_>>;
}

impl<P: Blocks, const KEYS: usize> Editable for Change<'_, '_, P, KEYS> {
    #[inline(always)]
    fn fields(&mut self, which: usize) -> Option<Fields<'_>> {
        self.fields(which)
    }
}

/// The one key of a run.
struct OneKey<'c>(Fields<'c>);

impl Editable for OneKey<'_> {
    #[inline(always)]
    fn fields(&mut self, _: usize) -> Option<Fields<'_>> {
        Some(self.0.again())
    }
}

/// Instructions in their order.
trait Program {
    fn len(&self) -> usize;
    fn instruction(&self, number: usize) -> Instruction;
}

impl Program for Request<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.instruction_count()
    }

    // Decoded where it is used: through an iterator it would go through memory.
    #[inline(always)]
    fn instruction(&self, number: usize) -> Instruction {
        self.instruction(number)
    }
}

impl Program for [Instruction] {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn instruction(&self, number: usize) -> Instruction {
        self[number]
    }
}

/// Runs instructions in their order, and writes what fields are after them at the end of `out`.
/// `exist` tells which keys existed before.
#[inline]
fn apply<const KEYS: usize>(
    keys: &mut impl Editable,
    program: &(impl Program + ?Sized),
    exist: &[bool; KEYS],
    out: &mut Vec<u8>,
) -> Result<(), Stop> {
    // The value that was edited last: the next instruction is mostly about the same.
    let mut held: Option<Fields<'_>> = None;
    for number in 0..program.len() {
        let instruction = program.instruction(number);
        let which = usize::from(instruction.key);
        let failed = |status, actual, overflow| {
            Err(Stop::Failed {
                instruction,
                number,
                status,
                actual,
                overflow,
            })
        };
        match instruction.operation {
            Operation::Exists if exist[which] => continue,
            Operation::Absent if !exist[which] => continue,
            Operation::Exists => return failed(Status::NotFound, 0, false),
            Operation::Absent => return failed(Status::GuardFailed, 1, false),
            _ => {}
        }
        let is_held = held
            .as_ref()
            .is_some_and(|fields| KEYS == 1 || fields.which() == which);
        if !is_held {
            held = keys.fields(which);
        }
        let Some(fields) = &mut held else {
            return failed(Status::NotFound, 0, false);
        };
        match fields.edit(|value| run_on(&instruction, value)) {
            Outcome::Holds => {}
            Outcome::Changed { after, .. } => out.extend_from_slice(&after.to_le_bytes()),
            Outcome::Failed { actual, overflow } => {
                return failed(Status::GuardFailed, actual, overflow);
            }
            Outcome::OutsideValue => {
                return Err(Stop::Refused(Refusal::Field {
                    instruction: number,
                    offset: instruction.offset,
                    width: instruction.field_type.width(),
                    value_len: fields.value_len(),
                }));
            }
        }
    }
    Ok(())
}

/// Runs one instruction on a value, and tells what it has changed.
#[inline(always)]
fn run_on(instruction: &Instruction, value: &mut [u8]) -> (Outcome, Option<FieldBefore>) {
    let outcome = instruction.run(value);
    let before = match outcome {
        Outcome::Changed { before, .. } => Some(FieldBefore {
            offset: instruction.offset,
            width: u8::try_from(instruction.field_type.width()).expect("at most 8"),
            bytes: instruction.field_bytes(before),
        }),
        _ => None,
    };
    (outcome, before)
}

/// The reply of instructions that stopped. It shows the keys as they were, so it waits for what
/// they show.
fn stopped(head: impl Fn(Status) -> ReplyHead, stop: Stop, seen: Lsn, out: &mut Vec<u8>) -> Ran {
    let status = match stop {
        Stop::Refused(refusal) => {
            head(refusal.status()).write_message(out, &refusal);
            refusal.status()
        }
        Stop::Failed {
            instruction,
            number,
            status,
            actual,
            overflow,
        } => {
            let mut head = head(status);
            head.reason = instruction.reason;
            head.instruction = u8::try_from(number).expect("at most 64 instructions");
            head.flags = if overflow { ITEM_FLAG_OVERFLOW } else { 0 };
            let value = actual.to_le_bytes();
            let shown = match status {
                Status::GuardFailed => &value[..],
                _ => &[],
            };
            head.write(out, shown);
            status
        }
    };
    Ran::Answered {
        gate: planted::or(Bug::UngatedFailure, Lsn(0), seen),
        status,
    }
}
